//! Attributes of groups, datasets and committed types (section 5).

use std::borrow::Cow;

use super::{
    Dataspace, Datatype, Place, Reader, Result, Structure, btree2,
    fractal_heap::{Heap, in_heap},
    header::{self, Body, Header},
    shared_messages,
};

/// Where the attributes of an object are, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributesAt {
    /// There are none.
    Nowhere,
    /// In the messages of its header. The number is the length of the longest, in bytes.
    Messages(u32),
    /// In a fractal heap, with the index of their names, and whether their creation order is recorded.
    Dense(Place, Place, bool),
}

/// An attribute: its name, and the rest if that can be read.
#[derive(Debug)]
pub struct Attribute {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its type, its shape and its elements as they are stored; or why they cannot be read.
    pub value: std::result::Result<Stored, Unread>,
}

/// Why an attribute cannot be read.
#[derive(Debug, Clone)]
pub struct Unread {
    /// Where the damage is, in bytes from the start of the file.
    pub place: u64,
    /// What is wrong.
    pub reason: String,
}

/// The value of an attribute as it is stored.
#[derive(Debug)]
pub struct Stored {
    /// The type of its elements.
    pub datatype: Datatype,
    /// Its shape.
    pub space: Dataspace,
    /// Its elements.
    pub data: Vec<u8>,
}

impl AttributesAt {
    /// Returns where the attributes of an object are.
    pub(super) fn of(reader: &Reader<'_>, header: &Header) -> Result<Self> {
        if let Some(message) = header.find(header::ATTRIBUTE_INFO) {
            let body = header.body(reader, message)?;
            let mut info = body.structure(reader);
            info.version("attribute info", 0..=0)?;
            let flags = info.u8()?;
            info.skip(if flags & 1 == 0 { 0 } else { 2 })?;
            if let Some(heap) = info.address()? {
                return Ok(Self::Dense(heap, info.defined()?, flags & 1 != 0));
            }
        }
        let lengths = header.all(header::ATTRIBUTE).map(|message| header.bytes(message).len());
        let longest = lengths.filter_map(|length| u32::try_from(length).ok()).max();
        Ok(longest.map_or(Self::Nowhere, Self::Messages))
    }
}

/// Reads the attributes of the object at an address, in the order in which they are shown.
///
/// # Errors
/// Damage that leaves none to be shown.
pub fn read(reader: &Reader<'_>, at: Place, stored: AttributesAt) -> Result<Vec<Attribute>> {
    let mut attributes = Vec::new();
    match stored {
        AttributesAt::Nowhere => {}
        AttributesAt::Messages(_) => {
            let header = header::read(reader, at)?;
            for message in header.all(header::ATTRIBUTE) {
                reader.memory.reserve(2 * header.bytes(message).len() as u64)?;
                let body = header.body(reader, message)?;
                attributes.push(parse(reader, body.structure(reader))?);
            }
        }
        AttributesAt::Dense(heap, index, is_ordered) => dense(reader, heap, index, is_ordered, &mut attributes)?,
    }
    Ok(attributes)
}

/// Reads attributes in dense storage, in creation order or in the order of the bytes of their names.
fn dense(
    reader: &Reader<'_>,
    heap: Place,
    index: Place,
    is_ordered: bool,
    attributes: &mut Vec<Attribute>,
) -> Result<()> {
    /// An attribute's ID in the heap, and the memory that a record takes.
    const ID: usize = 8;
    const RECORD: u64 = 32;
    let mut records: Vec<([u8; ID], u8, u32)> = Vec::new();
    btree2::walk(reader, index, &[8], &mut |_, mut record| {
        let id = record.rest().first_chunk().copied();
        record.skip(ID)?;
        let id = id.ok_or_else(|| record.damaged("an attribute without an ID"))?;
        reader.memory.reserve(RECORD)?;
        records.push((id, record.u8()?, record.u32()?));
        Ok(())
    })?;
    records.sort_unstable_by_key(|(id, ..)| in_heap(id));
    let mut heap = Heap::open(reader, heap)?;
    let mut found: Vec<(u32, Attribute)> = Vec::new();
    for (id, flags, order) in records {
        let body = match flags & header::SHARED {
            0 => heap.object(&id)?,
            _ => shared_messages::message(reader, header::ATTRIBUTE, &id, reader.place(index))?,
        };
        reader.memory.reserve(2 * body.bytes.len() as u64)?;
        found.push((order, parse(reader, body.structure(reader))?));
    }
    match is_ordered {
        true => found.sort_by_key(|(order, _)| *order),
        false => found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name)),
    }
    attributes.extend(found.into_iter().map(|(_, attribute)| attribute));
    Ok(())
}

/// Parses a message of type 0x0C.
///
/// # Errors
/// Damage of the head or the name. Damage of the rest is kept in the attribute.
pub(super) fn parse(reader: &Reader<'_>, mut message: Structure<'_>) -> Result<Attribute> {
    let version = message.version("an attribute", 1..=3)?;
    let flags = message.u8()?;
    let [name, datatype, space] = [message.u16()?, message.u16()?, message.u16()?].map(usize::from);
    if version == 3 {
        message.skip(1)?;
    }
    let padded = |length: usize| if version == 1 { length.next_multiple_of(8) } else { length };
    let name = message.take(padded(name))?.get(..name).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let parts = |mut message: Structure<'_>| {
        let mut part = |length: usize, kind, is_shared| -> Result<Body<'_>> {
            let part = message.part(padded(length))?;
            let (bytes, place) = (part.rest().get(..length).unwrap_or_default(), part.place());
            let body = Body { bytes: Cow::Borrowed(bytes), place };
            if is_shared { header::shared(reader, kind, &body.structure(reader)) } else { Ok(body) }
        };
        let is_old = version == 1;
        let datatype = part(datatype, header::DATATYPE, !is_old && flags & 1 != 0)?;
        let space = part(space, header::DATASPACE, !is_old && flags & 2 != 0)?;
        let datatype = Datatype::parse(&mut datatype.structure(reader))?;
        let space = Dataspace::parse(space.structure(reader))?;
        let size = space.elements().and_then(|count| count.checked_mul(datatype.size));
        let size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
        let data = message.take(size)?.to_vec();
        Ok(Stored { datatype, space, data })
    };
    let value = match parts(message) {
        Ok(stored) => Ok(stored),
        Err(super::Error::Damaged { place, reason }) => Err(Unread { place, reason }),
        Err(error) => return Err(error),
    };
    Ok(Attribute { name: name.into(), value })
}
