"""What all benchmarks of formats share: own work and another program's by turns, and a table with the goal of each row."""

import contextlib
import os
import shutil
import socketserver
import subprocess
import tempfile
import time
from pathlib import Path

from support.mounts import foreground, peak_memory
from support.stores import KEYS, Store

from .timing import machine, record, settle

__all__ = ["ROUNDS", "Rows", "closed", "copies", "far", "fresh", "on_one_core", "once", "peak_memory", "seconds", "timed"]

ROUNDS = 5


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def once(path, write):
    """A file or folder that is written if it is not there."""
    path = Path(path)
    if not path.exists():
        begun = path.with_name(path.name + ".begun")
        subprocess.run(["rm", "-rf", begun], check=True)
        write(begun)
        os.rename(begun, path)
    return path


@contextlib.contextmanager
def fresh(source, *options):
    """A mount with no open container and nothing decoded."""
    with foreground(source, *options) as (mnt, _):
        settle()
        yield Path(mnt)


@contextlib.contextmanager
def copies(path, count=ROUNDS + 1):
    """Copies of a file or folder, of which a program that keeps what it has decoded has seen none."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = [Path(folder) / f"{number}{path.suffix}" for number in range(count)]
        for copy in made:
            shutil.copytree(path, copy) if path.is_dir() else copy.write_bytes(path.read_bytes())
        # Files that were written a moment ago are not opened at once.
        time.sleep(0.2)
        yield iter(made)


@contextlib.contextmanager
def closed(path, look):
    """Copies of a file in a mount that runs, all closed: of another one `look` has been taken."""
    with copies(path) as left:
        made = [next(left) for _ in range(ROUNDS + 1)]
        # Programs that go through a folder in order have the next ones opened ahead.
        made = made[::2] + made[1::2][::-1]
        with fresh(made[0].parent) as mnt:
            look(mnt / made[0].name)
            yield (mnt / copy.name for copy in made[1:])


@contextlib.contextmanager
def on_one_core():
    """This process and those that it starts run on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Far:
    """A bucket with a round trip of 20 ms: what is asked, and mounts of it."""

    def __init__(self, store, endpoint, cache, delay):
        self.store, self.endpoint, self.cache, self.times = store, endpoint, cache, []

        def answer_late(_):
            begin = time.perf_counter()
            time.sleep(delay)
            self.times.append((time.perf_counter(), begin))

        store.faults.append(answer_late)

    def mounted(self, path=""):
        return fresh(f"s3://b{path}", f"--endpoint-url={self.endpoint}", f"--disk-cache={self.cache}")

    def requests(self):
        """Requests since the last call."""
        return sum(self.store.counts())

    def round_trips(self):
        """Most requests since the last call of which each began after the one before had been answered."""
        count = last = 0
        for end, begin in sorted(self.times):
            if begin >= last:
                count, last = count + 1, end
        self.times.clear()
        return count


@contextlib.contextmanager
def far(files, delay=0.02):
    """A bucket of files: pairs of a key and the path of a file."""
    store = Store()
    for key, path in files:
        store.put(key, Path(path).read_bytes())
    os.environ.update(KEYS)
    socketserver.BaseServer.handle_error = lambda *_: None
    with store.serving() as endpoint, tempfile.TemporaryDirectory(prefix="shardfs-bench-") as cache:
        yield Far(store, endpoint, cache, delay)


class Rows:
    """The table."""

    def __init__(self):
        self.lines = []

    def _add(self, *cells):
        self.lines.append(cells)
        print(" | ".join(cells), flush=True)

    def ratio(self, work, own, other, goal, most=None, least=None, rounds=ROUNDS):
        """Seconds of both by turns: each work gives its seconds. `most`: of own to other; `least`: of other to own."""
        times = [], []
        for _ in range(rounds):
            times[0].append(own())
            times[1].append(other())
        # The best: what other programs of the machine take away is no part of either.
        mine, others = map(min, times)
        is_met = mine <= most * others if most is not None else others >= least * mine
        shown = f"{mine / others:.2f}" if most is not None else f"1 / {others / mine:.2f}"
        self._add(work, seconds(mine), seconds(others), shown, goal, "met" if is_met else "MISSED")
        return mine, others

    def value(self, work, value, unit, goal, is_met):
        shown = seconds(value) if unit == "s" else f"{value:,.4g} {unit}"
        self._add(work, shown, "", "", goal, "met" if is_met else "MISSED")

    def note(self, work, text):
        self._add(work, text, "", "", "", "")

    def text(self):
        head = ("work", "shardfs", "beside it", "ratio", "goal", "")
        return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ("---",) * 6, *self.lines])

    def record(self, name, title, command, about):
        about = f"{about}; at a niceness of {os.nice(0)}"
        text = f"`{command}`: {about}\n\n{machine()}\n\n{self.text()}"
        print(record(name, title, text))


def seconds(value):
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
