"""What a field is watched for chooses what a query is worth, wherever that is said."""

import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import swarmbo as sb
from swarmbo.cli import app
from swarmbo.errors import AimWarning, ConfigError
from swarmbo_envs import robot_team_v0, sensor_field_v0
from swarmbo_envs.robot_team.robot_team import RobotTeam

from .teams import drive

QUICK = sb.ExactGPSettings(restarts=0, max_iterations=10)
LINE = np.linspace(0.0, 1.0, 21)[:, None]
CHOSEN = [
    (robot_team_v0, "peak", None, "db-gp-ucb"),
    (robot_team_v0, "map", None, "targeted-variance"),
    pytest.param(robot_team_v0, "level", 900.0, "targeted-variance", marks=pytest.mark.slow),
    (sensor_field_v0, "map", None, "information"),
    pytest.param(sensor_field_v0, "level", 0.5, "straddle", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("world", "task", "level", "kind"), CHOSEN)
def test_in_an_environment_the_task_chooses_and_decisions_are_those_of_that_kind(world, task, level, kind):
    def made(**stated):
        env = world.parallel_env(task=task, level=level, max_cycles=3)
        team = sb.Team.for_env(env, belief=QUICK, coordination="greedy", seed=2, **stated)
        return team, [actions for actions, _ in drive(env, team, 2, seed=1)]

    looked_for = {"kind": kind} | ({"exploration": "annealed"} if task == "peak" else {})
    (chosen, by_itself), (_, stated) = made(), made(acquisition=looked_for)
    assert f"acquisition {kind} (auto: for" in repr(chosen)
    np.testing.assert_equal(by_itself, stated)


class Mapped(RobotTeam):
    """A world of a user's own that says what it is watched for by an attribute, or calls something else so."""

    task = "map"


@pytest.mark.parametrize(("task", "kind"), [("map", "targeted-variance"), ("clean up", "db-gp-ucb"), (7, "db-gp-ucb")])
def test_a_world_of_ones_own_says_it_by_an_attribute(monkeypatch, task, kind):
    monkeypatch.setattr(Mapped, "task", task)
    assert f"acquisition {kind} (auto" in repr(sb.Team.for_env(Mapped(max_cycles=3)))


def asked(**stated):
    return asked_at(None, **stated)


def asked_at(prices, **stated):
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], belief=QUICK, **stated)
    team.attach(LINE[::4], LINE[::4, 0])
    return team.ask({"a": LINE, "b": LINE}, prices=prices).point


def test_a_team_that_is_asked_and_told_is_given_its_aim():
    assert asked(aim="map") == asked(acquisition=sb.TargetedVariance(task="map"))
    assert asked(aim="level", level=0.7) == asked(level=0.7) == asked(acquisition=sb.TargetedVariance(level=0.7))
    assert asked(aim="peak") == asked() == asked(acquisition="db-gp-ucb")
    assert asked(aim="level", level=0.7, acquisition="straddle") == asked(acquisition=sb.Straddle(level=0.7))
    reached = sb.Auto(markov_order=0)  # settings of the chain reach the kind that is chosen
    assert asked(aim="map", acquisition=reached) == asked(acquisition=sb.TargetedVariance(task="map", markov_order=0))


def test_at_a_price_what_is_left_to_the_aim_measures_as_long_as_that_pays():
    prices = {"a": 0.2, "b": 0.2}
    assert asked_at(prices, aim="map") == asked_at(prices, acquisition="information") != asked(aim="map")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"aim": "summit"}, r"^\$\.aim: "),
        ({"aim": "level"}, r"^\$\.level: "),
        ({"level": np.nan}, r"^\$\.level: "),
        ({"level": "x"}, r"^\$\.level: "),
        ({"acquisition": sb.Auto(weight=0.1)}, "has no effect for agents that each measure"),
    ],
)
def test_an_aim_that_is_none_and_settings_of_functions_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        sb.Team.for_field(["a"], [0.0], [1.0], **given)
    with pytest.raises(ConfigError, match="has no effect for agents that set the variables"):
        sb.Team(None, {"x": (0.0, 1.0)}, acquisition=sb.Auto(markov_order=1))


@pytest.mark.parametrize(
    ("task", "kind"), [("map", "db-gp-ucb"), ("map", "straddle"), ("level", "information"), ("peak", "information")]
)
def test_a_kind_that_looks_for_something_else_is_warned_of(task, kind):
    level = 900.0 if task == "level" else None
    acquisition = sb.Straddle(level=900.0) if kind == "straddle" else kind
    if task != "peak":
        with pytest.warns(AimWarning, match=f"got '{kind}', which looks for .*; wanted '"):
            sb.Team.for_env(robot_team_v0.parallel_env(task=task, level=level), acquisition=acquisition)
    with pytest.warns(AimWarning, match=f"got '{kind}'"):
        sb.Team.for_field(["a"], [0.0], [1.0], aim=task, level=level, acquisition=acquisition)


def test_who_fits_looks_at_no_belief_or_has_no_aim_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.Team.for_env(robot_team_v0.parallel_env(), acquisition="information")  # nobody said that it is the peak
        env = robot_team_v0.parallel_env(task="map")
        sb.Team.for_env(env, acquisition="db-gp-ucb", coordination="lawn-mower")
        sb.Team.for_env(env, acquisition="information")
        sb.Team.for_env(env, acquisition="targeted-variance")
        sb.Team.for_field(["a"], [0.0], [1.0], acquisition="information")


TINY = ["--set", "rounds=1", "--set", "environment.robots=2", "--set", "belief.restarts=0"]
COMMAND = ["robots", *TINY, "--set", "environment.task=map"]


def said(*arguments):
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_the_closing_table_and_check_say_what_was_chosen(tmp_path):
    told = said("run", *COMMAND, "--out", str(tmp_path / "run"), "--no-figures", "--quiet")
    assert "targeted-variance (auto: for a map)" in told.stdout
    assert told.stderr == ""
    assert "acquisition targeted-variance (auto: for a map)" in said("check", "--quick", *COMMAND).stdout


@pytest.mark.parametrize(
    ("task", "kind", "sought"), [("map", "db-gp-ucb", "the peak"), ("peak", "targeted-variance", "a map")]
)
def test_a_stated_kind_that_does_not_fit_is_one_line_on_stderr(task, kind, sought):
    stated = ["--set", f"environment.task={task}", "--set", f"acquisition.kind={kind}"]
    told = said("check", "--quick", "robots", *TINY, *stated)
    assert told.stderr.count("\n") == 1
    assert told.stderr.startswith(f"swarmbo: $.acquisition.kind: got {kind!r}, which looks for {sought}")
    assert "(auto" not in told.stdout
