"""A dictionary of random-feature models of factors that are weighted together, and the fit of its hyper-parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.features.ensemble_settings import EnsembleSettings, FittedLengthscales, Member, PartHyperparameters
from swarmbo.belief.features.feature_gp import FeatureBasis
from swarmbo.belief.features.feature_models import FeatureModels
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, common_scale
from swarmbo.belief.gp.observations import TOTAL, Observations, standardised_noise, units
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.kernels import Covariance, FourierDraw, KernelName
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

Vector = Float[np.ndarray, " t"]
Square = Float[np.ndarray, "t t"]


def part_of(data: Dataset, factors: Sequence[int], *, coupled: bool) -> Dataset:
    """Data of some factors, which are renumbered from 0; totals only if ``coupled``."""
    totals = data.totals if coupled else np.full(len(data), np.nan)
    noise = data.known_noise[:, [0, *(1 + i for i in factors)]]
    return Dataset(data.X, totals, data.factors[:, list(factors)], noise_std=noise)


def observed(own: Dataset, domain: Domain) -> Observations:
    """Observations of a part of the data."""
    return Observations.of(domain.to_unit(own.X), own.totals, own.factors, own.known_noise**2)


@dataclass(frozen=True, eq=False)
class EnsemblePart:
    """Members with the same outcomes, and their posteriors. In member m factor i is c_i + scale √(share_i)
    w_i·phi_i(x): separate features for each factor, one vector of weights w = (w_1, …, w_k) for all.
    """

    hyper: PartHyperparameters
    scopes: tuple[tuple[int, ...], ...]
    bases: tuple[tuple[FeatureBasis, ...], ...]
    models: FeatureModels

    @classmethod
    def create(
        cls,
        hyper: PartHyperparameters,
        scopes: Sequence[Sequence[int]],
        bases: Sequence[Sequence[FeatureBasis]],
        data: Observations,
    ) -> "EnsemblePart":
        """Posterior of the members given all data at once (Lu et al. 2022, eq. (7), by random features)."""
        own, all_bases = tuple(map(tuple, scopes)), tuple(map(tuple, bases))
        rows = feature_rows(all_bases, own, data.U, data.channel)
        noise, ratios = np.array([member.noise_variance for member in hyper.members]), _noise_ratios(hyper, data)
        models = FeatureModels.given(rows * ratios[..., None], _standardised(hyper, data) * ratios, noise)
        return cls(hyper, own, all_bases, models.in_unit_of(ratios))

    def updated(self, data: Observations) -> "EnsemblePart":
        """Update by one outcome after the other (Lu et al. 2022, eqs. (10) and (11))."""
        models, outcomes, ratios = self.models, _standardised(self.hyper, data), _noise_ratios(self.hyper, data)
        for r in range(len(data)):
            row = self._row(data, r) * ratios[:, r, None]
            models = models.updated(row, outcomes[:, r] * ratios[:, r]).in_unit_of(ratios[:, r : r + 1])
        return replace(self, models=models)

    def awaiting(self, data: Observations) -> "EnsemblePart":
        """Part with pending outcomes, which reduce the variance."""
        models = self.models
        for r in range(len(data)):
            models = models.awaiting(self._row(data, r))
        return replace(self, models=models)

    def _row(self, data: Observations, r: int) -> Float[np.ndarray, "M p"]:
        here = slice(r, r + 1)  # one row at a time, so that no bit depends on other rows
        return feature_rows(self.bases, self.scopes, data.U[here], data.channel[here])[:, 0]

    def weights(self, floor: float) -> Float[np.ndarray, " M"]:
        """Posterior probability of each member, from a uniform prior; every member keeps the share ``floor``."""
        evidence = self.models.log_evidence
        odds = np.exp(evidence - evidence.max())
        return floor + (1.0 - floor * len(odds)) * odds / odds.sum()  # updates, by Bayes' rule, have no floor

    def marginals(
        self, U: Float[np.ndarray, "m n"], floor: float, channel: int = TOTAL
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum of the part's factors, or of one of them, over all members; physical."""
        Phi = feature_rows(self.bases, self.scopes, U, np.full(len(U), channel))
        mean, var = self.models.marginals(Phi)
        mean = _constants(self.hyper)[:, channel, None] + self.hyper.scale * mean
        w = self.weights(floor)
        mixed = w @ mean
        return mixed, w @ (self.hyper.scale**2 * var + (mean - mixed) ** 2)

    def factor_means(self, U: Float[np.ndarray, "m n"], floor: float) -> Float[np.ndarray, "k m"]:
        """Mean of each factor over all members; physical."""
        w, constants, out = self.weights(floor), _constants(self.hyper), list[np.ndarray]()
        for i in range(len(self.scopes)):
            Phi = feature_rows(self.bases, self.scopes, U, np.full(len(U), i))
            out.append(w @ (constants[:, i : i + 1] + self.hyper.scale * self.models.mean(Phi)))
        return np.array(out)

    def draw(self, member: int, prior: Float[np.ndarray, "k f"], noise: Vector) -> list[FourierDraw]:
        """One function per factor, standardised: a joint draw from a member's posterior; inputs are standard normal."""
        drawn = self.models.draw(member, prior.ravel(), noise).reshape(prior.shape)
        out = list[FourierDraw]()
        for basis, w in zip(self.bases[member], drawn, strict=True):
            sines, cosines = np.split(np.sqrt(basis.outputscale / len(basis.frequencies)) * w, 2)
            out.append(FourierDraw(basis.frequencies, sines, cosines))
        return out


