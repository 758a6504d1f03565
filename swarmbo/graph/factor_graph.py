"""Factor graph: the variables that each local function couples, and the owner of each."""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from swarmbo.boundary.values import distinct_names, exact, html_table, short, table
from swarmbo.errors import ConfigError, OwnershipError, ShapeError
from swarmbo.graph.bipartite import Edges, Factors, GraphContent, read_graph, read_with_tables, read_with_variables

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike


# types of users' arguments, as texts: NetworkX takes a tenth of a second to import
AnyGraph: TypeAlias = "FactorGraph | nx.Graph[Any]"
AnyTables: TypeAlias = "Mapping[Any, ArrayLike] | None"
Links: TypeAlias = "nx.Graph[Any] | None"
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, repr=False)
class FactorGraph:
    """An immutable bipartite graph of factors and variables, with one owner for each of them.

    The owner of a variable is the agent that sets it; the owner of a factor holds its table and computes its messages.
    Build one with :meth:`from_scopes`.

    Args:
        factors: Names of the factors, in the order given.
        scopes: Variables of each factor, in the order of its table's axes.
        factor_owners: Agent of each factor.
        variables: Names of the variables, in order of first appearance in the scopes.
        variable_owners: Agent of each variable.
        joined: Groups of variables that a constraint couples; parts with variables of one group count as connected.

    Raises:
        ConfigError: If there is no factor, a scope is empty or repeats a variable, or a variable is in no factor. Also
            if a name is not a text or used twice, or a scope or an owner is missing.

    Example:
        >>> graph = FactorGraph.from_scopes({"f1": ["x1", "x3"], "f2": ["x2", "x3"]})
        >>> graph.variables
        ('x1', 'x3', 'x2')
        >>> graph.factors_of("x3"), graph.neighbours("f1"), graph.is_forest
        (('f1', 'f2'), ('f2',), True)
    """

    factors: tuple[str, ...]
    scopes: tuple[tuple[str, ...], ...]
    factor_owners: tuple[str, ...]
    variables: tuple[str, ...]
    variable_owners: tuple[str, ...]
    joined: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.joined, str | Set) or not hasattr(self.joined, "__iter__"):
            raise ConfigError(f"got {short(self.joined)}; wanted a list of groups of variables", at="$.joined")
        object.__setattr__(self, "joined", tuple(self.joined))
        distinct_names(self.factors, "factor", "$.factors")
        variable_names = set(distinct_names(self.variables, "variable", "$.variables"))
        for field, of in (("scopes", "factors"), ("factor_owners", "factors"), ("variable_owners", "variables")):
            given, wanted = getattr(self, field), len(getattr(self, of))
            if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != wanted:
                raise ConfigError(f"got {short(given)}; wanted one for each of {wanted} {of}", at=f"$.{field}")
        for at, names in [*zip(self.factors, self.scopes, strict=True), *enumerate(self.joined)]:
            path = f"$.scopes.{at}" if isinstance(at, str) else f"$.joined[{at}]"
            if strangers := sorted(set(distinct_names(names, "variable", path)) - variable_names):
                raise ConfigError(f"got {strangers}, which `variables` lacks; wanted some of those", at=path)
        covered = {variable for scope in self.scopes for variable in scope}
        if idle := [variable for variable in self.variables if variable not in covered]:
            fix = "wanted each variable in a factor, or left out"
            raise ConfigError(f"got {idle[0]!r}, which is in no scope; {fix}", at="$.variables")
        if clash := sorted(covered & set(self.factors)):
            fix = f"rename one, for example the factor to 'f_{clash[0]}'"
            raise ConfigError(f"{clash[0]!r} names both a factor and a variable; {fix}", at="$.scopes")
        for field in ("factor_owners", "variable_owners"):
            if strange := [owner for owner in getattr(self, field) if not (isinstance(owner, str) and owner)]:
                raise ConfigError(f"got the owner {short(strange[0])}; wanted the name of an agent", at=f"$.{field}")
        for field in ("scopes", "joined"):
            object.__setattr__(self, field, tuple(map(tuple, getattr(self, field))))
        for field in ("factors", "scopes", "factor_owners", "variables", "variable_owners", "joined"):
            object.__setattr__(self, field, exact(tuple(getattr(self, field))))

    @classmethod
    def from_scopes(
        cls,
        scopes: Mapping[str, Sequence[str]],
        owners: Mapping[str, str] | None = None,
        variable_owners: Mapping[str, str] | None = None,
    ) -> "FactorGraph":
        """Build a graph from the factors' scopes.

        Args:
            scopes: ``{factor: [variable, …]}``; a scope has at least one variable and none twice.
            owners: ``{factor: agent}`` for every factor. By default, a factor is owned by its first variable's owner.
            variable_owners: ``{variable: agent}`` for every variable. By default, a variable belongs to the owner of
                the first factor that has it. Without ``owners`` too, it belongs to an agent of its name.

        Returns:
            The graph.

        Raises:
            ConfigError: If there is no factor, a scope is empty or repeats a variable, or a name is used twice.
            OwnershipError: If a factor or variable has no owner, or an unknown one is given an owner.
        """
        if not table(scopes, "{factor: [variable, …]}", "$.scopes"):
            raise ConfigError("got no factors; wanted at least one scope, for example {'f': ['x']}", at="$.scopes")
        for factor, scope in scopes.items():
            distinct_names(scope, "variable", f"$.scopes.{factor}")
        variables = tuple(dict.fromkeys(variable for scope in scopes.values() for variable in scope))
        if owners is not None:
            _check_owners("factor", owners, tuple(scopes))
        if variable_owners is None:
            variable_owners = dict(zip(variables, variables, strict=True))
            if owners is not None:  # the first factor's owner
                for factor in reversed([*scopes]):
                    variable_owners |= dict.fromkeys(scopes[factor], owners[factor])
        _check_owners("variable", variable_owners, variables)
        owners = owners or {factor: variable_owners[scope[0]] for factor, scope in scopes.items()}
        of_factors, of_variables = tuple(owners[f] for f in scopes), tuple(variable_owners[x] for x in variables)
        return cls(tuple(scopes), tuple(map(tuple, scopes.values())), of_factors, variables, of_variables)

    @classmethod
    def from_networkx(cls, g: "nx.Graph[Any]", factors: "Factors | Iterable[Hashable] | None" = None) -> "FactorGraph":
        """Build a graph from one of networkx, in which factors are nodes, edges or cliques.

        Factors and variables have the nodes' texts as names. The attribute ``owner`` of a node or an edge is the agent
        of its factor or variable; all nodes of a kind have it, or none.

        Args:
            g: Undirected, without parallel edges and loops.
            factors: The nodes that are factors; their edges lead to the variables of their scopes. ``"edges"``: all
                nodes are variables, and each edge is a factor ``f(u,v)``; ``"cliques"``: each largest clique is a
                factor. With these two, a node without an edge is a factor. None: nodes with ``bipartite=0`` are
                variables, with ``bipartite=1`` factors, as :meth:`to_networkx` makes them. An edge's ``axis`` is the
                position of the variable in the scope of a factor's node; without it the order of the edges counts.

        Raises:
            ConfigError: If the graph is directed or has parallel edges, loops or no nodes. Also if two nodes have the
                same text, a node lacks ``bipartite``, an edge joins two nodes of one kind, or a variable has no factor.
            OwnershipError: If only some nodes of a kind have an ``owner``.

        Example:
            >>> import networkx as nx
            >>> FactorGraph.from_networkx(nx.path_graph(3), factors="edges").scopes
            (('0', '1'), ('1', '2'))
            >>> FactorGraph.from_networkx(nx.complete_graph(3), factors="cliques").factors
            ('f(0,1,2)',)
        """
        return cls._of(read_graph(g, factors))

    @classmethod
    def of_any(cls, graph: AnyGraph, variables: Iterable[Hashable] | None = None) -> "FactorGraph":
        """Graph from a user's argument: a ``FactorGraph``, or one of networkx, as for :meth:`from_networkx`.

        Nodes with ``bipartite=1`` are factors, else nodes not in ``variables``, else (if all are variables) edges.
        """
        return graph if isinstance(graph, FactorGraph) else cls._of(read_with_variables(graph, variables))

    @classmethod
    def with_tables(cls, graph: AnyGraph, tables: AnyTables) -> "tuple[FactorGraph, Mapping[str, ArrayLike]]":
        """Graph and tables per factor from a user's arguments of any kind.

        Args:
            graph: A ``FactorGraph``, or one of networkx. There, factors are nodes with ``bipartite=1``, or with a table
                and no neighbour with one. Else all nodes are variables.
            tables: Table of each factor. If all nodes are variables: by edge ``(u, v)`` or clique ``(u, v, w)``, with
                axes in this order, and by node. None: the attributes ``table`` of nodes and edges; an edge's axes are
                as in ``graph.edges``.

        Raises:
            ConfigError: If it is not a graph, or :meth:`from_networkx` refuses it.
            ShapeError: If tables do not fit the graph.
        """
        if not isinstance(cast(object, tables), Mapping | None) or (tables is None and isinstance(graph, FactorGraph)):
            raise ShapeError(f"tables: got {short(tables)}; wanted {{factor: array}}, one for each factor")
        if isinstance(graph, FactorGraph):
            return graph, tables or {}
        content = read_with_tables(graph, tables)
        return cls._of(content), content.tables or {}

    @classmethod
    def _of(cls, content: GraphContent) -> "FactorGraph":
        return cls.from_scopes(content.scopes, owners=content.owners, variable_owners=content.variable_owners)

    def to_networkx(self) -> "nx.Graph[str]":
        """Bipartite networkx graph, without ``joined``; nodes have ``bipartite`` and ``owner``, edges ``axis``."""
        import networkx as nx  # late: takes a tenth of a second to import

        g: nx.Graph[str] = nx.Graph()
        for variable, owner in zip(self.variables, self.variable_owners, strict=True):
            g.add_node(variable, bipartite=0, owner=owner)
        for factor, scope, owner in zip(self.factors, self.scopes, self.factor_owners, strict=True):
            g.add_node(factor, bipartite=1, owner=owner)
            for axis, variable in enumerate(scope):
                g.add_edge(factor, variable, axis=axis)
        return g

    def scope(self, factor: str) -> tuple[str, ...]:
        """Variables of a factor, in the order of its table's axes."""
        return self.scopes[self.place_of[factor]]

    def factors_of(self, variable: str) -> tuple[str, ...]:
        """Factors of a variable, in the graph's order."""
        return self._factors_by_variable[variable]

    def neighbours(self, factor: str) -> tuple[str, ...]:
        """Other factors that share a variable with a factor, in the graph's order."""
        sharing = {other for variable in self.scope(factor) for other in self.factors_of(variable)} - {factor}
        return tuple(sorted(sharing, key=self.place_of.__getitem__))

    def owner(self, factor: str) -> str:
        """Agent that owns a factor."""
        return self.factor_owners[self.place_of[factor]]

    def variable_owner(self, variable: str) -> str:
        """Agent that sets a variable."""
        return self.variable_owners[self.column_of[variable]]

    def factors_owned_by(self, agent: str) -> tuple[str, ...]:
        """Factors of an agent, in the graph's order."""
        return self._factors_by_owner.get(agent, ())

    def variables_owned_by(self, agent: str) -> tuple[str, ...]:
        """Variables of an agent, in the graph's order."""
        return self._variables_by_owner.get(agent, ())

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """All owners: the variables' owners in the variables' order, then other owners of factors."""
        return tuple(dict.fromkeys([*self.variable_owners, *self.factor_owners]))

    @property
    def max_factor_size(self) -> int:
        """Number of variables in the largest scope."""
        return max(len(scope) for scope in self.scopes)

    @cached_property
    def is_forest(self) -> bool:
        """True if the bipartite graph has no loop, so that max-sum is exact on it."""
        n_nodes, apart = len(self.factors) + len(self.variables), replace(self, joined=()) if self.joined else self
        return sum(map(len, self.scopes)) == n_nodes - len(apart.components)

    @cached_property
    def components(self) -> tuple["FactorGraph", ...]:
        """Connected parts, in the order of their first factors, by :meth:`of`; a connected graph is its own part."""
        from scipy.sparse import coo_array  # late: takes a tenth of a second to import
        from scipy.sparse.csgraph import connected_components

        n_variables, scopes = len(self.variables), (*self.scopes, *self.joined)
        n = n_variables + len(scopes)
        ends = [(n_variables + place, self.column_of[x]) for place, scope in enumerate(scopes) for x in scope]
        rows, columns = np.array(ends).T
        pairs = coo_array((np.ones(len(ends)), (rows, columns)), shape=(n, n))
        _, labels = connected_components(pairs, directed=False)
        parts_of = labels[n_variables : n_variables + len(self.factors)].tolist()
        members = grouped(zip(parts_of, self.factors, strict=True))
        if len(members) == 1:
            return (self,)
        parts = tuple(self.of(factors) for factors in members.values())
        for part in parts:
            part.__dict__["components"] = (part,)  # cached, so that a connected part is not searched again
        return parts

    def of(self, factors: Iterable[str]) -> "FactorGraph":
        """Graph of some factors (at least one), in order, with owners and groups; variables as they appear."""
        wanted = sorted({self.place_of[factor] for factor in factors})
        scopes = {self.factors[i]: self.scopes[i] for i in wanted}
        acted = {variable: self.variable_owner(variable) for scope in scopes.values() for variable in scope}
        graph = FactorGraph.from_scopes(scopes, {factor: self.owner(factor) for factor in scopes}, acted)
        kept = (tuple(variable for variable in group if variable in acted) for group in self.joined)
        joined = tuple(group for group in kept if len(group) > 1)
        return replace(graph, joined=joined) if joined else graph

    def __repr__(self) -> str:
        return (
            f"FactorGraph({len(self.factors)} factors, {len(self.variables)} variables, {len(self.agents)} agents, "
            f"max_factor_size={self.max_factor_size}, is_forest={self.is_forest})"
        )

    def _repr_html_(self) -> str:
        rows = [*zip(self.factors, map(", ".join, self.scopes), self.factor_owners, strict=True)]
        return html_table(repr(self), rows, header=("factor", "variables", "agent"), more="factors")

    @cached_property
    def column_of(self) -> Mapping[str, int]:
        """Index of each variable among the variables."""
        return _ByName("variable", ((variable, place) for place, variable in enumerate(self.variables)))

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """For each factor, the indices of its variables among the graph's variables."""
        return tuple(tuple(self.column_of[variable] for variable in scope) for scope in self.scopes)

    @cached_property
    def edges(self) -> Edges:
        """Edges as arrays."""
        return Edges.of(self.scopes, self.column_of)

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Index of each factor in ``factors``."""
        return _ByName("factor", ((factor, place) for place, factor in enumerate(self.factors)))

    @cached_property
    def _factors_by_owner(self) -> dict[str, tuple[str, ...]]:
        return grouped(zip(self.factor_owners, self.factors, strict=True))

    @cached_property
    def _variables_by_owner(self) -> dict[str, tuple[str, ...]]:
        return grouped(zip(self.variable_owners, self.variables, strict=True))

    @cached_property
    def _factors_by_variable(self) -> "_ByName[tuple[str, ...]]":
        edges = ((x, factor) for factor, scope in zip(self.factors, self.scopes, strict=True) for x in scope)
        return _ByName("variable", grouped(edges).items())


class _ByName(dict[str, Value]):
    def __init__(self, kind: str, pairs: Iterable[tuple[str, Value]]) -> None:
        super().__init__(pairs)
        self._kind = kind

    def __missing__(self, name: str) -> Value:
        raise KeyError(f"no {self._kind} {name!r} in this graph; it has {', '.join(list(self)[:8])}")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, tuple[Value, ...]]:
    """Values of each key, in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(group) for key, group in groups.items()}


def _check_owners(kind: str, owners: Mapping[str, object], names: tuple[str, ...]) -> None:
    option = "owners" if kind == "factor" else "variable_owners"
    table(owners, "{name: agent}", f"$.{option}")
    if missing := [name for name in names if name not in owners]:
        fix = f"each {kind} needs exactly one. Give it to one agent in `{option}`."
        raise OwnershipError(f"{kind} {missing[0]!r} has no owner; {fix}")
    known = set(names)
    if unknown := [name for name in owners if name not in known]:
        raise OwnershipError(f"`{option}` has {unknown[0]!r}, which is not a {kind} of this graph; leave it out.")
    if bad := [name for name in names if not (isinstance(owners[name], str) and owners[name])]:
        fix = f"each {kind} needs exactly one owner, a text. Name one agent in `{option}`, or split the {kind}."
        raise OwnershipError(f"{kind} {bad[0]!r} is owned by {owners[bad[0]]!r}; {fix}")
