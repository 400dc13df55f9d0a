"""Every golden data set of LeRobot (`tests/golden/lerobot/README.md` has the form of `expected.json`)."""

import errno
import io
import json
import os
import stat

import numpy as np
import pytest
from PIL import Image

from support import GOLDEN, assert_same_file, load_expected, mounted, walk_files
from support.checks import read_checked, sha256
from support.typed import check_header, lines_of, same, unique

FAMILY = GOLDEN / "lerobot"
SETS = load_expected("lerobot")
FRAMES = np.load(FAMILY / "frames.npz")


@pytest.fixture(scope="module")
def mnt():
    with mounted(FAMILY) as mnt:
        yield mnt


def problems(mnt, name):
    lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
    return [line for line in lines if (line["container"] + "/").startswith(name + "/")]


@pytest.mark.parametrize("name", sorted(name for name, spec in SETS.items() if not spec["claim"]))
def test_ordinary_folders(mnt, name):
    spec = SETS[name]
    same_folder(mnt / name, FAMILY / name)
    found = problems(mnt, name)
    assert bool(found) == spec["problem"], found
    assert not found or spec["why"] in found[0]["message"], found


@pytest.mark.parametrize("name", sorted(name for name, spec in SETS.items() if spec["claim"]))
def test_data_sets(mnt, name):
    spec, root = SETS[name], mnt / name
    tree = spec["tree"]
    files = {path for path, entry in tree.items() if "dir" not in entry}
    # What this build, or this machine, has no decoder for.
    optional = {path for path in files if tree[path].get("optional") and not (root / path).exists()}
    empty = {f"{path}/" for path, entry in tree.items() if "dir" in entry}
    tables = {"episodes.parquet", "steps.parquet"}
    found = walk_files(root) - tables
    assert found - empty == files - optional and all(not name.endswith("/") or name in empty for name in found)
    times = os.stat(FAMILY / name / spec["marker"])
    for path, entry in tree.items():
        found = root / path
        if path in optional:
            continue
        if "dir" in entry:
            assert stat.S_ISDIR(os.lstat(found).st_mode), path
            continue
        check(found, entry)
        assert os.lstat(found).st_mtime_ns == times.st_mtime_ns, path
    same_folder(root / ".source", FAMILY / name)


def same_folder(shown, stored):
    assert walk_files(shown) == {str(path.relative_to(stored)) for path in stored.rglob("*") if path.is_file()}
    for path in stored.rglob("*"):
        if path.is_file():
            assert_same_file(shown / path.relative_to(stored), path)


def check(path, entry):
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
        check_stack(path, entry)
    elif "video_png" in entry:
        check_video_png(path, entry)
    elif "video_stack" in entry:
        shape = [len(entry["video_stack"]), entry["h"], entry["w"], 3]
        each_slice(path, shape, entry["video_stack"], lambda pixels, number: close(pixels, rgb(entry, number)))
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
    assert {item["path"] for item in info["items"]} >= set(spec.get("paths", []))
    assert {entry["name"] for entry in info["left_out"]} >= set(spec.get("left_out", []))
    assert all(entry["reason"] for entry in info["left_out"])
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


def check_stack(path, entry):
    frames = FRAMES[entry["frames"]]

    def is_right(pixels, number):
        off = np.abs(pixels.astype(int) - frames[number].astype(int))
        return off.max() == 0 if entry["exact"] else off.max() <= 16 and off.mean() <= 2

    each_slice(path, entry["shape"], entry["stack"], is_right)


def check_video_png(path, entry):
    if entry["video_png"] is None:
        with pytest.raises(OSError) as raised:
            path.read_bytes()
        assert raised.value.errno == errno.EIO, path
        return
    found = Image.open(io.BytesIO(read_checked(path)))
    assert found.mode == "RGB"
    assert close(np.asarray(found), rgb(entry, entry["video_png"])), path


def close(found, wanted):
    """The tolerance of `docs/formats/lerobot.md`, section 8."""
    off = np.abs(found.astype(float) - wanted)
    return found.shape == wanted.shape and off.mean() <= 2 and off.max() <= 16


def rgb(entry, number):
    """The pixels of a frame by the formula of `docs/formats/lerobot.md`, section 8."""
    planes, h, w = FRAMES[entry["frames"]][number], entry["h"], entry["w"]
    y, chroma = planes[:h].astype(float), planes[h:].reshape(2, h // 2, w // 2).astype(float)
    u, v = (np.repeat(np.repeat(plane, 2, 0), 2, 1) - 128 for plane in chroma)
    if not entry["full"]:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    kr, kb = {601: (0.299, 0.114), 709: (0.2126, 0.0722), 2020: (0.2627, 0.0593)}[entry["matrix"]]
    r, b = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    g = (y - kr * r - kb * b) / (1 - kr - kb)
    return np.stack([r, g, b], -1).round().clip(0, 255)
