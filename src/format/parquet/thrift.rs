//! Thrift's compact protocol: reads the fields that are wanted and passes over the others.
//!
//! Every element takes at least one byte, so no loop is longer than the bytes.

/// Deepest nesting of structures that are passed over.
const DEPTH: u32 = 32;

/// Types of fields and of elements of lists.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const SET: u8 = 10;
const MAP: u8 = 11;
const UUID: u8 = 13;

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// They end inside a structure.
    Short,
    /// They are not a valid structure.
    Bad(&'static str),
}

impl Broken {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Short => "it ends inside a structure",
            Self::Bad(reason) => reason,
        }
    }
}

type Result<T> = std::result::Result<T, Broken>;

/// Bytes, and a place in them.
pub(super) struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Compact<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Broken::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, length: u64) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = usize::try_from(length).map_err(|_| Broken::Short)?;
        let found = rest.get(..length).ok_or(Broken::Short)?;
        self.at += length;
        Ok(found)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Broken::Bad("a number has more than 64 bits"))
    }

    /// Returns a signed number of any width.
    pub(super) fn integer(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns a size or count, which must fit 31 bits.
    pub(super) fn size(&mut self) -> Result<u32> {
        let value = self.integer()?;
        let fits = u32::try_from(value).ok().filter(|value| *value <= i32::MAX as u32);
        fits.ok_or(Broken::Bad("a size is negative, or 2^31 or more"))
    }

    /// Returns a byte as a number.
    pub(super) fn small(&mut self) -> Result<i8> {
        self.byte().map(|byte| byte as i8)
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8]> {
        let length = self.varint()?;
        self.pass(length)
    }

    /// Returns the number and the type of the next field of a structure; `None` at its end. `last` is the number of the
    /// field before it, 0 at first.
    pub(super) fn field(&mut self, last: &mut i16) -> Result<Option<(i16, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let number = match head >> 4 {
            0 => i16::try_from(self.integer()?).ok(),
            more => last.checked_add(i16::from(more)),
        };
        *last = number.ok_or(Broken::Bad("the number of a field is too large"))?;
        Ok(Some((*last, head & 15)))
    }

    /// Returns the number of elements of a list, and their type. The number is at most the number of bytes that are
    /// left.
    pub(super) fn list(&mut self) -> Result<(usize, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let left = self.bytes.len() - self.at;
        let count = usize::try_from(count).ok().filter(|count| *count <= left).ok_or(Broken::Short)?;
        Ok((count, head & 15))
    }

    /// Passes over the value of a field.
    pub(super) fn skip(&mut self, kind: u8) -> Result<()> {
        match kind {
            TRUE | FALSE => Ok(()),
            kind => self.skip_within(kind, DEPTH),
        }
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> Result<()> {
        let deeper = depth.checked_sub(1).ok_or(Broken::Bad("structures are nested too deeply"))?;
        match kind {
            // An element of a list. A field of this type has its value in its head.
            TRUE | FALSE | BYTE => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.pass(8).map(drop),
            UUID => self.pass(16).map(drop),
            BINARY => self.binary().map(drop),
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_within(kind, deeper))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_within(kinds >> 4, deeper)?;
                    self.skip_within(kinds & 15, deeper)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    match kind {
                        TRUE | FALSE => {}
                        kind => self.skip_within(kind, deeper)?,
                    }
                }
                Ok(())
            }
            _ => Err(Broken::Bad("a field has an unknown type")),
        }
    }

    /// Goes through the fields of a structure. `each` gets the number and the type of each, and returns whether it has
    /// read the value; others are passed over.
    pub(super) fn fields(&mut self, mut each: impl FnMut(&mut Self, i16, u8) -> Result<bool>) -> Result<()> {
        let mut last = 0;
        while let Some((number, kind)) = self.field(&mut last)? {
            if !each(self, number, kind)? {
                self.skip(kind)?;
            }
        }
        Ok(())
    }
}
