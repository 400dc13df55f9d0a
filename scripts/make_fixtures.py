#!/usr/bin/env python3
"""Write the example containers in fixtures/.

    scripts/make_fixtures.py [OUTPUT_FOLDER]

Everything is computed from fixed seeds and written by small writers of our own
that follow the layouts byte by byte, so a second run gives the same files.
Needs numpy, zstandard, lz4, crc32c, xxhash and pillow.
"""

import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from support.examples import camera, episode, jpeg, tree_sequence, write_episode, write_stream  # noqa: E402
from support.writers import (bag, dumps, gguf, hdf5, idv, kast, kastore, kdb, mcap, netcdf, parquet, pt,  # noqa: E402
                             safetensors, tensor_v1, tfrecord, write_shard, zarr, zip)  # noqa: A004
from support.writers.hdf5 import Attributes, Chunked  # noqa: E402
from support.writers.kas import TYPES  # noqa: E402


def png(rgb):
    """A minimal PNG with stored deflate blocks, the same on every zlib."""
    h, w, _ = rgb.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rgb)
    stored = b"\x78\x01"
    for i in range(0, len(raw), 65535):
        piece = raw[i:i + 65535]
        stored += struct.pack("<BHH", i + 65535 >= len(raw), len(piece), len(piece) ^ 0xFFFF) + piece
    stored += struct.pack(">I", zlib.adler32(raw))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", stored) + chunk(b"IEND", b""))


