"""Files of h5py through the Python package: what h5py's objects answer, these answer, too."""

import json
import pickle
import random
import re
from pathlib import Path

import pytest

from support import FIXTURES, GOLDEN

import h5py
import netCDF4
import numpy as np
import pyarrow
import shardfs as sh
import zarr
import zarr.codecs.numcodecs

PAGE = Path(__file__).resolve().parents[2] / "docs/PYTHON.md"
RNG = np.random.default_rng(17)
POINTS = np.array([(1, 2.5, b"ab"), (3, -1.0, b"c"), (5, 0.25, b"")], [("x", "<i4"), ("y", "<f8"), ("name", "S3")])


def write(path, **how):
    """A file with every kind of member."""
    with h5py.File(path, "w", **how) as file:
        file.attrs["title"], file.attrs["version"] = "a file", np.int16(3)
        demo = file.create_group("data/demo_0")
        demo.attrs["num_samples"] = 6
        demo["actions"] = np.arange(42, dtype="f8").reshape(6, 7)
        demo.create_dataset("image", data=RNG.integers(0, 255, (6, 5, 4, 3)).astype("u1"), chunks=(1, 5, 4, 3),
                            compression="gzip", shuffle=True)
        demo.create_dataset("cube", data=RNG.normal(size=(9, 8, 7)).astype("f4"), chunks=(4, 3, 5), compression="lzf",
                            fletcher32=True)
        demo["cube"].attrs["limits"] = np.array([0.5, np.inf, np.nan], "f4")
        demo["cube"].attrs["names"] = ["a", "b\u00fc"]
        file["step"], file["none"] = np.float32(2.5), np.zeros((0, 4))
        file["task"] = "pick up the cube"
        file["words"] = ["one", "\u00fcber", "", "three"]
        file["words"].attrs["language"] = "en"
        file["grid of words"] = np.array([["a", "b"], ["c", "dd"]], object)
        file["fixed"] = np.array([b"abc", b"", b"z"], "S3")
        file["points"] = POINTS
        file["flags"] = np.array([True, False, True])
        rows = file.create_dataset("rows", (4,), h5py.vlen_dtype(np.dtype("<i4")))
        for number in range(4):
            rows[number] = np.arange(number)
        file["odd/50% /a.npy"] = np.arange(3)
        file["last"] = h5py.SoftLink("/data/demo_0/actions")
        file["nowhere"] = h5py.SoftLink("/gone")
        file["same"] = demo["actions"]
        file["pointers"] = np.array([demo.ref, demo["actions"].ref], h5py.ref_dtype)
        file["big"] = np.arange(12, dtype=">i8").reshape(3, 4)
    return path


@pytest.fixture(params=["earliest", "latest"])
def both(request, tmp_path):
    path = write(tmp_path / "file.h5", libver=request.param)
    with h5py.File(path, "r") as theirs, sh.open(path, "r") as ours:
        yield theirs, ours


def same(ours, theirs):
    """Whether two values are equal, with their types and shapes. Numbers here are little-endian."""
    if isinstance(theirs, np.ndarray) and theirs.dtype == object or isinstance(ours, np.ndarray) and ours.dtype == object:
        assert np.shape(ours) == np.shape(theirs)
        return all(same(*each) for each in zip(np.ravel(ours), np.ravel(theirs)))
    if isinstance(theirs, (h5py.Reference, h5py.RegionReference)):
        return True
    if isinstance(theirs, (np.ndarray, np.generic)) and not isinstance(theirs, np.bytes_):
        assert np.shape(ours) == np.shape(theirs) and isinstance(ours, np.ndarray) == isinstance(theirs, np.ndarray)
        assert np.asarray(ours).dtype == theirs.dtype.newbyteorder("<"), (ours, theirs)
        return np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind in "fc")
    if isinstance(theirs, np.bytes_) and isinstance(ours, str):
        return ours == theirs.decode()
    return ours == theirs


def members(theirs):
    """All datasets and groups of a file, by name."""
    found = []
    theirs.visititems(lambda name, thing: found.append((name, thing)))
    return found


