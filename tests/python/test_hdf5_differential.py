"""HDF5 files of all kinds, element by element against h5py, and data in other files that change."""

import collections
import ctypes
import errno
import io
import itertools
import json
import os
import struct

import pytest

from support import GOLDEN, hdf5_oracle, load_npy, mounted, run, seen_within  # before h5py: it says where external files are
from support.writers import hdf5_kinds
from support.writers.hdf5 import lookup3

import h5py
import numpy as np


def test_every_kind_of_file_is_what_h5py_reads(tmp_path):
    hdf5_kinds.write_all(tmp_path, quick=True)
    counts, wrong = collections.Counter(), []
    with mounted(tmp_path) as mnt:
        for path in sorted(tmp_path.iterdir()):
            if path.suffix != ".raw":
                found, here = hdf5_oracle.compare(path, mnt / path.name)
                wrong += found
                counts += here
    assert not wrong, "\n".join(wrong)
    assert counts["datasets"] > 1000 and counts["attributes"] > 1000 and counts["links"] > 1500, counts


def element(path, place):
    """An element, or `None` while the state that was there is gone."""
    try:
        return load_npy(path)[place]
    except OSError:
        return None


def test_a_change_of_another_file_is_shown(tmp_path):
    hdf5_kinds.virtual(tmp_path, "latest")
    hdf5_kinds.external(tmp_path, "latest")
    with mounted(tmp_path) as mnt:
        stack, one = mnt / "virtual_latest.h5/stack.npy", mnt / "external_latest.h5/one.npy"
        before = np.load(stack), np.load(one)
        assert before[0][1, 0, 0] == 1000 and before[1][0, 0] == 0x13121110
        with h5py.File(tmp_path / "source_latest.h5", "a") as file:
            file["d1"][0, 0] = 77
        with open(tmp_path / "external.raw", "r+b") as file:
            file.seek(16)
            file.write(b"\1\2\3\4")
        assert seen_within(10, lambda: element(stack, (1, 0, 0)) == 77)
        assert seen_within(10, lambda: element(one, (0, 0)) == 0x04030201)


def test_what_is_missing_is_an_error_and_comes_when_it_is_there(tmp_path):
    hdf5_kinds.virtual(tmp_path, "latest")
    (tmp_path / "source_latest.h5").rename(tmp_path / "away.h5")
    with mounted(tmp_path) as mnt:
        stack = mnt / "virtual_latest.h5/stack.npy"
        with pytest.raises(OSError):
            np.load(stack)
        (tmp_path / "away.h5").rename(tmp_path / "source_latest.h5")
        assert seen_within(10, lambda: element(stack, (2, 9, 9)) == 2099)


