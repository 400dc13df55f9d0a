"""What many episodes in one KDB file cost: time to mount, to list, to find the last one, and memory.

    scripts/bench_episodes                prints a report
    scripts/bench_episodes --record DIR   writes it to DIR/episodes-DATE.md too

Writes files of 1,000, 20,000 and 1,000,000 episodes into a temporary folder (some 170 MB), always the same bytes,
and mounts each anew for every measurement. Before each the file's pages are dropped from the page cache, and a new mount
means that the kernel knows no names. Figures are the median of several runs. Needs a built target/release/shardfs
(or SHARDFS_BIN) and numpy.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from support import foreground
from support.mounts import status_of
from support.writers import kdb

from .timing import MIB

COUNTS = (1_000, 20_000, 1_000_000)
RUNS = 3
FRAMES = 2


def episode():
    """Two frames: state and action of one number, a picture of one pixel in each frame."""
    frames = [[kdb.Record("cam", 1, 1, 3, 0, b"\1\2\3")] for _ in range(FRAMES)]
    rows = (np.ones((FRAMES, 1)), np.zeros((FRAMES, 1)), np.zeros(FRAMES), [0] * (FRAMES - 1) + [1])
    return kdb.Episode(frames, embodiment="robot", task="task", success=2, rows=rows)


class Mount:
    """A mount whose daemon is known; `seconds` is how long it took until it answered."""

    def __init__(self, mnt, daemon, seconds):
        self.mnt, self.daemon, self.seconds = mnt, daemon, seconds

    def resident(self):
        """MiB of its own memory."""
        return status_of(self.daemon.pid)["RssAnon"] / MIB


@contextlib.contextmanager
def cold(file, mnt):
    """A new mount of a file whose pages were dropped from the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    before = time.perf_counter()
    with foreground(file, mnt=mnt, stderr=None, env={"RUST_LOG": "error"}) as (_, daemon):
        os.stat(mnt / "episodes")
        yield Mount(mnt, daemon, time.perf_counter() - before)


def timed(run):
    before = time.perf_counter()
    result = run()
    return time.perf_counter() - before, result


def measure(file, count, mnt):
    last = mnt / f"episodes/{count - 1}"
    figures = {}
    add = lambda name, value: figures.setdefault(name, []).append(value)
    for _ in range(RUNS):
        with cold(file, mnt) as mount:
            add("mount, ms", mount.seconds * 1e3)
            add("memory after mounting, MiB", mount.resident())
            seconds, status = timed(lambda: os.stat(last / "meta.json"))
            assert status.st_size > 100
            add("stat of the last meta.json, cold, ms", seconds * 1e3)
            add("the same again, us", min(timed(lambda: os.stat(last / "meta.json"))[0] for _ in range(5)) * 1e6)
            seconds, data = timed((last / "meta.json").read_bytes)
            assert json.loads(data)["position"] == count - 1
            seconds, data = timed((last / "images/cam/001.png").read_bytes)
            add("first picture of the last episode, cold, ms", seconds * 1e3)
            add("memory after looking, MiB", mount.resident())
        with cold(file, mnt) as mount:
            seconds, done = timed(lambda: subprocess.run(f"ls '{mnt}/episodes' | wc -l", shell=True, check=True,
                                                         capture_output=True))
            assert int(done.stdout) == count, done.stdout
            add("`ls episodes \\| wc -l`, s", seconds)
            add("the same, us an episode", seconds / count * 1e6)
            add("memory after listing, MiB", mount.resident())
        with cold(file, mnt) as mount:
            seconds, done = timed(lambda: subprocess.run(f"ls -lU '{mnt}/episodes' | wc -l", shell=True, check=True,
                                                         capture_output=True))
            add("`ls -lU episodes` (every attribute), s", seconds)
            add("memory after that, MiB", mount.resident())
    return {name: statistics.median(values) for name, values in figures.items()}


def report(results, sizes):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    lines = [
        "# Many episodes in one KDB file", "",
        f"{datetime.date.today()}, Linux {platform.release()}, {os.cpu_count()} CPUs ({cpu}), load "
        f"{os.getloadavg()[0]:.1f}. `scripts/bench_episodes`, median of {RUNS} runs.", "",
        "Cache state: the file's pages dropped before each mount, a new mount for each measurement. Memory is RssAnon "
        "of the daemon.", "",
        "| | " + " | ".join(f"{count:,} episodes ({sizes[count] / 1e6:.1f} MB)" for count in results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    for name in next(iter(results.values())):
        lines.append(f"| {name} | " + " | ".join(f"{figures[name]:.3g}" for figures in results.values()) + " |")
    return "\n".join(lines) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--record", metavar="DIR", type=Path)
    record = arguments.parse_args().record
    results, sizes = {}, {}
    with tempfile.TemporaryDirectory(prefix="shardfs-bench-") as folder:
        mnt = Path(folder) / "mnt"
        mnt.mkdir()
        for count in COUNTS:
            file = Path(folder) / f"{count}.kdb"
            kdb.write_many(file, episode(), count)
            sizes[count] = file.stat().st_size
            results[count] = measure(file, count, mnt)
            file.unlink()
    text = report(results, sizes)
    print(text, end="")
    if record:
        record.mkdir(parents=True, exist_ok=True)
        (record / f"episodes-{datetime.date.today()}.md").write_text(text)


if __name__ == "__main__":
    main()
