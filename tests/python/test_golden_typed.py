"""Every golden file of the formats whose `expected.json` has the form that `tests/golden/treespec.py` describes."""

import json

import pytest

from support import GOLDEN, TYPED, assert_same_file, load_expected, mounted, typed, walk_files

FILES = [(family, rel) for family in TYPED for rel in sorted(load_expected(family))]


@pytest.fixture(scope="module")
def mounts():
    """A mount of each family, with the problems that it has before anything is read."""
    found = {}

    def of(family):
        if family not in found:
            mount = mounted(GOLDEN / family)
            mnt = mount.__enter__()
            found[family] = mount, mnt
            walk_files(mnt)
            lines = (mnt / ".shardfs/problems.jsonl").read_text().splitlines()
            found[family] = mount, mnt, [json.loads(line) for line in lines]
        return found[family][1:]

    yield of
    for mount, *_ in found.values():
        mount.__exit__(None, None, None)


@pytest.mark.parametrize("family,rel", FILES)
def test_file(mounts, family, rel):
    mnt, problems = mounts(family)
    own = [problem for problem in problems if problem["container"] == rel]
    typed.check(mnt / rel, GOLDEN / family / rel, load_expected(family)[rel], own)


@pytest.mark.parametrize("family", TYPED)
def test_other_files(mounts, family):
    mnt, problems = mounts(family)
    known = load_expected(family)
    for path in GOLDEN.joinpath(family).rglob("*"):
        rel = str(path.relative_to(GOLDEN / family))
        if path.is_file() and rel not in known:
            assert_same_file(mnt / rel, path)
            assert not [problem for problem in problems if problem["container"] == rel]
