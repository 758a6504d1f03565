"""Transports carry named messages between agents and count them. They do not know factor graphs."""

from swarmbo.transport.faults import Cut as Cut, Event as Event, Faults as Faults, FaultyTransport as FaultyTransport
from swarmbo.transport.reliable import Reliable as Reliable
from swarmbo.transport.routes import (
    Envelope as Envelope,
    InProcess as InProcess,
    InProcessTransport as InProcessTransport,
    Routes as Routes,
    Transport as Transport,
)

Carrying = InProcess | Faults  # settings of transports; add those of a new kind here
