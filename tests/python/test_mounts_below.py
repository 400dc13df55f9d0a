"""Filesystems that are mounted below SOURCE: they can be unmounted while the mount lives, and mounts that stand below
their own SOURCE, also through another mount, are never asked, and end."""

import contextlib
import os
import struct
from pathlib import Path

import pytest

from support import BIN, FIXTURES, in_own_namespace, mounted

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="binding mounts takes root")

# `begin SOURCE MOUNTPOINT [OPTION ...]` mounts in the foreground and puts the process into $daemon; `ends PID` waits for it.
HELPERS = """
bin=$0
begin() { $bin mount --foreground "${@:3}" "$1" "$2" 2>>log & daemon=$!
          for _ in $(seq 400); do mountpoint -q "$2" && return; sleep 0.05; done; exit 3; }
ends() { for _ in $(seq 400); do kill -0 $1 2>/dev/null || return 0; sleep 0.05; done; echo "still there: $1"; exit 4; }
mkdir -p src/folder src/loop mnt; echo text > src/folder/file
"""

LISTED = ["m:", "folder", "loop", "", "m/folder:", "file", "", "m/loop:"]


def tried(script, place, listed=()):
    done = in_own_namespace(HELPERS + script, BIN, cwd=place)
    assert done.returncode == 0, (done.stdout, done.stderr, (Path(place) / "log").read_text())
    lines = done.stdout.splitlines()
    if listed:
        assert lines == list(listed), lines
    return lines


@pytest.mark.parametrize("end", ["$bin umount mnt; $bin umount src/loop", "umount mnt src/loop", "kill $first",
                                 "$bin umount --force mnt; umount --lazy src/loop"])
def test_a_mount_bound_into_its_source_is_an_empty_folder(tmp_path, end):
    tried(f"""
        begin src mnt; first=$daemon
        mount --bind mnt src/loop
        timeout 20 ls -R mnt | sed 's/^mnt/m/'
        {end}
        ends $first""", tmp_path, LISTED)


def test_on_every_way(tmp_path):
    """Paths below it, attributes, listings, links that lead into it, its file descriptors."""
    lines = tried("""
        ln -s loop/folder src/inner; ln -s loop src/whole; ln -s "$PWD/mnt/folder/file" src/file
        begin src mnt --follow-links=outside; first=$daemon
        mount --bind mnt src/loop
        timeout 20 find mnt/loop -printf '%P %y %s %m %l\\n'
        timeout 20 cat mnt/loop/folder/file 2>&1 | grep -o 'No such file.*'
        timeout 20 stat -c '%F' mnt/inner mnt/whole mnt/file
        timeout 20 ls -l mnt >/dev/null && cat mnt/folder/file
        (cd mnt/loop && timeout 20 ls -a ..//loop)
        umount mnt src/loop; ends $first""", tmp_path)
    assert lines == [" d 0 555 ", "No such file or directory", *["symbolic link"] * 3, "text", ".", ".."]


def test_a_mount_of_a_mount_that_leads_back(tmp_path):
    tried("""
        mkdir outer
        begin src mnt; first=$daemon
        begin mnt outer; second=$daemon
        mount --bind outer src/loop
        timeout 20 ls -R outer | sed 's/^outer/m/'
        umount src/loop; umount outer; ends $second; umount mnt; ends $first""", tmp_path, LISTED)


def test_a_mount_over_its_own_source(tmp_path):
    """What is mounted by then is SOURCE's folder as it is to everybody: gone, and never asked."""
    lines = tried("""
        begin src mnt; first=$daemon
        mount --bind mnt src
        for _ in $(seq 200); do
            timeout 20 ls mnt/folder 2>&1 | grep -o 'Stale file handle' && break; sleep 0.05
        done
        umount src; kill $first; ends $first""", tmp_path)
    assert lines == ["Stale file handle"]


def test_a_filesystem_below_source_can_be_unmounted(tmp_path):
    """What was read of it, files and containers, is closed some seconds later."""
    lines = tried(f"""
        mount -t tmpfs none src/loop
        cp "{FIXTURES}/ep_001.wshard" src/loop; echo ordinary > src/loop/file
        begin src mnt; first=$daemon
        cmp mnt/loop/ep_001.wshard/.file src/loop/ep_001.wshard
        cat mnt/loop/file mnt/loop/ep_001.wshard/signal/joint_pos.npy | tail -c 4 | xxd -p
        umount src/loop 2>/dev/null && echo "nothing was open"
        for _ in $(seq 600); do umount src/loop 2>/dev/null && echo unmounted && break; sleep 0.1; done
        cat mnt/folder/file
        umount mnt; ends $first""", tmp_path)
    assert lines[1:] == ["unmounted", "text"], lines


def test_capabilities_and_access_lists_are_not_carried_over(tmp_path):
    """A program of SOURCE gets no rights from its file, and what is said of it is its mode alone."""
    source = tmp_path / "source"
    source.mkdir()
    program = source / "program"
    program.write_bytes(Path("/bin/cat").read_bytes())
    program.chmod(0o4755)
    # Capabilities that are permitted and effective (version 2, <linux/capability.h>); user 65534 may do everything.
    os.setxattr(program, "security.capability", bytes.fromhex("01000002ffffffff00000000ff01000000000000"))
    entries = [(1, 7, -1), (2, 7, 65534), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    with contextlib.suppress(OSError):  # Where the filesystem has no access lists.
        os.setxattr(program, "system.posix_acl_access", access)
    with mounted(source, "--xattrs", "--allow-other") as mnt:
        assert os.listxattr(mnt / "program") == []
        for name in ("security.capability", "system.posix_acl_access"):
            with pytest.raises(OSError):
                os.getxattr(mnt / "program", name)
        assert (mnt / "program").stat().st_mode & 0o7000 == 0
        line, = [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[1] == str(mnt)]
        assert "nosuid" in line.split()[3].split(",")
