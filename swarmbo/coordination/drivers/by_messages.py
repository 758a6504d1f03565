"""One agent of a part: what a method asks is answered by messages to and from the others."""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.local_functions import by_factor, neighbour_sums
from swarmbo.coordination.messages import Key, Message, Report
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import (
    AllReduce,
    Best,
    Compare,
    Crossed,
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
    answered,
    looked,
)
from swarmbo.errors import TransportError

Post = Callable[[str, Message], None]
Out = TypeVar("Out")
Waiting = Generator[tuple[Key, ...], dict[Key, Any], Out]  # yields the keys that it waits for, is sent the messages


class ByMessages:
    """One agent's side of a part.

    Args:
        part: What everybody knows of it.
        agent: Its name.
        post: Posts a message to an agent, itself included.
    """

    def __init__(self, part: Part, agent: str, post: Post) -> None:
        self.part, self.graph, self.agent, self._post = part, part.graph, agent, post

    def program(self, steps: Steps[Out]) -> Waiting[Out]:
        """Go through a method in step with the part's other agents."""
        return answered(steps, self._answer)

    def _answer(self, request: Request) -> Waiting[Any]:
        match request:
            case Send():
                self._say(request.letters)
                return (yield from _hear(request.keys))
            case ToFactors():
                return (yield from self._to_factors(request))
            case ToVariables():
                return (yield from self._to_variables(request))
            case Exchange():
                return (yield from self._exchange(request))
            case Reduce():
                return (yield from self._reduce(request))
            case AllReduce():
                return (yield from self._all_reduce(request))
            case Best():
                return (yield from self._best(request))
            case ToAll():
                return (yield from self._to_all(request))
            case HandOn():
                return (yield from self._handed_on(request))
            case Look():
                return looked([request])[0]
            case Compare():
                return (yield from self._compare(request))
            case Watch() | Crossed():  # one who sees the whole part tells nobody
                return None

    def _say(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            self._post(letter.recipient, letter.message)

    def _to_factors(self, request: ToFactors) -> Waiting[Any]:
        self._say(request.letters())
        flooding, entries, choices = request.flooding, request.entries.copy(), request.choices.copy()
        heard = yield from _hear(("variable", f, x) for f in flooding.factors for x in self.graph.scope(f))
        for (_, f, x), message in heard.items():
            flooding.message(entries, str(f), str(x))[:] = message.entries
            choices[flooding.place[str(x)]] = message.choice
        return entries, choices

    def _to_variables(self, request: ToVariables) -> Waiting[Any]:
        self._say(request.letters())
        flooding, entries = request.flooding, request.entries.copy()
        heard = yield from _hear(("factor", f, x) for x in flooding.variables for f in self.graph.factors_of(x))
        for (_, f, x), message in heard.items():
            flooding.message(entries, str(f), str(x))[:] = message.entries
        return entries

    def _exchange(self, request: Exchange) -> Waiting[Any]:
        self._say(request.letters())
        neighbours, view = self.part.neighbours, request.view
        heard = yield from _hear(("published", k, f, request.phase) for f in view.factors for k in neighbours[f])
        told = by_factor(view.stacks, request.told)
        told |= {str(k): message.entries for (_, k, _, _), message in heard.items()}  # k tells all neighbours the same
        return neighbour_sums(neighbours, view.stacks, told)

    def _reduce(self, request: Reduce) -> Waiting[Any]:
        view, graph, is_shared = request.view, self.graph, self.part.is_shared
        self._say(request.letters())
        tag = str(request.kind.__struct_config__.tag)
        shared = [x for x in view.variables if is_shared[x]]
        heard = yield from _hear((tag, f, x) for x in shared for f in graph.factors_of(x))
        sums: dict[str, np.ndarray] = {}
        for x in shared:
            sums[x] = np.zeros(request.n_points)
            for f in graph.factors_of(x):
                sums[x] = sums[x] + heard[tag, f, x].entries
        self._say(request.replies(sums))
        heard = yield from _hear(("consensus", f, x) for f in view.factors for x in graph.scope(f) if is_shared[x])
        out = np.zeros((request.n_points, len(view.place)))
        for stack, copies in zip(view.stacks, request.copies, strict=True):
            for columns, copy in zip(stack.columns, copies, strict=True):
                out[:, columns] = copy  # what nobody else has is the sum already
        for (_, _, x), message in heard.items():
            out[:, view.place[str(x)]] = message.entries
        return out

    def _all_reduce(self, request: AllReduce) -> Waiting[Float[np.ndarray, "k m"]]:
        sums = np.zeros(request.terms.shape[1:])
        for term in request.terms:
            sums = sums + term

        def added(heard: Iterable[Float[np.ndarray, "k m"]]) -> Float[np.ndarray, "k m"]:
            total = sums
            for own in heard:
                total = total + own
            return total

        return (yield from self._over_tree(added, sums.shape))

    def _best(self, request: Best) -> Waiting[Float[np.ndarray, " m"]]:
        return (yield from self._over_tree(request.over, request.rows.shape[1:]))

    def _to_all(self, request: ToAll) -> Waiting[dict[str, bytes]]:
        part = self.part
        parent, children = part.tree.parent[self.agent], part.tree.children[self.agent]
        known, behind = dict(request.words), dict[str, Mapping[str, bytes]]()
        heard = yield from _hear(("reports", part.index, child) for child in children)
        for (_, _, child), message in heard.items():
            behind[str(child)] = message.reports
            known |= message.reports
        if parent is not None:
            self._say([ToAll.up(part, self.agent, parent, known)])
            heard = yield from _hear([("reports", part.index, parent)])
            known |= heard["reports", part.index, parent].reports
        self._say([ToAll.down(part, self.agent, child, known, behind[child]) for child in children])
        return {name: known[name] for name in part.agents}

    def _handed_on(self, request: HandOn) -> Waiting[dict[str, bytes]]:
        order, index = list(request.order), self.part.index
        if not order:
            return {}
        known, is_last = dict[str, bytes](), order[-1] == self.agent
        if self.agent in order:
            place = order.index(self.agent)
            heard = yield from _hear([("reports", index, before) for before in order[place - 1 : place]])
            for message in heard.values():
                known |= message.reports
            known[self.agent] = request.say(self.agent, known)
            self._say(request.news(self.part, known) if is_last else [request.on(self.part, self.agent, known)])
        if not is_last:
            heard = yield from _hear([("reports", index, order[-1])])
            known |= heard["reports", index, order[-1]].reports
        return {name: known[name] for name in order}

    def _over_tree(
        self, joined: Callable[[Iterable[np.ndarray]], np.ndarray], shape: tuple[int, ...]
    ) -> Waiting[Float[np.ndarray, "..."]]:
        """Join what all agents have: from the leaves of the tree to its root, and what came of it back.

        Args:
            joined: What the own numbers and those heard of the children come to.
            shape: Of it.
        """
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        keys = [("tally", part.index, child) for child in children]
        heard = yield from _hear(keys)
        found = joined([_shaped(heard[key].entries, shape, f"{key[-1]!r}") for key in keys])
        if parent is not None:
            self._say([AllReduce.up(part, self.agent, parent, found)])
            heard = yield from _hear([("ruling", part.index)])
            found = _shaped(heard["ruling", part.index].entries, shape, repr(parent))
        self._say([AllReduce.down(part, self.agent, child, found) for child in children])
        return found

    def _compare(self, request: Compare) -> Waiting[Any]:
        """Up the tree go the values of all factors, so that whoever adds them adds in the graph's order."""
        part, tree = self.part, self.part.tree
        children, parent = tree.children[self.agent], tree.parent[self.agent]
        own = self.graph.factors_owned_by(self.agent)
        known = dict(zip(own, np.array(request.values).T, strict=True))
        change, moved = request.change, request.moved
        heard = yield from _hear(("report", part.index, child) for child in children)
        report: Report
        for report in heard.values():
            below = tree.factors[report.agent]
            known.update(zip(below, report.entries.reshape(-1, len(below)).T if below else (), strict=True))
            change, moved = max(change, report.change), moved or report.moved
        values = np.array([known[f] for f in tree.factors[self.agent]]).T
        best_so_far = None
        if parent is None:
            verdict, best_so_far = request._replace(values=list(values), change=change, moved=moved).judged(part)
        else:
            self._say([request.up(part, self.agent, parent, values, change, moved)])
            heard = yield from _hear([("verdict", part.index)])
            verdict = heard["verdict", part.index]
        self._say([Letter(self.agent, child, verdict) for child in children])
        return verdict, best_so_far


def _shaped(entries: Float[np.ndarray, " _"], shape: tuple[int, ...], sender: str) -> Float[np.ndarray, "k m"]:
    if entries.size != np.prod(shape, dtype=int):
        raise TransportError(
            f"got {entries.size} numbers of {sender} to be added to {np.prod(shape, dtype=int)} here; wanted as many: "
            "were all agents told of the same evaluations, and asked as often?"
        )
    return entries.reshape(shape)


def _hear(keys: Iterable[Key]) -> Waiting[dict[Key, Any]]:
    wanted = tuple(keys)
    return (yield wanted) if wanted else {}
