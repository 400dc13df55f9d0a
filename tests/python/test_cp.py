"""`shardfs cp`, the forms of `ls` and `cat`, completions and man pages."""

import io
import json
import os
import shutil
import socket
import stat
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
import xxhash

from support import BIN, FIXTURES, mounted, run, walk_files

EPISODE = "ep_001.wshard"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def tree(top):
    """What a folder holds: kind, mode, size, time, checksum or target."""
    found = {}
    for path in sorted(Path(top).rglob("*")):
        info = path.lstat()
        content = None
        if stat.S_ISREG(info.st_mode):
            content = zlib.crc32(path.read_bytes())
        elif stat.S_ISLNK(info.st_mode):
            content = os.readlink(path)
        size = None if stat.S_ISDIR(info.st_mode) else info.st_size
        found[str(path.relative_to(top))] = (oct(info.st_mode), size, info.st_mtime_ns, content)
    return found


def test_copies_are_what_a_mount_shows(golden, out):
    """Bytes, times, modes, links, empty folders: as `cp -a` from a mount, for every format."""
    sources = [golden / "wshard/py", golden / "kastore/generated", golden / "kdb", FIXTURES]
    damaged = False
    for source in sources:
        done = run("cp", "-r", "-j", "3", source, out)
        with mounted(source) as mnt:
            failed = set()
            for path in mnt.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    try:
                        path.read_bytes()
                    except OSError:
                        failed.add(path)
            for path in failed:
                assert str(path.relative_to(mnt)) in done.stderr, path
            lines = [line for line in done.stderr.splitlines() if " failed, " not in line]
            assert len(lines) == len(failed), done.stderr
            assert done.returncode == (1 if failed else 0)
            damaged |= bool(failed)
            want = {}
            for path in sorted(mnt.rglob("*")):
                if path in failed:
                    continue
                info = path.lstat()
                content = zlib.crc32(path.read_bytes()) if stat.S_ISREG(info.st_mode) else None
                if stat.S_ISLNK(info.st_mode):
                    content = os.readlink(path)
                size = None if stat.S_ISDIR(info.st_mode) else info.st_size
                # Folders of the copy can be written to, or they could not be deleted.
                mode = info.st_mode | (0o200 if stat.S_ISDIR(info.st_mode) else 0)
                want[str(path.relative_to(mnt))] = (oct(mode), size, info.st_mtime_ns, content)
            assert tree(out / source.name) == want
    assert damaged, "nothing is damaged: this test says less than it should"


def test_wildcards_reach_into_containers(out):
    run("cp", FIXTURES / "*.wshard/signal/joint_*.npy", str(out) + "/", check=True)
    assert walk_files(out) == {"ep_001.wshard/signal/joint_pos.npy", "ep_002_lz4.wshard/signal/joint_pos.npy"}
    copy = np.load(out / "ep_001.wshard/signal/joint_pos.npy", mmap_mode="r")
    assert copy.shape == (24, 7)
    # Relative patterns, and folders of any depth.
    other = out / "other"
    run("cp", "ep_00?*/**/rgb.npy", other, check=True, cwd=FIXTURES)
    assert walk_files(other) == {"ep_001.wshard/signal/cam0/rgb.npy", "ep_002_lz4.wshard/signal/cam0/rgb.npy"}
    # Whatever is hidden is found by its name alone.
    raw = out / "raw"
    run("cp", FIXTURES / EPISODE / ".raw/signal/j*", raw, check=True)
    assert walk_files(raw) == {"ep_001.wshard/.raw/signal/joint_pos.bin"}
    done = run("cp", FIXTURES / "*.wshard/nothing*", out / "no")
    assert done.returncode == 1 and "nothing matches" in done.stderr


def test_one_file_and_its_new_name(out, tmp_path):
    source = FIXTURES / EPISODE / "reward.npy"
    want = run("cat", source, check=True).stdout
    run("cp", source, tmp_path / "r.npy", check=True)
    assert (tmp_path / "r.npy").read_bytes() == want
    run("cp", source, str(out) + "/", check=True)
    assert (out / EPISODE / "reward.npy").read_bytes() == want
    run("cp", FIXTURES / "notes.txt", out, check=True)
    assert (out / "notes.txt").read_bytes() == (FIXTURES / "notes.txt").read_bytes()


