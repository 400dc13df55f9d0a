use std::{io::Write, sync::atomic::Ordering::Relaxed};

use proptest::prelude::*;

use super::*;
use crate::{
    cache::{Cache, Verify},
    codec::{Chain, ChecksumKind, CrcKind, Filter},
    format::DType,
    view::Array,
};

/// An array, how it is stored, and the bytes that a reader should see.
#[derive(Debug)]
struct Model {
    layout: Layout,
    codec: Codec,
    file: Vec<u8>,
    /// By the number of the chunk.
    blocks: Vec<Option<Block>>,
    /// All elements, little-endian, in C order.
    shown: Vec<u8>,
}

#[derive(Debug)]
struct Table(Vec<u64>, Vec<Option<Block>>);

impl Chunks for Table {
    fn chunk(&self, _: &ReadContext, at: &[u64]) -> Result<Chunk, Fault> {
        assert_eq!(at.len(), self.0.len());
        let number = at.iter().zip(&self.0).fold(0, |number, (at, count)| {
            assert!(at < count);
            number * count + at
        });
        Ok(self.1[number as usize].clone().map_or(Chunk::Absent, Chunk::Stored))
    }
}

/// All places of a grid in C order.
fn places(counts: &[u64]) -> Vec<Vec<u64>> {
    counts.iter().fold(vec![Vec::new()], |places, count| {
        let with = |place: Vec<u64>| (0..*count).map(move |at| place.iter().copied().chain([at]).collect());
        places.into_iter().flat_map(with).collect()
    })
}

fn linear(at: &[u64], counts: &[u64]) -> u64 {
    at.iter().zip(counts).fold(0, |number, (at, count)| number * count + at)
}

fn store(codec: usize, element: usize, chunk: &[u8]) -> (Codec, Vec<u8>) {
    let elements = chunk.len() / element;
    let shuffled: Vec<u8> =
        (0..element).flat_map(|byte| (0..elements).map(move |at| chunk[at * element + byte])).collect();
    let zlib = |bytes: &[u8]| {
        let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    };
    let crc = Filter::Checksum { kind: ChecksumKind::Crc(CrcKind::Crc32c), is_in_front: false };
    match codec {
        0 => (Codec::None, chunk.to_vec()),
        1 => (Codec::Zlib, zlib(chunk)),
        _ => {
            let mut stored = zlib(&shuffled);
            stored.extend(crc32c::crc32c(&stored).to_le_bytes());
            (Chain::of([Filter::Shuffle(element as u32), Filter::Zlib, crc]).unwrap(), stored)
        }
    }
}

impl Model {
    fn new(
        shape: Vec<u64>,
        chunk: Vec<u64>,
        turn: Turn,
        element: usize,
        order: Option<Vec<usize>>,
        codec: usize,
        absent: u64,
    ) -> Self {
        let value = |number: u64| -> Vec<u8> {
            (0..element as u64).map(|byte| (number * 31 + byte * 7 + number / 50) as u8).collect()
        };
        let counts: Vec<u64> = shape.iter().zip(&chunk).map(|(shape, chunk)| shape.div_ceil(*chunk)).collect();
        let fill: Vec<u8> = (0..element).map(|byte| 0xF0 + byte as u8).collect();
        let mut shown: Vec<u8> = (0..shape.iter().product()).flat_map(value).collect();
        let (mut file, mut blocks, mut used) = (vec![0; 7], Vec::new(), Codec::None);
        for (number, place) in places(&counts).iter().enumerate() {
            let is_absent = absent >> (number % 64) & 1 == 1;
            let mut bytes = vec![0xEE; chunk.iter().product::<u64>() as usize * element];
            for inside in places(&chunk) {
                let at: Vec<u64> =
                    place.iter().zip(&inside).zip(&chunk).map(|((place, at), chunk)| place * chunk + at).collect();
                if at.iter().zip(&shape).any(|(at, shape)| at >= shape) {
                    continue;
                }
                let shown = &mut shown[linear(&at, &shape) as usize * element..][..element];
                if is_absent {
                    shown.copy_from_slice(&fill);
                    turn.apply(element, shown);
                }
                let order: Vec<usize> = order.clone().unwrap_or_else(|| (0..shape.len()).collect());
                let (at, sizes): (Vec<u64>, Vec<u64>) = order.iter().map(|axis| (inside[*axis], chunk[*axis])).unzip();
                let stored = &mut bytes[linear(&at, &sizes) as usize * element..][..element];
                stored.copy_from_slice(shown);
                turn.apply(element, stored);
            }
            let (codec, stored) = store(codec, element, &bytes);
            let (offset, stored_size, size) = (file.len() as u64, stored.len() as u64, bytes.len() as u64);
            blocks.push((!is_absent).then(|| Block { offset, stored_size, size, codec: codec.clone(), crc: None }));
            file.extend(stored);
            used = codec;
        }
        let layout = Layout { number: 3, shape, chunk, element: element as u64, order, turn, fill };
        Self { layout, codec: used, file, blocks, shown }
    }

