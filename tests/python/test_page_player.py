"""The player of `shardfs serve` in a real browser: frames, playing, links to a frame."""

import base64
import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from support import FIXTURES, GOLDEN, address, load_expected, mounted, serving, sha256
from support.browser import browser, fixtures_server, go, golden_server, page  # noqa: F401 - fixtures

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


def shown(page, camera):
    """The frame that a camera shows, as an array of RGBA."""
    found = page.page.evaluate(PIXELS, camera)
    return np.frombuffer(base64.b64decode(found["data"]), "u1").reshape(found["height"], found["width"], 4)


def camera_names(page):
    return [text.split(" · ")[0] for text in page.page.locator(".camera figcaption").all_text_contents()]


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


def test_frames_of_rlds_episodes(page, golden_server):
    """As those of KDB, and with the arrays of the steps as curves, also those in a folder."""
    name = "toy_robot/1.0.0"
    tree, every = load_expected("rlds")[name]["tree"], np.load(GOLDEN / "rlds/frames.npz")
    top = "train/episodes/0"
    stacks = {path.removeprefix(f"{top}/images/").removesuffix(".npy"): entry for path, entry in tree.items()
              if path.startswith(f"{top}/images/") and "stack" in entry}
    assert page.open(golden_server.url + address(f"rlds/{name}/{top}/")) == 200
    names = camera_names(page)
    assert set(stacks) <= set(names)
    for camera, entry in stacks.items():
        for step, number in enumerate(entry["stack"]):
            go(page, step)
            found, frame = shown(page, names.index(camera))[..., :3].astype(int), every[entry["frames"]][number]
            assert found.shape[:2] == frame.shape[:2] and abs(found - frame).max() <= (0 if entry["exact"] else 16)
    assert "observation" in page.page.content() and "action" in page.page.content()
    page.quiet()
    assert page.open(golden_server.url + address(f"rlds/{name}/")) == 200
    assert "train 0" in page.page.content()


def test_what_is_left_out_is_said(page, tmp_path, fixtures_server, writers):
    steps = 2
    shapes = {f"signal/s{number:03}": [] for number in range(100)} | {"signal/wide": [600]}
    channels = [writers.channel(name, "float32", shape) for name, shape in shapes.items()]
    blocks = [(name, np.zeros([steps, *shape], "<f4").tobytes()) for name, shape in shapes.items()]
    writers.write_shard(tmp_path / "many.wshard", writers.meta_blocks("many", steps, channels) + blocks)
    with serving(tmp_path) as server:
        page.open(server.url + "/files/many.wshard/")
        assert page.page.locator(".note").all_text_contents() == [
            "Curves are drawn of the first 96 of 100 signals.", "1 array with more than 512 values a step: no curves."]
    page.open(fixtures_server.url + "/files/ep_001.wshard/")
    assert page.page.locator(".note").count() == 0
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


def test_colours_of_depth_run_over_what_the_caption_says(page, tmp_path, writers):
    """Of frames that were shown, not of those fetched ahead; a frame that is shown again has the colours of now."""
    steps = 30
    depth = np.arange(256, dtype="<u2").reshape(16, 16) + np.where(np.arange(steps) < 5, 1000, 40000).astype("<u2")[:, None, None]
    blocks = writers.meta_blocks("ep", steps, [writers.channel("signal/cam/depth", "uint16", [16, 16], modality="depth")])
    writers.write_shard(tmp_path / "ep.wshard", [*blocks, ("signal/cam/depth", depth.tobytes())])
    ends = """() => { const c = document.querySelector(".camera canvas").getContext("2d");
      return [c.getImageData(0, 0, 1, 1), c.getImageData(15, 15, 1, 1)].map(pixel => Array.from(pixel.data.subarray(0, 3))); }"""
    dark, bright = [68, 1, 84], [253, 231, 37]
    with serving(tmp_path) as server:
        page.open(server.url + "/files/ep.wshard/")
        # By the points of the "viridis" map: the first two are (68, 1, 84) and (72, 40, 120), the ninth and the tenth
        # (180, 222, 44) and (253, 231, 37).
        for step, caption, expected in [(0, "1000–1255", [dark, bright]), (20, "1000–40255", [[249, 230, 37], bright]),
                                        (0, "1000–40255", [dark, [68, 3, 86]])]:
            go(page, step)
            page.settle()
            assert page.page.locator(".camera figcaption").text_content() == f"cam/depth · {caption}"
            assert page.page.evaluate(ends) == expected
    page.quiet()
