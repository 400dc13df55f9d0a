"""The tree over HTTP: every byte that a mount shows, ranges, conditions, names, damage."""

import ast
import contextlib
import email.parser
import email.policy
import http.client
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from support import FAMILIES, FIXTURES, GOLDEN, ROOT, address, mounted, read_in_pieces, run, serving, sha256

SOURCES = [*(GOLDEN / family for family in FAMILIES), FIXTURES]


@pytest.fixture(scope="module")
def fixtures_server():
    with serving(FIXTURES) as server:
        yield server


def read_or_errno(path):
    try:
        return read_in_pieces(path)
    except OSError as error:
        return error.errno


def parts_of(headers, body):
    """The parts of a multipart answer: (their Content-Range, their bytes)."""
    head = f"Content-Type: {headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    return [(part["content-range"], part.get_payload(decode=True)) for part in message.iter_parts()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_byte_of_a_mount(source):
    """Golden files of each format, compared with the mount, which other tests compare with the formats' own readers."""
    rng = random.Random(19)
    files = damaged = 0
    with mounted(source) as mnt, serving(source) as server, server.connect() as connection:

        def ask(path, **headers):
            connection.request("GET", address(path), headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

        for folder, folders, names in os.walk(mnt):
            folders.sort()
            listed = ask(os.path.relpath(folder, mnt), Accept="application/json")
            shown = {os.path.basename(entry["path"]) for entry in json.loads(listed[2])}
            assert shown == {*folders, *names}
            # A folder that is a container has no bytes of its own.
            if "container.json" in names and (Path(source) / os.path.relpath(folder, mnt)).is_file():
                names.append(".file")
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), mnt)
                expected = read_or_errno(mnt / path)
                try:
                    status, headers, body = ask(path)
                except Exception:
                    # Damage behind the first piece: the connection ends before the length that was told.
                    assert isinstance(expected, int), path
                    connection.close()
                    damaged += 1
                    continue
                if isinstance(expected, int):
                    assert status == 500 and body, path
                    damaged += 1
                    continue
                files += 1
                assert (status, headers["content-length"]) == (200, str(len(expected))), path
                assert sha256(body) == sha256(expected), path
                for _ in range(2 if expected else 0):
                    start = rng.randrange(len(expected))
                    end = min(start + rng.randrange(1, 5000), len(expected))
                    status, headers, body = ask(path, Range=f"bytes={start}-{end - 1}")
                    assert (status, body) == (206, expected[start:end]), (path, start, end)
                    assert headers["content-range"] == f"bytes {start}-{end - 1}/{len(expected)}"
    assert files > 30 and (damaged == 0 or source.name != "kast")


def test_the_containers_own_bytes(fixtures_server):
    """Compared with the files themselves, which no code of ours has touched."""
    for path in [*FIXTURES.iterdir(), *(FIXTURES / "damaged").iterdir()]:
        if path.is_file() and path.suffix != ".txt" and not path.name.startswith(("cut_short", "unfinished")):
            assert fixtures_server.get(address(path.relative_to(FIXTURES) / ".file")) == path.read_bytes()
    assert fixtures_server.get("/files/notes.txt") == (FIXTURES / "notes.txt").read_bytes()


def test_a_large_file_in_ranges(tmp_path, writers):
    """Pieces, and several ranges in one answer, of an ordinary file and of one that is decoded."""
    import numpy as np

    values = np.random.default_rng(1).integers(0, 50, 3 << 20, dtype=np.uint8)
    (tmp_path / "plain.dat").write_bytes(values.tobytes())
    os.utime(tmp_path / "plain.dat", (1_600_000_000, 1_600_000_000))
    with serving(tmp_path) as server:
        for path in ["/files/plain.dat"]:
            whole = server.get(path)
            assert whole == values.tobytes()
            rng = random.Random(5)
            for _ in range(20):
                ranges = []
                for _ in range(rng.randrange(2, 6)):
                    start = rng.randrange(len(whole))
                    ranges.append((start, min(start + rng.randrange(1, 500_000), len(whole))))
                spec = ",".join(f"{start}-{end - 1}" for start, end in ranges)
                status, headers, body = server.ask(path, Range=f"bytes={spec}")
                assert (status, len(body)) == (206, int(headers["content-length"]))
                expected = [(f"bytes {a}-{b - 1}/{len(whole)}", whole[a:b]) for a, b in ranges]
                assert parts_of(headers, body) == expected


