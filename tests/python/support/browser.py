"""A real browser for tests of pages: fixtures that test modules import, and what they look at a page with."""

import re
import shutil
from collections import Counter
from urllib.parse import urljoin, urlsplit

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from .checks import wait_for
from .paths import FIXTURES, GOLDEN
from .servers import serving

CHROMIUM = shutil.which("chromium")
# Seconds: a browser on a busy machine.
PATIENCE = 120
# Pages that are open at once while all are visited.
TABS = 6


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

    def open(self, url, until="load"):
        self.open_requests.clear()
        response = self.page.goto(url, wait_until=until)
        # A link to another place of the same page asks for nothing.
        return response and response.status

    def begin(self, url):
        """As `open`, without waiting for more than that the page comes."""
        return self.open(url, "commit")

    def settle(self):
        """Waits until nothing is asked for any more."""
        # Some frames, in which scripts ask for what they need; a player for the curves' scripts first.
        self.page.evaluate("""(async () => {
          if (typeof shardfs !== "undefined" && shardfs.player) await shardfs.player.curves;
          for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
        })()""")
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


@pytest.fixture
def tabs(browser):
    pages = [browser.new_page(viewport={"width": 1280, "height": 1000}) for _ in range(TABS)]
    yield [Watched(page) for page in pages]
    [page.close() for page in pages]


@pytest.fixture(scope="module")
def golden_server():
    with serving(GOLDEN) as server:
        yield server


@pytest.fixture(scope="module")
def fixtures_server():
    with serving(FIXTURES) as server:
        yield server


def go(page, step):
    """Moves the slider, and waits until all cameras show the step."""
    page.page.evaluate("""async step => {
      const slider = document.getElementById("time");
      slider.value = String(step);
      slider.dispatchEvent(new Event("input"));
      await shardfs.player.go(step);
    }""", step)


def curve(page, title):
    """The data of a curve, once it was drawn: the rows, and the values of each column."""
    heading = page.page.locator("h3", has_text=re.compile(f"^{re.escape(title)}$"))
    chart = page.page.locator(".chart").filter(has=heading)
    chart.scroll_into_view_if_needed()
    handle = chart.element_handle()
    page.until("chart => !!chart.chart.data", handle)
    data = handle.evaluate("chart => chart.chart.data.map(series => Array.from(series))")
    return np.array(data[0]), np.array(data[1:], float).T


def crawl(tabs, server, start, most=2000, alike=1000):
    """Opens every page that links lead to, several at once: each page when it has loaded, its address and status. Of
    files of one kind in one container, of folders that differ in a number, and of listings sorted in one way, `alike`
    are opened, and the others asked for without the browser."""
    todo, seen, kinds = [start], {start}, Counter()
    while todo:
        opened = [(tab, at, tab.begin(server.url + at)) for tab, at in zip(tabs, todo)]
        del todo[:len(opened)]
        for tab, at, status in opened:
            tab.page.wait_for_load_state("load")
            yield tab, at, status
            links = tab.page.eval_on_selector_all("a[href]:not([download])",
                                                  "all => all.map(a => a.getAttribute('href'))")
            for link in links:
                split = urlsplit(urljoin(server.url + at, link))
                assert split.netloc == f"{server.host}:{server.port}", link
                target = split.path + (f"?{split.query}" if split.query else "")
                if not target.startswith(("/files/", "/-/view/", "/-/problems")) or link.startswith("#"):
                    continue
                if target in seen:
                    continue
                seen.add(target)
                assert len(seen) < most
                # Of the frames of a camera some are opened; of the others, page and picture are there.
                frame = re.search(r"/images/.*/(\d+)\.(png|jpg)$", target)
                parts = split.path.split("/")
                # In one container; of folders, those that differ in more than a number are opened all, in one order.
                folder = re.sub(r"\d+", "0", split.path)
                name = parts[-1] or split.query or ("0" if folder != split.path else "")
                kind = (tuple(parts[2:4]), name.rpartition(".")[2]) if parts[-1] else split.query or folder
                kinds[kind] += 1
                if frame is not None and int(frame[1]) >= 2:
                    assert b'id="picture"' in server.get(target)
                    assert server.ask(target.replace("/-/view/", "/files/"), "HEAD")[0] == 200
                elif name and kinds[kind] > alike:
                    status, _, body = server.ask(target, Accept="text/html")
                    assert b"<main" in body and (status == 200 or "/damaged/" in target), target
                else:
                    todo.append(target)
