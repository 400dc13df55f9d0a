"""Measures recordings beside mcap's Python reader.

    scripts/bench_recordings [--dir DIR] [--record] [--only WORD] [--pictures N]

Makes what it reads in DIR (2.5 GB), and gives the best of five rounds, both programs by turns. Needs /dev/fuse,
target/release/shardfs (or SHARDFS_BIN), mcap, mcap-ros2-support, rosbags, duckdb, numpy and the package shardfs. Run it on a
machine that does nothing else.
"""

import argparse
import functools
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import duckdb
import lz4.frame
import mcap
import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer
from rosbags.typesys import Stores, get_typestore

import shardfs

from .beside import ROUNDS, Rows, far, fresh, once, peak_memory, seconds, timed

MIB = 1 << 20
IMUS, PICTURES, LARGE, LARGE_PICTURE = 50_000, 500, 10_000, 200_000
MANY, MANY_TOPICS, MANY_IN_CHUNK = 10_000_000, 20, 20_000
BEGIN = 1_700_000_000_000_000_000


def written(path, imus, pictures, size):
    """Messages of an IMU and pictures of random bytes, by turns."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    rng = np.random.default_rng(1)
    with open(path, "wb") as out:
        writer = Writer(out)
        state, image = (writer.register_msgdef(name, store.generate_msgdef(name, ros_version=2)[0])
                        for name in ("sensor_msgs/msg/Imu", "sensor_msgs/msg/CompressedImage"))
        every = max(1, imus // pictures)
        for number in range(max(imus, pictures * every)):
            at = BEGIN + number * 1_000_000
            header = {"stamp": {"sec": at // 10**9, "nanosec": at % 10**9}, "frame_id": "base"}
            if number < imus:
                writer.write_message("/imu", state, {
                    "header": header, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
                    "angular_velocity": {"x": number * 0.5, "y": 1.0, "z": 2.0},
                    "linear_acceleration": {"x": 0.0, "y": 0.0, "z": 9.81}, "orientation_covariance": [0.0] * 9,
                    "angular_velocity_covariance": [0.0] * 9, "linear_acceleration_covariance": [0.0] * 9}, at, at, number)
            if number % every == 0 and number // every < pictures:
                data = b"\xff\xd8\xff\xe0" + rng.bytes(size - 6) + b"\xff\xd9"
                writer.write_message("/camera", image, {"header": header, "format": "jpeg", "data": data}, at, at, number)
        writer.finish()


def robot(path):
    written(path, IMUS, PICTURES, 20_000)


def cameras(path, pictures=LARGE):
    written(path, 0, pictures, LARGE_PICTURE)


def many(path):
    """10^7 messages of a number, of 20 topics by turns, in lz4 chunks."""
    def record(op, content):
        return struct.pack("<BQ", op, len(content)) + content

    def text(content):
        return struct.pack("<I", len(content)) + content

    message = np.dtype([("op", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("log_time", "<u8"),
                        ("publish_time", "<u8"), ("head", "<u4"), ("data", "<f8")])
    schema = record(3, struct.pack("<H", 1) + text(b"std_msgs/msg/Float64") + text(b"ros2msg") + text(b"float64 data"))
    channels = b"".join(record(4, struct.pack("<HH", n + 1, 1) + text(b"/numbers/%02d" % n) + text(b"cdr") + text(b""))
                        for n in range(MANY_TOPICS))
    infos = []
    with open(path, "wb") as out:
        out.write(b"\x89MCAP0\r\n" + record(1, text(b"") + text(b"bench")))
        for first in range(0, MANY, MANY_IN_CHUNK):
            number = np.arange(first, first + MANY_IN_CHUNK)
            messages = np.zeros(MANY_IN_CHUNK, message)
            messages["op"], messages["length"], messages["head"] = 5, message.itemsize - 9, 0x100
            messages["channel"], messages["sequence"] = number % MANY_TOPICS + 1, number // MANY_TOPICS
            messages["log_time"] = messages["publish_time"] = BEGIN + number * 100_000
            messages["data"] = number * 0.5
            records = messages.tobytes()
            stored = lz4.frame.compress(records)
            times = struct.pack("<QQ", *map(int, messages["log_time"][[0, -1]]))
            at = out.tell()
            out.write(record(6, times + struct.pack("<QI", len(records), zlib.crc32(records)) + text(b"lz4")
                             + struct.pack("<Q", len(stored)) + stored))
            end, indexes = out.tell(), b""
            for channel in range(1, MANY_TOPICS + 1):
                indexes += struct.pack("<HQ", channel, out.tell())
                rows = np.flatnonzero(messages["channel"] == channel)
                entries = np.stack([messages["log_time"][rows], rows.astype("<u8") * message.itemsize], axis=1)
                out.write(record(7, struct.pack("<H", channel) + text(entries.astype("<u8").tobytes())))
            infos.append(record(8, times + struct.pack("<QQ", at, end - at) + text(indexes)
                                + struct.pack("<Q", out.tell() - end) + text(b"lz4")
                                + struct.pack("<QQ", len(stored), len(records))))
        out.write(record(15, bytes(4)))
        summary = out.tell()
        counts = b"".join(struct.pack("<HQ", n + 1, MANY // MANY_TOPICS) for n in range(MANY_TOPICS))
        statistics = struct.pack("<QHIIIIQQ", MANY, 1, MANY_TOPICS, 0, 0, len(infos), BEGIN, BEGIN + (MANY - 1) * 100_000)
        out.write(schema + channels + b"".join(infos) + record(11, statistics + text(counts)))
        out.write(record(2, struct.pack("<QQI", summary, 0, 0)) + b"\x89MCAP0\r\n")


def looks(rows, path):
    with fresh(path.parent) as mnt:
        (mnt / path.name / "container.json").stat()
        took = sorted(timed(lambda: shardfs.open(str(path)).info)[0] for _ in range(ROUNDS))
        rows.note("summary of 50,500 messages, Python", seconds(took[0]))
        took = sorted(timed(lambda: (mnt / path.name / "container.json").read_bytes())[0] for _ in range(ROUNDS))
        rows.value("summary, after opening, mount", took[ROUNDS // 2], "s", "≤ 1 ms", took[ROUNDS // 2] <= 0.001)
    rates = []
    for _ in range(ROUNDS):
        with fresh(path.parent) as mnt:
            took = timed(lambda: [np.load(mnt / path.name / f"topics/{topic}/time.npy") for topic in ("imu", "camera")])
            rates.append(sum(map(len, took[1])) / took[0] / 1e6)
    rate = sorted(rates)[ROUNDS // 2]
    rows.value("times of all, closed, mount", rate, "M messages/s", "≥ 1", rate >= 1)


def messages(rows, path):
    def other(**query):
        with open(path, "rb") as file:
            return timed(lambda: sum(len(message.data) for *_, message in make_reader(file).iter_messages(**query)))[0]

    def own():
        with fresh(path.parent) as mnt:
            def work():
                return sum(len((mnt / path.name / f".raw/topics/camera/{n:03}.bin").read_bytes()) for n in range(PICTURES))

            return timed(work)[0]

    def as_arrays():
        with fresh(path.parent) as mnt:
            def work():
                camera = mnt / path.name / "topics/camera"
                offsets, values = np.load(camera / "data.offsets.npy"), np.load(camera / "data.values.npy")
                assert len(offsets) == PICTURES + 1 and offsets[-1] == len(values)

            return timed(work)[0]

    def in_python():
        camera = shardfs.open(str(path)).topics["/camera"]
        return timed(lambda: sum(len(image.bytes) for image in camera.images))[0]

    rows.ratio("a topic of 500 messages of 20 KB as arrays, mount, closed", as_arrays, lambda: other(topics=["/camera"]),
               "≤ 0.1 ×", most=0.1)
    rows.ratio("the same, a file each", own, lambda: other(topics=["/camera"]), "≤ 0.1 ×", most=0.1)
    rows.ratio("the same pictures, Python", in_python, lambda: other(topics=["/camera"]), "≤ 0.1 ×", most=0.1)
    begin = BEGIN + 20_000 * 1_000_000
    end = begin + 100 * 1_000_000

    def by_time():
        with fresh(path.parent) as mnt:
            def work():
                topic = mnt / path.name / "topics/imu"
                times = np.load(topic / "time.npy", mmap_mode="r")
                first, last = np.searchsorted(times, [begin, end])
                raw = mnt / path.name / ".raw/topics/imu"
                found = [(raw / f"{n:05}.bin").read_bytes() for n in range(first, last)]
                assert len(found) == 100

            return timed(work)[0]

    def field_by_time():
        with fresh(path.parent) as mnt:
            def work():
                topic = mnt / path.name / "topics/imu"
                first, last = np.searchsorted(np.load(topic / "time.npy", mmap_mode="r"), [begin, end])
                found = np.load(topic / "angular_velocity.x.npy", mmap_mode="r")[first:last]
                assert len(found) == 100 and found[0] == 10_000

            return timed(work)[0]

    def by_time_in_python():
        def work():
            topic = shardfs.open(str(path)).topics["/imu"]
            first, last = np.searchsorted(topic.time, [begin, end])
            found = topic["angular_velocity.x"][first:last]
            assert len(found) == 100 and found[0] == 10_000

        return timed(work)[0]

    rows.ratio("a field of 100 messages by time, Python", by_time_in_python,
               lambda: other(topics=["/imu"], starting_at=begin, ending_before=end), "≤ 0.2 ×", most=0.2)
    rows.ratio("the same, mount, closed", field_by_time,
               lambda: other(topics=["/imu"], starting_at=begin, ending_before=end), "≤ 0.2 ×", most=0.2)
    rows.ratio("100 messages by time, a file each, mount, closed", by_time,
               lambda: other(topics=["/imu"], starting_at=begin, ending_before=end), "≤ 0.2 ×", most=0.2)


def tables(rows, path):
    expected = sum(n * 0.5 for n in range(IMUS))

    def own():
        with fresh(path.parent) as mnt:
            def work():
                table = mnt / path.name / "topics/imu/messages.parquet"
                found = duckdb.sql(f'select count(*), sum("angular_velocity.x") from "{table}"').fetchall()[0]
                assert found == (IMUS, expected), found

            return timed(work)[0]

    def other():
        def work():
            with open(path, "rb") as file:
                reader = make_reader(file, decoder_factories=[DecoderFactory()])
                decoded = [m.angular_velocity.x for *_, m in reader.iter_decoded_messages(topics=["/imu"])]
            assert (len(decoded), sum(decoded)) == (IMUS, expected)

        return timed(work)[0]

    rows.ratio("a topic to Parquet, counted and summed by duckdb, mount, closed", own, other, "≥ 10 × faster", least=10, rounds=3)


WORKER = """
import random, sys
path, seed, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chosen = random.Random(seed).sample(range(count), 100)
width = len(str(count - 1))
if sys.argv[1] == "mcap":
    from mcap.reader import make_reader
    reader = make_reader(open(path, "rb"))
    def take(number):
        at = 1_700_000_000_000_000_000 + number * 1_000_000
        return next(iter(reader.iter_messages(topics=["/camera"], starting_at=at, ending_before=at + 1)))[2].data
