"""Shortest paths over the radio links between agents, and a transport along them within one process."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from swarmbo.boundary.values import check_links
from swarmbo.errors import TransportError
from swarmbo.records import EdgeTraffic, Traffic
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Settings

if TYPE_CHECKING:
    import networkx as nx

_BASE = ""  # on a path: no agent has this name


class Routes:
    """Shortest paths between agents, and the number of their links.

    Args:
        agents: Names of the agents, each once.
        links: Radio graph; None: every agent reaches every other. Nodes that are not agents only relay.
        has_base: True if agents without a path reach each other over a base station: two transmissions, up and down.

    Raises:
        ConfigError: If links are not an undirected graph.

    Example:
        >>> import networkx as nx
        >>> routes = Routes(["a", "b", "c"], nx.Graph([("a", "b"), ("b", "c")]))
        >>> routes.hops("a", "c"), routes.path("a", "c")
        (2, ('a', 'b', 'c'))
    """

    def __init__(self, agents: Iterable[str], links: "nx.Graph[Any] | None" = None, *, has_base: bool = False) -> None:
        check_links(links)
        self._has_base, self._links = has_base, links
        self._adjacency = None if links is None else _Adjacency(links)
        self.agents = tuple(dict.fromkeys(agents))
        self._agent_set = frozenset(self.agents)
        self._next_hops: dict[str, dict[str, str | None]] = {}
        self._hops_from: dict[str, dict[str, int]] = {}

    @property
    def is_complete(self) -> bool:
        """True if every agent reaches every other directly."""
        return self._adjacency is None

    def hops(self, sender: str, recipient: str) -> int:
        """Number of links on a shortest path from sender to recipient; 0 to itself.

        Raises:
            TransportError: If either is unknown, or no path joins them.
        """
        return len(self.path(sender, recipient)) - 1

    def hops_from(self, sender: str) -> Mapping[str, int]:
        """Number of links on a shortest path to every agent that a sender reaches by links; 0 for itself.

        Raises:
            TransportError: If the sender is unknown.
        """
        self._require_known(sender)
        if self._adjacency is None:
            return dict.fromkeys(self.agents, 1) | {sender: 0}
        if sender not in self._hops_from:
            hops: dict[Any, int] = {}
            for node, next_hop in self._adjacency.next_hops(sender).items():  # links lead both ways
                hops[node] = 0 if next_hop is None else hops[next_hop] + 1
            self._hops_from[sender] = {agent: hops[agent] for agent in self.agents if agent in hops}
        return self._hops_from[sender]

    def path(self, sender: str, recipient: str) -> tuple[str, ...]:
        """Shortest path, both ends included; the same for equal agents and links.

        Raises:
            TransportError: If either is unknown, or no path joins them.
        """
        self._require_known(sender)
        self._require_known(recipient)
        if sender == recipient:
            return (sender,)
        if self._adjacency is None or self._adjacency.has_link(sender, recipient):
            return (sender, recipient)
        if recipient not in self._next_hops:
            self._next_hops[recipient] = self._adjacency.next_hops(recipient)
        next_hop = self._next_hops[recipient]
        if sender not in next_hop and self._has_base:
            return (sender, _BASE, recipient)
        if sender not in next_hop:
            got = f"no path of links from {sender!r} to {recipient!r}: they are in separate parts of the radio graph"
            raise TransportError(f"{got}. Raise the radio range, or let only agents in contact share factors")
        path = [sender]
        while (node := next_hop[path[-1]]) is not None:
            path.append(node)
        return tuple(path)

    def around(self, gone: Collection[str]) -> "Routes":
        """Routes on which some nodes relay nothing."""
        links = None if self._links is None else self._links.subgraph(set(self._links) - set(gone))
        return Routes(self.agents, links, has_base=self._has_base)

    def _require_known(self, agent: str) -> None:
        if agent not in self._agent_set:
            raise TransportError(f"unknown agent {agent!r}; this transport was opened for {', '.join(self.agents[:8])}")


class _Adjacency:
    """Links as sets of node numbers, each an integer with a bit per node, which are fast in dense teams."""

    def __init__(self, links: "nx.Graph[Any]") -> None:
        # numbered by name: the routes then depend on the links only, not on the order in which they were added
        self._nodes: list[Any] = sorted(links, key=lambda node: (type(node).__name__, node))
        self._number = {node: n for n, node in enumerate(self._nodes)}
        bits = {node: 1 << number for node, number in self._number.items()}
        self._neighbours = [sum(map(bits.__getitem__, links[node])) for node in self._nodes]

    def has_link(self, node: Any, other: Any) -> bool:
        """True if one link joins two nodes."""
        here, there = self._number.get(node), self._number.get(other)
        return here is not None and there is not None and bool(self._neighbours[here] >> there & 1)

    def next_hops(self, start: Any) -> dict[Any, Any]:
        """Next node towards ``start``, for every node that reaches it; nearer nodes first."""
        previous: dict[Any, Any] = {start: None}
        if start not in self._number:
            return previous
        frontier = [self._number[start]]
        unreached = ((1 << len(self._nodes)) - 1) & ~(1 << frontier[0])
        for number in frontier:
            new, node = self._neighbours[number] & unreached, self._nodes[number]
            unreached &= ~new
            while new:  # beginning with the lowest bit
                other = (new & -new).bit_length() - 1
                new ^= 1 << other
                previous[self._nodes[other]] = node
                frontier.append(other)
        return previous


class Envelope(NamedTuple):
    """One message in transit: sender, recipient and encoded content."""

    sender: str
    recipient: str
    payload: bytes


class Transport(Protocol):
    """Contract of a transport of agents' messages, such as :class:`swarmbo.transport.InProcessTransport`."""

    @property
    def routes(self) -> Routes:
        """Shortest paths between agents."""
        ...

    @property
    def traffic(self) -> Traffic:
        """Traffic so far."""
        ...

    def send(self, envelope: Envelope) -> None:
        """Accept a message."""
        ...

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and return its arrivals by recipient."""
        ...


@kind("transport", FIELD, FUNCTION)
class InProcess(Settings, frozen=True, tag_field="kind", tag="in-process"):
    """A faultless transport inside one process.

    Args:
        as_agents: True: agents of a team are separate objects that exchange encoded messages. False: the team computes
            what these agents would compute, but faster. Decisions and counts of traffic are the same.

    Example:
        >>> transport = InProcess().open(["a", "b"])
        >>> transport.send(Envelope("a", "b", b"hello"))
        >>> [envelope.payload for envelope in transport.deliver()["b"]]
        [b'hello']
        >>> transport.traffic
        Traffic(messages=1, bytes=5, transmissions=1)
    """

    as_agents: bool = False

    def open(
        self, agents: Iterable[str], links: "nx.Graph[Any] | None" = None, *, seed: int | None = None, round: int = 0
    ) -> "InProcessTransport":
        """Connect agents.

        Args:
            agents: Names of the agents.
            links: Radio graph; None: every agent reaches every other. Messages between agents without a link are
                relayed along a shortest path.
            seed: Seed for transports with faults; not used here.
            round: Round, for transports with a schedule of faults; not used here.

        Returns:
            A transport without messages in transit, with counts of zero.
        """
        return InProcessTransport(Routes(agents, links))


class InProcessTransport:
    """Transport of :meth:`InProcess.open`, which carries opaque bytes; ``traffic`` counts messages over links."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.traffic = Traffic()
        self._edges = defaultdict[tuple[str, str], Counter[str]](Counter[str])  # as in ``EdgeTraffic``
        self._index = {agent: place for place, agent in enumerate(routes.agents)}
        self._in_transit: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        """Accept a message; :meth:`deliver` returns it at the next step."""
        self._count(envelope, self.routes.hops(envelope.sender, envelope.recipient))
        self._in_transit.append(envelope)

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and return its messages by recipient, ordered by sender and then by order of sending."""
        inboxes: dict[str, list[Envelope]] = {agent: [] for agent in self.routes.agents}
        for envelope in sorted(self._in_transit, key=lambda sent: self._index[sent.sender]):  # sorted() is stable
            inboxes[envelope.recipient].append(envelope)
            self._note_arrival(envelope, 1)
        self._in_transit = []
        return {agent: inbox for agent, inbox in inboxes.items() if inbox}

    @property
    def edges(self) -> dict[tuple[str, str], EdgeTraffic]:
        """Traffic from each sender to each recipient, with arrivals and losses."""
        return {edge: EdgeTraffic(**counts) for edge, counts in self._edges.items()}

    def _count(self, envelope: Envelope, hops: int) -> None:
        """Count a message, unless it goes to its own sender and crosses no link."""
        n_bytes = len(envelope.payload)
        if hops:
            self.traffic += Traffic(messages=1, bytes=n_bytes, transmissions=hops)
            edge = self._edges[envelope.sender, envelope.recipient]
            edge["messages"] += 1
            edge["bytes"] += n_bytes

    def _note_arrival(self, envelope: Envelope, steps: int) -> None:
        if envelope.sender != envelope.recipient:
            edge = self._edges[envelope.sender, envelope.recipient]
            edge["arrived"] += 1
            edge["steps"] += steps
