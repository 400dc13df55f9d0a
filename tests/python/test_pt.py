"""PyTorch checkpoints that torch.save writes, and what it does not."""

import json

import numpy as np
import pytest

from support import mounted, run
from support.writers import pt, zip as zips

LEFT_OUT = {
    # `torch.jit.save` of a module with weights: the first member is one of these.
    "torchscript": {"m/data/0": bytes(8), "m/data.pkl": b"\x80\2N.", "m/constants.pkl": b"\x80\2)."},
    "bad_layout": {"m/data/0": bytes(8), "m/data.pkl": b"\x80\2N.", "m/a/constants.pkl": b"\x80\2)."},
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_what_is_no_checkpoint_says_why(tmp_path, reason):
    (tmp_path / "m.pt").write_bytes(zips.archive(LEFT_OUT[reason]))
    result = run("verify", tmp_path / "m.pt")
    assert f" {reason}: ".encode() in result.stdout, result


def test_too_little_memory_is_said(tmp_path):
    """A checkpoint is told by its content, not by its suffix, also if the rest of it does not fit."""
    values = b"\x80\4](" + b"N" * 900_000 + b"e."
    (tmp_path / "list.pt").write_bytes(zips.archive({"m/data.pkl": values}, deflated=["m/data.pkl"]))
    (tmp_path / "paths.pth").write_bytes(b"/opt/site-packages\n")
    for command in ("info", "verify"):
        result = run(command, "--cache-size=64M", tmp_path / "list.pt")
        said = result.stdout.decode() + result.stderr
        assert result.returncode != 0 and "--cache-size must be " in said, (command, said)
    with mounted(tmp_path, "--cache-size=64M") as mnt:
        assert (mnt / "list.pt").is_file() and (mnt / "paths.pth").is_file()
        (problem,) = [json.loads(line) for line in (mnt / ".shardfs/problems.jsonl").read_text().splitlines()]
        assert problem["container"] == "list.pt" and "--cache-size must be " in problem["message"]


@pytest.mark.parametrize("shape", [(300, 700), (16, 5000), (5000, 16), (1200, 1200)])
def test_transposed_tensors(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype="<f4").reshape(shape)
    views = {"t": pt.View(array, shape[::-1], (1, shape[1])),
             "part": pt.View(array, (shape[1] // 3, shape[0] // 2), (3, 2 * shape[1]))}
    (tmp_path / "m.pt").write_bytes(pt.checkpoint(views))
    with mounted(tmp_path) as mnt:
        assert np.array_equal(np.load(mnt / "m.pt/t.npy"), array.T)
        assert np.array_equal(np.load(mnt / "m.pt/part.npy"), array[:shape[0] // 2 * 2:2, :shape[1] // 3 * 3:3].T)


def test_tensors_with_attributes(tmp_path):
    """PyTorch 2 saves them by functions of their own."""
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    weights = {"parameter": pt.WithAttributes(array, {"is_norm": True}, is_parameter=True),
               "picture": pt.WithAttributes(array + 1, {"format": "RGB"}), "plain": array}
    (tmp_path / "m.pt").write_bytes(pt.checkpoint(weights))
    with mounted(tmp_path) as mnt:
        assert sorted(path.name for path in (mnt / "m.pt").glob("*.npy")) == ["parameter.npy", "picture.npy", "plain.npy"]
        assert np.array_equal(np.load(mnt / "m.pt/parameter.npy"), array)
        assert np.array_equal(np.load(mnt / "m.pt/picture.npy"), array + 1)
        assert not (mnt / "m.pt/values.json").exists()


def test_a_part_of_a_distributed_checkpoint_is_a_file(tmp_path):
    """One archive of `torch.save` for each tensor, one after the other. It is whole, so nothing is reported."""
    tensor = pt.checkpoint({"t": np.arange(4.0)})
    for name in ("__0_0.distcp", "x.pt"):
        (tmp_path / name).write_bytes(tensor + tensor)
    said = run("verify", tmp_path).stdout.decode()
    assert "x.pt: not shown as a PyTorch container" in said and "distcp" not in said, said
