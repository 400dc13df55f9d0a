"""Makes the stores of single kinds: AnnData, OME-Zarr, VCF Zarr, records. make_kinds.py [OUT] also makes the records of expected.json for them anew.

anndata 0.12.19, ome-zarr 0.18.0, bio2zarr 0.2.1 with cyvcf2 0.35.0 and pysam 0.24, zarr 3.1.6, Pillow 13.0."""
from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
import warnings
import zipfile

warnings.simplefilter("ignore")
import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr

import zarr_expect as ze

OUT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__)))


def pack(folder, name):
    """A folder as a zip, which is one file."""
    path = os.path.join(OUT, name)
    with zipfile.ZipFile(path, "w") as out:
        for base, _, files in sorted(os.walk(folder)):
            for file in sorted(files):
                info = zipfile.ZipInfo(os.path.relpath(os.path.join(base, file), folder), (2026, 1, 1, 0, 0, 0))
                info.compress_type = 8 if file.startswith(".z") or file == "zarr.json" else 0
                with open(os.path.join(base, file), "rb") as stored:
                    out.writestr(info, stored.read())
    return path


def values(column):
    """The values of a column of pandas as JSON has them."""
    return [None if pd.isna(value) else value.item() if hasattr(value, "item") else value for value in column.tolist()]


def frame(table, left_out=()):
    """A data frame as anndata reads it."""
    columns = {table.index.name or "_index": values(table.index), **{name: values(table[name]) for name in table}}
    columns = {name: column for name, column in columns.items() if name not in left_out}
    return {"rows": len(table), "columns": columns, "left_out": list(left_out)}


def cells(zarr_format):
    obs = pd.DataFrame({
        "cell_type": pd.Categorical(["B", "T", None, "B", "NK", "T"]), "n": [1, 2, 3, 4, 5, 6],
        "day": pd.Categorical([2, 1, None, 1, 7, 2]), "score": [0.5, np.nan, 1, 2, 3, 4], "ok": [True, False] * 3,
        "batch": pd.array([1, None, 3, 4, 5, 6], dtype="Int64"),
        "flag": pd.array([True, None, False, False, None, True], dtype="boolean"),
        "maybe": pd.array(["x", None, "z", "", "q", "w"], dtype="string"), "note": ["a", "", "c", "\u00fc", "e", "f"],
    }, index=pd.Index([f"cell{i}" for i in range(6)], name="barcode"))
    data = anndata.AnnData(sp.random(6, 4, 0.5, "csr", dtype="f4", random_state=1), obs=obs,
                           var=pd.DataFrame({"length": np.arange(4, dtype="i4")}, index=[f"gene{i}" for i in range(4)]))
    data.raw = data[:, :2]
    data.obsm["scores"] = pd.DataFrame({"u": np.arange(6, dtype="f4") / 2}, index=obs.index)
    data.uns["info"] = {"a": 1, "b": "text"}
    anndata.settings.allow_write_nullable_strings = True
    anndata.settings.zarr_write_format = zarr_format
    with tempfile.TemporaryDirectory() as folder:
        data.write_zarr(folder, convert_strings_to_categoricals=False)
        read = anndata.read_zarr(folder)
        path = pack(folder, f"anndata_v{zarr_format}.zarr.zip")
    tables = {"obs.parquet": frame(read.obs), "var.parquet": frame(read.var), "raw/var.parquet": frame(read.raw.var),
              "obsm/scores.parquet": frame(read.obsm["scores"])}
    return ze.describe(path, tables=tables)


