"""Served environments, which have no simulation, state their problem and refuse to run."""

import pytest

from swarmbo.deciding.team_state import acquisition_in_words
from swarmbo.errors import ConfigError
from swarmbo.runs import run
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import scenario_of

FUNCTION = {"id": "served/function-v0", "bounds": {"x": [0, 2], "y": [-1.0, 1.0]}, "unit": "m"}
FIELD = {"id": "served/field-v0", "agents": ["ada", "ben"], "low": [0, 0], "high": [4, 2]}
WATCHED = {"level": 2.5, "task": "level"}


def scenario(environment, **more):
    return scenario_of({"name": "mine", "environment": {**environment, **more}, "rounds": 3})


def test_a_function_states_bounds_scopes_and_outcomes():
    _, team = assemble(scenario(FUNCTION), is_served=True)
    assert team.problem.structure == "unknown"
    assert team.domain.low.tolist() == [0.0, -1.0]
    known = {"scopes": {"f": ["x"], "g": ["x", "y"]}, "outcomes": "per-factor"}
    env, team = assemble(scenario(FUNCTION, **known), is_served=True)
    assert team.graph.scopes == (("x",), ("x", "y"))
    assert team.problem.outcomes == "per-factor"
    assert env.unwrapped.labels["unit"] == "m"


def test_a_field_states_its_box_and_task():
    _, team = assemble(scenario(FIELD, **WATCHED), is_served=True)
    assert team.problem.is_field
    assert (team.problem.aim, team.problem.level) == ("level", 2.5)
    assert team.problem.box.high.tolist() == [4.0, 2.0]
    assert acquisition_in_words(team.setup).startswith("targeted-variance")


@pytest.mark.parametrize("environment", [FUNCTION, FIELD])
def test_served_environments_are_not_run(environment, tmp_path):
    with pytest.raises(ConfigError, match="wanted `swarmbo serve`"):
        run(scenario(environment), tmp_path)


@pytest.mark.parametrize("agents", ["ada", ["ada", "ada"], {"ada": 1}, [], [1], 3])
def test_agents_are_a_list_of_distinct_names(agents):
    with pytest.raises(ConfigError, match=r"\$\.environment\.agents: got .*; wanted"):
        assemble(scenario(FIELD, agents=agents), is_served=True)


@pytest.mark.parametrize("scopes", [["x"], {"f": []}, {"f": 3}])
def test_wrong_scopes_are_named(scopes):
    with pytest.raises(ConfigError, match=r"scopes.*: got .*; wanted a (list|table)"):
        assemble(scenario(FUNCTION, scopes=scopes), is_served=True)


@pytest.mark.parametrize(
    "wrong", [{"scopes": {"f": ["z"]}}, {"bounds": 3}, *({"bounds": {"x": pair}} for pair in ([2, 0], ["a", 1], []))]
)
def test_wrong_problems_are_refused(wrong):
    with pytest.raises(ConfigError):
        assemble(scenario(FUNCTION, **wrong), is_served=True)
