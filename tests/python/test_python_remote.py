"""The Python package over a bucket: the same arrays as of the files, in processes that are forked and spawned, and
chained in fsspec."""

import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import fsspec
import numpy as np
import pytest
from fsspec.registry import _registry as fsspec_registry
from fsspec.spec import AbstractFileSystem

import shardfs as sh
from support import FIXTURES
from support.stores import KEYS, Store
from test_remote_web import answering, files_of

CONTAINERS = ["ep_001.wshard", "demo.kdb", "tree_sequence.trees", "table.idv", "table.kast"]


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket with examples: (the store, its address)."""
    store = Store()
    for name in CONTAINERS:
        store.put(f"set/{name}", (FIXTURES / name).read_bytes())
    with store.serving() as endpoint:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1",
                            "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(name, value)
        sh.set_cache_size(None)
        yield store, "s3://b/set"


@pytest.mark.parametrize("name", CONTAINERS)
def test_arrays_are_those_of_the_file(bucket, name):
    there, here = sh.open(f"{bucket[1]}/{name}"), sh.open(FIXTURES / name)
    assert list(there) == list(here) and len(list(here)) > 1
    for array, known in zip(sh.read_many([there])[0].values(), sh.read_many([here])[0].values()):
        assert array.dtype == known.dtype and array.shape == known.shape and array.tobytes() == known.tobytes()


def test_a_set_is_walked(bucket):
    found = {each.path.rpartition("/")[2]: each.format for each in sh.walk(bucket[1])}
    assert found == {name: sh.open(FIXTURES / name).format for name in CONTAINERS}


def sums(container, number):
    return os.getpid(), float(np.asarray(container["signal/joint_pos"])[number:].sum())


@pytest.mark.parametrize("method", ["spawn"])
def test_workers(bucket, method):
    """Opened in the parent, whose other threads are waiting for the bucket when it forks."""
    container = sh.open(f"{bucket[1]}/ep_001.wshard")
    known = np.asarray(container["signal/joint_pos"])
    done = threading.Event()

    def busy():
        while not done.is_set():
            sh.open(f"{bucket[1]}/demo.kdb").episodes[0]["state"][0]

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        with multiprocessing.get_context(method).Pool(2) as pool:
            jobs = [(container, number) for number in range(8)]
            found = pool.starmap_async(sums, jobs, chunksize=1).get(120)
    finally:
        done.set()
        thread.join(60)
    assert os.getpid() not in {process for process, _ in found}
    assert [total for _, total in found] == [float(known[number:].sum()) for number in range(8)]
    assert np.array_equal(container["signal/joint_pos"][3], known[3])


class NeverAsked(AbstractFileSystem):
    """In place of the filesystem for buckets that fsspec would import."""

    protocol = "s3"
    ls = info = cat_file = _open = None


def test_a_chained_filesystem(bucket, monkeypatch):
    """fsspec's own filesystem for buckets is not asked: shardfs reads addresses itself."""
    monkeypatch.setitem(fsspec_registry, "s3", NeverAsked)
    url = f"shardfs://ep_001.wshard/signal/joint_pos.npy::{bucket[1]}"
    with fsspec.open(url) as file:
        array = np.load(file)
    assert np.array_equal(array, sh.open(FIXTURES / "ep_001.wshard")["signal/joint_pos"])
    fs = fsspec.filesystem("shardfs", source=bucket[1])
    assert sorted(os.path.basename(name) for name in fs.ls("", detail=False)) == sorted(CONTAINERS)
    assert fs.info("demo.kdb")["format"] == "kdb"


INTO = ["robot.h5/data", "robot.h5/data/demo_0/actions", "robot.h5/data/demo_0/actions.npy", "ep_001.wshard/signal/joint_pos",
        "cells.zarr/image", "ep_001.wshard/signal"]


def test_addresses_lead_into_containers(bucket):
    store, address = bucket
    for path in [FIXTURES / "robot.h5", *(FIXTURES / "cells.zarr").rglob("*")]:
        if path.is_file():
            store.put(f"set/{path.relative_to(FIXTURES)}", path.read_bytes())
    for path in INTO:
        there, here = sh.open(f"{address}/{path}"), sh.open(FIXTURES / path)
        assert type(there) is type(here) and there.path == f"{address}/{here.path.removeprefix(f'{FIXTURES}/')}", path
        assert list(there) == list(here) if isinstance(here, sh.Group) else np.array_equal(there[...], here[...]), path
        assert there.file.path == f"{address}/{path.partition('/')[0]}" and pickle.loads(pickle.dumps(there)) == there
    # Whoever names a container, or what is in it, asks for the front of that file alone.
    for path in ("robot.h5", "demo.kdb", "robot.h5/data", INTO[1]):
        sh.set_cache_size(None)
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
        store.counts()
        sh.open(f"{address}/{path}")
        assert store.counts() == (0, 1), path
    for path in ("robot.h5/nothing", "robot.h5/data/nothing/at/all", "nothing.h5/data", "notes.txt/x", "nothing"):
        with pytest.raises(sh.NotFound) as error:
            sh.open(f"{address}/{path}")
        assert str(error.value).startswith(address)
    fs = fsspec.filesystem("shardfs", source=f"{address}/robot.h5/data")
    assert fs.ls("", detail=False) == fsspec.filesystem("shardfs", source=FIXTURES / "robot.h5/data").ls("", detail=False)
    assert fs.exists("demo_0/actions.npy") and not fs.exists("demo_0/nothing.npy")


