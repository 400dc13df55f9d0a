"""Reading Parquet files with the programs that people use, and what a table should hold.

What a column holds is said as a list with one entry a row: `None` where it is missing, numbers as the bits of floats
or as integers, `bytes` for texts and bytes, lists for lists. So NaNs compare, and no program's own types are in the way.
"""

import numpy as np

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
            rows.append(inner[starts:starts + length])
            starts += length
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
            # One behind the other, without gaps.
            assert first == end and chunk.compression == "UNCOMPRESSED"
            assert chunk.total_compressed_size == chunk.total_uncompressed_size
            end = first + chunk.total_compressed_size
            assert not large or end % 4096 == 0
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


def assert_same(found, expected, where=""):
    """Names, order and rows of two tables are the same."""
    assert list(found) == list(expected), where
    for name, rows in expected.items():
        assert len(found[name]) == len(rows), f"{where}: {name} has {len(found[name])} rows, not {len(rows)}"
        for at, (a, b) in enumerate(zip(found[name], rows)):
            assert a == b, f"{where}: row {at} of {name} is {a!r}, not {b!r}"
