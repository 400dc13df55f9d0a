"""`shardfs find`: the containers below a folder, without opening one."""

import json
import os
import shutil
import subprocess
import time

import pytest

from support import BIN, FIXTURES
from support.stores import Store, failing_server


def find(*arguments, cwd=None):
    return subprocess.run([BIN, "find", *map(str, arguments)], capture_output=True, timeout=60, cwd=cwd)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "deep" / "er").mkdir(parents=True)
    for name, where in (("ep_001.wshard", ""), ("demo.kdb", "deep"), ("tree_sequence.trees", "deep/er")):
        shutil.copyfile(FIXTURES / name, folder / where / name)
    (folder / "notes.txt").write_text("not a container")
    (folder / "looks.kdb").write_text("not one either")
    (folder / "a name\nof two lines.wshard").write_bytes((FIXTURES / "ep_001.wshard").read_bytes())
    return folder


def test_containers_are_found_and_nothing_else(data):
    found = find("-0", data)
    assert found.returncode == 0, found.stderr
    names = {os.fsdecode(name) for name in found.stdout.split(b"\0")[:-1]}
    expected = ("ep_001.wshard", "deep/demo.kdb", "deep/er/tree_sequence.trees", "a name\nof two lines.wshard")
    assert names == {str(data / name) for name in expected}
    # By default below the current folder, with paths that begin with `.` as those of find.
    here = find(cwd=data / "deep")
    assert sorted(here.stdout.decode().split()) == ["./demo.kdb", "./er/tree_sequence.trees"]


def test_what_is_looked_for(data):
    size = (data / "ep_001.wshard").stat().st_size
    old = time.time() - 3 * 86400
    os.utime(data / "deep/demo.kdb", (old, old))
    os.utime(data / "deep/er/tree_sequence.trees", (old + 10, old + 10))

    def names(*arguments):
        found = find(*arguments, data)
        assert found.returncode == 0, found.stderr
        return {json.loads(line)["path"].rsplit("/", 1)[1] for line in found.stdout.splitlines()}

    assert names("--json", "--name", "*.kdb") == {"demo.kdb"}
    assert names("--json", "--newer", "2d") == {"ep_001.wshard", "a name\nof two lines.wshard"}
    newer = names("--json", "--newer", data / "deep/demo.kdb", "--name", "*e*")
    assert newer == {"tree_sequence.trees", "ep_001.wshard", "a name\nof two lines.wshard"}
    # As files of archives have it.
    os.utime(data / "deep/demo.kdb", (-10, -10))
    assert len(names("--json", "--newer", "30000d")) == 4 and "demo.kdb" not in names("--json", "--newer", "2d")
    assert names("--json", "--min-size", size, "--max-size", size) >= {"ep_001.wshard"}
    assert names("--json", "--formats=kdb") == {"demo.kdb"}
    shown = json.loads(find("--json", "--name", "ep_001.wshard", data).stdout)
    assert shown["size"] == size and shown["mtime"] == int((data / "ep_001.wshard").stat().st_mtime)
    assert shown["format"] == json.loads(subprocess.check_output(
        [BIN, "cat", data / "ep_001.wshard" / "container.json"]))["format"]
    long = find("-l", "--name", "demo.kdb", data).stdout.decode().split()
    assert long[0] == str((data / "deep/demo.kdb").stat().st_size) and long[-1] == str(data / "deep/demo.kdb")


def test_folders_have_no_size(data):
    shutil.copytree(FIXTURES / "cells.zarr", data / "cells.zarr")
    shown = json.loads(find("--json", "--name", "cells.zarr", data).stdout)
    assert (shown["format"], shown["size"]) == ("zarr", None)
    assert find("-l", "--name", "cells.zarr", data).stdout.decode().split()[0] == "-"
    for option in "--min-size", "--max-size":
        assert find(option, 1000, "--name", "cells.zarr", data).stdout == b""


def test_a_container_itself_and_what_is_none(data):
    assert find(data / "ep_001.wshard").stdout.decode() == f"{data}/ep_001.wshard\n"
    none = ((data / "notes.txt", "neither"), (data / "ep_001.wshard/signal", "neither"), (data / "gone", "No such"))
    for path, words in none:
        failed = find(path)
        assert failed.returncode == 1 and words in failed.stderr.decode() and not failed.stdout, failed
    assert find("--newer", "no-such-file", data).returncode == 2
    # What can be looked at is printed in spite of what cannot.
    found = find(data / "gone", data / "deep")
    assert found.returncode == 1 and len(found.stdout.splitlines()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_that_may_not_be_listed(data, tmp_path):
    (data / "closed").mkdir(mode=0o700)
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    found = subprocess.run([BIN, "find", data], capture_output=True, timeout=60, **nobody)
    assert found.returncode == 1 and b"closed" in found.stderr and b"demo.kdb" in found.stdout, found


def test_what_a_server_does_not_give_is_told(data):
    options = ("--no-disk-cache", "--timeout=1s", "--retries=0")
    with failing_server(data, {"/deep/demo.kdb"}) as address:
        # By its name, looks.kdb is one.
        for detect, count in ("name", 4), ("content", 3):
            found = find(*options, f"--detect={detect}", f"{address}/")
            assert found.returncode == 1 and len(found.stdout.splitlines()) == count, found
            assert found.stderr.count(b"\n") == 1 and b"/deep/demo.kdb: " in found.stderr and b"500" in found.stderr


def test_in_a_bucket_nothing_but_listings(data):
    store = Store()
    for number in range(300):
        store.put(f"d/ep_{number:03}.wshard", (FIXTURES / "ep_001.wshard").read_bytes())
    with store.serving() as endpoint:
        options = ("--no-sign-request", "--no-disk-cache", f"--endpoint-url={endpoint}")
        found = find("s3://b/d/", *options)
    assert found.returncode == 0 and len(found.stdout.splitlines()) == 300, found.stderr
    assert [entry for entry in store.log if "list-type=2" not in entry[1]] == []
    # Pages of the listing, and one question for each name by which a folder may be a container.
    assert len(store.log) < 12


def test_paths_that_are_no_text(tmp_path):
    """JSON has text alone; `path_hex` has the bytes, so that the file can be opened."""
    name = os.fsencode(tmp_path) + b"/\xff\xfe.wshard"
    with open(name, "wb") as file:
        file.write((FIXTURES / "ep_001.wshard").read_bytes())
    (tmp_path / "plain.wshard").write_bytes((FIXTURES / "ep_001.wshard").read_bytes())

    def paths(*command):
        done = subprocess.run([BIN, *command, "--json", tmp_path], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        objects = [json.loads(line) for line in done.stdout.splitlines()] if command[0] != "info" else (
            json.loads(done.stdout)["containers"]
        )
        return {bytes.fromhex(found.get("path_hex", "")) or found["path"].encode() for found in objects}

    expected = {name, os.fsencode(tmp_path / "plain.wshard")}
    assert paths("find") == paths("ls") == paths("info") == expected
