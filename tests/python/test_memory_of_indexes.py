"""Small files that would take much memory before a byte of a block is read: names, indexes, pictures. Under the limit of
`test_memory_limit.py` each is shown, or refused with ENOMEM and the `--cache-size` that it needs; nothing is killed.
"""

import contextlib
import errno
import io
import json
import os
import random
import struct
import threading

import numpy as np
import pytest
from PIL import Image

from support import BIN, mounted_by, within_limit
from support.writers import idv, kdb

MIB = 1 << 20
BUDGET = 64 * MIB
READERS = 32


def encoded(kind, side):
    """A file of one picture of `side` x `side` pixels, all alike."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (7, 7, 7)).save(out, kind)
    return out.getvalue()


def of_pictures(data, side, frames=3):
    """A KDB file of one camera with the same picture in each frame."""
    return kdb.pack([kdb.Episode([[kdb.Record("cam", side, side, 3, 1, data)]] * frames)])


def many_pictures(path, count):
    """A KDB file of one episode with so many pictures of one pixel."""
    a_frame = 50_000
    record = kdb.Record("c", 1, 1, 3, 0, b"abc").pack()
    frame = struct.pack("<H", a_frame) + record * a_frame
    frames = count // a_frame
    episode = kdb.Episode([[]] * frames, instead={"images": frame * frames})
    path.write_bytes(kdb.pack([episode]))


def of_columns(path, names):
    """An IDV file of columns without rows. A number is a name of so many zeros, for which the disk stores nothing."""
    column = idv.definition("Int32") + b"\0" + idv.leb(1) + struct.pack("<qq", 256, 0)
    with open(path, "wb") as file:
        file.seek(256)
        for name in names:
            if isinstance(name, int):
                file.write(idv.leb(name))
                file.seek(name, os.SEEK_CUR)
            else:
                file.write(idv.string(name))
            file.write(column)
        tail = file.tell()
        file.write(b"\0BVD\0LMC")
        full = (0x000100010001 << 16) | 6
        file.seek(0)
        file.write(struct.pack("<8sQQqqqi", b"CML\0DVB\0", full, full, 256, tail, 0, len(names)))


def of_metadata(path, count, kind):
    """An IDV file of one column with so many metadata, whose kinds are `kind` zeros long."""
    with open(path, "wb") as file:
        file.seek(256)
        file.write(idv.leb(count))
        for _ in range(count):
            file.write(idv.leb(kind))
            file.seek(kind, os.SEEK_CUR)
            file.write(idv.definition("Int32") + b"\0" + struct.pack("<q", 256) + idv.leb(4))
        toc = file.tell()
        file.write(idv.string("a") + idv.definition("Int32") + b"\0" + idv.leb(1) + struct.pack("<qq", 256, 256))
        tail = file.tell()
        file.write(b"\0BVD\0LMC")
        full = (0x000100010001 << 16) | 6
        file.seek(0)
        file.write(struct.pack("<8sQQqqqi", b"CML\0DVB\0", full, full, toc, tail, 0, 1))


def read(path, places=(0,)):
    """A MiB at each place of a file, and its size."""
    with open(path, "rb", buffering=0) as file:
        return b"".join(os.pread(file.fileno(), MIB, at) for at in places), os.fstat(file.fileno()).st_size


def listed(folder, most=200):
    with os.scandir(folder) as entries:
        return [entry.name for _, entry in zip(range(most), entries)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """SOURCE, and what is done with it: path, how, and whether it has to work."""
    top = tmp_path_factory.mktemp("indexes")
    work = []
    # Pictures of a stack that fit the budget, and some that take more than all of it.
    for kind, small, large in (("JPEG", 1000, 6000), ("PNG", 1500, 6000)):
        for side, fits in ((small, True), (large, False)):
            name = f"{kind.lower()}{side}.kdb"
            (top / name).write_bytes(of_pictures(encoded(kind, side), side))
            places = (0, 3 * side * side, 9 * side * side - MIB)
            work.append((f"{name}/episodes/0/images/cam.npy", lambda path, places=places: read(path, places), fits))
    for count, fits in ((150_000, True), (1_500_000, False)):
        many_pictures(top / f"pictures{count}.kdb", count)
        work.append((f"pictures{count}.kdb/episodes/0/images/c", listed, fits))
    for label, names, fits in [("columns", [f"column {i}" for i in range(60_000)], True),
                               ("equal", ["a"] * 500_000, False), ("long", [MIB] * 300, False)]:
        of_columns(top / label, names)
        work += [(f"{label}/columns", listed, fits), (f"{label}/container.json", read, fits),
                 (f"{label}/table.parquet", lambda path: read(path), fits)]
    for label, count, kind, fits in [("metadata", 500, 20, True), ("much", 65_000, 200, False)]:
        of_metadata(top / label, count, kind)
        work.append((f"{label}/columns/a/metadata", listed, fits))
    return top, work


@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_what_is_made_of_small_files_is_within_the_limit(hostile, mode):
    source, work = hostile
    with within_limit(BUDGET + 64 * MIB) as (group, kills):
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", BIN, "mount", "--foreground",
                   f"--serve={mode}", f"--cache-size={BUDGET}", source]
        with mounted_by(command) as (mnt, daemon):
            # What fits may be refused beside others, so it is tried more often.
            todo = work * 2 + [task for task in work if task[2]] * 4
            random.Random(mode).shuffle(todo)
            lock, wrong, worked, refused = threading.Lock(), [], set(), set()

            def reader():
                while True:
                    with lock:
                        if not todo:
                            return
                        path, how, fits = todo.pop()
                    try:
                        how(mnt / path)
                        result = worked
                    except OSError as error:
                        # Beside others' work, what fits may be refused, but not by name of a budget.
                        result = refused if error.errno == errno.ENOMEM else wrong
                        if result is wrong:
                            wrong.append((path, error))
                            continue
                    with lock:
                        result.add(path)

            crowd = [threading.Thread(target=reader) for _ in range(READERS)]
            [thread.start() for thread in crowd]
            [thread.join() for thread in crowd]
            assert kills() == 0 and daemon.poll() is None
            assert not wrong, wrong[:5]
            assert worked >= {path for path, _, fits in work if fits}
            assert refused >= {path for path, _, fits in work if not fits}
            assert not worked & {path for path, _, fits in work if not fits}
            problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
            needed = [problem["message"] for problem in problems if "--cache-size must be" in problem["message"]]
            assert len(needed) >= 5, problems
            # Alone, each does what it must.
            for path, how, fits in work:
                with contextlib.nullcontext() if fits else pytest.raises(OSError):
                    how(mnt / path)
            stack, _ = read(mnt / "png1500.kdb/episodes/0/images/cam.npy", (128, 3 * 1500 * 1500))
            assert set(np.frombuffer(stack, "u1").tolist()) == {7}
