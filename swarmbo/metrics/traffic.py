"""Traffic: what crossed the links to agree, and to share measurements."""

from collections.abc import Callable, Sequence

from msgspec import UNSET

from swarmbo.records import EdgeTraffic, LinkReport, RoundRecord, Traffic


def agreement_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """What it took to agree on where to measure, over all rounds."""
    return sum((record.report.traffic for record in records if record.report is not None), Traffic())


def sharing_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """What it took to pass every measurement to the other agents, over all rounds."""
    return sum((record.sharing for record in records), Traffic())


def links_of(record: RoundRecord) -> LinkReport | None:
    """How links fared in a round's agreement; None where none has faults and nobody has a deadline."""
    links = UNSET if record.report is None else record.report.links
    return links if isinstance(links, LinkReport) else None


def sharing_links_of(record: RoundRecord) -> LinkReport | None:
    """How links fared while agents told one another what they measured in a round; None where none has faults."""
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
    if not reports:
        return None
    edges: dict[str, EdgeTraffic] = {}
    for report in reports:
        for edge, traffic in report.edges.items():
            edges[edge] = edges.get(edge, EdgeTraffic()) + traffic
    return LinkReport(
        ticks=sum(report.ticks for report in reports),
        repeated=sum(report.repeated for report in reports),
        silent=tuple(sorted({agent for report in reports for agent in report.silent})),
        without=tuple(sorted({agent for report in reports for agent in report.without})),
        clashes=sum(report.clashes for report in reports),
        edges=edges,
    )
