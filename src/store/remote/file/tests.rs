use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::*;
use crate::{
    cache::{DiskTierOptions, Verify},
    disk::Limits,
    store::remote::Options,
};

/// A server of one object that says what it was asked, and fails or waits when told to.
struct Server {
    id: ObjectId,
    bytes: Vec<u8>,
    asked: Mutex<Vec<Range<u64>>>,
    /// What it answers, after so many bytes of each body.
    fails: Mutex<Option<(FetchError, usize)>>,
    /// Requests wait while this is held for writing.
    gate: tokio::sync::RwLock<()>,
    under_way: AtomicUsize,
}

impl Server {
    fn new(key: &str, size: usize) -> Arc<Self> {
        let mut state = 88_172_645_463_325_252_u64 ^ size as u64;
        let bytes = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        });
        Arc::new(Self {
            id: ObjectId { store: "test://store".into(), key: key.into(), etag: "\"1\"".into(), size: size as u64 },
            bytes: bytes.take(size).collect(),
            asked: Mutex::default(),
            fails: Mutex::default(),
            gate: tokio::sync::RwLock::new(()),
            under_way: AtomicUsize::new(0),
        })
    }

    fn take_asked(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.asked.lock())
    }

    fn fail(&self, error: FetchError, after: usize) {
        *self.fails.lock() = Some((error, after));
    }
}

fn sum(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

impl Fetch for Server {
    fn id(&self) -> &ObjectId {
        &self.id
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        sink: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), FetchError>> {
        Box::pin(async move {
            self.asked.lock().push(range.clone());
            self.under_way.fetch_add(1, SeqCst);
            let open = self.gate.read().await;
            self.under_way.fetch_sub(1, SeqCst);
            drop(open);
            let fails = self.fails.lock().clone();
            let bytes = &self.bytes[range.start as usize..range.end as usize];
            let given = fails.as_ref().map_or(bytes.len(), |(_, after)| (*after).min(bytes.len()));
            for part in bytes[..given].chunks(40_000) {
                sink(Bytes::copy_from_slice(part));
                tokio::task::yield_now().await;
            }
            fails.map_or(Ok(()), |(error, _)| Err(error))
        })
    }
}

struct Setting {
    // Ends first.
    blocks: Arc<Blocks>,
    runtime: tokio::runtime::Runtime,
}

/// A store that may fetch so many bytes ahead, with a cache of four times as many.
fn setting(disk: Option<Arc<Disk>>, ahead: u64) -> Setting {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cache = Cache::new(4 * ahead, Verify::Lazy);
    Setting { blocks: Blocks::new(runtime.handle().clone(), disk, cache, ahead), runtime }
}

fn disk(folder: &std::path::Path) -> Arc<Disk> {
    Disk::open(&folder.join("blocks"), Limits { size: 1 << 30, free: 0, queue: 64 << 20 }).unwrap()
}

fn read(file: &RemoteFile, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
    read_within(file, range, Wait::Always)
}

fn read_within(file: &RemoteFile, range: Range<u64>, wait: Wait) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_at(range.start, &mut bytes, wait).map(|()| bytes)
}

fn check(file: &RemoteFile, server: &Server, range: Range<u64>) {
    let bytes = read(file, range.clone()).unwrap();
    assert!(bytes == server.bytes[range.start as usize..range.end as usize], "{range:?}");
}

/// Numbers from 0 on below a bound, the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn any_range_is_the_slice_of_the_object() {
    for (size, with_disk, memory) in
        [(1, true, 1 << 20), (70_000, false, 1 << 20), (12_345_678, true, 4 << 20), (12_345_678, false, 64 << 20)]
    {
        let folder = tempfile::tempdir().unwrap();
        let setting = setting(with_disk.then(|| disk(folder.path())), memory);
        let server = Server::new("object", size);
        thread::scope(|scope| {
            for seed in 0..4 {
                let (setting, server) = (&setting, &server);
                scope.spawn(move || {
                    let file = setting.blocks.file(server.clone());
                    let mut dice = Dice(seed);
                    let mut at = 0;
                    for _ in 0..150 {
                        let most = [100, 5_000, 140_000, 3_000_000][dice.next(4) as usize];
                        let start = if dice.next(2) == 0 { at } else { dice.next(size as u64) };
                        at = (start + 1 + dice.next(most)).min(size as u64);
                        match dice.next(10) {
                            0 => file.prefetch(&[start..at, at..at + 10_000_000]),
                            _ => check(&file, server, start.min(at)..at),
                        }
                        at %= size as u64;
                    }
                });
            }
        });
        let file = setting.blocks.file(server.clone());
        assert!(read(&file, 0..size as u64 + 1).is_err() && read(&file, u64::MAX - 1..u64::MAX).is_err());
        assert!(read(&file, 5.min(size as u64)..5.min(size as u64)).unwrap().is_empty());
    }
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "one request is a range")]
fn a_front_is_one_request_and_an_end_another() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 50 << 20);
    let file = setting.blocks.file(server.clone());
    for at in [0, 4, 100, 4096, 70_000, 255_000, 12] {
        check(&file, &server, at..at + 1000);
    }
    assert_eq!(server.take_asked(), [0..FRONT]);
    let size = server.id.size;
    for at in [size - 64, size - 100_000, size - 200_000] {
        check(&file, &server, at..at + 60);
    }
    assert_eq!(server.take_asked(), [size - TAIL..size]);
    // An array of 100 KB somewhere, aligned to nothing.
    check(&file, &server, 10_000_001..10_100_001);
    assert_eq!(server.take_asked().len(), 1);
    // What came when it was looked up is not asked for again.
    let other = Server::new("another", 50 << 20);
    let file = setting.blocks.file(other.clone());
    file.add_front(&other.bytes[..128 << 10]);
    check(&file, &other, 0..100_000);
    assert_eq!(other.take_asked(), []);
}

