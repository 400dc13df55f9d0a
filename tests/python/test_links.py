"""Folders of symbolic links, as caches of DVC and Hugging Face make them: what `verify` says of them, and how Python
opens them."""

import json
import os
import pickle
import shutil

import fsspec
import numpy as np
import pytest

import shardfs as sh
from support import FIXTURES, mounted, run
from support.writers import models


@pytest.fixture
def places(tmp_path):
    """`data` with links into itself, out of itself, to nothing; the files are in `data/blobs` and `elsewhere`."""
    data = tmp_path / "data"
    (data / "blobs").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(FIXTURES / "ep_001.wshard", tmp_path / "elsewhere/0a1b")
    (data / "out.wshard").symlink_to("../elsewhere/0a1b")
    return tmp_path


def verify(*args):
    done = run("verify", *args)
    return done.returncode, done.stdout.decode(), done.stderr


def test_only_links_is_not_nothing_wrong(places):
    code, out, err = verify(places / "data")
    assert (code, err) == (2, "")
    assert out == ("nothing was checked: 0 containers, 0 files, 0 B read; 1 symbolic link not followed\n"
                   "of the links, 1 leads outside, which --follow-links=outside allows\n")


def test_each_kind_of_link_is_counted(places):
    data = places / "data"
    shutil.copy(FIXTURES / "demo.kdb", data / "blobs/2c3d")
    (data / "in.kdb").symlink_to("blobs/2c3d")
    (data / "gone.kas").symlink_to("blobs/none")
    code, out, _ = verify(data)
    assert code == 0
    summary, links = out.splitlines()
    assert summary.startswith("nothing is wrong: 1 container, ") and summary.endswith("; 3 symbolic links not followed")
    assert links == ("of the links, 1 can be followed with --follow-links; 1 leads outside, which --follow-links=outside "
                     "allows; 1 leads to nothing")
    code, out, _ = verify("--follow-links", data)
    assert code == 0 and out.startswith("nothing is wrong: 2 containers, ")
    assert out.splitlines()[1] == "of the links, 1 leads outside, which --follow-links=outside allows; 1 leads to nothing"
    result = json.loads(verify("--json", "--follow-links", data)[1])
    assert (result["links"], result["links_outside"], result["links_dangling"]) == (2, 1, 1)


def test_a_link_given_as_path_is_followed(places):
    code, out, _ = verify(places / "data/out.wshard")
    assert code == 0 and out.startswith("nothing is wrong: 1 container, ")


def test_the_option_takes_its_values():
    for value in ("--follow-links", "--follow-links=no", "--follow-links=inside", "--follow-links=outside"):
        assert run("ls", value, FIXTURES).returncode == 0
    wrong = run("ls", "--follow-links=all", FIXTURES)
    assert wrong.returncode == 2 and "possible values: no, inside, outside" in wrong.stderr


def test_a_cache_of_links_can_be_had(places):
    code, out, _ = verify("--follow-links=outside", places / "data")
    assert code == 0 and out.startswith("nothing is wrong: 1 container, ") and "link" not in out
    with mounted(places / "data", "--follow-links=outside") as mnt:
        assert sorted(os.listdir(mnt)) == ["blobs", "out.wshard"]
        assert (mnt / "out.wshard/.file").read_bytes() == (FIXTURES / "ep_001.wshard").read_bytes()
    listed = run("ls", "--follow-links=outside", places / "data/out.wshard", check=True).stdout.decode().split()
    assert "container.json" in listed


@pytest.fixture
def model(tmp_path):
    """The index of a model in two files as the Hub's cache has it: links into a folder beside their own."""
    folder, blobs = tmp_path / "snapshots/abc", tmp_path / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    names = {}
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        (blobs / f"hash{number}").write_bytes(models.safetensors({f"l{number}.w": np.full((2, 3), number, "<f4")}))
        (folder / name).symlink_to(f"../../blobs/hash{number}")
        names[f"l{number}.w"] = name
    (blobs / "index").write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": names}))
    (folder / "model.safetensors.index.json").symlink_to("../../blobs/index")
    return folder / "model.safetensors.index.json"


def test_python_opens_a_model_in_the_cache_of_the_hub(model):
    found = sh.open(model, follow_links="outside")
    assert found.format == "safetensors" and list(found) == ["l1.w", "l2.w"]
    assert found["l2.w"][0].tolist() == [2, 2, 2]
    assert pickle.loads(pickle.dumps(found["l2.w"]))[0].tolist() == [2, 2, 2]
    assert sh.open(model / "l2.w", follow_links="outside")[0].tolist() == [2, 2, 2]
    assert [each.path for each in sh.walk(model.parent, follow_links="outside")] == [str(model)]
    files = fsspec.filesystem("shardfs", source=str(model.parent), follow_links="outside")
    assert np.load(files.open(f"{model.name}/l1.w.npy"))[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("follow", ["no", "inside"])
def test_links_that_lead_out_are_not_followed_unless_asked(model, follow):
    with pytest.raises(sh.NotAContainer) as error:
        sh.open(model, follow_links=follow)
    assert str(error.value) == (f"{model.resolve()}: not a folder, and not a container of any known format; {model} is a link "
                                "to it, which follow_links='outside' opens by its own name")
    assert list(sh.walk(model.parent, follow_links=follow)) == []
    whole = list(sh.walk(model.parents[2], follow_links=follow))
    assert (str(model.parents[2] / "snapshots/abc" / model.name) in [each.path for each in whole]) is (follow == "inside")
    done = run("cat", f"--follow-links={follow}", model / "l1.w.npy")
    assert done.returncode == 1 and f"{model} is a link to it, which --follow-links=outside opens" in done.stderr
    with pytest.raises(ValueError, match="'all': 'no', 'inside' or 'outside'"):
        sh.open(model, follow_links="all")
