"""A team's belief as a mixture of Gaussian processes of different kernels, by random features (EGP).

   p(f | data) = Σ_m w_m p(f | data, m),   w_m ∝ p(data | m)

Every member is a Gaussian linear model over its own random features. A new outcome multiplies each weight by what the
member foretold, and moves each member's posterior by a rank-one update; every so often hyper-parameters are fitted anew
and features drawn anew, from all data at once.

Where totals are told, a member is one kernel for all factors, with features of its own for each: weights of features
are drawn jointly, and the drawn sum is the sum of one drawn function per factor. Where outcomes of factors are told,
each factor has a dictionary and weights of its own, and no outcome of another matters to it. Either way agents maximise
a draw by messages, like any other sum over factors.

Source: Lu, Polyzos, Li & Giannakis 2022, section 4. Their appendix takes the standard normal density for the spectrum
of exp(-r²), which is that of exp(-r²/2); here kernels are those of ``swarmbo.kernels``, and so are their spectra. They
leave open which evidence (7) means; it is that of the random features here, so that (10) goes on from (7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from swarmbo.belief.additive import AdditiveGP
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.belief.ensemble_fit import dictionary, fit_part, fitted_shapes
from swarmbo.belief.ensemble_part import EnsemblePart, bases_of
from swarmbo.belief.ensemble_settings import EnsembleHyperparameters, EnsembleSettings
from swarmbo.belief.feature_sample import FeatureSample
from swarmbo.belief.observations import TOTAL, Observations
from swarmbo.belief.path_sample import PriorDraw
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream
from swarmbo.spaces import Domain


@dataclass(frozen=True, eq=False)
class Evaluations:
    """What was evaluated, as an ensemble takes it.

    Args:
        X: Joint points (t, n), physical.
        totals: Outcomes of the sum (t,); NaN where not observed.
        factors: Outcomes by factor (t, k); NaN where not observed.
    """

    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]

    def __len__(self) -> int:
        return len(self.totals)

    def take(self, rows: slice) -> "Evaluations":
        """Some of them."""
        return Evaluations(self.X[rows], self.totals[rows], self.factors[rows])

    def begins_with(self, other: "Evaluations") -> bool:
        """Whether these are others and what came since."""
        n = len(other)
        mine = self.take(slice(n))
        return len(mine) == n and all(
            np.array_equal(a, b, equal_nan=True)
            for a, b in ((mine.X, other.X), (mine.totals, other.totals), (mine.factors, other.factors))
        )


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A belief about a sum of functions, immutable. Made by ``fitted``.

    Args:
        settings: The dictionary.
        graph: Scopes.
        domain: The box of joint points.
        hyper: Of all members.
        parts: One of all factors, or one each.
        data: What it learned.

    Example:
        >>> from swarmbo.rng import stream
        >>> graph, domain = FactorGraph.from_scopes({"f": ["x"]}), Domain(np.zeros(1), np.ones(1))
        >>> X = np.linspace(0.0, 1.0, 12)[:, None]
        >>> seen = Evaluations(X, np.sin(6.0 * X[:, 0]), np.full((12, 1), np.nan))
        >>> belief = Ensemble.fitted(EnsembleSettings(n_features=64), graph, domain, seen, tied=True, seed=0)
        >>> belief.weights[0].shape, bool(abs(belief.posterior(X[:1])[0][0]) < 0.05)
        ((12,), True)
    """

    settings: EnsembleSettings
    graph: FactorGraph
    domain: Domain
    hyper: EnsembleHyperparameters
    parts: tuple[EnsemblePart, ...]
    data: Evaluations

    @classmethod
    def fitted(
        cls,
        settings: EnsembleSettings,
        graph: FactorGraph,
        domain: Domain,
        data: Evaluations,
        *,
        tied: bool,
        seed: int,
    ) -> "Ensemble":
        """Fit all members to data, and draw their features.

        Args:
            settings: The dictionary.
            graph: Scopes.
            domain: The box of joint points, in the order of ``graph.variables``.
            data: May be empty, or without outcomes.
            tied: Whether members are of all factors in sum, as outcomes of the sum need it.
            seed: Of features, and of the fit's random starts.
        """
        k = len(graph.factors)
        tied = tied or k == 1
        groups, scopes = [list(range(k))] if tied else [[i] for i in range(k)], scopes_of(graph)
        shapes = fitted_shapes(
            settings, graph, domain, data.X, data.totals if tied else None, data.factors, _sub_seed(seed, "shapes")
        )
        parts = [
            fit_part(
                settings,
                group,
                [scopes[i] for i in group],
                _observed(domain, data, group, tied=tied),
                shapes,
                _seeds(settings, seed, group),
            )
            for group in groups
        ]
        return cls.given(settings, graph, domain, data, EnsembleHyperparameters(tuple(parts)), seed=seed)

    @classmethod
    def given(
        cls,
        settings: EnsembleSettings,
        graph: FactorGraph,
        domain: Domain,
        data: Evaluations,
        hyper: EnsembleHyperparameters,
        *,
        seed: int,
    ) -> "Ensemble":
        """The ensemble that ``fitted`` made of these data, from a record of its hyper-parameters; equal to the bit."""
        scopes, parts, tied = scopes_of(graph), list[EnsemblePart](), _is_tied(hyper, graph)
        for part in hyper.parts:
            bases = bases_of(part.members, _seeds(settings, seed, part.factors), settings.n_features)
            observed = _observed(domain, data, part.factors, tied=tied)
            parts.append(EnsemblePart.create(part, [scopes[i] for i in part.factors], bases, observed))
        return cls(settings, graph, domain, hyper, tuple(parts), data)

    @property
    def is_tied(self) -> bool:
        """Whether members are of all factors in sum."""
        return _is_tied(self.hyper, self.graph)

    @property
    def weights(self) -> tuple[Float[np.ndarray, " M"], ...]:
        """How likely each member is, part by part; no less than the floor."""
        return tuple(part.weights(self.settings.floor) for part in self.parts)

    def updated(self, data: Evaluations) -> "Ensemble":
        """Learn what came since, outcome by outcome; hyper-parameters and features stay.

        Args:
            data: Only the new evaluations.
        """
        parts = [
            part.updated(_observed(self.domain, data, part.hyper.factors, tied=self.is_tied)) for part in self.parts
        ]
        known = self.data
        together = Evaluations(
            np.concatenate([known.X, data.X]),
            np.concatenate([known.totals, data.totals]),
            np.concatenate([known.factors, data.factors]),
        )
        return replace(self, parts=tuple(parts), data=together)

    def awaiting(self, X: Float[np.ndarray, "p n"]) -> "Ensemble":
        """The same with points that are out, which the variance knows of; means, weights and draws do not.

        Args:
            X: Joint points, physical.
        """
        U = self.domain.to_unit(X)
        data = Observations.pending(U, [TOTAL])  # of a part of one factor, the total is that factor
        return replace(self, parts=tuple(part.awaiting(data) for part in self.parts))

    def posterior(self, X: Float[np.ndarray, "m n"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum over all members at joint points (m, n), physical."""
        U = self.domain.to_unit(np.asarray(X, dtype=float))
        moments = [part.moments(U, self.settings.floor) for part in self.parts]
        return np.sum([mean for mean, _ in moments], axis=0), np.sum([var for _, var in moments], axis=0)

    def factor_means(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "k m"]:
        """Mean of each factor at joint points (m, n) of the unit cube, physical."""
        return np.concatenate([part.factor_means(U, self.settings.floor) for part in self.parts])

    def choose(self, rngs: Sequence[np.random.Generator]) -> tuple[int, ...]:
        """A member of each part, drawn by weight.

        Args:
            rngs: One stream for each part.
        """
        return tuple(int(rng.choice(len(w), p=w / w.sum())) for rng, w in zip(rngs, self.weights, strict=True))

    def draw(
        self,
        chosen: Sequence[int],
        rngs: Sequence[np.random.Generator],
        noise_rngs: Sequence[np.random.Generator],
    ) -> FeatureSample:
        """One function per factor: jointly a draw from the posterior of chosen members.

        Args:
            chosen: A member of each part.
            rngs: One stream for each factor, so that its owner can draw alone.
            noise_rngs: One stream for each part, shared by the owners of its factors.
        """
        names, f = self.graph.factors, self.settings.n_features
        draws, constants, scales = dict[str, PriorDraw](), dict[str, float](), dict[str, float]()
        for part, member, noise_rng in zip(self.parts, chosen, noise_rngs, strict=True):
            own = part.hyper.factors
            prior = np.array([rngs[i].standard_normal(f) for i in own])
            drawn = part.draw(member, prior, noise_rng.standard_normal(part.models.n_data))
            means = part.hyper.constants(part.hyper.members[member])
            for i, one, mean in zip(own, drawn, means, strict=True):
                draws[names[i]], constants[names[i]], scales[names[i]] = one, float(mean), part.hyper.scale
        return FeatureSample(self.graph, draws, constants, scales)

    def exact(self, chosen: tuple[int, ...]) -> AdditiveGP:
        """The same data as exact Gaussian processes under the hyper-parameters of chosen members, no random features.

        Args:
            chosen: A member of each part.
        """
        totals = self.data.totals if self.is_tied else None
        outcomes = "total" if self.is_tied else "per-factor"
        return AdditiveGP.from_hyperparameters(
            AdditiveGPSettings(),
            self.graph,
            self.domain,
            self.hyper.of_members(chosen),
            self.data.X,
            totals,
            self.data.factors,
            outcomes=outcomes,
        )


def scopes_of(graph: FactorGraph) -> list[tuple[int, ...]]:
    """For each factor the columns of joint points that it sees."""
    place = {variable: index for index, variable in enumerate(graph.variables)}
    return [tuple(place[variable] for variable in scope) for scope in graph.scopes]


def _is_tied(hyper: EnsembleHyperparameters, graph: FactorGraph) -> bool:
    return len(hyper.parts[0].factors) == len(graph.factors)


def _observed(domain: Domain, data: Evaluations, factors: Sequence[int], *, tied: bool) -> Observations:
    """What was observed of a part; factors by their place in it."""
    totals = data.totals if tied else np.full(len(data), np.nan)
    return Observations.of(domain.to_unit(data.X), totals, data.factors[:, list(factors)], np.zeros(len(data)))


def _seeds(settings: EnsembleSettings, seed: int, factors: Sequence[int]) -> list[list[int]]:
    members = range(len(dictionary(settings)))
    return [[_sub_seed(seed, "features", member=m, factor=i) for i in factors] for m in members]


def _sub_seed(seed: int, name: str, **numbers: int) -> int:
    return int(stream(seed, "ensemble", name, **numbers).integers(2**63))
