"""Speed of coordination."""

import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from swarmbo.coordination import MaxSum, exact
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.tables import sizes_of
from swarmbo.graph import FactorGraph

from .timing import own_seconds as seconds

Tables = dict[str, np.ndarray]


def random_graph(n: int, arity: int, size: int) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(0)
    scopes = {f"f{i}": [f"x{j}" for j in rng.choice(n, arity, replace=False)] for i in range(n)}
    return FactorGraph.from_scopes(scopes), {f: rng.normal(size=(size,) * arity) for f in scopes}


def chain(n: int, order: int, size: int) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(0)
    scopes = {f"f{i}": [f"x{j}" for j in range(i, i + order + 1)] for i in range(n - order)}
    return FactorGraph.from_scopes(scopes), {f: rng.normal(size=(size,) * (order + 1)) for f in scopes}


def iteration(graph: FactorGraph, tables: Tables) -> Callable[[], object]:
    """Computation of a round of max-sum: messages from factors and from variables, choices and their values."""
    flooding = Flooding(graph, tables, graph.variables, sizes_of(graph, tables))
    messages, _ = flooding.from_factors(
        np.zeros(flooding.n_entries), flooding.from_variables(np.zeros(flooding.n_entries))[0], 0.5
    )

    def once() -> object:
        from_variables, choices = flooding.from_variables(messages)
        return flooding.values(choices), flooding.from_factors(messages, from_variables, 0.5)

    return once


SIZES = [
    (100, 2, 64), (1000, 2, 64), (10_000, 2, 64), (1000, 3, 16), (1000, 4, 8), (200, 5, 8),
    (3000, 2, 16), (10_000, 2, 16), (100_000, 2, 16),
]  # fmt: skip
BEYOND_CACHES = 2**25  # entries: 256 MB


@pytest.mark.parametrize(("n", "arity", "size"), SIZES)
def test_an_iteration_against_reading_the_tables_once(benchmark: Any, n: int, arity: int, size: int) -> None:
    """Small tables are read from a cache, so the time is also compared with the speed of main memory."""
    graph, tables = random_graph(n, arity, size)
    compiled, flat = iteration(graph, tables), np.concatenate([table.ravel() for table in tables.values()])
    benchmark.pedantic(compiled, rounds=10, warmup_rounds=1)
    memory = np.ones(BEYOND_CACHES)
    reads = (flat.max, memory.max, compiled)
    stream, from_memory, fast = np.min([[seconds(read, 1) for read in reads] for _ in range(40)], axis=0)
    benchmark.extra_info["share_of_the_read_stream"] = stream / fast
    benchmark.extra_info["share_of_the_memory_s_speed"] = from_memory * flat.size / BEYOND_CACHES / fast
    benchmark.extra_info["gb_per_s_of_memory"] = 8e-9 * BEYOND_CACHES / from_memory
    benchmark.extra_info["million_entries_per_s"] = flat.size / fast / 1e6
    benchmark.extra_info["ms"] = 1e3 * fast


@pytest.mark.parametrize("kind", ["tree", "loops"])
def test_a_whole_solve_as_the_number_of_tables_grows(benchmark: Any, kind: str) -> None:
    """Pairs of 16 values in a chain, or in a random graph for one round: partition, layout, counts, final choices."""
    method = MaxSum(rounds=1)
    ms: dict[int, float] = {}
    for n in (1000, 10_000, 100_000):
        graph, tables = chain(n + 1, 1, 16) if kind == "tree" else random_graph(n, 2, 16)
        ms[n] = round(1e3 * seconds(lambda of=(graph, tables): method.solve(*of), 2) / n, 4)
    benchmark.extra_info["ms_per_table"] = ms
    benchmark.extra_info["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    graph, tables = random_graph(1000, 2, 16)
    benchmark.pedantic(lambda: method.solve(graph, tables), rounds=3)


def test_exact_on_a_chain_as_its_number_of_full_blocks_grows(benchmark: Any) -> None:
    """B = 2, 32 values per variable. If time is linear, the time per full block is the same from 16 to 64 robots.

    ``exact_over_round`` is the time on the longest chain, in rounds of max-sum.
    """
    robots = (8, 16, 32, 48, 64)
    problems = [chain(n, 2, 32) for n in robots]
    taken = [seconds(lambda graph=graph, tables=tables: exact(graph, tables), 15) for graph, tables in problems]
    per_block = {n: 1e3 * t / (n - 2) for n, t in zip(robots, taken, strict=True)}
    benchmark.extra_info["ms_per_block"] = {n: round(t, 4) for n, t in per_block.items()}
    benchmark.extra_info["ms"] = {n: round(1e3 * t, 3) for n, t in zip(robots, taken, strict=True)}
    graph, tables = problems[-1]
    benchmark.extra_info["exact_over_round"] = taken[-1] / seconds(iteration(graph, tables), 10)
    benchmark.pedantic(lambda: exact(graph, tables), rounds=5)