def bases_of(members: Sequence[Member], seeds: Sequence[Sequence[int]], n_features: int) -> list[list[FeatureBasis]]:
    """Random features of members, factor by factor, with variances that add up to the member's outputscale."""
    out = list[list[FeatureBasis]]()
    for member, own in zip(members, seeds, strict=True):
        shapes = zip(member.lengthscales, member.shares, strict=True)
        priors = [Covariance(member.kernel, np.array(length), member.outputscale * share) for length, share in shapes]
        out.append([FeatureBasis.create(seed, prior, n_features) for seed, prior in zip(own, priors, strict=True)])
    return out


def feature_rows(
    bases: Sequence[Sequence[FeatureBasis]],
    scopes: Sequence[Sequence[int]],
    U: Float[np.ndarray, "r n"],
    channel: Int[np.ndarray, " r"],
) -> Float[np.ndarray, "M r p"]:
    """Features of outcomes: of all factors in the channel ``TOTAL``, else of the channel's factor; the others are 0."""
    f = bases[0][0].n_features
    rows = np.zeros((len(bases), len(U), f * len(scopes)))
    for i, scope in enumerate(scopes):
        seen = (channel == TOTAL) | (channel == i)
        points = U[seen][:, list(scope)]
        if len(points):
            for m, own in enumerate(bases):
                rows[m, seen, i * f : (i + 1) * f] = own[i].features(points)
    return rows


def _noise_ratios(hyper: PartHyperparameters, data: Observations) -> Float[np.ndarray, "M r"]:
    """Factors that scale outcomes and their features to the one noise of each member; 1 for unreported noise."""
    own = np.sqrt(standardised_noise(data.noise, hyper.scale))
    members = np.sqrt([member.noise_variance for member in hyper.members])
    return np.where(np.isnan(own), 1.0, members[:, None] / own)


def _standardised(hyper: PartHyperparameters, data: Observations) -> Float[np.ndarray, "M r"]:
    return (data.outcome - _constants(hyper)[:, data.channel]) / hyper.scale


def _constants(hyper: PartHyperparameters) -> Float[np.ndarray, "M k+1"]:
    """Prior means of the factors and of their sum, by member; ``TOTAL`` = -1 indexes the sum, which is last."""
    constants = np.array([hyper.constants(member) for member in hyper.members])
    return np.column_stack([constants, constants.sum(axis=1)])


_STEP = 0.25  # natural logarithms between grid values: an eighth more or less has little effect
_OUTPUTSCALES = np.exp(np.arange(-7.0, 7.0 + _STEP / 2.0, _STEP))
_NOISE_CEILING = 10.0


