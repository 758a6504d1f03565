"""Agents with their own instruments, whose measurements replace those of the simulated environment."""

import copy
import json

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, RunFolderError, ShapeError, TransportError
from swarmbo.fleet.measuring import InstrumentWrapper, load_instrument, measured, require_measurable
from swarmbo.fleet.messages import MeasurementResult
from swarmbo.problem import Problem
from swarmbo.runs import load, resume, run
from swarmbo.runs.stored_files import ELSEWHERE
from swarmbo.spaces import Domain
from swarmbo_envs import function_v0, robot_team_v1

from .rounds import play, require_same

ROUNDS = 3
QUICK = {
    "seed": 3,
    "coordination": "exact",
    "acquisition": sb.DBGPUCB(candidates=8),
    "belief": sb.ExactGPSettings(restarts=0, max_iterations=20),
}
ADMM = {"seed": 3, "initial": 2, "coordination": sb.ADMM(rounds=4, starts=2, screened=16, polish_steps=4)}
FIELD = Problem.of_field(["a", "b"], Domain(np.zeros(2), np.full(2, 9.0)))
SUM = Problem.of(
    sb.FactorGraph.from_scopes({"f": ["x"], "g": ["x"]}, owners={"f": "x", "g": "x"}),
    {"x": (0.0, 1.0)},
    outcomes="per-factor",
)


def robots():
    return robot_team_v1.parallel_env(
        robots=3, field={"elevation": "jacksboro"}, samples_per_leg=1, battery_s=[3600.0, 400.0, 2600.0]
    )


def camel():
    types = {
        "x0": {"kind": "integer", "low": 0, "high": 12},
        "x1": {"kind": "categorical", "values": ["low", "middle", "high"]},
    }
    return function_v0.parallel_env(function="camel", outcomes="per-factor", types=types)


def by_words(point):
    """An instrument that gets the value of a categorical variable."""
    y = -float(["high", "low", "middle"].index(point["x1"]))
    return {"factors": {"both": y, "second": 2.0 * y}, "noise_std": {"second": 0.1}}


def by_positions(infos):
    info = infos["agent_1"]
    if "location" in info:
        y = -float([1, 2, 0][int(info["location"][0])])
        info |= {"factors": {"both": y, "second": 2.0 * y}, "noise_std": {"second": 0.1}}
    return infos


def drifting(place):
    """An instrument that fails in the north."""
    if place[1] > 7000.0:
        raise OSError("no echo")
    return {"measurement": float(place.sum()), "noise_std": 2.0}


class Replaced:
    """An oracle: an environment whose infos are changed directly."""

    def __init__(self, env, change):
        self._env, self._change = env, change

    def __getattr__(self, name):
        return getattr(self._env, name)

    def reset(self, **given):
        observations, infos = self._env.reset(**given)
        return observations, self._change(copy.deepcopy(infos))

    def step(self, actions):
        *rest, infos = self._env.step(actions)
        return *rest, self._change(copy.deepcopy(infos))


def by_drifting(infos):
    info = infos["robot_2"]
    for reading in [*info.get("on_the_way", ()), *([info] if info.get("sampled", True) else [])]:
        place = reading["location"]
        reading.pop("measurement", None)
        reading.pop("noise_std", None)
        if place[1] <= 7000.0:
            reading |= {"measurement": place[0] + place[1], "noise_std": 2.0}
    return infos


CASES = {
    "a robot": (robots, QUICK, {"robot_2": drifting}, by_drifting),
    "an agent that sets a choice": (camel, ADMM, {"agent_1": by_words}, by_positions),
}


@pytest.mark.parametrize(("world", "settings", "measures", "by_hand"), CASES.values(), ids=CASES.keys())
def test_measurements_of_instruments_replace_simulated_ones(network, fleets, world, settings, measures, by_hand):
    fleet = fleets(world(), network(), measures=measures, **settings)
    team = sb.Team.for_env(world(), **settings)
    require_same(fleet.play(ROUNDS), play(team, Replaced(team.world._env, by_hand), ROUNDS))


def test_a_restarted_member_does_not_repeat_measurements(network, fleets):
    asked = []

    def counting(place):
        asked.append(tuple(place))
        return drifting(place)

    fleet = fleets(robots(), network(loss=0.2, seed=4), kill=0.02, measures={"robot_2": counting}, **QUICK)
    _, history = fleet.play(ROUNDS)
    assert fleet.kills > 2
    column = fleet.team.problem.channels.index("robot_2")
    assert len(asked) == int(fleet.team.problem.takes_part(history.X)[:, column].sum())


def test_an_instrument_that_raises_is_a_failure_with_its_reason(network, fleets):
    def broken(place):
        raise RuntimeError("wheel lost")

    fleet = fleets(robots(), network(), measures={"robot_0": broken}, **QUICK)
    observe, seen = fleet.team.observe, []
    fleet.team.observe = lambda *step: (seen.append(step[-1]), observe(*step))
    _, history = fleet.play(ROUNDS)
    assert fleet.team.failures >= ROUNDS
    assert not np.isfinite(history.factors[:, 0]).any()
    source = next(iter(seen[-1].values()))["source"]
    assert source["by_agents"] == ["robot_0"]
    assert all(why.startswith("RuntimeError: wheel lost (") for why in source["failures"]["robot_0"])


