"""Every golden IDV file, through the mount."""

import json
import os
import random
import subprocess
import sys
import threading

import numpy as np

from support import assert_same_file, check_npy, load_expected, names, peak_memory, read_checked, sha256

RECORD = [("ticks", "<i8"), ("offset_minutes", "<i2")]
# What the folder of a column holds in decoded form, by kind.
FILES = {
    "scalar": {"values.npy"},
    "fixed_vector": {"values.npy"},
    "variable_vector": {"offsets.npy", "values.npy"},
    "text": {"offsets.npy", "utf8.bin", "missing.npy", "values.jsonl"},
    "fixed_vector text": {"offsets.npy", "utf8.bin", "missing.npy", "values.jsonl"},
    "variable_vector text": {"offsets.npy", "utf8.bin", "missing.npy", "values.jsonl", "rows.npy"},
}
# More than this is looked at in probes only.
WHOLE = 64 << 20


def folders(columns):
    """The folder of each column: of equal names the last one keeps the plain name."""
    found, count = [], {}
    for at, column in enumerate(columns):
        name = column["name"].encode()
        if any(later["name"] == column["name"] for later in columns[at + 1:]):
            count[name] = count.get(name, 1) + 1
            found.append(names.dir_part(name, suffix=b"%%_%d" % count[name]).decode())
        else:
            found.append(names.dir_part(name).decode())
    return found


def item_codec(codec):
    return codec["inner"]["name"] if codec["name"] == "VBuffer" else codec["name"]


def is_text(codec):
    return item_codec(codec) == "TextSpan"


def item_descr(codec):
    """numpy's descr of one item, and the axes that an item adds."""
    if codec["name"] in ("VBuffer", "Key", "Key2"):
        return item_descr(codec["inner"])
    plain = {"SByte": "|i1", "Byte": "|u1", "Int16": "<i2", "UInt16": "<u2", "Int32": "<i4", "UInt32": "<u4",
             "Int64": "<i8", "UInt64": "<u8", "Single": "<f4", "Double": "<f8", "Boolean": "|b1", "DvBool": "|u1",
             "TimeSpan": "<i8", "DvTimeSpan": "<i8", "DateTime": "<i8", "DvDateTime": "<i8"}
    if codec["name"] in plain:
        return plain[codec["name"]], ()
    return (RECORD, ()) if codec["name"] in ("DateTimeOffset", "DvDateTimeZone") else ("<u8", (2,))


def npy_data(path, descr, shape):
    """The elements; of a record by a check of our own, for numpy gives it no short name."""
    if descr is not RECORD:
        return check_npy(path, descr, shape)
    data = read_checked(path)
    array = np.load(path, allow_pickle=False)
    assert array.dtype == np.dtype(RECORD) and array.dtype.itemsize == 10 and array.shape == tuple(shape), path
    return data[10 + int.from_bytes(data[8:10], "little"):]


def probe(path, descr, shape, dense):
    """A file that claims much is not read whole: its header, and what is expected at some places."""
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        assert np.lib.format.read_array_header_1_0(file) == (tuple(shape), False, np.dtype(descr)), path
        start = file.tell()
        size = os.fstat(file.fileno()).st_size
        assert size - start == int(np.prod(shape, dtype=object)) * np.dtype(descr).itemsize
        for window in dense.get("probes", []):
            want = bytes.fromhex(window["hex"])
            file.seek(start + window["at"])
            assert file.read(len(want)) == want, (path, window["at"])
        file.seek(size - 3)
        assert len(file.read()) == 3


def check_offsets(path, count, digest):
    data = check_npy(path, "<i8", (count,))
    assert sha256(data) == digest, path
    return np.frombuffer(data, "<i8")


def check_text(top, dense, missing=None):
    text = read_checked(top / "utf8.bin")
    assert (len(text), sha256(text)) == (dense["utf8_bytes"], dense["utf8_sha256"]), top
    offsets = check_offsets(top / "offsets.npy", dense["offsets_count"], dense["offsets_sha256"])
    mask = np.load(top / "missing.npy")
    assert mask.dtype == "?" and mask.shape == (len(offsets) - 1,)
    if missing is not None:
        assert mask.nonzero()[0].tolist() == missing
    return [None if absent else text[a:b].decode() for a, b, absent in zip(offsets, offsets[1:], mask)]


