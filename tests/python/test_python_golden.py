"""Every golden file through the Python package, array by array, damaged ones too: against what other readers made of
them (expected.json), and against what a mount shows."""

import errno
import json
import io
import os

import numpy as np
import pytest

import shardfs as sh
from support import FIXTURES, GOLDEN, mounted, names, sha256

DTYPES = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bool": "|b1", "i64": "<i8", "i32": "<i4", "i16": "<i2",
          "i8": "|i1", "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "|u1"}
STALE_OR_BAD = (errno.EIO, errno.ESTALE)
# Types of ml_dtypes, and the bits that numpy's own files have of them.
AS_BITS = {("bfloat16", "<u2"), *((f"float8_{name}", "|u1") for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"))}


def opened(path):
    """The container, or None where the file must be refused."""
    try:
        return sh.open(path)
    except sh.NotAContainer as error:
        assert str(path) in str(error) and error.reason
        return None


def check_against(expected, array):
    """One array: its type and shape before anything is decoded, then its bytes."""
    dtype, shape, digest = expected
    assert (array.dtype.str, array.shape) == (dtype, tuple(shape)), array
    assert array.nbytes == array.size * array.dtype.itemsize == np.prod(shape, dtype=int) * array.itemsize
    data = np.asarray(array)
    assert (data.dtype.str, data.shape, data.flags.c_contiguous) == (dtype, tuple(shape), True)
    assert sha256(data.tobytes()) == digest, array
    assert not data.flags.writeable and array[...].flags.writeable


def test_wshard(golden_wshard):
    import ml_dtypes
    rel, expected = golden_wshard
    container = opened(GOLDEN / "wshard" / rel)
    if expected["open"] != "accept":
        assert container is None
        return
    blocks = expected.get("blocks", [])
    for block in blocks:
        if "dtype" not in block or "recovered_sha256" in block or "error" in block or len(block["shape"]) > 32:
            continue
        if block["name"].startswith("meta/") or block["content_type"] == 2:
            continue
        digest = block.get("sha256_bool_normalised") or block.get("tensor_sha256") or block.get("sha256")
        name = names.path(block["name"], ".npy", images_reserved=True).removesuffix(".npy")
        array = container.get(name)
        if array is None or digest is None or "residual" in block:
            continue
        if block["dtype"] == "bf16":
            assert array.dtype == np.dtype(ml_dtypes.bfloat16)
            assert sha256(np.asarray(array).tobytes()) == digest
            continue
        if block["dtype"] == "bool" and "sha256_bool_normalised" not in block:
            assert array.dtype == bool
            continue
        check_against((DTYPES[block["dtype"]], block["shape"], digest), array)
    for name, joined in expected.get("joined", {}).items():
        assert sha256(np.asarray(container[name]).tobytes()) == joined["sha256"], name
        assert container[name].shape == tuple(joined["shape"])


def test_kastore(golden_kastore):
    rel, expected = golden_kastore
    container = opened(GOLDEN / "kastore" / rel)
    stores = expected.get("stores", [])
    if container is None or len(stores) != 1:
        assert container is not None or expected["expect"] != "ok"
        return
    for item in stores[0]["items"]:
        name = names.path(item["key"], ".npy").removesuffix(".npy")
        array = container.get(name)
        if array is not None and item["key"].isascii():
            check_against((item["dtype"], [item["count"]], item["sha256"]), array)


def test_kdb(golden_kdb):
    rel, expected = golden_kdb
    container = opened(GOLDEN / "kdb" / rel)
    if container is None:
        assert expected["file"]["open"] != "ok"
        return
    assert len(container.episodes) == len(expected["episodes"])
    for number, known in enumerate(expected["episodes"]):
        episode = container.episodes[number]
        for name, array in known.get("arrays", {}).items():
            if not isinstance(array, dict) or name not in episode:
                continue
            dtype = "|b1" if name == "is_terminal" else array["dtype"]
            if dtype == "|b1" and set(np.asarray(episode[name]).view("u1").tolist()) - {0, 1}:
                raise AssertionError("a bool that is neither")
            assert episode[name].shape == tuple(array["shape"])
            if dtype != "|b1":
                check_against((dtype, array["shape"], array["sha256"]), episode[name])
        stored = (GOLDEN / "kdb" / rel).read_bytes()
        for frame, records in enumerate(known.get("frames", [])):
            for record in records:
                if record.get("kind") not in ("jpeg", "png"):
                    continue
                cameras = episode.images
                if record["camera"] not in cameras or len([r for r in records if r["camera"] == record["camera"]]) > 1:
                    continue
                data = cameras[record["camera"]][frame].bytes
                assert data == stored[record["data_offset"]:record["data_offset"] + record["data_len"]]


def test_idv(golden_idv):
    rel, expected = golden_idv
    container = opened(GOLDEN / "idv" / rel)
    if container is None:
        assert expected["open"] != "ok"
        return
    checked = 0
    for column in expected["columns"]:
        decoded = column.get("decoded") or {}
        if column.get("hidden") or decoded.get("layout") != "scalar" or "sha256" not in decoded:
            continue
        array = container.get(f"columns/{names.dir_part(column['name'].encode()).decode()}/values")
        if array is None or array.dtype.fields:
            continue
        assert (array.shape, sha256(np.asarray(array).tobytes())) == (tuple(decoded["shape"]), decoded["sha256"])
        checked += 1
    assert checked or not any((column.get("decoded") or {}).get("layout") == "scalar" for column in expected["columns"])


@pytest.mark.parametrize("source", [GOLDEN / "wshard", GOLDEN / "kastore", GOLDEN / "kast", GOLDEN / "kdb",
                                    GOLDEN / "idv", FIXTURES], ids=lambda path: path.name)
def test_as_the_mount_shows_it(source):
    """Every `.npy` below a mount is an array here, with the same elements; where the mount says EIO, it is damage."""
    good = bad = 0
    folder = sh.open(source)
    with mounted(source, "--serve=cache") as mnt:
        for where, _, files in os.walk(mnt):
            for file in files:
                if not file.endswith(".npy"):
                    continue
                path = os.path.relpath(os.path.join(where, file), mnt)
                container = next((parent for parent in (path[:end] for end, c in enumerate(path) if c == "/")
                                  if isinstance(folder.get(parent), sh.Container)), None)
                if container is None:  # an ordinary file
                    continue
                name = path[len(container) + 1:].removesuffix(".npy")
                try:
                    # numpy would take what came before the damage for a short file.
                    want = np.load(io.BytesIO((mnt / path).read_bytes()))
                except OSError as error:
                    assert error.errno in STALE_OR_BAD
                    with pytest.raises((sh.DamagedBlock, sh.Changed)) as caught:
                        np.asarray(folder[container][name])
                    assert caught.value.container == str(source / container) and caught.value.reason
                    bad += 1
                    continue
                got = np.asarray(folder[container][name])
                assert got.shape == want.shape and got.tobytes() == want.tobytes(), path
                assert got.dtype == want.dtype or (got.dtype.name, want.dtype.str) in AS_BITS, path
                good += 1
    assert good > 100 and (bad >= 2 if source == FIXTURES else bad == 0)


def test_names_are_all_there_in_order():
    """What a container lists is what its description says is stored, and each name leads to an array."""
    for found in sh.walk(GOLDEN):
        listed = list(found.container)
        assert len(set(listed)) == len(listed), found.path
        paths = [item["path"] for item in found.items if (item["path"] or "").endswith(".npy")]
        if found.format in ("wshard", "kastore", "kast"):
            assert listed[:len(paths)] == [path.removesuffix(".npy") for path in paths], found.path
        described = json.loads(found.container.read_bytes("container.json"))
        assert described == found.info and found.format == described["format"]
        # What a member of a zip archive holds is known when it is read.
        for name in listed[:50] if found.format not in ("npz", "hdf5") else []:
            try:
                thing = found.container[name]
            except sh.DamagedBlock:
                continue
            assert isinstance(thing, sh.Group) or thing.path.endswith(".bin") or thing.shape is not None
    assert sum(1 for _ in sh.walk(GOLDEN)) > 100
