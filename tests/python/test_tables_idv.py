"""`table.parquet` of IDV files: every golden one, and random ones, read by every program that people use."""

import errno
import json
import random

import numpy as np
import pytest

from support import mounted, run
from support.tables import EPOCH, READERS, assert_same, check_footer, of_numpy, plain_names
from support.writers import idv as w
from test_idv_cases import CODECS, ROWS, column_of

NAME = "table.parquet"
# Vectors with more elements are left out.
LONGEST_LIST = 4096


def item_codec(codec):
    return codec["inner"]["name"] if codec["name"] == "VBuffer" else codec["name"]


def is_old(version, name):
    """Whether the least number of a signed type is a missing value."""
    return version <= 5 or name.startswith("Dv")


def column_rows(stored, name, version, key_texts=None, is_key=False):
    """The rows of a scalar column: `stored` is its `values.npy`, `name` its codec."""
    rows = of_numpy(stored)
    if key_texts is not None:
        return [key_texts[key - 1] if 1 <= key <= len(key_texts) else None for key in rows]
    if is_key:
        return [key or None for key in rows]
    if name == "DvBool":
        return [{0: False, 1: True, 2: None}[value] for value in rows]
    is_time = name in ("TimeSpan", "DvTimeSpan", "DateTime", "DvDateTime")
    missing = []
    if stored.dtype.kind == "i" and (version <= 5 or is_time and name.startswith("Dv")):
        least = np.iinfo(stored.dtype).min
        missing = [value == least for value in rows]
    if name in ("DateTime", "DvDateTime"):
        # Python's division rounds down.
        rows = [(value - EPOCH) // 10 for value in rows]
    return [None if gone else value for value, gone in zip(rows, missing)] if missing else rows


def texts_of(value):
    """The texts of a row, in any shape, as one list."""
    return [text for part in value for text in texts_of(part)] if isinstance(value, list) else \
        [None if value is None else value.encode()]


def elements(stored, item):
    """The elements of lists, which are never missing, and times with a zone as microseconds of UTC."""
    inner = bytes.fromhex(item["parameters"]) if item["codec"] == "VBuffer" else b""
    if stored.dtype.names:
        # Python's division rounds down.
        ticks, minutes = stored["ticks"].tolist(), stored["offset_minutes"].tolist()
        return [(tick - 600_000_000 * ahead - EPOCH) // 10 for tick, ahead in zip(ticks, minutes)]
    if inner[1:1 + inner[0]] in (b"DateTime", b"DvDateTime"):
        return [(tick - EPOCH) // 10 for tick in stored.tolist()]
    if item["type"].startswith("row id"):
        return [pair.tobytes() for pair in stored.reshape(-1, 2)]
    return of_numpy(stored)


def expected_table(top):
    """What the table of a mounted file should hold, by its other files; and the columns that it should leave out."""
    about = json.loads((top / "container.json").read_text())
    version = int(about["version"].split(".")[-1])
    table, left_out = {}, []
    for item in about["items"]:
        if item["hidden"]:
            continue
        folder, name, kind = top / item["path"], item["name"], item["type"]
        if item["status"] != "ok" or item["dims"] is not None and (
                int(np.prod(item["dims"], dtype=object)) > LONGEST_LIST):
            left_out.append(name)
        elif item["dims"] is not None and kind.startswith("text"):
            lines = (folder / "values.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
            table[name] = [texts_of(json.loads(line)) for line in lines]
        elif item["dims"] is not None and (folder / "offsets.npy").exists():
            starts, stored = np.load(folder / "offsets.npy").tolist(), elements(np.load(folder / "values.npy"), item)
            table[name] = [stored[start:end] for start, end in zip(starts, starts[1:])]
        elif kind == "text":
            lines = (folder / "values.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
            table[name] = [None if text is None else text.encode() for text in map(json.loads, lines)]
        elif kind == "ticks and minutes":
            stored = np.load(folder / "values.npy")
            ticks = of_numpy(stored["ticks"])
            old = is_old(version, item["codec"])
            times = elements(stored, item)
            table[name] = [None if old and tick == -2**63 else time for tick, time in zip(ticks, times)]
            table[name + "_offset_minutes"] = of_numpy(stored["offset_minutes"])
        elif kind.startswith("row id"):
            stored = np.load(folder / "values.npy")
            rows = [pair.tobytes() for pair in stored.reshape(-1, 2)]
            slots = len(rows) // max(1, len(stored))
            table[name] = rows if stored.ndim == 2 else [rows[at:at + slots] for at in range(0, len(rows), slots)]
        elif item["dims"] is not None:
            stored = np.load(folder / "values.npy")
            flat = elements(stored.reshape(-1), item)
            slots = int(np.prod(item["dims"], dtype=object))
            table[name] = [flat[at:at + slots] for at in range(0, len(flat), slots)]
        else:
            values = folder / "metadata" / "KeyValues.jsonl"
            texts = None
            if item["key"] is not None and values.exists():
                texts = [None if text is None else text.encode() for text in json.loads(values.read_text("utf-8"))]
                texts = texts[:item["key"]["count"] or None]
                texts = None if None in texts or not texts else texts
            table[name] = column_rows(np.load(folder / "values.npy"), item["codec"], version, texts,
                                      item["key"] is not None)
    return table, left_out


def test_golden(golden_idv, idv_mount):
    name, expected = golden_idv
    top = idv_mount / name
    if not top.is_dir():
        return
    about = json.loads((top / "container.json").read_text())
    if about["rows"] > 100_000:
        # Claims that no file keeps: the footer is there, and says what the table would be.
        assert check_footer(top / NAME).num_rows == about["rows"]
        return
    table, left_out = expected_table(top)
    if not table:
        assert not (top / NAME).exists() and "tables" not in about
        return
    assert about["tables"] == [{"path": NAME, "rows": about["rows"], "columns": len(table), "left_out": [
        {"column": column, "reason": reason["reason"]}
        for column, reason in zip(left_out, about["tables"][0]["left_out"])]}]
    assert all(reason["reason"] for reason in about["tables"][0]["left_out"])
    check_footer(top / NAME)
    for reader in READERS.values():
        assert_same(reader(top / NAME), plain_names(table), f"{name} by {reader.__name__}")


def test_pandas_reads_every_table_whole(idv_mount):
    """With numpy's types, its default: no column is of a type that it refuses."""
    import pandas as pd

    read = 0
    for path in sorted(idv_mount.rglob(NAME)):
        if json.loads((path.parent / "container.json").read_text())["rows"] <= 100_000:
            frame = pd.read_parquet(path)
            assert len(frame) == json.loads((path.parent / "container.json").read_text())["rows"]
            read += 1
    assert read > 5


def test_lists_of_varying_length(tmp_path):
    """Numbers, texts, dates and row ids: some rows are empty, some texts missing, and there are several row groups."""
    import pyarrow.parquet as pq

    draw, rows, per_block = np.random.default_rng(5), 150_000, 4096
    lengths = draw.integers(0, 4, rows).tolist()
    lengths[7] = 9000
    lists = [list(range(at, at + length)) for at, length in enumerate(lengths)]
    texts = [[None if value % 5 == 0 else "é" * (value % 3) for value in row] for row in lists]
    column = lambda name, codec, values, make: w.Column(
        name, w.vbuffer(codec, (0,)), [w.vectors(part, make) for part in w.split(values, per_block)], per_block, 1)
    data = w.file(rows, [column("n", "Int32", lists, lambda v: w.numbers("i", v)),
                         column("b", "Boolean", [[value % 2 for value in row] for row in lists], w.booleans),
                         column("t", "TextSpan", texts, w.texts)])
    (tmp_path / "x.idv").write_bytes(data)
    with mounted(tmp_path) as mnt:
        path = mnt / "x.idv" / NAME
        meta = check_footer(path)
        assert meta.num_row_groups > 1
        table = {"n": lists, "b": [[value % 2 == 1 for value in row] for row in lists],
                 "t": [[None if text is None else text.encode() for text in row] for row in texts]}
        for reader in READERS.values():
            assert_same(reader(path), table, reader.__name__)
        schema = pq.read_schema(path)
        assert [str(schema.field(name).type) for name in schema.names] == [
            "list<element: int32 not null>", "list<element: bool not null>", "list<element: string>"]
        # Parts of it, and any range of its bytes.
        assert pq.ParquetFile(path).read_row_group(1, columns=["t"])["t"].to_pylist() == texts[
            meta.row_group(0).num_rows:][:meta.row_group(1).num_rows]
        whole = path.read_bytes()
        with open(path, "rb", buffering=0) as file:
            for start in draw.integers(0, len(whole), 50).tolist():
                file.seek(start)
                assert file.read(5000) == whole[start:start + 5000]


@pytest.fixture(scope="module")
def every_codec(tmp_path_factory):
    """A mount of files of random values: of every codec, in every compression, with blocks of several sizes."""
    top = tmp_path_factory.mktemp("tables")
    for version in (5, 6):
        for kind in (0, 1, 2):
            columns = [column_of(name, kind, [ROWS, 5, 8, 1][at % 4], shape, version)[0]
                       for at, name in enumerate(CODECS) for shape in ("scalar", (3,), (2, 17))]
            (top / f"v{version}_{kind}.idv").write_bytes(w.file(ROWS, columns, version=version))
    with mounted(top) as mnt:
        yield mnt


@pytest.mark.parametrize("name", [f"v{version}_{kind}.idv" for version in (5, 6) for kind in (0, 1, 2)])
def test_every_codec(every_codec, name):
    table, left_out = expected_table(every_codec / name)
    # Times with a zone, of two kinds, become two columns.
    assert left_out == [] and len(table) == 3 * len(CODECS) + 2
    check_footer(every_codec / name / NAME)
    for reader in READERS.values():
        assert_same(reader(every_codec / name / NAME), table, f"{name} by {reader.__name__}")


CITIES = ["Aachen", "Zürich", "日本", "", "O'Neill"]


def sales(seed, rows, per_block):
    """A table as people have them, and its columns as lists."""
    draw = np.random.default_rng(seed)
    table = {
        "id": draw.integers(0, 2**40, rows).tolist(),
        "city": draw.integers(0, len(CITIES) + 1, rows).tolist(),
        "price": (draw.integers(-999, 999, rows) / 8).tolist(),
        "paid": draw.integers(0, 2, rows).tolist(),
        "note": [None if length < 2 else "n" * (length - 2) for length in draw.integers(0, 11, rows).tolist()],
    }
    codecs = {
        "id": ("Int64", lambda v: w.numbers("q", v)), "price": ("Single", lambda v: w.numbers("f", v)),
        "paid": ("Boolean", w.booleans), "note": ("TextSpan", w.texts),
        "city": (w.key2("Byte", len(CITIES)), lambda v: w.numbers("B", v)),
    }
    keys = [w.entry("KeyValues", w.vbuffer("TextSpan", (len(CITIES),)), w.vectors([CITIES], w.texts))]
    columns = [w.Column(name, codecs[name][0], [codecs[name][1](part) for part in w.split(values, per_block)],
                        per_block, 1, keys if name == "city" else ()) for name, values in table.items()]
    table["city"] = [CITIES[key - 1] if key else None for key in table["city"]]
    table["paid"] = [value == 1 for value in table["paid"]]
    return w.file(rows, columns), table


# More than one row group.
MANY = 140_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A mount of a table of several row groups, and what it holds."""
    top = tmp_path_factory.mktemp("shop")
    data, table = sales(1, MANY, 8192)
    (top / "shop.idv").write_bytes(data)
    with mounted(top) as mnt:
        yield mnt / "shop.idv" / NAME, table, data


def test_questions(shop):
    """Projections, filters, limits and joins over several row groups, as Python answers them."""
    import duckdb
    import polars as pl

    path, table, _ = shop
    meta = check_footer(path)
    assert [meta.row_group(at).num_rows for at in range(meta.num_row_groups)] == [131072, 8928]
    rows = list(zip(*table.values()))
    ask = lambda sql: duckdb.sql(sql.replace("SHOP", f"read_parquet('{path}')")).fetchall()
    assert ask("select count(*) from SHOP") == [(len(rows),)]
    assert ask("select * from SHOP limit 5") == rows[:5]
    assert ask("select * from SHOP limit 3 offset 131071") == rows[131071:131074]
    paid = [row for row in rows if row[3] and row[1] == "Zürich" and row[4] is not None]
    assert ask("select id from SHOP where paid and city = 'Zürich' and note is not null order by id") == \
        sorted((row[0],) for row in paid)
    sums = {}
    for _, city, price, _, _ in rows:
        sums[city] = sums.get(city, 0) + price
    assert dict(ask("select city, sum(price::double) from SHOP group by city")) == sums
    most = {row[1] for row in ask("select a.id, b.note from SHOP a join SHOP b using (id) where a.price > 124")}
    assert most == {row[4] for row in rows if row[2] > 124}
    lazy = pl.scan_parquet(path)
    assert lazy.select("note", "id").head(7).collect().rows() == [(row[4], row[0]) for row in rows[:7]]
    assert lazy.filter(pl.col("note") == "nn").select(pl.len()).collect().item() == \
        sum(row[4] == "nn" for row in rows)
    assert lazy.select(pl.col("city").null_count()).collect().item() == sum(row[1] is None for row in rows)
    draw = random.Random(2)
    names = list(table)
    for _ in range(8):
        some = draw.sample(names, draw.randint(1, len(names)))
        start, count = draw.randrange(len(rows)), draw.randint(1, 1000)
        picked = lazy.select(some).slice(start, count).collect().rows()
        assert picked == [tuple(row[names.index(name)] for name in some) for row in rows[start:start + count]]


def test_any_range_is_the_slice_of_the_whole(shop):
    path, _, data = shop
    whole = path.read_bytes()
    assert len(whole) == path.stat().st_size and whole[:4] == whole[-4:] == b"PAR1"
    draw = random.Random(3)
    with open(path, "rb", buffering=0) as file:
        for _ in range(200):
            start = draw.randrange(len(whole))
            length = draw.choice([1, 7, 4096, 100_000])
            file.seek(start)
            assert file.read(length) == whole[start:start + length][:length]


@pytest.mark.parametrize("options", [["--cache-size=1M"], ["--serve=passthrough"], ["--verify=strict"]])
def test_the_same_bytes_however_it_is_mounted(shop, tmp_path, options):
    path, _, data = shop
    whole = path.read_bytes()
    (tmp_path / "shop.idv").write_bytes(data)
    with mounted(tmp_path, *options) as mnt:
        assert (mnt / "shop.idv" / NAME).read_bytes() == whole
        assert run("cat", tmp_path / "shop.idv" / NAME, check=True).stdout == whole


def test_eight_readers_at_once(shop):
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.parquet as pq

    path, table, _ = shop
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda path: pq.read_table(path, memory_map=True), [path] * 8):
            assert found["id"].to_pylist() == table["id"]


def test_damage_stays_in_its_page(tmp_path):
    """A block of one column is damaged: its row group of that column is EIO, everything else can be queried."""
    import duckdb
    import polars as pl
    import pyarrow.parquet as pq

    rows, per_block = 270_000, 8192
    values = list(range(rows))
    texts = [f"text {value}" for value in values]
    column = lambda name, codec, block, part: w.Column(
        name, codec, [block(values) for values in w.split(part, per_block)], per_block, 1)
    columns = [column("a", "Int32", lambda v: w.numbers("i", v), values), column("t", "TextSpan", w.texts, texts),
               column("b", "Int32", lambda v: w.numbers("i", v), values)]
    # Block 20 of each lies in the second group.
    damage = {(at, 20): b"\xff" * len(w.pack(columns[at].blocks[20], 1)) for at in (0, 1)}
    (tmp_path / "bad.idv").write_bytes(w.file(rows, columns, damage=damage))
    with mounted(tmp_path) as mnt:
        path = mnt / "bad.idv" / NAME
        check_footer(path)
        file = pq.ParquetFile(path)
        for name, expected in ("a", values), ("t", texts), ("b", values):
            for group in range(file.num_row_groups):
                rows_here = slice(group * 131072, (group + 1) * 131072)
                if name != "b" and group == 1:
                    with pytest.raises(OSError) as failed:
                        file.read_row_group(group, [name])
                    assert failed.value.errno == errno.EIO or "Input/output error" in str(failed.value)
                else:
                    found = file.read_row_group(group, [name]).column(0).to_pylist()
                    assert found == expected[rows_here], (name, group)
        assert duckdb.sql(f"select sum(b) from '{path}'").fetchall() == [(sum(values),)]
        assert pl.scan_parquet(path).select(pl.col("b").cast(pl.Int64).sum()).collect().item() == sum(values)
        with pytest.raises(Exception):
            duckdb.sql(f"select sum(a) from '{path}'").fetchall()
        problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert {(problem["path"], problem["block"]) for problem in problems} >= {(NAME, "block_20")}


def test_a_footer_that_claims_much(tmp_path):
    """A small file that claims many rows: a table of them costs nothing until its damaged pages are read."""
    import pyarrow.parquet as pq

    rows = 10_000_000_000
    columns = [w.Column("a", "Int32", [w.numbers("i", [1])], 2**31 - 1, 0, records={0: (256, 4, 4)}),
               w.Column("t", "TextSpan", [w.texts(["x"])], 2**31 - 1, 0)]
    for column in columns:
        column.blocks = column.blocks * 5
    (tmp_path / "much.idv").write_bytes(w.file(rows, columns))
    with mounted(tmp_path) as mnt:
        path = mnt / "much.idv" / NAME
        meta = pq.read_metadata(path)
        assert meta.num_rows == rows and meta.num_row_groups * 2 <= 1 << 17
        with open(path, "rb") as file:
            file.seek(1 << 20)
            with pytest.raises(OSError) as failed:
                file.read(10)
            assert failed.value.errno == errno.EIO


def test_many_columns(tmp_path):
    """More columns than readers take well: the first 10,000 are in the table, and the others counted."""
    columns = [w.Column(f"c{at}", "Byte", [bytes([at % 256])], 1) for at in range(10_007)]
    (tmp_path / "wide.idv").write_bytes(w.file(1, columns))
    with mounted(tmp_path) as mnt:
        assert check_footer(mnt / "wide.idv" / NAME).num_columns == 10_000
        found = READERS["pyarrow_threads"](mnt / "wide.idv" / NAME)
        assert [rows[0] for rows in found.values()] == [at % 256 for at in range(10_000)]
        about = json.loads((mnt / "wide.idv/container.json").read_text())
        assert (about["tables"][0]["columns"], about["tables"][0]["left_out_behind"]) == (10_000, 7)


def test_without_tables(tmp_path):
    data, _ = sales(4, 100, 8)
    (tmp_path / "shop.idv").write_bytes(data)
    with mounted(tmp_path, "--no-tables") as mnt, mounted(tmp_path) as other:
        assert sorted(path.name for path in (mnt / "shop.idv").iterdir()) == ["columns", "container.json"]
        assert not (mnt / "shop.idv" / NAME).exists()
        assert (mnt / "shop.idv/container.json").read_bytes() == (other / "shop.idv/container.json").read_bytes()
    assert NAME.encode() not in run("ls", "--no-tables", tmp_path / "shop.idv", check=True).stdout
    run("cp", "-r", "--no-tables", tmp_path / "shop.idv", tmp_path / "copy", check=True)
    assert not list((tmp_path / "copy").rglob("*.parquet"))
    run("cp", tmp_path / "shop.idv" / NAME, tmp_path / "copy.parquet", check=True)
    check_footer(tmp_path / "copy.parquet")


def test_what_is_known_of_it(tmp_path):
    data, _ = sales(5, 100, 8)
    (tmp_path / "shop.idv").write_bytes(data)
    listed = run("ls", "--json", tmp_path / "shop.idv", check=True).stdout.splitlines()
    entry = next(entry for entry in map(json.loads, listed) if entry["path"].endswith(NAME))
    assert entry["shape"] == [100, 5]
    import pyarrow.parquet as pq

    with mounted(tmp_path, "--xattrs") as mnt:
        import os

        assert os.getxattr(mnt / "shop.idv" / NAME, "user.shardfs.shape") == b"[100,5]"
        about = json.loads(pq.read_metadata(mnt / "shop.idv" / NAME).metadata[b"shardfs"])
        assert (about["format"], about["version"]) == ("idv", "1.1.1.6")
        assert about["columns"]["note"] == {"codec": "TextSpan", "type": "text"}
