"""Servers of shardfs that are always ended again, and requests to them."""

import contextlib
import http.client
import os
import re
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

from .mounts import status_of
from .paths import BIN, TIMEOUT


def certificates(folder):
    """Makes an authority, and a certificate of it for 127.0.0.1: `authority`, `server`, each with a `.key`."""
    def make(name, subject, *options):
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={subject}",
                   "-keyout", folder / f"{name}.key", "-out", folder / name, *options]
        subprocess.run(command, check=True, capture_output=True)

    make("authority", "authority")
    make("server", "127.0.0.1", "-CA", folder / "authority", "-CAkey", folder / "authority.key",
         "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")


class Server:
    """A running `shardfs serve` or `shardfs view`: its first link, its process, and what it printed."""

    def __init__(self, process, out):
        self.process = process
        self._out = out
        deadline = time.monotonic() + TIMEOUT
        while not (found := re.findall(r"https?://\S+(?! is served)(?=\s)", self.printed())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no server: exit {process.poll()}\n{self.printed()}")
            time.sleep(0.01)
        self.links = found
        split = urlsplit(found[0])
        self.host, self.port = split.hostname, split.port
        # Trusted certificates, of a server that speaks HTTPS.
        self.trusted = None

    def printed(self):
        """What was printed up to now. The server writes where the file's offset is, so that reading leaves it alone."""
        length = os.fstat(self._out.fileno()).st_size
        return os.pread(self._out.fileno(), length, 0).decode("utf-8", "replace")

    @property
    def url(self):
        return f"http{'s' if self.trusted else ''}://{self.host}:{self.port}"

    def peak_memory(self):
        """The most memory that the process has held, in bytes."""
        return status_of(self.process.pid)["VmHWM"]

    def connect(self):
        if self.trusted:
            context = ssl.create_default_context(cafile=self.trusted)
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT, context=context)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        return contextlib.closing(connection)

    def ask(self, path, method="GET", body=None, **headers):
        """One request: (status, headers, body). Underscores in names of headers are dashes."""
        with self.connect() as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=named)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path, **headers):
        """The body of what is there."""
        status, _, body = self.ask(path, **headers)
        assert status == 200, (path, status, body)
        return body


@contextlib.contextmanager
def serving(source, *options, command="serve", env=(), listen="127.0.0.1:0", as_user=None, cwd=None,
            within=(), program=BIN):
    """`shardfs serve SOURCE` on a free port of this machine; `within` is a command that runs another one."""
    options = ("--listen", listen, *options) if command == "serve" else options
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*within, program, command, os.fspath(source), *map(os.fspath, options)],
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env={**os.environ, **dict(env)}, cwd=cwd, user=as_user, group=as_user,
                                   extra_groups=None if as_user is None else [])
        try:
            yield Server(process, out)
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def address(path, prefix="/files/"):
    """The address of a path below SOURCE, whatever bytes its names have."""
    names = os.fsencode(Path(path))
    return prefix + ("" if names == b"." else quote(names, safe=b"/"))
