"""The commands that need no mount, and what they say when something is wrong."""

import json
import os
import re
import shutil
import subprocess

import pytest

from support import BIN, FAMILIES, FIXTURES, ROOT, assert_one_line_error, mounted, read_checked, run, walk_files

# Below the golden folder: container, the mount that shows it, some files in it.
SAMPLES = [
    ("wshard/py/kitchen_zstd.wshard", "wshard_mount"),
    ("wshard/js/lz4.wshard", "wshard_mount"),
    ("wshard/go/content_types_schema.wshard", "wshard_mount"),
    ("wshard/py/stream_interleaved.wshard", "wshard_mount"),
    ("kastore/generated/msprime_two_populations.trees", "kastore_mount"),
    ("kastore/generated/awkward_names.kas", "kastore_mount"),
    ("kastore/generated/two_stores_stream.kas", "kastore_mount"),
    ("kast/valid/unicode_keys.kast", "kast_mount"),
]


def in_mount(request, rel, fixture):
    return request.getfixturevalue(fixture) / rel.split("/", 1)[1]


@pytest.mark.parametrize("rel, fixture", SAMPLES, ids=[s[0] for s in SAMPLES])
def test_ls(golden, request, rel, fixture):
    top = in_mount(request, rel, fixture)
    listed = run("ls", golden / rel, check=True).stdout.decode().splitlines()
    assert sorted(line.rstrip("/") for line in listed) == sorted(os.listdir(top))


@pytest.mark.parametrize("rel, fixture", SAMPLES, ids=[s[0] for s in SAMPLES])
def test_ls_long(golden, request, rel, fixture):
    """Each file on a line of its own, with its size."""
    top = in_mount(request, rel, fixture)
    lines = run("ls", "-l", golden / rel, check=True).stdout.decode().splitlines()
    for entry in os.scandir(top):
        mine = [x for x in lines if x.rstrip("/").endswith(" " + entry.name)]
        assert mine, f"{entry.name} is not in {lines}"
        if entry.is_file():
            assert str(entry.stat().st_size) in mine[0].split(), mine[0]


@pytest.mark.parametrize("rel, fixture", SAMPLES, ids=[s[0] for s in SAMPLES])
def test_ls_recursive(golden, request, rel, fixture):
    top = in_mount(request, rel, fixture)
    out = run("ls", "-R", golden / rel, check=True).stdout.decode()
    for path in walk_files(top):
        assert path.rstrip("/").rsplit("/", 1)[-1] in out, path


@pytest.mark.parametrize("rel, fixture", SAMPLES, ids=[s[0] for s in SAMPLES])
def test_cat(golden, request, rel, fixture):
    top = in_mount(request, rel, fixture)
    for path in sorted(walk_files(top))[:40]:
        done = run("cat", golden / rel / path, check=True)
        assert done.stdout == read_checked(top / path), path
        assert done.stderr == ""


def test_cat_hidden_and_several(golden, wshard_mount):
    rel = "py/kitchen_zstd.wshard"
    raw = f"{rel}/.raw/reward.bin"
    meta = f"{rel}/meta/episode.json"
    base = golden / "wshard"
    want = (wshard_mount / raw).read_bytes() + (wshard_mount / meta).read_bytes()
    assert run("cat", base / raw, base / meta, check=True).stdout == want


def test_cat_ordinary_file(golden):
    plain = golden / "kast" / "README.md"
    assert run("cat", plain, check=True).stdout == plain.read_bytes()


def test_cat_into_closed_pipe():
    """`shardfs cat … | head -c 10` is no failure and makes no noise."""
    path = FIXTURES / "ep_001.wshard" / "signal/cam0/rgb.npy"
    done = subprocess.run(["bash", "-c", '"$0" cat "$1" | head -c 10', BIN, str(path)],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.stdout == b"\x93NUMPY\x01\x00v\x00"
    assert b"panick" not in done.stderr


@pytest.mark.parametrize("command", [
    ["cat", FIXTURES / "ep_001.wshard/container.json"], ["ls", FIXTURES], ["find", FIXTURES], ["info", FIXTURES / "ep_001.wshard"],
    ["warm", FIXTURES / "ep_001.wshard"], ["verify", FIXTURES / "ep_001.wshard"], ["serve", FIXTURES, "--listen=127.0.0.1:0"],
    ["view", "--no-browser", FIXTURES], ["formats"], ["completions", "bash"], ["reference"], ["status"],
    ["--help"], ["--version"], ["help", "ls"],
], ids=lambda command: command[0])
def test_a_full_stdout_is_an_error_that_says_so(command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN, *command], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "shardfs: stdout: No space left on device\n")


