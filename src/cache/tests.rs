use std::{sync::Barrier, thread};

use crate::{
    held::Held,
    source::{SourceError, Wait},
};

use super::*;

/// A source that counts how often it is read.
struct Counted {
    bytes: Vec<u8>,
    reads: AtomicU64,
}

impl Source for Counted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        if wait == Wait::Never {
            return Err(SourceError::WouldBlock);
        }
        self.reads.fetch_add(1, Relaxed);
        self.bytes.read_at(offset, buf, wait)
    }
}

const KEY: Key = key(0);

const fn key(number: u32) -> Key {
    Key::new(1, Tag::Block, number as u64, 0)
}

const fn of<'a>(key: Key, block: &'a Block, source: &'a Arc<dyn Source>) -> KeyedBlock<'a> {
    KeyedBlock { key, block, source }
}

impl Cache {
    /// Evicts everything that is idle.
    pub(crate) fn evict_all(&self) {
        while self.entries.evict(u64::MAX) > 0 {}
    }
}

/// The range of one byte.
fn byte(offset: u64) -> Range<u64> {
    offset..offset + 1
}

fn zstd_block(bytes: &[u8]) -> (Block, Arc<dyn Source>, Arc<Counted>) {
    let stored = zstd::bulk::compress(bytes, 1).unwrap();
    let block = Block {
        offset: 0,
        stored_size: stored.len() as u64,
        size: bytes.len() as u64,
        codec: Codec::Zstd,
        crc: Some(Crc::crc32c(crc32c::crc32c(bytes))),
    };
    let source = Arc::new(Counted { bytes: stored, reads: AtomicU64::new(0) });
    (block, source.clone(), source)
}

#[test]
fn what_never_fits_beside_what_the_same_work_holds_is_refused_at_once() {
    let reserve = |cache: &Cache| {
        let room = cache.hold(460_000);
        let _held = Held::new(room.bytes());
        cache.reserve(17_430_000).map(drop)
    };
    // It fits alone, but nothing that another thread does would make room for it.
    let refused = reserve(&Cache::new(1 << 20, Verify::Lazy)).unwrap_err();
    assert_eq!((refused.is_final, refused.needed), (true, 17_890_000));
    assert!(refused.to_string().contains("--cache-size must be 2M or more"), "{refused}");
    reserve(&Cache::new(refused.least, Verify::Lazy)).unwrap();
    drop(Cache::new(1 << 20, Verify::Lazy).reserve(17_430_000).unwrap());
}

#[test]
fn eight_readers_decode_once() {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let (block, source, counted) = zstd_block(&bytes);
    let cache = Cache::new(64 << 20, Verify::Lazy);
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                assert_eq!(**cache.piece(of(KEY, &block, &source), &byte(0)).unwrap().bytes, bytes);
            });
        }
    });
    assert_eq!(counted.reads.load(Relaxed), 1);
    assert_eq!(cache.counters.misses.load(Relaxed), 1);
}

#[test]
fn the_budget_holds_for_many_blocks() {
    let cache = Cache::new(1 << 20, Verify::Lazy);
    let bytes = vec![3; 300_000];
    let (block, source, _) = zstd_block(&bytes);
    thread::scope(|scope| {
        for first in 0..4 {
            let (cache, block, source) = (&cache, &block, &source);
            scope.spawn(move || {
                for number in 0..20 {
                    let key = key(first * 100 + number);
                    assert_eq!(cache.piece(of(key, block, source), &byte(5)).unwrap().bytes.len(), 300_000);
                    let (budget, used) = cache.usage();
                    assert!(used <= budget, "{used} of {budget}");
                }
            });
        }
    });
    assert!(cache.counters.evictions.load(Relaxed) >= 70);
}

#[test]
fn a_block_larger_than_the_budget_is_served_all_the_same() {
    let cache = Cache::new(1000, Verify::Lazy);
    let (block, source, _) = zstd_block(&vec![3; 300_000]);
    assert_eq!(cache.piece(of(KEY, &block, &source), &byte(299_999)).unwrap().bytes.len(), 300_000);
}

