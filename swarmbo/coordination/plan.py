"""Bases of methods: settings that solve in one process, and a plan that every agent computes.

To add a method, write its settings as a :class:`TableMethod` or a :class:`BoxMethod` with ``steps``: a generator over
requests, which does one agent's work for the factors and variables of its view. Both the solver and the plan run it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from swarmbo.coordination.agreement import Agreement, BoxOutcome, Solution, TableOutcome, agreement_of, solution_of
from swarmbo.coordination.by_messages import ByMessages, Post, Program
from swarmbo.coordination.central import Central, Watcher
from swarmbo.coordination.certificates import BOUND_ROUNDS, Bound, upper_bound
from swarmbo.coordination.deadline_box import maximise_by_deadline
from swarmbo.coordination.deadline_tables import agree_by_deadline
from swarmbo.coordination.part import BoxView, LocalView, Part
from swarmbo.coordination.schema import Schema
from swarmbo.coordination.tables import Rank, Sizes, Tables, checked_tables, factor_values, rank, sizes_of, total
from swarmbo.errors import ConfigError
from swarmbo.graph import AnyGraph, AnyTables, BoxFunctions, FactorGraph, Links
from swarmbo.records import Traffic
from swarmbo.settings import Count, Settings
from swarmbo.steps import Out, Steps
from swarmbo.transport import InProcess, Routes

Own = TypeVar("Own")


@dataclass(frozen=True, eq=False)
class Plan(Generic[Own, Out]):
    """Plan that every agent knows before the agreement; ``joined``: scope of each eliminated variable's table."""

    parts: tuple[Part, ...]
    steps: Callable[[LocalView, Own], Steps[Out]]
    sizes: Sizes = field(default_factory=dict[str, int])
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def programs(self, agent: str, own: Own, post: Post) -> Iterable[Program[Out]]:
        """Make an agent's programs by messages, one per part; ``own`` has its own factors' tables or functions only."""
        for part in self.parts:
            if agent in part.graph.agents:
                schema = Schema(part, self.sizes, self.joined)
                yield ByMessages(part, agent, post, schema).program(self.steps(LocalView.of(part, agent), own))

    def central_driver(self, own: Own) -> tuple[list[Out], Traffic]:
        """Compute the outcomes of all agents in this process, and the traffic that they would have had."""
        outcomes, traffics = self.by_part(own)
        return outcomes, sum(traffics, Traffic())

    def by_part(self, own: Own, watchers: Sequence[Watcher] | None = None) -> tuple[list[Out], list[Traffic]]:
        """Compute outcomes and traffic part by part, with an optional watcher for each part."""
        watching = watchers or [None] * len(self.parts)
        centrals = [Central(part, watcher) for part, watcher in zip(self.parts, watching, strict=True)]
        outcomes = [central.run(self.steps(LocalView.of(central.part), own)) for central in centrals]
        return outcomes, [central.traffic for central in centrals]


