"""HDF5 files of every kind that the usual writers make. `write_all` has a folder full of them; `quick` are small ones."""

import ctypes
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

VERSIONS = ["earliest", "v110", "latest"]


def write_all(folder, quick=False):
    """Writes them into a folder, the same each time."""
    folder = Path(folder)
    for version in VERSIONS[::2] if quick else VERSIONS:
        with h5py.File(folder / f"types_{version}.h5", "w", libver=version) as file:
            types(file)
        with h5py.File(folder / f"texts_{version}.h5", "w", libver=version) as file:
            texts(file)
        with h5py.File(folder / f"attributes_{version}.h5", "w", libver=version) as file:
            attributes(file)
        with h5py.File(folder / f"groups_{version}.h5", "w", libver=version) as file:
            groups(file, 40 if quick else 700)
        with h5py.File(folder / f"chunks_{version}.h5", "w", libver=version) as file:
            chunks(file, quick)
        with h5py.File(folder / f"filters_{version}.h5", "w", libver=version) as file:
            filters(file, quick)
        virtual(folder, version)
        external(folder, version)
    shared(folder, quick)
    with h5py.File(folder / "heaps.h5", "w", libver="latest") as file:
        heaps(file, quick)
    for writer in [netcdf, pytables, anndata]:
        writer(folder)


def numbers(dtype, shape, seed=1):
    """Values of a type, all kinds of bits."""
    random = np.random.default_rng([seed, *str(dtype).encode()[:8]])
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()
    if dtype.kind == "f":
        values = random.normal(0, 1000, shape)
        values.reshape(-1)[:3] = [np.nan, np.inf, -0.0][: values.size]
        return values.astype(dtype)
    if dtype.kind == "c":
        return (random.normal(0, 9, shape) + 1j * random.normal(0, 9, shape)).astype(dtype)
    if dtype.kind == "S":
        return np.array([b"t%d" % (n % 10 ** dtype.itemsize) for n in range(int(np.prod(shape)))], dtype).reshape(shape)
    out = np.zeros(shape, dtype)
    for name in dtype.names or []:
        inner = dtype.fields[name][0]
        out[name] = numbers(inner.base, (*shape, *inner.shape), seed + 1)
    return out


