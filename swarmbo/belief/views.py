"""Protocol of beliefs for acquisitions, and collections of separate beliefs per agent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int


@runtime_checkable
class PosteriorCache(Protocol):
    """A posterior at m points: means (m,), variances (m,), and covariances between subsets, in the outcome's unit."""

    @property
    def mean(self) -> Float[np.ndarray, " m"]:
        """Posterior means (m,)."""
        ...

    @property
    def var(self) -> Float[np.ndarray, " m"]:
        """Latent posterior variances (m,), >= 0."""
        ...

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets of the points."""
        ...


@runtime_checkable
class PlaceBelief(Protocol):
    """Protocol of beliefs for acquisitions, as ``ExactGP`` and ``FeatureGP``."""

    @property
    def n_data(self) -> int:
        """Number of outcomes."""
        ...

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise, in the square of the outcome's unit."""
        ...

    @property
    def prior_variance(self) -> float:
        """Variance of the field before any data, in the square of the outcome's unit."""
        ...

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances at physical points."""
        ...

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means at physical points."""
        ...

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """Posterior at fixed points, with fast covariances."""
        ...

    def at(self, now: float) -> "PlaceBelief":
        """Belief at another round; itself without temporal decay."""
        ...

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "PlaceBelief":
        """A belief whose variance includes pending measurements."""
        ...


@dataclass(frozen=True, eq=False)
class Views:
    """Local beliefs of several agents of one round; as one belief it answers by its representative.

    An agent with only its own belief has no representative, and must not ask.
    """

    by_agent: Mapping[str, PlaceBelief]
    representative: str

    @property
    def n_data(self) -> int:
        """Number of the representative's outcomes."""
        return self.by_agent[self.representative].n_data

    @property
    def noise_variance(self) -> float:
        """Noise variance of the representative."""
        return self.by_agent[self.representative].noise_variance

    @property
    def prior_variance(self) -> float:
        """Prior variance of the representative."""
        return self.by_agent[self.representative].prior_variance

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances of the representative at physical points."""
        return self.by_agent[self.representative].posterior(X)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means of the representative at physical points."""
        return self.by_agent[self.representative].posterior_mean(X)

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """Representative's posterior at fixed points."""
        return self.by_agent[self.representative].posterior_cache(X)

    def at(self, now: float) -> "Views":
        """Beliefs at another round."""
        return self._changed(lambda belief: belief.at(now))

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "Views":
        """Beliefs whose variances include pending measurements."""
        return self._changed(lambda belief: belief.condition_on_pending(X))

    def _changed(self, change: Callable[[PlaceBelief], PlaceBelief]) -> "Views":
        """Changed beliefs; shared ones stay shared."""
        changed: dict[int, PlaceBelief] = {}
        for belief in self.by_agent.values():
            if id(belief) not in changed:
                changed[id(belief)] = change(belief)
        return Views({name: changed[id(belief)] for name, belief in self.by_agent.items()}, self.representative)


def view_of(belief: PlaceBelief, agent: str) -> PlaceBelief:
    """Local belief of an agent, or the shared one."""
    return belief.by_agent[agent] if isinstance(belief, Views) else belief


def has_view(belief: PlaceBelief, agent: str) -> bool:
    """True if an agent's belief is known here: an agent with a separate belief knows no other."""
    return not isinstance(belief, Views) or agent in belief.by_agent
