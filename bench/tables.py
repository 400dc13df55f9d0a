"""Tables against the arrays that they show and against Parquet files that pyarrow wrote: scans, counts, a few rows, one
row group, how much is decoded, and how long a wide footer takes."""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from support.writers import channel, idv, kas, meta_blocks, write_shard

from .timing import Table, by_turns, machine, mounted, record_table, timed

# Rows of a block of the compressed table.
BLOCK = 1 << 17


class Files:
    """A tree sequence and an ML.NET table of many rows, and the same tables as pyarrow writes them."""

    def __init__(self, folder, rows):
        self.top, self.rows = Path(folder), rows
        self.source, self.plain = self.top / f"source-{rows}", self.top / f"plain-{rows}"

    def make(self):
        import pyarrow as pa
        import pyarrow.parquet as pq

        if (self.plain / "done").exists():
            return
        for folder in self.source, self.plain:
            folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(1)
        nodes = {"flags": draw.integers(0, 2, self.rows, dtype="<u4"), "time": draw.random(self.rows),
                 "population": draw.integers(-1, 9, self.rows, dtype="<i4"),
                 "individual": draw.integers(-1, 1000, self.rows, dtype="<i4")}
        store = {"format/name": kas.text("tskit.trees")} | {f"nodes/{name}": array for name, array in nodes.items()}
        (self.source / "x.trees").write_bytes(kas.kastore(store))
        table = pa.table({"id": np.arange(self.rows, dtype="<i4"), **nodes})
        pq.write_table(table, self.plain / "nodes.parquet", compression="none", use_dictionary=False)
        del store, table
        # A tenth of the rows, compressed.
        rows = self.rows // 10
        blocks = lambda array: [array[at:min(at + BLOCK, rows)].tobytes() for at in range(0, rows, BLOCK)]
        stored = {"a": ("Double", "time"), "b": ("Int32", "individual"), "c": ("UInt32", "flags")}
        columns = [idv.Column(name, codec, blocks(nodes[of]), BLOCK, 1) for name, (codec, of) in stored.items()]
        (self.source / "x.idv").write_bytes(idv.file(rows, columns))
        # 100 row groups of 1,000 columns, all of one block that is packed once.
        idv.pack = functools.lru_cache(idv.pack)
        zeros = bytes(BLOCK)
        wide = [idv.Column(f"c{at}", "Byte", [zeros] * 100, BLOCK, 1) for at in range(1000)]
        (self.source / "wide.idv").write_bytes(idv.file(100 * BLOCK, wide))
        write_episodes(self.source / "episodes", 1000)
        (self.plain / "done").touch()


def write_episodes(folder, count):
    """Small episodes of 200 steps."""
    folder.mkdir(exist_ok=True)
    state, reward = np.ones((200, 7), "<f4"), np.ones(200, "<f4")
    for number in range(count):
        blocks = meta_blocks(f"ep{number}", 200, [channel("signal/state", "f32", [7])])
        blocks += [("signal/state", state.tobytes()), ("reward", reward.tobytes())]
        write_shard(folder / f"{number:04}.wshard", blocks)


def many(files, table):
    """The steps of 1,000 episodes as one data set, with containers that were not opened yet, and again."""
    import duckdb
    import polars as pl

    asks = {"duckdb": lambda glob: duckdb.sql(f"select sum(reward) from '{glob}'").fetchall()[0][0],
            "polars": lambda glob: pl.scan_parquet(glob).select(pl.col("reward").sum()).collect().item()}
    for engine, work in asks.items():
        with mounted(files.source, None) as (mnt, _):
            glob = f"{mnt}/episodes/*.wshard/steps.parquet"
            assert work(glob.replace("*.", "000?.")) == 10 * 200
            first, again = timed(work, glob), [timed(work, glob) for _ in range(3)]
            table.add("sum over steps.parquet of 1,000 episodes, first", engine, [first], "s")
            table.add("sum over steps.parquet of 1,000 episodes, again", engine, again, "s")
            assert work(glob) == 1000 * 200


def ask(path, sql):
    import duckdb

    return duckdb.sql(sql.replace("TABLE", f"read_parquet('{path}')")).fetchall()


def scan(engine, path, column):
    if engine == "duckdb":
        return ask(path, f"select sum({column}) from TABLE")[0][0]
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(path).select(pl.col(column).sum()).collect().item()
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return pc.sum(pq.read_table(path, columns=[column])[column]).as_py()


def load_sum(path):
    return np.load(path).sum()