def odd_frame():
    """Data frames with columns that no table can have, and one whose categories are damaged."""
    path = os.path.join(OUT, "data_frames.zarr")
    shutil.rmtree(path, ignore_errors=True)
    top = zarr.open_group(path, mode="w", zarr_format=3)
    made = top.create_group("odd", attributes={
        "encoding-type": "dataframe", "_index": "names",
        "column-order": ["short", "plane", "gone", "refused", "kind", "when", "nested/x", "c8", "../odd/names"]})
    made.create_array("names", shape=(3,), chunks=(2,), dtype="<U4")[:] = np.array(["a", "\u00fc", ""])
    made.create_array("short", shape=(2,), chunks=(2,), dtype="i4")[:] = [1, 2]
    made.create_array("plane", shape=(3, 2), chunks=(2, 2), dtype="i2")[:] = [[1, 2], [3, 4], [5, 6]]
    made.create_array("when", shape=(3,), chunks=(2,), dtype="M8[us]")[:] = np.array([0, "NaT", 1], "M8[us]")
    made.create_array("c8", shape=(3,), chunks=(2,), dtype="c8")[:] = [1, 2, 3]
    made.create_array("nested/x", shape=(3,), chunks=(2,), dtype="u1")[:] = [7, 8, 9]
    made.create_group("kind", attributes={"encoding-type": "awkward-array"})
    put = lambda key, **more: ze_put(path, key, {"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": {"name": "default"},
        "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], **more})
    put("odd/refused", codecs=[{"name": "pcodec"}])
    for name, codes in (("code_of_none", [0, 2, -1]), ("damaged", [0, 1, 0])):
        frame_of = top.create_group(name, attributes={"encoding-type": "dataframe", "_index": "i", "column-order": ["kind"]})
        frame_of.create_array("i", shape=(3,), chunks=(3,), dtype="i4")[:] = [1, 2, 3]
        group = frame_of.create_group("kind", attributes={"encoding-type": "categorical"})
        group.create_array("categories", shape=(2,), chunks=(2,), dtype=str)[:] = np.array(["x", "y"], dtype=object)
        group.create_array("codes", shape=(3,), chunks=(3,), dtype="i1")[:] = codes
    with open(os.path.join(path, "damaged/kind/categories/c/0"), "wb") as file:
        file.write(b"no frame of zstd")
    top.create_group("no_columns", attributes={"encoding-type": "dataframe", "column-order": ["a"]})
    top.create_group("plain", attributes={"encoding-type": ["dataframe"]})
    dates = ["1970-01-01T00:00:00", None, "1970-01-01T00:00:00.000001"]
    return ze.describe(path, tables={
        "odd.parquet": {"rows": 3, "columns": {"names": ["a", "\u00fc", ""], "when": dates, "nested/x": [7, 8, 9]},
                        "left_out": ["short", "plane", "gone", "refused", "kind", "c8", "../odd/names"]},
        "code_of_none.parquet": {"rows": 3, "columns": {"i": [1, 2, 3], "kind": "eio"}, "left_out": []},
        "damaged.parquet": "eio",
    })


def record_tables():
    """Records with fields of several values, as zarr-python 2 wrote them."""
    path = os.path.join(OUT, "v2_record_tables.zarr")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(os.path.join(path, "vectors"))
    with open(os.path.join(path, ".zgroup"), "w") as file:
        file.write('{"zarr_format": 2}')
    made = np.zeros(5, [("a", ">i2"), ("m", "<f4", (2, 2)), ("ok", "?"), ("names", "S3", (2,)), ("raw", "V2"), ("when", "<M8[ms]"), ("day", "<M8[D]"), ("t", ">U2")])
    made["a"], made["ok"], made["t"] = [1, -2, 3, 4, 5], [True, False, True, True, False], ["a", "\u00fc", "", "zz", "y"]
    made["m"], made["when"] = np.arange(20).reshape(5, 2, 2) / 4, np.array([0, 1, "NaT", 400, -1], "M8[ms]")
    made["raw"] = [b"ab", b"c\0", b"", b"\0d", b"ef"]
    fields = [["a", ">i2"], ["m", "<f4", [2, 2]], ["ok", "|b1"], ["names", "|S3", [2]], ["raw", "|V2"], ["when", "<M8[ms]"], ["day", "<M8[D]"], ["t", ">U2"]]
    with open(os.path.join(path, "vectors/.zarray"), "w") as file:
        json.dump({"zarr_format": 2, "shape": [5], "chunks": [2], "dtype": fields, "fill_value": None, "order": "C", "compressor": None, "filters": None}, file)
    for chunk in range(3):
        rows = np.zeros(2, made.dtype)
        rows[:len(made[2 * chunk:2 * chunk + 2])] = made[2 * chunk:2 * chunk + 2]
        with open(os.path.join(path, f"vectors/{chunk}"), "wb") as file:
            file.write(rows.tobytes())
    columns = {"a": made["a"].tolist(), "m": made["m"].reshape(5, 4).tolist(), "ok": made["ok"].tolist(), "t": made["t"].tolist(),
               "raw": [value.tobytes().decode() for value in made["raw"]],
               "when": [None if when is None else when.isoformat() for when in made["when"].tolist()]}
    columns = {name: columns[name] for name in ("a", "m", "ok", "raw", "when", "t")}
    return ze.describe(path, tables={"vectors.parquet": {"rows": 5, "columns": columns, "left_out": ["names", "day"]}})


def ze_put(path, key, document):
    os.makedirs(os.path.join(path, key), exist_ok=True)
    with open(os.path.join(path, key, "zarr.json"), "w") as file:
        json.dump(document, file)


def pictures(version):
    """Pictures of several levels, by OME-Zarr's own writer."""
    from ome_zarr.format import FormatV04, FormatV05
    from ome_zarr.writer import write_image, write_labels
    written = {"0.4": FormatV04(), "0.5": FormatV05()}[version]
    data = (np.arange(2 * 3 * 10 * 12).reshape(1, 2, 3, 10, 12) * 91 % 65521).astype("u2")
    with tempfile.TemporaryDirectory() as folder:
        group = zarr.open_group(folder, mode="w", zarr_format=2 if version == "0.4" else 3)
        write_image(data, group, fmt=written, axes="tczyx", scale_factors=[2], storage_options={"chunks": (1, 1, 2, 8, 8)})
        cells = (np.arange(3 * 10 * 12).reshape(3, 10, 12) % 251).astype("u1")
        write_labels(cells, group, name="cells", fmt=written, axes="zyx", scale_factors=[2], storage_options={"chunks": (1, 8, 8)})
        flat = group.create_group("flat")
        write_image(data[0, 0, 0], flat, fmt=written, axes="yx", scale_factors=[], storage_options={"chunks": (8, 8)})
        path = pack(folder, f"ome_{version}.ozx")
    record = ze.describe(path)
    assert sum(entry["type"] == "png" for entry in record["tree"].values()) == 28, record["tree"].keys()
    return record


VCF = """##fileformat=VCFv4.3
##contig=<ID=chr1,length=1000>
##contig=<ID=chrX,length=500>
##FILTER=<ID=PASS,Description="ok">
##FILTER=<ID=q10,Description="low">
##INFO=<ID=DP,Number=1,Type=Integer,Description="depth">
##INFO=<ID=AF,Number=A,Type=Float,Description="frequency">
##INFO=<ID=DB,Number=0,Type=Flag,Description="known">
##INFO=<ID=NOTE,Number=1,Type=String,Description="note">
##FORMAT=<ID=GT,Number=1,Type=String,Description="genotype">
##FORMAT=<ID=GQ,Number=1,Type=Integer,Description="quality">
##FORMAT=<ID=HQ,Number=2,Type=Integer,Description="quality of haplotypes">
#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT s1 s2 s3
chr1 10 rs1 A C 29.5 PASS DP=14;AF=0.5;DB;NOTE=h GT:GQ:HQ 0|0:48:51,51 1|0:48:51,51 1/1:43:.,.
chr1 17 . T A,G 3 q10 DP=11;AF=0.017,0.3 GT:GQ:HQ 0|0:49:58,50 0|2:3:65,3 0/0:41
chrX 5 rs9 GTC G . . . GT 0/1 ./. 1
"""


def variants(zarr_format):
    """A VCF file by bio2zarr."""
    import pysam
    from bio2zarr import vcf
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "a.vcf")
        with open(file, "w") as out:
            for line in VCF.splitlines():
                out.write((line if line.startswith("##") else line.replace(" ", "\t")) + "\n")
        pysam.tabix_compress(file, file + ".gz")
        pysam.tabix_index(file + ".gz", preset="vcf")
        stored = os.path.join(folder, "a.vcz")
        vcf.convert([file + ".gz"], stored, zarr_format=zarr_format, variants_chunk_size=2)
        path = pack(stored, f"variants_v{zarr_format}.zarr.zip")
    return ze.describe(path)


def records_of(name):
    """Tables of arrays of records, with the values that numpy has. The arrays are those that `ze.describe` compares with zarr-python."""
    tables = {}
    for path, array, elements, damaged in ze.Model(os.path.join(OUT, name)).run().arrays:
        dtype = np.dtype(array.descr) if isinstance(array.descr, list) else np.dtype("u1")
        if not dtype.names or len(array.shape) != 1:
            continue
        text = lambda value: value.decode() if isinstance(value, bytes) else value
        left_out = [field for field in dtype.names if dtype[field].names]
        columns = {field: [text(value) for value in elements.view(dtype)[field].tolist()] for field in dtype.names if field not in left_out}
        tables[f"{path}.parquet"] = {"rows": array.shape[0], "columns": columns, "left_out": left_out}
    return tables


def main(records):
    records["anndata_v2.zarr.zip"] = cells(2)
    records["anndata_v3.zarr.zip"] = cells(3)
    records["data_frames.zarr"] = odd_frame()
    records["v2_record_tables.zarr"] = record_tables()
    for version in ("0.4", "0.5"):
        records[f"ome_{version}.ozx"] = pictures(version)
    for zarr_format in (2, 3):
        records[f"variants_v{zarr_format}.zarr.zip"] = variants(zarr_format)
    for name, record in records.items():
        found = records_of(name) if record.get("format") == "zarr" else {}
        if found:
            record["tables"] = found | record.get("tables", {})


if __name__ == "__main__":
    with open(os.path.join(OUT, "expected.json"), encoding="utf-8") as f:
        records = json.load(f)["files"]
    main(records)
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        ze.dump(records, f)
    print(len(records), "records;", ze.COMPARED[0], "arrays compared with zarr-python,", ze.COMPARED[1], "not")
    for name, record in records.items():
        for told in record.get("not_compared", []):
            print("  ", name, told)
