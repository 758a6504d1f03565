"""Constraints known beforehand and limits on measured quantities: queries keep them, and optima are found."""

import ctypes
import math
import os
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from types import SimpleNamespace
from zlib import crc32

import hypothesis.strategies as st
import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, reject, settings
from pettingzoo import ParallelEnv
from scipy.spatial.distance import pdist

import swarmbo as sb
from swarmbo.acquisition.confidence_bounds import _is_stalled
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.limits import barring_better_infeasible, probably_violated
from swarmbo.belief.model.model import Learned, Model
from swarmbo.belief.model.success import least_margin, reference, requirements
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.problem.constraints import Constraint, Linear, Separation
from swarmbo.problem.data import Dataset
from swarmbo.problem.feasible import Feasible
from swarmbo.runs import load, run
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import scenario_of
from swarmbo.spaces.variables import Real

NAMES = "abcd"


def drawn(seed, *values):
    """True if joint values are allowed, pseudo-randomly."""
    return crc32(repr((seed, values)).encode()) % 3 > 0


@st.composite
def small_problems(draw):
    """Integers and choices, few enough for brute force, and constraints on them."""
    choices = st.sampled_from([sb.Categorical(["u", "v", "w"]), sb.Categorical([1, 2], ordered=True)])
    kinds = st.one_of(st.builds(sb.Integer, st.integers(-2, 0), st.integers(1, 3)), choices)
    space = {name: draw(kinds) for name in NAMES}

    def weight(name):
        variable = space[name]
        count = len(variable.values) if isinstance(variable, sb.Categorical) else 0
        number = st.integers(-2, 2).map(float)
        return draw(st.tuples(*[number] * count) if count else number)

    constraints = []
    for _ in range(draw(st.integers(1, 3))):
        scope = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True))
        numbers = [name for name in scope if isinstance(space[name], sb.Integer)]
        kind = draw(st.sampled_from(["linear", "table", "separation"]))
        if kind == "separation" and len(numbers) >= 2:
            constraints.append(Separation(variables=tuple(numbers[:2]), at_least=draw(st.integers(0, 3))))
        elif kind == "table":
            allowed = partial(drawn, draw(st.integers(0, 99)))
            constraints.append(Constraint(scope=tuple(scope), allowed=allowed))
        else:
            constraints.append(Linear(weights={n: weight(n) for n in scope}, at_most=draw(st.integers(-3, 3))))
    return space, constraints


def kept(constraint, point):
    """True if a point keeps a constraint, without the library's code for depths or programs."""
    if isinstance(constraint, Separation):
        one, other = (point[name][0] for name in constraint.variables)
        return abs(one - other) >= constraint.at_least
    if isinstance(constraint, Constraint):
        return bool(constraint.table[tuple(point[name][1] for name in constraint.scope)])
    terms = ((point[name], weight) for name, weight in constraint.weights.items())
    total = sum(w * value if isinstance(w, float | int) else w[place] for (value, place), w in terms)
    return total <= constraint.at_most + 1e-12


def pairs(space, point):
    """(value, position) of the integers and choices of a query."""
    own = {name: (space[name], value) for name, value in point.items() if name in NAMES}
    return {n: (x, v.values.index(x) if isinstance(v, sb.Categorical) else x - v.low) for n, (v, x) in own.items()}


