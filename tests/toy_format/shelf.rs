//! A toy format whose containers are folders: a marker that lists names, and a file for each of them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use super::{common::walk, toys::shelf::SHELF};
use shardfs::{
    tree::{Format, KDB},
    vfs::{FileKind, Options, Vfs},
};

fn write(folder: &Path, marker: &str) {
    fs::create_dir_all(folder.join("meta")).unwrap();
    fs::write(folder.join("one.bin"), b"first").unwrap();
    fs::write(folder.join("two.bin"), b"second").unwrap();
    fs::write(folder.join(marker), "shelf\none\ntwo\n").unwrap();
}

static WITH_SHELF: [&Format; 2] = [&SHELF, &KDB];

fn open(source: &Path) -> Vfs {
    walk::open(source, Options { formats: &WITH_SHELF, ..Options::default() })
}

/// What an array shows, or the errno; with the look-ups of a program that opens it by its path.
fn shown(vfs: &Vfs, path: &str) -> Result<Vec<u8>, i32> {
    let mut at = vfs.attr(shardfs::vfs::ROOT).map_err(|error| error.errno())?;
    for part in path.split('/') {
        at = vfs.lookup(at.ino, part.as_ref()).map_err(|error| error.errno())?.ok_or(libc::ENOENT)?;
    }
    let bytes = vfs.read_copied(at.ino, 0, at.size).map_err(|error| error.errno())?;
    Ok(bytes[bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1..].to_vec())
}

