"""Situations of a team with a factor graph, for acquisitions to work on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain
from swarmbo_envs.functions import AdditiveFunction

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
    factor_outcomes = parts if outcomes == "per-factor" else np.full((t, k), np.nan)
    settings: dict[str, Any] = {"links": None, "round": 3, "horizon": None, "seed": seed, **more}
    return JointSituation(
        graph=graph,
        domain=domain,
        history=Dataset(X, parts.sum(axis=1), factor_outcomes),
        pending=domain.from_unit(rng.random((pending, n))),
        outcomes=outcomes,  # pyright: ignore[reportArgumentType]
        **settings,
    )


def play(team: sb.Team, outcome: Callable[[dict[str, float]], Any], rounds: int) -> list[dict[str, float]]:
    """Points that a team asks for; the outcome of each is told before the next ask."""
    points: list[dict[str, float]] = []
    for _ in range(rounds):
        query = team.ask()
        team.tell(query, outcome(query.point))
        points.append(query.point)
    return points


def team_on(function: AdditiveFunction, scopes: Mapping[str, Sequence[str]], **settings: Any) -> sb.Team:
    """A team that maximises a function of the literature."""
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, function.low, function.high, strict=True)}
    return sb.Team(FactorGraph.from_scopes(scopes), bounds, **settings)


def value_at(function: AdditiveFunction, point: Mapping[str, float]) -> float:
    """Value of a function of the literature."""
    return float(function.value(np.array([[point[v] for v in function.variables]]))[0])


def moments(model: Model, U: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of every factor, by the belief's own method for single factors."""
    graph, X = model.belief.graph, model.belief.domain.from_unit(U)
    place = {variable: i for i, variable in enumerate(graph.variables)}
    return {f: model.belief.factor_posterior(f, X[:, [place[v] for v in graph.scope(f)]]) for f in graph.factors}


@pytest.fixture(scope="session")
def situation_of() -> SituationFactory:
    """Makes a situation: ``situation_of(scopes, t=…, outcomes=…, seed=…, pending=…)``."""
    return make_situation
