"""Model of a history before a joint point is chosen.

A model is a pure function of the history, the seed and the state learned before. A resumed team with that state repeats
the uninterrupted one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.ensemble_settings import EnsembleHyperparameters
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model.incumbents import incumbent
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.warping import Warp, WarpKind
from swarmbo.belief.structure.choice import LearnedStructure
from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset


class Learned(msgspec.Struct, frozen=True):
    """State that a model passes to the next one, besides the history; plain data. Numbers are of evaluations."""

    hyperparameters: AdditiveHyperparameters
    fitted_at: int  # 0: not yet
    scopes: tuple[tuple[str, ...], ...] | None = None  # a learned decomposition; None with the team's own graph
    decomposed_at: int = 0  # when it, or transforms and splits, were chosen
    warps: tuple[tuple[WarpKind, float], ...] = ()  # kind and exponent, once for the total or once for each factor
    splits: dict[str, AdditiveHyperparameters] = {}  # of the factors that are modelled as sums over their variables
    restarted_at: int = 0  # evaluations before this one are set aside; a search restarted there
    before: "Learned | None" = None  # state learned last from all evaluations, before the first restart
    whole_since: int = 0  # when a factor last ceased to be split
    candidate_models: tuple[tuple[int, AdditiveHyperparameters], ...] = ()  # of similar evidence, the present first
    ensemble: EnsembleHyperparameters | None = None
    structure: LearnedStructure | None = None  # scopes that replace the team's graph


@dataclass(frozen=True, eq=False)
class Model:
    """A belief about the function, with its conversion to the unit of the outcomes.

    The belief is about outcomes, transformed if a warp is set, and includes pending points; variables are in the order
    of the team's graph. Each of the ``splits`` replaces a factor by a sum over the factor's variables.
    """

    belief: AdditiveGP
    learned: Learned
    warp: Warp = field(default_factory=Warp)  # of totals
    factor_warps: tuple[Warp, ...] = ()  # of the outcomes of each factor; empty without any
    splits: Mapping[str, AdditiveGP] = field(default_factory=dict[str, AdditiveGP])
    complete: "Model | None" = None  # model of all evaluations, if some are set aside

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total at joint points (m, n), physical, in the unit of the outcomes.

        From all evaluations, also if some are set aside.
        """
        if self.complete is not None:
            return self.complete.posterior(X)
        belief = self.belief
        if not self.factor_warps:
            return self.warp.marginals(*belief.posterior(X))
        points = np.asarray(X, dtype=float)
        mean, variance = np.zeros(len(points)), np.zeros(len(points))
        for factor in belief.graph.factors:
            own_mean, own_std = self.factor_posterior(factor, points)
            mean, variance = mean + own_mean, variance + own_std**2  # separately observed factors are independent
        return mean, np.sqrt(variance)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of a separately observed factor at joint points (m, n), physical."""
        place = self.belief.graph.place_of[factor]
        own = np.asarray(X, dtype=float)[:, list(self.belief.scopes[place])]
        if factor in self.splits:
            mean, variance = self.splits[factor].posterior(own)
            return mean, np.sqrt(variance)
        mean, variance = self.belief.factor_posterior(factor, own)
        return self.factor_warps[place].marginals(mean, variance) if self.factor_warps else (mean, np.sqrt(variance))

    def factor_means(self) -> Float[np.ndarray, "k t"] | None:
        """Values of factors at evaluated points, if they differ from the belief's; else None."""
        return None

    def incumbent(self) -> Float[np.ndarray, " n"]:
        """Evaluated point with the largest posterior mean, in the unit cube; see ``incumbents.incumbent``."""
        point = incumbent(self.belief, self.factor_means())
        for factor, split in self.splits.items():
            point[list(self.belief.scopes[self.belief.graph.place_of[factor]])] = incumbent(split)
        return point


def learned_belief(
    situation: JointSituation,
    graph: FactorGraph,
    history: Dataset,
    settings: AdditiveGPSettings,
    previous: Learned | None,
    warps: Sequence[tuple[WarpKind, float]] = (),
) -> tuple[AdditiveGP, Learned]:
    """The belief of a history, or of a transformed one or a part of it, and the state for the next one.

    Hyper-parameters are those learned before, unless there are none that fit the graph and the ``warps``, they were
    found without any data, or ``settings.refit_every`` evaluations came since. On a graph with other scopes than the
    situation's only totals are learned.
    """
    if previous is not None and (previous.splits or _transforms(previous.warps) != _transforms(warps)):
        previous = None
    totals, factors, noise = history.totals, None, history.known_noise[:, 0]
    if graph.scopes != situation.graph.scopes:
        settings = msgspec.structs.replace(settings, factors={})  # those of factors that are not in this graph
    else:
        factors, noise = history.factors, history.known_noise
        # a total adds nothing to the outcomes of all its factors, and would tie the factors together
        totals = np.where(np.isfinite(factors).all(axis=1), np.nan, totals)
    if settings.time is not None and history.rounds is None and len(history):
        raise ShapeError(
            f"history: got no rounds; wanted the rounds ({len(history)},), since the belief has a time axis"
        )
    belief = AdditiveGP.create(settings, graph, situation.domain, situation.outcomes).at(situation.round)
    variance, rounds = noise**2, history.rounds
    belief = belief.update(history.X, totals=totals, factors=factors, noise_variance=variance, rounds=rounds)
    n = len(situation.history)
    if previous is not None and _fits(previous.hyperparameters, graph):
        belief = belief.with_hyperparameters(previous.hyperparameters)
        if previous.fitted_at and n - previous.fitted_at < settings.refit_every:
            if situation.earlier is not None:
                belief = belief.extended_from(situation.earlier)
                situation.earlier.drop_cache()
            return belief, previous
    if situation.earlier is not None:
        situation.earlier.drop_cache()  # frees memory before as much is computed for other hyper-parameters
    fitted_at = 0
    if belief.n_data:
        warm = belief.hyperparameters if previous is not None and previous.fitted_at else None
        belief, fitted_at = belief.fit(stream(situation.seed, "belief", "fit", evaluations=n), warm=warm), n
    if previous is None:
        return belief, Learned(belief.hyperparameters, fitted_at)
    return belief, msgspec.structs.replace(previous, hyperparameters=belief.hyperparameters, fitted_at=fitted_at)


def given_out(belief: AdditiveGP, situation: JointSituation) -> AdditiveGP:
    """Belief about a situation's history whose variance includes all pending outcomes.

    On other scopes than the situation's only totals are known, so totals are pending.
    """
    out = situation.out
    awaited = out.awaited if belief.graph.scopes == situation.graph.scopes else None
    return belief.condition_on_pending(out.points, out.rounds, awaited)


def _transforms(warps: Sequence[tuple[WarpKind, float]]) -> tuple[tuple[WarpKind, float], ...]:
    return tuple(warps) if any(kind != "none" for kind, _ in warps) else ()


def _fits(hyperparameters: AdditiveHyperparameters, graph: FactorGraph) -> bool:
    sizes = tuple(len(graph.scope(factor)) for factor in graph.factors)
    return tuple(map(len, hyperparameters.lengthscales)) == sizes
