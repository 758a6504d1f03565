"""What was evaluated, as an ensemble takes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.observations import Observations
from swarmbo.spaces import Domain


@dataclass(frozen=True, eq=False)
class Evaluations:
    """Evaluated points and their outcomes, in the order in which they were told.

    Args:
        X: Joint points (t, n), physical.
        totals: Outcomes of the sum (t,); NaN where not observed.
        factors: Outcomes by factor (t, k); NaN where not observed.
    """

    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]

    def __len__(self) -> int:
        return len(self.totals)

    def take(self, rows: slice) -> "Evaluations":
        """Some of them."""
        return Evaluations(self.X[rows], self.totals[rows], self.factors[rows])

    def then(self, other: "Evaluations") -> "Evaluations":
        """These, followed by others."""
        return Evaluations(
            np.concatenate([self.X, other.X]),
            np.concatenate([self.totals, other.totals]),
            np.concatenate([self.factors, other.factors]),
        )

    def of_part(self, domain: Domain, factors: Sequence[int], *, tied: bool) -> Observations:
        """What was observed of some factors, told by their place among these; totals only where they tie all."""
        totals = self.totals if tied else np.full(len(self), np.nan)
        return Observations.of(domain.to_unit(self.X), totals, self.factors[:, list(factors)], np.zeros(len(self)))

    def begins_with(self, other: "Evaluations") -> bool:
        """Whether these are others and what came since."""
        n = len(other)
        mine = self.take(slice(n))
        return len(mine) == n and all(
            np.array_equal(a, b, equal_nan=True)
            for a, b in ((mine.X, other.X), (mine.totals, other.totals), (mine.factors, other.factors))
        )
