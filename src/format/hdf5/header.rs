//! Object headers: the messages that describe an object (section 3).

use std::{borrow::Cow, collections::HashSet, ops::Range};

use super::{Place, Reader, Result, Structure, shared_messages};
use crate::source::to_usize;

/// Most blocks and messages of a header.
const BLOCKS: usize = 1024;
const MESSAGES: usize = 1 << 20;

/// Bytes of a header that are read first.
const AT_ONCE: u64 = 512;

/// Kinds of messages.
pub(super) const DATASPACE: u16 = 0x01;
pub(super) const LINK_INFO: u16 = 0x02;
pub(super) const DATATYPE: u16 = 0x03;
pub(super) const OLD_FILL: u16 = 0x04;
pub(super) const FILL: u16 = 0x05;
pub(super) const LINK: u16 = 0x06;
pub(super) const EXTERNAL: u16 = 0x07;
pub(super) const LAYOUT: u16 = 0x08;
pub(super) const GROUP_INFO: u16 = 0x0a;
pub(super) const FILTERS: u16 = 0x0b;
pub(super) const ATTRIBUTE: u16 = 0x0c;
pub(super) const SHARED_TABLE: u16 = 0x0f;
const CONTINUATION: u16 = 0x10;
pub(super) const SYMBOL_TABLE: u16 = 0x11;
pub(super) const DRIVER: u16 = 0x14;
pub(super) const ATTRIBUTE_INFO: u16 = 0x15;
const LAST_KNOWN: u16 = 0x18;
/// Among the known ones, the kind that none has.
const NO_KIND: u16 = 0x09;

/// Flags of messages.
pub(super) const SHARED: u8 = 0x02;
const FAIL_IF_UNKNOWN: u8 = 0x80;

/// An object header, read whole.
#[derive(Debug)]
pub(super) struct Header {
    /// Its messages in stored order.
    pub messages: Vec<Message>,
    /// The blocks that they are in, each with its place in the file.
    blocks: Vec<(u64, Vec<u8>)>,
}

/// A message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// Its kind.
    pub kind: u16,
    /// Its flags.
    pub flags: u8,
    block: u32,
    range: Range<u32>,
}

/// The body of a message, from the header or from where it is shared.
#[derive(Debug)]
pub(super) struct Body<'a> {
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
    /// Where they are in the file.
    pub place: u64,
}

/// The messages of a block that are not read yet.
struct Messages {
    /// The number of the block, and where messages are in it.
    block: usize,
    range: Range<usize>,
}

/// Reads the header at an address.
///
/// # Errors
/// Damage.
pub(super) fn read(reader: &Reader<'_>, at: Place) -> Result<Header> {
    let first = reader.read_up_to(at, AT_ONCE)?;
    let is_new = first.starts_with(b"OHDR");
    let mut header = Header { messages: Vec::new(), blocks: Vec::new() };
    let mut visited = HashSet::from([at]);
    let mut next = Vec::new();
    let mut part = reader.structure(at, &first);
    let (order, range) = if is_new { new_head(reader, &mut part)? } else { (false, old_head(&mut part)?) };
    let whole = range.end + if is_new { 4 } else { 0 };
    check_length(reader, at, whole)?;
    let bytes = whole_block(reader, at, first, whole)?;
    if is_new {
        reader.check_sum(at, &bytes)?;
    }
    header.blocks.push((reader.place(at), bytes));
    let range = to_usize(range.start)..to_usize(range.end);
    let head = if is_new { 4 + 2 * usize::from(order) } else { 8 };
    header.messages(reader, Messages { block: 0, range }, is_new, head, &mut next)?;
    // Blocks are read in the order in which messages name them.
    let mut number = 0;
    while let Some(&(at, length)) = next.get(number) {
        number += 1;
        if !visited.insert(at) || next.len() >= BLOCKS {
            return Err(reader.damaged(at, "a block of an object header that is there twice, or one of too many"));
        }
        check_length(reader, at, length)?;
        reader.memory.reserve(length)?;
        let (bytes, range) = match is_new {
            false => (reader.read(at, length)?, 0..to_usize(length)),
            true => {
                let bytes = reader.checked(at, b"OCHK", length)?;
                let end = bytes.len();
                (bytes, 4..end)
            }
        };
        header.blocks.push((reader.place(at), bytes));
        let block = header.blocks.len() - 1;
        header.messages(reader, Messages { block, range }, is_new, head, &mut next)?;
    }
    Ok(header)
}