else:
    def take(number):
        with open(f"{path}/{number:0{width}}.jpg", "rb", buffering=0) as file:
            return file.read()
print("ready", flush=True)
sys.stdin.readline()
print(sum(len(take(number)) for number in chosen))
"""


def pictures(rows, path, count=LARGE):
    def rate(kind, source):
        running = [subprocess.Popen([sys.executable, "-c", WORKER, kind, str(source), str(seed), str(count)],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for seed in range(4)]
        for worker in running:
            worker.stdout.readline()
        begin = time.perf_counter()
        for worker in running:
            worker.stdin.write("\n")
            worker.stdin.flush()
        sums = [int(worker.communicate()[0]) for worker in running]
        assert min(sums) >= 100 * LARGE_PICTURE
        return (time.perf_counter() - begin) / 400

    def own(is_again):
        with fresh(path.parent) as mnt:
            images = mnt / path.name / "topics/camera/images"
            if is_again:
                rate("mount", images)
            return rate("mount", images)

    size = f"{count * LARGE_PICTURE / 1e9:.3g} GB"
    rows.ratio(f"a random picture of a {size} recording, 4 processes, nothing decoded", lambda: own(False),
               lambda: rate("mcap", path), "≥ 10 × faster", least=10, rounds=3)
    rows.ratio("the same pictures again", lambda: own(True), lambda: rate("mcap", path), "≥ 10 × faster", least=10, rounds=3)


def ten_million(rows, path):
    topic = "topics/numbers/07"
    with fresh(path.parent) as mnt:
        took = timed(lambda: (mnt / path.name / "container.json").read_bytes())[0]
        rows.note("10^7 messages in 500 chunks: opening, mount", seconds(took))
        took = timed(lambda: subprocess.run(["ls", "-l", mnt / path.name / topic], stdout=subprocess.DEVNULL, check=True))[0]
        rows.value("first `ls -l` of a topic", took, "s", "≤ 0.2 s", took <= 0.2)
        took, count = timed(lambda: sum(len(np.load(mnt / path.name / f"topics/numbers/{number:02}/time.npy"))
                                        for number in range(MANY_TOPICS)))
        assert count == MANY
        rows.value("times of all", MANY / took / 1e6, "M messages/s", "≥ 1", MANY / took >= 1e6)
        rows.note("memory of the mount's process after these", f"{peak_memory(mnt)} MiB")
        took, size = timed(lambda: (mnt / path.name / topic / "messages.jsonl").stat().st_size)
        rows.note(f"size of messages.jsonl of a topic of {MANY // MANY_TOPICS:,} messages ({size / 1e6:.0f} MB)", seconds(took))
        took, lines = timed(lambda: (mnt / path.name / topic / "messages.jsonl").read_bytes().count(b"\n"))
        assert lines == MANY // MANY_TOPICS
        rows.note("reading it", f"{seconds(took)}, {lines / took / 1e6:.2f} M messages/s")
        rows.note("memory of the mount's process after it", f"{peak_memory(mnt)} MiB")


def from_afar(rows, path):
    with far([("drive/robot.mcap", path)]) as bucket, bucket.mounted() as mnt:
        bucket.requests()
        (mnt / "drive/robot.mcap/container.json").read_bytes()
        first = bucket.requests()
        rows.value("bucket with 20 ms: what `info` reads", first, "requests", "≤ 3", first <= 3)
        (mnt / "drive/robot.mcap/topics/camera/images/000.jpg").read_bytes()
        then = bucket.requests()
        rows.value("and the first picture", then, "requests", "≤ 2", then <= 2)


WORKS = [(looks, robot), (messages, robot), (tables, robot), (pictures, cameras), (ten_million, many), (from_afar, robot)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-recordings", type=Path)
    parser.add_argument("--only", default="", help="works whose name has this word")
    parser.add_argument("--pictures", default=LARGE, type=int, help="pictures of 200 KB in the large recording")
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-recordings.md")
    arguments = parser.parse_args()
    rows = Rows()
    for work, write in WORKS:
        if arguments.only not in work.__name__:
            continue
        folder = arguments.dir / write.__name__
        folder.mkdir(parents=True, exist_ok=True)
        name = write.__name__
        if write is cameras:
            name += str(arguments.pictures)
            write, work = (functools.partial(part, **{key: arguments.pictures})
                           for part, key in ((write, "pictures"), (work, "count")))
        path = once(folder / f"{name}.mcap", write)
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        work(rows, path)
    if arguments.record:
        rows.record("recordings", "Recordings", "scripts/bench_recordings", f"best of {ROUNDS} rounds, both programs by "
                    f"turns; mcap {mcap.__version__}, duckdb {duckdb.__version__}, shardfs built with --release")


if __name__ == "__main__":
    main()
