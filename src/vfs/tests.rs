use std::{ops::ControlFlow, time::Duration};

use super::*;
use crate::{cache::Verify, limits, source::Bound, view::ReadContext};

fn names(vfs: &Vfs, ino: u64) -> Vec<String> {
    let mut names = Vec::new();
    vfs.read_dir(ino, 2, false, &mut |entry| {
        names.push(entry.name.to_string_lossy().into_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// An empty kastore (`docs/formats/kastore.md` 3).
fn empty_store() -> Vec<u8> {
    let mut bytes = crate::format::kastore::SIGNATURE.to_vec();
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, 64]);
    bytes.resize(64, 0);
    bytes
}

#[test]
fn content_decides_and_control_is_hidden() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("store"), empty_store()).unwrap();
    std::fs::write(folder.path().join("text.kas"), "text").unwrap();
    std::fs::create_dir(folder.path().join(".shardfs")).unwrap();
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    assert_eq!(names(&vfs, ROOT), ["store", "text.kas"]);
    let store = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    let text = vfs.lookup(ROOT, OsStr::new("text.kas")).unwrap().unwrap();
    assert_eq!((store.kind, text.kind, text.size), (FileKind::Folder, FileKind::File, 4));
    assert_eq!(names(&vfs, store.ino), ["container.json"]);
    let control = vfs.lookup(ROOT, OsStr::new(".shardfs")).unwrap().unwrap();
    let stats = vfs.lookup(control.ino, OsStr::new("stats.json")).unwrap().unwrap();
    let bytes = vfs.read(stats.ino, 0, 1 << 20).unwrap();
    assert_eq!(bytes.as_syscall_buf().len() as u64, stats.size);
    let parsed: serde_json::Value = serde_json::from_slice(bytes.as_syscall_buf()).unwrap();
    assert_eq!(parsed["containers_open"], 1);
}

/// What was given of a listing before something had to be waited for is an answer, and should be worth one: after `.` and
/// `..` alone the kernel asks for the attributes of each name by itself.
#[test]
fn no_listing_begins_with_the_dots_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    std::fs::write(folder.path().join("store"), empty_store()).unwrap();
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    let list = |ino, most: usize, wait| {
        let mut names = Vec::new();
        let listed = vfs.read_dir_with(ino, 0, true, wait, &mut |entry| {
            if names.len() == most {
                return ControlFlow::Break(());
            }
            names.push(entry.name.to_string_lossy().into_owned());
            ControlFlow::Continue(())
        });
        (names, listed.err().map(|error| error.is_would_block()))
    };
    assert_eq!(list(ROOT, 9, Wait::Never), (vec![], Some(true)));
    let empty = vfs.lookup(ROOT, OsStr::new("empty")).unwrap().unwrap();
    let store = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(list(ROOT, 9, Wait::Always), (strings(&[".", "..", "empty", "store"]), None));
    assert_eq!(list(empty.ino, 9, Wait::Always), (strings(&[".", ".."]), None));
    assert_eq!(list(store.ino, 9, Wait::Always), (strings(&[".", "..", "container.json"]), None));
    for most in 0..4 {
        assert_eq!(list(ROOT, most, Wait::Always), (strings(&[".", "..", "empty", "store"][..most]), None));
        assert_eq!(list(empty.ino, most, Wait::Always).0.len(), most.min(2));
    }
}

#[test]
fn forgotten_nodes_are_stale_and_numbers_are_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("store"), empty_store()).unwrap();
    let open = || Vfs::open(folder.path(), Options::default()).unwrap();
    let vfs = open();
    let first = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    vfs.lookup(ROOT, OsStr::new("store")).unwrap();
    vfs.forget(first.ino, 1);
    assert!(vfs.attr(first.ino).is_ok());
    vfs.forget(first.ino, 1);
    assert_eq!(vfs.attr(first.ino).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(open().lookup(ROOT, OsStr::new("store")).unwrap().unwrap(), first);
}

#[test]
fn a_replaced_container_is_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::fs::write(&path, empty_store()).unwrap();
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    let before = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    let mut longer = empty_store();
    longer.push(0);
    std::fs::write(&path, longer).unwrap();
    let after = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    assert_ne!(before.ino, after.ino);
    assert!(vfs.attr(after.ino).is_ok());
}

#[test]
fn a_small_container_in_memory_is_opened_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::fs::write(&path, empty_store()).unwrap();
    // A file that was written to a moment ago is waited for.
    std::thread::sleep(Duration::from_millis(limits::SETTLED_MILLIS + 50));
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    // Looking into it has shown that its disk is one of this machine.
    let store = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap().ino;
    let look_up = |name| vfs.lookup_with(store, OsStr::new(name), Wait::Never);
    assert_eq!(vfs.containers.count(), 0);
    assert!(look_up("nothing").unwrap().is_none());
    assert_eq!(vfs.containers.count(), 1);
    // What is written on request is waited for.
    assert!(look_up("container.json").unwrap_err().is_would_block());
    std::fs::write(&path, [&empty_store()[..], b"more"].concat()).unwrap();
    assert_eq!(look_up("nothing").unwrap_err().errno(), libc::ESTALE);
}

