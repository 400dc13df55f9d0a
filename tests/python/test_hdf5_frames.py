"""Tables of HDF5: data frames of AnnData that cannot be tables, or only in part; texts; what is left out."""

import io
import json
import os

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from support import mounted, run
from support.tables import READERS


def frame(file, name, first, order, **columns):
    group = file.create_group(name)
    group.attrs["encoding-type"] = "dataframe"
    if first is not None:
        group.attrs["_index"] = first
    group.attrs["column-order"] = np.array(order, dtype=h5py.string_dtype()) if order else np.zeros(0)
    for key, value in columns.items():
        group[key] = value


def test_a_frame_without_usable_columns_is_no_table(tmp_path):
    names = np.array([b"a", b"b", b"c"])
    with h5py.File(tmp_path / "none.h5ad", "w") as file:
        frame(file, "obs", "index", ["x"], x=np.zeros((3, 2)))    # no index, and a column of two axes
        frame(file, "var", None, [])
    with h5py.File(tmp_path / "some.h5ad", "w") as file:
        frame(file, "obs", "index", ["x", "y"], x=np.arange(3), y=np.zeros((3, 2)))
        frame(file, "var", "index", ["x"], index=names, x=np.zeros((3, 2)))
    with mounted(tmp_path) as mnt:
        assert sorted(os.listdir(mnt / "none.h5ad")) == ["container.json", "obs", "var"]
        assert not (mnt / "none.h5ad/obs.parquet").exists() and (mnt / "none.h5ad/obs/x.npy").exists()
        assert "tables" not in json.loads((mnt / "none.h5ad/container.json").read_text())
        said = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        said = {line["path"]: line["message"] for line in said if line["container"] == "none.h5ad"}
        assert said == {
            "obs/attributes.json": 'the data frame "obs" has no table: no column can be shown; "index": it is not there',
            "var/attributes.json": 'the data frame "var" has no table: it names no columns',
        }
        assert {"obs.parquet", "var.parquet"} <= set(os.listdir(mnt / "some.h5ad"))
        assert pq.read_table(mnt / "some.h5ad/obs.parquet").to_pydict() == {"x": [0, 1, 2]}
        assert pq.read_table(mnt / "some.h5ad/var.parquet").to_pydict() == {"index": ["a", "b", "c"]}


def test_texts_say_no_type_of_numbers(tmp_path):
    """Keys of texts are made here: neither the codes nor the categories have their type."""
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        frame(file, "obs", "index", ["kind", "n"], index=np.array([b"a", b"b"]), n=np.arange(2, dtype="i2"))
        kind = file["obs"].create_group("kind")
        kind.attrs["encoding-type"] = "categorical"
        kind["codes"], kind["categories"] = np.array([0, -1], "i1"), np.array([b"T cell"])
    table = io.BytesIO(run("cat", tmp_path / "x.h5ad/obs.parquet", check=True).stdout)
    assert pq.read_table(table).to_pydict() == {"index": ["a", "b"], "kind": ["T cell", None], "n": [0, 1]}
    said = json.loads(pq.read_metadata(table).metadata[b"shardfs"])["columns"]
    assert "dtype" not in said.get("kind", {}) and said["n"]["dtype"] == "i16"


def test_many_categories_are_texts(tmp_path):
    """More than a dictionary of Parquet may have here: barcodes of cells, of which one occurs twice."""
    barcodes = [f"AAACCCAAGAAA-größe-{row:06}" for row in range(60_000)]
    codes = np.arange(150_000, dtype="i4") * 7 % 60_001 - 1
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        frame(file, "obs", "n", ["cell"], n=np.arange(len(codes)))
        cell = file["obs"].create_group("cell")
        cell.attrs["encoding-type"] = "categorical"
        cell["codes"], cell["categories"] = codes, np.array(barcodes, h5py.string_dtype())
    expected = [None if code < 0 else barcodes[code].encode() for code in codes]
    with mounted(tmp_path) as mnt:
        assert not json.loads((mnt / "x.h5ad/container.json").read_text())["tables"][0].get("left_out")
        for read in READERS.values():
            assert read(mnt / "x.h5ad/obs.parquet")["cell"] == expected
    with h5py.File(tmp_path / "x.h5ad", "r+") as file:
        file["obs/cell/codes"][100] = 60_000
    done = run("cat", tmp_path / "x.h5ad/obs.parquet")
    assert done.returncode == 1 and "category 60000, of 60000" in done.stderr


def test_categories_beside_their_codes(tmp_path):
    """anndata before 0.8 has a group of the categories of all columns."""
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        frame(file, "obs", "_index", ["ct", "batch", "n"], _index=np.array([b"c0", b"c1", b"c2"]),
              ct=np.array([1, 0, -1], "i1"), batch=np.array([0, 1, 1], "i1"), n=np.array([1, 0, 1], "i1"))
        categories = file["obs"].create_group("__categories")
        categories["ct"] = np.array(["B", "T"], h5py.string_dtype())
        categories["batch"] = np.array([2019, 2021])
        for name in categories:
            file["obs"][name].attrs["categories"] = categories[name].ref
    table = run("cat", tmp_path / "x.h5ad/obs.parquet", check=True).stdout
    assert pq.read_table(io.BytesIO(table)).to_pydict() == {
        "_index": ["c0", "c1", "c2"], "ct": ["T", "B", None], "batch": [2019, 2021, 2021], "n": [1, 0, 1]}


