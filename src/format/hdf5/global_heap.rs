//! The global heap: objects of any size that elements lead to (section 5).

use super::{Place, Reader, Result};
use crate::source::to_usize;

/// The least and most bytes of a collection.
const LEAST: u64 = 4096;
const MOST: u64 = 64 << 20;

/// A collection of objects.
#[derive(Debug, Default)]
pub struct Collection {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// For each number, where the object begins in `bytes`, and its bytes.
    pub objects: Vec<(u32, u32)>,
}

/// Reads a whole collection.
///
/// # Errors
/// Damage.
pub fn read(reader: &Reader<'_>, at: Place) -> Result<Collection> {
    // Heads are padded to 8 bytes, which counts where lengths have fewer.
    let head = (8 + u64::from(reader.sizes.length)).next_multiple_of(8);
    let bytes = reader.signed(at, b"GCOL", head)?;
    let mut fields = reader.structure(at, &bytes);
    fields.skip(4)?;
    fields.version("a global heap", 1..=1)?;
    fields.skip(3)?;
    let size = fields.length()?;
    if !(LEAST..=MOST).contains(&size) {
        return Err(reader.damaged(at, format!("a global heap of {size} bytes")));
    }
    let bytes = reader.read(at, size)?;
    let mut fields = reader.structure(at, &bytes);
    fields.skip(to_usize(head))?;
    let mut objects = Vec::new();
    let gap = to_usize(head) - 8 - usize::from(reader.sizes.length);
    while fields.left() >= to_usize(head) {
        let number = usize::from(fields.u16()?);
        fields.skip(6)?;
        let size = fields.length()?;
        fields.skip(gap)?;
        if number == 0 {
            break;
        }
        let (start, place) = (fields.passed(), fields.place());
        let size = to_usize(size);
        fields.take(size)?;
        let padding = (size.next_multiple_of(8) - size).min(fields.left());
        fields.skip(padding)?;
        if number >= objects.len() {
            reader.memory.reserve(16 * (number + 1 - objects.len()) as u64)?;
            objects.resize(number + 1, (0, u32::MAX));
        }
        match objects.get_mut(number) {
            #[expect(clippy::cast_possible_truncation, reason = "a heap has at most `MOST` bytes")]
            Some(object) if object.1 == u32::MAX => *object = (start as u32, size as u32),
            _ => return Err(super::Error::damaged(place, format!("two objects {number} in a global heap"))),
        }
    }
    Ok(Collection { bytes, objects })
}

impl Collection {
    /// Returns an object by its number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        let (start, size) = *self.objects.get(usize::try_from(number).ok()?)?;
        if size == u32::MAX {
            return None;
        }
        self.bytes.get(start as usize..start as usize + size as usize)
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity() + self.objects.capacity() * 8
    }
}
