"""Stores that zarr-python writes: the elements are those that it reads."""

import io

import numpy as np
import pyarrow.parquet as pq
import zarr

from support import run


def read(path):
    return np.load(io.BytesIO(run("cat", path, check=True).stdout))


def test_missing_chunks_of_big_endian_records(tmp_path):
    dtype = np.dtype([("a", ">i2"), ("b", ">f4"), ("u", ">U2"), ("c", "<i4"), ("s", "S3")])
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    fill = np.array((5, 1.5, "a\u00fc", 7, b"xy"), dtype)[()]
    array = store.create_array("r", shape=(5,), chunks=(2,), dtype=dtype, fill_value=fill)
    array[:2] = np.array([(1, 2.5, "xy", 9, b"z")] * 2, dtype)
    assert read(tmp_path / "x.zarr/r.npy").tolist() == array[:].tolist()
    table = pq.read_table(io.BytesIO(run("cat", tmp_path / "x.zarr/r.parquet", check=True).stdout)).to_pydict()
    assert table["a"] == array[:]["a"].tolist() and table["u"] == array[:]["u"].tolist()
