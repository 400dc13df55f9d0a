//! The filesystem against a simple model: random operations on SOURCE and on the filesystem's own operations, in this
//! process. After each, what it answers is what the model says. A failure is shrunk to the fewest operations that fail.
//!
//! The same operations in each run; `PROPTEST_RNG_SEED=N PROPTEST_CASES=N cargo test --release --test model` tries
//! others. How the kernel sees changes is tested on a mount (`tests/python/test_model.py`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use common::{
    kastore,
    shard::{self, Block},
    walk,
};
use proptest::{collection::vec, prelude::*, test_runner::RngSeed};
use shardfs::vfs::{Attr, FileKind, Options, ROOT, Vfs};
use tempfile::TempDir;

/// Where files and folders of SOURCE may be.
const PLACES: [&str; 8] = ["a", "b.kas", "d", "d/a", "d/b.txt", "d/e", "d/e/a", "f"];
/// Paths that may be below a container, and some that never are.
const INSIDE: [&str; 9] =
    ["x.npy", "deep/z.npy", "deep", "große.npy", "c.bin", ".raw/c.bin", "container.json", "nope", "x.npy/x"];
const ESTALE: i32 = 116;
const EIO: i32 = 5;

/// What a file of SOURCE may hold.
#[derive(Debug, Clone)]
enum Content {
    /// Bytes that are no container.
    Plain(Vec<u8>),
    /// A kastore with `x`, `deep/z` and `große`, as long as that.
    Store(i64, [Option<u16>; 3]),
    /// A Shard file with the block `c`, compressed or not.
    Shard { fill: u8, size: u16, packed: bool },
}

impl Content {
    fn arrays(first: i64, lengths: [Option<u16>; 3]) -> Vec<(&'static str, Vec<i64>)> {
        let named = ["deep/z", "große", "x"].into_iter().zip(lengths);
        named.filter_map(|(name, length)| Some((name, (first..first + i64::from(length?)).collect()))).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(bytes) => bytes.clone(),
            Self::Store(first, lengths) => {
                let arrays = Self::arrays(*first, *lengths);
                let lent: Vec<_> = arrays.iter().map(|(name, array)| (*name, &**array)).collect();
                kastore::store(&lent)
            }
            Self::Shard { fill, size, packed } => {
                let data = Self::block(*fill, *size);
                let packed = if *packed { zstd::encode_all(&*data, 1).unwrap() } else { data.clone() };
                let mut block = match packed.len() < data.len() {
                    true => Block::packed("c", shard::ZSTD, packed, data.len() as u64),
                    false => Block::new("c", data.clone()),
                };
                block.crc = crc32c::crc32c(&data);
                shard::file(1, &[block])
            }
        }
    }

    fn block(fill: u8, size: u16) -> Vec<u8> {
        (0..size).map(|i| fill ^ (i >> 6) as u8).collect()
    }

    /// The files of a container that a walk finds, but for `container.json`; `None` for what is no container.
    fn files(&self) -> Option<BTreeMap<String, Vec<u8>>> {
        match self {
            Self::Plain(_) => None,
            Self::Store(first, lengths) => Some(
                Self::arrays(*first, *lengths)
                    .into_iter()
                    .map(|(name, array)| (format!("{name}.npy"), kastore::npy(&array)))
                    .collect(),
            ),
            Self::Shard { fill, size, .. } => Some(BTreeMap::from([("c.bin".to_owned(), Self::block(*fill, *size))])),
        }
    }
}

type Place = &'static str;

#[derive(Debug, Clone)]
enum Op {
    /// Puts a file there: a new one under another name first, or by writing over what is there.
    Write {
        at: Place,
        content: Content,
        over: bool,
    },
    Folder(Place),
    Truncate(Place, u16),
    Rename(Place, Place),
    Delete(Place),
    Chmod(Place, u32),
    /// Looks a path up and keeps its number.
    LookUp(Place, Option<Place>),
    /// Lists the root, a place, or a folder in it.
    List {
        at: Place,
        inside: Option<Place>,
        plus: bool,
        step: usize,
    },
    Read {
        at: Place,
        inside: Option<Place>,
        from: u32,
        length: u32,
    },
    /// Asks for something that was looked up before, the how manieth of all, and which may have changed.
    Stat(usize),
    ReadAgain {
        held: usize,
        from: u32,
        length: u32,
    },
    Forget(usize),
    Sweep,
}

