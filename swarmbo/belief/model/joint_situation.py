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
    pending: Float[np.ndarray, "p n"]  # physical, without any known outcome; ``out`` includes partly known points
    outcomes: OutcomeMode  # whether outcomes are of the sum or of every factor
    links: "nx.Graph[str] | None"  # None if all agents are connected
    round: int  # 1 for the first decision
    horizon: int | None  # number of planned rounds; None if unknown
    seed: int  # the team's, for named random streams
    initial: int = 10  # number of evaluations of the initial design, if the history does not record it
    # the user's factors; one factor over all variables, whose scopes a method may search; or scopes already learned
    structure: Literal["known", "unknown", "learned"] = "known"
    pending_rounds: Float[np.ndarray, " p"] | None = None  # round of each pending query; None if unknown
    n_batched: int = 0  # number of pending points that were chosen from the same evaluations as the next point
    n_foreign: int = 0  # number of points in ``pending`` that no method chose: of the initial design, or from `expect`
    regions: tuple[Limit, ...] = ()  # no-go regions and known constraints
    # limits on measured quantities; the history contains their values
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])
    coding: Coding | None = None  # coordinates of models, if variables have types
    coded_by: Coding | None = None  # in a situation from ``inside``: the coding of its coordinates
    choices: frozenset[str] = frozenset()  # variables of ``graph`` that stand for single values of a choice
    # sums that agents computed together: means of connected parts at evaluated points, by the part's first factor
    part_means: Mapping[str, Float[np.ndarray, " t"]] = field(default_factory=dict[str, np.ndarray])
    earlier: AdditiveGP | None = None  # belief of the last decision; reusing its results saves time and changes no bit

    @cached_property
    def inside(self) -> "JointSituation":
        """Situation in the coordinates of models, without regions; unchanged if variables have no types."""
        if self.coding is None:
            return self
        X, pending = (self.coding.inside(self.domain.to_unit(points)) for points in (self.history.X, self.pending))
        code, history = self.coding, replace(self.history, X=X)
        inner: dict[str, Any] = {"graph": code.inner, "domain": code.box, "coded_by": code, "choices": code.choices}
        return replace(self, history=history, pending=pending, coding=None, regions=(), **inner)

    @cached_property
    def out(self) -> Out:
        """All points with a pending outcome; points without any known outcome come first."""
        history, nothing_told = self.history, np.ones((len(self.pending), len(self.graph.factors)), dtype=bool)
        partly = history.awaited.any(axis=1)
        rounds = self.pending_rounds
        if rounds is not None and partly.any():
            rounds = None if history.rounds is None else np.concatenate([rounds, history.rounds[partly]])
        points = np.concatenate([self.pending, history.X[partly]])
        return Out(points, rounds, np.concatenate([nothing_told, history.awaited[partly]]))

    @cached_property
    def chosen(self) -> Bool[np.ndarray, " t"]:
        """Mask of evaluations that a method chose: neither attached, nor of the initial design."""
        known = self.history.chosen
        return np.arange(len(self.history)) >= self.initial if known is None else known

    @property
    def n_asked(self) -> int:
        """Number of queries until now, without attached evaluations."""
        return int((~self.history.attached).sum()) + len(self.pending)

    def steps(self, *factors: str) -> Bool[np.ndarray, " t"]:
        """Mask of evaluations that count for or against a method: chosen, ``factors`` (default: all) not pending."""
        awaited = self.history.awaited[:, [self.graph.place_of[f] for f in factors] or slice(None)]
        return self.chosen & ~awaited.any(axis=1)

    def basis(self, since: int = 0) -> Int[np.ndarray, " t"]:
        """Number of evaluations from ``since`` on that were known at the time of each query."""
        known = self.history.basis
        return (np.arange(len(self.history)) if known is None else known)[since:] - since
