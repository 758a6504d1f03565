"""A team's belief as a mixture of Gaussian processes of different kernels, by random features (EGP).

   p(f | data) = Σ_m w_m p(f | data, m),   w_m ∝ p(data | m)

Every member is a Gaussian linear model over its own random features. A new outcome multiplies each weight by the
member's predictive density, and updates each member's posterior by rank one; at intervals hyper-parameters are fitted
and features drawn again, from all data at once.

With totals, a member has one kernel for all factors and separate features for each; their weights are drawn jointly.
With outcomes per factor, each factor has its own dictionary and weights. Agents maximise a draw by messages.

Source: Lu, Polyzos, Li & Giannakis 2022, section 4. Their appendix takes the standard normal density for the spectrum
of exp(-r²), which is that of exp(-r²/2); here kernels and spectra are those of ``swarmbo.kernels``. They leave open
which evidence (7) means; here it is that of the random features, so that (10) continues from (7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.features.ensemble_part import EnsemblePart, bases_of, dictionary, fit_part, observed, part_of
from swarmbo.belief.features.ensemble_settings import EnsembleHyperparameters, EnsembleSettings, PartHyperparameters
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_prediction import FeatureSample
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.observations import Observations
from swarmbo.belief.gp.spatial import checked_points
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.kernels import FourierDraw
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain


@dataclass(frozen=True, eq=False)
class Ensemble:
    """An immutable belief about a sum of functions, made by ``learned``."""

    settings: EnsembleSettings
    graph: FactorGraph
    domain: Domain
    hyper: EnsembleHyperparameters
    parts: tuple[EnsemblePart, ...]
    data: Dataset

    @classmethod
    def learned(
        cls,
        settings: EnsembleSettings,
        graph: FactorGraph,
        domain: Domain,
        data: Dataset,
        *,
        coupled: bool,
        seed: int,
        previous: EnsembleHyperparameters | None = None,
        last: "Ensemble | None" = None,
    ) -> "Ensemble":
        """Ensemble given a history; each part is fitted again if due, else updated outcome by outcome."""
        k = len(graph.factors)
        groups = [tuple(range(k))] if coupled else [(i,) for i in range(k)]
        goes_on = last is not None and data.begins_with(last.data)
        parts = list[EnsemblePart]()
        for index, group in enumerate(groups):
            part_data = part_of(data, group, coupled=coupled)
            hyper = None if previous is None else previous.parts[index]
            if hyper is None or _is_due(settings, hyper, data):
                seeds = _seeds(settings, seed, group, len(data))
                hyper = fit_part(settings, graph, domain, group, part_data, seeds)
            if last is not None and goes_on and last.parts[index].hyper is hyper:
                first, part = len(last.data), last.parts[index]
            else:
                first = hyper.fitted_at
                bases = bases_of(hyper.members, _seeds(settings, seed, group, first), settings.n_features)
                scopes = [graph.columns[i] for i in group]
                part = EnsemblePart.create(hyper, scopes, bases, observed(part_data.take(slice(first)), domain))
            parts.append(part.updated(observed(part_data.take(slice(first, None)), domain)))
        hypers = EnsembleHyperparameters(tuple(part.hyper for part in parts))
        return cls(settings, graph, domain, hypers, tuple(parts), data)

    @property
    def is_coupled(self) -> bool:
        """True if members model the sum of all factors."""
        return len(self.parts[0].scopes) == len(self.graph.factors)

    @property
    def weights(self) -> tuple[Float[np.ndarray, " M"], ...]:
        """Probability of each member, for each part; at least the floor."""
        return tuple(part.weights(self.settings.floor) for part in self.parts)

    def condition_on_pending(self, X: ArrayLike, awaited: ArrayLike | None = None) -> "Ensemble":
        """Ensemble with pending physical points; ``awaited`` masks the factors with outcomes to come (None: all)."""
        U = self.domain.to_unit(checked_points(X, self.domain.n_dims))
        to_come = np.ones((len(U), len(self.graph.factors)), dtype=bool) if awaited is None else np.asarray(awaited)
        # in a part of one factor, the sum is that factor
        pending = [Observations.pending(U, to_come[:, list(part.hyper.factors)], in_sum=True) for part in self.parts]
        return replace(self, parts=tuple(map(EnsemblePart.awaiting, self.parts, pending)))

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum over all members at joint points (m, n), physical."""
        U = self.domain.to_unit(checked_points(X, self.domain.n_dims))
        marginals = [part.marginals(U, self.settings.floor) for part in self.parts]
        return np.sum([mean for mean, _ in marginals], axis=0), np.sum([var for _, var in marginals], axis=0)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance over all members of a factor at joint points (m, n), physical."""
        place, U = self.graph.place_of[factor], self.domain.to_unit(checked_points(X, self.domain.n_dims))
        part = next(part for part in self.parts if place in part.hyper.factors)
        return part.marginals(U, self.settings.floor, part.hyper.factors.index(place))

    def factor_means(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "k m"]:
        """Mean of each factor, in the unit of outcomes, at joint points (m, n) of the unit cube."""
        return np.concatenate([part.factor_means(U, self.settings.floor) for part in self.parts])

    def choose(self, rngs: Sequence[np.random.Generator]) -> tuple[int, ...]:
        """Draw a member of each part by weight, with one stream for each part."""
        return tuple(int(rng.choice(len(w), p=w / w.sum())) for rng, w in zip(rngs, self.weights, strict=True))

    def draw(
        self, chosen: Sequence[int], rngs: Sequence[np.random.Generator], noise_rngs: Sequence[np.random.Generator]
    ) -> FeatureSample:
        """One function per factor: jointly a draw from the posterior of chosen members. Each factor has a stream in
        ``rngs``, so that its owner can draw alone; each part has one in ``noise_rngs``, which its owners share.
        """
        names, f = self.graph.factors, self.settings.n_features
        draws, constants, scales = dict[str, FourierDraw](), dict[str, float](), dict[str, float]()
        for part, member, noise_rng in zip(self.parts, chosen, noise_rngs, strict=True):
            own = part.hyper.factors
            prior = np.array([rngs[i].standard_normal(f) for i in own])
            drawn = part.draw(member, prior, noise_rng.standard_normal(part.models.n_rows))
            means = part.hyper.constants(part.hyper.members[member])
            for i, one, mean in zip(own, drawn, means, strict=True):
                draws[names[i]], constants[names[i]], scales[names[i]] = one, float(mean), part.hyper.scale
        return FeatureSample(self.graph, draws, constants, scales)

    def exact(self, chosen: tuple[int, ...]) -> AdditiveGP:
        """Exact Gaussian processes of the same data under the hyper-parameters of chosen members."""
        data, hyper, noise = self.data, self.hyper.of_members(chosen), self.data.known_noise**2
        totals, outcomes = data.totals if self.is_coupled else None, "total" if self.is_coupled else "per-factor"
        return AdditiveGP.from_hyperparameters(
            AdditiveGPSettings(), self.graph, self.domain, hyper, data.X, totals, data.factors, noise, outcomes=outcomes
        )


def _is_due(settings: EnsembleSettings, hyper: PartHyperparameters, data: Dataset) -> bool:
    """True if a part must be fitted again: on schedule, or with new outcomes if those of the last fit did not vary."""
    since = data.take(slice(hyper.fitted_at, None))
    is_told = np.isfinite(since.totals).any() or np.isfinite(since.factors[:, list(hyper.factors)]).any()
    return len(since) >= settings.refit_every or (bool(is_told) and not hyper.is_shown)


def _seeds(settings: EnsembleSettings, seed: int, factors: Sequence[int], fitted_at: int) -> list[list[int]]:
    """Seeds of the features of each member and factor, different after each fit."""

    def seed_of(member: int, factor: int) -> int:
        rng = stream(seed, "ensemble", "features", evaluations=fitted_at, member=member, factor=factor)
        return int(rng.integers(2**63))

    return [[seed_of(m, i) for i in factors] for m in range(len(dictionary(settings)))]
