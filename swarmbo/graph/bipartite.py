"""The bipartite graph of factors and variables: its edges as arrays, and reading it from graphs of networkx."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Int

from swarmbo.boundary.values import known_names, short
from swarmbo.errors import ConfigError, ShapeError

if TYPE_CHECKING:
    import networkx as nx


class Edges(NamedTuple):
    """Pairs of a factor and a variable of its scope, as indices, factor by factor. ``first`` has the first edge of each
    factor, then the number of edges. ``by_variable`` lists edges variable by variable, beginning at ``first_of``.
    """

    factors: Int[np.ndarray, " e"]
    variables: Int[np.ndarray, " e"]
    first: Int[np.ndarray, " factors+1"]
    by_variable: Int[np.ndarray, " e"]
    first_of: Int[np.ndarray, " variables+1"]

    @classmethod
    def of(cls, scopes: Sequence[Sequence[str]], column_of: Mapping[str, int]) -> "Edges":
        """Edges of a graph; ``column_of`` has the index of each variable."""
        lengths = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
        variables = np.array([column_of[x] for scope in scopes for x in scope], dtype=np.int64)
        degrees = np.bincount(variables, minlength=len(column_of))
        first, first_of = (np.concatenate([[0], np.cumsum(counts)]) for counts in (lengths, degrees))
        factors, by_variable = np.repeat(np.arange(len(scopes)), lengths), np.argsort(variables, kind="stable")
        return cls(factors, variables, first, by_variable, first_of)

    def of_variables(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
        """Edges of some variables, variable after variable."""
        starts, degrees = self.first_of[places], self.first_of[places + 1] - self.first_of[places]
        ends = np.cumsum(degrees)
        return self.by_variable[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + degrees, degrees)]


Factors = Literal["edges", "cliques"]


class GraphContent(NamedTuple):
    """Content of a networkx graph; owners and tables are None if it has none."""

    scopes: dict[str, list[str]]
    owners: dict[str, str] | None
    variable_owners: dict[str, str] | None
    tables: dict[str, Any] | None = None


def read_graph(g: "nx.Graph[Any]", factors: "Factors | Iterable[Hashable] | None" = None) -> GraphContent:
    """Read a graph without tables; see ``FactorGraph.from_networkx``."""
    names = _names(g)
    if isinstance(factors, str):
        if factors not in ("edges", "cliques"):
            raise ConfigError(f"got {factors!r}; wanted 'edges', 'cliques' or the factors' nodes", at="$.factors")
        return _interactions(g, names, _groups(g, factors))
    if factors is None:
        side = _node_attribute(g, "bipartite")
        if wrong := [node for node, kind in side.items() if kind not in (0, 1)]:
            fix = "or `factors`: the factors' nodes, 'edges' or 'cliques'"
            got = f"node {wrong[0]!r} has bipartite={side[wrong[0]]!r}"
            raise ConfigError(f"{got}; wanted 0 (variable) or 1 (factor) on every node, {fix}")
        return _bipartite(g, names, {node for node, kind in side.items() if kind == 1})
    given: object = [str(node) for node in factors] if isinstance(cast(object, factors), Iterable) else factors
    wanted = set(known_names(given, names.values(), "$.factors"))
    return _bipartite(g, names, {node for node, name in names.items() if name in wanted})


def read_with_variables(g: "nx.Graph[Any]", variables: Iterable[Hashable] | None) -> GraphContent:
    """Read a graph with known variables: other nodes are factors; if there are none, edges are factors."""
    names, side = _names(g), _node_attribute(g, "bipartite")
    known = set(names.values()) if variables is None else {str(x) for x in variables}
    sides = [{names[node] for node, kind in side.items() if kind == which} for which in (0, 1)]
    if known >= set(names.values()):
        return read_graph(g) if variables is None and any(sides) else read_graph(g, "edges")
    if len(sides[0]) + len(sides[1]) == len(names):
        return read_graph(g, sides[0] if known == sides[1] else sides[1])
    return read_graph(g, set(names.values()) - known)


def read_with_tables(g: "nx.Graph[Any]", tables: Mapping[Any, Any] | None) -> GraphContent:
    """Read a graph with tables by factor, edge and node; None: attributes ``table``."""
    names = _names(g)
    if tables is None:
        tables = {node: t for node, t in _node_attribute(g, "table").items() if t is not None}
        tables |= {(u, v): data["table"] for u, v, data in g.edges(data=True) if data.get("table") is not None}
    by_scope = _tables_by_scope(g, names, tables)
    by_node = {scope[0]: entries for scope, entries in by_scope.items() if len(scope) == 1}
    if len(by_node) == len(by_scope) and g.number_of_edges():
        side = _node_attribute(g, "bipartite")
        factors = {node for node, kind in side.items() if kind == 1}
        if not all(kind in (0, 1) for kind in side.values()) or factors.isdisjoint(by_node):
            factors = set(by_node)  # sides are not stated, or not for the nodes with tables
        if all((u in factors) != (v in factors) for u, v in g.edges):
            content = _bipartite(g, names, factors)
            return content._replace(tables={names[node]: entries for node, entries in by_node.items()})
    covered = {frozenset(pair) for scope in by_scope for pair in combinations(scope, 2)}
    if missing := [edge for edge in g.edges if frozenset(edge) not in covered]:
        fix = "give one for each edge, {(u, v): table}, with axes in this order, or for each node that is a factor"
        raise ShapeError(f"edge {missing[0]!r} has no table; {fix}")
    if isolated := [node for node in g.nodes if not g.adj[node] and node not in by_node]:
        raise ShapeError(f"node {isolated[0]!r} has no edge and no table; give it one, or leave it out")
    content = _interactions(g, names, by_scope)
    return content._replace(tables=dict(zip(content.scopes, by_scope.values(), strict=True)))


def _tables_by_scope(g: "nx.Graph[Any]", names: Mapping[Any, str], tables: Mapping[Any, Any]) -> dict[Any, Any]:
    """Tables by the nodes of their edge or clique, then those of single nodes; keys may be names of nodes."""
    node_of: dict[str, Any] = {name: node for node, name in names.items()}
    by_scope, known = dict[tuple[Any, ...], Any](), set[frozenset[Any]]()
    for key, entries in tables.items():
        node = key if key in names else node_of.get(str(key))
        scope = (node,) if node is not None else _joined(g, node_of, key)
        if frozenset(scope) in known:
            raise ShapeError(f"got two tables for {' - '.join(map(repr, scope))}; add them up, with axes in one order")
        known.add(frozenset(scope))
        by_scope[scope] = entries
    return dict(sorted(by_scope.items(), key=lambda item: len(item[0]) == 1))


def _joined(g: "nx.Graph[Any]", node_of: Mapping[str, Any], key: object) -> tuple[Any, ...]:
    """Nodes of a table's edge or clique."""
    group = tuple(node_of.get(str(end)) for end in cast(tuple[Any, ...], key)) if isinstance(key, tuple) else ()
    if len(group) < 2 or None in group or not all(g.has_edge(u, v) for u, v in combinations(group, 2)):
        raise ShapeError(f"got a table for {short(key)}, which is neither a node nor an edge (u, v); leave it out")
    return group


