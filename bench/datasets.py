"""Measures data sets of LeRobot beside pyarrow and PyAV, and TFRecord shards.

    scripts/bench_datasets [--dir DIR] [--record] [--only WORD]

Makes what it reads in DIR (1.2 GB): a data set of 300 episodes with 200 steps each, its rows in one Parquet file as
converters write them and one AV1 video of 640 x 480 with groups of two frames; and a data set of TFDS of 300 episodes in one
shard of 1 GB. Gives the best of five rounds, both programs by turns. Needs /dev/fuse, target/release/shardfs (or SHARDFS_BIN),
pyarrow, av, crc32c, numpy, and ffmpeg with libsvtav1. Run it on a machine that does nothing else.
"""

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support import ROOT
from support.writers import tfrecord

from .beside import ROUNDS, Rows, far, fresh, on_one_core, once, timed

EPISODES, STEPS, FPS, FRAMES = 300, 200, 30, 240
CAMERA = "observation.images.top"
SHARD_STEPS, SHARD_PICTURE = 20, 170_000


def robot(folder):
    episodes = EPISODES
    def feature(dtype, *shape):
        return {"dtype": dtype, "shape": list(shape), "names": None}

    features = {"observation.state": feature("float32", 14), "action": feature("float32", 14),
                CAMERA: feature("video", 480, 640, 3), "timestamp": feature("float32", 1),
                "frame_index": feature("int64", 1), "episode_index": feature("int64", 1), "index": feature("int64", 1),
                "task_index": feature("int64", 1)}
    info = {"codebase_version": "v3.0", "fps": FPS, "robot_type": "aloha", "features": features,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"}
    for name in ("meta/episodes/chunk-000", "data/chunk-000", f"videos/{CAMERA}/chunk-000"):
        (folder / name).mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    rng, rows = np.random.default_rng(1), episodes * STEPS
    values = rng.normal(size=(rows, 14)).astype("f4")
    lists = pa.ListArray.from_arrays(np.arange(0, rows * 14 + 1, 14, "i4"), values.ravel())
    steps, number = np.tile(np.arange(STEPS), episodes), np.repeat(np.arange(episodes), STEPS)
    # All episodes show the same video.
    times = (steps % FRAMES / FPS).astype("f4")
    pq.write_table(pa.table({
        "observation.state": lists, "action": lists, "timestamp": times, "frame_index": steps, "episode_index": number,
        "index": np.arange(rows), "task_index": np.zeros(rows, "i8")}), folder / "data/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["fold the towel"]}), folder / "meta/tasks.parquet")
    zeros = np.zeros(episodes, "i8")
    pq.write_table(pa.table({
        "episode_index": np.arange(episodes), "length": np.full(episodes, STEPS), "tasks": [["fold the towel"]] * episodes,
        "data/chunk_index": zeros, "data/file_index": zeros, "dataset_from_index": np.arange(episodes) * STEPS,
        "dataset_to_index": np.arange(1, episodes + 1) * STEPS, f"videos/{CAMERA}/chunk_index": zeros,
        f"videos/{CAMERA}/file_index": zeros, f"videos/{CAMERA}/from_timestamp": np.zeros(episodes),
        f"videos/{CAMERA}/to_timestamp": np.full(episodes, STEPS / FPS)}),
        folder / "meta/episodes/chunk-000/file-000.parquet")
    video = folder / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size=640x480:rate={FPS}", "-frames:v",
                    str(FRAMES), "-c:v", "libsvtav1", "-g", "2", "-crf", "30", "-preset", "10", "-pix_fmt", "yuv420p",
                    str(video)], check=True, stderr=subprocess.DEVNULL)


def rlds(folder):
    """300 episodes of 20 steps, each with a picture of 170 kB that no program looks into."""
    tfrecord.crc32c = crc32c.crc32c
    rng = np.random.default_rng(1)
    features = {"steps": tfrecord.steps({
        "observation": tfrecord.dictionary({"image": tfrecord.image(64, 64, "jpeg"), "state": tfrecord.tensor("float32", 7)}),
        "action": tfrecord.tensor("float32", 7)})}
    pictures = [b"\xff\xd8\xff\xe0" + rng.bytes(SHARD_PICTURE - 6) + b"\xff\xd9" for _ in range(SHARD_STEPS)]

    def episode():
        return tfrecord.example({
            "steps/observation/image": pictures,
            "steps/observation/state": rng.normal(size=(SHARD_STEPS, 7)).astype("f4"),
            "steps/action": rng.normal(size=(SHARD_STEPS, 7)).astype("f4")})

    folder.mkdir(parents=True)
    path = folder / "robot-train.tfrecord-00000-of-00001"
    with open(path, "wb") as out:
        for _ in range(EPISODES):
            out.write(tfrecord.records(episode()))
    info = {"name": "robot", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [{
        "name": "train", "shardLengths": [str(EPISODES)], "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"}]}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(tfrecord.dictionary(features)))


