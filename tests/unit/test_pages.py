"""Rules for every page: README, the changelog and docs."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def lines_of(page: Path) -> Iterator[tuple[int, str]]:
    """Numbers and texts of a page's lines outside of code."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


@EACH
def test_lines_outside_of_tables_and_code_have_at_most_120_characters(page):
    assert not [f"{n}: {x[:60]}…" for n, x in lines_of(page) if len(x) > 120 and not x.startswith(("    ", "|"))]


@EACH
def test_linked_pictures_and_pages_exist(page):
    text = page.read_text(encoding="utf-8")
    linked = {part.split(")")[0].split("#")[0] for part in text.split("](")[1:]}
    here = {name for name in linked if name and not name.startswith(("http", "mailto:")) and " " not in name}
    assert not [name for name in here if not (page.parent / name).exists()]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip().lower() for _, line in lines_of(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@EACH
def test_linked_headings_exist(page):
    broken = list[str]()
    for part in page.read_text(encoding="utf-8").split("](")[1:]:
        name, _, anchor = "".join(part.split(")")[0].split()).partition("#")
        other = page.parent / name if name else page
        if anchor and not name.startswith("http") and other.suffix == ".md" and anchor not in anchors(other):
            broken.append(f"{name}#{anchor}")
    assert not broken


@pytest.mark.parametrize("page", PAGES[2:], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_one_title_and_no_gap_between_levels_of_headings(page):
    levels = [len(line) - len(line.lstrip("#")) for _, line in lines_of(page) if line.startswith("#")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@EACH
def test_no_blank_line_splits_a_table(page):
    assert not re.findall(r"^\|.*\n\n(?!\|.*\n\|[ :|-]+\n)\|.*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
