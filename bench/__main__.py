"""The command line of scripts/bench."""

import argparse
import sys

from .files import Tree
from .peers import peers, readers
from .rows import ROWS, Bench
from .timing import Table, machine, record_table

ABOUT = """Measure a mount against the same files in a plain folder, in one run.

    scripts/bench [--dir DIR] [--size MIB] [--containers N] [--folder N] [--rounds N]
                  [--modes cache,passthrough] [--rows again,small,...] [--peers] [--record WHAT]

Every row is measured in rounds, plain folder and mount by turns, and given as the median with the spread of the rounds.
Goals are ratios or times; each stands beside what was measured. `--peers` mounts the same files with squashfuse,
fuse-zip, archivemount and ratarmount where those are installed, and reads with kastore and tskit where those import.
`--record WHAT` writes the table to bench/record/DATE-WHAT.md.

Needs root, /dev/fuse, and numpy, zstandard, lz4, crc32c, xxhash, pillow (those of scripts/test). DIR (default:
/var/tmp/shardfs-bench) is kept, so that a second run begins at once.
"""


def main():
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench")
    parser.add_argument("--size", type=int, default=256, help="MiB of the large files")
    parser.add_argument("--containers", type=int, default=10_000)
    parser.add_argument("--folder", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="cache,passthrough")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--record", metavar="WHAT")
    arguments = parser.parse_args()
    about = machine()
    tree, table = Tree(arguments), Table()
    tree.make()
    bench = Bench(arguments, tree, table)
    for row in arguments.rows.split(","):
        for mode in arguments.modes.split(","):
            getattr(bench, row)(mode)
    if arguments.peers:
        peers(bench, tree, table)
        readers(bench, tree, table, arguments.modes.split(",")[0])
    if arguments.record:
        command = "scripts/bench " + " ".join(sys.argv[1:])
        print(record_table(arguments.record, arguments.record, f"`{command}`", about, table))


if __name__ == "__main__":
    main()
