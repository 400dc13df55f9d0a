//! Parsers, codecs and views, without a mount: `cargo bench`. Bytes are the throughput.
//!
//! The codecs stand beside the bare libraries, the views beside the bytes that they are made of.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "benchmarks")]

use std::{hint::black_box, path::Path, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardfs::{
    cache::{Cache, Verify},
    codec::Codec,
    source::Source,
    tree::{self, Container, FORMATS, IDV, KASTORE, KDB, NodeId, WSHARD},
    view::ReadContext,
};

fn example(name: &str) -> ReadContext {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let source: Arc<dyn Source> = Arc::new(std::fs::read(path).unwrap());
    ReadContext::new(source, Cache::new(1 << 30, Verify::Lazy), 0)
}

/// From the bytes of a container to its tree.
fn opening(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    let files = FORMATS.iter().filter(|format| format.markers.is_empty());
    for (format, name) in files.flat_map(|format| format.fixtures.iter().map(move |name| (format, *name))) {
        let reader = example(name);
        group.throughput(Throughput::Bytes(reader.source.len()));
        group.bench_function(name, |b| b.iter(|| format.open(black_box(&reader), None).unwrap()));
    }
}

/// Floats that compress about as recorded joints do.
fn signal(values: u64) -> Vec<u8> {
    let mut state = 7u64;
    let mut at = 0i64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += (state >> 60) as i64 - 8;
        (at as f32 / 256.0).to_le_bytes()
    };
    (0..values).flat_map(step).collect()
}

fn codecs(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode 4 MiB");
    group.sample_size(20);
    let bytes = signal(1 << 20);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    let zstd = zstd::bulk::compress(&bytes, 3).unwrap();
    let lz4 = lz4_flex::block::compress(&bytes);
    let mut out = vec![0; bytes.len()];
    group.bench_function("zstd, bare", |b| b.iter(|| zstd::bulk::decompress_to_buffer(&zstd, &mut out).unwrap()));
    group.bench_function("zstd", |b| b.iter(|| Codec::Zstd.decode_into(&zstd, &mut out).unwrap()));
    group.bench_function("lz4, bare", |b| b.iter(|| lz4_flex::block::decompress_into(&lz4, &mut out).unwrap()));
    group.bench_function("lz4", |b| b.iter(|| Codec::Lz4.decode_into(&lz4, &mut out).unwrap()));
    group.bench_function("crc32c", |b| b.iter(|| crc32c::crc32c(black_box(&bytes))));
}

/// A file by its path.
fn find(reader: &ReadContext, tree: &dyn Container, path: &str) -> NodeId {
    path.split('/').fold(tree::ROOT, |folder, name| {
        let found = tree.lookup(reader, folder, name).unwrap();
        found.unwrap_or_else(|| unreachable!("{path} is in the example"))
    })
}

/// Files read whole, with their blocks decoded: what a view costs beside its bytes.
fn views(c: &mut Criterion) {
    let mut group = c.benchmark_group("view");
    let (reader, format) = (example("ep_001.wshard"), &WSHARD);
    let tree = format.open(&reader, None).unwrap();
    for path in ["signal/cam0/rgb.npy", "signal/joint_pos.npy", "container.json"] {
        let file = find(&reader, &*tree, path);
        group.throughput(Throughput::Bytes(tree.view(&reader, file).unwrap().size()));
        let read = |b: &mut criterion::Bencher<'_>| {
            b.iter(|| tree.view(&reader, file).unwrap().read_at(&reader, 0, u64::MAX).unwrap());
        };
        group.bench_function(BenchmarkId::new("read", path), read);
    }
    let others = [
        (&KDB, "demo.kdb", "episodes/0/state.npy"),
        (&KASTORE, "tree_sequence.trees", "provenances/record.jsonl"),
        (&IDV, "table.idv", "columns/word/values.jsonl"),
    ];
    for (format, name, path) in others {
        let reader = example(name);
        let tree = format.open(&reader, None).unwrap();
        let file = find(&reader, &*tree, path);
        group.throughput(Throughput::Bytes(tree.view(&reader, file).unwrap().size()));
        let read = |b: &mut criterion::Bencher<'_>| {
            b.iter(|| tree.view(&reader, file).unwrap().copy_at(&reader, 0, u64::MAX).unwrap());
        };
        group.bench_function(BenchmarkId::new("read", path), read);
    }
    let picture = find(&reader, &*tree, "images/cam0/rgb/000.png");
    let view = tree.view(&reader, picture).unwrap();
    let png = view.read_at(&reader, 0, u64::MAX).unwrap();
    group.throughput(Throughput::Bytes(view.size()));
    group.bench_function("render a picture", |b| b.iter(|| view.read_at(&reader, 0, u64::MAX).unwrap()));
    let decode = || image::load_from_memory(black_box(png.as_syscall_buf())).unwrap();
    group.bench_function("decode that picture, bare", |b| b.iter(decode));
}

criterion_group!(benches, opening, codecs, views);
criterion_main!(benches);
