"""Problems that agents in a field agree on by messages: local functions as tables over shortlists of places."""

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
