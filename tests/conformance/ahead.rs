//! Files that are read in order have the next one's block decoded ahead, others have not.

use std::{
    fs,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use shardfs::vfs::{Options, Vfs};

use crate::common::{shard, walk};

const SIZE: usize = 2 << 20;

/// Ten containers of two blocks each, `block_0` and `block_1`.
fn source() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..10u8 {
        let block = |name: u8| {
            let content: Vec<u8> = (0..SIZE).map(|at| (at / 7) as u8 ^ number ^ name).collect();
            let packed = zstd::bulk::compress(&content, 1).unwrap();
            shard::Block::packed(&format!("block_{name}"), shard::ZSTD, packed, SIZE as u64)
        };
        fs::write(folder.path().join(format!("ep_{number:02}.shard")), shard::file(1, &[0, 1, 2, 3].map(block)))
            .unwrap();
    }
    folder
}

struct Reader(Arc<Vfs>);

impl Reader {
    fn new(source: &tempfile::TempDir, cache_size: u64) -> Self {
        Self(Arc::new(walk::open(source.path(), Options { cache_size, ..Options::default() })))
    }

    /// Reads the front of a block, as the kernel does for a program that opens it. By its end so many blocks are decoded,
    /// and no more a moment later.
    fn read(&self, episode: u8, block: u8, expected: u64) {
        let decoded = || self.0.cache().counters.decoded_bytes.load(Relaxed) / SIZE as u64;
        let before = decoded();
        let attr = walk::resolve(&self.0, &format!("ep_{episode:02}.shard/block_{block}.bin")).unwrap();
        self.0.note_begun(attr.ino);
        let content = walk::read(&self.0, attr.ino, 0, 4096).unwrap();
        assert!(content.iter().enumerate().all(|(at, byte)| *byte == (at / 7) as u8 ^ episode ^ block));
        let end = Instant::now() + Duration::from_secs(20);
        while decoded() - before < expected && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(decoded() - before, expected, "episode {episode}, block {block}");
    }
}

#[test]
fn the_next_episode_is_decoded_ahead() {
    let source = source();
    let reader = Reader::new(&source, 64 << 20);
    // The third has the fourth decoded beside itself; from then on each has been decoded when it is read.
    for (episode, expected) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 1)] {
        reader.read(episode, 1, expected);
    }
    // Elsewhere a new row begins; a reader that comes back goes on.
    for (episode, expected) in [(8, 1), (0, 1), (6, 1), (9, 1), (7, 0)] {
        reader.read(episode, 1, expected);
    }
}

#[test]
fn the_next_block_of_a_container_is_decoded_ahead() {
    let source = source();
    let reader = Reader::new(&source, 64 << 20);
    for (block, expected) in [(0, 1), (1, 1), (2, 2), (3, 0)] {
        reader.read(7, block, expected);
    }
    // Behind the last episode there is none.
    for (episode, expected) in [(7, 0), (8, 1), (9, 1)] {
        reader.read(episode, 0, expected);
    }
}

#[test]
fn nothing_is_decoded_ahead_out_of_order_or_without_room() {
    let source = source();
    let reader = Reader::new(&source, 64 << 20);
    for episode in [0, 2, 4, 6, 8, 9, 7, 5, 3, 1] {
        reader.read(episode, 2, 1);
    }
    let reader = Reader::new(&source, 4 << 20);
    for episode in [0, 1, 2, 3, 4] {
        reader.read(episode, 2, 1);
    }
}
