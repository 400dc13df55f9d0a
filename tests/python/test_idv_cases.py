"""IDV files that no golden file has: every codec in every compression, odd blocks, lies and damage."""

import errno
import json
import os
import random
import struct
import time
import zlib

import numpy as np
import pytest
import xxhash

from support import mounted, peak_memory, read_checked
from support.writers import idv as w

RECORD = [("ticks", "<i8"), ("offset_minutes", "<i2")]


def rng(seed):
    return random.Random(seed)


def some(low, high):
    return lambda random, n: [random.randint(low, high) for _ in range(n)]


def some_text(random, n):
    letters = ["a", "é", "日", "\U0001F600", '"', "\\", "\n", "\x01", "\x7f", "\u2028", "plain text"]
    return ["".join(random.choice(letters) for _ in range(random.randint(0, 6))) for _ in range(n)]


# name: (codec, block of values, made values, numpy dtype, value of an absent slot)
CODECS = {
    "SByte": ("SByte", lambda v: w.numbers("b", v), some(-128, 127), "|i1", 0),
    "Byte": ("Byte", lambda v: w.numbers("B", v), some(0, 255), "|u1", 0),
    "Int16": ("Int16", lambda v: w.numbers("h", v), some(-2**15, 2**15 - 1), "<i2", 0),
    "UInt16": ("UInt16", lambda v: w.numbers("H", v), some(0, 2**16 - 1), "<u2", 0),
    "Int32": ("Int32", lambda v: w.numbers("i", v), some(-2**31, 2**31 - 1), "<i4", 0),
    "UInt32": ("UInt32", lambda v: w.numbers("I", v), some(0, 2**32 - 1), "<u4", 0),
    "Int64": ("Int64", lambda v: w.numbers("q", v), some(-2**63, 2**63 - 1), "<i8", 0),
    "UInt64": ("UInt64", lambda v: w.numbers("Q", v), some(0, 2**64 - 1), "<u8", 0),
    "Single": ("Single", lambda v: w.numbers("f", v), lambda r, n: [r.randint(-9999, 9999) / 8 for _ in range(n)],
               "<f4", 0),
    "Double": ("Double", lambda v: w.numbers("d", v), lambda r, n: [r.random() for _ in range(n)], "<f8", 0),
    "Boolean": ("Boolean", w.booleans, some(0, 1), "|b1", 0),
    "DvBool": ("DvBool", w.dv_booleans, some(0, 2), "|u1", 0),
    "TimeSpan": ("TimeSpan", lambda v: w.numbers("q", v), some(-2**63, 2**63 - 1), "<i8", 0),
    "DvTimeSpan": ("DvTimeSpan", lambda v: w.numbers("q", v), some(-2**63, 2**63 - 1), "<i8", 0),
    "DateTime": ("DateTime", lambda v: w.numbers("q", v), some(0, 2**61), "<i8", 0),
    "DvDateTime": ("DvDateTime", lambda v: w.numbers("q", v), some(0, 2**61), "<i8", 0),
    "Key2": (w.key2("UInt16", 9), lambda v: w.numbers("H", v), some(0, 9), "<u2", 0),
    "Key": (w.key("Byte", 0, 7, 0), lambda v: w.numbers("B", v), some(0, 255), "|u1", 0),
    **{name: (name, w.offset_times, lambda r, n: [(r.randint(-2**63, 2**63 - 1), r.randint(-840, 840))
                                                  for _ in range(n)], RECORD, (0, 0))
       for name in ("DateTimeOffset", "DvDateTimeZone")},
    **{name: (name, w.row_ids, lambda r, n: [(r.getrandbits(64), r.getrandbits(64)) for _ in range(n)], "<u8", (0, 0))
       for name in ("DataViewRowId", "RowId", "UInt128")},
    "TextSpan": ("TextSpan", w.texts, some_text, None, ""),
}
ROWS = 23


def vector_rows(random, name, size):
    """Dense and sparse rows; of one length each where `size` is 0."""
    make, rows, full = CODECS[name][2], [], []
    for _ in range(ROWS):
        length = size or random.choice([0, 0, 1, 2, 7, 40])
        values = make(random, length)
        if random.random() < 0.5 or not length:
            rows.append(values)
            full.append(values)
        else:
            slots = sorted(random.sample(range(length), random.randint(0, length - 1)))
            rows.append((length, {slot: values[slot] for slot in slots}))
            full.append([values[slot] if slot in slots else CODECS[name][4] for slot in range(length)])
    return rows, full


def column_of(name, kind, per_block, shape, seed=0):
    """A column of a codec and what its rows are. `shape`: `scalar`, dims, or () for variable vectors."""
    random = rng(f"{name} {kind} {per_block} {shape} {seed}")
    codec, block, make, _, _ = CODECS[name]
    if shape == "scalar":
        values = make(random, ROWS)
        return w.Column(f"{name} {shape} {kind}", codec, [block(v) for v in w.split(values, per_block)], per_block,
                        kind), values
    size = int(np.prod(shape)) if shape else 0
    rows, full = vector_rows(random, name, size)
    blocks = [w.vectors(part, block) for part in w.split(rows, per_block)]
    return w.Column(f"{name} {shape} {kind}", w.vbuffer(codec, shape), blocks, per_block, kind), full


def array(values, dtype, width=()):
    flat = np.array(values, dtype) if values else np.zeros((0, *width), dtype)
    return flat.reshape(len(values), *width) if width else flat


