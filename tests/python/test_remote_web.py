"""Web servers, WebDAV and the Hugging Face Hub: what is shown is what the same files in a folder are."""

import concurrent.futures
import contextlib
import errno
import functools
import gzip
import http.server
import io
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from support import FAMILIES, FIXTURES, GOLDEN, daemon_of, mounted, run, serving, walk_files
from support.stores import Hub, Store, caddy, nginx, python_server
from test_remote import assert_same_trees, public


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No bytes of objects from one test to another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with all golden files and the examples."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(FIXTURES, folder / "fixtures")
    for family in FAMILIES:
        shutil.copytree(GOLDEN / family, folder / "golden" / family)
    odd = folder / "odd & <names>"
    odd.mkdir()
    for name in ("a b", "50%", "ü", "x?y#z", "plus+"):
        (odd / name).write_text(name)
    os.chmod(folder, 0o755)
    return folder


@pytest.fixture(scope="module")
def server(served):
    with nginx(served) as address:
        yield address


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_files_are_the_same_through_http(server, served, family):
    with (mounted(f"{server}/json/golden/{family}/", "--detect=content") as there,
          mounted(served / "golden" / family) as here):
        assert_same_trees(there, here)


@pytest.mark.parametrize("way", ["", "json/"])
def test_examples_are_the_same_through_nginx(server, served, way):
    with mounted(f"{server}/{way}fixtures/", "--detect=content") as there, mounted(served / "fixtures") as here:
        assert_same_trees(there, here)
    with mounted(f"{server}/{way}odd%20&%20%3Cnames%3E/") as mnt:
        found = {path.read_text() for path in mnt.iterdir()}
        assert found == {"a b", "50%", "ü", "x?y#z", "plus+"}


def test_examples_are_the_same_through_caddy(served):
    with (caddy(served) as address, mounted(f"{address}/fixtures/", "--detect=content") as there,
          mounted(served / "fixtures") as here):
        assert_same_trees(there, here)


def test_one_file_by_range(server):
    local = run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
    for way in ("", "noindex/", "norange/"):
        url = f"{server}/{way}fixtures/ep_001.wshard/signal/joint_pos.npy"
        assert run("cat", url, check=True).stdout == local, way
    folder = run("ls", f"{server}/noindex/fixtures/")
    assert folder.returncode == 1 and len(folder.stderr.splitlines()) == 1


def test_servers_without_tags_and_ranges(served):
    with python_server(served) as address:
        local = run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
        url = f"{address}/fixtures/ep_001.wshard/signal/joint_pos.npy"
        assert run("cat", url, check=True).stdout == local
        with mounted(f"{address}/fixtures/", "--detect=content") as there, mounted(served / "fixtures") as here:
            assert_same_trees(there, here)


def test_printed_addresses_can_be_given_back(tmp_path):
    names = ["b#c.npz", "b?c.npz", "50%.npz", "%41.npz", "a b+ü.npz"]
    (tmp_path / "d e").mkdir()
    for name in names:
        np.savez(tmp_path / "d e" / name, x=np.arange(3))
    with python_server(tmp_path) as address:
        urls = [f"{address}/d%20e/{urllib.parse.quote(name, safe='')}" for name in names]
        found = run("find", address, check=True).stdout.decode().split()
        assert sorted(found) == sorted(urls)
        assert f"{len(names)} containers" in run("verify", *found, check=True).stdout.decode()
        listed = run("ls", "-R", address, check=True).stdout.decode().split("\n")
        assert {f"{url}/x.npy" for url in urls} < set(listed)
        for url in urls:
            assert run("cat", f"{url}/x.npy", check=True).stdout


