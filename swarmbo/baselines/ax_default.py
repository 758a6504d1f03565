"""The default of Ax."""

import logging
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.baselines.peer_packages import peer_package
from swarmbo.baselines.seen_totals import n_asked, trials
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Settings

_KIND = "ax"


@kind("coordination", FUNCTION)
class AxDefault(Settings, frozen=True, tag_field="kind", tag=_KIND):
    """Ax's ``Client`` with the generation strategy that it chooses by itself, centralised.

    Ax transforms and winsorises outcomes, fits a BoTorch process and maximises log noisy expected improvement from 20
    starts out of 1,024 points. The client is told again for each decision: the points of the team's initial design,
    which take the place of the centre of the box and Sobol points that Ax would begin with, then all others in order;
    pending points are running trials, evaluations that failed are failed trials. So a decision is a function of
    history, points pending and seed.

    Source: Ax (Olson et al. 2025), its ``Client``.

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination="ax")
        >>> team.coordination == sb.AxDefault()
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """What the client generates next; the team's acquisition is not looked at.

        Raises:
            ConfigError: If Ax is not installed.
        """
        handler = peer_package("ax.utils.common.logger", _KIND).ROOT_STREAM_HANDLER
        level, rng = handler.level, stream(situation.seed, "ax baseline", evaluations=n_asked(situation))
        handler.setLevel(logging.ERROR)  # or some lines for each trial that is told again
        try:
            params = _generated(situation, int(rng.integers(2**31)))
        finally:
            handler.setLevel(level)
        return np.clip(params, 0.0, 1.0), SolveReport(status="not_needed")


def _generated(situation: JointSituation, seed: int) -> list[float]:
    api, configs = peer_package("ax.api.client", _KIND), peer_package("ax.api.configs", _KIND)
    names = [f"x{j}" for j in range(situation.domain.n_dims)]  # Ax reads names as Python
    client = api.Client(random_seed=seed)
    sides = [configs.RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in names]
    client.configure_experiment(parameters=sides)
    client.configure_optimization(objective="total")
    client.configure_generation_strategy(
        initialization_budget=situation.initial,
        initialization_random_seed=seed,
        initialize_with_center=False,
        allow_exceeding_initialization_budget=True,  # more Sobol points while none of them is told, not an error
    )
    _tell(client, situation, names)
    ((_, params),) = client.get_next_trials(max_trials=1).items()
    return [params[name] for name in names]


def _tell(client: Any, situation: JointSituation, names: list[str]) -> None:
    for point, status, total in trials(situation):
        trial = client.attach_trial(dict(zip(names, point, strict=True)))
        if status == "complete":
            client.complete_trial(trial, raw_data={"total": total})
        elif status == "failed":
            client.mark_trial_failed(trial)
