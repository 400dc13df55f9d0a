"""Buckets: what a mount of one shows is what a mount of the same files in a folder shows, with as few requests."""

import concurrent.futures
import contextlib
import errno
import io
import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from support import (FAMILIES, FIXTURES, GOLDEN, daemon_of, foreground, mounted, read_in_pieces, run, serving, statistics_of,
                     wait_for, walk_files)
from support.stores import KEYS, Store, fake_gcs, moto, s3_client, seaweedfs, upload
from test_tables import write_chunked


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No bytes of objects from one test to another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def weed():
    """A SeaweedFS with all golden files and examples in its bucket `public`."""
    with seaweedfs() as endpoint:
        client = s3_client(endpoint)
        upload(client, "public", FIXTURES, "fixtures/")
        for family in FAMILIES:
            upload(client, "public", GOLDEN / family, f"golden/{family}/")
        client.put_object(Bucket="private", Key="ep.wshard", Body=(FIXTURES / "ep_001.wshard").read_bytes())
        yield endpoint


def public(endpoint):
    return "--no-sign-request", "--no-disk-cache", f"--endpoint-url={endpoint}"


@pytest.fixture
def store():
    """A store that counts, with its options: (store, options)."""
    store = Store()
    with store.serving() as endpoint:
        yield store, public(endpoint)


def test_a_store_that_ends_is_a_problem_with_its_reason():
    """Listing, looking up and reading fail with EIO or ETIMEDOUT, never ESTALE; the reason is told, but not each time."""
    store = Store()
    for number in range(3):
        store.put(f"a/{number}.wshard", (FIXTURES / "ep_001.wshard").read_bytes())
        store.put(f"a/{number}.txt", b"text")
        store.put(f"b{number}/1.txt", b"text")
    with contextlib.ExitStack() as until:
        endpoint = until.enter_context(store.serving())
        mnt = until.enter_context(mounted("s3://b/", *public(endpoint), "--timeout=1s"))
        assert sorted(os.listdir(mnt / "a")) == sorted(f"{n}.{s}" for n in range(3) for s in ("wshard", "txt"))
        assert (mnt / "a/0.wshard/signal/joint_pos.npy").read_bytes()[:6] == b"\x93NUMPY"
        store.faults.append(lambda handler: handler.close_connection or handler.connection.shutdown(2) or True)
        failed = set()
        with concurrent.futures.ThreadPoolExecutor(8) as several:
            read = [several.submit((mnt / path).read_bytes) for path in ("a/0.txt", "a/1.wshard/container.json")]
            listed = [several.submit(os.listdir, mnt / folder) for folder in ("b0", "b1", "b2", "a/1.wshard")]
            for failing in read + listed:
                with pytest.raises(OSError) as error:
                    failing.result()
                failed.add(error.value.errno)
        assert failed <= {errno.EIO, errno.ETIMEDOUT}, failed
        problems = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        told = [problem["message"] for problem in problems if endpoint in problem["message"]]
        assert 1 <= len(told) <= 4, problems
        status = run("status", mnt, check=True).stdout
        assert b"problems none" not in b" ".join(status.split()), status


def outcome(path):
    """The bytes of a file, or why there are none."""
    try:
        return read_in_pieces(path)
    except OSError as error:
        return errno.errorcode[error.errno]


def size_of(path):
    """The size of a file, or why it is not known."""
    try:
        return path.stat().st_size
    except OSError as error:
        return errno.errorcode[error.errno]


def assert_same_trees(there, here, without=()):
    names = {name for name in walk_files(here) if not name.startswith(without)}
    assert {name for name in walk_files(there) if not name.startswith(without)} == names
    for name in sorted(names):
        if not name.endswith("/"):
            assert outcome(there / name) == outcome(here / name), name
            assert size_of(there / name) == size_of(here / name), name


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_files_are_the_same_through_s3(weed, family):
    options = (*public(weed), "--detect=content")
    with mounted(f"s3://public/golden/{family}", *options) as there, mounted(GOLDEN / family) as here:
        assert_same_trees(there, here)


def test_examples_are_the_same_through_s3(weed):
    with mounted("s3://public/fixtures/", *public(weed), "--detect=content") as there, mounted(FIXTURES) as here:
        assert_same_trees(there, here)