/// Fails for a block in which places need more than 32 bits.
fn check_length(reader: &Reader<'_>, at: Place, length: u64) -> Result<()> {
    match u32::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(reader.damaged(at, format!("a block of an object header of {length} bytes"))),
    }
}

/// Returns where messages of the first block are.
fn old_head(head: &mut Structure<'_>) -> Result<Range<u64>> {
    head.version("an object header", 1..=1)?;
    head.skip(7)?;
    let size = u64::from(head.u32()?);
    head.skip(4)?;
    Ok(16..16 + size)
}

/// Returns whether messages have a creation order, and where messages of the first block are.
fn new_head(reader: &Reader<'_>, head: &mut Structure<'_>) -> Result<(bool, Range<u64>)> {
    head.skip(4)?;
    head.version("an object header", 2..=2)?;
    let flags = head.u8()?;
    head.skip(if flags & 0x20 == 0 { 0 } else { 16 })?;
    head.skip(if flags & 0x10 == 0 { 0 } else { 4 })?;
    let size = head.uint(1 << (flags & 3))?;
    let start = head.passed() as u64;
    let end = start.checked_add(size).filter(|end| *end < reader.source.len());
    let end = end.ok_or_else(|| head.damaged(format!("an object header of {size} bytes")))?;
    Ok((flags & 4 != 0, start..end))
}

/// Returns a whole block whose front was read.
fn whole_block(reader: &Reader<'_>, at: Place, mut front: Vec<u8>, length: u64) -> Result<Vec<u8>> {
    match usize::try_from(length) {
        Ok(length) if length <= front.len() => {
            front.truncate(length);
            Ok(front)
        }
        _ => reader.read(at, length),
    }
}

