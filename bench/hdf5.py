"""Measures HDF5 files beside h5py.

    scripts/bench_hdf5 [--dir DIR] [--record] [--only WORD]

Makes what it reads in DIR (1 GB), and gives the best of five rounds, both programs by turns. Needs /dev/fuse,
target/release/shardfs (or SHARDFS_BIN), h5py, numpy and the package shardfs. Run it on a machine that does nothing else.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import shardfs

from .beside import ROUNDS, Rows, copies, far, fresh, on_one_core, once, peak_memory, timed

MIB = 1 << 20
FRAMES = 2000


def values():
    """16 MiB of f4 that compress to about half."""
    return np.cumsum(np.random.default_rng(1).integers(-20, 21, (2048, 2048)), axis=1).astype("<f4")


def kinds(path):
    with h5py.File(path, "w") as file:
        for name, options in {"gzip": {"compression": "gzip", "shuffle": True}, "lzf": {"compression": "lzf"},
                              "chunked": {}}.items():
            file.create_dataset(name, data=values(), chunks=(256, 256), **options)
        file["contiguous"] = values()
    np.save(path.with_name("plain.npy"), values())


def film(path):
    """Frames of 64 KiB, four in each chunk, gzip."""
    rng = np.random.default_rng(1)
    base = np.add.outer(np.arange(128), np.arange(128))[..., None] * np.array([1, 2, 3, 1])
    frames = (base + rng.integers(0, 4, (FRAMES, 1, 1, 4)) + rng.integers(0, 2, (FRAMES, 128, 128, 4))).astype("u1")
    with h5py.File(path, "w") as file:
        file.create_dataset("frames", data=frames, chunks=(4, 128, 128, 4), compression="gzip")


def groups(path):
    with h5py.File(path, "w") as file:
        for number in range(5000):
            file.create_group(f"g/{number:04}")
            file[f"d/{number:04}"] = np.arange(8, dtype="f4")


def demos(path):
    """As robomimic has them."""
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for number in range(100):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = rng.normal(size=(200, 7))
            demo["rewards"], demo["dones"] = np.zeros(200), np.zeros(200, "i8")
            for name, width in (("eef", 3), ("gripper", 2), ("object", 14)):
                demo[f"obs/{name}"] = rng.normal(size=(200, width))
            demo.attrs["num_samples"] = 200


def million(path):
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(1_000_000):
            file.create_group(f"{number:07}")


def whole(rows, path):
    def own(name):
        with fresh(path.parent) as mnt:
            return timed(lambda: np.load(mnt / path.name / f"{name}.npy"))[0]

    def other(name):
        def read():
            with h5py.File(path) as file:
                return file[name][...]

        return timed(read)[0]

    # Another file each time: what was decoded is kept.
    with copies(path, 6 * ROUNDS) as left:
        def in_python(name):
            opened = shardfs.open(str(next(left)))
            return timed(lambda: opened[name][...])[0]

        whole_of(rows, path, own, other, in_python)


def whole_of(rows, path, own, other, in_python):
    with on_one_core():
        rows.ratio("gzip + shuffle, one core, Python", lambda: in_python("gzip"), lambda: other("gzip"), "≤ 1.05 ×", most=1.05)
        rows.ratio("the same, mount", lambda: own("gzip"), lambda: other("gzip"), "≤ 1.05 ×", most=1.05)
    rows.ratio("gzip + shuffle, two cores, Python", lambda: in_python("gzip"), lambda: other("gzip"), "≤ 0.6 ×", most=0.6)
    rows.ratio("the same, mount", lambda: own("gzip"), lambda: other("gzip"), "≤ 0.6 ×", most=0.6)
    for name, goal in (("lzf", 1.1), ("chunked", 1.1)):
        rows.ratio(f"{name}, Python", lambda: in_python(name), lambda: other(name), f"≤ {goal} ×", most=goal)
        rows.ratio("the same, mount", lambda: own(name), lambda: other(name), f"≤ {goal} ×", most=goal)
    plain = path.with_name("plain.npy")
    rows.ratio("contiguous, Python, beside a plain file", lambda: in_python("contiguous"),
               lambda: timed(lambda: np.load(plain))[0], "≤ 1.05 ×", most=1.05)
    with fresh(path.parent) as mnt:
        np.load(mnt / path.name / "contiguous.npy")
        rows.ratio("the same, mount, read before", lambda: timed(lambda: np.load(mnt / path.name / "contiguous.npy"))[0],
                   lambda: timed(lambda: np.load(plain))[0], "≤ 1.05 ×", most=1.05)


def random_frames(rows, path):
    order = random.Random(1).sample(range(0, FRAMES, 4), 100)

    def each(take):
        return timed(lambda: [int(take(number)[0, 0, 0]) for number in order])[0] / len(order)

    def other():
        with h5py.File(path, rdcc_nbytes=0) as file:
            frames = file["frames"]
            return each(lambda number: frames[number])

    again = []

    def own():
        with fresh(path.parent) as mnt:
            frames = np.load(mnt / path.name / "frames.npy", mmap_mode="r")
            first = each(lambda number: frames[number])
            again.append(each(lambda number: frames[number]))
        return first

    rows.ratio("a random frame of a chunk of 256 KiB, cold, mount", own, other, "≤ 1 ×", most=1)
    left = iter(again)
    rows.ratio("the same again", lambda: next(left), other, "≥ 20 × faster", least=20)

    def in_python():
        frames = shardfs.open(str(path))["frames"]
        return each(lambda number: frames[number])

    rows.ratio("the same in Python, again", in_python, other, "≥ 20 × faster", least=20)


def names(rows, path):
    def other():
        def work():
            with h5py.File(path) as file:
                return list(file["g"])

        return timed(work)[0]

    def own():
        with fresh(path.parent) as mnt:
            return timed(lambda: os.listdir(mnt / path.name / "g"))[0]

    rows.ratio("names of 5,000 groups, closed file, mount", own, other, "≤ 10 ms, h5py's", most=1)

    def other_shapes():
        def work():
            with h5py.File(path) as file:
                return [each.shape for each in file["d"].values()]

        return timed(work)[0]

    def own_shapes():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            copy = Path(folder) / "copy.h5"
            copy.write_bytes(path.read_bytes())

            def work():
                return [each.shape for each in shardfs.open(str(copy))["d"].values()]

            took, found = timed(work)
            assert len(found) == 5000
            return took

    rows.ratio("shapes of 5,000 datasets, Python", own_shapes, other_shapes, "≤ 0.5 ×", most=0.5)


def first_look(rows, path):
    """In a mount that has looked into the folder: the file is closed, and its kind is known."""
    took = []
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for number in range(40):
            (Path(folder) / f"{number}.h5").write_bytes(path.read_bytes())
        time.sleep(0.2)
        with fresh(folder) as mnt:
            subprocess.run(["ls", "-l", mnt], stdout=subprocess.DEVNULL, check=True)
            order = list(range(40))
            random.Random(1).shuffle(order)
            for number in order:
                took.append(timed(lambda number=number: os.stat(mnt / f"{number}.h5/data/demo_7/actions.npy"))[0])
    middle = sorted(took)[len(took) // 2]
    rows.value("first look-up in a closed file (data/demo_7/actions.npy)", middle, "s", "≤ 0.5 ms", middle <= 0.0005)


WORKER = """
import random, sys, time
import numpy as np
kind, path, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "h5py":
    import h5py
    frames = h5py.File(path)["frames"]
