"""The first hour of a new user: installs, mounts, looks around, makes every usual mistake, copies, verifies, goes home.

The program is installed into a folder laid out as the Debian package lays out /usr. What it says is quoted whole: these
are the sentences that a new user reads.
"""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from support import BIN, FIXTURES, ROOT, unmount, wait_for


class User:
    """A user in a folder of their own, with the program in PATH."""

    def __init__(self, home, prefix):
        self.home, self.prefix = home, prefix
        self.env = {"PATH": f"{prefix}/bin:{prefix}/sbin:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8",
                    "MANPATH": str(prefix / "share/man")}

    def types(self, line):
        """A command line; exit code, what it printed, what it complained of."""
        with open(self.home.parent / "out", "w+b") as out, open(self.home.parent / "err", "w+b") as err:
            code = subprocess.run(["bash", "-c", line], cwd=self.home, env=self.env, stdin=subprocess.DEVNULL,
                                  stdout=out, stderr=err, timeout=60).returncode
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()

    def sees(self, line):
        code, out, err = self.types(line)
        assert code == 0 and err == "", f"{line}: {code}\n{err}"
        return out

    def is_told(self, line, text, code=1):
        """A mistake: its one line, whole. HOME stands for the user's folder."""
        got, out, err = self.types(line)
        assert (got, err.replace(str(self.home), "HOME")) == (code, text + "\n"), line
        return out


def install(prefix):
    """What the Debian package brings."""
    for folder in ("bin", "sbin", "share/bash-completion/completions"):
        (prefix / folder).mkdir(parents=True)
    shutil.copy(BIN, prefix / "bin/shardfs")
    (prefix / "sbin/mount.shardfs").symlink_to("../bin/shardfs")
    subprocess.run([prefix / "bin/shardfs", "man", prefix / "share/man"], check=True)
    for page in (prefix / "share/man").glob("man*/*"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes()))
        page.unlink()
    completions = subprocess.run([prefix / "bin/shardfs", "completions", "bash"], check=True, capture_output=True).stdout
    (prefix / "share/bash-completion/completions/shardfs").write_bytes(completions)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("usr")
    install(prefix)
    return prefix


