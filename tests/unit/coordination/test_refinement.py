"""Grids around an incumbent: what they contain, when they move, what fits a budget."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination.part import BoxView, LocalView, Part
from swarmbo.coordination.refinement import (
    Resolution,
    coarse_values,
    is_at_edge,
    tables as asked_tables,
    tabulated,
    window_values,
)
from swarmbo.coordination.requests import looked
from swarmbo.errors import BudgetError, ShapeError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.transport import Routes

from .example_sums import ExampleSum

unit = st.floats(0.0, 1.0)


def tables(functions, stack, values, received, **more) -> np.ndarray:
    return answered(asked_tables(functions, stack, values, values.shape[1:] * stack.size, received, **more))


def answered(steps):
    """What comes out where requests for values are answered one by one."""
    answer = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as finished:
            return finished.value
        answer = looked([request])[0]


class Climbing:
    """Functions with two phases of exchange, which climb something else than their value."""

    n_exchanges = 2

    def value_and_gradient(self, stack, U, received):
        return U.sum(axis=-1) + 10.0 * received[0] + 100.0 * received[1], np.zeros_like(U)


def window(x: float, spacing: float, points: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    arguments = (np.array([value]) for value in (x, low, high, spacing))
    return window_values(*arguments, points)[0]


@given(unit, st.floats(1e-9, 0.05), st.sampled_from([3, 5, 9, 17]))
def test_a_window_holds_the_incumbent_first_and_its_lattice_neighbours(x, spacing, points) -> None:
    values = window(x, spacing, points)
    assert values[0] == x
    assert len(values) == points
    assert values.min() >= 0.0
    assert values.max() <= 1.0
    rest = np.sort(values)
    steps = (rest - x) / spacing
    on_lattice = np.abs(steps - np.round(steps)) <= 1e-6 * np.maximum(1.0, np.abs(steps)) + 1e-16 / spacing
    assert (on_lattice | (rest == 0.0) | (rest == 1.0)).all()
    for neighbour in (max(x - spacing, 0.0), min(x + spacing, 1.0)):
        assert np.abs(values - neighbour).min() <= 1e-8 * spacing + 1e-15
    if (points - 1) * spacing < 1.0:
        assert len(np.unique(values)) == points  # shifted at a bound, not cut short


def test_the_first_level_holds_the_starts_first_and_both_bounds() -> None:
    starts = np.array([[0.2, 0.9], [0.4, 0.8]])
    values = coarse_values(np.array([0.1, 0.0]), np.array([0.7, 1.0]), starts, 4)
    np.testing.assert_allclose(values, [[0.2, 0.4, 0.1, 0.3, 0.5, 0.7], [0.9, 0.8, 0.0, 1 / 3, 2 / 3, 1.0]])
    assert values[0, -1] == 0.7


def test_a_choice_is_at_the_edge_where_the_window_ends_unless_the_box_ends_there() -> None:
    window, sides = np.tile([0.5, 0.3, 0.4, 0.6, 0.7], (4, 1)), (np.zeros(4), np.ones(4))
    assert is_at_edge(window, np.array([0.3, 0.4, 0.5, 0.7]), *sides).tolist() == [True, False, False, True]
    at_bounds = np.array([[0.1, 0.0, 0.2], [0.9, 0.8, 1.0]])
    assert not is_at_edge(at_bounds, np.array([0.0, 1.0]), np.zeros(2), np.ones(2)).any()


def test_what_was_received_stays_fixed_over_a_table_of_what_is_climbed() -> None:
    stack = FactorStack(("f", "g"), np.array([[0], [1]]))
    found = tables(
        Climbing(), stack, np.array([[0.0, 0.5], [0.25, 0.75]]), (np.array([[1.0], [3.0]]), np.array([[2.0], [4.0]]))
    )
    assert found.tolist() == [[210.0, 210.5], [430.25, 430.75]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_named_with_its_factor_and_point(bad) -> None:
    class Broken:
        n_exchanges = 0

        def value(self, stack, U, received):
            return np.where(U[..., 0] > 0.7, bad, 0.0) * (np.arange(len(stack.factors)) == 1)[:, None]

    stack = FactorStack(("f", "g"), np.array([[0], [1]]))
    values = np.array([[0.0, 0.1], [0.25, 0.75]])
    with pytest.raises(ShapeError, match=r"'g'.*\[0.75\]"), np.errstate(invalid="ignore"):
        tables(Broken(), stack, values, ())
    with np.errstate(invalid="ignore"):
        found = tables(Broken(), stack, values, (), is_strict=False)
    assert found[1].tolist() == [0.0, -np.inf]


class Weighed(ExampleSum):
    """Factors that tell their variables apart, and are weighed by what they receive."""

    def own(self, factor, X):
        return X @ 10.0 ** np.arange(X.shape[-1]) + self.graph.factors.index(factor), np.zeros_like(X)


@pytest.mark.parametrize("coupling", [0.0, 0.5])
def test_factors_of_one_stack_have_tables_of_their_own_shapes(coupling) -> None:
    functions = Weighed.on_box({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}, coupling=coupling)
    view = BoxView.on(LocalView.of(Part(functions.graph, 0, Routes(functions.graph.agents))), functions)
    rng, counts, (stack,) = np.random.default_rng(0), {"x": 2, "y": 3, "z": 3}, view.stacks
    values, received = rng.random((3, 3)), tuple(rng.random((functions.n_exchanges, 3, 1)))
    found = answered(tabulated(view, values, [received], counts))
    assert {f: table.shape for f, table in found.items()} == {"f": (2, 3), "g": (3, 3), "h": (3, 2)}
    for row, f in enumerate(stack.factors):
        alone, got = stacks_of(functions.graph, [f])[0], tuple(phase[[row]] for phase in received)
        for at in np.ndindex(found[f].shape):
            point = values[stack.columns[row], at][None, None]
            assert found[f][at] == pytest.approx(functions.value(alone, point, got)[0, 0])


@given(
    arity=st.integers(1, 7),
    points=st.integers(3, 200),
    refinement=st.integers(2, 64),
    starts=st.integers(1, 16),
    coarse=st.integers(6, 20),
    fine=st.integers(6, 20),
)
def test_grids_fit_the_budget_or_are_refused(arity, points, refinement, starts, coarse, fine) -> None:
    graph = FactorGraph.from_scopes({"f": [f"x{i}" for i in range(arity)], "g": ["x0"]})
    budgets = 2**coarse, 2**fine
    if 4**arity > budgets[0] or 3**arity > budgets[1]:
        with pytest.raises(BudgetError, match=rf"'f' has {arity} variables"):
            Resolution.of(graph, points, refinement, starts, *budgets)
        return
    found = Resolution.of(graph, points, refinement, starts, *budgets)
    first = found.starts + found.coarse
    assert first**arity <= budgets[0]
    assert found.window**arity <= budgets[1]
    assert found.window % 2 == 1
    assert 3 <= found.coarse <= points
    assert 1 <= found.starts <= starts
    assert 2 <= found.refinement <= refinement
    assert first + 1 > budgets[0] ** (1.0 / arity) - 1e-9 or found.coarse == points  # as fine as fits


def test_a_refusal_says_what_it_would_take() -> None:
    graph = FactorGraph.from_scopes({"small": ["x0"], "big": [f"x{i}" for i in range(9)]})
    with pytest.raises(BudgetError, match=r"'big' has 9 variables: with 4 values each.* 262144 entries.*16384.*admm"):
        Resolution.of(graph, 33, 4, 3, 2**14, 2**12)
