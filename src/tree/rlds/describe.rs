//! `container.json` of a data set or a lone file (`docs/formats/rlds.md` 9).

use serde_json::{Map, Value, json};

use super::{RLDS, Rlds, Shape, leaves::IMAGES};
use crate::{
    cache::Buffer,
    format::{
        DType,
        rlds::{Encoding, Leaf, LeafKind},
    },
    tree::{WorkingMemory, describe, names},
    view::Fault,
};

/// The version that a lone file gets.
const LONE: &str = "tfrecord";

impl Rlds {
    /// Returns the keys of `container.json` for the whole container.
    pub(super) fn front(&self) -> Map<String, Value> {
        let mut front = Map::new();
        front.insert("format".into(), RLDS.name.into());
        match &self.shape {
            Shape::Lone { are_examples } => {
                front.insert("version".into(), LONE.into());
                front.insert("layout".into(), if *are_examples { "examples" } else { "other" }.into());
            }
            Shape::Set { info, features, .. } => {
                front.insert("version".into(), info.version.clone().into());
                front.insert("name".into(), info.name.clone().into());
                front.insert("layout".into(), if features.has_steps { "episodes" } else { "records" }.into());
                let split = |split: &crate::format::rlds::Split| json!({"name": split.name, "shards": split.shards(), "records": split.records()});
                front.insert("splits".into(), info.splits.iter().map(split).collect());
                if features.has_steps {
                    front.insert("episodes".into(), self.total().into());
                }
            }
        }
        front
    }

    pub(super) fn describe(&self, memory: &WorkingMemory<'_>) -> Result<Buffer, Fault> {
        let Shape::Set { features, .. } = &self.shape else {
            let mut front = self.front();
            front.insert("checksum".into(), "crc32c".into());
            return describe::document(&front, std::iter::empty::<Value>(), &Map::new(), memory);
        };
        let folder = self.records_folder();
        let items = features.leaves.iter().map(|leaf| {
            json!({
                "name": leaf.path,
                "path": format!("<split>/{folder}/<i>/{}", path(leaf, features.has_steps)),
                "dtype": dtype(leaf),
                "shape": leaf.shape,
                "codec": codec(leaf),
                "checksum": "crc32c",
            })
        });
        describe::document(&self.front(), items, &Map::new(), memory)
    }
}

/// Returns the path of a leaf in a record's folder.
fn path(leaf: &Leaf, has_steps: bool) -> String {
    let is_camera = leaf.in_steps && matches!(leaf.kind, LeafKind::Picture(..)) && leaf.sequences == 1;
    let reserved: &[&str] = if has_steps && !is_camera { &[IMAGES] } else { &[] };
    let mut parts: Vec<&str> = leaf.shown().split('/').collect();
    let last = parts.pop().unwrap_or_default();
    let mut path = if is_camera { format!("{IMAGES}/") } else { String::new() };
    for (at, part) in parts.iter().enumerate() {
        let reserved: Vec<&str> = names::RESERVED.iter().chain(reserved.iter().filter(|_| at == 0)).copied().collect();
        path += &names::folder(part.as_bytes(), &reserved, 1);
        path.push('/');
    }
    let last = last.as_bytes();
    path + &match leaf.kind {
        LeafKind::Numbers(..) if leaf.sequences >= 2 => {
            format!("{}/offsets.npy", names::folder(last, &names::RESERVED, 1))
        }
        LeafKind::Numbers(..) => names::file(last, ".npy", 1),
        LeafKind::Text if leaf.shape.is_empty() && (leaf.in_steps || leaf.sequences == 0) => {
            names::file(last, ".txt", 1)
        }
        LeafKind::Text => names::file(last, ".jsonl", 1),
        LeafKind::Picture(..) if leaf.sequences == 0 => names::file(last, suffix(leaf), 1),
        LeafKind::Picture(..) | LeafKind::Other(_) => names::folder(last, &names::RESERVED, 1),
    }
}

/// Returns the suffix that a picture should have.
fn suffix(leaf: &Leaf) -> &'static str {
    match &leaf.kind {
        LeafKind::Picture(_, Some(format)) if format == "jpeg" => ".jpg",
        _ => ".png",
    }
}

fn dtype(leaf: &Leaf) -> Value {
    match &leaf.kind {
        LeafKind::Numbers(dtype, _) => dtype.name().into(),
        LeafKind::Text => "text".into(),
        LeafKind::Picture(true, _) => DType::U8.name().into(),
        LeafKind::Picture(false, _) => Value::Null,
        LeafKind::Other(kind) => kind.clone().into(),
    }
}

fn codec(leaf: &Leaf) -> Value {
    match &leaf.kind {
        LeafKind::Numbers(_, Encoding::Zlib) => "zlib".into(),
        LeafKind::Picture(_, format) => format.clone().into(),
        _ => Value::Null,
    }
}
