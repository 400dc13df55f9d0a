"""Measures Zarr stores beside zarr-python and zarrs, and tree sequences beside tszip.

    scripts/bench_zarr [--dir DIR] [--record] [--only WORD]

Makes what it reads in DIR (4 GB, in some minutes), and gives the best of five rounds, both programs by turns. Needs
/dev/fuse, target/release/shardfs (or SHARDFS_BIN), zarr, numcodecs, zarrs, tszip, msprime, numpy and the package shardfs.
Run it on a machine that does nothing else.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tszip
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

import shardfs

from .beside import ROUNDS, Rows, copies, far, fresh, once, peak_memory, timed

MIB = 1 << 20
SIDE = 1024


def values():
    """16 MiB of f4 that compress to about half."""
    return np.cumsum(np.random.default_rng(1).integers(-20, 21, (2048, 2048)), axis=1).astype("<f4")


def kinds(path):
    root = zarr.open_group(path, mode="w", zarr_format=3)
    for name, codec in (("blosc", BloscCodec(cname="lz4")), ("zstd", ZstdCodec(level=3))):
        root.create_array(name, data=values(), chunks=(256, 256), compressors=[codec])


def sharded(path):
    root = zarr.open_group(path, mode="w", zarr_format=3)
    data = np.random.default_rng(1).integers(0, 100, (1000, 1000)).astype("<u2")
    root.create_array("x", data=data, chunks=(10, 10), shards=(1000, 1000), compressors=[ZstdCodec(level=3)])


def volume(path):
    root = zarr.open_group(path, mode="w", zarr_format=3)
    array = root.create_array("x", shape=(SIDE,) * 3, chunks=(256,) * 3, dtype="u2", compressors=[ZstdCodec(level=1)])
    rng = np.random.default_rng(1)
    for z in range(0, SIDE, 64):
        slope = np.add.outer(np.arange(SIDE), np.arange(SIDE))[None] + np.arange(z, z + 64)[:, None, None]
        array[z:z + 64] = (slope + rng.integers(0, 8, (64, SIDE, SIDE))).astype("u2")


def cubes(path):
    root = zarr.open_group(path, mode="w", zarr_format=3)
    data = np.random.default_rng(1).integers(0, 64, (64, SIDE, SIDE)).astype("u2")
    array = root.create_array("x", shape=(SIDE,) * 3, chunks=(64,) * 3, dtype="u2", compressors=[ZstdCodec(level=1)])
    array[:64] = data


def genealogy(path):
    import msprime
    trees = msprime.sim_ancestry(10_000, sequence_length=1.5e8, recombination_rate=1e-8, population_size=1e4, random_seed=1)
    tszip.compress(msprime.sim_mutations(trees, 1e-8, random_seed=1), path)


def whole(rows, path):
    def own(name, take):
        with fresh(path.parent) as mnt:
            return timed(lambda: take(np.load(mnt / path.name / f"{name}.npy", mmap_mode="r")))[0]

    def other(name, take):
        return timed(lambda: take(zarr.open_group(path, mode="r")[name]))[0]

    def in_python(name, take):
        return timed(lambda: take(shardfs.open(str(next(left)))[name]))[0]

    def everything(array):
        return np.array(array[...])

    def chunk(array):
        return array[512:768, 512:768].sum()

    with copies(path, 4 * ROUNDS) as left:
        for name in ("blosc", "zstd"):
            rows.ratio(f"16 MiB in 64 chunks, {name}, Python", lambda: in_python(name, everything),
                       lambda: other(name, everything), "≤ 0.25 ×", most=0.25)
            rows.ratio("the same, mount", lambda: own(name, everything), lambda: other(name, everything), "≤ 0.25 ×", most=0.25)
            rows.ratio("open and one chunk, Python", lambda: in_python(name, chunk), lambda: other(name, chunk), "≤ 0.25 ×",
                       most=0.25)
            rows.ratio("the same, mount, closed", lambda: own(name, chunk), lambda: other(name, chunk), "≤ 0.25 ×", most=0.25)


def inner_chunks(rows, path):
    with copies(path) as left:
        took = min(timed(lambda: shardfs.open(str(next(left)))["x"][...])[0] for _ in range(ROUNDS))
    rows.value("10,000 inner chunks of a shard, Python", took, "s", "≤ 0.1 s", took <= 0.1)
    with fresh(path.parent) as mnt:
        took = timed(lambda: np.load(mnt / path.name / "x.npy"))[0]
    rows.value("the same, mount", took, "s", "≤ 0.1 s", took <= 0.1)
    took = timed(lambda: zarr.open_group(path, mode="r")["x"][...])[0]
    rows.note("the same, zarr-python", f"{took:.3g} s")


def slabs(rows, path):
    """zarrs as the codec pipeline of zarr-python, which is how it is had without building it."""
    program = f"""
