"""The Python package as an fsspec filesystem: its own tests for implementations where reading is enough, chains, and
programs that take it as any filesystem."""

import errno
import gzip
import io
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import struct

import fsspec
import fsspec.tests.abstract as abstract
import numpy as np
import pytest

import shardfs as sh
from shardfs.fs import ShardFileSystem, _name_of_copy
from support import FIXTURES, GOLDEN, mounted
from support.writers.zip import npz

EPISODE = FIXTURES / "ep_001.wshard"


class Fixtures(abstract.AbstractFixtures):
    """A folder that fsspec's tests fill as a local one, and read as this filesystem."""

    @pytest.fixture
    def fs(self, tmp_path):
        (tmp_path / "remote").mkdir()
        return Written(source=str(tmp_path / "remote"), skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self):
        return "top"

    @pytest.fixture
    def fs_sanitize_path(self):
        return lambda path: path

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class Written(ShardFileSystem):
    """What the scenarios make is made beside this filesystem, which only reads."""

    def _place(self, path):
        return os.path.join(self.storage_options["source"], self._strip_protocol(path))

    def touch(self, path, **options):
        self.pipe(path, b"")

    def pipe(self, path, value):
        os.makedirs(os.path.dirname(self._place(path)), exist_ok=True)
        with open(self._place(path), "wb") as file:
            file.write(value)

    def makedirs(self, path, exist_ok=False):
        os.makedirs(self._place(path), exist_ok=True)

    mkdir = makedirs

    def rm(self, path, recursive=False):
        shutil.rmtree(self._place(path), ignore_errors=True)


class TestGet(abstract.AbstractGetTests, Fixtures):
    """fsspec's own tests of reading: files and folders, by name, by list, by pattern."""


def test_registered():
    assert fsspec.get_filesystem_class("shardfs") is ShardFileSystem


def test_a_tree_is_what_a_mount_shows():
    fs = fsspec.filesystem("shardfs", source=str(FIXTURES))
    with mounted(FIXTURES) as mnt:
        want = {os.path.relpath(os.path.join(where, file), mnt) for where, _, files in os.walk(mnt) for file in files}
        assert set(fs.find("")) == want
        for path in sorted(want):
            info = fs.info(path)
            assert (info["type"], info["size"], info["name"]) == ("file", os.stat(mnt / path).st_size, path)
            # Members of zip archives are looked into only when they are read.
            if path.endswith(".npy") and not path.startswith(("damaged", "arrays.npz")):
                array = np.load(mnt / path)
                # Where rows begin is made, and no array that is stored; texts of one size have no type here.
                if "dtype" not in info:
                    assert path.endswith("/offsets.npy") or array.dtype.kind == "S", path
                    continue
                known = np.dtype(eval(info["dtype"]) if info["dtype"].startswith("[") else info["dtype"])
                assert (known, info["shape"]) == (array.dtype, array.shape), path
            if not path.startswith("damaged"):
                assert fs.cat_file(path) == (mnt / path).read_bytes()
    walked = {f"{where}/{name}".lstrip("/") for where, _, files in fs.walk("") for name in files}
    assert walked == want
    assert fs.info("ep_001.wshard") | {"mtime": 0, "mode": 0} == {
        "name": "ep_001.wshard", "size": 0, "type": "directory", "format": "wshard", "mtime": 0, "mode": 0}
    assert sorted(fs.glob("ep_001.wshard/*.npy")) == ["ep_001.wshard/done.npy", "ep_001.wshard/reward.npy"]
    assert fs.isdir("ep_001.wshard") and fs.isfile("notes.txt") and not fs.exists("nothing/at/all")
    assert not fs.exists("notes.txt/below") and fs.ls("notes.txt", detail=False) == ["notes.txt"]
    for path in ("nothing", "ep_001.wshard/nothing.npy"):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(path)
    for path in ("../Cargo.toml", "a/../../Cargo.toml"):
        assert not fs.exists(path)
        with pytest.raises(ValueError):
            fs.cat_file(path)


