"""Acquisitions for maps and levels, and agents that abstain if a measurement is not worth its price."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from swarmbo.acquisition import DBGPUCB, ExpectedImprovement, Information, LocalUtility, Straddle, Thompson
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.information import information_scale
from swarmbo.baselines import Greedy, Independent
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.coordination import Exact
from swarmbo.errors import ConfigError
from swarmbo.transport import InProcess

from .fields import DOMAIN, NOWHERE, decide, log_det_terms, prices_of, situation, some_belief


@pytest.mark.parametrize("order", [0, 1, 2])
def test_tables_count_measuring_agents_only(order):
    """Every joint choice, idle agents included: sums of merits and Markov terms over the measuring agents' places."""
    belief, rng = some_belief(), np.random.default_rng(1)
    places = [DOMAIN.from_unit(rng.random((3, 2))) for _ in range(3)]
    options = [np.vstack([own, NOWHERE]) for own in places]
    more = {"merit": lambda mean: -np.abs(mean - 50.0), "opt_out_utility": 1.5}
    utility = LocalUtility(2.0, 7.0, 2.0 * belief.noise_variance, **more)
    tables = [local_acquisition(belief, options[n : n + order + 1], utility, price=0.4 * n) for n in range(3)]
    for choice in itertools.product(range(4), repeat=3):
        got = [tables[n][choice[n : n + order + 1]] for n in range(3)]
        for n in range(3):
            if choice[n] == 3:
                assert got[n] == 1.5
                continue
            ahead = [m for m in range(n, min(n + order, 2) + 1) if choice[m] < 3]
            batch = np.array([places[m][choice[m]] for m in ahead])
            mean, cov = belief.joint_posterior(batch)
            term = log_det_terms(np.eye(len(batch)) + cov / utility.noise_variance, len(batch))[0]
            expected = -abs(mean[0] - 50.0) + 7.0 * np.sqrt(max(term, 0.0)) - 0.4 * n
            assert got[n] == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("acquisition", [DBGPUCB(), Information(), Straddle(level=52.0)])
@pytest.mark.parametrize("price", [0.0, 3.0, 8.0, 1e6])
def test_the_decision_is_the_best_of_all_choices_to_measure_or_abstain(acquisition, price):
    now = situation(some_belief(), prices_of(price))
    problem = acquisition.local_problem(now)
    decision = decide(now, acquisition, Exact(), InProcess())
    graph, totals = problem.graph, list[float]()
    for values in itertools.product(*(range(len(problem.shortlists[a])) for a in graph.variables)):
        choice = dict(zip(graph.variables, values, strict=True))
        totals.append(sum(problem.tables[f][tuple(choice[a] for a in graph.scope(f))] for f in graph.factors))
    assert decision.report.value == pytest.approx(max(totals))
    assert not any(np.isnan(point).any() for point in decision.points.values())
    if price == 1e6:
        assert decision.points == {}


def test_agents_measure_less_at_higher_prices():
    now = [situation(some_belief(), prices_of(price)) for price in (0.0, 2.0, 4.0, 8.0, 20.0)]
    counts = [len(decide(one, Information(), Exact(), InProcess()).points) for one in now]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (3, 0)


def test_without_prices_no_agent_abstains_and_at_a_huge_price_all_do():
    for acquisition in (DBGPUCB(), Information(), Straddle(level=1e9), ExpectedImprovement(), Thompson()):
        for prices, n_measuring in (({}, 3), (prices_of(1e10), 0)):
            made = decide(situation(some_belief(), prices), acquisition, Exact(), InProcess())
            assert len(made.points) == n_measuring, acquisition


def test_the_information_of_an_unknown_place_is_its_prior_standard_deviation():
    belief = ExactGP.create(ExactGPSettings(), DOMAIN)
    now = situation(belief, n_agents=1)
    problem = Information().local_problem(now)
    np.testing.assert_allclose(problem.tables["w_s_0"], np.sqrt(belief.prior_variance), rtol=1e-9)


def test_straddle_of_single_places_is_bryans_score():
    belief = some_belief()
    X = DOMAIN.from_unit(np.random.default_rng(3).random((9, 2)))
    utility = Straddle(level=53.0).utility(situation(belief))
    mean, var = belief.posterior(X)
    np.testing.assert_allclose(utility.single(mean, var), 1.96 * np.sqrt(var) - np.abs(mean - 53.0), rtol=1e-12)


def test_straddle_uses_its_own_level_or_that_of_the_environment_and_requires_one():
    belief = some_belief()
    mean = np.array([50.0])
    assert Straddle().utility(situation(belief, level=44.0)).merit(mean)[0] == -6.0
    assert Straddle(level=51.0).utility(situation(belief, level=44.0)).merit(mean)[0] == -1.0
    with pytest.raises(ConfigError, match=r"\$\.acquisition\.level: got none, and the environment states none; wanted"):
        Straddle().utility(situation(belief))


@pytest.mark.parametrize("baseline", [Greedy(), Independent()])
def test_baselines_abstain_too(baseline):
    belief = some_belief()
    assert len(baseline.decide(situation(belief, prices_of(0.01)), Information()).points) == 3
    assert baseline.decide(situation(belief, prices_of(1e3)), Information()).points == {}


@pytest.mark.parametrize(("noise", "counted"), [(0.5, 0.5), (0.04, 0.04), (0.01, 0.04), (0.0, 0.04)])
def test_noise_below_the_floor_counts_as_the_floor(noise, counted):
    now = SimpleNamespace(belief=SimpleNamespace(prior_variance=4.0, noise_variance=noise))
    noise_variance, weight = information_scale(now, 0.01)  # pyright: ignore[reportArgumentType]
    assert noise_variance == pytest.approx(counted)
    assert weight * math.sqrt(math.log1p(4.0 / noise_variance)) == pytest.approx(2.0)  # the value of an unknown place