def test_columns_whose_names_have_slashes(tmp_path):
    """h5py makes groups of such a name; AnnData and pandas say it whole."""
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        frame(file, "obs", "id/x", ["CD4/CD8 ratio", "a//b/c", "n"], **{
            "id/x": np.array([b"a", b"b"]), "CD4/CD8 ratio": np.array([0.5, 2]), "a//b/c": np.arange(2), "n": np.arange(2)})
    table = run("cat", tmp_path / "x.h5ad/obs.parquet", check=True).stdout
    assert pq.read_table(io.BytesIO(table)).to_pydict() == {
        "id/x": ["a", "b"], "CD4/CD8 ratio": [0.5, 2], "a//b/c": [0, 1], "n": [0, 1]}


@pytest.mark.parametrize("path", ["data/demo_0", "data/demo_1/actions"])
def test_a_damaged_episode_is_no_missing_row(path, tmp_path):
    """The checksum of a header is wrong: neither does the table leave out the row, nor its number."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for demo, steps in enumerate((5, 7)):
            file[f"data/demo_{demo}/actions"] = np.zeros((steps, 2))
            file[f"data/demo_{demo}"].attrs["num_samples"] = steps
        header = h5py.h5o.get_info(file[path].id).addr
    table = run("cat", tmp_path / "x.h5/episodes.parquet", check=True).stdout
    assert pq.read_table(io.BytesIO(table))["steps"].to_pylist() == [5, 7]
    data = bytearray((tmp_path / "x.h5").read_bytes())
    assert data[header:header + 4] == b"OHDR"
    data[header + 6] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    with h5py.File(tmp_path / "x.h5") as file, pytest.raises(KeyError):
        file[path]
    done = run("cat", tmp_path / "x.h5/episodes.parquet")
    assert done.returncode == 1 and done.stdout == b"" and "checksum" in done.stderr
    described = json.loads(run("cat", tmp_path / "x.h5/container.json", check=True).stdout)
    assert [(table["path"], table["rows"]) for table in described["tables"]] == [("episodes.parquet", None)]


def test_texts_that_are_not_stated_to_be_utf8_are_bytes(tmp_path):
    """h5py states ASCII for bytes of any value. Readers of Parquet refuse a table with a text that is not UTF-8."""
    kind = np.dtype([("raw", "S4"), ("name", h5py.string_dtype("utf-8", 8)), ("any", h5py.string_dtype("ascii")),
                     ("note", h5py.string_dtype())])
    rows = [(b"\xff\x00\xfe", "größe".encode(), b"\xe4", "ä"), (b"ab", b"", b"", "")]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.array(rows, kind)
        for name in ("observations", "actions", "rewards", "terminals"):
            file[name] = np.zeros(2)
        file["raw"] = np.array([b"\xff", b"a"])
    with h5py.File(tmp_path / "x.h5") as file:
        stored = {name: file["x"][name].tolist() for name in kind.names}
        raw = file["raw"][()].tolist()
    with mounted(tmp_path) as mnt:
        schema = pq.read_schema(mnt / "x.h5/x.parquet")
        assert [str(schema.field(name).type) for name in kind.names] == ["binary", "string", "binary", "string"]
        for read in READERS.values():
            assert read(mnt / "x.h5/x.parquet") == stored
            assert read(mnt / "x.h5/steps.parquet")["raw"] == raw


def test_steps_name_what_is_left_out(tmp_path):
    texts = np.array(["a", "", "größer"], dtype=h5py.string_dtype())
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file[name] = np.zeros(3)
        file["text"], file["other"], file["record"] = texts, texts[:2], np.zeros(3, "i4,i4")
        file["days"] = np.arange(3).astype("<M8[D]").astype(h5py.opaque_dtype("<M8[D]"))
        file.create_dataset("sequence", 3, h5py.vlen_dtype("i4"))
        file["texts"] = np.array([[b"a"], [b"b"], [b"c"]])
    with mounted(tmp_path) as mnt:
        table = pq.read_table(mnt / "x.h5/steps.parquet")
        assert table.column_names == ["step", "actions", "observations", "rewards", "terminals", "text"]
        assert table["text"].to_pylist() == texts.tolist()
        said, = [table for table in json.loads((mnt / "x.h5/container.json").read_text())["tables"]
                 if table["path"] == "steps.parquet"]
    assert {each["column"]: each["reason"] for each in said["left_out"]} == {
        "days": "Parquet's dates have 32 bits", "record": "its elements are records",
        "sequence": "it is no array of numbers or texts", "texts": "its rows are lists of texts"}
