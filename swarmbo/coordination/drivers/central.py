"""A part in one process: what a method asks is answered at once, and the messages that it stands for are counted."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.local_functions import Neighbourhoods, Passes, in_turn
from swarmbo.coordination.messages import Codec, Key, Message, index_widths
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import (
    AllReduce,
    Best,
    Compare,
    Exchange,
    HandOn,
    Letter,
    Look,
    Reduce,
    Request,
    Send,
    Steps,
    ToAll,
    ToFactors,
    ToVariables,
    Watch,
    looked,
)
from swarmbo.coordination.view import BoxView
from swarmbo.records import Traffic

Out = TypeVar("Out")
Count = tuple[int, int, int]  # messages, bytes, transmissions


class Watcher(Protocol):
    """Somebody who is told how far a part is; agents know nothing of it."""

    def note_value(self, value: float, traffic: Traffic) -> None:
        """The best joint choice so far."""
        ...

    def note_bound(self, bound: float, traffic: Traffic) -> None:
        """What no choice exceeds, by what is known so far."""
        ...


class Central:
    """Answers what a method asks while it works on all factors of a part. All equal factors are served at once.

    Args:
        part: What everybody knows of it.
        watcher: Is told how far the part is.
    """

    def __init__(self, part: Part, watcher: Watcher | None = None) -> None:
        self.part, self.graph, self._watcher = part, part.graph, watcher
        self._n_messages = self._n_bytes = self._n_transmissions = 0
        self._counts: dict[Hashable, Count] = {}
        self._hops: dict[tuple[str, str], int] = {}
        self._passes_of: dict[BoxView, Passes] = {}
        self._around_of: dict[BoxView, Neighbourhoods] = {}
        self._said: dict[Key, Message] = {}  # what is said of a key to several recipients is the same

    @property
    def traffic(self) -> Traffic:
        """What the agents would have sent so far."""
        return Traffic(messages=self._n_messages, bytes=self._n_bytes, transmissions=self._n_transmissions)

    def run(self, steps: Steps[Out]) -> Out:
        """Answer until the method has ended."""
        (outcome,) = side_by_side([(self, steps)])
        return outcome

    def until_look(self, steps: Steps[Out], answer: Any) -> Look:
        """Answer until values of functions are asked for.

        Raises:
            StopIteration: With the outcome, when the method has ended.
        """
        while not isinstance(request := steps.send(answer), Look):
            answer = self._answer(request)
        return request

    def _answer(self, request: Request) -> Any:
        match request:
            case Send():
                said = self._said
                self._count(request.letters)
                for letter in request.letters:
                    said[letter.message.key] = letter.message
                return {key: said[key] for key in request.keys}
            case ToFactors():
                plain = request._replace(choices=np.zeros_like(request.choices))
                self._count_alike((ToFactors, request.flooding), plain.letters)
                self._n_bytes += int(self._n_crossing @ index_widths(request.choices))
                return request.entries, request.choices
            case ToVariables():
                self._count_alike((ToVariables, request.flooding), request.letters)
                return request.entries
            case Exchange():
                self._count_alike((Exchange, request.phase, request.told[0].shape[1]), request.letters)
                return self._around(request.view).sums(request.told)
            case Reduce():
                return self._reduced(request)
            case AllReduce():
                return self._all_reduced(request)
            case Best():
                best = request.over()
                self._count_over_tree(best)
                return best
            case ToAll():
                self._count(self._told(request.words))
                return {name: request.words[name] for name in self.graph.agents}
            case HandOn():
                return self._handed_on(request)
            case Look():
                return looked([request])[0]
            case Compare():
                self._count_alike((Compare, len(request.values)), lambda: self._compared(request))
                verdict, best_so_far = request.judged(self.part)
                if self._watcher is not None and best_so_far is not None:
                    self._watcher.note_value(best_so_far[1], self.traffic)
                return verdict, best_so_far
            case Watch():
                if self._watcher is not None:
                    self._watcher.note_bound(request.bound(), self.traffic)
                return None

    def _count_alike(self, what: Hashable, letters: Callable[[], Iterable[Letter]]) -> None:
        """Note messages that are as many and as long whenever the same is asked: they are made the first time only."""
        if what in self._counts:
            n_messages, n_bytes, n_transmissions = self._counts[what]
            self._n_messages += n_messages
            self._n_bytes += n_bytes
            self._n_transmissions += n_transmissions
        else:
            self._counts[what] = self._count(letters())

    def _count(self, letters: Iterable[Letter]) -> Count:
        """Note messages, but those that stay with their sender."""
        n_messages = n_bytes = n_transmissions = 0
        for sender, recipient, message in letters:
            if sender != recipient:
                if (hops := self._hops.get((sender, recipient))) is None:
                    hops = self._hops[sender, recipient] = self.part.routes.hops(sender, recipient)
                n_messages += 1
                n_bytes += Codec.size(message)
                n_transmissions += hops
        self._n_messages += n_messages
        self._n_bytes += n_bytes
        self._n_transmissions += n_transmissions
        return n_messages, n_bytes, n_transmissions

    @cached_property
    def _n_crossing(self) -> Int[np.ndarray, " v"]:
        """For each variable how many of its factors belong to somebody else."""
        graph = self.graph
        return np.array(
            [sum(graph.owner(f) != graph.variable_owner(x) for f in graph.factors_of(x)) for x in graph.variables]
        )

    def _reduced(self, request: Reduce) -> Float[np.ndarray, "m n"]:
        view, m = request.view, request.n_points
        any_sums = {x: np.empty(m) for x, is_shared in self.part.is_shared.items() if is_shared}
        letters = lambda: chain(request.letters(), request.replies(any_sums))  # noqa: E731
        self._count_alike((request.kind, m), letters)
        entries = np.concatenate([np.moveaxis(X, 1, 0).reshape(m, -1) for X in request.copies], axis=1)
        out = np.zeros((m, len(view.place)))
        for columns, places in self._passes(view):
            out[:, columns] += entries[:, places]
        return out

    def _around(self, view: BoxView) -> Neighbourhoods:
        if view not in self._around_of:
            self._around_of[view] = Neighbourhoods.of(self.part.neighbours, view.stacks)
        return self._around_of[view]

    def _passes(self, view: BoxView) -> Passes:
        """Entries of copies to add up: in pass k those of each variable's k-th factor."""
        if view not in self._passes_of:
            graph = self.graph
            edges = [(f, x) for stack in view.stacks for f in stack.factors for x in graph.scope(f)]
            entry = {edge: i for i, edge in enumerate(edges)}
            self._passes_of[view] = in_turn(
                (view.place[x], entry[f, x]) for x in graph.variables for f in graph.factors_of(x)
            )
        return self._passes_of[view]

    def _all_reduced(self, request: AllReduce) -> Float[np.ndarray, "k m"]:
        """Every agent adds its own terms, then what its children say: from the leaves of the tree to its root."""
        terms = request.terms
        sums = np.zeros((len(self.graph.agents), *terms.shape[1:]))
        for agents, factors in self._owned:
            sums[agents] += terms[factors]
        for agent, children in self._children:
            # np.sum would add in another order where there is one number only
            sums[agent] = np.add.accumulate(sums[[agent, *children]])[-1]
        summed = sums[self._children[-1][0] if self._children else 0]
        self._count_over_tree(summed)
        return summed

    def _count_over_tree(self, joined: Float[np.ndarray, "..."]) -> None:
        """Numbers go up the tree to its root, and as many come down."""

        def letters() -> Iterator[Letter]:
            for agent, parent in self.part.tree.parent.items():
                if parent is not None:
                    yield AllReduce.up(self.part, agent, parent, joined)
                    yield AllReduce.down(self.part, parent, agent, joined)

        self._count_alike((AllReduce, joined.size), letters)

    @cached_property
    def _owned(self) -> Passes:
        """Each agent with each of its factors in turn, as places in the graph."""
        place = {agent: i for i, agent in enumerate(self.graph.agents)}
        return in_turn((place[owner], i) for i, owner in enumerate(self.graph.factor_owners))

    @cached_property
    def _children(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Agents that others report to, each after all that report to it, and these."""
        place, tree = {agent: i for i, agent in enumerate(self.graph.agents)}, self.part.tree
        return [(place[a], [place[child] for child in tree.children[a]]) for a in tree.leaves_first if tree.children[a]]

    def _told(self, words: Mapping[str, bytes]) -> Iterator[Letter]:
        tree = self.part.tree
        behind = {agent: {agent: words[agent]} for agent in tree.leaves_first}
        for agent in tree.leaves_first:
            if (parent := tree.parent[agent]) is not None:
                behind[parent] |= behind[agent]
                yield ToAll.up(self.part, agent, parent, behind[agent])
                yield ToAll.down(self.part, parent, agent, words, behind[agent])

    def _handed_on(self, request: HandOn) -> dict[str, bytes]:
        known: dict[str, bytes] = {}
        for agent in request.order:
            known[agent] = request.say(agent, known)
            is_last = agent == request.order[-1]
            self._count(request.news(self.part, known) if is_last else [request.on(self.part, agent, known)])
        return known

    def _compared(self, request: Compare) -> Iterator[Letter]:
        tree, k = self.part.tree, len(request.values)
        verdict, _ = request.judged(self.part)
        for agent, parent in tree.parent.items():
            if parent is not None:
                yield request.up(self.part, agent, parent, np.empty((k, len(tree.factors[agent]))), 0.0, False)
                yield Letter(parent, agent, verdict)


def side_by_side(parts: Sequence[tuple[Central, Steps[Out]]]) -> list[Out]:
    """Run a method on several parts, so that factors of all parts that ask for values at once are served in one call.

    Args:
        parts: For each what answers, and the method's steps.

    Returns:
        What comes out of each.
    """
    outcomes: dict[int, Out] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(parts)))
    while answers:
        asked: dict[int, Look] = {}
        for i, answer in answers.items():
            central, steps = parts[i]
            try:
                asked[i] = central.until_look(steps, answer)
            except StopIteration as finished:
                outcomes[i] = finished.value
        answers = dict(zip(asked, looked(list(asked.values())), strict=True))
    return [outcomes[i] for i in range(len(parts))]
