"""Situations of a team with a factor graph, for acquisitions to work on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

OVERLAPPING = {"f": ["a", "b"], "g": ["b", "c"], "h": ["d"], "i": ["c", "d", "e"]}
SituationFactory = Callable[..., JointSituation]


def make_situation(
    scopes: Mapping[str, Sequence[str]] = OVERLAPPING,
    *,
    t: int = 12,
    outcomes: str = "total",
    seed: int = 0,
    pending: int = 0,
    noise: float = 0.05,
    **more: Any,
) -> JointSituation:
    """A history of random points of a sum of waves, one per factor, on a box of unequal sides."""
    graph = FactorGraph.from_scopes(scopes)
    n, k = len(graph.variables), len(graph.factors)
    domain = Domain(np.full(n, -1.0), np.linspace(1.0, 3.0, n))
    rng = np.random.default_rng(seed)
    X = domain.from_unit(rng.random((t, n)))
    place = {variable: index for index, variable in enumerate(graph.variables)}
    parts = np.empty((t, k))
    for i, factor in enumerate(graph.factors):
        own = domain.to_unit(X)[:, [place[v] for v in graph.scope(factor)]]
        parts[:, i] = 10.0 * np.sin(3.0 * own @ (1.0 + np.arange(own.shape[1])) + i) + noise * rng.standard_normal(t)
    told = parts if outcomes == "per-factor" else np.full((t, k), np.nan)
    settings: dict[str, Any] = {"links": None, "round": 3, "horizon": None, "seed": seed, **more}
    return JointSituation(
        graph=graph,
        domain=domain,
        history=Dataset(X, parts.sum(axis=1), told),
        pending=domain.from_unit(rng.random((pending, n))),
        outcomes=outcomes,  # pyright: ignore[reportArgumentType]
        **settings,
    )


@pytest.fixture(scope="session")
def situation_of() -> SituationFactory:
    """Makes a situation: ``situation_of(scopes, t=…, outcomes=…, seed=…, pending=…)``."""
    return make_situation
