"""Consensus ADMM: factors keep copies of their variables, climb alone, and are pulled together.

For each factor i with local function phi_i, copy x_i and scaled dual u_i, penalty eta, in one round:

    x_i <- argmax phi_i(x) - eta/2 |x - z_{V_i} + u_i|²
    z_j <- mean over the factors i of variable j of x_i[j] + u_i[j]
    u_i <- u_i + x_i - z_{V_i}

Source: Boyd et al. 2011, sections 3.1.1, 3.3 and 7.2; Bardou et al. 2024 (DuMBO), section 4, where only the mean of the
x_i is taken, which is the same as long as the duals of a variable sum to zero.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.ascent import ascend
from swarmbo.coordination.continuous_traffic import ContinuousLedger
from swarmbo.coordination.local_functions import LocalFunctions, exchange
from swarmbo.coordination.parts import Parts
from swarmbo.coordination.polish import part_values, polish
from swarmbo.records import SolveReport, Status
from swarmbo.rng import stream
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx

Copies = list[Float[np.ndarray, "_g m _a"]]


class ADMM(Settings, frozen=True, tag_field="kind", tag="admm"):
    """Consensus ADMM from several starts at once, then a climb from the best points.

    Starts are the ``screened`` random joint points that are worth most, found part by part of the graph, and those that
    the functions suggest. Parts of one factor need no agreement: their owner climbs alone. Every round's consensus is a
    candidate; the best ones are polished. With functions that are not concave this is a local search, as any such
    method is, and nothing is proved about the optimum.

    Args:
        rounds: At most, 1 to 10 000.
        starts: Runs side by side, >= 1.
        screened: Random joint points looked at for starts, >= 0.
        inner_steps: Gradient steps of a factor in a round, >= 1.
        alone_steps: Gradient steps of a factor that shares no variable, >= 1.
        penalty: eta at first, > 0, in units of the spread of a part's values over the squared spread of its box.
        tolerance: Stop when the primal and the dual residual are below it, > 0, in sides of the box.
        balance: Double (halve) the penalty when the primal residual is this many times larger (smaller) than the dual
            one, > 1.
        polish_steps: Joint gradient steps at the end, >= 0; 0 keeps the best consensus as it is.
        polished: How many of the best candidates of a part are polished, >= 1.
    """

    rounds: int = 30
    starts: int = 8
    screened: int = 256
    inner_steps: int = 8
    alone_steps: int = 30
    penalty: float = 1.0
    tolerance: float = 1e-3
    balance: float = 10.0
    polish_steps: int = 40
    polished: int = 3

    def __post_init__(self) -> None:
        require(self, "rounds", lambda v: 1 <= v <= 10_000, "an integer from 1 to 10000")
        for field in ("starts", "inner_steps", "alone_steps", "polished"):
            require(self, field, lambda v: v >= 1, "an integer >= 1")
        for field in ("screened", "polish_steps"):
            require(self, field, lambda v: v >= 0, "an integer >= 0")
        for field in ("penalty", "tolerance"):
            require(self, field, lambda v: v > 0.0, "a number > 0")
        require(self, "balance", lambda v: v > 1.0, "a number > 1")

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0) -> Agreement:
        """Agree in this process, and report the traffic that the agents would have had.

        Args:
            functions: What to maximise in sum.
            links: Radio graph of the agents; None: everyone hears everyone.
            seed: Of the random starts, which all agents can draw for themselves.

        Raises:
            TransportError: If agents that must talk are not connected by links.
        """
        parts = Parts.of(functions.graph)
        ledger = ContinuousLedger(functions, parts, Routes(functions.graph.agents, links))
        Z, spread = self._starts(functions, parts, seed, ledger)
        alone = ~parts.is_shared
        candidates, values = [Z], [part_values(functions, parts, Z)]
        if alone.any():
            Z = self._climb_alone(functions, parts, Z, alone)
            candidates.append(Z)
            values.append(part_values(functions, parts, Z))
        rounds, status, primal, dual, gain = 0, "converged", None, None, None
        if parts.is_shared.any():
            history, rounds, status, primal, dual = self._agree(functions, parts, Z, spread)
            candidates += history
            values += [part_values(functions, parts, Z) for Z in history]
            ledger.rounds(rounds, Z.shape[0])
        best, best_values = _best(parts, np.concatenate(candidates), np.concatenate(values, axis=1), self.polished)
        if parts.is_shared.any() and self.polish_steps:
            climbed, after, steps = polish(functions, parts, best, self.polish_steps)
            ledger.polishing(steps, len(best))
            better, before = _best(parts, climbed, after, 1), best_values.max(axis=1).sum()
            best, best_values = better
            gain = float(best_values.max(axis=1).sum() - before)
        point = _best(parts, best, best_values, 1)[0][0]
        value = float(part_values(functions, parts, point[None]).sum())
        report = SolveReport(
            status=status,
            rounds=rounds,
            value=value,
            traffic=ledger.traffic,
            primal_residual=primal,
            dual_residual=dual,
            polish_gain=gain,
        )
        return Agreement(point, value, report)

    def _starts(
        self, functions: LocalFunctions, parts: Parts, seed: int, ledger: ContinuousLedger
    ) -> tuple[Float[np.ndarray, "m n"], Float[np.ndarray, " parts"]]:
        """Joint points to start from, best first, and the spread of each part's values over random ones."""
        low, high = functions.low, functions.high
        given = np.clip(functions.starts[: self.starts], low, high)
        n_random = max(self.screened, self.starts - len(given))
        columns = [stream(seed, "starts", variable=v).random(n_random) for v in functions.graph.variables]
        drawn = low + np.array(columns).reshape(len(low), n_random).T * (high - low)
        worth = part_values(functions, parts, drawn)
        ledger.screening(n_random)
        chosen, _ = _best(parts, drawn, worth, max(self.starts - len(given), 1))
        return np.concatenate([given, chosen])[: max(self.starts, 1)], worth.std(axis=1)

    def _climb_alone(
        self, functions: LocalFunctions, parts: Parts, Z: Float[np.ndarray, "m n"], alone: Bool[np.ndarray, " parts"]
    ) -> Float[np.ndarray, "m n"]:
        """Factors that share no variable climb by themselves."""
        out = Z.copy()
        for stack, part in zip(parts.stacks, parts.of_factor, strict=True):
            rows = np.flatnonzero(alone[part])
            if len(rows):
                own = type(stack)(tuple(stack.factors[i] for i in rows), stack.columns[rows])
                low, high = functions.low[own.columns][:, None, :], functions.high[own.columns][:, None, :]
                nothing = tuple(np.zeros((len(rows), len(Z))) for _ in range(functions.n_exchanges))

                def climbed(X: np.ndarray, own: Any = own, nothing: Any = nothing) -> Any:
                    return functions.value_and_gradient(own, X, nothing)

                X, _ = ascend(climbed, own.take(Z), low, high, self.alone_steps)
                out[:, own.columns] = np.moveaxis(X, 0, 1)
        return out

    def _agree(
        self, functions: LocalFunctions, parts: Parts, Z: Float[np.ndarray, "m n"], spread: Float[np.ndarray, " parts"]
    ) -> tuple[list[Float[np.ndarray, "m n"]], int, Status, float, float]:
        """The rounds: the consensus after each, their number, and how they ended."""
        low, high = functions.low, functions.high
        sides = np.where(high > low, high - low, 1.0)
        eta = self.penalty * 12.0 * np.maximum(spread, 1e-12)[:, None] * np.ones((1, len(Z)))  # per squared side
        X = [stack.take(Z) for stack in parts.stacks]
        U = [np.zeros_like(x) for x in X]
        shared = parts.is_shared[parts.of_variable]
        n_shared = np.array([(shared[stack.columns]).sum() for stack in parts.stacks]).sum()
        history: list[np.ndarray] = []
        primal = dual = np.inf
        for _ in range(self.rounds):
            received = exchange(functions, parts.stacks, X)
            X = self._climb_together(functions, parts, X, U, Z, eta, received, sides)
            together = parts.scatter([x + u for x, u in zip(X, U, strict=True)]) / parts.degree
            new_Z = np.where(shared, np.clip(together, low, high), Z)
            gaps = [
                (x - stack.take(new_Z)) / sides[stack.columns][:, None, :]
                for x, stack in zip(X, parts.stacks, strict=True)
            ]
            primal_by_part = np.sqrt(parts.sums([(gap**2).sum(axis=-1) for gap in gaps]))
            moved = [(stack.take(new_Z) - stack.take(Z)) / sides[stack.columns][:, None, :] for stack in parts.stacks]
            dual_by_part = np.sqrt(parts.sums([(step**2).sum(axis=-1) for step in moved]))
            U = [
                u + gap * sides[stack.columns][:, None, :] for u, gap, stack in zip(U, gaps, parts.stacks, strict=True)
            ]
            grow = primal_by_part > self.balance * dual_by_part
            shrink = dual_by_part > self.balance * primal_by_part
            factor = np.where(grow, 2.0, np.where(shrink, 0.5, 1.0))
            eta = eta * factor
            U = [u / factor[part][:, :, None] for u, part in zip(U, parts.of_factor, strict=True)]
            Z = new_Z
            history.append(Z)
            count = max(int(n_shared), 1)
            keep = parts.is_shared
            primal = float(np.sqrt((primal_by_part[keep] ** 2).sum(axis=0).max() / count))
            dual = float(np.sqrt((dual_by_part[keep] ** 2).sum(axis=0).max() / count))
            if primal <= self.tolerance and dual <= self.tolerance:
                return history, len(history), "converged", primal, dual
        return history, len(history), "max_rounds", primal, dual

    def _climb_together(
        self,
        functions: LocalFunctions,
        parts: Parts,
        X: Copies,
        U: Copies,
        Z: Float[np.ndarray, "m n"],
        eta: Float[np.ndarray, "parts m"],
        received: Sequence[Any],
        sides: Float[np.ndarray, " n"],
    ) -> Copies:
        """Every factor of a shared part climbs its augmented Lagrangian."""
        out: Copies = []
        for s, (stack, part) in enumerate(zip(parts.stacks, parts.of_factor, strict=True)):
            weight = np.where(parts.is_shared[part][:, None], eta[part], 0.0)[:, :, None] / (
                sides[stack.columns][:, None, :] ** 2
            )
            centre = stack.take(Z) - U[s]

            def climbed(
                x: np.ndarray, stack: Any = stack, weight: Any = weight, centre: Any = centre, s: int = s
            ) -> Any:
                value, gradient = functions.value_and_gradient(stack, x, received[s])
                gap = x - centre
                return value - 0.5 * (weight * gap**2).sum(axis=-1), gradient - weight * gap

            low, high = functions.low[stack.columns][:, None, :], functions.high[stack.columns][:, None, :]
            out.append(ascend(climbed, X[s], low, high, self.inner_steps)[0])
        return out


def _best(
    parts: Parts, Z: Float[np.ndarray, "c n"], values: Float[np.ndarray, "parts c"], count: int
) -> tuple[Float[np.ndarray, "count n"], Float[np.ndarray, "parts count"]]:
    """For each part its best candidates, put together into joint points."""
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]  # (parts, count)
    points = np.take_along_axis(Z, order.T[:, parts.of_variable], axis=0)
    return points, np.take_along_axis(values, order, axis=1)