def all_points(space):
    """The (value, position) of each variable, for every joint point."""
    values = [v.values if isinstance(v, sb.Categorical) else range(v.low, v.high + 1) for v in space.values()]
    axes = [[(value, place) for place, value in enumerate(each)] for each in values]
    return [dict(zip(space, joint, strict=True)) for joint in product(*axes)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(small_problems(), st.integers(0, 10**6))
def test_the_nearest_allowed_point_is_that_of_brute_force(problem, seed):
    space, constraints = problem
    fitted = tuple(one.fitting(space, "$") for one in constraints)
    points = all_points(space)
    allowed = [point for point in points if all(kept(one, point) for one in fitted)]
    feasible = Feasible(tuple(space.values()), tuple(space), fitted)
    start = points[np.random.default_rng(seed).integers(len(points))]

    def codes(point):
        pairs_of = ((point[name], isinstance(v, sb.Categorical)) for name, v in space.items())
        return np.array([place if is_choice else value for (value, place), is_choice in pairs_of], float)

    def away(point):
        steps = zip(space.values(), np.abs(codes(point) - codes(start)), strict=True)
        return sum(step > 0 if isinstance(v, sb.Categorical) else step / (v.high - v.low) for v, step in steps)

    found, conflict = feasible.nearest(codes(start)), feasible.conflict()
    if not allowed:
        assert found is None
        for without in conflict:  # each of them is needed for the contradiction
            rest = [one for place, one in enumerate(fitted) if place in conflict and place != without]
            assert any(all(kept(one, point) for one in rest) for point in points)
        assert not any(all(kept(fitted[place], point) for place in conflict) for point in points)
        return
    assert conflict == []
    chosen = next(point for point in allowed if np.array_equal(codes(point), found))
    assert away(chosen) == pytest.approx(min(map(away, allowed)), abs=1e-9)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(small_problems(), st.booleans(), st.integers(0, 99))
def test_every_query_and_recommendation_keeps_every_constraint(problem, by_factor, seed):
    space, constraints = problem
    space = {**space, "x": (0.0, 2.0), "y": (0.0, 2.0)}
    constraints = [*constraints, Linear(weights={"x": 1.0, "y": 1.0}, at_most=2.5, at_least=0.5)]
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b", "x"], "g": ["c", "d", "y"]}) if by_factor else None
    try:
        problem = Problem.of(graph, space).with_constraints(constraints)
    except ConfigError:
        reject()  # in conflict: another test covers these
    outcomes = "per-factor" if by_factor else "total"
    team = sb.Team(replace(problem, outcomes=outcomes), seed=seed, initial=3)
    for _ in range(5):
        query = team.ask()
        assert all(kept(one, pairs(space, query.point)) for one in problem.constraints[:-1])
        assert 0.5 <= query.point["x"] + query.point["y"] <= 2.5
        score = query.point["x"] - query.point["y"]
        team.tell(query, {"f": score, "g": 0.0} if by_factor else score)
    assert all(kept(one, pairs(space, team.recommend().point)) for one in problem.constraints[:-1])


@pytest.mark.parametrize("coordination", ["admm", "refined-max-sum"])
def test_a_maximum_on_the_border_of_a_constraint_is_found_with_choices_and_several_factors(coordination):
    graph = sb.FactorGraph.from_scopes({"f": ["x", "c"], "g": ["y", "c"]})
    space, rule = {"x": (0.0, 1.0), "y": (0.0, 1.0), "c": sb.Categorical(["a", "b"])}, {"x": 1.0, "y": 1.0}
    team = sb.Team(graph, space, constraints=[Linear(weights=rule, at_most=0.5)], coordination=coordination, seed=0)
    for _ in range(20):
        x, c, y = (query := team.ask()).point.values()
        team.tell(query, -((x - 0.6) ** 2) - (y - 0.5) ** 2 + (c == "b"))
    assert 0.8195 < np.max(team.history.totals) <= 0.82 + 1e-12  # at x = 0.3, y = 0.2, c = b


@pytest.mark.parametrize("scopes", [{"f": ["x", "c"], "g": ["y", "c"]}, {"f": ["x", "y", "c"]}])
def test_a_maximum_on_the_border_of_a_region_is_found(scopes):
    graph, shut = sb.FactorGraph.from_scopes(scopes), sb.NoGoBox(low=(0.4, 0.3), high=(0.9, 0.8), variables=("x", "y"))
    space = {"x": (0.0, 1.0), "y": (0.0, 1.0), "c": sb.Categorical(["a", "b"])}
    team = sb.Team(graph, space, no_go=[shut], seed=1)
    for _ in range(20):
        point = (query := team.ask()).point
        team.tell(query, -((point["x"] - 0.6) ** 2) - (point["y"] - 0.5) ** 2 + (point["c"] == "b"))
    assert 0.9595 < np.max(team.history.totals) <= 0.96 + 1e-4  # at x = 0.4, y = 0.5 or x = 0.6, y = 0.3


def test_a_budget_over_parts_that_share_no_variable_is_spent_where_it_gains_most():
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b"], "g": ["c", "d"]})
    budget = sb.Linear(weights=dict.fromkeys(NAMES, 1.0), at_most=1.5)
    space = dict.fromkeys(NAMES, (0.0, 1.0))
    team = sb.Team(graph, space, outcomes="per-factor", constraints=[budget], seed=1)
    for _ in range(25):
        query = team.ask()
        a, b, c, d = query.point.values()
        assert a + b + c + d <= 1.5
        team.tell(query, {"f": a + 0.5 * b, "g": 2.0 * c - d**2})
    a, b, c, d = team.recommend().point.values()
    assert a + 0.5 * b + 2.0 * c - d**2 > 2.45  # of 2.5, at a = 0.5 and c = 1


@pytest.mark.parametrize(
    "constraint",
    [
        Linear(weights={"x": 2.0, "r": -1.0}, at_most=1.0),
        Linear(weights={"x": 1.0, "r": 0.1}, at_least=1.0),
        Separation(variables=("x", "r"), at_least=0.5),
    ],
)
def test_slopes_of_depths_are_those_of_finite_differences(constraint):
    problem = Problem.of(None, {"x": (0.0, 3.0), "r": sb.Real(0.1, 10.0, log=True), "n": sb.Integer(0, 3)})
    (limit,) = problem.with_constraints([constraint]).regions
    U, step = np.random.default_rng(0).random((50, 2)), 1e-6
    _, slope = constraint.depth(U, limit.bounds)
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        up, down = (constraint.depth(U + sign * shift, limit.bounds)[0] for sign in (1.0, -1.0))
        np.testing.assert_allclose(slope[:, axis], (up - down) / (2.0 * step), atol=1e-5)


def test_constraints_in_conflict_are_named_and_no_others():
    space = {"a": sb.Integer(0, 3), "b": (0.0, 1.0)}
    many = [
        Linear(weights={"a": 1.0}, at_least=3.0),
        Linear(weights={"b": 1.0}, at_most=0.5),
        Linear(weights={"a": 1.0, "b": 1.0}, at_most=2.5),
    ]
    with pytest.raises(ConfigError) as caught:
        sb.Team(None, space, constraints=many)
    assert "constraints[0] (a) and constraints[2] (a, b)" in caught.value.message


@pytest.mark.parametrize(
    "alone",
    [
        Linear(weights={"a": 1.0, "b": 1.0}, at_least=9.0),
        Separation(variables=("a", "b"), at_least=9.0),
        Constraint(scope=("a", "b"), allowed=lambda a, b: False),
    ],
    ids=lambda one: type(one).__name__,
)
def test_one_constraint_that_no_point_keeps_is_named(alone):
    with pytest.raises(ConfigError, match=r"constraints\[0\] \(a, b\), which no point keeps"):
        sb.Team(None, {"a": sb.Integer(0, 3), "b": sb.Integer(0, 3)}, constraints=[alone])


@pytest.mark.parametrize(
    ("constraint", "at", "words"),
    [
        (Linear(weights={"z": 1.0}, at_most=1.0), "$.constraints[0].weights", "some of ['a', 'c']"),
        (Linear(weights={"c": 1.0}, at_most=1.0), "$.constraints[0].weights.c", "3 numbers, one for each value"),
        (Separation(variables=("a", "c"), at_least=1.0), "$.constraints[0].variables", "two numbers, or a Constraint"),
        (Constraint(scope=("a",), allowed=bool), "$.constraints[0].scope", "variables with a step"),
        (Constraint(scope=("c",), allowed=[True, False]), "$.constraints[0].allowed", "booleans of shape (3,)"),
        (lambda a: a < 1.0, "$.constraints[0]", "or sb.Linear, sb.Separation or sb.Constraint"),
    ],
)
def test_constraints_that_do_not_fit_the_variables_are_refused(constraint, at, words):
    with pytest.raises(ConfigError) as caught:
        sb.Team(None, {"a": (0.0, 1.0), "c": sb.Categorical(["u", "v", "w"])}, constraints=[constraint])
    assert caught.value.at == at
    assert words in caught.value.message


def test_a_problem_with_constraints_and_limits_is_the_same_after_a_round_trip():
    space = {"a": sb.Integer(0, 9), "c": sb.Categorical(["u", "v", 3]), "r": sb.Real(0.1, 1.0, log=True)}
    problem = Problem.of(None, space).with_limits({"latency": (None, 3.0)})
    problem = problem.with_constraints([Constraint(scope=("a", "c"), allowed=lambda a, c: a > 2 or c == "u")])
    again = Problem.from_plain(problem.to_plain())
    assert again.to_plain() == problem.to_plain()
    assert again.variables == problem.variables
    U = np.random.default_rng(0).random((200, 3))
    np.testing.assert_array_equal(again.is_allowed(U), problem.is_allowed(U))


class TestLimitsOnMeasuredQuantities:
    def run(self, n=22):
        team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, limits={"load": (None, 0.8)}, seed=3, rounds=n)
        told = []
        for _ in range(n):
            query = team.ask()
            x, y = query.point.values()
            team.tell(query, x + 0.5 * y, constraints={"load": x**2 + y})
            told.append((query.id, x + 0.5 * y, x**2 + y))
        return team, told

    def test_the_best_evaluation_that_keeps_the_limit_is_recommended(self):
        team, told = self.run()
        x, y = team.recommend().point.values()
        assert x**2 + y <= 0.8
        assert x + 0.5 * y == pytest.approx(max(value for _, value, load in told if load <= 0.8), abs=1e-6)
        assert x + 0.5 * y > 0.86  # of 0.894, at x = 0.894
        assert sum(load > 0.8 for _, _, load in told[10:]) <= 6

    def test_a_limit_that_moves_is_followed_and_a_point_that_kept_it_once_is_not_recommended(self):
        belief, n = sb.AdditiveGPSettings(time=sb.TimeAxis(lengthscale_median=10.0)), 26
        team = sb.Team(None, {"x": (0.0, 1.0)}, belief=belief, limits={"load": (None, 0.5)}, initial=4)
        moved = 0.3 * np.sin(2.0 * np.pi * np.arange(n) / 20.0)
        x = np.empty(n)
        for t in range(n):
            x[t] = (query := team.ask()).point["x"]
            team.tell(query, x[t], constraints={"load": x[t] + moved[t]})
        assert np.maximum(x + moved - 0.5, 0.0)[8:].mean() < 0.01
        assert np.abs(x + moved - 0.5)[8:].mean() < 0.05  # the best allowed point is at the limit
        assert team.recommend().point["x"] + moved[-1] <= 0.5

    @pytest.mark.parametrize("form", ["rows", "columns", "arrays"])
    def test_attached_quantities_are_known(self, form):
        rng = np.random.default_rng(0)
        X = rng.random((20, 2))
        value, load = X[:, 0] + 0.5 * X[:, 1], X[:, 0] ** 2 + X[:, 1]
        columns = {"x": X[:, 0], "y": X[:, 1], "total": value, "load": load}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, limits={"load": (None, 0.8)}, seed=3, initial=2)
        if form == "arrays":
            team.attach(X, value, constraints={"load": load})
        else:
            team.attach(rows if form == "rows" else columns)
        np.testing.assert_array_equal(team.history.measured[:, 0], load)
        assert list(team.recommend().point.values()) == X[np.where(load <= 0.8, value, -1.0).argmax()].tolist()
        point = team.ask().point
        assert point["x"] ** 2 + point["y"] < 0.85

    def test_the_best_values_of_separate_parts_are_not_combined_against_a_limit(self):
        graph, bounds = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}), {"x": (0.0, 1.0), "y": (0.0, 1.0)}
        team = sb.Team(graph, bounds, outcomes="per-factor", limits={"load": (None, 1.1)}, initial=4)
        X = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.2, 0.3], [0.9, 0.9]])
        team.attach(X, X, constraints={"load": X.sum(axis=1)})
        for _ in range(2):
            assert sum(team.recommend().point.values()) <= 1.1
            x, y = (query := team.ask()).point.values()
            assert x + y < 1.2
            team.tell(query, {"f": x, "g": y}, constraints={"load": x + y})

    @settings(max_examples=12, deadline=None)
    @given(
        st.lists(st.sampled_from(["all", "failed", "one failed", "one later", "total later"]), min_size=6, max_size=9)
    )
    def test_limits_that_every_evaluation_keeps_change_no_data_of_the_model(self, kinds):
        def team_of(**limits):
            bounds = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
            return sb.Team(graph, bounds, outcomes="per-factor", initial=4, acquisition="dec-hbo", **limits)

        graph = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]})
        free, limited = team_of(), team_of(limits={"q": (None, 1.0)})
        for i, (kind, u) in enumerate(zip(kinds, np.random.default_rng(0).random((9, 2)).round(3), strict=False)):
            told = {"all": {"f": u[0], "g": u[1]}, "one later": {"f": u[0]}, "total later": {"g": u[1]}}
            told |= {"failed": {"f": None, "g": None}, "one failed": {"f": u[0], "g": None}}
            for team in (free, limited):
                query = team.expect(dict(zip("xy", u.tolist(), strict=True)))
                team.tell(query, told[kind], **({"constraints": {"q": 0.1 * i}} if team is limited else {}))
        one, two = (team._learner.situation(team._log, None) for team in (free, limited))
        for name, column in vars(one.history).items():
            np.testing.assert_array_equal(column, getattr(two.history, name) if name != "measured" else None)
        np.testing.assert_array_equal(one.history.failed, two.history.failed)
        if one.history.n_known:
            np.testing.assert_array_equal(free.model.belief.factors, limited.model.belief.factors)

    def test_infeasible_evaluations_that_may_beat_the_best_feasible_one_are_barred_and_reduced_to_it(self):
        rows = [  # f, g, total, quantity (at most 1), known outcomes of f and g and the total that stay
            (1.0, 1.0, 2.0, 0.5, True),
            (0.0, 1.0, 1.0, 3.0, True),  # infeasible, and worse
            (2.0, 1.0, 3.0, 3.0, False),  # infeasible, and better
            (2.0, 1.0, 3.0, np.nan, False),  # perhaps infeasible, and better
            (0.5, np.nan, np.nan, 3.0, False),  # infeasible, and perhaps better
            (2.0, np.nan, np.nan, 0.5, True),
            (2.0, np.nan, np.nan, np.nan, True),  # nothing speaks against it
            (np.nan, np.nan, 1.5, 0.5, True),  # only the total is known
            (np.nan, np.nan, 2.5, 3.0, False),
        ]
        table, stay = np.array([row[:4] for row in rows]), np.array([row[4] for row in rows])
        data = Dataset(
            np.zeros((9, 2)), table[:, 2], table[:, :2], chosen=np.ones(9, dtype=bool), measured=table[:, 3:]
        )
        ranges = {"q": (None, 1.0)}
        seen = barring_better_infeasible(data, ranges)
        assert seen.barred.tolist() == (~stay).tolist()
        np.testing.assert_array_equal(seen.sums, np.where(stay, table[:, 2], np.nan))
        np.testing.assert_array_equal(seen.totals, np.minimum(table[:, 2], 2.0))  # which models learn
        np.testing.assert_array_equal(barring_better_infeasible(data, ranges, moves=True).totals, table[:, 2])
        # without a feasible evaluation, those that break the limit least count as feasible
        measured = np.array([[4.0, 3, 5, 6, 4, 2, 3, 9, 9]]).T
        worse = barring_better_infeasible(replace(data, measured=measured), ranges)
        assert worse.barred.tolist() == [True, False, True, True, True, False, False, True, True]
        assert not worse.chosen.any()

    def test_the_team_learns_from_infeasible_outcomes_and_finds_the_best_choice(self):
        space = {"x": (0.0, 1.0), "k": sb.Integer(0, 3), "c": sb.Categorical(["u", "v", "w"])}
        graph, bonus = sb.FactorGraph.from_scopes({"f": ["x", "k"], "g": ["x", "c"]}), {"u": 0.0, "v": 0.5, "w": 0.2}
        team = sb.Team(graph, space, limits={"load": (None, 0.1)}, seed=0)
        for _ in range(18):  # of the ten points of the design, one is feasible, with c = w
            x, k, c = (query := team.ask()).point.values()
            outcome = -((x - 0.3) ** 2) - (k - 2) ** 2 / 4 - (x - 0.6) ** 2 + bonus[c]
            team.tell(query, outcome, constraints={"load": x})
        assert {name: team.recommend().point[name] for name in "kc"} == {"k": 2, "c": "v"}

    @pytest.mark.parametrize("outcomes", ["total", "per-factor"])
    def test_far_better_outcomes_beyond_a_limit_do_not_hide_the_feasible_ones(self, outcomes):
        graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        team = sb.Team(graph, dict.fromkeys("xyz", (0.0, 1.0)), seed=2, outcomes=outcomes, limits={"load": (None, 0.9)})
        best = -np.inf
        for _ in range(30):
            x, y, z = (query := team.ask()).point.values()
            load = x + 0.5 * y + 0.3 * z
            f, g = -((x - 0.6) ** 2) - 0.5 * (y - 0.5) ** 2, -((z - 0.7) ** 2) - 0.5 * (y - 0.5) ** 2
            best = max(best, f + g) if load <= 0.9 else best
            f += 1e4 * max(load - 0.9, 0.0)
            told = {"f": f, "g": g} if outcomes == "per-factor" else f + g
            team.tell(query, told, constraints={"load": load})
        assert best > -(0.16**2) / 1.34 - 2e-3  # the distance of the maximum from the limit

    def test_the_model_of_a_limit_knows_the_rounds_of_pending_points(self):
        belief = sb.AdditiveGPSettings(time=sb.TimeAxis())
        team = sb.Team(None, {"x": (0.0, 1.0)}, initial=1, belief=belief, limits={"q": (None, 0.0)})
        for _ in range(4):
            team.tell(query := team.ask(), 1.0, constraints={"q": 1.0 + query.point["x"]})
        for x in (0.2, 0.3, 0.4):
            team.expect({"x": x})
        (limit,) = probably_violated(team._learner.situation(team._log, None), belief.time)
        assert limit.region.belief.pending_rounds.tolist() == team.model.belief.pending_rounds.tolist() == [5, 6, 7]

    def test_only_violations_of_chosen_points_make_the_next_queries_more_careful(self):
        team, X = sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (None, 0.3)}), np.linspace(0.1, 1.0, 10)[:, None]
        team.attach(X, X[:, 0], constraints={"load": X[:, 0]})
        situation = team._learner.situation(team._log, None)
        histories = [replace(situation.history, chosen=np.full(10, chosen)) for chosen in (False, True)]
        given, chosen = (probably_violated(replace(situation, history=one), None)[0] for one in histories)
        assert given.region.assured == 0.25 < chosen.region.assured
        assert given.margin < chosen.margin

    def test_violations_are_in_units_of_the_distance_of_the_third_nearest_measurement(self):
        team, x = sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (0.0, 0.8)}), np.array([0.1, 0.4, 0.5, 0.78, 0.83])
        team.attach(x[:, None], x, constraints={"load": x})
        (limit,) = probably_violated(team._learner.situation(team._log, None), None)
        assert limit.region.unit == pytest.approx(0.1)  # of 0.02, 0.03, 0.1 (from the lower end), 0.3 and 0.4

    def test_without_known_quantities_all_chosen_points_count_for_or_against_the_method(self):
        data = Dataset(np.zeros((3, 1)), np.arange(3.0), np.full((3, 1), np.nan), chosen=np.array([False, True, True]))
        seen = barring_better_infeasible(replace(data, measured=np.full((3, 1), np.nan)), {"q": (None, 1.0)})
        assert seen.chosen.tolist() == [False, True, True]

    @pytest.mark.parametrize("rows", [[0, 1, 4], [4, 1, 0, 2, 3], [0, 4]])
    def test_infeasible_points_are_barred_whichever_rows_an_own_belief_keeps(self, rows):
        X = np.array([[0.2], [0.9], [0.3], [0.35], [0.1]])
        y, problem = np.where([True, True, False, False, True], X[:, 0], np.nan), Problem.of(None, {"x": (0.0, 1.0)})
        belief = AdditiveGP.create(sb.AdditiveGPSettings(), problem.graph, problem.domain).update(X[rows], y[rows])
        barred = Model(belief, Learned(belief.hyperparameters, 0)).barring(X, X[:, 0] == 0.9).belief
        assert barred.barred.tolist() == [row == 1 for row in rows]

    def test_dec_hbo_is_not_stalled_while_feasible_points_improve(self):
        team = sb.Team(None, {"x": (0.0, 1.0)}, seed=0, limits={"q": (None, 0.7)}, acquisition="dec-hbo", initial=2)
        for x in (0.95, *np.linspace(0.05, 0.65, 9)):  # the best is infeasible, and each later point is a new best
            team.tell(team.ask(), x, point={"x": x}, constraints={"q": x})
        assert team.model.belief.barred[0]
        assert not _is_stalled(team.model.belief)

    def test_no_search_starts_from_an_infeasible_point_after_failures(self):
        team = sb.Team(None, dict.fromkeys("xy", (0.0, 1.0)), seed=0, limits={"q": (None, 0.5)}, initial=2)
        moves = [(i, j) for i, j in product((-0.03, 0.0, 0.03), repeat=2) if i or j]
        for i, j in moves:  # failures next to the only feasible point
            team.tell(team.ask(), None, failed=True, point={"x": 0.3 + i, "y": 0.3 + j})
        for x, y, q in [(0.3, 0.3, 1.0), *((0.85 + 0.01 * i, 0.8, 2.0) for i in range(8))]:
            team.tell(team.ask(), q, point={"x": x, "y": y}, constraints={"q": x})
        situation, best = team._learner.situation(team._log, None), team.model.incumbent()
        assert situation.history.barred.sum() == 8
        needed = requirements(situation)
        assert least_margin(needed, best[None])[0] < 0.0
        assert reference(situation, needed, best).tolist() == best.tolist() == [0.3, 0.3]

    @pytest.mark.parametrize("unit", [1.0, 1e6])
    def test_a_small_allowed_part_is_found_though_the_best_outcomes_lie_far_from_it(self, unit):
        limits = {"load": (None, 0.05 * unit), "always": (0.0, None)}
        team, loads = sb.Team(None, {"x": (0.0, 1.0)}, limits=limits, initial=4), list[float]()
        for _ in range(7):
            x = (query := team.ask()).point["x"]
            loads.append(x)
            team.tell(query, x, constraints={"load": x * unit, "always": 1.0 + x})
            best = max([one for one in loads if one <= 0.05], default=min(loads))
            assert team.recommend().point["x"] == pytest.approx(best, abs=1e-6)
        assert min(loads) <= 0.05

    @pytest.mark.parametrize(("load", "least", "seed", "n"), [
        pytest.param(  # the best outcomes lie in the other corner
            lambda x, y: -((x - 0.1) ** 2) - (y - 0.1) ** 2, -0.003, 0, 16, id="a ball in a corner",
            marks=pytest.mark.slow,
        ),
        pytest.param(  # which are 0.763 and 1.193
            lambda x, y: math.sin(7 * x) * math.sin(5 * y) + math.cos(3 * x + 1) * y + x, 1.38, 4, 28,
            id="next to lower maxima",
        ),
    ])  # fmt: skip
    def test_a_small_allowed_part_of_several_variables_is_found(self, load, least, seed, n):
        space, is_kept = {"x": (0.0, 1.0), "y": (0.0, 1.0)}, False
        team = sb.Team(None, space, limits={"load": (least, None)}, seed=seed, initial=5)
        for _ in range(n):
            x, y = (query := team.ask()).point.values()
            team.tell(query, -((x - 0.9) ** 2) - (y - 0.9) ** 2, constraints={"load": load(x, y)})
            is_kept = is_kept or load(x, y) >= least
        assert is_kept

    def test_points_of_a_batch_are_far_apart_while_no_evaluation_keeps_the_limit(self):
        team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, limits={"load": (None, 0.01)}, seed=0, initial=1)
        X = np.random.default_rng(0).random((12, 2))
        team.attach(X, X.sum(axis=1), constraints={"load": 0.02 + ((X - 0.3) ** 2).sum(axis=1)})
        assert pdist([[*query.point.values()] for query in team.ask(8)]).min() > 0.04

    def test_a_point_that_violated_a_limit_is_not_recommended_although_its_mean_is_higher(self):
        team = sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (None, 0.5)}, seed=0)
        x = np.array([0.3] * 6 + [0.05, 0.45] + [0.8] * 6)[:, None]
        y = np.array([1.0, 0.0, 0.05, -0.05, 0.02, -0.02, 0.0, 0.1, *(0.94 + 0.001 * np.arange(6))])
        team.attach(x, y, constraints={"load": x[:, 0]})
        assert team.recommend().point["x"] <= 0.5

    def test_a_point_whose_quantity_is_unknown_is_recommended_only_if_none_is_known_to_keep_the_limit(self):
        team = sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (None, 0.5)}, seed=0)
        team.attach([[0.9], [0.6]], [0.9, 0.6], constraints={"load": [0.9, np.nan]})
        assert team.recommend().point["x"] == 0.6
        team.attach([[0.4]], [0.4], constraints={"load": [0.4]})
        assert team.recommend().point["x"] == 0.4

    @pytest.mark.filterwarnings("ignore:outcome of the quantity .load.")
    @pytest.mark.parametrize("absurd", [1e70, -np.inf])
    def test_an_absurd_quantity_is_unknown_whether_it_is_told_or_attached(self, absurd):
        told, attached = (sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (0.0, 0.8)}, initial=4) for _ in range(2))
        for x, weight in ((0.1, 0.1), (0.9, absurd), (0.4, 0.4), (0.7, 0.7)):
            told.tell(told.expect({"x": x}), x, constraints={"load": weight})
            attached.attach([[x]], [x], constraints={"load": [weight]})
        np.testing.assert_array_equal(told.history.measured, attached.history.measured)
        assert attached.ask().point.keys() == {"x"}

    def test_missing_and_unknown_attached_quantities_are_reported(self):
        team = sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (None, 0.8)})
        with pytest.warns(sb.errors.DataWarning, match=r"no column of load, .*columns: x, total, Load"):
            team.attach({"x": [0.5], "total": [1.0], "Load": [0.3]})
        with pytest.raises(ConfigError, match=r"got \['lod'\]; wanted some of the limits \['load'\]"):
            team.attach([[0.5]], [1.0], constraints={"lod": [1.0]})
        with pytest.raises(sb.errors.ShapeError, match=r"constraints\['load'\]: got \[1, 2\]; wanted \(1,\) numbers"):
            team.attach([[0.5]], [1.0], constraints={"load": [1, 2]})
        with pytest.raises(ConfigError, match="wanted a team with limits"):
            sb.Team(None, {"x": (0.0, 1.0)}).attach([[0.5]], [1.0], constraints={"load": [1.0]})

    def test_a_repeated_quantity_is_accepted_and_another_one_is_a_conflict(self):
        team, told = self.run(3)
        query, value, load = told[0]
        team.tell(query, value, constraints={"load": load})
        with pytest.raises(sb.errors.ConflictError, match="recorded before"):
            team.tell(query, value, constraints={"load": load + 1.0})
        with pytest.raises(ConfigError, match=r"wanted some of the limits \['load'\]"):
            team.tell(team.ask(), 1.0, constraints={"noise": 1.0})

    @pytest.mark.parametrize("given", [{"load": (None, None)}, {"load": (2.0, 1.0)}, {"load": 3.0}, {"load": ("a", 1)}])
    def test_ranges_without_an_end_or_out_of_order_are_refused(self, given):
        with pytest.raises(ConfigError) as caught:
            sb.Team(None, {"x": (0.0, 1.0)}, limits=given)
        assert caught.value.at == "$.limits.load"


