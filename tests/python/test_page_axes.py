"""Arrays of any rank on the pages of `shardfs serve`: two axes as a picture, and the histogram of all elements."""

import json

import numpy as np
import pytest

from support import serving
from support.browser import browser, page  # noqa: F401 - fixtures

NUMBERS = {"u8": "u1", "f32": "<f4", "f64": "<f8"}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory, writers):
    folder = tmp_path_factory.mktemp("axes")
    rng = np.random.default_rng(7)
    # Numbers that f32 cannot tell from each other, or not hold.
    seconds = 1.7e9 + np.arange(64 * 64).reshape(64, 64) / 128
    close = {"seconds": seconds, "counts": (1 << 52) + np.arange(64 * 64).reshape(64, 64), "huge": (seconds - 1.71e9) * 1e301}
    arrays = close | {"field": rng.standard_normal((4, 5, 6, 7)).astype("<f4"), "long": np.arange(3 << 20, dtype="<i4").reshape(3, -1),
              "tall": np.arange(3000 * 3 * 2, dtype="<i4").reshape(3000, 3, 2)}
    (folder / "axes.kas").write_bytes(writers.kastore({name: array.reshape(-1) for name, array in arrays.items()}))
    blocks = [(name, writers.tensor_v1(array), 1) for name, array in arrays.items()]
    writers.write_shard(folder / "axes.shard", blocks, role=1, codec="zstd", quick=True)
    with serving(folder) as server:
        yield server, arrays


def plane(server, query, name="field"):
    head, pixels = server.get(f"/-/api/plane/axes.shard/{name}.npy?{query}").split(b"\n", 1)
    head = json.loads(head)
    return head, np.frombuffer(pixels, NUMBERS[head["pixels"]]).reshape(head["height"], head["width"])


def test_every_pair_of_axes(arrays):
    server, all_arrays = arrays
    field = all_arrays["field"]
    at = [1, 2, 3, 4]
    for rows in range(4):
        for columns in range(4):
            query = f"axes={rows},{columns}&at={','.join(map(str, at))}"
            if rows == columns:
                assert server.ask(f"/-/api/plane/axes.shard/field.npy?{query}")[0] == 400
                continue
            index = tuple(slice(None) if axis in (rows, columns) else at[axis] for axis in range(4))
            expected = field[index] if rows < columns else field[index].T
            assert (plane(server, query)[1] == expected).all(), query
    # Without axes, pictures are the last two axes, as before.
    assert (plane(server, "index=7")[1] == field.reshape(20, 6, 7)[7]).all()
    # Long axes are thinned, whichever way they lie, and no others.
    head, shown = plane(server, "axes=1,0&at=0,0,1", "tall")
    assert head["every"] == [1, 3] and (shown == all_arrays["tall"][::3, :, 1].T).all()
    head, shown = plane(server, "index=0", "long")
    assert head["every"] == [1, 1024] and (shown == all_arrays["long"][:, ::1024]).all()


def test_axes_that_there_are_not(arrays):
    server, _ = arrays
    for query in ("axes=0", "axes=0,1", "axes=0,9&at=0,0,0,0", "axes=0,1&at=0,0,6,0", "axes=x,y&at=0,0,0,0", "axes=0,1&at=0",
                  f"axes={2**64 - 1},0&at=0,0,0,0", f"axes=0,1&at=0,0,{2**64 - 1},0"):
        assert server.ask(f"/-/api/plane/axes.shard/field.npy?{query}")[0] == 400, query


def test_a_histogram_is_of_all_elements(arrays):
    server, all_arrays = arrays
    answer = json.loads(server.get("/-/api/distribution/axes.shard/field.npy"))
    field = all_arrays["field"].astype(float)
    statistics = answer["statistics"]
    assert (answer["elements"], answer["looked_at"], statistics["count"]) == (field.size,) * 3
    assert (statistics["min"], statistics["max"]) == (field.min(), field.max())
    assert statistics["histogram"] == np.histogram(field, bins=32)[0].tolist()
    # An even sample of more than a million, from the first element to the last.
    answer = json.loads(server.get("/-/api/distribution/axes.shard/long.npy"))
    assert (answer["elements"], answer["looked_at"]) == (3 << 20, 1 << 20)
    assert (answer["statistics"]["min"], answer["statistics"]["max"]) == (0, (3 << 20) - 1)


