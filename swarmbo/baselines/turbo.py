"""Thompson sampling in one trust region (TuRBO-1), replayed from outcomes.

Source: Eriksson, Pearce, Gardner, Turner & Poloczek 2019 (Scalable global optimization via local Bayesian
optimization), section 2 and supplement; the threshold of an improvement is that of their program.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve

from swarmbo.baselines import one_outcome
from swarmbo.baselines.peers import peer_package
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import sobol, stream
from swarmbo.kernels import draw, kernel_matrix
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import AtOnce, Count, Positive, Settings, require

_GAIN = 1e-3  # an improvement is larger than this share of the best outcome's size

Point = Float[np.ndarray, " n"]
Points = Float[np.ndarray, "m n"]
Outcomes = Float[np.ndarray, " t"]
Mask = Bool[np.ndarray, " t"]


class TurboRegion(Settings, frozen=True):
    """Settings of the trust region; lengths are shares of the domain's sides.

    Args:
        initial: First length of the region's sides, > 0.
        smallest: Length below which the region restarts, > 0.
        largest: Largest length of the region's sides.
        successes: Number of improvements in a row, >= 1, after which the length doubles.
        failures: Number of evaluations in a row without an improvement, >= 1, after which the length is halved. None:
            the larger of 4 and the number of variables, as in the authors' program for single evaluations.
        fresh: Number of points of the new design after a restart, >= 1.
    """

    initial: float = 0.8
    smallest: Positive = 2.0**-7
    largest: float = 1.6
    successes: Count = 3
    failures: Count | None = None
    fresh: Count = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "initial", lambda v: v >= self.smallest, "a number >= `smallest`")
        require(self, "largest", lambda v: v >= self.initial, "a number >= `initial`")

    def replay(self, outcomes: Outcomes, chosen: Mask, steps: Mask, n: int) -> "RegionState":
        """State of the region after outcomes in the order of arrival; NaN (failed) is no improvement. Points that were
        not ``chosen`` are known, but do not count; ``steps`` masks chosen points with a result.
        """
        tolerance = self.failures or max(4, n)
        first, restarts, design = 0, 0, 0
        length, successes, failures, best = self.initial, 0, 0, -math.inf
        n_chosen = 0  # since the search last started over
        for number, outcome in enumerate(outcomes):
            is_known = bool(np.isfinite(outcome))
            n_chosen += int(chosen[number])
            if steps[number] and n_chosen > design:
                improved = is_known and (math.isinf(best) or outcome > best + _GAIN * abs(best))
                successes, failures = (successes + 1, 0) if improved else (0, failures + 1)
                if successes == self.successes:
                    length, successes = min(2.0 * length, self.largest), 0
                elif failures == tolerance:
                    length, failures = length / 2.0, 0
            best = max(best, float(outcome)) if is_known else best
            if length < self.smallest:
                first, restarts, design = number + 1, restarts + 1, self.fresh
                length, successes, failures, best, n_chosen = self.initial, 0, 0, -math.inf, 0
        return RegionState(first, restarts, length, max(design - n_chosen, 0))


@dataclass(frozen=True)
class RegionState:
    """State of a trust region: the first evaluation that counts, and the number of points of its design to come."""

    first: int
    restarts: int
    length: float
    n_fresh: int


def region_around(centre: Point, length: float, lengthscales: Point) -> tuple[Point, Point]:
    """Corners of the region in the unit cube: sides like the lengthscales, with ``length`` as geometric mean."""
    sides = length * np.exp(np.log(lengthscales) - np.log(lengthscales).mean())
    return np.clip(centre - sides / 2.0, 0.0, 1.0), np.clip(centre + sides / 2.0, 0.0, 1.0)


def perturbed(rng: np.random.Generator, centre: Point, points: Points, probability: float) -> Points:
    """Candidates: the centre, with each coordinate replaced by a point's with a probability; at least one is."""
    m, n = points.shape
    replaced = rng.random((m, n)) <= probability
    untouched = np.flatnonzero(~replaced.any(axis=1))
    replaced[untouched, rng.integers(n, size=len(untouched))] = True
    return np.where(replaced, points, centre)


_STEPS = 50  # of Adam, as in the authors' program
_FEATURES = 2048


