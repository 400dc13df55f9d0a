"""A store that lies, drips and leads elsewhere below mounts and a server, and clients of that server that attack it.

Ordinary readers beside them compare every byte. Nothing may be wrong or stuck, no secret may reach another server, and
the kernel's limit of memory is what SECURITY.md promises.
"""

import base64
import contextlib
import http.client
import json
import os
import random
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from .mounts import mounted_by, status_of, within_limit
from .paths import BIN
from .servers import serving
from .stores import Store, random_faults
from .writers.shard import write_shard

MIB = 1 << 20
BUDGET = 64 * MIB
#: Beside the budget: of a mount, and of a server with all its connections (SECURITY.md).
BESIDE_MOUNT, BESIDE_SERVER = 64 * MIB, 64 * MIB + 256 * (256 << 10)
#: Seconds after which a request counts as stuck. Retries of slow answers end long before.
PATIENCE = 240
SECRET = "verborgen-und-lang-genug"
KEYS = {"AWS_ACCESS_KEY_ID": "SOAKKEY", "AWS_SECRET_ACCESS_KEY": SECRET}
#: Containers whose damage nothing but their checksums can tell: their bytes change, their ETag stays.
LIARS = "liar"


def contents(folder):
    """Objects of which every byte is known: {key: body}, and what a mount shows of them: {path: bytes}."""
    objects, shown = {}, {}
    for number, codec in enumerate(["none", "zstd", "lz4", "none", "zstd"]):
        name = f"{LIARS if number > 2 else 'd'}/{number}.shard"
        values = np.random.default_rng(number).integers(0, 40, 2 * MIB, dtype=np.uint8).tobytes()
        write_shard(folder / "new", [("x", values)], role=1, codec=codec, quick=True)
        objects[name], shown[f"{name}/x.bin"] = (folder / "new").read_bytes(), values
    objects["d/plain.dat"] = shown["d/plain.dat"] = np.random.default_rng(99).bytes(5 * MIB)
    for number in range(50):
        objects[f"many/{number}.txt"] = shown[f"many/{number}.txt"] = b"%d\n" % number * 100
    return objects, shown


