//! Data of a dataset that are stored elsewhere: virtual datasets and external files (section 6.4).

use super::{Place, Reader, Result, Selection, Structure, symbol_table::local_heap};

/// A part of a virtual dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The file that has it; `None` for the same one.
    pub file: Option<Box<[u8]>>,
    /// The path of the dataset in that file.
    pub dataset: Box<[u8]>,
    /// The elements of that dataset.
    pub source: Selection,
    /// Where they are in the virtual dataset.
    pub target: Selection,
    /// Whether the names are patterns that stand for several datasets.
    pub is_pattern: bool,
}

/// A part of the data of a dataset in other files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The file.
    pub file: Box<[u8]>,
    /// Where its part begins, in bytes.
    pub offset: u64,
    /// Its bytes; `None` for all up to the end of the file.
    pub size: Option<u64>,
}

/// Parts of a dataset in other files, as a header names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The heap of names.
    heap: Place,
    /// For each part: where its name is in the heap, where the part begins, and its bytes.
    slots: Box<[(u64, u64, u64)]>,
    /// Bytes of a length.
    width: u8,
}

impl Mapping {
    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        let names = self.file.as_ref().map_or(0, |file| file.len()) + self.dataset.len();
        size_of::<Self>() + names + self.source.memory_usage() + self.target.memory_usage()
    }
}

/// Parses the mappings of a virtual dataset, an object of the global heap.
///
/// # Errors
/// Damage.
pub fn mappings(reader: &Reader<'_>, object: &[u8], place: u64) -> Result<Vec<Mapping>> {
    /// Memory for a mapping in addition to its names and runs.
    const MAPPING: u64 = 256;
    let Some((body, stored)) = object.split_last_chunk::<4>() else {
        return Err(super::Error::damaged(place, "mappings without room for their checksum"));
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), super::lookup3(body));
    if stored != computed {
        return Err(super::Error::damaged(
            place,
            format!("mappings with checksum {computed:08x}, stored is {stored:08x}"),
        ));
    }
    reader.memory.reserve(4 * body.len() as u64)?;
    let mut fields = Structure::new(body, place, reader.sizes);
    let version = fields.version("mappings", 0..=1)?;
    let count = fields.length()?;
    // Each has two selections.
    if count > fields.left() as u64 / 24 {
        return Err(fields.damaged(format!("{count} mappings")));
    }
    let mut found: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        reader.memory.reserve(MAPPING)?;
        let flags = if version == 0 { 0 } else { fields.u8()? };
        let earlier = |fields: &mut Structure<'_>| {
            let number = fields.length()?;
            let known = usize::try_from(number).ok().and_then(|number| found.get(number));
            known.ok_or_else(|| fields.damaged(format!("a name of mapping {number}, which comes later")))
        };
        let file = match flags {
            _ if flags & 4 != 0 => None,
            _ if flags & 1 != 0 => earlier(&mut fields)?.file.clone(),
            _ => Some(fields.text()?).filter(|file| *file != b".").map(Box::from),
        };
        let dataset: Box<[u8]> =
            if flags & 2 != 0 { earlier(&mut fields)?.dataset.clone() } else { fields.text()?.into() };
        let (source, target) = (Selection::parse(&mut fields)?, Selection::parse(&mut fields)?);
        let is_pattern = [file.as_deref().unwrap_or_default(), &*dataset].iter().any(|name| is_pattern(name));
        found.push(Mapping { file, dataset, source, target, is_pattern });
    }
    Ok(found)
}

/// Returns whether a name has a place for a number. `%%` stands for `%`.
fn is_pattern(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [b'b', ..]) => return true,
            (b'%', [b'%', after @ ..]) => rest = after,
            _ => rest = after,
        }
    }
    false
}

/// Returns a name with `%%` replaced by `%`, and `%b` by a number if there is one.
pub fn plain_name(name: &[u8], number: Option<u64>) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(name.len()), name);
    while let [first, after @ ..] = rest {
        rest = match (first, after, number) {
            (b'%', [b'b', after @ ..], Some(number)) => {
                plain.extend(number.to_string().as_bytes());
                after
            }
            (b'%', [b'%', after @ ..], _) => {
                plain.push(b'%');
                after
            }
            _ => {
                plain.push(*first);
                after
            }
        };
    }
    plain
}

impl External {
    /// Parses a message of type 0x07.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(mut message: Structure<'_>) -> Result<Self> {
        message.version("a list of external files", 1..=1)?;
        message.skip(3)?;
        message.u16()?;
        let (count, heap) = (message.u16()?, message.defined()?);
        let width = message.sizes().length;
        if usize::from(count) > message.left() / (3 * usize::from(width)) {
            return Err(message.damaged(format!("{count} external files")));
        }
        let slots = (0..count).map(|_| Ok((message.length()?, message.length()?, message.length()?)));
        Ok(Self { heap, slots: slots.collect::<Result<_>>()?, width })
    }

    /// Returns the parts in order.
    ///
    /// # Errors
    /// Damage of the names.
    pub fn slots(&self, reader: &Reader<'_>) -> Result<Vec<Slot>> {
        let names = local_heap(reader, self.heap)?;
        let unlimited = if self.width == 8 { u64::MAX } else { (1 << (8 * self.width)) - 1 };
        let slots = self.slots.iter().map(|&(name, offset, size)| {
            let name = usize::try_from(name).ok().and_then(|name| names.get(name..));
            let file = name.and_then(|name| name.split(|byte| *byte == 0).next());
            let file = file.ok_or_else(|| reader.damaged(self.heap, "a name of an external file outside its heap"))?;
            reader.memory.reserve(file.len() as u64 + 64)?;
            Ok(Slot { file: file.into(), offset, size: (size != unlimited).then_some(size) })
        });
        slots.collect()
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
