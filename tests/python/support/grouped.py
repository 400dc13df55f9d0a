"""Containers of groups as the `expected.json` of the HDF5 files describes them (`tests/golden/hdf5/README.md`)."""

import ast
import errno
import io
import json
import os
import stat

import numpy as np
from PIL import Image

from .checks import assert_same_file, read_checked, sha256
from .typed import lines_of, same, unique


def check(entry, source, expected):
    """Compares what a mount shows of one golden file. Returns what is wrong, a line each."""
    wrong = []
    if expected["expect"] == "refused":
        assert_same_file(entry, source)
        return wrong
    assert stat.S_ISDIR(os.lstat(entry).st_mode), f"{source} should be a folder"
    tree = expected["tree"]
    found = set(walk(entry, tree))
    wrong += [f"not there: {path}" for path in sorted({*tree, "container.json"} - found)]
    wrong += [f"there: {path}" for path in sorted(found - {*tree, "container.json"})]
    raw = expected["raw"]
    listed = {f".raw/{path}" for path in walk(entry / ".raw", {})}
    wrong += [f"not in .raw: {path}" for path in sorted(set(raw) - listed)]
    for path, spec in {**tree, **raw}.items():
        if not os.path.lexists(entry / path):
            continue
        try:
            problem = check_node(entry / path, spec)
        except (OSError, AssertionError, ValueError, KeyError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            wrong.append(f"{path}: {problem}")
    if sha256(read_checked(entry / ".file")) != sha256(source.read_bytes()):
        wrong.append(".file has other bytes")
    return wrong + check_description(entry, expected)


def walk(folder, tree, below=""):
    """The files, links and empty folders below a folder. Folders that cannot be listed are themselves."""
    path = os.path.join(folder, below)
    try:
        names = os.listdir(path)
    except OSError:
        assert "eio_dir" in tree.get(below, {}), f"{path} cannot be listed"
        yield below
        return
    if not names and below:
        yield below
    for name in names:
        inner = f"{below}/{name}" if below else name
        mode = os.lstat(os.path.join(folder, inner)) if not is_broken(folder, inner) else None
        if mode is not None and stat.S_ISDIR(mode.st_mode):
            yield from walk(folder, tree, inner)
        else:
            yield inner


def is_broken(folder, path):
    """Whether the attributes of a listed file are EIO."""
    try:
        os.lstat(os.path.join(folder, path))
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    return False


def is_eio(path, start=0, size=None):
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            left = size
            while left is None or left > 0:
                read = file.read(min(left or 1 << 20, 1 << 20))
                if not read:
                    return False
                left = left - len(read) if left is not None else None
    except OSError as error:
        return error.errno == errno.EIO
    return False


def check_node(path, spec):
    """What is wrong with one file."""
    if "link" in spec:
        return None if os.readlink(path) == spec["link"] else f"leads to {os.readlink(path)}, not {spec['link']}"
    if "dir" in spec or "eio_dir" in spec:
        return None
    if "npy" in spec:
        return check_npy(path, spec)
    if "eio" in spec:
        if spec.get("size") is not None and os.lstat(path).st_size != spec["size"]:
            return f"has {os.lstat(path).st_size} bytes, not {spec['size']}"
        return None if is_eio(path) else "can be read"
    if "json" in spec:
        found = json.loads(read_checked(path), object_pairs_hook=unique)
        return None if alike(found, spec["json"]) else f"{found} instead of {spec['json']}"
    if "jsonl" in spec:
        rows = lines_of(path)
        good = len(rows) == spec["jsonl"]["rows"] and sha256(json.dumps(rows).encode()) == spec["jsonl"]["sha256"]
        return None if good else f"{len(rows)} rows: {rows[:5]}"
    if "png" in spec:
        wanted = spec["png"]
        image = Image.open(io.BytesIO(read_checked(path)))
        pixels = np.asarray(image).astype(">u2" if wanted["depth"] == 16 else "u1").tobytes()
        good = image.size == (wanted["w"], wanted["h"]) and len(image.getbands()) == wanted["c"]
        return None if good and sha256(pixels) == wanted["sha256"] else f"{image}"
    if "parquet" in spec:
        return check_parquet(path, spec["parquet"])
    data = read_checked(path)
    good = (len(data), sha256(data)) == (spec["file"]["size"], spec["file"]["sha256"])
    return None if good else f"{len(data)} bytes, {spec['file']['size']} expected"


def check_npy(path, spec):
    wanted = spec["npy"]
    # Not through the page cache, where damage behind the header covers it.
    with open(path, "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_DIRECT)) as file:
        version, _ = np.lib.format.read_magic(file)
        length = int.from_bytes(file.read(2 if version == 1 else 4), "little")
        header = ast.literal_eval(file.read(length).decode("utf-8" if version == 3 else "latin-1"))
        start = file.tell()
    shape, fortran, descr = header["shape"], header["fortran_order"], header["descr"]
    dtype = np.lib.format.descr_to_dtype(descr)
    assert start % 64 == 0, path
    if not alike(json.loads(json.dumps(descr)), wanted["descr"]) or list(shape) != wanted["shape"] or fortran:
        return f"{descr} {shape}, not {wanted['descr']} {wanted['shape']}"
    if os.lstat(path).st_size != start + dtype.itemsize * int(np.prod(shape, dtype=object)):
        return f"has {os.lstat(path).st_size} bytes"
    if spec.get("eio"):
        return None if is_eio(path, start, 1) else "can be read"
    for first, last in spec.get("bad", []):
        if not is_eio(path, start + first, last - first):
            return f"{first}..{last} can be read"
    for first, last, digest in wanted.get("good", []):
        with open(path, "rb", buffering=0) as file:
            file.seek(start + first)
            if sha256(file.read(last - first)) != digest:
                return f"{first}..{last} has other bytes"
    if wanted.get("sha256"):
        data = read_checked(path)[start:]
        return None if sha256(data) == wanted["sha256"] else f"other bytes: {data[:64]}"
    return None


def check_parquet(path, wanted):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    singles = {field.name for field in table.schema if "float" in str(field.type) and "double" not in str(field.type)}
    if table.num_rows != wanted["rows"] or table.column_names != list(wanted["columns"]):
        return f"{table.num_rows} rows of {table.column_names}"
    for name, values in wanted["columns"].items():
        found = nulled(json.loads(json.dumps(table[name].to_pylist(), default=plain)))
        if not (near(found, values) if name in singles else alike(found, values)):
            return f"{name}: {found} instead of {values}"
    return None


def plain(value):
    """Bytes and dates as JSON has them."""
    return value.decode() if isinstance(value, bytes) else value.isoformat()


def near(found, expected):
    """Whether numbers are those of a float32."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(near, found, expected))
    return found == expected if expected is None or found is None else np.float32(found) == np.float32(expected)


def nulled(value):
    if isinstance(value, list):
        return [nulled(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value


def alike(found, expected):
    """As `same`, with any text for an error."""
    if isinstance(expected, dict) and expected.get("error") == "*":
        return list(found) == ["error"] and isinstance(found["error"], str)
    if isinstance(expected, dict):
        return (isinstance(found, dict) and list(found) == list(expected)
                and all(alike(found[name], value) for name, value in expected.items()))
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(alike, found, expected))
    return same(found, expected)


def check_description(entry, expected):
    """What is wrong with container.json."""
    info = json.loads(read_checked(entry / "container.json"), object_pairs_hook=unique)
    wrong = []
    if info["format"] != "hdf5":
        wrong.append(f"format {info['format']}")
    left_out = info.get("links_left_out", [])
    if not alike(left_out, expected.get("links_left_out", [])):
        wrong.append(f"links left out: {left_out}")
    names = [name_of(item) for item in info["items"]]
    if names != [item["name"] for item in expected["items"]]:
        return [*wrong, f"items {names}"]
    for found, wanted in zip(info["items"], expected["items"]):
        for key, value in wanted.items():
            if key != "name" and not alike(found.get(key), value):
                wrong.append(f"item {wanted['name']}: {key} is {found.get(key)}, not {value}")
    left = {table["path"]: [column["column"] for column in table["left_out"]] for table in info.get("tables", [])}
    for path, spec in expected["tree"].items():
        if "parquet" in spec and left.get(path) != spec["parquet"]["left_out"]:
            wrong.append(f"left out of {path}: {left.get(path)}")
    return wrong


def name_of(item):
    if "name_hex" in item:
        return bytes.fromhex(item["name_hex"]).decode("utf-8", "surrogateescape")
    return item["name"]
