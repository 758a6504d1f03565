"""What one agent does in max-sum with refinement: it evaluates its own factors, and hears the rest."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.max_sum_program import PartAgent
from swarmbo.coordination.messages import Consensus, Key, Message, Published, packed, unpacked
from swarmbo.coordination.program import Post
from swarmbo.coordination.refinement import is_at_edge, tables
from swarmbo.coordination.tables import Table, total, violated
from swarmbo.coordination.zoom_plan import Zoom, ZoomPlan
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.records import SolveReport, Status, Traffic


class ZoomOutcome(NamedTuple):
    """What an agent comes out of a part with.

    Args:
        part: Its index.
        x: Values of the variables that it owns.
        values: Of the factors that it owns, at the joint point.
        zoom: How far the part has come.
    """

    part: int
    x: dict[str, float]
    values: dict[str, float]
    zoom: Zoom


ZoomSteps = Generator[tuple[Key, ...], dict[Key, Message], ZoomOutcome]


class ZoomAgent:
    """One agent's side of solving one connected part.

    Args:
        plan: What everyone knows.
        agent: Its name.
        functions: Of the factors that it owns.
        post: Posts a message.
    """

    def __init__(self, plan: ZoomPlan, agent: str, functions: LocalFunctions, post: Post) -> None:
        self.plan, self.agent, self.functions, self.post = plan, agent, functions, post
        self.graph = plan.coarse.graph
        self.factors, self.variables = self.graph.factors_owned_by(agent), self.graph.variables_owned_by(agent)
        self.stacks = stacks_of(functions.graph, self.factors)
        self._place = dict(zip(self.graph.variables, plan.columns.tolist(), strict=True))
        self._row = {variable: row for row, variable in enumerate(self.graph.variables)}

    def program(self) -> ZoomSteps:
        """Level after level, in step with the part's other agents."""
        plan, zoom, best_so_far = self.plan, Zoom(), None
        x = plan.starts[0].copy()  # entries of variables that this agent never hears of stay as they are, unused
        values, received = yield from self._evaluate(x)
        while plan.goes_on(zoom):
            grid = plan.grid(zoom, x)
            side = PartAgent(plan.part(zoom), self.agent, self._tables(grid, received), self.post)
            if self.graph.is_forest:
                outcome = yield from side.on_tree()
            else:
                max_sum = plan.max_sum
                outcome = yield from side.on_loops(max_sum.rounds, max_sum.damping, max_sum.tolerance, max_sum.repairs)
            candidate = yield from self._hear_choice(x, grid, outcome.assignment)
            new_values, new_received = yield from self._evaluate(candidate)
            rows = {f: (new_values[f],) if zoom.levels else (values[f], new_values[f]) for f in self.factors}
            moved = self._is_at_edge(grid, candidate)
            verdict, best_so_far = yield from side.agree(rows, best_so_far, moved=moved)
            improved = verdict.best == (1 if zoom.levels else 2)
            zoom = zoom.after(outcome.rounds, finer=not improved or verdict.stop)
            if improved:
                x, values, received = candidate, new_values, new_received
        own = {variable: float(x[self._place[variable]]) for variable in self.variables}
        return ZoomOutcome(plan.coarse.index, own, values, zoom)

    def _evaluate(
        self, x: Float[np.ndarray, " n"]
    ) -> Generator[tuple[Key, ...], dict[Key, Message], tuple[dict[str, float], dict[str, tuple[float, ...]]]]:
        """Own factors' values at a joint point, and what they received there."""
        got: dict[str, list[np.ndarray]] = {factor: [] for factor in self.factors}
        for phase in range(self.plan.n_exchanges):
            for stack in self.stacks:
                U, so_far = stack.take(x[None]), self._phases(stack.factors, got)
                for factor, told in zip(stack.factors, self.functions.published(stack, U, so_far), strict=True):
                    for other in self.graph.neighbours(factor):
                        self.post(self.graph.owner(other), Published(factor, other, packed(told), phase))
            for factor in self.factors:
                neighbours = self.graph.neighbours(factor)
                heard = yield tuple(("published", other, factor, phase) for other in neighbours)
                said = [_entries(heard["published", other, factor, phase]) for other in neighbours]
                got[factor].append(np.sum(said, axis=0) if said else np.zeros(1))
        values: dict[str, float] = {}
        for stack in self.stacks:
            found = self.functions.value(stack, stack.take(x[None]), self._phases(stack.factors, got))
            values.update(zip(stack.factors, found[:, 0].tolist(), strict=True))
        return values, {factor: tuple(float(phase[0]) for phase in got[factor]) for factor in self.factors}

    def _phases(
        self, factors: tuple[str, ...], got: dict[str, list[np.ndarray]]
    ) -> tuple[Float[np.ndarray, "g 1"], ...]:
        return tuple(map(np.array, zip(*(got[factor] for factor in factors), strict=True)))

    def _tables(self, grid: Float[np.ndarray, "v values"], received: dict[str, tuple[float, ...]]) -> dict[str, Table]:
        everywhere = self.plan.on_whole_graph(grid)
        out: dict[str, Table] = {}
        for stack in self.stacks:
            found = tables(self.functions, stack, everywhere, [received[factor] for factor in stack.factors])
            out.update(zip(stack.factors, found, strict=True))
        return out

    def _hear_choice(
        self, x: Float[np.ndarray, " n"], grid: Float[np.ndarray, "v values"], chosen: dict[str, int]
    ) -> Generator[tuple[Key, ...], dict[Key, Message], Float[np.ndarray, " n"]]:
        """Tell the owners of factors which values own variables take; hear those of own factors' variables."""
        candidate = x.copy()
        for variable in self.variables:
            value = candidate[self._place[variable]] = grid[self._row[variable], chosen[variable]]
            for factor in self.graph.factors_of(variable):
                self.post(self.graph.owner(factor), Consensus(factor, variable, packed(np.array([value]))))
        for factor in self.factors:
            heard = yield tuple(("consensus", factor, variable) for variable in self.graph.scope(factor))
            for variable in self.graph.scope(factor):
                candidate[self._place[variable]] = _entries(heard["consensus", factor, variable])[0]
        return candidate

    def _is_at_edge(self, grid: Float[np.ndarray, "v values"], candidate: Float[np.ndarray, " n"]) -> bool:
        rows = [self._row[variable] for variable in self.variables]
        columns = self.plan.columns[rows]
        if not rows:
            return False
        low, high = self.plan.low[columns], self.plan.high[columns]
        return bool(is_at_edge(grid[rows], candidate[columns], low, high).any())


