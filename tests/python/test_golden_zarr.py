"""Every golden Zarr store (`tests/golden/zarr/README.md` has the form of `expected.json`), through a mount and in Python."""

import errno
import io
import json
import os
import zipfile

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

import shardfs as sh
from support import GOLDEN, assert_same_file, grouped, load_expected, mounted, run, walk_files
from support.checks import read_checked, sha256
from support.typed import check_header

FAMILY = GOLDEN / "zarr"
TREES = FAMILY / "small_chunks.tsz"
ALL = load_expected("zarr")
STORES = sorted(name for name, spec in ALL.items() if spec["expect"] == "ok" and spec["format"] == "zarr")


@pytest.fixture(scope="module")
def mnt():
    with mounted(FAMILY) as mnt:
        yield mnt


def data_of(path, entry):
    """The elements behind the header; zeros where they cannot be read."""
    size = os.lstat(path).st_size
    # Not through the page cache: its pages have bytes of several chunks.
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        # Not what is behind the header, which may be damaged.
        head = os.pread(file, 128, 0)
        start = (12 if head[6] > 1 else 10) + int.from_bytes(head[8:12 if head[6] > 1 else 10], "little")
        data = bytearray(size - start)
        ends = sorted({0, len(data), *(end for ends in entry.get("damaged", []) for end in ends)})
        for low, high in zip(ends, ends[1:]):
            is_damaged = any(first <= low < end for first, end in entry.get("damaged", []))
            if is_damaged:
                with pytest.raises(OSError) as raised:
                    os.pread(file, high - low, start + low)
                assert raised.value.errno == errno.EIO
                continue
            at = low
            while at < high:
                piece = os.pread(file, high - at, start + at)
                assert piece
                data[at:at + len(piece)] = piece
                at += len(piece)
        return head, bytes(data)
    finally:
        os.close(file)


def tuples(descr):
    """The fields of a record as numpy has them in headers, from their JSON."""
    def field(name, of, *shape):
        return (name, tuples(of) if isinstance(of, list) else of, *map(tuple, shape))
    return [field(*each) for each in descr]


def check(path, entry):
    kind = entry["type"]
    if kind == "stat_eio":
        assert path.name in os.listdir(path.parent)
        with pytest.raises(OSError) as raised:
            # The size of offsets follows from the shape; their bytes do not.
            path.read_bytes() if path.name == "offsets.npy" else os.lstat(path)
        assert raised.value.errno == errno.EIO, path
    elif kind == "eio" or entry.get("eio"):
        assert entry.get("size") in (None, os.lstat(path).st_size), path
        with pytest.raises(OSError) as raised:
            path.read_bytes()
        assert raised.value.errno == errno.EIO, path
    elif kind == "bytes":
        data = read_checked(path)
        assert (len(data), sha256(data)) == (entry["size"], entry["sha256"]), path
    elif kind == "png":
        picture = np.asarray(Image.open(io.BytesIO(read_checked(path))))
        picture = picture.astype(">u2") if picture.dtype.itemsize > 1 else picture
        assert sha256(picture.tobytes()) == entry["sha256"], path
    elif "huge" in entry:
        array = np.load(path, mmap_mode="r")
        assert list(array.shape) == entry["shape"]
        assert array[(-1,) * array.ndim].tobytes().hex() == entry["huge"], path
    elif entry.get("damaged"):
        head, data = data_of(path, entry)
        assert entry["descr"].encode() in head and sha256(data) == entry["sha256"], path
    elif isinstance(entry["descr"], list):
        array = np.load(path)
        assert (array.dtype, list(array.shape)) == (np.lib.format.descr_to_dtype(tuples(entry["descr"])), entry["shape"])
        assert sha256(array.tobytes()) == entry["sha256"], path
    else:
        assert sha256(check_header(path, entry["descr"], entry["shape"])) == entry["sha256"], path


@pytest.mark.parametrize("name", STORES)
def test_stores(mnt, name):
    spec, root = ALL[name], mnt / name
    found = {path for path in walk_files(root) if path != "container.json" and not path.endswith(".parquet")}
    assert found - set(spec.get("empty_dirs", [])) - {f"{path}/" for path in spec.get("empty_dirs", [])} == set(spec["tree"])
    for path, entry in spec["tree"].items():
        check(root / path, entry)
    info = json.loads((root / "container.json").read_text())
    assert (info["format"], info["version"]) == ("zarr", spec["version"])
    if spec["kind"] != "folder":
        assert_same_file(root / ".file", FAMILY / name)


