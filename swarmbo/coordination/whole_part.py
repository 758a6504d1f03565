"""A connected part in one process: requests are answered at once, and the messages that they stand for are counted."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.ledger import Ledger
from swarmbo.coordination.local_functions import LocalFunctions, exchange
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_solver import MaxSum
from swarmbo.coordination.messages import Consensus, Copy, Published, Ruling, Slope, Tally
from swarmbo.coordination.share import Choose, Copies, Exchange, Gather, PartOutcome, Request, Share, Steps, Tell, Total
from swarmbo.records import Traffic


class WholePart:
    """Answers what a method asks while it works on all factors of a part.

    Args:
        plan: The part's scopes, owners and tree.
        functions: Of all factors.
        max_sum: What chooses from tables.
    """

    def __init__(self, plan: PartPlan, functions: LocalFunctions, max_sum: MaxSum) -> None:
        self.plan, self.graph, self.functions, self.max_sum = plan, plan.graph, functions, max_sum
        self.share = Share(plan.graph, functions, plan.graph.factors)
        self.traffic = Traffic()
        self._known: dict[tuple[object, int], Traffic] = {}

    def run(self, steps: Steps) -> PartOutcome:
        """Answer until the method has ended."""
        try:
            request = next(steps)
            while True:
                request = steps.send(self._answer(request))
        except StopIteration as finished:
            return finished.value

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Exchange):
            self._count(Exchange, request.points[0].shape[1])
            return exchange(self.functions, self.share.stacks, request.points)
        if isinstance(request, Gather):
            self._count(request.kind, request.n_points)
            return self._gathered(request.copies)
        if isinstance(request, Total):
            self._count(Total, request.terms[0].size)
            return self._total(request.terms)
        if isinstance(request, Choose):
            chosen, _, _, crossed = self.max_sum.solve_part(self.plan, request.tables)
            self.traffic += crossed
            self._count(Choose, 1)
            return chosen
        self._count(Tell, 1)
        return {variable: float(request.point[place]) for variable, place in self._places.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        place = {variable: i for i, variable in enumerate(self.functions.graph.variables)}
        return {variable: place[variable] for variable in self.graph.variables}

    @cached_property
    def _passes(self) -> tuple[tuple[Int[np.ndarray, " v"], Int[np.ndarray, " v"]], ...]:
        """Entries of copies to add up: in pass k those of each variable's k-th factor."""
        entry: dict[tuple[str, str], int] = {}
        for stack in self.share.stacks:
            for factor in stack.factors:
                for variable in self.graph.scope(factor):
                    entry[factor, variable] = len(entry)
        passes: list[tuple[list[int], list[int]]] = []
        for variable in self.graph.variables:
            for k, factor in enumerate(self.graph.factors_of(variable)):
                if k == len(passes):
                    passes.append(([], []))
                passes[k][0].append(self._places[variable])
                passes[k][1].append(entry[factor, variable])
        return tuple((np.array(columns), np.array(entries)) for columns, entries in passes)

    def _gathered(self, copies: Copies) -> Float[np.ndarray, "m n"]:
        m = copies[0].shape[1]
        entries = np.concatenate([np.moveaxis(X, 1, 0).reshape(m, -1) for X in copies], axis=1)
        out = np.zeros((m, len(self.functions.low)))
        for columns, places in self._passes:
            out[:, columns] += entries[:, places]
        return out

    def _total(self, terms: Float[np.ndarray, "f k m"]) -> Float[np.ndarray, "k m"]:
        """Every agent adds its own terms, then what its children say: from the leaves of the tree to its root."""
        sums = {agent: np.zeros(terms.shape[1:]) for agent in self.graph.agents}
        for owner, term in zip(self._owners, terms, strict=True):
            sums[owner] = sums[owner] + term
        for agent in self._leaves_first:
            for child in self.plan.tree.children[agent]:
                sums[agent] = sums[agent] + sums[child]
        return sums[self._leaves_first[-1]]

    @cached_property
    def _owners(self) -> Sequence[str]:
        return [self.graph.owner(factor) for factor in self.graph.factors]

    @cached_property
    def _leaves_first(self) -> Sequence[str]:
        tree = self.plan.tree
        order = [agent for agent, parent in tree.parent.items() if parent is None]
        for agent in order:
            order.extend(tree.children[agent])
        return order[::-1]

    def _count(self, what: object, n_numbers: int) -> None:
        if (what, n_numbers) not in self._known:
            self._known[what, n_numbers] = self._crossing(what, n_numbers)
        self.traffic += self._known[what, n_numbers]

    def _crossing(self, what: object, n_numbers: int) -> Traffic:
        graph, ledger, index = self.graph, Ledger(self.plan.routes), self.plan.index
        if what is Exchange:
            for phase in range(self.functions.n_exchanges):
                for factor in graph.factors:
                    for neighbour in graph.neighbours(factor):
                        message = Published(factor, neighbour, b"", phase)
                        ledger.add(graph.owner(factor), graph.owner(neighbour), message, n_numbers)
        elif what is Total:
            for agent, parent in self.plan.tree.parent.items():
                if parent is not None:
                    ledger.add(agent, parent, Tally(index, agent, b""), n_numbers)
                    ledger.add(parent, agent, Ruling(index, b""), n_numbers)
        else:
            for factor in graph.factors:
                for variable in graph.scope(factor):
                    owner, actor = graph.owner(factor), graph.variable_owner(variable)
                    back = Consensus(factor, variable, b"")
                    if what is Tell:
                        if graph.factors_of(variable)[0] == factor:
                            ledger.add(owner, actor, back, n_numbers)
                    elif what is Choose:
                        ledger.add(actor, owner, back, n_numbers)
                    elif len(graph.factors_of(variable)) > 1:
                        said = Copy(factor, variable, b"") if what is Copy else Slope(factor, variable, b"")
                        ledger.add(owner, actor, said, n_numbers)
                        ledger.add(actor, owner, back, n_numbers)
        return ledger.traffic