class TestInAWorld:
    """Two agents that set one number each; the load has a limit, and a constraint holds between the numbers."""

    def env(self):
        class Pair(ParallelEnv):
            def __init__(self):
                self.metadata, self.possible_agents = {"name": "pair"}, ["a", "b"]

            def action_space(self, agent):
                return Box(0.0, 1.0, (1,))

            def factor_graph(self):
                owners = {"x": "a", "y": "b"}
                return {"bounds": {"x": (0.0, 1.0), "y": (0.0, 1.0)}, "variable_owners": owners, "outcomes": "total"}

            def reset(self, seed=None, options=None):
                self.agents = list(self.possible_agents)
                return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

            def step(self, actions):
                x, y = (float(actions[agent][0]) for agent in self.agents)
                info = {"measurement": x + 0.5 * y, "constraints": {"load": x**2 + y, "else": "no number"}}
                flags = dict.fromkeys(self.agents, False)
                infos = {agent: {**info, "location": actions[agent]} for agent in self.agents}
                return dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, 0.0), flags, flags, infos

        return Pair()

    def test_infos_of_an_environment_have_the_measured_quantities_and_a_saved_team_continues(self, tmp_path):
        env = self.env()
        rule = Linear(weights={"x": 1.0, "y": -1.0}, at_least=0.0)
        team = sb.Team.for_env(env, seed=0, initial=5, constraints=[rule], limits={"load": (None, 0.8)}, rounds=14)
        observations, infos = env.reset()
        for _ in range(14):
            step = env.step(team.act(observations, infos))
            team.observe(*step)
        X = team.history.X
        assert (X[:, 0] - X[:, 1] >= -1e-6).all()
        np.testing.assert_allclose(team.history.measured[:, 0], X[:, 0] ** 2 + X[:, 1], atol=1e-6)
        best = team.recommend().point
        assert best["x"] ** 2 + best["y"] <= 0.8
        assert best["x"] + 0.5 * best["y"] > 0.8
        team.save(tmp_path / "team.npz")
        again = sb.Team.load(tmp_path / "team.npz", env=self.env())
        assert again.ask() == team.ask()


