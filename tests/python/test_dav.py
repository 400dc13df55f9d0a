"""The tree over WebDAV, with the clients that people use."""

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import pytest

from support import FIXTURES, TIMEOUT, address, mounted, serving

DAV = "{DAV:}"


@pytest.fixture(scope="module")
def server():
    with serving(FIXTURES) as server:
        yield server


def files_below(top):
    """The bytes of every file below a folder that can be read, by path; of the others None."""
    found = {}
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "lost+found"]
        for name in names:
            path = Path(folder, name)
            try:
                found[str(path.relative_to(top))] = path.read_bytes()
            except OSError:
                found[str(path.relative_to(top))] = None
    return found


@pytest.fixture(scope="module")
def expected():
    with mounted(FIXTURES) as mnt:
        return files_below(mnt)


def entries(body):
    """What a PROPFIND answers: each href, with its properties as text."""
    found = {}
    for response in ElementTree.fromstring(body).iter(DAV + "response"):
        path = unquote_to_bytes(urlsplit(response.find(DAV + "href").text).path)
        found[path] = {prop.tag: prop.text for prop in response.find(f"{DAV}propstat/{DAV}prop")}
        resource = response.find(f"{DAV}propstat/{DAV}prop/{DAV}resourcetype")
        found[path]["is_folder"] = resource is not None and resource.find(DAV + "collection") is not None
    return found


def test_propfind(server):
    url = server.url + "/dav/ep_001.wshard/signal/"
    curl = ["curl", "-sS", "--fail", "-X", "PROPFIND", "-H", "Depth: 1", url]
    found = entries(subprocess.run(curl, capture_output=True, check=True).stdout)
    assert found[b"/dav/ep_001.wshard/signal/"]["is_folder"]
    file = found[b"/dav/ep_001.wshard/signal/joint_pos.npy"]
    _, headers, body = server.ask("/files/ep_001.wshard/signal/joint_pos.npy")
    assert not file["is_folder"] and int(file[DAV + "getcontentlength"]) == len(body)
    assert file[DAV + "getetag"] == headers["etag"]
    assert file[DAV + "getlastmodified"] == headers["last-modified"]
    # Of one thing alone, and never of everything below at once.
    assert len(entries(server.ask("/dav/", "PROPFIND", Depth="0")[2])) == 1
    assert server.ask("/dav/", "PROPFIND", Depth="infinity")[0] in (403, 501)
    assert server.ask("/dav/nothing", "PROPFIND", Depth="0")[0] == 404
    status, headers, _ = server.ask("/dav/", "OPTIONS")
    assert status == 200 and "1" in headers["dav"] and "PROPFIND" in headers["allow"] and "PUT" not in headers["allow"]


def test_odd_names(tmp_path):
    names = [b"a b", b"100%", b"<b>&\"'", b"\xff\xfe", "żółw".encode(), b";:@&=+$,", b"q?x#f"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"content of " + name)
    (tmp_path / "link").symlink_to("a b")
    with serving(tmp_path) as server:
        found = entries(server.ask("/dav/", "PROPFIND", Depth="1")[2])
        assert set(found) == {b"/dav/"} | {b"/dav/" + name for name in names}
        for name in names:
            assert server.get(address(os.fsdecode(name), "/dav/")) == b"content of " + name


def test_davfs2(server, expected, tmp_path):
    """Mounted by davfs2: every file, by its path, has the bytes that it has in our own mount. (Its listings are EINVAL on
    newer kernels, whatever the server: `rclone serve webdav` fares the same.)"""
    mnt, conf = tmp_path / "mnt", tmp_path / "davfs2.conf"
    mnt.mkdir()
    conf.write_text("ask_auth 0\nuse_locks 0\n")
    command = ["mount", "-t", "davfs", "-o", f"ro,conf={conf},uid=0", server.url + "/dav/", str(mnt)]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=TIMEOUT)
    try:
        for path, content in expected.items():
            if content is None:
                with pytest.raises(OSError):
                    (mnt / path).read_bytes()
            else:
                assert (mnt / path).read_bytes() == content, path
        assert not (mnt / "nothing").exists()
    finally:
        subprocess.run(["umount", str(mnt)], check=True, timeout=TIMEOUT)


def test_rclone(server, expected, tmp_path):
    remote = f":webdav,url='{server.url}/dav/',vendor=other:"
    config = ["--config", str(tmp_path / "rclone.conf"), "--retries", "1", "--low-level-retries", "1"]
    copied = subprocess.run(["rclone", *config, "copy", remote, str(tmp_path / "copy")], capture_output=True, text=True,
                            timeout=TIMEOUT)
    readable = {path: content for path, content in expected.items() if content is not None}
    # What is damaged can't be copied, and rclone says so.
    assert copied.returncode != 0 and "bad_crc.wshard" in copied.stderr
    got = files_below(tmp_path / "copy")
    assert {path: got.get(path) for path in readable} == readable
    part = ["rclone", *config, "cat", "--offset", "128", "--count", "50", remote + "ep_001.wshard/signal/joint_pos.npy"]
    whole = expected["ep_001.wshard/signal/joint_pos.npy"]
    assert subprocess.run(part, capture_output=True, check=True, timeout=TIMEOUT).stdout == whole[128:178]
