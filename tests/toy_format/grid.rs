//! A toy format with one array in chunks: what HDF5 and Zarr need of the engine, and no more than a map from a chunk to
//! a range.

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    common::{Random, walk},
    toys::grids::{ABSENT, COUNTS, DAMAGED, DATA, GRIDS, SHAPE, all, chunk_of, file, linear, value},
};
use shardfs::{
    codec::ChecksumKind,
    tree::Format,
    vfs::{FileKind, Options, Vfs},
    view::{ReadContext, Slice, grid},
};

/// Writes a file. Returns the elements of all chunks as they are before the filters.
fn write(path: &Path, is_damaged: bool) -> Vec<Vec<u8>> {
    let (bytes, chunks) = file(is_damaged);
    fs::write(path, bytes).unwrap();
    chunks
}

fn open(folder: &Path, cache_size: u64) -> Vfs {
    static FORMATS: [&Format; 1] = [&GRIDS];
    walk::open(folder, Options { formats: &FORMATS, cache_size, ..Options::default() })
}

fn expected() -> Vec<u8> {
    all(SHAPE).flat_map(|at| value(at).to_le_bytes()).collect()
}

#[test]
fn an_array_in_chunks_is_shown_whole_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let chunks = write(&folder.path().join("a.grids"), false);
    // One that has room for the array, and one that has not for a slab.
    for cache_size in [64 << 20, 64 << 10] {
        let vfs = open(folder.path(), cache_size);
        let file = walk::resolve(&vfs, "a.grids/data.npy").unwrap();
        let (expected, header) = (expected(), file.size - 10 * 9 * 13 * 4);
        assert_eq!(walk::read(&vfs, file.ino, header, file.size).unwrap(), expected);
        if cache_size > 1 << 20 {
            let misses = vfs.cache().counters.misses.load(Relaxed);
            assert_eq!(misses, 36 - ABSENT.len() as u64, "each chunk is decoded once");
        }
        let mut random = Random(31);
        for _ in 0..300 {
            let start = random.below(expected.len() as u64);
            let length = 1 + random.below(200).min(expected.len() as u64 - start - 1);
            let bytes = walk::read(&vfs, file.ino, header + start, length).unwrap();
            assert_eq!(bytes, expected[start as usize..(start + length) as usize]);
        }
        for place in all(COUNTS) {
            let number = linear(place, COUNTS);
            let path = |is_stored| format!("a.grids/.raw/data/{}", grid::chunk_name(&place, is_stored));
            let (raw, stored) = (walk::resolve(&vfs, &path(false)), walk::resolve(&vfs, &path(true)));
            assert_eq!((raw.is_some(), stored.is_some()), (!ABSENT.contains(&number), !ABSENT.contains(&number)));
            let (Some(raw), Some(stored)) = (raw, stored) else { continue };
            assert_eq!(raw.kind, FileKind::File);
            assert_eq!(walk::read_all(&vfs, &raw).unwrap(), chunks[number as usize]);
            let stored = walk::read_all(&vfs, &stored).unwrap();
            let (bytes, sum) = stored.split_last_chunk::<4>().unwrap();
            ChecksumKind::Fletcher32.check(u32::from_le_bytes(*sum), bytes).unwrap();
        }
    }
    assert!(walk::resolve(&open(folder.path(), 1 << 20), "a.grids/.raw/data/4.0.0.bin").is_none());
}

#[test]
fn a_damaged_chunk_is_an_error_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.grids"), true);
    let vfs = open(folder.path(), 64 << 20);
    let file = walk::resolve(&vfs, "a.grids/data.npy").unwrap();
    let header = file.size - 10 * 9 * 13 * 4;
    for at in all(SHAPE) {
        let read = walk::read(&vfs, file.ino, header + 4 * linear(at, SHAPE), 4);
        match chunk_of(at) == DAMAGED {
            true => assert_eq!(read, Err(libc::EIO), "{at:?}"),
            false => assert_eq!(read.unwrap(), value(at).to_le_bytes(), "{at:?}"),
        }
    }
    let raw = walk::resolve(&vfs, "a.grids/.raw/data/0.2.2.bin").unwrap();
    assert_eq!(walk::read_all(&vfs, &raw), Err(libc::EIO));
    let stored = walk::resolve(&vfs, "a.grids/.raw/data/0.2.2.stored.bin").unwrap();
    assert!(walk::read_all(&vfs, &stored).is_ok());
    let problems: Vec<_> = vfs.problems().into_iter().map(|problem| problem.message).collect();
    assert!(problems.iter().all(|problem| problem.contains("fletcher32 is")), "{problems:?}");
}

#[test]
fn slices_take_only_their_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grids");
    write(&path, true);
    let source: Arc<dyn shardfs::source::Source> = Arc::new(fs::read(&path).unwrap());
    let cache = shardfs::cache::Cache::new(64 << 20, shardfs::cache::Verify::Lazy);
    let reader = ReadContext::new(source, cache, 0);
    let container = GRIDS.open(&reader, None).unwrap();
    let array = container.array(&reader, DATA).unwrap().unwrap();
    // numpy's a[:, 0, ::7]: of the first of three rows of chunks, which the damaged chunk is not in.
    let slices = [(0, 1, 10), (0, 1, 1), (0, 7, 2)].map(|(start, step, count)| Slice { start, step, count });
    let mut out = vec![0; 10 * 2 * 4];
    array.fill_slices(&reader, &slices, &mut out).unwrap();
    let expected = (0..10).flat_map(|i| [0, 7].map(|k| value([i, 0, k]))).flat_map(i32::to_le_bytes);
    assert_eq!(out, expected.collect::<Vec<_>>());
    assert_eq!(reader.cache.counters.misses.load(Relaxed), 4 * 2);
}
