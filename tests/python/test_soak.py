"""`scripts/soak` for most of a minute: readers, changes and kills at once."""

import json
import os
import subprocess
import sys

from support import BIN, ROOT


def test_soak():
    done = subprocess.run([sys.executable, ROOT / "scripts/soak", "0.6"], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=180, env={**os.environ, "SHARDFS_BIN": BIN})
    assert done.stdout, done.stderr.decode()
    record = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(record, indent=2)
    assert record["readers"] == 64 and record["wrong"] == 0 and record["stuck"] == 0
    assert record["events"]["kills"] >= 1 and record["events"]["reads"] > 100