def columns(rows, folder):
    parquet = folder / "data/chunk-000/file-000.parquet"

    def own():
        with fresh(folder.parent) as mnt:
            def work():
                for number in range(EPISODES):
                    assert np.load(mnt / folder.name / f"episodes/{number}/observation.state.npy").shape == (STEPS, 14)

            return timed(work)[0]

    def other():
        def work():
            table = pq.read_table(parquet, columns=["observation.state"])
            flat = table["observation.state"].combine_chunks().values.to_numpy().reshape(-1, STEPS, 14)
            assert flat.shape[0] == EPISODES

        return timed(work)[0]

    def table():
        with fresh(folder.parent) as mnt:
            return timed(lambda: pq.read_table(mnt / folder.name / "steps.parquet", columns=["observation.state"]))[0]

    import shardfs

    def in_python():
        def work():
            opened = shardfs.open(str(folder))
            found = [opened.episodes[number]["observation.state"][...] for number in range(EPISODES)]
            assert found[-1].shape == (STEPS, 14)

        return timed(work)[0]

    rows.ratio("one column of 300 episodes, as 300 files, mount, closed", own, other, "≤ 1.1 × pyarrow", most=1.1)
    rows.ratio("the same, Python", in_python, other, "≤ 1.1 × pyarrow", most=1.1)
    rows.ratio("the same, out of steps.parquet, mount, closed", table, other, "≤ 1.1 × pyarrow", most=1.1)


def seek(container, stream, number):
    container.seek(int(number / FPS / stream.time_base), stream=stream)
    for frame in container.decode(stream):
        if frame.pts * stream.time_base >= number / FPS - 1e-4:
            return frame.to_ndarray(format="rgb24")
    raise AssertionError(number)


SIZE = (480, 640, 3)


@contextlib.contextmanager
def stack_of(mnt, folder):
    """Reads frames of the raw array. Not through the page cache: its pages have bytes of several frames, so the kernel asks
    for those beside a frame as well."""
    path = mnt / folder.name / f"episodes/0/images/{CAMERA}.npy"
    with open(path, "rb") as file:
        front = 10 + int.from_bytes(file.read(10)[8:], "little")
    file, size = os.open(path, os.O_RDONLY | os.O_DIRECT), math.prod(SIZE)

    def read(number):
        pixels = np.empty(SIZE, "u1")
        assert os.preadv(file, [pixels], front + number * size) == size
        return pixels

    try:
        yield read
    finally:
        os.close(file)


def frames(rows, folder):
    import shardfs

    video = folder / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    order = random.Random(1).sample(range(STEPS), 40)
    other = next(number for number in range(STEPS) if {number, number ^ 1}.isdisjoint(order))

    def each(read):
        # The decoder is there.
        read(other)
        return timed(lambda: [read(number) for number in order])[0] / len(order)

    def bare():
        with av.open(str(video)) as container:
            return each(lambda number: seek(container, container.streams.video[0], number))

    def own(*options):
        with fresh(folder.parent, *options) as mnt, stack_of(mnt, folder) as read:
            return each(read)

    def mapped():
        with fresh(folder.parent) as mnt:
            stack = np.load(mnt / folder.name / f"episodes/0/images/{CAMERA}.npy", mmap_mode="r")
            return each(lambda number: np.array(stack[number]))

    def pictures():
        with fresh(folder.parent) as mnt:
            camera = mnt / folder.name / f"episodes/0/images/{CAMERA}"
            return each(lambda number: (camera / f"{number:03}.png").read_bytes())

    def in_python():
        shardfs.set_cache_size(None)
        stack = shardfs.open(str(folder)).episodes[0].images[CAMERA]
        return each(lambda number: np.asarray(stack[number]))

    def on_one():
        with on_one_core():
            return in_python()

    def bare_on_one():
        with on_one_core():
            return bare()

    name = "a random frame of AV1, 640 x 480, groups of two"
    with fresh(folder.parent) as mnt, stack_of(mnt, folder) as read, av.open(str(video)) as container:
        for number in order[:5]:
            distance = np.abs(read(number).astype(int) - seek(container, container.streams.video[0], number))
            assert distance.mean() <= 2 and distance.max() <= 16, (number, distance.mean(), distance.max())
    rows.ratio(f"{name}: raw rows, mount", own, bare, "≤ 1.3 × PyAV", most=1.3)
    rows.ratio("the same, Python", in_python, bare, "≤ 1.3 × PyAV", most=1.3)
    rows.ratio("the same, Python, both on one core", on_one, bare_on_one, "≤ 1.3 × PyAV", most=1.3)
    rows.ratio("the same, PNG files, mount", pictures, bare, "≤ 1.3 × PyAV", most=1.3)
    rows.ratio("the same, raw rows through a map: pages hold the frames beside", mapped, bare, "≤ 1.3 × PyAV", most=1.3)
    with tempfile.TemporaryDirectory(prefix="shardfs-bench-") as spill:
        options = f"--spill={spill}", "--cache-size=64M"
        own(*options)
        rows.ratio("raw rows, mount, a second epoch with --spill, remounted", lambda: own(*options), bare, "≥ 10 × faster",
                   least=10)


