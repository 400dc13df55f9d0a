"""Decoded blocks on disk (`--spill`): every byte right, nothing decoded twice, and a disk that fails costs nothing."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import foreground, mounted, run
from support.mounts import statistics_of
from support.writers import shard

# Blocks of 15 MB: decoding one takes longer than reading a part of it from any disk, so all are kept.
FRAMES, SHAPE = 400, (96, 128, 3)


def episode(path, seed, *, codec="zstd", frames=FRAMES):
    """An episode with one block of pictures; the pictures."""
    random = np.random.default_rng(seed)
    pictures = np.repeat(random.integers(0, 256, (frames, 12, 16, 3), np.uint8), 8, 1).repeat(8, 2)
    pictures[:, ::3, ::5] = random.integers(0, 256, pictures[:, ::3, ::5].shape, np.uint8)
    channels = [{"id": "cam0/rgb", "dtype": "u8", "shape": list(SHAPE), "signal_block": "signal/cam0/rgb",
                 "modality": "rgb"}]
    blocks = [*shard.meta_blocks(path.stem, frames, channels), ("signal/cam0/rgb", pictures.tobytes())]
    shard.write_shard(path, blocks, codec=codec, quick=True)
    # Settled: what was written to a moment ago is read with more care.
    os.utime(path, (time.time() - 60,) * 2)
    return pictures


def array_of(mnt, name):
    found = [path for path in (mnt / name).rglob("rgb.npy")]
    assert len(found) == 1, found
    return found[0]


def frame(path, number):
    """One frame, past the kernel's pages."""
    fd = os.open(path, os.O_RDONLY)
    try:
        header = 10 + int.from_bytes(os.pread(fd, 2, 8), "little")
        data = os.pread(fd, int(np.prod(SHAPE)), header + number * int(np.prod(SHAPE)))
    finally:
        os.close(fd)
    return np.frombuffer(data, np.uint8).reshape(SHAPE)


def spilled(mnt):
    return statistics_of(mnt)["spill"]


def settle(mnt):
    """Waits until nothing is left to be written."""
    for _ in range(500):
        if spilled(mnt)["queued_bytes"] == 0:
            return
        time.sleep(0.02)
    raise AssertionError("blocks still wait to be written")


def files_of(spill):
    return [path for path in Path(spill).rglob("*") if path.is_file() and path.stat().st_size > 4096]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_remount_decodes_nothing(source, tmp_path, serve, codec):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i, codec=codec) for i in range(4)}
    options = (f"--spill={tmp_path / 'spill'}", f"--serve={serve}")
    with mounted(source, *options) as mnt:
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        settle(mnt)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] > 0
        assert spilled(mnt)["written"] >= len(expected)
    with mounted(source, *options) as mnt:
        random = np.random.default_rng(1)
        for name, pictures in expected.items():
            for number in random.integers(0, FRAMES, 5):
                assert np.array_equal(frame(array_of(mnt, name), number), pictures[number])
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0
        assert spilled(mnt)["hits"] > 0


@pytest.mark.parametrize("ends", ["umount", "terminated"])
def test_a_mount_that_ends_writes_what_waits(source, tmp_path, ends):
    names = [f"ep_{number}.wshard" for number in range(6)]
    expected = {name: episode(source / name, number) for number, name in enumerate(names)}
    options = (f"--spill={tmp_path / 'spill'}", "--serve=cache")
    with foreground(source, *options) as (mnt, process):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda name: np.load(array_of(mnt, name)), names))
        if ends == "umount":
            run("umount", mnt, check=True)
        else:
            process.terminate()
        assert process.wait(20) == 0
    with mounted(source, *options) as mnt:
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0