class HostileStore(Store):
    """A store that answers one in `one_in` requests in a hostile way; `elsewhere` is the address of another server."""

    def __init__(self, seed, elsewhere, one_in=5):
        super().__init__()
        self.dice, self.one_in, self.elsewhere, self.strikes = random.Random(seed), one_in, elsewhere, Counter()
        self.wrong_ranges = random_faults(seed, one_in=1)
        self.faults = [self.strike, self.index]

    def index(self, handler):
        """The listing of a folder as a web server gives it."""
        path, _, query = handler.path.partition("?")
        if not path.endswith("/") or "list-type" in query:
            return False
        prefix, names = unquote(path).removeprefix("/b/"), {}
        for key in self.objects["b"]:
            if key.startswith(prefix):
                name, slash, _ = key[len(prefix):].partition("/")
                names[name + slash] = None
        body = json.dumps([{"name": name} for name in names]).encode()
        return handler.answer(200, body, Content_Type="application/json") is None

    def strike(self, handler):
        path, _, query = handler.path.partition("?")
        is_list = "list-type" in query or path.endswith("/")
        ways = [self.led, self.loop, self.inward, self.busy, self.drips, self.ends, self.garbage]
        ways += [self.endless, self.names, self.deep, self.huge] if is_list else [self.ranged, self.ranged, self.swollen]
        with self.lock:
            is_struck, way = self.dice.randrange(self.one_in) == 0, self.dice.choice(ways)
            number = self.dice.randrange(1 << 30)
        if f"/{LIARS}/" in path and not is_list and not is_struck:
            way, is_struck = self.lies, number % 3 == 0
        if not is_struck or handler.command == "HEAD" and way in (self.drips, self.ends, self.ranged, self.swollen):
            return False
        with contextlib.suppress(OSError):
            if way(handler, number) is False:
                return False
        with self.lock:
            self.strikes[way.__name__] += 1
        return True

    # --- ways ---------------------------------------------------------------------------

    def led(self, handler, number):
        """To another server, which has other bytes under the same names."""
        handler.answer([301, 302, 307, 308][number % 4], Location=self.elsewhere + handler.path)

    def loop(self, handler, number):
        handler.answer(302, Location=handler.path)

    def inward(self, handler, number):
        """To addresses that only this machine or its network reach, and to what is no address."""
        places = ["http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "http://[::1]:1/", "//", "gopher://x/",
                  "http://h:99999/", "http://xn--/", "\x1b]0;title\x07"]
        handler.answer(302, Location=places[number % len(places)])

    def busy(self, handler, number):
        after = [1, 18446744073709551615, -5, "Fri, 31 Dec 9999 23:59:59 GMT", "x" * 1000][number % 5]
        handler.answer([429, 500, 503, 408][number % 4], b"<Error><Code>SlowDown</Code></Error>", Retry_After=after)

    def drips(self, handler, number):
        """A byte now and then, of a body that would take hours."""
        handler.close_connection = True
        handler.answer(200, Content_Length=100_000, ETag='"x"')
        end = time.monotonic() + 60
        while time.monotonic() < end:
            handler.wfile.write(b"<")
            time.sleep(0.5)

    def ends(self, handler, number):
        handler.close_connection = True
        if number % 2:
            handler.answer(200, b"<ListBucket", Content_Length=1000)
        else:
            handler.connection.close()

    def garbage(self, handler, number):
        """What is no answer of HTTP."""
        handler.close_connection = True
        handler.wfile.write([b"\0" * 1000, b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                             b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                             b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n"][number % 4])

    def endless(self, handler, number):
        """A page that is followed by another one, without end."""
        text = f"<IsTruncated>true</IsTruncated><NextContinuationToken>t{number}</NextContinuationToken>"
        handler.answer(200, f"<ListBucketResult><Name>b</Name>{text}</ListBucketResult>".encode())

    def names(self, handler, number):
        """Keys that are paths, controls or out of measure, beside sizes of 2^64."""
        keys = ["../../etc/passwd", "/etc/passwd", "d/../../x", "d/%00x", "d/%1b%5d0;title%07", "d/" + "n" * 5000, "d//x", "."]
        text = "".join(f"<Contents><Key>{key}</Key><Size>18446744073709551615</Size><ETag>e</ETag></Contents>" for key in keys)
        handler.answer(200, f"<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType>{text}</ListBucketResult>".encode())

    def deep(self, handler, number):
        document = [b"<a>" * 100_000, b"[" * 300_000, b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]><x>&a;</x>"][number % 3]
        handler.answer(200, document, Content_Type="application/json" if number % 3 == 1 else "application/xml")

    def huge(self, handler, number):
        """More names than memory has room for."""
        page = b"".join(b"<Contents><Key>d/n%d-%d</Key><Size>1</Size></Contents>" % (number, i) for i in range(100_000))
        handler.answer(200, b"<ListBucketResult><Name>b</Name>" + page + b"</ListBucketResult>")

    def ranged(self, handler, number):
        """Another range, another state, too few bytes, a reset: what a request for a range can be answered wrong."""
        return self.wrong_ranges(handler)

    def swollen(self, handler, number):
        """More bytes than were asked for, or some in a coding that was not asked for."""
        key = unquote(handler.path.partition("?")[0]).removeprefix("/b/")
        if key not in self.objects["b"]:
            return False
        body, etag, _ = self.objects["b"][key]
        if number % 2:
            handler.answer(206, body + b"more", ETag=f'"{etag}"', Content_Range=f"bytes 0-{len(body) + 3}/{len(body)}")
        else:
            handler.answer(206, b"\x1f\x8b" + bytes(100), ETag=f'"{etag}"', Content_Encoding="gzip",
                           Content_Range=f"bytes 0-{len(body) - 1}/{len(body)}")

    def lies(self, handler, number):
        """The right answer in every respect, but for one byte of a block."""
        key = unquote(handler.path.partition("?")[0]).removeprefix("/b/")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if asked is None or key not in self.objects["b"] or handler.command != "GET":
            return False
        body, etag, _ = self.objects["b"][key]
        first, last = int(asked[1]), min(int(asked[2]), len(body) - 1)
        # Behind the header, the index and the names, which have no checksum.
        place = 4096 + number % (len(body) - 8192)
        part = bytearray(body[first:last + 1])
        if not first <= place <= last:
            return False
        part[place - first] ^= 1 + number % 255
        handler.answer(206, bytes(part), ETag=f'"{etag}"', Content_Range=f"bytes {first}-{last}/{len(body)}")


def attacks(token):
    """Requests that mean no good: (what, bytes). Those without the token come from strangers."""
    own = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n".encode()

    def dav(body, head=own, depth=1):
        return b"PROPFIND /dav/ HTTP/1.1\r\n%bDepth: %d\r\nContent-Length: %d\r\n\r\n" % (head, depth, len(body)) + body

    open_dav = b"<propfind xmlns='DAV:'><prop>"
    wide = b"".join(b"<p%d/>" % number for number in range(6_500))
    permitted = b"".join(b"<%b%d/>" % (b"p" * 28, number) for number in range(120))
    lol = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12)).encode()
    get = b"GET /files/d/plain.dat HTTP/1.1\r\n"
    return [
        ("deep", dav(open_dav + b"<a>" * 20_000)), ("wide", dav(open_dav + wide + b"</prop></propfind>")),
        ("permitted", dav(open_dav + permitted + b"</prop></propfind>")),
        ("entities", dav(b'<!DOCTYPE p [<!ENTITY l0 "lol">' + lol + b"]><propfind xmlns='DAV:'>&l11;</propfind>")),
        ("large body", dav(b"<" * 100_000)), ("infinite", dav(b"", depth=1).replace(b"Depth: 1", b"Depth: infinity")),
        ("stranger", get + b"Host: localhost\r\n\r\n"), ("other name", get + b"Host: evil.example\r\n\r\n"),
        ("half", get + b"Host: loc"), ("half a body", dav(b"x" * 1000)[:-900]), ("nothing", b""),
        ("large head", get + own + b"X: " + b"a" * 100_000 + b"\r\n\r\n"),
        ("many headers", get + own + b"".join(b"X%d: a\r\n" % number for number in range(200)) + b"\r\n"),
        ("two lengths", get + own + b"Content-Length: 0\r\nContent-Length: 30\r\n\r\n" + get),
        ("both", get + own + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get),
        ("ranges", get + own + b"Range: bytes=" + b",".join(b"%d-" % number for number in range(2000)) + b"\r\n\r\n"),
        ("range", get + own + b"Range: bytes=18446744073709551615-18446744073709551616\r\n\r\n"),
        ("above", b"GET /files/../../../etc/passwd HTTP/1.1\r\n" + own + b"\r\n"),
        ("encoded above", b"GET /files/%2e%2e/%2e%2e/%00etc%2fpasswd HTTP/1.1\r\n" + own + b"\r\n"),
        ("page", b"GET /-/view/d/plain.dat HTTP/1.1\r\n" + own + b"\r\n"),
        ("api", b"GET /-/api/plane?path=%ff&frame=-1 HTTP/1.1\r\n" + own + b"\r\n"),
        ("no HTTP", os.urandom(500) + b"\r\n\r\n"), ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("takes nothing", get + own + b"\r\n"), ("takes nothing", get + own + b"\r\n"),
    ]


