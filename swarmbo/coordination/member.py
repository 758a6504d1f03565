"""One agent of a connected part: it answers what a method asks by messages to and from the others."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_program import PartAgent
from swarmbo.coordination.max_sum_solver import MaxSum
from swarmbo.coordination.messages import (
    Consensus,
    Copy,
    Key,
    Message,
    Published,
    Ruling,
    Slope,
    Tally,
    packed,
    unpacked,
)
from swarmbo.coordination.program import Post
from swarmbo.coordination.share import Choose, Exchange, Gather, PartOutcome, Share, Steps, Tell, Total

Waiting = Generator[tuple[Key, ...], dict[Key, Message], Any]


class Member:
    """One agent's side of a part.

    Args:
        plan: The part's scopes, owners and tree.
        agent: Its name.
        functions: Of the factors that it owns.
        post: Posts a message.
        max_sum: What chooses from tables.
    """

    def __init__(self, plan: PartPlan, agent: str, functions: LocalFunctions, post: Post, max_sum: MaxSum) -> None:
        self.plan, self.graph, self.agent, self.post, self.max_sum = plan, plan.graph, agent, post, max_sum
        self.factors, self.variables = self.graph.factors_owned_by(agent), self.graph.variables_owned_by(agent)
        self.share = Share(self.graph, functions, self.factors)
        place = {variable: i for i, variable in enumerate(functions.graph.variables)}
        self._place = {variable: place[variable] for variable in self.graph.variables}

    def program(self, method: Callable[[Share], Steps]) -> Generator[tuple[Key, ...], dict[Key, Message], PartOutcome]:
        """Go through a method in step with the part's other agents."""
        steps = method(self.share)
        try:
            request = next(steps)
            while True:
                if isinstance(request, Exchange):
                    answer = yield from self._exchange(request)
                elif isinstance(request, Gather):
                    answer = yield from self._gather(request)
                elif isinstance(request, Total):
                    answer = yield from self._total(request)
                elif isinstance(request, Choose):
                    answer = yield from self._choose(request)
                else:
                    answer = yield from self._tell(request)
                request = steps.send(answer)
        except StopIteration as finished:
            return finished.value

    def _exchange(self, request: Exchange) -> Waiting:
        functions, graph = self.share.functions, self.graph
        received: list[list[np.ndarray]] = [[] for _ in self.share.stacks]
        for phase in range(functions.n_exchanges):
            for stack, points, got in zip(self.share.stacks, request.points, received, strict=True):
                for factor, told in zip(stack.factors, functions.published(stack, points, got), strict=True):
                    for other in graph.neighbours(factor):
                        self.post(graph.owner(other), Published(factor, other, packed(told), phase))
            for stack, points, got in zip(self.share.stacks, request.points, received, strict=True):
                rows: list[np.ndarray] = []
                for factor in stack.factors:
                    others = graph.neighbours(factor)
                    heard = (yield tuple(("published", k, factor, phase) for k in others)) if others else {}
                    said = [_entries(heard["published", k, factor, phase]) for k in others]
                    rows.append(np.sum(said, axis=0) if said else np.zeros(points.shape[1]))
                got.append(np.array(rows))
        return [tuple(phases) for phases in received]

    def _gather(self, request: Gather) -> Waiting:
        graph = self.graph
        tag = str(request.kind.__struct_config__.tag)
        sums: dict[str, np.ndarray] = {}
        for stack, copies in zip(self.share.stacks, request.copies, strict=True):
            for factor, copy in zip(stack.factors, copies, strict=True):
                for axis, variable in enumerate(graph.scope(factor)):
                    own = np.ascontiguousarray(copy[:, axis])
                    if len(graph.factors_of(variable)) > 1:
                        self.post(graph.variable_owner(variable), request.kind(factor, variable, packed(own)))
                    else:
                        sums[variable] = own
        for variable in self.variables:
            factors = graph.factors_of(variable)
            if len(factors) > 1:
                heard = yield tuple((tag, factor, variable) for factor in factors)
                said = [_entries(heard[tag, factor, variable]) for factor in factors]
                entries = np.zeros(len(said[0]))
                for row in said:
                    entries = entries + row
                for factor in factors:
                    self.post(graph.owner(factor), Consensus(factor, variable, packed(entries)))
        for factor in self.factors:
            keys = tuple(("consensus", factor, x) for x in graph.scope(factor) if len(graph.factors_of(x)) > 1)
            heard = (yield keys) if keys else {}
            sums.update({str(key[2]): _entries(message) for key, message in heard.items()})
        out = np.zeros((request.n_points, len(self.share.functions.low)))
        for variable, entries in sums.items():
            out[:, self._place[variable]] = entries
        return out

    def _total(self, request: Total) -> Waiting:
        index, tree = self.plan.index, self.plan.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        sums = np.zeros(request.terms.shape[1:])
        for term in request.terms:
            sums = sums + term
        heard = (yield tuple(("tally", index, child) for child in children)) if children else {}
        for child in children:
            sums = sums + _entries(heard["tally", index, child]).reshape(sums.shape)
        if parent is not None:
            self.post(parent, Tally(index, self.agent, packed(sums)))
            heard = yield (("ruling", index),)
            sums = _entries(heard["ruling", index]).reshape(sums.shape)
        for child in children:
            self.post(child, Ruling(index, packed(sums)))
        return sums

    def _choose(self, request: Choose) -> Waiting:
        graph, max_sum = self.graph, self.max_sum
        side = PartAgent(self.plan, self.agent, request.tables, self.post)
        if graph.is_forest:
            outcome = yield from side.on_tree()
        else:
            outcome = yield from side.on_loops(max_sum.rounds, max_sum.damping, max_sum.tolerance, max_sum.repairs)
        for variable in self.variables:
            index = np.array([float(outcome.assignment[variable])])
            for factor in graph.factors_of(variable):
                self.post(graph.owner(factor), Consensus(factor, variable, packed(index)))
        chosen: dict[str, int] = {}
        for factor in self.factors:
            heard = yield tuple(("consensus", factor, variable) for variable in graph.scope(factor))
            chosen.update({str(key[2]): int(_entries(message)[0]) for key, message in heard.items()})
        return chosen

    def _tell(self, request: Tell) -> Waiting:
        graph = self.graph
        for factor in self.factors:
            for variable in graph.scope(factor):
                if graph.factors_of(variable)[0] == factor:
                    value = request.point[[self._place[variable]]]
                    self.post(graph.variable_owner(variable), Consensus(factor, variable, packed(value)))
        keys = tuple(("consensus", graph.factors_of(variable)[0], variable) for variable in self.variables)
        heard = (yield keys) if keys else {}
        return {str(key[2]): float(_entries(message)[0]) for key, message in heard.items()}


def _entries(message: Message) -> Float[np.ndarray, " _"]:
    assert isinstance(message, Consensus | Copy | Slope | Published | Tally | Ruling)
    return unpacked(message.entries)
