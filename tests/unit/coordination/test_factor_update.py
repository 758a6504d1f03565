"""The kernel of max-sum, plain and compiled, against the formula."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.coordination.factor_update import COMPILED_FROM, factor_messages, numpy_one_pass, one_pass_for


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
    code = (
        "import sys, swarmbo.coordination, swarmbo.agent; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