def test_folders_need_r(out):
    done = run("cp", FIXTURES / EPISODE, out)
    assert done.returncode == 1 and "-r" in done.stderr
    run("cp", "-r", FIXTURES / EPISODE / "signal", out, check=True)
    assert (out / EPISODE / "signal/cam0/rgb.npy").is_file()


def test_an_interrupted_copy_goes_on(out):
    run("cp", "-r", FIXTURES / EPISODE, out, check=True)
    kept = out / EPISODE / "signal/cam0/rgb.npy"
    inode = kept.stat().st_ino
    cut = out / EPISODE / "reward.npy"
    whole = cut.read_bytes()
    older = out / EPISODE / "done.npy"
    os.utime(older, (1, 1))
    cut.unlink()
    # What a copy that was killed leaves behind.
    left = out / EPISODE / f".shardfs-part-{xxhash.xxh64_hexdigest(b'reward.npy')}"
    left.write_bytes(b"half of it")
    left.chmod(0o444)
    run("cp", "-r", FIXTURES / EPISODE, out, check=True)
    assert kept.stat().st_ino == inode, "a complete file was copied again"
    assert cut.read_bytes() == whole
    assert older.stat().st_mtime_ns == os.stat(FIXTURES / EPISODE).st_mtime_ns
    assert not [path for path in out.rglob(".shardfs-part-*")]


def test_damage_is_reported_and_the_rest_copied(out):
    done = run("cp", "-r", FIXTURES / "damaged/bad_crc.wshard", out)
    assert done.returncode == 1
    # The array, and the table that shows it too.
    *told, last = done.stderr.splitlines()
    assert {next(name for name in ("joint_pos.npy", "steps.parquet") if name in line) for line in told} == {
        "joint_pos.npy", "steps.parquet"} and all("checksum" in line for line in told) and "2 failed" in last
    copied = walk_files(out / "bad_crc.wshard")
    assert "signal/joint_pos.npy" not in copied and "signal/gripper_open.npy" in copied
    assert not [path for path in out.rglob(".shardfs-part-*")]


