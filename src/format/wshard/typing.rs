//! Dtype and shape of every block (section 12), and how it is shown (`docs/TREE.md`, section 3).

use std::{collections::HashMap, sync::Arc};

use super::{
    Block, Channel, Entry, Header, Notes, ROLE_EPISODE, Residual, Value, Words, block::Fault, episode::Meta, shown,
};
use crate::{
    format::{DType, Fields, picture},
    limits,
    source::{Source, SourceError},
};

/// Bytes of language blocks that are decoded to see whether they are UTF-8. Blocks beyond it get no text.
const LANGUAGE_BUDGET: u64 = 64 * limits::LANGUAGE_TEXT;

/// Slashes of a name at which a channel id may end.
const ID_SLASHES: usize = 32;

/// Decides how each block is shown.
pub(super) fn assign(
    source: &dyn Source,
    header: &Header,
    entries: &mut [Entry],
    meta: &Meta,
    notes: &mut Notes,
) -> Result<(), SourceError> {
    let lanes = (header.role == ROLE_EPISODE).then(|| Lanes::new(meta));
    let typed = !header.big_endian() && !meta.untyped;
    let mut budget = LANGUAGE_BUDGET;
    for entry in entries {
        if let Some(lanes) = &lanes {
            entry.words = lanes.words(&entry.name);
        }
        entry.value = if entry.name.starts_with(b"meta/") || entry.content_type == 2 {
            Value::Json
        } else {
            let lanes = lanes.as_ref().filter(|_| typed);
            entry.residual = lanes.and_then(|lanes| lanes.residual(&entry.name, entry.block.extent.size)).map(Box::new);
            value(source, entry, lanes, typed)?
        };
        if let Some(steps) = meta.episode.steps {
            note_steps(entry, steps, notes);
        }
        if is_language(entry) {
            match budget.checked_sub(entry.block.extent.size) {
                Some(rest) => {
                    budget = rest;
                    let text = sound(entry.block.load(source, limits::LANGUAGE_TEXT))?;
                    entry.language = text.is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok());
                }
                None => notes.add(format_args!("{} gets no text: too much to look at", shown(&entry.name))),
            }
        }
    }
    Ok(())
}

/// Returns what could be read of a block. Damage becomes `None`: reading the block finds it again.
fn sound(read: Result<Vec<u8>, Fault>) -> Result<Option<Vec<u8>>, SourceError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Fault::Changed) => Err(SourceError::Changed),
        Err(Fault::Block(_)) => Ok(None),
    }
}

/// Decides how a block that is no JSON is shown.
fn value(source: &dyn Source, entry: &Entry, lanes: Option<&Lanes>, typed: bool) -> Result<Value, SourceError> {
    let Entry { name, block, content_type, .. } = entry;
    let described = lanes.and_then(|lanes| lanes.described(name, block.extent.size));
    if let Some(exact @ Value::Array { inferred: false, .. }) = described {
        return Ok(exact);
    }
    if *content_type == 1 && typed {
        let front = sound(block.front(source))?;
        if let Some(tensor) = front.and_then(|front| tensor(&front, block.extent.size)) {
            return Ok(tensor);
        }
    }
    if let Some(array @ Value::Array { .. }) =
        described.clone().or_else(|| lanes.and_then(|lanes| lanes.undescribed(name, block)))
    {
        return Ok(array);
    }
    Ok(match content_type {
        5 => Value::Text,
        6 => Value::Image(sound(block.front(source))?.and_then(|front| picture::suffix(&front)).unwrap_or(".bin")),
        _ => Value::Bytes,
    })
}

/// Section 22: the steps of a block and length_T may differ. Text of a language channel may have none.
fn note_steps(entry: &Entry, steps: u64, notes: &mut Notes) {
    if let Value::Array { shape, source, .. } = &entry.value
        && entry.residual.is_none()
        && entry.block.error.is_none()
        && *source != TENSOR
        && entry.modality() != Some("language")
        && let Some(rows) = shape.first().filter(|rows| **rows != steps)
    {
        notes.add(format_args!("{} has {rows} steps, the episode {steps}", shown(&entry.name)));
    }
}

/// Returns whether the block is a u8 language channel that is small enough to look at (`docs/TREE.md`, section 3).
fn is_language(entry: &Entry) -> bool {
    matches!(entry.value, Value::Array { dtype: DType::U8, data_offset: 0, .. })
        && entry.residual.is_none()
        && entry.block.extent.size <= limits::LANGUAGE_TEXT
        && (entry.modality() == Some("language") || entry.name.rsplit(|b| *b == b'/').next() == Some(b"language"))
}

const TENSOR: &str = "tensor_v1";
const CHANNELS: &str = "meta/channels";
const LANE: &str = "lane default";

