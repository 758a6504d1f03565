"""A draw of a field at some places from an agent's belief, used as if it were certain."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief import PlaceBelief
from swarmbo.belief.gp.cholesky import factorise

_MOST = 1024  # places of a draw: its cost is cubic, a tenth of a second for so many


@dataclass(frozen=True, eq=False)
class _Certain:
    """Posterior cache of drawn values: means without variance."""

    mean: Float[np.ndarray, " m"]

    @property
    def var(self) -> Float[np.ndarray, " m"]:
        return np.zeros(len(self.mean))

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        return np.zeros((len(self.mean[rows]), len(self.mean[cols])))


@dataclass(frozen=True, eq=False)
class FieldDraw:
    """A belief that treats one draw of the field as the truth; make one with ``of``.

    Means are the drawn values (by place, as bytes); -inf at places left out of the draw, NaN at other places.
    """

    belief: PlaceBelief
    values: Mapping[bytes, float]

    @classmethod
    def of(cls, belief: PlaceBelief, places: Float[np.ndarray, "k d"], rng: np.random.Generator) -> "FieldDraw":
        """A joint draw at places (k, d), physical, k >= 1.

        Of more than 1,024 different places a random subset is drawn, as the cost is cubic.

        Example:
            >>> from swarmbo.belief import ExactGP, ExactGPSettings
            >>> from swarmbo.spaces import Domain
            >>> belief = ExactGP.create(ExactGPSettings(), Domain(np.zeros(1), np.ones(1))).update([[0.5]], [3.0])
            >>> drawn = FieldDraw.of(belief, np.array([[0.1], [0.9]]), np.random.default_rng(0))
            >>> mean, var = drawn.posterior(np.array([[0.9], [0.1]]))
            >>> bool(mean[0] != mean[1]), var.tolist()
            (True, [0.0, 0.0])
        """
        places = np.unique(places, axis=0)
        listed, values = places, dict.fromkeys((place.tobytes() for place in places), -np.inf)
        if len(places) > _MOST:
            listed = places[np.sort(rng.choice(len(places), _MOST, replace=False))]
        cache, every = belief.posterior_cache(listed), np.arange(len(listed))
        root, _ = factorise(cache.cov(every, every))
        drawn = cache.mean + root @ rng.standard_normal(len(listed))
        return cls(belief, values | dict(zip((place.tobytes() for place in listed), drawn.tolist(), strict=True)))

    @property
    def n_data(self) -> int:
        """Number of outcomes behind the draw."""
        return self.belief.n_data

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise, in the square of the outcome's unit."""
        return self.belief.noise_variance

    @property
    def prior_variance(self) -> float:
        """Prior variance of the field, in the square of the outcome's unit."""
        return self.belief.prior_variance

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Drawn values, with zero variance."""
        return self.posterior_mean(X), np.zeros(len(X))

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Drawn values."""
        return np.array([self.values.get(place.tobytes(), np.nan) for place in X])

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> _Certain:
        """Drawn values, with zero covariance."""
        return _Certain(self.posterior_mean(X))

    def at(self, now: float) -> "FieldDraw":
        """The draw itself, which is of one round."""
        return self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "FieldDraw":
        """The draw itself, which has no uncertainty."""
        return self
