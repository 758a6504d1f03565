"""Agreed batches are compared with sequential choices, by an independent oracle."""

import dataclasses
import itertools
from collections.abc import Mapping

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition import DBGPUCB, ChainAcquisition, Information, LocalUtility, Situation, Straddle
from swarmbo.acquisition.by_view import at_once
from swarmbo.acquisition.chain import IN_SIGHT, chains
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.local_problem import _Check
from swarmbo.baselines import Greedy
from swarmbo.belief import Views
from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.agreement import TableOutcome, solution_of
from swarmbo.records import Traffic
from swarmbo.transport import InProcess

from .fields import DOMAIN, LATTICE, decide, some_belief


def some_team(seed: int, n_agents: int, kind: str, *, packed: bool, price: float | None, parted: bool) -> Situation:
    rng = np.random.default_rng(seed)
    agents = tuple(f"robot_{n}" for n in range(n_agents))
    middle = DOMAIN.from_unit(rng.uniform(0.3, 0.7, size=2))
    positions = {a: middle + rng.normal(size=2) if packed else DOMAIN.from_unit(rng.random(2)) for a in agents}
    reach = rng.uniform(20.0, 60.0)
    candidates = {a: LATTICE[np.linalg.norm(LATTICE - positions[a], axis=1) < reach] for a in agents}
    belief = some_belief(seed % 5, 10, fades=kind == "fading")
    if kind == "own":
        belief = Views({a: some_belief(n % 3, 6 + 2 * (n % 3)) for n, a in enumerate(agents)}, agents[0])
    links = nx.Graph(itertools.pairwise(agents))
    links.add_nodes_from(agents)
    if parted:
        links.remove_edges_from([(agents[n_agents // 2 - 1], agents[n_agents // 2])])
    prices = {} if price is None else dict.fromkeys(agents, price)
    return Situation(agents, candidates, positions, {}, belief, links, DOMAIN, 2, 10, 0, prices, 52.0)


def eq_5(now: Situation, acquisition: ChainAcquisition, points: Mapping[str, np.ndarray], order: int) -> float:
    """The sum of local acquisitions, written out term by term from joint posteriors."""
    links = now.links.subgraph(now.movers) if now.links is not None else None
    value = 0.0
    for chain in chains(now.movers, now.positions, links):
        for n, agent in enumerate(chain):
            seen = now.seen_by(agent)
            utility = acquisition.utility(seen)
            if agent not in points:
                value += utility.opt_out_utility
                continue
            ahead = [other for other in chain[n + 1 : n + 1 + order] if other in points]
            mean, cov = seen.belief.joint_posterior(np.array([points[a] for a in (agent, *ahead)]))
            noisy = cov[1:, 1:] + seen.belief.noise_variance * np.eye(len(ahead))
            var = cov[0, 0] - cov[0, 1:] @ np.linalg.inv(noisy) @ cov[1:, 0]
            value += utility.merit(mean[:1])[0] - now.prices.get(agent, 0.0)
            value += utility.bonus * np.sqrt(np.log(1.0 + max(var, 0.0) / utility.noise_variance))
    return float(value)


ACQUISITIONS = {
    "peak": lambda order: DBGPUCB(markov_order=order, candidates=8),
    "map": lambda order: Information(markov_order=order, candidates=8),
    "level": lambda order: Straddle(markov_order=order, candidates=8),
}


@given(
    st.integers(0, 10_000),
    st.integers(2, 7),
    st.sampled_from(["shared", "own", "fading"]),
    st.sampled_from(sorted(ACQUISITIONS)),
    st.sampled_from([Exact(), MaxSum(rounds=6)]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([None, 0.5, 4.0]),
    st.booleans(),
)
def test_no_batch_has_a_lower_value_than_that_of_greedy(
    seed, n_agents, kind, task, coordination, order, packed, price, parted
):
    now = some_team(seed, n_agents, kind, packed=packed, price=price, parted=parted)
    acquisition = ACQUISITIONS[task](order)
    greedy = Greedy().decide(now, acquisition).points
    decision = decide(now, acquisition, coordination, InProcess())
    assert len({tuple(point) for point in decision.points.values()}) == len(decision.points)
    if price is None and len(greedy) < len(now.movers):  # packed robots run out of places: then others measure
        assert len(decision.points) >= len(greedy)
        return
    if price is None:
        assert set(decision.points) == set(now.movers)
    for sight in (order, n_agents):
        decided, sequential = (eq_5(now, acquisition, points, sight) for points in (decision.points, greedy))
        assert decided >= sequential - 1e-6 * (1.0 + abs(sequential))


def test_an_exact_agreement_is_often_better_than_greedy():
    """If all reach the same places, the agreed batch often has a higher value by eq. (5), and is used."""
    gains = []
    for seed, kind in itertools.product(range(8), ("shared", "own")):
        now = some_team(seed, 8, kind, packed=True, price=None, parted=False)
        greedy = Greedy().decide(now, DBGPUCB()).points
        decided = decide(now, DBGPUCB(), Exact(), InProcess()).points
        gains.append(eq_5(now, DBGPUCB(), decided, 2) - eq_5(now, DBGPUCB(), greedy, 2))
    assert sum(gain > 1e-6 for gain in gains) >= 4


def test_priced_sensors_do_not_buy_samples_that_others_make_redundant():
    """An agreement has at most a fifth more samples than greedy, and no lower value to the whole team."""
    bought, bought_by_greedy = 0, 0
    for seed in range(6):
        belief = some_belief(seed, 6)
        agents = tuple(f"s_{n}" for n in range(12))
        candidates = {
            a: DOMAIN.from_unit(np.random.default_rng([seed, n]).random((30, 2))) for n, a in enumerate(agents)
        }
        prices = dict.fromkeys(agents, 0.75 * float(np.sqrt(belief.prior_variance)))
        now = Situation(
            agents, candidates, {a: p[0] for a, p in candidates.items()}, {}, belief, None, DOMAIN, 1, 10, 0, prices
        )
        decided, greedy = decide(now, Information(), Exact(), InProcess()).points, Greedy().decide(now, Information())
        bought, bought_by_greedy = bought + len(decided), bought_by_greedy + len(greedy.points)
        assert eq_5(now, Information(), decided, 12) >= eq_5(now, Information(), greedy.points, 12) - 1e-9
        for agent in decided:  # each sample gains more than its price, given those ahead of it in the chain
            [chain] = chains(agents, now.positions, None)
            ahead = {a: decided[a] for a in chain[chain.index(agent) + 1 :] if a in decided}
            with_it = {agent: decided[agent]} | ahead
            assert eq_5(now, Information(), with_it, 12) > eq_5(now, Information(), ahead, 12)
    assert 6 < bought_by_greedy < 60
    assert bought <= 1.2 * bought_by_greedy


def test_tables_assume_that_agents_out_of_scope_choose_as_greedy():
    now = some_team(3, 6, "shared", packed=True, price=None, parted=False)
    acquisition = DBGPUCB(markov_order=1, candidates=4)
    problem = acquisition.local_problem(now)
    greedy = Greedy().decide(now, acquisition).points
    utility = acquisition.utility(now)
    [chain] = chains(now.movers, now.positions, None)
    for n, agent in enumerate(chain):
        scope = problem.graph.scope(f"w_{agent}")
        assert scope == chain[n : n + 2]
        unseen = [greedy[other] for m, other in enumerate(chain) if abs(m - n) > 1]
        for choice in itertools.product(*(range(len(problem.shortlists[a])) for a in scope)):
            places = [problem.shortlists[a][c] for a, c in zip(scope, choice, strict=True)]
            if len({tuple(place) for place in places}) < len(places):
                continue
            mean, cov = now.belief.joint_posterior(np.array([*places, *unseen]))
            noisy = cov[1:, 1:] + now.belief.noise_variance * np.eye(len(cov) - 1)
            var = cov[0, 0] - cov[0, 1:] @ np.linalg.inv(noisy) @ cov[1:, 0]
            wanted = mean[0] + utility.bonus * np.sqrt(np.log(1.0 + var / utility.noise_variance))
            assert problem.tables[f"w_{agent}"][choice] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    "rule", [Information(candidates=5), pytest.param(Information(markov_order=1, candidates=3), marks=pytest.mark.slow)]
)
def test_shortlists_contain_the_places_of_greedy_whose_batch_has_a_value(rule):
    for seed, parted in itertools.product(range(8), (False, True)):
        now = some_team(seed, 6, "own", packed=True, price=None, parted=parted)
        problem, greedy = rule.local_problem(now), Greedy().decide(now, rule).points
        if problem is None or len(greedy) < len(now.movers):
            continue
        value = at_once(problem.value_steps(now, greedy))
        assert -np.inf < value <= Exact().solve(problem.graph, problem.tables).value + 1e-9


def test_a_report_has_the_gap_between_the_decision_and_the_best_agreement():
    decided = set()
    for seed in range(12):
        now = some_team(seed, 7, "shared", packed=True, price=None, parted=False)
        decision, problem = decide(now, Information(), Exact(), InProcess()), Information().local_problem(now)
        best = Exact().solve(problem.graph, problem.tables)
        agreed = {agent: problem.shortlists[agent][index] for agent, index in best.assignment.items()}
        greedy = Greedy().decide(now, Information()).points
        for name, batch in (("agreed", agreed), ("in turn", greedy)):
            if all((decision.points[agent] == batch[agent]).all() for agent in now.agents):
                decided.add(name)
                assert decision.report.value == pytest.approx(at_once(problem.value_steps(now, batch)))
        assert decision.report.gap == pytest.approx(best.value - decision.report.value)
    assert decided == {"agreed", "in turn"}


class FirstOfAll(MaxSum, frozen=True, tag="first-of-all"):
    """Max-sum that ends where it started: all agents at the first place of the list."""

    def solve(self, graph, tables, links=None):
        first = dict.fromkeys(graph.variables, 0)
        return solution_of(graph, tables, [TableOutcome(first, "max_rounds", 0)], Traffic())


def test_an_infeasible_result_of_max_sum_is_replaced_by_sequential_choices():
    now = some_team(0, 3, "shared", packed=True, price=None, parted=False)
    now = dataclasses.replace(now, candidates=dict.fromkeys(now.agents, LATTICE[:8]))
    problem, greedy = DBGPUCB().local_problem(now), Greedy().decide(now, DBGPUCB()).points
    assert FirstOfAll().solve(problem.graph, problem.tables).report.status == "infeasible"
    decision = decide(now, DBGPUCB(), FirstOfAll(), InProcess())
    assert all((decision.points[agent] == greedy[agent]).all() for agent in now.agents)
    assert (decision.report.status, decision.report.violated) == ("sequential", ())
    assert decision.report.value == pytest.approx(at_once(problem.value_steps(now, greedy)))


def test_neighbours_measure_with_their_sensors_noise():
    belief = some_belief(0, 10)
    own, others = LATTICE[:3], LATTICE[20:22]
    scale, noise = 3.0 * belief.noise_variance, 0.5 * belief.noise_variance
    table = local_acquisition(belief, [own, others], LocalUtility(1.0, 2.0, scale, neighbours_noise=noise))
    for i, j in itertools.product(range(3), range(2)):
        mean, cov = belief.joint_posterior(np.array([own[i], others[j]]))
        var = cov[0, 0] - cov[0, 1] ** 2 / (cov[1, 1] + noise)
        assert table[i, j] == pytest.approx(mean[0] + 2.0 * np.sqrt(np.log(1.0 + var / scale)), rel=1e-9)


@pytest.mark.parametrize("price", [4.0, pytest.param(None, marks=pytest.mark.slow)])
def test_agents_with_separate_beliefs_check_all_places_in_sight_and_no_others(monkeypatch, price):
    """In a long chain each agent computes the posterior at its own place and the next 64, and values them with it."""
    now, asked = some_team(1, IN_SIGHT + 12, "own", packed=False, price=price, parted=False), list[int]()
    candidates = {
        agent: DOMAIN.from_unit(np.random.default_rng(n).random((6, 2))) for n, agent in enumerate(now.agents)
    }
    now = dataclasses.replace(now, candidates=candidates)
    jointly, term = LocalUtility.jointly, _Check._term

    def counted(self, belief, places):
        asked.append(len(places))
        return jointly(self, belief, places)

    def held(self, agent, rows, to_the_letter=False):
        value, given = term(self, agent, rows, to_the_letter), self.given
        alone_at = jointly(given.utilities[agent], given.beliefs[agent], self._places[rows])
        alone = alone_at(range(len(rows)), to_the_letter)
        assert value == pytest.approx(alone - given.prices.get(agent, 0.0), rel=1e-9, abs=1e-9)
        return value

    monkeypatch.setattr(LocalUtility, "jointly", counted)
    monkeypatch.setattr(_Check, "_term", held)
    decide(now, Information(candidates=4), Exact(), InProcess())
    assert len(asked) > 10
    assert max(asked) <= 2 * (IN_SIGHT + 1)
