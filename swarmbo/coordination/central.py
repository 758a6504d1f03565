"""Driver of a part in one process: it answers a method's requests at once, and counts their messages.

The traffic of many equal messages is computed with arrays; tests compare lengths and hops with real messages.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.coordination import messages, requests
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import AddressedMessage
from swarmbo.coordination.tables import Rank
from swarmbo.graph.box_functions import Passes, in_turn, neighbour_sums
from swarmbo.records import Traffic
from swarmbo.steps import Out, Steps, run_steps

# receives the rank of the best joint choice so far, or the bound so far, and the traffic; agents do not know of it
Watcher = Callable[[Rank | None, float | None, Traffic], None]


class Central:
    """Driver for all factors of a part in one process; it computes for many factors at once."""

    def __init__(self, part: Part, watcher: Watcher | None = None) -> None:
        self.part, self.graph, self._watcher = part, part.graph, watcher
        self.traffic = Traffic()  # messages that agents would have sent so far
        self._counted: dict[Hashable, Traffic] = {}
        self._counts = Counts(part)
        self._hops: dict[tuple[str, str], int] = {}
        self._latest: dict[Key, Message] = {}  # messages by key; all recipients of a key get the same message

    def run(self, steps: Steps[Out]) -> Out:
        """Answer requests until the method ends."""
        return run_steps(steps, self.answer)

    def answer(self, request: requests.Request) -> Any:
        """Answer a request, and count its messages."""
        match request:
            case requests.Send():
                # this driver sends and receives everything at once, so no wait can block
                self.traffic += self._traffic_of(request.messages)
                self._latest.update((sent.message.key, sent.message) for sent in request.messages)
                return {key: self._latest[key] for key in request.keys}
            case requests.ToFactors():
                self._count_numbers(messages.FromVariable, request.flooding)
                self.traffic += self._counts.first_choices(request.choices)
                return request.entries, request.choices
            case requests.ToVariables():
                self._count_numbers(messages.FromFactor, request.flooding)
                return request.entries
            case requests.Exchange():
                what = (requests.Exchange, request.phase, request.numbers[0].shape[1])
                self._count_once(what, lambda: self._traffic_of(request.messages()))
                return neighbour_sums(request.view.neighbours_in_turn, request.numbers)
            case requests.Reduce():
                return self._reduced(request)
            case requests.AllReduce():
                return self._all_reduced(request)
            case requests.Best():
                best = request.largest()
                self.over_tree(best)
                return best
            case requests.ToAll():
                self.traffic += self._counts.to_all(request.data)
                return {name: request.data[name] for name in self.part.agents}
            case requests.InTurn():
                return self._in_turn(request)
            case requests.Compare():
                return self._compared(request)
            case requests.ReportBound():
                if self._watcher is not None:
                    self._watcher(None, request.bound(), self.traffic)
                return None
            case requests.SetSizes():  # a driver of a whole part checks no messages
                return None
            case requests.CountTraffic():
                self.traffic += request.traffic(self._counts)
                return None

    def _count_once(self, what: Hashable, count: Callable[[], Traffic]) -> None:
        """Count messages whose number and lengths depend on the request only; they are computed once."""
        if what not in self._counted:
            self._counted[what] = count()
        self.traffic += self._counted[what]

    def _count_numbers(self, kind: type[messages.Numbers], flooding: Flooding) -> None:
        self._count_once((kind, flooding), lambda: self._counts.numbers(kind, flooding.edge_sizes))

    def _traffic_of(self, sent: Iterable[AddressedMessage]) -> Traffic:
        n_messages = n_bytes = n_transmissions = 0
        for sender, recipient, message in sent:
            if sender != recipient:
                if (hops := self._hops.get((sender, recipient))) is None:
                    hops = self._hops[sender, recipient] = self.part.routes.hops(sender, recipient)
                n_messages += 1
                n_bytes += messages.Codec.size(message)
                n_transmissions += hops
        return Traffic(messages=n_messages, bytes=n_bytes, transmissions=n_transmissions)

    def _reduced(self, request: requests.Reduce) -> Float[np.ndarray, "m n"]:
        view, m = request.view, request.n_points
        self._count_once((request.kind, m), lambda: self._counts.sums(request.kind, m))
        entries = np.concatenate([X.transpose(1, 0, 2).reshape(m, -1) for X in request.copies], axis=1)
        out = np.zeros((m, len(view.column_of)))
        # pass k adds each variable's k-th factor, the order in which an owner adds its factors' messages
        for columns, places in view.copies_in_turn:
            out[:, columns] += entries[:, places]
        return out

    def _all_reduced(self, request: requests.AllReduce) -> Float[np.ndarray, "k m"]:
        """Sums in which every agent adds its own terms, then its children's, from the leaves to the root."""
        terms = request.terms
        sums = np.zeros((len(self.graph.agents), *terms.shape[1:]))
        for agents, factors in self._owned:
            # pass k adds each agent's k-th factor: the order in which it adds its own terms by messages
            sums[agents] += terms[factors]
        for agent, children in self._children:
            # np.sum would add in another order if there is one number only
            sums[agent] = np.add.accumulate(sums[[agent, *children]])[-1]
        summed = sums[self._counts.index_of[self.part.tree.leaves_first[-1]]]
        self.over_tree(summed)
        return summed

    def over_tree(self, joined: Float[np.ndarray, "..."]) -> Traffic:
        """Count numbers that go up the tree to its root and down again, and return their traffic."""
        counts, numbers = self._counts, np.empty(joined.size)

        def count() -> Traffic:
            down = counts.down_tree(messages.Broadcast(self.part.index, numbers))
            return counts.up_tree(messages.Reduced(self.part.index, "", numbers), 0) + down

        self._count_once((requests.AllReduce, joined.size), count)
        return self._counted[requests.AllReduce, joined.size]

    @cached_property
    def _owned(self) -> Passes:
        """Pairs of an agent and its factor, as indices in the graph; pass k has each agent's k-th factor."""
        return in_turn((self._counts.index_of[owner], i) for i, owner in enumerate(self.graph.factor_owners))

    @cached_property
    def _children(self) -> Sequence[tuple[int, Sequence[int]]]:
        """Agents that have children, each with the list of its children; agents come after all their children."""
        index, tree = self._counts.index_of, self.part.tree
        return [(index[a], [index[child] for child in tree.children[a]]) for a in tree.leaves_first if tree.children[a]]

    def _in_turn(self, request: requests.InTurn) -> dict[str, bytes]:
        """Data of agents, made sequentially: each agent uses the data of the agents before it."""
        known: dict[str, bytes] = {}
        for agent in request.order:
            known[agent] = request.make_data(agent, known)
            self.traffic += self._traffic_of(request.messages(self.part, agent, known))
        return known

    def _compared(self, request: requests.Compare) -> tuple[messages.Verdict, Rank | None]:
        verdict, best_so_far = request.verdict(self.part)

        def count() -> Traffic:
            report = messages.Report(self.part.index, "", messages.NO_NUMBERS, 0.0, False)
            return self._counts.up_tree(report, len(request.values)) + self._counts.down_tree(verdict)

        # the length of reports and verdicts does not depend on their content, so one count serves every round
        self._count_once((requests.Compare, len(request.values)), count)
        if self._watcher is not None and request.ends_round and best_so_far is not None:
            self._watcher(best_so_far, None, self.traffic)
        return verdict, best_so_far


