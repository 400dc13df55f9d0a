"""The page of a recording in a real browser: a row for each topic, and pictures beside the slider of time."""

import json
import re
import urllib.error
import urllib.request

import numpy as np
import pytest

from support import FIXTURES, mounted, serving
from support.browser import browser, fixtures_server, go, page  # noqa: F401 - fixtures

BUCKETS = 480


def recorded(mnt, path):
    """The times of each topic of a recording."""
    return {str(file.parent.relative_to(mnt / path)): np.load(file) for file in (mnt / path).rglob("time.npy")}


@pytest.mark.parametrize("path", ["drive.mcap", "drive.bag"])
def test_rows_of_topics(page, fixtures_server, path):
    """Each row has a bar wherever the topic has messages, by the times in its own array."""
    with mounted(FIXTURES) as mnt:
        times = recorded(mnt, path)
    first, last = (int(edge) for edge in (min(t.min() for t in times.values()), max(t.max() for t in times.values())))
    assert page.open(f"{fixtures_server.url}/files/{path}/") == 200
    page.page.evaluate("shardfs.recording.marks")
    rows = json.loads(page.page.locator("#recording").get_attribute("data-recording"))["topics"]
    assert {topic["path"].split("/", 1)[1]: topic["messages"] for topic in rows} == {
        topic: len(found) for topic, found in times.items()}
    drawn = page.page.locator(".track path").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    assert len(drawn) == len(rows)
    borders = [first + (last - first) * (bucket + 1) // BUCKETS for bucket in range(BUCKETS - 1)]
    for topic, path_data in zip(rows, drawn):
        found = times[topic["path"].split("/", 1)[1]]
        buckets = np.searchsorted(borders, found)
        assert {int(at) for at in re.findall(r"M(\d+) ", path_data)} == set(buckets.tolist())
    page.quiet()


def test_pictures_beside_the_slider(page, fixtures_server):
    """At each place of the slider stands the last picture that was recorded by then."""
    with mounted(FIXTURES) as mnt:
        times = recorded(mnt, "drive.mcap")
        cameras = sorted(folder.parent.relative_to(mnt / "drive.mcap") for folder in
                         (mnt / "drive.mcap").rglob("images"))
        assert cameras
    first, last = (int(edge) for edge in (min(t.min() for t in times.values()), max(t.max() for t in times.values())))
    page.open(f"{fixtures_server.url}/files/drive.mcap/#t=0")
    page.page.evaluate("shardfs.recording.shown")
    for place in (0, 2500, 5001, 10000):
        page.page.evaluate("place => shardfs.recording.go(place)", place)
        time = first + (last - first) * place // 10000
        assert page.page.locator(".camera").count() == len(cameras)
        for number, camera in enumerate(page.page.locator(".camera").all()):
            topic = "topics" + camera.locator("figcaption").text_content().split(" · ")[0]
            row = int(np.searchsorted(times[topic], time, side="right")) - 1
            if row < 0:
                assert camera.get_attribute("data-state") == "no picture"
                continue
            address = camera.locator("img").get_attribute("src")
            assert re.fullmatch(rf"/files/drive\.mcap/{topic}/images/0*{row}\.(jpg|png)", address), (place, address)
    assert page.page.evaluate("location.hash") == "#t=10000"
    page.quiet()


def test_more_topics_than_rows(page, tmp_path, writers):
    topics = [(f"/t{number}", "json", 1) for number in range(70)]
    messages = [(number, 10**9 + number, b"{}") for number in range(70)]
    (tmp_path / "many.mcap").write_bytes(writers.mcap([("S", "jsonschema", b"{}")], topics, messages))
    with serving(tmp_path) as server:
        page.open(server.url + "/files/many.mcap/")
        page.page.locator(".track").nth(63).wait_for()
        assert page.page.locator(".track").count() == 64
        assert page.page.locator(".note").text_content().startswith("The first 64 of 70 topics are shown")
        page.quiet()


def test_odd_requests(fixtures_server):
    """A range of times that is turned round counts every message once; what is no topic is not found."""
    api = f"{fixtures_server.url}/-/api"
    with urllib.request.urlopen(f"{api}/marks/drive.mcap/topics/imu?first={2**64 - 1}&last=0") as answer:
        assert sum(json.load(answer)["counts"]) == 120
    with urllib.request.urlopen(f"{api}/at/drive.mcap/topics/camera/image?time=0") as answer:
        assert json.load(answer) == {"row": None, "picture": None}
    for address in ("/marks/notes.txt?first=0&last=1", "/at/table.idv?time=3", "/marks/drive.mcap?first=0&last=9"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(api + address)
        assert refused.value.code == 404, address


def test_the_times_of_messages(page, tmp_path, writers):
    """The player of a topic says when its messages were recorded, however unevenly."""
    at = [0, 0.1, 0.2, 100.0, *np.arange(101, 600).tolist()]
    messages = [(0, 1_700_000_000_000_000_000 + round(time * 1e9), b"\0\1\0\0" + np.float64(time).tobytes()) for time in at]
    schemas = [("std_msgs/msg/Float64", "ros2msg", b"float64 data\n")]
    (tmp_path / "a.mcap").write_bytes(writers.mcap(schemas, [("/event", "cdr", 1)], messages))
    with serving(tmp_path) as server:
        page.open(server.url + "/files/a.mcap/topics/event/")
        for step in (0, 1, 3, 250, 502, 2):
            go(page, step)
            page.until("expected => document.getElementById('where').textContent === expected",
                       f"{step} / {len(at) - 1} · {at[step]:.2f} s")
    page.quiet()