PLAIN = ["<i1", "<u1", "<i2", ">i2", "<u2", ">u4", "<i4", "<u8", ">i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "?", "<c8", ">c16", "S1", "S7"]
RECORDS = [
    [("a", "<i4"), ("b", ">f8")],
    np.dtype({"names": ["x", "y"], "formats": ["<u2", "<f4"], "offsets": [3, 12], "itemsize": 24}),
    [("p", "<f4", (3,)), ("q", "?"), ("r", "S5"), ("s", [("u", ">i2"), ("v", "<c8")])],
]
SHAPES = [(), (1,), (13,), (4, 7), (3, 0, 2), (2, 3, 4, 2)]


def types(file):
    for descr in PLAIN:
        for shape in SHAPES:
            name = f"{descr.replace('<', 'l').replace('>', 'b').replace('?', 'bool')}_{'x'.join(map(str, shape))}"
            file.create_dataset(name, data=numbers(descr, shape))
            if len(shape) in (1, 2) and 0 not in shape:
                chunk = tuple(max(1, axis // 2) for axis in shape)
                file.create_dataset(f"{name}_chunked", data=numbers(descr, shape), chunks=chunk, maxshape=(None,) * len(shape))
                if np.dtype(descr).kind in "iuf":
                    fill = np.array(7, descr)
                    file.create_dataset(f"{name}_filled", shape, descr, chunks=chunk, fillvalue=fill)[0] = 3
                    compact(file, f"{name}_compact", numbers(descr, shape))
    for number, descr in enumerate(RECORDS):
        for shape in [(), (5,), (2, 3)]:
            values = numbers(np.dtype(descr), shape)
            file.create_dataset(f"record{number}_{'x'.join(map(str, shape))}", data=values)
            if shape:
                file.create_dataset(f"record{number}_{len(shape)}_chunked", data=values, chunks=(2,) * len(shape), compression="gzip", shuffle=True)
    for number, (like, precision, offset) in enumerate([("STD_I16LE", 12, 3), ("STD_U32BE", 20, 7), ("STD_I64LE", 33, 0)]):
        kind = getattr(h5py.h5t, like).copy()
        kind.set_precision(precision)
        kind.set_offset(offset)
        values = np.random.default_rng(number).integers(-1000 if "I" in like[4:] else 0, 1000, (6, 5))
        for chunked in [False, True]:
            options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if chunked:
                options.set_chunk((4, 3))
                options.set_filter(h5py.h5z.FILTER_NBIT)
            space = h5py.h5s.create_simple((6, 5))
            dataset = h5py.h5d.create(file.id, b"bits%d_%d" % (number, chunked), kind, space, options)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    colours = h5py.enum_dtype({"red": 1, "green": 500, "blue": -3}, basetype="<i2")
    file.create_dataset("colours", data=np.array([[1, 500], [-3, 1]], "<i2"), dtype=colours)
    file.create_dataset("opaque", data=np.array([b"ab\0", b"xyz"], "V3"))
    dates = np.array(["2020-01-01", "1969-12-31T23:59:59", "NaT"], "M8[ms]")
    file.create_dataset("dates", data=dates.astype(h5py.opaque_dtype(dates.dtype)))
    file["committed"] = np.dtype("<i4")
    file.create_dataset("of_committed", data=np.arange(3, dtype="<i4"), dtype=file["committed"])
    file.create_dataset("array_type", data=numbers("<i4", (3, 2, 4)), dtype=np.dtype("<i4"))
    arrays = h5py.h5t.array_create(h5py.h5t.STD_I16BE, (2, 3))
    for chunked in [False, True]:
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunked:
            options.set_chunk((3,))
        dataset = h5py.h5d.create(file.id, b"arrays%d" % chunked, arrays, h5py.h5s.create_simple((5,)), options)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers("<i2", (5, 2, 3)),
                      h5py.h5t.array_create(h5py.h5t.NATIVE_INT16, (2, 3)))
    file.create_dataset("null", dtype="<f4", shape=None)
    file.create_dataset("nothing", (5, 6), "<f4")
    file.create_dataset("nothing_chunked", (5, 6), "<f4", chunks=(2, 2), fillvalue=2.5)


def compact(file, name, values):
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_layout(h5py.h5d.COMPACT)
    kind = h5py.h5t.py_create(values.dtype)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(values.shape), options)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values))


def texts(file):
    words = ["", "one", "zwei", "tränen", "日本語", "a much longer text " * 20]
    text = h5py.string_dtype()
    for shape in [(), (6,), (2, 3)]:
        values = np.array((words * 2)[:6], object).reshape(shape) if shape else "just this"
        label = "x".join(map(str, shape))
        file.create_dataset(f"varying_{label}", data=values, dtype=text)
        file.create_dataset(f"ascii_{label}", data=np.array([b"a", b"bb", b"", b"x", b"y", b"zz"], object).reshape(shape) if shape else b"q",
                            dtype=h5py.string_dtype("ascii"))
        if shape:
            file.create_dataset(f"varying_{label}_chunked", data=values, dtype=text, chunks=(2,) * len(shape), compression="gzip")
            file.create_dataset(f"unwritten_{label}", shape, text, chunks=(2,) * len(shape))
    for padding in [h5py.h5t.STR_NULLTERM, h5py.h5t.STR_NULLPAD, h5py.h5t.STR_SPACEPAD]:
        kind = h5py.h5t.TypeID.copy(h5py.h5t.C_S1)
        kind.set_size(9)
        kind.set_strpad(padding)
        for shape in [(), (3,)]:
            dataset = h5py.h5d.create(file.id, b"fixed_%d_%d" % (padding, len(shape)), kind, h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR))
            values = np.array([b"one  ", b"\xc3\xa4\0b", b"\xff  "][: 3 if shape else 1], "S9").reshape(shape)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)
    for base in ["<i4", "<f8", "u1"]:
        rows = np.empty((4,), object)
        for number in range(4):
            rows[number] = numbers(base, (number * 3,), number)
        plain = base
        file.create_dataset(f"rows_{plain[-2:]}", data=rows, dtype=h5py.vlen_dtype(np.dtype(plain)))
        file.create_dataset(f"rows_{plain[-2:]}_chunked", data=rows, dtype=h5py.vlen_dtype(np.dtype(plain)), chunks=(3,), compression="gzip")
    file.create_group("target/inner")
    refs = file.create_dataset("references", (3,), h5py.ref_dtype)
    refs[0], refs[1] = file["target"].ref, file["rows_i4"].ref
    mixed = np.dtype([("name", text), ("at", h5py.ref_dtype), ("n", "<i2"), ("row", h5py.vlen_dtype("<f4"))])
    data = np.zeros(3, mixed)
    for number in range(3):
        data[number] = (words[number + 2], file["target/inner"].ref if number else None, number - 1, np.arange(number, dtype="<f4"))
    file.create_dataset("mixed", data=data)


