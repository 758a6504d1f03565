"""Totals of all rounds: traffic of agreements and of shared measurements, costs, travel, and abstentions."""

import math
from collections.abc import Callable, Sequence

from msgspec import UNSET

from swarmbo.records import LinkReport, RoundRecord, Traffic


def agreement_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of agreements, over all rounds."""
    return sum((record.report.traffic for record in records if record.report is not None), Traffic())


def sharing_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of sending measurements to other agents, over all rounds."""
    return sum((record.sharing for record in records), Traffic())


def links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links in a round's agreement; None without faults and deadlines."""
    links = UNSET if record.report is None else record.report.links
    return links if isinstance(links, LinkReport) else None


def sharing_links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links while agents shared measurements in a round; None without faults."""
    return record.sharing_links if isinstance(record.sharing_links, LinkReport) else None


def links_over_rounds(
    records: Sequence[RoundRecord], of: Callable[[RoundRecord], LinkReport | None] = links_of
) -> LinkReport | None:
    """Report on links over all rounds: counts are added, and agents named if affected in any of them.

    ``of`` selects agreements, or sharing by ``sharing_links_of``.
    """
    reports = [report for record in records if (report := of(record)) is not None]
    return sum(reports, LinkReport(ticks=0)) if reports else None


def total_cost(records: Sequence[RoundRecord]) -> float:
    """Costs of all agents over all rounds, in the unit of the outcome."""
    return math.fsum(sample.cost for record in records for sample in record.samples)


def declined(records: Sequence[RoundRecord]) -> int:
    """Number of abstentions."""
    return sum(sample.declined for record in records for sample in record.samples)


def distance_travelled(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Distance of each agent over all rounds, in the unit of the locations, by the world's reports."""
    distance: dict[str, float] = {}
    for record in records:
        for sample in record.samples:
            distance[sample.agent] = distance.get(sample.agent, 0.0) + sample.distance
    return distance
