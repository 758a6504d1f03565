"""Hyper-parameters of an ensemble's members, each by the evidence of its own random-feature model."""

from collections.abc import Sequence

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.features.ensemble_part import bases_of, feature_rows, of_part
from swarmbo.belief.features.ensemble_settings import EnsembleSettings, FittedLengthscales, Member, PartHyperparameters
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import TOTAL, standardised_noise, units
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

_STEP = 0.25  # natural logarithms between grid values: an eighth more or less has little effect
_OUTPUTSCALES = np.exp(np.arange(-7.0, 7.0 + _STEP / 2.0, _STEP))
_NOISE_CEILING = 10.0


def fit_part(
    settings: EnsembleSettings,
    graph: FactorGraph,
    domain: Domain,
    factors: Sequence[int],
    data: Dataset,
    seeds: Sequence[Sequence[int]],
    *,
    coupled: bool,
) -> PartHyperparameters:
    """Members of one part, fitted to the observations of its ``factors`` only; totals count if ``coupled``."""
    k, observed = len(factors), of_part(data, domain, factors, coupled=coupled)
    scopes = [graph.columns[i] for i in factors]
    totals, told = data.totals if coupled else np.full(len(data), np.nan), data.factors[:, list(factors)]
    noise = data.known_noise[:, [0, *(1 + i for i in factors)]]
    offsets, scales, is_shown = units(totals, told)
    shapes = _fitted_shapes(settings, graph, domain, factors, Dataset(data.X, totals, told, noise_std=noise))
    members = [_shape(kernel, length, scopes, shapes) for kernel, length in dictionary(settings)]
    part = PartHyperparameters(
        factors=tuple(factors),
        offsets=tuple(offsets.tolist()),
        scale=float(scales[0]),
        is_shown=is_shown,
        fitted_at=len(data),
        members=tuple(members),
    )
    if not is_shown:
        return part
    z = (observed.outcome - np.array([*offsets, offsets.sum()])[observed.channel]) / part.scale
    rows = feature_rows(bases_of(members, seeds, settings.n_features), scopes, observed.U, observed.channel)
    # the constant of a sum is determined by totals, or by outcomes of a single factor
    has_constant = k == 1 or bool((observed.channel == TOTAL).all())
    known = standardised_noise(observed.noise, part.scale)
    fitted = [
        _fit_variances(settings, member, own @ own.T, z, known, has_constant=has_constant)
        for member, own in zip(members, rows, strict=True)
    ]
    return msgspec.structs.replace(part, members=tuple(fitted))


def _fitted_shapes(
    settings: EnsembleSettings, graph: FactorGraph, domain: Domain, factors: Sequence[int], data: Dataset
) -> dict[tuple[KernelName, FittedLengthscales], AdditiveHyperparameters]:
    """Lengthscales, and shares of factors in the variance, for members that have them fitted."""
    own = FactorGraph.from_scopes({graph.factors[i]: graph.scopes[i] for i in factors})
    columns = [graph.column_of[variable] for variable in own.variables]
    box, X = Domain(domain.low[columns], domain.high[columns]), data.X[:, columns]
    out = dict[tuple[KernelName, FittedLengthscales], AdditiveHyperparameters]()
    for kernel, length in dictionary(settings):
        if isinstance(length, str):
            prior = AdditiveGPSettings(
                kernel=kernel,
                lengthscales="auto" if length == "fitted" else length,
                noise_median=settings.noise_median,
                noise_log_std=settings.noise_log_std,
                noise_floor=settings.noise_floor,
            )
            belief = AdditiveGP.create(prior, own, box)
            variance = data.known_noise**2
            belief = belief.update(X, totals=data.totals, factors=data.factors, noise_variance=variance)
            out[kernel, length] = belief.fit(stream(0, "no random starts")).hyperparameters
    return out


