"""Fields drawn from a Gaussian process prior, over space or over space and time."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo import kernels
from swarmbo.boundary import rng
from swarmbo_envs.fields.field import Field, Surface, lattice, summit
from swarmbo_envs.fields.moving import FieldInTime, with_surface
from swarmbo_envs.fields.settings import ChangeSettings, DrawSettings

_N_FEATURES = 1024
_MAX_SITES = 4096
_MAX_EVALUATION_POINTS = 2500
_MAX_MOVING_POINTS = 1000  # of a field whose truth is kept for every round


@dataclass(frozen=True, eq=False)
class Raised:
    """A function about a mean.

    Args:
        mean: Added to its values.
        about_mean: The function.
    """

    mean: float
    about_mean: Surface

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Values at places, in metres."""
        return self.mean + self.about_mean(X)


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


class DrawnInTime:
    """One function of place and round from a separable prior, about its mean.

    A product of kernels over different coordinates has the product of their spectral densities: frequencies over places
    and over rounds are drawn side by side.
    """

    def __init__(self, settings: DrawSettings, change: ChangeSettings) -> None:
        generator = rng.stream(settings.seed, "fields", "draw in time")
        n, lengthscales = _N_FEATURES // 2, np.full(2, settings.lengthscale_m)
        over_places = kernels.spectral_frequencies(generator, settings.kernel, lengthscales, n)
        over_rounds = kernels.spectral_frequencies(generator, change.kernel, np.array([change.lengthscale_rounds]), n)
        self._weights = settings.std / np.sqrt(n) * generator.standard_normal((2, n))
        self._over_places, self._over_rounds, self._mean = over_places, over_rounds[:, 0], settings.mean

    def surface(self, round_number: float) -> Surface:
        """The function of one round: sines and cosines over places, whose weights turn with time."""
        (sines, cosines), phase = self._weights, self._over_rounds * round_number
        turned = sines * np.cos(phase) - cosines * np.sin(phase), sines * np.sin(phase) + cosines * np.cos(phase)
        return Raised(self._mean, kernels.FourierDraw(self._over_places, *turned))


def drawn_in_time(settings: DrawSettings, max_sites: int) -> FieldInTime:
    """A seeded draw over a region, that changes if the settings say how; see ``drawn_field``."""
    if settings.time is None:
        return FieldInTime(drawn_field(settings, max_sites))
    change, low, high = DrawnInTime(settings, settings.time), np.zeros(2), np.array(settings.size_m)
    blank = Field(
        name=f"{_title(settings)}, {settings.time.lengthscale_rounds:g} rounds)",
        quantity="value",
        unit="",
        low=low,
        high=high,
        sites=lattice(low, high, min(max_sites, _MAX_SITES)),
        sites_only=False,
        interpolated=False,
        points=lattice(low, high, _MAX_MOVING_POINTS),
        surface=change.surface(0),
        maximum=0.0,
        argmax=low,
        minimum=0.0,
        reach_m=0.15 * float(high.max()),
    )
    span = 3.0 * settings.std
    return FieldInTime(with_surface(blank, change.surface(0)), change, settings.mean - span, settings.mean + span)


def _title(settings: DrawSettings) -> str:
    return f"GP draw {settings.seed} ({settings.kernel}, lengthscale {settings.lengthscale_m:g} m"


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
        name=f"{_title(settings)})",
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
