import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief import AdditiveGP
from swarmbo.graph import FactorGraph, stacks_of

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c"]})


def data(t, way, seed=0):
    rng = np.random.default_rng(seed)
    X, totals, factors = rng.random((t, 3)), rng.normal(size=t), rng.normal(size=(t, 3))
    if way == "total":
        factors[:] = np.nan
    elif way == "per-factor":
        totals[:] = np.nan
    factors[rng.random((t, 3)) < 0.3] = np.nan
    return X, totals, factors


@settings(max_examples=30, deadline=None)
@given(way=st.sampled_from(["total", "per-factor", "mixed"]), steps=st.lists(st.integers(1, 4), max_size=6))
def test_a_grid_that_follows_the_data_equals_the_posterior_there(way, steps):
    rng = np.random.default_rng(1)
    belief = AdditiveGP(GRAPH, noise_variance=1e-3, outputscale={"f": 1.0, "g": 2.0, "h": 0.5}, mean=3.0)
    X, totals, factors = data(sum(steps), way)
    stacks = stacks_of(GRAPH)
    U = [rng.random((len(stack.factors), 20, stack.size)) for stack in stacks]
    grids, t = [belief.on_grid(stack, points) for stack, points in zip(stacks, U, strict=True)], 0
    for step in steps:
        rows = slice(t, t + step)
        belief, t = belief.update(X[rows], totals=totals[rows], factors=factors[rows]), t + step
        grids = [belief.on_grid(*given) for given in zip(stacks, U, grids, strict=True)]
    for stack, points, grid in zip(stacks, U, grids, strict=True):
        expected = belief.local(stack, points)
        np.testing.assert_allclose(grid.mean, expected.mean, rtol=0.0, atol=1e-11)
        np.testing.assert_allclose(grid.var, expected.var, rtol=0.0, atol=1e-11)


def test_two_beliefs_that_go_on_from_one_do_not_write_over_each_other():
    belief = AdditiveGP(GRAPH, noise_variance=1e-3)
    X, totals, _ = data(12, "total")
    (_, stack) = stacks_of(GRAPH)
    U = np.random.default_rng(1).random((2, 15, 2))
    belief = belief.update(X[:5], totals[:5])
    belief = belief.update(X[5:6], totals[5:6])
    grid = belief.on_grid(stack, U, belief.on_grid(stack, U))
    grid = belief.update(X[6:7], totals[6:7]).on_grid(stack, U, grid)  # makes a buffer with room
    base = belief.update(X[6:7], totals[6:7])
    one, other = base.update(X[7:8], totals[7:8]), base.update(X[8:9], totals[8:9])
    one_grid, other_grid = one.on_grid(stack, U, grid), other.on_grid(stack, U, grid)
    both_grid = one.update(X[9:11], totals[9:11]).on_grid(stack, U, one_grid)
    np.testing.assert_allclose(grid.var, base.local(stack, U).var, atol=1e-12)
    np.testing.assert_allclose(one_grid.var, one.local(stack, U).var, atol=1e-12)
    np.testing.assert_allclose(other_grid.var, other.local(stack, U).var, atol=1e-12)
    assert one_grid.whitened[0].array is grid.whitened[0].array
    assert other_grid.whitened[0].array is not grid.whitened[0].array
    np.testing.assert_allclose(both_grid.mean, one.update(X[9:11], totals[9:11]).local(stack, U).mean, atol=1e-12)


@pytest.mark.parametrize("change", ["refit", "pending that brought news", "other grid"])
def test_a_grid_is_worked_out_again_where_more_than_data_changed(change):
    belief = AdditiveGP(GRAPH, noise_variance=1e-3).update(*data(9, "total")[:2])
    (_, stack) = stacks_of(GRAPH)
    U = np.random.default_rng(1).random((2, 15, 2))
    X, totals, _ = data(2, "total", seed=5)
    if change == "refit":
        grid = belief.on_grid(stack, U)
        belief = belief.fit(np.random.default_rng(0))
    elif change == "other grid":
        grid, U = belief.on_grid(stack, U), U[:, ::-1].copy()
    else:
        waiting, grid = belief.condition_on_pending(X), belief.on_grid(stack, U)
        for pending in (waiting.on_grid(stack, U), waiting.on_grid(stack, U, grid)):
            np.testing.assert_allclose(pending.mean, grid.mean, atol=1e-11)
            np.testing.assert_allclose(pending.var, waiting.local(stack, U).var, atol=1e-11)
        grid, belief = waiting.on_grid(stack, U), belief.update(X, totals)
    grid = belief.on_grid(stack, U, grid)
    np.testing.assert_allclose(grid.mean, belief.local(stack, U).mean, atol=1e-11)
    np.testing.assert_allclose(grid.var, belief.local(stack, U).var, atol=1e-11)
