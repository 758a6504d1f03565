"""What a transport would count, worked out without sending anything."""

from typing import TypeVar

import numpy as np
from jaxtyping import Int

from swarmbo.coordination.messages import Codec, Message
from swarmbo.records import Traffic
from swarmbo.transport import Routes

Index = TypeVar("Index", int, Int[np.ndarray, "..."])


def encoded_size(message: Message, n_entries: int = 0) -> int:
    """Encoded size of a message whose ``entries`` or ``values`` are left empty, were they ``n_entries`` numbers."""
    length = 8 * n_entries
    marker = 2 if length < 2**8 else 3 if length < 2**16 else 5  # MessagePack's bin 8, bin 16, bin 32
    empty = 2
    return len(Codec.encode(message)) + (marker - empty + length if n_entries else 0)


def extra_width(index: Index) -> Index:
    """How many bytes longer an index is than 0, which takes one; one index or an array of them."""
    return 1 * (index >= 2**7) + 1 * (index >= 2**8) + 2 * (index >= 2**16)


class Ledger:
    """Adds up what a transport would count, without sending anything.

    Args:
        routes: Who reaches whom.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self.traffic = Traffic()

    def add(
        self, sender: str, recipient: str, message: Message, n_entries: int = 0, times: int = 1, extra: int = 0
    ) -> None:
        """Note a message, unless it stays with its sender.

        Args:
            sender: From whom.
            recipient: To whom.
            message: It, with its numbers left empty.
            n_entries: How many numbers it has.
            times: How often it is sent.
            extra: Bytes on top, over all times.

        Raises:
            TransportError: If no path of links joins the two.
        """
        if sender == recipient or times == 0:
            return
        hops = self._routes.hops(sender, recipient)
        size = encoded_size(message, n_entries)
        self.traffic += Traffic(messages=times, bytes=times * size + extra, transmissions=times * hops)