def test_all_members_are_the_same(both):
    theirs, ours = both
    assert list(ours) == list(theirs) and len(ours) == len(theirs) and list(ours.keys()) == list(theirs.keys())
    found = {}
    ours.visititems(lambda name, thing: found.update({name: thing}))
    # h5py enters each object once; a hard link is shown again here.
    assert set(found) - {name for name, _ in members(theirs)} <= {"same", "data/demo_0/actions"}
    names = []
    assert ours.visit(names.append) is None and names == list(found)
    assert ours.visit(lambda name: name if name == "points" else None) == "points"
    for name, thing in members(theirs):
        own = ours[name]
        assert isinstance(own, sh.Group) == isinstance(thing, h5py.Group), name
        assert own.name in (thing.name, f"/{name}") and own.file == ours and own.parent.name == thing.parent.name
        assert sorted(own.attrs) == sorted(thing.attrs) and len(own.attrs) == len(thing.attrs)
        for key, value in thing.attrs.items():
            assert same(own.attrs[key], value), (name, key)
            assert key in own.attrs and own.attrs.get("missing") is None
        if isinstance(thing, h5py.Group):
            assert list(own) == list(thing)
            continue
        assert (own.shape, own.ndim, own.size, own.chunks) == (thing.shape, thing.ndim, thing.size, thing.chunks), name
        assert own.dtype == thing.dtype.newbyteorder("<") and own.maxshape == thing.maxshape
        assert (own.compression, own.shuffle, own.fletcher32) == (thing.compression, thing.shuffle, thing.fletcher32)
        for key in ((), ..., (...,)):
            assert same(own[key], thing[key]), (name, key)
            assert isinstance(own[key], np.ndarray) == isinstance(thing[key], np.ndarray), (name, key)
        if thing.shape and name != "pointers":
            assert len(own) == len(thing) and all(same(*each) for each in zip(own, thing, strict=True)), name
        assert isinstance(own, sh.Dataset)


def random_index(shape, rng):
    """An index that h5py allows: numbers, slices, one list or mask."""
    index, has_list = [], False
    for length in shape[:rng.randrange(0, len(shape) + 1)]:
        kind = rng.random()
        if kind < 0.3 and length:
            index.append(rng.randrange(-length, length))
        elif kind < 0.5 and length and not has_list:
            has_list = True
            chosen = sorted(rng.sample(range(length), rng.randrange(1, length + 1)))
            index.append(chosen if rng.random() < 0.6 else np.isin(np.arange(length), chosen))
        else:
            low, high = sorted(rng.randrange(0, length + 1) for _ in range(2))
            index.append(slice(rng.choice([None, low]), rng.choice([None, high]), rng.choice([None, 1, 2, 3])))
    if len(shape) == 1 and index:
        # h5py has no masks in tuples of one axis.
        return index[0]
    if rng.random() < 0.3:
        index.append(Ellipsis)
    return tuple(index) if len(index) != 1 or rng.random() < 0.5 else index[0]


@pytest.mark.parametrize("name", ["data/demo_0/actions", "data/demo_0/image", "data/demo_0/cube", "words", "rows", "points",
                                  "grid of words", "flags", "none", "big", "fixed"])
def test_indices(both, name):
    theirs, ours = both[0][name], both[1][name]
    rng = random.Random(name)
    for _ in range(60):
        index = random_index(theirs.shape, rng)
        assert same(ours[index], theirs[index]), index
    for wrong in (theirs.shape[0], (0,) * (theirs.ndim + 1), "x" if name != "points" else "missing", [theirs.shape[0]]):
        with pytest.raises((IndexError, ValueError, TypeError, KeyError)):
            ours[wrong]
    # What h5py does not have, as numpy has it.
    if theirs.shape[0] and name not in ("rows", "points"):
        whole = theirs[...]
        for index in (slice(None, None, -1), (slice(None, None, -2), ...), [1, 0, 0], None, (0, None), (None, 0),
                      slice(None, None, 2**64), slice(None, None, -2**64)):
            assert same(ours[index], whole[index]), index
            assert np.asarray(ours[index]).dtype == np.asarray(whole[index]).dtype.newbyteorder("<"), index
        assert same(ours[..., ::2**64], whole[..., ::2**64])


