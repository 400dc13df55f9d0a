"""The life of a mount beside what stops, dies or stands in its way: nothing of ours asks before it acts."""

import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import FIXTURES, assert_one_line_error, run, states_of, wait_for
from test_faults import as_nobody, daemon_of, device_for_all, is_gone, program, public  # noqa: F401 - fixtures

JOINT = "ep_001.wshard/signal/joint_pos.npy"
# Long enough for a machine that is busy; what hangs, hangs for good.
PATIENCE = 30
MNT_FORCE, MNT_DETACH = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def table():
    """The kernel's table: (path, type, source) of each mount, as they are."""
    def plain(field):
        return field.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")

    mounts = []
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        fields, rest = line.split(" - ")
        kind, source, options = rest.split(" ", 2)
        mounts.append((os.fsdecode(escaped(fields.split()[4])), kind, os.fsdecode(escaped(source)), options))
    return mounts


def escaped(field):
    """`\\040` of the kernel's table as the byte."""
    data, out = os.fsencode(field), bytearray()
    while data:
        if data[:1] == b"\\":
            out.append(int(data[1:4], 8))
            data = data[4:]
        else:
            out += data[:1]
            data = data[1:]
    return bytes(out)


def kinds_at(place):
    return [kind for at, kind, _, _ in table() if at == str(place)]


def detach(place):
    while kinds_at(place):
        assert libc.umount2(os.fsencode(place), MNT_DETACH) == 0, os.strerror(ctypes.get_errno())


