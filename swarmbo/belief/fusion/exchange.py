"""Let agents that fuse beliefs talk for a while."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from swarmbo.belief.fusion.fused_view import FusedView
from swarmbo.records import Traffic
from swarmbo.transport import Envelope


@runtime_checkable
class Carrier(Protocol):
    """What carries the messages: an ``InProcessTransport``, or one with faults."""

    @property
    def traffic(self) -> Traffic:
        """What was sent so far."""
        ...

    def send(self, envelope: Envelope, /) -> None:
        """Take a message."""
        ...

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and hand over what has arrived, by recipient."""
        ...


class Unfinished(NamedTuple):
    """Whether any of all agents has more to say; answered by that.

    Args:
        own: Whether one of those at hand has.
    """

    own: bool


class Spoken(NamedTuple):
    """What agents at hand say in a step; answered by what they hear, by recipient.

    Args:
        letters: To neighbours.
    """

    letters: Sequence[Envelope]


def talk(agents: Mapping[str, FusedView], steps: int) -> Generator[Unfinished | Spoken, Any, None]:
    """Synchronous steps of some agents: all speak, then all hear, until nobody has more to say. Nothing is left over.

    Args:
        agents: Those at hand.
        steps: How many at most, >= 0.
    """
    for _ in range(steps):
        if not (yield Unfinished(not all(agent.is_finished for agent in agents.values()))):
            return
        letters = [envelope for agent in agents.values() for envelope in agent.speak()]
        for name, inbox in (yield Spoken(letters)).items():
            if name in agents:
                agents[name].hear(inbox)


def exchange(agents: Iterable[FusedView], transport: Carrier, steps: int) -> Traffic:
    """Let agents that are all at hand talk.

    Args:
        agents: Who talks; the same agents may be elsewhere in another call, as if cut off.
        transport: Opened for at least them.
        steps: How many, >= 0; it ends before if all agents have finished.

    Returns:
        What was sent.
    """
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
    """What arrives of a step's letters, by recipient."""
    for envelope in letters:
        transport.send(envelope)
    return transport.deliver()
