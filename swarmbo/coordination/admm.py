"""Consensus ADMM: factors keep copies of their variables, climb alone, and are pulled together.

For each factor i with local function phi_i, copy x_i and scaled dual u_i, penalty eta, in one round:

    x_i <- argmax phi_i(x) - eta/2 |x - z_{V_i} + u_i|²
    z_j <- mean over the factors i of variable j of x_i[j] + u_i[j]
    u_i <- u_i + x_i - z_{V_i}

Source: Boyd et al. 2011, sections 3.1.1, 3.3 and 7.2; Bardou et al. 2024 (DuMBO), section 4, where only the mean of the
x_i is taken, which is the same as long as the duals of a variable sum to zero.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from swarmbo.coordination.admm_method import alone, climb_alone, n_values, together
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_solver import MaxSum
from swarmbo.coordination.member import Member
from swarmbo.coordination.program import Post
from swarmbo.coordination.share import PartOutcome, Share, Steps, finish
from swarmbo.coordination.tables import total, violated
from swarmbo.coordination.whole_part import WholePart
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx

Programs = Generator[Any, Any, PartOutcome]


@kind("coordination", FUNCTION)
class ADMM(Settings, frozen=True, tag_field="kind", tag="admm"):
    """Consensus ADMM from several starts at once; then the runs' ends are recombined, and the best points climbed from.

    Starts are what the functions suggest and, of ``screened`` random joint points, those that are worth most in sum.
    Where the runs ended, every variable has several values to choose from: max-sum on tables of these finds the best
    combination, which is often much better than the best run, since runs do well in different places. Factors with too
    many variables for tables of ``recombination_entries`` go without. Parts of one factor need no agreement: their
    owner climbs alone. With functions that are not concave this is a local search, as any such method is, and nothing
    is proved about the optimum.

    Connected parts agree independently; in one process one after the other, those of one factor at once.

    Args:
        rounds: At most, 1 to 10 000.
        starts: Runs side by side, >= 1.
        screened: Random joint points looked at for starts, >= 0.
        inner_steps: Gradient steps of a factor in a round, >= 1.
        alone_steps: Gradient steps of a factor that shares no variable, >= 1.
        penalty: eta at first, > 0, in units of the spread of a part's values over the squared spread of its box. The
            spread is that over the random points looked at for starts, and over no fewer than 16.
        tolerance: Stop when the primal and the dual residual are below it, > 0, in sides of the box.
        balance: Double (halve) the penalty when the primal residual is this many times larger (smaller) than the dual
            one, > 1.
        recombination_entries: Most entries of a factor's table when runs are recombined, >= 0; 0 does not recombine.
        polish_steps: Joint gradient steps at the end, >= 0; 0 keeps the best point as it is.
        polished: How many of the best points of a part are polished, beside the recombined one, >= 1.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> agreement = sb.ADMM(rounds=20).maximise(bowls)
        >>> agreement.point.round(3).tolist(), agreement.report.messages > 0
        ([0.317, 0.35, 0.383], True)
    """

    rounds: int = 12
    starts: int = 12
    screened: int = 256
    inner_steps: int = 4
    alone_steps: int = 30
    penalty: float = 1.0
    tolerance: float = 1e-3
    balance: float = 10.0
    recombination_entries: int = 1024
    polish_steps: int = 40
    polished: int = 3

    def __post_init__(self) -> None:
        require(self, "rounds", lambda v: 1 <= v <= 10_000, "an integer from 1 to 10000")
        for field in ("starts", "inner_steps", "alone_steps", "polished"):
            require(self, field, lambda v: v >= 1, "an integer >= 1")
        for field in ("screened", "polish_steps", "recombination_entries"):
            require(self, field, lambda v: v >= 0, "an integer >= 0")
        for field in ("penalty", "tolerance"):
            require(self, field, lambda v: v > 0.0, "a number > 0")
        require(self, "balance", lambda v: v > 1.0, "a number > 1")

    def values_of(self, part: FactorGraph) -> int:
        """How many values each variable of a part may choose from when runs are recombined; 1: they are not."""
        return n_values(part, self.recombination_entries, 2 * self.starts)

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int = 0) -> "ADMMPlan":
        """What every agent works out for itself; no function is asked for a value.

        Args:
            functions: For the graph, the box and the starts, which everyone knows.
            routes: Who reaches whom.
            seed: Of the random starts, which all agents can draw for themselves.
        """
        graph = functions.graph
        parts = tuple(
            PartPlan(part, index, dict.fromkeys(part.variables, self.values_of(part)), routes)
            for index, part in enumerate(graph.components)
        )
        return ADMMPlan(self, graph, parts, seed)

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0) -> Agreement:
        """Agree in this process, and report the traffic that the agents would have had.

        Args:
            functions: What to maximise in sum.
            links: Radio graph of the agents; None: everyone hears everyone.
            seed: Of the random starts.

        Returns:
            The best joint point found. Its report's residuals are those of the part and run that were worst.

        Raises:
            ShapeError: If a function's value is NaN or +inf where runs are recombined.
            TransportError: If agents that must talk are not connected by links.
        """
        plan = self.plan(functions, Routes(functions.graph.agents, links), seed)
        lonely = tuple(part.graph.factors[0] for part in plan.parts if len(part.graph.factors) == 1)
        point = climb_alone(self, functions, lonely, seed) if lonely else np.zeros(len(functions.low))
        outcomes: list[PartOutcome] = []
        traffic = Traffic()
        for part in plan.parts:
            whole = WholePart(part, functions, plan.max_sum)
            if len(part.graph.factors) == 1:
                steps = finish(whole.share, point, PartOutcome(part.index, {}, {}))
            else:
                steps = together(self, whole.share, part.index, seed)
            outcomes.append(whole.run(steps))
            traffic += whole.traffic
        return plan.agreement(outcomes, traffic)


@dataclass(frozen=True, eq=False)
class ADMMPlan:
    """The commonly known side of ADMM.

    Args:
        settings: Of the method.
        graph: The whole graph.
        parts: Its connected parts.
        seed: Of the random starts.
    """

    settings: ADMM
    graph: FactorGraph
    parts: tuple[PartPlan, ...]
    seed: int

    @property
    def max_sum(self) -> MaxSum:
        """What recombines the runs."""
        return MaxSum(rounds=20)

    def programs(self, agent: str, functions: LocalFunctions, post: Post) -> Iterable[Programs]:
        """What one agent does: one program for each part that it takes part in."""
        for part in self.parts:
            if agent in part.graph.agents:
                method = alone if len(part.graph.factors) == 1 else together
                steps: Callable[[Share], Steps] = partial(self._steps, method, part.index)
                yield Member(part, agent, functions, post, self.max_sum).program(steps)

    def _steps(self, method: Callable[[ADMM, Share, int, int], Steps], index: int, share: Share) -> Steps:
        return method(self.settings, share, index, self.seed)

    def agreement(self, outcomes: Sequence[PartOutcome], traffic: Traffic) -> Agreement:
        """Put together what all agents came out with."""
        x = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        values = {factor: value for outcome in outcomes for factor, value in outcome.values.items()}
        by_factor = {factor: values[factor] for factor in self.graph.factors}
        value, broken = total(np.array(list(by_factor.values()))), violated(by_factor)
        by_part = {outcome.part: outcome for outcome in outcomes}
        gains = [by_part[part].gain for part in sorted(by_part)]
        has_converged = all(outcome.has_converged for outcome in outcomes)
        report = SolveReport(
            status="infeasible" if broken else "converged" if has_converged else "max_rounds",
            rounds=max(outcome.rounds for outcome in outcomes),
            value=value,
            traffic=traffic,
            primal_residual=max((o.primal for o in outcomes if o.primal is not None), default=None),
            dual_residual=max((o.dual for o in outcomes if o.dual is not None), default=None),
            violated=broken,
            polish_gain=sum(known) if (known := [gain for gain in gains if gain is not None]) else None,
        )
        point = np.array([x[variable] for variable in self.graph.variables])
        return Agreement(point, value, report)
