"""`shardfs export --mp4`: videos by ffmpeg, and nothing half-made. `cp --compress`: small pictures of the same pixels."""

import io
import json
import os
import signal
import struct
import subprocess

import numpy as np
import pytest
from PIL import Image

from support import BIN, FIXTURES, run, wait_for
from support.writers.kdb import Episode, Record, pack
from support.writers.recordings import mcap

EPISODE = FIXTURES / "ep_001.wshard"

def probe(video):
    """Width, height, frames a second, frames, as ffprobe says."""
    done = subprocess.run(["ffprobe", "-v", "error", "-count_frames", "-show_streams", "-of", "json", video],
                          capture_output=True, check=True)
    (stream,) = json.loads(done.stdout)["streams"]
    rate, of = map(int, stream["r_frame_rate"].split("/"))
    return stream["width"], stream["height"], rate / of, int(stream["nb_read_frames"])


def frames(video, width, height):
    done = subprocess.run(["ffmpeg", "-v", "error", "-i", video, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
                          capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3).astype(int)


def plain(number, width=8, height=6):
    """A picture of one colour, which a video keeps nearly."""
    return np.full((height, width, 3), number, np.uint8)


def recording(tmp_path, records, fps=5.0):
    path = tmp_path / "made.kdb"
    path.write_bytes(pack([Episode([[record] if record else [] for record in records], fps=fps)]))
    return path


def raw(number, width=8, height=6):
    return Record("front", width, height, 3, 0, plain(number, width, height).tobytes())


def test_a_camera_becomes_a_video(tmp_path):
    about = json.loads(run("info", "--json", EPISODE, check=True).stdout)
    done = run("export", EPISODE, "--mp4", "cam0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # The only pictures of that camera in colour.
    assert os.listdir(tmp_path) == ["ep_001_cam0_rgb.mp4"]
    width, height, rate, count = probe(tmp_path / "ep_001_cam0_rgb.mp4")
    assert (width, height, count) == (64, 48, about["episode"]["length_T"])
    assert done.stdout.decode() == f"ep_001_cam0_rgb.mp4: 24 frames at {rate:g} a second\n"
    run("export", EPISODE, "--mp4", "cam0/depth", "-o", tmp_path / "depth.mp4", "--fps", "12", "--quiet", check=True)
    assert probe(tmp_path / "depth.mp4")[2:] == (12, 24)
    # By the path of a folder of pictures, in any container; the rate is not stated there.
    robot = FIXTURES / "robot.h5/data/demo_0"
    failed = run("export", robot, "--mp4", "obs/agentview_image", "-o", tmp_path / "robot.mp4")
    assert failed.returncode == 1 and "--fps" in failed.stderr and not (tmp_path / "robot.mp4").exists()
    run("export", robot, "--mp4", "obs/agentview_image", "-o", tmp_path / "robot.mp4", "--fps", "29.97", check=True)
    assert probe(tmp_path / "robot.mp4")[:2] == (32, 24) and probe(tmp_path / "robot.mp4")[3] == 5


def test_a_topic_is_a_camera(tmp_path):
    for number, name in enumerate(("/camera/image", "camera/image", "topics/camera/image")):
        video = tmp_path / f"{number}.mp4"
        run("export", FIXTURES / "drive.mcap", "--mp4", name, "--fps=5", "-o", video, check=True)
        assert probe(video)[2] == 5
    failed = run("export", FIXTURES / "drive.mcap", "--mp4", "/imu", "-o", tmp_path / "no.mp4")
    assert failed.returncode == 1 and "no pictures of '/imu'; there are /camera/image" in failed.stderr


def test_topics_with_and_without_a_slash(tmp_path):
    """The name that is given comes first. The rate is that of the topic, by its times."""
    def message(grey):
        picture = io.BytesIO()
        Image.fromarray(plain(grey)).save(picture, "PNG")
        # CDR: the text `png`, then the bytes, whose length begins at a multiple of 4.
        return b"\0\1\0\0" + struct.pack("<I4sI", 4, b"png", len(picture.getvalue())) + picture.getvalue()

    greys, periods = (30, 220), (200, 100)
    messages = [(channel, at * 10**6, message(greys[channel]))
                for channel, period in enumerate(periods) for at in range(0, 1000, period)]
    schema = ("sensor_msgs/msg/CompressedImage", "ros2msg", b"string format\nuint8[] data\n")
    channels = [("/a", "cdr", 1), ("a", "cdr", 1), ("/empty", "cdr", 1)]
    (tmp_path / "x.mcap").write_bytes(mcap([schema], channels, messages))
    for channel, name in enumerate(("/a", "a")):
        run("export", tmp_path / "x.mcap", "--mp4", name, "-o", tmp_path / f"{channel}.mp4", check=True)
        shown = frames(tmp_path / f"{channel}.mp4", 8, 6).mean()
        assert abs(shown - greys[channel]) < 6 and probe(tmp_path / f"{channel}.mp4")[2] == 1000 / periods[channel]
    failed = run("export", tmp_path / "x.mcap", "--mp4", "/empty", "-o", tmp_path / "no.mp4")
    assert failed.returncode == 1 and failed.stderr.endswith("no pictures of '/empty'; there are /a, a\n")


def test_episodes_are_chosen(tmp_path):
    demo = FIXTURES / "demo.kdb"
    failed = run("export", demo, "--mp4", "front", "-o", tmp_path / "all.mp4")
    assert failed.returncode == 1 and "has 3 episodes" in failed.stderr and str(demo / "episodes/0") in failed.stderr
    done = run("export", demo / "episodes/1", "--mp4", "front", cwd=tmp_path, check=True)
    assert os.listdir(tmp_path) == ["demo_episodes_1_front.mp4"]
    about = json.loads(run("info", "--json", demo, check=True).stdout)
    listed = [line for line in run("ls", demo / "episodes/1/images/front", check=True).stdout.decode().split()
              if line[0].isdigit()]
    assert probe(tmp_path / "demo_episodes_1_front.mp4")[3] == len(listed) and about["episodes"] == 3
    assert f"{len(listed)} frames at" in done.stdout.decode()


def test_pixels_and_missing_pictures(tmp_path):
    """Each frame has its picture's colour; where a number is missing, the one before it stays. Odd sides are padded."""
    path = recording(tmp_path, [raw(20, 7, 5), raw(220, 7, 5), None, None, raw(120, 7, 5)])
    done = run("export", path, "--mp4", "front", "-o", tmp_path / "v.mp4", check=True)
    assert done.stdout.decode() == f"{tmp_path}/v.mp4: 5 frames at 5 a second, 2 of them repeated\n"
    assert probe(tmp_path / "v.mp4") == (8, 6, 5, 5)
    shown = frames(tmp_path / "v.mp4", 8, 6)[:, :4, :4].mean(axis=(1, 2, 3))
    assert np.abs(shown - [20, 220, 220, 220, 120]).max() < 6, shown


def test_times_stay_where_pictures_are_missing_at_the_ends(tmp_path):
    path = recording(tmp_path, [None, raw(20), None, raw(120), None, None])
    run("export", path, "--mp4", "front", "-o", tmp_path / "v.mp4", check=True)
    shown = frames(tmp_path / "v.mp4", 8, 6).mean(axis=(1, 2, 3))
    assert len(shown) == 6 and np.abs(shown - [20, 20, 20, 120, 120, 120]).max() < 6, shown


def test_stored_names_of_cameras(tmp_path):
    names = [b"front/rgb", b"wrist.png", b"50%"]
    path = tmp_path / "made.kdb"
    path.write_bytes(pack([Episode([[Record(name, 8, 6, 3, 0, plain(9).tobytes()) for name in names]], fps=5.0)]))
    for number, name in enumerate(names):
        run("export", path, "--mp4", name.decode(), "-o", tmp_path / f"{number}.mp4", check=True)
    failed = run("export", path, "--mp4", "", "-o", tmp_path / "no.mp4")
    assert failed.returncode == 2 and not (tmp_path / "no.mp4").exists()


def test_failures_leave_nothing(tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def fails(source, camera, text, *options, **more):
        done = run("export", source, "--mp4", camera, "-o", out / "v.mp4", *options, **more)
        assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1, done
        assert "\\n" not in done.stderr, done
        assert os.listdir(out) == []

    fails(EPISODE, "cam7", "no pictures of 'cam7'; there are cam0/depth, cam0/rgb")
    fails(FIXTURES / "table.idv", "cam0", "no pictures of 'cam0', and no other camera")
    fails(FIXTURES / "notes.txt", "cam0", "neither a container nor a folder in one")
    fails(FIXTURES, "cam0", "neither a container nor a folder in one")
    # A picture in the middle is damaged, or has other sides: the frames before it are not kept.
    fails(recording(tmp_path, [raw(1), raw(2), raw(3, 4, 4)]), "front", "has 4 x 4 pixels")
    jpeg = Record("front", 8, 6, 3, 1, b"\xff\xd8\xff\xe0" + bytes(40))
    fails(recording(tmp_path, [raw(1), jpeg]), "front", "made.kdb: episodes/0/images/front/001.jpg: neither PNG nor JPEG")
    whole = io.BytesIO()
    Image.fromarray(plain(9)).save(whole, "JPEG")
    jpeg = Record("front", 8, 6, 3, 1, whole.getvalue()[:-40])
    fails(recording(tmp_path, [raw(1), jpeg]), "front", "made.kdb: episodes/0/images/front/001.jpg: jpeg: ")
    # Numbers that would make a video without end.
    fails(recording(tmp_path, [raw(1), *[None] * 250, raw(2)]), "front", "too many are missing")
    # Without ffmpeg.
    fails(EPISODE, "cam0", "ffmpeg is not in PATH; install it", env=os.environ | {"PATH": str(tmp_path)})
    # One that fails in the middle.
    fake = tmp_path / "bin/ffmpeg"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nhead -c 10 >/dev/null\necho 'Unknown encoder' >&2\nexit 8\n")
    fake.chmod(0o755)
    fails(EPISODE, "cam0", "ffmpeg ended with exit status: 8: Unknown encoder",
          env=os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}"})
    # One that cannot write the end, and succeeds.
    fake.write_text("#!/bin/sh\ncat >/dev/null\necho 'Error writing trailer: No space left on device' >&2\n")
    path = os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    fails(EPISODE, "cam0", "v.mp4: ffmpeg ended with exit status: 0: Error writing trailer: No space", env=path)
    # SIGTERM in the middle.
    fake.write_text("#!/bin/sh\nwhile dd bs=4096 count=1 of=/dev/null 2>/dev/null; do sleep 0.05; done\n")
    with subprocess.Popen([BIN, "export", EPISODE, "--mp4", "cam0", "-o", out / "v.mp4"], env=path) as process:
        wait_for(lambda: os.listdir(out), what="the video")
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM and os.listdir(out) == []
    # Nothing is ever overwritten.
    (out / "v.mp4").write_bytes(b"precious")
    done = run("export", EPISODE, "--mp4", "cam0", "-o", out / "v.mp4")
    assert done.returncode == 1 and "exists" in done.stderr and (out / "v.mp4").read_bytes() == b"precious"
    for rate in "0", "-3", "nan":
        assert run("export", EPISODE, "--mp4", "cam0", f"--fps={rate}").returncode == 2
    assert run("export", EPISODE).returncode == 2


def test_a_disk_that_takes_nothing_is_named(tmp_path):
    assert os.geteuid() == 0, "this test mounts a small disk, as root"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path], check=True)
    try:
        done = run("export", EPISODE, "--mp4", "cam0", "-o", tmp_path / "v.mp4")
        assert (done.returncode, done.stderr) == (1, f"shardfs: {tmp_path}/v.mp4: Read-only file system\n")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_compressed_copies(tmp_path):
    """The same pixels in fewer bytes; everything else as without the option; a second run copies nothing."""
    from PIL import Image

    small, large = tmp_path / "small", tmp_path / "large"
    run("cp", "-r", EPISODE, FIXTURES / "demo.kdb", large, check=True)
    run("cp", "-r", "--compress", EPISODE, FIXTURES / "demo.kdb", small, check=True)
    names = {path.relative_to(large) for path in large.rglob("*") if path.is_file()}
    assert names == {path.relative_to(small) for path in small.rglob("*") if path.is_file()}
    smaller = 0
    for name in names:
        before, after = (large / name).read_bytes(), (small / name).read_bytes()
        assert (large / name).stat().st_mtime_ns == (small / name).stat().st_mtime_ns
        if name.suffix == ".png" and before != after:
            assert len(after) < len(before)
            pictures = [Image.open(io.BytesIO(file)) for file in (before, after)]
            assert pictures[0].mode == pictures[1].mode and np.array_equal(*map(np.asarray, pictures)), name
            smaller += 1
        else:
            assert before == after, name
    assert smaller > 40
    inodes = {name: (small / name).stat().st_ino for name in names}
    run("cp", "-r", "--compress", EPISODE, FIXTURES / "demo.kdb", small, check=True)
    assert inodes == {name: (small / name).stat().st_ino for name in names}
    run("cp", "--compress", EPISODE / "images/cam0/rgb/000.png", tmp_path / "one.png", check=True)
    assert (tmp_path / "one.png").read_bytes() == (small / "ep_001.wshard/images/cam0/rgb/000.png").read_bytes()
