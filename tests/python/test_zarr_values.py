"""Stores that zarr-python writes: the elements are those that it reads."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from support import mounted, run


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


@pytest.mark.parametrize("version", [2, 3])
def test_an_index_with_a_mask(tmp_path, version):
    """anndata 0.12 writes the texts of pandas 3 as a group of values and a mask, those of an index too."""
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version)

    def frame(name, index, **attributes):
        made = store.create_group(name, attributes={"encoding-type": "dataframe", "_index": index, "column-order": ["n"]})
        made.create_array("n", data=np.arange(3))
        return made

    def texts(group, name, encoding="nullable-string-array", shape=(3,)):
        made = group.create_group(name, attributes={"encoding-type": encoding, "encoding-version": "0.1.0"})
        made.create_array("values", shape=(3,), chunks=(3,), dtype=str)[:] = np.array(["a", "", "\u00fc"], dtype=object)
        made.create_array("mask", data=np.array([False, True, False]).reshape(shape))

    texts(frame("obs", "_index"), "_index")
    texts(frame("unknown", "i"), "i", "awkward-array")
    texts(frame("two_axes", "i"), "i", shape=(3, 1))
    frame("gone", "i")
    frame("part", "i").create_group("i", attributes={"encoding-type": "categorical"})
    with mounted(tmp_path) as mnt:
        assert [path.name for path in (mnt / "x.zarr").glob("*.parquet")] == ["obs.parquet"]
        table = pq.read_table(mnt / "x.zarr/obs.parquet").to_pydict()
        assert table == {"_index": ["a", None, "\u00fc"], "n": [0, 1, 2]}
        said = [json.loads(line)["message"] for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
    assert sorted(said) == sorted(f'the data frame "{name}" has no table: its index "i": {reason}' for name, reason in (
        ("unknown", "its encoding is not known"), ("two_axes", "it has not one axis"), ("gone", "it is not there"),
        ("part", "a part of it is missing")))