def _entries(message: Message) -> Float[np.ndarray, " _"]:
    assert isinstance(message, Published | Consensus)
    return unpacked(message.entries)


@dataclass(frozen=True, eq=False)
class RefinedMaxSumPlan:
    """The commonly known side of max-sum with refinement.

    Args:
        graph: The whole graph.
        parts: Its connected parts.
    """

    graph: FactorGraph
    parts: tuple[ZoomPlan, ...]

    def programs(self, agent: str, functions: LocalFunctions, post: Post) -> Iterable[ZoomSteps]:
        """What one agent does: one program for each part that it takes part in."""
        for part in self.parts:
            if agent in part.coarse.graph.agents:
                yield ZoomAgent(part, agent, functions, post).program()

    def agreement(self, outcomes: Sequence[ZoomOutcome], traffic: Traffic) -> Agreement:
        """Put together what all agents came out with."""
        x = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        values = {factor: value for outcome in outcomes for factor, value in outcome.values.items()}
        zooms = {outcome.part: outcome.zoom for outcome in outcomes}
        point = np.array([x[variable] for variable in self.graph.variables])
        return self.together(point, values, [zooms[i] for i in range(len(self.parts))], traffic)

    def together(
        self, point: Float[np.ndarray, " n"], values: Mapping[str, float], zooms: Sequence[Zoom], traffic: Traffic
    ) -> Agreement:
        """The agreement that the parts come to.

        Args:
            point: The joint point.
            values: Of each factor there.
            zooms: How far each part has come.
            traffic: Of all of them.
        """
        is_done = all(part.is_fine_enough(zoom) for part, zoom in zip(self.parts, zooms, strict=True))
        by_factor = {factor: values[factor] for factor in self.graph.factors}
        value, broken = total(np.array(list(by_factor.values()))), violated(by_factor)
        status: Status = "infeasible" if broken else "converged" if is_done else "max_rounds"
        report = SolveReport(
            status=status, rounds=max(zoom.rounds for zoom in zooms), value=value, traffic=traffic, violated=broken
        )
        return Agreement(point, value, report)
