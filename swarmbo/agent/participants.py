"""Who takes part in a decision by a deadline, and what is said for those who do not."""

from collections.abc import Collection

import msgspec

from swarmbo.belief.fusion import FusedSettings
from swarmbo.deciding.own_rows import UNHEARD, OwnRow, OwnRows, shares_outcomes
from swarmbo.deciding.setup import Setup
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem


class Participants(msgspec.Struct, frozen=True):
    """Who takes part in a decision; all of them have the same.

    Who is absent says nothing and hears nothing: in a field it chooses nothing, of a function its variables stand where
    all know that they stood at first. What it was told since the last decision, and had no time to say, is said here in
    its place, so that nothing of it is lost, or counted twice.

    Args:
        number: Of the decision: larger than those of all before, be they given up.
        members: Who takes part, in the problem's order; at least one.
        said: What absent agents were told. Of outcomes that nobody else learns only that they came; see ``public``.
        over: Queries of which nothing more will come: whoever is absent was not heard of.
    """

    number: int
    members: tuple[str, ...]
    said: dict[str, OwnRows] = {}
    over: tuple[str, ...] = ()

    def checked(self, name: str, problem: Problem) -> "Participants":
        """Itself, if it can be one of an agent's.

        Args:
            name: Of the agent.
            problem: What all work on.

        Raises:
            ConfigError: If the agent is no member, or somebody is unknown, named twice, or out of order.
        """
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
                    raise ConfigError(f"got {list(row.factors)} and {list(row.place)} of {agent!r}; wanted its own", at)
        return self

    def absent(self, agents: Collection[str]) -> dict[str, OwnRows]:
        """What is said for those of some agents that take no part."""
        return {agent: self.said.get(agent, OwnRows()) for agent in agents if agent not in self.members}


def learns_alike(setup: Setup) -> bool:
    """Say whether agents tell one another outcomes: totals, and in a field those of a belief that all share."""
    if setup.problem.is_field:
        return not isinstance(setup.belief, FusedSettings)
    return shares_outcomes(setup.problem)


def public(rows: OwnRows, setup: Setup) -> OwnRows:
    """The part of an agent's rows that others may be told: of outcomes that stay with it only that they came.

    Args:
        rows: What the agent was told.
        setup: Of all agents.
    """
    if learns_alike(setup):
        return rows
    masked = _without_place_outcomes if setup.problem.is_field else _masked
    return OwnRows({name: masked(row) for name, row in rows.told.items()}, tuple(map(masked, rows.attached)))


def _masked(row: OwnRow) -> OwnRow:
    came = {factor: None if y is None else UNHEARD for factor, y in row.factors.items()}
    return msgspec.structs.replace(row, factors=came, noise={})


def _without_place_outcomes(row: OwnRow) -> OwnRow:
    """Of a measurement in a field others learn where it was made, and not that it failed."""
    stops = tuple(stop.without_outcome() for stop in row.on_the_way)
    return msgspec.structs.replace(row, factors=dict.fromkeys(row.factors, UNHEARD), noise={}, on_the_way=stops)
