"""Structure learned from data: evidence of sums over scopes, and a search for scopes that may overlap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp import cholesky
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, SampledStructure, StructureSettings
from swarmbo.belief.gp.observations import standardisation, standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior, starting_thetas
from swarmbo.belief.model import partitions
from swarmbo.belief.model.partitions import Block, Scopes, canonical
from swarmbo.kernels import kernel_matrix


class StartingPoint(msgspec.Struct, frozen=True):
    """Starting point of fits for any scopes; a fit multiplies lengthscales by the root of the scope's size."""

    lengthscales: tuple[float, ...]
    noise_variance: float


@dataclass(frozen=True, eq=False)
class ScopeFit:
    """Hyper-parameters of a sum over scopes for standardised outcomes; ``log_weight`` as in ``ScopeEvidence``."""

    scopes: Scopes
    log_weight: float
    lengthscales: tuple[Float[np.ndarray, " _a"], ...]
    outputscales: Float[np.ndarray, " k"]
    noise_variance: float

    def starting_point(self) -> StartingPoint:
        """Starting point for other scopes: each variable's geometric mean lengthscale, per root of the scope's size."""
        logs: dict[int, list[float]] = {}
        for scope, lengths in zip(self.scopes, self.lengthscales, strict=True):
            for variable, length in zip(scope, lengths.tolist(), strict=True):
                logs.setdefault(variable, []).append(math.log(length) - 0.5 * math.log(len(scope)))
        means = tuple(math.exp(sum(logs[variable]) / len(logs[variable])) for variable in sorted(logs))
        return StartingPoint(means, self.noise_variance)


@dataclass(frozen=True, eq=False)
class ScopeEvidence:
    """Log weight of scopes given totals: the maximum over theta of p(y | scopes, theta) times the prior density of
    theta relative to its mode. This is Laplace's approximation of the evidence if data narrow theta equally for all
    structures. Every fit of theta has the same ``start`` (None: the prior's mode, and short lengthscales), as a Markov
    chain over structures requires. With constant totals, all scopes have equal weight.
    """

    settings: AdditiveGPSettings
    U: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    start: StartingPoint | None = None
    noise: Float[np.ndarray, " t"] | None = None
    _fits: dict[Scopes, ScopeFit] = field(default_factory=dict[Scopes, ScopeFit], init=False)

    def __call__(self, scopes: Scopes) -> float:
        """Log weight, up to a constant that depends on the data alone."""
        return self.fit(scopes).log_weight

    @property
    def n_fits(self) -> int:
        """Number of structures fitted so far."""
        return len(self._fits)

    def fit(self, scopes: Scopes) -> ScopeFit:
        """Fit of scopes, which must cover all columns of U and may overlap."""
        if scopes not in self._fits:
            self._fits[scopes] = self._fitted(scopes)
        return self._fits[scopes]

    def standardised(self) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"], bool]:
        """Totals with mean 0 and variance 1, their known noise in this unit (NaN if unknown), and True if they vary."""
        mean, scale, varies = standardisation(self.totals)
        noise = np.full(len(self.totals), np.nan) if self.noise is None else standardised_noise(self.noise, scale)
        return (self.totals - mean) / scale, noise, varies

    def _fitted(self, scopes: Scopes) -> ScopeFit:
        from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

        settings, sizes = msgspec.structs.replace(self.settings, factors={}), [len(scope) for scope in scopes]
        model = "hierarchical" if settings.lengthscales == "auto" else settings.lengthscales
        prior = HyperparameterPrior.of(settings, [""] * len(sizes), sizes, model, [settings.noise_median])
        z, noise, varies = self.standardised()
        theta, log_weight = prior.centre, 0.0
        if varies:
            starts = self._starts(prior, scopes)
            log_posterior = LogPosterior(prior, [settings.usual_kernel] * len(sizes), scopes, self.U, z, noise)
            theta, log_weight = maximise(log_posterior, starts, settings.max_iterations)
        lengthscales, outputscales, noises = prior.unpack(theta)
        parts = tuple(np.split(lengthscales, np.cumsum(sizes)[:-1]))
        return ScopeFit(scopes, log_weight, parts, outputscales, float(noises[0]))

    def _starts(self, prior: HyperparameterPrior, scopes: Scopes) -> list[Float[np.ndarray, " p"]]:
        if self.start is not None:
            lengths = [self.start.lengthscales[v] * math.sqrt(len(scope)) for scope in scopes for v in scope]
            _, outputscales, _ = prior.unpack(prior.centre)
            return [prior.pack(np.array(lengths), outputscales, np.array([self.start.noise_variance]))]
        return starting_thetas(prior, [], None)


