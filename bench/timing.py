"""Mounting, timing, and the table of results."""

import contextlib
import datetime
import mmap
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from support import foreground

from . import ROOT

MIB = 1 << 20
BUFFER = bytearray(MIB)


@contextlib.contextmanager
def mounted(source, mode, *options):
    """A mount by a daemon in the foreground: (mount point, process id)."""
    serve = [f"--serve={mode}"] if mode else []
    with foreground(source, *serve, *options) as (mnt, daemon):
        yield mnt, daemon.pid


def timed(work, *arguments):
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def read_whole(path):
    fd = os.open(path, os.O_RDONLY)
    while os.readv(fd, [BUFFER]):
        pass
    os.close(fd)


def through_map(path, work):
    """What `work` gives for a new map of a file, as an array of its whole words."""
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as m:
        os.close(fd)
        words = np.frombuffer(m, np.uint64, len(m) // 8)
        result = work(words)
        del words
    return result


def map_pages(path):
    """Seconds to map a file, touch each of its pages and unmap it."""
    return timed(through_map, path, lambda words: words[::512].max())


def map_whole(path):
    """Seconds to map a file, read it and unmap it."""
    return timed(through_map, path, np.max)


def map_again(path):
    """Seconds to read a file through a map that was read before."""
    return through_map(path, lambda words: words.max() and timed(words.max))


def read_each(paths):
    for path in paths:
        read_whole(path)


def visit(top):
    """Every name."""
    subprocess.run(["find", top, "-name", "*.none"], check=True, stdout=subprocess.DEVNULL)


def visit_all(top):
    """Every name, and the attributes of every file."""
    subprocess.run(["find", top, "-size", "+0", "-name", "*.none"], check=True, stdout=subprocess.DEVNULL)


def by_turns(rounds, *works):
    """Each work once a round; the times of each."""
    times = [[] for _ in works]
    for _ in range(rounds):
        for work, of in zip(works, times, strict=True):
            of.append(work())
    return times


def settle():
    """Lets a daemon that was just started come to rest: whose processor its threads are on decides what waking them costs."""
    time.sleep(0.05)


def warm(files):
    """Brings files to the page cache."""
    for path in files:
        path.read_bytes()


def touch_memory():
    """Takes a GiB of memory and gives it back, right before work that is measured.

    The host of a virtual machine takes away what is free, two seconds after it became so where free pages are reported,
    and the first to touch it waits for the host: half a second for 200 MB, of one program or of the other.
    """
    np.ones(1 << 30, np.uint8)


class Table:
    def __init__(self):
        self.rows = []

    def add(self, row, who, values, unit, goal="", meets=None):
        middle, low, high = statistics.median(values), min(values), max(values)
        met = "" if meets is None else ("met" if meets(middle) else "MISSED")
        self.rows.append((row, who, f"{middle:.3g} {unit}", f"{low:.3g}..{high:.3g}", goal, met))
        print(" | ".join(self.rows[-1]), flush=True)

    def text(self):
        head = ("work", "by", "median", "spread", "goal", "")
        lines = ["| " + " | ".join(row) + " |" for row in [head, ("---",) * 6, *self.rows]]
        return "\n".join(lines)


def machine():
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // MIB
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return (f"- machine: {os.cpu_count()} cores, {cpu}, {memory} GiB of memory\n"
            f"- kernel: {platform.release()}; load when it began: {os.getloadavg()[0]:.1f}\n"
            f"- cache state: sources warm in the page cache; the mount new for first reads, warm for `again`\n"
            f"- revision: {commit.stdout.strip()}")


def record_table(name, title, command, about, table):
    """Writes what a command measured to bench/record/DATE-NAME.md; gives the path."""
    return record(name, title, f"{command}\n\n{about}\n\n{table.text()}")


def record(name, title, text):
    """Writes a report to bench/record/DATE-NAME.md; gives the path."""
    day = datetime.date.today().isoformat()
    target = ROOT / "bench" / "record" / f"{day}-{name}.md"
    target.write_text(f"# {title}, {day}\n\n{text}\n", encoding="utf-8")
    return target
