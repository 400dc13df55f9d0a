"""Other programs on the same files: archives mounted by others, arrays loaded by the formats' own packages."""

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from support import mounted_by

from .files import signal_like
from .timing import MIB, by_turns, map_whole, mounted, read_each, read_whole, settle, timed, visit

# Seconds for one reading of a large file, after which no more of them are timed.
TOO_SLOW = 20


def packed(tree, folder, kind):
    """A folder of the tree as a squashfs, tar or zip file."""
    archive = tree.top / "packed" / f"{folder.name}.{kind}"
    archive.parent.mkdir(exist_ok=True)
    if not archive.exists():
        makers = {
            "squashfs": ["mksquashfs", folder, archive, "-noI", "-noD", "-noF", "-noX", "-no-progress"],
            "tar": ["tar", "-C", folder, "-cf", archive, "."],
            "zip": ["python3", "-m", "zipfile", "-c", archive, *sorted(folder.iterdir())],
        }
        subprocess.run(list(map(str, makers[kind])), check=True, stdout=subprocess.DEVNULL)
    return archive


def peers(bench, tree, table):
    """The plain folders packed and mounted by others: large and small files again, stat, first read, find."""
    ratarmount = shutil.which("ratarmount") or str(Path(sys.executable).parent / "ratarmount")
    programs = {
        "squashfuse_ll": ("squashfs", ["squashfuse_ll", "-f"]),
        "fuse-zip": ("zip", ["fuse-zip", "-f", "-r"]),
        "archivemount": ("tar", ["archivemount", "-f", "-o", "readonly"]),
        "ratarmount": ("tar", [ratarmount, "-f"]),
    }
    names = [f"s{i:04}.npy" for i in range(1000)]
    for program, (kind, command) in programs.items():
        if not shutil.which(command[0]):
            print(f"{program} is not installed")
            continue
        try:
            with mounted_by([*command, packed(tree, tree.plain, kind)], seconds=120) as (mnt, _):
                settle()
                folder = os.open(mnt / "small.wshard/signal", os.O_RDONLY)
                os.stat(names[0], dir_fd=folder)
                cold = timed(lambda: [os.stat(name, dir_fd=folder) for name in names[1:]]) * 1e6 / 999
                table.add("stat, kernel cold", program, [cold], "us")
                os.close(folder)
                plain, path = (top / "large-none.wshard/signal/a.npy" for top in (tree.plain, mnt))
                native = statistics.median(timed(read_whole, plain) for _ in range(bench.rounds + 1))
                table.add("first read, stored as it is", program, [native / timed(read_whole, path)], "x native")
                for read, how in ((lambda file: timed(read_whole, file), "read(2)"), (map_whole, "mmap, a new map")):
                    if read(path) > TOO_SLOW:
                        print(f"{program}: more than {TOO_SLOW} s for the large file; not measured again")
                        break
                    native, mount = by_turns(bench.rounds, lambda: read(plain), lambda: read(path))
                    table.add(f"large file again, {how}", program,
                              [n / m for n, m in zip(native, mount, strict=True)], "x native")
                plains, paths = ([top / "small.wshard/signal" / name for name in names] for top in (tree.plain, mnt))
                read_each(paths)
                native, mount = by_turns(bench.rounds, lambda: timed(read_each, plains), lambda: timed(read_each, paths))
                table.add("20 KB file again, native = 1", program,
                          [m / n for n, m in zip(native, mount, strict=True)], "x")
            with mounted_by([*command, packed(tree, tree.many_plain, kind)], seconds=120) as (mnt, _):
                settle()
                visit(tree.many_plain)
                table.add(f"find over {tree.containers} containers, names", program,
                          [timed(visit, mnt) / timed(visit, tree.many_plain)], "x native")
        except (OSError, RuntimeError) as error:
            print(f"{program}: {error}")


def readers(bench, tree, table, mode):
    """One array of a kastore and of a tree sequence: the formats' own Python packages against numpy on a mount."""
    folder = tree.top / "readers"
    folder.mkdir(exist_ok=True)
    values = signal_like(tree.size * MIB // 8)

    def of_kastore():
        import kastore
        path = folder / "x.kas"
        if not path.exists():
            kastore.dump({"a": values}, str(path))
        return path, "a.npy", lambda: np.asarray(kastore.load(str(path))["a"])

    def of_tskit():
        import tskit
        path = folder / "x.trees"
        if not path.exists():
            tables = tskit.TableCollection(1)
            tables.nodes.set_columns(flags=np.zeros(len(values), np.uint32), time=values.astype(float))
            tables.dump(str(path))
        return path, "nodes/time.npy", lambda: tskit.TableCollection.load(str(path)).nodes.time

    for package, made_by in (("kastore", of_kastore), ("tskit", of_tskit)):
        try:
            path, array, load = made_by()
        except ImportError:
            print(f"{package} is not installed")
            continue
        with mounted(folder, mode) as (mnt, _):
            own, mount = by_turns(bench.rounds, lambda: timed(lambda: float(load().max())),
                                  lambda: timed(lambda: float(np.load(mnt / path.name / array).max())))
        table.add(f"one array loaded, {package} = 1", mode, [o / m for o, m in zip(own, mount, strict=True)], "x as fast")
