"""Messages between agents in one process: delivered at the next synchronous step, and counted."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from swarmbo.records import EdgeTraffic, Traffic
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Settings
from swarmbo.transport.routes import Routes

if TYPE_CHECKING:
    import networkx as nx


class Envelope(NamedTuple):
    """One message under way: sender, recipient, and encoded content."""

    sender: str
    recipient: str
    payload: bytes


@runtime_checkable
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
        as_agents: True to run a team's agents as separate objects that exchange encoded messages. By default a team
            takes the single-process fast path, with the same decisions and the same counts of traffic.

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
            links: Radio graph; None: every agent reaches every other. A message between agents without a link is
                relayed along a shortest path.
            seed: Seed of transports with faults; not used here.
            round: Round, for transports that depend on it.

        Returns:
            A transport without messages under way, and with zero counts.
        """
        return InProcessTransport(Routes(agents, links))


class InProcessTransport:
    """Transport of :meth:`InProcess.open`, which carries opaque bytes; ``traffic`` is that over links."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.traffic = Traffic()
        self._edges: dict[tuple[str, str], list[int]] = {}
        self._place = {agent: place for place, agent in enumerate(routes.agents)}
        self._under_way: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        """Accept a message; :meth:`deliver` returns it at the next step."""
        self._count(envelope, self.routes.hops(envelope.sender, envelope.recipient))
        self._under_way.append(envelope)

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and return its messages by recipient, ordered by sender and then by order of sending."""
        place = self._place
        inboxes: dict[str, list[Envelope]] = {agent: [] for agent in self.routes.agents}
        for envelope in sorted(self._under_way, key=lambda envelope: place[envelope.sender]):  # sorted() is stable
            inboxes[envelope.recipient].append(envelope)
            self._note_arrival(envelope, 1)
        self._under_way = []
        return {agent: inbox for agent, inbox in inboxes.items() if inbox}

    @property
    def edges(self) -> dict[tuple[str, str], EdgeTraffic]:
        """Traffic from each sender to each recipient, with arrivals and losses."""
        return {edge: EdgeTraffic(*numbers) for edge, numbers in self._edges.items()}

    def _count(self, envelope: Envelope, hops: int) -> None:
        """Count a message, unless it is to its own sender and crosses no link."""
        n_bytes = len(envelope.payload)
        if hops:
            self.traffic += Traffic(messages=1, bytes=n_bytes, transmissions=hops)
            edge = self._edge(envelope)
            edge[0] += 1
            edge[1] += n_bytes

    def _note_arrival(self, envelope: Envelope, steps: int) -> None:
        if envelope.sender != envelope.recipient:
            edge = self._edge(envelope)
            edge[2] += 1
            edge[4] += steps

    def _note_lost(self, envelope: Envelope) -> None:
        self._edge(envelope)[3] += 1

    def _edge(self, envelope: Envelope) -> list[int]:
        """Counts of an edge, in the order of ``EdgeTraffic``."""
        return self._edges.setdefault((envelope.sender, envelope.recipient), [0] * 5)
