"""Measures a mount against the same files in a plain folder: `scripts/bench`.

files.py makes what is read, timing.py times and tabulates, rows.py has a method for each row of the table, peers.py
measures other programs, episodes.py one KDB file of many episodes, first_touch.py and beyond_memory.py epochs of training.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
