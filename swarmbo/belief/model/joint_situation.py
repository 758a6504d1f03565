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
    """Joint points with pending outcomes, the round of each query if known, and the mask of their pending factors."""

    points: Float[np.ndarray, "q n"]
    rounds: Float[np.ndarray, " q"] | None
    awaited: Bool[np.ndarray, "q k"]


@dataclass(frozen=True, eq=False)
class JointSituation:
    """Everything that a method may use to choose the next joint point."""

    graph: FactorGraph
    domain: Domain  # in the order of ``graph.variables``
    history: Dataset
    pending: Float[np.ndarray, "p n"]  # physical, without any outcome; ``out`` has partly known ones too
    outcomes: OutcomeMode  # of the sum, or of every factor
    links: "nx.Graph[str] | None"  # None if all agents are connected
    round: int  # 1 for the first decision
    horizon: int | None  # number of planned rounds; None if unknown
    seed: int  # the team's, for named random streams
    initial: int = 10  # first evaluations of the initial design, if the history has no record
    # true factors; one over all variables, so that a method may search for others; scopes that were learned elsewhere
    structure: Literal["known", "unknown", "learned"] = "known"
    pending_rounds: Float[np.ndarray, " p"] | None = None  # of the queries; None as in ``Dataset``
    n_batched: int = 0  # pending points that were chosen from the same evaluations as the next
    failed: Bool[np.ndarray, "t k"] | None = None  # outcomes; all of a row if an evaluation failed as a whole
    regions: tuple[Limit, ...] = ()  # no-go regions and known constraints
    # limits on measured quantities, whose values the history has
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])
    coding: Coding | None = None  # coordinates of models, if variables have types
    coded_by: Coding | None = None  # what made the coordinates, in a situation ``inside``
    choices: frozenset[str] = frozenset()  # variables of ``graph`` that stand for single values of a choice
    # means of some parts' sums at evaluated points, by the part's first factor: sums that agents have computed together
    part_means: Mapping[str, Float[np.ndarray, " t"]] = field(default_factory=dict[str, np.ndarray])
    earlier: AdditiveGP | None = None  # belief of the last decision: reuse of its results saves time, bit-identically

    @cached_property
    def inside(self) -> "JointSituation":
        """Situation in the coordinates of models; itself if these are the variables. It has no regions."""
        if self.coding is None:
            return self
        X, pending = (self.coding.inside(self.domain.to_unit(points)) for points in (self.history.X, self.pending))
        code, history = self.coding, replace(self.history, X=X)
        inner: dict[str, Any] = {"graph": code.inner, "domain": code.box, "coded_by": code, "choices": code.choices}
        return replace(self, history=history, pending=pending, coding=None, regions=(), **inner)

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
        points = np.concatenate([self.pending, history.X[partly]])
        return Out(points, rounds, np.concatenate([nothing_told, history.awaited[partly]]))

    @cached_property
    def chosen(self) -> Bool[np.ndarray, " t"]:
        """Mask of evaluations that a method chose: neither attached, nor of the initial design."""
        known = self.history.chosen
        return np.arange(len(self.history)) >= self.initial if known is None else known

    def steps(self, *factors: str) -> Bool[np.ndarray, " t"]:
        """Mask of evaluations that may count for or against a method: chosen, with results of these (none: all)."""
        if self.history.awaited is None:
            return self.chosen
        awaited = self.history.awaited[:, [self.graph.place_of[f] for f in factors] or slice(None)]
        return self.chosen & ~awaited.any(axis=1)

    def basis(self, since: int = 0) -> Int[np.ndarray, " t"]:
        """Number of known evaluations, of those from ``since`` on, at the time of each query."""
        known = self.history.basis
        return (np.arange(len(self.history)) if known is None else known)[since:] - since
