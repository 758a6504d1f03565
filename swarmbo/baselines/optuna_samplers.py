"""The samplers of Optuna."""

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


@kind("coordination", FUNCTION)
class OptunaGP(Settings, frozen=True, tag_field="kind", tag="optuna-gp"):
    """Optuna's ``GPSampler`` with its defaults, centralised.

    A Matern-5/2 process with a lengthscale per variable and inferred noise, log expected improvement. The study is told
    again for each decision: the points of the team's initial design, which take the place of Optuna's random ones,
    then all others in order; pending points are running trials, evaluations that failed are failed trials. So a
    decision is a function of history, points pending and seed. (A study that lives on starts its fit from the one
    before; here it starts from the defaults.)

    Source: Optuna (Akiba et al. 2019), its ``GPSampler``.

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination="optuna-gp")
        >>> team.coordination == sb.OptunaGP()
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """What the sampler suggests; the team's acquisition is not looked at.

        Raises:
            ConfigError: If Optuna, or PyTorch, is not installed.
        """
        peer_package("torch", "optuna-gp")  # Optuna asks for it late, and not in one line
        return _suggested(situation, "GPSampler", "optuna-gp")


@kind("coordination", FUNCTION)
class OptunaTPE(Settings, frozen=True, tag_field="kind", tag="optuna-tpe"):
    """Optuna's ``TPESampler``, the default of Optuna, centralised: Parzen estimators of good and of other points.

    Since version 5 it is multivariate for one objective. The study is told again for each decision, as for
    ``OptunaGP``.

    Source: Bergstra et al. 2011; Watanabe 2023; Optuna (Akiba et al. 2019).

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination="optuna-tpe")
        >>> team.coordination == sb.OptunaTPE()
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """What the sampler suggests; the team's acquisition is not looked at.

        Raises:
            ConfigError: If Optuna is not installed.
        """
        return _suggested(situation, "TPESampler", "optuna-tpe")


def _suggested(situation: JointSituation, sampler: str, kind: str) -> tuple[Float[np.ndarray, " n"], SolveReport]:
    optuna = peer_package("optuna", kind)
    seed = int(stream(situation.seed, "optuna baseline", evaluations=n_asked(situation)).integers(2**31))
    space = {variable: optuna.distributions.FloatDistribution(0.0, 1.0) for variable in situation.graph.variables}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # or a line for each study, of which each decision has one
    try:
        made = getattr(optuna.samplers, sampler)(seed=seed, n_startup_trials=situation.initial)
        study = optuna.create_study(direction="maximize", sampler=made)
        study.add_trials(_trials(situation, optuna, space))
        params = study.ask(space).params
    finally:
        optuna.logging.set_verbosity(verbosity)
    point = np.array([params[variable] for variable in situation.graph.variables])
    return np.clip(point, 0.0, 1.0), SolveReport(status="not_needed")


def _trials(situation: JointSituation, optuna: Any, space: dict[str, Any]) -> list[Any]:
    states = optuna.trial.TrialState
    state_of = {"complete": states.COMPLETE, "failed": states.FAIL, "running": states.RUNNING}
    return [
        optuna.trial.create_trial(
            state=state_of[status],
            params=dict(zip(space, point, strict=True)),
            distributions=space,
            value=total if status == "complete" else None,
        )
        for point, status, total in trials(situation)
    ]
