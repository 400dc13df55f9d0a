"""`shardfs status`, `doctor` and `umount`: also of mounts that are dead, silent or in use."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from support import BIN, FIXTURES, assert_one_line_error, in_own_namespace, run, unmount, wait_for

EPISODE = "ep_001.wshard"


@pytest.fixture
def mnt(tmp_path):
    mnt = tmp_path / "my mount"
    mnt.mkdir()
    run("mount", FIXTURES, mnt, check=True)
    yield mnt
    unmount(mnt)
    if os.path.ismount(mnt):
        subprocess.run(["umount", "-l", str(mnt)])


def status(mnt):
    done = run("status", "--json", mnt)
    (one,) = json.loads(done.stdout)
    return done.returncode, one


def pid_of(mnt):
    return json.loads((mnt / ".shardfs/config.json").read_text())["pid"]


def test_status(mnt):
    with pytest.raises(OSError):
        (mnt / "damaged/bad_crc.wshard/signal/joint_pos.npy").read_bytes()
    code, one = status(mnt)
    assert code == 0 and one["state"] == "answers"
    assert (one["mountpoint"], one["source"], one["pid"]) == (str(mnt), str(FIXTURES), pid_of(mnt))
    assert one["requests"]["lookup"] > 0 and one["problems"] >= 1 and one["cache"]["budget"] > 0
    assert 0 <= one["uptime_seconds"] < 60 and 0 <= time.time() - one["since"] < 60
    text = run("status", mnt, check=True).stdout.decode()
    for word in (str(mnt), str(FIXTURES), "answers, since 20", f"pid {one['pid']}", "cache", "problems.jsonl"):
        assert word in text, word
    every = json.loads(run("status", "--json").stdout)
    assert str(mnt) in [one["mountpoint"] for one in every]


def test_status_of_nothing(tmp_path):
    assert_one_line_error(run("status", tmp_path), tmp_path)


def test_only_the_mount_that_is_meant_is_asked(tmp_path):
    """Another may not answer. In a namespace of their own, where no other test asks these two."""
    script = """
        mkdir a b; "$0" mount "$1" a; "$0" mount "$1" b
        count() { grep -o '"read": [0-9][0-9]*' b/.shardfs/stats.json; }
        count; count; "$0" status a > said; count; "$0" status > said; count
        "$0" umount a b"""
    done = in_own_namespace(script, BIN, FIXTURES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, third, last = (int(line.split()[-1]) for line in done.stdout.splitlines())
    assert third - second == second - first < last - third


def test_dead_mount(mnt):
    os.kill(pid_of(mnt), signal.SIGKILL)
    wait_for(lambda: status(mnt)[1]["state"] == "dead", what="death")
    done = run("status", mnt)
    assert done.returncode == 1 and "dead" in done.stdout.decode() and "umount" in done.stderr
    checks = json.loads(run("doctor", "--json").stdout)["checks"]
    dead = [check for check in checks if check["name"] == "mounts" and str(mnt) in check["message"]]
    assert dead and dead[0]["state"] == "warning" and "umount" in dead[0]["remedy"]
    run("umount", "--lazy", mnt, check=True)
    assert os.listdir(mnt) == []


def test_doctor_looks_at_the_folder_of_decoded_blocks(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    folder = tmp_path / "shardfs/blocks"

    def check():
        checks = json.loads(run("doctor", "--json", env=environment).stdout)["checks"]
        return next(check for check in checks if check["name"] == "decoded blocks")

    assert check()["state"] == "ok" and "would keep" in check()["message"] and not folder.exists()
    folder.mkdir(mode=0o755, parents=True)
    folder.chmod(0o755)
    found = check()
    assert found["state"] == "warning" and str(folder) in found["message"] and "0700" in found["remedy"]
    folder.chmod(0o700)
    assert check()["message"].startswith("0 blobs, 0 B in ")


def test_silent_mount(mnt):
    """One that does not answer keeps no command waiting."""
    pid = pid_of(mnt)
    os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        code, one = status(mnt)
        assert (code, one["state"]) == (1, "silent")
        assert time.monotonic() - begun < 10
        refresh = run("refresh", mnt, timeout=40)
        assert refresh.returncode == 1 and "does not answer" in refresh.stderr
        doctor = run("doctor", "--json", timeout=20)
        assert any(str(mnt) in check["message"] for check in json.loads(doctor.stdout)["checks"])
    finally:
        os.kill(pid, signal.SIGCONT)
    assert status(mnt)[1]["state"] == "answers"


def test_umount_says_who_is_inside(mnt):
    code = ("import os, sys, mmap; how, path = sys.argv[1:]\n"
            "if how == 'cwd': os.chdir(path)\n"
            "else: f = open(path, 'rb')\n"
            "if how == 'map': m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close()\n"
            "print('ready', flush=True); sys.stdin.read()")
    for how, path in (("cwd", mnt / EPISODE), ("open", mnt / "notes.txt"), ("map", mnt / EPISODE / "reward.npy")):
        child = subprocess.Popen([sys.executable, "-c", code, how, str(path)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == b"ready\n"
            line = assert_one_line_error(run("umount", mnt), mnt, f"pid {child.pid}", "--lazy")
            assert "python" in line
            assert os.path.ismount(mnt)
        finally:
            child.communicate(b"")
    assert_one_line_error(run("umount", mnt, cwd=mnt), "this command")
    run("umount", mnt, check=True)


def test_lazy_umount(mnt):
    with open(mnt / "notes.txt", "rb") as held:
        run("umount", "--lazy", mnt, check=True)
        assert not os.path.ismount(mnt)
        assert held.read() == (FIXTURES / "notes.txt").read_bytes()


def test_umount_of_several(tmp_path):
    places = [tmp_path / name for name in "abc"]
    for place in places:
        place.mkdir()
    for place in (places[0], places[2]):
        run("mount", FIXTURES / EPISODE, place, check=True)
    done = run("umount", *places)
    # The middle one is no mount; the others come down all the same.
    assert_one_line_error(done, places[1])
    assert not any(os.path.ismount(place) for place in places)


# --- doctor -------------------------------------------------------------------

def test_doctor():
    done = run("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["can_mount"] is True and done.returncode == 0
    names = [check["name"] for check in found["checks"]]
    for name in ("kernel", "/dev/fuse", "fusermount3", "user_allow_other", "CAP_SYS_ADMIN", "open files",
                 "max_map_count", "passthrough", "updatedb", "mounts"):
        assert name in names, name
    for check in found["checks"]:
        assert check["state"] in ("ok", "warning", "problem")
        assert (check["remedy"] is None) == (check["state"] == "ok"), check
    text = run("doctor", check=True).stdout.decode()
    assert all(name in text for name in names)


def test_doctor_where_nothing_can_be_mounted():
    """Root without CAP_SYS_ADMIN, as in a container: said, with what to do, and exit code 1."""
    if not shutil.which("setpriv") or os.geteuid() != 0:
        pytest.fail("this test needs root and setpriv (util-linux)")
    done = subprocess.run(["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", BIN, "doctor", "--json"],
                          capture_output=True, timeout=60)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["can_mount"] is False
    (problem,) = [check for check in found["checks"] if check["state"] == "problem"]
    assert problem["name"] == "CAP_SYS_ADMIN" and "--cap-add SYS_ADMIN" in problem["remedy"]


def test_doctor_of_an_ordinary_user(tmp_path):
    # The program has to be where this user can reach it.
    program = tmp_path / "shardfs"
    shutil.copy(BIN, program)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith(("pytest", "test", "popen")):
            folder.chmod(0o755)
    (tmp_path / "cache").mkdir(mode=0o755)
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(program), "doctor",
                           "--json"], capture_output=True, timeout=60, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    found = json.loads(done.stdout)
    by_name = {check["name"]: check for check in found["checks"]}
    assert by_name["CAP_SYS_ADMIN"]["state"] == "ok"
    # The folder of root, which is there.
    kept = by_name["decoded blocks"]
    assert kept["state"] == "warning" and f"{tmp_path}/cache/shardfs/blocks can't be made" in kept["message"]
    config = open("/etc/fuse.conf").read() if os.path.exists("/etc/fuse.conf") else ""
    is_set = any(line.strip() == "user_allow_other" for line in config.splitlines())
    assert by_name["user_allow_other"]["state"] == ("ok" if is_set else "warning")
    assert found["can_mount"] == (done.returncode == 0)
