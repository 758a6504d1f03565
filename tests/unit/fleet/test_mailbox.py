"""Every message is received once, even if the network loses, repeats and delays messages."""

import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.fleet.mailbox import Mailbox
from swarmbo.fleet.messages import Decide, Receipt, encode


@settings(max_examples=100)
@given(st.floats(0.0, 0.7), st.floats(0.0, 0.9), st.floats(0.0, 3.0), st.integers(0, 10**6))
def test_every_message_is_received_once(network, loss, twice, late, seed):
    wire = network(loss, twice, late, seed)
    a, b = (Mailbox(wire.carrier(name), clock=wire.clock) for name in "ab")
    messages = [Decide(number) for number in range(1, 9)]
    for message in messages:
        a.send("b", message)
        b.send("a", message)
    received = {"a": [], "b": []}
    while a.unacknowledged or b.unacknowledged:
        for name, mail in (("a", a), ("b", b)):
            if (got := mail.receive(0.05)) is not None:
                received[name].append(got)
        assert wire.now < 600.0, "messages never arrived"
    for name, other in (("a", "b"), ("b", "a")):
        assert {sender for sender, _ in received[name]} == {other}
        assert sorted(message.sequence for _, message in received[name]) == [message.sequence for message in messages]


def test_without_loss_nothing_is_sent_again(network):
    wire = network()
    a, b = (Mailbox(wire.carrier(name), clock=wire.clock) for name in "ab")
    a.send("b", Decide(1))
    assert b.receive(0.1) == ("a", Decide(1))
    assert a.receive(0.1) is None
    assert (a.unacknowledged, a.repeated, wire.sent) == ([], 0, 2)


def test_a_waiting_message_is_received_at_once_with_a_real_clock(network):
    wire = network()
    a, b = Mailbox(wire.carrier("a"), clock=wire.clock), Mailbox(wire.carrier("b"))
    a.send("b", Decide(1))
    wire.now += 1.0
    assert b.receive(0.0) == ("a", Decide(1))


def test_a_message_is_stored_before_its_receipt_is_sent(network):
    wire, kept = network(), []

    def full(sender: str, content: bytes) -> None:
        kept.append((sender, content))
        raise OSError("no space left")

    a, b = Mailbox(wire.carrier("a"), clock=wire.clock), Mailbox(wire.carrier("b"), full, wire.clock)
    a.send("b", Decide(1))
    with pytest.raises(OSError, match="no space"):
        b.receive(0.1)
    assert kept == [("a", encode(Decide(1)))]
    assert a.receive(0.1) is None
    assert a.unacknowledged == [("b", encode(Decide(1)))]


def test_invalid_bytes_are_counted_and_dropped(network):
    wire = network()
    mail = Mailbox(wire.carrier("a"), clock=wire.clock)
    for content in (b"", b"x" * 40, encode(Decide(1))[:-1]):
        wire.send("b", "a", content)
    wire.send("b", "a", encode(Decide(2)))
    assert mail.receive(0.1) == ("b", Decide(2))
    assert mail.refused == 3
    assert wire.take("b") == ("a", encode(Receipt(encode(Decide(2))[:16])))
