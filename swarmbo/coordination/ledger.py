"""Traffic worked out from the plan, without sending anything."""

from swarmbo.coordination.messages import Message, encoded_size
from swarmbo.records import Traffic
from swarmbo.transport import Routes


class Ledger:
    """Adds up what a transport would count.

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
