"""Random typed spaces: queries have values of the users' types, lie within the space, and never repeat."""

import json
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import swarmbo as sb
from swarmbo.deciding.tables import Rows, attached, read_rows
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem

from .teams import saved

NAMES = ("a", "b", "c", "d")
SMALL = sb.ADMM(rounds=2, starts=2, screened=8, polish_steps=2)
EXAMPLES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

_values = st.one_of(
    st.text("xyz", max_size=3),
    st.integers(-9, 9),
    st.booleans(),
    st.none(),
    st.floats(-5.0, 5.0).map(lambda x: x + 0.5),
)


@st.composite
def reals(draw: Any) -> sb.Real:
    low = draw(st.floats(1e-3, 10.0))
    step = draw(st.none() | st.floats(0.01, 3.0))
    high = low + step * draw(st.integers(1, 9)) if step else low * (1.0 + draw(st.floats(0.1, 100.0)))
    return sb.Real(low, high, log=draw(st.booleans()), step=step)


@st.composite
def integers(draw: Any) -> sb.Integer:
    low, step = draw(st.integers(1, 50)), draw(st.integers(1, 7))
    return sb.Integer(low, low + step * draw(st.integers(1, 30)), step=step, log=draw(st.booleans()))


@st.composite
def choices(draw: Any) -> sb.Categorical:
    values = draw(st.lists(_values, min_size=2, max_size=6, unique_by=lambda x: (type(x), x)))
    return sb.Categorical(values, ordered=draw(st.booleans()))


PLAIN = st.tuples(st.floats(-5.0, 0.0), st.floats(0.5, 5.0))
VARIABLE = st.one_of(reals(), integers(), choices(), PLAIN)


@st.composite
def problems(draw: Any) -> Problem:
    """A function of one to four variables, without a graph or with factors of some variables each."""
    names = NAMES[: draw(st.integers(1, 4))]
    bounds: dict[str, Any] = {name: draw(VARIABLE) for name in names}
    if draw(st.booleans()):
        return Problem.of(None, bounds)
    scopes = draw(st.lists(st.sets(st.sampled_from(names), min_size=1), min_size=1, max_size=3, unique_by=frozenset))
    covered = set[str]().union(*scopes)
    scopes += [{name} for name in names if name not in covered]
    graph = sb.FactorGraph.from_scopes({f"f{i}": sorted(scope) for i, scope in enumerate(scopes)})
    return Problem.of(graph, bounds, outcomes=draw(st.sampled_from(["total", "per-factor"])))


def kinds_of(point: dict[str, Any]) -> list[tuple[type, object]]:
    """Values with their types, because True equals 1."""
    return [(type(value), value) for value in point.values()]


def n_values(problem: Problem) -> float:
    counts = [variable.axis.count or np.inf for variable in problem.variables.values()]
    return prod(counts)


def require_in_space(problem: Problem, point: dict[str, Any]) -> None:
    """Assert that each value is allowed for its variable, has its exact type, and lies on its grid."""
    for name, of in problem.variables.items():
        value = point[name]
        if isinstance(of, sb.Categorical):
            assert (type(value), value) in [(type(one), one) for one in of.values]
            continue
        assert type(value) is (int if isinstance(of, sb.Integer) else float)
        assert of.low * (1.0 - 1e-12) <= value <= of.high * (1.0 + 1e-12) or of.low <= value <= of.high
        steps = (value - of.low) / of.step if of.step else 0.0
        assert abs(steps - round(steps)) < 1e-6
    assert problem.named(problem.placed(point)) == point


def outcome_of(problem: Problem, point: dict[str, Any]) -> Any:
    u = problem.domain.to_unit(problem.placed(point))
    if problem.outcomes == "total":
        return float(np.sin(5.0 * u).sum())
    return {factor: float(np.sin(5.0 * u[problem.columns(factor)]).sum()) for factor in problem.channels}


def each(examples: int, many: int) -> pytest.MarkDecorator:
    """Parametrise the number of examples; the larger number is slow."""
    return pytest.mark.parametrize("examples", [examples, pytest.param(many, marks=pytest.mark.slow)])


@each(60, 6000)
def test_designs_are_in_the_space_and_never_repeat(examples: int):
    """Points of the initial design are told or pending, until all values of a small space are used."""

    @settings(EXAMPLES, max_examples=examples)
    @given(problems(), st.integers(0, 2**20), st.lists(st.booleans(), min_size=1, max_size=9 if examples < 999 else 20))
    def check(problem: Problem, seed: int, told: list[bool]) -> None:
        team = sb.Team(problem, seed=seed, initial=1000)
        seen: list[str] = []
        for tells in told:
            query = team.ask()
            require_in_space(problem, query.point)
            seen.append(repr(query.point))
            assert len(set(seen)) == min(len(seen), n_values(problem))
            again = json.loads(json.dumps(query.point))
            assert kinds_of(again) == kinds_of(query.point)
            assert np.array_equal(problem.placed(again), problem.placed(query.point))
            if tells:
                team.tell(query, outcome_of(problem, query.point))
        restored = saved(team)
        assert restored.problem.variables == problem.variables
        assert list(map(kinds_of, restored.pending.values())) == list(map(kinds_of, team.pending.values()))
        query, again = team.ask(), restored.ask()
        assert again == query
        assert kinds_of(query.point) == kinds_of(again.point)

    check()


