"""An episode written down as arrays, and read back, in the same world only."""

from typing import Any

import numpy as np

from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.settings import RobotTeamSettings
from swarmbo_envs.robot_team.world import World
from swarmbo_envs.saved_state import SavedState


def arrays_of(episode: Episode, settings: RobotTeamSettings) -> dict[str, Any]:
    """What a state has of an episode in a world of these settings."""
    arrays = {name: getattr(episode, name) for name in ("poses", "last", "measured", "samples")}
    arrays |= {
        "trail_ends": np.cumsum([len(trail) for trail in episode.trails]),
        "trails": np.concatenate(episode.trails),
    }
    if settings.version > 0:
        arrays |= {name: getattr(episode, name) for name in ("batteries", "bases", "on_the_way")}
    return arrays if settings.rovers is None else {**arrays, "engine": episode.engine}


def episode_of(saved: SavedState, world: World) -> Episode:
    """The episode that was written down.

    Raises:
        StateVersionError: If it is not a whole state.
    """
    plain, robots = saved.plain, world.settings.robots
    poses = saved.array("poses", "f", (robots, 3))
    last = saved.array("last", "f", (robots,))
    measured = saved.array("measured", "b", (len(world.field.sites),))
    samples = saved.array("samples", "f", (robots * (plain.round + 1), 4))
    ends = saved.array("trail_ends", "i", (robots,))
    trails = saved.array("trails", "f", (int(ends[-1]), 2))
    engine = np.empty((robots, 0))
    batteries, bases, on_the_way = np.full(robots, np.inf), poses[:, :2].copy(), np.empty((0, 4))
    if world.settings.version > 0:
        batteries, bases = saved.array("batteries", "f", (robots,)), saved.array("bases", "f", (robots, 2))
        on_the_way = saved.array("on_the_way", "f", (saved.rows_of("on_the_way"), 4))
        is_one = np.isin(on_the_way[:, 0], np.arange(robots)).all() and np.isfinite(on_the_way[:, :3]).all()
        saved.hold(bool(is_one), "measurements on the way of its robots")
        saved.hold(bool((batteries >= 0.0).all() and np.isfinite(bases).all()), "batteries >= 0, and bases")
    if world.settings.rovers is not None:
        engine = saved.array("engine", "f", (robots, world.mover.n_state))
        saved.hold(bool(np.isfinite(engine).all()), "an engine's state that is finite")
    saved.hold(bool((np.diff(ends, prepend=0) > 0).all()), "'trail_ends' that rise from above 0")
    saved.hold(
        bool((samples[:, 0] == np.tile(np.arange(robots), plain.round + 1)).all()), "one sample per robot and round"
    )
    saved.hold(all(np.isfinite(known).all() for known in (poses, trails, samples[:, :3])), "places that are finite")
    return Episode(
        **saved.common,
        poses=poses,
        last=last,
        measured=measured,
        trails=np.split(trails, ends[:-1]),
        samples=samples,
        on_the_way=on_the_way,
        batteries=batteries,
        bases=bases,
        engine=engine,
    )
