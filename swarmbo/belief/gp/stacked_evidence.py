"""The evidence of latents that are observed by themselves, for stacks of them at once, and its maximum with a prior's.

What ``gp.evidence`` works out for one matrix of outcomes is done here for many small ones side by side: latents that
have as many outcomes, as many coordinates and one kernel share every array operation, and each searches on its own.
Besides value and gradient there is the average information, the mean of the observed and the expected information
about theta (Gilmour, Thompson & Cullis 1995),

    A_ij = 1/2 αᵀ K_i K⁻¹ K_j α,        K_i = dK / dθ_i,  α = K⁻¹ (z - mean),

which needs products with vectors only and is never indefinite. With the prior's precision it makes steps of Newton's
kind, so a search takes a handful of evaluations where one that learns the curvature from gradients takes twenty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import lapack

from swarmbo.belief.gp.cholesky import factorise
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.kernels import KernelName, correlation_and_slope

_ENTRIES = 2**16  # pairs of outcomes worked on at once, so that they stay in cache
_EPSILON = float(np.finfo(float).eps)
_DAMPED, _LEAST, _MOST = 0.1, 1e-8, 1e8  # of a step at first, and within which bounds
_SLIGHT = 1e-4  # share of the promised rise that a step must bring


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What theta is worth, for b latents.

    Args:
        value: Log posterior density (b,), constant means at their optimum.
        gradient: By theta (b, p).
        information: The average information, the prior's precision included (b, p, p).
        mean: The profiled constant means (b,), standardised.
    """

    value: Float[np.ndarray, " b"]
    gradient: Float[np.ndarray, "b p"]
    information: Float[np.ndarray, "b p p"]
    mean: Float[np.ndarray, " b"]

    def where(self, chosen: Bool[np.ndarray, " b"], other: "Evaluated") -> "Evaluated":
        """These where they are chosen, elsewhere others."""
        return Evaluated(
            np.where(chosen, self.value, other.value),
            np.where(chosen[:, None], self.gradient, other.gradient),
            np.where(chosen[:, None, None], self.information, other.information),
            np.where(chosen, self.mean, other.mean),
        )

    def bent(self, moved: Float[np.ndarray, "b p"], before: Float[np.ndarray, "b p"]) -> "Evaluated":
        """With information that agrees, along the last step, with how the gradient changed.

        The average information leaves out what data and model disagree on. Steps that trust it alone go too far along
        ridges, and come back, again and again.

        Args:
            moved: The last step.
            before: The gradient where it began.

        Source: Nocedal & Wright 2006, eq. 6.19 (BFGS), of one step only.
        """
        bend = before - self.gradient
        along = (self.information @ moved[..., None])[..., 0]
        expected, seen = (moved * along).sum(axis=1), (moved * bend).sum(axis=1)
        is_bowl = seen > _SLIGHT * expected
        added = bend[:, :, None] * bend[:, None, :] / np.where(is_bowl, seen, 1.0)[:, None, None]
        removed = along[:, :, None] * along[:, None, :] / np.where(is_bowl, expected, 1.0)[:, None, None]
        information = np.where(is_bowl[:, None, None], self.information - removed + added, self.information)
        return replace(self, information=information)

    def put(self, rows: Int[np.ndarray, " s"], other: "Evaluated") -> None:
        """Write others over some rows."""
        self.value[rows], self.gradient[rows] = other.value, other.gradient
        self.information[rows], self.mean[rows] = other.information, other.mean

    def take(self, rows: Int[np.ndarray, " s"]) -> "Evaluated":
        """Some rows."""
        return Evaluated(self.value[rows], self.gradient[rows], self.information[rows], self.mean[rows])


