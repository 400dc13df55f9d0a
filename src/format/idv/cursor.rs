//! Reads a table of contents from front to back through a window, so a false claim about its length costs nothing.

use super::PartError;
use crate::source::{Source, to_usize};

/// Bytes that are read at first, and at most at once.
const WINDOW: (u64, u64) = (512, 64 << 10);

/// A place in a source, and where it must not go.
pub(super) struct Cursor<'a> {
    source: &'a dyn Source,
    at: u64,
    end: u64,
    window: Vec<u8>,
    start: u64,
    step: u64,
}

impl<'a> Cursor<'a> {
    /// Reads from `at`, never to `end` or behind it.
    pub(super) fn new(source: &'a dyn Source, at: u64, end: u64) -> Self {
        Self { source, at, end, window: Vec::new(), start: at, step: WINDOW.0 }
    }

    /// Where it stands.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where it must not go.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes left.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    fn check(&self, length: u64, what: &str) -> Result<(), PartError> {
        if length > self.left() {
            let (at, end) = (self.at, self.end);
            return PartError::damaged(format!("{what}, {length} bytes at {at}, goes past byte {end}"));
        }
        Ok(())
    }

    /// Goes on without looking.
    pub(super) fn skip(&mut self, length: u64, what: &str) -> Result<(), PartError> {
        self.check(length, what)?;
        self.at += length;
        Ok(())
    }

    /// The next bytes. The caller has bounded their number.
    pub(super) fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>, PartError> {
        self.check(length, what)?;
        if length > WINDOW.1 {
            let bytes = self.source.read(self.at..self.at + length)?;
            self.at += length;
            return Ok(bytes);
        }
        let window_end = self.start + self.window.len() as u64;
        if self.at < self.start || self.at + length > window_end {
            let more = self.left().min(length.max(self.step));
            self.window = self.source.read(self.at..self.at + more)?;
            self.start = self.at;
            self.step = (self.step * 4).min(WINDOW.1);
        }
        let from = to_usize(self.at - self.start);
        self.at += length;
        Ok(self.window.get(from..from + to_usize(length)).unwrap_or_default().to_vec())
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], PartError> {
        let bytes = self.bytes(N as u64, what)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, PartError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(super) fn i32(&mut self, what: &str) -> Result<i32, PartError> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, PartError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn i64(&mut self, what: &str) -> Result<i64, PartError> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    /// An unsigned LEB128 of at most 10 bytes and 64 bits; redundant bytes are accepted.
    pub(super) fn leb(&mut self, what: &str) -> Result<u64, PartError> {
        match self.leb_of(10, what)? {
            Some(value) => Ok(value),
            None => PartError::damaged(format!("{what} at {} is a number of more than 64 bits", self.at)),
        }
    }

    /// An unsigned LEB128 of at most `longest` bytes; `None` if it goes on.
    fn leb_of(&mut self, longest: u32, what: &str) -> Result<Option<u64>, PartError> {
        let mut value = 0u64;
        for shift in (0..7 * longest).step_by(7) {
            let byte = self.u8(what)?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// A string of at most `longest` bytes, which need not be UTF-8. Its length has at most 5 bytes
    /// (`docs/formats/idv.md` 1).
    pub(super) fn string(&mut self, what: &str, longest: u64) -> Result<Vec<u8>, PartError> {
        let Some(length) = self.leb_of(5, what)?.filter(|length| *length <= i32::MAX as u64) else {
            return PartError::damaged(format!("{what} at {} has a length of more than 31 bits or 5 bytes", self.at));
        };
        self.check(length, what)?;
        if length > longest {
            return PartError::damaged(format!("{what} has {length} bytes, more than {longest}"));
        }
        self.bytes(length, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leb(bytes: &[u8]) -> Option<(u64, u64)> {
        let source = bytes.to_vec();
        let mut cursor = Cursor::new(&source, 0, bytes.len() as u64);
        cursor.leb("a number").ok().map(|value| (value, cursor.at()))
    }

    #[test]
    fn numbers() {
        assert_eq!(leb(&[0x7f]), Some((127, 1)));
        assert_eq!(leb(&[0x80, 0x01]), Some((128, 2)));
        assert_eq!(leb(&[0x85, 0x80, 0x00]), Some((5, 3)));
        assert_eq!(leb(&[&[0xff; 9][..], &[1]].concat()), Some((u64::MAX, 10)));
        assert_eq!(leb(&[&[0xff; 9][..], &[2]].concat()), None);
        assert_eq!(leb(&[0x80; 11]), None);
        assert_eq!(leb(&[0x80]), None);
    }

    #[test]
    fn strings_end_inside() {
        let source = b"\x03abc\x05de".to_vec();
        let mut cursor = Cursor::new(&source, 0, 7);
        assert_eq!(cursor.string("name", 10).unwrap(), b"abc");
        assert!(cursor.string("name", 10).is_err());
        assert!(Cursor::new(&source, 0, 7).string("name", 2).is_err());
    }

    #[test]
    fn lengths_of_strings() {
        let string = |length: &[u8]| {
            let source = [length, b"abc"].concat();
            Cursor::new(&source, 0, source.len() as u64).string("name", 10).ok()
        };
        assert_eq!(string(&[0x83, 0x80, 0x80, 0x80, 0]).unwrap(), b"abc");
        assert_eq!(string(&[0x83, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(string(&[0x83, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        // 2^32 + 3 does not become 3.
        assert_eq!(string(&[0x83, 0x80, 0x80, 0x80, 0x10]), None);
    }
}
