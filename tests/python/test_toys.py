"""The toy formats of `tests/toys`: what a program adds is shown by a mount, the library's commands, a server, a bucket and
the Python package alike."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from support import BIN, mounted_by
from support.servers import address, serving
from support.stores import KEYS, create_bucket, moto, s3_client

EXAMPLES = Path(BIN).parent / "examples"
TOYS, MODULE = EXAMPLES / "toys", EXAMPLES / "libtoys_module.so"

SHAPE, CHUNK, ABSENT = (10, 9, 13), (3, 4, 5), (4, 35)


def chunks():
    """The array of `chunks.grids`: what its writer in `tests/toys/grids.rs` puts in."""
    array = (np.arange(np.prod(SHAPE)) * 1001).astype("<i4").reshape(SHAPE)
    for number in ABSENT:
        first = np.unravel_index(number, (4, 3, 3))
        array[tuple(slice(at * size, (at + 1) * size) for at, size in zip(first, CHUNK, strict=True))] = -7
    return array


# Arrays of each format, by path.
EXPECTED = {
    "bytes.toy/data.npy": np.frombuffer(b"abc", "u1"),
    "empty.toy/data.npy": np.zeros(0, "u1"),
    "bytes.named/data.npy": np.frombuffer(b"67890", "u1"),
    "chunks.grids/data.npy": chunks(),
    "a.shelf/one.npy": np.frombuffer(b"first", "u1"),
    "a.shelf/two.npy": np.frombuffer(b"second", "u1"),
    "deep/b/only.npy": np.zeros(0, "u1"),
    "groups.forest/tree0000299/1.npy": np.array([299, 1], "<u4"),
    "group.forest/tree0000000/4.npy": np.array([0, 4], "<u4"),
    "imu.sens/imu/x.npy": np.array([1, 2, 6], "<f4"),
    "same.sens/a.npy": np.array([1], "<f4"),
    "same.sens/a%_2.npy": np.array([2], "<f4"),
    "near.sprd/item0002.npy": np.full(100, 3, "u1"),
    "far.sprd/item0019.npy": np.full(1000, 20, "u1"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    for built in (TOYS, MODULE):
        if not built.exists():
            pytest.fail(f"{built} is not there: `cargo build --examples -p shardfs -p shardfs-python` makes it")
    folder = tmp_path_factory.mktemp("toys")
    subprocess.run([TOYS, "write", folder], check=True)
    return folder


def check(root):
    """Arrays through an ordinary filesystem."""
    for path, expected in EXPECTED.items():
        array = np.load(root / path)
        assert array.dtype == expected.dtype and np.array_equal(array, expected), path
    assert (root / "newer.toy").is_file()
    with pytest.raises(OSError, match="Input/output"):
        (root / "damaged/chunks.grids/data.npy").read_bytes()
    assert len(os.listdir(root / "groups.forest")) == 301


def test_a_mount(source):
    with mounted_by([TOYS, "mount", "--foreground", source]) as (mnt, _):
        check(mnt)
        formats = json.loads((mnt / ".shardfs/config.json").read_bytes())["formats"]
        assert {"grids", "shelf", "forest", "sensors", "spread"} <= set(formats)
    # Without them they are what they are.
    with mounted_by([BIN, "mount", "--foreground", source]) as (mnt, _):
        assert (mnt / "bytes.toy").read_bytes() == b"TOYS\x01abc" and (mnt / "a.shelf/list.txt").is_file()


def test_commands(source):
    def run(*arguments):
        return subprocess.run([TOYS, *arguments], check=True, capture_output=True, cwd=source)

    for path, expected in EXPECTED.items():
        shown = run("cat", path).stdout
        assert shown.endswith(expected.tobytes()) and b"NUMPY" in shown[:6], path
    assert b"grids" in run("help", "formats").stdout
    assert run("ls", "-1", "imu.sens").stdout.split() == [b"container.json", b"heat.npy", b"imu"]
    assert json.loads(run("info", "--json", "imu.sens").stdout)["format"] == "sensors"
    assert run("verify", "chunks.grids", "imu.sens", "a.shelf", "far.sprd").returncode == 0


def test_a_server(source):
    with serving(source, program=TOYS) as server:
        for path, expected in EXPECTED.items():
            assert server.get(address(path)).endswith(expected.tobytes()), path
            front = server.ask(address(path), Range="bytes=1-5")
            assert (front[0], front[2]) == (206, b"NUMPY"), path
        assert b"item0019" in server.get(address("far.sprd/"), Accept="text/html")


def test_a_bucket(source):
    with moto() as endpoint:
        client = s3_client(endpoint)
        create_bucket(client, "data")
        for path in source.rglob("*"):
            if path.is_file():
                client.put_object(Bucket="data", Key=path.relative_to(source).as_posix(), Body=path.read_bytes())
        options = ["--no-disk-cache", f"--endpoint-url={endpoint}", "--detect=content"]
        with mounted_by([TOYS, "mount", "--foreground", *options, "s3://data"], env=KEYS) as (mnt, _):
            check(mnt)


SCRIPT = """
import json, sys, zlib
import shardfs

root = sys.argv[1]
names = {format.name for format in shardfs.formats()}
assert {"toy", "named", "grids", "shelf", "forest", "sensors", "spread"} <= names, names
found = {}
for path in json.loads(sys.argv[2]):
    container, name = (path.split("/", 2)[:2], path.split("/", 2)[2]) if path.startswith("deep") else path.split("/", 1)
    container = "/".join(container) if isinstance(container, list) else container
    array = shardfs.open(f"{root}/{container}")[name.removesuffix(".npy")]
    whole = array[()]
    found[path] = [str(array.dtype), list(array.shape), zlib.crc32(whole.tobytes())]
grid = shardfs.open(f"{root}/chunks.grids")["data"]
assert (grid[:, 3, ::7] == grid[()][:, 3, ::7]).all()
print(json.dumps(found))
"""


def test_the_python_package(source, tmp_path):
    package = importlib.util.find_spec("shardfs").submodule_search_locations[0]
    shutil.copytree(package, tmp_path / "shardfs", ignore=shutil.ignore_patterns("_core.*.so"))
    shutil.copy(MODULE, tmp_path / "shardfs/_core.abi3.so")
    done = subprocess.run([sys.executable, "-c", SCRIPT, source, json.dumps(list(EXPECTED))], check=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    expected = {path: [str(array.dtype), list(array.shape), zlib.crc32(array.tobytes())]
                for path, array in EXPECTED.items()}
    assert found == expected
