import numpy as np
import pytest

from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain


def bowl(X):
    return -((np.asarray(X) - 1.0) ** 2).sum(axis=1)


def some_points(t: int, n: int = 2, seed: int = 0):
    return np.random.default_rng(seed).uniform(-2.0, 3.0, (t, n))


@pytest.fixture(scope="session")
def joint_situation():
    """Makes situations of a team with pairs of variables after some evaluations, with totals."""

    def make(X, totals, pending=(), seed=0, initial=4, low=-2.0, high=3.0, factors=None) -> JointSituation:
        points = np.asarray(X, dtype=float)
        n = points.shape[1]
        scopes = {f"f{i}": [f"x{2 * i}", f"x{2 * i + 1}"] for i in range(n // 2)} or {"f0": ["x0"]}
        owners = {factor: f"agent_{i}" for i, factor in enumerate(scopes)}
        parts = np.full((len(points), len(scopes)), np.nan) if factors is None else np.asarray(factors, dtype=float)
        history = Dataset(points, np.asarray(totals, dtype=float), parts)
        domain = Domain(np.full(n, low), np.full(n, high))
        out, rounds = np.asarray(pending, dtype=float).reshape(-1, n), max(len(points) - initial, 0) + 1
        graph = FactorGraph.from_scopes(scopes, owners)
        return JointSituation(graph, domain, history, out, "total", None, rounds, None, seed, initial=initial)

    return make