def test_a_name_that_the_server_fails_for_is_listed():
    """Its size is asked for in vain: left out, it would be taken for a file that was removed."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_HEAD(self):
            if self.path == "/bad.bin":
                self.send_error(500)
            else:
                super().do_HEAD()

        def log_message(self, *_):
            pass

    def names():
        with os.scandir(mnt) as entries:
            return sorted(entry.name for entry in entries)

    with tempfile.TemporaryDirectory() as folder:
        for name in ("bad.bin", "good.bin"):
            Path(folder, name).write_text(name)
        with (http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server,
              concurrent.futures.ThreadPoolExecutor() as pool):
            pool.submit(server.serve_forever)
            try:
                with mounted(f"http://127.0.0.1:{server.server_port}/", "--retries=1") as mnt:
                    assert names() == names() == ["bad.bin", "good.bin"]
                    assert (mnt / "good.bin").read_text() == "good.bin"
                    with pytest.raises(OSError) as error:
                        (mnt / "bad.bin").stat()
                    assert error.value.errno == errno.EIO
                    done = subprocess.run(["ls", "-l", mnt], capture_output=True, text=True)
                    assert done.returncode == 1 and "good.bin" in done.stdout and "Input/output error" in done.stderr
                with serving(f"http://127.0.0.1:{server.server_port}/", "--retries=1") as served:
                    listed = json.loads(served.ask("/files/", Accept="application/json")[2])
                    assert [(entry["path"], entry["size"]) for entry in listed] == [("bad.bin", None), ("good.bin", 8)]
                    assert b'<a href="/files/bad.bin">' in served.ask("/files/")[2]
                    assert served.ask("/files/bad.bin")[0] == 500
                    # WebDAV has no way to say that of one name.
                    assert served.ask("/dav/", "PROPFIND", Depth="1")[0] == 500
            finally:
                server.shutdown()


def test_a_file_that_changes_is_noticed(tmp_path):
    (tmp_path / "file.bin").write_bytes(b"a" * 3_000_000)
    os.chmod(tmp_path, 0o755)
    with nginx(tmp_path) as address, mounted(f"{address}/json/", "--dir-ttl=1h") as mnt:
        with open(mnt / "file.bin", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 4096, 0) == b"a" * 4096
            (tmp_path / "new").write_bytes(b"b" * 3_000_000)
            os.utime(tmp_path / "new", (1, 1))
            (tmp_path / "new").rename(tmp_path / "file.bin")
            with pytest.raises(OSError) as error:
                os.pread(file.fileno(), 4096, 2_900_000)
            assert error.value.errno == errno.ESTALE


def test_passwords_are_asked_for_and_never_shown(server, tmp_path):
    secret = server.replace("http://", "http://joe:geheim@") + "/private/fixtures/"
    nobody = run("ls", f"{server}/private/fixtures/")
    assert nobody.returncode == 1 and "401" in nobody.stderr
    wrong = run("ls", secret.replace("geheim", "falsch"))
    assert wrong.returncode == 1 and "falsch" not in wrong.stderr
    log = tmp_path / "log"
    with mounted(secret, f"--log-file={log}", "--log-level=trace", "--detect=content") as mnt:
        shown = (mnt / "ep_001.wshard/signal/joint_pos.npy").read_bytes()
        process = daemon_of(mnt)
        seen = [(mnt / ".shardfs" / name).read_text() for name in ("config.json", "stats.json", "problems.jsonl")]
        seen += [log.read_text(), Path("/proc/self/mounts").read_text(), run("status").stdout.decode()]
        seen.append((Path("/proc") / str(process) / "cmdline").read_bytes().decode())
        seen.append(subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout.decode())
    assert shown == run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
    for text in seen:
        assert "geheim" not in text


def test_keys_are_never_shown(tmp_path):
    store = Store()
    store.put("d/ep.wshard", (FIXTURES / "ep_001.wshard").read_bytes())
    log = tmp_path / "log"
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AKLAB\naws_secret_access_key = geheimnis\n"
                                          "aws_session_token = geheimtoken\n")
    env = {**os.environ, "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    with store.serving() as endpoint:
        mnt = tmp_path / "mnt"
        mnt.mkdir()
        run("mount", "s3://b/d", mnt, f"--endpoint-url={endpoint}", "--profile=lab", f"--log-file={log}",
            "--log-level=trace", env=env, check=True)
        try:
            (mnt / "ep.wshard/signal/joint_pos.npy").read_bytes()
            store.faults = [lambda handler: handler.fail(403, "AccessDenied") or True]
            with pytest.raises(OSError):
                os.listdir(mnt / "nothing")
            seen = [(mnt / ".shardfs" / name).read_text() for name in ("config.json", "stats.json", "problems.jsonl")]
            seen += [log.read_text(), run("status").stdout.decode()]
        finally:
            run("umount", mnt, check=True)
    signed = [headers for headers in store.headers if "AKLAB" in headers.get("authorization", headers.get("Authorization", ""))]
    assert signed, "the profile's keys were not used"
    for text in seen:
        assert "geheim" not in text


@pytest.mark.parametrize("prefix,kind", [("hf://", "models"), ("hf://spaces/", "spaces")])
def test_models_and_spaces_of_the_hub(prefix, kind):
    hub = Hub()
    hub.kind = kind
    for name in ("model.safetensors", "model.gguf"):
        hub.put(f"sub/{name}", (FIXTURES / name).read_bytes())
    with hub.serving() as endpoint:
        option = f"--endpoint-url={endpoint}"
        assert run("ls", f"{prefix}owner/name/sub", option, check=True).stdout.split() == [b"model.gguf", b"model.safetensors"]
        path = "model.safetensors/lm_head.weight.npy"
        there = run("cat", f"{prefix}owner/name/sub/{path}", option, check=True).stdout
        assert there == run("cat", FIXTURES / path, check=True).stdout


def test_data_sets_of_the_hub():
    hub = Hub()
    for name in ("ep_001.wshard", "demo.kdb", "notes.txt"):
        hub.put(f"data/{name}", (FIXTURES / name).read_bytes())
    hub.put("README.md", b"readme")
    with hub.serving() as endpoint:
        option = f"--endpoint-url={endpoint}"
        with mounted("hf://datasets/owner/name", option) as mnt:
            assert sorted(os.listdir(mnt)) == ["README.md", "data"]
            assert sorted(os.listdir(mnt / "data")) == ["demo.kdb", "ep_001.wshard", "notes.txt"]
            assert (mnt / "README.md").read_bytes() == b"readme"
            shown = (mnt / "data/ep_001.wshard/signal/joint_pos.npy").read_bytes()
        local = run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
        assert shown == local
        url = "hf://datasets/owner/name/data/ep_001.wshard/signal/joint_pos.npy"
        assert run("cat", url, option, check=True).stdout == local
        missing = run("ls", "hf://datasets/owner/other", option)
        assert missing.returncode == 1 and "no such data set" in missing.stderr


@pytest.mark.parametrize("name,path", [
    ("pick_and_place", "episodes/1/observation.state.npy"),
    ("pick_rlds", "train/episodes/0/action.npy"),
    ("cells.zarr", "counts.npy"),
])
def test_a_data_set_of_the_hub_is_shown_as_what_it_is(name, path):
    """SOURCE itself is the container: the tree is the one that the same folder has on a disk."""
    hub = Hub()
    for file in (FIXTURES / name).rglob("*"):
        if file.is_file():
            hub.put(str(file.relative_to(FIXTURES / name)), file.read_bytes())
    with hub.serving() as endpoint:
        option = f"--endpoint-url={endpoint}"
        with mounted("hf://datasets/owner/name", option) as mnt, mounted(FIXTURES) as local:
            assert walk_files(mnt) == walk_files(local / name)
            assert (mnt / path).read_bytes() == (local / name / path).read_bytes()
        there = run("ls", "hf://datasets/owner/name", option, check=True).stdout
        assert there == run("ls", FIXTURES / name, check=True).stdout


def test_doctor_says_what_is_missing():
    store = Store()
    store.put("d/x.bin", b"x")
    with store.serving() as endpoint:
        fine = run("doctor", "s3://b/d/", *public(endpoint))
        assert fine.returncode == 0, fine.stderr
        assert b"list" in fine.stdout and b"read" in fine.stdout
        store.faults = [lambda handler: handler.command == "GET" and "?" not in handler.path
                        and (handler.fail(403, "AccessDenied") or True)]
        blocked = run("doctor", "s3://b/d/", *public(endpoint))
        assert blocked.returncode == 1 and b"s3:GetObject" in blocked.stdout
        for url in ("s3://other/", "s3://b/nothing", "s3://b/nothing/", "s3://b/d/y.bin"):
            nowhere = run("doctor", url, *public(endpoint))
            assert nowhere.returncode == 1 and b"no such bucket" in nowhere.stdout, url
            assert b"read" not in nowhere.stdout.partition(b"list")[2]


def test_doctor_looks_at_what_the_url_names():
    store = Store()
    store.put("d/x.bin", b"x")
    store.put("other.bin", b"x")

    def only_below(handler):
        """As a policy that allows one prefix."""
        is_denied = "list-type" in handler.path and "prefix=d%2F" not in handler.path
        return is_denied and (handler.fail(403, "AccessDenied") or True)

    with store.serving() as endpoint:
        for faults in ([], [only_below]):
            store.faults = faults
            for url in ("s3://b/d", "s3://b/d/", "s3://b/d/x.bin"):
                fine = run("doctor", url, *public(endpoint))
                assert fine.returncode == 0 and b"1 objects and 0 folders" in fine.stdout, fine
                assert b"d/x.bin of 1 bytes" in fine.stdout


@contextlib.contextmanager
def reader_of_a_server_that_hangs():
    """A mount, and a process that reads a file of it while the server does not answer."""
    store = Store()
    store.put("d/x.bin", b"x" * 100)
    with store.serving() as endpoint, mounted("s3://b/d", *public(endpoint)) as mnt:
        os.listdir(mnt)
        store.faults = [lambda handler: time.sleep(5) or True]
        with subprocess.Popen(["cat", str(mnt / "x.bin")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reader:
            time.sleep(0.5)
            try:
                yield mnt, reader
            finally:
                reader.kill()


def test_a_server_that_hangs_holds_up_no_umount():
    with reader_of_a_server_that_hangs() as (mnt, reader):
        reader.kill()
        reader.wait(20)
        begin = time.monotonic()
        run("umount", mnt, check=True)
        assert not os.path.ismount(mnt) and time.monotonic() - begin < 20


def test_a_server_that_hangs_can_be_unmounted():
    with reader_of_a_server_that_hangs() as (mnt, _):
        run("umount", "--force", mnt)
        assert not os.path.ismount(mnt)


def test_names_of_zarr_nodes_are_escaped_once(tmp_path):
    """A `%` in the name of a node is one in a key; through a server it is what it is in a folder."""
    group = json.dumps({"zarr_format": 3, "node_type": "group"})
    array = json.dumps({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32", "fill_value": 7,
                        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
                        "chunk_key_encoding": {"name": "default"},
                        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]})
    for name, text in (("", group), ("50% b", group), ("50% b/x%41", array), ("a", array)):
        folder = tmp_path / "data/odd.zarr" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zarr.json").write_text(text)
    chunk = tmp_path / "data/odd.zarr/50% b/x%41/c/1"
    chunk.parent.mkdir()
    chunk.write_bytes(bytes(8))
    for server in (nginx, caddy, python_server):
        with server(tmp_path) as address:
            way = "json/data/" if server is nginx else "data/"
            with mounted(f"{address}/{way}", "--detect=content") as there, mounted(tmp_path / "data") as here:
                assert_same_trees(there, here)
                assert (there / "odd.zarr/50%25 b/x%2541.npy").read_bytes()[-16:] == bytes([7, 0, 0, 0] * 2 + [0] * 8)


@contextlib.contextmanager
def answering(give):
    """A web server that answers as `give(handler)` says: its address, and the requests as (method, path)."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append((self.command, self.path))
            with contextlib.suppress(ConnectionError):
                give(self)

        do_HEAD = do_PROPFIND = do_GET

        def answer(self, status, body=b"", cut=None, **headers):
            self.send_response(status)
            for name, value in {"Content_Length": len(body), "Last_Modified": MODIFIED, **headers}.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[:cut])
                self.close_connection = cut is not None

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


