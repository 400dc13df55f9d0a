"""KDB files that the format allows and few expect, against a reading of the rules of our own."""

import io
import json
import math
import os
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from support import assert_same_file, check_npy, mounted, names, png_size, read_checked, run, walk_files
from support.kdb_views import expected_images, own_size
from support.writers.kdb import Episode, Record, pack

NAMES = [b"front", b"Front", b"wrist", b"a/b", b"a", b"..", b".", b"", b"/", b"nul\0l", b"%2E", b"50%", b"x.npy", b"x",
         b"x.tar.json", b".raw", b".shardfs", b"images", b"\xff\xc3\xa9\xc3", "é".encode(), "e\u0301".encode(), b"tab\t",
         b"%_2", b"c%_2", b"c", b"0", b"l" * 251, b"l" * 252, b"l" * 255, b"l" * 256, b"l" * 299 + b"m", b"l" * 300,
         b"\n" * 100, "ü".encode() * 200, b"steps/observation/camera", b"l" * 250 + b".png", b"k" * 65535]


def png_of_few_bits(depth):
    """A grey picture of 7 x 5 pixels of fewer than 8 bits, which Pillow reads but does not write."""
    row = -(-7 * depth // 8)
    data = b"".join(b"\0" + bytes((40 * y + 90 * x + 1) % 256 for x in range(row)) for y in range(5))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 7, 5, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def encoded():
    """Pictures as files, of all the kinds that there are."""
    rng = np.random.default_rng(3)
    grey = rng.integers(0, 256, (5, 7), dtype=np.uint8)
    colour = np.kron(rng.integers(0, 256, (2, 2, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    rgb = Image.fromarray(colour)
    pictures = [(Image.fromarray(grey), "PNG", {}), (rgb, "PNG", {}), (rgb.convert("RGBA"), "PNG", {}),
                (rgb.convert("LA"), "PNG", {}), (rgb.quantize(8), "PNG", {}), (rgb.convert("1"), "PNG", {}),
                (Image.fromarray(grey.astype("<u2") * 257), "PNG", {}), (rgb, "PNG", {"transparency": (0, 0, 0)}),
                (rgb, "JPEG", {"subsampling": 0}), (rgb, "JPEG", {"subsampling": 2}),
                (rgb, "JPEG", {"progressive": True}), (Image.fromarray(grey), "JPEG", {}),
                (rgb.convert("CMYK"), "JPEG", {}), (rgb, "JPEG", {"comment": b"c" * 5000})]
    files = []
    for picture, form, options in pictures:
        out = io.BytesIO()
        picture.save(out, form, **options)
        files.append(out.getvalue())
    # More in front of the frame header than any camera writes.
    jpeg = files[8]
    files += [jpeg[:2] + b"\xff\xfe\0\3x" * 300 + jpeg[2:], jpeg[:2] + b"\xff" * 300 + jpeg[2:]]
    return files + [png_of_few_bits(depth) for depth in (1, 2, 4)]


ENCODED = encoded()
BROKEN = [b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\x00\x04ab", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\nnot a header at all..",
          b"\x89PNG", b"\xff\xd8"]


def some_record(rng, camera):
    """A record whose claims fit its bytes in every degree."""
    choice = rng.random()
    flag = rng.choice([0, 0, 1, 1, 2, 255])
    width, height, channels = rng.randint(1, 6), rng.randint(1, 6), rng.choice([1, 1, 2, 3, 3, 4, 5, 255])
    if choice < 0.1:
        return Record(camera, *rng.choice([(0, 0, 0), (3, 2, 1), (1 << 31, 1 << 31, 255)]), flag, b"")
    if choice < 0.45:
        data = rng.choice(ENCODED + BROKEN)
        claims = [(width, height, channels), (len(data), 1, 1), (1, len(data), 1), (own_size(data) or (1, 1, 3))]
        if len(data) % 3 == 0:
            claims.append((len(data) // 3, 1, 1))
        return Record(camera, *rng.choice(claims), flag, data)
    data = rng.randbytes(width * height * channels)
    if choice < 0.5:
        data = rng.choice([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\x89PNGxyzw"])[:len(data)] + data[11:]
    if choice < 0.6:
        data = rng.randbytes(width * height * 3)
    if choice < 0.7:
        claims = [(0, height, channels), (1 << 31, height, channels), (0xFFFFFFFF, 0xFFFFFFFF, 255), (width, height, 0),
                  (width + 1, height, channels)]
        return Record(camera, *rng.choice(claims), flag, data)
    return Record(camera, width, height, channels, flag, data)


def some_episode(rng, number):
    count = rng.choice([0, 1, 1, 2, 3, 5, 12])
    steady = rng.sample(NAMES, rng.randint(0, 3))
    frames = []
    shapes = {name: some_record(rng, name) for name in steady}
    for _ in range(count):
        frame = [shapes[name] if rng.random() < 0.9 else some_record(rng, name) for name in steady]
        for _ in range(rng.choice([0, 0, 0, 1, 4])):
            frame.append(some_record(rng, rng.choice(steady or NAMES if rng.random() < 0.4 else NAMES)))
        if rng.random() < 0.1:
            frame = []
        rng.shuffle(frame)
        frames.append(frame)
    text = lambda: rng.choice([b"", b"pick up", "öffne".encode(), b"\xff\xfe", b'"\\\n\0', b"t" * 65535])
    return Episode(
        frames, rng.choice([0, 1, 7, 300]), rng.choice([0, 1, 4]), rng.choice([0, number, 2**64 - 1]), text(), text(),
        rng.choice([10.0, 0.0, -1.5, math.nan, math.inf]), rng.randint(0, 4), rng.randint(0, 2),
        rng.choice([0.0, -2.5, math.nan, -math.inf]), seed=number)


def check_images(top, want):
    assert walk_files(top) == set(want)
    for path, (how, content, *exact) in want.items():
        data = read_checked(top / path)
        if how == "stored":
            assert data == content, path
        elif how == "png":
            height, width, channels = content.shape
            assert len(data) == png_size(width, height, channels), path
            with Image.open(io.BytesIO(data)) as picture:
                assert picture.mode == ("L", "LA", "RGB", "RGBA")[channels - 1]
                assert np.asarray(picture).tobytes() == content.tobytes(), path
        else:
            assert check_npy(top / path, "|u1", content.shape) is not None
            array = np.load(top / path)
            worst = np.abs(array.astype(int) - content).max()
            # Decoders of JPEG round differently, most where colours are stored coarsely.
            assert worst <= (0 if how == "npy" or exact[0] else 24), (path, worst)


def check_episode(top, episode, position):
    meta = json.loads(read_checked(top / "meta.json"))
    finite = lambda value: value if math.isfinite(value) else None
    assert meta == {
        "position": position, "episode_id": episode.episode_id,
        "embodiment": episode.embodiment.decode("utf-8", "replace"), "task": episode.task.decode("utf-8", "replace"),
        "fps": finite(episode.fps), "success": {1: False, 2: True}.get(episode.success),
        "total_reward": finite(episode.total_reward) if episode.reward_flag == 1 else None,
        "num_frames": episode.count, "state_dim": episode.state_dim, "action_dim": episode.action_dim}
    state, action, reward, last = episode.arrays()
    for name, array in (("state", state), ("action", action), ("reward", reward), ("is_terminal", last != 0)):
        assert check_npy(top / f"{name}.npy", array.dtype.str, array.shape) == array.tobytes(), name
    files = {"meta.json", "state.npy", "action.npy", "reward.npy", "is_terminal.npy"}
    if len(episode.sections()["images"]) > 2 * episode.count:
        files.add("images")
        check_images(top / "images", expected_images(episode))
    assert set(os.listdir(top)) == files


def test_every_kind_of_encoded_picture(tmp_path):
    """Two frames of each: as they are stored, and as a stack where there is one."""
    episodes = [Episode([[Record(b"c", 1, 1, 3, 1, data)] for _ in range(2)]) for data in ENCODED]
    (tmp_path / "x").write_bytes(pack(episodes))
    with mounted(tmp_path) as mnt:
        for position, episode in enumerate(episodes):
            check_episode(mnt / f"x/episodes/{position}", episode, position)
        stacks = [os.path.exists(mnt / f"x/episodes/{i}/images/c.npy") for i in range(len(ENCODED))]
        assert sum(stacks) == len(ENCODED) - 3, "only those of a palette, of 16 bits and of CMYK have none"


@pytest.mark.parametrize("seed", range(4))
def test_random_episodes(seed, tmp_path):
    rng = random.Random(seed)
    episodes = [some_episode(rng, number) for number in range(60)]
    (tmp_path / "x").write_bytes(pack(episodes, index_first=seed % 2 == 1, gap=b"gap" * (seed // 2)))
    with mounted(tmp_path) as mnt:
        for position, episode in enumerate(episodes):
            check_episode(mnt / f"x/episodes/{position}", episode, position)
        noted = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").open()]
        lossy = {f"episodes/{i}/meta.json" for i, e in enumerate(episodes) if b"\xff" in e.embodiment + e.task}
        assert {problem["path"] for problem in noted} == lossy


def test_all_names_at_once(tmp_path):
    """Each camera has a folder and a stack of its own; the plain listing and `shardfs ls` agree."""
    frames = [[Record(name, 1, 1, 3, 0, bytes([n, t, 9])) for n, name in enumerate(NAMES)] for t in range(2)]
    (tmp_path / "x").write_bytes(pack([Episode(frames)]))
    with mounted(tmp_path) as mnt:
        top = mnt / "x/episodes/0/images"
        check_images(top, expected_images(Episode(frames)))
        assert len(os.listdir(top)) == 2 * len(NAMES)
        listed = run("ls", tmp_path / "x/episodes/0/images", check=True).stdout.decode().splitlines()
        assert sorted(listed) == sorted(os.listdir(top))
        for number, name in enumerate(NAMES):
            assert np.load(top / names.file_part(name, b".npy").decode())[1, 0, 0].tolist() == [number, 1, 9]


def xxh64_twins():
    """Two names of 320 bytes with one XXH64: the two words that differ cancel each other in the state of the hash."""
    p1, p2, mask = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 2**64 - 1

    def after(state, word):
        state = (state + word * p2) & mask
        return ((state << 31 | state >> 33) & mask) * p1 & mask

    first = b"twin" * 80
    state = (p1 + p2) & mask
    for at in range(0, 256, 32):
        state = after(state, struct.unpack_from("<Q", first, at)[0])
    one, two = (struct.unpack_from("<Q", first, at)[0] for at in (256, 288))
    other = one ^ 1 << 40
    # The second word makes good what the first one changed.
    back = (after(state, one) - after(state, other)) * pow(p2, -1, 2**64) + two
    second = bytearray(first)
    struct.pack_into("<Q", second, 256, other)
    struct.pack_into("<Q", second, 288, back & mask)
    return first, bytes(second)


def test_long_names_with_one_hash(tmp_path):
    one, two = xxh64_twins()
    assert one != two and names.dir_part(one) == names.dir_part(two)
    frames = [[Record(one, 1, 1, 1, 0, b"1"), Record(two, 1, 1, 1, 0, b"2")] for _ in range(2)]
    (tmp_path / "x").write_bytes(pack([Episode(frames)]))
    with mounted(tmp_path) as mnt:
        top = mnt / "x/episodes/0/images"
        plain, second = names.dir_part(one).decode(), names.dir_part(two, suffix=b"%_2").decode()
        stacks = [names.file_part(one, b".npy").decode(), names.file_part(two, b"%_2.npy").decode()]
        assert sorted(os.listdir(top)) == sorted([plain, second, *stacks])
        for folder, stack, value in ((plain, stacks[0], b"1"), (second, stacks[1], b"2")):
            assert np.load(top / stack).tobytes() == value * 2
            assert np.asarray(Image.open(top / folder / "001.png")).tobytes() == value


def test_more_than_a_thousand_frames(tmp_path):
    """Numbers are as wide as the last frame's, whatever can be read; a hole stays a hole."""
    frames = [[Record(b"c", 1, 1, 1, 0, bytes([t % 251]))] if t % 7 else [] for t in range(1001)]
    (tmp_path / "x").write_bytes(pack([Episode(frames), Episode(frames[:1000])]))
    with mounted(tmp_path) as mnt:
        for position, digits in ((0, 4), (1, 3)):
            top = mnt / f"x/episodes/{position}/images"
            check_images(top, expected_images(Episode(frames[:1001 - position])))
            assert (top / f"c/{1:0{digits}}.png").exists() and not (top / f"c/{7:0{digits}}.png").exists()


def damaged(breaker):
    """Ten frames of two cameras, of which frame 6 was broken."""
    frames = [[Record(b"a", 2, 1, 3, 0, bytes([t] * 6)), Record(b"b", 1, 1, 1, 0, bytes([t]))] for t in range(10)]
    breaker(frames[6])
    return Episode(frames)


@pytest.mark.parametrize("breaker", [
    lambda frame: setattr(frame[1], "length", 0xFFFFFFFF),
    lambda frame: setattr(frame[0], "length", 1 << 20),
    lambda frame: setattr(frame[1], "name_length", 0xFFFF),
    lambda frame: setattr(frame[0], "name_length", 5000),
], ids=["longest", "long", "longest name", "long name"])
def test_damage_midway(breaker, tmp_path):
    """The frames before it stay, what is behind it is gone, there are no stacks, and the reason is noted."""
    (tmp_path / "x").write_bytes(pack([damaged(breaker), Episode(damaged(lambda _: None).frames)]))
    with mounted(tmp_path) as mnt:
        check_images(mnt / "x/episodes/0/images", expected_images(damaged(breaker), 6))
        check_images(mnt / "x/episodes/1/images", expected_images(damaged(lambda _: None)))
        noted = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").open()]
        assert {problem["path"] for problem in noted} == {"episodes/0/images"}
        assert all("frame 6" in problem["message"] for problem in noted)
        before, broken = (len(Episode(damaged(breaker).frames[:n]).sections()["images"]) for n in (6, 7))
        images = 64 + len(damaged(breaker).sections()["rows"])
        assert all(images + before <= problem["offset"] < images + broken for problem in noted), noted
        assert np.load(mnt / "x/episodes/0/state.npy").shape == (10, 1)


def test_sections_in_odd_places(tmp_path):
    """Shared, overlapping, empty, surplus, past the end, overflowing: each part for itself."""
    one = Episode([[Record(b"c", 1, 1, 3, 0, b"abc")], []], seed=1)
    whole = pack([one])
    offset = {"meta": 64 + len(one.sections()["rows"]) + len(one.sections()["images"])}
    offset |= {"rows": 64, "images": 64 + len(one.sections()["rows"])}
    place = {name: (offset[name], len(data)) for name, data in one.sections().items()}
    assert whole[place["meta"][0]:].startswith(b"\3\0arm")
    shared = Episode(one.frames, places=place, seed=1)
    lies = [(2**64 - 1, 2), (2**64 - 4, 8), (1 << 40, 16), (0, 1 << 40)]
    # A sound first episode, whose sections others point to; lies about one part of each.
    episodes = [one, shared]
    cases = [(name, lie) for name in place for lie in lies]
    episodes += [Episode(one.frames, places=place | {name: lie}, seed=1) for name, lie in cases]
    episodes.append(Episode(one.frames, behind={"meta": b"more", "rows": b"ro", "images": b"im"}, seed=1))
    episodes.append(Episode([[], []], places={"images": (0, 0)}, seed=1))
    (tmp_path / "x").write_bytes(pack(episodes))
    with mounted(tmp_path) as mnt:
        top = mnt / "x/episodes"
        check_episode(top / "0", one, 0)
        check_episode(top / "1", shared, 1)
        parts = {"meta": {"meta.json"}, "images": {"images"},
                 "rows": {"state.npy", "action.npy", "reward.npy", "is_terminal.npy"}}
        everything = set().union(*parts.values())
        for position, (name, _) in enumerate(cases, 2):
            assert set(os.listdir(top / str(position))) == everything - parts[name], (name, position)
        check_episode(top / str(len(episodes) - 2), episodes[-2], len(episodes) - 2)
        assert set(os.listdir(top / str(len(episodes) - 1))) == everything - {"images"}
        noted = {json.loads(line)["path"] for line in (mnt / ".shardfs/problems.jsonl").open()}
        # Surplus rows and pictures are noted, surplus metadata are room for later versions.
        assert {f"episodes/{len(episodes) - 2}", f"episodes/{len(episodes) - 2}/images"} <= noted
        assert not noted & {"episodes/0", "episodes/1", f"episodes/{len(episodes) - 1}"}


def test_headers(tmp_path):
    """What may be opened and what must be refused; the reason is said."""
    episode = Episode([[Record(b"c", 1, 1, 3, 0, b"abc")]])
    good = pack([episode])
    end = len(good)
    accepted = {
        "minor0": {"minor": 0}, "minor9": {"minor": 65535}, "counts": {"episodes": 7, "frames": 2**64 - 1},
        "created": {"created": 2**64 - 1}, "empty": {"index_length": 0},
        "empty_at_end": {"index_offset": end, "index_length": 0},
    }
    refused = {
        "major": {"major": 1}, "magic": {"magic": b"kino"}, "zero": {"magic": bytes(4)}, "past": {"index_offset": end},
        "overflow": {"index_offset": 2**64 - 64}, "huge": {"index_length": 2**64 - 64}, "odd": {"index_length": 63},
        "header": {"index_offset": 0}, "inside": {"index_offset": 63},
        "empty_past": {"index_offset": end + 1, "index_length": 0},
    }
    for name, fields in (accepted | refused).items():
        (tmp_path / name).write_bytes(pack([episode], header=fields))
    (tmp_path / "tail").write_bytes(pack([episode], tail=b"behind"))
    (tmp_path / "alone").write_bytes(pack([]))
    for length in (0, 63, 64, end - 1):
        (tmp_path / f"cut{length}").write_bytes(good[:length])
    with mounted(tmp_path) as mnt:
        for name in [*accepted, "tail", "alone"]:
            assert json.loads((mnt / name / "container.json").read_text())["format"] == "kdb", name
            count = 0 if name in ("empty", "empty_at_end", "alone") else 1
            assert len(os.listdir(mnt / name / "episodes")) == count, name
            run("info", tmp_path / name, check=True)
            assert json.loads(run("info", "--json", tmp_path / name, check=True).stdout)["episodes"] == count
        for name in [*refused, "cut0", "cut63", "cut64", f"cut{end - 1}"]:
            assert_same_file(mnt / name, tmp_path / name)
        noted = {json.loads(line)["container"] for line in (mnt / ".shardfs/problems.jsonl").open()}
        # What does not begin with the magic in a header of full length is no container that was refused.
        assert noted >= (set(refused) | {"cut64", f"cut{end - 1}", "counts"}) - {"magic", "zero"}
        assert not noted & {"magic", "zero", "cut0", "tail", "alone", "minor9"}


def test_info_is_bounded_and_says_so(tmp_path):
    """A table of the first ten; texts of the file do not reach the terminal as they are."""
    frames = [[Record(b"front", 2, 1, 3, 0, b"abcdef"), Record(b"\x1b[2J", 1, 1, 1, 0, b"x")], []]
    episodes = [Episode(frames, task=b"task %d\x1b[31m" % (n % 7), embodiment=b"arm") for n in range(1500)]
    episodes[3] = Episode(frames, places={"meta": (0, 1 << 50)})
    (tmp_path / "x").write_bytes(pack(episodes))
    text = run("info", tmp_path / "x", check=True).stdout.decode()
    assert "\x1b" not in text
    for words in ("episodes: 1500", "frames: 3000", "embodiments of the first 1000 episodes: arm (999)",
                  "and 2 others", "damaged metadata of the first 1000 episodes: 1", "front 2x1 RGB raw (1 pictures)",
                  "… and 1490 more", "(damaged)", "table episodes.parquet: 1500 rows, 10 columns"):
        assert words in text, (words, text)
    assert len(text.splitlines()) == 25, text
    summary = json.loads(run("info", "--json", tmp_path / "x", check=True).stdout)["summary"]
    assert (summary["episodes"], summary["frames"], summary["episodes_looked_at"]) == (1500, 3000, 1000)
    assert len(summary["first_episodes"]) == 10
    camera = {"name": "front", "pictures": 1, "width": 2, "height": 1, "channels": 3, "encoding": "raw"}
    assert summary["first_episodes"][0]["cameras"][0] == camera