/// Returns the number of elements. `None` if the dimensions other than 0 have no product, because numpy refuses such a
/// shape.
fn elements(shape: &[u64]) -> Option<u64> {
    let product = shape.iter().filter(|n| **n != 0).try_fold(1u64, |product, n| product.checked_mul(*n))?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// Returns an array, if numpy can represent it.
fn array(dtype: DType, shape: Vec<u64>, inferred: bool, source: &'static str) -> Option<Value> {
    let bytes = shape.iter().filter(|n| **n != 0).try_fold(dtype.size(), |product, n| product.checked_mul(*n))?;
    let fits = shape.len() <= limits::DIMENSIONS && i64::try_from(bytes).is_ok();
    fits.then_some(Value::Array { dtype, shape, data_offset: 0, inferred, source })
}

fn rows(steps: u64, shape: &[u64]) -> Vec<u64> {
    std::iter::once(steps).chain(shape.iter().copied()).collect()
}

/// Returns `[n]`, if the element size divides the size.
fn flat(dtype: DType, size: u64, inferred: bool, source: &'static str) -> Option<Value> {
    size.is_multiple_of(dtype.size()).then(|| array(dtype, vec![size / dtype.size()], inferred, source)).flatten()
}

/// Returns the number of steps of a block, if rows of this kind fill it exactly.
fn steps_of(dtype: DType, shape: &[u64], size: u64) -> Option<u64> {
    let row = elements(shape)?.checked_mul(dtype.size()).filter(|row| *row > 0)?;
    size.is_multiple_of(row).then_some(size / row)
}

/// Section 17: an array only if the header is sound and the block ends where the data end.
fn tensor(front: &[u8], size: u64) -> Option<Value> {
    let dtype = match front.first()? {
        1 => DType::F32,
        2 => DType::F16,
        3 => DType::Bf16,
        4 => DType::I8,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        8 => DType::U8,
        9 => DType::U16,
        10 => DType::U32,
        11 => DType::U64,
        12 => DType::F64,
        _ => return None,
    };
    let dimensions = usize::from(*front.get(1)?);
    let shape: Vec<u64> = (0..dimensions).map(|i| front.u64(4 + 8 * i)).collect::<Option<_>>()?;
    let header = 4 + 8 * dimensions as u64;
    let data = elements(&shape)?.checked_mul(dtype.size())?;
    if data.checked_add(header)? != size {
        return None;
    }
    match array(dtype, shape, false, TENSOR)? {
        Value::Array { dtype, shape, inferred, source, .. } => {
            Some(Value::Array { dtype, shape, data_offset: header, inferred, source })
        }
        other => Some(other),
    }
}

/// What the metadata of an episode say about its blocks.
struct Lanes<'m> {
    by_block: HashMap<&'m [u8], &'m Channel>,
    by_id: HashMap<&'m [u8], &'m Channel>,
    spaces: HashMap<&'m [u8], &'m Channel>,
    steps: Option<u64>,
    /// See [`Meta::lanes_unknown`].
    are_unknown: bool,
}

impl<'m> Lanes<'m> {
    /// If several elements describe one block, or have one id, the later one wins. For an id, an observation comes
    /// before an action.
    fn new(meta: &'m Meta) -> Self {
        let (actions, others): (Vec<_>, Vec<_>) = meta.channels.iter().partition(|c| c.block.starts_with("action/"));
        Self {
            by_block: meta.channels.iter().map(|c| (c.block.as_bytes(), c)).collect(),
            by_id: actions.into_iter().chain(others).map(|c| (c.id.as_bytes(), c)).collect(),
            spaces: meta.action_spaces.iter().map(|c| (c.block.as_bytes(), c)).collect(),
            steps: meta.episode.steps,
            are_unknown: meta.lanes_unknown,
        }
    }

    fn words(&self, name: &[u8]) -> Option<Arc<Words>> {
        self.by_block.get(name)?.words.clone()
    }

    /// 12.1: what the block's own description makes of it. `None` without a description, `Bytes` if it is not usable.
    fn described(&self, name: &[u8], size: u64) -> Option<Value> {
        let channel = self.by_block.get(name)?;
        Some(self.exact(channel, size, CHANNELS).unwrap_or_else(|| {
            let flat = channel.dtype.and_then(|dtype| flat(dtype, size, true, CHANNELS));
            flat.unwrap_or(Value::Bytes)
        }))
    }

    /// Returns an array as the channel describes it, if that fills the block. An empty one of empty rows has length_T
    /// of them.
    fn exact(&self, channel: &Channel, size: u64, source: &'static str) -> Option<Value> {
        let (dtype, shape) = (channel.dtype?, channel.shape.as_ref()?);
        let steps = match elements(shape)? {
            0 if size == 0 => self.steps.unwrap_or(0),
            _ => steps_of(dtype, shape, size)?,
        };
        array(dtype, rows(steps, shape), false, source)
    }

