"""Report of an agreement, and of the traffic over the links, with losses."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Literal, Self

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from swarmbo.boundary.values import html_table


class _Counts(msgspec.Struct, frozen=True):
    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Traffic(_Counts, frozen=True):
    """Traffic over the links."""

    messages: int = 0  # from one agent to another; those of an agent to itself are free
    bytes: int = 0  # their encoded size, counted once per message
    transmissions: int = 0  # by radio: a message relayed over h links counts h times


class EdgeTraffic(_Counts, frozen=True):
    """Messages of one agent to another: sent, arrived (with copies) and lost, bytes, and total steps to arrival."""

    messages: int = 0
    bytes: int = 0
    arrived: int = 0
    lost: int = 0
    steps: int = 0

    @property
    def age(self) -> float:
        """Mean steps from sending to arrival; NaN without arrivals."""
        return self.steps / self.arrived if self.arrived else math.nan


def by_name(edges: Mapping[tuple[str, str], EdgeTraffic]) -> dict[str, EdgeTraffic]:
    """Traffic by edge as in ``LinkReport``; names are quoted if one contains ``>``."""
    return {">".join(map(repr, ends) if ">" in "".join(ends) else ends): edge for ends, edge in edges.items()}


class LinkReport(msgspec.Struct, frozen=True):
    """Report of links over a transport with faults, or in an agreement by a deadline."""

    ticks: int  # steps of the clock, in each of which a message crosses one link or more
    repeated: int = 0  # bytes of repetitions, acknowledgements and the numbers of messages
    silent: tuple[str, ...] = ()  # agents that had failed or were silent at the end
    without: tuple[str, ...] = ()  # agents without a choice: they stay, or abstain
    clashes: int = 0  # pairs of variables with choices that forbid each other
    edges: dict[str, EdgeTraffic] = {}  # traffic by edge, as ``"a>b"``
    refused: dict[str, int] | UnsetType = UNSET  # messages dropped for inadmissible content, by sender

    def __add__(self, other: "LinkReport") -> "LinkReport":
        """Add counts, and join lists of agents."""
        none = EdgeTraffic()
        edges = {edge: self.edges.get(edge, none) + other.edges.get(edge, none) for edge in self.edges | other.edges}
        return LinkReport(
            ticks=self.ticks + other.ticks,
            repeated=self.repeated + other.repeated,
            silent=tuple(sorted({*self.silent, *other.silent})),
            without=tuple(sorted({*self.without, *other.without})),
            clashes=self.clashes + other.clashes,
            edges=edges,
            refused=dict(refused) if (refused := self.dropped + other.dropped) else UNSET,
        )

    @property
    def dropped(self) -> Counter[str]:
        """Number of messages with inadmissible content, by sender."""
        return Counter() if isinstance(self.refused, UnsetType) else Counter(self.refused)

    @property
    def total(self) -> EdgeTraffic:
        """Sum over all edges."""
        return sum(self.edges.values(), EdgeTraffic())


class NetworkRecord(msgspec.Struct, frozen=True):
    """Effort of a fleet's network in a round over all members; it depends on the clock, so it is not in the log."""

    round: int
    restarts: dict[str, int] = {}  # of processes, by agent
    repeated: int = 0  # messages that were sent again, as no acknowledgement arrived
    refused: int = 0  # arrivals that were not messages, or had inadmissible content
    absent: tuple[str, ...] = ()  # agents that were absent at its end


Status = Literal[
    "exact", "converged", "max_rounds", "infeasible", "sequential", "not_needed", "centralised", "deadline", "blocked"
]


class SolveReport(msgspec.Struct, frozen=True):
    """Report of an agreement.

    Args:
        status: ``exact``: proved optimal. ``converged``: messages stopped changing; ADMM: copies agree or need not.
            ``max_rounds``: messages still changed. ``infeasible``: the choice is forbidden, see ``violated``; with
            exact methods, all choices are. ``sequential``: agents chose given earlier choices. ``not_needed``: no
            message was needed. ``centralised``: one process with all factors chose; no messages are counted.
            ``deadline``: agents acted by the messages received in time. ``blocked``: agents waited for a failed one;
            those that had not finished have no choice, or on a box their best start.
        rounds: Successive steps of the method's own messages; parts of a graph run in parallel, and the longest counts.
            Max-sum: updates of the variables' and then the factors' messages. Exact: tables passed up between agents,
            then choices passed down. Sequential: choices that agents waited for. Messages before and after the method
            count in ``traffic`` only. Compare methods by ``traffic``.
        value: Sum of the factors at the choice; None without factors, and for agents that set a function's variables.
        gap: Upper bound on optimum minus ``value``, in the unit of the factors; None if unknown. It is 0 for ``exact``,
            or more if agents in a field returned to sequential choices. With candidates, the optimum is their best.
        traffic: Traffic over the links.
        primal_residual: Final root-mean-square distance of the factors' copies of variables from their consensus, in
            box widths. The largest over parts of the graph and joint starts; None for methods without copies.
        dual_residual: Last move of the consensus, in box widths, times the penalty over the natural penalty.
        polish_gain: Rise of ``value`` by polishing; None without polishing.
        violated: Factors that forbid the choice: their value is -inf.
        links: Report of links; absent without faults and deadlines.
        stayed: Setting asked again, as the model finds no other safe setting (``safe`` of a team); otherwise absent.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> tables = dict.fromkeys(graph.factors, np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> reports = [method.solve(graph, tables).report for method in (sb.Exact(), sb.MaxSum())]
        >>> [(report.status, report.value, report.gap) for report in reports], reports[0].bytes < reports[1].bytes
        ([('exact', 2.0, 0.0), ('exact', 2.0, 0.0)], True)
    """

    status: Status
    rounds: int = 0
    value: float | None = None
    gap: float | None = None
    traffic: Traffic = Traffic()
    primal_residual: float | None = None
    dual_residual: float | None = None
    polish_gain: float | None = None
    violated: tuple[str, ...] = ()
    links: LinkReport | UnsetType = UNSET
    stayed: Literal["best", "present"] | UnsetType = UNSET

    @property
    def upper_bound(self) -> float | None:
        """Upper bound on the tables' optimum, up to rounding; None if unknown, or if the choice is forbidden."""
        return None if self.gap is None or self.value is None else self.value + self.gap

    @property
    def messages(self) -> int:
        """Number of messages between different agents."""
        return self.traffic.messages

    @property
    def bytes(self) -> int:
        """Encoded size of the messages between different agents."""
        return self.traffic.bytes

    def _repr_html_(self) -> str:
        rows = [("rounds", self.rounds), ("value", self.value), ("gap at most", self.gap)]
        rows += [("messages", self.messages), ("bytes", self.bytes), ("forbidden by", ", ".join(self.violated) or None)]
        return html_table(f"Agreement: {self.status}", [row for row in rows if row[1] is not None])
