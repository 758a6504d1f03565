"""Traffic of many equal messages, computed with arrays; tests compare lengths and hops with real messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from swarmbo.coordination.messages import (
    NO_NUMBERS,
    Choice,
    Codec,
    Consensus,
    Message,
    Numbers,
    array_widths,
    index_widths,
    text_widths,
)
from swarmbo.coordination.part import Part
from swarmbo.records import Traffic


@dataclass(frozen=True, eq=False)
class Counts:
    """Traffic of messages of a part."""

    part: Part

    def numbers(
        self, kind: type[Numbers], sizes: Int[np.ndarray, " e"], said: Bool[np.ndarray, " e"] | None = None
    ) -> Traffic:
        """Traffic of messages of so many entries per edge in one direction; ``said`` masks edges with a message."""
        hops, outline = self._hops, Codec.size(kind("", "", NO_NUMBERS))
        crosses = hops > 0 if said is None else said & (hops > 0)
        lengths = outline + self._names + array_widths(sizes)
        return _sum(lengths[crosses], hops[crosses])

    def sums(self, kind: type[Numbers], n_points: int) -> Traffic:
        """Traffic of entries of variables with several factors to their owners, and of the sums back."""
        is_shared = np.array(list(self.part.is_shared.values()))[self.part.graph.edges.variables]
        sizes = np.full(len(is_shared), n_points)
        return self.numbers(kind, sizes, is_shared) + self.numbers(Consensus, sizes, is_shared)

    def first_choices(self, choices: Int[np.ndarray, " v"]) -> Traffic:
        """Additional bytes of variables' messages that carry their present choice, on all edges that cross a link."""
        widths = index_widths(choices)[self.part.graph.edges.variables]
        return Traffic(bytes=int(widths[self._hops > 0].sum()))

    def words(self, choices: Int[np.ndarray, " v"]) -> Traffic:
        """Traffic of each variable's decision, from its owner to each other owner of its factors."""
        variables, owners = np.divmod(self._hearers, len(self.part.graph.agents))
        hops = _hops(self.part, self._actors[variables], owners)
        lengths = Codec.size(Choice("", 0)) + self._variable_names + index_widths(choices)
        return _sum(lengths[variables], hops)

    def up_tree(self, message: Message, per_factor: int) -> Traffic:
        """Traffic up the tree, of a message with ``per_factor`` numbers for each factor behind an agent."""
        names, n_factors = self._senders
        return _sum(Codec.size(message) + names + array_widths(per_factor * n_factors), self._tree_hops)

    def down_tree(self, message: Message) -> Traffic:
        """Traffic down the tree, to every agent but the root from its parent."""
        hops = self._tree_hops
        return _sum(np.full(len(hops), Codec.size(message)), hops)

    @cached_property
    def _senders(self) -> tuple[Int[np.ndarray, " n-1"], Int[np.ndarray, " n-1"]]:
        """Bytes of the names of all agents but the root, and numbers of factors behind them."""
        tree = self.part.tree
        names = [agent for agent, parent in tree.parent.items() if parent is not None]
        return text_widths(names), np.array([len(tree.factors[agent]) for agent in names], dtype=np.int64)

    @cached_property
    def _tree_hops(self) -> Int[np.ndarray, " n-1"]:
        if self.part.routes.is_complete:
            return np.ones(len(self.part.agents) - 1, dtype=np.int64)
        place = {agent: i for i, agent in enumerate(self.part.graph.agents)}
        links = [(place[agent], place[above]) for agent, above in self.part.tree.parent.items() if above is not None]
        ends = np.array(links, dtype=np.int64).reshape(-1, 2)
        return _hops(self.part, ends[:, 0], ends[:, 1])

    @cached_property
    def _actors(self) -> Int[np.ndarray, " v"]:
        return self._places(self.part.graph.variable_owners)

    @cached_property
    def _owners(self) -> Int[np.ndarray, " f"]:
        return self._places(self.part.graph.factor_owners)

    def _places(self, owners: Sequence[str]) -> Int[np.ndarray, " n"]:
        place = {agent: i for i, agent in enumerate(self.part.graph.agents)}
        return np.array([place[owner] for owner in owners], dtype=np.int64)

    @cached_property
    def _hops(self) -> Int[np.ndarray, " e"]:
        """Number of links from the owner of each edge's factor to that of its variable; 0 if it is one agent."""
        edges = self.part.graph.edges
        return _hops(self.part, self._owners[edges.factors], self._actors[edges.variables])

    @cached_property
    def _hearers(self) -> Int[np.ndarray, " n"]:
        """Variables with other owners of their factors, each pair once, coded as variable * agents + owner."""
        edges, n_agents = self.part.graph.edges, len(self.part.graph.agents)
        owners = self._owners[edges.factors]
        elsewhere = owners != self._actors[edges.variables]
        return np.unique((edges.variables * n_agents + owners)[elsewhere])

    @cached_property
    def _variable_names(self) -> Int[np.ndarray, " v"]:
        return text_widths(self.part.graph.variables)

    @cached_property
    def _names(self) -> Int[np.ndarray, " e"]:
        edges = self.part.graph.edges
        return text_widths(self.part.graph.factors)[edges.factors] + self._variable_names[edges.variables]


def _hops(part: Part, senders: Int[np.ndarray, " n"], recipients: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Number of links between agents, given by their indices in the graph; equal in both directions."""
    if part.routes.is_complete:
        return (senders != recipients).astype(np.int64)
    agents, n = part.graph.agents, len(part.graph.agents)
    # each pair of agents once: paths are searched in Python
    pairs, place = np.unique(senders * n + recipients, return_inverse=True)
    hops = [part.routes.hops(agents[pair // n], agents[pair % n]) for pair in pairs.tolist()]
    return np.array(hops, dtype=np.int64)[place]


def _sum(lengths: Int[np.ndarray, " n"], hops: Int[np.ndarray, " n"]) -> Traffic:
    return Traffic(messages=len(lengths), bytes=int(lengths.sum()), transmissions=int(hops.sum()))
