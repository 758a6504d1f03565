"""Limits of a single agent's knowledge: settings that it refuses."""

from swarmbo.baselines import Random, Sobol
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.coordination.participant import ContinuousCoordination, Coordination
from swarmbo.deciding.own_rows import shares_outcomes
from swarmbo.deciding.places import plans_by_steps, weighs_nothing
from swarmbo.deciding.setup import Maximiser, Setup, Solver
from swarmbo.errors import ConfigError


def require_own(setup: Setup) -> None:
    """Refuse settings that need more than one agent's knowledge."""
    if setup.problem.is_field:
        _require_field(setup)
        return
    if setup.problem.ranges:
        raise ConfigError(
            "got limits on measured quantities, which an agent does not learn; wanted a Team", at="$.limits"
        )
    coordination, belief = setup.coordination, setup.belief
    everything = shares_outcomes(setup.problem)
    if setup.near is not None and setup.near.safe is not None and not everything:
        raise ConfigError(
            "got it with outcomes per factor, of which an agent has its own only; wanted outcomes = 'total', or a Team",
            at="$.safe",
        )
    if not isinstance(coordination, Maximiser):
        if not everything and not isinstance(coordination, Sobol | Random):
            raise ConfigError(
                f"got {type(coordination).__name__}, which needs all outcomes; wanted a coordination method "
                "such as 'admm', or outcomes = 'total'",
                at="$.coordination",
            )
    elif not isinstance(coordination, ContinuousCoordination):
        raise _knows_no_agents(coordination, "'admm'")
    if not everything and not isinstance(belief, AdditiveGPSettings | EnsembleSettings):
        raise ConfigError(
            f"got {type(belief).__name__}, which needs all outcomes; wanted 'additive', 'ensemble' or outcomes = "
            "'total'",
            at="$.belief",
        )


def _require_field(setup: Setup) -> None:
    if isinstance(setup.belief, FusedSettings):
        _require_shares(setup)
    if isinstance(setup.coordination, Solver) and not isinstance(setup.coordination, Coordination):
        raise _knows_no_agents(setup.coordination, "'max-sum'")
    setup.rule().check_world(setup.problem.level)


def _require_shares(setup: Setup) -> None:
    """Refuse settings that need all agents' beliefs, if each has a local belief."""
    acquisition, coordination = setup.rule(), setup.coordination
    if isinstance(coordination, Solver) and not acquisition.splits:
        raise ConfigError(
            f"got {type(acquisition).__name__} with belief 'fused': its local_problem(situation) looks at what all "
            "agents believe; wanted a ChainAcquisition with utility(situation, n_agents), or a shared belief",
            at="$.acquisition",
        )
    if not (isinstance(coordination, Solver) or weighs_nothing(coordination) or plans_by_steps(coordination)):
        raise ConfigError(
            f"got {type(coordination).__name__} with belief 'fused': it needs the beliefs of all agents; wanted a "
            "coordination method such as 'max-sum', or a belief that agents share",
            at="$.coordination",
        )


def _knows_no_agents(coordination: object, wanted: str) -> ConfigError:
    got = type(coordination).__name__
    return ConfigError(f"got {got}, which knows no agents; wanted {wanted}", at="$.coordination")
