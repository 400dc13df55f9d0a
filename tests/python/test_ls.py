"""`shardfs ls`, `info` and `cat` as people's fingers know them from coreutils."""

import json
import os
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from support import BIN, FIXTURES, GOLDEN, run

EPISODE = FIXTURES / "ep_001.wshard"


def lines(*args, **kw):
    return run(*args, check=True, **kw).stdout.decode().splitlines()


def test_without_a_path_it_lists_here():
    assert lines("ls", cwd=FIXTURES) == lines("ls", FIXTURES) == sorted(os.listdir(FIXTURES))


def test_patterns_reach_into_containers():
    found = lines("ls", FIXTURES / "ep_*.wshard/signal/joint_*.npy")
    assert found == [f"{FIXTURES}/{name}/signal/joint_pos.npy" for name in ("ep_001.wshard", "ep_002_lz4.wshard")]
    found = lines("ls", FIXTURES / "ep_*.wshard/signal")
    assert found[0] == f"{FIXTURES}/ep_001.wshard/signal:" and f"{FIXTURES}/ep_002_lz4.wshard/signal:" in found
    assert lines("ls", "-d", FIXTURES / "ep_*.wshard") == [f"{FIXTURES}/ep_001.wshard", f"{FIXTURES}/ep_002_lz4.wshard"]


def test_recursive_paths_begin_as_the_argument_does():
    found = lines("ls", "-R", "fixtures/ep_001.wshard", cwd=FIXTURES.parent)
    assert "fixtures/ep_001.wshard/signal/joint_pos.npy" in found
    assert all(path.startswith("fixtures/ep_001.wshard/") for path in found)
    # Each of them is a path that the other commands take.
    assert run("cat", *[path for path in found if path.endswith(".npy")], cwd=FIXTURES.parent).returncode == 0


def test_order():
    sizes = {line.split()[-1]: int(line.split()[1]) for line in lines("ls", "-l", EPISODE / "signal")}
    by_size = lines("ls", "-S", EPISODE / "signal")
    assert [sizes[name] for name in by_size] == sorted(sizes.values(), reverse=True)
    assert lines("ls", "-Sr", EPISODE / "signal") == by_size[::-1]


def test_order_by_time(tmp_path):
    for age, name in enumerate(("b", "c", "a")):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert lines("ls", "-t", tmp_path) == ["b", "c", "a"]
    assert lines("ls", "-1tr", tmp_path) == ["a", "c", "b"]


def test_human_sizes_and_hidden_names():
    (rgb,) = lines("ls", "-lh", EPISODE / "signal/cam0/rgb.npy")
    assert rgb.split()[1] == "217K"  # 221,312 bytes
    shown, everything = lines("ls", EPISODE), lines("ls", "-a", EPISODE)
    assert set(everything) - set(shown) == {".file", ".raw"}
    assert lines("ls", "-ap", EPISODE)[:3] == [".file", ".raw/", "action/"]
    assert "Usage: shardfs ls" in run("ls", "--help", check=True).stdout.decode()


def test_colours_when_they_are_asked_for():
    assert b"\x1b[1;34msignal\x1b[0m\n" in run("ls", "--color", EPISODE, check=True).stdout
    assert b"\x1b" not in run("ls", "--color=never", EPISODE, check=True).stdout
    assert b"\x1b[32mnothing is wrong" in run("verify", "--color=always", EPISODE, check=True).stdout
    assert b"\x1b[32mok      \x1b[0m" in run("doctor", "--color").stdout


@pytest.mark.parametrize("command", ["ls", "info", "cat"])
def test_a_bad_argument_does_not_stop_the_others(command):
    good = [EPISODE / "reward.npy", FIXTURES / "ep_002_lz4.wshard/reward.npy"]
    done = run(command, good[0], FIXTURES / "missing", EPISODE / "nothing", good[1])
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2, done.stderr
    alone = [run(command, path, check=True).stdout for path in good]
    for part in alone:
        assert part in done.stdout


def test_info_of_a_folder_as_json(tmp_path):
    (tmp_path / "sub").mkdir()
    shutil.copy(EPISODE, tmp_path / "ep.wshard")
    shutil.copy(FIXTURES / "demo.kdb", tmp_path)
    found = json.loads(run("info", "--json", tmp_path, check=True).stdout)
    containers = [{"path": f"{tmp_path}/demo.kdb", "format": "kdb", "episodes": 3},
                  {"path": f"{tmp_path}/ep.wshard", "format": "wshard", "items": 12}]
    empty = {"path": f"{tmp_path}/sub", "containers": 0, "others": 0, "parts": 0}
    assert found == {"folder": str(tmp_path), "others": 0, "parts": 0, "containers": containers, "folders": [empty]}
    own = [str(tmp_path), "  demo.kdb: kdb, 3 episodes", "  ep.wshard: wshard, 12 items"]
    assert lines("info", tmp_path) == [*own, "  sub/: 0 containers, 0 other files", "  in all: 2 containers, 0 other files"]
    shutil.rmtree(tmp_path / "sub")
    assert lines("info", tmp_path) == [*own, "  2 containers, 0 other files"]


