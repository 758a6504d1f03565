"""Time of a decision as the number of factors grows, in chains of pairwise factors."""

import resource
import time
from typing import Any, Literal

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb


def team_with_data(
    n_factors: int, n_evaluations: int, outcomes: Literal["total", "per-factor"] = "per-factor"
) -> sb.Team:
    """A chain after some evaluations; nothing is fitted yet."""
    graph = sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n_factors)})
    rng = np.random.default_rng(0)
    X = rng.random((n_evaluations, n_factors + 1))
    F = outcomes_at(X)
    team = sb.Team(graph, {f"x{i}": (0.0, 1.0) for i in range(n_factors + 1)}, outcomes=outcomes, seed=0)
    team.attach(X, F if outcomes == "per-factor" else F.sum(axis=1))
    return team


def outcomes_at(X: np.ndarray) -> np.ndarray:
    """Outcomes of the factors at joint points."""
    return -((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1])


@pytest.mark.parametrize(("outcomes", "n_evaluations"), [("per-factor", 20), ("per-factor", 100), ("total", 100)])
@pytest.mark.parametrize("n_factors", [100, 300, 1000])
def test_a_cold_ask(
    benchmark: Any, n_factors: int, n_evaluations: int, outcomes: Literal["total", "per-factor"]
) -> None:
    """A fit from scratch, then coordination (for totals, on a posterior draw); ``extra_info`` has ms per factor."""
    with threadpool_limits(1, user_api="blas"):
        team = team_with_data(n_factors, n_evaluations, outcomes)
        started = time.process_time()
        query = benchmark.pedantic(team.ask, rounds=1)
        benchmark.extra_info["ms a factor"] = 1e3 * (time.process_time() - started) / n_factors
    assert query.mean is not None


@pytest.mark.parametrize("n_factors", [100, 1000, 10_000])
def test_warm_ask_per_factor(benchmark: Any, n_factors: int) -> None:
    """A query after 100 evaluations and one more, without a fit; ``extra_info`` also has queries with fits.

    ``MB`` is the peak memory of the process so far.
    """
    with threadpool_limits(1, user_api="blas"):
        team = team_with_data(n_factors, 100)
        variables, factors = team.problem.graph.variables, team.problem.graph.factors

        def asked() -> float:
            started = time.process_time()
            query = team.ask()
            taken = time.process_time() - started
            x = np.array([query.point[variable] for variable in variables])
            team.tell(query, dict(zip(factors, outcomes_at(x[None])[0].tolist(), strict=True)))
            return taken

        first, taken = asked(), list[float]()
        benchmark.pedantic(lambda: taken.append(asked()), rounds=2)
        seconds = {"first query": first, "later ones": min(taken), "with a fit from the last one": asked()}
        benchmark.extra_info |= {f"{name}, ms a factor": 1e3 * took / n_factors for name, took in seconds.items()}
        benchmark.extra_info["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
