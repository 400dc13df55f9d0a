//! Reads structures of a file and the fields in them.

use super::{Error, Result, lookup3};
use crate::{
    source::{Memory, Source},
    wanted,
};

/// Structures of up to this many bytes are read without reserving memory.
const SMALL: u64 = 16 << 10;

/// A place in a file as its structures name it: an offset from the signature, in bytes.
pub type Place = u64;

/// What the superblock states for all addresses and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Where the signature is, in bytes from the start of the file. All addresses count from here.
    pub base: u64,
    /// Bytes of an address ("O"): 2, 4 or 8.
    pub offset: u8,
    /// Bytes of a length ("L"): 2, 4 or 8.
    pub length: u8,
}

/// Reads structures of one file.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The file.
    pub source: &'a dyn Source,
    /// Reserves memory for what grows with the file's contents, until the work ends.
    pub memory: &'a dyn Memory,
    /// Sizes of addresses and lengths.
    pub sizes: Sizes,
    /// The address of the object header of the superblock's extension.
    pub extension: Option<Place>,
}

/// Consecutive fields of a structure that was read whole.
#[derive(Debug, Clone)]
pub struct Structure<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the first byte is in the file.
    start: u64,
    sizes: Sizes,
}

impl<'a> Reader<'a> {
    /// Returns where an address is in the file, in bytes from its start.
    pub fn place(&self, at: Place) -> u64 {
        self.sizes.base.saturating_add(at)
    }

    /// Returns damage at an address.
    pub fn damaged(&self, at: Place, reason: impl Into<String>) -> Error {
        Error::damaged(self.place(at), reason)
    }

    /// Reads bytes, which must all be in the file.
    ///
    /// # Errors
    /// Damage if they are not; an error of the source, also if memory is refused.
    pub fn read(&self, at: Place, length: u64) -> Result<Vec<u8>> {
        self.read_into_room(at, length, &mut 0)
    }

    /// Does the same for structures of which only one is in memory at a time. `room` is the bytes that were reserved for
    /// them; more are reserved if they do not suffice.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into_room(&self, at: Place, length: u64, room: &mut u64) -> Result<Vec<u8>> {
        wanted::check()?;
        let (start, len) = (self.place(at), self.source.len());
        let end = start.checked_add(length).filter(|end| *end <= len);
        let end = end.ok_or_else(|| self.damaged(at, format!("{length} bytes in a file of {len}")))?;
        if length > (*room).max(SMALL) {
            self.memory.reserve(length - *room)?;
            *room = length;
        }
        Ok(self.source.read(start..end)?)
    }

    /// Reads up to `most` bytes, fewer at the end of the file.
    ///
    /// # Errors
    /// As [`Self::read`], and damage if there are none.
    pub fn read_up_to(&self, at: Place, most: u64) -> Result<Vec<u8>> {
        let left = self.source.len().saturating_sub(self.place(at));
        self.read(at, most.min(left).max(1))
    }

    /// Announces that structures at these places will be read soon, each of up to `length` bytes, so that a remote
    /// store can fetch them at once. Those outside of the file are left out.
    pub fn expect(&self, places: impl IntoIterator<Item = Place>, length: u64) {
        let len = self.source.len();
        let starts = places.into_iter().map(|at| self.place(at)).filter(|start| *start < len);
        self.source.prefetch_small(starts.map(|start| start..start.saturating_add(length).min(len)).collect());
    }

    /// Reads a structure that begins with this signature.
    ///
    /// # Errors
    /// As [`Self::read`], and damage if it begins with other bytes.
    pub fn signed(&self, at: Place, signature: &[u8; 4], length: u64) -> Result<Vec<u8>> {
        let bytes = self.read(at, length)?;
        self.check_signature(at, signature, &bytes)?;
        Ok(bytes)
    }

    /// Reads a structure that begins with this signature and ends in the checksum of everything before. `length`
    /// includes the checksum, which is not returned.
    ///
    /// # Errors
    /// As [`Self::signed`], and damage if the checksum is wrong.
    pub fn checked(&self, at: Place, signature: &[u8; 4], length: u64) -> Result<Vec<u8>> {
        let bytes = self.summed(at, length)?;
        self.check_signature(at, signature, &bytes)?;
        Ok(bytes)
    }

    /// Does the same as [`Self::checked`] for a structure without a signature.
    ///
    /// # Errors
    /// As [`Self::read`], and damage if the checksum is wrong.
    pub fn summed(&self, at: Place, length: u64) -> Result<Vec<u8>> {
        let mut bytes = self.read(at, length)?;
        let body = self.check_sum(at, &bytes)?.len();
        bytes.truncate(body);
        Ok(bytes)
    }

    /// Fails if a structure does not begin with this signature.
    ///
    /// # Errors
    /// Damage.
    pub fn check_signature(&self, at: Place, signature: &[u8; 4], bytes: &[u8]) -> Result<()> {
        let name = String::from_utf8_lossy(signature);
        match bytes.starts_with(signature) {
            true => Ok(()),
            false => Err(self.damaged(at, format!("no {name:?} where a structure of that kind should be"))),
        }
    }

    /// Compares the checksum at the end of a structure. Returns the bytes before it.
    ///
    /// # Errors
    /// Damage if it is wrong.
    pub fn check_sum<'b>(&self, at: Place, bytes: &'b [u8]) -> Result<&'b [u8]> {
        let Some((body, stored)) = bytes.split_last_chunk::<4>() else {
            return Err(self.damaged(at, "a structure without room for its checksum"));
        };
        let (stored, computed) = (u32::from_le_bytes(*stored), lookup3(body));
        match stored == computed {
            true => {
                let start = self.place(at);
                self.source.note_checked(&(start..start.saturating_add(bytes.len() as u64)));
                Ok(body)
            }
            false => Err(self.damaged(at, format!("checksum {computed:08x}, stored is {stored:08x}"))),
        }
    }

    /// Returns the fields of a structure that was read at an address.
    pub fn structure<'b>(&self, at: Place, bytes: &'b [u8]) -> Structure<'b> {
        Structure { bytes, at: 0, start: self.place(at), sizes: self.sizes }
    }
}

