"""How long a team takes to decide. Ask for it: ``pytest --benchmark-only tests/benchmarks/test_team_speed.py``."""

import time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.acquisition.chain import divide
from swarmbo_envs import robot_team_v0, sensor_field_v0


def test_default_round_after_100_measurements(benchmark: Any) -> None:
    """Four robots on the default landscape: fit, shortlists of 64, tables at B = 2, agreement."""
    env = robot_team_v0.parallel_env(noise_std=5.0, max_cycles=25)
    team = sb.Team.for_env(env, seed=0)
    observations, infos = env.reset(seed=0)
    with threadpool_limits(1, user_api="blas"):
        for _ in range(24):
            step = env.step(team.act(observations, infos))
            team.observe(*step)
            observations, infos = step[0], step[4]
        state = team.state_dict()
        benchmark.extra_info["measurements"] = team.belief.n_data

        def decide() -> None:
            sb.Team.for_env(env, seed=0).load_state_dict(state).act(observations, infos)

        benchmark.pedantic(decide, rounds=15, warmup_rounds=2)
    assert team.belief.n_data == 100
    assert np.isfinite(team.last_report.value)


@pytest.mark.parametrize("robots", [16, 64, 256])
def test_a_round_by_the_number_of_robots(benchmark: Any, robots: int) -> None:
    """The first round after all have measured once; ``extra_info`` has this process's own seconds."""
    env = robot_team_v0.parallel_env(robots=robots, noise_std=5.0, max_cycles=3)
    team = sb.Team.for_env(env, seed=0)
    observations, infos = env.reset(seed=0)
    with threadpool_limits(1, user_api="blas"):
        started = time.process_time()
        actions = benchmark.pedantic(team.act, args=(observations, infos), rounds=1)
        benchmark.extra_info["s"] = time.process_time() - started
    assert len(actions) == robots


@pytest.mark.parametrize(("robots", "measurements"), [(16, 500), (16, 2000), (16, 5000), (64, 5000), (64, 20000)])
def test_a_round_by_the_number_of_measurements(benchmark: Any, robots: int, measurements: int) -> None:
    """After a survey: ``extra_info`` has this process's own seconds."""
    env = robot_team_v0.parallel_env(robots=robots, noise_std=5.0, max_cycles=3)
    team, rng, seconds = sb.Team.for_env(env, seed=0), np.random.default_rng(0), benchmark.extra_info
    U = rng.random((measurements, 2))
    team.attach(team.problem.box.from_unit(U), 50.0 * np.sin(9.0 * U[:, 0]) * np.cos(12.0 * U[:, 1]))
    observations, infos = env.reset(seed=0)

    def timed(what: str, call: Any, *arguments: Any) -> Any:
        started = time.process_time()
        done = call(*arguments)
        seconds[what] = round(time.process_time() - started, 3)
        return done

    with threadpool_limits(1, user_api="blas"):
        step = env.step(timed("first", team.act, observations, infos))
        timed("tell", team.observe, *step)
        seconds["fits"] = team.belief.needs_fit
        actions = benchmark.pedantic(timed, args=("ask", team.act, step[0], step[4]), rounds=1)
    assert len(actions) == robots


@pytest.mark.parametrize("sensors", [100, 200, 400])
def test_a_round_of_beliefs_of_their_own_by_the_number_of_sensors(benchmark: Any, sensors: int) -> None:
    """The second decision, and what sensors then tell one another; ``extra_info`` has this process's own seconds."""
    time_axis = {"lengthscale_rounds": 12.0}
    field = {"gp": {"size_m": [4000.0, 4000.0], "lengthscale_m": 400.0, "seed": 0, "time": time_axis}}
    reach = 500.0 * np.sqrt(300 / sensors)  # about as many neighbours, however many sensors there are
    env = sensor_field_v0.parallel_env(
        sensors=sensors, task="map", field=field, noise_std=0.2, energy_price=0.35, radio_range_m=float(reach)
    )
    prior = sb.ExactGPSettings(restarts=0, time=sb.TimeAxis(kernel="matern32", lengthscale_median=10.0))
    belief, acquisition = sb.FusedSettings(prior=prior), sb.Information(candidates=12)
    team, seconds = sb.Team.for_env(env, seed=0, belief=belief, acquisition=acquisition), dict[str, float]()
    observations, infos = env.reset(seed=0)
    with threadpool_limits(1, user_api="blas"):
        started = time.process_time()
        actions = team.act(observations, infos)
        seconds["first"] = round(time.process_time() - started, 3)
        step = env.step(actions)
        team.observe(*step)
        started = time.process_time()
        actions = benchmark.pedantic(team.act, args=(step[0], step[4]), rounds=1)
        seconds["ask"] = round(time.process_time() - started, 3)
        step = env.step(actions)
        started = time.process_time()
        team.observe(*step)
        seconds["tell"] = round(time.process_time() - started, 3)
    benchmark.extra_info |= seconds
    assert len(actions) == sensors


@pytest.mark.parametrize("robots", [64, 256])
def test_dividing_contested_places_by_the_number_of_robots(benchmark: Any, robots: int) -> None:
    rng = np.random.default_rng(0)
    side = 9 * int(np.sqrt(robots))
    grid = np.array([[i, j] for i in range(side) for j in range(side)], dtype=float)
    agents = [f"r{n}" for n in range(robots)]
    positions = {agent: side * rng.random(2) for agent in agents}
    places = {agent: grid[np.abs(grid - at).max(axis=1) < 8] for agent, at in positions.items()}
    kept = benchmark.pedantic(divide, args=([tuple(agents)], 2, places, positions), rounds=3)
    assert sum(map(len, kept.values())) >= len(np.unique(np.concatenate(list(places.values())), axis=0))
