"""What a user may tell of an evaluation, as numbers."""

from collections.abc import Mapping
from typing import SupportsFloat

import numpy as np

from swarmbo.acquisition import OutcomeMode
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph

LARGEST_OUTCOME = 1e60

Outcome = SupportsFloat | None | Mapping[str, SupportsFloat | None]


def numbers_of(outcome: Outcome, graph: FactorGraph, outcomes: OutcomeMode) -> tuple[float | None, dict[str, float]]:
    """The total, or the outcomes of factors: none of them if the evaluation failed as a whole.

    Args:
        outcome: A total, or a table of factors. None, NaN, infinite or beyond 1e60 becomes NaN: it failed.
        graph: Whose factors.
        outcomes: What the team observes.

    Raises:
        ConfigError: If a total is told to a team that observes factors, of which there are several.
    """
    if isinstance(outcome, Mapping):
        return None, {factor: _number(value) for factor, value in outcome.items()}
    number = _number(outcome)
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


def _number(outcome: SupportsFloat | None) -> float:
    number = np.nan if outcome is None else float(outcome)
    return number if abs(number) < LARGEST_OUTCOME else np.nan