MODIFIED = "Tue, 14 Nov 2023 22:13:20 GMT"
QUICK = ("--no-disk-cache", "--timeout=3s", "--retries=2")


def files_of(files, listed=(), refused=404):
    """Answers with these files, and with folders as listed; other folders are refused."""
    def give(handler):
        path = urllib.parse.unquote(handler.path.partition("?")[0])
        if handler.command == "PROPFIND":
            return handler.answer(405)
        if path in files:
            return handler.answer(200, files[path])
        if path in listed:
            return handler.answer(200, f"<title>Index of {path}</title>{listed[path]}".encode(), Content_Type="text/html")
        return handler.answer(refused)
    return give


def test_addresses_that_differ_in_their_query_are_two_objects(tmp_path):
    """Of the same size, time and tag, as nginx makes tags."""
    def give(handler):
        number = handler.path[-1].encode()
        return handler.answer(200, number * 100, ETag='"same"') if handler.command != "PROPFIND" else handler.answer(405)

    with answering(give) as (address, _):
        for number in (b"1", b"2", b"1"):
            done = run("cat", f"{address}/download?id={number.decode()}", f"--disk-cache={tmp_path / 'blocks'}", check=True)
            assert done.stdout == number * 100
    assert not any(b"id=1" in path.read_bytes() for path in (tmp_path / "blocks").rglob("*") if path.is_file())


