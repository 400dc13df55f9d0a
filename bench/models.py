"""Measures model files beside the formats' own packages: safetensors, numpy, and gguf for numbers out of blocks.

    scripts/bench_models [--dir DIR] [--record]

Makes what it reads in DIR (1.5 GB), and gives the best of five rounds, both programs by turns. Needs /dev/fuse,
target/release/shardfs (or SHARDFS_BIN), the packages safetensors, gguf, numpy and shardfs. Run it on a machine that does
nothing else.
"""

import argparse
import os
import subprocess
import sys
import zlib
from pathlib import Path

import gguf
import numpy as np
import safetensors
import safetensors.numpy

import shardfs
from support import BIN

from .beside import ROUNDS, Rows, closed, copies, far, fresh, on_one_core, once, peak_memory, timed

MIB = 1 << 20


def layers(path):
    rng = np.random.default_rng(1)
    safetensors.numpy.save_file({f"layer.{n}": rng.normal(size=(256, 256)).astype("<f4") for n in range(64)}, path)


def large(path):
    values = np.random.default_rng(1).random((1024, 4096), "<f4")
    safetensors.numpy.save_file({f"layer.{n}": values + n for n in range(60)}, path)


def many(path):
    zeros = np.zeros(4, "<f4")
    safetensors.numpy.save_file({f"base.layers.{n // 100}.lora_{n % 100}.weight": zeros for n in range(100_000)}, path)