@pytest.fixture
def user(prefix, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    shutil.copytree(FIXTURES, home / "data")
    user = User(home, prefix)
    yield user
    unmount(home / "mnt")


def test_installed(user):
    assert re.fullmatch(r"shardfs \d+\.\d+\.\d+\n", user.sees("shardfs --version"))
    page = user.sees("man shardfs-mount | col -b")
    assert "shardfs-mount - Mount a folder of containers, or one container" in page
    assert "mount.shardfs - Mount a folder of containers, or one container" in user.sees("man 8 mount.shardfs | col -b")
    code, page, _ = user.types("man shardfs | col -b")
    assert code == 0 and "SUBCOMMANDS" in page and "shardfs-umount(1)" in page
    listed = user.sees(". $(dirname $(which shardfs))/../share/bash-completion/completions/shardfs;"
                       "COMP_WORDS=(shardfs um); COMP_CWORD=1; _shardfs shardfs um shardfs; echo ${COMPREPLY[@]}")
    assert "umount" in listed.split()


def test_the_package_brings_that():
    """What this test installs by hand is what Cargo.toml lists for the Debian package."""
    text = (ROOT / "Cargo.toml").read_text()
    for place in ("usr/bin/", "usr/sbin/", "usr/share/man/man1/", "usr/share/man/man8/",
                  "usr/share/bash-completion/completions/shardfs", "usr/share/zsh/vendor-completions/",
                  "usr/share/fish/vendor_completions.d/", "usr/lib/systemd/system/"):
        assert f'dest = "{place}"' in text, place


def test_help_is_where_people_look(user):
    code, _, err = user.types("shardfs")
    assert code == 2 and "Usage: shardfs <COMMAND>" in err and "shardfs mount data/ /mnt/shards" in err
    assert "`shardfs formats` lists the formats" in user.sees("shardfs --help")
    for name in ("wshard", "kdb", "kastore", "kast", "idv", "hdf5", "zarr", "safetensors", "mcap", "lerobot"):
        assert name in user.sees("shardfs formats"), name
    commands = re.findall(r"^  (\w+) +[A-Z]", user.sees("shardfs --help"), re.M)
    assert len(commands) >= 11
    for command in commands:
        assert "Usage: shardfs" in user.sees(f"shardfs help {command}" if command != "help" else "shardfs help")
    code, _, err = user.types("shardfs mout data mnt")
    assert code == 2 and "similar subcommands exist" in err and "'mount'" in err


def test_a_tour(user):
    # Other tests have mounts of their own, some of them dead.
    assert "ok       /dev/fuse" in user.sees("shardfs doctor")
    _, shown, _ = user.types("shardfs status")
    assert shown == "no shardfs is mounted\n" or "source" in shown
    user.sees("mkdir mnt && shardfs mount data mnt")
    assert user.sees("ls mnt").split() == sorted(os.listdir(user.home / "data"))
    assert "joint_pos.npy" in user.sees("ls mnt/ep_001.wshard/signal")
    array = user.sees(f"{sys.executable} -c \"import numpy; print(numpy.load('mnt/ep_001.wshard/signal/joint_pos.npy').shape)\"")
    assert array == "(24, 7)\n"
    assert user.sees("cat mnt/table.idv/columns/word/values.jsonl").splitlines()[1] == '"grün"'
    shown = user.sees("shardfs status mnt")
    assert shown.startswith(f"{user.home}/mnt\n  source    {user.home}/data\n  state     answers, since ")
    assert shown.endswith("  problems  none\n")
    user.sees("shardfs umount mnt")
    assert user.sees("ls mnt") == ""


def test_mistakes_with_mount(user):
    user.sees("mkdir mnt")
    user.is_told("shardfs mount dta mnt", "shardfs: dta: No such file or directory")
    user.is_told("shardfs mount data nowhere", "shardfs: nowhere: no such folder; --mkdir makes it")
    user.is_told("shardfs mount data data/notes.txt",
                 "shardfs: HOME/data/notes.txt: not a folder; a mount needs an existing folder")
    user.is_told("shardfs mount data/notes.txt mnt",
                 "shardfs: HOME/data/notes.txt: not a folder, and not a container of any known format")
    user.is_told("shardfs mount data/damaged/cut_short.trees mnt",
                 "shardfs: HOME/data/damaged/cut_short.trees: not shown as a kastore container: truncated: header says "
                 "9340 bytes, file has 6226: incomplete copy?")
    user.is_told("shardfs mount data data/damaged",
                 "shardfs: HOME/data/damaged: lies inside HOME/data, so the mount would contain itself; choose a folder "
                 "elsewhere")
    user.is_told("shardfs mount data .", "shardfs: HOME: contains the source, which the mount would hide; choose an empty "
                                         "folder")
    assert not os.path.ismount(user.home / "mnt")
    user.sees("shardfs mount --mkdir --rmdir data new/deep/mnt && shardfs umount new/deep/mnt")
    wait_for(lambda: os.listdir(user.home / "new/deep") == [], what="the end of the mount point")
    user.sees("shardfs mount data mnt")
    user.is_told("shardfs mount data mnt",
                 "shardfs: HOME/mnt: a shardfs is mounted there already; take it down with: shardfs umount HOME/mnt")
    code, _, err = user.types("shardfs mount --cache-size 2Q data mnt")
    assert code == 2 and "unknown unit 'Q'; use K, M, G or T" in err
    code, _, err = user.types("shardfs mount -o cachesize=2G data mnt")
    assert (code, err) == (2, "shardfs: unknown mount option 'cachesize'; `shardfs mount --help` lists them\n")
    # Whatever was refused has left the mount as it was.
    assert user.sees("cat mnt/notes.txt") == (FIXTURES / "notes.txt").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="hides /dev/fuse in a namespace, which only root can make")
