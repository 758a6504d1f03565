"""Plumes: what sources let out, carried off by the wind."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from swarmbo.boundary import rng
from swarmbo_envs.fields.field import Field, Surface, lattice
from swarmbo_envs.fields.moving import FieldInTime, with_surface
from swarmbo_envs.fields.settings import PlumeSettings

_PUFFS_PER_ROUND = 4
_LIFETIMES = 6.0  # a puff that has decayed to exp(-6) of its content is let go
_PERIODS = (7.0, 17.0, 41.0)  # of the gusts, rounds
_MAX_SITES = 4096
_MAX_EVALUATION_POINTS = 1000
_SURVEYED = range(0, 100, 2)  # rounds that are looked through for the range of the concentrations
_SURVEY_POINTS = 120


@dataclass(frozen=True, eq=False)
class Puffs:
    """Gaussian bells over the plane.

    Args:
        middles: Where (n, 2), m.
        heights: At the middle (n,).
        variances: Of each (n,), m².
    """

    middles: Float[np.ndarray, "n 2"]
    heights: Float[np.ndarray, " n"]
    variances: Float[np.ndarray, " n"]

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Their sum at places on the map."""
        return np.exp(-0.5 * cdist(X, self.middles, "sqeuclidean") / self.variances) @ self.heights


class Plume:
    """Gaussian puffs in a wind that is everywhere the same and changes with time.

    A puff is let out every quarter of a round. Its variance grows evenly, its content decays exponentially, and its
    middle moves with the wind v(t) = (w, 0) + Σ_k a_k cos(ω_k t + φ_k), whose path has a closed form: so has the field
    of any round.

    Source: Gaussian puff model, Seinfeld & Pandis, Atmospheric Chemistry and Physics, 2006, section 18.6; here in two
    dimensions.

    Args:
        settings: Sources, wind, growth and decay.
    """

    def __init__(self, settings: PlumeSettings) -> None:
        size = np.array(settings.size_m)
        places = [(0.1 * size[0], 0.5 * size[1])] if settings.sources is None else settings.sources
        self.sources = np.array(places, dtype=float)
        self._wind = settings.wind_m_per_round
        self.radius = settings.radius_m or 0.05 * float(size.max())
        growth = settings.spread_m2_per_round
        self._growth = 0.25 * self.radius**2 if growth is None else growth
        self._decay = settings.decay_rounds
        generator = rng.stream(settings.seed, "fields", "plume")
        self._omega = 2 * np.pi / np.array(_PERIODS)
        self._gusts = settings.gusts * self._wind / math.sqrt(len(_PERIODS)) * generator.standard_normal((2, 3))
        self._phases = generator.uniform(0, 2 * np.pi, (2, 3))
        self._ages = np.arange(math.ceil(_LIFETIMES * self._decay * _PUFFS_PER_ROUND)) / _PUFFS_PER_ROUND
        steady = self._wind * self._ages
        self._scale = settings.peak / float(
            (self._height(self._ages) * np.exp(-0.5 * steady**2 / self._variance(self._ages))).sum()
        )

    def surface(self, round_number: float) -> Surface:
        """The concentrations of one round."""
        released = math.floor(round_number * _PUFFS_PER_ROUND) / _PUFFS_PER_ROUND - self._ages
        ages = round_number - released
        offset = self.carried(np.array([float(round_number)])) - self.carried(released)
        middles = (self.sources[:, None, :] + offset).reshape(-1, 2)
        n_sources = len(self.sources)
        heights, variances = self._scale * self._height(ages), self._variance(ages)
        return Puffs(middles, np.tile(heights, n_sources), np.tile(variances, n_sources))

    def carried(self, times: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
        """How far the wind has carried everything since time 0, in metres."""
        phase = self._omega * times[:, None, None] + self._phases
        gusts = (self._gusts / self._omega * (np.sin(phase) - np.sin(self._phases))).sum(axis=2)
        return gusts + np.outer(times, [self._wind, 0.0])

    def _variance(self, ages: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return self.radius**2 + self._growth * ages

    def _height(self, ages: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Height of a puff over that of a new one."""
        return np.exp(-ages / self._decay) * self.radius**2 / self._variance(ages)


def plume_field(settings: PlumeSettings, max_sites: int) -> FieldInTime:
    """A plume over a region; the candidate sites are a lattice.

    Args:
        settings: Sources, wind, growth and decay.
        max_sites: Largest number of candidate sites, of at most 4096.
    """
    low, high = np.zeros(2), np.array(settings.size_m)
    plume, points = Plume(settings), lattice(low, high, _MAX_EVALUATION_POINTS)
    blank = Field(
        name=f"plume {settings.seed}",
        quantity="concentration",
        unit=settings.unit,
        low=low,
        high=high,
        sites=lattice(low, high, min(max_sites, _MAX_SITES)),
        sites_only=False,
        interpolated=False,
        points=points,
        surface=plume.surface(0),
        maximum=0.0,
        argmax=low,
        minimum=0.0,
        reach_m=0.15 * float(high.max()),
    )
    return FieldInTime(with_surface(blank, plume.surface(0)), plume, 0.0, _highest(plume, low, high))


def _highest(plume: Plume, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]) -> float:
    """About the most that a plume comes to in any round: where the wind dies down, or plumes meet, it piles up."""
    turns = np.arange(8) * np.pi / 4
    rings = [step * plume.radius * np.stack([np.cos(turns), np.sin(turns)], axis=1) for step in (0, 1, 2)]
    near = (plume.sources[:, None, None] + np.array(rings)).reshape(-1, 2)
    places = np.clip(np.concatenate([lattice(low, high, _SURVEY_POINTS), near]), low, high)
    return 1.15 * max(float(plume.surface(number)(places).max()) for number in _SURVEYED)
