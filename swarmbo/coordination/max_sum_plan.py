"""What every agent knows before max-sum starts, and the traffic that follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from swarmbo.coordination.decoding import decoding_order
from swarmbo.coordination.ledger import Ledger, extra_width
from swarmbo.coordination.messages import Choice, Conditioned, FromFactor, FromVariable, Line, Report, Verdict
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes


@dataclass(frozen=True)
class Level:
    """The messages that become final in one round.

    Args:
        from_variables: Variables with the factors that they now write to.
        from_factors: Factors with the variables that they then write to.
    """

    from_variables: tuple[tuple[str, tuple[str, ...]], ...]
    from_factors: tuple[tuple[str, tuple[str, ...]], ...]


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


@dataclass(frozen=True)
class PartPlan:
    """The commonly known side of solving one connected part.

    Args:
        graph: The part.
        index: Its place among the parts.
        sizes: Number of values by variable.
        routes: Who reaches whom.
    """

    graph: FactorGraph
    index: int
    sizes: Mapping[str, int]
    routes: Routes

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The order of decoding."""
        return decoding_order(self.graph)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The rounds of a part that is a tree."""
        return tree_levels(self.graph)

    @cached_property
    def tree(self) -> SpanningTree:
        """The agents' tree, used by a part with loops."""
        return spanning_tree(self.graph, self.routes)

    @cached_property
    def earlier(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For each (factor, variable) the factor's variables that are decided before it."""
        place = {variable: i for i, variable in enumerate(self.order)}
        return {
            (f, x): tuple(y for y in self.graph.scope(f) if place[y] < place[x])
            for f in self.graph.factors
            for x in self.graph.scope(f)
        }

    def told(self, variable: str) -> tuple[str, ...]:
        """The agents that a variable's choice is told to: the owners of its factors, each once."""
        return tuple(dict.fromkeys(self.graph.owner(factor) for factor in self.graph.factors_of(variable)))

    def tree_traffic(self, chosen: Mapping[str, int]) -> Traffic:
        """What crosses the links on a part that is a tree.

        Args:
            chosen: The index that each variable ends up with.
        """
        graph, ledger = self.graph, Ledger(self.routes)
        for f in graph.factors:
            for x in graph.scope(f):
                actor, owner, size = graph.variable_owner(x), graph.owner(f), self.sizes[x]
                if len(graph.scope(f)) > 1:
                    ledger.add(actor, owner, FromVariable(f, x, b""), size)
                ledger.add(owner, actor, FromFactor(f, x, b""), size)
        self._decoding_traffic(ledger, chosen)
        return ledger.traffic

    def loopy_traffic(
        self,
        choices: Sequence[Int[np.ndarray, " n_variables"]],
        last: Mapping[str, int],
        mended: Sequence[Mapping[str, int]] = (),
    ) -> Traffic:
        """What crosses the links on a part with loops.

        Args:
            choices: The variables' own choices before the first round and after each round.
            last: The joint choice that is decoded at the end.
            mended: Those after each sweep of repair.
        """
        graph, tree, ledger = self.graph, self.tree, Ledger(self.routes)
        n_rounds = len(choices) - 1
        widths = extra_width(np.array(choices)).sum(axis=0)
        width_of = dict(zip(graph.variables, widths.tolist(), strict=True))
        for f in graph.factors:
            for x in graph.scope(f):
                actor, owner, size = graph.variable_owner(x), graph.owner(f), self.sizes[x]
                ledger.add(actor, owner, FromVariable(f, x, b""), size, times=n_rounds + 1, extra=width_of[x])
                ledger.add(owner, actor, FromFactor(f, x, b""), size, times=n_rounds)
        self._decoding_traffic(ledger, last)
        for sweep in mended:
            self._sweep_traffic(ledger, sweep)
        for agent, parent in tree.parent.items():
            if parent is None:
                continue
            report, n_values = Report(self.index, agent, b"", 0.0, False), len(tree.factors[agent])
            ledger.add(agent, parent, report, n_values, times=n_rounds + len(mended))
            ledger.add(agent, parent, report, 2 * n_values)
            ledger.add(parent, agent, Verdict(self.index, 0, False), times=n_rounds + 1 + len(mended))
        return ledger.traffic

    def _decoding_traffic(self, ledger: Ledger, chosen: Mapping[str, int]) -> None:
        for x in self.order:
            actor = self.graph.variable_owner(x)
            for f in self.graph.factors_of(x):
                if self.earlier[f, x]:
                    ledger.add(self.graph.owner(f), actor, Conditioned(f, x, b""), self.sizes[x])
            self._choice_traffic(ledger, x, chosen[x])

    def _sweep_traffic(self, ledger: Ledger, chosen: Mapping[str, int]) -> None:
        for x in self.order:
            for f in self.graph.factors_of(x):
                owner, actor = self.graph.owner(f), self.graph.variable_owner(x)
                ledger.add(owner, actor, Line(f, x, b"", 1.0), self.sizes[x])
            self._choice_traffic(ledger, x, chosen[x])

    def _choice_traffic(self, ledger: Ledger, x: str, index: int) -> None:
        for agent in self.told(x):
            ledger.add(self.graph.variable_owner(x), agent, Choice(x, 0), extra=extra_width(index))


def tree_levels(graph: FactorGraph) -> tuple[Level, ...]:
    """The rounds of max-sum on a forest: half its longest path (in edges of the bipartite graph), rounded up.

    Messages of synchronous max-sum that are final in round t are the same in every later round, so nothing is lost by
    sending each only then. Variables do not write to factors that have no other variable.

    Args:
        graph: A forest; elsewhere some messages would never be final.

    Returns:
        One level a round.
    """
    assert graph.is_forest
    wait_of_variable = {(x, f): len(graph.factors_of(x)) - 1 for x in graph.variables for f in graph.factors_of(x)}
    wait_of_factor = {(f, x): len(graph.scope(f)) - 1 for f in graph.factors for x in graph.scope(f)}
    ready = [(x, f) for (x, f), waiting in wait_of_variable.items() if waiting == 0 and len(graph.scope(f)) > 1]
    outgoing = [(f, x) for (f, x), waiting in wait_of_factor.items() if waiting == 0]
    levels: list[Level] = []
    while ready or outgoing:
        for x, f in ready:
            for other in graph.scope(f):
                if other != x:
                    wait_of_factor[f, other] -= 1
                    if wait_of_factor[f, other] == 0:
                        outgoing.append((f, other))
        levels.append(Level(_gathered(ready), _gathered(outgoing)))
        ready = []
        for f, x in outgoing:
            for other in graph.factors_of(x):
                if other != f:
                    wait_of_variable[x, other] -= 1
                    if wait_of_variable[x, other] == 0 and len(graph.scope(other)) > 1:
                        ready.append((x, other))
        outgoing = []
    return tuple(levels)


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


def _gathered(edges: list[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    recipients: dict[str, list[str]] = {}
    for sender, recipient in edges:
        recipients.setdefault(sender, []).append(recipient)
    return tuple((sender, tuple(others)) for sender, others in recipients.items())
