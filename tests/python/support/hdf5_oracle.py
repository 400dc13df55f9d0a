"""HDF5 files as h5py reads them, compared with what a mount shows (`docs/formats/hdf5.md`, section 7)."""

import base64
import collections
import errno
import json
import os

# Where the library looks for external files; it reads that once.
os.environ["HDF5_EXTFILE_PREFIX"] = "${ORIGIN}"

import h5py  # noqa: E402
import numpy as np  # noqa: E402

MOST = 4096
# Bytes of the elements of a dataset that are compared at most, and of an element that is shown as an array (section 10).
LARGEST = 256 << 20
ELEMENT = 64 << 20
# Filters that are not decoded: zfp, lzo.
LEFT_OUT = (32013, 305)
# Names that stand for themselves.
SUFFIXES = (".npy", ".json", ".jsonl", ".txt", ".bin", ".png", ".jpg", ".parquet", ".raw", ".shardfs")
PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ")


def compare(path, entry):
    """Compares all that h5py reads of a file with a mounted folder. Returns what is wrong, and what was counted."""
    oracle = Oracle(entry)
    with h5py.File(path, "r") as file:
        oracle.file = file
        oracle.walk_paths()
        oracle.group(file["/"], entry, (), 0)
    return oracle.wrong, oracle.counts


def compare_with_pyfive(path, entry):
    """Compares the numbers that pyfive, a reader without libhdf5, reads of a file with a mounted folder. Returns what is
    wrong, and what was counted. It reads fewer kinds of data than h5py, and what it does not read is only counted."""
    import pyfive

    wrong, counts = [], collections.Counter()
    with h5py.File(path, "r") as file:
        if file.userblock_size:
            # It counts places from the beginning of the file.
            return wrong, collections.Counter({"files that pyfive refuses": 1})
        datasets = []
        try:
            file.visititems(lambda name, thing: datasets.append((name, thing)) if isinstance(thing, h5py.Dataset) else None)
            second = pyfive.File(str(path))
        except Exception:  # of any kind: a damaged file, or what pyfive does not know
            return wrong, collections.Counter({"files that pyfive refuses": 1})
        for name, dataset in datasets:
            shown = entry / f"{name}.npy"
            # Booleans are integers there. Integers of fewer bits, virtual datasets and those in external files are not
            # what h5py reads.
            try:
                size = np.prod(dataset.shape or (), dtype=object) * dataset.dtype.itemsize
            except (TypeError, ValueError, KeyError):
                # A type that numpy does not have.
                continue
            bits = getattr(dataset.id.get_type(), "get_precision", lambda: 0)()
            is_whole = size <= LARGEST and dataset.dtype.kind in "iuf" and bits == 8 * dataset.dtype.itemsize
            if not is_whole or dataset.is_virtual or dataset.external or not PLAIN.issuperset(name.replace("/", "")) or not shown.is_file():
                continue
            try:
                expected = np.asarray(second[name][()])
            except Exception:
                counts["datasets that pyfive refuses"] += 1
                continue
            counts["datasets as pyfive reads them"] += 1
            found = np.load(shown)
            is_float = found.dtype.kind == "f"
            if found.shape != expected.shape or not np.array_equal(found, expected, equal_nan=is_float):
                wrong.append(f"{name}: pyfive reads {expected.ravel()[:5]}, shown is {found.ravel()[:5]}")
    return wrong, counts