#[test]
fn what_was_parsed_of_a_file_serves_its_opening_and_no_other_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = |name: &str| {
        let json = format!(r#"{{"{name}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#);
        [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), b"12"].concat()
    };
    let settle = || std::thread::sleep(Duration::from_millis(limits::SETTLED_MILLIS + 50));
    std::fs::write(&path, model("a")).unwrap();
    settle();
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    let look_up = || vfs.lookup(ROOT, OsStr::new("model.safetensors")).unwrap().unwrap().ino;
    let used = || vfs.cache().usage().1;
    let before = used();
    let first = look_up();
    assert!(used() > before, "what was parsed is kept");
    assert_eq!(names(&vfs, first), ["a.npy", "container.json"]);
    // A file in another state is parsed again.
    std::fs::write(&path, model("b")).unwrap();
    settle();
    let second = look_up();
    std::fs::write(&path, model("c")).unwrap();
    let third = look_up();
    assert!(vfs.read_dir(second, 2, false, &mut |_| ControlFlow::Continue(())).is_err());
    assert_eq!(names(&vfs, third), ["c.npy", "container.json"]);
    // It gives way to what needs its memory, and goes after a while.
    for give_up in [|vfs: &Vfs| drop(vfs.cache().reserve(vfs.cache().usage().0)), |vfs: &Vfs| vfs.sweep()] {
        std::fs::write(&path, model("d")).unwrap();
        settle();
        let last = look_up();
        let kept = used();
        give_up(&vfs);
        assert!(used() < kept);
        assert_eq!(names(&vfs, last).len(), 2);
    }
}

#[test]
fn names_of_source_that_the_kernel_knows_are_told_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["first", "store", "other"] {
        std::fs::write(path(name), empty_store()).unwrap();
    }
    // It says that it is longer.
    let mut damaged = empty_store();
    damaged[16] += 1;
    std::fs::write(path("damaged"), damaged).unwrap();
    std::fs::write(path("text"), "text").unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    std::os::unix::fs::symlink("store", path("link")).unwrap();
    // A file that was written to a moment ago is waited for.
    std::thread::sleep(Duration::from_millis(limits::SETTLED_MILLIS + 50));
    // With formats whose containers are folders, each folder has to be looked into.
    let formats: Vec<_> = tree::FORMATS.into_iter().filter(|format| format.markers.is_empty()).collect();
    let vfs = Vfs::open(folder.path(), Options { formats: formats.leak(), ..Options::default() }).unwrap();
    let at_once = |name: &str| vfs.lookup_with(ROOT, OsStr::new(name), Wait::Never);
    let waits = |name: &str| at_once(name).unwrap_err().is_would_block();
    // Nothing is watched, and it is not known that the disk is one of this machine.
    assert!(waits("first") && waits("folder"));
    vfs.lookup(ROOT, OsStr::new("first")).unwrap();
    let is_local = crate::filesystem::is_local(std::fs::File::open(folder.path()).unwrap());
    for name in ["store", "other", "text", "folder"] {
        let Ok(found) = at_once(name) else {
            assert!(!is_local, "{name} is waited for");
            continue;
        };
        assert_eq!(found, vfs.lookup(ROOT, OsStr::new(name)).unwrap(), "{name}");
    }
    // What is wrong with a file says a look-up that waits, and so for a link and a name that is not there.
    assert!(waits("damaged") && waits("link") && waits("nothing"));
    assert_eq!(vfs.problems().len(), 0);
    vfs.lookup(ROOT, OsStr::new("damaged")).unwrap();
    assert_eq!(vfs.problems().len(), 1);
    // The file that was looked into is the one that is opened, unless another stands there by now.
    let open = |ino| vfs.lookup_with(ino, OsStr::new("nothing"), Wait::Never);
    if let Ok(Some(store)) = at_once("store") {
        assert_eq!(open(store.ino).unwrap(), None);
        std::fs::write(path("new"), empty_store()).unwrap();
        std::fs::rename(path("new"), path("store")).unwrap();
        assert_eq!(open(store.ino).unwrap_err().errno(), libc::ESTALE);
        assert!(at_once("store").map_or(true, |now| now.is_some_and(|now| now.ino != store.ino)));
    }
}

