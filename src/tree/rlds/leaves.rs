//! The features of a data set in one record, by `features.json` (`docs/formats/rlds.md` 6 and 7).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    lone,
    record::{Candidate, File, Files, digits, failing, suffix},
    values::{Making, Tensors, integer},
};
use crate::{
    format::{
        DType, bf16, half,
        rlds::{Encoding, Features, Leaf, LeafKind},
        tfrecord::example::{List, ListKind},
        to_bf16, to_half,
    },
    tree::paths::ROOT,
    view::{Array, Fault, View, json as json_view},
};

/// The folder of the cameras of an episode.
pub(super) const IMAGES: &str = "images";
/// Names of the leaves that best tell the number of steps, the best first.
const TELLING: [&str; 5] = ["is_first", "is_last", "is_terminal", "reward", "discount"];
/// Longest text in `meta.json`, in bytes.
const TEXT: usize = 4096;

/// Where a record is.
pub(super) struct Place<'a> {
    pub(super) split: &'a str,
    pub(super) record: u64,
    pub(super) shard: &'a str,
    pub(super) in_shard: u64,
}

/// Adds the files of a record of a data set.
pub(super) fn fill(files: &mut Files<'_>, features: &Features, place: &Place<'_>) -> Result<(), Fault> {
    if features.has_steps {
        files.reserved = &[IMAGES];
        files.steps = steps(files, features);
    }
    // Leaves of steps first: if names collide, they keep theirs.
    for in_steps in [true, false] {
        for (number, leaf) in (0..).zip(&features.leaves).filter(|(_, leaf)| leaf.in_steps == in_steps) {
            Added { files: &mut *files, leaf, number }.add()?;
        }
    }
    if features.has_steps {
        let meta = json!({
            "split": place.split,
            "episode": place.record,
            "shard": place.shard,
            "record": place.in_shard,
            "num_steps": files.steps,
            "features": scalars(files, features),
        });
        files.add(ROOT, b"meta", ".json", File::Bytes(View::inline(json_view::document(&meta))))?;
        if files.steps > 0 && !files.columns.is_empty() {
            files.add(ROOT, b"steps", ".parquet", File::Table)?;
        }
    }
    Ok(())
}

/// Returns the number of values that a leaf has in its list for each step.
fn values_a_step(leaf: &Leaf) -> Option<u64> {
    match leaf.kind {
        LeafKind::Numbers(_, Encoding::None) | LeafKind::Text => leaf.elements(),
        LeafKind::Numbers(..) | LeafKind::Picture(..) => Some(1),
        LeafKind::Other(_) => None,
    }
}

/// Returns the number of steps of an episode.
fn steps(files: &Files<'_>, features: &Features) -> u64 {
    let rank = |leaf: &&Leaf| TELLING.iter().position(|name| *name == leaf.shown()).unwrap_or(TELLING.len());
    let mut telling: Vec<&Leaf> = features.leaves.iter().filter(|leaf| leaf.in_steps && leaf.sequences == 1).collect();
    telling.sort_by_key(rank);
    let count = |leaf: &Leaf| {
        let each = values_a_step(leaf).filter(|&each| each > 0)?;
        let count = files.content.list(files.content.find(leaf.path.as_bytes())?).count;
        count.is_multiple_of(each).then_some(count / each)
    };
    let rows = |leaf: &Leaf| {
        let key = format!("{}/{LENGTHS}", leaf.path);
        Some(files.content.list(files.content.find(key.as_bytes())?).count)
    };
    let ragged = || features.leaves.iter().filter(|leaf| leaf.in_steps && leaf.sequences >= 2).find_map(rows);
    telling.into_iter().find_map(count).or_else(ragged).unwrap_or(0)
}

/// The keys of ragged values.
const VALUES: &str = "ragged_flat_values";
const LENGTHS: &str = "ragged_row_lengths_0";

/// A leaf that is being added.
struct Added<'a, 'b> {
    files: &'a mut Files<'b>,
    leaf: &'a Leaf,
    number: u32,
}

