"""Folders that are containers, below a bucket or on a web server: recognised when they are entered, with few requests."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from support import FIXTURES, GOLDEN, mounted, run, walk_files
from support.stores import Hub, Store, nginx, python_server
from test_remote import assert_same_trees, public

#: Data sets, and files in them as a mount shows them.
SETS = {
    "pick_and_place": "episodes/1/observation.state.npy",
    "pick_rlds": "train/episodes/0/action.npy",
    "cells.zarr": "image/001.png",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No bytes of objects from one test to another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def put(store, folder, prefix):
    for file in folder.rglob("*"):
        if file.is_file():
            store.put(f"{prefix}{file.relative_to(folder)}", file.read_bytes())


@pytest.fixture
def bucket():
    """Data sets below prefixes, without a suffix that would tell what they are, among other folders."""
    store = Store()
    for name in SETS:
        put(store, FIXTURES / name, f"sets/{name.removesuffix('.zarr')}/")
    store.put("sets/plain/meta/notes.txt", b"no data set")
    store.put("sets/plain/features.txt", b"neither")
    store.put("sets/refused/meta/info.json", b'{"codebase_version": "v1.6"}')
    with store.serving() as endpoint:
        yield store, public(endpoint)


def test_data_sets_below_a_prefix_are_what_they_are(bucket, tmp_path):
    store, options = bucket
    local = tmp_path / "local"
    for key, (body, *_) in store.objects["b"].items():
        (local / key).parent.mkdir(parents=True, exist_ok=True)
        (local / key).write_bytes(body)
    with mounted("s3://b", *options) as there, mounted(local) as here:
        assert_same_trees(there, here)
        assert sorted(os.listdir(there / "sets/plain")) == ["features.txt", "meta"]
        assert "meta" in os.listdir(there / "sets/refused")
        problems = [json.loads(line) for line in (there / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert any("sets/refused/meta/info.json" in problem["container"] for problem in problems), problems
    # A path that leads into one lists nothing before.
    with mounted("s3://b", *options) as there:
        for name, path in SETS.items():
            name = name.removesuffix(".zarr")
            assert (there / "sets" / name / path).read_bytes() == local_file(local, name, path)


def local_file(folder, name, path):
    done = run("cat", folder / "sets" / name / path, check=True)
    return done.stdout


def test_a_folder_that_is_one_stays_the_same(bucket):
    """Its files keep their inode numbers when its name is looked up again."""
    _, options = bucket
    with mounted("s3://b", *options) as mnt:
        file = mnt / "sets/pick_and_place/episodes/0/meta.json"
        before = file.stat()
        folder = os.open(mnt / "sets/pick_and_place", os.O_RDONLY | os.O_DIRECTORY)
        try:
            time.sleep(1.1)
            assert file.stat().st_ino == before.st_ino
            assert sorted(os.listdir(folder)) == sorted(os.listdir(mnt / "sets/pick_and_place"))
        finally:
            os.close(folder)
        assert (mnt / "sets/pick_and_place").stat().st_ino == os.stat(mnt / "sets/pick_and_place").st_ino
        assert "meta" in os.listdir(mnt / "sets/pick_and_place/.source")


def test_a_folder_that_becomes_one_is_noticed():
    store = Store()
    put(store, FIXTURES / "pick_and_place/data", "sets/late/data/")
    with store.serving() as endpoint, mounted("s3://b", *public(endpoint), "--dir-ttl=200ms") as mnt:
        assert os.listdir(mnt / "sets/late") == ["data"]
        put(store, FIXTURES / "pick_and_place", "sets/late/")
        end = time.monotonic() + 20
        while not (mnt / "sets/late/episodes").exists() or "data" in os.listdir(mnt / "sets/late"):
            assert time.monotonic() < end
            time.sleep(0.1)


def test_entering_takes_one_request_and_a_listing_none_for_each_folder(bucket):
    store, options = bucket
    for number in range(10_000):
        store.put(f"many/{number:05}/x.txt", b"x")
    for number in range(300):
        store.put(f"large/{number:03}.txt", b"x")
    with mounted("s3://b", *options) as mnt:
        store.counts()
        with os.scandir(mnt / "many") as entries:
            assert sum(entry.is_dir() for entry in entries) == 10_000
        lists, others = store.counts()
        assert lists + others <= 12, (lists, others)
        # A small folder: whether there is one, all its names, and then the file.
        assert (mnt / "sets/plain/features.txt").read_bytes() == b"neither"
        lists, others = store.counts()
        assert lists + others <= 5, (lists, others)
        # A large one: its first names, and each marker that is not among them.
        assert (mnt / "large/150.txt").read_bytes() == b"x"
        lists, others = store.counts()
        assert lists + others <= 9, (lists, others)
        assert (mnt / "large/151.txt").read_bytes() == b"x"
        lists, others = store.counts()
        assert lists + others <= 2, (lists, others)
        assert os.listdir(mnt / "sets/pick_and_place")
        lists, others = store.counts()
        assert lists + others <= 7, (lists, others)


def test_readers_at_once_ask_for_a_chunk_once(bucket):
    store, options = bucket
    store.faults.append(lambda _: time.sleep(0.05))
    with mounted("s3://b", *options) as mnt:
        path = mnt / "sets/cells/image.npy"
        size, plane = path.stat().st_size, 40 * 60 * 2
        store.log.clear()
        # Past the page cache, so that each read is a request to the daemon.
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        with ThreadPoolExecutor(8) as pool:
            reads = list(pool.map(lambda at: os.pread(file, 64, size - plane + at), range(0, 512, 64)))
        os.close(file)
        asked = [key for _, key in store.log if "/image/c/" in key and "list-type" not in key]
        assert b"".join(reads) == path.read_bytes()[size - plane:][:512]
        assert asked and len(asked) == len(set(asked)), asked


FRONT = "images/observation.images.front/001.png"


@pytest.mark.parametrize("folder,listed,picture,most", [
    # meta/episodes and a folder in it, a file of episodes, the tasks; the rows, the video.
    (GOLDEN / "lerobot/v30_av1", "episodes", f"episodes/1/{FRONT}", (4, 2)),
    # Episodes and tasks; the rows, the episode's video, and that of the first episode, which tells the codec.
    (GOLDEN / "lerobot/v21_av1", "episodes", f"episodes/1/{FRONT}", (2, 3)),
    # The descriptions say it all; one shard.
    (FIXTURES / "pick_rlds", "train/episodes", "train/episodes/1/images/observation/image/001.png", (0, 1)),
])
@pytest.mark.parametrize("kind", [Store, Hub])
def test_episodes_and_a_picture_take_few_requests(kind, folder, listed, picture, most):
    """Once the store is mounted. On the Hub, folders are listed as well."""
    store = kind()
    put(store, folder, "")
    with store.serving() as endpoint:
        source, options = ("s3://b", public(endpoint)) if kind is Store else (
            "hf://datasets/owner/name", ("--no-disk-cache", f"--endpoint-url={endpoint}"))
        with mounted(source, *options) as mnt:
            store.counts()
            assert os.listdir(mnt / listed)
            first = sum(store.counts())
            assert (mnt / picture).read_bytes().startswith(b"\x89PNG")
            then = sum(store.counts())
            listings = 0 if kind is Store else 2
            assert first <= most[0] + listings and then <= most[1] + listings, (first, then)


def test_commands_reach_into_data_sets_of_a_bucket(bucket, tmp_path):
    _, options = bucket
    for name, path in SETS.items():
        expected = run("cat", FIXTURES / name / path, check=True).stdout
        name = name.removesuffix(".zarr")
        found = run("cat", f"s3://b/sets/{name}/{path}", *options)
        assert found.stdout == expected, found.stderr
        folder, _, file = path.rpartition("/")
        # The folder of an array is a container of its own, and its URL names that one.
        assert name == "cells" or file.encode() in run("ls", f"s3://b/sets/{name}/{folder}", *options, check=True).stdout.split()
        run("cp", f"s3://b/sets/{name}/{path}", tmp_path / file, *options, check=True)
        assert (tmp_path / file).read_bytes() == expected
        info = json.loads(run("info", "--json", f"s3://b/sets/{name}", *options, check=True).stdout)
        assert info, name
    missing = run("cat", "s3://b/sets/pick_and_place/episodes/9/x.npy", *options)
    assert missing.returncode == 1 and "no '9' there" in missing.stderr, missing.stderr
    missing = run("cat", "s3://b/sets/plain/episodes/9", *options)
    assert missing.returncode == 1 and "there is no such object or folder" in missing.stderr, missing.stderr


def test_a_description_of_a_folder_counts_its_data_sets(bucket, tmp_path):
    store, options = bucket
    for key, (body, *_) in store.objects["b"].items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(body)
    for folder in ("", "/sets"):
        expected = json.loads(run("info", "--json", f"{tmp_path}{folder}", check=True).stdout.replace(b"%b" % bytes(tmp_path), b"s3://b"))
        found = json.loads(run("info", "--json", f"s3://b{folder}", *options, check=True).stdout)
        assert found == expected and (folder == "" or len(found["containers"]) == len(SETS)), found


@pytest.mark.parametrize("name", ["store.zarr", "plain"])
def test_a_server_that_hides_names_that_begin_with_a_dot(name, tmp_path):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    top = zarr.open_group(tmp_path / name, mode="w", zarr_format=2, attributes={"who": "top"})
    top.create_group("g", attributes={"who": "g"}).create_array("a", data=values, chunks=(2, 2)).attrs["who"] = "a"
    os.chmod(tmp_path, 0o755)
    with nginx(tmp_path) as address, mounted(f"{address}/{name}/", "--no-disk-cache") as there, mounted(tmp_path / name) as here:
        assert np.array_equal(np.load(there / "g/a.npy"), values)
        assert_same_trees(there, here)
        # Also after all folders of it were listed.
        found = run("info", f"{address}/{name}", "--no-disk-cache", check=True).stdout.replace(address.encode(), bytes(tmp_path))
        assert found == run("info", tmp_path / name, check=True).stdout


def test_commands_reach_into_data_sets_of_the_hub_and_of_web_servers(tmp_path):
    hub = Hub()
    put(hub, FIXTURES / "pick_and_place", "")
    path = SETS["pick_and_place"]
    expected = run("cat", FIXTURES / "pick_and_place" / path, check=True).stdout
    with hub.serving() as endpoint:
        options = (f"--endpoint-url={endpoint}", "--no-disk-cache")
        found = run("cat", f"hf://datasets/owner/name/{path}", *options)
        assert found.stdout == expected, found.stderr
        names = run("ls", "hf://datasets/owner/name/episodes", *options, check=True).stdout.split()
        assert names == run("ls", FIXTURES / "pick_and_place/episodes", check=True).stdout.split()
    with python_server(FIXTURES) as address, mounted(address, "--no-disk-cache") as mnt:
        assert sorted(walk_files(mnt / "pick_and_place")) == sorted(walk_files_of(tmp_path))
        found = run("cat", f"{address}/pick_and_place/{path}", "--no-disk-cache")
        assert found.stdout == expected, found.stderr


def walk_files_of(_):
    with mounted(FIXTURES) as local:
        return walk_files(local / "pick_and_place")
