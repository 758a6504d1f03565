"""A transport of a stranger's passes; it is refused for each thing that it may do wrong, in words."""

from contextlib import suppress

import pytest

import swarmbo as sb
from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcessTransport, Routes


class Pipes(InProcessTransport):
    """A carrier of its own settings: ``open`` makes it."""

    def __init__(self, agents=(), links=None):
        super().__init__(Routes(agents, links))

    def open(self, agents, links=None):
        return type(self)(agents, links)


def lost(self, envelope):
    """Takes and counts what cannot be carried."""
    try:
        InProcessTransport.send(self, envelope)
    except TransportError:
        self.traffic += Traffic(messages=1)
        raise


def kept(self, envelope):
    """Complains of what cannot be carried, and carries it."""
    try:
        InProcessTransport.send(self, envelope)
    except TransportError:
        self.astray = {envelope.recipient: [envelope]}
        raise


def silent(self, envelope):
    with suppress(TransportError):
        InProcessTransport.send(self, envelope)


def delivering(change):
    return {"deliver": lambda self: change(InProcessTransport.deliver(self))}


def remembering(self):
    self.last = InProcessTransport.deliver(self) or self.__dict__.get("last", {})
    return self.last


def counting(**wrong):
    """Counts every message like this."""

    def send(self, envelope):
        InProcessTransport.send(self, envelope)
        if envelope.sender != envelope.recipient or "notes" in wrong:
            self.traffic += Traffic(**{name: by for name, by in wrong.items() if name != "notes"})

    return {"send": send}


def noteless(self, envelope):
    if envelope.sender != envelope.recipient:
        InProcessTransport.send(self, envelope)


BROKEN = {
    "always mail": (
        delivering(lambda inboxes: inboxes or {"a": []}),
        r"deliver\(\) before anything was sent: got {'a': \[\]}; wanted {}",
    ),
    "cut short": (
        delivering(lambda inboxes: {a: [e._replace(payload=e.payload[:9]) for e in box] for a, box in inboxes.items()}),
        r"deliver\(\) of a message from 'a' to 'b': got {'b': .*}; wanted {'b': .*}",
    ),
    "to all": (
        delivering(lambda inboxes: {agent: box for box in inboxes.values() for agent in "abcd"}),
        r"deliver\(\) of a message from 'a' to 'b': got {'a': ",
    ),
    "twice": ({"deliver": remembering}, r"deliver\(\) after all was delivered: got {'b': .*; wanted {}"),
    "last in, first out": (
        delivering(lambda inboxes: {agent: box[::-1] for agent, box in inboxes.items()}),
        r"order of messages: got \[b'3', b'1', b'4', b'2'\]; wanted \[b'2', b'4', b'1', b'3'\]: by sender",
    ),
    "notes cost": (
        counting(messages=1, notes=True),
        r"traffic after a note to oneself, .*: got Traffic\(messages=1, .*; wanted Traffic\(messages=0",
    ),
    "notes are lost": ({"send": noteless}, "notes to oneself that were delivered: got 0; wanted 1"),
    "doubles": (counting(messages=1), r"traffic after 5 bytes .*: got Traffic\(messages=4, .*; wanted .*messages=2"),
    "counts no bytes": (counting(bytes=-1), r"traffic after 5 bytes .*: got Traffic\(messages=2, bytes=5,"),
    "counts no relays": (counting(transmissions=-1), r"traffic after 5 bytes .*transmissions=2\); wanted .*transm"),
    "quiet": ({"send": silent}, r"send\(\) of a message from 'a' to 'x', .*: got no error; wanted TransportError"),
    "counts what is lost": ({"send": lost}, r"traffic after a message from 'a' to 'x', .*: got Traffic\(messages=1"),
    "carries what it refused": (
        {"send": kept, "deliver": lambda self: InProcessTransport.deliver(self) or self.__dict__.pop("astray", {})},
        r"deliver\(\) after a message from 'a' to 'x', .*: got {'x': .*; wanted {}",
    ),
}


def test_a_transport_that_keeps_the_contract_passes():
    sb.testing.check_transport(Pipes)


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN)
def test_a_transport_that_breaks_it_is_told_what_was_got_and_what_is_wanted(changes, words):
    with pytest.raises(AssertionError, match=words):
        sb.testing.check_transport(type("Broken", (Pipes,), changes))


def test_what_cannot_be_opened_is_no_transport():
    with pytest.raises(AssertionError, match="Envelope: got no open; wanted an object with open"):
        sb.testing.check_transport(lambda: Envelope("a", "b", b""))
    blind = type("Blind", (), {"open": lambda self, agents, links=None: object()})
    with pytest.raises(AssertionError, match="object: got no send, deliver, traffic, routes; wanted"):
        sb.testing.check_transport(blind)