def test_examples_are_the_same_through_gs():
    """The same of Google's storage, by its emulator. scripts/remote_clouds compares all golden files, and those of Azure."""
    objects = {f"x/{path.relative_to(FIXTURES)}": path.read_bytes() for path in FIXTURES.rglob("*") if path.is_file()}
    with fake_gcs(objects) as (url, options, _):
        options = (*options, "--no-disk-cache", "--detect=content")
        with mounted(f"{url}/x/", *options) as there, mounted(FIXTURES) as here:
            assert_same_trees(there, here)


def test_one_container_is_the_root(weed):
    with mounted("s3://public/fixtures/demo.kdb", *public(weed)) as there, mounted(FIXTURES / "demo.kdb") as here:
        assert_same_trees(there, here)


def test_commands_take_urls(weed, tmp_path):
    top = "s3://public/fixtures"
    path = "ep_001.wshard/signal/joint_pos.npy"
    local = run("cat", FIXTURES / path, check=True).stdout
    assert run("cat", f"{top}/{path}", *public(weed), check=True).stdout == local
    assert run("cat", f"{top}/notes.txt", *public(weed), check=True).stdout == (FIXTURES / "notes.txt").read_bytes()
    listed = run("ls", "-R", f"{top}/ep_001.wshard", *public(weed), check=True).stdout.decode()
    assert listed.replace(top, str(FIXTURES)) == run("ls", "-R", FIXTURES / "ep_001.wshard", check=True).stdout.decode()
    matched = run("ls", f"{top}/ep_*.wshard/signal/joint*", *public(weed), check=True).stdout.decode().splitlines()
    assert matched == [f"{top}/ep_001.wshard/signal/joint_pos.npy", f"{top}/ep_002_lz4.wshard/signal/joint_pos.npy"]
    assert b"format: kdb" in run("info", f"{top}/demo.kdb", *public(weed), check=True).stdout
    run("cp", "-r", f"{top}/ep_001.wshard/signal", tmp_path, *public(weed), check=True)
    copied = list(tmp_path.rglob("joint_pos.npy"))
    assert len(copied) == 1 and copied[0].read_bytes() == local
    whole = run("verify", f"{top}/demo.kdb", *public(weed))
    assert whole.returncode == 0, whole.stderr
    damaged = run("verify", f"{top}/damaged", *public(weed))
    assert damaged.returncode == 1 and f"{top}/damaged/bad_crc.wshard".encode() in damaged.stdout
    for missing in (f"{top}/nothing", f"{top}/ep_001.wshard/nothing", "s3://public/no.wshard"):
        assert run("cat", missing, *public(weed)).returncode == 1


def test_keys_are_needed_and_right_ones_do(weed):
    url, endpoint = "s3://private/ep.wshard/signal/joint_pos.npy", f"--endpoint-url={weed}"
    expected = run("cat", FIXTURES / "ep_001.wshard/signal/joint_pos.npy", check=True).stdout
    assert run("cat", url, endpoint, env={**os.environ, **KEYS}, check=True).stdout == expected
    wrong = run("cat", url, endpoint, env={**os.environ, **KEYS, "AWS_SECRET_ACCESS_KEY": "geheimnis"})
    assert wrong.returncode == 1 and "403" in wrong.stderr and "geheimnis" not in wrong.stderr
    nobody = run("cat", url, *public(weed))
    assert nobody.returncode == 1 and "s3:GetObject" in nobody.stderr


def raw_shard(writers, path, seed, megabytes=2):
    """A container of one incompressible array."""
    values = np.random.default_rng(seed).integers(0, 256, megabytes << 20, dtype="u1")
    blocks = writers.meta_blocks("remote", 1, [writers.channel("signal/x", "uint8", [])])
    writers.write_shard(path, [*blocks, ("signal/x", values.tobytes())], codec="none")
    return path.read_bytes(), values


