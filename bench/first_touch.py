"""What reading something for the first time costs: small arrays, metadata, names.

    scripts/bench_epochs first [--dir DIR] [--rounds N] [--rows signals,metadata,...] [--record NAME]

Each round has a new mount, so that neither the kernel nor the daemon knows a container; the containers themselves are
warm in the page cache. The reader beside it is the Python package `wshard` where it imports, and otherwise one of a few
lines that reads the index, the block, and compares its checksum. Needs root (for taskset on other processes), /dev/fuse,
and the packages of scripts/test.
"""

import argparse
import json
import mmap
import os
import shutil
import struct
from pathlib import Path

import crc32c
import lz4.block
import numpy as np
import zstandard
from support.writers import channel, kdb, meta_blocks, write_shard

from .files import signal_like
from .timing import (
    MIB,
    Table,
    by_turns,
    machine,
    mounted,
    read_each,
    read_whole,
    record_table,
    settle,
    timed,
    touch_memory,
    visit_all,
    warm,
)

EPISODES, SMALL, CONTAINERS, FOLDER, TRAJECTORIES = 500, 2000, 10_000, 50_000, 2000


def make(top):
    """Everything that is read, once."""
    if (top / "made").exists():
        return
    shutil.rmtree(top, ignore_errors=True)
    for name in ("episodes", "small", "folder", "folder-plain"):
        (top / name).mkdir(parents=True)
    rng = np.random.default_rng(1)
    names = [f"signal/s{i:02}" for i in range(8)]
    channels = [channel(name, "f32", [7]) for name in names] + [channel("signal/wide", "f32", [512])]
    for number in range(EPISODES):
        blocks = meta_blocks(f"ep_{number}", 100, channels)
        blocks += [(name, signal_like(700).tobytes()) for name in names]
        blocks += [("signal/wide", rng.integers(0, 64, 51_200).astype("<f4").tobytes())]
        write_shard(top / f"episodes/ep_{number:04}.wshard", blocks, codec="zstd", quick=True)
    for number in range(4):
        lanes = {f"s{i:04}": signal_like(5088) for i in range(SMALL // 4)}
        blocks = meta_blocks("small", 5088, [channel(f"signal/{name}", "f32", []) for name in lanes])
        write_shard(top / f"small/{number}.wshard", blocks + [(f"signal/{n}", d.tobytes()) for n, d in lanes.items()])
    one = top / "one.wshard"
    lanes = {f"group{i // 3}/lane{i:02}": signal_like(16) for i in range(6)}
    blocks = meta_blocks("one", 16, [channel(f"signal/{name}", "f32", []) for name in lanes])
    write_shard(one, blocks + [(f"signal/{n}", d.tobytes()) for n, d in lanes.items()])
    for number in range(FOLDER):
        os.link(one, top / f"folder/ep_{number:06}.wshard")
        (top / f"folder-plain/ep_{number:06}.wshard").mkdir()
    for codec in ("zstd", "lz4"):
        blocks = meta_blocks("large", 12 * MIB, [channel("signal/a", "f32", [])])
        write_shard(top / f"large-{codec}.wshard", blocks + [("signal/a", signal_like(12 * MIB).tobytes(), 0, codec)],
                    quick=True)
    rows = (np.ones((2, 1)), np.zeros((2, 1)), np.zeros(2), [0, 1])
    frames = [[kdb.Record("cam", 1, 1, 3, 0, b"\1\2\3")] for _ in range(2)]
    kdb.write_many(top / "demo.kdb", kdb.Episode(frames, embodiment="robot", task="task", success=2, rows=rows),
                   TRAJECTORIES)
    (top / "made").touch()


def make_many(top):
    """Containers, and the files that they show in plain folders."""
    many, plain = top / "many", top / "many-plain"
    if (top / "made-many").exists():
        return
    for folder in (many, plain):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for number in range(CONTAINERS):
        shutil.copyfile(top / "one.wshard", many / f"ep_{number:06}.wshard")
    with mounted(many, "cache") as (mnt, _):
        shutil.copytree(mnt / "ep_000000.wshard", plain / "ep_000000.wshard")
    for number in range(1, CONTAINERS):
        shutil.copytree(plain / "ep_000000.wshard", plain / f"ep_{number:06}.wshard")
    (top / "made-many").touch()


def block_of(path, wanted):
    """One block by a reader of a few lines."""
    with open(path, "rb") as file:
        head = file.read(64)
        count, strings_at, data_at = *struct.unpack_from("<I", head, 12), *struct.unpack_from("<QQ", head, 16)
        index = file.read(data_at - 64)
        for at in range(0, 48 * count, 48):
            _, name_at, length, _, where, stored, size, crc = struct.unpack_from("<QIHHQQQI", index, at)
            start = strings_at - 64 + name_at
            if index[start:start + length] == wanted:
                file.seek(where)
                data = file.read(stored)
                if stored != size:
                    data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
                assert crc32c.crc32c(data) == crc
                return data
    raise AssertionError(f"{path}: no block {wanted}")


def by_reader(paths, block):
    """What a program without a mount does for one block of each container."""
    try:
        import wshard
    except ImportError:
        return "a reader of a few lines", lambda: [block_of(path, block.encode()) for path in paths]
    keep = [block.removeprefix("signal/")] if block.startswith("signal/") else []
    return "wshard", lambda: [wshard.load_wshard(str(path), channels=keep) for path in paths]


def ready(*sources):
    """Brings files to the page cache, and has memory at hand: a host, or a kernel that reclaims what lies idle, takes both
    back within seconds, and what comes first would pay for it."""
    for source in sources:
        warm([source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()])
    touch_memory()


def on_one_core(pid):
    """Keeps a daemon and this process on the first core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {0})
    os.sched_setaffinity(pid, {0})
    os.sched_setaffinity(0, {0})


def anywhere():
    os.sched_setaffinity(0, range(os.cpu_count()))


class Rows:
    def __init__(self, top, rounds, table):
        self.top, self.rounds, self.table = top, rounds, table

    def beside_reader(self, row, block, path_in, load):
        files = sorted((self.top / "episodes").iterdir())
        name, reader = by_reader(files, block)

        def through_mount():
            with mounted(self.top / "episodes", "") as (mnt, _):
                ready(self.top / "episodes")
                settle()
                return timed(lambda: [load(mnt / file.name / path_in) for file in files])

        def directly():
            ready(self.top / "episodes")
            return timed(reader)

        native, mount = by_turns(self.rounds, directly, through_mount)
        self.table.add(row, name, native, "s")
        self.table.add(row, "mount", [m / n for m, n in zip(mount, native, strict=True)], f"x {name}", "<= 1",
                       lambda value: value <= 1)

    def signals(self):
        """One small signal of closed episodes."""
        self.beside_reader(f"one small signal of {EPISODES} closed episodes", "signal/s03", "signal/s03.npy", np.load)

    def metadata(self):
        """The metadata of closed episodes."""
        self.beside_reader(f"meta/episode.json of {EPISODES} closed episodes", "meta/episode", "meta/episode.json",
                           lambda path: json.loads(path.read_bytes()))

    def trajectories(self):
        """The metadata of all trajectories of a KDB file: one listing with attributes, then each file."""
        times = []
        for _ in range(self.rounds):
            with mounted(self.top / "demo.kdb", "") as (mnt, _):
                def each(mnt=mnt):
                    for entry in os.scandir(mnt / "episodes"):
                        json.loads(Path(entry.path, "meta.json").read_bytes())
                ready(self.top / "demo.kdb")
                times.append(timed(each) * 1e6 / TRAJECTORIES)
        self.table.add(f"KDB: meta.json of {TRAJECTORIES} episodes, first", "mount", times, "us", "<= 60 us",
                       lambda value: value <= 60)

    def small(self):
        """Small arrays of open containers: open, read, close."""
        for cores in (1, 2):
            times = []
            for _ in range(self.rounds):
                with mounted(self.top / "small", "") as (mnt, pid):
                    folders = [mnt / f"{number}.wshard/signal" for number in range(4)]
                    paths = [folder / f"s{i:04}.npy" for folder in folders for i in range(1, SMALL // 4)]
                    for folder in folders:
                        read_whole(folder / "s0000.npy")
                    ready(self.top / "small")
                    settle()
                    if cores == 1:
                        on_one_core(pid)
                    times.append(timed(read_each, paths) * 1e6 / len(paths))
                    anywhere()
            self.table.add(f"open, read, close of {SMALL} arrays of 20 KB, first, {cores} core(s)", "mount", times, "us",
                           "<= 50 us", lambda value: value <= 50)

    def stat(self):
        """`stat` of names that the kernel does not know, in an open container."""
        for cores, goal in ((1, 12), (2, 15)):
            times = []
            for _ in range(self.rounds):
                with mounted(self.top / "small", "") as (mnt, pid):
                    folder = os.open(mnt / "0.wshard/signal", os.O_RDONLY)
                    os.stat("s0000.npy", dir_fd=folder)
                    ready()
                    settle()
                    if cores == 1:
                        on_one_core(pid)
                    def each(folder=folder):
                        for i in range(1, SMALL // 4):
                            os.stat(f"s{i:04}.npy", dir_fd=folder)
                    times.append(timed(each) * 1e6 / (SMALL // 4 - 1))
                    anywhere()
                    os.close(folder)
            self.table.add(f"stat, kernel cold, {cores} core(s)", "mount", times, "us", f"<= {goal} us",
                           lambda value, goal=goal: value <= goal)

    def find(self):
        """`find` over containers, first and again."""
        make_many(self.top)
        first, again, native = [], [], []
        for _ in range(max(1, self.rounds // 2)):
            visit_all(self.top / "many-plain")
            native.append(timed(visit_all, self.top / "many-plain"))
            with mounted(self.top / "many", "") as (mnt, _):
                ready(self.top / "many")
                settle()
                first.append(timed(visit_all, mnt) / native[-1])
                again.append(timed(visit_all, mnt) / native[-1])
        row = f"find with attributes over {CONTAINERS} containers"
        self.table.add(row, "plain folder", native, "s")
        self.table.add(f"{row}, first", "mount", first, "x plain", "<= 3", lambda value: value <= 3)
        self.table.add(f"{row}, again", "mount", again, "x plain", "<= 2", lambda value: value <= 2)

    def folder(self):
        """Listing one folder of very many containers."""
        def listed(top):
            return timed(lambda: [entry.stat(follow_symlinks=False) for entry in os.scandir(top)])

        native, first = [], []
        for _ in range(self.rounds):
            listed(self.top / "folder-plain")
            native.append(listed(self.top / "folder-plain"))
            with mounted(self.top / "folder", "") as (mnt, _):
                ready()
                settle()
                first.append(listed(mnt) / native[-1])
        self.table.add(f"listing {FOLDER} containers with attributes, first", "plain folder", native, "s")
        self.table.add(f"listing {FOLDER} containers with attributes, first", "mount", first, "x plain", "<= 8",
                       lambda value: value <= 8)

    def codecs(self):
        """A first read of one block of 48 MiB, on one core, beside the C library."""
        for codec, decode in (("zstd", lambda data, size: zstandard.ZstdDecompressor().decompress(data, size)),
                              ("lz4", lambda data, size: lz4.block.decompress(data, uncompressed_size=size))):
            path = self.top / f"large-{codec}.wshard"
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                entries = struct.iter_unpack("<QIHHQQQIHH", whole[64:64 + 48 * struct.unpack_from("<I", whole, 12)[0]])
                where, stored, size = next((e[4], e[5], e[6]) for e in entries if e[6] == 48 * MIB)
                data = whole[where:where + stored]

            def through_mount(path=path):
                with mounted(path, "") as (mnt, pid):
                    os.stat(mnt / "signal/a.npy")
                    ready(path)
                    on_one_core(pid)
                    seconds = timed(read_whole, mnt / "signal/a.npy")
                    anywhere()
                    return seconds

            def directly(decode=decode, data=data, size=size):
                ready()
                return timed(decode, data, size)

            bare, mount = by_turns(self.rounds, directly, through_mount)
            self.table.add(f"first read of a {codec} block of 48 MiB, one core", "mount",
                           [b / m for b, m in zip(bare, mount, strict=True)], "x C library", ">= 0.85",
                           lambda value: value >= 0.85)


ROWS = ("signals", "metadata", "trajectories", "small", "stat", "find", "folder", "codecs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/shardfs-first-touch"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--record", metavar="NAME")
    arguments = parser.parse_args()
    about, table = machine(), Table()
    make(arguments.dir)
    rows = Rows(arguments.dir, arguments.rounds, table)
    for row in arguments.rows.split(","):
        getattr(rows, row)()
    if arguments.record:
        print(record_table(arguments.record, "First touches", "`scripts/bench_epochs first`", about, table))


if __name__ == "__main__":
    main()