@kind("coordination", FUNCTION)
class Turbo1(Settings, frozen=True, tag_field="kind", tag="turbo-1"):
    """TuRBO-1, centralised: an implementation of the paper with a Gaussian process of GPyTorch.

    The authors' program has Latin hypercube designs, at most 100 candidates per variable, and draws with noise.
    The kernel is Matern-5/2 with one lengthscale per variable; outcomes are standardised by median and standard
    deviation. As in the authors' program, lengthscales are in [0.005, 2], the signal variance in [0.05, 20] and the
    noise variance in [0.0005, 0.2]. Joint draws at the candidates use Matheron's rule on 2,048 random features, not a
    factorised covariance. The trust region is recomputed from the history. Needs the extra ``peers``.

    Source: Eriksson et al. 2019; Wilson et al. 2020, for the draws.

    Args:
        region: Settings of the trust region.
        candidates: Number of points at which a draw is evaluated, >= 1; None: min(5000, max(2000, 200 x variables)).

    Example:
        >>> import swarmbo as sb
        >>> sb.Team(None, {"x": (0.0, 1.0)}, coordination="turbo-1").coordination == sb.Turbo1()
        True
    """

    region: TurboRegion = TurboRegion()
    candidates: AtOnce | None = None

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Point, SolveReport]:
        """Candidate (n,) of the unit cube that maximises one draw of the posterior; ``acquisition`` is not used."""
        n, seed, report = situation.domain.n_dims, situation.seed, SolveReport(status="not_needed")
        U, y = one_outcome.seen_totals(situation)
        state = self.region.replay(y, situation.chosen, situation.steps(), n)
        rng = stream(seed, "turbo baseline", evaluations=one_outcome.n_asked(situation))
        U, y = U[state.first :], y[state.first :]
        is_known = np.isfinite(y)
        if state.n_fresh > len(situation.pending):
            scrambling = stream(seed, "turbo baseline", "design", restart=state.restarts)
            return sobol(1, n, scrambling, skip=len(y) + len(situation.pending))[0], report
        if not is_known.any():
            return rng.random(n), report
        U, y = U[is_known], y[is_known]
        spread = float(y.std())
        z = (y - np.median(y)) / (spread if spread > 64.0 * np.finfo(float).eps * np.abs(y).max() else 1.0)
        model = _fitted(U, z)
        centre = U[int(y.argmax())]
        low, high = region_around(centre, state.length, _lengthscales(model))
        sequence = sobol(self.candidates or min(5000, max(2000, 200 * n)), n, rng)
        candidates = perturbed(rng, centre, low + sequence * (high - low), min(20.0 / n, 1.0))
        return candidates[int(_draw(rng, model, U, z, candidates).argmax())], report


def _fitted(U: Float[np.ndarray, "t n"], z: Outcomes) -> Any:
    gpytorch, torch = peer_package("gpytorch", "turbo-1"), peer_package("torch", "turbo-1")
    interval = gpytorch.constraints.Interval
    X, outcomes = torch.tensor(U, dtype=torch.float64), torch.tensor(z, dtype=torch.float64)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, outcomes, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(
                nu=2.5, ard_num_dims=X.shape[1], lengthscale_constraint=interval(0.005, 2.0)
            )
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel, outputscale_constraint=interval(0.05, 20.0))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=interval(5e-4, 0.2)).double()
    model = Model(likelihood).double()
    likelihood.noise = 0.005
    model.covar_module.outputscale = 1.0
    model.covar_module.base_kernel.lengthscale = 0.5
    model.train()
    likelihood.train()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        (-evidence(model(X), outcomes)).backward()
        optimiser.step()
    return model


def _draw(
    rng: np.random.Generator, model: Any, U: Float[np.ndarray, "t n"], z: Outcomes, candidates: Points
) -> Float[np.ndarray, " m"]:
    lengthscales, outputscale = _lengthscales(model), model.covar_module.outputscale.item()
    noise, constant = model.likelihood.noise.item(), model.mean_module.constant.item()
    prior = draw(rng, "matern52", lengthscales, outputscale, _FEATURES)
    K = kernel_matrix("matern52", U, U, lengthscales, outputscale) + noise * np.eye(len(U))
    gap = z - constant - prior(U) - np.sqrt(noise) * rng.standard_normal(len(U))
    cross = kernel_matrix("matern52", candidates, U, lengthscales, outputscale)
    return constant + prior(candidates) + cross @ cho_solve(cho_factor(K, lower=True), gap)


def _lengthscales(model: Any) -> Point:
    return model.covar_module.base_kernel.lengthscale.detach().numpy().ravel()
