"""Files that change under a mount: what is new is seen within a second, what was open is old bytes or an error, never a mix."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from support import BIN, in_own_namespace, load_npy, mounted, seen_within, wait_for

SOON = 1.0


@pytest.fixture
def make(writers, tmp_path):
    """`make(path, value)` writes a store whose array `x` holds only that value, by rename or in place."""
    def make(path, value, count=40_000, in_place=False):
        data = writers.kastore({"x": np.full(count, value, "<i8"), "y": np.array([value], "<i8")})
        if in_place:
            with open(path, "r+b" if path.exists() else "wb") as f:
                f.write(data)
                f.truncate(len(data))
        else:
            new = tmp_path / f".new-{path.name}"
            new.write_bytes(data)
            os.rename(new, path)
    return make


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def values(path):
    """The values in an array, or the errno."""
    try:
        data = path.read_bytes()
    except OSError as e:
        return e.errno
    return set(np.frombuffer(data[128:], "<i8").tolist())


@pytest.mark.parametrize("in_place", [False, True], ids=["renamed", "in place"])
@pytest.mark.parametrize("alone", [False, True], ids=["in a folder", "as SOURCE"])
def test_new_content_within_a_second(make, source, in_place, alone):
    path = source / "a.kas"
    make(path, 0)
    with mounted(path if alone else source) as mnt:
        x = mnt / "x.npy" if alone else mnt / "a.kas" / "x.npy"
        assert values(x) == {0}
        for value in range(1, 6):
            make(path, value, count=40_000 + (value % 2), in_place=in_place)
            assert seen_within(SOON, lambda: values(x) == {value}), f"{value}: {values(x)}"


def test_size_and_times_that_stay_the_same(make, source):
    """Rewritten with the same size, and the modification time set back: still seen."""
    path = source / "a.kas"
    make(path, 1)
    before = path.stat()
    with mounted(source) as mnt:
        x = mnt / "a.kas/x.npy"
        with open(x, "rb") as old:
            old.read(4096)
            make(path, 2, in_place=True)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_size == before.st_size
            assert seen_within(SOON, lambda: values(x) == {2}), values(x)
            try:
                old.seek(0)
                assert set(np.frombuffer(old.read()[128:], "<i8").tolist()) == {1}
            except OSError as e:
                assert e.errno in (errno.ESTALE, errno.EIO)


def test_new_names_appear_and_deleted_ones_go(make, source):
    with mounted(source) as mnt:
        assert os.listdir(mnt) == [] and not (mnt / "deep/er/a.kas").exists()
        (source / "deep/er").mkdir(parents=True)
        make(source / "deep/er/a.kas", 5)
        assert seen_within(SOON, lambda: (mnt / "deep/er/a.kas/x.npy").exists())
        assert os.listdir(mnt / "deep/er") == ["a.kas"]
        make(source / "deep/er/b.kas", 6)
        assert seen_within(SOON, lambda: sorted(os.listdir(mnt / "deep/er")) == ["a.kas", "b.kas"])
        (source / "deep/er/a.kas").unlink()
        assert seen_within(SOON, lambda: os.listdir(mnt / "deep/er") == ["b.kas"])
        assert seen_within(SOON, lambda: not (mnt / "deep/er/a.kas").exists())
        os.rename(source / "deep", source / "other")
        assert seen_within(SOON, lambda: os.listdir(mnt) == ["other"] and values(mnt / "other/er/b.kas/x.npy") == {6})
        # What was watched under its old name is watched under the new.
        make(source / "other/er/c.kas", 7)
        assert seen_within(SOON, lambda: sorted(os.listdir(mnt / "other/er")) == ["b.kas", "c.kas"])
        make(source / "other/er/c.kas", 8)
        assert seen_within(SOON, lambda: values(mnt / "other/er/c.kas/x.npy") == {8})
        shutil.rmtree(source / "other")
        assert seen_within(SOON, lambda: os.listdir(mnt) == [])


def test_deleted_and_restored(make, source, tmp_path):
    path = source / "a.kas"
    make(path, 1)
    with mounted(source) as mnt:
        ino = (mnt / "a.kas/x.npy").stat().st_ino
        with open(mnt / "a.kas/x.npy", "rb") as old:
            os.rename(path, tmp_path / "aside")
            assert seen_within(SOON, lambda: not (mnt / "a.kas").exists())
            try:
                assert set(np.frombuffer(old.read()[128:], "<i8").tolist()) == {1}
            except OSError as e:
                assert e.errno in (errno.ESTALE, errno.EIO)
        os.rename(tmp_path / "aside", path)
        assert seen_within(SOON, lambda: values(mnt / "a.kas/x.npy") == {1})
        assert (mnt / "a.kas/x.npy").stat().st_ino in (ino, (mnt / "a.kas/x.npy").stat().st_ino)


def test_a_file_becomes_a_container_and_back(make, source):
    path = source / "a.kas"
    path.write_bytes(b"not yet")
    with mounted(source) as mnt:
        assert (mnt / "a.kas").read_bytes() == b"not yet"
        make(path, 3)
        assert seen_within(SOON, lambda: (mnt / "a.kas").is_dir() and values(mnt / "a.kas/x.npy") == {3})
        path.write_bytes(b"no more")
        assert seen_within(SOON, lambda: (mnt / "a.kas").is_file() and (mnt / "a.kas").read_bytes() == b"no more")


RECORDING = """
import os, sys, time
source, mnt, whole = sys.argv[1:]
whole = open(whole, "rb").read()

