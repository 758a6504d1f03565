"""Checks of coordination methods on small graphs, and on sums of smooth functions with one maximum."""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
from networkx.utils import graphs_equal

from swarmbo.acquisition import DBGPUCB, Auto, Situation
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.model import JointSituation
from swarmbo.coordination import participant
from swarmbo.coordination.plan import BoxMethod, TableMethod
from swarmbo.errors import ShapeError
from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack
from swarmbo.graph.box_functions import Climbing, Points, Received, Values, total_value
from swarmbo.problem.data import Dataset
from swarmbo.records import SolveReport
from swarmbo.registry import loggable_result
from swarmbo.spaces import Domain
from swarmbo.testing.claims import claim, claim_close, claim_equal, claim_offers, claim_point, refuse
from swarmbo.transport import InProcess

_SCOPES: dict[str, dict[str, list[str]]] = {
    "chain": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "w"]},
    "loop": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]},
    "two parts": {"f": ["x", "y"], "g": ["z"], "h": ["w", "z"]},
}


def graphs() -> Iterator[tuple[str, FactorGraph, "nx.Graph[str]"]]:
    """Name, graph and links of each case. Links connect all agents, some through relays; no method may change them."""
    for name, scopes in _SCOPES.items():
        graph = FactorGraph.from_scopes(scopes)
        links = nx.path_graph(list(graph.agents))
        yield name, graph, links
        is_same = graphs_equal(links, nx.path_graph(list(graph.agents)))
        claim(is_same, f"over a {name}: links afterwards", str(links), "those that were given")


