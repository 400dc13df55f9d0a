"""A disk or server that never answers: requests for what lies on it wait, and no others do.

The server is a mount of ours inside SOURCE, whose daemon is stopped.
"""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from support import FIXTURES, mounted, run, seen_within, threads_of, wait_for
from test_faults import as_nobody, daemon_of, device_for_all, is_gone, program, public  # noqa: F401 - fixtures
from test_lifecycle import PATIENCE, detach, kinds_at, places, stopped  # noqa: F401 - a fixture

MANY = 600


def in_time(work):
    """What a function gives, from a thread of its own that may be left behind."""
    got = {}

    def run_it():
        try:
            got["value"] = work()
        except OSError as e:
            got["value"] = e

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if isinstance(got["value"], OSError):
        raise got["value"]
    return got["value"]


def ask(path):
    """A thread that looks at a path and may never come back."""
    def look():
        with contextlib.suppress(OSError):
            os.stat(path)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def far(tmp_path, places, writers):  # noqa: F811
    """SOURCE with a mount in it; the mount of SOURCE; the process behind the mount in it."""
    remote, source = tmp_path / "remote", tmp_path / "source"
    (source / "far").mkdir(parents=True)
    (source / "near").mkdir()
    remote.mkdir()
    for i in range(MANY):
        (remote / f"file{i}").write_bytes(bytes(1000))
    (source / "near/x.kas").write_bytes(writers.kastore({"x": np.arange(1000)}))
    (source / "notes.txt").write_text("hello")
    mnt = places("mnt")
    with mounted(remote, mnt=source / "far"):
        with mounted(source, "--threads=1", mnt=mnt):
            yield source, mnt, daemon_of(source / "far")


def forget_names():
    """Waits until the kernel asks again."""
    time.sleep(0.7)


def test_a_folder_with_a_stuck_name_goes_on(far):
    """A dead mount is looked at, then the folder it stands in changes: other names there are seen, and it is listed."""
    source, mnt, server = far
    os.listdir(mnt)
    with stopped(server):
        forget_names()
        waiting = [ask(mnt / "far"), ask(mnt / "far/file1")]
        time.sleep(0.3)
        for i in range(20):
            (source / f"new{i}.txt").write_text(str(i))
            assert in_time(lambda: wait_for(lambda: (mnt / f"new{i}.txt").is_file())) is None
            assert in_time((mnt / f"new{i}.txt").read_text) == str(i)
            os.unlink(source / f"new{i}.txt")
            time.sleep(0.05)
        (source / "near/y.txt").write_text("y")
        wait_for(lambda: in_time((mnt / "near/y.txt").is_file))
        assert all(thread.is_alive() for thread in waiting)
    for thread in waiting:
        thread.join(20)
        assert not thread.is_alive()


def test_500_stuck_requests_leave_the_mount_usable(far):
    source, mnt, server = far
    os.listdir(mnt / "far")
    assert (np.load(mnt / "near/x.kas/x.npy") == np.arange(1000)).all()
    daemon = daemon_of(mnt)
    waiting = []
    with stopped(server):
        forget_names()
        waiting = [ask(mnt / f"far/file{i}") for i in range(MANY)]
        asked = ("request_wait", "d_alloc_par", "rwsem", "fuse", "__fuse")
        seen_within(5, lambda: sum(place.startswith(asked) for place in threads_of("self", "wchan").values()) > 100)
        for _ in range(3):
            stats = json.loads(in_time((mnt / ".shardfs/stats.json").read_text))
            assert stats["requests"]["lookup"] > 0
            assert in_time((mnt / "notes.txt").read_text) == "hello"
            assert (in_time(lambda: np.load(mnt / "near/x.kas/x.npy")) == np.arange(1000)).all()
            assert in_time(lambda: sorted(os.listdir(mnt / "near"))) == ["x.kas"]
            time.sleep(0.6)
        # What waits for one place has a bounded number of threads.
        assert len(os.listdir(f"/proc/{daemon}/task")) < 120
        state, = json.loads(run("status", "--json", mnt, timeout=PATIENCE).stdout)
        assert state["state"] == "answers"
        run("umount", "--force", mnt, check=True, timeout=PATIENCE)
        assert kinds_at(mnt) == []
        for thread in waiting:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a reader still waits"
    wait_for(lambda: is_gone(daemon), 20, "the end of the daemon")


def test_what_waited_is_answered_when_the_server_is_back(far):
    source, mnt, server = far
    os.listdir(mnt / "far")
    got = {}

    def size(i):
        got[i] = os.stat(mnt / f"far/file{i}").st_size

    with stopped(server):
        forget_names()
        waiting = [threading.Thread(target=size, args=(i,), daemon=True) for i in range(300)]
        for thread in waiting:
            thread.start()
        time.sleep(1)
    for thread in waiting:
        thread.join(PATIENCE)
    assert got == {i: 1000 for i in range(300)}


