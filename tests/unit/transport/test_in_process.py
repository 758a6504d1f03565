"""Delivery and counting inside one process."""

import msgspec
import networkx as nx
import pytest

from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcess


def test_messages_arrive_at_the_next_step_and_only_once() -> None:
    transport = InProcess().open(["a", "b"])
    transport.send(Envelope("a", "b", b"1"))
    assert [envelope.payload for envelope in transport.deliver()["b"]] == [b"1"]
    assert transport.deliver() == {}


def test_order_of_delivery_is_by_sender_then_by_sending() -> None:
    transport = InProcess().open(["a", "b", "c"])
    for sender, payload in [("c", b"1"), ("b", b"2"), ("c", b"3"), ("b", b"4")]:
        transport.send(Envelope(sender, "a", payload))
    assert [envelope.payload for envelope in transport.deliver()["a"]] == [b"2", b"4", b"1", b"3"]


def test_a_relayed_message_counts_once_in_bytes_and_once_a_link_in_transmissions() -> None:
    transport = InProcess().open("abcd", nx.path_graph(["a", "b", "c", "d"]))
    transport.send(Envelope("a", "d", b"12345"))
    transport.send(Envelope("b", "c", b"12"))
    assert transport.traffic == Traffic(messages=2, bytes=7, transmissions=4)


def test_a_note_to_oneself_is_delivered_but_free() -> None:
    transport = InProcess().open(["a"])
    transport.send(Envelope("a", "a", b"123"))
    assert transport.traffic == Traffic()
    assert len(transport.deliver()["a"]) == 1


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
