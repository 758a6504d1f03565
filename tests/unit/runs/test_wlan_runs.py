"""Runs of WLAN scenarios: they improve, are scored against the closed form, and go on after an interruption."""

import io

import msgspec
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from swarmbo.runs.figures import draw_run, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import reference_table, report_rows
from swarmbo.runs.runner import run
from swarmbo.runs.scenario import scenario_of
from swarmbo.runs.scenario_files import load
from swarmbo_envs import wlan_power_v0

SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}


@pytest.mark.thorough
def test_the_scenario_finds_more_than_its_design_and_is_scored_by_the_closed_form(tmp_path):
    scenario = msgspec.structs.replace(load("wlan"), rounds=14)
    summary = run(scenario, tmp_path / "run")
    joints = [record.joint for record in RunFolder.open(tmp_path / "run").records()[1:]]
    env = wlan_power_v0.parallel_env()
    true = env.network.value(np.array([joint.location for joint in joints]))
    assert [joint.measurement for joint in joints] == pytest.approx(true.tolist())
    assert true[10:].max() > true[:10].max()
    assert summary.maximum == pytest.approx(env.best_known()[1])
    assert summary.maximum_is == world_of(RunFolder.open(tmp_path / "run")).maximum_is == "reference optimum"
    assert summary.score.simple_regret == pytest.approx(summary.maximum - true.max())
    assert (summary.unit, summary.axis_unit) == ("Mbit/s", "dBm")
    drawn = {path.name for path in draw_run(tmp_path / "run")}
    assert drawn == {"regret.png", "traffic.png", "variables.png", "factor_graph.png", "run.gif"}
    with Image.open(tmp_path / "run" / "figures" / "run.gif") as film:
        assert film.n_frames == (np.diff(np.maximum.accumulate([0.0, *true])) > 0).sum()
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB"), dtype=float)
    env = wlan_power_v0.parallel_env(render_mode="rgb_array", max_cycles=14)
    env.reset(seed=scenario.seed)
    for joint in joints[: true.argmax() + 1]:  # it ends on the best
        env.step({agent: np.array([power]) for agent, power in zip(env.agents, joint.location, strict=True)})
    assert np.abs(last - env.render()).mean() < 4.0  # the same picture, but for its fewer colours


def test_what_was_found_stands_beside_what_simple_ways_find_in_as_many_rounds(tmp_path):
    table = {"id": "swarmbo/wlan_power-v0", "topology": SMALL}
    summary = run(scenario_of({"name": "small", "rounds": 14, "environment": table}), tmp_path / "run")
    env = wlan_power_v0.parallel_env(topology=SMALL)
    assert summary.references["all at maximum"] == pytest.approx(env.network.value(np.full((1, 4), 25.0))[0])
    ways = ["best equal power", "random", "independent tuning", "sequential greedy", "one Gaussian process for all"]
    assert list(summary.references) == ["all at maximum", *ways]
    assert all(0.0 < value <= summary.maximum * (1 + 1e-9) for value in summary.references.values())
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(reference_table(summary))
    lines = console.export_text().splitlines()
    shares = [float(line.split("│")[3].strip(" %")) for line in lines if "%" in line]
    assert len(shares) == 7
    assert shares == sorted(shares, reverse=True)
    (own,) = [line for line in lines if "this run" in line]
    true = summary.maximum - summary.score.simple_regret
    assert f"{100 * true / summary.maximum:.1f} %" in own
    assert "mean of the last 4 rounds" not in dict(report_rows(summary))
    assert load_run(tmp_path / "run").summary == summary


@pytest.mark.thorough
def test_a_film_needs_a_world_that_says_so_and_references_one_function(tmp_path, monkeypatch):
    monkeypatch.setattr("swarmbo.plotting.run_figures.style.save", lambda figure, path, dpi: path)
    for environment in (
        {"id": "swarmbo/function-v0", "function": "camel"},
        {"id": "swarmbo/wlan_power-v0", "topology": SMALL, "mobility_m": 1.0},
    ):
        folder = tmp_path / environment["id"].partition("/")[2]
        summary = run(scenario_of({"name": "x", "rounds": 3, "environment": environment}), folder)
        assert not summary.references
        assert reference_table(summary) is None
        drawn = {path.name for path in draw_run(folder)}
        assert ("run.gif" in drawn) == ("topology" in environment)


def test_a_run_among_changing_users_goes_on_after_an_interruption_and_tells_how_it_went_of_late(
    tmp_path, same_when_resumed
):
    changes = ["mobility_m=3.0", "leave_rate=0.1", "return_rate=0.3", "failure_rate=0.1"]
    small = "topology={generated={access_points=4,users=9,area_m=[150.0,150.0]}}"
    scenario = load("wlan-mobility", ["rounds=14", *(f"environment.{setting}" for setting in (small, *changes))])
    assert scenario.belief.time is not None  # outcomes fade
    records = same_when_resumed(scenario, 11)
    assert records[-1].score is None  # there is no one function to score against
    late = np.mean([record.joint.measurement for record in records[-4:] if record.joint.measurement is not None])
    rows = dict(report_rows(load_run(tmp_path / "whole").summary))
    assert rows["mean of the last 4 rounds"] == f"{late:.4g} Mbit/s"
    assert "true maximum" not in rows
