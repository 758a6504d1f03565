"""Max-sum, in addition to the oracle tests: rounds, statuses, forbidden combinations, settings."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from swarmbo.coordination import exact, max_sum
from swarmbo.coordination.central import Central
from swarmbo.coordination.decoding import decode
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.part import LocalView, Part
from swarmbo.coordination.tables import factor_values, sizes_of, total
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

from .example_tables import Tables, drawn, ring

Messages = dict[tuple[str, str], np.ndarray]

RING = FactorGraph.from_scopes(ring(5))


def flooded(tables: Tables) -> Iterator[tuple[Messages, Messages, np.ndarray, float]]:
    """Messages of variables and of factors in each round, the choices by these, and their value."""
    flooding = Flooding(RING, tables, RING.variables, sizes_of(RING, tables))
    messages = np.zeros(flooding.n_entries)
    while True:
        outgoing, choices = flooding.from_variables(messages)
        yield flooding.by_edge(outgoing), flooding.by_edge(messages), choices.copy(), total(flooding.values(choices))
        messages, _ = flooding.from_factors(messages, outgoing, 0.5)


def test_a_loop_of_strong_preferences_converges_and_reports_it() -> None:
    solution = max_sum(RING, {f: np.diag([0.0, 3.0, 1.0]) for f in RING.factors}, rounds=200)
    assert solution.report.status == "converged"
    assert solution.report.rounds < 200
    assert solution.value == 15.0


def test_on_small_rings_the_optimum_is_found_nearly_always() -> None:
    every = [drawn(RING, seed) for seed in range(50)]
    assert sum(max_sum(RING, tables).value >= exact(RING, tables).value - 1e-9 for tables in every) >= 45


@pytest.mark.parametrize("alone", [0.0, -np.inf])
def test_the_scale_of_the_tables_does_not_change_the_stop(alone: float) -> None:
    """This also holds if some factors only forbid, and so have no scale."""
    tables = {f: np.diag([0.0, 3.0, 1.0]) for f in RING.factors}
    tables |= {f: np.where(np.eye(3, k=1) > 0.0, alone, 0.0) for f in ("f1", "f2")}
    rounds = [max_sum(RING, {f: s * t for f, t in tables.items()}).report.rounds for s in (2.0**-30, 1.0, 2.0**30)]
    assert len(set(rounds)) == 1


@pytest.mark.parametrize("n", [3, 4, 6])
def test_robots_that_must_all_differ_get_different_places_although_their_tables_are_equal(n: int) -> None:
    apart = np.where(np.eye(n) > 0, -np.inf, 0.0)
    graph = FactorGraph.from_scopes({f"f{i}{j}": [f"x{i}", f"x{j}"] for i, j in itertools.combinations(range(n), 2)})
    solution = max_sum(graph, dict.fromkeys(graph.factors, apart))
    assert solution.value == 0.0
    assert sorted(solution.assignment.values()) == list(range(n))


def test_parts_are_solved_separately_so_a_tree_next_to_a_loop_is_exact() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph.from_scopes({"t": ["p", "q"], "u": ["q", "r"]} | ring(5))
    tables = {"t": rng.normal(size=(3, 3)), "u": rng.normal(size=(3, 3))} | drawn(RING, 1)
    solution = max_sum(graph, tables, rounds=1)
    alone = max_sum(RING, drawn(RING, 1), rounds=1)
    assert (alone.report.status, alone.report.rounds, alone.report.gap) == ("max_rounds", 1, None)
    assert solution.report.status == "max_rounds"
    assert {x: solution.assignment[x] for x in RING.variables} == alone.assignment
    best = max(tables["t"][i, j] + tables["u"][j, k] for i, j, k in itertools.product(range(3), repeat=3))
    assert solution.value - alone.value == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_the_result_is_the_best_of_all_rounds_and_of_decoding_after_1_2_4_8(rounds: int) -> None:
    better_decoded = 0
    for seed in range(30):
        tables, values, decoded_values = drawn(RING, seed), list[float](), list[float]()
        for n, (*messages, _, value) in zip(range(rounds + 1), flooded(tables), strict=False):
            values.append(value)
            if n in (1, 2, 4, 8):
                view = LocalView.of(Part(RING, 0, Routes(RING.agents)))
                decoded = Central(view.part).run(decode(view, tables, *messages))
                decoded_values.append(total(factor_values(RING, tables, decoded)))
        assert max_sum(RING, tables, rounds=rounds, tolerance=0.0).value == max(*values, *decoded_values)
        better_decoded += max(decoded_values) > max(values)
    assert 0 < better_decoded < 30


def test_max_sum_does_not_stop_while_choices_still_change() -> None:
    stopped_later = 0
    for seed in range(20):
        tables = drawn(RING, seed)
        choices = [found.tolist() for *_, found, _ in itertools.islice(flooded(tables), 50)]
        same = next(n for n in range(1, 50) if choices[n] == choices[n - 1])
        report = max_sum(RING, tables, tolerance=1e9).report  # any change of a message counts as none
        assert (report.status, report.rounds) == ("converged", same)
        stopped_later += report.rounds > 2
    assert stopped_later > 0