def test_a_scenario_states_constraints_as_tables():
    table = {"kind": "linear", "weights": {"x0": 1.0, "x1": 1.0}, "at_most": 0.0}
    scenario = scenario_of({"name": "kept", "environment": {"id": "swarmbo/function-v0", "function": "camel"},
                            "rounds": 8, "constraints": [table]})  # fmt: skip
    _, team = assemble(scenario)
    point = team.ask().point
    assert point["x0"] + point["x1"] <= 0.0


@pytest.mark.parametrize(
    ("rules", "largest"),
    [
        pytest.param(
            "constraints=[{kind='linear', weights={x0=1.0, x1=1.0}, at_least=2.5}]",
            -2.456690,
            id="half",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "constraints=[{kind='linear', weights={x0=1.0, x1=1.0}, at_least=1.0, at_most=1.0}]", 0.607015, id="line"
        ),
        pytest.param("no_go=[{kind='box', low=[-0.5, -1.5], high=[3.0, 0.5]}]", 1.031628, id="other maximum"),
    ],
)
def test_regret_is_relative_to_the_largest_value_that_the_rules_of_a_run_allow(rules, largest, tmp_path):
    """Largest values are from a grid of 6 million points, or from the literature."""
    summary = run(load("camel", ["rounds=2", rules]), tmp_path / "run")
    assert summary.maximum == pytest.approx(largest, abs=2e-5)
    assert summary.maximum_is == "reference optimum"
    assert summary.score.simple_regret == pytest.approx(summary.maximum - summary.best.mean, abs=1e-9)


