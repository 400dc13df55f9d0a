"""What a mount must show of the pictures of a KDB episode: a reading of the rules, for comparing."""

import io

import numpy as np
from PIL import Image

from . import names

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


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
