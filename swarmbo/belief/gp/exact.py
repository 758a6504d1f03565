"""An exact Gaussian process over a box: the team's belief about one field.

Inside, points live in the unit cube and outcomes are standardised; outside, everything is physical. The model is
y = offset + scale (mean + f(u) + noise), f a zero-mean Gaussian process; over u and the round if the settings have a
time axis, so that old data fade. Hyper-parameters, the mean, offset and scale change only in ``fit``; predictions plug
them in, so their uncertainty is not part of any variance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.cholesky import factorise, solve_lower
from swarmbo.belief.gp.data import checked_outcomes
from swarmbo.belief.gp.fit import fit_field, prior_field_hyperparameters
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, Hyperparameters
from swarmbo.belief.gp.observations import Observations
from swarmbo.belief.gp.prediction import FactorisedGP
from swarmbo.belief.gp.state import read_state, write_state
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

_STATE_ARRAYS = ("X", "y", "pending", "L", "whitened", "jitter")


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactGP(FactorisedGP):
    """Belief about a field, immutable: every method that learns returns a new one. Make one with ``create``.

    Predictions are methods of its base, ``FactorisedGP``; so are the fields not listed here.

    Args:
        settings: Kernel, priors, effort of the fit.
        y: Outcomes (n,), physical.
        tells_since_fit: Updates with data since the last fit.
        is_fitted: Whether the hyper-parameters come from a fit.

    Example:
        >>> domain = Domain(np.zeros(2), np.array([100.0, 50.0]))
        >>> belief = ExactGP.create(ExactGPSettings(), domain)
        >>> belief = belief.update(np.array([[10.0, 10.0], [90.0, 40.0]]), np.array([300.0, 420.0]))
        >>> belief = belief.fit(np.random.default_rng(0))
        >>> mean, var = belief.posterior(np.array([[10.0, 10.0]]))
        >>> bool(abs(mean[0] - 300.0) < 1.0), bool(0.0 < var[0] < belief.prior_variance)
        (True, True)
    """

    settings: ExactGPSettings
    y: Float[np.ndarray, " n"]
    tells_since_fit: int = 0
    is_fitted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.y.flags.writeable = False

    @classmethod
    def create(cls, settings: ExactGPSettings, domain: Domain) -> "ExactGP":
        """A belief without data, its hyper-parameters at the mode of their prior (in logarithms).

        Args:
            settings: Kernel, priors, effort of the fit.
            domain: The box of physical points.
        """
        return cls._empty(settings, domain, prior_field_hyperparameters(settings, domain))

    @classmethod
    def from_hyperparameters(
        cls,
        settings: ExactGPSettings,
        domain: Domain,
        hyperparameters: Hyperparameters,
        X: Float[np.ndarray, "n d"],
        y: Float[np.ndarray, " n"],
    ) -> "ExactGP":
        """Rebuild a belief from a record, without a fit.

        Args:
            settings: Kernel, priors, effort of later fits.
            domain: The box of physical points.
            hyperparameters: As recorded.
            X: Data points (n, d), physical, with a time axis (n, d + 1): the round of each last.
            y: Outcomes (n,), physical.

        Raises:
            ShapeError: If the shapes do not fit, or a value is not finite.
        """
        if len(hyperparameters.lengthscales) != domain.n_dims:
            raise ShapeError(
                f"hyperparameters: got {len(hyperparameters.lengthscales)} lengthscales for a domain of "
                f"{domain.n_dims} coordinates; wanted one each"
            )
        empty = cls._empty(settings, domain, hyperparameters)
        return replace(empty.update(X, y), tells_since_fit=0, is_fitted=True)

    @classmethod
    def _empty(cls, settings: ExactGPSettings, domain: Domain, hyperparameters: Hyperparameters) -> "ExactGP":
        no_points, none = np.zeros((0, domain.n_dims + (hyperparameters.time is not None))), np.zeros(0)
        return cls(
            settings=settings,
            domain=domain,
            hyperparameters=hyperparameters,
            X=no_points,
            y=none,
            pending=no_points,
            L=np.zeros((0, 0), order="F"),
            whitened=none,
            jitter=none,
        )

    @property
    def n_data(self) -> int:
        """Number of outcomes."""
        return self.y.size

    @property
    def n_pending(self) -> int:
        """Number of points conditioned on without an outcome."""
        return self.pending.shape[0]

    @property
    def needs_fit(self) -> bool:
        """Whether data wait for a fit: the first ones at once, later ones after ``settings.refit_every`` updates."""
        wait = self.settings.refit_every if self.is_fitted else 1
        return self.tells_since_fit >= wait

    def update(self, X: ArrayLike, y: ArrayLike) -> "ExactGP":
        """Learn outcomes. Hyper-parameters and the outcome scale stay; points pending are forgotten.

        Args:
            X: New points (n, d), physical; they may lie outside the domain, and may repeat. With a time axis they are
                of the moment ``now``, or state theirs as a last coordinate.
            y: Their outcomes (n,), physical, below 1e60 in size. Leave failed measurements out.

        Returns:
            The new belief; this one where n is 0.

        Raises:
            ShapeError: If the shapes do not fit, or a value is not finite; it names the row.
        """
        points = self._points(X)
        outcomes = checked_outcomes(y, points.shape[0])
        if outcomes.size == 0:
            return self
        n, h = self.n_data, self.hyperparameters
        whitened = self.whitened[:n]
        L, jitter = self._extended(self.X, self.L[:n, :n], points)
        residual = (outcomes - h.offset) / h.scale - h.mean - L[n:, :n] @ whitened
        return replace(
            self,
            X=np.concatenate([self.X, points]),
            y=np.concatenate([self.y, outcomes]),
            pending=self.pending[:0],
            L=L,
            whitened=np.concatenate([whitened, solve_lower(L[n:, n:], residual)]),
            jitter=np.concatenate([self.jitter[:n], np.full(outcomes.size, jitter)]),
            tells_since_fit=self.tells_since_fit + 1,
        )

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "ExactGP":
        """A belief whose variance knows of measurements to come, and whose mean does not move.

        This is GP-BUCB's hallucination: an outcome equal to the posterior mean carries no news but takes variance. Its
        whitened residual is exactly 0, so the mean stays the same to rounding.

        Source: Desautels, Krause & Burdick 2014, section 4.

        Args:
            X: Points (p, d), physical, that will be measured with the usual noise; added to those pending already.

        Returns:
            The new belief. ``update`` and ``fit`` on it go back to the data; condition again after them.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points = self._points(X)
        L, jitter = self._extended(np.concatenate([self.X, self.pending]), self.L, points)
        return replace(
            self,
            pending=np.concatenate([self.pending, points]),
            L=L,
            whitened=np.concatenate([self.whitened, np.zeros(points.shape[0])]),
            jitter=np.concatenate([self.jitter, np.full(points.shape[0], jitter)]),
        )

    def fit(self, rng: np.random.Generator) -> "ExactGP":
        """Refit hyper-parameters, mean and outcome scale to all data; points pending are forgotten.

        Args:
            rng: For the random starts.

        Returns:
            The new belief. Degenerate data (none, one, equal or constant ones) give a proper belief too, at the mode of
            the prior where they say nothing about the scale.
        """
        U, n, d = self._to_unit(self.X), self.n_data, self.domain.n_dims
        moments = U[:, d] if self.has_time else np.zeros(n)
        data = Observations(U[:, :d], np.zeros(n, dtype=int), self.y, np.zeros(n), moments)
        previous = self.hyperparameters if self.is_fitted else None
        hyperparameters = fit_field(self.settings, self.domain, data, rng, previous)
        refitted = replace(self, hyperparameters=hyperparameters)
        L, jitter = factorise(refitted._prior_cov(U, U) + hyperparameters.noise_variance * np.eye(n))
        z = (self.y - hyperparameters.offset) / hyperparameters.scale
        return replace(
            refitted,
            pending=self.pending[:0],
            L=L,
            whitened=solve_lower(L, z - hyperparameters.mean),
            jitter=np.full(n, jitter),
            tells_since_fit=0,
            is_fitted=True,
        )

    def log_evidence(self) -> float:
        """Log marginal likelihood of the standardised outcomes at the present hyper-parameters; 0 without data.

        Source: Rasmussen & Williams 2006, eq. 2.30.
        """
        n = self.n_data
        fit = float(self.whitened[:n] @ self.whitened[:n])
        return -0.5 * fit - float(np.log(self.L.diagonal()[:n]).sum()) - 0.5 * n * float(np.log(2.0 * np.pi))

    def state_dict(self) -> dict[str, Any]:
        """All of the state, the factorised part included, as plain JSON data and arrays.

        Returns:
            ``{"json": {...}, "arrays": {name: array}}``; ``from_state_dict`` makes an equal belief of it, to the bit.
        """
        plain = {
            "hyperparameters": msgspec.to_builtins(self.hyperparameters),
            "tells_since_fit": self.tells_since_fit,
            "is_fitted": self.is_fitted,
            "now": self.now,
        }
        return write_state(plain, {name: getattr(self, name) for name in _STATE_ARRAYS})

    @classmethod
    def from_state_dict(cls, settings: ExactGPSettings, domain: Domain, state: Mapping[str, Any]) -> "ExactGP":
        """The belief that ``state_dict`` wrote down; it goes on exactly as the one that was saved.

        Args:
            settings: As of the saved belief.
            domain: As of the saved belief.
            state: What ``state_dict`` returned, also after a trip through JSON and ``.npz``.

        Raises:
            StateVersionError: If another version wrote it.
        """
        plain, arrays = read_state(state, _STATE_ARRAYS)
        hyperparameters = msgspec.convert(plain["hyperparameters"], Hyperparameters)
        return cls(
            settings=settings,
            domain=domain,
            hyperparameters=hyperparameters,
            **arrays,
            tells_since_fit=int(plain["tells_since_fit"]),
            is_fitted=bool(plain["is_fitted"]),
            now=float(plain.get("now", 0.0)),
        )
