"""Groups of so many links that neither a look-up nor a listing reads them all."""

import json
import os

import pytest

from support import mounted, peak_memory

import h5py
import numpy as np

LINKS, GROUPS = 70_000, 250_000


# HDF5 stores a group with a name that is not ASCII in the newer way.
TEXTS = {"earliest": "text", "latest": "ö"}


def write(path, libver):
    """Names are not created in their order. Those of symbol tables take more than 1 MiB."""
    with h5py.File(path, "w", libver=libver) as file:
        many = file.create_group("many")
        for number in range(LINKS):
            h5py.h5g.create(many.id, b"group %010d" % (number * 7919 % LINKS))
        many["group 0000000007/inner"] = np.arange(5)
        many["group 0000000007"].attrs["unit"] = "m"
        many["array"] = np.arange(3, dtype="f4")
        many["array"].attrs["scale"] = 2
        many[TEXTS[libver]] = "a text"
        many["soft"] = h5py.SoftLink("group 0000000007/inner")
        many["again"] = many["group 0000000007"]
        file["outer"] = h5py.SoftLink("/many/array")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_links_are_found_before_they_are_listed(tmp_path, libver):
    write(tmp_path / "x.h5", libver)
    with mounted(tmp_path) as mnt:
        root, many = mnt / "x.h5", mnt / "x.h5/many"
        inner = many / "group 0000000007/inner.npy"
        assert (np.load(inner) == np.arange(5)).all()
        assert (np.load(many / "array.npy") == [0, 1, 2]).all()
        assert "scale" in (many / "array.attrs.json").read_text()
        assert "unit" in (many / "group 0000000007/attributes.json").read_text()
        assert os.readlink(many / "soft.npy") == "group 0000000007/inner.npy"
        assert (np.load(many / "soft.npy") == np.arange(5)).all() and (np.load(root / "outer.npy") == [0, 1, 2]).all()
        assert os.listdir(many / "again") == os.listdir(many / "group 0000000007")
        for missing in ("group", "group 0000070000", "zzz", "array.txt", "inner.npy"):
            assert not (many / missing).exists()
        names = os.listdir(many)
        groups = [f"group {number:010}" for number in range(LINKS)]
        others = ["again", "array.attrs.json", "array.npy", "soft.npy", f"{TEXTS[libver]}.txt"]
        assert sorted(names) == sorted(groups + others)
        if libver == "earliest":
            # The index has the order of names.
            assert [name for name in names if name.startswith("group")] == groups
        assert all((many / name).is_dir() for name in groups[:: LINKS // 100])
        with os.scandir(many) as entries:
            inodes = {entry.name: entry.inode() for entry in entries}
        assert list(inodes) == names, "another listing has another order"
        assert all(os.stat(many / name).st_ino == inodes[name] for name in [*groups[:: LINKS // 100], *others[:3]])


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_the_walk_over_many_groups_keeps_none_of_them(tmp_path, libver):
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        for number in range(LINKS):
            h5py.h5g.create(file.id, b"group %07d" % number)
    with mounted(tmp_path) as mnt:
        before = peak_memory(mnt)
        assert json.loads((mnt / "x.h5/container.json").read_text())["items"] == []
        # Headers and links of all groups would take 70 MiB.
        assert peak_memory(mnt) - before <= 24


def write_groups(path, libver):
    with h5py.File(path, "w", libver=libver) as file:
        many = file.create_group("many")
        for number in range(GROUPS):
            h5py.h5g.create(many.id, b"group %07d" % number)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_very_many_links_are_listed_in_little_memory(tmp_path, libver):
    write_groups(tmp_path / "x.h5", libver)
    with mounted(tmp_path) as mnt:
        before = peak_memory(mnt)
        with os.scandir(mnt / "x.h5/many") as entries:
            first = next(entries).name
            # All links and names would take more than 12 MiB.
            assert peak_memory(mnt) - before <= 6, "the first name came after all others were read"
            count = 1 + sum(1 for _ in entries)
        assert count == GROUPS and os.path.exists(mnt / "x.h5/many" / first)
        assert peak_memory(mnt) - before <= 12