fn content() -> impl Strategy<Value = Content> {
    let length = || prop::option::weighted(0.7, prop_oneof![Just(0u16), 1..20u16, Just(3000)]);
    prop_oneof![
        1 => vec(any::<u8>(), 0..200).prop_map(Content::Plain),
        3 => (0..1000i64, [length(), length(), length()]).prop_map(|(first, lengths)| Content::Store(first, lengths)),
        2 => (any::<u8>(), prop_oneof![Just(0u16), 1..100u16, Just(20_000)], any::<bool>())
            .prop_map(|(fill, size, packed)| Content::Shard { fill, size, packed }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let place = || prop::sample::select(&PLACES[..]);
    let inside = || prop::option::weighted(0.8, prop::sample::select(&INSIDE[..]));
    let range = || (prop_oneof![Just(0u32), 0..200u32, 0..30_000u32], prop_oneof![Just(u32::MAX), 0..5000u32]);
    let modes = prop::sample::select(vec![0o644u32, 0o600, 0o440]);
    let folders =
        prop_oneof![Just(("", None)), place().prop_map(|at| (at, None)), place().prop_map(|at| (at, Some("deep")))];
    prop_oneof![
        6 => (place(), content(), any::<bool>()).prop_map(|(at, content, over)| Op::Write { at, content, over }),
        2 => place().prop_map(Op::Folder),
        1 => (place(), 0..2000u16).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => (place(), place()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => place().prop_map(Op::Delete),
        1 => (place(), modes).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        5 => (place(), inside()).prop_map(|(at, inside)| Op::LookUp(at, inside)),
        3 => (folders, any::<bool>(), 1..4usize)
            .prop_map(|((at, inside), plus, step)| Op::List { at, inside, plus, step }),
        5 => (place(), inside(), range())
            .prop_map(|(at, inside, (from, length))| Op::Read { at, inside, from, length }),
        2 => (0..8usize).prop_map(Op::Stat),
        4 => (0..8usize, range()).prop_map(|(held, (from, length))| Op::ReadAgain { held, from, length }),
        2 => (0..8usize).prop_map(Op::Forget),
        1 => Just(Op::Sweep),
    ]
}

/// An entry of SOURCE.
#[derive(Debug, Clone)]
enum Entry {
    Folder(u64),
    File { content: Content, mode: u32, mtime: u64, state: u64 },
}

/// What the filesystem has to show at a path.
#[derive(Debug, Clone, PartialEq)]
enum Shown {
    Folder,
    File(Vec<u8>),
    /// `container.json`, of which the model says nothing but that it is there.
    SomeFile,
}

/// A number that was looked up, and what it was then.
struct Held {
    attr: Attr,
    shown: Shown,
    /// The file of SOURCE, and which state of it.
    place: String,
    state: u64,
    /// Of an ordinary file: its inode in SOURCE. Another one at its place is another file.
    host: Option<u64>,
}

struct World {
    top: TempDir,
    vfs: Vfs,
    entries: BTreeMap<String, Entry>,
    held: Vec<Held>,
    states: u64,
}

impl World {
    fn new(cache_size: u64) -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("source")).unwrap();
        let vfs = Vfs::open(&top.path().join("source"), Options { cache_size, ..Options::default() }).unwrap();
        Self { top, vfs, entries: BTreeMap::new(), held: Vec::new(), states: 0 }
    }

    fn host(&self, place: &str) -> PathBuf {
        self.top.path().join("source").join(place)
    }

    /// Whether something may be put there: its folder is there.
    fn has_parent(&self, place: &str) -> bool {
        let folder = place.rsplit_once('/').map(|(folder, _)| folder);
        folder.is_none_or(|folder| matches!(self.entries.get(folder), Some(Entry::Folder(_))))
    }

    fn next_state(&mut self) -> u64 {
        self.states += 1;
        self.states
    }

    fn write(&mut self, place: &str, content: &Content, over: bool) {
        let (bytes, path) = (content.bytes(), self.host(place));
        let mode = match self.entries.get(place) {
            Some(Entry::Folder(_)) => return,
            Some(Entry::File { mode, .. }) if over => *mode,
            None if over => return,
            _ => 0o644,
        };
        self.states += 1;
        // Times that lie in the future: a file that was written just now would be left alone for a while first.
        let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs((1 << 33) + self.states);
        if over {
            fs::write(&path, &bytes).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
        } else {
            let new = self.top.path().join("new");
            fs::write(&new, &bytes).unwrap();
            fs::set_permissions(&new, Permissions::from_mode(mode)).unwrap();
            File::options().write(true).open(&new).unwrap().set_modified(mtime).unwrap();
            fs::rename(&new, &path).unwrap();
        }
        let file = Entry::File { content: content.clone(), mode, mtime: (1 << 33) + self.states, state: self.states };
        self.entries.insert(place.to_owned(), file);
    }

    /// What is at a path below a place; `Some(None)` where it is not known to the model.
    fn shown(&self, place: &str, inside: Option<&str>) -> Option<Shown> {
        let entry = self.entries.get(place)?;
        let files = match (entry, inside) {
            (Entry::Folder(_), None) => return Some(Shown::Folder),
            // The places below a folder are looked up as such.
            (Entry::Folder(_), Some(_)) => return None,
            (Entry::File { content, .. }, inside) => match (content.files(), inside) {
                (None, None) => return Some(Shown::File(content.bytes())),
                (None, Some(_)) => return None,
                (Some(_), None) => return Some(Shown::Folder),
                (Some(files), Some(_)) => files,
            },
        };
        let inside = inside?;
        let bare = inside.strip_prefix(".raw/").unwrap_or(inside);
        match files.get(bare) {
            Some(bytes) if bare == inside || bare == "c.bin" => Some(Shown::File(bytes.clone())),
            None if inside == "container.json" => Some(Shown::SomeFile),
            None if inside == "deep" && files.contains_key("deep/z.npy") => Some(Shown::Folder),
            _ => None,
        }
    }

    fn state(&self, place: &str) -> u64 {
        match self.entries.get(place) {
            Some(Entry::File { state, .. } | Entry::Folder(state)) => *state,
            None => u64::MAX,
        }
    }

    /// Goes down a path; gives back the look-ups of the folders on the way, and keeps that of the last.
    fn resolve(&self, path: &str) -> Option<Attr> {
        let mut at = ROOT;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            let found = self.vfs.lookup(at, OsStr::new(part)).unwrap_or_else(|error| panic!("{path}: {error}"));
            if at != ROOT {
                self.vfs.forget(at, 1);
            }
            let attr = found?;
            if parts.peek().is_none() {
                return Some(attr);
            }
            at = attr.ino;
        }
        None
    }

    /// Looks a path up and compares its attributes; the caller gives the look-up back.
    fn look_up(&self, place: &str, inside: Option<&str>) -> Option<(Attr, Shown)> {
        let path = inside.map_or_else(|| place.to_owned(), |inside| format!("{place}/{inside}"));
        let found = self.resolve(&path);
        let expected = self.shown(place, inside);
        assert_eq!(found.is_some(), expected.is_some(), "{path}: {found:?}, not {expected:?}");
        let (attr, shown) = (found?, expected?);
        match &shown {
            Shown::Folder => assert_eq!(attr.kind, FileKind::Folder, "{path}"),
            Shown::File(bytes) => assert_eq!((attr.kind, attr.size), (FileKind::File, bytes.len() as u64), "{path}"),
            Shown::SomeFile => assert!(attr.kind == FileKind::File && attr.size > 0, "{path}"),
        }
        if let Some(Entry::File { mode, mtime, .. }) = self.entries.get(place) {
            let read = mode & 0o444;
            let mode = if shown == Shown::Folder { read | read >> 2 } else { read };
            assert_eq!((u32::from(attr.mode), attr.mtime.0), (mode, *mtime as i64), "{path}");
        }
        Some((attr, shown))
    }

    fn names_in(&self, place: &str, inside: Option<&str>) -> BTreeSet<String> {
        let child = |path: &String, folder: &str| {
            let rest = if folder.is_empty() { path } else { path.strip_prefix(folder)?.strip_prefix('/')? };
            Some(rest.split('/').next()?.to_owned())
        };
        match self.entries.get(place) {
            Some(Entry::File { content, .. }) => {
                let mut files: Vec<String> = content.files().unwrap().into_keys().collect();
                files.push("container.json".to_owned());
                files.iter().filter_map(|path| child(path, inside.unwrap_or(""))).collect()
            }
            _ => self.entries.keys().filter_map(|path| child(path, place)).collect(),
        }
    }

    fn list(&self, place: &str, inside: Option<&str>, plus: bool, step: usize) {
        let (ino, expected) = if place.is_empty() {
            (ROOT, self.names_in("", None))
        } else {
            let Some((attr, shown)) = self.look_up(place, inside) else { return };
            if shown != Shown::Folder {
                return self.vfs.forget(attr.ino, 1);
            }
            (attr.ino, self.names_in(place, inside))
        };
        let listed = walk::list_in_steps(&self.vfs, ino, step, plus);
        let names: BTreeSet<String> = listed.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names.len(), listed.len(), "{place}: a name is listed twice");
        let dots = [".".to_owned(), "..".to_owned()];
        assert_eq!(names, expected.into_iter().chain(dots).collect(), "{place}/{inside:?}");
        for entry in listed.iter().filter(|entry| !entry.name.starts_with('.')) {
            let found = walk::lookup(&self.vfs, ino, &entry.name).unwrap();
            assert_eq!((found.kind, found.ino), (entry.kind, entry.ino), "{place}: {}", entry.name);
            if let Some(attr) = &entry.attr {
                assert_eq!(*attr, found, "{place}: {}", entry.name);
            }
            // A listing with attributes counts as a look-up of each.
            self.vfs.forget(found.ino, 1 + u64::from(plus));
        }
        if ino != ROOT {
            self.vfs.forget(ino, 1);
        }
    }

    fn slice(bytes: &[u8], from: u32, length: u32) -> &[u8] {
        let from = (from as usize).min(bytes.len());
        &bytes[from..(from + length as usize).min(bytes.len())]
    }

    fn read(&self, place: &str, inside: Option<&str>, from: u32, length: u32) {
        let Some((attr, shown)) = self.look_up(place, inside) else { return };
        if let Shown::File(bytes) = &shown {
            let read = walk::read(&self.vfs, attr.ino, from.into(), length.into());
            assert_eq!(read.as_deref(), Ok(Self::slice(bytes, from, length)), "{place} {inside:?} {from}+{length}");
        }
        self.vfs.forget(attr.ino, 1);
    }

    /// What was looked up before is what it was, or an error; only an ordinary file follows what is written into it.
    fn read_again(&self, held: &Held, from: u32, length: u32) {
        let Shown::File(then) = &held.shown else { return };
        let now = match (held.host, self.entries.get(&held.place)) {
            (Some(host), Some(Entry::File { content, .. })) if self.inode(&held.place) == Some(host) => {
                Some(content.bytes())
            }
            _ => None,
        };
        let unchanged = self.state(&held.place) == held.state;
        match walk::read(&self.vfs, held.attr.ino, from.into(), length.into()) {
            Ok(read) => {
                let of_then = read == Self::slice(then, from, length);
                let of_now = now.as_deref().is_some_and(|now| read == Self::slice(now, from, length));
                assert!(of_then || of_now, "{}: neither what it was nor what it is", held.place);
            }
            Err(errno) => assert!(!unchanged && [ESTALE, EIO].contains(&errno), "{}: errno {errno}", held.place),
        }
    }

    fn stat_again(&self, held: &Held) {
        let unchanged = self.state(&held.place) == held.state;
        match self.vfs.attr(held.attr.ino) {
            // What is written beside it moves a folder's time, and into it, an ordinary file's size.
            Ok(attr) if held.host.is_none() && held.shown != Shown::Folder => {
                assert_eq!(attr, held.attr, "{}", held.place)
            }
            Ok(attr) => assert_eq!((attr.ino, attr.kind), (held.attr.ino, held.attr.kind), "{}", held.place),
            Err(error) => assert!(!unchanged && error.errno() == ESTALE, "{}: {error}", held.place),
        }
    }

    fn inode(&self, place: &str) -> Option<u64> {
        fs::symlink_metadata(self.host(place)).ok().map(|meta| meta.ino())
    }

    /// Everything below a folder, and itself, has another state: the kernel moves the change time of what is renamed.
    fn rename(&mut self, from: &str, to: &str) {
        let below = |path: &str| Path::new(path).starts_with(from);
        if !self.entries.contains_key(from) || self.entries.contains_key(to) || below(to) || !self.has_parent(to) {
            return;
        }
        fs::rename(self.host(from), self.host(to)).unwrap();
        let moved: Vec<String> = self.entries.keys().filter(|path| below(path)).cloned().collect();
        for path in moved {
            let mut entry = self.entries.remove(&path).unwrap();
            let (Entry::File { state, .. } | Entry::Folder(state)) = &mut entry;
            *state = self.next_state();
            let place = format!("{to}{}", &path[from.len()..]);
            // Only the paths that the operations know are looked at.
            self.entries.insert(place, entry);
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Write { at, content, over } => {
                if self.has_parent(at) {
                    self.write(at, content, *over);
                }
            }
            Op::Folder(at) => {
                if self.has_parent(at) && !self.entries.contains_key(*at) {
                    fs::create_dir(self.host(at)).unwrap();
                    let made = Entry::Folder(self.next_state());
                    self.entries.insert((*at).to_owned(), made);
                }
            }
            Op::Truncate(at, size) => {
                let Some(Entry::File { content, .. }) = self.entries.get(*at) else { return };
                // What is left is no container: a kastore says how long its file is, and of a Shard file not even the
                // header is left. (Of a longer part of one only the block would be damaged.)
                let size = if matches!(content, Content::Shard { .. }) { size % 64 } else { *size };
                let mut bytes = content.bytes();
                if bytes.len() > usize::from(size) {
                    bytes.truncate(usize::from(size));
                    self.write(at, &Content::Plain(bytes), true);
                }
            }
            Op::Rename(from, to) => self.rename(from, to),
            Op::Delete(at) => match self.entries.get(*at) {
                None => {}
                Some(Entry::File { .. }) => {
                    fs::remove_file(self.host(at)).unwrap();
                    self.entries.remove(*at);
                }
                Some(Entry::Folder(_)) => {
                    fs::remove_dir_all(self.host(at)).unwrap();
                    self.entries.retain(|path, _| !Path::new(path).starts_with(at));
                }
            },
            Op::Chmod(at, to) => {
                let (path, next) = (self.host(at), self.next_state());
                let Some(Entry::File { mode, state, .. }) = self.entries.get_mut(*at) else { return };
                fs::set_permissions(path, Permissions::from_mode(*to)).unwrap();
                (*mode, *state) = (*to, next);
            }
            Op::LookUp(at, inside) => {
                let Some((attr, shown)) = self.look_up(at, *inside) else { return };
                let ordinary = inside.is_none() && matches!(shown, Shown::File(_));
                let host = if ordinary { self.inode(at) } else { None };
                self.held.push(Held { attr, shown, place: (*at).to_owned(), state: self.state(at), host });
            }
            Op::List { at, inside, plus, step } => self.list(at, *inside, *plus, *step),
            Op::Read { at, inside, from, length } => self.read(at, *inside, *from, *length),
            Op::Stat(held) => {
                if let Some(held) = self.held.get(*held) {
                    self.stat_again(held);
                }
            }
            Op::ReadAgain { held, from, length } => {
                if let Some(held) = self.held.get(*held) {
                    self.read_again(held, *from, *length);
                }
            }
            Op::Forget(held) => {
                if *held < self.held.len() {
                    let held = self.held.swap_remove(*held);
                    self.forget(&held);
                }
            }
            Op::Sweep => self.vfs.sweep(),
        }
    }

    /// Gives a look-up back. The last one of a number makes it unknown: none is leaked.
    fn forget(&self, held: &Held) {
        self.vfs.forget(held.attr.ino, 1);
        if self.held.iter().all(|other| other.attr.ino != held.attr.ino) {
            let error = self.vfs.attr(held.attr.ino).expect_err("a number that was forgotten is known");
            assert_eq!(error.errno(), ESTALE);
        }
    }
}

#[test]
fn filesystem_and_model_agree() {
    let mut config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    if let Ok(cases) = std::env::var("PROPTEST_CASES") {
        config.cases = cases.parse().unwrap();
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_261_122);
    }
    let sizes = prop::sample::select(vec![4096u64, 1 << 20]);
    proptest!(config, |(cache_size in sizes, ops in vec(op(), 1..60))| {
        let mut world = World::new(cache_size);
        ops.iter().for_each(|op| world.run(op));
        while let Some(held) = world.held.pop() {
            world.stat_again(&held);
            world.forget(&held);
        }
        world.list("", None, true, 2);
    });
}
