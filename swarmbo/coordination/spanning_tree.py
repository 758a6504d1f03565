"""A tree over the agents that solve one part of a graph, for sums that all of them need."""

from dataclasses import dataclass

from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes


@dataclass(frozen=True)
class SpanningTree:
    """Breadth first from the first agent, over the radio links.

    Args:
        parent: For each agent the next one towards the root; None at the root.
        children: For each agent those that it is the parent of, in the graph's order of agents.
        factors: For each agent the factors owned in its subtree, in the graph's order of factors.
    """

    parent: dict[str, str | None]
    children: dict[str, tuple[str, ...]]
    factors: dict[str, tuple[str, ...]]


def spanning_tree(graph: FactorGraph, routes: Routes) -> SpanningTree:
    """The tree of a graph's agents. Agents that only relay are passed over.

    Args:
        graph: Whose agents it joins.
        routes: Who reaches whom.

    Raises:
        TransportError: If an agent does not reach the first one.
    """
    root, *others = graph.agents
    members = set(graph.agents)
    parent: dict[str, str | None] = {root: None}
    for agent in others:
        parent[agent] = next(on_path for on_path in routes.path(agent, root)[1:] if on_path in members)
    children: dict[str, list[str]] = {agent: [] for agent in graph.agents}
    below: dict[str, set[str]] = {agent: set() for agent in graph.agents}
    for agent in graph.agents:
        if (above := parent[agent]) is not None:
            children[above].append(agent)
        ancestor: str | None = agent
        while ancestor is not None:
            below[ancestor].update(graph.factors_owned_by(agent))
            ancestor = parent[ancestor]
    return SpanningTree(
        parent=parent,
        children={agent: tuple(below_it) for agent, below_it in children.items()},
        factors={agent: tuple(f for f in graph.factors if f in owned) for agent, owned in below.items()},
    )