impl Added<'_, '_> {
    fn add(mut self) -> Result<(), Fault> {
        let leaf = self.leaf;
        let unknown = leaf.shape.iter().filter(|dimension| dimension.is_none()).count();
        let is_free = !leaf.in_steps && leaf.sequences == 1;
        let is_decoded = match &leaf.kind {
            LeafKind::Other(_) => false,
            LeafKind::Numbers(_, Encoding::None) => match leaf.sequences {
                0 | 1 => unknown == 0 || unknown == 1 && !is_free,
                2 => unknown == 0,
                _ => false,
            },
            LeafKind::Numbers(..) => leaf.sequences <= 1 && unknown == 0,
            LeafKind::Text => leaf.sequences <= 1 && unknown <= 1,
            LeafKind::Picture(..) => leaf.sequences <= 1,
        };
        if !is_decoded {
            return self.as_stored();
        }
        if leaf.sequences == 2 {
            return self.ragged();
        }
        let Some(feature) = self.files.content.find(leaf.path.as_bytes()) else {
            self.note("is not in the record");
            return Ok(());
        };
        let content = self.files.content.clone();
        let list = content.list(feature);
        match &leaf.kind {
            LeafKind::Numbers(dtype, Encoding::None) => self.numbers(feature, list, *dtype),
            LeafKind::Numbers(dtype, encoding) => self.tensors(feature, list, *dtype, *encoding),
            LeafKind::Text => self.texts(feature, list),
            LeafKind::Picture(is_u8, _) => self.pictures(feature, list, *is_u8),
            LeafKind::Other(_) => Ok(()),
        }
    }

    fn note(&mut self, reason: &str) {
        self.files.notes.push(format!("{}: {reason}", self.leaf.path));
    }

    /// Returns why a list does not fit, and reports it.
    fn unfit(&mut self, list: &List, expected: &str) -> Arc<str> {
        let kind = match list.kind {
            ListKind::None => "values",
            ListKind::Bytes => "byte strings",
            ListKind::Floats => "floats",
            ListKind::Integers => "integers",
        };
        let reason = format!("the record has {} {kind}, features.json says {expected}", list.count);
        self.note(&reason);
        reason.into()
    }

    /// Returns the number of values with the shape [`Leaf::shape`]. If the leaf is in a sequence, the list tells the
    /// number.
    fn units(&self, list: &List, each: u64) -> u64 {
        match self.leaf.sequences {
            0 => 1,
            _ if self.leaf.in_steps => self.files.steps,
            _ => list.count.checked_div(each).unwrap_or(0),
        }
    }

    /// Shows the features with this name, or below it, by their kind.
    fn as_stored(&mut self) -> Result<(), Fault> {
        let (content, leaf) = (self.files.content.clone(), self.leaf);
        let below = format!("{}/", leaf.path);
        let mut is_there = false;
        let first = content.features.partition_point(|feature| *feature.key < *leaf.path.as_bytes());
        for (number, feature) in content.features.iter().enumerate().skip(first) {
            let is_own = *feature.key == *leaf.path.as_bytes();
            if !is_own && !feature.key.starts_with(below.as_bytes()) {
                // Names such as `a!` sort between `a` and `a/`, but belong to other features.
                if *feature.key > *below.as_bytes() { break } else { continue }
            }
            let prefix = leaf.path.len() - leaf.shown().len();
            let name = feature.key.get(prefix..).unwrap_or_default();
            let reserved = self.files.reserved;
            lone::add(self.files, ROOT, name, reserved, number as u32)?;
            is_there = true;
        }
        if !is_there {
            self.note("is not in the record");
        }
        Ok(())
    }

    fn array(&mut self, array: Array) -> Result<(), Fault> {
        let leaf = self.leaf;
        let reserved = self.files.reserved;
        let (folder, part) = self.files.builder.folders_of(ROOT, leaf.shown().as_bytes(), reserved);
        self.files.array(folder, part, array)
    }

