"""Three-dimensional pictures of rovers on their terrain, rendered by MuJoCo without a display."""

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.colors import to_rgb

from swarmbo.boundary import look
from swarmbo.boundary.extras import needed
from swarmbo.errors import MissingPackageError
from swarmbo_envs.robot_team.rover_model import Terrain
from swarmbo_envs.robot_team.settings import MujocoSettings
from swarmbo_envs.shared import Places, Pose

_SIDE = 10.0  # the map's longer side in the scene, whose unit is no metre
_RELIEF = 0.16  # of that, least drawn height of the terrain
_ROVER = 0.036  # of that, least drawn length of rovers
_FOOT = 0.02  # of that, height of the lowest point above the foot of the model
_FIRST, _LAST = slice(None, -1), slice(1, None)
_TEXTURE = 1024
_SAMPLES = 4  # of a pixel, for smooth edges
_AZIMUTH, _ELEVATION, _DISTANCE = 112.0, -42.0, 1.66
_SINKS = -0.04  # of the side: height of the camera's target relative to the lowest point


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
        self.higher = max(1.0, _RELIEF * _SIDE / slope) if terrain.heights.max() > 0.0 else 1.0
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