def test_no_fuse(user):
    user.sees("mkdir mnt")
    hidden = "unshare --mount sh -c 'mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; %s'"
    user.is_told(hidden % "shardfs mount data mnt",
                 "shardfs: HOME/mnt: /dev/fuse is missing; load the module with 'modprobe fuse', or start the "
                 "container with --device /dev/fuse (No such file or directory)")
    out = user.is_told(hidden % "shardfs doctor", "shardfs: mounting can't work here until the problems above are solved")
    assert "problem  /dev/fuse        is missing\n" in out
    assert "-> load the module with 'modprobe fuse', or start the container with --device /dev/fuse" in out
    # Everything that needs no mount goes on working.
    assert "joint_pos.npy" in user.sees(hidden % "shardfs ls data/ep_001.wshard/signal")


def test_mistakes_inside(user):
    user.sees("mkdir mnt && shardfs mount data mnt")
    user.is_told("touch mnt/new", "touch: cannot touch 'mnt/new': Read-only file system")
    user.is_told("rm mnt/notes.txt", "rm: cannot remove 'mnt/notes.txt': Read-only file system")
    user.is_told("cat mnt/ep_001.wshard/signal/nothing.npy",
                 "cat: mnt/ep_001.wshard/signal/nothing.npy: No such file or directory")
    user.is_told("cat mnt/ep_001.wshard", "cat: mnt/ep_001.wshard: Is a directory")
    user.is_told("cat mnt/damaged/bad_crc.wshard/signal/joint_pos.npy",
                 "cat: mnt/damaged/bad_crc.wshard/signal/joint_pos.npy: Input/output error")
    assert "problems  1: " in user.sees("shardfs status mnt")
    problem = json.loads(user.sees("cat mnt/.shardfs/problems.jsonl").splitlines()[-1])
    assert problem.pop("time")
    assert problem == {"container": "damaged/bad_crc.wshard", "path": "signal/joint_pos.npy", "block": "signal/joint_pos",
                       "offset": 2656, "message": "checksum is 0x923f9edd, the index says 0x1a3453dc"}


def test_mistakes_without_a_mount(user):
    user.is_told("shardfs cat data", "shardfs: data: is a folder; `shardfs ls` lists it")
    user.is_told("shardfs cat data/ep_001.wshard/nothing.npy",
                 "shardfs: data/ep_001.wshard/nothing.npy: no 'nothing.npy' there; `shardfs ls` shows what is")
    user.is_told("shardfs ls data/ep_001.wshard/signl",
                 "shardfs: data/ep_001.wshard/signl: no 'signl' there; `shardfs ls` shows what is")
    user.is_told("shardfs ls nothing", "shardfs: nothing: No such file or directory")
    user.is_told("shardfs info data/notes.txt", "shardfs: data/notes.txt: not a container of any known format")
    user.is_told("shardfs cat data/damaged/bad_crc.wshard/signal/joint_pos.npy > out",
                 "shardfs: data/damaged/bad_crc.wshard/signal/joint_pos.npy: block 'signal/joint_pos' at byte 2656: checksum "
                 "is 0x923f9edd, the index says 0x1a3453dc")


def test_copies(user):
    user.is_told("shardfs cp data/ep_001.wshard out", "shardfs: data/ep_001.wshard: is a folder; -r copies folders\n"
                                                      "shardfs: 1 failed, 0 copied, 0 already there")
    user.is_told("shardfs cp 'data/*.wsard/x' out", "shardfs: data/*.wsard/x: nothing matches\n"
                                                    "shardfs: 1 failed, 0 copied, 0 already there")
    user.is_told("shardfs cp -r data data/damaged",
                 "shardfs: data/damaged: lies inside HOME/data, which is copied from; choose a place elsewhere\n"
                 "shardfs: 1 failed, 0 copied, 0 already there")
    user.sees("shardfs cp 'data/*.wshard/signal/joint_*.npy' out/")
    assert user.sees("cd out; ls -d */*/*").splitlines() == [
        "ep_001.wshard/signal/joint_pos.npy", "ep_002_lz4.wshard/signal/joint_pos.npy"]
    user.sees("mkdir mnt && shardfs mount data mnt")
    for name in ("ep_001.wshard", "ep_002_lz4.wshard"):
        copied = np.load(user.home / "out" / name / "signal/joint_pos.npy")
        assert (copied == np.load(user.home / "mnt" / name / "signal/joint_pos.npy")).all()