#[test]
fn large_blocks_come_in_pieces_and_a_bad_checksum_is_final() {
    let size = limits::WHOLE_BLOCK as usize + 12_345;
    let bytes: Vec<u8> = (0..size).map(|i| (i / 1000) as u8).collect();
    let (mut block, source, _) = zstd_block(&bytes);
    let cache = Cache::new(1 << 30, Verify::Lazy);
    let piece = cache.piece(of(KEY, &block, &source), &byte(size as u64 - 1)).unwrap();
    assert_eq!(**piece.bytes, bytes[piece.start as usize..]);
    assert_eq!(cache.piece(of(KEY, &block, &source), &byte(5)).unwrap().bytes.len(), limits::FIRST_PIECE);
    assert_eq!(cache.piece(of(KEY, &block, &source), &byte(9 << 20)).unwrap().bytes.len(), limits::DECODED_PIECE);

    block.crc = Some(Crc::crc32c(1));
    let bad = key(1);
    assert!(cache.piece(of(bad, &block, &source), &byte(size as u64 - 1)).is_err());
    assert!(matches!(
        *cache.piece(of(bad, &block, &source), &byte(0)).unwrap_err(),
        BlockError::Checksum { stored: 1, .. }
    ));
    let off = Cache::new(1 << 30, Verify::Off);
    assert!(off.piece(of(bad, &block, &source), &byte(size as u64 - 1)).is_ok());
    // strict: not even the first byte
    let strict = Cache::new(1 << 30, Verify::Strict);
    assert!(strict.piece(of(bad, &block, &source), &byte(0)).is_err());
}

#[test]
fn a_block_that_fails_after_bytes_of_it_were_handed_out_is_announced_without_another_reader() {
    let (mut block, source, _) = zstd_block(&vec![3; limits::WHOLE_BLOCK as usize + 12_345]);
    block.crc = Some(Crc::crc32c(1));
    let cache = Cache::new(1 << 30, Verify::Lazy);
    let (sender, announced) = std::sync::mpsc::channel();
    let container = key(1).container().unwrap();
    let late = cache.on_late_failure(container, Arc::new(move || sender.send(()).unwrap()));
    // The reader of the first piece never comes back.
    assert!(cache.piece(of(key(1), &block, &source), &byte(0)).is_ok());
    announced.recv().unwrap();
    // Not for a container that is closed: its channel's other end is gone.
    drop(late);
    assert!(announced.recv().is_err());
}

#[test]
fn checksums_over_stored_bytes_are_accepted_for_compressed_blocks_only() {
    let (mut block, source, counted) = zstd_block(&[9; 5000]);
    block.crc = Some(Crc::crc32c(crc32c::crc32c(&counted.bytes)));
    let cache = Cache::new(1 << 20, Verify::Lazy);
    assert_eq!(cache.piece(of(KEY, &block, &source), &byte(0)).unwrap().bytes.len(), 5000);
}

#[test]
fn uncompressed_blocks_keep_only_a_verdict() {
    let source: Arc<dyn Source> = Arc::new(vec![1u8; 100]);
    let good = Block {
        offset: 10,
        stored_size: 50,
        size: 50,
        codec: Codec::None,
        crc: Some(Crc::crc32c(crc32c::crc32c(&[1; 50]))),
    };
    let bad = Block { crc: Some(Crc::crc32c(7)), ..good.clone() };
    let cache = Cache::new(1 << 20, Verify::Lazy);
    assert!(!cache.is_decoded(KEY));
    cache.check(of(KEY, &good, &source), &(0..1), Wait::Always).unwrap();
    assert!(cache.is_decoded(KEY));
    let other = key(1);
    assert!(matches!(
        *cache.check(of(other, &bad, &source), &(0..1), Wait::Always).unwrap_err(),
        BlockError::Checksum { stored: 7, .. }
    ));
    assert_eq!(cache.usage().1, 2 * OVERHEAD);
    cache.check(of(other, &Block { crc: None, ..bad }, &source), &(0..1), Wait::Never).unwrap();
}

