"""Ordinary programs and system calls on a mount."""

import errno
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from support import FIXTURES, foreground, mounted, read_checked, run, walk_files


def program(*args, **kw):
    done = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120, **kw)
    assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stderr.decode()}"
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.fixture
def copy(tmp_path):
    """A copy of the examples that a test may change, without the damaged ones."""
    src = tmp_path / "src"
    shutil.copytree(FIXTURES, src, ignore=shutil.ignore_patterns("damaged"))
    return src


# --- programs -------------------------------------------------------------------

def test_numpy(fixtures_mount):
    array = np.load(fixtures_mount / "ep_001.wshard/signal/cam0/rgb.npy", mmap_mode="r")
    assert array.shape == (24, 48, 64, 3) and array.dtype == np.uint8
    assert (array[5] == np.load(fixtures_mount / "ep_001.wshard/signal/cam0/rgb.npy")[5]).all()


def test_kastore_and_tskit(fixtures_mount):
    kastore = pytest.importorskip("kastore")
    tskit = pytest.importorskip("tskit")
    for name in ("arrays.kas", "tree_sequence.trees"):
        with kastore.load(FIXTURES / name) as store:
            for key, value in store.items():
                mine = np.load(fixtures_mount / name / f"{key}.npy")
                assert mine.dtype == value.dtype and mine.tobytes() == value.tobytes(), key
    ts = tskit.load(str(FIXTURES / "tree_sequence.trees"))
    time_column = np.load(fixtures_mount / "tree_sequence.trees/nodes/time.npy", mmap_mode="r")
    assert (time_column == ts.nodes_time).all()
    metadata = json.loads((fixtures_mount / "tree_sequence.trees/metadata.json").read_text())
    assert metadata == ts.metadata


def test_jq(fixtures_mount):
    for container in ("ep_001.wshard", "stream.wshard", "weights.shard", "arrays.kas", "table.kast"):
        path = fixtures_mount / container / "container.json"
        assert program("jq", ".", path)
        assert int(program("jq", ".items | length", path)) > 3
        assert program("jq", "-r", ".items[].path", path).strip()


def test_container_json_is_tidy(fixtures_mount):
    """Two spaces of indent, one newline at the end: as jq writes it where no numbers differ."""
    for container in ("ep_001.wshard", "table.kast"):
        data = read_checked(fixtures_mount / container / "container.json")
        assert data.endswith(b"\n") and not data.endswith(b"\n\n")
        assert data.startswith(b"{\n  \"")


def test_rsync_twice(fixtures_mount, tmp_path):
    out = tmp_path / "out"
    wanted = ["--include=*/", "--include=*.npy", "--include=*.json", "--exclude=*"]
    names = ["ep_001.wshard", "tree_sequence.trees", "weights.shard"]
    sources = [str(fixtures_mount / n) for n in names]
    program("rsync", "-a", *wanted, *sources, f"{out}/")
    for name in names:
        files = [path for path in walk_files(out / name) if (out / name / path).is_file()]
        assert files
        for path in files:
            assert (out / name / path).read_bytes() == (fixtures_mount / name / path).read_bytes()
    assert program("rsync", "-ai", *wanted, *sources, f"{out}/") == ""
    assert program("rsync", "-aic", *wanted, *sources, f"{out}/") == ""


def test_tar(fixtures_mount, tmp_path):
    listing = program("bash", "-o", "pipefail", "-c", 'tar c -C "$0" ep_001.wshard arrays.kas | tar t', fixtures_mount)
    names = {n for n in listing.splitlines() if not n.endswith("/")}
    want = {f"{c}/{p}" for c in ("ep_001.wshard", "arrays.kas") for p in walk_files(fixtures_mount / c)}
    assert len(names) == len(want)
    program("bash", "-o", "pipefail", "-c", 'tar c -C "$0" weights.shard | tar x -C "$1"', fixtures_mount, tmp_path)
    for path in walk_files(fixtures_mount / "weights.shard"):
        assert (tmp_path / "weights.shard" / path).read_bytes() == (fixtures_mount / "weights.shard" / path).read_bytes()


