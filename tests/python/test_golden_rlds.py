"""Every golden data set of TFDS and every TFRecord file (`tests/golden/rlds/README.md` has the form of `expected.json`)."""

import io
import json
import os
import stat

import numpy as np
import pytest

import shardfs as sh
from support import GOLDEN, assert_same_file, load_expected, mounted, run, walk_files
from support.data_sets import check, same_folder
from support.writers import tfrecord

FAMILY = GOLDEN / "rlds"
ALL = load_expected("rlds")
FRAMES = np.load(FAMILY / "frames.npz")


@pytest.fixture(scope="module")
def mnt():
    with mounted(FAMILY) as mnt:
        yield mnt


@pytest.mark.parametrize("name", sorted(name for name, spec in ALL.items() if not spec["claim"]))
def test_ordinary(mnt, name):
    spec = ALL[name]
    if (FAMILY / name).is_dir():
        same_folder(mnt / name, FAMILY / name)
    else:
        assert_same_file(mnt / name, FAMILY / name)
    lines = map(json.loads, (mnt / ".shardfs/problems.jsonl").read_text().splitlines())
    found = [line for line in lines if (line["container"] + "/").startswith(name + "/")]
    assert bool(found) == spec["problem"], found


@pytest.mark.parametrize("name", sorted(name for name, spec in ALL.items() if spec["claim"]))
def test_claimed(mnt, name):
    spec, root = ALL[name], mnt / name
    tree = spec["tree"]
    files = {path for path, entry in tree.items() if "dir" not in entry}
    empty = {f"{path}/" for path, entry in tree.items() if "dir" in entry}
    found = {path for path in walk_files(root) if not path.endswith(".parquet")}
    assert found - empty == files and all(not path.endswith("/") or path in empty for path in found)
    times = os.stat(FAMILY / name / spec["marker"] if spec["kind"] == "folder" else FAMILY / name)
    for path, entry in {**tree, **spec.get("unlisted", {})}.items():
        if "dir" in entry:
            assert stat.S_ISDIR(os.lstat(root / path).st_mode), path
            continue
        check(root / path, entry, FRAMES)
        assert os.lstat(root / path).st_mtime_ns == times.st_mtime_ns, path
    if spec["kind"] == "folder":
        same_folder(root / ".source", FAMILY / name)
    else:
        assert_same_file(root / ".file", FAMILY / name)


def test_items_have_the_paths_of_their_files(tmp_path):
    """Of a step and the record that have one name, and of one named as the folder of cameras."""
    ragged = {"pythonClassName": "x.Sequence", "sequence": {"feature": tfrecord.tensor("int64"), "length": "-1"}}
    steps = {"a": tfrecord.tensor("float32"), "images": ragged, "is_first": tfrecord.tensor("bool")}
    record = tfrecord.example({
        "a": [7], "steps/a": [1.0, 2.0], "steps/is_first": [1, 0], "steps/images/ragged_flat_values": [7, 8, 9],
        "steps/images/ragged_row_lengths_0": [1, 2]})
    features = {"a": tfrecord.tensor("int64"), "steps": tfrecord.steps(steps)}
    tfrecord.write_set(tmp_path, "ds", "1.0.0", features, {"train": [[record]]})
    items = json.loads(run("cat", tmp_path / "container.json", check=True).stdout)["items"]
    paths = {item["name"]: item["path"].replace("<split>", "train").replace("<i>", "0") for item in items}
    arrays = {name: np.load(io.BytesIO(run("cat", tmp_path / path, check=True).stdout)) for name, path in paths.items()}
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "a": 7, "steps/a": [1, 2], "steps/images": [0, 1, 3], "steps/is_first": [True, False]}


def test_episodes_in_python():
    """As those of KDB and LeRobot: arrays, cameras and pictures by position, through all splits."""
    name = next(name for name in ALL if name.startswith("toy_robot"))
    tree, container = ALL[name]["tree"], sh.open(FAMILY / name)
    folders = sorted({path.rsplit("/episodes/", 1)[0] for path in tree if "/episodes/" in path})
    numbers = {split: {int(path.split("/")[2]) for path in tree if path.startswith(f"{split}/episodes/")}
               for split in folders}
    assert len(container.episodes) == sum(map(len, numbers.values()))
    seen = set()
    for episode in container.episodes:
        place = episode.path.removeprefix(f"{container.path}/")
        seen.add(place)
        assert episode.meta == tree[f"{place}/meta.json"]["json"] or episode.meta["num_steps"] >= 0
        arrays = {path.removeprefix(f"{place}/").removesuffix(".npy") for path, entry in tree.items()
                  if path.startswith(f"{place}/") and path.endswith(".npy") and "npy" in entry}
        assert arrays - set(episode) == {path for path in arrays if path.endswith(("/offsets", "/values"))}
        for camera, pictures in episode.images.items():
            assert len(pictures) == episode.meta["num_steps"], (place, camera)
            first = f"{place}/images/{camera}/000"
            stored = next(suffix for suffix in (".jpg", ".png") if first + suffix in tree)
            assert len(pictures[0].bytes) == tree[first + stored]["size"]
    assert seen == {f"{split}/episodes/{number}" for split in numbers for number in numbers[split]}


def test_an_empty_instruction_is_one(tmp_path):
    steps = {"is_first": tfrecord.tensor("bool"), "language_instruction": tfrecord.TEXT}
    first = {"steps/is_first": np.array([1, 0])}
    told = [first | {"steps/language_instruction": [text, text]} for text in (b"", b"pick")]
    records = [tfrecord.example(record) for record in (*told, first)]
    tfrecord.write_set(tmp_path, "ds", "1.0.0", {"steps": tfrecord.steps(steps)}, {"train": [records]})
    summary = json.loads(run("info", "--json", tmp_path, check=True).stdout)["summary"]
    assert [episode["task"] for episode in summary["first_episodes"]] == ["", "pick", None]
    assert summary["tasks"] == {"": 1, "pick": 1}
    lines = run("info", tmp_path, check=True).stdout.decode().splitlines()
    assert [line.split()[2:] for line in lines[-3:]] == [["2", '""'], ["2", "pick"], ["2"]]