#[test]
fn an_uncompressed_block_is_read_and_checked_in_one_pass() {
    let source: Arc<dyn Source> = Arc::new((0..100).collect::<Vec<u8>>());
    let crc = crc32c::crc32c(&(10..60).collect::<Vec<u8>>());
    let good = Block { offset: 10, stored_size: 50, size: 50, codec: Codec::None, crc: Some(Crc::crc32c(crc)) };
    let bad = Block { crc: Some(Crc::crc32c(7)), ..good.clone() };
    let cache = Cache::new(1 << 20, Verify::Lazy);
    let mut out = [0; 50];
    // Only almost all of a block, and only of one that has a checksum.
    for (at, length) in [(0, 39), (11, 39), (5, 30), (0, 0), (1, 50), (u64::MAX, 2)] {
        assert!(cache.read_checked(of(KEY, &good, &source), at, &mut out[..length], Wait::Never).is_none());
    }
    assert!(
        cache.read_checked(of(KEY, &Block { crc: None, ..good.clone() }, &source), 0, &mut out, Wait::Always).is_none()
    );
    assert!(!cache.is_decoded(KEY));
    cache.read_checked(of(KEY, &good, &source), 0, &mut out, Wait::Never).unwrap().unwrap();
    assert!(cache.is_decoded(KEY) && out.iter().copied().eq(10..60));
    assert!(cache.read_checked(of(KEY, &good, &source), 0, &mut out, Wait::Never).is_none(), "the verdict is known");
    for (number, (at, length)) in [(10, 40), (0, 40), (3, 45), (4, 46)].into_iter().enumerate() {
        for (block, is_good) in [(&good, true), (&bad, false)] {
            let key = key(10 + 2 * number as u32 + u32::from(is_good));
            let read = cache.read_checked(of(key, block, &source), at, &mut out[..length], Wait::Always).unwrap();
            assert_eq!(read.is_ok(), is_good, "{at} {length}");
            assert!(out[..length].iter().copied().eq(10 + at as u8..10 + at as u8 + length as u8));
        }
    }
    let failed = cache.read_checked(of(key(1), &bad, &source), 0, &mut out, Wait::Always).unwrap().unwrap_err();
    assert!(matches!(*failed, BlockError::Checksum { stored: 7, .. }));
    // The verdict holds for readers that wait.
    assert!(matches!(
        *cache.check(of(key(1), &bad, &source), &(0..1), Wait::Always).unwrap_err(),
        BlockError::Checksum { .. }
    ));
    assert_eq!(cache.usage().1, 10 * OVERHEAD);
    let (_, far, _) = zstd_block(&[5; 5000]);
    assert!(
        cache.read_checked(of(key(2), &Block { offset: 0, ..good.clone() }, &far), 0, &mut out, Wait::Never).is_none()
    );
    // One that is larger than what is read on the spot, and bytes that cannot be read.
    let size = limits::QUICK + 1;
    let source: Arc<dyn Source> = Arc::new(vec![3u8; size as usize]);
    let crc = Some(Crc::crc32c(crc32c::crc32c(&vec![3; size as usize])));
    let large = Block { offset: 0, stored_size: size, size, codec: Codec::None, crc };
    let mut out = vec![0; size as usize];
    assert!(cache.read_checked(of(key(3), &large, &source), 0, &mut out, Wait::Never).is_none());
    cache.read_checked(of(key(3), &large, &source), 0, &mut out, Wait::Always).unwrap().unwrap();
    assert!(out.iter().all(|byte| *byte == 3) && cache.is_decoded(key(3)));
    let gone = cache.read_checked(of(key(4), &Block { offset: 1, ..large }, &source), 0, &mut out, Wait::Always);
    assert!(matches!(*gone.unwrap().unwrap_err(), BlockError::Source(_)) && !cache.is_decoded(key(4)));
}

