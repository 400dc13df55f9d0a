"""Where the program, the golden files and the examples are."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = str(Path(os.environ.get("SHARDFS_BIN", ROOT / "target" / "release" / "shardfs")).resolve())
GOLDEN = ROOT / "tests" / "golden"
FIXTURES = ROOT / "fixtures"
# Formats whose `expected.json` has the form of `tests/golden/treespec.py`; the others have their own.
TYPED = ("safetensors", "npz", "pt", "gguf", "netcdf")
RECORDINGS = ("mcap", "rosbag")
FAMILIES = ("wshard", "kastore", "kast", "kdb", "idv", *TYPED, *RECORDINGS)
# Seconds that a command of shardfs may take.
TIMEOUT = 60


def load_expected(family):
    """What `expected.json` says of each golden file of a format, by path."""
    return json.loads((GOLDEN / family / "expected.json").read_text(encoding="utf-8"))["files"]
