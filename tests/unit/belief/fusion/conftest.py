"""Teams of agents on a ring, and an independent posterior of pooled measurements."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest

from swarmbo.belief.fusion import FusedView, Proposal
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.spaces import Domain
from swarmbo.transport import Cut, FaultyTransport

DOMAIN = Domain(np.array([0.0, -10.0]), np.array([100.0, 30.0]))
START = Proposal(0, "", Hyperparameters("matern52", (0.3, 0.5), 1.3, 0.05, 0.2, 7.0, 3.0), seed=0, n_features=24)
OTHER = Hyperparameters("matern32", (0.2, 0.2), 0.8, 0.02, -0.1, 6.0, 2.0)
PLACES = DOMAIN.from_unit(stream(0, "places").random((40, 2)))


def links_of(names: Sequence[str]) -> "nx.Graph[str]":
    return nx.cycle_graph(list(names))


def cut(transport: FaultyTransport, *parts: Sequence[str]) -> None:
    """Cut a network into some parts from now on, or heal it."""
    cuts = (Cut(tuple(map(tuple, parts))),) if parts else ()
    transport.faults = msgspec.structs.replace(transport.faults, cuts=cuts)


def near(agent: Any, neighbours: Iterable[str], **settings: Any) -> Any:
    """The agent with these neighbours and with other values of its attributes."""
    agent.meet(neighbours)
    for key, value in settings.items():
        setattr(agent, key, value)
    return agent


def ring(kind: Callable[..., Any], names: Sequence[str], **settings: Any) -> dict[str, Any]:
    links = links_of(names)
    return {name: near(kind(name, DOMAIN, START), links[name], **settings) for name in names}


def measure(agent: FusedView, n: int, seed: int = 0) -> None:
    rng = stream(seed, "readings", agent=agent.name, n=agent.n_measurements)
    agent.measure(DOMAIN.from_unit(rng.random((n, 2))), 7.0 + 3.0 * rng.standard_normal(n))


def team(kind: Callable[..., Any], names: Sequence[str], **settings: Any) -> dict[str, Any]:
    """A ring whose first agent has two measurements, and each next agent one more."""
    agents = ring(kind, names, **settings)
    for k, agent in enumerate(agents.values()):
        measure(agent, 2 + k)
    return agents


def pooled(agents: Sequence[FusedView], proposal: Proposal = START) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance at PLACES in the function space of the features: no weights, no information form."""
    h, basis = proposal.hyperparameters, proposal.basis
    X = np.concatenate([agent.X for agent in agents])
    y = np.concatenate([agent.y for agent in agents])
    Phi, Phi_places = basis.features(DOMAIN.to_unit(X)), basis.features(DOMAIN.to_unit(PLACES))
    K, cross = Phi @ Phi.T + h.noise_variance * np.eye(len(y)), Phi_places @ Phi.T
    mean = h.offset + h.scale * (h.mean + cross @ np.linalg.solve(K, (y - h.offset) / h.scale - h.mean))
    var = h.scale**2 * ((Phi_places**2).sum(axis=1) - np.einsum("mn,nm->m", cross, np.linalg.solve(K, cross.T)))
    return mean, var


def assert_pooled(agent: FusedView, members: Sequence[FusedView], proposal: Proposal = START) -> None:
    np.testing.assert_allclose(agent.belief.posterior(PLACES), pooled(members, proposal), rtol=1e-6)


def assert_all_pooled(agents: Mapping[str, FusedView], proposal: Proposal = START) -> None:
    for agent in agents.values():
        assert_pooled(agent, list(agents.values()), proposal)


@pytest.fixture
def names() -> list[str]:
    return [f"s{n}" for n in range(8)]
