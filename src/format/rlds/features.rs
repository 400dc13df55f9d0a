//! `features.json`: what the values of a data set's records mean (`docs/formats/rlds.md` 6).

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::format::{Class, DType, FormatError};

/// Most leaves, and most levels of nesting.
const LEAVES: usize = 4096;
const DEPTH: usize = 16;
/// Most dimensions of a tensor.
const DIMENSIONS: usize = crate::limits::DIMENSIONS;
/// The name of the data set of steps.
const STEPS: &str = "steps";

/// All features of a data set.
#[derive(Debug)]
pub struct Features {
    /// The leaves, in the order of their paths' bytes.
    pub leaves: Vec<Leaf>,
    /// Whether a record is an episode of steps.
    pub has_steps: bool,
}

/// A feature that has values.
#[derive(Debug)]
pub struct Leaf {
    /// Its path, joined with `/`, with that of the steps.
    pub path: String,
    /// Whether each step has it.
    pub in_steps: bool,
    /// The number of sequences that it is in. The steps count as one.
    pub sequences: u32,
    /// What its values are.
    pub kind: LeafKind,
    /// The shape of one value; `None` for an unknown dimension.
    pub shape: Vec<Option<u64>>,
}

impl Leaf {
    /// Returns its path below the record or, for a leaf of steps, its path without `steps/`.
    pub fn shown(&self) -> &str {
        match self.in_steps {
            true => self.path.get(STEPS.len() + 1..).unwrap_or_default(),
            false => &self.path,
        }
    }

    /// Returns the number of elements of one value, if all dimensions are known.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |all, dimension| all.checked_mul((*dimension)?))
    }
}

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Its elements are in the list.
    None,
    /// Each tensor is a byte string.
    Bytes,
    /// Each tensor is a zlib stream.
    Zlib,
}

/// What the values of a leaf are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafKind {
    /// Numbers of a type.
    Numbers(DType, Encoding),
    /// Texts.
    Text,
    /// Encoded pictures: whether they have 8 bits a channel, and their format as stated.
    Picture(bool, Option<String>),
    /// Something that is shown as it is stored; the name of its kind.
    Other(String),
}

/// Interprets `features.json`.
///
/// # Errors
/// `Refused` with the reason.
pub fn parse_features(value: &Value) -> Result<Features, FormatError> {
    let old = older(value)?;
    let Some(top) = old.as_deref().or(value.get("featuresDict")).and_then(Value::as_object) else {
        return Err(refused("features.json is no dictionary of features at its top".into()));
    };
    let mut features = Features { leaves: Vec::new(), has_steps: false };
    dictionary(top, "", Within { in_steps: false, sequences: 0, depth: 0 }, &mut features)?;
    features.leaves.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(features)
}

fn refused(reason: String) -> FormatError {
    FormatError::refused(Class::Features, reason)
}

/// Returns the dictionary of the older form, in which the content may be JSON in a text.
fn older(value: &Value) -> Result<Option<Cow<'_, Value>>, FormatError> {
    let (Some(class), Some(content)) = (value.get("proto_cls").and_then(Value::as_str), value.get("content")) else {
        return Ok(None);
    };
    if !class.ends_with("FeaturesDict") {
        return Err(refused(format!("features.json is a {class} at its top")));
    }
    match content {
        Value::String(text) => {
            let parsed = serde_json::from_str(text);
            parsed
                .map(|parsed| Some(Cow::Owned(parsed)))
                .map_err(|error| refused(format!("the content of features.json is no JSON: {error}")))
        }
        content => Ok(Some(Cow::Borrowed(content))),
    }
}

/// Where a feature is.
#[derive(Clone, Copy)]
struct Within {
    in_steps: bool,
    sequences: u32,
    depth: usize,
}

/// Adds the features of a dictionary.
fn dictionary(
    dictionary: &Map<String, Value>,
    path: &str,
    within: Within,
    features: &mut Features,
) -> Result<(), FormatError> {
    let empty = Map::new();
    // A dictionary without features does not have this key.
    let named = dictionary.get("features").map_or(Some(&empty), Value::as_object);
    let Some(named) = named else { return Err(refused(format!("the features of {path:?} are no object"))) };
    for (name, node) in named {
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        feature(node, path, within, features)?;
    }
    Ok(())
}

