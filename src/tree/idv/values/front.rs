//! The front of a block, inflated only as far as needed: how many slots its vectors have, how long its text is.

use crate::{
    cache::{BlockError, Stored},
    codec::{Codec, DecodeError, Stream},
    format::{
        Block, Fields,
        idv::{Item, Type, common_length, length_at, length_in},
    },
    limits,
    source::{Source, SourceError},
};
use std::io::Read;

/// Bytes that are examined together.
const STEP: usize = 32 << 10;

/// A block that is read from its front.
struct Front<'a> {
    from: From<'a>,
    left: u64,
}

enum From<'a> {
    Stored(Stored<'a>),
    Stream(Box<Stream<Stored<'a>>>),
}

impl<'a> Front<'a> {
    fn new(block: &Block, source: &'a dyn Source) -> Result<Self, BlockError> {
        let stored = Stored::new(source, block.stored());
        let from = match &block.codec {
            Codec::None => From::Stored(stored),
            codec => From::Stream(Box::new(Stream::new(codec, stored, 0)?)),
        };
        Ok(Self { from, left: block.size })
    }

    /// Fills as much as there is.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize, BlockError> {
        let wanted = usize::try_from(self.left).map_or(out.len(), |left| left.min(out.len()));
        let out = &mut out[..wanted];
        let filled = match &mut self.from {
            From::Stream(stream) => stream.fill(out)?,
            From::Stored(stored) => {
                // It reads all that it can at once; its failures are the source's own errors.
                stored.read(out).map_err(|error| error.downcast().unwrap_or_else(SourceError::from))?
            }
        };
        self.left -= filled as u64;
        Ok(filled)
    }

    fn exact(&mut self, out: &mut [u8], what: &str) -> Result<(), BlockError> {
        if self.fill(out)? == out.len() { Ok(()) } else { refused(format!("it ends before {what}")) }
    }

    fn number(&mut self, what: &str) -> Result<u32, BlockError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Goes through `count` numbers.
    fn numbers(
        &mut self,
        count: u64,
        what: &str,
        mut each: impl FnMut(u32) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let mut left = count.saturating_mul(4);
        let mut buffer = vec![0; left.min(STEP as u64) as usize];
        while left > 0 {
            let here = &mut buffer[..left.min(STEP as u64) as usize];
            self.exact(here, what)?;
            left -= here.len() as u64;
            here.chunks_exact(4).try_for_each(|bytes| each(bytes.u32(0).unwrap_or(0)))?;
        }
        Ok(())
    }

    /// Returns the length of a text after `skip` bytes, all of them numbers of 4 bytes.
    fn text_behind(&mut self, skip: u64) -> Result<u64, BlockError> {
        self.numbers(skip / 4, "its text", |_| Ok(()))?;
        let mut bytes = [0; 5];
        let filled = self.fill(&mut bytes)?;
        match length_at(&bytes[..filled]) {
            Some((length, _)) => Ok(length),
            None => refused("the length of its text is damaged".into()),
        }
    }
}

/// Numbers of a block one by one, from one of them on.
struct Words<'a> {
    front: Front<'a>,
    buffer: Vec<u8>,
    at: usize,
}

impl<'a> Words<'a> {
    fn new(block: &Block, source: &'a dyn Source, from: u64) -> Result<Self, BlockError> {
        let mut front = Front::new(block, source)?;
        front.numbers(from, "its numbers", |_| Ok(()))?;
        Ok(Self { front, buffer: Vec::new(), at: 0 })
    }

    fn next(&mut self, what: &str) -> Result<u32, BlockError> {
        if self.at == self.buffer.len() {
            self.buffer.resize(STEP, 0);
            let filled = self.front.fill(&mut self.buffer)?;
            self.buffer.truncate(filled);
            self.at = 0;
        }
        let number = self.buffer.u32(self.at);
        self.at += 4;
        number.map_or_else(|| refused(format!("it ends before {what}")), Ok)
    }
}

fn refused<T>(reason: String) -> Result<T, BlockError> {
    Err(BlockError::Refused(reason))
}

/// Checks that a large block begins with the number of its rows, as texts and vectors do, before all of it is taken
/// into memory.
pub(super) fn check_rows(block: &Block, source: &dyn Source, rows: u64) -> Result<(), BlockError> {
    let stored = Front::new(block, source)?.number("the number of its rows")?;
    if u64::from(stored) == rows { Ok(()) } else { refused(format!("it has {stored} rows, expected are {rows}")) }
}