def test_control_files_answer_while_source_does_not(places):  # noqa: F811
    """SOURCE itself is dead, and has hundreds of requests waiting: what the mount says of itself can be read."""
    server, mnt = places("server"), places("mnt")
    with mounted(FIXTURES, mnt=server), mounted(server, "--threads=1", mnt=mnt):
        os.listdir(mnt)
        os.statvfs(mnt)
        with stopped(json.loads((server / ".shardfs/config.json").read_text())["pid"]):
            forget_names()
            for i in range(200):
                ask(mnt / f"none{i}")
            time.sleep(0.5)
            for _ in range(3):
                assert json.loads(in_time((mnt / ".shardfs/stats.json").read_text))["requests"]["lookup"] > 0
                assert json.loads(in_time((mnt / ".shardfs/config.json").read_text))["source"] == str(server)
                assert in_time(lambda: os.statvfs(mnt)).f_blocks > 0
                time.sleep(0.6)
            state, = json.loads(run("status", "--json", mnt, timeout=PATIENCE).stdout)
            assert state["state"] == "answers"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", ["os.stat(path + '/file1')", "os.listdir(path)", "open(path + '/file2').read()"])
def test_a_killed_reader_is_gone(how, what, far):
    """A reader of what never answers can be ended: by SIGKILL, and by Ctrl-C."""
    source, mnt, server = far
    os.listdir(mnt / "far")
    daemon = daemon_of(mnt)
    code = ("import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); path = sys.argv[1]; "
            f"print('ready', flush=True); {what}")
    with stopped(server):
        forget_names()
        before = len(os.listdir(f"/proc/{daemon}/task"))
        for _ in range(3):
            reader = subprocess.Popen([sys.executable, "-c", code, str(mnt / "far")], stdout=subprocess.PIPE)
            assert reader.stdout.readline() == b"ready\n"
            time.sleep(0.3)
            assert reader.poll() is None
            reader.send_signal(how)
            assert reader.wait(PATIENCE) == -how
        assert len(os.listdir(f"/proc/{daemon}/task")) <= before + 12
    # Nothing is left behind: all is as it was.
    assert in_time(lambda: len(os.listdir(mnt / "far"))) == MANY
    assert in_time(lambda: os.stat(mnt / "far/file1").st_size) == 1000