    /// 12.2 to 12.7: what the lane in the block's name makes of it.
    fn undescribed(&self, name: &[u8], block: &Block) -> Option<Value> {
        let size = block.extent.size;
        match name {
            b"done" => return flat(DType::Bool, size, false, LANE),
            b"time/ticks" => return flat(DType::I32, size, false, LANE),
            b"time/timestamps_ns" => return flat(DType::I64, size, false, LANE),
            _ if self.are_unknown => return None,
            b"reward" => {
                let doubles = self.steps.filter(|t| *t > 0 && t.checked_mul(8) == Some(size)).is_some();
                return if doubles {
                    flat(DType::F64, size, true, "size")
                } else {
                    flat(DType::F32, size, false, LANE)
                };
            }
            _ => {}
        }
        if let Some(id) = name.strip_prefix(b"action/") {
            self.action(name, id, size)
        } else if let Some(rest) = name.strip_prefix(b"omen/") {
            match self.channel_of(rest) {
                Some(channel) => self.prediction(channel, [channel.dtype, Some(DType::F32)], size),
                None if rest.starts_with(b"latent_action_codebook/") => self.per_step(DType::I32, size),
                None => self.per_step(DType::F32, size),
            }
        } else if let Some(rest) = name.strip_prefix(b"uncert/") {
            match self.channel_of(rest) {
                Some(channel) => {
                    let own = channel.dtype.filter(|dtype| dtype.is_float());
                    self.prediction(channel, [Some(DType::F32), own], size)
                }
                None => self.per_step(DType::F32, size),
            }
        } else {
            None
        }
    }

    /// 12.2: `action_spaces`, which name the whole block; then the element of the same id, as stream writers describe
    /// it; then f32.
    fn action(&self, name: &[u8], id: &[u8], size: u64) -> Option<Value> {
        if let Some(found) = self.spaces.get(name).and_then(|c| self.exact(c, size, "meta/episode action_spaces")) {
            return Some(found);
        }
        let Some(channel) = self.by_id.get(id).or_else(|| self.by_id.get(name)) else {
            return self.per_step(DType::F32, size);
        };
        // An unknown element type is not f32.
        channel.dtype?;
        match self.exact(channel, size, "meta/channels by id") {
            Some(found) => Some(guessed(found)),
            None => self.per_step(DType::F32, size),
        }
    }

    /// 12.7: the first of these dtypes that, with the channel's shape and the episode's steps, fills the block.
    fn prediction(&self, channel: &Channel, dtypes: [Option<DType>; 2], size: u64) -> Option<Value> {
        let fit = |dtype: DType| {
            let (steps, shape) = (self.steps?, channel.shape.as_ref()?);
            let bytes = elements(shape)?.checked_mul(dtype.size())?.checked_mul(steps)?;
            (bytes == size).then(|| array(dtype, rows(steps, shape), true, "channel")).flatten()
        };
        dtypes.into_iter().flatten().find_map(fit).or_else(|| self.per_step(DType::F32, size))
    }

    /// 12.7: `[T, n/T]`, or `[T]` where that leaves one element a step.
    fn per_step(&self, dtype: DType, size: u64) -> Option<Value> {
        let steps = self.steps?;
        if steps == 0 {
            return (size == 0).then(|| array(dtype, vec![0], true, LANE)).flatten();
        }
        let step = dtype.size().checked_mul(steps)?;
        match (size % step, size / step) {
            (0, 1) => array(dtype, vec![steps], true, LANE),
            (0, width) if width > 1 => array(dtype, vec![steps, width], true, LANE),
            _ => None,
        }
    }

    /// Section 10: the longest known channel id that begins `<channel>/<model>...`.
    fn channel_of(&self, rest: &[u8]) -> Option<&'m Channel> {
        let slashes: Vec<usize> =
            rest.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).take(ID_SLASHES).collect();
        slashes.into_iter().rev().find_map(|at| self.by_id.get(rest.get(..at)?).copied())
    }

    /// Section 13: the layout that the size of a residual block fits.
    fn residual(&self, name: &[u8], size: u64) -> Option<Residual> {
        let id = name.strip_prefix(b"residual/")?.strip_suffix(b"/sign2nddiff")?;
        let steps = self.steps?;
        let stride = steps.div_ceil(8);
        let plain = |dims| Some(Residual { steps, dims, stride, skip: 0 });
        if size == stride {
            return plain(1);
        }
        if stride == 0 {
            return None;
        }
        let Some(channel) = self.by_id.get(id) else {
            let is_fit = !self.are_unknown && size > 0 && size.is_multiple_of(stride);
            return if is_fit { plain(size / stride) } else { None };
        };
        let dims = elements(channel.shape.as_ref()?).filter(|dims| *dims > 0)?;
        if dims.checked_mul(stride) == Some(size) {
            return plain(dims);
        }
        let prefixed = stride.checked_add(4)?;
        (dims.checked_mul(prefixed) == Some(size)).then_some(Residual { steps, dims, stride: prefixed, skip: 4 })
    }
}

/// The same array, marked as a guess.
fn guessed(value: Value) -> Value {
    match value {
        Value::Array { dtype, shape, data_offset, source, .. } => {
            Value::Array { dtype, shape, data_offset, inferred: true, source }
        }
        other => other,
    }
}
