//! Texts of one size, padded with NULs: as JSON lines, and as their bytes with offsets.

use std::io::Write;

use crate::{
    cache::{BlockError, Buffer},
    format::{DType, without_nuls},
    limits,
    source::{Memory, Source, SourceError, zeros},
    view::{Array, Fault, Strided, attributes::Text, json},
    wanted,
};

/// What is shown of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tree) enum View {
    /// A JSON string on each line.
    Lines,
    /// Where each one begins in the bytes, and where the last one ends.
    Offsets,
    /// The bytes.
    Bytes,
}

/// Texts in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    /// Where they are.
    pub(super) place: Strided,
    /// Bytes of all of them, with padding.
    pub(super) size: u64,
    /// Bytes of each.
    pub(super) width: u64,
}

impl Texts {
    fn rows(&self) -> u64 {
        self.size.checked_div(self.width).unwrap_or(0)
    }

    /// Calls `each` with the texts in order, without the NULs at their ends.
    fn each(
        &self,
        source: &dyn Source,
        piece: &mut [u8],
        mut each: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let mut at = 0;
        while at < self.size {
            wanted::check()?;
            let end = self.size.min(at + piece.len() as u64);
            let here = &mut piece[..(end - at) as usize];
            self.place.read(source, at..end, here)?;
            here.chunks(self.width as usize).try_for_each(|text| each(without_nuls(text)))?;
            at = end;
        }
        Ok(())
    }

    /// Returns the header of a view.
    pub(super) fn header(&self, view: View) -> Vec<u8> {
        match view {
            View::Lines | View::Bytes => Vec::new(),
            View::Offsets => Array::new(DType::I64, [self.rows() + 1], crate::view::View::default()).header(),
        }
    }

    /// Returns the bytes of a view behind its header.
    ///
    /// # Errors
    /// Those of reading, and `ENOMEM`; too many rows to look at; texts beyond the end of the file.
    pub(super) fn made(&self, view: View, source: &dyn Source, memory: &dyn Memory) -> Result<Buffer, Fault> {
        if self.rows() > limits::TEXT_ROWS {
            let reason = format!("{} texts, the most is {}", self.rows(), limits::TEXT_ROWS);
            let error = std::sync::Arc::new(BlockError::Refused(reason));
            return Err(Fault { block: None, offset: self.place.start, error });
        }
        // Texts that the file does not hold are found out before memory is taken for them.
        if let Some(last) = self.size.checked_sub(1) {
            self.place.read(source, last..self.size, &mut [0])?;
        }
        // Whole texts, together about as much as is read at a time.
        let together = (limits::PIECE as u64 / self.width.max(1)).max(1);
        let piece = self.width.saturating_mul(together).min(self.size);
        // A text may be written as base64.
        memory.reserve(piece.saturating_add(self.width.saturating_mul(2)))?;
        let piece =
            std::cell::RefCell::new(zeros(usize::try_from(piece).unwrap_or(usize::MAX)).map_err(SourceError::from)?);
        let write = |out: &mut dyn Write| {
            let piece = &mut *piece.borrow_mut();
            let mut end = 0u64;
            if view == View::Offsets {
                out.write_all(&end.to_le_bytes())?;
            }
            self.each(source, piece, |text| {
                match view {
                    View::Lines => {
                        serde_json::to_writer(&mut *out, &Text(text)).map_err(std::io::Error::from)?;
                        out.write_all(b"\n")?;
                    }
                    View::Bytes => out.write_all(text)?,
                    View::Offsets => {
                        end += text.len() as u64;
                        out.write_all(&end.to_le_bytes())?;
                    }
                }
                Ok(())
            })
        };
        Ok(json::large(write, memory)?)
    }
}
