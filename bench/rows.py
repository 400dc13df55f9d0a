"""The rows of the table: each method measures one kind of work."""

import os
import subprocess
import threading
import time
from pathlib import Path

import lz4.block
import zstandard
from support import memory_of

from .timing import (MIB, by_turns, map_again, map_pages, map_whole, mounted, read_each, read_whole, settle, timed,
                     visit, visit_all)


class Bench:
    def __init__(self, arguments, tree, table):
        self.rounds, self.tree, self.table = arguments.rounds, tree, table

    def ratio(self, row, who, native, mount, goal):
        """How fast the mount is where the plain folder is 1."""
        self.table.add(row, who, [n / m for n, m in zip(native, mount, strict=True)], "x native", f">= {goal}",
                       lambda value: value >= goal)

    def again(self, mode):
        """Large files a second time."""
        plain = self.tree.plain / "large-none.wshard/signal/a.npy"
        for codec in ("none", "zstd"):
            with mounted(self.tree.source, mode, "--cache-size=4G") as (mnt, _):
                path = mnt / f"large-{codec}.wshard/signal/a.npy"
                for read, how in ((lambda file: timed(read_whole, file), "read(2)"), (map_again, "mmap, the same map"),
                                  (map_whole, "mmap, a new map"), (map_pages, "mmap, a new map, a byte a page")):
                    # Twice to warm up: some modes decide at the first opening, some at its end.
                    for _ in range(2):
                        read(plain), read(path)
                        time.sleep(0.3 if self.tree.size < 512 else 1.0)
                    native, mount = by_turns(2 * self.rounds, lambda: read(plain), lambda: read(path))
                    goal = 0.75 if mode == "cache" and how == "read(2)" else 0.95
                    self.ratio(f"large file again, {how}, stored as {codec}", mode, native, mount, goal)

    def small(self, mode):
        """Small files a second time: open, read, close."""
        for name, row in (("small", "20 KB file again"), ("medium", "1 MB file again")):
            with mounted(self.tree.source, mode, "--cache-size=4G") as (mnt, _):
                plain = sorted((self.tree.plain / f"{name}.wshard/signal").iterdir())
                paths = sorted((mnt / f"{name}.wshard/signal").iterdir())
                for _ in range(2):
                    read_each(plain), read_each(paths)
                each = 1e6 / len(paths)
                native, mount = by_turns(2 * self.rounds, lambda: timed(read_each, plain) * each,
                                         lambda: timed(read_each, paths) * each)
                self.table.add(row, "plain folder", native, "us")
                self.table.add(row, mode, mount, "us", *(("<= 60 us", lambda v: v <= 60) if mode == "passthrough" else ())
                               if name == "small" else ())
                self.table.add(f"{row}, native = 1", mode, [m / n for n, m in zip(native, mount, strict=True)], "x",
                               *(("<= 2", lambda v: v <= 2) if mode == "cache" and name == "small" else ()))

    def first(self, mode):
        """A first read, of an uncompressed block and against the bare decoders."""
        plain, ratios = self.tree.plain / "large-none.wshard/signal/a.npy", []
        native, mount = [], []
        read_whole(plain)
        for _ in range(self.rounds):
            native.append(timed(read_whole, plain))
            with mounted(self.tree.source, mode, "--cache-size=4G", "--verify=off") as (mnt, _):
                mount.append(timed(read_whole, mnt / "large-none.wshard/signal/a.npy"))
        self.ratio("first read, stored as it is", mode, native, mount, 0.70 if mode == "passthrough" else 0.40)
        for file in ("parts", "large"):
            for codec in ("zstd", "lz4"):
                bare, ratios = self.bare(file, codec), []
                for _ in range(self.rounds):
                    with mounted(self.tree.source, mode, "--cache-size=4G") as (mnt, pid):
                        paths = sorted((mnt / f"{file}-{codec}.wshard/signal").iterdir())
                        os.sched_setaffinity(pid, {0})
                        for thread in Path(f"/proc/{pid}/task").iterdir():
                            os.sched_setaffinity(int(thread.name), {0})
                        seconds = timed(read_each, paths)
                    ratios.append(bare() / seconds)
                size = "48 MiB blocks" if file == "parts" else f"{self.tree.size} MiB block"
                self.table.add(f"first read, {codec}, {size}", mode, ratios, "x bare decoder", ">= 0.9", lambda v: v >= 0.9)

    def bare(self, file, codec):
        """Decoding the same blocks to memory with the C libraries, one core, checksum not counted."""
        container = (self.tree.source / f"{file}-{codec}.wshard").read_bytes()
        blocks = []
        for i in range(int.from_bytes(container[12:16], "little")):
            at = 64 + 48 * i
            where, disk, orig = (int.from_bytes(container[at + p:at + p + 8], "little") for p in (16, 24, 32))
            if disk < orig:
                blocks.append((container[where:where + disk], orig))
        def decode():
            for stored, size in blocks:
                if codec == "zstd":
                    zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
                else:
                    lz4.block.decompress(stored, uncompressed_size=size)
        return lambda: timed(decode)

    def front(self, mode):
        """The first 4 KiB of a block of 1 GiB."""
        times = []
        for _ in range(self.rounds):
            with mounted(self.tree.source, mode, "--verify=lazy", "--cache-size=4G") as (mnt, _):
                def head():
                    fd = os.open(path, os.O_RDONLY)
                    os.pread(fd, 4096, 0)
                    os.close(fd)
                path = mnt / "huge.wshard/signal/a.npy"
                os.stat(path)
                times.append(timed(head) * 1e3)
        self.table.add("first 4 KiB of a 1 GiB zstd block", mode, times, "ms", "< 5 ms", lambda v: v < 5)

    def stat(self, mode):
        """`stat` of files that the kernel knows nothing of, in an open container."""
        times = []
        for _ in range(self.rounds):
            with mounted(self.tree.source, mode) as (mnt, _):
                settle()
                folder = os.open(mnt / "small.wshard/signal", os.O_RDONLY)
                os.stat("s0000.npy", dir_fd=folder)
                def each():
                    for i in range(1, 1000):
                        os.stat(f"s{i:04}.npy", dir_fd=folder)
                times.append(timed(each) * 1e6 / 999)
                os.close(folder)
        self.table.add("stat, kernel cold", mode, times, "us", "<= 12 us", lambda v: v <= 12)

    def find(self, mode):
        """`find` that visits (stats) every file of many containers."""
        for work, what in ((visit, "names"), (visit_all, "and attributes")):
            native, mount = [], []
            work(self.tree.many_plain)
            for _ in range(max(1, self.rounds // 2)):
                native.append(timed(work, self.tree.many_plain))
                with mounted(self.tree.many, mode) as (mnt, _):
                    settle()
                    mount.append(timed(work, mnt))
            row = f"find over {self.tree.containers} containers, {what}"
            self.table.add(row, "plain folder", native, "s")
            self.table.add(row, mode, [m / n for n, m in zip(native, mount, strict=True)], "x native", "<= 2",
                           lambda v: v <= 2)

    def mount(self, mode):
        """Mounting a folder of very many containers."""
        times, memory = [], []
        for _ in range(self.rounds):
            start = time.perf_counter()
            with mounted(self.tree.thousands, mode) as (mnt, pid):
                os.stat(mnt)
                times.append((time.perf_counter() - start) * 1e3)
                memory.append(memory_of(pid) / MIB)
        self.table.add(f"mounting {self.tree.folder} containers", mode, times, "ms", "< 100 ms", lambda v: v < 100)
        self.table.add(f"mounting {self.tree.folder} containers", mode, memory, "MiB", "< 64 MiB", lambda v: v < 64)

    def memory(self, mode):
        """Memory of the daemon when everything was read once."""
        with mounted(self.tree.source, mode, "--cache-size=256M") as (mnt, pid):
            for folder, _, files in os.walk(mnt):
                read_each(f"{folder}/{name}" for name in files)
            time.sleep(0.5)
            self.table.add("resident after everything was read, 256 MiB budget", mode, [memory_of(pid) / MIB], "MiB",
                           "<= 320 MiB", lambda v: v <= 320)

    def latency(self, mode):
        """The 99th percentile of look-ups, idle and while large blocks are being decoded."""
        def p99(busy):
            with mounted(self.tree.source, mode, "--cache-size=4G") as (mnt, _):
                folder = os.open(mnt / "small.wshard/signal", os.O_RDONLY)
                os.stat("s0000.npy", dir_fd=folder)
                reader = threading.Thread(target=lambda: subprocess.run(
                    ["dd", f"if={mnt}/huge.wshard/signal/a.npy", "of=/dev/null", "bs=1M", "iflag=skip_bytes",
                     f"skip={1000 * MIB}", "count=1", "status=none"], check=True))
                if busy:
                    reader.start()
                    time.sleep(0.2)
                times = []
                for i in range(1, 1000):
                    times.append(timed(lambda: os.stat(f"s{i:04}.npy", dir_fd=folder)) * 1e6)
                os.close(folder)
                if busy:
                    reader.join()
                return sorted(times)[989]
        idle, busy = by_turns(self.rounds, lambda: p99(False), lambda: p99(True))
        self.table.add("look-ups, p99, idle", mode, idle, "us")
        self.table.add("look-ups, p99, while 1 GiB is being decoded", mode,
                       [b / i for i, b in zip(idle, busy, strict=True)], "x idle", "<= 2", lambda v: v <= 2)


ROWS = ("again", "small", "first", "front", "stat", "find", "mount", "memory", "latency")
