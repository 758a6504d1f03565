"""Output of a run: progress on a terminal of any width, and the closing table."""

import functools
import io
import re
from io import StringIO

import msgspec
import pytest
from msgspec import UNSET
from rich.console import Console

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.evaluations import Event, WorkerStatistics
from swarmbo.records import Recommendation, RoundRecord, Score, Traffic
from swarmbo.runs import progress, resume, run
from swarmbo.runs.progress import Progress, round_text
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import quantity, report_rows, report_table, traffic_text

RECORD = RoundRecord(
    round=7,
    samples=[],
    best=Recommendation([0.5, 0.5], 1024.0625, 1.0),
    score=Score(12.345678, None, 0.0, map_rmse=3.21098),
    sharing=Traffic(messages=123456, bytes=98765432),
)


def terminal(monkeypatch, width):
    """The output on a terminal of this width."""
    out = io.StringIO()
    console = functools.partial(Console, force_terminal=True, width=width, height=24, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **given: console(**{**given, "file": out}))
    return out


def shown(monkeypatch, width, rounds=100):
    """The line that a terminal shows after a round."""
    out = terminal(monkeypatch, width)
    with Progress(rounds) as display:
        display.show(RECORD, False)
        display._bar.refresh()
    return [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[a-zA-Z]", out.getvalue()) if "7/" in line]


@pytest.mark.parametrize("width", [48, 60, 80, 120, 200])
@pytest.mark.parametrize("rounds", [25, 100_000])
def test_count_bar_and_time_are_complete_at_any_width(monkeypatch, width, rounds):
    for line in shown(monkeypatch, width, rounds):
        assert re.search(r"round +7/\d+ [━╸╺ ]{8,24} -:--:-- left,", line), line
        assert len(line.rstrip()) <= width


@pytest.mark.parametrize(("width", "kept"), [(60, 1), (80, 2), (200, 4)])
def test_short_lines_drop_extras_from_the_end(monkeypatch, width, kept):
    parts = round_text(RECORD, RECORD.sharing).split(", ")
    assert parts[0] == "best 1024.06"
    line = shown(monkeypatch, width)[-1]
    assert line.rstrip().endswith("left, " + ", ".join(parts[:kept]) if kept < 4 else "kB"), line


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (980123.4567, 0.05, "980123.457"),
        (980123.4567, 0.0, "980123"),
        (27182818.28, 1e4, "2.71828e+07"),
        (0.123456789, 1e-3, "0.123457"),
        (float("inf"), 1.0, "inf"),
        (float("nan"), 1.0, "nan"),
        (12.5, float("nan"), "12.5"),
    ],
)
def test_the_best_measurement_has_the_digits_that_its_noise_leaves(mean, std, text):
    record = msgspec.structs.replace(RECORD, best=Recommendation([0.5], mean, std))
    assert round_text(record, Traffic()).split(", ")[0] == f"best {text}"


EVENTS = [
    Event("begin", 0.0),
    *(Event("ask", 10.0, f"q{number}") for number in range(1, 5)),
    Event("tell", 14.0, "q1", outcome=1.0, note={"seconds": 4.0}),
    Event("tell", 14.0, "q2", failed=True, note={"failure": "ValueError"}),
]


def test_statistics_count_workers_and_estimate_their_busy_share():
    statistics = WorkerStatistics(2)
    for event in EVENTS[:-2]:
        statistics.add(event)
    # two tasks run on two workers; no duration is known yet
    assert (statistics.running, statistics.failed, statistics.busy(12.0)) == (2, 0, None)
    for event in EVENTS[-2:]:
        statistics.add(event)
    assert (statistics.running, statistics.failed) == (2, 1)
    # 4 s reported and two running tasks that count 4 s at most, of 2 workers in 24 s
    assert statistics.busy(24.0) == pytest.approx(12.0 / 48.0)


def test_queued_evaluations_keep_no_worker_busy():
    statistics = WorkerStatistics(2)
    for event in [*EVENTS, Event("ask", 14.0, "q5"), Event("ask", 14.0, "q6")]:
        statistics.add(event)
    # as without them: q3 and q4 take both workers
    assert statistics.busy(16.0) == pytest.approx((4.0 + 8.0) / 32.0)


def test_time_between_processes_does_not_count_as_time_of_workers():
    statistics, again = WorkerStatistics(2), WorkerStatistics(2)
    later = [Event("begin", 1000.0), Event("tell", 1002.0, "q3", outcome=1.0, note={"seconds": 4.0})]
    statistics.add(EVENTS[0])
    assert (statistics.wall_s, statistics.busy(statistics.last), statistics.lost) == (0.0, None, 0)
    for event in [*EVENTS[1:], *later]:
        statistics.add(event)
    assert (statistics.wall_s, statistics.lost) == (16.0, 0)
    for event in [*EVENTS, Event("tell", 16.0, "q3", outcome=1.0, note={"seconds": 4.0})]:
        again.add(event)
    assert statistics.running == again.running == 1
    assert statistics.busy(1002.0) == pytest.approx((8.0 + 2.0) / 32.0)
    assert again.busy(16.0) == pytest.approx((8.0 + 4.0) / 32.0)
    again.add(Event("lost", 16.0, "q4", note={"seconds": 6.0}))
    assert again.lost == 1
    assert again.busy(16.0) == pytest.approx((8.0 + 6.0) / 32.0)


