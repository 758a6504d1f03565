"""Delivery and counting inside one process."""

import msgspec
import networkx as nx
import pytest

from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.testing import check_transport
from swarmbo.transport import Envelope, InProcess


def test_it_keeps_the_contract() -> None:
    check_transport(InProcess)


@pytest.mark.parametrize("envelope", [Envelope("a", "x", b""), Envelope("x", "a", b"")])
def test_unknown_agents_are_refused_and_not_counted(envelope: Envelope) -> None:
    transport = InProcess().open(["a", "b"])
    with pytest.raises(TransportError, match="unknown agent 'x'"):
        transport.send(envelope)
    assert transport.traffic == Traffic()
    assert transport.deliver() == {}


def test_an_unreachable_recipient_is_refused_and_not_counted() -> None:
    transport = InProcess().open("abc", nx.Graph([("a", "b")]))
    with pytest.raises(TransportError, match="separate parts"):
        transport.send(Envelope("a", "c", b"1"))
    assert transport.traffic == Traffic()


def test_settings_are_read_by_kind() -> None:
    assert msgspec.convert({"kind": "in-process"}, InProcess) == InProcess()
