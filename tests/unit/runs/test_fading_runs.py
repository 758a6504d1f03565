"""Runs of teams whose function changes: users of a WLAN who walk."""

import numpy as np
import pytest

from swarmbo.runs import load, run
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.report import report_rows
from swarmbo.runs.scenario import scenario_of

WALK = {
    "id": "swarmbo/wlan_power-v0",
    "topology": {"generated": {"access_points": 4, "users": 8, "area_m": [120.0, 120.0]}},
    "mobility_m": 3.0,
    "failure_rate": 0.1,
}


def walking(**settings):
    belief = {"kind": "additive", "time": {"kernel": "matern12"}}
    whole = {"name": "walk", "environment": WALK, "belief": belief, "rounds": 14, "seed": 2, **settings}
    return scenario_of(whole)


def test_the_closing_table_tells_the_mean_of_the_late_rounds_where_no_maximum_is_known(tmp_path):
    summary = run(walking(), tmp_path / "run")
    told = [record.joint.measurement for record in RunFolder.open(tmp_path / "run").records()[-4:]]
    late = float(np.mean([value for value in told if value is not None]))
    assert (summary.late_rounds, summary.late_mean) == (4, pytest.approx(late))
    rows = dict(report_rows(summary))
    assert rows["mean of the last 4 rounds"] == f"{late:.4g} Mbit/s"
    assert "true maximum" not in rows
    still = run(walking(environment={**WALK, "mobility_m": 0.0}, rounds=4), tmp_path / "still")
    assert "mean of the last 4 rounds" not in dict(report_rows(still))


def test_the_scenario_of_walking_users_lets_outcomes_fade():
    scenario = load("wlan-mobility")
    assert scenario.environment["mobility_m"] > 0.0
    assert scenario.belief.time is not None
