"""Fixtures: where things are, and mounts that are always taken down again."""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("SHARDFS_BIN", str(ROOT / "target" / "release" / "shardfs"))
BIN = str(Path(BIN).resolve())
GOLDEN = ROOT / "tests" / "golden"
FIXTURES = ROOT / "fixtures"
FAMILIES = ("wshard", "kastore", "kast", "kdb", "idv")
TIMEOUT = 60
# How mounts serve files where a test does not say: `scripts/test` runs everything that mounts in both modes.
SERVE = os.environ.get("SHARDFS_SERVE", "auto")


def pytest_sessionstart(session):
    if not os.access(BIN, os.X_OK):
        pytest.exit(f"ERROR: no shardfs program at {BIN} (build it, or set SHARDFS_BIN)", returncode=3)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.exit("ERROR: /dev/fuse is missing or not accessible; these tests mount", returncode=3)


def pytest_generate_tests(metafunc):
    """`golden_wshard`, `golden_kastore`, `golden_kast`, `golden_kdb`, `golden_idv`: one test a golden file."""
    for family in FAMILIES:
        arg = f"golden_{family}"
        if arg in metafunc.fixturenames:
            files = load_expected(family)
            metafunc.parametrize(arg, sorted(files.items()), ids=sorted(files))


def load_expected(family):
    return json.loads((GOLDEN / family / "expected.json").read_text(encoding="utf-8"))["files"]


# --- running the program ------------------------------------------------------

def run(*args, check=False, timeout=TIMEOUT, **kw):
    """Run shardfs; output goes through files, since a daemon keeps pipes open."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = subprocess.run([BIN, *map(os.fspath, args)], stdin=subprocess.DEVNULL, stdout=out,
                              stderr=err, timeout=timeout, **kw).returncode
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(args, code, out.read(), err.read().decode("utf-8", "replace"))
    if check and code != 0:
        raise AssertionError(f"shardfs {' '.join(map(str, args))}: exit {code}\n{done.stderr}")
    return done


def is_mounted(mnt):
    """Whether something is mounted there, dead or alive; the mount itself is not asked."""
    with open("/proc/self/mounts") as table:
        return any(line.split()[1] == str(mnt).replace(" ", "\\040") for line in table)


def unmount(mnt):
    if not is_mounted(mnt):
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        run("umount", mnt, timeout=20)
    for command in (["fusermount3", "-u", "-z", str(mnt)], ["umount", "-l", str(mnt)]):
        if not is_mounted(mnt):
            return
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=20)


@contextlib.contextmanager
def mounted(source, *options, mnt=None):
    """Mount in the background; the command returns when the mount answers."""
    own = mnt is None
    mnt = Path(tempfile.mkdtemp(prefix="shardfs-test-")) if own else Path(mnt)
    try:
        if not any(str(option).startswith("--serve") for option in options):
            options = (*options, f"--serve={SERVE}")
        run("mount", *options, source, mnt, check=True)
        assert os.path.ismount(mnt), "the command came back before the mount was there"
        yield mnt
    finally:
        unmount(mnt)
        if own:
            with contextlib.suppress(OSError):
                mnt.rmdir()


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


wshard_mount, kastore_mount, kast_mount, kdb_mount, idv_mount = (mounted_once(GOLDEN / family) for family in FAMILIES)
fixtures_mount = mounted_once(FIXTURES)


@pytest.fixture(scope="session")
def writers():
    """The writers of scripts/make_fixtures.py, for containers with odd content."""
    spec = importlib.util.spec_from_file_location("make_fixtures", ROOT / "scripts" / "make_fixtures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- looking at files ---------------------------------------------------------

def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read_checked(path):
    """The bytes of a regular file whose size was right before the first read."""
    before = os.lstat(path)
    assert stat.S_ISREG(before.st_mode), f"{path} is no regular file"
    assert before.st_mode & 0o222 == 0, f"{path} has write bits"
    assert before.st_nlink == 1
    assert before.st_blocks == (before.st_size + 511) // 512, path
    with open(path, "rb") as f:
        data = f.read()
    assert len(data) == before.st_size, f"{path}: size {before.st_size}, read {len(data)}"
    after = os.lstat(path)
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    return data


def check_npy(path, descr, shape):
    """Load in every way; return the bytes of the elements."""
    data = read_checked(path)
    assert data[:8] == b"\x93NUMPY\x01\x00", f"{path}: no npy 1.0"
    header_len = 10 + int.from_bytes(data[8:10], "little")
    assert header_len % 64 == 0, f"{path}: data start at {header_len}"
    header = data[10:header_len]
    assert header.endswith(b"\n")
    shape = tuple(shape)
    text = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    assert header.decode("latin-1").rstrip() == text, path

    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    assert loaded.dtype.str == descr and loaded.shape == shape, path
    plain = np.load(path, allow_pickle=False)
    assert plain.dtype.str == descr and plain.shape == shape, path
    assert plain.tobytes() == data[header_len:], path
    if plain.size:  # numpy cannot map an empty array
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        assert mapped.dtype.str == descr and mapped.shape == shape, path
        assert mapped.tobytes() == data[header_len:], path
        del mapped
    return data[header_len:]


def walk_files(top):
    """All files below `top`, as relative paths (surrogate-escaped)."""
    def stop(error):
        raise error

    found = set()
    for folder, dirs, files in os.walk(top, onerror=stop):
        rel = os.path.relpath(folder, top)
        for name in files:
            found.add(name if rel == "." else f"{rel}/{name}")
        assert len(set(dirs + files)) == len(dirs) + len(files), f"{folder}: a name is listed twice"
        if not dirs and not files:
            found.add(rel + "/" if rel != "." else "")
    found.discard("")
    return found


def peak_memory(mnt):
    """The most that a mount's process has held, in MiB."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"mount" in words and os.fsencode(mnt) in words:
                [peak] = [line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM:")]
                return int(peak.split()[1]) >> 10
    raise AssertionError(f"no process serves {mnt}")


def assert_same_file(mounted_path, source):
    assert stat.S_ISREG(os.lstat(mounted_path).st_mode), f"{mounted_path} should be an ordinary file"
    assert read_checked(mounted_path) == Path(source).read_bytes()


def seen_within(seconds, condition):
    """Whether `condition` holds within so many seconds: of looks, every 10 ms, and not of the clock. On a machine
    that is busy with other things a look takes longer, and what is looked for may too."""
    for _ in range(round(seconds * 100)):
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def wait_for(condition, seconds=10.0, what="it"):
    assert seen_within(seconds, condition), f"{what} did not happen within {seconds} s"