impl Header {
    /// Adds the messages of a block. Blocks that it names are added to `next`.
    fn messages(
        &mut self,
        reader: &Reader<'_>,
        Messages { block, range }: Messages,
        is_new: bool,
        head: usize,
        next: &mut Vec<(Place, u64)>,
    ) -> Result<()> {
        let Some((place, bytes)) = self.blocks.get(block) else { return Ok(()) };
        let bytes = bytes.get(..range.end).unwrap_or_default();
        let mut rest = Structure::new(bytes, *place, reader.sizes);
        rest.skip(range.start)?;
        while rest.left() >= head {
            let kind = if is_new { u16::from(rest.u8()?) } else { rest.u16()? };
            let (size, flags) = (usize::from(rest.u16()?), rest.u8()?);
            rest.skip(if is_new { head - 4 } else { 3 })?;
            let start = rest.passed();
            let mut body = rest.part(size)?;
            match kind {
                0 => {}
                CONTINUATION => next.push((body.defined()?, body.length()?)),
                _ if (kind > LAST_KNOWN || kind == NO_KIND) && flags & FAIL_IF_UNKNOWN != 0 => {
                    return Err(body.damaged(format!("a message of the unknown kind {kind}, which must be known")));
                }
                _ if self.messages.len() >= MESSAGES => {
                    return Err(body.damaged("an object header of too many messages"));
                }
                _ => {
                    #[expect(clippy::cast_possible_truncation, reason = "lengths of blocks are checked")]
                    let (range, block) = (start as u32..(start + size) as u32, block as u32);
                    self.messages.push(Message { kind, flags, block, range });
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of a message as they stand in the header.
    pub(super) fn bytes(&self, message: &Message) -> &[u8] {
        let block = self.blocks.get(message.block as usize);
        let bytes = block.and_then(|(_, bytes)| bytes.get(message.range.start as usize..message.range.end as usize));
        bytes.unwrap_or_default()
    }

    /// Returns where a message is in the file.
    pub(super) fn place(&self, message: &Message) -> u64 {
        let block = self.blocks.get(message.block as usize);
        block.map_or(0, |(place, _)| place.saturating_add(message.range.start.into()))
    }

    /// Returns the first message of a kind.
    pub(super) fn find(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|message| message.kind == kind)
    }

    /// Returns all messages of a kind.
    pub(super) fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.kind == kind)
    }

    /// Returns the body of a message, which may be stored elsewhere.
    pub(super) fn body<'a>(&'a self, reader: &Reader<'_>, message: &Message) -> Result<Body<'a>> {
        let body = Body { bytes: Cow::Borrowed(self.bytes(message)), place: self.place(message) };
        if message.flags & SHARED == 0 { Ok(body) } else { shared(reader, message.kind, &body.structure(reader)) }
    }
}

impl Body<'_> {
    /// Returns its fields.
    pub(super) fn structure(&self, reader: &Reader<'_>) -> Structure<'_> {
        Structure::new(&self.bytes, self.place, reader.sizes)
    }
}

/// Returns the body of a message that is stored elsewhere: in the header of a committed type, or in the heap of shared
/// messages (section 5).
pub(super) fn shared(reader: &Reader<'_>, kind: u16, message: &Structure<'_>) -> Result<Body<'static>> {
    let mut message = message.clone();
    let version = message.version("a shared message", 1..=3)?;
    let its_kind = message.u8()?;
    if version == 1 {
        message.skip(6)?;
        // An entry of a symbol table: the place of its name comes first.
        message.length()?;
    }
    if version == 3 && its_kind == 1 {
        let place = message.place();
        return shared_messages::message(reader, kind, message.take(8)?, place);
    }
    let at = message.defined()?;
    let header = read(reader, at)?;
    let Some(found) = header.find(kind) else {
        return Err(reader.damaged(at, format!("an object without the shared message of kind {kind}")));
    };
    if found.flags & SHARED != 0 {
        return Err(reader.damaged(at, "a shared message that is shared itself"));
    }
    Ok(Body { bytes: Cow::Owned(header.bytes(found).to_vec()), place: header.place(found) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::hdf5::{Error, Sizes},
        source::{Memory, Source, SourceError, Wait},
    };

    /// Some bytes, then a terabyte of zeros.
    struct Sparse(Vec<u8>);

    impl Source for Sparse {
        fn len(&self) -> u64 {
            1 << 40
        }

        fn read_at(&self, offset: u64, buf: &mut [u8], _: Wait) -> std::result::Result<(), SourceError> {
            let bytes = self.0.iter().skip(to_usize(offset)).copied().chain(std::iter::repeat(0));
            buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            Ok(())
        }
    }

    /// A budget of a mebibyte.
    struct Mebibyte;

    impl Memory for Mebibyte {
        fn reserve(&self, bytes: u64) -> std::result::Result<(), SourceError> {
            let refused = || std::io::Error::from_raw_os_error(libc::ENOMEM).into();
            if bytes <= 1 << 20 { Ok(()) } else { Err(refused()) }
        }
    }

    fn read_from(header: Vec<u8>) -> Result<Header> {
        let sizes = Sizes { base: 0, offset: 8, length: 8 };
        read(&Reader { source: &Sparse(header), memory: &Mebibyte, sizes, extension: None }, 0)
    }

    /// Cut to 32 bits, the place of a message would be another one.
    #[test]
    fn blocks_whose_places_need_more_than_32_bits_are_damage_and_not_read() {
        let old = |length: u64| {
            // One message of 16 bytes, which names the next block.
            let head = [1, 0, 1, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 16, 0, 0, 0, 0, 0];
            [&head[..], &4096u64.to_le_bytes(), &length.to_le_bytes()].concat()
        };
        let new = |size: u64| [&b"OHDR\x02\x03"[..], &size.to_le_bytes()].concat();
        for length in [1 << 32, 1 << 33] {
            for (header, stated) in [(old(length), length), (new(length), length + 18)] {
                match read_from(header) {
                    Err(Error::Damaged { reason, .. }) => {
                        assert_eq!(reason, format!("a block of an object header of {stated} bytes"));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(matches!(read_from(old((1 << 32) - 1)), Err(Error::Source(_))), "there is no memory for it");
        assert!(read_from(old(4096)).is_ok());
    }
}
