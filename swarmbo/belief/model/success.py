"""A Gaussian-process classifier of successful and failed evaluations.

The logit of the probability of success is a constant plus a Gaussian process that is a sum of terms: one for each
variable (a wall, or the sides of a ball, is learned from few failures), one for each scope, one for all variables, and
a narrow one that repels from every failure. Its mode given the outcomes (Laplace's approximation) is a sum of the same
terms, so agents that each own a scope can add it up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_solve
from scipy.special import expit, log_expit, logit

from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.kernels.stationary import correlation

_STDS = (1.0, 3.0)  # standard deviations of the logit: for random failures, and for regions without success
_LENGTHSCALES = (0.12, 0.3, 0.75)  # for one variable, in box widths; times the root of a term's size
_SHARES = ((0.7, 0.2, 0.1), (0.1, 0.3, 0.6))  # shares of the variance: single variables, scopes, all variables
_NARROW = (2.0, 0.03)  # standard deviation and lengthscale of the term that repels from single failures
_PRIOR = (4.0, 1.0)  # prior counts of successes and failures
_MOST = 200  # largest number of outcomes in use; successes far from all failures are the least informative
_STEPS = 50  # largest number of steps of Newton's method, which needs about ten
_TOLERANCE = 1e-10  # gain of the objective at which Newton's method ends
_REQUIRED = 0.4  # required logit of success, while few evaluations fail
_ACCEPTED = 0.2  # tolerated share of failures
_RISE = 0.5  # rise of the required logit per excess failure
_MOST_REQUIRED = 3.0


def excess_of(succeeded: Iterable[bool], accepted: float = _ACCEPTED) -> float:
    """Cumulative sum (CUSUM) of failures beyond the accepted share, never below zero (Page 1954)."""
    excess = 0.0
    for success in succeeded:
        excess = max(excess + (0.0 if success else 1.0) - accepted, 0.0)
    return excess


def required_logit(excess: float, odds: float = np.inf) -> float:
    """Required logit of success at a point. It rises with failures and falls with successes (compare Gibbs & Candès
    2021), unless failures are random: ``odds`` are the log odds that failures depend on the point.
    """
    return min(_REQUIRED + _RISE * excess * max(2.0 * float(expit(odds)) - 1.0, 0.0), _MOST_REQUIRED)


@dataclass(frozen=True)
class Term:
    """A part of the process: an RBF kernel of some variables, with one lengthscale in box widths."""

    columns: tuple[int, ...]
    variance: float
    lengthscale: float


@dataclass(frozen=True, eq=False)
class SuccessGP:
    """The mode of the logit of success, as a function on the unit cube. ``evidence`` is Laplace's approximation of the
    log-probability of the results, ``odds`` the log odds against a model in which failures are random, and ``fade`` the
    correlation of results with the present. ``counts`` is above 1 for choices of three or more values without an order,
    any two of which are at distance 1. Source: Rasmussen & Williams 2006, section 3.4, algorithms 3.1 and 3.2.
    """

    terms: tuple[Term, ...]
    offset: float
    U: Float[np.ndarray, "t n"]
    weights: Float[np.ndarray, " t"]
    evidence: float
    fade: Float[np.ndarray, " t"] = field(repr=False)
    counts: Float[np.ndarray, " n"] = field(repr=False)
    odds: float = np.inf

    @classmethod
    def learned(
        cls,
        U: Float[np.ndarray, "t n"],
        succeeded: Bool[np.ndarray, " t"],
        scopes: Iterable[Sequence[int]] = (),
        *,
        rounds: Float[np.ndarray, " t"] | None = None,
        now: float = 0.0,
        memory: TimeCorrelation | None = None,
        counts: Float[np.ndarray, " n"] | None = None,
    ) -> "SuccessGP":
        """Model with the largest evidence among a few candidates."""
        share = (float(succeeded.sum()) + _PRIOR[0]) / (len(succeeded) + sum(_PRIOR))
        offset = max(float(logit(share)), 0.0)
        counts = np.ones(U.shape[1]) if counts is None else counts
        rows = _most_informative(U, succeeded, counts)
        U, succeeded, between, fade = U[rows], succeeded[rows], None, None
        if memory is not None and rounds is not None:
            then = rounds[rows]
            between = correlation(memory.kernel, np.abs(then[:, None] - then) / memory.lengthscale)
            fade = correlation(memory.kernel, np.abs(now - then) / memory.lengthscale)
        given = partial(cls.given, offset=offset, U=U, succeeded=succeeded, counts=counts, between=between, fade=fade)
        tried = [given(terms) for terms in _choices(U.shape[1], scopes)]
        best = max(tried, key=lambda model: model.evidence)
        return replace(best, odds=best.evidence - given(tried[0].terms[-1:]).evidence)

    @classmethod
    def given(
        cls,
        terms: Sequence[Term],
        offset: float,
        U: Float[np.ndarray, "t n"],
        succeeded: Bool[np.ndarray, " t"],
        *,
        counts: Float[np.ndarray, " n"],
        between: Float[np.ndarray, "t t"] | None = None,
        fade: Float[np.ndarray, " t"] | None = None,
    ) -> "SuccessGP":
        """Mode for given terms; ``between`` multiplies covariances of results, ``fade`` those of points and results."""
        K = np.zeros((len(U), len(U)))
        for term in terms:
            own = list(term.columns)
            gaps = _gaps(U[:, own], U[:, own], counts[own])
            K += term.variance * np.exp(-0.5 * (gaps**2).sum(axis=-1) / term.lengthscale**2)
        weights, evidence = _mode(K if between is None else K * between, succeeded, offset)
        return cls(tuple(terms), offset, U, weights, evidence, np.ones(len(U)) if fade is None else fade, counts)

    def logit(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
        """The mode at points of the unit cube."""
        return self.offset + self.part(self.terms, U, np.arange(self.U.shape[1]))[0]

    def part(
        self, terms: Iterable[Term], X: Float[np.ndarray, "m a"], columns: Int[np.ndarray, " a"]
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m a"]]:
        """Sum of some terms in the mode at values ``X`` of the variables ``columns``, and its gradient."""
        value, slope = np.zeros(len(X)), np.zeros(X.shape)
        place = {int(column): i for i, column in enumerate(columns)}
        for term in terms:
            own, inner = [place[column] for column in term.columns], list(term.columns)
            gaps = _gaps(X[:, own], self.U[:, inner], self.counts[inner])
            square = term.lengthscale**2
            pulls = term.variance * np.exp(-0.5 * (gaps**2).sum(axis=-1) / square) * (self.weights * self.fade)
            value += pulls.sum(axis=-1)
            slope[:, own] -= (pulls[..., None] * gaps).sum(axis=1) / square * (self.counts[inner] == 1)
        return value, slope


@dataclass(frozen=True, eq=False)
class Requirement:
    """Requirement that the model's logit of success, given the variables in ``columns``, is at least ``least``."""

    columns: Int[np.ndarray, " s"]
    model: SuccessGP
    least: float

    def margin(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
        """Logits (m,) at points of the unit cube, minus the required logit."""
        return self.model.logit(U[:, self.columns]) - self.least

    def is_risky(self, u: Float[np.ndarray, " n"]) -> bool:
        """True if a point of the unit cube may fail because of where it is; random failures do not count."""
        fails = expit(-self.model.logit(u[None, self.columns])[0])
        return bool(expit(self.model.odds) * fails > expit(-_REQUIRED))


def _gaps(
    U: Float[np.ndarray, "m a"], others: Float[np.ndarray, "t a"], counts: Float[np.ndarray, " a"]
) -> Float[np.ndarray, "m t a"]:
    """Differences of points; 1 between any two values of a choice."""
    gaps = U[:, None] - others[None]
    return np.where(counts > 1, np.abs(gaps) * counts > 0.5, gaps) if (counts > 1).any() else gaps


def _choices(n: int, scopes: Iterable[Sequence[int]]) -> list[tuple[Term, ...]]:
    together = tuple(range(n))
    groups = [group for group in dict.fromkeys(tuple(sorted(scope)) for scope in scopes) if 1 < len(group) < n]
    narrow = Term(together, _NARROW[0] ** 2, _NARROW[1] * np.sqrt(n))
    out: list[tuple[Term, ...]] = []
    for std, lengthscale, shares in product(_STDS, _LENGTHSCALES, _SHARES[: 2 if n > 1 else 1]):
        by_one, by_group, by_all = (share * std**2 for share in shares)
        # the variance per variable falls with their number, but less than in proportion, as few may be relevant
        terms = [Term((i,), by_one / np.sqrt(n), lengthscale) for i in range(n)] if n > 1 else []
        terms += [Term(g, by_group / np.sqrt(len(groups)), lengthscale * np.sqrt(len(g))) for g in groups]
        terms.append(Term(together, by_all if n > 1 else std**2, lengthscale * np.sqrt(n)))
        out.append((*terms, narrow))
    return out


def _most_informative(
    U: Float[np.ndarray, "t n"], succeeded: Bool[np.ndarray, " t"], counts: Float[np.ndarray, " n"]
) -> Int[np.ndarray, " k"]:
    """Rows in use: all if few; else the last failures, the successes nearest to a failure, and some other successes."""
    if len(U) <= _MOST:
        return np.arange(len(U))
    failed, good = np.flatnonzero(~succeeded)[-2 * _MOST // 5 :], np.flatnonzero(succeeded)
    distance = np.min([(_gaps(U[good], U[[row]], counts)[:, 0] ** 2).sum(axis=1) for row in failed], axis=0)
    order, n_near = good[np.argsort(distance, kind="stable")], 2 * _MOST // 5
    near, others = order[:n_near], np.sort(order[n_near:])
    n_others = min(_MOST - len(failed) - len(near), len(others))
    some = others[np.linspace(0, len(others) - 1, n_others).round().astype(int)] if n_others else others[:0]
    return np.sort(np.concatenate([failed, near, some]))


def _mode(
    K: Float[np.ndarray, "t t"], succeeded: Bool[np.ndarray, " t"], offset: float
) -> tuple[Float[np.ndarray, " t"], float]:
    """Weights of the mode, and the evidence: Newton's method, with halved steps on overshoot."""
    n, outcome, sign = len(succeeded), succeeded.astype(float), np.where(succeeded, 1.0, -1.0)
    weights, latent = np.zeros(n), np.zeros(n)

    def objective(weights: np.ndarray, latent: np.ndarray) -> float:
        return float(-0.5 * weights @ latent + log_expit(sign * (offset + latent)).sum())

    value = objective(weights, latent)
    for _ in range(_STEPS):
        chance = expit(offset + latent)
        curvature = chance * (1.0 - chance)
        root = np.sqrt(curvature)
        target = curvature * latent + outcome - chance
        factor = np.linalg.cholesky(np.eye(n) + root[:, None] * K * root)
        wanted = target - root * cho_solve((factor, True), root * (K @ target))
        step = 1.0
        for _ in range(20):
            new = weights + step * (wanted - weights)
            new_latent = K @ new
            new_value = objective(new, new_latent)
            if new_value >= value:
                break
            step *= 0.5
        else:
            break
        gain, weights, latent, value = new_value - value, new, new_latent, new_value
        if gain <= _TOLERANCE:
            break
    chance = expit(offset + latent)
    root = np.sqrt(chance * (1.0 - chance))
    factor = np.linalg.cholesky(np.eye(n) + root[:, None] * K * root)
    return outcome - chance, value - float(np.log(np.diag(factor)).sum())


_N_RANDOM = 256  # random points searched if nothing has succeeded


def requirements(situation: JointSituation, times: Sequence[TimeCorrelation] = ()) -> tuple[Requirement, ...]:
    """Requirements from past failures: one if evaluations failed as a whole, one per factor that failed otherwise."""
    history, graph, failed = situation.history, situation.graph, situation.history.failed
    if not failed.any():
        return ()
    known = np.isfinite(history.factors) | np.isfinite(history.totals)[:, None]
    whole, some = np.asarray(failed.all(axis=1)), np.asarray(failed.any(axis=1))
    told: list[tuple[tuple[int, ...], np.ndarray, np.ndarray]] = []
    if whole.any():
        told.append((tuple(range(len(graph.variables))), whole, np.asarray(known.any(axis=1)) | (some & ~whole)))
    for factor, scope in enumerate(graph.columns):
        if (own := failed[:, factor] & ~whole).any():
            told.append((scope, own, known[:, factor]))
    memory = max(times, key=lambda time: time.lengthscale) if times else None
    out: list[Requirement] = []
    for columns, bad, good in told:
        rows, local = np.flatnonzero(bad | good), {column: i for i, column in enumerate(columns)}
        U = situation.domain.to_unit(history.X[rows])[:, list(columns)]
        counts = None if situation.coding is None else np.array(situation.coding.counts)[list(columns)]
        scopes = [[local[column] for column in scope] for scope in graph.columns if set(scope) <= set(columns)]
        rounds = None if history.rounds is None else history.rounds[rows]
        learned = SuccessGP.learned(
            U, good[rows], scopes, rounds=rounds, now=situation.round, memory=memory, counts=counts
        )
        excess = excess_of(good[rows][situation.chosen[rows]])
        out.append(Requirement(np.array(columns), learned, required_logit(excess, learned.odds)))
    return tuple(out)


def reference(
    situation: JointSituation, needed: Sequence[Requirement], best: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Start and fallback: a joint point of the unit cube that is as likely to succeed as any.

    The incumbent; if it is too likely to fail, the likeliest point with an outcome and not barred; else of random ones.
    """
    if least_margin(needed, best[None])[0] >= 0.0:
        return best
    history = situation.history
    known = np.isfinite(history.totals) | np.isfinite(history.factors).any(axis=1)
    if history.barred is not None:
        known &= ~history.barred
    tried = np.concatenate([best[None], situation.domain.to_unit(history.X[known])])
    if not known.any():
        rng = stream(situation.seed, "success", "search", evaluations=len(history))
        tried = np.concatenate([tried, rng.random((_N_RANDOM, len(best)))])
    return tried[int(least_margin(needed, tried).argmax())].copy()


def least_margin(needed: Sequence[Requirement], U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
    """Smallest margin of joint points over the requirements."""
    return np.min([requirement.margin(U) for requirement in needed], axis=0)
