"""Many machines: a real Dask scheduler with worker processes, the examples on it, and a worker that is killed."""

import contextlib
import importlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys

import dask.array
import numpy as np
import pytest
from distributed import Client

import shardfs as sh
import shardfs.cluster
from support import BIN, FIXTURES, ROOT, run
from test_python_arrays import BLOCKS, block_places, episode_of

EXAMPLES = ROOT / "examples"


@contextlib.contextmanager
def cluster(workers=2, **env):
    """A scheduler and worker processes: its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    paths = [str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SHARDFS_COMMAND": str(BIN), **env,
           "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3"}
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    of_dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    processes = [subprocess.Popen([*of_dask, "--port", str(port), "--no-dashboard"], **silent)]
    try:
        for _ in range(workers):
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
            processes.append(subprocess.Popen([*worker, "--no-dashboard", "--death-timeout", "180"], **silent))
        with Client(address, timeout=180) as client:
            client.wait_for_workers(workers, timeout=180)
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait(20)


@pytest.fixture(scope="module")
def scheduler():
    with cluster() as address:
        yield address


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def data_set(tmp_path):
    """Ten episodes in two folders, and what is in them."""
    wanted = []
    for number in range(10):
        rng = np.random.default_rng(number)
        arrays = {"signal/joint_pos": rng.normal(number, 2, (20 + number, 3)).astype("<f4")}
        folder = tmp_path / "data" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        episode_of(folder / f"{number}.wshard", arrays, ["none", "zstd", "lz4"][number % 3])
        wanted.append(arrays["signal/joint_pos"])
    return tmp_path / "data", wanted


def damage(path, name):
    data = bytearray(path.read_bytes())
    offset, size = block_places(bytes(data))[name]
    data[offset + size // 2] ^= 0xFF
    path.unlink()
    path.write_bytes(data)


def test_statistics_are_numpys(example, scheduler, data_set):
    folder, wanted = data_set
    damage(folder / "a/4.wshard", "signal/joint_pos")
    dask_stats = example("dask_stats")
    with Client(scheduler) as client:
        found, damaged = dask_stats.statistics(client, str(folder), ["signal/joint_pos", "nothing"])
        pids = set(client.run(os.getpid).values())
    rows = np.concatenate([rows for number, rows in enumerate(wanted) if number != 4]).astype("f8")
    count, mean, deviation = found.pop("signal/joint_pos")
    assert count == len(rows) and not found and len(pids) == 2 and os.getpid() not in pids
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-9)
    np.testing.assert_allclose(deviation, rows.std(0), rtol=1e-9)
    assert len(damaged) == 1 and damaged[0].startswith(str(folder / "a/4.wshard"))


def test_statistics_as_a_program(scheduler):
    command = [sys.executable, EXAMPLES / "dask_stats.py", FIXTURES, "signal/joint_pos", "--scheduler", scheduler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = np.concatenate([sh.open(FIXTURES / name)["signal/joint_pos"][...] for name in
                           ("ep_001.wshard", "ep_002_lz4.wshard", "stream.wshard")
                           if "signal/joint_pos" in sh.open(FIXTURES / name)])
    assert lines[0] == f"signal/joint_pos: {len(rows)} rows" and lines[-1].startswith("damaged: ")
    assert lines[1].split()[1:] == [f"{value:.4g}" for value in rows.astype("f8").mean(0)]


def test_dask_arrays_are_lazy(scheduler, tmp_path):
    cube = BLOCKS["signal/cube"]
    array = sh.open(episode_of(tmp_path / "ep.wshard", BLOCKS))["signal/cube"]
    lazy = dask.array.from_array(array, chunks=(8, -1, -1, -1))
    assert (lazy.shape, lazy.dtype, lazy.numblocks[0]) == (cube.shape, cube.dtype, 5)
    assert array._held is None, "nothing was decoded"
    with Client(scheduler):
        assert np.array_equal(lazy.mean(axis=0).compute(), cube.mean(axis=0))
        assert np.array_equal(lazy[3:9, 1].compute(), cube[3:9, 1])
    assert array._held is None
    assert dask.array.from_array(array, chunks=8).name == dask.array.from_array(array, chunks=8).name
    # A chunk decodes its own frames only: one that is damaged fails alone.
    front = sh.open(FIXTURES / "demo.kdb").episodes[0].images["front"].array
    lazy = dask.array.from_array(front, chunks=(2, -1, -1, -1))
    assert np.array_equal(lazy.max(axis=(1, 2, 3)).compute(scheduler="threads"), front[...].max(axis=(1, 2, 3)))


def verified(source, address, *options):
    """`shardfs.cluster verify`: exit code, the objects that it printed, what it said on stderr."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = shardfs.cluster.main(["verify", str(source), "--scheduler", address, "--timeout", "180", *options])
    return code, [json.loads(line) for line in out.getvalue().splitlines()], said.getvalue()


def in_order(problems):
    return sorted(problems, key=lambda problem: json.dumps(problem, sort_keys=True))


def test_verify_says_what_the_command_says(scheduler, data_set):
    folder, _ = data_set
    assert verified(folder, scheduler) == (0, [], "")
    damage(folder / "a/4.wshard", "signal/joint_pos")
    damage(folder / "b/7.wshard", "signal/joint_pos")
    (folder / "b/refused.kdb").write_bytes(b"KINO" + b"\xff" * 300)
    (folder / "plain.txt").write_text("plain")
    code, problems, said = verified(folder, scheduler, "--batch", "2")
    alone = run("verify", "--json", folder)
    assert (code, alone.returncode) == (1, 1), said
    assert in_order(problems) == in_order(json.loads(alone.stdout)["problems"]) and len(problems) == 3
    code, problems, said = verified(folder / "nothing", scheduler)
    assert (code, problems) == (2, []) and str(folder / "nothing") in said
    # Nobody answers at that address.
    assert shardfs.cluster.main(["verify", str(folder), "--scheduler", "tcp://127.0.0.1:9", "--timeout", "2"]) == 2
    (folder / "empty").mkdir()
    assert verified(folder / "empty", scheduler)[:2] == (2, [])


def test_a_worker_that_is_killed(data_set, tmp_path):
    """The program kills the worker that runs it, once: the other worker does that piece of work again."""
    folder, _ = data_set
    damage(folder / "a/4.wshard", "signal/joint_pos")
    flag, program = tmp_path / "killed", tmp_path / "shardfs"
    program.write_text(f'#!/bin/sh\nif mkdir {flag} 2>/dev/null; then kill -9 $PPID; exit 9; fi\nexec {BIN} "$@"\n')
    program.chmod(0o755)
    with cluster(SHARDFS_COMMAND=str(program)) as address:
        code, problems, said = verified(folder, address, "--batch", "1")
        with Client(address) as client:
            assert len(client.scheduler_info()["workers"]) == 1, "one worker is gone"
    assert code == 1 and flag.is_dir(), said
    assert in_order(problems) == in_order(json.loads(run("verify", "--json", folder).stdout)["problems"])


def test_copies(scheduler, data_set, tmp_path):
    folder, wanted = data_set
    command = [sys.executable, "-m", "shardfs.cluster", "cp", folder, tmp_path / "out", "--scheduler", scheduler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for number, rows in enumerate(wanted):
        found = np.load(tmp_path / "out" / "ab"[number % 2] / f"{number}.wshard/signal/joint_pos.npy")
        assert np.array_equal(found, rows)
    shutil.rmtree(tmp_path / "out")
