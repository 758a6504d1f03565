"""Actions have the values of typed variables, in the form of their space; any PettingZoo world of them is tuned."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given, settings, strategies as st
from pettingzoo import ParallelEnv

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.worlds import FunctionWorld, Step
from swarmbo.worlds.actions import Form, variables_of

SPACES = {
    "gate": Discrete(4, start=2),
    "pump": MultiDiscrete([3, 2]),
    "crew": Box(0, 5, (2,), dtype=np.int64),
    "radio": Dict({"channel": Discrete(3), "power": Box(0.0, 2.0, (1,)), "gain": Box(-1.0, 1.0, ())}),
}
TYPES: dict[str, Any] = {
    "mode": {"kind": "categorical", "values": ["eco", "fast", "off"]},
    "count": {"kind": "integer", "low": 2, "high": 10, "step": 2},
    "rate": {"kind": "real", "low": 0.01, "high": 1.0, "log": True},
    "level": (0.0, 4.0),
}


class Plant(ParallelEnv[str, Any, Any]):
    """A world of others: every agent is rewarded for one action, and infos are empty."""

    metadata = {"name": "plant"}  # noqa: RUF012

    def __init__(self, spaces: dict[str, Any] = SPACES) -> None:
        self.possible_agents, self.spaces, self.taken = list(spaces), spaces, list[dict[str, Any]]()

    def action_space(self, agent: str) -> Any:
        return self.spaces[agent]

    def observation_space(self, agent: str) -> Any:
        return Box(0.0, 1.0, (1,))

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert all(self.spaces[agent].contains(action) for agent, action in actions.items()), actions
        self.taken.append(actions)
        radio = actions["radio"]
        rewards = {
            "gate": -float(abs(actions["gate"] - 4)),
            "pump": float(actions["pump"][0] == 1) + float(actions["pump"][1] == 1),
            "crew": -float(abs(actions["crew"][0] - 3) + abs(actions["crew"][1] - actions["gate"])),
            "radio": float(radio["channel"] == 2) - float((radio["power"][0] - 1.0) ** 2) - float(radio["gain"] ** 2),
        }
        no = dict.fromkeys(self.agents, False)
        return {a: np.zeros(1) for a in self.agents}, rewards, no, no, {a: {} for a in self.agents}


def test_a_world_with_discrete_and_nested_actions_is_tuned():
    env = Plant()
    scopes = {"gate": ["gate"], "pump": ["pump"], "crew": ["crew", "gate"], "radio": ["radio"]}
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: reward, scopes=scopes, seed=1, initial=5)
    wanted = {
        "gate[0]": sb.Categorical(range(2, 6)),
        "pump[0]": sb.Categorical(range(3)),
        "pump[1]": sb.Categorical(range(2)),
        "crew[0]": sb.Integer(0, 5),
        "crew[1]": sb.Integer(0, 5),
        "radio[channel]": sb.Categorical(range(3)),
        "radio[gain]": sb.Real(-1.0, 1.0),
        "radio[power][0]": sb.Real(0.0, 2.0),
    }
    assert team.problem.variables == wanted
    (observations, infos), query = env.reset(), None
    for _ in range(16):
        step = env.step(team.act(observations, infos))
        team.observe(*step)
        actions, query = env.taken[-1], team.last_query
        assert query is not None
        assert type(actions["gate"]) is int
        assert (query.point["gate[0]"], query.point["radio[channel]"]) == (actions["gate"], actions["radio"]["channel"])
        assert query.point["crew[0]"] == actions["crew"][0]
    best = team.recommend()
    assert best is not None
    assert best.point is not None
    found = {name: best.point[name] for name in ("gate[0]", "pump[0]", "pump[1]", "radio[channel]", "crew[0]")}
    assert found == {"gate[0]": 4, "pump[0]": 1, "pump[1]": 1, "radio[channel]": 2, "crew[0]": 3}
    assert query is not None
    np.testing.assert_allclose(team.history.X[-1], team.problem.placed(query.point), rtol=1e-6)  # float32 acted


def world_of(space: Any, names: tuple[str, ...] = tuple(TYPES)) -> FunctionWorld:
    class Told(Plant):
        def factor_graph(self) -> dict[str, Any]:
            return {"bounds": {v: TYPES[v] for v in names}, "variable_owners": dict.fromkeys(names, "a")}

    return FunctionWorld(Told({"a": space}))


CODES = Box(np.array([0.0, 2.0, 0.01, 0.0]), np.array([2.0, 10.0, 1.0, 4.0]), dtype=np.float64)
BY_NAME = Dict(
    {"level": Box(0.0, 4.0, ()), "mode": Discrete(3), "count": Discrete(5, start=1), "rate": Box(0.01, 1.0, (1,))}
)


@pytest.mark.parametrize("space", [CODES, BY_NAME], ids=["box", "dict"])
def test_a_graph_states_types_and_actions_have_their_values(space: Any):
    world, point = world_of(space), {"mode": "off", "count": 6, "rate": 0.25, "level": 1.5}
    assert world.problem.variables["mode"] == sb.Categorical(["eco", "fast", "off"])
    (action,) = world.actions(point, ["a"]).values()
    assert space.contains(action) or space is BY_NAME  # float32 holds no 0.01
    found = world.point({"a": {"location": action}})
    assert found is not None
    assert found == pytest.approx(point)
    assert [type(value) for value in found.values()] == [str, int, float, float]
    assert world.place(point) == [2.0, 6.0, 0.25, 1.5]
    assert world.named([2.0, 6.0, 0.25, 1.5]) == point
    if space is BY_NAME:
        assert (action["mode"], action["count"], type(action["mode"])) == (2, 3, int)


def test_actions_of_single_variables_are_numbers_of_the_space():
    world = world_of(Discrete(3, start=7), ("mode",))
    assert world.actions({"mode": "fast"}, ["a"]) == {"a": 8}
    assert world.point({"a": {"location": 9}}) == {"mode": "off"}
    both = world_of(MultiDiscrete([3, 5]), ("mode", "count"))
    (action,) = both.actions({"mode": "fast", "count": 10}, ["a"]).values()
    assert (action.tolist(), action.dtype) == ([1, 4], np.int64)


@pytest.mark.parametrize("location", [None, "off", [1, 2], {"mode": 1}, [9.0], [-1], float("nan")])
def test_a_place_that_is_no_value_is_none_or_no_point_of_the_problem(location: Any):
    world = world_of(Discrete(3), ("mode",))
    point = world.point({"a": {"location": location}})
    assert point is None or not world.problem.has_point(point)
    news = world.news({"mode": "eco"}, Step({}, {}, {}, {}, {"a": {"location": location, "measurement": 1.0}}))
    assert news is not None
    assert news.point.tolist() == [0.0]
    assert news.total == 1.0 if point is None else np.isnan(news.total or 0.0)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(4),
        Box(0.0, 1.0, (1,)),
        MultiDiscrete([3, 3]),
        Dict({"mode": Discrete(2)}),
        Dict({"mode": Discrete(3), "x": Discrete(2)}),
    ],
)
def test_spaces_with_other_values_are_refused(space: Any):
    with pytest.raises(ConfigError, match=r"of 'a'; wanted the values of mode \('eco', 'fast', 'off'\)"):
        world_of(space, ("mode",))


@pytest.mark.parametrize(
    "given", [{"kind": "integer", "low": 1}, {"kind": "set"}, {"kind": "categorical", "values": [1]}]
)
def test_types_that_are_none_are_refused_with_their_path(given: Any):
    class Told(Plant):
        def factor_graph(self) -> dict[str, Any]:
            return {"bounds": {"x": given}, "variable_owners": {"x": "a"}}

    with pytest.raises(ConfigError, match=r"\$\.environment\.factor_graph\.bounds\.x"):
        FunctionWorld(Told({"a": Discrete(2)}))


_leaf = st.one_of(
    st.builds(Discrete, st.integers(2, 9), start=st.integers(-3, 3)),
    st.builds(MultiDiscrete, st.lists(st.integers(2, 5), min_size=1, max_size=3)),
    st.builds(
        lambda low, side, n: Box(low, low + side, (n,), dtype=np.float64), *[st.floats(0.5, 9.0)] * 2, st.integers(1, 3)
    ),
    st.builds(
        lambda low, side, n: Box(low, low + side, (n,), dtype=np.int32), *[st.integers(1, 9)] * 2, st.integers(1, 3)
    ),
)
_space = st.recursive(
    _leaf, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(Dict), max_leaves=4
)


@settings(max_examples=200, deadline=None)
@given(_space, st.integers(0, 2**31))
def test_any_action_is_its_codes_and_back(space: Any, seed: int):
    space.seed(seed)
    own = variables_of(space, "a")
    form, action = Form.of(space, own, "a"), space.sample()
    codes = form.codes(action)
    assert codes is not None
    assert all(variable.has(codes[name]) for name, variable in own.items())
    again = form.action(codes)
    assert space.contains(again)
    assert form.codes(again) == codes
