"""Participants of a decision by a deadline, data of absent agents, and settings that a single agent refuses."""

from collections.abc import Collection

import msgspec

from swarmbo.baselines import Random, Sobol
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.coordination.participant import ContinuousCoordination, Coordination
from swarmbo.deciding import own_rows
from swarmbo.deciding.places import plans_by_steps, weighs_nothing
from swarmbo.deciding.setup import Maximiser, Setup, Solver
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem


class Participants(msgspec.Struct, frozen=True):
    """Participants of a decision by a deadline, alike for all. ``said`` has absent agents' public data since the last
    decision, so that nothing is lost or counted twice; ``over`` are queries without further outcomes.
    """

    number: int
    members: tuple[str, ...]
    said: dict[str, own_rows.OwnRows] = {}
    over: tuple[str, ...] = ()

    def checked(self, name: str, problem: Problem) -> "Participants":
        """Return itself if it fits the agent and the problem."""
        at = "$.participants"
        if not 0 < self.number < 2**31:
            raise ConfigError(f"got decision {self.number}; wanted 1 to {2**31 - 1}", at=at)
        if self.members != tuple(agent for agent in problem.agents if agent in self.members):
            raise ConfigError(f"got {list(self.members)}; wanted some of {list(problem.agents)}, in this order", at=at)
        if name not in self.members:
            raise ConfigError(f"got {list(self.members)}; wanted {name!r} among them", at=at)
        if strange := [agent for agent in self.said if agent in self.members or agent not in problem.agents]:
            raise ConfigError(f"got what {strange[0]!r} received; wanted what absent agents received", at=at)
        for agent, rows in self.said.items():
            own = {*problem.graph.factors_owned_by(agent)}, {*problem.graph.variables_owned_by(agent)}
            for row in (*rows.told.values(), *rows.attached):
                if not own[0].issuperset(row.factors) or not own[1].issuperset(row.place):
                    raise ConfigError(
                        f"got {list(row.factors)} and {list(row.place)} of {agent!r}; wanted its parts", at
                    )
        return self

    def absent(self, agents: Collection[str]) -> dict[str, own_rows.OwnRows]:
        """Data of those of some agents that do not take part."""
        return {agent: self.said.get(agent, own_rows.OwnRows()) for agent in agents if agent not in self.members}


def learns_alike(setup: Setup) -> bool:
    """True if agents report outcomes to one another: totals, and in a field those of a shared belief."""
    if setup.problem.is_field:
        return not isinstance(setup.belief, FusedSettings)
    return own_rows.shares_outcomes(setup.problem)


def public(rows: own_rows.OwnRows, setup: Setup) -> own_rows.OwnRows:
    """The part of an agent's rows that others may know: private outcomes are masked."""
    if learns_alike(setup):
        return rows
    masked = _without_place_outcomes if setup.problem.is_field else _masked
    return own_rows.OwnRows({name: masked(row) for name, row in rows.told.items()}, tuple(map(masked, rows.attached)))


def _masked(row: own_rows.OwnRow) -> own_rows.OwnRow:
    came = {factor: None if y is None else own_rows.UNHEARD for factor, y in row.factors.items()}
    return msgspec.structs.replace(row, factors=came, noise={})


def _without_place_outcomes(row: own_rows.OwnRow) -> own_rows.OwnRow:
    """Mask a measurement in a field: others learn its location, and not that it failed."""
    stops = tuple(stop.without_outcome() for stop in row.on_the_way)
    return msgspec.structs.replace(
        row, factors=dict.fromkeys(row.factors, own_rows.UNHEARD), noise={}, on_the_way=stops
    )


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
    everything = own_rows.shares_outcomes(setup.problem)
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
