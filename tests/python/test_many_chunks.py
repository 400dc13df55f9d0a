"""Manifests that list 25,000 chunks: one that lists the same file again and again is not joined, one of different files
is, and the joining ends with the reader that asked for it.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

import crc32c
import numpy as np
import pytest

from support import GOLDEN, mounted, statistics_of, writers

CHUNKS = 25_000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """SOURCE: three folders with a manifest each."""
    top = tmp_path_factory.mktemp("chunks")
    again = top / "again"
    again.mkdir()
    chunk = (GOLDEN / "wshard/chunked_py/long_ep_chunk_0000.wshard").read_bytes()
    (again / "chunk.wshard").write_bytes(chunk)
    digest = hashlib.sha256(chunk).digest()
    writers.write_manifest(again / "m.wshard", "long", [("chunk.wshard", digest, 64)] * CHUNKS)
    # By other names of the same file.
    linked = top / "linked"
    linked.mkdir()
    names = [f"{number}.wshard" for number in range(CHUNKS)]
    (linked / names[0]).write_bytes(chunk)
    for name in names[1:300]:
        os.link(linked / names[0], linked / name)
    writers.write_manifest(linked / "m.wshard", "long", [(name, digest, 64) for name in names])
    # The first row of each chunk's one array is the chunk's number.
    different = top / "different"
    different.mkdir()
    template = different / names[0]
    mark = b"\xa5\x5a\xc3\x3c\x0f\xf0\x96\x69"
    blocks = writers.meta_blocks("long", 1, [writers.channel("signal/x", "int64", [])])
    writers.write_shard(template, [*blocks, ("signal/x", mark)])
    data = template.read_bytes()
    listed = []
    for number, name in enumerate(names):
        row = number.to_bytes(8, "little")
        made = data.replace(mark, row).replace(checksum(mark), checksum(row))
        (different / name).write_bytes(made)
        listed.append((name, hashlib.sha256(made).digest(), 1))
    writers.write_manifest(different / "m.wshard", "long", listed)
    return top


def checksum(data):
    return crc32c.crc32c(data).to_bytes(4, "little")


def problems(mnt):
    return [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("folder", ["again", "linked"])
def test_a_file_that_is_listed_again_is_not_joined(folder, source):
    with mounted(source) as mnt:
        assert sorted(os.listdir(mnt / folder / "m.wshard")) == ["container.json", "meta"]
        text = [problem["message"] for problem in problems(mnt) if "no joined view" in problem["message"]]
        assert len(text) == 1 and "chunk" in text[0], text
        assert ("the file of another chunk" in text[0]) == (folder == "linked"), text
        # Nothing was opened for the rest of the list.
        assert statistics_of(mnt)["containers_open"] <= 300


def test_joining_ends_with_its_reader_and_others_get_it_whole(source):
    with mounted(source) as mnt:
        asks = subprocess.Popen([sys.executable, "-c", "import os, sys; os.listdir(sys.argv[1])",
                                 mnt / "different/m.wshard/signal"])
        while statistics_of(mnt)["containers_open"] < 50:
            assert asks.poll() is None, "joined before it could be interrupted"
            time.sleep(0.01)
        asks.kill()
        assert asks.wait(60) < 0
        assert not problems(mnt)
        data = np.load(mnt / "different/m.wshard/signal/x.npy")
        assert data.shape == (CHUNKS,) and np.array_equal(data, np.arange(CHUNKS))
        assert not problems(mnt)
