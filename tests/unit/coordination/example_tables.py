"""Graphs with tables to be solved, and values of all joint choices by enumeration."""

from typing import Any

import networkx as nx
import numpy as np

from swarmbo.coordination.agreement import Solution
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.coordination.plan import TableMethod
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess

Tables = dict[str, np.ndarray]
Problem = tuple[FactorGraph, Tables]
NO = -np.inf
TRIANGLE = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}


def ring(n: int) -> dict[str, list[str]]:
    return {f"f{i}": [f"x{i}", f"x{(i + 1) % n}"] for i in range(n)}


def drawn(graph: FactorGraph, seed: int = 0, size: int = 4) -> Tables:
    """Tables of normal numbers over variables of one size."""
    rng = np.random.default_rng(seed)
    return {f: rng.normal(size=[size] * len(graph.scope(f))) for f in graph.factors}


def some_problem(
    rng: np.random.Generator, n: int, n_factors: int, *, arity: int = 4, forbidden: float = 0.0, forest: bool = False
) -> Problem:
    """A random graph, possibly with loops, equal scopes and variables in one factor only; or a forest."""
    scopes, trees = dict[str, list[str]](), nx.utils.UnionFind(range(n))
    for k in range(n_factors):
        scope = list[int]()
        for v in rng.permutation(n)[: rng.integers(1, arity + 1)].tolist():
            if not forest or all(trees[v] != trees[u] for u in scope):
                scope.append(v)
        trees.union(*scope)
        scopes[f"f{k}"] = [f"x{v}" for v in scope]
    graph = FactorGraph.from_scopes(scopes)
    sizes = {x: int(rng.integers(1, 4)) for x in graph.variables}
    tables = {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}
    return graph, {f: np.where(rng.random(table.shape) < forbidden, NO, table) for f, table in tables.items()}


def values_at(graph: FactorGraph, tables: Tables, chosen: dict[str, int]) -> dict[str, float]:
    """Value of each factor."""
    return {f: float(tables[f][tuple(chosen[x] for x in graph.scope(f))]) for f in graph.factors}


def joint_values(graph: FactorGraph, tables: Tables) -> np.ndarray:
    """The sum of all factors at every joint choice, with an axis for each variable."""
    everything = np.zeros([1] * len(graph.variables))
    for factor in graph.factors:
        axes = [graph.variables.index(x) for x in graph.scope(factor)]
        spread = np.transpose(tables[factor], np.argsort(axes))
        everything = everything + spread[tuple(slice(None) if i in axes else None for i in range(everything.ndim))]
    return everything


def by_agents(method: TableMethod, graph: FactorGraph, tables: Tables, links: Any = None, **more: Any) -> Solution:
    """The solution of agents that exchange messages."""
    return solve_with_agents(method, graph, tables, InProcess().open(graph.agents, links), **more)
