"""Settings of an additive Gaussian process and of the search for scopes, and hyper-parameters that are not fitted."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import asdict

from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    FactorHyperparameters,
    LengthscaleModel,
    TimeAxis,
    TimeCorrelation,
)
from swarmbo.boundary.values import plain
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName, KernelSettings, require_kernel
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Fraction, NonNegative, Positive, Settings, Whole, convert, require, within
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain, variable_of


class SampledStructure(Settings, frozen=True, tag_field="kind", tag="sampled"):
    """Partitions of the variables, sampled in proportion to their evidence and averaged into one graph.

    A Markov chain samples partitions, whose blocks become scopes. It begins with one block of all variables or, with
    ``largest``, with random blocks of that size; later it continues from its last state. All partitions have equal
    prior weight. A scope that several samples have is one factor of the graph; a factor's prior share of the variance
    is an average over samples.

    Source: Gardner et al. 2017; Hoang et al. 2018, appendix B, and Bardou et al. 2024, appendix B, average acquisitions
        over samples. Here covariances are averaged, so that the result is one Gaussian process.

    Args:
        samples: Number of partitions that are averaged, >= 1.
        moves: Number of splits or merges that are proposed before each sample, >= 1.
        burn_in: Number of additional proposals before the first sample, >= 0.
        largest: Largest number of variables in a block, >= 1; None: no limit.
        every: Number of evaluations, >= 1, after which partitions are sampled again.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> belief = sb.AdditiveGPSettings(structure=SampledStructure(samples=1, burn_in=8))
        >>> team = sb.Team(None, {name: (0.0, 1.0) for name in "xyz"}, belief=belief, acquisition="dec-hbo")
        >>> X = np.random.default_rng(0).random((30, 3))
        >>> team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        >>> sorted(team.model.belief.graph.scopes)
        [('x', 'z'), ('y',)]
    """

    samples: Count = 5
    moves: Count = 2
    burn_in: Whole = 20
    largest: Count | None = None
    every: Count = 3


class ScreenedScopes(Settings, frozen=True, tag_field="kind", tag="screened"):
    """Scopes that may overlap, found by a search for evidence that tries the most promising scopes first.

    Args:
        largest: Largest number of variables in a scope, >= 1.
        gain: Increase of the log evidence, >= 0, that a scope must bring to be added, or to be kept.
        tries: Number of fits in one search, >= 1, including the fit of the initial scopes.
        every: Number of evaluations, >= 1, after which the search continues.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> belief = sb.AdditiveGPSettings(structure=ScreenedScopes(largest=2, tries=8))
        >>> team = sb.Team(None, {name: (0.0, 1.0) for name in "xyz"}, belief=belief, acquisition="dec-hbo")
        >>> X = np.random.default_rng(0).random((30, 3))
        >>> team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        >>> sorted(team.model.belief.graph.scopes)
        [('x', 'z'), ('y',)]
    """

    largest: Count = 4
    gain: NonNegative = 1.0
    tries: Count = 40
    every: Count = 10


StructureSettings = SampledStructure | ScreenedScopes


class FactorPrior(KernelSettings, frozen=True):
    """Settings of one factor; None means the setting of all factors.

    Args:
        kernel: Covariance function.
        lengthscale_log_median: Log median of the prior on the factor's lengthscales, from -10 to 10.
        lengthscale_log_std: Log standard deviation of the prior on the factor's (common) lengthscale, 1e-6 to 100.
        outputscale_median: Median > 0 of the prior on the factor's outputscale.
        outputscale_log_std: Log standard deviation > 0 of the prior on the factor's outputscale.
        noise_median: Median > 0 of the prior on the noise variance of the factor's outcomes; no effect on totals.
    """

    kernel: KernelName | None = None
    lengthscale_log_median: Annotated[float, within(-10, 10)] | None = None
    lengthscale_log_std: Annotated[float, within(1e-6, 100)] | None = None
    outputscale_median: Positive | None = None
    outputscale_log_std: Positive | None = None
    noise_median: Positive | None = None


_NO_SETTINGS = FactorPrior()


class FactorForm(NamedTuple):
    """``FactorPrior`` with all defaults filled in; ``outputscale_median`` is None for 1 / number of factors."""

    kernel: KernelName
    lengthscale_log_median: float
    lengthscale_log_std: float
    outputscale_median: float | None
    outputscale_log_std: float
    noise_median: float


@kind("belief", FUNCTION)
class AdditiveGPSettings(KernelSettings, frozen=True, tag_field="kind", tag="additive"):
    """Settings of a sum of Gaussian processes, one per factor, with jointly fitted hyper-parameters.

    All priors are log-normal. Lengths are shares of the domain's sides, variances shares of the outcomes' variance.

    Args:
        kernel: Covariance function of every factor. None: ``matern52``; but ``auto`` takes ``rbf`` if it explains
            outcomes clearly better. It does so without a time axis, for one function, or for factors with their own
            outcomes and no shared variables.
        lengthscales: ``shared``: one for all variables of all factors. ``hierarchical``: a common one times a small
            deviation per factor and variable. ``separate``: an independent one per factor and variable. ``auto``:
            ``separate`` with outcomes per factor or with factors of one variable, else ``hierarchical``. With outcomes
            per factor, each factor is fitted alone, and the choice applies within it.
        lengthscale_log_median: Log median of the prior on a factor's lengthscale (the common one if ``hierarchical``)
            for one variable. (log d) / 2 is added for d variables.
        lengthscale_log_std: Standard deviation of the lengthscale's prior, in natural logarithms, 1e-6 to 100.
        deviation_log_std: Log standard deviation of the deviations, 1e-4 to 100; only for ``hierarchical``.
        outputscale_log_std: Log standard deviation of the prior on a factor's outputscale, > 0; its median is 1 /
            number of factors.
        noise_median: Median > 0 of the prior on the noise variance.
        noise_log_std: Standard deviation of the noise variance's prior, in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].
        time: Kernel over time, by which old outcomes lose weight; None: the function does not change. With outcomes per
            factor, each factor has its own lengthscale in time; otherwise all factors have a common one.
        refit_every: Number of evaluations, >= 1, since the last fit after which the next fit is due.
        restarts: Number of random starts of each fit, >= 0, drawn from the prior, in addition to the prior's mode.
        max_iterations: Iterations of L-BFGS-B per start, >= 1. They are damped Newton steps with outcomes per factor,
            or with 300 or more totals of few factors with one kernel and no time axis.
        factors: Settings of single factors, by name.
        structure: Method by which a team finds scopes from totals; None: the scopes of its graph.

    Example:
        >>> import numpy as np
        >>> from swarmbo.belief.gp.additive import AdditiveGP
        >>> from swarmbo.graph import FactorGraph
        >>> from swarmbo.spaces import Domain
        >>> graph, domain = FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]}), Domain(np.zeros(2), np.ones(2))
        >>> settings = AdditiveGPSettings(kernel="rbf", factors={"g": FactorPrior(kernel="matern32")})
        >>> h = AdditiveGP.create(settings, graph, domain).hyperparameters
        >>> h.kernels, h.outputscales  # each factor has half of the prior variance
        (('rbf', 'matern32'), (0.5, 0.5))
    """

    kernel: KernelName | None = None
    lengthscales: LengthscaleModel | Literal["auto"] = "auto"
    lengthscale_log_median: Annotated[float, within(-10, 10)] = -1.2
    lengthscale_log_std: Annotated[float, within(1e-6, 100)] = 1.0
    deviation_log_std: Annotated[float, within(1e-4, 100)] = 0.3
    outputscale_log_std: Positive = 0.5
    noise_median: Positive = 1e-4
    noise_log_std: Positive = 1.5
    noise_floor: Fraction = 1e-6
    time: TimeAxis | None = None
    refit_every: Count = 3
    restarts: Whole = 0
    max_iterations: Count = 60
    factors: dict[str, FactorPrior] = msgspec.field(default_factory=dict[str, FactorPrior])
    structure: StructureSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("factors", "time"):
            require(self, field, lambda value: not value or self.structure is None, "none where a structure is learned")

    @property
    def usual_kernel(self) -> KernelName:
        """Kernel of factors whose own settings state none."""
        return self.kernel or "matern52"

    def check_factors(self, graph: FactorGraph, at: str) -> None:
        """Refuse settings of a factor that is not in a graph."""
        if unknown := [factor for factor in self.factors if factor not in graph.factors]:
            raise ConfigError(f"got {unknown[0]!r}; wanted one of {', '.join(graph.factors)}", at=at)

    def lengthscale_model(self, sizes: Sequence[int], *, alone: bool) -> LengthscaleModel:
        """Relation of lengthscales in a fit of factors of ``sizes`` variables; ``alone``: one factor's own outcomes."""
        if self.lengthscales != "auto":
            return self.lengthscales
        return "separate" if alone or max(sizes) == 1 else "hierarchical"

    def of_factors(self, factors: Sequence[str]) -> list[FactorForm]:
        """Kernel and priors of each factor; factors with equal settings share one object."""
        lengths = self.lengthscale_log_median, self.lengthscale_log_std
        usual = FactorForm(self.usual_kernel, *lengths, None, self.outputscale_log_std, self.noise_median)
        priors = [self.factors.get(factor, _NO_SETTINGS) for factor in factors]
        stated = {prior: {name: own for name, own in asdict(prior).items() if own is not None} for prior in set(priors)}
        forms = {prior: usual._replace(**values) for prior, values in stated.items()}
        return [forms[prior] for prior in priors]


