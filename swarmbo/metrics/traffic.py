"""Traffic: what crossed the links to agree, and to share measurements."""

from collections.abc import Sequence

from swarmbo.records import RoundRecord, Traffic


def agreement_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """What it took to agree on where to measure, over all rounds."""
    return sum((record.report.traffic for record in records if record.report is not None), Traffic())


def sharing_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """What it took to pass every measurement to the other agents, over all rounds."""
    return sum((record.sharing for record in records), Traffic())
