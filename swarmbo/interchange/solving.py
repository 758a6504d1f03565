"""Solution of a problem in tables, by a method and over a transport that settings name."""

from collections.abc import Mapping, Sequence
from typing import Any

from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.coordination.plan import TableMethod, traced
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import TableProblem
from swarmbo.interchange.solved import Solved
from swarmbo.registry import FIELD, kinds, nearest_kind, settings_of
from swarmbo.settings import convert
from swarmbo.transport import Faults, InProcess


def solve_problem(
    problem: TableProblem,
    coordination: Mapping[str, Any],
    seed: int = 0,
    transport: Mapping[str, Any] | None = None,
    *,
    needs_trace: bool = False,
) -> Solved:
    """Choose values for all variables by the ``kind`` and other settings of a method for tables.

    With a ``transport`` agents exchange encoded messages over it; its ``kind`` is ``faulty`` unless said. Rounds are
    traced without one, and without a deadline.

    Raises:
        ConfigError: If there is no such method or setting, or a trace is needed that there is not.
        BudgetError: If an exact method would exceed its budget.
    """
    method, graph = method_of(coordination), problem.graph
    if needs_trace and (transport or has_deadline(method)):
        got = "transport settings" if transport else "mode 'asynchronous'"
        raise ConfigError(f"got {got}, with which no round is traced; wanted neither", at="--trace, --figure")
    if not transport and not has_deadline(method):
        return Solved(problem, method, seed, *traced(method, graph, problem.tables, seed=seed))
    links = transport_of(transport or {}, graph.agents)
    unhindered = method.solve(graph, problem.tables, seed=seed).value if isinstance(links, Faults) else None
    carrier = links.open(graph.agents, seed=seed)
    solution = solve_with_agents(method, graph, problem.tables, carrier, seed=seed)
    return Solved(problem, method, seed, solution, transport=links, unhindered=unhindered)


def method_of(coordination: Mapping[str, Any]) -> TableMethod:
    """Method for tables of a ``kind`` and its settings; a few names of pyDCOP are taken for the kind."""
    known, kind = table_methods(), coordination.get("kind")
    if kind not in known:
        near = nearest_kind(str(kind), list(known))
        if near is None or (near.replace("-", "") != str(kind).replace("-", "") and kind != "dpop"):
            hint = "" if near is None else f"; did you mean {near!r}?"
            raise ConfigError(f"got {kind!r}; wanted one of {', '.join(known)}{hint}", at="$.coordination.kind")
        kind = near
    return convert({**coordination, "kind": kind}, known[kind], "$.coordination")


def transport_of(settings: Mapping[str, Any], agents: Sequence[str]) -> Faults | InProcess:
    """Transport of some settings, whose events are in round 0, the only one."""
    plain = dict(settings)
    for key in ("deaths", "joins"):
        if isinstance(events := plain.get(key), list):
            plain[key] = [{"round": 0, **event} if isinstance(event, Mapping) else event for event in events]
    is_faulty = not set(plain) <= {"kind", "as_agents"}
    transport = settings_of("transport", {"kind": "faulty" if is_faulty else "in-process", **plain}, "$.transport")
    if isinstance(transport, Faults) and (strangers := sorted(transport.named - set(agents))):
        raise ConfigError(f"got {strangers[0]!r}; wanted some of {', '.join(agents)}", at="$.transport")
    if isinstance(transport, Faults):
        rounds = [(event.agent, event.round) for event in (*transport.deaths, *transport.joins)]
        rounds += [("a cut", cut.rounds[0]) for cut in transport.cuts if cut.rounds is not None]
        if late := [f"round {number} of {what}" for what, number in rounds if number > 0]:
            raise ConfigError(f"got {late[0]}; wanted round 0, the only one, and a step of it", at="$.transport")
    return transport


def table_methods() -> dict[str, type[TableMethod]]:
    """Coordination methods for tables, by name."""
    return {name: known for name, known in kinds("coordination", FIELD).items() if issubclass(known, TableMethod)}
