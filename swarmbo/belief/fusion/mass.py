"""What push-sum moves between agents: a share of weight, of information, and a tally of the readings in it."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float


@dataclass
class Mass:
    """A vector of information with its weight, and which readings are in it.

    All parts move together and linearly, so the tally says of which readings the vector is made, in which shares.

    Args:
        vector: Weight of the agents, then the packed information (1 + q,).
        tally: Share of each batch of readings by its name; 1 is all of it.
    """

    vector: Float[np.ndarray, " _"]
    tally: dict[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def none(cls, size: int) -> "Mass":
        """No mass; ``size`` is the length of the vector."""
        return cls(np.zeros(size))

    def __add__(self, other: "Mass") -> "Mass":
        return self._plus(other, 1.0)

    def __sub__(self, other: "Mass") -> "Mass":
        return self._plus(other, -1.0)

    def scaled(self, factor: float) -> "Mass":
        """A multiple of it."""
        return Mass(factor * self.vector, {batch: factor * share for batch, share in self.tally.items()})

    def _plus(self, other: "Mass", factor: float) -> "Mass":
        batches = dict.fromkeys([*self.tally, *other.tally])
        tally = {batch: self.tally.get(batch, 0.0) + factor * other.tally.get(batch, 0.0) for batch in batches}
        return Mass(self.vector + factor * other.vector, tally)
