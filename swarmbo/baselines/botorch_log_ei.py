"""The default of a widely used package."""

from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.joint_situation import JointSituation
from swarmbo.baselines.peer_packages import peer_package
from swarmbo.baselines.seen_totals import known_totals, n_asked
from swarmbo.records import SolveReport
from swarmbo.rng import stream
from swarmbo.settings import Settings, require

_KIND = "botorch-log-ei"


class BoTorchLogEI(Settings, frozen=True, tag_field="kind", tag=_KIND):
    """BoTorch's single Gaussian process with its defaults, and log expected improvement, centralised.

    ``SingleTaskGP`` with lengthscale priors that grow with the dimension, outcomes standardised, points in the unit
    cube (which is what ``Normalize`` makes of them), fitted anew for each decision. Without noise improvement is over
    the best outcome; with it, over the unknown values at the points evaluated (``qLogNoisyExpectedImprovement``, which
    BoTorch recommends there). Points pending are integrated over.

    Source: Ament et al. 2023 (log EI); Hvarfner et al. 2024 (priors).

    Args:
        is_noisy: Whether outcomes are noisy.
        restarts: Starts of L-BFGS-B, >= 1.
        raw_samples: Points that the starts are chosen from, >= ``restarts``.

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination={"kind": "botorch-log-ei", "restarts": 4})
        >>> team.coordination == sb.BoTorchLogEI(restarts=4)
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    is_noisy: bool = False
    restarts: int = 10
    raw_samples: int = 512

    def __post_init__(self) -> None:
        require(self, "restarts", lambda v: v >= 1, "an integer >= 1")
        require(self, "raw_samples", lambda v: v >= self.restarts, "an integer >= `restarts`")

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Where log expected improvement is largest; the team's acquisition is not looked at.

        Raises:
            ConfigError: If BoTorch is not installed.
        """
        n, report = situation.domain.n_dims, SolveReport(status="not_needed")
        U, y = known_totals(situation)
        rng = stream(situation.seed, "botorch baseline", evaluations=n_asked(situation))
        if not len(y):
            return rng.random(n), report
        torch, sampling = peer_package("torch", _KIND), peer_package("botorch.utils.sampling", _KIND)
        seed = int(rng.integers(2**31))
        pending = torch.tensor(situation.domain.to_unit(situation.out.points), dtype=torch.float64)
        with sampling.manual_seed(seed):
            model, X = _fitted(U, y)
            value = self._improvement(model, X, float(y.max()), pending if len(pending) else None)
            bounds = torch.stack([torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)])
            best, _ = peer_package("botorch.optim", _KIND).optimize_acqf(
                value,
                bounds=bounds,
                q=1,
                num_restarts=self.restarts,
                raw_samples=self.raw_samples,
                options={"seed": seed},
            )
        return np.clip(best.detach().numpy()[0], 0.0, 1.0), report

    def _improvement(self, model: Any, X: Any, best: float, pending: Any) -> Any:
        functions = peer_package("botorch.acquisition", _KIND)
        if self.is_noisy:
            return functions.qLogNoisyExpectedImprovement(model, X_baseline=X, X_pending=pending, prune_baseline=True)
        if pending is not None:
            return functions.qLogExpectedImprovement(model, best_f=best, X_pending=pending)
        return functions.LogExpectedImprovement(model, best_f=best)


def _fitted(U: Float[np.ndarray, "t n"], y: Float[np.ndarray, " t"]) -> tuple[Any, Any]:
    torch, models = peer_package("torch", _KIND), peer_package("botorch.models", _KIND)
    standardise = peer_package("botorch.models.transforms.outcome", _KIND).Standardize(m=1)
    X = torch.tensor(U, dtype=torch.float64)
    model = models.SingleTaskGP(X, torch.tensor(y[:, None], dtype=torch.float64), outcome_transform=standardise)
    evidence = peer_package("gpytorch.mlls", _KIND).ExactMarginalLogLikelihood(model.likelihood, model)
    peer_package("botorch.fit", _KIND).fit_gpytorch_mll(evidence)
    return model, X