def attributes(file):
    for owner in [file, file.create_group("g"), file.create_dataset("d", data=np.arange(3)), file.create_group("ordered", track_order=True)]:
        for descr in PLAIN:
            name = descr.replace("<", "l").replace(">", "b")
            for shape in [(), (1,), (3,), (2, 2), (0,)]:
                owner.attrs.create(f"{name} {shape}", numbers(descr, shape))
        owner.attrs["text"] = "tränen"
        owner.attrs["bytes"] = b"abc"
        owner.attrs["texts"] = ["a", "", "ccc"]
        owner.attrs["empty"] = h5py.Empty("<f4")
        owner.attrs["record"] = numbers(np.dtype(RECORDS[2]), (2,))
        owner.attrs["reference"] = file.ref
        owner.attrs.create("rows", np.array([np.arange(2), np.arange(3)], object), dtype=h5py.vlen_dtype("<i8"))
        owner.attrs.create("enum", np.array([1, 2], "<i4"), dtype=h5py.enum_dtype({"A": 1, "B": 2}))
        if isinstance(owner, h5py.Group):
            owner.attrs["large"] = np.arange(6000)
        owner.attrs["gone"] = 1
        del owner.attrs["gone"]


def groups(file, count):
    for name, ordered in [("plain", False), ("ordered", True)]:
        group = file.create_group(name, track_order=ordered)
        for number in range(count):
            inner = group.create_group(f"n{number * 7919 % count}_{'x' * (number % 40)}")
            if number % 5 == 0:
                inner.attrs["number"] = number
                inner["data"] = np.arange(number % 9)
            if number % 7 == 0:
                group[f"soft{number}"] = h5py.SoftLink(f"/{name}")
                group[f"lost{number}"] = h5py.SoftLink("nowhere/at all")
                group[f"out{number}"] = h5py.ExternalLink("no.h5", "/x")
        for number in range(0, count, 3):
            del group[f"n{number * 7919 % count}_{'x' * (number % 40)}"]
    file["hard"] = file["plain"]
    file["plain/up"] = file["/"]
    file["ordered/self"] = file["ordered"]


AXES = [
    ((100,), (100,), (1,)), ((1500,), (4000,), (1,)), ((5, 7), (50, 70), (2, 3)), ((13,), (None,), (2,)), ((2500,), (None,), (1,)),
    ((30, 20), (None, 20), (3, 7)), ((30, 20), (30, None), (3, 7)), ((30, 20), (33, None), (4, 7)), ((4, 30, 5), (9, None, 8), (2, 1, 3)),
    ((30, 20), (None, None), (3, 7)), ((4, 5, 6, 7), (None,) * 4, (1, 2, 3, 4)), ((10, 10), (10, 10), (10, 10)), ((40, 40), (None, None), (1, 1)),
]


def chunks(file, quick):
    random = np.random.default_rng(3)
    for number, (shape, most, chunk) in enumerate(AXES[::2] if quick else AXES):
        for filtered in [False, True]:
            options = dict(compression="gzip", shuffle=True) if filtered else {}
            for how in ["whole", "some", "early"]:
                if how == "early" and filtered:
                    continue
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                if how == "early":
                    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                dataset = file.create_dataset(f"x{number}_{filtered}_{how}", shape, "<i4", chunks=chunk, maxshape=most, dcpl=plist, **options)
                if how != "some":
                    dataset[...] = random.integers(0, 50, shape)
                    continue
                for place in random.integers(0, int(np.prod(shape)), 15):
                    dataset[np.unravel_index(place, shape)] = int(place)
    for number, most in enumerate([(None, 100), (None, None), (60, 100)]):
        dataset = file.create_dataset(f"shrunk{number}", (50, 50), "<i4", chunks=(5, 5), maxshape=most, compression="gzip" if number else None)
        dataset[...] = 1
        dataset.resize((12, 13))
        dataset[3] = 2
        dataset.resize((40, 30))