def test_the_kernel_reads_files_of_the_disk_by_itself(source, tmp_path):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(4)}
    options = (f"--spill={tmp_path / 'spill'}", "--serve=passthrough")
    with mounted(source, *options) as mnt:
        for name, pictures in expected.items():
            # The first open decodes it.
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        settle(mnt)
    # A budget that holds no file at all.
    with mounted(source, *options, "--cache-size=32M") as mnt:
        before = statistics_of(mnt)["requests"]
        for _ in range(2):
            for name, pictures in expected.items():
                assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        # Their pictures come out of the same files.
        for name, pictures in expected.items():
            frames = sorted((mnt / name).rglob("*.png"))
            assert frames
            for number in (0, 7, len(frames) - 1):
                assert np.array_equal(np.asarray(Image.open(frames[number])), pictures[number])
        after = statistics_of(mnt)
        assert after["requests"]["passed"] - before["passed"] == 2 * len(expected)
        assert after["cache"]["decoded_bytes"] == 0 and after["cache"]["memory_files"] == 0, after
        # What is open can be read on when the disk is emptied.
        with open(array_of(mnt, "ep_0.wshard"), "rb") as file:
            run("cache", "clear", tmp_path / "spill", check=True)
            assert not files_of(tmp_path / "spill")
            assert np.array_equal(np.load(file), expected["ep_0.wshard"])
        assert np.array_equal(np.load(array_of(mnt, "ep_1.wshard")), expected["ep_1.wshard"])


def test_a_kept_file_that_was_written_to_is_not_served(source, tmp_path):
    pictures = episode(source / "ep.wshard", 1)
    options = (f"--spill={tmp_path / 'spill'}", "--serve=passthrough")
    run("warm", options[0], source, check=True)
    with mounted(source, *options) as mnt:
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
        assert statistics_of(mnt)["requests"]["passed"] == 1
        for kept in files_of(tmp_path / "spill"):
            with open(kept, "r+b") as file:
                file.seek(5000)
                byte = file.read(1)[0]
                file.seek(5000)
                file.write(bytes([byte ^ 1]))
        for _ in range(2):
            assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)


def test_the_kernel_reads_them_unless_it_is_told_otherwise(source, tmp_path):
    spill = f"--spill={tmp_path / 'spill'}"
    for options, serve in (([], "cache"), ([spill], "passthrough"), ([spill, "--serve=cache"], "cache")):
        with mounted(source, *options) as mnt:
            config = json.loads((mnt / ".shardfs/config.json").read_text())
            assert (config["serve"], config["serve_reason"]) == (serve, None)


def test_blocks_become_files_where_the_kernel_can_read_them(source, tmp_path):
    pictures = episode(source / "ep.wshard", 1)
    spill = tmp_path / "spill"
    with mounted(source, f"--spill={spill}", "--serve=cache") as mnt:
        np.load(array_of(mnt, "ep.wshard"))
        settle(mnt)
    for passed in (0, 1):
        with mounted(source, f"--spill={spill}", "--serve=passthrough") as mnt:
            assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
            settle(mnt)
            statistics = statistics_of(mnt)
            assert statistics["cache"]["decoded_bytes"] == 0
            assert statistics["requests"]["passed"] == passed, statistics
    # The block is not there twice, and other mounts have it out of the file.
    assert sum(path.stat().st_size for path in files_of(spill)) < 1.5 * pictures.nbytes
    with mounted(source, f"--spill={spill}", "--serve=cache") as mnt:
        assert np.array_equal(frame(array_of(mnt, "ep.wshard"), 3), pictures[3])
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0


def test_the_folder_is_ours_alone(source, tmp_path):
    episode(source / "ep.wshard", 1)
    spill = tmp_path / "spill"
    with mounted(source, f"--spill={spill}") as mnt:
        np.load(array_of(mnt, "ep.wshard"))
        settle(mnt)
    assert spill.stat().st_mode & 0o7777 == 0o700
    assert files_of(spill)
    assert {path.stat().st_mode & 0o7777 for path in files_of(spill)} == {0o600}
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    done = run("mount", f"--spill={open_to_all}", source, mnt)
    assert done.returncode == 1 and str(open_to_all) in done.stderr


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
def test_damaged_blobs_are_decoded_again(source, tmp_path, serve):
    pictures = episode(source / "ep.wshard", 1)
    options = (f"--spill={tmp_path / 'spill'}", f"--serve={serve}")
    with mounted(source, *options) as mnt:
        np.load(array_of(mnt, "ep.wshard"))
        settle(mnt)
    for path in files_of(tmp_path / "spill"):
        with open(path, "r+b") as file:
            file.seek(path.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
    with mounted(source, *options) as mnt:
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
        assert spilled(mnt)["corrupt"] >= 1
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == pictures.nbytes
        assert statistics_of(mnt)["problems"] == 1
        problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert any(str(tmp_path / "spill") in json.dumps(problem) for problem in problems), problems


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
def test_another_state_of_a_container_is_never_served_from_the_disk(source, tmp_path, serve):
    path = source / "ep.wshard"
    before, after = episode(path, 1), episode(tmp_path / "new.wshard", 2)
    with mounted(source, f"--spill={tmp_path / 'spill'}", f"--serve={serve}") as mnt:
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), before)
        settle(mnt)
        times = path.stat()
        path.write_bytes((tmp_path / "new.wshard").read_bytes())
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        time.sleep(1)
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), after)
    with mounted(source, f"--spill={tmp_path / 'spill'}", f"--serve={serve}") as mnt:
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), after)