def test_a_server_without_ranges_whose_answer_is_always_cut():
    body = bytes(700_000)
    files = files_of({}, {"/d/": '<a href="x.bin">'})

    def give(handler):
        if handler.path == "/d/x.bin" and handler.command != "PROPFIND":
            return handler.answer(200, body, cut=300_000)
        return files(handler)

    with answering(give) as (address, asked):
        done = run("cat", f"{address}/d/x.bin", *QUICK, timeout=30)
        assert done.returncode == 1 and "in 3 attempts" in done.stderr and len(asked) < 20


@pytest.mark.parametrize("refused", [403, 404])
def test_files_by_address_need_no_list(tmp_path, refused):
    names = ("notes.txt", "my notes.txt", "50%.txt", "%41.txt", "line\nline.txt")
    files = {f"/d/{name}": name.encode() for name in names}
    files["/d/my ep.wshard"] = (FIXTURES / "ep_001.wshard").read_bytes()
    with answering(files_of(files, refused=refused)) as (address, _):
        for path, body in files.items():
            url = address + urllib.parse.quote(path)
            if not path.endswith("/my ep.wshard"):
                assert run("cat", url, *QUICK, check=True).stdout == body, path
        run("cp", "-r", f"{address}/d/my%20ep.wshard", tmp_path, *QUICK, check=True)
        run("cp", f"{address}/d/my%20notes.txt", f"{tmp_path}/", *QUICK, check=True)
        assert sorted(os.listdir(tmp_path / "my ep.wshard")) == sorted(walked(FIXTURES / "ep_001.wshard"))
        assert (tmp_path / "my notes.txt").read_text() == "my notes.txt"