def test_an_overwritten_object_is_never_a_mix(weed, tmp_path, writers):
    client = s3_client(weed)
    # Not verified: that would read all of it at once.
    (old, old_values), (new, new_values) = (raw_shard(writers, tmp_path / str(n), n, 64) for n in (1, 2))
    assert len(old) == len(new)
    for name in ("x.wshard", "plain.bin"):
        client.put_object(Bucket="public", Key=f"mix/{name}", Body=old)
    with mounted("s3://public/mix/", *public(weed), "--dir-ttl=1h", "--verify=off") as mnt:
        inside, outside = (os.open(mnt / name, os.O_RDONLY) for name in ("x.wshard/signal/x.npy", "plain.bin"))
        begin = os.fstat(inside).st_size - old_values.size
        try:
            os.pread(inside, 4096, begin)
            os.pread(outside, 4096, 0)
            for name in ("x.wshard", "plain.bin"):
                client.put_object(Bucket="public", Key=f"mix/{name}", Body=new)
            for file, whole, shift in ((inside, old_values.tobytes(), begin), (outside, old, 0)):
                refused = 0
                for at in range(0, len(whole), 4 << 20):
                    try:
                        assert os.pread(file, 4096, at + shift) == whole[at:at + 4096]
                    except OSError as error:
                        assert error.errno in (errno.ESTALE, errno.EIO), error
                        refused += 1
                assert refused > 0, "all of it was in memory: this test shows nothing"
        finally:
            os.close(inside)
            os.close(outside)
        run("refresh", mnt, check=True)
        time.sleep(1)
        assert np.array_equal(np.load(mnt / "x.wshard/signal/x.npy"), new_values)
        assert (mnt / "plain.bin").read_bytes() == new


def test_listing_costs_list_requests_only(store):
    store, options = store
    for number in range(10_000):
        store.put(f"many/e{number:05}.wshard", b"SHRD")
    with mounted("s3://b/", *options) as mnt:
        store.counts()
        with os.scandir(mnt / "many") as entries:
            found = {entry.name: entry.is_dir() and entry.stat(follow_symlinks=False).st_mtime for entry in entries}
        lists, others = store.counts()
    assert len(found) == 10_000 and all(found.values())
    # One of them looks whether `many` is a folder or an object.
    assert lists + others <= 12 and others <= 1, (lists, others)


def test_opening_takes_two_requests_and_an_array_one_more(store):
    store, options = store
    for name in ("ep_001.wshard", "demo.kdb"):
        store.put(f"d/{name}", (FIXTURES / name).read_bytes())
    for name, path in (("ep_001.wshard", "signal/joint_pos.npy"), ("demo.kdb", "episodes/0/meta.json")):
        with mounted("s3://b/d", *options) as mnt:
            os.listdir(mnt)
            store.counts()
            assert os.listdir(mnt / name)
            lists, others = store.counts()
            assert lists == 0 and others <= 2, (name, lists, others)
            (mnt / name / path).read_bytes()
            lists, others = store.counts()
            assert lists == 0 and others <= 3, (name, lists, others)


def test_the_header_and_one_tensor_of_a_model_are_two_requests(store):
    """Detection included, and however many pieces the kernel reads a tensor in."""
    store, options = store
    values = np.random.default_rng(1).random((64, 256, 256), "f4")
    size = values[0].nbytes
    header = json.dumps({f"layer.{number}": {"dtype": "F32", "shape": [256, 256],
                                             "data_offsets": [number * size, (number + 1) * size]}
                         for number in range(64)}).encode()
    store.put("model/shard.safetensors", len(header).to_bytes(8, "little") + header + values.tobytes())
    store.faults.append(lambda _: time.sleep(0.02))
    with mounted("s3://b/", *options) as mnt:
        store.counts()
        for number, most in ((40, 2), (7, 1), (58, 1), (23, 1)):
            assert np.array_equal(np.load(mnt / f"model/shard.safetensors/layer.{number}.npy"), values[number])
            assert store.counts()[1] == most, number


def test_a_name_that_lies_becomes_a_file_once_looked_into(store):
    store, options = store
    store.put("d/lies.wshard", b"no container at all")
    store.put("d/hidden", (FIXTURES / "ep_001.wshard").read_bytes())
    with mounted("s3://b/d", *options) as mnt:
        assert sorted(os.listdir(mnt)) == ["hidden", "lies.wshard"]
        assert (mnt / "hidden").is_file()
        with pytest.raises(OSError):
            (mnt / "lies.wshard/x").stat()
        time.sleep(1)
        assert (mnt / "lies.wshard").read_bytes() == b"no container at all"
    with mounted("s3://b/d", *options, "--detect=content") as mnt:
        assert (mnt / "hidden").is_dir() and (mnt / "lies.wshard").is_file()