def filters(file, quick):
    random = np.random.default_rng(4)
    plugins = {
        "lz4": hdf5plugin.LZ4(), "lz4_blocks": hdf5plugin.LZ4(nbytes=1000), "zstd": hdf5plugin.Zstd(), "bzip2": hdf5plugin.BZip2(),
        "bitshuffle_none": hdf5plugin.Bitshuffle(cname="none"), "bitshuffle_lz4": hdf5plugin.Bitshuffle(),
        "bitshuffle_zstd": hdf5plugin.Bitshuffle(cname="zstd"), "bitshuffle_small": hdf5plugin.Bitshuffle(nelems=64),
        **{f"blosc_{name}_{shuffle}": hdf5plugin.Blosc(cname=name, shuffle=shuffle)
           for name in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] for shuffle in [0, 1, 2]},
        # Without and with a size of blocks, which hdf5plugin leaves to the library.
        **{f"blosc2_{name}_{filters}": hdf5plugin.Blosc2(cname=name, filters=filters)
           for name in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] for filters in [0, 1, 2, 3]},
        "blosc2_blocks": dict(compression=32026, compression_opts=(0, 256, 0, 0, 5, 1, 5)),
    }
    kinds = ["<i4", ">f8", "u1"] if quick else ["<i4", ">f8", "u1", "<u2", "S3"]
    for descr in kinds:
        shape = (50, 33)
        values = numbers(descr, shape) if descr == "S3" else (np.cumsum(random.integers(0, 4, shape)).reshape(shape) % 200).astype(descr)
        label = descr.replace("<", "l").replace(">", "b")
        plain = {
            "gzip": dict(compression="gzip"), "gzip_shuffle": dict(compression="gzip", shuffle=True), "lzf": dict(compression="lzf", shuffle=True),
            "fletcher": dict(fletcher32=True), "all": dict(compression="gzip", shuffle=True, fletcher32=True), "szip": dict(compression="szip"),
        }
        if descr[-2] == "i":
            plain |= {"scale": dict(scaleoffset=0), "scale_gzip": dict(scaleoffset=9, compression="gzip")}
        if descr[-2] == "f":
            plain |= {"scale": dict(scaleoffset=3)}
        for name, options in plain.items():
            if name == "szip" and descr[0] == "S":
                continue
            file.create_dataset(f"{label}_{name}", data=values, chunks=(16, 10), **options)
        for name, options in plugins.items():
            file.create_dataset(f"{label}_{name}", data=values, chunks=(16, 10), **options)
            file.create_dataset(f"{label}_{name}_shuffle", data=values, chunks=(50, 10), shuffle=True, fletcher32=True, **options)
        noise = file.create_dataset(f"{label}_noise", shape, descr, chunks=(16, 10), compression="lzf", maxshape=(None, None))
        noise[...] = numbers(descr, shape)
    records = numbers(np.dtype(RECORDS[2]), (70,))
    for name, options in {"gzip": dict(compression="gzip", shuffle=True), "zstd": hdf5plugin.Zstd(), "bitshuffle": hdf5plugin.Bitshuffle()}.items():
        file.create_dataset(f"records_{name}", data=records, chunks=(20,), **options)


def virtual(folder, version):
    source = f"source_{version}.h5"
    with h5py.File(folder / source, "w", libver=version) as file:
        for number in range(4):
            file.create_dataset(f"d{number}", data=np.arange(100, dtype="<i4").reshape(10, 10) + 1000 * number, chunks=(3, 4) if number % 2 else None)
        file.create_dataset("big", data=np.arange(12, dtype=">f8").reshape(3, 4))
        file.create_dataset("big_chunked", data=np.arange(12, dtype=">f8").reshape(3, 4), chunks=(2, 2), compression="gzip")
    with h5py.File(folder / f"virtual_{version}.h5", "w", libver=version) as file:
        layout = h5py.VirtualLayout((4, 10, 10), "<i4")
        for number in range(3):
            layout[number] = h5py.VirtualSource(source, f"d{number}", (10, 10))
        file.create_virtual_dataset("stack", layout, fillvalue=-5)
        layout = h5py.VirtualLayout((10, 20), "<i4")
        layout[::2, :10] = h5py.VirtualSource(source, "d0", (10, 10))[:5]
        layout[1::2, 3:20:3] = h5py.VirtualSource(source, "d1", (10, 10))[5:, 2:8]
        file.create_virtual_dataset("steps", layout, fillvalue=-5)
        layout = h5py.VirtualLayout((20,), "<i4")
        layout[[1, 5, 6, 9]] = h5py.VirtualSource(source, "d3", (10, 10))[3, [0, 2, 3, 9]]
        file.create_virtual_dataset("picked", layout)
        for name in ["big", "big_chunked"]:
            layout = h5py.VirtualLayout((4, 3), ">f8")
            layout[:4, 1] = h5py.VirtualSource(source, name, (3, 4))[2]
            layout[0, 2:] = h5py.VirtualSource(source, name, (3, 4))[1, 1:2]
            file.create_virtual_dataset(name, layout, fillvalue=0.5)
        file["own"] = np.arange(10)
        layout = h5py.VirtualLayout((20,), "<i8")
        layout[5:15] = h5py.VirtualSource(".", "own", (10,))
        file.create_virtual_dataset("same_file", layout)
        layout = h5py.VirtualLayout((2, 20), "<i8")
        layout[1] = h5py.VirtualSource(".", "same_file", (20,))
        file.create_virtual_dataset("twice", layout)


