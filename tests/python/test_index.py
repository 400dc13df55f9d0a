"""`shardfs index`: one row a container, only what changed is looked into again, and the file is replaced as a whole."""

import json
import os
import shutil
import signal
import subprocess

import numpy as np
import pytest

from support import BIN, FIXTURES, GOLDEN, run, tables, wait_for
from support.stores import Store, failing_server
from support.writers import kas
from support.writers.kdb import Episode, Record, pack

COLUMNS = ["path", "format", "version", "size", "modified", "episodes", "episode_id", "task", "steps", "cameras",
           "damaged", "problem", "part_of"]


def index(source, output, *options, **more):
    done = run("index", source, "-o", output, "--json", *options, **more)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def rows(path):
    """Path to row, as pyarrow reads them; every reader that people use gives the same."""
    import pyarrow.parquet as pq

    first = None
    for reader in tables.READERS.values():
        found = reader(path)
        first = first or found
        assert found == first, reader.__name__
    listed = pq.read_table(path).to_pylist()
    assert list(first) == COLUMNS and [row["path"] for row in listed] == sorted(row["path"] for row in listed)
    return {row["path"]: row for row in listed}


@pytest.fixture
def data(tmp_path):
    source = tmp_path / "data"
    shutil.copytree(FIXTURES, source)
    (source / "deep/er").mkdir(parents=True)
    rgb = lambda: [Record("front", 2, 2, 3, 0, bytes(12)), Record("a,b", 2, 2, 3, 0, bytes(12))]
    episodes = [Episode([rgb() for _ in range(3)], task="pick"), Episode([[]] * 4, task="pick")]
    (source / "deep/er/x.kdb").write_bytes(pack(episodes))
    (source / "deep/mixed.kdb").write_bytes(pack([Episode([[]], task="a"), Episode([[]], task="b")]))
    (source / "cut.kdb").write_bytes(pack(episodes)[:-1])
    return source


