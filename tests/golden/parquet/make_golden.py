"""make_golden.py: writes Parquet files with pyarrow in every encoding, compression and page version, and expected.json:
the values that pyarrow was given."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).parent
ROWS = 60
rng = np.random.default_rng(3)


def some(values, every=4):
    return [None if number % every == 1 else value for number, value in enumerate(values)]


def columns():
    ints = rng.integers(-100, 100, ROWS).tolist()
    words = [f"word {number % 7} {'é' * (number % 3)}" for number in range(ROWS)]
    blobs = [bytes(rng.integers(0, 256, number % 9, "u1")) for number in range(ROWS)]
    lists = [[float(value) for value in rng.integers(0, 50, number % 5)] for number in range(ROWS)]
    nested = [[None if (row + part) % 7 == 0 else list(range(row, row + part)) for part in range(row % 4)] for row in range(ROWS)]
    pictures = [{"bytes": blob, "path": word} for blob, word in zip(blobs, words)]
    return {
        "bool": pa.array([value > 0 for value in ints]),
        "bool_nulls": pa.array(some([value > 0 for value in ints])),
        "i8": pa.array(ints, pa.int8()),
        "u8": pa.array([abs(value) for value in ints], pa.uint8()),
        "i16": pa.array([value * 300 for value in ints], pa.int16()),
        "u16": pa.array([abs(value) * 600 for value in ints], pa.uint16()),
        "i32": pa.array([value * 10_000_000 for value in ints], pa.int32()),
        "i32_nulls": pa.array(some(ints), pa.int32()),
        "u32": pa.array([abs(value) * 40_000_000 for value in ints], pa.uint32()),
        "i64": pa.array([value * 10**15 for value in ints], pa.int64()),
        "i64_extremes": pa.array([2**63 - 1, -2**63] * (ROWS // 2), pa.int64()),
        "u64": pa.array([abs(value) * 10**17 for value in ints], pa.uint64()),
        "f16": pa.array(np.array(ints, "f2") / 8, pa.float16()),
        "f32": pa.array([value / 8 for value in ints], pa.float32()),
        "f64": pa.array([value / 1024 for value in ints], pa.float64()),
        "f64_nulls": pa.array(some([value / 3 for value in ints]), pa.float64()),
        "same": pa.array([7] * ROWS, pa.int64()),
        "text": pa.array(words),
        "text_nulls": pa.array(some(words)),
        "bytes": pa.array(blobs, pa.binary()),
        "list": pa.array(some(lists, 6), pa.list_(pa.float32())),
        "list_of_nulls": pa.array([some(values, 3) for values in lists], pa.list_(pa.float32())),
        "texts": pa.array([words[:number % 3] for number in range(ROWS)], pa.list_(pa.string())),
        "nested": pa.array(some(nested, 9), pa.list_(pa.list_(pa.int16()))),
        "empty_lists": pa.array([[] for _ in range(ROWS)], pa.list_(pa.int64())),
        "nothing": pa.array([None] * ROWS, pa.float64()),
        "picture": pa.array(some(pictures), pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    }


def value(item):
    if isinstance(item, bytes):
        return {"hex": item.hex()}
    if isinstance(item, dict):
        return value(item["bytes"])
    if isinstance(item, list):
        return [value(part) for part in item]
    return float(item) if isinstance(item, np.floating) else item


NAMES = {"delta": "DELTA_BINARY_PACKED", "length": "DELTA_LENGTH_BYTE_ARRAY", "prefix": "DELTA_BYTE_ARRAY",
         "split": "BYTE_STREAM_SPLIT", "rle": "RLE"}


def encodings(table, kind):
    """An encoding for each leaf that can have this one."""
    chosen = {}
    for name, column in table.items():
        leaf, kinds = name, column.type
        while pa.types.is_list(kinds):
            leaf, kinds = leaf + ".list.element", kinds.value_type
        if pa.types.is_struct(kinds):
            continue
        text = pa.types.is_string(kinds) or pa.types.is_binary(kinds)
        fits = {"delta": pa.types.is_integer(kinds), "length": text, "prefix": text, "rle": pa.types.is_boolean(kinds),
                "split": pa.types.is_floating(kinds) or pa.types.is_integer(kinds)}
        if fits[kind]:
            chosen[leaf] = NAMES[kind]
    return chosen


def main():
    expected = {}
    variants = {"plain": {"use_dictionary": False}, "dictionary": {"use_dictionary": True},
                "fallback": {"use_dictionary": True, "dictionary_pagesize_limit": 40}}
    for codec in ("snappy", "gzip", "zstd", "lz4", "brotli"):
        variants[codec] = {"compression": codec}
    table = columns()
    for kind in NAMES:
        variants[kind] = {"use_dictionary": False, "column_encoding": encodings(table, kind)}
    variants["index"] = {"write_page_index": True, "write_page_checksum": True, "row_group_size": 17}
    variants["old_lists"] = {"use_compliant_nested_type": False}
    for name, options in variants.items():
        for version in ("1.0", "2.0"):
            file = f"{name}_v{version[0]}.parquet"
            made = pa.table(table)
            pq.write_table(made, OUT / file, **{
                "compression": "none", "data_page_version": version, "data_page_size": 96, "write_batch_size": 7,
                "store_schema": False, "write_statistics": name == "index", **options})
            assert pq.read_table(OUT / file).num_rows == ROWS
            expected[file] = {"readable": name != "brotli"}
    values = {name: [value(item) for item in column.to_pylist()] for name, column in table.items()}
    assert not any(isinstance(item, float) and math.isnan(item) for item in values["f64"])
    lines = [f'  {json.dumps(name)}: {json.dumps(items)}' for name, items in values.items()]
    (OUT / "expected.json").write_text('{"rows": %d, "files": %s,\n "columns": {\n%s\n}}\n' % (ROWS, json.dumps(expected), ",\n".join(lines)))


main()