def external(folder, version):
    (folder / "external.raw").write_bytes(bytes(range(256)) * 20)
    with h5py.File(folder / f"external_{version}.h5", "w", libver=version) as file:
        file.create_dataset("one", (10, 20), "<u4", external=[("external.raw", 16, 800)])
        file.create_dataset("two", (300,), ">i2", external=[("external.raw", 5, 100), ("external.raw", 1000, h5py.h5f.UNLIMITED)])


def library():
    """The HDF5 library that h5py uses, for what h5py does not offer."""
    with open("/proc/self/maps") as maps:
        names = {line.split()[-1] for line in maps if "libhdf5-" in line and "h5py" in line}
    return ctypes.CDLL(sorted(names)[0])


def shared(folder, quick):
    """Messages that objects share: in lists and in B-trees, of types, attributes and others."""
    lib, number = library(), ctypes.c_int64
    configurations = {"all": [(2 | 8 | 32 | 2048 | 4096, 10)], "some": [(4096, 40), (2048 | 32, 5), (8 | 2, 10)]}
    for name, kinds in configurations.items():
        for most, least in [(50, 40), (0, 0)]:
            options = h5py.h5p.create(h5py.h5p.FILE_CREATE)
            assert lib.H5Pset_shared_mesg_nindexes(number(options.id), ctypes.c_uint(len(kinds))) >= 0
            for at, (bits, size) in enumerate(kinds):
                assert lib.H5Pset_shared_mesg_index(number(options.id), ctypes.c_uint(at), ctypes.c_uint(bits), ctypes.c_uint(size)) >= 0
            assert lib.H5Pset_shared_mesg_phase_change(number(options.id), ctypes.c_uint(most), ctypes.c_uint(least)) >= 0
            access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
            access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
            path = str(folder / f"shared_{name}_{most}.h5").encode()
            record = np.dtype([("a", "<i4"), ("b", "S5"), ("c", "<f8", (3,))])
            with h5py.File(h5py.h5f.create(path, h5py.h5f.ACC_TRUNC, options, access)) as file:
                for at in range(6 if quick else 40):
                    dataset = file.create_dataset(f"d{at}", (10, 12), record if at % 2 else "<f4", chunks=(5, 5), compression="gzip",
                                                  shuffle=True, fillvalue=None if at % 2 else 7.5)
                    for inner in range(1 + at % 15):
                        dataset.attrs[f"at{inner}"] = np.arange(20)
                    dataset.attrs["own"] = at
                    dataset.attrs.create("typed", np.zeros(3, record))


def heaps(file, quick):
    """Dense storage: many links and attributes, large ones, removed ones, and heaps with filters."""
    lib, number = library(), ctypes.c_int64
    group = file.create_group("large")
    for at in range(20):
        group.attrs[f"a{at}"] = numbers("u1", (1000 * at if at < 15 else 70_000 * (at - 14),))
    group = file.create_group("removed")
    for at in range(60 if quick else 2000):
        group.create_group(f"k{at}")
    for at in range(0, 60 if quick else 2000, 2):
        del group[f"k{at}"]
    group = file.create_group("long")
    for at in range(30 if quick else 300):
        group.create_group("n" * (20 + at % 100) + str(at))
    for name, most in [("packed", 20 if quick else 2000), ("packed_long", 12)]:
        options = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        assert lib.H5Pset_deflate(number(options.id), ctypes.c_uint(6)) >= 0
        lib.H5Pset_fletcher32(number(options.id))
        group = h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=options))
        for at in range(most):
            group[f"link{at}" + "h" * (at * 600 if name == "packed_long" else 0)] = h5py.SoftLink(f"/a/{at}" + "y" * (at % 100))
            group.attrs[f"at{at}"] = np.arange(at % 90)


