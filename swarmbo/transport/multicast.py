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
    if routes.is_complete:
        return Traffic(messages=n, bytes=n * n_bytes, transmissions=n)
    others = [recipient for recipient in recipients if recipient != sender]
    if all(routes.is_link(sender, other) for other in others):  # as of neighbours in a chain: no path is looked for
        return Traffic(messages=n, bytes=n * n_bytes, transmissions=n)
    hops = routes.hops_from(sender)
    transmissions = sum(hops.get(other, 2) for other in others)
    return Traffic(messages=n, bytes=n * n_bytes, transmissions=transmissions)
