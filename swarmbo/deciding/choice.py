"""Decision of a team."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from swarmbo.problem import Problem
from swarmbo.records import Query, SolveReport

MOST_QUERIES = 10_000  # of one call


@dataclass(frozen=True, eq=False)
class Choice:
    """Decision of a team for its next evaluation, with expectations: of the sum, or of each agent's measurement.

    ``point`` (n,) is physical, NaN for variables of agents without a part. ``chosen`` is False in the initial design.
    """

    point: Float[np.ndarray, " n"]
    report: SolveReport
    mean: float | None = None
    std: float | None = None
    means: Mapping[str, float] = field(default_factory=dict[str, float])
    stds: Mapping[str, float] = field(default_factory=dict[str, float])
    chosen: bool = True

    def query(self, query_id: str, problem: Problem) -> Query:
        """Query of the decision."""
        point, points = problem.named(self.point), problem.by_agent(self.point)
        return Query(query_id, point, points, self.mean, self.std, dict(self.means), dict(self.stds))
