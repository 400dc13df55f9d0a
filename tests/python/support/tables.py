"""Reading Parquet files with the programs that people use, and what a table should hold.

What a column holds is said as a list with one entry a row: `None` where it is missing, numbers as the bits of floats
or as integers, `bytes` for texts and bytes, lists for lists. So NaNs compare, and no program's own types are in the
way.
"""

import json

import numpy as np

from . import names

# --- programs --------------------------------------------------------------------------------


def of_arrow(table):
    """Name to rows of an Arrow table."""
    return {name: of_array(table.column(at).combine_chunks()) for at, name in enumerate(table.column_names)}


def of_array(array):
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner, starts, rows = of_array(array.flatten()), 0, []
        for length in pc.list_value_length(array).to_pylist():
            rows.append(None if length is None else inner[starts:starts + length])
            starts += length or 0
        return rows
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_floating(kind):
        flat = array.fill_null(0).to_numpy(zero_copy_only=False)
        bits = flat.view("<u8" if flat.dtype.itemsize == 8 else "<u4").tolist()
        return [value if there else None for value, there in zip(bits, array.is_valid().to_pylist())]
    return [value.encode() if isinstance(value, str) else value for value in array.to_pylist()]


def duckdb_rows(path, columns="*"):
    import duckdb
    import pyarrow.parquet as pq

    with duckdb.connect() as connection:
        table = connection.sql(f"select {columns} from read_parquet('{path}')").to_arrow_table()
    if columns == "*":
        # Names that differ in case alone are the same to it: it numbers them.
        table = table.rename_columns(pq.read_schema(path).names)
    return of_arrow(table)


def polars_eager(path):
    import polars as pl

    return of_arrow(pl.read_parquet(path).to_arrow())


def polars_scan(path):
    import polars as pl

    return of_arrow(pl.scan_parquet(path).collect(engine="streaming").to_arrow())


def pyarrow_threads(path):
    import pyarrow.parquet as pq

    return of_arrow(pq.read_table(path, use_threads=True))


def pyarrow_mapped(path):
    import pyarrow.parquet as pq

    return of_arrow(pq.ParquetFile(path, memory_map=True).read())


def pyarrow_dataset(path):
    import pyarrow.dataset as ds

    return of_arrow(ds.dataset(path, format="parquet").to_table())


def pandas_rows(path):
    import pandas as pd
    import pyarrow as pa

    frame = pd.read_parquet(path, dtype_backend="pyarrow")
    return of_arrow(pa.Table.from_pandas(frame, preserve_index=False))


READERS = {reader.__name__: reader for reader in (
    duckdb_rows, polars_eager, polars_scan, pyarrow_threads, pyarrow_mapped, pyarrow_dataset, pandas_rows)}


def check_footer(path):
    """A strict look at a file: what its footer says agrees with itself and with the file."""
    import pyarrow.parquet as pq

    meta = pq.read_metadata(path)
    size, end = path.stat().st_size, 4
    large = meta.num_row_groups and meta.row_group(0).total_byte_size >= meta.num_columns * 32768
    if large:
        end = 4096
    assert meta.created_by.startswith("shardfs version ")
    assert meta.num_columns <= 10_000 and len(set(meta.schema.to_arrow_schema().names)) == meta.num_columns
    for group in range(meta.num_row_groups):
        rows = meta.row_group(group)
        for at in range(rows.num_columns):
            chunk = rows.column(at)
            first = chunk.data_page_offset
            if chunk.has_dictionary_page:
                first = chunk.dictionary_page_offset
                assert first < chunk.data_page_offset
            # One behind the other; if they are large, each begins a page of memory.
            assert first == end and chunk.compression == "UNCOMPRESSED"
            assert chunk.total_compressed_size == chunk.total_uncompressed_size
            end = first + chunk.total_compressed_size
            if large:
                end += -end % 4096
    assert sum(meta.row_group(at).num_rows for at in range(meta.num_row_groups)) == meta.num_rows
    assert end + (65536 if large else 0) + meta.serialized_size + 8 == size
    return meta


# --- what numpy says -------------------------------------------------------------------------

# Ticks of 100 ns from the year 1 to 1970.
EPOCH = 621355968000000000


