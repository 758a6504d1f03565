"""What every agent knows before an agreement by a deadline on a joint point."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.claims import Claims
from swarmbo.coordination.correspondent import Paced
from swarmbo.coordination.lanes import Course
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.starts import FEWEST, joint_starts
from swarmbo.graph import FactorGraph

_RUNS_END, _COMPARED, _DECIDED = 0.1, 0.65, 0.85  # of the time: when turns begin, pause, and go on in the best lane
_RUNS = 5  # at most
_STEPS = np.array([-1.0, 1.0])  # of how far a variable looks
_LATTICE = 9  # values all over the box


class Climbs(Paced, Protocol):
    """Settings of the climb: those of ``ADMM(…)``; see there."""

    @property
    def starts(self) -> int: ...  # noqa: D102

    @property
    def inner_steps(self) -> int: ...  # noqa: D102

    @property
    def penalty(self) -> float: ...  # noqa: D102


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
        starts, drawn = points[: min(settings.starts, _RUNS)], points[n_given:]
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
    def course(self) -> Course:
        """Lanes: the best start, and where each run has ended."""
        ticks = self.settings.deadline
        first, compared, decided = (int(share * ticks) for share in (_RUNS_END, _COMPARED, _DECIDED))
        return Course(self.claims, 1 + len(self.starts), first, compared, decided, self.settings.threshold)

    def looks(
        self, variable: str, stand: Float[np.ndarray, " k"], reach: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k v"]:
        """The values that a variable looks at: where it stands, a step away, and all over the box."""
        i = self.graph.column_of[variable]
        low, high = self.low[i], self.high[i]
        steps = (reach * self.sides[i])[:, None] * _STEPS
        lattice = np.broadcast_to(np.linspace(low, high, _LATTICE), (len(stand), _LATTICE))
        return np.clip(np.concatenate([stand[:, None], stand[:, None] + steps, lattice], axis=1), low, high)
