//! Selections of elements: which elements a mapping of a virtual dataset takes, and where it puts them (section 6.4).

use std::borrow::Cow;

use super::{Result, Structure};

/// Most axes.
const RANK: u32 = 32;

/// Elements of a dataset, in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// No element.
    Nothing,
    /// All elements.
    All,
    /// The elements whose place is selected on every axis.
    Axes(Box<[Axis]>),
    /// A selection that is not supported, and why.
    Unknown(&'static str),
}

/// Places on one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// Blocks at equal distances.
    Steps {
        /// The first place.
        start: u64,
        /// The distance from the beginning of a block to that of the next.
        stride: u64,
        /// The number of blocks.
        count: u64,
        /// The places of a block.
        block: u64,
    },
    /// Runs of places. For each: its first place, its length, and the number of places in all runs before.
    Runs(Box<[(u64, u64, u64)]>),
}

/// Whether and where a place is among those that are selected on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is selected: its number, and the number of consecutive selected places from it on, including itself.
    Inside(u64, u64),
    /// It is not selected: the distance to the next one that is, if any.
    Outside(Option<u64>),
}

impl Axis {
    /// Selects all places of an axis.
    pub fn whole(places: u64) -> Self {
        Self::Steps { start: 0, stride: places.max(1), count: 1, block: places }
    }

    /// Returns how many places are selected.
    pub fn len(&self) -> u64 {
        match self {
            Self::Steps { count, block, .. } => count * block,
            Self::Runs(runs) => runs.last().map_or(0, |(_, length, before)| before + length),
        }
    }

    /// Returns whether no place is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the place after the last selected one; 0 if none is.
    pub fn end(&self) -> u64 {
        match self {
            _ if self.is_empty() => 0,
            Self::Steps { start, stride, count, block } => start + (count - 1) * stride + block,
            Self::Runs(runs) => runs.last().map_or(0, |(start, length, _)| start + length),
        }
    }

    /// Returns where a place is among the selected ones.
    pub fn find(&self, place: u64) -> Found {
        match self {
            &Self::Steps { start, stride, count, block } => {
                let Some(inner) = place.checked_sub(start) else { return Found::Outside(Some(start - place)) };
                let (step, rest) = (inner / stride, inner % stride);
                if step >= count || block == 0 {
                    return Found::Outside(None);
                }
                match block.checked_sub(rest) {
                    Some(left @ 1..) => Found::Inside(step * block + rest, left),
                    _ => Found::Outside((step + 1 < count).then(|| stride - rest)),
                }
            }
            Self::Runs(runs) => {
                let after = runs.partition_point(|(start, ..)| *start <= place);
                let next = || runs.get(after).map(|(start, ..)| start - place);
                match after.checked_sub(1).and_then(|at| runs.get(at)) {
                    Some((start, length, before)) if place - start < *length => {
                        Found::Inside(before + (place - start), length - (place - start))
                    }
                    _ => Found::Outside(next()),
                }
            }
        }
    }

    /// Returns the selected place with a number, and the number of consecutive selected places from it on, including
    /// itself.
    pub fn place(&self, number: u64) -> Option<(u64, u64)> {
        match self {
            &Self::Steps { start, stride, count, block } => {
                let step = number.checked_div(block)?;
                let inner = number % block;
                (step < count).then(|| (start + step * stride + inner, block - inner))
            }
            Self::Runs(runs) => {
                let at = runs.partition_point(|(_, _, before)| *before <= number).checked_sub(1)?;
                let (start, length, before) = runs.get(at)?;
                let inner = number - before;
                (inner < *length).then(|| (start + inner, length - inner))
            }
        }
    }
}

impl Selection {
    /// Parses a selection as it is stored.
    ///
    /// # Errors
    /// Damage.
    pub fn parse(fields: &mut Structure<'_>) -> Result<Self> {
        let (kind, version) = (fields.u32()?, fields.u32()?);
        match kind {
            0 | 3 if version == 1 => {
                fields.skip(8)?;
                Ok(if kind == 0 { Self::Nothing } else { Self::All })
            }
            1 => points(fields, version),
            2 => hyperslab(fields, version),
            _ => Err(fields.damaged(format!("a selection of kind {kind} and version {version}"))),
        }
    }

    /// Returns the bytes of memory that it takes in addition to its own size.
    pub fn memory_usage(&self) -> usize {
        let Self::Axes(axes) = self else { return 0 };
        let runs = axes.iter().map(|axis| if let Axis::Runs(runs) = axis { size_of_val(&**runs) } else { 0 });
        size_of_val(&**axes) + runs.sum::<usize>()
    }

    /// Returns what is selected on each axis of a dataset.
    ///
    /// # Errors
    /// Why it is not supported, or does not fit the dataset.
    pub fn axes(&self, dims: &[u64]) -> std::result::Result<Cow<'_, [Axis]>, &'static str> {
        match self {
            Self::Nothing => Ok(dims.iter().map(|_| Axis::whole(0)).collect()),
            Self::All => Ok(dims.iter().map(|axis| Axis::whole(*axis)).collect()),
            Self::Axes(axes) if axes.len() != dims.len() => Err("a selection of another number of axes"),
            Self::Axes(axes) if axes.iter().zip(dims).any(|(axis, dim)| axis.end() > *dim) => {
                Err("a selection that passes the end of its dataset")
            }
            Self::Axes(axes) => Ok(Cow::Borrowed(axes)),
            Self::Unknown(reason) => Err(reason),
        }
    }
}

