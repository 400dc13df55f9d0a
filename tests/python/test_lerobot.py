"""LeRobot data sets that pyarrow writes, with the values that pyarrow reads."""

import errno
import itertools
import json

import numpy as np
import pytest

from support import mounted, read_checked, run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COUNT = 12
NONE = [None] * COUNT
SOME = [None if row % 3 == 0 else row / 2 for row in range(COUNT)]
# Type, shape of a step, and the values. With row groups of 4, each has pages of nulls only.
COLUMNS = {
    "none": (pa.float32(), [1], NONE),
    "none_wide": (pa.float64(), [1], NONE),
    "last_none": (pa.float32(), [1], SOME[:8] + NONE[:4]),
    "some": (pa.float64(), [1], SOME),
    "lists_of_none": (pa.list_(pa.float32()), [2], [[None, None]] * COUNT),
    "lists_first_none": (pa.list_(pa.float32()), [2], [[None, None]] * 8 + [[row, None] for row in range(4)]),
    "lists_of_one_none": (pa.list_(pa.float64(), 1), [1], [[None]] * 8 + [[1.5]] * 4),
}
REFUSED = {
    "null_lists": (pa.list_(pa.float32()), [2], NONE),
    "empty_lists": (pa.list_(pa.float32()), [2], [[]] * COUNT),
    "integers": (pa.int64(), [1], NONE),
}
OPTIONS = {"data_page_version": ("1.0", "2.0"), "use_dictionary": (False, True), "compression": ("none", "zstd"),
           "row_group_size": (4, COUNT)}
LAYOUTS = [dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())]


def write(root, columns, **layout):
    """A data set of one episode with these columns as features."""
    row = np.arange(COUNT)
    own = {"timestamp": pa.array((row / 10).astype("f4")), "frame_index": pa.array(row), "index": pa.array(row),
           "episode_index": pa.array(row * 0), "task_index": pa.array(row * 0)}
    features = {name: {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1]} for name in own}
    for name, (kind, shape, values) in columns.items():
        own[name] = pa.array(values, kind)
        features[name] = {"dtype": np.dtype(getattr(kind, "value_type", kind).to_pandas_dtype()).name, "shape": shape}
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    pq.write_table(pa.table(own), root / "data/chunk-000/file-000.parquet", **layout)
    episodes = {"episode_index": [0], "length": [COUNT], "tasks": [["t"]], "dataset_from_index": [0],
                "dataset_to_index": [COUNT], "data/chunk_index": [0], "data/file_index": [0]}
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["t"]}), root / "meta/tasks.parquet")
    path = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    info = {"codebase_version": "v3.0", "fps": 10, "features": features, "data_path": path, "video_path": None}
    (root / "meta/info.json").write_text(json.dumps(info))


def test_pages_of_nulls_only_are_nan(tmp_path):
    for number, layout in enumerate(LAYOUTS):
        write(tmp_path / str(number), COLUMNS, **layout)
        write(tmp_path / f"refused_{number}", REFUSED, **layout)
    with mounted(tmp_path) as mnt:
        for number, layout in enumerate(LAYOUTS):
            table = pq.read_table(tmp_path / str(number) / "data/chunk-000/file-000.parquet")
            episode = mnt / str(number) / "episodes/0"
            for name in COLUMNS:
                wanted = np.array([np.ravel(value) for value in table[name].to_pylist()], "f8").reshape(COUNT, -1)
                found = np.load(episode / f"{name}.npy")
                assert np.array_equal(found.reshape(COUNT, -1), wanted, equal_nan=True), (name, layout)
            for name in REFUSED:
                with pytest.raises(OSError) as raised:
                    (mnt / f"refused_{number}/episodes/0/{name}.npy").read_bytes()
                assert raised.value.errno == errno.EIO, (name, layout)
            (tmp_path / "steps.parquet").write_bytes(read_checked(mnt / str(number) / "steps.parquet"))
            steps = pq.read_table(tmp_path / "steps.parquet")
            for name in ("none", "last_none"):
                found, wanted = (each[name].to_pandas().to_numpy() for each in (steps, table))
                assert np.array_equal(found, wanted, equal_nan=True), (name, layout)


