"""Ways out of the source directory, and to bytes that are another file's or of another state: each leads nowhere."""

import errno
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from support import BIN, GOLDEN, mounted, seen_within
from support import run as shardfs
from test_changes import make, source, values  # noqa: F401 (fixtures)

SOON = 1.0

# Runs a line of Python as another user: `me(path)` reads, and prints what came or the errno.
AS_NOBODY = """
import os, sys
os.setgid(65534); os.setuid(65534)
def me(path):
    try:
        print(open(path).read())
    except OSError as error:
        print(error.errno)
"""


def as_nobody(line, cwd="/"):
    done = subprocess.run([sys.executable, "-c", AS_NOBODY + line], cwd=cwd, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def public(tmp_path):
    """A folder that every user may enter, with the folders above it."""
    place = tmp_path
    while place != place.parent and place.stat().st_uid == os.geteuid() and place.name != "tmp":
        place.chmod(0o755)
        place = place.parent
    return tmp_path


@pytest.mark.parametrize("options", [(), ("--uid", "65534"), ("--follow-links",)], ids=["plain", "uid", "links"])
def test_a_folder_that_becomes_a_link_leads_nowhere(public, options):
    source, outside = public / "source", public / "outside"
    (source / "alice/a/etc").mkdir(parents=True)
    (source / "alice/a/etc/secret").write_text("own")
    (outside / "etc").mkdir(parents=True)
    (outside / "etc/secret").write_text("outside")
    with mounted(source, "--allow-other", *options) as mnt:
        inside = os.open(mnt / "alice/a/etc", os.O_PATH)
        try:
            assert (mnt / "alice/a/etc/secret").read_text() == "own"
            (source / "alice/a").rename(public / "aside")
            (source / "alice/a").symlink_to(outside)
            seen = set()

            def is_gone():
                try:
                    with open(os.open("secret", os.O_RDONLY, dir_fd=inside)) as file:
                        seen.add(file.read())
                    return False
                except OSError as error:
                    return error.errno in (errno.ESTALE, errno.ENOENT, errno.ELOOP)

            assert seen_within(SOON, is_gone)
            assert seen <= {"own"}, "bytes from outside the source directory"
            assert not (mnt / "alice/a/etc").exists() or os.readlink(mnt / "alice/a") == str(outside)
            if "--follow-links" not in options:
                assert os.readlink(mnt / "alice/a") == str(outside)
        finally:
            os.close(inside)


def test_commands_do_not_follow_links_on_the_way(tmp_path, fixtures_dir):
    source = tmp_path / "source"
    (tmp_path / "outside").mkdir()
    source.mkdir()
    shutil.copy(fixtures_dir / "ep_001.wshard", tmp_path / "outside/ep.wshard")
    (source / "link").symlink_to(tmp_path / "outside")
    assert shardfs("ls", "-R", source).stdout.decode().splitlines() == [f"{source}/link"]
    assert shardfs("cp", "-r", f"{source}/*/ep.wshard/reward.npy", tmp_path / "out").returncode == 1
    assert b"ep.wshard" not in shardfs("verify", source).stdout


def test_a_link_gives_no_more_than_its_reader_could_reach(public):
    source = public / "source"
    (source / "alice").mkdir(parents=True)
    (source / "secret").mkdir()
    (source / "secret/note.txt").write_text("secret")
    (source / "secret/note.txt").chmod(0o644)
    (source / "alice/link").symlink_to("../secret/note.txt")
    (source / "alice/folder").symlink_to(source / "secret")
    with mounted(source, "--allow-other", "--follow-links") as mnt:
        assert as_nobody(f"me({str(mnt / 'alice/link')!r})") == "secret"
        assert as_nobody(f"me({str(mnt / 'alice/folder/note.txt')!r})") == "secret"
        (source / "secret").chmod(0o700)
        denied = str(errno.EACCES)
        for path in ("alice/link", "alice/folder/note.txt"):
            assert seen_within(SOON, lambda: as_nobody(f"me({str(mnt / path)!r})") == denied), path
        assert (mnt / "alice/link").read_text() == "secret", "root may go there"


def test_links_that_lead_outside_are_followed_where_that_was_asked_for(public):
    source, outside = public / "source", public / "outside"
    source.mkdir()
    outside.mkdir()
    (outside / "blob").write_text("blob")
    (source / "link").symlink_to(outside / "blob")
    with mounted(source, "--follow-links=outside") as mnt:
        assert (mnt / "link").read_text() == "blob"
    with mounted(source, "--follow-links") as mnt:
        assert os.readlink(mnt / "link") == str(outside / "blob")


@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_two_files_of_one_size_and_time(make, source, tmp_path, mode):
    """Two containers that differ in nothing but their bytes and inode change places."""
    for name, value in (("cur", 1), ("new", 2)):
        (source / name).mkdir()
        make(source / name / "c.kas", value, count=400_000)
    for path in source.glob("*/c.kas"):
        os.utime(path, ns=(10**18, 10**18))
    with mounted(source, f"--serve={mode}") as mnt:
        for _ in range(3):
            assert values(mnt / "cur/c.kas/x.npy") == {1}
        (source / "cur").rename(source / "old")
        (source / "new").rename(source / "cur")
        assert seen_within(SOON, lambda: values(mnt / "cur/c.kas/x.npy") == {2})
        for _ in range(3):
            assert values(mnt / "cur/c.kas/x.npy") == {2}
        assert seen_within(SOON, lambda: values(mnt / "old/c.kas/x.npy") == {1})


@pytest.mark.parametrize("place, names", [("a.kas", ["x.npy", "y.npy", "container.json"]), ("a.wshard/signal", ["x.bin"])],
                         ids=["in its root", "deeper"])
def test_a_mode_reaches_those_who_stand_inside(public, make, writers, source, place, names):
    """Deeper inside, what was read before is read without asking: the kernel has to be notified."""
    path = source / place.split("/")[0]
    if path.suffix == ".kas":
        make(path, 3)
    else:
        writers.write_shard(path, [("signal/x", bytes(4096))])
    path.chmod(0o644)
    with mounted(source, "--allow-other") as mnt:
        stand = subprocess.Popen(
            [sys.executable, "-u", "-c", AS_NOBODY + "\nos.chdir(sys.argv[1])\n"
             "for line in sys.stdin:\n"
             "    try:\n        open(line.strip(), 'rb').read(); print('read')\n"
             "    except OSError as error: print(error.errno)\n", mnt / place],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def read(name):
            print(name, file=stand.stdin, flush=True)
            return stand.stdout.readline().strip()

        for name in names[:2]:
            assert read(name) == "read"
        path.chmod(0)
        for name in names:
            assert seen_within(SOON, lambda: read(name) in (str(errno.EACCES), str(errno.ESTALE))), name
        stand.stdin.close()
        stand.wait()


@pytest.mark.parametrize("what", ["chmod", "link"])
def test_a_rewritten_file_that_hides_its_time(make, source, tmp_path, what):
    """Rewritten in place, the modification time set back, and the change time given another reason."""
    path = source / "a.kas"
    make(path, 1, count=2_000_000)
    before = path.stat()
    with mounted(source) as mnt, open(mnt / "a.kas/x.npy", "rb", buffering=0) as old:
        first = np.frombuffer(old.read(1 << 20)[128:], "<i8")
        assert set(first.tolist()) == {1}
        make(path, 2, count=2_000_000, in_place=True)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        path.chmod(0o600) if what == "chmod" else os.link(path, tmp_path / "another")
        with pytest.raises(OSError) as failed:
            while old.read(1 << 20):
                pass
        assert failed.value.errno in (errno.ESTALE, errno.EIO)
        assert seen_within(SOON, lambda: values(mnt / "a.kas/x.npy") == {2})


def test_an_ordinary_file_that_hides_its_time(source):
    path = source / "note.txt"
    path.write_text("before")
    before = path.stat()
    with mounted(source) as mnt:
        assert (mnt / "note.txt").read_text() == "before"
        path.write_text("behind")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        # Within 0.7 s on a quiet machine: pages are dropped 0.4 s after the change, at the next quarter of a second.
        assert seen_within(3 * SOON, lambda: (mnt / "note.txt").read_text() == "behind")


def test_pipes_and_devices_that_take_a_name(source):
    with mounted(source) as mnt:
        for _ in range(20):
            (source / "name").write_bytes(b"ordinary")
            assert seen_within(SOON, lambda: (mnt / "name").exists())
            (source / "name").unlink()
            os.mkfifo(source / "name")
            assert seen_within(SOON, lambda: not (mnt / "name").exists())
            (source / "name").unlink()
    # Nothing ever waited for the other end of a pipe: the loop has come to its end.


def test_deleted_ordinary_files_are_given_back(source):
    path = source / "large"
    path.write_bytes(b"x" * (1 << 20))
    with mounted(source) as mnt:
        assert (mnt / "large").stat().st_size == 1 << 20
        (mnt / "large").read_bytes()
        path.unlink()

        def is_held():
            links = [f"/proc/{pid}/fd" for pid in os.listdir("/proc") if pid.isdigit()]
            for folder in links:
                try:
                    names = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]
                except OSError:
                    continue
                if any(name.startswith(str(path)) for name in names):
                    return True
            return False

        assert seen_within(20, lambda: not is_held())


def test_the_source_directory_is_replaced(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    with mounted(source) as mnt:
        assert (mnt / "file").read_text() == "one"
        source.rename(tmp_path / "before")
        (tmp_path / "next").mkdir()
        (tmp_path / "next/file").write_text("two")
        (tmp_path / "next").rename(source)
        assert seen_within(2 * SOON, lambda: (mnt / "file").read_text() == "two")
        shutil.rmtree(source)

        def errors():
            try:
                return os.listdir(mnt)
            except OSError as error:
                return error.errno

        assert seen_within(2 * SOON, lambda: errors() == errno.ESTALE), "the folder is gone, not empty"


def on_a_terminal(*args):
    """What a command prints on a terminal, and its exit code."""
    import pty
    ours, its = pty.openpty()
    process = subprocess.Popen([BIN, *args], stdin=its, stdout=its, stderr=its, close_fds=True)
    os.close(its)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:
        pass  # Linux says so that the other end is closed.
    os.close(ours)
    return said, process.wait(30)


EVIL = "\x1b]0;owned\x07\n\u202e\x9b31m"


def assert_harmless(said, *what):
    """What came on a terminal does nothing to it."""
    text = said.replace(b"\r\n", b"\n").decode()
    # What the program itself does to show how far it is: to the line's front, and clear.
    for own in ("\r", "\x1b[2K", "\x1b[K", "\x1b[?25l", "\x1b[?25h", "\x1b[1A", "\x1b[0m", "\x1b[1m", "\x1b[4m", "\x1b[31m",
                "\x1b[33m", "\x1b[32m"):
        text = text.replace(own, "")
    bad = {c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")}
    assert not bad, (what, text)
    assert not any(line.startswith(("owned", "31m")) for line in text.splitlines()), text


@pytest.fixture
def evil(tmp_path, writers):
    """Escape sequences, a title, a line of its own, text from right to left: in names of folders, files, containers and keys."""
    folder = tmp_path / f"folder{EVIL}"
    folder.mkdir()
    (folder / f"good{EVIL}.kas").write_bytes(writers.kastore({"x": np.arange(3), EVIL: np.arange(2)}))
    (folder / f"bad{EVIL}.kas").write_bytes(writers.kastore({"x": np.arange(3)})[:70])
    (folder / f"text{EVIL}").write_text("text")
    return folder


# Every command, and how it is called: PATH is a hostile path, OUT one that is not there. Those that serve are called so that
# they fail; `completions` and `reference` print no names.
COMMANDS = {
    "ls": [["PATH"], ["-l", "PATH"], ["-R", "PATH"], ["--tree", "PATH"], ["--json", "-R", "PATH"], ["-d", "PATH", "PATH"],
           ["PATH", "PATH"]],
    "find": [["PATH"], ["-l", "PATH"], ["--json", "PATH"]],
    "info": [["PATH"], ["--json", "PATH"]],
    "verify": [["PATH"], ["--json", "PATH"]],
    "cp": [["-rn", "PATH", "OUT"], ["-r", "PATH", "OUT"], ["-r", "PATH", "PATH"], ["PATH", "OUT"]],
    "export": [["PATH", "--mp4", "PATH"], ["PATH", "--mp4", "a", "-o", "OUT"], ["PATH/nothing", "--mp4", "a"]],
    "index": [["PATH", "-o", "OUT"], ["--json", "PATH", "-o", "OUT"], ["PATH", "-o", "PATH"]],
    "warm": [["--spill", "SPILL", "PATH"], ["--spill", "PATH", "PATH"]],
    "cat": [["PATH/nothing"], ["--range", "1-0", "PATH"]],
    "mount": [["PATH", "OUT"], ["PATH", "PATH"], ["--log-file", "PATH", "PATH", "PATH"]],
    "umount": [["PATH"]],
    "refresh": [["PATH"]],
    "status": [["PATH"], ["--json", "PATH"]],
    "doctor": [["PATH"], ["--json", "PATH"]],
    "cache": [["status", "PATH"], ["clear", "PATH"]],
    "serve": [["PATH/nothing"], ["--token-file", "PATH", "PATH"]],
    "view": [["PATH/nothing"]],
    "formats": [["PATH"]],
    "man": [["PATH/file"]],
    "completions": [["PATH"]],
}


def test_the_list_of_commands_is_complete():
    listed = {line.split()[0] for line in shardfs("help").stdout.decode().split("Commands:")[1].split("Options:")[0].splitlines()
              if line.startswith("  ") and line[2] != " "}
    assert listed - {"help"} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_names_do_nothing_to_a_terminal(tmp_path, evil, command):
    paths = [evil, evil / f"good{EVIL}.kas", evil / f"bad{EVIL}.kas", evil / f"text{EVIL}", evil / f"none{EVIL}"]
    options = ["--color=never"] if command in ("ls", "verify", "status", "doctor") else []
    for number, (arguments, path) in enumerate((line, path) for line in COMMANDS[command] for path in paths):
        named = {"PATH": path, "OUT": tmp_path / f"out{EVIL}{number}", "SPILL": tmp_path / "spill"}
        words = [word.replace(key, str(value)) for word in arguments
                 for key, value in [next((pair for pair in named.items() if pair[0] in word), ("", ""))]]
        said, _ = on_a_terminal(command, *options, *words)
        assert_harmless(said, command, words)
    # An option of that name, as a shell finds it by `*`.
    said, code = on_a_terminal(command, f"--{EVIL}")
    assert code == 2
    assert_harmless(said, command)


def test_a_joined_model_is_read_by_those_who_may_read_its_files(tmp_path):
    for file in ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        shutil.copy(GOLDEN / "safetensors/joined" / file, tmp_path)
    index, first, second = sorted(tmp_path.iterdir(), key=lambda path: (path.suffix != ".json", path))
    index.chmod(0o644)
    first.chmod(0o600)
    with mounted(tmp_path, "--allow-other") as mnt:
        assert (mnt / index.name).stat().st_mode & 0o777 == 0o500
        second.chmod(0o640)
        os.chown(second, 65534, 65534)
        assert seen_within(SOON, (mnt / index.name).is_file)
        assert "may read" in (mnt / ".shardfs/problems.jsonl").read_text()
        second.chmod(0o644)
        assert seen_within(SOON, (mnt / index.name).is_dir)


def test_a_joined_model_in_a_cache_of_links(tmp_path):
    """As the library of the Hugging Face Hub keeps it: names are links to files that are called by their hash."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(("model.safetensors.index.json", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors")):
        shutil.copy(GOLDEN / "safetensors/joined" / file, blobs / f"{number:064x}")
        (snapshot / file).symlink_to(f"../../blobs/{number:064x}")
    index = snapshot / "model.safetensors.index.json"
    plain = GOLDEN / "safetensors/joined" / index.name
    for command in ("ls", "info"):
        found = shardfs(command, "--follow-links=outside", index, check=True).stdout
        assert found.replace(bytes(snapshot), bytes(plain.parent)) == shardfs(command, plain, check=True).stdout
    # The folder of the blobs has no such names.
    done = shardfs("info", index)
    assert done.returncode == 1 and "not a container" in done.stderr
