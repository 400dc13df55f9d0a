"""Names that change what they are between two steps of a look-up: folders, containers, links, pipes, devices."""

import contextlib
import ctypes
import errno
import http.client
import os
import random
import stat
import threading
import time
from collections import Counter

import numpy as np
import pytest

from support import mounted, seen_within, serving, wait_for, writers

SECONDS = 3
READERS = 8
AT_FDCWD, RENAME_EXCHANGE = -100, 2
IN_OPEN = 0x20
LIBC = ctypes.CDLL(None, use_errno=True)

# What may be said of a path that is being replaced; EIO is the kernel's word for a node whose kind has changed.
GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.EISDIR, errno.EACCES, errno.EIO}


def exchange(a, b):
    """Two names change places in one step."""
    if LIBC.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2", str(a))


def run_together(seconds, *jobs):
    """Runs jobs again and again in a thread each; what any of them raised."""
    stop, failed = time.monotonic() + seconds, []

    def again(job):
        try:
            while time.monotonic() < stop and not failed:
                job()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=again, args=(job,), daemon=True) for job in jobs]
    [thread.start() for thread in threads]
    for thread in threads:
        thread.join(seconds + 60)
        assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]


def content(tag, number):
    """An array that says in each element to which folder and file it belongs."""
    return np.full(3000, tag * 1000 + number, "<i8")


