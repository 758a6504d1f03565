"""The robot team with what robots meet outside: regions that are no-go, batteries, currents, and one another."""

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
    from swarmbo_envs.robot_team.physics.scene import Scene


_LENGTHS_APART = 1.5  # of a rover, from middle to middle, at which two of them never touch


class RobotTeamV1(RobotTeam, arguments=RobotTeamV1Settings, name="robot_team_v1"):
    """A ``RobotTeam`` in a world like those that robots meet; without the arguments below it is one to the bit.

    **Regions that are no-go.** No robot is ever in one, nor on its way: the map is laid out in cells, those that a
    region touches are blocked, and robots drive round them. They turn on the spot and drive straight courses from bend
    to bend, by the shortest paths on the graph of bends that see each other; in the open they drive arcs, as those of
    ``RobotTeam`` do. An action in a region, or where there is no way, is taken as the nearest site. The truth is that
    of what can be measured.

    **Unlike robots.** ``speed_m_s``, ``turn_rate_rad_s``, ``radio_range_m``, ``noise_std`` and ``battery_s`` take one
    number, or a list of one for each robot. Where sensors are unlike, infos tell the noise of each measurement. Two
    robots hear each other where both ranges allow.

    **Batteries.** ``candidates`` has only places from which a robot gets home. One that is asked for more goes home,
    and so does one whose battery, without the way home, does not last for another round: it has one candidate, where
    that takes it. At its base it is full again. Turning and driving take battery, standing does not. Where only sites
    can be measured, who goes home does not measure, which ``sampled`` says.

    **Separation.** Robots drive in the order of their numbers, and who would come too near to one before it, or to
    where one after it stands, stops on the way, and measures there.

    **Current.** Robots hold their course against it; it makes ways longer one way and shorter the other.

    **On the way** robots measure ``samples_per_leg`` times or every ``sample_every_m`` metres, besides where they stop.
    The reward is that of the measurement where they stop.

    **Physics.** With ``physics = "mujoco"`` robots are rovers in MuJoCo: a body with two driven wheels and two casters
    on the field as terrain, with walls at the edge of the map. They plan as above, with four fifths of their speed, and
    follow their ways as well as the ground lets them; they measure where they truly are. A place or base
    counts as reached within a rover's length. Who tips over, gets stuck or slides off its way by more
    than three quarters of its length has failed in that round, and is put upright on its way where it had got to; who
    runs out of battery is carried to its base. Rovers keep their length, too, from what is no-go, and stay where no
    other is at any time of the round. Each drives in a simulation of its own: with a ``separation_m`` below one and a
    half of their lengths, as by default, they may pass through each other, of which a warning tells. With
    ``sites = "only"`` they measure the site that they stand at.

    | ``infos[agent]`` also has | type | meaning |
    |---|---|---|
    | ``noise_std`` | float | of the measurement, where sensors are unlike |
    | ``on_the_way`` | list | what it measured on the way, in turn: ``location``, ``measurement``, ``noise_std`` |
    | ``path`` | array (k, 2) | points along what it drove in this round, m |
    | ``battery`` | float | share of the battery that is left, where there are batteries |
    | ``failure`` | str | what became of a rover that measured nothing: ``tipped over``, ``stuck``, ``off its way`` or \
``battery empty`` |

    With batteries, observations end with the share that is left: Box (6,).

    Args:
        battery_s: Time that a robot can turn and drive on one load, 1e-6 to 1e12 s. Default: no end.
        bases: Where robots load: one [x, y] in m for all, or one for each. Default: where each starts. Without
            ``starts`` robots start at their bases, or if they share one at the free sites nearest to it.
        separation_m: How near two robots may come at any moment, >= 0. They keep a little more, as each looks for the
            others at 513 moments of a round.
        wind: The current (east, north) in m/s, below 95 % of the slowest robot's speed.
        samples_per_leg: Measurements on the way of a round, evenly over what is driven, besides the one at its end, 0
            to 64.
        sample_every_m: In their place, metres driven between measurements; at most 64 on the way of a round.
        no_go: Tables ``{corners = [[x, y], ...]}`` in m on the map, ``{geojson = FILE, coordinates = "degrees" |
            "metres"}``, or ``{raster = FILE, nodata = NUMBER, extent = [west, south, east, north]}`` with a ``.npy``
            array (true cells, NaN and nodata are no-go; first row in the north) or a GeoTIFF (extra ``geo``).
        clearance_m: How far robots keep from these regions besides, >= 0.
        route_cells: Cells along the map's longer side, 8 to 512, by which ways are found: passages narrower than two
            cells may be shut, of which a warning tells where that matters.
        physics: ``kinematic``: robots drive as their equations of motion say; ``mujoco`` (extra ``mujoco``), or with
            its settings ``{mujoco = {rover_m = 3.0, ...}}``, those of ``MujocoSettings``.
        **others: As of ``RobotTeam``.

    Raises:
        ConfigError: If an argument is wrong; the message has its path, as in ``$.no_go[0].geojson``.
        MissingPackageError: If a GeoTIFF is named and the extra ``geo`` is not installed, or an engine without its
            extra.

    Warns:
        DataWarning: If cells shut a passage that matters, or rovers may pass through each other.

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
        * v1: no-go regions, unlike robots, batteries, separation, a current, and rovers in MuJoCo (0.1.0).
    """

    def __init__(self, **arguments: Any) -> None:
        settings = convert(require_table(plain(arguments)), RobotTeamV1Settings)
        if settings.rovers is not None and settings.robots > 1:
            _tell_of_contact(settings.separation_m, settings.rovers.rover_m)
        field = build_field(settings.field, settings.max_sites)
        regions = read_regions(settings.no_go, field.low, field.high, field.projection, field.frame)
        clearance = settings.clearance_m + (0.0 if settings.rovers is None else settings.rovers.rover_m)
        anchors = {"starts": settings.starts, "bases": settings.bases}
        self._set_up(settings, *laid_out(field, anchors, regions, settings.route_cells, clearance))

    def scene(self, width: int, height: int) -> "Scene | None":
        """Scene in three dimensions; None where no engine moves the robots.

        Args:
            width: Of pictures, pixels.
            height: Of pictures, pixels.

        Raises:
            MissingPackageError: If nothing on this machine can draw without a display.
        """
        return self._world.mover.scene(width, height)


def _tell_of_contact(separation_m: float, rover_m: float) -> None:
    """One line where rovers may pass through each other: each drives in a simulation of its own."""
    if separation_m < _LENGTHS_APART * rover_m:
        warnings.warn(
            f"$.separation_m: at {separation_m:g} m rovers of {rover_m:g} m may pass through each other, since each "
            f"drives in a simulation of its own; separation_m = {_LENGTHS_APART * rover_m:g} or more keeps them apart",
            DataWarning,
            stacklevel=3,
        )