def test_cp(fixtures_mount, tmp_path):
    program("cp", "-r", fixtures_mount / "ep_001.wshard", fixtures_mount / "notes.txt", tmp_path)
    found = walk_files(tmp_path / "ep_001.wshard")
    assert found == walk_files(fixtures_mount / "ep_001.wshard")
    for path in found:
        assert (tmp_path / "ep_001.wshard" / path).read_bytes() == read_checked(fixtures_mount / "ep_001.wshard" / path)
    # What was copied out is a tree of ordinary files: mounting it shows them unchanged.
    with mounted(tmp_path) as mnt:
        assert walk_files(mnt) == walk_files(tmp_path)


def test_find_newer(copy, tmp_path):
    now = time.time_ns() // 10**9 * 10**9
    for path in copy.rglob("*"):
        os.utime(path, ns=(now - 10**12, now - 10**12))
    os.utime(copy / "arrays.kas", ns=(now, now))
    reference = tmp_path / "reference"
    reference.touch()
    os.utime(reference, ns=(now - 10**9, now - 10**9))
    with mounted(copy) as mnt:
        found = program("find", mnt, "-type", "f", "-newer", reference).splitlines()
        assert found and all(Path(f).is_relative_to(mnt / "arrays.kas") for f in found)
        assert len(found) == len(walk_files(mnt / "arrays.kas"))


def test_du(fixtures_mount):
    top = fixtures_mount / "weights.shard"
    file = top / "encoder/weight.npy"
    assert int(program("du", "-b", file).split()[0]) == file.stat().st_size
    assert int(program("du", "-B1", file).split()[0]) == file.stat().st_blocks * 512
    total = sum((top / p).stat().st_size for p in walk_files(top))
    assert int(program("du", "-sb", top).split()[0]) >= total


def test_ls_and_cat_and_wc(fixtures_mount):
    assert "joint_pos.npy" in program("ls", "-la", fixtures_mount / "ep_001.wshard/signal")
    path = fixtures_mount / "tree_sequence.trees/provenances/record.jsonl"
    assert program("wc", "-l", path).split()[0] == "2"
    assert program("grep", "-c", "software", path).strip() == "2"


# --- read-only ------------------------------------------------------------------

def test_writing_is_refused(fixtures_mount):
    top = fixtures_mount / "ep_001.wshard"
    file = top / "reward.npy"
    plain = fixtures_mount / "notes.txt"
    attempts = {
        "open for writing": lambda: os.open(file, os.O_WRONLY),
        "open for both": lambda: os.open(plain, os.O_RDWR),
        "open truncating": lambda: os.open(file, os.O_WRONLY | os.O_TRUNC),
        "create": lambda: os.open(top / "new", os.O_CREAT | os.O_WRONLY, 0o644),
        "create in root": lambda: os.open(fixtures_mount / "new", os.O_CREAT | os.O_WRONLY, 0o644),
        "mkdir": lambda: os.mkdir(top / "new"),
        "rmdir": lambda: os.rmdir(top / "signal"),
        "unlink": lambda: os.unlink(file),
        "unlink plain": lambda: os.unlink(plain),
        "rename": lambda: os.rename(file, top / "other.npy"),
        "link": lambda: os.link(file, top / "other.npy"),
        "symlink": lambda: os.symlink("reward.npy", top / "other.npy"),
        "chmod": lambda: os.chmod(file, 0o644),
        "truncate": lambda: os.truncate(file, 0),
        "utime": lambda: os.utime(file, (1, 1)),
        "mkfifo": lambda: os.mkfifo(top / "pipe"),
    }
    if os.geteuid() == 0:
        attempts["chown"] = lambda: os.chown(file, 1, 1)
    for what, attempt in attempts.items():
        with pytest.raises(OSError) as error:
            attempt()
        assert error.value.errno == errno.EROFS, f"{what}: {error.value}"


def test_statfs(fixtures_mount):
    info = os.statvfs(fixtures_mount / "ep_001.wshard")
    assert info.f_flag & os.ST_RDONLY
    assert info.f_namemax >= 255
    assert info.f_bsize > 0
    assert program("df", fixtures_mount)
    assert program("stat", "-f", fixtures_mount)


