//! Frames of one size as one array (`docs/TREE.md`, section 4). Encoded frames are decoded only if a read touches them,
//! several at once on all cores.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

use crate::{
    cache::{BlockError, Key, Tag},
    codec::Codec,
    format::Block,
    parallel,
    source::{Source, Wait},
    view::{Fault, ReadContext, Rendered},
};

/// Frames of one size that together make an array.
pub(super) trait Frames: std::fmt::Debug + Send + Sync {
    /// Bytes of a frame.
    fn frame_size(&self) -> u64;

    /// Returns where a frame is and how it becomes pixels; `None` after the last.
    fn frame(&self, number: u64) -> Option<Block>;

    /// Returns the file that the frames are in, if it is not the container's own, with its number in the container.
    fn file(&self) -> Option<(&Arc<dyn Source>, u64)> {
        None
    }
}

/// The array of frames.
#[derive(Debug)]
pub(super) struct Stacked<F>(pub(super) F);

impl<F: Frames> Rendered for Stacked<F> {
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        match self.0.file() {
            Some((source, number)) => fill(&reader.with_source(source.clone()), &self.0, number, part, out),
            None => fill(reader, &self.0, 0, part, out),
        }
    }
}

/// A frame that a read wants.
struct Wanted {
    block: Block,
    /// The number of the file that it is in.
    file: u64,
}

impl Wanted {
    /// Pictures have no number in their container; their offset identifies them as well.
    fn key(&self, reader: &ReadContext) -> Key {
        Key::new(reader.container, Tag::Own(0), self.block.offset, self.file)
    }

    /// Returns whether there is something to decode.
    fn is_work(&self, reader: &ReadContext) -> bool {
        self.block.codec != Codec::None && !reader.cache.is_decoded(self.key(reader))
    }

    /// Fills `out` with a part of the frame.
    fn fill(&self, reader: &ReadContext, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
        if self.block.codec == Codec::None {
            return reader.fill_stored(None, self.block.offset + part.start, out);
        }
        let fault = |error| Fault { block: None, offset: self.block.offset, error };
        let piece = reader.piece(self.key(reader), &self.block, &part).map_err(fault)?;
        let part = part.start - piece.start..part.end - piece.start;
        let Some(pixels) = piece.bytes.get(part.start as usize..part.end as usize) else {
            return Err(fault(Arc::new(BlockError::Refused("a frame is shorter than the others".into()))));
        };
        out.copy_from_slice(pixels);
        Ok(())
    }
}

/// Fills `out` with a part of the array.
fn fill(reader: &ReadContext, frames: &impl Frames, file: u64, part: Range<u64>, out: &mut [u8]) -> Result<(), Fault> {
    let size = frames.frame_size().max(1);
    let first = part.start / size;
    let end = if part.is_empty() { first } else { part.end.div_ceil(size) };
    let mut wanted = Vec::new();
    for number in first..end {
        let Some(block) = frames.frame(number) else {
            return Err(Fault::refused(format!("there is no frame {number}")));
        };
        wanted.push(Wanted { block, file });
    }
    let mut work = 0;
    if reader.wait() == Wait::Always {
        // Decoded frames are not fetched again. Uncompressed pictures are never in the cache.
        let is_far = |wanted: &&Wanted| wanted.block.codec == Codec::None || wanted.is_work(reader);
        let soon: Vec<_> = wanted.iter().filter(is_far).map(|wanted| wanted.block.stored()).collect();
        if soon.len() > 1 {
            reader.source.prefetch(&soon);
        }
        work = wanted.iter().filter(|wanted| wanted.is_work(reader)).count();
    }
    each_frame(work.min(threads(reader)), size, part, out, |number, part, out| {
        wanted.get((number - first) as usize).map_or(Ok(()), |wanted| wanted.fill(reader, part, out))
    })
}

/// Returns the number of threads that decode frames for a reader.
pub(super) fn threads(reader: &ReadContext) -> usize {
    match reader.wait() {
        Wait::Always => thread::available_parallelism().map_or(1, usize::from),
        Wait::Never | Wait::Disk => 1,
    }
}

