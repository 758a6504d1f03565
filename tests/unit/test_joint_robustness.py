"""A team with default settings continues after any outcomes and points."""

from collections.abc import Callable

import numpy as np
import pytest

import swarmbo as sb

from .teams import CHAIN, CUBE, springs


def some(bad: float) -> Callable[[int, float], float]:
    return lambda index, value: bad if index % 3 == 0 else value


OUTCOMES: dict[str, Callable[[int, float], float | None]] = {
    "some-nan": some(np.nan),
    "some-infinite": some(np.inf),
    "some-minus-infinite": some(-np.inf),
    "all-failed": lambda index, value: None,
    "huge": lambda index, value: 1e12 * value,
    "tiny": lambda index, value: 1e-12 * value,
    "constant": lambda index, value: 2.0,
}


def assert_continues(team) -> None:
    twin = sb.Team.from_state_dict(team.state_dict())
    query, again = team.ask(), twin.ask()
    assert query.point == again.point
    assert all(0.0 <= value <= 1.0 for value in query.point.values())
    expected = [query.mean, query.std]
    assert expected == [None, None] or (
        np.isfinite(expected).all() and query.std >= 0.0
    )  # points of a design have no prediction
    assert team.last_report.status in ("converged", "max_rounds", "not_needed")


@pytest.mark.parametrize(("kind", "outcomes"), [(k, ("total", "per-factor")[n % 2]) for n, k in enumerate(OUTCOMES)])
def test_a_team_continues_bit_identically_after_any_outcomes(kind, outcomes):
    team = sb.Team(CHAIN, CUBE, seed=0, initial=4, outcomes=outcomes)
    for index in range(6):
        query = team.ask()
        values = springs(query.point)
        told = {factor: OUTCOMES[kind](index, value) for factor, value in values.items()}
        team.tell(query, told if outcomes == "per-factor" else OUTCOMES[kind](index, sum(values.values())))
    assert_continues(team)


def test_a_team_continues_after_points_1e_12_apart():
    team = sb.Team(CHAIN, CUBE, seed=0, initial=2)
    team.attach([[0.5, 0.5, 0.5], [0.5 + 1e-12, 0.5, 0.5]], [1.0, 1.5])
    assert_continues(team)


@pytest.mark.parametrize("outcomes", ["per-factor", pytest.param("total", marks=pytest.mark.slow)])
def test_a_team_continues_after_300_outcomes_of_one_point(outcomes):
    team = sb.Team(CHAIN, CUBE, seed=0, initial=300, outcomes=outcomes)
    here = dict.fromkeys("xyz", 0.5)
    for index in range(300):
        value = 1.0 + 1e-3 * (index % 2)
        team.tell(team.ask(), value if outcomes == "total" else {"f": value, "g": -value}, point=here)
    assert team.n_data == 300
    assert_continues(team)
    away = [abs(value - 0.5) for value in team.last_query.point.values()]
    assert max(away) > 1e-9  # nothing can be learned there any more
    assert team.recommend().mean == pytest.approx(1.0005 if outcomes == "total" else 0.0, abs=1e-2)


@pytest.mark.parametrize(
    ("scopes", "outcomes"),
    [
        ({f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(40)}, "total"),
        ({f"f{i}": [f"x{i}", "hub"] for i in range(30)}, "per-factor"),
        ({f"f{i}": [f"x{i}"] for i in range(60)}, "per-factor"),
    ],
    ids=["chain-of-40", "star-of-30", "60-apart"],
)
def test_a_team_continues_with_many_factors_and_few_outcomes(scopes, outcomes):
    graph = sb.FactorGraph.from_scopes(scopes)
    team = sb.Team(graph, dict.fromkeys(graph.variables, (0.0, 1.0)), seed=0, initial=2, outcomes=outcomes)
    for index in range(3):
        query = team.ask()
        parts = {f: -sum((query.point[v] - 0.3) ** 2 for v in graph.scope(f)) for f in graph.factors}
        parts["f1"] = OUTCOMES["some-nan"](index, parts["f1"])
        team.tell(query, parts if outcomes == "per-factor" else sum(parts[f] for f in graph.factors if f != "f1"))
    assert_continues(team)
    assert team.failures == (1 if outcomes == "per-factor" else 0)


