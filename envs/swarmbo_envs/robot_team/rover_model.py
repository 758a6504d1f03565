"""Model of a rover on a terrain for MuJoCo, in MJCF.

A rover has a differential drive: two wheels in its middle. A sprung caster in front and one behind keep it level, and
leave most of the weight to the wheels. Its centre of mass is low. Wheels touch the ground as spheres, which is cheap
and never catches an edge.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter

from swarmbo_envs.fields.field import Bilinear, Field
from swarmbo_envs.robot_team.settings import MujocoSettings
from swarmbo_envs.shared import Place, Rows, grid_points

_RELIEF = 0.05  # height range as a share of the map's longer side, if the field is not an elevation
_STEEPEST = 0.35  # largest slope then: 19 degrees
_MARGIN = 2.0  # rover lengths of ground beyond the map
WHEEL = 0.2  # radius, in lengths of a rover
HALF_TRACK = 0.34  # from the middle to a wheel
SIDES = (1.0, -1.0)  # of the wheels: left and right
_CASTER = 0.08  # radius
_REACH = 0.42  # from the middle to a caster
_SPRING = 0.04  # compression of a caster's spring on level ground
_LOAD = 0.1  # share of the weight that the spring carries then
_TRAVEL = 0.1  # of the spring, each way
_CHASSIS = (0.45, 0.22, 0.1)  # half the sides of the chassis
_BALLAST = -0.05  # height of the centre of mass over the axle
_DENSITY = 30.0  # kg/m³: mass of a rover per cubed length
_WHEEL_MASS = 0.05  # share of the rover's mass
_ARMATURE = 1e-3  # inertia of a motor, per mass and squared length of the rover
_TORQUE = 35.0  # of a motor, N m for a rover of 1 m; like weights, it grows with the fourth power of the length
_SLIP = 0.5  # rad/s by which a motor at full torque lags its command
_GRAVITY = 9.81
_HUB = 0.02  # radius of the only part that walls stop, so that the rover's middle stays on the map
_BASE_M = 5.0  # of ground below its lowest point


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights over a map, and a margin with the heights of its edge: m above the lowest point, south row first."""

    xs: Float[np.ndarray, " columns"]
    ys: Float[np.ndarray, " rows"]
    heights: Rows
    low: Place
    high: Place

    @classmethod
    def of(cls, field: Field, settings: MujocoSettings) -> "Terrain":
        """Terrain from a field's values."""
        size = field.high - field.low
        margin = _MARGIN * settings.rover_m
        columns, rows = np.maximum(4, np.ceil(settings.terrain_cells * size / size.max() - 1e-9)).astype(int)
        xs = np.linspace(field.low[0] - margin, field.high[0] + margin, columns)
        ys = np.linspace(field.low[1] - margin, field.high[1] + margin, rows)
        values = field.value(grid_points(xs, ys)).reshape(rows, columns)
        values = gaussian_filter(values, settings.smoothing_cells, mode="nearest")
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
        """Height range; 1 if the terrain is level, as the engine needs a positive height."""
        return float(self.heights.max()) or 1.0

    @cached_property
    def heights_at(self) -> Bilinear:
        """Heights at places on the ground, m."""
        return Bilinear(self.xs, self.ys, self.heights, is_endless=True)

    def upright(self, place: Place, heading: float, reach_m: float) -> Float[np.ndarray, "3 3"]:
        """Axes of a body that stands on the slope measured over ``reach_m``: columns are ahead, left and up."""
        sides = reach_m * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        z = self.heights_at(place + sides)
        up = np.array([z[1] - z[0], z[3] - z[2], 2.0 * reach_m])
        up /= np.linalg.norm(up)
        ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
        ahead[2] = -(ahead @ up) / up[2]  # same course, but along the slope
        ahead /= np.linalg.norm(ahead)
        return np.column_stack([ahead, np.cross(up, ahead), up])


