"""Bytes of objects: fetched once, kept on disk, right whatever goes wrong on the way."""

import json
import os
import random
import subprocess
import threading

import pytest
from support import FAMILIES, FIXTURES, GOLDEN, mounted, read_in_pieces, run, statistics_of
from support.stores import Store, random_faults


@pytest.fixture
def store():
    store = Store()
    with store.serving() as endpoint:
        yield store, ("--no-sign-request", f"--endpoint-url={endpoint}")


def put_folder(store, folder, prefix):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())


def contents(mnt):
    """The bytes of all files, or that there are none."""
    found = {}
    for folder, _, files in os.walk(mnt):
        for name in (os.path.join(folder, file) for file in files):
            try:
                found[os.path.relpath(name, mnt)] = read_in_pieces(name)
            except OSError:
                found[os.path.relpath(name, mnt)] = None
    return found


def remote_of(mnt):
    return statistics_of(mnt)["remote"]


def test_a_second_mount_asks_for_no_data_and_reads_without_a_network(store, tmp_path):
    store, options = store
    for name in ("ep_001.wshard", "ep_002_lz4.wshard", "demo.kdb", "notes.txt"):
        store.put(f"d/{name}", (FIXTURES / name).read_bytes())
    store.put("d/large.bin", os.urandom(5_000_000))
    cache = tmp_path / "cache"
    options = (*options, f"--disk-cache={cache}", "--dir-ttl=1h", "--retries=1", "--timeout=2s")
    with mounted("s3://b/d", *options) as mnt:
        expected = contents(mnt)
    assert expected["large.bin"] == store.objects["b"]["d/large.bin"][0]
    assert cache.stat().st_mode & 0o777 == 0o700
    store.log.clear()
    with mounted("s3://b/d", *options) as mnt:
        # With everything listed, the server may as well be gone.
        for folder, _, _ in os.walk(mnt):
            os.listdir(folder)
        store.faults = [lambda handler: handler.fail(503, "SlowDown") or True]
        assert contents(mnt) == expected
        assert remote_of(mnt)["bytes_from_disk"] > 0
    assert [path for method, path in store.log if method == "GET" and "?" not in path] == []


def test_the_cache_is_shown_shrunk_and_emptied(store, tmp_path):
    store, options = store
    store.put("d/large.bin", os.urandom(5_000_000))
    cache = tmp_path / "cache"
    with mounted("s3://b/d", *options, f"--disk-cache={cache}") as mnt:
        (mnt / "large.bin").read_bytes()
        # Another process, which ends when its blobs are written.
        assert len(run("cat", "s3://b/d/large.bin", *options, f"--disk-cache={cache}", check=True).stdout) == 5_000_000
        shown = run("cache", "status", cache, check=True).stdout.decode()
        assert shown.startswith(f"{cache}: ") and int(shown.split()[-2]) >= 4_000_000
        run("cache", "prune", "2M", cache, check=True)
        assert int(run("cache", "status", cache, check=True).stdout.split()[-2]) <= 2 << 20
        run("cache", "clear", cache, check=True)
        assert run("cache", "status", cache, check=True).stdout.decode() == f"{cache}: 0 blobs, 0 bytes\n"
        assert (mnt / "large.bin").read_bytes() == store.objects["b"]["d/large.bin"][0]
    (tmp_path / "other").mkdir(mode=0o700)
    assert run("cache", "clear", tmp_path / "other").returncode == 1


