"""Looking at files as their users do, and checking what they are."""

import hashlib
import io
import os
import stat
import time
from pathlib import Path

import numpy as np


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read_checked(path):
    """The bytes of a regular file whose size was right before the first read."""
    before = os.lstat(path)
    assert stat.S_ISREG(before.st_mode), f"{path} is no regular file"
    assert before.st_mode & 0o222 == 0, f"{path} has write bits"
    assert before.st_nlink == 1
    assert before.st_blocks == (before.st_size + 511) // 512, path
    with open(path, "rb") as f:
        data = f.read()
    assert len(data) == before.st_size, f"{path}: size {before.st_size}, read {len(data)}"
    after = os.lstat(path)
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    return data


def check_npy(path, descr, shape):
    """Load in every way; return the bytes of the elements."""
    data = read_checked(path)
    assert data[:8] == b"\x93NUMPY\x01\x00", f"{path}: no npy 1.0"
    header_len = 10 + int.from_bytes(data[8:10], "little")
    assert header_len % 64 == 0, f"{path}: data start at {header_len}"
    header = data[10:header_len]
    assert header.endswith(b"\n")
    shape = tuple(shape)
    text = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    assert header.decode("latin-1").rstrip() == text, path

    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    assert loaded.dtype.str == descr and loaded.shape == shape, path
    plain = np.load(path, allow_pickle=False)
    assert plain.dtype.str == descr and plain.shape == shape, path
    assert plain.tobytes() == data[header_len:], path
    if plain.size:  # numpy cannot map an empty array
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        assert mapped.dtype.str == descr and mapped.shape == shape, path
        assert mapped.tobytes() == data[header_len:], path
        del mapped
    return data[header_len:]


def load_npy(path):
    """An array of a file that may change meanwhile. numpy takes a read that fails for the end of the file, and says
    nothing of the error."""
    return np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)


def read_in_pieces(path):
    """The bytes of a file. Memory is not asked for by its size, which is what a hostile container says."""
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 20), b""))


def walk_files(top):
    """All files below `top`, as relative paths (surrogate-escaped)."""
    def stop(error):
        raise error

    found = set()
    for folder, dirs, files in os.walk(top, onerror=stop):
        rel = os.path.relpath(folder, top)
        for name in files:
            found.add(name if rel == "." else f"{rel}/{name}")
        assert len(set(dirs + files)) == len(dirs) + len(files), f"{folder}: a name is listed twice"
        if not dirs and not files:
            found.add(rel + "/" if rel != "." else "")
    found.discard("")
    return found


def assert_same_file(mounted_path, source):
    assert stat.S_ISREG(os.lstat(mounted_path).st_mode), f"{mounted_path} should be an ordinary file"
    assert read_checked(mounted_path) == Path(source).read_bytes()


def seen_within(seconds, condition):
    """Whether `condition` holds within so many seconds: of looks, every 10 ms, and not of the clock. On a machine
    that is busy with other things a look takes longer, and what is looked for may too."""
    for _ in range(round(seconds * 100)):
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def wait_for(condition, seconds=10.0, what="it"):
    assert seen_within(seconds, condition), f"{what} did not happen within {seconds} s"


def png_size(width, height, pixel):
    """Filter 0, stored deflate blocks: the size that follows from the shape alone."""
    lines = height * (1 + width * pixel)
    return 8 + 25 + 12 + 2 + lines + 5 * max(1, -(-lines // 65535)) + 4 + 12


def assert_one_line_error(done, *words):
    assert done.returncode != 0
    assert "panicked" not in done.stderr and "RUST_BACKTRACE" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, f"not one line: {done.stderr!r}"
    for word in words:
        assert str(word) in lines[0], f"{word!r} is not in {lines[0]!r}"
    return lines[0]