/// Adds a feature, or those in it.
fn feature(node: &Value, path: String, within: Within, features: &mut Features) -> Result<(), FormatError> {
    if within.depth > DEPTH {
        return Err(refused(format!("features are nested more than {DEPTH} deep")));
    }
    let Some(node) = node.as_object() else { return Err(refused(format!("the feature {path:?} is no object"))) };
    let deeper = Within { depth: within.depth + 1, ..within };
    if let Some(inner) = node.get("featuresDict").and_then(Value::as_object) {
        return dictionary(inner, &path, deeper, features);
    }
    if let Some(sequence) = node.get("sequence").and_then(Value::as_object) {
        let Some(inner) = sequence.get("feature") else {
            return Err(refused(format!("the sequence {path:?} has no feature")));
        };
        let is_data_set =
            node.get("pythonClassName").and_then(Value::as_str).is_some_and(|name| name.ends_with(".Dataset"));
        let is_steps = path == STEPS && within.sequences == 0 && (is_data_set || inner.get("featuresDict").is_some());
        features.has_steps |= is_steps;
        let within = Within { in_steps: within.in_steps || is_steps, sequences: within.sequences + 1, ..deeper };
        // If the steps are not a dictionary, their leaf has no name below `steps`.
        let within = Within {
            in_steps: within.in_steps && path.len() + usize::from(inner.get("featuresDict").is_some()) > STEPS.len(),
            ..within
        };
        return feature(inner, path, within, features);
    }
    if features.leaves.len() == LEAVES {
        return Err(refused(format!("more than {LEAVES} features")));
    }
    let (kind, shape) = leaf(node);
    features.leaves.push(Leaf { path, in_steps: within.in_steps, sequences: within.sequences, kind, shape });
    Ok(())
}

/// Returns what a leaf is, and the shape of one value.
fn leaf(node: &Map<String, Value>) -> (LeafKind, Vec<Option<u64>>) {
    let other = |name: &str| (LeafKind::Other(name.to_owned()), Vec::new());
    if node.contains_key("text") {
        return (LeafKind::Text, Vec::new());
    }
    if node.contains_key("classLabel") {
        return (LeafKind::Numbers(DType::I64, Encoding::None), Vec::new());
    }
    if let Some(tensor) = node.get("tensor") {
        let Some(shape) = shape(tensor) else { return other("tensor") };
        let name = tensor.get("dtype").and_then(Value::as_str).unwrap_or_default();
        let encoding = match tensor.get("encoding").and_then(Value::as_str) {
            None | Some("none") => Encoding::None,
            Some("bytes") => Encoding::Bytes,
            Some("zlib") => Encoding::Zlib,
            Some(_) => return other("tensor"),
        };
        return match (name, DType::of_name(name)) {
            ("string" | "object", _) if encoding == Encoding::None => (LeafKind::Text, shape),
            (_, Some(dtype)) => (LeafKind::Numbers(dtype, encoding), shape),
            _ => other("tensor"),
        };
    }
    if let Some(found) = node.get("boundingBox") {
        return match (shape(found), found.get("dtype").and_then(Value::as_str)) {
            (Some(shape), Some(name)) if !shape.is_empty() => match DType::of_name(name) {
                Some(dtype) => (LeafKind::Numbers(dtype, Encoding::None), shape),
                None => other("boundingBox"),
            },
            _ => (LeafKind::Numbers(DType::F32, Encoding::None), vec![Some(4)]),
        };
    }
    if let Some(image) = node.get("image") {
        let format = image.get("encodingFormat").and_then(Value::as_str).filter(|format| !format.is_empty());
        let is_u8 = image.get("dtype").and_then(Value::as_str).is_none_or(|dtype| matches!(dtype, "" | "uint8"));
        return (LeafKind::Picture(is_u8, format.map(str::to_owned)), shape(image).unwrap_or_default());
    }
    let known = ["audio", "video", "translation", "jsonFeature"].into_iter().find(|name| node.contains_key(*name));
    other(known.unwrap_or("unknown"))
}

/// Returns a shape; `None` if it is not valid or has too many dimensions.
fn shape(tensor: &Value) -> Option<Vec<Option<u64>>> {
    let Some(dimensions) = tensor.get("shape").and_then(|shape| shape.get("dimensions")) else {
        return Some(Vec::new());
    };
    let dimensions = dimensions.as_array().filter(|dimensions| dimensions.len() <= DIMENSIONS)?;
    let dimension = |value: &Value| {
        let number = match value {
            Value::String(text) => text.parse::<i64>().ok()?,
            number => number.as_i64()?,
        };
        Some(u64::try_from(number).ok())
    };
    dimensions.iter().map(dimension).collect()
}