#[test]
fn a_large_block_goes_through_a_window() {
    let size = limits::WHOLE_BLOCK + 6_000_000;
    let bytes: Vec<u8> = (0..size).map(|i| (i / 1000) as u8).collect();
    let (block, source, _) = zstd_block(&bytes);
    let cache = Cache::new(64 << 20, Verify::Lazy);
    let read = |at: u64| {
        let piece = cache.piece(of(KEY, &block, &source), &byte(at)).unwrap();
        let from = (at - piece.start) as usize;
        assert_eq!(piece.bytes[from..], bytes[at as usize..][..piece.bytes.len() - from]);
        at + (piece.bytes.len() - from) as u64
    };
    let mut at = 0;
    while at < size {
        at = read(at);
        assert!(cache.usage().1 <= 18 << 20, "{:?}", cache.usage());
    }
    assert_eq!(cache.counters.misses.load(Relaxed), 1);
    // Back to the front, which is gone; then to the end, past the reader that stays behind.
    read(5);
    read(size - 1);
    read(6);
    assert_eq!(cache.counters.misses.load(Relaxed), 3);
}

#[test]
fn a_decoder_that_waits_for_its_readers_makes_room() {
    let bytes = vec![3; limits::WHOLE_BLOCK as usize + 12_345];
    let (large, source, _) = zstd_block(&bytes);
    // Room for the window, and not for the other block beside it.
    let cache = Cache::new(20 << 20, Verify::Lazy);
    cache.piece(of(KEY, &large, &source), &byte(0)).unwrap();
    let (other, other_source, _) = zstd_block(&bytes[..10 << 20]);
    let other_key = key(1);
    assert_eq!(cache.piece(of(other_key, &other, &other_source), &byte(0)).unwrap().bytes.len(), 10 << 20);
    assert_eq!(cache.counters.evictions.load(Relaxed), 1);
    assert_eq!(cache.piece(of(KEY, &large, &source), &byte(1)).unwrap().start, 0);
}

#[test]
fn what_the_reader_keeps_is_evicted_first() {
    let (block, source, _) = zstd_block(&vec![3; 3 << 20]);
    for keeps in [false, true] {
        let cache = Cache::new(8 << 20, Verify::Lazy);
        if keeps {
            cache.set_readers_keep();
        }
        cache.piece(of(key(0), &block, &source), &byte(0)).unwrap();
        let lent = cache.lend(of(key(1), &block, &source), &byte(0), Wait::Always).unwrap();
        cache.add_served(&lent, 2 << 20);
        cache.add_served(&lent, 1 << 20);
        drop(lent);
        // While there is room, both are kept.
        assert!(cache.is_decoded(key(0)) && cache.is_decoded(key(1)) && cache.usage().1 > 6 << 20);
        cache.piece(of(key(2), &block, &source), &byte(0)).unwrap();
        assert_eq!((cache.is_decoded(key(0)), cache.is_decoded(key(1))), (keeps, !keeps));
    }
}

/// Nothing is begun for a caller that does not wait, but what is quick: small, and in memory already.
#[test]
fn without_waiting_only_what_is_there_or_quick() {
    let cache = Cache::new(64 << 20, Verify::Lazy);
    let (large, source, _) = zstd_block(&vec![3; 3 << 20]);
    let blocked = |result: Result<Lent, Arc<BlockError>>| matches!(*result.err().unwrap(), BlockError::WouldBlock);
    assert!(blocked(cache.lend(of(key(0), &large, &source), &byte(0), Wait::Never)));
    assert_eq!((cache.counters.misses.load(Relaxed), cache.usage().1), (0, 0));
    cache.piece(of(key(0), &large, &source), &byte(0)).unwrap();
    let lent = cache.lend(of(key(0), &large, &source), &byte(7), Wait::Never).unwrap();
    assert_eq!(lent.piece.bytes.len(), 3 << 20);
    drop(lent);
    let (small, far, counted) = zstd_block(&[5; 5000]);
    let source: Arc<dyn Source> = Arc::new(counted.bytes.clone());
    assert!(blocked(cache.lend(of(key(1), &small, &source), &byte(0), Wait::Disk)), "a listing decodes nothing");
    assert_eq!(**cache.lend(of(key(1), &small, &source), &byte(0), Wait::Never).unwrap().piece.bytes, [5; 5000]);
    // A source that does not say what of it is in memory.
    assert!(blocked(cache.lend(of(key(2), &small, &far), &byte(0), Wait::Never)));
    assert_eq!(cache.piece(of(key(2), &small, &far), &byte(0)).unwrap().bytes.len(), 5000);
    // A verdict is the same, whether it was waited for or not.
    let bad = Block { crc: Some(Crc::crc32c(1)), ..small };
    let failed = cache.lend(of(key(3), &bad, &source), &byte(0), Wait::Never).err().unwrap();
    assert!(matches!(*failed, BlockError::Checksum { stored: 1, .. }), "{failed}");
    assert!(matches!(*cache.piece(of(key(3), &bad, &source), &byte(0)).unwrap_err(), BlockError::Checksum { .. }));
}

