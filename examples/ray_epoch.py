#!/usr/bin/env python3
"""Windows of episodes as a Ray data set: one epoch in random order.

    examples/ray_epoch.py data state=signal/joint_pos action=action/ctrl --length 8
    examples/ray_epoch.py data state=state front=images/front --length 4 --batch 16

SOURCE is a folder of containers, or a URL, that all workers can read. The names of episodes are shuffled over the
cluster, a hundred bytes each. A task reads one whole episode at a time and yields its windows. A local buffer mixes the
windows of several episodes in a batch. Training code can use `epoch(...)` as it is, or `.iter_torch_batches`.
"""

import argparse
import os
import pickle
import time

import numpy as np
import ray
import shardfs


def names_of(source, arrays):
    """Yields the episodes below a source that have all arrays, pickled by name."""
    for found in shardfs.walk(source):
        for episode in found.container.episodes or [found.container]:
            if all(name in episode for name in arrays.values()):
                yield pickle.dumps(episode)


class Windows:
    """Turns an episode into windows, one row for each."""

    def __init__(self, arrays, length, stride):
        self.arrays, self.length, self.stride = arrays, length, stride

    def __call__(self, row):
        episode = pickle.loads(row["episode"])
        whole = dict(zip(self.arrays, shardfs.read_many([episode[name] for name in self.arrays.values()], threads=1)))
        for start in range(0, min(map(len, whole.values())) - self.length + 1, self.stride):
            yield {name: array[start:start + self.length] for name, array in whole.items()}


def epoch(source, arrays, length=8, stride=1, seed=0):
    """Returns a Ray data set of all windows. `seed` sets the order of the episodes."""
    order = list(names_of(source, arrays))
    np.random.default_rng(seed).shuffle(order)
    blocks = max(1, min(len(order), 1000))
    episodes = ray.data.from_items([{"episode": name} for name in order], override_num_blocks=blocks)
    return episodes.flat_map(Windows(arrays, length, stride))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("arrays", nargs="+", metavar="NAME=ARRAY")
    parser.add_argument("--length", type=int, default=8, help="steps in a window")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--address", help="of a Ray cluster; the default starts one on this machine")
    args = parser.parse_args()
    ray.init(args.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    source = args.source if "://" in args.source else os.path.realpath(args.source)
    windows = epoch(source, dict(item.split("=", 1) for item in args.arrays), args.length)
    start, count = time.monotonic(), 0
    for batch in windows.iter_batches(batch_size=args.batch, local_shuffle_buffer_size=64, local_shuffle_seed=0):
        if count == 0:
            for name, array in batch.items():
                print(f"  {name}: {array.dtype} {array.shape}")
        count += len(next(iter(batch.values())))
    print(f"{count} windows of {args.length} steps in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
