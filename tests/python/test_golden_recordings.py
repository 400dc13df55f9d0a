"""Every golden recording through a mount; tables by pyarrow. `tests/golden/mcap/README.md` has the form of what is
expected."""

import errno
import hashlib
import json
import os
import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from support import FIXTURES, GOLDEN, assert_same_file, load_expected, mounted, seen_within, sha256, walk_files
from support.writers import recordings

FAMILIES = ("mcap", "rosbag")
FILES = [(family, rel) for family in FAMILIES for rel in sorted(load_expected(family))]


@pytest.fixture(scope="module")
def mounts():
    """A mount of each family."""
    found = {}

    def of(family):
        if family not in found:
            mount = mounted(GOLDEN / family)
            found[family] = mount, mount.__enter__()
        return found[family][1]

    yield of
    for mount, _ in found.values():
        mount.__exit__(None, None, None)


@pytest.mark.parametrize("family,rel", FILES)
def test_recording(mounts, family, rel):
    mnt, expected = mounts(family), load_expected(family)[rel]
    entry = mnt / rel
    if expected["expect"] == "ordinary":
        assert_same_file(entry, GOLDEN / family / rel)
        lines = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert any(line["container"] == rel and expected["reason"] in line["message"] for line in lines), lines
        return
    items = expected["items"]
    listed = {path for path, item in items.items() if not path.startswith(".raw/") and not item.get("hidden")}
    assert walk_files(entry) == {*listed, "container.json"}
    for path, item in items.items():
        check(entry / path, item)


def check(path, item):
    if item["kind"] == "eio":
        with pytest.raises(OSError) as raised:
            path.read_bytes()
        assert raised.value.errno == errno.EIO, path
    elif item["kind"] == "file":
        data = path.read_bytes()
        assert (len(data), os.lstat(path).st_size) == (item["size"], item["size"]), path
        assert sha256(data) == item["sha256"], path
    elif item["kind"] == "npy":
        if item.get("eio"):
            return  # An error covers whole pages of the kernel; tests/golden_recordings.rs reads row by row.
        array = np.load(path, mmap_mode="r" if os.lstat(path).st_size > 128 and item["shape"][0] else None)
        assert (array.dtype.str, list(array.shape)) == (item["dtype"], item["shape"]), path
        assert sha256(array.tobytes()) == item["sha256"], path
    else:
        check_table(path, item)


def check_table(path, item):
    table = pq.read_table(path)
    assert table.num_rows == item["rows"], path
    assert table.column_names == [column["name"] for column in item["columns"]], path
    for column in item["columns"]:
        values = table.column(column["name"]).combine_chunks()
        kind = values.type
        element = kind.value_type if pa.types.is_fixed_size_list(kind) else kind
        assert str(element) == column["type"], (path, column["name"], kind)
        if "k" in column:
            assert kind.list_size == column["k"], (path, column)
        missing = [row for row, is_valid in enumerate(values.is_valid().to_pylist()) if not is_valid]
        assert missing == (column.get("nulls") or []), (path, column["name"])
        assert digest(values, element) == column["sha256"], (path, column["name"])


def digest(values, element):
    if pa.types.is_string(element) or pa.types.is_binary(element):
        found = hashlib.sha256()
        for value in values.to_pylist():
            if value is None:
                found.update(b"\xff")
                continue
            data = value.encode() if isinstance(value, str) else value
            found.update(b"\0" + struct.pack("<Q", len(data)) + data)
        return found.hexdigest()
    present = values.drop_null()
    if pa.types.is_fixed_size_list(present.type):
        present = present.flatten()
    if pa.types.is_boolean(element):
        return sha256(bytes(present.to_pylist()))
    if pa.types.is_timestamp(element):
        present = present.cast(pa.int64())
    return sha256(np.ascontiguousarray(present.to_numpy(zero_copy_only=False)).tobytes())


HEADER = b"=" * 80 + b"\nMSG: roslib/Header\nuint32 seq\ntime stamp\nstring frame_id\n"


@pytest.mark.parametrize("definition", [
    b"Header header\nfloat32 x\n" + HEADER, b"roslib/Header header\nfloat32 x\n" + HEADER,
    b"Header header # in \xb0\nstring UNIT=\xb0\nfloat32 x\n" + HEADER,
])
def test_definitions_of_old_bags(tmp_path, writers, definition):
    """The header in the package of ROS before Diamondback, and text in Latin-1."""
    data = struct.pack("<4I", 7, 1, 2, 1) + b"f" + struct.pack("<f", 1.5)
    (tmp_path / "a.bag").write_bytes(writers.bag([("/t", "p/H", definition)], [(0, 10**9, data)]))
    schema = ("p/H", "ros1msg", definition)
    (tmp_path / "a.mcap").write_bytes(writers.mcap([schema], [("/t", "ros1", 1)], [(0, 1, data)]))
    wanted = {"header": {"seq": 7, "stamp": {"secs": 1, "nsecs": 2}, "frame_id": "f"}, "x": 1.5}
    with mounted(tmp_path) as mnt:
        for name in ("a.bag", "a.mcap"):
            assert json.loads((mnt / name / "topics/t/messages.jsonl").read_text()) == wanted
            assert np.load(mnt / name / "topics/t/x.npy").tolist() == [1.5]


