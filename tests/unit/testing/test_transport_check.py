"""A correct user's transport passes the check. For each possible fault, the check refuses it with a message."""

from contextlib import suppress

import pytest

import swarmbo as sb
from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcessTransport, Routes


class Pipes(InProcessTransport):
    """A transport that also serves as its own settings, by ``open``."""

    def __init__(self, agents=(), links=None):
        super().__init__(Routes(agents, links))

    def open(self, agents, links=None):
        return type(self)(agents, links)


def counts_undeliverable(self, envelope):
    """Count a message that cannot be delivered."""
    try:
        InProcessTransport.send(self, envelope)
    except TransportError:
        self.traffic += Traffic(messages=1)
        raise


def delivers_undeliverable(self, envelope):
    """Raise an error for a message without a route, but deliver it."""
    try:
        InProcessTransport.send(self, envelope)
    except TransportError:
        self.undeliverable = {envelope.recipient: [envelope]}
        raise


def no_error(self, envelope):
    with suppress(TransportError):
        InProcessTransport.send(self, envelope)


def delivering(change):
    return {"deliver": lambda self: change(InProcessTransport.deliver(self))}


def delivers_again(self):
    self.last = InProcessTransport.deliver(self) or self.__dict__.get("last", {})
    return self.last


def counts(**wrong):
    """Add wrong counts for every message."""

    def send(self, envelope):
        InProcessTransport.send(self, envelope)
        if envelope.sender != envelope.recipient or "notes" in wrong:
            self.traffic += Traffic(**{name: by for name, by in wrong.items() if name != "notes"})

    return {"send": send}


def drops_notes(self, envelope):
    if envelope.sender != envelope.recipient:
        InProcessTransport.send(self, envelope)


BROKEN = {
    "never empty": (
        delivering(lambda inboxes: inboxes or {"a": []}),
        r"deliver\(\) before anything was sent: got {'a': \[\]}; wanted {}",
    ),
    "cuts payloads": (
        delivering(lambda inboxes: {a: [e._replace(payload=e.payload[:9]) for e in box] for a, box in inboxes.items()}),
        r"deliver\(\) of a message from 'a' to 'b': got {'b': .*}; wanted {'b': .*}",
    ),
    "delivers to all": (
        delivering(lambda inboxes: {agent: box for box in inboxes.values() for agent in "abcd"}),
        r"deliver\(\) of a message from 'a' to 'b': got {'a': ",
    ),
    "delivers again": ({"deliver": delivers_again}, r"deliver\(\) after all was delivered: got {'b': .*; wanted {}"),
    "last in, first out": (
        delivering(lambda inboxes: {agent: box[::-1] for agent, box in inboxes.items()}),
        r"order of messages: got \[b'3', b'1', b'4', b'2'\]; wanted \[b'2', b'4', b'1', b'3'\]: by sender",
    ),
    "counts notes": (
        counts(messages=1, notes=True),
        r"traffic after a note to oneself, .*: got Traffic\(messages=1, .*; wanted Traffic\(messages=0",
    ),
    "loses notes": ({"send": drops_notes}, "notes to oneself that were delivered: got 0; wanted 1"),
    "counts twice": (counts(messages=1), r"traffic after 5 bytes .*: got Traffic\(messages=4, .*; wanted .*messages=2"),
    "counts no bytes": (counts(bytes=-1), r"traffic after 5 bytes .*: got Traffic\(messages=2, bytes=5,"),
    "counts no relays": (counts(transmissions=-1), r"traffic after 5 bytes .*transmissions=2\); wanted .*transm"),
    "raises nothing": (
        {"send": no_error},
        r"send\(\) of a message from 'a' to 'x', .*: got no error; wanted TransportError",
    ),
    "counts undeliverable messages": (
        {"send": counts_undeliverable},
        r"traffic after a message from 'a' to 'x', .*: got Traffic\(messages=1",
    ),
    "delivers refused messages": (
        {
            "send": delivers_undeliverable,
            "deliver": lambda self: InProcessTransport.deliver(self) or self.__dict__.pop("undeliverable", {}),
        },
        r"deliver\(\) after a message from 'a' to 'x', .*: got {'x': .*; wanted {}",
    ),
}


def test_a_correct_transport_passes():
    sb.testing.check_transport(Pipes)


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN)
def test_a_faulty_transport_is_refused_with_what_was_got_and_what_is_wanted(changes, words):
    with pytest.raises(AssertionError, match=words):
        sb.testing.check_transport(type("Broken", (Pipes,), changes))


def test_objects_that_are_not_transports_are_refused():
    with pytest.raises(AssertionError, match="Envelope: got no open; wanted an object with open"):
        sb.testing.check_transport(lambda: Envelope("a", "b", b""))
    incomplete = type("Blind", (), {"open": lambda self, agents, links=None: object()})
    with pytest.raises(AssertionError, match="object: got no send, deliver, traffic, routes; wanted"):
        sb.testing.check_transport(incomplete)
