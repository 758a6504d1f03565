"""Runs of consensus ADMM in which nobody waits: each agent goes on from the newest that it has heard of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.ascent import ascend
from swarmbo.coordination.box_terms import BoxTerms
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import Pull, Runs
from swarmbo.coordination.starts import natural_penalty
from swarmbo.coordination.tables import Vector
from swarmbo.graph import FactorStack, stacks_of


@dataclass(eq=False)
class _Climber:
    """One own factor in the rounds of consensus: copies and duals (1, m, a), and steps (1, m) to go on with."""

    stack: FactorStack
    X: Float[np.ndarray, "1 m a"]
    U: Float[np.ndarray, "1 m a"]
    eta: float
    step: Float[np.ndarray, "1 m"]
    has_begun: bool = False


class OwnRuns:
    """The own factors and variables in m runs side by side.

    Args:
        name: Of the agent.
        terms: What all know.
        functions: Of at least its factors.

    Attributes:
        Z: Where variables stand in each run (m, n), as far as was heard.
    """

    def __init__(self, name: str, terms: BoxTerms, functions: LocalFunctions) -> None:
        graph = terms.graph
        self.Z = terms.starts.copy()
        self._name, self._terms, self._graph, self._functions = name, terms, graph, functions
        self._variables, self._column = graph.variables_owned_by(name), graph.column_of
        self._fresh = set(graph.variables)  # where something is new to the own factors
        self._pulls: dict[tuple[str, str], Pull] = {}
        self._climbers = {f: self._climber(stacks_of(graph, [f])[0]) for f in graph.factors_owned_by(name)}

    def place(self, variable: str, entries: Vector) -> None:
        """Note where a variable stands in each run."""
        i = self._column[variable]
        self.Z[:, i] = np.clip(entries, self._terms.low[i], self._terms.high[i])
        self._fresh.add(variable)

    def pulled(self, pull: Pull) -> None:
        """Note where a factor wants an own variable."""
        self._pulls[pull.factor, pull.variable] = pull

    def climb(self, received: Mapping[str, Sequence[Float[np.ndarray, "1 p"]]]) -> list[Pull]:
        """Let every own factor of whose variables something is new climb its augmented Lagrangian.

        Args:
            received: What each of them received in each phase of exchange, at the runs first.

        Returns:
            Where they want their variables.
        """
        terms, functions, graph, out = self._terms, self._functions, self._graph, list[Pull]()
        for f, climber in self._climbers.items():
            scope, stack = graph.scope(f), climber.stack
            fresh = np.array([x in self._fresh for x in scope])
            if not fresh.any():
                continue
            z, columns = stack.take(self.Z), stack.columns[0]
            if climber.has_begun:  # the dual of each variable is renewed once for each of its means
                climber.U = np.where(fresh, climber.U + climber.X - z, climber.U)
            climber.has_begun = True
            is_shared = np.array([len(graph.factors_of(x)) > 1 for x in scope])
            weight = np.where(is_shared, climber.eta / terms.sides[columns] ** 2, 0.0)
            got = tuple(phase[:, : len(self.Z)] for phase in received[f])

            def lagrangian(
                x: np.ndarray, stack: Any = stack, centre: Any = z - climber.U, weight: Any = weight, got: Any = got
            ) -> Any:
                value, gradient = functions.value_and_gradient(stack, x, got)
                gap = x - centre
                return value - 0.5 * (weight * gap**2).sum(axis=-1), gradient - weight * gap

            box = terms.low[columns][None, None], terms.high[columns][None, None]
            climbed = ascend(lagrangian, climber.X, *box, terms.settings.inner_steps, first_step=climber.step)
            climber.X, climber.step = climbed.X, climbed.step
            said = (climber.X + climber.U)[0]
            out += [Pull(f, x, said[:, axis].copy(), climber.eta) for axis, x in enumerate(scope)]
        self._fresh.clear()
        for pull in out:
            if pull.variable in self._variables:
                self.pulled(pull)
        return out

    def agree(self) -> list[Runs]:
        """Let every own variable stand, in each run, at the mean of where its factors want it.

        Returns:
            Where they stand, of those that have moved by more than the threshold: for less nobody climbs again.
        """
        out: list[Runs] = []
        for x in self._variables:
            heard = [self._pulls[f, x] for f in self._graph.factors_of(x) if (f, x) in self._pulls]
            if not heard:
                continue
            weights = np.array([pull.weight for pull in heard])
            i = self._column[x]
            mean = weights @ np.array([pull.entries for pull in heard]) / weights.sum()
            runs = Runs(x, np.clip(mean, self._terms.low[i], self._terms.high[i]))
            if self.change(runs, self.Z[:, i]) > self._terms.settings.threshold:
                self.place(x, runs.entries)
                out.append(runs)
        return out

    def change(self, message: Pull | Runs, before: Vector) -> float:
        """How far something moved at most, in sides of the box."""
        return float(np.abs(message.entries - before).max() / self._terms.sides[self._column[message.variable]])

    def _climber(self, stack: FactorStack) -> _Climber:
        terms = self._terms
        silence = tuple(np.zeros((1, len(terms.drawn))) for _ in range(terms.n_exchanges))
        values = self._functions.value(stack, stack.take(terms.drawn), silence)[0]
        eta, X = terms.settings.penalty * natural_penalty(values, 0), stack.take(self.Z)
        return _Climber(stack, X, np.zeros_like(X), eta, np.full(X.shape[:2], 1.0 / eta))
