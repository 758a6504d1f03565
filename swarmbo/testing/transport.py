"""Contract of a transport."""

from collections.abc import Callable
from typing import Any

import networkx as nx

from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.testing.claims import claim, claim_offers, refuse
from swarmbo.transport import Envelope


def check_transport(make: Callable[[], Any]) -> None:
    """Check the contract of a transport.

    A transport has ``open(agents, links)``, which returns an object with ``send(envelope)``, ``deliver()``, ``traffic``
    and ``routes``. Each message arrives once, at the next step, ordered by sender and then by time of sending. It
    counts as one message with its bytes, and as one transmission per link of its route. Refused messages do not count.

    Args:
        make: Function that makes new settings of the transport.

    Raises:
        AssertionError: If a claim is violated. The message has its subject, the value got and the value wanted.

    Example:
        >>> import swarmbo as sb
        >>> sb.testing.check_transport(sb.InProcess)
    """
    claim(callable(make), "make", f"an object, {type(make).__name__}", "a function that makes a new transport")
    claim_offers(make(), "open")
    claim_offers(make().open(["a", "b"]), "send", "deliver", "traffic", "routes")
    _check_delivery(make)
    _check_counts(make)
    _check_refusals(make)


def _check_delivery(make: Callable[[], Any]) -> None:
    transport = make().open(["a", "b", "c"])
    early = transport.deliver()
    claim(not early, "deliver() before anything was sent", early, "{}")
    message = Envelope("a", "b", bytes(range(256)))
    transport.send(message)
    inboxes = transport.deliver()
    claim(inboxes == {"b": [message]}, "deliver() of a message from 'a' to 'b'", inboxes, {"b": [message]})
    again = transport.deliver()
    claim(not again, "deliver() after all was delivered", again, "{}")
    for sender, text in (("c", b"1"), ("b", b"2"), ("c", b"3"), ("b", b"4")):
        transport.send(Envelope(sender, "a", text))
    got, wanted = [envelope.payload for envelope in transport.deliver().get("a", [])], [b"2", b"4", b"1", b"3"]
    claim(got == wanted, "order of messages", got, f"{wanted}: by sender, then by order of sending")


def _check_counts(make: Callable[[], Any]) -> None:
    def claim_counts(wanted: Traffic, after: str) -> None:
        claim(transport.traffic == wanted, f"traffic after {after}", str(transport.traffic), str(wanted))

    transport = make().open(["a", "b", "c", "d"], nx.path_graph("abcd"))
    claim_counts(Traffic(), "open()")
    transport.send(Envelope("b", "b", b"123"))
    claim_counts(Traffic(), "a note to oneself, which crosses no link")
    notes = len(transport.deliver().get("b", []))
    claim(notes == 1, "notes to oneself that were delivered", notes, 1)
    transport.send(Envelope("a", "d", b"12345"))
    transport.send(Envelope("b", "c", b"12"))
    claim_counts(Traffic(messages=2, bytes=7, transmissions=4), "5 bytes over three links and 2 over one")
    inboxes = set(transport.deliver())
    claim(inboxes == {"c", "d"}, "recipients, where others relay", sorted(inboxes), ["c", "d"])


def _check_refusals(make: Callable[[], Any]) -> None:
    parted: nx.Graph[str] = nx.Graph([("a", "b")])
    parted.add_node("c")
    for envelope in (Envelope("a", "x", b"1"), Envelope("x", "a", b"1"), Envelope("a", "c", b"1")):
        transport = make().open(["a", "b", "c"], parted)
        what = f"a message from {envelope.sender!r} to {envelope.recipient!r}, which cannot be carried"
        try:
            transport.send(envelope)
        except TransportError:
            claim(transport.traffic == Traffic(), f"traffic after {what}", str(transport.traffic), str(Traffic()))
            inboxes = transport.deliver()
            claim(not inboxes, f"deliver() after {what}", inboxes, "{}")
        else:
            refuse(f"send() of {what}", "no error", "TransportError")
