//! Chunked episodes joined under their manifest (`docs/TREE.md`, section 3; `docs/formats/wshard.md` 15), through the
//! filesystem's operations on a folder of files made by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    ffi::OsStr,
    fs,
    ops::ControlFlow,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use common::shard::{self, Block};
use sha2::{Digest, Sha256};
use shardfs::{
    cache::Verify,
    vfs::{FollowLinks, Options, ROOT, Vfs},
    wanted,
};
use tempfile::TempDir;

/// A folder of its own, gone at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    /// The folder as a mount would show it.
    fn vfs(&self, verify: Verify) -> Vfs {
        Vfs::open(self.path(), Options { verify, ..Options::default() }).unwrap()
    }
}

/// A chunk of `steps` steps: `signal/pos` f32 [2], `signal/cam` u8 [2,3,3], their elements counted from `start`; and
/// `signal/odd` with as many dimensions as `odd`.
fn chunk(steps: u8, start: u8, odd: u8) -> Vec<u8> {
    let channels = format!(
        r#"{{"channels":[{{"id":"pos","dtype":"f32","shape":[2]}},{{"id":"cam","dtype":"u8","shape":[2,3,3]}},
            {{"id":"odd","dtype":"u8","shape":[{odd}]}}]}}"#
    );
    let pos: Vec<u8> = (0..steps * 2).flat_map(|i| f32::from(start + i).to_le_bytes()).collect();
    shard::file(
        5,
        &[
            Block::new("meta/episode", format!(r#"{{"episode_id":"ep","length_T":{steps}}}"#)),
            Block::new("meta/channels", channels),
            Block::new("signal/pos", pos),
            Block::new("signal/cam", pixels(steps, start)),
            Block::new("signal/odd", vec![0; usize::from(steps) * usize::from(odd)]),
        ],
    )
}

fn pixels(steps: u8, start: u8) -> Vec<u8> {
    (0..u32::from(steps) * 18).map(|i| (i + u32::from(start)) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A manifest of chunks by uri and SHA-256.
fn manifest(chunks: &[(&str, &str)]) -> Vec<u8> {
    let chunks: Vec<String> = (0..)
        .zip(chunks)
        .map(|(i, (uri, sha256))| format!(r#"{{"chunk_index":{i},"uri":"{uri}","sha256":"{sha256}"}}"#))
        .collect();
    shard::file(4, &[Block::new("meta/manifest", format!(r#"{{"episode_id":"ep","chunks":[{}]}}"#, chunks.join(",")))])
}

/// The inode number of a path below SOURCE; `None` where there is no such name.
fn find(vfs: &Vfs, path: &str) -> Option<u64> {
    path.split('/').try_fold(ROOT, |ino, name| Some(vfs.lookup(ino, OsStr::new(name)).unwrap()?.ino))
}

fn read(vfs: &Vfs, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    read_node(vfs, find(vfs, path).expect(path), offset, length)
}

/// As a reader with the file open.
fn read_node(vfs: &Vfs, ino: u64, offset: u64, length: u64) -> Result<Vec<u8>, String> {
    let bytes = vfs.read(ino, offset, length).map_err(|error| {
        assert_eq!(error.errno(), libc::EIO, "{error}");
        error.to_string()
    })?;
    Ok(bytes.as_syscall_buf().to_vec())
}

/// The names in a folder.
fn names(vfs: &Vfs, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    vfs.read_dir(find(vfs, path).expect(path), 2, false, &mut |entry| {
        names.push(entry.name.to_string_lossy().into_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// numpy's header is 128 bytes for these shapes.
const HEADER: u64 = 128;

/// A folder with the chunks a, b, c of 3, 0 and 4 steps, and their manifest.
fn three() -> Folder {
    let folder = Folder::new();
    let chunks = [chunk(3, 0, 5), chunk(0, 0, 5), chunk(4, 100, 6)];
    for (name, bytes) in ["a", "b", "c"].iter().zip(&chunks) {
        folder.write(name, bytes);
    }
    let hashes = chunks.each_ref().map(|bytes| hex(bytes));
    folder.write("m", &manifest(&[("a", &hashes[0]), ("b", &hashes[1]), ("c", &hashes[2])]));
    folder
}

#[test]
fn arrays_and_pictures_run_through_all_chunks() {
    let folder = three();
    let vfs = folder.vfs(Verify::Lazy);
    // `odd` has not one shape, `meta/*` is no array.
    assert_eq!(names(&vfs, "m"), ["container.json", "images", "meta", "signal", "steps.parquet"]);
    assert_eq!(names(&vfs, "m/signal"), ["cam.npy", "pos.npy"]);
    assert_eq!(names(&vfs, "m/meta"), ["manifest.json"]);
    let frames: Vec<String> = (0..7).map(|i| format!("{i:03}.png")).collect();
    assert_eq!(names(&vfs, "m/images/cam"), frames);

    let want: Vec<u8> = [0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105, 106, 107u8]
        .iter()
        .flat_map(|&value| f32::from(value).to_le_bytes())
        .collect();
    let whole = read(&vfs, "m/signal/pos.npy", 0, 4096).unwrap();
    assert!(String::from_utf8_lossy(&whole).contains("'shape': (7, 2)"));
    assert_eq!(whole[HEADER as usize..], want);
    for start in 0..whole.len() {
        for end in [start, start + 1, start + 30, whole.len()] {
            let end = end.min(whole.len());
            let part = read(&vfs, "m/signal/pos.npy", start as u64, (end - start) as u64).unwrap();
            assert_eq!(part, whole[start..end], "{start}..{end}");
        }
    }
    for frame in 0..7u8 {
        let png = read(&vfs, &format!("m/images/cam/{frame:03}.png"), 0, 4096).unwrap();
        let picture = image::load_from_memory(&png).unwrap().to_rgb8().into_raw();
        let all = [pixels(3, 0), pixels(4, 100)].concat();
        assert_eq!(picture, all[usize::from(frame) * 18..][..18], "frame {frame}");
    }
    assert!(vfs.problems().is_empty(), "{:?}", vfs.problems());
}

#[test]
fn the_manifest_alone_finds_its_chunks() {
    let folder = three();
    let vfs = Vfs::open(&folder.path().join("m"), Options::default()).unwrap();
    assert_eq!(read(&vfs, "signal/pos.npy", HEADER + 24, 4).unwrap(), 100f32.to_le_bytes());
}

#[test]
fn a_chunk_that_differs_fails_alone() {
    let folder = three();
    let mut bytes = fs::read(folder.path().join("c")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    folder.write("c", &bytes);
    let vfs = folder.vfs(Verify::Lazy);
    assert_eq!(read(&vfs, "m/signal/pos.npy", HEADER, 24).unwrap().len(), 24);
    let error = read(&vfs, "m/signal/pos.npy", HEADER + 20, 8).unwrap_err();
    assert!(error.contains("m/signal/pos.npy") && error.contains("chunk c") && error.contains("SHA-256"), "{error}");
    assert!(read(&vfs, "m/images/cam/002.png", 0, 4096).is_ok());
    assert!(read(&vfs, "m/images/cam/003.png", 0, 4096).is_err());
    // The chunk's own folder has no such promise, nor has a mount that checks nothing.
    assert!(read(&vfs, "c/signal/pos.npy", 0, 4096).is_ok());
    assert!(read(&folder.vfs(Verify::Off), "m/signal/pos.npy", 0, 4096).is_ok());
}

#[test]
fn a_chunk_that_changes_is_known_by_its_hash_alone() {
    let folder = three();
    let vfs = folder.vfs(Verify::Lazy);
    let held = find(&vfs, "m/signal/pos.npy").unwrap();
    let before = read(&vfs, "m/signal/pos.npy", 0, 4096).unwrap();
    let bytes = fs::read(folder.path().join("a")).unwrap();
    // The same bytes, another file.
    folder.write("a.new", &bytes);
    fs::rename(folder.path().join("a.new"), folder.path().join("a")).unwrap();
    assert_eq!(read(&vfs, "m/signal/pos.npy", 0, 4096).unwrap(), before);
    assert_eq!(read_node(&vfs, held, 0, 4096).unwrap(), before);
    folder.write("a", &chunk(3, 50, 5));
    for ino in [held, find(&vfs, "m/signal/pos.npy").unwrap()] {
        assert!(read_node(&vfs, ino, HEADER, 4).unwrap_err().contains("SHA-256"));
        assert!(read_node(&vfs, ino, HEADER + 24, 4).is_ok());
    }
    fs::remove_file(folder.path().join("a")).unwrap();
    assert!(read_node(&vfs, held, HEADER, 4).unwrap_err().contains("not there"));
    // Without a hash nothing says that a changed file is the same chunk.
    folder.write("m2", &manifest(&[("c", "")]));
    let held = find(&vfs, "m2/signal/pos.npy").unwrap();
    assert!(read_node(&vfs, held, HEADER, 4).is_ok());
    let bytes = fs::read(folder.path().join("c")).unwrap();
    fs::remove_file(folder.path().join("c")).unwrap();
    folder.write("c", &bytes);
    assert!(read_node(&vfs, held, HEADER, 4).unwrap_err().contains("changed"));
}

#[test]
fn chunks_that_come_late_are_joined() {
    let folder = three();
    let bytes = fs::read(folder.path().join("b")).unwrap();
    fs::remove_file(folder.path().join("b")).unwrap();
    let vfs = folder.vfs(Verify::Lazy);
    assert_eq!(names(&vfs, "m"), ["container.json", "meta"]);
    // Half of it is there, and then all, in one file.
    folder.write("b", &bytes[..100]);
    assert_eq!(names(&vfs, "m"), ["container.json", "meta"]);
    folder.write("b", &bytes);
    assert_eq!(names(&vfs, "m"), ["container.json", "images", "meta", "signal", "steps.parquet"]);
    let ino = find(&vfs, "m/signal/pos.npy").unwrap();
    assert_eq!(find(&folder.vfs(Verify::Lazy), "m/signal/pos.npy"), Some(ino), "the same number in the next mount");
    fs::remove_file(folder.path().join("a")).unwrap();
    assert_eq!(names(&vfs, "m"), ["container.json", "meta"]);
}

#[test]
fn large_chunks_are_hashed_in_strict_mode_only() {
    let folder = Folder::new();
    let pixels = vec![7u8; 65 << 20];
    let channels = r#"{"channels":[{"id":"a","dtype":"u8","shape":[1048576]}]}"#;
    folder.write("a", &shard::file(5, &[Block::new("meta/channels", channels), Block::new("signal/a", pixels)]));
    folder.write("m", &manifest(&[("a", &"0".repeat(64))]));
    assert_eq!(read(&folder.vfs(Verify::Lazy), "m/signal/a.npy", HEADER, 3).unwrap(), [7; 3]);
    assert!(read(&folder.vfs(Verify::Strict), "m/signal/a.npy", HEADER, 3).unwrap_err().contains("SHA-256"));
}

#[test]
fn what_can_not_be_joined_is_told() {
    let folder = three();
    let good = hex(&fs::read(folder.path().join("a")).unwrap());
    std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    std::os::unix::fs::symlink("..", folder.path().join("folder/up")).unwrap();
    folder.write("text", b"text");
    folder.write("locked", &fs::read(folder.path().join("a")).unwrap());
    fs::set_permissions(folder.path().join("locked"), fs::Permissions::from_mode(0o600)).unwrap();
    for (uri, reason) in [
        ("gone", "not there"),
        ("link", "link"),
        ("folder/up/a", "link"),
        ("folder", "ordinary file"),
        ("text", "not a Shard file"),
        ("../hostile/a", "leads out"),
        ("/etc/passwd", "leads out"),
        ("file:a", "scheme"),
        ("m", "role is 4"),
        ("bad", "role is 4"),
    ] {
        folder.write("bad", &manifest(&[("a", &good), (uri, &good)]));
        let vfs = folder.vfs(Verify::Lazy);
        assert_eq!(names(&vfs, "bad"), ["container.json", "meta"], "{uri}");
        assert!(read(&vfs, "bad/meta/manifest.json", 0, 4096).unwrap().starts_with(b"{"));
        let problems = vfs.problems();
        assert!(problems.iter().any(|problem| problem.message.contains(reason)), "{uri}: {problems:?}");
        assert!(problems.iter().all(|problem| problem.message.starts_with("no joined view")), "{uri}: {problems:?}");
    }
    // The owner of both may read it, and nobody else.
    folder.write("m", &manifest(&[("locked", &good)]));
    let vfs = folder.vfs(Verify::Lazy);
    assert!(read(&vfs, "m/signal/pos.npy", HEADER, 4).is_ok());
    let mode = vfs.attr(find(&vfs, "m/signal/pos.npy").unwrap()).unwrap().mode;
    assert_eq!(mode & 0o777, 0o400);
    let options = Options { follow_links: FollowLinks::Inside, ..Options::default() };
    folder.write("m", &manifest(&[("link", &good)]));
    let vfs = Vfs::open(folder.path(), options).unwrap();
    assert!(read(&vfs, "m/signal/pos.npy", HEADER, 4).is_ok(), "a link inside the folder, where links are followed");
}

#[test]
fn what_the_manifest_stores_keeps_its_path() {
    let folder = three();
    let chunks = r#"{"chunks":[{"chunk_index":0,"uri":"a"}]}"#;
    let own = Block { content_type: 2, ..Block::new("signal/pos", "{}") };
    let tensor = Block { content_type: 1, ..Block::new("signal/cam", [8u8, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 9]) };
    folder.write("m", &shard::file(4, &[Block::new("meta/manifest", chunks), own, tensor]));
    let vfs = folder.vfs(Verify::Lazy);
    assert_eq!(names(&vfs, "m/signal"), ["cam%_2.npy", "cam.npy", "odd.npy", "pos.json", "pos.npy"]);
    assert_eq!(read(&vfs, "m/signal/cam.npy", HEADER, 9).unwrap(), [9, 9]);
    assert_eq!(read(&vfs, "m/signal/cam%_2.npy", HEADER, 54).unwrap(), pixels(3, 0));
}

/// How many containers are open, as `stats.json` says.
fn containers_open(vfs: &Vfs) -> u64 {
    let bytes = vfs.read(find(vfs, ".shardfs/stats.json").unwrap(), 0, 1 << 20).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(bytes.as_syscall_buf()).unwrap();
    stats["containers_open"].as_u64().unwrap()
}

/// A reader that is killed ends the joining that it began: nothing of it is remembered, and others are not failed by it.
#[test]
fn joining_ends_with_its_reader() {
    const CHUNKS: usize = 400;
    let folder = Folder::new();
    let uris: Vec<String> = (0..CHUNKS).map(|i| format!("chunk{i}")).collect();
    uris.iter().for_each(|uri| folder.write(uri, &chunk(1, 0, 5)));
    let chunks: Vec<(&str, &str)> = uris.iter().map(|name| (name.as_str(), "")).collect();
    folder.write("m", &manifest(&chunks));
    // Written just now: opened once they were left alone.
    thread::sleep(Duration::from_millis(200));
    let vfs = folder.vfs(Verify::Lazy);
    let given_up = Arc::new(AtomicBool::new(false));
    let manifest = vfs.lookup(ROOT, OsStr::new("m")).unwrap().unwrap().ino;
    thread::scope(|scope| {
        scope.spawn(|| {
            // Until some chunks are open, or all has ended.
            while containers_open(&vfs) < 20 && !given_up.load(Relaxed) {
                thread::yield_now();
            }
            given_up.store(true, Relaxed);
        });
        // One that waits for that opening, and was not killed, gets its answer.
        scope.spawn(|| {
            while containers_open(&vfs) < 5 && !given_up.load(Relaxed) {
                thread::yield_now();
            }
            assert!(vfs.lookup(manifest, OsStr::new("signal")).unwrap().is_some());
        });
        let error = wanted::until(given_up.clone(), || vfs.lookup(manifest, OsStr::new("signal"))).unwrap_err();
        given_up.store(true, Relaxed);
        assert_eq!(error.errno(), libc::EINTR);
    });
    assert!(vfs.problems().is_empty(), "{:?}", vfs.problems());
    assert!(read(&vfs, "m/signal/pos.npy", 0, 128).unwrap().starts_with(b"\x93NUMPY"));
    assert_eq!(names(&vfs, "m/signal"), ["cam.npy", "odd.npy", "pos.npy"]);
}
