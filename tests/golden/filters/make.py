#!/usr/bin/env python3
"""Writes the golden vectors of filters, with the programs that others use.

pip install numpy numcodecs h5py hdf5plugin python-lzf python-snappy lz4 blosc2; then: python make.py, in this folder.
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

import blosc2
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


def packed(name, values, filter_name, choose, kind=None, fill=None):
    """A chunk that libhdf5 packed, with the parameters that it stored, and what comes out in the type of the file."""
    kind = kind or h5py.h5t.py_create(values.dtype)
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_chunk(values.shape)
    if fill is not None:
        options.set_fill_value(np.array(fill, values.dtype))
    choose(options)
    with tempfile.TemporaryDirectory() as folder, h5py.File(os.path.join(folder, "x.h5"), "w") as file:
        space = h5py.h5s.create_simple(values.shape)
        dataset = h5py.h5d.create(file.id, b"x", kind, space, options)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values))
        mask, stored = dataset.read_direct_chunk((0,) * values.ndim)
        if mask:
            return
        parameters = dataset.get_create_plist().get_filter(0)[2]
        out = np.zeros(values.shape, f"V{kind.get_size()}")
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, out, kind)
    name, out = f"{filter_name}_{name}", out.tobytes()
    data = next((data for data, raw in DATA.items() if raw == out), f"{name}_out")
    DATA[data] = out
    first = 2 if filter_name == "nbit" else 0
    keep(name, data, f"{filter_name}:{','.join(map(str, parameters[first:]))}", stored)


def of_szip():
    random = np.random.default_rng(41)
    noise = random.integers(0, 2**63, 300)
    for descr in ["u1", "<u2", ">u2", "<i4", ">u4", "<u8", "<f4", ">f8"]:
        walk = np.cumsum(random.integers(-2, 3, 300)) + 100
        calm = np.repeat(random.integers(90, 110, 3), 100)
        for mode, options in [("nn", 32), ("ec", 4)]:
            for block in [2, 8, 14, 32]:
                packed(f"walk_{mode}_{block}_{descr}", walk.astype(descr), "szip", lambda p: p.set_szip(options, block))
            packed(f"calm_{mode}_{descr}", calm.astype(descr), "szip", lambda p: p.set_szip(options, 8))
        mixed = np.where(np.arange(300) % 170 < 60, noise.astype(descr), calm.astype(descr))
        packed(f"mixed_{descr}", mixed, "szip", lambda p: p.set_szip(32, 16))
        packed(f"zeros_{descr}", np.zeros((5, 600), descr), "szip", lambda p: p.set_szip(32, 8))
        packed(f"rows_{descr}", walk.astype(descr)[:280].reshape(40, 7), "szip", lambda p: p.set_szip(4, 4))
    for like, precision in [("STD_U8LE", 3), ("STD_U16BE", 12), ("STD_U32LE", 20), ("STD_U32BE", 24)]:
        kind = getattr(h5py.h5t, like).copy()
        kind.set_precision(precision)
        values = random.integers(0, 2**precision, 300).astype("<u4")
        packed(f"bits_{precision}", values, "szip", lambda p: p.set_szip(32, 8), kind)


def of_nbit():
    random = np.random.default_rng(43)

    def number(like, precision, offset):
        kind = getattr(h5py.h5t, like).copy()
        kind.set_precision(precision)
        kind.set_offset(offset)
        return kind

    nbit = lambda p: p.set_filter(h5py.h5z.FILTER_NBIT)
    shapes = [("STD_I16LE", 12, 4), ("STD_I32BE", 17, 3), ("STD_U64LE", 61, 1), ("STD_I64BE", 33, 30), ("STD_I8LE", 1, 7),
              ("STD_U16LE", 9, 7), ("STD_U32BE", 24, 8), ("STD_I64LE", 57, 0), ("STD_I64BE", 64, 0)]
    for like, precision, offset in shapes:
        values = random.integers(0, 2 ** (precision - 1), 77)
        packed(f"{like}_{precision}_{offset}", values, "nbit", nbit, number(like, precision, offset))
    small = h5py.h5t.IEEE_F32BE.copy()
    small.set_fields(26, 20, 6, 7, 13)
    small.set_offset(7)
    small.set_precision(20)
    small.set_ebias(31)
    packed("float", random.normal(0, 1, 60), "nbit", nbit, small)
    wide = h5py.h5t.STD_I64LE.copy()
    wide.set_size(16)
    wide.set_precision(70)
    wide.set_offset(5)
    packed("wide", random.integers(0, 2**40, 50), "nbit", nbit, wide)
    descr = np.dtype({"names": ["a", "b", "c", "d"], "formats": ["<i4", "S3", ("<u2", (2, 3)), [("x", ">f4"), ("y", "u1")]],
                      "offsets": [4, 0, 10, 23], "itemsize": 30})
    record = h5py.h5t.create(h5py.h5t.COMPOUND, 30)
    record.insert(b"a", 4, number("STD_I32LE", 21, 2))
    record.insert(b"b", 0, h5py.h5t.py_create(np.dtype("S3")))
    record.insert(b"c", 10, h5py.h5t.array_create(number("STD_U16BE", 9, 5), (2, 3)))
    inner = h5py.h5t.create(h5py.h5t.COMPOUND, 7)
    inner.insert(b"x", 2, h5py.h5t.IEEE_F32BE)
    inner.insert(b"y", 1, number("STD_U8LE", 5, 1))
    record.insert(b"d", 23, inner)
    values = np.zeros(40, descr)
    values["a"], values["c"] = random.integers(0, 400000, 40), random.integers(0, 500, (40, 2, 3))
    values["b"], values["d"]["x"], values["d"]["y"] = b"xyz", random.normal(0, 1, 40), random.integers(0, 31, 40)
    packed("record", values, "nbit", nbit, record)
    texts = h5py.h5t.array_create(h5py.h5t.py_create(np.dtype("S5")), (3,))
    holder = h5py.h5t.create(h5py.h5t.COMPOUND, 20)
    holder.insert(b"t", 1, texts)
    holder.insert(b"n", 16, number("STD_I8LE", 3, 0))
    values = np.zeros(20, [("t", "S5", 3), ("n", "i1")])
    values["t"], values["n"] = [[b"one", b"three", b""]] * 20, np.arange(20) % 4
    packed("texts", values, "nbit", nbit, holder)


def of_scale_offset():
    random = np.random.default_rng(47)
    integer = h5py.h5z.SO_INT
    for descr in ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8"]:
        info = np.iinfo(descr)
        near = np.array([int(n) + info.max - 60 for n in random.integers(0, 50, 200)], descr)
        everywhere = random.integers(info.min, info.max, 200, descr.replace(">", "<"), True).astype(descr)
        everywhere[:2] = info.min, info.max
        for label, values in [("near", near), ("everywhere", everywhere), ("same", np.full(200, 7, descr))]:
            for fill in [None, near[3]]:
                packed(f"{label}_{fill}_{descr}", values, "scaleoffset", lambda p: p.set_scaleoffset(integer, 0), fill=fill)
        lossy = random.integers(0, 7, 200).astype(descr)
        packed(f"three_{descr}", lossy, "scaleoffset", lambda p: p.set_scaleoffset(integer, 3))
    for descr in ["<f4", ">f4", "<f8", ">f8"]:
        values = (np.cumsum(random.normal(0, 1, 200)) - 40).astype(descr)
        values[50:55] = -999.5
        huge = (values * 1e30).astype(descr)
        for digits in [0, 2, 5]:
            for fill in [None, -999.5]:
                choose = lambda p: p.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE, digits)
                packed(f"{digits}_{fill}_{descr}", values, "scaleoffset", choose, fill=fill)
        packed(f"huge_{descr}", huge, "scaleoffset", lambda p: p.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE, 3))


def of_blosc2():
    """Chunks of Blosc 2, and what they decode to: all codecs and filters, several blocks, elements that are all the same."""
    codecs, filters = blosc2.Codec, blosc2.Filter
    chains = {"none": [filters.NOFILTER], "shuffle": [filters.SHUFFLE], "bitshuffle": [filters.BITSHUFFLE],
              "delta": [filters.DELTA], "delta_shuffle": [filters.DELTA, filters.SHUFFLE]}

    def chunk(name, data, stored):
        keep(f"blosc2_{name}_{data}", data, "blosc", stored)

    for data in ["i4", "f8", "u2", "bytes", "rgb", "zeros", "noise"]:
        raw = DATA[data]
        for label, chain in chains.items():
            for codec in [codecs.BLOSCLZ, codecs.LZ4, codecs.ZLIB, codecs.ZSTD]:
                stored = blosc2.compress2(raw, codec=codec, filters=chain, typesize=WIDTH[data], nthreads=1)
                chunk(f"{codec.name.lower()}_{label}", data, stored)
            # Several blocks, the last one shorter.
            stored = blosc2.compress2(raw, filters=chain, typesize=WIDTH[data], blocksize=520 * WIDTH[data] // 2, nthreads=1)
            chunk(f"blocks_{label}", data, stored)
    rounded = blosc2.compress2(DATA["f8"], filters=[filters.TRUNC_PREC, filters.SHUFFLE], filters_meta=[20, 0], typesize=8)
    DATA["f8_rounded"] = blosc2.decompress2(rounded)
    chunk("trunc", "f8_rounded", rounded)
    values = {"nan": np.full(3000, np.nan, "<f4"), "seven": np.full(3000, 7, "<i8"), "runs": np.repeat(np.arange(9), 999).astype("<i8")}
    for name, array in values.items():
        DATA[name] = array.tobytes()
        chunk("same", name, blosc2.compress2(DATA[name], typesize=array.itemsize, nthreads=1))
    # As a super-chunk has them, without an element.
    makers = {"zeros": blosc2.SpecialValue.ZERO, "nan": blosc2.SpecialValue.NAN, "seven": blosc2.SpecialValue.VALUE}
    for name, kind in makers.items():
        width = {"zeros": 4, "nan": 4, "seven": 8}[name]
        schunk = blosc2.SChunk(chunksize=len(DATA[name]), cparams={"typesize": width})
        value = 7 if name == "seven" else None
        schunk.fill_special(len(DATA[name]) // width, kind, *([] if value is None else [np.int64(value)]))
        assert schunk.decompress_chunk(0) == DATA[name]
        chunk("special", name, schunk.get_chunk(0))


def of_frames():
    """Chunks that HDF5's filter 32026 stores: a frame of Blosc 2 for each, with arrays of several axes in blocks."""
    shapes = {"i4": [(700,), (28, 25), (10, 10, 7)], "f8": [(15, 20), (3, 4, 5, 5)], "u2": [(7, 11, 13)], "bytes": [(1, 1040)],
              "noise": [(27, 37)], "zeros": [(2250,), (45, 50)], "nan": [(50, 60)], "seven": [(3000,), (3, 10, 100)]}
    kinds = {"i4": "<i4", "f8": "<f8", "u2": "<u2", "bytes": "u1", "noise": "u1", "zeros": "<i4", "nan": "<f4", "seven": "<i8"}
    with tempfile.TemporaryDirectory() as folder:
        for data, all_shapes in shapes.items():
            for shape in all_shapes:
                array = np.frombuffer(DATA[data][:np.prod(shape) * np.dtype(kinds[data]).itemsize], kinds[data]).reshape(shape)
                if data == "bytes":
                    DATA["bytes_2"] = array.tobytes()
                # All codecs but snappy, which the filter does not have; all filters. 0 is the library's own choice of a block.
                ways = [(codec, 1, 0) for codec in (0, 1, 2, 4, 5)] + [(5, shuffle, 512) for shuffle in (0, 1, 2, 3)]
                for codec, shuffle, block in ways:
                    with h5py.File(Path(folder) / "a.h5", "w") as file:
                        options = (0, block, 0, 0, 5, shuffle, codec)
                        dataset = file.create_dataset("a", data=array, chunks=shape, compression=32026, compression_opts=options)
                        file.flush()
                        mask, stored = dataset.id.read_direct_chunk((0,) * len(shape))
                        assert dataset[()].tobytes() == array.tobytes() and mask == 0
                    name = f"frame_{codec}_{shuffle}_{block}_{'x'.join(map(str, shape))}_{data}"
                    keep(name, "bytes_2" if data == "bytes" else data, "blosc2", stored)



of_numcodecs()
of_others()
of_all_hdf5()
of_szip()
of_nbit()
of_scale_offset()
of_blosc2()
of_frames()
for name, raw in DATA.items():
    keep(name, "raw", "raw", raw)
(HERE / "vectors.bin").write_bytes(BYTES)
(HERE / "list.txt").write_text("\n".join(LINES) + "\n")
