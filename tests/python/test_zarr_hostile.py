"""Zarr stores that lie: indexes of shards, sizes, names, links, and documents that are far too large. Whatever is wrong
concerns the array or chunk that it is in, and nothing that is not the store's is ever shown."""

import errno
import gzip
import io
import json
import os
import struct
import time
import zipfile
import zlib

import numpy as np
import pytest

from support import mounted, peak_memory, walk_files

ABSENT = 2**64 - 1
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GROUP = b'{"zarr_format": 3, "node_type": "group"}'


def v3(shape, chunk, codecs=(BYTES,), **more):
    """A document of an array of i4."""
    return json.dumps({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int32",
                       "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
                       "chunk_key_encoding": {"name": "default"}, "fill_value": 7, "codecs": list(codecs), **more}).encode()


def v2(shape, chunks, **more):
    return json.dumps({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4", "fill_value": 7, "order": "C",
                       "compressor": None, "filters": None, **more}).encode()


def put(store, key, data):
    (store / key).parent.mkdir(parents=True, exist_ok=True)
    (store / key).write_bytes(data)


def is_eio(path, start, length, also=None):
    """Whether bytes cannot be read. Not through the page cache, whose pages have bytes of several chunks."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        os.pread(file, length, start)
    except OSError as error:
        assert error.errno in (errno.EIO, also)
        return True
    finally:
        os.close(file)
    return False


def elements(path, first, count):
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return np.frombuffer(os.pread(file, 4 * count, 128 + 4 * first), "<i4").tolist()
    finally:
        os.close(file)


def problems(mnt):
    return [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("place", ["end", "start"])
def test_an_index_of_a_shard_lies_about_single_chunks(tmp_path, place):
    """Eight inner chunks of four elements in one shard, whose index is 128 bytes."""
    store = tmp_path / "lies.zarr"
    sharding = {"name": "sharding_indexed", "configuration": {
        "chunk_shape": [4], "codecs": [BYTES], "index_codecs": [BYTES], "index_location": place}}
    put(store, "zarr.json", v3([32], [32], [sharding]))
    data = np.arange(100, 108, dtype="<i4").tobytes()
    base = 128 if place == "start" else 0
    entries = [
        (base, 16),                          # sound
        (base + 16, 16),                     # sound
        (base, 16),                          # the first once more
        (ABSENT, ABSENT),                    # absent
        (ABSENT, 16),                        # one field alone is absent
        (base + 24, 16),                     # past the end, or into the index
        (2**64 - 8, 16),                     # an end of more than 64 bits
        (base, 12),                          # another size than a chunk has
    ]
    index = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    put(store, "c/0", index + data if place == "start" else data + index)
    with mounted(tmp_path) as mnt:
        path = mnt / "lies.zarr/array.npy"
        assert elements(path, 0, 16) == [100, 101, 102, 103, 104, 105, 106, 107, 100, 101, 102, 103, 7, 7, 7, 7]
        assert [is_eio(path, 128 + 16 * number, 16) for number in range(8)] == [False] * 4 + [True] * 4
        # A line for each that is wrong: the container, the array, the chunk and what is wrong.
        lines = [line for line in problems(mnt) if line["container"] == "lies.zarr" and line["path"] == "array.npy"]
        said = [line["message"] for line in lines]
        assert len(said) == 4, said
        for number, message in zip((4, 5, 6), said):
            assert message.startswith(f"array: chunk [{number}] of 16 bytes at "), message
        assert said[3] == "chunk [7] of 12 bytes, where 16 are needed"


@pytest.mark.parametrize("shard", [b"", b"x" * 15, b"\xff" * 15])
def test_a_shard_is_shorter_than_its_index(tmp_path, shard):
    store = tmp_path / "short.zarr"
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": [4], "codecs": [BYTES], "index_codecs": [BYTES]}}
    put(store, "zarr.json", v3([8, ], [4], [sharding]))
    put(store, "c/0", shard)
    with mounted(tmp_path) as mnt:
        path = mnt / "short.zarr/array.npy"
        assert is_eio(path, 128, 16)
        assert elements(path, 4, 4) == [7] * 4


def test_a_huge_grid_of_inner_chunks_is_refused_and_costs_nothing(tmp_path):
    store = tmp_path / "huge.zarr"
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": [BYTES], "index_codecs": [BYTES]}}
    put(store, "zarr.json", GROUP)
    put(store, "shard/zarr.json", v3([2**40], [2**40], [sharding]))
    put(store, "rows/zarr.json", v3([2**50], [2**20]))
    with mounted(tmp_path) as mnt:
        root = mnt / "huge.zarr"
        begun = time.monotonic()
        items = {item["name"]: item for item in json.loads((root / "container.json").read_text())["items"]}
        assert "reason" in items["shard"] and "reason" not in items["rows"]
        assert (root / "rows.npy").stat().st_size == 128 + 4 * 2**50
        assert elements(root / "rows.npy", 2**49 + 3, 2) == [7, 7]
        assert is_eio(root / "shard.npy", 128, 4)
        assert time.monotonic() - begun < 20


def test_chunks_of_a_wrong_size(tmp_path):
    """Bytes, whether compressed or not, must be exactly those of a chunk; a bomb is stopped at that size."""
    store = tmp_path / "sizes.zarr"
    put(store, "zarr.json", GROUP)
    sound = np.arange(4, dtype="<i4").tobytes()
    bomb = bytes(256 << 20)
    packed = {
        "plain": (v3([24], [4]), lambda data: data),
        "gzip": (v3([24], [4], [BYTES, {"name": "gzip", "configuration": {"level": 1}}]), lambda data: gzip.compress(data, 1)),
        "zlib": (v3([24], [4], [BYTES, {"name": "numcodecs.zlib", "configuration": {}}]), lambda data: zlib.compress(data, 1)),
    }
    for name, (document, encode) in packed.items():
        put(store, f"{name}/zarr.json", document)
        put(store, f"{name}/c/0", encode(sound))
        put(store, f"{name}/c/1", encode(sound[:15]))
        put(store, f"{name}/c/2", encode(sound + b"x"))
        put(store, f"{name}/c/3", b"")
        if name != "plain":
            put(store, f"{name}/c/4", encode(bomb))
        else:
            put(store, f"{name}/c/4", b"x" * 100_000)
        put(store, f"{name}/c/5", encode(sound))
    with mounted(tmp_path, "--cache-size=64M") as mnt:
        for name in packed:
            path = mnt / f"sizes.zarr/{name}.npy"
            assert [is_eio(path, 128 + 16 * number, 16) for number in range(6)] == [False, True, True, True, True, False], name
            assert elements(path, 20, 4) == [0, 1, 2, 3]


def test_documents_of_100_mb(tmp_path):
    """They are refused before they are read, and concern only what they describe."""
    size = 100_000_000
    store = tmp_path / "large.zarr"
    put(store, ".zgroup", b'{"zarr_format": 2}')
    for name in ("fine", "attributes", "array"):
        put(store, f"{name}/.zarray", v2([4], [4]))
        put(store, f"{name}/0", np.arange(4, dtype="<i4").tobytes())
    put(store, "attributes/.zattrs", b'{"a": "' + b"x" * size + b'"}')
    put(store, "array/.zarray", v2([4], [4]) + b" " * size)
    put(store, ".zmetadata", b"")
    os.truncate(store / ".zmetadata", size)
    put(tmp_path, "root.zarr/.zgroup", b'{"zarr_format": 2' + b" " * size + b"}")
    with mounted(tmp_path, "--cache-size=512M") as mnt:
        begun = time.monotonic()
        root = mnt / "large.zarr"
        assert elements(root / "fine.npy", 0, 4) == [0, 1, 2, 3]
        assert elements(root / "attributes.npy", 0, 4) == [0, 1, 2, 3]
        assert sorted(walk_files(root)) == ["array.bin", "attributes.npy", "container.json", "fine.npy"]
        assert is_eio(root / "array.bin", 0, 1)
        # A folder whose marker is not sound is an ordinary one.
        assert walk_files(mnt / "root.zarr") == {".zgroup"}
        assert time.monotonic() - begun < 30
        said = json.dumps(problems(mnt))
        for key in ("attributes/.zattrs", ".zmetadata", "root.zarr"):
            assert key in said, key


def test_documents_that_nest_deeply_and_hold_many_values(tmp_path):
    put(tmp_path, "deep.zarr/zarr.json", GROUP)
    put(tmp_path, "deep.zarr/a/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001)
    put(tmp_path, "deep.zarr/many/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"a": [' + b"[]," * 400_000 + b"1]}}")
    put(tmp_path, "deep.zarr/fine/zarr.json", v3([1], [1]))
    with mounted(tmp_path, "--cache-size=512M") as mnt:
        begun = time.monotonic()
        assert elements(mnt / "deep.zarr/fine.npy", 0, 1) == [7]
        assert is_eio(mnt / "deep.zarr/a.bin", 0, 1)
        assert time.monotonic() - begun < 60


def test_names_that_lead_out_of_the_store(tmp_path):
    """Paths with `..`, `.`, empty parts and a leading slash are not nodes, wherever they stand."""
    put(tmp_path, "secret/.zarray", v2([4], [4]))
    put(tmp_path, "secret/0", np.arange(4, dtype="<i4").tobytes())
    bad = ["../secret", "a/../../secret", "/secret", "a//b", "./a", "a/.", "..", ""]
    array, group = json.loads(v2([4], [4])), {"zarr_format": 2}
    metadata = {".zgroup": group, "a/.zgroup": group, "fine/.zarray": array} | {f"{name}/.zarray": array for name in bad}
    put(tmp_path, "v2.zarr/.zgroup", b'{"zarr_format": 2}')
    put(tmp_path, "v2.zarr/.zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}).encode())
    inline = {name: json.loads(v3([4], [4])) for name in [*bad, "fine"]}
    attributes = {"ome": {"multiscales": [{"axes": ["y", "x"], "datasets": [{"path": name} for name in bad]}]},
                  "encoding-type": "dataframe", "_index": "../secret", "column-order": bad}
    put(tmp_path, "v3.zarr/zarr.json", json.dumps({
        "zarr_format": 3, "node_type": "group", "attributes": attributes,
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": inline}}).encode())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("zarr.json", GROUP)
        for name in ["fine", *(name for name in bad if name)]:
            out.writestr(f"{name}/zarr.json", v3([4], [4]))
        out.writestr("fine/c/../../../secret/0", b"x" * 16)
        out.writestr("fine/c/0", np.arange(4, dtype="<i4").tobytes())
        # A store inside is one member, whatever is in it.
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as inside:
            inside.writestr("zarr.json", GROUP)
        out.writestr("inner.zarr.zip", inner.getvalue())
        out.writestr("fine/inner.zarr.zip", inner.getvalue())
    put(tmp_path, "names.zarr.zip", packed.getvalue())
    with mounted(tmp_path) as mnt:
        for name, value in (("v2.zarr", [7] * 4), ("v3.zarr", [7] * 4), ("names.zarr.zip", [0, 1, 2, 3])):
            arrays = {path for path in walk_files(mnt / name) if path.endswith((".npy", ".png", ".parquet", ".bin"))}
            assert arrays == {"fine.npy"}, name
            assert elements(mnt / name / "fine.npy", 0, 4) == value, name


def test_links_and_pipes_in_the_folder(tmp_path):
    """A link is not followed, and nothing waits for a pipe that nobody writes to."""
    outside = tmp_path / "outside"
    put(outside, "array/zarr.json", v3([4], [4]))
    put(outside, "array/c/0", np.full(4, 99, "<i4").tobytes())
    source = tmp_path / "source"
    store = source / "links.zarr"
    put(store, "zarr.json", GROUP)
    (store / "whole").symlink_to(outside / "array")
    for name in ("chunk", "above", "inside", "pipe", "folder"):
        put(store, f"{name}/zarr.json", v3([8], [4]))
    (store / "chunk/c").mkdir()
    (store / "chunk/c/0").symlink_to(outside / "array/c/0")
    put(store, "chunk/c/1", np.arange(4, dtype="<i4").tobytes())
    (store / "above/c").symlink_to(outside / "array/c")
    put(store, "inside/stored", np.arange(4, dtype="<i4").tobytes())
    (store / "inside/c").mkdir()
    (store / "inside/c/0").symlink_to("../stored")
    (store / "pipe/c").mkdir()
    os.mkfifo(store / "pipe/c/0")
    put(store, "folder/c/0/x", b"a folder where a chunk should be")
    (store / "document").mkdir()
    (store / "document/zarr.json").symlink_to(outside / "array/zarr.json")
    put(source, "marker.zarr/x", b"x")
    (source / "marker.zarr/zarr.json").symlink_to(outside / "array/zarr.json")
    with mounted(source) as mnt:
        begun = time.monotonic()
        root = mnt / "links.zarr"
        names = {path for path in walk_files(root) if path.endswith(".npy")}
        assert names == {"chunk.npy", "above.npy", "inside.npy", "pipe.npy", "folder.npy"}
        for name in ("chunk", "above", "inside"):
            assert is_eio(root / f"{name}.npy", 128, 16), name
        assert elements(root / "chunk.npy", 4, 4) == [0, 1, 2, 3]
        assert elements(root / "folder.npy", 0, 8) == [7] * 8
        assert is_eio(root / "pipe.npy", 128, 16) or elements(root / "pipe.npy", 0, 4) == [7] * 4
        assert not (mnt / "marker.zarr/container.json").exists()
        assert time.monotonic() - begun < 20


def test_a_bomb_in_an_archive(tmp_path):
    """Members that are inflated stop at their stated size, and a size that cannot be true takes no memory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("zarr.json", GROUP)
        out.writestr("a/zarr.json", v3([8], [4]))
        out.writestr("a/c/0", bytes(300 << 20))
        out.writestr("a/c/1", np.arange(4, dtype="<i4").tobytes())
        out.writestr("b/zarr.json", v3([4], [4]) + b" " * (100 << 20))
    put(tmp_path, "bomb.zarr.zip", packed.getvalue())
    # The stated size of a chunk, in the central directory, is 2^32 - 2 bytes.
    lying = bytearray(packed.getvalue())
    place = lying.rindex(b"a/c/1") - 46
    lying[place + 24:place + 28] = struct.pack("<I", 2**32 - 2)
    put(tmp_path, "lying.zarr.zip", bytes(lying))
    with mounted(tmp_path, "--cache-size=64M") as mnt:
        # A member is inflated whole, and this one is larger than the cache.
        assert is_eio(mnt / "bomb.zarr.zip/a.npy", 128, 16, errno.ENOMEM)
        assert elements(mnt / "bomb.zarr.zip/a.npy", 4, 4) == [0, 1, 2, 3]
        assert is_eio(mnt / "bomb.zarr.zip/b.bin", 0, 1)
        assert is_eio(mnt / "lying.zarr.zip/a.npy", 144, 16, errno.ENOMEM)
        assert peak_memory(mnt) < 400


