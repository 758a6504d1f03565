"""What agents in a field agree on by messages: local functions as tables over shortlists of places."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.by_view import ViewSteps, are_numbers, each
from swarmbo.acquisition.safeguard import Safeguard
from swarmbo.acquisition.situation import Situation
from swarmbo.graph import FactorGraph


class TablesOnDemand(Mapping[str, np.ndarray]):
    """A table for each factor, made when it is first looked at: who owns some of them makes no others.

    Args:
        factors: Their names.
        make: The table of a factor.

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
    """What the agents have to agree on.

    Args:
        graph: One variable per agent, named after it (the place it measures), and one factor, its local acquisition
            ``w_<agent>``; it owns both. Groups of agents that no links connect are parts of their own.
        tables: The factors over the shortlists, one axis per variable of the scope.
        shortlists: For each variable the places (s, d) that its values stand for. Agents whose measurements have a
            price may decline: their last row is NaN.
        safeguard: Against what agents would choose one after the other; None: what is agreed is final.
    """

    graph: FactorGraph
    tables: Mapping[str, np.ndarray]
    shortlists: dict[str, Float[np.ndarray, "s d"]]
    safeguard: Safeguard | None = None

    def value_of(self, points: Mapping[str, Float[np.ndarray, " d"]]) -> float | None:
        """Sum of the factors where agents measure at places of their shortlists; None where one has no place and can't
        decline.

        Args:
            points: The places (d,) of those who measure.
        """
        index = self._rows_of(points)
        return None if index is None else added(self._value(factor, index) for factor in self.graph.factors)

    def value_steps(
        self, situation: Situation, points: Mapping[str, Float[np.ndarray, " d"]]
    ) -> ViewSteps[float | None]:
        """The same, of which agents with beliefs of their own each know what their factors are worth.

        Args:
            situation: That the problem is of.
            points: The places (d,) of those who measure.
        """
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
        """Which rows of their shortlists agents are at; None if one is at none of them."""
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
        """The place that is worth most to an agent, of a problem that is its own alone.

        Args:
            agent: Who.
            places: What it can reach; its shortlist is some of them.

        Returns:
            The index among the places; None where it declines.
        """
        utility = np.sum([np.ravel(self.tables[factor]) for factor in self.graph.factors_of(agent)], axis=0)
        chosen = self.shortlists[agent][int(np.argmax(utility))]
        return None if np.isnan(chosen).any() else int((places == chosen).all(axis=1).argmax())


def added(terms: Iterable[float]) -> float:
    """Their sum, one after the other: ``sum`` adds floats in another way, and numbers of NumPy in this."""
    total = 0.0
    for term in terms:
        total += term
    return total
