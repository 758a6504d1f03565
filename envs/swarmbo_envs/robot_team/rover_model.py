"""A rover on a terrain as MuJoCo's MJCF, and three-dimensional pictures of rovers, rendered without a display.

A rover is driven by the difference of two wheels in its middle. A sprung caster in front and one behind keep it level
and leave most of the weight to the wheels. Its centre of mass is low. Wheels touch the ground as spheres, which is
cheap and never catches an edge.
"""

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.colors import to_rgb
from numpy import ndarray
from scipy.ndimage import gaussian_filter

from swarmbo.boundary import look
from swarmbo.errors import MissingPackageError, needed
from swarmbo_envs.fields.field import Bilinear, Field
from swarmbo_envs.robot_team.settings import MujocoSettings
from swarmbo_envs.shared import Place, Places, Pose, Rows, Values, grid_points

_RELIEF = 0.05  # of the map's longer side, if the field is no elevation
_STEEPEST = 0.35  # largest slope then: 19 degrees
_MARGIN = 2.0  # rover lengths of ground beyond the map
WHEEL = 0.2  # radius, in lengths of a rover
HALF_TRACK = 0.34  # from the middle to a wheel
SIDES = (1.0, -1.0)  # of the wheels: left and right
_CASTER = 0.08  # radius
_REACH = 0.42  # from the middle to a caster
_SPRING = 0.04  # compression of a caster's spring on level ground,
_LOAD = 0.1  # and its share of the weight then
_TRAVEL = 0.1  # of the spring, each way
_CHASSIS = (0.45, 0.22, 0.1)  # half its sides
_BALLAST = -0.05  # height of the centre of mass over the axle
_DENSITY = 30.0  # kg in a cube as long as the rover
_WHEEL_MASS = 0.05  # of that
_ARMATURE = 1e-3  # inertia of a motor, by the mass of a rover and its length squared
_TORQUE = 35.0  # of a motor, N m for a rover of 1 m; like weights, it grows with the fourth power of the length
_SLIP = 0.5  # rad/s by which a motor at its torque falls behind
_GRAVITY = 9.81
_HUB = 0.02  # radius of the part that the walls stop: the rover's middle, which so stays on the map
_BASE_M = 5.0  # of ground below its lowest point
_SIDE = 10.0  # the map's longer side in the scene, whose unit is no metre
_LEAST_RELIEF = 0.16  # of that, least drawn height of the terrain
_ROVER = 0.036  # of that, least drawn length of rovers
_FOOT = 0.02  # of that, height of the lowest point above the foot of the model
_FIRST, _LAST = slice(None, -1), slice(1, None)
_TEXTURE = 1024
_SAMPLES = 4  # of a pixel, for smooth edges
_AZIMUTH, _ELEVATION, _DISTANCE = 112.0, -42.0, 1.66
_SINKS = -0.04  # of the side: height of the camera's target relative to the lowest point


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights over a map and a margin, in which the edge is continued: m above the lowest, south row first.

    Example:
        >>> from swarmbo_envs.fields.landscape import build_field
        >>> terrain = Terrain.of(build_field({"elevation": "jacksboro"}, 400), MujocoSettings())
        >>> terrain.heights.shape, round(float(terrain.heights.max()))
        ((128, 103), 730)
    """

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

    def heights_at(self, places: Places) -> Values:
        """Heights at places on the ground, bilinear, m."""
        return self._between(np.asarray(places, dtype=float))

    def upright(self, place: Place, heading: float, reach_m: float) -> Float[np.ndarray, "3 3"]:
        """Frame of a body that stands on the slope taken over ``reach_m``: columns are ahead, left and up."""
        sides = reach_m * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        z = self.heights_at(place + sides)
        up = np.array([z[1] - z[0], z[3] - z[2], 2.0 * reach_m])
        up /= np.linalg.norm(up)
        ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
        ahead[2] = -(ahead @ up) / up[2]  # above the course, on the slope
        ahead /= np.linalg.norm(ahead)
        return np.column_stack([ahead, np.cross(up, ahead), up])

    @cached_property
    def _between(self) -> Bilinear:
        return Bilinear(self.xs, self.ys, self.heights, is_endless=True)


def mjcf(terrain: Terrain, settings: MujocoSettings, speed_m_s: float, turn_rate_rad_s: float) -> str:
    """Model of one rover on a terrain, with walls around the map; heights are set later, in ``hfield_data``.

    MuJoCo takes the larger friction of two contacts. So the ground has that of the wheels, and walls have none
    (``condim`` 1) against anything (``priority``). The motors are sized for both the speed and the turn rate at once.
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


def _walls(low: Float[ndarray, " 2"], high: Float[ndarray, " 2"], hub_m: float) -> str:
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


