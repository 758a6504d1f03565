"""What agents in a field tell of their measurements, as places and numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from jaxtyping import Float

from swarmbo.checks import reported_number, reported_place, short, told_number
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain
from swarmbo.world import World

Outcome = SupportsFloat | None


class Reading(NamedTuple):
    """What one agent measured.

    Args:
        place: Where (d,), physical.
        outcome: In the unit of the outcome; NaN if it failed.
    """

    place: Float[np.ndarray, " d"]
    outcome: float

    @classmethod
    def of(cls, agent: str, location: object, outcome: Outcome, domain: Domain) -> "Reading":
        """A reading of what somebody tells of an agent.

        Args:
            agent: Its name.
            location: Where.
            outcome: What; None, NaN, infinite or beyond 1e60 means that it failed.
            domain: The box of places; they may lie outside, but not a million sides away.

        Raises:
            ShapeError: If the location is not a (d,) array of such coordinates, or the outcome is no number.
        """
        place = _place(location, domain)
        if place is None:
            wanted = f"{domain.n_dims} numbers in or near the box"
            raise ShapeError(f"location of {agent!r}: got {short(location)}; wanted {wanted}")
        return cls(place, told_number(outcome, repr(agent)))

    @property
    def is_good(self) -> bool:
        """Whether the measurement came to something."""
        return bool(np.isfinite(self.outcome))


def reported(
    infos: Mapping[str, Mapping[str, Any]], agents: Sequence[str], sent: Mapping[str, np.ndarray], domain: Domain
) -> dict[str, Reading]:
    """What agents measured in a step, of an environment's infos, in the order of the agents.

    An agent that was sent somewhere and reports nothing has failed; one that declined has not. So has one that reports
    no number, or a place that can't be: whatever a world says, the team goes on.

    Args:
        infos: As ``env.reset`` or ``env.step`` returned them.
        agents: Whose.
        sent: Where agents were sent (d,).
        domain: The box of places.

    Example:
        >>> domain = Domain(low=np.zeros(1), high=np.ones(1))
        >>> reported({"a": {"location": [0.5], "measurement": 2.0}}, ["a", "b"], {"b": np.ones(1)}, domain)
        {'a': Reading(place=array([0.5]), outcome=2.0), 'b': Reading(place=array([1.]), outcome=nan)}
    """
    readings: dict[str, Reading] = {}
    for agent in agents:
        if World.declined(infos.get(agent, {})):
            continue
        location, outcome = World.report(infos.get(agent, {}))
        place, number = _place(location, domain), reported_number(outcome)
        if place is not None:
            readings[agent] = Reading(place, number)
        elif agent in sent:  # it does not say where it is: where it was sent, as far as anybody knows
            readings[agent] = Reading(sent[agent], number if location is None else np.nan)
    return readings


def _place(location: object, domain: Domain) -> Float[np.ndarray, " d"] | None:
    """A place near the box; None if it is none."""
    place = reported_place(location)
    if place is None or place.shape != (domain.n_dims,):
        return None
    return place if domain.is_near(place).all() else None