_PATIENCE = 6  # number of consecutive candidate scopes without a gain at which the search stops
_PROBES = 32


def screened(
    start: Scopes, evidence: ScopeEvidence, rng: np.random.Generator, *, largest: int, gain: float, tries: int
) -> Scopes:
    """Scopes that explain the data better than those at the start, by a greedy search; no scope lies within another.

    Forwards: candidates are all pairs of variables, every scope with one more variable, and unions of overlapping
    scopes. They are fitted in the order of their ``score_statistics``; the first with enough evidence is added, scopes
    in it are dropped, and all are ranked again. Backwards: each scope is removed, or replaced by two that separate some
    pair of its variables, if the evidence permits. Both repeat until nothing changes, or for ``tries`` fits.
    """
    scopes, last = canonical(start), evidence.n_fits + tries
    seen = set[Scopes]()  # prevents cycles: several small removals may undo an earlier gain
    while scopes not in seen and evidence.n_fits < last:
        seen.add(scopes)
        scopes = _reduced(_extended(scopes, evidence, rng, largest, gain, last), evidence, gain, last)
    return scopes


def _extended(
    scopes: Scopes, evidence: ScopeEvidence, rng: np.random.Generator, largest: int, gain: float, last: int
) -> Scopes:
    failures, ranked = 0, _ranked(scopes, evidence, rng, largest)
    while ranked and failures < _PATIENCE and evidence.n_fits < last:
        added = with_scope(scopes, ranked.pop(0))
        if evidence(added) > evidence(scopes) + gain:
            scopes, failures = added, 0
            ranked = _ranked(scopes, evidence, rng, largest)
        else:
            failures += 1
    return scopes


def _reduced(scopes: Scopes, evidence: ScopeEvidence, gain: float, last: int) -> Scopes:
    waiting = sorted((scope for scope in scopes if len(scope) > 1), key=len, reverse=True)
    while waiting:
        scope = waiting.pop(0)
        ways = [without_scope(scopes, scope), *(without_pair(scopes, scope, pair) for pair in combinations(scope, 2))]
        for simpler in ways if len(scope) > 2 else ways[:1]:
            if evidence.n_fits < last and evidence(simpler) > evidence(scopes) - gain:
                waiting = [other for other in simpler if len(other) > 1 and (other in waiting or other not in scopes)]
                scopes = simpler
                break
    return scopes


def with_scope(scopes: Scopes, scope: Block) -> Scopes:
    """Scopes with ``scope`` added, and scopes within it removed."""
    return canonical([*(other for other in scopes if not set(other) <= set(scope)), scope])


def without_scope(scopes: Scopes, scope: Block) -> Scopes:
    """Scopes without ``scope``; its variables that are in no other scope become scopes of one variable."""
    left = [other for other in scopes if other != scope]
    covered = {variable for other in left for variable in other}
    return canonical([*left, *((variable,) for variable in scope if variable not in covered)])


def without_pair(scopes: Scopes, scope: Block, pair: tuple[int, int]) -> Scopes:
    """Scopes with ``scope`` replaced by two scopes: each lacks one variable of the pair."""
    scopes = tuple(other for other in scopes if other != scope)
    for left_out in pair:
        piece = tuple(variable for variable in scope if variable != left_out)
        if not any(set(piece) <= set(other) for other in scopes):
            scopes = with_scope(scopes, piece)
    return canonical(scopes)


def candidates(scopes: Scopes, largest: int) -> Scopes:
    """Scopes that may be added: pairs, scopes with one more variable, unions of overlapping scopes."""
    variables = sorted({variable for scope in scopes for variable in scope})
    grown = [frozenset(pair) for pair in combinations(variables, 2)]
    grown += [frozenset(scope) | {variable} for scope in scopes for variable in variables]
    grown += [frozenset(a) | frozenset(b) for a, b in combinations(scopes, 2) if set(a) & set(b)]
    known = [set(scope) for scope in scopes]
    new = {c for c in grown if len(c) <= largest and not any(c <= scope for scope in known)}
    return canonical(new)


