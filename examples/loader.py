#!/usr/bin/env python3
"""Episodes as a data set for training, in windows of equal length, for several worker processes.

    shardfs mount fixtures mnt
    examples/loader.py mnt state=signal/joint_pos.npy action=action/ctrl.npy rgb=signal/cam0/rgb.npy
    examples/loader.py mnt state=state.npy action=action.npy rgb=images/front.npy --length 4
    examples/loader.py mnt state=observation.state.npy rgb=images/observation.images.front.npy --length 1

    examples/loader.py --no-mount fixtures state=signal/joint_pos.npy rgb=signal/cam0/rgb.npy

Each NAME=PATH is an array with one row for each step. Every folder that has all of these arrays is an episode. With
--no-mount, ROOT is a folder or URL of containers, and the Python package shardfs reads them. `Windows` is a map-style
data set and `Stream` an iterable one. torch.utils.data.DataLoader accepts both as they are; this program uses it if
torch is installed.
"""

import argparse
import functools
import io
import multiprocessing
import os
import time

import numpy as np

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:  # the data sets work without torch
    IterableDataset, get_worker_info = object, lambda: None


@functools.lru_cache(maxsize=64)
def open_array(episode, path):
    """Returns an array of an episode: a map, or a shardfs.Array. Only rows that are used are decoded. Each process
    opens its own."""
    if isinstance(episode, str):
        return np.load(os.path.join(episode, path), mmap_mode="r")
    return episode[path.removesuffix(".npy")]


@functools.lru_cache(maxsize=1024)
def layout(header):
    """Returns shape, order and dtype of a header of version 1. numpy interprets it as Python, which takes longer than to
    read a small array; those of one kind have the same header."""
    return np.lib.format.read_array_header_1_0(io.BytesIO(header[8:]))


def read_array(path):
    """Returns a whole array by one read, as `np.load` does, in a quarter of its time for small arrays."""
    with open(path, "rb", buffering=0) as file:
        data = file.readall()
    if data[:8] != b"\x93NUMPY\x01\x00":
        return np.load(path)
    end = 10 + int.from_bytes(data[8:10], "little")
    shape, is_fortran, dtype = layout(data[:end])
    return np.frombuffer(data, dtype, offset=end).reshape(shape, order="F" if is_fortran else "C")


def whole_array(episode, path):
    """Returns all of an array of an episode."""
    return read_array(os.path.join(episode, path)) if isinstance(episode, str) else np.array(open_array(episode, path))


class Windows:
    """All windows of `length` steps of all episodes below `root`: folders of a mount, or with `mount=False` containers.

    Only names of episodes and their lengths are pickled for a worker; each worker opens the arrays itself. Episodes are
    left out if their arrays differ in the number of steps, or have fewer than `length`.
    """

    def __init__(self, root, arrays, length=8, stride=1, mount=True):
        self.arrays, self.length, self.stride = dict(arrays), length, stride
        self.episodes = []
        ends = []
        for episode in (episodes if mount else contained_episodes)(root, self.arrays.values()):
            steps = {open_array(episode, path).shape[0] for path in self.arrays.values()}
            if len(steps) == 1 and max(steps) >= length:
                self.episodes.append(episode)
                ends.append((max(steps) - length) // stride + 1)
        self.ends = np.cumsum(ends, dtype=np.int64)

    def __len__(self):
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, index):
        """A window: each array by its name, copied out of the map."""
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        episode = int(np.searchsorted(self.ends, index, side="right"))
        start = (index - (int(self.ends[episode - 1]) if episode else 0)) * self.stride
        return {name: np.array(open_array(self.episodes[episode], path)[start:start + self.length])
                for name, path in self.arrays.items()}


class Stream(IterableDataset):
    """Iterates over the same windows: episodes in random order, the windows of an episode in their own order. Each
    episode is read at once. Of n workers each gets every n-th episode. Another `epoch` gives another order."""

    def __init__(self, windows, seed=0):
        self.windows, self.seed, self.epoch = windows, seed, 0

    def __iter__(self):
        data, (worker, workers) = self.windows, which_worker()
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(data.episodes))
        for number in order[worker::workers]:
            whole = {name: whole_array(data.episodes[number], path) for name, path in data.arrays.items()}
            steps = len(next(iter(whole.values())))
            for start in range(0, steps - data.length + 1, data.stride):
                yield {name: array[start:start + data.length] for name, array in whole.items()}


def which_worker():
    """Returns the number of this worker of a DataLoader, and the number of workers."""
    info = get_worker_info()
    return (info.id, info.num_workers) if info else (0, 1)


def episodes(root, paths):
    """Returns the folders below `root` that have all of `paths`, in order."""
    found = []
    for folder, inner, _ in os.walk(root):
        inner.sort()
        if all(os.path.isfile(os.path.join(folder, path)) for path in paths):
            found.append(folder)
            inner.clear()  # an episode contains no other
    return found


def contained_episodes(source, paths):
    """Yields the containers below a folder or URL, or the episodes in them, that have all of `paths`, in order."""
    import shardfs
    names = [path.removesuffix(".npy") for path in paths]
    for found in shardfs.walk(source):
        for episode in found.container.episodes or [found.container]:
            if all(name in episode for name in names):
                yield episode


def collate(items):
    """Joins windows to one batch: arrays with one more dimension in front."""
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


class _Load:
    """Makes a batch in a worker. The data set is sent once to each worker, not with each batch."""

    data = None

    @classmethod
    def start(cls, data):
        cls.data = data

    @classmethod
    def batch(cls, indices):
        return collate([cls.data[index] for index in indices])


def batches(data, size, workers=4, seed=0):
    """Yields all windows once, in random order, as batches that `workers` processes load."""
    order = np.random.default_rng(seed).permutation(len(data))
    parts = [order[at:at + size].tolist() for at in range(0, len(order), size)]
    # 'spawn' works with threads and on every system.
    with multiprocessing.get_context("spawn").Pool(workers, _Load.start, [data]) as pool:
        yield from pool.imap(_Load.batch, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="a mount, or a folder in one; with --no-mount the containers themselves")
    parser.add_argument("arrays", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--no-mount", action="store_true", help="ROOT is a folder or URL of containers")
    parser.add_argument("--length", type=int, default=8, help="steps in a window")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    arrays = [item.split("=", 1) for item in args.arrays]
    data = Windows(args.root, arrays, args.length, mount=not args.no_mount)
    print(f"{len(data.episodes)} episodes, {len(data)} windows of {args.length} steps")
    if not len(data):
        raise SystemExit("no episode has all of these arrays in windows of that length")
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        loader = batches(data, args.batch, args.workers)
    else:
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=args.workers)
    start, count, size = time.monotonic(), 0, 0
    for batch in loader:
        if count == 0:
            for name, array in batch.items():
                print(f"  {name}: {array.dtype} {tuple(array.shape)}")
        count += 1
        size += sum(np.asarray(array).nbytes for array in batch.values())
    print(f"{count} batches, {size / 1e6:.1f} MB in {time.monotonic() - start:.2f} s, the start of the workers included")


if __name__ == "__main__":
    main()