/// Returns the slots of a block of vectors that have their own numbers of slots.
pub(super) fn slots(block: &Block, source: &dyn Source, rows: u64) -> Result<u64, BlockError> {
    let mut front = Front::new(block, source)?;
    Ok(lengths(&mut front, rows, 0)?.0)
}

/// Returns the slots of a block of vectors, the common length (or 0), and the bytes that were read.
fn lengths(front: &mut Front<'_>, rows: u64, slots: u64) -> Result<(u64, u32, u64), BlockError> {
    let vectors = front.number("the number of its vectors")?;
    if u64::from(vectors) != rows {
        return refused(format!("it has {vectors} vectors, expected are {rows}"));
    }
    let length = common_length(front.number("the length of its vectors")?, slots).map_err(BlockError::Refused)?;
    if length > 0 {
        return Ok((u64::from(length) * rows, length, 8));
    }
    let mut total = 0;
    front.numbers(rows, "the lengths of its vectors", |length| {
        if length > i32::MAX as u32 {
            return refused(format!("a vector has a length of {}", length as i32));
        }
        total += u64::from(length);
        Ok(())
    })?;
    Ok((total, 0, 8 + 4 * rows))
}

/// Returns the bytes of a block's text: by arithmetic if that has one answer, otherwise by the length before it.
pub(super) fn text(block: &Block, source: &dyn Source, rows: u64, ty: &Type) -> Result<u64, BlockError> {
    let Some(slots) = ty.slots() else {
        return match text_of_scalars(block, rows) {
            Some(length) => Ok(length),
            None => Front::new(block, source)?.text_behind(rows.saturating_mul(4).saturating_add(4)),
        };
    };
    let mut front = Front::new(block, source)?;
    let (_, length, mut at) = lengths(&mut front, rows, slots)?;
    // The lengths come before the counts, and are read a second time along with them, so that nothing has to be
    // remembered.
    let mut own = if length == 0 { Some(Words::new(block, source, 2)?) } else { None };
    let (mut items, mut row) = (0u64, 0);
    front.numbers(rows, "the counts of its vectors", |count| {
        let slots = match &mut own {
            Some(own) => own.next("the lengths of its vectors")?,
            None => length,
        };
        row += 1;
        match count {
            u32::MAX => items += u64::from(slots),
            count if count < slots => items += u64::from(count),
            count => return refused(format!("vector {} has {} values of {slots}", row - 1, count as i32)),
        }
        Ok(())
    })?;
    let indices = front.number("the number of its indices")?;
    let skip = 4 * u64::from(indices);
    at += 4 * rows + 4 + skip;
    let Some(rest) = block.size.checked_sub(at) else { return refused(format!("{indices} indices are not there")) };
    if items == 0 {
        // There is no text, so nothing else in the block matters.
        return Ok(0);
    }
    let by_size = rest.checked_sub(Item::Text.stored(items) - 1).and_then(length_in);
    by_size.map_or_else(|| front.text_behind(skip + 4 + 4 * items), Ok)
}

/// Returns the bytes of text in a block of scalars, if its size alone determines them.
pub(super) fn text_of_scalars(block: &Block, rows: u64) -> Option<u64> {
    block.size.checked_sub(rows.checked_mul(4)?.checked_add(4)?).and_then(length_in)
}

/// Returns the decoded size of a block of metadata, which is not stored: inflates it once and keeps nothing.
pub(super) fn full_size(block: &Block, source: &dyn Source) -> Result<u64, BlockError> {
    if block.codec == Codec::None {
        if block.stored_size > limits::IDV_METADATA_VALUE {
            return refused(format!("{} bytes are more than metadata may have", block.stored_size));
        }
        return Ok(block.stored_size);
    }
    let mut stream = Stream::new(&block.codec, Stored::new(source, block.stored()), 0)?;
    let mut buffer = vec![0; STEP];
    let mut size = 0;
    loop {
        let filled = stream.fill(&mut buffer)?;
        size += filled as u64;
        if size > limits::IDV_METADATA_VALUE {
            return Err(DecodeError::Size { got: size, size: limits::IDV_METADATA_VALUE }.into());
        }
        if filled < STEP {
            stream.finish(size, size)?;
            return Ok(size);
        }
    }
}
