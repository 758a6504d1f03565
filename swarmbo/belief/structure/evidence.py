"""How well sums over one or other scopes explain totals."""

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.observations import standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.standardising import standardisation
from swarmbo.belief.structure.partitions import Scopes

_SHORT_LENGTHSCALE = 0.15  # of a side: where a first search looks for narrow peaks


class StartingPoint(msgspec.Struct, frozen=True):
    """Where fits begin, whatever the scopes; plain data.

    Args:
        lengthscales: One per variable, in sides of the domain, as they would be in a scope of its own; in larger scopes
            they grow with the root of the size, as their prior does.
        noise_variance: Of totals that are standardised.
    """

    lengthscales: tuple[float, ...]
    noise_variance: float


@dataclass(frozen=True, eq=False)
class ScopeFit:
    """Hyper-parameters of a sum over scopes.

    Args:
        scopes: In the order of the hyper-parameters.
        log_weight: Log evidence at the hyper-parameters, plus log of their prior density over its largest value.
        lengthscales: For each scope (a,).
        outputscales: One per scope; outcomes are standardised.
        noise_variance: As ``outputscales``.
    """

    scopes: Scopes
    log_weight: float
    lengthscales: tuple[Float[np.ndarray, " _a"], ...]
    outputscales: Float[np.ndarray, " k"]
    noise_variance: float

    def starting_point(self) -> StartingPoint:
        """For other scopes of the same variables: of each variable the geometric mean of its lengthscales."""
        logs: dict[int, list[float]] = {}
        for scope, lengths in zip(self.scopes, self.lengthscales, strict=True):
            for variable, length in zip(scope, lengths.tolist(), strict=True):
                logs.setdefault(variable, []).append(math.log(length) - 0.5 * math.log(len(scope)))
        means = tuple(math.exp(sum(logs[variable]) / len(logs[variable])) for variable in sorted(logs))
        return StartingPoint(means, self.noise_variance)


@dataclass(frozen=True, eq=False)
class ScopeEvidence:
    """The log weight of scopes given totals, by a fit of hyper-parameters for each that is asked about.

    The weight is the evidence p(y | scopes, theta) times the prior density of theta relative to its mode, at the theta
    where their product is largest. That is Laplace's approximation of the evidence without theta if data narrow theta
    as much for one structure as for the other. The evidence at the best theta alone would favour scopes that have more
    parameters to choose.

    Every fit starts at the same point, so the weight is a function of the data and the scopes, and not of which were
    asked about before; a chain over structures needs that. Each is fitted once and kept.

    Args:
        settings: Kernel, priors and effort of fits. Lengthscales that are ``auto`` are hierarchical for all scopes, so
            that priors can be compared; what is set for single factors is not used.
        U: Points (t, n) of the unit cube.
        totals: Their outcomes (t,), finite. Where they do not vary, all scopes weigh the same.
        start: Where fits begin; None: at the prior's mode and, besides, at short lengthscales.
        noise: Noise variances (t,) that were told, in the square of the outcome's unit, NaN elsewhere; None: none was.
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
        """How many structures were fitted so far."""
        return len(self._fits)

    def fit(self, scopes: Scopes) -> ScopeFit:
        """The fit that the weight is of.

        Args:
            scopes: Columns of U; they cover all of them, and may overlap.
        """
        if scopes not in self._fits:
            self._fits[scopes] = self._fitted(scopes)
        return self._fits[scopes]

    def standardised(self) -> tuple[Float[np.ndarray, " t"], bool]:
        """Totals with mean 0 and variance 1, and whether they vary."""
        mean, scale, varies = standardisation(self.totals)
        return (self.totals - mean) / scale, varies

    def known_noise(self) -> Float[np.ndarray, " t"]:
        """The noise that was told in the unit of standardised totals; NaN where it was not."""
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
