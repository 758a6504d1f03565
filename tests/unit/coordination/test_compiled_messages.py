"""Compiled messages of max-sum, held to a plain form; sums that leave one out, damping, changes, forbidden values."""

import subprocess
import sys
from types import ModuleType

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.coordination import compiled_messages as compiled
from swarmbo.coordination.flooding import damped, largest_changes, messages_of_variable
from swarmbo.graph import FactorGraph

from . import plain_messages as plain
from .plain_messages import by_axis, normalised, variable_messages


def problem(shape: tuple[int, ...], n: int, seed: int, forbidden: float) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(n, *shape))
    incoming = [rng.normal(size=(n, d)) for d in shape]
    for array in (tables, *incoming):
        array[rng.random(array.shape) < forbidden] = -np.inf
    return tables, incoming


def normalised_messages(tables: np.ndarray, incoming: list[np.ndarray]) -> list[np.ndarray]:
    starts = np.cumsum([0, *(message.size for message in incoming)])[:-1]
    said = np.concatenate([message.ravel() for message in incoming])
    out = np.empty_like(said)
    compiled.renew_factors(tables, starts, said, said, np.ones(len(tables)), 0.0, out)
    return by_axis(out, starts, tables)


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


def renewed_factors(
    form: ModuleType, shape: tuple[int, ...], n: int, seed: int, forbidden: float, damping: float
) -> tuple[float, np.ndarray]:
    tables, incoming = problem(shape, n, seed, forbidden)
    starts = np.cumsum([0, *(message.size for message in incoming)])[:-1]
    rng = np.random.default_rng(seed)
    previous = rng.normal(size=sum(message.size for message in incoming))
    previous[rng.random(previous.shape) < forbidden / 2] = -np.inf
    if damping:
        previous[rng.random(previous.shape) < 0.2] = 0.0
    flat, out = np.concatenate([message.ravel() for message in incoming]), np.full(previous.shape, np.nan)
    change = form.renew_factors(tables, starts, flat, previous, rng.uniform(0.5, 2.0, n), damping, out)
    return change, out


@given(
    any_shape,
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.25]),
)
@settings(deadline=None)  # the first call compiles
def test_compiled_and_plain_factors_give_the_same_bits(
    shape: tuple[int, ...], n: int, seed: int, forbidden: float, damping: float
) -> None:
    slow, fast = (renewed_factors(form, shape, n, seed, forbidden, damping) for form in (plain, compiled))
    assert slow[0] == fast[0]
    assert slow[1].tobytes() == fast[1].tobytes()


@given(any_shape, st.integers(1, 3), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]))
def test_compiled_messages_are_the_formula(shape: tuple[int, ...], n: int, seed: int, forbidden: float) -> None:
    tables, incoming = problem(shape, n, seed, forbidden)
    for axis, message in enumerate(normalised_messages(tables, incoming)):
        assert np.allclose(message, normalised(by_formula(tables, incoming, axis)), atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 6), lengths, st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]))
def test_compiled_and_plain_variables_say_and_choose_the_same(
    n: int, degree: int, size: int, seed: int, forbidden: float
) -> None:
    rng = np.random.default_rng(seed)
    said = rng.integers(-3, 3, n * degree * size) / 3.0  # with ties
    said[rng.random(said.shape) < forbidden] = -np.inf
    starts = rng.permutation(n * degree).reshape(n, degree) * size
    told = {form: np.full(said.shape, np.nan) for form in (plain, compiled)}
    slow, fast = (form.renew_variables(starts, size, said, out) for form, out in told.items())
    assert slow.tolist() == fast.tolist()
    slow, fast = (out.tobytes() for out in told.values())
    assert slow == fast


def test_importing_the_room_does_not_load_numba() -> None:
    code = "import sys, swarmbo.coordination.participant; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


entries = st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0])
incoming = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(float, shape, elements=entries)
)


@given(incoming)
def test_a_variable_tells_each_factor_what_the_others_say(said: np.ndarray) -> None:
    told, (_, degree, size) = variable_messages(said), said.shape
    graph = FactorGraph.from_scopes({f"f{k}": ["x"] for k in range(degree)})
    for k in range(degree):
        assert np.array_equal(told[:, k], np.delete(said, k, axis=1).sum(axis=1))
    for row, wanted in zip(said, told, strict=True):
        heard = {(f"f{k}", "x"): row[k] for k in range(degree) if row[k].any()}  # none counts as zero
        found = messages_of_variable(graph, "x", size, heard)
        assert np.array_equal([found[f"f{k}"] for k in range(degree)], wanted)


def test_damping_mixes_and_what_was_forbidden_stays_so() -> None:
    previous, new = np.array([[0.0, -4.0, -np.inf, 0.0]]), np.array([[-2.0, 0.0, -np.inf, -np.inf]])
    assert damped(previous, new, 0.25).tolist() == [[-1.5, -1.0, -np.inf, -np.inf]]
    assert np.array_equal(damped(previous, new, 0.0), new)


def test_a_change_is_zero_between_equal_infinities_and_infinite_where_a_value_becomes_forbidden() -> None:
    previous = np.array([[0.0, -np.inf], [0.0, 1.0], [-np.inf, -np.inf]])
    new = np.array([[-0.5, -np.inf], [0.0, -np.inf], [-np.inf, -np.inf]])
    assert largest_changes(previous, new).tolist() == [0.5, np.inf, 0.0]
    assert largest_changes(previous[0], new[0]) == 0.5
