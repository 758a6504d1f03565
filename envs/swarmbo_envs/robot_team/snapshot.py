"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from swarmbo_envs import saved_state
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.world import World
from swarmbo_envs.saved_state import SavedState

_VERSION = 2


def to_state(episode: Episode, world: World) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the team stands.
        world: Where it does.
    """
    arrays = {name: getattr(episode, name) for name in ("poses", "last", "measured", "samples")}
    arrays |= {
        "trail_ends": np.cumsum([len(trail) for trail in episode.trails]),
        "trails": np.concatenate(episode.trails),
    }
    if world.settings.version > 0:
        arrays |= {name: getattr(episode, name) for name in ("batteries", "bases", "on_the_way")}
    if world.settings.rovers is not None:
        arrays |= {"engine": episode.engine}
    return saved_state.to_state(episode, _VERSION, world.description(), arrays)


def from_state(state: Mapping[str, Any], world: World) -> Episode:
    """The episode that was written down.

    Args:
        state: From ``to_state``.
        world: Where it goes on.

    Raises:
        StateVersionError: If the state was written by another version or in another world (the message says what
            differs), or is not a whole state.
    """
    saved = SavedState(state, "robot-team", _VERSION, world.description())
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