def check_texts(top, rows, is_vector, is_variable):
    flat = [text for row in rows for text in row] if is_vector else rows
    data = read_checked(top / "utf8.bin")
    assert data == "".join(text or "" for text in flat).encode()
    ends = np.cumsum([0] + [len((text or "").encode()) for text in flat])
    assert np.array_equal(np.load(top / "offsets.npy"), ends)
    assert np.load(top / "missing.npy").tolist() == [text is None for text in flat]
    if is_variable:
        assert np.array_equal(np.load(top / "rows.npy"), np.cumsum([0] + [len(row) for row in rows]))
    read_checked(top / "values.jsonl")
    with open(top / "values.jsonl", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == rows


def check(top, name, shape, rows):
    dtype = CODECS[name][3]
    if name == "TextSpan":
        check_texts(top, rows, shape != "scalar", shape == ())
        return
    pair = (2,) if dtype == "<u8" and name != "UInt64" else ()
    read_checked(top / "values.npy")
    loaded = np.load(top / "values.npy")
    assert loaded.dtype == np.dtype(dtype)
    flat = rows if shape == "scalar" else [item for row in rows for item in row]
    want = array(flat, dtype, pair)
    if shape == ():
        assert np.array_equal(np.load(top / "offsets.npy"), np.cumsum([0] + [len(row) for row in rows]))
    elif shape != "scalar":
        want = want.reshape(len(rows), *shape, *pair)
    assert loaded.shape == want.shape
    assert loaded.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("shape", ["scalar", (5,), (2, 3), ()], ids=str)
def test_every_codec(kind, shape, tmp_path):
    cases = {}
    for name in CODECS:
        for per_block in (1, 4, 7, ROWS, 1000):
            column, rows = column_of(name, kind, per_block, shape)
            column.name = f"{name}-{per_block}"
            cases[column.name] = (column, name, rows)
    (tmp_path / "all.idv").write_bytes(w.file(ROWS, [column for column, _, _ in cases.values()]))
    with mounted(tmp_path) as mnt:
        top = mnt / "all.idv/columns"
        assert sorted(os.listdir(top)) == sorted(cases)
        for folder, (column, name, rows) in cases.items():
            check(top / folder, name, shape, rows)
            for number, block in enumerate(column.blocks):
                assert (top / folder / f"block_{number}.bin").read_bytes() == block
        assert (mnt / ".shardfs/problems.jsonl").read_text() == ""
    # The same in a cache with no room, in ranges of odd sizes.
    with mounted(tmp_path, "--cache-size", "1M") as mnt:
        for folder in cases:
            for file in sorted((mnt / "all.idv/columns" / folder).iterdir()):
                if file.name.startswith("block"):
                    continue
                whole = file.read_bytes()
                with open(file, "rb", buffering=0) as opened:
                    for at in range(0, len(whole), 97):
                        assert os.pread(opened.fileno(), 131, at) == whole[at:at + 131], (file, at)


def mount_one(tmp_path, data, name="x.idv"):
    (tmp_path / name).write_bytes(data)
    return mounted(tmp_path)


def fails(action, number=errno.EIO):
    with pytest.raises(OSError) as caught:
        action()
    assert caught.value.errno == number


def text_column(values, per_block=4, kind=1, **more):
    blocks = [w.texts(part) for part in w.split(values, per_block)]
    return w.Column("t", "TextSpan", blocks, per_block, kind, **more)


def test_text_boundaries_and_missing(tmp_path):
    smile = "\U0001F600"
    pair = w.Column("pair", "TextSpan", [w.texts([smile + "b"] * 1, ends=[3]), w.texts([f"a{smile}b"], ends=[2, 3, 4])],
                    3, 1)
    pair.blocks = [w.texts([f"a{smile}b"], ends=[2, 3, 4]), w.texts([smile], ends=[1, 1, 2])]
    missing = text_column([None, "x", None, "", "yz", None])
    long = text_column(["é" * 40_000 + '"' * 30_000, "\n" * 9000, "z"] * 3, 2)
    padded = w.Column("padded", "TextSpan", [w.texts(["x" * 127, ""], pad=1)] * 2, 2)
    for column, name in ((missing, "missing"), (long, "long")):
        column.name = name
    data = w.file(6, [pair, missing]), w.file(9, [long]), w.file(4, [padded])
    for number, bytes_ in enumerate(data):
        (tmp_path / f"{number}.idv").write_bytes(bytes_)
    with mounted(tmp_path) as mnt:
        check_texts(mnt / "0.idv/columns/pair", [f"a{smile}", "", "b", smile, "", ""], False, False)
        check_texts(mnt / "0.idv/columns/missing", [None, "x", None, "", "yz", None], False, False)
        check_texts(mnt / "1.idv/columns/long", ["é" * 40_000 + '"' * 30_000, "\n" * 9000, "z"] * 3, False, False)
        # 127 bytes and a length of two bytes: 129, which no length without redundant bytes gives.
        top = mnt / "2.idv/columns/padded"
        assert os.stat(top / "utf8.bin").st_size == 254
        check_texts(top, ["x" * 127, ""] * 2, False, False)
    # A range anywhere in a long line is the slice of the whole.
    with mounted(tmp_path) as mnt:
        path = mnt / "1.idv/columns/long/values.jsonl"
        whole = "".join(json.dumps(row, ensure_ascii=False) + "\n"
                        for row in ["é" * 40_000 + '"' * 30_000, "\n" * 9000, "z"] * 3).encode()
        random = rng(1)
        with open(path, "rb", buffering=0) as file:
            for _ in range(200):
                at = random.randrange(len(whole))
                assert os.pread(file.fileno(), 5000, at) == whole[at:at + 5000]
        assert path.read_bytes() == whole


def test_damaged_text_block(tmp_path):
    values = [f"row {number}" for number in range(12)]
    column = text_column(values)
    data = w.file(12, [column], damage={(0, 1): b"\xff" * 30})
    with mount_one(tmp_path, data) as mnt:
        top = mnt / "x.idv/columns/t"
        assert "values.jsonl" in os.listdir(top)
        ends = np.cumsum([0] + [len(value) for value in values])
        text = "".join(values).encode()
        assert os.stat(top / "utf8.bin").st_size == len(text)
        size = os.stat(top / "offsets.npy").st_size
        assert size == 128 + 8 * 13
        # Its blocks are small, so only without the page cache is the damage where it is.
        fails(lambda: (top / "block_1.bin").read_bytes())
        assert (top / "block_2.bin").read_bytes() == column.blocks[2]
        for name in ("offsets.npy", "utf8.bin", "missing.npy"):
            fails(lambda: (top / name).read_bytes())
        fails(lambda: os.stat(top / "values.jsonl"))
        assert "block_1" in (mnt / ".shardfs/problems.jsonl").read_text()
    # `shardfs cat` reads what the vfs gives; ranges are tested in tests/golden_idv.rs.
    assert ends[-1] == len(text)


def test_lying_lengths(tmp_path):
    base = [w.numbers("i", range(4)), w.numbers("i", range(4, 8))]

    def column(name, **record):
        made = w.Column(name, "Int32", base, 4, 1)
        made.records = {0: None}
        return made, record

    stored = w.pack(base[0], 1)
    lies = {
        "negative stored": (300, -1, 16), "negative size": (300, 10, -16), "low": (255, 10, 16),
        "beyond": (1 << 40, 10, 16), "overflow": (2**63 - 1, 10, 16), "huge": (256, len(stored), 2**31 - 1),
        "impossible": (256, 2, 2**31 - 1), "small": (256, len(stored), 15), "more": (256, len(stored), 40),
    }
    columns = []
    for name, record in lies.items():
        columns.append(w.Column(name, "Int32", base, 4, 1, records={0: record}))
    columns.append(w.Column("overlap", "Int32", base, 4, 1, records={1: (256, len(stored), 16)}))
    with mount_one(tmp_path, w.file(8, columns)) as mnt:
        for name in lies:
            top = mnt / "x.idv/columns" / name
            assert os.stat(top / "values.npy").st_size == 128 + 32
            fails(lambda: (top / "values.npy").read_bytes())
            assert (top / "block_1.bin").read_bytes() == base[1]
        assert np.load(mnt / "x.idv/columns/overlap/values.npy").tolist() == [0, 1, 2, 3] * 2
        assert os.stat(mnt / "x.idv/columns/small/block_0.bin").st_size == 15
        fails(lambda: os.stat(mnt / "x.idv/columns/low/block_0.bin"))
        assert "block_0.bin" in os.listdir(mnt / "x.idv/columns/low")


BLOCK = w.numbers("i", range(4))


@pytest.mark.parametrize("change", [
    {"version": 1}, {"compatible": 3}, {"compatible": 7, "version": 7}, {"compatible": 6, "version": 5}, {"rows": -1},
    {"columns": -1}, {"columns": 2**31 - 1}, {"columns": 2}, {"toc": 255}, {"toc": 2**62}, {"tail": 255},
    {"tail": 2**63 - 1}, {"tail": 300}, {"toc": -1},
], ids=str)
def test_refused(change, tmp_path):
    data = w.file(4, [w.Column("a", "Int32", [BLOCK], 4)], header=change)
    with mount_one(tmp_path, data) as mnt:
        assert (mnt / "x.idv").read_bytes() == data
        [problem] = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
        assert problem["container"] == "x.idv"


@pytest.mark.parametrize("per_block", [0, 2**31, 2**63])
def test_refused_rows_per_block(per_block, tmp_path):
    data = w.file(4, [w.Column("a", "Int32", [BLOCK], per_block)])
    with mount_one(tmp_path, data) as mnt:
        assert (mnt / "x.idv").read_bytes() == data


def test_accepted(tmp_path):
    column = w.Column("a", "Int32", [BLOCK], 4)
    files = {"later": w.file(4, [column], version=9, compatible=6), "early": w.file(4, [column], version=4),
             "surplus": w.file(4, [column], trailing=b"surplus"), "fewer": w.file(4, [column] * 3, header={"columns": 1})}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with mounted(tmp_path) as mnt:
        for name in files:
            assert np.load(mnt / name / "columns/a/values.npy").tolist() == [0, 1, 2, 3]


def test_unusable_columns(tmp_path):
    good = w.Column("good", "Int32", [BLOCK], 4)
    bad = {
        "parameters": ("Int32", b"x"), "no count": w.key2("Byte", 0), "count": w.key2("Byte", 256),
        "signed": w.key2("Int32", 5), "key of key": ("Key2", w.definition(*w.key2("Byte", 3)) + b"\3" + bytes(7)),
        "contiguous": w.key("Byte", 2, 0, 0), "noncontiguous": w.key("Byte", 0, 0, 3), "minus": w.key("Byte", 1, 0, -1),
        "nested": w.vbuffer(w.vbuffer("Byte", (2,)), (2,)), "negative": w.vbuffer("Byte", (-1,)),
        "overflow": w.vbuffer("Byte", (2**16, 2**16)), "short": ("VBuffer", w.definition("Byte") + b"\1\0\0\0"),
        "surplus": ("VBuffer", w.vbuffer("Byte", (2,))[1] + b"\0"), "many": w.vbuffer("Byte", (1,) * 40),
    }
    dead = {"unknown": ("Fancy", b"abc"), "inside": w.vbuffer(("Fancy", b"z"), (3,)),
            "key over": ("Key2", w.definition("Fancy") + bytes(8))}
    columns = [good] + [w.Column(name, codec, [BLOCK], 4) for name, codec in (bad | dead).items()]
    columns += [w.Column("lookup", "Int32", [BLOCK], 4, lookup=where) for where in (-1, 0, 255, 1 << 50)]
    columns.append(w.Column("kind", "Int32", [BLOCK], 4))
    data = bytearray(w.file(4, columns))
    at = data.rindex(b"\4kind\5Int32\0") + len(b"\4kind\5Int32\0")
    data[at] = 7
    with mount_one(tmp_path, data) as mnt:
        top = mnt / "x.idv/columns"
        info = {item["path"]: item for item in json.loads((mnt / "x.idv/container.json").read_text())["items"]}
        for name in bad | dead:
            assert os.listdir(top / name) == ["block_0.bin"], name
            assert (top / name / "block_0.bin").read_bytes() == BLOCK
            assert info[f"columns/{name}"]["status"] == ("bad" if name in bad else "dead")
            assert info[f"columns/{name}"]["reason"]
        for name in ("lookup", "lookup%_2", "lookup%_3", "lookup%_4"):
            assert os.listdir(top / name) == []
            assert info[f"columns/{name}"]["status"] == "bad"
        assert os.listdir(top / "kind") == ["block_0.stored.bin"]
        assert (top / "kind/block_0.stored.bin").read_bytes() == BLOCK
        assert np.load(top / "good/values.npy").tolist() == [0, 1, 2, 3]


def test_names(tmp_path):
    stored = ["", ".", "..", "a/b", "%", "x.npy", ".raw", "x", "x", "X", "x", b"\xff", "\n", "l" * 300, "é", "e\u0301"]
    shown = ["%empty", "%2E", "%2E%2E", "a%2Fb", "%25", "x%2Enpy", "%2Eraw", "x%_2", "x%_3", "X", "x", "%FF", "%0A",
             None, "é", "e\u0301"]
    columns = [w.Column(name, "Int32", [w.numbers("i", [number])], 1) for number, name in enumerate(stored)]
    with mount_one(tmp_path, w.file(1, columns)) as mnt:
        top = mnt / "x.idv/columns"
        items = json.loads((mnt / "x.idv/container.json").read_text())["items"]
        assert len(os.listdir(top)) == len(stored)
        for number, (item, name) in enumerate(zip(items, shown)):
            folder = item["path"].removeprefix("columns/")
            assert name is None or folder == name
            assert np.load(top / folder / "values.npy").tolist() == [number]
        assert items[11]["name_hex"] == "ff"
        assert [item["hidden"] for item in items] == [number in (7, 8) for number in range(len(stored))]


def test_metadata(tmp_path):
    entries = [
        w.entry("Names", w.vbuffer("TextSpan", (3,)), w.vectors([["a", None, "c"]], w.texts), 1),
        w.entry("Sparse", w.vbuffer("TextSpan", (5,)), w.vectors([(5, {3: "x"})], w.texts), 2),
        w.entry("One", "TextSpan", w.texts(["text"])), w.entry("None", "TextSpan", w.texts([None])),
        w.entry("Flag", "Boolean", b"\1"), w.entry("Values", w.vbuffer("Int32"), w.vectors([[5, 6]], lambda v: w.numbers("i", v)), 1),
        w.entry("Ranges", w.vbuffer("Int32", (2, 2)), w.vectors([[1, 2, 3, 4]], lambda v: w.numbers("i", v))),
        w.entry("Id", "RowId", bytes(range(16))), w.entry("Flag", "Boolean", b"\0"), w.entry("", "Byte", b"\7"),
        w.entry("a/b", "Fancy", b"whatever"), w.entry("Zero", w.vbuffer("Single"), w.vectors([[]], lambda v: b"", 0)),
        w.entry("Outside", "Byte", b"\7", offset=1 << 40), w.entry("Bad", "Int32", b"\7"),
        w.entry("Bomb", w.vbuffer("Byte"), w.numbers("i", [1, 80 << 20, -1, 0]) + bytes(80 << 20), 1),
        w.entry("Mask", "DvBool", w.dv_booleans([3])),
    ]
    late = w.entry("Late", "Byte", b"\7")
    columns = [w.Column("a", "Int32", [BLOCK], 4, metadata=entries), w.Column("none", "Int32", [BLOCK], 4),
               w.Column("nowhere", "Int32", [BLOCK], 4, toc=1 << 50), w.Column("low", "Int32", [BLOCK], 4, toc=17),
               w.Column("junk", "Int32", [BLOCK], 4, toc=256), w.Column("late", "Int32", [BLOCK], 4, metadata=[late])]
    with mount_one(tmp_path, w.file(4, columns)) as mnt:
        top = mnt / "x.idv/columns/a/metadata"
        lines = {"Names": ["a", None, "c"], "Sparse": ["", "", "", "x", ""], "One": "text", "None": None}
        arrays = {"Flag": True, "Values": [5, 6], "Ranges": [[1, 2], [3, 4]], "Flag%_2": False, "%empty": 7, "Zero": []}
        listed = set(os.listdir(top))
        for name, value in lines.items():
            assert json.loads(read_checked(top / f"{name}.jsonl")) == value
            assert (top / f"{name}.jsonl").read_bytes().count(b"\n") == 1
        for name, value in arrays.items():
            read_checked(top / f"{name}.npy")
            assert np.load(top / f"{name}.npy").tolist() == value
        assert np.load(top / "Ranges.npy").dtype == "<i4"
        assert np.load(top / "Id.npy").shape == (2,)
        assert read_checked(top / "a%2Fb.bin") == b"whatever"
        assert {"Outside.npy", "Bad.npy", "Bomb.npy", "Mask.npy"} <= listed
        assert len(listed) == len(entries)
        for name in ("Outside", "Bad", "Bomb", "Mask"):
            fails(lambda: (top / f"{name}.npy").read_bytes())
        others = mnt / "x.idv/columns"
        assert "metadata" not in os.listdir(others / "none") + os.listdir(others / "nowhere") + os.listdir(others / "low")
        os.listdir(others / "junk/metadata")
        assert np.load(others / "late/metadata/Late.npy") == 7
        for name in ("a", "none", "nowhere", "low", "junk", "late"):
            assert np.load(others / name / "values.npy").tolist() == [0, 1, 2, 3]
        problems = (mnt / ".shardfs/problems.jsonl").read_text()
        assert "columns/nowhere" in problems and "columns/low" in problems
        [junk] = [line for line in map(json.loads, problems.splitlines()) if line["path"] == "columns/junk/metadata"]
        assert junk["message"].startswith("the table of metadata: ") and junk["offset"] == 256


def vector_block(*words, items=b""):
    return w.numbers("i", words) + items


@pytest.mark.parametrize("block", [
    vector_block(3, 2, -1, -1, 0, items=bytes(16)),  # another number of vectors
    vector_block(2, 3, -1, -1, 0, items=bytes(24)),  # another length
    vector_block(2, -2, -1, -1, 0, items=bytes(16)),
    vector_block(2, 2, -2, -1, 0, items=bytes(16)),
    vector_block(2, 2, 2, -1, 2, 0, 1, items=bytes(16)),  # as many as slots
    vector_block(2, 2, 1, -1, 1, 2, items=bytes(12)),  # index outside
    vector_block(2, 2, 1, -1, 1, -1, items=bytes(12)),
    vector_block(2, 2, 1, -1, 2, 0, 1, items=bytes(12)),  # more indices than counts
    vector_block(2, 2, 1, -1, 0, items=bytes(12)),
    vector_block(2, 2, -1, -1, 0, items=bytes(15)),  # too few values
    vector_block(2, 2, -1),
    vector_block(2),
    b"",
], ids=lambda block: block[:24].hex())
def test_hostile_vectors(block, tmp_path):
    good = vector_block(2, 2, 1, -1, 1, 1, items=w.numbers("i", [7, 8, 9]))
    column = w.Column("v", w.vbuffer("Int32", (2,)), [good, block, good], 2, 1)
    # A common length of 3 is wrong only where the type has another.
    loose = b"" if block[4:8] == b"\3\0\0\0" else block
    variable = w.Column("w", w.vbuffer("Int32"), [good, loose, good], 2, 1)
    with mount_one(tmp_path, w.file(6, [column, variable])) as mnt:
        top = mnt / "x.idv/columns"
        assert os.stat(top / "v/values.npy").st_size == 128 + 48
        fails(lambda: (top / "v/values.npy").read_bytes())
        assert (top / "v/block_1.bin").read_bytes() == block
        assert "values.npy" in os.listdir(top / "w")
        fails(lambda: (top / "w/offsets.npy").read_bytes())


def test_huge_dense_views(tmp_path):
    """A small file whose arrays have 100 GB and more: any place is there at once."""
    size = 2**31 - 1
    rows = [(size, {5: 7, size - 1: 9}), (size, {}), (size, {0: 1})]
    numbers = w.vectors(rows, lambda v: w.numbers("q", v))
    wide = w.Column("wide", w.vbuffer("Int64", (size,)), [numbers] * 4, 3, 1)
    text_rows = [(size, {3: 'a"b', size - 1: "z"}), (size, {})]
    texts = w.Column("texts", w.vbuffer("TextSpan", (size,)), [w.vectors(text_rows, w.texts)] * 6, 2, 1)
    loose = w.Column("loose", w.vbuffer("Int64"), [w.vectors(rows, lambda v: w.numbers("q", v), 0)] * 4, 3, 1)
    data = w.file(12, [wide, texts, loose])
    assert len(data) < 2000
    with mount_one(tmp_path, data) as mnt:
        top = mnt / "x.idv/columns"
        for name in ("wide", "loose"):
            path = top / name / "values.npy"
            assert os.stat(path).st_size == 128 + 8 * 12 * size
            array = np.load(path, mmap_mode="r").reshape(12, size)
            assert array[0, :7].tolist() == [0, 0, 0, 0, 0, 7, 0]
            assert array[0, -2:].tolist() == [0, 9] and array[11, :2].tolist() == [1, 0] and array[10, size // 2] == 0
            del array
        assert np.load(top / "loose/offsets.npy").tolist() == [row * size for row in range(13)]
        offsets = np.load(top / "texts/offsets.npy", mmap_mode="r")
        assert offsets.shape == (12 * size + 1,)
        assert offsets[:6].tolist() == [0, 0, 0, 0, 3, 3] and offsets[-1] == 24 and offsets[2 * size + 4] == 7
        del offsets
        path = top / "texts/values.jsonl"
        line = 2 + 3 * size
        first, second = line + 4 + 1, line
        assert os.stat(path).st_size == 6 * (first + second)
        with open(path, "rb") as file:
            assert file.read(24) == b'["","","","a\\"b","","",""'[:24]
            file.seek(first)
            assert file.read(6) == b'["",""'
            file.seek(first - 5)
            assert file.read(5) == b'"z"]\n'
            file.seek(0, 2)
            file.seek(file.tell() - 7)
            assert file.read() == b'"",""]\n'
        assert read_checked(top / "texts/utf8.bin") == b'a"bz' * 6
        assert peak_memory(mnt) < 64


def test_rows_beyond_everything(tmp_path):
    """Row counts that no table has room for, and sizes past 2^63."""
    many = w.file(2**63 - 1, [w.Column("a", "Int32", [BLOCK], 4)])
    none = w.file(2**63 - 1, [])
    wide = w.file(2**31 - 1, [w.Column("a", w.vbuffer("DataViewRowId", (2**31 - 1,)), [BLOCK], 2**31 - 1)])
    for name, data in {"many": many, "none": none, "wide": wide}.items():
        (tmp_path / name).write_bytes(data)
    with mounted(tmp_path) as mnt:
        assert os.listdir(mnt / "many/columns/a") == []
        assert os.listdir(mnt / "none/columns") == []
        assert os.listdir(mnt / "wide/columns/a") == ["values.npy", "block_0.bin"]
        fails(lambda: os.stat(mnt / "wide/columns/a/values.npy"))


def test_zero_items(tmp_path):
    """Vectors without a single stored item, with and without a header of no texts; rows without slots."""
    blocks = [w.vectors([(3, {}), (3, {})], w.texts, empty_items=present) for present in (True, False)]
    sparse = w.Column("sparse", w.vbuffer("TextSpan", (3,)), blocks, 2)
    empty = w.Column("empty", w.vbuffer("TextSpan"), [w.vectors([[], []], w.texts, 0, present) for present in (True, False)], 2)
    mixed = w.Column("mixed", w.vbuffer("Byte"), [w.vectors(rows, bytes) for rows in ([[], [1]], [[], []])], 2)
    with mount_one(tmp_path, w.file(4, [sparse, empty, mixed])) as mnt:
        top = mnt / "x.idv/columns"
        check_texts(top / "sparse", [["", "", ""]] * 4, True, False)
        check_texts(top / "empty", [[]] * 4, True, True)
        assert np.load(top / "mixed/offsets.npy").tolist() == [0, 0, 1, 1, 1]
        assert np.load(top / "mixed/values.npy").tolist() == [1]


def test_many_blocks_cost_nothing(tmp_path):
    """A million blocks and rows: opening, listing one and reading one are quick; sizes come from the table."""
    count = 1_000_000
    out = bytearray(256)
    block = w.texts(["ab"])
    out += block
    table = len(out)
    out += struct.pack("<qii", 256, len(block), len(block)) * count
    toc = len(out)
    for name, codec in (("t", "TextSpan"), ("n", "Int32")):
        out += w.string(name) + w.definition(codec) + b"\0" + w.leb(1) + struct.pack("<qq", table, 0)
    full = (0x000100010001 << 16) | 6
    struct.pack_into("<8sQQqqqi", out, 0, b"CML\0DVB\0", full, full, toc, len(out), count, 2)
    with mount_one(tmp_path, bytes(out) + b"\0BVD\0LMC") as mnt:
        top = mnt / "x.idv/columns"
        assert os.stat(top / "t/utf8.bin").st_size == 2 * count
        assert (top / "t/block_999999.bin").read_bytes() == block
        assert not (top / "t/block_1000000.bin").exists()
        offsets = np.load(top / "t/offsets.npy", mmap_mode="r")
        assert offsets[[0, 1, 500_000, count]].tolist() == [0, 2, 1_000_000, 2 * count]
        numbers = np.load(top / "n/values.npy")
        assert len(numbers) == count and (numbers == 1).all()
        assert peak_memory(mnt) < 256
        del offsets


def test_marks_between_rows(tmp_path):
    """Hundreds of rows in a block, so that every file begins and ends somewhere between two marks of its index."""
    random = rng("marks")
    rows, full = [], []
    for _ in range(700):
        length = random.choice([0, 1, 2, 9])
        # A sparse vector leaves out empty texts; `None` is missing.
        values = [random.choice([None, "", text]) for text in some_text(random, length)]
        if random.random() < 0.5 or not length:
            rows.append(values)
            full.append(values)
        else:
            slots = sorted(random.sample(range(length), random.randint(0, length - 1)))
            rows.append((length, {slot: values[slot] for slot in slots}))
            full.append([values[slot] if slot in slots else "" for slot in range(length)])
    ascii_only = [[text and text.encode("ascii", "ignore").decode() for text in row] for row in full]
    scalars = [random.choice([None, text, text * 90]) for text in some_text(random, 700)]
    plain = [text and text.encode("ascii", "ignore").decode() for text in scalars]
    blocks = lambda values, make: [make(part) for part in w.split(values, 320)]
    columns = [
        w.Column("mixed", w.vbuffer("TextSpan"), blocks(rows, lambda part: w.vectors(part, w.texts)), 320, 1),
        w.Column("dense", w.vbuffer("TextSpan"), blocks(ascii_only, lambda part: w.vectors(part, w.texts)), 320, 1),
        w.Column("scalars", "TextSpan", blocks(scalars, w.texts), 320, 1),
        w.Column("plain", "TextSpan", blocks(plain, w.texts), 320, 1),
        # Every row has a length, all the same; no row has any slot.
        w.Column("same", w.vbuffer("TextSpan"), blocks([["a", "é"]] * 700, lambda part: w.vectors(part, w.texts, 0)), 320, 1),
        w.Column("none", w.vbuffer("TextSpan"), blocks([[]] * 700, lambda part: w.vectors(part, w.texts)), 320, 1),
    ]
    with mount_one(tmp_path, w.file(700, columns)) as mnt:
        top = mnt / "x.idv/columns"
        check_texts(top / "mixed", full, True, True)
        check_texts(top / "dense", ascii_only, True, True)
        check_texts(top / "scalars", scalars, False, False)
        check_texts(top / "plain", plain, False, False)
        check_texts(top / "same", [["a", "é"]] * 700, True, True)
        check_texts(top / "none", [[]] * 700, True, True)


def test_an_index_takes_less_than_its_block(tmp_path):
    """A small file whose blocks have millions of rows: beside a block nothing is held that grows as it does."""
    count = 6 << 20
    empty, empty_size = w.zeros_between(w.numbers("i", [count, 0]), (b"\0", 4 * count), (b"\xff", 4 * count), bytes(9))
    text, text_size = w.zeros_between(w.numbers("i", [count]), (b"\0", 4 * count), b"\0")
    # Half of them with one absent slot, so that no two rows are the same multiple of anything.
    mixed, mixed_size = w.zeros_between(w.numbers("i", [count, 0]), (w.numbers("i", [0, 1]), count // 2),
                                      (w.numbers("i", [-1, 0]), count // 2), bytes(9))
    files = {"empty": (w.vbuffer("TextSpan"), empty, empty_size), "text": (("TextSpan", b""), text, text_size),
             "mixed": (w.vbuffer("TextSpan"), mixed, mixed_size)}
    for name, (codec, data, size) in files.items():
        (tmp_path / name).write_bytes(w.of_records(count, count, [("a", codec)], data, [(0, len(data), size)]))
        assert (tmp_path / name).stat().st_size < 1 << 20
    # The first and the last lines, how many bytes all have, and the last places of rows.
    want = {"empty": (b"[]\n", 3 * count, [0, 0, 0]), "text": (b'""\n', 3 * count, None),
            "mixed": (b'[]\n[""]\n', 8 * count // 2, [count // 2 - 1, count // 2 - 1, count // 2])}
    for name, (_, _, size) in files.items():
        lines, length, last = want[name]
        with mounted(tmp_path, "--cache-size", "64M") as mnt:
            path = mnt / name / "columns/a/values.jsonl"
            assert path.stat().st_size == length
            with open(path, "rb") as file:
                assert file.read(16) == (lines * 16)[:16]
                file.seek(-16, os.SEEK_END)
                assert file.read() == (lines * 16)[-16:]
            if last:
                assert np.load(path.with_name("rows.npy"), mmap_mode="r")[-3:].tolist() == last
            # A block, once more while it is inflated, and a little.
            assert peak_memory(mnt) < 2 * (size >> 20) + 64, name


@pytest.mark.parametrize("kind", [0, 1])
def test_surplus_behind_no_items(kind, tmp_path):
    """Vectors without a single text, in a block longer than needed: what is too much is no text."""
    blocks = [w.vectors([[], []], w.texts, 0) + bytes(100), w.vectors([["ab"], []], w.texts)]
    sparse = [w.vectors([(3, {}), (3, {})], w.texts) + b"\7" * 9, w.vectors([["a", "b", ""], ["", "", "c"]], w.texts)]
    columns = [w.Column("empty", w.vbuffer("TextSpan"), blocks, 2, kind),
               w.Column("sparse", w.vbuffer("TextSpan", (3,)), sparse, 2, kind),
               w.Column("only", w.vbuffer("TextSpan"), [blocks[0]] * 2, 2, kind)]
    with mount_one(tmp_path, w.file(4, columns)) as mnt:
        top = mnt / "x.idv/columns"
        check_texts(top / "empty", [[], [], ["ab"], []], True, True)
        check_texts(top / "sparse", [["", "", ""]] * 2 + [["a", "b", ""], ["", "", "c"]], True, False)
        check_texts(top / "only", [[]] * 4, True, True)
        assert np.load(top / "only/offsets.npy").tolist() == [0]
        assert (mnt / ".shardfs/problems.jsonl").read_text() == ""


def twins(prefix, lane, kept):
    """Two names with one XXH64, which differ in 8 bytes behind `prefix` and in 8 bytes 32 further on. Of the first 8
    those of `kept` are the same in both. XXH64 takes 32 bytes at once, 8 in each of four lanes that it mixes at the end."""
    p1, p2, full = 11400714785074694791, 14029467366897019727, (1 << 64) - 1

    def mix(state, word):
        state = (state + word * p2) & full
        return (state << 31 & full | state >> 33) * p1 & full

    state = (p1 + p2 & full, p2)[lane]
    for at in range(8 * lane, len(prefix) // 32 * 32, 32):
        state = mix(state, int.from_bytes(prefix[at:at + 8], "little"))
    first, second = kept + b"x" * (8 - len(kept)), b"y" * 8
    other = kept + b"z" * (8 - len(kept))
    word = lambda part: int.from_bytes(part, "little")
    # The second word makes up for the first.
    delta = mix(state, word(first)) - mix(state, word(other))
    made_up = (word(second) + delta * pow(p2, -1, 1 << 64) & full).to_bytes(8, "little")
    names = [prefix + a + b"-" * 24 + b + b"-" * 24 for a, b in ((first, second), (other, made_up))]
    assert names[0] != names[1] and xxhash.xxh64_intdigest(names[0]) == xxhash.xxh64_intdigest(names[1])
    return names


def test_long_names_of_one_path(tmp_path):
    """Different names over 255 bytes become one path where their hashes agree: then they count as duplicates."""
    # The same path at once, and the same path only once both are numbered.
    for label, (a, b) in {"plain": twins(b"p" * 320, 0, b""), "numbered": twins(b"p" * 232, 1, b"pp")}.items():
        one = lambda value: [w.numbers("i", [value])]
        names = [a, b, a, b, b]
        columns = [w.Column(name, "Int32", one(number), 1) for number, name in enumerate(names)]
        entries = [w.entry(name, "Int32", w.numbers("i", [number])) for number, name in enumerate(names)]
        columns.append(w.Column("all", "Int32", one(7), 1, metadata=entries))
        (tmp_path / label).write_bytes(w.file(1, columns))
    with mounted(tmp_path) as mnt:
        for label in ("plain", "numbered"):
            top = mnt / label / "columns"
            items = json.loads((mnt / label / "container.json").read_text())["items"]
            folders = [item["path"].removeprefix("columns/") for item in items]
            assert len(set(folders)) == 6 and set(os.listdir(top)) == set(folders)
            assert [np.load(top / folder / "values.npy").tolist() for folder in folders] == [[0], [1], [2], [3], [4], [7]]
            # Hidden is what another column of the same name hides, not one that has the same folder.
            assert [item["hidden"] for item in items] == [True, True, False, True, False, False]
            entries = os.listdir(top / "all/metadata")
            assert len(set(entries)) == 5
            assert sorted(np.load(top / "all/metadata" / name).item() for name in entries) == [0, 1, 2, 3, 4]
        # The last keeps the plain name, the first metadata do; the others are numbered in order.
        folders = [item["path"][-4:] for item in json.loads((mnt / "plain/container.json").read_text())["items"]]
        assert [folder[1:] for folder in folders[:4]] == ["%_2", "%_3", "%_4", "%_5"] and "%_" not in folders[4]


@pytest.mark.parametrize("pad", [4, 5, 9])
def test_lengths_of_names(pad, tmp_path):
    """The length of a string has at most 5 bytes, redundant ones included."""
    data = w.file(4, [w.Column("abc", "Int32", [BLOCK], 4)])
    padded = data.replace(b"\3abc", w.leb(3, pad) + b"abc")
    tail = struct.unpack_from("<q", data, 32)[0] + pad
    padded = padded[:32] + struct.pack("<q", tail) + padded[40:]
    with mount_one(tmp_path, padded) as mnt:
        if pad == 4:
            assert np.load(mnt / "x.idv/columns/abc/values.npy").tolist() == [0, 1, 2, 3]
        else:
            assert (mnt / "x.idv").read_bytes() == padded
            assert "column 0" in (mnt / ".shardfs/problems.jsonl").read_text()


def test_records_that_share_their_bytes(tmp_path):
    """A hundred thousand records of one block that inflates to millions of rows: one look says the size of all."""
    rows, count = 1 << 20, 100_000
    codec = w.vbuffer("TextSpan")
    data, size = w.zeros_between(w.numbers("i", [rows, 0]), (b"\0", 4 * rows), (b"\xff", 4 * rows), bytes(9))
    small = w.pack(w.vectors([["ab"], []], w.texts), 1)
    small_size = len(w.vectors([["ab"], []], w.texts))
    same = w.of_records(rows * count, rows, [("a", codec), ("b", codec)], data, [(0, len(data), size)] * count)
    mixed = w.of_records(6, 2, [("a", codec)], small, [(0, len(small), small_size)] * 3)
    # The same bytes, told apart by what surplus their sizes add: each would be inflated.
    other = w.of_records(rows * count, rows, [("a", codec)], data + bytes(count),
                       [(0, len(data) + number, size) for number in range(count)])
    for name, file in {"same": same, "mixed": mixed, "other": other}.items():
        (tmp_path / name).write_bytes(file)
    with mounted(tmp_path) as mnt:
        start = time.monotonic()
        for column in "ab":
            top = mnt / "same/columns" / column
            assert os.stat(top / "utf8.bin").st_size == 0
            assert os.stat(top / "offsets.npy").st_size == 128 + 8
            assert os.stat(top / "values.jsonl").st_size == 3 * rows * count
            assert os.stat(top / "rows.npy").st_size == 128 + 8 * (rows * count + 1)
        fails(lambda: os.stat(mnt / "other/columns/a/utf8.bin"))
        assert time.monotonic() - start < 60
        check_texts(mnt / "mixed/columns/a", [["ab"], []] * 3, True, True)
        assert "overlap" in (mnt / ".shardfs/problems.jsonl").read_text()
