"""What is known when a team with a factor graph decides where to evaluate next, and what it makes of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode
from swarmbo.problem.data import Dataset
from swarmbo.problem.no_go import Limit
from swarmbo.spaces import Domain


class Out(NamedTuple):
    """Joint points of which outcomes are still to come.

    Args:
        points: Where (q, n), physical.
        rounds: The round (q,) in which each was asked for; None where nobody says.
        awaited: Of which factors (q, n_factors).
    """

    points: Float[np.ndarray, "q n"]
    rounds: Float[np.ndarray, " q"] | None
    awaited: Bool[np.ndarray, "q k"]


@dataclass(frozen=True, eq=False)
class JointSituation:
    """Everything that a method may look at when a team with a factor graph chooses its next joint point.

    Args:
        graph: Scopes and owners.
        domain: The box of joint points, in the order of ``graph.variables``.
        history: What was evaluated.
        pending: Pending joint points (p, n), physical, of which nothing was told yet. Those
            that were told in part are in the history; ``out`` has both.
        outcomes: Whether outcomes are told of the sum, or of every factor.
        links: Who hears whom; None means that everyone hears everyone.
        round: 1 for the first decision.
        horizon: Number of rounds planned; None if unknown.
        seed: The team's seed, for named random streams.
        initial: How many of the first evaluations belong to the initial design, which no method chose, where the
            history does not say.
        structure: Whether the graph tells the factors; if not, it has one over all variables, and a method may look for
            others. ``learned``: somebody else looked for them.
        pending_rounds: The round (p,) in which each pending point was asked for; None as in ``Dataset``.
        failed: Which outcomes of the history (t, n_factors) failed; all of a row where an evaluation failed as a whole.
            None: none did.
        limits: Regions that must not be asked.
        earlier: The belief of the last decision. To go on from what was worked out for it saves time, and changes
            nothing.
    """

    graph: FactorGraph
    domain: Domain
    history: Dataset
    pending: Float[np.ndarray, "p n"]
    outcomes: OutcomeMode
    links: "nx.Graph[str] | None"
    round: int
    horizon: int | None
    seed: int
    initial: int = 10
    structure: Literal["known", "unknown", "learned"] = "known"
    pending_rounds: Float[np.ndarray, " p"] | None = None
    failed: Bool[np.ndarray, "t k"] | None = None
    limits: tuple[Limit, ...] = ()
    earlier: AdditiveGP | None = None

    @cached_property
    def out(self) -> Out:
        """All points of which not every outcome was told: first those of which none was."""
        history, nothing_told = self.history, np.ones((len(self.pending), len(self.graph.factors)), dtype=bool)
        if history.awaited is None:
            return Out(self.pending, self.pending_rounds, nothing_told)
        partly = history.awaited.any(axis=1)
        rounds = None
        if history.rounds is not None and self.pending_rounds is not None:
            rounds = np.concatenate([self.pending_rounds, history.rounds[partly]])
        return Out(
            np.concatenate([self.pending, history.X[partly]]),
            rounds,
            np.concatenate([nothing_told, history.awaited[partly]]),
        )

    @cached_property
    def chosen(self) -> Bool[np.ndarray, " t"]:
        """Which evaluations of the history a method chose: not those attached, nor those of the initial design."""
        known = self.history.chosen
        return np.arange(len(self.history)) >= self.initial if known is None else known

    def steps(self, factor: int | None = None) -> Bool[np.ndarray, " t"]:
        """Which evaluations of the history may count for or against a method: those it chose and that came back.

        Args:
            factor: Index of the factor whose outcomes are looked at; None: those of all together.
        """
        awaited = self.history.awaited
        if awaited is None:
            return self.chosen
        return self.chosen & ~(awaited.any(axis=1) if factor is None else awaited[:, factor])

    def basis(self, since: int = 0) -> Int[np.ndarray, " t"]:
        """How many evaluations, of those in use, were known when each of these was asked for.

        Args:
            since: Evaluations before this one are set aside.
        """
        known = self.history.basis
        return (np.arange(len(self.history)) if known is None else known)[since:] - since
