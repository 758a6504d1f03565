"""Environments of functions (of the library or of a user): outcomes, noise, structure, refused arguments."""

import itertools

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError
from swarmbo_envs import function_v0
from swarmbo_envs.functions import AdditiveFunction

from .playing import played

BOUNDS = {"power": (1.0, 3.0), "angle": (-1.0, 1.0), "gain": (0.0, 10.0)}


def measured(*, gain, angle, power):
    return power * 100.0 + angle * 10.0 + gain


def test_points_reach_the_function_by_name_in_physical_units():
    function = AdditiveFunction.from_callable(measured, BOUNDS, maximum=320.0, name="mine")
    assert function.variables == ("power", "angle", "gain")
    assert (function.low.tolist(), function.high.tolist()) == ([1.0, -1.0, 0.0], [3.0, 1.0, 10.0])
    assert function.value(np.array([[2.0, 0.5, 7.0], [3.0, 1.0, 10.0]])).tolist() == [212.0, 320.0]


@pytest.mark.parametrize(
    ("structure", "agents", "expected"),
    [("known", None, 1), ("hidden", None, 3), ("hidden", 1, 1), ("hidden", 2, 2), ("hidden", 3, 3)],
)
def test_a_team_maximises_a_function_for_any_division_of_its_variables(structure, agents, expected):
    function = AdditiveFunction.from_callable(measured, BOUNDS, maximum=320.0)
    env = function_v0.parallel_env(function=function, agents=agents, structure=structure, max_cycles=14)
    team = sb.Team.for_env(env, seed=0, initial=6)
    assert all(len(infos) == expected for infos in played(env, team))
    assert team.n_data == 14
    assert max(team.history.totals) > 310.0  # a plane: its best corner is found soon


def test_an_environment_that_an_agent_left_is_refused():
    env = function_v0.parallel_env(function="camel", max_cycles=4)
    team, (observations, infos) = sb.Team.for_env(env, seed=0), env.reset(seed=0)
    env.agents.remove("agent_1")
    with pytest.raises(ConfigError, match="got an environment that 'agent_1' has left; wanted all agents to stay"):
        team.act(observations, infos)


def test_structure_and_outcomes_of_an_environment_cannot_be_stated_again():
    for name, given in {"outcomes": "total", "bounds": BOUNDS, "variable_owners": {}}.items():
        with pytest.raises(ConfigError, match=rf"^\$\.{name}: unknown argument, got .*; wanted none, as the Problem"):
            sb.Team.for_env(function_v0.parallel_env(function="camel"), **{name: given})
    with pytest.raises(ConfigError, match=r"wanted some of no_go, constraints, limits, belief"):
        sb.Team.for_field(["a"], [0.0], [1.0], bels=1)


@pytest.mark.parametrize("bounds", [{}, {"x": (1.0,)}, {"x": (1.0, 1.0)}, {"x": (0.0, np.inf)}])
def test_bounds_that_are_not_a_box_are_refused(bounds):
    with pytest.raises(ConfigError, match=r"^\$\.bounds: got "):
        AdditiveFunction.from_callable(lambda x: x, bounds)


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_noise_free_outcomes_are_the_functions_values(outcomes):
    env = function_v0.parallel_env(function="camel", outcomes=outcomes, max_cycles=3)
    env.reset(seed=0)
    *_, infos = env.step({"agent_0": [1.0], "agent_1": [0.5]})
    values = env.function.factor_values(np.array([[1.0, 0.5]]))[0]
    if outcomes == "total":
        assert [info["measurement"] for info in infos.values()] == [values.sum()] * 2
    else:
        reported = infos["agent_0"]["factors"] | infos["agent_1"]["factors"]
        assert reported == dict(zip(env.function.scopes, values, strict=True))


def test_the_noise_has_the_requested_standard_deviation():
    env = function_v0.parallel_env(function="camel", noise_std=2.0, max_cycles=2000)
    env.reset(seed=1)
    total = env.function.value(np.zeros((1, 2)))[0]
    measured = [env.step({"agent_0": [0.0], "agent_1": [0.0]})[4]["agent_0"]["measurement"] for _ in range(2000)]
    assert np.std(measured) == pytest.approx(2.0, rel=0.06)
    assert np.mean(measured) == pytest.approx(total, abs=0.15)


def test_actions_between_the_values_of_a_type_are_rounded_and_a_following_team_records_the_rounded_values():
    count, mode = {"kind": "integer", "low": 0, "high": 6, "step": 2}, {"kind": "categorical", "values": [*"abc"]}
    env = function_v0.parallel_env(function="camel", types={"x0": count, "x1": mode})
    team, _ = sb.Team.for_env(env, seed=0), env.reset(seed=0)
    for x, y in [(0.9, 0.4), (1.1, 1.6), (5.2, 0.6), (6.0, 2.0)]:
        team.follow(actions := {"agent_0": np.array([x]), "agent_1": np.array([y])})
        team.observe(*(step := env.step(actions)))
        assert step[-1]["agent_0"]["location"] in ([0.0], [2.0], [6.0])
    assert team.history.X.tolist() == [[0.0, 0.0], [2.0, 2.0], [6.0, 1.0], [6.0, 2.0]]
    assert team.history.totals.tolist() == env.function.value(team.history.X).tolist()
    for wrong in (-0.5, 6.5):
        with pytest.raises(ConfigError, match=r"agent_0: got \[.*; wanted an action of its space"):
            team.follow({**actions, "agent_0": [wrong]})