@pytest.mark.parametrize("mode", ["cache", "passthrough"])
def test_folders_that_change_places_during_a_walk(tmp_path, mode):
    """What a descriptor of a folder gives is of one folder; every file is whole, and of one of the states."""
    source, aside = tmp_path / "source", tmp_path / "aside"
    for tag, top in ((1, source / "moving"), (2, aside / "moving")):
        for name in ("sub", "sub/deep"):
            (top / name).mkdir(parents=True)
        for number, name in enumerate(("a.kas", "sub/b.kas", "sub/deep/c.kas")):
            (top / name).write_bytes(writers.kastore({"x": content(tag, number)}))
            (top / f"{name}.txt").write_text(f"{tag} {number} " * 500)
    (aside / "moving/secret.txt").write_text("not in SOURCE at first")
    # By their times they can't be told apart.
    for top in (source, aside):
        for folder in ("moving/sub/deep", "moving/sub", "moving"):
            os.utime(top / folder, (1e9, 1e9))
    seen = {"files": 0, 1: 0, 2: 0}

    def swap():
        exchange(source / "moving", aside / "moving")
        time.sleep(random.uniform(0, random.choice([0.002, 0.02])))

    def walk():
        for folder, _, files in os.walk(mnt / "moving", onerror=lambda _: None):
            for name in files:
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb") as file:
                        data = file.read()
                except OSError as error:
                    assert error.errno in GONE, (path, error)
                    continue
                if name.endswith(".npy"):
                    values = np.frombuffer(data[-24000:], "<i8")
                    tags = set((values // 1000).tolist())
                elif name.endswith(".kas.txt"):
                    assert len(data) == 2000, path
                    tags = {int(word) for word in data.split()[::2]}
                else:
                    continue
                assert len(tags) == 1 and tags <= {1, 2}, (path, tags)
                seen["files"] += 1
                seen[tags.pop()] += 1

    with mounted(source, f"--serve={mode}", "--threads=4") as mnt:
        run_together(SECONDS, swap, *[walk] * READERS)
        assert seen["files"], seen
        # At rest, each of them is there.
        for tag in (1, 2):
            if (source / "moving/secret.txt").exists() != (tag == 2):
                swap()

            def is_whole():
                seen.update({1: 0, 2: 0})
                walk()
                return seen[tag] == 6 and not seen[3 - tag]

            if not seen_within(10, is_whole):
                shown = {folder: (folders, files) for folder, folders, files in os.walk(mnt / "moving")}
                raise AssertionError(f"{tag} is not all there: {seen}, {shown}")


@pytest.mark.parametrize("what", ["a link to a folder", "a link to a file"])
def test_links_swapped_in_lead_nowhere(tmp_path, what):
    """A folder, and a container, exchanged for a link that leads out of SOURCE: nothing of outside is ever read."""
    source, outside = tmp_path / "source", tmp_path / "outside"
    (source / "in/sub").mkdir(parents=True)
    (outside / "sub").mkdir(parents=True)
    for tag, top in ((1, source / "in"), (2, outside)):
        (top / "sub/x.kas").write_bytes(writers.kastore({"x": content(tag, 0)}))
        (top / "sub/note.txt").write_text(f"{tag} " * 100)
    link = tmp_path / "link"
    place, target = {"a link to a folder": ("in", outside),
                     "a link to a file": ("in/sub/x.kas", outside / "sub/x.kas")}[what]
    link.symlink_to(target)
    seen = {"right": 0, "gone": 0}

    def swap():
        exchange(source / place, link)
        time.sleep(random.uniform(0, 0.01))

    def look():
        # By descriptors, name by name: this process follows no link by itself.
        try:
            with contextlib.ExitStack() as stack:
                at = os.open(mnt, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, at)
                *folders, last = random.choice(["in/sub/note.txt", "in/sub/x.kas/x.npy"]).split("/")
                for name in folders:
                    at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                    stack.callback(os.close, at)
                file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, file)
                data = os.read(file, 100_000)
        except OSError as error:
            assert error.errno in GONE, error
            seen["gone"] += 1
            return
        if last == "x.npy":
            assert (np.frombuffer(data[-24000:], "<i8") == 1000).all()
        else:
            assert data == b"1 " * 100
        seen["right"] += 1

    with mounted(source, "--threads=4") as mnt:
        run_together(SECONDS, swap, *[look] * READERS)
        assert sum(seen.values()) > 20, seen
        # At rest, what belongs there is there.
        if (source / place).is_symlink():
            swap()
        seen["right"] = 0
        wait_for(lambda: look() or seen["right"] > 20)


@pytest.mark.parametrize("what", ["a link to a folder", "a link to a file"])
def test_links_swapped_in_during_requests_lead_nowhere(tmp_path, what):
    """The same below a server: no answer is of outside, and every one that is whole is of what belongs there."""
    source, outside, link = tmp_path / "source", tmp_path / "outside", tmp_path / "link"
    for tag, top in ((1, source / "in"), (2, outside)):
        (top / "sub").mkdir(parents=True)
        (top / "sub/x.kas").write_bytes(writers.kastore({"x": content(tag, 0)}))
        (top / "sub/note.txt").write_text(f"{tag} " * 100)
        (top / f"sub/only-in-{tag}").touch()
    place, target = {"a link to a folder": ("in", outside),
                     "a link to a file": ("in/sub/note.txt", outside / "sub/note.txt")}[what]
    link.symlink_to(target)
    seen = Counter()

    def swap():
        exchange(source / place, link)
        time.sleep(random.uniform(0, 0.01))

    def look():
        path = random.choice(["/files/in/sub/note.txt", "/files/in/sub/x.kas/x.npy", "/dav/in/sub/", "/files/in/sub/"])
        method = "PROPFIND" if path.startswith("/dav") else "GET"
        try:
            status, _, body = server.ask(path, method, Depth="1")
        except http.client.IncompleteRead:
            status, body = "cut", b""
        seen[status] += 1
        assert status in (200, 207, 404, 503, "cut"), (path, status, body)
        if path.endswith(".npy") and status == 200:
            assert (np.frombuffer(body[-24000:], "<i8") == 1000).all()
        elif path.endswith(".txt") and status == 200:
            assert body == b"1 " * 100
        else:
            assert b"only-in-2" not in body

    with serving(source) as server:
        run_together(2, swap, *[look] * READERS)
        assert sum(seen.values()) > 20, seen
        if (source / place).is_symlink():
            swap()
        seen.clear()
        wait_for(lambda: look() or seen[200] > 10 and seen[207])


@contextlib.contextmanager
def openings_of(paths):
    """A function that says whether what stands at paths now was opened since it was last asked, by whatever name
    (inotify follows inodes; O_PATH, which opens nothing, is not told)."""
    watch = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    try:
        for path in paths:
            assert LIBC.inotify_add_watch(watch, os.fsencode(path), IN_OPEN) >= 0, os.strerror(ctypes.get_errno())

        def opened():
            with contextlib.suppress(BlockingIOError):
                return bool(os.read(watch, 1 << 16))
            return False

        yield opened
    finally:
        os.close(watch)


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_pipes_and_devices_swapped_in_are_never_opened(tmp_path, what):
    """A container, and a file, exchanged for a pipe (whose opening would wait for ever) or a device (whose opening may
    do anything)."""
    assert os.geteuid() == 0, "this test makes devices, as root"
    source = tmp_path / "source"
    source.mkdir()
    (source / "x.kas").write_bytes(writers.kastore({"x": content(1, 0)}))
    (source / "note.txt").write_bytes(b"note" * 1000)
    others = {}
    for name in ("x.kas", "note.txt"):
        others[name] = tmp_path / f"other-{name}"
        if what == "pipe":
            os.mkfifo(others[name], 0o644)
        else:
            os.mknod(others[name], stat.S_IFCHR | 0o644, os.makedev(1, 3))
    seen = {"right": 0, "gone": 0}

    def swap():
        name = random.choice(list(others))
        exchange(source / name, others[name])
        time.sleep(random.uniform(0, 0.01))
        if what == "pipe":
            for path in (source / name, others[name]):
                # Opening a pipe to write to it succeeds while there is a reader.
                with contextlib.suppress(FileNotFoundError):
                    if stat.S_ISFIFO(os.lstat(path).st_mode):
                        with pytest.raises(OSError) as refused:
                            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                        assert refused.value.errno == errno.ENXIO, "the pipe was opened"
        else:
            assert not opened(), "the device was opened"

    def look():
        path, size = random.choice([(mnt / "x.kas/x.npy", None), (mnt / "note.txt", 4000)])
        try:
            names = os.listdir(mnt)
            assert set(names) <= {"x.kas", "note.txt"}
            data = path.read_bytes()
        except OSError as error:
            assert error.errno in GONE, error
            seen["gone"] += 1
            return
        if size:
            assert data == b"note" * 1000
        else:
            assert (np.frombuffer(data[-24000:], "<i8") == 1000).all()
        seen["right"] += 1

    with openings_of(others.values()) as opened, mounted(source, "--threads=4") as mnt:
        if what == "device":
            others["x.kas"].read_bytes()
            assert opened(), "an opening would not be seen"
        run_together(SECONDS, swap, *[look] * READERS)
        assert sum(seen.values()) > 20, seen
        for name, other in others.items():
            if not (source / name).is_file():
                exchange(source / name, other)
        seen["right"] = 0
        wait_for(lambda: look() or seen["right"] > 20)
