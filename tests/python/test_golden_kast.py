"""Every golden file of the KAST draft, through the mount."""

import json
import os
import stat

import numpy as np

from support import assert_same_file, check_npy, names, read_checked, sha256, tables, walk_files


def test_file(golden_kast, golden, kast_mount):
    rel, expected = golden_kast
    entry = kast_mount / rel
    source = golden / "kast" / rel
    if expected["expect"] == "error":
        assert_same_file(entry, source)
        return
    assert stat.S_ISDIR(os.lstat(entry).st_mode), f"{rel} should be a folder"
    listed, arrays = {}, {}
    for item in expected["items"]:
        path = names.path(bytes.fromhex(item["key_hex"]), ".npy")
        data = check_npy(entry / path, item["dtype"], (item["count"],))
        assert sha256(data) == item["sha256"], path
        listed[path] = item
        arrays[item["key"]] = np.frombuffer(data, item["dtype"])
    found = tables.of_store(arrays)
    for path, columns in found.items():
        tables.assert_same(tables.polars_scan(entry / path), columns, path)
    assert walk_files(entry) == set(listed) | set(found) | {"container.json"}

    info = json.loads(read_checked(entry / "container.json"))
    assert info["format"].lower() == "kast"
    assert sorted(i["path"] for i in info["items"]) == sorted(listed)
    for item in info["items"]:
        stored = listed[item["path"]]
        assert item["name"] == stored["key"]
        assert item["shape"] == [stored["count"]]
        assert item["size"] == stored["count"] * np.dtype(stored["dtype"]).itemsize


def test_other_files(golden, kast_mount):
    for name in ("README.md", "expected.json"):
        assert_same_file(kast_mount / name, golden / "kast" / name)


def test_other_files_of_that_magic(mount, tmp_path):
    """Text and other programs' files that begin with the four letters stay files, silently."""
    src = tmp_path / "src"
    src.mkdir()
    (src / "prose.txt").write_bytes(b"KASTORE is a simple format." * 9)
    (src / "attestation").write_bytes(b"KAST" + (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
                                      + (28).to_bytes(4, "little") + bytes(range(64)))
    with mount(src) as mnt:
        for name in ("prose.txt", "attestation"):
            assert_same_file(mnt / name, src / name)
        assert (mnt / ".shardfs/problems.jsonl").read_text() == ""
