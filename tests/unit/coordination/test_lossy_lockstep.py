"""Methods that wait for every message, over links with faults: the same decisions, or a status that says why not."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.coordination.methods.refined import RefinedMaxSum
from swarmbo.coordination.participant import maximise_with_agents, solve_with_agents
from swarmbo.testing.coordinator import Bowls, graphs
from swarmbo.transport import Cut, Event, Faults, InProcess

GRAPHS = {name: (graph, links) for name, graph, links in graphs()}
LOSSY = st.builds(
    Faults,
    loss=st.floats(0.0, 0.6),
    delay=st.integers(0, 4),
    duplicate=st.floats(0.0, 0.5),
    reorder=st.floats(0.0, 0.9),
    seed=st.integers(0, 1000),
)


def tables_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {factor: rng.normal(size=[3] * len(graph.scope(factor))) for factor in graph.factors}


def bowls_of(graph):
    n = len(graph.variables)
    return Bowls(graph, np.zeros(n), np.ones(n), np.full((1, n), 0.25))


@given(LOSSY, st.sampled_from(sorted(GRAPHS)), st.sampled_from([MaxSum(rounds=6), Exact()]))
def test_tables_are_decided_alike_to_the_bit_whatever_is_lost(faults, name, method):
    graph, links = GRAPHS[name]
    tables = tables_of(graph)
    clean = solve_with_agents(method, graph, tables, InProcess().open(graph.agents, links))
    lossy = solve_with_agents(method, graph, tables, faults.open(graph.agents, links))
    assert (lossy.assignment, lossy.value, lossy.upper_bound) == (clean.assignment, clean.value, clean.upper_bound)
    report, plain = lossy.report, clean.report
    assert (report.status, report.rounds, report.gap) == (plain.status, plain.rounds, plain.gap)
    assert report.traffic.bytes == plain.traffic.bytes + report.links.repeated
    assert report.links.without == report.links.silent == ()


@pytest.mark.parametrize("method", [ADMM(rounds=3), RefinedMaxSum()])
def test_points_are_agreed_alike_to_the_bit(method):
    graph, links = GRAPHS["loop"]
    functions = bowls_of(graph)
    clean = maximise_with_agents(method, functions, InProcess().open(graph.agents, links), 1)
    lossy = maximise_with_agents(method, functions, Faults(loss=0.4, delay=2).open(graph.agents, links), 1)
    assert np.array_equal(lossy.point, clean.point)
    assert lossy.value == clean.value
    assert lossy.report.links.ticks > 0


@pytest.mark.parametrize(
    "faults",
    [
        Faults(deaths=(Event(agent="x", round=0, step=3),)),
        Faults(loss=0.3, deaths=(Event(agent="x", round=0),)),
        Faults(cuts=(Cut(parts=(("x",),)),)),
    ],
)
def test_who_waits_for_the_dead_or_the_cut_off_reports_it_and_stands_where_it_was(faults):
    graph, links = GRAPHS["loop"]
    for method in (MaxSum(), Exact()):
        solution = solve_with_agents(method, graph, tables_of(graph), faults.open(graph.agents, links))
        assert solution.report.status == "blocked"
        assert solution.report.links.without
        assert "x" in solution.report.links.silent
        assert set(solution.assignment) < set(graph.variables)
        assert solution.value == -np.inf
    agreement = maximise_with_agents(ADMM(), bowls_of(graph), faults.open(graph.agents, links), 1)
    assert agreement.report.status == "blocked"
    assert np.array_equal(agreement.point, np.full(len(graph.variables), 0.25))


def test_parts_that_nobody_died_in_decide():
    graph, _ = GRAPHS["two parts"]
    part, other = graph.components
    dead = part.agents[0]
    alive = set(other.variables)
    tables = tables_of(graph)
    faults = Faults(deaths=(Event(agent=dead, round=0),))
    solution = solve_with_agents(MaxSum(), graph, tables, faults.open(graph.agents))
    whole = MaxSum().solve(graph, tables)
    assert alive <= set(solution.assignment)
    assert {x: solution.assignment[x] for x in alive} == {x: whole.assignment[x] for x in alive}
