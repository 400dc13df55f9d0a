"""Model files (docs/formats/safetensors.md, docs/formats/gguf.md)."""

import json
import struct

import numpy as np

DTYPES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16", "<u4": "U32", "<i4": "I32", "<u8": "U64",
          "<i8": "I64", "<f2": "F16", "<f4": "F32", "<f8": "F64", "<c8": "C64"}


def safetensors(tensors, metadata=None, dtypes=()):
    """`tensors`: name to array. `dtypes`: the type of those whose array shows the bits."""
    header = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        dtype = dict(dtypes).get(name) or DTYPES[array.dtype.str]
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def gguf(pairs, tensors):
    """`pairs`: key to a number, a text or a list of these. `tensors`: name to (type, shape, bytes)."""
    def text(value):
        value = value.encode() if isinstance(value, str) else value
        return struct.pack("<Q", len(value)) + value

    def typed(value):
        if isinstance(value, str):
            return 8, text(value)
        return (4, struct.pack("<I", value)) if isinstance(value, int) else (6, struct.pack("<f", value))

    out = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    for key, value in pairs.items():
        if isinstance(value, list):
            items = [typed(item) for item in value]
            out += text(key) + struct.pack("<IIQ", 9, items[0][0], len(items)) + b"".join(item for _, item in items)
        else:
            code, stored = typed(value)
            out += text(key) + struct.pack("<I", code) + stored
    data = b""
    for name, (code, shape, stored) in tensors.items():
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), code, len(data))
        data += stored + bytes(-len(stored) % 32)
    return out + bytes(-len(out) % 32) + data
