"""Agents that agree by a deadline, ticked by one simulated clock over a transport in this process."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import Solution
from swarmbo.coordination.asynchronous import Punctual, Terms
from swarmbo.coordination.claims import Claims
from swarmbo.coordination.tables import checked_tables, sizes_of, total
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.records import LinkReport, SolveReport
from swarmbo.transport import FaultyTransport, InProcessTransport, Routes, Transport


@runtime_checkable
class Timed(Protocol):
    """Settings of an agreement by a deadline, if that is the mode: those of ``MaxSum(…)``; see there."""

    @property
    def mode(self) -> Literal["lockstep", "asynchronous"]: ...  # noqa: D102

    @property
    def deadline(self) -> int: ...  # noqa: D102

    @property
    def patience(self) -> int: ...  # noqa: D102

    @property
    def threshold(self) -> float: ...  # noqa: D102

    @property
    def damping(self) -> float: ...  # noqa: D102


def has_deadline(settings: object) -> TypeGuard[Timed]:
    """Whether settings are of a way to agree by a deadline."""
    return isinstance(settings, Timed) and settings.mode == "asynchronous"


class Settled(NamedTuple):
    """What agents do at the deadline.

    Args:
        said: Without variables whose owner is gone, or found no value that is certain to be allowed.
        solution: With the value that messages speak for in place of those.
    """

    said: Solution
    solution: Solution


def agree_by_deadline(
    settings: Timed,
    graph: FactorGraph,
    tables: Mapping[str, ArrayLike],
    transport: Transport,
    decision: int = 0,
    *,
    default: Mapping[str, int] | None = None,
) -> Settled:
    """Let one agent per owner agree by real messages, until all act at the same tick.

    Agents that no links join say nothing to each other. One that is gone at any time takes no part from then on.

    Args:
        settings: How.
        graph: Scopes and owners.
        tables: One array per factor, axes in scope order; each is given to the factor's owner only. Which pairs of
            values they forbid all know beforehand.
        transport: Opened for at least the graph's agents.
        decision: Its number, 0 to 2^32 - 1.
        default: Of variables that have one, the value that stands for doing nothing: a silent agent's.

    Raises:
        ShapeError: If the tables do not fit the graph.

    Example:
        >>> from swarmbo.coordination import MaxSum
        >>> from swarmbo.transport import Faults
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> apart = np.where(np.eye(3), -np.inf, np.arange(3.0)[:, None])  # neighbours must differ
        >>> transport = Faults(loss=0.3, delay=2).open(graph.agents)
        >>> settled = agree_by_deadline(MaxSum(deadline=20), graph, {"f": apart, "g": apart}, transport)
        >>> settled.said.assignment, settled.said.report.status, settled.said.report.links.clashes
        ({'x': 1, 'y': 2, 'z': 0}, 'deadline', 0)
    """
    checked = checked_tables(graph, tables)
    claims = Claims.of(graph, checked)
    terms = Terms(
        graph,
        sizes_of(graph, checked),
        claims,
        settings.deadline,
        settings.patience,
        settings.threshold,
        settings.damping,
        default or {},
    )
    agents = {
        name: Punctual(name, terms, {f: checked[f] for f in graph.factors_owned_by(name)}, decision)
        for name in graph.agents
    }
    living = _ticked(agents, terms.deadline, transport)
    said = {x: value for name in living for x, value in agents[name].word().items()}
    words = {x: said.get(x) for x in graph.variables}
    unheard = {other for name in living for other in agents[name].unheard}
    idle = {graph.variable_owner(x) for x, value in words.items() if value is None}
    edges = transport.edges if isinstance(transport, InProcessTransport) else {}
    links = LinkReport(
        ticks=terms.deadline,
        silent=tuple(name for name in graph.agents if name in unheard or name not in living),
        without=tuple(name for name in graph.agents if name in idle),
        clashes=claims.clashes(words),
        edges={f"{sender}>{recipient}": edge for (sender, recipient), edge in edges.items()},
    )
    report = SolveReport("deadline", terms.deadline, traffic=transport.traffic, links=links)
    guessed = {x: agents[graph.variable_owner(x)].best_guess(x) for x, value in words.items() if value is None}
    done = {x: value for x, value in words.items() if value is not None}
    whole = {x: guessed[x] if value is None else value for x, value in words.items()}
    return Settled(_judged(graph, checked, done, report), _judged(graph, checked, whole, report))


def _ticked(agents: Mapping[str, Punctual], deadline: int, transport: Transport) -> tuple[str, ...]:
    """Tick them until the deadline; who was there all the time."""
    living = set(agents)
    reached = {(a, b) for a in agents for b in agents if _reaches(transport.routes, a, b)}
    inboxes = {}
    for now in range(deadline + 1):
        if isinstance(transport, FaultyTransport):
            living = {name for name in living if not transport.is_gone(name)}
        for name, agent in agents.items():
            if name in living:
                for envelope in agent.tick(now, inboxes.get(name, ())):
                    if (envelope.sender, envelope.recipient) in reached:
                        transport.send(envelope)
        inboxes = transport.deliver() if now < deadline else {}
    return tuple(name for name in agents if name in living)


def _reaches(routes: Routes, sender: str, recipient: str) -> bool:
    try:
        return routes.hops(sender, recipient) > 0
    except TransportError:
        return False


def _judged(
    graph: FactorGraph, tables: Mapping[str, np.ndarray], chosen: Mapping[str, int], report: SolveReport
) -> Solution:
    """What is done, with its value, where every variable has one, and the factors that forbid it."""
    whole = [f for f in graph.factors if all(x in chosen for x in graph.scope(f))]
    values = np.array([tables[f][tuple(chosen[x] for x in graph.scope(f))] for f in whole])
    broken = tuple(f for f, value in zip(whole, values, strict=True) if value == -np.inf)
    value = total(values) if len(whole) == len(graph.factors) else None
    status = "infeasible" if broken else report.status
    judged = SolveReport(status, report.rounds, value, traffic=report.traffic, violated=broken, links=report.links)
    return Solution(dict(chosen), -np.inf if value is None else value, None, judged)
