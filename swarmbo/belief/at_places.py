"""Fast exact belief at known places: one triangular solve for all, and a Cholesky factor of pending points only."""

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.cholesky import factorise, solve_rows
from swarmbo.belief.gp.conditioning import JointPosterior
from swarmbo.belief.gp.exact import ExactGP, Marginals
from swarmbo.belief.gp.spatial import Delegating, PlaceBelief, PosteriorCache, Views
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.spaces import PlaceTable, place_keys

_ENTRIES = 2**26  # largest number of stored covariances between places and data: 512 MiB
Places = Float[np.ndarray, "k d"]


@dataclass(frozen=True, eq=False)
class KnownPlaces(Delegating):
    """Exact belief with fast predictions at ``known`` places; pending places count as measured with the usual noise."""

    belief: ExactGP
    places: Float[np.ndarray, "m d"]
    known: PlaceTable

    @property
    def delegate(self) -> ExactGP:
        """The exact belief."""
        return self.belief

    def rows_of(self, X: Places) -> Int[np.ndarray, " k"] | None:
        """Indices of points among the places; None if any point is not among them."""
        if X.shape[1] != self.places.shape[1]:
            return None  # the points state their round as a last coordinate
        return self.known.rows_of(X)

    @abstractmethod
    def of_rows(self, rows: Int[np.ndarray, " k"], *, on_data: bool = False) -> Marginals:
        """Means and variances at places; ``on_data``: without pending places, an upper bound of the variance."""

    def prior_correlation(self, X: Float[np.ndarray, "p d"], places: Places) -> Float[np.ndarray, " p"]:
        """Upper bound of each point's prior correlation with any of the places; 1 for a user's kernel."""
        prior, domain = self.belief.hyperparameters, self.belief.domain
        if prior.kernel not in KERNEL_NAMES:
            return np.ones(len(X))
        at = np.clip(X, *np.array([(axis.min(), axis.max()) for axis in places.T]).T)  # much faster than axis=0
        apart = (domain.to_unit(X) - domain.to_unit(at)) / np.array(prior.lengthscales)
        return correlation(prior.kernel, np.sqrt((apart**2).sum(axis=1)))


@dataclass(frozen=True, eq=False)
class AtPlaces(KnownPlaces):
    """Exact belief with fast predictions at known places; its values differ from the belief's by rounding only."""

    cache: JointPosterior
    pending: Int[np.ndarray, " p"]

    @classmethod
    def of(cls, belief: PlaceBelief, places: Places) -> PlaceBelief:
        """Belief with fast predictions at the places; unchanged if it is not exact, or would store too many numbers."""
        if not isinstance(belief, ExactGP):
            return belief
        _, first = np.unique(place_keys(places), return_index=True)
        if not belief.is_tiled and (len(belief.points) + belief.n_pending) * len(first) > _ENTRIES:
            return belief
        places = places[first]
        if belief.is_tiled:
            return AtTiles(belief, places, PlaceTable(places), *belief.marginals(places))
        return cls(belief, places, PlaceTable(places), belief.posterior_cache(places), np.zeros(0, dtype=int))

    def posterior(self, X: Places) -> Marginals:
        """Means and variances at physical points."""
        rows = self.rows_of(X)
        return self._with_pending.posterior(X) if rows is None else self.of_rows(rows)

    def of_rows(self, rows: Int[np.ndarray, " k"], *, on_data: bool = False) -> Marginals:
        """Means and variances at some places."""
        mean, var = self.cache.mean[rows], self.cache.var[rows]
        if on_data or not len(self.pending):
            return mean, var
        whitened = self._whitened(self.cache.of_rows(rows))
        return mean, np.maximum(var - np.einsum("pk,pk->k", whitened, whitened), 0.0)

    def posterior_mean(self, X: Places) -> Float[np.ndarray, " k"]:
        """Means at physical points; pending points do not change them."""
        rows = self.rows_of(X)
        return self.belief.posterior_mean(X) if rows is None else self.cache.mean[rows]

    def posterior_cache(self, X: Places) -> PosteriorCache:
        """Posterior at fixed points, with fast covariances."""
        if (rows := self.rows_of(X)) is None:
            return self._with_pending.posterior_cache(X)
        posterior = self.cache.of_rows(rows)
        return posterior.with_pending(self._whitened(posterior)) if len(self.pending) else posterior

    def at(self, now: float) -> PlaceBelief:
        """Belief at another round; unchanged without a time axis."""
        return self._with_pending.at(now) if self.belief.has_time else self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> PlaceBelief:
        """A belief whose variance includes pending measurements; fast if they are among the places."""
        if (rows := self.rows_of(X)) is None:
            return self._with_pending.condition_on_pending(X)
        return replace(self, pending=np.concatenate([self.pending, rows]))

    @cached_property
    def _with_pending(self) -> ExactGP:
        return self.belief.condition_on_pending(self.places[self.pending])

    @cached_property
    def _root(self) -> Float[np.ndarray, "p p"]:
        whitened = self.cache.of_rows(self.pending).cov(slice(None), slice(None))
        whitened.flat[:: len(whitened) + 1] += self.noise_variance
        return factorise(whitened)[0]

    def _whitened(self, posterior: JointPosterior) -> Float[np.ndarray, "p k"]:
        """Whitened covariances (p, k) of pending places with the places of a posterior."""
        return solve_rows(self._root, self.cache.cross(self.pending, posterior).T).T


