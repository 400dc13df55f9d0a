#!/usr/bin/env python3
"""How long a player page takes to its first frame, and what it weighs. Prints a table for bench/record.

    bench/first_frame.py [ROUNDS]

Each round starts a server anew, so that no container is open and no block decoded, and a browser that keeps nothing.
Counted from the first byte of the page, which is when the browser learns of the pictures, and from the click, to the
moment when the first picture of a camera is decoded. By turns with it, the same pictures on a page that has nothing but
them, from a server that has all bytes at hand: what the browser itself takes. Needs chromium, playwright and
target/release/shardfs.
"""

import contextlib
import http.server
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
from support import writers  # noqa: E402

BIN = os.environ.get("SHARDFS_BIN", ROOT / "target/release/shardfs")
# The time at which the first picture is decoded, looked at as often as the screen is drawn.
WATCH = """const watch = () => {
  const image = document.querySelector(".camera img");
  const isThere = image && image.complete && image.naturalWidth > 0;
  if (isThere) image.decode().then(() => (window.firstFrame ??= performance.now()));
  if (window.firstFrame === undefined) requestAnimationFrame(watch);
};
requestAnimationFrame(watch);"""


def large(folder):
    """An episode of two cameras of 640 x 480 pixels, 120 steps: 111 MB a camera, in zstd blocks."""
    rng = np.random.default_rng(1)
    steps, height, width = 120, 480, 640
    slope = np.add.outer(np.arange(height), np.arange(width))[..., None] * np.array([1, 2, 3])
    base = ((slope + rng.integers(0, 8, (height, width, 3))) % 256).astype("u1")
    frames = np.stack([np.roll(base, 4 * step, axis=1) for step in range(steps)])
    cameras = ["signal/front/rgb", "signal/wrist/rgb"]
    channels = [writers.channel(name, "uint8", [height, width, 3], modality="rgb") for name in cameras]
    blocks = writers.meta_blocks("large", steps, [*channels, writers.channel("signal/joints", "float32", [7])])
    blocks += [(name, frames.tobytes()) for name in cameras]
    blocks += [("signal/joints", rng.standard_normal((steps, 7)).astype("<f4").tobytes())]
    writers.write_shard(folder / "large.wshard", blocks, codec="zstd", quick=True)


@contextlib.contextmanager
def serving(source):
    server = subprocess.Popen([BIN, "serve", source, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://[^/\s]+", server.stdout.readline())[0]
    finally:
        server.terminate()
        server.wait()


def get(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        return answer.headers["content-type"], answer.read()


@contextlib.contextmanager
def bare(source, path):
    """A server of a page with nothing but the pictures of an episode's page."""
    with serving(source) as base:
        text = get(base + path, Accept="text/html")[1].decode()
        pictures = re.findall(r'<img[^>]* src="(/files/[^"]+)"', text)
        assert pictures, text
        answers = {picture: get(base + picture) for picture in pictures}
    figures = "".join(f'<div class="camera"><img src="{picture}"></div>' for picture in pictures)
    answers["/"] = "text/html", f"<!doctype html><html lang=en><title>bare</title>{figures}".encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            media_type, body = answers.get(self.path, ("text/plain", b""))
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def measure(browser, base, path):
    """Milliseconds to the first frame from the click and from the first byte, and what the page asked for."""
    page = browser.new_page(bypass_csp=True)
    page.add_init_script(WATCH)
    asked = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(base + path, timeout=120_000)
    page.wait_for_function("window.firstFrame !== undefined")
    page.wait_for_load_state("networkidle")
    first, byte = page.evaluate("[window.firstFrame, performance.getEntriesByType('navigation')[0].responseStart]")
    page.close()
    return first, first - byte, asked


def weight(asked):
    is_picture = re.compile(r"\.(png|jpg)$|/plane/").search
    return sum(len(get(url)[1]) for url in asked if not is_picture(url))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        large(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        cases = {
            "WShard, 64 x 48, zstd": (ROOT / "fixtures", "/files/ep_001.wshard/"),
            "KDB, 96 x 72, JPEG": (ROOT / "fixtures", "/files/demo.kdb/episodes/1/"),
            "WShard, two of 640 x 480, zstd blocks of 111 MB": (folder, "/files/large.wshard/"),
        }
        print("| episode | after the first byte: median (worst) ms | after the click: median (worst) ms | the same "
              "pictures alone: median (worst) ms after the first byte | page, kB |")
        print("|---|---|---|---|---|")
        for name, (source, path) in cases.items():
            found, alone = [], []
            for _ in range(rounds + 1):
                with serving(source) as base:
                    whole, after, asked = measure(browser, base, path)
                    found.append((after, whole, weight(asked)))
                with bare(source, path) as base:
                    alone.append(measure(browser, base, "/")[1])
            # The first of each began with a browser that was not warm.
            after, whole, weights = zip(*found[1:])
            said = [f"{statistics.median(times):.0f} ({max(times):.0f})" for times in (after, whole, alone[1:])]
            print(f"| {name} | {said[0]} | {said[1]} | {said[2]} | {max(weights) / 1000:.0f} |", flush=True)
        browser.close()


main()
