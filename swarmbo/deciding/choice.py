"""What a team decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from swarmbo.problem import Problem
from swarmbo.records import Query, SolveReport

MOST_QUERIES = 10_000  # of one call


@dataclass(frozen=True, eq=False)
class Choice:
    """What a team decided to evaluate.

    Args:
        point: The joint point (n,), physical; NaN for variables of agents that take no part.
        report: How the agents agreed on it.
        mean: What the sum of all factors is expected to be there; None in a field, and where nothing was believed.
        std: Its standard deviation.
        means: What each agent in a field is expected to measure.
        stds: The standard deviations of these.
        chosen: Whether a method chose it; if not, it belongs to the initial design.
    """

    point: Float[np.ndarray, " n"]
    report: SolveReport
    mean: float | None = None
    std: float | None = None
    means: Mapping[str, float] = field(default_factory=dict[str, float])
    stds: Mapping[str, float] = field(default_factory=dict[str, float])
    chosen: bool = True

    def query(self, query_id: str, problem: Problem) -> Query:
        """The same as a team asks for it."""
        point, points = problem.named(self.point), problem.by_agent(self.point)
        return Query(query_id, point, points, self.mean, self.std, dict(self.means), dict(self.stds))
