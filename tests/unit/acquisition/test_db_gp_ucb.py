import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition import DBGPUCB, LocalUtility, Situation
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.utility import shortlist
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.coordination import Exact
from swarmbo.errors import ConfigError
from swarmbo.settings import convert

from .fields import DOMAIN, log_det_terms, some_belief


def situation(belief, candidates, positions=None, links=None, round_number=1) -> Situation:
    agents = tuple(candidates)
    return Situation(agents, candidates, positions or {}, {}, belief, links, DOMAIN, round_number, 10, 0)


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(0, 3))
def test_tables_sum_to_equation_5_at_every_joint_choice(seed, n_robots, order):
    """The factors' sum equals means plus roots of the Markov terms, computed from one joint posterior."""
    rng = np.random.default_rng(seed)
    belief = some_belief(seed)
    places = [DOMAIN.from_unit(rng.random((3, 2))) for _ in range(n_robots)]
    bonus, noise = 7.0, 2.0 * belief.noise_variance
    utility = LocalUtility(1.0, bonus, noise)
    tables = [local_acquisition(belief, places[n : n + order + 1], utility) for n in range(n_robots)]
    for choice in itertools.product(range(3), repeat=n_robots):
        batch = np.array([places[n][c] for n, c in enumerate(choice)])
        mean, cov = belief.joint_posterior(batch)
        terms = log_det_terms(np.eye(n_robots) + cov / noise, order)
        wanted = mean.sum() + bonus * np.sqrt(np.maximum(terms, 0.0)).sum()
        got = sum(tables[n][choice[n : n + order + 1]] for n in range(n_robots))
        assert np.isclose(got, wanted, rtol=1e-7)


@pytest.mark.parametrize("exploration", ["annealed", "practical"])
def test_a_single_robot_gets_the_ucb_bonus_of_the_schedule_at_an_unexplored_place(exploration):
    belief, place = ExactGP.create(ExactGPSettings(), DOMAIN), np.array([[50.0, 25.0]])
    acquisition, now = DBGPUCB(exploration=exploration), situation(belief, {"a": place})
    mean, var = belief.posterior(place)
    wanted = mean[0] + acquisition.sqrt_beta(now) * np.sqrt(var[0])
    assert np.isclose(acquisition.local_problem(now).tables["w_a"][0], wanted)


@given(st.integers(0, 500), st.integers(0, 3))
def test_no_two_robots_can_choose_one_place(seed, order):
    rng = np.random.default_rng(seed)
    lattice = np.array([(x, y) for x in np.linspace(0, 100, 6) for y in np.linspace(0, 50, 4)])
    agents = [f"robot_{n}" for n in range(5)]
    share = rng.choice([0.04, 0.2, 0.6])
    candidates = {agent: lattice[rng.random(24) < share] for agent in agents}
    positions = {agent: DOMAIN.from_unit(rng.random(2)) for agent in agents}
    links = nx.Graph([("robot_0", "robot_1"), ("robot_1", "robot_2"), ("robot_3", "robot_4")])
    now = situation(some_belief(), candidates, positions, links)
    problem = DBGPUCB(markov_order=order, candidates=8).local_problem(now)
    if problem is None:
        assert not any(map(len, candidates.values()))
        return
    assert np.isfinite(Exact().solve(problem.graph, problem.tables).value)  # there is a choice without a clash
    graph, lists = problem.graph, {a: set(map(tuple, places)) for a, places in problem.shortlists.items()}
    together = {frozenset(pair) for f in graph.factors for pair in itertools.combinations(graph.scope(f), 2)}
    for a, b in itertools.combinations(lists, 2):
        assert frozenset((a, b)) in together or not lists[a] & lists[b]
    for factor, table in problem.tables.items():
        for choice in zip(*np.nonzero(np.isfinite(table)), strict=True):
            chosen = [tuple(problem.shortlists[v][c]) for v, c in zip(graph.scope(factor), choice, strict=True)]
            assert len(set(chosen)) == len(chosen)


def test_robots_out_of_contact_negotiate_separately_and_idle_robots_do_not_relay():
    rng = np.random.default_rng(0)
    candidates = {agent: DOMAIN.from_unit(rng.random((5, 2))) for agent in "abcd"}
    links = nx.Graph([("a", "c"), ("c", "d")])
    links.add_node("b")
    problem = DBGPUCB().local_problem(situation(some_belief(), candidates, None, links))
    assert {frozenset(problem.graph.scope(f)) for f in problem.graph.factors} >= {frozenset("acd"), frozenset("b")}
    candidates["c"] = np.empty((0, 2))
    problem = DBGPUCB().local_problem(situation(some_belief(), candidates, None, links))
    assert {tuple(problem.graph.scope(f)) for f in problem.graph.factors} == {("a",), ("b",), ("d",)}


