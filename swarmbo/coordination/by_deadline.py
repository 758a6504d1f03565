"""Agents that agree by a deadline, ticked by one simulated clock over a transport in this process."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import Agreement, Solution
from swarmbo.coordination.asynchronous import Punctual, Terms
from swarmbo.coordination.asynchronous_box import PunctualInBox
from swarmbo.coordination.box_terms import BoxTerms, Climbs
from swarmbo.coordination.claims import Claims
from swarmbo.coordination.correspondent import Correspondent, Paced
from swarmbo.coordination.local_functions import LocalFunctions, by_factor, exchange
from swarmbo.coordination.tables import checked_tables, sizes_of, total, violated
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.records import LinkReport, SolveReport, by_name
from swarmbo.transport import FaultyTransport, InProcessTransport, Transport

if TYPE_CHECKING:
    import networkx as nx


@runtime_checkable
class Timed(Paced, Protocol):
    """Settings of an agreement by a deadline, if that is the mode: ``MaxSum(…)`` and ``ADMM(…)`` have them."""

    @property
    def mode(self) -> Literal["lockstep", "asynchronous"]: ...  # noqa: D102


@runtime_checkable
class TimedTables(Timed, Protocol):
    """Those of an agreement on tables."""

    @property
    def damping(self) -> float: ...  # noqa: D102


@runtime_checkable
class TimedClimbs(Timed, Climbs, Protocol):
    """Those of an agreement on a joint point."""


def has_deadline(settings: object) -> bool:
    """Whether settings are of a way to agree by a deadline."""
    return isinstance(settings, Timed) and settings.mode == "asynchronous"


def require_lockstep(settings: Timed) -> None:
    """Refuse to plan for agents that wait where they do not.

    Raises:
        ConfigError: If the mode is another than lockstep.
    """
    if settings.mode != "lockstep":
        raise ConfigError(f"got {settings.mode!r}; wanted 'lockstep' for agents that wait", at="$.coordination.mode")


def terms_of(
    settings: TimedTables, sizes: Mapping[str, int], claims: Claims, default: Mapping[str, int], seed: int
) -> Terms:
    """What every agent knows before an agreement by a deadline on tables.

    Args:
        settings: How.
        sizes: Number of values by variable.
        claims: Which values forbid each other.
        default: Of variables that have one, the value that stands for doing nothing.
        seed: Of what agents draw.
    """
    paced = settings.deadline, settings.patience, settings.threshold
    return Terms(claims.graph, sizes, claims, *paced, settings.damping, default, seed)


class Settled(NamedTuple):
    """What agents do at the deadline.

    Args:
        said: Without variables whose owner is gone, or found no value that is certain to be allowed.
        solution: With the value that messages speak for in place of those.
    """

    said: Solution
    solution: Solution


def agree_by_deadline(
    settings: TimedTables,
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None",
    transport: Transport,
    decision: int = 0,
    *,
    default: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Settled:
    """Let one agent per owner agree by real messages, until all act at the same tick.

    Agents that no links join say nothing to each other. One that is gone at any time takes no part from then on.

    Args:
        settings: How.
        graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
        tables: One array per factor, axes in scope order; each is given to the factor's owner only. Which pairs of
            values they forbid all know beforehand.
        transport: Opened for at least the graph's agents.
        decision: Its number, 0 to 2^32 - 1.
        default: Of variables that have one, the value that stands for doing nothing: a silent agent's.
        seed: Of what agents draw.

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
    graph, tables = FactorGraph.with_tables(graph, tables)
    checked = checked_tables(graph, tables)
    claims = Claims.of(graph, checked)
    terms = terms_of(settings, sizes_of(graph, checked), claims, default or {}, seed)
    agents = {
        name: Punctual(name, terms, {f: checked[f] for f in graph.factors_owned_by(name)}, decision)
        for name in graph.agents
    }
    living = _ticked(agents, terms.deadline, transport)
    said = {x: value for name in living for x, value in agents[name].word().items()}
    words = {x: said.get(x) for x in graph.variables}
    idle = {graph.variable_owner(x) for x, value in words.items() if value is None}
    links = _links_of(agents, living, terms.deadline, transport, idle, claims.clashes(words))
    report = SolveReport("deadline", terms.deadline, traffic=transport.traffic, links=links)
    guessed = {x: agents[graph.variable_owner(x)].best_guess(x) for x, value in words.items() if value is None}
    done = {x: value for x, value in words.items() if value is not None}
    whole = {x: guessed[x] if value is None else value for x, value in words.items()}
    return Settled(_judged(graph, checked, done, report), _judged(graph, checked, whole, report))


