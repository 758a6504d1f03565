"""Small tables for notebooks, with all user text escaped."""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "text-align:left;padding:0.1em 1em 0.1em 0"


def html_table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Table with a caption; without a header the first cell of a row is its label."""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(str(name))}</th>' for name in header)
    lines = [_row(cells, labelled=not header) for cells in rows]
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return f"<table>{caption}{top}<tbody>{''.join(lines)}</tbody></table>"


def _row(cells: Sequence[object], *, labelled: bool) -> str:
    first, *others = [escape(str(cell)) for cell in cells]
    label = f'<th scope="row" style="{_CELL}">{first}</th>' if labelled else _cell(first)
    return f"<tr>{label}{''.join(map(_cell, others))}</tr>"


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{text}</td>'
