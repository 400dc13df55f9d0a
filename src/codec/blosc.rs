//! Buffers of Blosc 1, and chunks of Blosc 2.
//!
//! A header of 16 bytes, then blocks that are decoded independently. A block has one stream, or one for each byte of an
//! element. A chunk of Blosc 2 has a header of 32 bytes, which names the filters of its blocks and may say that all
//! elements are equal; a stream may be a run of one byte.

use super::{Codec, DecodeError, Filter, lz77, memory, shuffle};

/// Bytes of the header.
const HEAD: usize = 16;

const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const DELTA: u8 = 8;
const NOT_SPLIT: u8 = 16;

/// Bytes of the header of a chunk of Blosc 2, which has both flags of shuffling.
const LONG_HEAD: usize = 32;
const LONG: u8 = SHUFFLED | BIT_SHUFFLED;

/// Filters of a chunk of Blosc 2, in the order in which they were applied.
const FILTERS: usize = 6;

/// Blocks are not split if an element has more bytes or if the block has fewer elements.
const MOST_SPLIT: usize = 16;
const LEAST_ELEMENTS: usize = 128;

fn bad(reason: impl ToString) -> DecodeError {
    DecodeError::Corrupt { codec: "blosc", reason: reason.to_string() }
}

/// The header of a buffer.
struct Head {
    version: u8,
    flags: u8,
    /// Bytes of an element.
    width: usize,
    /// Bytes when decoded.
    size: usize,
    /// Bytes of a block.
    block: usize,
    /// Bytes of the buffer.
    stored: usize,
    /// Bytes of the head.
    head: usize,
    /// What is undone of each block, in order.
    steps: Vec<Step>,
    /// What all elements are, if nothing is stored of them.
    special: Special,
}

/// What is done to the bytes of a decoded block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Shuffle,
    BitShuffle,
    /// Bits of the first block are taken out of the others, and of each of its elements out of the next one.
    Delta,
}

/// Elements that are not stored one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    None,
    Zeros,
    /// Floats of 4 or 8 bytes that are no number.
    Nan,
    /// One value, which stands behind the head.
    Value,
}

impl Head {
    fn parse(stored: &[u8]) -> Result<Self, DecodeError> {
        let Some(&[version, _, flags, width, ref sizes @ ..]) = stored.first_chunk::<HEAD>() else {
            return Err(bad("it is shorter than its head"));
        };
        let [size, block, length] = [0, 4, 8].map(|at| little(sizes, at).unwrap_or_default());
        let is_long = flags & LONG == LONG;
        let is_known = if is_long { matches!(version, 3..=5) } else { matches!(version, 1..=5) };
        if !is_known || !is_long && flags & DELTA != 0 {
            return Err(bad(format!("version {version} with flags {flags:#x} is not known")));
        }
        let head = if is_long { LONG_HEAD } else { HEAD };
        if length < head || length > stored.len() {
            return Err(bad(format!("it says that it has {length} bytes, and has {}", stored.len())));
        }
        let width = usize::from(width);
        let (steps, special) = match stored.get(HEAD..LONG_HEAD) {
            Some(more) if is_long => long_head(more, width)?,
            // The library does not shuffle bytes of elements of one.
            _ if flags & SHUFFLED != 0 && width > 1 => (vec![Step::Shuffle], Special::None),
            _ if flags & BIT_SHUFFLED != 0 => (vec![Step::BitShuffle], Special::None),
            _ => (Vec::new(), Special::None),
        };
        Ok(Self { version, flags, width, size, block, stored: length, head, steps, special })
    }
}

/// Returns what the second half of a head of Blosc 2 says: what is to be undone, in this order, and special elements.
fn long_head(more: &[u8], width: usize) -> Result<(Vec<Step>, Special), DecodeError> {
    let mut steps = Vec::new();
    for filter in more.iter().take(FILTERS).rev() {
        match filter {
            0 => {}
            1 if width > 1 => steps.push(Step::Shuffle),
            1 => {}
            2 => steps.push(Step::BitShuffle),
            3 => steps.push(Step::Delta),
            // Bits were set to 0 before.
            4 => {}
            other => return Err(bad(format!("filter {other} is not known"))),
        }
    }
    let flags = more.last().copied().unwrap_or_default();
    if flags & 1 != 0 {
        return Err(bad("blocks with a dictionary are not known"));
    }
    let special = match flags >> 4 & 7 {
        0 => Special::None,
        // Bytes that were never set may be any; they are shown as zeros.
        1 | 4 => Special::Zeros,
        2 => Special::Nan,
        3 => Special::Value,
        other => return Err(bad(format!("special elements of kind {other} are not known"))),
    };
    Ok((steps, special))
}

