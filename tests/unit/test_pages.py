"""What holds for every page: README, the changelog and docs."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_are_at_most_120_characters_but_those_of_tables_and_code(page):
    is_code, long = False, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif len(line) > 120 and not (is_code or line.startswith(("    ", "|"))):
            long.append(f"{number}: {line[:60]}… has {len(line)}")
    assert not long


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pictures_and_pages_that_are_linked_are_there(page):
    text = page.read_text(encoding="utf-8")
    linked = {part.split(")")[0].split("#")[0] for part in text.split("](")[1:]}
    here = {name for name in linked if name and not name.startswith(("http", "mailto:")) and " " not in name}
    assert not [name for name in here if not (page.parent / name).exists()]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    is_code, found = False, set[str]()
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif line.startswith("#") and not is_code:
            heading = line.lstrip("#").strip().lower()
            found.add("".join(c for c in heading if c.isalnum() or c in "-_ ").replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_headings_that_are_linked_are_there(page):
    dead = list[str]()
    for part in page.read_text(encoding="utf-8").split("](")[1:]:
        name, _, anchor = "".join(part.split(")")[0].split()).partition("#")
        other = page.parent / name if name else page
        if anchor and not name.startswith("http") and other.suffix == ".md" and anchor not in anchors(other):
            dead.append(f"{name}#{anchor}")
    assert not dead


@pytest.mark.parametrize("page", PAGES[2:], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_one_title_and_no_gap_between_levels_of_headings(page):
    is_code, levels = False, list[int]()
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif line.startswith("#") and not is_code:
            levels.append(len(line) - len(line.lstrip("#")))
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_blank_line_cuts_a_table(page):
    assert not re.findall(r"^\|.*\n\n(?!\|.*\n\|[ :|-]+\n)\|.*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