#[test]
fn reading_at_random_fetches_little() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 64 << 20);
    let file = setting.blocks.file(server.clone());
    let mut dice = Dice(7);
    for _ in 0..300 {
        let at = dice.next((64 << 20) / 4096) * 4096;
        check(&file, &server, at..at + 4096);
    }
    let asked = server.take_asked();
    assert!(sum(&asked) <= 300 * GRANULE + FRONT + TAIL, "{} bytes", sum(&asked));
}

#[test]
fn reading_in_order_fetches_each_byte_once_and_in_large_requests() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 100_000_001);
    let file = setting.blocks.file(server.clone());
    for start in (0..server.id.size).step_by(128 << 10) {
        check(&file, &server, start..(start + (128 << 10)).min(server.id.size));
    }
    let asked = server.take_asked();
    assert_eq!(sum(&asked), server.id.size);
    assert!(asked.len() < 50, "{} requests", asked.len());
    // All at once.
    let other = Server::new("another", 30_000_000);
    check(&setting.blocks.file(other.clone()), &other, 1_000_000..25_000_000);
    let asked = other.take_asked();
    assert!(sum(&asked) <= 25_000_000 && asked.len() <= 8, "{asked:?}");
}

#[test]
fn what_is_announced_is_fetched_before_it_is_read() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 64 << 20);
    let file = setting.blocks.file(server.clone());
    let ranges = [5_000_000..5_100_000, 20_000_000..28_000_000, 40_000_000..40_000_001];
    file.prefetch(&ranges);
    let asked = || sum(&server.asked.lock());
    // All three, in whole granules.
    let whole = |range: &Range<u64>| range.end.next_multiple_of(GRANULE) - range.start / GRANULE * GRANULE;
    let before: u64 = ranges.iter().map(whole).sum();
    while asked() < before {
        thread::yield_now();
    }
    for range in ranges {
        check(&file, &server, range.clone());
        assert!(read_within(&file, range, Wait::Never).is_ok());
    }
    // What lies in one run is lent as it is, and what does not is not.
    let (bytes, part) = file.shared(&(5_000_100..5_000_200)).unwrap();
    assert_eq!((*bytes).as_ref()[part], server.bytes[5_000_100..5_000_200]);
    assert!(file.shared(&(20_000_000..28_000_000)).is_none() && file.shared(&(9_000_000..9_000_001)).is_none());
    assert_eq!(asked(), before);
    // Ranges that are not in it announce nothing.
    file.prefetch(&[u64::MAX - 5..u64::MAX, 64 << 20..65 << 20, 9..9]);
    assert_eq!(asked(), before);
    // Who waits for nothing gets nothing of what was evicted, and asks for nothing.
    setting.blocks.cache.evict_all();
    let evicted = read_within(&file, 20_000_000..20_100_000, Wait::Never);
    assert!(matches!(evicted, Err(SourceError::WouldBlock)) && asked() == before);
}

/// Reads an array as a kernel does: a little, then more and more.
fn read_in_pieces(file: &RemoteFile, server: &Server, array: &Range<u64>) {
    let (mut at, mut length) = (array.start, 32 << 10);
    while at < array.end {
        let end = array.end.min(at + length);
        file.prefetch(std::slice::from_ref(array));
        check(file, server, at..end);
        (at, length) = (end, 2 * length);
    }
}

#[test]
fn an_array_that_is_read_in_pieces_is_one_request() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 64 << 20);
    let file = setting.blocks.file(server.clone());
    for (number, start) in (0..20).zip((5_000_001..).step_by(2_500_000)) {
        let array = start..start + 262_144;
        read_in_pieces(&file, &server, &array);
        assert_eq!(server.take_asked().len(), 1, "array {number}");
    }
    // One after the other they are read ahead all the same.
    let other = Server::new("another", 64 << 20);
    let file = setting.blocks.file(other.clone());
    for start in (5_000_001..).step_by(262_144).take(80) {
        read_in_pieces(&file, &other, &(start..start + 262_144));
    }
    let asked = other.take_asked();
    assert!(asked.len() < 40, "{} requests", asked.len());
}

