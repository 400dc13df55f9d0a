"""Servers that are hostile, or stand for somebody who is: what they may cost, and what they never get or show."""

import contextlib
import errno
import ipaddress
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support import BIN, FIXTURES, mounted, run, serving
from support.stores import Hub, Store
from test_credentials import authority
from test_remote import public

# Not the password of any other test, one of which looks for its own on all command lines of the machine.
SECRET = "verborgen"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No bytes of objects from one test to another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def quick(endpoint):
    return (*public(endpoint), "--timeout=3s", "--retries=2")


def with_index(handler):
    """What a web server says of the folder `b`."""
    is_index = handler.path.partition("?")[0] == "/b/" and "list-type" not in handler.path
    return is_index and handler.answer(200, b'[{"name":"x.bin"}]', Content_Type="application/json") is None


def fails(done, *words):
    """One line that says what is wrong, without a secret and without a panic."""
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    assert done.returncode == 1, text
    assert "panicked" not in text and SECRET not in text and len(text.splitlines()) == 1, text
    for word in words:
        assert word in text, text
    return text


# --- redirects ---------------------------------------------------------------------------------


@contextlib.contextmanager
def two_servers(tls=None):
    """A server that leads to the other one, both with the file `b/x.bin`: (first, its address, other, its address)."""
    first, other = Store(), Store()
    for store in (first, other):
        store.put("x.bin", b"bytes")
        store.faults = [with_index]
    with first.serving(tls) as here, other.serving() as there:
        yield first, here, other, there


def leading_to(address):
    """Only the file leads there."""
    return lambda handler: with_index(handler) or handler.answer(302, Location=address) is None


def test_a_redirect_carries_no_secret_to_another_server():
    with two_servers() as (first, here, other, there):
        first.faults = [leading_to(f"{there}/b/x.bin")]
        url = here.replace("http://", f"http://joe:{SECRET}@") + f"/b/x.bin?token={SECRET}"
        assert run("cat", url, "--no-disk-cache", check=True).stdout == b"bytes"
        assert any("authorization" in {name.lower() for name in headers} for headers in first.headers), first.headers
        assert other.headers
        for headers in other.headers:
            assert {"referer", "authorization", "cookie"}.isdisjoint(name.lower() for name in headers), headers
            assert SECRET not in str(headers)
        assert all(SECRET not in path for _, path in other.log), other.log


def test_a_data_set_is_read_from_elsewhere_without_the_token(monkeypatch):
    hub, other = Hub(), Store()
    monkeypatch.setenv("HF_TOKEN", SECRET)
    body = (FIXTURES / "ep_001.wshard").read_bytes()
    hub.put("ep.wshard", body)
    other.put("ep.wshard", body)
    with other.serving() as there, hub.serving() as here:
        hub.faults.insert(0, lambda handler: "/resolve/" in handler.path and leading_to(f"{there}/b/ep.wshard")(handler))
        url = "hf://datasets/owner/name/ep.wshard/signal/joint_pos.npy"
        shown = run("cat", url, f"--endpoint-url={here}", "--no-disk-cache", check=True).stdout
    assert shown == run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
    assert any(SECRET in str(headers) for headers in hub.headers) and other.headers
    assert SECRET not in str(other.headers)


def test_what_is_signed_is_not_sent_elsewhere(monkeypatch):
    for name, value in {"ACCESS_KEY_ID": "KEY", "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": SECRET}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with two_servers() as (first, here, other, there):
        first.faults = [lambda handler: handler.answer(307, Location=f"{there}{handler.path}") or True]
        fails(run("cat", "s3://b/x.bin", f"--endpoint-url={here}", "--timeout=3s", "--retries=1"), "307", "elsewhere")
        assert first.log and not other.log


def test_redirects_come_to_an_end():
    with two_servers() as (first, here, other, _):
        first.faults = [leading_to(f"{here}/b/x.bin")]
        fails(run("cat", f"{here}/b/x.bin", "--no-disk-cache"), "without end")
        assert len(first.log) < 50
    with two_servers() as (first, here, other, there):
        for bad in ("ftp://127.0.0.1/x", f"http://joe:{SECRET}@127.0.0.1/x", "http://a:b/", "http://xn--/", "http://[/"):
            first.faults = [leading_to(bad)]
            fails(run("cat", f"{here}/b/x.bin", "--no-disk-cache"), "no address of a web server")


