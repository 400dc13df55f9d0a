//! Selections of elements: which elements a mapping of a virtual dataset takes, and where it puts them (section 6.4).

use std::borrow::Cow;

use super::{Result, Structure};
use crate::source::to_usize;

/// Most axes.
const RANK: u32 = 32;

/// Most runs of consecutive elements in a selection of blocks that are no grid.
const RUNS: u64 = 1 << 16;

/// The number of places on an axis that are selected without a limit.
const UNLIMITED: u64 = u64::MAX;

/// Elements of a dataset, in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// No element.
    Nothing,
    /// All elements.
    All,
    /// The elements whose place is selected on every axis.
    Axes(Box<[Axis]>),
    /// Blocks that do not overlap, as the first and the last place of each on every axis.
    Blocks(Box<[Block]>),
    /// A selection that is not supported, and why.
    Unknown(&'static str),
}

/// The first and the last place of a block on each axis.
type Block = Box<[(u64, u64)]>;

/// What is selected on each axis of a dataset.
#[derive(Debug)]
pub struct Places<'a> {
    /// The places on each axis.
    pub axes: Cow<'a, [Axis]>,
    /// The axes of the dataset; one that has all elements for blocks that are no grid.
    pub dims: Cow<'a, [u64]>,
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
        /// The places of a block.
        block: u64,
        /// The places of all blocks, of which the last may have fewer; `u64::MAX` for all that the axis has.
        places: u64,
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
        Self::Steps { start: 0, stride: places.max(1), block: places, places }
    }

    /// Returns how many places are selected.
    pub fn len(&self) -> u64 {
        match self {
            Self::Steps { places, .. } => *places,
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
            Self::Steps { places, .. } => self.place(places - 1).map_or(u64::MAX, |(last, _)| last.saturating_add(1)),
            Self::Runs(runs) => runs.last().map_or(0, |(start, length, _)| start + length),
        }
    }

    /// Returns whether it selects all that the axis has from its first place on.
    pub fn is_unlimited(&self) -> bool {
        self.len() == UNLIMITED
    }

    /// Returns how many of the selected places are less than `end`.
    pub fn before(&self, end: u64) -> u64 {
        match self.find(end) {
            Found::Inside(number, _) => number,
            Found::Outside(Some(on)) => match self.find(end.saturating_add(on)) {
                Found::Inside(number, _) => number,
                Found::Outside(_) => self.len(),
            },
            Found::Outside(None) => self.len(),
        }
    }

    /// Selects the first places only.
    #[must_use]
    pub fn first(&self, most: u64) -> Self {
        match self {
            &Self::Steps { start, stride, block, places } => {
                Self::Steps { start, stride, block, places: places.min(most) }
            }
            Self::Runs(_) => self.clone(),
        }
    }

    /// Selects the block with a number alone; `None` if its places are more than an axis can have.
    pub fn block(&self, number: u64) -> Option<Self> {
        let &Self::Steps { start, stride, block, .. } = self else { return None };
        let start = number.checked_mul(stride)?.checked_add(start)?;
        start.checked_add(block)?;
        Some(Self::Steps { start, stride: block.max(1), block, places: block })
    }

    /// Returns where a place is among the selected ones.
    pub fn find(&self, place: u64) -> Found {
        match self {
            &Self::Steps { start, stride, block, places } => {
                let Some(inner) = place.checked_sub(start) else {
                    return Found::Outside((places > 0).then(|| start - place));
                };
                let (step, rest) = (inner / stride, inner % stride);
                let number = step * block + rest.min(block);
                match (places.checked_sub(number), block.checked_sub(rest)) {
                    (None | Some(0), _) => Found::Outside(None),
                    (Some(most), Some(left @ 1..)) => Found::Inside(number, left.min(most)),
                    _ => Found::Outside(Some(stride - rest)),
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
            &Self::Steps { start, stride, block, places } => {
                let (step, inner) = (number.checked_div(block)?, number.checked_rem(block)?);
                let most = places.checked_sub(number).filter(|most| *most > 0)?;
                let place = step.checked_mul(stride)?.checked_add(start)?.checked_add(inner)?;
                Some((place, (block - inner).min(most)))
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
        let axes = match self {
            Self::Axes(axes) => axes,
            Self::Blocks(blocks) => return blocks.iter().map(|block| size_of_val(&**block) + 16).sum(),
            _ => return 0,
        };
        let runs = axes.iter().map(|axis| if let Axis::Runs(runs) = axis { size_of_val(&**runs) } else { 0 });
        size_of_val(&**axes) + runs.sum::<usize>()
    }

    /// Returns the axis that is selected without a limit, if one is.
    pub fn unlimited(&self) -> Option<(usize, &Axis)> {
        let Self::Axes(axes) = self else { return None };
        axes.iter().enumerate().find(|(_, axis)| axis.is_unlimited())
    }

    /// Returns the bytes of memory that [`Self::places`] takes.
    pub fn places_usage(&self) -> u64 {
        match self {
            Self::Axes(axes) => size_of_val(&**axes) as u64,
            Self::Blocks(blocks) => rows(blocks).min(RUNS) * 24,
            _ => 0,
        }
    }

    /// Returns what is selected in a dataset. An axis without a limit ends where that of the dataset does.
    ///
    /// # Errors
    /// Why it is not supported, or does not fit the dataset.
    pub fn places<'a>(&'a self, dims: &'a [u64]) -> std::result::Result<Places<'a>, &'static str> {
        const PASSES: &str = "a selection that passes the end of its dataset";
        let axes = match self {
            Self::Nothing => dims.iter().map(|_| Axis::whole(0)).collect(),
            Self::All => dims.iter().map(|axis| Axis::whole(*axis)).collect(),
            Self::Axes(axes) if axes.len() != dims.len() => return Err("a selection of another number of axes"),
            Self::Axes(axes) if axes.iter().any(Axis::is_unlimited) => {
                let limited = |(axis, dim): (&Axis, &u64)| match axis.is_unlimited() {
                    true => axis.first(axis.before(*dim)),
                    false => axis.clone(),
                };
                Cow::Owned(axes.iter().zip(dims).map(limited).collect::<Vec<_>>())
            }
            Self::Axes(axes) => Cow::Borrowed(&**axes),
            Self::Blocks(blocks) => return flat(blocks, dims),
            Self::Unknown(reason) => return Err(reason),
        };
        if axes.iter().zip(dims).any(|(axis, dim)| axis.end() > *dim) {
            return Err(PASSES);
        }
        Ok(Places { axes, dims: Cow::Borrowed(dims) })
    }
}

impl Places<'_> {
    /// Returns how many elements are selected; `None` if that is no number.
    pub fn count(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |product, axis| product.checked_mul(axis.len()))
    }

    /// Selects only the first places on an axis.
    #[must_use]
    pub fn first(self, axis: usize, most: u64) -> Self {
        let mut axes = self.axes.into_owned();
        if let Some(axis) = axes.get_mut(axis) {
            *axis = axis.first(most);
        }
        Self { axes: axes.into(), dims: self.dims }
    }
}