@pytest.mark.parametrize(
    ("table", "at", "words"),
    [
        ({"kind": "linar"}, "$.constraints[0].kind", "did you mean 'linear'?"),
        ({"kind": "linear", "weight": {"x0": 1.0}}, "$.constraints[0]", "did you mean 'weights'?"),
        ({"kind": "separation", "variables": ["x0", "x1"], "at_least": -1}, "$.constraints[0].at_least", ">= 0"),
    ],
)
def test_a_wrong_table_in_a_list_of_a_scenario_is_refused_with_what_was_wanted(table, at, words):
    with pytest.raises(ConfigError) as caught:
        scenario_of({"name": "wrong", "environment": {"id": "swarmbo/function-v0"}, "constraints": [table]})
    assert caught.value.at == at
    assert words in caught.value.message


def test_constraints_on_which_the_solver_runs_out_of_time_are_not_called_a_conflict(monkeypatch):
    ended = SimpleNamespace(x=None, status=1)  # of scipy.optimize.milp: a limit was reached
    monkeypatch.setattr("swarmbo.problem.feasible.milp", lambda *_, **__: ended)
    variables = {name: sb.Integer(0, 9) for name in "ab"}
    some = [Linear(weights={"a": 1.0, "b": 1.0}, at_least=9.0)]
    assert Problem.of(None, variables).with_constraints(some).constraints == tuple(some)
    with pytest.raises(ConfigError, match="leave no point, as far as could be found"):
        Problem.of(None, variables).with_constraints([Constraint(scope=("a", "b"), allowed=lambda a, b: False)])