class Scene:
    """A camera above the map of a world.

    Rovers are drawn ``larger`` and terrain ``higher`` than they are if too small to be seen.
    """

    def __init__(self, terrain: Terrain, settings: MujocoSettings, robots: int, width: int, height: int) -> None:
        self._mujoco: Any = needed("mujoco", "mujoco", "a picture in three dimensions", "$.physics")
        self._terrain, self._robots, self.size = terrain, robots, (width, height)
        size = terrain.high - terrain.low
        self._scale = _SIDE / float(size.max())
        slope = terrain.relief_m * self._scale
        self.higher = max(1.0, _LEAST_RELIEF * _SIDE / slope) if terrain.heights.max() > 0.0 else 1.0
        self.larger = max(1.0, _ROVER * _SIDE / (settings.rover_m * self._scale))
        self._length = settings.rover_m * self.larger  # m on the map
        self._middle = (terrain.low + terrain.high) / 2
        self._gl = _context(width, height)
        self._model = self._mujoco.MjModel.from_xml_string(self._mjcf())
        self._data = self._mujoco.MjData(self._model)
        self._options, self._camera = self._mujoco.MjvOption(), self._mujoco.MjvCamera()
        self._scene = self._mujoco.MjvScene(self._model, maxgeom=100 + 20 * robots)
        self._screen = self._mujoco.MjrContext(self._model, self._mujoco.mjtFontScale.mjFONTSCALE_100)
        self._mujoco.mjr_setBuffer(self._mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._screen)

    def picture(
        self, ground: UInt8[np.ndarray, "rows columns 3"], poses: Float[np.ndarray, "robots 3"], turn: float = 0.0
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Draw the map as seen from above its southern edge, turned by degrees, in bytes of red, green and blue.

        ``ground`` is the texture of the terrain, the first row in the south; poses are (x, y, heading), m and rad.
        """
        mujoco, (width, height) = self._mujoco, self.size
        self._paint(ground)
        for robot, pose in enumerate(poses):
            frame = self._frame(pose)
            self._data.mocap_pos[robot] = self._placed(pose[None, :2])[0]
            mujoco.mju_mat2Quat(self._data.mocap_quat[robot], np.ascontiguousarray(frame).ravel())
        mujoco.mj_forward(self._model, self._data)
        self._camera.lookat[:] = [0.0, 0.0, _SINKS * _SIDE]
        self._camera.azimuth, self._camera.elevation = _AZIMUTH + turn, _ELEVATION
        self._camera.distance = _DISTANCE * _SIDE
        every = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, self._data, self._options, None, self._camera, every, self._scene)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        pixels, view = np.empty((height, width, 3), dtype=np.uint8), mujoco.MjrRect(0, 0, width, height)
        self._gl.make_current()
        mujoco.mjr_render(view, self._scene, self._screen)
        mujoco.mjr_readPixels(pixels, None, view, self._screen)
        return pixels[::-1].copy()

    def pixels(self, places: Places, above: float = 0.0) -> Places:
        """Columns and rows of places (m), at heights of so many drawn rovers, in the last picture."""
        eyes = self._scene.camera[:2]
        eye = np.mean([[*one.pos] for one in eyes], axis=0)
        ahead, up = np.array(eyes[0].forward, dtype=float), np.array(eyes[0].up, dtype=float)
        right = np.cross(ahead, up)
        rays = self._placed(np.asarray(places, dtype=float), above) - eye
        depth = rays @ ahead / eyes[0].frustum_near
        half = (eyes[0].frustum_top - eyes[0].frustum_bottom) / 2
        middle = (eyes[0].frustum_top + eyes[0].frustum_bottom) / 2
        width, height = self.size
        rows = height / 2 * (1.0 - (rays @ up / depth - middle) / half)
        return np.column_stack([width / 2 + height / 2 * (rays @ right) / depth / half, rows])

    def close(self) -> None:
        """Release the renderer."""
        self._screen.free()
        self._gl.free()

    def _placed(self, places: Places, above: float = 0.0) -> Float[np.ndarray, "k 3"]:
        heights = self._terrain.heights_at(places) * self.higher + above * self._length
        return np.column_stack([places - self._middle, heights]) * self._scale

    def _frame(self, pose: Pose) -> Float[np.ndarray, "3 3"]:
        drawn = replace(self._terrain, heights=self._terrain.heights * self.higher)
        return drawn.upright(pose[:2], float(pose[2]), 0.4 * self._length)

    def _paint(self, ground: UInt8[np.ndarray, "rows columns 3"]) -> None:
        middles = (np.arange(_TEXTURE) + 0.5) / _TEXTURE
        row, column = ((middles * n).astype(int) for n in ground.shape[:2])
        painted, begin = ground[np.ix_(row, column)], self._model.tex_adr[0]
        self._model.tex_data[begin : begin + painted.size] = painted.ravel()
        self._gl.make_current()
        self._mujoco.mjr_uploadTexture(self._model, self._screen, 0)

    def _mjcf(self) -> str:
        length, (surface, edge) = self._length * self._scale, self._meshes()
        rovers = "".join(_rover(length, look.agent_colour(robot)) for robot in range(self._robots))
        width, height = self.size
        return f"""<mujoco>
<statistic extent="{_SIDE}" center="0 0 0"/>
<visual><global offwidth="{width}" offheight="{height}" fovy="40"/>
<quality shadowsize="2048" offsamples="{_SAMPLES}"/><map znear="0.05" zfar="10" shadowscale="0.9"/>
<headlight ambient="0.42 0.42 0.42" diffuse="0.12 0.12 0.12" specular="0 0 0"/></visual>
<asset>
<texture name="painted" type="2d" builtin="flat" rgb1="1 1 1" width="{_TEXTURE}" height="{_TEXTURE}"/>
<texture name="sky" type="skybox" builtin="flat" rgb1="1 1 1" rgb2="1 1 1" width="8" height="8"/>
<material name="painted" texture="painted" specular="0" shininess="0"/>
{surface}{edge}
</asset>
<worldbody>
<light type="directional" pos="-6 -4 12" dir="0.4 0.3 -0.87" diffuse="0.62 0.62 0.6" specular="0.1 0.1 0.1"/>
<geom type="mesh" mesh="surface" material="painted" contype="0" conaffinity="0"/>
<geom type="mesh" mesh="edge" rgba="0.62 0.6 0.57 1" contype="0" conaffinity="0"/>
{rovers}
</worldbody>
</mujoco>"""

    def _meshes(self) -> tuple[str, str]:
        """Surface of the map, and the sides below its edges."""
        low, high, n = self._terrain.low, self._terrain.high, self._terrain.heights.shape
        shares = [np.linspace(0.0, 1.0, count) for count in n[::-1]]
        u, v = (axis.ravel() for axis in np.meshgrid(*shares))
        places = self._placed(low + np.column_stack([u, v]) * (high - low))
        number = np.arange(len(places)).reshape(n)
        a, b, c, d = (number[rows, columns].ravel() for rows in (_FIRST, _LAST) for columns in (_FIRST, _LAST))
        faces = np.concatenate([np.column_stack([a, b, d]), np.column_stack([a, d, c])])
        surface = _mesh("surface", places, faces, np.column_stack([u, v]))
        border = np.concatenate([number[0], number[1:, -1], number[-1, -2::-1], number[-2:0:-1, 0]])
        rim = places[border]
        foot = np.column_stack([rim[:, :2], np.full(len(rim), -_FOOT * _SIDE)])
        here = np.arange(len(rim))
        after = np.roll(here, -1)
        below = len(rim)
        faces = np.concatenate(
            [np.column_stack([here, here + below, after]), np.column_stack([after, here + below, after + below])]
        )
        return surface, _mesh("edge", np.vstack([rim, foot]), faces)


def _mesh(name: str, places: np.ndarray, faces: np.ndarray, painted_at: np.ndarray | None = None) -> str:
    parts = {"vertex": places, "face": faces} | ({} if painted_at is None else {"texcoord": painted_at})
    told = " ".join(f'{key}="{" ".join(map(repr, rows.ravel().tolist()))}"' for key, rows in parts.items())
    return f'<mesh name="{name}" inertia="shell" {told}/>'


def _rover(length: float, colour: str) -> str:
    red, green, blue = to_rgb(colour)
    wheels = "".join(
        f'<geom type="cylinder" size="{0.15 * length} {0.07 * length}" zaxis="0 1 0" rgba="0.13 0.15 0.18 1"'
        f' pos="{x * length} {y * length} {0.15 * length}"/>'
        for x in (-0.36, 0.0, 0.36)
        for y in (-0.32, 0.32)
    )
    return f"""<body mocap="true">
<geom type="box" size="{0.5 * length} {0.26 * length} {0.14 * length}" pos="0 0 {0.34 * length}"
 rgba="{red} {green} {blue} 1"/>
<geom type="box" size="{0.18 * length} {0.17 * length} {0.03 * length}" pos="{-0.2 * length} 0 {0.5 * length}"
 rgba="0.96 0.96 0.96 1"/>
<geom type="cylinder" size="{0.035 * length} {0.2 * length}" pos="{0.3 * length} 0 {0.6 * length}"
 rgba="0.2 0.2 0.2 1"/>
<geom type="sphere" size="{0.11 * length}" pos="{0.3 * length} 0 {0.8 * length}" rgba="0.98 0.98 0.98 1"/>
{wheels}</body>"""


def _context(width: int, height: int) -> Any:
    """Context that renders without a display: EGL, or else OSMesa."""
    said = list[str]()
    for name in ("egl", "osmesa"):
        try:
            context = importlib.import_module(f"mujoco.{name}").GLContext(width, height)
            context.make_current()
        except Exception as error:  # noqa: BLE001  each has errors of its own, down to those of PyOpenGL
            said.append(f"{name}: {' '.join(str(error).split())[:80] or type(error).__name__}")
        else:
            return context
    raise MissingPackageError(
        f"pictures in three dimensions need EGL or OSMesa, and there is neither ({'; '.join(said)}); "
        "apt install libegl1 or libosmesa6",
        at="$.physics",
    )
