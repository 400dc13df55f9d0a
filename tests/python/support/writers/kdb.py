"""KDB files (docs/formats/kdb.md), with every freedom that the format leaves: anything can be anywhere and be a lie."""

import os
import struct
from dataclasses import dataclass, field

import numpy as np


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


@dataclass
class Record:
    """One picture of one camera; `flag` is the format byte, None leaves it out (old files)."""
    camera: bytes | str
    width: int
    height: int
    channels: int
    flag: int | None
    data: bytes
    length: int | None = None  # where it is not the truth
    name_length: int | None = None

    def pack(self):
        camera = as_bytes(self.camera)
        name_length = len(camera) if self.name_length is None else self.name_length
        length = len(self.data) if self.length is None else self.length
        flag = b"" if self.flag is None else bytes([self.flag])
        return (struct.pack("<H", name_length) + camera + struct.pack("<IIB", self.width, self.height, self.channels)
                + flag + struct.pack("<I", length) + self.data)


@dataclass
class Episode:
    """One episode. Its rows are `rows`, or made of `seed`: any bits."""
    frames: list = field(default_factory=list)  # of lists of Record
    state_dim: int = 1
    action_dim: int = 1
    episode_id: int = 0
    embodiment: bytes | str = b"arm"
    task: bytes | str = b"task"
    fps: float = 10.0
    success: int = 0
    reward_flag: int = 0
    total_reward: float = 0.0
    behind: dict = field(default_factory=dict)  # surplus bytes of "meta", "rows", "images"
    instead: dict = field(default_factory=dict)  # bytes that stand where a section should
    places: dict = field(default_factory=dict)  # (offset, length) of a section, where that is a lie
    num_frames: int | None = None
    seed: int = 0
    rows: tuple | None = None  # state [n, s], action [n, a], reward [n], terminal [n]

    def __post_init__(self):
        if self.rows is not None:
            state, action, reward, last = self.rows
            self.rows = (np.asarray(state, "<f4"), np.asarray(action, "<f4"), np.asarray(reward, "<f4"),
                         np.asarray(last, "u1"))
            self.state_dim, self.action_dim = self.rows[0].shape[1], self.rows[1].shape[1]

    @property
    def count(self):
        return len(self.frames)

    def arrays(self):
        if self.rows is not None:
            return self.rows
        rng = np.random.default_rng(self.seed)
        bits = lambda *shape: rng.integers(0, 1 << 32, shape, dtype=np.uint32).view("<f4")
        return (bits(self.count, self.state_dim), bits(self.count, self.action_dim), bits(self.count),
                rng.integers(0, 4, self.count).astype("u1"))

    def sections(self):
        state, action, reward, last = self.arrays()
        rows = b"".join(state[t].tobytes() + action[t].tobytes() + reward[t].tobytes() + last[t].tobytes()
                        for t in range(self.count))
        images = b"".join(struct.pack("<H", len(f)) + b"".join(r.pack() for r in f) for f in self.frames)
        meta = b"".join(struct.pack("<H", len(text)) + text for text in map(as_bytes, (self.embodiment, self.task)))
        meta += struct.pack("<fBB", self.fps, self.success, self.reward_flag)
        if self.reward_flag == 1:
            meta += struct.pack("<f", self.total_reward)
        made = {"rows": rows, "images": images, "meta": meta} | self.instead
        return {name: data + self.behind.get(name, b"") for name, data in made.items()}


def pack(episodes, *, header=(), index_first=False, gap=b"", tail=b"", order=("rows", "images", "meta")):
    """The file. `header`: fields of the header that are not the truth; `order`: of an episode's sections."""
    index_length = 64 * len(episodes)
    body = bytearray(64 + (index_length if index_first else 0))
    entries = b""
    for episode in episodes:
        places = {}
        sections = episode.sections()
        for name in order:
            data = sections[name]
            body += gap
            places[name] = episode.places.get(name, (len(body), len(data)))
            body += data
        count = episode.count if episode.num_frames is None else episode.num_frames
        entries += struct.pack("<QIHH", episode.episode_id, count, episode.action_dim, episode.state_dim)
        entries += b"".join(struct.pack("<QQ", *places[name]) for name in ("rows", "images", "meta"))
    fields = {"magic": b"KINO", "major": 0, "minor": 1, "episodes": len(episodes),
              "frames": sum(e.count for e in episodes), "index_offset": 64 if index_first else len(body),
              "index_length": index_length, "created": 1776470400} | dict(header)
    if index_first:
        body[64:64 + index_length] = entries
    else:
        body += entries
    body[:48] = struct.pack("<4sHHQQQQQ", *fields.values())
    return bytes(body + tail)


def write_many(path, episode, count):
    """A file of `count` times one episode, written in pieces, since it may be large."""
    sections = episode.sections()
    one = b"".join(sections.values())
    entry = np.dtype([("id", "<u8"), ("frames", "<u4"), ("action_dim", "<u2"), ("state_dim", "<u2"),
                      ("places", "<u8", (3, 2))])
    index_at, step = 64 + count * len(one), 100_000
    with open(path, "wb") as file:
        file.write(struct.pack("<4sHHQQQQQ16x", b"KINO", 0, 1, count, count * episode.count, index_at,
                               count * entry.itemsize, 1776470400))
        for start in range(0, count, step):
            file.write(one * min(step, count - start))
        for start in range(0, count, step):
            numbers = np.arange(start, min(start + step, count), dtype="<u8")
            entries = np.zeros(len(numbers), entry)
            entries["id"], entries["frames"] = numbers, episode.count
            entries["action_dim"], entries["state_dim"] = episode.action_dim, episode.state_dim
            at = 64 + numbers * len(one)
            for place, data in enumerate(sections.values()):
                entries["places"][:, place, 0], entries["places"][:, place, 1] = at, len(data)
                at = at + np.uint64(len(data))
            file.write(entries.tobytes())
        file.flush()
        os.fsync(file.fileno())
