"""How users of a WLAN change between two rounds: they walk, leave, and come back."""

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo_envs.wlan_power.episode import Episode
from swarmbo_envs.wlan_power.settings import WlanPowerSettings
from swarmbo_envs.wlan_power.topology import Topology


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