def test_views(both):
    theirs, ours = both
    cube, own = theirs["data/demo_0/cube"], ours["data/demo_0/cube"]
    assert same(own.astype("f8")[2, ::3], cube.astype("f8")[2, ::3]) and own.astype("i2").dtype == np.int16
    assert same(np.asarray(own.astype("f8")), np.asarray(cube.astype("f8")))
    assert all(same(ours["step"].astype("f8")[key], theirs["step"].astype("f8")[key]) for key in ((), ..., (...,)))
    out, expected = np.zeros((5, 8, 7), "f4"), np.zeros((5, 8, 7), "f4")
    own.read_direct(out, np.s_[2:6:2], np.s_[1:3])
    cube.read_direct(expected, np.s_[2:6:2], np.s_[1:3])
    assert np.array_equal(out, expected)
    with pytest.raises(TypeError):
        own.read_direct(out, np.s_[2:6:2], np.s_[1:2])
    assert list(own.iter_chunks()) == list(cube.iter_chunks())
    for chosen in (np.s_[1:5, :, 2:3], np.s_[8, :, 6], np.s_[:, 0, :]):
        assert list(own.iter_chunks(chosen)) == list(cube.iter_chunks(chosen))
    for wrong in (np.s_[9, :, :], np.s_[-1, :, :], np.s_[3:3, :, :], np.s_[:, :]):
        for dataset in (own, cube):
            with pytest.raises(ValueError):
                dataset.iter_chunks(wrong)
    for name in ("words", "task", "fixed", "grid of words"):
        assert same(ours[name].asstr()[...], theirs[name].asstr()[...])
    assert h5py.check_string_dtype(ours["words"].dtype).length is None
    assert h5py.check_vlen_dtype(ours["rows"].dtype) == np.int32
    with pytest.raises(TypeError):
        own.asstr()
    points = ours["points"]
    assert same(points["x"], POINTS["x"]) and same(points["y", 1:], POINTS["y"][1:])
    assert same(points[["x", "name"]], POINTS[["x", "name"]]) and same(points.fields("y")[::2], POINTS["y"][::2])
    assert points[1] == POINTS[1] and points.fields(["x"]).shape == (3,)
    with pytest.raises(KeyError):
        points.fields("z")


@pytest.mark.parametrize("shape", [(9, 8, 7), (8, 7), (7,), (3, 8, 7), (9, 1, 7), (1, 7), (7, 8), (56,), ()])
def test_reading_into_an_array_repeats_as_in_h5py(both, shape):
    """And what does not fit is a TypeError. An array of four axes is not filled to its end by h5py 3.16."""
    theirs, ours = [file["data/demo_0/cube"] for file in both]
    mask = np.arange(np.prod(shape)).reshape(shape) < 56
    for chosen in (None, np.s_[2], np.s_[2, 3], np.s_[2:3, 1:2], np.s_[2, 3, 4]):
        for place in (None, np.s_[...], *([np.s_[0], np.s_[-1:], [0], mask] if shape else [])):
            found = []
            for dataset in (theirs, ours):
                out = np.full(shape, -1, "f4")
                try:
                    dataset.read_direct(out, chosen, place)
                except TypeError:
                    out = None
                found.append(out)
            assert (found[0] is None) == (found[1] is None) and np.array_equal(*found), (chosen, place)


