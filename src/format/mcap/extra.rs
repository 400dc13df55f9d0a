//! Attachments and metadata (`docs/formats/mcap.md`, section 13).

use super::{
    Attachment, Metadata, Pairs,
    record::{self, HEAD},
};
use crate::{
    format::{Fields, PartError, recording::Front},
    source::{Memory, Source, to_usize},
};

impl Attachment {
    /// Returns where the content of its record begins.
    pub fn content(&self) -> u64 {
        self.offset.saturating_add(HEAD)
    }

    /// Returns the bytes of its content before the data.
    pub fn front(&self) -> u64 {
        32 + self.name.len() as u64 + self.media_type.len() as u64
    }

    /// Checks that the record at its place is this attachment. Returns its CRC; 0 if there is none.
    ///
    /// # Errors
    /// `Damaged` if it is another one, `Source` if it cannot be read.
    pub fn check(&self, source: &dyn Source) -> Result<u32, PartError> {
        let astray = || PartError::Damaged(format!("there is another record at {}, or none", self.offset));
        let (content, front) = (self.content(), self.front());
        let end = content.checked_add(front).and_then(|at| at.checked_add(self.size)).and_then(|at| at.checked_add(4));
        if end.is_none_or(|end| end > self.offset.saturating_add(self.length)) {
            return Err(astray());
        }
        let bytes = source.read(self.offset..content + front)?;
        let is_it = bytes.first() == Some(&record::ATTACHMENT) && bytes.u64(1) == Some(self.length - HEAD);
        let mut fields = Front(bytes.get(to_usize(HEAD) + 16..).unwrap_or_default());
        let same = fields.string() == Some(&*self.name)
            && fields.string() == Some(&*self.media_type)
            && fields.u64() == Some(self.size);
        if !is_it || !same {
            return Err(astray());
        }
        let mut crc = [0; 4];
        source.fill(content + front + self.size, &mut crc)?;
        Ok(u32::from_le_bytes(crc))
    }
}

impl Metadata {
    /// Reserves memory, reads the record and returns its pairs.
    ///
    /// # Errors
    /// `Damaged` if the record at its place is another one, `Source` if it cannot be read.
    pub fn read(&self, source: &dyn Source, memory: &dyn Memory) -> Result<Pairs, PartError> {
        memory.reserve(self.length)?;
        let bytes = source.read(self.offset..self.offset.saturating_add(self.length))?;
        let content = bytes.get(to_usize(HEAD)..).unwrap_or_default();
        let is_it = bytes.first() == Some(&record::METADATA) && bytes.u64(1) == Some(content.len() as u64);
        match record::metadata(content).filter(|(name, _)| is_it && *name == &*self.name) {
            Some((_, map)) => {
                memory.reserve(record::pairs_memory(map))?;
                Ok(record::pairs(map))
            }
            None => Err(PartError::Damaged(format!("there is another record at {}, or none", self.offset))),
        }
    }
}
