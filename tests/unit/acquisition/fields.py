"""A partly known field in a plane, and sensors in it."""

import functools
from typing import Any

import numpy as np

from swarmbo.acquisition import Decision, Situation
from swarmbo.belief import ExactGP, ExactGPSettings, TimeAxis
from swarmbo.deciding.central_driver import CentralDriver, CountedExchanges
from swarmbo.deciding.places import place_steps
from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess, Routes

DOMAIN = Domain(np.zeros(2), np.array([100.0, 50.0]))
LATTICE = np.array([(x, y) for x in np.linspace(0, 100, 9) for y in np.linspace(0, 50, 6)])
NOWHERE = np.full((1, 2), np.nan)


@functools.lru_cache
def some_belief(seed: int = 0, n: int = 12, *, fades: bool = False, noise: float = 1.0) -> ExactGP:
    """Belief after n measurements of waves around 50, of amplitude 9."""
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.random((n, 2)))
    prior = ExactGPSettings(time=TimeAxis(lengthscale_median=4.0)) if fades else ExactGPSettings()
    y = 50.0 + 9.0 * np.sin(X[:, 0] / 17.0) + noise * rng.normal(size=n)
    belief = ExactGP.create(prior, DOMAIN).update(X, y).fit(rng)
    return belief.at(3) if fades else belief


def situation(belief: Any, prices: Any = (), level: float | None = None, n_agents: int = 3) -> Situation:
    """Sensors that reach six places each."""
    rng = np.random.default_rng(5)
    candidates = {f"s_{n}": DOMAIN.from_unit(rng.random((6, 2))) for n in range(n_agents)}
    positions = {agent: places[0] for agent, places in candidates.items()}
    return Situation(tuple(candidates), candidates, positions, {}, belief, None, DOMAIN, 1, 10, 0, dict(prices), level)


def prices_of(price: float) -> dict[str, float]:
    """The same price for all three sensors."""
    return {f"s_{n}": price for n in range(3)}


def decide(situation: Situation, acquisition: Any, coordination: Any, transport: InProcess) -> Decision:
    """Next locations of all agents."""
    steps = place_steps(situation, acquisition, coordination)
    return driver(situation, coordination, transport).run(steps)


def driver(situation: Situation, coordination: Any, transport: InProcess) -> CentralDriver:
    """A driver that counts what agents with a factor each would send."""
    agents = situation.agents
    graph = FactorGraph.from_scopes({f"of {a}": [a] for a in agents}, variable_owners={a: a for a in agents})
    exchanges = CountedExchanges(graph, Routes(agents, situation.links, has_base=True))
    return CentralDriver(coordination, transport, situation.round, exchanges)


def log_det_terms(Psi: np.ndarray, order: int) -> np.ndarray:
    """log|Psi_nn given its next B rows| for each row n (Daxberger & Low 2017, eq. (3) and propositions 1 and 2).

    Args:
        Psi: I + posterior covariance / noise variance of the whole batch.
        order: Markov order B >= 0.
    """
    terms = list[float]()
    for n in range(len(Psi)):
        after = slice(n + 1, n + 1 + order)
        terms.append(np.log(Psi[n, n] - Psi[n, after] @ np.linalg.solve(Psi[after, after], Psi[after, n])))
    return np.array(terms)