def _node_attribute(g: "nx.Graph[Any]", attribute: str) -> dict[Any, Any]:
    return {node: data.get(attribute) for node, data in g.nodes(data=True)}


def _names(g: "nx.Graph[Any]") -> dict[Any, str]:
    import networkx as nx  # late: takes a tenth of a second to import

    if not isinstance(cast(object, g), nx.Graph):
        wanted = "a FactorGraph (FactorGraph.from_scopes), or a graph of networkx"
        raise ConfigError(f"got {short(g)}; wanted {wanted}", at="$.graph")
    if g.is_directed() or g.is_multigraph():
        fix = "nx.Graph(g), if directions have no meaning and no edges are parallel"
        wanted = f"an undirected graph with one edge between two nodes: {fix}"
        raise ConfigError(f"got a {type(g).__name__}; wanted {wanted}")
    if not len(g):
        raise ConfigError("got a graph without nodes; wanted at least one variable")
    node_of: dict[str, Any] = {}
    for node in g.nodes:
        if (other := node_of.setdefault(str(node), node)) is not node:
            got = f"nodes {other!r} and {node!r} would both be named {str(node)!r}"
            raise ConfigError(f"{got}; give all nodes different texts")
    if loops := [u for u, v in g.edges if u == v]:
        raise ConfigError(f"node {loops[0]!r} has an edge to itself; wanted a table of the node, or a factor, instead")
    return {node: name for name, node in node_of.items()}


