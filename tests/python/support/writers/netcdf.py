"""NetCDF classic files (docs/formats/netcdf.md)."""

import struct

import numpy as np

CODES = {"i1": 1, "S1": 2, "i2": 3, "i4": 4, "f4": 5, "f8": 6}


def padded(data):
    return data + b"\0" * (-len(data) % 4)


def name(text):
    return struct.pack(">I", len(text.encode())) + padded(text.encode())


def listed(tag, entries):
    return struct.pack(">II", tag if entries else 0, len(entries)) + b"".join(entries)


def attributes(values):
    def entry(key, value):
        array = np.frombuffer(value.encode(), "S1") if isinstance(value, str) else np.atleast_1d(value)
        code = CODES[array.dtype.str[1:]]
        data = padded(array.astype(array.dtype.newbyteorder(">")).tobytes())
        return name(key) + struct.pack(">II", code, array.size) + data
    return listed(0x0C, [entry(*pair) for pair in values.items()])


def netcdf(dimensions, variables, notes=None):
    """A CDF-1 file. `dimensions`: name to length, None for the record dimension; `variables`: name to (names of dimensions,
    array, attributes); `notes`: attributes of the file. There are several record variables, or none."""
    records = {key: entry for key, entry in variables.items() if entry[0] and dimensions[entry[0][0]] is None}
    assert len(records) != 1
    count = max([len(array) for _, array, _ in records.values()], default=0)
    sizes = {key: len(padded((array[0] if key in records else array).tobytes())) for key, (_, array, _) in variables.items()}

    def header(places):
        order = list(dimensions)
        dims = [name(key) + struct.pack(">I", length or 0) for key, length in dimensions.items()]
        made = [name(key) + struct.pack(f">I{len(axes)}I", len(axes), *map(order.index, axes)) + attributes(own)
                + struct.pack(">III", CODES[array.dtype.str[1:]], sizes[key], places.get(key, 0))
                for key, (axes, array, own) in variables.items()]
        return b"CDF\1" + struct.pack(">I", count) + listed(0x0A, dims) + attributes(notes or {}) + listed(0x0B, made)

    at, places = len(header({})), {}
    for key in sorted(variables, key=lambda key: key in records):
        places[key], at = at, at + sizes[key]
    stored = {key: array.astype(array.dtype.newbyteorder(">")) for key, (_, array, _) in variables.items()}
    fixed = b"".join(padded(array.tobytes()) for key, array in stored.items() if key not in records)
    rows = b"".join(padded(stored[key][row].tobytes()) for row in range(count) for key in records)
    return header(places) + fixed + rows