#[test]
fn files_in_memory_share_the_budget() {
    let cache = Cache::new(16 << 20, Verify::Lazy);
    let finish = |ino: u64, size: u64| {
        let slot = cache.start_file(ino, size)?;
        slot.run(|| Ok(slot.memory().write(&vec![ino as u8; size as usize], 0).map_err(SourceError::from)?));
        cache.end_file(ino, &slot);
        Some(slot)
    };
    assert!(finish(1, 5 << 20).is_none(), "more than a quarter");
    let first = finish(1, 4 << 20).unwrap();
    assert!(first.is_whole() && finish(1, 4 << 20).is_none());
    for ino in 2..10 {
        assert!(finish(ino, 4 << 20).is_some());
        let (budget, used) = cache.usage();
        assert!(used <= budget);
    }
    // Held, it was not given up; the others were.
    assert!(cache.file(1).is_some() && cache.file(2).is_none());
    assert_eq!(cache.files(), (3, 3 * ((4 << 20) + OVERHEAD)));
    // A block does not wait for files that are held.
    let held: Vec<_> = (1..10).filter_map(|ino| cache.file(ino)).collect();
    let (block, source, _) = zstd_block(&vec![3; 14 << 20]);
    assert_eq!(cache.piece(of(KEY, &block, &source), &byte(0)).unwrap().bytes.len(), 14 << 20);
    drop((held, first));
    // One that fails leaves nothing.
    let slot = cache.start_file(50, 1 << 20).unwrap();
    slot.run(|| Err(BlockError::Refused("bad".into())));
    cache.end_file(50, &slot);
    assert!(cache.file(50).is_none() && !slot.wait_for(1));
}

#[test]
fn the_next_block_is_decoded_ahead_into_free_room_only() {
    let (block, source, _) = zstd_block(&vec![3; 2 << 20]);
    let cache = Cache::new(5 << 20, Verify::Lazy);
    cache.set_readers_keep();
    let lent = cache.lend(of(key(0), &block, &source), &byte(0), Wait::Always).unwrap();
    assert!(!cache.is_mostly_read(key(0), block.size));
    cache.add_served(&lent, (1 << 20) + 1);
    assert!(cache.is_mostly_read(key(0), block.size));
    for _ in 0..2 {
        cache.decode_ahead(of(key(1), &block, &source), false);
        while !cache.is_decoded(key(1)) {
            thread::yield_now();
        }
    }
    assert_eq!(cache.counters.misses.load(Relaxed), 2);
    cache.decode_ahead(of(key(2), &block, &source), false);
    assert!(!cache.is_decoded(key(2)) && cache.counters.misses.load(Relaxed) == 2);
    // Nor in place of others where it takes much of the room.
    cache.decode_ahead(of(key(2), &block, &source), true);
    assert!(!cache.is_decoded(key(2)) && cache.is_decoded(key(1)));
    let (block, source, _) = zstd_block(&vec![4; 100 << 10]);
    let small: Vec<_> =
        (10..20).map(|number| cache.lend(of(key(number), &block, &source), &byte(0), Wait::Always).unwrap()).collect();
    cache.decode_ahead(of(key(3), &block, &source), true);
    while !cache.is_decoded(key(3)) {
        thread::yield_now();
    }
    drop(small);
}

