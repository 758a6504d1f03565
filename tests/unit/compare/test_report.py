from io import StringIO

import msgspec
import pytest
from rich.console import Console

from swarmbo.records import Recommendation, Traffic
from swarmbo.runs import run
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import quantity, report_rows, report_table, traffic_text


def test_the_closing_table_tells_what_the_summary_holds(tmp_path, bump_scenario):
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


def test_the_table_of_a_run_whose_measurements_failed_says_so(tmp_path, mischief, bump_scenario):
    mischief.fails = lambda agent, number: True
    rows = dict(report_rows(run(bump_scenario(), tmp_path / "run")))
    assert rows["best measurement"] == rows["recommendation"] == "none: every measurement failed"
    assert rows["measurements"] == "0 in 4 rounds and at reset, 10 failed"
    assert "simple regret" not in rows


def test_a_measurement_above_the_maximum_has_its_round_and_its_reason_beside_it(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=2), tmp_path / "run")
    best = msgspec.structs.replace(summary.best, mean=1.3)

    def rows(**changed):
        return dict(report_rows(msgspec.structs.replace(summary, **{"best": best, "best_round": 2, **changed})))

    assert rows()["best measurement"].endswith(" km, in round 2 (noise lifts it above the true maximum)")
    assert rows(moves=True)["best measurement"].endswith(" km, in round 2")  # the maximum now is another one
    assert rows(best_round=0)["best measurement"].count(", at reset") == 1
    only_known = rows(maximum_is="reference optimum")
    assert only_known["best measurement"].endswith(" km, in round 2")
    assert only_known["reference optimum"] == "1 u"


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("number", [2, 12, 24])
def test_all_values_of_what_was_found_are_shown_at_any_width(tmp_path, bump_scenario, columns, number):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    values = [100.0 + index for index in range(number)]
    wide = msgspec.structs.replace(summary, best=Recommendation(values, 1.0, 0.0))
    with StringIO() as screen:
        Console(file=screen, width=columns, no_color=True).print(report_table(wide))
        lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert all(sum(f"{value:.0f}" in line for line in lines) >= 1 for value in values)


def test_uncertainty_decides_the_decimals(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    for mean, std, text in (
        (1045.83219, 3.31, "1,045.8 ± 3.3 u"),
        (0.0123456, 0.00123, "0.0123 ± 0.0012 u"),
        (7.0, 0.0, "7.0000 ± 0.0000 u"),
    ):
        found = msgspec.structs.replace(summary, recommendation=Recommendation([1.0, 2.0], mean, std))
        assert dict(report_rows(found))["recommendation"].startswith(text)


def test_numbers_are_written_for_readers():
    assert quantity(66104.3, "m") == "66,104.3 m"
    assert quantity(0.0712345, "") == "0.07123"
    assert traffic_text(Traffic(1234, 5_678_900, 2000)) == "1,234 (5,678.9 kB; 2,000 transmissions)"
    assert traffic_text(Traffic(1, 37, 1)) == "1 (37 bytes; 1 transmissions)"
