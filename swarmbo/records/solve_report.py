"""Report of an agreement."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from swarmbo.boundary.html import html_table
from swarmbo.records.traffic import LinkReport, Traffic

Status = Literal[
    "exact",
    "converged",
    "max_rounds",
    "infeasible",
    "sequential",
    "not_needed",
    "centralised",
    "deadline",
    "blocked",
]


class SolveReport(msgspec.Struct, frozen=True):
    """Report of an agreement.

    Args:
        status: ``exact``: proved optimal. ``converged``: messages stopped changing. ``max_rounds``: they did not.
            ``infeasible``: the choice is forbidden, see ``violated``; exact methods prove it for all choices.
            ``sequential``: agents chose given earlier choices. ``not_needed``: no messages. ``centralised``: one
            process with all factors chose; no messages are counted. ``deadline``: agents acted by the messages received
            in time. ``blocked``: agents waited for a failed one; those that had not finished have no choice.
        rounds: Dependent steps of the method's own messages; parts of a graph run in parallel, and the longest counts.
            Max-sum: renewals of the variables' and then the factors' messages. Exact: tables passed up between agents,
            then choices passed down. Sequential: choices waited for. Messages before and after are counted in
            ``traffic`` only, by which methods compare.
        value: Sum of the factors at the choice; None without factors.
        gap: Upper bound on optimum minus ``value``, in the unit of the factors; None if unknown. It is 0 for ``exact``,
            or more if agents in a field returned to their sequential choices. For candidates it is a gap to the best of
            them.
        traffic: Traffic over the links.
        primal_residual: Final root-mean-square distance of the factors' copies of variables from their consensus, in
            sides of the box. It is that of the worst part and run; None for methods without copies.
        dual_residual: Last move of the consensus times the penalty's share of the natural one, in the same unit.
        polish_gain: Rise of ``value`` by polishing; None without polishing.
        violated: Factors that forbid the choice, being -inf there.
        links: Report of links; left out without faults and deadlines.

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

    @property
    def upper_bound(self) -> float | None:
        """Upper bound for the same tables, up to rounding; None if unknown, or if the choice is forbidden."""
        return None if self.gap is None or self.value is None else self.value + self.gap

    @property
    def messages(self) -> int:
        """Number of messages between different agents."""
        return self.traffic.messages

    @property
    def bytes(self) -> int:
        """Encoded size of those messages."""
        return self.traffic.bytes

    def _repr_html_(self) -> str:
        """Table of the known entries for notebooks."""
        rows = [("rounds", self.rounds), ("value", self.value), ("gap at most", self.gap)]
        rows += [("messages", self.messages), ("bytes", self.bytes), ("forbidden by", ", ".join(self.violated) or None)]
        return html_table(f"Agreement: {self.status}", [row for row in rows if row[1] is not None])