def test_no_redirect_leads_from_https_to_http(tmp_path):
    certificate, context = authority(tmp_path)
    with two_servers(context) as (first, here, other, there):
        first.faults = [leading_to(f"{there}/b/x.bin")]
        fails(run("cat", f"{here}/b/x.bin", f"--ca-bundle={certificate}", "--no-disk-cache"), "from https to http")
        assert not other.log


def test_redirects_and_names_lead_no_nearer():
    program = Path(__file__).parent / "support/networks.py"
    done = subprocess.run(["unshare", "--net", "--mount", sys.executable, program, BIN], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rebound = found.pop("a name that changes")
    assert rebound == {"before": "inside", "after": errno.EIO, "asked": ["8.8.8.8"]}
    allowed = {"public.test 8.8.8.8", "8.8.8.8 public.test", "private.test public.test", "10.1.1.1 private.test",
               "loopback.test private.test", "127.0.0.1 loopback.test"}
    assert allowed < found.keys()
    for way, came in found.items():
        if way in allowed:
            assert (came["code"], came["out"]) == (0, "inside"), (way, came)
        else:
            assert came["code"] == 1 and "nearer" in came["err"] and len(came["asked"]) == 1, (way, came)


# --- connections -------------------------------------------------------------------------------


def certificate(folder, name, subject, days, is_signed=True, is_authority=False):
    """A server whose certificate is for a subject, and ends so many days from now; by the authority in `folder` or its own.
    It may say that it is an authority's, as that which `openssl req -x509` makes."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(named(name)).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=30))
    made = made.not_valid_after(now + datetime.timedelta(days=days)).issuer_name(named("authority" if is_signed else name))
    made = made.add_extension(x509.SubjectAlternativeName([subject(x509)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    signer = key
    if is_signed:
        signer = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    (folder / name).write_bytes(made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / name, folder / f"{name}.key")
    return context


def test_certificates_that_are_wrong_say_what_to_do(tmp_path):
    trusted, _ = authority(tmp_path)

    def here(x509):
        return x509.IPAddress(ipaddress.ip_address("127.0.0.1"))

    kinds = {
        "expired": ((here, -2), ("expired", "clock")),
        "other": ((lambda x509: x509.DNSName("other.example"), 2), ("not for 127.0.0.1",)),
        "alone": ((here, 2, False), ("not trusted", "--ca-bundle")),
    }
    store = Store()
    store.put("x.bin", b"bytes")
    store.faults = [with_index]
    for name, (how, words) in kinds.items():
        with store.serving(certificate(tmp_path, name, *how)) as endpoint:
            # Nothing that time could change: it is not tried for five minutes.
            url, options = f"{endpoint}/b/x.bin", ("--no-disk-cache", "--timeout=5m", "--retries=1000")
            fails(run("cat", url, f"--ca-bundle={trusted}", *options), *words)
            if name == "alone":
                assert run("cat", url, f"--ca-bundle={tmp_path / name}", *options, check=True).stdout == b"bytes"
    # A server's own, which says that it is an authority's. curl and Python take it if it is the very one that is named.
    kinds = {
        "own": ((here, 2), None),
        "own_expired": ((here, -2), ("expired",)),
        "own_other": ((lambda x509: x509.DNSName("other.example"), 2), ("not for 127.0.0.1",)),
    }
    for name, (how, words) in kinds.items():
        with store.serving(certificate(tmp_path, name, *how, False, True)) as endpoint:
            url, options = f"{endpoint}/b/x.bin", ("--no-disk-cache", "--timeout=5m", "--retries=1000")
            read = urllib.request.Request(url, headers={"Range": "bytes=0-0"})
            context = ssl.create_default_context(cafile=tmp_path / name)
            done = run("cat", url, f"--ca-bundle={tmp_path / name}", *options)
            if words:
                fails(done, *words)
                with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                    urllib.request.urlopen(read, context=context)
            else:
                assert (done.returncode, done.stdout, done.stderr) == (0, b"bytes", "")
                assert urllib.request.urlopen(read, context=context).read() == b"b"
                # Another one of that name, and none.
                certificate(tmp_path, name, *how, False, True)
                for bundle in (tmp_path / name, trusted):
                    fails(run("cat", url, f"--ca-bundle={bundle}", *options), "not trusted")
    with store.serving() as endpoint:
        fails(run("cat", f"{endpoint}/b/x.bin".replace("http:", "https:"), "--timeout=5m"), "does not speak TLS")


@contextlib.contextmanager
def speaking(answer, context=None):
    """A server that says these bytes to each who comes."""
    def talk(client):
        with contextlib.suppress(OSError), client:
            if context is not None:
                client = context.wrap_socket(client, server_side=True)
            client.recv(65536)
            client.sendall(answer)
            client.recv(65536)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http{'s' if context else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [
    bytes.fromhex("000006040000000000000100000000") * 2,  # settings of HTTP/2
    b"\x00\x00\x00\x07\x00\x00\x00\x00\x00" + b"\xff" * 100,  # its end
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
    b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 10_000_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    b"HTTP/1.1 999 \x1b[31m\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
], ids=["h2", "goaway", "long", "negative", "chunk", "line", "lines", "status", "upgrade"])
def test_what_is_no_answer_is_an_error(answer):
    with speaking(answer) as endpoint:
        fails(run("cat", f"{endpoint}/b/x.bin", "--timeout=1s", "--retries=1", "--no-disk-cache"))


def test_a_server_of_http_2_alone_is_an_error(tmp_path):
    trusted, context = authority(tmp_path)
    context.set_alpn_protocols(["h2"])
    with speaking(bytes.fromhex("000006040000000000000100000000"), context) as endpoint:
        fails(run("cat", f"{endpoint}/b/x.bin", f"--ca-bundle={trusted}", "--timeout=1s", "--retries=1"))


def test_times_without_measure():
    store = Store()
    store.put("x.bin", b"bytes")
    for when in ("18446744073709551615", "99999999999999999999999", "-1", "Fri, 31 Dec 9999 23:59:59 GMT"):
        store.faults = [lambda handler, when=when: handler.fail(503, "SlowDown", Retry_After=when) or True]
        with store.serving() as endpoint:
            fails(run("cat", "s3://b/x.bin", *quick(endpoint)), "503")
    store.faults = [lambda handler: handler.fail(503, "SlowDown", Retry_After="86400") or True]
    with store.serving() as endpoint:
        fails(run("cat", "s3://b/x.bin", *quick(endpoint)), "it asks to wait for 86400 s; --timeout says how long to try")
    store.faults = []
    with store.serving() as endpoint:
        always = ("--timeout=99999999999d", "--dir-ttl=99999999999d")
        assert run("cat", "s3://b/x.bin", *public(endpoint), *always, check=True).stdout == b"bytes"
        with mounted("s3://b/", *public(endpoint), *always) as mnt:
            assert (mnt / "x.bin").read_bytes() == b"bytes"


# --- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [
    "http://h:99999/", "http://a:b/", "http://xn--/", "http:///x", "http://[/", "http://a b/", "http://%/",
    f"http://joe:{SECRET}@a:b/x", f"http://joe:ge/{SECRET}@host:1/", f"https://joe:{SECRET}@", f"https://h:x/?token={SECRET}",
    f"s3://KEY:{SECRET}@bucket/x", f"gs://KEY:{SECRET}@bucket/x", f"az://{SECRET}@a/b", f"az://a?sig={SECRET}",
])
def test_addresses_that_are_none(url, tmp_path):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    for command in (["ls", url], ["doctor", url], ["mount", url, mnt], ["serve", url]):
        fails(run(*command))


def test_addresses_that_hold_a_login_never_show_it(tmp_path):
    bad = [f"http://joe:{SECRET}@127.0.0.1:1", f"http://joe:ge/{SECRET}@h", f"{SECRET}", f"http://h/?sig={SECRET}",
           f"http://joe:{SECRET}@a:b", f"ftp://joe:{SECRET}@h"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HF_"))}
    clean |= {"AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": SECRET}
    profile = tmp_path / "config"
    for address in bad:
        profile.write_text(f"[default]\nendpoint_url = {address}\n")
        ways = [("s3://b/", {"AWS_ENDPOINT_URL": address}), ("s3://b/", {"AWS_ENDPOINT_URL_S3": address}),
                ("s3://b/", {"AWS_CONFIG_FILE": str(profile)}), ("hf://datasets/a/b", {"HF_ENDPOINT": address}),
                ("gs://b/", {"STORAGE_EMULATOR_HOST": address})]
        ways += [(url, ["--endpoint-url", address]) for url in ("s3://b/", "gs://b/", "az://a/b", "hf://datasets/a/b")]
        ways += [(url, [f"--endpoint-url={address}"]) for url in ("s3://b/", "hf://datasets/a/b")]
        for url, way in ways:
            options = way if isinstance(way, list) else []
            env = clean | (way if isinstance(way, dict) else {})
            if "STORAGE_EMULATOR_HOST" in env and "://" not in address:
                continue  # a host by itself is an address there
            log = tmp_path / "log"
            command = ["ls", url, *options, "--no-sign-request", "--timeout=1s", "--retries=1"]
            fails(run(*command, env=env), "not an address of a server")
            mnt = tmp_path / "mnt"
            mnt.mkdir(exist_ok=True)
            fails(run("mount", url, mnt, *command[2:], f"--log-file={log}", "--log-level=trace", env=env))
            assert not log.exists() or SECRET not in log.read_text()


# --- states ------------------------------------------------------------------------------------


def test_parts_that_name_no_state_are_not_put_together():
    """A HEAD names the state, the parts do not: nothing says that they are of one."""
    store = Store()
    store.put("x.bin", b"a" * 3_000_000)

    def without_state(handler):
        if handler.command != "GET" or "Range" not in handler.headers:
            return False
        first, last = (int(number) for number in handler.headers["Range"][6:].split("-"))
        last = min(last, 2_999_999)
        body = (b"a" if first == 0 else b"b") * (last + 1 - first)
        handler.answer(206, body, Content_Range=f"bytes {first}-{last}/3000000")
        return True

    store.faults = [with_index, without_state]
    with store.serving() as endpoint:
        for url in (f"{endpoint}/b/x.bin", "s3://b/x.bin"):
            done = run("cat", url, *quick(endpoint))
            fails(done, "neither the ETag nor the Last-Modified")
            assert done.stdout == b""


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
@pytest.mark.parametrize("head", ["0", None, "405", "206"])
def test_the_size_is_asked_where_head_does_not_say_it(head, size):
    """Servers that make what they send answer HEAD as if it were empty, or without a length."""
    store = Store()
    content = bytes(range(250)) * (size // 250) + b"x" * (size % 250)
    store.put("x.bin", content)

    def answers_head(handler):
        if handler.command != "HEAD" or not handler.path.startswith("/b/x.bin"):
            return False
        handler.send_response(int(head) if head in ("405", "206") else 200)
        handler.send_header("ETag", '"of HEAD"')
        if head in ("0", "405"):
            handler.send_header("Content-Length", "0")
        else:
            handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        return True

    store.faults = [with_index, answers_head]
    with store.serving() as endpoint:
        assert run("cat", f"{endpoint}/b/x.bin", *quick(endpoint), check=True).stdout == content
        with mounted(f"{endpoint}/b/", *quick(endpoint)) as mnt:
            assert (mnt / "x.bin").stat().st_size == size and (mnt / "x.bin").read_bytes() == content


def test_a_part_is_not_taken_for_the_whole():
    """Its length is not the object's: the rest would look as if it were not there."""
    store = Store()
    store.put("x.bin", b"a" * 1000)

    def in_parts(handler):
        if "list-type" in handler.path or not handler.path.startswith("/b/x.bin"):
            return False
        if handler.headers.get("Range") == "bytes=0-0":
            return handler.answer(206, b"a", ETag='"x"', Content_Range="bytes 0-0/*") is None
        if "Range" in handler.headers:
            return False
        if handler.command == "GET":
            return handler.answer(206, b"a" * 102, ETag='"x"', Content_Range="bytes 0-101/1000") is None
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        return True

    store.faults = [with_index, in_parts]
    with store.serving() as endpoint:
        for options in ([], ["--detect=content"]):
            fails(run("cat", f"{endpoint}/b/x.bin", *quick(endpoint), *options), "does not say how large")
        with mounted(f"{endpoint}/b/", *quick(endpoint)) as mnt:
            with pytest.raises(OSError) as failed:
                (mnt / "x.bin").stat()
            assert failed.value.errno == errno.EIO


def test_a_part_that_is_shorter_than_it_says_is_not_put_together():
    """Compressed on the way: what the answer has are no bytes of the object, whatever range it names."""
    store = Store()
    store.put("x.bin", b"a" * 1000)
    tag = store.objects["b"]["x.bin"][1]
    struck = []

    def compressed(handler):
        if handler.command != "GET" or "Range" not in handler.headers or len(struck) >= 2:
            return False
        struck.append(handler.path)
        handler.answer(206, b"\x1f\x8b" + bytes(100), ETag=f'"{tag}"', Content_Encoding="gzip", Content_Range="bytes 0-999/1000")
        return True

    store.faults = [with_index, compressed]
    with store.serving() as endpoint:
        for url in (f"{endpoint}/b/x.bin", "s3://b/x.bin"):
            struck.clear()
            done = run("cat", url, *quick(endpoint))
            assert struck and done.stdout in (b"", b"a" * 1000), done.stdout[:20]
            assert done.stdout or done.returncode == 1


def test_a_file_is_not_shown_as_empty_when_its_server_fails():
    """The list of a web server has no sizes. What it said before does not take the place of an answer."""
    store = Store()
    store.put("x.bin", b"bytes")
    store.faults = [with_index]
    fails = threading.Event()
    with store.serving() as endpoint, mounted(f"{endpoint}/b/", *quick(endpoint)) as mnt:
        store.faults = [lambda handler: fails.is_set() and (handler.answer(500) or True), with_index]
        assert "x.bin" in os.listdir(mnt)
        fails.set()
        # Until what was learned before no longer holds: the name alone was.
        for _ in range(20):
            with contextlib.suppress(OSError):
                assert os.stat(mnt / "x.bin").st_size == 5
            time.sleep(0.5)
        fails.clear()


# --- listings and slow answers -----------------------------------------------------------------


def listing(names=(), more=None):
    objects = "".join(f"<Contents><Key>{name}</Key><Size>1</Size><ETag>e</ETag></Contents>" for name in names)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f"<ListBucketResult><Name>b</Name>{more}{objects}</ListBucketResult>".encode()


@pytest.mark.parametrize("names", [(), [f"n{number}" for number in range(1000)]], ids=["empty", "the same"])
def test_a_listing_without_end_ends(names):
    store = Store()
    store.put("x.bin", b"bytes")
    pages = iter(range(10**9))
    store.faults = [lambda handler: handler.answer(200, listing(names, f"t{next(pages)}")) or True]
    with store.serving() as endpoint:
        fails(run("ls", "s3://b/", *quick(endpoint)), "again and again")
    assert len(store.log) < 2000


def dripping(handler, body=b"x" * 4000):
    """One byte each tenth of a second."""
    with contextlib.suppress(OSError):
        handler.send_response(206 if "Range" in handler.headers else 200)
        tag = handler.store.objects["b"]["x.bin"][1]
        headers = {"Content-Length": len(body), "ETag": f'"{tag}"', "Content-Range": f"bytes 0-3999/{len(body)}"}
        for name, value in headers.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        for byte in body:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.1)
    handler.close_connection = True
    return True


