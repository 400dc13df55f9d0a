//! A toy format whose containers are folders: a marker that lists names, and a file for each of them.

use std::{
    collections::HashSet,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use shardfs::{
    cache::{BlockError, Buffer},
    format::{Class, DType, FormatError, Recognition},
    source::Source,
    tree::{Child, Container, Format, NodeId, NodeKind, Overview, ROOT, Siblings, overview::Contents},
    view::{Array, Fault, ReadContext, Rendered, View},
};

pub(crate) static SHELF: Format = Format {
    name: "shelf",
    title: "Shelf",
    summary: "a folder of byte arrays",
    suffixes: &[".shelf"],
    markers: &["meta/list.txt", "list.txt"],
    recognise: |_| Recognition::Meant,
    probe: |source, _, _| match source.read(0..source.len().min(5))?.as_slice() {
        b"shelf" => Ok(()),
        _ => Err(FormatError::refused(Class::BadFormat, "no list")),
    },
    open: |reader, siblings, _| {
        let refused = |reason: &str| FormatError::refused(Class::BadFormat, reason);
        let list = String::from_utf8(reader.source.read(0..reader.source.len())?);
        let list = list.map_err(|_| refused("a list that is no text"))?;
        let names: Vec<String> = list.lines().skip(1).map(Into::into).collect();
        let is_name = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !names.iter().all(is_name) || names.iter().collect::<HashSet<_>>().len() < names.len() {
            return Err(refused("a name that is none, or is there twice"));
        }
        Ok(Arc::new(Shelf { names, files: siblings.ok_or_else(|| refused("a list without a folder"))? }))
    },
    ..Format::DEFAULT
};

struct Shelf {
    names: Vec<String>,
    files: Arc<dyn Siblings>,
}

fn fault(error: BlockError) -> Fault {
    Fault { block: None, offset: 0, error: Arc::new(error) }
}

impl Shelf {
    fn array(&self, node: NodeId) -> Result<Array, Fault> {
        let name = format!("{}.bin", self.names[node.0 as usize - 1]);
        let file = self.files.file(&name).map_err(fault)?;
        let file = file.ok_or_else(|| fault(BlockError::Refused(format!("{name} is not there"))))?;
        Ok(Array::new(DType::U8, [file.len()], View::default().with_rendered(file.len(), Book(file))))
    }
}

/// The bytes of another file.
struct Book(Arc<dyn Source>);

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Rendered for Book {
    fn fill(&self, _: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        self.0.fill(part.start, out).map_err(|error| fault(error.into()))
    }
}

impl Container for Shelf {
    fn lookup(&self, _: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let found = self.names.iter().position(|own| name.strip_suffix(".npy") == Some(own));
        Ok(found.filter(|_| folder == ROOT).map(|at| NodeId(at as u128 + 1)))
    }

    fn list(
        &self,
        _: &ReadContext,
        _: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        for at in from..self.names.len() as u64 {
            let name = format!("{}.npy", self.names[at as usize]);
            let node = NodeId(u128::from(at) + 1);
            if each(Child { next: at + 1, name: &name, node, is_folder: false }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Some(if node == ROOT { NodeKind::Folder { subfolders: Some(0) } } else { NodeKind::File }))
    }

    fn parent(&self, _: &ReadContext, _: NodeId) -> Result<NodeId, Fault> {
        Ok(ROOT)
    }

    fn path(&self, _: &ReadContext, node: NodeId) -> Result<String, Fault> {
        Ok(if node == ROOT { String::new() } else { format!("{}.npy", self.names[node.0 as usize - 1]) })
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        if file == ROOT { Ok(None) } else { Self::array(self, file).map(Some) }
    }

    fn view(&self, _: &ReadContext, node: NodeId) -> Result<View, Fault> {
        Ok(Self::array(self, node)?.npy())
    }

    fn description(&self, _: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        Ok(Arc::default())
    }

    fn overview(&self, _: &ReadContext) -> Result<Overview, Fault> {
        let contents = Contents::Items { front: serde_json::Map::new(), items: Vec::new() };
        Ok(Overview { format: SHELF.name, contents })
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }
}
