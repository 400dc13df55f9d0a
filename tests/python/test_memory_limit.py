"""What `--cache-size` promises, kept by the kernel: a mount in a control group that may have that much memory and 64 MiB,
a server in one of that size.

The files are the golden ones and some that were made to cost memory. The promise is that the kernel never kills the
daemon, that files which fit are read without an error, and that those which can't be are an error.
"""

import errno
import hashlib
import os
import random
import struct
import threading
import time

import numpy as np
import pytest
import zstandard

from support import (
    BIN, FAMILIES, GOLDEN, load_expected, mounted_by, serving, statistics_of, walk_files, within_limit, writers,
)
from support.writers import idv

MIB = 1 << 20
BUDGET = 64 * MIB
READERS = 64


def lie(path, stored=None, size=None):
    """Has the one block of a Shard file say other numbers of bytes (docs/formats/wshard.md 3), in a sparse file."""
    data = bytearray(path.read_bytes())
    (offset,) = struct.unpack_from("<Q", data, 64 + 16)
    if size is not None:
        struct.pack_into("<Q", data, 64 + 32, size)
    if stored is not None:
        struct.pack_into("<Q", data, 64 + 24, stored)
        struct.pack_into("<Q", data, 40, offset + stored)
    path.write_bytes(data)
    if stored is not None:
        os.truncate(path, offset + stored)


