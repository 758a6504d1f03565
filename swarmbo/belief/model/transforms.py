"""Choice of outcome transforms and of decompositions of a factor, by their evidence as a density of the outcomes."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.fit import is_stackable
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.belief.model.warping import Warp, WarpKind
from swarmbo.boundary.rng import stream
from swarmbo.graph import groups

Grouping = Literal["given", "whole", "single"]  # groups of variables: the graph's scopes, one group, single variables

_OF_TOTALS: tuple[tuple[WarpKind, float, Grouping], ...] = (
    ("none", 1.0, "given"),
    ("power", 0.6, "given"),
    ("power", 0.5, "whole"),
    ("none", 1.0, "whole"),
    ("none", 1.0, "single"),
)
_FEW = 64  # largest number of variables for one process of untransformed outcomes, which is searched globally
_TIE = 0.1  # nats per evaluation: models of totals with closer evidences alternate
_OF_FACTORS: tuple[tuple[WarpKind, float], ...] = (("none", 1.0), ("power", 0.5), ("power", 0.25), ("log", 1.0))
_PLAIN = 0  # index of untransformed outcomes, which show the shape of an optimum: a root makes a cone of a bowl
_SIMILAR = 0.5  # nats per evaluation: with a smaller lead, a transform alternates with untransformed outcomes
_SIMILAR_LATER = 1.5  # the same once outcomes show the optimum's shape
_MANY_FROM = 10  # evaluations per variable from which on they do; one variable counts as two
_GROWTH = 1.5  # choices are repeated when the history has grown by this factor
_ODDS_OF_WHOLE = {  # prior log odds of a whole factor against a sum over its variables
    "known": math.log(10.0),  # a factor that the user named is unlikely to be a sum over its variables
    "learned": math.log(10.0),
    "unknown": -math.log(50.0),  # few data can show interactions but not disprove them, and a sum is learned sooner
}
NOISE_FLOOR = 1e-10  # noise variance of one function, which may be known to many digits
NOISE_LOG_STD = 3.0  # log standard deviation of that variance's prior: one function may be smooth, rough or noisy
_LEAD = 0.2  # nats per evaluation, in addition to the odds, by which a sum must lead to replace one whole factor
_RESTARTS = 3  # random starts of a fit of parts: narrow peaks of one variable make many maxima of the evidence
_SPREAD = 1.0  # least prior std of the parts' log outputscales: variables differ more in importance than factors


def learn_totals(situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None) -> Model:
    """Model of several factors with totals: a sum or one process for all variables, of outcomes or of their roots.

    Models of similar evidence alternate from fit to fit and, while points are pending, from query to query, so that a
    batch uses each of them. A sum explores. One process of roots with one lengthscale needs few data. One process of
    untransformed outcomes reveals wrong scopes. A sum over single variables reveals scopes that are larger than needed.
    With outcomes of single factors among the totals, the model is always a sum of untransformed outcomes: a sum of
    roots is not the root of a sum.
    """
    history, n = situation.history, len(situation.history)
    if np.isfinite(history.factors).any():
        belief, learned = learned_belief(situation, situation.graph, history, settings, previous)
        learned = msgspec.structs.replace(learned, scopes=None, candidate_models=())
        return Model(given_out(belief, situation), learned)
    if previous is None or not previous.candidate_models or _is_choice_due(previous, settings, n):
        return _chosen_of_totals(situation, settings)
    is_due, n_pending = n - previous.fitted_at >= settings.refit_every, len(situation.pending)
    turns = previous.turns[0] if previous.turns[1] == n else 0
    # without pending points, the model is that of the first query of this history
    turn = (1 if n_pending or is_due else -turns) % len(previous.candidate_models)
    (place, hyperparameters), *others = previous.candidate_models[turn:] + previous.candidate_models[:turn]
    if turn:
        warps, fitted_at = (_OF_TOTALS[place][:2],), previous.fitted_at
        # fit this model again at its first use in a batch, like the other models
        if is_due or 0 < n_pending <= len(others):
            fitted_at = min(fitted_at, max(1, n - settings.refit_every))
        previous = msgspec.structs.replace(previous, hyperparameters=hyperparameters, warps=warps, fitted_at=fitted_at)
    model, _ = _model_of_totals(situation, settings, place, previous)
    candidate_models = ((place, model.learned.hyperparameters), *others)
    changed = {"candidate_models": candidate_models, "turns": (turns + (not is_due) if n_pending else 0, n)}
    return replace(model, learned=msgspec.structs.replace(model.learned, **changed))


def _chosen_of_totals(situation: JointSituation, settings: AdditiveGPSettings) -> Model:
    """Model with the largest evidence, and its list of models of similar evidence; learned scopes permit sums only."""
    n, graph, tried = len(situation.history), situation.graph, dict[int, Model]()
    evidence, tie = dict[int, float](), _TIE * len(situation.history)
    # the user named the factors: single variables replace them only with a clear lead, and are never a second choice
    handicap: dict[Grouping, float] = {"given": 0.0}
    if situation.structure != "learned":
        handicap["whole"] = 0.0
        if graph.max_factor_size > 1 and not situation.choices:
            handicap["single"] = _ODDS_OF_WHOLE["known"] + tie
    totals, noise = situation.history.totals, situation.history.known_noise[:, 0]
    for place, (kind, power, grouping) in enumerate(_OF_TOTALS):
        is_too_large = grouping == "whole" and kind == "none" and len(graph.variables) > _FEW
        is_comparable = Warp.fitted(kind, totals, power).is_comparable(totals, noise)
        if grouping in handicap and is_comparable and not is_too_large:
            tried[place], found = _model_of_totals(situation, settings, place, None)
            evidence[place] = found - handicap[grouping]
    order = sorted(tried, key=lambda place: -evidence[place])
    near = [place for place in order if evidence[place] >= evidence[order[0]] - tie]
    near = near[:1] + [place for place in near[1:] if _OF_TOTALS[place][2] != "single"]
    if len(near) == 1 and _OF_TOTALS[near[0]][2] == "single":
        near = order[:2]  # sums over single variables have many local optima, which another model may leave
    candidate_models = tuple((place, tried[place].learned.hyperparameters) for place in near)
    best = tried[near[0]]
    learned = msgspec.structs.replace(best.learned, decomposed_at=n, candidate_models=candidate_models)
    return replace(best, learned=learned)


def _model_of_totals(
    situation: JointSituation, settings: AdditiveGPSettings, place: int, previous: Learned | None
) -> tuple[Model, float]:
    kind, power, grouping = _OF_TOTALS[place]
    graph, totals = situation.graph, situation.history.totals
    scopes: tuple[tuple[str, ...], ...] | None = None
    if grouping != "given":
        scopes = (graph.variables,) if grouping == "whole" else tuple((variable,) for variable in graph.variables)
        graph = groups.graph_of_groups(graph, scopes)
        if kind != "none":  # the root of a quadratic bowl is a norm: few data determine one shared lengthscale
            settings = msgspec.structs.replace(settings, lengthscales="shared")
    warp = Warp.fitted(kind, totals, power)
    noise = situation.history.known_noise
    noise[:, 0] = warp.noise_std(totals, noise[:, 0])
    warped = replace(situation.history, totals=warp.forward(totals), noise_std=noise)
    belief, learned = learned_belief(situation, graph, warped, settings, previous, ((kind, power),))
    learned = msgspec.structs.replace(learned, warps=((kind, power),), scopes=scopes)
    evidence = belief.log_evidence() + _density(belief, warp, totals, 0)
    return Model(given_out(belief, situation), learned, warp), evidence


def learn_factors(
    situation: JointSituation, settings: AdditiveGPSettings, previous: Learned | None, first: int
) -> Model:
    """Model of separately observed factors without shared variables: each transformed, or a sum over its variables. For
    one factor, the sum and the whole alternate until the evidence for the sum is decisive, as a sum may miss
    interactions. Evaluations before ``first`` are set aside.
    """
    history = situation.history
    F, noise = history.factors, history.known_noise
    N = noise[:, 1:]
    if len(situation.graph.factors) == 1:
        N = np.where(np.isfinite(F), N, noise[:, :1])
        F = np.where(np.isfinite(F), F, history.totals[:, None])
    alone = replace(situation, outcomes="per-factor")
    everything = _Data(alone, settings, history.X, F, N)
    if previous is None or not first:
        model = _learned_factors(everything, previous, is_all=True)
        dropped = previous is not None and not set(previous.splits) <= set(model.splits)
        since = len(history) if dropped else 0 if previous is None else previous.whole_since
        return replace(model, learned=msgspec.structs.replace(model.learned, whole_since=since))
    before, since = previous.before or previous, previous.whole_since
    used = F.copy()
    used[:first] = np.nan  # their points stay: all agents use the same points, and only the owner restarted
    model = _learned_factors(_Data(alone, settings, history.X, used, N), previous, is_all=False)
    learned = msgspec.structs.replace(model.learned, restarted_at=first, before=before, whole_since=since)
    warps = everything.fitted(before.warps)
    whole = everything.whole(warps).with_hyperparameters(before.hyperparameters)
    return replace(model, learned=learned, complete=everything.model(whole, before, warps, {}))


def _learned_factors(data: "_Data", previous: Learned | None, *, is_all: bool) -> Model:
    """Model of the last choice, or of a new one if it is due, from the data in use.

    ``splits`` has the factors that are sums now. Only one factor has ``candidate_models``, of which the first is in
    use: two transforms, or a sum (``SPLIT``) and the whole factor. ``splits`` is empty at the whole factor's turn.
    """
    situation, n = data.situation, len(data.situation.history)
    if previous is None or not previous.warps or _is_choice_due(previous, data.settings, n):
        return data.chosen(is_all=is_all)
    before, is_due = data.in_turn(previous)
    warps = data.fitted(before.warps)
    belief = data.whole(warps, before.splits, is_alone=not before.may_split)
    # after a restart, or once a factor has converged, its outcomes are constant: nothing can be transformed or learned
    is_constant = [warp.kind != kind for warp, (kind, _) in zip(warps, before.warps, strict=True)]
    if is_constant == [True]:  # with several factors, each owner knows only its own factor's outcomes
        return data.model(belief, before, warps, {})
    unfitted = belief.hyperparameters
    belief = belief.with_hyperparameters(before.hyperparameters)
    if belief.n_data:
        rng = stream(situation.seed, "belief", "fit", evaluations=n)
        belief = belief.fit(rng, warm=before.hyperparameters) if is_due else belief.with_units(rng)
    # a split factor's data are not in this belief: whether it is fitted depends on other factors' data
    is_kept = [same or f in before.splits for same, f in zip(is_constant, situation.graph.factors, strict=True)]
    hyperparameters = before.hyperparameters.mixed(belief.hyperparameters, is_kept)
    if any(is_constant):
        belief = belief.with_hyperparameters(unfitted.mixed(belief.hyperparameters, is_constant))
    splits = data.splits(before.splits, is_due=is_due)
    hypers = {factor: split.hyperparameters for factor, split in splits.items()}
    fitted_at = n if is_due else before.fitted_at
    learned = msgspec.structs.replace(before, hyperparameters=hyperparameters, fitted_at=fitted_at, splits=hypers)
    if before.candidate_models:
        (place, _), other = before.candidate_models
        in_use = place, hypers.get(situation.graph.factors[0], hyperparameters)
        learned = msgspec.structs.replace(learned, candidate_models=(in_use, other))
    return data.model(belief, learned, warps, splits)


def _swapped(learned: Learned, factor: str) -> Learned:
    first, (place, hyperparameters) = learned.candidate_models
    learned = msgspec.structs.replace(learned, fitted_at=learned.other_fitted_at, other_fitted_at=learned.fitted_at)
    learned = msgspec.structs.replace(learned, candidate_models=((place, hyperparameters), first))
    if place == Learned.SPLIT:
        return msgspec.structs.replace(learned, splits={factor: hyperparameters})
    warps = (_OF_FACTORS[place],)
    return msgspec.structs.replace(learned, splits={}, hyperparameters=hyperparameters, warps=warps)


@dataclass(frozen=True)
class _Data:
    """Outcomes of factors (t, k), and the standard deviations of their noise, NaN if unknown."""

    situation: JointSituation
    settings: AdditiveGPSettings
    X: Float[np.ndarray, "t n"]
    F: Float[np.ndarray, "t k"]
    noise_std: Float[np.ndarray, "t k"]

    def is_fit_due(self, learned: Learned) -> bool:
        since = len(self.situation.history) - learned.fitted_at
        return since >= self.settings.refit_every and bool(np.isfinite(self.F).any())

    def in_turn(self, learned: Learned) -> tuple[Learned, bool]:
        """State with the candidate model in use whose turn it is, and True if this model's fit is due."""
        is_due = self.is_fit_due(learned)
        if not learned.candidate_models:
            return learned, is_due
        (first, _), (second, _) = learned.candidate_models
        has_more = len(self.situation.history) + len(self.situation.pending) > learned.decomposed_at
        is_odd = has_more and bool(self.situation.n_asked % 2)  # the choice itself uses the first transform
        # a sum and the whole factor alternate from fit to fit; of two transforms, the first has the odd queries
        if is_due if learned.may_split else (first > second) == is_odd:
            learned = _swapped(learned, self.situation.graph.factors[0])
        return learned, is_due if learned.may_split else self.is_fit_due(learned)

    def whole(self, warps: tuple[Warp, ...], without: Collection[str] = (), *, is_alone: bool = False) -> AdditiveGP:
        """Belief about whole factors given transformed outcomes, except ``without``; ``is_alone``: no sum competes."""
        graph, columns, noise = self.situation.graph, np.full(self.F.shape, np.nan), self.noise_std.copy()
        for j, (factor, warp) in enumerate(zip(graph.factors, warps, strict=True)):
            if factor not in without:
                columns[:, j] = warp.forward(self.F[:, j])
                noise[:, j] = warp.noise_std(self.F[:, j], noise[:, j])
        settings = self._with_wide_noise_prior(is_alone=is_alone)
        if self.situation.structure == "unknown" and settings.lengthscales == "auto":
            # without stated scopes, few data determine a common lengthscale but not one for each variable
            settings = msgspec.structs.replace(settings, lengthscales="hierarchical")
        belief = AdditiveGP.create(settings, graph, self.situation.domain, "per-factor")
        return belief.update(self.X, factors=columns, noise_variance=noise**2)

    def _with_wide_noise_prior(self, *, is_alone: bool = False) -> AdditiveGPSettings:
        """Settings with a wide prior on the noise of one function, unless the user chose a noise prior."""
        usual = AdditiveGPSettings()
        own = (self.settings.noise_floor, self.settings.noise_log_std)
        if len(self.situation.graph.factors) > 1 or own != (usual.noise_floor, usual.noise_log_std):
            return self.settings
        log_std = NOISE_LOG_STD if is_alone else usual.noise_log_std
        return msgspec.structs.replace(self.settings, noise_floor=NOISE_FLOOR, noise_log_std=log_std)

    def fitted(self, kinds: Collection[tuple[WarpKind, float]]) -> tuple[Warp, ...]:
        return tuple(Warp.fitted(kind, y, power) for (kind, power), y in zip(kinds, self.F.T, strict=True))

    def chosen(self, *, is_all: bool) -> Model:
        """Model with the largest evidence for every factor; ``is_all``: all data are used, so factors may be split."""
        n, is_one = len(self.situation.history), self.F.shape[1] == 1
        beliefs, transforms, evidences = self._tried()
        best = evidences.argmax(axis=0).tolist()
        warps = tuple(transforms[i][j] for j, i in enumerate(best))
        hyperparameters = AdditiveHyperparameters.of(beliefs[i].hyperparameters.factor(j) for j, i in enumerate(best))
        splits, leads = self._leading_sums(evidences.max(axis=0)) if is_all else ({}, {})
        candidate_models = ()
        if is_one and min(leads.values(), default=np.inf) < abs(_ODDS_OF_WHOLE[self.situation.structure]) + _LEAD * n:
            (split,) = splits.values()
            candidate_models = ((Learned.SPLIT, split.hyperparameters), (best[0], hyperparameters))
        is_alone = is_one and not splits
        belief = self.whole(warps, splits, is_alone=is_alone)
        if is_alone and belief.n_data:
            belief = belief.fit(stream(self.situation.seed, "belief", "room", evaluations=n))
            hyperparameters = belief.hyperparameters
            is_early = belief.n_data < _MANY_FROM * max(2, belief.domain.n_dims)
            similar = belief.n_data * (_SIMILAR if is_early else _SIMILAR_LATER)
            if best[0] != _PLAIN and evidences[best[0], 0] < evidences[_PLAIN, 0] + similar:
                candidate_models = ((best[0], hyperparameters), (_PLAIN, beliefs[_PLAIN].hyperparameters))
        learned = Learned(
            hyperparameters,
            fitted_at=n if np.isfinite(self.F).any() else 0,
            other_fitted_at=n,
            decomposed_at=n,
            warps=tuple(_OF_FACTORS[i] for i in best),
            splits={factor: split.hyperparameters for factor, split in splits.items()},
            candidate_models=candidate_models,
            plain_noise=beliefs[_PLAIN].hyperparameters.noise_variances[0] if is_one else 1.0,
        )
        return self.model(belief.with_hyperparameters(hyperparameters), learned, warps, splits)

    def _tried(self) -> tuple[list[AdditiveGP], list[tuple[Warp, ...]], Float[np.ndarray, "m k"]]:
        """Beliefs for each kind of transform, the transforms, and each factor's evidence; -inf if not comparable."""
        seed, n, k = self.situation.seed, len(self.situation.history), self.F.shape[1]
        transforms = [self.fitted([kind] * k) for kind in _OF_FACTORS]
        beliefs, evidences = [self.whole(warps) for warps in transforms], np.empty((len(transforms), k))
        if beliefs[0].n_data:  # all transforms have the same number of known outcomes
            rngs = [stream(seed, "belief", "fit", evaluations=n, transform=i) for i in range(len(beliefs))]
            beliefs = AdditiveGP.fit_together(beliefs, rngs, [None] * len(beliefs))
        for i, (belief, warps) in enumerate(zip(beliefs, transforms, strict=True)):
            columns = list(zip(warps, self.F.T, self.noise_std.T, strict=True))
            densities = [_density(belief, warp, y, j) for j, (warp, y, _) in enumerate(columns)]
            are_comparable = [warp.is_comparable(y, noise) for warp, y, noise in columns]
            evidences[i] = np.where(are_comparable, np.array(belief.log_evidences()) + densities, -np.inf)
        return beliefs, transforms, evidences

    def _leading_sums(self, evidences: Float[np.ndarray, " k"]) -> tuple[dict[str, AdditiveGP], dict[str, float]]:
        """Sums over a factor's variables that lead the whole factor by more than the odds, and these leads."""
        graph, choices = self.situation.graph, self.situation.choices
        seen = np.flatnonzero(np.isfinite(self.F).any(axis=0)).tolist()
        # the values of a choice exclude each other, so no part of a sum can change one of them alone
        possible = [j for j in seen if len(graph.scopes[j]) > 1 and choices.isdisjoint(graph.scopes[j])]
        splits, leads = dict[str, AdditiveGP](), dict[str, float]()
        for factor, split in self.splits({graph.factors[j]: None for j in possible}, is_due=True).items():
            j = graph.place_of[factor]
            lead = split.log_evidence() + _density(split, Warp(), self.F[:, j], 0) - float(evidences[j])
            if lead > _ODDS_OF_WHOLE[self.situation.structure]:
                splits[factor], leads[factor] = split, lead
        return splits, leads

    def splits(
        self, known: Mapping[str, AdditiveHyperparameters] | Mapping[str, None], *, is_due: bool
    ) -> dict[str, AdditiveGP]:
        """Beliefs about the parts of some factors, from ``known`` hyper-parameters (None: unknown); refitted if due."""
        made = {factor: self._unfitted(factor, is_cold=warm is None) for factor, warm in known.items()}
        rngs, together = dict[str, np.random.Generator](), list[str]()
        for factor, warm in known.items():
            n, parts = len(self.situation.history), made[factor]
            rngs[factor] = stream(self.situation.seed, "belief", "split", factor=factor, evaluations=n)
            if warm is not None and not is_due:
                made[factor] = parts.with_hyperparameters(warm).with_units(rngs[factor])
                continue
            if is_stackable(parts):
                together.append(factor)
            else:
                made[factor] = parts.fit(rngs[factor], warm=warm)
        fitted = AdditiveGP.fit_together(
            [made[f] for f in together], [rngs[f] for f in together], [known[f] for f in together]
        )
        return made | dict(zip(together, fitted, strict=True))

    def _unfitted(self, factor: str, *, is_cold: bool) -> AdditiveGP:
        graph, j = self.situation.graph, self.situation.graph.place_of[factor]
        parts, domain = groups.parts_of(graph, factor, self.situation.domain)
        restarts = max(_RESTARTS, self.settings.restarts) if is_cold else self.settings.restarts
        own = self.settings.factors.get(factor, FactorPrior())
        scale = own.outputscale_median and own.outputscale_median / len(parts.factors)
        settings = msgspec.structs.replace(
            self._with_wide_noise_prior(),
            factors=dict.fromkeys(parts.factors, msgspec.structs.replace(own, outputscale_median=scale)),
            restarts=restarts,
            outputscale_log_std=max(_SPREAD, self.settings.outputscale_log_std),
            noise_median=own.noise_median or self.settings.noise_median,
        )
        columns = [graph.column_of[variable] for variable in parts.variables]
        belief = AdditiveGP.create(settings, parts, domain)
        return belief.update(self.X[:, columns], totals=self.F[:, j], noise_variance=self.noise_std[:, j] ** 2)

    def model(
        self, belief: AdditiveGP, learned: Learned, warps: tuple[Warp, ...], splits: dict[str, AdditiveGP]
    ) -> Model:
        out, graph = self.situation.out, self.situation.graph
        given = dict[str, AdditiveGP]()
        for factor, split in splits.items():
            columns = [graph.column_of[variable] for variable in split.graph.variables]
            awaited = out.awaited[:, graph.place_of[factor]]
            given[factor] = split.condition_on_pending(out.points[awaited][:, columns])
        whole = given_out(belief, self.situation)
        return Model(whole, learned, factor_warps=warps, splits=given, divided=frozenset(given))


def _is_choice_due(previous: Learned, settings: AdditiveGPSettings, n: int) -> bool:
    is_fit_due = n - previous.fitted_at >= settings.refit_every
    return not previous.fitted_at or (is_fit_due and n >= _GROWTH * previous.decomposed_at)


def _density(belief: AdditiveGP, warp: Warp, outcomes: Float[np.ndarray, " t"], factor: int) -> float:
    """Log Jacobian that converts evidence of standardised, transformed outcomes to evidence of the outcomes."""
    seen = outcomes[np.isfinite(outcomes)]
    return float(warp.log_slope(seen).sum()) - len(seen) * math.log(belief.hyperparameters.scales[factor])
