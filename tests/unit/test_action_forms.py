"""Actions contain the values of typed variables in the form of their space; teams tune any PettingZoo environment."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.spaces.variables import Real
from swarmbo.worlds import FunctionWorld, Step
from swarmbo.worlds.actions import ActionForm, variables_of

from .teams import Played, drive

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


class Plant(Played):
    """An environment not written for swarmbo: every agent is rewarded for one action, and infos are empty."""

    def pays(self, actions: dict[str, Any]) -> dict[str, float]:
        radio = actions["radio"]
        return {
            "gate": -float(abs(actions["gate"] - 4)),
            "pump": float(actions["pump"][0] == 1) + float(actions["pump"][1] == 1),
            "crew": -float(abs(actions["crew"][0] - 3) + abs(actions["crew"][1] - actions["gate"])),
            "radio": float(radio["channel"] == 2) - float((radio["power"][0] - 1.0) ** 2) - float(radio["gain"] ** 2),
        }


def test_a_world_with_discrete_and_nested_actions_is_tuned():
    env = Plant(SPACES)
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
    drive(env, team, 16)
    for actions, x in zip(env.acted, team.history.X, strict=True):
        point = team.problem.named(x)
        assert type(actions["gate"]) is int
        assert (point["gate[0]"], point["radio[channel]"]) == (actions["gate"], actions["radio"]["channel"])
        assert point["crew[0]"] == actions["crew"][0]
    best = {"gate[0]": 4, "pump[0]": 1, "pump[1]": 1, "radio[channel]": 2, "crew[0]": 3}
    found, last = team.recommend(), team.last_query
    assert found is not None
    assert found.point is not None
    assert last is not None
    assert best.items() <= found.point.items()
    placed = team.problem.placed(last.point)
    np.testing.assert_allclose(team.history.X[-1], placed, rtol=1e-6)  # actions are float32


def world_of(space: Any, *names: str, **types: Any) -> FunctionWorld:
    class Told(Played):
        def factor_graph(self) -> dict[str, Any]:
            bounds = {name: TYPES[name] for name in names} | types
            return {"bounds": bounds, "variable_owners": dict.fromkeys(bounds, "a")}

    return FunctionWorld(Told({"a": space}))


CODES = Box(np.array([0.0, 2.0, 0.01, 0.0]), np.array([2.0, 10.0, 1.0, 4.0]), dtype=np.float64)
RATE: Any = Box(0.01, 1.0, (1,))
BY_NAME = Dict({"level": Box(0.0, 4.0, ()), "mode": Discrete(3), "count": Discrete(5, start=1), "rate": RATE})


@pytest.mark.parametrize("space", [CODES, BY_NAME], ids=["box", "dict"])
def test_a_graph_states_types_and_actions_have_their_values(space: Any):
    world, point = world_of(space, *TYPES), {"mode": "off", "count": 6, "rate": 0.25, "level": 1.5}
    assert world.problem.variables["mode"] == sb.Categorical(["eco", "fast", "off"])
    (action,) = world.actions(point, ["a"]).values()
    assert space.contains(action) or space is BY_NAME  # float32 cannot represent 0.01
    found = world.point({"a": {"location": action}}, {})
    assert found is not None
    assert found == pytest.approx(point)
    assert [type(value) for value in found.values()] == [str, int, float, float]
    assert world.place(point) == [2.0, 6.0, 0.25, 1.5]
    assert world.named([2.0, 6.0, 0.25, 1.5]) == point
    if space is BY_NAME:
        assert (action["mode"], action["count"], type(action["mode"])) == (2, 3, int)


def test_actions_of_single_variables_are_numbers_of_the_space():
    world = world_of(Discrete(3, start=7), "mode")
    assert world.actions({"mode": "fast"}, ["a"]) == {"a": 8}
    assert world.point({"a": {"location": 9}}, {}) == {"mode": "off"}
    both = world_of(MultiDiscrete([3, 5]), "mode", "count")
    (action,) = both.actions({"mode": "fast", "count": 10}, ["a"]).values()
    assert (action.tolist(), action.dtype) == ([1, 4], np.int64)


@pytest.mark.parametrize("location", ["off", [1, 2], {"mode": 1}, [9.0], [-1], float("nan")])
def test_a_measurement_at_an_invalid_location_counts_as_failed(location: Any):
    world = world_of(Discrete(3), "mode")
    news = world.news({"mode": "eco"}, Step({}, {}, {}, {}, {"a": {"location": location, "measurement": 1.0}}))
    assert news is not None
    assert (news.point.tolist(), np.isnan(news.total or 0.0)) == ([0.0], True)


def test_a_huge_discrete_space_is_refused_before_its_values_are_listed():
    with pytest.raises(ConfigError, match=r"wanted a list of values, at most 10,000"):
        variables_of(Discrete(2**40), "a")


NO_MODES = [Discrete(4), Box(0.0, 1.0, (1,)), MultiDiscrete([3, 3]), Dict({"mode": Discrete(2)})]
NO_MODES += [Dict({"mode": Discrete(3), "x": Discrete(2)})]
NO_LEVELS = [Box(0.0, 4.0, (2,)), Box(0.0, 9.0, (1,)), Discrete(2), MultiDiscrete([2, 5])]


@pytest.mark.parametrize(
    ("name", "wanted", "space"),
    [
        *(("mode", r"mode \('eco', 'fast', 'off'\)", space) for space in NO_MODES),
        *(("level", r"level \(0 to 4\)", space) for space in NO_LEVELS),
    ],
)
def test_spaces_with_other_values_are_refused(name: str, wanted: str, space: Any):
    with pytest.raises(ConfigError, match=f"of 'a'; wanted the values of {wanted}"):
        world_of(space, name)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_a_box_of_integers_has_integers_and_choices_but_no_real_numbers(dtype: Any):
    space: Any = Box(0, 1, (1,), dtype=dtype)
    for stated in ((0.0, 1.0), {"kind": "real", "low": 0.0, "high": 1.0, "step": 0.5}):
        with pytest.raises(
            ConfigError, match=r"wanted the values of x .*; a Box of integers sets integers and choices"
        ):
            world_of(space, x=stated)
    for stated in ({"kind": "integer", "low": 0, "high": 1}, {"kind": "categorical", "values": ["off", "on"]}):
        action = ActionForm.of(space, world_of(space, x=stated).types, "a").action({"x": 0.999999})
        assert (action.tolist(), action.dtype) == ([1], dtype)
    assert variables_of(space, "a") == {"a[0]": sb.Integer(0, 1)}


def test_a_dict_space_that_lacks_a_variable_is_refused():
    with pytest.raises(ConfigError, match=r"wanted the values of mode .*, count"):
        world_of(Dict({"mode": Discrete(3), "cuont": Discrete(5)}), "mode", "count")


GRAPH = {
    "bounds": {"p": (0.0, 1.0), "q": (0.0, 1.0)},
    "variable_owners": {"p": "a", "q": "b"},
    "scopes": {"late": ["q", "p"], "early": ["p"]},
    "owners": {"late": "b", "early": "a"},
    "outcomes": "per-factor",
}


def world_with(**changed: Any) -> FunctionWorld:
    env: Any = Played(dict.fromkeys("ab", Box(0.0, 1.0, (1,))))
    env.factor_graph = lambda: GRAPH | changed
    return FunctionWorld(env)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"owners": {"late": "b", "early": "stranger"}}, "stranger"),
        ({"variable_owners": {"p": "a"}}, "owners of other variables"),
        ({"scopes": {"late": ["unknown"]}, "owners": {"late": "a"}}, "have no bounds"),
        ({"outcomes": "some"}, "wanted one of 'total', 'per-factor'"),
        ({"outcome": "total"}, "unknown key 'outcome'; did you mean 'outcomes'"),
        ({"bounds": {"p": (0.0,), "q": (0.0, 1.0)}}, "factor_graph"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused(changed: Any, words: str):
    with pytest.raises(ConfigError, match=words):
        world_with(**changed)


def test_an_agent_that_reports_no_location_counts_as_where_it_was_sent():
    world, sent = world_with(), {"p": 0.1, "q": 0.2}
    infos: dict[str, Any] = {"a": {"location": [0.5], "factors": {"early": 1.0}}, "b": {"location": None}}
    assert (world.point(infos, sent), world.outcome(infos)) == ({"p": 0.5, "q": 0.2}, {"early": 1.0})
    assert (world.point({"b": infos["b"]}, sent), world.point({}, sent)) == (None, None)
    infos["b"] = {"location": [0.0], "factors": {"late": None}}
    assert (world.point(infos, sent), world.outcome(infos)) == ({"p": 0.5, "q": 0.0}, {"early": 1.0, "late": None})


def test_a_team_uses_reported_locations_and_counts_an_invalid_one_as_a_failure():
    env: Any = Played(dict.fromkeys("ab", Box(0.0, 1.0, (1,))))
    env.factor_graph = lambda: GRAPH | {"outcomes": "total"}
    team = sb.Team.for_env(env, seed=0)
    asked = []
    for place in ([0.75], "nowhere"):
        actions = team.act({"a": None, "b": None}, {})
        asked.append(float(actions["b"][0]))
        infos = {"a": {"location": place, "measurement": 1.0}, "b": {"measurement": 1.0}}
        team.observe({}, {}, {}, {}, infos)
    assert team.history.X[0] == pytest.approx([0.75, asked[0]])
    assert (team.n_data, team.failures) == (1, 1)


@pytest.mark.parametrize(
    "given", [{"kind": "integer", "low": 1}, {"kind": "set"}, {"kind": "categorical", "values": [1]}]
)
def test_invalid_types_are_refused_with_their_path(given: Any):
    with pytest.raises(ConfigError, match=r"\$\.environment\.factor_graph\.bounds\.x"):
        world_of(Discrete(2), x=given)


def boxes(number: Any, dtype: Any) -> Any:
    return st.builds(lambda low, side, n: Box(low, low + side, (n,), dtype=dtype), number, number, st.integers(1, 3))


_leaf = st.one_of(
    st.builds(Discrete, st.integers(2, 9), start=st.integers(-3, 3)),
    st.builds(MultiDiscrete, st.lists(st.integers(2, 5), min_size=1, max_size=3)),
    boxes(st.floats(0.5, 9.0), np.float64),
    boxes(st.integers(1, 9), np.int32),
)
_space = st.recursive(_leaf, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(Dict))


@settings(max_examples=80, deadline=None)
@given(_space, st.integers(0, 2**31))
def test_codes_survive_a_round_trip_through_actions(space: Any, seed: int):
    space.seed(seed)
    own = variables_of(space, "a")
    form, action = ActionForm.of(space, own, "a"), space.sample()
    codes = form.codes(action)
    assert codes is not None
    assert all(variable.axis.has(codes[name]) for name, variable in own.items())
    again = form.action(codes)
    assert space.contains(again)
    assert form.codes(again) == codes


@pytest.mark.parametrize(("low", "side"), [(0.0, 1.0), (0.0, 1e-9), (1e6, 1.0)])
def test_a_box_with_other_bounds_is_refused_at_every_scale(low, side):
    for high in (low + side, low + side * (1.0 + 1e-7)):
        ActionForm.of(Box(low, high, (1,), np.float64), {"x": Real(low, low + side)}, "a")
    with pytest.raises(ConfigError, match="wanted the values of x"):
        ActionForm.of(Box(low, low + 0.5 * side, (1,), np.float64), {"x": Real(low, low + side)}, "a")