else:
    frames = np.load(path, mmap_mode="r")
chosen = random.Random(seed).choices(range(frames.shape[0]), k=400)
print("ready", flush=True)
sys.stdin.readline()
total = 0
for number in chosen:
    total += int(frames[number].sum())
print(total)
"""


def workers(rows, path):
    def rate(kind, source):
        program = [sys.executable, "-c", WORKER, kind, str(source)]
        running = [subprocess.Popen([*program, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for seed in range(8)]
        for worker in running:
            worker.stdout.readline()
        begin = time.perf_counter()
        for worker in running:
            worker.stdin.write("\n")
            worker.stdin.flush()
        for worker in running:
            worker.communicate()
        return (time.perf_counter() - begin) / (8 * 400)

    def own():
        with fresh(path.parent) as mnt:
            rate("mount", mnt / path.name / "frames.npy")
            return rate("mount", mnt / path.name / "frames.npy")

    rows.ratio("8 processes, a random frame, gzip, second epoch", own, lambda: rate("h5py", path), "≥ 3 × faster", least=3,
               rounds=3)


def from_afar(rows, path):
    with far([("set/demos.h5", path)]) as bucket:
        def look():
            with bucket.mounted() as mnt:
                bucket.requests(), bucket.round_trips()
                assert len(os.listdir(mnt / "set/demos.h5/data")) == 100
                listed = bucket.requests()
                np.load(mnt / "set/demos.h5/data/demo_50/actions.npy")
                return listed, bucket.requests(), bucket.round_trips()

        listed, read, trips = look()
        rows.value("bucket with 20 ms: list 100 demos and read one array", listed + read, f"requests ({listed} + {read})",
                   "≤ 25 + 4", listed + read <= 29)
        rows.value("the same", trips, "round trips", "≤ 5", trips <= 5)
        listed, read, trips = look()
        rows.value("after a remount", trips, f"round trips ({listed + read} requests)", "≤ 2", trips <= 2)


def many_groups(rows, path):
    def root():
        with fresh(path.parent) as mnt:
            took = timed(lambda: os.stat(mnt / path.name / "0500000"))[0]
            return took, timed(lambda: os.listdir(mnt / path.name)), peak_memory(mnt)

    took, (listed, found), memory = root()
    assert len(found) >= 1_000_000
    rows.value("10^6 groups: first look-up", took, "s", "the time of its root", took <= 0.05)
    rows.value("10^6 groups: ls", listed, "s", "streams", listed <= 10)
    rows.value("memory of the mount", memory, "MiB", "≤ 64 MiB", memory <= 64)


WORKS = [(whole, kinds), (random_frames, film), (names, groups), (first_look, demos), (workers, film), (from_afar, demos),
         (many_groups, million)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-hdf5", type=Path)
    parser.add_argument("--only", default="", help="works whose name has this word")
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-hdf5.md")
    arguments = parser.parse_args()
    rows = Rows()
    for work, write in WORKS:
        if arguments.only not in work.__name__:
            continue
        folder = arguments.dir / write.__name__
        folder.mkdir(parents=True, exist_ok=True)
        path = once(folder / f"{write.__name__}.h5", write)
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        work(rows, path)
    if arguments.record:
        rows.record("hdf5", "HDF5 files", "scripts/bench_hdf5", f"best of {ROUNDS} rounds, both programs by turns; h5py "
                    f"{h5py.__version__}, HDF5 {h5py.version.hdf5_version}, shardfs built with --release")


if __name__ == "__main__":
    main()
