"""Tables on the pages of `shardfs serve` in a real browser: rows over columns, wherever they stand."""

import datetime
import decimal
import functools
import json
from unittest import mock

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tskit

from support import FIXTURES, GOLDEN, mounted, serving
from support.browser import browser, fixtures_server, page  # noqa: F401 - fixtures
from support.writers import idv

ROWS = 10_000_000
PER_BLOCK = 100_000


def word(row):
    """The text of a row; some have none."""
    row %= PER_BLOCK
    return None if row % 7 == 3 else f"ö{row % 97}"


@pytest.fixture(scope="module")
def large_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    numbers = np.arange(ROWS, dtype="<i4").reshape(-1, PER_BLOCK)
    texts = idv.texts([word(row) for row in range(PER_BLOCK)])
    columns = [idv.Column("number", "Int32", [block.tobytes() for block in numbers], PER_BLOCK),
               idv.Column("word", "TextSpan", [texts] * (ROWS // PER_BLOCK), PER_BLOCK, kind=1)]
    # All blocks of the words are the same, so one is compressed.
    with mock.patch.object(idv, "pack", functools.cache(idv.pack)):
        (folder / "large.idv").write_bytes(idv.file(ROWS, columns))
    with serving(folder) as server:
        yield server


def test_rows_of_a_large_table(page, large_table):
    page.open(large_table.url + "/files/large.idv/")
    page.page.locator(".grid tbody tr").first.wait_for()
    page.page.get_by_label("Go to row").fill("9999999")
    page.page.get_by_role("button", name="Go", exact=True).click()
    target = page.page.locator(".grid tr.target")
    target.wait_for()
    assert target.locator("th").text_content().replace("\u202f", "") == "9999999"
    assert target.locator("td").all_text_contents() == ["9999999", word(9_999_999)]
    assert page.page.evaluate("location.hash") == "#row=9999999"
    # What has no text says so.
    rows = page.page.evaluate("document.getElementById('table').table.answer")
    expected = [[str(row) for row in range(rows["from"], ROWS)], [word(row) for row in range(rows["from"], ROWS)]]
    assert rows["cells"] == expected and None in expected[1]
    assert page.page.locator(".grid .missing").count() == expected[1].count(None)
    page.page.keyboard.press("Escape")
    page.page.evaluate("document.activeElement.blur()")
    page.page.keyboard.press("PageUp")
    page.until("document.getElementById('table').table.answer.from < 9999950")
    page.open(large_table.url + "/files/large.idv/#row=5000000")
    page.page.locator(".grid tr.target").wait_for()
    assert page.page.locator(".grid tr.target td").first.text_content() == "5000000"
    page.quiet()


def test_a_row_far_behind_reads_its_own_blocks_only(large_table):
    """As many bytes are decoded for the last rows as for the first: two blocks of each column."""
    def decoded():
        return json.loads(large_table.get("/files/.shardfs/stats.json"))["cache"]["decoded_bytes"]
    large_table.get(f"/-/api/rows/large.idv?from={ROWS // 3}&count=10")
    before = decoded()
    large_table.get(f"/-/api/rows/large.idv?from={ROWS - 10}&count=10")
    text_block = len(idv.texts([word(row) for row in range(PER_BLOCK)]))
    assert decoded() - before <= 2 * (text_block + 4 * PER_BLOCK) + (1 << 20)


def test_lists_of_varying_length(tmp_path):
    """The page reads the same Parquet file as other programs: levels take the bytes that are stated."""
    tables = tskit.TableCollection(1.0)
    places = [[row, row / 2, 0.25][:row % 4] for row in range(20_000)]
    for place in places:
        tables.individuals.add_row(location=place)
    tables.dump(tmp_path / "x.trees")
    with serving(tmp_path) as server:
        described = pq.read_table(pa.BufferReader(server.get("/files/x.trees/individuals.parquet")))
        assert described["location"].to_pylist() == places
        rows = json.loads(server.get("/-/api/rows/x.trees/individuals.parquet?from=19000&count=8"))
    at = described.column_names.index("location")
    assert [json.loads(cell) for cell in rows["cells"][at][:8]] == places[rows["from"]:rows["from"] + 8]


LONG = 1_200_000


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory):
    """A table whose columns have rows of different length: numbers, texts, and lists of texts."""
    block = 1000
    vectors = [[row] * (row % 4) for row in range(block)]
    lists = [[f"w{row}"] * (row % 3) for row in range(block)]
    parts = {"numbers": (idv.vbuffer("Int64"), idv.vectors(vectors, lambda values: idv.numbers("q", values))),
             "word": ("TextSpan", idv.texts([word(row) for row in range(block)])),
             "words": (idv.vbuffer("TextSpan"), idv.vectors(lists, idv.texts))}
    columns = [idv.Column(name, codec, [data] * (LONG // block), block, kind=1)
               for name, (codec, data) in parts.items()]
    folder = tmp_path_factory.mktemp("long")
    with mock.patch.object(idv, "pack", functools.cache(idv.pack)):
        (folder / "long.idv").write_bytes(idv.file(LONG, columns))
    with serving(folder) as server:
        yield server, vectors, lists


def test_rows_that_differ_in_length(long_rows):
    """Wherever they stand, and across the border of blocks; nothing is decoded of the blocks in front of them."""
    server, vectors, lists = long_rows
    for first in (0, 995, 777_777, LONG - 10):
        answer = json.loads(server.get(f"/-/api/rows/long.idv?from={first}&count=10"))
        assert [head["error"] for head in answer["heads"]] == [None] * 3
        rows = [row % 1000 for row in range(first, first + 10)]
        numbers, words, several = answer["cells"]
        assert [json.loads(cell) for cell in numbers] == [vectors[row] for row in rows]
        assert words == [word(row) for row in rows]
        assert [[text.strip("“”") for text in cell.strip("[]").split(", ") if text] for cell in several] == [
            lists[row] for row in rows]
    stats = json.loads(server.get("/files/.shardfs/stats.json"))["cache"]
    assert stats["decoded_bytes"] < 40 * 20_000


def test_tables_show_what_the_columns_hold(page, fixtures_server):
    """Against `values.jsonl` and `.npy`, which other tests compare with what ML.NET wrote."""
    page.open(fixtures_server.url + "/files/table.idv/")
    page.page.locator(".grid tbody tr").nth(9).wait_for()
    heads = [text for text in page.page.locator(".grid thead a").all_text_contents()]
    cells = [row.locator("td").all_text_contents() for row in page.page.locator(".grid tbody tr").all()]
    column = {name: [row[at] for row in cells] for at, name in enumerate(heads)}
    with mounted(FIXTURES) as mnt:
        columns = mnt / "table.idv/columns"
        words = [json.loads(line) for line in (columns / "word/values.jsonl").read_text().splitlines()]
        assert column["word"] == ["missing" if text is None else text for text in words]
        assert [int(text) for text in column["id"]] == np.load(columns / "id/values.npy").tolist()
        assert [float(text) for text in column["score"]] == np.load(columns / "score/values.npy").tolist()
        names = json.loads((columns / "label/metadata/KeyValues.jsonl").read_text())
        keys = np.load(columns / "label/values.npy")
        assert column["label"] == ["missing" if key == 0 else f"{key} · {names[key - 1]}" for key in keys]
        offsets = np.load(columns / "spans/offsets.npy")
        spans = np.load(columns / "spans/values.npy")
        parts = [spans[start:end].tolist() for start, end in zip(offsets, offsets[1:])]
        assert [json.loads(text) for text in column["spans"]] == parts
    page.quiet()


def test_tables_of_tree_sequences(page, fixtures_server):
    import tskit
    tables = tskit.load(FIXTURES / "tree_sequence.trees").dump_tables()
    for path, rows, name, value in [
        ("mutations", tables.mutations, "derived_state", lambda row: row.derived_state),
        ("sites", tables.sites, "position", lambda row: f"{row.position:g}"),
        ("provenances", tables.provenances, "timestamp", lambda row: row.timestamp),
    ]:
        answer = json.loads(fixtures_server.get(f"/-/api/rows/tree_sequence.trees/{path}"))
        at = [head["name"] for head in answer["heads"]].index(name)
        assert answer["cells"][at] == [value(row) for row in rows], path
    page.open(fixtures_server.url + "/files/tree_sequence.trees/mutations/")
    page.page.locator(".grid tbody tr").nth(len(tables.mutations) - 1).wait_for()
    page.quiet()


def rows_of(server, path, first=0, count=10, columns=32):
    """What the page shows of some rows: for each column its kind and its cells."""
    answer = json.loads(server.get(f"/-/api/rows/{path}?from={first}&count={count}&columns={columns}"))
    assert [head["error"] for head in answer["heads"]] == [None] * len(answer["heads"]), answer["heads"]
    return {head["name"]: (head["kind"], cells) for head, cells in zip(answer["heads"], answer["cells"])}


def shown(value):
    """How a cell shows a value that pyarrow read."""
    match value:
        case None:
            return None
        case list():
            quoted = [f"“{item}”" if isinstance(item, str) else shown(item) or "missing" for item in value]
            more = [f"… {len(value)} in all"] if len(value) > 12 else []
            return f"[{', '.join(quoted[:12] + more)}]"
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode() if value.isascii() and (value.isalpha() or not value) else f"0x{value.hex()}"
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case float() if value == int(value):
            return str(int(value))
    return str(value)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A Parquet file of several row groups with all kinds of columns, as pyarrow writes it; what it holds; a server."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    rows = 1000
    day = datetime.date(1969, 12, 30)
    noon = datetime.datetime(2024, 2, 29, 12, 0, 0, 250)
    gaps = [None if row % 7 == 3 else row for row in range(rows)]

    def each(make):
        return [None if row is None else make(row) for row in gaps]

    columns = {
        "int": pa.array(gaps, pa.int64()),
        "small": pa.array(each(lambda row: row % 100 - 50), pa.int8()),
        "float": pa.array([row / 8 for row in range(rows)], pa.float32()),
        "bool": pa.array(each(lambda row: row % 2 == 0)),
        "word": pa.array(each(lambda row: f"ö{row % 5}")),
        "key": pa.array(each(lambda row: f"k{row % 3}")).dictionary_encode(),
        "bytes": pa.array(each(lambda row: bytes([row % 256, 255])), pa.binary()),
        "fixed": pa.array(each(lambda row: bytes([1, row % 256])), pa.binary(2)),
        "day": pa.array(each(lambda row: day + datetime.timedelta(days=row)), pa.date32()),
        "when": pa.array(each(lambda row: noon + datetime.timedelta(seconds=row)), pa.timestamp("us", "UTC")),
        "price": pa.array(each(lambda row: decimal.Decimal(row * row - 500).scaleb(-2)), pa.decimal128(20, 2)),
        "list": pa.array(each(lambda row: list(range(row % 15)))),
        "words": pa.array(each(lambda row: [f"w{row}", None][: row % 3])),
        "of": pa.array(each(lambda row: {"x": row, "y": str(row)})),
    }
    table = pa.table(columns)
    folder = tmp_path_factory.mktemp("written")
    pq.write_table(table, folder / "plain.parquet", row_group_size=300, data_page_size=512)
    pq.write_table(table, folder / "OLD.PARQUET", row_group_size=400, version="1.0", compression="gzip",
                   use_deprecated_int96_timestamps=True, data_page_version="2.0")
    pq.write_table(table.slice(0, 0), folder / "empty.parquet")
    whole = (folder / "plain.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:-3])
    (folder / "flipped.parquet").write_bytes(whole[:8] + bytes(16) + whole[24:])
    (folder / "nothing.parquet").write_bytes(b"")
    with serving(folder) as server:
        yield server, table.flatten().to_pylist()


@pytest.mark.parametrize("name", ["plain.parquet", "OLD.PARQUET"])
def test_parquet_files_show_what_pyarrow_wrote(written, name):
    server, expected = written
    for first in (0, 295, 600, 990):
        found = rows_of(server, name, first)
        assert list(found) == list(expected[0])
        for column, (kind, cells) in found.items():
            wanted = [shown(row[column]) for row in expected[first:first + 10]]
            if column == "when" and name == "OLD.PARQUET":
                # The old time stamps have nanoseconds.
                wanted = [text and text + "000" for text in wanted]
            assert cells == wanted, (column, kind, first)


def test_a_parquet_file_is_a_table_on_its_page(page, written):
    server, expected = written
    page.open(server.url + "/-/view/plain.parquet#row=991")
    target = page.page.locator(".grid tr.target")
    target.wait_for()
    assert target.locator("td").first.text_content() == shown(expected[991]["int"])
    assert page.page.locator("pre.bytes").count() == 0
    assert [text.split("\n")[0] for text in page.page.locator(".grid thead th").all_text_contents()][1].startswith("int")
    page.open(server.url + "/-/view/empty.parquet")
    page.until("document.getElementById('table').table.answer?.heads.length === 15")
    assert "no rows" in page.page.locator("#table .pager").text_content()
    page.quiet()


def test_types_of_parquet_columns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    time = datetime.time(0, 1, 2, 3000)
    table = pa.table({
        "ms": pa.array([time, None], pa.time32("ms")), "us": pa.array([time, None], pa.time64("us")),
        "ns": pa.array([time, None], pa.time64("ns")), "i8": pa.array([-1, 127], pa.int8()),
        "u8": pa.array([0, 255], pa.uint8()), "i16": pa.array([-(2**15), 1], pa.int16()),
        "u16": pa.array([0, 65535], pa.uint16()), "i32": pa.array([-1, 1], pa.int32()),
        "lists": pa.array([[[1, 2], [3]], [[4]]], pa.list_(pa.list_(pa.int16()))),
        "prices": pa.array([[decimal.Decimal("-1.50"), None], []], pa.list_(pa.decimal128(5, 2))),
        "times": pa.array([[time], []], pa.list_(pa.time32("ms"))),
        "words": pa.array([["-1.50"], []]),
        "utc": pa.array([0, None], pa.timestamp("us", "UTC")), "local": pa.array([0, None], pa.timestamp("us")),
    })
    for version in ("1.0", "2.6"):
        pq.write_table(table, tmp_path / f"{version}.parquet", version=version)
    with serving(tmp_path) as server:
        found = rows_of(server, "2.6.parquet", count=2)
        assert found == {
            "ms": ("time[ms]", ["00:01:02.003", None]), "us": ("time[us]", ["00:01:02.003000", None]),
            "ns": ("time[ns]", ["00:01:02.003000000", None]), "i8": ("i8", ["-1", "127"]), "u8": ("u8", ["0", "255"]),
            "i16": ("i16", ["-32768", "1"]), "u16": ("u16", ["0", "65535"]), "i32": ("i32", ["-1", "1"]),
            "lists": ("i16[][], flat", ["[1, 2, 3]", "[4]"]), "prices": ("decimal[]", ["[-1.50, missing]", "[]"]),
            "times": ("time[ms][]", ["[00:01:02.003]", "[]"]), "words": ("text[]", ["[“-1.50”]", "[]"]),
            "utc": ("UTC <M8[us]", ["1970-01-01T00:00:00.000000", None]),
            "local": ("<M8[us]", ["1970-01-01T00:00:00.000000", None])}
        assert rows_of(server, "1.0.parquet", count=2) == found


def test_arrays_of_many_columns(page, tmp_path):
    wide = np.arange(2 * 20_000, dtype="<i4").reshape(2, 5, 4000)
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file["wide"] = wide
    with serving(tmp_path) as server:
        answer = json.loads(server.get("/-/api/rows/wide.h5/wide.npy?column=19990&columns=24"))
        assert answer["columns"] == 20_000 and [head["name"] for head in answer["heads"]] == [
            f"4,{number}" for number in range(3990, 4000)]
        assert answer["cells"] == wide.reshape(2, -1)[:, 19_990:].T.astype(str).tolist()
        page.open(server.url + "/-/view/wide.h5/wide.npy#row=0")
        page.page.locator(".grid tr.target").wait_for()
        assert "of 20000" in page.page.locator(".pager").all_text_contents()[-1].replace("\u202f", "")
        page.quiet()


def test_damaged_parquet_files_say_so(page, written):
    server, _ = written
    page.open(server.url + "/-/view/cut.parquet")
    notice = page.page.locator(".notice.bad").text_content()
    assert "cut.parquet" in notice and "PAR1" in notice
    assert page.page.locator("pre.bytes").count() == 1
    page.quiet()
    answer = json.loads(server.get("/-/api/rows/flipped.parquet"))
    errors = [head["error"] for head in answer["heads"]]
    assert "flipped.parquet: byte 4: " in errors[0] and errors[1:] == [None] * (len(errors) - 1)
    page.open(server.url + "/-/view/nothing.parquet")
    assert "empty" in page.page.locator(".empty").text_content()


@pytest.mark.parametrize("path", [
    "demo.kdb/episodes.parquet", "demo.kdb/steps.parquet", "tree_sequence.trees/nodes.parquet",
    "tree_sequence.trees/provenances.parquet", "table.idv/table.parquet", "ep_001.wshard/steps.parquet"])
def test_tables_of_containers_show_what_pyarrow_reads(page, fixtures_server, path):
    import pyarrow.parquet as pq
    with mounted(FIXTURES) as mnt:
        expected = pq.read_table(mnt / path).slice(0, 10).to_pylist()
        kinds = pq.read_schema(mnt / path)
    found = rows_of(fixtures_server, path)
    assert list(found) == list(expected[0])[:32]
    for column, (_, cells) in found.items():
        if "float" in str(kinds.field(column).type):
            continue  # pyarrow's text of a float is another one; below.
        assert cells == [shown(row[column]) for row in expected], (column, kinds.field(column).type)
    for column in (name for name in found if str(kinds.field(name).type) in ("float", "double")):
        of = np.float32 if str(kinds.field(column).type) == "float" else np.float64
        cells, wanted = ([of(value) for value in values] for values in (found[column][1], [row[column] for row in expected]))
        np.testing.assert_array_equal(cells, wanted, column)
    page.open(fixtures_server.url + "/-/view/" + path)
    page.page.locator(".grid tbody tr").first.wait_for()
    assert page.page.locator("pre.bytes").count() == 0
    page.quiet()


def test_texts_of_one_size_are_shown_as_text(page, tmp_path):
    """Their lines, and a single one: the array is another file beside them."""
    import h5py
    with h5py.File(tmp_path / "texts.h5", "w") as file:
        file["long"] = np.array([b"alpha", b"betas", b"gamma"], "S5")
        file["short"] = np.array([b"alpha", b"b"], "S20")
        file["one"] = np.bytes_(b"delta")
    with serving(tmp_path) as server:
        for name, expected in {"long.jsonl": '"alpha"\n"betas"\n"gamma"\n', "short.jsonl": '"alpha"\n"b"\n', "one.txt": "delta"}.items():
            assert page.open(server.url + "/-/view/texts.h5/" + name) == 200
            assert page.page.locator("pre.source").text_content() == expected
            assert server.ask("/-/api/rows/texts.h5/" + name)[0] == 404
        assert rows_of(server, "texts.h5/long.npy") == {"value": ("|S5", ["alpha", "betas", "gamma"])}
    page.quiet()


def test_ragged_rows_are_those_of_the_format(tmp_path):
    """`x_offset` begins the rows of `x` in a kastore. Elsewhere it is an array like all others."""
    import h5py
    import kastore
    ragged = {"name": np.frombuffer(b"abcde", "i1"), "name_offset": np.array([0, 2, 2, 5], "u8"), "time": np.array([1.5, 2.5, 3.5])}
    kastore.dump({f"rows/{name}": values for name, values in ragged.items()}, tmp_path / "a.kas")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, values in ragged.items():
            file[f"rows/{name}"] = values
        file["cal/bias"], file["cal/bias_offset"] = np.array([5.0, 6, 7]), np.array([0, 2, 4], "u4")
    with serving(tmp_path) as server:
        assert rows_of(server, "a.kas/rows") == rows_of(server, "a.kas/rows.parquet") == {
            "name": ("bytes", ["ab", "", "cde"]), "time": ("f64", ["1.5", "2.5", "3.5"])}
        assert server.ask("/-/api/rows/a.h5/rows")[0] == 404
        assert rows_of(server, "a.h5/cal") == {"bias": ("f64", ["5", "6", "7"]), "bias_offset": ("u32", ["0", "2", "4"])}
