"""Tables of tree sequences, groups of arrays, KDB files and episodes: values, odd and hostile ones, damage, names."""

import errno
import hashlib
import json
import os
import random
import re
import struct
import subprocess

import numpy as np
import pytest
import tskit

from support import FIXTURES, examples, mounted, run, tables
from support.tables import READERS, assert_same, check_footer, of_numpy
from support.writers import kas
from support.writers.kdb import Episode, Record, pack, write_many
from support.writers.shard import channel, dumps, meta_blocks, write_shard


def check(path, expected, readers=READERS.values()):
    check_footer(path)
    for reader in readers:
        assert_same(reader(path), expected, f"{path} by {reader.__name__}")


def described(container):
    about = json.loads((container / "container.json").read_text())
    return {table.pop("path"): table for table in about.get("tables", [])}


# --- tree sequences ----------------------------------------------------------------------------

def test_tskit_says_the_same(golden, kastore_mount):
    """Every table of a tree sequence, row by row, as tskit gives it."""
    rel = "generated/msprime_two_populations.trees"
    ts = tskit.load(str(golden / "kastore" / rel))
    for name in tables.TREE_SEQUENCE_TABLES:
        table = getattr(ts.tables, name)
        found = tables.pyarrow_threads(kastore_mount / rel / f"{name}.parquet")
        assert found.pop("id") == list(range(table.num_rows))
        schema = table.metadata_schema.schema if "metadata" in found else None
        if schema and schema["codec"] == "struct":
            fields, _ = tables.of_metadata(schema, found["metadata"])
            assert_same({column: found.pop(column) for column in fields}, fields, name)
        for column, rows in found.items():
            stored = getattr(table, column)
            if hasattr(table, column + "_offset"):
                offsets = getattr(table, column + "_offset")
                as_row = np.ndarray.tobytes if stored.dtype.itemsize == 1 else of_numpy
                assert rows == [as_row(stored[a:b]) for a, b in zip(offsets, offsets[1:])], (name, column)
            else:
                assert rows == of_numpy(stored), (name, column)
    # What has a schema of JSON can be asked for as such.
    import duckdb

    populations = kastore_mount / rel / "populations.parquet"
    asked = duckdb.sql(f"select json_extract_string(metadata, '$.name') from '{populations}' order by id").fetchall()
    assert [name for name, in asked] == [p.metadata["name"] for p in ts.populations()]


def test_foreign_keys_are_row_numbers(golden, kastore_mount):
    """Rows of one table name rows of another: joins by `id`, and groups of rows are passed over by their statistics."""
    import duckdb
    import pyarrow.parquet as pq

    top = kastore_mount / "generated/msprime_two_populations.trees"
    ts = tskit.load(str(golden / "kastore/generated/msprime_two_populations.trees"))
    found = duckdb.sql(f"""select m.id, s.position, n.time from '{top}/mutations.parquet' m
        join '{top}/sites.parquet' s on s.id = m.site join '{top}/nodes.parquet' n on n.id = m.node
        order by m.id""").fetchall()
    assert found == [(m.id, ts.site(m.site).position, ts.node(m.node).time) for m in ts.mutations()]
    statistics = pq.read_metadata(top / "nodes.parquet").row_group(0).column(0).statistics
    assert (statistics.min, statistics.max, statistics.null_count) == (0, ts.num_nodes - 1, 0)


def store(folder, name, arrays, form=kas.kastore):
    (folder / name).write_bytes(form(arrays))


@pytest.mark.parametrize("form", [kas.kastore, kas.kast])
def test_random_groups(form, tmp_path):
    """Groups of arrays of one length, of every type, with and without bytes of varying length."""
    draw = np.random.default_rng(11)
    expected = {}
    for number in range(8):
        rows = int(draw.integers(0, 200)) * (number != 0)
        arrays = {}
        for dtype in kas.TYPES:
            width = np.dtype(dtype).itemsize
            arrays[f"all/{dtype[1:]}"] = np.frombuffer(draw.bytes(rows * width), dtype)
        arrays |= kas.ragged("all/bytes", [draw.bytes(int(n)) for n in draw.integers(0, 9, rows)])
        arrays["all/numbers"] = np.arange(3 * rows, dtype="<f8")
        arrays["all/numbers_offset"] = np.arange(0, 3 * rows + 1, 3, dtype="<u4")
        # Different lengths, one array only, and arrays outside any group.
        arrays |= {"odd/a": np.arange(3), "odd/b": np.arange(4), "one/a": np.arange(3), "alone": np.arange(5)}
        arrays |= {"deep/er/a": np.arange(2), "deep/er/b": np.arange(2)}
        store(tmp_path, f"{number}.kas", arrays, form)
        expected[number] = tables.of_store(arrays)
        assert list(expected[number]) == ["all.parquet", "deep/er.parquet"]
    with mounted(tmp_path) as mnt:
        for number, found in expected.items():
            top = mnt / f"{number}.kas"
            for path, columns in found.items():
                check(top / path, columns)
            about = described(top)
            assert list(about) == list(found) and about["all.parquet"]["rows"] == len(found["all.parquet"]["u1"])
            assert about["all.parquet"]["left_out"] == []
            assert not (top / "odd.parquet").exists() and not (top / "one.parquet").exists()


def test_stored_names_win(tmp_path):
    """What is stored keeps its path. A stored folder never has a table's suffix (docs/TREE.md, section 2)."""
    pair = lambda group: {f"{group}/a": np.arange(2), f"{group}/b": np.arange(2)}
    store(tmp_path, "x.kas", pair("t") | {"t.parquet/c": np.arange(1)} | pair("") | pair("u.npy"))
    with mounted(tmp_path) as mnt:
        top = mnt / "x.kas"
        assert np.load(top / "t%2Eparquet/c.npy").tolist() == [0]
        check(top / "t.parquet", {"a": [0, 1], "b": [0, 1]})
        assert {"t.parquet", "%empty.parquet", "u.npy.parquet"} == {
            path.name for path in top.iterdir() if path.is_file() and path.suffix == ".parquet"}


def test_columns_in_a_group_of_odd_names(tmp_path):
    odd = ["a b", "ü", "x" * 300, "line\nbreak", "A", "a"]
    arrays = {f"t/{name}": np.arange(2) + at for at, name in enumerate(odd)}
    store(tmp_path, "x.kas", arrays)
    with mounted(tmp_path) as mnt:
        found = tables.pyarrow_threads(mnt / "x.kas/t.parquet")
        expected = tables.of_store(arrays)["t.parquet"]
        assert_same(found, expected)
        check_footer(mnt / "x.kas/t.parquet")


@pytest.mark.parametrize("last", [[9, 5, 12], [2, 3, 12], [4, 8, 99], [4, 8, 11], [2**32 - 1] * 3])
def test_offsets_that_are_not_sound(last, tmp_path):
    """Texts can't be told apart: their column is EIO, all others can be asked for."""
    import duckdb
    import pyarrow.parquet as pq

    # Columns of some size: of small tables readers take all at once, with the damage.
    rows = 30_000
    offsets = [0] * (rows - 2) + last
    arrays = {"t/n": np.arange(rows), "t/s": np.frombuffer(b"hello, world", "u1"),
              "t/s_offset": np.array(offsets, "<u4"), "t/z": np.arange(rows) * 2}
    store(tmp_path, "x.kas", arrays)
    with mounted(tmp_path) as mnt:
        path = mnt / "x.kas/t.parquet"
        check_footer(path)
        assert duckdb.sql(f"select sum(n), max(z) from '{path}'").fetchall() == [(sum(range(rows)), 2 * rows - 2)]
        if offsets == sorted(offsets) and offsets[-1] <= 12:
            # Where bytes are left at the end no row is in doubt.
            found = pq.read_table(path, columns=["s"])["s"].to_pylist()
            assert found == [b"hello, world"[a:b] for a, b in zip(offsets, offsets[1:])]
        else:
            with pytest.raises(OSError, match="Input/output error"):
                pq.read_table(path, columns=["s"])


