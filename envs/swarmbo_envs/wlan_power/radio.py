"""How loud everything is: path loss, shadowing, thermal noise."""

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream

LOSS_AT_ONE_METRE_DB = 46.6777
LOSS_PER_DECADE_DB = 30.0
_NEAREST_M = 1.0  # the law is a far field's: nearer than this it would amplify


def path_loss_db(distance_m: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """46.6777 + 30 log10(d / 1 m) dB; of less than a metre that of a metre.

    Source: the default of ns-3's LogDistancePropagationLossModel (exponent 3, reference at 1 m, 5.15 GHz).

    Args:
        distance_m: Distances d, >= 0 m.

    Example:
        >>> float(path_loss_db(np.array(10.0)).round(4))
        76.6777
    """
    return LOSS_AT_ONE_METRE_DB + LOSS_PER_DECADE_DB * np.log10(np.maximum(distance_m, _NEAREST_M))


def noise_dbm(bandwidth_mhz: float, noise_figure_db: float) -> float:
    """Thermal noise at a receiver: -174 dBm/Hz + 10 log10(bandwidth in Hz) + its noise figure.

    Args:
        bandwidth_mhz: Of the channel, > 0.
        noise_figure_db: What the receiver adds.

    Example:
        >>> round(noise_dbm(20.0, 7.0), 3)
        -93.99
    """
    return float(-174.0 + 10.0 * np.log10(1e6 * bandwidth_mhz) + noise_figure_db)


def distances(A: Float[np.ndarray, "k 2"], B: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "k m"]:
    """From every place of one list to every place of another, m."""
    return np.hypot(*np.moveaxis(A[:, None] - B[None], -1, 0))


def shadowing_between(seed: int, std_db: float, n_points: int) -> Float[np.ndarray, "k k"]:
    """What obstacles add to the loss between access points, normal and independent by pair, the same both ways.

    Args:
        seed: Of the topology.
        std_db: Standard deviation, dB; 0 adds nothing.
        n_points: Number of access points k.
    """
    rng = stream(seed, "shadowing", "access points")
    upper = np.triu(std_db * rng.standard_normal((n_points, n_points)), 1)
    return upper + upper.T


def shadowing_to_users(seed: int, std_db: float, n_points: int, n_users: int) -> Float[np.ndarray, "k m"]:
    """What obstacles add to the loss from access points to users; it stays with a link when its user walks.

    Args:
        seed: Of the topology.
        std_db: Standard deviation, dB; 0 adds nothing.
        n_points: Number of access points k.
        n_users: Number of users m.
    """
    return std_db * stream(seed, "shadowing", "users").standard_normal((n_points, n_users))
