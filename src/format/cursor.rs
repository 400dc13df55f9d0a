//! Consecutive numbers and strings, read in pieces.

use super::{Class, DType, FormatError};
use crate::{
    source::{Source, SourceError, to_usize},
    wanted,
};

/// Least and most bytes of a piece. Pieces grow as reading goes on.
const PIECES: [u64; 2] = [16 << 10, 1 << 20];

/// Longest name, in bytes.
const NAME: u64 = u16::MAX as u64;

/// A place in a file, and the bytes around it.
pub(super) struct Cursor<'a> {
    source: &'a dyn Source,
    is_big: bool,
    at: u64,
    piece: Vec<u8>,
    /// Where the piece begins.
    start: u64,
    next: u64,
    /// Bytes that may be read in total, and those that are left of them.
    most: u64,
    left: u64,
}

impl<'a> Cursor<'a> {
    /// Starts at a place, and reads no more than `most` bytes.
    pub(super) fn new(source: &'a dyn Source, at: u64, is_big: bool, most: u64) -> Self {
        Self { source, is_big, at, piece: Vec::new(), start: 0, next: PIECES[0], most, left: most }
    }

    /// Returns the next byte's place.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Returns the place after the next bytes. Fails if they are not all in the file.
    pub(super) fn check(&self, length: u64) -> Result<u64, FormatError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.source.len());
        end.ok_or_else(|| {
            let (at, whole) = (self.at, self.source.len());
            let reason = format!("{length} bytes at {at} in a file of {whole}: incomplete copy?");
            FormatError::refused(Class::Truncated, reason)
        })
    }

    /// Passes over bytes.
    pub(super) fn skip(&mut self, length: u64) -> Result<(), FormatError> {
        self.at = self.check(length)?;
        Ok(())
    }

    /// Returns the next bytes without passing over them, for short lengths.
    fn peek(&mut self, length: u64) -> Result<&[u8], FormatError> {
        let end = self.check(length)?;
        let held = self.start..self.start + self.piece.len() as u64;
        if self.at < held.start || end > held.end {
            wanted::check().map_err(SourceError::from)?;
            if self.at > held.end {
                self.next = PIECES[0];
            }
            let until = self.at.saturating_add(self.next.max(length)).min(self.source.len());
            let most = self.most;
            let too_much =
                || FormatError::refused(Class::TooMany, format!("more than {most} bytes in front of the data"));
            self.left = self.left.checked_sub(until - self.at).ok_or_else(too_much)?;
            self.piece = self.source.read(self.at..until)?;
            self.start = self.at;
            self.next = (2 * self.next).min(PIECES[1]);
        }
        let from = to_usize(self.at - self.start);
        Ok(self.piece.get(from..from + to_usize(length)).unwrap_or_default())
    }

    /// Returns the next bytes, for short lengths.
    pub(super) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, FormatError> {
        let bytes = self.peek(length)?.to_vec();
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let is_big = self.is_big;
        let mut bytes: [u8; N] = self.peek(N as u64)?.first_chunk().copied().unwrap_or([0; N]);
        self.at += N as u64;
        if is_big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns the bits of a number.
    pub(super) fn bits(&mut self, dtype: DType) -> Result<u64, FormatError> {
        Ok(match dtype.size() {
            1 => u64::from(u8::from_le_bytes(self.array()?)),
            2 => u64::from(u16::from_le_bytes(self.array()?)),
            4 => u64::from(self.u32()?),
            _ => self.u64()?,
        })
    }

    /// Returns a key, or the name of a tensor.
    pub(super) fn name(&mut self) -> Result<Vec<u8>, FormatError> {
        let length = self.u64()?;
        self.check(length)?;
        if length > NAME {
            return Err(FormatError::refused(Class::TooMany, format!("a name of {length} bytes, the most is {NAME}")));
        }
        self.bytes(length)
    }

    /// Passes over strings.
    pub(super) fn skip_texts(&mut self, count: u64) -> Result<(), FormatError> {
        // Each string has at least its length.
        self.check(count.saturating_mul(8))?;
        for _ in 0..count {
            let length = self.u64()?;
            self.skip(length)?;
        }
        Ok(())
    }

    /// Returns a string of any length. Reserves memory for a long one.
    pub(super) fn text(&mut self, memory: &impl Fn(u64) -> Result<(), SourceError>) -> Result<Vec<u8>, FormatError> {
        let length = self.u64()?;
        self.long(length, memory)
    }

    /// Returns the next bytes, for any length. Reserves memory for many.
    pub(super) fn long(
        &mut self,
        length: u64,
        memory: &impl Fn(u64) -> Result<(), SourceError>,
    ) -> Result<Vec<u8>, FormatError> {
        self.check(length)?;
        if length <= PIECES[0] {
            return self.bytes(length);
        }
        memory(length)?;
        let bytes = self.source.read(self.at..self.at + length)?;
        self.at += length;
        Ok(bytes)
    }
}
