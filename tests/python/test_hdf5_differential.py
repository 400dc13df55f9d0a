"""HDF5 files of all kinds, element by element against h5py, and data in other files that change."""

import collections
import os

import pytest

from support import hdf5_oracle, mounted, seen_within  # before h5py: it says where external files are
from support.writers import hdf5_kinds

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
        return np.load(path)[place]
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