def test_what_stands_in_it(data, tmp_path):
    code, counts, _ = index(data, tmp_path / "index.parquet")
    found = rows(tmp_path / "index.parquet")
    assert (code, counts["containers"], counts["added"]) == (0, len(found), len(found))
    for path, row in found.items():
        stat = os.stat(data / path)
        assert row["size"] == (None if (data / path).is_dir() else stat.st_size)
        assert row["damaged"] == (row["problem"] is not None)
        if (data / path).is_dir():
            continue
        assert row["modified"] == np.datetime64(stat.st_mtime_ns // 1000, "us").astype(object)
    kdb = found["deep/er/x.kdb"]
    assert (kdb["format"], kdb["version"], kdb["episodes"], kdb["task"], kdb["steps"]) == ("kdb", "0.1", 2, "pick", 7)
    assert sorted(kdb["cameras"].split(",")) == ["a%2Cb", "front"]
    assert found["deep/mixed.kdb"]["task"] is None
    episode = found["ep_001.wshard"]
    about = json.loads(run("info", "--json", data / "ep_001.wshard", check=True).stdout)
    assert (episode["format"], episode["episodes"], episode["episode_id"], episode["steps"]) == (
        "wshard", 1, about["episode"]["episode_id"], about["episode"]["length_T"])
    assert (episode["task"], episode["cameras"]) == (about["episode"]["env_id"], "cam0/depth,cam0/rgb")
    assert found["table.idv"]["version"] == "1.1.1.6" and found["table.idv"]["steps"] is None
    assert found["cut.kdb"]["damaged"] and found["cut.kdb"]["format"] is None and "index" in found["cut.kdb"]["problem"]
    assert "notes.txt" not in found


def test_golden_files(tmp_path):
    """Every golden container that opens is a row, and those that must be refused are damaged or no containers."""
    assert index(GOLDEN, tmp_path / "i.parquet", "--parts")[0] == 0
    found = rows(tmp_path / "i.parquet")
    for family, accepted in ("wshard", lambda e: e["open"] == "accept"), ("kastore", lambda e: e["expect"] != "error"):
        files = json.loads((GOLDEN / family / "expected.json").read_text())["files"]
        for name, expected in files.items():
            row = found.get(f"{family}/{name}")
            assert (row is not None and row["format"] is not None) == accepted(expected), name


def chunked(folder):
    """Makes a folder with an episode in chunks beside its manifest, and one container more. Returns the names of the
    chunks."""
    shutil.copytree(GOLDEN / "wshard/chunked_py", folder / "long")
    shutil.copy2(FIXTURES / "ep_001.wshard", folder / "long/other.wshard")
    return sorted(path.name for path in folder.glob("long/*_chunk_*"))


def test_chunks_that_a_manifest_joins(tmp_path):
    """They are counted once: as the manifest's episode. --parts has them, marked."""
    source, output = tmp_path / "data", tmp_path / "i.parquet"
    source.mkdir()
    chunks = chunked(source)
    manifest = "long/long_ep_manifest.wshard"
    plain = {manifest, "long/other.wshard"}
    everything = plain | {f"long/{name}" for name in chunks}
    assert index(source, output)[1] == {"index": str(output), "containers": 2, "added": 2, "changed": 0, "removed": 0,
                                        "damaged": 0}
    found = rows(output)
    assert set(found) == plain and not any(row["part_of"] for row in found.values())
    # What was left out was looked into before.
    code, counts, _ = index(source, output, "--parts")
    assert (code, counts["containers"], counts["added"], counts["changed"], counts["removed"]) == (0, 6, 0, 0, 0)
    found = rows(output)
    assert set(found) == everything
    assert {path for path, row in found.items() if row["part_of"] == manifest} == everything - plain
    assert {row["part_of"] for row in found.values()} == {None, manifest}
    assert found[manifest]["steps"] == sum(found[f"long/{name}"]["steps"] for name in chunks)
    assert index(source, output)[1]["removed"] == 0 and set(rows(output)) == plain
    # Without all of its chunks a manifest joins none, and those that are there are shown.
    (source / "long" / chunks[-1]).unlink()
    index(source, output)
    assert set(rows(output)) == everything - {f"long/{chunks[-1]}"}
    # Files of a model are parts of their index.
    shutil.copytree(GOLDEN / "safetensors/joined", tmp_path / "joined")
    index(tmp_path / "joined", output, "--parts")
    of = {path: row["part_of"] for path, row in rows(output).items()}
    files = set(json.loads((tmp_path / "joined/model.safetensors.index.json").read_text())["weight_map"].values())
    assert {path: by for path, by in of.items() if by} == dict.fromkeys(files, "model.safetensors.index.json")


def test_only_what_changed_is_looked_into(data, tmp_path):
    output = tmp_path / "index.parquet"
    index(data, output)
    before, size = rows(output), output.stat().st_size
    # What else was read of a folder can have changed, so folders are looked into again; they count if it has.
    folders = sum((data / path).is_dir() for path in before)
    assert folders and index(data, output)[1] == {
        "index": str(output), "containers": len(before), "added": 0, "changed": 0, "removed": 0,
        "damaged": sum(row["damaged"] for row in before.values())}
    assert rows(output) == before and abs(output.stat().st_size - size) < 16 * folders
    # A file that can be opened no more is not asked again while its state is the same.
    (data / "deep/er/x.kdb").write_bytes(pack([Episode([[]] * 5, task="place")]))
    store = kas.kastore({"a": np.arange(3)})
    (data / "new.kas").write_bytes(store)
    (data / "deep/mixed.kdb").unlink()
    _, counts, _ = index(data, output)
    assert (counts["added"], counts["changed"], counts["removed"]) == (1, 1, 1)
    after = rows(output)
    assert after.keys() == before.keys() - {"deep/mixed.kdb"} | {"new.kas"}
    assert (after["deep/er/x.kdb"]["task"], after["deep/er/x.kdb"]["steps"]) == ("place", 5)
    unchanged = before.keys() & after.keys() - {"deep/er/x.kdb"}
    assert all(before[path] == after[path] for path in unchanged)


@pytest.mark.parametrize("spoil", [
    lambda path: path.write_bytes(path.read_bytes()[:-40] + bytes(40)),
    lambda path: path.write_bytes(b"PAR1"),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes().replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe")),
    lambda path: path.unlink(),
], ids=["footer", "stub", "empty", "rows", "gone"])
def test_an_index_that_is_damaged_is_built_anew(spoil, data, tmp_path):
    output = tmp_path / "index.parquet"
    index(data, output)
    before = rows(output)
    spoil(output)
    code, counts, _ = index(data, output)
    assert (code, counts["added"]) == (0, len(before)) and rows(output) == before


def test_an_index_that_another_program_wrote(data, tmp_path):
    import pyarrow.parquet as pq

    output = tmp_path / "index.parquet"
    index(data, output)
    before = rows(output)
    pq.write_table(pq.read_table(output), output)
    assert index(data, output)[1]["added"] == len(before) and rows(output) == before
    # That of another folder says nothing of this one.
    (tmp_path / "other").mkdir()
    shutil.copy2(data / "arrays.kas", tmp_path / "other")
    assert index(tmp_path / "other", output)[1]["added"] == 1


def test_what_is_no_index_is_never_replaced(data, tmp_path):
    before = (data / "demo.kdb").read_bytes()
    for output in data / "demo.kdb", data / "notes.txt", data, tmp_path / "missing/index.parquet", "/dev/null":
        done = run("index", data, "-o", output)
        assert done.returncode == 1 and done.stderr.startswith("shardfs: "), done
        assert done.stderr.count("\n") == 1, done
    assert (data / "demo.kdb").read_bytes() == before
    assert run("index", data).returncode == 2
    assert run("index", data / "notes.txt", "-o", tmp_path / "i").returncode == 1
    assert run("index", tmp_path / "nothing", "-o", tmp_path / "i").returncode == 1
    assert "neither a folder nor" in run("index", data / "robot.h5/data", "-o", tmp_path / "i").stderr
    assert not [path for path in tmp_path.rglob(".shardfs-part*")] and not (tmp_path / "i").exists()


def test_one_container_and_none(data, tmp_path):
    assert index(data / "demo.kdb", tmp_path / "one.parquet")[1]["containers"] == 1
    assert list(rows(tmp_path / "one.parquet")) == ["demo.kdb"]
    (tmp_path / "empty").mkdir()
    assert index(tmp_path / "empty", tmp_path / "none.parquet")[1]["containers"] == 0
    assert rows(tmp_path / "none.parquet") == {}


def test_names_of_any_bytes(tmp_path):
    source = tmp_path / "data"
    source.mkdir()
    store = kas.kastore({"a": np.arange(3)})
    for name in (b"\xff.kas", b"\xfe.kas", "größer.kas".encode(), b"two\nlines.kas"):
        with open(os.path.join(os.fsencode(source), name), "wb") as file:
            file.write(store)
    index(source, tmp_path / "i.parquet")
    assert set(rows(tmp_path / "i.parquet")) == {"%FF.kas", "%FE.kas", "größer.kas", "two\nlines.kas"}
    assert index(source, tmp_path / "i.parquet")[1]["changed"] == 0


def test_two_names_that_read_the_same(tmp_path):
    """Their rows have one path. What is gone is counted by it."""
    source = tmp_path / "data"
    source.mkdir()
    for name in (b"a\xff.kas", b"a%FF.kas", b"b.kas"):
        with open(os.path.join(os.fsencode(source), name), "wb") as file:
            file.write(kas.kastore({"a": np.arange(3)}))
    index(source, tmp_path / "i.parquet")
    assert index(source, tmp_path / "i.parquet")[1]["removed"] == 0
    (source / "b.kas").unlink()
    assert index(source, tmp_path / "i.parquet")[1]["removed"] == 1


def test_a_folder_that_may_not_be_read(data, tmp_path):
    """What can't be looked at is told, ends with 1, and the rest is in the index."""
    (data / "deep").chmod(0)
    shutil.copy2(BIN, tmp_path / "shardfs")
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder != folder.parent and folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    try:
        command = [tmp_path / "shardfs", "index", data, "-o", tmp_path / "i.parquet"]
        done = subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, timeout=60, cwd="/")
        assert done.returncode == 1 and "deep: " in done.stderr and "ermission denied" in done.stderr, done
        assert "demo.kdb" in rows(tmp_path / "i.parquet")
    finally:
        (data / "deep").chmod(0o755)