@dataclass(frozen=True, eq=False)
class AtTiles(KnownPlaces):
    """Tiled belief with stored means and variances (m,) at known places, given the data without pending points."""

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    further: dict[bytes, Marginals] = field(default_factory=dict[bytes, Marginals])  # other points, by their bytes

    def posterior(self, X: Places) -> Marginals:
        """Means and variances at physical points."""
        if not self.belief.n_pending:
            return self._on_data(X)
        cache = self.posterior_cache(X)
        return cache.mean, cache.var

    def of_rows(self, rows: Int[np.ndarray, " k"], *, on_data: bool = False) -> Marginals:
        """Means and variances at some places."""
        return (self.mean[rows], self.var[rows]) if on_data else self.posterior(self.places[rows])

    def posterior_mean(self, X: Places) -> Float[np.ndarray, " k"]:
        """Means at physical points; pending points do not change them."""
        return self._on_data(X)[0]

    def posterior_cache(self, X: Places) -> JointPosterior:
        """Posterior at fixed points, with fast covariances."""
        return self.belief.posterior_cache(X, self._on_data)

    def at(self, now: float) -> PlaceBelief:
        """Belief at another round; unchanged without a time axis."""
        return self.belief.at(now) if self.belief.has_time else self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "AtTiles":
        """A belief whose variance includes pending measurements."""
        return replace(self, belief=self.belief.condition_on_pending(X))

    def _on_data(self, X: Float[np.ndarray, "k c"]) -> Marginals:
        d = self.places.shape[1]
        rows = np.where((X[:, d:] == self.belief.now).all(axis=1), self.known.find(X[:, :d]), -1)
        mean, var, is_other = self.mean[rows], self.var[rows], rows < 0
        if is_other.any():
            others = X[is_other]
            if (key := others.tobytes()) not in self.further:
                self.further[key] = self.belief.marginals(others)
            mean[is_other], var[is_other] = self.further[key]
        return mean, var


def quick_at(belief: PlaceBelief, places: Mapping[str, Float[np.ndarray, "_ d"]]) -> PlaceBelief:
    """Belief, or separate beliefs, with fast predictions at the places that each agent can reach. Predictions of a
    shared exact belief change by rounding only. A separate belief becomes fast only if ``is_tiled``.
    """
    if isinstance(belief, Views):
        # places of other agents are left out: a process that knows only its own agent's must get the same digits
        own = {agent: belief.by_agent[agent] for agent in places if agent in belief.by_agent}
        tiled = {agent: view for agent, view in own.items() if isinstance(view, ExactGP) and view.is_tiled}
        fast = {agent: AtPlaces.of(view, places[agent]) for agent, view in tiled.items()}
        return Views({**belief.by_agent, **fast}, belief.representative)
    return AtPlaces.of(belief, np.concatenate(list(places.values())))


def means_by_agent(views: Views, X: Float[np.ndarray, "m d"]) -> dict[str, Float[np.ndarray, " m"]]:
    """Each agent's means at physical points, in the outcome's unit; equal hyper-parameters share one covariance."""
    groups: dict[Hashable, dict[int, PlaceBelief]] = {}
    for belief in views.by_agent.values():
        kind = (belief.hyperparameters, belief.now) if isinstance(belief, ExactGP) else id(belief)
        groups.setdefault(kind, {})[id(belief)] = belief
    means: dict[int, Float[np.ndarray, " m"]] = {}
    for group in groups.values():
        exact = {key: belief for key, belief in group.items() if isinstance(belief, ExactGP)}
        if len(exact) > 1:
            means |= zip(exact, ExactGP.posterior_means(list(exact.values()), X), strict=True)
        else:
            means |= {key: belief.posterior_mean(X) for key, belief in group.items()}
    return {name: means[id(belief)] for name, belief in views.by_agent.items()}