def windowed(path, window_log, size):
    """A zstd block of `size` bytes whose decoder needs a window of 2 ** `window_log` bytes."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=window_log, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    # Pieces that come again after most of a window.
    piece = random.Random(window_log).randbytes(MIB)
    stored = b"".join([*(packer.compress(piece if i % 8 == 0 else bytes(MIB)) for i in range(size // MIB)),
                       packer.flush()])
    entry = writers.shard_entry(b"signal/x", 0, 3, 128, len(stored), size, 0)
    front = writers.shard_header(5, 0, 32, "zstd", 1, 112, 128, 128 + len(stored))
    path.write_bytes((front + entry + b"signal/x").ljust(128, b"\0") + stored)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The golden files, and files that were made to cost memory."""
    top = tmp_path_factory.mktemp("limit")
    for family in FAMILIES:
        (top / family).mkdir()
        for path in (GOLDEN / family).iterdir():
            if path.is_file():
                (top / family / path.name).write_bytes(path.read_bytes())
    hostile = top / "hostile"
    hostile.mkdir()
    for codec in ("lz4", "zstd"):
        writers.write_shard(hostile / f"sparse-{codec}.wshard", [("signal/x", bytes(100))], codec=codec)
        lie(hostile / f"sparse-{codec}.wshard", stored=3 << 30)
    # A MiB of JSON that takes fifty when it is interpreted, in many files.
    json = b'{"a":[' + b"{}," * ((MIB - 20) // 3) + b"{}]}"
    for number in range(8):
        writers.write_shard(hostile / f"json{number:02}.wshard", [("meta/episode", json)])
    for number in range(2):
        writers.write_shard(hostile / f"many{number}.shard", [(f"x{i}", b"1234") for i in range(30_000)], role=0)
    # Blocks that decode to more than half of the budget.
    data = np.arange(40 * MIB // 8, dtype="<i8").tobytes()
    for codec in ("zstd", "lz4"):
        writers.write_shard(hostile / f"large-{codec}.wshard", [(f"signal/b{i}", data) for i in range(2)], codec=codec,
                            quick=True)
    windowed(hostile / "window24.wshard", 24, 72 * MIB)
    windowed(hostile / "window27.wshard", 27, 200 * MIB)
    # Texts: a small file whose block and index take a dozen MiB, in two columns and several files; and one that takes
    # more than the budget.
    for name, rows in [("texts0", 1 << 20), ("texts1", 1 << 20), ("texts-large", 20 << 20)]:
        packed, size = idv.zeros_between(idv.numbers("i", [rows, 0]), (b"\0", 4 * rows), (b"\xff", 4 * rows), bytes(9))
        columns = [(column, idv.vbuffer("TextSpan")) for column in "ab"]
        (hostile / name).write_bytes(idv.of_records(rows, rows, columns, packed, [(0, len(packed), size)]))
    chunk = (GOLDEN / "wshard/chunked_py/long_ep_chunk_0000.wshard").read_bytes()
    folder = hostile / "chunks"
    folder.mkdir()
    names = [f"chunk{i:04}.wshard" for i in range(500)]
    for name in names:
        (folder / name).write_bytes(chunk)
    digest = hashlib.sha256(chunk).digest()
    writers.write_manifest(folder / "manifest.wshard", "long", [(name, digest, 64) for name in names])
    return top


# What can't be had: damage, and what takes more than the budget.
SPARSE = tuple(f"hostile/sparse-{codec}.wshard/signal/x.{suffix}" for codec in ("lz4", "zstd")
               for suffix in ("bin", "npy"))


def fails(expected):
    """Whether `expected.json` says of a part of a container that it is an input/output error."""
    if isinstance(expected, dict):
        return "eio" in expected or any(map(fails, expected.values()))
    return any(map(fails, expected)) if isinstance(expected, list) else expected == "eio"


DAMAGED = (*SPARSE, "lerobot/v30_damaged/", *(f"{family}/{name}/" for family in FAMILIES
                                               for name, shown in load_expected(family).items() if fails(shown)))
TOO_LARGE = ("hostile/window27.wshard/", "hostile/texts-large/")


def inside(group):
    """A command that runs another one in a control group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_everything_is_read_by_64_readers_within_the_limit(source, mode):
    with within_limit(BUDGET + 64 * MIB) as (group, kills):
        command = [*inside(group), BIN, "mount", "--foreground", f"--serve={mode}", f"--cache-size={BUDGET}", source]
        with mounted_by(command) as (mnt, daemon):
            names = sorted(name for name in walk_files(mnt) if not name.endswith("/"))
            # Of tens of thousands of like files some; all are listed.
            few = [name for name in names if "/many" not in name and "/chunks/" not in name]
            # The two modes read different files of those that other tests read anyway.
            usual = [name for name in few if not name.startswith("hostile/")]
            few = [name for name in few if name.startswith("hostile/")] + usual[mode == "cache"::3]
            few += [name for name in names if "/many" in name][::1000]
            few += [name for name in names if "/manifest." in name and ".png" not in name]
            assert {name.split("/")[1] for name in few if name.startswith("hostile/")} >= {
                "json00.wshard", "many1.shard", "large-lz4.wshard", "window24.wshard", "texts1", "chunks"}
            # Hostile ones by many readers at once, large ones by a few.
            times = {name: 1 if "/large-" in name or "/texts-large" in name or "/window" in name else
                     4 if name.startswith("hostile/") else 1 for name in few}
            work = [name for name in few for _ in range(times[name])]
            random.Random(mode).shuffle(work)
            lock, wrong, failed = threading.Lock(), [], set()

            def read():
                while True:
                    with lock:
                        if not work:
                            return
                        name = work.pop()
                    try:
                        with open(mnt / name, "rb", buffering=0) as file:
                            while file.read(MIB):
                                pass
                    except OSError as error:
                        is_known = name.startswith(DAMAGED) and error.errno == errno.EIO or (
                            name.startswith(TOO_LARGE) and error.errno == errno.ENOMEM)
                        with lock:
                            failed.add(name) if is_known else wrong.append((name, error))

            readers = [threading.Thread(target=read) for _ in range(READERS)]
            [reader.start() for reader in readers]
            [reader.join() for reader in readers]
            assert kills() == 0 and daemon.poll() is None
            assert not wrong, (len(wrong), wrong[:5])
            assert any(name.startswith(SPARSE) for name in failed) and any(name.startswith(TOO_LARGE) for name in failed)
            problems = (mnt / ".shardfs/problems.jsonl").read_text()
            assert "--cache-size must be " in problems
            cache = statistics_of(mnt)["cache"]
            assert cache["budget"] == BUDGET and cache["used"] <= BUDGET


def test_hostile_pages_are_read_by_30_readers_within_the_limit(tmp_path):
    """Documents that are many times their size as a page, or while they are interpreted: each is shown to each reader."""
    documents = {"quotes.json": b'"' * (2 * MIB), "bytes.json": b"\xff" * (2 * MIB), "control.txt": b"\x01" * MIB,
                 "marks.json": b"<&" * MIB}
    for name, data in documents.items():
        (tmp_path / name).write_bytes(data)
    json = b'{"a":[' + b"{}," * ((MIB - 20) // 3) + b"{}]}"
    pages = [f"/-/view/{name}" for name in documents]
    for number in range(4):
        writers.write_shard(tmp_path / f"json{number}.wshard", [("meta/episode", json), ("signal/x", bytes(100))])
        pages.append(f"/files/json{number}.wshard/")
    writers.write_shard(tmp_path / "many.shard", [(f"x{i}", b"1234") for i in range(30_000)], role=0)
    pages += ["/files/many.shard/", "/files/", "/-/problems"]
    lock, wrong, work = threading.Lock(), [], [path for path in pages for _ in range(4)]
    random.Random(5).shuffle(work)
    with within_limit(BUDGET + 64 * MIB) as (group, kills):
        with serving(tmp_path, f"--cache-size={BUDGET}", within=inside(group)) as server:
            def read():
                while True:
                    with lock:
                        if not work:
                            return
                        path = work.pop()
                    try:
                        for _ in range(100):
                            status, _, body = server.ask(path, Accept="text/html")
                            if status != 503:
                                break
                            # Too much is asked for at once: it says so, and how long to wait.
                            time.sleep(0.1)
                        is_whole = body.endswith(b"</html>\n") and (
                            path != "/-/view/quotes.json" or body.count(b"&quot;") >= 2 * MIB) and (
                            path != "/-/view/bytes.json" or body.decode().count("\ufffd") == 2 * MIB)
                        if status != 200 or not is_whole:
                            wrong.append((path, status, body[-200:]))
                    except Exception as error:
                        wrong.append((path, error))

            readers = [threading.Thread(target=read) for _ in range(30)]
            [reader.start() for reader in readers]
            [reader.join() for reader in readers]
            assert kills() == 0 and server.process.poll() is None
            assert not wrong, (len(wrong), wrong[:5])
