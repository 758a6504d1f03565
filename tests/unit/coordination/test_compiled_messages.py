"""Compiled messages of max-sum and their layout, compared with the formula; damping and changes."""

import subprocess
import sys

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.coordination import compiled_messages as compiled
from swarmbo.coordination.flooding import Flooding, damped, largest_changes, messages_of_factor, messages_of_variable
from swarmbo.coordination.tables import factor_values, sizes_of, spreads
from swarmbo.graph import FactorGraph

from .example_tables import some_problem


def problem(shape: tuple[int, ...], n: int, seed: int, forbidden: float) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(n, *shape))
    incoming = [rng.normal(size=(n, d)) for d in shape]
    for array in (tables, *incoming):
        array[rng.random(array.shape) < forbidden] = -np.inf
    return tables, incoming


def by_formula(tables: np.ndarray, incoming: list[np.ndarray], axis: int) -> np.ndarray:
    others = [k for k in range(len(incoming)) if k != axis]
    for k in others:
        tables = tables + np.expand_dims(incoming[k], [j + 1 for j in range(len(incoming)) if j != k])
    return tables.max(axis=tuple(k + 1 for k in others))


# Few and many values, just below and above the length of one step over a row: each has its own code path.
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


seeds, shares = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0])


@given(any_shape, st.integers(1, 4), seeds, shares, st.sampled_from([0.0, 0.25]))
@settings(deadline=None)  # the first call compiles
def test_messages_of_factors_and_their_changes_are_those_of_the_formula(
    shape: tuple[int, ...], n: int, seed: int, forbidden: float, damping: float
) -> None:
    tables, incoming = problem(shape, n, seed, forbidden)
    starts, rng = np.cumsum([0, *(message.size for message in incoming)])[:-1], np.random.default_rng(seed)
    received = np.concatenate([message.ravel() for message in incoming])
    previous, out, spreads = rng.normal(size=received.shape), np.full(received.shape, np.nan), rng.uniform(0.5, 2.0, n)
    previous[rng.random(previous.shape) < forbidden / 2] = -np.inf
    change = compiled.renew_factors(tables, starts, received, previous, spreads, damping, out)
    changes = [0.0]
    for axis, (before, sent) in enumerate(zip(*(by_axis(x, starts, tables) for x in (previous, out)), strict=True)):
        wanted = damped(before, normalised(by_formula(tables, incoming, axis)), damping)
        np.testing.assert_allclose(sent, wanted, rtol=0.0, atol=1e-12)
        changes.append(float((largest_changes(before, sent) / spreads).max()))
    assert change == max(changes)


@given(st.integers(1, 5), st.integers(1, 6), lengths, seeds, shares)
def test_variables_send_and_choose_the_same_together_and_one_by_one(
    n: int, degree: int, size: int, seed: int, forbidden: float
) -> None:
    rng = np.random.default_rng(seed)
    received = rng.integers(-3, 3, n * degree * size) / 3.0  # with ties
    received[rng.random(received.shape) < forbidden] = -np.inf
    starts, sent = rng.permutation(n * degree).reshape(n, degree) * size, np.full(received.shape, np.nan)
    chosen = compiled.renew_variables(starts, size, received, sent)
    graph = FactorGraph.from_scopes({f"f{k}": ["x"] for k in range(degree)})
    for own, choice in zip(starts, chosen, strict=True):
        incoming = [received[start : start + size] for start in own]
        wanted = messages_of_variable(graph, "x", size, {(f"f{k}", "x"): one for k, one in enumerate(incoming)})
        assert np.array_equal([sent[start : start + size] for start in own], list(wanted.values()))
        assert choice == np.add.accumulate(incoming)[-1].argmax()


def test_importing_the_package_does_not_load_numba() -> None:
    code = "import sys, swarmbo.coordination.participant; sys.exit('numba' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


some_rows = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(float, shape, elements=st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0]))
)