def test_info_counts_what_lies_in_folders_below(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "text.txt").write_text("no container")
    shutil.copy(FIXTURES / "demo.kdb", tmp_path / "a/b")
    shutil.copy(EPISODE, tmp_path / "a")
    shutil.copytree(GOLDEN / "wshard/chunked_go", tmp_path / "a/long")
    chunks = sorted((tmp_path / "a/long").glob("*_chunk_*"))
    manifest = next((tmp_path / "a/long").glob("*_manifest*"))
    found = json.loads(run("info", "--json", tmp_path, check=True).stdout)
    assert (found["containers"], found["others"], found["parts"]) == ([], 1, 0)
    assert found["folders"] == [{"path": f"{tmp_path}/a", "containers": 3, "others": 0, "parts": len(chunks)}]
    assert lines("info", tmp_path)[1:] == [
        "  a/: 3 containers, 0 other files", "  in all: 3 containers, 1 other file",
        f"  left out: {len(chunks)} containers that others show joined (--parts lists those of this folder)"]
    # Chunks beside their manifest.
    found = json.loads(run("info", "--json", manifest.parent, check=True).stdout)
    assert [row["path"] for row in found["containers"]] == [str(manifest)] and found["parts"] == len(chunks)
    found = json.loads(run("info", "--json", "--parts", manifest.parent, check=True).stdout)
    assert {row["path"]: row.get("part_of") for row in found["containers"]} == {
        str(manifest): None} | {str(chunk): str(manifest) for chunk in chunks}
    assert found["parts"] == 0
    assert sum(line.endswith(f", part of {manifest.name}") for line in lines("info", "--parts", manifest.parent)) == len(
        chunks)


def test_info_names_what_tables_leave_out():
    for container in FIXTURES / "table.idv", FIXTURES / "tree_sequence.trees", EPISODE:
        tables = json.loads(run("info", "--json", container, check=True).stdout)["tables"]
        left = [(row["column"], row["reason"]) for table in tables for row in table["left_out"]]
        assert [line[12:] for line in lines("info", container) if line.startswith("    without ")] == [
            f"{column}: {reason}" for column, reason in left]


def test_info_of_a_part():
    found = lines("info", EPISODE / "signal")
    assert found[1].split() == ["path", "dtype", "shape", "codec", "stored", "size"]
    assert {line.split()[0] for line in found[2:]} == {
        "signal/cam0/depth.npy", "signal/cam0/rgb.npy", "signal/cmd/language.npy", "signal/gripper_open.npy",
        "signal/joint_pos.npy"}
    assert [line.split()[0] for line in lines("info", FIXTURES / "table.idv/columns/word")[1:]] == ["column", "word"]
    assert [line.split()[0] for line in lines("info", FIXTURES / "demo.kdb/episodes/1")[1:]] == ["episode", "1"]
    assert "nothing is stored under this path" in lines("info", EPISODE / "images/cam0")[1]


def test_info_has_one_layout():
    """Front matter is `name: value` without braces, then a table."""
    for path in sorted(FIXTURES.glob("*.*")):
        if path.name == "notes.txt":
            continue
        found = lines("info", path)
        assert found[0] == str(path) and found[1].startswith("  format: ") and found[2].startswith("  version: ")
        assert not any(c in line for line in found for c in '{}"'), path
    assert "  format: shard" in lines("info", FIXTURES / "weights.shard")
    assert "  role: MoSH (1)" in lines("info", FIXTURES / "weights.shard")