def test_the_head_alone(fixtures_server):
    episode = "/files/ep_001.wshard"
    for path in [f"{episode}/signal/joint_pos.npy", "/files/notes.txt", f"{episode}/images/cam0/rgb/000.png"]:
        status, headers, body = fixtures_server.ask(path)
        head_status, head, nothing = fixtures_server.ask(path, "HEAD")
        assert (status, head_status, nothing) == (200, 200, b"")
        for some in (head, headers):
            del some["date"]
        assert dict(head) == dict(headers)
        assert int(head["content-length"]) == len(body) and head["accept-ranges"] == "bytes"
        # A range means nothing without the bytes.
        assert fixtures_server.ask(path, "HEAD", Range="bytes=0-1")[0] == 200


def test_conditions(fixtures_server, tmp_path):
    path = "/files/ep_001.wshard/signal/joint_pos.npy"
    _, headers, body = fixtures_server.ask(path)
    tag, date = headers["etag"], headers["last-modified"]
    ask = fixtures_server.ask
    assert ask(path, If_None_Match=tag)[0] == 304 and ask(path, If_None_Match=tag)[2] == b""
    assert ask(path, If_None_Match='"other"')[0] == 200
    assert ask(path, If_Modified_Since=date)[0] == 304
    assert ask(path, If_Match='"other"')[0] == 412
    assert ask(path, Range="bytes=0-9", If_Range=tag)[::2] == (206, body[:10])
    assert ask(path, Range="bytes=0-9", If_Range='"other"')[::2] == (200, body)
    assert ask(path, Range="bytes=0-9", If_Range=date)[0] == 206
    status, headers, _ = ask(path, Range=f"bytes={len(body)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(body)}")
    # Another file of the same container has another tag; another server gives the same.
    assert ask("/files/ep_001.wshard/signal/gripper_open.npy")[1]["etag"] != tag
    with serving(FIXTURES) as again:
        assert again.ask(path)[1]["etag"] == tag


def test_another_state_has_another_tag(tmp_path):
    place = tmp_path / "ep.wshard"
    place.write_bytes((FIXTURES / "ep_001.wshard").read_bytes())
    (tmp_path / "text.txt").write_text("one")
    with serving(tmp_path) as server:
        paths = ["/files/ep.wshard/signal/joint_pos.npy", "/files/text.txt"]
        tags = [server.ask(path)[1]["etag"] for path in paths]
        new = tmp_path / "new"
        new.write_bytes((FIXTURES / "ep_001.wshard").read_bytes())
        new.rename(place)
        (tmp_path / "text.txt").write_text("two")
        for path, tag in zip(paths, tags):
            status, headers, body = server.ask(path, If_None_Match=tag)
            assert status == 200 and headers["etag"] != tag and body
            assert server.ask(path, Range="bytes=0-1", If_Range=tag)[0] == 200
        assert server.get("/files/text.txt") == b"two"


def test_what_was_asked_for_before_is_what_is_there_now(tmp_path, writers):
    """A file that is in memory by now, whose container is replaced, hidden, moved away or replaced by a link."""
    folder, states = tmp_path / "source/deep/er", {}
    folder.mkdir(parents=True)
    place = folder / "small.shard"

    def put(state):
        states[state] = os.urandom(4096)
        writers.write_shard(tmp_path / "new", [("data", states[state])], role=1)
        (tmp_path / "new").rename(place)

    with serving(tmp_path / "source") as server:
        path = "/files/deep/er/small.shard/data.bin"
        for state in range(20):
            put(state)
            for _ in range(3):
                assert server.get(path) == states[state]
            assert server.ask(path, Range="bytes=5-9")[::2] == (206, states[state][5:10])
        place.rename(folder / "moved.shard")
        assert server.ask(path)[0] == 404
        assert server.get(path.replace("small", "moved")) == states[19]
        place.symlink_to("moved.shard")
        assert server.ask(path)[0] == 404
        place.unlink()
        put("again")
        assert server.get(path) == states["again"]
        (tmp_path / "source/deep").rename(tmp_path / "elsewhere")
        assert server.ask(path)[0] == 404
        (tmp_path / "source/deep").symlink_to(tmp_path / "elsewhere")
        assert server.ask(path)[0] == 404


def test_a_file_that_changes_while_it_is_sent(tmp_path):
    """The answer ends before its length, and nothing of two states is taken for one."""
    place = tmp_path / "big.dat"
    place.write_bytes(b"a" * (64 << 20))
    with serving(tmp_path) as server, server.connect() as connection:
        connection.request("GET", "/files/big.dat")
        response = connection.getresponse()
        assert response.read(1000) == b"a" * 1000
        place.write_bytes(b"b" * (64 << 20))
        taken = 1000
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            while part := response.read(1 << 20):
                taken += len(part)
        assert taken < 64 << 20