def drop(*paths):
    """Lets the kernel forget the pages of files."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def in_process(code, data=b""):
    """Seconds that `code` says it took in a process of its own, which has nothing opened yet."""
    program = f"import time\nfrom bench.tables import *\n{code}"
    done = subprocess.run([sys.executable, "-c", program], input=data, check=True, capture_output=True)
    return float(done.stdout.split()[-1])


def scans(files, table, rounds):
    """One column of all rows."""
    stored, plain = files.source / "x.trees", files.plain / "nodes.parquet"
    for engine in ("duckdb", "polars", "pyarrow"):
        cold = {"npy": [], "table": []}
        for _ in range(max(2, rounds // 2)):
            for what, relative, work in (("npy", "nodes/time.npy", load_sum),
                                         ("table", "nodes.parquet", lambda path: scan(engine, path, "time"))):
                drop(stored)
                with mounted(files.source, None, "--cache-size=2G") as (mnt, _):
                    cold[what].append(timed(work, mnt / "x.trees" / relative))
        ratio = [a / b for a, b in zip(cold["npy"], cold["table"], strict=True)]
        table.add("sum of a column, cold; np.load and sum = 1", engine, ratio, "x", ">= 0.5", lambda v: v >= 0.5)
        with mounted(files.source, None, "--cache-size=2G") as (mnt, _):
            npy, parquet = mnt / "x.trees/nodes/time.npy", mnt / "x.trees/nodes.parquet"
            works = (lambda: timed(load_sum, npy), lambda: timed(scan, engine, parquet, "time"),
                     lambda: timed(scan, engine, plain, "time"))
            by_turns(1, *works)
            array, mount, disk = by_turns(rounds, *works)
            table.add("sum of a column, warm", engine, mount, "s")
            table.add("the same of pyarrow's file", engine, disk, "s")
            table.add("sum of a column, warm; np.load and sum = 1", engine,
                      [a / b for a, b in zip(array, mount, strict=True)], "x", ">= 0.5", lambda v: v >= 0.5)
            table.add("sum of a column, warm; pyarrow's file = 1", engine,
                      [a / b for a, b in zip(disk, mount, strict=True)], "x", ">= 0.8", lambda v: v >= 0.8)


def few(files, table, rounds):
    """Questions that need little of a table."""
    middle = files.rows // 2
    with mounted(files.source, None, "--cache-size=2G") as (mnt, _):
        parquet, plain = mnt / "x.trees/nodes.parquet", files.plain / "nodes.parquet"
        for what, sql in {"count(*)": "select count(*) from TABLE", "limit 5": "select * from TABLE limit 5",
                          "where id between":
                          f"select sum(time) from TABLE where id between {middle} and {middle + 99}"}.items():
            works = (lambda sql=sql: timed(ask, parquet, sql), lambda sql=sql: timed(ask, plain, sql))
            by_turns(2, *works)
            mount, disk = by_turns(3 * rounds, *works)
            table.add(f"{what}, warm", "duckdb", [1000 * t for t in mount], "ms")
            table.add(f"{what}, pyarrow's file = 1", "duckdb", [a / b for a, b in zip(mount, disk, strict=True)], "x",
                      "<= 2", lambda v: v <= 2)


def decoded(files, table):
    """How many bytes are decoded for a question that needs one column."""
    with mounted(files.source, None, "--cache-size=2G") as (mnt, _):
        def so_far():
            return json.loads((mnt / ".shardfs/stats.json").read_text())["cache"]["decoded_bytes"]

        scan("duckdb", mnt / "x.idv/table.parquet", "b")
        column = files.rows // 10 * 4
        table.add("bytes decoded for one of three compressed columns; its size = 1", "duckdb", [so_far() / column], "x",
                  "<= 1.1", lambda v: v <= 1.1)


def footer(path):
    """The bytes of a footer, with its length and the magic."""
    with open(path, "rb") as file:
        size = file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(size - length)
        return file.read()


def footers(files, table, rounds):
    """Opening 1,000 columns in 100 row groups: by pyarrow, the part of it that is the mount's, and pyarrow's parser."""
    first, again, made, read, parsed = [], [], [], [], []
    for _ in range(rounds):
        with mounted(files.source, None) as (mnt, _):
            path = mnt / "wide.idv/table.parquet"
            # Its size takes the layout, and its last bytes the whole footer.
            made.append(1000 * timed(footer, path))
            read.append(1000 * timed(footer, path))
            data = footer(path)
        code = ("import io, sys, pyarrow.parquet as pq\ndata = sys.stdin.buffer.read()\nstart = time.perf_counter()\n"
                "pq.read_metadata(io.BytesIO(data))\nprint(time.perf_counter() - start)")
        parsed.append(1000 * in_process(code, b"PAR1" + data))
        with mounted(files.source, None) as (mnt, _):
            path = str(mnt / "wide.idv/table.parquet")
            code = ("import pyarrow.parquet as pq\nstart = time.perf_counter()\n"
                    f"meta = pq.read_metadata({path!r})\n"
                    "assert (meta.num_columns, meta.num_row_groups) == (1000, 100)\nprint(time.perf_counter() - start)")
            first.append(1000 * in_process(code))
            again.append(1000 * in_process(code))
    table.add("footer of 1,000 columns and 100 row groups, first", "pyarrow", first, "ms")
    table.add("footer of 1,000 columns and 100 row groups, again", "pyarrow", again, "ms", "< 50 ms", lambda v: v < 50)
    table.add("of this, laid out, made and read, no parser", "pread", made, "ms")
    table.add("of this, read again, no parser", "pread", read, "ms")
    table.add("of this, the parser, on the same bytes in memory", "pyarrow", parsed, "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-tables")
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", metavar="WHAT")
    parser.add_argument("--make", action="store_true", help="make the files and end")
    arguments = parser.parse_args()
    about, files, table = machine(), Files(arguments.dir, arguments.rows), Table()
    files.make()
    if arguments.make:
        return
    start = time.perf_counter()
    few(files, table, arguments.rounds)
    decoded(files, table)
    many(files, table)
    footers(files, table, arguments.rounds)
    scans(files, table, arguments.rounds)
    if arguments.record:
        command = "scripts/bench_tables " + " ".join(sys.argv[1:])
        command = f"`{command}`, {time.perf_counter() - start:.0f} s"
        print(record_table(arguments.record, "Tables", command, about, table))


if __name__ == "__main__":
    main()
