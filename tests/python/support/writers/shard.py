"""Shard files, WShard episodes among them (docs/formats/wshard.md)."""

import json
import struct

import crc32c
import lz4.block
import xxhash
import zstandard

CODEC_CODE = {"none": 0, "zstd": 1, "lz4": 2}
ENTRY_FLAGS = {"none": 0, "zstd": 0x0003, "lz4": 0x0005}
TENSOR_DTYPE = {"<f4": 1, "<f2": 2, "bf16": 3, "|i1": 4, "<i2": 5, "<i4": 6, "<i8": 7, "|u1": 8,
                "<u2": 9, "<u4": 10, "<u8": 11, "<f8": 12}


def round_up(n, to):
    return (n + to - 1) // to * to if to else n


def dumps(obj):
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=True).encode()


def compress(codec, data, quick=False):
    """One block. `quick`: for large ones, whose size does not matter."""
    if codec == "zstd":
        params = zstandard.ZstdCompressionParameters.from_level(
            1 if quick else 19, write_content_size=True, write_checksum=False, threads=0
        )
        return zstandard.ZstdCompressor(compression_params=params).compress(data)
    if codec == "lz4":
        how = {"mode": "default"} if quick else {"mode": "high_compression", "compression": 9}
        return lz4.block.compress(data, store_size=False, **how)
    return data


def shard_header(role, flags, alignment, codec, count, strings_at, data_at, total):
    return struct.pack(
        "<4sBBHBBHIQQQQ16x", b"SHRD", 2, role, flags, alignment, CODEC_CODE[codec], 48,
        count, strings_at, data_at, 0, total,
    )


def shard_entry(name, name_at, flags, data_at, disk, orig, crc, content_type=0):
    return struct.pack(
        "<QIHHQQQIHH", xxhash.xxh64_intdigest(name, seed=0), name_at, len(name), flags,
        data_at, disk, orig, crc, content_type, 0,
    )


def write_shard(path, blocks, *, role=5, codec="none", alignment=32, header_flags=0, sort=True, quick=False):
    """`blocks`: list of (name, bytes), (name, bytes, content type) or (name, bytes, content type, codec).

    A block of 64 bytes or more is stored compressed where that is smaller. Blocks are written one by one.
    """
    blocks = [(name.encode(), data, *more, *(0, codec)[len(more):]) for name, data, *more in blocks]
    if sort:
        blocks.sort(key=lambda b: b[0])
    strings = b"".join(name for name, *_ in blocks)
    strings_at = 64 + 48 * len(blocks)
    data_at = at = round_up(strings_at + len(strings), alignment)
    index, name_at = b"", 0
    with open(path, "wb") as out:
        out.seek(data_at)
        for name, data, content_type, codec_of_block in blocks:
            stored, flags = data, 0
            if codec_of_block != "none" and len(data) >= 64:
                packed = compress(codec_of_block, data, quick)
                if len(packed) < len(data):
                    stored, flags = packed, ENTRY_FLAGS[codec_of_block]
            index += shard_entry(name, name_at, flags, at, len(stored), len(data), crc32c.crc32c(data), content_type)
            name_at += len(name)
            out.write(stored)
            padded = round_up(len(stored), alignment)
            out.write(b"\0" * (padded - len(stored)))
            at += padded
        out.seek(0)
        front = shard_header(role, header_flags, alignment, codec, len(blocks), strings_at, data_at, at)
        out.write(front + index + strings)


def write_manifest(path, episode, chunks):
    """A manifest (docs/formats/wshard.md 15). `chunks`: list of (uri, bytes of its SHA-256, steps)."""
    start, lines = 0, []
    for number, (uri, digest, steps) in enumerate(chunks):
        lines.append({"chunk_index": number, "uri": uri, "sha256": digest.hex(), "length_T": steps,
                      "timestep_range": [start, start + steps - 1], "total_chunks": len(chunks)})
        start += steps
    text = dumps({"episode_id": episode, "total_chunks": len(chunks), "total_timesteps": start, "chunks": lines})
    write_shard(path, [("meta/manifest", text)], role=4)


def channel(block, dtype, shape, **more):
    return {"id": block.split("/", 1)[1], "dtype": dtype, "shape": shape, "signal_block": block, **more}


def meta_blocks(episode_id, length, channels, hz=30, **wshard):
    return [
        ("meta/wshard", dumps({"format": "W-SHARD", "wshard_version": "0.1", "endianness": "little",
                               "alignment": 32, **wshard})),
        ("meta/episode", dumps({"episode_id": episode_id, "env_id": "PickAndPlace-v1", "length_T": length,
                                "timebase": {"type": "ticks", "dt_ns": 10**9 // hz},
                                "metadata": {"robot": "seven-joint arm", "operator": "Zoë"}})),
        ("meta/channels", dumps({"channels": channels})),
    ]


def tensor_v1(a, dtype=None):
    code = TENSOR_DTYPE[dtype or a.dtype.str]
    return struct.pack(f"<BBH{a.ndim}Q", code, a.ndim, 0, *a.shape) + a.tobytes()
