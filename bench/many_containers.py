"""Random frames of 200, 1,000 and 4,000 episodes whose decoded blocks fit in the cache, read by four processes.

    scripts/bench_many_containers [--dir DIR] [--record] [--only WORD]

Makes 4,000 episodes of 24 pictures of 64 x 48 pixels in DIR (0.3 GB stored, 0.9 GB decoded). The first pass reads four
frames of each episode; the second reads 16,000 of these frames in random order. The cache has 2 GiB, so the second pass
decodes nothing if blocks stay whatever is open. Readers: `os.pread` from a mount, the package, and fsspec. In the package
each process has a cache of its own, and a quarter of the episodes. Beside the mount stands a plain folder with the same
`.npy` files (0.9 GB): it says how much of a loss is the kernel's and the processor's. Needs /dev/fuse, target/release/shardfs (or SHARDFS_BIN), the package shardfs
and numpy. Run it on a machine that does nothing else.
"""

import argparse
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np
from support.writers import channel, meta_blocks, write_shard

from .beside import ROUNDS, Rows, fresh, once

COUNTS = (200, 1_000, 4_000)
PROCESSES, FRAMES, READS, CACHE = 4, 4, 16_000, 2 << 30
STEPS, SHAPE = 24, (48, 64, 3)
FRAME = int(np.prod(SHAPE))
ARRAY = "signal/cam0/rgb"
#: Least rate of a second pass, compared with that of 200 episodes.
GOAL = 0.8


def write(folder):
    rng = np.random.default_rng(1)
    folder.mkdir()
    # Pictures that zstd makes about a third as large.
    base = np.repeat(rng.integers(0, 256, (STEPS, *SHAPE[:1], SHAPE[1] // 4, 3), np.uint8), 4, axis=2)
    for number in range(max(COUNTS)):
        pixels = np.roll(base, number, axis=2)
        channels = [channel(ARRAY, "u8", list(SHAPE), modality="rgb")]
        blocks = [*meta_blocks(f"ep_{number}", STEPS, channels), (ARRAY, pixels.tobytes())]
        write_shard(folder / f"ep_{number:05}.wshard", blocks, codec="zstd")


def write_plain(folder):
    """The same folders and array files without containers. Their bytes do not matter."""
    for number in range(max(COUNTS)):
        path = folder / f"ep_{number:05}.wshard" / f"{ARRAY}.npy"
        path.parent.mkdir(parents=True)
        path.write_bytes(np.full(128 + STEPS * FRAME, number % 251, np.uint8))


def names(count, part):
    """The episodes of a process."""
    return [f"ep_{number:05}.wshard" for number in range(part, count, PROCESSES)]


class FromMount:
    def __init__(self, top):
        self.top = Path(top)

    def read(self, name, step):
        fd = os.open(self.top / name / f"{ARRAY}.npy", os.O_RDONLY)
        try:
            return os.pread(fd, FRAME, 128 + step * FRAME)
        finally:
            os.close(fd)


class FromPlain(FromMount):
    """The same calls in a plain folder."""


class FromPackage:
    def __init__(self, top):
        import shardfs

        shardfs.set_cache_size(CACHE)
        self.top, self.open = top, shardfs.open

    def read(self, name, step):
        return self.open(f"{self.top}/{name}")[ARRAY][step].tobytes()


class FromFsspec:
    def __init__(self, top):
        import shardfs
        import shardfs.fs

        shardfs.set_cache_size(CACHE)
        self.files = shardfs.fs.ShardFileSystem(source=str(top), skip_instance_cache=True)

    def read(self, name, step):
        start = 128 + step * FRAME
        return self.files.cat_file(f"{name}/{ARRAY}.npy", start=start, end=start + FRAME)


def work(reader, top, count, part, ready, go):
    """Both passes of a process. Each begins when all are ready; gives the seconds of each."""
    mine, rng, source = names(count, part), random.Random(part), reader(top)
    first = [(name, step) for name in mine for step in rng.sample(range(STEPS), FRAMES)]
    rng.shuffle(first)
    second = rng.choices(first, k=READS // PROCESSES)
    for reads in first, second:
        ready.wait()
        start = time.perf_counter()
        for name, step in reads:
            assert len(source.read(name, step)) == FRAME
        go.put(time.perf_counter() - start)
        ready.wait()


def rates(reader, top, count):
    """Frames a second of both passes, by all processes together."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(PROCESSES), context.Queue()
    processes = [context.Process(target=work, args=(reader, top, count, part, ready, done)) for part in range(PROCESSES)]
    for process in processes:
        process.start()
    # Results of the second pass come after all of the first.
    passes = [[done.get() for _ in processes] for _ in range(2)]
    for process in processes:
        process.join()
    return FRAMES * count / max(passes[0]), READS / max(passes[1])


def best(reader, folder):
    """The best of several rounds for each number of episodes, by turns, each with nothing decoded."""
    found = {count: [] for count in COUNTS}
    for _ in range(ROUNDS):
        for count in COUNTS:
            if reader is FromMount:
                with fresh(folder, f"--cache-size={CACHE}") as mnt:
                    found[count].append(rates(reader, mnt, count))
            else:
                found[count].append(rates(reader, folder, count))
    return {count: [max(rate) for rate in zip(*rounds)] for count, rounds in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-many-containers", type=Path)
    parser.add_argument("--only", default="", help="readers whose name has this word: mount, plain, package, fsspec")
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-many-containers.md")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = once(arguments.dir / "episodes", write)
    rows = Rows()
    readers = {"plain": FromPlain, "mount": FromMount, "package": FromPackage, "fsspec": FromFsspec}
    for name, reader in readers.items():
        if arguments.only not in name:
            continue
        found = best(reader, once(arguments.dir / "plain", write_plain) if reader is FromPlain else folder)
        few = found[COUNTS[0]][1]
        for count, (first, second) in found.items():
            rows.note(f"{name}, {count:,} episodes, first pass", f"{first:,.0f} frames/s")
            work = f"{name}, {count:,} episodes, second pass"
            if reader is FromPlain:
                rows.note(work, f"{second:,.0f} frames/s, {second / few:.2f} × that of 200")
            else:
                rows.value(work, second, "frames/s", f"≥ {GOAL:g} × that of 200", second >= GOAL * few)
    if arguments.record:
        rows.record("many-containers", "Random frames of many containers", "scripts/bench_many_containers",
                    f"best of {ROUNDS} rounds by {PROCESSES} processes, a cache of 2 GiB; shardfs built with --release")


if __name__ == "__main__":
    main()
