"""Travel: how far the agents went."""

from collections.abc import Sequence

from swarmbo.records import RoundRecord


def distance_travelled(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Distance of each agent over all rounds, in the unit of the locations; as the world reports it."""
    distance: dict[str, float] = {}
    for record in records:
        for sample in record.samples:
            distance[sample.agent] = distance.get(sample.agent, 0.0) + sample.distance
    return distance
