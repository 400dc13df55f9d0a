"""`scripts/soak` for a short time in each mode: readers, changes and kills at once, under a limit of memory; and
`scripts/soak_hostile`: a store that lies, and clients that attack the server."""

import json
import os
import subprocess
import sys

import pytest

from support import BIN, ROOT


@pytest.mark.parametrize("mode,spill", [("cache", False), ("passthrough", False), ("cache", True)])
def test_soak(mode, spill):
    # In the group of processes that the kernel limits a budget of 64 MiB has 64 MiB beside it, as docs/TUNING.md says.
    limit = ["--cache-size", "64M", "--beside", "64M"] if os.geteuid() == 0 else []
    if spill and os.geteuid() == 0:
        # Neither memory nor the disk for decoded blocks has room for all.
        limit = ["--cache-size", "2M", "--spill", "3M"]
    done = subprocess.run([sys.executable, ROOT / "scripts/soak", "0.3", "--serve", mode, *limit],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=180,
                          env={**os.environ, "SHARDFS_BIN": BIN})
    assert done.stdout, done.stderr.decode()
    record = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(record, indent=2)
    assert record["readers"] == 64 and record["wrong"] == 0 and record["stuck"] == 0
    assert record["events"]["kills"] >= 1 and record["events"]["reads"] > 100


def test_soak_hostile():
    done = subprocess.run([sys.executable, ROOT / "scripts/soak_hostile", "0.25"], stdin=subprocess.DEVNULL, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "SHARDFS_BIN": BIN})
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["wrong"] == 0 and record["stuck"] == 0, json.dumps(record, indent=2)
    assert sum(record["strikes"].values()) > 20 and sum(record["kernel_kills"].values()) == 0
    assert all(record["counts"][f"{where} right"] > 20 for where in ("s3", "http", "server"))
