"""Solution of a problem in tables, by a method and over a transport from settings; costs or values as in its file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from rich.table import Table as RichTable

from swarmbo import registry
from swarmbo.boundary import files, values
from swarmbo.coordination import plan
from swarmbo.coordination.agreement import Solution, decided_factors
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.coordination.tables import factor_values
from swarmbo.errors import ConfigError
from swarmbo.interchange.networks import uai_solution
from swarmbo.interchange.problem import TableProblem
from swarmbo.settings import convert
from swarmbo.transport import Carrying, Faults

_MOST_SHOWN = 24  # variables on a terminal


@dataclass(frozen=True, eq=False)
class Solved:
    """Solution of a problem; ``unhindered`` is its value without faults. No ``transport``: one process, or a fleet."""

    problem: TableProblem
    method: plan.TableMethod
    seed: int
    solution: Solution
    trace: tuple[plan.TraceRow, ...] = ()
    transport: Carrying | None = None
    unhindered: float | None = None

    @property
    def undecided(self) -> list[str]:
        """Variables without a value."""
        return [x for x in self.problem.graph.variables if x not in self.solution.assignment]

    @property
    def is_valid(self) -> bool:
        """True if every variable has a value, no factor forbids them, and the cost is below the upper bound."""
        return not (self.undecided or self.solution.report.violated or self._is_above)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the problem, and on a cost that reaches its upper bound."""
        above = f"the cost reaches the file's upper bound, {self.problem.upper:,.15g}: it is no solution"
        return (*self.problem.notes, *([above] if self._is_above else []))

    @property
    def _is_above(self) -> bool:
        return not self.undecided and self.problem.upper <= self.problem.told(self.solution.value) < np.inf

    def summary(self) -> dict[str, Any]:
        """Complete summary, with costs or values as in the file; None for unknown values."""
        problem, report = self.problem, self.solution.report
        results = {"value": self.solution.value, "bound": self.solution.upper_bound}
        settings = {key: value for key, value in msgspec.to_builtins(self.method).items() if value is not None}
        more: dict[str, Any] = {}
        if self.transport is not None:
            more["transport"] = msgspec.to_builtins(self.transport)
        if self.unhindered is not None:
            more["value_without_faults"] = problem.told(self.unhindered)
        if report.links is not UNSET:
            lost = {"lost": report.links.total.lost} if report.links.edges else {}  # a fleet does not count them
            more["links"] = {**msgspec.to_builtins(report.links), **lost}
        return {
            "problem": problem.name,
            "objective": problem.objective,
            "variables": len(problem.graph.variables),
            "factors": len(problem.graph.factors),
            "agents": len(problem.graph.agents) + len(problem.idle),
            "own_nothing": list(problem.idle),
            "entries": problem.n_entries,
            "coordination": settings,
            "seed": self.seed,
            "status": report.status,
            "valid": self.is_valid,
            **{key: None if number is None else problem.told(number) for key, number in results.items()},
            "gap": report.gap,
            "violated": list(report.violated),
            "undecided": self.undecided,
            "rounds": report.rounds,
            "messages": report.messages,
            "bytes": report.bytes,
            "transmissions": report.traffic.transmissions,
            **more,
            "notes": list(self.notes),
            "assignment": problem.chosen(self.solution.assignment),
        }

    def json(self) -> str:
        """The summary as JSON; numbers that are not finite are null."""
        return msgspec.json.format(msgspec.json.encode(self.summary()), indent=2).decode()

    def table(self) -> RichTable:
        """The summary for a terminal."""
        table = RichTable(title=self.problem.name, show_header=False, title_justify="left")
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> Iterator[tuple[str, str]]:
        problem, graph, report = self.problem, self.problem.graph, self.solution.report
        n_agents = len(graph.agents) + len(problem.idle)
        sizes = (len(graph.variables), "variable"), (len(graph.factors), "factor"), (n_agents, "agent")
        counts = ", ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in sizes)
        yield "problem", f"{counts}, {problem.n_entries:,} entries"
        if problem.idle:
            yield "agents that own nothing", _shortened(problem.idle)
        yield "coordination", f"{registry.name_of(self.method)}, seed {self.seed}"
        goes_on = ": an agent failed; with max-sum and mode=asynchronous the others choose without it"
        yield "status", report.status + (goes_on if report.status == "blocked" else "")
        yield "valid", "yes" if self.is_valid else "no: cost too high" if self._is_above else "no"
        yield from self._value_rows()
        yield "rounds", f"{report.rounds:,}"
        size = f"{report.bytes / 1000:,.1f} kB" if report.bytes >= 1000 else f"{report.bytes} bytes"
        yield "messages to agree", f"{report.messages:,} ({size})" if report.messages else "none"
        if report.links is not UNSET and report.links.silent:
            yield "failed agents", _shortened(report.links.silent)
        if report.links is not UNSET and report.links.edges:
            yield "lost messages", f"{report.links.total.lost:,} in {report.links.ticks:,} steps"
        chosen = [f"{variable} {value}" for variable, value in problem.chosen(self.solution.assignment).items()]
        yield "choice", _shortened(chosen)

    def _value_rows(self) -> Iterator[tuple[str, str]]:
        problem, solution, report = self.problem, self.solution, self.solution.report
        noun = "cost" if problem.objective == "min" else "value"
        if self.undecided:
            yield "without a value", _shortened(self.undecided)
            if decided := decided_factors(problem.graph, solution.assignment):
                known = factor_values(problem.graph.of(decided), problem.tables, solution.assignment).sum()
                yield f"{noun} of the other factors", f"{problem.told(known):,.6g}"
        elif not report.violated:
            yield noun, f"{problem.told(solution.value):,.6g}"
        if report.violated:
            yield "forbidden by", _shortened(report.violated)
        if self.unhindered is not None:
            yield f"{noun} without faults", f"{problem.told(self.unhindered):,.6g}"
        if solution.upper_bound is not None:
            gap = "" if report.gap is None else f"; gap {report.gap:,.4g}"
            is_hopeless = solution.upper_bound == -np.inf
            bound = "every choice is forbidden" if is_hopeless else f"{problem.told(solution.upper_bound):,.6g}{gap}"
            yield "no cost is below" if noun == "cost" else "no value is above", bound

    def write(self, path: Path) -> Path:
        """Write the solution completely or not at all: in UAI's format for ``.MPE`` or ``.MAP``, else as JSON."""
        is_uai = path.suffix.lower() in (".mpe", ".map")
        if is_uai and self.undecided:
            got = f"got no value of {self.undecided[0]!r}"
            raise ConfigError(f"{got}; wanted JSON, as not all agents chose", at=str(path))
        text = uai_solution(self.solution.assignment) if is_uai else self.json() + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            file.write(text.encode())
        return path

    def write_trace(self, path: Path) -> Path:
        """Write the trace as CSV with pyDCOP's columns, ``value`` (infinite if a factor forbids) and ``bound``, as
        costs if the file has costs. Unknown values are empty, as is ``time``, so that equal runs are equal files.
        """
        names = ("cycle", "time", "cost", "violation", "msg_count", "msg_size", "status", "value", "bound")
        rows: list[tuple[object, ...]] = [names]
        for row in self.trace:
            broken, kept = row.rank
            cost, *told = ["" if x is None else repr(self.problem.told(x)) for x in (kept, row.value, row.bound)]
            status = "FINISHED" if row is self.trace[-1] else "RUNNING"
            rows.append((row.round, "", cost, -broken, row.traffic.messages, row.traffic.bytes, status, *told))
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_rows(path, rows)
        return path


