"""Traffic over the links, and losses."""

import math
from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple


class Traffic(msgspec.Struct, frozen=True):
    """Traffic over the links.

    Args:
        messages: Messages from one agent to another; those of an agent to itself are free.
        bytes: Their encoded size, counted once per message.
        transmissions: Radio transmissions: a message relayed over h links counts h times.
    """

    messages: int = 0
    bytes: int = 0
    transmissions: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.messages + other.messages, self.bytes + other.bytes, self.transmissions + other.transmissions
        )


class EdgeTraffic(msgspec.Struct, frozen=True):
    """Messages of one agent to another: numbers sent, arrived (with copies) and lost, bytes, and total steps to
    arrival.
    """

    messages: int = 0
    bytes: int = 0
    arrived: int = 0
    lost: int = 0
    steps: int = 0

    def __add__(self, other: "EdgeTraffic") -> "EdgeTraffic":
        return EdgeTraffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def age(self) -> float:
        """Mean steps from sending to arrival; NaN without arrivals."""
        return self.steps / self.arrived if self.arrived else math.nan


def by_name(edges: Mapping[tuple[str, str], EdgeTraffic]) -> dict[str, EdgeTraffic]:
    """Traffic by edge as in ``LinkReport``."""
    return {f"{sender}>{recipient}": edge for (sender, recipient), edge in edges.items()}


class LinkReport(msgspec.Struct, frozen=True):
    """Report of links over a transport with faults, or in an agreement by a deadline.

    Args:
        ticks: Steps of the clock, in each of which a message crosses one link or more.
        repeated: Bytes of repetitions and acknowledgements.
        silent: Agents that were failed or silent at the end.
        without: Agents without a choice: they stay, or abstain.
        clashes: Pairs of variables with choices that forbid each other.
        edges: Traffic by edge, as ``"a>b"``.
        refused: Number of messages dropped for inadmissible content, by sender; left out if there are none.
    """

    ticks: int
    repeated: int = 0
    silent: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clashes: int = 0
    edges: dict[str, EdgeTraffic] = {}
    refused: dict[str, int] | UnsetType = UNSET

    def __add__(self, other: "LinkReport") -> "LinkReport":
        """Add counts, and join lists of agents."""
        edges = dict(self.edges)
        for edge, traffic in other.edges.items():
            edges[edge] = edges.get(edge, EdgeTraffic()) + traffic
        return LinkReport(
            ticks=self.ticks + other.ticks,
            repeated=self.repeated + other.repeated,
            silent=tuple(sorted({*self.silent, *other.silent})),
            without=tuple(sorted({*self.without, *other.without})),
            clashes=self.clashes + other.clashes,
            edges=edges,
            refused=dict(refused) if (refused := self.dropped + other.dropped) else UNSET,
        )

    @property
    def dropped(self) -> Counter[str]:
        """Number of messages with inadmissible content, by sender."""
        return Counter() if isinstance(self.refused, UnsetType) else Counter(self.refused)

    @property
    def total(self) -> EdgeTraffic:
        """Sum over all edges."""
        return sum(self.edges.values(), EdgeTraffic())


class NetworkRecord(msgspec.Struct, frozen=True):
    """Effort of a fleet's network in a round over all members; it depends on the clock, so it is not in the log.

    Args:
        round: Number of the round.
        restarts: Number of restarted processes, by agent.
        repeated: Letters repeated without a receipt.
        refused: Parcels that were no letters, or letters without a right to be sent.
        absent: Agents that were absent at its end.
    """

    round: int
    restarts: dict[str, int] = {}
    repeated: int = 0
    refused: int = 0
    absent: tuple[str, ...] = ()
