"""Many clients of one server at once, some of them killed in the middle: nothing wrong, memory flat."""

import contextlib
import http.client
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter

import numpy as np

from .mounts import status_of
from .servers import serving
from .writers.shard import write_shard

CACHE = 64 << 20


def make_source(folder, *, megabytes=8):
    """Files of which every byte is known: {address: bytes}."""
    known = {}
    for number, codec in enumerate(["none", "zstd", "lz4", "zstd", "none", "lz4"]):
        values = np.random.default_rng(number).integers(0, 30, megabytes << 20, dtype=np.uint8).tobytes()
        write_shard(folder / f"{number}.shard", [("x", values)], role=1, codec=codec, quick=True)
        known[f"/files/{number}.shard/.raw/x.bin"] = values
        os.utime(folder / f"{number}.shard", (1_600_000_000, 1_600_000_000))
    plain = np.random.default_rng(99).integers(0, 255, 4 * megabytes << 20, dtype=np.uint8).tobytes()
    (folder / "plain.dat").write_bytes(plain)
    os.utime(folder / "plain.dat", (1_600_000_000, 1_600_000_000))
    return {**known, "/files/plain.dat": plain}


def run_crowd(folder, *, clients, killed, seconds):
    """`clients` that compare every byte with what it has to be, some leaving in the middle, beside `killed` curls at a
    time that are killed. What happened: counts, the first wrong answers, and the server's memory over time."""
    known = make_source(folder)
    counts, wrong, memory = Counter(), [], []
    lock = threading.Lock()
    with serving(folder, "--cache-size", str(CACHE)) as server:
        end = time.monotonic() + seconds

        def note(what, where=None):
            with lock:
                counts[what] += 1
                if where is not None and len(wrong) < 10:
                    wrong.append(where)

        def one(connection, rng):
            path, expected = rng.choice(list(known.items()))
            start = rng.randrange(len(expected))
            stop = min(start + rng.choice([1, 1000, 100_000, 3_000_000]), len(expected))
            connection.request("GET", path, headers={"Range": f"bytes={start}-{stop - 1}"})
            response = connection.getresponse()
            if response.status == 503:
                response.read()
                note("refused")
                return
            if rng.random() < 0.1:
                # Leaves with most of the answer under way.
                part = response.read(min(1000, stop - start))
                connection.close()
                note("left", None if expected.startswith(part, start) else (path, start, "part"))
                return
            body = response.read()
            is_right = response.status == 206 and body == expected[start:stop]
            if is_right:
                note("right")
            else:
                note("wrong", (path, start, stop, response.status, len(body)))

        def client(seed):
            rng = random.Random(seed)
            connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
            with contextlib.closing(connection):
                while time.monotonic() < end:
                    try:
                        one(connection, rng)
                    except (OSError, http.client.HTTPException) as error:
                        note("wrong", repr(error))
                        connection.close()

        def killer(seed):
            rng = random.Random(seed)
            while time.monotonic() < end:
                path = rng.choice(list(known))
                curl = subprocess.Popen(["curl", "-s", "-o", os.devnull, "--limit-rate", "2M", server.url + path])
                time.sleep(rng.random() / 2)
                curl.send_signal(signal.SIGKILL)
                curl.wait()
                note("killed")

        threads = [threading.Thread(target=client, args=[seed]) for seed in range(clients)]
        threads += [threading.Thread(target=killer, args=[-seed - 1]) for seed in range(killed)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            status = status_of(server.process.pid)
            # Pages of mapped files are the kernel's, and given back when it needs them.
            memory.append(status["RssAnon"] + status["RssShmem"])
            threads[0].join(0.25)
            if not threads[0].is_alive():
                for thread in threads:
                    thread.join()
        # It answers as before.
        _, _, body = server.ask("/files/plain.dat", Range="bytes=10-19")
        assert body == known["/files/plain.dat"][10:20]
        descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    return {"counts": dict(counts), "wrong": wrong, "memory": memory, "descriptors": descriptors}
