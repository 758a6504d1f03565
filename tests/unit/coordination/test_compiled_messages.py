"""Compiled messages of max-sum, held to the formula; sums that leave one out, damping, changes, forbidden values."""

import subprocess
import sys

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.coordination import compiled_messages as compiled
from swarmbo.coordination.flooding import damped, largest_changes, messages_of_variable
from swarmbo.graph import FactorGraph


def problem(shape: tuple[int, ...], n: int, seed: int, forbidden: float) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(n, *shape))
    incoming = [rng.normal(size=(n, d)) for d in shape]
    for array in (tables, *incoming):
        array[rng.random(array.shape) < forbidden] = -np.inf
    return tables, incoming


def by_formula(tables: np.ndarray, incoming: list[np.ndarray], axis: int) -> np.ndarray:
    n_axes = len(incoming)
    summed = tables
    for k, message in enumerate(incoming):
        if k != axis:
            shape = [len(tables)] + [1] * n_axes
            shape[k + 1] = -1
            summed = summed + message.reshape(shape)
    return summed.max(axis=tuple(k + 1 for k in range(n_axes) if k != axis))


# Few values and many, just below and above what one step over a row takes: all of them are roads of their own.
lengths = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 65])
any_shape = st.lists(lengths, min_size=1, max_size=5).map(tuple).filter(lambda shape: np.prod(shape) <= 20_000)


def by_axis(entries: np.ndarray, starts: np.ndarray, tables: np.ndarray) -> list[np.ndarray]:
    """Messages (n, d) by axis, of factors of one shape, whose messages lie end to end from ``starts`` on."""
    n, *shape = tables.shape
    return [entries[start : start + n * size].reshape(n, size) for start, size in zip(starts, shape, strict=True)]


def normalised(messages: np.ndarray) -> np.ndarray:
    """Messages less their maximum; those that forbid every value stay as they are."""
    highest = messages.max(axis=-1, keepdims=True)
    return messages - np.where(highest > -np.inf, highest, 0.0)


@given(
    any_shape,
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.25]),
)
@settings(deadline=None)  # the first call compiles
def test_factors_say_what_the_formula_says_and_by_how_much_that_changed(
    shape: tuple[int, ...], n: int, seed: int, forbidden: float, damping: float
) -> None:
    tables, incoming = problem(shape, n, seed, forbidden)
    starts, rng = np.cumsum([0, *(message.size for message in incoming)])[:-1], np.random.default_rng(seed)
    heard = np.concatenate([message.ravel() for message in incoming])
    previous, out, spreads = rng.normal(size=heard.shape), np.full(heard.shape, np.nan), rng.uniform(0.5, 2.0, n)
    previous[rng.random(previous.shape) < forbidden / 2] = -np.inf
    change = compiled.renew_factors(tables, starts, heard, previous, spreads, damping, out)
    changes = [0.0]
    for axis, (before, said) in enumerate(zip(*(by_axis(x, starts, tables) for x in (previous, out)), strict=True)):
        wanted = damped(before, normalised(by_formula(tables, incoming, axis)), damping)
        np.testing.assert_allclose(said, wanted, rtol=0.0, atol=1e-12)
        changes.append(float((largest_changes(before, said) / spreads).max()))
    assert change == max(changes)


@given(st.integers(1, 5), st.integers(1, 6), lengths, st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]))
def test_variables_say_and_choose_the_same_many_at_once_and_one_by_one(
    n: int, degree: int, size: int, seed: int, forbidden: float
) -> None:
    rng = np.random.default_rng(seed)
    heard = rng.integers(-3, 3, n * degree * size) / 3.0  # with ties
    heard[rng.random(heard.shape) < forbidden] = -np.inf
    starts, said = rng.permutation(n * degree).reshape(n, degree) * size, np.full(heard.shape, np.nan)
    chosen = compiled.renew_variables(starts, size, heard, said)
    graph = FactorGraph.from_scopes({f"f{k}": ["x"] for k in range(degree)})
    for own, choice in zip(starts, chosen, strict=True):
        told = [heard[start : start + size] for start in own]
        wanted = messages_of_variable(graph, "x", size, {(f"f{k}", "x"): one for k, one in enumerate(told)})
        assert np.array_equal([said[start : start + size] for start in own], list(wanted.values()))
        assert choice == np.add.accumulate(told)[-1].argmax()


def test_importing_the_room_does_not_load_numba() -> None:
    code = "import sys, swarmbo.coordination.participant; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


entries = st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0])
incoming = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(float, shape, elements=entries)
)


@given(incoming)
def test_a_variable_tells_each_factor_what_the_others_say(said: np.ndarray) -> None:
    _, degree, size = said.shape
    graph = FactorGraph.from_scopes({f"f{k}": ["x"] for k in range(degree)})
    for row in said:
        heard = {(f"f{k}", "x"): row[k] for k in range(degree) if row[k].any()}  # none counts as zero
        found = messages_of_variable(graph, "x", size, heard)
        for k in range(degree):
            assert np.array_equal(found[f"f{k}"], np.delete(row, k, axis=0).sum(axis=0))


def test_damping_mixes_and_what_was_forbidden_stays_so() -> None:
    previous, new = np.array([[0.0, -4.0, -np.inf, 0.0]]), np.array([[-2.0, 0.0, -np.inf, -np.inf]])
    assert damped(previous, new, 0.25).tolist() == [[-1.5, -1.0, -np.inf, -np.inf]]
    assert np.array_equal(damped(previous, new, 0.0), new)


def test_a_change_is_zero_between_equal_infinities_and_infinite_where_a_value_becomes_forbidden() -> None:
    previous = np.array([[0.0, -np.inf], [0.0, 1.0], [-np.inf, -np.inf]])
    new = np.array([[-0.5, -np.inf], [0.0, -np.inf], [-np.inf, -np.inf]])
    assert largest_changes(previous, new).tolist() == [0.5, np.inf, 0.0]
    assert largest_changes(previous[0], new[0]) == 0.5
