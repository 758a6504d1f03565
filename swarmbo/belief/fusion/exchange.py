"""Communication steps of agents that fuse beliefs."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from swarmbo.belief.fusion.fused_view import FusedView
from swarmbo.records import Traffic
from swarmbo.transport import Envelope


@runtime_checkable
class Carrier(Protocol):
    """Carrier of messages: an ``InProcessTransport``, or one with faults."""

    @property
    def traffic(self) -> Traffic:
        """Traffic so far."""
        ...

    def send(self, envelope: Envelope, /) -> None:
        """Accept a message."""
        ...

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and return the arrivals by recipient."""
        ...


class Unfinished(NamedTuple):
    """Question if any agent has more to send; ``own`` is the answer of the local agents."""

    own: bool


class Spoken(NamedTuple):
    """Messages that local agents send in a step; answered by arrivals, by recipient."""

    letters: Sequence[Envelope]


def talk(agents: Mapping[str, FusedView], steps: int) -> Generator[Unfinished | Spoken, Any, None]:
    """Synchronous steps of local agents: all send, then all receive, until no agent has more to send."""
    for _ in range(steps):
        if not (yield Unfinished(not all(agent.is_finished for agent in agents.values()))):
            return
        letters = [envelope for agent in agents.values() for envelope in agent.speak()]
        for name, inbox in (yield Spoken(letters)).items():
            if name in agents:
                agents[name].hear(inbox)


def exchange(agents: Iterable[FusedView], transport: Carrier, steps: int) -> Traffic:
    """Let local agents exchange messages for at most ``steps`` steps, or until all finished, and return the traffic."""
    before, answer = transport.traffic, None
    talking = talk({agent.name: agent for agent in agents}, steps)
    while True:
        try:
            request = talking.send(answer)
        except StopIteration:
            break
        answer = request.own if isinstance(request, Unfinished) else carried(request.letters, transport)
    after = transport.traffic
    return Traffic(
        messages=after.messages - before.messages,
        bytes=after.bytes - before.bytes,
        transmissions=after.transmissions - before.transmissions,
    )


def carried(letters: Iterable[Envelope], transport: Carrier) -> dict[str, list[Envelope]]:
    """Send a step's letters, and return the arrivals by recipient."""
    for envelope in letters:
        transport.send(envelope)
    return transport.deliver()