/// Reads of different blocks that have no room beside each other: each costs one decode.
#[test]
fn a_block_stays_until_its_reader_has_it() {
    const READS: u32 = 48;
    let (block, source, counted) = zstd_block(&(0..700_000u32).map(|i| (i / 9) as u8).collect::<Vec<_>>());
    let cache = Cache::new(1 << 20, Verify::Lazy);
    let start = Barrier::new(READS as usize);
    thread::scope(|scope| {
        for number in 0..READS {
            let (cache, block, source, start) = (&cache, &block, &source, &start);
            scope.spawn(move || {
                start.wait();
                assert_eq!(cache.piece(of(key(number), block, source), &byte(5)).unwrap().bytes.len(), 700_000);
            });
        }
    });
    assert_eq!(u32::try_from(counted.reads.load(Relaxed)), Ok(READS));
    assert_eq!(u32::try_from(cache.counters.misses.load(Relaxed)), Ok(READS));
}

/// Evicting it would give no memory back, and the next reader would decode it once more.
#[test]
fn what_is_in_use_is_not_evicted() {
    let (block, source, _) = zstd_block(&vec![3; 600_000]);
    let cache = Cache::new(1 << 20, Verify::Lazy);
    let lent = cache.lend(of(KEY, &block, &source), &byte(0), Wait::Always).unwrap();
    assert_eq!(cache.entries.evict(u64::MAX), 0);
    drop(lent);
    assert_eq!(cache.entries.evict(u64::MAX), 1);
    assert_eq!(cache.usage().1, 0);
}

#[test]
fn memory_counts_until_it_is_freed() {
    let (block, source, _) = zstd_block(&vec![3; 600_000]);
    let cache = Cache::new(1 << 20, Verify::Lazy);
    let piece = cache.piece(of(KEY, &block, &source), &byte(0)).unwrap();
    cache.entries.remove(&KEY, |_| true);
    assert_eq!(cache.usage().1, 600_000);
    assert!(cache.try_reserve(600_000).is_none());
    drop(piece);
    assert_eq!(cache.usage().1, 0);
    let room = cache.try_reserve(600_000).unwrap();
    assert!(room.bytes() == 600_000 && cache.try_reserve(600_000).is_none());
}

/// A growing file takes all the room; the verdict that it waits for needs none of it.
#[test]
fn a_growing_file_and_a_verdict_do_not_wait_for_each_other() {
    let cache = Cache::new(4 << 20, Verify::Lazy);
    let files: Vec<_> = (0..4).filter_map(|ino| cache.start_file(ino, (1 << 20) - 4096)).collect();
    assert_eq!(files.len(), 4);
    let source: Arc<dyn Source> = Arc::new(vec![1u8; 100]);
    let block = Block {
        offset: 0,
        stored_size: 50,
        size: 50,
        codec: Codec::None,
        crc: Some(Crc::crc32c(crc32c::crc32c(&[1; 50]))),
    };
    for number in 0..100 {
        cache.check(of(key(number), &block, &source), &(0..1), Wait::Always).unwrap();
    }
    // And a block that has no room beside them is decoded by one of them all the same.
    let (block, source, _) = zstd_block(&vec![3; 900_000]);
    files[0].run(|| cache.decode_to(&block, &source, &files[0], 0).map(drop));
    assert!(files[0].is_whole());
}

