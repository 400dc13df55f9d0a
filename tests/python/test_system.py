"""A mount as part of a system: fstab, the service manager, logs, idle time, extended attributes, file managers."""

import configparser
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from support import (BIN, FIXTURES, ROOT, as_ordinary_user, assert_one_line_error, foreground, is_mounted, run,
                     unmount, wait_for)

EPISODE = "ep_001.wshard"


@pytest.fixture
def mnt(tmp_path):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    yield mnt
    unmount(mnt)


def pid_of(mnt):
    return json.loads((mnt / ".shardfs/config.json").read_text())["pid"]


# --- mount(8) and /etc/fstab --------------------------------------------------

@contextmanager
def helper(name):
    """shardfs under the name that mount(8) looks for, for one test at a time."""
    if os.geteuid() != 0:
        pytest.fail("these tests put a link into /sbin, as root")
    link = Path("/sbin") / name
    with open(Path(tempfile.gettempdir()) / f"shardfs-test-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if link.is_symlink() and (os.readlink(link) == BIN or not link.exists()):
            # Left behind by tests that were killed.
            link.unlink()
        assert not os.path.lexists(link), f"{link} is there already"
        link.symlink_to(BIN)
        try:
            yield
        finally:
            link.unlink()


def mount8(*args):
    return subprocess.run(["mount", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                          text=True)


@pytest.mark.parametrize("kind", ["shardfs", "fuse.shardfs"])
def test_mount8(mnt, kind):
    with helper(f"mount.{kind}"):
        done = mount8("-t", kind, "-o", "ro,_netdev,nofail,x-systemd.automount,uid=12,umask=077,cache_size=3M",
                      FIXTURES, mnt)
        assert done.returncode == 0, done.stderr
        # Ready when it returns.
        assert np.load(mnt / EPISODE / "reward.npy").shape == (24,)
        stat = os.stat(mnt / EPISODE)
        assert (stat.st_uid, stat.st_mode & 0o777) == (12, 0o500)
        config = json.loads((mnt / ".shardfs/config.json").read_text())
        assert config["cache_size"] == 3 << 20
        assert subprocess.run(["findmnt", "-no", "FSTYPE", mnt], capture_output=True, text=True).stdout.strip() \
            == "fuse.shardfs"
        assert subprocess.run(["umount", mnt]).returncode == 0


def test_mount8_without_options_and_with_rw(mnt):
    """mount(8) says `rw` where no option says otherwise."""
    with helper("mount.shardfs"):
        done = mount8("-t", "shardfs", FIXTURES, mnt)
        assert done.returncode == 0 and "read-only" in done.stderr
        with pytest.raises(OSError):
            (mnt / "new").write_text("x")


def test_mount8_refuses(mnt):
    with helper("mount.shardfs"):
        for options, word in [("ro,cache_sise=3M", "cache_sise"), ("remount,ro", "mount it again"),
                              ("ro,cache_size", "needs a value"), ("ro,umask=9", "umask")]:
            done = mount8("-t", "shardfs", "-o", options, FIXTURES, mnt)
            assert done.returncode == 1 and word in done.stderr, (options, done)
            assert not os.path.ismount(mnt)
        done = mount8("-t", "shardfs", "-o", "ro", FIXTURES / "notes.txt", mnt)
        assert done.returncode == 32 and "notes.txt" in done.stderr
        # Fake: everything but mounting. Sloppy: unknown options are left out.
        assert mount8("-f", "-t", "shardfs", "-o", "ro", FIXTURES, mnt).returncode == 0
        assert not os.path.ismount(mnt)
        assert mount8("-s", "-t", "shardfs", "-o", "ro,cache_sise=3M", FIXTURES, mnt).returncode == 0
        assert os.path.ismount(mnt)


def test_fstab_line(mnt, tmp_path):
    table = tmp_path / "fstab"
    table.write_text(f"{FIXTURES} {mnt} shardfs ro,noauto,_netdev,allow_other 0 0\n")
    with helper("mount.shardfs"):
        done = mount8("-T", table, mnt)
        assert done.returncode == 0, done.stderr
        assert (mnt / "notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()


def test_options_as_mount8_takes_them(mnt):
    run("mount", "-o", "uid=11,verify=strict", "-o", "umask=077,uid=12", FIXTURES, mnt, check=True)
    assert os.stat(mnt / EPISODE).st_uid == 12
    assert json.loads((mnt / ".shardfs/config.json").read_text())["verify"] == "strict"
    unmount(mnt)
    assert_one_line_error(run("mount", "-o", "rw", FIXTURES, mnt), "rw", "can't be written")
    done = run("mount", "-o", "what=3", FIXTURES, mnt)
    assert_one_line_error(done, "'what'")
    assert done.returncode == 2
    assert not os.path.ismount(mnt)


# --- starting and stopping ----------------------------------------------------

def test_exit_codes(mnt):
    text = run("mount", "--help", check=True).stdout.decode()
    assert re.search(r"Exit codes: 0 .*\b1 .*\b2 ", text, re.S)
    assert run("mount", FIXTURES).returncode == 2
    # (uid_t) -1 is nobody.
    assert run("mount", "--uid", "4294967295", FIXTURES, mnt).returncode == 2
    assert run("mount", FIXTURES / "notes.txt", mnt).returncode == 1
    assert run("mount", FIXTURES, mnt).returncode == 0


@pytest.mark.parametrize("limit", ["-n", "-v"])
def test_a_mount_that_fails_while_it_starts_leaves_nothing(limit, mnt):
    """Too few descriptors, or no memory for a thread."""
    codes = set()
    for least in range(4, 40, 3) if limit == "-n" else range(50_000, 74_000, 4000):
        command = ["sh", "-c", f"ulimit {limit} {least}; exec \"$0\" mount \"$1\" \"$2\"", BIN, FIXTURES, mnt]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        codes.add(done.returncode)
        assert b"panicked" not in done.stderr, (least, done.stderr)
        if done.returncode == 0:
            run("umount", mnt, check=True)
        # A dead mount would be an error.
        assert os.listdir(mnt) == [], (least, done.stderr)
    assert codes - {0}, codes


def test_mkdir_and_rmdir(tmp_path):
    mnt = tmp_path / "not" / "there yet"
    run("mount", "--mkdir", "--rmdir", FIXTURES, mnt, check=True)
    try:
        assert (mnt / "notes.txt").is_file()
    finally:
        run("umount", mnt, check=True)
    wait_for(lambda: not mnt.exists(), what="the removal of the mount point")
    # One that fails leaves nothing behind.
    assert run("mount", "--mkdir", FIXTURES / "notes.txt", mnt).returncode == 1
    assert not mnt.exists()
    # Without --rmdir it stays.
    run("mount", "--mkdir", FIXTURES, mnt, check=True)
    run("umount", mnt, check=True)
    time.sleep(0.3)
    assert mnt.is_dir()


def test_idle_timeout(mnt):
    run("mount", "--idle-timeout", "1", FIXTURES, mnt, check=True)
    with open(mnt / "notes.txt", "rb") as held:
        time.sleep(3)
        # A file is open: it stays, though nothing is asked of it.
        assert os.path.ismount(mnt)
        assert held.read() == (FIXTURES / "notes.txt").read_bytes()
    # Not by asking the mount, which would not be idle then.
    wait_for(lambda: not is_mounted(mnt), what="the end of an idle mount")


def test_idle_timeout_counts_from_the_last_use(mnt):
    run("mount", "--idle-timeout", "4", FIXTURES, mnt, check=True)
    for _ in range(6):
        time.sleep(1)
        os.listdir(mnt)
        assert os.path.ismount(mnt)


def test_a_limit_on_the_size_of_files(mnt, tmp_path):
    """What needs a larger file fails (a decoder's memory, a cache on disk); the mount stays."""
    limit = "ulimit -f 1; exec \"$0\" mount --spill \"$1\" \"$2\" \"$3\""
    subprocess.run(["sh", "-c", limit, BIN, tmp_path / "spill", FIXTURES, mnt], check=True, timeout=60)
    frames = mnt / "pick_and_place/episodes/0/images/observation.images.front"
    for _ in range(2):
        with pytest.raises(OSError):
            (frames / "000.png").read_bytes()
        for name in ("signal/cam0/rgb.npy", "signal/joint_pos.npy"):
            path = mnt / EPISODE / name
            if path.exists():
                assert path.stat().st_size == len(path.read_bytes())
        assert (mnt / "notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()


def test_passthrough_in_a_user_namespace(mnt):
    """Its root is somebody else to the kernel, which takes no files from it."""
    script = '"$0" mount --io-mode=passthrough "$1" "$2" && cat "$2/notes.txt" && "$0" doctor; "$0" umount "$2"'
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script, BIN, FIXTURES, mnt], capture_output=True,
                          text=True, timeout=60)
    assert done.stdout.startswith((FIXTURES / "notes.txt").read_text()), done.stderr
    assert "not in passthrough mode: " in done.stderr
    assert re.search("passthrough +needs|passthrough +Linux|passthrough +this kernel", done.stdout), done.stdout


def test_service_manager(mnt, tmp_path):
    """READY when the mount answers, WATCHDOG while it does, STOPPING at the end (sd_notify(3))."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(10)
        with foreground(FIXTURES, mnt=mnt, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}) as (_, child):
            said = notify.recv(4096).decode().splitlines()
            assert "READY=1" in said and f"MAINPID={child.pid}" in said
            assert any(str(mnt) in line for line in said if line.startswith("STATUS="))
            assert os.path.ismount(mnt)
            assert [notify.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            child.terminate()
            heard = []
            while b"STOPPING=1" not in heard:
                heard.append(notify.recv(4096))
            assert child.wait(timeout=10) == 0
    assert not os.path.ismount(mnt)


def test_service_manager_with_an_abstract_socket(mnt):
    name = f"shardfs-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind("\0" + name)
        notify.settimeout(10)
        with foreground(FIXTURES, mnt=mnt, env={"NOTIFY_SOCKET": "@" + name}):
            assert notify.recv(4096).startswith(b"READY=1")


def test_systemd_unit(tmp_path):
    text = (ROOT / "packaging/systemd/shardfs@.service").read_text()
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    service = unit["Service"]
    assert service["Type"] == "notify" and float(service["WatchdogSec"]) > 0
    # What it calls is a command line that this program understands.
    words = service["ExecStart"].replace("$OPTIONS", "--allow-other").replace("${SOURCE}", "/no/such/source").split()
    assert words[0] == "/usr/bin/shardfs"
    done = run(*[word.replace("%f", str(tmp_path / "mnt")) for word in words[1:]])
    assert done.returncode == 1 and "/no/such/source" in done.stderr
    if shutil.which("systemd-analyze"):
        (tmp_path / "shardfs@.service").write_text(text.replace("/usr/bin/shardfs", BIN).replace("Documentation=", "#"))
        done = subprocess.run(["systemd-analyze", "verify", tmp_path / "shardfs@.service"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr


def test_ordinary_user(tmp_path):
    """Mounted by fusermount3, seen by status, ended by umount and by itself."""
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user, as root")
    place = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    try:
        place.chmod(0o777)
        shutil.copy(BIN, place / "shardfs")
        shutil.copytree(FIXTURES, place / "data")
        script = """set -e
            ./shardfs mount --mkdir --rmdir data mnt
            ./shardfs status --json "$PWD/mnt"
            (cd mnt && ! ../shardfs umount "$OLDPWD/mnt")
            ./shardfs umount --lazy mnt
            ./shardfs mount --mkdir --rmdir --idle-timeout 1 data idle
            for i in $(seq 100); do
                # The table of mounts is asked, not the mount: that would not be idle then.
                grep -q " $PWD/idle " /proc/self/mounts || test -e idle || exit 0
                sleep 0.1
            done
            exit 9"""
        done = as_ordinary_user(script, place)
        assert done.returncode == 0, done
        (one,) = json.loads(done.stdout)
        assert (one["state"], one["user"]) == ("answers", 65534)
        assert "in use by" in done.stderr and "--lazy" in done.stderr
    finally:
        shutil.rmtree(place)


# --- the log ------------------------------------------------------------------

def read_damaged(mnt):
    with pytest.raises(OSError):
        (mnt / "damaged/bad_crc.wshard/signal/joint_pos.npy").read_bytes()


def test_log_file_is_reopened(mnt, tmp_path):
    log, old = tmp_path / "log", tmp_path / "log.1"
    log.write_text("before\n")
    run("mount", "--log-file", log, FIXTURES, mnt, check=True)
    read_damaged(mnt)
    wait_for(lambda: "checksum" in log.read_text(), what="a line in the log")
    assert log.read_text().startswith("before\n")
    log.rename(old)
    os.kill(pid_of(mnt), signal.SIGHUP)
    wait_for(log.exists, what="a new log file")
    assert os.path.ismount(mnt)
    # The same problem is logged once; another goes into the new file.
    (mnt / "damaged/cut_short.trees").stat()
    wait_for(lambda: "truncated" in log.read_text(), what="a line in the new log")


def test_log_level(mnt, tmp_path):
    log = tmp_path / "log"
    run("mount", "--log-file", log, "--log-level", "warn", FIXTURES, mnt, check=True)
    pid = pid_of(mnt)
    assert "INFO" not in log.read_text()
    seen = []
    for level in ("INFO", "DEBUG", "TRACE", "WARN"):
        os.kill(pid, signal.SIGUSR1)
        wait_for(lambda: f"the log level is {level} now" in log.read_text(), what=level)
        seen.append(level)
        before = log.read_text().count("DEBUG shardfs")
        read_damaged(mnt)
        assert (log.read_text().count("DEBUG shardfs") > before) == (level in ("DEBUG", "TRACE")), level
    assert os.path.ismount(mnt)


def test_log_in_the_foreground(mnt, tmp_path):
    with open(tmp_path / "stderr", "w+b") as stderr:
        with foreground(FIXTURES, mnt=mnt, stderr=stderr):
            read_damaged(mnt)
        text = (tmp_path / "stderr").read_text()
    assert "is mounted on" in text and "checksum" in text and "\x1b" not in text
    with open(tmp_path / "stderr", "w+b") as stderr:
        with foreground(FIXTURES, "--log-level", "error", mnt=mnt, stderr=stderr, env={"RUST_LOG": "trace"}):
            read_damaged(mnt)
        assert (tmp_path / "stderr").read_text() == ""
    assert_one_line_error(run("mount", "--log-file", tmp_path / "no/such", FIXTURES, mnt), "no/such")
    assert not os.path.ismount(mnt)


def test_slow_operations_are_logged(mnt, tmp_path):
    log = tmp_path / "log"
    run("mount", "--log-file", log, "--slow", "0.000001", FIXTURES, mnt, check=True)
    (mnt / EPISODE / "signal/joint_pos.npy").read_bytes()
    wait_for(lambda: "slow: read" in log.read_text(), what="a slow read in the log")
    text = log.read_text()
    assert re.search(r"WARN .*slow: read of 'ep_001.wshard/signal/joint_pos.npy' took \d+\.\d+ s", text), text
    assert re.search(r"slow: lookup of 'ep_001.wshard/signal' took", text)
    unmount(mnt)
    log.write_text("")
    run("mount", "--log-file", log, FIXTURES, mnt, check=True)
    (mnt / EPISODE / "signal/joint_pos.npy").read_bytes()
    assert "slow" not in log.read_text()


# --- extended attributes ------------------------------------------------------

def xattrs(path):
    return {name: os.getxattr(path, name).decode() for name in os.listxattr(path)}


def test_xattrs(mnt):
    run("mount", "--xattrs", FIXTURES, mnt, check=True)
    episode = mnt / EPISODE
    items = json.loads((episode / "container.json").read_text())["items"]
    assert items
    for item in items:
        got = xattrs(episode / item["path"])
        want = {"user.shardfs.codec": item["codec"], "user.shardfs.stored_size": str(item["stored_size"]),
                "user.shardfs.crc32c": item["checksum"].removeprefix("crc32c:")}
        if item["dtype"]:
            want["user.shardfs.dtype"] = item["dtype"]
            want["user.shardfs.shape"] = json.dumps(item["shape"], separators=(",", ":"))
        if item.get("inferred"):
            want["user.shardfs.inferred"] = "true"
        assert got == want, item["path"]
    for container in ("arrays.kas", "table.kast", "tree_sequence.trees"):
        for item in json.loads((mnt / container / "container.json").read_text())["items"]:
            got = xattrs(mnt / container / item["path"])
            assert got == {"user.shardfs.dtype": item["dtype"], "user.shardfs.codec": "none",
                           "user.shardfs.shape": f"[{item['shape'][0]}]",
                           "user.shardfs.stored_size": str(item["stored_size"])}
    # Of computed arrays their header says it.
    state = mnt / "demo.kdb/episodes/0/state.npy"
    shape = json.dumps(list(np.load(state).shape), separators=(",", ":"))
    assert xattrs(state) == {"user.shardfs.dtype": "f32", "user.shardfs.shape": shape}
    for plain in (mnt, mnt / "notes.txt", episode, episode / "signal", episode / "container.json",
                  episode / "images/cam0/rgb/000.png", mnt / "tree_sequence.trees/provenances/record.jsonl"):
        assert xattrs(plain) == {}, plain
    with pytest.raises(OSError) as none:
        os.getxattr(episode / "reward.npy", "user.shardfs.nonsense")
    assert none.value.errno == 61
    with pytest.raises(OSError):
        os.setxattr(episode / "reward.npy", "user.x", b"y")
    # A buffer that is too small is told so, and no bytes are cut off.
    libc = ctypes.CDLL(None, use_errno=True)
    small = ctypes.create_string_buffer(2)
    path = os.fsencode(episode / "reward.npy")
    assert libc.getxattr(path, b"user.shardfs.dtype", small, 2) == -1 and ctypes.get_errno() == 34


def test_without_xattrs(fixtures_mount):
    for call in (os.listxattr, lambda path: os.getxattr(path, "user.shardfs.dtype")):
        with pytest.raises(OSError) as none:
            call(fixtures_mount / EPISODE / "reward.npy")
        assert none.value.errno == 95


# --- being a good neighbour ---------------------------------------------------

def stats(mnt):
    return json.loads((mnt / ".shardfs/stats.json").read_text())


PROBES = (".Trash", ".Trash-0", ".Trash-1000", ".hidden", "desktop.ini", "Desktop.ini", ".git", ".directory",
          "autorun.inf", "AUTORUN.INF", ".DS_Store", ".localized")


def test_probes_of_file_managers_open_no_container(mnt):
    run("mount", FIXTURES, mnt, check=True)
    for folder in (mnt, mnt / "damaged"):
        for name in PROBES:
            assert not (folder / name).exists()
    os.listdir(mnt)
    [entry.stat() for entry in os.scandir(mnt)]
    assert stats(mnt)["containers_open"] == 0


def test_probes_inside_a_container_are_asked_once(mnt):
    run("mount", FIXTURES, mnt, check=True)
    folder = mnt / EPISODE / "signal"
    os.listdir(folder)
    for name in PROBES:
        assert not (folder / name).exists()
    held = os.open(folder, os.O_PATH)
    try:
        before = stats(mnt)["requests"]["lookup"]
        for _ in range(100):
            for name in PROBES:
                with pytest.raises(FileNotFoundError):
                    os.stat(name, dir_fd=held)
        # The look-ups of stats.json itself.
        assert stats(mnt)["requests"]["lookup"] - before < 10
    finally:
        os.close(held)


def test_markers_for_indexers(mnt, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(FIXTURES / EPISODE, source)
    (source / ".trackerignore").write_text("mine")
    for what in (source, source / EPISODE):
        run("mount", what, mnt, check=True)
        assert (mnt / ".metadata_never_index").read_bytes() == b""
        assert not {".metadata_never_index", ".shardfs"} & set(os.listdir(mnt))
        if what == source:
            assert (mnt / ".trackerignore").read_text() == "mine"
            assert not (mnt / EPISODE / ".metadata_never_index").exists()
        unmount(mnt)


def test_df_and_du(fixtures_mount):
    done = subprocess.run(["df", "-B1", "--output=size,used,avail", fixtures_mount], capture_output=True, text=True)
    size, used, avail = map(int, done.stdout.splitlines()[1].split())
    assert size == used > 0 and avail == 0
    stat = os.statvfs(fixtures_mount)
    assert stat.f_bsize >= 512 and stat.f_frsize >= 512 and stat.f_files > 0 and stat.f_namemax == 255
    assert stat.f_flag & os.ST_RDONLY
    want = sum((path.stat().st_size + 511) // 512 * 512 for path in (fixtures_mount / EPISODE).rglob("*")
               if path.is_file())
    done = subprocess.run(["du", "-s", "-B1", fixtures_mount / EPISODE], capture_output=True, text=True)
    assert int(done.stdout.split()[0]) == want


def test_nothing_is_written_beside_the_data(mnt, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(FIXTURES, source)
    before = sorted((str(p), p.lstat().st_mtime_ns) for p in source.rglob("*"))
    run("mount", "--xattrs", source, mnt, check=True)
    for path in mnt.rglob("*"):
        if path.is_file() and "damaged" not in path.parts:
            path.read_bytes()
    unmount(mnt)
    run("info", source, check=True)
    run("ls", "-R", "-l", source)
    assert sorted((str(p), p.lstat().st_mtime_ns) for p in source.rglob("*")) == before
