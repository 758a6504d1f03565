"""Importing the package is all it takes to make its worlds by name."""

import inspect
import subprocess
import sys

import numpy as np
import pettingzoo
import pytest

import swarmbo_envs
from swarmbo_envs import robot_push_v0, robot_team_v0, robot_team_v1, sensor_field_v0, wlan_power_v0

NAMES = ("function-v0", "robot_push-v0", "robot_team-v0", "robot_team-v1", "sensor_field-v0", "wlan_power-v0")
IDS = [f"swarmbo/{name}" for name in NAMES]


def test_a_fresh_interpreter_knows_every_world_in_both_forms_once_the_package_is_imported():
    program = (
        "import pettingzoo, swarmbo_envs; "
        "print(sorted(i for i in pettingzoo.parallel_registry if i.startswith('swarmbo/'))); "
        "print(sorted(i for i in pettingzoo.aec_registry if i.startswith('swarmbo/')))"
    )
    told = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == f"{IDS}\n{IDS}\n"
    assert not told.stderr


def test_registering_again_says_nothing_and_leaves_what_is_there(monkeypatch):
    mine = pettingzoo.EnvSpec(id=IDS[1], entry_point="somewhere:else")
    monkeypatch.setitem(pettingzoo.parallel_registry, IDS[1], mine)
    assert swarmbo_envs.register_all() == IDS
    assert pettingzoo.parallel_registry[IDS[1]] is mine


@pytest.mark.parametrize("identifier", IDS)
def test_worlds_are_made_by_name_in_both_forms(identifier):
    env = pettingzoo.make("parallel", identifier, max_cycles=4)
    assert env.unwrapped.max_cycles == 4
    assert f"swarmbo/{env}" == f"swarmbo/{env.metadata['name']}" == identifier.replace("-", "_")
    assert pettingzoo.make("aec", identifier, max_cycles=4).possible_agents == env.possible_agents


class OfOnesOwn(robot_team_v1.parallel_env):
    def __init__(self, depth=3):
        super().__init__(robots=np.int64(2), speed_m_s=np.array([1.0, depth]), starts=[np.zeros(2), (9.0, 9.0)])


@pytest.mark.parametrize("module", [robot_push_v0, robot_team_v0, robot_team_v1, sensor_field_v0, wlan_power_v0])
def test_help_shows_the_arguments_of_a_world_and_their_defaults(module):
    made, told = module.parallel_env().settings, inspect.signature(module.parallel_env).parameters
    assert list(told) == list(made.__struct_fields__)
    other = {name for name, one in told.items() if one.default != getattr(made, name)}
    assert other <= {"field", "departures", "parameters", "types"}
    assert {one.kind for one in told.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_world_that_is_derived_has_arguments_of_its_own_and_numbers_of_numpy_are_numbers():
    assert list(inspect.signature(OfOnesOwn).parameters) == ["depth"]
    assert OfOnesOwn(depth=4).settings.speed_m_s == [1.0, 4.0]