def shards(rows, folder):
    took, first = [], []
    for _ in range(ROUNDS):
        with fresh(folder.parent) as mnt:
            took.append(timed(lambda: os.listdir(mnt / folder.name / "train/episodes"))[0])
            path = mnt / folder.name / "train/episodes/150/images/observation/image/000.jpg"
            begin = time.perf_counter()
            if not path.exists():
                found = sorted((mnt / folder.name / "train/episodes/150").rglob("*.jpg"))
                path = found[0]
                begin = time.perf_counter()
            assert path.stat().st_size > 100_000 and len(path.read_bytes()) == SHARD_PICTURE
            first.append(time.perf_counter() - begin)
    rows.value("TFRecord of 1 GB, 300 episodes: index", sorted(took)[ROUNDS // 2], "s", "≤ 20 ms", sorted(took)[ROUNDS // 2] <= 0.02)
    rows.value("the first frame after it", sorted(first)[ROUNDS // 2], "s", "≤ 5 ms", sorted(first)[ROUNDS // 2] <= 0.005)


def from_afar(rows, folder):
    """Requests, after the bucket was mounted, of `ls episodes` and then of one picture of a known name."""
    def of(name, files, listed, picture):
        with far([(f"{path}", where) for path, where in files]) as bucket, bucket.mounted() as mnt:
            bucket.requests()
            os.listdir(mnt / listed)
            first = bucket.requests()
            assert (mnt / picture).read_bytes()
            then = bucket.requests()
        rows.value(f"bucket with 20 ms, {name}: `ls` of the episodes", first, "requests", "≤ 4", first <= 4)
        rows.value("and one picture", then, "requests", "≤ 3", then <= 3)

    def files_of(folder):
        return [(path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file()]

    golden, fixtures = ROOT / "tests/golden/lerobot", ROOT / "fixtures"
    front = "images/observation.images.front/001.png"
    of("LeRobot v3.0 of some kB", files_of(golden / "v30_av1"), "episodes", f"episodes/1/{front}")
    of("LeRobot v3.0 of 10 MB", files_of(folder), "episodes", f"episodes/150/images/{CAMERA}/017.png")
    of("LeRobot v2.1", files_of(golden / "v21_av1"), "episodes", f"episodes/1/{front}")
    of("RLDS", files_of(fixtures / "pick_rlds"), "train/episodes", "train/episodes/1/images/observation/image/001.png")


WORKS = [(columns, robot), (frames, robot), (from_afar, robot), (shards, rlds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-datasets", type=Path)
    parser.add_argument("--only", default="", help="works whose name has this word")
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-datasets.md")
    arguments = parser.parse_args()
    rows = Rows()
    for work, write in WORKS:
        if arguments.only not in work.__name__:
            continue
        folder = arguments.dir / f"set-{write.__name__}"
        folder.mkdir(parents=True, exist_ok=True)
        path = once(folder / write.__name__, write)
        subprocess.run(["grep", "-rc", "no such words", path], stdout=subprocess.DEVNULL, check=False)
        work(rows, path)
    if arguments.record:
        rows.record("datasets", "Data sets of robot learning", "scripts/bench_datasets", f"best of {ROUNDS} rounds, both "
                    f"programs by turns; pyarrow {pa.__version__}, PyAV {av.__version__}, shardfs built with --release")


if __name__ == "__main__":
    main()