    fn numbers(&mut self, feature: u32, list: &List, dtype: DType) -> Result<(), Fault> {
        let leaf = self.leaf;
        let known = leaf.shape.iter().flatten().try_fold(1u64, |all, side| all.checked_mul(*side)).unwrap_or(u64::MAX);
        let units = self.units(list, known);
        let others = units.saturating_mul(known);
        let sides = leaf.shape.iter().map(|side| side.unwrap_or_else(|| list.count.checked_div(others).unwrap_or(0)));
        let shape: Vec<u64> = (leaf.sequences > 0).then_some(units).into_iter().chain(sides).collect();
        let count = shape.iter().try_fold(1u64, |all, side| all.checked_mul(*side)).unwrap_or(u64::MAX);
        if list.count == 0 && count > 0 {
            self.note("has no values");
            return Ok(());
        }
        let size = count.saturating_mul(dtype.size());
        let fits = list.count == count && (count == 0 || list.kind == kind_of(dtype));
        if !fits {
            let reason = self.unfit(list, &format!("{count} of {dtype}"));
            return self.array(Array::new(dtype, shape, failing(size, &reason)));
        }
        let array = Array::new(dtype, shape, self.elements(feature, dtype, size));
        if leaf.in_steps {
            self.files.columns.push(Candidate::Numbers(leaf.shown().to_owned(), array.clone()));
        }
        self.array(array)
    }

    /// Returns the numbers of a list, which must fit.
    fn elements(&self, feature: u32, dtype: DType, size: u64) -> View {
        match dtype {
            DType::F32 => lone::floats(self.files, feature, self.number),
            _ => self.files.content.made(feature, self.number, Making::Elements(dtype), size),
        }
    }

    fn tensors(&mut self, feature: u32, list: &List, dtype: DType, encoding: Encoding) -> Result<(), Fault> {
        let leaf = self.leaf;
        let units = self.units(list, 1);
        let shape: Vec<u64> =
            (leaf.sequences > 0).then_some(units).into_iter().chain(leaf.shape.iter().copied().flatten()).collect();
        let each = leaf.elements().unwrap_or(u64::MAX).saturating_mul(dtype.size());
        let size = units.saturating_mul(each);
        if list.count == 0 && size > 0 {
            self.note("has no values");
            return Ok(());
        }
        let is_alike = encoding == Encoding::Zlib || list.spans.iter().all(|span| u64::from(span.length) == each);
        let fits = list.count == units && (units == 0 || list.kind == ListKind::Bytes) && is_alike;
        if !fits {
            let reason = self.unfit(list, &format!("{units} tensors of {each} bytes"));
            return self.array(Array::new(dtype, shape, failing(size, &reason)));
        }
        let data = if size == 0 {
            View::default()
        } else {
            let is_zlib = encoding == Encoding::Zlib;
            let tensors =
                Tensors { content: self.files.content.clone(), feature, leaf: self.number, size: each, is_zlib };
            let data = View::default().with_rendered(size, tensors);
            if dtype == DType::Bool { data.into_bool() } else { data }
        };
        let array = Array::new(dtype, shape, data);
        if leaf.in_steps {
            self.files.columns.push(Candidate::Numbers(leaf.shown().to_owned(), array.clone()));
        }
        self.array(array)
    }

