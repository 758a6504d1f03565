"""Speed of coordination, as ratios within one run in ``extra_info``; times depend on the machine, so none is asserted.

Ask for it: ``pytest --benchmark-enable --benchmark-only tests/benchmarks/…``.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from swarmbo.coordination import exact
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.updates import COMPILED_FROM, numpy_one_pass, one_pass_for
from swarmbo.graph import FactorGraph

Tables = dict[str, np.ndarray]


def random_graph(n: int, arity: int, size: int) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(0)
    scopes = {f"f{i}": [f"x{j}" for j in rng.choice(n, arity, replace=False)] for i in range(n)}
    return FactorGraph.from_scopes(scopes), {f: rng.normal(size=(size,) * arity) for f in scopes}


def chain(n: int, order: int, size: int) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(0)
    scopes = {f"f{i}": [f"x{j}" for j in range(i, i + order + 1)] for i in range(n - order)}
    return FactorGraph.from_scopes(scopes), {f: rng.normal(size=(size,) * (order + 1)) for f in scopes}


def seconds(call: Callable[[], object], repeats: int) -> float:
    """The shortest of some runs: what is left is least disturbed by other work on the machine."""
    gc.collect()
    taken: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def iteration(flooding: Flooding) -> Callable[[], object]:
    messages, _ = flooding.from_factors(
        np.zeros(flooding.n_entries), flooding.from_variables(np.zeros(flooding.n_entries)), 0.5
    )
    return lambda: flooding.from_factors(messages, flooding.from_variables(messages), 0.5)


@pytest.mark.parametrize(("n", "arity", "size"), [(100, 2, 16), (100, 2, 64), (100, 3, 16), (20, 3, 64)])
def test_compiled_iteration_against_numpy(benchmark: Any, n: int, arity: int, size: int) -> None:
    graph, tables = random_graph(n, arity, size)
    compiled = iteration(Flooding(graph, tables, one_pass_for(COMPILED_FROM)))
    plain = iteration(Flooding(graph, tables, numpy_one_pass))
    compiled()
    benchmark.pedantic(compiled, rounds=20)
    fast = seconds(compiled, 20)
    entries = sum(table.size for table in tables.values())
    benchmark.extra_info["numpy_over_numba"] = seconds(plain, 5) / fast
    benchmark.extra_info["million_entries_per_s"] = entries / fast / 1e6


@pytest.mark.parametrize(("n", "size"), [(100, 64), (2, 4096)])
def test_the_factor_pass_alone_compiled_against_numpy(benchmark: Any, n: int, size: int) -> None:
    rng = np.random.default_rng(0)
    tables, along, others = rng.normal(size=(n, 64, size)), rng.normal(size=(n, 64)), rng.normal(size=(n, size))
    compiled = one_pass_for(COMPILED_FROM)
    benchmark.pedantic(compiled, args=(tables, along, others), rounds=20, warmup_rounds=1)
    fast = seconds(lambda: compiled(tables, along, others), 20)
    benchmark.extra_info["numpy_over_numba"] = seconds(lambda: numpy_one_pass(tables, along, others), 5) / fast
    benchmark.extra_info["million_entries_per_s"] = tables.size / fast / 1e6


def test_exact_on_a_chain_by_its_number_of_full_blocks(benchmark: Any) -> None:
    """B = 2, 32 values each. Where time is linear, that of a full block is the same from 16 to 64 robots."""
    robots = (8, 16, 32, 48, 64)
    problems = [chain(n, 2, 32) for n in robots]
    taken = [seconds(lambda graph=graph, tables=tables: exact(graph, tables), 15) for graph, tables in problems]
    per_block = {n: 1e3 * t / (n - 2) for n, t in zip(robots, taken, strict=True)}
    benchmark.extra_info["ms_per_block"] = {n: round(t, 4) for n, t in per_block.items()}
    benchmark.extra_info["ms"] = {n: round(1e3 * t, 3) for n, t in zip(robots, taken, strict=True)}
    graph, tables = problems[-1]
    benchmark.pedantic(lambda: exact(graph, tables), rounds=5)


@pytest.mark.parametrize(("n", "size"), [(4, 64), (16, 64)])
def test_exact_on_a_chain_against_one_max_sum_round(benchmark: Any, n: int, size: int) -> None:
    graph, tables = chain(n, 2, size)
    one_round = seconds(iteration(Flooding(graph, tables, numpy_one_pass)), 10)
    compiled_round = seconds(iteration(Flooding(graph, tables, one_pass_for(COMPILED_FROM))), 10)
    benchmark.pedantic(lambda: exact(graph, tables), rounds=10)
    sweep = seconds(lambda: exact(graph, tables), 10)
    benchmark.extra_info["exact_over_numpy_round"] = sweep / one_round
    benchmark.extra_info["exact_over_compiled_round"] = sweep / compiled_round
