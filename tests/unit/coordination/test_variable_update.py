"""Sums that leave one out, normalisation, damping and changes, with forbidden values."""

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.coordination.variable_update import beliefs, damped, largest_change, normalised, variable_messages

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
    assert largest_change(np.array([0.0, -np.inf]), np.array([-0.5, -np.inf])) == 0.5
    assert largest_change(np.array([0.0, 1.0]), np.array([0.0, -np.inf])) == np.inf
    assert largest_change(np.array([-np.inf]), np.array([-np.inf])) == 0.0
