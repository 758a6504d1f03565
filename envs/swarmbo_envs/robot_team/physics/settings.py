"""What makes a rover, and the ground that it drives on."""

from typing import Annotated

from swarmbo.settings import Distance, Fraction, NonNegative, Settings, within


class MujocoSettings(Settings, frozen=True):
    """Rovers in MuJoCo.

    Args:
        rover_m: Length of a rover, 0.05 to 100 m; all else about it is in proportion.
        pace: Share of its largest speed and turn rate that a rover plans with, > 0 and at most 1: the rest is what it
            has left on slopes.
        reserve: Share by which a battery must last longer than the planned way home, >= 0.
        relief_m: Height of the terrain from its lowest place to its highest, m. Default: the field's own heights where
            it is an elevation, else a twentieth of the map's longer side, or less so that no slope is beyond 19°.
        smoothing_cells: Standard deviation of the Gaussian that smooths the terrain, in its cells, 0 to 16.
        terrain_cells: Cells of the terrain along the map's longer side, 8 to 1024.
        friction: Of wheels on the ground, 0 to 10: about the tangent of the steepest slope that they can climb.
        step_s: Of the integration, 0.0001 to 0.02 s.
    """

    rover_m: Annotated[float, within(0.05, 100, "a length", "m")] = 3.0
    pace: Fraction = 0.8
    reserve: NonNegative = 0.2
    relief_m: Distance | None = None
    smoothing_cells: Annotated[float, within(0, 16)] = 1.0
    terrain_cells: Annotated[int, within(8, 1024)] = 128
    friction: Annotated[float, within(0, 10)] = 1.0
    step_s: Annotated[float, within(1e-4, 0.02, "a time", "s")] = 0.01


class PhysicsSettings(Settings, frozen=True):
    """The table that asks for an engine: ``{mujoco = {...}}``.

    Args:
        mujoco: Rovers in MuJoCo.
    """

    mujoco: MujocoSettings = MujocoSettings()
