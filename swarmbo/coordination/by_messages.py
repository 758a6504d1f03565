"""Driver of one agent: it answers a method's requests by messages to and from other agents."""

import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.coordination import messages, requests
from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import AddressedMessage, Steps
from swarmbo.coordination.schema import FitsData, Schema, Wanted, are_below, are_numbers
from swarmbo.graph.box_functions import by_factor
from swarmbo.steps import Out, answer_requests

Post = Callable[[str, Message], None]
Program = Generator[Mapping[Key, Wanted], dict[Key, Any], Out]  # yields expected messages, and receives them


class ByMessages:
    """One agent's side of a part; messages go to ``post``, and ``schema`` (None: that of a box) checks arrivals."""

    def __init__(self, part: Part, agent: str, post: Post, schema: Schema | None = None) -> None:
        self.part, self.graph, self.agent, self._post = part, part.graph, agent, post
        self._schema = Schema(part) if schema is None else schema

    def program(self, steps: Steps[Out]) -> Program[Out]:
        """Run a method in step with the part's other agents."""
        return answer_requests(steps, self._answer)

    def _answer(self, request: requests.Request) -> Program[Any]:
        match request:
            case requests.Send():
                self._send(request.messages)
                return (yield from self._receive(request.keys, below=request.below))
            case requests.ToFactors():
                keys = [("variable", f, x) for f in request.flooding.factors for x in self.graph.scope(f)]
                entries, received = yield from self._flood(request, keys)
                choices = request.choices.copy()
                for (_, _, x), message in received.items():
                    choices[request.flooding.column_of[str(x)]] = message.choice
                return entries, choices
            case requests.ToVariables():
                keys = [("factor", f, x) for x in request.flooding.variables for f in self.graph.factors_of(x)]
                return (yield from self._flood(request, keys))[0]
            case requests.Exchange():
                return (yield from self._exchange(request))
            case requests.Reduce():
                return (yield from self._reduce(request))
            case requests.AllReduce():
                # own terms first, then each child's, in the order of the tree: floating-point sums depend on it
                own = _sum_in_order(np.zeros(request.terms.shape[1:]), request.terms)
                return (yield from self._over_tree(request, partial(_sum_in_order, own)))
            case requests.Best():
                return (yield from self._over_tree(request, request.largest))
            case requests.ToAll():
                return (yield from self._to_all(request))
            case requests.InTurn():
                return (yield from self._in_turn(request))
            case requests.Compare():
                return (yield from self._compare(request))
            case requests.SetSizes():
                self._schema = replace(self._schema, sizes=request.sizes)
                return None
            case requests.ReportBound() | requests.CountTraffic():  # for drivers of a whole part only
                return None

    def _send(self, outgoing: Iterable[AddressedMessage]) -> None:
        for _, recipient, message in outgoing:
            self._post(recipient, message)

    def _receive(self, keys: Iterable[Key], size: int = 1, below: float | None = None) -> Program[dict[Key, Any]]:
        """Messages of owners of factors and variables; see ``Schema.wanted``."""
        return (yield from _received({key: self._schema.wanted(key, self.agent, size, below) for key in keys}))

    def _flood(
        self, request: requests.ToFactors | requests.ToVariables, keys: Iterable[Key]
    ) -> Program[tuple[Any, dict[Key, Any]]]:
        """Send messages; return the entries, with received entries filled in, and the received messages."""
        self._schema = replace(self._schema, sizes=request.flooding.sizes)
        self._send(request.messages())
        entries, received = request.entries.copy(), (yield from self._receive(keys))
        for (_, f, x), message in received.items():
            request.flooding.message(entries, str(f), str(x))[:] = message.entries
        return entries, received

    def _exchange(self, request: requests.Exchange) -> Program[Any]:
        self._send(request.messages())
        neighbours, view = self.part.neighbours, request.view
        keys = [("published", k, f, request.phase) for f in view.factors for k in neighbours[f]]
        n_points = request.numbers[0].shape[1] if request.numbers else 0
        received = yield from self._receive(keys, n_points)
        numbers = by_factor(view.stacks, request.numbers)
        # a factor sends all neighbours the same numbers
        numbers |= {str(k): message.entries for (_, k, _, _), message in received.items()}
        sums = {f: _sum_in_order(np.zeros(n_points), (numbers[k] for k in neighbours[f])) for f in view.factors}
        return [np.array([sums[factor] for factor in stack.factors]) for stack in view.stacks]

    def _reduce(self, request: requests.Reduce) -> Program[Any]:
        view, graph, is_shared = request.view, self.graph, self.part.is_shared
        self._send(request.messages())
        tag = str(request.kind.__struct_config__.tag)
        shared = [x for x in view.variables if is_shared[x]]
        keys = [(tag, f, x) for x in shared for f in graph.factors_of(x)]
        received = yield from self._receive(keys, request.n_points)
        # sums begin at 0 and follow the graph's order of factors, as in `Central`, not the order of arrivals
        for x in shared:
            entries = [received[tag, f, x].entries for f in graph.factors_of(x)]
            summed = _sum_in_order(np.zeros(request.n_points), entries)
            self._send(requests.to_factor(graph, messages.Consensus(f, x, summed)) for f in graph.factors_of(x))
        keys = [("consensus", f, x) for f in view.factors for x in graph.scope(f) if is_shared[x]]
        received = yield from self._receive(keys, request.n_points)
        out = np.zeros((request.n_points, len(view.column_of)))
        for stack, copies in zip(view.stacks, request.copies, strict=True):
            for columns, copy in zip(stack.columns, copies, strict=True):
                out[:, columns] = copy  # a variable of one factor has no other term
        for (_, _, x), message in received.items():
            out[:, view.column_of[str(x)]] = message.entries
        return out

    def _to_all(self, request: requests.ToAll) -> Program[dict[str, bytes]]:
        part, tree, fits = self.part, self.part.tree, request.fits
        parent, children = tree.parent[self.agent], tree.children[self.agent]
        # up: each child's subtree; down: what a subtree lacks, so no data crosses a link twice
        known, behind = dict(request.data), {child: tree.behind[child] for child in children}
        wanted = {("reports", part.index, child): _wanted_data(child, of, fits) for child, of in behind.items()}
        for message in (yield from _received(wanted)).values():
            known |= message.reports
        if parent is not None:
            self._send([requests.ToAll.message(part, self.agent, parent, known)])
            key, others = ("reports", part.index, parent), set(part.agents) - tree.behind[self.agent]
            known |= (yield from _received({key: _wanted_data(parent, others, fits)}))[key].reports
        self._send([requests.ToAll.message(part, self.agent, child, known, behind[child]) for child in children])
        return {name: known[name] for name in part.agents}

    def _in_turn(self, request: requests.InTurn) -> Program[dict[str, bytes]]:
        order, index = list(request.order), self.part.index
        if not order:
            return {}
        reports, is_last = dict[str, bytes](), order[-1] == self.agent
        if self.agent in order:
            own_index = order.index(self.agent)
            if own_index > 0:
                key, previous = ("reports", index, order[own_index - 1]), order[own_index - 1]
                wanted = _wanted_data(previous, set(order[:own_index]), request.fits)
                reports |= (yield from _received({key: wanted}))[key].reports
            reports[self.agent] = request.make_data(self.agent, reports)
            self._send(request.messages(self.part, self.agent, reports))
        if not is_last:
            key, others = ("reports", index, order[-1]), set(order) - reports.keys()
            reports |= (yield from _received({key: _wanted_data(order[-1], others, request.fits)}))[key].reports
        return {name: reports[name] for name in order}

    def _over_tree(
        self, request: requests.AllReduce | requests.Best, combine: Callable[[Iterable[np.ndarray]], np.ndarray]
    ) -> Program[Float[np.ndarray, "..."]]:
        """Combine all agents' numbers: from the leaves of the tree to its root, and the result back down."""
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        shape = request[0].shape[1:]
        size, limit, fits = math.prod(shape), request.limit, request.fits

        def numbers_of(agents: frozenset[str], sender: str) -> Wanted:
            def is_admissible(message: messages.Reduced | messages.Broadcast) -> bool:
                return are_numbers(message.entries, size, limit) and fits(message.entries.reshape(shape), agents)

            return Wanted(sender, is_admissible)

        wanted = {("tally", part.index, child): numbers_of(tree.behind[child], child) for child in children}
        received = yield from _received(wanted)
        result = combine([message.entries.reshape(shape) for message in received.values()])
        if parent is not None:
            self._post(parent, messages.Reduced(part.index, self.agent, result))
            key = ("ruling", part.index)
            received = yield from _received({key: numbers_of(frozenset(part.agents), parent)})
            result = received[key].entries.reshape(shape)
        for child in children:
            self._post(child, messages.Broadcast(part.index, result))
        return result

    def _compare(self, request: requests.Compare) -> Program[Any]:
        """Send the values of all factors up the tree, so that the root adds them in the graph's order."""
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        own = self.graph.factors_owned_by(self.agent)
        # values, not sums: only the root adds, in the graph's order, so the best choice does not depend on the tree
        values_by_factor = dict(zip(own, np.array(request.values).T, strict=True))
        change, moved, n_choices = request.change, request.moved, len(request.values)

        def fits(report: messages.Report) -> bool:
            return are_below(report.entries, n_choices * len(tree.factors[report.agent])) and report.change >= 0.0

        received = yield from _received({("report", part.index, child): Wanted(child, fits) for child in children})
        report: messages.Report
        for report in received.values():
            factors = tree.factors[report.agent]
            rows = report.entries.reshape(-1, len(factors)).T if factors else ()
            values_by_factor.update(zip(factors, rows, strict=True))
            change, moved = max(change, report.change), moved or report.moved
        values = np.array([values_by_factor[f] for f in tree.factors[self.agent]]).T
        best_so_far = None
        if parent is None:
            verdict, best_so_far = request._replace(values=list(values), change=change, moved=moved).verdict(part)
        else:
            self._post(parent, messages.Report(part.index, self.agent, values, change, moved))
            key = ("verdict", part.index)
            may_repair = request.tried is not None
            wanted = Wanted(parent, lambda v: 0 <= v.best <= n_choices and (may_repair or v.stop is not None))
            verdict = (yield from _received({key: wanted}))[key]
        for child in children:
            self._post(child, verdict)
        return verdict, best_so_far


def _sum_in_order(first: np.ndarray, others: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(np.add, others, first)


def _wanted_data(sender: str, agents: Collection[str], fits: FitsData) -> Wanted:
    """Expected message that forwards the data of exactly these ``agents``."""

    def is_admissible(message: messages.Reports) -> bool:
        return message.reports.keys() == agents and all(fits(agent, data) for agent, data in message.reports.items())

    return Wanted(sender, is_admissible)


def _received(wanted: Mapping[Key, Wanted]) -> Program[dict[Key, Any]]:
    return (yield wanted) if wanted else {}
