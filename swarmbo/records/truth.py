"""Labels of a simulated environment, and its truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.boundary.coordinates import Coordinates

Goal = Literal["peak", "map", "level"]
TRUE_MAXIMUM = "true maximum"


class Labels(msgspec.Struct, frozen=True):
    """Names of an environment's outcome and units, for titles and tables, and coordinates of its input."""

    name: str = ""
    unit: str = ""
    axis_unit: str = ""
    coordinates: Coordinates | None = None

    @classmethod
    def of(cls, env: Any, truth: "GroundTruth | None") -> "Labels":
        """Labels of the truth, or without it the texts in the environment's table ``labels``."""
        told = getattr(env.unwrapped, "coordinates", None)
        coordinates = told if isinstance(told, Coordinates) else None
        if truth is not None:
            return cls(truth.name, truth.unit, truth.axis_unit, coordinates)
        told = getattr(env.unwrapped, "labels", None)
        stated: dict[str, Any] = dict(told) if isinstance(told, Mapping) else {}
        texts = {key: stated[key] for key in ("name", "unit", "axis_unit") if isinstance(stated.get(key), str)}
        return cls(**texts, coordinates=coordinates)


@dataclass(frozen=True)
class GroundTruth:
    """Truth of a simulated environment: for metrics and figures only, never shown to a team.

    Args:
        points: Evaluation points (m, d), in the unit of the action space.
        values: Noise-free field there (m,), in the unit of the outcome.
        maximum: Its maximum over all measurable locations; or a reference optimum, see ``maximum_is``.
        argmax: One location (d,) of that maximum.
        unit: Unit of the outcome, for labels.
        axis_unit: Unit of the locations, for labels.
        name: Name of the field, for titles.
        value: Noise-free field at any locations (k, d) -> (k,).
        goal: Task of the field: its ``peak``, a ``map`` of all of it, or the set above a ``level``.
        level: That level; None with other goals.
        at_round: Truth of another round, for a field that changes; else None.
        maximum_is: Name of ``maximum``: ``reference optimum`` if it is not proved.
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
        """Truth of a round; itself if nothing changes."""
        return self if self.at_round is None else self.at_round(round_number)

    def late(self, rounds: int) -> "GroundTruth":
        """Truth of an environment some rounds behind those of the run; itself if nothing changes."""
        at_round = self.at_round
        if at_round is None or rounds == 0:
            return self
        return replace(self, at_round=lambda round_number: at_round(round_number - rounds))
