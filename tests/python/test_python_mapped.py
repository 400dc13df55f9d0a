"""Arrays that lie in their file: without a copy, and the same whatever is done to the file."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import shardfs as sh
from test_python_arrays import episode_of

FRAMES = np.random.default_rng(7).integers(0, 255, (300, 40, 60, 3)).astype("u1")


@pytest.fixture
def episode(tmp_path):
    return episode_of(tmp_path / "ep.wshard", {"signal/rgb": FRAMES, "signal/few": np.arange(9, dtype="<f4")}, "none")


def maps(path):
    """How many maps this process has of a file."""
    return Path("/proc/self/maps").read_text().count(str(path))


WRITER = """
import sys
with open(sys.argv[1], "r+b") as file:
    if sys.argv[2] == "cut":
        file.truncate(100)
    else:
        file.write(bytes(2000000))
"""


def write(path, how):
    """Another process writes to the file, or cuts it."""
    subprocess.run([sys.executable, "-c", WRITER, str(path), how], check=True, timeout=30)


def test_nothing_is_copied(episode):
    array = sh.open(episode)["signal/rgb"]
    mapped = array.mapped()
    assert maps(episode) == 1 and mapped.base.is_in_file
    assert mapped.dtype == "u1" and mapped.shape == FRAMES.shape and np.array_equal(mapped, FRAMES)
    assert not mapped.flags.writeable
    with pytest.raises(ValueError):
        mapped[0] = 0
    # What is there is there for all other ways, too.
    assert np.shares_memory(np.asarray(array), mapped) and np.array_equal(array[3:5], FRAMES[3:5])
    few = sh.open(episode)["signal/few"].mapped()
    assert few.tolist() == list(range(9))
    del array, mapped, few
    assert maps(episode) == 0


@pytest.mark.parametrize("how", ["cut", "overwrite"])
def test_a_file_that_is_written_to(episode, how):
    """The writer waits until there is a copy; threads that look at the array all the while notice nothing."""
    container = sh.open(episode)
    array = container["signal/rgb"]
    mapped, total = array.mapped(), int(FRAMES.sum())
    done, wrong = threading.Event(), []

    def look():
        while not done.is_set():
            if int(mapped.sum()) != total:
                wrong.append(1)

    threads = [threading.Thread(target=look) for _ in range(2)]
    [thread.start() for thread in threads]
    try:
        write(episode, how)
    finally:
        done.set()
        [thread.join(60) for thread in threads]
    assert not wrong and np.array_equal(mapped, FRAMES)
    assert maps(episode) == 0 and not mapped.base.is_in_file
    with pytest.raises(sh.Changed):
        container["signal/few"][...]


def test_a_writer_in_this_process(episode):
    mapped = sh.open(episode)["signal/rgb"].mapped()
    os.truncate(episode, 0)
    assert np.array_equal(mapped, FRAMES) and maps(episode) == 0


def test_a_fork(episode):
    """A child has memory of its own, and so has its parent from then on."""
    mapped = sh.open(episode)["signal/rgb"].mapped()
    read, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(read, 1)
            ok = np.array_equal(mapped, FRAMES) and maps(episode) == 0
            other = sh.open(episode.parent / "other.wshard")["signal/few"].mapped()
            os._exit(0 if ok and other.base.is_in_file else 1)
        finally:
            os._exit(2)
    episode_of(episode.parent / "other.wshard", {"signal/few": np.arange(5, dtype="<f4")}, "none")
    write(episode, "cut")
    os.write(tell, b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(mapped, FRAMES)
    # And the parent may have maps again.
    assert sh.open(episode.parent / "other.wshard")["signal/few"].mapped().base.is_in_file


def test_what_can_not_be_had_is_copied(episode, tmp_path):
    packed = episode_of(tmp_path / "packed.wshard", {"signal/rgb": FRAMES // 64}, "zstd")
    assert np.array_equal(sh.open(packed)["signal/rgb"].mapped(), FRAMES // 64) and maps(packed) == 0
    container = sh.open(episode)
    with open(episode, "r+b"):
        assert np.array_equal(container["signal/rgb"].mapped(), FRAMES) and maps(episode) == 0
    assert container["signal/few"].mapped().base.is_in_file


def test_damage(episode):
    data = bytearray(episode.read_bytes())
    data[data.index(FRAMES[5].tobytes()) + 7] ^= 1
    episode.write_bytes(data)
    with pytest.raises(sh.DamagedBlock) as caught:
        sh.open(episode)["signal/rgb"].mapped()
    assert caught.value.path == "signal/rgb.npy" and maps(episode) == 0