def test_groups(both):
    theirs, ours = both
    for name in ("data", "data/demo_0", "/data/demo_0/actions", "data//demo_0/.", "odd/50% /a.npy", "last", "nowhere", "/",
                 "gone", "data/demo_0/actions/x", "", "words", "words/x"):
        assert (name in ours) == (name in theirs), name
        thing = theirs.get(name)
        assert (ours.get(name) is None) == (thing is None), name
        if thing is None:
            with pytest.raises(KeyError):
                ours[name or "gone"]
        else:
            assert (ours.get(name, getclass=True) is sh.Group or issubclass(ours.get(name, getclass=True), sh.Container)) == (
                theirs.get(name, getclass=True) is h5py.Group), name
    assert ours.get("gone", 7) == 7 and ours.get("gone", getlink=True) is None
    assert ours.get("last", getlink=True).path == "data/demo_0/actions"
    assert isinstance(ours.get("data", getlink=True), sh.HardLink)
    assert ours.get("nowhere", getclass=True, getlink=True) is sh.SoftLink
    assert np.array_equal(ours["last"], theirs["last"]) and np.array_equal(ours["same"], theirs["same"])
    assert {name: thing is None for name, thing in ours.items()} == {name: thing is None for name, thing in theirs.items()}
    assert [thing is None for thing in ours.values()] == [thing is None for thing in theirs.values()]
    assert np.array_equal(ours[ours["pointers"][1]], theirs["data/demo_0/actions"]) and ours[ours["pointers"][0]].name == (
        "/data/demo_0")
    demo = ours["data"]["demo_0"]
    assert demo["/step"] == ours["step"] and demo.parent == ours["data"] and ours["data"].parent == ours
    assert dict(ours["data/demo_0"].arrays()).keys() == {"actions", "cube", "image"} and not list(demo.groups())
    assert list(ours["data"].group_keys()) == ["demo_0"] and list(demo.array_keys()) == list(demo)
    assert set(demo.read()) == {"actions", "cube", "image"} and same(demo.read(["cube"])["cube"], theirs["data/demo_0/cube"][...])
    for thing in (demo, ours["words"], ours["rows"], demo["cube"]):
        copy = pickle.loads(pickle.dumps(thing))
        assert copy == thing and copy.name == thing.name
    with pytest.raises(ValueError):
        sh.open(ours.path, "a")


@pytest.mark.parametrize("length", [199, 201, *range(235, 257), 300])
def test_long_names(tmp_path, length):
    """What is shown of a long name is shortened, and how much depends on the suffix."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["t" * length] = ["a", "b"]
        file["n" * length] = np.arange(3)
        file["n" * length].attrs["large"] = np.arange(5000)
        file["i" * length] = np.zeros((2, 4, 4, 3), "u1")
        file.create_dataset("r" * length, (2,), h5py.vlen_dtype("i4"))
        file["g" * length + "/x"] = np.arange(2)
        file["l" * length] = h5py.SoftLink("/" + "n" * length)
        file["a.npy"] = ["a"]
        theirs = list(file)
    ours = sh.open(tmp_path / "x.h5")
    assert list(ours) == [name for name, _ in ours.items()] == theirs
    for name in theirs:
        assert name in ours and ours[name] == dict(ours.items())[name], name
    found = []
    ours.visit(found.append)
    assert sorted(found) == sorted([name for name in theirs if name[0] != "l"] + ["g" * length + "/x"])
    assert ours["n" * length].attrs["large"].shape == (5000,)
    # What is listed can be opened.
    for node in ours._node.walk():
        assert ours._node.get(node.inside).name == node.name or node.kind == "link"


def test_long_names_of_zarr(tmp_path):
    store = zarr.open_group(tmp_path / "x.zarr", mode="w")
    for name in ("n" * 250, "\u00fc" * 125):
        store.create_array(name, data=np.arange(3), attributes={"large": list(range(5000))})
        store.create_array(name[:-4], data=np.zeros((2, 4, 4, 3), "u1"))
    store.create_group("g" * 255).create_array("x", data=np.arange(2))
    ours = sh.open(tmp_path / "x.zarr")
    assert sorted(ours) == sorted(store) and all(ours[name] == found for name, found in ours.items())


def test_external_links(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(5)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"], file["g"] = h5py.ExternalLink("a.h5", "/g/x"), h5py.ExternalLink("a.h5", "/g")
        file["gone"] = h5py.ExternalLink("c.h5", "/g")
    ours = sh.open(tmp_path / "b.h5")
    assert np.array_equal(ours["x"], range(5)) and np.array_equal(ours["g/x"][1:], range(1, 5))
    assert ours["g"].file == sh.open(tmp_path / "a.h5") and ours.get("gone") is None


def test_paths_into_containers(both):
    theirs, ours = both
    for name in ("data", "data/demo_0/actions", "words", "task"):
        found = sh.open(f"{ours.path}/{name}")
        assert found == ours[name] and type(found) is type(ours[name])
    zarr = FIXTURES / "cells.zarr"
    assert sh.open(zarr / "image") == sh.open(zarr)["image"] and list(sh.open(zarr / "table")) == ["area", "type"]
    assert list(sh.open(zarr)["table/type"].asstr()[:2]) == ["T cell", "B cell"]
    assert sh.open(FIXTURES / "ep_001.wshard/signal")["joint_pos"].shape == (24, 7)
    with pytest.raises(sh.NotFound):
        sh.open(f"{ours.path}/gone")
    with pytest.raises(sh.NotAContainer):
        sh.open(FIXTURES / "ep_001.wshard/images/cam0/rgb/000.png")


def test_tables():
    tables = sh.open(FIXTURES / "robot.h5").tables
    assert list(tables) == ["episodes"] and len(tables) == 1 and "episodes" in tables
    assert isinstance(tables["episodes"], pyarrow.Table) and tables["episodes"].column("num_samples").to_pylist() == [5, 7]
    assert tables.file("episodes").read(4) == b"PAR1"
    with pytest.raises(KeyError):
        tables["gone"]


def test_flat_containers_have_groups():
    episode = sh.open(FIXTURES / "ep_001.wshard")
    assert "signal/joint_pos" in list(episode) and list(episode["signal"]) == ["cam0", "cmd", "gripper_open", "joint_pos"]
    assert episode["signal"]["joint_pos"] == episode["signal/joint_pos"] and len(episode["signal"]) == 4
    assert episode["signal/joint_pos"].parent == episode["signal"] and episode["signal"].parent == episode
    assert "signal" in episode and "signal/gone" not in episode and dict(episode.attrs) == {}


GOLDEN_FILES = sorted(path.name for path in (GOLDEN / "hdf5").iterdir() if path.suffix in (".h5", ".hdf5", ".h5ad"))


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_golden_files(name):
    """Shapes, names and plain elements of all golden files that both read."""
    path = GOLDEN / "hdf5" / name
    try:
        theirs, ours = h5py.File(path, "r"), sh.open(path)
    except OSError:
        return
    with theirs:
        try:
            every = members(theirs)
            list(theirs)
        except (RuntimeError, UnicodeDecodeError):
            return
        for member, thing in every:
            own = ours.get(member)
            if not isinstance(thing, h5py.Dataset) or own is None or thing.shape is None:
                continue
            try:
                plain = thing.dtype.kind in "iufb" and not thing.dtype.subdtype and thing.size < 1 << 20
                expected = thing[...] if plain else None
                found = own[...] if plain else None
            except (OSError, TypeError):
                continue
            if plain:
                assert own.shape == thing.shape and np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"), member


def rows_of_page():
    """The rows of the page's tables of calls: the name, and the code in each cell."""
    tables = re.findall(r"\| what \|.*\n\|.*\n((?:\|.*\n)+)", PAGE.read_text())
    assert len(tables) == 2
    return [[(cells := [cell.strip() for cell in line.strip("|\n").split(" | ")])[0].strip(), *(c.strip().strip("`") for c in cells[1:])]
            for table in tables for line in table.splitlines()]


