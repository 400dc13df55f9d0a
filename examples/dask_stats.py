#!/usr/bin/env python3
"""Computes mean and standard deviation of each channel over all episodes of a data set on a cluster, and lists damaged
episodes.

    examples/dask_stats.py data signal/joint_pos action/ctrl --scheduler tcp://HOST:8786
    examples/dask_stats.py data state action

SOURCE is a folder of containers, or a URL, that all workers can read. Without --scheduler the workers are processes of
this machine. Each array has one row for each step, and one channel for each element of a row. Only names of episodes
and a few numbers travel between machines; the data go directly from the store to the worker that needs them.
"""

import argparse
import os

import numpy as np
import shardfs


def episodes(source):
    """Yields the containers below a source, or the episodes in them. They pickle by name."""
    for found in shardfs.walk(source):
        yield from found.container.episodes or [found.container]


def moments(episode, names):
    """Returns, for each array, the number of rows, and mean and sum of squared differences of each channel. A missing
    array gives None, a damaged one a text."""
    found = {}
    for name in names:
        array = episode.get(name)
        try:
            rows = None if array is None else array[...].reshape(len(array), -1).astype(np.float64)
        except shardfs.DamagedBlock as error:
            found[name] = str(error)
            continue
        if rows is None or not len(rows):
            found[name] = None
        else:
            mean = rows.mean(axis=0)
            found[name] = len(rows), mean, ((rows - mean) ** 2).sum(axis=0)
    return found


def together(one, other):
    """Joins the moments of two sets of rows. (Chan, Golub, LeVeque 1979: no large sums are subtracted.)"""
    (n, mean, squares), (m, other_mean, other_squares) = one, other
    apart = other_mean - mean
    return n + m, mean + apart * (m / (n + m)), squares + other_squares + apart**2 * (n * m / (n + m))


def statistics(client, source, names, batch=64):
    """Returns, by name, the number of rows, and mean and standard deviation of each channel; and a list of damage."""
    from distributed import as_completed
    totals, damaged, left = {}, [], iter(episodes(source))
    running = as_completed()

    def begin():
        for episode in left:
            running.add(client.submit(moments, episode, names, pure=False))
            return

    for _ in range(batch):
        begin()
    for future in running:
        for name, found in future.result().items():
            if isinstance(found, str):
                damaged.append(found)
            elif found is not None:
                totals[name] = together(totals[name], found) if name in totals else found
        begin()
    return {name: (n, mean, np.sqrt(squares / n)) for name, (n, mean, squares) in totals.items()}, sorted(damaged)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--scheduler", metavar="ADDR")
    args = parser.parse_args()
    from distributed import Client
    source = args.source if "://" in args.source else os.path.realpath(args.source)
    with Client(args.scheduler) if args.scheduler else Client(processes=True, dashboard_address=None) as client:
        found, damaged = statistics(client, source, args.names)
    for name, (count, mean, deviation) in sorted(found.items()):
        print(f"{name}: {count} rows")
        print("  mean", " ".join(f"{value:.4g}" for value in mean))
        print("  std ", " ".join(f"{value:.4g}" for value in deviation))
    for line in damaged:
        print(f"damaged: {line}")


if __name__ == "__main__":
    main()
