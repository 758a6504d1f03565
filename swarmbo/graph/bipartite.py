"""Factor graphs as bipartite networkx graphs: variables on one side, factors on the other."""

from typing import TYPE_CHECKING, Any

from swarmbo.errors import ConfigError

if TYPE_CHECKING:
    import networkx as nx


def read_bipartite(
    g: "nx.Graph[Any]",
) -> tuple[dict[str, list[str]], dict[str, str] | None, dict[str, str] | None]:
    """Scopes, owners of factors and owners of variables, None where there are none.

    Args:
        g: As ``FactorGraph.from_networkx`` describes it.

    Raises:
        ConfigError: If two nodes have the same text, a node lacks ``bipartite``, an edge joins two of a kind, or a
            variable has no factor.
    """
    node_of: dict[str, Any] = {}
    for node in g.nodes:
        if (other := node_of.setdefault(str(node), node)) is not node:
            raise ConfigError(
                f"nodes {other!r} and {node!r} would both be named {str(node)!r}; give all nodes different texts"
            )
    side: dict[Any, Any] = dict(g.nodes(data="bipartite"))
    if wrong := [node for node, kind in side.items() if kind not in (0, 1)]:
        raise ConfigError(f"node {wrong[0]!r} has bipartite={side[wrong[0]]!r}; wanted 0 (variable) or 1 (factor)")
    for u, v in g.edges():
        if side[u] == side[v]:
            raise ConfigError(f"edge {u!r} - {v!r} joins two of a kind; wanted a factor and a variable")
    scopes: dict[str, list[str]] = {}
    for factor in (node for node in g.nodes if side[node] == 1):
        edges = [(data.get("axis", place), str(v)) for place, (_, v, data) in enumerate(g.edges(factor, data=True))]
        scopes[str(factor)] = [v for _, v in sorted(edges, key=lambda edge: edge[0])]
    covered = {variable for scope in scopes.values() for variable in scope}
    if lonely := [str(node) for node in g.nodes if side[node] == 0 and str(node) not in covered]:
        raise ConfigError(f"variable {lonely[0]!r} is in no scope; connect it to a factor or leave it out")
    owned: list[dict[str, str] | None] = []
    for kind in (0, 1):
        given = {
            str(node): data["owner"] for node, data in g.nodes(data=True) if side[node] == kind and "owner" in data
        }
        owned.append(given or None)
    return scopes, owned[1], owned[0]