def test_types_and_names_are_ascii(tmp_path, writers):
    for number, line in enumerate((b"float32 \xb0x", b"\xb0/X x", b"float32\xb0 x")):
        file = writers.mcap([("p/H", "ros1msg", line + b"\n")], [("/t", "ros1", 1)], [(0, 1, bytes(4))])
        (tmp_path / f"{number}.mcap").write_bytes(file)
    with mounted(tmp_path) as mnt:
        for number in range(3):
            (item,) = json.loads((mnt / f"{number}.mcap/container.json").read_text())["items"]
            assert not item["decoded"] and "of another form" in item["reason"], item


@pytest.mark.parametrize("kind,begin", [("mcap", b"\x28\xb5\x2f\xfd"), ("bag", b"BZh9")], ids=["mcap", "bag"])
def test_damaged_chunks_hide_no_pictures(tmp_path, writers, kind, begin):
    """Each of 20 pictures has its own chunk, of which the first are damaged: then the first sound one decides the suffix."""
    pictures = [b"\xff\xd8\xff" + bytes([number]) * 100 for number in range(20)]
    front, definition = b"\0\1\0\0" if kind == "mcap" else b"", b"uint8[] data\n"
    messages = [(0, 10**9 + at, front + struct.pack("<I", len(data)) + data) for at, data in enumerate(pictures)]
    if kind == "mcap":
        schema = ("sensor_msgs/msg/CompressedImage", "ros2msg", definition)
        whole = writers.mcap([schema], [("/cam", "cdr", 1)], messages, chunk=1)
    else:
        whole = writers.bag([("/cam", "sensor_msgs/CompressedImage", definition)], messages, chunk=1)
    chunks = [found.start() for found in re.finditer(re.escape(begin), whole)]
    assert len(chunks) == len(pictures)
    suffixes = {1: ".jpg", 15: ".jpg", 16: ".bin", 20: ".bin"}
    for damaged in suffixes:
        file = bytearray(whole)
        for chunk in chunks[:damaged]:
            file[chunk + 12] ^= 1
        (tmp_path / f"{damaged}.{kind}").write_bytes(file)
    with mounted(tmp_path) as mnt:
        for damaged, suffix in suffixes.items():
            folder = mnt / f"{damaged}.{kind}/topics/cam/images"
            assert sorted(os.listdir(folder)) == [f"{number:03}{suffix}" for number in range(20)]
            for number, data in enumerate(pictures):
                check(folder / f"{number:03}{suffix}", {"kind": "eio"} if number < damaged else
                      {"kind": "file", "size": len(data), "sha256": sha256(data)})


@pytest.mark.parametrize("name,messages", [("drive.mcap", 120), ("drive.bag", 60)])
def test_a_recording_that_is_still_written(tmp_path, name, messages):
    """It is an ordinary file, with the reason, until its end is there; then a folder, within a second."""
    whole = (FIXTURES / name).read_bytes()
    (tmp_path / "source").mkdir()
    growing = tmp_path / "source" / name
    # The recorder puts the place of a bag's index into the front at the end.
    front = whole[:len(whole) // 2] if name.endswith("mcap") else (FIXTURES / "damaged/unfinished.bag").read_bytes()
    with mounted(tmp_path / "source") as mnt:
        growing.write_bytes(front)
        assert seen_within(1.0, lambda: (mnt / name).is_file() and (mnt / name).read_bytes() == front)
        lines = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert any(line["container"] == name and "interrupted" in line["message"] for line in lines), lines
        with open(growing, "r+b") as recorder:
            recorder.seek(len(front) if name.endswith("mcap") else 0)
            recorder.write(whole[recorder.tell():])
        assert seen_within(1.0, lambda: (mnt / name).is_dir())
        assert len(np.load(mnt / name / "topics/imu/time.npy")) == messages


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_messages_that_are_compressed_one_by_one(mounts, tmp_path, compression):
    """As rosbag2 writes them with `compression_mode: message`. All files but those of the stored bytes are the same."""
    golden = mounts("mcap") / "images.mcap"
    folders = sorted(path.parent for path in golden.rglob("channel.json"))
    schemas, channels, messages = [], [], []
    for number, folder in enumerate(folders):
        schema = json.loads((folder / "channel.json").read_text())["schema"]
        schemas.append((schema["name"], schema["encoding"], (folder / "schema.msg").read_bytes()))
        channels.append(("/" + str(folder.relative_to(golden / "topics")), "cdr", number + 1))
        raw = sorted((golden / ".raw" / folder.relative_to(golden)).iterdir())
        messages += [(number, time, path.read_bytes()) for time, path in enumerate(raw)]
    compressed = [(number, time, zstandard.ZstdCompressor().compress(data)) for number, time, data in messages]
    for name, these in (("plain", messages), ("compressed", compressed)):
        (tmp_path / f"{name}.mcap").write_bytes(recordings.mcap(schemas, channels, these, compression=compression))
    with mounted(tmp_path) as mnt:
        plain, files = mnt / "plain.mcap", walk_files(mnt / "plain.mcap")
        assert walk_files(mnt / "compressed.mcap") == files
        assert len([path for path in files if path.endswith((".png", ".jpg"))]) > 10
        for path in files - {"container.json"}:
            if (plain / path).suffix in (".png", ".jpg", ".bin") and path.startswith("topics/"):
                found = read_or_errno(plain / path)
                assert read_or_errno(mnt / "compressed.mcap" / path) == found, path
            else:
                assert_same_file(mnt / "compressed.mcap" / path, plain / path)
        topic = channels[0][0]
        assert (mnt / f"compressed.mcap/.raw/topics{topic}/000.bin").read_bytes() == compressed[0][2]


def read_or_errno(path):
    try:
        return path.read_bytes()
    except OSError as error:
        return error.errno