@each(100, 3500)
def test_tables_of_values_are_read_as_their_codes(examples: int):
    """Tables are lists of dicts, columns or arrays."""

    @settings(EXAMPLES, max_examples=examples)
    @given(problems(), st.integers(0, 2**20))
    def check(problem: Problem, seed: int) -> None:
        U = np.random.default_rng(seed).random((3, problem.domain.n_dims))
        X = np.array([problem.in_box(u) for u in U])
        points = [problem.named(x) for x in X]
        if not problem.is_mixed:
            return
        codes = problem.coded_rows([list(point.values()) for point in points])
        assert problem.points(codes).tolist() == X.tolist()
        columns = {name: [point[name] for point in points] for name in points[0]}
        of_totals = problem if problem.outcomes == "total" else Problem.of(None, problem.variables)
        for table in ([{**point, "total": 1.0} for point in points], {**columns, "total": [1.0] * len(points)}):
            rows = read_rows(Rows(table), of_totals)
            np.testing.assert_allclose(rows.points, X, rtol=1e-9)
        every = rows._replace(outcomes=[1.0] * 3)
        assert attached(every, Problem.of(None, problem.variables)).X.shape == X.shape

    check()


@each(6, 500)
def test_decisions_are_in_the_space_and_never_repeat(examples: int):
    """Points are chosen by a method."""

    @settings(EXAMPLES, max_examples=examples)
    @given(problems(), st.integers(0, 2**20))
    def check(problem: Problem, seed: int) -> None:
        assume(problem.is_mixed or examples > 6)
        team, seen = sb.Team(problem, seed=seed, initial=2, coordination=SMALL), list[str]()
        for _ in range(4):
            query = team.ask()
            require_in_space(problem, query.point)
            seen.append(repr(query.point))
            team.tell(query, outcome_of(problem, query.point))
        assert len(set(seen)) == min(len(seen), n_values(problem))
        found = team.recommend()
        assert found is not None
        assert found.point is not None
        require_in_space(problem, found.point)

    check()


def test_numbers_clearly_below_a_logarithmic_axis_are_refused():
    rate = sb.Real(1e-9, 1.0, log=True)
    assert [rate.axis.has(code) for code in (-5e-7, 0.0, 9e-10, 1e-9 - 1e-18, 1e-9, 1.0)] == [False] * 3 + [True] * 3
    with pytest.raises(ConfigError, match="x"):
        sb.Team(None, {"x": rate}).attach([[-5e-7]], [1.0])


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("initial", [2, 10])
def test_all_points_that_constraints_allow_are_asked_before_one_is_repeated(outcomes, initial):
    """In a colouring of a triangle, no variable can change alone."""
    scopes = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}
    unlike = [sb.Constraint(scope=tuple(scope), allowed=lambda a, b: a != b) for scope in scopes.values()]
    colours, graph = dict.fromkeys("xyz", sb.Categorical(["red", "green", "blue"])), sb.FactorGraph.from_scopes(scopes)
    for seed in range(3):
        team = sb.Team(graph, colours, constraints=unlike, outcomes=outcomes, initial=initial, seed=seed)
        asked = list[tuple[str, ...]]()
        for number, size in enumerate([1, 2, 1, 2]):
            queries = team.ask(size)
            asked += [tuple(query.point.values()) for query in queries]
            for query in queries:
                team.tell(query, float(number) if outcomes == "total" else dict.fromkeys(scopes, float(number)))
        assert len(set(asked)) == 6
        assert all(len(set(point)) == 3 for point in asked)


def test_points_of_a_colouring_with_too_many_points_to_list_are_distinct():
    names = [f"v{i}" for i in range(12)]
    pairs = {f"f{i}": [names[i], names[(i + 1) % 12]] for i in range(12)}
    unlike = [sb.Constraint(scope=tuple(scope), allowed=lambda a, b: a != b) for scope in pairs.values()]
    graph = sb.FactorGraph.from_scopes(pairs)
    team = sb.Team(graph, dict.fromkeys(names, sb.Categorical([1, 2, 3])), constraints=unlike, seed=0, initial=8)
    points = [tuple(query.point.values()) for query in team.ask(8)]
    assert len(set(points)) == 8
    assert all(a != b for point in points for a, b in zip(point, (*point[1:], point[0]), strict=True))


def test_once_all_allowed_points_of_a_large_grid_are_evaluated_a_point_is_asked_again():
    names = list("abcdef")
    few = sb.Linear(weights=dict.fromkeys(names, 1.0), at_most=1.0)  # 7 of a million points
    team = sb.Team(None, dict.fromkeys(names, sb.Integer(0, 9)), constraints=[few], seed=0)
    asked = list[tuple[int, ...]]()
    for number in range(8):
        query = team.ask()
        asked.append(tuple(query.point.values()))
        team.tell(query, float(number))
    assert len(set(asked)) == 7
    assert all(sum(point) <= 1 for point in asked)