#[test]
fn a_block_with_far_too_many_stored_bytes_is_damage_and_not_read() {
    /// A sparse file: gigabytes that take no disk.
    struct Sparse(AtomicU64);

    impl Source for Sparse {
        fn len(&self) -> u64 {
            4 << 30
        }

        fn read_at(&self, _: u64, buf: &mut [u8], _: Wait) -> Result<(), SourceError> {
            self.0.fetch_add(buf.len() as u64, Relaxed);
            buf.fill(0);
            Ok(())
        }
    }

    let counted = Arc::new(Sparse(AtomicU64::new(0)));
    let source: Arc<dyn Source> = counted.clone();
    let cache = Cache::new(64 << 20, Verify::Lazy);
    for (number, codec) in (0..).zip([Codec::None, Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Zlib]) {
        let block =
            Block { offset: 0, stored_size: 3 << 30, size: 100, codec: codec.clone(), crc: Some(Crc::crc32c(0)) };
        let error = match codec {
            Codec::None => cache.check(of(key(number), &block, &source), &(0..100), Wait::Always).unwrap_err(),
            _ => cache.piece(of(key(number), &block, &source), &byte(0)).unwrap_err(),
        };
        assert!(matches!(&*error, BlockError::Decode(DecodeError::Excess { .. })), "{error}");
    }
    assert_eq!(counted.0.load(Relaxed), 0);
}

/// A zstd frame with a window of 32 MiB, then one with 64 MiB.
#[test]
fn windows_of_zstd_are_counted_and_a_larger_one_is_made_room_for() {
    let frame = |bytes: &[u8], log: u32| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bytes: Vec<u8> = (0..40u32 << 20).map(|i| (i / 5000) as u8).collect();
    let stored = [frame(&bytes, 22), frame(&bytes, 25)].concat();
    let size = 2 * bytes.len() as u64;
    let block = Block { offset: 0, stored_size: stored.len() as u64, size, codec: Codec::Zstd, crc: None };
    let source: Arc<dyn Source> = Arc::new(stored);
    let cache = Cache::new(64 << 20, Verify::Lazy);
    cache.piece(of(KEY, &block, &source), &byte(0)).unwrap();
    let used = cache.usage().1;
    assert!(used >= (16 + 4) << 20, "{used}");
    let piece = cache.piece(of(KEY, &block, &source), &byte(size - 1)).unwrap();
    assert_eq!(piece.bytes.last(), bytes.last());
    assert_eq!(cache.counters.misses.load(Relaxed), 2);
    // Both ends are read, and nothing of it stays when it goes.
    drop(piece);
    while cache.usage().1 > 0 {
        cache.entries.evict(u64::MAX);
        thread::yield_now();
    }
}

fn map(mib: usize) -> memmap2::MmapMut {
    memmap2::MmapMut::map_anon(mib << 20).unwrap()
}

#[test]
fn spare_memory_fits_beside_what_is_reserved() {
    let spares = super::buffer_pool::BufferPool::default();
    for _ in 0..3 {
        spares.put(map(10), || 20 << 20);
    }
    assert_eq!(spares.bytes(), 30 << 20);
    spares.put(map(10), || 20 << 20);
    assert_eq!(spares.bytes(), 30 << 20, "36 MiB at most");
    spares.trim(0);
    assert_eq!(spares.bytes(), 10 << 20);
    for _ in 0..9 {
        spares.put(map(10), || 1 << 40);
    }
    assert_eq!(spares.bytes(), 60 << 20);
    spares.put(map(100), || 1 << 40);
    assert_eq!(spares.bytes(), 60 << 20, "one that is too large takes no place of others");
}

#[test]
fn the_spare_memory_that_fits_best_is_used_again() {
    let spares = super::buffer_pool::BufferPool::default();
    for mib in [3, 1, 7, 5] {
        spares.put(map(mib), || 1 << 40);
    }
    let take = |mib: usize| spares.take(mib << 20).map(|map| map.len() >> 20);
    assert_eq!([take(4), take(4), take(4), take(1), take(1)], [Some(5), Some(7), Some(3), Some(1), None]);
    assert_eq!(spares.bytes(), 0);
}

/// The bytes of a range out of a piece that holds it.
fn piece_of<'a>(piece: &'a Piece, range: &Range<u64>) -> &'a [u8] {
    &piece.bytes[(range.start - piece.start) as usize..(range.end - piece.start) as usize]
}

