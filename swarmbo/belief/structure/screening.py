"""Greedy search for overlapping scopes, ranked by a score test and accepted by evidence."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.belief.structure.evidence import ScopeEvidence, ScopeFit
from swarmbo.belief.structure.partitions import Block, Scopes, canonical
from swarmbo.kernels import kernel_matrix

_PATIENCE = 6  # promising scopes in a row that may fail
_PROBES = 32


def screened(
    start: Scopes, evidence: ScopeEvidence, rng: np.random.Generator, *, largest: int, gain: float, tries: int
) -> Scopes:
    """Scopes that explain the data better than those at the start, by a greedy search; none lies in another.

    Forwards: candidates are all pairs of variables, every scope with one more variable, and unions of overlapping
    scopes. They are ranked by ``promises``, and fitted in that order; the first with enough evidence is taken, scopes
    in it are dropped, and ranks are computed again. Backwards: each scope is removed, or replaced by two that separate
    some pair of its variables, if the evidence permits. Both repeat until nothing changes.
    """
    scopes, last = canonical(start), evidence.n_fits + tries
    seen = set[Scopes]()  # several small steps may lose an earlier gain
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
    """Scopes with one more, without those that lie in it."""
    return canonical([*(other for other in scopes if not set(other) <= set(scope)), scope])


def without_scope(scopes: Scopes, scope: Block) -> Scopes:
    """Scopes without one; its variables in no other scope become single scopes."""
    left = [other for other in scopes if other != scope]
    covered = {variable for other in left for variable in other}
    return canonical([*left, *((variable,) for variable in scope if variable not in covered)])


def without_pair(scopes: Scopes, scope: Block, pair: tuple[int, int]) -> Scopes:
    """Scopes with one replaced by two, each without one of a pair of its variables."""
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


def promises(
    fit: ScopeFit, evidence: ScopeEvidence, added: Sequence[Block], rng: np.random.Generator
) -> Float[np.ndarray, " c"]:
    """For each scope the slope of the log evidence by its outputscale at 0, in standard deviations.

    The slope is (alphaᵀ C alpha - tr K⁻¹ C) / 2, C the new scope's correlations, alpha = K⁻¹ (y - mean). Under the
    present scopes its mean is 0, and its standard deviation is estimated from draws of y; no fit is needed.

    Source: Rasmussen & Williams 2006, eq. 5.9, for the slope; Lin 1997 for variance components tested by it.
    """
    U, (z, _), kernel = evidence.U, evidence.standardised(), evidence.settings.kernel
    known = evidence.known_noise()
    K = np.eye(len(U)) * np.where(np.isnan(known), fit.noise_variance, known)
    for scope, lengths, output in zip(fit.scopes, fit.lengthscales, fit.outputscales, strict=True):
        V = U[:, list(scope)]
        K += kernel_matrix(kernel, V, V, lengths, float(output))
    L = factorise(K)[0]
    whitened, ones = solve_lower(L, z), solve_lower(L, np.ones(len(z)))
    alpha = solve_lower_transposed(L, whitened - ones * (ones @ whitened) / (ones @ ones))  # minus the mean
    probes = solve_lower_transposed(L, rng.standard_normal((len(U), _PROBES)))
    usual = float(np.exp(evidence.settings.lengthscale_log_median))
    # a variable without an effect may have a long lengthscale
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
    order = np.argsort(-promises(evidence.fit(scopes), evidence, added, rng), kind="stable")
    return [added[i] for i in order]
