"""Let agents that fuse beliefs talk for a while."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from swarmbo.belief.fusion.fusing_agent import FusingAgent
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


def exchange(agents: Iterable[FusingAgent], transport: Carrier, steps: int) -> Traffic:
    """Synchronous steps: all agents speak, then all hear. Nothing is left under way.

    Args:
        agents: Who talks; the same agents may be elsewhere in another call, as if cut off.
        transport: Opened for at least them.
        steps: How many, >= 0; it ends before if all agents have finished.

    Returns:
        What was sent.
    """
    by_name, before = {agent.name: agent for agent in agents}, transport.traffic
    for _ in range(steps):
        if all(agent.is_finished for agent in by_name.values()):
            break
        for agent in by_name.values():
            for envelope in agent.speak():
                transport.send(envelope)
        for name, inbox in transport.deliver().items():
            if name in by_name:
                by_name[name].hear(inbox)
    after = transport.traffic
    return Traffic(
        messages=after.messages - before.messages,
        bytes=after.bytes - before.bytes,
        transmissions=after.transmissions - before.transmissions,
    )
