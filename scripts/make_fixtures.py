#!/usr/bin/env python3
"""Write the example containers in fixtures/.

    scripts/make_fixtures.py [OUTPUT_FOLDER]

Everything is computed from fixed seeds and written by small writers of our own
that follow the layouts byte by byte, so a second run gives the same files.
Needs numpy, zstandard, lz4, crc32c, xxhash and pillow.
"""

import io
import json
import struct
import sys
import zlib
from pathlib import Path

import crc32c
import lz4.block
import numpy as np
import xxhash
import zstandard
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))
import idv_writer as idv  # noqa: E402: the writer that the tests have too

STEPS = 24
HEIGHT, WIDTH = 48, 64


def round_up(n, to):
    return (n + to - 1) // to * to if to else n


def dumps(obj):
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=True).encode()


# ---------------------------------------------------------------------------
# WShard
# ---------------------------------------------------------------------------

CODEC_CODE = {"none": 0, "zstd": 1, "lz4": 2}
ENTRY_FLAGS = {"none": 0, "zstd": 0x0003, "lz4": 0x0005}


def compress(codec, data):
    if codec == "zstd":
        params = zstandard.ZstdCompressionParameters.from_level(
            19, write_content_size=True, write_checksum=False, threads=0
        )
        return zstandard.ZstdCompressor(compression_params=params).compress(data)
    if codec == "lz4":
        return lz4.block.compress(data, mode="high_compression", compression=9, store_size=False)
    return data


def shard_header(role, flags, alignment, codec, count, strings_at, data_at, total):
    return struct.pack(
        "<4sBBHBBHIQQQQ16x", b"SHRD", 2, role, flags, alignment, CODEC_CODE[codec], 48,
        count, strings_at, data_at, 0, total,
    )


def shard_entry(name, name_at, flags, data_at, disk, orig, crc, content_type=0):
    return struct.pack(
        "<QIHHQQQIHH", xxhash.xxh64_intdigest(name, seed=0), name_at, len(name), flags,
        data_at, disk, orig, crc, content_type, 0,
    )


def write_shard(path, blocks, *, role=5, codec="none", alignment=32, header_flags=0, sort=True):
    """`blocks`: list of (name, bytes) or (name, bytes, content type)."""
    blocks = [(b[0].encode(), b[1], b[2] if len(b) > 2 else 0) for b in blocks]
    if sort:
        blocks.sort(key=lambda b: b[0])
    strings = b"".join(name for name, _, _ in blocks)
    strings_at = 64 + 48 * len(blocks)
    data_at = round_up(strings_at + len(strings), alignment)
    index, body, name_at = b"", b"", 0
    for name, data, content_type in blocks:
        stored, flags = data, 0
        if codec != "none" and len(data) >= 64:
            packed = compress(codec, data)
            if len(packed) < len(data):
                stored, flags = packed, ENTRY_FLAGS[codec]
        index += shard_entry(name, name_at, flags, data_at + len(body), len(stored), len(data),
                             crc32c.crc32c(data), content_type)
        name_at += len(name)
        body += stored
        body += b"\0" * (round_up(len(body), alignment) - len(body))
    total = data_at + len(body)
    front = shard_header(role, header_flags, alignment, codec, len(blocks), strings_at, data_at, total)
    front += index + strings
    path.write_bytes(front + b"\0" * (data_at - len(front)) + body)


def channel(block, dtype, shape, **more):
    return {"id": block.split("/", 1)[1], "dtype": dtype, "shape": shape, "signal_block": block, **more}