def test_missing_names(fixtures_mount):
    for path in ("nope", "ep_001.wshard/nope", "ep_001.wshard/signal/joint_pos", "ep_001.wshard/signal/joint_pos.bin",
                 "arrays.kas/grid/z.npy", "ep_001.wshard/.raw/nope.bin", ".shardfs/nope"):
        with pytest.raises(FileNotFoundError):
            os.lstat(fixtures_mount / path)
    with pytest.raises(NotADirectoryError):
        os.lstat(fixtures_mount / "notes.txt/x")
    with pytest.raises(NotADirectoryError):
        os.lstat(fixtures_mount / "ep_001.wshard/reward.npy/x")
    with pytest.raises(IsADirectoryError):
        (fixtures_mount / "ep_001.wshard").read_bytes()
    with pytest.raises(FileNotFoundError):
        os.lstat(fixtures_mount / "ep_001.wshard" / ("n" * 250))
    with pytest.raises(OSError) as error:
        os.lstat(fixtures_mount / "ep_001.wshard" / ("n" * 256))
    assert error.value.errno == errno.ENAMETOOLONG


# --- attributes -----------------------------------------------------------------

def everything(top):
    """lstat of each name below `top`, hidden `.raw` folders included."""
    found = {"": os.lstat(top)}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = os.lstat(path)
        if os.path.exists(os.path.join(folder, "container.json")) and os.path.isdir(os.path.join(folder, ".raw")):
            dirs.append(".raw")
            found[os.path.relpath(os.path.join(folder, ".raw"), top)] = os.lstat(os.path.join(folder, ".raw"))
    return found


def test_inodes(copy):
    with mounted(copy) as mnt:
        first = {path: s.st_ino for path, s in everything(mnt).items()}
    assert len(first) > 150
    assert len(set(first.values())) == len(first), "inode numbers repeat"
    assert 0 not in first.values()
    with mounted(copy) as mnt:
        # In another order, to be sure that it is no counter.
        again = {path: os.lstat(mnt / path).st_ino for path in sorted(first, reverse=True)}
    assert again == first


def test_directory_entries_agree(fixtures_mount):
    """What a listing says of an entry is what `stat` says."""
    for folder, _, _ in os.walk(fixtures_mount):
        for entry in os.scandir(folder):
            info = os.lstat(entry.path)
            assert entry.inode() == info.st_ino, entry.path
            assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(info.st_mode), entry.path


def test_attributes_come_from_the_container(copy):
    stamp = 1_600_000_000_123_456_789
    os.utime(copy / "ep_001.wshard", ns=(stamp, stamp))
    os.chmod(copy / "ep_001.wshard", 0o640)
    with mounted(copy) as mnt:
        for path, s in everything(mnt / "ep_001.wshard").items():
            assert s.st_mtime_ns == s.st_ctime_ns == s.st_atime_ns == stamp, path
            assert (s.st_uid, s.st_gid) == (os.getuid(), os.getgid()), path
            if stat.S_ISDIR(s.st_mode):
                assert stat.S_IMODE(s.st_mode) == 0o550, path
                assert s.st_nlink == 1 or s.st_nlink >= 2
            else:
                assert stat.S_IMODE(s.st_mode) == 0o440, path
                assert s.st_nlink == 1
                assert s.st_blocks == (s.st_size + 511) // 512, path
        plain = os.lstat(mnt / "notes.txt")
        assert plain.st_mtime_ns == os.lstat(copy / "notes.txt").st_mtime_ns
        assert plain.st_mode & 0o222 == 0


def test_sizes_never_change(copy):
    with mounted(copy) as mnt:
        before = {p: s.st_size for p, s in everything(mnt).items() if stat.S_ISREG(s.st_mode)}
        for path, size in before.items():
            assert len((mnt / path).read_bytes()) == size, path
        after = {p: s.st_size for p, s in everything(mnt).items() if stat.S_ISREG(s.st_mode)}
        assert after == before