def test_the_chain_runs_along_space_and_a_factor_sees_the_next_robots():
    rng = np.random.default_rng(0)
    candidates = {agent: DOMAIN.from_unit(rng.random((5, 2))) for agent in "abcd"}
    positions = {a: np.array([x, 0.0]) for a, x in zip("abcd", (30.0, 10.0, 40.0, 20.0), strict=True)}
    problem = DBGPUCB(markov_order=1).local_problem(situation(some_belief(), candidates, positions))
    scopes = {f.removeprefix("w_"): tuple(problem.graph.scope(f)) for f in problem.graph.factors}
    assert scopes in (
        {"b": ("b", "d"), "d": ("d", "a"), "a": ("a", "c"), "c": ("c",)},
        {"c": ("c", "a"), "a": ("a", "d"), "d": ("d", "b"), "b": ("b",)},
    )
    assert all(problem.graph.owner(f) == f.removeprefix("w_") for f in problem.graph.factors)


PLACES = np.array([(x, y) for x in np.linspace(0, 100, 40) for y in np.linspace(0, 50, 25)])
BY_UCB = LocalUtility(2.0, bonus=1.0, noise_variance=1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("neighbours_noise", value) for value in (-5.0, 0.0, np.nan)),
        *(("opt_out_utility", value) for value in (np.nan, np.inf)),
        *(("bonus", value) for value in (np.nan, np.inf, -np.inf)),
    ],
)
def test_numbers_of_a_utility_out_of_their_range_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"{field}: got .*; wanted a number"):
        LocalUtility(**{"sqrt_beta": 1.0, "bonus": 1.0, "noise_variance": 1.0, field: value})


@pytest.mark.parametrize(("opt_out", "abstains"), [(0.0, True), (-np.inf, False)])
def test_with_an_opt_out_utility_of_minus_infinity_no_agent_abstains(opt_out, abstains):
    belief, rule = some_belief(), LocalUtility(2.0, 1.0, 1.0, opt_out_utility=opt_out)
    assert (rule.best_of(belief, PLACES, price=1e6) is None) == abstains
    options = [np.vstack([PLACES[n : n + 3], np.full((1, 2), np.nan)]) for n in range(2)]
    table = local_acquisition(belief, options, rule, price=1e6)
    assert (table.argmax(axis=0) == 3).all() == abstains


def test_half_of_a_shortlist_is_picked_with_earlier_picks_pending_and_half_is_the_best_of_the_rest():
    belief = conditioned = some_belief()
    picks, wanted = shortlist(belief, PLACES, 32, BY_UCB), list[int]()
    for _ in range(16):
        mean, var = conditioned.posterior(PLACES)
        score = mean + 2.0 * np.sqrt(var)
        score[wanted] = -np.inf
        wanted.append(int(score.argmax()))
        conditioned = conditioned.condition_on_pending(PLACES[wanted[-1]][None])
    mean, var = belief.posterior(PLACES)
    wanted += [n for n in np.argsort(-(mean + 2.0 * np.sqrt(var))) if n not in wanted][:16]
    assert picks.tolist() == wanted


def test_without_data_the_first_half_of_a_shortlist_fills_the_space():
    picks, U = shortlist(ExactGP.create(ExactGPSettings(), DOMAIN), PLACES, 32, BY_UCB)[:16], DOMAIN.to_unit(PLACES)
    gaps = np.linalg.norm(U[:, None] - U[picks], axis=-1).min(axis=1)
    assert gaps.max() < 0.3  # 16 points on a square grid would leave 0.18


def test_shortlists_shrink_so_that_tables_keep_to_their_budget():
    rng = np.random.default_rng(0)
    candidates = {agent: DOMAIN.from_unit(rng.random((100, 2))) for agent in "abcde"}
    problem = DBGPUCB(markov_order=3, table_entries=2**12).local_problem(situation(some_belief(), candidates))
    assert max(table.size for table in problem.tables.values()) == 8**4


@pytest.mark.parametrize("order", [-1, 5, 2**62])  # the last at once: its power is never computed
def test_orders_out_of_range_are_refused_with_their_path(order):
    with pytest.raises(ConfigError, match=r"\$\.acquisition\.markov_order: got .*; wanted"):
        convert({"kind": "db-gp-ucb", "markov_order": order}, DBGPUCB, "$.acquisition")


def test_by_default_a_team_measures_near_its_best_point_where_annealing_would_explore() -> None:
    line = np.linspace(0.0, 1.0, 21)[:, None]
    places = list[float]()
    for rule in ("db-gp-ucb", DBGPUCB(exploration="annealed")):
        team = sb.Team.for_field(["a"], low=[0.0], high=[1.0], acquisition=rule, rounds=25)
        team.attach(line[:9], np.exp(-((line[:9, 0] - 0.2) ** 2) / 0.005))  # a peak at 0.2, nothing known beyond 0.4
        places.append(float(team.ask({"a": line}).points["a"][0]))
    assert abs(places[0] - 0.2) < 0.11
    assert places[1] > 0.5
