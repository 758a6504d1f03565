"""Models of a history: pure functions of history, seed and learned state, so a resumed team repeats its decisions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.ensemble import Ensemble
from swarmbo.belief.features.ensemble_settings import EnsembleHyperparameters, EnsembleSettings
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior, regrouped
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model.candidates import Alternation, Candidate, Form
from swarmbo.belief.model.incumbents import evaluated, incumbent
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.structure import LearnedStructure, choose_structure
from swarmbo.belief.model.warping import Warp
from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.graph.groups import graph_of_groups
from swarmbo.problem.data import Dataset

_EXACT = 5e-5  # share of the noise in the variance below which outcomes count as exact


class Learned(msgspec.Struct, frozen=True):
    """State that a model passes to the next one, besides the history; plain data. Its times count evaluations."""

    hyperparameters: AdditiveHyperparameters
    fitted_at: int  # 0: not yet
    scopes: tuple[tuple[str, ...], ...] | None = None  # a learned decomposition; None with the team's own graph
    decomposed_at: int = 0  # when the scopes, or transforms and splits, were chosen
    forms: tuple[Form, ...] = ()  # one for the total, or one for each factor as a whole
    splits: dict[str, AdditiveHyperparameters] = {}  # for each factor that is modelled as a sum over its variables
    restarted_at: int = 0  # evaluations before this one are set aside; a search restarted there
    before: "Learned | None" = None  # state learned last from all evaluations, before the first restart
    whole_since: int = 0  # when a factor last ceased to be split
    candidates: tuple[Candidate, ...] = ()  # models of totals or of one factor that alternate
    turn: Alternation = Alternation()
    ensemble: EnsembleHyperparameters | None = None
    structure: LearnedStructure | None = None  # scopes that replace the team's graph
    plain_noise: float = 1.0  # of one factor's untransformed outcomes, as a share of their variance; 1: unknown

    @property
    def is_exact(self) -> bool:
        """True for outcomes without noise. A transform that fits badly looks like noise, so it is not asked."""
        return self.plain_noise < _EXACT

    @property
    def may_split(self) -> bool:
        """True if a factor is a sum over its variables, at least in turns."""
        return bool(self.splits) or any(candidate.form.grouping == "split" for candidate in self.candidates)

    def with_last_fit(self) -> "Learned":
        """State whose candidate in use has this state's hyper-parameters and time of the fit."""
        if not self.candidates:
            return self
        candidates, in_use = list(self.candidates), self.turn.in_use
        hyperparameters = next(iter(self.splits.values()), self.hyperparameters)
        candidates[in_use] = Candidate(candidates[in_use].form, hyperparameters, self.fitted_at)
        return msgspec.structs.replace(self, candidates=tuple(candidates))


