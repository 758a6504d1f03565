"""What every agent knows before an agreement by a deadline on a joint point."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.asynchronous import Terms
from swarmbo.coordination.claims import Claims
from swarmbo.coordination.correspondent import Paced
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.starts import FEWEST, joint_starts
from swarmbo.graph import FactorGraph

_DAMPING = 0.5
_SWEEPS = 3  # turns that every variable has at least, if slots of two ticks allow


class Climbs(Paced, Protocol):
    """Settings of the climb: those of ``ADMM(…)``; see there."""

    @property
    def starts(self) -> int: ...  # noqa: D102

    @property
    def inner_steps(self) -> int: ...  # noqa: D102

    @property
    def penalty(self) -> float: ...  # noqa: D102

    @property
    def recombination_entries(self) -> int: ...  # noqa: D102


def values_of(graph: FactorGraph, most: int, entries: int) -> int:
    """How many values each variable may choose from, if no factor's table is to have more entries than so many."""
    count = most
    while count > 1 and count**graph.max_factor_size > entries:
        count -= 1
    return count


@dataclass(frozen=True, eq=False)
class BoxTerms:
    """What every agent knows before an agreement by a deadline on a joint point.

    Args:
        settings: How.
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box.
        high: Upper corner (n,).
        starts: Of the runs (m, n), given ones first.
        n_given: How many of them were given.
        drawn: Random joint points (k, n), by which factors judge their spread.
        n_exchanges: Phases in which neighbouring factors tell each other numbers.
        shares: Whether agents know enough to say what others' factors are worth: then those of a silent agent are
            judged by whoever owns their variables.
    """

    settings: Climbs
    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "m n"]
    n_given: int
    drawn: Float[np.ndarray, "k n"]
    n_exchanges: int = 0
    shares: bool = False

    @classmethod
    def of(cls, settings: Climbs, functions: LocalFunctions, seed: int, *, shares: bool) -> "BoxTerms":
        """What follows from the settings, the box and the seed; no function is asked for a value."""
        graph, n_given = functions.graph, min(len(functions.starts), settings.starts)
        n_random = max(settings.starts, FEWEST)
        points = joint_starts(functions, graph.variables, seed, settings.starts, n_random)
        starts, drawn = points[: settings.starts], points[n_given:]
        box = functions.low, functions.high
        return cls(settings, graph, *box, starts, n_given, drawn, functions.n_exchanges, shares)

    @property
    def standing(self) -> Float[np.ndarray, " n"]:
        """Where every variable stands at first: at the best start, or in the middle of the box."""
        return self.starts[0] if self.n_given else (self.low + self.high) / 2.0

    @cached_property
    def sides(self) -> Float[np.ndarray, " n"]:
        """Of the box; 1 where it has no length."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @cached_property
    def claims(self) -> Claims:
        """The colours of variables: no two of one factor have the same."""
        return Claims(self.graph, {})

    @cached_property
    def n_values(self) -> int:
        """How many values each variable may choose from when runs are recombined; 1: they are not."""
        return values_of(self.graph, self.settings.starts + 1, self.settings.recombination_entries)

    @property
    def runs_end(self) -> int:
        """The tick at which runs end, and variables say what they may choose from."""
        return self.settings.deadline // 4

    @property
    def recombination(self) -> tuple[int, int]:
        """The ticks at which runs are recombined: when tables are made, and when words are final."""
        end = self.runs_end
        if self.n_values < 2:
            return end, end
        return end + self.settings.deadline // 12, end + self.settings.deadline // 3

    @property
    def first_turn(self) -> int:
        """The tick at which turns begin."""
        return self.recombination[1]

    def table_terms(self) -> Terms:
        """What all know of the choice between values; the first one is where a variable stands."""
        begin, end = self.recombination
        graph, settings = self.graph, self.settings
        sizes, stay = dict.fromkeys(graph.variables, self.n_values), dict.fromkeys(graph.variables, 0)
        return Terms(graph, sizes, self.claims, end, settings.patience, settings.threshold, _DAMPING, stay, begin)

    @property
    def slot(self) -> int:
        """Ticks of a turn: two at least, as an answer takes two."""
        return max(2, (self.settings.deadline - self.first_turn) // (_SWEEPS * self.claims.n_colours))

    def has_turn(self, variable: str, now: int) -> bool:
        """Whether a variable may move at a tick: then none that shares a factor with it may."""
        colour = (now - self.first_turn) // self.slot % self.claims.n_colours
        return now >= self.first_turn and colour == self.claims.colour[variable]