@pytest.mark.parametrize(
    ("impossible", "named"),
    [
        ([Linear(weights={"a": 1.0}, at_least=5.0)], "constraints[0] (a)"),
        ([Separation(variables=("a", "b"), at_least=5.0)], "constraints[0] (a, b)"),
        ([Linear(weights={"a": 1.0}, at_least=5.0), Linear(weights={"b": 1.0}, at_least=5.0)], "constraints[1] (b)"),
    ],
)
def test_a_constraint_that_no_point_keeps_even_alone_is_named(impossible, named):
    with pytest.raises(ConfigError, match="which no point keeps") as caught:
        sb.Team(None, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, constraints=impossible)
    assert named in caught.value.message


@pytest.mark.parametrize("unit", [2.0**40, 2.0**-40, 1e9, 1e-12])
def test_the_nearest_allowed_point_and_a_conflict_are_the_same_in_every_unit(unit):
    def solved(unit):
        both = {"x": 1.0, "y": 1.0}

        def of(*constraints):
            return Feasible((Real(0.0, unit),) * 2, ("x", "y"), constraints)

        sum_is_small = of(Linear(both, at_most=unit)).nearest(unit * np.array([0.9, 0.5])) / unit
        apart = of(Separation(("x", "y"), 0.5 * unit)).nearest(unit * np.array([0.6, 0.5])) / unit
        tight = of(Linear(both, at_least=1.99 * unit))
        contrary = of(Linear(both, at_least=1.5 * unit), Linear(both, at_most=0.5 * unit))
        return [*sum_is_small, *apart, *tight.nearest(np.zeros(2)) / unit], [tight.conflict(), contrary.conflict()]

    (points, conflicts), (wanted, wanted_conflicts) = solved(unit), solved(1.0)
    np.testing.assert_allclose(points, wanted, rtol=0.0, atol=1e-9)
    assert conflicts == wanted_conflicts == [[], [0, 1]]