import time, zarr
zarr.config.set({{"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}})
array = zarr.open_group({str(path)!r}, mode="r")["x"]
start = time.perf_counter()
array[...]
print(time.perf_counter() - start)
"""

    def zarrs():
        return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)

    own = f"""
import time, shardfs
array = shardfs.open({str(path)!r})["x"]
start = time.perf_counter()
array[...]
print(time.perf_counter() - start)
"""

    def in_python():
        return float(subprocess.run([sys.executable, "-c", own], check=True, capture_output=True, text=True).stdout)

    memory = []
    # A slab is a layer of chunks.
    slab = SIDE * SIDE * 256 * 2 // MIB

    def mount():
        with fresh(path.parent, f"--cache-size={2 * slab}M") as mnt:
            with open(mnt / path.name / "x.npy", "rb", buffering=0) as file:
                buffer = bytearray(MIB)
                took = timed(lambda: all(iter(lambda: file.readinto(buffer), 0)))[0]
            memory.append(peak_memory(mnt))
        return took

    rows.ratio(f"{SIDE}³ u16 in 256³ chunks, Python, beside zarrs", in_python, zarrs, "≥ 0.8 of its speed", most=1.25, rounds=3)
    rows.ratio("the same, mount", mount, zarrs, "≥ 0.8 of its speed", most=1.25, rounds=3)
    rows.value("memory of the mount", max(memory), "MiB", f"≤ two slabs ({2 * slab} MiB)", max(memory) <= 2 * slab)


def from_afar(rows, path):
    files = [(f"set/{file.relative_to(path.parent)}", file) for file in sorted(path.rglob("*")) if file.is_file()]
    chunks = (SIDE // 64) ** 2
    with far(files) as bucket:
        keys = [key for key, _ in files if "/c/0/" in key]
        assert len(keys) == chunks

        def get(key):
            with urllib.request.urlopen(f"{bucket.endpoint}/b/{key}") as answer:
                return len(answer.read())

        def bare():
            with ThreadPoolExecutor(16) as pool:
                return timed(lambda: list(pool.map(get, keys)))[0]

        counts = []

        def own():
            with tempfile.TemporaryDirectory(prefix="shardfs-bench-") as cache:
                bucket.cache = cache
                with bucket.mounted() as mnt:
                    # Not through a map: this process is the server, and a page fault stops all of it.
                    file = os.open(mnt / "set" / path.name / "x.npy", os.O_RDONLY)
                    plane = 2 * SIDE * SIDE
                    bucket.requests()
                    took = timed(lambda: os.pread(file, plane, 128 + 5 * plane))[0]
                    os.close(file)
                    counts.append(bucket.requests())
            return took

        rows.ratio(f"bucket with 20 ms: a plane of {SIDE}³ in 64³ chunks, beside 16 GETs at once", own, bare,
                   "≥ 0.8 of their speed", most=1.25, rounds=3)
        rows.value("requests of that", max(counts), "requests", f"{chunks}", max(counts) <= chunks)


def columns(rows, path):
    rows.note("size of the .tsz", f"{path.stat().st_size / 1e6:.0f} MB")

    def own():
        with fresh(path.parent, "--cache-size=1G") as mnt:
            return timed(lambda: np.load(mnt / path.name / "nodes/time.npy"))[0]

    def other():
        return timed(lambda: tszip.load(path).tables.nodes.time)[0]

    rows.ratio(".tsz: one column, mount, closed", own, other, "≤ 0.5 × tszip.load", most=0.5)
    rows.ratio("the same, Python", lambda: timed(lambda: shardfs.open(str(path))["nodes/time"][...])[0], other,
               "≤ 0.5 × tszip.load", most=0.5)


WORKS = [(whole, kinds, ".zarr"), (inner_chunks, sharded, ".zarr"), (slabs, volume, ".zarr"), (from_afar, cubes, ".zarr"),
         (columns, genealogy, ".tsz")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-zarr", type=Path)
    parser.add_argument("--only", default="", help="works whose name has this word")
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-zarr.md")
    arguments = parser.parse_args()
    rows = Rows()
    for work, write, suffix in WORKS:
        if arguments.only not in work.__name__:
            continue
        folder = arguments.dir / write.__name__
        folder.mkdir(parents=True, exist_ok=True)
        path = once(folder / f"{write.__name__}{suffix}", write)
        subprocess.run(["grep", "-rc", "no such words", path], stdout=subprocess.DEVNULL, check=False)
        work(rows, path)
    if arguments.record:
        import zarrs
        rows.record("zarr", "Zarr stores", "scripts/bench_zarr", f"best of {ROUNDS} rounds, both programs by turns; zarr "
                    f"{zarr.__version__}, zarrs {zarrs.__version__} as its codec pipeline, tszip {tszip.__version__}, shardfs "
                    "built with --release")


if __name__ == "__main__":
    main()
