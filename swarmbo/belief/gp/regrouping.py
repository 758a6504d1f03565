"""Hyper-parameters carried over from one decomposition to another."""

from collections.abc import Mapping

import numpy as np

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, TimeCorrelation
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName


def kept_factors(old: FactorGraph, new: FactorGraph) -> dict[int, int]:
    """Which factors of a graph have the name and the scope of a factor of another: ``{new index: old index}``.

    Raises:
        ConfigError: If the graphs are not about the same variables.
    """
    if set(new.variables) != set(old.variables):
        raise ConfigError(f"got variables {', '.join(new.variables)}; wanted {', '.join(old.variables)}", at="$.graph")
    places = {(factor, scope): i for i, (factor, scope) in enumerate(zip(old.factors, old.scopes, strict=True))}
    pairs = zip(new.factors, new.scopes, strict=True)
    return {i: places[pair] for i, pair in enumerate(pairs) if pair in places}


def regrouped(
    hyper: AdditiveHyperparameters, old: FactorGraph, new: FactorGraph, kept: Mapping[int, int], kernel: KernelName
) -> AdditiveHyperparameters:
    """Hyper-parameters for another decomposition.

    Args:
        hyper: Of the old graph.
        old: Scopes so far.
        new: Scopes from now on.
        kept: From ``kept_factors``; these keep what is their own.
        kernel: Of all others. For each variable they get the geometric mean of its lengthscales, and together, in even
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
