"""What tests and scripts share: where things are, mounts, checks of what a mount shows, writers of each format.

Independent of the program under test: it is only ever run, and what it shows is compared with what numpy, Pillow and
the rules written down here say.
"""

from . import grouped, typed
from .checks import (assert_one_line_error, assert_same_file, check_npy, load_npy, png_size, read_checked, read_in_pieces, seen_within,
                     sha256, wait_for, walk_files)
from .mounts import (as_ordinary_user, daemon_of, foreground, in_own_namespace, is_mounted, memory_of, mounted,
                     mounted_by, peak_memory, run, states_of, statistics_of, threads_of, unmount, within_limit)
from .paths import BIN, FAMILIES, FIXTURES, GOLDEN, RECORDINGS, ROOT, TIMEOUT, TYPED, load_expected
from .servers import address, certificates, serving

__all__ = [
    "BIN", "FAMILIES", "FIXTURES", "GOLDEN", "RECORDINGS", "ROOT", "TIMEOUT", "TYPED", "grouped", "load_expected", "typed",
    "as_ordinary_user", "daemon_of", "foreground", "in_own_namespace", "is_mounted", "memory_of", "mounted",
    "mounted_by", "peak_memory", "run", "states_of", "statistics_of", "threads_of", "unmount", "within_limit",
    "address", "certificates", "serving",
    "assert_one_line_error", "assert_same_file", "check_npy", "load_npy", "png_size", "read_checked", "read_in_pieces", "seen_within",
    "sha256", "wait_for", "walk_files",
]
