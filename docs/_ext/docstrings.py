"""Convert Markdown in docstrings to reStructuredText: tables, and bars that Sphinx would take for substitutions."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

RULE = re.compile(r"^\|(\s*:?-+:?\s*\|)+$")
CODE = re.compile(r"(``.*?``)")


def setup(app: Any) -> dict[str, bool]:
    """Register the conversion. It must run before napoleon, which reads the sections of docstrings."""
    app.connect("autodoc-process-docstring", _change, priority=400)
    return {"parallel_read_safe": True}


def _change(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = in_rest(lines)


def in_rest(lines: list[str]) -> list[str]:
    """Lines of a docstring in reStructuredText.

    Args:
        lines: Lines that may contain Markdown tables.
    """
    changed = list[str]()
    for is_row, group in groupby(_whole_rows(lines), key=lambda line: line.strip().startswith("|")):
        rows = list(group)
        if is_row and len(rows) > 1 and RULE.match(rows[1].strip()):
            changed += ["", *_table(rows), ""]
        else:
            changed += map(_without_substitutions, rows)
    return changed


def _whole_rows(lines: list[str]) -> Iterator[str]:
    """The lines, with continuation lines of a table row joined to it."""
    row, is_table = "", False
    for line in lines:
        row = f"{row} {line.strip()}" if row else line
        stripped = row.strip()
        is_table = bool(stripped.startswith("| ") and is_table) or bool(RULE.match(stripped))
        if is_table and line.strip() and not stripped.endswith("|"):
            continue
        yield row
        row = ""
    if row:
        yield row


def cells(row: str) -> list[str]:
    """Cells of a row of a Markdown table; bars within code are part of a cell."""
    parts, cell = list[str](), ""
    for piece in CODE.split(row.strip().strip("|")):
        if piece.startswith("``"):
            cell += piece
            continue
        first, *others = piece.split("|")
        cell += first
        for other in others:
            parts.append(cell.strip())
            cell = other
    return [*parts, cell.strip()]


def _table(rows: list[str]) -> Iterator[str]:
    indent = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
    head, *body = [cells(row) for at, row in enumerate(rows) if at != 1]
    has_head = any(head)
    yield f"{indent}.. list-table::"
    yield f"{indent}   :header-rows: {int(has_head)}"
    yield ""
    for row in [head, *body] if has_head else body:
        for at, cell in enumerate(row):
            yield f"{indent}   {'* -' if at == 0 else '  -'} {_without_substitutions(cell)}".rstrip()


def _without_substitutions(line: str) -> str:
    """The line, with bars outside of code escaped, as they would mark a substitution."""
    if line.lstrip().startswith((">>>", "...", "| ")) or "|" not in line:
        return line
    pieces = CODE.split(line)
    return "".join(piece if piece.startswith("``") else re.sub(r"\|(?=\S)", r"\\|", piece) for piece in pieces)
