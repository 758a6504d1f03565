"""Progress on a terminal: count, bar and time are there at any width; what else is told goes first."""

import functools
import io
import re

import pytest
from rich.console import Console

from swarmbo.records import Recommendation, RoundRecord, Score, Traffic
from swarmbo.runs import progress
from swarmbo.runs.progress import Progress, round_text

RECORD = RoundRecord(
    round=7,
    samples=[],
    best=Recommendation([0.5, 0.5], 1024.0625, 1.0),
    score=Score(12.345678, None, 0.0, map_rmse=3.21098),
    sharing=Traffic(messages=123456, bytes=98765432),
)


def shown(monkeypatch, width, rounds=100):
    """The line that stands on a terminal after a round."""
    out = io.StringIO()
    console = functools.partial(Console, force_terminal=True, width=width, height=24, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **given: console(**{**given, "file": out}))
    with Progress(rounds) as display:
        display.show(RECORD, False)
        display._bar.refresh()
    return [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[a-zA-Z]", out.getvalue()) if "7/" in line]


@pytest.mark.parametrize("width", [48, 60, 80, 120, 200])
@pytest.mark.parametrize("rounds", [25, 100_000])
def test_count_bar_and_time_are_whole_at_any_width(monkeypatch, width, rounds):
    for line in shown(monkeypatch, width, rounds):
        assert re.search(r"round +7/\d+ [━╸╺ ]{8,24} -:--:-- left,", line), line
        assert len(line.rstrip()) <= width


@pytest.mark.parametrize(("width", "kept"), [(60, 1), (80, 2), (200, 4)])
def test_extras_go_from_the_end_where_the_line_is_short(monkeypatch, width, kept):
    parts = round_text(RECORD, RECORD.sharing).split(", ")
    assert parts[0] == "best 1024.06"
    line = shown(monkeypatch, width)[-1]
    assert line.rstrip().endswith("left, " + ", ".join(parts[:kept]) if kept < 4 else "kB"), line