def test_a_change_of_what_a_link_leads_to_is_shown(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["link"] = h5py.ExternalLink("./b.h5", "/x")
    with mounted(tmp_path) as mnt:
        assert [name for name in os.listdir(mnt / "a.h5") if name.startswith("link")] == []
        with h5py.File(tmp_path / "b.h5", "w") as file:
            file["x"] = np.arange(3)
        assert seen_within(10, lambda: os.listdir(mnt / "a.h5").count("link.npy") == 1)
        assert np.load(mnt / "a.h5/link.npy").tolist() == [0, 1, 2]
        with h5py.File(tmp_path / "b.h5", "w") as file:
            file["x/y"] = np.arange(4)
        assert seen_within(10, lambda: "link" in os.listdir(mnt / "a.h5"))
        assert os.readlink(mnt / "a.h5/link") == "../b.h5/x"
        assert np.load(mnt / "a.h5/link/y.npy").tolist() == [0, 1, 2, 3]
        (tmp_path / "b.h5").unlink()
        assert seen_within(10, lambda: "link" not in os.listdir(mnt / "a.h5"))


def test_a_damaged_attribute_is_named_with_its_byte(tmp_path):
    """Its type has a class that does not exist. The message has no checksum in this file."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(3)
        file["x"].attrs["scale_of_x"] = np.float32(2)
        file["x"].attrs["unit"] = "m"
    data = bytearray((tmp_path / "x.h5").read_bytes())
    # The name is padded to 16 bytes; the type follows.
    at = data.index(b"scale_of_x\0") + 16
    data[at] = 0x1F
    (tmp_path / "x.h5").write_bytes(data)
    with mounted(tmp_path) as mnt:
        found = json.loads((mnt / "x.h5/x.attrs.json").read_bytes())
        assert list(found["scale_of_x"]) == ["error"] and found["unit"] == "m"
        lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
        problem = next(line for line in lines if "scale_of_x" in line["message"])
        assert problem["path"].endswith("x.attrs.json") and at <= problem["offset"] <= at + 8


def test_a_type_that_is_shared_in_the_oldest_way(tmp_path):
    """Old libraries name a committed type by an entry of a symbol table, in which an address stands second."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype([("a", "<i4"), ("b", ">f8")])
        data = file.create_dataset("x", data=np.array([(1, 2.5), (3, 4.5)], file["type"].dtype), dtype=file["type"])
        # Its message makes room for the other one.
        data.attrs["room"] = np.arange(9)
        header, there = (h5py.h5o.get_info(file[name].id).addr for name in ("x", "type"))
    data = bytearray(path.read_bytes())
    size = struct.unpack_from("<I", data, header + 8)[0]
    at, messages = header + 16, []
    while at < header + 16 + size:
        kind, length, flags = struct.unpack_from("<HHB", data, at)
        messages.append((kind, flags, bytes(data[at + 8:at + 8 + length])))
        at += 8 + length
    assert any(kind == 0x0C for kind, *_ in messages) and all(kind != 0x10 for kind, *_ in messages)
    made = b""
    for kind, flags, body in messages:
        if kind == 0x03:
            assert flags & 2
            body = struct.pack("<B7xQQ24x", 1, 8, there)
        if kind not in (0, 0x0C):
            made += struct.pack("<HHB3x", kind, len(body), flags) + body
    made += struct.pack("<HHB3x", 0, size - len(made) - 8, 0)
    count = sum(kind not in (0, 0x0C) for kind, *_ in messages) + 1
    data[header + 2:header + 4] = struct.pack("<H", count)
    data[header + 16:header + 16 + size] = made.ljust(size, b"\0")
    path.write_bytes(data)
    with h5py.File(path) as file:
        expected = file["x"][()]
    assert expected["b"].tolist() == [2.5, 4.5]
    with mounted(tmp_path) as mnt:
        found = np.load(mnt / "x.h5/x.npy")
        assert found["a"].tolist() == expected["a"].tolist() and found["b"].tolist() == expected["b"].tolist()


def test_a_link_is_no_damage():
    """What a link in a container leads to is verified at its own place."""
    done = run("verify", GOLDEN / "hdf5/links")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["earliest", "latest"])
@pytest.mark.parametrize("offset, length", [(4, 4), (8, 4), (4, 8), (2, 4), (8, 2)])
def test_addresses_and_lengths_of_other_sizes(tmp_path, version, offset, length):
    """Their heads are padded as if lengths had 8 bytes; names of links are found by lengths."""
    options, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    options.set_sizes(offset, length)
    bound = h5py.h5f.LIBVER_LATEST
    access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST if version == "earliest" else bound, bound)
    path = tmp_path / "sizes.h5"
    with h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, options, access)) as file:
        for name in ["g/h", "g/x", "y"]:
            file.create_group(name)
        file["g/soft"] = h5py.SoftLink("/g/texts")
        file["g/texts"] = ["one", "", "a longer text", "zwei"]
        rows = np.empty(3, object)
        rows[:] = [np.arange(2), np.arange(0), np.arange(5)]
        file.create_dataset("g/h/rows", data=rows, dtype=h5py.vlen_dtype("<i4"))
        file.create_dataset("g/h/chunked", data=np.arange(60).reshape(6, 10), chunks=(4, 3), compression="gzip")
        file["g/texts"].attrs["unit"] = "m"
        file["y"].attrs["words"] = ["a", "", "ccc"]
    with mounted(tmp_path) as mnt:
        wrong, counts = hdf5_oracle.compare(path, mnt / "sizes.h5")
    assert not wrong, "\n".join(wrong)
    assert counts["datasets"] == 3 and counts["attributes"] == 2, counts


