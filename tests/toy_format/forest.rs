//! A toy format of ten million nodes: what a container needs whose tree is computed, and never in memory.

use std::{
    fs,
    io::{BufWriter, Write},
    ops::{ControlFlow, Range},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::common::walk;
use shardfs::{
    cache::{Buffer, Cache, Verify},
    format::DType,
    source::{Memory, Source, SourceError, Wait},
    tree::{
        Child, Container, DESCRIPTION, Format, ItemInfo, NodeId, NodeKind, Overview, ROOT, describe, no_others,
        no_part,
        overview::{Contents, Item},
    },
    vfs::{FileKind, Options},
    view::{Array, Fault, ReadContext, View},
};

/// `FRST`, the number of groups and that of the arrays of each (u32), then an index: the names of the groups in order, each
/// filled up with NUL to 16 bytes. Array `a` of group `g` holds the two numbers.
static FOREST: Format = Format {
    name: "forest",
    title: "Forest",
    summary: "very many small arrays",
    suffixes: &[".forest"],
    shared_suffixes: &[],
    markers: &[],
    is_default: true,
    recognise: |front| front.by_magic(b"FRST", HEAD),
    probe: |_, _, _| Ok(()),
    open: |reader, _, _| {
        let head = reader.source.read(0..HEAD)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()).into();
        Ok(Arc::new(Forest { groups: number(4), arrays: number(8) }))
    },
    others: no_others,
    check_others: None,
    check_part: no_part,
    fixtures: &[],
};

const HEAD: u64 = 12;
const NAME: u64 = 16;

/// Names of the index that are read at once.
const AT_ONCE: u64 = 256;

/// `container.json`. All other nodes are the number of their group, from 1, and that of the array, from 1, above it.
const DESCRIBED: NodeId = NodeId(1 << 96);

#[derive(Debug)]
struct Forest {
    groups: u64,
    arrays: u64,
}

impl Forest {
    fn place(node: NodeId) -> (Option<u64>, Option<u64>) {
        ((node.0 as u64).checked_sub(1), ((node.0 >> 64) as u64).checked_sub(1))
    }

    fn node(group: u64, array: Option<u64>) -> NodeId {
        NodeId(u128::from(group + 1) | u128::from(array.map_or(0, |array| array + 1)) << 64)
    }

    /// The names of some groups.
    fn names(&self, source: &dyn Source, groups: Range<u64>) -> Result<Vec<String>, SourceError> {
        let bytes = source.read(HEAD + groups.start * NAME..HEAD + groups.end * NAME)?;
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        Ok(bytes.chunks(NAME as usize).map(name).collect())
    }

    /// The first so many arrays in order: their paths.
    fn first(&self, source: &dyn Source, count: u64) -> Result<Vec<(String, ItemInfo)>, SourceError> {
        let groups = self.names(source, 0..count.div_ceil(self.arrays).min(self.groups))?;
        let arrays = |(number, group): (usize, String)| {
            (0..self.arrays).map(move |array| (format!("{group}/{array}.npy"), values(number as u64, array).into()))
        };
        Ok(groups.into_iter().enumerate().flat_map(arrays).take(count as usize).collect())
    }
}

fn values(group: u64, array: u64) -> Array {
    let bytes: Vec<u8> = [group as u32, array as u32].into_iter().flat_map(u32::to_le_bytes).collect();
    Array::new(DType::U32, [2], View::inline(bytes))
}

