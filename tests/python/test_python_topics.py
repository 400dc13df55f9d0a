"""Recordings in Python: topics, times, messages, pictures."""

import json
import pickle

import numpy as np
import pytest

from support import FIXTURES, GOLDEN, load_expected
from support.writers import recordings

shardfs = pytest.importorskip("shardfs")


@pytest.fixture(scope="module")
def drive():
    return shardfs.open(FIXTURES / "drive.mcap")


def test_topics_have_times_messages_and_arrays(drive):
    assert list(drive.topics) == ["/imu", "/lidar/ranges", "/camera/image", "/state"]
    imu = drive.topics["/imu"]
    assert imu.name == "/imu" and imu.info["message_encoding"] == "cdr"
    assert np.array_equal(np.asarray(imu.time), 1_700_000_000 * 10**9 + np.arange(120) * 10**7)
    assert np.allclose(imu["angular_velocity.x"], np.sin(np.arange(120) / 8))
    assert imu["acceleration"].shape == (120, 3) and "time" in list(imu)
    assert len(imu.messages) == 120
    first = imu.messages[0]
    assert first["header"] == {"stamp": {"sec": 1_700_000_000, "nanosec": 0}, "frame_id": "base"}
    assert imu.messages[-1] == imu.messages[118:][1] == list(imu.messages)[119]
    with pytest.raises(IndexError):
        imu.messages[120]
    assert [message["mode"] for message in drive.topics["/state"].messages] == ["idle", "drive", "idle"]


def test_names_are_paths_too(drive):
    assert np.array_equal(np.asarray(drive["topics/imu/time"]), np.asarray(drive.topics["/imu"].time))
    assert "topics/imu/messages" in drive.tables and drive.tables["topics/imu/messages"].num_rows == 120
    assert "topics/imu" not in drive.tables and "topics/gone/messages" not in drive.tables
    assert drive.topics["topics/imu"] == drive.topics["/imu"] and "topics/imu/time" in list(drive)
    assert "/none" not in drive.topics
    with pytest.raises(KeyError):
        drive.topics["/none"]
    assert len(shardfs.open(FIXTURES / "ep_001.wshard").topics) == 0


def test_pictures_are_the_stored_ones(drive):
    images = drive.topics["/camera/image"].images
    assert len(images) == 12 and images[3].bytes.startswith(b"\xff\xd8\xff")
    assert np.asarray(images[3]).ndim == 3
    assert len(drive.topics["/imu"].images) == 0 and list(drive.topics["/imu"].images) == []


def test_messages_that_are_not_json_are_none(tmp_path):
    lines = [b'{"a":1}', b"not JSON", b"", b"\xff", b"[" * 100_000, b'"\xe2\x80\xa8"', b'{"a":2}\r\n']
    stored = recordings.mcap([], [("/json", "json", 0)], [(0, time, line) for time, line in enumerate(lines)])
    (tmp_path / "odd.mcap").write_bytes(stored)
    messages = shardfs.open(tmp_path / "odd.mcap").topics["/json"].messages
    assert list(messages) == messages[:] == [{"a": 1}, None, None, None, None, "\u2028", {"a": 2}]
    assert messages[1] is None and messages[-1] == {"a": 2}


def test_topics_of_bags_and_pickles(drive):
    bag = shardfs.open(FIXTURES / "drive.bag")
    assert bag.topics["/note"].messages[0] == {"data": "start"}
    again = pickle.loads(pickle.dumps(drive.topics["/imu"]))
    assert again == drive.topics["/imu"] and json.dumps(again.messages[5]) == json.dumps(drive.topics["/imu"].messages[5])


def test_topics_with_a_damaged_chunk_list_their_arrays_and_tables():
    name = "bad_chunk_crc.mcap"
    recording = shardfs.open(GOLDEN / "mcap" / name)
    files = {path.removeprefix("topics/one/") for path in load_expected("mcap")[name]["items"] if "topics/one/" in path}
    wanted = {path.removesuffix(".npy") for path in files if path.endswith(".npy")}
    topic = recording.topics["/one"]
    assert set(topic) == wanted == set(topic.keys()) and len(topic) == len(wanted) and "messages.parquet" in files
    assert list(recording["topics/one"].tables) == ["messages"]


def test_topics_that_are_not_described_are_found(tmp_path):
    names = [*(f"/t/{number}" for number in range(10_001)), "/odd/images/x", "/odd", "a", "/a"]
    channels = [(name, "json", 0) for name in names]
    messages = [(number, number, b"[]") for number in range(9_990, len(names))]
    (tmp_path / "many.mcap").write_bytes(recordings.mcap([], channels, messages))
    topics = shardfs.open(tmp_path / "many.mcap").topics
    assert topics["/a"].time[:].tolist() == [len(names) - 1] and topics["a"].time[:].tolist() == [len(names) - 2]
    assert topics["/odd/images/x"].name == "/odd/images/x" and topics["/t/10000"].messages[0] == []
    assert len(topics) == len(names) and set(topics) == set(names) and "/t/10001" not in topics