def blocks(path):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "test")
    values = rng.normal(size=(4096, 4096)).astype("<f4")
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("Q8_0", gguf.quants.quantize(values, kind), raw_dtype=kind)
    # The package has no writer of Q4_K: scales of an ordinary size, and random bits.
    stored = rng.integers(0, 256, (4096, 16, 144), dtype=np.uint8)
    stored[:, :, :4] = np.array([0.01, 0.01], "<f2").view("u1")
    writer.add_tensor("Q4_K", stored.reshape(4096, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain_npz(path):
    rng = np.random.default_rng(1)
    with open(path, "wb") as out:
        np.savez(out, **{f"a{n}": rng.random((512, 512), "<f4") for n in range(64)})


def deflated_npz(path):
    values = np.cumsum(np.random.default_rng(1).integers(-3, 4, 16 << 20), dtype="<i4")
    with open(path, "wb") as out:
        np.savez_compressed(out, a=values)


def safe(path, name):
    with safetensors.safe_open(path, "numpy") as file:
        return file.get_tensor(name)


def memory_of(code):
    """The most memory that a Python program takes above what its imports take."""
    program = f"""
import numpy as np, safetensors.numpy, shardfs, sys
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
open("/proc/self/clear_refs", "w").write("5")
before = peak()
held = {code}
print(peak() - before)
"""
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def one_tensor(rows, path):
    def mounted(container):
        return timed(lambda: np.load(container / "layer.7.npy", mmap_mode="r").sum())[0]

    def other():
        return timed(lambda: safe(path, "layer.7").sum())[0]

    with closed(path, mounted) as left:
        rows.ratio("np.load(mmap_mode='r') of 256 KiB, closed", lambda: mounted(next(left)), other, "≤ 2 ×", most=2)

    with copies(path) as left:
        shardfs.open(str(next(left)))["layer.7"][...]
        rows.ratio("the same in Python", lambda: timed(lambda: shardfs.open(str(next(left)))["layer.7"][...].sum())[0],
                   other, "≤ 1 ×", most=1)


def whole(rows, path):
    opened = shardfs.open(str(path))
    rows.ratio("all tensors of a 1 GB file, Python", lambda: timed(lambda: opened.read())[0],
               lambda: timed(lambda: safetensors.numpy.load_file(path))[0], "≤ 1 ×", most=1)
    size = path.stat().st_size
    taken = memory_of(f"shardfs.open({str(path)!r}).read()")
    rows.value("memory of that", taken / MIB, "MiB", f"≤ the tensors ({size / MIB:.0f} MiB) and 2 %", taken <= size * 1.02)

    def mapped():
        # Another object each time: an array keeps what it maps.
        opened = shardfs.open(str(path))
        return timed(lambda: sum(float(opened[name].mapped()[512].sum()) for name in opened))[0]

    def copied():
        opened = shardfs.open(str(path))
        return timed(lambda: sum(float(opened[name][...][512].sum()) for name in opened))[0]

    rows.ratio("a row of each tensor: `mapped`, beside reading the tensors", mapped, copied, "less", most=1)
    taken = memory_of(f"[array.mapped() for array in shardfs.open({str(path)!r}).values()]")
    rows.value("memory of all tensors mapped", taken / MIB, "MiB", "≤ 16 MiB", taken <= 16 * MIB)


def many_tensors(rows, path):
    taken = []
    for _ in range(ROUNDS):
        with fresh(path.parent) as mnt:
            taken.append(timed(lambda: os.listdir(mnt / path.name))[0])
            memory = peak_memory(mnt)
    first = sorted(taken)[len(taken) // 2]
    rows.value("100,000 tensors: first ls", first, "s", "≤ 150 ms", first <= 0.15)
    rows.value("memory of the mount", memory, "MiB", "≤ 64 MiB", memory <= 64)


def from_afar(rows, path):
    with far([("model/shard.safetensors", path)]) as bucket, bucket.mounted() as mnt:
        bucket.requests()
        np.load(mnt / "model/shard.safetensors/layer.40.npy")
        listed, read = bucket.store.counts()
        rows.value("a bucket with 20 ms: header and one tensor of 256 KiB", read, f"requests, and {listed} listing",
                   "2, detection included", read <= 2)


def archives(rows, plain, deflated):
    def mounted(container):
        return timed(lambda: np.load(container / "a40.npy"))[0]

    with closed(plain, mounted) as left:
        rows.ratio("npz: one of 64 arrays of 1 MiB, closed", lambda: mounted(next(left)),
                   lambda: timed(lambda: np.load(plain)["a40"])[0], "≤ 0.5 ×", most=0.5)
    with copies(plain) as left:
        rows.ratio("the same in Python", lambda: timed(lambda: shardfs.open(str(next(left)))["a40"][...])[0],
                   lambda: timed(lambda: np.load(plain)["a40"])[0], "≤ 0.5 ×", most=0.5)
    data = deflated.read_bytes()
    # The member's name has as many bytes as `extra` says behind it.
    start = 30 + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    with on_one_core(), copies(deflated) as left:
        rows.ratio("npz: a deflated array of 64 MiB, Python, one core",
                   lambda: timed(lambda: shardfs.open(str(next(left)))["a"][...])[0],
                   lambda: timed(lambda: zlib.decompressobj(-15).decompress(data[start:]))[0],
                   "≥ 0.9 of Python's zlib", most=1 / 0.9)

        def mounted_deflated():
            with fresh(deflated.parent) as mnt:
                return timed(lambda: np.load(mnt / deflated.name / "a.npy"))[0]

        rows.ratio("the same through a mount", mounted_deflated, lambda: timed(lambda: np.load(deflated)["a"])[0],
                   "≤ 1.1 × numpy.load", most=1.1)


def out_of_blocks(rows, path):
    reader = gguf.GGUFReader(path)
    opened = shardfs.open(str(path))
    with on_one_core():
        for tensor in reader.tensors:
            name = f"{tensor.name}.f32"
            rows.ratio(f"{tensor.name} to f32, 16 Mi values, one core",
                       lambda name=name: timed(lambda: opened[name][...])[0],
                       lambda t=tensor: timed(lambda: gguf.quants.dequantize(t.data, t.tensor_type))[0],
                       "≥ 3 × gguf", least=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp/shardfs-bench-models", type=Path)
    parser.add_argument("--record", action="store_true", help="write bench/record/DATE-models.md")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    made = {write.__name__: once(arguments.dir / write.__name__ / name, lambda path, write=write: write(path))
            for write, name in FILES if (arguments.dir / write.__name__).mkdir(exist_ok=True) is None}
    subprocess.run(["cat", *made.values()], stdout=subprocess.DEVNULL, check=True)
    rows = Rows()
    one_tensor(rows, made["layers"])
    whole(rows, made["large"])
    many_tensors(rows, made["many"])
    from_afar(rows, made["layers"])
    archives(rows, made["plain_npz"], made["deflated_npz"])
    out_of_blocks(rows, made["blocks"])
    if arguments.record:
        rows.record("models", "Model files", "scripts/bench_models", f"best of {ROUNDS} rounds, both programs by turns; "
                    f"safetensors {safetensors.__version__}, numpy {np.__version__}, {Path(BIN).name} built with --release")


FILES = [(layers, "layers.safetensors"), (large, "large.safetensors"), (many, "many.safetensors"), (blocks, "blocks.gguf"),
         (plain_npz, "plain.npz"), (deflated_npz, "deflated.npz")]

if __name__ == "__main__":
    main()
