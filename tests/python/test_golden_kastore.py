"""Every golden kastore file, through the mount."""

import json
import os
import stat

import kastore
import numpy as np
import pytest
import tskit

from support import (FIXTURES, assert_same_file, check_npy, examples, mounted, names, read_checked, sha256, tables, text_views,
                     walk_files)

ITEM_KEYS = ("name", "path", "dtype", "shape", "codec", "stored_size", "size", "checksum")


def key_of(item):
    return bytes.fromhex(item["key_hex"])


def test_file(golden_kastore, golden, kastore_mount):
    rel, expected = golden_kastore
    entry = kastore_mount / rel
    source = golden / "kastore" / rel
    if expected["expect"] == "error":
        assert_same_file(entry, source)
        return
    assert stat.S_ISDIR(os.lstat(entry).st_mode), f"{rel} should be a folder"

    raw = source.read_bytes()
    stores = expected["stores"]
    want = {"container.json"}
    listed = {}
    for number, store in enumerate(stores):
        prefix = f"{number}/" if len(stores) > 1 else ""
        content = {}
        for item in store["items"]:
            path = prefix + names.path(key_of(item), ".npy")
            data = check_npy(entry / path, item["dtype"], (item["count"],))
            assert sha256(data) == item["sha256"], path
            want.add(path)
            listed[path] = item
            content[key_of(item).decode("utf-8", "surrogateescape")] = (item["dtype"], data)
        if not store["items"] and prefix:
            want.add(prefix)
        for path, data in text_views.views(content).items():
            want.add(prefix + path)
            assert read_checked(entry / (prefix + path)) == data, path
        found = tables.of_store({key: np.frombuffer(data, dtype) for key, (dtype, data) in content.items()})
        for path, columns in found.items():
            want.add(prefix + path)
            for reader in tables.READERS.values():
                tables.assert_same(reader(entry / (prefix + path)), columns, f"{path} by {reader.__name__}")
    assert walk_files(entry) == want

    info = json.loads(read_checked(entry / "container.json"))
    assert list(info)[:2] == ["format", "version"] and info["format"] == "kastore"
    assert sorted(i["path"] for i in info["items"]) == sorted(listed)
    for item in info["items"]:
        assert set(ITEM_KEYS) <= set(item), item
        stored = listed[item["path"]]
        assert item["shape"] == [stored["count"]]
        assert item["size"] == item["stored_size"] == stored["count"] * np.dtype(stored["dtype"]).itemsize
        assert not item.get("inferred")
        if stored["key"] is not None:
            assert item["name"] == stored["key"]
    assert source.read_bytes() == raw


def test_other_files(golden, kastore_mount):
    for name in ("README.md", "LICENSE.kastore", "expected.json"):
        assert_same_file(kastore_mount / name, golden / "kastore" / name)
    assert sorted(os.listdir(kastore_mount)) == sorted(os.listdir(golden / "kastore"))


@pytest.fixture(scope="module")
def trees(golden, kastore_mount):
    rel = "generated/msprime_two_populations.trees"
    return golden / "kastore" / rel, kastore_mount / rel


def test_kastore_package_agrees(trees):
    source, entry = trees
    with kastore.load(source) as store:
        assert len(store) == 66
        for key, value in store.items():
            mine = np.load(entry / f"{key}.npy")
            assert mine.dtype == value.dtype
            assert mine.tobytes() == value.tobytes(), key


def test_tskit_agrees_with_text_views(trees):
    source, entry = trees
    ts = tskit.load(str(source))
    text = lambda path: (entry / path).read_text(encoding="utf-8")
    lines = lambda path: text(path).splitlines()
    assert text("format/name.txt") == "tskit.trees"
    assert text("uuid.txt") == ts.file_uuid
    assert text("time_units.txt") == ts.time_units
    assert text("reference_sequence/data.txt") == ts.reference_sequence.data
    assert text("reference_sequence/url.txt") == ts.reference_sequence.url
    records = lines("provenances/record.jsonl")
    assert [json.loads(r) for r in records] == [json.loads(p.record) for p in ts.provenances()]
    assert lines("provenances/timestamp.txt") == [p.timestamp for p in ts.provenances()]
    populations = [json.loads(r) for r in lines("populations/metadata.jsonl")]
    assert populations == [p.metadata for p in ts.populations()]
    tables = ts.tables
    for name, schema in [
        ("metadata_schema", tables.metadata_schema),
        *((f"{t}/metadata_schema", getattr(tables, t).metadata_schema)
          for t in ("nodes", "edges", "sites", "mutations", "migrations", "individuals", "populations")),
    ]:
        path = entry / f"{name}.json"
        if repr(schema):
            assert json.loads(path.read_text(encoding="utf-8")) == json.loads(repr(schema)), name
        else:
            assert not path.exists(), name
    if tables.metadata_schema.schema and tables.metadata_schema.schema["codec"] == "json":
        assert json.loads(text("metadata.json")) == ts.metadata