def _groups(g: "nx.Graph[Any]", factors: str) -> list[tuple[Any, ...]]:
    """Scopes of an interaction graph, as nodes, in the graph's order; a node without an edge is a separate scope."""
    if factors == "edges":
        return [*g.edges, *((node,) for node in g.nodes if not g.adj[node])]
    import networkx as nx

    index_of = {node: i for i, node in enumerate(g.nodes)}
    cliques = [tuple(sorted(clique, key=index_of.__getitem__)) for clique in nx.find_cliques(g)]
    return sorted(cliques, key=lambda clique: [index_of[node] for node in clique])


def _interactions(g: "nx.Graph[Any]", names: Mapping[Any, str], groups: Iterable[tuple[Any, ...]]) -> GraphContent:
    scopes, owners, variable_owners = dict[str, list[str]](), dict[str, str](), _node_owners(g, names)
    for group in groups:
        scope = [names[node] for node in group]
        factor = f"f({','.join(scope)})"
        if factor in scopes:
            raise ConfigError(f"two edges would both be named {factor!r}; give nodes names without commas")
        scopes[factor] = scope
        owner = g.edges[group].get("owner") if len(group) == 2 else None
        if owner is not None:
            owners[factor] = owner
    if owners:  # a factor over one variable, or over a clique, belongs to its first variable's owner
        for factor, (first, *_) in scopes.items():
            owners.setdefault(factor, variable_owners.get(first, first))
    return GraphContent(scopes, owners or None, variable_owners or None)


def _bipartite(g: "nx.Graph[Any]", names: Mapping[Any, str], factors: set[Any]) -> GraphContent:
    for u, v in g.edges():
        if (u in factors) == (v in factors):
            raise ConfigError(f"edge {u!r} - {v!r} joins two nodes of one kind; wanted a factor and a variable")
    scopes = {name: [names[x] for x in _variables_by_axis(g, node)] for node, name in names.items() if node in factors}
    covered = {variable for scope in scopes.values() for variable in scope}
    if isolated := [name for name in names.values() if name not in scopes and name not in covered]:
        raise ConfigError(f"variable {isolated[0]!r} is in no scope; connect it to a factor or leave it out")
    given = _node_owners(g, names)
    owners = {name: owner for name, owner in given.items() if name in scopes}
    variable_owners = {name: owner for name, owner in given.items() if name not in scopes}
    return GraphContent(scopes, owners or None, variable_owners or None)


def _variables_by_axis(g: "nx.Graph[Any]", factor: Any) -> list[Any]:
    """Variables of a factor, in the order of the edges' attributes ``axis``, if any, else of the edges."""
    variables = list(g.adj[factor])
    stated = [data.get("axis") for data in g.adj[factor].values()]
    if all(axis is None for axis in stated):
        return variables
    are_numbers = all(isinstance(axis, int | float | np.number) and np.isfinite(axis) for axis in stated)
    if not are_numbers or len(set(stated)) < len(stated):
        raise ConfigError(f"node {factor!r} has edges with axis = {short(stated)}; wanted different numbers, or none")
    return [variable for _, variable in sorted(zip(stated, variables, strict=True))]


def _node_owners(g: "nx.Graph[Any]", names: Mapping[Any, str]) -> dict[str, str]:
    return {names[node]: owner for node, owner in _node_attribute(g, "owner").items() if owner is not None}