def test_never_into_the_source(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(FIXTURES, source)
    os.symlink(source, tmp_path / "link")
    before = tree(source)
    for target in (source / "new", source / "damaged", tmp_path / "link/new", source / EPISODE):
        done = run("cp", "-r", source, target)
        assert done.returncode == 1 and "lies inside" in done.stderr, target
    done = run("cp", source / "notes.txt", f"{tmp_path}/new/../source/copy.txt")
    assert done.returncode == 1 and "'..'" in done.stderr
    done = run("cp", source / EPISODE / "reward.npy", source / EPISODE)
    assert done.returncode == 1 and "lies inside" in done.stderr
    assert tree(source) == before


@pytest.mark.parametrize("arguments", [
    ["cp", FIXTURES / EPISODE / "meta/episode.json", "s3://bucket/out/"],
    ["cp", "-rn", FIXTURES / EPISODE, "ftp://host/out"],
    ["index", FIXTURES / EPISODE, "-o", "http://host/index.parquet"],
    ["export", FIXTURES / EPISODE, "--mp4=front", "-o", "gs://bucket/x.mp4"],
    ["warm", "--spill=S3://bucket/blocks", FIXTURES / EPISODE],
    ["ls", "--disk-cache=az://account/container", FIXTURES / EPISODE],
    ["man", "file:///man"],
])
def test_nothing_is_written_to_a_server(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and "nothing is ever written to a server" in done.stderr, done
    assert not os.listdir(tmp_path)


def test_two_sources_for_one_place(out, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    done = run("cp", tmp_path / "a/x.txt", tmp_path / "b/x.txt", out)
    assert done.returncode == 1 and "already" in done.stderr
    assert (out / "x.txt").read_text() == "a"


def test_a_dry_run_fails_where_the_real_one_does(out, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    (tmp_path / "file").touch()
    (tmp_path / "taken/x.txt").mkdir(parents=True)
    for sources, to in ((("a/x.txt", "b/x.txt"), out), (("a/x.txt", FIXTURES / "notes.txt"), tmp_path / "file"),
                        (("a/x.txt",), tmp_path / "file/deep/"), (("a/x.txt",), tmp_path / "taken/")):
        sources = [tmp_path / source for source in sources]
        dry, real = (run("cp", *option, *sources, f"{to}/" if len(sources) == 1 else to) for option in (["-n"], []))
        assert (dry.returncode, real.returncode) == (1, 1) and str(tmp_path) in dry.stderr, (dry.stderr, real.stderr)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN, "cp", "-n", tmp_path / "a/x.txt", out], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "shardfs: stdout: No space left on device\n")


def test_a_missing_source_does_not_stop_the_others(out):
    done = run("cp", FIXTURES / "no_such", FIXTURES / "notes.txt", out)
    assert done.returncode == 1 and "no_such" in done.stderr
    assert (out / "notes.txt").is_file()


def test_links_stay_links(tmp_path, out):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    os.symlink("file", source / "link")
    os.symlink("/nowhere", source / "broken")
    for _ in range(2):
        run("cp", "-r", source, out, check=True)
        assert tree(out / "source")["link"] == tree(source)["link"]
        assert os.readlink(out / "source/broken") == "/nowhere"


def test_nothing_is_written_through_links(tmp_path, out):
    """Neither through one that was copied before, by the same run or an earlier one, nor one that stood there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("as it was")
    linked, folder = tmp_path / "1/data", tmp_path / "2/data"
    linked.mkdir(parents=True)
    (folder / "inner/deep").mkdir(parents=True)
    os.symlink(outside, linked / "inner")
    for name in ("inner/file", "inner/new", "inner/deep/new"):
        (folder / name).write_text("through the link")
    run("cp", "-r", linked, out, check=True)
    for sources in [(folder,), (linked, folder)]:
        done = run("cp", "-r", *sources, out)
        assert done.returncode == 1 and "inner: a symbolic link is on the way" in done.stderr, done.stderr
    # A folder of DEST that is a link to begin with, for folders, files, and what is given a mode.
    shutil.rmtree(out)
    out.mkdir()
    os.symlink(outside, out / "data")
    for what in (folder, folder.parent / "data/inner"):
        run("cp", "-r", what, out)
    run("cp", f"{tmp_path}/2/*/inner/file", out)
    os.symlink(outside / "new", out / "file")
    run("cp", folder / "inner/file", out / "file", check=True)
    assert (out / "file").read_text() == "through the link" and not (out / "file").is_symlink()
    assert walk_files(outside) == {"file"} and (outside / "file").read_text() == "as it was"


def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("pipe", tmp_path / "link")
    os.symlink("/proc/self/fd/1", tmp_path / "stdout")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    before = tree(tmp_path)
    for name in before:
        done = run("cp", FIXTURES / EPISODE / "reward.npy", tmp_path / name)
        assert done.returncode == 1 and f"{name}: is not an ordinary file" in done.stderr, done
    with open(tmp_path / "file", "wb") as file:
        command = [BIN, "cp", FIXTURES / "notes.txt", tmp_path / "stdout"]
        assert subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL).returncode == 1
    (tmp_path / "file").unlink()
    assert tree(tmp_path) == before


def test_nothing_else_is_written_through_links(tmp_path):
    """Indexes, man pages, and the log of a mount in a folder where another user has put a link."""
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.mkdir()
    place.mkdir()
    (victim / "file").write_bytes(b"PAR1 as it was")
    os.symlink(victim / "file", place / "index")
    os.lchown(place / "index", 65534, 65534)
    done = run("index", FIXTURES, "-o", place / "index")
    assert done.returncode == 1 and "symbolic link" in done.stderr
    # One of this user, where another one may have renamed it to this.
    os.symlink(victim / "file", place / "own")
    place.chmod(0o777)
    done = run("index", FIXTURES, "-o", place / "own")
    assert done.returncode == 1 and "symbolic link" in done.stderr
    place.chmod(0o755)
    os.mkfifo(place / "pipe")
    done = run("index", FIXTURES, "-o", place / "pipe")
    assert done.returncode == 1 and "not an ordinary file" in done.stderr
    os.symlink(victim, place / "man1")
    done = run("man", place)
    assert done.returncode == 1 and "symbolic link" in done.stderr
    os.unlink(place / "man1")
    (place / "man1").mkdir()
    os.symlink(victim / "file", place / "man1/shardfs.1")
    run("man", place, check=True)
    assert (place / "man1/shardfs.1").read_text().startswith(".ie") and not (place / "man1/shardfs.1").is_symlink()
    os.symlink(victim / "file", place / "log")
    os.lchown(place / "log", 65534, 65534)
    done = run("mount", "--log-file", place / "log", FIXTURES, place / "man1")
    assert done.returncode == 1 and "link of another user" in done.stderr
    assert (victim / "file").read_bytes() == b"PAR1 as it was" and walk_files(victim) == {"file"}


def test_an_index_is_written_through_an_own_link(tmp_path):
    (tmp_path / "indexes").mkdir()
    os.symlink("indexes/today", tmp_path / "index")
    for _ in range(2):
        run("index", FIXTURES, "-o", tmp_path / "index", check=True)
        assert (tmp_path / "index").is_symlink()
        assert (tmp_path / "indexes/today").read_bytes()[:4] == b"PAR1"
    assert walk_files(tmp_path / "indexes") == {"today"}


def test_an_index_is_no_stream():
    done = subprocess.run([BIN, "index", FIXTURES, "-o", "/dev/stdout"], stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"shardfs: /dev/stdout: is not an ordinary file\n"


def test_full_disk(tmp_path):
    """The first file that finds no room ends the copy; no part of it stays."""
    if os.geteuid() != 0:
        pytest.fail("this test mounts a small disk, as root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], check=True)
    try:
        done = run("cp", "-r", FIXTURES / EPISODE, disk)
        assert done.returncode == 1 and "No space left" in done.stderr
        assert done.stderr.endswith("; nothing more can be written, so the rest was not tried\n")
        assert not [path for path in disk.rglob(".shardfs-part-*")]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_silent_when_not_on_a_terminal(out):
    done = run("cp", "-r", FIXTURES / EPISODE, out, check=True)
    assert done.stdout == b"" and done.stderr == ""


# --- ls and cat ---------------------------------------------------------------

def test_ls_long_shows_arrays():
    text = run("ls", "-l", FIXTURES / EPISODE / "signal", check=True).stdout.decode()
    line = next(line for line in text.splitlines() if line.endswith(" joint_pos.npy"))
    assert " f32 [24,7] " in line and " 800 " in line
    text = run("ls", "-l", FIXTURES / "demo.kdb/episodes/0", check=True).stdout.decode()
    assert any(" f32 [8,7] " in line and line.endswith("state.npy") for line in text.splitlines())


def test_ls_json(fixtures_mount):
    lines = run("ls", "-R", "--json", FIXTURES / EPISODE, check=True).stdout.decode().splitlines()
    found = {Path(entry["path"]).relative_to(FIXTURES / EPISODE): entry for entry in map(json.loads, lines)}
    shown = {path.relative_to(fixtures_mount / EPISODE): path for path in (fixtures_mount / EPISODE).rglob("*")}
    assert found.keys() == shown.keys()
    for path, entry in found.items():
        info = shown[path].stat()
        assert entry["kind"] == ("folder" if shown[path].is_dir() else "file")
        assert entry["mtime_ns"] == info.st_mtime_ns and abs(entry["mtime"] - info.st_mtime) < 1e-3
        if path.suffix == ".npy":
            array = np.load(shown[path])
            assert entry["shape"] == list(array.shape) and entry["size"] == info.st_size
            dtype = entry["dtype"]
            assert np.dtype("?" if dtype == "bool" else f"{dtype[0]}{int(dtype[1:]) // 8}") == array.dtype
        elif path.suffix == ".parquet":
            assert entry["shape"] == [24, 9] and entry["dtype"] is None
        else:
            assert entry["shape"] is None and entry["dtype"] is None
    # Paths are whole: they can be handed to cat.
    (one,) = map(json.loads, run("ls", "--json", FIXTURES / EPISODE / "reward.npy", check=True).stdout.splitlines())
    assert one["path"] == str(FIXTURES / EPISODE / "reward.npy") and one["dtype"] == "f32"


def test_ls_tree():
    text = run("ls", "--tree", FIXTURES / EPISODE / "signal", check=True).stdout.decode()
    assert text.splitlines() == [
        str(FIXTURES / EPISODE / "signal"), "├── cam0", "│   ├── depth.npy  u16 [24,48,64]",
        "│   └── rgb.npy  u8 [24,48,64,3]", "├── cmd", "│   ├── language.npy  u8 [24,32]", "│   └── language.txt",
        "├── gripper_open.npy  bool [24]", "└── joint_pos.npy  f32 [24,7]"]


def on_terminal(*args, **env):
    """Output of a command on a terminal of its own."""
    import pty
    master, slave = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    child = subprocess.Popen([BIN, *map(str, args)], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                             env={**environment, "TERM": "xterm", **env})
    os.close(slave)
    said = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(master)
    assert child.wait(timeout=30) == 0
    return said


def test_colours_are_for_terminals(tmp_path):
    (tmp_path / "bad\x1b[31mname").write_text("x")
    assert b"\x1b" not in run("ls", FIXTURES, check=True).stdout
    assert b"\x1b[1;34mep_001.wshard\x1b[0m" in on_terminal("ls", FIXTURES)
    assert b"\x1b" not in on_terminal("ls", FIXTURES, NO_COLOR="1")
    assert b"\x1b" not in on_terminal("ls", FIXTURES, TERM="dumb")
    assert b"\x1b[31m" not in on_terminal("ls", tmp_path)
    # As it is for programs.
    assert run("ls", tmp_path, check=True).stdout == b"bad\x1b[31mname\n"
    assert b"\x1b" not in on_terminal("mount", "--help", NO_COLOR="1")


def test_progress_on_a_terminal(out):
    said = on_terminal("cp", "-r", FIXTURES / EPISODE, out)
    assert b" copied, 0 already there" in said
    assert b"copied" not in on_terminal("cp", "-q", "-r", FIXTURES / EPISODE, out)


@pytest.mark.parametrize("args", [("ls", "-R", FIXTURES), ("ls", "-R", "--json", FIXTURES), ("ls", "--tree", FIXTURES),
                                  ("info", FIXTURES / EPISODE), ("completions", "bash"), ("status", "--json"),
                                  ("doctor",)],
                         ids=lambda args: "-".join(map(str, args[:2])).replace("/", "_"))
def test_closed_pipes_are_no_failure(args):
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([BIN, *map(str, args)], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE,
                              timeout=60)
    finally:
        os.close(write)
    assert done.returncode == 0 and done.stderr == b"", done


def test_cat_range():
    path = FIXTURES / EPISODE / "signal/cam0/rgb.npy"
    whole = run("cat", path, check=True).stdout
    for text, part in (("128:64", whole[128:192]), ("128:", whole[128:]), ("1K:2K", whole[1024:3072]),
                       (f"{len(whole) - 3}:100", whole[-3:]), (f"{len(whole)}:5", b""), ("99T:1", b""), ("7:0", b"")):
        assert run("cat", "--range", text, path, check=True).stdout == part, text
    assert np.load(io.BytesIO(whole)).shape == (24, 48, 64, 3)
    for wrong in ("5", ":5", "x:5", "-5:3"):
        assert run("cat", f"--range={wrong}", path).returncode == 2


# --- shells and manuals -------------------------------------------------------

COMMANDS = ("mount", "umount", "refresh", "status", "doctor", "cache", "ls", "find", "cat", "cp", "export", "info", "index",
            "verify", "warm", "formats", "serve", "view", "completions", "man")
# Those of `shardfs cache`, each with a page of its own.
CACHE_COMMANDS = ("clear", "prune", "status")


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", None), ("fish", None)])
def test_completions(shell, check, tmp_path):
    script = run("completions", shell, check=True).stdout
    for word in (*COMMANDS, "idle-timeout", "cache-size"):
        assert word.encode() in script, word
    assert b"probe" not in script
    if check:
        (tmp_path / "script").write_bytes(script)
        assert subprocess.run([*check, tmp_path / "script"]).returncode == 0


def test_bash_completes():
    code = 'source <("$0" completions bash); COMP_WORDS=(shardfs mo); COMP_CWORD=1; _shardfs shardfs mo shardfs; ' \
           'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code, BIN], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["mount"], done


def test_man_pages(tmp_path):
    run("man", tmp_path / "man", check=True)
    pages = sorted(path.name for path in (tmp_path / "man/man1").iterdir())
    commands = (*COMMANDS, *(f"cache-{command}" for command in CACHE_COMMANDS))
    assert pages == sorted(["shardfs.1", *(f"shardfs-{command}.1" for command in commands)])
    text = (tmp_path / "man/man1/shardfs-mount.1").read_text()
    assert "idle\\-timeout" in text and "/etc/fstab" in text
    assert (tmp_path / "man/man8/mount.shardfs.8").is_file()
    if shutil.which("man"):
        for page in pages:
            done = subprocess.run(["man", "--warnings", "-l", tmp_path / "man/man1" / page], capture_output=True,
                                  text=True, env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"})
            assert done.returncode == 0 and "warning" not in done.stderr, (page, done.stderr)


def test_help_says_exit_codes():
    assert "Exit codes: 0" in run("--help", check=True).stdout.decode()
    for command in COMMANDS:
        text = run(command, "--help", check=True).stdout.decode()
        assert "Example" in text, command
