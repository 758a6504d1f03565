"""Evidence of many latents, or sums of a few, by one compiled pass per theta, and its maximum. Import it late.

``gp.evidence`` does the same for one large matrix of outcomes. Here, many small matrices are evaluated together. A pass
also gives the average information, the mean of the observed and the expected information about theta (Gilmour,
Thompson & Cullis 1995),

    A_ij = 1/2 αᵀ K_i K⁻¹ K_j α,        K_i = dK / dθ_i,  α = K⁻¹ (z - mean),

which needs only products with vectors and is never indefinite. With the prior's precision, it gives Newton-like steps:
a search takes a handful of evaluations, while a search that learns the curvature from gradients takes twenty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import pdist

from swarmbo.belief.gp import stack_evaluation as evaluation
from swarmbo.belief.gp.cholesky import EPSILON, NO_COVARIANCE
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.kernels import KernelName, correlation_and_slope
from swarmbo.kernels.compiled import CODES, GIVEN
from swarmbo.kernels.threads import in_threads

_MAX_JITTER = 0.1  # largest share of its diagonal that is added to a singular matrix
_PAIRS = 2**18  # largest number of pairs of outcomes whose correlations are passed to compiled code at once
_DAMPING, _MIN_DAMPING, _MAX_DAMPING = 0.1, 1e-8, 1e8  # initial, smallest and largest damping of steps
_SMALLEST_SHARE = 1e-4  # of the predicted gain for an accepted step, and of the curvature for its BFGS correction
PerSearch = Float[np.ndarray, " b"]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Log posterior density of b thetas, gradient, information with the prior's precision, and profiled means."""

    value: PerSearch
    gradient: Float[np.ndarray, "b p"]
    information: Float[np.ndarray, "b p p"]
    mean: PerSearch

    def with_secant_curvature(self, moved: Float[np.ndarray, "b p"], before: Float[np.ndarray, "b p"]) -> "Evaluated":
        """Evaluation whose information matches the change of the gradient along the last step, by a BFGS correction.

        Without this correction, steps overshoot along ridges. Source: Nocedal & Wright 2006, eq. 6.19.
        """
        bend = before - self.gradient
        along = (self.information @ moved[..., None])[..., 0]
        expected, seen = (moved * along).sum(axis=1), (moved * bend).sum(axis=1)
        is_bowl = seen > _SMALLEST_SHARE * expected
        added = bend[:, :, None] * bend[:, None, :] / np.where(is_bowl, seen, 1.0)[:, None, None]
        removed = along[:, :, None] * along[:, None, :] / np.where(is_bowl, expected, 1.0)[:, None, None]
        information = np.where(is_bowl[:, None, None], self.information - removed + added, self.information)
        return Evaluated(self.value, self.gradient, information, self.mean)

    def put(self, rows: Int[np.ndarray, " s"], other: "Evaluated") -> None:
        """Overwrite some rows."""
        self.value[rows], self.gradient[rows] = other.value, other.gradient
        self.information[rows], self.mean[rows] = other.information, other.mean

    def take(self, rows: Int[np.ndarray, " s"]) -> "Evaluated":
        """Evaluation of some rows."""
        return Evaluated(self.value[rows], self.gradient[rows], self.information[rows], self.mean[rows])