class TableMethod(Settings, frozen=True, tag_field="kind"):
    """Base of methods that choose from tables. A subclass defines one agent's ``steps``.

    Args:
        bound: Method that computes an upper bound on the value of all choices after the agreement, for the report's
            ``upper_bound`` and ``gap``: ``"mplp"`` (``swarmbo.coordination.certificates``). None: only parts solved
            exactly have a bound, their value.
        bound_rounds: Number of rounds to compute the bound, >= 1; None: 20.
    """

    bound: Bound | None = None
    bound_rounds: Count | None = None

    def steps(self, view: LocalView, tables: Tables, sizes: Sizes, /) -> Steps[TableOutcome]:
        """Steps for some factors and variables of a connected part.

        Args:
            view: Factors and variables of the agent.
            tables: Tables of at least these factors; tables of others may not be read.
            sizes: Number of values by variable.
        """
        raise NotImplementedError(f"{type(self).__name__} has no steps for agents: define its method steps")

    def certified(self, view: LocalView, tables: Tables, sizes: Sizes) -> Steps[TableOutcome]:
        """Run :meth:`steps`, and then the part's bound, if it is requested and not known already."""
        outcome = (yield from self.steps(view, tables, sizes))._replace(part=view.part.index)
        if self.bound is None or outcome.status == "exact":
            return outcome
        found = yield from upper_bound(view, tables, sizes, self.bound_rounds or BOUND_ROUNDS)
        return outcome._replace(bound=found)

    def plan(self, graph: FactorGraph, sizes: Sizes, routes: Routes, seed: int = 0) -> Plan[Tables, TableOutcome]:
        """Make the plan that every agent computes; ``seed`` is for random draws that every agent can repeat.

        Raises:
            ConfigError: If the mode is asynchronous: an agreement by a deadline has no such plan.
        """
        require_lockstep(self)
        parts = tuple(Part(part, i, routes, seed) for i, part in enumerate(graph.components))
        return Plan(parts, lambda view, tables: self.certified(view, tables, sizes), sizes)

    def solve(self, graph: AnyGraph, tables: AnyTables = None, links: Links = None, seed: int = 0) -> Solution:
        """Solve in this process, and report the traffic that the agents would have had.

        Args:
            graph: Scopes and owners; or a networkx graph, see ``FactorGraph.with_tables``.
            tables: One array per factor, axes in scope order; -inf forbids a combination. None: the tables are those of
                a networkx graph's edges and nodes.
            links: Radio graph of the agents; None: every agent reaches every other.
            seed: Seed of the agents' random draws, if the method has any.

        Returns:
            The best joint choice found. If all are forbidden, one that few factors forbid; even exact methods may miss
            the fewest. A forbidden choice has the value -inf and the status ``infeasible`` in its report, and
            ``violated`` names the factors. Only with exact methods does this status prove that no choice is allowed.

        Raises:
            ShapeError: If the tables do not fit the graph.
            BudgetError: If an exact method would exceed its budget.
            TransportError: If links do not connect agents that must exchange messages.
        """
        graph, tables = FactorGraph.with_tables(graph, tables)
        if has_deadline(self):
            return agree_by_deadline(self, graph, tables, InProcess().open(graph.agents, links), seed=seed)
        checked = checked_tables(graph, tables)
        plan = self.plan(graph, sizes_of(graph, checked), Routes(graph.agents, links), seed)
        return solution_of(graph, checked, *plan.central_driver(checked))


class BoxMethod(Settings, frozen=True, tag_field="kind"):
    """Base of methods that agree on a joint point of a box. A subclass defines one agent's ``steps``.

    If ``variables_search`` is False, agents that own variables but no factor do not read the box and the starts, which
    are then not sent to them.
    """

    variables_search: ClassVar[bool] = True

    def steps(self, view: BoxView, seed: int, /) -> Steps[BoxOutcome]:
        """Steps of an agent with some factors and variables of a part.

        Args:
            view: Factors and variables of the agent, with functions of at least these factors.
            seed: Seed of the agents' random draws.
        """
        raise NotImplementedError(f"{type(self).__name__} has no steps for agents: define its method steps")

    def plan(self, functions: BoxFunctions, routes: Routes, seed: int = 0) -> Plan[BoxFunctions, BoxOutcome]:
        """Make the plan that every agent computes, from graph, box and starts; no function is evaluated."""
        parts = tuple(Part(part, i, routes) for i, part in enumerate(functions.graph.components))
        return Plan(parts, lambda view, own: self.steps(BoxView.on(view, own), seed))

    def maximise(self, functions: BoxFunctions, links: Links = None, seed: int = 0) -> Agreement:
        """Agree in this process, and report the traffic that the agents would have had.

        Args:
            functions: Local functions, whose sum is maximised.
            links: Radio graph of the agents; None: every agent reaches every other.
            seed: Seed of the agents' random draws.

        Returns:
            The best joint point found. Residuals in its report are the largest of all parts and runs.

        Raises:
            BudgetError: If a method that tabulates would exceed its budget.
            ShapeError: If a function's value is NaN or +inf in a table.
            TransportError: If links do not connect agents that must exchange messages.
        """
        if has_deadline(self):
            return maximise_by_deadline(self, functions, InProcess().open(functions.graph.agents, links), seed)
        plan = self.plan(functions, Routes(functions.graph.agents, links), seed)
        return agreement_of(functions.graph, *plan.central_driver(functions))


