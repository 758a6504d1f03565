"""Hyper-parameters as a person gives them: physical units, one number for all or one for each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, TimeAxis, TimeCorrelation
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import kernel_names
from swarmbo.spaces import Domain

T = TypeVar("T")


def domain_of(graph: FactorGraph, bounds: Mapping[str, tuple[float, float]] | Domain | None) -> Domain:
    """The box that bounds of variables make; from 0 to 1 where none are given.

    Raises:
        ConfigError: If a variable lacks its bounds, or they are no interval.
    """
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
    """Settings with one kernel for all factors, or one for each; a later fit starts from the pace of ``time``.

    Raises:
        ConfigError: If a name is no kernel's, or a factor lacks its own.
    """
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
    """Hyper-parameters from physical ones; see ``AdditiveGP``.

    Raises:
        ConfigError: If a value is out of range, or names what is not in the graph.
    """
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


def no_data(
    settings: AdditiveGPSettings,
    graph: FactorGraph,
    domain: Domain,
    outcomes: str,
    hyperparameters: AdditiveHyperparameters,
    *,
    standardise: bool,
) -> dict[str, Any]:
    """Fields of a belief without data."""
    n, k = len(graph.variables), len(graph.factors)
    return {
        "settings": settings,
        "graph": graph,
        "domain": domain,
        "outcomes": outcomes,
        "hyperparameters": hyperparameters,
        "standardise": standardise,
        "points": np.zeros((0, n)),
        "totals": np.zeros(0),
        "factors": np.zeros((0, k)),
        "noise": np.zeros((0, 1 + k)),
        "rounds": np.zeros(0),
        "now": 0.0,
        "pending": np.zeros((0, n)),
        "pending_rounds": np.zeros(0),
        "awaited": np.zeros((0, k), dtype=bool),
        "fitted_at": 0,
    }


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
    """One value per name, from one for all or a mapping of all."""
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
