"""Local functions are penalised where evaluations failed, and joint points are moved back if that is not enough."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.acquisition.penalties import is_met, moved_back, parts_together, spreads, with_requirements
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.success import (
    Requirement,
    SuccessGP,
    least_margin,
    reference,
    required_logit,
    requirements,
)
from swarmbo.errors import OwnershipError
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value

GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
BOX = dict.fromkeys("xyz", (0.0, 2.0))


def situation_of(team: sb.Team):
    return team._learner.situation(team._log, None)


def _team(failing, *, outcomes="total", failing_factors=None, **more) -> sb.Team:
    """A team with 24 evaluations, of which those in a region failed."""
    X = 2.0 * np.random.default_rng(1).random((24, 3))
    F = np.stack([-((X[:, 0] - 0.5) ** 2), -((X[:, 1] - X[:, 2]) ** 2)], axis=1)
    failed = failing(X / 2.0)
    if outcomes == "total":
        y = np.where(failed, np.nan, F.sum(axis=1))
    else:
        y = np.where(failed[:, None] & np.isin(["f", "g"], failing_factors or ["f", "g"]), np.nan, F)
    team = sb.Team(GRAPH, BOX, outcomes=outcomes, **more)
    team.attach(X, y)
    return team


def _bound(team: sb.Team):
    situation, model = situation_of(team), team.model
    functions = team.acquisition.local_functions(situation, model)
    needed = requirements(situation)
    return functions, needed, reference(situation, needed, model.incumbent()), situation


def limits(functions, needed, origin, **more):
    return with_requirements(functions, needed, origin, spreads(functions, 3), **more)


def weights_of(limited, factors):
    return {hold.weight for factor in factors for hold in limited.penalties[factor]}


def _wall(U):
    return U[:, 0] > 0.75


def _across(U):
    return (U[:, 0] < 0.65) & (U[:, 2] < 0.65)


def test_without_a_failure_nothing_is_required() -> None:
    team = _team(lambda U: np.zeros(len(U), dtype=bool))
    assert requirements(situation_of(team)) == ()
    query = team.ask()
    team.tell(query, {"f": 0.1})
    assert not situation_of(team).history.failed.any()  # g is still pending
    team.tell(query, {"g": None})
    assert situation_of(team).history.failed.tolist()[-1] == [False, True]


@pytest.mark.parametrize("kind", ["dec-hbo", "dumbo", "thompson", "expected-improvement", "auto"])
@pytest.mark.parametrize("tight", [False, True])
def test_slopes_of_bounded_functions_are_those_of_differences(kind, tight) -> None:
    functions, needed, origin, _ = _bound(_team(_wall, acquisition=kind))
    limited = limits(functions, needed, origin, tight=tight)
    U, penalised = 0.05 + 0.9 * np.random.default_rng(4).random((12, 3)), 0
    for stack in stacks_of(limited.graph):
        X = stack.take(U)
        nothing = tuple(np.zeros(X.shape[:2]) for _ in range(functions.n_exchanges))

        def penalty(X, stack=stack, nothing=nothing):
            return functions.value(stack, X, nothing) - limited.value(stack, X, nothing)

        penalised += int((penalty(X) > 0.0).sum())
        bare, slope = (each.value_and_gradient(stack, X, nothing)[1] for each in (functions, limited))
        scale = np.abs(functions.value(stack, X, nothing)).max() + penalty(X).max()
        for axis, shift in enumerate(1e-6 * np.eye(stack.size)):
            change = (penalty(X + shift) - penalty(X - shift)) / 2e-6
            np.testing.assert_allclose((bare - slope)[..., axis], change, atol=1e-2 * scale)
    assert penalised  # some points of the box are in the failing region


def test_a_bounded_function_is_the_function_itself_where_evaluations_succeed() -> None:
    functions, needed, origin, _ = _bound(_team(_wall, acquisition="dec-hbo"))
    limited = limits(functions, needed, origin)
    U = np.random.default_rng(4).random((300, 3))
    free = (U[:, 0] < 0.4) & (np.abs(needed[0].model.logit(U) - needed[0].model.offset) < 5.0)
    np.testing.assert_array_equal(total_value(limited, U[free]), total_value(functions, U[free]))
    failed = U[:, 0] > 0.9
    assert (total_value(limited, U[failed]) < total_value(functions, U[failed])).mean() > 0.9


@given(st.integers(0, 10_000))
def test_factors_that_keep_equal_shares_meet_the_requirement_together(seed) -> None:
    """All terms of the model lie within scopes: if each factor keeps its share, the sum meets the requirement."""
    rng = np.random.default_rng(seed)
    U = rng.random((20, 3))
    whole = SuccessGP.learned(U, rng.random(20) < 0.7, [(0, 1), (1, 2)])
    terms = tuple(term for term in whole.terms if len(term.columns) < 3)
    model = SuccessGP.given(terms, whole.offset, U, rng.random(20) < 0.7, counts=whole.counts)
    needed = (Requirement(np.arange(3), model, 0.4),)
    points = rng.random((400, 3))
    origin = points[int(least_margin(needed, points).argmax())]
    team = _team(lambda U: np.zeros(len(U), dtype=bool), acquisition="dec-hbo")
    functions = team.acquisition.local_functions(situation_of(team), team.model)
    limited = limits(functions, needed, origin, tight=True)
    kept = total_value(limited, points) == total_value(functions, points)
    lacking = np.minimum(least_margin(needed, origin[None]), 0.0) - least_margin(needed, points)
    assert (lacking[kept] <= 1e-9).all()


def test_only_the_factor_that_fails_is_penalised() -> None:
    team = _team(_wall, outcomes="per-factor", failing_factors=["f"], acquisition="dec-hbo")
    functions, needed, origin, situation = _bound(team)
    assert [requirement.columns.tolist() for requirement in needed] == [[0, 1]]
    assert set(limits(functions, needed, origin).penalties) == {"f"}
    ((columns, own, agents),) = parts_together(situation.graph, needed)
    assert (columns.tolist(), own, agents) == ([0, 1, 2], needed, situation.graph.agents)
    whole = requirements(situation_of(_team(_wall, outcomes="per-factor", acquisition="dec-hbo")))
    assert [requirement.columns.tolist() for requirement in whole] == [[0, 1, 2]]


def test_failures_are_forgotten_over_the_longest_time_of_all_factors() -> None:
    late = replace(situation_of(_team(_wall, outcomes="per-factor", acquisition="dec-hbo")), round=20)
    short, long = (TimeCorrelation("matern12", rounds) for rounds in (1.0, 50.0))
    U = np.random.default_rng(5).random((9, 3))
    both, slow, fast = (least_margin(requirements(late, times), U) for times in ([short, long], [long], [short]))
    np.testing.assert_array_equal(both, slow)
    assert not np.allclose(slow, fast)


def test_only_failures_of_chosen_points_raise_the_requirement() -> None:
    situation = situation_of(_team(_wall, acquisition="dec-hbo"))
    situation = replace(situation, history=replace(situation.history, chosen=np.zeros(24, dtype=bool)))
    ((given,), (chosen,)) = (
        requirements(situation),
        requirements(replace(situation, history=replace(situation.history, chosen=np.ones(24, dtype=bool)))),
    )
    assert given.least == required_logit(0.0) < chosen.least


def test_an_evaluation_that_failed_in_part_did_not_fail_as_a_whole() -> None:
    team = sb.Team(GRAPH, BOX, outcomes="per-factor", acquisition="dec-hbo", initial=2)
    for told in ({"f": None, "g": None}, {"f": None}):  # the second one waits for g
        team.tell(team.ask(), told)
    whole, own = requirements(situation_of(team))
    assert (len(whole.columns), len(whole.model.U)) == (3, 2)
    assert whole.margin(whole.model.U)[0] < whole.margin(whole.model.U)[1]
    assert (len(own.columns), len(own.model.U)) == (2, 1)


def test_parts_without_failures_are_left_out() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
    model = SuccessGP.learned(np.array([[0.5, 0.5]]), np.array([False]))
    ((columns, _, agents),) = parts_together(graph, (Requirement(np.array([0, 1]), model, 0.4),))
    assert columns.tolist() == [0, 1]
    assert agents == ("x", "y")


@pytest.mark.parametrize("region", [_wall, _across])
def test_a_point_in_a_failing_region_is_moved_back_no_farther_than_necessary(region) -> None:
    _, needed, origin, _ = _bound(_team(region, acquisition="dec-hbo"))
    drawn = np.random.default_rng(2).random((500, 3))
    inside = drawn[int(least_margin(needed, drawn).argmin())]
    assert region(inside[None])[0]
    assert not is_met(needed, inside, origin)
    back = moved_back(needed, inside, origin)
    assert is_met(needed, back, origin)
    share = np.linalg.norm(back - origin) / np.linalg.norm(inside - origin)
    assert 0.0 <= share < 1.0
    np.testing.assert_allclose(back, origin + share * (inside - origin), atol=1e-12)
    farther = origin + (share + 1.0 / 64) * (inside - origin)
    assert least_margin(needed, farther[None])[0] < min(0.0, least_margin(needed, origin[None])[0])


def test_without_any_success_the_reference_is_a_likely_place() -> None:
    team = _team(lambda U: np.ones(len(U), dtype=bool), acquisition="dec-hbo")
    situation = situation_of(team)
    needed = requirements(situation)
    origin = reference(situation, needed, np.full(3, 0.5))
    drawn = np.random.default_rng(0).random((50, 3))
    assert least_margin(needed, origin[None])[0] >= np.median(least_margin(needed, drawn))
    assert np.isfinite(list(team.ask().point.values())).all()


def test_with_learned_scopes_a_team_avoids_the_region_of_failed_evaluations() -> None:
    belief = {"kind": "additive", "structure": {"kind": "sampled", "samples": 1, "burn_in": 3, "largest": 2}}
    team = _team(_wall, acquisition="dec-hbo", belief=belief)
    point = team.ask().point
    assert point["x"] < 1.8


def test_owners_may_ask_for_their_own_factors_only() -> None:
    functions, needed, origin, _ = _bound(_team(_wall, acquisition="dec-hbo"))
    own = limits(functions, needed, origin).of(["f"])
    (stack,) = stacks_of(GRAPH)
    with pytest.raises(OwnershipError, match="'g'"):
        own.value(stack, stack.take(np.full((1, 3), 0.5)), ())
    assert set(own.penalties) <= {"f"}


def test_penalties_are_in_the_unit_of_what_is_maximised() -> None:
    team = _team(_wall, acquisition="dec-hbo")
    functions, needed, origin, _ = _bound(team)
    limited = limits(functions, needed, origin)
    (weight,) = weights_of(limited, limited.penalties)
    assert weight == pytest.approx(4.0 * sum(spreads(functions, 3).values()))
    level = FlatImprovements.of_team(team)
    flat = limits(level, needed, origin)
    assert weights_of(flat, flat.penalties) == {4.0}


def test_a_part_weighs_its_penalties_by_the_spread_of_its_own_factors() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
    team = sb.Team(graph, BOX, outcomes="per-factor", acquisition="dec-hbo")
    X = 2.0 * np.random.default_rng(1).random((24, 3))
    team.attach(X, np.stack([np.where(X[:, 0] > 1.5, np.nan, X[:, 1]), 100.0 * X[:, 2]], axis=1))
    functions, needed, origin, _ = _bound(team)
    (weight,) = weights_of(limits(functions, needed, origin), "f")
    spread = spreads(functions, 3)
    assert spread["g"] > 0.0
    assert weight == pytest.approx(4.0 * spread["f"])


class FlatImprovements(LogImprovements):
    """Zero everywhere."""

    @classmethod
    def of_team(cls, team: sb.Team) -> "FlatImprovements":
        return cls.on_cube(team.model.belief, reference=np.full(3, 0.5))

    def value(self, stack, U, received):
        return np.zeros(U.shape[:2])


@given(st.permutations(range(5)), st.booleans(), st.integers(0, 50))
def test_the_order_of_a_choices_values_changes_neither_what_is_learned_nor_what_is_moved_back(order, is_whole, seed):
    rng = np.random.default_rng(seed)
    choices, others = rng.integers(5, size=16), rng.random((16, 2))
    outcomes = rng.normal(size=(16, 2))
    outcomes[choices < 2] = (np.nan, np.nan if is_whole else 1.0)

    def learned(position):
        values = [int(value) for value in np.argsort(position)]
        team = sb.Team(GRAPH, BOX | {"x": sb.Categorical(values)}, outcomes="per-factor", initial=2)
        rows = [[int(choice), *place] for choice, place in zip(choices, 2.0 * others, strict=True)]
        team.attach(rows, outcomes)
        needed = requirements(situation_of(team))
        points = [[(position[choice] + 0.5) / 5, *rest] for choice, rest in zip([0, 1, 2, 3, 4], others, strict=False)]
        back = [moved_back(needed, np.array(point), np.array(points[3])) for point in points]
        back = [[values[int(5 * place[0])], *place[1:]] for place in back]
        return least_margin(needed, np.array(points)), np.array(back)

    for ours, theirs in zip(learned(np.arange(5)), learned(np.array(order)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
