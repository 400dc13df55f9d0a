"""Every golden HDF5 file, through the mount."""

import json

import pytest

from support import GOLDEN, grouped, load_expected, mounted

FILES = load_expected("hdf5")


@pytest.fixture(scope="module")
def mnt():
    with mounted(GOLDEN / "hdf5") as mnt:
        yield mnt


@pytest.mark.parametrize("rel", sorted(FILES))
def test_file(mnt, rel):
    assert not grouped.check(mnt / rel, GOLDEN / "hdf5" / rel, FILES[rel])


def test_refused_files_are_reported_with_their_reason(mnt):
    for rel in FILES:
        list((mnt / rel).parent.iterdir())
    lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
    refused = {line["container"]: line["message"] for line in lines if line["path"] == ""}
    for rel, expected in FILES.items():
        if expected["expect"] == "refused":
            assert expected["reason"] in refused[rel]
        else:
            assert rel not in refused
