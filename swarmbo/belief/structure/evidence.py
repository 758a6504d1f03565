"""Evidence of sums over scopes, given totals."""

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.observations import standardisation, standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.structure.partitions import Scopes

_SHORT_LENGTHSCALE = 0.15  # of a side: a first search for narrow peaks starts here


class StartingPoint(msgspec.Struct, frozen=True):
    """Starting point of fits for any scopes; plain data.

    Of each variable the lengthscale for a scope of that variable alone; in larger scopes they grow with the root of the
    size, like their prior.
    """

    lengthscales: tuple[float, ...]
    noise_variance: float


@dataclass(frozen=True, eq=False)
class ScopeFit:
    """Hyper-parameters of a sum over scopes, of standardised outcomes.

    ``log_weight`` is the log evidence, plus log of their prior density over its largest value.
    """

    scopes: Scopes
    log_weight: float
    lengthscales: tuple[Float[np.ndarray, " _a"], ...]
    outputscales: Float[np.ndarray, " k"]
    noise_variance: float

    def starting_point(self) -> StartingPoint:
        """Starting point for other scopes: of each variable the geometric mean of its lengthscales."""
        logs: dict[int, list[float]] = {}
        for scope, lengths in zip(self.scopes, self.lengthscales, strict=True):
            for variable, length in zip(scope, lengths.tolist(), strict=True):
                logs.setdefault(variable, []).append(math.log(length) - 0.5 * math.log(len(scope)))
        means = tuple(math.exp(sum(logs[variable]) / len(logs[variable])) for variable in sorted(logs))
        return StartingPoint(means, self.noise_variance)


@dataclass(frozen=True, eq=False)
class ScopeEvidence:
    """Log weight of scopes given totals, by a separate fit of hyper-parameters for each.

    The weight is the evidence p(y | scopes, theta) times the prior density of theta relative to its mode, at the theta
    with the largest product. That is Laplace's approximation of the evidence without theta if data narrow theta equally
    for all structures. The evidence at the best theta alone would favour scopes with more parameters.

    Every fit starts at the same point (None: at the prior's mode and also at short lengthscales), so the weight depends
    on the data and the scopes only; a chain over structures requires that. Fits are cached. Lengthscales that are
    ``auto`` are hierarchical for all scopes, so that priors can be compared. Constant totals give all scopes equal
    weight.
    """

    settings: AdditiveGPSettings
    U: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    start: StartingPoint | None = None
    noise: Float[np.ndarray, " t"] | None = None
    _fits: dict[Scopes, ScopeFit] = field(default_factory=dict[Scopes, ScopeFit], init=False)

    def __call__(self, scopes: Scopes) -> float:
        """Log weight, up to a constant that depends on the data alone."""
        return self.fit(scopes).log_weight

    @property
    def n_fits(self) -> int:
        """Number of structures fitted so far."""
        return len(self._fits)

    def fit(self, scopes: Scopes) -> ScopeFit:
        """Fit behind the weight of scopes, which cover all columns of U, and may overlap."""
        if scopes not in self._fits:
            self._fits[scopes] = self._fitted(scopes)
        return self._fits[scopes]

    def standardised(self) -> tuple[Float[np.ndarray, " t"], bool]:
        """Totals with mean 0 and variance 1, and True if they vary."""
        mean, scale, varies = standardisation(self.totals)
        return (self.totals - mean) / scale, varies

    def known_noise(self) -> Float[np.ndarray, " t"]:
        """Reported noise in the unit of standardised totals; NaN if unknown."""
        scale = standardisation(self.totals)[1]
        return np.full(len(self.totals), np.nan) if self.noise is None else standardised_noise(self.noise, scale)

    def _fitted(self, scopes: Scopes) -> ScopeFit:
        from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

        settings, sizes = msgspec.structs.replace(self.settings, factors={}), [len(scope) for scope in scopes]
        model = "hierarchical" if settings.lengthscales == "auto" else settings.lengthscales
        prior = HyperparameterPrior.of(settings, [""] * len(sizes), sizes, model, [settings.noise_median])
        z, varies = self.standardised()
        theta, log_weight = prior.centre, 0.0
        if varies:
            kernels = [settings.kernel] * len(sizes)
            starts = self._starts(prior, scopes)
            log_posterior = LogPosterior(prior, kernels, scopes, self.U, z, self.known_noise())
            theta, log_weight = maximise(log_posterior, starts, settings.max_iterations)
        lengthscales, outputscales, noises = prior.unpack(theta)
        parts = tuple(np.split(lengthscales, np.cumsum(sizes)[:-1]))
        return ScopeFit(scopes, log_weight, parts, outputscales, float(noises[0]))

    def _starts(self, prior: HyperparameterPrior, scopes: Scopes) -> list[Float[np.ndarray, " p"]]:
        if self.start is not None:
            lengths = [self.start.lengthscales[v] * math.sqrt(len(scope)) for scope in scopes for v in scope]
            _, outputscales, _ = prior.unpack(prior.centre)
            return [prior.pack(np.array(lengths), outputscales, np.array([self.start.noise_variance]))]
        short = prior.centre.copy()
        short[: prior.n_lengthscales] = np.log(_SHORT_LENGTHSCALE)
        return [prior.centre, short]