def test_row_views(writers, mount, tmp_path):
    """Line breaks inside rows become spaces, empty rows are `{}`; bad offsets give no view."""
    items = examples.tree_sequence()
    items |= writers.ragged("populations/metadata", ['{"name":\n"A"}', ""])
    items |= writers.ragged("provenances/timestamp", ["a\r\nb", "c"])
    items["provenances/record_offset"] = np.array([0, 9, 5], "<u4")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.trees").write_bytes(writers.kastore(items))
    with mount(tmp_path / "src") as mnt:
        x = mnt / "x.trees"
        assert read_checked(x / "populations/metadata.jsonl") == b'{"name": "A"}\n{}\n'
        assert read_checked(x / "provenances/timestamp.txt") == b"a  b\nc\n"
        assert not (x / "provenances/record.jsonl").exists()
        assert (x / "provenances/record.npy").exists()
        problems = (mnt / ".shardfs/problems.jsonl").read_text().splitlines()
        assert any("x.trees" in json.loads(p)["container"] for p in problems)


def test_no_text_views_elsewhere(writers, tmp_path):
    """The keys alone do not make a tree sequence."""
    source = tmp_path / "x.kas"
    source.write_bytes(writers.kastore({"uuid": writers.text("abc"), "metadata_schema": writers.text("{}")}))
    with mounted(source) as mnt:
        assert walk_files(mnt) == {"container.json", "uuid.npy", "metadata_schema.npy"}


def test_what_follows_is_no_store(writers, mount, tmp_path):
    """One good store, then junk: the store is shown, the junk is a noted problem."""
    (tmp_path / "src").mkdir()
    one = writers.kastore({"a": np.arange(5, dtype="|u1")})
    (tmp_path / "src" / "junk.kas").write_bytes(one + b"something else")
    (tmp_path / "src" / "two_junk.kas").write_bytes(one + one + b"\x89KAS\r\n\x1a\n")
    with mount(tmp_path / "src") as mnt:
        assert walk_files(mnt / "junk.kas") == {"container.json", "a.npy"}
        assert walk_files(mnt / "two_junk.kas") == {"container.json", "0/a.npy", "1/a.npy"}
        check_npy(mnt / "two_junk.kas/1/a.npy", "|u1", (5,))
        noted = {json.loads(line)["container"] for line in (mnt / ".shardfs/problems.jsonl").open()}
        assert {"junk.kas", "two_junk.kas"} <= noted


@pytest.mark.parametrize(("change", "told", "gone"), [
    (lambda d: d.pop("provenances/record_offset"), "provenances/record: there are no offsets", "provenances/record.jsonl"),
    (lambda d: d.update({"provenances/timestamp": np.zeros(4, "<u2")}), "provenances/timestamp: it is not of single",
     "provenances/timestamp.txt"),
    (lambda d: d.update({"metadata_schema": np.frombuffer(b'{"codec": "json"', "i1"), "metadata": np.ones(2, "i1")}),
     "metadata_schema is not JSON", "metadata.json"),
])
def test_text_views_that_can_not_be_are_told(change, told, gone, tmp_path):
    data = dict(kastore.load(str(FIXTURES / "tree_sequence.trees")))
    change(data)
    kastore.dump(data, str(tmp_path / "x.trees"))
    with mounted(tmp_path) as mnt:
        assert not (mnt / "x.trees" / gone).exists()
        problems = [json.loads(line)["message"] for line in (mnt / ".shardfs/problems.jsonl").open()]
        assert len(problems) == 1 and problems[0].startswith(told), problems
