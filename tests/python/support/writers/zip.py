"""Zip archives, and npz files in them, as APPNOTE 6.3 has them (docs/formats/npz.md)."""

import io
import struct
import zlib

import numpy as np


def archive(members, *, deflated=(), align=1):
    """An archive of `members`, bytes by name. Those in `deflated` are DEFLATE streams of stored blocks, which are the same
    with every zlib; data begin at multiples of `align`."""
    out, directory = bytearray(), bytearray()
    for name, data in members.items():
        method = 8 if name in deflated else 0
        stored = stored_blocks(data) if method else bytes(data)
        path, offset = name.encode(), len(out)
        padding = -(offset + 34 + len(path)) % align
        extra = struct.pack("<HH", 0x4246, padding) + bytes(padding) if align > 1 else b""
        # Version, flags, method, time, the first day that there is, checksum, sizes.
        fields = struct.pack("<HHHHHIII", 20, 0, method, 0, 0x21, zlib.crc32(data), len(stored), len(data))
        out += b"PK\3\4" + fields + struct.pack("<HH", len(path), len(extra)) + path + extra + stored
        directory += (b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHHHII", len(path), 0, 0, 0, 0, 0, offset)
                      + path)
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(out), 0)
    return bytes(out + directory + b"PK\5\6" + end)


def stored_blocks(data):
    """A DEFLATE stream of blocks that are stored as they are."""
    starts = range(0, max(len(data), 1), 0xFFFF)
    return b"".join(struct.pack("<BHH", start + 0xFFFF >= len(data), len(piece), len(piece) ^ 0xFFFF) + piece
                    for start in starts for piece in [bytes(data[start:start + 0xFFFF])])


def npz(arrays, *, deflated=()):
    """An npz file of arrays by name."""
    members = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.lib.format.write_array(file, np.asarray(array), version=(1, 0))
        members[f"{name}.npy"] = file.getvalue()
    return archive(members, deflated={f"{name}.npy" for name in deflated})
