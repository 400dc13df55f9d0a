"""Arrays on the pages of `shardfs serve` in a real browser: curves, statistics, pictures."""

import json
import re

import numpy as np
import pytest

from support import FIXTURES, mounted, serving
from support.browser import browser, curve, fixtures_server, go, page  # noqa: F401 - fixtures


def test_curves_of_an_episode(page, fixtures_server):
    with mounted(FIXTURES) as mnt:
        root = mnt / "ep_001.wshard"
        names = {"joint_pos": "signal/joint_pos", "ctrl": "action/ctrl", "reward": "reward", "done": "done",
                 "gripper_open": "signal/gripper_open"}
        arrays = {name: np.load(root / f"{path}.npy") for name, path in names.items()}
    page.open(fixtures_server.url + "/files/ep_001.wshard/")
    for name, array in arrays.items():
        rows, values = curve(page, name)
        assert rows.tolist() == list(range(len(array)))
        assert (values == array.reshape(len(array), -1).astype(float)).all(), name
    # The legend says the values where the mark stands, and the mark follows the slider.
    go(page, 9)
    chart = page.page.locator(".chart").filter(has_text="reward")
    assert float(chart.locator(".legend b").text_content()) == pytest.approx(arrays["reward"][9], rel=1e-4)
    assert chart.locator(".playhead").is_visible()
    # A click into a curve moves the slider; dragging zooms, and a double click shows all again.
    over = chart.locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.page.mouse.click(box["x"] + box["width"] * 20 / 23, middle)
    assert page.page.evaluate("shardfs.player.step") == 20
    page.page.mouse.move(box["x"] + box["width"] * 5 / 23, middle)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] * 10 / 23, middle, steps=4)
    page.page.mouse.up()
    page.until("shardfs.player.charts.every(c => !c.answer || c.answer.range[1] - c.answer.range[0] < 9)")
    rows, values = curve(page, "reward")
    assert 3 < rows[0] <= 5 and 10 <= rows[-1] < 12
    assert (values[:, 0] == arrays["reward"][rows].astype(float)).all()
    page.quiet()


@pytest.fixture(scope="module")
def long(tmp_path_factory, writers):
    """A long array with a spike, numbers that are none, matrices, and every element type that arrays may have."""
    folder = tmp_path_factory.mktemp("long")
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.standard_normal((300_000, 2)), axis=0).astype("<f4")
    walk[123_456, 1] = 9999
    odd = np.array([1.5, np.nan, -np.inf, 2.5], "<f8")
    matrix = rng.standard_normal((40, 60)).astype("<f4")
    arrays = {"walk": walk, "odd": odd, "matrix": matrix, "big": np.array([2**64 - 1, 2**63], "<u8"),
              "easting": 543216.78 + np.arange(3) / 1000}
    blocks = [(name, writers.tensor_v1(array), 1) for name, array in arrays.items()]
    writers.write_shard(folder / "long.shard", blocks, role=1, codec="zstd", quick=True)
    with serving(folder) as server:
        yield server, arrays


def test_long_arrays_are_thinned_and_keep_their_extremes(page, long):
    server, arrays = long
    walk = arrays["walk"].astype(float)
    page.open(server.url + "/-/view/long.shard/walk.npy")
    rows, values = curve(page, "Columns")
    assert len(rows) < 4001 and rows[0] == 0
    assert values[:, 1].max() == 9999 and values[:, 0].min() == walk[:, 0].min()
    said = page.page.locator(".statistics").text_content()
    numbers = dict(re.findall(r"(Smallest|Largest|Mean|Values)([-\d.e+\u202f]+)", said))
    assert float(numbers["Largest"]) == 9999
    assert float(numbers["Mean"]) == pytest.approx(walk.mean(), rel=1e-3)
    assert numbers["Values"].replace("\u202f", "") == "600000"
    assert "Computed over what is shown: all 300\u202f000 rows." in page.page.locator(".note").text_content()
    # Zoomed in, every row has its point.
    page.page.evaluate("document.querySelector('.chart').chart.show(123450, 123460)")
    page.until("document.querySelector('.chart').chart.data[0].length < 20")
    rows, values = curve(page, "Columns")
    assert rows.tolist() == list(range(123_450, 123_461))
    assert (values == walk[123_450:123_461]).all()
    page.quiet()


def test_numbers_that_are_none(page, long):
    server, _ = long
    page.open(server.url + "/-/view/long.shard/odd.npy")
    answer = json.loads(server.get("/-/api/curve/long.shard/odd.npy"))
    assert answer["y"] == [[1.5, None, None, 2.5]]
    said = answer["statistics"]
    assert (said["count"], said["not_finite"], said["min"], said["max"], said["mean"]) == (2, 2, 1.5, 2.5, 2.0)
    page.page.locator("#tab-values").click()
    cells = page.page.locator(".grid tbody td")
    cells.nth(3).wait_for()
    assert cells.all_text_contents() == ["1.5", "NaN", "-inf", "2.5"]
    answer = json.loads(server.get("/-/api/rows/long.shard/big.npy"))
    assert answer["cells"] == [[str(2**64 - 1), str(2**63)]]
    page.quiet()


