"""Running the program, and mounts that are always taken down again."""

import contextlib
import json
import os
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from .paths import BIN, TIMEOUT

# How mounts serve files where a test does not say: `scripts/test` runs everything that mounts in both modes.
SERVE = os.environ.get("SHARDFS_SERVE", "auto")

# Options of all mounts in which a test does not say the same: `scripts/with_spill` runs tests with decoded blocks on disk.
OPTIONS = os.environ.get("SHARDFS_MOUNT_OPTIONS", "").split()


def run(*args, check=False, timeout=TIMEOUT, **kw):
    """Runs shardfs; output goes through files, since a daemon keeps pipes open."""
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
    """Takes down whatever is mounted there, dead mounts too."""
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


def with_spill(options):
    """Options of a mount, and those that all have, unless it has its own folder of decoded blocks."""
    return options if any(str(option).startswith("--spill") for option in options) else (*options, *OPTIONS)


@contextlib.contextmanager
def mount_point(mnt=None):
    """`mnt`, or a new folder that is removed again."""
    if mnt is not None:
        yield Path(mnt)
        return
    own = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    try:
        yield own
    finally:
        with contextlib.suppress(OSError):
            own.rmdir()


@contextlib.contextmanager
def mounted(source, *options, mnt=None):
    """A mount in the background; the command returns when the mount answers."""
    if not any(str(option).startswith("--serve") for option in options):
        options = (*options, f"--serve={SERVE}")
    with mount_point(mnt) as mnt:
        try:
            run("mount", *with_spill(options), source, mnt, check=True)
            assert os.path.ismount(mnt), "the command came back before the mount was there"
            yield mnt
        finally:
            unmount(mnt)


@contextlib.contextmanager
def mounted_by(command, mnt=None, *, seconds=20, env=(), stderr=subprocess.DEVNULL):
    """A mount by a program that stays in the foreground, whose last argument is the mount point: (mnt, process).

    The program is looked at every millisecond, so that the time until here can be measured. `env`: variables beside
    those of this process.
    """
    with mount_point(mnt) as mnt:
        process = subprocess.Popen([*map(str, command), str(mnt)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=stderr, env={**os.environ, **dict(env)})
        try:
            end = time.monotonic() + seconds
            while not is_answering(mnt):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"no mount by {' '.join(map(str, command))}")
                time.sleep(0.001)
            yield mnt, process
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            unmount(mnt)


def foreground(source, *options, mnt=None, **kw):
    """`shardfs mount --foreground`: (mnt, process)."""
    return mounted_by([BIN, "mount", "--foreground", *with_spill(options), source], mnt, **kw)


def in_own_namespace(script, *args, **kw):
    """Runs a shell script of root, where mounts are its own; `args` are its $0, $1 and so on.

    Mounts of other tests are detached there: `status` would list them, and a copy of a mount keeps its daemon running.
    """
    # A second time if one went by itself meanwhile: its folder was removed.
    detached = "umount --all --lazy --types fuse.shardfs || umount --all --lazy --types fuse.shardfs\n"
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-ec", detached + script, *args],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, **kw)


def as_ordinary_user(line, place):
    """Runs a command line in `place` as nobody, in a namespace of its own, in which /dev/fuse is open to all."""
    script = """mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
                exec setpriv --reuid 65534 --regid 65534 --clear-groups bash -c "$0\""""
    done = in_own_namespace(script, line, cwd=place)
    (place / "fuse").unlink(missing_ok=True)
    return done


def is_answering(mnt):
    """Whether a mount is there and its daemon answers."""
    with contextlib.suppress(OSError):
        # The kernel may answer `stat` of a dead mount from what it remembers.
        os.statvfs(mnt)
        return os.path.ismount(mnt)
    return False


def statistics_of(mnt):
    """The mount's own `stats.json`."""
    return json.loads((Path(mnt) / ".shardfs/stats.json").read_bytes())


# --- the process ----------------------------------------------------------------------------

def daemon_of(mnt):
    """The id of the process that serves a mount, found by its command line; the mount itself is not asked."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"shardfs") and b"mount" in words and os.fsencode(mnt) in words:
                found.append(int(process.name))
    assert len(found) == 1, f"processes that serve {mnt}: {found}"
    return found[0]


def threads_of(pid, what):
    """What a file of /proc ("comm", "stat") says of each thread of a process, by the thread's id; those that end meanwhile
    are left out."""
    said = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said[int(thread.name)] = (thread / what).read_text()
    return said


def states_of(pid):
    """The states of a process's threads: "S" sleeps, "T" is stopped, "Z" has ended."""
    return {said.rsplit(")", 1)[1].split()[0] for said in threads_of(pid, "stat").values()}


def status_of(pid):
    """The sizes in /proc/PID/status, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}


def memory_of(pid):
    """Resident bytes of a process, with the nameless files in memory that it holds, mapped or not."""
    status, files = status_of(pid), 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(fd).endswith("(deleted)"):
                files += os.stat(fd).st_blocks * 512
    return status["RssAnon"] + status["RssFile"] + max(status["RssShmem"], files)


def peak_memory(mnt):
    """The most that a mount's process has held, in MiB."""
    return status_of(daemon_of(mnt))["VmHWM"] >> 20


@contextlib.contextmanager
def within_limit(limit):
    """A control group of `limit` bytes, by version 1 or 2 of these: (its folder, how often the kernel killed in it)."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, name, events = ((old, "memory.limit_in_bytes", "memory.oom_control") if old.is_dir() else
                          (new, "memory.max", "memory.events"))
    group = root / f"shardfs-test-{uuid.uuid4().hex[:8]}"
    group.mkdir()

    def kills():
        return int(dict(line.split() for line in (group / events).read_text().splitlines())["oom_kill"])

    try:
        if root == new and not (group / name).exists():
            (root / "cgroup.subtree_control").write_text("+memory")
        (group / name).write_text(str(limit))
        # Memory that is swapped out is no memory saved.
        with contextlib.suppress(OSError):
            (group / ("memory.memsw.limit_in_bytes" if root == old else "memory.swap.max")).write_text(
                str(limit) if root == old else "0")
        yield group, kills
    finally:
        group.rmdir()
