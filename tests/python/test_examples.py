"""examples/: what they load from a mount is what readers of the containers themselves load."""

import hashlib
import importlib
import multiprocessing
import struct
import subprocess
import sys

import lz4.block
import numpy as np
import pytest
import zstandard
from PIL import Image

from support import FIXTURES, GOLDEN, ROOT, load_expected, mounted
from support.data_sets import close, rgb
from support.stores import Hub

EXAMPLES = ROOT / "examples"


@pytest.fixture
def loader(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    return importlib.import_module("loader")


# --- readers of the containers, which know nothing of shardfs ---------------------

def read_kdb(path):
    """Arrays of each episode: state, action, reward and the raw pictures of its cameras."""
    data = path.read_bytes()
    count, _, index_at = struct.unpack_from("<QQQ", data, 8)
    episodes = []
    for number in range(count):
        _, steps, action_dim, state_dim, rows_at, _, images_at, images_size, _, _ = struct.unpack_from(
            "<QIHHQQQQQQ", data, index_at + 64 * number)
        row = np.dtype([("state", "<f4", state_dim), ("action", "<f4", action_dim), ("reward", "<f4"), ("end", "u1")])
        rows = np.frombuffer(data, row, steps, rows_at)
        episode = {name: rows[name] for name in ("state", "action", "reward")}
        cameras, at = {}, images_at
        for _ in range(steps if images_size > 2 * steps else 0):
            (records,), at = struct.unpack_from("<H", data, at), at + 2
            for _ in range(records):
                (size,), at = struct.unpack_from("<H", data, at), at + 2
                camera, at = data[at:at + size].decode(), at + size
                width, height, channels, encoded, size = struct.unpack_from("<IIBBI", data, at)
                at += 14
                if not encoded:
                    pixels = np.frombuffer(data, np.uint8, size, at).reshape(height, width, channels)
                    cameras.setdefault(camera, []).append(pixels)
                at += size
        episode.update({camera: np.stack(frames) for camera, frames in cameras.items()})
        episodes.append(episode)
    return episodes


def read_wshard(path):
    """Uncompressed bytes of each block."""
    data = path.read_bytes()
    count, strings_at = struct.unpack_from("<IQ", data, 12)
    blocks = {}
    for number in range(count):
        _, name_at, size, flags, at, stored, original = struct.unpack_from("<QIHHQQQ", data, 64 + 48 * number)
        name = data[strings_at + name_at:strings_at + name_at + size].decode()
        block = data[at:at + stored]
        if flags & 2:
            block = zstandard.ZstdDecompressor().decompress(block, original)
        elif flags & 4:
            block = lz4.block.decompress(block, original)
        blocks[name] = block
    return blocks


def wshard_arrays(path):
    blocks = read_wshard(path)
    return {"state": np.frombuffer(blocks["signal/joint_pos"], "<f4").reshape(-1, 7),
            "action": np.frombuffer(blocks["action/ctrl"], "<f4").reshape(-1, 4),
            "rgb": np.frombuffer(blocks["signal/cam0/rgb"], np.uint8).reshape(-1, 48, 64, 3)}


KDB = {"state": "state.npy", "action": "action.npy", "front": "images/front.npy"}
WSHARD = {"state": "signal/joint_pos.npy", "action": "action/ctrl.npy", "rgb": "signal/cam0/rgb.npy"}


def windows(arrays, length):
    """All windows of one episode, made without the loader."""
    steps = len(arrays["state"])
    return [{name: array[at:at + length] for name, array in arrays.items()} for at in range(steps - length + 1)]


def assert_same(item, want):
    assert item.keys() == want.keys()
    for name in want:
        assert item[name].dtype == want[name].dtype, name
        np.testing.assert_array_equal(item[name], want[name], err_msg=name)


# --- loader.py ------------------------------------------------------------------

def cases(top):
    raw = read_kdb(FIXTURES / "demo.kdb")[0]
    return [(top / "demo.kdb/episodes/0", KDB, [{name: raw[name] for name in KDB}]),
            (top, WSHARD, [wshard_arrays(FIXTURES / name) for name in ("ep_001.wshard", "ep_002_lz4.wshard")])]


@pytest.mark.parametrize("case", [0, 1], ids=["kdb", "wshard"])
def test_loader_is_a_data_set(loader, fixtures_mount, case):
    root, arrays, episodes = cases(fixtures_mount)[case]
    data = loader.Windows(root, arrays, length=4)
    want = [window for episode in episodes for window in windows(episode, 4)]
    assert len(data) == len(want) > 0
    for index, window in enumerate(want):
        assert_same(data[index], window)
    assert_same(data[-1], want[-1])
    with pytest.raises(IndexError):
        data[len(want)]


@pytest.mark.parametrize("case", [0, 1], ids=["kdb", "wshard"])
def test_four_workers_load_the_same(loader, fixtures_mount, case):
    root, arrays, episodes = cases(fixtures_mount)[case]
    data = loader.Windows(root, arrays, length=4)
    want = [window for episode in episodes for window in windows(episode, 4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        loaded = pool.map(data.__getitem__, range(len(data)), chunksize=1)
    for item, window in zip(loaded, want, strict=True):
        assert_same(item, window)
    # Every window once, in batches, by the loop that is used where torch is not installed.
    rows = [row for batch in loader.batches(data, size=3, workers=4) for row in batch["state"]]
    assert sorted(row.tobytes() for row in rows) == sorted(window["state"].tobytes() for window in want)


def contained(case):
    """The same as `cases`, without a mount."""
    return cases(FIXTURES)[case] if case else (FIXTURES / "demo.kdb", KDB, [
        {name: raw[name] for name in KDB} for raw in read_kdb(FIXTURES / "demo.kdb") if "front" in raw])


@pytest.mark.parametrize("case", [0, 1], ids=["kdb", "wshard"])
def test_loader_without_a_mount(loader, case):
    root, arrays, episodes = contained(case)
    data = loader.Windows(root, arrays, length=4, mount=False)
    want = [window for episode in episodes for window in windows(episode, 4)]
    # Of a KDB file the episodes with raw pictures: the reader above knows no others.
    data.ends, data.episodes = data.ends[:len(episodes)], data.episodes[:len(episodes)]
    assert len(data) == len(want) > 0
    for index, window in enumerate(want):
        assert_same(data[index], window)
    streamed = [window["state"].tobytes() for window in loader.Stream(data)]
    assert sorted(streamed) == sorted(window["state"].tobytes() for window in want)
    rows = [row for batch in loader.batches(data, size=3, workers=2) for row in batch["state"]]
    assert sorted(row.tobytes() for row in rows) == sorted(window["state"].tobytes() for window in want)


def call(script, *args):
    done = subprocess.run([sys.executable, EXAMPLES / script, *map(str, args)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_loader_as_a_program(fixtures_mount):
    code, out, err = call("loader.py", fixtures_mount, *(f"{name}={path}" for name, path in WSHARD.items()))
    assert code == 0, err
    # Two episodes of 24 steps.
    assert out.startswith(f"2 episodes, {2 * (24 - 7)} windows of 8 steps\n"), out
    assert "rgb: " in out and "batches" in out
    code, out, err = call("loader.py", "--no-mount", FIXTURES, *(f"{name}={path}" for name, path in WSHARD.items()))
    assert code == 0 and out.startswith(f"2 episodes, {2 * (24 - 7)} windows of 8 steps\n"), err
    code, _, err = call("loader.py", fixtures_mount, "x=nothing.npy")
    assert code == 1 and "no episode has all of these arrays" in err


# --- loader.py: frames of videos ---------------------------------------------------

LEROBOT = {"state": "observation.state.npy", "front": "images/observation.images.front.npy"}
SET = GOLDEN / "lerobot/v30_av1"


def episodes_of_the_golden_set():
    """Of each episode: the hash of its states, and the right pixels of its frames."""
    frames = np.load(GOLDEN / "lerobot/frames.npz")
    tree = load_expected("lerobot")["v30_av1"]["tree"]
    found = []
    for number in range(3):
        state, front = (tree[f"episodes/{number}/{path}"] for path in LEROBOT.values())
        found.append((state["sha256"], [rgb(front, frames, frame) for frame in front["video_stack"]]))
    return found


def check_windows(data, loaded):
    """Windows of one step, in the order of the data set."""
    at = 0
    for state, frames in episodes_of_the_golden_set():
        items = loaded[at:at + len(frames)]
        at += len(frames)
        assert hashlib.sha256(b"".join(item["state"].tobytes() for item in items)).hexdigest() == state
        for item, wanted in zip(items, frames, strict=True):
            assert close(item["front"][0], wanted)
    assert at == len(loaded) == len(data)


def load_by_four(data):
    """All windows, in random order, by four processes."""
    order = np.random.default_rng(3).permutation(len(data))
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        loaded = dict(zip(order, pool.map(data.__getitem__, order.tolist(), chunksize=1), strict=True))
    return [loaded[number] for number in range(len(data))]


def test_four_workers_load_random_frames_of_videos(loader):
    with mounted(SET.parent) as mnt:
        data = loader.Windows(mnt / SET.name, LEROBOT, length=1)
        check_windows(data, load_by_four(data))
    data = loader.Windows(SET, LEROBOT, length=1, mount=False)
    check_windows(data, load_by_four(data))


def test_four_workers_load_random_frames_from_the_hub(loader, tmp_path, monkeypatch):
    hub = Hub()
    for file in SET.rglob("*"):
        if file.is_file():
            hub.put(str(file.relative_to(SET)), file.read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hub.serving() as endpoint:
        with mounted("hf://datasets/owner/name", f"--endpoint-url={endpoint}") as mnt:
            data = loader.Windows(mnt, LEROBOT, length=1)
            check_windows(data, load_by_four(data))
            code, out, err = call("loader.py", mnt, *(f"{name}={path}" for name, path in LEROBOT.items()), "--length", 1)
            assert code == 0 and out.startswith(f"3 episodes, {len(data)} windows of 1 steps\n"), (out, err)
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        data = loader.Windows("hf://datasets/owner/name", LEROBOT, length=1, mount=False)
        check_windows(data, load_by_four(data))


# --- plot_trajectory.py -----------------------------------------------------------

def test_plot_trajectory(fixtures_mount, tmp_path):
    out = tmp_path / "trajectory.png"
    code, _, err = call("plot_trajectory.py", fixtures_mount / "demo.kdb/episodes/0", out)
    assert code == 0, err
    picture = Image.open(out).convert("RGB")
    assert picture.width == 1200 and picture.height > 400
    pixels = np.asarray(picture)
    # A curve in the colour of each of the seven columns, and the frames: white paper has no such variety.
    for colour in ("0072b2", "d55e00", "009e73", "cc79a7", "56b4e9", "e69f00", "5b5b5b"):
        want = np.array(list(bytes.fromhex(colour)))
        assert (np.abs(pixels.astype(int) - want).sum(axis=2) < 60).sum() > 400, colour
    assert len(np.unique(pixels[62:160].reshape(-1, 3), axis=0)) > 500


def test_plot_trajectory_of_a_wshard_and_without_frames(fixtures_mount, tmp_path):
    out = tmp_path / "trajectory.png"
    code, _, err = call("plot_trajectory.py", fixtures_mount / "ep_001.wshard", out,
                        "--curves", "signal/joint_pos.npy", "--frames", "images/cam0/rgb")
    assert code == 0, err
    tall = Image.open(out).height
    code, _, err = call("plot_trajectory.py", fixtures_mount / "demo.kdb/episodes/2", out, "--columns", "2")
    assert code == 0, err
    assert Image.open(out).height < tall
