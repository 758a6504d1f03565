"""When messages on a tree are final."""

import networkx as nx
from hypothesis import given, settings, strategies as st

from swarmbo.coordination.tree_schedule import tree_levels
from swarmbo.graph import FactorGraph


@st.composite
def trees(draw: st.DrawFn) -> FactorGraph:
    """One connected part without loops: each new factor shares one variable with those before."""
    scopes: dict[str, list[str]] = {}
    n = 1
    for k in range(draw(st.integers(1, 8))):
        n_new = draw(st.integers(0, 2))
        shared = f"x{draw(st.integers(0, n - 1))}"
        scopes[f"f{k}"] = draw(st.permutations([shared, *(f"x{n + i}" for i in range(n_new))]))
        n += n_new
    return FactorGraph.from_scopes(scopes)


@given(trees())
@settings(deadline=None)
def test_rounds_are_half_the_longest_path_rounded_up(graph: FactorGraph) -> None:
    assert len(tree_levels(graph)) == -(-nx.diameter(graph.to_networkx()) // 2)


@given(trees())
@settings(deadline=None)
def test_every_message_is_sent_once_and_after_all_that_it_depends_on(graph: FactorGraph) -> None:
    from_variables: set[tuple[str, str]] = set()
    from_factors: set[tuple[str, str]] = set()
    for level in tree_levels(graph):
        for x, factors in level.from_variables:
            for f in factors:
                assert (x, f) not in from_variables
                assert all((g, x) in from_factors for g in graph.factors_of(x) if g != f)
        from_variables.update((x, f) for x, factors in level.from_variables for f in factors)
        for f, variables in level.from_factors:
            for x in variables:
                assert (f, x) not in from_factors
                assert all((y, f) in from_variables for y in graph.scope(f) if y != x)
        from_factors.update((f, x) for f, variables in level.from_factors for x in variables)
    assert from_factors == {(f, x) for f in graph.factors for x in graph.scope(f)}
    assert from_variables == {(x, f) for f in graph.factors for x in graph.scope(f) if len(graph.scope(f)) > 1}
