"""Nothing kills it: killed daemons, small limits, other users, signals, disks that fail."""

import contextlib
import errno
import json
import os
import random
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from support import (
    BIN, FIXTURES, daemon_of, mounted, mounted_by, peak_memory, read_checked, run, states_of, statistics_of, unmount,
    wait_for, walk_files,
)
from support.writers import idv as idv_writer, write_shard

JOINT = "ep_001.wshard/signal/joint_pos.npy"


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def kill(mnt):
    pid = daemon_of(mnt)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: is_gone(pid), 10, "the end of the daemon")
    # The kernel may answer a stat from what it remembers.
    with pytest.raises(OSError) as e:
        os.statvfs(mnt)
    assert e.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)


def contents(mnt):
    """Everything readable below a mount."""
    found = {}
    for path in sorted(walk_files(mnt)):
        try:
            found[path] = (mnt / path).read_bytes()
        except OSError as e:
            found[path] = e.errno
    return found


@pytest.fixture(scope="module")
def expected():
    with mounted(FIXTURES) as mnt:
        return contents(mnt)


# --- the daemon's own life -----------------------------------------------------------

def test_killed_and_mounted_again(expected, tmp_path):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    with mounted(FIXTURES, mnt=mnt):
        inode = (mnt / JOINT).stat().st_ino
        for _ in range(3):
            kill(mnt)
            run("mount", FIXTURES, mnt, check=True)
            assert (mnt / JOINT).stat().st_ino == inode
        assert contents(mnt) == expected
        with open("/proc/self/mounts") as table:
            assert sum(line.split()[1] == str(mnt) for line in table) == 1, "dead mounts are left behind"


def test_killed_and_unmounted(tmp_path):
    with mounted(FIXTURES, mnt=tmp_path):
        kill(tmp_path)
        run("umount", tmp_path, check=True)
        assert not os.path.ismount(tmp_path) and os.listdir(tmp_path) == []


def test_killed_while_somebody_is_inside(tmp_path):
    with mounted(FIXTURES, mnt=tmp_path):
        held = os.open(tmp_path / JOINT, os.O_RDONLY)
        kill(tmp_path)
        run("mount", FIXTURES, tmp_path, check=True)
        assert (tmp_path / JOINT).read_bytes()[:6] == b"\x93NUMPY"
        with contextlib.suppress(OSError):
            os.read(held, 100)
        with contextlib.suppress(OSError):
            os.close(held)


def test_a_dead_mount_of_another_program_stays(tmp_path):
    """Only our own dead mounts are taken away."""
    libc = __import__("ctypes").CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"other", os.fsencode(tmp_path), b"fuse.other", 0, options) != 0:
        pytest.fail(f"mount: {os.strerror(__import__('ctypes').get_errno())}")
    os.close(device)
    try:
        done = run("mount", FIXTURES, tmp_path)
        assert done.returncode == 1 and "another program" in done.stderr and "fusermount3 -u -z" in done.stderr
        assert run("umount", tmp_path).returncode == 1
    finally:
        assert libc.umount2(os.fsencode(tmp_path), 2) == 0


def test_second_mount_on_one_place(tmp_path):
    with mounted(FIXTURES, mnt=tmp_path):
        again = run("mount", FIXTURES, tmp_path)
        assert again.returncode == 1 and "mounted there already" in again.stderr
        assert (tmp_path / JOINT).exists()


