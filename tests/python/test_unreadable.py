"""What an ordinary user is told of files and folders that are not readable for them."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support import BIN, FIXTURES, as_ordinary_user

DENIED = "Permission denied"


class Home:
    """A folder of an ordinary user, in which some things belong to root."""

    def __init__(self, place):
        self.place = place

    def run(self, line):
        """A command line of that user; exit code, output, complaints."""
        done = as_ordinary_user(line, self.place)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def home():
    assert os.geteuid() == 0, "this test becomes another user, as root"
    place = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    place.chmod(0o777)
    shutil.copy(BIN, place / "shardfs")
    data = place / "data"
    shutil.copytree(FIXTURES, data, ignore=shutil.ignore_patterns("damaged"))
    (data / "ep_001.wshard").chmod(0)
    (data / "noaccess").mkdir()
    (data / "noaccess").chmod(0)
    yield Home(place)
    shutil.rmtree(place)


def test_verify(home):
    code, out, err = home.run("./shardfs verify data")
    lines = out.splitlines()
    assert code == 2 and err == ""
    assert lines[:2] == [f"data/ep_001.wshard: can't be read: {DENIED}", f"data/noaccess: can't be read: {DENIED}"]
    assert lines[2].startswith("nothing is wrong in what could be looked at: 22 containers, ")
    assert lines[2].endswith("; 2 could not be read") and len(lines) == 3
    code, out, _ = home.run("./shardfs verify --json data")
    result = json.loads(out)
    assert (code, result["ok"], result["complete"], result["problems"]) == (2, False, False, [])
    assert [entry["container"] for entry in result["unread"]] == ["data/ep_001.wshard", "data/noaccess"]
    code, out, err = home.run("./shardfs verify data/ep_001.wshard")
    assert code == 2 and err == f"shardfs: data/ep_001.wshard: {DENIED}\n"
    assert out == "nothing was checked: 0 containers, 0 files, 0 B read\n"
    # Any file may be a container, whatever it is called.
    home.run("true")
    (home.place / "data/notes.txt").chmod(0)
    code, out, _ = home.run("./shardfs verify data")
    assert code == 2 and f"data/notes.txt: can't be read: {DENIED}\n" in out


def test_damage_is_said_too(home):
    shutil.copy(FIXTURES / "damaged/bad_crc.wshard", home.place / "data")
    code, out, _ = home.run("./shardfs verify data")
    assert code == 2 and "checksum is 0x" in out and "\n1 problem: " in out and "; 2 could not be read\n" in out


def test_ls_and_info(home):
    assert home.run("./shardfs ls data/noaccess") == (1, "", f"shardfs: data/noaccess: readdir: {DENIED}\n")
    code, out, err = home.run("./shardfs info data")
    assert (code, err) == (1, "") and "noaccess/: can't be read: " in out and "demo.kdb: " in out
    code, out, _ = home.run("./shardfs info .")
    assert code == 1 and "other files, 1 that can't be read\n" in out
    code, _, err = home.run("./shardfs find data")
    assert code == 1 and f"data/ep_001.wshard: can't be read: {DENIED}\n" in err
    code, _, err = home.run("./shardfs ls -R data")
    assert code == 1 and f"shardfs: data/noaccess: readdir: {DENIED}\n" in err
    assert home.run("./shardfs info data/ep_001.wshard")[::2] == (
        1, f"shardfs: data/ep_001.wshard: can't be read: {DENIED}\n")


def test_mount_of_what_cannot_be_read(home):
    (home.place / "mnt").mkdir()
    os.chown(home.place / "mnt", 65534, 65534)
    code, _, err = home.run("./shardfs mount data/ep_001.wshard mnt")
    assert (code, err) == (1, f"shardfs: {home.place}/data/ep_001.wshard: can't be read: {DENIED}\n")
    code, _, err = home.run("./shardfs mount data/noaccess mnt")
    assert (code, err) == (1, f"shardfs: {home.place}/data/noaccess: can't be read: {DENIED}\n")


def test_a_mount_says_what_it_cannot_read(home):
    (home.place / "mnt").mkdir()
    os.chown(home.place / "mnt", 65534, 65534)
    code, out, err = home.run("./shardfs mount data mnt; ls mnt; cat mnt/.shardfs/problems.jsonl; ./shardfs umount mnt")
    assert code == 0, err
    (problem,) = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert (problem["container"], problem["path"]) == ("ep_001.wshard", "")
    assert problem["message"].startswith(f"can't be read: {DENIED}")


def test_copied_folders_can_be_deleted(home):
    (home.place / "data/ep_001.wshard").chmod(0o444)
    home.place.joinpath("out").mkdir(mode=0o777)
    home.place.joinpath("out").chmod(0o777)
    code, _, err = home.run("./shardfs cp -r data/ep_001.wshard out && ls -ld out/ep_001.wshard && rm -rf out/ep_001.wshard")
    assert code == 0 and err == ""
    assert not (home.place / "out/ep_001.wshard").exists()
