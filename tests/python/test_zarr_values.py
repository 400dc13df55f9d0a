"""Stores that zarr-python writes: the elements are those that it reads."""

import io
import json

import numcodecs
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from support import mounted, run

# All halves with numbers between them, so that most sums and quotients are rounded.
HALVES = np.concatenate([np.arange(2**16, dtype="<u2"), np.random.default_rng(3).integers(0, 2**16, 2**16, "<u2")])


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


@pytest.mark.parametrize("stored", ["<f2", ">f2"])
@pytest.mark.parametrize("codec", ["delta", "scaled", "to_double", "to_single", "to_bytes", "of_bytes", "of_single"])
def test_filters_of_halves(tmp_path, codec, stored):
    """What numcodecs decodes, bit for bit: the filter is written over halves that nothing encoded."""
    scaled = {"scale": 3.7, "offset": 0.1}
    values, filters = {
        "delta": (stored, numcodecs.Delta(stored)),
        "scaled": (stored, numcodecs.FixedScaleOffset(dtype=stored, astype=stored, **scaled)),
        "to_double": ("<f8", numcodecs.FixedScaleOffset(dtype="<f8", astype=stored, **scaled)),
        "to_single": (">f4", numcodecs.FixedScaleOffset(dtype=">f4", astype=stored, **scaled)),
        "to_bytes": ("|u1", numcodecs.FixedScaleOffset(dtype="|u1", astype=stored, scale=3, offset=7)),
        "of_bytes": (stored, numcodecs.FixedScaleOffset(dtype=stored, astype="|i1", **scaled)),
        "of_single": (stored, numcodecs.FixedScaleOffset(dtype=stored, astype="<f4", **scaled)),
    }[codec]
    halves = HALVES
    if codec == "delta":
        # Sums that stay finite, come first.
        halves = np.concatenate([np.random.default_rng(2).normal(0, 50, 5000).astype("<f2").view("<u2"), HALVES])
    elif codec == "to_bytes":
        # Numbers that fit: what others become is not defined.
        halves = np.random.default_rng(4).uniform(0, 700, 5000).astype("<f2").view("<u2")
    bits = {"of_bytes": halves.view("<i1"), "of_single": np.random.default_rng(5).normal(0, 1e3, 5000).astype("<f4")}
    chunk = bits.get(codec, halves.astype(halves.dtype.newbyteorder(stored[0])))
    with np.errstate(all="ignore"):
        expected = filters.decode(chunk.tobytes())
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    store.create_array("a", shape=expected.shape, chunks=expected.shape, dtype=values, filters=[filters], compressors=None)
    (tmp_path / "x.zarr/a/0").write_bytes(chunk.tobytes())
    found = read(tmp_path / "x.zarr/a.npy")
    assert found.tobytes() == expected.astype(expected.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("codecs", [{}, {"codecs": []}])
def test_elements_without_codecs(tmp_path, codecs):
    """GDAL writes no codecs, zarrita.js an empty list; a fill value that nobody gave is null, which is zero."""
    values = np.arange(1, 9, dtype="<f4")
    document = {"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "float32", "fill_value": None,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "attributes": {}, **codecs}
    (tmp_path / "x.zarr/a/c").mkdir(parents=True)
    (tmp_path / "x.zarr/zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    (tmp_path / "x.zarr/a/zarr.json").write_text(json.dumps(document))
    for chunk in (0, 2):
        part = np.resize(values[3 * chunk:3 * chunk + 3], 3)
        (tmp_path / f"x.zarr/a/c/{chunk}").write_bytes(part.tobytes())
    assert read(tmp_path / "x.zarr/a.npy").tolist() == [1, 2, 3, 0, 0, 0, 7, 8]


def test_texts_of_fixed_length_with_a_codec_of_texts(tmp_path):
    """As zarr-python 3.0.8 writes them: the type is one of fixed length, the chunks are rows of any length."""
    values = {"u": ("<U3", numcodecs.VLenUTF8(), ["a", "bcd", "\u00e9"]), "s": ("|S3", numcodecs.VLenBytes(), [b"a", b"bcd", b""])}
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr/.zgroup").write_text('{"zarr_format": 2}')
    for name, (dtype, codec, rows) in values.items():
        (tmp_path / "x.zarr" / name).mkdir()
        document = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": dtype, "fill_value": "", "order": "C",
                    "filters": [{"id": codec.codec_id}], "compressor": None, "dimension_separator": "."}
        (tmp_path / "x.zarr" / name / ".zarray").write_text(json.dumps(document))
        for chunk in range(2):
            part = np.array((rows + [""])[2 * chunk:2 * chunk + 2] if name == "u" else (rows + [b""])[2 * chunk:2 * chunk + 2], object)
            (tmp_path / "x.zarr" / name / str(chunk)).write_bytes(codec.encode(part))
    texts = run("cat", tmp_path / "x.zarr/u/utf8.bin", check=True).stdout
    assert texts == "abcd\u00e9".encode()
    assert read(tmp_path / "x.zarr/s/offsets.npy").tolist() == [0, 1, 4, 4, 4]
    assert read(tmp_path / "x.zarr/s/values.npy").tobytes() == b"abcd"


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


def test_categories_of_frames(tmp_path):
    """More of them than fit a dictionary, and those beside their codes, as anndata before 0.8 has them."""
    barcodes = [f"AAACCCAAGAAA-{row:06}" for row in range(70_000)]
    codes = np.arange(-1, 70_000, dtype="i4")
    store = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    obs = store.create_group("obs", attributes={"encoding-type": "dataframe", "_index": "n", "column-order": ["cell", "ct"]})
    obs.create_array("n", data=np.arange(len(codes)))
    cell = obs.create_group("cell", attributes={"encoding-type": "categorical"})
    cell.create_array("codes", data=codes)
    cell.create_array("categories", data=np.array(barcodes))
    obs.create_array("ct", data=(np.arange(len(codes)) % 3 - 1).astype("i1"), attributes={"categories": "__categories/ct"})
    obs.create_group("__categories").create_array("ct", data=np.array(["B", "T"]))
    with mounted(tmp_path) as mnt:
        table = pq.read_table(mnt / "x.zarr/obs.parquet").to_pydict()
    assert table["cell"] == [None, *barcodes]
    assert table["ct"] == [(None, "B", "T")[row % 3] for row in range(len(codes))]


@pytest.mark.parametrize("dtype, fill, chunk, expected", [
    ("bfloat16", None, "803f0040", "803f004000000000"),
    ("bfloat16", 1.5, "803f0040", "803f0040c03fc03f"),
    ("bfloat16", "NaN", "803f0040", "803f0040c07fc07f"),
    ("bfloat16", "-Infinity", "803f0040", "803f004080ff80ff"),
    ("float8_e4m3fn", None, "3840", "38400000"),
    ("float8_e4m3fnuz", 0.0, "4048", "40480000"),
    ("float8_e4m3b11fnuz", None, "5860", "58600000"),
    ("float8_e5m2", None, "3c40", "3c400000"),
    ("float8_e5m2fnuz", None, "4044", "40440000"),
    ("float8_e3m4", None, "3040", "30400000"),
    ("float8_e8m0fnu", None, "7f80", "7f800000"),
])
def test_types_of_tensorstore(tmp_path, dtype, fill, chunk, expected):
    """tensorstore 0.1.86 made these documents and wrote 1 and 2 into the first of two chunks; it reads these bits."""
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr/.zarray").write_text(json.dumps({
        "chunks": [2], "compressor": None, "dimension_separator": ".", "dtype": dtype, "fill_value": fill, "filters": None,
        "order": "C", "shape": [4], "zarr_format": 2}))
    (tmp_path / "x.zarr/0").write_bytes(bytes.fromhex(chunk))
    found = read(tmp_path / "x.zarr/array.npy")
    assert found.dtype == ("<u2" if dtype == "bfloat16" else "|u1") and found.tobytes().hex() == expected
