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
    """Decision of a team for its next evaluation.

    Args:
        point: Joint point (n,), physical; NaN for variables of agents without a part.
        report: Report of the agreement.
        mean: Expected sum of all factors; None in a field, and without a belief.
        std: Standard deviation of the sum.
        means: Expected measurement of each agent in a field.
        stds: Standard deviations of these.
        chosen: True if a method chose it, False in the initial design.
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
