"""The pages of `shardfs serve` in a real browser: players, curves, tables, and names that look like markup."""

import base64
import functools
import hashlib
import io
import json
import re
import shutil
from unittest import mock
from urllib.parse import urljoin, urlsplit

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import sync_playwright

from support import FIXTURES, GOLDEN, address, load_expected, mounted, serving, sha256, wait_for
from support.writers import idv

CHROMIUM = shutil.which("chromium")
PAGE_WEIGHT = 150_000
# Seconds: a browser on a busy machine.
PATIENCE = 120
THEMES = ("light", "dark")
# The pixels of the frame that a camera shows, row by row, as RGBA.
PIXELS = """camera => {
  const image = document.querySelectorAll(".camera")[camera].querySelector("img");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let text = "";
  for (let at = 0; at < data.length; at += 4096) text += String.fromCharCode(...data.subarray(at, at + 4096));
  return { width: canvas.width, height: canvas.height, data: btoa(text) };
}"""


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM, "chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page of which everything is noted that should not be: errors, dialogs, requests to elsewhere."""

    def __init__(self, page):
        self.page, self.errors, self.open_requests = page, [], set()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self.check)
        page.on("request", lambda request: self.open_requests.add(request))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda request: self.open_requests.discard(request))

    def check(self, request):
        if request.url.startswith(("data:", "blob:")):
            return
        if urlsplit(request.url).hostname != "127.0.0.1":
            self.errors.append(f"asked elsewhere: {request.url}")

    def open(self, url):
        self.open_requests.clear()
        response = self.page.goto(url, wait_until="load")
        # A link to another place of the same page asks for nothing.
        return response and response.status

    def settle(self):
        """Waits until nothing is asked for any more."""
        # One frame, in which scripts ask for what they need.
        self.page.evaluate("new Promise(requestAnimationFrame)")
        wait_for(lambda: self.page.wait_for_timeout(5) or not self.open_requests, PATIENCE, "the end of all requests")

    def until(self, expression, argument=None):
        """Waits until an expression is true. Playwright's own wait needs `eval`, which pages do not allow."""
        wait_for(lambda: self.page.evaluate(expression, argument), PATIENCE, expression)

    def quiet(self):
        assert self.errors == []


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    yield Watched(page)
    page.close()


@pytest.fixture(scope="module")
def golden_server():
    with serving(GOLDEN) as server:
        yield server


@pytest.fixture(scope="module")
def fixtures_server():
    with serving(FIXTURES) as server:
        yield server


def shown(page, camera):
    """The frame that a camera shows, as an array of RGBA."""
    found = page.page.evaluate(PIXELS, camera)
    return np.frombuffer(base64.b64decode(found["data"]), "u1").reshape(found["height"], found["width"], 4)


def go(page, step):
    """Moves the slider, and waits until all cameras show the step."""
    page.page.evaluate("""async step => {
      const slider = document.getElementById("time");
      slider.value = String(step);
      slider.dispatchEvent(new Event("input"));
      await shardfs.player.go(step);
    }""", step)


def camera_names(page):
    return [text.split(" · ")[0] for text in page.page.locator(".camera figcaption").all_text_contents()]


def curve(page, title):
    """The data of a curve, once it was drawn: the rows, and the values of each column."""
    heading = page.page.locator("h3", has_text=re.compile(f"^{re.escape(title)}$"))
    chart = page.page.locator(".chart").filter(has=heading)
    chart.scroll_into_view_if_needed()
    handle = chart.element_handle()
    page.until("chart => !!chart.chart.data", handle)
    data = handle.evaluate("chart => chart.chart.data.map(series => Array.from(series))")
    return np.array(data[0]), np.array(data[1:], float).T


# --- players -------------------------------------------------------------------

