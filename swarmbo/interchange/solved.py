"""Solution of a problem of a file, in the file's own sense."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table as RichTable

from swarmbo.boundary.files import replacing
from swarmbo.coordination.agreement import Solution
from swarmbo.coordination.plan import TableMethod, TraceRow, traced
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import TableProblem
from swarmbo.interchange.uai import uai_solution
from swarmbo.registry import FIELD, kinds, name_of, nearest_kind
from swarmbo.settings import convert

_MOST_SHOWN = 24  # variables on a terminal


@dataclass(frozen=True, eq=False)
class Solved:
    """Solution of a problem."""

    problem: TableProblem
    method: TableMethod
    seed: int
    solution: Solution
    trace: tuple[TraceRow, ...]

    def summary(self) -> dict[str, Any]:
        """Complete summary, in the file's own sense; None for unknown and infinite values."""
        problem, report = self.problem, self.solution.report
        told = {"value": self.solution.value, "bound": self.solution.upper_bound}
        settings = {key: value for key, value in msgspec.to_builtins(self.method).items() if value is not None}
        return {
            "problem": problem.name,
            "objective": problem.objective,
            "variables": len(problem.graph.variables),
            "factors": len(problem.graph.factors),
            "agents": len(problem.graph.agents),
            "entries": problem.n_entries,
            "coordination": settings,
            "seed": self.seed,
            "status": report.status,
            **{key: None if number is None else problem.told(number) for key, number in told.items()},
            "gap": report.gap,
            "violated": list(report.violated),
            "rounds": report.rounds,
            "messages": report.messages,
            "bytes": report.bytes,
            "transmissions": report.traffic.transmissions,
            "notes": list(problem.notes),
            "assignment": problem.chosen(self.solution.assignment),
        }

    def json(self) -> str:
        """The summary as JSON; numbers that are not finite are null."""
        return msgspec.json.format(msgspec.json.encode(self.summary()), indent=2).decode()

    def table(self) -> RichTable:
        """The summary for a terminal."""
        problem, solution, report = self.problem, self.solution, self.solution.report
        is_cost, graph = problem.objective == "min", problem.graph
        table = RichTable(title=problem.name, show_header=False, title_justify="left")
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        sizes = (len(graph.variables), "variable"), (len(graph.factors), "factor"), (len(graph.agents), "agent")
        counts = ", ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in sizes)
        table.add_row("problem", f"{counts}, {problem.n_entries:,} entries")
        table.add_row("coordination", f"{name_of(self.method)}, seed {self.seed}")
        table.add_row("status", report.status)
        if report.violated:
            table.add_row("forbidden by", _shortened(report.violated))
        else:
            table.add_row("cost" if is_cost else "value", f"{problem.told(solution.value):,.6g}")
        if solution.upper_bound is not None:
            gap = "" if report.gap is None else f"; gap {report.gap:,.4g}"
            none = "every choice is forbidden" if solution.upper_bound == -float("inf") else None
            bound = none or f"{problem.told(solution.upper_bound):,.6g}{gap}"
            table.add_row("no cost is below" if is_cost else "no value is above", bound)
        table.add_row("rounds", f"{report.rounds:,}")
        size = f"{report.bytes / 1000:,.1f} kB" if report.bytes >= 1000 else f"{report.bytes} bytes"
        table.add_row("messages to agree", f"{report.messages:,} ({size})" if report.messages else "none")
        chosen = [f"{variable} {value}" for variable, value in problem.chosen(solution.assignment).items()]
        table.add_row("choice", _shortened(chosen))
        return table

    def write(self, path: Path) -> Path:
        """Write the solution completely or not at all: in UAI's format for ``.MPE`` or ``.MAP``, else as JSON."""
        is_uai = path.suffix.lower() in (".mpe", ".map")
        return _written(path, uai_solution(self.solution.assignment) if is_uai else self.json() + "\n")

    def write_trace(self, path: Path) -> Path:
        """Write the trace as CSV, a row a round, in the file's own sense; unknown values are empty."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["round", "value", "bound", "messages", "bytes"])
        for row in self.trace:
            told = ["" if number is None else repr(self.problem.told(number)) for number in (row.value, row.bound)]
            rows.writerow([row.round, *told, row.traffic.messages, row.traffic.bytes])
        return _written(path, text.getvalue())


def solve_problem(problem: TableProblem, coordination: Mapping[str, Any], seed: int = 0) -> Solved:
    """Choose values for all variables by the ``kind`` and other settings of a method for tables. A ConfigError if there
    is no such method or setting, a BudgetError if an exact method would exceed its budget.
    """
    known, kind = table_methods(), coordination.get("kind")
    if kind not in known:
        near = nearest_kind(str(kind), list(known))
        if near is None or (near.replace("-", "") != str(kind).replace("-", "") and kind != "dpop"):
            hint = "" if near is None else f"; did you mean {near!r}?"
            raise ConfigError(f"got {kind!r}; wanted one of {', '.join(known)}{hint}", at="$.coordination.kind")
        kind = near  # pyDCOP's name for it
    if strange := [key for key in coordination if key.partition(".")[0] == "transport"]:
        wanted = "wanted a scenario with a transport that loses some, or settings of the method alone"
        got = f"got {strange[0]!r}, but in `solve` every message arrives"
        raise ConfigError(f"{got}; {wanted}", at="$.coordination")
    method: TableMethod = convert({**coordination, "kind": kind}, known[kind], "$.coordination")
    return Solved(problem, method, seed, *traced(method, problem.graph, problem.tables, seed=seed))


def table_methods() -> dict[str, type[TableMethod]]:
    """Coordination methods for tables, by name."""
    return {name: known for name, known in kinds("coordination", FIELD).items() if issubclass(known, TableMethod)}


def _shortened(words: "tuple[str, ...] | list[str]") -> str:
    shown = words if len(words) <= _MOST_SHOWN else words[: _MOST_SHOWN - 1]
    return ", ".join(shown) + (f", … {len(words)} in all" if len(shown) < len(words) else "")


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())
    return path