def test_a_store_of_many_columns(tmp_path):
    count = 10_020
    store(tmp_path, "x.kas", {f"t/c{at:05}": np.array([at], "<u2") for at in range(count)})
    with mounted(tmp_path) as mnt:
        found = tables.pyarrow_threads(mnt / "x.kas/t.parquet")
        assert [rows[0] for rows in found.values()] == list(range(10_000))
        about = described(mnt / "x.kas")["t.parquet"]
        assert (about["columns"], about["left_out_behind"]) == (10_000, 20)


# --- metadata of the codec `struct` -------------------------------------------------------------

def number(form, index=None):
    return {"type": "number", "binaryFormat": form} | ({} if index is None else {"index": index})


def packed(properties, nullable=False):
    return {"codec": "struct", "type": ["object", "null"] if nullable else "object", "properties": properties}


# The shape of what SLiM writes (pyslim 1.1.1, slim_metadata.py), without descriptions.
SLIM = {
    "mutations": packed({"mutation_list": {
        "type": "array", "noLengthEncodingExhaustBuffer": True, "items": {"type": "object", "properties": {
            "mutation_type": number("i", 1), "selection_coeff": number("f", 2), "subpopulation": number("i", 3),
            "slim_time": number("i", 4), "nucleotide": number("b", 5)}}}}),
    "nodes": packed({"slim_id": number("q", 0), "is_vacant": {
        "type": "array", "length": 2, "items": number("B"), "index": 1}}, nullable=True),
    "individuals": packed({name: number(form, at + 1) for at, (name, form) in enumerate([
        ("pedigree_id", "q"), ("pedigree_p1", "q"), ("pedigree_p2", "q"), ("age", "i"), ("subpopulation", "i"),
        ("sex", "i"), ("flags", "I")])}),
}


def random_schema(draw, depth=0, lists=0):
    """A schema of any kind that tskit accepts."""
    kinds = ["number"] * 4 + ["string"] * 2 + ["bytes", "null"]
    kinds += ["object", "array"] * 2 if depth < 4 else []
    kind = draw.choice(kinds)
    if kind == "number":
        form = draw.choice(list(tables.NUMBERS))
        made = {"type": "boolean" if form == "?" else draw.choice(["number", "integer"]), "binaryFormat": form}
        made["type"] = "number" if form in "fd" else made["type"]
    elif kind == "string":
        encoding = draw.choice(["utf-8", "ascii", "latin-1", "utf-16", "utf-16-le", "UTF_16BE", "utf-32", "utf-32-be"])
        form = draw.choice(["s", "12s", "20p", "c"]) if "1" not in encoding[:5] and "32" not in encoding else "24s"
        made = {"type": "string", "binaryFormat": form, "nullTerminated": draw.random() < 0.6}
        if encoding != "utf-8" or draw.random() < 0.5:
            made["stringEncoding"] = encoding
    elif kind == "bytes":
        made = {"type": "number", "binaryFormat": draw.choice(["c", "7s", "5p"])}
    elif kind == "null":
        made = {"type": "null"} | ({"binaryFormat": draw.choice(["x", "3x"])} if draw.random() < 0.7 else {})
    elif kind == "object":
        made = random_object(draw, depth + 1, lists)
    else:
        items = random_schema(draw, depth + 1, lists + 1)
        while least(items) == 0:
            items = random_schema(draw, depth + 1, lists + 1)
        made = {"type": "array", "items": items}
        how = draw.random()
        if how < 0.3:
            made["length"] = draw.randrange(0, 4)
        elif how < 0.4 and lists == 0:
            made["noLengthEncodingExhaustBuffer"] = True
        elif how < 0.8:
            made["arrayLengthFormat"] = draw.choice("BHILQ")
    if draw.random() < 0.5:
        made["index"] = draw.choice([-1, 0, 0.5, 1, 2, 10])
    return made


def random_object(draw, depth=0, lists=0):
    names = draw.sample(["a", "b", "B", "ü", "c d", "e.f", "zz", "x/y", "n"], draw.randrange(1 + (depth == 0), 6))
    return {"type": "object", "properties": {name: random_schema(draw, depth, lists) for name in names}}


def least(schema):
    """The least number of bytes of a value."""
    if schema["type"] == "object":
        return sum(least(inner) for inner in schema["properties"].values())
    if schema["type"] == "array":
        if schema.get("noLengthEncodingExhaustBuffer"):
            return 0
        return schema["length"] * least(schema["items"]) if "length" in schema else 1
    return struct.calcsize("<" + schema.get("binaryFormat", "0x"))


