"""Joint points put together from few values of each variable: over the whole box first, then ever nearer."""

import numpy as np
import pytest

from swarmbo.coordination.central import Central
from swarmbo.coordination.part import BoxView, LocalView, Part
from swarmbo.coordination.refinement import MOST, narrowed
from swarmbo.graph.box_functions import total_value
from swarmbo.transport import Routes

from .example_sums import CHAIN, ExampleSum

RING = {f"f{i}": [f"x{i}", f"x{(i + 1) % 4}"] for i in range(4)}


class Peaks(ExampleSum):
    """Every factor has a low, wide hill in the middle of the box, and a higher one near a corner of its own."""

    def own(self, factor, X):
        size, rng = self.of_its_own(factor)
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
    """The largest sum on a lattice of n values of each of a few variables, by going through all of them."""
    sides = [np.linspace(a, b, n) for a, b in zip(functions.low, functions.high, strict=True)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))
    return float(total_value(functions, points).max())


@pytest.mark.parametrize("n_starts", [0, 2, 5])
@pytest.mark.parametrize("scopes", [CHAIN, RING], ids=["chain", "ring"])
@pytest.mark.parametrize("box", [(0.0, 1.0), (0.2, 0.7)])
def test_what_is_found_is_as_good_as_the_best_of_a_lattice_of_the_whole_box(scopes, n_starts, box) -> None:
    for seed in range(3):
        functions = Peaks.on_box(scopes, seed, n_starts=n_starts, box=box)
        found = found_of(functions)
        assert ((found >= functions.low) & (found <= functions.high)).all()
        values = total_value(functions, found)
        n_given = min(n_starts, 3)
        np.testing.assert_array_equal(found[len(found) - n_given :], functions.starts[:n_given])
        assert values[0] >= best_of_lattice(functions, 9) - 1e-12


def test_levels_after_the_first_come_nearer() -> None:
    functions = Peaks.on_box(CHAIN, 2)
    values = total_value(functions, found_of(functions))
    assert len(values) == 4  # last level first, and no points were given
    assert values[0] > values[-1]


def test_a_variable_without_a_side_stays_where_it_is() -> None:
    functions = Peaks.on_box(CHAIN, 1, box=(0.4, 0.4))
    np.testing.assert_array_equal(found_of(functions, n_values=7), np.full((4, len(functions.low)), 0.4))


class Waves(ExampleSum):
    """So many maxima that a random value is often the best of those that a variable may take."""

    def own(self, factor, X):
        size, rng = self.of_its_own(factor)
        phase = 60.0 * (X + rng.random(size))
        return np.cos(phase).sum(axis=-1), -60.0 * np.sin(phase)


def test_what_is_drawn_for_a_part_depends_on_no_other_part() -> None:
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
