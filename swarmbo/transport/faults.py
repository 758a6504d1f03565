"""A transport that loses messages: at random on every link and direction, and all that would cross a cut."""

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from swarmbo.rng import stream
from swarmbo.settings import Settings, Share, Whole
from swarmbo.transport.in_process import Envelope, InProcessTransport
from swarmbo.transport.routes import Routes

if TYPE_CHECKING:
    import networkx as nx


class Faults(Settings, frozen=True, tag_field="kind", tag="faults"):
    """A transport inside one process that loses messages. Senders are not told.

    Args:
        loss: Share, from 0 to below 1, of the messages that a link loses; each direction on its own, and a relayed
            message has to survive every link on its way.
        seed: Of what is lost, >= 0. Each link and direction draws from a stream of its own, one number for
            each message that gets so far, so what a link loses does not depend on what others carry.

    Example:
        >>> transport = Faults(loss=0.5).open(["a", "b"])
        >>> for n in range(100):
        ...     transport.send(Envelope("a", "b", b"hello"))
        >>> len(transport.deliver()["b"]), transport.traffic.messages
        (55, 100)
    """

    loss: Share = 0.0
    seed: Whole = 0

    def open(self, agents: Iterable[str], links: "nx.Graph[Any] | None" = None) -> "FaultyTransport":
        """Connect agents.

        Args:
            agents: Their names.
            links: The radio graph; None: everyone hears everyone.
        """
        return FaultyTransport(Routes(agents, links), self.loss, self.seed)


class FaultyTransport(InProcessTransport):
    """What :meth:`Faults.open` returns. What is lost was sent and counts as traffic, with its whole way if relayed.

    Args:
        routes: Who reaches whom while nothing is cut.
        loss: Share of the messages that a link loses.
        seed: Of what is lost.
    """

    def __init__(self, routes: Routes, loss: float, seed: int) -> None:
        super().__init__(routes)
        self.loss = loss
        self._seed = seed
        self._streams: dict[tuple[str, str], np.random.Generator] = {}
        self._side: dict[str, int] = {}

    def cut(self, *parts: Collection[str]) -> None:
        """From now on lose every message between different parts; agents in no part are one more.

        Args:
            *parts: Names of agents.
        """
        self._side = {agent: number for number, part in enumerate(parts, start=1) for agent in part}

    def heal(self) -> None:
        """End the cut."""
        self._side = {}

    def send(self, envelope: Envelope) -> None:
        """Take a message, and perhaps lose it; if not, :meth:`deliver` hands it over at the next step.

        Raises:
            TransportError: If sender or recipient is unknown, or no path of links joins them.
        """
        super().send(envelope)
        links = pairwise(self.routes.path(envelope.sender, envelope.recipient))
        if not all(self._carries(*link) for link in links):
            self._under_way.pop()

    def _carries(self, sender: str, recipient: str) -> bool:
        link = (sender, recipient)
        if link not in self._streams:
            self._streams[link] = stream(self._seed, "loss", sender=sender, recipient=recipient)
        survives = self._streams[link].random() >= self.loss
        return bool(survives) and self._side.get(sender, 0) == self._side.get(recipient, 0)