#[test]
fn what_was_opened_without_some_of_its_bytes_says_so() {
    // Its lanes are put back in order by what its metadata says.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/wshard/py/stream_interleaved.wshard");
    let whole: Arc<dyn Source> = Arc::new(std::fs::read(path).unwrap());
    let (format, cache) = (&tree::WSHARD, Cache::new(64 << 20, Verify::Lazy));
    let reader = ReadContext::new(whole.clone(), cache, 0);
    let expected = format.open(&reader, None).unwrap();
    let mut differ = 0;
    for bytes in (0..64 << 10).step_by(256) {
        let source = Arc::new(Bound::new(whole.clone(), Wait::Never, Some(bytes)));
        let mut quick = reader.with_wait(Wait::Never);
        quick.source = source.clone();
        let Ok(tree) = format.open(&quick, None) else { continue };
        let is_same = tree.warnings() == expected.warnings();
        assert!(is_same || source.has_refused(), "{bytes} bytes");
        differ += u32::from(!is_same);
    }
    assert!(differ > 0, "a tree can be made without all bytes");
}

#[test]
fn links_are_links_unless_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/store"), empty_store()).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    link("sub/store", "in");
    link("/etc/passwd", "out");
    link("..", "sub/up");
    let kind = |vfs: &Vfs, name: &str| vfs.lookup(ROOT, OsStr::new(name)).unwrap().unwrap().kind;
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    assert_eq!((kind(&vfs, "in"), kind(&vfs, "out")), (FileKind::Link, FileKind::Link));
    let vfs = Vfs::open(folder.path(), Options { follow_links: FollowLinks::Inside, ..Options::default() }).unwrap();
    assert_eq!((kind(&vfs, "in"), kind(&vfs, "out")), (FileKind::Folder, FileKind::Link));
    let sub = vfs.lookup(ROOT, OsStr::new("sub")).unwrap().unwrap();
    assert_eq!(vfs.lookup(sub.ino, OsStr::new("up")).unwrap().unwrap().kind, FileKind::Link);
}

#[test]
fn a_read_waits_for_no_file_in_memory_whose_bytes_are_stored_uncompressed() {
    // A kastore with one uncompressed array, `x` (`docs/formats/kastore.md` 3).
    let values = vec![7_u8; 8 << 17];
    let mut bytes = empty_store();
    bytes[12] = 1;
    bytes.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    let (key, array) = (128_u64, 136_u64);
    for number in [key, 1, array, values.len() as u64 / 8, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(b"x\0\0\0\0\0\0\0");
    bytes.extend(&values);
    let size = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&size.to_le_bytes());

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("store"), bytes).unwrap();
    let vfs = Vfs::open(folder.path(), Options::default()).unwrap();
    let store = vfs.lookup(ROOT, OsStr::new("store")).unwrap().unwrap();
    let file = vfs.lookup(store.ino, OsStr::new("x.npy")).unwrap().unwrap();
    assert_eq!(file.size, 128 + values.len() as u64);
    // Laying it out was begun, and does not go on.
    let slot = vfs.cache().start_file(file.ino, file.size).unwrap();
    let Opening::Growing(growing) = vfs.opening(file.ino, Wait::Always).unwrap() else {
        panic!("it is worth being finished")
    };
    let read = |offset| {
        let bytes = vfs.read_growing(file.ino, &growing, offset, 1 << 20, Wait::Always).unwrap();
        bytes.as_syscall_buf().to_vec()
    };
    assert_eq!(read(128), values);
    assert!(read(file.size).is_empty() && read(u64::MAX).is_empty());
    // It failed: what it holds is nothing.
    slot.run(|| Err(crate::cache::BlockError::Refused("enough".into())));
    assert_eq!(read(128), values);
}

#[test]
fn an_overview_counts_while_it_is_kept() {
    const TENSORS: usize = 20_000;
    let tensors: Vec<String> =
        (0..TENSORS).map(|n| format!(r#""{n}":{{"dtype":"U8","shape":[1],"data_offsets":[{n},{}]}}"#, n + 1)).collect();
    let header = format!("{{{}}}", tensors.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + TENSORS, 0);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let cache = crate::cache::Cache::new(256 << 20, Verify::Lazy);
    let vfs = Vfs::open(folder.path(), Options { cache: Some(cache.clone()), ..Options::default() }).unwrap();
    let model = vfs.lookup(ROOT, OsStr::new("model.safetensors")).unwrap().unwrap();
    drop(vfs.overview(model.ino).unwrap());
    let before = cache.usage().1;
    let overview = vfs.overview(model.ino).unwrap().unwrap();
    let tree::overview::Contents::Items { items, .. } = &overview.contents else { panic!("no items") };
    assert_eq!(items.len(), TENSORS);
    let taken: usize = items.iter().map(|item| size_of_val(item) + item.path.len() + 8).sum();
    assert!(cache.usage().1 - before >= taken as u64, "{} of {taken}", cache.usage().1 - before);
    drop(overview);
    assert_eq!(cache.usage().1, before);
}