@pytest.mark.parametrize("step", [1, 0.3, *(pytest.param(step, marks=pytest.mark.slow) for step in (0.1, 1 / 3))])
@pytest.mark.parametrize("rule", ["sum", "distance", "box"])
def test_values_on_the_border_of_a_rule_are_allowed_despite_rounding(rule, step):
    for n in range(2, 10):
        axis = sb.Real(0.0, 10 * step, step=step)
        team = {
            "sum": lambda axis=axis, n=n: Problem.of(None, dict.fromkeys("xy", axis)).with_constraints(
                [Linear(weights={"x": step, "y": step}, at_most=n * step**2)]
            ),
            "distance": lambda axis=axis, n=n: Problem.of(None, dict.fromkeys("xy", axis)).with_constraints(
                [Separation(variables=("x", "y"), at_least=n * step)]
            ),
            "box": lambda axis=axis, n=n: Problem.of(None, dict.fromkeys("xy", axis)).with_no_go(
                [sb.NoGoBox(low=(step, step), high=(n * step, n * step))]
            ),
        }[rule]()
        pairs = list(product(range(11), repeat=2))
        allowed = {
            "sum": lambda x, y, n=n: x + y <= n,
            "distance": lambda x, y, n=n: abs(x - y) >= n,
            "box": lambda x, y, n=n: not (1 < x < n and 1 < y < n),
        }[rule]
        assert len(team.few) == sum(allowed(x, y) for x, y in pairs)


@pytest.mark.parametrize(
    ("space", "weight", "total"),
    [
        (dict.fromkeys("ab", sb.Integer(0, 5)), 0.1, 0.3),  # 0.1 + 0.2 is above 0.3
        (dict.fromkeys("abcd", (0.0, 1.0)), 0.7, 0.9),
        (dict.fromkeys("abc", (5e6, 5e6 + 1.0)), 1.0, 15e6 + 1.3),
    ],
)
def test_an_equality_constraint_is_met_by_many_points(space, weight, total):
    equation = Linear(weights=dict.fromkeys(space, weight), at_most=total, at_least=total)
    problem = Problem.of(None, space).with_constraints([equation])
    U = np.random.default_rng(0).random((20, len(space)))
    kept = problem.in_box(np.array([problem.nearest_allowed(u) for u in U]))
    np.testing.assert_allclose(weight * kept.sum(axis=1), total, rtol=1e-11)
    assert len(np.unique(kept, axis=0)) > (3 if "d" not in space and problem.is_mixed else 15)
    near = problem.in_box(np.array([problem._projected(u) for u in U]))
    np.testing.assert_array_equal(kept, near)  # not some other allowed point, farther away


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(ConfigError, match="at_least: got 4; wanted a number up to at_most, 2"):
        Linear(weights={"a": 1.0}, at_least=4, at_most=2)


