"""Totals of all rounds: traffic to agree and to share measurements, costs, ways, and how often agents declined."""

import math
from collections.abc import Callable, Sequence

from msgspec import UNSET

from swarmbo.records import LinkReport, RoundRecord, Traffic


def agreement_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of agreeing on where to measure, over all rounds."""
    return sum((record.report.traffic for record in records if record.report is not None), Traffic())


def sharing_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of passing every measurement to the other agents, over all rounds."""
    return sum((record.sharing for record in records), Traffic())


def links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links in a round's agreement; None where none has faults and nobody has a deadline."""
    links = UNSET if record.report is None else record.report.links
    return links if isinstance(links, LinkReport) else None


def sharing_links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links while agents told one another what they measured in a round; None where none has faults."""
    return record.sharing_links if isinstance(record.sharing_links, LinkReport) else None


def links_over_rounds(
    records: Sequence[RoundRecord], of: Callable[[RoundRecord], LinkReport | None] = links_of
) -> LinkReport | None:
    """The same over all rounds: counts are added up, and agents named that fared so in any of them.

    Args:
        records: The rounds.
        of: Of what: agreements, or with ``sharing_links_of`` sharing.
    """
    reports = [report for record in records if (report := of(record)) is not None]
    return sum(reports, LinkReport(ticks=0)) if reports else None


def total_cost(records: Sequence[RoundRecord]) -> float:
    """Costs of all agents over all rounds, in the unit of the outcome."""
    return math.fsum(sample.cost for record in records for sample in record.samples)


def declined(records: Sequence[RoundRecord]) -> int:
    """Number of times that an agent declined to measure."""
    return sum(sample.declined for record in records for sample in record.samples)


def distance_travelled(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Distance of each agent over all rounds, in the unit of the locations; as the world reports it."""
    distance: dict[str, float] = {}
    for record in records:
        for sample in record.samples:
            distance[sample.agent] = distance.get(sample.agent, 0.0) + sample.distance
    return distance