ROWS = rows_of_page()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same data as a file of h5py and a store of zarr."""
    folder = tmp_path_factory.mktemp("page")
    write(folder / "file.h5")
    with h5py.File(folder / "both.h5", "w") as file:
        store = zarr.open_group(folder / "both.zarr", mode="w")
        for root in (file, store):
            demo = root.create_group("data").create_group("demo_0")
            demo.attrs["num_samples"] = 6
            values = np.arange(42, dtype="f8").reshape(6, 7)
            if root is file:
                demo.create_dataset("actions", data=values, chunks=(2, 7))
            else:
                demo.create_array("actions", data=values, chunks=(2, 7))
    return folder


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_calls_of_the_page(stores, row):
    _, *cells = row
    names = ("h5py", "zarr", "shardfs") if len(cells) == 3 else ("h5py", "shardfs")
    for file in ("both.h5", "both.zarr") if len(cells) == 3 else ("file.h5",):
        found = {}
        for name, code in zip(names, cells):
            if name == ("zarr" if file.endswith(".h5") else "h5py"):
                continue
            f = {"h5py": h5py.File, "zarr": zarr.open_group, "shardfs": sh.open}[name](stores / file, mode="r")
            out = np.zeros((2, 7))
            scope = {"f": f, "d": f["data/demo_0/actions"], "np": np, "h5py": h5py, "shardfs": sh, "out": out}
            value = eval(code, scope)
            found[name] = out.copy() if "read_direct" in code else value
        theirs = next(value for name, value in found.items() if name != "shardfs")
        if "getlink" in cells[0]:
            theirs = theirs.lstrip("/")
        assert np.array_equal(found["shardfs"], theirs) if isinstance(theirs, np.ndarray) else found["shardfs"] == theirs


def test_names_of_numbers_and_datasets_without_elements():
    """`enums.h5` is of h5py: enumerations of both byte orders, in records and arrays, and null dataspaces."""
    path = GOLDEN / "hdf5/enums.h5"
    with h5py.File(path, "r") as theirs, sh.open(path) as ours:
        assert list(ours) == list(theirs)
        for name in ("colours", "steps", "one"):
            names = h5py.check_enum_dtype(theirs[name].dtype)
            assert h5py.check_enum_dtype(ours[name].dtype) == names and len(names) > 2
            assert np.array_equal(ours[name][()], theirs[name][()])
        for field in ("step", "colour"):
            own, other = (thing["record"].dtype[field] for thing in (ours, theirs))
            assert own.shape == other.shape and h5py.check_enum_dtype(own.base) == h5py.check_enum_dtype(other.base)
        assert np.array_equal(ours["record"]["step"], theirs["record"]["step"])
        assert ours["flag"].dtype == bool and h5py.check_enum_dtype(ours["flag"].dtype) is None
        # Numbers are little-endian, whatever the file has.
        assert ours["big"].dtype == "<f8" and np.array_equal(ours["big"][...], theirs["big"][...])
        for name in ("null", "null_text", "to_null"):
            own, other = ours[name], theirs[name]
            assert isinstance(own, sh.Null) and isinstance(own, sh.Dataset)
            assert (own.shape, own.size, own.ndim, own.chunks) == (other.shape, other.size, other.ndim, None)
            assert own.dtype == other.dtype.newbyteorder("<") and own[()] == own[...] == sh.Empty(own.dtype)
            assert own[()] == h5py.Empty(own.dtype) and own[()] != h5py.Empty("u1") and own.attrs == own.attrs
            assert other.astype("u1")[()] == h5py.Empty(other.dtype) and own.astype("u1")[()] == h5py.Empty(own.dtype)
            for key in (0, slice(0, 4), [1]):
                with pytest.raises(ValueError):
                    own[key]
            assert pickle.loads(pickle.dumps(own))[()] == own[()]
        assert ours["null"].attrs["encoding-type"] == "null"


def test_rows_of_bytes_of_zarr(tmp_path):
    kind = zarr.dtype.VariableLengthBytes()
    store = zarr.open_group(tmp_path / "x.zarr", mode="w")
    rows = store.create_array("rows", shape=(2,), dtype=kind, attributes={"unit": "m", "n": [1, 2]})
    rows[:] = np.array([b"a", b""], object)
    one = store.create_array("one", shape=(), dtype=kind, attributes={"unit": "s"})
    one[...] = b"all of it"
    found = sh.open(tmp_path / "x.zarr")
    assert [row.tobytes() for row in found["rows"][:]] == [b"a", b""]
    assert dict(found["rows"].attrs) == {"unit": "m", "n": [1, 2]}
    assert isinstance(found["one"], sh.Rows) and found["one"].shape == () and found["one"][()].tobytes() == b"all of it"
    assert found["one"].dtype == found["rows"].dtype == object and dict(found["one"].attrs) == {"unit": "s"}


@pytest.mark.parametrize("version", [2, 3])
def test_attributes_of_zarr_are_what_their_json_says(tmp_path, version):
    stored = {"datasets": [{"path": "0"}, {"path": "1"}], "link": {"path": "/a"}, "code": {"base64": "QUJD"},
              "empty": {"": ["path", "/a"]}, "other": {"": 1}, "valid": [float("-inf"), 1.5, float("inf")]}
    zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version).attrs.update({**stored, "nan": float("nan")})
    found = dict(sh.open(tmp_path / "x.zarr").attrs)
    assert np.isnan(found.pop("nan")) and found == stored


def test_records_of_one_member(tmp_path):
    """A member may have the name that stands for references or bytes in JSON."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("path", "base64"):
            record = np.array([("/a",), ("b",)], [(name, h5py.string_dtype())])
            file[name] = record
            file.attrs.create(name, record)
        file.attrs.create("mixed", np.array([("t", np.inf, 1j)], [("a", h5py.string_dtype()), ("b", "f8"), ("c", "c8")]))
        file.attrs.create("rows", np.array([np.array([np.nan, 1]), np.array([2.0])], object), dtype=h5py.vlen_dtype("f8"))
        file.attrs["leads"] = file["path"].ref
    found = sh.open(tmp_path / "x.h5")
    for name in ("path", "base64"):
        assert found[name][name].tolist() == ["/a", "b"]
        assert found.attrs[name].tolist() == [{name: "/a"}, {name: "b"}]
    assert found.attrs["mixed"].tolist() == [{"a": "t", "b": np.inf, "c": 1j}]
    assert np.array_equal(found.attrs["rows"][0], [np.nan, 1], equal_nan=True) and found.attrs["leads"] == "/path"