def test_the_page_of_an_array_of_four_axes(page, arrays):
    server, all_arrays = arrays
    field = all_arrays["field"]
    page.open(server.url + "/-/view/axes.shard/field.npy")
    page.page.locator("#tab-picture").click()
    page.until("document.querySelector('.plane canvas').width === 7")
    # What is pointed at is said; all of the canvas shows the picture.
    canvas = page.page.locator(".plane canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box["width"] / box["height"] == pytest.approx(7 / 6, rel=0.01)
    page.page.mouse.move(box["x"] + box["width"] * 6.1 / 7, box["y"] + box["height"] * 0.9 / 6)
    page.until("document.querySelector('#panel-picture .note').textContent.startsWith('Row 0, column 6: ')")
    page.page.get_by_label("Rows").select_option("3")
    # The axis that was taken is left to the columns.
    assert page.page.get_by_label("Columns").input_value() == "2"
    page.until("(c => c.width === 6 && c.height === 7)(document.querySelector('.plane canvas'))")
    page.page.get_by_label("axis 1 at").fill("2")
    low, high = field[0, 2].min(), field[0, 2].max()
    page.until("([low, high]) => document.querySelector('#panel-picture .note').textContent.includes("
               "`${shardfs.short(low)} to ${shardfs.short(high)}`)", [float(low), float(high)])
    page.page.locator("#tab-histogram").click()
    page.page.locator("#panel-histogram .statistics svg").wait_for()
    assert "all 840 elements" in page.page.locator("#panel-histogram .note").text_content()
    page.quiet()


def test_a_histogram_counts_every_value(tmp_path, writers):
    """Also of columns, whose values follow each other at a distance that a sample could have, and of any range."""
    quaternions = np.tile(np.arange(4, dtype="<f8"), (1 << 17, 1))
    halves = np.tile([0.0, 1.0], (6000, 8))
    arrays = {"quaternions": quaternions, "halves": halves, "wide": np.array([-1.7e308, 1.7e308, 0, 1e308])}
    blocks = [(name, writers.tensor_v1(array), 1) for name, array in arrays.items()]
    writers.write_shard(tmp_path / "a.shard", blocks, role=1, codec="zstd", quick=True)
    with serving(tmp_path) as server:
        def histogram(address):
            return json.loads(server.get(f"/-/api/{address}"))["statistics"]["histogram"]
        for name, array in (("quaternions", quaternions), ("halves", halves)):
            expected = np.histogram(array, bins=32)[0].tolist()
            assert histogram(f"distribution/a.shard/{name}.npy") == expected
            assert histogram(f"curve/a.shard/{name}.npy") == expected
        # A range for which floats have no room.
        assert [histogram("distribution/a.shard/wide.npy")[bar] for bar in (0, 16, 25, 31)] == [1, 1, 1, 1]


def test_numbers_that_f32_does_not_hold(page, arrays):
    server, all_arrays = arrays
    for name in ("seconds", "counts", "huge"):
        head, shown = plane(server, "index=0", name)
        assert (shown == all_arrays[name].astype("<f8")).all() and np.isfinite(shown).all(), name
        assert (head["min"], head["max"]) == (shown.min(), shown.max())
    for name in ("seconds", "huge"):
        page.open(server.url + f"/-/view/axes.shard/{name}.npy")
        page.page.locator("#tab-picture").click()
        page.until("document.querySelector('.plane canvas').width === 64")
        colours = page.page.evaluate("""() => { const c = document.querySelector(".plane canvas");
          return new Set(new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)).size; }""")
        assert colours > 100, name
    page.quiet()
