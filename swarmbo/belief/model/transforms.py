"""Choice of outcome transforms and of decompositions of a factor, by their evidence as a density of the outcomes."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.fit import is_stackable
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import standardisation
from swarmbo.belief.model.candidates import Alternation, Candidate, Form
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.belief.model.warping import Warp
from swarmbo.boundary.rng import stream
from swarmbo.graph import groups

# untransformed outcomes show the shape of an optimum: a root makes a cone of a bowl
_PLAIN, _WHOLE, _SINGLE = Form(), Form(grouping="whole"), Form(grouping="single")
_OF_TOTALS = (_PLAIN, Form("power", 0.6), Form("power", 0.5, "whole"), _WHOLE, _SINGLE)
_OF_FACTORS = (_PLAIN, Form("power", 0.5), Form("power", 0.25), Form("log"))
_SMOOTH = tuple(msgspec.structs.replace(form, kernel="rbf") for form in _OF_FACTORS)
_CLEAR = math.log(20.0)  # lead of a model with a smooth kernel, whose uncertainty is too small if it is wrong
_FEW = 64  # largest number of variables for one process of untransformed outcomes, which is searched globally
_TIE = 0.1  # nats per evaluation: models of totals with closer evidences alternate
_SIMILAR = 0.5  # nats per evaluation: with a smaller lead, a transform alternates with untransformed outcomes
_SIMILAR_LATER = 1.5  # the same once outcomes show the optimum's shape
_MANY_FROM = 10  # evaluations per variable from which on they do; one variable counts as two
NOISY = 3e-4  # share of the noise in the variance of outcomes above which a lack of gains means little
VERY_NOISY = 1e-2  # the same above which one factor is searched everywhere; rough functions look noisy, too
_FEW_VARIABLES = (2, 3)  # coordinates of one factor that is then searched everywhere: a larger space is too wide
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
        learned = msgspec.structs.replace(learned, scopes=None, candidates=())
        return Model(given_out(belief, situation), learned)
    if previous is None or not previous.candidates or _is_choice_due(previous, settings, n):
        return _chosen_of_totals(situation, settings)
    is_due, n_pending = n - previous.fitted_at >= settings.refit_every, len(situation.pending)
    turn = previous.turn.next(len(previous.candidates), n, is_fit_due=is_due, has_pending=n_pending > 0)
    candidate = previous.candidates[turn.in_use]
    fitted_at = previous.fitted_at  # one fit after ``refit_every`` evaluations, of the candidate whose turn it is
    if 0 < n_pending < len(previous.candidates):  # in a batch, each candidate is fitted at its first use
        fitted_at = min(fitted_at, max(1, n - settings.refit_every))
    of_candidate = {"hyperparameters": candidate.hyperparameters, "forms": (candidate.form,)}
    previous = msgspec.structs.replace(previous, turn=turn, fitted_at=fitted_at, **of_candidate)
    model, _ = _model_of_totals(situation, settings, candidate.form, previous)
    return replace(model, learned=model.learned.with_last_fit())


def _chosen_of_totals(situation: JointSituation, settings: AdditiveGPSettings) -> Model:
    """Model with the largest evidence, and its list of models of similar evidence; learned scopes permit sums only."""
    n, graph = len(situation.history), situation.graph
    # the user named the factors: single variables replace them only with a clear lead, and are never a second choice
    tie, handicap = _TIE * n, {"given": 0.0}
    if situation.structure != "learned":
        handicap["whole"] = 0.0
        if graph.max_factor_size > 1 and not situation.choices:
            handicap["single"] = _ODDS_OF_WHOLE["known"] + tie
    totals, noise = situation.history.totals, situation.history.known_noise[:, 0]
    models, evidence = dict[Form, Model](), dict[Form, float]()
    for form in _OF_TOTALS:
        is_too_large = form == _WHOLE and len(graph.variables) > _FEW
        is_comparable = Warp.fitted(form.warp, totals, form.power).is_comparable(totals, noise)
        if form.grouping in handicap and is_comparable and not is_too_large:
            models[form], log_density = _model_of_totals(situation, settings, form, None)
            evidence[form] = log_density - handicap[form.grouping]
    best, *others = sorted(evidence, key=lambda form: -evidence[form])
    similar = [form for form in others if evidence[form] >= evidence[best] - tie and form != _SINGLE]
    if best == _SINGLE:  # a sum over single variables has many local optima, which another model may leave
        similar = similar or others[:1]
    candidates = tuple(Candidate(form, models[form].learned.hyperparameters, n) for form in (best, *similar))
    learned = msgspec.structs.replace(models[best].learned, decomposed_at=n, candidates=candidates)
    return replace(models[best], learned=learned)


def _model_of_totals(
    situation: JointSituation, settings: AdditiveGPSettings, form: Form, previous: Learned | None
) -> tuple[Model, float]:
    graph, totals = situation.graph, situation.history.totals
    scopes: tuple[tuple[str, ...], ...] | None = None
    if form.grouping != "given":
        scopes = (graph.variables,) if form.grouping == "whole" else tuple((variable,) for variable in graph.variables)
        graph = groups.graph_of_groups(graph, scopes)
        if form.warp != "none":  # the root of a quadratic bowl is a norm: few data determine one shared lengthscale
            settings = msgspec.structs.replace(settings, lengthscales="shared")
    warp = Warp.fitted(form.warp, totals, form.power)
    noise = situation.history.known_noise
    noise[:, 0] = warp.noise_std(totals, noise[:, 0])
    warped = replace(situation.history, totals=warp.forward(totals), noise_std=noise)
    belief, learned = learned_belief(situation, graph, warped, settings, previous, (form,))
    learned = msgspec.structs.replace(learned, forms=(form,), scopes=scopes)
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
    everything = _Data(replace(situation, outcomes="per-factor"), settings, history.X, F, N)
    if previous is None:
        return _learned_factors(everything, None, is_all=True)
    since = previous.whole_since
    if not first:
        model = _learned_factors(everything, previous, is_all=True)
        if not set(previous.splits) <= set(model.splits):
            since = len(history)
        return replace(model, learned=msgspec.structs.replace(model.learned, whole_since=since))
    before, used = previous.before or previous, F.copy()
    used[:first] = np.nan  # their points stay: all agents use the same points, and only the owner restarted
    model = _learned_factors(replace(everything, F=used), previous, is_all=False)
    learned = msgspec.structs.replace(model.learned, restarted_at=first, before=before, whole_since=since)
    warps = everything.fitted(before.forms)
    whole = everything.whole(warps, before.forms).with_hyperparameters(before.hyperparameters)
    return replace(model, learned=learned, complete=everything.model(whole, before, warps, {}))


def _learned_factors(data: "_Data", previous: Learned | None, *, is_all: bool) -> Model:
    """Model of the last choice, or of a new one if it is due, from the data in use.

    ``splits`` has the factors that are sums now. Only one factor has candidates: two transforms, or a sum and the whole
    factor. ``splits`` is empty at the whole factor's turn.
    """
    situation, n = data.situation, len(data.situation.history)
    if previous is None or not previous.forms or _is_choice_due(previous, data.settings, n):
        return data.chosen(is_all=is_all)
    before, is_due = data.in_turn(previous)
    warps = data.fitted(before.forms)
    belief = data.whole(warps, before.forms, before.splits, is_alone=not before.may_split)
    # after a restart, or once a factor has converged, its outcomes are constant: nothing can be transformed or learned
    is_constant = [warp.kind != form.warp for warp, form in zip(warps, before.forms, strict=True)]
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
    return data.model(belief, learned.with_last_fit(), warps, splits)


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
        """State with the candidate in use whose turn it is, and True if this candidate's fit is due."""
        is_due, n_known = self.is_fit_due(learned), len(self.situation.history)
        if not learned.candidates:
            return learned, is_due
        if learned.may_split:  # a sum and the whole factor alternate from fit to fit
            return self._using(learned, learned.turn.next(2, n_known, is_fit_due=is_due)), is_due
        # of two transforms, the first one is used by the choice itself, and by odd queries
        is_after_choice = n_known + len(self.situation.pending) > learned.decomposed_at
        learned = self._using(learned, Alternation(int(is_after_choice and self.situation.n_asked % 2)))
        return learned, self.is_fit_due(learned)

    def _using(self, learned: Learned, turn: Alternation) -> Learned:
        candidate = learned.candidates[turn.in_use]
        learned = msgspec.structs.replace(learned, turn=turn, fitted_at=candidate.fitted_at)
        if candidate.form.grouping == "split":  # transform and hyper-parameters remain those of the whole factor
            return msgspec.structs.replace(learned, splits={self.situation.graph.factors[0]: candidate.hyperparameters})
        of_candidate = {"hyperparameters": candidate.hyperparameters, "forms": (candidate.form,)}
        return msgspec.structs.replace(learned, splits={}, **of_candidate)

    def whole(
        self, warps: Sequence[Warp], forms: Sequence[Form], without: Collection[str] = (), *, is_alone: bool = False
    ) -> AdditiveGP:
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
        own = {factor: settings.factors.get(factor, FactorPrior()) for factor in graph.factors}
        for factor, form in zip(graph.factors, forms, strict=True):
            own[factor] = msgspec.structs.replace(own[factor], kernel=own[factor].kernel or form.kernel)
        settings = msgspec.structs.replace(settings, factors=own)
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

    def fitted(self, forms: Collection[Form]) -> tuple[Warp, ...]:
        return tuple(Warp.fitted(form.warp, y, form.power) for form, y in zip(forms, self.F.T, strict=True))

    def chosen(self, *, is_all: bool) -> Model:
        """Model with the largest evidence for every factor; ``is_all``: all data are used, so factors may be split."""
        n, is_one = len(self.situation.history), self.F.shape[1] == 1
        tried, beliefs, evidences = self._tried()
        best = evidences.argmax(axis=0).tolist()
        forms = tuple(tried[i] for i in best)
        warps, plain = self.fitted(forms), None
        if is_one:
            i = max((i for i, form in enumerate(tried) if form.warp == "none"), key=lambda i: evidences[i, 0])
            plain = Candidate(tried[i], beliefs[i].hyperparameters, n)
        hyperparameters = AdditiveHyperparameters.of(beliefs[i].hyperparameters.factor(j) for j, i in enumerate(best))
        is_noisy = plain is not None and is_small_and_noisy(plain.hyperparameters)
        splits, leads = self._leading_sums(evidences.max(axis=0)) if is_all and not is_noisy else ({}, {})
        is_alone = is_one and not splits
        belief = self.whole(warps, forms, splits, is_alone=is_alone)
        if is_alone and belief.n_data and not is_noisy:  # a wide prior of the noise may hide it
            belief = belief.fit(stream(self.situation.seed, "belief", "room", evaluations=n))
            hyperparameters = belief.hyperparameters
        whole, candidates = Candidate(forms[0], hyperparameters, n), ()
        if plain and splits:
            (split,), (lead,) = splits.values(), leads.values()
            if lead < abs(_ODDS_OF_WHOLE[self.situation.structure]) + _LEAD * n:
                candidates = (Candidate(Form(grouping="split"), split.hyperparameters, n), whole)
        elif plain and forms[0] != plain.form:
            is_early = belief.n_data < _MANY_FROM * max(2, belief.domain.n_dims)
            similar = belief.n_data * (_SIMILAR if is_early else _SIMILAR_LATER)
            if evidences[best[0], 0] < evidences[tried.index(plain.form), 0] + similar:
                candidates = (whole, plain)
        learned = Learned(
            hyperparameters,
            fitted_at=n if np.isfinite(self.F).any() else 0,
            decomposed_at=n,
            forms=forms,
            splits={factor: split.hyperparameters for factor, split in splits.items()},
            candidates=candidates,
            plain_noise=plain.hyperparameters.noise_variances[0] if plain else 1.0,
        )
        return self.model(belief.with_hyperparameters(hyperparameters), learned, warps, splits)

    def _tried(self) -> tuple[list[Form], list[AdditiveGP], Float[np.ndarray, "m k"]]:
        """Forms, their beliefs, and each factor's evidence; it is -inf if not comparable or not permitted."""
        seed, n, k = self.situation.seed, len(self.situation.history), self.F.shape[1]
        forms, beliefs, evidences = list[Form](), list[AdditiveGP](), list[Float[np.ndarray, " k"]]()
        priors = [self.settings.factors.get(factor, FactorPrior()) for factor in self.situation.graph.factors]
        is_open = [not (self.settings.kernel or own.kernel) for own in priors]
        varies = [standardisation(y[np.isfinite(y)])[2] for y in self.F.T]  # constant outcomes are not fitted
        handicap = np.where(np.logical_and(is_open, varies), _CLEAR, np.inf)
        for family in (_OF_FACTORS, _SMOOTH) if np.isfinite(handicap).any() else (_OF_FACTORS,):
            transforms = [self.fitted([form] * k) for form in family]
            fitted = [self.whole(warps, [form] * k) for warps, form in zip(transforms, family, strict=True)]
            if fitted[0].n_data:  # all transforms have the same number of known outcomes
                places = range(len(forms), len(forms) + len(family))
                rngs = [stream(seed, "belief", "fit", evaluations=n, transform=i) for i in places]
                fitted = AdditiveGP.fit_together(fitted, rngs, [None] * len(fitted))
            for belief, warps in zip(fitted, transforms, strict=True):
                densities = [_density(belief, warps[j], self.F[:, j], j) for j in range(k)]
                are_comparable = [*map(Warp.is_comparable, warps, self.F.T, self.noise_std.T)]
                found = np.array(belief.log_evidences()) + densities - (handicap if family is _SMOOTH else 0.0)
                evidences.append(np.where(are_comparable, found, -np.inf))
            forms, beliefs = [*forms, *family], [*beliefs, *fitted]
            if is_small_and_noisy(beliefs[0].hyperparameters):
                handicap -= _CLEAR  # noise hides the details in which functions differ from smooth ones
        return forms, beliefs, np.array(evidences)

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
        made, together, n = dict[str, AdditiveGP](), list[str](), len(self.situation.history)
        rngs = {f: stream(self.situation.seed, "belief", "split", factor=f, evaluations=n) for f in known}
        for factor, warm in known.items():
            made[factor] = parts = self._unfitted(factor, is_cold=warm is None)
            if warm is not None and not is_due:
                made[factor] = parts.with_hyperparameters(warm).with_units(rngs[factor])
            elif is_stackable(parts):
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