    fn counts(&self) -> Vec<u64> {
        self.layout.shape.iter().zip(&self.layout.chunk).map(|(shape, chunk)| shape.div_ceil(*chunk)).collect()
    }

    fn grid(&self) -> Arc<Grid> {
        Grid::new(self.layout.clone(), Table(self.counts(), self.blocks.clone())).unwrap()
    }

    fn reader(&self, budget: u64) -> ReadContext {
        ReadContext::new(Arc::new(self.file.clone()), Cache::new(budget, Verify::Lazy), 0)
    }

    /// The elements of slices, one by one.
    fn sliced(&self, slices: &[Slice]) -> Vec<u8> {
        let counts: Vec<u64> = slices.iter().map(|slice| slice.count).collect();
        let element = self.layout.element as usize;
        let at = |place: Vec<u64>| -> Vec<u64> {
            place.iter().zip(slices).map(|(at, slice)| slice.start + at * slice.step).collect()
        };
        let all = places(&counts).into_iter().map(at);
        all.flat_map(|at| self.shown[linear(&at, &self.layout.shape) as usize * element..][..element].to_vec())
            .collect()
    }
}

fn read(view: &View, reader: &ReadContext, range: Range<u64>) -> Result<Vec<u8>, Fault> {
    view.read_at(reader, range.start, range.end - range.start).map(|bytes| bytes.as_syscall_buf().to_vec())
}