@pytest.mark.parametrize("name", [name for name in STORES if "tables" in ALL[name]])
def test_tables(mnt, name):
    """Data frames as anndata reads them, and records as numpy has them."""
    root = mnt / name
    for path, expected in ALL[name]["tables"].items():
        if expected == "eio":
            with pytest.raises(OSError) as raised:
                os.lstat(root / path)
            assert raised.value.errno == errno.EIO, path
            continue
        if "eio" in expected["columns"].values():
            # All of a small file is in one page of the kernel.
            with pytest.raises(OSError, match="Input/output error"):
                pyarrow.parquet.read_table(root / path)
            continue
        assert not grouped.check_parquet(root / path, expected), path
    assert {path for path in walk_files(root) if path.endswith(".parquet")} == set(ALL[name]["tables"])


@pytest.mark.parametrize("name", STORES)
def test_arrays_in_python(name):
    """Each array by its name in the store."""
    spec, container = ALL[name], sh.open(FAMILY / name)
    for item in spec["items"]:
        path = item["path"]
        entry = spec["tree"].get(path)
        if entry is None or entry["type"] != "npy" or {"damaged", "eio", "huge"} & set(entry):
            continue
        array = container[item["name"] or "array"]
        data = np.asarray(array)
        assert list(array.shape) == list(data.shape)
        if isinstance(array, sh.Array):
            assert sha256(data.tobytes()) == entry["sha256"], path


@pytest.mark.parametrize("name", sorted(name for name, spec in ALL.items() if spec["expect"] == "ordinary"))
def test_ordinary(mnt, name):
    if (FAMILY / name).is_dir():
        assert walk_files(mnt / name) == {str(path.relative_to(FAMILY / name))
                                          for path in (FAMILY / name).rglob("*") if path.is_file()}
    else:
        assert_same_file(mnt / name, FAMILY / name)
    lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
    assert any((line["container"] + "/").startswith(name + "/") for line in lines) == ALL[name]["noted"]


@pytest.mark.parametrize("member", [".zattrs", "nodes/.zgroup", "provenances/timestamp/.zarray", "coordinates/.zarray"])
def test_damaged_metadata_never_make_a_tree_sequence_a_store(tmp_path, member):
    """As a store, it has other numbers at the same paths."""
    path, data = tmp_path / TREES.name, bytearray(TREES.read_bytes())
    with zipfile.ZipFile(TREES) as archive:
        # The last of one name counts.
        at = archive.getinfo(member).header_offset
    data[at + 30 + sum(int.from_bytes(data[at + low:at + low + 2], "little") for low in (26, 28)) + 1] ^= 1
    path.write_bytes(data)
    with mounted(tmp_path) as mnt:
        assert_same_file(mnt / path.name, path)
        [problem] = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
        assert problem["container"] == path.name and "not shown as a tszip container" in problem["message"]
    done = run("cat", path / "edges/left.npy")
    assert done.returncode == 1 and done.stdout == b"" and member.rpartition("/")[0] in done.stderr, done
    assert run("verify", path).returncode == 1
    plain = run("cat", "--formats=-tszip", path / "edges/left.npy", check=True).stdout
    assert np.load(io.BytesIO(plain)).dtype.kind in "iu"


def test_empty_keys_of_a_reference_sequence_are_there(tmp_path):
    """tszip leaves out what is empty. tskit dumps all four keys of a reference sequence, or none."""
    path = tmp_path / TREES.name
    path.write_bytes(TREES.read_bytes())
    with sh.open(path) as trees:
        assert not any(name.startswith("reference_sequence/") for name in trees)
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": None, "filters": None, "fill_value": 0, "order": "C"}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("reference_sequence/.zgroup", '{"zarr_format": 2}')
        archive.writestr("reference_sequence/data/.zarray", json.dumps(array))
        archive.writestr("reference_sequence/data/0", b"ACGT")
    with sh.open(path) as trees:
        read = {name: bytes(trees[name][:]) for name in trees if name.startswith("reference_sequence/")}
    assert read == {"reference_sequence/data": b"ACGT", "reference_sequence/metadata": b"",
                    "reference_sequence/metadata_schema": b"", "reference_sequence/url": b""}
