"""What a transport keeps to."""

from collections.abc import Callable
from typing import Any

import networkx as nx

from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.testing.claims import claim, claim_offers
from swarmbo.transport import Envelope

_PATH = nx.path_graph(["a", "b", "c", "d"])


def check_transport(make: Callable[[], Any]) -> None:
    """Hold a transport to its contract.

    It has ``open(agents, links)``, which gives an object with ``send(envelope)``, ``deliver()``, ``traffic`` and
    ``routes``. Messages arrive at the next step and once, ordered by sender and then by sending; they are counted once,
    with their bytes, and once for each link that they cross; what cannot be carried is refused and not counted.

    Args:
        make: Makes its settings anew.

    Raises:
        AssertionError: With the claim that does not hold.

    Example:
        >>> import swarmbo as sb
        >>> sb.testing.check_transport(sb.InProcess)
    """
    claim_offers(make(), "open")
    claim_offers(make().open(["a", "b"]), "send", "deliver", "traffic", "routes")
    _check_delivery(make)
    _check_counts(make)
    _check_refusals(make)


def _check_delivery(make: Callable[[], Any]) -> None:
    transport = make().open(["a", "b", "c"])
    claim(not transport.deliver(), "deliver() hands over messages, though none was sent")
    payload = bytes(range(256))
    transport.send(Envelope("a", "b", payload))
    inboxes = transport.deliver()
    claim(set(inboxes) == {"b"}, f"a message from 'a' to 'b' came to {sorted(inboxes)}")
    claim(inboxes["b"] == [Envelope("a", "b", payload)], "a message did not arrive as it was sent")
    claim(not transport.deliver(), "a message was delivered twice")
    for sender, text in (("c", b"1"), ("b", b"2"), ("c", b"3"), ("b", b"4")):
        transport.send(Envelope(sender, "a", text))
    got = [envelope.payload for envelope in transport.deliver().get("a", [])]
    wanted = [b"2", b"4", b"1", b"3"]
    claim(got == wanted, f"messages arrive as {got}; wanted {wanted}: by sender, then by order of sending")


def _check_counts(make: Callable[[], Any]) -> None:
    transport = make().open(["a", "b", "c", "d"], _PATH)
    claim(transport.traffic == Traffic(), f"a transport that was just opened has counted {transport.traffic}")
    transport.send(Envelope("b", "b", b"123"))
    claim(transport.traffic == Traffic(), "a note to oneself was counted; it crosses no link")
    claim(len(transport.deliver().get("b", [])) == 1, "a note to oneself was not delivered")
    transport.send(Envelope("a", "d", b"12345"))
    transport.send(Envelope("b", "c", b"12"))
    wanted = Traffic(messages=2, bytes=7, transmissions=4)
    got = transport.traffic
    claim(got == wanted, f"5 bytes over three links and 2 over one count as {got}; wanted {wanted}")
    claim(set(transport.deliver()) == {"c", "d"}, "a message that is relayed did not arrive at its recipient only")


def _check_refusals(make: Callable[[], Any]) -> None:
    parted: nx.Graph[str] = nx.Graph([("a", "b")])
    parted.add_node("c")
    for envelope in (Envelope("a", "x", b"1"), Envelope("x", "a", b"1"), Envelope("a", "c", b"1")):
        transport = make().open(["a", "b", "c"], parted)
        what = f"a message from {envelope.sender!r} to {envelope.recipient!r}, which cannot be carried,"
        try:
            transport.send(envelope)
        except TransportError:
            claim(transport.traffic == Traffic(), f"{what} was counted")
            claim(not transport.deliver(), f"{what} was delivered")
        else:
            raise AssertionError(f"{what} was taken; wanted TransportError")
