"""A mount against a simple model: random operations on SOURCE, and after each the mount is what the model says."""

import errno
import os
import random
import shutil

import numpy as np
import pytest

from support import load_npy, mounted, seen_within

SOON = 1.0


class Model:
    """Folders as dicts; ordinary files as bytes; links as their targets; containers as a dict of arrays in a tuple."""

    def __init__(self, source, writers, rng):
        self.source, self.writers, self.rng, self.tree = source, writers, rng, {}

    def folders(self):
        found, todo = [], [((), self.tree)]
        while todo:
            path, folder = todo.pop()
            found.append((path, folder))
            todo += [((*path, name), node) for name, node in folder.items() if isinstance(node, dict)]
        return found

    def anything(self):
        nodes = [(path, folder, name) for path, folder in self.folders() for name in folder]
        return self.rng.choice(nodes) if nodes else None

    def host(self, *parts):
        return self.source.joinpath(*parts)

    def write(self, path, node, in_place):
        new = self.source.parent / "new"
        if isinstance(node, str):
            os.symlink(node, new)
            return os.rename(new, path)
        data = self.writers.kastore(node[0]) if isinstance(node, tuple) else node
        if in_place and not path.is_symlink():
            with open(path, "r+b") as f:
                f.write(data)
                f.truncate()
        else:
            new.write_bytes(data)
            os.rename(new, path)

    def content(self):
        rng = self.rng
        if rng.random() < 0.3:
            return rng.randbytes(rng.choice([0, 1, 100, 10_000]))
        if rng.random() < 0.2:
            return rng.choice(["a.txt", "b.txt", "c.kas", "../d", "nowhere/" + 200 * "e"])
        names = rng.sample(["x", "y", "deep/z", "deep/er/z", "größe", "a.npy/b", "50%"], rng.randint(0, 4))
        return ({name: np.full(rng.choice([0, 1, 600]), rng.randrange(1 << 30), "<i8") for name in names},)

    def step(self):
        """One operation, on the disk and in the model."""
        rng, chosen = self.rng, self.anything()
        what = rng.choice(["new", "new", "folder", "replace", "rewrite", "delete", "rename", "copy"])
        where, folder = rng.choice(self.folders())
        name = f"{rng.choice('abcdefg')}{rng.choice(['', '.kas', '.txt'])}"
        if what in ("new", "folder") or chosen is None:
            if name in folder:
                return what
            if what == "folder" and len(where) < 4:
                self.host(*where, name).mkdir()
                folder[name] = {}
            else:
                folder[name] = self.content()
                self.write(self.host(*where, name), folder[name], False)
            return what
        path, parent, old = chosen
        node, at = parent[old], self.host(*path, old)
        if what in ("replace", "rewrite") and not isinstance(node, dict):
            parent[old] = self.content()
            self.write(at, parent[old], what == "rewrite")
        elif what == "delete":
            shutil.rmtree(at) if isinstance(node, dict) else at.unlink()
            del parent[old]
        elif what in ("rename", "copy") and name not in folder and where[:len(path) + 1] != (*path, old):
            if what == "rename":
                os.rename(at, self.host(*where, name))
                folder[name] = parent.pop(old)
            elif not isinstance(node, dict):
                shutil.copy2(at, self.host(*where, name), follow_symlinks=False)
                folder[name] = node
        return what

    # --- what the mount has to show ----------------------------------------------------------

    def difference(self, mnt):
        """The first thing that the mount shows otherwise; None if there is none."""
        todo = [(mnt, self.tree)]
        while todo:
            at, folder = todo.pop()
            try:
                listed = sorted(os.listdir(at))
                if listed != sorted(folder):
                    return f"{at}: {listed}, not {sorted(folder)}"
                for name, node in folder.items():
                    if isinstance(node, dict):
                        todo.append((at / name, node))
                    elif isinstance(node, str):
                        if os.readlink(at / name) != node or (at / name).lstat().st_size != len(node):
                            return f"{at / name}: leads to {os.readlink(at / name)}, not {node}"
                    elif isinstance(node, bytes):
                        data = (at / name).read_bytes()
                        if data != node or (at / name).stat().st_size != len(node):
                            return f"{at / name}: {len(data)} bytes"
                    elif found := self.container_difference(at / name, node[0]):
                        return found
            except OSError as e:
                return f"{at}: {e}"
        return None

    @staticmethod
    def container_difference(at, arrays):
        paths = {name.replace("%", "%25").replace("a.npy/", "a%2Enpy/") + ".npy": array for name, array in arrays.items()}
        shown = {os.path.relpath(os.path.join(top, file), at) for top, _, files in os.walk(at) for file in files}
        if shown != {*paths, "container.json"}:
            return f"{at}: {shown}"
        for path, array in paths.items():
            if not np.array_equal(load_npy(at / path), array):
                return f"{at / path}: other values"
        return None

    def missing(self, mnt):
        """Names that are not there are not there."""
        for path, folder in self.folders():
            for name in ("zz", "x.npy", ".raw"):
                if name not in folder:
                    with pytest.raises(OSError) as e:
                        os.stat(mnt.joinpath(*path, name))
                    assert e.value.errno == errno.ENOENT


def test_a_link_leads_where_it_leads_now(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "link"
    link.symlink_to("one")
    with mounted(tmp_path) as mnt:
        assert (mnt / "link").read_text() == "one"
        # Of the same length, so that its size says nothing.
        for target in ("other", "./one"):
            link.unlink()
            link.symlink_to(target)
            expected = link.read_text()
            assert seen_within(SOON, lambda: os.readlink(mnt / "link") == target and (mnt / "link").read_text() == expected)


@pytest.mark.parametrize("seed", range(4))
def test_mount_and_model_agree(writers, tmp_path, seed):
    rng = random.Random(seed)
    source = tmp_path / "source"
    source.mkdir()
    model = Model(source, writers, rng)
    for _ in range(10):
        model.step()
    done = []
    with mounted(source, "--cache-size", rng.choice(["4K", "64M"])) as mnt:
        for _ in range(60):
            done += [model.step() for _ in range(rng.choice([1, 1, 1, 5]))]
            seen = []
            agree = seen_within(SOON, lambda: seen.append(model.difference(mnt)) or seen[-1] is None)
            assert agree, f"after {done[-6:]}: {seen[-1]}"
        model.missing(mnt)
    # A new mount shows the same.
    with mounted(source) as mnt:
        assert model.difference(mnt) is None
    assert len(set(done)) >= 7
