"""docs/TROUBLESHOOTING.md: the texts that it quotes are the program's own, and none of the commands' own is missing."""

import re

from support import ROOT

# What a person who reads the message needs no page for.
CLEAR = {
    "…",
    "…: …",
    "…: … (…)",  # one of the remedies, which are on the page
    "…: is a folder",
    "unknown unit '…'; use K, M, G or T",
}


def literals(path):
    """String literals outside tests, with `…` for what is filled in, and the text in front of each."""
    text = path.read_text(encoding="utf-8").split("#[cfg(test)]\nmod tests {")[0]
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    text = re.sub(r"\\\n\s*", "", text)
    for found in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        words = re.sub(r"\{[^{}]*\}", "…", found[1]).replace('\\"', '"')
        yield words, text[max(0, found.start() - 60):found.start()]


def sources(folder="src"):
    return [path for path in sorted((ROOT / folder).rglob("*.rs")) if path.name != "tests.rs"]


def quoted():
    """The first column of each table of messages."""
    page = (ROOT / "docs/TROUBLESHOOTING.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (?:``(.*?)``|`([^`]*)`) \|", page, re.M)
    return [(double or single).replace("\\|", "|") for double, single in cells]


def flat(text):
    """What is filled in has no length: neighbours may be one text or several."""
    return re.sub(r"…+", "…", text)


def test_quoted_texts_are_in_the_source():
    source = "\n".join(flat(words) for path in sources() for words, _ in literals(path))
    texts = quoted()
    assert len(texts) > 60
    for text in texts:
        # A message may be put together of several texts: each piece of it stands in the source whole.
        pieces = [piece.removeprefix(": ") for piece in flat(text).split("…") if len(piece.strip(" ;:,.'=()")) > 2]
        assert pieces, text
        if flat(text) not in source and any(piece not in source for piece in pieces):
            missing = [piece for piece in pieces if piece not in source]
            raise AssertionError(f"{text!r}: the source has no {missing}")


def test_words_for_containers_that_do_not_open():
    page = (ROOT / "docs/TROUBLESHOOTING.md").read_text(encoding="utf-8")
    classes = re.findall(r'Self::\w+ => "([a-z_]+)"', (ROOT / "src/format.rs").read_text().split("impl fmt::Display for Dtype")[0])
    named = [word for word in classes if word in ("empty", "truncated") or "_" in word]
    assert len(named) >= 30
    for word in named:
        assert f"`{word}`" in page, word


def test_no_text_of_the_commands_is_missing():
    page = {flat(text) for text in quoted()}
    for path in sources("src/cli"):
        for words, before in literals(path):
            is_error = re.search(r"(bail|anyhow)!\(\s*$", before)
            if is_error and flat(words) not in CLEAR:
                assert any(same(flat(words), text) for text in page), f"{path.name}: {words!r} is not on the page"


def same(words, text):
    """Whether a quoted text is this message: without the path in front, perhaps."""
    return text in (words, words.removeprefix("…: ")) or words in (text, text.removeprefix("…: "))