def test_what_cannot_be_read_now_is_no_damage(data, tmp_path):
    """A server that fails for a while: the end is 1, earlier rows stay, and the next run asks again."""
    store, output = Store(), tmp_path / "index.parquet"
    for name in "demo.kdb", "arrays.npz", "damaged/cut_short.trees":
        store.put(f"d/{name}", (data / name).read_bytes())
    fails = [lambda handler: "demo.kdb" in handler.path and (handler.fail(503, "SlowDown") or True)]
    options = ("--no-sign-request", "--no-disk-cache", "--timeout=1s", "--retries=0")
    with store.serving() as endpoint:
        def run_index():
            code, counts, said = index("s3://b/d/", output, *options, f"--endpoint-url={endpoint}")
            return code, [counts[name] for name in ("containers", "changed", "removed", "damaged")], said

        store.faults = fails
        code, counts, said = run_index()
        assert (code, counts) == (1, [3, 0, 0, 1]) and "demo.kdb: " in said and said.count("\n") == 1, said
        assert rows(output)["demo.kdb"]["steps"] is None and not rows(output)["demo.kdb"]["damaged"]
        store.faults = []
        assert run_index() == (0, [3, 1, 0, 1], "")
        before = rows(output)
        assert before["demo.kdb"]["steps"] > 0 and before["damaged/cut_short.trees"]["damaged"]
        store.faults = fails
        store.put("d/demo.kdb", (data / "deep/er/x.kdb").read_bytes())
        code, counts, _ = run_index()
        assert (code, counts) == (1, [3, 0, 0, 1]) and rows(output) == before


