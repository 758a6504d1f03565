"""The formulas of max-sum: plain and compiled, sums that leave one out, damping and changes, forbidden values."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.coordination.updates import (
    COMPILED_FROM,
    beliefs,
    damped,
    factor_messages,
    largest_changes,
    normalised,
    numpy_one_pass,
    one_pass_for,
    variable_messages,
)


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


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(shapes, st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]))
@settings(deadline=None)
def test_messages_are_the_formula(shape: tuple[int, ...], n: int, seed: int, forbidden: float) -> None:
    tables, incoming = problem(shape, n, seed, forbidden)
    for axis, message in enumerate(factor_messages(tables, incoming)):
        assert np.allclose(message, by_formula(tables, incoming, axis), atol=1e-12)


@given(shapes, st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]))
@settings(deadline=None)  # the first call compiles
def test_compiled_and_plain_form_give_the_same_bits(
    shape: tuple[int, ...], n: int, seed: int, forbidden: float
) -> None:
    tables, incoming = problem(shape, n, seed, forbidden)
    compiled = one_pass_for(COMPILED_FROM)
    assert compiled is not numpy_one_pass
    plain_messages = factor_messages(tables, incoming, numpy_one_pass)
    for plain, fast in zip(plain_messages, factor_messages(tables, incoming, compiled), strict=True):
        assert plain.tobytes() == fast.tobytes()


@given(shapes, st.integers(2, 5), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_factor_alone_gets_the_same_bits_as_in_a_group(shape: tuple[int, ...], n: int, seed: int) -> None:
    tables, incoming = problem(shape, n, seed, 0.1)
    together = factor_messages(tables, incoming)
    alone = factor_messages(tables[1:2], [message[1:2] for message in incoming])
    for group, single in zip(together, alone, strict=True):
        assert group[1].tobytes() == single[0].tobytes()


@pytest.mark.parametrize("n_entries", [COMPILED_FROM, COMPILED_FROM - 1])
def test_a_message_does_not_depend_on_what_its_recipient_said(n_entries: int) -> None:
    tables, incoming = problem((3, 4, 2), 2, 0, 0.1)
    changed = [incoming[0], np.full_like(incoming[1], 7.0), incoming[2]]
    one, other = (factor_messages(tables, said, one_pass_for(n_entries))[1] for said in (incoming, changed))
    assert one.tobytes() == other.tobytes()


def test_importing_the_room_does_not_load_numba() -> None:
    code = "import sys, swarmbo.coordination.participant; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


entries = st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0])
incoming = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(float, shape, elements=entries)
)


@given(incoming)
@settings(deadline=None)
def test_a_variable_tells_each_factor_what_the_others_say(said: np.ndarray) -> None:
    told = variable_messages(said)
    for k in range(said.shape[1]):
        assert np.array_equal(told[:, k], np.delete(said, k, axis=1).sum(axis=1))


@given(incoming)
@settings(deadline=None)
def test_beliefs_are_the_sum_of_all(said: np.ndarray) -> None:
    assert np.array_equal(beliefs(said), said.sum(axis=1))


@given(incoming)
@settings(deadline=None)
def test_normalised_messages_have_maximum_zero_or_forbid_all(said: np.ndarray) -> None:
    result = normalised(said[:, 0])
    assert not np.isnan(result).any()
    for row, before in zip(result, said[:, 0], strict=True):
        assert row.max() == (0.0 if np.isfinite(before).any() else -np.inf)


def test_damping_mixes_and_what_was_forbidden_stays_so() -> None:
    previous, new = np.array([[0.0, -4.0, -np.inf, 0.0]]), np.array([[-2.0, 0.0, -np.inf, -np.inf]])
    assert damped(previous, new, 0.25).tolist() == [[-1.5, -1.0, -np.inf, -np.inf]]
    assert np.array_equal(damped(previous, new, 0.0), new)


def test_a_change_is_zero_between_equal_infinities_and_infinite_where_a_value_becomes_forbidden() -> None:
    previous = np.array([[0.0, -np.inf], [0.0, 1.0], [-np.inf, -np.inf]])
    new = np.array([[-0.5, -np.inf], [0.0, -np.inf], [-np.inf, -np.inf]])
    assert largest_changes(previous, new).tolist() == [0.5, np.inf, 0.0]
    assert largest_changes(previous[0], new[0]) == 0.5
