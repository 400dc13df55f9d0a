"""Containers that look like real recordings: the content of `fixtures/`, which tests vary."""

import io
import json

import crc32c
import numpy as np
from PIL import Image

from .writers import (channel, dumps, meta_blocks, ragged, round_up, shard_entry, shard_header, text, write_shard)

STEPS = 24
HEIGHT, WIDTH = 48, 64


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


def jpeg(rgb):
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "JPEG", quality=85, subsampling=0)
    return out.getvalue()