def meta_blocks(episode_id, length, channels, hz=30, **wshard):
    return [
        ("meta/wshard", dumps({"format": "W-SHARD", "wshard_version": "0.1", "endianness": "little",
                               "alignment": 32, **wshard})),
        ("meta/episode", dumps({"episode_id": episode_id, "env_id": "PickAndPlace-v1", "length_T": length,
                                "timebase": {"type": "ticks", "dt_ns": 10**9 // hz},
                                "metadata": {"robot": "seven-joint arm", "operator": "Zoë"}})),
        ("meta/channels", dumps({"channels": channels})),
    ]


def camera(steps, height, width, phase=0.0):
    """A disc that wanders over a slowly turning colour gradient."""
    y, x = np.mgrid[0:height, 0:width]
    film = np.empty((steps, height, width, 3), np.uint8)
    for t in range(steps):
        a = t / steps
        film[t, ..., 0] = (x * 3 + t * 4) % 256
        film[t, ..., 1] = np.clip(40 + y * 3 + t * 2, 0, 255)
        film[t, ..., 2] = 160 - (x + y) // 2
        cx = width * (0.2 + 0.6 * a)
        cy = height * (0.5 + 0.25 * np.sin(2 * np.pi * a + phase))
        r2 = (x - cx) ** 2 + (y - cy) ** 2
        film[t][r2 < 81] = (250, 220, 60)
        film[t][r2 < 36] = (230, 90, 30)
    return film


def episode(seed, steps=STEPS, height=HEIGHT, width=WIDTH):
    rng = np.random.default_rng(seed)
    t = np.arange(steps, dtype=np.float64)[:, None]
    joints = np.sin(t / 7 + np.arange(7)) + rng.integers(-50, 50, (steps, 7)) / 5000
    ctrl = np.diff(joints[:, :4], axis=0, prepend=joints[:1, :4]) * 30
    reward = np.linspace(0, 1, steps) ** 2
    done = np.zeros(steps, np.uint8)
    done[-1] = 1
    words = ["move to the red block", "grasp it", "lift", "place it in the tray"]
    text = np.zeros((steps, 32), np.uint8)
    for i in range(steps):
        w = words[i * len(words) // steps].encode()
        text[i, :len(w)] = np.frombuffer(w, np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    depth = (800 + 6 * x + 4 * y + 10 * t[:, :, None]).astype("<u2")
    return {
        "signal/joint_pos": ("f32", joints.astype("<f4"), {"unit": "rad"}),
        "signal/cam0/rgb": ("u8", camera(steps, height, width, seed), {"modality": "rgb"}),
        "signal/cam0/depth": ("u16", depth, {"modality": "depth", "unit": "mm"}),
        "signal/cmd/language": ("u8", text, {"modality": "language"}),
        "signal/gripper_open": ("bool", (np.arange(steps) % 12 < 8).astype(np.uint8), {}),
        "action/ctrl": ("f32", ctrl.astype("<f4"), {}),
        "reward": (None, reward.astype("<f4"), {}),
        "done": (None, done, {}),
        "time/ticks": (None, np.arange(steps, dtype="<i4"), {}),
    }


def write_episode(path, seed, codec, lanes=None, episode_id=None):
    lanes = lanes or episode(seed)
    channels = [channel(name, dtype, list(a.shape[1:]), **more)
                for name, (dtype, a, more) in sorted(lanes.items()) if dtype]
    steps = len(lanes["reward"][1])
    blocks = meta_blocks(episode_id or f"ep_{seed:03d}", steps, channels)
    blocks += [(name, a.tobytes()) for name, (_, a, _) in lanes.items()]
    write_shard(path, blocks, codec=codec)


def write_stream(path, seed, steps=150, flush=64):
    """As the reference stream writers do it: all lanes are flushed every `flush`
    steps, the index records the place of the first piece and the sum of the
    lengths, and so the extents of the blocks overlap."""
    rng = np.random.default_rng(seed)
    t = np.arange(steps)
    lanes = [
        ("signal/imu", np.cumsum(rng.integers(-9, 10, (steps, 6)), axis=0).astype("<f4") / 8),
        ("signal/wheel", (np.stack([t * 3, t * 3 + t // 10], 1)).astype("<i4")),
        ("action/wheel", np.sin(t / 9)[:, None].repeat(2, 1).astype("<f4")),
        ("reward", (t % 10 / 10).astype("<f4")),
        ("done", (t == steps - 1).astype(np.uint8)),
        ("time/ticks", t.astype("<i4")),
    ]
    ids = ["imu", "wheel"]
    channels = [
        {"id": "imu", "dtype": "f32", "shape": [6], "signal_block": "signal/imu"},
        {"id": "wheel", "dtype": "i32", "shape": [2], "signal_block": "signal/wheel"},
    ]
    metas = [
        ("meta/wshard", dumps({"format": "W-SHARD", "wshard_version": "0.1", "endianness": "little",
                               "alignment": 32, "streaming": True})),
        ("meta/episode", dumps({"episode_id": "stream", "env_id": "Rover-v0", "length_T": steps,
                                "timebase": {"type": "ticks", "dt_ns": 10_000_000}})),
        ("meta/channels", dumps({"channels": channels})),
    ]
    # `action/imu` never got a row and is left out.
    base = round_up(64 + 48 * (7 + 2 * len(ids))
                    + sum(len("signal/" + i) + len("action/" + i) for i in ids) + 200, 32)
    body, first, size = b"", {}, {}
    for start in range(0, steps, flush):
        for name, a in lanes:
            piece = a[start:start + flush].tobytes()
            first.setdefault(name, base + len(body))
            size[name] = size.get(name, 0) + len(piece)
            body += piece
    for name, data in metas:
        body += b"\0" * (round_up(base + len(body), 32) - base - len(body))
        first[name], size[name] = base + len(body), len(data)
        body += data
    names = sorted(first)
    strings_at = 64 + 48 * len(names)
    strings = "".join(names).encode()
    data_at = round_up(strings_at + len(strings), 32)
    index, name_at = b"", 0
    for name in names:
        at = first[name] - base
        index += shard_entry(name.encode(), name_at, 0, first[name], size[name], size[name],
                             crc32c.crc32c(body[at:at + size[name]]))
        name_at += len(name)
    front = shard_header(5, 0, 32, "none", len(names), strings_at, data_at, base + len(body))
    front += index + strings
    assert data_at <= base
    path.write_bytes(front + b"\0" * (base - len(front)) + body)


TENSOR_DTYPE = {"<f4": 1, "<f2": 2, "bf16": 3, "|i1": 4, "<i2": 5, "<i4": 6, "<i8": 7, "|u1": 8,
                "<u2": 9, "<u4": 10, "<u8": 11, "<f8": 12}


def tensor_v1(a, dtype=None):
    code = TENSOR_DTYPE[dtype or a.dtype.str]
    return struct.pack(f"<BBH{a.ndim}Q", code, a.ndim, 0, *a.shape) + a.tobytes()


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


# ---------------------------------------------------------------------------
# kastore and KAST
# ---------------------------------------------------------------------------

KAS_TYPES = ["|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]


def kastore(items):
    items = sorted((k.encode(), np.ascontiguousarray(v)) for k, v in items.items())
    n = len(items)
    pos = 64 + 64 * n
    key_at = []
    for key, _ in items:
        key_at.append(pos)
        pos += len(key)
    array_at = []
    for _, a in items:
        pos = round_up(pos, 8)
        array_at.append(pos)
        pos += a.nbytes
    out = bytearray(pos)
    out[0:64] = struct.pack("<8sHHIQ40x", b"\x89KAS\r\n\x1a\n", 1, 0, n, pos)
    for j, (key, a) in enumerate(items):
        out[64 + 64 * j:128 + 64 * j] = struct.pack(
            "<B7xQQQQ24x", KAS_TYPES.index(a.dtype.str), key_at[j], len(key), array_at[j], a.size)
        out[key_at[j]:key_at[j] + len(key)] = key
        out[array_at[j]:array_at[j] + a.nbytes] = a.tobytes()
    return bytes(out)


def kast(items):
    items = sorted((k.encode(), np.ascontiguousarray(v)) for k, v in items.items())
    table = 40
    pos = table + 32 * len(items)
    key_at = []
    for key, _ in items:
        key_at.append(pos)
        pos += len(key) + 1
    data = round_up(pos, 8) if items else table
    pos = data
    array_at = []
    for _, a in items:
        pos = round_up(pos, 8)
        array_at.append(pos)
        pos += a.nbytes
    out = bytearray(pos)
    out[0:40] = struct.pack("<4sHHIIQQ8x", b"KAST", 1, 0, 0, len(items), table, data)
    for j, (key, a) in enumerate(items):
        out[table + 32 * j:table + 32 * (j + 1)] = struct.pack(
            "<IQIQQ", len(key), key_at[j], KAS_TYPES.index(a.dtype.str), a.size, array_at[j])
        out[key_at[j]:key_at[j] + len(key)] = key
        out[array_at[j]:array_at[j] + a.nbytes] = a.tobytes()
    return bytes(out)


def all_types():
    out = {}
    for descr in KAS_TYPES:
        dtype = np.dtype(descr)
        if dtype.kind == "f":
            values = np.array([0, -0.0, 1.5, np.pi, -np.inf, np.inf, np.nan], dtype)
        else:
            info = np.iinfo(dtype)
            values = np.array([info.min, 0, 1, 2, 3, info.max], dtype)
        out[dtype.name] = values
    return out


def text(value, dtype="|i1"):
    return np.frombuffer(value.encode(), dtype)


def ragged(name, rows, dtype="|u1"):
    """Two columns, `name` and `name_offset`."""
    if dtype == "|u1":
        rows = [np.frombuffer(r.encode() if isinstance(r, str) else r, "|u1") for r in rows]
    else:
        rows = [np.asarray(r, dtype) for r in rows]
    offsets = np.cumsum([0] + [len(r) for r in rows]).astype("<u4")
    values = np.concatenate(rows) if rows else np.empty(0, dtype)
    return {name: values.astype(dtype), name + "_offset": offsets}


def tree_sequence():
    """Eight sample genomes of four diploid individuals in two populations, one
    recombination at 400, twelve sites with one mutation each."""
    length, cut = 1000.0, 400.0
    times = [0.0] * 8 + [0.2, 0.5, 0.4, 0.9, 1.3, 1.8, 3.1, 2.4]
    edges = [  # left, right, parent, children
        (0, length, 8, (0, 1)), (0, length, 10, (4, 5)), (0, length, 9, (2, 3)),
        (0, length, 11, (6, 7)), (0, length, 12, (8, 9)), (0, cut, 13, (10, 11)),
        (cut, length, 15, (10, 12)),
        (cut, length, 14, (11,)), (0, cut, 14, (12, 13)), (cut, length, 14, (15,)),
    ]
    rows = [(l, r, p, c) for l, r, p, children in edges for c in children]
    rows.sort(key=lambda e: (times[e[2]], e[2], e[3], e[0]))
    left, right, parent, child = zip(*rows)
    ids = range(len(rows))
    insertion = sorted(ids, key=lambda e: (left[e], times[parent[e]], parent[e], child[e]))
    removal = sorted(ids, key=lambda e: (right[e], -times[parent[e]], -parent[e], -child[e]))

    rng = np.random.default_rng(77)
    positions = np.sort(rng.choice(1000, 12, replace=False)).astype("<f8")
    ancestral = [b"ACGT"[i:i + 1] for i in rng.integers(0, 4, 12)]
    derived = [b"ACGT"[(b"ACGT".index(a) + 1) % 4:][:1] for a in ancestral]
    mutation_nodes = rng.integers(0, 13, 12).astype("<i4")
    unknown_time = np.full(12, 0x7FF874736B697421, "<u8").view("<f8")

    json_object = json.dumps({"codec": "json", "type": "object"}, separators=(",", ":"), sort_keys=True)
    population_schema = json.dumps(
        {"additionalProperties": True, "codec": "json",
         "properties": {"description": {"type": ["string", "null"]}, "name": {"type": "string"}},
         "required": ["name", "description"], "type": "object"},
        separators=(",", ":"), sort_keys=True)
    records = [
        {"environment": {}, "parameters": {"command": "simulate", "samples": 8, "seed": 77},
         "schema_version": "1.0.0", "software": {"name": "example-simulator", "version": "0.1"}},
        {"environment": {}, "parameters": {"command": "add_mutations", "rate": 1e-3},
         "schema_version": "1.0.0", "software": {"name": "example-simulator", "version": "0.1"}},
    ]
    reference = "".join("ACGT"[i] for i in rng.integers(0, 4, 1000))

    f8 = lambda v: np.asarray(v, "<f8")
    i4 = lambda v: np.asarray(v, "<i4")
    empty_rows = lambda n: [""] * n
    items = {
        "format/name": text("tskit.trees"),
        "format/version": np.array([12, 7], "<u4"),
        "sequence_length": f8([length]),
        "uuid": text("5b0dbb1e-2a5b-4c39-9d47-6f3a1f7c1d20"),
        "time_units": text("generations"),
        "metadata_schema": text(json_object),
        "metadata": text('{"species":"example","sampled":"2026-01-01"}'),
        "nodes/time": f8(times),
        "nodes/flags": np.array([1] * 8 + [0] * 8, "<u4"),
        "nodes/population": i4([0] * 4 + [1] * 4 + [0, 0, 1, 1, 0, 1, 0, 1]),
        "nodes/individual": i4([0, 0, 1, 1, 2, 2, 3, 3] + [-1] * 8),
        **ragged("nodes/metadata", empty_rows(16)),
        "edges/left": f8(left), "edges/right": f8(right),
        "edges/parent": i4(parent), "edges/child": i4(child),
        **ragged("edges/metadata", empty_rows(len(rows))),
        "sites/position": positions,
        **ragged("sites/ancestral_state", ancestral),
        **ragged("sites/metadata", empty_rows(12)),
        "mutations/site": i4(range(12)), "mutations/node": mutation_nodes,
        "mutations/parent": i4([-1] * 12), "mutations/time": unknown_time,
        **ragged("mutations/derived_state", derived),
        **ragged("mutations/metadata", empty_rows(12)),
        "migrations/left": f8([]), "migrations/right": f8([]), "migrations/time": f8([]),
        "migrations/node": i4([]), "migrations/source": i4([]), "migrations/dest": i4([]),
        **ragged("migrations/metadata", []),
        "individuals/flags": np.zeros(4, "<u4"),
        **ragged("individuals/location", [[52.4, 13.1], [52.5, 13.4], [48.1, 11.6], []], "<f8"),
        **ragged("individuals/parents", [[], [], [-1, -1], []], "<i4"),
        **ragged("individuals/metadata", ['{"name":"i%d"}' % i for i in range(4)]),
        "individuals/metadata_schema": text(json_object, "|u1"),
        **ragged("populations/metadata", [
            '{"description":"lowland","name":"A"}', '{"description":"upland, \\u00fc","name":"B"}']),
        "populations/metadata_schema": text(population_schema, "|u1"),
        **ragged("provenances/timestamp", ["2026-01-02T03:04:05.678901", "2026-01-02T03:05:00.000001"]),
        **ragged("provenances/record", [json.dumps(records[0], indent=1), dumps(records[1])]),
        "indexes/edge_insertion_order": i4(insertion),
        "indexes/edge_removal_order": i4(removal),
        "reference_sequence/data": text(reference, "|u1"),
        "reference_sequence/url": text("https://example.org/reference.fa", "|u1"),
        "reference_sequence/metadata_schema": text("", "|u1"),
        "reference_sequence/metadata": text("", "|u1"),
    }
    for table in ("nodes", "edges", "sites", "mutations", "migrations"):
        items[table + "/metadata_schema"] = text("", "|u1")
    return items


# ---------------------------------------------------------------------------
# KDB
# ---------------------------------------------------------------------------

def kdb_picture(name, width, height, channels, data, encoded=0):
    """One image record; `encoded` is the format byte, None leaves it out (old files)."""
    name = name if isinstance(name, bytes) else name.encode()
    flag = b"" if encoded is None else bytes([encoded])
    return (struct.pack("<H", len(name)) + name + struct.pack("<IIB", width, height, channels)
            + flag + struct.pack("<I", len(data)) + data)


def kdb_frames(frames):
    """The image section: `frames` are lists of records."""
    return b"".join(struct.pack("<H", len(records)) + b"".join(records) for records in frames)


def kdb_meta(embodiment, task, fps, success=0, total_reward=None):
    texts = [t if isinstance(t, bytes) else t.encode() for t in (embodiment, task)]
    blob = b"".join(struct.pack("<H", len(t)) + t for t in texts)
    blob += struct.pack("<fBB", fps, success, total_reward is not None)
    return blob if total_reward is None else blob + struct.pack("<f", total_reward)


def kdb(episodes):
    """`episodes`: (metadata blob, state [n, s], action [n, a], reward [n], terminal [n], image section)."""
    body, index, total = bytearray(64), b"", 0
    for number, (meta, state, action, reward, terminal, images) in enumerate(episodes):
        state, action = np.asarray(state, "<f4"), np.asarray(action, "<f4")
        rows = b"".join(
            state[t].tobytes() + action[t].tobytes() + struct.pack("<fB", reward[t], terminal[t])
            for t in range(len(state)))
        meta_at = len(body)
        rows_at, images_at = meta_at + len(meta), meta_at + len(meta) + len(rows)
        body += meta + rows + images
        index += struct.pack(
            "<QIHHQQQQQQ", number, len(state), action.shape[1], state.shape[1], rows_at, len(rows),
            images_at, len(images), meta_at, len(meta))
        total += len(state)
    body[0:64] = struct.pack("<4sHHQQQQQ16x", b"KINO", 0, 1, len(episodes), total, len(body), len(index), 1776470400)
    return bytes(body + index)


def jpeg(rgb):
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "JPEG", quality=85, subsampling=0)
    return out.getvalue()


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
                frames.append([kdb_picture("front", *size, 3, front[t].tobytes()),
                               kdb_picture("wrist", *hand, 3, wrist[t].tobytes())])
            elif number == 1:
                records = [kdb_picture("front", *size, 3, jpeg(front[t]), 1)]
                if t % 2 == 0:
                    records.append(kdb_picture("wrist", *hand, 1, wrist[t][..., 0].tobytes()))
                frames.append(records)
            else:
                frames.append([])
        reward = np.linspace(0, 1, steps, dtype="<f4")
        episodes.append((
            kdb_meta("widowx", task, 10.0, success=(2, 1, 0)[number], total_reward=None if number == 2 else 1.5),
            rng.normal(size=(steps, 7)), rng.normal(size=(steps, 4)), reward,
            [t == steps - 1 for t in range(steps)], kdb_frames(frames)))
    return kdb(episodes)


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


NOTES = """\
Example recordings and tables.

ep_001.wshard and ep_002_lz4.wshard are two short robot episodes, stream.wshard was
written while it was recorded, weights.shard holds a small model,
demo.kdb three runs of an arm with the pictures of its cameras,
tree_sequence.trees a genealogy, arrays.kas and table.kast plain arrays,
table.idv a data set as ML.NET saves it.
The files in damaged/ are broken on purpose.
"""


def main():
    root = Path(__file__).resolve().parent.parent
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "fixtures"
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
    (out / "notes.txt").write_text(NOTES, encoding="utf-8")

    # One byte of one block flipped; everything else is sound.
    lanes = {k: v for k, v in episode(5).items() if not k.startswith("signal/cam0")}
    bad = out / "damaged" / "bad_crc.wshard"
    write_episode(bad, 5, "none", lanes, episode_id="bad_crc")
    data = bytearray(bad.read_bytes())
    payload = lanes["signal/joint_pos"][1].tobytes()
    data[data.index(payload) + 100] ^= 0x10
    bad.write_bytes(data)
    # A copy that stopped early: no container, an ordinary file.
    (out / "damaged" / "cut_short.trees").write_bytes(trees[:len(trees) * 2 // 3])

    total = 0
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        size = path.stat().st_size
        total += size
        print(f"{size:8}  {path.relative_to(out)}")
    print(f"{total:8}  in all")


if __name__ == "__main__":
    main()