def dictionary(settings: EnsembleSettings) -> list[tuple[KernelName, float | FittedLengthscales]]:
    """Kernel and lengthscale of each member, in order."""
    return [(kernel, length) for kernel in settings.kernels for length in settings.lengthscales]


def _shape(
    kernel: KernelName,
    length: float | FittedLengthscales,
    scopes: Sequence[Sequence[int]],
    shapes: dict[tuple[KernelName, FittedLengthscales], AdditiveHyperparameters],
) -> Member:
    if isinstance(length, str):
        hyper = shapes[kernel, length]
        outputs = np.array(hyper.in_one_unit().outputscales)
        return Member(kernel, hyper.lengthscales, tuple((outputs / outputs.sum()).tolist()))
    lengths = tuple((length * float(np.sqrt(len(scope))),) * len(scope) for scope in scopes)
    return Member(kernel, lengths, (1.0 / len(scopes),) * len(scopes))


def _fit_variances(
    settings: EnsembleSettings,
    member: Member,
    G: Float[np.ndarray, "t t"],
    z: Float[np.ndarray, " t"],
    known: Float[np.ndarray, " t"],
    *,
    has_constant: bool,
) -> Member:
    """Outputscale s and noise n with the largest log evidence plus log prior of z ~ N(c, s G + D), on a grid.

    D is n I, except for outcomes of known noise. One eigendecomposition of G makes each pair cost O(t); different
    noises need one of D^-1/2 G D^-1/2 for each n, so fewer are tried; if all are known, only their mean.
    """
    low, n_unknown = np.log(settings.noise_floor), int(np.isnan(known).sum())
    noises = np.exp(np.arange(low, np.log(_NOISE_CEILING), _STEP))
    if n_unknown == len(z):
        density, constants = _log_evidence(G, z, np.ones(len(z)), noises, has_constant=has_constant)
    else:
        noises = noises[:: round(1.0 / _STEP)] if n_unknown else np.array([max(known.mean(), settings.noise_floor)])
        density, constants = np.empty((2, len(_OUTPUTSCALES), len(noises)))
        for i, noise in enumerate(noises):
            w, one = np.where(np.isnan(known), noise, known) ** -0.5, np.ones(1)
            found, at = _log_evidence(w[:, None] * G * w, w * z, w, one, has_constant=has_constant)
            density[:, i], constants[:, i] = found[:, 0] + np.log(w).sum(), at[:, 0]
    density -= 0.5 * (np.log(_OUTPUTSCALES) / settings.outputscale_log_std)[:, None] ** 2
    density -= 0.5 * (np.log(noises / settings.noise_median) / settings.noise_log_std) ** 2
    s, n = np.unravel_index(int(np.argmax(density)), density.shape)
    return msgspec.structs.replace(
        member, outputscale=float(_OUTPUTSCALES[s]), noise_variance=float(noises[n]), constant=float(constants[s, n])
    )


def _log_evidence(
    G: Float[np.ndarray, "t t"],
    z: Float[np.ndarray, " t"],
    one: Float[np.ndarray, " t"],
    noises: Float[np.ndarray, " n"],
    *,
    has_constant: bool,
) -> tuple[Float[np.ndarray, "s n"], Float[np.ndarray, "s n"]]:
    """Log evidence of z ~ N(c one, s G + n I) for each s and n, up to a constant, and c, profiled."""
    values, Q = np.linalg.eigh(G)
    precisions = 1.0 / (np.maximum(values, 0.0) * _OUTPUTSCALES[:, None, None] + noises[:, None])  # (s, n, t)
    turned, ones = z @ Q, (one[:, None] * Q).sum(axis=0)
    constants = np.zeros(precisions.shape[:2])
    if has_constant:
        constants = precisions @ (ones * turned) / (precisions @ (ones * ones))
    misfit = precisions @ turned**2 - 2.0 * constants * (precisions @ (ones * turned))
    misfit += constants**2 * (precisions @ ones**2)
    return 0.5 * np.log(precisions).sum(axis=2) - 0.5 * misfit, constants