def walked(path):
    return run("ls", path, check=True).stdout.decode().split()


@pytest.mark.parametrize("status", [400, 403, 405, 501])
def test_servers_that_refuse_head(status):
    files = files_of({"/d/x.bin": b"hello"}, {"/d/": '<a href="x.bin">'})
    with answering(lambda handler: handler.answer(status) if handler.command == "HEAD" else files(handler)) as (address, _):
        assert run("cat", f"{address}/d/x.bin?sig=1", *QUICK, check=True).stdout == b"hello"
        assert run("ls", f"{address}/d/", *QUICK, check=True).stdout == b"x.bin\n"


def test_a_page_below_every_name():
    """A server that makes lists of keys has one for any name. Files are files there, too."""
    files = {"/d/notes.txt": b"hello", "/d/ep_001.wshard": (FIXTURES / "ep_001.wshard").read_bytes()}
    with answering(files_of(files, {"/d/": '<a href="notes.txt">', "/d/notes.txt/": "", "/d/ep_001.wshard/": ""})) as (address, _):
        assert run("cat", f"{address}/d/notes.txt", *QUICK, check=True).stdout == b"hello"
        assert run("ls", f"{address}/d/ep_001.wshard", *QUICK, check=True).stdout.decode().split() == walked(FIXTURES / "ep_001.wshard")


