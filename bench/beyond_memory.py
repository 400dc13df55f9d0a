"""Epochs over more decoded data than the cache holds: random frames and whole episodes, with and without `--spill`, and
after `shardfs warm`.

    scripts/bench_epochs beyond [--episodes N] [--cache SIZE] [--dir DIR] [--part frames|warmed|whole]
                                [--serve MODES] [--record WHAT]

Each episode has 100 frames of 224 x 224 x 3 in one zstd block (15 MB). An epoch takes one random frame of each episode
in random order, by 4 processes; the second takes other frames. The reader beside it is the Python package `wshard` where it
imports, and otherwise one of a few lines that reads the block, decompresses all of it, compares the checksum, and takes
the frame. Sources are warm in the page cache at the start of each epoch; `dropped` means that all page caches were dropped
before (needs root).
"""

import argparse
import importlib.util
import multiprocessing
import os
import struct
import time
from pathlib import Path

import crc32c
import numpy as np
import zstandard
from support import run
from support.mounts import statistics_of
from support.writers import shard

from .timing import Table, machine, mounted, record_table, timed, warm

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


def by_package(path, frame):
    """The same by the format's own package."""
    import wshard

    episode = wshard.load_wshard(str(path), channels=["cam0/rgb"])
    return episode.observations["cam0/rgb"].data[frame].sum()


def reference():
    """What the mount is compared with: its name, and how it takes a frame."""
    return ("wshard", by_package) if importlib.util.find_spec("wshard") else ("a reader of a few lines", by_reader)


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


class Bench:
    """One run: the episodes, the table, and what a mount of them is."""

    def __init__(self, arguments):
        self.arguments, self.table = arguments, Table()
        self.source, self.spill, self.plain = (arguments.dir / name for name in ("source", "spill", "plain"))
        make(self.source, arguments.episodes)
        self.files = sorted(self.source.iterdir())[: arguments.episodes]
        self.options = (f"--spill={self.spill}", "--spill-size=50G")
        self.rates, self.expected = [], None

    def mounted(self, *options):
        return mounted(self.source, "", f"--cache-size={self.arguments.cache}", *options)

    def of(self, mnt):
        return [mnt / path.name / "signal/cam0/rgb.npy" for path in self.files]

    def reader(self):
        """What the other rows are compared with."""
        warm(self.files)
        name, take = reference()
        for seed in (1, 2):
            rate, self.expected = epoch(take, self.files, seed)
            self.rates.append(rate)
            self.table.add(f"random frames, epoch {seed}", name, [rate], "samples/s")

    def epochs(self, name, *options, seeds, goals=(), dropped=False):
        """Random frames of one mount: an epoch for each seed, each with what it has to reach."""
        warm(self.files)
        with self.mounted(*options) as (mnt, _):
            for seed, goal in zip(seeds, goals or (0,) * len(seeds), strict=True):
                if dropped:
                    drop()
                rate, sums = epoch(by_file, self.of(mnt), seed)
                if seed == 2:
                    got = {(path.parts[-4], frame): value for (path, frame), value in sums.items()}
                    assert got == {(path.name, frame): value for (path, frame), value in self.expected.items()}
                ratio = rate / self.rates[min(seed, 2) - 1]
                work = f"random frames, epoch {seed}{', dropped' if dropped else ''}: {rate:.0f}/s"
                meets = (lambda ratio, goal=goal: ratio >= goal) if goal else None
                self.table.add(work, name, [ratio], "x reader", f">= {goal}" if goal else "", meets)
            print(statistics_of(mnt), flush=True)

    def frames(self):
        """Random frames without and with the tier, which is empty at first, and after a remount."""
        self.reader()
        self.epochs("mount", seeds=(1, 2))
        for serve in self.serves():
            self.clear()
            how = (*self.options, f"--serve={serve}")
            self.epochs(f"--spill --serve={serve}", *how, seeds=(1, 2, 3), goals=(1.5, 30, 30))
            self.epochs(f"--spill --serve={serve}, remounted", *how, seeds=(2, 8, 9), goals=(30, 30, 30))
            self.epochs(f"--spill --serve={serve}, remounted", *how, seeds=(2,), dropped=True)

    def warmed(self):
        """Random frames in the first epoch after `shardfs warm`."""
        if not self.rates:
            self.reader()
        for serve in self.serves():
            self.clear()
            warm(self.files)
            seconds = timed(lambda: run("warm", "--quiet", *self.options, self.source, check=True))
            # All that lie there, of earlier runs too.
            episodes = len(list(self.source.iterdir()))
            self.table.add("every episode", "shardfs warm", [episodes / seconds], "samples/s")
            how = (*self.options, f"--serve={serve}")
            self.epochs(f"--spill --serve={serve}, first epoch after warm", *how, seeds=(2,))

    def clear(self):
        """Empties the tier."""
        for path in self.spill.glob("**/*"):
            if path.is_file():
                path.unlink()

    def serves(self):
        return self.arguments.serve.split(",")

    def whole(self):
        """Whole episodes out of a tier that has them all, each epoch after a plain one."""
        self.plain.mkdir(exist_ok=True)
        with self.mounted(*self.options) as (mnt, _):
            for path in self.files:
                target = self.plain / f"{path.name}.npy"
                if not target.exists():
                    target.write_bytes((mnt / path.name / "signal/cam0/rgb.npy").read_bytes())
            settle(mnt)
        for serve in self.serves():
            how = (*self.options, f"--serve={serve}")
            if serve == "passthrough":
                # Blocks become files when they are read first.
                with self.mounted(*how) as (mnt, _):
                    epoch(whole, self.of(mnt), 4)
                    settle(mnt)
            for dropped in (False, True):
                ratios = {"first epoch": [], "second": []}
                for seed in range(5, 5 + self.arguments.rounds):
                    warm(self.files)
                    with self.mounted(*how) as (mnt, _):
                        for which, found in ratios.items():
                            rates = []
                            for paths in (sorted(self.plain.iterdir())[: len(self.files)], self.of(mnt)):
                                if dropped:
                                    drop()
                                rates.append(epoch(whole, paths, seed + (10 if which == "second" else 0))[0])
                            found.append(rates[1] / rates[0])
                for which, found in ratios.items():
                    is_goal = serve == "passthrough"
                    self.table.add(f"whole episodes, remounted, {which}{', dropped' if dropped else ''}",
                                   f"--spill --serve={serve}", found, "x plain .npy", ">= 0.8" if is_goal else "",
                                   (lambda ratio: ratio >= 0.8) if is_goal else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--cache", default="1G")
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/shardfs-beyond"))
    parser.add_argument("--part", choices=("frames", "warmed", "whole"), help="only these rows")
    parser.add_argument("--serve", default="cache,passthrough", help="modes of mounts with the tier")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", metavar="WHAT")
    arguments = parser.parse_args()
    about, bench = machine(), Bench(arguments)
    for part in [arguments.part] if arguments.part else ["frames", "warmed", "whole"]:
        getattr(bench, part)()
    if arguments.record:
        command = "scripts/bench_epochs beyond " + f"--episodes {arguments.episodes} --cache {arguments.cache}"
        command += f" --part {arguments.part}" if arguments.part else ""
        print(record_table(arguments.record, "epochs larger than the cache", f"`{command}`", about, bench.table))


if __name__ == "__main__":
    main()
