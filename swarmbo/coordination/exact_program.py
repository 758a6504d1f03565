"""Variable elimination by agents: what they know beforehand, what each one does, and the traffic that follows."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swarmbo.coordination.elimination import Bucket, choose, eliminate
from swarmbo.coordination.ledger import Ledger
from swarmbo.coordination.messages import Decided, Eliminated, FactorTable, packed, unpacked
from swarmbo.coordination.program import Heard, Outcome, Post, Program
from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes


@dataclass(frozen=True)
class EliminationPlan:
    """The commonly known side of an elimination: the owner of a variable takes its step.

    Args:
        graph: Scopes and owners.
        sizes: Number of values by variable.
        buckets: The steps by variable, in the order of elimination.
    """

    graph: FactorGraph
    sizes: Mapping[str, int]
    buckets: Mapping[str, Bucket]

    @property
    def rounds(self) -> int:
        """Synchronous rounds: tables pass up the longest path of steps, and choices come back down."""
        return 2 * max(bucket.height for bucket in self.buckets.values())

    def programs(self, agent: str, tables: Mapping[str, Table], post: Post) -> Iterable[Program]:
        """What one agent does; see :class:`swarmbo.coordination.program.Plan`."""
        if agent in self.graph.agents:
            yield self._program(agent, tables, post)

    def traffic(self, chosen: Mapping[str, int], routes: Routes) -> Traffic:
        """What crosses the links.

        Args:
            chosen: The index that each variable ends up with.
            routes: Who reaches whom.
        """
        ledger = Ledger(routes)
        for variable, bucket in self.buckets.items():
            actor = self.graph.variable_owner(variable)
            for factor in bucket.factors:
                shape = self._shape(self.graph.scope(factor))
                ledger.add(self.graph.owner(factor), actor, FactorTable(factor, shape, b""), math.prod(shape))
            if bucket.parent is not None:
                above = self.graph.variable_owner(bucket.parent)
                shape = self._shape(bucket.scope)
                ledger.add(actor, above, Eliminated(variable, shape, b""), math.prod(shape))
                indices = tuple(chosen[x] for x in bucket.scope)
                ledger.add(above, actor, Decided(variable, indices))
        return ledger.traffic

    def _program(self, agent: str, tables: Mapping[str, Table], post: Post) -> Program:
        graph, heard = self.graph, Heard()
        own = [self.buckets[x] for x in self.buckets if graph.variable_owner(x) == agent]
        joined_at = {factor: variable for variable, bucket in self.buckets.items() for factor in bucket.factors}
        for factor in graph.factors_owned_by(agent):
            if (actor := graph.variable_owner(joined_at[factor])) != agent:
                post(actor, FactorTable(factor, tables[factor].shape, packed(tables[factor])))
        parts_of: dict[str, list[tuple[tuple[str, ...], Table]]] = {}
        for bucket in own:
            parts = parts_of[bucket.variable] = []
            for factor in bucket.factors:
                if factor in tables:
                    parts.append((graph.scope(factor), tables[factor]))
                else:
                    yield from heard.wait([("table", factor)])
                    table: FactorTable = heard["table", factor]
                    parts.append((graph.scope(factor), unpacked(table.entries, *table.shape)))
            for child in bucket.children:
                yield from heard.wait([("eliminated", child)])
                left: Eliminated = heard["eliminated", child]
                parts.append((self.buckets[child].scope, unpacked(left.entries, *left.shape)))
            if bucket.parent is not None:
                result = eliminate(bucket, parts, self.sizes)
                post(graph.variable_owner(bucket.parent), Eliminated(bucket.variable, result.shape, packed(result)))
        decisions: dict[str, int] = {}
        for bucket in reversed(own):
            around: dict[str, int] = {}
            if bucket.parent is not None:
                yield from heard.wait([("decided", bucket.variable)])
                decided: Decided = heard["decided", bucket.variable]
                around = dict(zip(bucket.scope, decided.indices, strict=True))
            around[bucket.variable] = choose(bucket, parts_of[bucket.variable], around)
            decisions[bucket.variable] = around[bucket.variable]
            for child in bucket.children:
                indices = tuple(around[x] for x in self.buckets[child].scope)
                post(graph.variable_owner(child), Decided(child, indices))
        return Outcome(decisions, "exact", self.rounds)

    def _shape(self, scope: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[x] for x in scope)
