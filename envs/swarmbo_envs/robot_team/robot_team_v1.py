"""Robot team with no-go regions, batteries, currents, separation and simulated rovers."""

import warnings
from typing import TYPE_CHECKING, Any

from swarmbo.errors import DataWarning
from swarmbo.settings import convert
from swarmbo_envs.fields.landscape import build_field
from swarmbo_envs.fields.settings import require_table
from swarmbo_envs.ground import read_regions
from swarmbo_envs.robot_team.laid_out import laid_out
from swarmbo_envs.robot_team.robot_team import RobotTeam
from swarmbo_envs.robot_team.settings import RobotTeamV1Settings
from swarmbo_envs.simulated_world import plain

if TYPE_CHECKING:
    from swarmbo_envs.robot_team.scene import Scene


# in rover lengths between centres: from here on two rovers never touch
_LENGTHS_APART = 1.5


class RobotTeamV1(RobotTeam, arguments=RobotTeamV1Settings, name="robot_team_v1"):
    """A ``RobotTeam`` with no-go regions, unequal robots, batteries, separation, a current and simulated rovers.

    Without the arguments below, results are bit-identical to those of ``RobotTeam``.

    **No-go regions.** No robot is ever in one, at its stop or en route. The map is divided into cells; cells that a
    region touches are blocked, and robots drive round them. They turn in place and drive straight courses between
    bends, by the shortest paths on the visibility graph of the bends. In the open they drive arcs, like robots of
    ``RobotTeam``. An action in a region, or without a path, is replaced by the nearest site. The ground truth covers
    what can be measured.

    **Heterogeneous robots.** ``speed_m_s``, ``turn_rate_rad_s``, ``radio_range_m``, ``noise_std`` and ``battery_s``
    take one number, or a list of one per robot. If sensors differ, infos have the noise of each measurement. Two robots
    can exchange messages within the smaller of their ranges.

    **Batteries.** ``candidates`` has only locations from which the robot can return to its base. A robot sent beyond
    its range returns to base. So does a robot whose battery does not last for another round and the return; it has one
    candidate, its stop en route. At its base it is charged fully. Turning and driving take battery, standing does not.
    If only sites can be measured, a returning robot does not measure; ``sampled`` is then False.

    **Separation.** Robots drive in the order of their numbers. A robot stops and measures before it comes too near to a
    robot earlier in the order, or to the position of a later one.

    **Current.** Robots hold their course against it; travel times then depend on the direction.

    **En route** robots measure ``samples_per_leg`` times or every ``sample_every_m`` metres, in addition to their stop.
    The reward is that of the measurement at the stop.

    **Physics.** With ``physics = "mujoco"`` robots are rovers in MuJoCo: a body with two driven wheels and two casters.
    The field is their terrain, and the map has walls at its edge. They plan as above, with four fifths of their speed,
    follow their paths as well as the ground permits, and measure at their true position. A location or base counts as
    reached within a rover's length. A rover fails in a round if it tips over, cannot move on, or slides off its path by
    more than three quarters of its length. It is then put upright on its path at the point it had reached. A rover with
    an empty battery is carried to its base. Rovers also keep their length from no-go regions, and stop only where no
    other rover is at any time of the round. Each drives in a separate simulation. With a ``separation_m`` below one and
    a half of their lengths, as by default, they may pass through each other, and a warning is given. With ``sites =
    "only"`` they measure the site at which they stand.

    | ``infos[agent]`` also has | type | meaning |
    |---|---|---|
    | ``noise_std`` | float | noise of the measurement, if sensors differ |
    | ``on_the_way`` | list | measurements en route, in order: ``location``, ``measurement``, ``noise_std`` |
    | ``path`` | array (k, 2) | points along the driven path of this round, m |
    | ``battery`` | float | share of the battery that is left, with batteries |
    | ``failure`` | str | reason why a rover measured nothing: ``tipped over``, ``stuck``, ``off its way`` or \
``battery empty`` |

    With batteries, observations end with the share that is left: Box (6,).

    Args:
        battery_s: Time that a robot can turn and drive on one charge, 1e-6 to 1e12 s. Default: unlimited.
        bases: Charging sites: one [x, y] in m for all, or one per robot. Default: the start of each. Without ``starts``
            robots start at their bases, or at the free sites nearest to a shared base.
        separation_m: Least distance of two robots at any moment, >= 0. They keep a little more, as paths are compared
            at 513 moments of a round.
        wind: The current (east, north) in m/s, below 95 % of the slowest robot's speed.
        samples_per_leg: Measurements en route in a round, evenly over the driven path, before the one at its end, 0 to
            64.
        sample_every_m: Alternative to ``samples_per_leg``: metres between measurements; at most 64 en route in a round.
        no_go: Tables ``{corners = [[x, y], ...]}`` in m on the map, ``{geojson = FILE, coordinates = "degrees" |
            "metres"}``, or ``{raster = FILE, nodata = NUMBER, extent = [west, south, east, north]}`` with a ``.npy``
            array or a GeoTIFF (extra ``geo``). True cells, NaN and nodata are no-go; the first row is in the north.
        clearance_m: Extra distance that robots keep from these regions, >= 0.
        route_cells: Cells along the map's longer side for path search, 8 to 512. Passages narrower than two cells may
            be closed; a warning is given if that cuts off sites.
        physics: ``kinematic``: robots obey their equations of motion. ``mujoco`` (extra ``mujoco``): rovers. Their
            settings are ``{mujoco = {rover_m = 3.0, ...}}``, see ``MujocoSettings``.
        **others: As for ``RobotTeam``.

    Raises:
        ConfigError: If an argument is wrong; the message has its path, as in ``$.no_go[0].geojson``.
        MissingPackageError: If a GeoTIFF is named and the extra ``geo`` is not installed, or an engine without its
            extra.

    Warns:
        DataWarning: If cells close a passage to sites, or rovers may pass through each other.

    Example:
        >>> import numpy as np
        >>> from swarmbo_envs import robot_team_v1
        >>> lake = {"corners": [[3000, 3000], [6000, 3000], [6000, 8000], [3000, 8000]]}
        >>> env = robot_team_v1.parallel_env(robots=1, starts=[[2500, 5000]], no_go=[lake], speed_m_s=[8.0])
        >>> observations, infos = env.reset(seed=0)
        >>> env.travel_rounds("robot_0", [[2500, 5000]], [[2500, 6000], [6500, 5000], [5000, 5000]]).tolist()[0][:2]
        [1, 5]
        >>> _, _, _, _, infos = env.step({"robot_0": np.array([6500.0, 5000.0])})
        >>> infos["robot_0"]["reached"], env.ground.is_free(infos["robot_0"]["location"][None]).tolist()
        (False, [True])

    Version history:
        * v1: no-go regions, heterogeneous robots, batteries, separation, a current, and rovers in MuJoCo (0.1.0).
    """

    def __init__(self, **arguments: Any) -> None:
        settings = convert(require_table(plain(arguments)), RobotTeamV1Settings)
        rover_m = 0.0 if settings.rovers is None else settings.rovers.rover_m
        if settings.robots > 1 and settings.separation_m < _LENGTHS_APART * rover_m:
            told = f"$.separation_m: at {settings.separation_m:g} m rovers of {rover_m:g} m may pass through each other"
            fix = f"separation_m = {_LENGTHS_APART * rover_m:g} or more keeps them apart"
            why = "since their drives are simulated separately"
            warnings.warn(f"{told}, {why}; {fix}", DataWarning, stacklevel=2)
        field = build_field(settings.field, settings.max_sites)
        regions = read_regions(settings.no_go, field.low, field.high, field.coordinates)
        anchors, clearance = {"starts": settings.starts, "bases": settings.bases}, settings.clearance_m + rover_m
        self._set_up(settings, *laid_out(field, anchors, regions, settings.route_cells, clearance))

    def scene(self, width: int, height: int) -> "Scene | None":
        """Three-dimensional scene, drawn in pictures of a size in pixels; None without a physics engine.

        Raises:
            MissingPackageError: If this machine cannot render without a display.
        """
        return self._world.mover.scene(width, height)
