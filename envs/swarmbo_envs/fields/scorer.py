"""Score of the world's own map of a team's samples, for rewards."""

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

from swarmbo.kernels import kernel_matrix
from swarmbo_envs.fields.field import Field, lattice
from swarmbo_envs.fields.measured import thinned
from swarmbo_envs.shared import PerStart, Starts, Values

Square = Float[np.ndarray, "k k"]
_MOST_KNOTS = 144
_MOST_POINTS = 512  # compared with the truth, which is most of the cost of a step in a drawn field
_FITTED_TO = 150  # points of the truth for the choice of a lengthscale
_LENGTHSCALES = 12  # to choose from
_LAGS = (1, 2, 4, 8)  # rounds
_NUGGET = 1e-6  # of the prior variance


class Scorer:
    """A belief about the field and its score, equal for all teams and methods.

    A Gaussian process with a Matern 3/2 kernel, never fitted to samples, as a Kalman filter of values at up to 144
    knots. Mean, standard deviation and lengthscale are those of the true field in round 0. The share of a deviation
    from the mean that remains after a round is estimated from the true field in rounds 0 to 8.

    Source: Särkkä, Solin & Hartikainen 2013, IEEE Signal Processing Magazine 30 (a process as a filter); Snelson &
    Ghahramani 2006, Sparse Gaussian processes using pseudo-inputs, eq. (7) (dependence of a location on the knots).
    """

    def __init__(self, field: Field, level: float | None, noise_std: float) -> None:
        self._field, self._level, self._noise_std = field, level, noise_std
        self.points = thinned(field.points, _MOST_POINTS)
        self._first = truth = field.value(self.points)
        self._mean = float(truth.mean())
        self._std = float(truth.std()) or 1.0
        has_few_sites = field.sites_only and len(field.sites) <= _MOST_KNOTS
        self.knots = field.sites if has_few_sites else lattice(field.low, field.high, _MOST_KNOTS)
        self._retention = self._retention_per_round()
        self._lengthscale = self._likeliest_lengthscale()
        self._prior = self._to_knots(self.knots) + _NUGGET * self._std**2 * np.eye(len(self.knots))
        self._factor = cho_factor(self._prior, lower=True)
        self._to_points = self._weights(self.points)

    def _likeliest_lengthscale(self) -> float:
        """Likeliest lengthscale of the truth, between the spacing of knots and the map's longer side."""
        field, places = self._field, thinned(self.points, _FITTED_TO)
        values = (field.value(places) - self._mean) / self._std
        side = float((field.high - field.low).max())
        spacing = float(np.sqrt(np.prod(field.high - field.low) / len(self.knots)))
        candidates = np.geomspace(min(spacing, side), side, _LENGTHSCALES)
        return float(candidates[np.argmax([_log_likelihood(places, values, length) for length in candidates])])

    def _retention_per_round(self) -> float:
        """Share of the deviation from the mean that remains after a round, by the truth's least autocorrelation."""
        # a filter forgets the same share in every round, even if the truth hardly changes at first
        first, shares = self._first - self._first.mean(), [1.0]
        for lag in _LAGS if self._field.change is not None else ():
            later = self._truth(lag)
            later = later - later.mean()
            norm = float(np.sqrt((first @ first) * (later @ later)))
            shares.append(float(np.clip(first @ later / norm, 0.0, 1.0)) ** (1.0 / lag) if norm > 0.0 else 1.0)
        return min(shares)

    def begin(self) -> tuple[Values, Square]:
        """Prior of the knots: deviation from the mean, and its covariance."""
        return np.zeros(len(self.knots)), self._prior.copy()

    def updated(
        self, mean: Values, covariance: Square, places: Starts, values: PerStart, is_later: bool
    ) -> tuple[Values, Square]:
        """Belief after the samples of a round, at places (m) with noisy values; ``is_later`` after round 0."""
        if is_later:
            share = self._retention
            mean, covariance = share * mean, share**2 * covariance + (1.0 - share**2) * self._prior
        if not len(places):
            return mean, covariance
        weights = self._weights(places)
        # variance that the knots leave unexplained counts as extra noise (Snelson & Ghahramani's diagonal)
        unexplained = np.maximum(self._std**2 - np.einsum("nk,nk->n", weights, self._to_knots(places)), 0.0)
        noise = unexplained + self._noise_std**2 + _NUGGET * self._std**2
        cross = covariance @ weights.T
        gain = cho_solve(cho_factor(weights @ cross + np.diag(noise), lower=True), cross.T).T
        mean = mean + gain @ (values - self._mean - weights @ mean)
        covariance = covariance - gain @ cross.T
        # keeps the covariance symmetric over hundreds of rounds
        return mean, 0.5 * (covariance + covariance.T)

    def map(self, mean: Values) -> Float[np.ndarray, " m"]:
        """Expected values at ``points``: up to 512 of the field's evaluation points, evenly spread."""
        return self._mean + self._to_points @ mean

    def score(self, mean: Values, round_number: int) -> float:
        """Score of a belief against the truth of a round, larger is better: minus root mean squared error, or F1."""
        expected, truth, level = self.map(mean), self._truth(round_number), self._level
        if level is None:
            return -float(np.sqrt(np.mean((expected - truth) ** 2)))
        predicted, actual = expected > level, truth > level
        n_marked = int(predicted.sum() + actual.sum())
        return 2.0 * int((predicted & actual).sum()) / n_marked if n_marked else 1.0

    def _truth(self, round_number: int) -> Float[np.ndarray, " m"]:
        return self._first if self._field.change is None else self._field.value(self.points, round_number)

    def _weights(self, places: Starts) -> Float[np.ndarray, "n k"]:
        return cho_solve(self._factor, self._to_knots(places).T).T

    def _to_knots(self, places: Starts) -> Float[np.ndarray, "n k"]:
        return kernel_matrix("matern32", places, self.knots, np.full(2, self._lengthscale), self._std**2)


def _log_likelihood(places: Starts, values: Float[np.ndarray, " n"], lengthscale: float) -> float:
    covariance = kernel_matrix("matern32", places, places, np.full(2, lengthscale), 1.0) + 1e-4 * np.eye(len(places))
    factor, lower = cho_factor(covariance, lower=True)
    return float(-0.5 * values @ cho_solve((factor, lower), values) - np.log(np.diag(factor)).sum())