/// Fills `out` with special elements. Returns whether there are any.
fn fill_special(head: &Head, stored: &[u8], out: &mut [u8]) -> Result<bool, DecodeError> {
    let element: &[u8] = match (head.special, head.width) {
        (Special::None, _) => return Ok(false),
        (Special::Zeros, _) => &[0],
        (Special::Nan, width) => return fill_nan(width, out).map(|()| true),
        (Special::Value, width) => {
            let value = stored.get(head.head..).and_then(|value| value.get(..width));
            value.filter(|value| !value.is_empty()).ok_or_else(|| bad("it ends in its value"))?
        }
    };
    repeat(element, out);
    Ok(true)
}

/// Fills `out` with an element. The last one may be cut.
fn repeat(element: &[u8], out: &mut [u8]) {
    out.iter_mut().zip(element).for_each(|(to, from)| *to = *from);
    // Each copy doubles what can be copied.
    let mut done = element.len();
    while done < out.len() {
        let here = done.min(out.len() - done);
        out.copy_within(..here, done);
        done += here;
    }
}

/// Fills `out` with floats of 4 or 8 bytes that are no number.
pub(super) fn fill_nan(width: usize, out: &mut [u8]) -> Result<(), DecodeError> {
    let element: &[u8] = match width {
        4 => &f32::NAN.to_le_bytes(),
        8 => &f64::NAN.to_le_bytes(),
        width => return Err(bad(format!("elements of {width} bytes that are no numbers"))),
    };
    repeat(element, out);
    Ok(())
}

/// Undoes the difference of a block to the first one, which is `first` and decoded; `None` for the first one itself.
fn undo_delta(width: usize, first: Option<&[u8]>, out: &mut [u8]) {
    match first {
        Some(first) => out.iter_mut().zip(first).for_each(|(byte, first)| *byte ^= first),
        None => {
            let unit = match width {
                1 | 2 | 4 | 8 => width,
                width if width.is_multiple_of(8) => 8,
                _ => 1,
            };
            #[expect(clippy::indexing_slicing, reason = "both places are in `out`")]
            for at in unit..out.len() / unit * unit {
                out[at] ^= out[at - unit];
            }
        }
    }
}

/// Returns the 32-bit number at a place.
fn little(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// Returns how many bytes a buffer decodes to, as stated.
pub(super) fn size(stored: &[u8]) -> Result<u64, DecodeError> {
    Ok(Head::parse(stored)?.size as u64)
}

/// Decodes a buffer to exactly the size of `out`. If blocks are shuffled, takes at most the same amount of memory
/// again.
pub(super) fn decode_into(stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    decode_front(stored, out.len() as u64, out)
}

/// Fills `out` with the first bytes of a buffer that decodes to `size` bytes. Later blocks are not read. Takes memory
/// for two blocks.
pub(super) fn decode_front(stored: &[u8], size: u64, out: &mut [u8]) -> Result<(), DecodeError> {
    let head = Head::parse(stored)?;
    if head.size as u64 != size || out.len() > head.size {
        return Err(DecodeError::Size { got: head.size as u64, size });
    }
    if fill_special(&head, stored, out)? || out.is_empty() {
        return Ok(());
    }
    let mut blocks = Blocks::new(head, stored)?;
    let (block, size) = (blocks.head.block, blocks.head.size);
    let mut reference: Option<&[u8]> = None;
    for (number, wanted) in out.chunks_mut(block).enumerate() {
        // The last one may be wanted in part.
        let length = block.min(size - number * block);
        if wanted.len() < length {
            let mut whole = memory(length as u64)?;
            blocks.decode(number, reference, &mut whole)?;
            whole.truncate(wanted.len());
            wanted.copy_from_slice(&whole);
        } else {
            blocks.decode(number, reference, wanted)?;
        }
        if number == 0 {
            reference = Some(wanted);
        }
    }
    Ok(())
}

/// The blocks of a buffer whose elements are stored.
pub(super) struct Blocks<'a> {
    head: Head,
    stored: &'a [u8],
    /// The place of the first block.
    first: usize,
    shuffled: Vec<u8>,
}

impl<'a> Blocks<'a> {
    /// Returns the blocks of a buffer, each of this many bytes, and all of them of as many; `None` if no elements are
    /// stored, and `out` was filled with what they are. Takes memory for a block.
    pub(super) fn open(
        stored: &'a [u8],
        (block, size): (u64, u64),
        out: &mut [u8],
    ) -> Result<Option<Self>, DecodeError> {
        let head = Head::parse(stored)?;
        if head.block as u64 != block || head.size as u64 != size {
            return Err(bad(format!(
                "blocks of {} bytes and {} in all are not those of its array",
                head.block, head.size
            )));
        }
        if fill_special(&head, stored, out)? || out.is_empty() {
            return Ok(None);
        }
        Self::new(head, stored).map(Some)
    }

