"""Acquisitions for maps and levels, and agents that decline what is not worth its price: held to brute force."""

import itertools

import numpy as np
import pytest

from swarmbo.acquisition import (
    DBGPUCB,
    ExpectedImprovement,
    Information,
    LocalUtility,
    Situation,
    Straddle,
    local_acquisition,
)
from swarmbo.baselines import Greedy, Independent
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.coordination import Exact
from swarmbo.errors import ConfigError
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess

from .decided import decide
from .markov_reference import log_det_terms

DOMAIN = Domain(np.zeros(2), np.array([100.0, 50.0]))
NOWHERE = np.full((1, 2), np.nan)


def some_belief(seed=0, n=12):
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.random((n, 2)))
    return ExactGP.create(ExactGPSettings(), DOMAIN).update(X, 50 + 9 * np.sin(X[:, 0] / 20)).fit(rng)


def situation(belief, prices, level=None, n_agents=3, n_places=6):
    rng = np.random.default_rng(5)
    candidates = {f"s_{n}": DOMAIN.from_unit(rng.random((n_places, 2))) for n in range(n_agents)}
    positions = {agent: places[0] for agent, places in candidates.items()}
    return Situation(tuple(candidates), candidates, positions, {}, belief, None, DOMAIN, 1, 10, 0, dict(prices), level)


def prices_of(price, n_agents=3):
    return {f"s_{n}": price for n in range(n_agents)}


@pytest.mark.parametrize("order", [0, 1, 2])
def test_tables_equal_the_value_of_those_who_measure_alone(order):
    """Every joint choice, idle agents included: sums of merits and Markov terms over the measuring agents' places."""
    belief, rng = some_belief(), np.random.default_rng(1)
    places = [DOMAIN.from_unit(rng.random((3, 2))) for _ in range(3)]
    options = [np.vstack([own, NOWHERE]) for own in places]
    worth = LocalUtility(
        2.0, 7.0, 2.0 * belief.noise_variance, merit=lambda mean: -np.abs(mean - 50.0), opt_out_utility=1.5
    )
    tables = [local_acquisition(belief, options[n : n + order + 1], worth, price=0.4 * n) for n in range(3)]
    for choice in itertools.product(range(4), repeat=3):
        got = [tables[n][choice[n : n + order + 1]] for n in range(3)]
        for n in range(3):
            if choice[n] == 3:
                assert got[n] == 1.5
                continue
            ahead = [m for m in range(n, min(n + order, 2) + 1) if choice[m] < 3]
            batch = np.array([places[m][choice[m]] for m in ahead])
            mean, cov = belief.joint_posterior(batch)
            term = log_det_terms(np.eye(len(batch)) + cov / worth.noise_variance, len(batch), len(batch))[0]
            expected = -abs(mean[0] - 50.0) + 7.0 * np.sqrt(max(term, 0.0)) - 0.4 * n
            assert got[n] == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("acquisition", [DBGPUCB(), Information(), Straddle(level=52.0)])
@pytest.mark.parametrize("price", [0.0, 3.0, 8.0, 1e6])
def test_the_agreement_is_the_best_over_all_ways_to_measure_or_not(acquisition, price):
    now = situation(some_belief(), prices_of(price))
    problem = acquisition.local_problem(now)
    assert problem is not None
    decision = decide(now, acquisition, Exact(), InProcess())
    best = max(
        sum(
            problem.tables[factor][tuple(choice[a] for a in problem.graph.scope(factor))]
            for factor in problem.graph.factors
        )
        for values in itertools.product(*(range(len(problem.shortlists[a])) for a in problem.graph.variables))
        for choice in [dict(zip(problem.graph.variables, values, strict=True))]
    )
    assert decision.report.value == pytest.approx(best)
    assert not any(np.isnan(point).any() for point in decision.points.values())
    if price == 1e6:
        assert decision.points == {}


def test_the_dearer_a_measurement_the_fewer_are_made():
    counts = [
        len(decide(situation(some_belief(), prices_of(price)), Information(), Exact(), InProcess()).points)
        for price in (0.0, 2.0, 4.0, 8.0, 20.0)
    ]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (3, 0)


def test_without_prices_nobody_declines_and_at_any_price_all_do():
    for acquisition in (DBGPUCB(), Information(), Straddle(level=1e9), ExpectedImprovement()):
        for prices, n_measuring in (({}, 3), (prices_of(1e10), 0)):
            made = decide(situation(some_belief(), prices), acquisition, Exact(), InProcess())
            assert len(made.points) == n_measuring, acquisition


def test_information_of_an_unknown_place_is_worth_its_prior_std():
    belief = ExactGP.create(ExactGPSettings(), DOMAIN)
    now = situation(belief, {}, n_agents=1)
    problem = Information().local_problem(now)
    assert problem is not None
    np.testing.assert_allclose(problem.tables["w_s_0"], np.sqrt(belief.prior_variance), rtol=1e-9)


def test_straddle_of_single_places_is_bryans_score():
    belief = some_belief()
    worth, X = (
        Straddle(level=53.0).utility(situation(belief, {})),
        DOMAIN.from_unit(np.random.default_rng(3).random((9, 2))),
    )
    mean, var = belief.posterior(X)
    np.testing.assert_allclose(worth.single(mean, var), 1.96 * np.sqrt(var) - np.abs(mean - 53.0), rtol=1e-12)


def test_straddle_takes_the_worlds_level_unless_it_has_its_own_and_wants_one_of_them():
    belief = some_belief()
    mean = np.array([50.0])
    assert Straddle().utility(situation(belief, {}, level=44.0)).merit(mean)[0] == -6.0
    assert Straddle(level=51.0).utility(situation(belief, {}, level=44.0)).merit(mean)[0] == -1.0
    with pytest.raises(ConfigError, match=r"\$\.acquisition\.level: got none, and the environment states none; wanted"):
        Straddle().utility(situation(belief, {}))


@pytest.mark.parametrize("baseline", [Greedy(), Independent()])
def test_baselines_decline_too(baseline):
    belief = some_belief()
    assert len(baseline.decide(situation(belief, prices_of(0.01)), Information()).points) == 3
    assert baseline.decide(situation(belief, prices_of(1e3)), Information()).points == {}