#[test]
fn memory_of_blocks_is_used_again_within_the_budget() {
    let cache = Cache::new(16 << 20, Verify::Lazy);
    let fill = |number: u64, length: u64| {
        let (start, key) = (number * BLOCK, Key::new(0, Tag::Fetched, 1, number));
        let memory = cache.expect_fetched(cache.take(length)).unwrap();
        let run = Run { key, range: start..start + length, bytes: memory, ahead: None };
        let bytes = vec![number as u8; length as usize];
        // Nothing of the run that had its memory before is in it.
        assert_eq!(
            (run.bytes.add(&bytes[..1000]), run.is_ready(start + 1000), run.is_ready(start + 1001)),
            (1000, true, false)
        );
        assert!(run.bytes.whole().is_none());
        run.bytes.add(&bytes[1000..]);
        assert!(run.bytes.whole().unwrap()[..] == bytes[..]);
        assert_eq!(run.bytes.add(&bytes), 0);
        cache.keep_fetched(run.key, &run.bytes);
        // And what each entry takes by itself.
        assert!(cache.usage().1 <= (16 << 20) + (64 << 10), "{}", cache.usage().1);
    };
    for number in 0..40 {
        fill(number, if number % 3 == 0 { BLOCK - 2000 } else { BLOCK });
    }
    assert!(cache.usage().1 > 14 << 20);
    for number in 40..400 {
        fill(number, GRANULE);
    }
    cache.forget_store(0);
    assert_eq!(cache.usage().1, 0);
}

#[test]
fn readers_of_one_range_cause_one_request() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 10 << 20);
    let gate = server.gate.blocking_write();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| check(&setting.blocks.file(server.clone()), &server, 3_000_000..3_200_000));
        }
        while server.under_way.load(SeqCst) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        drop(gate);
    });
    assert_eq!(server.take_asked().len(), 1);
}

#[test]
fn an_object_that_does_not_answer_holds_up_no_other() {
    let setting = setting(None, 4 << 20);
    let slow = Server::new("slow", 10 << 20);
    let gate = slow.gate.blocking_write();
    thread::scope(|scope| {
        for reader in 0..20_u64 {
            let (setting, slow) = (&setting, &slow);
            let range = reader * 500_000..reader * 500_000 + 400_000;
            scope.spawn(move || check(&setting.blocks.file(slow.clone()), slow, range));
        }
        while slow.under_way.load(SeqCst) < 4 {
            thread::yield_now();
        }
        // More than there is memory for, all of it waited for; this one is read all the same.
        let server = Server::new("object", 8 << 20);
        let file = setting.blocks.file(server.clone());
        for start in (0..server.id.size).step_by(1 << 20) {
            check(&file, &server, start..start + (1 << 20));
        }
        drop(gate);
    });
}

#[test]
fn a_second_mount_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let size = 9_000_000;
    let reads = |file: &RemoteFile, server: &Server| {
        check(file, server, 0..100);
        check(file, server, size - 1000..size);
        for start in (3_000_000..7_000_000).step_by(100_000) {
            check(file, server, start..start + 100_000);
        }
        check(file, server, 8_200_000..8_204_096);
    };
    let server = Server::new("object", size as usize);
    let first = setting(Some(disk(folder.path())), 64 << 20);
    reads(&first.blocks.file(server.clone()), &server);
    // Requests without a waiting reader end when the runtime says so.
    let asked = server.take_asked();
    assert!(!asked.is_empty());
    while first.blocks.counters.fetched_bytes.load(Relaxed) < sum(&asked) {
        thread::sleep(Duration::from_millis(5));
    }
    drop(first);
    let again = setting(Some(disk(folder.path())), 64 << 20);
    server.fail(FetchError::Failed("the network is gone".into()), 0);
    reads(&again.blocks.file(server.clone()), &server);
    assert_eq!(server.take_asked(), []);
    assert!(again.blocks.counters.bytes_from_disk.load(Relaxed) > 1_000_000);
    // Another state of the object is nothing that the disk has.
    let mut changed = Server::new("object", size as usize);
    Arc::get_mut(&mut changed).unwrap().id.etag = "\"2\"".into();
    check(&again.blocks.file(changed.clone()), &changed, 4_000_000..4_100_000);
    assert!(!changed.take_asked().is_empty());
    // Nor is one that has no tag kept.
    let mut timed = Server::new("timed", 1_000_000);
    Arc::get_mut(&mut timed).unwrap().id.etag = "modified 5".into();
    check(&again.blocks.file(timed.clone()), &timed, 0..1_000_000);
    assert!(again.blocks.disk_for(&timed.id).is_none());
}