def test_lzf_of_what_another_filter_compressed(tmp_path):
    """How many bytes come out of lzf is then not known before."""
    values = np.arange(3000, dtype="<i4").reshape(60, 50) % 77
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, first in [("gzip", h5py.h5z.FILTER_DEFLATE), ("lzf", h5py.h5z.FILTER_LZF)]:
            made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            made.set_chunk((16, 50))
            made.set_filter(first, 0, (4,) if name == "gzip" else ())
            made.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL, ())
            kind, space = h5py.h5t.STD_I32LE, h5py.h5s.create_simple(values.shape)
            h5py.h5d.create(file.id, name.encode(), kind, space, made).write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    with mounted(tmp_path) as mnt:
        wrong, counts = hdf5_oracle.compare(tmp_path / "x.h5", mnt / "x.h5")
    assert not wrong, "\n".join(wrong)
    assert counts["datasets"] == 2


@pytest.mark.parametrize("index", ["B-tree 1", "B-tree 2"])
@pytest.mark.parametrize(("number", "moved", "reason"), [
    (0, (9, 0, 0), "do not ascend"), (3, (1, 1, 1), "a chunk beyond the greatest shape")])
def test_chunks_in_wrong_places_are_damage(index, number, moved, reason, tmp_path):
    """A chunk that is elsewhere leaves zeros where it was."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest" if index == "B-tree 2" else "earliest") as file:
        file.create_dataset("x", data=np.arange(1, 33).reshape(4, 4, 2), chunks=(2, 2, 2), maxshape=(None, None, 2))
    data, place = bytearray((tmp_path / "x.h5").read_bytes()), (number // 2, number % 2, 0)
    if index == "B-tree 2":
        # Records: address and place, counted in chunks.
        leaf = data.index(b"BTLF")
        at, end = leaf + 6 + 32 * number + 8, leaf + 6 + 32 * 4
        assert struct.unpack_from("<3Q", data, at) == place
        data[at:at + 24] = struct.pack("<3Q", *moved)
        data[end:end + 4] = struct.pack("<I", lookup3(bytes(data[leaf:end])))
    else:
        # Keys: size, mask, offsets of the axes and of the element; then the address of the chunk.
        at = data.index(struct.pack("<II4Q", 64, 0, *(2 * axis for axis in place), 0)) + 8
        data[at:at + 24] = struct.pack("<3Q", *(2 * axis for axis in moved))
    (tmp_path / "x.h5").write_bytes(data)
    with h5py.File(tmp_path / "x.h5") as file:
        assert 0 in file["x"][()]
    with mounted(tmp_path) as mnt:
        assert hdf5_oracle.is_eio(mnt / "x.h5/x.npy")
        lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
        assert any(reason in line["message"] for line in lines)


def test_a_dataset_ends_where_its_layout_says(tmp_path):
    """Axes that are longer would show what follows in the file."""
    with h5py.File(tmp_path / "x.h5", "w", libver="earliest") as file:
        file["x"], file["y"] = np.arange(3), np.arange(1000, 1050)
    data, axis = (tmp_path / "x.h5").read_bytes(), struct.pack("<2Q", 3, 3)
    assert data.count(axis) == 1
    (tmp_path / "x.h5").write_bytes(data.replace(axis, struct.pack("<2Q", 6, 6)))
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][()].tolist() == [0, 1, 2, 1000, 1001, 1002]
    with mounted(tmp_path) as mnt:
        assert load_npy(mnt / "x.h5/y.npy").tolist() == list(range(1000, 1050))
        assert hdf5_oracle.is_eio(mnt / "x.h5/x.npy")
        assert "of which the last 24 are not stored" in (mnt / ".shardfs/problems.jsonl").read_text()


def test_sequences_of_the_references_of_hdf5_1_12(tmp_path):
    """Their elements are not as far apart as the size of their type says."""
    lib, number, words = hdf5_kinds.library(), ctypes.c_int64, ctypes.c_uint64
    for name in ("H5Screate_simple", "H5Tvlen_create", "H5Dcreate2"):
        getattr(lib, name).restype = number
    kind = number.in_dll(lib, "H5T_STD_REF_g")
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        here = number(file.id.id)
        file.create_group("g")
        file["g/d"] = np.arange(6)
        file["g/d"].attrs["at"] = 3
        refs = ctypes.create_string_buffer(4 * 64)
        place = [ctypes.byref(refs, 64 * at) for at in range(4)]
        space = h5py.h5s.create_simple((6,))
        space.select_hyperslab((1,), (2,))
        made = [lib.H5Rcreate_object(here, b"/g", number(0), place[0]), lib.H5Rcreate_object(here, b"/g/d", number(0), place[1]),
                lib.H5Rcreate_region(here, b"/g/d", number(space.id), number(0), place[2]),
                lib.H5Rcreate_attr(here, b"/g/d", b"at", number(0), place[3])]
        # Length and address of each row.
        rows = (words * 6)(3, ctypes.addressof(refs), 0, 0, 2, ctypes.addressof(refs) + 128)
        row = number(lib.H5Tvlen_create(kind))
        axis = number(lib.H5Screate_simple(1, (words * 1)(3), None))
        dataset = number(lib.H5Dcreate2(here, b"rows", row, axis, number(0), number(0), number(0)))
        made.append(lib.H5Dwrite(dataset, row, number(0), number(0), number(0), rows))
        made.append(lib.H5Dclose(dataset))
        assert made == [0] * 6
    with mounted(tmp_path) as mnt:
        found = [json.loads(line) for line in (mnt / "x.h5/rows.jsonl").read_text().splitlines()]
    g, d = {"path": "/g"}, {"path": "/g/d"}
    assert found == [[g, d, d], [], [d, d]]


def test_virtual_datasets_that_multiply(tmp_path):
    """Each takes its elements thirty times from the one before: the last one 24 million times from a dataset."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        file["v0"] = np.arange(4)
        for level in range(1, 6):
            layout = h5py.VirtualLayout(shape=(4,), dtype=file["v0"].dtype)
            for _ in range(30):
                layout[0:4] = h5py.VirtualSource(".", f"v{level - 1}", shape=(4,))[0:4]
            file.create_virtual_dataset(f"v{level}", layout)
    shown = run("cat", tmp_path / "x.h5/v3.npy", check=True).stdout
    assert np.load(io.BytesIO(shown)).tolist() == [0, 1, 2, 3]
    done = run("cat", tmp_path / "x.h5/v5.npy")
    assert done.returncode == 1 and "too many mappings" in done.stderr


