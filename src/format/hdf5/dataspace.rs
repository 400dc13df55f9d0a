//! Shapes of datasets and attributes (section 6.1).

use super::{Result, Structure};

/// Most axes.
const RANK: u8 = 32;

/// The shape of a dataset or an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataspace {
    /// Elements along each axis; empty for a scalar. `None` if there are no elements and no axes (null).
    pub dims: Option<Vec<u64>>,
    /// The most elements that each axis may grow to; `u64::MAX` for no limit. Has as many items as `dims`.
    pub most: Vec<u64>,
}

impl Dataspace {
    /// Parses a message of type 0x01.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(mut message: Structure<'_>) -> Result<Self> {
        let version = message.version("a dataspace", 1..=2)?;
        let (rank, flags, kind) = (message.u8()?, message.u8()?, message.u8()?);
        if rank > RANK {
            return Err(message.damaged(format!("{rank} axes")));
        }
        if version == 1 {
            message.skip(4)?;
        } else if kind == 2 {
            return Ok(Self { dims: None, most: Vec::new() });
        } else if kind > 2 || (kind == 0 && rank > 0) {
            return Err(message.damaged(format!("a dataspace of kind {kind} with {rank} axes")));
        }
        let mut sizes = || (0..rank).map(|_| message.length()).collect::<Result<Vec<u64>>>();
        let dims = sizes()?;
        let most = if flags & 1 == 0 { dims.clone() } else { sizes()? };
        // A length with all bits set means no limit, whatever its size is.
        let unlimited = match message.sizes().length {
            8 => u64::MAX,
            width => (1 << (8 * width)) - 1,
        };
        let most: Vec<_> = most.into_iter().map(|most| if most == unlimited { u64::MAX } else { most }).collect();
        if let Some((dim, most)) = dims.iter().zip(&most).find(|(dim, most)| dim > most) {
            return Err(message.damaged(format!("an axis of {dim} elements that may have {most} at most")));
        }
        Ok(Self { dims: Some(dims), most })
    }

    /// Returns the number of elements; `None` if it does not fit 62 bits.
    pub fn elements(&self) -> Option<u64> {
        let Some(dims) = &self.dims else { return Some(0) };
        if dims.contains(&0) {
            return Some(0);
        }
        let product = dims.iter().try_fold(1u64, |product, axis| product.checked_mul(*axis));
        product.filter(|product| *product < 1 << 62)
    }
}
