"""Sequential choices, compared with a belief that is conditioned on one choice after the other."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from swarmbo.acquisition import DBGPUCB, LocalUtility, Situation, chain_acquisition
from swarmbo.acquisition.by_view import at_once, greedy_picks
from swarmbo.acquisition.chain import IN_SIGHT, nearest, relevant_places
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.at_places import AtPlaces
from swarmbo.coordination import Exact

from .fields import DOMAIN

SITES = np.stack(np.meshgrid(np.linspace(0.0, 100.0, 41), np.linspace(0.0, 50.0, 21)), axis=-1).reshape(-1, 2)


def situation(n_robots: int, reach: float) -> Situation:
    rng = np.random.default_rng(n_robots)
    X = DOMAIN.from_unit(rng.random((15, 2)))
    belief = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, 9.0 * np.sin(X[:, 0] / 9.0) + X[:, 1]).fit(rng)
    at = {f"r{n}": place for n, place in enumerate(DOMAIN.from_unit(rng.random((n_robots, 2))))}
    candidates = {agent: SITES[np.linalg.norm(SITES - place, axis=1) < reach] for agent, place in at.items()}
    return Situation(tuple(at), candidates, at, {}, belief, None, DOMAIN, 3, 10, 0)


def one_by_one(now: Situation, rule: DBGPUCB) -> dict[str, list[float]]:
    belief, chosen, root = now.belief, dict[str, list[float]](), rule.sqrt_beta(now)
    for agent in now.movers:
        places = np.array([x for x in now.candidates[agent].tolist() if x not in chosen.values()])
        mean, var = belief.posterior(places)
        chosen[agent] = places[int((mean + root * np.sqrt(var)).argmax())].tolist()
        belief = belief.condition_on_pending(np.array([chosen[agent]]))
    return chosen


@pytest.mark.parametrize("robots", [1, 7, 40, IN_SIGHT + 1])
def test_choices_are_those_of_a_belief_conditioned_choice_by_choice(robots: int) -> None:
    now, rule = situation(robots, 20.0), DBGPUCB()
    chosen, _ = at_once(greedy_picks(now, rule.alone(now)))
    assert {agent: place.tolist() for agent, place in chosen.items()} == one_by_one(now, rule)


def test_with_many_pending_places_only_those_that_may_be_the_best_are_evaluated(monkeypatch):
    """The choice is the same as if all places were evaluated, and a tie goes to the first place."""
    now, asked = situation(1, 120.0), list[int]()
    places, rule = now.candidates["r0"], DBGPUCB().utility(now)
    pending = SITES[np.random.default_rng(0).integers(len(SITES), size=40)]
    quick = AtPlaces.of(now.belief, places).condition_on_pending(pending)
    of_rows = AtPlaces.of_rows

    def seen(self, rows, *, on_data=False):
        asked.extend([] if on_data else [len(rows)])
        return of_rows(self, rows, on_data=on_data)

    monkeypatch.setattr(AtPlaces, "of_rows", seen)
    mean, var = now.belief.condition_on_pending(pending).posterior(places)
    value = mean + rule.sqrt_beta * np.sqrt(var)
    best = int(value.argmax())
    assert rule.best_of(quick, places) == best
    assert 0 < sum(asked) < len(places) / 2
    assert rule.best_of(quick, places, price=value[best] - rule.opt_out_utility + 1.0) is None
    assert rule.best_of(quick, np.concatenate([places[best:], places])) == 0


def test_with_many_pending_places_a_users_rule_and_a_rule_of_equal_values_choose_as_if_all_were_evaluated() -> None:
    now = situation(1, 120.0)
    places, pending = now.candidates["r0"], SITES[np.random.default_rng(0).integers(len(SITES), size=40)]
    quick = AtPlaces.of(now.belief, places).condition_on_pending(pending)
    var = quick.posterior(places)[1]
    wanted = float(np.sort(var)[300])

    class ClosestVariance(LocalUtility):
        """Prefers places with a variance close to the wanted one."""

        def single(self, mean, var):
            return -abs(var - wanted)

    assert ClosestVariance(1.0, 0.0, 1.0).best_of(quick, places) == abs(var - wanted).argmin()
    assert LocalUtility(1.0, 0.0, 1.0, merit=lambda mean: np.full(len(mean), -np.inf)).best_of(quick, places) == 0


@pytest.mark.parametrize("rule", [DBGPUCB(exploration="annealed"), DBGPUCB()], ids=lambda rule: rule.exploration)
def test_choices_beyond_the_nearest_have_almost_no_effect(rule: DBGPUCB) -> None:
    """Each of 120 robots in one field knows the nearest 64 choices, and chooses as if it knew all.

    Standard deviations are accurate to one percent if robots spread, and to about two percent if they are close.
    """
    now = situation(120, 12.0)
    choices = {agent: place.tolist() for agent, place in at_once(greedy_picks(now, rule.alone(now)))[0].items()}
    assert choices == one_by_one(now, rule)
    chosen = np.array(list(choices.values()))
    assert len(np.unique(chosen, axis=0)) == 120
    belief = now.belief.condition_on_pending(chosen)
    for agent in now.movers[::12]:
        places = now.candidates[agent]
        near = chosen[nearest(places, chosen, DOMAIN)]
        assert len(near) == IN_SIGHT
        by_all, by_near = belief.posterior(places)[1], now.belief.condition_on_pending(near).posterior(places)[1]
        assert np.sqrt(by_near / by_all).max() < (1.01 if rule.exploration == "annealed" else 1.025)


def test_the_nearest_choices_are_by_distance_in_the_unit_box_and_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    others, places = DOMAIN.from_unit(rng.random((IN_SIGHT + 30, 2))), SITES[:5]
    rows = nearest(places, others, DOMAIN).tolist()
    assert rows == sorted(rows)
    middle = places.mean(axis=0)
    far = [abs((x - middle[0]) / 100.0) ** 2 + abs((y - middle[1]) / 50.0) ** 2 for x, y in others]
    assert set(rows) == set(np.argsort(far)[:IN_SIGHT].tolist())
    assert len(nearest(places, others[:IN_SIGHT], DOMAIN)) == IN_SIGHT
    assert len(nearest(places, others[:3], DOMAIN)) == 3
    others[:50] = np.nan  # of unknown distance, so the last
    assert nearest(places, others, DOMAIN).tolist() == [*range(20), *range(50, IN_SIGHT + 30)]


def test_tables_of_a_large_team_cost_no_more_per_robot(monkeypatch):
    """In a team of any size, no belief is conditioned on more choices than a robot has in sight."""
    seen = list[int]()
    quick = AtPlaces.condition_on_pending
    monkeypatch.setattr(AtPlaces, "condition_on_pending", lambda self, X: seen.append(len(X)) or quick(self, X))
    assert DBGPUCB(candidates=8).local_problem(situation(90, 8.0)) is not None
    assert max(seen) == IN_SIGHT


def test_tables_of_a_large_team_have_a_limited_size_and_lose_almost_nothing(monkeypatch):
    """Shorter shortlists lose less than a thousandth of a standard deviation per robot, compared with whole ones."""
    few, many = situation(48, 15.0), situation(49, 15.0)
    rule = DBGPUCB(markov_order=1, candidates=32, table_entries=2**10)
    spared, cut = rule.local_problem(few), rule.local_problem(many)
    monkeypatch.setattr(chain_acquisition, "_LARGE_TEAM", 49)
    whole = rule.local_problem(many)
    entries = [sum(table.size for table in problem.tables.values()) for problem in (cut, whole)]
    assert entries[0] <= 2**13 < entries[1]
    assert max(map(len, spared.shortlists.values())) == 32 > max(map(len, cut.shortlists.values())) >= 12
    best, found = (Exact().solve(problem.graph, problem.tables) for problem in (whole, cut))
    assert found.value <= best.value + 1e-9
    assert best.value - found.value < 1e-3 * len(many.movers) * np.sqrt(many.belief.prior_variance)


def test_distant_choices_among_many_are_left_out_with_almost_no_effect() -> None:
    now = situation(60, 12.0)
    learned = now.belief
    short = msgspec.structs.replace(learned.hyperparameters, lengthscales=(0.08, 0.1))
    now = replace(now, belief=replace(learned, hyperparameters=short))
    chosen = np.array(list(at_once(greedy_picks(now, DBGPUCB().alone(now)))[0].values()))
    belief, left_out = AtPlaces.of(now.belief, SITES), 0
    whole = belief.condition_on_pending(chosen)
    for agent in now.movers:
        places = now.candidates[agent]
        relevant = relevant_places(belief, places, chosen, DOMAIN)
        left_out += len(chosen) - len(relevant)
        var = belief.condition_on_pending(relevant).posterior(places)[1]
        np.testing.assert_allclose(var, whole.posterior(places)[1], rtol=1e-3, atol=1e-5 * now.belief.prior_variance)
    assert left_out > 10 * len(now.movers)
    assert len(relevant_places(belief, SITES[:3], chosen[:16], DOMAIN)) == 16  # of few choices none is left out
    assert len(relevant_places(now.belief, SITES[:3], chosen, DOMAIN)) == 60
