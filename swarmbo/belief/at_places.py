"""A belief for repeated queries at known places, with an increasing number of pending ones.

The information of the data about all places is computed once: one triangular solve, which a conditioned belief would
repeat for every agent. Pending places then need a factor of these few places alone.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.cholesky import factorise, solve_rows
from swarmbo.belief.gp.conditioning import CovarianceRows, JointPosterior
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.views import PlaceBelief, PosteriorCache, Views
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.spaces import PlaceTable, first_of_each, place_keys

_MANY = 2000  # measurements, from which on a part of them counts
_NEAR = (800, 1100, 1500, 2000)  # of them, for each agent: the first number that covers its places
_ENTRIES = 2**26  # most stored covariances with data: 512 MiB


@dataclass(frozen=True, eq=False)
class Looked:
    """Posterior at some of the places, given the pending ones."""

    cache: JointPosterior
    told: Float[np.ndarray, "p k"]

    @property
    def mean(self) -> Float[np.ndarray, " k"]:
        """Posterior means (k,)."""
        return self.cache.mean

    @property
    def var(self) -> Float[np.ndarray, " k"]:
        """Latent posterior variances (k,), >= 0."""
        return np.maximum(self.cache.var - np.einsum("pk,pk->k", self.told, self.told), 0.0)

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets of the k places."""
        return self.cache.cov(rows, cols) - self.told[:, rows].T @ self.told[:, cols]

    def by_row(self, more: int = 0) -> CovarianceRows:
        """Latent posterior covariances of single places with all, while at most ``more`` are taken as measured."""
        return CovarianceRows(self.cache, self.told, more)