def test_a_full_stderr_changes_nothing(tmp_path):
    def on_full(*command):
        with open("/dev/full", "wb") as full:
            return subprocess.run([BIN, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=full, timeout=60)

    assert on_full("ls", tmp_path / "missing").returncode == 1
    assert on_full("verify", tmp_path / "missing").returncode == 2
    assert on_full("mount", FIXTURES, tmp_path / "missing").returncode == 1
    # What follows a failure is copied.
    assert on_full("cp", tmp_path / "missing", FIXTURES / "notes.txt", tmp_path / "out").returncode == 1
    assert (tmp_path / "out/notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()


def test_ls_inside_and_file():
    lines = run("ls", FIXTURES / "ep_001.wshard/signal", check=True).stdout.decode().split()
    assert {x.rstrip("/") for x in lines} >= {"joint_pos.npy", "cam0", "cmd"}
    one = run("ls", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout.decode()
    assert "joint_pos.npy" in one


def test_info(golden):
    for rel, _ in SAMPLES:
        out = run("info", golden / rel, check=True).stdout.decode()
        assert out.strip(), rel
    out = run("info", FIXTURES / "ep_001.wshard", check=True).stdout.decode()
    assert "wshard" in out.lower() and "signal/joint_pos" in out


def test_relative_paths():
    done = run("cat", "ep_001.wshard/reward.npy", check=True, cwd=FIXTURES)
    assert done.stdout == run("cat", FIXTURES / "ep_001.wshard/reward.npy", check=True).stdout


# --- errors ---------------------------------------------------------------------

def test_errors_name_the_file(tmp_path):
    missing = tmp_path / "not_there.wshard"
    for command in ("ls", "cat", "info"):
        assert_one_line_error(run(command, missing), "not_there.wshard")
    inside = FIXTURES / "ep_001.wshard" / "signal" / "no_such.npy"
    for command in ("ls", "cat"):
        assert_one_line_error(run(command, inside), "no_such.npy")
    # A way through a file that is no folder.
    assert_one_line_error(run("cat", FIXTURES / "notes.txt" / "x"), "notes.txt")
    # A folder has no bytes.
    assert_one_line_error(run("cat", FIXTURES / "ep_001.wshard" / "signal"), "signal")


def test_info_of_no_container():
    assert_one_line_error(run("info", FIXTURES / "notes.txt"), "notes.txt")
    assert_one_line_error(run("info", FIXTURES / "damaged/cut_short.trees"), "cut_short.trees")


def test_cat_of_damaged_block():
    line = assert_one_line_error(
        run("cat", FIXTURES / "damaged/bad_crc.wshard/signal/joint_pos.npy"), "bad_crc.wshard", "joint_pos")
    assert re.search("crc|checksum", line, re.I), line
    assert run("cat", FIXTURES / "damaged/bad_crc.wshard/reward.npy").returncode == 0


def test_rejected_golden_files_as_source(golden, tmp_path):
    """What must be refused is an error with a reason when it is the SOURCE itself."""
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    for rel in ("wshard/py/crashed.wshard.partial", "kastore/malformed/truncated_file.kas",
                "kastore/malformed/bad_type_20.kas", "kast/malformed/unsorted.kast"):
        done = run("mount", golden / rel, mnt)
        assert not os.path.ismount(mnt)
        assert_one_line_error(done, os.path.basename(rel))


def test_mount_errors(tmp_path):
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    assert_one_line_error(run("mount", FIXTURES / "notes.txt", mnt), "notes.txt")
    assert_one_line_error(run("mount", tmp_path / "no_source", mnt), "no_source")
    assert_one_line_error(run("mount", FIXTURES, tmp_path / "no_mountpoint"), "no_mountpoint")
    line = assert_one_line_error(run("mount", FIXTURES / "damaged/cut_short.trees", mnt), "cut_short.trees")
    assert re.search(r"truncated|incomplete|cut|\d+ bytes", line), line
    assert not os.path.ismount(mnt)


def test_formats_are_chosen(tmp_path):
    """--formats of every command that shows containers, in fstab's words, and in config.json."""
    demo, table = FIXTURES / "demo.kdb", FIXTURES / "table.idv"
    source = tmp_path / "source"
    source.mkdir()
    for path in (demo, table):
        shutil.copy(path, source)
    for options in (["--formats=kdb"], ["--formats", "-idv"], ["-o", "ro,formats=kdb"], ["-o", 'formats="-idv,-wshard"']):
        with mounted(source, *options) as mnt:
            assert (mnt / "demo.kdb").is_dir()
            assert (mnt / "table.idv").read_bytes() == table.read_bytes()
            formats = json.loads((mnt / ".shardfs/config.json").read_text())["formats"]
            assert "kdb" in formats and "idv" not in formats
            assert (mnt / ".shardfs/problems.jsonl").read_text() == ""
    listed = run("ls", "--formats=idv", source, check=True).stdout.split()
    assert listed == [b"demo.kdb", b"table.idv/"] or listed == [b"demo.kdb", b"table.idv"]
    assert run("cat", "--formats=-kdb", demo, check=True).stdout == demo.read_bytes()
    run("cp", "--formats=-kdb", demo, tmp_path / "copy", check=True)
    assert (tmp_path / "copy").read_bytes() == demo.read_bytes()
    assert_one_line_error(run("info", "--formats=wshard,idv", demo),
                          "not a container of a format that was chosen (wshard, idv)")
    assert "1 container" in run("verify", "--formats=kdb", source, check=True).stdout.decode()
    assert run("info", "--formats=+idv", table, check=True).stdout


def test_formats_are_listed():
    lines = run("formats", check=True).stdout.decode().splitlines()
    names = [line.split()[0] for line in lines]
    assert set(FAMILIES) <= set(names) and all("shown" in line for line in lines)
    assert all((ROOT / f"docs/formats/{name}.md").is_file() for name in names)
    told = run("help", "formats", check=True).stdout.decode()
    assert all(" ".join(line.split()) in " ".join(told.split()) for line in lines)
    checks = json.loads(run("doctor", "--json").stdout)["checks"]
    assert [check["message"].split()[0] for check in checks if check["name"] == "format"] == names
    for wrong in ("kdb,what", "what", "kdb,-idv", ""):
        done = run("ls", f"--formats={wrong}", FIXTURES)
        assert done.returncode == 2 and all(family in done.stderr for family in FAMILIES) or wrong == "kdb,-idv"


def test_umount_of_nothing(tmp_path):
    assert_one_line_error(run("umount", tmp_path), tmp_path)


def test_usage_errors():
    for args in ([], ["nonsense"], ["mount"], ["ls", "--no-such-option", "x"]):
        done = run(*args)
        assert done.returncode != 0 and "panicked" not in done.stderr
        assert "usage" in (done.stderr + done.stdout.decode()).lower()


# --- help -----------------------------------------------------------------------

def commands():
    if not os.access(BIN, os.X_OK):
        return ["mount"]
    text = run("--help").stdout.decode()
    block = re.search(r"^Commands:\n((?:[ \t]+.*\n|\n)+)", text, re.M)
    return [c for c in re.findall(r"^  ([a-z][a-z-]*)\b", block.group(1), re.M) if c != "help"] if block else []


def test_commands():
    assert {"mount", "umount", "ls", "cat", "info"} <= set(commands())


@pytest.mark.parametrize("command", commands() or ["mount"])
def test_help_has_an_example(command):
    done = run(command, "--help", check=True)
    assert "example" in done.stdout.decode().lower()
    assert done.stderr == ""


def test_version():
    assert re.match(r"shardfs \d+\.\d+\.\d+", run("--version", check=True).stdout.decode())


def test_every_front_of_a_container_is_handled(tmp_path):
    """A file cut anywhere is a container, an error in one line, or a file; never a crash."""
    for rel in ("table.kast", "tree_sequence.trees", "stream.wshard"):
        whole = (FIXTURES / rel).read_bytes()
        for cut in sorted({0, 1, 3, 4, 7, 39, 40, 63, 64, 65, 100, 127, 128, len(whole) // 2, len(whole) - 1}):
            piece = tmp_path / f"cut{cut}_{rel}"
            piece.write_bytes(whole[:cut])
            done = run("info", piece)
            assert done.returncode in (0, 1, 2), (rel, cut, done.stderr)
            assert "panicked" not in done.stderr
            if done.returncode:
                assert_one_line_error(done, piece.name)


def test_mount_of_one_container():
    """The container as SOURCE is the root of the mount."""
    with mounted(FIXTURES / "ep_001.wshard") as mnt:
        names = sorted(os.listdir(mnt))
        assert names[0] == "action" and "container.json" in names and "meta" in names
        assert ".shardfs" not in names and ".raw" not in names
        assert json.loads((mnt / ".shardfs/stats.json").read_text()) is not None
        # The same file is the same inside a folder.
        alone = read_checked(mnt / "signal/joint_pos.npy")
    assert alone == run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout


def test_mountpoint_inside_source(tmp_path):
    """A mount point below SOURCE neither hangs nor shows itself without end."""
    src = tmp_path / "src"
    shutil.copytree(FIXTURES, src)
    (src / "mnt").mkdir()
    done = run("mount", src, src / "mnt")
    if done.returncode == 0:
        try:
            assert (src / "mnt" / "notes.txt").read_bytes() == (src / "notes.txt").read_bytes()
        finally:
            run("umount", src / "mnt")
    else:
        assert_one_line_error(done, "mnt")
    assert not os.path.ismount(src / "mnt")
