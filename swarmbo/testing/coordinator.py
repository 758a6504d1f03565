"""What ways to agree keep to."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import numpy as np

from swarmbo.acquisition import Auto, History, JointSituation
from swarmbo.agent import ContinuousCoordination, Coordination, maximise_with_agents, solve_with_agents
from swarmbo.coordination.local_functions import total_value
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport
from swarmbo.spaces import Domain
from swarmbo.testing.bowls import Bowls
from swarmbo.testing.claims import are_close, are_equal, claim, claim_offers
from swarmbo.transport import InProcess

_SCOPES: dict[str, dict[str, list[str]]] = {
    "chain": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "w"]},
    "loop": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]},
    "two parts": {"f": ["x", "y"], "g": ["z"], "h": ["w", "z"]},
}


def check_coordinator(make: Callable[[], Any]) -> None:
    """Hold a way to agree to its contract, by what it offers.

    ``solve(graph, tables, links)`` chooses entries of tables; ``maximise(functions, links, seed)`` chooses a joint
    point in a box; ``decide_joint(situation, acquisition)`` chooses one from the history alone. What comes out is a
    choice in bounds; its value is that of the choice; it is the same every time, and over any links that join all up to
    rounding, and better than the average choice, or at least as good as every suggested start. What is said of the optimum is so.
    Where agents can run it by messages (it has ``plan``), they choose alike, to the bit, and count the same traffic.

    Args:
        make: Makes its settings anew.

    Raises:
        AssertionError: With the claim that does not hold.

    Example:
        >>> import swarmbo as sb
        >>> sb.testing.check_coordinator(sb.MaxSum)
        >>> sb.testing.check_coordinator(sb.ADMM)
    """
    checks = {"solve": _check_tables, "maximise": _check_functions, "decide_joint": _check_policy}
    offered = [check for name, check in checks.items() if hasattr(make(), name)]
    claim(offered, f"{type(make()).__name__} has none of {', '.join(checks)}")
    for check in offered:
        check(make)


def _graphs() -> Iterator[tuple[str, FactorGraph, "nx.Graph[str]"]]:
    """Graphs, and links by which all agents reach all others, if not at once."""
    for name, scopes in _SCOPES.items():
        graph = FactorGraph.from_scopes(scopes)
        yield name, graph, nx.path_graph(list(graph.agents))


def _check_tables(make: Callable[[], Any]) -> None:
    for name, graph, links in _graphs():
        for seed in range(3):
            rng = np.random.default_rng(seed)
            sizes = {variable: 2 + place for place, variable in enumerate(graph.variables)}
            tables = {f: rng.normal(size=[sizes[v] for v in graph.scope(f)]) for f in graph.factors}
            _check_choice(make, graph, tables, links, f"on tables over a {name}")


def _check_choice(
    make: Callable[[], Any], graph: FactorGraph, tables: dict[str, np.ndarray], links: "nx.Graph[str]", where: str
) -> None:
    solution = make().solve(graph, tables)
    claim_offers(solution, "assignment", "value", "upper_bound", "report")
    sizes = {v: n for f in graph.factors for v, n in zip(graph.scope(f), tables[f].shape, strict=True)}
    chosen = solution.assignment
    valid = set(chosen) == set(sizes) and all(0 <= index < sizes[v] for v, index in chosen.items())
    claim(valid, f"{where}: {chosen} is no index for each of {sizes}")

    def worth(assignment: dict[str, int]) -> float:
        return float(sum(tables[f][tuple(assignment[v] for v in graph.scope(f))] for f in graph.factors))

    said, value = float(solution.value), worth(chosen)
    claim(are_close(said, value), f"{where}: the value is said to be {said}; the choice is worth {value}")
    every = [
        worth(dict(zip(sizes, indices, strict=True)))
        for indices in itertools.product(*(range(size) for size in sizes.values()))
    ]
    best, mean = max(every), float(np.mean(every))
    claim(value >= mean, f"{where}: the choice is worth {value}, less than the mean of all, {mean}")
    _check_claims_of_optimum(solution.report, value, best, where)
    bound = solution.upper_bound
    claim(bound is None or bound >= best - 1e-9, f"{where}: the upper bound is {bound}, but {best} can be had")
    claim(are_equal(make().solve(graph, tables).assignment, chosen), f"{where}: another choice when asked again")
    over = make().solve(graph, tables, links)
    claim(are_equal(over.assignment, chosen), f"{where}: another choice over links that relay")
    if isinstance(make(), Coordination):
        by_agents = solve_with_agents(make(), graph, tables, InProcess().open(graph.agents, links))
        same = are_equal((by_agents.assignment, by_agents.value), (over.assignment, over.value))
        claim(same, f"{where}: agents choose otherwise than solve()")
        _claim_same_traffic(by_agents.report, over.report, where)


def _check_functions(make: Callable[[], Any]) -> None:
    for name, graph, links in _graphs():
        n = len(graph.variables)
        for k, (low, high) in enumerate([(0.0, 1.0), (0.1, 0.45)]):
            rng = np.random.default_rng(k)
            starts = low + (high - low) * rng.random((k, n))
            functions = Bowls(graph, np.full(n, low), np.full(n, high), starts)
            _check_agreement(make, functions, links, f"on functions over a {name}")


def _check_agreement(make: Callable[[], Any], functions: Bowls, links: "nx.Graph[str]", where: str) -> None:
    graph, low, high = functions.graph, functions.low, functions.high
    agreement = make().maximise(functions, None, 1)
    claim_offers(agreement, "point", "value", "report")
    point = np.asarray(agreement.point, dtype=float)
    claim(point.shape == low.shape, f"{where}: the point has shape {point.shape}; wanted {low.shape}")
    inside = np.isfinite(point).all() and (point >= low - 1e-9).all() and (point <= high + 1e-9).all()
    claim(inside, f"{where}: the point {point.tolist()} is not in the box")
    said, value = float(agreement.value), float(total_value(functions, point[None])[0])
    claim(are_close(said, value), f"{where}: the value is said to be {said}; the point is worth {value}")
    drawn = low + (high - low) * np.random.default_rng(0).random((256, len(low)))
    mean = float(total_value(functions, drawn).mean())
    claim(value >= mean, f"{where}: the point is worth {value}, less than the mean of the box, {mean}")
    if len(functions.starts):
        best = float(total_value(functions, functions.starts).max())
        claim(value >= best - 1e-9, f"{where}: the point is worth {value}, less than a start, {best}")
    again = make().maximise(functions, None, 1)
    claim(are_equal(np.asarray(again.point), point), f"{where}: another point for the same seed")
    over = make().maximise(functions, links, 1)
    print(np.abs(over.point - point).max(), type(make()))
    claim(are_close(over.point, point), f"{where}: another point over links that relay")
    if isinstance(make(), ContinuousCoordination):
        by_agents = maximise_with_agents(make(), functions, InProcess().open(graph.agents, links), 1)
        same = are_equal((by_agents.point, by_agents.value), (over.point, over.value))
        claim(same, f"{where}: agents choose otherwise than maximise()")
        _claim_same_traffic(by_agents.report, over.report, where)


def _check_policy(make: Callable[[], Any]) -> None:
    for name, graph, _ in _graphs():
        where, n = f"from a history over a {name}", len(graph.variables)
        domain = Domain(np.linspace(-2.0, 0.0, n), np.linspace(1.0, 5.0, n))
        rng = np.random.default_rng(0)
        sides = rng.random((6, n))
        history = History(domain.from_unit(sides), -((sides - 0.4) ** 2).sum(axis=1), np.full((6, 3), np.nan))
        situation = JointSituation(
            graph=graph,
            domain=domain,
            history=history,
            pending=domain.from_unit(rng.random((1, n))),
            outcomes="total",
            links=None,
            round=8,
            horizon=None,
            seed=3,
            initial=4,
            structure="known",
        )
        before = history.X.copy(), history.totals.copy(), situation.pending.copy()
        point, report = make().decide_joint(situation, Auto())
        place = np.asarray(point, dtype=float)
        claim(place.shape == (n,), f"{where}: the point has shape {place.shape}; wanted ({n},)")
        inside = np.isfinite(place).all() and (place >= 0.0).all() and (place <= 1.0).all()
        claim(inside, f"{where}: the point {place.tolist()} is not in the unit cube")
        claim(isinstance(report, SolveReport), f"{where}: got {type(report).__name__}; wanted a SolveReport")
        claim(are_equal((history.X, history.totals, situation.pending), before), f"{where}: the history was changed")
        again = np.asarray(make().decide_joint(situation, Auto())[0], dtype=float)
        claim(are_equal(again, place), f"{where}: another point from the same history and seed")


def _check_claims_of_optimum(report: SolveReport, value: float, best: float, where: str) -> None:
    exact = report.status != "exact" or are_close(value, best)
    claim(exact, f"{where}: the status is 'exact', but the choice is worth {value} and {best} can be had")
    gap = report.gap
    claim(gap is None or best - value <= gap + 1e-9, f"{where}: the gap is said to be {gap}; it is {best - value}")


def _claim_same_traffic(by_agents: SolveReport, fast: SolveReport, where: str) -> None:
    got, wanted = fast.traffic, by_agents.traffic
    claim(got == wanted, f"{where}: the report counts {got}; agents send {wanted}")