def test_a_mount_point_that_is_not_empty(tmp_path):
    """Is used, as `mount` does, but said: the two paths of the command are easily swapped."""
    (tmp_path / "mine.txt").write_text("mine")
    done = run("mount", FIXTURES, tmp_path)
    try:
        assert done.returncode == 0 and "not empty" in done.stderr and str(tmp_path) in done.stderr
        assert not (tmp_path / "mine.txt").exists() and (tmp_path / JOINT).is_file()
    finally:
        unmount(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_mount_point_inside_source(tmp_path):
    inside = tmp_path / "source/mnt"
    inside.mkdir(parents=True)
    done = run("mount", tmp_path / "source", inside)
    assert done.returncode == 1 and "contain itself" in done.stderr


READER = """
import os, random, sys
paths = sys.argv[1:]
while True:
    try:
        with open(random.choice(paths), "rb") as f:
            while f.read(20000): pass
    except OSError as e:
        print(e.errno, flush=True)
        sys.exit(3)
"""


def readers(mnt, count):
    paths = [str(mnt / p) for p in walk_files(mnt) if "damaged" not in p]
    return [subprocess.Popen([sys.executable, "-c", READER, *paths], stdout=subprocess.PIPE) for _ in range(count)]


@pytest.mark.parametrize("way", ["umount --force", "SIGTERM", "SIGKILL"])
def test_unmount_under_load(way, tmp_path):
    """Readers get errors, no process hangs, nothing stays."""
    with mounted(FIXTURES, "--cache-size", "1M", mnt=tmp_path):
        daemon = daemon_of(tmp_path)
        busy = readers(tmp_path, 12)
        try:
            time.sleep(1)
            assert all(reader.poll() is None for reader in busy)
            if way == "umount --force":
                with open(tmp_path / JOINT, "rb"):
                    refused = run("umount", tmp_path)
                    assert refused.returncode == 1 and "in use" in refused.stderr
                run("umount", "--force", tmp_path, check=True)
            else:
                os.kill(daemon, getattr(signal, way))
            for reader in busy:
                assert reader.wait(20) == 3, "a reader went on, or hangs"
            wait_for(lambda: is_gone(daemon), 20, "the end of the daemon")
        finally:
            for reader in busy:
                reader.kill()
                reader.wait(20)
    assert not os.path.ismount(tmp_path) and os.listdir(tmp_path) == []


def test_signals_break_nothing(expected):
    """A reader that gets a signal every few milliseconds reads what other readers read."""
    code = """
import signal, sys, hashlib
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for path in sys.argv[1:]:
    print(hashlib.sha256(open(path, "rb").read()).hexdigest())
"""
    import hashlib
    paths = [path for path, data in expected.items() if isinstance(data, bytes)][:150]
    with mounted(FIXTURES, "--cache-size", "1M") as mnt:
        for _ in range(3):
            out = subprocess.run([sys.executable, "-c", code, *(mnt / p for p in paths)], capture_output=True, timeout=60)
            assert out.stdout.decode().split() == [hashlib.sha256(expected[p]).hexdigest() for p in paths], out.stderr


def test_killed_readers_leave_nothing_behind(expected):
    with mounted(FIXTURES, "--cache-size", "1M") as mnt:
        for _ in range(5):
            busy = readers(mnt, 6)
            time.sleep(0.3)
            for reader in busy:
                reader.kill()
            for reader in busy:
                assert reader.wait(10) == -9
        assert contents(mnt) == expected


# --- small limits ------------------------------------------------------------------------

def read_all_at_once(mnt, expected, threads=64, allowed=()):
    wrong = []

    def read(seed):
        paths = [path for path, data in expected.items() if isinstance(data, bytes)]
        random.Random(seed).shuffle(paths)
        for path in paths[:120]:
            try:
                data = (mnt / path).read_bytes()
            except OSError as e:
                if e.errno not in allowed:
                    wrong.append((path, e))
                continue
            if data != expected[path]:
                wrong.append(path)

    crowd = [threading.Thread(target=read, args=(seed,)) for seed in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(120)
        assert not thread.is_alive(), "a reader hangs"
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("size", ["0", "1", "4K"])
def test_cache_that_holds_nothing(expected, size):
    with mounted(FIXTURES, "--cache-size", size) as mnt:
        read_all_at_once(mnt, expected, threads=16)


@pytest.fixture
def many_files():
    """A folder for thousands of files: in memory, where that is."""
    with tempfile.TemporaryDirectory(prefix="shardfs-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as path:
        yield Path(path)


def limited(what, soft, hard=None):
    return lambda: resource.setrlimit(what, (soft, hard or soft))


def test_256_descriptors(writers, many_files):
    """100,000 containers, 64 readers at once: everything is right, and few containers are open at a time."""
    source = many_files
    expected = {}
    for i in range(500):
        first = source / "0" / f"{i}.kas"
        first.parent.mkdir(exist_ok=True)
        first.write_bytes(writers.kastore({"x": np.full(600, i, "<i8")}))
        for folder in range(200):
            (source / str(folder)).mkdir(exist_ok=True)
            if folder:
                os.link(first, source / str(folder) / first.name)
            expected[f"{folder}/{i}.kas/x.npy"] = i
    with tempfile.TemporaryDirectory(prefix="shardfs-test-") as mnt:
        mnt = Path(mnt)
        try:
            run("mount", source, mnt, check=True, preexec_fn=limited(resource.RLIMIT_NOFILE, 256))
            with open("/proc/%d/limits" % daemon_of(mnt)) as limits:
                assert next(line for line in limits if line.startswith("Max open files")).split()[3] == "256"
            wrong = []

            paths = sorted(expected)

            def read(seed):
                for path in random.Random(seed).sample(paths, 150):
                    try:
                        if set(np.load(mnt / path).tolist()) != {expected[path]}:
                            wrong.append(path)
                    except Exception as e:  # noqa: BLE001 - whatever it is, it is wrong
                        wrong.append((path, e))

            crowd = [threading.Thread(target=read, args=(seed,)) for seed in range(64)]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join(120)
                assert not thread.is_alive()
            assert not wrong, wrong[:5]
            assert len(os.listdir(f"/proc/{daemon_of(mnt)}/fd")) < 256
            assert peak_memory(mnt) < 256
        finally:
            unmount(mnt)


def test_a_decoder_that_cannot_be_started_is_no_damage():
    """Where descriptors run out, frames of videos could not be looked at."""
    codes = {}
    for most in range(10, 26):
        done = run("verify", FIXTURES / "pick_and_place", preexec_fn=limited(resource.RLIMIT_NOFILE, most))
        codes.setdefault(done.returncode, []).append(most)
    assert codes.keys() == {0, 2}, codes


def verified_by_dying_decoders(most):
    """What `verify` ends with while so many of its decoders are killed, as the kernel does where memory is short."""
    verify = subprocess.Popen([BIN, "verify", FIXTURES / "pick_and_place"], stdout=subprocess.DEVNULL)
    killed = set()
    while verify.poll() is None:
        for children in Path(f"/proc/{verify.pid}/task").glob("*/children"):
            # A thread may have ended meanwhile, and a decoder.
            with contextlib.suppress(OSError):
                for child in set(map(int, children.read_text().split())) - killed:
                    if len(killed) < most:
                        os.kill(child, signal.SIGKILL)
                        killed.add(child)
    return verify.returncode if killed else None


def test_a_decoder_that_is_killed_is_no_damage():
    """Once costs nothing, and always says nothing about the video. On a busy machine some are done before they are killed."""
    def first(most, wanted):
        return next(code for code in (verified_by_dying_decoders(most) for _ in range(50)) if wanted(code))

    assert first(1, lambda code: code is not None) == 0
    assert first(1000, lambda code: code) == 2


def test_want_of_memory_is_no_damage():
    """What bzip2 could not have memory for was not looked at: that is exit code 2, if the process goes on at all."""
    for megabytes in range(28, 42, 2):
        done = run("verify", FIXTURES / "drive.bag", preexec_fn=limited(resource.RLIMIT_AS, megabytes << 20))
        assert done.returncode != 1, (megabytes, done.stdout)


def test_a_decoder_where_memory_is_limited_already():
    # As a user, who may not raise a limit.
    user = ["setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"] if os.geteuid() == 0 else []
    done = subprocess.run([*user, BIN, "verify", FIXTURES / "pick_and_place"], preexec_fn=limited(resource.RLIMIT_AS, 250 << 20),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_soft_limit_is_raised(tmp_path):
    try:
        run("mount", FIXTURES, tmp_path, check=True, preexec_fn=limited(resource.RLIMIT_NOFILE, 64, 4096))
        with open("/proc/%d/limits" % daemon_of(tmp_path)) as limits:
            assert next(line for line in limits if line.startswith("Max open files")).split()[3] == "4096"
    finally:
        unmount(tmp_path)


@pytest.mark.parametrize("megabytes", [400, 1500])
def test_little_address_space(expected, tmp_path, megabytes):
    """Where memory is refused a read fails; the daemon lives, and what is read is right."""
    try:
        run("mount", "--cache-size", "8M", FIXTURES, tmp_path, check=True,
            preexec_fn=limited(resource.RLIMIT_AS, megabytes << 20))
        daemon = daemon_of(tmp_path)
        read_all_at_once(tmp_path, expected, threads=32, allowed=(errno.ENOMEM, errno.EIO, errno.EAGAIN))
        assert not is_gone(daemon)
        # Without other mounts there is enough.
        assert (tmp_path / JOINT).read_bytes() == expected[JOINT]
    finally:
        unmount(tmp_path)


# --- rights ------------------------------------------------------------------------------

@pytest.fixture
def device_for_all():
    """/dev/fuse as distributions have it, for the time of a test."""
    before = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    try:
        yield
    finally:
        os.chmod("/dev/fuse", before)


@pytest.fixture
def public():
    """A folder that all users can reach."""
    with tempfile.TemporaryDirectory(prefix="shardfs-public-", dir=tempfile.gettempdir()) as path:
        os.chmod(path, 0o755)
        yield Path(path)


def as_nobody(command, **kw):
    return subprocess.run(["su", "-s", "/bin/bash", "nobody", "-c", command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, text=True, **kw)


@pytest.fixture
def program(public):
    """The program in a place where the user nobody can run it."""
    copy = public / "shardfs"
    copy.write_bytes(Path(BIN).read_bytes())
    copy.chmod(0o755)
    return copy


def test_unprivileged_user(device_for_all, public, program):
    """An ordinary user mounts, reads, repairs a dead mount and unmounts, by fusermount3."""
    source, mnt = public / "source", public / "mnt"
    source.mkdir()
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    (source / "ep.wshard").write_bytes((FIXTURES / "ep_001.wshard").read_bytes())
    secret = source / "secret.wshard"
    secret.write_bytes((FIXTURES / "ep_001.wshard").read_bytes())
    secret.chmod(0o600)
    try:
        done = as_nobody(f"out=$(mktemp); {program} mount {source} {mnt} > $out 2>&1; echo $?; cat $out; rm $out")
        assert done.stdout.strip() == "0", done.stdout
        read = as_nobody(f"head -c 6 {mnt}/ep.wshard/signal/joint_pos.npy | tail -c 5; cat {mnt}/.shardfs/stats.json | head -1")
        assert read.stdout == "NUMPY{\n", read.stderr
        assert as_nobody(f"cat {mnt}/secret.wshard").returncode != 0
        # No other user is let in, not even root, unless --allow-other.
        with pytest.raises(PermissionError):
            os.listdir(mnt)
        os.kill(daemon_of(mnt), signal.SIGKILL)
        wait_for(lambda: "not connected" in as_nobody(f"ls {mnt}").stderr, 10, "the end of the daemon")
        again = as_nobody(f"{program} mount {source} {mnt} > /dev/null 2>&1; echo $?; ls {mnt}")
        assert again.stdout.split() == ["0", "ep.wshard", "secret.wshard"], again.stderr
        down = as_nobody(f"{program} umount {mnt}")
        assert down.returncode == 0, down.stderr
        assert not os.path.ismount(mnt)
        # One who may not is told what to do, before anything is mounted.
        with open("/etc/fuse.conf") as conf:
            if "\nuser_allow_other" not in conf.read():
                refused = as_nobody(f"{program} mount --allow-other {source} {mnt}")
                assert refused.returncode == 1
                assert len(refused.stderr.splitlines()) == 1 and "user_allow_other" in refused.stderr
                assert not os.path.ismount(mnt)
    finally:
        subprocess.run(["umount", "-l", str(mnt)], stderr=subprocess.DEVNULL)


def test_others_read_what_the_modes_allow_and_nothing_else(public):
    """With --allow-other, as root: containers, folders and files that the user nobody may not read stay unreadable."""
    source, mnt = public / "source", public / "mnt"
    mnt.mkdir()
    data = (FIXTURES / "ep_001.wshard").read_bytes()
    modes = {"open.wshard": 0o644, "closed.wshard": 0o600, "group.wshard": 0o640}
    for folder, mode in {"": 0o755, "private": 0o700, "listed": 0o744, "passed": 0o711}.items():
        (source / folder).mkdir(parents=True)
        for name, file_mode in modes.items():
            (source / folder / name).write_bytes(data)
            (source / folder / name).chmod(file_mode)
        (source / folder / "plain.txt").write_text("text")
        (source / folder / "plain.txt").chmod(0o640)
        (source / folder).chmod(mode)
    with mounted(source, "--allow-other", mnt=mnt):
        for folder in ("", "private", "listed", "passed"):
            for name in (*modes, "plain.txt"):
                native = as_nobody(f"head -c 1 {source / folder / name} | wc -c").stdout.strip() == "1"
                inside = mnt / folder / name if name == "plain.txt" else mnt / folder / name / "reward.npy"
                through = as_nobody(f"head -c 1 {inside} | wc -c").stdout.strip() == "1"
                assert through == native, (folder, name)
                if name != "plain.txt":
                    listed = as_nobody(f"ls {mnt / folder / name}").returncode == 0
                    assert listed == native, (folder, name)
        # What is in .shardfs tells of all of it.
        assert as_nobody(f"cat {mnt}/.shardfs/problems.jsonl").returncode != 0
        assert as_nobody(f"ls {mnt}/.shardfs").returncode != 0
        assert json.loads((mnt / ".shardfs/stats.json").read_text())
    # Without the option no other user is let in at all.
    with mounted(source, mnt=mnt):
        assert as_nobody(f"ls {mnt}").returncode != 0


def test_control_files_tell_no_more_than_they_must(tmp_path, writers):
    source = tmp_path / "below/a-private-name/source"
    source.mkdir(parents=True)
    (source / "bad.wshard").write_bytes((FIXTURES / "damaged/bad_crc.wshard").read_bytes())
    (source / "cut.trees").write_bytes((FIXTURES / "damaged/cut_short.trees").read_bytes())
    with mounted(source) as mnt:
        contents(mnt)
        problems = (mnt / ".shardfs/problems.jsonl").read_text()
        assert len(problems.splitlines()) >= 2
        for text in (problems, (mnt / ".shardfs/stats.json").read_text()):
            assert "a-private-name" not in text


# --- problems are told ------------------------------------------------------------------------

def problems(mnt):
    return [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]


def test_a_bad_block_is_told_once(tmp_path):
    """Read a thousand times, by many: one line, with everything that is needed to find it."""
    source = FIXTURES / "damaged"
    log = tmp_path / "log"
    with mounted(source, "--log-file", log) as mnt:
        for _ in range(200):
            for path in ("signal/joint_pos.npy", ".raw/signal/joint_pos.bin"):
                with pytest.raises(OSError) as e, open(mnt / "bad_crc.wshard" / path, "rb", buffering=0) as f:
                    f.read(10)
                assert e.value.errno == errno.EIO
        told = [p for p in problems(mnt) if p["container"] == "bad_crc.wshard"]
        assert len(told) == 1, told
        assert told[0]["block"] == "signal/joint_pos" and told[0]["offset"] == 2656
        assert told[0]["path"] == "signal/joint_pos.npy" and "checksum" in told[0]["message"]
    lines = [line for line in log.read_text().splitlines() if "joint_pos" in line]
    assert len(lines) == 1
    for word in ("bad_crc.wshard/signal/joint_pos.npy", "block 'signal/joint_pos'", "byte 2656", "checksum"):
        assert word in lines[0]


def test_a_disk_that_fails(tmp_path):
    """A file of which a part can't be read: that part is EIO and told once, the rest is there.

    The failing disk is a mount of ours: a column of texts, of which the second block is damaged. Its texts together are a
    KAST file, all of whose bytes are ASCII.
    """
    count = 1 << 20
    values = np.random.default_rng(1).integers(0, 128, count).astype("i1")
    # Header, two entries, keys; arrays of i1 at 256 and 264.
    inner = struct.pack("<4sHHIIQQII", b"KAST", 1, 0, 0, 2, 40, 256, 0, 0)
    inner += struct.pack("<IQIQQ", 1, 104, 0, 8, 256) + struct.pack("<IQIQQ", 1, 106, 0, count, 264) + b"a\0b\0"
    inner = inner.ljust(256, b"\0") + bytes(range(8)) + values.tobytes()
    rows = [inner[:count // 2].decode("ascii"), inner[count // 2:].decode("ascii")]
    blocks = [idv_writer.texts([row]) for row in rows]
    cut = idv_writer.pack(blocks[1], 1)[:-2000]
    source, disk, mnt = tmp_path / "source", tmp_path / "disk", tmp_path / "mnt"
    for folder in (source, disk, mnt):
        folder.mkdir()
    column = idv_writer.Column("t", "TextSpan", blocks, 1, kind=1)
    (source / "x.idv").write_bytes(idv_writer.file(2, [column], damage={(0, 1): cut}))
    with mounted(source, mnt=disk), mounted(disk / "x.idv/columns/t", mnt=mnt):
        assert (np.load(mnt / "utf8.bin/a.npy") == np.arange(8)).all()
        with open(mnt / "utf8.bin/b.npy", "rb", buffering=0) as f:
            assert f.read(128)[:6] == b"\x93NUMPY" and f.read(1000) == values[:1000].tobytes()
            size = os.fstat(f.fileno()).st_size
            for _ in range(100):
                with pytest.raises(OSError) as e:
                    os.pread(f.fileno(), 4096, size - 1000)
                assert e.value.errno == errno.EIO
        told = problems(mnt)
        assert len(told) == 1, told
        assert told[0]["container"] == "utf8.bin" and told[0]["path"] == "b.npy"
        assert "Input/output error" in told[0]["message"] and told[0]["offset"] > 100
        checked = run("verify", "--json", disk / "x.idv/columns/t/utf8.bin")
        assert checked.returncode == 2 and "Input/output error" in checked.stdout.decode()


def test_a_server_that_does_not_answer(writers, tmp_path):
    """Requests for what lies on it wait; others do not, and all is there when it answers again.

    The server is a mount of ours inside SOURCE, whose daemon is stopped for a while.
    """
    source, remote, mnt = tmp_path / "source", tmp_path / "remote", tmp_path / "mnt"
    for folder in (source, remote, mnt, source / "far"):
        folder.mkdir()
    far = np.arange(1 << 20, dtype="<i8")
    kas = writers.kastore({"a": np.arange(5, dtype="<i8"), "b": far})
    writers.write_shard(remote / "outer.wshard", [("signal/data", kas)], codec="none")
    (remote / "plain.bin").write_bytes(bytes(range(256)) * 4096)
    near = {f"x{i}": np.arange(i, 1000 + i, dtype="<i8") for i in range(50)}
    (source / "near.kas").write_bytes(writers.kastore(near))
    inside = mnt / "far/outer.wshard/.raw/signal/data.bin"
    with mounted(remote, mnt=source / "far"), mounted(source, "--threads=1", mnt=mnt):
        server = daemon_of(source / "far")
        assert (np.load(inside / "a.npy") == np.arange(5)).all()
        assert (np.load(mnt / "near.kas/x0.npy") == near["x0"]).all()
        got = {}

        def keep(name, work):
            try:
                got[name] = work()
            except OSError as e:
                got[name] = e.errno

        works = {f"name {i}": lambda i=i: os.stat(mnt / f"far/none{i}") for i in range(8)}
        works |= {f"read {i}": lambda i=i: np.load(inside / "b.npy")[i::8] for i in range(8)}
        works["plain"] = (mnt / "far/plain.bin").read_bytes
        works["list"] = lambda: os.listdir(mnt / "far")
        waiting = [threading.Thread(target=keep, args=one, daemon=True) for one in works.items()]
        os.kill(server, signal.SIGSTOP)
        wait_for(lambda: states_of(server) == {"T"})
        try:
            for thread in waiting:
                thread.start()
            time.sleep(0.5)
            assert not {name for name in got if not name.startswith(("plain", "list"))}, got
            others = threading.Thread(daemon=True, target=keep, args=("near", lambda: [
                np.load(mnt / f"near.kas/{name}.npy").tobytes() for name in sorted(near)]))
            others.start()
            others.join(10)
            assert got["near"] == [near[name].tobytes() for name in sorted(near)]
            assert json.loads((mnt / ".shardfs/stats.json").read_text())["requests"]["lookup"] > 50
        finally:
            os.kill(server, signal.SIGCONT)
        for thread in waiting:
            thread.join(20)
        assert {got[f"name {i}"] for i in range(8)} == {errno.ENOENT}
        for i in range(8):
            assert (got[f"read {i}"] == far[i::8]).all()
        assert got["plain"] == bytes(range(256)) * 4096 and sorted(got["list"]) == ["outer.wshard", "plain.bin"]


def test_many_containers_do_not_fill_memory(writers, many_files):
    """Listing a folder of very many opens none of them; the daemon stays small."""
    source = many_files
    data = writers.kastore({"x": np.arange(3, dtype="<i8")})
    count = 20_000
    for i in range(count):
        (source / f"{i:06}.kas").write_bytes(data)
    with mounted(source) as mnt:
        pid = daemon_of(mnt)
        assert len(os.listdir(mnt)) == count
        assert sum(entry.is_dir(follow_symlinks=False) for entry in os.scandir(mnt)) == count
        stats = json.loads((mnt / ".shardfs/stats.json").read_text())
        assert stats["containers_open"] == 0
        for i in range(0, count, 40):
            assert read_checked(mnt / f"{i:06}.kas/x.npy").endswith(b"\x02" + bytes(7))
        stats = json.loads((mnt / ".shardfs/stats.json").read_text())
        assert 0 < stats["containers_open"] <= 500
        assert len(os.listdir(f"/proc/{pid}/fd")) < 700
        rss = int(next(l for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")).split()[1])
        assert rss < 128 << 10, f"{rss} KiB resident"


def test_blocks_outlive_the_containers_that_they_are_of(tmp_path):
    """Of more containers than may be open, each block is decoded once: closing one leaves its blocks in the cache."""
    count = 60
    for i in range(count):
        values = np.full(5000, i, dtype="<i8")
        write_shard(tmp_path / f"{i:02}.shard", [("x", values.tobytes())], role=1, codec="zstd")
    command = ["prlimit", "--nofile=128:128", BIN, "mount", "--foreground", "--serve=cache", tmp_path]
    with mounted_by(command) as (mnt, _):
        misses = []
        for _ in range(2):
            for i in range(count):
                with open(mnt / f"{i:02}.shard/.raw/x.bin", "rb") as file:
                    assert np.frombuffer(file.read(), dtype="<i8").tolist() == [i] * 5000
                    # The kernel keeps no pages, so the second round asks again.
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stats = statistics_of(mnt)
            misses.append(stats["cache"]["misses"])
            assert 0 < stats["containers_open"] <= 32
        assert stats["containers_closed"] >= 2 * (count - 32)
        assert stats["containers_opened"] == stats["containers_open"] + stats["containers_closed"]
        assert stats["requests"]["read"] >= 2 * count and misses[0] == misses[1], (stats["requests"], misses)