def of_numpy(array):
    """An array whose first axis are the rows, as the rows of a column."""
    if array.dtype == np.float16:
        array = array.astype("<f4")
    if array.dtype.kind == "f":
        array = array.view(f"<u{array.dtype.itemsize}")
    if array.dtype.kind == "b":
        return array.reshape(len(array), -1).tolist() if array.ndim > 1 else array.tolist()
    if array.ndim > 2:
        array = array.reshape(len(array), -1)
    return array.tolist()


def plain_names(table):
    """The names as a table should have them: none is empty, none has control characters, no two are the same."""
    renamed = {}
    for name, rows in table.items():
        plain = name and name.isprintable() and len(name.encode()) <= 255
        base = new = name if plain else names.file_part(name.encode(), b"").decode()
        number = 2
        while new in renamed:
            new, number = f"{base}%_{number}", number + 1
        renamed[new] = rows
    return renamed


# --- what other formats have as tables ---------------------------------------------------------

TREE_SEQUENCE_TABLES = ("nodes", "edges", "sites", "mutations", "migrations", "individuals", "populations",
                        "provenances")
TEXTS = ("ancestral_state", "derived_state", "record", "timestamp")

# `column_names` of tskit 1.0.3's tables, without offsets.
TREE_SEQUENCE_COLUMNS = {
    "nodes": ("time", "flags", "population", "individual", "metadata"),
    "edges": ("left", "right", "parent", "child", "metadata"),
    "sites": ("position", "ancestral_state", "metadata"),
    "mutations": ("site", "node", "time", "derived_state", "parent", "metadata"),
    "migrations": ("left", "right", "node", "source", "dest", "time", "metadata"),
    "individuals": ("flags", "location", "parents", "metadata"),
    "populations": ("metadata",),
    "provenances": ("record", "timestamp"),
}