#[test]
fn failures_are_told_and_tried_again() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 20 << 20);
    let file = setting.blocks.file(server.clone());
    check(&file, &server, 0..1000);
    // A body that ends in an error: what came of it is right.
    server.fail(FetchError::TimedOut("no answer within 30 s".into()), 100_000);
    check(&file, &server, 5 << 20..(5 << 20) + 50_000);
    let error = read(&file, 10 << 20..(10 << 20) + 200_000).unwrap_err();
    assert!(error.to_string().contains("no answer within 30 s"), "{error}");
    // What is in memory is readable, and the next reader gets an answer.
    check(&file, &server, 500..2000);
    *server.fails.lock() = None;
    check(&file, &server, 10 << 20..(10 << 20) + 200_000);
    // A request that ended without an answer leaves no reader waiting.
    server.fail(FetchError::Failed("x".into()), 0);
    let gate = server.gate.blocking_write();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, 15 << 20..(15 << 20) + 10));
        while server.under_way.load(SeqCst) == 0 {
            thread::yield_now();
        }
        let Setting { blocks, runtime } = setting;
        runtime.shutdown_background();
        assert!(reader.join().unwrap().is_err());
        drop(blocks);
    });
    drop(gate);
}

#[test]
fn an_object_that_has_changed_is_never_read_again() {
    let setting = setting(None, 64 << 20);
    let server = Server::new("object", 20 << 20);
    let file = setting.blocks.file(server.clone());
    check(&file, &server, 0..1000);
    server.fail(FetchError::Changed, 0);
    assert!(matches!(read(&file, 9_000_000..9_000_010), Err(SourceError::Changed)));
    assert!(matches!(read(&file, 0..10), Err(SourceError::Changed)));
    assert!(file.check_unchanged(Wait::Always).is_err());
    // Who opens it anew, in a state that the server has again, gets it.
    *server.fails.lock() = None;
    check(&setting.blocks.file(server.clone()), &server, 9_000_000..9_000_010);
}

#[test]
fn memory_is_bounded() {
    let setting = setting(None, 8 << 20);
    let servers: Vec<_> = (0..4).map(|number| Server::new(&format!("{number}"), 40 << 20)).collect();
    thread::scope(|scope| {
        for server in &servers {
            let setting = &setting;
            scope.spawn(move || {
                let file = setting.blocks.file(server.clone());
                for start in (0..server.id.size).step_by(256 << 10) {
                    check(&file, server, start..start + (256 << 10));
                    let (limit, taken) = setting.blocks.memory();
                    // And what each reader waits for.
                    assert!(taken <= limit + (8 << 20), "{taken}");
                }
            });
        }
    });
    // The last answers may still be in the hands of their requests.
    let until = Instant::now() + Duration::from_secs(60);
    while setting.blocks.cache.usage().1 > 0 && Instant::now() < until {
        setting.blocks.cache.evict_all();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(setting.blocks.memory().1, 0);
    assert_eq!(setting.blocks.cache.usage().1, 0, "objects that nobody knows");
}

#[test]
fn one_folder_of_one_size_is_one_disk_cache() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("blocks");
    let spill = DiskTierOptions { folder: folder.clone(), size: 1 << 30, wait: false, all: false };
    let cache = Cache::with_disk_tier(64 << 20, Verify::Lazy, spill.open(64 << 20).unwrap());
    let open = |size| {
        let options = Options { disk_cache: Some(folder.clone()), disk_cache_size: Some(size), ..Options::default() };
        options.open_disk_cache(&cache).unwrap().unwrap()
    };
    let own = cache.disk_tier().unwrap().disk();
    assert!(Arc::ptr_eq(&open(1 << 30), own));
    // Two sizes of one folder hold each for what was opened with it.
    assert!(!Arc::ptr_eq(&open(2 << 30), own));
}

#[test]
fn small_objects_are_fetched_whole_where_they_are_read_whole() {
    let setting = setting(None, 64 << 20);
    let mut requests = 0;
    for number in 0..40 {
        let server = Server::new(&format!("{number}"), 1_000_000);
        let file = setting.blocks.file(server.clone());
        check(&file, &server, 0..1000);
        check(&file, &server, 300_000..1_000_000);
        requests += server.take_asked().len();
    }
    assert!(requests <= 45, "{requests}");
    // Where only the fronts are read, it stops.
    let mut bytes = 0;
    for number in 0..40 {
        let server = Server::new(&format!("front {number}"), 1_000_000);
        check(&setting.blocks.file(server.clone()), &server, 0..1000);
        bytes += sum(&server.take_asked());
    }
    assert!(bytes <= 24 * FRONT + 16_000_000 + FRONT, "{bytes}");
}