def test_an_error_names_a_term_that_does_not_return_one_value_per_point():
    for term, fails in ((lambda X: -((X - 0.3) ** 2), True), (lambda X: -((X - 0.3) ** 2).mean(), False)):
        terms, scopes = {"f": term, "g": lambda X: X[:, 0]}, {"f": [0, 1], "g": [1]}
        f = AdditiveFunction.from_terms(terms, scopes, [0.0, 0.0], [1.0, 1.0], maximum=1.0, argmax=[0.3, 1.0])
        with pytest.raises(ShapeError, match=r"term 'f': got values of shape .*; wanted \(3,\), one per point"):
            f.value(np.zeros((3, 2)))
        for outcomes in ("total", "per-factor"):
            env = function_v0.parallel_env(function=f, outcomes=outcomes)
            env.reset(seed=0)
            infos = env.step({"agent_0": [0.5, 0.5]})[-1]
            assert ("ShapeError: term 'f'" in infos["agent_0"].get("failure", "")) == fails
            with pytest.raises(ShapeError, match="term 'f'"):
                env.ground_truth()


def test_links_join_the_owners_of_a_factors_variables_in_the_same_order_in_every_process():
    scopes = {f"f{i}": [i] for i in range(9)} | {"all": range(9), "some": [7, 3, 5]}
    f = AdditiveFunction.from_terms(dict.fromkeys(scopes, lambda X: X.sum(axis=1)), scopes, [0.0] * 9, [1.0] * 9)
    env = function_v0.parallel_env(function=f, outcomes="per-factor")
    assert list(env.interaction_graph().edges) == list(itertools.combinations(env.possible_agents, 2))


def test_a_function_that_raises_or_returns_infinity_fails_only_that_evaluation():
    def moody(X):
        if (X[:, 0] < 0.3).any():
            raise RuntimeError("no water")
        return np.where(X[:, 0] > 0.7, np.inf, X[:, 0])

    function = AdditiveFunction.from_terms({"f": moody}, {"f": [0]}, [0.0], [1.0])
    env = function_v0.parallel_env(function=function, max_cycles=9)
    env.reset(seed=0)
    infos = [env.step({"agent_0": [x]})[4]["agent_0"] for x in (0.1, 0.5, 0.9)]
    assert "measurement" not in infos[0]
    assert infos[0]["failure"] == "RuntimeError: no water"
    assert infos[1]["measurement"] == 0.5
    assert infos[2]["failure"] == "the function returned inf"
    assert env.ground_truth() is None
    noisy = function_v0.parallel_env(function=function, relative_noise=0.5)
    noisy.reset(seed=0)
    assert "measurement" in noisy.step({"agent_0": [0.5]})[4]["agent_0"]
    assert noisy.unwrapped.noise_std == pytest.approx(0.5 * (0.7 - 0.3), abs=1e-3)  # from the points with finite values
    nowhere = AdditiveFunction.from_terms({"f": lambda X: X[:, 0] / "0"}, {"f": [0]}, [0.0], [1.0])
    noisy = function_v0.parallel_env(function=nowhere, relative_noise=0.5)
    noisy.reset(seed=0)
    assert noisy.step({"agent_0": [0.5]})[4]["agent_0"]["failure"].startswith("TypeError: ")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": "powel"}, r"\$\.function: got 'powel'; wanted one of"),
        ({"parameters": {"n_variables": 6}}, r"\$\.n_variables: got 6 variables; wanted a multiple of 4"),
        ({"parameters": {"size": 6}}, r"powell does not take these"),
        ({"noise_std": -1.0}, r"\$\.noise_std: got -1.0"),
        ({"agents": 7}, r"\$\.agents: got 7 agents; wanted at most 6"),
        ({"structure": "hidden", "outcomes": "per-factor"}, r"\$\.outcomes"),
        ({"max_cycle": 3}, "did you mean 'max_cycles'"),
        ({"function": "network", "rescaled": True}, r"^\$\.rescaled: .*, so it cannot be rescaled"),
        ({"function": AdditiveFunction.from_callable(measured, BOUNDS), "moved": True}, r"^\$\.moved: .* be moved"),
    ],
)
def test_wrong_arguments_are_refused_with_their_path(settings, message):
    with pytest.raises(ConfigError, match=message):
        function_v0.parallel_env(**settings)


@pytest.mark.parametrize(
    "arguments",
    [
        {"parameters": {"n_variables": 8}},
        {"function": "camel", "outcomes": "per-factor"},
        {"function": "michalewicz", "structure": "hidden"},
        {"function": "rastrigin", "agents": 2},
    ],
    ids=str,
)
def test_every_agent_owns_a_variable_and_every_factor_has_one_owner(arguments):
    env = function_v0.parallel_env(**arguments)
    graph = env.factor_graph()
    assert set(graph["variable_owners"].values()) == set(env.possible_agents) == set(env.interaction_graph())
    if env.settings.structure == "known":
        assert set(graph["owners"]) == set(graph["scopes"]) == set(env.function.scopes)
    else:
        assert graph["scopes"] is graph["owners"] is None
