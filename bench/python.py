"""What the Python package costs beside the formats' own readers, plain .npy files and a mount.

    scripts/bench_python [--dir DIR] [--rounds N] [--size MB] [--record NAME]

Every row is measured in rounds, all competitors by turns in one run, and given as a ratio of medians. Peers that do not
import (wshard, kinodb) are left out, and the table says so. Files are warm in the page cache. Needs root, /dev/fuse, a
built target/release/shardfs (or SHARDFS_BIN), and what scripts/test installs: numpy, kastore, tskit, pillow, and the
package itself (scripts/wheel release target/wheels; pip install).
"""

import argparse
import importlib.util
import io
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from support.examples import camera
from support.writers import channel, meta_blocks, write_shard
from support.writers.kdb import Episode, Record, pack

from .timing import Table, machine, mounted, read_whole, record

ABOUT = __doc__
SHORT = {"<f4": "f32", "|u1": "u8", "<i4": "i32"}


def episode(path, size, codec):
    """An episode of about `size` MB: a camera, states, actions."""
    steps = max(20, size * 1_000_000 // (160 * 120 * 3 + 4 * 4096))
    rng = np.random.default_rng(1)
    film = np.repeat(camera(50, 120, 160), -(-steps // 50), axis=0)[:steps]
    film = film + rng.integers(0, 3, film.shape, np.uint8)
    arrays = {"signal/cam0/rgb": film,
              "signal/state": np.cumsum(rng.normal(size=(steps, 2048)), axis=0).round(2).astype("<f4"),
              "action/ctrl": rng.normal(size=(steps, 2048)).astype("<f4").round(1)}
    channels = [channel(name, SHORT[array.dtype.str], list(array.shape[1:])) for name, array in arrays.items()]
    blocks = [("reward", np.zeros(steps, "<f4").tobytes()), ("done", np.zeros(steps, "u1").tobytes()),
              ("time/ticks", np.arange(steps, dtype="<i4").tobytes())]
    write_shard(path, meta_blocks("ep", steps, channels) + [(name, array.tobytes()) for name, array in arrays.items()]
                + blocks, codec=codec, quick=True)
    return path


def trees(path, size):
    """A tree sequence of about `size` MB: nodes and sites."""
    import tskit
    count = size * 1_000_000 // 53
    tables = tskit.TableCollection(count)
    tables.nodes.set_columns(flags=np.ones(count, "u4"), time=np.zeros(count))
    letters, ends = np.full(count, ord("A"), "i1"), np.arange(count + 1, dtype="u4")
    tables.sites.set_columns(position=np.arange(count, dtype="f8"), ancestral_state=letters,
                             ancestral_state_offset=ends)
    tables.build_index()
    tables.tree_sequence().dump(path)
    return path


def kdb(path, encoded):
    """40 episodes of 50 frames of 128 x 96, raw or JPEG."""
    film = camera(50, 96, 128)
    frames = []
    for picture in film:
        data, flag = picture.tobytes(), 0
        if encoded:
            out = io.BytesIO()
            Image.fromarray(picture).save(out, "JPEG", quality=90)
            data, flag = out.getvalue(), 1
        frames.append([Record("front", 128, 96, 3, flag, data)])
    path.write_bytes(pack([Episode(frames=frames, state_dim=7, action_dim=4, episode_id=each) for each in range(40)]))
    return path


def small(folder, count=500):
    """Containers of four small arrays, and the same arrays as .npy files: the paths of those."""
    folder.mkdir(exist_ok=True)
    plain = folder.parent / "plain"
    rng = np.random.default_rng(2)
    for number in range(count):
        arrays = {f"signal/a{which}": rng.normal(size=(64, 8)).astype("<f4") for which in range(4)}
        channels = [channel(name, "f32", [8]) for name in arrays]
        write_shard(folder / f"{number:03}.wshard", meta_blocks("ep", 64, channels)
                    + [(name, array.tobytes()) for name, array in arrays.items()], codec="zstd", quick=True)
        for name, array in arrays.items():
            path = plain / f"{number:03}" / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
    return plain


def once(path, make, *arguments):
    """A file that is made if it is not there."""
    if not path.exists():
        make(path, *arguments)
    return path


# As timing.touch_memory does, and in the process itself.
FRESH = """
import time, numpy as np
def peak():
    # Of this program: what getrusage says begins with its parent's.
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
{setup}
np.ones(1 << 30, "u1")
# The peak is from now on.
open("/proc/self/clear_refs", "w").write("5")
before = peak()
start = time.perf_counter()
held = {work}
took = time.perf_counter() - start
print(took, peak() - before, {size})
"""


def fresh(setup, work, size="0"):
    """Seconds, and the growth of peak memory, of work in a new process; and what `size` says."""
    code = FRESH.format(setup=setup, work=work, size=size)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return tuple(float(number) for number in done.stdout.split())


class Bench:
    def __init__(self, folder, size, rounds):
        self.folder, self.size, self.rounds, self.table, self.notes = folder, size, rounds, Table(), []

    def rounds_of(self, warm=None, **works):
        """The times of each work, by turns; each finds the file `warm` in the page cache."""
        times = {name: [] for name in works}
        for _ in range(self.rounds):
            for name, work in works.items():
                if warm is not None:
                    read_whole(warm)
                times[name].append(work())
        return times

    def ratio(self, work, times, peer, goal, least=True):
        """How many times as fast as a peer; or, with `least=False`, how many times as long."""
        ours = statistics.median(times["shardfs"])
        values = [time / ours if least else ours / time for time in times[peer]]
        if goal is None:
            self.table.add(work, f"shardfs against {peer}", values, "x")
        elif least:
            self.table.add(work, f"shardfs against {peer}", values, "x as fast", f">= {goal}", lambda got: got >= goal)
        else:
            self.table.add(work, f"shardfs against {peer}", values, "x as long", f"<= {goal}", lambda got: got <= goal)

    def has(self, module):
        if importlib.util.find_spec(module):
            return True
        self.notes.append(f"{module} does not import here: its rows are left out")
        return False

    def episodes(self):
        for codec, goal in (("none", 3), ("zstd", 1.5), ("lz4", 1.5)):
            path = once(self.folder / f"{codec}.wshard", episode, self.size, codec)
            row = f"one episode of {self.size} MB, all arrays, {codec}"
            ours = lambda: fresh("import shardfs", f"shardfs.open({str(path)!r}).read()",  # noqa: E731
                                 "sum(array.nbytes for array in held.values())")
            runs = self.rounds_of(path, shardfs=ours, **({"wshard": lambda: fresh(
                "import wshard", f"wshard.load({str(path)!r})")} if self.has("wshard") else {}))
            times = {name: [run[0] for run in of] for name, of in runs.items()}
            self.table.add(row, "shardfs", [1000 * time for time in times["shardfs"]], "ms")
            if "wshard" in runs:
                self.ratio(row, times, "wshard", goal)
            memory = [run[1] / run[2] for run in runs["shardfs"]]
            self.table.add(row, "shardfs, peak memory", memory, "x the arrays", "<= 1.1", lambda got: got <= 1.1)

    def tree_sequence(self):
        path = str(once(self.folder / "big.trees", trees, self.size))
        setup = "import {}"
        runs = self.rounds_of(
            path,
            shardfs=lambda: fresh("import shardfs", f"np.asarray(shardfs.open({path!r})['nodes/time']).sum()")[0],
            kastore=lambda: fresh("import kastore", f"kastore.load({path!r})['nodes/time'].sum()")[0],
            tskit=lambda: fresh(setup.format("tskit"), f"tskit.load({path!r}).nodes_time.sum()")[0])
        row = f"one array of a .trees of {self.size} MB, summed"
        self.table.add(row, "shardfs", [1000 * time for time in runs["shardfs"]], "ms")
        self.ratio(row, runs, "kastore", 1)
        self.ratio(row, runs, "tskit", 50)

    def frames(self):
        import shardfs
        order = [(random.Random(seed).randrange(40), random.Random(seed + 1).randrange(50)) for seed in range(2000)]
        for encoded, goal in ((False, 1), (True, 1.5)):
            kind = "JPEG" if encoded else "raw"
            path = once(self.folder / f"{kind}.kdb", kdb, encoded)

            def all_of(read):
                start = time.perf_counter()
                with ThreadPoolExecutor(2) as pool:
                    list(pool.map(read, order, chunksize=50))
                return time.perf_counter() - start

            def ours():
                # Nothing in the cache: each frame is decoded.
                shardfs.set_cache_size(None)
                container = shardfs.open(path)
                return all_of(lambda at: np.asarray(container.episodes[at[0]].images["front"][at[1]]))

            works = {"shardfs": ours}
            if self.has("kinodb"):
                import kinodb

                def theirs():
                    database = kinodb.open(str(path))
                    return all_of(lambda at: np.asarray(database.read_episode(at[0])["images"]["front"][at[1]]))

                works["kinodb"] = theirs
            times = self.rounds_of(**works)
            row = f"2,000 random frames of a KDB, {kind}, 2 threads"
            self.table.add(row, "shardfs", [1e6 * time / len(order) for time in times["shardfs"]], "us a frame")
            if "kinodb" in works:
                self.ratio(row, times, "kinodb", goal)

    def small_arrays(self):
        import shardfs
        folder = self.folder / "small"
        if not folder.exists():
            small(folder)
        names = [f"signal/a{which}" for which in range(4)]
        numbers = [f"{number:03}" for number in range(500)]

        def ours():
            shardfs.set_cache_size(None)
            start = time.perf_counter()
            for number in numbers:
                container = shardfs.open(folder / f"{number}.wshard")
                for name in names:
                    container[name][...]
            return time.perf_counter() - start

        def loads(top, suffix=""):
            start = time.perf_counter()
            for number in numbers:
                for name in names:
                    np.load(top / f"{number}{suffix}" / f"{name}.npy")
            return time.perf_counter() - start

        def mount():
            with mounted(folder, "cache") as (mnt, _):
                return loads(Path(mnt), ".wshard")

        times = self.rounds_of(shardfs=ours, **{"the mount's first read": mount,
                                                "plain .npy files": lambda: loads(self.folder / "plain")})
        row = "2,000 small arrays in 500 containers, open to numpy"
        self.table.add(row, "shardfs", [1000 * time for time in times["shardfs"]], "ms")
        self.ratio(row, times, "the mount's first read", 1, least=False)
        self.ratio(row, times, "plain .npy files", 3, least=False)

        def listed():
            shardfs.set_cache_size(None)
            start = time.perf_counter()
            for number in numbers:
                list(shardfs.open(folder / f"{number}.wshard"))
            return time.perf_counter() - start

        def described():
            with mounted(folder, "cache") as (mnt, _):
                start = time.perf_counter()
                for number in numbers:
                    (Path(mnt) / f"{number}.wshard/container.json").read_bytes()
                return time.perf_counter() - start

        times = self.rounds_of(shardfs=listed, **{"container.json through the mount": described})
        row = "opening a container and listing its arrays"
        self.table.add(row, "shardfs", [1e6 * time / 500 for time in times["shardfs"]], "us")
        self.ratio(row, times, "container.json through the mount", 1)

    def imports(self):
        def took(modules):
            # Time of the processor: a start is short, and others' work on a busy machine would be most of it.
            code = f"import time, numpy; begin = time.process_time(); import {modules}; print(time.process_time() - begin)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            return float(done.stdout)

        times = [1000 * took("shardfs") for _ in range(max(self.rounds, 5))]
        self.table.add("import, beyond numpy's", "shardfs", times, "ms of CPU", "< 50", lambda got: got < 50)


def main():
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-python", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=200, help="MB of the large files")
    parser.add_argument("--rows", default="episodes,tree_sequence,frames,small_arrays,imports")
    parser.add_argument("--record", metavar="NAME")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    about = machine()
    bench = Bench(arguments.dir, arguments.size, arguments.rounds)
    for row in arguments.rows.split(","):
        getattr(bench, row)()
    notes = "".join(f"- {note}\n" for note in dict.fromkeys(bench.notes))
    text = f"`scripts/bench_python`, {arguments.rounds} rounds.\n\n{about}\n{notes}\n{bench.table.text()}"
    if arguments.record:
        print(record(arguments.record, "The Python package beside other readers", text))
    elif notes:
        print(notes)


if __name__ == "__main__":
    main()
