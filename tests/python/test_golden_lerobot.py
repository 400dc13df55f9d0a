"""Every golden data set of LeRobot (`tests/golden/lerobot/README.md` has the form of `expected.json`)."""

import json
import os
import stat

import numpy as np
import pytest

from support import GOLDEN, load_expected, mounted, walk_files
from support.data_sets import check, same_folder

FAMILY = GOLDEN / "lerobot"
SETS = load_expected("lerobot")
FRAMES = np.load(FAMILY / "frames.npz")


@pytest.fixture(scope="module")
def mnt():
    with mounted(FAMILY) as mnt:
        yield mnt


def problems(mnt, name):
    lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
    return [line for line in lines if (line["container"] + "/").startswith(name + "/")]


@pytest.mark.parametrize("name", sorted(name for name, spec in SETS.items() if not spec["claim"]))
def test_ordinary_folders(mnt, name):
    spec = SETS[name]
    same_folder(mnt / name, FAMILY / name)
    found = problems(mnt, name)
    assert bool(found) == spec["problem"], found
    assert not found or spec["why"] in found[0]["message"], found


@pytest.mark.parametrize("name", sorted(name for name, spec in SETS.items() if spec["claim"]))
def test_data_sets(mnt, name):
    spec, root = SETS[name], mnt / name
    tree = spec["tree"]
    files = {path for path, entry in tree.items() if "dir" not in entry}
    # What this build, or this machine, has no decoder for.
    optional = {path for path in files if tree[path].get("optional") and not (root / path).exists()}
    empty = {f"{path}/" for path, entry in tree.items() if "dir" in entry}
    tables = {"episodes.parquet", "steps.parquet"}
    found = walk_files(root) - tables
    assert found - empty == files - optional and all(not name.endswith("/") or name in empty for name in found)
    times = os.stat(FAMILY / name / spec["marker"])
    for path, entry in tree.items():
        found = root / path
        if path in optional:
            continue
        if "dir" in entry:
            assert stat.S_ISDIR(os.lstat(found).st_mode), path
            continue
        check(found, entry, FRAMES)
        assert os.lstat(found).st_mtime_ns == times.st_mtime_ns, path
    same_folder(root / ".source", FAMILY / name)
