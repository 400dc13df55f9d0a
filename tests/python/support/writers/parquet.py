"""Parquet files as `docs/formats/lerobot.md` section 5 describes them: one row group, PLAIN, not compressed."""

import struct

import numpy as np

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
BOOLEAN, INT64, FLOAT, DOUBLE, BYTE_ARRAY = 0, 2, 4, 5, 6
REQUIRED, OPTIONAL, REPEATED = range(3)
PHYSICAL = {"bool": BOOLEAN, "int64": INT64, "float32": FLOAT, "float64": DOUBLE}


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def zigzag(value):
    return varint(value << 1 if value >= 0 else -value * 2 - 1)


def struct_of(*fields):
    """A structure of thrift's compact protocol: number, type and bytes of each field."""
    out, last = b"", 0
    for number, kind, value in fields:
        out, last = out + bytes([(number - last) << 4 | kind]) + value, number
    return out + b"\0"


def list_of(kind, values):
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return head + b"".join(values)


def text(value):
    value = value.encode()
    return varint(len(value)) + value


def element(name, physical=None, repetition=REQUIRED, children=None, converted=None):
    fields = [(1, I32, physical), (3, I32, repetition), (4, BINARY, None), (5, I32, children), (6, I32, converted)]
    return struct_of(*((number, kind, text(name) if number == 4 else zigzag(value))
                       for number, kind, value in fields if number == 4 or value is not None))


def levels(values, width):
    """Levels of a page: each of them a run of its own."""
    runs = b"".join(varint(2) + bytes([value]) for value in values) if width else b""
    return struct.pack("<I", len(runs)) + runs


class Leaf:
    """A leaf: its path, the elements of the schema, and its page."""

    def __init__(self, path, schema, physical, count, body):
        self.path, self.schema, self.physical, self.count, self.body = path, schema, physical, count, body

    def page(self):
        header = struct_of((1, I32, zigzag(0)), (2, I32, zigzag(len(self.body))), (3, I32, zigzag(len(self.body))),
                           (5, STRUCT, struct_of((1, I32, zigzag(self.count)), (2, I32, zigzag(0)), (3, I32, zigzag(3)),
                                                 (4, I32, zigzag(3)))))
        return header + self.body


def plain(values):
    return np.packbits(values, bitorder="little").tobytes() if values.dtype == bool else values.tobytes()


def numbers(name, values):
    """A column of numbers, or of lists of them if there are more axes."""
    values = np.asarray(values)
    physical = PHYSICAL[values.dtype.name]
    if values.ndim == 1:
        return [Leaf([name], [element(name, physical)], physical, len(values), plain(values))]
    flat = values.reshape(len(values), -1)
    rows, size = flat.shape
    schema = [element(name, None, OPTIONAL, 1, 3), element("list", None, REPEATED, 1), element("element", physical)]
    body = levels([int(at > 0) for _ in range(rows) for at in range(size)], 1) + levels([2] * rows * size, 2)
    return [Leaf([name, "list", "element"], schema, physical, rows * size, body + plain(flat))]


def pictures(name, files):
    """A column of pictures: structures of bytes and path. `None` is a missing one."""
    def member(key, values, converted, schema):
        body = levels([1 + (value is not None) for value in values], 2)
        body += b"".join(struct.pack("<I", len(value)) + value for value in values if value is not None)
        return Leaf([name, key], [*schema, element(key, BYTE_ARRAY, OPTIONAL, None, converted)], BYTE_ARRAY, len(values), body)

    paths = [f"frame-{number:06d}.png".encode() for number in range(len(files))]
    return [member("bytes", files, None, [element(name, None, OPTIONAL, 2)]), member("path", paths, 0, [])]


def table(columns, rows):
    """The file of some columns, each a list of leaves."""
    leaves = [leaf for column in columns for leaf in column]
    out, chunks = b"PAR1", []
    for leaf in leaves:
        page, at = leaf.page(), len(out)
        meta = struct_of((1, I32, zigzag(leaf.physical)), (2, LIST, list_of(I32, [zigzag(0), zigzag(3)])),
                         (3, LIST, list_of(BINARY, [text(part) for part in leaf.path])), (4, I32, zigzag(0)),
                         (5, I64, zigzag(leaf.count)), (6, I64, zigzag(len(page))), (7, I64, zigzag(len(page))),
                         (9, I64, zigzag(at)))
        chunks.append(struct_of((2, I64, zigzag(at)), (3, STRUCT, meta)))
        out += page
    schema = [element("schema", None, REQUIRED, len(columns)), *(part for leaf in leaves for part in leaf.schema)]
    group = struct_of((1, LIST, list_of(STRUCT, chunks)), (2, I64, zigzag(len(out) - 4)), (3, I64, zigzag(rows)))
    footer = struct_of((1, I32, zigzag(1)), (2, LIST, list_of(STRUCT, schema)), (3, I64, zigzag(rows)),
                       (4, LIST, list_of(STRUCT, [group])), (6, BINARY, text("shardfs examples")))
    return out + footer + struct.pack("<I", len(footer)) + b"PAR1"