@pytest.mark.parametrize("command", ["cat", "ls", "info"])
def test_a_damaged_container_by_its_address_is_the_file_that_it_is_here(command, tmp_path):
    here = tmp_path / "bad.wshard"
    here.write_bytes((FIXTURES / "ep_001.wshard").read_bytes()[:100])
    with answering(files_of({"/d/bad.wshard": here.read_bytes()}, {})) as (address, _):
        done, expected = run(command, f"{address}/d/bad.wshard", *QUICK), run(command, here)
        found = done.stdout.replace(f"{address}/d".encode(), bytes(tmp_path))
        assert (done.returncode, found) == (expected.returncode, expected.stdout), done
        assert command != "info" or "bad.wshard: not shown as a Shard container: truncated" in done.stderr, done


@pytest.mark.parametrize("gives_parts", [True, False])
def test_what_a_server_compresses_is_no_content(gives_parts):
    """Although it is asked not to. Files that are compressed themselves are what they are, whatever the server calls that."""
    packed = gzip.compress(b"some text\n" * 100)

    def give(handler):
        if handler.command == "PROPFIND":
            return handler.answer(405)
        named = {"ETag": '"x"', "Content_Encoding": "x-gzip" if handler.path.endswith(".gz") else "gzip"}
        first, _, last = handler.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not gives_parts or not last:
            return handler.answer(200, packed, **named)
        part = packed[int(first):int(last) + 1]
        given = f"bytes {first}-{int(first) + len(part) - 1}/{len(packed)}"
        return handler.answer(206, part, Content_Range=given, **named)

    with answering(give) as (address, _):
        for name in ("text.txt", "arrays.npz", "arrays.npz/x.npy"):
            done = run("cat", f"{address}/{name}", *QUICK)
            assert done.returncode == 1 and done.stdout == b"" and "compresses" in done.stderr, (name, done)
        assert run("cat", f"{address}/text.txt.gz", *QUICK, check=True).stdout == packed


