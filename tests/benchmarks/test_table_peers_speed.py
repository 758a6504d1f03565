"""Max-sum and PGMax (Zhou et al. 2023) on the same tables: seconds and values in ``extra_info``; no time is asserted.

PGMax runs as its authors recommend it: factors of one kind in one group, ``infer.build_inferer`` for max-product
(temperature 0), 200 iterations with damping 0.5, jitted. Its times are separate: to build the graph and arrays,
to compile, and to run the compiled code again on the same tables. Our time is all of ``solve``. PGMax decodes the last
beliefs, in 32 bits; our result is the best choice of all rounds, in 64 bits. ``docs/contributing/contributing.md`` says
how to install it.
"""

import gc
import itertools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from swarmbo.coordination import MaxSum
from swarmbo.graph import FactorGraph

OLD = "ignore:jax:DeprecationWarning"  # PGMax uses deprecated names
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings(OLD)]
METHOD = MaxSum(rounds=200, damping=0.5)
Tables = dict[str, np.ndarray]


def drawn(pairs: list[tuple[int, int]], size: int) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(0)
    scopes = {f"f{i}": [f"x{j}" for j in pair] for i, pair in enumerate(pairs)}
    return FactorGraph.from_scopes(scopes), {f: rng.normal(size=(size, size)) for f in scopes}


def random_pairs(n: int) -> list[tuple[int, int]]:
    """n distinct pairs of n variables, because PGMax refuses two factors over the same pair."""
    rng = np.random.default_rng(0)
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < n:
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        pairs[a, b] = None
    return list(pairs)


def value(graph: FactorGraph, tables: Tables, assignment: Mapping[str, int]) -> float:
    return sum(float(tables[f][tuple(assignment[x] for x in graph.scope(f))]) for f in graph.factors)


@pytest.fixture(autouse=True)
def pgmax() -> None:
    """Skip where PGMax is not installed or does not start."""
    pytest.importorskip("pgmax")
    jax: Any = pytest.importorskip("jax")
    if not hasattr(jax.lib, "xla_bridge"):
        pytest.skip(f"PGMax asks for jax.lib.xla_bridge, which JAX {jax.__version__} lacks; 0.4.35 has it")


class Seconds(NamedTuple):
    """Wall-clock time, and CPU time of all threads of the process, as JAX starts threads."""

    wall: float
    process: float


def timed(call: Callable[[], Any]) -> tuple[Seconds, Any]:
    gc.collect()
    wall, process = time.perf_counter(), time.process_time()
    result = call()
    return Seconds(time.perf_counter() - wall, time.process_time() - process), result


class PGMax:
    """A graph of pairs with its compiled inference, and the times to build and to compile it."""

    def __init__(self, graph: FactorGraph, tables: Tables) -> None:
        self._jax: Any = pytest.importorskip("jax")
        self.version: str = self._jax.__version__
        self.names = graph.variables
        self.build, (run, self._arrays) = timed(lambda: self._built(graph, tables))
        self.compile, self._run = timed(lambda: self._jax.jit(run).lower(*self._arrays).compile())

    def _built(self, graph: FactorGraph, tables: Tables) -> tuple[Callable[..., Any], list[Any]]:
        fgraph, fgroup, infer, vgroup = (
            pytest.importorskip(f"pgmax.{module}") for module in ("fgraph", "fgroup", "infer", "vgroup")
        )
        size = len(tables[graph.factors[0]])
        variables = vgroup.NDVarArray(num_states=size, shape=(len(graph.variables),))
        built = fgraph.FactorGraph(variable_groups=variables)
        column = {x: i for i, x in enumerate(graph.variables)}
        scopes = [[variables[column[x]] for x in graph.scope(f)] for f in graph.factors]
        potentials = np.stack([tables[f] for f in graph.factors])
        built.add_factors(fgroup.PairwiseFactorGroup(scopes, log_potential_matrix=potentials))
        bp = infer.build_inferer(built.bp_state, backend="bp")

        def run(log_potentials: Any, ftov_msgs: Any, evidence: Any) -> Any:
            arrays = infer.BPArrays(log_potentials, ftov_msgs, evidence)  # created here, as passing it copies it
            last = bp.run(arrays, num_iters=METHOD.rounds, damping=METHOD.damping, temperature=0.0)
            return infer.decode_map_states(bp.get_beliefs(last))[variables]

        first = bp.init()
        return run, self._jax.block_until_ready(
            [self._jax.numpy.asarray(array) for array in (first.log_potentials, first.ftov_msgs, first.evidence)]
        )

    def solve(self) -> dict[str, int]:
        """The values with the largest last beliefs."""
        found = self._jax.block_until_ready(self._run(*self._arrays))
        return dict(zip(self.names, np.asarray(found).tolist(), strict=True))


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_random_pairs_compared_with_pgmax(benchmark: Any, n: int) -> None:
    """Pairs of 16 values. Both methods alternate; the shortest of three times counts, as it is disturbed least."""
    graph, tables = drawn(random_pairs(n), 16)
    peer = PGMax(graph, tables)
    solution, assignment = METHOD.solve(graph, tables), peer.solve()  # compiled code of ours is loaded here
    assert solution.value == pytest.approx(value(graph, tables, solution.assignment), rel=1e-12)
    in_turn = [(timed(lambda: METHOD.solve(graph, tables))[0], timed(peer.solve)[0]) for _ in range(3)]
    ours, theirs = np.min(in_turn, axis=0)
    taken = {"ours": ours, "pgmax_build": peer.build, "pgmax_compile": peer.compile, "pgmax_run": theirs}
    for name, seconds in taken.items():
        benchmark.extra_info |= zip((f"{name}_wall_s", f"{name}_process_s"), np.round(seconds, 4).tolist(), strict=True)
    benchmark.extra_info["jax"] = f"{peer.version} {os.environ.get('XLA_FLAGS', '')}"
    benchmark.extra_info["our_rounds"] = solution.report.rounds
    benchmark.extra_info["our_value"] = round(solution.value, 3)
    benchmark.extra_info["pgmax_value"] = round(value(graph, tables, assignment), 3)
    benchmark.pedantic(lambda: METHOD.solve(graph, tables), rounds=1)


def test_both_find_the_optimum_of_a_small_tree(benchmark: Any) -> None:
    graph, tables = drawn([(0, 1), (2, 1), (1, 3), (4, 3), (3, 5)], 4)
    everything = itertools.product(range(4), repeat=len(graph.variables))
    best = max(value(graph, tables, dict(zip(graph.variables, point, strict=True))) for point in everything)
    peer = PGMax(graph, tables)
    solution = benchmark.pedantic(lambda: METHOD.solve(graph, tables), rounds=1)
    assert value(graph, tables, solution.assignment) == pytest.approx(best, rel=1e-12)
    assert value(graph, tables, peer.solve()) == pytest.approx(best, rel=1e-12)