def test_levels_have_the_bytes_that_are_stated(tmp_path):
    """A damaged header puts the values four bytes further on, where other values are found."""
    write(tmp_path / "set", {"x": (pa.float64(), [1], [1.5, 2.5] * 6)}, data_page_version="2.0", compression="none")
    path = tmp_path / "set/data/chunk-000/file-000.parquet"
    data, column = bytearray(path.read_bytes()), pq.ParquetFile(path).metadata.row_group(0).column(5)
    assert column.path_in_schema == "x"
    # The header's fields: values, nulls, rows, encoding, bytes of definition and of repetition levels.
    fields = bytes.fromhex("1518 1500 1518 1510 1504 1500")
    data[data.index(fields, column.data_page_offset) + 9] = 2 * 6
    path.write_bytes(data)
    with pytest.raises(OSError):
        pq.read_table(path, columns=["x"])
    result = run("cat", tmp_path / "set/episodes/0/x.npy")
    assert result.returncode == 1 and "levels have 2 bytes, 6 are stated" in result.stderr, result.stderr


def test_a_missing_value_is_named_by_its_row(tmp_path):
    one = (pa.int64(), [1], [1] * 7 + [None] + [2] * 4)
    lists = (pa.list_(pa.int64()), [2], [[1, 2]] * 7 + [[1, None]] + [[3, 4]] * 4)
    write(tmp_path / "set", {"one": one, "lists": lists})
    for name in ("one", "lists"):
        result = run("cat", tmp_path / f"set/episodes/0/{name}.npy")
        assert result.returncode == 1 and "row 7: a value is missing" in result.stderr, result.stderr


def test_a_feature_that_an_episode_does_not_have_is_named(tmp_path):
    write(tmp_path / "set", {"x": (pa.int64(), [3], list(range(COUNT)))})
    path = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pa.table(pq.read_table(path).to_pydict() | {"episode_index": [7]}), path)
    result = run("cat", tmp_path / "set/steps.parquet")
    assert result.returncode == 1 and "x is left out of episode 7" in result.stderr, result.stderr


def test_info_says_what_is_stored(tmp_path):
    """Numbers of episodes, not their positions; no robot where there is none; the rate with all its digits."""
    write(tmp_path / "set", {})
    info = json.loads((tmp_path / "set/meta/info.json").read_text()) | {"fps": 29.97}
    (tmp_path / "set/meta/info.json").write_text(json.dumps(info))
    path = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    episodes = pq.read_table(path).to_pydict() | {"episode_index": [7]}
    pq.write_table(pa.table(episodes), path)
    text = run("info", tmp_path / "set", check=True).stdout.decode()
    assert "embodiments" not in text and "fps: 29.97 (1)" in text, text
    summary = json.loads(run("info", "--json", tmp_path / "set", check=True).stdout)["summary"]
    (first,) = summary["first_episodes"]
    assert (first["folder"], first["fps"], first["embodiment"]) == ("episodes/7", 29.97, None)
    lines = run("info", tmp_path / "set/episodes/7", check=True).stdout.decode().splitlines()
    assert any(line.split()[:2] == ["7", str(COUNT)] for line in lines), lines


def test_tasks_of_another_form_are_reported(tmp_path):
    write(tmp_path / "set", {})
    path = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    pq.write_table(pa.table(pq.read_table(path).to_pydict() | {"tasks": ["t"]}), path)
    result = run("verify", tmp_path / "set")
    assert "column tasks: it has no lists of texts" in result.stdout.decode() + result.stderr, result


def test_tasks_that_are_null_keep_their_places(tmp_path):
    write(tmp_path / "set", {})
    path = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    tasks = [None, "pick", "", None]
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("tasks"), "tasks", [pa.array([tasks])]), path)
    assert pq.read_table(path)["tasks"].to_pylist() == [tasks]
    assert json.loads(run("cat", tmp_path / "set/episodes/0/meta.json", check=True).stdout)["tasks"] == tasks


def test_no_place_is_named_where_none_is_known(tmp_path):
    """A picture is in a row, and that in a page of several pieces."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    write(tmp_path / "set", {"x": (pa.int64(), [1], [0] * COUNT)})
    path, info = tmp_path / "set/data/chunk-000/file-000.parquet", tmp_path / "set/meta/info.json"
    pictures = pa.array([{"bytes": b"\x89PNG\r\n\x1a\nno", "path": None}] * COUNT, kind)
    pq.write_table(pq.read_table(path).append_column("front", pictures), path)
    described = json.loads(info.read_text())
    described["features"]["front"] = {"dtype": "image", "shape": [2, 2, 3], "names": ["height", "width", "channels"]}
    info.write_text(json.dumps(described))
    done = run("cat", tmp_path / "set/episodes/0/images/front.npy")
    assert done.returncode == 1 and "the picture of row 0" in done.stderr and "byte 0" not in done.stderr, done.stderr