def test_verifies(user):
    assert re.fullmatch(r"nothing is wrong: 1 container, \d+ files, [\d.]+ [KM]iB read(; [\d.]+ \w+ of [\d.]+ \w+ stored have no checksum)?\n",
                        user.sees("shardfs verify data/ep_001.wshard"))
    code, out, _ = user.types("shardfs verify data")
    lines = out.splitlines()
    assert code == 1 and [line.split(":")[0] for line in lines[:-1]] == [
        "data/damaged/" + name for name in (
            *2 * ["bad_chunk.h5"], "bad_crc.wshard", "cut_recording", "cut_short.gguf", "cut_short.safetensors",
            "cut_short.trees", "unfinished.bag", "unfinished.mcap", "wrong_crc.npz",
            *3 * ["wrong_crc.tfrecord"], *2 * ["wrong_crc.zarr.zip"])]
    for said in (
            "data/damaged/bad_crc.wshard: signal/joint_pos.npy, block 'signal/joint_pos', byte 2656: checksum is 0x923f9edd, "
            "the index says 0x1a3453dc",
            "data/damaged/cut_short.trees: not shown as a kastore container: truncated: header says 9340 bytes, file has 6226: "
            "incomplete copy?"):
        assert said in lines
    assert re.match(r"15 problems: \d+ containers, ", lines[-1])
    out = user.is_told("shardfs verify nothing", "shardfs: nothing: No such file or directory", code=2)
    assert out == "nothing was checked: 0 containers, 0 files, 0 B read\n"


def test_mistakes_with_umount(user):
    user.sees("mkdir mnt")
    user.is_told("shardfs umount mnt", "shardfs: mnt: no shardfs is mounted here; `shardfs status` lists the mounts")
    user.is_told("shardfs status mnt", "shardfs: mnt: no shardfs is mounted here")
    user.sees("shardfs mount data mnt")
    with open(user.home / "mnt/notes.txt") as held:
        user.is_told("shardfs umount mnt",
                     f"shardfs: HOME/mnt: in use by {open('/proc/self/comm').read().strip()} (pid {os.getpid()}); close them, "
                     "or detach it with: shardfs umount --lazy HOME/mnt")
        user.sees("shardfs umount --lazy mnt")
        assert held.read() == (FIXTURES / "notes.txt").read_text()
    assert user.sees("ls mnt") == ""


def test_a_mount_that_died(user):
    user.sees("mkdir mnt && shardfs mount data mnt")
    pid = json.loads(user.sees("cat mnt/.shardfs/config.json"))["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: user.types("ls mnt")[0] != 0, what="the end of the process")
    code, out, err = user.types("shardfs status")
    dead = f"is dead: its process is gone; take it down with: shardfs umount --lazy {user.home}/mnt"
    assert code == 1 and f"  state     {dead}\n" in out and dead in err
    # Mounting again needs no cleaning up before.
    user.sees("shardfs mount data mnt")
    assert user.sees("cat mnt/notes.txt") == (FIXTURES / "notes.txt").read_text()
    user.sees("shardfs umount mnt")


def test_an_hour_later(user):
    """What was mounted stays where it is while files come and go under it."""
    user.sees("mkdir mnt && shardfs mount data mnt")
    user.sees("cp data/ep_001.wshard data/new.wshard")
    wait_for(lambda: "new.wshard" in os.listdir(user.home / "mnt"), 1.0, "a new container in the listing")
    user.sees("cat mnt/new.wshard/meta/episode.json && rm data/new.wshard && shardfs umount mnt")