def lines(path):
    read_checked(path)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_column(top, column, rows):
    decoded, codec = column["decoded"], column["codec"]
    layout = decoded["layout"]
    if layout == "text":
        values = check_text(top, decoded, decoded.get("na_rows", []))
        assert lines(top / "values.jsonl") == values
        if "values" in decoded:
            assert values == decoded["values"]
        return
    if layout == "scalar":
        descr, more = item_descr(codec)
        assert sha256(npy_data(top / "values.npy", descr, (rows, *more))) == decoded["sha256"], top
        return
    dense = decoded["dense"]
    if is_text(codec):
        if dense.get("offsets_count", 0) > 1 << 20:
            return
        values = check_text(top, dense)
        if layout == "fixed_vector":
            size = codec["type"]["size"]
            expected = [values[row * size:(row + 1) * size] for row in range(rows)]
        else:
            starts = check_offsets(top / "rows.npy", decoded["row_offsets"]["count"], decoded["row_offsets"]["sha256"])
            expected = [values[a:b] for a, b in zip(starts, starts[1:])]
        assert lines(top / "values.jsonl") == expected
        if "values" in decoded:
            assert expected == decoded["values"]
        return
    descr, more = item_descr(codec)
    if layout == "variable_vector":
        starts = check_offsets(top / "offsets.npy", decoded["row_offsets"]["count"], decoded["row_offsets"]["sha256"])
        shape = (int(starts[-1]), *more)
    else:
        shape = (rows, *codec["type"]["dims"], *more)
    path = top / "values.npy"
    if dense.get("sha256") is None or os.stat(path).st_size > WHOLE:
        probe(path, descr, shape, dense)
    else:
        assert sha256(npy_data(path, descr, shape)) == dense["sha256"], top


def check_metadata(top, entry, stored):
    name = entry["kind"].encode()
    decoded = entry.get("decoded")
    if decoded is None:
        path = names.file_part(name, b".bin").decode()
        assert read_checked(top / path) == stored[entry["offset"]:entry["offset"] + entry["length"]]
        return path
    if is_text(entry["codec"]):
        path = names.file_part(name, b".jsonl").decode()
        if os.stat(top / path).st_size < WHOLE:
            [value] = lines(top / path)
            if "value" in decoded:
                assert value == decoded["value"], path
        return path
    path = names.file_part(name, b".npy").decode()
    descr, more = item_descr(entry["codec"])
    if decoded["layout"] == "scalar":
        assert sha256(npy_data(top / path, descr, more)) == decoded["sha256"], path
        return path
    dims = entry["codec"]["type"]["dims"]
    if decoded["layout"] == "variable_vector":
        dims = (decoded["row_offsets"]["total"],)
    assert sha256(npy_data(top / path, descr, (*dims, *more))) == decoded["dense"]["sha256"], path
    return path


def is_in_table(column):
    """Whether a Parquet file has a column for it: its rows are not all of one size that is too long."""
    if column["hidden"] or column["status"] != "ok":
        return False
    layout, codec = column["decoded"]["layout"], column["codec"]
    return layout != "fixed_vector" or codec["type"]["size"] <= 4096


