"""Time of a team's decision in a field; ``extra_info`` has CPU seconds of this process."""

import time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.acquisition.chain import divide
from swarmbo_envs import robot_team_v0, sensor_field_v0

SIZES = [(4, 100), (16, 0), (64, 0), (256, 0), (1000, 0), (16, 500), (16, 2000), (16, 5000), (64, 5000), (64, 20000)]


def timed(seconds: dict[str, Any], what: str, call: Any, *arguments: Any) -> Any:
    """Call a function, and note how long it took."""
    started = time.process_time()
    done = call(*arguments)
    seconds[what] = round(time.process_time() - started, 3)
    return done


@pytest.mark.parametrize(("robots", "measurements"), SIZES)
def test_a_round_as_robots_and_measurements_grow_in_number(benchmark: Any, robots: int, measurements: int) -> None:
    """The decision after a survey."""
    env = robot_team_v0.parallel_env(robots=robots, noise_std=5.0, max_cycles=3)
    team, rng, seconds = sb.Team.for_env(env, seed=0), np.random.default_rng(0), benchmark.extra_info
    U = rng.random((measurements, 2))
    if measurements:
        team.attach(team.problem.box.from_unit(U), 50.0 * np.sin(9.0 * U[:, 0]) * np.cos(12.0 * U[:, 1]))
    observations, infos = env.reset(seed=0)
    with threadpool_limits(1, user_api="blas"):
        step = env.step(timed(seconds, "first", team.act, observations, infos))
        timed(seconds, "tell", team.observe, *step)
        assert isinstance(team.belief, sb.ExactGP)
        seconds["fits"] = team.belief.needs_fit
        actions = benchmark.pedantic(timed, args=(seconds, "ask", team.act, step[0], step[4]), rounds=1)
    assert len(actions) == robots


@pytest.mark.parametrize("sensors", [100, 200, 400])
def test_a_round_with_one_belief_per_sensor_as_sensors_grow_in_number(benchmark: Any, sensors: int) -> None:
    """The second decision, and the messages that sensors then exchange."""
    time_axis = {"lengthscale_rounds": 12.0}
    field = {"gp": {"size_m": [4000.0, 4000.0], "lengthscale_m": 400.0, "seed": 0, "time": time_axis}}
    reach = 500.0 * np.sqrt(300 / sensors)  # about the same number of neighbours for any number of sensors
    env = sensor_field_v0.parallel_env(
        sensors=sensors, task="map", field=field, noise_std=0.2, energy_price=0.35, radio_range_m=float(reach)
    )
    prior = sb.ExactGPSettings(restarts=0, time=sb.TimeAxis(kernel="matern32", lengthscale_median=10.0))
    belief, acquisition = sb.FusedSettings(prior=prior), sb.Information(candidates=12)
    team, seconds = sb.Team.for_env(env, seed=0, belief=belief, acquisition=acquisition), benchmark.extra_info
    observations, infos = env.reset(seed=0)
    with threadpool_limits(1, user_api="blas"):
        step = env.step(timed(seconds, "first", team.act, observations, infos))
        team.observe(*step)
        actions = benchmark.pedantic(timed, args=(seconds, "ask", team.act, step[0], step[4]), rounds=1)
        timed(seconds, "tell", team.observe, *env.step(actions))
    assert len(actions) == sensors


@pytest.mark.parametrize("robots", [64, 256])
def test_dividing_contested_places_as_robots_grow_in_number(benchmark: Any, robots: int) -> None:
    rng = np.random.default_rng(0)
    side = 9 * int(np.sqrt(robots))
    grid = np.array([[i, j] for i in range(side) for j in range(side)], dtype=float)
    agents = [f"r{n}" for n in range(robots)]
    positions = {agent: side * rng.random(2) for agent in agents}
    places = {agent: grid[np.abs(grid - at).max(axis=1) < 8] for agent, at in positions.items()}
    kept = benchmark.pedantic(divide, args=([tuple(agents)], 2, places, positions), rounds=3)
    assert sum(map(len, kept.values())) >= len(np.unique(np.concatenate(list(places.values())), axis=0))