/// Waits until what is shown is what is expected.
fn wait_for(vfs: &Vfs, path: &str, expected: &Result<Vec<u8>, i32>) {
    let start = Instant::now();
    while shown(vfs, path) != *expected {
        assert!(start.elapsed() < Duration::from_secs(60), "{path}: {:?}", shown(vfs, path));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_folder_with_a_marker_is_a_container() {
    let folder = tempfile::tempdir().unwrap();
    for (name, marker) in [("a", "list.txt"), ("b", "meta/list.txt")] {
        write(&folder.path().join(name), marker);
    }
    fs::create_dir(folder.path().join("plain")).unwrap();
    fs::create_dir(folder.path().join("refused")).unwrap();
    fs::write(folder.path().join("refused/list.txt"), "else").unwrap();
    fs::set_permissions(folder.path().join("b"), PermissionsExt::from_mode(0o750)).unwrap();
    let vfs = open(folder.path());
    for name in ["a", "b"] {
        assert_eq!(shown(&vfs, &format!("{name}/one.npy")).unwrap(), b"first");
        assert_eq!(shown(&vfs, &format!("{name}/two.npy")).unwrap(), b"second");
        let root = walk::resolve(&vfs, name).unwrap();
        let names: Vec<_> = walk::list(&vfs, root.ino, 2, 100, true).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["one.npy", "two.npy"]);
        assert!(walk::lookup(&vfs, root.ino, ".file").is_none());
        assert_eq!(walk::lookup(&vfs, root.ino, "\0shelf"), None);
        // What lies there, without the format; the container's folder is the one above.
        let source = walk::lookup(&vfs, root.ino, ".source").unwrap();
        let names: Vec<_> = walk::list(&vfs, source.ino, 0, 100, true);
        assert_eq!(names[1].ino, root.ino);
        let names: Vec<_> = names.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        assert!(
            names.contains(&("meta".into(), FileKind::Folder)) && names.contains(&("one.bin".into(), FileKind::File))
        );
        let one = walk::lookup(&vfs, source.ino, "one.bin").unwrap();
        assert_eq!(vfs.read_copied(one.ino, 0, 100).unwrap(), b"first");
        assert!(walk::lookup(&vfs, source.ino, ".source").is_none());
    }
    assert_eq!(walk::resolve(&vfs, "a").unwrap().mode, 0o555);
    assert_eq!(walk::resolve(&vfs, "b").unwrap().mode, 0o550);
    assert_eq!(walk::resolve(&vfs, "b/one.npy").unwrap().mode, 0o440);
    // Without its format a folder is a folder, and so is one whose marker is refused.
    assert!(walk::resolve(&vfs, "refused/list.txt").is_some());
    let problems: Vec<_> = vfs.problems().into_iter().map(|problem| problem.to_string()).collect();
    assert_eq!(problems, ["refused/list.txt: not shown as a Shelf container: bad_format: no list"]);
    let plain = walk::open(folder.path(), Options::default());
    assert!(walk::resolve(&plain, "a/list.txt").is_some() && walk::resolve(&plain, "a/.source").is_none());
    // SOURCE itself.
    let alone = open(&folder.path().join("a"));
    assert_eq!(shown(&alone, "one.npy").unwrap(), b"first");
    assert_eq!(walk::resolve(&alone, ".source/one.bin").unwrap().size, 5);
    assert!(walk::resolve(&open(&folder.path().join("refused")), "list.txt").is_some());
}

#[test]
fn a_change_of_any_file_that_was_read_is_another_state() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = folder.path().join("a");
    write(&shelf, "list.txt");
    let vfs = open(folder.path());
    assert_eq!(shown(&vfs, "a/one.npy").unwrap(), b"first");
    assert_eq!(shown(&vfs, "a/two.npy").unwrap(), b"second");
    let (root, two) = (walk::resolve(&vfs, "a").unwrap(), walk::resolve(&vfs, "a/two.npy").unwrap());
    // One that was read: the nodes of the old state are stale, and new ones show the new bytes.
    fs::write(shelf.join("one.bin"), b"another").unwrap();
    wait_for(&vfs, "a/one.npy", &Ok(b"another".to_vec()));
    assert_eq!(vfs.read_copied(two.ino, 0, 10).unwrap_err().errno(), libc::ESTALE);
    assert_ne!(walk::resolve(&vfs, "a").unwrap().ino, root.ino);
    // One that goes, and comes again.
    fs::remove_file(shelf.join("two.bin")).unwrap();
    wait_for(&vfs, "a/two.npy", &Err(libc::EIO));
    fs::write(shelf.join("two.bin"), b"again").unwrap();
    wait_for(&vfs, "a/two.npy", &Ok(b"again".to_vec()));
    // The marker changes, goes, and comes again.
    fs::write(shelf.join("list.txt"), "shelf\ntwo\n").unwrap();
    wait_for(&vfs, "a/one.npy", &Err(libc::ENOENT));
    fs::remove_file(shelf.join("list.txt")).unwrap();
    wait_for(&vfs, "a/two.npy", &Err(libc::ENOENT));
    assert!(walk::resolve(&vfs, "a/two.bin").is_some());
    fs::write(shelf.join("list.txt"), "shelf\ntwo\n").unwrap();
    wait_for(&vfs, "a/two.npy", &Ok(b"again".to_vec()));
    // Another folder in its place.
    write(&folder.path().join("b"), "list.txt");
    fs::rename(&shelf, folder.path().join("c")).unwrap();
    fs::rename(folder.path().join("b"), &shelf).unwrap();
    wait_for(&vfs, "a/two.npy", &Ok(b"second".to_vec()));
    assert_eq!(shown(&vfs, "c/two.npy").unwrap(), b"again");
}

#[test]
fn a_file_that_not_all_readers_of_the_folder_may_read_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = folder.path().join("a");
    write(&shelf, "list.txt");
    fs::set_permissions(&shelf, PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(shelf.join("one.bin"), PermissionsExt::from_mode(0o600)).unwrap();
    let vfs = open(folder.path());
    assert_eq!(shown(&vfs, "a/one.npy"), Err(libc::EIO));
    assert_eq!(shown(&vfs, "a/two.npy").unwrap(), b"second");
    // Nor a marker.
    fs::set_permissions(shelf.join("list.txt"), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(walk::resolve(&open(folder.path()), "a/two.bin").is_some());
}
