"""A million containers on a hundred machines: what listing costs, measured with the listing that programs use, and
which order of reading the machines' caches can serve, simulated.

    scripts/bench_scale [--dir DIR] [--containers N] [--record NAME]

The containers are hard links of one small episode in folders of a thousand, in memory (/dev/shm): every name is looked
up, opened and recognised as on a disk, and the disk costs nothing. The simulation gives a hundred machines the
containers of an epoch in three ways, each machine with a cache of blocks for a hundredth of the data set, and counts
what has to be fetched. Needs numpy and the Python package.
"""

import argparse
import collections
import os
import pickle
import random
import shutil
import time
from pathlib import Path

import numpy as np
from support.writers import channel, meta_blocks, write_shard

from .timing import machine, record

FOLDER = 1000


def make(top, count):
    """`count` containers below `top`."""
    shutil.rmtree(top, ignore_errors=True)
    first = top / "00000/000.wshard"
    first.parent.mkdir(parents=True)
    state = np.zeros((16, 4), "<f4")
    blocks = meta_blocks("ep", 16, [channel("signal/state", "f32", [4])]) + [("signal/state", state.tobytes())]
    write_shard(first, blocks)
    for number in range(1, count):
        folder = top / f"{number // FOLDER:05}"
        if number % FOLDER == 0:
            folder.mkdir()
        os.link(first, folder / f"{number % FOLDER:03}.wshard")


def listing(top, rows):
    """Listing as `shardfs.walk` and `shardfs.cluster` do it; and of a part also opening."""
    import shardfs
    start, found, size = time.perf_counter(), 0, 0
    for each in shardfs.walk(top):
        found += 1
        if found % 1000 == 0:
            size += len(pickle.dumps(each.container))
    took = time.perf_counter() - start
    rows.append((f"listing {found:,} containers, one process", f"{took:.1f} s", f"{1e6 * took / found:.0f} us each"))
    rows.append(("a container as it travels to a worker", f"{size * 1000 // found} bytes", "pickled"))
    start, some = time.perf_counter(), 0
    for folder in sorted(top.iterdir())[:5]:
        for each in shardfs.walk(folder):
            some += len(each.container.info["items"]) > 0
    took = time.perf_counter() - start
    rows.append(("listing, opening and reading the table of items", f"{1e6 * took / some:.0f} us each", f"of {some:,}"))
    return found


class Cache:
    """The least recently used containers of a machine."""

    def __init__(self, size):
        self.size, self.kept, self.fetched = size, collections.OrderedDict(), 0

    def read(self, container):
        if container in self.kept:
            self.kept.move_to_end(container)
            return
        self.fetched += 1
        self.kept[container] = None
        if len(self.kept) > self.size:
            self.kept.popitem(last=False)


def orders(containers, machines, epochs, rng):
    """How an epoch's containers are given to machines: name, and for each epoch the list of each machine."""
    everything = list(range(containers))

    def anywhere():
        for _ in range(epochs):
            rng.shuffle(everything)
            yield [everything[machine::machines] for machine in range(machines)]

    def own(windows=1):
        for _ in range(epochs):
            parts = [list(range(machine, containers, machines)) for machine in range(machines)]
            for part in parts:
                rng.shuffle(part)
            # Windows of steps drawn from the whole part, in place of all windows of a container together.
            yield [[each for _ in range(windows) for each in rng.sample(part, len(part))] if windows > 1 else part
                   for part in parts]

    return {"a new shuffle of all containers over all machines": anywhere(),
            "each machine its own hundredth, shuffled each epoch": own(),
            "the same, four windows of each container at random times": own(4)}


def caches(rows, containers=100_000, machines=100, epochs=4):
    """What the machines fetch from the store in each epoch, as a part of the data set."""
    rng = random.Random(1)
    for room, what in ((1.0, "all of it"), (0.5, "half of it")):
        for name, epochs_of in orders(containers, machines, epochs, rng).items():
            kept = [Cache(int(room * containers / machines)) for _ in range(machines)]
            fetched = []
            for lists in epochs_of:
                before = sum(cache.fetched for cache in kept)
                for cache, list_ in zip(kept, lists):
                    for container in list_:
                        cache.read(container)
                fetched.append((sum(cache.fetched for cache in kept) - before) / containers)
            text = ", ".join(f"{part:.2f}" for part in fetched)
            rows.append((f"{name}; a cache for a hundredth of the data: {what}", text, "of the data, by epoch"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="/dev/shm/shardfs-scale", type=Path)
    parser.add_argument("--containers", type=int, default=1_000_000)
    parser.add_argument("--record", metavar="NAME")
    arguments = parser.parse_args()
    about, rows = machine(), []
    try:
        make(arguments.dir, arguments.containers)
        listing(arguments.dir, rows)
        caches(rows)
    finally:
        shutil.rmtree(arguments.dir, ignore_errors=True)
    text = "\n".join(["| work | measured | |", "|---|---:|---|", *(f"| {' | '.join(row)} |" for row in rows)])
    text = f"`scripts/bench_scale`.\n\n{about}\n\n{text}"
    print(text)
    if arguments.record:
        print(record(arguments.record, "A million containers", text))


if __name__ == "__main__":
    main()
