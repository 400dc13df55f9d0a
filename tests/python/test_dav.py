"""The tree over WebDAV, with the clients that people use."""

import contextlib
import os
import socket
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
    for depth in [{"Depth": "infinity"}, {}]:
        status, _, body = server.ask("/dav/", "PROPFIND", **depth)
        assert status == 403 and ElementTree.fromstring(body).find(DAV + "propfind-finite-depth") is not None
        # That is said of folders alone.
        assert server.ask("/dav/nothing", "PROPFIND", **depth)[0] == 404
        status, _, body = server.ask("/dav/notes.txt", "PROPFIND", **depth)
        assert status == 207 and list(entries(body)) == [b"/dav/notes.txt"]
    assert server.ask("/dav/", "PROPFIND", Depth="1,noroot")[0] == 400
    assert server.ask("/dav/nothing", "PROPFIND", Depth="0")[0] == 404
    status, headers, _ = server.ask("/dav/", "OPTIONS")
    assert status == 200 and "1" in headers["dav"] and "PROPFIND" in headers["allow"] and "PUT" not in headers["allow"]


def propstats(server, path, body):
    """What a PROPFIND of one thing answers: for each status its properties, with their texts."""
    status, headers, answer = server.ask(path, "PROPFIND", body=body.encode(), Depth="0")
    assert status == 207 and headers["content-type"].startswith("application/xml")
    (response,) = ElementTree.fromstring(answer)
    return {stat.find(DAV + "status").text.split()[1]: {prop.tag: prop.text for prop in stat.find(DAV + "prop")}
            for stat in response.iter(DAV + "propstat")}


def test_options(server):
    """Windows asks at the top of the server first whether it speaks WebDAV."""
    for path in ["/", "/dav", "/dav/", "/dav/ep_001.wshard/"]:
        status, headers, body = server.ask(path, "OPTIONS")
        assert (status, headers["dav"], headers["ms-author-via"], body) == (200, "1", "DAV", b""), path
        assert "PROPFIND" in headers["allow"]


def test_properties_that_are_asked_for(server):
    """RFC 4918, 9.1: what is there with 200, what is not with 404, each named as it was asked for."""
    asked = "<prop><displayname/><getcontentlength/><x:a xmlns:x='urn:a&lt;b&amp;'/><y xmlns=''/></prop>"
    body = f"<?xml version='1.0'?><propfind xmlns='DAV:'>{asked}</propfind>"
    assert propstats(server, "/dav/notes.txt", body) == {
        "200": {DAV + "displayname": "notes.txt", DAV + "getcontentlength": str((FIXTURES / "notes.txt").stat().st_size)},
        "404": {"{urn:a<b&}a": None, "y": None}}
    folder = propstats(server, "/dav/ep_001.wshard", body)
    assert folder["200"] == {DAV + "displayname": "ep_001.wshard"} and DAV + "getcontentlength" in folder["404"]
    names = propstats(server, "/dav/notes.txt", "<propfind xmlns='DAV:'><propname/></propfind>")
    everything = propstats(server, "/dav/notes.txt", "<propfind xmlns='DAV:'><allprop/></propfind>")
    assert set(names) == set(everything) == {"200"} and set(names["200"]) == set(everything["200"])
    assert {DAV + name for name in ("getetag", "getlastmodified", "resourcetype", "supportedlock")} < set(names["200"])
    for wrong in ["<propfind/>", "x", "<propfind xmlns='DAV:'><prop>", "<!DOCTYPE p><propfind xmlns='DAV:'/>"]:
        assert server.ask("/dav/", "PROPFIND", body=wrong.encode(), Depth="0")[0] == 400, wrong


def test_bodies_that_are_deep_or_wide(server):
    """60 KB of elements in one another, or side by side: refused, and the server goes on."""
    deep = "<propfind xmlns='DAV:'><prop>" + "<a>" * 20_000
    wide = "<propfind xmlns='DAV:'><prop>" + "".join(f"<p{i}/>" for i in range(6_500)) + "</prop></propfind>"
    for body in [deep, deep + "</a>" * 1000, wide]:
        status, _, answer = server.ask("/dav/", "PROPFIND", body=body.encode(), Depth="1")
        assert status == 413 and b"elements" in answer
    assert server.process.poll() is None and server.get("/files/notes.txt")


def test_many_who_ask_for_all_that_is_permitted(tmp_path):
    """A hundred clients that ask for as many properties of as many names as they may, and take nothing of the answers:
    each holds little memory, and others are served. One of them gets all of its answer in the end."""
    names = [f"name-{number}-{'x' * 100}" for number in range(2000)]
    for name in names:
        (tmp_path / name).touch()
    asked = "".join(f"<{'p' * 28}{number}/>" for number in range(120))
    body = f"<propfind xmlns='DAV:'><prop>{asked}</prop></propfind>".encode()
    head = (f"PROPFIND /dav/ HTTP/1.1\r\nHost: localhost\r\nDepth: 1\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    with serving(tmp_path, "--cache-size", "64M") as server, contextlib.ExitStack() as stack:
        before = server.peak_memory()
        clients = []
        for _ in range(100):
            client = stack.enter_context(contextlib.closing(socket.socket()))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(TIMEOUT)
            client.connect((server.host, server.port))
            client.sendall(head + body)
            clients.append(client)
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 207"
        assert server.get(f"/files/{names[0]}") == b""
        assert server.peak_memory() - before < 64 << 20
        answer = b"".join(iter(lambda: clients[0].recv(1 << 16), b""))
        assert answer.count(b"<D:response>") == 2001 and answer.endswith(b"0\r\n\r\n")


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
            # What stands before a colon would be a scheme, so clients put `./` before such a name.
            assert server.get(address(os.fsdecode(name), "/dav/./")) == b"content of " + name
        (tmp_path / "a:b.txt").write_bytes(b"colon")
        cat = ["rclone", "--config", "/dev/null", "cat", f":webdav,url='{server.url}/dav/',vendor=other:a:b.txt"]
        assert subprocess.run(cat, capture_output=True, check=True, timeout=TIMEOUT).stdout == b"colon"


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
