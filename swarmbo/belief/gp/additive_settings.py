"""Settings of an additive Gaussian process and of the search for scopes, and hyper-parameters that are not fitted."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    FactorHyperparameters,
    LengthscaleModel,
    TimeAxis,
    TimeCorrelation,
)
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName, kernel_names, require_kernel
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Fraction, NonNegative, Positive, Settings, Whole, require, within
from swarmbo.spaces import Domain


class SampledStructure(Settings, frozen=True, tag_field="kind", tag="sampled"):
    """Partitions of the variables, sampled in proportion to their evidence and averaged into one graph.

    The chain begins with one block of all variables (with a cap, random blocks of that size), and continues later from
    its last state. Partitions have the same prior weight. Scopes shared by several samples are one factor of the graph;
    the prior share of the variance of a factor is its average over the samples.

    Source: Gardner et al. 2017; Hoang et al. 2018, appendix B, and Bardou et al. 2024, appendix B, average acquisitions
    over the samples. Here covariances are averaged, so that the result is one Gaussian process.

    Args:
        samples: Partitions averaged, >= 1.
        moves: Splits or merges proposed before each partition, >= 1.
        burn_in: Further proposals before the first partition, not averaged, >= 0.
        largest: Cap on the size of blocks, >= 1; None: no cap.
        every: Evaluations, >= 1, after which partitions are sampled again.

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
    """Scopes that may overlap, found by a search of the evidence with the most promising ones first.

    Args:
        largest: Cap on the size of scopes, >= 1.
        gain: Log evidence, >= 0, that an added scope must bring, or that removal of a kept one must cost.
        tries: Fits, >= 1, in one search, that of the initial scopes included.
        every: Evaluations, >= 1, after which the search continues.

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


class FactorPrior(Settings, frozen=True):
    """What one factor has of its own; what is left out is as for all factors.

    Args:
        kernel: Covariance function.
        lengthscale_log_median: Logarithm of the median of the prior on its lengthscales, from -10 to 10.
        lengthscale_log_std: Standard deviation > 0 of the prior on its (common) log-lengthscale.
        outputscale_median: Median > 0 of the prior on its outputscale.
        outputscale_log_std: Its standard deviation in natural logarithms, > 0.
        noise_median: Median > 0 of the prior on the noise of its own outcomes; no matter for totals.
    """

    kernel: KernelName | None = None
    lengthscale_log_median: Annotated[float, within(-10, 10)] | None = None
    lengthscale_log_std: Positive | None = None
    outputscale_median: Positive | None = None
    outputscale_log_std: Positive | None = None
    noise_median: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kernel(self)


_NOTHING_OWN = FactorPrior()


class FactorForm(NamedTuple):
    """``FactorPrior`` with the gaps filled; a median that depends on the number of factors stays open."""

    kernel: KernelName
    lengthscale_log_median: float
    lengthscale_log_std: float
    outputscale_median: float | None
    outputscale_log_std: float
    noise_median: float


@kind("belief", FUNCTION)
class AdditiveGPSettings(Settings, frozen=True, tag_field="kind", tag="additive"):
    """Settings of a sum of Gaussian processes, one per factor, with hyper-parameters fitted jointly.

    All priors are normal in the logarithm. Lengths are shares of the sides of the domain; variances are relative to the
    variance of the outcomes.

    Args:
        kernel: Covariance function of every factor.
        lengthscales: ``shared``: one for all variables of all factors. ``hierarchical``: a common one times a small
            deviation per factor and variable. ``separate``: independent ones. ``auto``: separate where factors are
            observed one by one or have one variable each, else hierarchical. Factors observed one by one are fitted
            one by one, and this holds within each.
        lengthscale_log_median: Median of the prior on the (common) lengthscale of a one-dimensional factor, as a
            logarithm; (log d) / 2 is added for factors of d variables.
        lengthscale_log_std: Its standard deviation, > 0.
        deviation_log_std: Standard deviation > 0 of the deviations; ``hierarchical`` only.
        outputscale_log_std: Log standard deviation of the prior on each factor's outputscale, > 0. Its median is 1 /
            number of factors.
        noise_median: Median > 0 of the prior on the noise variance.
        noise_log_std: Its standard deviation in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].
        time: Kernel over time, by which old outcomes lose weight; None for a function that does not change. Factors
            observed one by one have separate lengthscales, others a common one.
        refit_every: Refit after this many outcomes, >= 1, since the last fit.
        restarts: Random starts, >= 0, drawn from the prior for each fit, in addition to the prior's mode.
        max_iterations: Iterations of L-BFGS-B per start, >= 1. They are damped Newton steps if factors are observed one
            by one, or for 300 totals or more of few factors with one kernel and no time axis.
        factors: Settings of single factors, by name.
        structure: Method by which a team finds scopes from totals; None: they are those of its graph.

    Example:
        >>> import numpy as np
        >>> from swarmbo.belief.gp.additive import AdditiveGP
        >>> from swarmbo.graph import FactorGraph
        >>> from swarmbo.spaces import Domain
        >>> graph, domain = FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]}), Domain(np.zeros(2), np.ones(2))
        >>> settings = AdditiveGPSettings(kernel="rbf", factors={"g": FactorPrior(kernel="matern32")})
        >>> h = AdditiveGP.create(settings, graph, domain).hyperparameters
        >>> h.kernels, h.outputscales  # of each factor; the factors share the prior variance evenly
        (('rbf', 'matern32'), (0.5, 0.5))
    """

    kernel: KernelName = "matern52"
    lengthscales: LengthscaleModel | Literal["auto"] = "auto"
    lengthscale_log_median: Annotated[float, within(-10, 10)] = -1.2
    lengthscale_log_std: Positive = 1.0
    deviation_log_std: Positive = 0.3
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
        require_kernel(self)
        for field in ("factors", "time"):
            require(self, field, lambda value: not value or self.structure is None, "none where a structure is learned")

    def lengthscale_model(self, sizes: Sequence[int], *, alone: bool) -> LengthscaleModel:
        """Relation of the lengthscales in a fit of factors of ``sizes`` variables, or of one with its own outcomes."""
        if self.lengthscales != "auto":
            return self.lengthscales
        return "separate" if alone or max(sizes) == 1 else "hierarchical"

    def of_factors(self, factors: Sequence[str]) -> list[FactorForm]:
        """Forms of some factors; equal ones are one object."""
        lengths = self.lengthscale_log_median, self.lengthscale_log_std
        common = (self.kernel, *lengths, self.outputscale_log_std, self.noise_median)
        return [_form(self.factors.get(factor, _NOTHING_OWN), *common) for factor in factors]


@lru_cache(maxsize=1024)
def _form(
    own: FactorPrior,
    kernel: KernelName,
    length_log_median: float,
    length_log_std: float,
    output_log_std: float,
    noise_median: float,
) -> FactorForm:
    return FactorForm(
        own.kernel or kernel,
        length_log_median if own.lengthscale_log_median is None else own.lengthscale_log_median,
        own.lengthscale_log_std or length_log_std,
        own.outputscale_median,
        own.outputscale_log_std or output_log_std,
        own.noise_median or noise_median,
    )


T = TypeVar("T")


def domain_of(graph: FactorGraph, bounds: Mapping[str, tuple[float, float]] | Domain | None) -> Domain:
    """The box that bounds of variables make; from 0 to 1 where none are given."""
    if isinstance(bounds, Domain):
        if bounds.n_dims != len(graph.variables):
            raise ConfigError(f"got {bounds.n_dims} sides; wanted {len(graph.variables)}", at="$.bounds")
        return bounds
    sides = [(0.0, 1.0)] * len(graph.variables) if bounds is None else _each("bounds", bounds, graph.variables)
    low, high = np.array(sides, dtype=float).T
    return Domain(low, high)


def own_kernels(
    graph: FactorGraph, kernel: str | Mapping[str, str], time: TimeCorrelation | None
) -> AdditiveGPSettings:
    """Settings with one kernel for all factors, or one for each; a later fit starts from the pace of ``time``."""
    kernels = _each("kernel", kernel, graph.factors)
    if unknown := [name for name in kernels if name not in kernel_names()]:
        raise ConfigError(f"got {unknown[0]!r}; wanted one of {', '.join(kernel_names())}", at="$.kernel")
    axis = None if time is None else TimeAxis(time.kernel, time.lengthscale)
    if len(set(kernels)) == 1:
        return AdditiveGPSettings(kernel=kernels[0], time=axis)
    own = {factor: FactorPrior(kernel=name) for factor, name in zip(graph.factors, kernels, strict=True)}
    return AdditiveGPSettings(factors=own, time=axis)


def given_hyperparameters(
    settings: AdditiveGPSettings,
    graph: FactorGraph,
    domain: Domain,
    lengthscale: float | Mapping[str, float] | Mapping[str, Sequence[float]],
    outputscale: float | Mapping[str, float],
    noise_variance: float,
    mean: float | Mapping[str, float],
    time: TimeCorrelation | None,
) -> AdditiveHyperparameters:
    """Hyper-parameters from physical ones; see ``AdditiveGP``."""
    k = len(graph.factors)
    sides = dict(zip(graph.variables, (domain.high - domain.low).tolist(), strict=True))
    lengths = [
        tuple(length / sides[variable] for variable, length in zip(scope, own, strict=True))
        for scope, own in zip(graph.scopes, _lengths(graph, lengthscale), strict=True)
    ]
    outputs = [_above_zero("outputscale", value) for value in _each("outputscale", outputscale, graph.factors)]
    if not 0.0 <= noise_variance < math.inf:
        raise ConfigError(f"got {noise_variance}; wanted a finite number >= 0", at="$.noise_variance")
    means = _each("mean", mean, graph.factors) if isinstance(mean, Mapping) else [mean / k] * k
    if not all(math.isfinite(value) for value in means):
        raise ConfigError(f"got {mean}; wanted finite numbers", at="$.mean")
    kernels, noise = [form.kernel for form in settings.of_factors(graph.factors)], float(noise_variance)
    factors = (
        FactorHyperparameters(kernel, own, output, noise, float(value), 1.0, time)
        for kernel, own, output, value in zip(kernels, lengths, outputs, means, strict=True)
    )
    return AdditiveHyperparameters.of(factors, noise)


def _lengths(
    graph: FactorGraph, lengthscale: float | Mapping[str, float] | Mapping[str, Sequence[float]]
) -> list[list[float]]:
    if isinstance(lengthscale, Mapping) and any(name in graph.factors for name in lengthscale):
        by_factor = _each("lengthscale", lengthscale, graph.factors)
        lengths = [list(own) if isinstance(own, Iterable) else [own] for own in by_factor]
    else:
        by_variable = dict(zip(graph.variables, _each("lengthscale", lengthscale, graph.variables), strict=True))
        lengths = [[by_variable[variable] for variable in scope] for scope in graph.scopes]
    for factor, scope, own in zip(graph.factors, graph.scopes, lengths, strict=True):
        if len(own) != len(scope):
            raise ConfigError(
                f"got {len(own)} lengths; wanted one for each of {', '.join(scope)}", at=f"$.lengthscale.{factor}"
            )
    return [[_above_zero("lengthscale", length) for length in own] for own in lengths]


def _each(field: str, given: T | Mapping[str, T], names: Sequence[str]) -> list[T]:
    if not isinstance(given, Mapping):
        return [given] * len(names)
    if unknown := [name for name in given if name not in names]:
        raise ConfigError(f"got {unknown[0]!r}; wanted {', '.join(names)}", at=f"$.{field}")
    if missing := [name for name in names if name not in given]:
        raise ConfigError(f"got none for {missing[0]!r}; wanted one for each of {', '.join(names)}", at=f"$.{field}")
    return [given[name] for name in names]


def _above_zero(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
        raise ConfigError(f"got {value!r}; wanted a finite number > 0", at=f"$.{field}")
    return float(value)


def regrouped(
    hyper: AdditiveHyperparameters, old: FactorGraph, new: FactorGraph, kept: Mapping[int, int], kernel: KernelName
) -> AdditiveHyperparameters:
    """Hyper-parameters for another decomposition, whose kept factors, ``{new: old}``, keep what is their own.

    The others get the kernel given, for each variable the geometric mean of its lengthscales, and together, in even
    shares, the prior variance and mean that kept factors leave. They fade at the mean pace.
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
