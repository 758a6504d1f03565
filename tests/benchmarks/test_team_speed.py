"""How long a team takes to decide. Ask for it: ``pytest --benchmark-only tests/benchmarks/test_team_speed.py``."""

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo_envs import robot_team_v0


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
