"""What every agent knows before max-sum starts, and the traffic that follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from swarmbo.coordination.decoding import decoding_order
from swarmbo.coordination.ledger import Ledger
from swarmbo.coordination.messages import (
    Choice,
    Conditioned,
    FromFactor,
    FromVariable,
    Report,
    Verdict,
    extra_width,
)
from swarmbo.coordination.spanning_tree import SpanningTree, spanning_tree
from swarmbo.coordination.tree_schedule import Level, tree_levels
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes


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

    def loopy_traffic(self, choices: Sequence[Int[np.ndarray, " n_variables"]], last: Mapping[str, int]) -> Traffic:
        """What crosses the links on a part with loops.

        Args:
            choices: The variables' own choices before the first round and after each round.
            last: The joint choice that is decoded at the end.
        """
        graph, tree, ledger = self.graph, self.tree, Ledger(self.routes)
        n_rounds = len(choices) - 1
        said = np.array(choices)
        widths = ((said >= 2**7).astype(int) + (said >= 2**8) + 2 * (said >= 2**16)).sum(axis=0)
        width_of = dict(zip(graph.variables, widths.tolist(), strict=True))
        for f in graph.factors:
            for x in graph.scope(f):
                actor, owner, size = graph.variable_owner(x), graph.owner(f), self.sizes[x]
                ledger.add(actor, owner, FromVariable(f, x, b""), size, times=n_rounds + 1, extra=width_of[x])
                ledger.add(owner, actor, FromFactor(f, x, b""), size, times=n_rounds)
        self._decoding_traffic(ledger, last)
        for agent, parent in tree.parent.items():
            if parent is None:
                continue
            report, n_values = Report(self.index, agent, b"", 0.0, False), len(tree.factors[agent])
            ledger.add(agent, parent, report, n_values, times=n_rounds)
            ledger.add(agent, parent, report, 2 * n_values)
            ledger.add(parent, agent, Verdict(self.index, 0, False), times=n_rounds + 1)
        return ledger.traffic

    def _decoding_traffic(self, ledger: Ledger, chosen: Mapping[str, int]) -> None:
        for x in self.order:
            actor = self.graph.variable_owner(x)
            for f in self.graph.factors_of(x):
                if self.earlier[f, x]:
                    ledger.add(self.graph.owner(f), actor, Conditioned(f, x, b""), self.sizes[x])
            for agent in self.told(x):
                ledger.add(actor, agent, Choice(x, 0), extra=extra_width(chosen[x]))
