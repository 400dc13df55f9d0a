"""docs/COOKBOOK.md: what is marked `run` is run, in order, and prints what stands below it."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from support import BIN, FIXTURES, ROOT, unmount

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
# Needs that a recipe may name; nothing else is left out.
NEEDS = {"torch", "ray", "jax", "torchvision", "podman", "systemd", "a cluster", "a bucket",
         "root and /etc/fstab"}


def blocks():
    """(language, mark, text, expected output or None) of each block."""
    found = []
    for language, mark, text in BLOCK.findall((ROOT / "docs/COOKBOOK.md").read_text(encoding="utf-8")):
        if language == "output":
            last = found.pop()
            assert last[1] == "run" and last[3] is None, "an output below a block that is not run"
            found.append((*last[:3], text))
        else:
            found.append((language, mark.strip(), text, None))
    return found


def test_every_block_is_run_or_says_why_not():
    marks = [mark for _, mark, _, _ in blocks()]
    assert marks.count("run") >= 15
    for mark in marks:
        assert mark == "run" or mark.removeprefix("not run: needs ") in NEEDS, mark


def test_recipes(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "shardfs").symlink_to(BIN)
    (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python3").chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copytree(FIXTURES, home / "fixtures")
    (home / "examples").symlink_to(ROOT / "examples")
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    try:
        for language, mark, text, want in blocks():
            if mark != "run":
                continue
            command = {"sh": ["bash", "-eo", "pipefail", "-c", text], "python": ["python3", "-c", text]}[language]
            done = subprocess.run(command, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  encoding="utf-8", timeout=120)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            if want is not None:
                assert done.stdout == want, text
        assert not os.path.ismount(home / "mnt")
    finally:
        unmount(home / "mnt")
        unmount(home / "notebook-mnt")


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT).as_posix() for path in
                                        [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]))
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        # That of the badge is the forge's.
        assert link.startswith("../../actions/") or ((ROOT / page).parent / link).exists(), link