def test_with_workers_lines_show_running_and_failed_tasks(capsys):
    with Progress(8, 2) as display:
        for event in EVENTS:
            display.on_event(event)
        display.show(RECORD, False)
    written = capsys.readouterr().err
    assert re.search(r"^done 7/8: 2 running, 1 failed, busy \d+%, best 1024.06, ", written), written


@pytest.mark.parametrize("logged", [0, 5])
def test_the_start_up_of_workers_does_not_affect_the_time_left(monkeypatch, capsys, logged):
    """After rounds from the log, two workers take a minute to start, then 4 s per task."""
    now = iter([0.0] * (logged + 1) + [60.0, 60.0, 64.0, 64.0, 68.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with Progress(20, 2) as display:
        for number in range(logged + 6):
            display.show(msgspec.structs.replace(RECORD, round=number), number <= logged)
    lines = capsys.readouterr().err.splitlines()
    left = [re.findall(r", (\d+) s left$", line) for line in lines]
    assert left[: logged + 3] == [[]] * (logged + 3)
    # after the first outcome: two more in 4 s, then three in 4 s, then four in 8 s
    expected = [4.0 / 2, 4.0 / 3, 8.0 / 4]
    rest = range(20 - logged - 3, 0, -1)
    assert left[logged + 3 :] == [[f"{each * n:.0f}"] for each, n in zip(expected, rest, strict=False)]


def test_a_bar_shows_running_tasks_before_the_first_outcome(monkeypatch):
    out = terminal(monkeypatch, 100)
    with Progress(8, 2) as display:
        for event in EVENTS[:-2]:
            display.on_event(event)
        display._bar.refresh()
    assert "left, 2 running, 0 failed" in out.getvalue()


def test_the_closing_table_shows_the_summary(tmp_path, bump_scenario):
    summary = run(bump_scenario(), tmp_path / "run")
    assert load_run(tmp_path / "run").summary == summary
    rows = dict(report_rows(summary))
    assert rows["best measurement"].startswith(f"{summary.best.mean:.4g} u at (")
    assert f" km, in round {summary.best_round}" in rows["best measurement"]
    assert "±" in rows["recommendation"]
    assert rows["true maximum"] == "1 u"
    assert rows["distance travelled"] == quantity(sum(summary.distance.values()), "km")
    assert rows["measurements"] == "10 in 4 rounds and at reset"
    assert rows["map RMSE"] == quantity(summary.score.map_rmse, "u")
    assert rows["time in rounds"] == f"{summary.seconds:.1f} s"


@pytest.mark.parametrize(
    ("place", "side", "coordinates", "text"),
    [
        ([48.70123, 5400.98765], 0.002, UNSET, "(48.70123, 5,400.98765) km"),
        ([0.000412, 123.4], 1e-3, UNSET, "(0.000412, 123.400000) km"),
        ([45.678, 123.4], 1000.0, UNSET, "(45.7, 123) km"),
        ([1.2345, 2.3456], 4.0, Coordinates(("x", "y"), corner=(512346.0, 5412345.0)), "x 512347.23, y 5412347.35"),
        ([45.678, 123.4], 0.0, UNSET, "(45.7, 123) km"),
        ([1.2345, 2.3456], 0.0, Coordinates(("x", "y"), corner=(5.0, 5.0)), "x 6.2, y 7.3"),
        ([123.4, 99.9], 300.0, Coordinates(("x_km", "y_km"), unit_m=1000.0), "x_km 0.123, y_km 0.100"),
    ],
)
def test_the_closing_table_gives_a_location_to_a_hundredth_of_the_box(
    tmp_path, bump_scenario, place, side, coordinates, text
):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    assert summary.sides == [1.0, 1.0]
    best = msgspec.structs.replace(summary.best, location=place)
    changed = msgspec.structs.replace(summary, best=best, sides=[side, side], coordinates=coordinates)
    assert f" at {text}, " in dict(report_rows(changed))["best measurement"]


def test_the_closing_table_says_that_every_measurement_failed(tmp_path, mischief, bump_scenario):
    mischief.fails = lambda agent, number: True
    rows = dict(report_rows(run(bump_scenario(), tmp_path / "run")))
    assert rows["best measurement"] == rows["recommendation"] == "none: every measurement failed"
    assert rows["measurements"] == "0 in 4 rounds and at reset, 10 failed"
    assert "simple regret" not in rows


def test_the_closing_table_names_the_reset_only_if_agents_measured_there(tmp_path, mischief, bump_scenario):
    mischief.silent = lambda agent, number: number == 0
    rows = dict(report_rows(run(bump_scenario(rounds=1), tmp_path / "run")))
    assert rows["measurements"] == "2 in 1 round"


def test_a_measurement_above_the_maximum_is_shown_with_its_round_and_reason(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=2), tmp_path / "run")
    best = msgspec.structs.replace(summary.best, mean=1.3)

    def rows(**changed):
        return dict(report_rows(msgspec.structs.replace(summary, **{"best": best, "best_round": 2, **changed})))

    assert rows()["best measurement"].endswith(" km, in round 2 (noise lifts it above the true maximum)")
    assert rows(moves=True)["best measurement"].endswith(" km, in round 2")  # the maximum has changed since
    assert rows(best_round=0)["best measurement"].count(", at reset") == 1
    only_known = rows(maximum_is="reference optimum")
    assert only_known["best measurement"].endswith(" km, in round 2")
    assert only_known["reference optimum"] == "1 u"


def test_large_values_keep_the_digits_that_differ(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    best = msgspec.structs.replace(summary.best, mean=1e9 + 0.0029)
    found = msgspec.structs.replace(summary.best, mean=1e9 + 0.0027, std=4.3e-5)
    rows = dict(report_rows(msgspec.structs.replace(summary, best=best, recommendation=found, maximum=1e9 + 0.0028)))
    assert rows["best measurement"].startswith("1,000,000,000.0029 u at ")
    assert rows["true maximum"] == "1,000,000,000.0028 u"
    texts = [quantity(value, "", 13.0) for value in (1021.14, 0.123456, -5651078104883.9, 2e9 + 200)]
    assert texts == ["1,021.1", "0.1235", "-5,651,078,104,883.9", "2,000,000,200.0"]
    assert (quantity(1e9 + 300.0, "m"), quantity(2345678.91, "m")) == ("1,000,000,300.0 m", "2,345,678.9 m")


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("number", [2, 12, 24])
def test_all_values_of_the_best_point_are_shown_at_any_width(tmp_path, bump_scenario, columns, number):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    values = [100.0 + index for index in range(number)]
    wide = msgspec.structs.replace(summary, best=Recommendation(values, 1.0, 0.0))
    with StringIO() as screen:
        Console(file=screen, width=columns, no_color=True).print(report_table(wide))
        lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert all(sum(f"{value:.0f}" in line for line in lines) >= 1 for value in values)


def test_the_uncertainty_sets_the_number_of_decimals(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    for mean, std, text in (
        (1045.83219, 3.31, "1,045.8 ± 3.3 u"),
        (0.0123456, 0.00123, "0.0123 ± 0.0012 u"),
        (7.0, 0.0, "7.0000 ± 0.0000 u"),
        (5.0, 1e-12, "5.00000000 ± 1e-12 u"),
        (4.988e-9, 3.6e-11, "4.988e-09 ± 3.6e-11 u"),
    ):
        found = msgspec.structs.replace(summary, recommendation=Recommendation([1.0, 2.0], mean, std))
        assert dict(report_rows(found))["recommendation"].startswith(text)


def test_numbers_are_written_for_readers():
    assert quantity(66104.3, "m") == "66,104.3 m"
    assert quantity(0.0712345, "") == "0.07123"
    assert traffic_text(Traffic(1234, 5_678_900, 2000)) == "1,234 (5,678.9 kB; 2,000 transmissions)"
    assert traffic_text(Traffic(1, 37, 1)) == "1 (37 bytes; 1 transmissions)"


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_resumed_run_shows_the_traffic_of_all_rounds(tmp_path, bump_scenario, interrupted, capsys, keeps_state):
    """From a checkpoint, earlier rounds are not repeated; a world without a state repeats them."""
    scenario = bump_scenario({"keeps_state": keeps_state}, "max-sum")

    def shown_traffic():
        lines = re.findall(r"^round (\d).*?(\d+) messages, (\S+) kB", capsys.readouterr().err, re.MULTILINE)
        return {number: tuple(counts) for number, *counts in lines}

    run(scenario, tmp_path / "whole", progress=True)
    whole = shown_traffic()
    interrupted(scenario, tmp_path / "part", 2)
    resume(tmp_path / "part", progress=True)
    again = shown_traffic()
    assert "4" in again
    assert again.items() <= whole.items()


def test_rounds_that_are_shown_twice_count_once(tmp_path, bump_scenario, capsys):
    """As after a step that hung, in a world without a state."""
    run(bump_scenario(coordination="max-sum"), tmp_path)
    records = load_run(tmp_path).records
    with Progress(4, 0, tmp_path) as display:
        for record in (*records[:3], *records):
            display.show(record, False)
    lines = re.findall(r"^round (\d).*?(\d+ messages)", capsys.readouterr().err, re.MULTILINE)
    assert len(set(lines)) == len(dict(lines)) >= 3
