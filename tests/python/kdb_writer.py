"""KDB files from the description of the format, with every freedom that it leaves, and what a mount must show of them.

Independent of scripts/make_fixtures.py: here everything can be put anywhere and be a lie.
"""

import io
import struct
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

import names

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


@dataclass
class Record:
    camera: bytes
    width: int
    height: int
    channels: int
    flag: int
    data: bytes
    length: int | None = None  # where it is not the truth
    name_length: int | None = None

    def pack(self):
        name_length = len(self.camera) if self.name_length is None else self.name_length
        length = len(self.data) if self.length is None else self.length
        return (struct.pack("<H", name_length) + self.camera
                + struct.pack("<IIBBI", self.width, self.height, self.channels, self.flag, length) + self.data)


@dataclass
class Episode:
    frames: list = field(default_factory=list)  # of lists of Record
    state_dim: int = 1
    action_dim: int = 1
    episode_id: int = 0
    embodiment: bytes = b"arm"
    task: bytes = b"task"
    fps: float = 10.0
    success: int = 0
    reward_flag: int = 0
    total_reward: float = 0.0
    behind: dict = field(default_factory=dict)  # surplus bytes of "meta", "rows", "images"
    places: dict = field(default_factory=dict)  # (offset, length) of a section, where that is a lie
    num_frames: int | None = None
    seed: int = 0

    @property
    def count(self):
        return len(self.frames)

    def arrays(self):
        rng = np.random.default_rng(self.seed)
        bits = lambda *shape: rng.integers(0, 1 << 32, shape, dtype=np.uint32).view("<f4")
        return (bits(self.count, self.state_dim), bits(self.count, self.action_dim), bits(self.count),
                rng.integers(0, 4, self.count).astype("u1"))

    def sections(self):
        state, action, reward, last = self.arrays()
        rows = b"".join(state[t].tobytes() + action[t].tobytes() + reward[t].tobytes() + last[t].tobytes()
                        for t in range(self.count))
        images = b"".join(struct.pack("<H", len(f)) + b"".join(r.pack() for r in f) for f in self.frames)
        meta = b"".join(struct.pack("<H", len(text)) + text for text in (self.embodiment, self.task))
        meta += struct.pack("<fBB", self.fps, self.success, self.reward_flag)
        if self.reward_flag == 1:
            meta += struct.pack("<f", self.total_reward)
        made = {"rows": rows, "images": images, "meta": meta}
        return {name: data + self.behind.get(name, b"") for name, data in made.items()}


def pack(episodes, *, header=(), index_first=False, gap=b"", tail=b""):
    """The file. `header`: fields of the header that are not the truth."""
    index_length = 64 * len(episodes)
    body = bytearray(64 + (index_length if index_first else 0))
    entries = b""
    for episode in episodes:
        places = {}
        for name, data in episode.sections().items():
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


# --- what a mount must show ---------------------------------------------------------

def kind(record):
    """What the bytes are, by flag, length and first bytes; with the size of the pixels."""
    size = (record.width, record.height, record.channels)
    fits = record.width * record.height * record.channels == len(record.data)
    if not record.data:
        return "empty", None
    signature = "jpeg" if record.data.startswith(JPEG) else "png" if record.data.startswith(PNG) else None
    if record.flag == 0 and fits:
        return "raw", size
    if signature and (not fits or own_size(record.data)):
        return signature, own_size(record.data)
    if record.flag == 0:
        if not fits and record.width * record.height * 3 == len(record.data):
            return "raw", (*size[:2], 3)
        return "opaque", None
    return ("raw", size) if fits else ("opaque", None)


def own_size(data):
    """Width, height and channels of an encoded picture; 0 channels for what has none of 8 bits."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mode, size = picture.mode, picture.size
    except OSError:
        return None
    return (*size, {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4}.get(mode, 0))


def is_png(size):
    return size[0] in range(1, 1 << 31) and size[1] in range(1, 1 << 31) and size[2] in (1, 2, 3, 4)


def pixels(record):
    what, size = kind(record)
    if what == "raw":
        return np.frombuffer(record.data, "u1").reshape(size[1], size[0], size[2])
    picture = Image.open(io.BytesIO(record.data))
    # Bits as 0 and 255, like the grey of two and four bits, which Pillow gives so by itself.
    picture = picture.convert("L") if picture.mode == "1" else picture
    return np.asarray(picture).reshape(size[1], size[0], size[2])


def expected_images(episode, sound_frames=None):
    """Path below `images/`: ("stored", bytes), ("png", pixels), ("npy", array) or ("stack", array, exact).

    `sound_frames`: how many frames come before the damage, if there is any.
    """
    frames = episode.frames if sound_frames is None else episode.frames[:sound_frames]
    count = episode.count if episode.num_frames is None else episode.num_frames
    digits = max(3, len(str(count - 1)))
    cameras, want = {}, {}
    for number, frame in enumerate(frames):
        for record in frame:
            if record.data:
                cameras.setdefault(record.camera, {}).setdefault(number, []).append(record)
    for camera, by_frame in cameras.items():
        folder = names.dir_part(camera).decode()
        for number, records in by_frame.items():
            for copy, record in enumerate(records, 1):
                what, size = kind(record)
                content = ("stored", record.data)
                suffix = {"jpeg": ".jpg", "png": ".png", "opaque": ".bin"}.get(what, ".png")
                if what == "raw":
                    content = ("png", pixels(record))
                    if not is_png(size):
                        suffix, content = ".npy", ("npy", pixels(record))
                extra = f"%_{copy}" if copy > 1 else ""
                want[f"{folder}/{number:0{digits}}{extra}{suffix}"] = content
        firsts = [records[0] for records in by_frame.values()]
        kinds = [kind(record) for record in firsts]
        sizes = {size for _, size in kinds}
        if (sound_frames is None and len(firsts) == count and len(sizes) == 1
                and all(size and 0 not in size for size in sizes) and all(what != "opaque" for what, _ in kinds)):
            exact = all(what != "jpeg" for what, _ in kinds)
            want[names.file_part(camera, b".npy").decode()] = ("stack", np.stack([pixels(r) for r in firsts]), exact)
    return want
