"""The aim of a field chooses the acquisition, wherever the aim is stated."""

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
def test_the_task_of_an_environment_chooses_the_acquisition_of_decisions(world, task, level, kind):
    def made(**stated):
        env = world.parallel_env(task=task, level=level, max_cycles=3)
        team = sb.Team.for_env(env, belief=QUICK, coordination="greedy", seed=2, **stated)
        return team, [actions for actions, _ in drive(env, team, 2, seed=1)]

    expected = {"kind": kind} | ({"exploration": "annealed"} if task == "peak" else {})
    (chosen, by_default), (_, stated) = made(), made(acquisition=expected)
    assert f"acquisition {kind} (auto: for" in repr(chosen)
    np.testing.assert_equal(by_default, stated)


class Mapped(RobotTeam):
    """A user's environment whose attribute ``task`` states its aim."""

    task = "map"


@pytest.mark.parametrize(("task", "kind"), [("map", "targeted-variance"), (None, "db-gp-ucb")])
def test_a_users_environment_states_its_task_by_an_attribute(monkeypatch, task, kind):
    monkeypatch.setattr(Mapped, "task", task)
    assert f"acquisition {kind} (auto" in repr(sb.Team.for_env(Mapped(max_cycles=3)))


@pytest.mark.parametrize("task", ["mpa", 7, ["map"]])
def test_an_unknown_task_of_a_users_environment_is_refused(monkeypatch, task):
    monkeypatch.setattr(Mapped, "task", task)
    with pytest.raises(ConfigError, match=r"environment\.task: got .*; wanted one of 'peak', 'map', 'level'"):
        sb.Team.for_env(Mapped(max_cycles=3))


def asked(**stated):
    return asked_at(None, **stated)


def asked_at(prices, **stated):
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], belief=QUICK, **stated)
    team.attach(LINE[::4], LINE[::4, 0])
    return team.ask({"a": LINE, "b": LINE}, prices=prices).point


def test_an_ask_and_tell_team_takes_its_aim_as_an_argument():
    assert asked(aim="map") == asked(acquisition=sb.TargetedVariance(task="map"))
    assert asked(aim="level", level=0.7) == asked(level=0.7) == asked(acquisition=sb.TargetedVariance(level=0.7))
    assert asked(aim="peak") == asked() == asked(acquisition="db-gp-ucb")
    assert asked(aim="level", level=0.7, acquisition="straddle") == asked(acquisition=sb.Straddle(level=0.7))
    reached = sb.Auto(markov_order=0)  # settings of the chain are passed to the chosen kind
    assert asked(aim="map", acquisition=reached) == asked(acquisition=sb.TargetedVariance(task="map", markov_order=0))


def test_with_prices_the_aim_map_chooses_information():
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
def test_invalid_aims_and_settings_for_the_other_kind_of_problem_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        sb.Team.for_field(["a"], [0.0], [1.0], **given)
    with pytest.raises(ConfigError, match="has no effect for agents that set the variables"):
        sb.Team(None, {"x": (0.0, 1.0)}, acquisition=sb.Auto(markov_order=1))


@pytest.mark.parametrize(
    ("task", "kind"), [("map", "db-gp-ucb"), ("map", "straddle"), ("level", "information"), ("peak", "information")]
)
def test_an_acquisition_for_another_aim_gives_a_warning(task, kind):
    level = 900.0 if task == "level" else None
    acquisition = sb.Straddle(level=900.0) if kind == "straddle" else kind
    if task != "peak":
        with pytest.warns(AimWarning, match=f"got '{kind}', which looks for .*; wanted '"):
            sb.Team.for_env(robot_team_v0.parallel_env(task=task, level=level), acquisition=acquisition)
    with pytest.warns(AimWarning, match=f"got '{kind}'"):
        sb.Team.for_field(["a"], [0.0], [1.0], aim=task, level=level, acquisition=acquisition)


def test_no_warning_if_the_acquisition_fits_or_is_unused_or_no_aim_is_stated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.Team.for_env(robot_team_v0.parallel_env(), acquisition="information")  # the environment states no task
        env = robot_team_v0.parallel_env(task="map")
        sb.Team.for_env(env, acquisition="db-gp-ucb", coordination="lawn-mower")
        sb.Team.for_env(env, acquisition="information")
        sb.Team.for_env(env, acquisition="targeted-variance")
        sb.Team.for_field(["a"], [0.0], [1.0], acquisition="information")


TINY = ["--set", "rounds=1", "--set", "environment.robots=2", "--set", "belief.restarts=0"]
COMMAND = ["robots", *TINY, "--set", "environment.task=map"]


def output_of(*arguments):
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_the_closing_table_and_check_name_the_chosen_acquisition(tmp_path):
    shown = output_of("run", *COMMAND, "--out", str(tmp_path / "run"), "--no-figures", "--quiet")
    assert "targeted-variance (auto: for a map)" in shown.stdout
    assert shown.stderr == ""
    assert "acquisition targeted-variance (auto: for a map)" in output_of("check", "--quick", *COMMAND).stdout


@pytest.mark.parametrize(
    ("task", "kind", "sought"), [("map", "db-gp-ucb", "the peak"), ("peak", "targeted-variance", "a map")]
)
def test_a_stated_acquisition_that_does_not_fit_gives_one_line_on_stderr(task, kind, sought):
    stated = ["--set", f"environment.task={task}", "--set", f"acquisition.kind={kind}"]
    shown = output_of("check", "--quick", "robots", *TINY, *stated)
    assert shown.stderr.count("\n") == 1
    assert shown.stderr.startswith(f"swarmbo: $.acquisition.kind: got {kind!r}, which looks for {sought}")
    assert "(auto" not in shown.stdout
