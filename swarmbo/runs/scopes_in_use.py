"""Which scopes a team modelled a function by, where it learned or drew them, read from the record of a round."""

from collections.abc import Sequence

import msgspec

from swarmbo.belief.model import Learned
from swarmbo.belief.model.groupings import graph_of_groups
from swarmbo.graph import FactorGraph
from swarmbo.records import RoundRecord
from swarmbo.runs.world_record import WorldRecord


class ScopeInUse(msgspec.Struct, frozen=True):
    """A scope that a team learned or drew.

    Args:
        variables: Its variables.
        share: Its part of the prior variance of the sum as fitted, from 0 to 1.
    """

    variables: list[str]
    share: float


def scopes_in_use(record: RoundRecord, world: WorldRecord) -> list[ScopeInUse]:
    """The scopes that the belief had after a round, with which the next point is chosen.

    Args:
        record: Of the round.
        world: Of the run.

    Returns:
        In the order of the factors; none where the belief has the team's own graph, or models all variables as a whole
        because that fits better.
    """
    if not world.variables or record.hyperparameters is None:
        return []
    learned = msgspec.convert(record.hyperparameters, Learned)
    groups = _groups(learned, _variables(world))
    outputscales = learned.hyperparameters.in_one_unit().outputscales
    if len(groups) != len(outputscales):  # no groups, or an acquisition of the user's own with other factors
        return []
    pairs = zip(groups, outputscales, strict=True)
    return [ScopeInUse(list(group), variance / sum(outputscales)) for group, variance in pairs]


def graph_in_use(record: RoundRecord, world: WorldRecord) -> FactorGraph | None:
    """The same as a graph with the world's owners; None where there are none.

    Args:
        record: Of the round.
        world: Of the run.
    """
    scopes, variables = scopes_in_use(record, world), _variables(world)
    if not scopes:
        return None
    owners = tuple(world.variable_owners[variable] for variable in variables)
    whole = FactorGraph(("+".join(["sum", *variables]),), (variables,), owners[:1], variables, owners)
    return graph_of_groups(whole, [scope.variables for scope in scopes])


def _groups(learned: Learned, variables: Sequence[str]) -> Sequence[Sequence[str]]:
    if learned.structure is not None:
        return [[variables[i] for i in scope] for scope in learned.structure.scopes]
    return learned.scopes if learned.scopes is not None and len(learned.scopes) > 1 else ()


def _variables(world: WorldRecord) -> tuple[str, ...]:
    """Those of the team's graph, in its order: the world's, without those that are in no factor."""
    inside = {variable for scope in (world.scopes or {}).values() for variable in scope}
    return tuple(variable for variable in world.variables if world.scopes is None or variable in inside)