def score_statistics(
    fit: ScopeFit, evidence: ScopeEvidence, added: Sequence[Block], rng: np.random.Generator
) -> Float[np.ndarray, " c"]:
    """Score statistic of each added scope: slope of the log evidence by its outputscale at 0, in standard deviations.

    The slope is (alphaᵀ C alpha - tr K⁻¹ C) / 2 with the scope's correlations C and alpha = K⁻¹ (y - mean). No fit
    is needed. Source: Rasmussen & Williams 2006, eq. 5.9; Lin 1997 for tests of variance components with it.
    """
    U, (z, known, _), kernel = evidence.U, evidence.standardised(), evidence.settings.usual_kernel
    K = np.eye(len(U)) * np.where(np.isnan(known), fit.noise_variance, known)
    for scope, lengths, output in zip(fit.scopes, fit.lengthscales, fit.outputscales, strict=True):
        V = U[:, list(scope)]
        K += kernel_matrix(kernel, V, V, lengths, float(output))
    L = cholesky.factorise_noisy(K)[0]
    whitened, ones = cholesky.solve_lower(L, z), cholesky.solve_lower(L, np.ones(len(z)))
    whitened -= ones * (ones @ whitened) / (ones @ ones)  # minus the mean
    alpha = cholesky.solve_lower(L, whitened, transposed=True)
    probes = cholesky.solve_lower(L, rng.standard_normal((len(U), _PROBES)), transposed=True)
    usual = float(np.exp(evidence.settings.lengthscale_log_median))
    # a variable without an effect in the fit may have a long lengthscale, unsuited to a new scope
    lengthscales = np.minimum(fit.starting_point().lengthscales, usual)
    out = np.empty(len(added))
    for i, scope in enumerate(added):
        V = U[:, list(scope)]
        C = kernel_matrix(kernel, V, V, lengthscales[list(scope)] * np.sqrt(len(scope)), 1.0)
        drawn = np.einsum("tp,tp->p", probes, C @ probes)
        out[i] = (float(alpha @ C @ alpha) - drawn.mean()) / max(float(drawn.std()), 1e-12)
    return out


def _ranked(scopes: Scopes, evidence: ScopeEvidence, rng: np.random.Generator, largest: int) -> list[Block]:
    added = candidates(scopes, largest)
    if not added:
        return []
    order = np.argsort(-score_statistics(evidence.fit(scopes), evidence, added, rng), kind="stable")
    return [added[i] for i in order]


class LearnedStructure(msgspec.Struct, frozen=True):
    """Scopes in use, and the state of the next search; plain data. Variables are columns of joint points."""

    scopes: Scopes  # at least one; every variable is covered
    shares: tuple[float, ...]  # each scope's share of the prior variance, sum 1; empty: equal shares
    chosen_at: int  # number of evaluations at the choice of the scopes
    state: Scopes  # last state of a chain over partitions, or the scopes themselves
    start: StartingPoint | None = None  # of the next fits; None: no data, or constant data


def choose_structure(
    settings: StructureSettings,
    belief: AdditiveGPSettings,
    U: Float[np.ndarray, "t n"],
    totals: Float[np.ndarray, " t"],
    noise: Float[np.ndarray, " t"],
    rng: np.random.Generator,
    previous: LearnedStructure | None,
    n_evaluations: int,
) -> LearnedStructure:
    """Structure to use from now on: the previous one, unless another is due. ``totals`` that are not finite are
    ignored; ``noise`` variances are NaN if unknown; ``n_evaluations`` includes failed ones.
    """
    if previous is not None and previous.start is None:
        previous = None  # chosen without data: no state to continue from
    if previous is not None and n_evaluations - previous.chosen_at < settings.every:
        return previous
    n = U.shape[1]
    told = np.isfinite(totals)
    start = None if previous is None else previous.start
    evidence = ScopeEvidence(belief, U[told], totals[told], start, noise[told])
    if isinstance(settings, SampledStructure):
        largest = settings.largest
        sampled = partial(partitions.sample_partitions, log_weight=evidence, rng=rng, largest=largest)
        if previous is not None:
            state = previous.state
        else:
            state = (tuple(range(n)),) if largest is None else partitions.random_blocks(n, largest, rng)
            if settings.burn_in:
                (state,) = sampled(state, n_samples=1, moves=settings.burn_in)
        samples = sampled(state, n_samples=settings.samples, moves=settings.moves)
        (scopes, shares), state = partitions.averaged(samples), samples[-1]
    else:
        begin = tuple((variable,) for variable in range(n)) if previous is None else previous.state
        scopes = screened(begin, evidence, rng, largest=settings.largest, gain=settings.gain, tries=settings.tries)
        shares, state = (), scopes
    *_, varies = evidence.standardised()
    start = evidence.fit(state).starting_point() if varies else None
    return LearnedStructure(scopes, shares, n_evaluations, state, start)
