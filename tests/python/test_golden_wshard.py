"""Every golden Shard file, through the mount."""

import io
import json
import math
import os
import resource
import stat
import struct

import numpy as np
import pytest
from PIL import Image

from support import (assert_same_file, check_npy, examples, mounted, names, png_size, read_checked, run, sha256,
                     tables, walk_files)

DESCR = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "bool": "|b1",
    "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "|i1",
    "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "|u1",
}
ITEM_KEYS = {"name", "path", "dtype", "shape", "codec", "stored_size", "size", "checksum"}
CODECS = {"none": {"none", "raw", None}, "zstd": {"zstd"}, "lz4": {"lz4"}}
PICTURE_WORDS = ("rgb", "depth", "video", "image", "img", "cam", "mask")


def is_utf8(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def path_of(name, suffix):
    return names.path(name, suffix, images_reserved=True)


def raw_path(name):
    return ".raw/" + names.path(name, ".bin")


def is_tensor(block):
    return "dtype" in block and len(block["shape"]) <= 32


def check_block(entry, block):
    """Compare one block in all its forms; return the paths that belong to it, main one first."""
    name = block["name"]
    raw = read_checked(entry / raw_path(name))
    assert sha256(raw) == block.get("recovered_sha256", block["sha256"]), f".raw of {name}"
    assert len(raw) == block["size"]

    if name.startswith("meta/") or block["content_type"] == 2:
        path = path_of(name, ".json")
        assert read_checked(entry / path) == raw
        return [path]

    if "residual" in block:
        path = path_of(name, ".npy")
        data = check_npy(entry / path, "|i1", block["residual"]["shape"])
        assert sha256(data) == block["residual"]["sha256"], path
        return [path]

    if is_tensor(block):
        path = path_of(name, ".npy")
        data = check_npy(entry / path, DESCR[block["dtype"]], block["shape"])
        if block["dtype"] == "bool":
            assert data == bytes(b != 0 for b in raw), path
            if "sha256_bool_normalised" in block and "recovered_sha256" not in block:
                assert sha256(data) == block["sha256_bool_normalised"], path
        elif "tensor_sha256" in block:
            assert sha256(data) == block["tensor_sha256"], path
            assert data == raw[block["tensor_data_offset"]:]
        else:
            assert data == raw, path
        paths = [path]
        language = block.get("modality") == "language" or name.rsplit("/", 1)[-1] == "language"
        if language and block["dtype"] == "u8" and len(raw) <= 1 << 20 and is_utf8(raw):
            paths.append(path_of(name, ".txt"))
            assert read_checked(entry / paths[1]) == raw
        return paths

    suffix = ".bin"
    if block["content_type"] == 5:
        suffix = ".txt"
    elif block["content_type"] == 6:
        suffix = ".png" if raw.startswith(b"\x89PNG\r\n\x1a\n") else ".jpg" if raw.startswith(b"\xff\xd8\xff") else ".bin"
    path = path_of(name, suffix)
    assert read_checked(entry / path) == raw
    return [path]


def picture_channel(block):
    """Whether the block should have `images/` (where that is offered)."""
    if not is_tensor(block) or not block["name"].startswith("signal/"):
        return False
    step = block["shape"][1:]
    if block["dtype"] == "u8" and len(step) == 3 and step[2] in (1, 3, 4):
        return True
    named = block.get("modality") in ("rgb", "depth", "video") or any(
        w in block["name"].rsplit("/", 1)[-1] for w in PICTURE_WORDS)
    return block["dtype"] in ("u8", "u16") and len(step) == 2 and named


def check_images(entry, blocks):
    """Every frame of every camera channel is a picture of the stored pixels, and there is no other."""
    want = set()
    for block in filter(picture_channel, blocks):
        stored = np.frombuffer(read_checked(entry / raw_path(block["name"])), DESCR[block["dtype"]])
        array = stored.reshape(block["shape"])
        channel = "/".join(names.dir_part(p.encode()).decode()
                           for p in block["name"].removeprefix("signal/").split("/"))
        width = max(3, len(str(len(array) - 1)))
        for t, frame in enumerate(array):
            path = f"{channel}/{t:0{width}}.png"
            want.add(path)
            data = read_checked(entry / "images" / path)
            assert len(data) == png_size(frame.shape[1], frame.shape[0], frame[0, 0].nbytes), path
            Image.open(io.BytesIO(data)).verify()
            with Image.open(entry / "images" / path) as opened:
                picture = np.array(opened)
            if frame.ndim == 3 and frame.shape[2] == 1:
                frame = frame[..., 0]
            assert picture.shape == frame.shape and (picture == frame).all(), path
    assert (entry / "images").is_dir() == bool(want)
    assert not want or walk_files(entry / "images") == want
    return len(want)


def check_joined(entry, expected, extra):
    """The joined episode of a manifest: arrays, and the pictures of its cameras."""
    lanes = dict(expected["joined"])
    if "time/ticks.npy" in extra:  # it restarts in each chunk, so the expected values leave it out
        lanes["time/ticks"] = None
    assert extra == {f"{name}.npy" for name in lanes}
    for name, want in lanes.items():
        array = np.load(entry / f"{name}.npy")
        if want:
            assert list(array.shape) == want["shape"], name
            assert sha256(array.tobytes()) == want["sha256"], name
        else:
            chunks = [np.load(entry.parent / chunk["uri"] / f"{name}.npy") for chunk in expected["manifest"]["chunks"]]
            assert (array == np.concatenate(chunks)).all(), name
        check_npy(entry / f"{name}.npy", array.dtype.str, array.shape)
    frames = np.load(entry / "signal/cam0/rgb.npy")
    names = sorted(p.name for p in (entry / "images/cam0/rgb").iterdir())
    assert names == [f"{t:03}.png" for t in range(len(frames))]
    for name, frame in zip(names, frames):
        assert (np.array(Image.open(entry / "images/cam0/rgb" / name)) == frame).all(), name
    joined = json.loads((entry / "container.json").read_bytes())["joined"]
    assert [i["path"] for i in joined] and {i["path"] for i in joined} == extra


def check_steps(entry, expected):
    """`steps.parquet` holds what the arrays of that many steps hold; the paths that there are for it."""
    if "joined" in expected:
        joined = json.loads(read_checked(entry / "container.json"))["joined"]
        lanes = {item["path"][:-4]: (np.load(entry / item["path"]), item["dtype"]) for item in joined
                 if not item["path"].endswith("/rgb.npy")}
        lengths = [len(array) for array, _ in lanes.values()]
        table = tables.of_steps(lanes, max(set(lengths), key=lengths.count))
    elif expected["role"] == 5:
        lanes = {}
        for block in expected["blocks"]:
            name = block["name"]
            if not name.startswith("meta/") and block["content_type"] != 2 and not picture_channel(block) and (
                    "residual" in block or is_tensor(block)):
                lanes[name] = (np.load(entry / check_block(entry, block)[0]), block.get("dtype"))
        episode = expected["episode"]
        timebase = episode["timebase"]
        dt_ns = timebase.get("dt_ns")
        other = json.loads((entry / "meta/wshard.json").read_text()).get("timebase")
        other = other.get("tick_hz") if isinstance(other, dict) else None
        agrees = other and dt_ns and abs(1e9 / other - dt_ns) <= 1
        # docs/formats/wshard.md 14.
        rate = timebase.get("tick_hz") or (other if agrees else dt_ns and 1e9 / dt_ns)
        table = tables.of_steps(lanes, episode["length_T"], rate)
    else:
        table = None
    if table is None:
        return set()
    tables.check_footer(entry / "steps.parquet")
    for reader in tables.READERS.values():
        tables.assert_same(reader(entry / "steps.parquet"), table, reader.__name__)
    return {"steps.parquet"}


def check_container_json(entry, expected, paths):
    data = read_checked(entry / "container.json")
    assert data.endswith(b"}\n") and data.startswith(b'{\n  "format"')
    info = json.loads(data)
    assert list(info)[:2] == ["format", "version"]
    assert "recovered" not in info or info["recovered"] == ("streaming_layout" in expected)
    items = info["items"]
    assert [i["name"] for i in items] == [b["name"] for b in expected["blocks"]]
    for item, block in zip(items, expected["blocks"]):
        where = f"container.json: {block['name']}"
        assert ITEM_KEYS <= set(item), where
        assert item["path"] == paths[block["name"]][0], where
        assert item["stored_size"] == block["disk_size"], where
        assert item["size"] == block["size"], where
        assert item["codec"] in CODECS[block["codec"]], where
        if "residual" in block:
            assert item["shape"] == block["residual"]["shape"], where
        elif is_tensor(block):
            assert item["dtype"] in (block["dtype"], DESCR[block["dtype"]]), where
            assert item["shape"] == block["shape"], where
            assert item.get("inferred", False) == block.get("guess", False), where
        else:
            assert item["dtype"] is None and item["shape"] is None, where
    if "streaming_layout" in expected:
        assert '"recovered": true' in data.decode()


def test_file(golden_wshard, golden, wshard_mount):
    rel, expected = golden_wshard
    entry = wshard_mount / rel
    source = golden / "wshard" / rel
    if expected["open"] == "reject":
        assert_same_file(entry, source)
        return
    assert stat.S_ISDIR(os.lstat(entry).st_mode), f"{rel} should be a folder"

    blocks = expected["blocks"]
    paths = {b["name"]: check_block(entry, b) for b in blocks}
    assert ".raw" not in os.listdir(entry)
    assert walk_files(entry / ".raw") == {raw_path(b["name"]).removeprefix(".raw/") for b in blocks}

    want = {"container.json"}.union(*paths.values(), check_steps(entry, expected))
    if "schema" in expected:
        want.add("schema.json")
        at = expected["schema"]
        stored = source.read_bytes()[at["offset"]:at["offset"] + at["size"]]
        assert read_checked(entry / "schema.json") == stored
    found = {p for p in walk_files(entry) if not p.startswith("images/")}
    assert want <= found, f"missing: {sorted(want - found)}"
    if "joined" in expected:
        check_joined(entry, expected, found - want)
    else:
        assert found == want, f"unexpected: {sorted(found - want)}"
        check_images(entry, blocks)
    check_container_json(entry, expected, paths)


def test_other_files(golden, wshard_mount):
    listed = sorted(os.listdir(golden / "wshard"))
    assert sorted(os.listdir(wshard_mount)) == listed
    for name in ("README.md", "LICENSE-wshard.txt", "expected.json"):
        assert_same_file(wshard_mount / name, golden / "wshard" / name)
    assert_same_file(wshard_mount / "ref/golden_hashes.json", golden / "wshard/ref/golden_hashes.json")


def test_bf16_view(wshard_mount, golden):
    """The bits of a bf16 array become numbers with ml_dtypes."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from support import load_expected
    rel, block = next((rel, b) for rel, e in sorted(load_expected("wshard").items())
                      for b in e.get("blocks", []) if b.get("dtype") == "bf16")
    bits = np.load(wshard_mount / rel / path_of(block["name"], ".npy"))
    values = bits.view(ml_dtypes.bfloat16).astype("<f4")
    assert values.view("<u4").tolist() == (bits.astype("<u4") << 16).tolist()


# --- containers made here ------------------------------------------------------

@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_all_dtypes(writers, tmp_path, codec):
    """Every dtype, with scalar, one-wide and empty steps."""
    rng = np.random.default_rng(9)
    size = {"bool": 1, "bf16": 2}
    channels, blocks, want = [], [], {}
    for dtype, descr in DESCR.items():
        for label, step in (("scalar", []), ("one", [1]), ("wide", [3, 2])):
            name = f"signal/{dtype}/{label}"
            count = 20 * math.prod(step)
            width = size.get(dtype, np.dtype(descr).itemsize)
            data = rng.integers(0, 4, count * width, dtype=np.uint8).tobytes()
            channels.append(writers.channel(name, dtype, step))
            blocks.append((name, data))
            want[name] = (descr, [20, *step], bytes(b != 0 for b in data) if dtype == "bool" else data)
    source = tmp_path / "all.wshard"
    writers.write_shard(source, writers.meta_blocks("all", 20, channels) + blocks, codec=codec)
    with mounted(source) as mnt:
        for name, (descr, shape, data) in want.items():
            assert check_npy(mnt / f"{name}.npy", descr, shape) == data, name


def test_zero_steps(writers, tmp_path):
    channels = [writers.channel("signal/x", "f32", [4]), writers.channel("signal/cam/rgb", "u8", [8, 8, 3])]
    blocks = [("signal/x", b""), ("signal/cam/rgb", b""), ("reward", b""), ("done", b"")]
    source = tmp_path / "none.wshard"
    writers.write_shard(source, writers.meta_blocks("none", 0, channels) + blocks)
    with mounted(source) as mnt:
        assert check_npy(mnt / "signal/x.npy", "<f4", (0, 4)) == b""
        assert check_npy(mnt / "signal/cam/rgb.npy", "|u1", (0, 8, 8, 3)) == b""
        assert check_npy(mnt / "reward.npy", "<f4", (0,)) == b""
        assert check_npy(mnt / "done.npy", "|b1", (0,)) == b""


def test_bad_descriptions_leave_raw_blocks(writers, tmp_path):
    """Unknown dtype: raw only. A size that does not divide: flat, else raw."""
    channels = [writers.channel("signal/unknown", "complex64", [2]), writers.channel("signal/flat", "f32", [7]),
                writers.channel("signal/odd", "f32", []), writers.channel("signal/negative", "u8", [-1])]
    blocks = [("signal/unknown", bytes(16)), ("signal/flat", bytes(40)), ("signal/odd", bytes(13)),
              ("signal/negative", bytes(5)), ("signal/silent", bytes(6)), ("action/silent", bytes(48))]
    source = tmp_path / "bad.wshard"
    writers.write_shard(source, writers.meta_blocks("bad", 4, channels) + blocks)
    with mounted(source) as mnt:
        assert read_checked(mnt / "signal/unknown.bin") == bytes(16)
        check_npy(mnt / "signal/flat.npy", "<f4", (10,))
        assert read_checked(mnt / "signal/odd.bin") == bytes(13)
        assert read_checked(mnt / "signal/silent.bin") == bytes(6)
        check_npy(mnt / "action/silent.npy", "<f4", (4, 3))
        items = {i["name"]: i for i in json.loads((mnt / "container.json").read_text())["items"]}
        assert items["action/silent"]["inferred"] is True
        for name, data in blocks:
            assert read_checked(mnt / f".raw/{name}.bin") == data


def test_stream_that_cannot_be_put_back(writers, tmp_path):
    """Overlapping extents that do not follow the rule: listed, EIO when read, never mixed bytes."""
    source = tmp_path / "broken.wshard"
    examples.write_stream(source, 3)
    data = bytearray(source.read_bytes())
    count = int.from_bytes(data[12:16], "little")
    strings = int.from_bytes(data[16:24], "little")
    for j in range(count):
        at = 64 + 48 * j
        name_at = strings + int.from_bytes(data[at + 8:at + 12], "little")
        name = bytes(data[name_at:name_at + int.from_bytes(data[at + 12:at + 14], "little")])
        if name == b"signal/wheel":  # move it by one byte: the flush size is no whole number any more
            first = int.from_bytes(data[at + 16:at + 24], "little")
            data[at + 16:at + 24] = (first + 1).to_bytes(8, "little")
    source.write_bytes(data)
    with mounted(source) as mnt:
        assert (mnt / "meta/episode.json").read_bytes().startswith(b"{")
        with pytest.raises(OSError) as error:
            (mnt / ".raw/signal/imu.bin").read_bytes()
        assert error.value.errno == 5


@pytest.mark.parametrize("strings", [b"", b"signal/" + bytes(range(65, 91))])
def test_an_index_of_holes_fails_alone(tmp_path, strings):
    """Ten million entries in a few kilobytes on disk: an error where their memory can't be had, never an abort."""
    count = 10_000_000
    data_at = 64 + 48 * count + len(strings)
    header = struct.pack("<4sBBHBBHIQQQQ16s", b"SHRD", 2, 5, 0, 32, 0, 48, count, 64 + 48 * count, data_at, 0, data_at, b"")
    source = tmp_path / "holes.wshard"
    with open(source, "wb") as file:
        file.write(header)
        file.seek(64 + 48 * count)
        file.write(strings)
        file.truncate(data_at)
    for command, code in ("ls", 1), ("info", 1), ("verify", 2):
        done = run(command, source, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)))
        assert done.returncode == code, (command, done)
        said = done.stderr + done.stdout.decode()
        # By the system, or by the cache's budget, which tells how large it would have to be.
        assert "Cannot allocate memory" in said or "of memory at once: --cache-size must be" in said, (command, done)


def test_fixtures(writers, fixtures_mount):
    """The example files hold what their writer put in."""
    lanes = examples.episode(1)
    for name, (dtype, array, _) in lanes.items():
        mine = np.load(fixtures_mount / "ep_001.wshard" / f"{name}.npy")
        assert mine.tobytes() == array.tobytes() and mine.shape == array.shape, name
    text = (fixtures_mount / "ep_001.wshard/signal/cmd/language.txt").read_bytes()
    assert text == lanes["signal/cmd/language"][1].tobytes()
    wheel = np.load(fixtures_mount / "stream.wshard/signal/wheel.npy")
    assert wheel.shape == (150, 2) and (wheel[:, 0] == np.arange(150) * 3).all()
    weights = fixtures_mount / "weights.shard"
    assert walk_files(weights) == {
        "container.json", "config.json", "notes.txt", "preview.png", "optimizer/state.bin",
        "encoder/weight.npy", "encoder/bias.npy", "embed/table.npy", "head/weight.npy",
        "head/scale.npy", "head/steps.npy"}
    assert np.load(weights / "head/steps.npy").shape == ()
    assert Image.open(weights / "preview.png").size == (32, 24)