def of_store(arrays):
    """The tables of a kastore or KAST: path to columns. `arrays`: key to array."""
    is_trees = "format/name" in arrays and arrays["format/name"].tobytes() == b"tskit.trees"
    groups = {}
    for key, array in sorted(arrays.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")):
        group, slash, name = key.rpartition("/")
        if slash and (not is_trees or group in TREE_SEQUENCE_TABLES):
            groups.setdefault(group, {})[name] = array
    tables = {}
    for group, stored in groups.items():
        schema = stored.pop("metadata_schema", None) if is_trees else None
        schema = json.loads(schema.tobytes()) if schema is not None and len(schema) else {}
        is_json = schema.get("codec") == "json"
        is_ragged = lambda name: name + "_offset" in stored and stored[name + "_offset"].dtype.str in ("<u4", "<u8") \
            and len(stored[name + "_offset"])
        columns, counts = {}, set()
        for name, array in stored.items():
            if name.endswith("_offset") and name[:-7] in stored and is_ragged(name[:-7]):
                continue
            if not is_ragged(name):
                counts.add(len(array))
                columns[name] = of_numpy(array)
                continue
            offsets = stored[name + "_offset"].tolist()
            counts.add(len(offsets) - 1)
            if array.dtype.itemsize == 1:
                data = array.tobytes()
                rows = [data[start:end] for start, end in zip(offsets, offsets[1:])]
                is_text = is_trees and (name in TEXTS or name == "metadata" and is_json)
                columns[name] = [row.decode().encode() for row in rows] if is_text else rows
            else:
                data = of_numpy(array)
                columns[name] = [data[start:end] for start, end in zip(offsets, offsets[1:])]
        if is_trees:
            order = TREE_SEQUENCE_COLUMNS[group]
            columns = dict(sorted(columns.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
        if schema.get("codec") == "struct":
            after = list(columns).index("metadata") + 1
            columns = dict([*columns.items()][:after]) | of_metadata(schema, columns["metadata"])[0] \
                | dict([*columns.items()][after:])
        if len(counts) == 1 and len(columns) >= (1 if is_trees else 2):
            path = names.path(group.encode("utf-8", "surrogateescape"), ".parquet")
            ids = {"id": list(range(counts.pop()))} if is_trees else {}
            tables[path] = plain_names(ids | columns)
    return tables


# The formats of numbers of tskit's codec `struct`.
NUMBERS = {"?": "?", "b": "i1", "B": "u1", "h": "<i2", "H": "<u2", "i": "<i4", "I": "<u4", "l": "<i4", "L": "<u4",
           "q": "<i8", "Q": "<u8", "f": "<f4", "d": "<f8"}


def of_metadata(schema, rows):
    """Columns of metadata with the codec `struct` or `json+struct`, and those that are left out. tskit decodes the rows.

    `schema`: as JSON, `rows`: bytes.
    """
    import tskit

    codec = tskit.MetadataSchema(schema)
    rows = [codec.decode_row(row) for row in rows]
    columns, left_out = {}, set()
    has_json = schema["codec"] == "json+struct"
    schema = schema["struct"] if has_json else schema
    for path, leaf, lengths in fields_of(schema):
        name = ".".join(("metadata", *path))
        form, count = leaf.get("binaryFormat", ""), int(np.prod([n for n in lengths if n is not None], dtype=object))
        is_text, is_bytes = leaf["type"] == "string", form[-1:] in tuple("csp")
        if leaf["type"] == "null" or lengths and is_bytes and not is_text or \
                None in lengths and len(lengths) > 1 or not 0 < count <= 4096:
            left_out.add(name)
            continue
        columns[name] = []
        for row in rows:
            if row is None:
                columns[name].append(None)
                continue
            values = values_of(schema, row, path)
            if is_text:
                values = [value.encode() for value in values]
            elif not is_bytes:
                values = of_numpy(np.array(values, NUMBERS[form]))
            columns[name].append(values if lengths else values[0])
    if has_json:
        # What is not packed, as tskit writes it.
        rest = [{name: value for name, value in row.items() if name not in schema["properties"]} for row in rows]
        columns["metadata.json"] = [tskit.canonical_json(row).encode() for row in rest]
    return columns, left_out


def fields_of(schema, path=(), lengths=()):
    """The values that a schema describes, in stored order: path, schema, and the lengths of the lists around it, which
    are None if they vary."""
    if "object" in schema["type"]:
        properties = sorted(schema["properties"].items(), key=lambda item: (item[1].get("index", 0), item[0]))
        for name, inner in properties:
            yield from fields_of(inner, (*path, name), lengths)
    elif schema["type"] == "array":
        yield from fields_of(schema["items"], path, (*lengths, schema.get("length")))
    else:
        yield path, schema, lengths


def values_of(schema, value, path):
    if "object" in schema["type"]:
        return values_of(schema["properties"][path[0]], value[path[0]], path[1:])
    if schema["type"] == "array":
        return [found for element in value for found in values_of(schema["items"], element, path)]
    return [value]


def of_steps(lanes, steps, rate=None):
    """`steps.parquet` of an episode. `lanes`: stored name to (array, dtype), without pictures."""
    kept = {name: (array, dtype) for name, (array, dtype) in lanes.items()
            if array.ndim and len(array) == steps and 0 < int(np.prod(array.shape[1:], dtype=object)) <= 4096}
    short = [name.removeprefix("signal/") for name in kept]
    columns = {}
    for name, (array, dtype) in kept.items():
        if dtype == "bf16":
            array = (array.astype("<u4") << 16).view("<f4")
        brief = name.removeprefix("signal/")
        columns[brief if short.count(brief) == 1 else name] = of_numpy(array)
    if not columns:
        return None
    made = {"step": list(range(steps))}
    if rate:
        made["time"] = of_numpy(np.arange(steps) / rate)
    renamed = {}
    for name, rows in made.items():
        renamed[name if name not in columns else names.file_part(name.encode(), b"%_2").decode()] = rows
    return renamed | columns


def assert_same(found, expected, where=""):
    """Names, order and rows of two tables are the same."""
    assert list(found) == list(expected), where
    for name, rows in expected.items():
        assert len(found[name]) == len(rows), f"{where}: {name} has {len(found[name])} rows, not {len(rows)}"
        for at, (a, b) in enumerate(zip(found[name], rows)):
            assert a == b, f"{where}: row {at} of {name} is {a!r}, not {b!r}"