def mount_tmpfs(place):
    assert libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=64k") == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def stopped(pid):
    """A process that is there and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: states_of(pid) <= set("TtZX"))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def forget_attributes():
    """Waits until the kernel asks again: what it remembers would be an answer of a mount that has none."""
    time.sleep(1)


@pytest.fixture
def places(tmp_path):
    """Folders to mount on, of which nothing stays."""
    made = []

    def make(name="mnt"):
        place = tmp_path / name
        place.mkdir()
        made.append(place)
        return place

    yield make
    for place in made:
        detach(place)


# --- names of SOURCE ------------------------------------------------------------------------

ODD_NAMES = ["x,allow_other", "x\\,allow_other", "x\\\\,allow_other,uid=0", "my data", "two\nlines", "a=b", 'q"x,y"',
             "x,subtype=other", "tab\tand\x1bescape", "-o"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_of_source_is_no_option(name, device_for_all, public, program):  # noqa: F811
    """Mounted by an ordinary user, where a helper parses options: no other user gets in, whatever SOURCE is called."""
    source, mnt = public / name, public / "mnt"
    source.mkdir()
    (source / "note.txt").write_text("for the one who mounted")
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    conf = Path("/etc/fuse.conf")
    before = conf.read_text()
    conf.write_text(before + "\nuser_allow_other\n")
    try:
        done = as_nobody(f"{program} mount {shlex.quote(str(source))} {mnt} > /dev/null 2>&1; echo $?; cat {mnt}/note.txt")
        assert done.stdout == "0\nfor the one who mounted", done
        (kind, options), = [(kind, options) for at, kind, _, options in table() if at == str(mnt)]
        assert kind == "fuse.shardfs" and "user_id=65534" in options and "allow_other" not in options
        with pytest.raises(PermissionError):
            (mnt / "note.txt").read_text()
        one, = json.loads(as_nobody(f"{program} status --json {mnt}").stdout)
        assert (one["state"], one["source"]) == ("answers", str(source))
        assert as_nobody(f"{program} umount {mnt}").returncode == 0
    finally:
        conf.write_text(before)
        detach(mnt)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_status_shows_the_right_source(name, tmp_path, places):
    """Also of a mount that is dead, as far as the kernel knows it; on one line, without control characters."""
    source, mnt = tmp_path / name, places("mnt " + name)
    source.mkdir()
    run("mount", "--", source, mnt, check=True)
    for state in ("answers", "dead"):
        done = run("status", "--json", mnt)
        one, = json.loads(done.stdout)
        assert (one["state"], one["source"], one["mountpoint"]) == (state, str(source), str(mnt))
        text = run("status", mnt).stdout.decode()
        assert "\x1b" not in text and not any(ord(c) < 32 for line in text.splitlines() for c in line)
        assert sum("source" in line for line in text.splitlines()) == 1
        if state == "answers":
            pid = one["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: is_gone(pid), what="the end of the daemon")
    assert libc.umount2(os.fsencode(mnt), MNT_DETACH) == 0


# --- what is stopped, and what is dead -------------------------------------------------------------

def recommended(text):
    """The command that a message ends with, as a shell reads it."""
    words = shlex.split(text.strip().splitlines()[-1].rsplit(": ", 1)[1])
    assert words[0] == "shardfs"
    return words[1:]


@pytest.mark.parametrize("ways", [["umount", "--lazy"], ["umount", "--force"], ["umount"]])
def test_unmounting_asks_nothing(ways, places):
    mnt = places("my mount")
    run("mount", FIXTURES, mnt, check=True)
    pid = daemon_of(mnt)
    with stopped(pid):
        forget_attributes()
        run(*ways, mnt, check=True, timeout=PATIENCE)
        assert kinds_at(mnt) == []
    wait_for(lambda: is_gone(pid), 20, "the end of the daemon")


def waits(pid):
    """Whether `cat` runs and sleeps."""
    name, rest = Path(f"/proc/{pid}/stat").read_text().split("(")[1].rsplit(") ", 1)
    return name == "cat" and rest[0] in "SD"


def test_status_recommends_what_works_then(places):
    mnt = places("my 'odd' mount")
    run("mount", FIXTURES, mnt, check=True)
    pid = daemon_of(mnt)
    with stopped(pid):
        forget_attributes()
        said = run("status", mnt, timeout=PATIENCE)
        assert said.returncode == 1 and "does not answer" in said.stderr
        again = run("mount", FIXTURES, mnt, timeout=PATIENCE)
        assert again.returncode == 1 and recommended(again.stderr) == ["umount", "--lazy", str(mnt)]
        # It ends those who wait, too: the daemon may be one that can't end.
        reader = subprocess.Popen(["cat", mnt / JOINT], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: waits(reader.pid), 20, "the reader to wait")
        run(*recommended(said.stderr), check=True, timeout=PATIENCE)
        assert kinds_at(mnt) == []
        assert reader.wait(timeout=PATIENCE) == 1
    wait_for(lambda: is_gone(pid), 20, "the end of the daemon")


def holding(path, *command):
    """A process that has a file open until its input ends."""
    code = "import sys; f = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen([*command, sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    return child


def test_a_busy_mount_that_is_stopped(places):
    """Says who is inside, without asking the mount."""
    mnt = places()
    run("mount", FIXTURES, mnt, check=True)
    # Not held by this process: each command it starts would close it, and wait.
    inside = holding(mnt / JOINT)
    with stopped(daemon_of(mnt)):
        forget_attributes()
        refused = run("umount", mnt, timeout=PATIENCE)
        assert_one_line_error(refused, f"pid {inside.pid}", "--lazy")
        assert kinds_at(mnt) == ["fuse.shardfs"]
        run("umount", "--lazy", mnt, check=True, timeout=PATIENCE)
        assert kinds_at(mnt) == []
    inside.communicate(b"", timeout=20)


def test_unmounting_asks_nothing_as_a_user(device_for_all, public, program):  # noqa: F811
    mnt = public / "mnt"
    for way in ("--lazy", ""):
        mnt.mkdir(exist_ok=True)
        os.chown(mnt, 65534, 65534)
        try:
            assert as_nobody(f"{program} mount {FIXTURES} {mnt} > /dev/null 2>&1").returncode == 0
            daemon = daemon_of(mnt)
            with stopped(daemon):
                forget_attributes()
                done = as_nobody(f"timeout {PATIENCE} {program} umount {way} {mnt}")
                assert done.returncode == 0, done
                assert kinds_at(mnt) == []
            # A daemon that was stopped when its mount went ends only now, and the next one has its command line.
            wait_for(lambda: is_gone(daemon), 20, "the end of the daemon")
        finally:
            detach(mnt)


def test_a_dead_source(tmp_path, places):
    """A server below that stops: the mount comes down in each way, and its daemon ends."""
    server = places("server")
    run("mount", FIXTURES, server, check=True)
    for ways in (["umount"], ["umount", "--lazy"], ["umount", "--force"], None):
        mnt = places("-".join(ways or ["TERM"]))
        run("mount", server, mnt, check=True)
        daemon = daemon_of(mnt)
        with stopped(json.loads((server / ".shardfs/config.json").read_text())["pid"]):
            forget_attributes()
            if ways:
                run(*ways, mnt, check=True, timeout=PATIENCE)
            else:
                os.kill(daemon, signal.SIGTERM)
                wait_for(lambda: not kinds_at(mnt), PATIENCE, "the unmounting")
            assert kinds_at(mnt) == []
        wait_for(lambda: is_gone(daemon), 20, "the end of the daemon")


def test_mounting_a_dead_source_fails(places):
    server, mnt = places("server"), places()
    run("mount", FIXTURES, server, check=True)
    pid = json.loads((server / ".shardfs/config.json").read_text())["pid"]
    with stopped(pid):
        forget_attributes()
        done = run("mount", server, mnt, timeout=60)
        assert_one_line_error(done, server, "does not answer")
        assert kinds_at(mnt) == []


# --- force -------------------------------------------------------------------------------------------

def stuck_reader(path):
    """A process that reads a file whose daemon does not answer."""
    return subprocess.Popen([sys.executable, "-c", "import sys\ntry: open(sys.argv[1], 'rb').read()\n"
                             "except OSError as e: sys.exit(e.errno)", str(path)])


def test_force_ends_readers(places):
    """Without fusectl, too: waiting readers get an error."""
    mnt = places()
    run("mount", FIXTURES, mnt, check=True)
    with stopped(daemon_of(mnt)):
        reader = stuck_reader(mnt / "container.json")
        wait_for(lambda: Path(f"/proc/{reader.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "DS", 10)
        time.sleep(0.3)
        assert reader.poll() is None
        run("umount", "--force", mnt, check=True, timeout=PATIENCE)
        assert reader.wait(PATIENCE) != 0
    assert kinds_at(mnt) == []


def test_force_that_fails_says_so(device_for_all, public, program):  # noqa: F811
    """An ordinary user may not end a connection without fusectl: said, exit code 1, and the mount is there still."""
    if any(kind == "fusectl" for _, kind, _, _ in table()):
        pytest.fail("this test needs a machine without fusectl")
    mnt = public / "mnt"
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    try:
        assert as_nobody(f"{program} mount {FIXTURES} {mnt} > /dev/null 2>&1").returncode == 0
        done = as_nobody(f"{program} umount --force {mnt}")
        assert done.returncode == 1 and "still mounted" in done.stderr and "as root" in done.stderr
        assert kinds_at(mnt) == ["fuse.shardfs"]
        # What it recommends works.
        run(*recommended(done.stderr), check=True, timeout=PATIENCE)
        assert kinds_at(mnt) == []
    finally:
        detach(mnt)


# --- whose mount it is ----------------------------------------------------------------------------------

def end(pid, how):
    os.kill(pid, how)
    wait_for(lambda: is_gone(pid), 20, "the end of the daemon")


def test_a_mount_that_came_later_stays(places):
    """Mounted, detached, another filesystem at the same place: the daemon's end leaves it alone."""
    mnt = places()
    run("mount", FIXTURES, mnt, check=True)
    pid = daemon_of(mnt)
    with open(mnt / JOINT, "rb"):
        run("umount", "--lazy", mnt, check=True)
        mount_tmpfs(mnt)
        (mnt / "mine").write_text("mine")
        end(pid, signal.SIGTERM)
        assert kinds_at(mnt) == ["tmpfs"] and (mnt / "mine").read_text() == "mine"