def test_numbers_have_digits_that_tell_them_apart(page, long):
    """A number in few digits never looks like another integer, and the smallest not like the largest."""
    server, _ = long
    page.open(server.url + "/-/view/long.shard/easting.npy")
    page.page.locator(".statistics").wait_for()
    assert page.page.locator(".statistics dd").all_text_contents()[:3] == ["543216.78", "543216.782", "543216.781"]
    page.page.evaluate("document.querySelector('.chart').chart.mark(1)")
    assert page.page.locator(".legend b").text_content() == "543216.781"
    for value, expected in ((543216.78, "543216.78"), (12.345678, "12.346"), (1700000000.126, "1700000000.13"), (2**53 - 1, str(2**53 - 1)),
                            (1e300, "1.000e+300"), (0.1 + 1e-9, "0.1"), (2.5e-7, "2.500e-7"), (None, "–")):
        assert page.page.evaluate("value => shardfs.short(value)", value) == expected
    page.quiet()


def test_matrices_as_pictures(page, long):
    server, arrays = long
    page.open(server.url + "/-/view/long.shard/matrix.npy")
    page.page.locator("#tab-picture").click()
    page.until("document.querySelector('.plane canvas').width === 60")
    body = server.get("/-/api/plane/long.shard/matrix.npy")
    head, pixels = body.split(b"\n", 1)
    head = json.loads(head)
    assert (head["width"], head["height"], head["every"]) == (60, 40, [1, 1])
    assert (np.frombuffer(pixels, "<f4").reshape(40, 60) == arrays["matrix"]).all()
    # Dark for the smallest, bright for the largest.
    flat = page.page.evaluate("""() => { const c = document.querySelector(".plane canvas");
      return Array.from(c.getContext("2d").getImageData(0, 0, c.width, c.height).data); }""")
    light = np.array(flat).reshape(-1, 4)[:, :3].sum(axis=1)
    assert light[arrays["matrix"].argmin()] == light.min()
    assert light[arrays["matrix"].argmax()] > 500
    page.quiet()


def test_pictures_of_a_stack(page, fixtures_server):
    page.open(fixtures_server.url + "/-/view/ep_001.wshard/signal/cam0/rgb.npy")
    page.until("document.querySelector('.plane canvas').width === 64")
    with mounted(FIXTURES) as mnt:
        stack = np.load(mnt / "ep_001.wshard/signal/cam0/rgb.npy")
    slider = page.page.locator(".slide input")
    slider.evaluate("slider => { slider.value = '11'; slider.dispatchEvent(new Event('input')); }")
    pixels = """() => { const c = document.querySelector(".plane canvas");
      return Array.from(c.getContext("2d").getImageData(0, 0, c.width, c.height).data); }"""
    page.until("document.querySelector('.slide output').textContent.startsWith('11')")
    expected = stack[11].reshape(-1, 3)
    page.until(f"({pixels})().slice(0, 3).join() === '{','.join(map(str, expected[0]))}'")
    assert (np.array(page.page.evaluate(pixels)).reshape(-1, 4)[:, :3] == expected).all()
    page.quiet()


def test_answers_are_bounded(long, fixtures_server):
    """Numbers that a client makes up neither fail the server nor make it answer more."""
    server, _ = long
    huge = str(2**64 - 1)
    for query in (f"from={huge}", f"to={huge}", f"column={huge}", f"columns={huge}", "from=5&to=2", "from=x", ""):
        answer = json.loads(server.get(f"/-/api/curve/long.shard/walk.npy?{query}"))
        assert len(answer["x"]) <= 4000 and len(answer["y"]) <= 64
        rows = json.loads(server.get(f"/-/api/rows/long.shard/walk.npy?{query}&count={huge}"))
        assert all(len(cells) <= 200 for cells in rows["cells"])
    assert server.ask(f"/-/api/plane/long.shard/matrix.npy?index={huge}")[0] == 400
    assert server.ask("/-/api/curve/long.shard/container.json")[0] == 404
    assert server.ask("/-/api/nothing/long.shard/walk.npy")[0] == 404
    assert server.ask("/-/api/curve/..%2f..%2fetc/passwd")[0] == 404
    assert server.ask(f"/files/?page={huge}", Accept="text/html")[0] == 200
    status, _, body = server.ask(f"/files/long.shard/?page={huge}&q=%00", Accept="text/html")
    assert status == 200 and b"No name holds this text" in body


def test_arrays_that_only_their_files_describe(page, tmp_path):
    """Those of an npz file, and files that numpy wrote."""
    rng = np.random.default_rng(3)
    arrays = {"matrix": rng.standard_normal((30, 20)), "words": np.array(["a", "日本"]), "one": np.array(7, "i2")}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    np.save(tmp_path / "alone.npy", arrays["matrix"])
    others = {"fortran": np.asfortranarray(arrays["matrix"]), "big": arrays["matrix"].astype(">f8"), "record": np.zeros(2, [("a", "<i4")])}
    for name, array in others.items():
        np.save(tmp_path / f"{name}.npy", array)
    whole = (tmp_path / "alone.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-1])
    with serving(tmp_path) as server:
        for address in ("a.npz/matrix.npy", "alone.npy"):
            page.open(server.url + "/-/view/" + address)
            page.page.locator("#tab-picture").click()
            page.until("document.querySelector('.plane canvas').width === 20")
            answer = json.loads(server.get(f"/-/api/curve/{address}"))
            assert np.array_equal(np.array(answer["y"]).T, arrays["matrix"])
        assert json.loads(server.get("/-/api/rows/a.npz/words.npy"))["cells"] == [["a", "日本"]]
        assert json.loads(server.get("/-/api/rows/a.npz/one.npy"))["cells"] == [["7"]]
        for name in [*others, "cut"]:
            assert page.open(server.url + f"/-/view/{name}.npy") == 200
            assert page.page.locator("pre.bytes").count() == 1, name
    page.quiet()
