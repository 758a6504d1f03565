"""Predictions of one field: exact ones, or by tiles if there are many measurements."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp import tiles
from swarmbo.belief.gp.conditioning import JointPosterior
from swarmbo.belief.gp.engine import ChannelGP
from swarmbo.belief.gp.spatial import FieldGP
from swarmbo.records import Neglected

Marginals = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class TiledField(ChannelGP, FieldGP):
    """Field with one latent; above ``tiles.TILED_FROM`` measurements, predictions use tiles of them."""

    channel: ClassVar[int] = 0
    is_one_latent: ClassVar[bool] = True

    @cached_property
    def _tiles(self) -> tiles.Tiles:
        return tiles.Tiles.of(self.channels, self.observations)

    def _with(self, **changes: Any) -> Self:
        other = super()._with(**changes)
        if "_tiles" in vars(self) and other.points is self.points and other.hyperparameters is self.hyperparameters:
            vars(other)["_tiles"] = self._tiles  # neither the round nor what is pending changes them
        return other

    @property
    def is_tiled(self) -> bool:
        """True with more than 2,000 measurements: predictions use only the nearest ones (``gp.tiles``)."""
        return len(self.points) > tiles.TILED_FROM

    def marginals(self, X: ArrayLike) -> Marginals:
        """Means and variances by tiles at points (m, d), physical, without pending points."""
        return self._tiles.marginals(self._query(self._points(X)))

    def posterior(self, X: ArrayLike) -> Marginals:
        """Means (m,) and variances (m,) >= 0 of the field at points (m, d), physical, as ``SpatialGP.posterior``."""
        return self.marginals(X) if self.is_tiled and not self.n_pending else super().posterior(X)

    def posterior_mean(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Means (m,) at points (m, d), physical."""
        return self.marginals(X)[0] if self.is_tiled else super().posterior_mean(X)

    def posterior_cache(
        self, X: ArrayLike, marginals: Callable[[Float[np.ndarray, "k c"]], Marginals] | None = None
    ) -> JointPosterior:
        """Posterior at fixed points (m, d), physical, which gives covariances cheaply.

        With tiles, correlations of points are conditioned only on the 256 measurements nearest to the points.

        Args:
            X: Points.
            marginals: Function of points with rounds that returns means and variances given the data; by default by
                tiles.
        """
        if not self.is_tiled:
            return super().posterior_cache(X)
        ahead = np.column_stack([self.pending, self.pending_rounds]) if self.has_time else self.pending
        both = np.concatenate([self._points(X), ahead])
        joint = self._tiles.joint(self._query(both), *(marginals or self.marginals)(both))
        return joint.given_last(self.n_pending, self.noise_variance)

    def neglected(self) -> Neglected:
        """Effect of the measurements that tiles leave out, at 8 measured locations spread over the first coordinate."""
        return self._tiles.neglected(self.now if self.has_time else 0.0)
