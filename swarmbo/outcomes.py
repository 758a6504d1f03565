"""What a user may tell of an evaluation, as numbers."""

from collections.abc import Mapping
from typing import SupportsFloat

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.model import OutcomeMode
from swarmbo.checks import LARGEST_OUTCOME, real_array, short, table, told_number
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph

Outcome = SupportsFloat | None | Mapping[str, SupportsFloat | None]


def numbers_of(outcome: Outcome, graph: FactorGraph, outcomes: OutcomeMode) -> tuple[float | None, dict[str, float]]:
    """The total, or the outcomes of factors: none of them if the evaluation failed as a whole.

    Args:
        outcome: A total, or a table of factors. None, NaN, infinite or beyond 1e60 becomes NaN: it failed.
        graph: Whose factors.
        outcomes: What the team observes.

    Raises:
        ConfigError: If a total is told to a team that observes factors, of which there are several.
        ShapeError: If an outcome is no number.
    """
    if isinstance(outcome, Mapping):
        told = table(outcome, "{factor: outcome}", "$.outcome")
        return None, {factor: told_number(value, repr(factor)) for factor, value in told.items()}
    number = told_number(outcome, "the evaluation")
    if outcomes == "total":
        return number, {}
    if np.isnan(number):
        return None, {}
    if len(graph.factors) > 1:
        raise ConfigError(
            f"got the total {number}; this team observes factors: wanted a table {{factor: outcome}}. With "
            "outcomes = 'total' a team learns from both",
            at="$.outcome",
        )
    return None, dict.fromkeys(graph.factors, number)


def evaluations_of(
    points: ArrayLike, outcomes: ArrayLike, graph: FactorGraph, observed: OutcomeMode
) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"], Float[np.ndarray, "t k"]]:
    """Points, totals and outcomes by factor of evaluations; NaN for what failed or was not told.

    Args:
        points: Joint points (t, n), physical.
        outcomes: Totals (t,), or outcomes by factor (t, k). What is not finite, or beyond 1e60, failed.
        graph: Whose variables and factors.
        observed: What the team observes.

    Raises:
        ShapeError: If shapes do not fit.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x"], "g": ["y"]})
        >>> evaluations_of([[0.1, 0.2]], [1.5], graph, "total")
        (array([[0.1, 0.2]]), array([1.5]), array([[nan, nan]]))
    """
    X, y = real_array(points), real_array(outcomes)
    if X is None or y is None:
        raise ShapeError(
            f"got {short(points if X is None else outcomes)}; wanted arrays of numbers, NaN where it failed"
        )
    X = np.atleast_2d(X)
    n, k = len(graph.variables), len(graph.factors)
    if X.shape != (len(X), n) or y.shape not in ((len(X),), (len(X), k)):
        raise ShapeError(f"got points {X.shape} and outcomes {y.shape}; wanted (t, {n}) and (t,) or (t, {k})")
    y = np.where(np.abs(y) < LARGEST_OUTCOME, y, np.nan)
    if y.ndim == 1 and observed == "per-factor":
        if k > 1:
            raise ShapeError(f"got totals; this team observes factors: wanted outcomes ({len(X)}, {k})")
        y = y[:, None]  # the total is the outcome of the only factor
    unknown = np.full(len(X), np.nan)
    return (X, y, np.full((len(X), k), np.nan)) if y.ndim == 1 else (X, unknown, y)
