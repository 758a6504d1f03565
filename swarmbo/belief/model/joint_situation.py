"""Knowledge of a team with a factor graph at the time of a decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode
from swarmbo.problem.coding import Coding
from swarmbo.problem.data import Dataset
from swarmbo.problem.no_go import Limit
from swarmbo.spaces import Domain


class Out(NamedTuple):
    """Joint points with pending outcomes.

    Args:
        points: Locations (q, n), physical.
        rounds: The round (q,) of each query; None if unknown.
        awaited: Mask of factors (q, n_factors) with pending outcomes.
    """

    points: Float[np.ndarray, "q n"]
    rounds: Float[np.ndarray, " q"] | None
    awaited: Bool[np.ndarray, "q k"]


@dataclass(frozen=True, eq=False)
class JointSituation:
    """Everything that a method may use to choose the next joint point.

    Args:
        graph: Scopes and owners.
        domain: The box of joint points, in the order of ``graph.variables``.
        history: Evaluations.
        pending: Pending joint points (p, n), physical, without any outcome. Partly known ones are in the history;
            ``out`` has both.
        outcomes: Kind of outcomes: of the sum, or of every factor.
        links: Communication graph; None if all agents are connected.
        round: 1 for the first decision.
        horizon: Number of planned rounds; None if unknown.
        seed: The team's seed, for named random streams.
        initial: Number of the first evaluations that belong to the initial design, if the history has no record.
        structure: ``known``: the graph has the true factors. ``unknown``: it has one over all variables, and a method
            may search for others. ``learned``: its scopes were learned elsewhere.
        pending_rounds: The round (p,) of each pending point's query; None as in ``Dataset``.
        failed: Mask of failed outcomes of the history (t, n_factors); all of a row if an evaluation failed as a whole.
            None: none did.
        limits: No-go regions and known constraints.
        ranges: Limits on measured quantities, whose values the history has.
        coding: Coordinates of models, if variables have types; ``inside`` is the situation in these.
        earlier: The belief of the last decision. Reuse of its results saves time, with bit-identical results.
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
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])
    coding: Coding | None = None
    earlier: AdditiveGP | None = None

    @cached_property
    def inside(self) -> "JointSituation":
        """The same in the coordinates of models; itself if these are the variables. It has no regions."""
        if self.coding is None:
            return self
        X, pending = (self.coding.inside(self.domain.to_unit(points)) for points in (self.history.X, self.pending))
        inner = {"graph": self.coding.inner, "domain": self.coding.box, "coding": None, "limits": ()}
        return replace(self, history=replace(self.history, X=X), pending=pending, **inner)

    @cached_property
    def out(self) -> Out:
        """All points with a pending outcome: first those without any outcome."""
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
        """Mask of evaluations that a method chose: neither attached, nor of the initial design."""
        known = self.history.chosen
        return np.arange(len(self.history)) >= self.initial if known is None else known

    def steps(self, factor: int | None = None) -> Bool[np.ndarray, " t"]:
        """Mask of evaluations that may count for or against a method: chosen, and with a result of ``factor`` (None:
        all).
        """
        awaited = self.history.awaited
        if awaited is None:
            return self.chosen
        return self.chosen & ~(awaited.any(axis=1) if factor is None else awaited[:, factor])

    def basis(self, since: int = 0) -> Int[np.ndarray, " t"]:
        """Number of known evaluations, of those from ``since`` on, at the time of each query."""
        known = self.history.basis
        return (np.arange(len(self.history)) if known is None else known)[since:] - since
