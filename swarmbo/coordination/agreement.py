"""What agents come to agree on where domains are continuous."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.records import SolveReport


@dataclass(frozen=True, eq=False)
class Agreement:
    """A joint point.

    Args:
        point: In the unit cube (n,), in the order of ``graph.variables``.
        value: Sum of all factors there.
        report: Status, rounds, residuals, traffic.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> agreement = sb.RefinedMaxSum().maximise(bowls)
        >>> dict(zip(graph.variables, agreement.point.round(3).tolist(), strict=True)), agreement.report.status
        ({'x': 0.317, 'y': 0.35, 'z': 0.383}, 'converged')
    """

    point: Float[np.ndarray, " n"]
    value: float
    report: SolveReport
