"""Back and forth in lanes."""

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.errors import ConfigError
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings
from swarmbo.spaces import Domain


@kind("coordination", FIELD)
class LawnMower(Settings, frozen=True, tag_field="kind", tag="lawn-mower"):
    """Boustrophedon sweep: the map is cut into one strip per agent, each swept in lanes over the planned rounds.

    Lanes are spaced like the measurements along them, so that the sweep covers evenly. Each round an agent goes to
    the reachable place nearest to its way-point of that round. Needs two dimensions and a known number of rounds.

    Example:
        >>> import swarmbo as sb
        >>> settings = {"coordination": "lawn-mower", "rounds": 4}
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], **settings)
        >>> sweep = [team.ask().points for _ in range(4)]
        >>> all(points["a"][0] < 0.5 < points["b"][0] for points in sweep)  # a strip for each
        True
        >>> heights = [float(points["a"][1]) for points in sweep]
        >>> heights == sorted(heights)  # one lane, from south to north
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Follow the way-points; the acquisition is not looked at."""
        if situation.domain.n_dims != 2:
            raise ConfigError(
                f"a lawn-mower sweep needs 2 coordinates, got {situation.domain.n_dims}; choose another kind",
                at="$.coordination.kind",
            )
        if situation.horizon is None:
            raise ConfigError("a lawn-mower sweep needs the number of rounds; give `rounds`", at="$.rounds")
        strips = strip_of_agents(situation)
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            path = sweep_path(
                situation.domain, strips[agent], len(strips), situation.horizon, situation.starts.get(agent)
            )
            target = path[min(situation.round, len(path)) - 1]
            places = situation.candidates[agent]
            points[agent] = places[int(np.linalg.norm(places - target, axis=1).argmin())]
        return Decision(points, SolveReport(status="not_needed"))


def strip_of_agents(situation: Situation) -> dict[str, int]:
    """Which strip each agent sweeps: strips from west to east go to agents in the order of their starts."""
    team = list(dict.fromkeys([*situation.starts, *situation.agents]))

    def start_x(agent: str) -> float:
        return float(situation.starts[agent][0]) if agent in situation.starts else np.inf

    return {agent: strip for strip, agent in enumerate(sorted(team, key=lambda agent: (start_x(agent), agent)))}


def sweep_path(
    domain: Domain, strip: int, n_strips: int, n_points: int, start: Float[np.ndarray, " 2"] | None
) -> Float[np.ndarray, "n_points 2"]:
    """Way-points of one strip, evenly spaced along its lanes, beginning at the corner nearest to the start.

    Args:
        domain: The map.
        strip: Which strip, from 0 in the west.
        n_strips: How many there are.
        n_points: Way-points wanted, >= 1.
        start: Where the agent begins; None for the south-western corner.
    """
    width, height = (domain.high - domain.low) / (n_strips, 1)
    west = domain.low[0] + strip * width
    spacing = np.sqrt(width * height / n_points)
    n_lanes = max(1, round(width / spacing))
    lanes = west + width * (np.arange(n_lanes) + 0.5) / n_lanes
    margin = min(spacing, height) / 2
    ends = np.array([domain.low[1] + margin, domain.high[1] - margin])
    if start is not None:
        if abs(start[0] - lanes[-1]) < abs(start[0] - lanes[0]):
            lanes = lanes[::-1]
        if abs(start[1] - ends[1]) < abs(start[1] - ends[0]):
            ends = ends[::-1]
    corners = np.array([(x, y) for n, x in enumerate(lanes) for y in (ends if n % 2 == 0 else ends[::-1])])
    along = np.concatenate([[0.0], np.linalg.norm(np.diff(corners, axis=0), axis=1).cumsum()])
    at = np.linspace(0.0, along[-1], n_points)
    return np.column_stack([np.interp(at, along, corners[:, axis]) for axis in range(2)])
