"""Report of how an agreement was reached."""

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
    """Report of how an agreement was reached.

    Args:
        status: ``exact`` (proved optimal), ``converged`` (messages stopped changing), ``max_rounds`` (they did not),
            ``infeasible`` (what was chosen is forbidden, see ``violated``; by exact methods proved of all choices),
            ``sequential`` (agents chose in turn), ``not_needed`` (nothing was exchanged), ``centralised`` (somebody who
            has all factors in one place chose; no messages are counted), ``deadline`` (agents acted by what they had
            heard when it was time), ``blocked`` (agents that wait for one another waited for one that is gone: those
            that had not finished come out with no choice).
        rounds: Steps of the method's own exchange that wait for one another; parts of a graph run side by side, and the
            longest counts. Max-sum: renewals of the variables' and then the factors' messages. Exact: tables passed up
            between agents, then choices passed down. One agent after the other: choices waited for. What is handed over
            before or agreed and passed on after is counted in ``traffic`` only, by which methods compare.
        value: Sum of the factors at the chosen assignment; None where no factors were used.
        gap: Upper bound on optimum minus ``value``, in the unit of the factors; None where unknown. Of ``exact`` it is
            0, and above that where agents in a field went back to what they would have chosen one after the other.
            Of candidates it is a gap to the best of them.
        traffic: What crossed the links for it.
        primal_residual: How far the factors' own copies of variables were from their consensus at the end, in sides of
            the box, root mean square, in the worst part and run; None for methods without copies.
        dual_residual: How far the consensus still moved in the last round times the penalty's share of the natural one,
            in the same unit.
        polish_gain: By how much climbing from the consensus raised ``value``; None where nothing was polished.
        violated: The factors that forbid what was chosen, being -inf there.
        links: How links fared; left out where none has faults and nobody has a deadline.

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
        """Upper bound for the same tables, up to rounding; None where unknown, or the choice is forbidden."""
        return None if self.gap is None or self.value is None else self.value + self.gap

    @property
    def messages(self) -> int:
        """Messages between different agents."""
        return self.traffic.messages

    @property
    def bytes(self) -> int:
        """Encoded size of those messages."""
        return self.traffic.bytes

    def _repr_html_(self) -> str:
        """The report for notebooks, without what is not known."""
        rows = [("rounds", self.rounds), ("value", self.value), ("gap at most", self.gap)]
        rows += [("messages", self.messages), ("bytes", self.bytes), ("forbidden by", ", ".join(self.violated) or None)]
        return html_table(f"Agreement: {self.status}", [row for row in rows if row[1] is not None])