/// Returns the number of rows of blocks.
fn rows(blocks: &[Block]) -> u64 {
    let rows = |block: &Block| {
        let outer = block.iter().rev().skip(1);
        outer.fold(1u64, |rows, (start, end)| rows.saturating_mul(end.saturating_sub(*start).saturating_add(1)))
    };
    blocks.iter().fold(0, |sum, block| sum.saturating_add(rows(block)))
}

/// Returns blocks in a dataset as runs of elements in C order.
fn flat(blocks: &[Block], dims: &[u64]) -> std::result::Result<Places<'static>, &'static str> {
    if blocks.iter().any(|block| block.len() != dims.len()) {
        return Err("a selection of another number of axes");
    }
    if blocks.iter().any(|block| block.iter().zip(dims).any(|((_, end), dim)| end >= dim)) {
        return Err("a selection that passes the end of its dataset");
    }
    if rows(blocks) > RUNS {
        return Err("a mapping of too many blocks that are no grid");
    }
    let elements = dims.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    let elements = elements.ok_or("a dataset with too many elements")?;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        let Some(((first, last), outer)) = block.split_last() else { continue };
        // The places on the outer axes count up, the last one first.
        let mut at: Vec<u64> = outer.iter().map(|(start, _)| *start).collect();
        loop {
            let row = at.iter().zip(dims).fold(0, |row, (place, dim)| row * dim + place);
            runs.push((row * dims.last().unwrap_or(&1) + first, last - first + 1));
            let next = at.iter_mut().zip(outer).rev().find_map(|(place, (start, end))| {
                let may_rise = *place < *end;
                *place = if may_rise { *place + 1 } else { *start };
                may_rise.then_some(())
            });
            if next.is_none() {
                break;
            }
        }
    }
    runs.sort_unstable();
    if runs.windows(2).any(|pair| matches!(pair, [(start, length), (next, _)] if start + length > *next)) {
        return Err("a mapping of blocks that overlap");
    }
    let mut before = 0;
    let runs = runs.into_iter().map(|(start, length)| {
        let run = (start, length, before);
        before += length;
        run
    });
    Ok(Places { axes: vec![Axis::Runs(runs.collect())].into(), dims: vec![elements].into() })
}

