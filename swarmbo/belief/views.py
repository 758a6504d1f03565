"""What is asked of a belief about places: of one that a team shares, or of one that each agent has of its own."""

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
    """What acquisitions ask of a belief: ``ExactGP`` and ``FeatureGP`` are two."""

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
        """The posterior at fixed points, from which covariances are cheap."""
        ...

    def at(self, now: float) -> "PlaceBelief":
        """The same belief at another round; itself where nothing fades."""
        ...

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "PlaceBelief":
        """A belief whose variance knows of measurements to come."""
        ...


@dataclass(frozen=True, eq=False)
class Views:
    """Beliefs of several agents of one round. Asked as if it were one, it answers with that of its representative.

    Args:
        by_agent: Each agent's own; agents that believe the same may have one in common.
        representative: Who answers for all; an agent that holds its own view only has none, and is not to ask.
    """

    by_agent: Mapping[str, PlaceBelief]
    representative: str

    @property
    def n_data(self) -> int:
        """Number of outcomes that the representative knows of."""
        return self.by_agent[self.representative].n_data

    @property
    def noise_variance(self) -> float:
        """As the representative has it."""
        return self.by_agent[self.representative].noise_variance

    @property
    def prior_variance(self) -> float:
        """As the representative has it."""
        return self.by_agent[self.representative].prior_variance

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances at physical points, as the representative has them."""
        return self.by_agent[self.representative].posterior(X)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means at physical points, as the representative has them."""
        return self.by_agent[self.representative].posterior_mean(X)

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """The representative's posterior at fixed points."""
        return self.by_agent[self.representative].posterior_cache(X)

    def at(self, now: float) -> "Views":
        """The same of agents at another round."""
        return self._changed(lambda belief: belief.at(now))

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "Views":
        """The same of agents that all know of measurements to come."""
        return self._changed(lambda belief: belief.condition_on_pending(X))

    def _changed(self, change: Callable[[PlaceBelief], PlaceBelief]) -> "Views":
        """The same of agents whose beliefs have changed; that which several have in common they still have."""
        changed: dict[int, PlaceBelief] = {}
        for belief in self.by_agent.values():
            if id(belief) not in changed:
                changed[id(belief)] = change(belief)
        return Views({name: changed[id(belief)] for name, belief in self.by_agent.items()}, self.representative)


def view_of(belief: PlaceBelief, agent: str) -> PlaceBelief:
    """What an agent believes: its own view where each has one, else the belief that they share."""
    return belief.by_agent[agent] if isinstance(belief, Views) else belief


def has_view(belief: PlaceBelief, agent: str) -> bool:
    """Whether it is known here what an agent believes: an agent with a belief of its own knows no other."""
    return not isinstance(belief, Views) or agent in belief.by_agent