@dataclass(frozen=True, eq=False)
class AtPlaces:
    """An exact belief, fast at known places and equal elsewhere, up to rounding.

    Pending places reduce the variance like measurements with the usual noise, in any order. ``known`` is the table of
    the first places, in the order of their keys; others joined them. If it ``grows``, any further place joins when it
    is queried, instead of conditioning the belief: faster with few places.
    """

    belief: ExactGP
    places: Float[np.ndarray, "m d"]
    known: PlaceTable
    cache: JointPosterior
    pending: Int[np.ndarray, " p"]
    grows: bool = False

    @classmethod
    def of(
        cls, belief: PlaceBelief, places: Float[np.ndarray, "k d"], entries: int = _ENTRIES, *, grows: bool = False
    ) -> PlaceBelief:
        """The belief, fast at places; unchanged if it is not exact, or would store more than ``entries`` numbers."""
        if not isinstance(belief, ExactGP):
            return belief
        keys = place_keys(places)
        first, _ = first_of_each(keys)
        if (len(belief.points) + belief.n_pending) * len(first) > entries:
            return belief
        places = places[first[np.argsort(keys[first])]]
        return cls(belief, places, PlaceTable(places), belief.posterior_cache(places), np.zeros(0, dtype=int), grows)

    @property
    def n_data(self) -> int:
        """Number of outcomes."""
        return self.belief.n_data

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise, in the square of the outcome's unit."""
        return self.belief.noise_variance

    @property
    def prior_variance(self) -> float:
        """Variance of the field before any data, in the square of the outcome's unit."""
        return self.belief.prior_variance

    def posterior(self, X: Float[np.ndarray, "k d"]) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Means and variances at physical points."""
        if (rows := self.rows_of(X)) is not None:
            return self.of_rows(rows)
        looked = self._looked(X)
        return self._anywhere.posterior(X) if looked is None else (looked.mean, looked.var)

    def rows_of(self, X: Float[np.ndarray, "k d"]) -> Int[np.ndarray, " k"] | None:
        """Indices of points among the places; None if any is not among them."""
        if X.shape[1] != self.places.shape[1]:
            return None  # they state their round
        return self.known.rows_of(X)

    def of_rows(
        self, rows: Int[np.ndarray, " k"], *, on_data: bool = False
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Means and variances at some places; ``on_data``: without pending ones, an upper bound of the variance."""
        mean, var = self.cache.mean[rows], self.cache.var[rows]
        if on_data or not len(self.pending):
            return mean, var
        told = self._told(self.cache.of_rows(rows))
        return mean, np.maximum(var - np.einsum("pk,pk->k", told, told), 0.0)

    def posterior_mean(self, X: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """Means at physical points; pending points change none."""
        rows = self.rows_of(X)
        return self.belief.posterior_mean(X) if rows is None else self.cache.mean[rows]

    def posterior_cache(self, X: Float[np.ndarray, "k d"]) -> PosteriorCache:
        """Posterior at fixed points, with fast covariances."""
        looked = self._looked(X)
        return self._anywhere.posterior_cache(X) if looked is None else looked

    def at(self, now: float) -> PlaceBelief:
        """Belief at another round; itself without temporal decay."""
        return self._anywhere.at(now) if self.belief.has_time else self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> PlaceBelief:
        """A belief whose variance includes pending measurements; fast if they are among the places, or join."""
        if (found := self._found(X)) is None:
            return self._anywhere.condition_on_pending(X)
        return replace(found[0], pending=np.concatenate([self.pending, found[1]]))

    def prior_correlation(
        self, X: Float[np.ndarray, "p d"], places: Float[np.ndarray, "k d"]
    ) -> Float[np.ndarray, " p"]:
        """Largest prior correlation of measurements with any of some places, bounded by that with the places' box.

        1 for a user's kernel, which may grow with distance.
        """
        prior, domain = self.belief.hyperparameters, self.belief.domain
        if prior.kernel not in KERNEL_NAMES:
            return np.ones(len(X))
        at = np.clip(X, places.min(axis=0), places.max(axis=0))
        apart = (domain.to_unit(X) - domain.to_unit(at)) / np.array(prior.lengthscales)
        return correlation(prior.kernel, np.sqrt((apart**2).sum(axis=1)))

    @cached_property
    def _anywhere(self) -> ExactGP:
        return self.belief.condition_on_pending(self.places[self.pending])

    @cached_property
    def _root(self) -> Float[np.ndarray, "p p"]:
        told = self.cache.cov(self.pending, self.pending)
        told.flat[:: len(told) + 1] += self.noise_variance
        return factorise(told)[0]

    def _looked(self, X: Float[np.ndarray, "k d"]) -> Looked | None:
        """Posterior at points given pending ones; None if they are none of the places and may not join."""
        if (rows := self.rows_of(X)) is not None:
            own = self.cache.of_rows(rows)
        elif self._may_join(X):
            own = self.belief.posterior_cache(X)
        else:
            return None
        return Looked(own, self._told(own))

    def _told(self, own: JointPosterior) -> Float[np.ndarray, "p k"]:
        """Information of pending places about some."""
        if not len(self.pending):
            return np.zeros((0, len(own.mean)))
        return solve_rows(self._root, self.cache.cross(self.pending, own).T).T

    def _may_join(self, X: Float[np.ndarray, "k d"]) -> bool:
        return self.grows and X.shape[1] == self.places.shape[1]

    def _found(self, X: Float[np.ndarray, "k d"]) -> "tuple[AtPlaces, Int[np.ndarray, ' k']] | None":
        """A belief with the points among its places, and their indices; None if they may not join."""
        if (rows := self.rows_of(X)) is not None:
            return self, rows
        if not self._may_join(X):
            return None
        cache, places = self.cache.joined(self.belief.posterior_cache(X)), np.concatenate([self.places, X])
        return replace(self, places=places, cache=cache), np.arange(len(self.places), len(places))


def quick_at(belief: PlaceBelief, places: Mapping[str, Float[np.ndarray, "_ d"]]) -> PlaceBelief:
    """Belief, or separate beliefs, fast at the places that each agent can reach.

    A shared exact belief of at most 2,000 measurements is fast at all places, and equal up to rounding. With more
    measurements each agent uses the 800 most informative about the middle of its places; up to 2,000 if its places
    extend farther than these do, and all beyond that. Agents are then fast at their own places, if memory suffices.
    """
    if isinstance(belief, Views):
        # none is made fast at others' places: an agent that knows only its own would get other last digits
        own = {agent: belief.by_agent[agent] for agent in places if agent in belief.by_agent}
        near = {agent: _nearby(view, places[agent], len(places)) for agent, view in own.items() if _is_large(view)}
        return Views({**belief.by_agent, **near}, belief.representative)
    large = _is_large(belief)
    near = {agent: _nearby(belief, own, len(places)) for agent, own in places.items()} if large else {}
    wide = [agent for agent in places if near.get(agent, belief) is belief]
    if not wide:
        return Views(near, next(iter(places)))
    of_all = AtPlaces.of(belief, np.concatenate([places[agent] for agent in wide]))
    return of_all if len(wide) == len(places) else Views({**near, **dict.fromkeys(wide, of_all)}, wide[0])


def _is_large(belief: PlaceBelief) -> bool:
    return isinstance(belief, ExactGP) and len(belief.points) > _MANY


def _nearby(belief: PlaceBelief, places: Float[np.ndarray, "k d"], n_agents: int) -> PlaceBelief:
    """Belief that one of some agents uses instead of one with many measurements; unchanged if it needs all of them."""
    if isinstance(belief, ExactGP):
        for most in _NEAR:
            if (near := belief.near(places, most)) is not belief:
                return AtPlaces.of(near, places, _ENTRIES // n_agents, grows=True)
    return belief


def means_by_agent(views: Views, X: Float[np.ndarray, "m d"]) -> dict[str, Float[np.ndarray, " m"]]:
    """Each agent's means (m,) at physical points (m, d), in the unit of the outcome.

    For beliefs with equal hyper-parameters, which mostly have common data, covariances with the points are computed
    once.
    """
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
