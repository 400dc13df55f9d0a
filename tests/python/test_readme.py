"""README.md: the commands of its tour print what stands there."""

import os
import re
import shutil
import subprocess
import sys

from support import BIN, FIXTURES, ROOT, run, unmount

# What a test can't run or compare: builds, a person at a prompt or before a window, programs that may be missing, times.
LEFT_OUT = ("scripts/", "feh ", "duckdb ", "identify ", "shardfs ls -l")


def commands():
    """Each command with the lines that follow it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, want = part.partition("\n")
            found.append((command, want))
    return found


def test_tour(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/shardfs").symlink_to(BIN)
    (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python3").chmod(0o755)
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    ran = 0
    try:
        for command, want in commands():
            if command.startswith(LEFT_OUT) or command == "python3":
                continue
            done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, timeout=120,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
            # `ls` makes columns on a terminal only.
            said, want = (done.stdout.split(), want.split()) if command.startswith("ls ") else (done.stdout, want)
            assert said == want, command
            ran += 1
        assert not os.path.ismount(tmp_path / "mnt")
    finally:
        unmount(tmp_path / "mnt")
    assert ran >= 15


def test_python(tmp_path):
    """The code of the section Python, and all that it prints."""
    (code, want), = re.findall(r"^```python\n(.*?)^```\n```output\n(.*?)^```",
                               (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, want), done.stderr


def test_every_command_and_option_is_named():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    help_text = subprocess.run([BIN, "--help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"^  ([a-z]+) +[A-Z]", help_text, re.M):
        assert f"`shardfs {command}" in text, command
    # Every option that is named exists.
    every = (ROOT / "docs/CLI.md").read_text(encoding="utf-8")
    own = {"--install", "--keep", "--device", "--locked"}  # of scripts, cargo and podman
    for option in set(re.findall(r"`(--[a-z-]+)", text)) - own:
        assert option in every, option


def test_the_page_of_options_is_up_to_date():
    written = (ROOT / "docs/CLI.md").read_text(encoding="utf-8")
    assert written == run("reference", check=True).stdout.decode(), "shardfs reference > docs/CLI.md"


def test_the_first_screen_shows_what_it_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.split("\n## ")[0]
    assert "scripts/demo" in first and "scripts/test --install" in first and "docs/img/screenshot.png" in first
    for link in re.findall(r"\]\(([^)#:]+)\)", first):
        assert link.startswith("../../actions/") or (ROOT / link).exists(), link
    for page in ("folder", "player", "array", "table"):
        for theme in ("light", "dark"):
            picture = f"docs/img/{page}-{theme}.png"
            assert f'="{picture}"' in text and (ROOT / picture).exists(), picture