def test_texts_of_which_almost_none_are_stored(tmp_path):
    """A document alone says that there are millions of chunks. None of them is looked for."""
    chunks = {"name": "regular", "configuration": {"chunk_shape": [5]}}
    text = {"data_type": "string", "chunk_grid": chunks, "codecs": [{"name": "vlen-utf8"}], "fill_value": "fill"}
    put(tmp_path, "x.zarr/zarr.json", v3([60_000_003], [5], **text))
    stored = [f"row {number}" * (number % 3) for number in range(5)]
    encoded = b"".join(struct.pack("<I", len(row)) + row.encode() for row in stored)
    for chunk in (1_000_000, 7_000_000):
        put(tmp_path, f"x.zarr/c/{chunk}", struct.pack("<I", 5) + encoded)
    before = time.monotonic()
    with mounted(tmp_path) as mnt:
        folder = mnt / "x.zarr"
        [lines] = folder.glob("*.jsonl")
        line = len(b'"fill"\n')
        more = sum(len(json.dumps(row)) + 1 - line for row in stored)
        assert lines.stat().st_size == 60_000_003 * line + 2 * more
        [offsets] = folder.glob("*/offsets.npy")
        offsets = np.load(offsets, mmap_mode="r")
        assert offsets[35_000_000] == 35_000_000 * 4 + sum(len(row) - 4 for row in stored)
        with open(lines, "rb") as file:
            file.seek(35_000_000 * line + more - 2 * line)
            shown = ["fill", "fill", *stored, "fill"]
            expected = "".join(json.dumps(row) + "\n" for row in shown).encode()
            assert file.read(len(expected)) == expected
            file.seek(-2 * line, os.SEEK_END)
            assert file.read() == b'"fill"\n' * 2
        del offsets
    assert time.monotonic() - before < 30
