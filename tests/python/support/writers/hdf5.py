"""HDF5 files as `docs/formats/hdf5.md` describes them: superblock 2, groups with compact links, contiguous datasets, and
chunked ones with a B-tree and gzip."""

import struct
import zlib

import numpy as np

UNDEFINED = b"\xff" * 8
# Entries of a B-tree's node: libhdf5 reads room for all of them.
NODE = 64


def lookup3(data):
    """The checksum of structures: Bob Jenkins' hashlittle."""
    mask = 0xFFFFFFFF

    def rot(x, k):
        return (x << k | x >> (32 - k)) & mask

    a = b = c = (0xDEADBEEF + len(data)) & mask
    while len(data) > 12:
        x, y, z = struct.unpack_from("<3I", data)
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        for k in ((4, 6, 8), (16, 19, 4)):
            a = ((a - c) & mask) ^ rot(c, k[0])
            c = (c + b) & mask
            b = ((b - a) & mask) ^ rot(a, k[1])
            a = (a + c) & mask
            c = ((c - b) & mask) ^ rot(b, k[2])
            b = (b + a) & mask
        data = data[12:]
    if not data:
        return c
    x, y, z = struct.unpack("<3I", data.ljust(12, b"\0"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    c = ((c ^ b) - rot(b, 14)) & mask
    a = ((a ^ c) - rot(c, 11)) & mask
    b = ((b ^ a) - rot(a, 25)) & mask
    c = ((c ^ b) - rot(b, 16)) & mask
    a = ((a ^ c) - rot(c, 4)) & mask
    b = ((b ^ a) - rot(a, 14)) & mask
    return ((c ^ b) - rot(b, 24)) & mask


def summed(data):
    return data + struct.pack("<I", lookup3(data))


def datatype(dtype):
    """The type of numbers, and of texts of one size."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    order = 1 if dtype.byteorder == ">" else 0
    if dtype.kind in "iu":
        return struct.pack("<IIHH", 0x10 | order << 8 | (dtype.kind == "i") << 11, size, 0, 8 * size)
    if dtype.kind == "f":
        exponent, mantissa = {2: (5, 10), 4: (8, 23), 8: (11, 52)}[size]
        head = 0x11 | order << 8 | 2 << 12 | (8 * size - 1) << 16
        return struct.pack("<IIHHBBBBI", head, size, 0, 8 * size, mantissa, exponent, 0, mantissa,
                           2 ** (exponent - 1) - 1)
    assert dtype.kind == "S"
    return struct.pack("<II", 0x13 | 1 << 8 | 1 << 12, size)


def dataspace(shape):
    return struct.pack(f"<BBBB{len(shape)}Q", 2, len(shape), 0, 1 if shape else 0, *shape)


def message(kind, body):
    return struct.pack("<BHB", kind, len(body), 0) + body


def attribute(name, value):
    value = np.asarray(value.encode() if isinstance(value, str) else value)
    name, kind, space = name.encode() + b"\0", datatype(value.dtype), dataspace(value.shape)
    head = struct.pack("<BBHHHB", 3, 0, len(name), len(kind), len(space), 1)
    return message(0x0C, head + name + kind + space + value.tobytes())


class Chunked:
    """An array that is stored in chunks of this shape."""

    def __init__(self, array, chunk):
        self.array, self.chunk = np.ascontiguousarray(array), chunk


class Attributes(dict):
    """Attributes of a group or a dataset, as the first of a pair with it."""


class File:
    def __init__(self):
        # The superblock comes last.
        self.data = bytearray(48)

    def add(self, data):
        self.data += bytes(-len(self.data) % 8)
        at = len(self.data)
        self.data += data
        return at

    def header(self, messages):
        body = b"".join(messages)
        return self.add(summed(struct.pack("<4sBBI", b"OHDR", 2, 2, len(body)) + body))

    def chunks(self, array, chunk):
        """The address of the index of an array's chunks."""
        rank = array.ndim
        entries = b""
        counts = [-(-axis // step) for axis, step in zip(array.shape, chunk)]
        used = 0
        for at in np.ndindex(*counts):
            start = [place * step for place, step in zip(at, chunk)]
            part = array[tuple(slice(first, first + step) for first, step in zip(start, chunk))]
            whole = np.zeros(chunk, array.dtype)
            whole[tuple(slice(length) for length in part.shape)] = part
            data = zlib.compress(whole.tobytes(), 9)
            entries += struct.pack(f"<II{rank + 1}QQ", len(data), 0, *start, 0, self.add(data))
            used += 1
        assert used <= NODE
        key = struct.pack(f"<II{rank + 1}Q", 0, 0, *array.shape, 0)
        node = struct.pack("<4sBBH", b"TREE", 1, 0, used) + UNDEFINED + UNDEFINED + entries + key
        return self.add(node.ljust(24 + NODE * (len(key) + 8) + len(key), b"\0"))

    def dataset(self, value, attributes):
        chunked = isinstance(value, Chunked)
        array = value.array if chunked else np.asarray(value)
        messages = [message(0x01, dataspace(array.shape)), message(0x03, datatype(array.dtype)),
                    message(0x05, bytes([3, 0x0A]))]
        if chunked:
            index = self.chunks(array, value.chunk)
            messages.append(message(0x0B, struct.pack("<BBHHHI", 2, 1, 1, 1, 1, 9)))
            layout = struct.pack(f"<BBBQ{array.ndim}II", 3, 2, array.ndim + 1, index, *value.chunk, array.itemsize)
        else:
            layout = struct.pack("<BBQQ", 3, 1, self.add(array.tobytes()), array.nbytes)
        return self.header([*messages, message(0x08, layout), *attributes])

    def object(self, value):
        """The address of an object: a dict is a group; a pair has attributes in front."""
        attributes, value = value if isinstance(value, tuple) else (Attributes(), value)
        attributes = [attribute(name, held) for name, held in attributes.items()]
        if not isinstance(value, dict):
            return self.dataset(value, attributes)
        links = []
        for name, member in value.items():
            link = struct.pack("<BBBB", 1, 0x10, 1, len(name.encode())) + name.encode()
            if isinstance(member, str):
                link = struct.pack("<BBBBB", 1, 0x18, 1, 1, len(name.encode())) + name.encode()
                link += struct.pack("<H", len(member)) + member.encode()
            else:
                link += struct.pack("<Q", self.object(member))
            links.append(message(0x06, link))
        info = message(0x02, bytes([0, 0]) + UNDEFINED + UNDEFINED)
        return self.header([info, message(0x0A, bytes([0, 0])), *links, *attributes])


def hdf5(root):
    """A file. A dict is a group, an array or `Chunked` a dataset, a text a soft link; a pair has `Attributes` in front."""
    file = File()
    at = file.object(root)
    head = struct.pack("<8sBBBB", b"\x89HDF\r\n\x1a\n", 2, 8, 8, 0)
    head += struct.pack("<Q", 0) + UNDEFINED + struct.pack("<QQ", len(file.data), at)
    file.data[:48] = summed(head)
    return bytes(file.data)
