from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from swarmbo.errors import ConfigError
from swarmbo.worlds import FunctionWorld

TOLD = {
    "bounds": {"p": (0.0, 1.0), "q": (-2.0, 2.0), "free": (10.0, 20.0), "r": (0.0, 4.0)},
    "variable_owners": {"p": "a", "q": "b", "free": "b", "r": "a"},
    "scopes": {"late": ["r", "q"], "early": ["p"]},
    "owners": {"late": "b", "early": "a"},
    "outcomes": "per-factor",
}


class Env:
    """As much of an environment as a team asks for."""

    def __init__(self, **changed):
        self.told = {**TOLD, **changed}
        self.possible_agents = ["a", "b"]
        own = {agent: [v for v, owner in TOLD["variable_owners"].items() if owner == agent] for agent in ("a", "b")}
        sides = {agent: np.array([TOLD["bounds"][v] for v in names], dtype=np.float32) for agent, names in own.items()}
        self.boxes = {agent: Box(*pairs.T) for agent, pairs in sides.items()}

    @property
    def unwrapped(self):
        return SimpleNamespace(factor_graph=lambda: self.told)

    def action_space(self, agent):
        return self.boxes[agent]


def test_actions_are_each_agents_own_variables_in_the_worlds_order_and_free_ones_stay_in_the_middle():
    world = FunctionWorld(Env())
    assert (list(world.bounds), world.graph.variables) == (["p", "q", "r"], ("p", "q", "r"))
    actions = world.actions({"p": 0.25, "q": -1.0, "r": 3.0}, ["a", "b"])
    assert {agent: action.tolist() for agent, action in actions.items()} == {"a": [0.25, 3.0], "b": [-1.0, 15.0]}
    assert actions["a"].dtype == np.float32
    assert world.place({"p": 0.25, "q": -1.0, "r": 3.0}) == [0.25, -1.0, 15.0, 3.0]
    hidden = FunctionWorld(Env(scopes=None, owners=None, outcomes="total"))
    assert (hidden.graph, list(hidden.bounds)) == (None, ["p", "q", "free", "r"])


def test_what_agents_report_is_the_point_and_the_outcome():
    world = FunctionWorld(Env())
    infos = {"a": {"location": [0.5, 1.0], "factors": {"early": 1.0}}}
    assert world.point(infos) is None
    assert world.outcome(infos) == {"early": 1.0}
    infos["b"] = {"location": [0.0, 11.0], "factors": {"late": None}}
    assert world.point(infos) == {"p": 0.5, "q": 0.0, "free": 11.0, "r": 1.0}
    assert world.outcome(infos) == {"early": 1.0, "late": None}
    assert FunctionWorld(Env(outcomes="total")).outcome({"a": {}, "b": {"measurement": 2.5}}) == 2.5
    assert FunctionWorld(Env(outcomes="total")).outcome({}) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"owners": {"late": "b", "early": "stranger"}}, "stranger"),
        ({"variable_owners": {"p": "a"}}, "owners of other variables"),
        ({"scopes": {"late": ["unknown"]}, "owners": {"late": "a"}}, "have no bounds"),
        ({"outcomes": "some"}, "wanted one of 'total', 'per-factor'"),
        ({"bounds": {**TOLD["bounds"], "p": (0.0,)}}, "factor_graph"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused(changed, words):
    with pytest.raises(ConfigError, match=words):
        FunctionWorld(Env(**changed))


@pytest.mark.parametrize("box", [Box(0.0, 1.0, (3,)), Box(0.0, 9.0, (2,)), Discrete(2), MultiDiscrete([2, 5])])
def test_action_spaces_other_than_the_agents_own_variables_are_refused(box):
    env = Env()
    env.boxes["a"] = box
    with pytest.raises(ConfigError, match=r"of 'a'; wanted the values of p \(0 to 1\), r \(0 to 4\)"):
        FunctionWorld(env)
