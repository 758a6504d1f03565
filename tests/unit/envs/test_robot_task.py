"""What robots watch a field for: what is told of it, and what teams make of that."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.runs import load
from swarmbo.worlds import FieldWorld
from swarmbo_envs import robot_team_v0, robot_team_v1


@pytest.mark.parametrize("make", [robot_team_v0.parallel_env, robot_team_v1.parallel_env])
def test_the_task_is_what_truth_states_and_worlds_offer(make) -> None:
    for task, level in [("peak", None), ("map", None), ("level", 900.0)]:
        env = make(robots=2, task=task, level=level)
        env.reset(seed=0)
        truth = env.unwrapped.ground_truth()
        assert (truth.goal, truth.level) == (task, level)
        assert FieldWorld(env).offers(env.agents).level == level
    assert make(robots=2).unwrapped.settings.task == "peak"


@pytest.mark.parametrize("given", [{"task": "level"}, {"task": "map", "level": 3.0}, {"level": 3.0}])
def test_a_level_goes_with_its_task(given) -> None:
    with pytest.raises(ConfigError, match=r"\$\.level: got .*; wanted .*the task 'level'"):
        robot_team_v0.parallel_env(**given)


def test_robots_that_leave_the_depot_watch_the_level_of_their_world_by_routes() -> None:
    scenario = load("robots-depot", [])
    chosen = scenario.acquisition.in_field(scenario.environment["task"], priced=False)
    assert (chosen, scenario.coordination) == (sb.TargetedVariance(task="level"), sb.Routes())
    world = dict(scenario.environment)
    env = robot_team_v0.parallel_env(**{name: world[name] for name in world if name != "id"})
    starts, field = np.array(world["starts"]), env.unwrapped.field
    assert np.ptp(starts, axis=0).max() < 0.25 * field.reach_m
    turn_s = np.pi / env.unwrapped.settings.turn_rate_rad_s
    reach_m = (env.unwrapped.round_time_s - turn_s) * env.unwrapped.settings.speed_m_s
    assert reach_m == pytest.approx(0.5 * field.reach_m, rel=0.01)
    assert 0.1 < np.mean(field.value(field.points) > world["level"]) < 0.2
