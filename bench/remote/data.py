"""The server, what lies in its bucket `public`, and the proxies before it."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from support.stores import s3_client, seaweedfs
from support.writers import channel, meta_blocks, write_shard

from ..files import signal_like
from ..timing import MIB

LARGE = 256 * MIB
SMALL = 1000
MANY = 10_000

#: The places of the server: milliseconds of round trip, megabytes a second of one connection (0: as fast as it goes).
PLACES = {"0": (0, 0), "20": (20, 0), "20+60": (20, 60)}


def container(path, values, codec="none"):
    """A WShard of one array, `signal/x`."""
    blocks = meta_blocks("bench", len(values), [channel("signal/x", str(values.dtype), [])])
    write_shard(path, [*blocks, ("signal/x", values.tobytes(), 0, codec)], quick=True)


class Data:
    """The objects, also as files below `local`."""

    def __init__(self, top):
        self.top = Path(top)
        self.local = self.top / "local"

    def make(self):
        """The same bytes in each run."""
        if (self.top / "made").exists():
            return
        shutil.rmtree(self.top, ignore_errors=True)
        for folder in ("raw", "zstd", "small", "many"):
            (self.local / folder).mkdir(parents=True)
        rng = np.random.default_rng(1)
        container(self.local / "raw/x.wshard", rng.integers(0, 256, LARGE, dtype=np.uint8))
        container(self.local / "zstd/x.wshard", signal_like(LARGE // 4), "zstd")
        for number in range(SMALL):
            values = rng.integers(0, 256, MIB - 2048, dtype=np.uint8)
            container(self.local / f"small/f{number:04}.wshard", values)
        container(self.top / "one.wshard", np.arange(16, dtype=np.float32))
        for number in range(MANY):
            os.link(self.top / "one.wshard", self.local / f"many/e{number:05}.wshard")
        with self.serving() as endpoint:
            client = s3_client(endpoint)

            def put(path):
                client.put_object(Bucket="public", Key=str(path.relative_to(self.local)), Body=path.read_bytes())

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(put, sorted(path for path in self.local.rglob("*") if path.is_file())))
        (self.top / "made").touch()

    @contextlib.contextmanager
    def serving(self):
        with seaweedfs(self.top / "weed", volume_megabytes=1024) as endpoint:
            # The volumes of an earlier run are found some seconds after the gateway is there.
            end = time.monotonic() + 60
            while (self.top / "made").exists():
                try:
                    s3_client(endpoint).get_object(Bucket="public", Key="raw/x.wshard", Range="bytes=0-0")
                    break
                except Exception:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.5)
            yield endpoint


class Proxy:
    """A proxy before the server: `endpoint`, and what went through it."""

    def __init__(self, process):
        own, self.counts_port = map(int, process.stdout.readline().split())
        self.endpoint = f"http://127.0.0.1:{own}"

    def counts(self):
        """(connections, requests, bytes of answers) since the last call."""
        with socket.create_connection(("127.0.0.1", self.counts_port)) as connection:
            return tuple(map(int, connection.makefile().readline().split()))


@contextlib.contextmanager
def proxies(top, endpoint):
    """A proxy for each of PLACES."""
    program = Path(top) / "proxy"
    source = Path(__file__).with_name("proxy.rs")
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["rustc", "-O", "--edition=2021", source, "-o", program], check=True)
    with contextlib.ExitStack() as stack:
        found = {}
        for name, (milliseconds, rate) in PLACES.items():
            command = [program, endpoint.removeprefix("http://"), str(milliseconds), str(rate)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            found[name] = Proxy(process)
        yield found
