"""Arrays of the Python package: slices, damage, changes, memory, threads and processes."""

import ast
import errno
import gc
import inspect
import io
import math
import multiprocessing
import os
import pickle
import pydoc
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from PIL import Image

import shardfs as sh
import shardfs.fs
import shardfs.torch
from shardfs import _core
from support import FIXTURES, GOLDEN, examples
from support.writers import channel, meta_blocks, models, pt, write_shard
from support.writers.kdb import Episode, Record, pack

RNG = np.random.default_rng(3)
BLOCKS = {
    "signal/joints": RNG.normal(size=(500, 7)).astype("<f4"),
    "signal/cube": RNG.integers(0, 1000, (40, 6, 5, 3)).astype("<i4"),
    "signal/flat": RNG.integers(-5, 5, 3000).astype("<i8"),
    "signal/flags": RNG.integers(0, 2, (64, 3)).astype(bool),
    "signal/none": np.zeros((0, 4), "<f8"),
}
SHORT = {"<f4": "f32", "<i4": "i32", "<i8": "i64", "|b1": "bool", "<f8": "f64", "|u1": "u8"}


def episode_of(path, arrays, codec="zstd", **more):
    """A WShard episode of these arrays."""
    steps = max(len(array) for array in arrays.values())
    channels = [channel(name, SHORT[array.dtype.str], list(array.shape[1:])) for name, array in arrays.items()]
    blocks = [(name, array.tobytes()) for name, array in arrays.items()]
    write_shard(path, meta_blocks("ep", steps, channels) + blocks, codec=codec, **more)
    return path


@pytest.fixture(params=["none", "zstd", "lz4"])
def episode(request, tmp_path):
    return episode_of(tmp_path / "ep.wshard", BLOCKS, request.param)


def random_index(shape, rng):
    """Any index that basic slicing allows, and lists and masks along the first axis."""
    kind = rng.random()
    if kind < 0.12 and shape[0]:
        return [rng.randrange(-shape[0], shape[0]) for _ in range(rng.randrange(0, 9))]
    if kind < 0.2:
        return np.array([rng.random() < 0.3 for _ in range(shape[0])], bool)
    index = []
    for length in shape[:rng.randrange(1, len(shape) + 1)]:
        if rng.random() < 0.35 and length:
            index.append(rng.choice([int, np.int64])(rng.randrange(-length, length)))
            continue
        ends = [rng.choice([None, rng.randrange(-length - 3, length + 4)]) for _ in range(2)]
        index.append(slice(*ends, rng.choice([None, 1, -1, 2, -3, 7])))
    if rng.random() < 0.2:
        index.insert(rng.randrange(len(index) + 1), Ellipsis)
    if rng.random() < 0.1:
        index.insert(rng.randrange(len(index) + 1), None)
    return index[0] if len(index) == 1 and rng.random() < 0.5 else tuple(index)


def both(array, want, index):
    """What an index gives here and in numpy, which may be that it makes no sense."""
    try:
        expected = want[index]
    except IndexError:
        with pytest.raises(IndexError):
            array[index]
        return None, None
    return array[index], expected


def test_slices_are_numpys(episode):
    container, rng = sh.open(episode), random.Random(11)
    for name, want in BLOCKS.items():
        array = container[name]
        assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes, len(array)) == (
            want.shape, want.dtype, want.ndim, want.size, want.nbytes, len(want))
        for turn in range(300):
            index = random_index(want.shape, rng)
            got, expected = both(array, want, index)
            if expected is None:
                continue
            assert np.array_equal(got, expected) and got.dtype == expected.dtype, (name, index)
            assert np.shape(got) == np.shape(expected), (name, index)
            if isinstance(got, np.ndarray) and got.size:
                assert got.flags.writeable and not np.shares_memory(got, array[index])
        for row, expected in zip(array, want, strict=True):
            assert np.array_equal(row, expected)
        # The same once the whole is held.
        assert np.array_equal(np.asarray(array), want)
        for turn in range(100):
            index = random_index(want.shape, rng)
            assert np.array_equal(*both(array, want, index)), (name, index)
    for index in (500, -501, (0, 7), (0, 0, 0), [501], "x", 1.5):
        with pytest.raises(IndexError):
            container["signal/joints"][index]


def test_ranges_choose_as_in_numpy(episode):
    """Like a list of their numbers: those below zero count from the end, and one beyond it is an error."""
    container = sh.open(episode)
    for name in ("signal/cube", "signal/flags", "signal/none"):
        array, want = container[name], BLOCKS[name]
        length = len(want)
        ends = (-length - 1, -length, -3, -1, 0, 2, length - 1, length, length + 1)
        for index in (range(first, last, step) for first in ends for last in ends for step in (-2, -1, 1, 3)):
            for key in (index, (slice(None, None, 2), index) if length else index, (index, index)):
                got, expected = both(array, want, key)
                assert np.shape(got) == np.shape(expected) and np.array_equal(got, expected), (name, key)


