"""A belief that will be asked at places known beforehand, again and again, with ever more of them pending.

What data say of all places is worked out once: one triangular solve, where a conditioned belief would do it again for
every agent that is asked. What is pending then costs a factor of these few places alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.cholesky import factorise, solve_rows
from swarmbo.belief.gp.covariance_rows import CovarianceRows
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.joint_posterior import JointPosterior
from swarmbo.belief.views import PlaceBelief, PosteriorCache, Views
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.spaces import PlaceTable, first_of_each, place_keys

_MANY = 2000  # measurements, from which on a part of them counts
_NEAR = (800, 1100, 1500, 2000)  # of them, for each agent: the fewest that lie as far apart as its places
_ENTRIES = 2**26  # of covariances with data that are kept at most: 512 MiB


@dataclass(frozen=True, eq=False)
class Looked:
    """The posterior at some of the places, given those pending.

    Args:
        cache: Of these, given the data alone.
        told: What pending places tell of each (p, k): L⁻¹ C, with L Lᵀ the covariance of their outcomes.
    """

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
        """Latent posterior covariances of single ones of the places with all.

        Args:
            more: How many of them will be taken as measured at most.
        """
        return CovarianceRows(self.cache, self.told, more)


@dataclass(frozen=True, eq=False)
class AtPlaces:
    """An exact belief, quick at places that are known beforehand and the same, to rounding, anywhere else.

    Its answers are those of the belief: pending places take variance as measurements with the usual noise do, and the
    order in which they came is of no account.

    Args:
        belief: Which, at its round.
        places: Different ones (m, d), physical, in the order of their keys; then others that joined them.
        known: By which the first m are found.
        cache: The posterior at all of them.
        pending: Which of them are taken as measured (p,).
        grows: Whether any further place joins them when it is asked about, rather than that the belief is conditioned:
            with few places that is quicker.

    Example:
        >>> from swarmbo.belief import ExactGPSettings
        >>> from swarmbo.spaces import Domain
        >>> belief = ExactGP.create(ExactGPSettings(), Domain(np.zeros(1), np.ones(1))).update([[0.5]], [3.0])
        >>> line = np.linspace(0.0, 1.0, 11)[:, None]
        >>> quick = AtPlaces.of(belief, line).condition_on_pending(line[3:5])
        >>> bool(np.allclose(quick.posterior(line), belief.condition_on_pending(line[3:5]).posterior(line)))
        True
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
        """The belief, quick at places; itself where it is no exact one, or where that would take too much memory.

        Args:
            belief: Which.
            places: Physical (k, d); any may be there several times.
            entries: Of covariances with data that may be kept.
            grows: As of ``AtPlaces``.
        """
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
        """Which of the places points are; None if any is none of them."""
        if X.shape[1] != self.places.shape[1]:
            return None  # they state their round
        return self.known.rows_of(X)

    def of_rows(
        self, rows: Int[np.ndarray, " k"], *, on_data: bool = False
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Means and variances at some of the places.

        Args:
            rows: Which.
            on_data: Before anything is pending; no variance is larger after.
        """
        mean, var = self.cache.mean[rows], self.cache.var[rows]
        if on_data or not len(self.pending):
            return mean, var
        told = self._told(self.cache.of_rows(rows))
        return mean, np.maximum(var - np.einsum("pk,pk->k", told, told), 0.0)

    def posterior_mean(self, X: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """Means at physical points; points pending move none."""
        rows = self.rows_of(X)
        return self.belief.posterior_mean(X) if rows is None else self.cache.mean[rows]

    def posterior_cache(self, X: Float[np.ndarray, "k d"]) -> PosteriorCache:
        """The posterior at fixed points, from which covariances are cheap."""
        looked = self._looked(X)
        return self._anywhere.posterior_cache(X) if looked is None else looked

    def at(self, now: float) -> PlaceBelief:
        """The belief at another round; itself where nothing fades."""
        return self._anywhere.at(now) if self.belief.has_time else self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> PlaceBelief:
        """A belief whose variance knows of measurements to come; quick where they are among the places, or join."""
        if (found := self._found(X)) is None:
            return self._anywhere.condition_on_pending(X)
        return replace(found[0], pending=np.concatenate([self.pending, found[1]]))

    def prior_correlation(
        self, X: Float[np.ndarray, "p d"], places: Float[np.ndarray, "k d"]
    ) -> Float[np.ndarray, " p"]:
        """How much measurements tell of some places at most, before data: no correlation with any of them is larger.

        It is that with the box around the places; 1 where a kernel of a user's own may grow with distance.

        Args:
            X: Where is measured, physical.
            places: Physical, k >= 1.
        """
        prior, domain = self.belief.hyperparameters, self.belief.domain
        if prior.kernel not in KERNEL_NAMES:
            return np.ones(len(X))
        at = np.clip(X, places.min(axis=0), places.max(axis=0))
        apart = (domain.to_unit(X) - domain.to_unit(at)) / np.array(prior.lengthscales)
        return correlation(prior.kernel, np.sqrt((apart**2).sum(axis=1)))

    @cached_property
    def _anywhere(self) -> ExactGP:
        """The belief with all that is pending."""
        return self.belief.condition_on_pending(self.places[self.pending])

    @cached_property
    def _root(self) -> Float[np.ndarray, "p p"]:
        """Cholesky factor of the covariance of what pending measurements will bring."""
        told = self.cache.cov(self.pending, self.pending)
        told.flat[:: len(told) + 1] += self.noise_variance
        return factorise(told)[0]

    def _looked(self, X: Float[np.ndarray, "k d"]) -> Looked | None:
        """The posterior at points given those pending; None where they are none of the places and may not join."""
        if (rows := self.rows_of(X)) is not None:
            own = self.cache.of_rows(rows)
        elif self._may_join(X):
            own = self.belief.posterior_cache(X)
        else:
            return None
        return Looked(own, self._told(own))

    def _told(self, own: JointPosterior) -> Float[np.ndarray, "p k"]:
        """What pending places tell of some."""
        if not len(self.pending):
            return np.zeros((0, len(own.mean)))
        return solve_rows(self._root, self.cache.cross(self.pending, own).T).T

    def _may_join(self, X: Float[np.ndarray, "k d"]) -> bool:
        return self.grows and X.shape[1] == self.places.shape[1]

    def _found(self, X: Float[np.ndarray, "k d"]) -> "tuple[AtPlaces, Int[np.ndarray, ' k']] | None":
        """A belief that has points among its places, and which of these they are; None where they may not join."""
        if (rows := self.rows_of(X)) is not None:
            return self, rows
        if not self._may_join(X):
            return None
        cache, places = self.cache.joined(self.belief.posterior_cache(X)), np.concatenate([self.places, X])
        return replace(self, places=places, cache=cache), np.arange(len(self.places), len(places))


def quick_at(belief: PlaceBelief, places: Mapping[str, Float[np.ndarray, "_ d"]]) -> PlaceBelief:
    """What is asked of a belief, or of those of several agents, at places that each agent can reach.

    An exact belief of all by at most 2,000 measurements is the same, to rounding, and quick at the places of all. Of
    more measurements each agent takes the 800 into account that tell most of the middle of its places, up to 2,000
    where its places lie further apart than these do, and all where they still do. By these it is quick at its own
    places, if they are few enough that those of all agents fit into memory.

    Args:
        belief: That all share, or ``Views``.
        places: Where agents can measure (k, d), physical; of some at least one.

    Returns:
        One for all, or ``Views``.
    """
    if isinstance(belief, Views):
        # none is made quick with others' places: an agent that knows its own alone would have other last digits
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
    """What one of some agents goes by of a belief by many measurements; the belief where that is all of them."""
    if isinstance(belief, ExactGP):
        for most in _NEAR:
            if (near := belief.near(places, most)) is not belief:
                return AtPlaces.of(near, places, _ENTRIES // n_agents, grows=True)
    return belief
