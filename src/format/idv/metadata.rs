//! The metadata of one column, read on first use (`docs/formats/idv.md` 9).

use super::{Column, Definition, File, PartError, codec::definition, cursor::Cursor};
use crate::{
    codec::Codec,
    format::Block,
    limits,
    source::{Memory, Source, SourceError},
};

/// Bytes of memory that an entry takes in addition to its texts, including its file name and its values.
const ENTRY_MEMORY: u64 = 1536;

/// One value about a column.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its kind: `SlotNames`, `KeyValues` and so on.
    pub kind: Vec<u8>,
    /// Type of the value.
    pub codec: Definition,
    /// How it is compressed, as for a column.
    pub compression: u8,
    /// Where it is stored.
    pub offset: u64,
    /// Bytes stored.
    pub stored_size: u64,
    /// Why it cannot be read.
    pub error: Option<String>,
}

impl Entry {
    /// Returns the block as stored. The file does not give its decoded size, so the block states the largest one
    /// allowed.
    pub fn block(&self) -> Option<Block> {
        let (offset, stored_size) = (self.offset, self.stored_size);
        let codec = super::compression(self.compression)?;
        let size = if codec == Codec::None { stored_size } else { codec.max_size(stored_size) };
        Some(Block { offset, stored_size, size: size.min(limits::IDV_METADATA_VALUE), codec, crc: None })
    }
}

/// The metadata of a column up to the first damage, and that damage.
#[derive(Debug, Default)]
pub struct Metadata {
    /// In their order.
    pub entries: Vec<Entry>,
    /// What was wrong.
    pub damage: Option<String>,
}

impl Metadata {
    /// Reads a column's metadata; empty if it has none.
    ///
    /// # Errors
    /// [`SourceError`] if they cannot be read, or if there is no memory for them. Damage is no error.
    pub fn read(file: &File, column: &Column, source: &dyn Source, memory: &dyn Memory) -> Result<Self, SourceError> {
        let mut metadata = Self::default();
        let Some(offset) = column.metadata_offset(file.tail) else { return Ok(metadata) };
        match metadata.fill(&mut Cursor::new(source, offset, file.tail), memory) {
            Ok(()) => {}
            Err(PartError::Damaged(reason)) => metadata.damage = Some(reason),
            Err(PartError::Source(error)) => return Err(error),
        }
        Ok(metadata)
    }

    fn fill(&mut self, cursor: &mut Cursor<'_>, memory: &dyn Memory) -> Result<(), PartError> {
        let count = cursor.leb("the count of metadata")?;
        if count == 0 {
            return PartError::damaged("a table of no metadata");
        }
        let mut names = 0;
        for _ in 0..count {
            let kind = cursor.string("the kind of metadata", limits::IDV_NAME)?;
            names += kind.len() as u64;
            if self.entries.len() == limits::IDV_METADATA || names > limits::IDV_METADATA_NAMES {
                return PartError::damaged(format!("{count} metadata are too many"));
            }
            let codec = definition(cursor)?;
            let texts = kind.len() + codec.name.len() + codec.parameters.len();
            memory.reserve(ENTRY_MEMORY + 6 * texts as u64)?;
            let compression = cursor.u8("the compression of metadata")?;
            let offset = cursor.i64("the offset of metadata")?;
            let stored_size = cursor.leb("the length of metadata")?;
            let end = u64::try_from(offset).ok().and_then(|offset| offset.checked_add(stored_size));
            let is_inside =
                offset >= super::HEADER as i64 && stored_size > 0 && end.is_some_and(|end| end <= cursor.end());
            let error = (!is_inside).then(|| {
                format!("{stored_size} bytes at {offset} are not between {} and {}", super::HEADER, cursor.end())
            });
            let offset = u64::try_from(offset).unwrap_or(0);
            self.entries.push(Entry { kind, codec, compression, offset, stored_size, error });
        }
        Ok(())
    }
}
