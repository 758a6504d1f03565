"""Traffic over the links, and how they fared."""

import math
from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple


class Traffic(msgspec.Struct, frozen=True):
    """Traffic over the links.

    Args:
        messages: Messages sent from one agent to another (an agent's notes to itself are free).
        bytes: Their encoded size, counted once a message.
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
    """Messages of one agent to another, and what became of them.

    Args:
        messages: How many were sent.
        bytes: Their size.
        arrived: How many came, copies included.
        lost: How many never came.
        steps: From sending to arrival, of all that came, added up.
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
        """Steps from sending to arrival, in the mean; NaN if nothing came."""
        return self.steps / self.arrived if self.arrived else math.nan


def by_name(edges: Mapping[tuple[str, str], EdgeTraffic]) -> dict[str, EdgeTraffic]:
    """From whom to whom what was sent, as ``LinkReport`` has it."""
    return {f"{sender}>{recipient}": edge for (sender, recipient), edge in edges.items()}


class LinkReport(msgspec.Struct, frozen=True):
    """Report of links while agents talked over a transport with faults, or agreed until a deadline.

    Args:
        ticks: Steps of the clock that it took, in each of which a message crosses one link or more.
        repeated: Bytes that were sent because others did not arrive in time, acknowledgements included.
        silent: Agents that were gone or unheard of when it ended.
        without: Agents that came out with no choice: they stay where they are, or decline.
        clashes: Pairs of variables whose choices forbid each other.
        edges: From whom to whom, as ``"a>b"``: what was sent.
        refused: Messages that arrived as they were sent, held what they may not, and were dropped: how many, by sender;
            left out where there were none.
    """

    ticks: int
    repeated: int = 0
    silent: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clashes: int = 0
    edges: dict[str, EdgeTraffic] = {}
    refused: dict[str, int] | UnsetType = UNSET

    def __add__(self, other: "LinkReport") -> "LinkReport":
        """Counts are added up, and agents named that fared so in either."""
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
        """Messages that held what they may not, by sender."""
        return Counter() if isinstance(self.refused, UnsetType) else Counter(self.refused)

    @property
    def total(self) -> EdgeTraffic:
        """Of all edges."""
        return sum(self.edges.values(), EdgeTraffic())


class NetworkRecord(msgspec.Struct, frozen=True):
    """Effort of a fleet's network in a round, all members together; it depends on the clock, so the log has none of it.

    Args:
        round: Which one.
        restarts: How often processes were started again, by agent.
        repeated: Letters that were written again, as no receipt had come.
        refused: Parcels that were no letters, or letters that nobody should have written.
        absent: Agents that were gone when it ended.
    """

    round: int
    restarts: dict[str, int] = {}
    repeated: int = 0
    refused: int = 0
    absent: tuple[str, ...] = ()
