//! Decodes blocks that were encoded by several filters, one after the other.

use std::sync::Arc;

use super::{Codec, DecodeError, Filter, memory};

/// Most filters of a chain.
const MOST: usize = 32;

/// The filters of a block.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// In the order in which they are undone.
    filters: Vec<Filter>,
    name: String,
}

/// The size of a filter's output, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// The largest it may be.
    pub(super) most: u64,
    /// Whether it is exactly `most`.
    pub(super) is_exact: bool,
}

impl Size {
    pub(super) fn exactly(size: u64) -> Self {
        Self { most: size, is_exact: true }
    }

    pub(super) fn up_to(most: u64) -> Self {
        Self { most, is_exact: false }
    }

    pub(super) fn map(self, size: impl FnOnce(u64) -> u64) -> Self {
        Self { most: size(self.most), ..self }
    }
}

/// Bytes on their way through a chain.
enum Bytes<'a> {
    Stored(&'a [u8]),
    Decoded(Vec<u8>),
}

impl Chain {
    /// Returns the codec of blocks that were encoded by these filters, in the order of writing. A single filter becomes
    /// the codec that does the same, if there is one. Returns `None` for more than 32 filters.
    pub fn of(written: impl IntoIterator<Item = Filter>) -> Option<Codec> {
        let mut filters: Vec<Filter> = written.into_iter().take(MOST + 1).collect();
        if filters.len() > MOST {
            return None;
        }
        let names: Vec<_> = filters.iter().map(Filter::name).collect();
        let name = names.join("+");
        filters.reverse();
        let alone = match filters.as_slice() {
            [] => Some(Codec::None),
            [filter] => filter.codec(),
            _ => None,
        };
        Some(alone.unwrap_or_else(|| Codec::Chain(Arc::new(Self { filters, name }))))
    }

    /// Returns the names of the filters in the order of writing, joined by `+`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the filters in the order in which they are undone.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// Returns whether a checksum shows damage of stored or decoded bytes. The formats of some filters have one.
    pub fn is_checked(&self) -> bool {
        let has_own =
            |filter: &Filter| matches!(filter, Filter::Gzip | Filter::Zlib | Filter::Bzip2 | Filter::Bzip2Stream);
        self.filters.iter().any(|filter| filter.is_check() || has_own(filter))
    }

    /// Returns the most bytes that `stored` bytes can decode to.
    pub(super) fn max_size(&self, stored: u64) -> u64 {
        self.filters.iter().fold(stored, |size, filter| filter.max_size(size))
    }

    /// Returns the most bytes that may be stored for `size` decoded ones.
    pub(super) fn max_stored(&self, size: u64) -> u64 {
        self.filters.iter().rev().fold(Size::exactly(size), |size, filter| filter.stored(size)).most
    }

    /// Returns the size of each filter's output, for a block of `size`.
    fn sizes(&self, size: Size) -> Vec<Size> {
        let mut sizes: Vec<_> = (self.filters.iter().skip(1).rev())
            .scan(size, |size, filter| {
                *size = filter.stored(*size);
                Some(*size)
            })
            .collect();
        sizes.reverse();
        sizes.push(size);
        sizes
    }

    /// Returns how many bytes of memory it takes to decode `stored` bytes to `size`, in addition to these two.
    pub fn working_memory(&self, stored: u64, size: u64) -> u64 {
        let (mut input, mut most, mut possible) = (0, 0u64, stored);
        let sizes = self.sizes(Size::exactly(size));
        for (number, (filter, bound)) in self.filters.iter().zip(&sizes).enumerate() {
            if filter.is_check() {
                possible = filter.max_size(possible);
                continue;
            }
            possible = filter.max_size(possible).min(bound.most);
            // A buffer that grows is at most doubled and copied: up to three times the size for a moment.
            let output = match (number + 1 == sizes.len(), bound.is_exact) {
                (true, _) => 0,
                (false, true) => bound.most,
                (false, false) => possible.saturating_mul(3).saturating_add(64 << 10),
            };
            most = most.max(filter.working_memory(possible).saturating_add(output).saturating_add(input));
            input = output;
        }
        most
    }

    /// Decodes a block to exactly the size of `out`. Checksums are compared if `is_checked`.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` may then hold anything.
    pub fn decode_into(&self, stored: &[u8], out: &mut [u8], is_checked: bool) -> Result<(), DecodeError> {
        let sizes = self.sizes(Size::exactly(out.len() as u64));
        let last = self.filters.len().checked_sub(1);
        let (mut bytes, mut range) = (Bytes::Stored(stored), 0..stored.len());
        for (number, (filter, size)) in self.filters.iter().zip(sizes).enumerate() {
            let input = bytes.get(&range);
            if filter.is_check() {
                let length = filter.check(input, is_checked)?.len();
                let is_in_front = matches!(filter, Filter::Checksum { is_in_front: true, .. });
                range.start += if is_in_front { input.len() - length } else { 0 };
                range.end = range.start + length;
                continue;
            }
            if Some(number) == last {
                return filter.decode_into(input, out);
            }
            let decoded = decode(filter, input, size)?;
            range = 0..decoded.len();
            bytes = Bytes::Decoded(decoded);
        }
        let bytes = bytes.get(&range);
        if bytes.len() != out.len() {
            return Err(DecodeError::Size { got: bytes.len() as u64, size: out.len() as u64 });
        }
        out.copy_from_slice(bytes);
        Ok(())
    }

    /// Decodes a block whose decoded size is not known, to at most `most` bytes.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_up_to(&self, stored: &[u8], most: u64, is_checked: bool) -> Result<Vec<u8>, DecodeError> {
        let (mut bytes, mut range) = (Bytes::Stored(stored), 0..stored.len());
        for (filter, size) in self.filters.iter().zip(self.sizes(Size::up_to(most))) {
            let input = bytes.get(&range);
            if filter.is_check() {
                let length = filter.check(input, is_checked)?.len();
                let is_in_front = matches!(filter, Filter::Checksum { is_in_front: true, .. });
                range.start += if is_in_front { input.len() - length } else { 0 };
                range.end = range.start + length;
                continue;
            }
            let decoded = decode(filter, input, size)?;
            range = 0..decoded.len();
            bytes = Bytes::Decoded(decoded);
        }
        if range.len() as u64 > most {
            return Err(DecodeError::Size { got: range.len() as u64, size: most });
        }
        match bytes {
            Bytes::Decoded(mut decoded) => {
                decoded.truncate(range.end);
                decoded.drain(..range.start);
                Ok(decoded)
            }
            Bytes::Stored(_) => {
                let stored = bytes.get(&range);
                let mut copy = memory(stored.len() as u64)?;
                copy.copy_from_slice(stored);
                Ok(copy)
            }
        }
    }
}

impl Bytes<'_> {
    fn get(&self, range: &std::ops::Range<usize>) -> &[u8] {
        let bytes = match self {
            Self::Stored(bytes) => *bytes,
            Self::Decoded(bytes) => bytes,
        };
        bytes.get(range.clone()).unwrap_or_default()
    }
}

fn decode(filter: &Filter, stored: &[u8], size: Size) -> Result<Vec<u8>, DecodeError> {
    if !size.is_exact {
        return filter.decode_up_to(stored, size.most);
    }
    // Checked before memory is allocated.
    let (most, stored_size) = (filter.max_size(stored.len() as u64), stored.len() as u64);
    if size.most > most {
        return Err(DecodeError::Impossible { codec: filter.name(), stored: stored_size, size: size.most });
    }
    let mut out = memory(size.most)?;
    filter.decode_into(stored, &mut out)?;
    Ok(out)
}