/// Passes over a list of points, which is not supported.
fn points(fields: &mut Structure<'_>, version: u32) -> Result<Selection> {
    let width = match version {
        1 => {
            fields.skip(8)?;
            4
        }
        2 => usize::from(fields.u8()?),
        _ => return Err(fields.damaged(format!("a selection of points of version {version}"))),
    };
    let rank = fields.u32()?;
    let count = fields.uint(width.clamp(1, 8))?;
    let bytes = count.checked_mul(rank.into()).and_then(|count| count.checked_mul(width as u64));
    fields.skip(bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX))?;
    Ok(Selection::Unknown("a mapping of single points"))
}

fn hyperslab(fields: &mut Structure<'_>, version: u32) -> Result<Selection> {
    let (is_regular, width) = match version {
        1 => {
            fields.skip(8)?;
            (false, 4)
        }
        2 => {
            let flags = fields.u8()?;
            fields.skip(4)?;
            (flags & 1 != 0, 8)
        }
        3 => (fields.u8()? & 1 != 0, usize::from(fields.u8()?)),
        _ => return Err(fields.damaged(format!("a selection of blocks of version {version}"))),
    };
    let rank = fields.u32()?;
    if rank == 0 || rank > RANK || ![2, 4, 8].contains(&width) {
        return Err(fields.damaged(format!("a selection of {rank} axes, {width} bytes for each number")));
    }
    if !is_regular {
        return blocks(fields, rank as usize, width);
    }
    let unlimited = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
    let (mut axes, mut is_unlimited) = (Vec::new(), false);
    for _ in 0..rank {
        let [start, stride, count, block] =
            [fields.uint(width)?, fields.uint(width)?, fields.uint(width)?, fields.uint(width)?];
        is_unlimited |= count == unlimited || block == unlimited;
        let end =
            count.saturating_sub(1).checked_mul(stride).and_then(|end| end.checked_add(start)?.checked_add(block));
        let is_right = is_unlimited || end.is_some() && (stride >= block.max(1) || count <= 1);
        if !is_right {
            return Err(fields.damaged(format!("{count} blocks of {block} from {start} on, {stride} apart")));
        }
        axes.push(Axis::Steps { start, stride: stride.max(block).max(1), count, block });
    }
    match is_unlimited {
        true => Ok(Selection::Unknown("a mapping without a limit")),
        false => Ok(Selection::Axes(axes.into())),
    }
}

/// Reads a list of blocks. It is supported if the blocks are all combinations of runs on the axes.
fn blocks(fields: &mut Structure<'_>, rank: usize, width: usize) -> Result<Selection> {
    let count = fields.uint(width)?;
    let size = (2 * rank * width) as u64;
    if count > fields.left() as u64 / size {
        return Err(fields.damaged(format!("a selection of {count} blocks")));
    }
    let mut all: Vec<Vec<(u64, u64)>> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let starts = (0..rank).map(|_| fields.uint(width)).collect::<Result<Vec<_>>>()?;
        let ends = (0..rank).map(|_| fields.uint(width)).collect::<Result<Vec<_>>>()?;
        if starts.iter().zip(&ends).any(|(start, end)| start > end || *end == u64::MAX) {
            return Err(fields.damaged("a block that ends before it begins"));
        }
        all.push(starts.into_iter().zip(ends).collect());
    }
    all.sort_unstable();
    all.dedup();
    let unknown = Ok(Selection::Unknown("a mapping of blocks that are no grid"));
    let (mut axes, mut product) = (Vec::new(), 1u64);
    for axis in 0..rank {
        let mut runs: Vec<(u64, u64)> = all.iter().filter_map(|block| block.get(axis).copied()).collect();
        runs.sort_unstable();
        runs.dedup();
        if runs.windows(2).any(|pair| matches!(pair, [(_, end), (start, _)] if start <= end)) {
            return unknown;
        }
        product = product.saturating_mul(runs.len() as u64);
        let mut before = 0u64;
        let runs = runs.into_iter().map(|(start, end)| {
            let run = (start, end - start + 1, before);
            before += end - start + 1;
            run
        });
        axes.push(Axis::Runs(runs.collect()));
    }
    if product == all.len() as u64 { Ok(Selection::Axes(axes.into())) } else { unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_numbers_of_an_axis_are_inverse() {
        let axes = [
            Axis::Steps { start: 3, stride: 5, count: 4, block: 2 },
            Axis::Steps { start: 0, stride: 1, count: 7, block: 1 },
            Axis::whole(9),
            Axis::Runs([(1, 1, 0), (5, 2, 1), (9, 1, 3)].into()),
        ];
        for axis in axes {
            let places: Vec<u64> = (0..axis.len()).map(|number| axis.place(number).unwrap().0).collect();
            assert!(places.is_sorted() && axis.place(axis.len()).is_none());
            assert_eq!(places.last().map(|last| last + 1), Some(axis.end()));
            for place in 0..axis.end() + 3 {
                let next = places.iter().find(|at| **at >= place);
                match axis.find(place) {
                    Found::Inside(number, left) => {
                        assert_eq!(places[number as usize], place);
                        assert_eq!(axis.place(number), Some((place, left)));
                        assert!((0..left).all(|more| places.contains(&(place + more))));
                    }
                    Found::Outside(on) => assert_eq!(on.map(|on| place + on), next.copied(), "{axis:?} {place}"),
                }
            }
        }
    }
}