def test_a_name_need_not_say_the_format(store, tmp_path):
    """What commands and a mount show is what they show of the same files in a folder, at the first look."""
    store, options = store
    here = tmp_path / "here"
    here.mkdir()
    for name, example in (("hdf5.nc", "robot.h5"), ("hdf5.cdf", "robot.h5"), ("classic.h5", "weather.nc"),
                          ("arrays.pt", "arrays.npz"), ("model.npz", "checkpoint.pt"), ("text.mat", "notes.txt"),
                          ("text.h5", "notes.txt")):
        body = (FIXTURES / example).read_bytes()
        store.put(f"d/{name}", body)
        (here / name).write_bytes(body)
    with mounted("s3://b/d", *options) as there, mounted(here) as local:
        for name in [name for name in os.listdir(here) if (local / name).is_dir()]:
            assert sorted(os.listdir(there / name)) == sorted(os.listdir(local / name)), name
    with serving("s3://b/d", *options) as server:
        assert server.ask("/files/hdf5.nc/", Accept="application/json")[0] == 200
        assert server.ask("/files/text.h5")[2] == (FIXTURES / "notes.txt").read_bytes()
        assert server.ask("/dav/arrays.pt/", "PROPFIND", Depth="1")[0] == 207
    for command in (["ls", "-R"], ["ls", "--tree"], ["info"], ["info", "--json"], ["verify"]):
        found, expected = run(*command, "s3://b/d", *options), run(*command, here)
        assert found.stdout.decode().replace("s3://b/d", str(here)) == expected.stdout.decode(), command
        assert found.returncode == expected.returncode, (command, found.stderr)
    for options, source, to in ((options, "s3://b/d", "out/d"), ((), here, "out/here")):
        run("cp", "-r", source, tmp_path / "out", *options, check=True)
        run("index", source, "-o", tmp_path / f"{to.replace('/', '_')}.parquet", *options, check=True)
    copies = [{path.relative_to(top): path.is_file() and path.read_bytes() for path in top.rglob("*")}
              for top in (tmp_path / "out/d", tmp_path / "out/here")]
    assert copies[0] == copies[1] and len(copies[0]) > 50
    rows = [{row["path"]: (row["format"], row["problem"]) for row in pyarrow.parquet.read_table(file).to_pylist()}
            for file in (tmp_path / "out_d.parquet", tmp_path / "out_here.parquet")]
    assert rows[0] == rows[1] and rows[0]["hdf5.nc"][0] == "hdf5"


ODD = ["a//b", "dir/", "x", "x/y", "./p", "../q", "50%", "line\nfeed", "ü" * 200 + "end", "\udcff\udcfe", ".shardfs/s",
       "tab\there", "empty//", "%41", "a%2Fb", " blank ", "plus+and&amp;"]


def test_odd_keys_are_all_reachable(store):
    store, options = store
    for number, key in enumerate(ODD):
        store.put(f"odd/{key}", f"{number}".encode())
    with mounted("s3://b/odd", *options) as mnt:
        found = {name: outcome(mnt / name) for name in walk_files(mnt)}
        again = run("ls", "-R", "s3://b/odd", *options, check=True).stdout
    assert b"s3://b/odd/.shardfs/s\n" in again
    # The marker `dir/` holds something, so it is a file in the folder of that name.
    reachable = {f"{number}".encode() for number in range(len(ODD))}
    assert reachable == set(found.values()), sorted(reachable - set(found.values()))
    assert found["%2E%2E/q"] == b"5" and found["%2E/p"] == b"4"
    assert {"%empty", "50%25", "x", "%2541", "a%252Fb", "line%0Afeed", "%FF%FE"} <= {part for name in found for part in name.split("/")}
    assert found["x"] == b"2" and found["x%_2/y"] == b"3"
    assert all(len(os.fsencode(part)) <= 255 for name in found for part in name.split("/"))