/// Passes over a list of points. The reference library does not write mappings of points, so there are none to read.
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
    let mut axes = Vec::new();
    for _ in 0..rank {
        let [start, stride, count, block] =
            [fields.uint(width)?, fields.uint(width)?, fields.uint(width)?, fields.uint(width)?];
        if count == unlimited || block == unlimited {
            // A block without a limit is a place at each step.
            let (stride, block) = if block == unlimited { (1, 1) } else { (stride, block) };
            if stride < block.max(1) || axes.iter().any(Axis::is_unlimited) {
                return Err(fields.damaged(format!("blocks of {block} without a limit, {stride} apart")));
            }
            axes.push(Axis::Steps { start, stride, block, places: if block == 0 { 0 } else { UNLIMITED } });
            continue;
        }
        let end =
            count.saturating_sub(1).checked_mul(stride).and_then(|end| end.checked_add(start)?.checked_add(block));
        let is_right = end.is_some() && (stride >= block.max(1) || count <= 1);
        let Some(places) = count.checked_mul(block).filter(|_| is_right) else {
            return Err(fields.damaged(format!("{count} blocks of {block} from {start} on, {stride} apart")));
        };
        axes.push(Axis::Steps { start, stride: stride.max(block).max(1), block, places });
    }
    Ok(Selection::Axes(axes.into()))
}

/// Reads a list of blocks. If they are all combinations of runs on the axes, these are what is selected.
fn blocks(fields: &mut Structure<'_>, rank: usize, width: usize) -> Result<Selection> {
    let count = fields.uint(width)?;
    let size = (2 * rank * width) as u64;
    if count > fields.left() as u64 / size {
        return Err(fields.damaged(format!("a selection of {count} blocks")));
    }
    let mut all: Vec<Vec<(u64, u64)>> = Vec::with_capacity(to_usize(count));
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
    let others = |all: Vec<Vec<(u64, u64)>>| Ok(Selection::Blocks(all.into_iter().map(Box::from).collect()));
    let (mut axes, mut product) = (Vec::new(), 1u64);
    for axis in 0..rank {
        let mut runs: Vec<(u64, u64)> = all.iter().filter_map(|block| block.get(axis).copied()).collect();
        runs.sort_unstable();
        runs.dedup();
        if runs.windows(2).any(|pair| matches!(pair, [(_, end), (start, _)] if start <= end)) {
            return others(all);
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
    if product == all.len() as u64 { Ok(Selection::Axes(axes.into())) } else { others(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_numbers_of_an_axis_are_inverse() {
        let axes = [
            Axis::Steps { start: 3, stride: 5, block: 2, places: 8 },
            Axis::Steps { start: 3, stride: 5, block: 3, places: 7 },
            Axis::Steps { start: 0, stride: 1, block: 1, places: 7 },
            Axis::whole(9),
            Axis::Runs([(1, 1, 0), (5, 2, 1), (9, 1, 3)].into()),
        ];
        for axis in axes {
            let places: Vec<u64> = (0..axis.len()).map(|number| axis.place(number).unwrap().0).collect();
            assert!(places.is_sorted() && axis.place(axis.len()).is_none());
            assert_eq!(places.last().map(|last| last + 1), Some(axis.end()));
            assert!((0..axis.end() + 3).all(|end| axis.before(end) == places.partition_point(|at| *at < end) as u64));
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
