"""What is learned from a history before a joint point is chosen.

A model is a pure function of the history, the seed and what was learned before, so saving the latter makes a resumed
team repeat the uninterrupted one.
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
from swarmbo.belief.structure.learned import LearnedStructure
from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset


class Learned(msgspec.Struct, frozen=True):
    """What a model carries over to the next one, besides the history; plain data.

    Args:
        hyperparameters: Of the belief.
        fitted_at: Number of evaluations in the history when they were fitted; 0: not yet.
        scopes: A learned decomposition, as groups of variables; None where the team's own graph is used.
        decomposed_at: Number of evaluations when it, or transforms and splits, were chosen.
        warps: How outcomes are transformed, where that is chosen: kind and exponent, once for the total or once for
            each factor.
        splits: Hyper-parameters of the factors that are modelled as sums over their variables.
        restarted_at: Evaluations before this one are set aside; a search started over there.
        before: What was last learned from all evaluations, before a search started over for the first time.
        whole_since: Number of evaluations when a factor last ceased to be split.
        rivals: Models of totals, or of one factor, that evidence could not tell apart when they were last chosen, in
            turn, the present one first: their places in a list, and their hyper-parameters.
        ensemble: What the members of an ensemble were fitted to be.
        structure: Scopes that take the place of the team's graph, where the belief's settings ask for some.
    """

    hyperparameters: AdditiveHyperparameters
    fitted_at: int
    scopes: tuple[tuple[str, ...], ...] | None = None
    decomposed_at: int = 0
    warps: tuple[tuple[WarpKind, float], ...] = ()
    splits: dict[str, AdditiveHyperparameters] = msgspec.field(default_factory=dict[str, AdditiveHyperparameters])
    restarted_at: int = 0
    before: "Learned | None" = None
    whole_since: int = 0
    candidate_models: tuple[tuple[int, AdditiveHyperparameters], ...] = ()
    ensemble: EnsembleHyperparameters | None = None
    structure: LearnedStructure | None = None


@dataclass(frozen=True, eq=False)
class Model:
    """A belief about the function, and how to read it in the unit of the outcomes.

    Args:
        belief: About outcomes, transformed where a warp is set; variables in the order of the team's graph. It knows
            of pending points.
        learned: To be handed to the next ``learn``.
        warp: How totals were transformed before the belief saw them.
        factor_warps: The same for the outcomes of each factor; empty where they were not.
        splits: For some factors a belief that takes their place: about a sum over the factor's variables.
        complete: The same of all evaluations, where some are set aside; None where none are.
    """

    belief: AdditiveGP
    learned: Learned
    warp: Warp = field(default_factory=Warp)
    factor_warps: tuple[Warp, ...] = ()
    splits: Mapping[str, AdditiveGP] = field(default_factory=dict[str, AdditiveGP])
    complete: "Model | None" = None

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total at joint points (m, n), physical, in the unit of the outcomes.

        Of all evaluations, also where some are set aside.
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
            mean, variance = mean + own_mean, variance + own_std**2  # factors seen by themselves are independent
        return mean, np.sqrt(variance)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of a factor that is observed by itself.

        Args:
            factor: Of the belief's graph.
            X: Joint points (m, n), physical; only the factor's variables are looked at.
        """
        place = self.belief.graph.place_of[factor]
        own = np.asarray(X, dtype=float)[:, list(self.belief.scopes[place])]
        if factor in self.splits:
            mean, variance = self.splits[factor].posterior(own)
            return mean, np.sqrt(variance)
        mean, variance = self.belief.factor_posterior(factor, own)
        return self.factor_warps[place].marginals(mean, variance) if self.factor_warps else (mean, np.sqrt(variance))

    def factor_means(self) -> Float[np.ndarray, "k t"] | None:
        """What each factor is worth at evaluated points, if not as the belief has it; else None."""
        return None

    def incumbent(self) -> Float[np.ndarray, " n"]:
        """The evaluated point with the largest posterior mean, in the unit cube.

        Where factors are observed one by one, it is put together from the best evaluated point of each connected part.
        """
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
    """The belief that a history leads to.

    Hyper-parameters are those learned before, unless there are none that fit the graph, they were found without any
    data, or ``settings.refit_every`` evaluations came since.

    Args:
        situation: For the domain, the seed, and what outcomes are told.
        graph: Scopes; variables in the order of the history's columns. With other scopes than the situation's only
            totals are learned.
        history: What the belief is to know: the situation's, or a transformed one or a part of it.
        settings: Of the belief.
        previous: What was learned before. It is not gone on from where that was about other transforms or splits.
        warps: How the history's outcomes were transformed, as in ``Learned``.

    Returns:
        The belief, and what the next one needs; all but hyper-parameters is carried over from ``previous``.

    Raises:
        ShapeError: If outcomes fade and the history does not say of which rounds they are.
    """
    if previous is not None and (previous.splits or _transforms(previous.warps) != _transforms(warps)):
        previous = None
    totals, factors, noise = history.totals, None, history.known_noise[:, 0]
    if graph.scopes != situation.graph.scopes:
        settings = msgspec.structs.replace(settings, factors={})  # those are of factors that this graph has not
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
        situation.earlier.drop_cache()  # before as much is worked out for other hyper-parameters
    fitted_at = 0
    if belief.n_data:
        warm = belief.hyperparameters if previous is not None and previous.fitted_at else None
        belief, fitted_at = belief.fit(stream(situation.seed, "belief", "fit", evaluations=n), warm=warm), n
    if previous is None:
        return belief, Learned(belief.hyperparameters, fitted_at)
    return belief, msgspec.structs.replace(previous, hyperparameters=belief.hyperparameters, fitted_at=fitted_at)


def given_out(belief: AdditiveGP, situation: JointSituation) -> AdditiveGP:
    """A belief about a situation's history whose variance knows of all outcomes that are still to come.

    A factor whose outcome was told waits for no more, the others of that evaluation do. On other scopes than the
    situation's no outcomes of factors are known, and so totals are awaited.

    Args:
        belief: About the total, or the factors, of the situation.
        situation: For what is pending.
    """
    out = situation.out
    awaited = out.awaited if belief.graph.scopes == situation.graph.scopes else None
    return belief.condition_on_pending(out.points, out.rounds, awaited)


def _transforms(warps: Sequence[tuple[WarpKind, float]]) -> tuple[tuple[WarpKind, float], ...]:
    return tuple(warps) if any(kind != "none" for kind, _ in warps) else ()


def _fits(hyperparameters: AdditiveHyperparameters, graph: FactorGraph) -> bool:
    sizes = tuple(len(graph.scope(factor)) for factor in graph.factors)
    return tuple(map(len, hyperparameters.lengthscales)) == sizes