    fn ragged(&mut self) -> Result<(), Fault> {
        let (content, leaf) = (self.files.content.clone(), self.leaf);
        let LeafKind::Numbers(dtype, _) = leaf.kind else { return Ok(()) };
        let find = |key: &str| content.find(format!("{}/{key}", leaf.path).as_bytes());
        let Some(lengths) = find(LENGTHS) else {
            self.note("is not in the record");
            return Ok(());
        };
        let rows = content.list(lengths);
        let none = List::default();
        let (feature, list) = find(VALUES).map_or((0, &none), |feature| (feature, content.list(feature)));
        let units = if leaf.in_steps { self.files.steps } else { rows.count };
        if rows.count == 0 && units > 0 {
            self.note("has no values");
            return Ok(());
        }
        let each = leaf.elements().unwrap_or(u64::MAX);
        let total = list.count.checked_div(each).unwrap_or(0);
        let sum = rows.integers(self.files.part()).try_fold(0u64, |sum, row| sum.checked_add(u64::try_from(row).ok()?));
        let fits = rows.count == units
            && (units == 0 || rows.kind == ListKind::Integers)
            && sum == Some(total)
            && total.checked_mul(each) == Some(list.count)
            && (list.count == 0 || list.kind == kind_of(dtype));
        let shape: Vec<u64> = [total].into_iter().chain(leaf.shape.iter().copied().flatten()).collect();
        let size = total.saturating_mul(each).saturating_mul(dtype.size());
        let bytes = units.saturating_add(1).saturating_mul(8);
        let (offsets, values) = if fits {
            let values = if size == 0 { View::default() } else { self.elements(feature, dtype, size) };
            (content.made(lengths, self.number, Making::Rows, bytes), values)
        } else {
            let reason = self.unfit(list, &format!("{units} rows of {dtype}, whose lengths sum up to them"));
            (failing(bytes, &reason), failing(size, &reason))
        };
        let reserved = self.files.reserved;
        let (folder, part) = self.files.builder.folders_of(ROOT, leaf.shown().as_bytes(), reserved);
        let folder = self.files.folder(folder, part);
        self.files.array(folder, b"offsets", Array::new(DType::I64, [units + 1], offsets))?;
        self.files.array(folder, b"values", Array::new(dtype, shape, values))
    }

    fn texts(&mut self, feature: u32, list: &List) -> Result<(), Fault> {
        let leaf = self.leaf;
        let known = leaf.shape.iter().flatten().try_fold(1u64, |all, side| all.checked_mul(*side)).unwrap_or(u64::MAX);
        let is_known = leaf.shape.iter().all(Option::is_some);
        let units = self.units(list, known);
        let count = if is_known { units.saturating_mul(known) } else { list.count };
        if list.count == 0 && count > 0 {
            self.note("has no values");
            return Ok(());
        }
        let fits = list.count == count && (count == 0 || list.kind == ListKind::Bytes);
        let reason = (!fits).then(|| self.unfit(list, &format!("{count} texts")));
        let content = self.files.content.clone();
        let reserved = self.files.reserved;
        let (folder, part) = self.files.builder.folders_of(ROOT, leaf.shown().as_bytes(), reserved);
        if let Some(reason) = reason {
            let suffix = if leaf.sequences == 0 && leaf.shape.is_empty() { ".txt" } else { ".jsonl" };
            return self.files.add(folder, part, suffix, File::Bytes(failing(1, &reason)));
        }
        if leaf.in_steps && leaf.shape.is_empty() {
            let are_texts = list.bytes(self.files.part()).all(|text| std::str::from_utf8(text).is_ok());
            if are_texts {
                let texts = Candidate::Texts(leaf.shown().to_owned(), content.clone(), feature);
                self.files.columns.push(texts);
            }
        }
        let is_one = leaf.sequences == 0 || leaf.in_steps;
        let mut all = list.bytes(self.files.part());
        let first = all.next().filter(|first| is_one && leaf.shape.is_empty() && all.all(|text| text == *first));
        match (first, list.spans.first()) {
            (Some(text), Some(span)) => {
                let suffix = if std::str::from_utf8(text).is_ok() { ".txt" } else { ".bin" };
                self.files.add(folder, part, suffix, File::Bytes(content.stored([*span])))
            }
            _ => self.files.texts(folder, part, feature, self.number),
        }
    }

