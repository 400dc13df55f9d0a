"""What the program says of mounts of other users, sources that are gone, copies that are tried first, and odd names."""

import json
import os
import pty
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import h5py
import pytest

from support import BIN, FIXTURES, as_ordinary_user, mounted, run, wait_for


@pytest.fixture
def data(tmp_path):
    shutil.copytree(FIXTURES, tmp_path / "data", ignore=shutil.ignore_patterns("damaged"))
    return tmp_path / "data"


def test_a_source_that_is_gone_is_said(data):
    with mounted(data) as mnt:
        shutil.rmtree(data)

        def is_said():
            done = run("status", mnt)
            return done.returncode == 1 and "the source directory is gone" in done.stderr

        wait_for(is_said, what="the end of the source")
        said = json.loads(run("status", "--json", mnt).stdout)[0]
        assert said["state"] == "gone"
        run("umount", mnt, check=True)
        assert not os.path.ismount(mnt)


def as_other(line, place):
    """As a user who has no mounts: those of nobody are other tests', which run at the same time."""
    return subprocess.run(["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "bash", "-c", line],
                          cwd=place, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_a_mount_of_another_user():
    assert os.geteuid() == 0, "this test becomes another user, as root"
    place = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    try:
        place.chmod(0o777)
        shutil.copy(BIN, place / "shardfs")
        with mounted(FIXTURES, "--mkdir", "--allow-other", mnt=place / "mnt"):
            done = as_other("./shardfs umount mnt", place)
            assert done.returncode == 1
            assert done.stderr == "shardfs: mnt: mounted by root; only that user and root can take it down\n"
            assert as_other("./shardfs umount --all", place).returncode == 0
            assert os.path.ismount(place / "mnt"), "--all of an ordinary user are his own"
        with mounted(FIXTURES, "--mkdir", mnt=place / "mnt"):
            done = as_other("./shardfs status", place)
            assert "  state     mounted by root, who can see more\n" in done.stdout
    finally:
        shutil.rmtree(place)


def test_options_without_the_rights_say_so():
    place = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    try:
        place.chmod(0o777)
        shutil.copy(BIN, place / "shardfs")
        shutil.copytree(FIXTURES, place / "data")
        line = "./shardfs mount --mkdir --rmdir --serve passthrough --readahead 1M data mnt; ./shardfs umount mnt"
        done = as_ordinary_user(line, place)
        assert done.returncode == 0, done
        lines = done.stderr.splitlines()
        assert len(lines) == 2, lines
        assert any(line.startswith("shardfs: not in passthrough mode: ") for line in lines)
        assert "shardfs: --readahead needs root; the kernel reads ahead 128K" in lines
    finally:
        shutil.rmtree(place)


def test_copies_that_are_tried_first(tmp_path, data):
    out = tmp_path / "out"
    source = data / "ep_001.wshard"
    done = run("cp", "-rn", "--exclude", "*.json", "--exclude", "images", source, out, check=True)
    lines = done.stdout.decode().splitlines()
    assert f"{source}/signal/joint_pos.npy -> {out}/ep_001.wshard/signal/joint_pos.npy" in lines
    assert not any(".json" in line or "/images/" in line for line in lines)
    assert not out.exists()
    run("cp", "-r", "--exclude", "*.json", "--exclude", "images", source, out, check=True)
    copied = {str(path) for path in out.rglob("*") if path.is_file()}
    assert copied == {line.split(" -> ")[1] for line in lines}
    # By path below the copy, too.
    run("cp", "-r", "--exclude", "signal/cam*", source, tmp_path / "some", check=True)
    assert sorted(path.name for path in (tmp_path / "some/ep_001.wshard/signal").iterdir()) == [
        "cmd", "gripper_open.npy", "joint_pos.npy"]


def test_a_copy_over_the_container_itself_is_refused(data):
    before = (data / "ep_001.wshard").read_bytes()
    done = run("cp", "-r", data / "ep_001.wshard", f"{data}/")
    assert done.returncode == 1
    assert done.stderr.startswith(f"shardfs: {data}/ep_001.wshard: is the container itself, which its copy would overwrite; ")
    assert (data / "ep_001.wshard").read_bytes() == before


def test_names_between_nul_bytes():
    listed = run("ls", "-R0", FIXTURES / "ep_001.wshard", check=True).stdout
    assert listed.endswith(b"\0") and b"\n" not in listed
    assert listed.split(b"\0")[:-1] == run("ls", "-R", FIXTURES / "ep_001.wshard").stdout.splitlines()


def test_man_pages_are_readable(tmp_path):
    run("man", tmp_path, check=True)
    env = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}

    def shown(page):
        done = subprocess.run(f"man -l {tmp_path / page} | col -bx", shell=True, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    mount = shown("man1/shardfs-mount.1")
    assert "\n       shardfs-mount - Mount a folder of containers, or one container\n" in mount
    # Examples are lines of their own, and the footer names the program and its version.
    assert "\n         shardfs mount data/ /mnt/shards\n         shardfs mount --cache-size 2G" in mount
    assert mount.rstrip().splitlines()[-1].startswith("shardfs 0.")
    helper = shown("man8/mount.shardfs.8")
    assert helper.startswith("mount.shardfs(8)") and "\n       mount.shardfs - Mount a folder" in helper


def test_ctrl_c_ends_the_line_of_the_progress_bar(tmp_path):
    (tmp_path / "data").mkdir()
    with open(tmp_path / "data/large", "wb") as large:
        large.truncate(2 << 30)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(BIN, [BIN, "cp", "-r", str(tmp_path / "data"), str(tmp_path / "out")])
    shown = b""
    while b" of " not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:
        pass  # Linux says so where a terminal's other end is closed.
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
    assert shown.endswith(b"\r\n"), shown[-100:]
    # Nothing that looks finished is left.
    assert not (tmp_path / "out/data/large").exists()


def test_a_cause_is_said_once(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("v", (2 * 10**8,), h5py.string_dtype(), chunks=(1000,), maxshape=(None,))
    said = run("cat", tmp_path / "rows.h5/v.jsonl").stderr
    assert said.count("which a file of this length cannot hold") == 1, said
