"""`shardfs.torch.Dataset`: windows of episodes, with arrays and cameras, in several processes."""

import contextlib
import multiprocessing
import pickle
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import pytest

import shardfs.torch
from support import FIXTURES, mounted

STATE = {"state": "signal/joint_pos", "action": "action/ctrl"}


def test_windows_are_the_rows_of_the_mounted_arrays():
    data = shardfs.torch.Dataset(FIXTURES / "ep_001.wshard", STATE, cameras={"rgb": "cam0/rgb"}, length=8, stride=3)
    with mounted(FIXTURES) as mnt:
        arrays = {name: np.load(mnt / f"ep_001.wshard/{path}.npy") for name, path in STATE.items()}
        arrays["rgb"] = np.load(mnt / "ep_001.wshard/signal/cam0/rgb.npy")
    steps = len(arrays["state"])
    assert len(data) == (steps - 8) // 3 + 1 and len(data.episodes) == 1 and not data.left_out
    for index in range(len(data)):
        window = data[index]
        assert list(window) == ["state", "action", "rgb"]
        for name, array in arrays.items():
            assert window[name].dtype == array.dtype
            assert (window[name] == array[index * 3:index * 3 + 8]).all()
    assert (data[-1]["state"] == data[len(data) - 1]["state"]).all()
    for index in (len(data), -len(data) - 1):
        with pytest.raises(IndexError):
            data[index]


def test_episodes_in_one_file_and_pictures_that_are_stored_as_jpeg():
    source = shardfs.open(FIXTURES / "demo.kdb")
    data = shardfs.torch.Dataset(source, ["state"], cameras=["front"], length=2)
    whole = [episode for episode in source.episodes
             if "front" in episode.images and len(episode.images["front"]) == len(episode["state"])]
    assert len(whole) >= 2 and [episode.path for episode in data.episodes] == [episode.path for episode in whole]
    assert len(data.left_out) == len(source.episodes) - len(whole)
    places = [(number, start) for number, episode in enumerate(whole) for start in range(len(episode["state"]) - 1)]
    assert [data.place(index) for index in range(len(data))] == places
    for index, (number, start) in enumerate(places):
        window, episode = data[index], whole[number]
        assert (window["state"] == episode["state"][start:start + 2]).all()
        for at, picture in enumerate(window["front"]):
            assert (picture == np.asarray(episode.images["front"][start + at])).all()


def test_what_does_not_fit_is_left_out_with_the_reason(tmp_path):
    for name in ("ep_001.wshard", "demo.kdb", "genealogy.trees"):
        if (FIXTURES / name).exists():
            shutil.copy(FIXTURES / name, tmp_path)
    data = shardfs.torch.Dataset(tmp_path, STATE, length=8)
    assert [episode.path for episode in data.episodes] == [str(tmp_path / "ep_001.wshard")]
    assert data.left_out and all("signal/joint_pos" in reason for reason in data.left_out.values())
    short = shardfs.torch.Dataset(tmp_path / "ep_001.wshard", STATE, length=10_000)
    assert len(short) == 0 and list(short.left_out.values()) == ["24 steps"]
    for wrong in ({}, {"arrays": ["a"], "cameras": ["a"]}, {"arrays": ["a"], "length": 0},
                  {"arrays": ["a"], "stride": 0}):
        with pytest.raises(ValueError):
            shardfs.torch.Dataset(tmp_path, **wrong)


@pytest.mark.parametrize("value", [3.0, h5py.Empty("f8"), "group"], ids=["scalar", "null", "group"])
def test_what_has_no_steps_is_left_out(tmp_path, value):
    for name in ("good", "odd"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            if name == "good":
                file["state"] = np.arange(10.0)
            elif isinstance(value, str):
                file["state/x"] = np.arange(10.0)
            else:
                file["state"] = value
    data = shardfs.torch.Dataset(tmp_path, ["state"])
    assert [episode.path for episode in data.episodes] == [str(tmp_path / "good.h5")]
    assert list(data.left_out) == [str(tmp_path / "odd.h5")]


def test_one_name_and_other_things_than_numbers():
    data = shardfs.torch.Dataset(FIXTURES, "signal/joint_pos", length=8)
    assert len(data) > 0 and data[np.int64(1)].keys() == {"signal/joint_pos"}
    for wrong in (slice(0, 2), "a", 1.0):
        with pytest.raises(TypeError, match="number of a window"):
            data[wrong]


def test_episodes_without_all_pictures_are_left_out():
    source = shardfs.open(FIXTURES / "demo.kdb")
    data = shardfs.torch.Dataset(source, cameras=["wrist"])
    assert any("pictures are missing" in reason for reason in data.left_out.values())
    assert len([data[index] for index in range(len(data))]) == len(data) > 0


def test_what_a_server_does_not_give_is_left_out(tmp_path):
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", x=np.arange(3.0))
    with failing_server(tmp_path, "/b.npz") as url:
        errors = []
        assert [found.path for found in shardfs.walk(url, onerror=errors.append)] == [f"{url}/a.npz", f"{url}/c.npz"]
        assert len(errors) == 1 and "b.npz" in str(errors[0])
        data = shardfs.torch.Dataset(url, ["x"])
    assert len(data.episodes) == 2 and list(data.left_out) == [f"{url}/b.npz"]


def test_workers_get_names_and_a_transform():
    data = shardfs.torch.Dataset(FIXTURES / "ep_001.wshard", STATE, length=8, transform=total)
    assert len(pickle.dumps(data)) < 4096
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(data.__getitem__, range(len(data))) == [data[index] for index in range(len(data))]


def total(window):
    return float(window["state"].sum())


@contextlib.contextmanager
def failing_server(folder, path):
    """The address of a web server of a folder that refuses one path."""
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def log_message(self, *_):
            pass

        def send_head(self):
            return self.send_error(400) if self.path == path else super().send_head()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_torch_is_not_imported():
    script = "import shardfs.torch, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
