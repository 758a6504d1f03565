"""Problems that agents in a field agree on by messages, as tables over shortlists, and the check of an agreed batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.by_view import ViewSteps, are_numbers, each, in_turn
from swarmbo.acquisition.chain import IN_SIGHT
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.utility import BatchValue, Utility
from swarmbo.belief import PlaceBelief, Views
from swarmbo.graph import FactorGraph

Batch = dict[str, Float[np.ndarray, " d"]]
Place = tuple[str, Float[np.ndarray, " d"]]  # with the agent that measures there


@dataclass(frozen=True)
class _Sight:
    """Number of agents ahead that an agent considers; ``to_the_letter`` uses the noise that scales Psi for them."""

    order: int
    to_the_letter: bool = False


@dataclass(frozen=True)
class Safeguard:
    """Data for the check of a batch.

    Args:
        chains: Participants, in the order of their chains.
        order: Markov order B of the agreement.
        beliefs: Belief of each agent, in the order of sequential choice.
        utilities: Utility of places for each agent.
        prices: Price of a measurement for agents that may abstain.
        in_turn: Places (d,) of the sequential greedy choice, without abstaining agents; None: incomparable, because
            other agents would measure.
    """

    chains: tuple[tuple[str, ...], ...]
    order: int
    beliefs: Mapping[str, PlaceBelief]
    utilities: Mapping[str, Utility]
    prices: Mapping[str, float]
    in_turn: Mapping[str, Float[np.ndarray, " d"]] | None

    def settled(self, situation: Situation, points: Mapping[str, Float[np.ndarray, " d"]]) -> ViewSteps[Batch]:
        """Final batch, chain by chain.

        From the end of a chain on, agents abstain whose places are not worth their price given the places of later
        agents. Then the sequential greedy places are taken instead if their value is larger by the objective of the
        agreement, eq. (5). In a chain with more agents than a local function considers, they are also taken if their
        value is larger with all agents ahead considered, at most the next 64, or by the paper's eq. (5), in which
        neighbours measure with the noise that scales Psi.

        Agents with separate beliefs report in turn if they abstain, and then the value of each of the two batches.
        ``points`` are the agreed places (d,) of measuring agents; no place twice.
        """
        settled: Batch = {}
        for chain in self.chains:
            agreed, rival = _of(chain, points), _of(chain, self.in_turn or {})
            shared = not isinstance(situation.belief, Views)
            # of both batches at once, as every term is asked for in each
            posteriors = _Posteriors(chain, (agreed, rival), shared=shared)
            agreed = yield from self._utility_their_price(situation, chain, agreed, posteriors)
            keeps = self.in_turn is None
            if not keeps:
                keeps = yield from self._is_no_worse(situation, chain, agreed, rival, posteriors)
            settled |= agreed if keeps else rival
        return settled

    def _utility_their_price(
        self, situation: Situation, chain: Sequence[str], points: Batch, posteriors: "_Posteriors"
    ) -> ViewSteps[Batch]:
        def stays(agent: str, before: Mapping[str, Any]) -> bool:
            behind = [other for other in reversed(chain[chain.index(agent) + 1 :]) if other in points]
            ahead = [(other, points[other]) for other in behind if before.get(other, True)][-IN_SIGHT:]
            return bool(
                self._term(agent, points[agent], ahead, _Sight(IN_SIGHT), posteriors)
                > self.utilities[agent].opt_out_utility
            )

        paying = [agent for agent in reversed(chain) if agent in points and agent in self.prices]
        if not paying:
            return points
        stay = yield from in_turn(situation, "declining", paying, stays, lambda _, stays: type(stays) is bool)
        return {agent: place for agent, place in points.items() if stay.get(agent, True)}

    def _is_no_worse(
        self, situation: Situation, chain: Sequence[str], agreed: Batch, rival: Batch, posteriors: "_Posteriors"
    ) -> ViewSteps[bool]:
        if any(agent in rival and agent not in agreed and agent not in self.prices for agent in chain):
            return False  # max-sum on loops may end in a conflict, which leaves an agent without a place
        sights = [_Sight(self.order)]
        if len(chain) > self.order + 1:
            sights += [_Sight(IN_SIGHT), _Sight(self.order, to_the_letter=True)]
        for sight in sights:
            utility = partial(self._utility_of_both, chain, agreed, rival, sight, posteriors)
            said = yield from each(
                situation, "looking again", chain, utility, lambda _, utility: are_numbers(utility, 2)
            )
            ours, theirs = 0.0, 0.0
            for agreed_utility, rival_utility in said.values():  # in chain order, for equal bits (sum() adds otherwise)
                ours, theirs = ours + agreed_utility, theirs + rival_utility
            # not `<`: a NaN falls back to the sequential choice
            if not ours >= theirs:
                return False
        return True

    def _utility_of_both(
        self, chain: Sequence[str], agreed: Batch, rival: Batch, sight: _Sight, posteriors: "_Posteriors", agent: str
    ) -> tuple[float, float]:
        """Terms that an agent adds to either batch."""
        ours, theirs = (self._adds(agent, chain, batch, sight, posteriors) for batch in (agreed, rival))
        return float(ours), float(theirs)

    def _adds(self, agent: str, chain: Sequence[str], batch: Batch, sight: _Sight, posteriors: "_Posteriors") -> float:
        if agent not in batch:
            return self.utilities[agent].opt_out_utility
        ahead = [(other, batch[other]) for other in chain[chain.index(agent) + 1 :][: sight.order] if other in batch]
        return self._term(agent, batch[agent], ahead, sight, posteriors)

    def _term(
        self,
        agent: str,
        place: Float[np.ndarray, " d"],
        ahead: Sequence[Place],
        sight: _Sight,
        posteriors: "_Posteriors",
    ) -> float:
        """Local acquisition of a measuring agent, given the places of some others."""
        value = posteriors.of_first(
            self.utilities[agent], self.beliefs[agent], [(agent, place), *ahead], sight.to_the_letter
        )
        return value - self.prices.get(agent, 0.0)


class _Posteriors:
    """Joint beliefs at the places of two batches, computed once for each rule and belief."""

    # With separate beliefs, and more places than an agent considers, each belief covers only these.

    def __init__(self, chain: Sequence[str], batches: Sequence[Batch], *, shared: bool) -> None:
        self._chain, self._batches = {agent: n for n, agent in enumerate(chain)}, batches
        places = [place for batch in batches for place in batch.values()]
        self._places = np.array(places) if places else np.empty((0, 1))
        self._asks_all = shared or len(chain) <= IN_SIGHT + 1
        self._rows = {place.tobytes(): row for row, place in enumerate(places)}
        self._known: dict[tuple[str, int, int], tuple[BatchValue, dict[int, int]]] = {}

    def of_first(self, utility: Utility, belief: PlaceBelief, places: Sequence[Place], to_the_letter: bool) -> float:
        """Utility of the first of some of the places given the others, by a rule and a belief."""
        rows = [self._rows[place.tobytes()] for _, place in places]
        value, at = self._value(utility, belief, places[0][0], rows)
        return value.of_first([at[row] for row in rows], to_the_letter)

    def _value(
        self, utility: Utility, belief: PlaceBelief, agent: str, asked: Sequence[int]
    ) -> tuple[BatchValue, dict[int, int]]:
        """Batch values over at least the requested rows, and the position of each row."""
        key = "" if self._asks_all else agent, id(utility), id(belief)
        if key not in self._known or not self._known[key][1].keys() >= set(asked):
            rows = range(len(self._places)) if self._asks_all else sorted({*asked, *self._in_sight(agent)})
            self._known[key] = utility.jointly(belief, self._places[rows]), {row: n for n, row in enumerate(rows)}
        return self._known[key]

    def _in_sight(self, agent: str) -> list[int]:
        """Rows of an agent and of the next 64 in the chain."""
        first = self._chain[agent]
        return [
            self._rows[place.tobytes()]
            for batch in self._batches
            for other, place in batch.items()
            if first <= self._chain[other] <= first + IN_SIGHT
        ]


def _of(chain: Sequence[str], points: Mapping[str, Float[np.ndarray, " d"]]) -> Batch:
    return {agent: points[agent] for agent in chain if agent in points}


class TablesOnDemand(Mapping[str, np.ndarray]):
    """A table for each factor, made on first access, so that an owner makes only its own.

    Example:
        >>> tables = TablesOnDemand(["w_a", "w_b"], lambda factor: np.zeros(len(factor)))
        >>> len(tables), tables["w_b"].tolist()
        (2, [0.0, 0.0, 0.0])
    """

    def __init__(self, factors: Sequence[str], make: Callable[[str], np.ndarray]) -> None:
        self._factors, self._make = tuple(factors), make
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, factor: str) -> np.ndarray:
        if factor not in self._made:
            if factor not in self._factors:
                raise KeyError(factor)
            self._made[factor] = self._make(factor)
        return self._made[factor]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factors)

    def __len__(self) -> int:
        return len(self._factors)


@dataclass(frozen=True)
class LocalProblem:
    """Problem that the agents have to agree on.

    Args:
        graph: One variable per agent, named after it (the place it measures), and one factor, its local acquisition
            ``w_<agent>``; it owns both. Unconnected groups of agents are separate parts.
        tables: The factors over the shortlists, one axis per variable of the scope.
        shortlists: Places (s, d) of each variable's values. Agents with a price may abstain: their last row is NaN.
        safeguard: Comparison with the sequential greedy choice; None: the agreement is final.
    """

    graph: FactorGraph
    tables: Mapping[str, np.ndarray]
    shortlists: dict[str, Float[np.ndarray, "s d"]]
    safeguard: Safeguard | None = None

    def value_of(self, points: Mapping[str, Float[np.ndarray, " d"]]) -> float | None:
        """Sum of the factors for measuring agents' places on their shortlists; None if an agent has no option left."""
        index = self._rows_of(points)
        return None if index is None else added(self._value(factor, index) for factor in self.graph.factors)

    def value_steps(
        self, situation: Situation, points: Mapping[str, Float[np.ndarray, " d"]]
    ) -> ViewSteps[float | None]:
        """Steps of ``value_of``, in which agents with separate beliefs send the values of their factors."""
        index, graph = self._rows_of(points), self.graph
        if index is None:
            return None

        def own(agent: str) -> list[float]:
            return [self._value(factor, index) for factor in graph.factors_owned_by(agent)]

        def fits(agent: str, utility: Any) -> bool:
            return are_numbers(utility, len(graph.factors_owned_by(agent)))

        said = yield from each(situation, "values", graph.agents, own, fits)
        utility: dict[str, float] = {}
        for agent in graph.agents:
            utility |= zip(graph.factors_owned_by(agent), said[agent], strict=True)
        return added(utility[factor] for factor in graph.factors)

    def _rows_of(self, points: Mapping[str, Float[np.ndarray, " d"]]) -> dict[str, int] | None:
        """Rows of agents' shortlists; None if a place is on none."""
        index: dict[str, int] = {}
        for agent, places in self.shortlists.items():
            chosen = points.get(agent)
            rows = np.isnan(places).any(axis=1) if chosen is None else (places == chosen).all(axis=1)
            if not rows.any():
                return None
            index[agent] = int(rows.argmax())
        return index

    def _value(self, factor: str, index: Mapping[str, int]) -> float:
        return float(self.tables[factor][tuple(index[x] for x in self.graph.scope(factor))])

    def best_alone(self, agent: str, places: Float[np.ndarray, "k d"]) -> int | None:
        """Index of the place of largest utility to an agent in its own problem; None if it abstains."""
        utility = np.sum([np.ravel(self.tables[factor]) for factor in self.graph.factors_of(agent)], axis=0)
        chosen = self.shortlists[agent][int(np.argmax(utility))]
        return None if np.isnan(chosen).any() else int((places == chosen).all(axis=1).argmax())


def added(terms: Iterable[float]) -> float:
    """Sum in the given order, for equal bits with floats and NumPy numbers (``sum`` adds floats otherwise)."""
    # not sum(): it adds floats with compensation from Python 3.12 on, and NumPy's numbers without
    total = 0.0
    for term in terms:
        total += term
    return total
