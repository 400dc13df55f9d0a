//! A disk that fails in places: what lies there is an error with its place, everything else is right, and what
//! comes back is read again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use common::{container, shard, small_files};
use shardfs::source::{Source, SourceError, Wait};

/// Bytes of which some can't be read.
struct Failing {
    bytes: Vec<u8>,
    bad: Range<u64>,
    broken: AtomicBool,
    /// Where reading failed.
    failed: Mutex<Vec<u64>>,
}

impl Source for Failing {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
        let end = offset + buf.len() as u64;
        if self.broken.load(Relaxed) && offset < self.bad.end && end > self.bad.start {
            self.failed.lock().unwrap().push(offset);
            return Err(io::Error::from_raw_os_error(libc::EIO).into());
        }
        self.bytes.read_at(offset, buf, wait)
    }
}

/// Every container, with each of eight parts of it unreadable after it was opened, and before.
#[test]
fn what_can_be_read_is_right_and_the_rest_an_error() {
    let (mut errors, mut good, mut refused) = (0, 0, 0);
    for (name, bytes) in small_files(64 << 10) {
        let Some(whole) = container::open(bytes.clone()) else { continue };
        let expected: Vec<_> = whole.walk().into_iter().map(|file| (file.node, file.view.size())).collect();
        let length = bytes.len() as u64;
        for part in 0..8 {
            let bad = length * part / 8..length * (part + 1) / 8;
            let source = |broken: bool| {
                let (bytes, bad, failed) = (bytes.clone(), bad.clone(), Mutex::default());
                Arc::new(Failing { bytes, bad, broken: broken.into(), failed })
            };
            refused += usize::from(container::open_source(source(true)).is_none());
            let failing = source(false);
            let opened = container::open_source(failing.clone()).unwrap();
            failing.broken.store(true, Relaxed);
            for &(node, size) in expected.iter().take(200) {
                let length = size.min(1 << 20);
                let read = |from: &container::Opened| {
                    let view = from.tree.view(&from.reader, node)?;
                    view.copy_at(&from.reader, 0, length)
                };
                let right = read(&whole).ok();
                match read(&opened) {
                    Ok(got) => {
                        good += 1;
                        assert_eq!(Some(got), right, "{name}: {}, {bad:?} unreadable", whole.path(node));
                    }
                    Err(fault) if right.is_some() => {
                        errors += 1;
                        let text = fault.error.to_string();
                        assert!(text.contains("os error 5"), "{name}: {text}");
                        assert!(fault.offset < bytes.len() as u64);
                        // The disk recovers: nothing of the failure stays.
                        failing.broken.store(false, Relaxed);
                        assert_eq!(read(&opened).ok(), right, "{name}: {} stays bad", whole.path(node));
                        failing.broken.store(true, Relaxed);
                    }
                    Err(_) => {}
                }
            }
        }
    }
    println!("{good} reads were right, {errors} failed where the disk did, {refused} containers could not be opened");
    assert!(errors > 500 && good > 5000 && refused > 100);
}

/// A decoder that reads a failing disk asks it once a block and reader, not once a page.
#[test]
fn a_failing_block_is_read_once() {
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let packed = zstd::bulk::compress(&content, 1).unwrap();
    let bytes = shard::file(1, &[shard::Block::packed("x", shard::ZSTD, packed, 200_000)]);
    let length = bytes.len() as u64;
    let failing = Arc::new(Failing { bytes, bad: length - 10..length, broken: false.into(), failed: Mutex::default() });
    let opened = container::open_source(failing.clone()).unwrap();
    failing.broken.store(true, Relaxed);
    let file = opened.walk().into_iter().find(|file| opened.path(file.node) == "x.bin").unwrap();
    assert!(file.view.read_at(&opened.reader, 0, 200_000).is_err());
    assert_eq!(failing.failed.lock().unwrap().len(), 1);
}