def kinds():
    with os.scandir(mnt) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}

with open(f"{source}/a.kas", "r+b") as recording:
    assert kinds() == {"a.kas": False}
    # Its creation is told to the kernel by then, which keeps what it lists now.
    time.sleep(1)
    assert kinds() == {"a.kas": False}
    recording.seek(1000)
    recording.write(whole[1000:])
end = time.monotonic() + float(os.environ["SOON"])
while kinds() != {"a.kas": True}:
    assert time.monotonic() < end, kinds()
    time.sleep(0.02)
assert [top for top, _, _ in os.walk(mnt)] == [mnt, f"{mnt}/a.kas"]
"""


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "not watched"])
def test_a_listing_says_when_a_recording_has_become_a_container(make, source, tmp_path, watched):
    """Written in place, it changes no name of its folder: the kernel would keep a listing that says `file`."""
    make(tmp_path / "whole.kas", 1)
    (source / "a.kas").write_bytes((tmp_path / "whole.kas").read_bytes()[:1000])
    (tmp_path / "mnt").mkdir()
    forbid = "" if watched else "echo 0 > /proc/sys/user/max_inotify_watches; "
    line = forbid + ('"$0" mount "$2" "$3"; "$1" -c "$5" "$2" "$3" "$4" && '
                     'grep -q "folders_watched.: $6," "$3/.shardfs/stats.json"; code=$?; "$0" umount "$3"; exit $code')
    # The limit of watches is one of a namespace of users.
    done = in_own_namespace('unshare --user --map-root-user --mount bash -c "$@"', "bash", line, BIN, sys.executable, source,
                            tmp_path / "mnt", tmp_path / "whole.kas", RECORDING, str(int(watched)),
                            env={**os.environ, "SOON": str(SOON)})
    assert done.returncode == 0, done.stderr


def test_a_folder_that_takes_the_place_of_another_is_listed(source, tmp_path):
    """Also one with the same times, as two that came out of one archive."""
    for top, name in ((source / "top/data", "old"), (tmp_path / "data", "new")):
        (top / "sub").mkdir(parents=True)
        (top / "sub" / name).touch()
        (top / name).touch()
        for folder in (top / "sub", top):
            os.utime(folder, (1e9, 1e9))
    with mounted(source) as mnt:
        def names():
            return {name for _, _, files in os.walk(mnt) for name in files}

        for _ in range(3):
            assert names() == {"old"}
        os.rename(source / "top/data", tmp_path / "aside")
        os.rename(tmp_path / "data", source / "top/data")
        assert seen_within(SOON, lambda: names() == {"new"}), names()


def test_mode_changes_are_seen(make, source):
    path = source / "a.kas"
    make(path, 3)
    path.chmod(0o644)
    with mounted(source) as mnt:
        assert (mnt / "a.kas/x.npy").stat().st_mode & 0o777 == 0o444
        path.chmod(0o600)
        assert seen_within(SOON, lambda: (mnt / "a.kas/x.npy").stat().st_mode & 0o777 == 0o400)
        assert (mnt / "a.kas").stat().st_mode & 0o777 == 0o500


def test_ordinary_files_grow_shrink_and_are_replaced(source, tmp_path):
    log = source / "log.txt"
    log.write_bytes(b"one\n")
    with mounted(source) as mnt:
        seen = mnt / "log.txt"
        with open(seen, "rb") as tail:
            assert tail.read() == b"one\n"
            for number in range(5):
                with open(log, "ab") as f:
                    f.write(b"line %d\n" % number)
                assert seen_within(SOON, lambda: seen.stat().st_size == log.stat().st_size)
                assert tail.read() == b"line %d\n" % number
            log.write_bytes(b"x")
            assert seen_within(SOON, lambda: seen.read_bytes() == b"x")
        with open(seen, "rb") as old:
            (tmp_path / "new").write_bytes(b"y" * 10)
            os.rename(tmp_path / "new", log)
            assert seen_within(SOON, lambda: seen.read_bytes() == b"y" * 10)
            try:
                assert old.read() == b"x"
            except OSError as e:
                assert e.errno in (errno.ESTALE, errno.EIO)


MAPPED = """
import ctypes, mmap, os, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", m[200], flush=True)
sys.stdin.readline()
print(sum(m[i] for i in range(0, len(m), 4096)), flush=True)
"""


def test_truncated_while_mapped(make, source):
    """A process that maps a lost page of a virtual file gets SIGBUS, as of any file; the mount and other processes live."""
    path = source / "a.kas"
    make(path, 9, count=1_000_000)
    with mounted(source) as mnt:
        x = mnt / "a.kas/x.npy"
        reader = subprocess.Popen([sys.executable, "-c", MAPPED, x], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert reader.stdout.readline().startswith(b"mapped")
        os.truncate(path, 5000)
        reader.stdin.write(b"\n")
        reader.stdin.close()
        assert reader.wait(20) in (-7, 0)
        # The mount answers, and says what is there now: an ordinary file that can't be opened as a store.
        assert seen_within(SOON, lambda: (mnt / "a.kas").is_file())
        assert (mnt / "a.kas").read_bytes() == path.read_bytes()
        make(path, 10)
        assert seen_within(SOON, lambda: values(x) == {10})


def states(reads, enough):
    """Numbers of states, one after the other, for some seconds and until readers have read `enough`. A container is opened
    once it was left alone for a tenth of a second: sometimes it is, sometimes not. States last longer on a slow machine."""
    begin, value = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < 5 or reads[0] <= enough and passed < 120:
        value += 1
        yield value
        time.sleep((0.02 + 0.15 * (value % 3)) * max(1, passed / 5))


@pytest.mark.parametrize("in_place", [False, True], ids=["renamed", "in place"])
def test_readers_never_see_a_mix(make, source, in_place):
    """Rewritten and truncated all the time while many read by one handle each: bytes of one state, or an error."""
    path = source / "a.kas"
    make(path, 0)
    stop, mixed, reads, errors = threading.Event(), [], [0], set()

    def read():
        while not stop.is_set():
            try:
                with open(mnt / "a.kas/x.npy", "rb", buffering=0) as f:
                    seen = set()
                    while chunk := f.read(65_536):
                        chunk = chunk if seen else chunk[128:]
                        seen |= set(np.unique(np.frombuffer(chunk[:len(chunk) // 8 * 8], "<i8")).tolist())
                    reads[0] += 1
                    if len(seen) > 1:
                        mixed.append(seen)
            except OSError as e:
                errors.add(e.errno)

    with mounted(source) as mnt:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for value in states(reads, 20):
            make(path, value, in_place=in_place)
            if value % 7 == 0:
                os.truncate(path, 10_000)
        make(path, 99)
        stop.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "a reader hangs"
        assert seen_within(SOON, lambda: values(mnt / "a.kas/x.npy") == {99})
    assert not mixed, mixed[:5]
    assert reads[0] > 20
    assert errors <= {errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR}, errors


@pytest.mark.parametrize("before", [0, 4128])
def test_a_handle_of_a_joined_model_shows_no_later_file(source, before):
    """The index stays as it is, and is opened again with the new file: under the old handle that would be a mix."""
    count = 1_000_000

    def put(value):
        header = json.dumps({"w": {"dtype": "I32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
        new = source / ".new"
        new.write_bytes(len(header).to_bytes(8, "little") + header + np.full(count, value, "<i4").tobytes())
        os.rename(new, source / "part.safetensors")

    put(1)
    (source / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "part.safetensors"}}))
    with mounted(source) as mnt:
        array = mnt / "m.safetensors.index.json/w.npy"
        with open(array, "rb", buffering=0) as file:
            seen = file.read(before)
            put(2)
            with pytest.raises(OSError) as failed:
                while piece := file.read(1 << 20):
                    seen += piece
        assert failed.value.errno == errno.ESTALE
        assert set(np.frombuffer(seen[128:], "<i4").tolist()) <= {1}
        assert (load_npy(array) == 2).all()


def test_tables_of_containers_that_change(writers, source, tmp_path):
    """A table is made as it is read: while its container is replaced, its rows are those of one state, or an error."""
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = source / "a.kas"

    def put(value):
        columns = {f"t/{name}": np.full(20_000, value, "<i8") for name in "abc"}
        (tmp_path / "new").write_bytes(writers.kastore(columns))
        os.rename(tmp_path / "new", path)

    put(0)
    stop, mixed, reads, errors = threading.Event(), [], [0], set()

    def read():
        while not stop.is_set():
            try:
                with open(mnt / "a.kas/t.parquet", "rb", buffering=0) as file:
                    table = parquet.read_table(pyarrow.PythonFile(file))
                seen = {value for column in table.columns for value in column.unique().to_pylist()}
                reads[0] += 1
                if len(seen) != 1 or table.num_rows != 20_000 or table.num_columns != 3:
                    mixed.append((seen, table.shape))
            except OSError as error:
                errors.add(error.errno)

    with mounted(source) as mnt:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for value in states(reads, 3):
            put(value)
        stop.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "a reader hangs"
        assert seen_within(5, lambda: parquet.read_table(mnt / "a.kas/t.parquet")["a"].unique().to_pylist() == [value])
    assert not mixed, mixed[:5]
    assert reads[0] > 3
    assert errors <= {errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR}, errors


def test_deleted_containers_are_given_back(make, source):
    """A deleted file is not held open for ever: its space belongs to the disk again."""
    path = source / "a.kas"
    make(path, 1)
    with mounted(source) as mnt:
        assert values(mnt / "a.kas/x.npy") == {1}
        daemon = [pid for pid in os.listdir("/proc") if pid.isdigit() and holds(pid, path)]
        assert len(daemon) == 1
        path.unlink()
        wait_for(lambda: not holds(daemon[0], f"{path} (deleted)"), 45, "closing the deleted file")


def holds(pid, path):
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{fd}") == str(path) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


@pytest.mark.parametrize("options", [[], ["--follow-links"]])
def test_a_path_opened_afresh_after_a_rewrite_in_place(make, source, options):
    """A read that ends with ESTALE has the kernel forget what the path meant: the next one succeeds, at once."""
    path = source / "store.kas"
    if options:
        # Changes of what a link leads to are not announced.
        (source / "below").mkdir()
        path.symlink_to("below/store.kas")
        path = source / "below/store.kas"
    make(path, 0)
    with mounted(source, *options) as mnt:
        array = mnt / "store.kas/x.npy"
        for value in range(1, 9):
            # The kernel knows names and attributes of this state, and none of its bytes.
            known = os.stat(array).st_ino
            make(path, -value, in_place=True)
            wait_for(lambda: os.stat(array).st_ino != known)
            make(path, value, in_place=True)
            for last in (False, True):
                try:
                    found = load_npy(array)
                    break
                except OSError as error:
                    assert error.errno == errno.ESTALE and not last
            assert (found == value).all()