def netcdf(folder):
    try:
        import netCDF4
    except ImportError:
        return
    for name, kind in [("four", "NETCDF4"), ("four_classic", "NETCDF4_CLASSIC")]:
        with netCDF4.Dataset(folder / f"{name}.nc", "w", format=kind) as file:
            file.title = "a title"
            file.createDimension("time", None)
            file.createDimension("lat", 7)
            file.createDimension("n", 5)
            lat = file.createVariable("lat", "f4", ("lat",))
            lat[:], lat.units = np.linspace(-90, 90, 7), "degrees"
            values = file.createVariable("t2m", "f8" if name != "four" else "i2", ("time", "lat"), zlib=True, shuffle=True, fill_value=-99)
            values[:] = np.arange(70).reshape(10, 7) % 50
            values.scale_factor = np.float32(0.5)
            letters = file.createVariable("letters", "S1", ("lat", "n"))
            letters[:] = netCDF4.stringtochar(np.array([b"ab", b"cde", b"", b"x", b"yy", b"zzzzz", b"q"], "S5"))
            if name == "four":
                names = file.createVariable("names", str, ("lat",))
                names[:] = np.array(["a", "", "ccc", "ä", "e", "f", "g"], object)
                inner = file.createGroup("inner/deep")
                inner.createVariable("x", "u8", ("time",), chunksizes=(3,))[:] = np.arange(10)
                record = file.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "record")
                file.createVariable("records", record, ("lat",))[:] = np.zeros(7, [("a", "i4"), ("b", "f8")])
                rows = file.createVLType("i4", "rows")
                variable = file.createVariable("ragged", rows, ("lat",))
                for number in range(7):
                    variable[number] = np.arange(number, dtype="i4")


def pytables(folder):
    try:
        import tables
    except ImportError:
        return
    with tables.open_file(str(folder / "pytables.h5"), "w") as file:
        group = file.create_group("/", "group", "a title")
        file.create_array(group, "numbers", np.arange(12).reshape(3, 4), "numbers")
        file.create_carray(group, "packed", obj=np.arange(1000).reshape(10, 100), filters=tables.Filters(5, "blosc:lz4"))
        file.create_carray(group, "lzo", obj=np.arange(1000, dtype="i2"), filters=tables.Filters(5, "zlib", fletcher32=True))
        grown = file.create_earray(group, "grown", tables.Float32Atom(), (0, 3), filters=tables.Filters(3, "bzip2"))
        grown.append(np.ones((7, 3), "f4"))
        rows = file.create_vlarray(group, "rows", tables.Int32Atom())
        for number in range(5):
            rows.append(np.arange(number))
        table = file.create_table(group, "table", {"a": tables.Int32Col(), "b": tables.StringCol(7), "c": tables.BoolCol(), "d": tables.Float64Col(shape=(2,))})
        for number in range(50):
            row = table.row
            row["a"], row["b"], row["c"], row["d"] = number, b"t%d" % number, number % 2, (number, -number)
            row.append()
        table.flush()
        table.cols.a.create_index()


def anndata(folder):
    try:
        import anndata
        import pandas
        import scipy.sparse
    except ImportError:
        return
    obs = pandas.DataFrame({"kind": pandas.Categorical(["a", "b", "a", "c"]), "count": [1, 2, 3, 4], "ok": [True, False, True, True],
                            "maybe": pandas.array([1, None, 3, 4], "Int64")}, index=[f"cell{n}" for n in range(4)])
    cells = anndata.AnnData(np.arange(12, dtype="f4").reshape(4, 3), obs=obs)
    cells.layers["sparse"] = scipy.sparse.csr_matrix(np.eye(4, 3, dtype="f4"))
    cells.uns["note"] = {"a": "text", "b": np.arange(3)}
    cells.obsm["X_pca"] = np.ones((4, 2))
    cells.write_h5ad(folder / "cells.h5ad", compression="gzip")
