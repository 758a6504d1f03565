"""Fields drawn from a Gaussian process prior."""

import numpy as np
from jaxtyping import Float

from swarmbo import kernels, rng
from swarmbo_envs.robot_team.fields import Field, lattice, summit
from swarmbo_envs.robot_team.settings import DrawSettings

_N_FEATURES = 1024
_MAX_SITES = 4096
_MAX_EVALUATION_POINTS = 2500


class Drawn:
    """One function from the prior, about its mean."""

    def __init__(self, settings: DrawSettings) -> None:
        lengthscales = np.full(2, settings.lengthscale_m)
        generator = rng.stream(settings.seed, "robot_team", "field")
        self._mean = settings.mean
        self._about_mean = kernels.draw(generator, settings.kernel, lengthscales, settings.std**2, _N_FEATURES)

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """The function at places, in metres."""
        return self._mean + self._about_mean(X)


def drawn_field(settings: DrawSettings, max_sites: int) -> Field:
    """A seeded draw over a region; the candidate sites are a lattice.

    Args:
        settings: The prior, the seed and the region.
        max_sites: Largest number of candidate sites, of at most 4096.
    """
    low, high = np.zeros(2), np.array(settings.size_m)
    surface = Drawn(settings)
    per_lengthscale = 4  # places along a lengthscale: dense enough to have one on the slope of every peak
    dense = np.prod(per_lengthscale * high / settings.lengthscale_m)
    maximum, argmax = summit(surface, lattice(low, high, int(np.clip(dense, 1024, 4 * _MAX_SITES))), low, high)
    sites = lattice(low, high, min(max_sites, _MAX_SITES))
    return Field(
        name=f"GP draw {settings.seed} ({settings.kernel}, lengthscale {settings.lengthscale_m:g} m)",
        quantity="value",
        unit="",
        low=low,
        high=high,
        sites=sites,
        sites_only=False,
        interpolated=False,
        points=lattice(low, high, _MAX_EVALUATION_POINTS),
        surface=surface,
        maximum=maximum,
        argmax=argmax,
        minimum=float(surface(sites).min()),
        reach_m=0.15 * float(high.max()),
    )
