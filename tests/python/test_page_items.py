"""Tables of a container's arrays on the pages of `shardfs serve`, in a real browser."""

import json
import re
import struct

import pytest

from support import GOLDEN, serving
from support.browser import browser, page  # noqa: F401 - fixtures

HOSTILE = "<img src=x onerror=window.hit=1>"


def safetensors(tensors):
    """A file of tensors of zeros: names with a dtype, its bytes and a shape."""
    header, at = {}, 0
    for name, (dtype, width, shape) in tensors.items():
        size = width
        for axis in shape:
            size *= axis
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(at)


def rows(page):
    """The cells of the table, line by line."""
    lines = page.page.locator(".files tbody tr").all()
    return [[cell.replace("\u202f", "").strip() for cell in line.locator("td").all_text_contents()] for line in lines]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tensors = {"norm.weight": ("BF16", 2, [64]), "up.weight": ("F32", 4, [64, 32]), "bias": ("F8_E4M3", 1, [96]),
               HOSTILE: ("I8", 1, [1])}
    (folder / "small.safetensors").write_bytes(safetensors(tensors))
    many = {f"layers.{n:06}.weight": ("F32", 4, [n % 7]) for n in range(100_000)}
    (folder / "many.safetensors").write_bytes(safetensors(many))
    with serving(folder) as server:
        yield server


def test_tensors_are_a_table_that_can_be_sorted_and_filtered(page, models):
    page.open(models.url + "/files/small.safetensors/")
    assert rows(page) == [
        ["norm.weight.npy", "BF16", "64", "64", "128 B"], ["up.weight.npy", "F32", "64 × 32", "2048", "8.0 KiB"],
        ["bias.npy", "F8_E4M3", "96", "96", "96 B"], [f"{HOSTILE}.npy", "I8", "1", "1", "1 B"]]
    page.page.get_by_role("link", name="Size").click()
    page.page.wait_for_url("**sort=-size*")
    assert [line[0] for line in rows(page)][:3] == ["up.weight.npy", "norm.weight.npy", "bias.npy"]
    assert page.page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.page.get_by_role("link", name="Size").click()
    page.page.wait_for_url("**sort=size*")
    assert [line[0] for line in rows(page)][1:] == ["bias.npy", "norm.weight.npy", "up.weight.npy"]
    page.page.get_by_role("link", name="Size").click()
    page.page.wait_for_url(re.compile("view=arrays$"))
    assert rows(page)[0][0] == "norm.weight.npy"
    page.page.get_by_label("Filter names").fill("weight")
    assert page.page.locator(".files tbody tr:visible").count() == 2
    page.page.get_by_label("Filter names").fill("BF16")
    assert page.page.locator(".files tbody tr:visible .name").all_text_contents() == ["norm.weight.npy"]
    page.open(models.url + "/files/small.safetensors/?view=arrays&q=bf16")
    assert [line[0] for line in rows(page)] == ["norm.weight.npy"]
    page.page.get_by_role("link", name="Files").click()
    page.page.wait_for_url("**view=files")
    assert page.page.locator(".files tr", has_text="container.json").count() == 1
    assert page.page.evaluate("window.hit") is None
    page.quiet()


def test_a_hundred_thousand_tensors(page, models):
    """Each page has some of them; orders and filters are over all."""
    status, _, body = models.ask("/files/many.safetensors/", Accept="text/html")
    assert status == 200 and len(body) < 200_000
    page.open(models.url + "/files/many.safetensors/")
    assert page.page.locator(".files .count").text_content().replace("\u202f", "") == "1–200 of 100000"
    page.open(models.url + "/files/many.safetensors/?view=arrays&sort=-name&page=500")
    assert rows(page)[-1][0] == "layers.000000.weight.npy"
    field = page.page.get_by_label("Filter names")
    assert field.get_attribute("placeholder") == "Filter names, then Enter"
    field.fill("099999")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url("**?q=099999*")
    assert [line[:3] for line in rows(page)] == [["layers.099999.weight.npy", "F32", str(99_999 % 7)]]
    page.open(models.url + f"/files/many.safetensors/?view=arrays&page={2**64 - 1}&sort={HOSTILE}")
    assert len(rows(page)) == 200
    page.quiet()


def test_blocks_lead_to_their_numbers(page):
    """The name of a tensor in blocks leads to its values, the mark behind it to the blocks."""
    with serving(GOLDEN / "gguf") as server:
        name = "quantised.gguf"
        page.open(f"{server.url}/files/{name}/?view=arrays")
        marked = page.page.locator(".files tbody tr", has=page.page.locator(".badge", has_text="blocks")).first
        names = marked.locator(".name a")
        assert names.nth(0).get_attribute("href").endswith(".f32.npy")
        assert names.nth(1).get_attribute("href").endswith(".bin")
        names.nth(0).click()
        page.page.locator("#array").wait_for()
        page.quiet()


def test_a_phone_shows_the_table(browser, models):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = context.new_page()
    for at in ("small.safetensors/", "many.safetensors/?view=arrays&sort=-size"):
        tab.goto(f"{models.url}/files/{at}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, at
        row = tab.locator(".files tbody tr").first
        assert all(row.locator("td").nth(column).is_visible() for column in range(5))
    context.close()