def test_a_full_disk_is_no_failure(store, tmp_path):
    if os.geteuid() != 0:
        pytest.fail("this test mounts a small disk, as root")
    store, options = store
    store.put("d/x.bin", b"x" * 100_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        with pytest.raises(OSError), open(disk / "full", "wb", buffering=0) as full:
            while True:
                full.write(b"x" * 4096)
        for _ in range(2):
            done = run("cat", "s3://b/d/x.bin", *options, f"--disk-cache={disk}/cache", check=True)
            assert done.stdout == b"x" * 100_000
            assert not (disk / "cache/CACHEDIR.TAG").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_damaged_cache_is_fetched_again(store, tmp_path):
    store, options = store
    body = os.urandom(5_000_000)
    store.put("d/large.bin", body)
    cache = tmp_path / "cache"
    options = (*options, f"--disk-cache={cache}")
    with mounted("s3://b/d", *options) as mnt:
        assert (mnt / "large.bin").read_bytes() == body
    blobs = [path for path in cache.glob("[0-9a-f][0-9a-f]/*") if path.stat().st_size > 100_000]
    assert blobs
    for path in blobs:
        with open(path, "r+b") as file:
            file.seek(70_000)
            file.write(b"damage")
    with mounted("s3://b/d", *options) as mnt:
        assert (mnt / "large.bin").read_bytes() == body
        assert remote_of(mnt)["requests"] > 1, "what is damaged is fetched"


def test_folders_that_others_may_enter_are_not_used(store, tmp_path, monkeypatch):
    store, options = store
    store.put("d/x.bin", b"x")
    assert run("cat", "s3://b/d/x.bin", *options, "--no-disk-cache", check=True).stdout == b"x"
    folder = tmp_path / "cache" / "shardfs" / "blocks"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    # One that the user names is an error that says what to do.
    for command in (("cat", "s3://b/d/x.bin"), ("mount", "s3://b/d", tmp_path / "mnt", "--mkdir")):
        refused = run(*command, *options, f"--disk-cache={folder}")
        assert refused.returncode != 0 and f"chmod 700 {folder}" in str(refused.stderr), refused
    # The usual one is not used, which is said.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with mounted("s3://b/d", *options) as mnt:
        assert (mnt / "x.bin").read_bytes() == b"x"
        assert f"chmod 700 {folder}" in remote_of(mnt)["without_disk"]
        assert "no disk cache" in run("status", mnt, check=True).stdout.decode()
        assert "warning" in run("doctor", "s3://b/d", *options).stdout.decode()
    assert os.listdir(folder) == []


def test_reading_at_random_downloads_little(store, tmp_path):
    store, options = store
    body = os.urandom(64 << 20)
    store.put("d/large.bin", body)
    dice = random.Random(5)
    with mounted("s3://b/d", *options, "--no-disk-cache") as mnt:
        file = os.open(mnt / "large.bin", os.O_RDONLY)
        for _ in range(100):
            at = dice.randrange(len(body) // 4096) * 4096
            assert os.pread(file, 4096, at) == body[at:at + 4096]
        os.close(file)
        assert remote_of(mnt)["bytes"] <= 100 * (128 << 10) + (1 << 20)


def test_random_faults_give_no_wrong_byte(store, tmp_path):
    """The short form of `scripts/remote_faults`."""
    store, options = store
    for family in FAMILIES:
        put_folder(store, GOLDEN / family, family)
    store.put("large/large.bin", os.urandom(20_000_000))
    folders = [*FAMILIES, "large"]
    expected = {}
    for folder in folders:
        with mounted(f"s3://b/{folder}", *options, "--detect=content", "--no-disk-cache") as mnt:
            expected[folder] = contents(mnt)
    store.faults = [random_faults(7, one_in=6)]
    options = (*options, f"--disk-cache={tmp_path / 'cache'}", "--detect=content", "--timeout=10s",
               "--retries=20")
    wrong, read = [], [0]

    def read_all(folder):
        with mounted(f"s3://b/{folder}", *options) as mnt:
            for name, body in contents(mnt).items():
                read[0] += body is not None
                # An error is an answer; other bytes are none.
                if body is not None and body != expected[folder].get(name):
                    wrong.append((folder, name))

    threads = [threading.Thread(target=read_all, args=(folder,)) for folder in folders]
    [thread.start() for thread in threads]
    [thread.join(300) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "it hangs"
    assert not wrong, json.dumps(wrong[:10])
    assert read[0] > sum(map(len, expected.values())) // 10