def fit_part(
    settings: EnsembleSettings,
    graph: FactorGraph,
    domain: Domain,
    factors: Sequence[int],
    own: Dataset,
    seeds: Sequence[Sequence[int]],
) -> PartHyperparameters:
    """Members of one part, fitted to its ``own`` data."""
    data, scopes = observed(own, domain), [graph.columns[i] for i in factors]
    offsets, scales, is_shown = units(own.totals, own.factors)
    shapes = _fitted_shapes(settings, graph, domain, factors, own)
    members = [_shape(kernel, length, scopes, shapes) for kernel, length in dictionary(settings)]
    part = PartHyperparameters(
        factors=tuple(factors),
        offsets=tuple(offsets.tolist()),
        scale=common_scale(scales[scales != 1.0].tolist() or [1.0]),  # 1: outcomes that do not vary
        is_shown=is_shown,
        fitted_at=len(own),
        members=tuple(members),
    )
    if not is_shown:
        return part
    z = (data.outcome - np.array([*offsets, offsets.sum()])[data.channel]) / part.scale
    rows = feature_rows(bases_of(members, seeds, settings.n_features), scopes, data.U, data.channel)
    # the constant of a sum is determined by totals, or by outcomes of a single factor
    has_constant = len(factors) == 1 or bool((data.channel == TOTAL).all())
    known = standardised_noise(data.noise, part.scale)
    fit = partial(_fit_variances, settings, z=z, known=known, has_constant=has_constant)
    fitted = [fit(member, G=Phi @ Phi.T) for member, Phi in zip(members, rows, strict=True)]
    return msgspec.structs.replace(part, members=tuple(fitted))


def _fitted_shapes(
    settings: EnsembleSettings, graph: FactorGraph, domain: Domain, factors: Sequence[int], data: Dataset
) -> dict[tuple[KernelName, FittedLengthscales], AdditiveHyperparameters]:
    """Fitted hyper-parameters, for members whose lengthscales and factors' shares of the variance are fitted."""
    part_graph = FactorGraph.from_scopes({graph.factors[i]: graph.scopes[i] for i in factors})
    columns = [graph.column_of[variable] for variable in part_graph.variables]
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
            belief = AdditiveGP.create(prior, part_graph, box)
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
    settings: EnsembleSettings, member: Member, G: Square, z: Vector, known: Vector, *, has_constant: bool
) -> Member:
    """Outputscale s and noise n with the largest log evidence plus log prior of z ~ N(c, s G + D), on a grid."""
    low, n_unknown = np.log(settings.noise_floor), int(np.isnan(known).sum())
    noises = np.exp(np.arange(low, np.log(_NOISE_CEILING), _STEP))
    if n_unknown == len(z):
        density, constants = _log_evidence(G, z, np.ones(len(z)), noises, has_constant=has_constant)
    else:
        noises = noises[:: round(1.0 / _STEP)] if n_unknown else np.array([max(np.median(known), settings.noise_floor)])
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
    G: Square, z: Vector, one: Vector, noises: Float[np.ndarray, " n"], *, has_constant: bool
) -> tuple[Float[np.ndarray, "s n"], Float[np.ndarray, "s n"]]:
    """Log evidence of z ~ N(c one, s G + n I) for each s and n, up to a constant, and its maximiser c (or 0)."""
    values, Q = np.linalg.eigh(G)
    precisions = 1.0 / (np.maximum(values, 0.0) * _OUTPUTSCALES[:, None, None] + noises[:, None])  # (s, n, t)
    turned, ones = z @ Q, (one[:, None] * Q).sum(axis=0)
    constants = np.zeros(precisions.shape[:2])
    if has_constant:
        constants = precisions @ (ones * turned) / (precisions @ (ones * ones))
    misfit = precisions @ turned**2 - 2.0 * constants * (precisions @ (ones * turned))
    misfit += constants**2 * (precisions @ ones**2)
    return 0.5 * np.log(precisions).sum(axis=2) - 0.5 * misfit, constants