def test_links_and_special_files(copy):
    os.symlink("ep_001.wshard", copy / "link")
    os.symlink("/does/not/exist", copy / "dangling")
    os.mkfifo(copy / "pipe")
    (copy / ".shardfs").write_text("mine")
    (copy / "folder.npy").mkdir()
    shutil.copy(copy / "arrays.kas", copy / "folder.npy" / "no_suffix")
    (copy / "text.kas").write_text("not a store")
    with mounted(copy) as mnt:
        assert os.readlink(mnt / "link") == "ep_001.wshard"
        assert os.readlink(mnt / "dangling") == "/does/not/exist"
        names = os.listdir(mnt)
        assert "pipe" not in names and ".shardfs" not in names
        assert (mnt / ".shardfs").is_dir()
        assert (mnt / "folder.npy" / "no_suffix" / "grid" / "x.npy").is_file()
        assert (mnt / "text.kas").read_text() == "not a store"
        assert os.path.exists(mnt / "link" / "container.json")


# --- reading --------------------------------------------------------------------

def all_bytes(top, paths):
    return {p: (top / p).read_bytes() for p in paths}


def test_eight_threads_read_the_same(fixtures_mount):
    with mounted(FIXTURES) as mnt:
        paths = sorted(p for p in walk_files(mnt)
                       if not p.startswith("damaged/"))
        orders = []
        for i in range(8):
            order = paths[:]
            random.Random(i).shuffle(order)
            orders.append(order)
        barrier = threading.Barrier(8)

        def read(order):
            barrier.wait()
            return all_bytes(mnt, order)

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(read, orders))
    alone = all_bytes(fixtures_mount, paths)
    assert all(r == alone for r in results)


@pytest.mark.parametrize("path", [
    "ep_001.wshard/signal/cam0/rgb.npy", "ep_002_lz4.wshard/signal/cam0/depth.npy",
    "ep_001.wshard/signal/gripper_open.npy", "stream.wshard/signal/imu.npy", "stream.wshard/.raw/done.bin",
    "weights.shard/encoder/weight.npy", "tree_sequence.trees/provenances/record.jsonl",
    "tree_sequence.trees/nodes/time.npy", "arrays.kas/container.json", "notes.txt",
])
def test_any_range_is_the_slice(path, fixtures_mount):
    whole = read_checked(fixtures_mount / path)
    rng = random.Random(path)
    with mounted(FIXTURES) as mnt:
        fd = os.open(mnt / path, os.O_RDONLY)
        try:
            for _ in range(300):
                offset = rng.randrange(len(whole) + 10)
                length = rng.choice([0, 1, 7, 64, 4096, rng.randrange(1, len(whole) + 2)])
                assert os.pread(fd, length, offset) == whole[offset:offset + length], (offset, length)
            assert os.pread(fd, 10, len(whole)) == b""
            assert os.pread(fd, 10, len(whole) + 10**9) == b""
        finally:
            os.close(fd)


def test_seek_and_sendfile(fixtures_mount, tmp_path):
    path = fixtures_mount / "ep_001.wshard/signal/cam0/rgb.npy"
    whole = path.read_bytes()
    with open(path, "rb") as f, open(tmp_path / "copy", "wb") as out:
        assert f.seek(0, os.SEEK_END) == len(whole)
        sent = 0
        while n := os.sendfile(out.fileno(), f.fileno(), sent, 1 << 20):
            sent += n
    assert (tmp_path / "copy").read_bytes() == whole


# --- damage ---------------------------------------------------------------------

def test_damaged_block():
    with mounted(FIXTURES) as mnt:
        top = mnt / "damaged/bad_crc.wshard"
        bad = top / "signal/joint_pos.npy"
        assert bad.stat().st_size == 128 + 24 * 7 * 4
        assert "joint_pos.npy" in os.listdir(top / "signal")
        for path in (bad, top / ".raw/signal/joint_pos.bin"):
            for _ in range(2):
                with pytest.raises(OSError) as error:
                    path.read_bytes()
                assert error.value.errno == errno.EIO
        for path in sorted(walk_files(top) - {"signal/joint_pos.npy", "steps.parquet"}):
            read_checked(top / path)
        assert (mnt / "damaged/cut_short.trees").read_bytes() == (FIXTURES / "damaged/cut_short.trees").read_bytes()

        lines = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        for line in lines:
            assert {"time", "container", "path", "block", "offset", "message"} <= set(line), line
        about = [x for x in lines if x["container"] == "damaged/bad_crc.wshard"]
        assert about and any(x["block"] == "signal/joint_pos" for x in about), lines
        assert any("joint_pos" in (x["path"] or "") for x in about), lines
        assert [x for x in lines if x["container"] == "damaged/cut_short.trees"], lines
        assert len([x for x in lines if x["container"] == "damaged/cut_short.trees"]) == 1, "noted once"


