"""Sums of local functions to be maximised; subclasses define the value of a single factor."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize

from swarmbo.coordination.participant import maximise_with_agents
from swarmbo.coordination.plan import BoxMethod
from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack
from swarmbo.records import SolveReport, Traffic
from swarmbo.transport import InProcess

CHAIN = {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(4)}
RING = {f"f{i}": [f"x{i}", f"x{(i + 1) % 5}"] for i in range(5)}
TREE = {"a": ["x", "y", "z"], "b": ["z", "u"], "c": ["z", "v", "w"], "d": ["q"]}
DISJOINT = {"f": ["a", "b", "c"], "g": ["d", "e"], "h": ["i"], "k": ["j", "l"]}


@dataclass(frozen=True, eq=False)
class ExampleSum(BoxFunctions):
    """A sum; if it is coupled, values of factors are weighted by what their neighbours publish."""

    seed: int = 0
    ripples: float = 0.0
    coupling: float = 0.0

    @classmethod
    def on_box(
        cls,
        scopes: dict[str, list[str]],
        seed: int = 0,
        *,
        owners: dict[str, Any] | None = None,
        n_starts: int = 0,
        box: tuple[float, float] = (0.0, 1.0),
        **more: Any,
    ) -> Self:
        """The sum over a graph of these scopes, all sides of the box equal, with random points to start from."""
        graph = FactorGraph.from_scopes(scopes, **(owners or {}))
        n, (low, high) = len(graph.variables), box
        starts = low + (high - low) * np.random.default_rng([seed, 99]).random((n_starts, n))
        return cls(graph, np.full(n, low), np.full(n, high), starts, seed=seed, **more)

    @abstractmethod
    def own(self, factor: str, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Value of a factor without coupling, and its gradient."""

    def size_and_rng(self, factor: str) -> tuple[int, np.random.Generator]:
        """Number of variables of a factor, and its random numbers; refused to agents that do not own it."""
        assert self.owned is None or factor in self.owned
        return len(self.graph.scope(factor)), np.random.default_rng([self.seed, self.graph.factors.index(factor)])

    @property
    def n_exchanges(self) -> int:
        return 2 if self.coupling else 0

    def published(self, stack: FactorStack, U: np.ndarray, received: Sequence[np.ndarray]) -> np.ndarray:
        value = np.array([self.own(f, X)[0] for f, X in zip(stack.factors, U, strict=True)])
        return value if not received else value * received[0]

    def value(self, stack: FactorStack, U: np.ndarray, received: Sequence[np.ndarray]) -> np.ndarray:
        value = np.array([self.own(f, X)[0] for f, X in zip(stack.factors, U, strict=True)])
        return value * (1.0 + self.coupling * np.sin(received[0] + 0.3 * received[1])) if received else value

    def value_and_gradient(
        self, stack: FactorStack, U: np.ndarray, received: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        slope = np.array([self.own(f, X)[1] for f, X in zip(stack.factors, U, strict=True)])
        return self.value(stack, U, received), slope


@cache  # drawn once, not in every evaluation
def _bowl(seed: int, index: int, size: int, steepness: float | None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, index])
    axes, _ = np.linalg.qr(rng.normal(size=(size, size)))
    if steepness is None:
        return axes @ np.diag(rng.uniform(0.5, 5.0, size)) @ axes.T, rng.uniform(-0.3, 1.3, size)
    return axes @ np.diag(2.0 * np.geomspace(1.0, steepness, size)) @ axes.T, rng.random(size)


@dataclass(frozen=True, eq=False)
class Quadratics(ExampleSum):
    """Concave quadratics plus ripples; centres may be outside the box, but not if a steepness is given."""

    steepness: float | None = None  # ratio of the largest to the smallest curvature

    def bowl(self, factor: str) -> tuple[np.ndarray, np.ndarray]:
        """Curvature and centre."""
        assert self.owned is None or factor in self.owned
        return _bowl(self.seed, self.graph.factors.index(factor), len(self.graph.scope(factor)), self.steepness)

    def own(self, factor: str, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P, centre = self.bowl(factor)
        D = X - centre
        value, slope = -0.5 * ((D[..., None, :] * P).sum(-1) * D).sum(-1), -(D[..., None, :] * P).sum(-1)
        return value + self.ripples * np.cos(25.0 * D).sum(-1), slope - 25.0 * self.ripples * np.sin(25.0 * D)


def maximiser_of(functions: Quadratics) -> np.ndarray:
    """The maximiser of a sum of quadratics in the box, from one assembled matrix, by bounded quasi-Newton steps."""
    place = {variable: i for i, variable in enumerate(functions.graph.variables)}
    H, h = np.zeros((len(place), len(place))), np.zeros(len(place))
    for factor in functions.graph.factors:
        P, centre = functions.bowl(factor)
        columns = [place[variable] for variable in functions.graph.scope(factor)]
        H[np.ix_(columns, columns)] += P
        h[columns] += P @ centre
    found = minimize(
        lambda x: (0.5 * x @ H @ x - h @ x, H @ x - h),
        0.5 * (functions.low + functions.high),
        jac=True,
        bounds=list(zip(functions.low, functions.high, strict=True)),
        method="L-BFGS-B",
        options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10},
    )
    free = (found.x > functions.low) & (found.x < functions.high)
    x = found.x.copy()
    x[free] = np.linalg.solve(H[np.ix_(free, free)], h[free] - H[np.ix_(free, ~free)] @ x[~free])
    return x


def check_agents(functions: BoxFunctions, method: BoxMethod, links: Any = None, seed: int = 7) -> SolveReport:
    """Assert that agents and the fast path agree bit for bit, traffic included; return the report."""
    fast = method.maximise(functions, links, seed)
    by_agents = maximise_with_agents(method, functions, InProcess().open(functions.graph.agents, links), seed)
    assert by_agents.point.tobytes() == fast.point.tobytes()
    assert by_agents.value == fast.value
    assert by_agents.report == fast.report
    spans = any(len(part.agents) > 1 for part in functions.graph.components)
    assert (fast.report.traffic != Traffic()) == spans
    return fast.report
