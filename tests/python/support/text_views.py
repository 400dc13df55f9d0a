"""What a tree sequence file shows as text beside its arrays: an independent copy
of the rules, for comparing. `items` maps a key to (dtype, bytes)."""

import json

import numpy as np

PLAIN = ["format/name", "uuid", "time_units", "reference_sequence/data", "reference_sequence/url"]


def _codec(items, key):
    try:
        return json.loads(items[key][1])["codec"]
    except (KeyError, ValueError, TypeError):
        return None


def _rows(items, key):
    """The rows of a ragged column, or None where the offsets are not sound."""
    if key not in items or key + "_offset" not in items:
        return None
    data = items[key][1]
    dtype, raw = items[key + "_offset"]
    offsets = np.frombuffer(raw, dtype).astype("u8").tolist()
    if not offsets or offsets[0] != 0 or offsets[-1] != len(data):
        return None
    if any(a > b for a, b in zip(offsets, offsets[1:])):
        return None
    rows = [data[a:b] for a, b in zip(offsets, offsets[1:])]
    return [r.replace(b"\n", b" ").replace(b"\r", b" ") for r in rows]


def views(items):
    out = {}
    if items.get("format/name", (None, b""))[1] != b"tskit.trees":
        return out
    for key in PLAIN:
        if key in items:
            out[key + ".txt"] = items[key][1]
    for key, (_, data) in items.items():
        if (key == "metadata_schema" or key.endswith("/metadata_schema")) and key.count("/") <= 1 and data:
            out[key + ".json"] = data
    if _codec(items, "metadata_schema") == "json" and items.get("metadata", (None, b""))[1]:
        out["metadata.json"] = items["metadata"][1]
    rows = _rows(items, "provenances/record")
    if rows is not None:
        out["provenances/record.jsonl"] = b"".join((r or b"{}") + b"\n" for r in rows)
    rows = _rows(items, "provenances/timestamp")
    if rows is not None:
        out["provenances/timestamp.txt"] = b"".join(r + b"\n" for r in rows)
    rows = _rows(items, "populations/metadata")
    if rows is not None and _codec(items, "populations/metadata_schema") == "json":
        out["populations/metadata.jsonl"] = b"".join((r or b"{}") + b"\n" for r in rows)
    return out