class StackedLogPosterior:
    """Log posterior densities of the hyper-parameters of g latents, each given t outcomes of its own.

    Args:
        priors: Of theta, one each; all of one form.
        kernel: Of all.
        U: Points (g, t, a) in the unit cube, as each latent reads them.
        z: Standardised outcomes (g, t).
        known_noise: Noise variances (g, t) that were told, standardised; NaN where theta has it.
        fading: The kernel over time, and the round (g, t) of each outcome; None where nothing fades.

    Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Gilmour et al. 1995 for the average information.
    """

    def __init__(
        self,
        priors: Sequence[HyperparameterPrior],
        kernel: KernelName,
        U: Float[np.ndarray, "g t a"],
        z: Float[np.ndarray, "g t"],
        known_noise: Float[np.ndarray, "g t"],
        decay: tuple[KernelName, Float[np.ndarray, "g t"]] | None = None,
    ) -> None:
        t = z.shape[1]
        self._first, self.kernel, self._U, self._z, self._known_noise = priors[0], kernel, U, z, known_noise
        self._centre = np.array([prior.centre for prior in priors])
        self._precision = np.array([prior.precision for prior in priors])
        self.bounds = np.array([prior.bounds for prior in priors])
        self._cols, self._rows = np.triu_indices(t, 1)  # pairs below the diagonal, column by column
        self._below, self._above = self._rows * t + self._cols, self._cols * t + self._rows
        self._time_kernel, rounds = (None, None) if decay is None else decay
        self._apart = None if rounds is None else np.abs(rounds[:, self._rows] - rounds[:, self._cols])

    @cached_property
    def _squares(self) -> Float[np.ndarray, "g a pairs"]:
        across = np.swapaxes(self._U, 1, 2)
        return (across[:, :, self._rows] - across[:, :, self._cols]) ** 2

    def __call__(self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]) -> Evaluated:
        """Worth of some thetas.

        Args:
            theta: One a row.
            which: Of which latent each is.
        """
        size = max(1, _ENTRIES // max(len(self._rows), 1))
        chunks = [slice(start, start + size) for start in range(0, len(theta), size)]
        parts = [self._worked_out(theta[chunk], which[chunk]) for chunk in chunks]
        return Evaluated(
            np.concatenate([part.value for part in parts]),
            np.concatenate([part.gradient for part in parts]),
            np.concatenate([part.information for part in parts]),
            np.concatenate([part.mean for part in parts]),
        )

    def _worked_out(self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]) -> Evaluated:
        prior, z, t = self._first, self._z[which], self._z.shape[1]
        q, squares = prior.n_lengthscales, self._squares[which]
        inverse_squares = np.exp(-2.0 * (prior.base + theta[:, :q]))  # (b, a), also where one stands for all
        output, noise = np.exp(theta[:, -2])[:, None], np.exp(theta[:, -1])[:, None]
        near, slope = correlation_and_slope(self.kernel, np.sqrt((inverse_squares[:, None] @ squares)[:, 0]))
        near, slope = output * near, output * slope
        left_slope = None
        if self._time_kernel is not None and self._apart is not None:
            r = self._apart[which] / np.exp(theta[:, q])[:, None]
            left, fall = correlation_and_slope(self._time_kernel, r)
            left_slope = near * fall * r**2  # by the logarithm of the lengthscale of time
            near, slope = near * left, slope * left
        known = self._known_noise[which]
        fitted_noise = np.where(np.isnan(known), noise, 0.0)
        own_noise = np.where(np.isnan(known), noise, known)
        inverse, log_root = self._inverted(near, output + own_noise)
        pairs = inverse.reshape(-1, t * t)[:, self._above]
        inverse.reshape(-1, t * t)[:, self._below] = pairs
        solved = inverse @ np.stack([z, np.ones_like(z)], axis=-1)  # K⁻¹ z, K⁻¹ 1
        mean = solved[..., 0].sum(axis=1) / solved[..., 1].sum(axis=1)
        alpha = solved[..., 0] - mean[:, None] * solved[..., 1]
        residual = z - mean[:, None]
        # α αᵀ - K⁻¹: pairs off the diagonal count twice, which takes the half away
        W = alpha[:, self._rows] * alpha[:, self._cols] - pairs
        W_diagonal = alpha**2 - np.diagonal(inverse, axis1=1, axis2=2)
        by_length = inverse_squares * (squares @ (W * slope)[..., None])[..., 0]
        derivatives = [self._times(slope, alpha, which, inverse_squares)]  # dK α, one (b, t, ·) after the other
        gradient = [by_length]
        if prior.is_shared:
            gradient, derivatives = [by_length.sum(axis=1, keepdims=True)], [derivatives[0].sum(-1, keepdims=True)]
        if left_slope is not None:
            gradient.append((W * left_slope).sum(axis=1, keepdims=True))
            derivatives.append(self._square(left_slope) @ alpha[..., None])
        gradient.append((W * near).sum(axis=1, keepdims=True) + 0.5 * output * W_diagonal.sum(axis=1, keepdims=True))
        gradient.append(0.5 * (fitted_noise * W_diagonal).sum(axis=1, keepdims=True))
        derivatives += [(residual - own_noise * alpha)[..., None], (fitted_noise * alpha)[..., None]]
        by_theta = np.concatenate(derivatives, axis=-1)
        information = 0.5 * (np.swapaxes(by_theta, 1, 2) @ (inverse @ by_theta))
        value = -0.5 * (residual * alpha).sum(axis=1) - log_root - 0.5 * t * np.log(2.0 * np.pi)
        return self.with_prior(Evaluated(value, np.concatenate(gradient, axis=1), information, mean), theta, which)

    def with_prior(
        self, evidence: Evaluated, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]
    ) -> Evaluated:
        """The posterior, given the evidence at some thetas."""
        away = theta - self._centre[which]
        weighted = (self._precision[which] @ away[..., None])[..., 0]
        return Evaluated(
            evidence.value - 0.5 * (away * weighted).sum(axis=1),
            evidence.gradient - weighted,
            evidence.information + self._precision[which],
            evidence.mean,
        )

    def _inverted(
        self, pairs: Float[np.ndarray, "b pairs"], diagonal: Float[np.ndarray, "b t"]
    ) -> tuple[Float[np.ndarray, "b t t"], Float[np.ndarray, " b"]]:
        """Inverses, of which only the upper triangle means anything, and half the logarithms of the determinants."""
        t = diagonal.shape[1]
        K, inverses, log_roots = np.zeros((len(pairs), t, t)), np.empty((len(pairs), t, t)), np.empty(len(pairs))
        K.reshape(-1, t * t)[:, self._above] = pairs  # in Fortran order, as LAPACK reads them, that is below it
        K.reshape(-1, t * t)[:, :: t + 1] = diagonal
        for i, matrix in enumerate(K):
            L, info = lapack.dpotrf(matrix.T, lower=1, clean=0)
            if info or L.diagonal().min() ** 2 <= t * _EPSILON * diagonal[i].max():
                L, _ = factorise(matrix.T)
            log_roots[i] = np.log(L.diagonal()).sum()
            inverses[i] = lapack.dpotri(L, lower=1, overwrite_c=1)[0].T
        return inverses, log_roots

    def _square(self, pairs: Float[np.ndarray, "b pairs"]) -> Float[np.ndarray, "b t t"]:
        """Symmetric matrices of what is off the diagonal."""
        t = self._z.shape[1]
        full = np.zeros((len(pairs), t * t))
        full[:, self._below] = pairs
        full[:, self._above] = pairs
        return full.reshape(-1, t, t)

    def _times(
        self,
        slope: Float[np.ndarray, "b pairs"],
        alpha: Float[np.ndarray, "b t"],
        which: Int[np.ndarray, " b"],
        inverse_squares: Float[np.ndarray, "b a"],
    ) -> Float[np.ndarray, "b t a"]:
        """Derivatives of K by log-lengthscales, times alpha: (u - v)² is u² - 2 u v + v², so one matrix serves all."""
        U, a = self._U[which], self._U.shape[2]
        weighted = np.concatenate([alpha[..., None], U * alpha[..., None], U**2 * alpha[..., None]], axis=-1)
        sums = self._square(slope) @ weighted
        spread = U**2 * sums[..., :1] - 2.0 * U * sums[..., 1 : a + 1] + sums[..., a + 1 :]
        return inverse_squares[:, None] * spread


