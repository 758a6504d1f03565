"""Runs of WLAN scenarios: they improve, are scored against the closed form, and go on after an interruption."""

import msgspec
import numpy as np
import pytest

from swarmbo.experiment.figures import draw_run
from swarmbo.experiment.folder import RunFolder
from swarmbo.experiment.runner import resume, run
from swarmbo.experiment.scenario import load, scenario_of
from swarmbo_envs import wlan_power_v0

SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}


def test_the_scenario_finds_more_than_its_design_and_is_scored_by_the_closed_form(tmp_path):
    scenario = msgspec.structs.replace(load("wlan"), rounds=18)
    summary = run(scenario, tmp_path / "run")
    joints = [record.joint for record in RunFolder.open(tmp_path / "run").records()[1:]]
    env = wlan_power_v0.parallel_env()
    true = env.network.value(np.array([joint.location for joint in joints]))
    assert [joint.measurement for joint in joints] == pytest.approx(true.tolist())
    assert true[10:].max() > true[:10].max()
    assert summary.maximum == pytest.approx(env.best_known()[1])
    assert summary.score.simple_regret == pytest.approx(summary.maximum - true.max())
    assert (summary.unit, summary.axis_unit) == ("Mbit/s", "dBm")
    drawn = {path.name for path in draw_run(tmp_path / "run")}
    assert drawn == {"regret.png", "traffic.png", "variables.png", "factor_graph.png"}


def test_a_run_among_changing_users_goes_on_after_an_interruption_as_if_there_was_none(tmp_path):
    table = {"id": "swarmbo/wlan_power-v0", "topology": SMALL, "mobility_m": 3.0, "leave_rate": 0.1}
    scenario = scenario_of({"name": "wandering", "rounds": 14, "environment": table | {"return_rate": 0.3}})
    run(scenario, tmp_path / "whole")

    class Cut(Exception):  # noqa: N818  nothing is wrong
        pass

    def cut(record, _):
        if record.round == 11:
            raise Cut

    with pytest.raises(Cut):
        run(scenario, tmp_path / "cut", watch=cut)
    resume(tmp_path / "cut")
    whole, again = ((tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "cut"))
    assert whole == again
    assert RunFolder.open(tmp_path / "whole").records()[-1].score is None  # there is no one function to score against


def test_the_path_of_a_topology_is_relative_to_its_scenario(tmp_path):
    (tmp_path / "office.csv").write_text("kind,x_m,y_m\naccess_point,0,0\naccess_point,60,0\nuser,5,0\n")
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nrounds = 2\n[environment]\nid = "swarmbo/wlan_power-v0"\ntopology = { csv = "office.csv" }\n'
    )
    summary = run(load(tmp_path / "mine.toml"), tmp_path / "run")
    assert len(summary.best.location) == 2
