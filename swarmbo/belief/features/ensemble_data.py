"""What was evaluated, as an ensemble takes it."""

from collections.abc import Sequence

import numpy as np

from swarmbo.belief.gp.observations import Observations
from swarmbo.data import Dataset
from swarmbo.spaces import Domain


def of_part(data: Dataset, domain: Domain, factors: Sequence[int], *, coupled: bool) -> Observations:
    """What was observed of some factors, told by their place among these; totals only where they tie all."""
    totals = data.totals if coupled else np.full(len(data), np.nan)
    own, variance = list(factors), data.known_noise**2
    noise = variance[:, [0, *(1 + i for i in own)]]
    return Observations.of(domain.to_unit(data.X), totals, data.factors[:, own], noise)
