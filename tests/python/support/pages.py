"""The examples that pages show: what is marked `run` is run in order, in a copy of `fixtures/`, and prints what stands below
it. What is marked `not run: needs X` needs a program or rights that the tests do not have."""

import os
import re
import shutil
import subprocess
import sys

from .mounts import unmount
from .paths import BIN, FIXTURES, ROOT

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)


def blocks(page):
    """(language, mark, text, expected output or None) of each block of a page."""
    found = []
    for language, mark, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "output":
            last = found.pop()
            assert last[3] is None, "two outputs below one block"
            found.append((*last[:3], text))
        else:
            found.append((language, mark.strip(), text, None))
    return found


def environment(folder):
    """A copy of `fixtures/` in a folder, and variables that put shardfs and this Python into the path."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "shardfs").symlink_to(BIN)
    (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python3").chmod(0o755)
    home = folder / "home"
    home.mkdir()
    shutil.copytree(FIXTURES, home / "fixtures")
    return home, {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


def run_blocks(page, home, env, mounts):
    """Runs the blocks of a page that are marked so, and compares what they print; returns how many ran. `mounts` are the
    folders that they mount at and take down again."""
    ran = 0
    try:
        for language, mark, text, want in blocks(page):
            if mark != "run":
                continue
            command = {"sh": ["bash", "-eo", "pipefail", "-c", text], "python": ["python3", "-c", text]}[language]
            done = subprocess.run(command, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  encoding="utf-8", timeout=120)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            if want is not None:
                assert done.stdout == want, text
            ran += 1
        for mount in mounts:
            assert not os.path.ismount(home / mount), mount
    finally:
        for mount in mounts:
            unmount(home / mount)
    return ran