fn models() -> impl Strategy<Value = Model> {
    let axes = prop::collection::vec((1..9u64, 1..6u64), 0..5);
    let elements = prop_oneof![
        Just((1, Turn::No)),
        Just((2, Turn::Units(2))),
        Just((4, Turn::No)),
        Just((8, Turn::Units(4))),
        Just((8, Turn::Units(8))),
        Just((
            7,
            Turn::Fields(vec![(1..3, 2, Turn::Units(2)), (3..7, 2, Turn::Fields(vec![(0..2, 2, Turn::Units(2))]))])
        )),
        Just((3, Turn::No)),
    ];
    (axes, elements, any::<u64>(), any::<bool>(), 0..3usize, prop_oneof![Just(0), any::<u64>()]).prop_map(
        |(axes, (element, turn), random, is_ordered, codec, absent)| {
            let (shape, chunk): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.sort_by_key(|axis| random.rotate_left(*axis as u32 * 11) & 0xFF);
            Model::new(shape, chunk, turn, element, is_ordered.then_some(order), codec, absent)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_and_any_slices_are_those_of_the_array(
        model in models(),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 12),
        cuts in prop::collection::vec((0..9u64, 1..4u64, 0..9u64), 4),
        is_small in any::<bool>(),
    ) {
        let (grid, size) = (model.grid(), model.shown.len() as u64);
        let reader = model.reader(if is_small { 1 << 12 } else { 1 << 24 });
        let view = grid.view();
        prop_assert_eq!(view.size(), size);
        for (one, other) in ranges {
            let (one, other) = (one.index(size as usize) as u64, other.index(size as usize) as u64 + 1);
            let range = one.min(other - 1)..one.max(other);
            let expected = &model.shown[range.start as usize..range.end as usize];
            prop_assert_eq!(&read(&view, &reader, range).unwrap(), expected);
        }
        prop_assert_eq!(&read(&view, &reader, 0..size).unwrap(), &model.shown);
        // With chunks that are in the cache, and without.
        for reader in [&reader, &model.reader(1 << 16)] {
            let mut out = vec![0xAA; size as usize];
            view.fill_kept(reader, 0, &mut out).unwrap();
            prop_assert_eq!(&out, &model.shown);
        }
        let slices: Vec<Slice> = model.layout.shape.iter().zip(&cuts).map(|(axis, (start, step, count))| {
            let start = start % axis;
            Slice { start, step: *step, count: (*count).min((axis - start).div_ceil(*step)) }
        }).collect();
        // No type has 3 or 7 bytes.
        let dtype = match model.layout.element { 1 => DType::U8, 2 => DType::U16, 4 => DType::U32, 8 => DType::U64, _ => return Ok(()) };
        let expected = model.sliced(&slices);
        let mut out = vec![0xAA; expected.len()];
        Array::new(dtype, model.layout.shape.clone(), view).fill_slices(&reader, &slices, &mut out).unwrap();
        prop_assert_eq!(&out, &expected);
        // The same from a contiguous array.
        let plain = Array::new(dtype, model.layout.shape.clone(), View::inline(model.shown.clone()));
        let mut out = vec![0xAA; expected.len()];
        plain.fill_slices(&reader, &slices, &mut out).unwrap();
        prop_assert_eq!(&out, &expected);
        for (place, block) in places(&model.counts()).iter().zip(&model.blocks) {
            let raw = grid.raw(&reader, place).unwrap();
            prop_assert_eq!(raw.is_some(), block.is_some());
            let (Some(raw), Some(block)) = (raw, block) else { continue };
            let stored = model.file[block.offset as usize..][..block.stored_size as usize].to_vec();
            let decoded = model.codec.decode(&stored, block.size).unwrap();
            prop_assert_eq!(raw.copy_at(&reader, 0, raw.size()).unwrap(), decoded);
        }
    }
}

fn misses(reader: &ReadContext) -> u64 {
    reader.cache.counters.misses.load(Relaxed)
}

#[test]
fn a_reader_that_goes_through_decodes_each_chunk_once() {
    let model = Model::new(vec![40, 30, 20], vec![4, 7, 8], Turn::No, 4, None, 2, 0);
    let chunks = model.blocks.len() as u64;
    let reader = model.reader(64 << 20);
    let view = model.grid().view();
    for start in (0..view.size()).step_by(700) {
        let end = (start + 700).min(view.size());
        assert_eq!(read(&view, &reader, start..end).unwrap(), model.shown[start as usize..end as usize]);
    }
    assert_eq!(misses(&reader), chunks);
    assert_eq!(reader.cache.notices.take(0), None);
    // Only chunks with elements of the slices are decoded.
    let reader = model.reader(64 << 20);
    let array = Array::new(DType::U32, [40, 30, 20], model.grid().view());
    let slices = [
        Slice { start: 0, step: 1, count: 40 },
        Slice { start: 3, step: 1, count: 1 },
        Slice { start: 2, step: 7, count: 2 },
    ];
    let mut out = vec![0; 40 * 2 * 4];
    array.fill_slices(&reader, &slices, &mut out).unwrap();
    assert_eq!(out, model.sliced(&slices));
    assert_eq!(misses(&reader), 10 * 2);
    for wrong in [&slices[..2], &[slices[0].clone(), slices[1].clone(), Slice { start: 14, step: 7, count: 2 }]] {
        assert!(array.fill_slices(&reader, wrong, &mut out).is_err());
    }
}

/// A column touches each chunk of its column of chunks, and the next columns take them from the cache.
#[test]
fn a_reader_of_columns_decodes_each_chunk_once() {
    let model = Model::new(vec![100, 100], vec![16, 16], Turn::No, 4, None, 2, 0);
    let chunks = model.blocks.len() as u64;
    let reader = model.reader(64 << 20);
    let array = Array::new(DType::U32, [100, 100], model.grid().view());
    let mut out = vec![0; 100 * 4];
    for column in 0..100 {
        let slices = [Slice { start: 0, step: 1, count: 100 }, Slice { start: column, step: 1, count: 1 }];
        array.fill_slices(&reader, &slices, &mut out).unwrap();
        assert_eq!(out, model.sliced(&slices));
    }
    assert_eq!((misses(&reader), chunks), (49, 49));
    // A whole array that is read straight into its answer counts, too.
    let reader = model.reader(64 << 20);
    let mut out = vec![0; 100 * 100 * 4];
    let all = Slice { start: 0, step: 1, count: 100 };
    Array::new(DType::U32, [100, 100], model.grid().view())
        .fill_slices(&reader, &[all.clone(), all], &mut out)
        .unwrap();
    assert_eq!(out, model.shown);
    assert_eq!(misses(&reader), chunks);
}

/// A reader that keeps the whole array: each chunk is decoded once, and takes no room afterwards, even if only one at a
/// time has room.
#[test]
fn what_the_reader_keeps_is_not_cached() {
    // Chunks whose elements lie between those of others in the array, and contiguous ones.
    for chunk in [vec![16, 16], vec![8, 100]] {
        let model = Model::new(vec![100, 100], chunk, Turn::No, 4, None, 2, 1 << 5);
        let stored = model.blocks.iter().flatten().count() as u64;
        let (grid, mut out) = (model.grid(), vec![0xAA; model.shown.len()]);
        for budget in [64 << 20, 1 << 10] {
            let reader = model.reader(budget);
            grid.view().fill_kept(&reader, 0, &mut out).unwrap();
            assert_eq!(out, model.shown);
            assert_eq!((misses(&reader), reader.cache.usage().1), (stored, 0));
        }
        // Chunks that are cached are not decoded again.
        let reader = model.reader(64 << 20);
        read(&grid.view(), &reader, 0..grid.size()).unwrap();
        let before = misses(&reader);
        grid.view().fill_kept(&reader, 0, &mut out).unwrap();
        assert_eq!((misses(&reader), &out), (before, &model.shown));
    }
}

/// The error is that of the first damaged chunk, whichever is decoded first.
#[test]
fn damage_is_reported_of_the_first_chunk_to_a_reader_that_keeps() {
    for chunk in [vec![16, 16], vec![8, 100]] {
        let mut model = Model::new(vec![100, 100], chunk, Turn::No, 4, None, 2, 0);
        let damaged: Vec<u64> = [3, 4, 9].iter().map(|at| model.blocks[*at].as_ref().unwrap().offset).collect();
        damaged.iter().for_each(|at| model.file[*at as usize + 8] ^= 0xFF);
        let mut out = vec![0; model.shown.len()];
        let error = model.grid().view().fill_kept(&model.reader(64 << 20), 0, &mut out).unwrap_err();
        assert_eq!(error.offset, damaged[0], "{error:?}");
    }
}

/// The array has twice the size of the cache: chunks of earlier slabs are evicted for those of later ones.
#[test]
fn slabs_behind_the_reader_make_room() {
    let (codec, stored) = store(1, 4, &[7; 256 << 10]);
    let block = Block { offset: 0, stored_size: stored.len() as u64, size: 256 << 10, codec, crc: None };
    let layout = Layout {
        number: 0,
        shape: vec![96, 256, 256],
        chunk: vec![4, 128, 128],
        element: 4,
        order: None,
        turn: Turn::No,
        fill: vec![0; 4],
    };
    let grid = Grid::new(layout, Table(vec![24, 2, 2], vec![Some(block); 96])).unwrap();
    let reader = ReadContext::new(Arc::new(stored), Cache::new(12 << 20, Verify::Lazy), 0);
    let view = grid.view();
    for start in (0..view.size()).step_by(64 << 10) {
        let bytes = view.read_at(&reader, start, 64 << 10).unwrap();
        assert!(bytes.as_syscall_buf().iter().all(|byte| *byte == 7));
    }
    // Few are decoded again: those whose thread began to decode them ahead when the reader had long passed them.
    assert!((96..96 + 24).contains(&misses(&reader)), "{} chunks were decoded", misses(&reader));
    assert!(reader.cache.counters.evictions.load(Relaxed) > 0);
    assert_eq!(reader.cache.notices.take(0), None);
}

/// A slab has eight chunks of 256 KiB, and the cache room for six at most. Without an order each read would decode all.
#[test]
fn a_slab_that_does_not_fit_is_decoded_as_seldom_as_possible() {
    let (codec, stored) = store(1, 4, &[7; 256 << 10]);
    let block = Block { offset: 0, stored_size: stored.len() as u64, size: 256 << 10, codec, crc: None };
    let layout = Layout {
        number: 0,
        shape: vec![16, 1024, 128],
        chunk: vec![4, 128, 128],
        element: 4,
        order: None,
        turn: Turn::No,
        fill: vec![0; 4],
    };
    for step in [512 << 10, 128 << 10] {
        let grid = Grid::new(layout.clone(), Table(vec![4, 8, 1], vec![Some(block.clone()); 32])).unwrap();
        let reader = ReadContext::new(Arc::new(stored.clone()), Cache::new(3 << 19, Verify::Lazy), 0);
        let view = grid.view();
        for start in (0..view.size()).step_by(step as usize) {
            let bytes = view.read_at(&reader, start, step).unwrap();
            assert!(bytes.as_syscall_buf().iter().all(|byte| *byte == 7));
        }
        // Of each slab all once, and then three times those that have no room: at least five, and more for what decoding
        // needs. Without an order it would be 128.
        assert!((92..=112).contains(&misses(&reader)), "{} chunks were decoded", misses(&reader));
        assert!(reader.cache.notices.take(0).is_some());
    }
}

#[test]
fn a_damaged_chunk_fails_where_it_is_and_nowhere_else() {
    let mut model = Model::new(vec![6, 6], vec![2, 3], Turn::No, 4, None, 2, 0);
    let damaged = model.blocks[3].clone().unwrap();
    model.file[damaged.offset as usize + 4] ^= 1;
    let (reader, view) = (model.reader(1 << 24), model.grid().view());
    for element in 0..36u64 {
        let range = element * 4..element * 4 + 4;
        let is_inside = (2..4).contains(&(element / 6)) && element % 6 >= 3;
        match read(&view, &reader, range.clone()) {
            Ok(bytes) => assert!(!is_inside && bytes == model.shown[range.start as usize..range.end as usize]),
            Err(fault) => {
                assert!(is_inside, "{element}");
                assert_eq!(fault.offset, damaged.offset);
                assert!(fault.error.to_string().starts_with("crc32c is"), "{}", fault.error);
            }
        }
    }
    assert!(read(&view, &reader, 0..144).is_err());
}

#[test]
fn a_chunk_of_another_size_is_refused() {
    for size in [0, 1, 95, 97, 1 << 40] {
        for codec in 0..3 {
            let mut model = Model::new(vec![4, 6], vec![4, 6], Turn::No, 4, None, codec, 0);
            model.blocks[0].as_mut().unwrap().size = size;
            let (reader, grid) = (model.reader(1 << 24), model.grid());
            for range in [0..1, 3..90, 0..96] {
                let fault = read(&grid.view(), &reader, range).unwrap_err();
                assert!(fault.error.to_string().ends_with("where 96 are needed"), "{}", fault.error);
            }
            assert!(grid.raw(&reader, &[0, 0]).is_err() && grid.raw(&reader, &[1, 0]).unwrap().is_none());
        }
    }
}

/// An array of 2^60 bytes without a chunk is as quick as a small one.
#[test]
fn nothing_loops_over_a_grid() {
    #[derive(Debug)]
    struct Nothing;
    impl Chunks for Nothing {
        fn chunk(&self, _: &ReadContext, _: &[u64]) -> Result<Chunk, Fault> {
            Ok(Chunk::Absent)
        }
    }
    let layout = |shape: Vec<u64>, chunk: Vec<u64>| Layout {
        number: 0,
        shape,
        chunk,
        element: 4,
        order: None,
        turn: Turn::No,
        fill: vec![1, 2, 3, 4],
    };
    let reader = ReadContext::new(Arc::new(Vec::new()), Cache::new(1 << 24, Verify::Lazy), 0);
    for chunk in [vec![1, 1, 1], vec![2, 1, 1 << 20], vec![1, 1 << 20, 1]] {
        let view = Grid::new(layout(vec![2, 1 << 28, 1 << 29], chunk), Nothing).unwrap().view();
        assert_eq!(view.size(), 1 << 60);
        for at in [0, (1 << 59) - 64, (1 << 60) - 128] {
            assert_eq!(read(&view, &reader, at..at + 128).unwrap(), [1, 2, 3, 4].repeat(32));
        }
    }
    for (shape, chunk) in [
        (vec![1 << 40, 1 << 40], vec![1, 1]),
        (vec![4], vec![0]),
        (vec![4], vec![1 << 31]),
        (vec![4], vec![1, 1]),
        (vec![1; 33], vec![1; 33]),
    ] {
        assert!(Grid::new(layout(shape, chunk), Nothing).is_err());
    }
    let empty = Grid::new(layout(vec![0, 5], vec![2, 2]), Nothing).unwrap();
    assert_eq!(empty.view().size(), 0);
}

#[test]
fn a_slab_that_does_not_fit_is_said_once() {
    let model = Model::new(vec![64, 64, 16], vec![32, 8, 16], Turn::No, 4, None, 2, 0);
    // A slab has 8 chunks of 16 KiB; the memory of decoding one is larger.
    let (reader, grid) = (model.reader(200 << 10), model.grid());
    let view = grid.view();
    assert_eq!(reader.cache.notices.take(0), None);
    for start in (0..view.size()).step_by(5000) {
        let end = (start + 5000).min(view.size());
        assert_eq!(read(&view, &reader, start..end).unwrap(), model.shown[start as usize..end as usize]);
    }
    let notice = reader.cache.notices.take(0).unwrap();
    assert!(notice.contains("a row of chunks takes 1 MiB decoded") && notice.contains("--cache-size=1M"), "{notice}");
    assert_eq!(reader.cache.notices.take(0), None);
}

#[test]
fn a_column_of_an_array_that_stands_together() {
    let reader = ReadContext::new(Arc::new(Vec::new()), Cache::new(1 << 20, Verify::Lazy), 0);
    let bytes: Vec<u8> = (0..64 * 1024u32).map(|at| (at / 1024 + at) as u8).collect();
    let array = Array::new(DType::U8, [64, 1024], View::inline(bytes.clone()));
    let slices = [Slice { start: 0, step: 1, count: 64 }, Slice { start: 5, step: 1, count: 1 }];
    let mut out = vec![0; 64];
    array.fill_slices(&reader, &slices, &mut out).unwrap();
    assert_eq!(out, bytes.iter().skip(5).step_by(1024).copied().collect::<Vec<_>>());
}

#[test]
fn names_of_chunks() {
    for (at, name) in [(vec![], "0"), (vec![7], "7"), (vec![1, 20, 3], "1.20.3")] {
        for (is_stored, end) in [(false, ".bin"), (true, ".stored.bin")] {
            let name = format!("{name}{end}");
            assert_eq!(chunk_name(&at, is_stored), name);
            assert_eq!(parse_chunk_name(&name, at.len()), Some((at.clone(), is_stored)));
        }
    }
    for name in ["01.bin", "+1.bin", "1..bin", "1", ".bin", "1.2.bin", "1.stored", "18446744073709551616.bin"] {
        assert_eq!(parse_chunk_name(name, 1), None, "{name}");
    }
    assert_eq!(parse_chunk_name("1.bin", 0), None);
}
