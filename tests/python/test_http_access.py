"""Who may see what `shardfs serve` shows, and clients that mean no good."""

import base64
import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from support import BIN, FIXTURES, TIMEOUT, address, foreground, run, serving, wait_for

TOKEN = "a-token-of-our-own-0123456789"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server():
    with serving(FIXTURES) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def slow_bodies(server):
    """Clients whose bodies never end, from before the first test of this module on."""
    head = b"PROPFIND /dav/ HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 100\r\n\r\n<"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((server.host, server.port), timeout=TIMEOUT))
                for _ in range(100)]
        [connection.sendall(head) for connection in slow]
        yield slow


@pytest.fixture
def token_file(tmp_path):
    place = tmp_path / "token"
    place.write_text(TOKEN + "\n")
    place.chmod(0o600)
    return place


def test_only_this_machine_by_default(server):
    table = subprocess.run(["ss", "-ltnH", f"sport = :{server.port}"], capture_output=True, text=True)
    if table.returncode == 0:
        assert f"127.0.0.1:{server.port}" in table.stdout
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


def test_another_address_needs_a_token():
    with serving(FIXTURES, listen="0.0.0.0:0") as server:
        link = next(link for link in server.links if "token=" in link)
        token = link.split("token=")[1]
        server.host = "127.0.0.1"
        assert len(token) == 32
        for path in ["/", "/files/", "/files/notes.txt", "/dav/", "/-/", "/nothing"]:
            status, headers, body = server.ask(path)
            assert status == 401 and b"token" in body and token.encode() not in body, path
        status, headers, _ = server.ask(f"/files/notes.txt?token={token}", Accept="text/html")
        assert (status, headers["location"]) == (303, "/files/notes.txt")
        cookie = headers["set-cookie"].split(";")[0]
        assert token not in headers["set-cookie"]
        assert server.get("/files/notes.txt", Cookie=cookie) == (FIXTURES / "notes.txt").read_bytes()
        assert server.ask("/files/notes.txt?token=" + "0" * 32)[0] == 401
        # Programs are answered at once.
        assert server.get(f"/files/notes.txt?token={token}") == (FIXTURES / "notes.txt").read_bytes()
        assert b"shardfs_requests_total" in server.get(f"/-/metrics?token={token}")
        assert server.get("/files/notes.txt", Authorization=f"Bearer {token}")


def test_a_token_of_ones_own(token_file):
    with serving(FIXTURES, "--token-file", token_file) as server:
        assert TOKEN not in server.printed()
        assert server.ask("/files/notes.txt")[0] == 401
        assert server.get("/files/notes.txt", **AUTHORIZED)
        # Clients of WebDAV know passwords only.
        assert server.ask("/dav/")[1]["www-authenticate"].startswith("Basic")
        assert server.ask("/", "OPTIONS")[1]["www-authenticate"].startswith("Basic")
        assert server.ask("/", "OPTIONS", **AUTHORIZED)[0] == 200 and server.ask("/", **AUTHORIZED)[0] == 307
        password = ["curl", "-sS", "--fail", "-u", f"me:{TOKEN}", server.url + "/dav/notes.txt"]
        assert subprocess.run(password, capture_output=True, check=True).stdout == (FIXTURES / "notes.txt").read_bytes()
    for text in ["short", "", "with a space 0123456789"]:
        token_file.write_text(text)
        failed = run("serve", FIXTURES, "--listen", "127.0.0.1:0", "--token-file", token_file)
        assert failed.returncode == 1 and "not a token" in failed.stderr


def test_public():
    with serving(FIXTURES, "--public", listen="0.0.0.0:0") as server:
        server.host = "127.0.0.1"
        assert server.get("/files/notes.txt")
        # What is said of this process and its problems is not shown to others.
        for path in ["/files/.shardfs/", "/files/.shardfs/config.json", "/dav/.shardfs/stats.json", "/-/metrics"]:
            assert server.ask(path)[0] == 404
    failed = run("serve", FIXTURES, "--public", "--token")
    assert failed.returncode == 2


def test_only_its_own_names(server):
    for name in ["evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", ""]:
        status, _, body = server.ask("/files/notes.txt", Host=name)
        assert status == 421 and b"allow-host" in body, name
    for name in ["localhost", f"localhost:{server.port}", "127.0.0.1:1", "[::1]:80", socket.gethostname()]:
        assert server.ask("/files/notes.txt", Host=name)[0] == 200, name
    with serving(FIXTURES, "--allow-host", "data.example") as other:
        assert other.ask("/files/", Host="data.example")[0] == 200


