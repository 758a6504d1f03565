"""A connected part as every agent knows it beforehand, and views of it: of one agent, or of all in one process.

A method is written once, as a generator that works on a view and yields ``swarmbo.coordination.requests``. It computes
for the factors and variables of its view, and gets the data of all others by its requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack, stacks_of
from swarmbo.graph.box_functions import Passes, Received, Rows, in_turn, neighbours_in_turn
from swarmbo.graph.factor_graph import grouped
from swarmbo.graph.groups import rows_of
from swarmbo.transport import Routes


@dataclass(frozen=True)
class Level:
    """Messages that become final in one round: senders, each with its recipients."""

    from_variables: tuple[tuple[str, tuple[str, ...]], ...]
    from_factors: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class SpanningTree:
    """Tree of agents, breadth first from the first agent, over the radio links; ``factors`` are those of subtrees."""

    parent: dict[str, str | None]
    children: dict[str, tuple[str, ...]]
    factors: dict[str, tuple[str, ...]]

    @cached_property
    def leaves_first(self) -> Sequence[str]:
        """Agents, each after all its children; the root comes last."""
        order = [agent for agent, parent in self.parent.items() if parent is None]
        for agent in order:
            order.extend(self.children[agent])
        return order[::-1]

    @cached_property
    def behind(self) -> dict[str, frozenset[str]]:
        """Agents of the subtree of each agent, itself included."""
        found: dict[str, frozenset[str]] = {}
        for agent in self.leaves_first:
            found[agent] = frozenset([agent]).union(*(found[child] for child in self.children[agent]))
        return found


@dataclass(frozen=True, eq=False)
class Part:
    """A connected part, or factors that share no variable; only ``present`` agents (None: all) add and forward data."""

    graph: FactorGraph
    index: int
    routes: Routes
    seed: int = 0
    present: tuple[str, ...] | None = None

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """Present agents, in the graph's order."""
        return tuple(agent for agent in self.graph.agents if self.present is None or agent in self.present)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Variables breadth first from the first of each connected part: on a forest, parents before children."""
        graph = self.graph
        order: dict[str, None] = {}
        for start in graph.variables:
            frontier = [start] if start not in order else []
            order[start] = None
            for variable in frontier:
                for factor in graph.factors_of(variable):
                    for other in graph.scope(factor):
                        if other not in order:
                            order[other] = None
                            frontier.append(other)
        return tuple(order)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Rounds of max-sum on a tree, half its longest path: a final message never changes, so each is sent once."""
        graph = self.graph
        assert graph.is_forest
        wait_of_variable = {(x, f): len(graph.factors_of(x)) - 1 for x in graph.variables for f in graph.factors_of(x)}
        wait_of_factor = {(f, x): len(graph.scope(f)) - 1 for f in graph.factors for x in graph.scope(f)}
        queue = [(x, f) for (x, f), waiting in wait_of_variable.items() if waiting == 0 and len(graph.scope(f)) > 1]
        outgoing = [(f, x) for (f, x), waiting in wait_of_factor.items() if waiting == 0]
        levels: list[Level] = []
        while queue or outgoing:
            for x, f in queue:
                for other in graph.scope(f):
                    if other != x:
                        wait_of_factor[f, other] -= 1
                        if wait_of_factor[f, other] == 0:
                            outgoing.append((f, other))
            levels.append(Level(*(tuple(grouped(edges).items()) for edges in (queue, outgoing))))
            queue = []
            for f, x in outgoing:
                for other in graph.factors_of(x):
                    if other != f:
                        wait_of_variable[x, other] -= 1
                        if wait_of_variable[x, other] == 0 and len(graph.scope(other)) > 1:
                            queue.append((x, other))
            outgoing = []
        return tuple(levels)

    @cached_property
    def tree(self) -> SpanningTree:
        """Tree of the present agents; agents that only relay are skipped."""
        graph, agents = self.graph, self.agents
        root, *others = agents
        members = set(agents)
        parent: dict[str, str | None] = {root: None}
        for agent in others:
            parent[agent] = next(on_path for on_path in self.routes.path(agent, root)[1:] if on_path in members)
        children = grouped((above, agent) for agent, above in parent.items() if above is not None)
        below: dict[str, list[str]] = {agent: [] for agent in agents}
        for factor in graph.factors:
            ancestor: str | None = owner if (owner := graph.owner(factor)) in members else None
            while ancestor is not None:
                below[ancestor].append(factor)
                ancestor = parent[ancestor]
        factors = {agent: tuple(own) for agent, own in below.items()}
        return SpanningTree(parent, dict.fromkeys(agents, ()) | children, factors)

    @cached_property
    def earlier(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Variables of a factor that are decoded before one of its variables, by (factor, variable)."""
        index_of = {variable: i for i, variable in enumerate(self.order)}
        return {
            (f, x): tuple(y for y in self.graph.scope(f) if index_of[y] < index_of[x])
            for f in self.graph.factors
            for x in self.graph.scope(f)
        }

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Other factors that share a variable with each factor, in the graph's order."""
        return {factor: self.graph.neighbours(factor) for factor in self.graph.factors}

    @cached_property
    def is_shared(self) -> dict[str, bool]:
        """True for each variable of several factors."""
        return {variable: len(self.graph.factors_of(variable)) > 1 for variable in self.graph.variables}


Copies = Sequence[Float[np.ndarray, "_g m _a"]]  # for each stack, its factors' columns of joint points


@dataclass(frozen=True, eq=False)
class LocalView:
    """View of a part by an agent: its own factors and variables, in the order of the part."""

    part: Part
    factors: tuple[str, ...]
    variables: tuple[str, ...]

    @classmethod
    def of(cls, part: Part, agent: str | None = None) -> "LocalView":
        """View of an agent; None: of the whole part."""
        if agent is None:
            return LocalView(part, part.graph.factors, part.graph.variables)
        return LocalView(part, part.graph.factors_owned_by(agent), part.graph.variables_owned_by(agent))

    @property
    def graph(self) -> FactorGraph:
        """The part's scopes and owners."""
        return self.part.graph

    @property
    def is_whole(self) -> bool:
        """True for a view of the whole part."""
        graph = self.graph
        return (len(self.factors), len(self.variables)) == (len(graph.factors), len(graph.variables))

    @cached_property
    def seen(self) -> tuple[str, ...]:
        """Variables of the own factors."""
        return tuple(dict.fromkeys(x for factor in self.factors for x in self.graph.scope(factor)))


@dataclass(frozen=True, eq=False)
class BoxView(LocalView):
    """View of a part with continuous domains; only own factors' columns of joint points (m, n) are valid."""

    functions: BoxFunctions

    @classmethod
    def on(cls, view: LocalView, functions: BoxFunctions) -> Self:
        """Make a view with functions of at least the own factors."""
        return cls(view.part, view.factors, view.variables, functions)

    @cached_property
    def stacks(self) -> tuple[FactorStack, ...]:
        """Stacks of the own factors."""
        return stacks_of(self.functions.graph, self.factors) if self.factors else ()

    @property
    def column_of(self) -> Mapping[str, int]:
        """Columns of joint points, by variable."""
        return self.functions.graph.column_of

    @cached_property
    def degree(self) -> Float[np.ndarray, " n"]:
        """Number of the part's factors of each variable; 1 for variables of other parts."""
        degree = np.ones(len(self.column_of))
        for variable in self.graph.variables:
            degree[self.column_of[variable]] = len(self.graph.factors_of(variable))
        return degree

    @cached_property
    def is_home(self) -> tuple[Bool[np.ndarray, "_g 1 _a"], ...]:
        """For each stack, True where a factor is the first of its variable: it counts the variable in sums."""
        graph = self.graph
        return tuple(
            np.array([[graph.factors_of(x)[0] == f for x in graph.scope(f)] for f in stack.factors])[:, None, :]
            for stack in self.stacks
        )

    @cached_property
    def neighbours_in_turn(self) -> Passes:
        """Pairs of an own factor and a neighbour, as rows of the stacks; pass k has each factor's k-th neighbour."""
        return neighbours_in_turn(self.part.neighbours, self.stacks)

    @cached_property
    def copies_in_turn(self) -> Passes:
        """Pairs of a variable's column and an entry of the stacks, end to end; pass k has each variable's k-th copy."""
        edges = ((f, x) for stack in self.stacks for f in stack.factors for x in self.graph.scope(f))
        entry = {edge: i for i, edge in enumerate(edges)}
        return in_turn((self.column_of[x], entry[f, x]) for x in self.graph.variables for f in self.graph.factors_of(x))

    @cached_property
    def _order(self) -> list[int]:
        row = rows_of(self.stacks)
        return [row[factor] for factor in self.factors]

    def take(self, Z: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m _a"]]:
        """Coordinates of joint points for the own factors."""
        return [stack.take(Z) for stack in self.stacks]

    def box(self, stack: FactorStack) -> tuple[Float[np.ndarray, "g 1 a"], Float[np.ndarray, "g 1 a"]]:
        """Lower and upper corners of the box of each factor of a stack."""
        return self.functions.low[stack.columns][:, None, :], self.functions.high[stack.columns][:, None, :]

    def in_order(self, rows: Rows) -> Float[np.ndarray, "factors m"]:
        """Numbers of the own factors, in the order of the part."""
        return np.concatenate(rows)[self._order]

    def by_variable(self, entries: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m"]]:
        """Sums over variables, split among factors so that every variable is counted once."""
        rows = zip(self.stacks, self.is_home, strict=True)
        return [(stack.take(entries) * home).sum(axis=-1) for stack, home in rows]

    def values(self, points: Copies, received: Sequence[Received]) -> list[Float[np.ndarray, "_g m"]]:
        """Values of the own factors."""
        rows = zip(self.stacks, points, received, strict=True)
        return [self.functions.value(*row) for row in rows]