    fn pictures(&mut self, feature: u32, list: &List, is_u8: bool) -> Result<(), Fault> {
        let leaf = self.leaf;
        let units = self.units(list, 1);
        if list.count == 0 && units > 0 {
            self.note("has no values");
            return Ok(());
        }
        let fits = list.count == units && (units == 0 || list.kind == ListKind::Bytes);
        let reason = (!fits).then(|| self.unfit(list, &format!("{units} pictures")));
        if leaf.sequences == 0 {
            let reserved = self.files.reserved;
            let (folder, part) = self.files.builder.folders_of(ROOT, leaf.shown().as_bytes(), reserved);
            return match (reason, list.spans.as_slice()) {
                (Some(reason), _) => self.files.add(folder, part, ".bin", File::Bytes(failing(1, &reason))),
                (None, [span]) if span.length > 0 => {
                    let suffix = suffix(self.files.part().get(span));
                    let view = self.files.content.stored([*span]);
                    self.files.add(folder, part, suffix, File::Bytes(view))
                }
                _ => {
                    self.note("has no bytes");
                    Ok(())
                }
            };
        }
        if units == 0 {
            return Ok(());
        }
        let top = if leaf.in_steps { self.files.builder.folder(ROOT, IMAGES) } else { ROOT };
        let reserved: &[&str] = if leaf.in_steps { &[] } else { self.files.reserved };
        let (folder, part) = self.files.builder.folders_of(top, leaf.shown().as_bytes(), reserved);
        let camera = self.files.folder(folder, part);
        if let Some(reason) = reason {
            let digits = digits(units);
            return (0..units).try_for_each(|at| {
                let file = File::Bytes(failing(1, &reason));
                self.files.add(camera, format!("{at:0digits$}").as_bytes(), ".bin", file)
            });
        }
        self.files.numbered(camera, feature, true)?;
        if leaf.in_steps
            && is_u8
            && let Some(stack) = self.files.stack(feature)?
        {
            self.files.array(folder, part, stack)?;
        }
        Ok(())
    }
}

/// Returns the kind of list that stores numbers of a type.
fn kind_of(dtype: DType) -> ListKind {
    match dtype {
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => ListKind::Floats,
        _ => ListKind::Integers,
    }
}

/// Returns the scalars of the record itself, by their paths.
fn scalars(files: &Files<'_>, features: &Features) -> Map<String, Value> {
    let mut scalars = Map::new();
    for leaf in features.leaves.iter().filter(|leaf| !leaf.in_steps && leaf.sequences == 0 && leaf.shape.is_empty()) {
        let Some(feature) = files.content.find(leaf.path.as_bytes()) else { continue };
        let list = files.content.list(feature);
        let part = files.part();
        let value = match (&leaf.kind, list.kind) {
            _ if list.count != 1 => None,
            (LeafKind::Numbers(dtype, Encoding::None), ListKind::Integers) if kind_of(*dtype) == list.kind => {
                list.integers(part).next().and_then(|number| whole(number, *dtype))
            }
            (LeafKind::Numbers(dtype, Encoding::None), ListKind::Floats) if kind_of(*dtype) == list.kind => {
                list.floats(part).next().map(|number| float(number, *dtype))
            }
            (LeafKind::Text, ListKind::Bytes) => {
                let text = list.bytes(part).next().and_then(|text| std::str::from_utf8(text).ok());
                text.filter(|text| text.len() <= TEXT).map(Value::from)
            }
            _ => None,
        };
        if let Some(value) = value {
            scalars.insert(leaf.path.clone(), value);
        }
    }
    scalars
}

/// Returns an integer of a type; `None` if it does not fit.
fn whole(number: i64, dtype: DType) -> Option<Value> {
    integer(number, dtype)?;
    Some(match dtype {
        DType::Bool => (number != 0).into(),
        DType::U64 => number.cast_unsigned().into(),
        _ => number.into(),
    })
}

/// Returns a float with the fewest digits that read back as the same number of its type. NaN and infinities are null.
fn float(number: f32, dtype: DType) -> Value {
    let same = |text: &str| {
        let back: f32 = text.parse().unwrap_or(f32::NAN);
        match dtype {
            DType::F16 => to_half(back.into()) == to_half(number.into()),
            DType::Bf16 => to_bf16(back) == to_bf16(number),
            _ => back == number,
        }
    };
    let rounded = match dtype {
        DType::F16 => half(to_half(number.into())),
        DType::Bf16 => bf16(to_bf16(number)),
        _ => number,
    };
    if !rounded.is_finite() {
        return Value::Null;
    }
    if dtype == DType::F64 {
        return f64::from(number).into();
    }
    let shortest = (0..9).map(|digits| format!("{rounded:.digits$e}")).find(|text| same(text));
    shortest.and_then(|text| text.parse::<f64>().ok()).unwrap_or_else(|| f64::from(rounded)).into()
}
