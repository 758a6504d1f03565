"""Where the robots begin."""

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.robot_team.settings import RobotTeamSettings


def checked_starts(settings: RobotTeamSettings, field: Field) -> Float[np.ndarray, "robots 2"] | None:
    """The starts that the settings ask for; None to draw them.

    Args:
        settings: Of the team. Robots with bases and no starts start there, or at the free sites nearest to a base
            that they share.
        field: What is measured; if only at sites, every start moves to the nearest free one.

    Raises:
        ConfigError: If two starts are equal, or there are more robots than sites to start at.
    """
    if (settings.starts is None or field.sites_only) and settings.robots > len(field.sites):
        raise ConfigError(f"got {settings.robots}; wanted at most one per site: {len(field.sites)}", at="$.robots")
    bases = settings.rules().bases
    if settings.starts is None and bases is not None:
        places = np.array(bases, dtype=float)
        is_distinct = len(np.unique(places, axis=0)) == len(places)
        return places if is_distinct and not field.sites_only else nearest_free_sites(places, field.sites)
    if settings.starts is None:
        return None
    starts = np.array(settings.starts, dtype=float)
    for i, start in enumerate(starts):
        if (start == starts[:i]).all(axis=1).any():
            raise ConfigError(f"got {start.tolist()} twice; wanted different places", at=f"$.starts[{i}]")
    return nearest_free_sites(starts, field.sites) if field.sites_only else starts


def nearest_free_sites(
    starts: Float[np.ndarray, "robots 2"], sites: Float[np.ndarray, "k 2"]
) -> Float[np.ndarray, "robots 2"]:
    """For each start in turn, the nearest site that none before it took."""
    free, chosen = np.ones(len(sites), dtype=bool), np.empty(len(starts), dtype=int)
    for robot, start in enumerate(starts):
        squared = np.where(free, ((sites - start) ** 2).sum(axis=1), np.inf)
        chosen[robot] = squared.argmin()
        free[chosen[robot]] = False
    return sites[chosen]