impl<'a> Structure<'a> {
    /// Returns the fields of bytes at a place, counted from the start of the file.
    pub fn new(bytes: &'a [u8], start: u64, sizes: Sizes) -> Self {
        Self { bytes, at: 0, start, sizes }
    }

    /// Returns the sizes of addresses and lengths.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns where the next field is, in bytes from the start of the file.
    pub fn place(&self) -> u64 {
        self.start.saturating_add(self.at as u64)
    }

    /// Returns the bytes that were passed over.
    pub fn passed(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns damage at the next field.
    pub fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::damaged(self.place(), reason)
    }

    /// Returns the bytes that are left, without passing over them.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the next bytes.
    ///
    /// # Errors
    /// Damage if there are fewer. The same holds for all fields below.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let bytes = self.rest().get(..length);
        let bytes = bytes.ok_or_else(|| self.damaged(format!("a structure ends {length} bytes too early")))?;
        self.at += length;
        Ok(bytes)
    }

    /// Passes over bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn skip(&mut self, length: usize) -> Result<()> {
        self.take(length).map(drop)
    }

    /// Returns the next bytes as a structure of their own.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn part(&mut self, length: usize) -> Result<Self> {
        let start = self.place();
        Ok(Self { bytes: self.take(length)?, at: 0, start, sizes: self.sizes })
    }

    /// Returns an unsigned number of up to 8 bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn uint(&mut self, width: usize) -> Result<u64> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.first_chunk().copied().unwrap_or([0; N]))
    }

    /// Returns a byte.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Returns a number of 2 bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Returns a number of 4 bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Returns a number of 8 bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u64(&mut self) -> Result<u64> {
        self.uint(8)
    }

    /// Returns a length ("L").
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn length(&mut self) -> Result<u64> {
        self.uint(self.sizes.length.into())
    }

    /// Returns an address ("O"); `None` for an undefined one.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn address(&mut self) -> Result<Option<Place>> {
        let width = self.sizes.offset.into();
        let bytes = self.rest().get(..width).unwrap_or_default();
        let is_undefined = !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0xff);
        let address = self.uint(width)?;
        Ok((!is_undefined).then_some(address))
    }

    /// Returns an address that must be defined.
    ///
    /// # Errors
    /// As [`Self::take`], and damage if it is undefined.
    pub fn defined(&mut self) -> Result<Place> {
        let place = self.place();
        self.address()?.ok_or_else(|| Error::damaged(place, "an undefined address"))
    }

    /// Returns the bytes up to a NUL, and passes over the NUL, too.
    ///
    /// # Errors
    /// Damage if there is none.
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.rest().iter().position(|byte| *byte == 0);
        let length = length.ok_or_else(|| self.damaged("a name without an end"))?;
        let text = self.take(length)?;
        self.skip(1)?;
        Ok(text)
    }

    /// Returns the version in the next byte. Fails if it is not a known one.
    ///
    /// # Errors
    /// As [`Self::take`], and damage for another version.
    pub fn version(&mut self, what: &str, known: std::ops::RangeInclusive<u8>) -> Result<u8> {
        let place = self.place();
        let version = self.u8()?;
        match known.contains(&version) {
            true => Ok(version),
            false => Err(Error::damaged(place, format!("{what} of version {version}"))),
        }
    }

    /// Reads the start of a block: its signature, which was compared, version 0, its kind if it has one, and the address
    /// of the header that it belongs to.
    ///
    /// # Errors
    /// As [`Self::version`], and damage if it is of another kind or belongs to another header.
    pub fn start_of_block(&mut self, what: &str, kind: Option<u8>, header: Place) -> Result<()> {
        self.skip(4)?;
        self.version(what, 0..=0)?;
        let place = self.place();
        let is_of_kind = kind.is_none_or(|kind| self.u8().is_ok_and(|stored| stored == kind));
        match self.address()? == Some(header) && is_of_kind {
            true => Ok(()),
            false => Err(Error::damaged(place, format!("{what} that belongs to another header"))),
        }
    }
}
