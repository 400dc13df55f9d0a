"""What is read: containers of several sizes and codecs, and the same files copied out of a mount."""

import os
import shutil
from pathlib import Path

import numpy as np
from support.writers import channel, meta_blocks, write_shard

from .timing import MIB, mounted


def write_arrays(path, arrays, codec="none"):
    """A WShard episode of float32 channels; only these are compressed."""
    channels = [channel(f"signal/{name}", "float32", []) for name in arrays]
    blocks = meta_blocks("bench", len(next(iter(arrays.values()))), channels)
    blocks += [(f"signal/{name}", data.tobytes(), 0, codec) for name, data in arrays.items()]
    write_shard(path, blocks, quick=True)


def signal_like(values):
    """Floats that compress about as recorded joints do."""
    rng = np.random.default_rng(7)
    steps = rng.integers(-8, 9, values).astype(np.int32)
    return (np.cumsum(steps, dtype=np.int32).astype(np.float32) / 256).astype("<f4")


class Tree:
    """The containers (`source`) and the same files copied out (`plain`)."""

    def __init__(self, arguments):
        self.size, self.containers, self.folder = arguments.size, arguments.containers, arguments.folder
        self.top = Path(arguments.dir) / f"{self.size}-{self.containers}-{self.folder}"
        self.source, self.plain = self.top / "source", self.top / "plain"
        self.many, self.many_plain, self.thousands = self.top / "many", self.top / "many-plain", self.top / "folder"

    def make(self):
        if (self.top / "made").exists():
            return
        shutil.rmtree(self.top, ignore_errors=True)
        for folder in (self.source, self.plain, self.many, self.many_plain, self.thousands):
            folder.mkdir(parents=True)
        values = self.size * MIB // 4
        for codec in ("none", "zstd", "lz4"):
            write_arrays(self.source / f"large-{codec}.wshard", {"a": signal_like(values)}, codec)
            # Blocks below the size from which shardfs shows them piece by piece.
            parts = {f"p{i}": signal_like(48 * MIB // 4) for i in range(max(1, self.size // 48))}
            write_arrays(self.source / f"parts-{codec}.wshard", parts, codec)
        write_arrays(self.source / "huge.wshard", {"a": np.tile(signal_like(64 * MIB // 4), 16)}, "zstd")
        write_arrays(self.source / "small.wshard", {f"s{i:04}": signal_like(5088) for i in range(1000)}, "lz4")
        write_arrays(self.source / "medium.wshard", {f"m{i:03}": signal_like(MIB // 4 - 32) for i in range(100)}, "lz4")
        with mounted(self.source, "cache") as (mnt, _):
            for name in ("large-none", "small", "medium"):
                shutil.copytree(mnt / f"{name}.wshard", self.plain / f"{name}.wshard", symlinks=True)
                # As one write makes it: the page cache then has it in large pages, which is the best that a file can be.
                if name == "large-none":
                    large = self.plain / "large-none.wshard/signal/a.npy"
                    large.unlink()
                    large.write_bytes((mnt / "large-none.wshard/signal/a.npy").read_bytes())
        one = self.top / "one.wshard"
        write_arrays(one, {f"group{i // 10}/lane{i:02}": signal_like(16) for i in range(60)})
        for i in range(self.containers):
            shutil.copyfile(one, self.many / f"ep_{i:06}.wshard")
        for i in range(self.folder):
            # Links: what is measured is the mount, not this disk.
            os.link(one, self.thousands / f"ep_{i:06}.wshard") if i % 60000 else shutil.copyfile(
                one, self.thousands / f"ep_{i:06}.wshard")
            if i % 60000 == 0:
                one = self.thousands / f"ep_{i:06}.wshard"
        with mounted(self.many, "cache") as (mnt, _):
            first = sorted(os.listdir(mnt))[0]
            shutil.copytree(mnt / first, self.many_plain / first)
            for i in range(1, self.containers):
                shutil.copytree(self.many_plain / first, self.many_plain / f"ep_{i:06}.wshard")
        (self.top / "made").touch()