@pytest.mark.parametrize("kind, values", [("u8", [2**63 + 1, 7]), ("f4", [0.1, np.nan]), ("i1", [-1, 3]), ("?", [True, False])])
def test_sequences_in_records_and_attributes_have_their_type(tmp_path, kind, values):
    rows = np.zeros(2, [("id", "i4"), ("row", h5py.vlen_dtype(kind))])
    rows["row"][0], rows["row"][1] = np.array(values, kind), np.zeros(0, kind)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["rows"] = rows
        file.attrs.create("rows", rows["row"], dtype=h5py.vlen_dtype(kind))
    found = sh.open(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        for ours, theirs in ((found["rows"]["row"], file["rows"]["row"]), (found.attrs["rows"], file.attrs["rows"])):
            for our, their in zip(ours, theirs, strict=True):
                assert our.dtype == their.dtype and our.tobytes() == their.tobytes()


def test_fill_values(tmp_path):
    record = np.dtype([("a", "i4"), ("b", "f8")])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, dtype, fill in (("nan", "f4", np.nan), ("complex", "c8", 1 + 2j), ("bool", "?", True), ("f", "f4", 0.1),
                                  ("text", "S3", b"abc"), ("big", ">i8", 2**60 + 1), ("none", "i2", None),
                                  ("record", record, np.array((1, 2.5), record)), ("words", h5py.string_dtype(), "ab")):
            file.create_dataset(name, (2,), dtype, fillvalue=fill)
        file["again"] = file["big"]
        # Nothing is filled with it.
        file.create_dataset("never", (2,), "i4", chunks=(1,), fillvalue=3, fill_time="never")
    with h5py.File(tmp_path / "x.h5") as file:
        ours = sh.open(tmp_path / "x.h5")
        assert np.array_equal(ours["never"], [0, 0]) and not ours.read_bytes("never.npy")[-8:].strip(b"\0")
        for name in file:
            assert np.array_equal(ours[name].fillvalue, file[name].fillvalue, equal_nan=name == "nan"), name
            assert type(ours[name].fillvalue) is type(file[name].fillvalue), name
    store = zarr.open_group(tmp_path / "x.zarr", mode="w")
    for dtype, fill in (("f4", np.inf), ("i4", -9999), (">i2", 258)):
        store.create_array(dtype, shape=(2,), dtype=dtype, fill_value=fill)
    assert {name: array.fillvalue for name, array in sh.open(tmp_path / "x.zarr").items()} == \
        {"f4": np.inf, "i4": -9999, ">i2": 258}


def test_characters_of_netcdf():
    note = sh.open(GOLDEN / "netcdf/cdf1.nc")["note"]
    assert note[()] == b"hello  " and note.asstr()[()] == "hello  " and note.shape == ()


@pytest.mark.parametrize("spelling", ["<f4", "=f4", "f4", "float32"])
def test_types_of_numcodecs_in_all_spellings(tmp_path, spelling):
    codecs = zarr.codecs.numcodecs
    filters = [codecs.Quantize(digits=3, dtype=spelling), codecs.FixedScaleOffset(offset=10, scale=10, dtype=spelling, astype="i4"),
               codecs.Delta(dtype="int32")]
    array = zarr.create_array(tmp_path / "x.zarr", shape=(5,), chunks=(5,), dtype="f4", filters=filters, compressors=None)
    array[...] = np.arange(5) * 2.5
    assert np.array_equal(sh.open(tmp_path / "x.zarr")["array"][...], array[...])


@pytest.mark.parametrize("count", [3, 0])
def test_fields_beside_a_text_of_varying_length(tmp_path, count):
    record = np.dtype([("n", h5py.string_dtype()), ("x", "<f8"), ("y", "<f4"), ("c", "<c16"), ("s", "S4"), ("b", "?"),
                       ("i", "<i8"), ("in", [("u", "<f8")]), ("v", "<f8", (2,))])
    rows = [("a", np.nan, np.inf, 1 + 2j, b"ab", True, 2**62 + 1, (np.nan,), (1, np.nan)),
            ("b", -np.inf, 0.1, complex(np.nan, np.inf), b"\xff", False, 1, (2.0,), (1, 2)),
            (b"\xff\xfe", 1, 1, 0, b"", False, 1, (2.0,), (-np.inf, 2))]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        stored = file.create_dataset("r", data=np.array(rows[:count], record))[()]
    found = sh.open(tmp_path / "x.h5")["r"]
    assert found.dtype == record and found.shape == (count,)
    for name in record.names[1:]:
        assert found[name].dtype == stored[name].dtype and found[name].tobytes() == stored[name].tobytes(), name
    assert found["n"].tolist() == ["a", "b", b"\xff\xfe"][:count] and len(found[1:]["x"]) == max(count - 1, 0)


def test_complex_numbers_are_told_by_the_order_of_their_members(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, names, offsets in (("ri", "ri", [4, 0]), ("ir", "ir", [0, 4]), ("gap", "ri", [12, 2])):
            kind = np.dtype({"names": list(names), "formats": ["<f4"] * 2, "offsets": offsets, "itemsize": max(offsets) + 4})
            file[name] = np.array([(1, 2), (3, 4)], kind)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["ri"].dtype == "c8" and file["ir"].dtype != "c8"
        ours = sh.open(tmp_path / "x.h5")
        for name in file:
            assert ours[name].dtype == file[name].dtype and np.array_equal(ours[name][()], file[name][()]), name


@pytest.mark.parametrize("mode", ["nczarr", "zarr"])
def test_a_shuffle_of_netcdf_c(tmp_path, mode):
    """Its element size is 0, for that of the type. Where nothing tells that netCDF-C wrote it, it may be no shuffle."""
    kinds = ("u1", "i2", "f4", "f8")
    address = f"file://{tmp_path}/x.zarr#mode={mode},file"
    with netCDF4.Dataset(address, "w") as file:
        file.createDimension("x", 5)
        for at, kind in enumerate(kinds):
            place = file if at % 2 else file.createGroup(f"g{at}")
            place.createVariable(kind, kind, ("x",), zlib=True)[:] = np.arange(1, 6)
    paths = {kind: kind if at % 2 else f"g{at}/{kind}" for at, kind in enumerate(kinds)}
    assert json.loads((tmp_path / "x.zarr/f8/.zarray").read_text())["filters"] == [{"id": "shuffle", "elementsize": 0}]
    ours = sh.open(tmp_path / "x.zarr")
    with netCDF4.Dataset(address) as file:
        for path in paths.values():
            assert np.array_equal(ours[path][()], np.asarray(file[path][:])), path
    (tmp_path / "x.zarr/.zattrs").unlink()
    ours = sh.open(tmp_path / "x.zarr")
    said = {item["name"].lstrip("/"): item.get("reason") for item in ours.info["items"]}
    assert [path for path in paths.values() if "elementsize 0" in (said[path] or "")] == [paths[kind] for kind in kinds[1:]]
    assert np.array_equal(ours[paths["u1"]][()], np.arange(1, 6))


def test_the_empty_name_of_a_damaged_link(tmp_path):
    """What is listed can be had."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["abc"], file["other"] = np.arange(3), 1
    assert "" not in sh.open(path) and sh.open(path).get("") is None
    data = path.read_bytes()
    assert data.count(b"abc\0") == 1
    (tmp_path / "damaged.h5").write_bytes(data.replace(b"abc\0", b"\0bc\0"))
    with sh.open(tmp_path / "damaged.h5") as file:
        assert list(file) == ["", "other"] and "" in file
        assert file[""][...].tolist() == [0, 1, 2] and dict(file.items()).keys() == {"", "other"}
