"""Hyper-parameters that are not fitted: as a person gives them, or carried over from another decomposition."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, TimeAxis, TimeCorrelation
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName, kernel_names
from swarmbo.spaces import Domain

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
    return AdditiveHyperparameters(
        kernels=tuple(form.kernel for form in settings.of_factors(graph.factors)),
        lengthscales=tuple(lengths),
        outputscales=tuple(outputs),
        noise_variances=(float(noise_variance),) * k,
        total_noise_variance=float(noise_variance),
        constants=tuple(float(value) for value in means),
        scales=(1.0,) * k,
        times=() if time is None else (time,) * k,
    )


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
    k, fresh = len(new.factors), len(new.factors) - len(kept)
    variance, left = (
        sum(hyper.outputscales),
        sum(hyper.outputscales) - sum(hyper.outputscales[i] for i in kept.values()),
    )
    share = max(left, 1e-3 * variance) / max(fresh, 1)
    constant = (hyper.constant - sum(hyper.constants[i] for i in kept.values())) / max(fresh, 1)
    typical = None
    if hyper.times:
        pace = float(np.exp(np.mean([np.log(time.lengthscale) for time in hyper.times])))
        typical = TimeCorrelation(hyper.times[0].kernel, pace)
    averages = {variable: float(np.exp(np.mean(values))) for variable, values in logs.items()}
    return AdditiveHyperparameters(
        kernels=tuple(hyper.kernels[kept[i]] if i in kept else kernel for i in range(k)),
        lengthscales=tuple(
            hyper.lengthscales[kept[i]] if i in kept else tuple(averages[variable] for variable in scope)
            for i, scope in enumerate(new.scopes)
        ),
        outputscales=tuple(hyper.outputscales[kept[i]] if i in kept else share for i in range(k)),
        noise_variances=tuple(
            hyper.noise_variances[kept[i]] if i in kept else hyper.total_noise_variance for i in range(k)
        ),
        total_noise_variance=hyper.total_noise_variance,
        constants=tuple(hyper.constants[kept[i]] if i in kept else constant for i in range(k)),
        scales=(hyper.scales[0],) * k,
        times=tuple(hyper.times[kept[i]] if i in kept else typical for i in range(k)) if typical else (),
    )
