"""Joint settings of a network: powers, and beside them the channels and widths that access points choose."""

import numpy as np
from jaxtyping import Float

from swarmbo_envs.shared import Values
from swarmbo_envs.wlan_power.network import Network
from swarmbo_envs.wlan_power.spectrum import shares


def levels(network: Network, low: float, high: float, n: int) -> list[np.ndarray]:
    """Values of each setting in a joint one: ``n`` powers evenly from least to largest, all positions of choices."""
    choices = {} if network.spectrum is None else network.spectrum.choices
    sizes = [np.arange(float(len(values))) for values in choices.values()]
    return [axis for axis in [np.linspace(low, high, n), *sizes] for _ in range(network.n_points)]


def at_shares(network: Network, U: Float[np.ndarray, "n d"], low: float, high: float) -> Float[np.ndarray, "n d"]:
    """Joint settings at shares in [0, 1) of the range of each power, and of the list of each choice."""
    k, sizes = network.n_points, [len(axis) for axis in levels(network, low, high, 2)]
    return np.hstack([low + U[:, :k] * (high - low), np.floor(U[:, k:] * sizes[k:])])


def coloured(network: Network, high: float) -> Values:
    """Joint setting by greedy colouring: all at largest power and the first width, on channels that avoid others.

    The access points that disturb and are disturbed most choose first; each takes the channel with the least
    interference with those that have chosen, counted as the sum of gains to each other's users.

    Source: Mishra, Banerjee & Arbaugh 2005, Weighted coloring based channel assignment for WLANs.
    """
    k, spectrum, unwanted = network.n_points, network.spectrum, network.gains[1]
    point = np.concatenate([np.full(k, high), np.zeros(len(levels(network, high, high, 1)) - k)])
    if spectrum is None:
        return point
    received = np.array([unwanted[network.serving == i].sum(axis=0) for i in range(k)])
    weights = received + received.T
    common = shares([(channel, spectrum.widths_mhz[0]) for channel in spectrum.channels])
    taken = np.zeros((k, len(common)))  # what others put into each channel of each access point
    for i in np.argsort(-weights.sum(axis=1), kind="stable"):
        point[k + i] = chosen = int(taken[i].argmin())
        taken += weights[i][:, None] * common[:, chosen]
    return point
