"""Pictures of episodes with the programs that people use for pictures: ffmpeg, feh, ImageMagick, pngcheck, Pillow.

A program that is missing fails its test; scripts/test installs them.
"""

import contextlib
import io
import json
import os
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support import BIN, FIXTURES, ROOT, mounted, png_size, statistics_of, wait_for, walk_files
from support.writers import shard
from test_programs import program

FRONT, WRIST = "demo.kdb/episodes/0/images/front", "demo.kdb/episodes/1/images/wrist"
JPEGS = "demo.kdb/episodes/1/images/front"


def pictures(top):
    return [top / path for path in sorted(walk_files(top)) if path.endswith((".png", ".jpg")) and "/images/" in path]


def probe(path, entry):
    shown = program("ffprobe", "-v", "error", "-count_frames", "-select_streams", "v:0", "-show_entries",
                    f"stream={entry}", "-of", "csv=p=0", path)
    return shown.strip().strip(",")


def film_pixels(path):
    return subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True).stdout


# --- ffmpeg ---------------------------------------------------------------------

def test_ffmpeg_makes_a_film_of_a_camera(fixtures_mount, tmp_path):
    """Without loss, so that the film's pixels can be compared with those of the episode."""
    film = tmp_path / "front.mkv"
    program("ffmpeg", "-v", "error", "-framerate", "10", "-i", fixtures_mount / FRONT / "%03d.png",
            "-c:v", "ffv1", "-pix_fmt", "bgr0", film)
    assert probe(film, "width,height,nb_read_frames") == "96,72,8"
    assert film_pixels(film) == np.load(f"{fixtures_mount / FRONT}.npy").tobytes()


def test_ffmpeg_and_missing_frames(fixtures_mount, tmp_path):
    """A camera with holes: by pattern, since the numbers do not run through."""
    assert sorted(os.listdir(fixtures_mount / WRIST)) == ["000.png", "002.png", "004.png"]
    film = tmp_path / "wrist.mkv"
    program("ffmpeg", "-v", "error", "-framerate", "10", "-pattern_type", "glob", "-i",
            fixtures_mount / WRIST / "*.png", "-c:v", "ffv1", film)
    assert probe(film, "nb_read_frames") == "3"


def test_ffmpeg_takes_jpeg_frames_from_any_number_on(fixtures_mount, tmp_path):
    film = tmp_path / "front.mkv"
    program("ffmpeg", "-v", "error", "-framerate", "10", "-start_number", "2", "-i",
            fixtures_mount / JPEGS / "%03d.jpg", "-c:v", "mpeg4", film)
    assert probe(film, "nb_read_frames") == "4"


def test_ffmpeg_and_wshard(fixtures_mount, tmp_path):
    film = tmp_path / "rgb.mkv"
    program("ffmpeg", "-v", "error", "-framerate", "30", "-i",
            fixtures_mount / "ep_001.wshard/images/cam0/rgb/%03d.png", "-c:v", "ffv1", "-pix_fmt", "bgr0", film)
    assert probe(film, "nb_read_frames") == "24"
    assert film_pixels(film) == np.load(fixtures_mount / "ep_001.wshard/signal/cam0/rgb.npy").tobytes()


# --- looking at them ------------------------------------------------------------

@contextlib.contextmanager
def screen():
    """An X server without a screen; its display. It does not start anew when its last program leaves: one that is
    just coming would be thrown out."""
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "320x240x24", "-nolisten", "tcp",
                               "-noreset"], pass_fds=[write], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as numbers:
            yield ":" + numbers.readline().strip()
    finally:
        server.terminate()
        server.wait(20)


def shows(screenshot, picture):
    """Whether the picture is somewhere in the screenshot, pixel by pixel."""
    height, width = picture.shape[:2]
    rows, columns = screenshot.shape[0] - height + 1, screenshot.shape[1] - width + 1
    corners = (screenshot[:rows, :columns] == picture[0, 0]).all(-1)
    return any((screenshot[y:y + height, x:x + width] == picture).all() for y, x in np.argwhere(corners))