    fn new(head: Head, stored: &'a [u8]) -> Result<Self, DecodeError> {
        let stored = stored.get(..head.stored).unwrap_or(stored);
        if head.block == 0 || head.width == 0 {
            return Err(bad("blocks or elements have no bytes"));
        }
        let is_copied = head.flags & COPIED != 0;
        let blocks = head.size.div_ceil(head.block);
        let table = if is_copied { Some(head.size) } else { blocks.checked_mul(4) };
        let first = table.and_then(|size| size.checked_add(head.head)).filter(|first| *first <= stored.len());
        let first = first
            .ok_or_else(|| bad(if is_copied { "it ends early" } else { "it ends in the offsets of its blocks" }))?;
        let largest = head.block.min(head.size) as u64;
        // Checked before memory is taken for a whole block when only a part is wanted.
        let most = Filter::Blosc.max_size(stored.len() as u64);
        if largest > most {
            return Err(DecodeError::Impossible { codec: "blosc", stored: stored.len() as u64, size: largest });
        }
        let is_shuffled = !is_copied && head.steps.iter().any(|step| *step != Step::Delta);
        let shuffled = if is_shuffled { memory(largest)? } else { Vec::new() };
        Ok(Self { head, stored, first, shuffled })
    }

    /// Returns whether blocks are decoded with the help of the first one.
    pub(super) fn have_reference(&self) -> bool {
        self.head.flags & COPIED == 0 && self.head.steps.contains(&Step::Delta)
    }

    /// Decodes a whole block. All but the first one need that one as their reference.
    pub(super) fn decode(
        &mut self,
        number: usize,
        reference: Option<&[u8]>,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let Self { head, stored, first, shuffled } = self;
        let outside = || bad("a block stands outside");
        if head.flags & COPIED != 0 {
            let at = number.checked_mul(head.block).and_then(|at| at.checked_add(head.head));
            let bytes = at.and_then(|at| stored.get(at..)).and_then(|bytes| bytes.get(..out.len()));
            out.copy_from_slice(bytes.ok_or_else(outside)?);
            return Ok(());
        }
        let at = little(stored, head.head + 4 * number).filter(|at| *at >= *first);
        let from = at.and_then(|at| stored.get(at..)).ok_or_else(outside)?;
        // Before version 3, the library did not shuffle bits of a block whose number of elements is not a multiple of 8.
        let is_whole = head.version > 2 || (out.len() / head.width).is_multiple_of(8);
        let mut steps = head.steps.iter().filter(|step| **step != Step::BitShuffle || is_whole).peekable();
        // Has a block's size if anything is shuffled.
        let shuffled = shuffled.get_mut(..out.len()).unwrap_or_default();
        if steps.peek().is_none_or(|step| **step == Step::Delta) {
            decode_block(head, from, out)?;
        } else {
            decode_block(head, from, shuffled)?;
        }
        for (number, step) in steps.enumerate() {
            if *step == Step::Delta {
                undo_delta(head.width, reference, out);
                continue;
            }
            if number > 0 {
                shuffled.copy_from_slice(out);
            }
            match step {
                Step::BitShuffle => shuffle::unshuffle_bits(head.width, shuffled, out),
                _ => shuffle::unshuffle(head.width, shuffled, out),
            }
        }
        Ok(())
    }
}

/// Decodes the streams of a block.
fn decode_block(head: &Head, mut from: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let is_long = head.head == LONG_HEAD;
    let is_split = head.flags & NOT_SPLIT == 0
        && (is_long || head.width <= MOST_SPLIT && head.block / head.width >= LEAST_ELEMENTS)
        && out.len() == head.block;
    let streams = if is_split { head.width } else { 1 };
    if !out.len().is_multiple_of(streams) {
        return Err(bad("a block has no whole elements"));
    }
    for out in out.chunks_exact_mut(out.len() / streams) {
        let length = little(from, 0);
        let signed = from.first_chunk().map(|length| i32::from_le_bytes(*length));
        if let Some(number) = signed.filter(|number| is_long && *number <= 0) {
            // A run of one byte; that of zeros says no more.
            let is_run = number == 0 || from.get(4).is_some_and(|token| token & 1 != 0);
            let byte = u8::try_from(number.unsigned_abs()).ok().filter(|_| is_run);
            out.fill(byte.ok_or_else(|| bad("a stream of a negative length"))?);
            from = from.get(if number == 0 { 4 } else { 5 }..).unwrap_or_default();
            continue;
        }
        let length = length.filter(|length| *length > 0);
        let stream = length.and_then(|length| from.get(4..4usize.checked_add(length)?));
        let stream = stream.ok_or_else(|| bad("a stream stands outside"))?;
        from = from.get(4 + stream.len()..).unwrap_or_default();
        if stream.len() == out.len() {
            out.copy_from_slice(stream);
            continue;
        }
        match head.flags >> 5 {
            0 => lz77::blosclz(stream, out)?,
            1 => Codec::Lz4.decode_into(stream, out)?,
            3 => Filter::Zlib.inflate(stream, out)?,
            4 => Codec::Zstd.decode_into(stream, out)?,
            other => return Err(bad(format!("codec {other} is not known"))),
        }
    }
    Ok(())
}
