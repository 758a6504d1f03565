"""Labels of a simulated world, and its truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

Goal = Literal["peak", "map", "level"]
TRUE_MAXIMUM = "true maximum"


class Labels(msgspec.Struct, frozen=True):
    """Names of the outcomes and places of a world, for titles and tables.

    Args:
        name: What is measured.
        unit: Unit of the outcome.
        axis_unit: Unit of the locations.
    """

    name: str = ""
    unit: str = ""
    axis_unit: str = ""

    @classmethod
    def of(cls, env: Any, truth: "GroundTruth | None") -> "Labels":
        """Those of the truth, or where nobody knows it those that the world states: its attribute ``labels``, a table.

        What a world states that is no text is left out.
        """
        if truth is not None:
            return cls(truth.name, truth.unit, truth.axis_unit)
        told = getattr(env.unwrapped, "labels", None)
        stated: dict[str, Any] = dict(told) if isinstance(told, Mapping) else {}
        return cls(**{key: stated[key] for key in cls.__struct_fields__ if isinstance(stated.get(key), str)})


@dataclass(frozen=True)
class GroundTruth:
    """The truth of a simulated world: for metrics and figures only, never shown to a team.

    Args:
        points: Evaluation points (m, d), in the unit of the action space.
        values: The noise-free field there (m,), in the unit of the outcome.
        maximum: Its maximum over everything that an agent can measure; or the best value known, see ``maximum_is``.
        argmax: One location (d,) of that maximum.
        unit: Unit of the outcome, for labels.
        axis_unit: Unit of the locations, for labels.
        name: What the field is, for titles.
        value: The noise-free field at any locations (k, d) -> (k,).
        goal: What the field is watched for: its ``peak``, a ``map`` of all of it, or where it exceeds a ``level``.
        level: That level; None with other goals.
        at_round: The truth of another round, of a field that changes; None where it stays as it is.
        maximum_is: What to call ``maximum``: ``best known`` where nobody has proved that there is no better one.
    """

    points: Float[np.ndarray, "m d"]
    values: Float[np.ndarray, " m"]
    maximum: float
    argmax: Float[np.ndarray, " d"]
    unit: str
    axis_unit: str
    name: str
    value: Callable[[Float[np.ndarray, "k d"]], Float[np.ndarray, " k"]] = field(repr=False)
    goal: Goal = "peak"
    level: float | None = None
    at_round: "Callable[[int], GroundTruth] | None" = field(default=None, repr=False)
    maximum_is: str = TRUE_MAXIMUM

    def at(self, round_number: int) -> "GroundTruth":
        """The truth of a round; itself where nothing changes."""
        return self if self.at_round is None else self.at_round(round_number)

    def late(self, rounds: int) -> "GroundTruth":
        """The truth of a world that is some rounds behind those of the run; itself where nothing changes."""
        at_round = self.at_round
        if at_round is None or rounds == 0:
            return self
        return replace(self, at_round=lambda round_number: at_round(round_number - rounds))