def test_threads_with_a_small_stack_read_every_array():
    """Of 64 KiB, as some programs give to threads that only wait."""
    code = f"""if True:
        import threading, shardfs
        def read(group):
            for name, thing in group.items():
                read(thing) if isinstance(thing, shardfs.Group) else thing[...]
        threading.stack_size(64 << 10)
        thread = threading.Thread(target=lambda: read(shardfs.open({str(FIXTURES / "table.idv")!r})))
        thread.start()
        thread.join()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_asarray_gives(episode):
    array = sh.open(episode)["signal/joints"]
    first, again = np.asarray(array), np.asarray(array)
    assert np.shares_memory(first, again) and not first.flags.writeable
    with pytest.raises(ValueError):
        first[0] = 1
    assert np.array(array).flags.writeable and not np.shares_memory(np.array(array), first)
    assert np.asarray(array, dtype="f8").dtype == np.float64
    assert np.array_equal(np.asarray(array).sum(0), BLOCKS["signal/joints"].sum(0))
    interface = array.__array_interface__
    assert interface["shape"] == (500, 7) and interface["data"][1] is True
    address = interface["data"][0]
    del array, again
    gc.collect()
    assert first.__array_interface__["data"][0] == address and np.array_equal(first, BLOCKS["signal/joints"])
    taken = np.from_dlpack(sh.open(episode)["signal/joints"])
    assert np.array_equal(taken, BLOCKS["signal/joints"])
    copied = np.from_dlpack(sh.open(episode)["signal/joints"], copy=True)
    assert copied.flags.writeable and not taken.flags.writeable and np.array_equal(copied, taken)
    capsule = sh.open(episode)["signal/joints"].__dlpack__()
    assert "dltensor" in repr(capsule)


def test_bf16_without_and_with_its_package(tmp_path):
    import ml_dtypes
    values = np.arange(24, dtype="<f4").reshape(6, 4).astype(ml_dtypes.bfloat16)
    path = tmp_path / "bf16.wshard"
    channels = [channel("signal/w", "bf16", [4])]
    write_shard(path, meta_blocks("ep", 6, channels) + [("signal/w", values.tobytes())])
    array = sh.open(path)["signal/w"]
    assert array.dtype == values.dtype and np.array_equal(np.asarray(array), values)
    assert np.array_equal(array[2:4], values[2:4]) and np.array_equal(array[::2], values[::2])
    code = ("import sys; sys.modules['ml_dtypes'] = None\nimport shardfs, numpy as np\n"
            f"a = shardfs.open({str(path)!r})['signal/w']\nassert a.dtype == np.uint16 and a.shape == (6, 4)\n"
            "print(np.asarray(a).tobytes().hex())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == values.tobytes().hex()


def test_asarray_keeps_types_that_the_array_protocol_has_no_name_for(tmp_path):
    import ml_dtypes
    padded = np.zeros(3, np.dtype([("a", "<i4"), ("b", "<f8")], align=True))
    padded["b"] = 1, 2, 3
    np.savez(tmp_path / "padded.npz", x=padded)
    floats = np.arange(4, dtype="u1").view(ml_dtypes.float8_e5m2)
    (tmp_path / "floats.safetensors").write_bytes(models.safetensors({"x": floats}, dtypes={"x": "F8_E5M2"}))
    for name, values in (("padded.npz", padded), ("floats.safetensors", floats)):
        array = sh.open(tmp_path / name)["x"]
        for found in (np.asarray(array), np.array(array), array[...]):
            assert found.dtype == array.dtype and found.itemsize == values.itemsize, name
            assert found.tolist() == np.stack([array, array])[1].tolist() == values.tolist(), name


def test_quantised_tensors_are_listed_as_their_numbers():
    model = sh.open(FIXTURES / "model.gguf")
    names = ["token_embd.weight", "blk.0.ffn_up.weight.f32", "blk.0.ffn_norm.weight"]
    # Arrays of metadata follow.
    assert list(model) == list(model.read()) == list(sh.read_many([model])[0]) == [*names, "tokenizer/scores"]
    assert len(model) == 4


def test_groups_have_all_their_arrays():
    """Also those that have a view as texts, which is listed before."""
    trees = sh.open(GOLDEN / "kastore/generated/msprime_two_populations.trees")
    for name in ("populations", "provenances"):
        columns = [path.removeprefix(f"{name}/") for path in trees if path.startswith(f"{name}/")]
        group = trees[name]
        assert sorted(group) == sorted(group.read()) == sorted(columns) and len(group) == len(columns)
        for column in columns:
            assert np.array_equal(group[column], trees[f"{name}/{column}"])


def test_groups_find_the_names_that_they_list(tmp_path):
    values = {"layer/kernel": 0, "bias": 1, "": 2, "/x": 3, ".": 4, "50%": 5, 1: 6, "1": 7}
    stored = {"model": {name: np.full(3, value, "<f4") for name, value in values.items()}}
    (tmp_path / "x.pt").write_bytes(pt.checkpoint(stored))
    container = sh.open(tmp_path / "x.pt")
    group = container["model"]
    assert sorted(group) == sorted(["layer/kernel", "bias", "", "/x", ".", "50%", "1", "1%_2"])
    for name, array in group.items():
        assert name in group and array == group[name] == group.get(name), name
        assert array[0] == values.get(name, 7) or name == "1" and array[0] == 6
    assert len({int(array[0]) for array in group.values()}) == 8
    assert isinstance(group.get("layer/kernel", getlink=True), sh.HardLink)
    assert "model/layer/kernel" in container and container["model/layer/kernel"] == group["layer/kernel"]
    assert "layer" not in group and "layer/gone" not in group and group.get("layer/gone") is None


def test_names_with_empty_parts_are_names_of_their_own(tmp_path):
    names = ["", ".", "..", "/", "//", "a", "a/", "/a", "a/b", "a//b", "a/b/", "./a", "../a", "x/../a", "x/y//z", "x/y/z",
             "50%", "%41", "a.npy"]
    tensors = {name: np.array([number], "u1") for number, name in enumerate(names)}
    (tmp_path / "x.safetensors").write_bytes(models.safetensors(tensors))
    container = sh.open(tmp_path / "x.safetensors")
    assert [item["name"] for item in container.info["items"]] == names and len(set(container)) == len(names)
    for name, tensor in tensors.items():
        assert name in container and container[name][:].tolist() == tensor.tolist(), name
    assert sorted(int(array[0]) for array in map(container.get, container)) == list(range(len(names)))
    for name in ("b/", "a/b//", "x/y/z/"):
        assert name not in container and container.get(name) is None, name
    # Parts that are no names say nothing.
    assert container["x/./y/z"] == container["/x/y/z"] == container["x//y/z"] == container["x"]["y"]["z"] == container["x/y/z"]
    assert container["x"]["y//z"] == container["x/y//z"] and container["x/"] == container["x"]
    assert container["x"].get("/a") == container["a"]


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_damage_stays_where_it_is(tmp_path, codec):
    """Each block's bytes are changed in turn: that array fails, with its place, and no other."""
    path = episode_of(tmp_path / "ep.wshard", BLOCKS, codec)
    good = path.read_bytes()
    places = {name: place for name, place in block_places(good).items() if name in BLOCKS}
    assert len(places) >= 4
    for hurt, (offset, size) in places.items():
        if size == 0:
            continue
        # In a new file: the state of the old one is another.
        bad = tmp_path / f"{hurt.replace('/', '-')}.wshard"
        data = bytearray(good)
        data[offset + size // 2] ^= 0xFF
        bad.write_bytes(data)
        container = sh.open(bad)
        for name, want in BLOCKS.items():
            if name != hurt:
                assert np.array_equal(np.asarray(container[name]), want)
                assert np.array_equal(container[name][1:3], want[1:3])
                continue
            for read in (np.asarray, lambda a: a[1:3], lambda a: a[...], lambda a: a[[1]],
                         lambda a: sh.read_many([a])):
                with pytest.raises(sh.DamagedBlock) as caught:
                    read(container[name])
                error = caught.value
                assert (error.container, error.path, error.block) == (str(bad), f"{name}.npy", name)
                assert error.offset == offset and error.errno == errno.EIO and name in str(error)
                assert isinstance(error, OSError) and isinstance(error, sh.Error)
                copy = pickle.loads(pickle.dumps(error))
                assert (type(copy), str(copy), copy.offset) == (type(error), str(error), error.offset)
        returned = sh.read_many([container[name] for name in BLOCKS], errors="return")
        assert [isinstance(result, sh.DamagedBlock) for result in returned] == [name == hurt for name in BLOCKS]


def block_places(data):
    """Offset and stored size of each block, from the index of a Shard file (docs/formats/wshard.md)."""
    count, strings = np.frombuffer(data, "<u4", 1, 12)[0], np.frombuffer(data, "<u8", 1, 16)[0]
    places = {}
    for number in range(count):
        entry = data[64 + 48 * number:64 + 48 * (number + 1)]
        name_at, length = int.from_bytes(entry[8:12], "little"), int.from_bytes(entry[12:14], "little")
        offset, size = (int.from_bytes(entry[at:at + 8], "little") for at in (16, 24))
        start = int(strings) + name_at
        places[data[start:start + length].decode()] = offset, size
    return places


@pytest.mark.parametrize("change", ["truncate", "write", "replace"])
def test_a_file_that_changes_while_an_array_is_held(tmp_path, change):
    """What was read stays; what is read from then on is an error, never other bytes and never a signal."""
    big = {"signal/big": RNG.integers(0, 256, (4096, 1024)).astype("|u1"), "signal/joints": BLOCKS["signal/joints"]}
    path = episode_of(tmp_path / "ep.wshard", big, "none")
    container = sh.open(path)
    held, part, unread = container["signal/big"], container["signal/big"][5:9], container["signal/joints"]
    whole = np.asarray(held)
    unread.shape  # known, not read
    if change == "truncate":
        os.truncate(path, 4096)
    elif change == "write":
        with open(path, "r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"changed" * 1000)
    else:
        other = episode_of(tmp_path / "other", {"signal/big": big["signal/big"][::-1].copy()}, "none")
        os.replace(other, path)
    assert np.array_equal(whole, big["signal/big"]) and np.array_equal(part, big["signal/big"][5:9])
    for read in (lambda: unread[...], lambda: np.asarray(unread), lambda: container["signal/big"][7],
                 lambda: sh.read_many([unread]), lambda: pickle.loads(pickle.dumps(unread))[...]):
        with pytest.raises(sh.Changed) as caught:
            read()
        assert caught.value.errno == errno.ESTALE and str(path) in str(caught.value)
    if change == "replace":
        assert np.array_equal(sh.open(path)["signal/big"][:3], big["signal/big"][::-1][:3])
    # What is gone as a whole has not changed.
    path.unlink()
    with pytest.raises(sh.NotFound):
        pickle.loads(pickle.dumps(unread))[...]


def test_only_the_frames_that_are_touched_are_decoded(tmp_path):
    """A camera of JPEG frames in which one is damaged: everything but that one can be had."""
    stored = []
    for number in range(12):
        out = io.BytesIO()
        Image.fromarray(examples.camera(12, 32, 40)[number]).save(out, "PNG")
        stored.append(out.getvalue())
    stored[5] = stored[5][:60] + bytes(len(stored[5]) - 60)
    frames = [[Record("front", 40, 32, 3, 2, data)] for data in stored]
    path = tmp_path / "demo.kdb"
    path.write_bytes(pack([Episode(frames=frames, state_dim=2, action_dim=1)]))
    camera = sh.open(path).episodes[0].images["front"]
    film = examples.camera(12, 32, 40)
    assert len(camera) == 12 and camera.array is not None
    for number in range(12):
        picture = camera[number]
        assert picture.bytes == stored[number] and picture.path.endswith(f"front/{number:03}.png")
        if number == 5:
            with pytest.raises(sh.DamagedBlock):
                np.asarray(picture)
            continue
        assert np.array_equal(np.asarray(picture), film[number]) and picture.shape == (32, 40, 3)
        assert np.array_equal(picture[3, 4], film[number, 3, 4])
    assert np.array_equal(camera[6:9], film[6:9]) and np.array_equal(camera[[1, 11, 2]], film[[1, 11, 2]])
    assert np.array_equal(camera[::4], film[::4])
    with pytest.raises(sh.DamagedBlock):
        camera[4:6]
    with pytest.raises(IndexError):
        camera[12]
    assert np.array_equal(np.asarray(camera[-1]), film[11])


def test_files_and_meta():
    container = sh.open(FIXTURES / "ep_001.wshard")
    assert container.meta["episode"]["episode_id"] == "ep_001" and container.format == "wshard"
    with container.open("signal/joint_pos.npy") as file:
        assert file.seekable() and file.readable() and not file.writable()
        assert np.array_equal(np.load(file), container["signal/joint_pos"][:])
        assert file.seek(-4, os.SEEK_END) == file.tell() and len(file.read()) == 4 and file.read(5) == b""
    assert container.read_bytes(".file") == (FIXTURES / "ep_001.wshard").read_bytes()
    with container.open("images/cam0/rgb/003.png") as file:
        assert np.array_equal(np.asarray(Image.open(file)), container["signal/cam0/rgb"][3])
    assert container.images["cam0/rgb"][3].bytes == container.read_bytes("images/cam0/rgb/003.png")
    for path, error in (("nothing", sh.NotFound), ("signal", IsADirectoryError), ("/etc/passwd", ValueError),
                        ("../notes.txt", ValueError)):
        with pytest.raises(error) as raised:
            container.open(path)
        if error is sh.NotFound:
            known = f"{container.path}/{path}"
            assert raised.value.filename == raised.value.container == known and str(raised.value) == f"{known}: no such entry"
    for path in (b"meta/episode.json", Path("meta/episode.json")):
        assert container.open(path).read() == container.read_bytes(path) == container.read_bytes("meta/episode.json")
    with container.open("meta/episode.json", buffering=-1) as file:
        assert file.read() == container.read_bytes("meta/episode.json")
    for name in ("nothing", "meta/episode", "", "\udcff"):
        assert name not in container and container.get(name) is None
        with pytest.raises(KeyError):
            container[name]
    table = sh.open(FIXTURES / "table.idv")
    dates = [name for name in table if table[name].dtype.fields]
    assert all(np.asarray(table[name]).dtype.names == ("ticks", "offset_minutes") for name in dates)


def test_walk_leaves_out_what_another_container_joins(tmp_path):
    """An episode in chunks comes once, as its manifest; `parts` yields the chunks as well, marked."""
    shutil.copytree(GOLDEN / "wshard/chunked_py", tmp_path / "a/long")
    shutil.copytree(GOLDEN / "safetensors/joined", tmp_path / "model")
    shutil.copy(FIXTURES / "demo.kdb", tmp_path / "a/long/first.kdb")
    chunks = sorted(str(path) for path in tmp_path.glob("a/long/*_chunk_*"))
    (manifest,) = map(str, tmp_path.glob("a/long/*_manifest*"))
    files = sorted(str(path) for path in tmp_path.glob("model/model-*.safetensors"))
    index = str(tmp_path / "model/model.safetensors.index.json")
    found = list(sh.walk(tmp_path))
    assert all(item.part_of is None for item in found)
    assert {item.path for item in found} == {manifest, str(tmp_path / "a/long/first.kdb"), index}
    assert chunks and files
    everything = list(sh.walk(tmp_path, parts=True))
    assert {item.path: item.part_of for item in everything if item.part_of} == dict.fromkeys(chunks, manifest) | dict.fromkeys(
        files, index)
    assert {item.path for item in everything} - {item.path for item in found} == {*chunks, *files}
    # In the order of listings.
    listed = [item.path for item in everything if os.path.dirname(item.path) == os.path.dirname(manifest)]
    assert listed == sorted(listed) and len(listed) == len(chunks) + 2
    # Chunks without their manifest are containers like others.
    os.unlink(manifest)
    assert {item.path for item in sh.walk(tmp_path / "a")} == {*chunks, str(tmp_path / "a/long/first.kdb")}
    assert [item.path for item in sh.walk(chunks[0])] == [chunks[0]]


def test_walk_and_folders(tmp_path):
    (tmp_path / "b/c").mkdir(parents=True)
    for place in ("x.wshard", "b/y", "b/c/z.wshard"):
        episode_of(tmp_path / place, {"signal/flat": BLOCKS["signal/flat"]})
    (tmp_path / "b/plain.txt").write_text("plain")
    found = {item.path: item for item in sh.walk(tmp_path)}
    assert sorted(found) == sorted(str(tmp_path / place) for place in ("x.wshard", "b/y", "b/c/z.wshard"))
    for item in found.values():
        assert item.format == "wshard" and [entry["name"] for entry in item.items if entry["dtype"]] == ["signal/flat"]
    folder = sh.open(tmp_path)
    assert sorted(folder) == ["b", "x.wshard"] and isinstance(folder["b"], sh.Folder)
    assert isinstance(folder["b/c/z.wshard"], sh.Container) and folder.open("b/plain.txt").read() == b"plain"
    for name in ("b/plain.txt", "nothing", "x.wshard/signal", "..", "/x"):
        assert name not in folder and folder.get(name) is None
        with pytest.raises(KeyError):
            folder[name]
    with pytest.raises(sh.NotAContainer):
        sh.open(tmp_path / "b/plain.txt")
    with pytest.raises(FileNotFoundError) as caught:
        sh.open(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in str(caught.value)
    (tmp_path / "link").symlink_to(tmp_path / "b/y")
    assert sh.open(tmp_path / "link").path == str(tmp_path / "b/y")


def test_read_many_and_read(episode):
    container = sh.open(episode)
    arrays = sh.read_many([container[name] for name in BLOCKS] + [(container, "signal/flat"), container], threads=4)
    for got, want in zip(arrays, BLOCKS.values()):
        assert np.array_equal(got, want) and got.dtype == want.dtype and got.flags.writeable
    assert np.array_equal(arrays[-2], BLOCKS["signal/flat"])
    assert {name: array.shape for name, array in arrays[-1].items() if name in BLOCKS} == {
        name: array.shape for name, array in BLOCKS.items()}
    read = container.read(["signal/cube"])
    assert list(read) == ["signal/cube"] and np.array_equal(read["signal/cube"], BLOCKS["signal/cube"])
    assert sh.read_many([]) == []
    # A text is one name, not letters.
    assert list(container.read("signal/cube")) == ["signal/cube"]
    for wrong in (container["signal/joints"], container, ["signal/joints"]):
        with pytest.raises(TypeError, match="a list of arrays"):
            sh.read_many(wrong)
    with pytest.raises(ValueError):
        sh.read_many([container], threads=-1)


def test_files_that_are_gone_are_closed(tmp_path):
    """Their space is free when something is opened later, or a container is closed."""
    def held():
        # Also those of a name that is another file's now.
        targets = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
        return [target for target in targets if target.startswith(str(tmp_path)) and target.endswith("(deleted)")]

    kept = episode_of(tmp_path / "kept.wshard", {"signal/flat": BLOCKS["signal/flat"]})
    for way in (lambda: sh.open(kept), sh.open(kept).close):
        for number in range(5):
            path = episode_of(tmp_path / f"{number}.wshard", {"signal/flat": BLOCKS["signal/flat"]})
            with sh.open(path) as container:
                assert container["signal/flat"][7] == BLOCKS["signal/flat"][7]
            path.unlink()
        assert held()
        time.sleep(1.1)
        way()
        assert not held()
    assert sh.open(kept)["signal/flat"][7] == BLOCKS["signal/flat"][7]


def test_eight_threads(episode):
    container, failures = sh.open(episode), []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(150):
                name = rng.choice(list(BLOCKS))
                array = container[name] if rng.random() < 0.5 else sh.open(episode)[name]
                index = random_index(BLOCKS[name].shape, rng)
                assert np.array_equal(*both(array, BLOCKS[name], index)), (name, index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    assert not failures and not any(thread.is_alive() for thread in threads)


def checks(container, name, seed):
    rng = random.Random(seed)
    for _ in range(50):
        index = random_index(BLOCKS[name].shape, rng)
        assert np.array_equal(*both(container[name], BLOCKS[name], index))
    return os.getpid(), np.asarray(container[name]).tobytes()


def test_signals_are_handled_while_arrays_are_read(tmp_path):
    """Their handlers run at once. One that returns changes nothing, and one that raises ends the call."""
    values = RNG.integers(0, 4, 32 << 20, dtype="u1")
    np.savez_compressed(tmp_path / "x.npz", values=values)
    array = sh.open(tmp_path / "x.npz")["values"]
    sh.read_many([array])
    times = []
    before = signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        found = sh.read_many([array] * 8, threads=1)
        assert time.monotonic() - times[0] > 0.2 and all(np.array_equal(each, values) for each in found)

        def stop(*_):
            raise TimeoutError("stopped")

        signal.signal(signal.SIGALRM, stop)
        for read in (lambda: sh.read_many([array] * 8, threads=1), lambda: [array[:] for _ in range(8)]):
            with pytest.raises(TimeoutError, match="stopped"):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                read()
        assert np.array_equal(array[5:9], values[5:9])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_four_processes(tmp_path, method):
    """Opened before, used in the parent and in children at once, by threads that are in the library while it forks."""
    episode = episode_of(tmp_path / "ep.wshard", BLOCKS)
    container = sh.open(episode)
    held = container["signal/joints"]
    whole = np.asarray(held)
    done = threading.Event()

    def busy():
        while not done.is_set():
            sh.read_many([sh.open(episode)])
            container["signal/cube"][3:9]

    threads = [threading.Thread(target=busy) for _ in range(2)]
    [thread.start() for thread in threads]
    try:
        with multiprocessing.get_context(method).Pool(4) as pool:
            jobs = [(container, name, seed) for seed, name in enumerate(["signal/joints", "signal/cube"] * 6)]
            results = pool.starmap_async(checks, jobs, chunksize=1).get(120)
    finally:
        done.set()
        [thread.join(60) for thread in threads]
    assert all(pid != os.getpid() for pid, _ in results) and {data for _, data in results} == {
        BLOCKS["signal/joints"].tobytes(), BLOCKS["signal/cube"].tobytes()}
    assert np.array_equal(whole, held[...])


def test_a_forked_child_uses_and_frees_what_its_parent_opened(episode):
    container = sh.open(episode)
    array, files = container["signal/joints"], container.open("signal/flat.npy")
    array[3]
    child = os.fork()
    if child == 0:
        try:
            ok = np.array_equal(array[...], BLOCKS["signal/joints"]) and list(container)
            del array, container
            gc.collect()
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(array[...], BLOCKS["signal/joints"])


def test_a_camera_named_like_a_file_has_its_array(tmp_path):
    """The folder of its pictures has a dot escaped, the array has not."""
    pixels = RNG.integers(0, 255, (2, 6, 4, 3)).astype("u1")
    frames = [[Record(name, 4, 6, 3, 0, picture.tobytes()) for name in ("front.png", ".jpg")] for picture in pixels]
    (tmp_path / "odd.kdb").write_bytes(pack([Episode(frames=frames, state_dim=1, action_dim=1)]))
    images = sh.open(tmp_path / "odd.kdb").episodes[0].images
    assert sorted(images) == ["%2Ejpg", "front%2Epng"]
    for camera in images.values():
        assert np.array_equal(camera, pixels) and np.array_equal(camera[1], pixels[1])


def test_a_camera_has_its_stored_name(tmp_path):
    pixels = RNG.integers(0, 255, (2, 6, 4, 3)).astype("u1")
    frames = [[Record(name, 4, 6, 3, 0, (picture + more).tobytes()) for more, name in enumerate(("a/rgb", "50%", "a%2Frgb"))]
              for picture in pixels]
    (tmp_path / "odd.kdb").write_bytes(pack([Episode(frames=frames, state_dim=1, action_dim=1)]))
    images = sh.open(tmp_path / "odd.kdb").episodes[0].images
    # A name that is a folder's means that one.
    for name, more in {"a/rgb": 0, "50%": 1, "a%2Frgb": 0, "a%252Frgb": 2}.items():
        assert name in images and np.array_equal(images[name], pixels + more), (name, list(images))
    for name in ("a", "rgb", "a%rgb", ""):
        assert name not in images


def test_pictures_of_several_sizes(tmp_path):
    """Each by itself, as Pillow decodes the stored file; there is no array of all of them."""
    rng = np.random.default_rng(5)
    raw = [rng.integers(0, 255, (height, width, 3)).astype("u1") for height, width in ((6, 4), (3, 9), (8, 8))]
    encoded = io.BytesIO()
    Image.fromarray(raw[2]).save(encoded, "PNG")
    frames = [[Record("front", 4, 6, 3, 0, raw[0].tobytes())], [Record("front", 9, 3, 3, 0, raw[1].tobytes())],
              [Record("front", 8, 8, 3, 1, encoded.getvalue())]]
    (tmp_path / "odd.kdb").write_bytes(pack([Episode(frames=frames, state_dim=1, action_dim=1)]))
    camera = sh.open(tmp_path / "odd.kdb").episodes[0].images["front"]
    assert camera.array is None and len(camera) == 3
    for picture, pixels in zip(camera, raw):
        assert np.array_equal(picture, pixels) and picture.shape == pixels.shape and picture.dtype == "u1"
        assert np.array_equal(picture[1:, 2], pixels[1:, 2])
    assert camera[2].bytes == encoded.getvalue()
    with pytest.raises(sh.NotAnArray):
        camera[0:2]


def test_pictures_are_colours(tmp_path):
    """A palette and bits are ways to store colours and grey; a picture that is cut short is damage."""
    pixels = np.zeros((4, 5, 3), "u1")
    pixels[:2], pixels[2:] = (200, 10, 30), (5, 250, 7)
    palette, bits = Image.fromarray(pixels).quantize(4), Image.fromarray(pixels[..., 0] > 100).convert("1")
    clear = palette.getpixel((0, 0))

    def png(picture, **options):
        out = io.BytesIO()
        picture.save(out, "PNG", **options)
        return out.getvalue()

    stored = [png(palette), png(palette, transparency=clear), png(bits), png(palette)[:-30]]
    frames = [[Record("front", 5, 4, 3, 1, data)] for data in stored]
    # One of another size, so that each picture is decoded by itself.
    frames.append([Record("front", 8, 8, 3, 1, png(Image.new("RGB", (8, 8))))])
    (tmp_path / "x.kdb").write_bytes(pack([Episode(frames=frames, state_dim=1, action_dim=1)]))
    camera = sh.open(tmp_path / "x.kdb").episodes[0].images["front"]
    assert camera.array is None
    assert np.array_equal(camera[0], pixels) and camera[0].dtype == "u1"
    assert np.array_equal(camera[1], np.dstack([pixels, np.where(pixels[..., :1] > 100, 0, 255).astype("u1")]))
    assert np.array_equal(camera[2], np.where(pixels[..., :1] > 100, 255, 0)) and camera[2].dtype == "u1"
    with pytest.raises(sh.DamagedBlock, match="picture 3") as caught:
        camera[3].shape
    assert caught.value.container == str(tmp_path / "x.kdb") and caught.value.path == "episodes/0/images/front/003.png"


def test_open_files_go_on_after_a_fork_and_pickle(episode):
    """From where they are, each in its own process by itself; what has changed meanwhile is said."""
    container = sh.open(episode)
    data = container.read_bytes("signal/joints.npy")
    filesystem = shardfs.fs.ShardFileSystem(source=episode)
    opened = [container.open("signal/joints.npy"), container.open("signal/joints.npy", buffering=0),
              sh.open(episode.parent).open(f"{episode.name}/signal/joints.npy", buffering=7), filesystem.open("signal/joints.npy"),
              sh.open(episode.parent).open(episode.name + "/.file")]
    known = [data] * 4 + [episode.read_bytes()]
    assert all(file.read(5) == whole[:5] for file, whole in zip(opened, known))
    child = os.fork()
    if child == 0:
        try:
            ok = all(file.tell() == 5 and file.read() == whole[5:] and file.seek(-3, os.SEEK_END) == len(whole) - 3
                     and file.read() == whole[-3:] for file, whole in zip(opened, known))
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for copy, file, whole in zip([pickle.loads(pickle.dumps(file)) for file in opened], opened, known):
        assert type(copy) is type(file) and copy.read(9) == whole[5:14] and copy.tell() == 14
        assert file.tell() == 5 and file.read() == whole[5:] and copy.seek(0) == 0
    text = pickle.dumps(opened[0])
    episode_of(episode, {**BLOCKS, "signal/joints": -BLOCKS["signal/joints"]})
    sh.set_cache_size(None)
    for file in (pickle.loads(text), opened[1]):
        with pytest.raises(sh.Changed):
            file.seek(0) or file.read(10)


def test_unbuffered_files_are_as_pythons(tmp_path):
    container = sh.open(FIXTURES / "ep_001.wshard")
    (tmp_path / "x").write_bytes(container.read_bytes("container.json"))
    for make in (lambda: np.zeros(3), lambda: np.zeros((2, 3), "u1"), lambda: bytearray(5), lambda: np.zeros((0, 2)),
                 lambda: np.zeros(10**5)):
        ours, theirs = make(), make()
        with container.open("container.json", buffering=0) as mine, open(tmp_path / "x", "rb", buffering=0) as file:
            assert mine.readinto(ours) == file.readinto(theirs) and bytes(ours) == bytes(theirs)
    with pytest.raises(ValueError):
        container.open("container.json", buffering=0).seek(0, 9)
    for use in (lambda: mine.read(1), mine.readall, mine.tell, lambda: mine.seek(0), lambda: mine.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_pickles(episode):
    container = sh.open(episode)
    for thing in (container, container["signal/cube"], sh.open(episode.parent)):
        copy = pickle.loads(pickle.dumps(thing))
        assert copy == thing and hash(copy) == hash(thing) and copy.path == thing.path
    assert len(pickle.dumps(container["signal/cube"])) < 400
    sleeping = pickle.dumps(container["signal/cube"])
    assert np.array_equal(pickle.loads(sleeping)[2], BLOCKS["signal/cube"][2])
    episode_of(episode, {"signal/cube": BLOCKS["signal/cube"][:20]})
    with pytest.raises(sh.Changed):
        pickle.loads(sleeping)[2]
    kdb = sh.open(FIXTURES / "demo.kdb")
    picture = pickle.loads(pickle.dumps(kdb.episodes[1].images["front"]))[2]
    assert np.array_equal(np.asarray(picture), np.asarray(kdb.episodes[1].images["front"][2]))


def test_what_is_in_a_source_that_is_a_container_pickles():
    """Links are followed in what is opened, so the container itself is the source."""
    image = np.load(io.BytesIO(sh.open(FIXTURES / "cells.zarr").open("image.npy").read()))
    container = sh.open(FIXTURES / "cells.zarr", follow_links="inside")
    episode = sh.open(FIXTURES / "pick_and_place", follow_links="inside").episodes[0]
    group = next(found for found in container.values() if isinstance(found, sh.Group))
    for thing in (container["image"], group, episode, episode["action"]):
        copy = pickle.loads(pickle.dumps(thing))
        assert copy.path == thing.path and "//" not in thing.path and len(copy) == len(thing)
    assert np.array_equal(pickle.loads(pickle.dumps(container["image"]))[...], image)


def test_parts_of_arrays_in_the_order_of_fortran(tmp_path):
    arrays = {"a": (1, 5, 6), "b": (5, 1, 6), "c": (1, 1, 4, 6), "d": (5, 6)}
    arrays = {name: np.asfortranarray(np.arange(math.prod(shape)).reshape(shape)) for name, shape in arrays.items()}
    np.savez(tmp_path / "f.npz", **arrays)
    container = sh.open(tmp_path / "f.npz")
    for name, want in arrays.items():
        for key in (0, (0, 0), np.s_[0:1], np.s_[:], [0], np.s_[0, ...], np.s_[0, :, ...], np.s_[..., 0], np.s_[0, 0:1]):
            found = container[name][key]
            assert found.shape == want[key].shape and np.array_equal(found, want[key]), (name, key)


def test_pictures_of_a_camera_are_those_of_its_dataset(tmp_path):
    """Whatever other datasets have its name."""
    pixels = np.arange(4 * 8 * 9 * 3, dtype=np.uint8).reshape(4, 8, 9, 3)
    with h5py.File(tmp_path / "im.h5", "w") as file:
        file["images/top"], file["top"] = pixels, np.arange(4.0)
        file["images/wrist"], file["signal/wrist"] = pixels[::-1], np.arange(5)
    cameras = sh.open(tmp_path / "im.h5").images
    for name, want in (("top", pixels), ("wrist", pixels[::-1])):
        assert len(cameras[name]) == 4 and cameras[name].shape == pixels.shape
        assert np.array_equal(cameras[name].array[...], want) and np.array_equal(cameras[name][1:3], want[1:3])


def test_the_cache_has_a_budget(episode):
    container = sh.open(episode)
    try:
        sh.set_cache_size(1 << 20)
        assert sh.cache_usage()[0] == 1 << 20
        for name, want in BLOCKS.items():
            assert np.array_equal(container[name][1:-1], want[1:-1])
        assert sh.cache_usage()[1] <= 1 << 20
        for wrong in (-1, "1G", 1.5, 1 << 63):
            with pytest.raises((ValueError, TypeError, OverflowError, IndexError)):
                sh.set_cache_size(wrong)
    finally:
        sh.set_cache_size(None)


def test_memory_of_arrays_is_given_back(tmp_path):
    """Whole arrays are decoded to their place: neither the cache nor anything else keeps a second copy."""
    arrays = {f"signal/a{number}": RNG.integers(0, 4, (1 << 21,)).astype("<i8") for number in range(4)}
    path = episode_of(tmp_path / "ep.wshard", arrays, "zstd", quick=True)
    code = f"""
import numpy as np, shardfs
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
container = shardfs.open({str(path)!r})
before = peak()
held = container.read(threads=1)
size = sum(array.nbytes for array in held.values())
print(peak() - before, size, shardfs.cache_usage()[1])
"""
    peak, size, cached = map(int, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                                 check=True).stdout.split())
    assert size == 4 << 24 and cached < 1 << 20
    assert 0.9 * size < peak < 1.5 * size, f"{peak} bytes for arrays of {size}"


def test_blocks_larger_than_what_is_decoded_in_one_go(tmp_path):
    large = {"signal/large": np.arange(9 << 20, dtype="<i8") % 1000}
    for codec in ("zstd", "lz4", "none"):
        path = episode_of(tmp_path / f"{codec}.wshard", large, codec, quick=True)
        array = sh.open(path)["signal/large"]
        assert np.array_equal(array[...], large["signal/large"])
        data = bytearray(path.read_bytes())
        offset, size = block_places(bytes(data))["signal/large"]
        data[offset + size - 100] ^= 1
        bad = tmp_path / "bad.wshard"
        bad.unlink(missing_ok=True)
        bad.write_bytes(data)
        with pytest.raises(sh.DamagedBlock):
            sh.open(bad)["signal/large"][...]
        assert array[12345678 % (9 << 20)] == (12345678 % (9 << 20)) % 1000


def test_import_needs_little():
    """Nothing but numpy and the standard library is imported, neither fsspec nor torch."""
    code = ("import sys; import numpy; before = set(sys.modules); import shardfs;"
            "print(sorted({m.split('.')[0] for m in set(sys.modules) - before if m not in sys.stdlib_module_names}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    known = {"shardfs", "numpy"} | sys.stdlib_module_names
    assert not set(eval(done.stdout)) - known


def test_help_names_everything():
    text = pydoc.render_doc(sh, renderer=pydoc.plaintext)
    for name in set(sh.__all__) - {"__version__"}:
        assert name in text and getattr(sh, name).__doc__, name


def test_everything_has_types():
    """Functions and methods that users see say what they take and return; the module in Rust has a stub."""
    folder = Path(sh.__file__).parent
    assert (folder / "py.typed").exists() and [path.name for path in folder.glob("*.pyi")] == ["_core.pyi"]
    named = {name: getattr(sh, name) for name in set(sh.__all__) - {"__version__"}}
    for name, thing in (named | {"torch": shardfs.torch.Dataset, "fs": shardfs.fs.ShardFileSystem}).items():
        functions = [thing] if inspect.isfunction(thing) else [
            getattr(member, "fget", None) or getattr(member, "__func__", member)
            for key, member in vars(thing).items() if not key.startswith("_") or key in ("__getitem__", "__init__")]
        for function in filter(inspect.isfunction, functions):
            if function.__module__.startswith("shardfs"):
                taken = set(inspect.signature(function).parameters) - {"self", "cls"}
                assert taken | {"return"} <= set(function.__annotations__), (name, function)
    stub = {node.name: node for node in ast.parse((folder / "_core.pyi").read_text()).body if hasattr(node, "name")}
    assert {name for name in vars(_core) if not name.startswith("_")} <= set(stub)
    methods = {item.name for item in stub["Node"].body}
    assert methods == {name for name in vars(_core.Node) if not name.startswith("_")}


def test_stored_npy_files_of_npz():
    """Arrays whose type stands in their own header, in whatever order: as numpy reads them; objects are refused."""
    path = GOLDEN / "npz/kinds.npz"
    container, expected = sh.open(path), np.load(path)
    for name in ("fortran", "big", "record", "utf8_fields", "dates", "strings", "booleans", "complexes"):
        array, whole = container[name], expected[name]
        assert (array.dtype, array.shape) == (whole.dtype, whole.shape), name
        assert np.array_equal(array[1:], whole[1:]) and np.array_equal(array[[-1, 0]], whole[[-1, 0]]), name
        assert np.array_equal(np.asarray(array), whole) and np.array_equal(sh.read_many([array])[0], whole), name
    with pytest.raises(sh.NotAnArray, match="pickle"):
        container["objects"][:]
    found, both, gone, one = sh.read_many(
        [container, container["objects"], (container, "gone"), container["fortran"]], errors="return")
    assert isinstance(found["objects"], sh.NotAnArray) and isinstance(both, sh.NotAnArray) and isinstance(gone, KeyError)
    assert np.array_equal(one, expected["fortran"]) and np.array_equal(found["big"], expected["big"])
    with pytest.raises(sh.NotAnArray, match="pickle"):
        sh.read_many([container])
    with pytest.raises(sh.NotAContainer) as caught:
        sh.open(path / ".file")
    assert str(caught.value).startswith(f"{path}/.file: ")
    with pytest.raises(ValueError, match="no format is called 'nope'"):
        sh.open(path, formats="nope")
    with pytest.raises(sh.NotAContainer):
        sh.open(path, formats="-npz")
    assert [found.format for found in sh.walk(path.parent, formats=["kdb"])] == []


def test_headers_of_python_2(tmp_path):
    """Numbers with an L, as numpy wrote them on Python 2: also in a type, and not in texts."""
    header = "{'descr': [('3L', '<f8', (2L,))], 'fortran_order': False, 'shape': (3L,)}\n".encode()
    values = np.arange(6.0).reshape(3, 2)
    with zipfile.ZipFile(tmp_path / "old.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values.tobytes())
        broken = header.replace(b"3L,)}", b"3L,]}")
        archive.writestr("broken.npy", b"\x93NUMPY\x01\x00" + len(broken).to_bytes(2, "little") + broken + values.tobytes())
    container = sh.open(tmp_path / "old.npz")
    assert container["x"].shape == (3,) and np.array_equal(container["x"]["3L"], values)
    with pytest.raises(sh.NotAnArray, match="header"):
        container["broken"].shape


def npz_of(path, headers, data):
    """An npz file of members with these headers, by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, header in headers.items():
            front = b"\x93NUMPY\x02\x00" + len(header.encode()).to_bytes(4, "little")
            archive.writestr(f"{name}.npy", front + header.encode() + data)
    return sh.open(path)


def test_headers_that_numpy_refuses(tmp_path):
    """They raise `NotAnArray` wherever the array is asked for, and the others are read."""
    fields = "{'descr': %s, 'fortran_order': %s, 'shape': %s}"
    shapes = ["(-1,)", "(-1, -2)", "(2.0,)", "(True,)", "(None,)", "2", "[2]", f"({'1,' * 65})", "(0, 9223372036854775807, 9)",
              "(0, 1180591620717411303424)", "(4611686018427387904,)", "('2',)"]
    wrong = [fields % ("'<i4'", False, shape) for shape in shapes]
    wrong += [fields % ("'<i4'", 0, "(2,)"), fields % ("('<i4', (2,))", False, "(1,)"), fields % ("()", False, "(2,)"),
              fields % ("5", False, "(2,)"), fields % ("'|V0'", False, "(9223372036854775807, 9)"),
              "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "{'descr': '<i4', 'shape': (2,)}", "[]", "1"]
    headers = {f"wrong{number}": header for number, header in enumerate(wrong)}
    headers["good"] = fields % ("'<i4'", False, "(2,)")
    container = npz_of(tmp_path / "x.npz", headers, np.array([1, 2], "<i4").tobytes())
    with np.load(tmp_path / "x.npz") as theirs:
        assert theirs["good"].tolist() == [1, 2]
        for name in container:
            if name != "good":
                with pytest.raises((ValueError, TypeError, OverflowError, IndexError)):
                    theirs[name]
                for ask in (lambda array: array.shape, lambda array: array[...], np.asarray):
                    with pytest.raises(sh.NotAnArray):
                        ask(container[name])
    (found,) = sh.read_many([container], errors="return")
    assert found.pop("good").tolist() == [1, 2]
    assert len(found) == len(wrong) and all(isinstance(error, sh.NotAnArray) for error in found.values())


def test_headers_have_a_limit(tmp_path):
    """Those of wide records are read; what a small file says of millions of things is not."""
    descr = [(f"field{number}", "<u2") for number in range(4000)]
    wide = str({"descr": descr, "fortran_order": False, "shape": (1,)})
    bomb = f"{{'descr': '<i4', 'fortran_order': False, 'shape': (1,), 'x': [{'1,' * 500_000}]}}"
    container = npz_of(tmp_path / "x.npz", {"wide": wide, "bomb": bomb}, bytes(8000))
    with np.load(tmp_path / "x.npz", max_header_size=len(wide)) as theirs:
        assert container["wide"].dtype == theirs["wide"].dtype
        assert np.array_equal(container["wide"][:], theirs["wide"])
    with pytest.raises(sh.NotAnArray, match="a header of 1000"):
        container["bomb"].shape


def test_a_name_that_is_too_long_is_the_systems_error(tmp_path):
    for path in (tmp_path / ("x" * 300), tmp_path / "x" / ("ü" * 128) / "y"):
        with pytest.raises(OSError) as error:
            sh.open(path)
        assert (error.value.errno, error.value.filename) == (errno.ENAMETOOLONG, str(path))


def test_opening_a_folder_again_shows_its_last_change(tmp_path):
    """As a file's, at once: arrays that are added, resized and rewritten."""
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    grown = store.create_array("grown", shape=(0,), chunks=(4,), dtype="i8")
    for number in range(20):
        store.create_array(f"a{number}", data=np.arange(3) + number, chunks=(3,))
        grown.resize((number + 1,))
        grown[:] = np.arange(number + 1) * number
        ours = sh.open(tmp_path / "x.zarr")
        assert ours[f"a{number}"][:].tolist() == [number, number + 1, number + 2]
        assert ours["grown"][:].tolist() == [number * step for step in range(number + 1)]
        part = sh.open(tmp_path / "x.zarr/grown")
        assert part.shape == (number + 1,)
