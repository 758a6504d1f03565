"""Problems that agents in a field agree on by messages, as tables over shortlists, and the check of an agreed batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.by_view import are_numbers, each
from swarmbo.acquisition.chain import IN_SIGHT
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.utility import BatchValue, Utility
from swarmbo.belief import PlaceBelief, Views
from swarmbo.graph import FactorGraph
from swarmbo.steps import Steps

Place = Float[np.ndarray, " d"]
Batch = dict[str, Place]


@dataclass(frozen=True)
class Safeguard:
    """Data for the check of a batch."""

    chains: tuple[tuple[str, ...], ...]  # participants, in the order of their chains
    order: int  # Markov order B of the agreement
    beliefs: Mapping[str, PlaceBelief]  # belief of each agent, in the order of sequential choice
    utilities: Mapping[str, Utility]  # utility of places for each agent
    prices: Mapping[str, float]  # price of a measurement for agents that may abstain
    # places (d,) of the sequential greedy choice, without abstaining agents; None: incomparable, because other
    # agents would measure
    in_turn: Mapping[str, Place] | None

    def settled(self, situation: Situation, points: Mapping[str, Place]) -> Steps[Batch]:
        """Final batch, chain by chain.

        Starting at the end of a chain, agents abstain if their place's utility is below its price, given those of later
        agents. Then the sequential greedy places are taken instead if their value is larger by the objective of the
        agreement, eq. (5). In a chain with more agents than a local function considers, they are also taken if their
        value is larger with all agents ahead considered, at most the next 64, or by the paper's eq. (5), in which
        neighbours measure with the noise that scales Psi.

        Agents with separate beliefs first report one by one if they abstain, then the value of each batch.
        ``points`` are the agreed places (d,) of measuring agents; no place twice.
        """
        settled: Batch = {}
        for chain in self.chains:
            batches = (points, self.in_turn or {})
            agreed, rival = ({agent: batch[agent] for agent in chain if agent in batch} for batch in batches)
            check = _Check(self, chain, agreed, rival, shared=not isinstance(situation.belief, Views))
            agreed = yield from check.worthwhile(situation)
            keeps = self.in_turn is None or (yield from check.is_no_worse(situation, agreed))
            settled |= agreed if keeps else rival
        return settled


class _Check:
    """Check of a chain's batch. Joint beliefs at the places of both batches are computed once for each rule and belief;
    with separate beliefs, and more places than an agent considers, each belief covers only the considered places.
    """

    def __init__(self, given: Safeguard, chain: Sequence[str], agreed: Batch, rival: Batch, *, shared: bool) -> None:
        self.given, self._chain, self._agreed, self._rival = given, list(chain), agreed, rival
        self._index_of = {agent: index for index, agent in enumerate(chain)}
        places = [*agreed.values(), *rival.values()]
        self._places = np.array(places) if places else np.empty((0, 1))
        self._rows = {place.tobytes(): row for row, place in enumerate(places)}
        self._asks_all = shared or len(chain) <= IN_SIGHT + 1
        self._known: dict[tuple[str, int, int], tuple[BatchValue, dict[int, int]]] = {}

    def worthwhile(self, situation: Situation) -> Steps[Batch]:
        agreed, safeguard, chain = self._agreed, self.given, self._chain
        rows = {agent: self._rows[place.tobytes()] for agent, place in agreed.items()}

        def stays(agent: str, before: Mapping[str, Any]) -> bool:
            behind = chain[self._index_of[agent] + 1 :]
            measuring = (rows[other] for other in behind if other in agreed and before.get(other, True))
            ahead = [*islice(measuring, IN_SIGHT)][::-1]
            is_worth_it = self._term(agent, [rows[agent], *ahead]) > safeguard.utilities[agent].opt_out_utility
            return agent in situation.unscaled or bool(is_worth_it)

        paying = [agent for agent in reversed(chain) if agent in agreed and agent in safeguard.prices]
        if not paying:
            return agreed
        stay = yield from each(
            situation, "declining", paying, stays, lambda _, stays: type(stays) is bool, in_turn=True
        )
        return {agent: place for agent, place in agreed.items() if stay.get(agent, True)}

    def is_no_worse(self, situation: Situation, agreed: Batch) -> Steps[bool]:
        """True if the sequential greedy places have no larger value than the remaining agreed places."""
        chain, order, rival = self._chain, self.given.order, self._rival
        both = [{agent: self._rows[place.tobytes()] for agent, place in own.items()} for own in (agreed, rival)]
        if any(agent in rival and agent not in agreed and agent not in self.given.prices for agent in chain):
            return False  # max-sum on loops may end in a conflict, which leaves an agent without a place
        # number of agents ahead that count, and if the noise that scales Psi is used for them
        sights = [(order, False)]
        if len(chain) > order + 1:
            sights += [(IN_SIGHT, False), (order, True)]
        for sight in sights:

            def of_both(agent: str, _: object, sight: tuple[int, bool] = sight) -> list[float]:
                return [self._adds(agent, batch, *sight) for batch in both]

            said = yield from each(situation, "looking again", chain, of_both, lambda _, both: are_numbers(both, 2))
            ours, theirs = map(added, zip(*said.values(), strict=True))
            # not `<`: a NaN falls back to the sequential choice
            if not ours >= theirs:
                return False
        return True

    def _adds(self, agent: str, batch: Mapping[str, int], order: int, to_the_letter: bool) -> float:
        if agent not in batch:
            return float(self.given.utilities[agent].opt_out_utility)
        ahead = self._chain[self._index_of[agent] :][: order + 1]
        return float(self._term(agent, [batch[other] for other in ahead if other in batch], to_the_letter))

    def _term(self, agent: str, rows: Sequence[int], to_the_letter: bool = False) -> float:
        """Local acquisition of a measuring agent at the first of some places, given those of others."""
        value, at = self._values(agent, rows)
        return value([at[row] for row in rows], to_the_letter) - self.given.prices.get(agent, 0.0)

    def _values(self, agent: str, asked: Sequence[int]) -> tuple[BatchValue, dict[int, int]]:
        """Batch values over at least the requested rows, and the index of each row in them."""
        utility, belief = self.given.utilities[agent], self.given.beliefs[agent]
        key = "" if self._asks_all else agent, id(utility), id(belief)
        if key not in self._known or not self._known[key][1].keys() >= set(asked):
            rows = range(len(self._places)) if self._asks_all else sorted({*asked, *self._in_sight(agent)})
            self._known[key] = utility.jointly(belief, self._places[rows]), {row: n for n, row in enumerate(rows)}
        return self._known[key]

    def _in_sight(self, agent: str) -> list[int]:
        near, both = self._chain[self._index_of[agent] :][: IN_SIGHT + 1], (self._agreed, self._rival)
        return [self._rows[batch[other].tobytes()] for batch in both for other in near if other in batch]


class TablesOnDemand(Mapping[str, np.ndarray]):
    """A table for each factor, made on first access, so that an owner makes only its own."""

    def __init__(self, factors: Sequence[str], make: Callable[[str], np.ndarray]) -> None:
        self._make = make
        self._made: dict[str, np.ndarray | None] = dict.fromkeys(factors)

    def __getitem__(self, factor: str) -> np.ndarray:
        if (table := self._made[factor]) is None:
            table = self._made[factor] = self._make(factor)
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class LocalProblem:
    """Problem that the agents have to agree on."""

    # one variable per agent, named after it (the place it measures), and one factor, its local acquisition
    # ``w_<agent>``; it owns both. Unconnected groups of agents are separate parts
    graph: FactorGraph
    tables: Mapping[str, np.ndarray]  # the factors over the shortlists, one axis per variable of the scope
    # places (s, d) of each variable's values. Agents with a price may abstain: their last row is NaN
    shortlists: dict[str, Float[np.ndarray, "s d"]]
    safeguard: Safeguard | None = None  # comparison with the sequential greedy choice; None: the agreement is final

    def value_steps(self, situation: Situation, points: Mapping[str, Place]) -> Steps[float | None]:
        """Sum of the factors at the measuring agents' choices; None if a choice is not on its agent's shortlist.

        Agents with separate beliefs send the values of their factors.
        """
        index, graph = self._rows_of(points), self.graph
        if index is None:
            return None

        def own(agent: str, _: object) -> list[float]:
            at = {factor: tuple(index[x] for x in graph.scope(factor)) for factor in graph.factors_owned_by(agent)}
            return [float(self.tables[factor][entry]) for factor, entry in at.items()]

        def fits(agent: str, utility: Any) -> bool:
            return are_numbers(utility, len(graph.factors_owned_by(agent)))

        said = yield from each(situation, "values", graph.agents, own, fits)
        utility: dict[str, float] = {}
        for agent in graph.agents:
            utility |= zip(graph.factors_owned_by(agent), said[agent], strict=True)
        return added(utility[factor] for factor in graph.factors)

    def _rows_of(self, points: Mapping[str, Place]) -> dict[str, int] | None:
        """Row of each agent's choice on its shortlist; None if a choice is not on it."""
        index: dict[str, int] = {}
        for agent, places in self.shortlists.items():
            chosen = points.get(agent)
            rows = np.isnan(places).any(axis=1) if chosen is None else (places == chosen).all(axis=1)
            if not rows.any():
                return None
            index[agent] = int(rows.argmax())
        return index

    def best_alone(self, agent: str, places: Float[np.ndarray, "k d"]) -> int | None:
        """Index of the place of largest utility to an agent in its own problem; None if it abstains."""
        utility = np.sum([np.ravel(self.tables[factor]) for factor in self.graph.factors_of(agent)], axis=0)
        chosen = self.shortlists[agent][int(np.argmax(utility))]
        return None if np.isnan(chosen).any() else int((places == chosen).all(axis=1).argmax())


def added(terms: Iterable[float]) -> float:
    """Sum in the given order, with the same bits for floats and for NumPy numbers."""
    # not sum(): it adds floats with compensation since Python 3.12, and NumPy's numbers without
    total = 0.0
    for term in terms:
        total += term
    return total