def test_an_answer_that_drips_is_given_up():
    store = Store()
    store.put("x.bin", b"x" * 4000)
    for which in ("list-type=2", "/b/x.bin"):
        store.faults = [lambda handler, which=which: handler.command == "GET" and which in handler.path and dripping(handler)]
        with store.serving() as endpoint:
            begin = time.monotonic()
            options = (*public(endpoint), "--timeout=5s")
            fails(run(*(("cat", "s3://b/x.bin") if which == "/b/x.bin" else ("ls", "s3://b/")), *options), "slowly")
            # The answers themselves would take 400 seconds.
            assert time.monotonic() - begin < 120


def test_a_listing_that_nobody_waits_for_ends():
    store = Store()
    store.put("d/x.bin", b"bytes")
    asked = threading.Event()

    def endless(handler):
        if "prefix=d%2Ffolder%2F" not in handler.path:
            return False
        asked.set()
        # New names in each page.
        number = len(store.log)
        names = [f"d/folder/{number}-{name}" for name in range(3)]
        time.sleep(0.01)
        return handler.answer(200, listing(names, f"t{number}")) or True

    store.put("d/folder/y.bin", b"bytes")
    with store.serving() as endpoint, mounted("s3://b/d", *public(endpoint)) as mnt:
        assert "x.bin" in os.listdir(mnt)
        store.faults = [endless]
        with subprocess.Popen(["ls", str(mnt / "folder")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reader:
            assert asked.wait(60)
            reader.kill()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            before = len(store.log)
            time.sleep(1)
            if len(store.log) == before:
                break
        assert len(store.log) == before, "it goes on"


def nginx_index(count):
    return b"[" + b",".join(b'{"name":"n%d"}' % number for number in range(count)) + b"]", "application/json"


def html_index(count):
    return b"<title>Index of /</title>" + b"".join(b"<a href='n%d'>" % number for number in range(count)), "text/html"


def webdav_index(count):
    names = b"".join(b"<response><href>/big/n%d</href></response>" % number for number in range(count))
    return b"<multistatus>" + names + b"</multistatus>", "text/xml"


@pytest.mark.parametrize("index", [nginx_index, html_index, webdav_index])
def test_a_listing_takes_memory_in_proportion(index):
    body, kind = index(400_000)
    store = Store()
    store.objects["b"] = {}
    store.faults = [lambda handler: handler.path == "/big/" and handler.answer(200, body, Content_Type=kind) is None]
    with store.serving() as endpoint:
        program = ("import resource, subprocess, sys\n"
                   "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
                   "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        command = [BIN, "doctor", f"{endpoint}/big/", "--no-disk-cache", "--retries=1", "--timeout=30s"]
        done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=300)
    assert ("GET", "/big/") in store.log
    _, kilobytes = map(int, done.stdout.split())
    # It was 67 times as much for JSON, 23 for the others.
    assert kilobytes << 10 < (64 << 20) + 4 * len(body), (kilobytes >> 10, len(body) >> 20)


def test_a_listing_beyond_the_budget_is_refused():
    store = Store()
    store.objects["b"] = {}
    entry = b'{"name":"n%d","type":"file","mtime":"Tue, 24 Nov 2026 01:00:00 GMT","size":1}'
    few, many = ((b"[" + b",".join(entry % n for n in range(count)) + b"]", "application/json") for count in (5000, 100_000))

    def index(handler):
        body = {"/few/": few, "/many/": many}.get(handler.path)
        return body is not None and handler.answer(200, body[0], Content_Type=body[1]) is None

    store.faults = [index]
    with store.serving() as endpoint:
        def listed(folder, size):
            command = [BIN, "ls", f"{endpoint}/{folder}/", f"--cache-size={size}", "--no-disk-cache", "--retries=1"]
            return subprocess.run(command, capture_output=True, text=True, timeout=300)

        assert len(listed("few", "4M").stdout.splitlines()) == 5000
        done = listed("many", "4M")
        assert done.returncode != 0 and "--cache-size" in done.stderr and "panicked" not in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and not done.stdout


def test_what_a_listing_says_is_only_names():
    store = Store()
    odd = ["../up", "/etc/passwd", "a/../../b", "\x1b[31mred", "x" * 2000, ".shardfs", "%2e%2e", "con\nline", "\u202etxt.exe", "-rf"]
    for name in odd:
        store.put(f"d/{name}", name.encode())
    huge = b"<ListBucketResult><Name>b</Name>%s</ListBucketResult>" % b"".join(
        b"<Contents><Key>d/%s</Key><Size>%s</Size><ETag>e</ETag></Contents>" % pair
        for pair in [(b"huge", b"18446744073709551615"), (b"neg", b"-1"), (b"words", b"many"), (b"fine", b"1")])
    with store.serving() as endpoint:
        with mounted("s3://b/d", *public(endpoint)) as mnt:
            for folder, names, files in os.walk(mnt):
                for name in [*names, *files]:
                    assert name not in (".", "..") and all(byte >= 32 for byte in os.fsencode(name)), name
                for name in files:
                    if "/.shardfs" not in folder:
                        assert Path(folder, name).read_bytes().decode() in odd
        store.faults = [lambda handler: "list-type=2" in handler.path and handler.answer(200, huge) is None]
        done = run("ls", "-l", "s3://b/d/", *quick(endpoint))
        assert "panicked" not in str(done.stderr) and "18446744073709551615" not in str(done.stdout)


# --- the cache on disk -------------------------------------------------------------------------


def cached(url, endpoint, folder):
    options = ("--no-sign-request", f"--endpoint-url={endpoint}", f"--disk-cache={folder}")
    return run("cat", url, *options, check=True).stdout


def test_two_servers_with_one_url_share_nothing_on_disk(tmp_path):
    one, two = Store(), Store()
    one.put("x.bin", b"a" * 1_000_000)
    two.put("x.bin", b"b" * 1_000_000)
    # The same tag for both.
    body, _, when = two.objects["b"]["x.bin"]
    two.objects["b"]["x.bin"] = (body, one.objects["b"]["x.bin"][1], when)
    with one.serving() as first, two.serving() as second:
        for _ in range(2):
            assert cached("s3://b/x.bin", first, tmp_path / "cache") == b"a" * 1_000_000
            assert cached("s3://b/x.bin", second, tmp_path / "cache") == b"b" * 1_000_000


def test_links_and_other_files_in_the_place_of_blobs(tmp_path):
    store = Store()
    store.put("x.bin", b"a" * 1_000_000)
    cache, secret = tmp_path / "cache", tmp_path / "secret"
    secret.write_bytes(b"s" * 1_000_000)
    with store.serving() as endpoint:
        assert cached("s3://b/x.bin", endpoint, cache) == b"a" * 1_000_000
        blobs = [path for path in cache.rglob("??/*") if path.is_file() and path.parent.name != "tmp"]
        assert blobs

        def planted(plant):
            for path in blobs:
                path.unlink(missing_ok=True)
                plant(path)
            assert cached("s3://b/x.bin", endpoint, cache) == b"a" * 1_000_000
            assert secret.read_bytes() == b"s" * 1_000_000

        planted(lambda path: path.symlink_to(secret))
        planted(lambda path: path.write_bytes(b""))
        planted(lambda path: path.write_bytes(b"s" * 2_000_000))
        planted(os.mkfifo)
        # A folder that leads elsewhere.
        folder = blobs[0].parent
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
        assert cached("s3://b/x.bin", endpoint, cache) == b"a" * 1_000_000


def test_a_full_disk_costs_no_byte(tmp_path):
    store = Store()
    body = os.urandom(6_000_000)
    store.put("x.bin", body)
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M,mode=700", "none", place], check=True)
    try:
        with store.serving() as endpoint:
            for _ in range(2):
                assert cached("s3://b/x.bin", endpoint, place / "cache") == body
            with open(place / "filler", "wb") as file, contextlib.suppress(OSError):
                while file.write(b"f" * 65536):
                    file.flush()
            assert cached("s3://b/x.bin", endpoint, place / "cache") == body
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