def test_a_file_of_unknown_size_is_listed():
    fs = fsspec.filesystem("shardfs", source=str(GOLDEN / "mcap"))
    folder = "images.mcap/topics/raw/mixed/images"
    # The second and third message are no pictures: nobody knows how large their files would be.
    sizes = {info["name"]: info["size"] for info in fs.ls(folder)}
    assert sizes == {f"{folder}/000.png": len(fs.cat_file(f"{folder}/000.png")), f"{folder}/001.png": None, f"{folder}/002.png": None}
    assert fs.find(folder) == fs.glob(f"{folder}/*.png") == sorted(sizes)
    for path, size in sizes.items():
        assert fs.exists(path) and fs.isfile(path) and not fs.isdir(path) and fs.info(path)["size"] == size
    assert fs.du(folder) == sizes[f"{folder}/000.png"]
    assert not fs.exists(f"{folder}/003.png")
    with pytest.raises(sh.DamagedBlock):
        fs.cat_file(f"{folder}/001.png")


def test_ranges():
    fs = fsspec.filesystem("shardfs", source=str(FIXTURES))
    paths = ["ep_001.wshard/signal/joint_pos.npy", "demo.kdb/episodes/0/state.npy", "notes.txt"] * 4
    whole = {path: fs.cat_file(path) for path in paths}
    starts = [0, 10, 3, None, -20, 5, 100, 1, 0, 7, 0, 10**9]
    ends = [6, 30, None, 8, None, -3, 50, 10**9, 0, 9, 1, None]
    want = [whole[path][start:end] for path, start, end in zip(paths, starts, ends)]
    assert fs.cat_ranges(paths, starts, ends) == want
    assert fs.cat_ranges(paths[:2], 2, 5) == [whole[path][2:5] for path in paths[:2]]
    assert [fs.cat_file(path, start, end) for path, start, end in zip(paths, starts, ends)] == want
    bad = ["nothing", "damaged/bad_crc.wshard/signal/joint_pos.npy", "notes.txt"]
    found = fs.cat_ranges(bad, [0, 200, 0], [5, 300, 5])
    assert isinstance(found[0], FileNotFoundError) and isinstance(found[1], sh.DamagedBlock)
    assert found[2] == whole["notes.txt"][:5]
    found = fs.cat_ranges(["../x", "notes.txt"], 0, 5, on_error="return")
    assert isinstance(found[0], ValueError) and found[1] == whole["notes.txt"][:5]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(bad, 0, 5, on_error="raise")
    with fs.open(paths[0]) as file:
        assert file.size == len(whole[paths[0]])
        assert np.array_equal(np.load(file), sh.open(EPISODE)["signal/joint_pos"][:])


def test_urls(tmp_path, monkeypatch):
    want = sh.open(EPISODE)["signal/joint_pos"][:]
    for url, options in {
        f"shardfs://{EPISODE}/signal/joint_pos.npy": {},
        "shardfs://ep_001.wshard/signal/joint_pos.npy": {"source": str(FIXTURES)},
        "shardfs://signal/joint_pos.npy": {"source": str(EPISODE)},
        f"shardfs://signal/joint_pos.npy::{EPISODE}": {},
        f"shardfs://signal/joint_pos.npy::file://{EPISODE}": {},
        f"shardfs://ep_001.wshard/signal/joint_pos.npy::file://{FIXTURES}": {},
    }.items():
        with fsspec.open(url, **options) as file:
            assert np.array_equal(np.load(file), want), url
    monkeypatch.chdir(FIXTURES)
    with fsspec.open("shardfs://ep_001.wshard/signal/joint_pos.npy") as file:
        assert np.array_equal(np.load(file), want)
    fs, path = fsspec.core.url_to_fs(f"shardfs::file://{EPISODE}")
    assert path == "" and "signal" in fs.ls("", detail=False)


@pytest.mark.parametrize("how", ["memory", "zip"])
def test_over_any_other_filesystem(tmp_path, how):
    """Over a filesystem of which shardfs knows nothing: a folder of containers, and one container."""
    if how == "memory":
        other = fsspec.filesystem("memory")
        other.put(str(FIXTURES) + "/", "/set/", recursive=True)
        fs, _ = fsspec.core.url_to_fs("shardfs::memory://set")
        with fsspec.open("shardfs://signal/joint_pos.npy::memory://set/ep_001.wshard") as file:
            assert np.array_equal(np.load(file), sh.open(EPISODE)["signal/joint_pos"][:])
    else:
        archive = shutil.make_archive(str(tmp_path / "set"), "zip", FIXTURES)
        fs, _ = fsspec.core.url_to_fs(f"shardfs::zip://::file://{archive}")
    own = fsspec.filesystem("shardfs", source=str(FIXTURES))
    # Copies are made of files, so folders that are containers stay folders.
    folders = tuple(f"{path.name}/" for path in FIXTURES.iterdir() if path.is_dir())
    assert {"cells.zarr/", "pick_and_place/"} <= set(folders)
    known = lambda tree: sorted(path for path in tree.find("") if not path.startswith(folders))  # noqa: E731
    assert known(fs) == known(own) and len(known(own)) > 300
    for path in ("ep_001.wshard/signal/joint_pos.npy", "notes.txt", "demo.kdb/episodes/1/state.npy"):
        assert fs.cat_file(path) == own.cat_file(path) and fs.info(path)["size"] == own.info(path)["size"]
    listed = {info["name"]: info for info in fs.ls("")}
    assert listed["ep_001.wshard"]["format"] == "wshard" and listed["notes.txt"]["type"] == "file"
    with pytest.raises(FileNotFoundError):
        fs.cat_file("nothing")
    with pytest.raises(ValueError):
        fs.cat_file("../x")