@pytest.mark.filterwarnings("ignore:outcome of .*counts as missing")
def test_a_team_learns_from_alternating_totals_factors_and_failures():
    team = sb.Team(CHAIN, CUBE, seed=1, initial=4)
    told = [
        lambda own: sum(own.values()),
        lambda own: own,
        lambda own: {"g": own["g"]},
        lambda own: {"f": own["f"], "g": None},
        lambda own: float("nan"),
        lambda own: {"f": 1e70, "g": own["g"]},
    ]
    for index in range(12):
        query = team.ask()
        team.tell(query, told[index % len(told)](springs(query.point)), failed=True)
    assert_continues(team)
    assert sum(springs(team.recommend().point).values()) > -0.3  # random points: -0.46 on average


def test_factors_told_one_at_a_time_in_any_order_give_the_same_decisions():
    at_once, one_by_one = (sb.Team(CHAIN, CUBE, seed=2, initial=3, outcomes="per-factor") for _ in range(2))
    for _ in range(7):
        queries = at_once.ask(2), one_by_one.ask(2)
        assert [query.point for query in queries[0]] == [query.point for query in queries[1]]
        for query in queries[0]:
            at_once.tell(query, springs(query.point))
        for factor, query in [("g", queries[1][0]), ("f", queries[1][0]), ("f", queries[1][1]), ("g", queries[1][1])]:
            one_by_one.tell(query, {factor: springs(query.point)[factor]})
    assert_continues(one_by_one)


def test_after_the_first_parts_of_queries_others_told_in_any_order_give_the_same_decisions():
    teams = [sb.Team(CHAIN, CUBE, seed=2, initial=4, outcomes="per-factor") for _ in range(3)]
    orders = [0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 4, 6, 7, 5, 3, 1], [1, 2, 0, 4, 7, 3, 6, 5]
    for _ in range(3):
        points = list[object]()
        for team, order in zip(teams, orders, strict=True):
            parts = [(query, factor) for query in team.ask(4) for factor in "fg"]
            points.append([query.point for query, _ in parts])
            for query, factor in (parts[n] for n in order):
                team.tell(query, {factor: springs(query.point)[factor]})
        assert points[0] == points[1] == points[2]


def test_a_team_continues_while_half_of_its_factors_are_pending():
    team = sb.Team(CHAIN, CUBE, seed=2, initial=3, outcomes="per-factor")
    open_queries = team.ask(5)
    for query in open_queries:
        team.tell(query, {"g": springs(query.point)["g"]})
        if team.n_data >= 3:
            assert_continues(sb.Team.from_state_dict(team.state_dict()))
    for query in reversed(open_queries):
        team.tell(query, {"f": springs(query.point)["f"]})
    assert_continues(team)
    assert (team.n_data, team.failures) == (5, 0)


def test_the_initial_design_continues_until_totals_differ():
    def played(acquisition, tells=lambda index: 1.0):
        team = sb.Team(CHAIN, CUBE, seed=0, initial=4, acquisition=acquisition)
        for index in range(20):
            query = team.ask()
            team.tell(query, tells(index))
        return team

    flat = played("auto")
    X = flat.history.X
    assert not flat.history.chosen.any()
    assert np.abs(X[:, None] - X[None]).max(axis=-1)[~np.eye(len(X), dtype=bool)].min() > 0.02
    np.testing.assert_array_equal(X, played("dec-hbo").history.X)
    assert np.flatnonzero(played("auto", lambda index: float(index == 11)).history.chosen).tolist() == [*range(12, 20)]
