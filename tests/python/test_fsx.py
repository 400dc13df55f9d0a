"""Every way to read a file, in random order and by several handles at once, against the bytes in memory.

As fsx does it for file systems that are written to: here only what is read can be wrong.
"""

import errno
import io
import mmap
import os
import random
import tempfile

import numpy as np
import pytest

from support import mounted

PAGE = 4096
OPERATIONS = 1500


def npy(array):
    """The file as numpy writes it."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(1, 0))
    return out.getvalue()


def walk_like(count, seed):
    """Numbers that compress, and differ everywhere."""
    steps = np.random.default_rng(seed).integers(-8, 9, count)
    return (np.cumsum(steps) / 256 + seed).astype("<f4")


@pytest.fixture(scope="session")
def files(tmp_path_factory, writers):
    """A folder of containers, and what each file in it has to hold."""
    source, expected = tmp_path_factory.mktemp("fsx"), {}
    arrays = {"large": walk_like(700_001, 1), "middle": walk_like(70_000, 2), "small": walk_like(900, 3),
              "tiny": walk_like(3, 4), "empty": walk_like(0, 5)}
    for codec in ("none", "zstd", "lz4"):
        blocks = writers.meta_blocks("fsx", 1, [writers.channel(f"signal/{name}", "float32", []) for name in arrays])
        blocks += [(f"signal/{name}", array.tobytes()) for name, array in arrays.items()]
        writers.write_shard(source / f"{codec}.wshard", blocks, codec=codec, quick=True)
        for name, array in arrays.items():
            expected[f"{codec}.wshard/signal/{name}.npy"] = npy(array)
            expected[f"{codec}.wshard/.raw/signal/{name}.bin"] = array.tobytes()
    (source / "x.kas").write_bytes(writers.kastore({"a/b": arrays["large"], "c": arrays["small"]}))
    expected["x.kas/a/b.npy"], expected["x.kas/c.npy"] = npy(arrays["large"]), npy(arrays["small"])
    expected["x.kas/.file"] = (source / "x.kas").read_bytes()
    # Rows that lie among others: rendered when they are read.
    rows = (np.ones((5000, 3)), walk_like(10_000, 6).reshape(5000, 2), np.zeros(5000), np.arange(5000) % 2)
    frames = [[] for _ in range(5000)]
    (source / "x.kdb").write_bytes(writers.kdb.pack([writers.kdb.Episode(frames, rows=rows)]))
    expected["x.kdb/episodes/0/action.npy"] = npy(rows[1].astype("<f4"))
    (source / "plain").write_bytes(random.Random(7).randbytes(300_001))
    expected["plain"] = (source / "plain").read_bytes()
    return source, expected


class Reader:
    """Open files of a mount, and the ways to read them."""

    def __init__(self, mnt, expected, seed):
        self.mnt, self.expected, self.rng = mnt, expected, random.Random(seed)
        self.open, self.done = [], {}
        # Memory whose address is a multiple of a page, as O_DIRECT wants it.
        self.aligned = mmap.mmap(-1, 64 * PAGE)

    def range(self, size):
        """Somewhere in a file, at its borders and behind its end too."""
        rng = self.rng
        anywhere, near_the_end = rng.randrange(size + 1), max(0, size - rng.randrange(1, 9000))
        start = rng.choice([0, anywhere, anywhere, near_the_end, size + 5])
        few, pages, many = (rng.randrange(1, most) for most in (300, 3 * PAGE, 600_000))
        return start, rng.choice([0, 1, few, pages, many, 2 * size])

    def open_one(self, flags=os.O_RDONLY):
        path = self.rng.choice(list(self.expected))
        handle = os.open(self.mnt / path, flags)
        assert os.fstat(handle).st_size == len(self.expected[path]), path
        return path, handle

    def any(self):
        return self.rng.choice(self.open)

    # --- operations: each gives the file, where it read, how much it asked for, and what it got -----------------

    def pread(self):
        path, handle = self.any()
        start, length = self.range(len(self.expected[path]))
        return path, start, length, os.pread(handle, length, start)

    def readv(self):
        """Into buffers of several sizes."""
        path, handle = self.any()
        start, _ = self.range(len(self.expected[path]))
        buffers = [bytearray(self.rng.choice([0, 1, 7, 100, PAGE, 50_000])) for _ in range(self.rng.randrange(1, 6))]
        got = os.preadv(handle, buffers, start)
        return path, start, sum(map(len, buffers)), b"".join(buffers)[:got]

    def seek_and_read(self):
        """From the handle's own position, in two reads."""
        path, handle = self.any()
        start, length = self.range(len(self.expected[path]))
        assert os.lseek(handle, start, os.SEEK_SET) == start
        first = os.read(handle, length)
        return path, start, length + 10, first + (os.read(handle, 10) if len(first) == length else b"")

    def map(self):
        path, handle = self.any()
        size = len(self.expected[path])
        if size == 0:
            return None
        start, length = self.range(size)
        with mmap.mmap(handle, 0, prot=mmap.PROT_READ, flags=self.rng.choice([mmap.MAP_PRIVATE, mmap.MAP_SHARED])) as m:
            # Pages here and there before the range.
            for _ in range(self.rng.randrange(4)):
                at = self.rng.randrange(size)
                assert m[at] == self.expected[path][at], (path, at)
            return path, start, length, m[start:start + length]

    def map_from_the_middle(self):
        path, handle = self.any()
        size = len(self.expected[path])
        if size <= mmap.ALLOCATIONGRANULARITY:
            return None
        start = self.rng.randrange(size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        length = min(size - start, self.rng.randrange(1, 200_000))
        with mmap.mmap(handle, length, prot=mmap.PROT_READ, offset=start) as m:
            return path, start, length, m[:]

    def direct(self):
        """Past the kernel's cache, by a handle of its own."""
        path, handle = self.open_one(os.O_RDONLY | os.O_DIRECT)
        try:
            size = len(self.expected[path])
            start = self.rng.randrange(size // PAGE + 2) * PAGE
            length = self.rng.randrange(1, 65) * PAGE
            got = os.preadv(handle, [memoryview(self.aligned)[:length]], start)
            return path, start, length, self.aligned[:got]
        finally:
            os.close(handle)

    def to_a_file(self, copy):
        """What `copy(from, to, start, length)` puts into an ordinary file."""
        path, handle = self.any()
        start, length = self.range(len(self.expected[path]))
        length = max(1, length)
        with tempfile.TemporaryFile() as out:
            total = 0
            while total < length and (moved := copy(handle, out.fileno(), start + total, length - total)):
                total += moved
            return path, start, length, os.pread(out.fileno(), length, 0)

    def copy_range(self):
        """As `cp` does it: where the kernel refuses copy_file_range between file systems, it reads and writes."""
        def copy(source, out, start, length):
            try:
                return os.copy_file_range(source, out, length, start)
            except OSError as error:
                assert error.errno == errno.EXDEV, error
                return os.write(out, os.pread(source, min(length, 128 << 10), start))

        return self.to_a_file(copy)

    def send(self):
        return self.to_a_file(lambda source, out, start, length: os.sendfile(out, source, start, length))

    def splice(self):
        path, handle = self.any()
        start, length = self.range(len(self.expected[path]))
        length = min(max(1, length), 16 * PAGE)
        ends = os.pipe()
        try:
            moved = os.splice(handle, ends[1], length, offset_src=start)
            data = os.read(ends[0], moved) if moved else b""
            # A pipe may have taken less than all.
            return path, start, moved if data else length, data
        finally:
            for end in ends:
                os.close(end)

    def drop(self):
        """Makes the kernel forget what it keeps of a file."""
        _, handle = self.any()
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def reopen(self):
        if len(self.open) > 8:
            os.close(self.open.pop(self.rng.randrange(len(self.open)))[1])
        self.open.append(self.open_one())

    def run(self, operations):
        ways = [self.pread, self.readv, self.seek_and_read, self.map, self.map_from_the_middle, self.direct,
                self.copy_range, self.send, self.splice, self.drop, self.reopen]
        self.open = [self.open_one() for _ in range(4)]
        try:
            for number in range(operations):
                way = self.rng.choice(ways)
                done = way()
                self.done[way.__name__] = self.done.get(way.__name__, 0) + 1
                if done is None:
                    continue
                path, start, length, data = done
                want = self.expected[path][start:start + length]
                if data != want:
                    differ = next((i for i, (a, b) in enumerate(zip(data, want)) if a != b), min(len(data), len(want)))
                    raise AssertionError(f"operation {number}, {way.__name__}: {path} {start}+{length}: {len(data)} "
                                         f"bytes, not {len(want)}; they differ from {start + differ} on")
        finally:
            for _, handle in self.open:
                os.close(handle)
        assert len(self.done) == len(ways), self.done


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_every_way_to_read(files, mode, seed):
    source, expected = files
    # One cache holds everything, one not even the largest block.
    with mounted(source, f"--serve={mode}", f"--cache-size={['256M', '1M', '8M'][seed]}") as mnt:
        Reader(mnt, expected, seed).run(OPERATIONS)
