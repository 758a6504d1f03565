"""Weighted variance reduction, compared with posterior variances of scikit-learn and with brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from swarmbo.acquisition import Situation, TargetedVariance
from swarmbo.acquisition.chain import chains
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.targeted_variance import TargetUtility, planning_places
from swarmbo.acquisition.utility import greedy_batch, shortlist
from swarmbo.baselines import Greedy
from swarmbo.belief import ExactGP, ExactGPSettings, Views
from swarmbo.coordination import Exact, MaxSum
from swarmbo.errors import ConfigError
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess

from .fields import DOMAIN, LATTICE, decide, some_belief


def situation_of(belief, n_agents: int = 3, seed: int = 0, **more) -> Situation:
    rng, agents = np.random.default_rng(seed), tuple(f"r{n}" for n in range(n_agents))
    positions = {agent: DOMAIN.from_unit(rng.random(2)) for agent in agents}
    near = {agent: LATTICE[np.linalg.norm(LATTICE - positions[agent], axis=1) < 40.0] for agent in agents}
    return Situation(agents, near, positions, {}, belief, None, DOMAIN, 2, 10, 0, **more)


def reduction(belief, utility: TargetUtility, batch: np.ndarray) -> float:
    """W of a set, from joint posterior covariances and an explicit inverse."""
    if len(batch) == 0:
        return 0.0
    n = len(batch)
    _, cov = belief.joint_posterior(np.concatenate([batch, utility.targets]))
    across = cov[:n, n:]
    gone = np.diag(across.T @ np.linalg.inv(cov[:n, :n] + utility.noise_variance * np.eye(n)) @ across)
    return float(utility.weights @ gone)


@pytest.mark.parametrize("seed", range(3))
def test_the_reduction_by_a_set_is_that_of_scikit_learns_posterior_variances(seed: int) -> None:
    belief, rng = some_belief(seed, 8, noise=0.3), np.random.default_rng(seed)
    targets, weights = DOMAIN.from_unit(rng.random((30, 2))), rng.random(30)
    utility = TargetUtility(targets, weights, belief.noise_variance)
    batch = DOMAIN.from_unit(rng.random((4, 2)))
    own = belief.hyperparameters
    kernel = ConstantKernel(belief.prior_variance) * Matern(own.lengthscales, nu=2.5)
    variances = []
    for X in (belief.X, np.concatenate([belief.X, batch])):
        process = GaussianProcessRegressor(kernel, alpha=belief.noise_variance, optimizer=None)
        process.fit(DOMAIN.to_unit(X), np.zeros(len(X)))
        variances.append(process.predict(DOMAIN.to_unit(targets), return_std=True)[1] ** 2)
    wanted = weights @ (variances[0] - variances[1])
    value = utility.jointly(belief, batch)
    summed = sum(value(range(n, 4), False) for n in range(4))  # gains over later places add up to the whole
    assert summed == pytest.approx(wanted, rel=1e-6)
    assert reduction(belief, utility, batch) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("fades", [False, True])
def test_a_table_has_what_the_first_place_adds_to_the_other_places(fades: bool) -> None:
    belief = some_belief(1, 8, fades=fades, noise=0.3)
    utility = TargetedVariance(task="map").utility(situation_of(belief))
    options = [LATTICE[:4], LATTICE[20:25], LATTICE[[3, 21, 40]]]
    with_abstention = [np.vstack([own, np.full(2, np.nan)]) for own in options]
    table = local_acquisition(belief, with_abstention, utility, price=0.25)
    assert table.shape == (5, 6, 4)
    for choice in itertools.product(*map(range, table.shape)):
        places = [own[c] for own, c in zip(with_abstention, choice, strict=True)]
        there = [place for place in places if not np.isnan(place).any()]
        if len({tuple(place) for place in there}) < len(there):
            assert table[choice] == -np.inf
            continue
        if np.isnan(places[0]).any():
            assert table[choice] == utility.opt_out_utility == 0.0
            continue
        wanted = reduction(belief, utility, np.array(there)) - reduction(belief, utility, np.array(there[1:]))
        assert table[choice] == pytest.approx(wanted - 0.25, rel=1e-6, abs=1e-9)


def test_scores_are_gains_over_the_places_taken_before() -> None:
    belief = some_belief(2, 8, noise=0.3)
    utility = TargetedVariance(task="map").utility(situation_of(belief))
    scores = utility.scores(belief, LATTICE, picks=4)
    taken: list[int] = []
    for _ in range(4):
        gone = reduction(belief, utility, LATTICE[taken])
        wanted = [reduction(belief, utility, LATTICE[[*taken, k]]) - gone for k in range(len(LATTICE))]
        assert scores.value == pytest.approx(wanted, rel=1e-6, abs=1e-9)
        pick = int(scores.rank.argmax())
        scores.take(pick)
        taken.append(pick)
    assert greedy_batch(utility.scores(belief, LATTICE, picks=4), 4).tolist() == taken
    assert taken[0] in shortlist(belief, LATTICE, 6, utility)


def test_weights_are_the_uncertainty_about_a_level_or_a_peak() -> None:
    now = situation_of(some_belief(3, 8, noise=0.3), level=52.0, measured=some_belief(3, 8, noise=0.3).X)
    mean, std = np.array([40.0, 52.0, 60.0]), np.array([2.0, 3.0, 4.0])
    level = TargetedVariance(floor=0.01).weights(now, mean, std)  # the environment states a level, so that is the task
    wrong = np.minimum(norm.cdf(52.0, mean, std), norm.sf(52.0, mean, std))
    assert level == pytest.approx(wrong + 0.01)
    peak = TargetedVariance(task="peak", floor=0.0).weights(now, mean, std)
    assert peak == pytest.approx(norm.sf(now.best_measured(), mean, std))
    assert TargetedVariance(task="map").weights(now, mean, std).tolist() == [1.0, 1.0, 1.0]
    assert TargetedVariance().weights(situation_of(some_belief(3, 8, noise=0.3)), mean, std).tolist() == [1.0, 1.0, 1.0]


def test_the_value_of_an_unknown_place_is_the_prior_standard_deviation() -> None:
    line = Domain(np.zeros(1), np.ones(1))
    belief = ExactGP.create(ExactGPSettings(), line)
    now = Situation(("a",), {"a": np.array([[0.5]])}, {}, {}, belief, None, line, 1, None, 0)
    utility = TargetedVariance().utility(now)
    alone = utility.scores(belief, np.array([[0.5]])).value[0]
    assert alone == pytest.approx(np.sqrt(belief.prior_variance), rel=0.05)


@pytest.mark.parametrize("kind", ["shared", "own", "fading"])
@pytest.mark.parametrize("coordination", [Exact(), MaxSum(), Greedy()])
def test_teams_decide_with_any_belief_and_never_worse_than_greedy(kind: str, coordination) -> None:
    belief = some_belief(0, 8, fades=kind == "fading", noise=0.3)
    if kind == "own":
        belief = Views({f"r{n}": some_belief(0, 6 + n, noise=0.3) for n in range(3)}, "r0")
    now, acquisition = situation_of(belief, level=52.0), TargetedVariance(candidates=8)
    points = decide(now, acquisition, coordination, InProcess()).points
    assert set(points) == set(now.agents)
    [chain] = chains(now.agents, now.positions, None)

    def value(batch) -> float:
        total = 0.0
        for n, agent in enumerate(chain):
            seen = now.seen_by(agent)
            utility, ahead = acquisition.utility(seen), [batch[other] for other in chain[n + 1 :]]
            total += reduction(seen.belief, utility, np.array([batch[agent], *ahead]))
            total -= reduction(seen.belief, utility, np.array(ahead))
        return total

    assert value(points) >= value(Greedy().decide(now, acquisition).points) * (1.0 - 1e-6)


def test_a_price_is_compared_with_the_remaining_uncertainty() -> None:
    belief = some_belief(0, 60, noise=0.3)
    candidates = {f"r{n}": LATTICE[9 * n : 9 * n + 9] for n in range(3)}
    for price, measures in ((1e-6, True), (5.0 * float(np.sqrt(belief.prior_variance)), False)):
        now = Situation(
            tuple(candidates), candidates, {}, {}, belief, None, DOMAIN, 2, 9, 0, dict.fromkeys(candidates, price)
        )
        assert bool(decide(now, TargetedVariance(), Exact(), InProcess()).points) is measures


@given(st.integers(1, 3), st.integers(1, 400), st.integers(0, 100))
def test_planning_places_are_sites_spread_over_the_map(d: int, n_places: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domain = Domain(np.zeros(d), rng.uniform(0.5, 3.0, d))
    everywhere = planning_places(domain, None, n_places)
    assert 1 <= len(everywhere) <= n_places
    assert len(everywhere) > n_places / 2 - 1 or d > 1
    sites = domain.from_unit(rng.random((300, d)))
    chosen = planning_places(domain, sites, n_places)
    assert len(chosen) <= max(n_places, 1)
    assert len(np.unique(chosen, axis=0)) == len(chosen)
    known = {tuple(site) for site in sites}
    assert all(tuple(place) in known for place in chosen)


def test_a_level_task_without_a_level_and_a_map_task_with_a_level_are_refused() -> None:
    with pytest.raises(ConfigError, match="level"):
        TargetedVariance(task="level").utility(situation_of(some_belief(noise=0.3)))
    with pytest.raises(ValueError, match="wanted no level, or the task 'level'"):
        TargetedVariance(task="map", level=3.0)
