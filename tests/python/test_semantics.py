"""docs/SEMANTICS.md: every promise names tests that exist; SECURITY.md: so does every attempt; tests/mutants.toml: what it
takes away stands where it says."""

import re
import subprocess
import sys

import pytest

from support import ROOT


@pytest.mark.parametrize("page", ["docs/SEMANTICS.md", "SECURITY.md"])
def test_every_named_test_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.]+)::(\w+)`", text)
    assert len(named) > 40
    for path, name in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        keyword = "def" if path.endswith(".py") else "fn"
        found = re.search(rf"^( *)(?:async )?{keyword} {name}\(", source, re.M)
        assert found, f"{path} has no test {name}"
        if keyword == "fn":
            assert re.search(r"#\[test\]\s*$", source[:found.start()].rstrip()), f"{path}: {name} is no test"


def test_every_promise_names_one():
    text = (ROOT / "docs/SEMANTICS.md").read_text(encoding="utf-8")
    promises = re.split(r"^- ", re.sub(r"\n(?=\n|#|Not promised)", "\n\0", text), flags=re.M)[1:]
    for promise in promises:
        promise = promise.split("\0")[0]
        assert "::" in promise, promise


def test_limits_named_in_security_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    limits = (ROOT / "src/limits.rs").read_text(encoding="utf-8")
    named = set(re.findall(r"\(`([A-Z_]+)`", text)) | set(re.findall(r", \d[\d,]* [^|]*\(`([A-Z_]+)`\)", text))
    assert len(named) > 10
    for name in named:
        assert f"pub const {name}:" in limits, name


def test_the_list_of_mutants_is_of_this_tree():
    done = subprocess.run([sys.executable, ROOT / "scripts/mutants", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
