//! A toy format with links and attributes: what the mount shows as links, the library and the commands follow.

use std::{fs, ops::ControlFlow, path::Path, sync::Arc};

use super::common::walk;
use shardfs::{
    cache::Buffer,
    format::DType,
    tree::{
        Child, Container, Format, NodeId, NodeKind, Overview, ROOT, WorkingMemory, links, no_others, no_part,
        overview::Contents,
    },
    vfs::{FileKind, Options, Vfs},
    view::{
        Array, Fault, ReadContext, View,
        attributes::{Attributes, Value},
    },
};

static LINKED: Format = Format {
    name: "linked",
    title: "Linked",
    summary: "an array, and links to it",
    suffixes: &[".linked"],
    shared_suffixes: &[],
    is_default: true,
    recognise: |front| front.by_magic(b"LNKS", 4),
    probe: |_, _, _| Ok(()),
    open: |_, _, _| Ok(Arc::new(Linked)),
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &[],
};

static FORMATS: [&Format; 1] = [&LINKED];

/// The nodes after the root: parent, name, and for a link what it leads to (paths below the root, or a stored text).
const NODES: [(u128, &str, Option<&str>); 11] = [
    (0, "", None),
    (0, "data", None),
    (1, "x.npy", None),
    (1, "x.attrs.json", None),
    (0, "l.npy", Some("data/x.npy")),
    (0, "l", Some("data")),
    (1, "up", Some("")),
    (0, "dangling", Some("nothing/there")),
    (0, "ring", Some("ring")),
    (0, "out", Some("\0../../../../etc/passwd")),
    (0, "other", Some("\0../two.linked/data/x.npy")),
];

struct Linked;

impl Linked {
    fn array() -> Array {
        Array::new(DType::I16, [2], View::inline([1, 0, 2, 0]))
    }

    fn node(node: NodeId) -> Option<(u128, &'static str, Option<&'static str>)> {
        NODES.get(node.0 as usize).copied()
    }
}

impl Container for Linked {
    fn lookup(&self, _: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        let found = NODES.iter().skip(1).position(|(parent, own, _)| (*parent, *own) == (folder.0, name));
        Ok(found.map(|at| NodeId(at as u128 + 1)))
    }

