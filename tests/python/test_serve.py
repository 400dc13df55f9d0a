"""How files are served: what reaches the daemon, in which mode, out of how much memory."""

import errno
import json
import mmap
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kastore
import numpy as np
import pytest
from support import BIN, GOLDEN, as_ordinary_user, daemon_of, memory_of, mounted, sha256, wait_for, walk_files

MODES = ("cache", "passthrough")
MIB = 1 << 20


def control(mnt, name):
    return json.loads((mnt / ".shardfs" / f"{name}.json").read_bytes())


def requests(mnt):
    return control(mnt, "stats")["requests"]


@pytest.fixture(scope="session")
def arrays():
    rng = np.random.default_rng(3)
    slow = (np.cumsum(rng.integers(-8, 9, 12 * MIB // 4)) / 256).astype("<f4")
    return {"large": slow, "middle": slow[:MIB // 4], "small": slow[:5000], "tiny": slow[:3]}


@pytest.fixture(scope="session")
def containers(tmp_path_factory, writers, arrays):
    """One container a codec, each with the same four arrays; and one whose large block is damaged."""
    folder = tmp_path_factory.mktemp("serve")
    blocks = writers.meta_blocks("serve", 1, [writers.channel(f"signal/{n}", "float32", []) for n in arrays])
    blocks += [(f"signal/{name}", array.tobytes()) for name, array in arrays.items()]
    for codec in ("none", "zstd", "lz4"):
        writers.write_shard(folder / f"{codec}.wshard", blocks, codec=codec, quick=True)
    whole = (folder / "zstd.wshard").read_bytes()
    names = [b[0] for b in sorted(blocks)]
    at = 64 + 48 * names.index("signal/large") + 40
    wrong = int.from_bytes(whole[at:at + 4], "little") ^ 1
    (folder / "damaged.wshard").write_bytes(whole[:at] + wrong.to_bytes(4, "little") + whole[at + 4:])
    return folder


def read_all(mnt, names):
    return {name: sha256((mnt / name).read_bytes()) for name in names}


@pytest.mark.parametrize("mode", MODES)
def test_a_second_pass_is_served_by_the_kernel(containers, mode):
    with mounted(containers, f"--serve={mode}", "--cache-size=512M") as mnt:
        names = sorted(name for name in walk_files(mnt) if not name.startswith("damaged"))
        first = read_all(mnt, names)
        if mode == "passthrough":
            # Uncompressed files are finished after they were read whole for the first time.
            wait_for(lambda: control(mnt, "stats")["cache"]["memory_files_finished"] == 6, what="finishing")
        # The control file itself is opened and read once between the two counts.
        own = {"cache": (0, 1), "passthrough": (1, 2)}[mode]  # past the page cache the end is a read of its own
        opens = len(names) if mode == "passthrough" else 0
        # A kernel that is short of memory, or that pages out what lay idle, drops pages between two passes, and `shardfs
        # status` of another test looks into all mounts: one pass without a request shows that the daemon need not be asked.
        for _ in range(5):
            before = requests(mnt)
            assert read_all(mnt, names) == first
            after = requests(mnt)
            if mode == "passthrough":
                assert after["passed"] - before["passed"] == 6
            asked = tuple(after[what] - before[what] for what in ("open", "read"))
            if asked == (opens + own[0], own[1]):
                break
        else:
            pytest.fail(f"five times the second pass asked the daemon, last by {asked} requests to open and read")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_bytes_are_right_at_every_opening(containers, arrays, mode, codec):
    with mounted(containers, f"--serve={mode}", "--cache-size=512M") as mnt:
        for name, array in arrays.items():
            path = mnt / f"{codec}.wshard/signal/{name}.npy"
            for _ in range(3):
                mapped = np.load(path, mmap_mode="r")
                assert np.array_equal(mapped, array)
                with open(path, "rb") as f:
                    f.seek(-4, os.SEEK_END)
                    assert f.read() == array[-1:].tobytes()
                assert np.array_equal(np.load(path), array)
                del mapped


@pytest.mark.parametrize("mode", MODES)
def test_eight_readers_of_one_file(containers, arrays, mode):
    """Opened, read in parts, mapped and closed at once, while it is being finished."""
    def read(path, number):
        for turn in range(6):
            fd = os.open(path, os.O_RDONLY)
            try:
                if (number + turn) % 3 == 0:
                    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as m:
                        yield sha256(m)
                else:
                    size, step = os.fstat(fd).st_size, (64 << number % 4) * 1024
                    yield sha256(b"".join(os.pread(fd, step, at) for at in range(0, size, step)))
            finally:
                os.close(fd)

    with mounted(containers, f"--serve={mode}", "--cache-size=512M") as mnt:
        for codec in ("none", "zstd", "lz4"):
            path = mnt / f"{codec}.wshard/signal/large.npy"
            with ThreadPoolExecutor(8) as pool:
                seen = [h for hashes in pool.map(lambda n: list(read(path, n)), range(8)) for h in hashes]
            assert len(set(seen)) == 1
            assert sha256(path.read_bytes()[-arrays["large"].nbytes:]) == sha256(arrays["large"].tobytes())


@pytest.mark.parametrize("mode", MODES)
def test_golden_files_in_a_cache_too_small_for_a_block(mode):
    """Eight readers, no room: the same bytes as with room."""
    source = GOLDEN / "wshard"
    with mounted(source, "--serve=cache") as mnt, mounted(source, f"--serve={mode}", "--cache-size=4K") as small:
        names = sorted(walk_files(mnt))

        def look(top, name):
            try:
                return sha256((top / name).read_bytes())
            except OSError as error:
                return error.errno

        with ThreadPoolExecutor(8) as pool:
            expected = list(pool.map(lambda name: look(mnt, name), names))
            seen = list(pool.map(lambda name: look(small, name), names + names))
        assert seen == expected + expected


@pytest.mark.parametrize("mode", MODES)
def test_memory_after_reading_everything(tmp_path, writers, mode):
    """Budget + 64 MiB, with files in memory counted: also for a block larger than the budget."""
    budget = 64 * MIB
    data = np.tile(np.arange(MIB // 8, dtype="<i8"), 150).tobytes()
    writers.write_shard(tmp_path / "a.wshard", [("signal/huge", data), *(
        (f"signal/b{i:02}", data[i * MIB:(i + 12) * MIB]) for i in range(20))], codec="zstd", quick=True)
    with mounted(tmp_path, f"--serve={mode}", f"--cache-size={budget}") as mnt:
        process, most = daemon_of(mnt), 0
        for _ in range(2):
            for name in sorted(walk_files(mnt)):
                assert (mnt / name).read_bytes() == (mnt / name).read_bytes()
                most = max(most, memory_of(process))
        assert most <= budget + 64 * MIB, f"{most / MIB:.0f} MiB"
        used = control(mnt, "stats")["cache"]
        assert used["used"] <= used["budget"]
        if mode == "passthrough":
            assert requests(mnt)["passed"] > 0
        assert sha256((mnt / "a.wshard/signal/huge.bin").read_bytes()) == sha256(data)


@pytest.mark.parametrize("mode", MODES)
def test_memory_of_containers_with_many_items(tmp_path, mode):
    """Names, indexes and descriptions of stores with as many keys as there can be stay within the same bounds."""
    budget, names = 64 * MIB, [f"group{i % 100:02}/array{i:05}" for i in range(65535)]
    (tmp_path / "source").mkdir()
    first, *others = (tmp_path / "source" / f"{i}.kas" for i in range(8))
    kastore.dump({name: np.full(2, i) for i, name in enumerate(names)}, first)
    for other in others:
        shutil.copy(first, other)
    with mounted(tmp_path / "source", f"--serve={mode}", f"--cache-size={budget}") as mnt:
        process, documents = daemon_of(mnt), set()
        for i in list(range(8)) * 2:
            documents.add((mnt / f"{i}.kas/container.json").read_bytes())
            assert np.load(mnt / f"{i}.kas/group99/array65499.npy").tolist() == [65499] * 2
            used = memory_of(process)
            assert used <= budget + 64 * MIB, f"{used / MIB:.0f} MiB"
        cache = control(mnt, "stats")["cache"]
        assert cache["used"] <= cache["budget"]
    [document] = documents
    assert sorted(item["name"] for item in json.loads(document)["items"]) == sorted(names)


@pytest.mark.parametrize("mode", MODES)
def test_damaged_blocks_are_never_handed_out(containers, mode):
    with mounted(containers, f"--serve={mode}", "--cache-size=512M") as mnt:
        path = mnt / "damaged.wshard/signal/large.npy"
        for _ in range(3):
            with open(path, "rb", buffering=0) as f:
                for at in (200, 5 * MIB, os.fstat(f.fileno()).st_size - 4):
                    with pytest.raises(OSError) as error:
                        os.pread(f.fileno(), 4, at)
                    assert error.value.errno == errno.EIO
        assert requests(mnt)["passed"] == 0
        problems = (mnt / ".shardfs/problems.jsonl").read_text().splitlines()
        assert any("checksum" in line and "signal/large" in line for line in problems)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_was_handed_out_before_the_verdict_is_taken_back(codec, writers, tmp_path):
    """A large block is shown before its checksum is known; once it is known to be wrong, nothing of it is served any
    more, not from the kernel's cache and not through its other files."""
    data = np.arange(70 * MIB // 8, dtype="<i8").tobytes()
    channels = [writers.channel("signal/x", "int64", [])]
    blocks = writers.meta_blocks("late", len(data) // 8, channels) + [("signal/x", data)]
    path = tmp_path / "x.wshard"
    writers.write_shard(path, blocks, codec=codec, quick=True)
    whole = bytearray(path.read_bytes())
    whole[64 + 48 * sorted(name for name, *_ in blocks).index("signal/x") + 40] ^= 1
    path.write_bytes(whole)
    with mounted(tmp_path, "--serve=cache") as mnt:
        files = [mnt / "x.wshard/signal/x.npy", mnt / "x.wshard/.raw/signal/x.bin"]

        def front(path):
            with open(path, "rb", buffering=0) as f:
                return os.pread(f.fileno(), 4096, 128)

        def fails(path):
            try:
                return not front(path)
            except OSError as e:
                return e.errno == errno.EIO

        if codec == "none":
            assert front(files[0]) == data[:4096] and front(files[1]) == data[128:128 + 4096]
        with pytest.raises(OSError), open(files[0], "rb", buffering=0) as f:
            os.pread(f.fileno(), 1, len(data) + 127)
        for path in files:
            wait_for(lambda path=path: fails(path), 1.0, "EIO for what was read before")


def test_own_files_of_source_pass_through(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"before" * 100_000)
    with mounted(tmp_path, "--serve=passthrough") as mnt:
        assert (mnt / "notes.txt").read_bytes() == b"before" * 100_000
        (tmp_path / "notes.txt").write_bytes(b"after!" * 100_001)
        time.sleep(1.1)
        assert (mnt / "notes.txt").read_bytes() == b"after!" * 100_001


def test_config_says_what_is_in_force(containers):
    for asked in ("auto", "cache", "passthrough"):
        with mounted(containers, f"--serve={asked}") as mnt:
            config = control(mnt, "config")
            assert config["serve_asked"] == asked
            assert config["serve"] == ("passthrough" if asked == "passthrough" else "cache")
            assert config["serve_reason"] is None


def test_without_privilege_it_is_page_cache_mode_and_says_why(containers):
    """As another user, who mounts through fusermount3."""
    folder = Path(tempfile.mkdtemp(prefix="shardfs-test-"))
    try:
        folder.chmod(0o755)
        (folder / "source").mkdir(mode=0o755)
        (folder / "mnt").mkdir()
        os.chown(folder / "mnt", 65534, 65534)
        shutil.copyfile(containers / "zstd.wshard", folder / "source/zstd.wshard")
        shutil.copy(BIN, folder / "shardfs")
        shown = as_ordinary_user("set -e; ./shardfs mount --serve=passthrough source mnt; cat mnt/.shardfs/config.json; "
                                 "sha256sum mnt/zstd.wshard/signal/large.npy >&2; ./shardfs umount mnt", folder)
        assert shown.returncode == 0, shown
        config = json.loads(shown.stdout)
        assert (config["serve"], config["serve_asked"]) == ("cache", "passthrough")
        assert "CAP_SYS_ADMIN" in config["serve_reason"]
    finally:
        shutil.rmtree(folder)
