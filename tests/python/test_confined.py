"""A mount under limits and conditions that it did not choose: filtered system calls, few processes, a clock that jumps,
a stopped process, a hostile environment."""

import ctypes
import errno
import os
import platform
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from support import BIN, FIXTURES, daemon_of, mounted_by, run, states_of, wait_for, walk_files
from support.mounts import mount_point, unmount

LIBC = ctypes.CDLL(None, use_errno=True)

# Numbers of system calls, here and on other machines: openat2, preadv2, inotify_init1, inotify_add_watch, memfd_create,
# copy_file_range, io_uring_setup.
CALLS = {"x86_64": [437, 327, 294, 254, 319, 326, 425], "aarch64": [437, 286, 26, 27, 279, 285, 425]}


def filtered(number):
    """A function for a new process: from then on these system calls fail with an error number, as under a filter of
    systemd (EPERM) or of a container (ENOSYS)."""
    calls = CALLS[platform.machine()]
    load, jump, give = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0)]
    steps += [(jump, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    steps += [(give, 0, 0, 0x7fff0000), (give, 0, 0, 0x00050000 | number)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)

    def apply():
        code = ctypes.create_string_buffer(program)
        head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
        # PR_SET_NO_NEW_PRIVS, and PR_SET_SECCOMP with a filter.
        assert LIBC.prctl(38, 1, 0, 0, 0) == 0 and LIBC.prctl(22, 2, head, 0, 0) == 0

    return apply


def contents(folder):
    """The bytes of all files below a folder, or their errors; without those that say how the mount works."""
    def read(path):
        try:
            return path.read_bytes()
        except OSError as error:
            return error.errno

    return {name: read(Path(folder) / name) for name in walk_files(folder) if not name.startswith(".shardfs")}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """What a process without limits makes of the fixtures."""
    out = tmp_path_factory.mktemp("copied") / "out"
    run("cp", "-r", FIXTURES, out)
    return contents(out)


@pytest.mark.skipif(platform.machine() not in CALLS, reason="numbers of system calls")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_system_calls_that_are_filtered(mode, number, tmp_path):
    """Paths are then walked name by name, and changes found without inotify; every byte is the same."""
    source = tmp_path / "source"
    shutil.copytree(FIXTURES, source)
    with mount_point(None) as mnt:
        try:
            run("mount", f"--serve={mode}", source, mnt, check=True, preexec_fn=filtered(number))
            want = {name: np.load(mnt / name) for name in ["ep_001.wshard/signal/joint_pos.npy"]}
            assert all(array.size for array in want.values())
            os.symlink("/etc/passwd", source / "out")
            assert (mnt / "notes.txt").read_bytes() == (source / "notes.txt").read_bytes()
            (source / "notes.txt").write_text("changed by now, and longer than it was")
            wait_for(lambda: (mnt / "notes.txt").read_bytes() == (source / "notes.txt").read_bytes(), 60)
            assert os.readlink(mnt / "out") == "/etc/passwd"
        finally:
            unmount(mnt)


@pytest.mark.skipif(platform.machine() not in CALLS, reason="numbers of system calls")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_commands_whose_system_calls_are_filtered(number, copied, tmp_path):
    run("cp", "-r", FIXTURES, tmp_path / "out", preexec_fn=filtered(number))
    # No process that decodes videos can be confined here, so there are no frames, and container.json says why.
    videos = ("/pick_and_place/", "/cut_recording/")
    known = lambda found: {name: text for name, text in found.items() if not any(map(name.__contains__, videos))}  # noqa: E731
    assert known(contents(tmp_path / "out")) == known(copied) and len(known(copied)) > 300


def test_a_stopped_process_goes_on(tmp_path):
    """Every thread stopped while many read, and continued: nobody gets an error or another byte."""
    with mount_point(None) as mnt:
        try:
            run("mount", "--cache-size", "64M", FIXTURES, mnt, check=True)
            daemon = daemon_of(mnt)
            want = contents(mnt)
            readers = [subprocess.Popen(["sh", "-c", 'for i in 1 2 3; do find "$0" -name .shardfs -prune -o -type f -print '
                                         '| LC_ALL=C sort | tr "\\n" "\\0" | xargs -0 cat | sha256sum; done', mnt],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
            for _ in range(5):
                os.kill(daemon, signal.SIGSTOP)
                wait_for(lambda: states_of(daemon) == {"T"}, 60)
                time.sleep(0.3)
                os.kill(daemon, signal.SIGCONT)
                time.sleep(0.1)
            said = [reader.communicate(timeout=120) for reader in readers]
            sums = {line for out, _ in said for line in out.splitlines()}
            assert len(sums) == 1 and all(len(out.splitlines()) == 3 for out, _ in said), said
            assert contents(mnt) == want
        finally:
            unmount(mnt)


# Answers clock_gettime(CLOCK_REALTIME) with seconds more or less, which a file holds.
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    long done = syscall(SYS_clock_gettime, clock, now);
    char text[32] = {0};
    const char *path = getenv("CLOCK_OFFSET");
    if (done || clock != CLOCK_REALTIME || !path) return done;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
        close(file);
    }
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_clock_that_jumps(tmp_path):
    """Back to the seventies and forward by decades: changes are seen, and contents are right, at all times."""
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    offset, source = tmp_path / "offset", tmp_path / "source"
    offset.write_text("0")
    source.mkdir()
    env = {"LD_PRELOAD": str(tmp_path / "clock.so"), "CLOCK_OFFSET": str(offset)}
    with mounted_by([BIN, "mount", "--foreground", source], env=env) as (mnt, process):
        for number, jump in enumerate([0, -1_600_000_000, 1_500_000_000, 3600, -3600, 0]):
            offset.write_text(str(jump))
            text = f"{number}: as large as before"
            (source / "file").write_text(text)
            shutil.copy(FIXTURES / ("arrays.kas" if number % 2 else "table.kast"), source / "part")
            os.replace(source / "part", source / "container.kas")
            wait_for(lambda: (mnt / "file").read_text() == text, 60)
            plain = tmp_path / f"plain{number}" / "container.kas"
            plain.parent.mkdir()
            run("cp", "-r", source / "container.kas", plain.parent, check=True)
            wait_for(lambda: set(os.listdir(plain)) <= set(os.listdir(mnt / "container.kas")), 60)
            for name in os.listdir(plain):
                if (plain / name).is_file():
                    assert (mnt / "container.kas" / name).read_bytes() == (plain / name).read_bytes(), (jump, name)
        assert process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="as under sudo")
def test_a_hostile_environment(tmp_path):
    """Variables that sudo may have let through: no program is taken from PATH, and nothing is written to HOME."""
    programs, home, mnt = tmp_path / "programs", tmp_path / "home", tmp_path / "mnt"
    for folder in (programs, home, mnt):
        folder.mkdir()
    for name in ["fusermount3", "fusermount", "mount", "umount", "sh", "getent", "stat", "shardfs"]:
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/ran\nexit 1\n')
        (programs / name).chmod(0o755)
    os.chown(home, 65534, 65534)
    for path in [str(programs), f".:{programs}", ""]:
        env = {"PATH": path, "HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home),
               "XDG_CONFIG_HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home), "SHELL": str(programs / "sh"),
               "NOTIFY_SOCKET": str(home / "none"), "WATCHDOG_USEC": "x", "MALLOC_ARENA_MAX": "-1",
               "RUST_LOG": "trace", "RUST_BACKTRACE": "full", "LC_ALL": "$(id)", "TERM": "\x1b"}
        for options in ([], ["--force"], ["--lazy"], ["--all"]):
            run("mount", FIXTURES, mnt, check=True, env=env, cwd=programs)
            try:
                assert (mnt / "notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()
                run("status", env=env, cwd=programs)
                if options != ["--all"]:
                    run("umount", *options, mnt, check=True, env=env, cwd=programs)
            finally:
                unmount(mnt)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert walk_files(home) == set()


def test_programs_are_not_taken_from_the_current_folder():
    """For a user who is not root, fusermount3 mounts: not one that stands in the folder which is looked at."""
    as_nobody = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
    # Not below pytest's own folder, which is closed to others.
    with tempfile.TemporaryDirectory(prefix="shardfs-test-") as place:
        place = Path(place)
        for folder in (place, place / "mnt", place / "src"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        (place / "fusermount3").write_text("#!/bin/sh\n: > ran\nexit 1\n")
        (place / "fusermount3").chmod(0o755)
        shutil.copy(BIN, place / "program")
        for path in ["", ".", ":", "../" + place.name]:
            done = subprocess.run([place / "program", "mount", "src", "mnt"], cwd=place, env={"PATH": path},
                                  capture_output=True, text=True, timeout=60, **as_nobody)
            assert done.returncode == 1 and not (place / "ran").exists(), (path, done)


HOSTILE = ["a b", "$(touch PWNED)", "`touch PWNED`", ";touch PWNED;", "a'b\"c", "-rf", "x\ny", "*", "~root", "\x1b]0;x\x07", "é"]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("command", ["ls", "cp", "mount", "umount", "index"])
def test_completion_runs_no_name(command, tmp_path):
    """Names of files, folders and mount points are completed as they are, and never run. What readline then inserts
    it quotes itself."""
    for name in HOSTILE:
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.kas").write_bytes((FIXTURES / "arrays.kas").read_bytes())
    code = """source <("$0" completions bash); compopt() { :; }
              for word in '' '$' '`' ';' a - x '*' '~' '$(touch PWNED)/' '$(touch PWNED).kas/' '`touch PWNED`.kas/e'; do
                  COMP_WORDS=(shardfs "$1" "$word"); COMP_CWORD=2; COMPREPLY=()
                  _shardfs_with_paths "$0" "$word" "$1"
                  printf '%s\\0' "$word:" "${COMPREPLY[@]}"
              done"""
    done = subprocess.run(["bash", "-c", code, BIN, command], cwd=tmp_path, capture_output=True, timeout=120)
    words = done.stdout.split(b"\0")
    assert done.returncode == 0 and not list(tmp_path.rglob("PWNED")), done
    if command in ("ls", "cp"):
        assert b"$(touch PWNED)" in words and b"`touch PWNED`" in words and b"a b.kas" in words
        assert b"$(touch PWNED).kas/container.json" in words and b"`touch PWNED`.kas/empty.npy" in words, words


def test_options_of_fstab_are_only_options(tmp_path):
    """What stands in a value is neither run nor taken for another option, nor is the name of SOURCE."""
    source, log = tmp_path / "-o allow_other", tmp_path / "$(touch PWNED) `touch PWNED`,--uid=1"
    shutil.copytree(FIXTURES, source)
    (tmp_path / "mount.shardfs").symlink_to(Path(BIN).resolve())
    with mount_point(None) as mnt:
        try:
            subprocess.run([tmp_path / "mount.shardfs", source, mnt, "-o", f'ro,log_file="{log}",comment=--uid=1'],
                           cwd=tmp_path, check=True, timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            assert (mnt / "notes.txt").is_file() and log.is_file()
            assert "allow_other" not in [line for line in open("/proc/self/mounts") if f" {mnt} " in line][0].split()[3]
        finally:
            unmount(mnt)
    for options in ["log_file=a b\nuid=1,x", "--uid=1", "uid=$(id -u)", "uid=1 --allow-other", "umask=022;id"]:
        done = subprocess.run([tmp_path / "mount.shardfs", source, tmp_path / "missing", "-o", options], cwd=tmp_path,
                              timeout=60, stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode != 0, options
    assert not list(tmp_path.rglob("PWNED"))
