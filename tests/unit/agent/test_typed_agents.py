"""Agents with categorical variables, integers and grids decide as their team does, in the user's values."""

from typing import Any

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.agent.schema import is_row
from swarmbo.deciding import own_rows as rows
from swarmbo.errors import ConfigError
from swarmbo.fleet import messages
from swarmbo.fleet.hub import row_of
from swarmbo.fleet.messages import hub_accepts
from swarmbo.problem.data import News
from swarmbo.records import SolveReport

from .carried import copied, sent_by
from .test_agent import INITIAL, PAIRS, RING, Case

COLOURS = sb.Categorical(["red", "green", "blue"])
DISCRETE = {
    "a": COLOURS,
    "b": sb.Integer(1, 9, step=2),
    "c": sb.Categorical([1, True, None, 2.5]),
    "d": sb.Categorical(["low", "middle", "high"], ordered=True),
}
MIXED = {"a": COLOURS, "b": sb.Integer(1, 200, log=True), "d": sb.Real(1e-3, 1.0, log=True)}  # c is a plain number
IN_TIME = sb.ADMM(mode="asynchronous", deadline=16, patience=6, starts=2, inner_steps=2)


def case_of(types: dict[str, Any], scopes: dict[str, list[str]] = RING, **given: Any) -> Case:
    names = {variable for scope in scopes.values() for variable in scope}
    return Case(scopes, types={name: of for name, of in types.items() if name in names}, **given)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PRIVATE_OUTCOME", 77.0)


@pytest.mark.parametrize(
    ("scopes", "outcomes"),
    [
        pytest.param(RING, "per-factor", id="ring"),
        pytest.param(PAIRS, "total", id="pairs, totals"),
        pytest.param(RING, "total", id="ring, totals", marks=pytest.mark.slow),
        pytest.param(PAIRS, "per-factor", id="pairs", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("types", [DISCRETE, MIXED], ids=["all discrete", "mixed"])
def test_agents_decide_as_the_team_does(types: Any, scopes: Any, outcomes: str):
    """In lockstep or by a deadline, so that each pair of the other parameters occurs with both."""
    coordination = None if (types is MIXED) ^ (scopes is RING) ^ (outcomes == "total") else IN_TIME
    case = case_of(types, scopes, outcomes=outcomes, **({} if coordination is None else {"coordination": coordination}))
    for turn in range(INITIAL + 2):
        ((query_id, point),) = case.ask_all()
        wanted = case.team.pending[query_id]
        assert [(type(x), x) for x in point.values()] == [(type(x), x) for x in wanted.values()]
        assert coordination is not None or sent_by(case.agents) == case.team.sent, turn
        assert not any(agent.refused for agent in case.agents.values())
        case.tell(query_id, case.outcomes(point))
    case.recommended()


@pytest.mark.parametrize(
    ("outcomes", "coordination"), [("per-factor", None), ("total", IN_TIME)], ids=["in step", "by a deadline"]
)
def test_constraints_over_several_factors_are_kept_by_messages(outcomes: str, coordination: Any):
    count = {"a": (1.0, 0.0, 0.0), "c": (1.0, 0.0, 1.0, 0.0), "b": 0.2}
    constraints = [
        sb.Linear(weights=count, at_most=1.5),
        sb.Constraint(scope=("a", "d"), allowed=lambda a, d: a != "red" or d != "low"),
    ]
    given = {} if coordination is None else {"coordination": coordination}
    case = case_of(DISCRETE, PAIRS, outcomes=outcomes, constraints=constraints, **given)
    for _ in range(INITIAL + 2):
        ((query_id, point),) = case.ask_all()  # exactly the team's point
        ones = (point["a"] == "red") + (point["c"] in (1, None) and point["c"] is not True)
        assert ones + 0.2 * point["b"] <= 1.5
        assert (point["a"], point["d"]) != ("red", "low")
        case.tell(query_id, case.outcomes(point))
    case.recommended()


@pytest.mark.parametrize("outcomes", ["total", pytest.param("per-factor", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "acquisition", ["dumbo", *(pytest.param(n, marks=pytest.mark.slow) for n in ("thompson", "dec-hbo"))]
)
def test_batches_of_every_acquisition_equal_those_of_the_team(acquisition: str, outcomes: str):
    case = case_of(MIXED, acquisition=acquisition, outcomes=outcomes)
    case.play(1, INITIAL)
    case.play(1, 2)
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    case.play(1, 2)


def test_agents_replace_known_points_of_a_small_grid_as_the_team_does():
    """They add up the means and variances of their factors, so that each knows the expected improvement."""
    case = case_of(dict.fromkeys("abc", sb.Integer(0, 2)), outcomes="per-factor")
    case.play(INITIAL + 6)
    case.play(2, 3)
    assert case.team.sent["expected"].messages
    assert sent_by(case.agents) == case.team.sent


def test_values_of_other_points_are_told_and_attached_in_the_users_types():
    case = case_of(DISCRETE)
    points = [["red", 3, None], ["blue", 7, True]]
    case.attach(points, np.array([[*case.outcomes(dict(zip("abc", x, strict=True))).values()] for x in points]))
    for _ in range(3):
        ((query_id, point),) = case.ask_all()
        moved = {**point, "a": "blue" if point["a"] != "blue" else "green", "b": 5}
        case.tell(query_id, case.outcomes(moved), moved)
    case.ask_all()
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.X, case.team.history.X)
    with pytest.raises(ConfigError, match=r"\$\.point\.a: got 'pink'; wanted one of \['red', 'green', 'blue'\]"):
        case.agents["a"].tell(case.ask_all()[0][0], {"f": 1.0}, point={"a": "pink"})


def test_messages_of_a_fleet_have_codes_and_invalid_codes_are_refused():
    problem = case_of(DISCRETE).problem
    point = problem.placed({"a": "blue", "b": 7, "c": None})
    row = row_of(problem, "a", News(point, None, {"f": 1.0}), rows.OwnRows(), "a", has_ended=False)
    assert row.place == {"a": 2.0}
    assert is_row(row, "a", problem)
    for code in (3.0, 0.5, -1.0):
        assert not is_row(msgspec.structs.replace(row, place={"a": code}), "a", problem)
        decision = messages.Decision(1, "q00001", {"a": code}, SolveReport(status="exact"), {})
        assert not hub_accepts("a", decision, problem)
    assert hub_accepts("a", messages.Decision(1, "q00001", {"a": 1.0}, SolveReport(status="exact"), {}), problem)


def test_a_message_with_a_code_that_is_not_a_value_is_refused():
    """An invalid code of an agent is refused in the sums of outcomes."""
    from swarmbo.agent import schema

    case = case_of(DISCRETE)
    ((query_id, point),) = case.ask_all()
    case.tell(query_id, case.outcomes(point))
    agent = case.agents["a"]
    numbers = rows.OutcomeExchange("a", agent.log, agent._own_rows).numbers()  # pyright: ignore[reportPrivateUsage]
    fits = schema.outcome_sums(case.problem, agent.log, 0, ("a",))
    assert fits(numbers, frozenset({"a"}))
    column = rows.Layout.of(case.problem).place.start + case.graph.variables.index("a")
    for code in (0.4, 3.0, -1.0):
        wrong = numbers.copy()
        wrong[0, column] = code
        assert not fits(wrong, frozenset({"a"}))
