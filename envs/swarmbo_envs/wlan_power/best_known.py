"""The best powers that are known of a network: what regret is measured against."""

import functools

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.stats import qmc

from swarmbo.rng import stream
from swarmbo_envs.wlan_power.network import Network

_STARTS = 512  # from 64 on, the default topologies of seeds 0 to 19 give the same maximum to 1e-6 Mbit/s


@functools.lru_cache(maxsize=256)
def best_known(network: Network, low: float, high: float, starts: int = _STARTS) -> tuple[tuple[float, ...], float]:
    """The best of many climbs by L-BFGS-B on the noise-free capacity, with its analytic gradient; kept by network.

    The function has many local maxima, most of them in corners where some access points whisper. Climbs start at a
    scrambled Sobol sequence; every other start is pushed to the nearest corner. This is a lower bound on the maximum,
    not a proof.

    Args:
        network: The access points and users.
        low: Least power, dBm.
        high: Largest power, dBm.
        starts: How many climbs, >= 1.

    Returns:
        Powers (k,) in dBm, and the capacity in Mbit/s.
    """
    k = network.n_points
    unit = qmc.Sobol(k, rng=stream(0, "best known powers")).random(starts)
    unit[1::2] = np.round(unit[1::2])
    best, place = -np.inf, np.full(k, low)
    for start in [np.ones(k), *unit]:
        end = minimize(
            _descent,
            low + start * (high - low),
            args=(network,),
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, high)] * k,
            options={"ftol": 1e-13, "gtol": 1e-7},
        )
        if -end.fun > best:
            best, place = -float(end.fun), np.asarray(end.x, dtype=float)
    return tuple(place.tolist()), float(network.value(place[None])[0])


def _descent(x: Float[np.ndarray, " k"], network: Network) -> tuple[float, Float[np.ndarray, " k"]]:
    value, gradient = network.value_and_gradient(x)
    return -value, -gradient
