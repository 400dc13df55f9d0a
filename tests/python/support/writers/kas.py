"""kastore stores and the KAST draft (docs/formats/kastore.md, docs/formats/kast.md)."""

import struct

import numpy as np

from .shard import round_up

TYPES = ["|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]


def kastore(items):
    """`items`: key to one-dimensional array."""
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
            "<B7xQQQQ24x", TYPES.index(a.dtype.str), key_at[j], len(key), array_at[j], a.size)
        out[key_at[j]:key_at[j] + len(key)] = key
        out[array_at[j]:array_at[j] + a.nbytes] = a.tobytes()
    return bytes(out)


def kast(items):
    """As `kastore`."""
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
            "<IQIQQ", len(key), key_at[j], TYPES.index(a.dtype.str), a.size, array_at[j])
        out[key_at[j]:key_at[j] + len(key)] = key
        out[array_at[j]:array_at[j] + a.nbytes] = a.tobytes()
    return bytes(out)


def text(value, dtype="|i1"):
    """A string as the array that tskit stores for it."""
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
