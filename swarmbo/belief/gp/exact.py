"""An exact Gaussian process over a box: the team's belief about one field.

The model is y = offset + scale (mean + f(u) + noise), f a zero-mean Gaussian process over the unit cube; over the cube
and the round if the settings have a time axis, so that old data lose weight. Hyper-parameters, the mean, offset and
scale change only in ``fit``; predictions use their fitted values, so no variance includes their uncertainty.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp import conditioning, fit as fits, spatial, tiles
from swarmbo.belief.gp.cholesky import Factorised
from swarmbo.belief.gp.engine import ChannelGP
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, ExactGPSettings, Hyperparameters
from swarmbo.errors import ShapeError, StateVersionError
from swarmbo.records import Neglected
from swarmbo.settings import convert
from swarmbo.spaces import Domain

Marginals = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]

_VERSION = 6  # 6: no Cholesky factor if predictions are by tiles; 5: the array of rounds is named ``rounds``
_ARRAYS = dict.fromkeys(("points", "totals", "factors", "noise", "rounds", "pending", "pending_rounds"), float)
_ARRAYS |= {"awaited": bool}
_PLAIN = ("tells_since_fit", "is_fitted", "now")


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactGP(ChannelGP, spatial.FieldGP):
    """Immutable belief about a field: every method that learns returns a new one. Make one with ``create``.

    It is ``ChannelGP``, the engine of all exact beliefs, with one latent, which is observed at each row's location.
    Other predictions and the fields not listed here are those of ``ChannelGP``. With more than 2,000 measurements it
    predicts by tiles, not exactly (``is_tiled``): no matrix contains all of them.

    Args:
        settings: Kernel, priors and effort of a fit.
        tells_since_fit: Number of updates with data since the last fit.
        is_fitted: True if the hyper-parameters come from a fit.

    Example:
        >>> domain = Domain(np.zeros(2), np.array([100.0, 50.0]))
        >>> belief = ExactGP.create(ExactGPSettings(), domain)
        >>> belief = belief.update(np.array([[10.0, 10.0], [90.0, 40.0]]), np.array([300.0, 420.0]))
        >>> belief = belief.fit(np.random.default_rng(0))
        >>> mean, var = belief.posterior(np.array([[10.0, 10.0]]))
        >>> bool(abs(mean[0] - 300.0) < 1.0), bool(0.0 < var[0] < belief.prior_variance)
        (True, True)
    """

    channel: ClassVar[int] = 0
    is_one_latent: ClassVar[bool] = True

    settings: ExactGPSettings
    tells_since_fit: int = 0
    is_fitted: bool = False

    @classmethod
    def create(cls, settings: ExactGPSettings, domain: Domain) -> "ExactGP":
        """A belief without data over a box of physical points, at the mode of its prior (in logarithms)."""
        return cls._empty(settings, domain, fits.prior_field_hyperparameters(settings, domain))

    @classmethod
    def from_hyperparameters(
        cls,
        settings: ExactGPSettings,
        domain: Domain,
        hyperparameters: Hyperparameters,
        X: ArrayLike,
        y: ArrayLike,
        noise_variance: ArrayLike | float | None = None,
    ) -> "ExactGP":
        """Rebuild a belief from a record of hyper-parameters and data, which are as in ``update``, without a fit.

        Raises:
            ShapeError: If the shapes do not fit, or a value is not finite.
        """
        if (n := len(hyperparameters.lengthscales)) != (d := domain.n_dims):
            raise ShapeError(f"hyperparameters: got {n} lengthscales; wanted {d}, one for each coordinate")
        empty = cls._empty(settings, domain, hyperparameters)
        return replace(empty.update(X, y, noise_variance), tells_since_fit=0, is_fitted=True)

    @classmethod
    def _empty(cls, settings: ExactGPSettings, domain: Domain, hyperparameters: Hyperparameters) -> "ExactGP":
        fields = cls._no_data(domain.n_dims, 1)
        return cls(settings=settings, domain=domain, hyperparameters=hyperparameters, outcomes="per-factor", **fields)

    @cached_property
    def channels(self) -> AdditiveHyperparameters:
        """Hyper-parameters of the latent and its channel."""
        return self.hyperparameters.as_channel()

    @property
    def scopes(self) -> Sequence[Sequence[int]]:
        """Coordinates of a location that the latent depends on: all."""
        return (range(self.domain.n_dims),)

    @property
    def X(self) -> Float[np.ndarray, "n c"]:  # noqa: N802
        """Measured locations (n, d), physical. With a time axis (n, d + 1), the last coordinate is the round."""
        return np.column_stack([self.points, self.rounds]) if self.has_time else self.points

    @property
    def y(self) -> Float[np.ndarray, " n"]:
        """Outcomes (n,), physical."""
        return self.factors[:, 0]

    @property
    def needs_fit(self) -> bool:
        """True if a fit is due: with the first data, and then after every ``settings.refit_every`` updates.

        With more than 1,000 measurements, a fit is slow and changes little. Then the number of updates is multiplied by
        the square of the thousands of measurements, rounded up.
        """
        wait = self.settings.refit_every * max(1, math.ceil((len(self.points) / fits.FITTED_TO) ** 2))
        return self.tells_since_fit >= (wait if self.is_fitted else 1)

    def update(self, X: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | float | None = None) -> "ExactGP":
        """Learn outcomes. Hyper-parameters and the outcome scale do not change; pending points are removed.

        Args:
            X: New locations (n, d), physical; they may lie outside the domain, and may repeat. With a time axis, their
                round is ``now``, or is given as a last coordinate.
            y: Outcomes (n,) there, physical, below 1e60 in size. Leave failed measurements out.
            noise_variance: Known variance >= 0 of the noise of each outcome (n,), or one for all, in the square of the
                outcome's unit. It replaces the fitted variance. NaN, the default, keeps the fitted variance. Standard
                deviations below 1e-4 of the scale of outcomes are raised to it.

        Returns:
            The new belief; this belief if n is 0.

        Raises:
            ShapeError: If the shapes do not fit, or a value is not finite; the message names the row.
        """
        points, rounds = self._split(X)
        outcomes, noise = spatial.checked_outcomes(y, len(points)), spatial.checked_noise(noise_variance, len(points))
        if outcomes.size == 0:
            return self
        totals, tells = np.full(len(points), np.nan), self.tells_since_fit + 1
        return self._with_outcomes(points, totals, outcomes[:, None], noise, rounds, tells_since_fit=tells)

    def condition_on_pending(self, X: ArrayLike) -> "ExactGP":
        """Belief conditioned on pending measurements: the variance falls, and the mean does not change.

        As in GP-BUCB, the outcome is assumed to equal the posterior mean, which reduces only the variance.

        Source: Desautels, Krause & Burdick 2014, section 4.

        Args:
            X: Locations (p, d), physical, to be measured with the fitted noise, in addition to those already pending.

        Returns:
            The new belief. Its ``update`` and ``fit`` remove pending points; condition on them again.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points, rounds = self._split(X)
        return self._with_pending(points, rounds, np.ones((len(points), 1), dtype=bool))

    def fit(self, rng: np.random.Generator) -> "ExactGP":
        """Refit hyper-parameters, mean and outcome scale to the data. Pending points are removed.

        With more than 1,000 measurements, the fit uses a random 1,000 of them. After the first fit, it then starts only
        from the last optimum; with more than 500, from the last optimum and the prior's mode.

        Args:
            rng: Random stream for starts and for the choice of measurements.

        Returns:
            The new belief. Degenerate data (no or one outcome, equal locations or outcomes) give a proper belief.
            Hyper-parameters that they do not determine are at the prior's mode.
        """
        previous = self.hyperparameters if self.is_fitted else None
        fitted = fits.fit_field(self.settings, self.domain, self.observations, rng, previous)
        fresh: dict[str, Any] = {"base": None, "tells_since_fit": 0, "is_fitted": True, **self._none_pending}
        return self._with(hyperparameters=fitted, **fresh)

    @staticmethod
    def posterior_means(beliefs: "Sequence[ExactGP]", X: ArrayLike) -> list[Float[np.ndarray, " m"]]:
        """Means (m,) of several beliefs at the same points (m, d), physical: as ``posterior_mean`` up to rounding.

        There must be at least one belief. All beliefs have the same domain, round and hyper-parameters. Covariances of
        common data are computed once.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        if any(belief.is_tiled for belief in beliefs):
            return [belief.posterior_mean(X) for belief in beliefs]
        first, parts = beliefs[0], [belief._conditioned.parts[0] for belief in beliefs]
        rows = [belief._conditioned.data for belief in beliefs]
        data = np.concatenate([np.column_stack([own.U, own.rounds]) for own in rows])
        union, places = np.unique(data, axis=0, return_inverse=True)
        weights = np.zeros((len(union), len(beliefs)))
        columns = np.repeat(np.arange(len(beliefs)), [len(own) for own in rows])
        np.add.at(weights, (places.ravel(), columns), np.concatenate([part.alpha for part in parts]))
        points, prior = first._points(X), first.hyperparameters.prior
        union = union if first.has_time else union[:, :-1]
        means = np.zeros((len(points), len(beliefs)))
        for start in range(0, len(points), spatial.CHUNK):
            U = spatial.to_unit(first.domain, points[start : start + spatial.CHUNK])
            means[start : start + spatial.CHUNK] = prior.matrix(U, union) @ weights
        return list((first.channels.constants[0] + first.hyperparameters.scale * means).T)

    @cached_property
    def _tiles(self) -> tiles.Tiles:
        return tiles.Tiles(self.channels, self.observations)

    def _with(self, **changes: Any) -> Self:
        other = super()._with(**changes)
        if "_tiles" in vars(self) and other.points is self.points and other.hyperparameters is self.hyperparameters:
            vars(other)["_tiles"] = self._tiles  # they depend neither on the round nor on pending points
        return other

    @property
    def is_tiled(self) -> bool:
        """True if there are more than 2,000 measurements: predictions use the nearest of them (``gp.tiles``)."""
        return len(self.points) > tiles.TILED_FROM

    def marginals(self, X: ArrayLike) -> Marginals:
        """Means (m,) and variances (m,) by tiles at points (m, d), physical; pending points have no effect."""
        return self._tiles.marginals(self._query(self._points(X)))

    def posterior(self, X: ArrayLike) -> Marginals:
        """Means (m,) and variances (m,) >= 0 of the field at points (m, d), physical, as ``SpatialGP.posterior``."""
        return self.marginals(X) if self.is_tiled and not self.n_pending else super().posterior(X)

    def posterior_mean(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Means (m,) at points (m, d), physical."""
        return self.marginals(X)[0] if self.is_tiled else super().posterior_mean(X)

    def posterior_cache(
        self, X: ArrayLike, marginals: Callable[[Float[np.ndarray, "k c"]], Marginals] | None = None
    ) -> conditioning.JointPosterior:
        """Posterior at fixed points (m, d), physical, with fast covariances.

        With tiles, covariances use the correlations given at most 256 measurements: those nearest to the points. If the
        points are far apart, variances fall too much by pending points, as these correlations are then too large.

        Args:
            X: Points.
            marginals: Function of points with their rounds that returns means and variances given the data; by default
                the method ``marginals``.
        """
        if not self.is_tiled:
            return super().posterior_cache(X)
        ahead = np.column_stack([self.pending, self.pending_rounds]) if self.has_time else self.pending
        both = np.concatenate([self._points(X), ahead])
        joint = self._tiles.joint(self._query(both), *(marginals or self.marginals)(both))
        return joint.without_last(self.n_pending, self.noise_variance)

    def neglected(self) -> Neglected | None:
        """Effect of the measurements that tiles leave out, at up to 8 measured locations; None if exact."""
        return self._tiles.neglected(self.now if self.has_time else 0.0) if self.is_tiled else None

    def _split(self, X: ArrayLike) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, " m"]]:
        points, d = self._points(X), self.domain.n_dims
        return points[:, :d], points[:, d] if self.has_time else np.full(len(points), self.now)

    def state_dict(self) -> dict[str, Any]:
        """All of the state, including the factorisation, as plain JSON data and arrays.

        Returns:
            ``{"json": {...}, "arrays": {name: array}}``, from which ``from_state_dict`` makes a bit-identical belief.
        """
        plain: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        plain |= {"version": _VERSION, "hyperparameters": msgspec.to_builtins(self.hyperparameters)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if not self.is_tiled:
            known, given = self._on_data.parts[0], self._next_given
            whole = known if given is None else given.parts[0]
            pending = None if given is None else [whole.jitter]
            plain |= {"is_coupled": True, "jitters": [known.jitter], "jitters_pending": pending}
            arrays["L_0"] = whole.L
        return {"json": plain, "arrays": {name: array.copy(order="K") for name, array in arrays.items()}}

    @classmethod
    def from_state_dict(cls, settings: ExactGPSettings, domain: Domain, state: Mapping[str, Any]) -> "ExactGP":
        """Restore the belief of a ``state_dict``, also after a conversion to JSON and ``.npz`` and back.

        Settings and domain are those of the saved belief; it continues bit-identically.

        Raises:
            StateVersionError: If another version wrote the state.
        """
        plain, arrays = state["json"], state["arrays"]
        if plain.get("version") != _VERSION:
            raise StateVersionError(f"belief state: got version {plain.get('version')}; wanted {_VERSION}")
        # the memory order does not depend on the file, so BLAS is called in the same way
        saved: dict[str, Any] = {name: np.array(arrays[name], dtype=kind, order="C") for name, kind in _ARRAYS.items()}
        saved |= {name: plain[name] for name in _PLAIN} | {"now": float(plain["now"])}
        hyperparameters = convert(plain["hyperparameters"], Hyperparameters, at="$.hyperparameters")
        belief = cls._empty(settings, domain, hyperparameters)._with(**saved)
        if belief.is_tiled:
            return belief
        data, L, conditioned = belief.observations, np.array(arrays["L_0"], dtype=float, order="F"), None
        own = np.asfortranarray(L[: len(data), : len(data)])
        known = Factorised.restored(own, None, data.residuals(belief.channels), plain["jitters"][0])
        base = conditioning.Conditioned(belief.channels, belief.scopes, data, conditioning.OneMatrix(known), belief.now)
        if (jitters := plain["jitters_pending"]) is not None:
            whole = conditioning.OneMatrix(known.awaiting(L, None, jitters[0]))
            conditioned = replace(base, data=data.then(belief.ahead), parts=whole)
        return belief._with(base=base, given=conditioned)
