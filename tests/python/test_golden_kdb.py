"""Every golden KDB file, through the mount, and damage that must stay where it is."""

import errno
import io
import json
import math
import os
import struct

import numpy as np
import pytest
from PIL import Image

from support import assert_same_file, check_npy, examples, names, png_size, read_checked, sha256, walk_files
from support.writers.kdb import Episode, Record, pack

META = ("position", "episode_id", "embodiment", "task", "fps", "success", "total_reward", "num_frames", "state_dim",
        "action_dim")
ARRAYS = ("state", "action", "reward", "is_terminal")


def png_size(width, height, channels):
    lines = height * (1 + width * channels)
    return 8 + 25 + (12 + 2 + lines + 5 * max(1, -(-lines // 65535)) + 4) + 12


def part(name):
    return names.dir_part(name.encode()).decode()


def check_picture(path, record, stored):
    data = read_checked(path)
    if record["kind"] != "raw":
        assert data == stored and sha256(data) == record["sha256"]
        return np.asarray(Image.open(io.BytesIO(data)))
    width, height, channels = record["w"], record["h"], record["c"]
    assert len(data) == png_size(width, height, channels), path
    with Image.open(path) as picture:
        picture.verify()
    with Image.open(path) as picture:
        assert picture.mode == {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
        pixels = np.asarray(picture)
    assert pixels.tobytes() == stored, path
    return pixels


def check_images(top, episode, raw):
    cameras = {}
    for frame, records in enumerate(episode["frames"]):
        for record in records:
            cameras.setdefault(record["camera"], []).append((frame, record))
    want = set()
    for camera, records in cameras.items():
        shapes, exact, lossy = set(), [], False
        for frame, record in records:
            stored = raw[record["data_offset"]:record["data_offset"] + record["data_len"]]
            path = f"{part(camera)}/{frame:03}{'.jpg' if record['kind'] == 'jpeg' else '.png'}"
            want.add(path)
            pixels = check_picture(top / path, record, stored)
            pixels = pixels.reshape(*pixels.shape[:2], -1)
            shapes.add(pixels.shape)
            exact.append(pixels)
            lossy |= record["kind"] == "jpeg"
        if len(records) == episode["num_frames"] and len(shapes) == 1:
            path = f"{part(camera)}.npy"
            want.add(path)
            shape = (len(records), *shapes.pop())
            stack = np.frombuffer(check_npy(top / path, "|u1", shape), "|u1").reshape(shape)
            # Decoders of JPEG round differently.
            assert np.abs(stack.astype(int) - np.stack(exact)).max() <= (16 if lossy else 0), path
    assert walk_files(top) == want


def test_file(golden_kdb, golden, kdb_mount):
    rel, expected = golden_kdb
    entry = kdb_mount / rel
    raw = (golden / "kdb" / rel).read_bytes()
    info = json.loads(read_checked(entry / "container.json"))
    header = expected["file"]["header"]
    assert list(info)[:2] == ["format", "version"]
    assert (info["format"], info["version"], info["items"]) == ("kdb", "0.1", [])
    assert info["header"] == {k: header[k] for k in info["header"]}
    assert sorted(os.listdir(entry)) == ["container.json", "episodes", "episodes.parquet", "steps.parquet"]
    steps = sum(episode["num_frames"] for episode in expected["episodes"])
    assert [(table["path"], table["rows"]) for table in info["tables"]] == [
        ("episodes.parquet", len(expected["episodes"])), ("steps.parquet", steps)]
    assert sorted(map(int, os.listdir(entry / "episodes"))) == list(range(len(expected["episodes"])))
    for episode in expected["episodes"]:
        top = entry / "episodes" / str(episode["position"])
        files = {"meta.json", *(f"{name}.npy" for name in ARRAYS)}
        if episode["images_length"] > 2 * episode["num_frames"]:
            files.add("images")
            check_images(top / "images", episode, raw)
        assert set(os.listdir(top)) == files
        meta = json.loads(read_checked(top / "meta.json"))
        assert tuple(meta) == META
        for key in META:
            stored = episode["meta"] if key in episode["meta"] else episode
            value = stored[key]
            if isinstance(value, str) and key in ("fps", "total_reward"):
                value = None
            if isinstance(value, float):
                assert math.isclose(meta[key], value, rel_tol=1e-7), key
            else:
                assert meta[key] == value, key
        for name in ARRAYS:
            array = episode["arrays"][name]
            descr = "|b1" if name == "is_terminal" else array["dtype"]
            assert sha256(check_npy(top / f"{name}.npy", descr, array["shape"])) == array["sha256"], name
    assert (kdb_mount / ".shardfs/problems.jsonl").read_text() == ""


def test_other_files(golden, kdb_mount):
    for name in ("README.md", "expected.json"):
        assert_same_file(kdb_mount / name, golden / "kdb" / name)


def test_fixture(fixtures_mount):
    top = fixtures_mount / "demo.kdb/episodes"
    assert sorted(os.listdir(top)) == ["0", "1", "2"]
    assert sorted(os.listdir(top / "0/images")) == ["front", "front.npy", "wrist", "wrist.npy"]
    assert sorted(os.listdir(top / "1/images/wrist")) == ["000.png", "002.png", "004.png"]
    stack = np.load(top / "1/images/front.npy", mmap_mode="r")
    assert stack.shape == (6, 72, 96, 3)
    assert not (top / "2/images").exists()


def record(camera, width, height, channels, data, flag=0):
    return Record(camera, width, height, channels, flag, data)


def episode(frames, **more):
    steps = len(frames)
    rows = (np.ones((steps, 2)), np.ones((steps, 1)), np.zeros(steps), [0] * (steps - 1) + [7])
    return Episode(frames, embodiment="r", task="t", rows=rows, **more)


def problems(mnt):
    return [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").open()]


def test_odd_pictures(mount, tmp_path):
    """Names, duplicates, holes, channel counts and flags that lie."""
    rec = record
    grey = bytes(range(6))
    frames = [
        [rec("a/b", 3, 2, 1, grey), rec("a/b", 3, 2, 1, grey[::-1]), rec("", 1, 1, 5, b"vwxyz"),
         rec(b"\xff", 1, 2, 2, b"abcd"), rec("x.npy", 2, 1, 4, b"RGBArgba"), rec("rgb", 2, 1, 1, b"abcdef")],
        [rec("a/b", 3, 2, 1, grey), rec("", 0, 0, 0, b""), rec(b"\xff", 2, 1, 2, b"abcd"),
         rec("opaque", 2, 2, 3, b"short", 1), rec("rgb", 2, 1, 3, b"\xff\xd8\xff\0\0\0", 1)],
    ]
    (tmp_path / "src").mkdir()
    (tmp_path / "src/x.kdb").write_bytes(pack([episode(frames)]))
    with mount(tmp_path / "src") as mnt:
        top = mnt / "x.kdb/episodes/0/images"
        assert walk_files(top) == {
            "a%2Fb.npy", "a%2Fb/000.png", "a%2Fb/000%_2.png", "a%2Fb/001.png", "%empty/000.npy", "%FF/000.png",
            "%FF/001.png", "x%2Enpy/000.png", "opaque/001.bin", "rgb/000.png", "rgb/001.png", "rgb.npy"}
        assert np.asarray(Image.open(top / "a%2Fb/000%_2.png")).tobytes() == grey[::-1]
        assert np.load(top / "a%2Fb.npy").tobytes() == grey + grey
        assert np.load(top / "%empty/000.npy").shape == (1, 1, 5)
        assert Image.open(top / "%FF/001.png").mode == "LA"
        assert Image.open(top / "x%2Enpy/000.png").mode == "RGBA"
        assert np.load(top / "rgb.npy").tobytes() == b"abcdef\xff\xd8\xff\0\0\0"
        assert check_npy(mnt / "x.kdb/episodes/0/is_terminal.npy", "|b1", (2,)) == b"\0\1"
        assert problems(mnt) == []


def test_damage_stays_where_it_is(mount, tmp_path):
    rec = record
    frames = [[rec("c", 1, 1, 3, b"abc")], [rec("c", 1, 1, 3, b"def")]]
    good = episode(frames)
    bad_meta = episode(frames, instead={"meta": struct.pack("<H", 500) + b"short"})
    lossy = episode(frames, success=9, fps=float("nan"))
    lossy.embodiment = b"\xffx"
    cut = episode(frames, instead={"images": good.sections()["images"][:-1]})
    old = episode([[rec("c", 1, 1, 3, bytes(3), None)] for _ in range(2)])
    data = bytearray(pack([bad_meta, good, lossy, cut, old, good]))
    index = struct.unpack_from("<Q", data, 24)[0]
    struct.pack_into("<I", data, index + 5 * 64 + 8, 0xFFFFFFFF)  # the last episode claims 2^32 - 1 frames
    (tmp_path / "src").mkdir()
    (tmp_path / "src/x.kdb").write_bytes(data)
    (tmp_path / "src/cut.kdb").write_bytes(data[:-1])
    with mount(tmp_path / "src") as mnt:
        top = mnt / "x.kdb/episodes"
        arrays = {"action.npy", "is_terminal.npy", "reward.npy", "state.npy"}
        pictures = {"images/c.npy", "images/c/000.png", "images/c/001.png"}
        assert walk_files(top / "0") == arrays | pictures
        assert walk_files(top / "1") == arrays | pictures | {"meta.json"}
        meta = json.loads((top / "2/meta.json").read_text())
        assert (meta["embodiment"], meta["fps"], meta["success"]) == ("\ufffdx", None, None)
        assert walk_files(top / "3") == arrays | {"meta.json", "images/c/000.png"}
        assert walk_files(top / "4") == arrays | pictures | {"meta.json"}
        assert np.load(top / "4/images/c.npy").tobytes() == bytes(6)
        assert walk_files(top / "5") == {"meta.json"}
        assert np.load(top / "1/state.npy").sum() == 4
        assert_same_file(mnt / "cut.kdb", tmp_path / "src/cut.kdb")
        noted = {(p["container"], p["path"]) for p in problems(mnt)}
        assert {("x.kdb", "episodes/0/meta.json"), ("x.kdb", "episodes/2/meta.json"), ("x.kdb", "episodes/3/images"),
                ("x.kdb", "episodes/5"), ("cut.kdb", "")} <= noted
        assert not any("episodes/1" in path for _, path in noted)


def test_a_broken_encoded_picture_is_its_own_trouble(mount, tmp_path):
    """The stack fails where it touches the picture, and only there; the stored bytes are served."""
    noise = np.random.default_rng(1).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    sound = examples.jpeg(noise)
    broken = sound[:len(sound) // 2]
    frames = [[record("c", 64, 64, 3, data, 1)] for data in (sound, broken, sound)]
    (tmp_path / "x.kdb").write_bytes(pack([episode(frames)]))
    with mount(tmp_path / "x.kdb") as mnt:
        top = mnt / "episodes/0/images"
        assert (top / "c/001.jpg").read_bytes() == broken
        assert os.lstat(top / "c.npy").st_size == 128 + 3 * noise.nbytes
        expected = np.asarray(Image.open(io.BytesIO(sound))).astype(int)
        file = os.open(top / "c.npy", os.O_RDONLY)
        try:
            for frame in (0, 2):
                # Whole pages inside the frame.
                start = -(-(128 + frame * noise.nbytes) // 4096) * 4096
                data = np.frombuffer(os.pread(file, 4096, start), np.uint8).astype(int)
                at = start - 128 - frame * noise.nbytes
                assert len(data) == 4096 and np.abs(data - expected.ravel()[at:at + 4096]).max() <= 4
            with pytest.raises(OSError) as error:
                os.pread(file, 4096, 128 + noise.nbytes + 4096)
            assert error.value.errno == errno.EIO
        finally:
            os.close(file)
        assert any(p["path"] == "episodes/0/images/c.npy" for p in problems(mnt))


def test_a_million_episodes(mount, tmp_path):
    """One entry is read for one episode: an index of a million that share their bytes."""
    one = pack([episode([[], []])])
    index = struct.unpack_from("<Q", one, 24)[0]
    data = bytearray(one[:index] + one[index:] * 1_000_000)
    struct.pack_into("<QQQQ", data, 8, 1_000_000, 2_000_000, index, 64_000_000)
    (tmp_path / "x.kdb").write_bytes(data)
    with mount(tmp_path / "x.kdb") as mnt:
        last = mnt / "episodes/999999"
        assert json.loads((last / "meta.json").read_text())["position"] == 999_999
        assert not (mnt / "episodes/1000000").exists() and not (mnt / "episodes/007").exists()
        assert os.lstat(mnt / "episodes").st_nlink == 1_000_002
        assert np.load(last / "state.npy").shape == (2, 2)