def test_verify_off_serves_what_is_stored():
    with mounted(FIXTURES, "--verify=off") as mnt:
        data = read_checked(mnt / "damaged/bad_crc.wshard/signal/joint_pos.npy")
        stored = (FIXTURES / "damaged/bad_crc.wshard").read_bytes()
        assert data[128:] in stored


def test_status_files(fixtures_mount):
    (fixtures_mount / "ep_001.wshard/reward.npy").read_bytes()
    assert ".shardfs" not in os.listdir(fixtures_mount)
    status = fixtures_mount / ".shardfs"
    assert {"stats.json", "problems.jsonl", "config.json", "metrics.prom"} <= set(os.listdir(status))
    metrics = dict(line.rsplit(" ", 1) for line in (status / "metrics.prom").read_text().splitlines() if line[0] != "#")
    assert int(metrics['shardfs_requests_total{kind="lookup"}']) > 0 and float(metrics["shardfs_uptime_seconds"]) > 0
    latencies = json.loads((status / "stats.json").read_text())["latencies"]
    assert set(latencies) == {"lookup", "stat", "list", "read"}
    assert all(0 <= took["slowest_seconds"] <= took["seconds"] for took in latencies.values())
    assert latencies["lookup"]["slowest_seconds"] > 0
    assert isinstance(json.loads((status / "config.json").read_text()), dict)
    for line in (status / "problems.jsonl").read_text().splitlines():
        json.loads(line)
    assert program("jq", ".", status / "stats.json")


# --- the daemon -----------------------------------------------------------------

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signal_unmounts(tmp_path, sig):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    with open(tmp_path / "log", "wb") as log:
        with foreground(FIXTURES, mnt=mnt, stderr=log) as (_, daemon):
            assert (mnt / "notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()
            daemon.send_signal(sig)
            assert daemon.wait(20) == 0, (tmp_path / "log").read_text()
            assert not os.path.ismount(mnt)
            assert os.listdir(mnt) == []
    assert "panicked" not in (tmp_path / "log").read_text()


def test_umount_ends_the_mount(tmp_path):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    with mounted(FIXTURES, mnt=mnt):
        run("umount", mnt, check=True)
        assert not os.path.ismount(mnt)
    with mounted(FIXTURES, mnt=mnt):
        assert (mnt / "notes.txt").is_file()


def test_truncated_under_the_mount(copy):
    """A container cut while mounted: errors for its reads, life for everything else."""
    victim = copy / "ep_002_lz4.wshard"
    with mounted(copy) as mnt:
        path = mnt / "ep_002_lz4.wshard/signal/cam0/rgb.npy"
        size = path.stat().st_size
        with open(victim, "r+b") as f:
            f.truncate(4096)
        with pytest.raises(OSError):
            data = path.read_bytes()
            assert len(data) == size, "shortened"
        assert len((mnt / "ep_001.wshard/signal/cam0/rgb.npy").read_bytes()) > 1000
        assert (mnt / "notes.txt").read_bytes() == (copy / "notes.txt").read_bytes()


def test_fixtures_are_what_their_script_writes(tmp_path):
    """A second run of the script gives the same bytes (the codecs' versions permitting)."""
    import sys
    script = FIXTURES.parent / "scripts" / "make_fixtures.py"
    for run_number in ("one", "two"):
        program(sys.executable, script, tmp_path / run_number)
    assert walk_files(tmp_path / "one") == walk_files(tmp_path / "two") == walk_files(FIXTURES)
    for path in walk_files(tmp_path / "one"):
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


def test_links_of_folders_never_claim_that_there_are_no_others(fixtures_mount):
    """Programs that walk trees stop looking for folders where the count of links says that there are no more; 1 says
    nothing, and what shows containers as folders does not count them."""
    for folder, subfolders, _ in os.walk(fixtures_mount):
        assert os.lstat(folder).st_nlink in (1, 2 + len(subfolders)), folder
    assert os.lstat(fixtures_mount).st_nlink == 1