class Bowls(BoxFunctions):
    """Concave quadratics, one per factor, with a preferred location and near-equal variables."""

    def published(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Refuse exchanges, as there are none."""
        refuse("numbers asked for in an exchange", f"those of {stack.factors}", "none, as n_exchanges is 0")

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Minus the squared distance to the factor's location, and minus the spread of its variables."""
        return self.value_and_gradient(stack, U, received)[0]

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Values as in ``value``, and their gradients."""
        if self.owned is not None:
            wanted = f"only its own, {sorted(self.owned)}"
            claim(self.owned.issuperset(stack.factors), "factors that an agent asked for", stack.factors, wanted)
        centres = np.array([0.3 + 0.1 * (self.graph.factors.index(name) % 5) for name in stack.factors])
        offsets = U - centres[:, None, None]
        spread = U - U.mean(axis=-1, keepdims=True)
        return -(offsets**2 + spread**2).sum(axis=-1), -2.0 * (offsets + spread)


_CHAIN = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
TWO_BOWLS = Bowls(_CHAIN, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4


def check_joint_policy(make: Callable[[], Any]) -> None:
    """Check ``decide_joint``: it returns a point of the unit cube that depends on the history and the seed only."""
    for name, graph, links in graphs():
        case, n_variables = f"decide_joint() over a {name}", len(graph.variables)
        domain = Domain(np.linspace(-2.0, 0.0, n_variables), np.linspace(1.0, 5.0, n_variables))
        rng = np.random.default_rng(0)
        U = rng.random((6, n_variables))
        history = Dataset(domain.from_unit(U), -((U - 0.4) ** 2).sum(axis=1), np.full((6, 3), np.nan))
        fields: dict[str, Any] = {"graph": graph, "domain": domain, "history": history, "outcomes": "total"}
        fields |= {"links": links, "round": 8, "horizon": None, "seed": 3, "initial": 4, "structure": "known"}
        situation = JointSituation(pending=domain.from_unit(rng.random((1, n_variables))), **fields)
        copies = history.X.copy(), history.totals.copy(), situation.pending.copy()
        chosen, report = make().decide_joint(situation, Auto())
        point = claim_point(chosen, np.zeros(n_variables), np.ones(n_variables), case)
        _claim_loggable(report, case)
        after = history.X, history.totals, situation.pending
        claim_equal(after, copies, f"{case}: the history", "the one that was given")
        repeated = np.asarray(make().decide_joint(situation, Auto())[0], dtype=float)
        claim_equal(repeated, point, f"{case}: the point for the same history and seed", "the same")


def check_field_policy(make: Callable[[], Any]) -> None:
    """Check ``decide``: every agent with candidates gets one of them."""
    domain = Domain(np.array([0.0, -50.0]), np.array([100.0, 50.0]))
    rng = np.random.default_rng(0)
    points = domain.from_unit(rng.random((30, 2)))
    agents = ("a", "b", "c", "d")
    candidates = {agent: points[10 * k : 10 * (k + 1)] for k, agent in enumerate(agents)}  # "d" has none
    X = domain.from_unit(rng.random((6, 2)))
    starts: dict[str, Any] = dict(zip(agents, X, strict=False))
    situation = Situation(
        agents=agents,
        candidates=candidates,
        positions=starts,
        starts=starts,
        belief=ExactGP.create(ExactGPSettings(), domain).update(X, rng.normal(size=6)),
        links=(links := nx.path_graph(agents)),
        domain=domain,
        round=2,
        horizon=9,
        seed=3,
    )
    copies = points.copy(), X.copy()
    decision = make().decide(situation, DBGPUCB())
    claim_offers(decision, "points", "report")
    _claim_loggable(decision.report, "decide()")
    movers = set(situation.movers)
    claim(set(decision.points) == movers, "decide(): agents with a place", sorted(decision.points), sorted(movers))
    for agent, point in decision.points.items():
        listed = (candidates[agent] == np.asarray(point)).all(axis=1).any()
        claim(listed, f"decide(): the place of {agent!r}", point, f"one of its candidates, {candidates[agent]}")
    claim_equal((points, X), copies, "decide(): candidates and starts", "those that were given")
    claim(graphs_equal(links, nx.path_graph(agents)), "decide(): links afterwards", str(links), "those that were given")
    repeated = make().decide(situation, DBGPUCB()).points
    claim_equal(repeated, decision.points, "decide(): the places in the same situation", "the same")


def check_coordinator(make: Callable[[], Any]) -> None:
    """Check the contract of a coordination method, for each of the methods below that it has.

    ``solve(graph, tables, links)`` chooses entries of tables. ``maximise(functions, links, seed)`` chooses a joint
    point in a box. ``decide_joint(situation, acquisition)`` chooses a joint point from the history alone.
    ``decide(situation, acquisition)`` chooses a location for each agent of a field.

    The choice is within bounds and the same every time, and no argument changes. Its stated value is true. It is at
    least the average value of choices, and at least that of any suggested start. Statements about the optimum are true.
    A forbidden choice has the status ``infeasible`` and the names of the broken factors. If links connect all
    agents, directly or not, they change the choice by rounding at most. If agents can run the method by messages
    (``plan``), their choice is bit-identical, and so is the traffic.

    Args:
        make: Function that makes new settings of the method.

    Raises:
        AssertionError: If a claim is violated. The message has its case, the value got and the value wanted.

    Example:
        >>> import swarmbo as sb
        >>> sb.testing.check_coordinator(sb.MaxSum)
        >>> sb.testing.check_coordinator(sb.ADMM)
    """
    claim(callable(make), "make", f"an object, {type(make).__name__}", "a function that makes a new coordinator")
    checks = {"solve": _check_tables, "maximise": _check_functions}
    checks |= {"decide_joint": check_joint_policy, "decide": check_field_policy}
    offered = [check for name, check in checks.items() if hasattr(make(), name)]
    claim(offered, type(make()).__name__, "no method to choose by", f"one of {', '.join(checks)}")
    if hasattr(make(), "plan") and offered[0] in (_check_tables, _check_functions):
        got = f"the class of {type(make()).__name__}, which has plan()"
        claim(isinstance(make(), TableMethod | BoxMethod), got, "another base", "TableMethod or BoxMethod")
    for check in offered:
        check(make)


def _check_tables(make: Callable[[], Any]) -> None:
    for name, graph, links in graphs():
        for seed in range(3):
            rng = np.random.default_rng(seed)
            sizes = {variable: 2 + place for place, variable in enumerate(graph.variables)}
            tables = {f: rng.normal(size=[sizes[v] for v in graph.scope(f)]) for f in graph.factors}
            _check_choice(make, graph, tables, links, f"solve() over a {name}")
            hard = {f: np.where(rng.random(table.shape) < 0.4, -np.inf, table) for f, table in tables.items()}
            _check_choice(make, graph, hard, links, f"solve() over a {name} where much is forbidden")
            _check_choice(make, graph, _forbidden(graph, tables), links, f"solve() over a {name} that forbids all")


def _forbidden(graph: FactorGraph, tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tables that allow no joint choice, though each allows some: two factors need different values of a variable."""
    variable = next(v for v in graph.variables if len(graph.factors_of(v)) > 1)
    forbidden = dict(tables)
    for wanted, factor in enumerate(graph.factors_of(variable)[:2]):
        indices = np.indices(tables[factor].shape)[graph.scope(factor).index(variable)]
        forbidden[factor] = np.where(indices == wanted, tables[factor], -np.inf)
    return forbidden


def _check_choice(
    make: Callable[[], Any], graph: FactorGraph, tables: dict[str, np.ndarray], links: "nx.Graph[str]", case: str
) -> None:
    before = {factor: table.copy() for factor, table in tables.items()}
    solution = make().solve(graph, tables)
    claim_offers(solution, "assignment", "value", "upper_bound", "report")
    _claim_loggable(solution.report, case)
    claim_equal(tables, before, f"{case}: the tables", "those that were given")
    sizes = {v: n for f in graph.factors for v, n in zip(graph.scope(f), tables[f].shape, strict=True)}
    choice = solution.assignment
    valid = set(choice) == set(sizes) and all(0 <= index < sizes[v] for v, index in choice.items())
    claim(valid, f"{case}: the assignment", choice, f"an index for each of {sizes}, less than its size")

    def utility(assignment: dict[str, int]) -> float:
        return float(sum(tables[f][tuple(assignment[v] for v in graph.scope(f))] for f in graph.factors))

    value = utility(choice)
    statement = f"{case}: the value {solution.value:.6g}", f"{value:.6g}, the sum at the assignment"
    claim_close(solution.value, value, *statement)
    broken = [f for f in graph.factors if tables[f][tuple(choice[v] for v in graph.scope(f))] == -np.inf]
    violated = list(solution.report.violated)
    claim_equal(violated, broken, f"{case}: factors in report.violated", f"those that are -inf at the choice, {broken}")
    status = solution.report.status
    is_stated = bool(broken) == (status == "infeasible")
    claim(is_stated, f"{case}: the status", status, "'infeasible' for a forbidden choice only")
    choices = itertools.product(*(range(size) for size in sizes.values()))
    values = [utility(dict(zip(sizes, indices, strict=True))) for indices in choices]
    best, mean = max(values), float(np.mean(values))
    claim(value >= mean, f"{case}: the sum at the assignment", f"{value:.6g}", f"at least the mean of all, {mean:.6g}")
    _check_optimum_claims(solution.report, value, best, case)
    bound = solution.upper_bound
    claim(bound is None or bound >= best - 1e-9, f"{case}: the upper bound", bound, f"None, or at least {best}")
    claim_equal(make().solve(graph, tables).assignment, choice, f"{case}: the assignment when asked again", "the same")
    over_links = make().solve(graph, tables, links)
    claim_equal(over_links.assignment, choice, f"{case}: the assignment over links that relay", "the same")
    if isinstance(make(), TableMethod):
        by_agents = participant.solve_with_agents(make(), graph, tables, InProcess().open(graph.agents, links))
        by_messages = by_agents.assignment, by_agents.value, by_agents.upper_bound
        solved = over_links.assignment, over_links.value, over_links.upper_bound
        claim_equal(by_messages, solved, f"{case}: the choice of agents", "that of solve()")
        _claim_same_traffic(by_agents.report, over_links.report, case)


def _check_functions(make: Callable[[], Any]) -> None:
    for name, graph, links in graphs():
        n = len(graph.variables)
        for n_starts, (low, high) in enumerate([(0.0, 1.0), (0.1, 0.45)]):
            drawn = low + (high - low) * np.random.default_rng(n_starts).random((64, n))
            functions = Bowls(graph, np.full(n, low), np.full(n, high), np.empty((0, n)))
            starts = drawn[np.argsort(-total_value(functions, drawn))[:n_starts]]
            _check_agreement(make, replace(functions, starts=starts), links, f"maximise() over a {name}")


def _check_agreement(make: Callable[[], Any], functions: Bowls, links: "nx.Graph[str]", case: str) -> None:
    graph, low, high = functions.graph, functions.low, functions.high
    box = low, high, functions.starts
    before = copy.deepcopy(box)
    agreement = make().maximise(functions, None, 1)
    claim_offers(agreement, "point", "value", "report")
    _claim_loggable(agreement.report, case)
    claim_equal(box, before, f"{case}: low, high and starts", "those that were given")
    point = claim_point(agreement.point, low, high, case)
    value = float(total_value(functions, point[None])[0])
    statement = f"{case}: the value {agreement.value:.6g}", f"{value:.6g}, the sum at the point"
    claim_close(agreement.value, value, *statement)
    values = total_value(functions, low + (high - low) * np.random.default_rng(0).random((256, len(low))))
    mean = float(values.mean())
    claim(value >= mean, f"{case}: the sum at the point", f"{value:.6g}", f"at least the mean of the box, {mean:.6g}")
    _check_optimum_claims(agreement.report, value, max(value, float(values.max())), case)
    best = float(total_value(functions, functions.starts).max()) if len(functions.starts) else -np.inf
    wanted = f"at least that of a start, {best:.6g}"
    claim(value >= best - 1e-9, f"{case}: the sum at the point", f"{value:.6g}", wanted)
    repeated = make().maximise(functions, None, 1)
    claim_equal(np.asarray(repeated.point), point, f"{case}: the point for the same seed", "the same")
    over_links = make().maximise(functions, links, 1)
    claim_close(over_links.point, point, f"{case}: the point over links that relay", "the same up to rounding")
    if isinstance(make(), BoxMethod):
        by_agents = participant.maximise_with_agents(make(), functions, InProcess().open(graph.agents, links), 1)
        by_messages, solved = (by_agents.point, by_agents.value), (over_links.point, over_links.value)
        claim_equal(by_messages, solved, f"{case}: the choice of agents", "that of maximise()")
        _claim_same_traffic(by_agents.report, over_links.report, case)


def _claim_loggable(report: Any, case: str) -> None:
    try:
        loggable_result(SolveReport, report, report, case)
    except ShapeError as error:
        refuse(f"{case}: the report", report, str(error).partition("; wanted ")[2])


def _check_optimum_claims(report: SolveReport, value: float, best: float, case: str) -> None:
    if report.value is not None and value > -np.inf:
        claim_close(report.value, value, f"{case}: the value {report.value:.6g} in the report", f"{value:.6g}")
    if report.status == "exact":
        claim_close(value, best, f"{case}: the sum of an 'exact' choice, {value:.6g}", f"the maximum, {best:.6g}")
    gap = report.gap
    if value == -np.inf:
        claim(gap is None, f"{case}: the gap of a forbidden choice", gap, "None")
    claim(gap is None or best - value <= gap + 1e-9, f"{case}: the gap", gap, f"None, or at least {best - value}")


def _claim_same_traffic(by_agents: SolveReport, solved: SolveReport, case: str) -> None:
    by_agents_end, solved_end = (by_agents.status, by_agents.violated), (solved.status, solved.violated)
    claim(solved_end == by_agents_end, f"{case}: status and violated", solved_end, str(by_agents_end))
    sent = by_agents.traffic
    claim(solved.traffic == sent, f"{case}: the traffic", str(solved.traffic), f"that of agents, {sent}")
