"""Grids around an incumbent, and joint points that are combined from them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination import refinement
from swarmbo.coordination.central import Central
from swarmbo.coordination.part import BoxView, LocalView, Part
from swarmbo.coordination.refinement import MOST, Resolution, coarse_values, is_at_edge, narrowed, window_values
from swarmbo.errors import BudgetError, ShapeError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.transport import Routes

from .example_sums import CHAIN, ExampleSum
from .example_tables import ring

unit = st.floats(0.0, 1.0)


def tables(functions, stack, values, received, **more) -> np.ndarray:
    return refinement.tables(functions, stack, values, values.shape[1:] * stack.size, received, **more)


class Climbing:
    """Functions with two phases of exchange, where agents maximise something other than the value."""

    n_exchanges = 2

    def value_and_gradient(self, stack, U, received):
        return U.sum(axis=-1) + 10.0 * received[0] + 100.0 * received[1], np.zeros_like(U)


def window(x: float, spacing: float, points: int) -> np.ndarray:
    return window_values(*(np.array([value]) for value in (x, 0.0, 1.0, spacing)), points)[0]


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


def test_received_numbers_are_fixed_over_a_table() -> None:
    stack = FactorStack(("f", "g"), np.array([[0], [1]]))
    found = tables(
        Climbing(), stack, np.array([[0.0, 0.5], [0.25, 0.75]]), (np.array([[1.0], [3.0]]), np.array([[2.0], [4.0]]))
    )
    assert found.tolist() == [[210.0, 210.5], [430.25, 430.75]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_reported_with_its_factor_and_point(bad) -> None:
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
    """Factors that depend on the order of their variables, and are weighted by what they receive."""

    def own(self, factor, X):
        return X @ 10.0 ** np.arange(X.shape[-1]) + self.graph.factors.index(factor), np.zeros_like(X)


@pytest.mark.parametrize("coupling", [0.0, 0.5])
def test_factors_of_one_stack_have_tables_of_their_own_shapes(coupling) -> None:
    functions = Weighed.on_box({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}, coupling=coupling)
    view = BoxView.on(LocalView.of(Part(functions.graph, 0, Routes(functions.graph.agents))), functions)
    rng, counts, (stack,) = np.random.default_rng(0), {"x": 2, "y": 3, "z": 3}, view.stacks
    values, received = rng.random((3, 3)), tuple(rng.random((functions.n_exchanges, 3, 1)))
    found = refinement.tabulated(view, values, [received], counts)
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


# Joint points combined from few values per variable: over the whole box first, then closer and closer.


class Peaks(ExampleSum):
    """Every factor has a low, wide hill in the middle of the box, and a higher one near a random corner."""

    def own(self, factor, X):
        size, rng = self.size_and_rng(factor)
        corner = rng.integers(0, 2, size).astype(float)
        value, slope = np.zeros(X.shape[:-1]), np.zeros(X.shape)
        for height, width, centre in ((1.0, 0.3, np.full(size, 0.5)), (1.0 + size, 0.2, corner)):
            away = (X - centre) / width
            own = height * np.exp(-0.5 * (away**2).sum(axis=-1))
            value, slope = value + own, slope - own[..., None] * away / width
        return value, slope


def found_of(functions, seed=0, n_values=MOST):
    graph = functions.graph
    part = Part(graph, 0, Routes(graph.agents, None))
    view = BoxView.on(LocalView.of(part), functions)
    return Central(part).run(narrowed(view, seed, n_values))


def best_of_lattice(functions, n):
    """The largest sum on a lattice of n values per variable, by enumeration, for few variables."""
    sides = [np.linspace(a, b, n) for a, b in zip(functions.low, functions.high, strict=True)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))
    return float(total_value(functions, points).max())


@pytest.mark.parametrize("n_starts", [0, 2, 5])
@pytest.mark.parametrize("scopes", [CHAIN, ring(4)], ids=["chain", "ring"])
@pytest.mark.parametrize("box", [(0.0, 1.0), (0.2, 0.7)])
def test_the_result_is_as_good_as_the_best_of_a_lattice_of_the_whole_box(scopes, n_starts, box) -> None:
    for seed in range(3):
        functions = Peaks.on_box(scopes, seed, n_starts=n_starts, box=box)
        found = found_of(functions)
        assert ((found >= functions.low) & (found <= functions.high)).all()
        values = total_value(functions, found)
        n_given = min(n_starts, 3)
        np.testing.assert_array_equal(found[len(found) - n_given :], functions.starts[:n_given])
        assert values[0] >= best_of_lattice(functions, 9) - 1e-12


def test_the_last_level_is_better_than_the_first() -> None:
    functions = Peaks.on_box(CHAIN, 2)
    values = total_value(functions, found_of(functions))
    assert len(values) == 4  # last level first, and no points were given
    assert values[0] > values[-1]


def test_variables_without_a_range_stay_where_they_are() -> None:
    functions = Peaks.on_box(CHAIN, 1, box=(0.4, 0.4))
    np.testing.assert_array_equal(found_of(functions, n_values=7), np.full((4, len(functions.low)), 0.4))


class Waves(ExampleSum):
    """So many maxima that a random value is often the best of those that a variable may take."""

    def own(self, factor, X):
        size, rng = self.size_and_rng(factor)
        phase = 60.0 * (X + rng.random(size))
        return np.cos(phase).sum(axis=-1), -60.0 * np.sin(phase)


def test_random_values_of_a_part_do_not_depend_on_other_parts() -> None:
    more = {**CHAIN, "g": ["y", "z"], "h": ["z", "y"]}
    one, both = Waves.on_box(CHAIN, 3), Waves.on_box(more, 3)
    (part,) = (
        Part(own, i, Routes(both.graph.agents, None))
        for i, own in enumerate(both.graph.components)
        if "f0" in own.factors
    )
    found = Central(part).run(narrowed(BoxView.on(LocalView.of(part), both), 7, MOST))
    columns = [both.graph.column_of[x] for x in one.graph.variables]
    np.testing.assert_array_equal(found[:, columns], found_of(one, 7))
    assert (found_of(one, 8) != found_of(one, 7)).any()