@pytest.mark.parametrize("name", ["é" * 120 + ".wshard", "\N{GRINNING FACE}" * 60 + ".wshard", "x" + "語" * 82 + ".wshard"])
def test_long_names_that_are_not_ascii(name):
    """The copy's own name has as many bytes as a name may have; these characters take two to four each."""
    fsspec.filesystem("memory").pipe(f"/long/{name}", EPISODE.read_bytes())
    try:
        with fsspec.open(f"shardfs://{name}/signal/joint_pos.npy::memory://long") as file:
            assert np.load(file).size
    finally:
        fsspec.filesystem("memory").rm("/long", recursive=True)


def test_names_of_copies():
    """They end as the file's own name does, and differ if path or state do."""
    names = [_name_of_copy(f"a/{'語' * count}.wshard", "1") for count in range(0, 400, 7)]
    assert all(len(os.fsencode(name)) <= 255 - len(".part") and name.endswith(".wshard") for name in names)
    assert all(name.encode().decode() == name for name in names)
    different = [_name_of_copy(*of) for of in [("a/x", "1"), ("a/x", "2"), ("b/x", "1"), ("a/\udcff", "1")]]
    assert len({*names, *different}) == len(names) + len(different)


def test_nothing_is_written(tmp_path):
    fs = fsspec.filesystem("shardfs", source=str(tmp_path))
    (tmp_path / "there").write_text("there")
    for change in (lambda: fs.mkdir("a"), lambda: fs.makedirs("a"), lambda: fs.rm("there"), lambda: fs.rm_file("there"),
                   lambda: fs.touch("a"), lambda: fs.pipe("a", b"x"), lambda: fs.pipe_file("a", b"x"),
                   lambda: fs.open("a", "wb"), lambda: fs.cp_file("there", "a"), lambda: fs.mv("there", "a"),
                   lambda: fs.put(str(tmp_path / "there"), "a"), lambda: fs.put_file("there", "a")):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    assert os.listdir(tmp_path) == ["there"] and (tmp_path / "there").read_text() == "there"


