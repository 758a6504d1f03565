"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from swarmbo.errors import StateVersionError
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.world import World

_VERSION = 2

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    world: dict[str, Any]
    seed: _Count
    number: _Count
    round: _Count
    running: bool


def to_state(episode: Episode, world: World) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the team stands.
        world: Where it does.
    """
    plain = _Plain(_VERSION, world.description(), episode.seed, episode.number, episode.round, episode.running)
    return {
        "json": msgspec.to_builtins(plain),
        "arrays": {
            "poses": episode.poses.copy(),
            "last": episode.last.copy(),
            "measured": episode.measured.copy(),
            "samples": episode.samples.copy(),
            "trail_ends": np.cumsum([len(trail) for trail in episode.trails]),
            "trails": np.concatenate(episode.trails),
        },
    }


def from_state(state: Mapping[str, Any], world: World) -> Episode:
    """The episode that was written down.

    Args:
        state: From ``to_state``.
        world: Where it goes on.

    Raises:
        StateVersionError: If the state was written by another version or in another world (the message says what
            differs), or is not a whole state.
    """
    plain = _plain(state)
    if differing := [
        f"{path}: {there!r:.60}, here {here!r:.60}"
        for path, there, here in _differences(plain.world, world.description())
    ]:
        raise StateVersionError(f"got a state of another world ({'; '.join(differing)}); use the same arguments")
    robots, arrays = world.settings.robots, _part(state, "arrays")
    poses = _shaped(arrays, "poses", "f", (robots, 3))
    last = _shaped(arrays, "last", "f", (robots,))
    measured = _shaped(arrays, "measured", "b", (len(world.field.sites),))
    samples = _shaped(arrays, "samples", "f", (robots * (plain.round + 1), 4))
    ends = _shaped(arrays, "trail_ends", "i", (robots,))
    trails = _shaped(arrays, "trails", "f", (int(ends[-1]), 2))
    _hold(bool((np.diff(ends, prepend=0) > 0).all()), "'trail_ends' that rise from above 0")
    _hold(bool((samples[:, 0] == np.tile(np.arange(robots), plain.round + 1)).all()), "one sample per robot and round")
    _hold(all(np.isfinite(known).all() for known in (poses, trails, samples[:, :3])), "places that are finite")
    return Episode(
        seed=plain.seed,
        number=plain.number,
        round=plain.round,
        running=plain.running,
        poses=poses,
        last=last,
        measured=measured,
        trails=np.split(trails, ends[:-1]),
        samples=samples,
    )


def _hold(claim: bool, wanted: str) -> None:
    if not claim:
        raise StateVersionError(f"got a robot-team state that is not whole; wanted {wanted}, as get_state() wrote it")


def _plain(state: Mapping[str, Any]) -> _Plain:
    plain = _part(state, "json")
    version = plain.get("version")
    if version != _VERSION:
        raise StateVersionError(f"got a robot-team state of version {version!r}; wanted {_VERSION}")
    try:
        return msgspec.convert(plain, _Plain)
    except msgspec.ValidationError as error:
        raise StateVersionError(f"got a robot-team state that is not whole: its 'json': {error}") from None


def _part(state: Any, name: str) -> Mapping[str, Any]:
    part = state.get(name) if isinstance(state, Mapping) else None
    if not isinstance(part, Mapping):
        raise StateVersionError("got no robot-team state; wanted {'json': {...}, 'arrays': {...}} of get_state()")
    return part


def _shaped(arrays: Mapping[str, Any], name: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy of one array of the state, of numpy's kind of number and shape."""
    try:
        array = np.array(arrays.get(name))
    except ValueError:  # rows of different lengths
        array = np.array(None)
    _hold(
        array.dtype.kind == kind and array.shape == shape,
        f"an array {name!r} of shape {shape} and numpy's kind {kind!r}, not {array.shape} and {array.dtype.kind!r}",
    )
    return array


def _differences(there: object, here: object, path: str = "$") -> Iterator[tuple[str, object, object]]:
    """Path and both values of everything that differs between two pieces of plain data."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            yield from _differences(there.get(key), here.get(key), f"{path}.{key}")
    elif there != here:
        yield path, there, here
