"""Tightness of upper bounds, and quality of methods on tables: the tables of docs/studies/bounds.md.

    python studies/certificates.py              # 200 graphs of each sort, a minute
    python studies/certificates.py --graphs 20

There are two sorts of random graphs with loops. Tables have standard normal entries, and `exact` finds the optimum.
The unit of gaps and shares is the optimum minus the mean value of random choices.
"""

from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import numpy as np
from study import markdown, parser_of, say

import swarmbo as sb
from swarmbo.coordination.plan import TableMethod

Problem = tuple[sb.FactorGraph, dict[str, np.ndarray]]
BOUNDS: dict[str, TableMethod] = {
    "`mplp`, 5 rounds": sb.MGM(rounds=1, bound="mplp", bound_rounds=5),
    "`mplp`, 20 rounds (default)": sb.MGM(rounds=1, bound="mplp"),
    "`mplp`, 100 rounds": sb.MGM(rounds=1, bound="mplp", bound_rounds=100),
}
METHODS: dict[str, TableMethod] = {
    "`max-sum`": sb.MaxSum(),
    "`dsa`": sb.DSA(),
    "`dsa`, `probability = 0.4`": sb.DSA(probability=0.4),
    "`dsa`, `keep_best = false`": sb.DSA(keep_best=False),
    "`mgm`": sb.MGM(),
}


def sparse(rng: np.random.Generator) -> dict[str, list[str]]:
    """A tree of pairs over 5 to 10 variables, and up to half as many further factors of 2 or 3 variables."""
    n = int(rng.integers(5, 11))
    scopes = {f"f{i}": [f"x{rng.integers(i)}", f"x{i}"] for i in range(1, n)}
    for j in range(int(rng.integers(1, n // 2 + 1))):
        scopes[f"g{j}"] = [f"x{v}" for v in rng.permutation(n)[: rng.integers(2, 4)]]
    return scopes


def dense(rng: np.random.Generator) -> dict[str, list[str]]:
    """One to two factors of 1 to 4 variables for each of 5 to 8 variables."""
    n = int(rng.integers(5, 9))
    return {
        f"f{j}": [f"x{v}" for v in rng.permutation(n)[: rng.integers(1, 5)]] for j in range(int(rng.integers(n, 2 * n)))
    }


def problems(sort: Callable[[np.random.Generator], dict[str, list[str]]], count: int) -> list[Problem]:
    """The first ``count`` graphs of a sort that have loops, with 2 to 5 values per variable."""
    found: list[Problem] = []
    seed = 0
    while len(found) < count:
        rng = np.random.default_rng(seed)
        seed += 1
        scopes = sort(rng)
        graph = sb.FactorGraph.from_scopes(scopes)
        if not graph.is_forest:
            sizes = {x: int(rng.integers(2, 6)) for x in graph.variables}
            found.append((graph, {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}))
    return found


def as_printed(graph: sb.FactorGraph, tables: dict[str, np.ndarray]) -> float:
    """Bounded max-sum as printed by Rogers et al. 2011: the optimum of a tree of minima plus weights of cut edges."""
    weights: nx.Graph[tuple[str, str]] = nx.Graph()
    for f in graph.factors:
        for axis, x in enumerate(graph.scope(f)):
            spread = float((tables[f].max(axis=axis) - tables[f].min(axis=axis)).max())
            weights.add_edge(("factor", f), ("variable", x), weight=spread)
    tree = nx.maximum_spanning_tree(weights)
    is_kept = {(f, x): tree.has_edge(("factor", f), ("variable", x)) for f in graph.factors for x in graph.scope(f)}
    scopes = {f: [x for x in graph.scope(f) if is_kept[f, x]] for f in graph.factors}
    cut = {
        f: tables[f].min(axis=tuple(axis for axis, x in enumerate(graph.scope(f)) if not is_kept[f, x]))
        for f in graph.factors
    }
    optimum = sb.exact(sb.FactorGraph.from_scopes(scopes), cut).value
    return optimum + weights.size(weight="weight") - tree.size(weight="weight")


def tables(sort: Callable[[np.random.Generator], dict[str, list[str]]], count: int) -> Iterator[str]:
    """Both tables of a sort of graphs."""
    solved = problems(sort, count)
    bests = np.array([sb.exact(graph, tables).value for graph, tables in solved])
    spans = bests - np.array([sum(float(table.mean()) for table in tables.values()) for _, tables in solved])

    def bound_row(name: str, bounds: list[float], size: str = "") -> list[Any]:
        gaps = (np.array(bounds) - bests) / spans
        return [name, (gaps > -1e-9).sum(), f"{gaps.mean():.3f}", f"{gaps.max():.2f}", size]

    def bounds() -> Iterator[list[Any]]:
        yield bound_row("bounded max-sum as printed", [as_printed(graph, tables) for graph, tables in solved])
        without = [sb.MGM(rounds=1).solve(graph, tables).report.bytes for graph, tables in solved]
        for name, method in BOUNDS.items():
            solutions = [method.solve(graph, tables) for graph, tables in solved]
            size = np.mean([s.report.bytes - bare for s, bare in zip(solutions, without, strict=True)]) / 1e3
            yield bound_row(
                name, [float("nan" if s.upper_bound is None else s.upper_bound) for s in solutions], f"{size:.1f}"
            )

    def methods() -> Iterator[list[Any]]:
        for name, method in METHODS.items():
            solutions = [method.solve(graph, tables, seed=k) for k, (graph, tables) in enumerate(solved)]
            shares = 1.0 - (bests - np.array([solution.value for solution in solutions])) / spans
            size = np.mean([solution.report.bytes for solution in solutions]) / 1e3
            found = int((shares > 1.0 - 1e-9).sum())
            yield [name, f"{shares.mean():.3f}", f"{shares.min():.2f}", found, f"{size:.1f}"]

    yield f"\n{sort.__name__}: {count} graphs\n"
    yield from markdown(["bound", "holds", "gap: mean", "largest", "kB"], bounds(), right=True)
    yield ""
    yield from markdown(["method", "share: mean", "smallest", "optimum found", "kB"], methods(), right=True)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--graphs", type=int, default=200)
    count: int = parser.parse_args().graphs
    for sort in (sparse, dense):
        say(tables(sort, count))
