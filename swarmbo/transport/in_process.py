"""Messages between agents that live in one process: delivered at the next synchronous step, and counted."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from swarmbo.records import Traffic
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Settings
from swarmbo.transport.routes import Routes

if TYPE_CHECKING:
    import networkx as nx


class Envelope(NamedTuple):
    """One message under way: who sends it to whom, and its encoded content."""

    sender: str
    recipient: str
    payload: bytes


@kind("transport", FIELD, FUNCTION)
class InProcess(Settings, frozen=True, tag_field="kind", tag="in-process"):
    """A faultless transport inside one process.

    Args:
        as_agents: Whether a team runs its agents as objects of their own, which exchange encoded messages; by default
            it takes the single-process fast path, with the same decisions and the same counts of traffic.

    Example:
        >>> transport = InProcess().open(["a", "b"])
        >>> transport.send(Envelope("a", "b", b"hello"))
        >>> [envelope.payload for envelope in transport.deliver()["b"]]
        [b'hello']
        >>> transport.traffic
        Traffic(messages=1, bytes=5, transmissions=1)
    """

    as_agents: bool = False

    def open(self, agents: Iterable[str], links: "nx.Graph[Any] | None" = None) -> "InProcessTransport":
        """Connect agents.

        Args:
            agents: Their names.
            links: The radio graph; None: everyone hears everyone. A message between agents that do not hear each other
                is relayed along a shortest path.

        Returns:
            A transport with nothing under way and nothing counted.
        """
        return InProcessTransport(Routes(agents, links))


class InProcessTransport:
    """What :meth:`InProcess.open` returns. It moves bytes and knows nothing of what they mean.

    Args:
        routes: Who reaches whom.
    """

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.traffic = Traffic()
        self._under_way: list[Envelope] = []

    def send(self, envelope: Envelope) -> None:
        """Take a message; :meth:`deliver` hands it over at the next step.

        Raises:
            TransportError: If sender or recipient is unknown, or no path of links joins them.
        """
        hops = self.routes.hops(envelope.sender, envelope.recipient)
        if hops:  # a note to oneself crosses no link
            self.traffic += Traffic(messages=1, bytes=len(envelope.payload), transmissions=hops)
        self._under_way.append(envelope)

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step: everything sent in it, by recipient, ordered by sender and then by order of sending."""
        place = {agent: place for place, agent in enumerate(self.routes.agents)}
        inboxes: dict[str, list[Envelope]] = {agent: [] for agent in self.routes.agents}
        for envelope in sorted(self._under_way, key=lambda envelope: place[envelope.sender]):  # sorted() is stable
            inboxes[envelope.recipient].append(envelope)
        self._under_way = []
        return {agent: inbox for agent, inbox in inboxes.items() if inbox}