T = TypeVar("T")


def domain_of(graph: FactorGraph, bounds: Mapping[str, tuple[float, float]] | Domain | None) -> Domain:
    """Domain from the bounds of variables; by default (0, 1) for each."""
    if not isinstance(bounds, Domain):
        sides = [(0.0, 1.0)] * len(graph.variables) if bounds is None else _each("bounds", bounds, graph.variables)
        given = zip(graph.variables, sides, strict=True)
        bounds = MixedDomain.of([variable_of(side, f"$.bounds.{name}") for name, side in given])
    if isinstance(bounds, MixedDomain):  # lengthscales are shares of plain sides
        raise ConfigError("got variables with types; wanted (low, high) of each, or a Team", at="$.bounds")
    if bounds.n_dims != len(graph.variables):
        raise ConfigError(f"got {bounds.n_dims} sides; wanted {len(graph.variables)}", at="$.bounds")
    return bounds


class _Given(Settings, frozen=True):
    kernel: KernelName
    lengthscale: Positive
    outputscale: Positive
    noise_variance: NonNegative
    mean: float
    time: TimeCorrelation | None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kernel(self, is_known=True)


def given_physical(
    graph: FactorGraph, domain: Domain, lengthscale: float | Mapping[str, float], **values: Any
) -> tuple[AdditiveGPSettings, AdditiveHyperparameters]:
    """Settings and hyper-parameters from physical values, as in ``AdditiveGP``; ``time`` is the median for a fit."""
    lengths, k = plain(_each("lengthscale", lengthscale, graph.variables)), len(graph.factors)
    prior = convert(plain(values) | {"lengthscale": lengths[0]}, _Given)
    for name, length in zip(graph.variables, lengths, strict=True):
        convert(length, Positive, f"$.lengthscale[{name!r}]")
    share = dict(zip(graph.variables, (np.array(lengths) / (domain.high - domain.low)).tolist(), strict=True))
    variances, time = (prior.outputscale, prior.noise_variance), prior.time
    factors = (
        FactorHyperparameters(prior.kernel, tuple(share[name] for name in scope), *variances, prior.mean / k, 1.0, time)
        for scope in graph.scopes
    )
    axis = None if time is None else TimeAxis(time.kernel, time.lengthscale)
    return AdditiveGPSettings(kernel=prior.kernel, time=axis), AdditiveHyperparameters.of(factors, prior.noise_variance)