class Hostile:
    """One run: `readers` of each mount, `clients` of the server, and `attackers` of it."""

    def __init__(self, folder, *, seconds, readers=16, clients=16, attackers=48, seed=1):
        self.folder, self.seconds, self.seed = Path(folder), seconds, seed
        self.numbers = {"readers": readers, "clients": clients, "attackers": attackers}
        self.counts, self.errors, self.wrong, self.lock = Counter(), Counter(), [], threading.Lock()
        self.slowest, self.stop = 0.0, threading.Event()
        objects, self.shown = contents(self.folder)
        # Another state of each file that is shown as it is. A web server may lead there, but one read is of one state.
        self.elsewhere, self.other = Store(), {}
        for key, body in objects.items():
            self.elsewhere.put(key, bytes(255 - byte for byte in body) if key in self.shown else body)
            other, tag, when = self.elsewhere.objects["b"][key]
            # Lists of web servers tell states apart by their times.
            self.elsewhere.objects["b"][key] = (other, tag, when - 1000)
            self.other[key] = other
        self.objects = objects

    def note(self, what, wrong=None):
        with self.lock:
            self.counts[what] += 1
            if wrong is not None:
                self.wrong.append(wrong)

    def failed(self, where, error):
        with self.lock:
            self.errors[f"{where}: {error}"] += 1

    def timed(self, begun):
        with self.lock:
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def choose(self, rng):
        path, expected = rng.choice(list(self.shown.items()))
        start = rng.randrange(len(expected))
        return path, expected, start, min(len(expected), start + rng.choice([1, 1000, 100_000, 2 * MIB]))

    # --- ordinary readers ---------------------------------------------------------------

    def read(self, where, mnt, seed):
        rng = random.Random(seed)
        while not self.stop.is_set():
            path, expected, start, end = self.choose(rng)
            begun = time.monotonic()
            try:
                if rng.random() < 0.1:
                    os.listdir(mnt / Path(path).parent)
                with open(mnt / path, "rb", buffering=0) as file:
                    data = os.pread(file.fileno(), end - start, start)
                # A shorter one is a read that was cut by an error behind it.
                states = [expected, self.other.get(path, expected)] if where == "http" else [expected]
                is_right = data != b"" and any(state[start:end].startswith(data) for state in states)
                self.note(f"{where} right" if is_right else "wrong",
                          None if is_right else (where, path, start, len(data), data[:20]))
            except OSError as error:
                self.failed(where, os.strerror(error.errno))
            self.timed(begun)

    def ask(self, server, token, seed):
        """A client with the token, which keeps its connection."""
        rng, headers = random.Random(seed), {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        while not self.stop.is_set():
            path, expected, start, end = self.choose(rng)
            begun = time.monotonic()
            try:
                connection.request("GET", f"/files/{path}", headers={**headers, "Range": f"bytes={start}-{end - 1}"})
                response = connection.getresponse()
                body = response.read()
                if response.status == 206:
                    is_right = body == expected[start:end]
                    self.note("server right" if is_right else "wrong",
                              None if is_right else ("server", path, start, response.status, len(body), body[:20]))
                elif response.status in (404, 500, 502, 503, 504):
                    self.failed("server", response.status)
                elif response.status == 200 and b"<title>shardfs</title>" in body[:200]:
                    # A page of names without end says that there is a folder of this name.
                    self.failed("server", "a folder")
                else:
                    self.note("wrong", ("server", path, response.status, body[:200]))
            except http.client.IncompleteRead as error:
                # The store failed when the status was sent: cut, and right as far as it goes.
                if not expected[start:end].startswith(error.partial):
                    self.note("wrong", ("server", path, start, "part"))
                self.failed("server", "cut")
                connection.close()
            except (OSError, http.client.HTTPException) as error:
                self.failed("server", type(error).__name__)
                connection.close()
                if isinstance(error, TimeoutError):
                    self.note("wrong", ("server", path, "stuck"))
            self.timed(begun)
        connection.close()

    # --- the attackers ------------------------------------------------------------------

    def attack(self, server, token, seed):
        rng, ways = random.Random(seed), attacks(token)
        while not self.stop.is_set():
            what, data = rng.choice(ways)
            self.note(f"attack: {what}")
            with contextlib.suppress(OSError), socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.settimeout(rng.choice([0.2, 2, 10]))
                connection.connect((server.host, server.port))
                connection.sendall(data)
                if what == "takes nothing":
                    self.stop.wait(rng.choice([0.2, 2, 20]))
                    continue
                answer = connection.recv(1 << 16)
                if b"root:" in answer or what in ("stranger", "other name") and answer.startswith(b"HTTP/1.1 2"):
                    self.note("wrong", (what, answer[:200]))

    # --- the whole ----------------------------------------------------------------------

    def run(self):
        """What happened: counts, errors, what was wrong, the most memory of each process."""
        token = base64.urlsafe_b64encode(os.urandom(24)).decode().rstrip("=")
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(self.elsewhere.serving())
            self.store = HostileStore(self.seed, there)
            for key, body in self.objects.items():
                self.store.put(key, body)
            here = stack.enter_context(self.store.serving())
            strike, self.store.faults = self.store.faults, [self.store.index]
            options = ["--timeout=5s", "--retries=2", f"--cache-size={BUDGET}", "--detect=content"]
            options.append(f"--disk-cache={self.private('cache')}")
            processes, kills = {}, {}
            log = stack.enter_context(open(self.folder / "log", "wb"))
            login = here.replace("http://", f"http://joe:{SECRET}@")
            sources = {"s3": ["s3://b/", f"--endpoint-url={here}"], "http": [f"{login}/b/"]}
            mounts = {}
            for name, source in sources.items():
                group, kills[name] = self.limited(stack, BUDGET + BESIDE_MOUNT)
                command = [*group, BIN, "mount", "--foreground", *options, *source]
                mounts[name], processes[name] = stack.enter_context(
                    mounted_by(command, seconds=PATIENCE, env=KEYS, stderr=log))
            file = self.folder / "token"
            file.write_text(token + "\n")
            file.chmod(0o600)
            group, kills["server"] = self.limited(stack, BUDGET + BESIDE_SERVER)
            server = stack.enter_context(serving(sources["s3"][0], sources["s3"][1], *options, "--token-file", file, env=KEYS,
                                                 within=group))
            processes["server"] = server.process
            self.store.faults = strike
            threads = [threading.Thread(target=self.read, args=[name, mnt, number], daemon=True)
                       for name, mnt in mounts.items() for number in range(self.numbers["readers"])]
            threads += [threading.Thread(target=self.ask, args=[server, token, 1000 + number], daemon=True)
                        for number in range(self.numbers["clients"])]
            threads += [threading.Thread(target=self.attack, args=[server, token, 2000 + number], daemon=True)
                        for number in range(self.numbers["attackers"])]
            for thread in threads:
                thread.start()
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                time.sleep(0.5)
                for name, process in processes.items():
                    if process.poll() is not None:
                        self.note("wrong", (name, "ended", process.returncode))
                        end = 0
            self.stop.set()
            end = time.monotonic() + PATIENCE
            for thread in threads:
                thread.join(max(0, end - time.monotonic()))
            stuck = sum(thread.is_alive() for thread in threads)
            self.store.faults = [self.store.index]
            if not stuck:
                self.finish(mounts, server, token)
            peak = {name: status_of(process.pid)["VmHWM"] >> 20 for name, process in processes.items()
                    if process.poll() is None}
            killed = {name: of() for name, of in kills.items() if of is not None}
            log.flush()
            said = (self.folder / "log").read_text(errors="replace") + server.printed()
        self.note("looked at logs", ("panic", said[said.index("panicked"):][:400]) if "panicked" in said else None)
        if SECRET in said or token in said.split("token=")[-1] and "token=" in said:
            self.note("wrong", "a secret in a log")
        leaked = [headers for headers in self.elsewhere.headers
                  if any(SECRET in str(value) or name.lower() in ("authorization", "referer") for name, value in headers.items())]
        if leaked:
            self.note("wrong", ("a secret elsewhere", leaked[0]))
        if any(killed.values()):
            self.note("wrong", ("killed for its memory", killed))
        return {"seconds": self.seconds, **self.numbers, "counts": dict(sorted(self.counts.items())),
                "errors": dict(sorted(self.errors.items())), "strikes": dict(sorted(self.store.strikes.items())),
                "slowest_seconds": round(self.slowest, 1), "peak_mib": peak, "kernel_kills": killed, "stuck": stuck,
                "wrong": len(self.wrong), "first_wrong": [str(wrong) for wrong in self.wrong[:5]]}

    def private(self, name):
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    def limited(self, stack, limit):
        """A command that runs another one in a group of this much memory, if this is root."""
        if os.geteuid() != 0:
            return [], None
        group, kills = stack.enter_context(within_limit(limit))
        return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"], kills

    def finish(self, mounts, server, token):
        """The store answers rightly again: everything is read whole. Blocks that it lied about stay damaged."""
        headers = {"Authorization": f"Bearer {token}"}
        for path, expected in self.shown.items():
            for name, mnt in mounts.items():
                for _ in range(300):
                    with contextlib.suppress(OSError):
                        data = None
                        data = (mnt / path).read_bytes()
                    if data == expected or path.startswith(LIARS):
                        break
                    # What was learned of names holds for some seconds.
                    time.sleep(0.2)
                if data != expected and not (data is None and path.startswith(LIARS)):
                    self.note("wrong", (name, path, "at the end", data is None))
            for _ in range(300):
                status, _, body = server.ask(f"/files/{path}", **headers)
                if body == expected or path.startswith(LIARS):
                    break
                time.sleep(0.2)
            if body != expected and not (status == 500 and path.startswith(LIARS)):
                self.note("wrong", ("server", path, "at the end", status, body[:200]))


def run_hostile(**options):
    with tempfile.TemporaryDirectory(prefix="shardfs-hostile-") as folder:
        return Hostile(folder, **options).run()
