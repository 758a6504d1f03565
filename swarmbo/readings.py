"""What agents in a field tell of their measurements, as places and numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ShapeError
from swarmbo.world import World

Outcome = SupportsFloat | None


class Reading(NamedTuple):
    """What one agent measured.

    Args:
        place: Where (d,), physical.
        outcome: In the unit of the outcome; not finite if it failed.
    """

    place: Float[np.ndarray, " d"]
    outcome: float

    @classmethod
    def of(cls, agent: str, location: object, outcome: Outcome, n_dims: int) -> "Reading":
        """A reading of what an agent tells.

        Args:
            agent: Its name.
            location: Where.
            outcome: What; None means that it failed.
            n_dims: Coordinates of a place.

        Raises:
            ShapeError: If the location is not a finite (d,) array.
        """
        place = np.array(location, dtype=float)
        if place.shape != (n_dims,) or not np.isfinite(place).all():
            raise ShapeError(f"location of {agent!r}: got {location!r}; wanted {n_dims} finite numbers")
        return cls(place, _number(outcome))

    @property
    def is_good(self) -> bool:
        """Whether the measurement came to something."""
        return bool(np.isfinite(self.outcome))


def reported(
    infos: Mapping[str, Mapping[str, Any]], agents: Sequence[str], sent: Mapping[str, np.ndarray], n_dims: int
) -> dict[str, Reading]:
    """What agents measured in a step, of an environment's infos, in the order of the agents.

    An agent that was sent somewhere and reports nothing has failed; one that declined has not.

    Args:
        infos: As ``env.reset`` or ``env.step`` returned them.
        agents: Whose.
        sent: Where agents were sent (d,).
        n_dims: Coordinates of a place.

    Raises:
        ShapeError: If an agent with an outcome reports a location that is not a finite (d,) array.

    Example:
        >>> reported({"a": {"location": [0.5], "measurement": 2.0}}, ["a", "b"], {"b": np.ones(1)}, 1)
        {'a': Reading(place=array([0.5]), outcome=2.0), 'b': Reading(place=array([1.]), outcome=nan)}
    """
    readings: dict[str, Reading] = {}
    for agent in agents:
        if World.declined(infos.get(agent, {})):
            continue
        location, outcome = World.report(infos.get(agent, {}))
        number = _number(outcome)
        if location is not None and (np.isfinite(number) or np.isfinite(np.asarray(location, dtype=float)).all()):
            readings[agent] = Reading.of(agent, location, number, n_dims)
        elif agent in sent:  # it does not say where it is: where it was sent, as far as anybody knows
            readings[agent] = Reading(sent[agent], number)
    return readings


def _number(outcome: Outcome) -> float:
    """An outcome as a float; NaN where there is none."""
    return np.nan if outcome is None else float(outcome)
