"""Bases of methods: settings that solve in one process, and a plan that every agent works out for itself.

To add a method, write its settings as a :class:`TableMethod` or a :class:`BoxMethod` with ``steps``: a generator over
requests that does what one agent does for the factors and variables of its view. Both forms follow from it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import (
    Agreement,
    BoxOutcome,
    Solution,
    TableOutcome,
    agreement_of,
    solution_of,
)
from swarmbo.coordination.certificates import BOUND_ROUNDS, Bound, upper_bound
from swarmbo.coordination.drivers.by_messages import ByMessages, Post, Waiting
from swarmbo.coordination.drivers.central import Central, Watcher, side_by_side
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.schema import Schema
from swarmbo.coordination.tables import Table, checked_tables, sizes_of
from swarmbo.coordination.view import BoxView, LocalView
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.settings import Count, Settings
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx

Own = TypeVar("Own")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)
class Plan(Generic[Own, Out]):
    """A plan that every agent knows before they agree: scopes, owners, who relays to whom. No table, no function's
    value.

    Args:
        parts: They agree independently of one another.
        steps: What whoever sees some factors and variables of a part does, with the tables or functions of the factors.
        sizes: Number of values by variable; none on a box.
        joined: In an elimination, the variables that the step of each is joined with.
    """

    parts: tuple[Part, ...]
    steps: Callable[[LocalView, Own], Steps[Out]]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def programs(self, agent: str, own: Own, post: Post) -> Iterable[Waiting[Out]]:
        """Programs of one agent by messages, one for each part that it takes part in.

        Args:
            agent: Its name.
            own: Tables or functions of the factors that it owns, and no others.
            post: Posts a message to an agent, itself included.
        """
        for part in self.parts:
            if agent in part.graph.agents:
                schema = Schema(part, self.sizes, self.joined)
                yield ByMessages(part, agent, post, schema).program(self.steps(LocalView.of(part, agent), own))

    def central_driver(self, own: Own) -> tuple[list[Out], Traffic]:
        """Outcomes of all agents, worked out in this process, and the traffic that they would have had.

        Args:
            own: Tables or functions of all factors.
        """
        outcomes, traffics = self.by_part(own)
        return outcomes, sum(traffics, Traffic())

    def by_part(self, own: Own, watchers: Sequence[Watcher] | None = None) -> tuple[list[Out], list[Traffic]]:
        """The same, part by part.

        Args:
            own: Tables or functions of all factors.
            watchers: One for each part, who is told how far it is; None: nobody.
        """
        watching = watchers or [None] * len(self.parts)
        centrals = [Central(part, watcher) for part, watcher in zip(self.parts, watching, strict=True)]
        outcomes = side_by_side([(central, self.steps(LocalView.of(central.part), own)) for central in centrals])
        return outcomes, [central.traffic for central in centrals]


class TableMethod(Settings, frozen=True, tag_field="kind"):
    """A way to choose from tables. A subclass says what one agent does: ``steps``.

    Args:
        bound: What agents work out, when they have agreed, of how good any choice from the tables can be: the report's
            ``upper_bound`` and ``gap``. ``"mplp"`` (``swarmbo.coordination.certificates``); None: nothing, but where a
            part is solved exactly, its value is its bound.
        bound_rounds: Its rounds, >= 1; None: 20.
    """

    bound: Bound | None = None
    bound_rounds: Count | None = None

    def steps(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int], /) -> Steps[TableOutcome]:
        """Steps of whoever sees some factors and variables of a connected part.

        Args:
            view: The own factors and variables.
            tables: Of at least the own factors; no others are to be looked at.
            sizes: Number of values by variable.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks a program for agents")

    def certified(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        """The outcome of :meth:`steps`, and then the part's bound, if one is asked for and not known already."""
        outcome = (yield from self.steps(view, tables, sizes))._replace(part=view.part.index)
        if self.bound is None or outcome.status == "exact":
            return outcome
        found = yield from upper_bound(view, tables, sizes, self.bound_rounds or BOUND_ROUNDS)
        return outcome._replace(bound=found)

    def plan(
        self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes, seed: int = 0
    ) -> Plan[Mapping[str, Table], TableOutcome]:
        """The plan that every agent works out for itself.

        Args:
            graph: Scopes and owners.
            sizes: Number of values by variable.
            routes: Who reaches whom.
            seed: Of what agents draw, which all can draw for themselves.

        Raises:
            BudgetError: If an exact method would exceed its budget.
        """
        parts = tuple(Part(part, i, routes, seed) for i, part in enumerate(graph.components))
        return Plan(parts, lambda view, tables: self.certified(view, tables, sizes), sizes)

    def solve(
        self,
        graph: "FactorGraph | nx.Graph[Any]",
        tables: "Mapping[Any, ArrayLike] | None" = None,
        links: "nx.Graph[Any] | None" = None,
        seed: int = 0,
    ) -> Solution:
        """Solve in this process, and report the traffic that the agents would have had.

        Args:
            graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
            tables: One array per factor, axes in scope order; -inf forbids a combination. None: those that edges and
                nodes of a networkx graph have.
            links: Radio graph of the agents; None: everyone hears everyone.
            seed: Of what agents draw, where the method has them draw.

        Returns:
            The best joint choice found: of forbidden ones that which fewest factors forbid. If it is forbidden, its
            value is -inf, the report's status ``infeasible``, and its ``violated`` names the factors that forbid it;
            only exact methods prove by that that none is allowed.

        Raises:
            ShapeError: If the tables do not fit the graph.
            BudgetError: If an exact method would exceed its budget.
            TransportError: If agents that must talk are not connected by links.
        """
        graph, tables = FactorGraph.with_tables(graph, tables)
        checked = checked_tables(graph, tables)
        plan = self.plan(graph, sizes_of(graph, checked), Routes(graph.agents, links), seed)
        return solution_of(graph, checked, *plan.central_driver(checked))


class BoxMethod(Settings, frozen=True, tag_field="kind"):
    """A way to agree on a joint point of a box. A subclass says what one agent does: ``steps``."""

    def steps(self, view: BoxView, seed: int, /) -> Steps[BoxOutcome]:
        """Steps of whoever sees some factors and variables of a part.

        Args:
            view: The own factors and variables, with functions of at least the own factors.
            seed: Of what agents draw.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks a program for agents")

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int = 0) -> Plan[LocalFunctions, BoxOutcome]:
        """The plan that every agent works out for itself; no function is asked for a value.

        Args:
            functions: For the graph, the box and the starts, which everyone knows.
            routes: Who reaches whom.
            seed: Of what agents draw, which all can draw for themselves.

        Raises:
            BudgetError: If a method that tabulates would exceed its budget.
        """
        parts = tuple(Part(part, i, routes) for i, part in enumerate(functions.graph.components))
        return Plan(parts, lambda view, own: self.steps(BoxView.on(view, own), seed))

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0) -> Agreement:
        """Agree in this process, and report the traffic that the agents would have had.

        Args:
            functions: What to maximise in sum.
            links: Radio graph of the agents; None: everyone hears everyone.
            seed: Of what agents draw.

        Returns:
            The best joint point found. Residuals in its report are those of the part and run that were worst.

        Raises:
            BudgetError: If a method that tabulates would exceed its budget.
            ShapeError: If a function's value is NaN or +inf where it is tabulated.
            TransportError: If agents that must talk are not connected by links.
        """
        plan = self.plan(functions, Routes(functions.graph.agents, links), seed)
        return agreement_of(functions.graph, *plan.central_driver(functions))
