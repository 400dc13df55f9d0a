"""Tables on the pages of `shardfs serve` in a real browser: rows over columns, wherever they stand."""

import functools
import json
from unittest import mock

import numpy as np
import pytest

from support import FIXTURES, mounted, serving
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