def test_odd_names(tmp_path):
    names = [b"a b", b"100%", b"q?x=1#f", b"<b>&\"'", b"\xff\xfe", "żółw".encode(), b"%2e%2e", b"a\nb", b"\\",
             b";:@&=+$,"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(b"content of " + name)
    with serving(tmp_path) as server:
        for name in names:
            assert server.get(address(os.fsdecode(name))) == b"content of " + name
        listed = json.loads(server.get("/files/", Accept="application/json"))
        assert len(listed) == len(names)
        page = server.get("/files/", Accept="text/html")
        assert b"<b>" not in page and b"%FF%FE" in page
    for outside in ["/files/../", "/files/%2e%2e/", "/files/..%2f..%2fetc/passwd", "/files//etc/passwd", "/files/%00"]:
        with serving(tmp_path) as server:
            assert server.ask(outside)[0] in (404, 400), outside


def test_json_is_what_ls_says(fixtures_server):
    said = run("ls", "--json", FIXTURES / "ep_001.wshard/signal", check=True).stdout
    expected = [json.loads(line) for line in said.splitlines()]
    for entry in expected:
        entry["path"] = os.path.relpath(entry["path"], FIXTURES)
    status, headers, body = fixtures_server.ask("/files/ep_001.wshard/signal/", Accept="application/json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == expected
    lines = fixtures_server.get("/files/ep_001.wshard/signal/", Accept="application/x-ndjson").splitlines()
    assert [json.loads(line) for line in lines] == expected
    # A browser gets the page; a program that takes anything, links to the files themselves.
    for accept in ["text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "*/*"]:
        assert fixtures_server.ask("/files/", Accept=accept)[1]["content-type"].startswith("text/html")
    links = fixtures_server.get("/files/ep_001.wshard/signal/", Accept="*/*").decode()
    assert 'href="/files/ep_001.wshard/signal/joint_pos.npy"' in links


def test_a_folder_of_many(tmp_path):
    """Listings in several batches."""
    for number in range(700):
        (tmp_path / f"{number:04}").write_text("")
    with serving(tmp_path) as server:
        for accept in ["application/json", "*/*"]:
            body = server.get("/files/", Accept=accept)
            assert body.count(b"0699") >= 1 and body.count(b"doctype") == (accept == "*/*")
        assert len(json.loads(server.get("/files/", Accept="application/json"))) == 700
        # Behind the last page is the last page.
        for page in [4, 5, 2**64 - 1]:
            body = server.get(f"/files/?page={page}", Accept="text/html").decode()
            assert ">601–700 of 700<" in body and "0699" in body, page
        body = server.get("/files/?page=9&q=00", Accept="text/html").decode()
        assert ">106 entries<" in body and "0600" in body


def test_damage_says_where(fixtures_server):
    path = "/files/damaged/bad_crc.wshard/signal/joint_pos.npy"
    status, headers, body = fixtures_server.ask(path)
    assert status == 500 and headers["content-type"].startswith("text/plain")
    assert b"signal/joint_pos" in body and b"bad_crc.wshard" in body
    assert fixtures_server.ask(path, "HEAD")[0] == 200
    # What is not damaged in it is there.
    assert fixtures_server.get("/files/damaged/bad_crc.wshard/meta/episode.json")
    problems = fixtures_server.get("/files/.shardfs/problems.jsonl")
    assert any(json.loads(line)["container"].endswith("bad_crc.wshard") for line in problems.splitlines())


def test_control_files_and_links(tmp_path):
    (tmp_path / "file.txt").write_text("text")
    (tmp_path / "link").symlink_to("file.txt")
    (tmp_path / "out").symlink_to("/etc/hostname")
    with serving(tmp_path) as server:
        assert server.ask("/files/link")[0] == 404
        listed = json.loads(server.get("/files/", Accept="application/json"))
        assert {entry["path"]: entry["kind"] for entry in listed} == {"file.txt": "file", "link": "link", "out": "link"}
        assert json.loads(server.get("/files/.shardfs/config.json"))["source"] == str(tmp_path)
        # Made anew each time: no tag, and no parts.
        status, headers, _ = server.ask("/files/.shardfs/stats.json", Range="bytes=0-1")
        assert status == 200 and headers["etag"] is None and headers["accept-ranges"] is None
    with serving(tmp_path, "--follow-links") as server:
        assert server.get("/files/link") == b"text"
        assert server.ask("/files/out")[0] == 404


def test_types(tmp_path):
    types = {
        "a.png": ("image/png", None), "a.json": ("application/json", None),
        "a.txt": ("text/plain; charset=utf-8", None),
        "a.npy": ("application/octet-stream", None), "a.svg": ("application/octet-stream", "attachment"),
        "a.html": ("application/octet-stream", "attachment"), "a.js": ("application/octet-stream", "attachment"),
        "a.xhtml": ("application/octet-stream", "attachment"), "a": ("application/octet-stream", "attachment"),
    }
    for name in types:
        (tmp_path / name).write_text("<script>alert(1)</script>")
    with serving(tmp_path) as server:
        for name, (kind, disposition) in types.items():
            _, headers, _ = server.ask(f"/files/{name}")
            assert (headers["content-type"], headers["content-disposition"]) == (kind, disposition), name
            assert headers["x-content-type-options"] == "nosniff" and "sandbox" in headers["content-security-policy"]


def test_what_the_user_may_not_read(tmp_path):
    """Run as another user, who may not read one of two files."""
    if os.geteuid() != 0:
        pytest.fail("this test starts a server as another user, which needs root")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for name, mode in [("open.txt", 0o644), ("closed.txt", 0o600)]:
            with open(f"{place}/{name}", "w") as file:
                file.write(name)
            os.chmod(f"{place}/{name}", mode)
        os.mkdir(f"{place}/closed", 0o700)
        with serving(place, as_user=65534) as server:
            listed = json.loads(server.get("/files/", Accept="application/json"))
            assert [entry["path"] for entry in listed] == ["open.txt"]
            assert server.get("/files/open.txt") == b"open.txt"
            assert server.ask("/files/closed.txt")[0] == 404 and server.ask("/files/closed/")[0] == 404
            assert b"closed" not in server.get("/files/", Accept="text/html")
            assert b"closed" not in server.ask("/dav/", "PROPFIND", Depth="1")[2]


def test_nothing_can_be_written(fixtures_server):
    for method in ["PUT", "POST", "DELETE", "MKCOL", "PATCH", "MOVE", "LOCK", "PROPPATCH"]:
        for path in ["/files/notes.txt", "/files/new", "/dav/notes.txt", "/dav/new"]:
            status, headers, _ = fixtures_server.ask(path, method, body=b"x")
            assert status == 405 and "GET" in headers["allow"], (method, path)


def test_programs_of_every_day(fixtures_server, tmp_path):
    url = fixtures_server.url + "/files/ep_001.wshard/signal/joint_pos.npy"
    expected = run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
    curl = ["curl", "-sS", "--fail"]
    assert subprocess.run([*curl, "-r", "128-227", url], capture_output=True, check=True).stdout == expected[128:228]
    assert subprocess.run([*curl, "--compressed", url], capture_output=True, check=True).stdout == expected
    # wget goes on where it stopped, and knows when it has all.
    place = tmp_path / "joint_pos.npy"
    place.write_bytes(expected[:100])
    for _ in range(2):
        subprocess.run(["wget", "-q", "-c", "-O", str(place), url], check=True)
        assert place.read_bytes() == expected


def test_arrays_in_memory(fixtures_server):
    array = np.load(io.BytesIO(fixtures_server.get("/files/ep_001.wshard/signal/joint_pos.npy")))
    assert (array.dtype, array.shape) == (np.dtype("<f4"), (24, 7))


def test_fsspec_reads_it(fixtures_server):
    import fsspec

    url = fixtures_server.url + "/files/"
    with fsspec.open(url + "ep_001.wshard/signal/joint_pos.npy", block_size=256) as file:
        assert np.load(file).shape == (24, 7)
    files = fsspec.filesystem("http")
    listed = {entry.rstrip("/").rsplit("/", 1)[-1] for entry in files.ls(url + "ep_001.wshard/signal/", detail=False)}
    said = run("ls", FIXTURES / "ep_001.wshard/signal", check=True).stdout.decode().split()
    assert listed == set(said)
    assert files.cat_file(url + "notes.txt", start=2, end=9) == (FIXTURES / "notes.txt").read_bytes()[2:9]


def test_what_the_page_says(fixtures_server):
    """The programs of docs/SERVE.md, on this server's address."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/SERVE.md").read_text(), re.S | re.M)
    said = ["(24, 7)\n(24, 7)\n", "(10, 7)\n"]
    assert len(blocks) == len(said)
    for block, expected in zip(blocks, said):
        assert "http://127.0.0.1:8080/" in block
        program = block.replace("http://127.0.0.1:8080/", fixtures_server.url + "/")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(expected)
    keys = np.load(io.BytesIO(fixtures_server.get("/files/table.idv/columns/label/values.npy")))
    names = json.loads(fixtures_server.get("/files/table.idv/columns/label/metadata/KeyValues.jsonl"))
    counts = Counter(None if key == 0 else names[key - 1] for key in keys.tolist())
    assert dict(ast.literal_eval(done.stdout.removeprefix(expected))) == counts


def test_pandas_reads_it(fixtures_server):
    import pandas

    url = fixtures_server.url + "/files/ep_001.wshard/meta/episode.json"
    assert pandas.read_json(url, typ="series")["env_id"] == "PickAndPlace-v1"
