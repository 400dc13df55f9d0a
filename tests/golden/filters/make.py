#!/usr/bin/env python3
"""Writes the golden vectors of filters, with the programs that others use.

pip install numpy numcodecs h5py hdf5plugin python-lzf python-snappy lz4; then: python make.py, in this folder.
`vectors.bin` holds all bytes. `list.txt` has a line for each vector: its name, the name of what it decodes to, first
byte and length in `vectors.bin`, and its chain of filters in the order of writing. What vectors decode to is a line
with `raw` for both names and chain.
"""

import bz2
import gzip
import os
import tempfile
import zlib
from pathlib import Path

import h5py
import hdf5plugin
import lz4.frame
import numcodecs
import numpy as np
import snappy

HERE = Path(__file__).parent
LINES = []
BYTES = bytearray()

steps = np.cumsum(np.random.default_rng(31).integers(-3, 4, 700)).astype("<i4")
DATA = {
    # Numbers that go up and down a little, as a signal does; 700 of them, and a few bytes more for odd lengths.
    "i4": steps.tobytes(),
    "f8": np.sin(np.arange(300) / 20).astype("<f8").tobytes(),
    "u2": (np.arange(1001) // 3).astype("<u2").tobytes(),
    "bytes": b"".join(b"%d of many. " % n for n in range(90)),
    "rgb": np.tile(np.arange(3 * 50, dtype="u1"), 7).tobytes(),
    "zeros": bytes(9000),
}
WIDTH = {"i4": 4, "f8": 8, "u2": 2, "bytes": 1, "rgb": 3, "zeros": 4}


def keep(name, data, chain, stored):
    LINES.append(f"{name} {data} {len(BYTES)} {len(bytes(stored))} {chain}")
    BYTES.extend(bytes(stored))


def of_numcodecs():
    blosc = numcodecs.blosc
    for data, raw in DATA.items():
        array = np.frombuffer(raw, f"V{WIDTH[data]}" if WIDTH[data] == 3 else f"u{WIDTH[data]}")
        keep(f"shuffle_{data}", data, f"shuffle:{WIDTH[data]}", numcodecs.Shuffle(WIDTH[data]).encode(np.frombuffer(raw, "u1")))
        for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
            for shuffle in [blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE]:
                stored = numcodecs.Blosc(cname, 5, shuffle, 0).encode(array)
                keep(f"blosc_{cname}_{shuffle}_{data}", data, "blosc", stored)
        # Several blocks, the last one shorter.
        keep(f"blosc_blocks_{data}", data, "blosc", numcodecs.Blosc("lz4", 5, blosc.SHUFFLE, 1024).encode(array))
        keep(f"lz4_{data}", data, "lz4", numcodecs.LZ4().encode(raw))
        keep(f"zstd_{data}", data, "zstd", numcodecs.Zstd(3).encode(raw))
        keep(f"gzip_{data}", data, "gzip", numcodecs.GZip(5).encode(raw))
        keep(f"bz2_{data}", data, "bzip2", numcodecs.BZ2(1).encode(raw))
    random = np.random.default_rng(1).integers(0, 256, 999, "u1").tobytes()
    DATA["noise"], WIDTH["noise"] = random, 1
    keep("blosc_copied", "noise", "blosc", numcodecs.Blosc("lz4", 5, blosc.SHUFFLE, 0).encode(random))
    keep("delta_i4", "i4", "delta:<i4:<i4", numcodecs.Delta("<i4").encode(np.frombuffer(DATA["i4"], "<i4")).tobytes())
    keep("delta_i1_i4", "i4", "delta:<i1:<i4", numcodecs.Delta("<i4", "<i1").encode(np.frombuffer(DATA["i4"], "<i4")).tobytes())
    keep("delta_u2", "u2", "delta:<u2:<u2", numcodecs.Delta("<u2").encode(np.frombuffer(DATA["u2"], "<u2")).tobytes())
    floats = numcodecs.Delta("<f8")
    encoded = floats.encode(np.frombuffer(DATA["f8"], "<f8"))
    DATA["f8_added"] = floats.decode(encoded).tobytes()
    keep("delta_f8", "f8_added", "delta:<f8:<f8", encoded.tobytes())
    big = np.frombuffer(DATA["u2"], "<u2").astype(">u2")
    DATA["u2_big"] = big.tobytes()
    keep("delta_u2_big", "u2_big", "delta:>u2:>u2", numcodecs.Delta(">u2").encode(big).tobytes())
    for name in ["CRC32", "CRC32C", "Adler32", "Fletcher32"]:
        try:
            codec = getattr(numcodecs.checksum32 if name != "Fletcher32" else numcodecs, name)()
            for data in ["bytes", "i4", "noise"]:
                if name == "Fletcher32" and len(DATA[data]) % 2:
                    continue
                place = "" if name in ["CRC32C", "Fletcher32"] else ":front"
                keep(f"{name.lower()}_{data}", data, f"{name.lower()}{place}", codec.encode(np.frombuffer(DATA[data], "u1")))
        except (AttributeError, ImportError) as error:
            raise SystemExit(f"{name}: {error}")
    # What Zarr arrays have: several after each other.
    raw = np.frombuffer(DATA["i4"], "<i4")
    delta = numcodecs.Delta("<i4").encode(raw)
    shuffled = numcodecs.Shuffle(4).encode(delta)
    keep("delta_shuffle_zstd", "i4", "delta:<i4:<i4 shuffle:4 zstd", numcodecs.Zstd(3).encode(shuffled))
    packed = numcodecs.Blosc("zstd", 5, blosc.BITSHUFFLE).encode(raw)
    keep("blosc_crc32c", "i4", "blosc crc32c", numcodecs.checksum32.CRC32C().encode(packed))
    keep("zlib_gzip", "i4", "zlib gzip", numcodecs.GZip(5).encode(numcodecs.Zlib(5).encode(raw)))


def of_others():
    raw = DATA["bytes"]
    keep("gzip_members", "bytes", "gzip", gzip.compress(raw[:300]) + gzip.compress(raw[300:]) + bytes(9))
    keep("bz2_streams", "bytes", "bzip2", bz2.compress(raw[:300]) + bz2.compress(raw[300:]))
    keep("zlib_best", "bytes", "zlib", zlib.compress(raw, 9))
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    keep("deflate", "bytes", "deflate", deflate.compress(raw) + deflate.flush())
    for data in DATA:
        keep(f"snappy_{data}", data, "snappy", snappy.compress(DATA[data]))
    for linked in [True, False]:
        stored = lz4.frame.compress(DATA["zeros"] + raw, block_linked=linked, content_checksum=True, block_checksum=True,
                                    store_size=not linked)
        DATA["zeros_bytes"] = DATA["zeros"] + raw
        keep(f"lz4_frame_{linked}", "zeros_bytes", "lz4_frame", stored)


def of_hdf5(name, data, chain, width, **options):
    """A chunk as libhdf5 stores it, read past its filters."""
    raw = np.frombuffer(DATA[data], f"V{width}" if width == 3 else f"<u{width}")
    with tempfile.TemporaryDirectory() as folder, h5py.File(os.path.join(folder, "x.h5"), "w") as file:
        dataset = file.create_dataset("x", data=raw, chunks=raw.shape, **options)
        mask, stored = dataset.id.read_direct_chunk((0,))
        # A filter that gained nothing is left out.
        if mask == 0:
            keep(f"hdf5_{name}_{data}", data, chain, stored)


def of_all_hdf5():
    for data in ["i4", "f8", "u2", "bytes", "rgb", "zeros"]:
        width = WIDTH[data]
        of_hdf5("gzip_shuffle", data, f"shuffle:{width} zlib", width, compression="gzip", shuffle=True)
        of_hdf5("fletcher", data, "fletcher32", width, fletcher32=True)
        of_hdf5("all", data, f"shuffle:{width} zlib fletcher32", width, compression="gzip", shuffle=True, fletcher32=True)
        of_hdf5("lzf", data, "lzf", width, compression="lzf")
        of_hdf5("lz4", data, "lz4_blocks", width, compression=hdf5plugin.LZ4(nbytes=1000))
        of_hdf5("zstd", data, "zstd", width, compression=hdf5plugin.Zstd())
        of_hdf5("bzip2", data, "bzip2", width, compression=hdf5plugin.BZip2())
        of_hdf5("blosc", data, "blosc", width, compression=hdf5plugin.Blosc(cname="blosclz", shuffle=1))
        for cname in ["none", "lz4", "zstd"]:
            options = hdf5plugin.Bitshuffle(cname=cname)
            of_hdf5(f"bitshuffle_{cname}", data, f"bitshuffle:{width}:0:{cname}", width, compression=options)
            small = hdf5plugin.Bitshuffle(nelems=128, cname=cname)
            of_hdf5(f"bitshuffle_small_{cname}", data, f"bitshuffle:{width}:128:{cname}", width, compression=small)


of_numcodecs()
of_others()
of_all_hdf5()
for name, raw in DATA.items():
    keep(name, "raw", "raw", raw)
(HERE / "vectors.bin").write_bytes(BYTES)
(HERE / "list.txt").write_text("\n".join(LINES) + "\n")