@dataclass(frozen=True, eq=False)
class Counts:
    """Traffic of messages of a part."""

    part: Part

    def numbers(
        self, kind: type[messages.Numbers], sizes: Int[np.ndarray, " e"], is_sent: Bool[np.ndarray, " e"] | None = None
    ) -> Traffic:
        """Traffic of one message per edge in one direction, with ``sizes`` entries; ``is_sent`` masks the edges."""
        hops, outline = self._hops, messages.Codec.size(kind("", "", messages.NO_NUMBERS))
        crosses = hops > 0 if is_sent is None else is_sent & (hops > 0)
        lengths = outline + self._names + messages.array_widths(sizes)
        return _sum(lengths[crosses], hops[crosses])

    def sums(self, kind: type[messages.Numbers], n_points: int) -> Traffic:
        """Traffic of factors' entries to the owners of shared variables, and of the sums back to the factors."""
        is_shared = np.array(list(self.part.is_shared.values()))[self.part.graph.edges.variables]
        sizes = np.full(len(is_shared), n_points)
        return self.numbers(kind, sizes, is_shared) + self.numbers(messages.Consensus, sizes, is_shared)

    def first_choices(self, choices: Int[np.ndarray, " v"]) -> Traffic:
        """Additional bytes of variables' messages that carry their present choice, on all edges that cross a link."""
        widths = messages.index_widths(choices)[self.part.graph.edges.variables]
        return Traffic(bytes=int(widths[self._hops > 0].sum()))

    def decisions(self, choices: Int[np.ndarray, " v"]) -> Traffic:
        """Traffic of each variable's decision, from its owner to each other owner of its factors."""
        variables, owners = np.divmod(self._remote_owners, len(self.part.graph.agents))
        lengths = messages.Codec.size(messages.Choice("", 0)) + self._variable_names + messages.index_widths(choices)
        return _sum(lengths[variables], _hops(self.part, self._deciders[variables], owners))

    def up_tree(self, message: Message, per_factor: int) -> Traffic:
        """Traffic up the tree of a message with ``per_factor`` numbers for each factor of the sender's subtree."""
        factors = self.part.tree.factors
        n_factors = np.array([len(factors[agent]) for agent in self._parents], dtype=np.int64)
        lengths = messages.text_widths(self._parents) + messages.array_widths(per_factor * n_factors)
        return _sum(messages.Codec.size(message) + lengths, self._tree_hops)

    def down_tree(self, message: Message) -> Traffic:
        """Traffic down the tree, to every agent but the root from its parent."""
        hops = self._tree_hops
        return _sum(np.full(len(hops), messages.Codec.size(message)), hops)

    def to_all(self, data: Mapping[str, bytes]) -> Traffic:
        """Traffic up and down the tree, by which every agent gets the data of all agents that it lacks."""
        tree, behind = self.part.tree, dict[str, np.ndarray]()
        size, report = messages.Codec.size, partial(messages.Reports, self.part.index, "")
        own = {name: size(report({name: one})) - size(report({})) for name, one in data.items()}
        for agent in tree.leaves_first:  # numbers of entries and of bytes
            behind[agent] = sum((behind[child] for child in tree.children[agent]), np.array([1, own[agent]]))
        entries, n_bytes = np.array([behind[agent] for agent in self._parents], dtype=np.int64).reshape(-1, 2).T

        def sent(senders: Iterable[str], counts: Int[np.ndarray, " n-1"], lengths: Int[np.ndarray, " n-1"]) -> Traffic:
            headers = 2 * (counts >= 2**4) + 2 * (counts >= 2**16)  # MessagePack's fixmap, map 16, map 32
            return _sum(size(report({})) + messages.text_widths(senders) + headers + lengths, self._tree_hops)

        up = sent(self._parents, entries, n_bytes)
        return up + sent(self._parents.values(), len(own) - entries, sum(own.values()) - n_bytes)

    @cached_property
    def _parents(self) -> dict[str, str]:
        """Parent in the tree of every agent but the root."""
        return {agent: parent for agent, parent in self.part.tree.parent.items() if parent is not None}

    @cached_property
    def _tree_hops(self) -> Int[np.ndarray, " n-1"]:
        return _hops(self.part, self._places(self._parents), self._places(self._parents.values()))

    @cached_property
    def _deciders(self) -> Int[np.ndarray, " v"]:
        return self._places(self.part.graph.variable_owners)

    @cached_property
    def _owners(self) -> Int[np.ndarray, " f"]:
        return self._places(self.part.graph.factor_owners)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Index of each agent in the graph."""
        return {agent: i for i, agent in enumerate(self.part.graph.agents)}

    def _places(self, agents: Iterable[str]) -> Int[np.ndarray, " n"]:
        return np.array([self.index_of[agent] for agent in agents], dtype=np.int64)

    @cached_property
    def _hops(self) -> Int[np.ndarray, " e"]:
        """Number of links between the owners of each edge's factor and variable; 0 if both are the same agent."""
        edges = self.part.graph.edges
        return _hops(self.part, self._owners[edges.factors], self._deciders[edges.variables])

    @cached_property
    def _remote_owners(self) -> Int[np.ndarray, " n"]:
        """Pairs of a variable and another agent that owns factors of it, coded as variable * agents + owner."""
        edges, n_agents = self.part.graph.edges, len(self.part.graph.agents)
        owners = self._owners[edges.factors]
        elsewhere = owners != self._deciders[edges.variables]
        return np.unique((edges.variables * n_agents + owners)[elsewhere])

    @cached_property
    def _variable_names(self) -> Int[np.ndarray, " v"]:
        return messages.text_widths(self.part.graph.variables)

    @cached_property
    def _names(self) -> Int[np.ndarray, " e"]:
        edges = self.part.graph.edges
        return messages.text_widths(self.part.graph.factors)[edges.factors] + self._variable_names[edges.variables]


def _hops(part: Part, senders: Int[np.ndarray, " n"], recipients: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Number of links between agents, given by their indices in the graph; equal in both directions."""
    if part.routes.is_complete:
        return (senders != recipients).astype(np.int64)
    agents, n = part.graph.agents, len(part.graph.agents)
    # each pair of agents once: paths are searched in Python
    pairs, inverse = np.unique(senders * n + recipients, return_inverse=True)
    hops = [part.routes.hops(agents[pair // n], agents[pair % n]) for pair in pairs.tolist()]
    return np.array(hops, dtype=np.int64)[inverse]


def _sum(lengths: Int[np.ndarray, " n"], hops: Int[np.ndarray, " n"]) -> Traffic:
    return Traffic(messages=len(lengths), bytes=int(lengths.sum()), transmissions=int(hops.sum()))