def test_a_mount_on_top_stays(places):
    """A filesystem stacked on the mount outlives the daemon, and no command of ours takes it down."""
    mnt = places()
    run("mount", FIXTURES, mnt, check=True)
    pid = daemon_of(mnt)
    mount_tmpfs(mnt)
    (mnt / "mine").write_text("mine")
    for ways in (["umount"], ["umount", "--lazy"], ["umount", "--force"]):
        assert run(*ways, mnt, timeout=PATIENCE).returncode == 1
        assert kinds_at(mnt) == ["fuse.shardfs", "tmpfs"]
    one, = [one for one in json.loads(run("status", "--json").stdout) if one["mountpoint"] == str(mnt)]
    assert one["state"] == "hidden"
    said = run("status", mnt)
    assert said.returncode == 1 and f"umount {mnt}" in said.stderr
    end(pid, signal.SIGTERM)
    assert kinds_at(mnt)[-1] == "tmpfs" and (mnt / "mine").read_text() == "mine"


@pytest.mark.parametrize("way", [[], ["--lazy"], ["--force"]])
def test_a_mount_below_stays(way, places):
    """As one that stands on a folder of the mount does: it would be gone with it."""
    mnt = places()
    run("mount", FIXTURES, mnt, check=True)
    mount_tmpfs(mnt / "damaged")
    (mnt / "damaged/mine").write_text("mine")
    done = run("umount", *way, mnt)
    assert_one_line_error(done, str(mnt / "damaged"))
    assert kinds_at(mnt / "damaged") == ["tmpfs"]
    detach(mnt / "damaged")
    run("umount", "--lazy", mnt, check=True)