def mjcf(terrain: Terrain, settings: MujocoSettings, speed_m_s: float, turn_rate_rad_s: float) -> str:
    """Model of one rover on a terrain, with walls around the map; heights are set later, in ``hfield_data``.

    In a contact, MuJoCo takes the larger friction of the two. So the ground has that of the wheels, and walls have none
    (``condim`` 1) against anything (``priority``). The motors are sized for full speed and turn rate at the same time.
    """
    length, mass = settings.rover_m, _DENSITY * settings.rover_m**3
    radius, torque = WHEEL * length, _TORQUE * length**4
    fastest = (speed_m_s + turn_rate_rad_s * HALF_TRACK * length) / radius
    grip = f'friction="{settings.friction!r} 0.005 0.0001"'
    wheels = "".join(
        f'<body pos="{_numbers(0.0, side * HALF_TRACK * length, 0.0)}">'
        f'<joint name="wheel{n}" type="hinge" axis="0 1 0" armature="{_ARMATURE * mass * length**2!r}"/>'
        f'<geom type="sphere" size="{radius!r}" mass="{_WHEEL_MASS * mass!r}" {grip}/></body>'
        for n, side in enumerate(SIDES)
    )
    stiffness = _LOAD * mass * _GRAVITY / (_SPRING * length)
    damping = 2.0 * (stiffness * _LOAD * mass) ** 0.5
    drop = (_CASTER - WHEEL - _SPRING) * length  # where the spring is at rest
    wheels += "".join(
        f'<body pos="{_numbers(end * _REACH * length, 0.0, drop)}">'
        f'<joint type="slide" axis="0 0 1" stiffness="{stiffness!r}" damping="{damping!r}"'
        f' range="{_numbers(-_TRAVEL * length, _TRAVEL * length)}"/>'
        f'<geom type="sphere" size="{_CASTER * length!r}" mass="{0.01 * mass!r}" condim="1" priority="1"/></body>'
        for end in (1.0, -1.0)
    )
    motors = "".join(
        f'<velocity joint="wheel{n}" kv="{torque / _SLIP!r}" ctrlrange="{-fastest!r} {fastest!r}"'
        f' forcerange="{-torque!r} {torque!r}"/>'
        for n in range(len(SIDES))
    )
    half = (terrain.xs[-1] - terrain.xs[0]) / 2, (terrain.ys[-1] - terrain.ys[0]) / 2
    middle = (terrain.xs[-1] + terrain.xs[0]) / 2, (terrain.ys[-1] + terrain.ys[0]) / 2
    a, b, c = ((side * length) ** 2 for side in _CHASSIS)
    inertia = [mass / 3 * sum(pair) for pair in ((b, c), (a, c), (a, b))]
    chassis = _numbers(*(side * length for side in _CHASSIS))
    return f"""<mujoco>
<compiler angle="radian"/>
<option timestep="{settings.step_s!r}" integrator="implicitfast" cone="elliptic" impratio="10"/>
<asset><hfield name="terrain" nrow="{len(terrain.ys)}" ncol="{len(terrain.xs)}"
 size="{_numbers(*half, terrain.relief_m, _BASE_M)}"/></asset>
<worldbody>
<geom type="hfield" hfield="terrain" pos="{_numbers(*middle, 0.0)}" {grip}/>
{_walls(terrain.low, terrain.high, _HUB * length)}
<body name="rover"><freejoint/>
<inertial pos="{_numbers(0.0, 0.0, _BALLAST * length)}" mass="{mass!r}" diaginertia="{_numbers(*inertia)}"/>
<geom type="box" size="{chassis}" pos="{_numbers(0.0, 0.0, _CHASSIS[2] * length)}" {grip}/>
<geom type="sphere" size="{_HUB * length!r}" contype="2" conaffinity="2"/>
{wheels}</body>
</worldbody>
<actuator>{motors}</actuator>
</mujoco>"""


def _walls(low: Place, high: Place, hub_m: float) -> str:
    """Planes that stop the middle of a rover at the edges of the map, and no other part of it."""
    inward = {
        (low[0] - hub_m, 0.0): "1 0 0",
        (high[0] + hub_m, 0.0): "-1 0 0",
        (0.0, low[1] - hub_m): "0 1 0",
        (0.0, high[1] + hub_m): "0 -1 0",
    }
    return "".join(
        f'<geom type="plane" size="0 0 1" pos="{_numbers(x, y, 0.0)}" zaxis="{axis}"'
        ' contype="2" conaffinity="2" condim="1" priority="1"/>'
        for (x, y), axis in inward.items()
    )


def _numbers(*values: float) -> str:
    return " ".join(repr(float(value)) for value in values)