@pytest.mark.parametrize("path,camera,block", [
    ("wshard/py/multimodal_zstd.wshard", "cam0/rgb", "signal/cam0/rgb"),
    ("wshard/py/multimodal_zstd.wshard", "cam1/video", "signal/cam1/video"),
    ("wshard/chunked_go/go_long_manifest.wshard", "cam0/rgb", "signal/cam0/rgb"),
])
def test_frames_of_wshard_episodes(page, golden_server, path, camera, block):
    """All frames of a camera, as the browser shows them at each place of the slider, are the stored block."""
    expected = load_expected("wshard")[path.removeprefix("wshard/")]
    blocks = {b["name"]: b for b in expected["blocks"]} | (expected.get("joined") or {})
    steps, height, width, channels = blocks[block]["shape"]
    assert page.open(golden_server.url + address(path) + "/") == 200
    number = camera_names(page).index(camera)
    digest = hashlib.sha256()
    for step in range(steps):
        go(page, step)
        frame = shown(page, number)
        assert frame.shape == (height, width, 4) and (frame[..., 3] == 255).all()
        digest.update(frame[..., :channels].tobytes())
    assert digest.hexdigest() == blocks[block]["sha256"]
    page.quiet()


def test_frames_of_kdb_episodes(page, golden_server):
    """Raw pixels and PNG are exact, those of JPEG are what Pillow decodes, but for some levels."""
    name = "mixed_raw_jpeg_png.kdb"
    whole = (GOLDEN / "kdb" / name).read_bytes()
    frames = load_expected("kdb")[name]["episodes"][0]["frames"]
    assert page.open(golden_server.url + address(f"kdb/{name}/episodes/0/")) == 200
    names = camera_names(page)
    kinds = set()
    for step, records in enumerate(frames):
        go(page, step)
        for record in records:
            stored = whole[record["data_offset"]:record["data_offset"] + record["data_len"]]
            found = shown(page, names.index(record["camera"]))[..., :3]
            kinds.add(record["kind"])
            if record["kind"] == "raw":
                assert sha256(found.tobytes()) == record["sha256"]
                continue
            pillow = np.asarray(Image.open(io.BytesIO(stored)).convert("RGB")).astype(int)
            assert found.shape == pillow.shape
            assert abs(found - pillow).max() <= (0 if record["kind"] == "png" else 8)
    assert kinds == {"raw", "jpeg", "png"}
    page.quiet()