# Each request that may wait, of a process that has looked everything up before: on folder, file and link of SOURCE, and on
# a folder and a file inside a container there.
REQUESTS = {
    "lookup": "os.stat('file9', dir_fd=folder)",
    "lookup inside": "os.stat('y.npy', dir_fd=container)",
    "getattr": "os.stat(file)",
    "getattr inside": "os.stat(array)",
    "readlink": "os.readlink('', dir_fd=link)",
    "readdir": "os.listdir(again(folder))",
    "readdir inside": "os.listdir(again(container))",
    "open and read": "os.read(again(file), 10)",
    "open and read inside": "os.read(again(array), 10)",
    "read": "os.pread(opened, 10, 0)",
    "getxattr": "os.getxattr(f'/proc/self/fd/{array}', 'user.shardfs.dtype')",
    "listxattr": "os.listxattr(f'/proc/self/fd/{array}')",
    "statfs": "os.statvfs(folder)",
}
# Those that no disk is asked for may be answered.
MUST_WAIT = {"lookup", "getattr", "readdir", "open and read", "read", "readlink"}
PREPARED = """
import os, sys
top = sys.argv[1]
held = lambda name: os.open(os.path.join(top, name), os.O_PATH | os.O_NOFOLLOW)
folder, file, link = held("."), held("file8"), held("link")
container, array = held("outer.shard/.raw/inner.bin"), held("outer.shard/.raw/inner.bin/x.npy")
opened = os.open(os.path.join(top, "file10"), os.O_RDONLY)
again = lambda fd: os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
print("ready", flush=True)
sys.stdin.readline()
try:
    REQUEST
except OSError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_killed_in_every_request(mode, places, tmp_path, writers):  # noqa: F811
    """A reader of what never answers can be killed, whatever it asked for."""
    remote, source, mnt = tmp_path / "remote", tmp_path / "source", places("mnt")
    (source / "far").mkdir(parents=True)
    remote.mkdir()
    for i in range(20):
        (remote / f"file{i}").write_bytes(bytes(1000))
    (remote / "link").symlink_to("file1")
    # A container's bytes, as a file of another one.
    inner = writers.kastore({"x": np.arange(1000), "y": np.arange(10)})
    writers.write_shard(remote / "outer.shard", [("inner", inner)], role=0)
    with mounted(remote, mnt=source / "far"), mounted(source, f"--serve={mode}", "--xattrs", "--threads=1", mnt=mnt):
        readers = {}
        for name, request in REQUESTS.items():
            code = PREPARED.replace("REQUEST", request)
            readers[name] = subprocess.Popen([sys.executable, "-c", code, str(mnt / "far")], text=True,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name, reader in readers.items():
            assert reader.stdout.readline() == "ready\n", name
        with stopped(daemon_of(source / "far")):
            forget_names()
            for reader in readers.values():
                reader.stdin.write("\n")
                reader.stdin.flush()
            time.sleep(1.5)
            waited = {name for name, reader in readers.items() if reader.poll() is None}
            assert waited >= MUST_WAIT, MUST_WAIT - waited
            for name in waited:
                readers[name].kill()
            for name in waited:
                assert readers[name].wait(PATIENCE) == -signal.SIGKILL, name
        for reader in readers.values():
            reader.communicate(timeout=PATIENCE)
        # Nothing is left behind.
        assert in_time(lambda: os.stat(mnt / "far/file1").st_size) == 1000
        assert in_time((mnt / "far/file10").read_bytes) == bytes(1000)


def test_a_notifier_that_does_not_answer_is_noticed(places, tmp_path):  # noqa: F811
    """The one thread that tells the kernel of changes is held: changes are seen all the same, and the mount says so."""
    import ctypes
    assert os.geteuid() == 0, "this test holds a thread, as root"
    seize, interrupt, detach_it = 0x4206, 0x4207, 17
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request, thread):
        assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())

    source, mnt = tmp_path / "source", places("mnt")
    source.mkdir()
    (source / "note.txt").write_text("before")
    with mounted(source, mnt=mnt):
        assert (mnt / "note.txt").read_text() == "before"
        thread, = [thread for thread, name in threads_of(daemon_of(mnt), "comm").items() if name == "notify\n"]
        ptrace(seize, thread)
        try:
            ptrace(interrupt, thread)
            os.waitpid(thread, 0x40000000)
            (source / "note.txt").write_text("afterwards")
            (source / "new.txt").write_text("new")
            seen_within(5, lambda: in_time((mnt / "note.txt").read_text) == "afterwards")
            seen_within(5, lambda: in_time((mnt / "new.txt").read_text) == "new")
            told = "the kernel is no longer notified of changes"
            wait_for(lambda: told in in_time((mnt / ".shardfs/problems.jsonl").read_text), 60)
        finally:
            ptrace(detach_it, thread)
        (source / "note.txt").write_text("at the end, more")
        seen_within(5, lambda: in_time((mnt / "note.txt").read_text) == "at the end, more")


def test_signals_that_end_nothing_interrupt_nothing(far):
    """A reader that handles its signals gets its answer, however many come meanwhile. (`open` would not show it: Python
    tries that again where it is interrupted.)"""
    source, mnt, server = far
    os.listdir(mnt / "far")
    code = ("import os, signal, sys; signal.signal(signal.SIGALRM, lambda *_: None)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002); size = os.stat(sys.argv[1]).st_size\n"
            "signal.setitimer(signal.ITIMER_REAL, 0); print(size)")
    with stopped(server):
        forget_names()
        reader = subprocess.Popen([sys.executable, "-c", code, str(mnt / "far/file7")], stdout=subprocess.PIPE)
        time.sleep(2.5)
        assert reader.poll() is None
    assert reader.communicate(timeout=PATIENCE)[0] == b"1000\n" and reader.returncode == 0


def test_no_thread_can_be_started(device_for_all, public, program, writers):  # noqa: F811
    """`ulimit -u`: where this process may have no thread more, requests are answered all the same."""
    source, mnt = public / "source", public / "mnt"
    source.mkdir()
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    for i in range(30):
        (source / f"{i}.kas").write_bytes(writers.kastore({"x": np.arange(i, i + 5000)}))
        (source / f"{i}.txt").write_text(str(i))
    try:
        # As an ordinary user: root is not bound by this limit.
        assert as_nobody(f"{program} mount {source} {mnt} > /dev/null 2>&1").returncode == 0
        daemon = daemon_of(mnt)

        def threads():
            return sorted(name.strip() for name in threads_of(daemon, "comm").values())

        # No more from here on; those of the pool end by themselves when they have no work.
        assert as_nobody(f"prlimit --pid {daemon} --nproc=1:1").returncode == 0
        wait_for(lambda: "waiting" not in threads(), 60)
        before = threads()
        done = as_nobody(f"cd {mnt}; ls | wc -l; for i in $(seq 0 29); do cat $i.txt & tail -c 8 $i.kas/x.npy > /dev/null & "
                         "done; wait; cmp 7.kas/x.npy 7.kas/x.npy && echo; head -c 6 3.kas/x.npy | tail -c 5")
        words = done.stdout.split()
        assert words[0] == "60" and words[-1] == "NUMPY", done
        assert sorted("".join(words[1:-1])) == sorted("".join(map(str, range(30)))), done
        assert set(threads()) <= set(before)
        assert as_nobody(f"{program} umount {mnt}").returncode == 0
    finally:
        detach(mnt)


def test_an_unwritable_temporary_directory(places):  # noqa: F811
    """Nothing is written there, or anywhere."""
    mnt = places("mnt")
    for serve in ("cache", "passthrough"):
        run("mount", f"--serve={serve}", FIXTURES, mnt, check=True, env=dict(os.environ, TMPDIR="/nowhere"))
        assert (np.load(mnt / "ep_001.wshard/signal/joint_pos.npy").size) > 0
        run("umount", mnt, check=True)


def test_256_descriptors_in_passthrough_mode(writers, places, tmp_path):  # noqa: F811
    """More large files than there are descriptors, 64 readers, hundreds of handles held: everything is right, then and later."""
    import random
    import resource
    source, mnt = tmp_path / "source", places("mnt")
    source.mkdir()
    values, plain = {}, {}
    for i in range(40):
        arrays = {f"signal/x{j}": np.full(40_000 + i, 100 * i + j, "<i8") for j in range(10)}
        blocks = [(name, array.tobytes()) for name, array in arrays.items()]
        writers.write_shard(source / f"{i}.wshard", blocks, codec="zstd")
        values |= {f"{i}.wshard/.raw/{name}.bin": array for name, array in arrays.items()}
    for i in range(300):
        plain[f"{i}.bin"] = bytes([i % 251]) * 300_000
        (source / f"{i}.bin").write_bytes(plain[f"{i}.bin"])
    run("mount", "--serve=passthrough", "--cache-size=1G", source, mnt, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    daemon = daemon_of(mnt)
    assert json.loads((mnt / ".shardfs/config.json").read_text())["serve"] == "passthrough"
    wrong = []

    def is_right(path):
        return (mnt / path).read_bytes() == (plain[path] if path in plain else values[path].tobytes())

    def read(seed):
        for path in random.Random(seed).sample([*values, *plain], 40):
            try:
                if not is_right(path):
                    wrong.append(path)
            except OSError as e:
                wrong.append((path, e))

    # Twice: the second time finished files are found in memory.
    for round_ in range(2):
        crowd = [threading.Thread(target=read, args=(seed + 100 * round_,), daemon=True) for seed in range(64)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join(120)
            assert not thread.is_alive(), "a reader hangs"
        assert not wrong, (len(wrong), wrong[:5])
    held = [open(mnt / path, "rb") for path in [*list(values)[:350], *plain]]
    try:
        assert all(f.read(100) for f in held)
        read(1)
        assert not wrong, (len(wrong), wrong[:5])
        assert len(os.listdir(f"/proc/{daemon}/fd")) < 256
    finally:
        for f in held:
            f.close()
    assert all(map(is_right, random.Random(2).sample([*values, *plain], 60)))
    assert json.loads((mnt / ".shardfs/stats.json").read_text())["requests"]["passed"] > 0


def test_no_descriptor_left_in_passthrough_mode(places, tmp_path):  # noqa: F811
    """Not a single one more: what is open is read through the kernel's cache, SOURCE is not taken for gone, and all is well
    when there are descriptors again."""
    import resource
    source, mnt = tmp_path / "source", places("mnt")
    source.mkdir()
    (source / "open.bin").write_bytes(b"open" * 100_000)
    (source / "closed.bin").write_bytes(b"closed" * 100_000)
    with mounted(source, "--serve=passthrough", mnt=mnt):
        assert (mnt / "open.bin").read_bytes() == b"open" * 100_000
        assert (mnt / "closed.bin").stat().st_size == 600_000
        daemon = daemon_of(mnt)
        # Fewer than there are. (With 3, duplicating one would be EINVAL.)
        before = resource.prlimit(daemon, resource.RLIMIT_NOFILE, (4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        # Long enough for the daemon to look at SOURCE's own path again, and for the kernel to ask for all names.
        for _ in range(3):
            time.sleep(0.7)
            assert (mnt / "open.bin").read_bytes() == b"open" * 100_000
            with pytest.raises(OSError) as failed:
                (mnt / "closed.bin").read_bytes()
            assert failed.value.errno == errno.EMFILE
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, before)
        assert (mnt / "closed.bin").read_bytes() == b"closed" * 100_000
        assert (mnt / "open.bin").read_bytes() == b"open" * 100_000
