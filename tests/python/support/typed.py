"""Containers as `expected.json` of the typed golden sets describes them (`tests/golden/treespec.py` has the form)."""

import ast
import errno
import io
import json
import os
import stat
import struct

import numpy as np
import pytest
from PIL import Image

from .checks import assert_same_file, read_checked, sha256, walk_files


def check(entry, source, expected, problems):
    """Compares what a mount shows of one golden file. `problems` are the lines of problems.jsonl about it before anything
    in it was read."""
    if expected["expect"] == "ordinary":
        assert_same_file(entry, source)
        assert bool(problems) == expected["problem"], problems
        assert not problems or expected["class"] in problems[0]["message"], problems
        return
    assert stat.S_ISDIR(os.lstat(entry).st_mode), f"{source} should be a folder"
    # Read first: what is wrong with a part is noted when that is looked at.
    info = json.loads(read_checked(entry / "container.json"), object_pairs_hook=unique)
    files = expected["files"]
    assert walk_files(entry) == {*files, "container.json"}
    if expected.get("problem"):
        assert problems
    for path, spec in files.items():
        check_file(entry / path, spec)
    assert sha256(read_checked(entry / ".file")) == sha256(source.read_bytes())
    check_description(info, expected)


def check_file(path, spec):
    """One file of a container."""
    if "npy" in spec:
        elements = check_header(path, spec["npy"], spec["shape"])
        assert sha256(without_nans(elements) if spec.get("nan") else elements) == spec["sha256"], path
    elif "png" in spec:
        found = Image.open(io.BytesIO(read_checked(path)))
        wanted, deep = spec["png"], spec["png"]["depth"] == 16
        assert found.size == (wanted["w"], wanted["h"]) and len(found.getbands()) == wanted["c"], path
        pixels = np.asarray(found).astype(">u2" if deep else "u1")
        assert sha256(pixels.tobytes()) == spec["sha256"], path
    elif "eio" in spec:
        assert spec["size"] in (None, os.lstat(path).st_size), path
        with pytest.raises(OSError) as raised, open(path, "rb") as file:
            while file.read(1 << 20):
                pass
        assert raised.value.errno == errno.EIO, path
    elif "json" in spec:
        found = json.loads(read_checked(path), object_pairs_hook=unique)
        assert same(found, spec["json"], spec.get("f32", ())), (path, found)
    elif "jsonl" in spec:
        assert lines_of(path) == spec["jsonl"], path
    elif "rows" in spec:
        rows = lines_of(path)
        assert len(rows) == spec["rows"] and sha256(json.dumps(rows).encode()) == spec["rows_sha256"], path
    else:
        data = read_checked(path)
        assert (len(data), sha256(data)) == (spec["size"], spec["sha256"]), path


def check_header(path, descr, shape):
    """The header of an array by docs/TREE.md, section 2; the bytes of the elements."""
    data = read_checked(path)
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    start = 10 + int.from_bytes(data[8:10], "little")
    assert start % 64 == 0 and data[start - 1:start] == b"\n", path
    header = ast.literal_eval(data[10:start].decode("latin-1"))
    found = header["descr"]
    found = [list(field) for field in found] if isinstance(found, list) else found
    assert header == header | {"fortran_order": False, "shape": tuple(shape)} and len(header) == 3, path
    assert found == descr, path
    return data[start:]


def without_nans(elements):
    """The bits of float32 elements, with the same bits for every NaN."""
    bits = [word if word & 0x7FFFFFFF <= 0x7F800000 else 0x7FC00000 for word, in struct.iter_unpack("<I", elements)]
    return struct.pack(f"<{len(bits)}I", *bits)


def lines_of(path):
    text = read_checked(path).decode("utf-8")
    assert not text or text.endswith("\n"), path
    return [json.loads(line) for line in text.splitlines()]


def unique(pairs):
    """An object of JSON, in which no key is there twice."""
    made = dict(pairs)
    assert len(made) == len(pairs), pairs
    return made


def same(found, expected, f32=(), key=None):
    """Whether two values of JSON are the same, with the keys of objects in the same order. Under the keys `f32`, numbers
    are those of a float32."""
    if isinstance(expected, dict):
        return (isinstance(found, dict) and list(found) == list(expected)
                and all(same(found[name], value, f32, name) for name, value in expected.items()))
    if isinstance(expected, list):
        return (isinstance(found, list) and len(found) == len(expected)
                and all(same(a, b, f32, key) for a, b in zip(found, expected)))
    if key in f32 and isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        return struct.pack("<f", found) == struct.pack("<f", expected)
    return type(found) is type(expected) and found == expected


def check_description(info, expected):
    """What container.json says."""
    assert info["format"] == expected["format"]
    for name, value in expected.get("container", {}).items():
        assert same(info[name], value), (name, info[name])
    items = info["items"]
    for item in items:
        for name in ("name", "path"):
            assert name in item or name == "name", item
    for wanted in expected["items"]:
        by = "path" if wanted.get("path") is not None else "name"
        found = [item for item in items if item.get(by) == wanted[by]]
        assert len(found) == 1, (wanted, items)
        for name, value in wanted.items():
            assert same(found[0].get(name), value) and name in found[0], (name, found[0])
    if expected.get("all_items", True):
        identities = {item.get("path") or item.get("name") for item in expected["items"]}
        assert {item.get("path") or item.get("name") for item in items} == identities
