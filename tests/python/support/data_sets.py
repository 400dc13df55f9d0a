"""What `expected.json` of golden data sets says of a file (`tests/golden/lerobot/README.md` has the form)."""

import errno
import io
import json
import os

import numpy as np
import pytest
from PIL import Image

from . import assert_same_file, walk_files
from .checks import read_checked, sha256
from .typed import check_header, lines_of, same, unique


def same_folder(shown, stored):
    assert walk_files(shown) == {str(path.relative_to(stored)) for path in stored.rglob("*") if path.is_file()}
    for path in stored.rglob("*"):
        if path.is_file():
            assert_same_file(shown / path.relative_to(stored), path)


def check(path, entry, every):
    """Compares a file with its entry; `every` has the frames by name."""
    if "container" in entry:
        check_container(json.loads(read_checked(path), object_pairs_hook=unique), entry["container"])
    elif "json" in entry:
        found = json.loads(read_checked(path), object_pairs_hook=unique)
        assert same(rounded(found), rounded(entry["json"])), (path, found)
    elif "jsonl" in entry:
        assert lines_of(path) == entry["jsonl"], path
    elif "eio" in entry:
        assert entry.get("size") in (None, os.lstat(path).st_size), path
        if "npy" in entry:
            with open(path, "rb") as file:
                header = os.pread(file.fileno(), 128, 0)
            assert repr(tuple(entry["shape"])).encode() in header
        with pytest.raises(OSError) as raised:
            path.read_bytes()
        assert raised.value.errno == errno.EIO, path
    elif "stack" in entry:
        check_stack(path, entry, every)
    elif "video_png" in entry:
        check_video_png(path, entry, every)
    elif "video_stack" in entry:
        shape = [len(entry["video_stack"]), entry["h"], entry["w"], 3]
        each_slice(path, shape, entry["video_stack"], lambda pixels, number: close(pixels, rgb(entry, every, number)))
    elif "npy" in entry:
        elements = check_header(path, entry["npy"], entry["shape"])
        if "sha256" in entry:
            assert sha256(elements) == entry["sha256"], path
        else:
            found = np.frombuffer(elements, entry["npy"])
            wanted = np.array([np.nan if value is None else value for value in np.ravel(entry["equal"])], entry["npy"])
            assert np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f"), path
    else:
        data = read_checked(path)
        assert (len(data), sha256(data)) == (entry["size"], entry["sha256"]), path


def rounded(value):
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded(value) for name, value in value.items()}
    return [rounded(value) for value in value] if isinstance(value, list) else value


def check_container(info, spec):
    assert {item["path"] for item in info.get("items", [])} >= set(spec.get("paths", []))
    assert {entry["name"] for entry in info.get("left_out", [])} >= set(spec.get("left_out", []))
    assert all(entry["reason"] for entry in info.get("left_out", []))
    for name, value in spec.items():
        if name not in ("paths", "left_out"):
            assert same(info[name], value), (name, info[name])


def each_slice(path, shape, numbers, is_right):
    """Reads an array slice by slice; a number `None` stands for one that cannot be read."""
    size = int(np.prod(shape[1:]))
    # Not through the page cache: its pages have bytes of several slices.
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        header = os.pread(file, 128, 0)
        assert f"'descr': '|u1', 'fortran_order': False, 'shape': {tuple(shape)}".encode() in header, header
        for at, number in enumerate(numbers):
            if number is None:
                with pytest.raises(OSError) as raised:
                    read_whole(file, 128 + at * size, size)
                assert raised.value.errno == errno.EIO, (path, at)
            else:
                pixels = np.frombuffer(read_whole(file, 128 + at * size, size), "u1").reshape(shape[1:])
                assert is_right(pixels, number), (path, at)
    finally:
        os.close(file)


def read_whole(file, at, size):
    found = b""
    while len(found) < size:
        piece = os.pread(file, size - len(found), at + len(found))
        assert piece
        found += piece
    return found


def check_stack(path, entry, every):
    frames = every[entry["frames"]]

    def is_right(pixels, number):
        off = np.abs(pixels.astype(int) - frames[number].astype(int))
        return off.max() == 0 if entry["exact"] else off.max() <= 16 and off.mean() <= 2

    each_slice(path, entry["shape"], entry["stack"], is_right)


def check_video_png(path, entry, every):
    if entry["video_png"] is None:
        with pytest.raises(OSError) as raised:
            path.read_bytes()
        assert raised.value.errno == errno.EIO, path
        return
    found = Image.open(io.BytesIO(read_checked(path)))
    assert found.mode == "RGB"
    assert close(np.asarray(found), rgb(entry, every, entry["video_png"])), path


def close(found, wanted):
    """The tolerance of `docs/formats/lerobot.md`, section 8."""
    off = np.abs(found.astype(float) - wanted)
    return found.shape == wanted.shape and off.mean() <= 2 and off.max() <= 16


def rgb(entry, every, number):
    """The pixels of a frame by the formula of `docs/formats/lerobot.md`, section 8."""
    planes, h, w = every[entry["frames"]][number], entry["h"], entry["w"]
    y, chroma = planes[:h].astype(float), planes[h:].reshape(2, h // 2, w // 2).astype(float)
    u, v = (np.repeat(np.repeat(plane, 2, 0), 2, 1) - 128 for plane in chroma)
    if not entry["full"]:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    kr, kb = {601: (0.299, 0.114), 709: (0.2126, 0.0722), 2020: (0.2627, 0.0593)}[entry["matrix"]]
    r, b = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    g = (y - kr * r - kb * b) / (1 - kr - kb)
    return np.stack([r, g, b], -1).round().clip(0, 255)