class StackedLogPosterior:
    """Log posterior densities of the hyper-parameters of g latents, or of g sums, each given t outcomes of its own.
    Sums have swarmbo's kernels and no time axis; ``known_noise`` is NaN where theta contains the noise. Source:
    Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Gilmour et al. 1995 for the average information.
    """

    def __init__(
        self,
        priors: Sequence[HyperparameterPrior],
        kernel: KernelName,
        U: Float[np.ndarray, "g t a"],
        z: Float[np.ndarray, "g t"],
        known_noise: Float[np.ndarray, "g t"],
        rounds: Float[np.ndarray, "g t"],
    ) -> None:
        self.priors, self.kernel, self._U, self._rounds = priors, kernel, U, rounds
        self.z, self._known_noise = np.ascontiguousarray(z), np.ascontiguousarray(known_noise)
        self._centre = np.array([prior.centre for prior in priors])
        self._precision = np.array([prior.precision for prior in priors])
        self.bounds = np.array([prior.bounds for prior in priors])
        self._code = CODES.get(kernel, GIVEN) if priors[0].time_kernel is None else GIVEN
        if self._code == GIVEN:  # pairs are computed column by column, and needed row by row
            t = z.shape[1]
            places = np.zeros((t, t), dtype=np.int64)
            places[np.triu_indices(t, 1)] = np.arange(t * (t - 1) // 2)
            self._order = places.T[np.tril_indices(t, -1)]
        self._Ut, self._ends = np.ascontiguousarray(np.swapaxes(U, 1, 2)), np.cumsum(priors[0].sizes)
        q, a, rest = priors[0].n_lengthscales, U.shape[2], len(priors[0].centre) - priors[0].n_lengthscales
        lengths = np.ones((a, 1)) if priors[0].is_shared else np.eye(a)
        # derivatives of the logarithms with respect to theta
        self._of_theta = np.block([[lengths, np.zeros((a, rest))], [np.zeros((rest, q)), np.eye(rest)]])

    def on_subset(self, rows: slice | Int[np.ndarray, "g m"]) -> "StackedLogPosterior":
        """Log posterior given a subset of outcomes: a slice for all, or rows (g, m) for each."""
        latents = slice(None) if isinstance(rows, slice) else np.arange(len(self.z))[:, None]
        arrays = (values[latents, rows] for values in (self._U, self.z, self._known_noise, self._rounds))
        return StackedLogPosterior(self.priors, self.kernel, *arrays)

    def __call__(self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]) -> Evaluated:
        """Log posterior of thetas (b, p), each of the latent or sum ``which``."""
        evaluated, is_sound = self._evaluated(theta, which, np.zeros(len(theta)))
        singular, added = np.flatnonzero(~is_sound), self.z.shape[1] * EPSILON
        while len(singular):
            if added > _MAX_JITTER:
                raise ValueError(NO_COVARIANCE)
            again, is_sound = self._evaluated(theta[singular], which[singular], np.full(len(singular), added))
            evaluated.put(singular[is_sound], again.take(np.flatnonzero(is_sound)))
            singular, added = singular[~is_sound], 10.0 * added
        return evaluated

    def _evaluated(
        self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"], added: PerSearch
    ) -> tuple[Evaluated, Bool[np.ndarray, " b"]]:
        """Log posterior with the share ``added`` on the diagonals, and True where the matrix was positive definite."""
        (b, _), (c, _), (_, a, t), by = theta.shape, self._of_theta.shape, self._Ut.shape, self._of_theta
        logs = theta @ by.T
        logs[:, :a] += self.priors[0].base
        value, gradient, information = np.zeros(b), np.zeros((b, c)), np.zeros((b, c, c))
        mean, is_sound = np.zeros(b), np.zeros(b, dtype=bool)

        def put(rows: slice) -> None:
            arguments = (
                self._code, self._ends, self._Ut, self.z, self._known_noise, self._given(logs[rows], which[rows]),
                logs[rows], which[rows], added[rows], value[rows], gradient[rows], information[rows], mean[rows],
                is_sound[rows],
            )  # fmt: skip
            if t < evaluation.MANY:
                evaluation.evaluate(*arguments, self._new_workspace(), evaluation.ALL)
                return
            work = self._workspace if b == 1 else self._new_workspace()
            for row in range(len(arguments[6])):
                evaluation.evaluate_one(*arguments[:5], *(own[row : row + 1] for own in arguments[5:]), work=work)

        if self._code == GIVEN:
            size = max(1, _PAIRS // t**2)
            for start in range(0, b, size):
                put(slice(start, start + size))
        else:
            in_threads(b, put)
        if self.priors[0].is_shared:  # otherwise theta consists of these logarithms, in this order
            gradient, information = gradient @ by, by.T @ information @ by
        away, precision = theta - self._centre[which], self._precision[which]
        weighted = (precision @ away[..., None])[..., 0]
        value -= 0.5 * (away * weighted).sum(axis=1)
        return Evaluated(value, gradient - weighted, information + precision, mean), is_sound

    def _new_workspace(self) -> evaluation.Workspace:
        (_, a, t), k = self._Ut.shape, len(self._ends)
        return evaluation.workspace_for(k, t, len(self._of_theta), a)

    @cached_property
    def _workspace(self) -> evaluation.Workspace:
        return self._new_workspace()

    def _given(self, logs: Float[np.ndarray, "b c"], which: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b 3 _n"]:
        """Correlations of pairs of outcomes, their slopes, and their derivatives in the log time lengthscale."""
        if self._code != GIVEN:
            return np.zeros((len(logs), 3, 0))
        a, t = self._U.shape[2], self.z.shape[1]
        out = np.zeros((len(logs), 3, t * (t - 1) // 2))
        scaled = self._U[which] / np.exp(logs[:, None, :a])
        r = np.array([pdist(points) for points in scaled]).reshape(len(logs), -1)
        out[:, 0], out[:, 1] = correlation_and_slope(self.kernel, r)
        if (time_kernel := self.priors[0].time_kernel) is not None:
            apart = np.array([pdist(own[:, None]) for own in self._rounds[which]]).reshape(len(logs), -1)
            apart /= np.exp(logs[:, a : a + 1])
            left, fall = correlation_and_slope(time_kernel, apart)
            out[:, 2] = out[:, 0] * fall * apart**2
            out[:, :2] *= left[:, None]
        return np.ascontiguousarray(out[:, :, self._order])


def maximise_stacked(
    log_posterior: StackedLogPosterior,
    starts: Float[np.ndarray, "b p"],
    which: Int[np.ndarray, " b"],
    max_iterations: int,
    tolerance: float = 1e-6,
    *,
    longest: float = 1.0,
    apart: float = 0.0,
    evaluated: Evaluated | None = None,
) -> tuple[Float[np.ndarray, "b p"], PerSearch, PerSearch]:
    """Parallel local searches: damped Newton steps within bounds. The result of one does not depend on the others.

    A search ends when the gain that its undamped step promises, or that of an accepted one, is below ``tolerance``,
    relative to the value. No step is longer than ``longest`` in natural logarithms. If two searches of a latent are
    closer than ``apart`` in all coordinates, only the better one continues. Starts of one latent (``which``) are
    consecutive, the same number for each; ``evaluated`` is the evaluation of all starts, if known. Returns thetas, the
    log posterior there, and the profiled means.

    Source: Nocedal & Wright 2006, section 4.1 for the damping, 16.7 for projection on bounds.
    """
    low, high = log_posterior.bounds[which, :, 0], log_posterior.bounds[which, :, 1]
    theta = np.clip(starts, low, high)
    current, damping = log_posterior(theta, which) if evaluated is None else evaluated, np.full(len(theta), _DAMPING)
    active, n_starts = np.arange(len(theta)), len(theta) // len(set(which.tolist()))
    for _ in range(max_iterations):
        if apart > 0.0 and n_starts > 1:
            active = active[~is_duplicate(theta, current.value, n_starts, apart)[active]]
        at, gradient, information = theta[active], current.gradient[active], current.information[active]
        lowest, highest = low[active], high[active]
        is_held = ((at <= lowest) & (gradient < 0.0)) | ((at >= highest) & (gradient > 0.0))
        unit = tolerance * np.maximum(np.abs(current.value[active]), 1.0)
        undamped, step = _steps(gradient, information, is_held, damping[active], longest)
        continues = 0.5 * (undamped * gradient).sum(axis=1) > unit
        if not continues.any():
            break
        trial, active = np.clip(at + step, lowest, highest), active[continues]
        at, unit, gradient, information, trial = (rows[continues] for rows in (at, unit, gradient, information, trial))
        moved = trial - at
        promised = (gradient * moved).sum(axis=1) - 0.5 * np.einsum("bi,bij,bj->b", moved, information, moved)
        tried = log_posterior(trial, which[active])
        gain = tried.value - current.value[active]
        accepted = gain > _SMALLEST_SHARE * np.maximum(promised, 0.0)
        ratio = gain / np.where(promised > 0.0, promised, np.inf)
        change = np.where(ratio > 0.75, 0.1, np.where(ratio > 0.25, 1.0, 10.0))
        least = np.where(accepted, _MIN_DAMPING, _DAMPING)
        damping[active] = np.clip(damping[active] * change, least, _MAX_DAMPING)
        improved = np.flatnonzero(accepted)
        theta[active[improved]] = trial[improved]
        current.put(active[improved], tried.take(improved).with_secant_curvature(moved[improved], gradient[improved]))
        is_flat = accepted & (np.abs(gain) <= unit) | (np.abs(moved).max(axis=1) <= EPSILON)
        active = active[~is_flat]
        if not len(active):
            break
    return theta, current.value, current.mean


def is_duplicate(
    theta: Float[np.ndarray, "b p"], value: PerSearch, n_starts: int, apart: float
) -> Bool[np.ndarray, " b"]:
    """Mask of searches that are near a better search of the same latent; of equal searches, the first is better."""
    own, values = theta.reshape(-1, n_starts, theta.shape[1]), value.reshape(-1, n_starts)
    is_near = np.abs(own[:, :, None] - own[:, None]).max(axis=-1) < apart
    is_first = np.tri(n_starts, k=-1, dtype=bool)  # [i, j]: j comes before i
    one, other = values[:, :, None], values[:, None]
    return (is_near & ((other > one) | (other == one) & is_first)).any(axis=-1).ravel()


def _steps(
    gradient: Float[np.ndarray, "b p"],
    information: Float[np.ndarray, "b p p"],
    held: Bool[np.ndarray, "b p"],
    damping: PerSearch,
    longest: float,
) -> Float[np.ndarray, "2 b p"]:
    """Undamped and damped step of each search; 0 in coordinates held at a bound."""
    places = np.arange(gradient.shape[1])
    matrix = np.repeat(np.where(held[:, :, None] | held[:, None, :], 0.0, information)[None], 2, axis=0)
    matrix[0][:, places, places] = diagonal = information[:, places, places]
    matrix[1][:, places, places] = diagonal * (1.0 + damping[:, None])
    step = np.linalg.solve(matrix, np.where(held, 0.0, gradient)[..., None])[..., 0]
    return step * np.minimum(1.0, longest / np.maximum(np.abs(step).max(axis=2), 1e-300))[..., None]
