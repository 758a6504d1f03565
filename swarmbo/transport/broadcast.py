"""What it costs to tell everybody."""

from swarmbo.errors import TransportError
from swarmbo.records import Traffic
from swarmbo.transport.routes import Routes


def broadcast_traffic(routes: Routes, sender: str, n_bytes: int) -> Traffic:
    """Traffic of sending one report to every other agent, one message each.

    Args:
        routes: Who reaches whom.
        sender: Whose report it is.
        n_bytes: Its encoded size.

    Returns:
        Messages, bytes, and transmissions: the hops of the shortest path, or two (up and down) over a base station
        where no relay reaches the recipient.

    Example:
        >>> import networkx as nx
        >>> broadcast_traffic(Routes(["a", "b", "c"], nx.Graph([("a", "b")])), "a", n_bytes=10)
        Traffic(messages=2, bytes=20, transmissions=3)
    """
    traffic = Traffic()
    for other in routes.agents:
        if other != sender:
            try:
                hops = routes.hops(sender, other)
            except TransportError:
                hops = 2
            traffic += Traffic(messages=1, bytes=n_bytes, transmissions=hops)
    return traffic
