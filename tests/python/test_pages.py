"""scripts/check_pages: what it finds, and that it finds nothing in the pages of the project."""

import subprocess
import sys

import pytest

from support import ROOT


def check(*arguments):
    done = subprocess.run([sys.executable, ROOT / "scripts/check_pages", *arguments], capture_output=True, text=True,
                          timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_pages_of_the_project():
    assert check() == (0, [])


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/CLI.md").write_text("## `shardfs ls`\n\n## `shardfs cache`\n\n## `shardfs cache clear`\n")
    (tmp_path / "README.md").write_text("# Title\n")
    return tmp_path


@pytest.mark.parametrize("text, finding", [
    ("[x](docs/GONE.md)", "docs/GONE.md: no such file"),
    ('<img src="docs/gone.png">', "docs/gone.png: no such file"),
    ("[x](docs/CLI.md#shardfs-cp)", "docs/CLI.md#shardfs-cp: no such heading"),
    ("[x](#gone)", "#gone: no such heading"),
    ("[x](../elsewhere)", "../elsewhere: no such file"),
    ("Run `shardfs lst data/`.", "shardfs lst: no such command in docs/CLI.md"),
    ("```sh\nls | sudo shardfs lst\n```", "shardfs lst: no such command in docs/CLI.md"),
    ("`shardfs cache empty`", "shardfs cache empty: no such command in docs/CLI.md"),
    ("An array in\nplace of a list.", "'in place of': write instead of"),
    ("Whoever reads it.", "'Whoever': write the noun"),
])
def test_findings(project, text, finding):
    (project / "page.md").write_text(f"# Page\n\n{text}\n")
    status, found = check(project)
    line = 4 if text.startswith("```") else 3
    assert (status, found) == (1, [f"page.md:{line}: {finding}"])


@pytest.mark.parametrize("text", [
    "[x](docs/CLI.md#shardfs-cache-clear) [y](#page) [z](docs) [w](https://example.org/in-place-of)",
    "[badge](../../actions/workflows/ci.yml)",
    "`shardfs ls data/` and `shardfs cache clear`, `a shardfs says no`",
    "```python\nimport shardfs\nshardfs gone\n```",
    "`so many` and\n\n```\nwhoever\n```",
    "<!-- words: off -->\nso many\n<!-- words: on -->",
])
def test_nothing_to_find(project, text):
    (project / "page.md").write_text(f"# Page\n\n{text}\n")
    assert check(project) == (0, [])


def test_a_readme_that_is_too_long(project):
    (project / "README.md").write_text("line\n" * 251)
    assert check(project) == (1, ["README.md: 251 lines; at most 250"])
