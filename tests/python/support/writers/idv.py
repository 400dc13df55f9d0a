"""A small writer of IDV files, from the format's description: every codec, every compression, and lies on demand."""

import struct
import zlib


def leb(value, pad=0):
    """LEB128; `pad` adds redundant bytes."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if not value and not pad:
            return bytes(out + bytes([byte]))
        out.append(byte | 0x80)
        if not value:
            return bytes(out) + b"\x80" * (pad - 1) + b"\x00"


def string(text):
    text = text if isinstance(text, bytes) else text.encode()
    return leb(len(text)) + text


def definition(name, parameters=b""):
    return string(name) + leb(len(parameters)) + parameters


def key2(raw, count):
    return "Key2", definition(raw) + struct.pack("<Q", count)


def key(raw, contiguous, least, count):
    return "Key", definition(raw) + struct.pack("<BQi", contiguous, least, count)


def vbuffer(item, dims=()):
    name, parameters = item if isinstance(item, tuple) else (item, b"")
    return "VBuffer", definition(name, parameters) + struct.pack(f"<i{len(dims)}i", len(dims), *dims)


def pack(data, kind):
    if kind == 0:
        return data
    packer = zlib.compressobj(6, zlib.DEFLATED, -15 if kind == 1 else 15)
    return packer.compress(data) + packer.flush()


# --- block contents ------------------------------------------------------------

def numbers(fmt, values):
    return struct.pack(f"<{len(values)}{fmt}", *values)


def booleans(values):
    out = bytearray(-(-len(values) // 8))
    for at, value in enumerate(values):
        out[at // 8] |= bool(value) << at % 8
    return bytes(out)


def dv_booleans(values):
    words = [0] * -(-len(values) // 16)
    for at, value in enumerate(values):
        words[at // 16] |= value << 2 * (at % 16)
    return numbers("I", words)


def offset_times(values):
    return numbers("h", [minutes for _, minutes in values]) + numbers("q", [ticks for ticks, _ in values])


def row_ids(values):
    return b"".join(struct.pack("<QQ", low, high) for low, high in values)


def utf16(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def texts(values, pad=0, ends=None):
    """`None` is missing. `ends` replaces the stored ends; `pad` makes the length redundant."""
    at, found = 0, []
    for value in values:
        at += utf16(value or "")
        found.append(at | (1 << 31 if value is None else 0))
    text = "".join(value or "" for value in values).encode("utf-16-le", "surrogatepass")
    text = text.decode("utf-16-le").encode()
    ends = found if ends is None else ends
    return numbers("I", [len(ends), *ends]) + leb(len(text), pad) + text


def vectors(rows, items, common=None, empty_items=True):
    """Rows are lists (dense) or (length, {slot: value}) (sparse); `common` is the length that all have, 0 for none."""
    lengths = [len(row) if isinstance(row, list) else row[0] for row in rows]
    if common is None:
        common = lengths[0] if len(set(lengths)) == 1 else 0
    counts, indices, stored = [], [], []
    for row in rows:
        if isinstance(row, list):
            counts.append(-1)
            stored += row
        else:
            counts.append(len(row[1]))
            indices += sorted(row[1])
            stored += [row[1][slot] for slot in sorted(row[1])]
    out = numbers("i", [len(rows), common] + ([] if common else lengths) + counts + [len(indices)] + indices)
    return out if not stored and not empty_items else out + items(stored)


# --- the file ------------------------------------------------------------------

class Column:
    """One column. `blocks` are decoded bytes; `records` (offset, stored, size) replace those of the table by number."""

    def __init__(self, name, codec, blocks, per_block, kind=0, metadata=(), records=None, lookup=None, toc=None):
        self.name = name
        self.codec = codec if isinstance(codec, tuple) else (codec, b"")
        self.blocks, self.per_block, self.kind = blocks, per_block, kind
        self.metadata, self.records, self.lookup, self.toc = list(metadata), records or {}, lookup, toc


def entry(kind, codec, data, compression=0, offset=None, length=None):
    """A metadata entry."""
    codec = codec if isinstance(codec, tuple) else (codec, b"")
    return kind, codec, pack(data, compression), compression, offset, length


def file(rows, columns, version=6, compatible=None, header=None, damage=None, trailing=b""):
    """`header` replaces fields by name; `damage` is (column, block) -> bytes in place of the stored ones."""
    out = bytearray(256)
    tables = []
    for number, column in enumerate(columns):
        table = []
        for at, data in enumerate(column.blocks):
            stored = pack(data, column.kind)
            stored = (damage or {}).get((number, at), stored)
            table.append((len(out), len(stored), len(data)))
            out += stored
        tables.append([column.records.get(at, record) for at, record in enumerate(table)])
    toc = bytearray()
    for column, table in zip(columns, tables):
        lookup = len(out) if column.lookup is None else column.lookup
        for record in table:
            out += struct.pack("<qii", *record)
        where = 0
        if column.metadata:
            entries = leb(len(column.metadata))
            for kind, codec, stored, compression, offset, length in column.metadata:
                entries += string(kind) + definition(*codec) + bytes([compression])
                entries += struct.pack("<q", len(out) if offset is None else offset)
                entries += leb(len(stored) if length is None else length)
                out += stored
            where = len(out)
            out += entries
        where = where if column.toc is None else column.toc
        toc += string(column.name) + definition(*column.codec) + bytes([column.kind])
        toc += leb(column.per_block) + struct.pack("<qq", lookup, where)
    start = len(out)
    out += toc
    fields = {"version": version, "compatible": version if compatible is None else compatible, "toc": start,
              "tail": len(out), "rows": rows, "columns": len(columns), **(header or {})}
    full = (0x000100010001 << 16)
    struct.pack_into("<8sQQqqqi", out, 0, b"CML\0DVB\0", full | fields["version"], full | fields["compatible"],
                     fields["toc"], fields["tail"], fields["rows"], fields["columns"])
    return bytes(out) + b"\0BVD\0LMC" + trailing


def split(values, per_block):
    return [values[at:at + per_block] for at in range(0, len(values), per_block)]


def zeros_between(front, *parts):
    """A raw DEFLATE stream of bytes and of (byte, count), and how long it is inflated."""
    packer, out, size = zlib.compressobj(1, zlib.DEFLATED, -15), [], 0
    for part in (front, *parts):
        data, count = part if isinstance(part, tuple) else (part, 1)
        size += len(data) * count
        step = (1 << 20) // len(data) if count > 1 else 1
        for _ in range(count // step):
            out.append(packer.compress(data * step))
        out.append(packer.compress(data * (count % step)))
    return b"".join(out) + packer.flush(), size


def of_records(rows, per_block, columns, data, records):
    """A file of columns (name, codec) with one table, whose records all point into `data`."""
    out = bytearray(256) + data
    table = len(out)
    out += b"".join(struct.pack("<qii", 256 + at, stored, size) for at, stored, size in records)
    toc = len(out)
    for name, codec in columns:
        out += string(name) + definition(*codec) + b"\1" + leb(per_block) + struct.pack("<qq", table, 0)
    full = (0x000100010001 << 16) | 6
    struct.pack_into("<8sQQqqqi", out, 0, b"CML\0DVB\0", full, full, toc, len(out), rows, len(columns))
    return bytes(out) + b"\0BVD\0LMC"
