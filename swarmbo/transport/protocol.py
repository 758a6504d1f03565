"""What agents need of a transport."""

from typing import Protocol, runtime_checkable

from swarmbo.records import Traffic
from swarmbo.transport.in_process import Envelope
from swarmbo.transport.routes import Routes


@runtime_checkable
class Transport(Protocol):
    """What agents need of a transport: :class:`swarmbo.transport.InProcessTransport` is one."""

    @property
    def routes(self) -> Routes:
        """Who reaches whom."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What was sent so far."""
        ...

    def send(self, envelope: Envelope) -> None:
        """Take a message."""
        ...

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and hand over what has arrived, by recipient."""
        ...