def complete(*words, cwd=FIXTURES.parent):
    """What bash proposes for the last word, the program called by its path."""
    code = ('source <("$0" completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_shardfs_with_paths "$0"; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", code, BIN, BIN, *words[1:]], capture_output=True, text=True, timeout=30, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_bash_completes_paths(tmp_path):
    assert complete("shardfs", "mo") == ["mount"]
    assert "--cache-size" in complete("shardfs", "mount", "--c")
    assert complete("shardfs", "mount", "--io-mode", "pa") == ["passthrough"]
    here = complete("shardfs", "ls", "")
    assert "fixtures" in here and not any(word.startswith("-") for word in here)
    assert "fixtures" in complete("shardfs", "mount", "fixtures", "fix")
    assert complete("shardfs", "cat", "fixtures/ep_001") == ["fixtures/ep_001.wshard"]
    inside = complete("shardfs", "cat", "fixtures/ep_001.wshard/")
    assert "fixtures/ep_001.wshard/signal/" in inside and "fixtures/ep_001.wshard/reward.npy" in inside
    assert complete("shardfs", "ls", "-l", "fixtures/ep_001.wshard/signal/jo") == [
        "fixtures/ep_001.wshard/signal/joint_pos.npy"]


def test_bash_completes_mount_points(mount, tmp_path):
    (tmp_path / "with blank").mkdir()
    with mount(FIXTURES, mnt=tmp_path / "with blank"):
        for command in ("umount", "status"):
            assert complete("shardfs", command, f"{tmp_path}/") == [f"{tmp_path}/with blank"]


def test_help_of_a_command():
    assert b"Usage: shardfs cp" in run("help", "cp", check=True).stdout
    assert b"Usage: shardfs <COMMAND>" in run("help", check=True).stdout


def test_values_that_people_write(mount, tmp_path):
    with mount(FIXTURES, "--cache-size=1.5G", "--uid=nobody", "--gid=root", "--idle-timeout=1h", "--slow=500ms") as mnt:
        config = json.loads((mnt / ".shardfs/config.json").read_text())
        assert (config["cache_size"], config["uid"], config["gid"], config["slow_seconds"]) == (3 << 29, 65534, 0, 0.5)
        assert os.stat(mnt / "notes.txt").st_uid == 65534
    for wrong, words in (("--threads=0", "at least 1"), ("--uid=nobody-here", "no user"), ("--idle-timeout=1y", "unknown unit"),
                         ("--cache-size=1.5.2G", "not a number")):
        done = run("mount", wrong, FIXTURES, tmp_path)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_rust_log_shows_this_program_only():
    env = {**os.environ, "RUST_LOG": "trace"}
    done = run("info", FIXTURES / "demo.kdb", env=env, check=True)
    assert all("shardfs" in line for line in done.stderr.splitlines())


def test_info_draws_groups_as_h5ls_does(tmp_path):
    """Every group, dataset and attribute of a file of h5py, with type, shape, chunks and filters; links with targets."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["title"] = "all"
        group = file.create_group("g/deep")
        group.create_dataset("a", data=np.zeros((6, 4), "f4"), chunks=(2, 4), compression="gzip", shuffle=True)
        group["a"].attrs["unit"] = "m"
        group["words"] = ["x", "y"]
        group["one"] = np.int16(3)
        file["last"], file["gone"] = h5py.SoftLink("/g/deep/a"), h5py.SoftLink("/none")
        file.create_dataset("rows", (3,), h5py.vlen_dtype(np.dtype("i4")))
        shorts = {"<f4": "f32", "<i2": "i16"}
        filters = {(None, False): "none", ("gzip", True): "shuffle+gzip"}
        wanted = []

        def line(name, thing):
            last, depth = name.rpartition("/")[2], name.count("/")
            if isinstance(thing, h5py.Group):
                return wanted.append((depth, f"{last}/"))
            kind = shorts.get(thing.dtype.str) or ("text" if h5py.check_string_dtype(thing.dtype) else "sequence")
            shape = "[" + ",".join(map(str, thing.shape)) + "]"
            chunks = [] if thing.chunks is None else ["chunks", "[" + ",".join(map(str, thing.chunks)) + "]"]
            wanted.append((depth, last, kind, shape, *chunks, filters[thing.compression, thing.shuffle]))
            return None

        file.visititems(line)
    found = [(len(line) - len(line.lstrip()), *line.split()) for line in lines("info", tmp_path / "x.h5")]
    tree = [(depth // 2 - 1, *words) for depth, *words in found if "->" not in words and words[0] not in (
        "format:", "version:", str(tmp_path / "x.h5"))]
    assert tree == wanted
    assert (2, "last", "->", "g/deep/a") in found or (2, "last", "->", "g/deep/a.npy") in found
    assert any(words[:3] == ["gone", "->", "none"] for _, *words in found)
    text = lines("info", "--attributes", tmp_path / "x.h5")
    assert '  @title = "all"' in text and '      @unit = "m"' in [line[2:] for line in text]
    assert lines("info", tmp_path / "x.h5/g/deep/a.npy")[1].split()[:3] == ["a", "f32", "[6,4]"]
    assert [line.split()[0] for line in lines("info", "--tree", FIXTURES / "demo.kdb/episodes/0")[1:]] == [
        "action", "images/", "front", "wrist", "is_terminal", "reward", "state"]


def test_depth_opens_no_container_below(tmp_path):
    """With `--depth`, what is on the last level is named and not looked into."""
    (tmp_path / "a/b").mkdir(parents=True)
    for place in ("a/one.wshard", "a/b/two.wshard"):
        (tmp_path / place).write_bytes((FIXTURES / "ep_001.wshard").read_bytes())

    def below(*options):
        return [line.removeprefix(f"{tmp_path}/") for line in lines("ls", *options, tmp_path)]

    assert below("-R", "--depth", "1") == ["a"]
    assert below("-R", "--depth", "2") == ["a", "a/b", "a/one.wshard"]
    deeper = below("-R", "--depth", "3")
    assert "a/b/two.wshard" in deeper and "a/one.wshard/signal" in deeper and "a/b/two.wshard/signal" not in deeper
    everything = below("-R")
    assert below("-R", "--depth", "99") == everything and len(everything) > len(deeper)
    tree = lines("ls", "--tree", "--depth", "2", tmp_path)
    assert len(tree) == 4 and tree[-1].endswith("one.wshard")
    failed = run("ls", "--depth", "1", tmp_path)
    assert failed.returncode == 2 and "--recursive" in failed.stderr
