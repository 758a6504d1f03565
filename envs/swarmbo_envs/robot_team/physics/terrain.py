"""The ground that rovers drive on: a field as heights on a grid."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator
from scipy.ndimage import gaussian_filter

from swarmbo_envs.fields.field import Field
from swarmbo_envs.robot_team.physics.settings import MujocoSettings

_RELIEF = 0.05  # of the map's longer side, where the field is no elevation
_STEEPEST = 0.35  # its slope then, at the most: 19 degrees
_MARGIN = 2.0  # lengths of a rover that the ground goes on beyond the map


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights over a map and a little beyond, its edge going on as it is.

    Args:
        xs: Columns' places, rising evenly, m.
        ys: Rows' places, rising evenly, m.
        heights: One per row and column, the first row in the south, m above the lowest.
        low: South-west corner of the map, m.
        high: North-east corner.

    Example:
        >>> from swarmbo_envs.fields.landscape import build_field
        >>> terrain = Terrain.of(build_field({"elevation": "jacksboro"}, 400), MujocoSettings())
        >>> terrain.heights.shape, round(float(terrain.heights.max()))
        ((128, 103), 730)
    """

    xs: Float[np.ndarray, " columns"]
    ys: Float[np.ndarray, " rows"]
    heights: Float[np.ndarray, "rows columns"]
    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]

    @classmethod
    def of(cls, field: Field, settings: MujocoSettings) -> "Terrain":
        """The ground of a field.

        Args:
            field: Whose values become heights.
            settings: How high, smooth and fine.
        """
        size = field.high - field.low
        margin = _MARGIN * settings.rover_m
        columns, rows = np.maximum(4, np.ceil(settings.terrain_cells * size / size.max() - 1e-9)).astype(int)
        xs = np.linspace(field.low[0] - margin, field.high[0] + margin, columns)
        ys = np.linspace(field.low[1] - margin, field.high[1] + margin, rows)
        places = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
        values = gaussian_filter(field.value(places).reshape(rows, columns), settings.smoothing_cells, mode="nearest")
        values -= values.min()
        relief, span = settings.relief_m, float(values.max())
        if relief is None and span > 0.0 and (field.quantity, field.unit) != ("elevation", "m"):
            steepest = float(np.hypot(*np.gradient(values, ys, xs)).max())
            relief = min(_RELIEF * float(size.max()), _STEEPEST * span / steepest)
        if relief is not None and span > 0.0:
            values *= relief / span
        return cls(xs, ys, values, field.low, field.high)

    @property
    def relief_m(self) -> float:
        """From the lowest place to the highest; 1 where all is level, as an engine wants some height."""
        return float(self.heights.max()) or 1.0

    def heights_at(self, places: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Heights at places on the ground, bilinear, m."""
        return self._between(np.asarray(places, dtype=float)[:, ::-1])

    def upright(self, place: Float[np.ndarray, " 2"], heading: float, reach_m: float) -> Float[np.ndarray, "3 3"]:
        """The frame of a body that stands on a slope: columns are ahead, left and up.

        Args:
            place: Where, on the map.
            heading: Of what is ahead, seen from above, rad.
            reach_m: How far around the slope is taken.
        """
        sides = reach_m * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        z = self.heights_at(place + sides)
        up = np.array([z[1] - z[0], z[3] - z[2], 2.0 * reach_m])
        up /= np.linalg.norm(up)
        ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
        ahead[2] = -(ahead @ up) / up[2]  # above the course, on the slope
        ahead /= np.linalg.norm(ahead)
        return np.column_stack([ahead, np.cross(up, ahead), up])

    @cached_property
    def _between(self) -> RegularGridInterpolator:
        return RegularGridInterpolator((self.ys, self.xs), self.heights, bounds_error=False, fill_value=None)  # pyright: ignore[reportArgumentType]