def test_feh_shows_a_frame(fixtures_mount):
    frame = fixtures_mount / FRONT / "003.png"
    pixels = np.load(f"{fixtures_mount / FRONT}.npy")[3]
    other = np.load(f"{fixtures_mount / FRONT}.npy")[7]
    with screen() as display:
        assert display != ":", "Xvfb did not start"
        env = {**os.environ, "DISPLAY": display}
        feh = subprocess.Popen(["feh", "--borderless", frame], env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def screenshot():
            assert feh.poll() is None, f"feh ended: {feh.returncode}"
            done = subprocess.run(["import", "-window", "root", "png:-"], env=env, capture_output=True, timeout=60,
                                  check=True)
            return np.asarray(Image.open(io.BytesIO(done.stdout)).convert("RGB"))
        try:
            wait_for(lambda: shows(screenshot(), pixels), 20, "feh showing the frame")
            assert not shows(screenshot(), other)
        finally:
            feh.terminate()
            feh.wait(20)


# --- sound files ----------------------------------------------------------------

@pytest.mark.parametrize("source", ["golden", "fixtures"])
def test_every_picture_is_sound(source, kdb_mount, fixtures_mount):
    """All pictures of the golden and the example episodes, in the eyes of three programs."""
    top = kdb_mount if source == "golden" else fixtures_mount / "demo.kdb"
    found = pictures(top)
    assert len(found) >= 25
    for path in found:
        with Image.open(path) as picture:
            picture.verify()
    for start in range(0, len(found), 100):
        some = found[start:start + 100]
        lines = program("identify", "-regard-warnings", *some).splitlines()
        assert len(lines) == len(some)
        pngs = [path for path in some if path.suffix == ".png"]
        if pngs:
            program("pngcheck", "-q", *pngs)


# --- training -------------------------------------------------------------------

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def image_folder(root):
    """What torchvision.datasets.ImageFolder makes of a folder: a class for each folder in it, and in each, walked in
    order, the files that are named like pictures, opened by Pillow."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            samples += [(os.path.join(folder, f), label) for f in sorted(files) if f.lower().endswith(EXTENSIONS)]

    def load(path):
        with open(path, "rb") as file:
            return Image.open(file).convert("RGB")
    return classes, [(load(path), label) for path, label in samples]


def test_image_folder(fixtures_mount, tmp_path):
    """The cameras of an episode are the classes; the stacks beside them are no folders and do not count."""
    images = fixtures_mount / "demo.kdb/episodes/0/images"
    classes, samples = image_folder(images)
    assert classes == ["front", "wrist"] and [label for _, label in samples] == [0] * 8 + [1] * 8
    for number, (picture, label) in enumerate(samples):
        stack = np.load(images / f"{classes[label]}.npy", mmap_mode="r")
        assert (np.asarray(picture) == stack[number % 8]).all()
    # Classes of one's own, out of several episodes, by links.
    for name, episode in (("success", 0), ("failure", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / str(episode)).symlink_to(fixtures_mount / f"demo.kdb/episodes/{episode}/images/front")
    classes, samples = image_folder(tmp_path)
    assert classes == ["failure", "success"] and [label for _, label in samples] == [0] * 6 + [1] * 8


def test_numpy_maps_a_stack(fixtures_mount):
    """A part of a mapped stack decodes the frames of that part."""
    with mounted(FIXTURES / "demo.kdb") as mnt:
        stats = lambda: json.loads((mnt / ".shardfs/stats.json").read_text())["cache"]
        stack = np.load(mnt / "episodes/1/images/front.npy", mmap_mode="r")
        assert stack.shape == (6, 72, 96, 3) and stack[0].any()
        jpeg = np.asarray(Image.open(mnt / "episodes/1/images/front/000.jpg")).astype(int)
        assert np.abs(stack[0] - jpeg).max() <= 16
        assert 1 <= stats()["misses"] <= 6


# --- WShard cameras ---------------------------------------------------------------

def test_scrolling_through_a_compressed_camera_decodes_its_block_once():
    """Forth, back and anywhere: the frames and the array come out of one decoded block."""
    for name in ("ep_001.wshard", "ep_002_lz4.wshard"):
        with mounted(FIXTURES / name) as mnt:
            stats = lambda: json.loads((mnt / ".shardfs/stats.json").read_text())["cache"]
            item = next(i for i in json.loads((mnt / "container.json").read_text())["items"]
                        if i["name"] == "signal/cam0/rgb")
            assert item["codec"] in ("zstd", "lz4")
            frames = sorted((mnt / "images/cam0/rgb").iterdir())
            assert len(frames) == 24
            for frame in frames:
                assert frame.stat().st_size == png_size(64, 48, 3)
            before = stats()
            order = [*frames, *reversed(frames), *random.Random(1).choices(frames, k=40)]
            for frame in order:
                Image.open(frame).load()
            np.load(mnt / "signal/cam0/rgb.npy")
            after = stats()
            assert after["misses"] - before["misses"] == 1, name
            assert after["decoded_bytes"] - before["decoded_bytes"] == item["size"]


def test_the_golden_cameras_were_looked_at(golden, wshard_mount):
    """The test of each golden file compares its pictures; here, that there are enough of every kind."""
    expected = json.loads((golden / "wshard/expected.json").read_text())["files"]
    kinds = set()
    for rel, file in expected.items():
        for block in file.get("blocks", ()) if file.get("open") == "accept" else ():
            name = block["name"].removeprefix("signal/")
            folder = Path(wshard_mount / rel / "images" / name)
            if block["name"].startswith("signal/") and "shape" in block and folder.is_dir():
                some = next(iter(sorted(folder.iterdir())), None)
                if some is not None and some.suffix == ".png":
                    kinds.add((block["codec"], Image.open(some).mode))
    assert {codec for codec, _ in kinds} >= {"none", "zstd", "lz4"}, kinds
    assert {mode for _, mode in kinds} >= {"RGB"}, kinds


# --- the tour -------------------------------------------------------------------

def test_commands_of_the_tour(tmp_path, monkeypatch):
    """What the section on pictures shows is what the commands print. (feh has a test of its own.)"""
    section = (ROOT / "docs/TOUR.md").read_text(encoding="utf-8").split("\n## Pictures\n")[1].split("\n## ")[0]
    blocks = section.split("```console\n")[1:]
    assert len(blocks) == 2
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.setenv("PATH", f"{Path(BIN).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnt").mkdir()
    ran = []
    with mounted("fixtures", mnt=tmp_path / "mnt"):
        for block in blocks:
            block = block.split("```")[0]
            for command in block.split("$ ")[1:]:
                command, _, shown = command.partition("\n")
                if not command.startswith("feh "):
                    printed = program("bash", "-c", command)
                    # `ls` writes columns on a terminal; `identify` ends with the time it took.
                    printed, shown = (re.sub(r"[\d.]+u [\d:.]+$", "", text.rstrip()).split() for text in (printed, shown))
                    assert printed == shown, command
                    ran.append(command.split()[0])
    assert sorted(ran) == ["ffmpeg", "identify", "ls", "ls"]
    assert probe(tmp_path / "front.mp4", "nb_read_frames") == "8"


def test_an_array_that_was_read_whole_is_there_for_its_pictures(tmp_path):
    """While there is room, a block that the kernel has all of as an array is kept for the pictures in it."""
    source = tmp_path / "source"
    source.mkdir()
    cameras = {}
    for number in range(6):
        small = np.random.default_rng(number).integers(0, 256, (12, 28, 28, 3), np.uint8)
        cameras[f"ep{number}.wshard"] = small.repeat(8, 1).repeat(8, 2)
    channel = {"id": "cam0/rgb", "dtype": "u8", "shape": [224, 224, 3], "signal_block": "signal/cam0/rgb",
               "modality": "rgb"}
    for name, frames in cameras.items():
        blocks = [*shard.meta_blocks(name, len(frames), [channel]), ("signal/cam0/rgb", frames.tobytes())]
        shard.write_shard(source / name, blocks, codec="zstd", quick=True)
    with mounted(source, "--serve=cache", "--cache-size=64M") as mnt:
        for name, frames in cameras.items():
            assert np.array_equal(np.load(mnt / name / "signal/cam0/rgb.npy"), frames)
        before = statistics_of(mnt)["cache"]
        assert before["used"] > sum(frames.nbytes for frames in cameras.values())
        for name, frames in cameras.items():
            folder = mnt / name / "images/cam0/rgb"
            for number, picture in enumerate(sorted(os.listdir(folder))):
                assert np.array_equal(np.asarray(Image.open(folder / picture)), frames[number])
        assert statistics_of(mnt)["cache"]["misses"] == before["misses"]
