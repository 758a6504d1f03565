"""Sums of local functions to be maximised; what a factor itself is worth, each test says in a class of its own."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack

CHAIN = {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(4)}


@dataclass(frozen=True, eq=False)
class ExampleSum(BoxFunctions):
    """A sum whose factors, if it is coupled, weigh their worth by what their neighbours publish."""

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
        """What a factor is worth by itself, and its gradient."""

    def of_its_own(self, factor: str) -> tuple[int, np.random.Generator]:
        """Number of variables of a factor, and what its random numbers come from; refused to agents without it."""
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
