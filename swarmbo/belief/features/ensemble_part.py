"""A dictionary of random-feature models of factors that are weighted together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.features.ensemble_settings import Member, PartHyperparameters
from swarmbo.belief.features.feature_basis import FeatureBasis
from swarmbo.belief.features.feature_models import FeatureModels
from swarmbo.belief.gp.observations import TOTAL, Observations, standardised_noise
from swarmbo.belief.gp.path_sample import PriorDraw
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain


def of_part(data: Dataset, domain: Domain, factors: Sequence[int], *, coupled: bool) -> Observations:
    """Observations of some factors, numbered within these; totals only if ``coupled``."""
    totals = data.totals if coupled else np.full(len(data), np.nan)
    own, variance = list(factors), data.known_noise**2
    noise = variance[:, [0, *(1 + i for i in own)]]
    return Observations.of(domain.to_unit(data.X), totals, data.factors[:, own], noise)


@dataclass(frozen=True, eq=False)
class EnsemblePart:
    """Members with the same outcomes, and their posteriors; immutable. Made by ``create``.

    In member m factor i is c_i + scale √(share_i) w_i·phi_i(x): separate features for each factor, one vector of
    weights w = (w_1, …, w_k) for all. An outcome of the sum sees all features, one of a factor that factor's.
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
        here = slice(r, r + 1)  # alone, so that it is bit-identical in any company
        return feature_rows(self.bases, self.scopes, data.U[here], data.channel[here])[:, 0]

    def weights(self, floor: float) -> Float[np.ndarray, " M"]:
        """Posterior probability of each member, from a uniform prior; in sum 1.

        Every member keeps the share ``floor``: it is mixed in here, so the recursion stays Bayes' rule.
        """
        evidence = self.models.log_evidence
        odds = np.exp(evidence - evidence.max())
        return floor + (1.0 - floor * len(odds)) * odds / odds.sum()

    def marginals(
        self, U: Float[np.ndarray, "m n"], floor: float
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum of the part's factors, over all members; physical."""
        Phi = feature_rows(self.bases, self.scopes, U, np.full(len(U), TOTAL))
        mean, var = self.models.marginals(Phi)
        mean = self._constants().sum(axis=1)[:, None] + self.hyper.scale * mean
        w = self.weights(floor)
        mixed = w @ mean
        return mixed, w @ (self.hyper.scale**2 * var + (mean - mixed) ** 2)

    def factor_means(self, U: Float[np.ndarray, "m n"], floor: float) -> Float[np.ndarray, "k m"]:
        """Mean of each factor over all members; physical."""
        w, constants, out = self.weights(floor), self._constants(), list[np.ndarray]()
        for i in range(len(self.scopes)):
            Phi = feature_rows(self.bases, self.scopes, U, np.full(len(U), i))
            out.append(w @ (constants[:, i : i + 1] + self.hyper.scale * self.models.mean(Phi)))
        return np.array(out)

    def draw(self, member: int, prior: Float[np.ndarray, "k f"], noise: Float[np.ndarray, " t"]) -> list[PriorDraw]:
        """One function per factor, standardised: a joint draw from a member's posterior, by standard normal numbers."""
        drawn = self.models.draw(member, prior.ravel(), noise).reshape(prior.shape)
        out = list[PriorDraw]()
        for basis, w in zip(self.bases[member], drawn, strict=True):
            k = len(basis.frequencies)
            sines, cosines = np.split(np.sqrt(basis.outputscale / k) * w, 2)
            out.append(PriorDraw(basis.frequencies, sines, cosines))
        return out

    def _constants(self) -> Float[np.ndarray, "M k"]:
        return np.array([self.hyper.constants(member) for member in self.hyper.members])


def bases_of(members: Sequence[Member], seeds: Sequence[Sequence[int]], n_features: int) -> list[list[FeatureBasis]]:
    """Random features of members, factor by factor, with variances that add up to the member's outputscale."""
    return [
        [
            FeatureBasis.create(seed, member.kernel, np.array(lengths), member.outputscale * share, n_features)
            for seed, lengths, share in zip(own, member.lengthscales, member.shares, strict=True)
        ]
        for member, own in zip(members, seeds, strict=True)
    ]


def feature_rows(
    bases: Sequence[Sequence[FeatureBasis]],
    scopes: Sequence[Sequence[int]],
    U: Float[np.ndarray, "r n"],
    channel: Int[np.ndarray, " r"],
) -> Float[np.ndarray, "M r p"]:
    """Features of outcomes: of all factors for the channel ``TOTAL``, else of one factor, the rest 0."""
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
    """Factors that scale outcomes and their features to the noise of each member; 1 for unreported noise.

    So scaled, they have the same likelihood with the one noise of a member.
    """
    own = np.sqrt(standardised_noise(data.noise, hyper.scale))
    members = np.sqrt([member.noise_variance for member in hyper.members])
    return np.where(np.isnan(own), 1.0, members[:, None] / own)


def _standardised(hyper: PartHyperparameters, data: Observations) -> Float[np.ndarray, "M r"]:
    constants = np.array([hyper.constants(member) for member in hyper.members])
    table = np.column_stack([constants, constants.sum(axis=1)])  # TOTAL = -1 indexes the last
    return (data.outcome - table[:, data.channel]) / hyper.scale