def test_lists_as_servers_write_them(tmp_path):
    """Links are escaped otherwise than here, or whole addresses; no link leads elsewhere."""
    files = {"/y=1/": ["a+b.txt", "a&b.txt", "absolute.txt", "whole.txt", "above.txt", "bare.txt", "blanks.txt"]}
    def give(handler):
        host = handler.headers["Host"]
        page = (f'<a href="./a&#43;b.txt"><a href="a&#x26;b.txt"><a href="/y=1/absolute.txt"><a href="http://{host}/y=1/whole.txt">'
                '<a href="http://other.example/y=1/no.txt"><a href="//other.example/no.txt"><a href="/no.txt"><a href="/y=1/../no">'
                '<a href="../y=1/above.txt"><a href="../no.txt"><a class=x href=bare.txt>bare</a><A HREF = \'blanks.txt\' >blanks</A>'
                '<script>location.href = no.txt; other.href=no.txt</script>')
        there = {f"/y=1/{name}": b"x" for name in files["/y=1/"]}
        return files_of(there, {"/y=1/": page, "/empty/": '<a href="../">'})(handler)

    with answering(give) as (address, _):
        assert run("ls", f"{address}/y%3D1/", *QUICK, check=True).stdout.decode().split() == sorted(files["/y=1/"])
        assert run("ls", f"{address}/empty/", *QUICK, check=True).stdout == b""
    os.chmod(tmp_path, 0o755)
    for name in (b"good.txt", b"lat\xe9.txt"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    with nginx(tmp_path) as address:
        for way in ("", "json/"):
            assert run("ls", f"{address}/{way}", *QUICK, check=True).stdout == b"good.txt\nlat%E9.txt\n", way


def test_serve_says_which_of_its_addresses_is_a_source():
    with serving(FIXTURES) as served:
        done = run("ls", f"{served.url}/", *QUICK)
        assert done.returncode == 1 and "/dav/" in done.stderr
        assert b"ep_001.wshard" in run("ls", f"{served.url}/dav/", *QUICK, check=True).stdout


def test_names_that_no_file_has_by_address(tmp_path):
    """A key is written as it is, also where a file's name escapes it."""
    store = Store()
    keys = ["50%.txt", "50%25.txt", "%41.txt", "line\nline.txt", "x" * 300 + ".txt"]
    for key in keys:
        store.put(f"d/{key}", key.encode())
        store.put(f"d/{key}.wshard", (FIXTURES / "ep_001.wshard").read_bytes())
    with store.serving() as endpoint:
        for key in keys:
            assert run("cat", f"s3://b/d/{key}", *public(endpoint), check=True).stdout == key.encode()
            assert walked_url(f"s3://b/d/{key}.wshard", endpoint) == walked(FIXTURES / "ep_001.wshard")
        run("cp", "-r", "s3://b", tmp_path / "all", *public(endpoint), "--exclude=*.wshard", check=True)
        assert (tmp_path / "all/d/50%25.txt").read_text() == "50%.txt"
        # Without the right to list.
        store.faults = [lambda handler: "list-type" in handler.path and (handler.fail(403, "AccessDenied") or True)]
        assert run("cat", "s3://b/d/50%.txt", *public(endpoint), check=True).stdout == b"50%.txt"


def walked_url(url, endpoint):
    return run("ls", url, *public(endpoint), check=True).stdout.decode().split()


@pytest.mark.parametrize("status,code,said", [(403, "InvalidObjectState", "archived"), (400, "ExpiredToken", "expired"),
                                              (403, "RequestTimeTooSkewed", "clock")])
def test_refusals_say_what_to_do(status, code, said):
    store = Store()
    store.put("d/x.txt", b"x")
    with store.serving() as endpoint:
        store.faults = [lambda handler: "list-type" not in handler.path and (handler.fail(status, code) or True)]
        done = run("cat", "s3://b/d/x.txt", *public(endpoint))
        assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize("answered", [(), ("/d/zarr.json", "/d/notes.txt")])
def test_a_server_that_does_not_answer_is_not_asked_for_each_marker(answered):
    """It goes down between the look at a file and that at its folder. With an answer for one marker, it is asked for all."""
    files = files_of({"/d/notes.txt": b"hello"})
    down = threading.Event()

    def give(handler):
        if handler.path == "/d/":
            down.set()
        handler.answer(503) if down.is_set() and handler.path not in answered else files(handler)

    with answering(give) as (address, asked):
        begun = time.monotonic()
        done = run("cat", f"{address}/d/notes.txt", "--no-disk-cache", "--timeout=2s", *(["--retries=0"] if answered else []))
        assert time.monotonic() - begun < 10
        if answered:
            assert (done.returncode, done.stdout) == (0, b"hello"), done
        else:
            assert done.returncode == 1 and "503" in done.stderr and len(done.stderr.splitlines()) == 1, done
        assert any(path.startswith("/d/.zgroup/") for _, path in asked) == bool(answered)


def test_an_object_in_another_state_at_each_answer():
    """It has changed; it is not of an unknown format."""
    stored, answers = io.BytesIO(), itertools.count()
    np.savez(stored, x=np.zeros(1 << 20))
    data = stored.getvalue()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            first, last = map(int, (self.headers["Range"] or f"bytes=0-{len(data) - 1}")[6:].split("-"))
            part = data[first:last + 1]
            self.send_response(206)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
            self.send_header("ETag", f'"{next(answers)}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(part)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
          concurrent.futures.ThreadPoolExecutor() as pool):
        pool.submit(server.serve_forever)
        try:
            url = f"http://127.0.0.1:{server.server_port}/arrays.npz"
            done = run("ls", "--no-disk-cache", url)
            assert done.returncode == 1
            assert done.stderr == f"shardfs: {url}: the container has changed since this was looked up\n"
        finally:
            server.shutdown()