class Oracle:
    """What is wrong with one file, and how much was compared."""

    def __init__(self, entry):
        self.entry, self.wrong, self.counts = entry, [], collections.Counter()
        self.paths = {}

    def walk_paths(self):
        """The path of each object: breadth-first, by the bytes of names."""
        queue = collections.deque([("/", self.file["/"])])
        self.paths[address(self.file["/"])] = "/"
        while queue:
            path, group = queue.popleft()
            for name in names_of(group):
                if not isinstance(link_of(group, name), h5py.HardLink):
                    continue
                try:
                    child = open_of(group, name)
                except (KeyError, OSError, TypeError):
                    continue
                if address(child) in self.paths:
                    continue
                self.paths[address(child)] = f"{path.rstrip('/')}/{name.decode('utf-8', 'surrogateescape')}"
                if isinstance(child, h5py.Group):
                    queue.append((self.paths[address(child)], child))

    def fail(self, path, text):
        self.wrong.append(f"{path}: {text}")

    def group(self, group, folder, above, depth):
        self.attributes(group, folder / "attributes.json")
        for name in names_of(group):
            text = name.decode("utf-8", "surrogateescape")
            self.counts["links"] += 1
            if not set(text) <= PLAIN or text.endswith(SUFFIXES) or text in (".", "..", "") or len(text) > 200:
                self.counts["odd names"] += 1
                continue
            link = link_of(group, name)
            if isinstance(link, h5py.SoftLink):
                self.soft(group, text, folder)
            if not isinstance(link, h5py.HardLink):
                continue
            try:
                child = open_of(group, name)
            except (KeyError, OSError) as error:
                self.counts["refused by h5py"] += 1
                if not is_eio(folder / f"{text}.bin"):
                    self.fail(folder / text, f"h5py: {error}, and it can be read")
                continue
            if isinstance(child, h5py.Group):
                here = (*above, address(group))
                if address(child) in here:
                    self.counts["ancestors"] += 1
                    if not os.path.islink(folder / text):
                        self.fail(folder / text, "an ancestor that is no link")
                elif depth < 12:
                    self.group(child, folder / text, here, depth + 1)
                continue
            self.attributes(child, folder / f"{text}.attrs.json")
            if isinstance(child, h5py.Dataset):
                self.dataset(child, folder, text)

    def soft(self, group, text, folder):
        """A soft link to a group leads to one."""
        try:
            target = group[text]
        except (KeyError, OSError, RuntimeError):
            return
        if target.file.filename != self.file.filename:
            return
        if isinstance(target, h5py.Group) and not os.path.isdir(folder / text):
            self.fail(folder / text, "a link to a group that leads nowhere")
        self.counts["soft links"] += 1

    def dataset(self, dataset, folder, name):
        self.counts["datasets"] += 1
        kind = kind_of(dataset.id.get_type())
        if is_text(dataset.id.get_type()) and not dataset.shape:
            kind = "text"
        self.counts[f"datasets: {kind}"] += 1
        size = dataset.id.get_type().get_size()
        if np.prod(dataset.shape or (), dtype=object) * size > LARGEST:
            self.counts["too large to compare"] += 1
            return
        if size > ELEMENT:
            kind = "unsupported"
        made = dataset.id.get_create_plist()
        if any(made.get_filter(at)[0] in LEFT_OUT for at in range(made.get_nfilters())):
            self.counts["filters that are left out"] += 1
            return
        try:
            if dataset.id.get_space().get_simple_extent_type() == h5py.h5s.NULL:
                return
            getattr(self, kind)(dataset, folder, name)
        except Unreadable:
            self.counts["types that h5py does not read"] += 1
        except (AssertionError, ValueError, KeyError, FileNotFoundError, TypeError) as error:
            self.fail(folder / name, f"{type(error).__name__}: {str(error)[:300]}")
        except OSError as error:
            self.fail(folder / name, f"cannot be read: {error}")

    def raw(self, dataset):
        """The elements as they are stored, by the type of the file; `None` if h5py cannot read them."""
        kind = dataset.id.get_type()
        out = np.zeros(dataset.shape, f"V{kind.get_size()}")
        try:
            if out.size:
                dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, kind)
        except (OSError, RuntimeError) as error:
            return str(error)
        return out

    def plain(self, dataset, folder, name):
        path = folder / f"{name}.npy"
        wanted = packed(dataset.dtype)
        try:
            values = dataset[()]
        except (OSError, RuntimeError) as error:
            if "no appropriate function for conversion path" in str(error):
                # Opaque bytes whose tag h5py does not know: without a conversion they are read.
                raw = self.raw(dataset)
                assert np.load(path).tobytes() == raw.tobytes(), "other bytes"
                return
            self.counts["unreadable"] += 1
            assert is_eio(path), f"h5py: {error}, and it can be read"
            return
        values = np.asarray(values)
        if is_text(dataset.id.get_type()):
            values = self.raw(dataset).view(f"S{dataset.id.get_type().get_size()}")
        expected = repacked(values, wanted)
        if wanted.names:
            # Texts are shown as they are stored, also behind their ends.
            with_stored_texts(expected, self.raw(dataset), dataset.id.get_type())
        found = np.load(path, allow_pickle=False)
        self.counts["bytes"] += found.nbytes
        assert found.dtype == expected.dtype, f"{found.dtype} instead of {expected.dtype}"
        assert found.shape == expected.shape, f"{found.shape} instead of {expected.shape}"
        assert found.tobytes() == expected.tobytes(), f"other elements: {differs(found, expected)}"
        self.ranges(path, expected.tobytes())
        if dataset.id.get_type().get_class() == h5py.h5t.STRING:
            self.fixed(dataset, folder, name)

    def values(self, dataset):
        try:
            return dataset[()]
        except (TypeError, KeyError) as error:
            raise Unreadable from error

    def ranges(self, path, data):
        """Some ranges of a file, whose header comes first."""
        with open(path, "rb", buffering=0) as file:
            head = os.fstat(file.fileno()).st_size - len(data)
            for start, length in [(0, 1), (len(data) // 3, 999), (len(data) * 2 // 3 + 1, 70_001), (len(data) - 5, 10)]:
                start = max(start, 0)
                found = os.pread(file.fileno(), length, head + start)
                assert found == data[start:start + length], f"other bytes at {start}"

    def fixed(self, dataset, folder, name):
        kind = dataset.id.get_type()
        rows = [cut(bytes(row), kind.get_strpad()) for row in self.raw(dataset).reshape(-1).tolist()]
        if not dataset.shape:
            assert (folder / f"{name}.txt").read_bytes() == rows[0]
            return
        self.rows_of_text(folder, name, rows)

    def rows_of_text(self, folder, name, rows):
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        assert lines == [text_json(row) for row in rows], f"other lines: {lines[:3]}"
        offsets = np.load(folder / name / "offsets.npy")
        assert offsets.tolist() == [0, *np.cumsum([len(row) for row in rows], dtype=np.int64).tolist()]
        assert (folder / name / "utf8.bin").read_bytes() == b"".join(rows)

    def text(self, dataset, folder, name):
        if dataset.id.get_type().is_variable_str():
            values = dataset[()]
            rows = [values] if not dataset.shape else values.reshape(-1).tolist()
            rows = [row if isinstance(row, bytes) else row.encode("utf-8", "surrogateescape") for row in rows]
        else:
            rows = [cut(bytes(self.raw(dataset).tolist()), dataset.id.get_type().get_strpad())]
        if not dataset.shape:
            assert (folder / f"{name}.txt").read_bytes() == rows[0], rows[0]
        else:
            self.rows_of_text(folder, name, rows)

    def sequence(self, dataset, folder, name):
        values = self.values(dataset)
        rows = [values] if not dataset.shape else values.reshape(-1).tolist()
        offsets, found = np.load(folder / name / "offsets.npy"), np.load(folder / name / "values.npy")
        wanted = packed(h5py.check_vlen_dtype(dataset.dtype))
        # h5py 3.16 does not swap big-endian items, and says that they are little-endian.
        base = h5py.check_vlen_dtype(dataset.dtype)
        rows = [np.asarray(row).view(base) if base.byteorder == ">" else np.asarray(row) for row in rows]
        assert offsets.tolist() == [0, *np.cumsum([len(row) for row in rows], dtype=np.int64).tolist()]
        data = b"".join(repacked(row, wanted).tobytes() for row in rows if len(row))
        assert found.tobytes() == data

    def reference(self, dataset, folder, name):
        values = self.values(dataset)
        rows = [values] if not dataset.shape else list(values.reshape(-1))
        found = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        expected = [self.as_json(row, dataset.id.get_type()) for row in rows]
        assert found == [row and row["path"] for row in expected], f"other references: {found[:3]}"

    def rows(self, dataset, folder, name):
        values = np.asarray(self.values(dataset))
        # Axes of an array type follow those of the dataset.
        rows = list(values.reshape(-1, *values.shape[len(dataset.shape):])) if values.shape else [values[()]]
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        expected = [self.as_json(row, dataset.id.get_type()) for row in rows]
        assert same(lines, expected), f"other rows: {lines[:2]} instead of {expected[:2]}"

    def unsupported(self, dataset, folder, name):
        out = self.raw(dataset)
        if isinstance(out, str):
            return
        assert (folder / f"{name}.bin").read_bytes() == out.tobytes()

    def attributes(self, item, path):
        names = attribute_names(item)
        if not names:
            if os.path.lexists(path):
                self.fail(path, "there, without attributes")
            return
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            self.fail(path, f"{error}")
            return
        if sorted(found) != sorted(names):
            self.fail(path, f"names {sorted(found)[:9]} instead of {sorted(names)[:9]}")
            return
        for name in names:
            self.counts["attributes"] += 1
            try:
                attribute = h5py.h5a.open(item.id, name.encode())
                value = found[name]
                try:
                    expected = self.attribute(attribute)
                except OSError as error:
                    if "no appropriate function for conversion path" not in str(error):
                        raise
                    self.counts["attributes that h5py cannot read"] += 1
                    continue
                if isinstance(expected, Large):
                    array = np.load(path.parent / value["npy"])
                    if array.tobytes() != expected.array.tobytes() or array.dtype != expected.array.dtype:
                        self.fail(path, f"{name}: another array")
                elif not same(value, expected):
                    self.fail(path, f"{name}: {str(value)[:200]} instead of {str(expected)[:200]}")
            except (OSError, TypeError, ValueError, KeyError) as error:
                if list(found[name]) != ["error"] if isinstance(found[name], dict) else True:
                    self.fail(path, f"{name}: h5py says {error}, shown is {str(found[name])[:100]}")
                self.counts["attributes that h5py cannot read"] += 1

    def attribute(self, attribute):
        if attribute.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return None
        kind = attribute.get_type()
        inner = kind.get_array_dims() if kind.get_class() == h5py.h5t.ARRAY else ()
        if is_text(kind) and not kind.is_variable_str():
            out = np.zeros(attribute.shape, f"V{kind.get_size()}")
            if out.size:
                attribute.read(out, mtype=kind)
            return nested(out, lambda row: text_json(cut(bytes(row), kind.get_strpad())))
        dtype = attribute.dtype
        if inner:
            dtype = dtype.base if dtype.subdtype else dtype
        out = np.empty((*attribute.shape, *inner), dtype)
        if out.size:
            attribute.read(out, mtype=h5py.h5t.py_create(attribute.dtype))
        if kind_of(kind) == "plain" and np.prod(attribute.shape, dtype=object) > MOST:
            return Large(repacked(out, packed(dtype)))
        base = kind.get_super() if inner else kind
        return nested(out, lambda value: self.as_json(value, base))

    def as_json(self, value, kind):
        """One value as attributes and lines show it."""
        group = kind.get_class()
        if group == h5py.h5t.ENUM:
            if is_bool(kind):
                return bool(value)
            return self.as_json(value, kind.get_super())
        if group in (h5py.h5t.INTEGER, h5py.h5t.BITFIELD):
            return int(value)
        if group == h5py.h5t.FLOAT:
            value = np.asarray(value)[()]
            return float(repr(value.item()) if value.dtype.itemsize == 8 else str(value)) if np.isfinite(value) else None
        if group == h5py.h5t.STRING:
            if kind.is_variable_str():
                return text_json(value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape"))
            return text_json(cut(bytes(value), h5py.h5t.STR_NULLPAD if kind.get_strpad() != h5py.h5t.STR_SPACEPAD
                                 else h5py.h5t.STR_SPACEPAD))
        if group == h5py.h5t.REFERENCE:
            if not value:
                return None
            try:
                target = self.file[value]
            except (ValueError, OSError, RuntimeError):
                return None
            path = self.paths.get(address(target))
            return None if path is None else {"path": path}
        if group == h5py.h5t.VLEN:
            return [self.as_json(inner, kind.get_super()) for inner in value]
        if group == h5py.h5t.ARRAY:
            return nested(np.asarray(value), lambda inner: self.as_json(inner, kind.get_super()))
        if group == h5py.h5t.COMPOUND and np.asarray(value).dtype.kind == "c":
            return complex_json(value)
        if group == h5py.h5t.COMPOUND:
            members = [(kind.get_member_offset(number), number) for number in range(kind.get_nmembers())]
            return {kind.get_member_name(number).decode("utf-8", "replace"):
                    self.as_json(value[kind.get_member_name(number).decode("utf-8", "replace")], kind.get_member_type(number))
                    for _, number in sorted(members)}
        if np.asarray(value).dtype.kind == "c":
            return complex_json(value)
        if group == h5py.h5t.OPAQUE:
            array = np.asarray(value)
            return int(array.view("i8")) if array.dtype.kind in "mM" else {"base64": base64.b64encode(array.tobytes()).decode()}
        raise TypeError(f"class {group}")


class Unreadable(Exception):
    """A type that h5py has no type of numpy for."""


class Large:
    """An attribute that is an array of its own."""

    def __init__(self, array):
        self.array = array


def complex_json(value):
    parts = [np.asarray(value).real[()], np.asarray(value).imag[()]]
    return [float(str(part)) if np.isfinite(part) else None for part in parts]


def differs(found, expected):
    if found.dtype.kind == "V":
        return "records"
    at = np.flatnonzero((found != expected).reshape(-1))
    return f"{len(at)}, first {at[:3]}: {found.reshape(-1)[at[:3]]} instead of {expected.reshape(-1)[at[:3]]}"


def nested(array, each, axes=None):
    """An array as nested lists; elements may be arrays themselves."""
    axes = array.ndim if axes is None else axes
    if axes == 0:
        return each(array[()] if isinstance(array, np.ndarray) and array.ndim == 0 else array)
    return [nested(part, each, axes - 1) for part in array]


def address(item):
    return h5py.h5o.get_info(item.id).addr


def names_of(group):
    return sorted(group.id)


def link_of(group, name):
    info = group.id.links.get_info(name)
    if info.type == h5py.h5l.TYPE_HARD:
        return h5py.HardLink()
    if info.type == h5py.h5l.TYPE_SOFT:
        return h5py.SoftLink(group.id.links.get_val(name))
    return None


def open_of(group, name):
    found = h5py.h5o.open(group.id, name)
    if isinstance(found, h5py.h5g.GroupID):
        return h5py.Group(found)
    return h5py.Dataset(found) if isinstance(found, h5py.h5d.DatasetID) else h5py.Datatype(found)


def attribute_names(item):
    found = []
    h5py.h5a.iterate(item.id, lambda name, *_: found.append(bytes(name).decode("utf-8", "surrogateescape")) or None)
    return [name for name in found if set(name) <= PLAIN or name.isprintable()]


def is_text(kind):
    return kind.get_class() == h5py.h5t.STRING


def is_bool(kind):
    if kind.get_size() != 1 or kind.get_nmembers() != 2:
        return False
    members = {kind.get_member_name(number): kind.get_member_value(number) for number in range(2)}
    return members == {b"FALSE": 0, b"TRUE": 1}


def kind_of(kind):
    """How a dataset of a type is shown."""
    group = kind.get_class()
    if group == h5py.h5t.STRING:
        return "text" if kind.is_variable_str() else "plain"
    if group == h5py.h5t.VLEN:
        return "sequence" if kind_of(kind.get_super()) == "plain" else "rows"
    if group == h5py.h5t.REFERENCE:
        return "reference"
    if group == h5py.h5t.ARRAY:
        inner = kind_of(kind.get_super())
        return inner if inner in ("plain", "unsupported") else "rows"
    if group == h5py.h5t.COMPOUND:
        inner = {kind_of(kind.get_member_type(number)) for number in range(kind.get_nmembers())}
        if "unsupported" in inner:
            return "unsupported"
        return "plain" if inner <= {"plain"} else "rows"
    if group == h5py.h5t.FLOAT:
        return "plain" if kind.get_size() in (2, 4, 8) and kind.get_order() != h5py.h5t.ORDER_VAX else "unsupported"
    if group == h5py.h5t.BITFIELD:
        return "plain" if kind.get_size() in (1, 2, 4, 8) else "unsupported"
    return "unsupported" if group == h5py.h5t.TIME else "plain"


def packed(dtype):
    """A numpy type without holes, little-endian."""
    if dtype.subdtype:
        base, shape = dtype.subdtype
        # numpy joins the axes of arrays of arrays only from the inside.
        inner = packed(base)
        return np.dtype((inner.base, (*shape, *inner.shape)))
    if dtype.names:
        fields = sorted(dtype.names, key=lambda name: dtype.fields[name][1])
        return np.dtype([(name, packed(dtype.fields[name][0])) for name in fields])
    return np.dtype(dtype.newbyteorder("<").str if dtype.kind != "V" else dtype.str)


def repacked(values, wanted):
    if wanted.subdtype:
        wanted = wanted.base
    if not wanted.names:
        return np.ascontiguousarray(values.astype(wanted)) if values.ndim else values.astype(wanted)
    out = np.zeros(values.shape, wanted)
    for name in wanted.names:
        out[name] = repacked(np.asarray(values[name]), wanted.fields[name][0])
    return out


def with_stored_texts(records, stored, kind):
    """Puts the stored bytes of texts into packed records."""
    if isinstance(stored, str) or kind.get_class() != h5py.h5t.COMPOUND:
        return
    for number in range(kind.get_nmembers()):
        member, at = kind.get_member_type(number), kind.get_member_offset(number)
        name = kind.get_member_name(number).decode("utf-8", "replace")
        size = member.get_size()
        view = np.dtype({"names": ["x"], "formats": [f"V{size}"], "offsets": [at], "itemsize": stored.dtype.itemsize})
        here = np.ascontiguousarray(stored.view(view)["x"])
        if member.get_class() == h5py.h5t.COMPOUND and name in (records.dtype.names or ()) and records.dtype[name].names:
            with_stored_texts(records[name], here, member)
        elif is_text(member) and not member.is_variable_str():
            records[name] = here.view(f"S{size}")


def cut(row, padding):
    if padding == h5py.h5t.STR_SPACEPAD:
        return row.rstrip(b" ")
    if padding == h5py.h5t.STR_NULLTERM:
        return row.split(b"\0")[0]
    return row.rstrip(b"\0")


def text_json(row):
    try:
        return row.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(row).decode()}


def same(found, expected):
    if isinstance(expected, dict):
        return isinstance(found, dict) and list(found) == list(expected) and all(same(found[n], v) for n, v in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and isinstance(found, (int, float)) and not isinstance(found, bool):
        return found == expected
    return type(found) is type(expected) and found == expected


def is_eio(path):
    try:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except OSError as error:
        return error.errno == errno.EIO
    return False