def inverted(packed):
    """A block of lz4 that decodes to all bytes inverted: the same matches, other literals."""
    out, at = bytearray(packed), 0

    def length(first, at):
        while first >= 15 and out[at] == 255:
            first, at = first + 255, at + 1
        return (first + out[at], at + 1) if first >= 15 else (first, at)

    while at < len(out):
        token = out[at]
        literals, at = length(token >> 4, at + 1)
        out[at:at + literals] = bytes(255 - byte for byte in out[at:at + literals])
        at += literals
        if at < len(out):
            _, at = length(token & 15, at + 2)
    return bytes(out)


def test_two_images_on_one_device_share_no_block(source, tmp_path, monkeypatch):
    """Device, inode, size, all times and the filesystem's own number are the same; blocks without checksums are not."""
    monkeypatch.setattr(shard.crc32c, "crc32c", lambda _: 0)
    compress, made = shard.compress, []
    for number in range(2):
        path = tmp_path / f"{number}/ep.wshard"
        path.parent.mkdir()
        pictures = episode(path, 1, codec="lz4", frames=200)
        made.append(255 - pictures if number else pictures)
        monkeypatch.setattr(shard, "compress", lambda *args: inverted(compress(*args)) if len(args[1]) > 1 << 20
                            else compress(*args))
    first, second = ((tmp_path / f"{number}/ep.wshard").read_bytes() for number in range(2))
    assert len(first) == len(second) and first != second
    image, disk = tmp_path / "image", source / "disk"
    disk.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 64 << 20)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-d", tmp_path / "0", image], check=True)
    content = image.read_bytes()
    assert content.count(first) == 1
    device = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
    if device.returncode:
        pytest.skip(f"no loop device: {device.stderr}")
    device, states = device.stdout.strip(), []

    def read(pictures, decoded):
        subprocess.run(["mount", "-o", "ro", device, disk], check=True)
        try:
            state = (disk / "ep.wshard").stat()
            states.append((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
            with mounted(source, f"--spill={tmp_path / 'spill'}", "--serve=cache") as mnt:
                path = array_of(mnt, "disk")
                for number in (3, 100, 199):
                    assert np.array_equal(frame(path, number), pictures[number])
                settle(mnt)
                assert (statistics_of(mnt)["cache"]["misses"] > 0) == decoded
        finally:
            # The mount's process has it open until it has ended.
            for _ in range(500):
                if subprocess.run(["umount", disk], stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.02)
            assert not os.path.ismount(disk)

    try:
        read(made[0], True)
        for bytes_now, pictures, decoded in ((second, made[1], True), (first, made[0], False)):
            with open(image, "r+b") as out:
                out.write(content.replace(first, bytes_now))
            subprocess.run(["blockdev", "--flushbufs", device], check=True)
            read(pictures, decoded)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert len(set(states)) == 1, "nothing but the bytes differs"


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
def test_two_mounts_share_the_disk(source, tmp_path, serve):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(3)}
    options = (f"--spill={tmp_path / 'spill'}", f"--serve={serve}", "--cache-size=64M")
    with mounted(source, *options) as one, mounted(source, *options) as two, ThreadPoolExecutor(8) as pool:
        def check(job):
            mnt, name, number = job
            return np.array_equal(frame(array_of(mnt, name), number), expected[name][number])
        random = np.random.default_rng(3)
        jobs = [(mnt, name, int(random.integers(FRAMES))) for _ in range(8) for name in expected for mnt in (one, two)]
        assert all(pool.map(check, jobs))


def test_a_full_disk_is_a_disk_that_keeps_little(source, tmp_path):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(3)}
    spill = tmp_path / "spill"
    spill.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20M,mode=0700", "none", spill], check=True)
    try:
        with mounted(source, f"--spill={spill}", "--cache-size=32M") as mnt:
            for _ in range(2):
                for name, pictures in expected.items():
                    assert np.array_equal(np.load(array_of(mnt, name)), pictures)
            settle(mnt)
            assert spilled(mnt)["dropped"] + spilled(mnt)["errors"] + spilled(mnt)["evicted"] > 0
    finally:
        subprocess.run(["umount", "-l", spill], check=True)