def random_bytes(draw, schema):
    """A row of a schema: what tskit would write, and now and then what others might."""
    if "object" in schema["type"]:
        properties = sorted(schema["properties"].items(), key=lambda item: (item[1].get("index", 0), item[0]))
        return b"".join(random_bytes(draw, inner) for _, inner in properties)
    form = "<" + schema.get("binaryFormat", "0x")
    if schema["type"] == "array":
        count = schema.get("length", draw.randrange(0, 5))
        elements = b"".join(random_bytes(draw, schema["items"]) for _ in range(count))
        if "length" in schema or schema.get("noLengthEncodingExhaustBuffer"):
            return elements
        return struct.pack("<" + schema.get("arrayLengthFormat", "L"), count) + elements
    if schema["type"] == "string":
        if form[-1] in "c" or form == "<s":
            return bytes([draw.randrange(128)])
        encoding = schema.get("stringEncoding", "utf-8")
        letters = "abc\0 Z" + ("ü" if encoding != "ascii" else "") + ("€" if "utf" in encoding.lower() else "")
        size = struct.calcsize(form) - (form[-1] == "p")
        while len(text := "".join(draw.choices(letters, k=draw.randrange(7))).encode(encoding)) > size:
            pass
        if form[-1] == "s" and len(text) % 4:
            text = text[:len(text) // 4 * 4] if "32" in encoding else text
        return struct.pack(form, text)
    if form[-1] in "fd":
        # No NaN of an odd kind: Python's floats change those of f4.
        return struct.pack(form, draw.choice([draw.gauss(0, 1e6), 0.0, -0.0, float("nan"), float("-inf")]))
    return draw.randbytes(struct.calcsize(form))


def of_rows(table, schema, rows, **columns):
    """A tree sequence with a table of metadata."""
    count = len(rows)
    stored = {f"{table}/{name}": np.zeros(count, dtype) for name, dtype in columns.items()}
    stored |= kas.ragged(f"{table}/metadata", rows)
    stored[f"{table}/metadata_schema"] = np.frombuffer(json.dumps(schema).encode(), "u1")
    return stored | {"format/name": np.frombuffer(b"tskit.trees", "i1"), "format/version": np.array([12, 7], "<u4")}


def test_metadata_of_slim(tmp_path):
    """What SLiM says of nodes, individuals and mutations, as tskit decodes it, by all readers."""
    collection = tskit.TableCollection(10)
    draw = random.Random(4)
    for name, schema in SLIM.items():
        getattr(collection, name).metadata_schema = tskit.MetadataSchema(schema)
    for at in range(500):
        collection.nodes.add_row(time=at, metadata=None if draw.random() < 0.3 else {
            "slim_id": draw.getrandbits(62), "is_vacant": [draw.randrange(2), draw.randrange(256)]})
        collection.individuals.add_row(metadata={
            name: draw.randrange(1 << 30) for name in SLIM["individuals"]["properties"]})
        collection.sites.add_row(at / 50, "A")
        collection.mutations.add_row(site=at, node=at, derived_state="T", metadata={"mutation_list": [
            {"mutation_type": draw.randrange(5), "selection_coeff": draw.random(), "subpopulation": -1,
             "slim_time": draw.randrange(1000), "nucleotide": draw.randrange(-1, 4)} for _ in range(draw.randrange(4))]})
    collection.dump(str(tmp_path / "slim.trees"))
    loaded = tskit.TableCollection.load(str(tmp_path / "slim.trees"))
    with mounted(tmp_path) as mnt:
        about = described(mnt / "slim.trees")
        for name in ("nodes", "individuals", "mutations"):
            path = mnt / f"slim.trees/{name}.parquet"
            table = getattr(loaded, name)
            data, offsets = table.metadata.tobytes(), table.metadata_offset
            rows = [data[a:b] for a, b in zip(offsets, offsets[1:])]
            fields, left_out = tables.of_metadata(SLIM[name], rows)
            expected = tables.pyarrow_threads(path)
            assert [column for column in expected if column.startswith("metadata.")] == list(fields) and not left_out
            assert expected["metadata"] == rows
            check(path, expected | fields)
            assert about[f"{name}.parquet"]["columns"] == len(expected)
        # As a user asks: the mutations of one type, and how old they are.
        import duckdb

        asked = duckdb.sql(f"""from (select id, unnest("metadata.mutation_list.slim_time") as born,
            unnest("metadata.mutation_list.mutation_type") as kind from '{mnt}/slim.trees/mutations.parquet')
            where kind = 3 order by all""").fetchall()
        by_tskit = [(at, one["slim_time"], 3) for at, row in enumerate(loaded.mutations)
                    for one in row.metadata["mutation_list"] if one["mutation_type"] == 3]
        assert asked == sorted(by_tskit) and by_tskit
        assert not (mnt / ".shardfs/problems.jsonl").read_text()


def test_rows_without_metadata_have_no_lists(tmp_path):
    """Null is not an empty list, for any reader: numbers, bits and texts, in pages of which some have no lists at all."""
    schema = packed({
        "n": {"type": "array", "arrayLengthFormat": "B", "items": number("h")},
        "b": {"type": "array", "arrayLengthFormat": "B", "items": {"type": "boolean", "binaryFormat": "?"}, "index": 1},
        "t": {"type": "array", "arrayLengthFormat": "B", "items": {"type": "string", "binaryFormat": "3s"}, "index": 2},
        "two": {"type": "array", "length": 2, "items": {"type": "string", "binaryFormat": "2s"}, "index": 3}}, nullable=True)
    codec = tskit.MetadataSchema(schema)
    some = [codec.validate_and_encode_row(row and {
        "n": list(range(row)), "b": [at % 3 == 0 for at in range(row)], "t": ["abc"] * (row // 2), "two": ["xy", "zz"]})
        for row in [None, 1, 2, None, None, 20, 3]]
    empty = struct.pack("<BBB4s", 0, 0, 0, b"....")
    kinds = {"mixed": (some + [empty]) * 40, "null": [b""] * 300, "empty": [empty] * 300, "one": [b""],
             "long": [b""] * 70_000 + some * 10 + [b""] * 70_000}
    for name, rows in kinds.items():
        store(tmp_path, f"{name}.trees", of_rows("nodes", schema, rows, time="<f8"))
    with mounted(tmp_path) as mnt:
        for name, rows in kinds.items():
            fields, left_out = tables.of_metadata(schema, rows)
            assert not left_out and fields["metadata.n"].count(None) == rows.count(b"")
            count = len(rows)
            check(mnt / f"{name}.trees/nodes.parquet",
                  {"id": list(range(count)), "time": [0.0] * count, "metadata": rows} | fields)
        assert not (mnt / ".shardfs/problems.jsonl").read_text()


def with_json(properties, json_properties=None, **more):
    return {"codec": "json+struct", "json": {"type": "object", "properties": json_properties or {}},
            "struct": {"type": "object", "properties": properties}} | more


def test_metadata_of_json_beside_packed_values(tmp_path):
    """As tskit decodes it; texts of any length are in front of the packed values."""
    schema = with_json({"n": number("i"), "pair": {"type": "array", "length": 2, "items": number("d")},
                        "rest": {"type": "array", "noLengthEncodingExhaustBuffer": True, "items": number("H"), "index": 9}},
                       {"name": {"type": "string"}})
    draw = random.Random(5)
    collection = tskit.TableCollection(10)
    collection.populations.metadata_schema = tskit.MetadataSchema(schema)
    for at in range(400):
        collection.populations.add_row(metadata={
            "name": "pö" * draw.randrange(9), "more": {"at": [at]}, "n": at - 200, "pair": [at / 8, -1.0],
            "rest": [draw.randrange(1 << 16) for _ in range(draw.randrange(4))]})
    collection.dump(str(tmp_path / "both.trees"))
    table = tskit.TableCollection.load(str(tmp_path / "both.trees")).populations
    data, offsets = table.metadata.tobytes(), table.metadata_offset
    rows = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    fields, left_out = tables.of_metadata(schema, rows)
    assert list(fields) == [f"metadata.{name}" for name in ("n", "pair", "rest", "json")] and not left_out
    assert fields["metadata.n"] == [row.metadata["n"] for row in table]
    with mounted(tmp_path) as mnt:
        check(mnt / "both.trees/populations.parquet", {"id": list(range(400)), "metadata": rows} | fields)
        import duckdb

        asked = duckdb.sql(f"""select json_extract("metadata.json", '$.more.at[0]')::int - "metadata.n"
            from '{mnt}/both.trees/populations.parquet'""").fetchall()
        assert asked == [(200,)] * 400
        assert not (mnt / ".shardfs/problems.jsonl").read_text()


HEADER = struct.Struct("<4sBQQ")


@pytest.mark.parametrize("row", [
    b"", b"JBLB", HEADER.pack(b"JBLB", 1, 2, 4) + b"{}" + bytes(1), HEADER.pack(b"JBLB", 2, 2, 4) + b"{}" + bytes(5),
    HEADER.pack(b"JBLC", 1, 2, 4) + b"{}" + bytes(5), HEADER.pack(b"JBLB", 1, 2**64 - 1, 4) + b"{}" + bytes(5),
    HEADER.pack(b"JBLB", 1, 2, 2**64 - 1) + b"{}" + bytes(5), HEADER.pack(b"JBLB", 1, 2, 3) + b"{}" + bytes(5)])
def test_a_row_of_json_and_packed_values_that_does_not_fit(row, tmp_path):
    import pyarrow.parquet as pq

    schema = with_json({"n": number("i")})
    codec = tskit.MetadataSchema(schema)
    with pytest.raises((ValueError, struct.error)):
        codec.decode_row(row)
    whole = codec.validate_and_encode_row({"n": 7, "a": 1})
    rows = [whole] * 30_000
    rows[12_345] = row
    store(tmp_path, "x.trees", of_rows("nodes", schema, rows, time="<f8"))
    with mounted(tmp_path) as mnt:
        path = mnt / "x.trees/nodes.parquet"
        assert pq.read_table(path, columns=["metadata"])[0].to_pylist() == rows
        for name in ("n", "json"):
            with pytest.raises(OSError, match="Input/output error"):
                pq.read_table(path, columns=[f"metadata.{name}"])
        said = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert said and all("nodes/metadata row 12345: " in problem["message"] for problem in said)


@pytest.mark.parametrize("schema, reason", [
    (with_json({"n": number("i")}, {"n": {}}), 'both of its schemas have "n"'),
    (with_json({"n": number("z")}), "format"),
    (with_json({"n": number("i")}, struct={"type": ["object", "null"], "properties": {}}), "null"),
    ({"codec": "json+struct", "struct": {"type": "object", "properties": {}}}, "missing field `json`"),
])
def test_schemas_of_json_and_packed_values_that_describe_no_rows(schema, reason, tmp_path):
    store(tmp_path, "x.trees", of_rows("nodes", schema, [b"12345678"] * 3, time="<f8"))
    with mounted(tmp_path) as mnt:
        left_out, = described(mnt / "x.trees")["nodes.parquet"]["left_out"]
        assert left_out["column"] == "metadata.*" and reason in left_out["reason"], left_out


@pytest.mark.parametrize("seed", range(6))
def test_metadata_of_random_schemas(seed, tmp_path):
    draw = random.Random(seed)
    expected = {}
    while len(expected) < 25:
        schema = packed(random_object(draw)["properties"], draw.random() < 0.3)
        tskit.MetadataSchema(schema)
        rows = []
        for _ in range(draw.choice([0, 1, 7, 40, 300])):
            row = random_bytes(draw, schema)
            if "null" in schema["type"] and draw.random() < 0.3:
                row = b""
            elif draw.random() < 0.1:
                row += draw.randbytes(draw.randrange(4))
            rows.append(row)
        try:
            found = tables.of_metadata(schema, rows)
        except (struct.error, UnicodeError, AssertionError):
            continue
        name = f"{len(expected)}.trees"
        store(tmp_path, name, of_rows("nodes", schema, rows, time="<f8"))
        expected[name] = found
    with mounted(tmp_path) as mnt:
        for name, (fields, left_out) in expected.items():
            path = mnt / name / "nodes.parquet"
            found = tables.pyarrow_threads(path)
            fields = tables.plain_names(dict.fromkeys(("id", "time", "metadata")) | fields)
            check(path, {column: found[column] if rows is None else rows for column, rows in fields.items()},
                  [tables.pyarrow_threads, tables.duckdb_rows])
            said = described(mnt / name)["nodes.parquet"]
            assert {one["column"] for one in said["left_out"]} == left_out
            assert said["columns"] == len(found)


@pytest.mark.parametrize("row", [b"", b"\1\0\0", b"\1\0\0\0\5\0ab", b"\1\0\0\0\xff\xff"])
def test_a_row_of_metadata_that_does_not_fit(row, tmp_path):
    """Its columns are EIO and say which row it is; all other columns can be asked for."""
    import duckdb
    import pyarrow.parquet as pq

    schema = packed({"n": number("i", 0), "l": {"type": "array", "items": number("B"), "arrayLengthFormat": "H"},
                     "t": {"type": "string", "binaryFormat": "4s", "index": 2}})
    schema["properties"]["l"]["index"] = 1
    whole = struct.pack("<iHBB4s", 7, 2, 1, 2, b"text")
    with pytest.raises(struct.error):
        tskit.MetadataSchema(schema).decode_row(row)
    rows = [whole] * 30_000
    rows[12_345] = row
    store(tmp_path, "x.trees", of_rows("nodes", schema, rows, time="<f8"))
    with mounted(tmp_path) as mnt:
        path = mnt / "x.trees/nodes.parquet"
        check_footer(path)
        assert duckdb.sql(f"select sum(id), sum(time), sum(octet_length(metadata)) from '{path}'").fetchall() == [
            (sum(range(30_000)), 0.0, sum(map(len, rows)))]
        for name in ("n", "l", "t"):
            with pytest.raises(OSError, match="Input/output error"):
                pq.read_table(path, columns=[f"metadata.{name}"])
        said = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert said and all("nodes/metadata row 12345: " in problem["message"] for problem in said)


@pytest.mark.parametrize("schema, reason", [
    ({"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}}, "no bytes"),
    ({"properties": {"a": {"type": "array", "items": {"type": "string", "binaryFormat": "0s"}}}}, "no bytes"),
    ({"properties": {"a": {"type": "array", "items": {
        "type": "array", "noLengthEncodingExhaustBuffer": True, "items": number("B")}}}}, "no bytes"),
    ({"properties": {f"a{at}": {"type": "array", "items": number("B")} for at in range(65)}}, "more than 64 lists"),
    ({"properties": {"a": number("z")}}, "format"),
    ({"properties": {"a": number("x")}}, "format"),
    ({"properties": {"a": {"type": "string", "binaryFormat": "i"}}}, "format"),
    ({"properties": {"a": number("9" * 30 + "s")}}, "too long"),
    ({"properties": {"a": {"type": "null", "binaryFormat": "i"}}}, "format"),
    ({"properties": {"a": {"type": "number"}}}, "binaryFormat"),
    ({"properties": {"a": {"binaryFormat": "i"}}}, "missing field `type`"),
    ({"properties": {"a": {"type": ["object", "null"], "properties": {}}}}, "union"),
    ({"properties": {"a": {"type": "array"}}}, "no items"),
    ({"properties": {"a": {"type": "array", "items": number("i"), "arrayLengthFormat": "d"}}}, "length format"),
    ({"properties": {"a": {"type": "array", "items": number("i"), "length": -1}}}, "invalid value"),
    ({"properties": [1]}, "invalid type"),
    ({}, "no properties"),
    ({"properties": {"a": number("i")}, "more": "x" * 70_000}, "more than 65536 bytes"),
    ({"type": ["null", "object"], "properties": {}}, "type"),
    ({"type": "array", "items": number("i")}, "type"),
])
def test_schemas_that_describe_no_rows(schema, reason, tmp_path):
    schema = {"codec": "struct", "type": "object"} | schema
    store(tmp_path, "x.trees", of_rows("nodes", schema, [b"12345678"] * 3, time="<f8"))
    with mounted(tmp_path) as mnt:
        check(mnt / "x.trees/nodes.parquet", {
            "id": [0, 1, 2], "time": [0, 0, 0], "metadata": [b"12345678"] * 3}, [tables.pyarrow_threads])
        left_out, = described(mnt / "x.trees")["nodes.parquet"]["left_out"]
        assert left_out["column"] == "metadata.*" and reason in left_out["reason"], left_out


def test_hostile_rows_of_metadata(tmp_path):
    """Lengths that lie, deep schemas, and numbers that no memory has: each is answered soon, and other columns stay."""
    import pyarrow.parquet as pq

    deep = number("i")
    for at in range(50):
        deep = {"type": "array", "items": deep, "arrayLengthFormat": "B"} if at % 2 else \
            {"type": "object", "properties": {"d": deep}}
    cases = {
        "lies": ({"a": {"type": "array", "arrayLengthFormat": "Q", "items": number("d")}}, struct.pack("<Q", 2**64 - 1)),
        "many": ({"a": {"type": "array", "arrayLengthFormat": "Q", "items": {
            "type": "array", "arrayLengthFormat": "B", "items": number("B")}}}, struct.pack("<Q", 2**63) + bytes(500)),
        "long": ({"a": {"type": "string", "binaryFormat": f"{2**62}s"}}, b"text"),
        "fixed": ({"a": {"type": "array", "length": 2**62, "items": number("d")}, "b": number("d")}, bytes(64)),
        "texts": ({"a": {"type": "array", "items": {"type": "string", "binaryFormat": f"{2**40}s"}}},
                  struct.pack("<I", 1) + b"text"),
        "deep": ({"a": deep}, bytes(3)),
    }
    for name, (properties, row) in cases.items():
        store(tmp_path, f"{name}.trees", of_rows("nodes", packed(properties), [row] * 30_000, time="<f8"))
    with mounted(tmp_path) as mnt:
        for name in cases:
            path = mnt / f"{name}.trees/nodes.parquet"
            columns = pq.read_schema(path).names
            assert columns[:3] == ["id", "time", "metadata"]
            for column in columns[3:]:
                with pytest.raises(OSError, match="Input/output error"):
                    pq.read_table(path, columns=[column])
        assert (mnt / ".shardfs/stats.json").exists()


# --- KDB ---------------------------------------------------------------------------------------

def floats(values):
    return of_numpy(np.asarray(values, "<f4"))


def kdb_tables(episodes, damaged=()):
    """What both tables hold. `damaged`: positions of episodes whose metadata can't be read."""
    text = lambda value: value.encode() if isinstance(value, str) else value
    meta = lambda at, value: None if at in damaged else value
    rows = list(enumerate(episodes))
    number = lambda values: [None if value is None else bits for value, bits in
                             zip(values, floats([value or 0 for value in values]))]
    first = {
        "episode": [at for at, _ in rows],
        "episode_id": [episode.episode_id for _, episode in rows],
        "task": [meta(at, text(episode.task)) for at, episode in rows],
        "embodiment": [meta(at, text(episode.embodiment)) for at, episode in rows],
        "fps": number([meta(at, episode.fps) for at, episode in rows]),
        "success": [meta(at, {1: False, 2: True}.get(episode.success)) for at, episode in rows],
        "total_reward": number([meta(at, episode.total_reward if episode.reward_flag == 1 else None)
                                for at, episode in rows]),
        "num_frames": [episode.count for _, episode in rows],
        "state_dim": [episode.state_dim for _, episode in rows],
        "action_dim": [episode.action_dim for _, episode in rows],
    }
    steps = {name: [] for name in ("episode", "step", "time", "state", "action", "reward", "is_terminal")}
    for name, dims in (("state", {e.state_dim for e in episodes if e.count}),
                       ("action", {e.action_dim for e in episodes if e.count})):
        if len(dims) != 1 or not 0 < min(dims) <= 4096:
            del steps[name]
    for at, episode in rows:
        state, action, reward, last = episode.arrays()
        fps = np.float32(episode.fps).astype(float)
        is_timed = at not in damaged and np.isfinite(fps) and fps > 0
        times = of_numpy(np.arange(episode.count) / fps) if is_timed else [None] * episode.count
        of = {"episode": [at] * episode.count, "step": list(range(episode.count)), "time": times,
              "state": of_numpy(state), "action": of_numpy(action), "reward": of_numpy(reward),
              "is_terminal": (last != 0).tolist()}
        for name, column in steps.items():
            column += of[name]
    return first, steps


def kdb_episodes(seed, count=40, dims=(3, 2)):
    draw = random.Random(seed)
    return [Episode([[]] * draw.choice([0, 1, 2, 9, 30]), *dims, episode_id=draw.randrange(2**64),
                    task=draw.choice(["pick", "größer", "", "open the drawer"]), embodiment=draw.choice(["arm", ""]),
                    fps=draw.choice([30, 12.5, 0, -1, float("nan"), float("inf"), 1e-30]),
                    success=draw.choice([0, 1, 2]), reward_flag=draw.choice([0, 1]), total_reward=draw.choice([1.5, -2, float("inf")]),
                    seed=draw.randrange(99)) for _ in range(count)]


@pytest.mark.parametrize("dims", [(3, 2), (1, 1), (0, 7), (4096, 0)])
def test_kdb_tables(dims, tmp_path):
    episodes = kdb_episodes(5, dims=dims)
    (tmp_path / "x.kdb").write_bytes(pack(episodes))
    first, steps = kdb_tables(episodes)
    with mounted(tmp_path) as mnt:
        check(mnt / "x.kdb/episodes.parquet", first)
        check(mnt / "x.kdb/steps.parquet", steps)
        about = described(mnt / "x.kdb")
        assert (about["steps.parquet"]["rows"], about["steps.parquet"]["columns"]) == (len(steps["step"]), len(steps))
        assert {each["column"] for each in about["steps.parquet"]["left_out"]} == {
            name for name, dim in zip(("state", "action"), dims) if not dim}
        for name in "episodes.parquet", "steps.parquet":
            assert (mnt / "x.kdb" / name).read_bytes() == run("cat", tmp_path / "x.kdb" / name, check=True).stdout


@pytest.mark.parametrize("episodes", [
    [], [Episode([])], [Episode([[]], state_dim=5000, action_dim=1)],
    [Episode([[]] * 3, state_dim=2), Episode([[]] * 2, state_dim=3), Episode([], action_dim=9)],
], ids=["none", "of no steps", "too wide", "of different widths"])
def test_odd_kdb_tables(episodes, tmp_path):
    (tmp_path / "x.kdb").write_bytes(pack(episodes))
    first, steps = kdb_tables(episodes)
    with mounted(tmp_path) as mnt:
        check(mnt / "x.kdb/episodes.parquet", first)
        check(mnt / "x.kdb/steps.parquet", steps)
        about = described(mnt / "x.kdb")["steps.parquet"]
        assert about["columns"] == len(steps) and len(about["left_out"]) == 7 - len(steps)


def test_damage_in_a_kdb_file(tmp_path):
    """Metadata and rows that can't be had are missing in the tables, as their files are; nothing else is."""
    episodes = kdb_episodes(6, 6)
    for episode in episodes:
        episode.frames = [[]] * 4
    sound = list(episodes)
    episodes[1].instead = {"meta": struct.pack("<H", 500) + b"short"}
    episodes[2].task = b"\xff" * 20 + b"abcdefghij"
    episodes[3].places = {"meta": (2**63, 2**62)}
    (tmp_path / "x.kdb").write_bytes(pack(episodes))
    first, steps = kdb_tables(episodes, damaged=(1, 3))
    # Too long once it is UTF-8.
    first["task"][2] = None
    with mounted(tmp_path) as mnt:
        check(mnt / "x.kdb/episodes.parquet", first)
        check(mnt / "x.kdb/steps.parquet", steps)
    # Rows that are not there: the episode has no steps.
    episodes[4].places = {"rows": (2**64 - 5, 10)}
    (tmp_path / "x.kdb").write_bytes(pack(episodes))
    kept = [at for at, position in enumerate(steps["episode"]) if position != 4]
    with mounted(tmp_path) as mnt:
        check(mnt / "x.kdb/episodes.parquet", first)
        check(mnt / "x.kdb/steps.parquet", {name: [rows[at] for at in kept] for name, rows in steps.items()})


def test_more_steps_than_a_group_has(tmp_path):
    """Statistics tell which groups an episode and a step are in; what a query needs of them is all it reads."""
    import duckdb
    import pyarrow.parquet as pq

    one = Episode([[]] * 1000, 2, 1, fps=10, seed=3)
    write_many(tmp_path / "x.kdb", one, 300)
    with mounted(tmp_path) as mnt:
        path = mnt / "x.kdb/steps.parquet"
        meta = check_footer(path)
        assert [meta.row_group(at).num_rows for at in range(meta.num_row_groups)] == [262_144, 37_856]
        for group in range(2):
            rows = pq.ParquetFile(path).read_row_group(group, ["episode", "step"])
            for at, name in enumerate(["episode", "step"]):
                statistics = meta.row_group(group).column(at).statistics
                values = rows[name].to_numpy()
                assert (statistics.min, statistics.max) == (values.min(), values.max())
        state = one.arrays()[0]
        found = duckdb.sql(f"select step, time, state from '{path}' where episode = 177 order by step").fetchall()
        assert [row[:2] for row in found] == [(step, step / 10) for step in range(1000)]
        assert np.array([row[2] for row in found], "<f4").tobytes() == state.tobytes() or np.isnan(state).any()
        assert duckdb.sql(f"select count(*), min(fps) from '{mnt}/x.kdb/episodes.parquet'").fetchall() == [(300, 10)]
        # What is never missing says so; of all others nothing is said that is not known.
        chunks = [meta.row_group(0).column(at) for at in range(meta.num_columns)]
        told = {chunk.path_in_schema.split(".")[0]: chunk.statistics and chunk.statistics.null_count for chunk in chunks}
        assert told == {"episode": 0, "step": 0, "time": None, "state": 0, "action": 0, "reward": 0, "is_terminal": 0}


def test_a_million_episodes_that_share_their_bytes(tmp_path):
    """A claim of much: what is fixed can be read, the texts are told to be unsound, and memory stays small."""
    import pyarrow.parquet as pq

    one = pack([Episode([[], []], task="t" * 30_000)])
    index = struct.unpack_from("<Q", one, 24)[0]
    data = bytearray(one[:index] + one[index:] * 1_000_000)
    struct.pack_into("<QQQQ", data, 8, 1_000_000, 2_000_000, index, 64_000_000)
    (tmp_path / "x.kdb").write_bytes(data)
    with mounted(tmp_path) as mnt:
        about = described(mnt / "x.kdb")
        assert (about["episodes.parquet"]["rows"], about["steps.parquet"]["rows"]) == (1_000_000, None)
        file = pq.ParquetFile(mnt / "x.kdb/episodes.parquet")
        assert file.metadata.num_rows == 1_000_000
        assert file.read_row_group(0, ["num_frames"]).column(0).unique().to_pylist() == [2]
        with pytest.raises(OSError):
            file.read_row_group(0, ["task"])
        assert pq.read_metadata(mnt / "x.kdb/steps.parquet").num_rows == 2_000_000


def test_an_index_of_holes(tmp_path):
    """Episodes without end: no tables, said so, and nothing is gone through."""
    episodes = 1 << 34
    with open(tmp_path / "x.kdb", "wb") as file:
        file.write(struct.pack("<4sHHQQQQQ16x", b"KINO", 0, 1, episodes, 0, 64, 64 * episodes, 0))
        file.truncate(64 + 64 * episodes)
    with mounted(tmp_path) as mnt:
        assert sorted(path.name for path in (mnt / "x.kdb").iterdir()) == ["container.json", "episodes"]
        about = json.loads((mnt / "x.kdb/container.json").read_text())
        assert about["tables_left_out"] == "there are more than 16777216 episodes" and "tables" not in about


# --- episodes ----------------------------------------------------------------------------------

def write_episode(path, lanes, steps, hz=20, **more):
    channels = [channel(name, dtype, list(array.shape[1:])) if "/" in name else
                {"id": name, "dtype": dtype, "shape": list(array.shape[1:]), "signal_block": name}
                for name, (array, dtype) in lanes.items()]
    blocks = meta_blocks(path.name, steps, channels, hz=hz)
    write_shard(path, blocks + [(name, array.tobytes()) for name, (array, _) in lanes.items()], **more)


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_steps_of_an_episode(codec, tmp_path):
    """Every type, as scalars, short and long lists; pictures, long lists and other lengths are left out and told."""
    draw = np.random.default_rng(2)
    steps, lanes = 40, {}
    for dtype, descr in {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i64": "<i8", "i32": "<i4",
                         "i16": "<i2", "i8": "|i1", "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "|u1", "bool": "|b1"}.items():
        for label, step in (("scalar", ()), ("one", (1,)), ("wide", (3, 2)), ("long", (4096,))):
            count = steps * int(np.prod(step))
            data = draw.integers(0, 2, count).astype("|b1") if dtype == "bool" else \
                np.frombuffer(draw.bytes(count * np.dtype(descr).itemsize), descr)
            lanes[f"signal/{dtype}/{label}"] = data.reshape(steps, *step), dtype
    other = {"signal/cam/rgb": (np.zeros((steps, 4, 4, 3), "u1"), "u8"),
             "signal/longer": (np.zeros((steps, 4097), "<f4"), "f32"),
             "signal/nothing": (np.zeros((steps, 0), "<f4"), "f32")}
    write_episode(tmp_path / "x.wshard", lanes | other, steps, codec=codec)
    with mounted(tmp_path, "--cache-size=1M") as mnt:
        stored = [item["name"] for item in json.loads((mnt / "x.wshard/container.json").read_text())["items"]]
        expected = tables.of_steps({name: lanes[name] for name in stored if name in lanes}, steps, 20)
        path = mnt / "x.wshard/steps.parquet"
        check(path, expected)
        about = described(mnt / "x.wshard")["steps.parquet"]
        assert (about["rows"], about["columns"]) == (steps, len(expected))
        assert {"signal/cam/rgb", "signal/longer"} <= {each["column"] for each in about["left_out"]}
        import pyarrow.parquet as pq

        said = json.loads(pq.read_metadata(path).metadata[b"shardfs"])
        assert said["format"] == "wshard"
        assert said["columns"]["bf16/wide"] == {"dtype": "bf16", "shape": [3, 2], "block": "signal/bf16/wide"}
        assert said["columns"]["time"] == {"dtype": "f64", "units": "s"}


def test_names_of_steps(tmp_path):
    """The front `signal/` is dropped where that leaves names apart; `step` and `time` give way to what is stored."""
    steps = 3
    lanes = {name: (np.arange(steps, dtype="<i4") + at, "i32") for at, name in
             enumerate(["signal/step", "signal/time", "signal/a", "a", "signal/b/c"])}
    write_episode(tmp_path / "x.wshard", lanes, steps)
    with mounted(tmp_path) as mnt:
        found = tables.polars_scan(mnt / "x.wshard/steps.parquet")
        assert sorted(found) == sorted(["step%_2", "time%_2", "step", "time", "signal/a", "a", "b/c"])
        for name, column in {"step": "signal/step", "time": "signal/time", "a": "a", "signal/a": "signal/a",
                             "b/c": "signal/b/c"}.items():
            assert found[name] == lanes[column][0].tolist(), name
        assert found["step%_2"] == [0, 1, 2]


@pytest.mark.parametrize("name", ["steps.parquet/x", "steps"])
def test_a_stored_block_named_like_the_table(name, tmp_path):
    lanes = {name: (np.arange(3, dtype="<i4"), "i32"), "signal/a": (np.arange(3, dtype="<i4"), "i32")}
    write_episode(tmp_path / "x.wshard", lanes, 3)
    with mounted(tmp_path) as mnt:
        shown = name.replace(".parquet/", "%2Eparquet/")
        assert np.load(mnt / f"x.wshard/{shown}.npy").tolist() == [0, 1, 2]
        assert tables.polars_scan(mnt / "x.wshard/steps.parquet")["a"] == [0, 1, 2]
        assert list(described(mnt / "x.wshard")) == ["steps.parquet"]


def test_damage_in_an_episode(tmp_path):
    """A damaged lane is EIO, and all others can be asked for."""
    import duckdb
    import pyarrow.parquet as pq

    draw = np.random.default_rng(3)
    lanes = {f"signal/{name}": (draw.integers(0, 9, 5000).astype("<f8"), "f64") for name in "abc"}
    path = tmp_path / "x.wshard"
    write_episode(path, lanes, 5000, codec="zstd")
    data = bytearray(path.read_bytes())
    count, strings = int.from_bytes(data[12:16], "little"), int.from_bytes(data[16:24], "little")
    for entry in range(count):
        at = 64 + 48 * entry
        name_at = strings + int.from_bytes(data[at + 8:at + 12], "little")
        if data[name_at:name_at + int.from_bytes(data[at + 12:at + 14], "little")] == b"signal/b":
            first = int.from_bytes(data[at + 16:at + 24], "little")
            data[first + 8:first + 40] = bytes(32)
    path.write_bytes(data)
    with mounted(tmp_path) as mnt:
        table = mnt / "x.wshard/steps.parquet"
        for name in "ac":
            found = pq.read_table(table, columns=[name])[name].to_numpy()
            assert of_numpy(found) == of_numpy(lanes[f"signal/{name}"][0])
        with pytest.raises(OSError) as failed:
            pq.read_table(table, columns=["b"])
        assert failed.value.errno == errno.EIO or "Input/output error" in str(failed.value)
        assert duckdb.sql(f"select sum(a), max(step) from '{table}'").fetchall() == [
            (lanes["signal/a"][0].sum(), 4999)]
        problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").open()]
        assert any((problem["path"], problem["block"]) == ("steps.parquet", "signal/b") for problem in problems)


def test_steps_that_are_claimed(tmp_path):
    """A length that no block has: there is no table, and `container.json` is as it was."""
    lanes = {"signal/a": (np.arange(10, dtype="<f4"), "f32")}
    for name, steps in {"more": 2**60, "none": 0, "less": 4}.items():
        write_episode(tmp_path / f"{name}.wshard", lanes, steps)
    with mounted(tmp_path) as mnt:
        for path in mnt.iterdir():
            assert not (path / "steps.parquet").exists() and described(path) == {}


def write_chunked(folder, name, lengths):
    """An episode in chunks with its manifest; the lanes of each chunk."""
    chunks, whole = [], []
    for number, steps in enumerate(lengths):
        path = folder / f"c{number}.wshard"
        lanes = {"signal/a": (np.arange(steps, dtype="<f4") + 100 * number, "f32"),
                 "signal/v": (np.arange(2 * steps, dtype="<i8").reshape(steps, 2) - number, "i64")}
        channels = [channel(name, dtype, list(array.shape[1:])) for name, (array, dtype) in lanes.items()]
        meta = meta_blocks("x", steps, channels)
        first = sum(lengths[:number])
        episode = json.loads(dict(meta)["meta/episode"]) | {
            "chunk_index": number, "total_chunks": len(lengths), "timestep_range": [first, first + steps - 1]}
        meta[1] = ("meta/episode", dumps(episode))
        write_shard(path, meta + [(name, array.tobytes()) for name, (array, _) in lanes.items()])
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        chunks.append({"chunk_index": number, "uri": path.name, "sha256": digest,
                       "timestep_range": [first, first + steps - 1]})
        whole.append(lanes)
    write_shard(folder / name, [("meta/manifest", dumps({"episode_id": "x", "total_chunks": len(lengths),
                                                         "total_timesteps": sum(lengths), "chunks": chunks}))], role=4)
    return whole


def test_a_joined_episode(tmp_path):
    lengths = [5, 9, 3]
    whole = write_chunked(tmp_path, "whole.wshard", lengths)
    joined = {name: (np.concatenate([lanes[name][0] for lanes in whole]), dtype)
              for name, (_, dtype) in whole[0].items()}
    with mounted(tmp_path) as mnt:
        check(mnt / "whole.wshard/steps.parquet", tables.of_steps(joined, sum(lengths)))


# --- many containers ---------------------------------------------------------------------------

def test_many_containers_are_one_data_set(tmp_path):
    """Globs, folders like `task=pick` as columns, columns that not all have, and KDB files by their episodes."""
    import duckdb
    import polars as pl
    import pyarrow.dataset as ds

    rewards, lengths = {}, {}
    for number in range(24):
        steps = 3 + number
        name = f"task={['pick', 'place'][number % 2]}/ep{number:02}.wshard"
        lanes = {"reward": (np.full(steps, number / 4, "<f4"), "f32"), "signal/q": (np.ones((steps, 2), "<f4"), "f32")}
        if number == 5:
            lanes["signal/extra"] = (np.arange(steps, dtype="<i4"), "i32")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_episode(tmp_path / name, lanes, steps)
        rewards[number], lengths[number] = steps * number / 4, steps
    (tmp_path / "a.kdb").write_bytes(pack([Episode([[]] * 2, task="pick"), Episode([[]], task="place")]))
    (tmp_path / "b.kdb").write_bytes(pack([Episode([[]] * 5, task="pick")]))
    by_task = {task: sum(rewards[at] for at in range(first, 24, 2)) for first, task in enumerate(["pick", "place"])}
    with mounted(tmp_path) as mnt:
        glob = f"{mnt}/*/*.wshard/steps.parquet"
        asked = duckdb.sql(f"select task, sum(reward) from read_parquet('{glob}', hive_partitioning = true, "
                           "union_by_name = true) group by all").fetchall()
        assert dict(asked) == by_task
        asked = duckdb.sql(f"select count(extra), count(*) from read_parquet('{glob}', union_by_name = true)").fetchall()
        assert asked == [(lengths[5], sum(lengths.values()))]
        scan = pl.scan_parquet(glob, hive_partitioning=True, missing_columns="insert", extra_columns="ignore")
        assert dict(scan.group_by("task").agg(pl.col("reward").sum()).collect().rows()) == by_task
        files = [str(path) for path in sorted(mnt.glob("*/*.wshard/steps.parquet"))]
        table = ds.dataset(files, partitioning="hive", partition_base_dir=str(mnt)).to_table(columns=["reward", "task"])
        assert table.num_rows == sum(lengths.values()) and set(table["task"].to_pylist()) == {"pick", "place"}
        kdb = duckdb.sql(f"select task, count(*), sum(num_frames) from '{mnt}/*.kdb/episodes.parquet' group by all "
                         "order by all").fetchall()
        assert kdb == [("pick", 2, 7), ("place", 1, 1)]


# --- what the schema says ----------------------------------------------------------------------

def said(path):
    """What pyarrow has of each column: its type, whether it may be null, and its metadata."""
    import pyarrow.parquet as pq

    found = {}
    for field in pq.read_schema(path):
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        found[field.name] = (str(field.type), field.nullable, about)
    return found


def test_columns_say_what_the_format_says(golden, tmp_path):
    """Lists of one length are such in Arrow's schema; each column carries dtype, shape, units and what the format says."""
    import polars as pl
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    steps = 5
    arrays = {"signal/force": (np.arange(steps * 6, dtype="<f2").reshape(steps, 3, 2), "f16", {"unit": "N"}),
              "signal/code": (np.arange(steps, dtype="<u2"), "u16", {"unit": "x" * 300}),
              "done": (np.zeros(steps, "|b1"), "bool", {"unit": 7})}
    channels = [channel(name, dtype, list(array.shape[1:]), **more) if "/" in name else
                {"id": name, "dtype": dtype, "shape": [], "signal_block": name, **more}
                for name, (array, dtype, more) in arrays.items()]
    write_shard(tmp_path / "x.wshard", meta_blocks("x", steps, channels, hz=20)
                + [(name, array.tobytes()) for name, (array, _, _) in arrays.items()])
    (tmp_path / "x.kdb").write_bytes(pack([Episode([[]] * 4, 3, 2)]))
    trees = "generated/msprime_two_populations.trees"
    with mounted(tmp_path) as mnt, mounted(golden / "kastore") as stores:
        path = mnt / "x.wshard/steps.parquet"
        assert said(path) == {
            "step": ("int64", False, {"dtype": "i64"}),
            "time": ("double", False, {"dtype": "f64", "units": "s"}),
            "force": ("fixed_size_list<element: float not null>[6]", False,
                      {"dtype": "f16", "shape": "[3,2]", "units": "N", "block": "signal/force"}),
            "code": ("uint16", False, {"dtype": "u16", "block": "signal/code"}),
            "done": ("bool", False, {"dtype": "bool", "block": "done"}),
        }
        found = pq.read_table(path)["force"].combine_chunks()
        force = arrays["signal/force"][0]
        assert found.flatten().to_numpy().reshape(steps, 3, 2).tobytes() == force.astype("<f4").tobytes()
        assert ds.dataset(path).schema.field("force").metadata[b"units"] == b"N"
        assert pl.scan_parquet(path).collect_schema()["force"] == pl.Array(pl.Float32, 6)
        kdb = said(mnt / "x.kdb/steps.parquet")
        assert kdb["state"] == ("fixed_size_list<element: float not null>[3]", False, {"dtype": "f32", "shape": "[3]"})
        assert kdb["time"] == ("double", True, {"dtype": "f64", "units": "s"})
        nodes, populations = said(stores / trees / "nodes.parquet"), said(stores / trees / "populations.parquet")
        ts = tskit.load(str(golden / "kastore" / trees))
        assert nodes["time"] == ("double", False, {"dtype": "f64", "units": ts.time_units})
        schema = populations["metadata"][2]["metadata_schema"]
        assert json.loads(schema) == json.loads(repr(ts.table_metadata_schemas.population))
        # The whole table as Arrow has it, too.
        assert json.loads(pq.read_schema(path).metadata[b"shardfs"]) == {"format": "wshard", "version": "2"}


def test_ragged_numbers_are_lists(golden, tmp_path):
    """Rows with each their own number of values are lists, in trees as tskit has them. Offsets that are not sound make
    the column EIO, and no other."""
    import pyarrow.parquet as pq
    import tskit

    store(tmp_path, "x.kas", {"t/a": np.arange(2), "t/b": np.arange(2)} | {
        "t/n": np.arange(5, dtype="<i4"), "t/n_offset": np.array([0, 2, 5], "<u8")})
    for name, offsets in ("back", [0, 4, 2]), ("far", [0, 2, 6]), ("wide", [0, 2**63, 2**63]):
        store(tmp_path, f"{name}.kas", {"t/a": np.arange(2), "t/b": np.arange(2)} | {
            "t/n": np.arange(5, dtype="<i4"), "t/n_offset": np.array(offsets, "<u8")})
    with mounted(golden / "kastore") as stores, mounted(tmp_path) as mnt:
        read = 0
        for path in sorted(stores.rglob("individuals.parquet")):
            try:
                tables = tskit.load(str(golden / "kastore" / path.parent.relative_to(stores))).tables
            except Exception:
                continue
            found = pq.read_table(path)
            assert found["location"].to_pylist() == [row.location.tolist() for row in tables.individuals]
            assert found["parents"].to_pylist() == [row.parents.tolist() for row in tables.individuals]
            read += len(found)
        assert read > 10
        check(mnt / "x.kas/t.parquet", {"a": [0, 1], "b": [0, 1], "n": [[0, 1], [2, 3, 4]]})
        for name in "back", "far", "wide":
            path = mnt / f"{name}.kas/t.parquet"
            # A table as small as this is read whole.
            with open(path, "rb") as file, pytest.raises(OSError) as failed:
                file.read()
            assert failed.value.errno == errno.EIO


# --- all of them -------------------------------------------------------------------------------

def pages_of(path):
    """(values, how many are missing, its bytes behind the levels) of each page of optional values, by column."""
    import pyarrow.parquet as pq

    meta, data = pq.read_metadata(path), path.read_bytes()
    for group in range(meta.num_row_groups):
        for at in range(meta.num_columns):
            chunk = meta.row_group(group).column(at)
            end = chunk.data_page_offset + chunk.total_compressed_size
            if chunk.has_dictionary_page:
                end = chunk.dictionary_page_offset + chunk.total_compressed_size
            yield group, at, data[chunk.data_page_offset:end]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0], ids=["all there", "some missing", "all missing"])
def test_zeros_behind_the_last_value(share, tmp_path):
    """Pages have the size that they would have if no value were missing, and texts of KDB files the most they may have:
    what is left is zeros, and every reader stops at the number of values. scripts/table_engines asks more engines."""
    draw = random.Random(9)
    episodes = [Episode([[]], task="t" * draw.randrange(200), embodiment="", fps=draw.random() + 1,
                        success=0 if draw.random() < share else draw.choice([1, 2]),
                        reward_flag=int(draw.random() >= share), total_reward=1.5) for _ in range(3000)]
    (tmp_path / "x.kdb").write_bytes(pack(episodes))
    first, _ = kdb_tables(episodes)
    with mounted(tmp_path) as mnt:
        path = mnt / "x.kdb/episodes.parquet"
        check(path, first)
        pages = {at: data for _, at, data in pages_of(path)}
        names = list(first)
        if share == 1.0:
            # Levels, and 4 bytes for each value that is not there.
            assert pages[names.index("total_reward")].endswith(bytes(4 * len(episodes)))
        # The text of another column has as much room as this one.
        spare = sum(len(task) for task in first["task"])
        assert pages[names.index("embodiment")].endswith(bytes(spare))


def examples_of_all(folder):
    """One container of each kind, with tables of several row groups where that is cheap."""
    for name in ("tree_sequence.trees",):
        (folder / name).write_bytes((FIXTURES / name).read_bytes())
    rows = 270_000
    store(folder, "x.kas", {"t/a": np.arange(rows, dtype="<i4"), "t/b": np.arange(rows, dtype="<u2")}
          | kas.ragged("t/s", [str(row).encode() * (row % 3) for row in range(rows)]))
    (folder / "x.kdb").write_bytes(pack(kdb_episodes(8, 60)))
    draw = np.random.default_rng(4)
    lanes = {"signal/a": (draw.normal(size=(rows, 2)).astype("<f4"), "f32"),
             "done": (draw.integers(0, 2, rows) > 0, "bool"), "signal/h": (draw.integers(0, 9, rows).astype("<u1"), "u8")}
    write_episode(folder / "x.wshard", lanes, rows, codec="zstd", quick=True)


def test_any_range_however_it_is_mounted(tmp_path):
    """The size is that of the bytes, any range is that slice of the whole, in every mode of serving, with a tiny cache
    and for eight readers at once."""
    from concurrent.futures import ThreadPoolExecutor

    source = tmp_path / "source"
    source.mkdir()
    examples_of_all(source)
    with mounted(source) as mnt:
        whole = {path.relative_to(mnt): path.read_bytes() for path in mnt.rglob("*.parquet")}
        assert len(whole) == 12
    for options in [], ["--serve=passthrough"], ["--cache-size=1M"], ["--verify=strict"]:
        with mounted(source, *options) as mnt:
            def look(seed):
                draw = random.Random(seed)
                for _ in range(60):
                    path, data = draw.choice(list(whole.items()))
                    assert os.stat(mnt / path).st_size == len(data)
                    with open(mnt / path, "rb", buffering=0) as file:
                        start, length = draw.randrange(len(data)), draw.choice([1, 7, 8, 4096, 100_000, 3_000_000])
                        found = os.pread(file.fileno(), length, start)
                        assert found == data[start:start + length], (path, start, length)
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(look, range(8)))
            for path, data in whole.items():
                assert (mnt / path).read_bytes() == data, (path, options)


def test_commands_know_them(tmp_path):
    """`ls`, `info`, `cat`, `cp` and extended attributes, for every kind of table."""
    source = tmp_path / "source"
    source.mkdir()
    examples_of_all(source)
    write_chunked(source, "joined.wshard", [5, 9, 3])
    (source / "table.idv").write_bytes((FIXTURES / "table.idv").read_bytes())
    tables_of = {"x.kas": ["t.parquet"], "x.kdb": ["episodes.parquet", "steps.parquet"], "x.wshard": ["steps.parquet"],
                 "joined.wshard": ["steps.parquet"], "table.idv": ["table.parquet"],
                 "tree_sequence.trees": [f"{name}.parquet" for name in tables.TREE_SEQUENCE_TABLES]}
    with mounted(source, "--xattrs") as mnt:
        for name, tables_of_it in tables_of.items():
            listed = [json.loads(line) for line in run("ls", "--json", source / name, check=True).stdout.splitlines()]
            shapes = {entry["path"].rpartition("/")[2]: entry["shape"] for entry in listed}
            assert {path for path in shapes if path.endswith(".parquet")} == set(tables_of_it)
            about = json.loads(run("info", "--json", source / name, check=True).stdout)
            for table in tables_of_it:
                copied = tmp_path / f"{name}.{table}"
                run("cp", source / name / table, copied, check=True)
                meta = check_footer(copied)
                shape = [meta.num_rows, len(meta.schema.to_arrow_schema())]
                assert shapes[table] == shape and table in json.dumps(about)
                assert json.loads(os.getxattr(mnt / name / table, "user.shardfs.shape")) == shape
                data = (mnt / name / table).read_bytes()
                assert data == copied.read_bytes() == run("cat", source / name / table, check=True).stdout
            assert b".parquet" not in run("ls", "--no-tables", source / name, check=True).stdout
    with mounted(source, "--no-tables") as mnt:
        assert not list(mnt.rglob("*.parquet"))
    assert run("verify", source, check=True).returncode == 0


def test_a_copy_of_a_container_costs_what_it_shows(tmp_path):
    """rsync reads as many bytes as it is shown, tables included; again it reads none; without tables it is less."""
    source = tmp_path / "source"
    source.mkdir()
    examples_of_all(source)
    with mounted(source) as mnt:
        shown = sum(path.stat().st_size for path in (mnt / "x.kas").rglob("*") if path.is_file())
        tables_of_it = sum(path.stat().st_size for path in (mnt / "x.kas").rglob("*.parquet"))

        def sent(*options):
            done = subprocess.run(["rsync", "-a", "--stats", "--no-human-readable", *options, f"{mnt}/x.kas", tmp_path / "to"],
                                  check=True, capture_output=True, text=True)
            return int(re.search(r"Total transferred file size: (\d+)", done.stdout)[1])

        assert sent("--exclude=*.parquet") == shown - tables_of_it
        assert sent() == tables_of_it and sent() == 0