def test_a_stack_of_billions_of_pictures_is_an_array(tmp_path):
    """No chunk of them is stored. A folder of their names would take gigabytes."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for name, count in (("few", 7), ("many", 2**31)):
            file.create_dataset(name, shape=(count, 8, 8, 3), chunks=(1, 8, 8, 3), dtype="u1")
    with mounted(tmp_path) as mnt:
        assert sorted(os.listdir(mnt / "x.h5")) == ["container.json", "few", "few.npy", "many.npy"]
        assert len(os.listdir(mnt / "x.h5/few")) == 7
        assert np.load(mnt / "x.h5/many.npy", mmap_mode="r").shape == (2**31, 8, 8, 3)


def test_sequences_that_lead_to_one_object_many_times(tmp_path):
    """28 levels of two sequences each: the 6 KB of this file would be 2**28 rows of numbers."""
    path, levels = tmp_path / "x.h5", 28
    kind = np.dtype("u1")
    for _ in range(levels):
        kind = h5py.vlen_dtype(kind)
    with h5py.File(path, "w") as file:
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((1,))
        row = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(kind, logical=True), space, early).get_offset()
        file["y"] = np.arange(3)
    data = bytearray(path.read_bytes())
    data += bytes(-len(data) % 8)
    heap, objects = len(data), b""
    for level in range(1, levels + 1):
        found = b"\1\1" if level == 1 else struct.pack("<IQI", 2, heap, level - 1) * 2
        objects += struct.pack("<HHIQ", level, 1, 0, len(found)) + found + bytes(-len(found) % 8)
    objects += struct.pack("<HHIQ", 0, 0, 0, 4096 - 16 - len(objects))
    data += (b"GCOL\1\0\0\0" + struct.pack("<Q", 4096) + objects).ljust(4096, b"\0")
    struct.pack_into("<IQI", data, row, 2, heap, levels)
    struct.pack_into("<Q", data, 40, len(data))
    path.write_bytes(data)
    with mounted(tmp_path) as mnt:
        with pytest.raises(OSError) as failed:
            os.stat(mnt / "x.h5/x.jsonl")
        assert failed.value.errno == errno.EIO
        assert np.load(mnt / "x.h5/y.npy").tolist() == [0, 1, 2]
        assert "global heap" in (mnt / ".shardfs/problems.jsonl").read_text()


def _summed_as_another(data, at, header):
    """Returns a file whose block at a place belongs to another header, with the checksum that is right for it."""
    width = {b"FADB": 6, b"EAIB": 6, b"EASB": 6, b"EADB": 6, b"FHIB": 5, b"FHDB": 5}[bytes(data[at:at + 4])]
    changed = bytearray(data)
    changed[at + width:at + width + 8] = struct.pack("<Q", header)
    if width == 5 and data[at:at + 4] == b"FHDB":
        # The block has its checksum behind its head, and counts it as zeros.
        for size, place in itertools.product([512, 1024, 2048, 4096], range(at + 14, at + 22)):
            zeroed = data[at:place] + bytes(4) + data[place + 4:at + size]
            if lookup3(zeroed) == struct.unpack_from("<I", data, place)[0]:
                changed[place:place + 4] = bytes(4)
                changed[place:place + 4] = struct.pack("<I", lookup3(bytes(changed[at:at + size])))
                return bytes(changed)
    for end in range(at + 14, at + 2000):
        if lookup3(data[at:end]) == struct.unpack_from("<I", data, end)[0]:
            changed[end:end + 4] = struct.pack("<I", lookup3(bytes(changed[at:end])))
            return bytes(changed)
    raise AssertionError("no checksum")


@pytest.mark.parametrize("kind", ["FADB", "EAIB", "EASB", "EADB", "FHIB", "FHDB"])
def test_blocks_of_other_headers_are_damage(tmp_path, kind):
    """Otherwise one dataset would show the chunks of another, and one group the links of another."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("fixed", data=np.arange(100, dtype="i4"), chunks=(5,))
        file.create_dataset("grows", data=np.arange(300, dtype="i4"), chunks=(1,), maxshape=(None,))
        group = file.create_group("links")
        for number in range(200):
            group[f"link{number}"] = h5py.SoftLink(f"/fixed{number}")
    data = path.read_bytes()
    path.write_bytes(_summed_as_another(data, data.index(kind.encode()), 48))
    what = {"FH": "links", "FA": "fixed", "EA": "grows"}[kind[:2]]
    with h5py.File(path) as file, pytest.raises((OSError, RuntimeError, KeyError), match="header address"):
        list(file[what])
    done = run("verify", path)
    assert done.returncode == 1 and b"belongs to another header" in done.stdout


