"""Errors about unknown names suggest the intended ones, on the command line and in Python."""

import gymnasium
import numpy as np
import pytest
from pettingzoo.utils import OrderEnforcingWrapper
from typer.testing import CliRunner

import swarmbo as sb
from swarmbo.agent import Agent
from swarmbo.cli import app
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.runs.scenario import scenario_of
from swarmbo.spaces import Domain
from swarmbo_envs import robot_team_v0, sensor_field_v0

COLOURS = """
name: two
objective: min
domains: {c: {values: [R, G]}}
variables: {v1: {domain: c}, v2: {domain: c}}
constraints: {d: {type: intention, function: "1 if v1 == v2 else 0"}}
agents: [a1, a2]
"""


def refused(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["run", "robots", "--rounds", "5"], "wanted --set rounds=5\n"),
        (["run", "robots", "--rounds=5"], "wanted --set rounds=5\n"),
        (["run", "robots", "--robots", "6"], "wanted --set environment.robots=6\n"),
        (["sweep", "powell", "--noise-std", "1,2"], "wanted --set environment.noise_std=1,2\n"),
        (["check", "robots", "--coordination", "greedy"], "wanted --set coordination.kind=greedy\n"),
        (["check", "measured", "--csv", "soil.csv"], "wanted --set environment.field.csv=soil.csv\n"),
        (["run", "robots", "--seeds", "3"], "wanted `swarmbo sweep --seeds`"),
        (["run", "robots", "--quick"], "wanted `swarmbo check --quick`"),
        (["resume", "runs", "--seed", "3"], "`swarmbo run --seed`"),
    ],
)
def test_an_unknown_option_suggests_a_setting_or_another_command(typed, meant):
    assert meant in refused(*typed)


def test_an_option_without_a_similar_name_is_refused():
    result = CliRunner().invoke(app, ["run", "robots", "--colour", "red"])
    assert result.exit_code == 2
    assert "No such option: --colour" in result.stderr


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("robots=6", "did you mean 'environment.robots'"),
        ("kernel=rbf", "did you mean 'belief.kernel'"),
        ("acquisition.noise_std=1.0", "did you mean 'environment.noise_std'"),
        ("coordination.mode=asynchronous", "known keys of kind 'exact': bound, "),
        ("coordination.mode=asynchronous", "kinds with this key: 'max-sum'; did you mean 'workers.mode'"),
        ("environment.markov_order=1", "did you mean 'acquisition.markov_order'"),
        ("environment.elevation=topobathy", "did you mean 'environment.field.elevation'"),
        ("environment.battery_s=900.0", "(--set environment.id=swarmbo/robot_team-v1)"),
        ("environment.no_go=[]", "swarmbo/robot_team-v1 has it"),
        ("environment.no_go=[]", "did you mean 'no_go'"),
        ("environment.field=dem.tif", 'field={raster = "dem.tif"}'),
        ("environment.field=soil.csv", 'field={csv = "soil.csv", value = "COLUMN"}'),
        ("environment.field=topobathy", 'field={elevation = "topobathy"}'),
        ("acquisition.kind=ei", "did you mean 'expected-improvement'"),
        ("acquisition.kind=ucb", "did you mean 'db-gp-ucb'"),
        ("acquisition.kind=TargetedVariance", "did you mean 'targeted-variance'"),
        ("coordination.kind=maxsum", "did you mean 'max-sum'"),
        ("coordination.kind=dpop", "did you mean 'exact'"),
    ],
)
def test_a_misplaced_or_misnamed_setting_suggests_the_right_one(setting, meant):
    assert meant in refused("check", "robots", "--quick", "--set", setting)


@pytest.mark.parametrize(("scenario", "others"), [("robots", "'admm'"), ("powell", "'greedy'")])
def test_kinds_that_do_not_fit_the_environment_are_not_suggested(scenario, others):
    line = refused("check", scenario, "--quick", "--set", "coordination.kind=maxsum")
    assert others not in line
    assert "max-sum" in line


def test_the_name_of_a_kind_stands_for_its_table_as_in_python():
    small = ["--set", "environment.robots=2", "--set", "rounds=1"]
    result = CliRunner().invoke(app, ["check", "robots", "--quick", *small, "--set", "coordination=max-sum"])
    assert result.exit_code == 0, result.output
    stated = {"name": "n", "environment": {"id": "swarmbo/robot_team-v0"}, "acquisition": "information"}
    assert scenario_of(stated).acquisition == sb.Information()


def test_table_problems_and_scenarios_are_distinguished(tmp_path):
    file = tmp_path / "gc.yaml"
    file.write_text(COLOURS, encoding="utf-8")
    for command in ("run", "check"):
        assert f"`swarmbo solve {file}`" in refused(command, file)
    assert "`swarmbo run` takes scenarios" in refused("solve", "robots.toml")


@pytest.mark.parametrize(
    ("option", "given", "taken"),
    [("--algo", "dpop", "exact"), ("--coordination", "maxsum", "max-sum"), ("--algo", "dsa", "dsa")],
)
def test_solve_accepts_the_names_of_pydcop(tmp_path, option, given, taken):
    file = tmp_path / "gc.yaml"
    file.write_text(COLOURS, encoding="utf-8")
    result = CliRunner().invoke(app, ["solve", str(file), option, given], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"{taken}, seed 0" in result.stdout
    assert "did you mean 'mgm'" in refused("solve", file, option, "mgm2")


class Cart(gymnasium.Env):
    """An environment of one agent."""

    action_space = observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Cart(), "has no possible_agents; wanted a PettingZoo ParallelEnv"),
        (object(), "wanted a PettingZoo ParallelEnv"),
        (robot_team_v0.env(), "one after the other; wanted a PettingZoo ParallelEnv: parallel_env"),
        (OrderEnforcingWrapper(sensor_field_v0.raw_env()), "aec_to_parallel"),
    ],
)
def test_an_environment_whose_agents_do_not_act_at_once_is_refused(env, words):
    with pytest.raises(ConfigError) as caught:
        sb.Team.for_env(env)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maximize": False}, "tell the negative"),
        ({"direction": "minimize"}, "tell the negative"),
        ({"constraint": []}, "no_go="),
        ({"aquisition": "auto"}, "did you mean 'acquisition'"),
        ({"colour": 1}, "belief, acquisition, coordination, transport, seed, rounds"),
    ],
)
def test_unknown_arguments_suggest_equivalent_ones(given, words):
    field = Problem.of_field(["a", "b"], Domain(np.zeros(1), np.ones(1)))
    for make in (
        lambda: sb.Team(None, {"x": (0.0, 1.0)}, **given),
        lambda: sb.Team.for_field(["a"], [0.0], [1.0], **given),
        lambda: Agent("a", field, **given),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.at == f"$.{next(iter(given))}"
        assert words in caught.value.message