@dataclass(frozen=True, eq=False)
class Model:
    """A belief about the function, with its conversion to the unit of the outcomes.

    The belief is about outcomes, transformed if a warp is set, and includes pending points. Joint points are physical,
    in the order of the team's graph; if variables have types, they are those of ``Problem.modelled``. Each of the
    ``splits`` replaces a factor by a sum over the factor's variables.
    """

    belief: AdditiveGP
    learned: Learned
    warp: Warp = field(default_factory=Warp)  # transform of totals
    factor_warps: tuple[Warp, ...] = ()  # transform of each factor's outcomes; empty: no transforms
    splits: Mapping[str, AdditiveGP] = field(default_factory=dict[str, AdditiveGP])
    divided: frozenset[str] = frozenset()  # all split factors, including factors whose parts another agent models
    complete: "Model | None" = None  # model of all evaluations, if some are set aside

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total at joint points, from all evaluations, in its unit."""
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
        """Mean and standard deviation of a separately observed factor at joint points (m, n), in its unit."""
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

    def barring(self, X: Float[np.ndarray, "t n"], barred: Bool[np.ndarray, " t"]) -> "Model":
        """Model in which these evaluations, of a history at joint points, may not be incumbents."""
        belief, place = self.belief.barring(X, barred), self.belief.graph.place_of
        splits = {f: split.barring(X[:, list(belief.scopes[place[f]])], barred) for f, split in self.splits.items()}
        return replace(self, belief=belief, splits=splits, complete=self.complete and self.complete.barring(X, barred))

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
    forms: tuple[Form, ...] = (),
) -> tuple[AdditiveGP, Learned]:
    """Belief given a history, which may be transformed or partial, and the learned state for the next belief. Fits are
    reused for ``settings.refit_every`` evaluations. If scopes differ from the situation's, only totals are learned.
    """
    if previous is not None and (previous.splits or _transformed(previous.forms) != _transformed(forms)):
        previous = None
    totals, factors, noise = history.totals, None, history.known_noise[:, 0]
    if graph.factors != situation.graph.factors or graph.scopes != situation.graph.scopes:
        settings = msgspec.structs.replace(settings, factors={})  # this graph has other factors
    if graph.scopes == situation.graph.scopes:
        factors, noise = history.factors, history.known_noise
        # if outcomes of all factors are known, their total adds no information and would couple the factors
        totals = np.where(np.isfinite(factors).all(axis=1), np.nan, totals)
    if settings.time is not None and history.rounds is None and len(history):
        raise ShapeError(f"history: got no rounds; wanted {len(history)} of them, as the belief has a time axis")
    belief = AdditiveGP.create(settings, graph, situation.domain, situation.outcomes).at(situation.round)
    belief = belief.update(history.X, totals=totals, factors=factors, noise_variance=noise**2, rounds=history.rounds)
    n = len(situation.history)
    sizes = [len(graph.scope(factor)) for factor in graph.factors]
    if previous is not None and [*map(len, previous.hyperparameters.lengthscales)] == sizes:
        belief = belief.with_hyperparameters(previous.hyperparameters)
        if previous.fitted_at and n - previous.fitted_at < settings.refit_every:
            fitted = belief.with_units(stream(situation.seed, "belief", "fit", evaluations=n))
            if situation.earlier is not None:
                fitted = belief.extended_from(situation.earlier) if fitted is belief else fitted
                situation.earlier.drop_cache()
            return fitted, msgspec.structs.replace(previous, hyperparameters=fitted.hyperparameters)
    if situation.earlier is not None:
        situation.earlier.drop_cache()  # free memory before matrices of the same size are computed
    fitted_at = 0
    if belief.n_data:
        warm = belief.hyperparameters if previous is not None and previous.fitted_at else None
        belief, fitted_at = belief.fit(stream(situation.seed, "belief", "fit", evaluations=n), warm=warm), n
    learned = previous or Learned(belief.hyperparameters, fitted_at)
    return belief, msgspec.structs.replace(learned, hyperparameters=belief.hyperparameters, fitted_at=fitted_at)


def given_out(belief: AdditiveGP, situation: JointSituation) -> AdditiveGP:
    """Belief whose variance includes all pending outcomes; they are totals if scopes differ from the situation's."""
    out = situation.out
    awaited = out.awaited if belief.graph.scopes == situation.graph.scopes else None
    return belief.condition_on_pending(out.points, out.rounds, awaited)


def _transformed(forms: tuple[Form, ...]) -> tuple[Form, ...]:
    return forms if any(form.warp != "none" or form.kernel for form in forms) else ()


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleModel(Model):
    """An ensemble, and the members drawn for this round; ``belief`` has the members' exact Gaussian processes."""

    ensemble: Ensemble
    chosen: tuple[int, ...]
    out: Float[np.ndarray, "p n"]
    awaited: Bool[np.ndarray, "p k"]

    @cached_property
    def _with_pending(self) -> Ensemble:
        return self.ensemble.condition_on_pending(self.out, self.awaited)

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of the total over all members at joint points (m, n), physical."""
        mean, variance = self._with_pending.posterior(X)
        return mean, np.sqrt(variance)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of a factor over all members at joint points (m, n), physical."""
        mean, variance = self._with_pending.factor_posterior(factor, X)
        return mean, np.sqrt(variance)

    def factor_means(self) -> Float[np.ndarray, "k t"]:
        """Mean of each factor over all members."""
        return self.ensemble.factor_means(evaluated(self.belief))


def learn_ensemble(
    situation: JointSituation, settings: EnsembleSettings, previous: Learned | None, last: Model | None = None
) -> EnsembleModel:
    """Ensemble given a history, and members drawn by weight. It extends the ``last`` model if the history does so."""
    history, n = situation.history, len(situation.history)
    coupled = situation.outcomes == "total" or len(situation.graph.factors) == 1
    # if outcomes of all factors are known, their total adds no information
    totals = np.where(np.isfinite(history.factors).all(axis=1), np.nan, history.totals)
    data = Dataset(history.X, totals, history.factors, noise_std=history.noise_std)
    hyper = None if previous is None else previous.ensemble
    latest = last.ensemble if isinstance(last, EnsembleModel) else None
    graph, seed = situation.graph, situation.seed
    ensemble = Ensemble.learned(
        settings, graph, situation.domain, data, coupled=coupled, seed=seed, previous=hyper, last=latest
    )
    names = {"round": situation.round, "evaluations": n, "pending": len(situation.pending)}
    rngs = [stream(situation.seed, "ensemble", "member", part=i, **names) for i in range(len(ensemble.parts))]
    chosen = ensemble.choose(rngs)
    likeliest = tuple(int(np.argmax(w)) for w in ensemble.weights)
    fitted_at = max(part.fitted_at for part in ensemble.hyper.parts)
    out = situation.out
    belief = ensemble.exact(chosen).condition_on_pending(out.points, awaited=out.awaited)
    learned = Learned(ensemble.hyper.of_members(likeliest), fitted_at, ensemble=ensemble.hyper)
    return EnsembleModel(belief, learned, ensemble=ensemble, chosen=chosen, out=out.points, awaited=out.awaited)