def test_playing(page, fixtures_server):
    """Play goes through all steps once and ends at the last; keys step; the link remembers where."""
    assert page.open(fixtures_server.url + "/files/ep_001.wshard/") == 200
    page.page.evaluate("""() => {
      window.seen = [];
      const slider = document.getElementById("where");
      new MutationObserver(() => window.seen.push(shardfs.player.step)).observe(slider, { childList: true });
    }""")
    assert page.page.locator("#play").get_attribute("aria-label") == "Play"
    page.page.select_option("#speed", "0.5")
    page.page.keyboard.press("Escape")
    page.page.locator("#play").click()
    page.until("shardfs.player.step === 23 && !shardfs.player.isPlaying")
    seen = page.page.evaluate("window.seen")
    assert seen[-1] == 23 and seen == sorted(seen) and len(set(seen)) > 3
    page.page.locator("#main").focus()
    page.page.evaluate("document.activeElement.blur()")
    for key, step in [("Home", 0), ("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("End", 23)]:
        page.page.keyboard.press(key)
        assert page.page.evaluate("shardfs.player.step") == step, key
    page.until("location.hash === '#t=23'")
    page.page.keyboard.press("Space")
    page.until("shardfs.player.isPlaying")
    page.page.keyboard.press("Space")
    page.quiet()


def test_a_link_remembers_episode_and_frame(page, fixtures_server):
    with mounted(FIXTURES) as mnt:
        expected = np.asarray(Image.open(mnt / "ep_001.wshard/images/cam0/rgb/017.png"))
    page.open(fixtures_server.url + "/files/ep_001.wshard/#t=17")
    page.until("shardfs.player.cameras.every(camera => camera.isReady(17))")
    go(page, 17)
    assert page.page.locator("#where").text_content().startswith("17 / 23")
    assert (shown(page, camera_names(page).index("cam0/rgb"))[..., :3] == expected).all()
    page.page.locator("#next").wait_for()
    page.page.keyboard.press("]")
    page.page.wait_for_url("**/files/ep_002_lz4.wshard/**")
    page.page.locator("#previous").wait_for()
    page.page.keyboard.press("[")
    page.page.wait_for_url("**/files/ep_001.wshard/**")
    page.open(fixtures_server.url + "/files/demo.kdb/episodes/0/#t=3")
    page.until("shardfs.player.step === 3")
    page.page.keyboard.press("]")
    page.page.wait_for_url("**/files/demo.kdb/episodes/1/**")
    page.quiet()


def test_missing_pictures_are_said(page, fixtures_server):
    """The second episode's wrist camera has a picture at every other step."""
    page.open(fixtures_server.url + "/files/demo.kdb/episodes/1/")
    wrist = camera_names(page).index("wrist")
    states = []
    for step in range(6):
        go(page, step)
        states.append(page.page.locator(".camera").nth(wrist).get_attribute("data-state"))
    assert states == [None, "no picture"] * 3
    page.quiet()


def test_depth_is_drawn_by_its_values(page, fixtures_server):
    page.open(fixtures_server.url + "/files/ep_001.wshard/")
    with mounted(FIXTURES) as mnt:
        depth = np.load(mnt / "ep_001.wshard/signal/cam0/depth.npy")
    go(page, 0)
    number = camera_names(page).index("cam0/depth")
    page.until("n => shardfs.player.cameras[n].max !== undefined", number)
    low, high = page.page.evaluate("n => [shardfs.player.cameras[n].min, shardfs.player.cameras[n].max]", number)
    assert low <= depth[0].min() and high >= depth[0].max() and (low, high) != (0, 0)
    page.quiet()


# --- curves and values ---------------------------------------------------------

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
    arrays = {"walk": walk, "odd": odd, "matrix": matrix, "big": np.array([2**64 - 1, 2**63], "<u8")}
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


def test_matrices_as_pictures(page, long):
    server, arrays = long
    page.open(server.url + "/-/view/long.shard/matrix.npy")
    page.page.locator("#tab-picture").click()
    page.until("document.querySelector('.plane canvas').width === 60")
    body = server.get("/-/api/plane/long.shard/matrix.npy")
    head, pixels = body.split(b"\n", 1)
    head = json.loads(head)
    assert (head["width"], head["height"], head["every"]) == (60, 40, 1)
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


# --- tables --------------------------------------------------------------------

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


# --- names, links, looks -------------------------------------------------------

EVIL = "<script>window.hit=1</script><img src=x onerror=window.hit=2>\"'&"


@pytest.fixture(scope="module")
def evil(tmp_path_factory, writers):
    """Containers whose names and texts are markup, in a folder with such a name."""
    folder = tmp_path_factory.mktemp("evil")
    below = folder / "<b onclick=window.hit=3>"
    below.mkdir()
    name = EVIL.replace("/", "∕")
    steps = 3
    frames = np.zeros((steps, 9, 9, 3), "u1")
    channels = [writers.channel(f"signal/{name}/rgb", "uint8", [9, 9, 3], modality="rgb"),
                writers.channel(f"signal/{name}", "float32", [], unit=EVIL)]
    blocks = writers.meta_blocks(EVIL, steps, channels)
    blocks += [(f"signal/{name}/rgb", frames.tobytes()), (f"signal/{name}", np.zeros(steps, "<f4").tobytes()),
               (f"{name}/notes", writers.dumps({EVIL: [EVIL]}), 2)]
    writers.write_shard(below / f"{name}.wshard", blocks)
    (below / "kas.trees").write_bytes(writers.kastore({f"{EVIL}/a": np.arange(4, dtype="<i4"),
                                                      f"{EVIL}/b": np.arange(4, dtype="<i4")}))
    texts = idv.texts([EVIL, None])
    (below / "table.idv").write_bytes(idv.file(2, [idv.Column(EVIL, "TextSpan", [texts], 2)]))
    (below / "page.html").write_text(EVIL)
    (below / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=4'/>")
    (below / f"{name}.json").write_text(json.dumps({EVIL: {EVIL: EVIL}}))
    with serving(folder) as server:
        yield server


def crawl(page, server, start, most=2000):
    """Opens every page that links lead to; gives their addresses."""
    todo, seen = [start], set()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        assert len(seen) < most
        page.at = at
        status = page.open(server.url + at)
        yield at, status
        links = page.page.eval_on_selector_all("a[href]:not([download])", "all => all.map(a => a.getAttribute('href'))")
        for link in links:
            split = urlsplit(urljoin(server.url + at, link))
            assert split.netloc == f"{server.host}:{server.port}", link
            target = split.path + (f"?{split.query}" if split.query else "")
            if not target.startswith(("/files/", "/-/view/", "/-/problems")) or link.startswith("#"):
                continue
            # Of the frames of a camera some are opened; of the others, page and picture are there.
            frame = re.search(r"/images/.*/(\d+)\.(png|jpg)$", target)
            if frame is None or int(frame[1]) < 2:
                todo.append(target)
            elif target not in seen:
                seen.add(target)
                assert b'id="picture"' in server.get(target)
                assert server.ask(target.replace("/-/view/", "/files/"), "HEAD")[0] == 200


def test_names_are_never_markup(page, evil):
    """Every page of containers full of markup: nothing of it runs, nothing of it is an element."""
    texts = ""
    for at, status in crawl(page, evil, "/files/"):
        assert status == 200, at
        page.settle()
        assert page.page.evaluate("window.hit") is None, at
        assert page.page.evaluate("""() => document.querySelectorAll(
          'script:not([src]), style, [onclick], [onerror], [onload], img[src=x]').length""") == 0, at
        texts += page.page.evaluate("document.body.innerText")
    assert texts.count("<script>window.hit=1") > 8
    page.quiet()


def test_what_may_hold_scripts_is_never_a_page_of_its_own(evil):
    for name in ("page.html", "drawing.svg"):
        status, headers, _ = evil.ask(address(f"<b onclick=window.hit=3>/{name}"))
        assert status == 200
        assert headers["content-type"] == "application/octet-stream" or "attachment" in headers["content-disposition"]


def test_every_link_of_the_fixtures(page, fixtures_server):
    """No console error on any page; on those of damaged containers only what the server could not give."""
    pages = 0
    for at, status in crawl(page, fixtures_server, "/files/"):
        pages += 1
        page.settle()
        if "/damaged/" in at:
            page.errors = [text for text in page.errors if "Failed to load resource" not in text]
        else:
            assert status == 200, at
        assert page.errors == [], at
    assert pages > 120


def test_damage_is_shown(page):
    """Each error says where, and the list of problems knows it afterwards."""
    with serving(FIXTURES) as server:
        page.open(server.url + "/-/problems")
        assert "Nothing was found wrong" in page.page.locator("main").text_content()
        page.open(server.url + "/-/view/damaged/bad_crc.wshard/signal/joint_pos.npy")
        page.page.locator(".notice.bad").wait_for()
        assert "signal/joint_pos" in page.page.locator(".notice.bad").text_content()
        page.open(server.url + "/-/problems")
        line = page.page.locator("tbody tr", has_text="bad_crc.wshard")
        assert "signal/joint_pos.npy" in line.text_content() and "checksum" in line.text_content().lower()
        page.open(server.url + "/files/damaged/")
        for name in ("bad_crc.wshard", "cut_short.trees"):
            assert page.page.locator("tr", has_text=name).locator(".badge.bad").text_content() == "damaged"
        page.open(server.url + "/files/damaged/bad_crc.wshard/signal/")
        row = page.page.locator(".files tr", has=page.page.get_by_role("link", name="joint_pos.npy"))
        assert row.locator(".badge.bad").count() == 1


LOOKS = ["/files/", "/files/ep_001.wshard/#t=5", "/files/demo.kdb/", "/files/demo.kdb/episodes/1/",
         "/-/view/ep_001.wshard/signal/joint_pos.npy", "/-/view/ep_001.wshard/signal/cam0/rgb.npy",
         "/files/table.idv/", "/-/view/ep_001.wshard/container.json", "/-/view/notes.txt",
         "/-/view/ep_001.wshard/images/cam0/rgb/000.png", "/-/problems", "/files/nothing-here"]


@pytest.mark.parametrize("theme", THEMES)
def test_accessible(browser, fixtures_server, theme):
    """axe finds nothing on any kind of page in either theme, contrast (WCAG AA) among what it looks at."""
    found = {}
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, color_scheme=theme, bypass_csp=True)
    page = Watched(context.new_page())
    # Themes differ in colours only.
    options = {} if theme == "light" else {"runOnly": ["color-contrast"]}
    for at in LOOKS:
        page.open(fixtures_server.url + at)
        page.settle()
        results = Axe().run(page.page, options=options).response
        for broken in results["violations"]:
            found[at, broken["id"]] = [node["html"] for node in broken["nodes"]][:3]
    context.close()
    assert found == {}


def test_the_theme_is_switched_and_kept(page, fixtures_server):
    page.open(fixtures_server.url + "/files/")
    background = "getComputedStyle(document.body).backgroundColor"
    first = page.page.evaluate(background)
    page.page.get_by_label("Switch between light and dark").click()
    second = page.page.evaluate(background)
    assert first != second
    page.open(fixtures_server.url + "/files/ep_001.wshard/")
    assert page.page.evaluate(background) == second
    page.page.keyboard.press("t")
    assert page.page.evaluate(background) == first
    page.quiet()


def test_filter_and_lines(page, fixtures_server):
    page.open(fixtures_server.url + "/files/")
    line = page.page.locator("tr", has_text="demo.kdb").locator(".holds")
    page.until("document.querySelectorAll('.holds .badge.format').length === 9")
    assert line.text_content().startswith("kdb 3 episodes · 54 frames · “")
    page.page.keyboard.press("/")
    page.page.keyboard.type("wsh")
    visible = [name for name in page.page.locator(".files tbody tr:visible .name").all_text_contents()]
    assert visible == ["ep_001.wshard", "ep_002_lz4.wshard", "stream.wshard"]
    page.quiet()


def test_a_phone_shows_all_of_it(browser, fixtures_server):
    """Nothing is wider than the screen of a phone."""
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page = Watched(context.new_page())
    for at in LOOKS:
        page.open(fixtures_server.url + at)
        page.settle()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 360, at
    context.close()


def test_containers_of_many_items(page, tmp_path, writers):
    """A page of 100,000 items has some of them, and leads to the others."""
    count = 100_000
    (tmp_path / "many.kas").write_bytes(writers.kastore({f"item_{n:06}": np.zeros(1, "u1") for n in range(count)}))
    with serving(tmp_path) as server:
        status, _, body = server.ask("/files/many.kas/", Accept="text/html")
        assert status == 200 and len(body) < 300_000
        page.open(server.url + "/files/many.kas/")
        assert page.page.locator(".files .count").text_content().replace("\u202f", "") == "1–200 of 100001"
        page.page.get_by_label("Filter names").fill("item_099999")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**?q=item_099999")
        assert page.page.locator(".files tbody .name").all_text_contents() == ["item_099999.npy"]
        page.open(server.url + "/files/many.kas/?page=501")
        assert page.page.locator(".files tbody tr").count() == 1
        page.quiet()


def test_pages_are_light(page, fixtures_server):
    """Everything that a player page loads but pictures, and the answers with its curves."""
    asked = set()
    page.page.on("request", lambda request: asked.add(request.url.removeprefix(fixtures_server.url)))
    page.open(fixtures_server.url + "/files/ep_001.wshard/")
    page.settle()
    is_picture = re.compile(r"\.(png|jpg)$|/plane/").search
    sizes = {path: len(fixtures_server.get(path)) for path in asked if not is_picture(path)}
    assert len(sizes) > 9 and sum(sizes.values()) < PAGE_WEIGHT, sizes
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
    status, _, body = server.ask(f"/files/long.shard/?page={huge}&q=%00", Accept="text/html")
    assert status == 200 and b"No name holds this text" in body
