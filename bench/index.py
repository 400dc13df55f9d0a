"""`shardfs index` over many containers: time and memory of the first run, of one that finds nothing new, and of one that
finds some changed; and of a query of what it wrote."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from support import BIN
from support.writers import channel, meta_blocks, write_shard

from .timing import Table, machine, record_table, timed

# Containers of one folder.
A_FOLDER = 1000
# Containers that are written anew before the last run.
CHANGED = 100


def make(folder, count):
    """Episodes of 20 steps, a thousand in a folder."""
    if (folder / "done").exists():
        return
    state, reward = np.ones((20, 7), "<f4"), np.ones(20, "<f4")
    for number in range(count):
        path = folder / f"task={number % 10}" / f"{number // A_FOLDER:04}" / f"{number:06}.wshard"
        path.parent.mkdir(parents=True, exist_ok=True)
        blocks = meta_blocks(f"ep{number}", 20, [channel("signal/state", "f32", [7])])
        write_shard(path, blocks + [("signal/state", state.tobytes()), ("reward", reward.tobytes())])
    (folder / "done").touch()


def index(source, output):
    """Seconds, and megabytes at most, of a run."""
    start = time.perf_counter()
    child = subprocess.Popen([BIN, "index", "--quiet", source, "-o", output])
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main():
    import duckdb

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-index")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--record", metavar="WHAT")
    arguments = parser.parse_args()
    about, table = machine(), Table()
    source, output = Path(arguments.dir) / f"source-{arguments.count}", Path(arguments.dir) / "index.parquet"
    source.mkdir(parents=True, exist_ok=True)
    make(source, arguments.count)
    output.unlink(missing_ok=True)
    start = time.perf_counter()

    def run(what):
        seconds, memory = index(source, output)
        table.add(f"{what}", "shardfs index", [seconds], "s")
        table.add(f"{what}, memory", "shardfs index", [memory], "MiB")

    run("first run")
    run("nothing has changed")
    for path in sorted(source.rglob("*.wshard"))[:CHANGED]:
        path.write_bytes(path.read_bytes())
    run(f"{CHANGED} have changed")
    ask = lambda: duckdb.sql(f"select task, count(*), sum(steps) from '{output}' group by all").fetchall()
    assert sum(row[1] for row in ask()) == arguments.count
    table.add("a query of the index", "duckdb", [1000 * timed(ask) for _ in range(5)], "ms")
    table.add("size of the index", "shardfs index", [output.stat().st_size / 2**20], "MiB")
    if arguments.record:
        command = "scripts/bench_index " + " ".join(sys.argv[1:])
        command = f"`{command}`, {time.perf_counter() - start:.0f} s"
        print(record_table(arguments.record, "Index of a folder", command, about, table))


if __name__ == "__main__":
    main()
