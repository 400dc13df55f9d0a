"""`.file` in every container: the container's own bytes, for programs that want the file and not its folder."""

import errno
import os
import shutil

import numpy as np
import pytest
import tskit

from support import FAMILIES, FIXTURES, GOLDEN, mounted, read_checked, run, sha256, wait_for


def containers(mnt, source):
    """The folders that stand for containers, with the containers' files."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and (mnt / path.relative_to(source)).is_dir():
            yield mnt / path.relative_to(source), path


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
@pytest.mark.parametrize("source", [*(GOLDEN / family for family in FAMILIES), FIXTURES], ids=lambda path: path.name)
def test_it_is_the_file(source, serve):
    count = 0
    with mounted(source, f"--serve={serve}") as mnt:
        for folder, path in containers(mnt, source):
            assert ".file" not in os.listdir(folder)
            data = read_checked(folder / ".file")
            assert sha256(data) == sha256(path.read_bytes()), path
            assert os.stat(folder / ".file").st_mtime_ns == path.stat().st_mtime_ns
            # Again, and mapped, at odd places.
            rng = np.random.default_rng(len(data))
            mapped = np.memmap(folder / ".file", mode="r")
            with open(folder / ".file", "rb") as file:
                for _ in range(20):
                    at, length = int(rng.integers(0, len(data) + 10)), int(rng.integers(0, 9000))
                    assert os.pread(file.fileno(), length, at) == data[at:at + length]
                    assert mapped[at:at + length].tobytes() == data[at:at + length]
            count += 1
    assert count > 5


def test_tskit_loads_it(fixtures_mount):
    loaded = tskit.load(fixtures_mount / "tree_sequence.trees/.file")
    assert loaded == tskit.load(FIXTURES / "tree_sequence.trees")


def test_damage_is_no_matter():
    """What is handed out is what is stored, whatever the checksums say."""
    bad = FIXTURES / "damaged/bad_crc.wshard"
    with mounted(FIXTURES) as mnt:
        assert (mnt / "damaged/bad_crc.wshard/.file").read_bytes() == bad.read_bytes()
        assert "bad_crc.wshard" not in (mnt / ".shardfs/problems.jsonl").read_text()


def test_source_itself():
    with mounted(FIXTURES / "ep_001.wshard") as mnt:
        assert (mnt / ".file").read_bytes() == (FIXTURES / "ep_001.wshard").read_bytes()
        assert ".file" not in os.listdir(mnt)
        assert not (mnt / "signal/.file").exists()


def test_without_a_mount(tmp_path):
    path = FIXTURES / "weights.shard"
    assert run("cat", path / ".file", check=True).stdout == path.read_bytes()
    run("cp", path / ".file", tmp_path / "copy", check=True)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_a_stored_name_wins(writers, tmp_path):
    rows = np.arange(3, dtype="<i4")
    (tmp_path / "odd.kas").write_bytes(writers.kastore({".file/x": rows, "y": rows}))
    with mounted(tmp_path) as mnt:
        assert os.path.isdir(mnt / "odd.kas/.file")
        assert (np.load(mnt / "odd.kas/.file/x.npy") == rows).all()


@pytest.mark.parametrize("serve", ["cache", "passthrough"])
def test_a_file_that_changed_is_stale(tmp_path, serve):
    path = tmp_path / "ep.wshard"
    shutil.copy(FIXTURES / "ep_001.wshard", path)
    with mounted(tmp_path, f"--serve={serve}") as mnt, open(mnt / "ep.wshard/.file", "rb") as file:
        assert os.pread(file.fileno(), 100, 0) == path.read_bytes()[:100]
        # Into the same file: who has it open must not see a mix. The end was not read yet.
        with open(path, "r+b") as own:
            own.write((FIXTURES / "ep_002_lz4.wshard").read_bytes())
            own.truncate()
        with pytest.raises(OSError) as raised:
            os.pread(file.fileno(), 100, 150_000)
        assert raised.value.errno == errno.ESTALE

        def is_new():
            try:
                return (mnt / "ep.wshard/.file").read_bytes() == path.read_bytes()
            except OSError as error:
                # Its time moved while it was opened.
                assert error.errno == errno.ESTALE
                return False

        wait_for(is_new, what="the new state")