/// Fills a part of an array of frames of `size` bytes, on up to `threads` threads. `fill` gets the number of a frame,
/// the wanted part of it, and the output for that part. If several frames fail, the first one is reported.
pub(super) fn each_frame(
    threads: usize,
    size: u64,
    part: Range<u64>,
    out: &mut [u8],
    fill: impl Fn(u64, Range<u64>, &mut [u8]) -> Result<(), Fault> + Sync,
) -> Result<(), Fault> {
    let (mut at, mut rest, mut wanted) = (part.start, out, Vec::new());
    while at < part.end {
        let from = at % size;
        let end = size.min(from + part.end - at);
        let (here, after) = rest.split_at_mut((end - from) as usize);
        wanted.push(Mutex::new((at / size, from..end, here, Ok(()))));
        (at, rest) = (at + end - from, after);
    }
    parallel::for_each(threads.max(1), wanted.len(), |number| {
        let Some(wanted) = wanted.get(number) else { return ControlFlow::Break(()) };
        let (frame, part, out, done) = &mut *wanted.lock();
        *done = fill(*frame, part.clone(), out);
        if done.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    wanted.into_iter().try_for_each(|wanted| wanted.into_inner().3)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::{
        cache::{Cache, Verify},
        source::{Source, SourceError},
    };

    /// A frame has 4 bytes: its number, compressed. Every fifth is stored as it is; one is broken.
    #[derive(Debug)]
    struct Video(Vec<Block>);

    const BROKEN: u64 = 12;

    impl Frames for Video {
        fn frame_size(&self) -> u64 {
            4
        }

        fn frame(&self, number: u64) -> Option<Block> {
            self.0.get(number as usize).cloned()
        }
    }

    fn video(frames: u32) -> (Video, Vec<u8>) {
        let (mut blocks, mut file) = (Vec::new(), Vec::new());
        for number in 0..frames {
            let bytes = number.to_le_bytes();
            let (codec, stored) = match number % 5 {
                0 => (Codec::None, bytes.to_vec()),
                _ => (Codec::Zstd, zstd::bulk::compress(&bytes, 1).unwrap()),
            };
            let stored = if u64::from(number) == BROKEN { vec![7; stored.len()] } else { stored };
            let (offset, stored_size) = (file.len() as u64, stored.len() as u64);
            blocks.push(Block { offset, stored_size, size: 4, codec, crc: None });
            file.extend(stored);
        }
        (Video(blocks), file)
    }

    #[test]
    fn any_part_comes_out_in_order_and_each_frame_is_decoded_once() {
        let (video, file) = video(BROKEN as u32);
        let whole: Vec<u8> = (0..BROKEN as u32).flat_map(u32::to_le_bytes).collect();
        let source: Arc<dyn Source> = Arc::new(file);
        for budget in [1 << 20, 1] {
            let cache = Cache::new(budget, Verify::Lazy);
            let reader = ReadContext::new(source.clone(), cache, 0);
            for start in (0..whole.len()).rev() {
                for end in start..=whole.len() {
                    let mut out = vec![0xAA; end - start];
                    fill(&reader, &video, 0, start as u64..end as u64, &mut out).unwrap();
                    assert_eq!(out, whole[start..end]);
                }
            }
            if budget > 1 {
                // All but those that are stored as they are: 0, 5 and 10.
                assert_eq!(reader.cache.counters.misses.load(Relaxed), BROKEN - 3);
            }
        }
    }

    /// Bytes, and what was said to be read soon.
    #[derive(Debug)]
    struct Far(Vec<u8>, Mutex<Vec<Range<u64>>>);

    impl Source for Far {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, buf: &mut [u8], wait: Wait) -> Result<(), SourceError> {
            self.0.read_at(offset, buf, wait)
        }

        fn prefetch(&self, ranges: &[Range<u64>]) {
            self.1.lock().extend_from_slice(ranges);
        }
    }

    #[test]
    fn frames_of_one_read_are_fetched_together_and_once() {
        let (video, file) = video(BROKEN as u32);
        let source = Arc::new(Far(file, Mutex::default()));
        let reader = ReadContext::new(source.clone(), Cache::new(1 << 20, Verify::Lazy), 0);
        let mut out = [0; 12];
        let stored = |numbers: &[usize]| numbers.iter().map(|&number| video.0[number].stored()).collect::<Vec<_>>();
        fill(&reader, &video, 0, 0..12, &mut out).unwrap();
        // Each frame that is decoded says so by itself again.
        assert_eq!(source.1.lock()[..3], stored(&[0, 1, 2]));
        source.1.lock().clear();
        fill(&reader, &video, 0, 4..16, &mut out).unwrap();
        assert!(!source.1.lock().iter().any(|range| stored(&[1, 2]).contains(range)), "frames 1 and 2 are decoded");
    }

    #[test]
    fn a_broken_frame_fails_where_it_is_and_nowhere_else() {
        let (video, file) = video(30);
        let offset = video.0[BROKEN as usize].offset;
        let reader = ReadContext::new(Arc::new(file), Cache::new(1 << 20, Verify::Lazy), 0);
        let mut out = [0; 120];
        let fault = fill(&reader, &video, 0, 0..120, &mut out).unwrap_err();
        assert_eq!((fault.offset, fault.block), (offset, None));
        for number in 0..30 {
            let found = fill(&reader, &video, 0, number * 4..number * 4 + 4, &mut out[..4]);
            assert_eq!(found.is_ok(), number != BROKEN, "{number}");
        }
        fill(&reader, &video, 0, 0..4 * BROKEN, &mut out[..4 * BROKEN as usize]).unwrap();
        assert!(fill(&reader, &video, 0, 119..121, &mut out[..2]).is_err(), "there is no frame 30");
    }
}