@pytest.mark.parametrize("start", ["largest", {"a": 0.8, "b": 0.7}])
def test_a_present_setting_that_a_rule_forbids_is_refused_and_not_asked_for_ever(start):
    rule = Linear(weights={"a": 1.0, "b": 1.0}, at_most=1.0)
    with pytest.raises(
        ConfigError, match=r"\$\.start: got {'a': .*}, which constraints or no_go forbid; wanted an allowed setting"
    ):
        sb.Team(None, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, constraints=[rule], start=start, step_limit="5%")


@pytest.mark.parametrize("top", [1.0, 1e4, 1e8])
@pytest.mark.parametrize(
    ("axis", "rule"),
    [
        (lambda top: sb.Real(1e-3, 1e3 * top, log=True), lambda _: Linear(weights={"a": 1.0, "b": 1.0}, at_most=0.01)),
        (lambda top: (0.0, 1e3 * top), lambda _: Linear(weights={"a": 1.0, "b": 1.0}, at_most=0.01)),
        (lambda top: (0.0, top), lambda _: Linear(weights={"a": 1.0, "b": 1.0}, at_most=0.01, at_least=0.00999)),
        (lambda top: (0.0, top), lambda top: Linear(weights={"a": 1.0, "b": 1.0}, at_least=2 * top)),
        (lambda top: (0.0, top), lambda top: Separation(variables=("a", "b"), at_least=top)),
    ],
)
def test_a_rule_that_leaves_a_small_part_of_wide_bounds_is_kept(axis, rule, top):
    problem = Problem.of(None, dict.fromkeys("ab", axis(top))).with_constraints([rule(top)])
    for u in np.random.default_rng(0).random((5, 2)):
        assert problem.is_allowed(problem.nearest_allowed(u)[None])[0]


def test_a_rule_that_only_a_solver_s_rounding_keeps_is_refused():
    wide = dict.fromkeys("ab", sb.Integer(0, 10**8))
    with pytest.raises(ConfigError, match="constraints that leave no point, as far as could be found"):
        Problem.of(None, wide).with_constraints([Linear(weights={"a": 1, "b": 1}, at_least=10.2, at_most=10.7)])


def keeps_exactly(constraint, point):
    """True if a point keeps a limit in exact arithmetic."""
    if isinstance(constraint, Separation):
        one, other = (Fraction(point[name]) for name in constraint.variables)
        return abs(one - other) >= Fraction(constraint.at_least)
    total = sum(Fraction(weight) * Fraction(point[name]) for name, weight in constraint.weights.items())
    low, high = constraint.at_least, constraint.at_most
    return (low is None or total >= Fraction(low)) and (high is None or total <= Fraction(high))


def printed_by_the_solver(capfd):
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # it prints by C
    return capfd.readouterr().out


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.thorough), *range(3, 8)])
def test_limits_that_integers_of_wide_bounds_keep_are_kept_exactly_and_never_refused(seed, capfd):
    rng = np.random.default_rng(seed)
    for _ in range(4):
        space, known, constraints = dict[str, sb.Integer](), dict[str, int](), []
        for name in NAMES[: rng.integers(2, 5)]:
            side = 10 ** int(rng.choice([1, 4, 6, 7, 9, 12]))
            low = int(rng.integers(-side, side + 1))
            space[name], known[name] = sb.Integer(low, low + side), int(rng.integers(low, low + side, endpoint=True))
        for _ in range(rng.integers(1, 4)):
            one, other = names = [str(name) for name in rng.permutation(list(space))[:2]]
            weights = {name: float(rng.choice([-1, 1, 2, 3, 5])) for name in names}
            total = sum(int(weights[name]) * known[name] for name in names)
            more = int(rng.choice([0, 0, 1, 10_000]))  # often an equation
            linear = Linear(weights, at_most=total + more, at_least=total)
            constraints.append(
                linear if rng.random() < 0.7 else Separation((one, other), abs(known[one] - known[other]))
            )
        problem = Problem.of(None, space).with_constraints(constraints)
        for u in rng.random((3, len(space))):
            point = problem.named(problem.in_box(problem.nearest_allowed(u)))
            assert all(keeps_exactly(constraint, point) for constraint in constraints)
    assert printed_by_the_solver(capfd) == ""


@pytest.mark.parametrize("top", [10**6, 10**8, 10**9])
def test_an_equation_of_wide_integers_has_many_points_and_the_nearest_one_is_near(top, capfd):
    equation = Linear(weights={"a": 1, "b": 1}, at_least=top + 1, at_most=top + 1)
    space = {"a": sb.Integer(0, top), "b": sb.Integer(0, top), "c": (0.0, 1.0)}
    points = [query.point for query in sb.Team(None, space, initial=10, constraints=[equation]).ask(10)]
    assert {point["a"] + point["b"] for point in points} == {top + 1}
    assert len({point["a"] for point in points}) == 10
    problem = Problem.of(None, space).with_constraints([equation])
    for start in np.random.default_rng(0).random((5, 3)):
        moved = np.abs(problem.nearest_allowed(start) - start)
        assert moved.sum() == pytest.approx(abs(start[:2].sum() - 1.0), abs=1e-5)
    assert printed_by_the_solver(capfd) == ""


def test_an_equation_in_two_limits_is_kept():
    weights = {"x": 1.0, "y": 1.0}
    for more in ([], [Linear({"x": 1.0}, at_least=0.4)]):
        both = [Linear(weights, at_most=1.0), Linear(weights, at_least=1.0), *more]
        team = sb.Team(None, dict.fromkeys("xy", (0.0, 1.0)), constraints=both, initial=4)
        assert [query.point["x"] + query.point["y"] for query in team.ask(4)] == pytest.approx([1.0] * 4, abs=1e-9)