def maximise_by_deadline(
    settings: TimedClimbs,
    functions: LocalFunctions,
    transport: Transport,
    seed: int = 0,
    decision: int = 0,
    *,
    shares: bool = False,
) -> Agreement:
    """Let one agent per owner agree on a joint point by real messages, until all act at the same tick.

    Variables of agents that are gone when the deadline comes stand where all know that they stood at first: at the best
    start, or in the middle of the box.

    Args:
        settings: How.
        functions: Each agent is given those of its own factors only, unless they share what they know.
        transport: Opened for at least the graph's agents.
        seed: Of what agents draw.
        decision: Its number, 0 to 2^32 - 1.
        shares: Whether every agent knows enough to say what others' factors are worth, as where outcomes are totals:
            then those of a silent agent are judged by whoever owns their variables.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> from swarmbo.transport import Faults
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> transport = Faults(loss=0.3, delay=2).open(graph.agents)
        >>> agreement = maximise_by_deadline(sb.ADMM(mode="asynchronous"), bowls, transport)
        >>> np.allclose(agreement.point, [0.3, 0.35, 0.4], atol=0.05), agreement.report.status
        (True, 'deadline')
    """
    graph, column = functions.graph, functions.graph.column_of
    terms = BoxTerms.of(settings, functions, seed, shares=shares)
    agents = {name: PunctualInBox.of(name, terms, functions, decision) for name in graph.agents}
    living = _ticked(agents, settings.deadline, transport)
    point = np.clip(terms.standing, functions.low, functions.high)
    for name in living:
        for x, value in agents[name].word().items():
            point[column[x]] = value
    links = _links_of(agents, living, settings.deadline, transport)
    stacks = stacks_of(graph)
    points = [stack.take(point[None]) for stack in stacks]
    rows = zip(stacks, points, exchange(functions, stacks, points), strict=True)
    values = by_factor(stacks, [functions.value(*row) for row in rows])
    by_name = {factor: float(values[factor][0]) for factor in graph.factors}
    value, broken = total(np.array(list(by_name.values()))), violated(by_name)
    status = "infeasible" if broken else "deadline"
    report = SolveReport(status, settings.deadline, value, traffic=transport.traffic, violated=broken, links=links)
    return Agreement(point, value, report)


def _links_of(
    agents: Mapping[str, Correspondent],
    living: Sequence[str],
    deadline: int,
    transport: Transport,
    without: Collection[str] = (),
    clashes: int = 0,
) -> LinkReport:
    """How links fared, and who was gone or unheard of."""
    unheard = {other for name in living for other in agents[name].unheard}
    edges = transport.edges if isinstance(transport, InProcessTransport) else {}
    return LinkReport(
        ticks=deadline,
        silent=tuple(name for name in agents if name in unheard or name not in living),
        without=tuple(name for name in agents if name in without),
        clashes=clashes,
        edges=by_name(edges),
    )


def _ticked(agents: Mapping[str, Correspondent], deadline: int, transport: Transport) -> tuple[str, ...]:
    """Tick them until the deadline; who was there all the time."""
    living = set(agents)
    reached = {name: transport.routes.hops_from(name) for name in agents}
    inboxes = {}
    for now in range(deadline + 1):
        if isinstance(transport, FaultyTransport):
            living = {name for name in living if not transport.is_gone(name)}
        for name, agent in agents.items():
            if name in living:
                for envelope in agent.tick(now, inboxes.get(name, ())):
                    if envelope.recipient in reached[name]:
                        transport.send(envelope)
        inboxes = transport.deliver() if now < deadline else {}
    return tuple(name for name in agents if name in living)


def _judged(
    graph: FactorGraph, tables: Mapping[str, np.ndarray], chosen: Mapping[str, int], report: SolveReport
) -> Solution:
    whole = whole_factors(graph, chosen)
    return settled(graph, chosen, [tables[f][tuple(chosen[x] for x in graph.scope(f))] for f in whole], report)


def whole_factors(graph: FactorGraph, chosen: Collection[str]) -> list[str]:
    """The factors all of whose variables have a value."""
    return [f for f in graph.factors if all(x in chosen for x in graph.scope(f))]


def settled(graph: FactorGraph, chosen: Mapping[str, int], values: Sequence[float], report: SolveReport) -> Solution:
    """What is done, with its value, where every variable has one, and the factors that forbid it.

    Args:
        graph: The whole graph.
        chosen: Of variables that have one, the index of the value.
        values: Of the factors all of whose variables have one, in the graph's order.
        report: How that came about.
    """
    whole = whole_factors(graph, chosen)
    broken = tuple(f for f, value in zip(whole, values, strict=True) if value == -np.inf)
    value = total(np.array(values)) if len(whole) == len(graph.factors) else None
    status = "infeasible" if broken else report.status
    judged = SolveReport(status, report.rounds, value, traffic=report.traffic, violated=broken, links=report.links)
    return Solution(dict(chosen), -np.inf if value is None else value, None, judged)