def is_small_and_noisy(hyper: AdditiveHyperparameters) -> bool:
    """True for one noisy factor with two or three coordinates."""
    sizes = [*map(len, hyper.lengthscales)]
    return len(sizes) == 1 and sizes[0] in _FEW_VARIABLES and hyper.noise_variances[0] > VERY_NOISY


def is_clearly_noisy(learned: Learned) -> bool:
    """True for one noisy factor with two or three coordinates, whose untransformed outcomes are noisy, too."""
    # a transform that fits badly looks like noise
    is_plain = not learned.forms or learned.forms[0].warp == "none"
    return is_small_and_noisy(learned.hyperparameters) and (is_plain or learned.plain_noise > VERY_NOISY)


def _is_choice_due(previous: Learned, settings: AdditiveGPSettings, n: int) -> bool:
    is_fit_due = n - previous.fitted_at >= settings.refit_every
    return not previous.fitted_at or (is_fit_due and n >= _GROWTH * previous.decomposed_at)


def _density(belief: AdditiveGP, warp: Warp, outcomes: Float[np.ndarray, " t"], factor: int) -> float:
    """Log Jacobian that converts evidence of standardised, transformed outcomes to evidence of the outcomes."""
    seen = outcomes[np.isfinite(outcomes)]
    return float(warp.log_slope(seen).sum()) - len(seen) * math.log(belief.hyperparameters.scales[factor])
