"""Any Python function is a world."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
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
def test_a_team_maximises_it_whoever_sets_the_variables(structure, agents, expected):
    function = AdditiveFunction.from_callable(measured, BOUNDS, maximum=320.0)
    env = function_v0.parallel_env(function=function, agents=agents, structure=structure, max_cycles=14)
    team = sb.Team.for_env(env, seed=0, initial=6)
    assert all(len(infos) == expected for infos in played(env, team))
    assert team.n_data == 14
    assert max(team.history.totals) > 310.0  # a plane: the corner is soon found


@pytest.mark.parametrize("bounds", [{}, {"x": (1.0,)}, {"x": (1.0, 1.0)}, {"x": (0.0, np.inf)}])
def test_bounds_that_are_no_box_are_refused(bounds):
    with pytest.raises(ConfigError, match=r"^\$\.bounds: got "):
        AdditiveFunction.from_callable(lambda x: x, bounds)
