"""Fixtures of all tests; what they stand on is in `support`."""

import ast
import os
import sys
import tempfile
import threading

import pytest

from support import BIN, FAMILIES, FIXTURES, GOLDEN, load_expected, mounted, run
from support import writers as all_writers


def one_parser_at_a_time():
    """Python 3.11 before 3.11.8 raises SystemError where two threads parse at once, as `np.load` does with headers:
    https://github.com/python/cpython/issues/106905."""
    parse, lock = ast.parse, threading.RLock()

    def locked(*args, **kwargs):
        with lock:
            return parse(*args, **kwargs)

    ast.parse = locked


if sys.version_info < (3, 11, 8):
    one_parser_at_a_time()


def pytest_sessionstart(session):
    if not os.access(BIN, os.X_OK):
        pytest.exit(f"ERROR: no shardfs program at {BIN} (build it, or set SHARDFS_BIN)", returncode=3)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.exit("ERROR: /dev/fuse is missing or not accessible; these tests mount", returncode=3)
    # What tests read of buckets stays out of the user's own cache, and is not there for the next run.
    session.config.own_cache = tempfile.TemporaryDirectory(prefix="shardfs-cache-")
    os.environ["XDG_CACHE_HOME"] = session.config.own_cache.name


def pytest_sessionfinish(session):
    session.config.own_cache.cleanup()


def pytest_collection_modifyitems(items):
    """Tests that take minutes begin first: at the end, nothing would run beside them."""
    first = ("test_memory_of_indexes.py", "test_page.py::test_every_link_of_the_fixtures")
    items.sort(key=lambda item: not any(name in item.nodeid for name in first))


def pytest_generate_tests(metafunc):
    """`golden_wshard`, `golden_kastore`, `golden_kast`, `golden_kdb`, `golden_idv`: one test a golden file."""
    for family in FAMILIES:
        arg = f"golden_{family}"
        if arg in metafunc.fixturenames:
            files = load_expected(family)
            metafunc.parametrize(arg, sorted(files.items()), ids=sorted(files))


@pytest.fixture(scope="session")
def golden():
    return GOLDEN


@pytest.fixture(scope="session")
def fixtures_dir():
    return FIXTURES


@pytest.fixture
def mount():
    """`with mount(SOURCE, *options) as MNT:`"""
    return mounted


@pytest.fixture
def shardfs():
    return run


def mounted_once(source):
    """A mount for all tests of a session."""
    @pytest.fixture(scope="session")
    def mounted_source():
        with mounted(source) as mnt:
            yield mnt

    return mounted_source


wshard_mount, kastore_mount, kast_mount, kdb_mount, idv_mount = (
    mounted_once(GOLDEN / family) for family in ("wshard", "kastore", "kast", "kdb", "idv"))
fixtures_mount = mounted_once(FIXTURES)


@pytest.fixture(scope="session")
def writers():
    """The writers of each format, for containers with odd content."""
    return all_writers
