"""Where an episode of a WLAN stands, written down and read back; and how its users change."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from swarmbo.errors import StateVersionError
from swarmbo.rng import stream
from swarmbo_envs.saved_state import Plain
from swarmbo_envs.wlan_power.settings import WlanPowerSettings
from swarmbo_envs.wlan_power.topology import Topology

_VERSION = 1


class Episode(msgspec.Struct):
    """Where an episode stands.

    Args:
        seed: Of noise, failures and users.
        number: Of the episode with this seed.
        round: Rounds that are over.
        running: Whether agents are live.
        powers: Transmit powers (k,), dBm.
        last: Last good measurement of each agent (k,); NaN while there is none.
        totals: What the network got in each round without noise, Mbit/s; NaN where a simulation failed.
        users: Places (m, 2), m.
        present: Which users are there (m,).
    """

    seed: int
    number: int
    round: int
    running: bool
    powers: Float[np.ndarray, " k"]
    last: Float[np.ndarray, " k"]
    totals: list[float]
    users: Float[np.ndarray, "m 2"]
    present: Bool[np.ndarray, " m"]


def move_users(episode: Episode, settings: WlanPowerSettings, topology: Topology) -> None:
    """What users do between two rounds: walk, leave, come back. Changes the episode.

    Steps are normal along each axis; who would walk out of the area is reflected at its edge. A user whose departure is
    stated leaves then, for good unless it returns by chance.

    Args:
        episode: In the round that begins.
        settings: Lengths of steps and probabilities.
        topology: For the area.
    """
    names = {"episode": episode.number, "round": episode.round}
    if settings.mobility_m:
        steps = stream(episode.seed, "environment", "mobility", **names).standard_normal(episode.users.shape)
        episode.users = _reflected(episode.users + settings.mobility_m * steps, topology.low, topology.high)
    if settings.leave_rate or settings.return_rate:
        luck = stream(episode.seed, "environment", "churn", **names).random(len(episode.present))
        episode.present = np.where(episode.present, luck >= settings.leave_rate, luck < settings.return_rate)
    for at, user in settings.departures:
        if at == episode.round:
            episode.present[user] = False


def _reflected(
    places: Float[np.ndarray, "m 2"], low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "m 2"]:
    sides = np.maximum(high - low, np.finfo(float).tiny)
    phase = np.mod(places - low, 2.0 * sides)
    return np.clip(low + np.minimum(phase, 2.0 * sides - phase), low, high)


def to_state(episode: Episode, world: dict[str, Any]) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one."""
    plain = Plain(_VERSION, world, episode.seed, episode.number, episode.round, episode.running)
    names = ("powers", "last", "totals", "users", "present")
    return {"json": msgspec.to_builtins(plain), "arrays": {name: np.array(getattr(episode, name)) for name in names}}


def from_state(state: Mapping[str, Any], world: dict[str, Any], n_points: int, n_users: int) -> Episode:
    """The episode that was written down.

    Args:
        state: From ``to_state``.
        world: What makes the world that it goes on in this one.
        n_points: Number of access points k.
        n_users: Number of users m.

    Raises:
        StateVersionError: If another version or another world wrote it, or it is not whole.
    """
    plain, arrays = state.get("json"), state.get("arrays")
    if not isinstance(plain, Mapping) or not isinstance(arrays, Mapping):
        raise StateVersionError("got no WLAN state; wanted {'json': {...}, 'arrays': {...}} of get_state()")
    if plain.get("version") != _VERSION:
        raise StateVersionError(f"got a WLAN state of version {plain.get('version')!r}; wanted {_VERSION}")
    try:
        told = msgspec.convert(plain, Plain)
    except msgspec.ValidationError as error:
        raise StateVersionError(f"got a WLAN state that is not whole: its 'json': {error}") from None
    if differing := sorted(key for key in {*told.world, *world} if told.world.get(key) != world.get(key)):
        raise StateVersionError(
            f"got a state of another WLAN (it differs in {', '.join(differing)}); use the same arguments"
        )
    return Episode(
        told.seed,
        told.number,
        told.round,
        told.running,
        powers=_shaped(arrays, "powers", "f", (n_points,)),
        last=_shaped(arrays, "last", "f", (n_points,)),
        totals=_shaped(arrays, "totals", "f", (told.round,)).tolist(),
        users=_shaped(arrays, "users", "f", (n_users, 2)),
        present=_shaped(arrays, "present", "b", (n_users,)),
    )


def _shaped(arrays: Mapping[str, Any], name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(arrays.get(name))
    if array.dtype.kind != kind or array.shape != shape:
        raise StateVersionError(
            f"got {name!r} of shape {array.shape} and numpy's kind {array.dtype.kind!r}; wanted {shape} and {kind!r}"
        )
    return array
