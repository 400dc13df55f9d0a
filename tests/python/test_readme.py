"""README.md and docs/TOUR.md: their commands and programs print what stands there."""

import os
import re
import subprocess
import sys

from support import BIN, ROOT, run, unmount
from support.pages import blocks, environment, run_blocks

README, TOUR = "README.md", "docs/TOUR.md"
# What a test can't run or compare: builds, a person at a prompt or before a window, programs that may be missing, times.
LEFT_OUT = ("scripts/", "feh ", "duckdb ", "identify ", "shardfs ls -l")


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def commands():
    """Each command of the tour with the lines that follow it."""
    found = []
    for language, _, block, _ in blocks(TOUR):
        if language == "console":
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, want = part.partition("\n")
                found.append((command, want))
    return found


def test_examples(tmp_path):
    """Each example of the README is run, or needs what a test does not have."""
    examples = [mark for _, mark, _, _ in blocks(README) if mark]
    assert {mark.removeprefix("not run: needs ") for mark in examples} == {"run", "a display", "a bucket"}
    home, env = environment(tmp_path)
    assert run_blocks(README, home, env, ["mnt"]) >= 5


def test_tour(tmp_path):
    home, env = environment(tmp_path)
    (home / "tests").symlink_to(ROOT / "tests")
    ran = 0
    try:
        for command, want in commands():
            if command.startswith(LEFT_OUT) or command == "python3":
                continue
            done = subprocess.run(["bash", "-c", command], cwd=home, env=env, stdin=subprocess.DEVNULL, timeout=120,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
            # `ls` makes columns on a terminal only.
            said, want = (done.stdout.split(), want.split()) if command.startswith("ls ") else (done.stdout, want)
            assert said == want, command
            ran += 1
        assert not os.path.ismount(home / "mnt")
    finally:
        unmount(home / "mnt")
    assert ran >= 15


def test_python(tmp_path):
    """The code of the section Python, and all that it prints."""
    (code, want), = [(text, want) for language, _, text, want in blocks(TOUR) if language == "python"]
    home, _ = environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, want), done.stderr


def test_every_command_and_option_is_named():
    help_text = subprocess.run([BIN, "--help"], capture_output=True, text=True, check=True).stdout
    named = re.findall(r"^  ([a-z]+) +[A-Z]", help_text, re.M)
    assert len(named) > 10
    for command in named:
        assert f"`shardfs {command}" in text_of(TOUR), command
    # Every option that is named exists.
    every = text_of("docs/CLI.md")
    own = {"--install", "--keep", "--device", "--locked"}  # of scripts, cargo and podman
    for page in (README, TOUR):
        for option in set(re.findall(r"`(--[a-z-]+)", text_of(page))) - own:
            assert option in every, f"{page}: {option}"


def test_the_page_of_options_is_up_to_date():
    assert text_of("docs/CLI.md") == run("reference", check=True).stdout.decode(), "shardfs reference > docs/CLI.md"


def test_the_first_screen_shows_what_it_says():
    first = text_of(README).split("\n## ")[0]
    assert "scripts/demo" in first and "scripts/test --install" in first and "docs/img/screenshot.png" in first
    shown = {README: ["player"], TOUR: ["folder", "array", "table"]}
    for page, pictures in shown.items():
        folder = (ROOT / page).parent
        for name in pictures:
            for theme in ("light", "dark"):
                picture = (ROOT / f"docs/img/{name}-{theme}.png").relative_to(folder)
                assert f'="{picture}"' in text_of(page) and (folder / picture).exists(), picture
