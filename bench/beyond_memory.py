"""Epochs over more decoded data than the cache holds: random frames and whole episodes, with and without `--spill`.

    scripts/bench_epochs beyond [--episodes N] [--cache SIZE] [--dir DIR] [--record WHAT]

Each episode has 100 frames of 224 x 224 x 3 in one zstd block (15 MB). An epoch takes one random frame of each episode
in random order, by 4 processes; the second takes other frames. The reader beside it is what a Python program does by
itself: it reads the block, decompresses all of it, compares the checksum, and takes the frame. Sources are warm in the page
cache at the start of each epoch; `dropped` means that all page caches were dropped before (needs root).
"""

import argparse
import multiprocessing
import os
import struct
import time
from pathlib import Path

import crc32c
import numpy as np
import zstandard
from support.mounts import statistics_of
from support.writers import shard

from .timing import Table, machine, mounted, record_table

FRAMES, SHAPE = 100, (224, 224, 3)
FRAME = int(np.prod(SHAPE))
PROCESSES = 4


def make(folder, count):
    """Episodes that compress as camera pictures do: pictures with noise in the lowest bit."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    y, x = np.mgrid[:224, :224]
    for number in range(count):
        path = folder / f"ep_{number:04d}.wshard"
        if path.exists():
            continue
        # A still background with a moving square, and noise in the lowest bit of a quarter of the pixels.
        base = (np.sin((x + number) / 17) + np.cos((y - number) / 23)) * 60 + 128
        frames = np.repeat(np.repeat(base[None, ..., None], FRAMES, axis=0), 3, axis=-1).astype(np.uint8)
        for t in range(FRAMES):
            frames[t, t:t + 40, t:t + 40] = (x[:40, :40, None] + y[:40, :40, None]) % 256
        frames ^= (random.integers(0, 4, frames.shape, np.uint8) == 0).astype(np.uint8)
        channels = [{"id": "cam0/rgb", "dtype": "u8", "shape": list(SHAPE), "signal_block": "signal/cam0/rgb",
                     "modality": "rgb"}]
        blocks = [*shard.meta_blocks(path.stem, FRAMES, channels), ("signal/cam0/rgb", frames.tobytes())]
        shard.write_shard(path, blocks, codec="zstd", quick=True)


def by_reader(path, frame):
    """One frame as a program without a mount gets it."""
    with open(path, "rb") as file:
        count, = struct.unpack_from("<I", file.read(64), 12)
        index = file.read(48 * count)
        for entry in struct.iter_unpack("<QIHHQQQIHH", index):
            _, _, _, _, at, stored, size, crc, _, _ = entry
            if size == FRAMES * FRAME:
                file.seek(at)
                data = zstandard.ZstdDecompressor().decompress(file.read(stored), max_output_size=size)
                assert crc32c.crc32c(data) == crc
                return np.frombuffer(data, np.uint8, FRAME, frame * FRAME).sum()
    raise AssertionError(path)


def by_file(path, frame):
    """One frame of an .npy file."""
    fd = os.open(path, os.O_RDONLY)
    header = 10 + struct.unpack_from("<H", os.pread(fd, 10, 0), 8)[0]
    data = os.pread(fd, FRAME, header + frame * FRAME)
    os.close(fd)
    return np.frombuffer(data, np.uint8).sum()


def whole(path, _):
    """All frames of an .npy file."""
    return int(np.load(path)[::16].sum())


def epoch(take, paths, seed):
    """Samples a second of one random frame of each path."""
    random = np.random.default_rng(seed)
    work = [(paths[i], int(random.integers(FRAMES))) for i in random.permutation(len(paths))]
    with multiprocessing.Pool(PROCESSES) as pool:
        pool.starmap(by_file, [("/proc/self/exe", 0)] * 0)
        start = time.perf_counter()
        # A few samples at a time: handing over each by itself takes as long as reading it from the tier.
        sums = pool.starmap(take, work, chunksize=max(1, len(work) // (8 * PROCESSES)))
        seconds = time.perf_counter() - start
    return len(work) / seconds, dict(zip(work, sums, strict=True))


def settle(mnt):
    """Waits until nothing is left to be written to the tier."""
    while statistics_of(mnt)["spill"]["queued_bytes"]:
        time.sleep(0.1)


def drop():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--cache", default="1G")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/shardfs-beyond"))
    parser.add_argument("--record", metavar="WHAT")
    arguments = parser.parse_args()
    about, table = machine(), Table()
    source, spill, plain = arguments.dir / "source", arguments.dir / "spill", arguments.dir / "plain"
    make(source, arguments.episodes)
    files = sorted(source.iterdir())[: arguments.episodes]

    rates = []
    for seed in (1, 2):
        rate, expected = epoch(by_reader, files, seed)
        rates.append(rate)
        table.add(f"random frames, epoch {seed}", "reader", [rate], "samples/s")
    expected_second = expected

    def of(mnt):
        return [mnt / path.name / "signal/cam0/rgb.npy" for path in files]

    def epochs(name, *options, seeds, dropped=False):
        with mounted(source, "", f"--cache-size={arguments.cache}", *options) as (mnt, _):
            for seed in seeds:
                if dropped:
                    drop()
                rate, sums = epoch(by_file, of(mnt), seed)
                if seed == 2:
                    got = {(path.parts[-4], frame): value for (path, frame), value in sums.items()}
                    assert got == {(path.name, frame): value for (path, frame), value in expected_second.items()}
                base = rates[min(seed, 2) - 1]
                goal, least = ("30 x reader", 30) if seed >= 2 or "remount" in name else ("1.5 x reader", 1.5)
                table.add(f"random frames, epoch {seed}{', dropped' if dropped else ''}: {rate:.0f}/s", name,
                          [rate / base], "x reader", goal if "spill" in name else "",
                          (lambda ratio, least=least: ratio >= least) if "spill" in name else None)
            print(statistics_of(mnt), flush=True)

    epochs("mount", seeds=(1, 2))
    for path in spill.glob("**/*"):
        if path.is_file():
            path.unlink()
    options = (f"--spill={spill}", "--spill-size=50G")
    epochs("mount with --spill", *options, seeds=(1, 2, 3))
    epochs("the same, remounted", *options, seeds=(2,))
    epochs("the same, remounted", *options, seeds=(2,), dropped=True)

    plain.mkdir(exist_ok=True)
    with mounted(source, "", f"--cache-size={arguments.cache}", *options) as (mnt, _):
        for path in files:
            target = plain / f"{path.name}.npy"
            if not target.exists():
                target.write_bytes((mnt / path.name / "signal/cam0/rgb.npy").read_bytes())
    for serve, goal in (("cache", None), ("passthrough", 0.8)):
        how = (*options, f"--serve={serve}")
        if serve == "passthrough":
            # Blocks become files when they are read first.
            with mounted(source, "", f"--cache-size={arguments.cache}", *how) as (mnt, _):
                epoch(whole, of(mnt), 4)
                settle(mnt)
        ratios = {"": [], ", again": []}
        for seed in (5, 6, 7):
            drop()
            rate_plain, _ = epoch(whole, sorted(plain.iterdir()), seed)
            with mounted(source, "", f"--cache-size={arguments.cache}", *how) as (mnt, _):
                for times, found in ratios.items():
                    drop()
                    rate, _ = epoch(whole, of(mnt), seed + (10 if times else 0))
                    found.append(rate / rate_plain)
        for times, found in ratios.items():
            table.add(f"whole episodes, from the tier, dropped{times}", f"mount with --spill --serve={serve}", found,
                      "x plain .npy", ">= 0.8" if goal else "", (lambda ratio: ratio >= 0.8) if goal else None)
    rates_of = {}
    for name, serve in (("cache", "cache"), ("passthrough", "passthrough")):
        with mounted(source, "", f"--cache-size={arguments.cache}", *options, f"--serve={serve}") as (mnt, _):
            rates_of[name] = [epoch(by_file, of(mnt), seed)[0] for seed in (2, 8, 9)]
    for name, found in rates_of.items():
        table.add(f"random frames, remounted, three epochs: {', '.join(f'{rate:.0f}/s' for rate in found)}",
                  f"mount with --spill --serve={name}", [rate / rates[1] for rate in found], "x reader", ">= 30",
                  lambda ratio: ratio >= 30)
    if arguments.record:
        command = "scripts/bench_epochs beyond " + f"--episodes {arguments.episodes} --cache {arguments.cache}"
        print(record_table(arguments.record, "epochs larger than the cache", f"`{command}`", about, table))


if __name__ == "__main__":
    main()
