//! `container.json` of a data set or a lone file (`docs/formats/rlds.md` 9).

use serde_json::{Map, Value, json};

use super::{RLDS, Rlds, Shape, leaves::IMAGES, record::part_folder};
use crate::{
    cache::Buffer,
    format::{
        DType,
        rlds::{Encoding, Features, Leaf, LeafKind},
    },
    tree::{
        WorkingMemory, describe,
        paths::{Builder, NodeIndex, ROOT},
    },
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
        let items = features.leaves.iter().zip(paths(features)).map(|(leaf, path)| {
            json!({
                "name": leaf.path,
                "path": format!("<split>/{folder}/<i>/{path}"),
                "dtype": dtype(leaf),
                "shape": leaf.shape,
                "codec": codec(leaf),
                "checksum": "crc32c",
            })
        });
        describe::document(&self.front(), items, &Map::new(), memory)
    }
}

/// Returns the paths of leaves in a record's folder.
fn paths(features: &Features) -> Vec<String> {
    let mut builder = Builder::default();
    let mut nodes = vec![ROOT; features.leaves.len()];
    // In the order in which a record's files are added.
    for in_steps in [true, false] {
        for (node, leaf) in nodes.iter_mut().zip(&features.leaves).filter(|(_, leaf)| leaf.in_steps == in_steps) {
            *node = add(&mut builder, leaf, features.has_steps);
        }
    }
    let paths = builder.finish();
    nodes.into_iter().map(|node| paths.path(node)).collect()
}

/// Adds the file or folder that a leaf should have.
fn add(builder: &mut Builder<()>, leaf: &Leaf, has_steps: bool) -> NodeIndex {
    let is_camera = leaf.in_steps && matches!(leaf.kind, LeafKind::Picture(..)) && leaf.sequences == 1;
    let reserved: &[&str] = if has_steps && !is_camera { &[IMAGES] } else { &[] };
    let top = if is_camera { builder.folder(ROOT, IMAGES) } else { ROOT };
    let (folder, part) = builder.folders_of(top, leaf.shown().as_bytes(), reserved);
    let suffix = match leaf.kind {
        LeafKind::Numbers(..) if leaf.sequences >= 2 => {
            let folder = part_folder(builder, folder, part, reserved);
            return builder.file(folder, b"offsets", ".npy", ());
        }
        LeafKind::Numbers(..) => ".npy",
        LeafKind::Text if leaf.shape.is_empty() && (leaf.in_steps || leaf.sequences == 0) => ".txt",
        LeafKind::Text => ".jsonl",
        LeafKind::Picture(..) if leaf.sequences == 0 => suffix(leaf),
        LeafKind::Picture(..) | LeafKind::Other(_) => return part_folder(builder, folder, part, reserved),
    };
    builder.file(folder, part, suffix, ())
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