def test_what_a_server_does_not_list_keeps_its_row(data, tmp_path):
    failing, options = set(), ("--no-disk-cache", "--timeout=1s", "--retries=0")
    with failing_server(data, failing) as address:
        for paths in (), ("/demo.kdb",), ("/deep/",):
            failing.clear()
            failing.update(paths)
            code, counts, said = index(f"{address}/", tmp_path / "i.parquet", *options)
            assert (code, counts["removed"], said.count("\n")) == (len(paths), 0, len(paths)), (counts, said)
            before = rows(tmp_path / "i.parquet") if not paths else before
            assert rows(tmp_path / "i.parquet") == before and {"demo.kdb", "deep/er/x.kdb"} <= set(before)


def test_many_and_interrupted(tmp_path):
    """A folder of many: Ctrl-C ends the work, leaves the old index, and nothing else."""
    source, output = tmp_path / "data", tmp_path / "index.parquet"
    store = kas.kastore({"a": np.arange(3)})
    for folder in range(20):
        (source / str(folder)).mkdir(parents=True)
        for number in range(500):
            (source / str(folder) / f"{number}.kas").write_bytes(store)
    assert index(source, output)[1]["containers"] == 10_000
    before = output.read_bytes()
    process = subprocess.Popen([BIN, "index", "--anew", source, "-o", output, "-j", "1"], stdout=subprocess.PIPE)
    # It works once it has files open.
    wait_for(lambda: process.poll() is not None or len(os.listdir(f"/proc/{process.pid}/task")) > 1, what="threads")
    process.send_signal(signal.SIGINT)
    code = process.wait(60)
    assert code in (-signal.SIGINT, 0)
    assert sorted(os.listdir(tmp_path)) == ["data", "index.parquet"]
    if code:
        assert output.read_bytes() == before
    assert index(source, output)[1]["added"] == 0
