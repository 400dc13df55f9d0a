#!/usr/bin/env python3
"""How long a page's rows take that stand anywhere in a table of 100,000,000 rows. Prints a table for bench/record.

    bench/far_rows.py [ROWS]

Columns: numbers, texts, and vectors of different lengths, all compressed. Each answer has 50 rows of all columns; the blocks
of random rows have to be decoded, those of neighbouring rows are in the cache. Needs target/release/shardfs.
"""

import functools
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from support import serving  # noqa: E402
from support.writers import idv  # noqa: E402

PER_BLOCK = 20_000


def table(path, rows):
    """A table of so many rows; its blocks are alike, so one of each column is compressed."""
    words = idv.texts([None if row % 7 == 3 else f"word {row % 97}" for row in range(PER_BLOCK)])
    vectors = idv.vectors([[row] * (row % 4) for row in range(PER_BLOCK)], lambda values: idv.numbers("q", values))
    parts = {"number": ("Int32", np.arange(PER_BLOCK, dtype="<i4").tobytes()), "word": ("TextSpan", words),
             "vector": (idv.vbuffer("Int64"), vectors)}
    columns = [idv.Column(name, codec, [data] * (rows // PER_BLOCK), PER_BLOCK, kind=1)
               for name, (codec, data) in parts.items()]
    with mock.patch.object(idv, "pack", functools.cache(idv.pack)):
        path.write_bytes(idv.file(rows, columns))


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000_000
    with tempfile.TemporaryDirectory() as folder:
        table(Path(folder) / "large.idv", rows)
        with serving(folder) as server:
            def took(first):
                start = time.perf_counter()
                answer = json.loads(server.get(f"/-/api/rows/large.idv?from={first}&count=50"))
                assert [head["error"] for head in answer["heads"]] == [None] * 3 and len(answer["cells"][1]) == 50
                return 1000 * (time.perf_counter() - start)

            print("| 50 rows | median (worst) ms |")
            print("|---|---|")
            print(f"| the first of all, file just opened | {took(0):.1f} |")
            print(f"| the last of all | {took(rows - 50):.1f} |")
            places = [random.Random(seed).randrange(rows - 100) for seed in range(40)]
            for what, times in (("anywhere", [took(at) for at in places]), ("behind these", [took(at + 50) for at in places])):
                print(f"| {what} | {statistics.median(times):.1f} ({max(times):.1f}) |")


main()