impl Container for Forest {
    fn lookup(&self, reader: &ReadContext, folder: NodeId, name: &str) -> Result<Option<NodeId>, Fault> {
        if let (Some(group), None) = Self::place(folder) {
            let array = name.strip_suffix(".npy").and_then(|number| number.parse().ok());
            let array = array.filter(|array| *array < self.arrays && format!("{array}.npy") == name);
            return Ok(array.map(|array| Self::node(group, Some(array))));
        }
        if name == DESCRIPTION {
            return Ok(Some(DESCRIBED));
        }
        let (mut from, mut to) = (0, self.groups);
        while from < to {
            let middle = from.midpoint(to);
            match self.names(&*reader.source, middle..middle + 1)?[0].as_str().cmp(name) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(Some(Self::node(middle, None))),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok(None)
    }

    fn list(
        &self,
        reader: &ReadContext,
        folder: NodeId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        if let (Some(group), None) = Self::place(folder) {
            for array in from..self.arrays {
                let (name, node) = (format!("{array}.npy"), Self::node(group, Some(array)));
                if each(Child { next: array + 1, name: &name, node, is_folder: false }).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        for start in (from..self.groups).step_by(AT_ONCE as usize) {
            let names = self.names(&*reader.source, start..(start + AT_ONCE).min(self.groups))?;
            for (group, name) in (start..).zip(names) {
                let node = Self::node(group, None);
                if each(Child { next: group + 1, name: &name, node, is_folder: true }).is_break() {
                    return Ok(());
                }
            }
        }
        if from <= self.groups {
            let _ = each(Child { next: self.groups + 1, name: DESCRIPTION, node: DESCRIBED, is_folder: false });
        }
        Ok(())
    }

    fn kind(&self, _: &ReadContext, node: NodeId) -> Result<Option<NodeKind>, Fault> {
        Ok(Some(match Self::place(node) {
            _ if node == DESCRIBED => NodeKind::File,
            (_, Some(_)) => NodeKind::File,
            (Some(_), None) => NodeKind::Folder { subfolders: Some(0) },
            (None, None) => NodeKind::Folder { subfolders: Some(self.groups as u32) },
        }))
    }

    fn parent(&self, _: &ReadContext, node: NodeId) -> Result<NodeId, Fault> {
        Ok(match Self::place(node) {
            (Some(group), Some(_)) => Self::node(group, None),
            _ => ROOT,
        })
    }

    fn path(&self, reader: &ReadContext, node: NodeId) -> Result<String, Fault> {
        let (Some(group), array) = Self::place(node) else {
            return Ok(if node == DESCRIBED { DESCRIPTION.into() } else { String::new() });
        };
        let name = self.names(&*reader.source, group..group + 1)?.remove(0);
        Ok(array.map_or_else(|| name.clone(), |array| format!("{name}/{array}.npy")))
    }

    fn array(&self, _: &ReadContext, file: NodeId) -> Result<Option<Array>, Fault> {
        Ok(match Self::place(file) {
            (Some(group), Some(array)) => Some(values(group, array)),
            _ => None,
        })
    }

    fn view(&self, reader: &ReadContext, file: NodeId) -> Result<View, Fault> {
        match self.array(reader, file)? {
            Some(array) => Ok(array.npy()),
            None => Ok(View::shared(self.description(reader)?)),
        }
    }

    fn description(&self, reader: &ReadContext) -> Result<Arc<Buffer>, Fault> {
        describe::kept(reader, 0, |memory| {
            memory.reserve(256 * shardfs::limits::DESCRIBED as u64)?;
            let items = self.first(&*reader.source, shardfs::limits::DESCRIBED as u64)?;
            let front = serde_json::Map::from_iter([("format".to_owned(), FOREST.name.into())]);
            let items = items
                .iter()
                .map(|(path, info)| describe::Item::of(path.as_bytes(), path.clone(), None, info.clone(), ()));
            describe::bounded(front, self.groups * self.arrays, items, &serde_json::Map::new(), memory)
        })
    }

    fn overview(&self, reader: &ReadContext) -> Result<Overview, Fault> {
        let items = self.first(&*reader.source, 100)?.into_iter();
        let items = items.map(|(path, info)| Item { path, info, ..Item::default() }).collect();
        let contents = Contents::Items { front: serde_json::Map::new(), items };
        Ok(Overview { format: FOREST.name, contents })
    }

    fn block_name(&self, _: u32) -> String {
        String::new()
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>()
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

const GROUPS: u64 = 1_000_000;
const ARRAYS: u64 = 10;

fn name(group: u64) -> String {
    format!("tree{group:07}")
}

fn write(path: &Path) {
    let mut file = BufWriter::new(fs::File::create(path).unwrap());
    file.write_all(b"FRST").unwrap();
    file.write_all(&[GROUPS as u32, ARRAYS as u32].map(u32::to_le_bytes).concat()).unwrap();
    for group in 0..GROUPS {
        let mut record = [0; NAME as usize];
        record[..11].copy_from_slice(name(group).as_bytes());
        file.write_all(&record).unwrap();
    }
    file.flush().unwrap();
}

/// Counts what is read.
struct Counted(Vec<u8>, AtomicU64);

impl Counted {
    fn taken(&self) -> u64 {
        self.1.swap(0, Relaxed)
    }
}

impl Source for Counted {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        self.1.fetch_add(buf.len() as u64, Relaxed);
        self.0.read_at(offset, buf, wait)
    }
}

#[test]
fn only_what_is_asked_for_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.forest");
    write(&path);
    let source = Arc::new(Counted(fs::read(&path).unwrap(), AtomicU64::new(0)));
    let reader = ReadContext::new(source.clone(), Cache::new(64 << 20, Verify::Lazy), 0);
    let tree = FOREST.open(&reader, None).unwrap();
    assert_eq!(source.taken(), HEAD, "it opens in the time of its root");
    let group = tree.lookup(&reader, ROOT, &name(765_432)).unwrap().unwrap();
    assert!(tree.lookup(&reader, ROOT, "tree9").unwrap().is_none());
    assert!(source.taken() <= 2 * 20 * NAME, "a look-up searches the index");
    let array = tree.lookup(&reader, group, "7.npy").unwrap().unwrap();
    assert_eq!(tree.path(&reader, array).unwrap(), "tree0765432/7.npy");
    let bytes = tree.view(&reader, array).unwrap().copy_at(&reader, 0, 1 << 10).unwrap();
    assert_eq!(bytes[128..], [765_432u32, 7].map(u32::to_le_bytes).concat());
    source.taken();
    // A listing goes on where it stopped, and reads no further than it is wanted.
    let mut seen = Vec::new();
    let mut list = |from: u64, most: usize| {
        seen.clear();
        tree.list(&reader, ROOT, from, &mut |child| {
            seen.push((child.next, child.name.to_owned()));
            if seen.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        seen.clone()
    };
    assert_eq!(list(500_000, 2), [(500_001, name(500_000)), (500_002, name(500_001))]);
    assert_eq!(source.taken(), AT_ONCE * NAME);
    assert_eq!(list(GROUPS - 1, 9), [(GROUPS, name(GROUPS - 1)), (GROUPS + 1, DESCRIPTION.into())]);
    assert_eq!(list(GROUPS + 1, 9), []);
    let mut count = 0;
    let mut each = |child: Child<'_>| {
        assert!(child.name == name(count) || count == GROUPS);
        count += 1;
        ControlFlow::Continue(())
    };
    tree.list(&reader, ROOT, 0, &mut each).unwrap();
    assert_eq!(count, GROUPS + 1);
    source.taken();
    let described = tree.description(&reader).unwrap();
    assert!(source.taken() <= 10_000 * NAME);
    let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
    assert_eq!(described["items"].as_array().unwrap().len(), 10_000);
    assert_eq!(described["items_left_out"], GROUPS * ARRAYS - 10_000);
    assert_eq!(described["items"][9_999]["path"], "tree0000999/9.npy");
    assert!(tree.memory_usage() <= 1 << 20);
}

static WITH_FOREST: [&Format; 1] = [&FOREST];

#[test]
fn its_ten_million_nodes_are_there_through_a_filesystem() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.forest"));
    let vfs = walk::open(folder.path(), Options { formats: &WITH_FOREST, ..Options::default() });
    let root = walk::resolve(&vfs, "a.forest").unwrap();
    let first = walk::list(&vfs, root.ino, 2, 1000, true);
    assert_eq!(
        first.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(),
        (0..1000).map(name).collect::<Vec<_>>()
    );
    assert!(first.iter().all(|entry| entry.kind == FileKind::Folder && entry.attr.is_some()));
    let far = walk::list(&vfs, root.ino, 2 + GROUPS - 1, 10, false);
    assert_eq!(far.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), [&name(GROUPS - 1), DESCRIPTION]);
    for group in (0..GROUPS).step_by(99_991) {
        let array = walk::resolve(&vfs, &format!("a.forest/{}/{}.npy", name(group), group % ARRAYS)).unwrap();
        let bytes = walk::read_all(&vfs, &array).unwrap();
        assert_eq!(bytes[128..], [group as u32, (group % ARRAYS) as u32].map(u32::to_le_bytes).concat());
    }
    assert!(walk::resolve(&vfs, "a.forest/tree1000000").is_none());
    let budget = vfs.cache().usage().1;
    assert!(budget < 4 << 20, "{budget} bytes of the budget are in use");
}

#[cfg(feature = "fuse")]
#[test]
fn and_through_a_mount() {
    use shardfs::fuse::{Mount, MountConfig};

    let (folder, mountpoint) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&folder.path().join("a.forest"));
    let vfs = walk::open(folder.path(), Options { formats: &WITH_FOREST, ..Options::default() });
    let mount = Mount::new(Arc::new(vfs), mountpoint.path(), &MountConfig { allow_other: false, threads: 2 }).unwrap();
    let serving = std::thread::spawn(move || mount.serve());
    let root = mountpoint.path().join("a.forest");
    let shown = std::panic::catch_unwind(|| {
        // The first names come long before the last ones are known.
        let first: Vec<_> = fs::read_dir(&root).unwrap().take(500).map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(
            first.iter().map(|name| name.to_str().unwrap()).collect::<Vec<_>>(),
            (0..500).map(name).collect::<Vec<_>>()
        );
        for group in [0, 1, 499_999, GROUPS - 1] {
            let bytes = fs::read(root.join(name(group)).join("3.npy")).unwrap();
            assert_eq!(bytes[128..], [group as u32, 3].map(u32::to_le_bytes).concat());
            assert_eq!(fs::read_dir(root.join(name(group))).unwrap().count() as u64, ARRAYS);
        }
        assert!(!root.join(name(GROUPS)).exists());
        let described: serde_json::Value = serde_json::from_slice(&fs::read(root.join(DESCRIPTION)).unwrap()).unwrap();
        assert_eq!(described["items_left_out"], GROUPS * ARRAYS - 10_000);
    });
    if rustix::mount::unmount(mountpoint.path(), rustix::mount::UnmountFlags::DETACH).is_err() {
        let _ = std::process::Command::new("fusermount3").arg("-uz").arg(mountpoint.path()).status();
    }
    shown.unwrap();
    serving.join().unwrap().unwrap();
}