Learner = Callable[[JointSituation, AdditiveGPSettings, Learned | None], Model]


def learn_model(
    learn: Learner, situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None
) -> Model:
    """Model by a learner (mostly an acquisition's ``learn``), on the team's graph or on a learned one."""
    if settings.structure is None:
        return learn(situation, settings, previous)
    history, n = situation.history, len(situation.history)
    U, noise_variance = situation.domain.to_unit(history.X), history.known_noise[:, 0] ** 2
    rng, earlier = stream(situation.seed, "structure", evaluations=n), None if previous is None else previous.structure
    structure = choose_structure(settings.structure, settings, U, history.totals, noise_variance, rng, earlier, n)
    inside = in_structure(situation, structure)
    shares = dict(zip(inside.graph.factors, structure.shares, strict=False))
    priors = {factor: FactorPrior(outputscale_median=share) for factor, share in shares.items()}
    own = msgspec.structs.replace(settings, structure=None, factors=priors)
    model = learn(inside, own, _carried_over(situation, settings, previous, structure))
    return replace(model, learned=msgspec.structs.replace(model.learned, structure=structure))


def in_structure(situation: JointSituation, structure: LearnedStructure | None) -> JointSituation:
    """Situation on the graph of a structure, with outcomes of the total only; unchanged without a structure."""
    if structure is None:
        return situation
    history, graph = situation.history, _graph(situation, structure)
    unknown = np.full((len(history), len(graph.factors)), np.nan)

    def of_all(mask: Bool[np.ndarray, "t k"]) -> Bool[np.ndarray, "t m"]:
        """Mask (t, m) that is True for all learned factors in rows where it is True for any of the team's factors."""
        return np.repeat(mask.any(axis=1, keepdims=True), len(graph.factors), axis=1)

    noise = np.column_stack([history.known_noise[:, 0], unknown])
    lost, awaited = of_all(history.failed), of_all(history.awaited)  # a total with a failed part is not pending
    masks = {"awaited": awaited & ~lost, "taken": lost | awaited | np.isfinite(history.totals)[:, None]}
    told = replace(history, factors=unknown, noise_std=noise, **masks)
    return replace(situation, graph=graph, history=told, structure="learned")


def _graph(situation: JointSituation, structure: LearnedStructure) -> FactorGraph:
    variables = situation.graph.variables
    return graph_of_groups(situation.graph, [[variables[i] for i in scope] for scope in structure.scopes])


def _carried_over(
    situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None, structure: LearnedStructure
) -> Learned | None:
    """The part of the learned state that is valid for another structure; None if no part is."""
    if previous is None or previous.structure is None or previous.structure.scopes == structure.scopes:
        return previous
    before = previous.structure
    if 1 in (len(before.scopes), len(structure.scopes)):  # one factor has models that a sum cannot have
        return None
    kept = {i: before.scopes.index(scope) for i, scope in enumerate(structure.scopes) if scope in before.scopes}
    old, new = _graph(situation, before), _graph(situation, structure)

    def moved(hyper: AdditiveHyperparameters) -> AdditiveHyperparameters:
        out, k = regrouped(hyper, old, new, kept, settings.usual_kernel), len(new.factors)
        if len(kept) < k:
            return out
        # if scopes were only removed, the mean and variance of the sum stay the same
        whole = hyper.in_one_unit()
        growth = sum(whole.outputscales) / sum(out.outputscales)
        outputscales = tuple(variance * growth for variance in out.outputscales)
        return msgspec.structs.replace(out, constants=(whole.constant / k,) * k, outputscales=outputscales)

    candidates = tuple(
        msgspec.structs.replace(c, hyperparameters=moved(c.hyperparameters)) for c in previous.candidates
    )
    return msgspec.structs.replace(previous, hyperparameters=moved(previous.hyperparameters), candidates=candidates)
