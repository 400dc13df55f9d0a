"""All pages of `shardfs serve` in a real browser: links, names that look like markup, looks, accessibility."""

import json
import re
import urllib.request
from urllib.parse import quote

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from support import FIXTURES, address, serving
from support.browser import Watched, browser, crawl, fixtures_server, page, tabs  # noqa: F401 - fixtures
from support.writers import idv

PAGE_WEIGHT = 150_000
THEMES = ("light", "dark")
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


def test_names_are_never_markup(tabs, evil):
    """Every page of containers full of markup: nothing of it runs, nothing of it is an element."""
    texts = ""
    for page, at, status in crawl(tabs, evil, "/files/"):
        assert status == 200, at
        page.settle()
        assert page.page.evaluate("window.hit") is None, at
        assert page.page.evaluate("""() => document.querySelectorAll(
          'body script:not([src]), body style, [onclick], [onerror], [onload], img[src=x]').length""") == 0, at
        # Every page has one of each of its own.
        assert page.page.evaluate("document.head.querySelectorAll('script:not([src]), style').length") == 2, at
        texts += page.page.evaluate("document.body.innerText")
        page.quiet()
    assert texts.count("<script>window.hit=1") > 8


def test_addresses_are_never_markup(page, evil):
    """What stands in an address, whole or as what is searched for, is text on the page that answers."""
    hit = quote("\"'></title></script><script>window.hit=5</script><img src=x onerror=window.hit=6>", safe="")
    for at in [f"/files/{hit}", f"/-/view/{hit}", f"/files/?q={hit}&page={hit}", f"/-/view/{hit}?at={hit}",
               f"/files/#row={hit}&t={hit}", f"/-/api/{hit}/{hit}", f"/-/assets/{hit}/{hit}", f"/{hit}"]:
        page.open(evil.url + at)
        page.settle()
        assert page.page.evaluate("window.hit") is None, at
        assert page.page.evaluate("document.querySelectorAll('[onerror], img[src=x]').length") == 0, at
    page.errors = [text for text in page.errors if "Failed to load resource" not in text]
    page.quiet()


def test_what_may_hold_scripts_is_never_a_page_of_its_own(evil):
    for name in ("page.html", "drawing.svg"):
        status, headers, _ = evil.ask(address(f"<b onclick=window.hit=3>/{name}"))
        assert status == 200
        assert headers["content-type"] == "application/octet-stream" or "attachment" in headers["content-disposition"]


def test_every_link_of_the_fixtures(tabs, fixtures_server):
    """No console error on any kind of page; on those of damaged containers only what the server could not give."""
    pages = 0
    for page, at, status in crawl(tabs, fixtures_server, "/files/", alike=1):
        pages += 1
        page.settle()
        if "/damaged/" in at:
            page.errors = [text for text in page.errors if "Failed to load resource" not in text]
        else:
            assert status == 200, at
        assert page.errors == [], at
    assert pages > 120


def test_what_is_one_file_can_be_downloaded(fixtures_server):
    for path in (FIXTURES / "ep_001.wshard", FIXTURES / "pick_rlds", FIXTURES / "cells.zarr"):
        at = f"{fixtures_server.url}/files/{path.name}/"
        with urllib.request.urlopen(urllib.request.Request(at, headers={"Accept": "text/html"})) as page:
            links = re.findall(r'href="([^"]*/\.file)"', page.read().decode())
        assert bool(links) == path.is_file(), path
        for link in links:
            with urllib.request.urlopen(fixtures_server.url + link) as file:
                assert file.read() == path.read_bytes()


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
    containers = {entry.name for entry in FIXTURES.iterdir()} - {"damaged", "notes.txt"}
    # Lines are asked for when they are seen.
    page.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.until(f"document.querySelectorAll('.holds .badge.format').length === {len(containers)}")
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


