"""The function world does as it says, whatever it tells of outcomes and structure."""

import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs import function_v0
from swarmbo_envs.functions import AdditiveFunction

from .conftest import WORLDS, SmallWorld


@pytest.fixture(params=WORLDS["function"])
def module(request, tmp_path):
    return SmallWorld("function", request.param, tmp_path)


def test_noise_free_outcomes_are_the_functions_values():
    for outcomes in ("total", "per-factor"):
        env = function_v0.parallel_env(function="camel", outcomes=outcomes, max_cycles=3)
        env.reset(seed=0)
        *_, infos = env.step({"agent_0": [1.0], "agent_1": [0.5]})
        values = env.function.factor_values(np.array([[1.0, 0.5]]))[0]
        if outcomes == "total":
            assert infos["agent_0"]["measurement"] == infos["agent_1"]["measurement"] == values.sum()
        else:
            assert infos["agent_0"]["factors"] | infos["agent_1"]["factors"] == dict(
                zip(env.function.scopes, values, strict=True)
            )


def test_the_spread_of_the_noise_is_the_one_asked_for():
    env = function_v0.parallel_env(function="camel", noise_std=2.0, max_cycles=2000)
    env.reset(seed=1)
    total = env.function.value(np.zeros((1, 2)))[0]
    measured = [env.step({"agent_0": [0.0], "agent_1": [0.0]})[4]["agent_0"]["measurement"] for _ in range(2000)]
    assert np.std(measured) == pytest.approx(2.0, rel=0.06)
    assert np.mean(measured) == pytest.approx(total, abs=0.15)


def test_a_callable_that_crashes_or_returns_nonsense_fails_that_evaluation_only():
    def moody(X):
        if X[0, 0] < 0.3:
            raise RuntimeError("no water")
        return np.where(X[:, 0] > 0.7, np.inf, X[:, 0])

    function = AdditiveFunction.from_terms({"f": moody}, {"f": [0]}, [0.0], [1.0])
    env = function_v0.parallel_env(function=function, max_cycles=9)
    env.reset(seed=0)
    infos = [env.step({"agent_0": [x]})[4]["agent_0"] for x in (0.1, 0.5, 0.9)]
    assert "measurement" not in infos[0]
    assert infos[0]["error"] == "RuntimeError: no water"
    assert infos[1]["measurement"] == 0.5
    assert infos[2]["error"] == "the function returned inf"
    assert env.ground_truth() is None


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
    ],
)
def test_wrong_arguments_are_refused_with_their_path(settings, message):
    with pytest.raises(ConfigError, match=message):
        function_v0.parallel_env(**settings)


def test_every_agent_owns_a_variable_and_every_factor_has_one_owner(module):
    env = module.parallel_env()
    told = env.factor_graph()
    assert set(told["variable_owners"].values()) == set(env.possible_agents)
    if env.settings.structure == "known":
        assert set(told["owners"]) == set(told["scopes"]) == set(env.function.scopes)
    else:
        assert told["scopes"] is told["owners"] is None
    assert set(env.interaction_graph()) == set(env.possible_agents)