def test_an_invalid_result_of_an_instrument_ends_member_and_hub(network, fleets):
    fleet = fleets(robots(), network(), measures={"robot_0": lambda place: "deep"}, **QUICK)
    refused = []

    def step(seconds, member=fleet.members["robot_0"], step=fleet.members["robot_0"].step):
        try:
            step(seconds)
        except ShapeError as error:
            refused.append(str(error))
            fleet.members.pop("robot_0")

    fleet.members = {**fleet.members}
    fleet.members["robot_0"].step = step
    fleet.turn = lambda: [member.step(0.0) for member in list(fleet.members.values())]
    fleet.team.hub._supervise = fleet.turn
    with pytest.raises(TransportError, match=r"agent 'robot_0': the measurement function of 'robot_0' returned 'deep'"):
        fleet.world.reset(seed=0)
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (1.5, MeasurementResult({"a": 1.5})),
        (np.float32(2.0), MeasurementResult({"a": 2.0})),
        (None, MeasurementResult({"a": None})),
        (float("nan"), MeasurementResult({"a": None})),
        (float("inf"), MeasurementResult({"a": None})),
        ({"measurement": 1.0, "noise_std": 0.5}, MeasurementResult({"a": 1.0}, {"a": 0.5})),
        ({"measurement": 1.0, "location": [3.0, 4.0]}, MeasurementResult({"a": 1.0}, location=(3.0, 4.0))),
        ({"factors": {"a": 1.0}}, MeasurementResult({"a": 1.0})),
    ],
)
def test_an_outcome_may_be_a_number_or_a_table(result, wanted):
    assert measured(lambda place: result, FIELD, "a", [1.0, 2.0]) == wanted


@pytest.mark.parametrize(
    ("problem", "result", "why"),
    [
        (FIELD, "deep", "wanted a number"),
        (FIELD, [1.0, 2.0], "wanted a number"),
        (FIELD, 1j, "wanted a number"),
        (FIELD, {}, "wanted 'measurement'"),
        (FIELD, {"measurement": 1.0, "factors": {"a": 1.0}}, "wanted 'measurement'"),
        (FIELD, {"depth": 1.0}, "got 'depth'; wanted some of"),
        (FIELD, {"measurement": 1.0, "noise_std": -1.0}, "wanted a finite number >= 0"),
        (FIELD, {"measurement": 1.0, "noise_std": {"b": 1.0}}, r"got noise_std of \['b'\] without outcomes"),
        (FIELD, {"measurement": 1.0, "location": [1.0]}, r"location of 'a': got \[1.0\]; wanted 2 numbers"),
        (FIELD, {"measurement": 1.0, "location": [1e99, 0.0]}, "location of 'a': got"),
        (SUM, 1.0, r"wanted 'factors', a number for each of \['f', 'g'\]"),
        (SUM, {"factors": {"f": 1.0}}, "wanted a number for each of"),
        (SUM, {"factors": {"f": 1.0, "g": 1.0}, "location": [0.5]}, "got location"),
    ],
)
def test_invalid_results_of_instruments_are_refused_in_one_line(problem, result, why):
    agent, place = ("a", [1.0, 2.0]) if problem.is_field else ("x", [0.5])
    with pytest.raises(ShapeError, match=why) as caught:
        measured(lambda place: result, problem, agent, place)
    assert "\n" not in str(caught.value)


def test_an_instrument_of_a_function_gets_its_own_variables_by_name():
    asked = []
    measured(lambda point: asked.append(point) or {"factors": {"f": 1.0, "g": None}}, SUM, "x", [0.25])
    assert asked == [{"x": 0.25}]


def test_missing_and_unexpected_instruments_are_refused(network, fleets):
    fleet = fleets(robots(), network(), **QUICK)
    fleet.measures = {"robot_0": drifting}
    with pytest.raises(ConfigError, match="got an instrument for 'robot_0'; wanted a fleet started with"):
        fleet.member("robot_0")
    with pytest.raises(ConfigError, match="got no instrument for 'robot_0'; wanted --measure"):
        fleets(robots(), network(), measures={"robot_0": None}, **QUICK)


def test_an_instrument_s_code_runs_only_with_trust():
    assert load_instrument("math:sqrt", True)(4.0) == 2.0
    for name, trust, why in [
        ("math:sqrt", False, "wanted --trust"),
        ("sqrt", True, "wanted 'module:function'"),
        ("math:pi", True, "wanted a function of a location"),
        ("math:root", True, "has no 'root'"),
    ]:
        with pytest.raises(ConfigError, match=why):
            load_instrument(name, trust)


def test_instruments_need_outcomes_per_factor_and_an_environment_with_states():
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
    with pytest.raises(ConfigError, match="wanted outcomes per factor"):
        require_measurable(Problem.of(graph, dict.fromkeys("xy", (0.0, 1.0))), "x")
    by_factor = Problem.of(graph, dict.fromkeys("xy", (0.0, 1.0)), {"x": "x", "y": "y"}, outcomes="per-factor")
    with pytest.raises(ConfigError, match="which owns no factor"):
        require_measurable(by_factor, "y")

    class Plain:
        unwrapped = object()

    with pytest.raises(ConfigError, match=r"wanted one that has it"):
        InstrumentWrapper(Plain(), ("a",))


def test_a_run_with_instruments_is_not_resumed_in_the_simulated_environment(tmp_path):
    run(load("camel", ["rounds=2"], False), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / ELSEWHERE).write_text(json.dumps({"agents": ["agent_0"]}))
    with pytest.raises(RunFolderError, match="agents of its fleet measured with --measure"):
        resume(tmp_path / "run")