def test_the_size_is_held(source, tmp_path):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(5)}
    size = expected["ep_0.wshard"].nbytes
    with mounted(source, f"--spill={tmp_path / 'spill'}", f"--spill-size={size * 3}", "--cache-size=32M") as mnt:
        for _ in range(2):
            for name, pictures in expected.items():
                assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        settle(mnt)
        assert sum(path.stat().st_size for path in files_of(tmp_path / "spill")) <= size * 3
        assert spilled(mnt)["evicted"] > 0, spilled(mnt)


def test_large_blocks_are_kept_in_pieces(source, tmp_path):
    # More than 64 MiB, so that readers are served while it is decoded.
    pictures = episode(source / "ep.wshard", 1, frames=2100)
    options = (f"--spill={tmp_path / 'spill'}", "--serve=cache")
    with mounted(source, *options) as mnt:
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
        settle(mnt)
        assert spilled(mnt)["dropped"] == 0
    with mounted(source, *options) as mnt:
        for number in (0, 1, 7, 1400, 2099):
            assert np.array_equal(frame(array_of(mnt, "ep.wshard"), number), pictures[number])
        assert np.array_equal(np.load(array_of(mnt, "ep.wshard")), pictures)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
def test_killed_at_any_moment_of_writing(source, tmp_path, serve):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(4)}
    options = (f"--spill={tmp_path / 'spill'}", f"--serve={serve}")
    random = np.random.default_rng(5)
    for _ in range(int(os.environ.get("SHARDFS_KILLS", "8"))):
        with contextlib.suppress(OSError), foreground(source, *options) as (mnt, daemon):
            for name in expected:
                np.load(array_of(mnt, name))
            time.sleep(random.random() * 0.02)
            daemon.kill()
            daemon.wait()
        for path in files_of(tmp_path / "spill")[:1]:
            path.unlink()
    with mounted(source, *options) as mnt:
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        assert spilled(mnt)["corrupt"] == 0
    shutil.rmtree(tmp_path / "spill")


def test_status_says_how_full_it_is(source, tmp_path):
    pictures = episode(source / "ep.wshard", 1)
    with mounted(source, f"--spill={tmp_path / 'spill'}", "--spill-size=300M", "--serve=cache") as mnt:
        np.load(array_of(mnt, "ep.wshard"))
        settle(mnt)
        (one,) = json.loads(run("status", "--json", mnt, check=True).stdout)
        kept = sum(path.stat().st_size for path in files_of(tmp_path / "spill"))
        assert one["spill"]["size"] == 300 << 20 and one["spill"]["written"] >= 1
        assert pictures.nbytes < kept <= one["spill"]["used"] < kept + (1 << 20)
        text = run("status", mnt, check=True).stdout.decode()
        (line,) = [line for line in text.splitlines() if line.startswith("  spill ")]
        assert "of 300.0 MiB" in line and "0 dropped" in text, text