def test_printed_urls_can_be_given_back(store):
    store, options = store
    keys = ["50%.wshard", "p%20q/e%2F.wshard", "a//b.wshard", "./p.wshard", "../q.wshard", "line\nfeed.wshard", "h#?x.wshard",
            ".shardfs/s.wshard", "ü b/+.wshard"]
    body = (FIXTURES / "ep_001.wshard").read_bytes()
    for key in keys:
        store.put(key, body)
    for top in ("s3://b", "s3://b/"):
        found = run("find", top, "-0", *options, check=True).stdout
        urls = [os.fsdecode(url) for url in found.split(b"\0")[:-1]]
        assert sorted(urls) == sorted(f"s3://b/{key}" for key in keys)
    assert f"{len(keys)} containers" in run("verify", *urls, *options, check=True).stdout.decode()
    assert run("find", "s3://b", "--name=h#?x*", *options, check=True).stdout == b"s3://b/h#?x.wshard\n"
    listed = os.fsdecode(run("ls", "-R", "-0", "s3://b/p%20q", *options, check=True).stdout).split("\0")
    assert listed[0] == "s3://b/p%20q/e%2F.wshard" and "s3://b/p%20q/e%2F.wshard/signal/joint_pos.npy" in listed
    matched = os.fsdecode(run("ls", "-d", "s3://b/p*/*", *options, check=True).stdout)
    assert matched == "s3://b/p%20q/e%2F.wshard\n"


def test_odd_keys_as_another_server_keeps_them(monkeypatch):
    """Written by boto3 and kept by moto, which takes no line breaks; boto3 sends UTF-8 only."""
    keys = [key for key in ODD if key.isprintable() and key.isascii()] + ["ü/ü", "a/.", "b/.."]
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with moto() as endpoint:
        client = s3_client(endpoint)
        client.create_bucket(Bucket="odd")
        for number, key in enumerate(keys):
            client.put_object(Bucket="odd", Key=key, Body=b"%d" % number)
        with mounted("s3://odd", "--no-disk-cache", f"--endpoint-url={endpoint}") as mnt:
            found = {outcome(mnt / name) for name in walk_files(mnt)}
            assert (mnt / "a/%2E").read_bytes() == b"%d" % keys.index("a/.")
    assert found == {b"%d" % number for number in range(len(keys))}


def test_a_damaged_container_is_told_as_such_and_then_shown_as_a_file(store):
    store, options = store
    body = (FIXTURES / "ep_001.wshard").read_bytes()
    # Of the front only the magic is left.
    store.put("d/bad.wshard", body[:4] + b"\xff" * 60 + body[64:])
    with mounted("s3://b/d", *options) as mnt:
        assert os.listdir(mnt) == ["bad.wshard"]
        with pytest.raises(OSError) as error:
            os.listdir(mnt / "bad.wshard")
        assert error.value.errno == errno.EIO
        problems = (mnt / ".shardfs/problems.jsonl").read_text()
        assert "bad.wshard" in problems and "not shown as a Shard container" in problems
        time.sleep(1)
        assert (mnt / "bad.wshard").read_bytes() == store.objects["b"]["d/bad.wshard"][0]


def test_what_objects_are_is_remembered_on_disk(store, tmp_path):
    store, (*options, _, endpoint) = store
    options = (*options, endpoint, f"--disk-cache={tmp_path / 'cache'}")
    store.put("d/lies.wshard", b"no container at all")
    for number in range(20):
        store.put(f"d/{number:02}", (FIXTURES / "ep_001.wshard").read_bytes() if number % 2 else b"x")
    with mounted("s3://b/d", *options, "--detect=content") as mnt:
        expected = {path.name: path.is_dir() for path in mnt.iterdir()}
    assert sum(expected.values()) == 10 and not expected["lies.wshard"]
    store.counts()
    with mounted("s3://b/d", *options, "--detect=content") as mnt:
        assert {path.name: path.is_dir() for path in mnt.iterdir()} == expected
    # `status` of another test may ask for the folder meanwhile.
    objects = [path for _, path in store.log if path.startswith("/b/d/")]
    assert not objects, objects
    # A name that was found to lie is not believed again.
    with mounted("s3://b/d", *options) as mnt:
        assert (mnt / "lies.wshard").is_file()


def failing(times, how):
    """A fault that strikes the first so many requests for objects."""
    left = [times]

    def fault(handler):
        if "?" in handler.path or left[0] == 0:
            return False
        left[0] -= 1
        how(handler)
        return True

    return fault


def reset(handler):
    handler.connection.close()


def cut(handler):
    body = handler.store.objects["b"]["d/file.bin"][0]
    first = int(handler.headers["Range"][6:].split("-")[0])
    handler.answer(206, body[first:first + 1000], Content_Length=len(body) - first, ETag=etag(handler),
                   Content_Range=f"bytes {first}-{len(body) - 1}/{len(body)}")
    handler.close_connection = True