def test_headers_of_every_answer(server):
    paths = ["/", "/files/", "/files/notes.txt", "/files/nothing", "/dav/", "/-/nothing", "/nothing",
             "/files/.shardfs/"]
    for path in paths:
        _, headers, _ = server.ask(path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy, path
        assert "script-src 'unsafe-inline'" not in policy
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        assert headers["cross-origin-resource-policy"] == "same-origin", path
        assert headers["access-control-allow-origin"] is None
    # Pages hold one stylesheet and one script themselves, which are named by their hashes.
    _, headers, page = server.ask("/files/", Accept="text/html")
    allowed = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    for kind, element in [("script-src", "script"), ("style-src", "style")]:
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page.decode(), re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert allowed[kind] == f"'self' 'sha256-{digest}'"


def send(server, data):
    """What comes back on one connection, to its end."""
    with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as connection:
        connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return b""


def test_refusals_do_nothing_to_a_terminal(tmp_path):
    """Names in the text of an error, which people see by curl: no control character but the line's end."""
    name = "a\x1b]0;title\x07\x9b31m\n\u202eb.wshard"
    (tmp_path / name).write_bytes((FIXTURES / "damaged/bad_crc.wshard").read_bytes())
    with serving(tmp_path) as server:
        listed = json.loads(server.get(f"{address(name)}/signal/", Accept="application/json"))
        answers = [server.ask(address(entry["path"])) for entry in listed]
        damaged = [body.decode() for status, _, body in answers if status == 500]
        assert damaged and all("title" in text and text.removesuffix("\n").isprintable() for text in damaged), damaged


def test_heads_that_are_too_large(server):
    line = b"GET /files/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    cases = [line + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
             line + b"".join(b"X%d: a\r\n" % i for i in range(200)) + b"\r\n",
             b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"]
    for case in cases:
        answer = send(server, case)
        assert not answer or answer.split()[1] in (b"431", b"414", b"400"), answer[:100]
    for case in [b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]:
        answer = send(server, case)
        assert not answer or answer.split()[1] == b"400", answer[:100]
    assert server.get("/files/notes.txt")


def test_bodies_that_are_too_large(server):
    status, _, _ = server.ask("/dav/", "PROPFIND", body=b"<" * 100_000, Depth="0")
    assert status == 413
    # Entities that would grow to gigabytes.
    lol = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    xml = (f'<?xml version="1.0"?><!DOCTYPE p [<!ENTITY l0 "lol">{lol}]>'
           '<propfind xmlns="DAV:"><prop>&l11;</prop></propfind>')
    begun = server_memory(server)
    assert server.ask("/dav/", "PROPFIND", body=xml.encode(), Depth="0")[0] in (400, 207)
    assert server_memory(server) - begun < 64 << 20
    assert server.get("/files/notes.txt")


def server_memory(server):
    for line in open(f"/proc/{server.process.pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10


def test_clients_that_never_finish_their_request():
    """As many as there are places, each with half a request: they are sent away, and others are served."""
    with serving(FIXTURES) as server, contextlib.ExitStack() as stack:
        slow = []
        for _ in range(300):
            connection = stack.enter_context(socket.create_connection((server.host, server.port), timeout=TIMEOUT))
            connection.sendall(b"GET /files/ HTTP/1.1\r\nHost: local")
            slow.append(connection)
        assert server.get("/files/notes.txt")
        # The first of them were told so, or cut off.
        with contextlib.suppress(ConnectionError):
            answer = slow[0].recv(1000)
            assert not answer or b" 408 " in answer or b" 400 " in answer


def test_clients_that_take_nothing(tmp_path):
    """They keep little memory, and other clients are served."""
    with open(tmp_path / "big.dat", "wb") as file:
        file.truncate(1 << 30)
    with serving(tmp_path, "--cache-size", "64M") as server, contextlib.ExitStack() as stack:
        before = server_memory(server)
        for _ in range(100):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(TIMEOUT)
            connection.connect((server.host, server.port))
            stack.enter_context(contextlib.closing(connection))
            connection.sendall(b"GET /files/big.dat HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        status, _, body = server.ask("/files/big.dat", Range="bytes=5-9")
        assert (status, body) == (206, b"\0" * 5)
        # 256 KiB for each, beside what is promised of everything else.
        assert server_memory(server) - before < (64 << 20) + 100 * (256 << 10)


def test_clients_that_will_ask_nothing_more(tmp_path):
    """A request and the end of all requests: the answer is whole."""
    content = os.urandom(4 << 20)
    (tmp_path / "long.dat").write_bytes(content)
    (tmp_path / "short.txt").write_bytes(b"short")
    [(tmp_path / f"{number}.txt").touch() for number in range(3000)]
    with serving(tmp_path) as server:
        for path, end in [("short.txt", b"short"), ("long.dat", content), ("", b"0\r\n\r\n")]:
            with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as connection:
                connection.sendall(f"GET /files/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(end), path


def test_clients_that_are_gone(tmp_path):
    """Who closes a connection in the middle of an answer gives its place back."""
    with open(tmp_path / "big.dat", "wb") as file:
        file.truncate(1 << 30)
    [(tmp_path / f"{number:0200}").touch() for number in range(20_000)]

    def sockets(server):
        folder = Path("/proc", str(server.process.pid), "fd")
        names = []
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                names.append(os.readlink(entry))
        return sum(name.startswith("socket:") for name in names)

    with serving(tmp_path) as server:
        before = sockets(server)
        for path in ["big.dat", ""] * 10:
            connection = socket.create_connection((server.host, server.port), timeout=TIMEOUT)
            connection.sendall(f"GET /files/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            connection.close()
        wait_for(lambda: sockets(server) == before, 20, "the end of all connections")


def test_requests_within_requests(server):
    """Heads and bodies that say in two ways where they end: what another server may take for a second request is never
    answered as one."""
    inner = b"GET /files/notes.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    secret = (FIXTURES / "notes.txt").read_bytes()
    length = str(len(inner)).encode()
    get = b"GET /-/nothing HTTP/1.1\r\nHost: localhost\r\n"
    ask = b"PROPFIND /dav/ HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    wrong = [
        get + b"Content-Length: 0\r\nContent-Length: " + length + b"\r\n\r\n",
        get + b"Content-Length: 0, " + length + b"\r\n\r\n",
        *(get + b"Content-Length: " + odd + b"\r\n\r\n" for odd in (b"+0", b"-1", b"0x0", b"9" * 30)),
        get + b"Transfer-Encoding: identity\r\n\r\n",
        get + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        get + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        get + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        get + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        get + chunked + chunked + b"\r\n0\r\n\r\n",
        get.replace(b"1.1", b"1.0") + chunked + b"Connection: keep-alive\r\n\r\n0\r\n\r\n",
        get + b"X: a\r\n b: c\r\n\r\n", get + b"X: a\0b\r\n\r\n", get + b"X: a\rContent-Length: 3\r\n\r\n",
        *(ask + chunked + b"\r\n" + odd + b"\r\nx\r\n0\r\n\r\n" for odd in (b"-1", b"f" * 17, b"1;" + b"a" * 100_000)),
        ask + chunked + b"\r\n0\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
    ]
    for case in wrong:
        answer = send(server, case + inner)
        assert not answer or answer.split()[1] == b"400" and answer.count(b"HTTP/1.1 ") == 1, (case[:150], answer)
    # A length beside chunks does not count, and the connection is closed (RFC 9112, 6.3). A body is no request.
    lengths = [b"Content-Length: 0\r\n" + chunked, chunked + b"Content-Length: " + length + b"\r\n"]
    bodies = [*(get + both + b"\r\n0\r\n\r\n" for both in lengths), 
              get + b"Connection: close\r\nContent-Length: " + length + b"\r\n\r\n",
              get + b"Content-Length: 1000000000000\r\n\r\n"]
    for case in bodies:
        answer = send(server, case + inner)
        assert answer.startswith(b"HTTP/1.1 404") and answer.count(b"HTTP/1.1 ") == 1 and secret not in answer, case
    assert server.get("/files/notes.txt") == secret


def test_who_is_refused_is_not_listened_to(token_file):
    with serving(FIXTURES, "--token-file", token_file) as server:
        for path, host in [("/files/", "localhost"), ("/dav/", "localhost"), ("/files/", "evil.example")]:
            request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            answer = send(server, request + request)
            assert answer.count(b"HTTP/1.1 4") == 1 and b"\r\nconnection: close\r\n" in answer, answer
        # Of a body that is announced nothing is read.
        long = b"PUT /dav/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n"
        assert send(server, long).startswith(b"HTTP/1.1 401")


def test_strangers_leave_places_to_who_has_the_token(token_file):
    """As many connections without the token as there are places, idle or busy, all from this machine."""
    ask = b"GET /files/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(FIXTURES, "--token-file", token_file) as server, contextlib.ExitStack() as stack:
        def connected():
            return stack.enter_context(socket.create_connection((server.host, server.port), timeout=TIMEOUT))

        kept = stack.enter_context(server.connect())
        kept.request("GET", "/files/notes.txt", headers=AUTHORIZED)
        assert kept.getresponse().read()
        its_socket = kept.sock
        # More than all places, which never ask anything.
        idle = [connected() for _ in range(300)]
        assert server.get("/files/notes.txt", **AUTHORIZED)
        with contextlib.suppress(ConnectionError):
            assert idle[0].recv(1) == b""
        # Again and again on each, as fast as this machine does it.
        busy, ended = [connected() for _ in range(256)], threading.Event()

        def flood():
            while not ended.is_set():
                for number, connection in enumerate(busy):
                    try:
                        connection.sendall(ask)
                        if not connection.recv(1 << 12):
                            raise ConnectionError
                    except OSError:
                        connection.close()
                        with contextlib.suppress(OSError):
                            busy[number] = connected()

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(20):
                assert server.get("/files/notes.txt", **AUTHORIZED)
        finally:
            ended.set()
            thread.join()
        # The connection of before is still there.
        kept.request("GET", "/files/notes.txt", headers=AUTHORIZED)
        assert kept.getresponse().read() and kept.sock is its_socket


def test_it_ends_at_once(server):
    """Also with a connection that is open and one that is being served."""
    with serving(FIXTURES) as other:
        with socket.create_connection((other.host, other.port)):
            other.process.terminate()
            assert other.process.wait(20) == 0


def test_the_port_is_taken(server):
    failed = run("serve", FIXTURES, "--listen", f"127.0.0.1:{server.port}")
    assert failed.returncode == 1 and str(server.port) in failed.stderr and failed.stderr.count("\n") == 1


def test_view(tmp_path):
    """The link leads to the page of what was asked for, and the browser is told."""
    browser = tmp_path / "xdg-open"
    browser.write_text('#!/bin/sh\necho "$1" >> "$0.opened"\n')
    browser.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DISPLAY": ":0"}
    with serving(FIXTURES / "ep_001.wshard", command="view", env=env) as server:
        path = server.links[0].removeprefix(server.url)
        assert b"signal" in server.get(path, Accept="text/html")
        wait_for(lambda: os.path.exists(f"{browser}.opened"))
        assert open(f"{browser}.opened").read().strip() == server.links[0]
    with serving(FIXTURES / "ep_001.wshard/signal", "--no-browser", command="view", env=env) as server:
        assert server.links[0] == server.url + "/files/signal"
    assert len(open(f"{browser}.opened").readlines()) == 1
    # A program of that name in the folder that is looked at is not run, whatever PATH says.
    (tmp_path / "data").mkdir()
    browser.rename(tmp_path / "data/xdg-open")
    for path in ["", ".", ":", "data:../data/."]:
        env = {"PATH": path, "DISPLAY": ":0", "BROWSER": "./xdg-open"}
        for place in [tmp_path, tmp_path / "data"]:
            with serving(FIXTURES / "ep_001.wshard", command="view", env=env, cwd=place) as server:
                assert server.get("/files/")
    assert not (tmp_path / "data/xdg-open.opened").exists()
    assert run("view", FIXTURES / "ep_001.wshard/nothing").returncode == 1
    assert run("view", FIXTURES / "notes.txt").returncode == 1


def test_a_crowd(tmp_path):
    """The short form of scripts/crowd: every client gets what is there, and memory stays within what was given."""
    from support.crowd import CACHE, run_crowd

    done = run_crowd(tmp_path, clients=30, killed=4, seconds=6)
    assert done["wrong"] == [] and done["counts"]["right"] > 0 and done["counts"]["killed"] > 0
    assert max(done["memory"]) < CACHE + (160 << 20), [size >> 20 for size in done["memory"]]
    assert done["descriptors"] < 200


def test_bodies_that_come_slowly(server, slow_bodies):
    """They held up no other test, and are told that their time is up."""
    for connection in slow_bodies:
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
    assert server.get("/files/notes.txt")


def test_what_holds_secrets_leaves_no_core_file():
    """A server, and a command with a URL; a mount of a folder may leave one."""
    def limit(pid):
        line, = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max core")]
        return line.split()[4:6]

    with serving(FIXTURES) as server:
        assert limit(server.process.pid) == ["0", "0"]
    # A server that takes connections and says nothing: the command waits for it.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = subprocess.Popen([BIN, "ls", f"http://127.0.0.1:{silent.getsockname()[1]}/"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            silent.settimeout(TIMEOUT)
            connection, _ = silent.accept()
            assert limit(process.pid) == ["0", "0"]
            connection.close()
        finally:
            process.kill()
            process.wait(TIMEOUT)
    with foreground(FIXTURES) as (_, process):
        assert limit(process.pid) == limit("self")


def test_flat_shows_containers_as_files():
    with serving(FIXTURES, "--flat") as server:
        assert server.get("/files/ep_001.wshard") == (FIXTURES / "ep_001.wshard").read_bytes()
        assert server.ask("/files/ep_001.wshard/signal/")[0] == 404
        listed = {entry["path"]: entry["kind"] for entry in json.loads(server.get("/files/", Accept="application/json"))}
        assert listed["ep_001.wshard"] == "file"