def test_a_phone_says_what_containers_hold(browser, fixtures_server):
    """Their format, a line and their size, below the name, once they are seen."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = Watched(context.new_page())
    page.open(fixtures_server.url + "/files/")
    page.until("document.querySelectorAll('.holds .badge.format').length >= 5")
    row = page.page.locator(".files tbody tr", has_text="arrays.npz")
    assert row.locator(".holds").inner_text() == "npz 8 items"
    assert row.locator(".num").inner_text() == "2.4 KiB"
    page.quiet()
    context.close()


def test_texts_are_shown_as_they_are(page, tmp_path):
    """Lines end in LF or CR LF, a first line may be empty, and JSON is parsed as it is stored."""
    (tmp_path / "crlf.txt").write_bytes(b"\r\na\r\n\r\nb\tc\x1b\r\n")
    (tmp_path / "blank.txt").write_bytes(b"\n\nlast")
    value = {"a\u202eb": "\u202e\x7f\u0085<b>&amp;'\"", "b": 1}
    text = json.dumps(value, ensure_ascii=False, indent=1)
    (tmp_path / "crlf.json").write_bytes(text.replace("\n", "\r\n").encode())
    (tmp_path / "broken.json").write_bytes(b"\n{\r\n")
    (tmp_path / "empty.json").touch()
    with serving(tmp_path) as server:
        def source(name):
            page.open(server.url + "/-/view/" + name)
            return page.page.locator("pre.source").text_content()
        assert source("crlf.txt") == "\na\n\nb\tc\ufffd1B\n"
        assert source("blank.txt") == "\n\nlast"
        assert source("broken.json") == "\n{\n"
        page.open(server.url + "/-/view/crlf.json")
        assert page.page.locator("#json .key").all_text_contents() == list(value)
        assert json.loads(page.page.locator("#json .string").text_content()) == value["a\u202eb"]
        page.open(server.url + "/-/view/empty.json")
        assert "empty" in page.page.locator(".empty").text_content()
        page.quiet()


def test_long_texts_in_both_directions(page, tmp_path):
    """The pages of a text follow each other and begin with a line, also on the way back."""
    lines = [f"{number} ż" * (number % 90 + 1) for number in range(3000)]
    text = "\n".join(lines)
    (tmp_path / "long.txt").write_text(text)
    with serving(tmp_path) as server:
        page.open(server.url + "/-/view/long.txt")
        parts = []

        def on(which):
            parts.append(page.page.locator("pre.source").text_content())
            link = page.page.locator(f"nav.pages a[rel={which}]")
            return link.count() and page.open(server.url + "/-/view/long.txt" + link.get_attribute("href"))

        while on("next"):
            pass
        forward = list(parts)
        assert len(forward) > 3 and "".join(forward) == text and all(part.endswith("\n") for part in forward[:-1])
        parts.clear()
        while on("prev"):
            pass
        assert parts == forward[::-1]


def test_without_javascript(browser, fixtures_server):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for at in ["/-/view/ep_001.wshard/signal/joint_pos.npy", "/files/table.idv/", "/files/drive.mcap/"]:
        page.goto(fixtures_server.url + at)
        assert "JavaScript" in page.locator("noscript .notice").inner_text(), at
    context.close()


def test_containers_of_many_items(page, tmp_path, writers):
    """A page of 100,000 items has some of them, and leads to the others."""
    count = 100_000
    (tmp_path / "many.kas").write_bytes(writers.kastore({f"item_{n:06}": np.zeros(1, "u1") for n in range(count)}))
    with serving(tmp_path) as server:
        status, _, body = server.ask("/files/many.kas/?view=files", Accept="text/html")
        assert status == 200 and len(body) < 300_000
        page.open(server.url + "/files/many.kas/?view=files")
        assert page.page.locator(".files .count").text_content().replace("\u202f", "") == "1–200 of 100001"
        page.page.get_by_label("Filter names").fill("item_099999")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**?q=item_099999&view=files")
        assert page.page.locator(".files tbody .name").all_text_contents() == ["item_099999.npy"]
        page.open(server.url + "/files/many.kas/?view=files&page=501")
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


def test_json_is_folded_as_it_is_written(page, tmp_path):
    """Every digit, every member in its order; of strings, the letters that they escape."""
    text = r"""{"id": 9007199254740993, "far": 1e400, "one": 1.0, "10": -0.0, "2": [18446744073709551615, [], {}, ""],
      "twice": 1, "twice": null, "a\"]{": "\u00e9 \"]}, \\", "__proto__": {"x": true}}"""
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "none.json").write_text('{"a": NaN, "b": 01}')
    with serving(tmp_path) as server:
        page.open(server.url + "/-/view/a.json")
        page.page.locator("#unfold").click()
        leaves = page.page.locator("#json .leaf").all_text_contents()
        assert leaves == ["id: 9007199254740993", "far: 1e400", "one: 1.0", "10: -0.0", "0: 18446744073709551615", '3: ""', "twice: 1",
                          "twice: null", 'a"]{: "é \\"]}, \\\\"', "x: true"]
        assert page.page.locator("#json summary").all_text_contents() == ["{ 9 }", "2: [ 4 ]", "1: [ 0 ]", "2: { 0 }", "__proto__: { 1 }"]
        # What is no JSON stays as it is.
        page.open(server.url + "/-/view/none.json")
        assert page.page.locator("#json pre").text_content() == '{"a": NaN, "b": 01}'
    page.quiet()


def test_what_is_text_is_shown_as_text(page, tmp_path):
    """Whatever its name, such as a schema of messages; also where its first part ends within a letter."""
    texts = {"a.msg": "float64 data\n# <b>é</b>\n", "plain": "x" * 4095 + "é\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "b.msg").write_bytes(b"abc\0def")
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    with serving(tmp_path) as server:
        for name, text in texts.items():
            page.open(server.url + "/-/view/" + name)
            assert page.page.locator("pre.source").text_content() == text
        for name in ("b.msg", "latin"):
            page.open(server.url + "/-/view/" + name)
            assert page.page.locator("pre.bytes").count() == 1
    page.quiet()
