"""What push-sum moves between agents: a share of an agent's weight, of its information, and a tally of whose it is."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float


@dataclass
class Mass:
    """A vector of information with its weight, and how many readings of which agent are in it.

    All parts move together and linearly, so the tally says of whose readings the vector is made, in which shares.

    Args:
        vector: Weight of the agents, then the packed information (1 + q,).
        tally: Readings by agent; fractions of them where mass is under way.
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
        return Mass(factor * self.vector, {agent: factor * count for agent, count in self.tally.items()})

    def _plus(self, other: "Mass", factor: float) -> "Mass":
        agents = dict.fromkeys([*self.tally, *other.tally])
        tally = {agent: self.tally.get(agent, 0.0) + factor * other.tally.get(agent, 0.0) for agent in agents}
        return Mass(self.vector + factor * other.vector, tally)