def test_file(golden_idv, golden, idv_mount):
    rel, expected = golden_idv
    entry = idv_mount / rel
    raw = (golden / "idv" / rel).read_bytes()
    header, rows = expected["header"], expected["header"]["row_count"]
    info = json.loads(read_checked(entry / "container.json"))
    assert (info["format"], info["version"], info["rows"]) == ("idv", header["version"], rows)
    assert (info["compatible_version"], info["columns"]) == (header["compatible_version"], header["column_count"])
    columns = expected["columns"]
    table = ["table.parquet"] if any(is_in_table(column) for column in columns) else []
    assert sorted(os.listdir(entry)) == ["columns", "container.json", *table]
    tops = folders(columns)
    assert sorted(os.listdir(entry / "columns")) == sorted(tops)
    assert len(info["items"]) == len(columns)
    for column, folder, item in zip(columns, tops, info["items"]):
        top = entry / "columns" / folder
        assert (item["name"], item["path"]) == (column["name"], f"columns/{folder}")
        assert (item["index"], item["codec"]) == (column["index"], column["codec"]["name"])
        assert item["parameters"] == column["codec"]["params_hex"]
        assert item["compression_kind"] == column["compression"]
        assert item["rows_per_block"] == column["rows_per_block"]
        assert (item["hidden"], item["status"]) == (column["hidden"], column["status"])
        suffix = ".bin" if column["compression"] < 3 else ".stored.bin"
        want = {f"block_{number}{suffix}" for number in range(len(column["blocks"]))}
        if column["metadata"]:
            want.add("metadata")
        if column["status"] == "ok":
            layout = column["decoded"]["layout"]
            text = " text" if is_text(column["codec"]) and layout != "text" else ""
            want |= FILES[layout + text]
        # Names cost no decoding, whatever is behind them.
        assert set(os.listdir(top)) == want, top
        for number, block in enumerate(column["blocks"]):
            data = read_checked(top / f"block_{number}{suffix}")
            if suffix == ".bin":
                assert (len(data), sha256(data)) == (block["uncompressed_length"], block["sha256"])
            else:
                assert data == raw[block["offset"]:block["offset"] + block["length"]]
        if column["status"] == "ok":
            check_column(top, column, rows)
        found = {check_metadata(top / "metadata", entry, raw) for entry in column["metadata"]}
        if column["metadata"]:
            assert set(os.listdir(top / "metadata")) == found
    assert (idv_mount / ".shardfs/problems.jsonl").read_text() == ""


def test_other_files(golden, idv_mount):
    for name in ("README.md", "expected.json"):
        assert_same_file(idv_mount / name, golden / "idv" / name)


def test_fixture(fixtures_mount, shardfs, fixtures_dir):
    top = fixtures_mount / "table.idv/columns"
    assert sorted(os.listdir(top)) == ["flag", "id", "label", "label%_2", "score", "spans", "weights", "word"]
    assert np.load(top / "weights/values.npy", mmap_mode="r").shape == (10, 4, 5)
    assert json.loads((top / "label/metadata/KeyValues.jsonl").read_text()) == ["setosa", "versicolor", "virginica"]
    assert lines(top / "word/values.jsonl")[3:6] == [None, "", "gelb"]
    table = shardfs("info", fixtures_dir / "table.idv", check=True).stdout.decode()
    [label] = [line.split() for line in table.splitlines() if " key " in line]
    assert label[:5] == ["label", "u32", "key", "3", "2"]
    assert "hidden" in table and "f32[4,5]" in table and "  version: 1.1.1.6\n  rows: 10\n  columns: 8\n" in table
    info = json.loads(shardfs("info", "--json", fixtures_dir / "table.idv", check=True).stdout)
    assert info == json.loads((fixtures_mount / "table.idv/container.json").read_text())


def test_eight_readers(golden, mount):
    """Of one column, at once, from nothing."""
    with mount(golden / "idv/medium.idv") as mnt:
        top = mnt / "columns/Comment"
        found, start = {}, threading.Barrier(8)

        def read(number):
            start.wait()
            at = random.Random(number % 4)
            for name in ("values.jsonl", "offsets.npy", "utf8.bin"):
                with open(top / name, "rb") as file:
                    whole = file.read()
                found.setdefault(name, set()).add(sha256(whole))
                with open(top / name, "rb", buffering=0) as file:
                    for _ in range(50):
                        place = at.randrange(len(whole))
                        assert os.pread(file.fileno(), 5000, place) == whole[place:place + 5000]

        threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert {name: len(digests) for name, digests in found.items()} == {
            "values.jsonl": 1, "offsets.npy": 1, "utf8.bin": 1}


def test_lines_are_json_for_programs(golden, idv_mount):
    """Without a library: the json module, a line at a time."""
    program = "import json, sys; print(sum(json.loads(line) is not None for line in open(sys.argv[1], encoding='utf-8')))"
    path = idv_mount / "medium.idv/columns/Comment/values.jsonl"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) == load_expected("idv")["medium.idv"]["header"]["row_count"]


def test_memory(golden, mount):
    """Everything read once, whatever the files claim."""
    with mount(golden / "idv", "--cache-size", "64M") as mnt:
        for folder, _, files in os.walk(mnt):
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    while file.read(1 << 20):
                        pass
        assert peak_memory(mnt) < 256
