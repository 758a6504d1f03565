"""Pages are written in the words of the field and in short sentences; what is left of other words may only become less.

``python tests/unit/test_words.py PAGE…`` lists what is found, with what to write instead.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = tomllib.loads((ROOT / "docs" / "words.toml").read_text(encoding="utf-8"))
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 28
INVERTED = re.compile(r"[*_(]*(Of|Who|Whoever|Nor|Not so)\b")


def paragraphs(text: str) -> Iterator[str]:
    """The prose of a page: no code, tables, headings, comments; links are their texts."""
    is_code, lines = False, list[str]()
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code = not is_code
        is_item = bool(re.match(r"([-*:>]|\d+\.) ", stripped))
        if is_code or not stripped or is_item or stripped.startswith(("```", "|", "#", "<", ":::", "(", "![")):
            if lines:
                yield " ".join(lines)
            lines = [re.sub(r"^([-*:>]|\d+\.) +", "", stripped)] if is_item and not is_code else []
        elif not line.startswith("    ") or lines:
            lines.append(stripped)


def prose(paragraph: str) -> str:
    """A paragraph as it is read aloud: code counts as a word, and so does a list of it."""
    plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", paragraph)
    return re.sub(r"CODE(, CODE)+", "CODE", re.sub(r"``?[^`]+``?", "CODE", plain))


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph."""
    return re.split(r"(?<=[.!?])[*_)”\"]*\s+", paragraph)


def found(page: str) -> list[str]:
    """Faults of a page, each with a replacement."""
    faults = list[str]()
    for paragraph in paragraphs((ROOT / page).read_text(encoding="utf-8")):
        text = prose(paragraph)
        for word in LIST["words"]:
            if page not in word.get("allowed", []):
                faults += [
                    f"'{match[0]}' in '…{text[max(match.start() - 30, 0) : match.end() + 20]}…': {word['better']}"
                    for match in re.finditer(word["pattern"], text, flags=re.IGNORECASE)
                ]
        for sentence in sentences(text):
            words = [word for word in sentence.split() if any(map(str.isalnum, word))]
            if len(words) > MOST_WORDS:
                faults.append(f"{len(words)} words: {sentence}")
            if INVERTED.match(sentence):
                faults.append(f"inverted: {sentence}")
    return faults


@pytest.mark.parametrize("page", PAGES)
def test_words_to_be_replaced_only_become_fewer(page):
    faults, allowed = found(page), LIST["counts"].get(page, 0)
    assert len(faults) <= allowed, "\n".join(faults)


def test_pages_that_are_counted_are_there():
    assert not set(LIST["counts"]) - set(PAGES)
    assert not {page for word in LIST["words"] for page in word.get("allowed", [])} - set(PAGES)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A robot goes home.", []),
        ("Of a function nothing is fused.", ["inverted"]),
        ("It is done. Nor is this. (Not so!)", ["inverted", "inverted"]),
        ("They agree by turns.", ["'by turns'"]),
        ("`by turns` is a name, and so is\n```sh\nby turns\n```\n", []),
        ("| by turns | a table |\n", []),
        ("- one " + "word " * 28, ["29 words"]),
        ("- " + "word " * 20 + "\n- " + "word " * 20, []),
        ("word " * 15 + "end. Then " + "word " * 15, []),
        ("[read this](it-took/used-to.md) first", []),
    ],
)
def test_faults_are_found_in_prose_only(text, shown, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    faults = found("page.md")
    assert [fault.split(":")[0].split(" in ")[0] for fault in faults] == shown


def words_of(page: str) -> int:
    """The number of words of a page, code and tables included."""
    return sum(any(map(str.isalnum, word)) for word in (ROOT / page).read_text(encoding="utf-8").split())


def test_pages_are_short():
    assert words_of("README.md") <= 800
    assert sum(words_of(page) for page in PAGES if not page.startswith("docs/reference/")) <= 30_000


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        for fault in found(name):
            print(f"{name}: {fault}")  # noqa: T201
