"""What measuring cost, and how often agents declined."""

import math
from collections.abc import Sequence

from swarmbo.records import RoundRecord


def total_cost(records: Sequence[RoundRecord]) -> float:
    """Costs of all agents over all rounds, in the unit of the outcome."""
    return math.fsum(sample.cost for record in records for sample in record.samples)


def declined(records: Sequence[RoundRecord]) -> int:
    """How often an agent declined to measure."""
    return sum(sample.declined for record in records for sample in record.samples)
