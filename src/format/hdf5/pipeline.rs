//! The filters of chunks (section 6.3).

use std::sync::Arc;

use super::{Result, Structure};
use crate::codec::{Bitshuffle, BlockCodec, Chain, ChecksumKind, Codec, Filter, Nbit, ScaleOffset, Szip};

/// Most filters of a dataset.
const MOST: usize = 32;

/// The filters of a dataset, in the order of writing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// The filters.
    pub steps: Vec<Step>,
}

/// A filter with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its registered number.
    pub id: u16,
    /// Bit 0: chunks may leave it out.
    pub flags: u16,
    /// Its parameters.
    pub values: Vec<u32>,
}

impl Pipeline {
    /// Parses a message of type 0x0B.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(mut message: Structure<'_>) -> Result<Self> {
        let version = message.version("filters", 1..=2)?;
        let count = usize::from(message.u8()?);
        if count > MOST {
            return Err(message.damaged(format!("{count} filters")));
        }
        if version == 1 {
            message.skip(6)?;
        }
        let mut steps = Vec::with_capacity(count);
        for _ in 0..count {
            let id = message.u16()?;
            let name = if version == 1 || id >= 256 { usize::from(message.u16()?) } else { 0 };
            let (flags, values) = (message.u16()?, usize::from(message.u16()?));
            message.skip(if version == 1 { name.next_multiple_of(8) } else { name })?;
            if values > message.left() / 4 {
                return Err(message.damaged(format!("a filter with {values} parameters")));
            }
            let step = Step { id, flags, values: (0..values).map(|_| message.u32()).collect::<Result<_>>()? };
            if version == 1 && values % 2 == 1 {
                message.skip(4)?;
            }
            steps.push(step);
        }
        Ok(Self { steps })
    }

    /// Returns the names of the filters in the order of writing, joined by `+`, or `none`.
    pub fn name(&self) -> String {
        let names: Vec<_> = self.steps.iter().map(Step::name).collect();
        if names.is_empty() { "none".into() } else { names.join("+") }
    }

    /// Returns how a chunk is decoded. Bit i of the mask says that filter i was left out; `size` is that of the decoded
    /// chunk.
    ///
    /// # Errors
    /// The filter that cannot be undone.
    pub fn codec(&self, mask: u32, size: u64) -> std::result::Result<Codec, String> {
        let used = self.steps.iter().zip(0..32).filter(|(_, number)| mask >> number & 1 == 0);
        let filters = used.map(|(step, _)| step.filter(size)).collect::<std::result::Result<Vec<_>, _>>()?;
        Chain::of(filters.into_iter().flatten()).ok_or_else(|| "too many filters".into())
    }
}

impl Step {
    /// Returns the name in `container.json`.
    pub fn name(&self) -> String {
        let name = match self.id {
            1 => "gzip",
            2 => "shuffle",
            3 => "fletcher32",
            4 => "szip",
            5 => "nbit",
            6 => "scaleoffset",
            305 => "lzo",
            307 => "bzip2",
            32_000 => "lzf",
            32_001 => "blosc",
            32_004 => "lz4",
            32_008 => "bitshuffle",
            32_013 => "zfp",
            32_015 => "zstd",
            32_026 => "blosc2",
            id => return format!("filter{id}"),
        };
        name.into()
    }

    /// Returns the step that undoes the filter; `None` if there is nothing to do.
    fn filter(&self, _size: u64) -> std::result::Result<Option<Filter>, String> {
        let value = |number: usize| self.values.get(number).copied();
        let unknown = || format!("the filter {} has parameters that are not known", self.name());
        Ok(Some(match self.id {
            1 => Filter::Zlib,
            2 if matches!(value(0), None | Some(0 | 1)) => return Ok(None),
            2 => Filter::Shuffle(value(0).unwrap_or(1)),
            3 => Filter::Checksum { kind: ChecksumKind::Fletcher32, is_in_front: false },
            4 => Filter::Szip(Szip::new(&self.values).ok_or_else(unknown)?),
            5 if value(1) == Some(1) => return Ok(None),
            5 => Filter::Nbit(Arc::new(Nbit::new(self.values.get(2..).unwrap_or_default()).ok_or_else(unknown)?)),
            // Integers that keep all their bits are stored as they are.
            6 if value(0) == Some(2) && value(1) == value(4).and_then(|size| size.checked_mul(8)) => return Ok(None),
            6 => Filter::ScaleOffset(ScaleOffset::new(&self.values).ok_or_else(unknown)?),
            307 => Filter::Bzip2,
            32_000 => Filter::Lzf,
            32_001 => Filter::Blosc,
            32_004 => Filter::Lz4Blocks,
            32_008 => Filter::Bitshuffle(Bitshuffle {
                width: value(2).filter(|width| *width > 0).ok_or_else(unknown)?,
                block: value(3).unwrap_or(0),
                compressed: match value(4) {
                    None | Some(0) => None,
                    Some(2) => Some(BlockCodec::Lz4),
                    Some(3) => Some(BlockCodec::Zstd),
                    Some(_) => return Err(unknown()),
                },
            }),
            32_015 => Filter::Zstd,
            32_026 => Filter::Blosc2,
            _ => return Err(format!("the filter {} is not supported", self.name())),
        }))
    }
}