def etag(handler):
    return f'"{handler.store.objects["b"]["d/file.bin"][1]}"'


TROUBLES = {
    "503": lambda handler: handler.fail(503, "SlowDown"),
    "500": lambda handler: handler.fail(500, "InternalError"),
    "429": lambda handler: handler.fail(429, "TooManyRequests", Retry_After=1),
    "reset": reset,
    "cut": cut,
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_passes_is_tried_again(store, trouble):
    store, options = store
    body = os.urandom(100_000)
    store.put("d/file.bin", body)
    with mounted("s3://b/d", *options) as mnt:
        os.listdir(mnt)
        store.faults = [failing(3, TROUBLES[trouble])]
        assert (mnt / "file.bin").read_bytes() == body
        # Of a connection that is reset, the HTTP library repeats a request by itself.
        assert statistics_of(mnt)["remote"]["retries"] >= 2


def test_what_does_not_pass_is_an_error_that_says_so(store):
    store, options = store
    store.put("d/file.bin", b"x" * 100)
    cases = [
        (lambda handler: handler.fail(403, "AccessDenied"), errno.EACCES),
        (lambda handler: handler.fail(404, "NoSuchKey"), errno.ESTALE),
        (lambda handler: handler.fail(412, "PreconditionFailed"), errno.ESTALE),
        (lambda handler: handler.fail(503, "SlowDown"), errno.EIO),
        (lambda handler: handler.answer(206, b"y" * 100, Content_Range="bytes 0-99/100", ETag='"other"'), errno.ESTALE),
        (lambda handler: handler.answer(206, b"y" * 100, Content_Range="bytes 1-100/100", ETag=etag(handler)), errno.EIO),
        (lambda handler: time.sleep(5), errno.ETIMEDOUT),
    ]
    for how, expected in cases:
        with mounted("s3://b/d", *options, "--retries=2", "--timeout=2s") as mnt:
            os.listdir(mnt)
            store.faults = [failing(100, how)]
            with pytest.raises(OSError) as error:
                (mnt / "file.bin").read_bytes()
            assert error.value.errno == expected, (errno.errorcode[error.value.errno], errno.errorcode[expected])
            store.faults = []


def test_a_server_that_is_gone_deletes_nothing(store):
    store, options = store
    store.put("d/ep.wshard", (FIXTURES / "ep_001.wshard").read_bytes())
    with mounted("s3://b/d", *options, "--dir-ttl=1s", "--retries=1", "--timeout=2s") as mnt:
        os.listdir(mnt)
        values = np.load(mnt / "ep.wshard/signal/joint_pos.npy")
        store.faults = [lambda handler: handler.fail(503, "SlowDown") or True]
        time.sleep(2)
        assert os.listdir(mnt) == ["ep.wshard"]
        assert np.array_equal(np.load(mnt / "ep.wshard/signal/joint_pos.npy"), values)


def test_servers_that_ignore_conditions_are_noticed(store):
    store, options = store
    store.ignores = {"if-match"}
    store.put("d/file.bin", b"a" * 3_000_000)
    with mounted("s3://b/d", *options, "--dir-ttl=1h") as mnt, open(mnt / "file.bin", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 0) == b"a" * 4096
        store.put("d/file.bin", b"b" * 3_000_000)
        with pytest.raises(OSError) as error:
            os.pread(file.fileno(), 4096, 2_900_000)
        assert error.value.errno == errno.ESTALE


def test_new_objects_are_seen_after_the_time_or_at_once(store):
    store, options = store
    store.put("d/one.bin", b"1")
    with mounted("s3://b/d", *options, "--dir-ttl=1h") as mnt:
        assert os.listdir(mnt) == ["one.bin"]
        store.put("d/two.bin", b"2")
        assert os.listdir(mnt) == ["one.bin"]
        run("refresh", mnt, check=True)
        assert sorted(os.listdir(mnt)) == ["one.bin", "two.bin"]
        for content in (b"another", b"and another"):
            assert not (mnt / "three.bin").exists()
            (mnt / "one.bin").read_bytes()
            store.put("d/one.bin", content)
            store.put("d/three.bin", b"3")
            run("refresh", mnt, check=True)
            assert (mnt / "one.bin").read_bytes() == content and (mnt / "three.bin").read_bytes() == b"3"
            store.delete("d/three.bin")
            run("refresh", mnt, check=True)
    with mounted("s3://b/d", *options, "--dir-ttl=1s") as mnt:
        assert sorted(os.listdir(mnt)) == ["one.bin", "two.bin"]
        store.delete("d/one.bin")
        time.sleep(3)
        assert os.listdir(mnt) == ["two.bin"]


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_container_that_was_replaced_is_looked_up_again(store, is_listed):
    """A read that fails with ESTALE ends the time for which the object's state is trusted."""
    def archive(value):
        stored = io.BytesIO()
        np.savez(stored, **{name: np.full(1 << 20, value) for name in "abcdefghijkl"})
        return stored.getvalue()

    store, options = store
    store.put("d/x.npz", archive(1))
    with mounted("s3://b/d", *options, "--dir-ttl=1h") as mnt:
        assert not is_listed or os.listdir(mnt) == ["x.npz"]
        assert np.load(mnt / "x.npz/a.npy")[0] == 1
        store.put("d/x.npz", archive(2))
        with pytest.raises(OSError) as refused:
            np.load(mnt / "x.npz/l.npy")
        assert refused.value.errno == errno.ESTALE

        def is_new():
            with contextlib.suppress(OSError):
                return np.load(mnt / "x.npz/l.npy")[0] == 2

        wait_for(is_new)


#: An array of 12,000,000 bytes in a folder, and the object with its elements.
ARRAY = {"d/z.zarr/.zgroup": {"zarr_format": 2},
         "d/z.zarr/a/.zarray": {"zarr_format": 2, "shape": [12_000_000], "chunks": [12_000_000], "dtype": "|u1", "order": "C",
                                "compressor": None, "filters": None, "fill_value": 0}}


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("key, name", [("d/file.bin", "file.bin"), ("d/z.zarr/a/0", "z.zarr/a.npy")])
def test_an_object_that_was_replaced_is_looked_up_again(store, is_listed, key, name):
    """As above, of ordinary objects and of those in folders that are containers."""
    store, options = store
    for path, content in ARRAY.items():
        store.put(path, json.dumps(content).encode())
    store.put(key, b"a" * 12_000_000)
    with mounted("s3://b/d", *options, "--dir-ttl=1h") as mnt:
        assert not is_listed or name.partition("/")[0] in os.listdir(mnt)

        def part(offset, length):
            with open(mnt / name, "rb", buffering=0) as file:
                return os.pread(file.fileno(), length, offset)

        assert part(200, 1) == b"a"
        store.put(key, b"b" * 12_000_000)
        with pytest.raises(OSError) as refused:
            part(11_900_000, 1)
        assert refused.value.errno == errno.ESTALE

        def is_new():
            with contextlib.suppress(OSError):
                return part(11_900_000, 1) == part(200, 1) == b"b"

        wait_for(is_new)


def test_a_server_looks_up_again_what_was_replaced(store):
    store, options = store
    store.put("d/file.bin", b"a" * 12_000_000)
    with serving("s3://b/d", *options, "--dir-ttl=1h") as server:
        assert server.ask("/files/file.bin", Range="bytes=0-0")[0] == 206
        store.put("d/file.bin", b"b" * 12_000_000)
        # The first of them may find that the object has changed.
        answers = [server.ask("/files/file.bin", Range="bytes=11900000-11900000") for _ in range(2)]
        assert [(status, body) for status, _, body in answers[1:]] == [(206, b"b")]


class Meeting:
    """Requests for objects of this prefix wait until four are there together: one behind the other would be slow, and
    are told from what `most` says."""

    def __init__(self, store, prefix):
        self.prefix, self.there, self.now, self.most = prefix, threading.Condition(), 0, 0
        store.faults.append(self)

    def __call__(self, handler):
        if handler.path.startswith(self.prefix):
            with self.there:
                self.now += 1
                self.most = max(self.most, self.now)
                self.there.notify_all()
                self.there.wait_for(lambda: self.most >= 4, timeout=5)
                self.now -= 1
        return False


def test_chunks_of_an_episode_are_opened_at_once(store, tmp_path):
    """Requests for the chunks' fronts wait for each other here: one behind the other they would not be answered."""
    store, options = store
    whole = write_chunked(tmp_path, "whole.wshard", [3] * 12)
    for path in tmp_path.iterdir():
        store.put(f"d/{path.name}", path.read_bytes())
    meeting = Meeting(store, "/b/d/c")
    with mounted("s3://b/d", *options) as mnt:
        found = np.load(mnt / "whole.wshard/signal/a.npy")
    assert meeting.most >= 4
    assert found.tobytes() == np.concatenate([lanes["signal/a"][0] for lanes in whole]).tobytes()


def test_containers_of_a_walk_are_opened_ahead(store):
    """From the third on, those that come next in the listing are asked for before they are wanted; out of order, none."""
    store, options = store
    body = (FIXTURES / "ep_001.wshard").read_bytes()
    for number in range(64):
        store.put(f"d/{number:02}.wshard", body)
        store.put(f"e/{number:02}.wshard", body)

    def opened(folder):
        return {path for _, path in store.log if path.startswith(f"/b/{folder}/")}

    with mounted("s3://b/", *options) as mnt:
        for folder in "de":
            assert len(os.listdir(mnt / folder)) == 64
        for number in (40, 5, 60, 20, 31, 1):
            assert "signal" in os.listdir(mnt / f"e/{number:02}.wshard")
        time.sleep(0.5)
        assert opened("e") == {f"/b/e/{number:02}.wshard" for number in (40, 5, 60, 20, 31, 1)}
        for number in range(3):
            assert "signal" in os.listdir(mnt / f"d/{number:02}.wshard")
        wait_for(lambda: len(opened("d")) == 7)
        time.sleep(0.5)
        assert opened("d") == {f"/b/d/{number:02}.wshard" for number in range(7)}
        # Of the rest several are asked for at once, and each once.
        meeting = Meeting(store, "/b/d/")
        before = len(store.log)
        for number in range(64):
            assert "signal" in os.listdir(mnt / f"d/{number:02}.wshard")
        asked = sorted(path for _, path in store.log[before:] if path.startswith("/b/d/"))
        assert asked == [f"/b/d/{number:02}.wshard" for number in range(7, 64)]
        assert meeting.most >= 4


def test_walks_ahead_of_a_server_that_does_not_answer(store):
    """What they ask for ahead is held by no more than 64 threads, and containers that are answered open meanwhile."""
    store, options = store
    body = (FIXTURES / "ep_001.wshard").read_bytes()
    folders = [f"w{number:02}" for number in range(24)]
    for folder in folders:
        for number in range(12):
            store.put(f"{folder}/{number:02}.wshard", body)
    answers, asked = threading.Event(), []

    def hold(handler):
        if handler.path.startswith("/b/w") and int(handler.path.split("/")[3][:2]) >= 3:
            asked.append(handler.path)
            answers.wait(60)
        return False

    store.faults.append(hold)
    with mounted("s3://b/", *options) as mnt:
        for folder in folders:
            assert len(os.listdir(mnt / folder)) == 12
            for number in range(3):
                assert "signal" in os.listdir(mnt / folder / f"{number:02}.wshard")
        wait_for(lambda: len(set(asked)) == 64)
        assert len(os.listdir(mnt / folders[0])) == 12 and len(set(asked)) == 64
        answers.set()
        for folder in folders:
            for number in range(12):
                assert "signal" in os.listdir(mnt / folder / f"{number:02}.wshard")


@pytest.mark.parametrize("in_foreground", [False, True], ids=["daemon", "in the foreground"])
def test_sighup_asks_for_names_anew(store, in_foreground, tmp_path):
    """The process stays, and what is new is seen. In the foreground only where a log is to be opened again: without one
    SIGHUP is a terminal that went away."""
    store, options = store
    store.put("d/one.bin", b"1")
    options = [*options, "--dir-ttl=1h"]

    def check(mnt, pid):
        assert os.listdir(mnt) == ["one.bin"]
        store.put("d/two.bin", b"2")
        assert os.listdir(mnt) == ["one.bin"]
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: sorted(os.listdir(mnt)) == ["one.bin", "two.bin"])
        assert (mnt / "two.bin").read_bytes() == b"2"

    if in_foreground:
        with foreground("s3://b/d", *options, f"--log-file={tmp_path / 'log'}") as (mnt, daemon):
            check(mnt, daemon.pid)
            assert daemon.poll() is None
    else:
        with mounted("s3://b/d", *options) as mnt:
            check(mnt, daemon_of(mnt))
