//! Toy formats of one array: one with a magic, and one that the name alone tells.

use std::{ops::ControlFlow, sync::Arc};

use shardfs::{
    cache::Buffer,
    format::{Class, DType, FormatError, Recognition},
    tree::{
        Child, Container, Format, NodeId, NodeKind, Overview, ROOT,
        overview::{Contents, Item},
    },
    view::{Array, Fault, ReadContext, View},
};

/// The magic, a version byte of 1, then the elements of one array of bytes.
pub(crate) static TOY: Format = Format {
    name: "toy",
    title: "Toy",
    summary: "one array of bytes",
    suffixes: &[".toy"],
    recognise: |front| front.by_magic(b"TOYS", 5),
    probe: |source, _, _| match source.read(4..5)?[..] {
        [1] => Ok(()),
        _ => Err(FormatError::refused(Class::VersionTooNew, "only version 1 is known")),
    },
    open: |reader, _, _| Ok(Arc::new(Toy { elements: 5..reader.source.len().max(5) })),
    ..Format::DEFAULT
};

const DATA: NodeId = NodeId(1);

/// A container with one array.
struct Toy {
    elements: std::ops::Range<u64>,
}

impl Toy {
    fn data(&self) -> Array {
        Array::new(DType::U8, [self.elements.end - self.elements.start], View::stored(self.elements.clone()))
    }
}

impl Container for Toy {
    fn lookup(&self, _: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        Ok((folder == ROOT && name == "data.npy").then_some(DATA))
    }

    fn list(
        &self,
        _: &ReadContext,
        _: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        if from == 0 {
            let _ = each(Child { next: 1, name: "data.npy", node: DATA, is_folder: false });
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Some(if node == DATA { NodeKind::File } else { NodeKind::Folder { subfolders: Some(0) } }))
    }

    fn parent(&self, _: &ReadContext, _: NodeId) -> Result<NodeId, Fault> {
        Ok(ROOT)
    }

    fn path(&self, _: &ReadContext, node: NodeId) -> Result<String, Fault> {
        Ok(if node == DATA { "data.npy".into() } else { String::new() })
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        Ok((file == DATA).then(|| self.data()))
    }

    fn view(&self, _: &ReadContext, _: NodeId) -> Result<View, Fault> {
        Ok(self.data().npy())
    }

    fn description(&self, _: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        Ok(Arc::default())
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let item = Item { path: "data.npy".into(), info: self.data().into(), ..Item::default() };
        Ok(Overview {
            format: TOY.name,
            contents: Contents::Items { front: serde_json::Map::new(), items: vec![item] },
        })
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}

/// A format without a magic: the name says it.
pub(crate) static NAMED: Format = Format {
    name: "named",
    title: "Named",
    summary: "bytes whose name says what they are",
    suffixes: &[".named"],
    recognise: |front| if front.has_suffix(&[".named"]) { Recognition::Meant } else { Recognition::No },
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| Ok(Arc::new(Toy { elements: 5..reader.source.len().max(5) })),
    ..Format::DEFAULT
};