    fn list(
        &self,
        _: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        for (at, (parent, name, _)) in NODES.iter().enumerate().skip(1.max(from as usize)) {
            if *parent != folder.0 {
                continue;
            }
            let child = Child { next: at as u64 + 1, name, node: NodeId(at as u128), is_folder: at == 1 };
            if each(child).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn kind(&self, node: NodeId) -> Option<NodeKind> {
        let (_, _, link) = Self::node(node)?;
        Some(match (node.0, link) {
            (_, Some(_)) => NodeKind::Link,
            (0 | 1, _) => NodeKind::Folder { subfolders: Some(0) },
            _ => NodeKind::File,
        })
    }

    fn parent(&self, node: NodeId) -> NodeId {
        Self::node(node).map_or(ROOT, |(parent, ..)| NodeId(parent))
    }

    fn path(&self, node: NodeId) -> String {
        match Self::node(node) {
            Some((1, name, _)) => format!("data/{name}"),
            Some((_, name, _)) => name.into(),
            None => String::new(),
        }
    }

    fn link_target(&self, _: &ReadContext, link: NodeId) -> Result<Option<String>, Fault> {
        let Some((parent, _, Some(target))) = Self::node(link) else { return Ok(None) };
        let text = target.strip_prefix('\0').map(str::to_owned);
        Ok(Some(text.unwrap_or_else(|| links::relative(if parent == 1 { "data" } else { "" }, target))))
    }

    fn attributes(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeId>, Fault> {
        Ok((node == NodeId(2)).then_some(NodeId(3)))
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        if file == NodeId(2) {
            return Ok(Self::array().npy());
        }
        let unit = (b"unit".as_slice().into(), Value::Text(b"rad".as_slice().into()));
        let limits = (b"limits".as_slice().into(), Value::Array(Self::array()));
        let attributes: Attributes = [unit, limits].into_iter().collect();
        let document = attributes.document(reader, &WorkingMemory::held(&reader.cache), &|_| String::new())?;
        Ok(View::shared(Arc::new(document)))
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        Ok((file == NodeId(2)).then(Self::array))
    }

    fn description(&self, _: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        Ok(Arc::default())
    }

    fn overview(&self) -> Result<Overview, Fault> {
        let contents = Contents::Items { front: serde_json::Map::new(), items: Vec::new() };
        Ok(Overview { format: LINKED.name, contents })
    }

    fn block_name(&self, _: u32) -> String {
        String::new()
    }

    fn memory_usage(&self) -> usize {
        0
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

fn source() -> (tempfile::TempDir, Vfs) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    for name in ["a/one.linked", "a/two.linked"] {
        fs::write(folder.path().join(name), b"LNKS").unwrap();
    }
    fs::write(folder.path().join("plain"), b"text").unwrap();
    let vfs = walk::open(folder.path(), Options { formats: &FORMATS, ..Options::default() });
    (folder, vfs)
}

#[test]
fn links_of_a_container_are_links() {
    let (_folder, vfs) = source();
    let top = walk::resolve(&vfs, "a/one.linked").unwrap();
    let listed = walk::list(&vfs, top.ino, 2, 100, true);
    for (name, target) in [
        ("l.npy", "data/x.npy"),
        ("l", "data"),
        ("dangling", "nothing/there"),
        ("ring", "ring"),
        ("other", "../two.linked/data/x.npy"),
    ] {
        let entry = listed.iter().find(|entry| entry.name == name).unwrap();
        let attr = entry.attr.unwrap();
        assert_eq!(
            (entry.kind, attr.kind, attr.mode, attr.nlink),
            (FileKind::Link, FileKind::Link, 0o777, 1),
            "{name}"
        );
        assert_eq!(attr.size, target.len() as u64);
        assert_eq!(vfs.read_link(entry.ino).unwrap(), target);
    }
    let up = walk::resolve(&vfs, "a/one.linked/data/up").unwrap();
    assert_eq!(vfs.read_link(up.ino).unwrap(), "..");
    let files = listed.iter().filter(|entry| entry.kind == FileKind::Folder).map(|entry| &*entry.name);
    assert_eq!(files.collect::<Vec<_>>(), ["data"]);
    // One that leads out of the container's folder is damage, and shows nothing of what is there.
    let error = vfs.lookup(top.ino, "out".as_ref()).unwrap_err();
    assert_eq!(error.errno(), libc::EIO);
    // Everything else is no link.
    let array = walk::resolve(&vfs, "a/one.linked/data/x.npy").unwrap();
    assert_eq!(vfs.read_link(array.ino).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn attributes_are_those_of_their_file() {
    let (_folder, vfs) = source();
    let expected = "{\n  \"unit\": \"rad\",\n  \"limits\": [\n    1,\n    2\n  ]\n}\n";
    let array = walk::resolve(&vfs, "a/one.linked/data/x.npy").unwrap();
    assert_eq!(vfs.attributes(array.ino).unwrap().unwrap(), expected.as_bytes());
    let file = walk::resolve(&vfs, "a/one.linked/data/x.attrs.json").unwrap();
    assert_eq!(walk::read_all(&vfs, &file).unwrap(), expected.as_bytes());
    for path in ["a/one.linked", "a/one.linked/data", "plain", "a"] {
        let other = walk::resolve(&vfs, path).unwrap();
        assert_eq!(vfs.attributes(other.ino).unwrap(), None, "{path}");
    }
}

#[test]
fn links_of_a_container_are_followed_where_no_kernel_does_it() {
    let (_folder, vfs) = source();
    let follow = |path: &str| {
        let link = walk::resolve(&vfs, path).unwrap();
        let found = vfs.follow(Path::new(path), &link).unwrap();
        found.map(|(attr, path)| (attr.kind, path.to_str().unwrap().to_owned()))
    };
    let array = (FileKind::File, "a/one.linked/data/x.npy".to_owned());
    assert_eq!(follow("a/one.linked/l.npy"), Some(array));
    assert_eq!(follow("a/one.linked/l"), Some((FileKind::Folder, "a/one.linked/data".into())));
    assert_eq!(follow("a/one.linked/data/up"), Some((FileKind::Folder, "a/one.linked".into())));
    assert_eq!(follow("a/one.linked/other"), Some((FileKind::File, "a/two.linked/data/x.npy".into())));
    for path in ["a/one.linked/dangling", "a/one.linked/ring", "a/one.linked/data/x.npy", "plain"] {
        assert_eq!(follow(path), None, "{path}");
    }
}
