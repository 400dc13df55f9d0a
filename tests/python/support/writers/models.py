"""Model files (docs/formats/safetensors.md)."""

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
