"""docs/COOKBOOK.md: what is marked `run` is run, in order, and prints what stands below it."""

from support import ROOT
from support.pages import blocks, environment, run_blocks

PAGE = "docs/COOKBOOK.md"
# Needs that a recipe may name; nothing else is left out.
NEEDS = {"torch", "ray", "jax", "torchvision", "podman", "systemd", "a cluster", "a bucket", "a file of AnnData",
         "root and /etc/fstab", "R", "Julia"}


def test_every_block_is_run_or_says_why_not():
    marks = [mark for _, mark, _, _ in blocks(PAGE)]
    assert marks.count("run") >= 15
    for mark in marks:
        assert mark == "run" or mark.removeprefix("not run: needs ") in NEEDS, mark
    assert all(mark == "run" for _, mark, _, want in blocks(PAGE) if want is not None)


def test_recipes(tmp_path):
    home, env = environment(tmp_path)
    (home / "examples").symlink_to(ROOT / "examples")
    run_blocks(PAGE, home, env, ["mnt", "notebook-mnt"])