def maximise_stacked(
    log_posterior: StackedLogPosterior,
    starts: Float[np.ndarray, "b p"],
    which: Int[np.ndarray, " b"],
    max_iterations: int,
    tolerance: float = 1e-6,
    *,
    longest: float = 1.0,
    apart: float = 0.0,
    begun: Evaluated | None = None,
) -> tuple[Float[np.ndarray, "b p"], Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Local searches side by side: damped Newton steps within bounds. What comes of one does not depend on the others.

    A step solves the information, damped, for the gradient, in those coordinates that a bound does not hold back. It is
    damped less after it brought what it promised, and more after it brought little or none.

    Source: Nocedal & Wright 2006, section 4.1 for the damping, 16.7 for projection on bounds.

    Args:
        log_posterior: To be maximised.
        starts: Thetas.
        which: Of which latent each is; those of one latent follow one another, as many for each.
        max_iterations: Per start.
        tolerance: A search ends when the gain that its undamped step promises, or that of an accepted one, is below
            this, relative to the value.
        longest: Of a step, in natural logarithms: the quadratic model knows nothing of what lies further.
        apart: Of two searches of a latent that come nearer than this in all coordinates, only the one further up goes
            on; 0: both do.
        begun: What the starts are worth, if that is known.

    Returns:
        Thetas (b, p), the log posterior there (b,), and the profiled means (b,).
    """
    low, high = log_posterior.bounds[which, :, 0], log_posterior.bounds[which, :, 1]
    theta = np.clip(starts, low, high)
    now, damping = log_posterior(theta, which) if begun is None else begun, np.full(len(theta), _DAMPED)
    active = np.arange(len(theta))
    for _ in range(max_iterations):
        if apart > 0.0:
            active = active[~doubled(theta, now.value, len(theta) // len(set(which.tolist())), apart)[active]]
        at, gradient, information = theta[active], now.gradient[active], now.information[active]
        held = ((at <= low[active]) & (gradient < 0.0)) | ((at >= high[active]) & (gradient > 0.0))
        unit = tolerance * np.maximum(np.abs(now.value[active]), 1.0)
        undamped = _step(gradient, information, held, np.zeros(len(active)), longest)
        goes_on = 0.5 * (undamped * gradient).sum(axis=1) > unit
        if not goes_on.any():
            break
        active, at, unit, held = active[goes_on], at[goes_on], unit[goes_on], held[goes_on]
        gradient, information = gradient[goes_on], information[goes_on]
        step = _step(gradient, information, held, damping[active], longest)
        trial = np.clip(at + step, low[active], high[active])
        moved = trial - at
        promised = (gradient * moved).sum(axis=1) - 0.5 * np.einsum("bi,bij,bj->b", moved, information, moved)
        tried = log_posterior(trial, which[active])
        gain = tried.value - now.value[active]
        accepted = gain > _SLIGHT * np.maximum(promised, 0.0)
        ratio = gain / np.where(promised > 0.0, promised, np.inf)
        change = np.where(ratio > 0.75, 0.1, np.where(ratio > 0.25, 1.0, 10.0))
        least = np.where(accepted, _LEAST, _DAMPED)
        damping[active] = np.clip(damping[active] * change, least, _MOST)
        theta[active] = np.where(accepted[:, None], trial, at)
        now.put(active, tried.bent(moved, gradient).where(accepted, now.take(active)))
        is_flat = accepted & (np.abs(gain) <= unit) | (np.abs(moved).max(axis=1) <= _EPSILON)
        active = active[~is_flat]
        if not len(active):
            break
    return theta, now.value, now.mean


def doubled(
    theta: Float[np.ndarray, "b p"], value: Float[np.ndarray, " b"], n_starts: int, apart: float
) -> Bool[np.ndarray, " b"]:
    """Whether another search of the same latent is near, and further up; of equal ones the first counts as that."""
    own, values = theta.reshape(-1, n_starts, theta.shape[1]), value.reshape(-1, n_starts)
    is_near = np.abs(own[:, :, None] - own[:, None]).max(axis=-1) < apart
    is_first = np.tri(n_starts, k=-1, dtype=bool)  # [i, j]: j comes before i
    one, other = values[:, :, None], values[:, None]
    return (is_near & ((other > one) | (other == one) & is_first)).any(axis=-1).ravel()


def _step(
    gradient: Float[np.ndarray, "b p"],
    information: Float[np.ndarray, "b p p"],
    held: Bool[np.ndarray, "b p"],
    damping: Float[np.ndarray, " b"],
    longest: float,
) -> Float[np.ndarray, "b p"]:
    """The damped step of each search; none in coordinates that are held."""
    matrix = np.where(held[:, :, None] | held[:, None, :], 0.0, information)
    places = np.arange(gradient.shape[1])
    diagonal = information[:, places, places] * (1.0 + damping[:, None])
    matrix[:, places, places] = diagonal
    step = np.linalg.solve(matrix, np.where(held, 0.0, gradient)[..., None])[..., 0]
    return step * np.minimum(1.0, longest / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
