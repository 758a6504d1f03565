"""What BoTorch recommends."""

from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.baselines.peer_packages import peer_package
from swarmbo.baselines.seen_totals import known_totals, n_asked
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Settings, require

_KIND = "botorch-log-nei"


@kind("coordination", FUNCTION)
class BoTorchLogNEI(Settings, frozen=True, tag_field="kind", tag=_KIND):
    """BoTorch's single Gaussian process with its defaults, and log noisy expected improvement, centralised.

    ``SingleTaskGP``: lengthscale priors that grow with the dimension and a noise that is inferred, both log-normal;
    outcomes standardised; points in the unit cube (which is what ``Normalize`` makes of them, given the bounds). It is
    fitted anew for each decision. Improvement is over the unknown values at the points evaluated
    (``qLogNoisyExpectedImprovement``, with the baseline pruned), noise or not: the noise is inferred, so the best
    *outcome* is no bound for what was reached. Points pending are integrated over. Half of the points that starts are
    chosen from lie around the best evaluated ones (``sample_around_best``, an option that is off by default).

    Source: Ament et al. 2023 (log EI and its noisy form); Hvarfner et al. 2024 (priors); Papenmeier et al. 2025 (why
    starts around the best matter in tens of variables).

    Args:
        restarts: Starts of L-BFGS-B, >= 1.
        raw_samples: Points all over the cube that the starts are chosen from, >= ``restarts``; as many more lie around
            the best.

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination={"kind": "botorch-log-nei", "restarts": 4})
        >>> team.coordination == sb.BoTorchLogNEI(restarts=4)
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    restarts: Count = 10
    raw_samples: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "raw_samples", lambda v: v >= self.restarts, "an integer >= `restarts`")

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Where log noisy expected improvement is largest; the team's acquisition is not looked at.

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
            bounds = torch.stack([torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)])
            best, _ = peer_package("botorch.optim", _KIND).optimize_acqf(
                _improvement(model, X, pending if len(pending) else None),
                bounds=bounds,
                q=1,
                num_restarts=self.restarts,
                raw_samples=self.raw_samples,
                options={"seed": seed, "sample_around_best": True},
            )
        return np.clip(best.detach().numpy()[0], 0.0, 1.0), report


def _improvement(model: Any, X: Any, pending: Any) -> Any:
    functions = peer_package("botorch.acquisition.logei", _KIND)
    return functions.qLogNoisyExpectedImprovement(model, X_baseline=X, X_pending=pending, prune_baseline=True)


def _fitted(U: Float[np.ndarray, "t n"], y: Float[np.ndarray, " t"]) -> tuple[Any, Any]:
    torch, models = peer_package("torch", _KIND), peer_package("botorch.models", _KIND)
    standardise = peer_package("botorch.models.transforms.outcome", _KIND).Standardize(m=1)
    X = torch.tensor(U, dtype=torch.float64)
    model = models.SingleTaskGP(X, torch.tensor(y[:, None], dtype=torch.float64), outcome_transform=standardise)
    evidence = peer_package("gpytorch.mlls", _KIND).ExactMarginalLogLikelihood(model.likelihood, model)
    peer_package("botorch.fit", _KIND).fit_gpytorch_mll(evidence)
    return model, X