def test_a_mount_that_came_later_stays_as_a_user(device_for_all, public, program):  # noqa: F811
    """Two of one user at one place, one after the other: the end of the first leaves the second alone."""
    mnt = public / "mnt"
    mnt.mkdir()
    os.chown(mnt, 65534, 65534)
    try:
        assert as_nobody(f"{program} mount {FIXTURES} {mnt} > /dev/null 2>&1").returncode == 0
        first = daemon_of(mnt)
        inside = holding(mnt / "notes.txt", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        assert as_nobody(f"{program} umount --lazy {mnt}").returncode == 0
        assert as_nobody(f"{program} mount --uid 7 {FIXTURES} {mnt} > /dev/null 2>&1").returncode == 0
        end(first, signal.SIGTERM)
        inside.communicate(b"", timeout=20)
        assert kinds_at(mnt) == ["fuse.shardfs"]
        assert as_nobody(f"stat -c %u {mnt}/notes.txt").stdout == "7\n"
    finally:
        detach(mnt)


def test_a_mount_that_was_moved_is_taken_down(tmp_path, places):
    """By its number, wherever it is."""
    above, mnt = places("above"), tmp_path / "above/mnt"
    mount_tmpfs(above)
    assert libc.mount(None, os.fsencode(above), None, 1 << 18, None) == 0  # MS_PRIVATE: only then it can be moved
    mnt.mkdir()
    moved = above / "moved"
    moved.mkdir()
    run("mount", FIXTURES, mnt, check=True)
    pid = daemon_of(mnt)
    assert libc.mount(os.fsencode(mnt), os.fsencode(moved), None, 8192, None) == 0, os.strerror(ctypes.get_errno())
    end(pid, signal.SIGTERM)
    assert kinds_at(moved) == kinds_at(mnt) == []


# --- what is printed ------------------------------------------------------------------------------------

def test_no_name_forges_a_line_of_the_log(tmp_path, writers, places):
    """Names on a disk with line breaks and escape sequences: one line of the log each, nothing for a terminal."""
    source, log, mnt = tmp_path / "source", tmp_path / "log", places()
    source.mkdir()
    bad = (FIXTURES / "damaged/cut_short.trees").read_bytes()
    (source / "a\n[2026-01-01T00:00:00Z ERROR shardfs] all is lost\x1b[2J\u202e.trees").write_bytes(bad)
    run("mount", "--log-file", log, source, mnt, check=True)
    os.listdir(mnt)
    for entry in os.scandir(mnt):
        entry.stat()
    wait_for(lambda: "not shown as" in log.read_text(), what="the line")
    lines = log.read_bytes().split(b"\n")[:-1]
    assert len(lines) == 1 and b"all is lost" in lines[0]
    assert all(byte >= 32 for byte in lines[0]) and "\u202e".encode() not in lines[0]
    run("umount", mnt, check=True)
