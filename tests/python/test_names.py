"""The name rules, first our copy of them, then the mount with odd names."""

import os

import numpy as np
import pytest

from support import mounted, names, read_checked, run, walk_files


@pytest.mark.parametrize("name, path", [
    ("a", "a.npy"),
    ("a/b", "a/b.npy"),
    ("a.npy", "a.npy.npy"),
    ("a.npy/b", "a%2Enpy/b.npy"),
    ("a.b.jsonl/c", "a.b%2Ejsonl/c.npy"),
    (".", "%2E.npy"),
    ("..", "%2E%2E.npy"),
    ("../up", "%2E%2E/up.npy"),
    ("/abs", "%empty/abs.npy"),
    ("x//y", "x/%empty/y.npy"),
    ("dir/", "dir/%empty.npy"),
    ("", "%empty.npy"),
    ("50%", "50%25.npy"),
    ("tab\there", "tab%09here.npy"),
    ("del\x7f", "del%7F.npy"),
    ("ü/größe", "ü/größe.npy"),
    (b"bad\xff\xc3", "bad%FF%C3.npy"),
    (b"cut\xe2\x82", "cut%E2%82.npy"),
    (".raw/x", "%2Eraw/x.npy"),
    ("a/.shardfs/x", "a/%2Eshardfs/x.npy"),
    (".raw", ".raw.npy"),
    ("images/x", "images/x.npy"),
    (".npy/x", "%2Enpy/x.npy"),
])
def test_rules(name, path):
    assert names.path(name, ".npy") == path


def test_rules_images_and_numbers():
    assert names.path("images/x", ".bin", images_reserved=True) == "%69mages/x.bin"
    assert names.path("a/images/x", ".bin", images_reserved=True) == "a/images/x.bin"
    assert names.path("a/b", ".npy", number=2) == "a/b%_2.npy"


def test_rules_long():
    fits = "x" * 251
    assert names.path(fits, ".npy") == fits + ".npy"
    long = names.path("x" * 252, ".npy")
    assert len(long) == 255 and long.startswith("x" * 233 + "%~") and long.endswith(".npy")
    # A character of two bytes is not cut: 116 of them are 232 of the 233 bytes.
    wide = names.path("ü" * 200, ".npy")
    assert len(wide.encode()) == 254 and wide.startswith("ü" * 116 + "%~")
    # An escape is not cut either.
    escaped = names.path("%" * 200, ".npy")
    assert escaped.startswith("%25" * 77 + "%~")
    assert len(names.path("d" * 300 + "/f", ".npy").split("/")[0]) == 255


ODD = ["a", "a/b", "a.npy", "a.npy/b", ".", "..", "../../etc/passwd", "/abs", "x//y", "dir/", "50%",
       "line\nbreak", "-rf", "back\\slash", "images/x", ".raw/x", "deep/.shardfs/x", "Case", "case",
       "é", "e\u0301", "long" * 100, "longdir" * 50 + "/x", "ü" * 200, " ", "%empty", "%2E", "a%_2",
       "c.json/d", "container", "container.json", "0", "0/1"]


def test_mounted_kastore(writers, tmp_path):
    store = {name: np.full(3, i, "<i4") for i, name in enumerate(ODD)}
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "odd.kas").write_bytes(writers.kastore(store))
    with mounted(tmp_path / "src") as mnt:
        assert walk_files(mnt / "odd.kas") == {names.path(n, ".npy") for n in ODD} | {"container.json"}
        for name, value in store.items():
            path = mnt / "odd.kas" / names.path(name, ".npy")
            assert read_checked(path)[-12:] == value.tobytes(), name


def test_mounted_wshard(writers, tmp_path):
    """Blocks without a description: `.bin`, and the same under `.raw`."""
    odd = [n for n in ODD if n not in ("container", "container.json")] + [""]
    (tmp_path / "src").mkdir()
    blocks = [(n, n.encode() + b"|%d" % i) for i, n in enumerate(odd)]
    writers.write_shard(tmp_path / "src" / "odd", blocks, role=2, sort=False)
    with mounted(tmp_path / "src") as mnt:
        top = mnt / "odd"
        want = {names.path(n, ".bin", images_reserved=True) for n in odd}
        assert walk_files(top) == want | {"container.json"}
        for name, data in blocks:
            assert read_checked(top / names.path(name, ".bin", images_reserved=True)) == data, name
        assert walk_files(top / ".raw") == {names.path(n, ".bin") for n in odd}
        for name, data in blocks:
            assert read_checked(top / ".raw" / names.path(name, ".bin")) == data, name


def test_duplicates(writers, tmp_path):
    """The last one keeps the plain name, earlier ones follow with numbers."""
    blocks = [("aux/x", b"first"), ("aux/x", b"second"), ("aux/x", b"third"), ("aux/y", b"y")]
    source = tmp_path / "dup.shard"
    writers.write_shard(source, blocks, role=2, sort=False)
    with mounted(source) as mnt:
        assert walk_files(mnt) == {"container.json", "aux/x.bin", "aux/x%_2.bin", "aux/x%_3.bin", "aux/y.bin"}
        assert read_checked(mnt / "aux/x.bin") == b"third"
        assert read_checked(mnt / "aux/x%_2.bin") == b"first"
        assert read_checked(mnt / "aux/x%_3.bin") == b"second"
        assert read_checked(mnt / ".raw/aux/x.bin") == b"third"
        assert read_checked(mnt / ".raw/aux/x%_3.bin") == b"second"


def test_made_files_give_way(writers, tmp_path):
    """A stored `container.json` keeps its name."""
    source = tmp_path / "own.shard"
    writers.write_shard(source, [("container", b'{"mine":true}', 2)], role=2, sort=False)
    with mounted(source) as mnt:
        assert read_checked(mnt / "container.json") == b'{"mine":true}'
        assert b'"items"' in read_checked(mnt / "container%_2.json")
        assert sorted(os.listdir(mnt)) == ["container%_2.json", "container.json"]


def test_deep_path(writers, tmp_path):
    """A path longer than PATH_MAX: step by step, and by `shardfs cat`."""
    parts = ["d" * 100] * 60
    name = "/".join(parts + ["leaf"])
    source = tmp_path / "deep.kas"
    source.write_bytes(writers.kastore({name: np.arange(4, dtype="|u1")}))
    with mounted(source) as mnt:
        fd = os.open(mnt, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            leaf = os.open("leaf.npy", os.O_RDONLY, dir_fd=fd)
            data = os.read(leaf, 4096)
            os.close(leaf)
        finally:
            os.close(fd)
    assert data[-4:] == bytes(range(4))
    assert run("cat", f"{source}/{name}.npy", check=True).stdout == data
