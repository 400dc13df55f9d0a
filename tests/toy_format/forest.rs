//! A toy format of ten million nodes: what a container needs whose tree is computed, and never in memory.

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    common::walk,
    toys::forest::{AT_ONCE, FOREST, HEAD, NAME, file, name},
};
use shardfs::{
    cache::{Cache, Verify},
    source::{Source, SourceError, Wait},
    tree::{Child, DESCRIPTION, Format, ROOT},
    vfs::{FileKind, Options},
    view::ReadContext,
};

const GROUPS: u64 = 1_000_000;
const ARRAYS: u64 = 10;

fn write(path: &Path) {
    fs::write(path, file(GROUPS, ARRAYS)).unwrap();
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
    assert!(source.taken() <= 2 * 20 * 2 * NAME, "a look-up searches the index");
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
    assert_eq!(source.taken(), (1 + AT_ONCE) * NAME);
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