def read_in_worker(fs, path):
    return os.getpid(), fs.cat_file(path), fs.info(path)["shape"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(method):
    fs = fsspec.filesystem("shardfs", source=str(FIXTURES))
    path = "ep_001.wshard/signal/joint_pos.npy"
    want = fs.cat_file(path)
    copy = pickle.loads(pickle.dumps(fs))
    assert copy.cat_file(path) == want and copy == fs
    with multiprocessing.get_context(method).Pool(2) as pool:
        for pid, data, shape in pool.starmap(read_in_worker, [(fs, path)] * 4):
            assert pid != os.getpid() and data == want and shape == (24, 7)


def test_open_files_pickle():
    fs = fsspec.filesystem("shardfs", source=str(FIXTURES))
    with fs.open("notes.txt") as file:
        assert (file.fs, file.path, file.mode, file.details["size"]) == (fs, "notes.txt", "rb", file.size)
        start = file.read(7)
        for copy in (pickle.loads(pickle.dumps(file)), pickle.loads(pickle.dumps(file, 2))):
            assert copy.tell() == 7 and copy.read() == fs.cat_file("notes.txt")[7:]
        assert file._fetch_range(0, 7) == start and file.tell() == 7


def test_files_are_copied_into_open_ones(tmp_path):
    fs = fsspec.filesystem("shardfs", source=str(FIXTURES))
    with io.BytesIO() as memory, open(tmp_path / "x", "wb") as file:
        fs.get_file("notes.txt", memory)
        fs.get_file("notes.txt", file)
        assert memory.getvalue() == fs.cat_file("notes.txt") and not file.closed
    assert (tmp_path / "x").read_bytes() == fs.cat_file("notes.txt")


def test_the_state_of_a_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("one")
    fs = fsspec.filesystem("shardfs", source=str(tmp_path))
    first = fs.ukey("x")
    assert fs.ukey("x") == first and fs.modified("x").timestamp() == pytest.approx(path.stat().st_mtime)
    path.write_text("other")
    assert fs.ukey("x") != first and fs.cat_file("x") == b"other"


@pytest.mark.parametrize("how", ["simplecache", "filecache", "blockcache"])
def test_reading_through_a_cache_of_fsspec(tmp_path, how):
    source = shutil.copy(EPISODE, tmp_path)
    want = sh.open(EPISODE).read_bytes("signal/joint_pos.npy")
    for _ in range(2):
        filesystem = fsspec.filesystem(how, target_protocol="shardfs", cache_storage=str(tmp_path / "cache"), check_files=False,
                                       skip_instance_cache=True)
        with filesystem.open(f"{source}/signal/joint_pos.npy", block_size=256) as file:
            assert file.read(10) == want[:10] and file.seek(-20, os.SEEK_END) and file.read() == want[-20:]
            assert file.read() == b"" and file.seek(len(want) + 5) and file.read(3) == b""
            assert file.seek(0) == 0 and file.read() == want
        assert file.closed
        # What was read is in the cache.
        open(source, "wb").close()
    with fsspec.open(f"{how}::shardfs://{EPISODE}/signal/joint_pos.npy", **{how: {"cache_storage": str(tmp_path / "other")}}) as file:
        assert np.array_equal(np.load(file), sh.open(EPISODE)["signal/joint_pos"][:])
    with fsspec.open(f"shardfs://{EPISODE}/container.json", "rt") as file:
        assert json.load(file)["format"] == "wshard"


def test_a_size_that_is_not_true_takes_no_memory(tmp_path):
    """Of a file that seems to have a gigabyte, memory for it is not touched before its first bytes were read."""
    size, data = 1 << 30, bytearray(npz({"a": np.zeros(100)}, deflated=["a.npy"]))
    for signature, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", data, data.index(signature) + at, size)
    (tmp_path / "x.npz").write_bytes(data)
    fs = fsspec.filesystem("shardfs", source=tmp_path / "x.npz", skip_instance_cache=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (lambda: fs.cat_file("a.npy"), lambda: fs.open("a.npy").read(), lambda: fs.open("a.npy").read(size)):
        with pytest.raises(OSError) as raised:
            read()
        assert raised.value.errno == errno.EIO
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < size >> 12


def test_a_file_that_takes_too_much_memory_is_listed(tmp_path):
    """The length of its text is known when its chunk is decoded, which the memory of this process is too small for."""
    (tmp_path / "x.zarr/c").mkdir(parents=True)
    chunks = {"name": "regular", "configuration": {"chunk_shape": [1]}}
    codecs = [{"name": "vlen-utf8"}, {"name": "gzip", "configuration": {"level": 1}}]
    document = {"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "string", "chunk_grid": chunks,
                "chunk_key_encoding": {"name": "default"}, "fill_value": "", "codecs": codecs}
    (tmp_path / "x.zarr/zarr.json").write_text(json.dumps(document))
    text = b"a" * (100 << 20)
    (tmp_path / "x.zarr/c/0").write_bytes(gzip.compress(struct.pack("<II", 1, len(text)) + text, 1))
    fs = ShardFileSystem(source=str(tmp_path), skip_instance_cache=True)
    sh.set_cache_size(1 << 20)
    try:
        sizes = {info["name"].split("/")[-1]: info["size"] for info in fs.ls("x.zarr")}
        [lines] = [name for name in sizes if name.endswith(".jsonl")]
        assert sizes[lines] is None and sizes["container.json"] > 0
        assert sorted(fs.ls("x.zarr", detail=False)) == [f"x.zarr/{name}" for name in sorted(sizes)]
        assert fs.exists(f"x.zarr/{lines}") and fs.info(f"x.zarr/{lines}")["size"] is None
        with pytest.raises(MemoryError):
            fs.cat_file(f"x.zarr/{lines}")
    finally:
        sh.set_cache_size(None)