def test_a_container_in_a_folder_that_is_one(bucket):
    """That the folder of a named file is a container is found out when it is needed."""
    store, address = bucket
    for path in (FIXTURES / "cells.zarr").rglob("*"):
        if path.is_file():
            store.put(f"set/{path.relative_to(FIXTURES)}", path.read_bytes())
    store.put("set/cells.zarr/robot.h5", (FIXTURES / "robot.h5").read_bytes())
    assert list(sh.open(f"{address}/cells.zarr/robot.h5")) == list(sh.open(FIXTURES / "robot.h5"))
    # A server in this process answers only if nothing waits for it with the interpreter's lock.
    for path in ("cells.zarr/image", "cells.zarr"):
        assert sh.open(f"{address}/{path}").file.path == f"{address}/cells.zarr"


@pytest.mark.parametrize("refused", [403, 404, 500])
def test_a_named_file_is_all_that_is_asked_for(refused):
    """Neither its folder nor what would make that a container, which the server may refuse."""
    files = {"/set/robot.h5": (FIXTURES / "robot.h5").read_bytes()}
    for path in ("robot.h5", "robot.h5/data/demo_0/actions"):
        sh.set_cache_size(None)
        with answering(files_of(files, refused=refused)) as (web, asked):
            there, here = sh.open(f"{web}/set/{path}"), sh.open(FIXTURES / path)
            assert type(there) is type(here)
        # Where an answer has no entity tag, the file's state is asked for once more.
        assert asked[0] == ("GET", "/set/robot.h5") and {path for _, path in asked} == {"/set/robot.h5"} and len(asked) <= 2


@pytest.mark.parametrize("refused", [403, 404])
def test_addresses_of_the_web_lead_into_containers(refused):
    """Below a file, servers have nothing or say that it is forbidden."""
    there, names = (FIXTURES / "robot.h5").read_bytes(), ["my%20set/robot.h5/data/demo_0", "my%20set/robot.h5/data/demo_0/actions.npy"]
    files = files_of({"/my set/robot.h5": there}, refused=refused)
    signed = lambda handler: files(handler) if "sig=a/b" in handler.path else handler.answer(403)  # noqa: E731
    for give, query in ((files, ""), (signed, "?sig=a/b")):
        with answering(give) as (web, _):
            group, array = (sh.open(f"{web}/{name}{query}") for name in names)
            here = sh.open(FIXTURES / "robot.h5/data/demo_0")
            assert list(group) == list(here) and np.array_equal(array[...], here["actions"][...])
            assert array.path == f"{web}/my%20set/robot.h5/data/demo_0/actions.npy"


def test_another_object_is_changed(bucket):
    store, address = bucket
    container = sh.open(f"{address}/ep_001.wshard")
    held = container["signal/joint_pos"]
    first = held[0]
    store.put("set/ep_001.wshard", (FIXTURES / "ep_002_lz4.wshard").read_bytes())
    sh.set_cache_size(None)
    with pytest.raises((sh.Changed, sh.NotFound)):
        held[...]
    assert np.array_equal(first, sh.open(FIXTURES / "ep_001.wshard")["signal/joint_pos"][0])


@pytest.mark.parametrize("url, said", [("s3://", "s3://: open: write s3://BUCKET/KEY"),
                                       ("foo://bar", "foo://bar: not a URL that is known; they begin with s3://, ")])
def test_addresses_that_are_none_are_named_once(url, said):
    with pytest.raises(OSError) as error:
        sh.open(url)
    assert str(error.value).removeprefix("[Errno 5] ").startswith(said)


def test_addresses_that_are_none_are_exceptions_without_their_secrets():
    store = Store()
    with store.serving() as endpoint:
        for url in ("http://h:99999/x.kdb", "http://xn--/x.kdb", "http://joe:geheim@a:b/x.kdb", "s3://KEY:geheim@bucket/x.kdb",
                    endpoint.replace("//", "//joe:geheim@") + "/b/x.kdb?token=geheim"):
            # Not a BaseException, as PyO3's own of a panic is.
            with pytest.raises(Exception) as error:
                sh.open(url)
            assert "geheim" not in f"{error.value!s} {error.value!r} {error.value.__dict__}", url


@pytest.mark.parametrize("call", ["shardfs.open({!r} + 'x.kdb')",
                                  "fsspec.open('shardfs://x.kdb/info.json', source={!r}).open()"])
def test_ctrl_c_ends_waiting_for_a_server(call):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        call = call.format(f"http://127.0.0.1:{server.getsockname()[1]}/")
        # A program in the background of a shell begins without this handler.
        code = ("import fsspec, shardfs, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                f"try:\n    {call}\nexcept KeyboardInterrupt:\n    print('interrupted')")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            # The request has come, and gets no answer.
            try:
                with server.accept()[0]:
                    process.send_signal(signal.SIGINT)
                    begun = time.monotonic()
                    said, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        assert said == "interrupted\n" and time.monotonic() - begun < 10


@pytest.mark.parametrize("refused", [403, 404])
def test_addresses_are_those_of_the_command(bucket, refused):
    """Escapes, a query, and a folder that the server does not list."""
    store, address = bucket
    there = (FIXTURES / "ep_001.wshard").read_bytes()
    known = list(sh.open(FIXTURES / "ep_001.wshard"))
    files = files_of({"/d/my ep.wshard": there}, refused=refused)
    signed = lambda handler: files(handler) if "sig=a/b" in handler.path else handler.answer(403)  # noqa: E731
    with answering(files) as (web, _):
        assert list(sh.open(f"{web}/d/my%20ep.wshard")) == known
    with answering(signed) as (web, _):
        container = sh.open(f"{web}/d/my%20ep.wshard?sig=a/b")
        assert list(container) == known and "sig=" not in container.path
    store.put("set/50%.wshard", there)
    store.faults = [lambda handler: "list-type" in handler.path and (handler.fail(refused, "AccessDenied") or True)]
    assert list(sh.open(f"{address}/50%.wshard")) == known