@pytest.mark.parametrize("chunks", [None, (2, 3)])
def test_axes_beyond_their_most_are_damage(tmp_path, chunks):
    """Otherwise what follows in the file, or values that nobody wrote, would be shown as rows."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.ones((5, 6), "i4"), chunks=chunks, maxshape=(5, 6) if chunks else None)
    data, sizes = path.read_bytes(), struct.pack("<4Q", 5, 6, 5, 6)
    path.write_bytes(data.replace(sizes, struct.pack("<4Q", 6, 6, 5, 6)))
    with h5py.File(path) as file, pytest.raises((OSError, RuntimeError, KeyError), match="greater than maxdim"):
        file["x"][()]
    assert run("cat", path / "x.npy").returncode == 1
    assert b"an axis of 6 elements that may have 5 at most" in run("verify", path).stdout


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_of_no_bytes_are_damage(tmp_path, compression):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(1, 101, dtype="i4"), chunks=(10,), compression=compression)
    data = bytearray(path.read_bytes())
    tree = data.index(b"TREE\x01")
    data[tree + 24:tree + 28] = bytes(4)
    path.write_bytes(data)
    assert run("cat", path / "x.npy").returncode == 1
    assert run("verify", path).returncode == 1


def test_records_that_are_not_counted_are_damage(tmp_path):
    """A B-tree of 12 links whose root has none: they would be gone without a word."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(12):
            file[f"links/{number}"] = number
    data = bytearray(path.read_bytes())
    tree = data.index(b"BTHD\0\x05")
    assert struct.unpack_from("<HQ", data, tree + 24) == (12, 12)
    data[tree + 24:tree + 26] = bytes(2)
    data[tree + 34:tree + 38] = struct.pack("<I", lookup3(bytes(data[tree:tree + 34])))
    path.write_bytes(data)
    done = run("verify", path)
    assert done.returncode == 1 and b"a B-tree of 12 records with 0 in its root" in done.stdout
