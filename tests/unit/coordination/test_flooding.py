"""The layout of all messages of a graph: held to messages made one by one, for a whole graph and for a share of it."""

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.coordination.flooding import Flooding, damped, largest_changes, messages_of_factor, messages_of_variable
from swarmbo.coordination.tables import factor_values, spreads
from swarmbo.graph import FactorGraph

DAMPING = 0.3


def draw(rng: np.random.Generator, n_factors: int, n_variables: int) -> tuple[FactorGraph, dict[str, np.ndarray]]:
    """Any graph, loops, equal scopes and variables in one factor only included; some entries forbidden."""
    scopes: dict[str, list[str]] = {}
    for i in range(n_factors):
        count = rng.integers(1, min(n_variables, 4) + 1)
        scopes[f"f{i}"] = [f"x{x}" for x in rng.choice(n_variables, count, replace=False)]
    graph = FactorGraph.from_scopes(scopes)
    sizes = {x: int(rng.integers(1, 4)) for x in graph.variables}
    tables = {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}
    for table in tables.values():
        table[rng.random(table.shape) < 0.1] = -np.inf
    return graph, tables


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_messages_laid_out_are_those_made_one_by_one(
    seed: int, n_factors: int, n_variables: int, is_whole: bool
) -> None:
    rng = np.random.default_rng(seed)
    graph, tables = draw(rng, n_factors, n_variables)
    sizes = {x: n for f in graph.factors for x, n in zip(graph.scope(f), tables[f].shape, strict=True)}
    factors = [f for f in graph.factors if is_whole or rng.random() < 0.5]
    variables = [x for x in graph.variables if is_whole or rng.random() < 0.5]
    flooding = Flooding(graph, {f: tables[f] for f in factors}, variables, sizes)
    edges = {(f, x) for f in graph.factors for x in graph.scope(f) if f in factors or x in variables}
    assert flooding.n_entries == sum(sizes[x] for _, x in edges)
    heard, previous, said = (rng.normal(size=flooding.n_entries) for _ in range(3))
    from_factors, before, from_variables = map(flooding.by_edge, (heard, previous, said))
    assert from_factors.keys() == edges

    told, chosen = flooding.from_variables(heard)
    for x in variables:
        wanted = messages_of_variable(graph, x, sizes[x], from_factors)
        assert all(same(flooding.message(told, f, x), wanted[f]) for f in graph.factors_of(x))
        summed = np.add.accumulate([from_factors[f, x] for f in graph.factors_of(x)])[-1]
        assert chosen[graph.column_of[x]] == summed.argmax()
    assert not chosen[[graph.column_of[x] for x in graph.variables if x not in variables]].any()

    renewed, change = flooding.from_factors(previous, said, DAMPING)
    changes = [0.0]
    for f in factors:
        for x, message in messages_of_factor(graph, f, tables[f], from_variables).items():
            wanted = damped(before[f, x], message, DAMPING)
            assert same(flooding.message(renewed, f, x), wanted)
            changes.append(float(largest_changes(before[f, x], wanted) / spreads(tables[f][None])[0]))
    assert change == max(changes)

    if factors:
        choices = {x: int(rng.integers(sizes[x])) for x in graph.variables}
        wanted = factor_values(graph, tables, choices)[[graph.place_of[f] for f in factors]]
        assert same(flooding.values(np.array([choices[x] for x in graph.variables])), wanted)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """To the bit, but for the sign of zero."""
    return one.shape == other.shape and np.array_equal(one, other)