/// A file of some filesystem, of which only the bytes tell it from one on another.
struct OnAFilesystem {
    bytes: Vec<u8>,
    filesystem: u64,
}

impl Source for OnAFilesystem {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        self.bytes.read_at(offset, buf, wait)
    }

    fn state_key(&self) -> Option<[u8; 32]> {
        Some([7; 32])
    }

    fn filesystem(&self) -> Option<u64> {
        Some(self.filesystem)
    }
}

#[test]
fn files_of_one_state_on_two_filesystems_share_no_block() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskTierOptions { folder: folder.path().join("tier"), size: 1 << 30, wait: true, all: true };
    // Random bytes are stored as they are: two blocks of equal size. Neither has a checksum.
    let content = |seed: u64| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..300_000).map(|_| next()).collect()
    };
    let mut sizes = Vec::new();
    // The same file again on another mount is found.
    for (seed, filesystem, misses) in [(1, 1, 1), (2, 2, 1), (1, 3, 0), (2, 2, 0)] {
        let bytes = content(seed);
        let front = vec![0; limits::FRONT];
        let stored = zstd::bulk::compress(&bytes, 1).unwrap();
        sizes.push(stored.len());
        let block = Block {
            offset: front.len() as u64,
            stored_size: stored.len() as u64,
            size: bytes.len() as u64,
            codec: Codec::Zstd,
            crc: None,
        };
        let source: Arc<dyn Source> = Arc::new(OnAFilesystem { bytes: [front, stored].concat(), filesystem });
        let cache = Cache::with_disk_tier(64 << 20, Verify::Lazy, options.open(64 << 20).unwrap());
        let range = 1000..2000;
        assert_eq!(piece_of(&cache.piece(of(KEY, &block, &source), &range).unwrap(), &range), &bytes[1000..2000]);
        assert_eq!(cache.counters.misses.load(Relaxed), misses, "{seed} on {filesystem}");
        cache.disk_tier().unwrap().disk().flush(std::time::Duration::from_secs(60));
    }
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
}

#[test]
fn bytes_made_of_a_file_are_found_again_for_these_bytes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskTierOptions { folder: folder.path().join("tier"), size: 1 << 30, wait: true, all: true };
    let cache = Cache::with_disk_tier(64 << 20, Verify::Lazy, options.open(64 << 20).unwrap());
    let file =
        |byte: u8, filesystem: u64| OnAFilesystem { bytes: [&[0; 20_000][..], &[byte; 100]].concat(), filesystem };
    let name = |kind, name| KeptName { kind, name, from: 20_000..20_100 };
    let source = file(1, 1);
    assert!(cache.can_keep(&source) && cache.kept_bytes(&source, &name("index 1", b"a"), 100).is_none());
    assert!(cache.keep_bytes(&source, &name("index 1", b"a"), vec![9; 50]));
    // A file in the same state with the same bytes on another mount has it too.
    for source in [&source, &file(1, 2)] {
        assert_eq!(*cache.kept_bytes(source, &name("index 1", b"a"), 50).unwrap(), [9; 50]);
        assert!(cache.kept_bytes(source, &name("index 1", b"a"), 49).is_none(), "more than wanted");
        assert!(cache.kept_bytes(source, &name("index 2", b"a"), 50).is_none());
        assert!(cache.kept_bytes(source, &name("index 1", b"b"), 50).is_none());
    }
    assert!(cache.kept_bytes(&file(2, 3), &name("index 1", b"a"), 50).is_none(), "made of other bytes");
    let nowhere = Cache::new(64 << 20, Verify::Lazy);
    assert!(!nowhere.can_keep(&source) && !nowhere.keep_bytes(&source, &name("index 1", b"a"), vec![9; 50]));
    // Nothing names bytes in memory.
    assert!(!cache.can_keep(&vec![0; 100]) && !cache.keep_bytes(&vec![0; 30_000], &name("index 1", b"a"), vec![9; 50]));
}
