"""What it costs to tell several agents the same."""

from collections.abc import Collection

from swarmbo.records import Traffic
from swarmbo.transport.routes import Routes


def multicast_traffic(routes: Routes, sender: str, recipients: Collection[str], n_bytes: int) -> Traffic:
    """Traffic of sending one report to some agents, one message each.

    Args:
        routes: Who reaches whom.
        sender: Whose report it is.
        recipients: Who gets it; where the sender is among them, it costs nothing.
        n_bytes: Its encoded size.

    Returns:
        Messages, bytes, and transmissions: the hops of the shortest path, or two (up and down) over a base station
        where no relay reaches the recipient.

    Example:
        >>> import networkx as nx
        >>> multicast_traffic(Routes(["a", "b", "c"], nx.Graph([("a", "b")])), "a", ["b", "c"], n_bytes=10)
        Traffic(messages=2, bytes=20, transmissions=3)
    """
    n = len(recipients) - (sender in recipients)
    return Traffic(messages=n, bytes=n * n_bytes, transmissions=routes.transmissions(sender, recipients))
