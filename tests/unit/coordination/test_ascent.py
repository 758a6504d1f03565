"""Simultaneous ascent of many problems: no row waits for, or depends on, another row."""

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.coordination.box_steps import ascend


def hills(rows: np.ndarray, size: int):
    """One rippled hill for each row number, with its own place, steepness and scale."""
    rngs = [np.random.default_rng(int(row)) for row in rows]
    centre = np.array([rng.uniform(-0.2, 1.2, size) for rng in rngs])[:, None, :]
    steep = np.array([10.0 ** rng.uniform(-2.0, 3.0, size) for rng in rngs])[:, None, :]

    def function(X: np.ndarray):
        D = X - centre
        value = -0.5 * (steep * D**2).sum(axis=-1) - 0.1 * (D**4).sum(axis=-1)
        return value, -steep * D - 0.4 * D**3

    return function, centre


@given(
    seed=st.integers(0, 1000),
    size=st.integers(1, 9),
    n_rows=st.integers(2, 5),
    n_points=st.integers(1, 4),
    steps=st.integers(0, 40),
    is_warm=st.booleans(),
)
def test_a_row_is_bit_identical_alone_and_with_other_rows(seed, size, n_rows, n_points, steps, is_warm) -> None:
    rng = np.random.default_rng(seed)
    rows, X = rng.integers(1000, size=n_rows), rng.random((n_rows, n_points, size))
    first = 10.0 ** rng.uniform(-4.0, 1.0, (n_rows, n_points)) if is_warm else None
    low, high = np.zeros((n_rows, 1, size)), np.ones((n_rows, 1, size))
    together = ascend(hills(rows, size)[0], X, low, high, steps, first_step=first)
    for g in range(n_rows):
        own = slice(g, g + 1)
        first_own = None if first is None else first[own]
        alone = ascend(hills(rows[own], size)[0], X[own], low[own], high[own], steps, first_step=first_own)
        for mine, theirs in zip((*alone[:-1], *alone.known), (*together[:-1], *together.known), strict=True):
            assert mine.tobytes() == theirs[own].tobytes()


@given(seed=st.integers(0, 1000), size=st.integers(1, 4), steps=st.integers(0, 20))
def test_values_never_fall_and_points_stay_in_the_box(seed, size, steps) -> None:
    rng = np.random.default_rng(seed)
    function, _ = hills(rng.integers(1000, size=3), size)
    X = rng.random((3, 2, size))
    low, high = np.full((3, 1, size), 0.0), np.full((3, 1, size), 1.0)
    climbed = ascend(function, X, low, high, steps)
    assert (climbed.value >= function(X)[0]).all()
    assert (climbed.value == function(climbed.X)[0]).all()
    assert np.array_equal(climbed.X, np.clip(climbed.X, low, high))


def test_enough_steps_end_at_the_nearest_point_to_the_top() -> None:
    function, centre = hills(np.arange(20), 1)
    X = np.random.default_rng(0).random((20, 3, 1))
    climbed = ascend(function, X, np.zeros((20, 1, 1)), np.ones((20, 1, 1)), 200)
    np.testing.assert_allclose(climbed.X, np.broadcast_to(np.clip(centre, 0.0, 1.0), X.shape), atol=1e-6)


def test_an_ascent_can_continue_with_the_last_step_lengths() -> None:
    """Near the maximum, a first step of a tenth of the box is far too long; the last step length is right."""
    function, centre = hills(np.array([1]), 1)
    low, high = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    centre = np.clip(centre, 0.0, 1.0)
    warm = ascend(function, np.full((1, 1, 1), 0.5), low, high, 6)
    X = np.clip(centre - 1e-5, 0.0, 1.0)
    continued = ascend(function, X, low, high, 3, first_step=warm.step)
    restarted = ascend(function, X, low, high, 3)
    assert abs(continued.X - centre).max() < 1e-7 < abs(restarted.X - centre).max()


def test_a_first_step_never_goes_beyond_half_the_box() -> None:
    asked: list[np.ndarray] = []

    def slope(X: np.ndarray):
        asked.append(X)
        return X.sum(axis=-1), np.ones_like(X)

    box = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    ascend(slope, np.full((1, 1, 1), 0.25), *box, 1, first_step=np.full((1, 1), 100.0))
    assert asked[1].item() == 0.75
