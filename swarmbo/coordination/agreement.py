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
    """

    point: Float[np.ndarray, " n"]
    value: float
    report: SolveReport
