"""Driver of one agent: it answers a method's requests by messages to and from the others."""

import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from swarmbo.coordination import messages, requests
from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import Letter, Steps
from swarmbo.coordination.schema import Fits, FitsWord, Schema, Wanted, are_below, are_numbers
from swarmbo.graph.box_functions import by_factor

Post = Callable[[str, Message], None]
Out = TypeVar("Out")
Waiting = Generator[Mapping[Key, Wanted], dict[Key, Any], Out]  # yields expected messages, and receives them


class ByMessages:
    """One agent's side of a part; messages go to ``post``, and ``schema`` checks arrivals (default: of a box)."""

    def __init__(self, part: Part, agent: str, post: Post, schema: Schema | None = None) -> None:
        self.part, self.graph, self.agent, self._post = part, part.graph, agent, post
        self._schema = Schema(part) if schema is None else schema

    def program(self, steps: Steps[Out]) -> Waiting[Out]:
        """Run a method in step with the part's other agents."""
        return requests.answered(steps, self._answer)

    def _answer(self, request: requests.Request) -> Waiting[Any]:
        match request:
            case requests.Send():
                self._say(request.letters)
                return (yield from self._hear(request.keys, below=request.below))
            case requests.ToFactors():
                return (yield from self._to_factors(request))
            case requests.ToVariables():
                keys = [("factor", f, x) for x in request.flooding.variables for f in self.graph.factors_of(x)]
                return (yield from self._flooded(request, keys))[0]
            case requests.Exchange():
                return (yield from self._exchange(request))
            case requests.Reduce():
                return (yield from self._reduce(request))
            case requests.AllReduce():
                # own terms first, then each child's, in the order of the tree: floating-point sums depend on it
                own = _added(np.zeros(request.terms.shape[1:]), request.terms)
                return (yield from self._over_tree(partial(_added, own), own.shape, request.fits))
            case requests.Best():
                return (yield from self._over_tree(request.over, request.rows.shape[1:], request.fits))
            case requests.ToAll():
                return (yield from self._to_all(request))
            case requests.HandOn():
                return (yield from self._handed_on(request))
            case requests.Look():
                return requests.looked([request])[0]
            case requests.Compare():
                return (yield from self._compare(request))
            case requests.Choices():
                self._schema = replace(self._schema, sizes=request.sizes)
                return None
            case requests.Watch() | requests.Crossed():  # for drivers of a whole part only
                return None

    def _say(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            self._post(letter.recipient, letter.message)

    def _hear(self, keys: Iterable[Key], size: int = 1, below: float | None = None) -> Waiting[dict[Key, Any]]:
        """Messages of owners of factors and variables; see ``Schema.wanted``."""
        return (yield from _heard({key: self._schema.wanted(key, self.agent, size, below) for key in keys}))

    def _flooded(
        self, request: requests.ToFactors | requests.ToVariables, keys: Iterable[Key]
    ) -> Waiting[tuple[Any, dict[Key, Any]]]:
        """Entries with those received filled in, and the messages."""
        self._schema = replace(self._schema, sizes=request.flooding.sizes)
        self._say(request.letters())
        entries, heard = request.entries.copy(), (yield from self._hear(keys))
        for (_, f, x), message in heard.items():
            request.flooding.message(entries, str(f), str(x))[:] = message.entries
        return entries, heard

    def _to_factors(self, request: requests.ToFactors) -> Waiting[Any]:
        flooding, choices = request.flooding, request.choices.copy()
        keys = [("variable", f, x) for f in flooding.factors for x in self.graph.scope(f)]
        entries, heard = yield from self._flooded(request, keys)
        for (_, _, x), message in heard.items():
            choices[flooding.place[str(x)]] = message.choice
        return entries, choices

    def _exchange(self, request: requests.Exchange) -> Waiting[Any]:
        self._say(request.letters())
        neighbours, view = self.part.neighbours, request.view
        keys = [("published", k, f, request.phase) for f in view.factors for k in neighbours[f]]
        n_points = request.told[0].shape[1] if request.told else 0
        heard = yield from self._hear(keys, n_points)
        told = by_factor(view.stacks, request.told)
        told |= {str(k): message.entries for (_, k, _, _), message in heard.items()}  # k sends all neighbours the same
        summed = {f: _added(np.zeros(n_points), (told[k] for k in neighbours[f])) for f in view.factors}
        return [np.array([summed[factor] for factor in stack.factors]) for stack in view.stacks]

    def _reduce(self, request: requests.Reduce) -> Waiting[Any]:
        view, graph, is_shared = request.view, self.graph, self.part.is_shared
        self._say(request.letters())
        tag = str(request.kind.__struct_config__.tag)
        shared = [x for x in view.variables if is_shared[x]]
        heard = yield from self._hear([(tag, f, x) for x in shared for f in graph.factors_of(x)], request.n_points)
        # from 0 on, in the graph's order of factors, as in `Central`, whatever arrives first
        for x in shared:
            summed = _added(np.zeros(request.n_points), [heard[tag, f, x].entries for f in graph.factors_of(x)])
            self._say(requests.to_factor(graph, messages.Consensus(f, x, summed)) for f in graph.factors_of(x))
        keys = [("consensus", f, x) for f in view.factors for x in graph.scope(f) if is_shared[x]]
        heard = yield from self._hear(keys, request.n_points)
        out = np.zeros((request.n_points, len(view.place)))
        for stack, copies in zip(view.stacks, request.copies, strict=True):
            for columns, copy in zip(stack.columns, copies, strict=True):
                out[:, columns] = copy  # a variable of one factor: its own value is the sum
        for (_, _, x), message in heard.items():
            out[:, view.place[str(x)]] = message.entries
        return out

    def _to_all(self, request: requests.ToAll) -> Waiting[dict[str, bytes]]:
        part, tree, fits = self.part, self.part.tree, request.fits
        parent, children = tree.parent[self.agent], tree.children[self.agent]
        # up: each child's subtree; down: what a subtree lacks, so no data crosses a link twice
        known, behind = dict(request.words), {child: tree.behind[child] for child in children}
        wanted = {("reports", part.index, child): _words(child, of, fits) for child, of in behind.items()}
        for message in (yield from _heard(wanted)).values():
            known |= message.reports
        if parent is not None:
            self._say([requests.ToAll.letter(part, self.agent, parent, known)])
            key, others = ("reports", part.index, parent), set(part.agents) - tree.behind[self.agent]
            known |= (yield from _heard({key: _words(parent, others, fits)}))[key].reports
        self._say([requests.ToAll.letter(part, self.agent, child, known, behind[child]) for child in children])
        return {name: known[name] for name in part.agents}

    def _handed_on(self, request: requests.HandOn) -> Waiting[dict[str, bytes]]:
        order, index = list(request.order), self.part.index
        if not order:
            return {}
        known, is_last = dict[str, bytes](), order[-1] == self.agent
        if self.agent in order:
            place = order.index(self.agent)
            before = {("reports", index, other): other for other in order[max(place - 1, 0) : place]}
            wanted = {key: _words(other, set(order[:place]), request.fits) for key, other in before.items()}
            for message in (yield from _heard(wanted)).values():
                known |= message.reports
            known[self.agent] = request.say(self.agent, known)
            self._say(request.letters(self.part, self.agent, known))
        if not is_last:
            key, others = ("reports", index, order[-1]), set(order) - known.keys()
            known |= (yield from _heard({key: _words(order[-1], others, request.fits)}))[key].reports
        return {name: known[name] for name in order}

    def _over_tree(
        self, joined: Callable[[Iterable[np.ndarray]], np.ndarray], shape: tuple[int, ...], fits: Fits
    ) -> Waiting[Float[np.ndarray, "..."]]:
        """Join all agents' numbers: from the leaves of the tree to its root, and the result back down."""
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        size = math.prod(shape)

        def sums(sender: str, of: frozenset[str]) -> Wanted:
            return Wanted(
                sender, lambda said: are_numbers(said.entries, size) and fits(said.entries.reshape(shape), of)
            )

        heard = yield from _heard({("tally", part.index, child): sums(child, tree.behind[child]) for child in children})
        found = joined([message.entries.reshape(shape) for message in heard.values()])
        if parent is not None:
            self._post(parent, messages.Reduced(part.index, self.agent, found))
            key = ("ruling", part.index)
            found = (yield from _heard({key: sums(parent, frozenset(part.agents))}))[key].entries.reshape(shape)
        for child in children:
            self._post(child, messages.Broadcast(part.index, found))
        return found

    def _compare(self, request: requests.Compare) -> Waiting[Any]:
        """Send the values of all factors up the tree, so that the root adds them in the graph's order."""
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        own = self.graph.factors_owned_by(self.agent)
        # values, not sums of them: only the root adds, in the graph's order, so no tree changes which choice is best
        known = dict(zip(own, np.array(request.values).T, strict=True))
        change, moved, n_choices = request.change, request.moved, len(request.values)

        def fits(said: messages.Report) -> bool:
            return are_below(said.entries, n_choices * len(tree.factors[said.agent])) and said.change >= 0.0

        heard = yield from _heard({("report", part.index, child): Wanted(child, fits) for child in children})
        report: messages.Report
        for report in heard.values():
            below = tree.factors[report.agent]
            known.update(zip(below, report.entries.reshape(-1, len(below)).T if below else (), strict=True))
            change, moved = max(change, report.change), moved or report.moved
        values = np.array([known[f] for f in tree.factors[self.agent]]).T
        best_so_far = None
        if parent is None:
            verdict, best_so_far = request._replace(values=list(values), change=change, moved=moved).judged(part)
        else:
            self._post(parent, messages.Report(part.index, self.agent, values, change, moved))
            key = ("verdict", part.index)
            may_mend = request.tried is not None
            wanted = Wanted(parent, lambda said: 0 <= said.best <= n_choices and (may_mend or said.stop is not None))
            verdict = (yield from _heard({key: wanted}))[key]
        for child in children:
            self._post(child, verdict)
        return verdict, best_so_far


def _added(first: np.ndarray, others: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(np.add, others, first)


def _words(sender: str, agents: Collection[str], fits: FitsWord) -> Wanted:
    """Expected data of some agents to all, as they are forwarded."""
    return Wanted(sender, lambda one: one.reports.keys() == agents and all(fits(*word) for word in one.reports.items()))


def _heard(wanted: Mapping[Key, Wanted]) -> Waiting[dict[Key, Any]]:
    return (yield wanted) if wanted else {}