def test_warm_fills_the_disk_ahead(source, tmp_path):
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(3)}
    spill = f"--spill={tmp_path / 'spill'}"
    # A cache that holds two blocks: decoding has to wait for the disk.
    done = run("warm", spill, "--cache-size=32M", "-j2", source, check=True)
    # Where a core is shared, decoding a small block may take long enough to be worth keeping, too.
    assert b"3 containers" in done.stdout and int(done.stdout.split()[-2]) >= 3, done.stdout
    with mounted(source, spill, "--serve=cache") as mnt:
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0
    # Of what is there already nothing is written again.
    before = {path: path.stat().st_ino for path in files_of(tmp_path / "spill")}
    assert len(before) == 3
    run("warm", spill, "--cache-size=32M", source, check=True)
    assert {path: path.stat().st_ino for path in files_of(tmp_path / "spill")} == before
    shutil.copy(source / "ep_0.wshard", source / "damaged.wshard")
    with open(source / "damaged.wshard", "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(bytes(100))
    done = run("warm", spill, source)
    assert done.returncode == 1 and "damaged.wshard" in done.stderr


def test_a_disk_that_keeps_nothing_is_told(source, tmp_path):
    episode(source / "ep.wshard", 1)
    spill = tmp_path / "spill"
    spill.mkdir(mode=0o700)
    # The second has room for a test, and none for the block of 15 MB.
    for size, words in (("ro,size=1M", "Read-only"), ("size=8M", "not all blocks were kept"), ("size=32K", "No space left")):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"{size},mode=0700", "none", spill], check=True)
        try:
            done = run("warm", f"--spill={spill}", source)
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
            assert str(spill) in done.stderr and words in done.stderr, done.stderr
            with foreground(source, f"--spill={spill}", stderr=subprocess.PIPE) as (mnt, process):
                assert len(list(mnt.iterdir())) == 1
                process.terminate()
                said = process.stderr.read()
            assert (b"kept in memory only" in said) == (size != "size=8M"), said
        finally:
            subprocess.run(["umount", "-l", spill], check=True)


def test_nothing_is_kept_in_the_source(source, tmp_path):
    shutil.copy(Path(__file__).parents[2] / "fixtures/demo.kdb", source)
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "mnt").mkdir()
    for place in source, source / "a/b", tmp_path / "link/a":
        for command in (["warm", source], ["mount", source, tmp_path / "mnt"], ["ls", source]):
            done = run(*command, f"--spill={place}")
            assert done.returncode == 1 and "lies inside" in done.stderr, (command, done)
    assert [path.name for path in source.iterdir()] == ["demo.kdb"]


@pytest.mark.parametrize("before", ["nothing", "blocks"])
def test_warm_keeps_files_that_the_kernel_reads(source, tmp_path, before):
    """With a budget that holds whole files the arrays are kept as such: the first reader of each has it from the kernel."""
    expected = {f"ep_{i}.wshard": episode(source / f"ep_{i}.wshard", i) for i in range(3)}
    spill = f"--spill={tmp_path / 'spill'}"
    if before == "blocks":
        run("warm", spill, "--cache-size=32M", source, check=True)
    # A budget for one file beside the one that is made: the others wait for the disk.
    run("warm", spill, "--cache-size=64M", "-j2", source, check=True)
    inodes = {path: path.stat().st_ino for path in files_of(tmp_path / "spill")}
    run("warm", spill, "--cache-size=64M", source, check=True)
    assert before == "blocks" or {path: path.stat().st_ino for path in files_of(tmp_path / "spill")} == inodes
    with mounted(source, spill, "--cache-size=32M") as mnt:
        for name, pictures in expected.items():
            assert np.array_equal(np.load(array_of(mnt, name)), pictures)
        settle(mnt)
        statistics = statistics_of(mnt)
        assert statistics["requests"]["passed"] == len(expected), statistics
        assert (statistics["cache"]["decoded_bytes"], statistics["spill"]["written"]) == (0, 0), statistics
    size = sum(path.stat().st_size for path in files_of(tmp_path / "spill"))
    assert size < 1.01 * sum(pictures.nbytes for pictures in expected.values())
    with mounted(source, spill, "--serve=cache") as mnt:
        for name, pictures in expected.items():
            for number in (0, 7, FRAMES - 1):
                assert np.array_equal(frame(array_of(mnt, name), number), pictures[number])
        assert statistics_of(mnt)["cache"]["decoded_bytes"] == 0