class TraceRow(NamedTuple):
    """State after a round (0: first choice). ``rank``: minus the number of forbidding factors, the others' sum."""

    round: int
    rank: Rank
    bound: float | None
    traffic: Traffic

    @property
    def value(self) -> float:
        """Value of the choice; -inf if it is forbidden."""
        return self.rank[1] if self.rank[0] == 0 else -np.inf


State = tuple[Rank | None, float | None, Traffic]  # of a part: rank of its best joint choice, bound, and traffic so far


def _note(states: list[State], best: Rank | None, bound: float | None, traffic: Traffic) -> None:
    """Record the rank of the best joint choice so far or, after the choice is made, the upper bound."""
    states.append((states[-1][0] if states and bound is not None else best, bound, traffic))


def traced(
    method: TableMethod, graph: AnyGraph, tables: AnyTables = None, links: Links = None, seed: int = 0
) -> tuple[Solution, tuple[TraceRow, ...]]:
    """Solve as ``method.solve`` does, and trace the progress.

    Parts of a graph run independently: their rounds are counted in parallel, and a part that has ended stays as it is.
    A part that is solved exactly has a value in its last round only.

    Args:
        method: Method in lockstep, such as ``MaxSum()``.
        graph: As for ``solve``, like the further arguments: graph, tables of the factors, links, and the seed of draws.

    Returns:
        The solution, bit-identical to that of ``solve``; one row per round, from the first round after which every part
        has a choice; and then one row per turn of the bound.

    Example:
        >>> import numpy as np
        >>> from swarmbo.coordination import MGM
        >>> ring = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> method = MGM(bound="mplp", bound_rounds=2)
        >>> solution, rows = traced(method, ring, dict.fromkeys(ring.factors, 1.0 - np.eye(3)))
        >>> rows[-1].value == solution.value, rows[-1].bound == solution.upper_bound, rows[-1].traffic.bytes
        (True, True, 1778)
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    checked = checked_tables(graph, tables)
    plan = method.plan(graph, sizes_of(graph, checked), Routes(graph.agents, links), seed)
    notes: list[list[State]] = [[] for _ in plan.parts]
    outcomes, traffics = plan.by_part(checked, [partial(_note, states) for states in notes])
    solution = solution_of(graph, checked, outcomes, sum(traffics, Traffic()))
    for part, states, outcome, traffic in zip(plan.parts, notes, outcomes, traffics, strict=True):
        values = factor_values(part.graph, {f: checked[f] for f in part.graph.factors}, solution.assignment)
        end = rank(values), total(values) if outcome.status == "exact" else outcome.bound, traffic
        if not states or states[0][0] is None:  # a part without ranks has its result in its last round
            states[:0] = [(None, None, Traffic())] * (outcome.rounds + 1)
        states[-1] = end
    rows: list[TraceRow] = []
    for k in range(max(map(len, notes))):
        # a part that has ended stays as it is
        ranks, bounds, traffics = zip(*(states[min(k, len(states) - 1)] for states in notes), strict=True)
        if None not in ranks:
            broken, value = np.sum(ranks, axis=0).tolist()
            bound = None if None in bounds else float(np.sum(bounds))
            rows.append(TraceRow(k, (int(broken), value), bound, sum(traffics, Traffic())))
    ranked = rank(factor_values(graph, checked, solution.assignment))  # as in `solve`: rows add part by part
    rows[-1] = rows[-1]._replace(rank=ranked, bound=solution.upper_bound)
    return solution, tuple(rows)


def has_deadline(settings: Any) -> bool:
    """True if settings are of a coordination method by a deadline; see ``MaxSum(…)`` and ``ADMM(…)``."""
    # declared by the class: a user's own method may have settings of these names
    return getattr(settings, "has_deadline_mode", False) and settings.mode == "asynchronous"


def require_lockstep(settings: Any) -> None:
    """Raise a ConfigError unless agents wait for one another (lockstep)."""
    if has_deadline(settings):
        raise ConfigError(f"got {settings.mode!r}; wanted 'lockstep' for agents that wait", at="$.coordination.mode")