@given(some_rows)
def test_a_variable_sends_each_factor_the_sum_of_the_messages_from_other_factors(sent: np.ndarray) -> None:
    _, degree, size = sent.shape
    graph = FactorGraph.from_scopes({f"f{k}": ["x"] for k in range(degree)})
    for row in sent:
        received = {(f"f{k}", "x"): row[k] for k in range(degree) if row[k].any()}  # a missing message counts as zero
        found = messages_of_variable(graph, "x", size, received)
        for k in range(degree):
            assert np.array_equal(found[f"f{k}"], np.delete(row, k, axis=0).sum(axis=0))


def test_damping_mixes_messages_and_forbidden_values_stay_forbidden() -> None:
    previous, new = np.array([[0.0, -4.0, -np.inf, 0.0]]), np.array([[-2.0, 0.0, -np.inf, -np.inf]])
    assert damped(previous, new, 0.25).tolist() == [[-1.5, -1.0, -np.inf, -np.inf]]
    assert np.array_equal(damped(previous, new, 0.0), new)


def test_a_change_is_zero_between_equal_infinities_and_infinite_where_a_value_becomes_forbidden() -> None:
    previous = np.array([[0.0, -np.inf], [0.0, 1.0], [-np.inf, -np.inf]])
    new = np.array([[-0.5, -np.inf], [0.0, -np.inf], [-np.inf, -np.inf]])
    assert largest_changes(previous, new).tolist() == [0.5, np.inf, 0.0]
    assert largest_changes(previous[0], new[0]) == 0.5


# The layout of all messages of a graph, for a whole graph and for a share of it.


@given(seeds, st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_messages_in_the_layout_are_those_computed_one_by_one(
    seed: int, n_factors: int, n_variables: int, is_whole: bool
):
    rng = np.random.default_rng(seed)
    graph, tables = some_problem(rng, n_variables, n_factors, forbidden=0.1)
    sizes = sizes_of(graph, tables)
    factors = [f for f in graph.factors if is_whole or rng.random() < 0.5]
    variables = [x for x in graph.variables if is_whole or rng.random() < 0.5]
    flooding = Flooding(graph, {f: tables[f] for f in factors}, variables, sizes)
    edges = {(f, x) for f in graph.factors for x in graph.scope(f) if f in factors or x in variables}
    assert flooding.n_entries == sum(sizes[x] for _, x in edges)
    received, previous, sent = (rng.normal(size=flooding.n_entries) for _ in range(3))
    from_factors, before, from_variables = map(flooding.by_edge, (received, previous, sent))
    assert from_factors.keys() == edges

    outgoing, chosen = flooding.from_variables(received)
    for x in variables:
        wanted = messages_of_variable(graph, x, sizes[x], from_factors)
        assert all(same(flooding.message(outgoing, f, x), wanted[f]) for f in graph.factors_of(x))
        summed = np.add.accumulate([from_factors[f, x] for f in graph.factors_of(x)])[-1]
        assert chosen[graph.column_of[x]] == summed.argmax()
    assert not chosen[[graph.column_of[x] for x in graph.variables if x not in variables]].any()

    renewed, change = flooding.from_factors(previous, sent, 0.3)
    changes = [0.0]
    for f in factors:
        for x, message in messages_of_factor(graph, f, tables[f], from_variables).items():
            wanted = damped(before[f, x], message, 0.3)
            assert same(flooding.message(renewed, f, x), wanted)
            received = [spreads(from_variables[f, y][None])[0] for y in graph.scope(f)]
            if (change_of := float(largest_changes(before[f, x], wanted))) > 0.0:
                unit = float(spreads(tables[f][None])[0]) or max(received)
                changes.append(change_of / unit if unit else np.inf)
    assert change == max(changes)

    if factors:
        choices = {x: int(rng.integers(sizes[x])) for x in graph.variables}
        wanted = factor_values(graph, tables, choices)[[graph.place_of[f] for f in factors]]
        assert same(flooding.values(np.array([choices[x] for x in graph.variables])), wanted)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two arrays are equal bit for bit, except for signs of zero."""
    return one.shape == other.shape and np.array_equal(one, other)
