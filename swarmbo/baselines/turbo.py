"""Thompson sampling in one trust region."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

from swarmbo.baselines.peer_packages import peer_package
from swarmbo.baselines.seen_totals import n_asked, seen_totals
from swarmbo.baselines.sobol import sobol_point
from swarmbo.baselines.turbo_region import TurboRegion, perturbed, region_around
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import sobol, stream
from swarmbo.kernels import draw, kernel_matrix
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import AtOnce, Settings

_STEPS = 50  # of Adam, as the authors' program fits
_FEATURES = 2048


@kind("coordination", FUNCTION)
class Turbo1(Settings, frozen=True, tag_field="kind", tag="turbo-1"):
    """TuRBO-1, centralised, written from the paper; the Gaussian process is GPyTorch's.

    Matern-5/2 with one lengthscale per variable, outcomes standardised by median and standard deviation, lengthscales
    in [0.005, 2], signal variance in [0.05, 20], noise in [0.0005, 0.2], as in the authors' program. Joint draws at the
    candidates are made by Matheron's rule on 2,048 random features instead of by factorising their covariance. The
    region is replayed from the history.

    Source: Eriksson et al. 2019; Wilson et al. 2020, for the draws.

    Args:
        region: How the trust region reacts.
        candidates: Points the sample is compared at, >= 1; None: min(5000, max(2000, 200 n)).

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination="turbo-1")
        >>> team.coordination == sb.Turbo1()
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    region: TurboRegion = TurboRegion()
    candidates: AtOnce | None = None

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Where one draw from the posterior is largest among candidates; the acquisition is not looked at.

        Raises:
            ConfigError: If GPyTorch is not installed.
        """
        n, seed, report = situation.domain.n_dims, situation.seed, SolveReport(status="not_needed")
        U, y = seen_totals(situation)
        state = self.region.replay(y, 0, n, chosen=situation.chosen, steps=situation.steps())
        rng = stream(seed, "turbo baseline", evaluations=n_asked(situation))
        U, y = U[state.first :], y[state.first :]
        known = np.isfinite(y)
        if state.n_fresh > len(situation.pending):
            scrambling = stream(seed, "turbo baseline", "design", restart=state.restarts)
            return sobol_point(scrambling, n, len(y) + len(situation.pending)), report
        if not known.any():
            return rng.random(n), report
        U, y = U[known], y[known]
        spread = float(y.std())
        z = (y - np.median(y)) / (spread if spread > 1e-6 else 1.0)
        model = _fitted(U, z)
        centre = U[int(y.argmax())]
        low, high = region_around(centre, state.length, _lengthscales(model))
        count = self.candidates or min(5000, max(2000, 200 * n))
        sequence = sobol(count, n, rng)
        candidates = perturbed(rng, centre, low + sequence * (high - low), min(20.0 / n, 1.0))
        return candidates[int(_draw(rng, model, U, z, candidates).argmax())], report


def _fitted(U: Float[np.ndarray, "t n"], z: Float[np.ndarray, " t"]) -> Any:
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
    rng: np.random.Generator,
    model: Any,
    U: Float[np.ndarray, "t n"],
    z: Float[np.ndarray, " t"],
    candidates: Float[np.ndarray, "m n"],
) -> Float[np.ndarray, " m"]:
    """A joint draw from the posterior at candidates, by Matheron's rule."""
    lengthscales, outputscale = _lengthscales(model), model.covar_module.outputscale.item()
    noise, constant = model.likelihood.noise.item(), model.mean_module.constant.item()
    prior = draw(rng, "matern52", lengthscales, outputscale, _FEATURES)
    K = kernel_matrix("matern52", U, U, lengthscales, outputscale) + noise * np.eye(len(U))
    gap = z - constant - prior(U) - np.sqrt(noise) * rng.standard_normal(len(U))
    cross = kernel_matrix("matern52", candidates, U, lengthscales, outputscale)
    return constant + prior(candidates) + cross @ cho_solve(cho_factor(K, lower=True), gap)


def _lengthscales(model: Any) -> Float[np.ndarray, " n"]:
    return model.covar_module.base_kernel.lengthscale.detach().numpy().ravel()