def write_weights(path, seed):
    rng = np.random.default_rng(seed)
    ints = lambda *shape: rng.integers(-1000, 1000, shape)
    head = (ints(48, 10) / 1000).astype("<f4")
    bf16 = (head.view("<u4") >> 16).astype("<u2")
    blocks = [
        ("encoder/weight", tensor_v1((ints(64, 48) / 1000).astype("<f4")), 1),
        ("encoder/bias", tensor_v1((ints(48) / 1000).astype("<f4")), 1),
        ("embed/table", tensor_v1((ints(100, 16) // 8).astype("|i1")), 1),
        ("head/weight", tensor_v1(bf16, "bf16"), 1),
        ("head/scale", tensor_v1((ints(10) / 256).astype("<f2")), 1),
        ("head/steps", tensor_v1(np.array(120_000, "<i8")), 1),
        ("config", dumps({"layers": ["encoder", "head"], "activation": "gelu"}), 2),
        ("notes", "Trained on 24 hours of play data.\n".encode(), 5),
        ("preview", png(camera(1, 24, 32)[0]), 6),
        ("optimizer/state", bytes(rng.integers(0, 4, 700, dtype=np.uint8)), 10),
    ]
    write_shard(path, blocks, role=1, codec="zstd", alignment=64, header_flags=0x00A2, sort=False)


def all_types():
    out = {}
    for descr in TYPES:
        dtype = np.dtype(descr)
        if dtype.kind == "f":
            values = np.array([0, -0.0, 1.5, np.pi, -np.inf, np.inf, np.nan], dtype)
        else:
            info = np.iinfo(dtype)
            values = np.array([info.min, 0, 1, 2, 3, info.max], dtype)
        out[dtype.name] = values
    return out


def capsule(x, y, a, b, radius):
    """How much of each pixel a thick line with round ends covers, 0 to 1."""
    (ax, ay), (bx, by) = a, b
    dx, dy = bx - ax, by - ay
    along = np.clip(((x - ax) * dx + (y - ay) * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
    distance = np.hypot(x - ax - along * dx, y - ay - along * dy)
    return np.clip(radius - distance + 0.5, 0, 1)


def paint(picture, cover, colour):
    picture += cover[..., None] * (np.array(colour, float) - picture)


def bent(base, tip, upper, lower):
    """The elbow of an arm of two parts that reaches from `base` to `tip`."""
    dx, dy = tip[0] - base[0], tip[1] - base[1]
    reach = min(np.hypot(dx, dy), upper + lower - 1e-6)
    bend = np.arccos((upper**2 + reach**2 - lower**2) / (2 * upper * reach))
    angles = [np.arctan2(dy, dx) + way * bend for way in (-1, 1)]
    # Of the two ways to bend, the one with the elbow up.
    return min(((base[0] + upper * np.cos(a), base[1] + upper * np.sin(a)) for a in angles), key=lambda at: at[1])


def front_view(done, height=72, width=96):
    """A robot arm takes a cube from the left of a table into a bowl on its right; `done` runs from 0 to 1."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    picture = np.empty((height, width, 3))
    for channel, (top, bottom) in enumerate(((58, 214), (92, 226), (148, 236))):
        picture[..., channel] = top + (bottom - top) * y / height
    table = height - 14.0
    paint(picture, np.clip(y - table + 0.5, 0, 1), (150, 111, 74))
    paint(picture, np.clip(1.5 - abs(y - table - 1), 0, 1), (184, 142, 98))

    base, bowl, cube = (width / 2, table), (width - 16.0, table), (15.0, table - 5.0)
    # Down to the cube, up with it, over to the bowl, let go.
    stops = ((0, 15, 26), (0.25, 15, 46), (0.5, 34, 18), (0.8, width - 16, 26), (1, width - 16, 20))
    times = [stop[0] for stop in stops]
    tip = tuple(np.interp(done, times, [stop[i] for stop in stops]) for i in (1, 2))
    closed = 0.25 <= done < 0.85
    if closed:
        cube = (tip[0], tip[1] + 8)
    elif done >= 0.85:
        cube = (bowl[0], table - 4.0)
    elbow = bent(base, tip, 34, 34)
    paint(picture, np.clip(5.5 - np.maximum(abs(x - cube[0]), abs(y - cube[1])), 0, 1), (222, 64, 52))
    ring = np.hypot(x - bowl[0], y - (table - 8)) - 10
    paint(picture, np.clip(1.5 - abs(ring), 0, 1) * (y > table - 8), (38, 70, 83))
    paint(picture, np.clip(0.5 - ring, 0, 1) * (y > table - 6) * 0.6, (38, 70, 83))
    paint(picture, capsule(x, y, (base[0] - 7, table - 1), (base[0] + 7, table - 1), 3), (70, 74, 82))
    paint(picture, capsule(x, y, base, elbow, 4), (240, 240, 236))
    paint(picture, capsule(x, y, elbow, tip, 3), (240, 240, 236))
    for joint in (base, elbow):
        paint(picture, capsule(x, y, joint, joint, 3), (244, 162, 58))
    spread = 5.5 if closed else 8
    for side in (-1, 1):
        knuckle = (tip[0] + side * spread, tip[1] + 3)
        paint(picture, capsule(x, y, tip, knuckle, 1.3), (60, 64, 72))
        paint(picture, capsule(x, y, knuckle, (knuckle[0], knuckle[1] + 7), 1.3), (60, 64, 72))
    return (picture + 0.5).astype(np.uint8)


def wrist_view(done, size=48):
    """What the hand sees: the table, the cube between two fingers."""
    y, x = np.mgrid[0:size, 0:size].astype(float)
    picture = np.empty((size, size, 3))
    for channel, (near, far) in enumerate(((168, 120), (126, 88), (84, 60))):
        picture[..., channel] = far + (near - far) * y / size
    grip = float(np.interp(done, (0, 0.25, 0.85, 0.9), (0, 1, 1, 0)))
    edge = 6 + 5 * grip
    middle = (size / 2, size * (0.35 + 0.25 * grip))
    paint(picture, np.clip(edge + 0.5 - np.maximum(abs(x - middle[0]), abs(y - middle[1])), 0, 1), (222, 64, 52))
    for side in (-1, 1):
        at = size / 2 + side * (20 - 6 * grip)
        paint(picture, capsule(x, y, (at, size + 4.0), (at, size * 0.5), 3.5), (60, 64, 72))
    return (picture + 0.5).astype(np.uint8)


def kdb_demo():
    """Two cameras stored raw; the same as JPEG with a wrist picture in every other frame; no pictures."""
    rng = np.random.default_rng(6)
    episodes = []
    for number, (steps, task) in enumerate([(8, "put the cube into the bowl"), (6, "räume den Tisch ab"), (40, "wait")]):
        front, wrist = ([view(t / (steps - 1)) for t in range(steps)] for view in (front_view, wrist_view))
        frames = []
        for t in range(steps):
            size, hand = front[t].shape[1::-1], wrist[t].shape[1::-1]
            if number == 0:
                frames.append([kdb.Record("front", *size, 3, 0, front[t].tobytes()),
                               kdb.Record("wrist", *hand, 3, 0, wrist[t].tobytes())])
            elif number == 1:
                records = [kdb.Record("front", *size, 3, 1, jpeg(front[t]))]
                if t % 2 == 0:
                    records.append(kdb.Record("wrist", *hand, 1, 0, wrist[t][..., 0].tobytes()))
                frames.append(records)
            else:
                frames.append([])
        rows = (rng.normal(size=(steps, 7)), rng.normal(size=(steps, 4)), np.linspace(0, 1, steps, dtype="<f4"),
                [t == steps - 1 for t in range(steps)])
        episodes.append(kdb.Episode(
            frames, episode_id=number, embodiment="widowx", task=task, success=(2, 1, 0)[number],
            reward_flag=int(number != 2), total_reward=1.5, rows=rows))
    return kdb.pack(episodes, order=("meta", "rows", "images"))


def idv_table():
    """Numbers, text with a missing one, sparse vectors, a key with the names of its values; two blocks."""
    per_block, rng = 6, np.random.default_rng(7)
    rows = 10
    words = ["rot", "grün", "blau", None, "", "gelb", "a longer text", "日本", "\U0001F600", "x"]
    weights = [(20, {int(slot): float(slot) / 4 for slot in sorted(rng.choice(20, 3, replace=False))})
               for _ in range(rows)]
    spans = [list(range(n % 4)) for n in range(rows)]
    keys = [1 + n % 3 if n != 4 else 0 for n in range(rows)]
    names = idv.vectors([["setosa", "versicolor", "virginica"]], idv.texts)

    def column(name, codec, values, block, kind=1, metadata=()):
        return idv.Column(name, codec, [block(part) for part in idv.split(values, per_block)], per_block, kind, metadata)

    floats, longs = (lambda v: idv.numbers("f", v)), (lambda v: idv.numbers("q", v))
    return idv.file(rows, [
        column("id", "Int64", list(range(100, 100 + rows)), longs, 0),
        column("score", "Single", [n / 8 for n in range(rows)], floats),
        column("flag", "Boolean", [n % 3 == 0 for n in range(rows)], idv.booleans, 0),
        column("word", "TextSpan", words, idv.texts),
        column("weights", idv.vbuffer("Single", (4, 5)), weights, lambda v: idv.vectors(v, floats), 2),
        column("spans", idv.vbuffer("Int64"), spans, lambda v: idv.vectors(v, longs)),
        # Of two columns of one name the last is the visible one.
        column("label", "TextSpan", [str(key) for key in keys], idv.texts),
        column("label", idv.key2("UInt32", 3), keys, lambda v: idv.numbers("I", v), 1,
               [idv.entry("KeyValues", idv.vbuffer("TextSpan", (3,)), names, 1)]),
    ])


def model():
    """Two layers of a small network, as trainers name and store them."""
    rng = np.random.default_rng(8)
    ints = lambda *shape: (rng.integers(-1000, 1000, shape) / 1000).astype("<f4")
    bf16 = lambda values: (values.view("<u4") >> 16).astype("<u2")
    tensors, dtypes = {"model.embed_tokens.weight": bf16(ints(40, 16))}, {"model.embed_tokens.weight": "BF16"}
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.up_proj"
        tensors[f"{name}.weight"] = bf16(ints(32, 16))
        tensors[f"{name}.scale"] = ints(32)
        dtypes[f"{name}.weight"] = "BF16"
    tensors |= {"lm_head.weight": (ints(16, 40) * 64).astype("|i1").view("|u1"), "mask": np.arange(12) % 3 == 0,
                "step": np.array(120_000, "<i8")}
    return safetensors(tensors, {"format": "pt"}, dtypes | {"lm_head.weight": "F8_E4M3"})


def quantised_model():
    """One layer of a small language model, in blocks of 8 bits, with a vocabulary."""
    rng = np.random.default_rng(9)
    values = rng.integers(-127, 128, (32, 64, 32), dtype=np.int8)
    scale = np.full((32, 64, 1), 1 / 256, "<f2").view("u1").reshape(32, 64, 2)
    blocks = np.concatenate([scale, values.view("u1")], axis=2)
    words = ["<s>", "</s>", "räu", "men", "\n"]
    return gguf(
        {"general.architecture": "llama", "general.name": "tiny", "llama.context_length": 128, "llama.rope.freq_base": 1e4,
         "tokenizer.ggml.tokens": words, "tokenizer.ggml.scores": [0.0, 0.0, -1.0, -2.0, -3.0]},
        {"token_embd.weight": (0, (5, 64), (rng.integers(-99, 99, (5, 64)) / 100).astype("<f4").tobytes()),
         "blk.0.ffn_up.weight": (8, (32, 64), blocks.reshape(-1, 34)[:64].tobytes()),
         "blk.0.ffn_norm.weight": (0, (64,), np.ones(64, "<f4").tobytes())})


def training():
    """What a trainer saves: a model with tied weights, the state of its optimizer, and plain values."""
    rng = np.random.default_rng(10)
    ints = lambda *shape: (rng.integers(-1000, 1000, shape) / 1000).astype("<f4")
    embed = ints(12, 8)
    names = {"embed.weight": embed, "fc.weight": ints(4, 8), "fc.bias": ints(4), "head.weight": embed}
    names["fc.weight_t"] = pt.View(names["fc.weight"], (8, 4), (1, 8))
    state = {number: {"step": np.array(1200, "<f4"), "exp_avg": ints(*shape)} for number, shape in enumerate([(12, 8), (4, 8)])}
    return pt.checkpoint({
        "model": names, "optimizer": {"state": state, "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "params": [0, 1]}]},
        "epoch": 7, "loss": 0.125, "note": "best so far", "done": False})


def robot():
    """Two demonstrations as robomimic writes them: episodes of arrays and pictures below `data`."""
    def demo(number, steps):
        time = np.arange(steps, dtype="<f4")
        picture = np.zeros((steps, 24, 32, 3), "u1")
        picture[..., 0] = np.arange(32) * 8
        picture[..., 1] = np.arange(24)[:, None] * 10
        picture[..., 2] = (np.arange(steps) * 20 + 40 * number).astype("u1")[:, None, None]
        obs = {
            "agentview_image": Chunked(picture, (1, 24, 32, 3)),
            "robot0_joint_pos": np.stack([time / 10 + joint for joint in range(7)], 1).astype("<f4"),
        }
        members = {
            "actions": np.stack([np.sin(time / (joint + 1)) for joint in range(7)], 1).astype("<f8"),
            "dones": (np.arange(steps) == steps - 1).astype("<i8"),
            "rewards": (np.arange(steps) == steps - 1).astype("<f8"),
            "obs": obs,
        }
        return Attributes(num_samples=np.int64(steps)), members

    env = '{"env_name": "Lift", "type": 1}'
    data = Attributes(env_args=env, total=np.int64(12)), {"demo_0": demo(0, 5), "demo_1": demo(1, 7)}
    return hdf5({"data": data, "mask": {"train": np.array([b"demo_0"]), "valid": np.array([b"demo_1"])}})
def pick_and_place():
    """Two episodes of a LeRobot data set, as files by path. One camera is in the row files; the videos of the other are
    those of a golden data set."""
    def feature(dtype, *shape, names=None):
        return {"dtype": dtype, "shape": list(shape), "names": names}

    front, wrist = "observation.images.front", "observation.images.wrist"
    features = {
        "observation.state": feature("float32", 6), "action": feature("float32", 6),
        front: feature("video", 64, 64, 3, names=["height", "width", "channels"]),
        wrist: feature("image", 24, 32, 3, names=["height", "width", "channels"]),
        "next.done": feature("bool", 1), "timestamp": feature("float32", 1), "frame_index": feature("int64", 1),
        "episode_index": feature("int64", 1), "index": feature("int64", 1), "task_index": feature("int64", 1)}
    tasks, lengths, first = ["pick up the cube", "place it on the plate"], [6, 4], 0
    data, videos = "data/chunk-000/episode_{:06d}.parquet", f"videos/chunk-000/{front}/episode_{{:06d}}.mp4"
    files = {
        "meta/info.json": json.dumps({
            "codebase_version": "v2.1", "robot_type": "so101", "fps": 10, "total_episodes": 2, "total_frames": 10,
            "total_tasks": 2, "chunks_size": 1000, "splits": {"train": "0:2"},
            "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
            "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
            "features": features}, indent=4).encode(),
        "meta/tasks.jsonl": b"".join(json.dumps({"task_index": number, "task": task}).encode() + b"\n"
                                     for number, task in enumerate(tasks)),
        "meta/episodes.jsonl": b"".join(
            json.dumps({"episode_index": number, "tasks": [tasks[number]], "length": length}).encode() + b"\n"
            for number, length in enumerate(lengths))}
    for number, length in enumerate(lengths):
        steps = np.arange(length)
        angles = np.outer(steps, np.linspace(0.1, 0.6, 6)).astype("<f4")
        pictures = [png(picture) for picture in camera(length, 24, 32)]
        columns = [
            parquet.numbers("observation.state", angles), parquet.numbers("action", angles * np.float32(1.5)),
            parquet.pictures(wrist, pictures), parquet.numbers("next.done", steps == length - 1),
            parquet.numbers("timestamp", (steps / 10).astype("<f4")), parquet.numbers("frame_index", steps),
            parquet.numbers("episode_index", np.full(length, number)), parquet.numbers("index", steps + first),
            parquet.numbers("task_index", np.full(length, number))]
        files[data.format(number)] = parquet.table(columns, length)
        video = ROOT / "tests" / "golden" / "lerobot" / "v21_av1" / videos.format(number)
        files[videos.format(number)] = video.read_bytes()
        first += length
    return files


def write_files(folder, files):
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def weather():
    """Temperatures of two days on a small grid."""
    latitude, longitude = np.linspace(46, 49, 4, dtype="<f4"), np.linspace(6, 11, 6, dtype="<f4")
    hours = np.arange(0, 48, 6, dtype="<i4")
    wave = 10 * np.sin(hours[:, None, None] / 24 * 2 * np.pi) + latitude[:, None] - longitude
    stations = np.array([list(text.encode().ljust(8, b"\0")) for text in ("Zürich", "Ulm")], "u1").view("S1")
    return netcdf(
        {"time": None, "lat": 4, "lon": 6, "station": 2, "letters": 8},
        {"time": (["time"], hours, {"units": "hours since 2026-01-01"}), "lat": (["lat"], latitude, {"units": "degrees_north"}),
         "lon": (["lon"], longitude, {"units": "degrees_east"}),
         "temperature": (["time", "lat", "lon"], np.round(wave * 4).astype("<i2"),
                         {"units": "degC", "scale_factor": np.float32(0.25), "_FillValue": np.int16(-32768)}),
         "station": (["station", "letters"], stations, {})},
        {"title": "two days", "Conventions": "CF-1.8"})


def cells():
    """A microscope's picture of cells, a table of them, and in two halves what was measured in each."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[0:40, 0:60]
    image = np.zeros((3, 40, 60), "<u2")
    for _ in range(12):
        (cy, cx), level = rng.integers(4, 36, 2), rng.integers(200, 4000, 3)
        image += (level[:, None, None] * ((y - cy) ** 2 + (x - cx) ** 2 < 9)).astype("<u2")
    counts = rng.integers(0, 5, (12, 8)) * rng.integers(0, 2, (12, 8))
    types = np.array(["T cell", "B cell", "größer"], dtype=object)[rng.integers(0, 3, 12)]
    return zarr.store({
        "": zarr.group(title="cells", channels=["nuclei", "membrane", "label"]),
        "image": zarr.array(image, (1, 16, 32), names=["c", "y", "x"], unit="counts"),
        "counts": zarr.array(counts.astype("<f4"), (4, 4), shard=(8, 8), names=["cell", "gene"]),
        "table": zarr.group(),
        "table/area": zarr.array((rng.integers(10, 90, 12) / 2).astype("<f8"), (5,), unit="um2"),
        "table/type": zarr.array(types, (5,), fill=""),
    })


def labelled():
    """Pictures with their labels, as TensorFlow stores them."""
    return [tfrecord.example({
        "image/encoded": png(np.full((4, 6, 3), 40 * number, "u1")), "image/height": [4], "image/width": [6],
        "image/format": "png", "label": np.arange(number + 1), "score": np.float32([number / 4])}) for number in range(4)]


def write_robot(folder):
    """An RLDS data set: two splits, a camera, an instruction in each step."""
    features = {
        "steps": tfrecord.steps({
            "observation": tfrecord.dictionary({
                "state": tfrecord.tensor("float32", 7), "image": tfrecord.image(24, 32, "png")}),
            "action": tfrecord.tensor("float32", 4), "reward": tfrecord.tensor("float32"),
            "is_first": tfrecord.tensor("bool"), "is_last": tfrecord.tensor("bool"), "language_instruction": tfrecord.TEXT}),
        "episode_metadata": tfrecord.dictionary({"file_path": tfrecord.TEXT, "success": tfrecord.tensor("bool")})}
    rng = np.random.default_rng(11)

    def run(number, steps):
        pictures = [png(front_view(t / max(steps - 1, 1))[:24, :32]) for t in range(steps)]
        return tfrecord.example({
            "steps/observation/state": rng.integers(-99, 99, (steps, 7)).astype("f4") / 100,
            "steps/observation/image": pictures,
            "steps/action": rng.integers(-99, 99, (steps, 4)).astype("f4") / 100,
            "steps/reward": np.float32([t == steps - 1 for t in range(steps)]),
            "steps/is_first": np.array([t == 0 for t in range(steps)], int),
            "steps/is_last": np.array([t == steps - 1 for t in range(steps)], int),
            "steps/language_instruction": ["pick up the cube"] * steps,
            "episode_metadata/file_path": f"runs/{number}.h5", "episode_metadata/success": [number % 2]})

    splits = {"train": [[run(0, 6), run(1, 9)], [run(2, 5)]], "val": [[run(3, 4)]]}
    tfrecord.write_set(folder, "pick", "1.0.0", features, splits)


NOTES = """\
Example recordings and tables.

ep_001.wshard and ep_002_lz4.wshard are two short robot episodes, stream.wshard was
written while it was recorded, weights.shard holds a small model,
demo.kdb three runs of an arm with the pictures of its cameras,
tree_sequence.trees a genealogy, arrays.kas and table.kast plain arrays,
table.idv a data set as ML.NET saves it, arrays.npz arrays that numpy saved,
model.safetensors the weights of a small network,
model.gguf a layer of a language model in blocks of 8 bits,
checkpoint.pt what a trainer saves with PyTorch,
robot.h5 two demonstrations of a robot as robomimic writes them,
weather.nc two days of a small grid as weather models write it,
pick_and_place two episodes of an arm with two cameras, as LeRobot records them,
cells.zarr pictures and a table of cells in chunks, cells.zarr.zip the same in one file,
genealogy.tsz the genealogy as tszip packs it,
pick_rlds runs of an arm as a data set of TFDS,
pictures.tfrecord pictures with labels as TensorFlow stores them.
The files in damaged/ are broken on purpose.
"""


IMU = b"""Header header
Vector3 angular_velocity
float64[3] acceleration
================================================================================
MSG: std_msgs/Header
time stamp
string frame_id
================================================================================
MSG: demo_msgs/Vector3
float64 x
float64 y
float64 z
"""
RANGES = b"float32 angle_min\nfloat32[] ranges\n"
PICTURE = b"string format\nuint8[] data\n"
START = 1_700_000_000 * 10**9


def drive():
    """A recording of ROS 2: an IMU, distances, a camera, a state in JSON; one attachment."""
    def imu(t):
        stamp = struct.pack("<iII", 1_700_000_000, t * 10_000_000, 5) + b"base\0"
        numbers = np.array([np.sin(t / 8), np.cos(t / 8), t / 64, 0, 0, 9.81])
        return b"\0\1\0\0" + stamp + bytes(-len(stamp) % 8) + numbers.astype("<f8").tobytes()

    def ranges(t):
        values = (1 + np.arange(t % 7, dtype="<f4") / 4).astype("<f4")
        return b"\0\1\0\0" + struct.pack("<fI", -1.5, len(values)) + values.tobytes()

    def picture(t):
        data = jpeg(front_view(t / 11))
        return b"\0\1\0\0" + struct.pack("<I", 5) + b"jpeg\0" + bytes(3) + struct.pack("<I", len(data)) + data

    imu_ros2 = IMU.replace(b"Header header", b"std_msgs/Header header").replace(b"time stamp", b"builtin_interfaces/Time stamp")
    schemas = [("demo_msgs/msg/Imu", "ros2msg", imu_ros2), ("demo_msgs/msg/Ranges", "ros2msg", RANGES),
               ("sensor_msgs/msg/CompressedImage", "ros2msg", PICTURE)]
    channels = [("/imu", "cdr", 1), ("/lidar/ranges", "cdr", 2), ("/camera/image", "cdr", 3), ("/state", "json", 0)]
    messages = []
    for t in range(120):
        messages.append((0, START + t * 10**7, imu(t)))
        if t % 4 == 0:
            messages.append((1, START + t * 10**7, ranges(t // 4)))
        if t % 10 == 0:
            messages.append((2, START + t * 10**7 + 500, picture(t // 10)))
        if t % 40 == 0:
            messages.append((3, START + t * 10**7, dumps({"mode": ["idle", "drive"][t % 80 > 0], "battery": 1 - t / 1000})))
    return mcap(schemas, channels, messages, [("calibration.json", "application/json", b'{"fx": 210.5}\n')],
                [("robot", {"name": "demo", "serial": "7"})], chunk=8 << 10)


def drive_bag():
    """The IMU of `drive` as a bag of ROS 1."""
    def imu(t):
        stamp = struct.pack("<III", 1_700_000_000, t * 10_000_000, 4) + b"base"
        numbers = np.array([np.sin(t / 8), np.cos(t / 8), t / 64, 0, 0, 9.81])
        return stamp + numbers.astype("<f8").tobytes()

    connections = [("/imu", "demo_msgs/Imu", IMU), ("/note", "std_msgs/String", b"string data\n")]
    messages = [(0, START + t * 10**7, imu(t)) for t in range(60)]
    messages.insert(30, (1, START + 3, struct.pack("<I", 5) + b"start"))
    return bag(connections, messages, chunk=2 << 10)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fixtures"
    (out / "damaged").mkdir(parents=True, exist_ok=True)

    write_episode(out / "ep_001.wshard", 1, "zstd")
    write_episode(out / "ep_002_lz4.wshard", 2, "lz4")
    write_stream(out / "stream.wshard", 3)
    write_weights(out / "weights.shard", 4)

    trees = kastore(tree_sequence())
    (out / "tree_sequence.trees").write_bytes(trees)
    arrays = {f"types/{name}": a for name, a in all_types().items()}
    arrays |= {
        "grid/x": np.linspace(0, 1, 65), "grid/y": np.linspace(-1, 1, 65),
        "empty": np.empty(0, "<f8"), "größe": np.arange(12, dtype="<u2"),
    }
    (out / "arrays.kas").write_bytes(kastore(arrays))
    (out / "table.kast").write_bytes(kast({
        "time": np.arange(40) / 4, "count": np.arange(40, dtype="<u4") ** 2,
        "flags": (np.arange(40) % 2).astype("|u1"), "sensor/offset": np.array([-3, 0, 4], "<i2"),
    }))
    (out / "demo.kdb").write_bytes(kdb_demo())
    (out / "table.idv").write_bytes(idv_table())
    (out / "model.safetensors").write_bytes(model())
    names = ("f8", "f4", "i4", "u1", "?")
    saved = {f"layers/{number}/weight": np.linspace(-1, 1, 48, dtype="<f4").reshape(6, 8) * number for number in (1, 2)}
    saved |= {"types/" + np.dtype(name).name: np.arange(6).reshape(2, 3).astype(name) for name in names}
    arrays_npz = zip.npz(saved | {"step": np.int64(1200)}, deflated={"layers/2/weight", "types/uint8"})
    (out / "arrays.npz").write_bytes(arrays_npz)
    (out / "model.gguf").write_bytes(quantised_model())
    (out / "checkpoint.pt").write_bytes(training())
    (out / "weather.nc").write_bytes(weather())
    demonstrations = robot()
    (out / "robot.h5").write_bytes(demonstrations)
    files = pick_and_place()
    write_files(out / "pick_and_place", files)
    # A recording that ended early: its last row file has no footer.
    rows = "data/chunk-000/episode_000001.parquet"
    write_files(out / "damaged" / "cut_recording", files | {rows: files[rows][:500]})
    store = cells()
    write_files(out / "cells.zarr", store)
    (out / "cells.zarr.zip").write_bytes(zip.archive(store))
    (out / "genealogy.tsz").write_bytes(zip.archive(zarr.tszip(tree_sequence())))
    (out / "drive.mcap").write_bytes(drive())
    (out / "drive.bag").write_bytes(drive_bag())
    write_robot(out / "pick_rlds")
    pictures = tfrecord.records(*labelled())
    (out / "pictures.tfrecord").write_bytes(pictures)
    (out / "notes.txt").write_text(NOTES, encoding="utf-8")

    # One byte of one block flipped; everything else is sound.
    lanes = {k: v for k, v in episode(5).items() if not k.startswith("signal/cam0")}
    bad = out / "damaged" / "bad_crc.wshard"
    write_episode(bad, 5, "none", lanes, episode_id="bad_crc")
    data = bytearray(bad.read_bytes())
    payload = lanes["signal/joint_pos"][1].tobytes()
    data[data.index(payload) + 100] ^= 0x10
    bad.write_bytes(data)
    # One byte of one member flipped: the other members are sound.
    data = bytearray(arrays_npz)
    data[data.index(saved["layers/1/weight"].tobytes()) + 8] ^= 1
    (out / "damaged" / "wrong_crc.npz").write_bytes(data)
    # One byte of one chunk flipped: the others are sound.
    chunk = bytearray(store["image/c/1/0/0"])
    chunk[100] ^= 1
    (out / "damaged" / "wrong_crc.zarr.zip").write_bytes(zip.archive(store | {"image/c/1/0/0": bytes(chunk)}))
    # A copy that stopped early: no container, an ordinary file.
    (out / "damaged" / "cut_short.trees").write_bytes(trees[:len(trees) * 2 // 3])
    (out / "damaged" / "cut_short.safetensors").write_bytes(model()[:-1000])
    # One byte of one compressed picture flipped: the others are sound.
    data = bytearray(demonstrations)
    data[data.index(b"\x78\xda") + 20] ^= 0x10
    (out / "damaged" / "bad_chunk.h5").write_bytes(data)
    # Recording was interrupted.
    (out / "damaged" / "unfinished.mcap").write_bytes(drive()[:-2000])
    (out / "damaged" / "unfinished.bag").write_bytes(drive_bag()[:-2000])
    # One byte of the data of the second record flipped: the others are sound.
    data = bytearray(pictures)
    data[len(pictures) // 3] ^= 1
    (out / "damaged" / "wrong_crc.tfrecord").write_bytes(data)
    (out / "damaged" / "cut_short.gguf").write_bytes(quantised_model()[:-1000])

    total = 0
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        size = path.stat().st_size
        total += size
        print(f"{size:8}  {path.relative_to(out)}")
    print(f"{total:8}  in all")


if __name__ == "__main__":
    main()