def solve_problem(
    problem: TableProblem,
    coordination: Mapping[str, Any],
    seed: int = 0,
    transport: Mapping[str, Any] | None = None,
    *,
    needs_trace: bool = False,
) -> Solved:
    """Choose values for all variables by the ``kind`` and other settings of a method for tables.

    With a ``transport``, agents exchange encoded messages over it. Its default ``kind`` is ``faulty``, or with
    ``as_agents`` alone ``in-process``. Rounds are traced only without a transport and without a deadline.

    Raises:
        ConfigError: If there is no such method or setting, or a trace is needed where no round is traced.
        BudgetError: If an exact method would exceed its budget.
    """
    method, graph = method_of(coordination), problem.graph
    seed = values.whole_number(seed, 0, "$.seed")  # a method that draws nothing does not check it
    if needs_trace and (transport or plan.has_deadline(method)):
        got = "transport settings" if transport else "mode 'asynchronous'"
        raise ConfigError(f"got {got}, with which no round is traced; wanted neither", at="--trace, --figure")
    if not transport and not plan.has_deadline(method):
        return Solved(problem, method, seed, *plan.traced(method, graph, problem.tables, seed=seed))
    links = transport_of(transport or {}, graph.agents)
    unhindered = method.solve(graph, problem.tables, seed=seed).value if isinstance(links, Faults) else None
    solution = solve_with_agents(method, graph, problem.tables, links.open(graph.agents, seed=seed), seed=seed)
    return Solved(problem, method, seed, solution, transport=links, unhindered=unhindered)


def method_of(coordination: Mapping[str, Any]) -> plan.TableMethod:
    """Method for tables from its ``kind`` and settings; some names of pyDCOP are accepted as kinds."""
    kinds = registry.kinds("coordination", registry.FIELD).items()
    known = {name: kind for name, kind in kinds if issubclass(kind, plan.TableMethod)}
    given = values.table(coordination, "{'kind': name}", "$.coordination")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in known:
        near = registry.nearest_kind(str(kind), list(known))
        if near is None or (near.replace("-", "") != str(kind).replace("-", "") and kind != "dpop"):
            hint = "" if near is None else f"; did you mean {near!r}?"
            raise ConfigError(f"got {kind!r}; wanted one of {', '.join(known)}{hint}", at="$.coordination.kind")
        kind = near
    return convert({**given, "kind": kind}, known[kind], "$.coordination")


def transport_of(settings: Mapping[str, Any], agents: Sequence[str]) -> Carrying:
    """Transport from its settings; all events are in round 0, the only round."""
    plain = values.table(settings, "{'loss': share}", "$.transport")
    for key in ("deaths", "joins"):
        if isinstance(events := plain.get(key), list):
            plain[key] = [{"round": 0, **event} if isinstance(event, Mapping) else event for event in events]
    kind = "in-process" if set(plain) <= {"kind", "as_agents"} else "faulty"
    transport = registry.settings_of("transport", {"kind": kind, **plain}, "$.transport")
    if isinstance(transport, Faults) and (strangers := sorted(transport.named - set(agents))):
        raise ConfigError(f"got {strangers[0]!r}; wanted some of {', '.join(agents)}", at="$.transport")
    if isinstance(transport, Faults):
        rounds = [(event.agent, event.round) for event in (*transport.deaths, *transport.joins)]
        rounds += [("a cut", cut.rounds[0]) for cut in transport.cuts if cut.rounds is not None]
        if late := [f"round {number} of {what}" for what, number in rounds if number > 0]:
            raise ConfigError(f"got {late[0]}; wanted round 0, the only one, and a step of it", at="$.transport")
    return transport


def _shortened(words: Sequence[str]) -> str:
    shown = words if len(words) <= _MOST_SHOWN else words[: _MOST_SHOWN - 1]
    return ", ".join(shown) + (f", … {len(words)} in all" if len(shown) < len(words) else "")