def _each(field: str, given: T | Mapping[str, T], names: Sequence[str]) -> list[T]:
    if not isinstance(given, Mapping):
        return [given] * len(names)
    if unknown := [name for name in given if name not in names]:
        raise ConfigError(f"got {unknown[0]!r}; wanted {', '.join(names)}", at=f"$.{field}")
    if missing := [name for name in names if name not in given]:
        raise ConfigError(f"got none for {missing[0]!r}; wanted one for each of {', '.join(names)}", at=f"$.{field}")
    return [given[name] for name in names]


def regrouped(
    hyper: AdditiveHyperparameters, old: FactorGraph, new: FactorGraph, kept: Mapping[int, int], kernel: KernelName
) -> AdditiveHyperparameters:
    """Hyper-parameters for another decomposition; its ``kept`` factors, ``{new index: old index}``, keep their own.

    New factors share the remaining prior variance and mean evenly. Their variables have the geometric means of the old
    lengthscales.
    """
    hyper = hyper.in_one_unit()
    logs: dict[str, list[float]] = {variable: [] for variable in old.variables}
    for scope, lengths in zip(old.scopes, hyper.lengthscales, strict=True):
        for variable, length in zip(scope, lengths, strict=True):
            logs[variable].append(float(np.log(length)))
    fresh, variance = max(len(new.factors) - len(kept), 1), sum(hyper.outputscales)
    share = max(variance - sum(hyper.outputscales[i] for i in kept.values()), 1e-3 * variance) / fresh
    constant = (hyper.constant - sum(hyper.constants[i] for i in kept.values())) / fresh
    typical = None
    if hyper.times:
        pace = float(np.exp(np.mean([np.log(time.lengthscale) for time in hyper.times])))
        typical = TimeCorrelation(hyper.times[0].kernel, pace)
    averages = {variable: float(np.exp(np.mean(values))) for variable, values in logs.items()}
    noise, scale, factors = hyper.total_noise_variance, hyper.scales[0], list[FactorHyperparameters]()
    for i, scope in enumerate(new.scopes):
        lengths = tuple(averages[variable] for variable in scope)
        other = FactorHyperparameters(kernel, lengths, share, noise, constant, scale, typical)
        factors.append(hyper.factor(kept[i]) if i in kept else other)
    return AdditiveHyperparameters.of(factors, noise)
