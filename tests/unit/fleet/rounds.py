"""Rounds in an environment, played by a fleet or by a team in one process."""

import numpy as np
from threadpoolctl import threadpool_limits

import swarmbo as sb


def play(team, env, rounds, before=lambda number: None):
    """Play rounds, and call ``before`` in front of each; return the queries and the team's history."""
    queries = []
    with threadpool_limits(1, user_api="blas"):
        observations, infos = env.reset(seed=7)
        for number in range(1, rounds + 1):
            before(number)
            observations, *rest = env.step(team.act(observations, infos))
            team.observe(observations, *rest)
            infos = rest[-1]
            queries.append(team.last_query)
    return queries, team.history


def alone(env, rounds, **settings):
    """The same for a team in one process."""
    return play(sb.Team.for_env(env, **settings), env, rounds)


def require_same(fleet, team):
    """Check that queries and histories are equal."""
    (queries, history), (wanted, known) = fleet, team
    assert [query.point for query in queries] == [query.point for query in wanted]
    for name in ("X", "factors", "totals", "known_noise"):
        np.testing.assert_array_equal(getattr(history, name), getattr(known, name))
