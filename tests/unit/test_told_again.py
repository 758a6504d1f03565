"""Outcomes told again: equal ones change nothing, different ones are refused, in any order and after saving."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.errors import ConflictError, UnknownQueryError
from swarmbo.transport import InProcess

from .teams import CHAIN, CUBE, saved

FIELD = sb.Problem.of_field(["a", "b"], sb.Domain(np.zeros(1), np.ones(1)))
OUTCOMES = st.sampled_from([1.5, -2.0, None])


def team_of(kind: str) -> sb.Team:
    if kind in ("field", "fused"):
        belief: Any = {"kind": "fused", "n_features": 20} if kind == "fused" else "exact"
        return sb.Team(FIELD, belief=belief, coordination="greedy", seed=1)
    return sb.Team(CHAIN, CUBE, outcomes=kind, seed=1)  # type: ignore[arg-type]


def contents(team: sb.Team) -> tuple[Any, dict[str, bytes]]:
    state = team.state_dict()
    return state["json"], {name: np.asarray(array).tobytes() for name, array in state["arrays"].items()}


@st.composite
def schedules(draw: st.DrawFn, kind: str) -> tuple[list[tuple[int, Any, bool]], list[tuple[int, int]]]:
    """Outcomes of three queries, told in any order and in parts, and pairs of positions (after, which) to repeat."""
    channels = ["a", "b"] if kind in ("field", "fused") else ["f", "g"]
    tells: list[tuple[int, Any, bool]] = []
    for number in range(3):
        outcomes = {channel: draw(OUTCOMES) for channel in channels}
        if kind == "total" and draw(st.booleans()):
            tells.append((number, draw(OUTCOMES), False))
        elif draw(st.booleans()):
            tells.append((number, outcomes, False))
        else:
            first = draw(st.sampled_from(channels))
            rest = {channel: y for channel, y in outcomes.items() if channel != first}
            tells.append((number, {first: outcomes[first]}, False))
            tells.append(draw(st.sampled_from([(number, rest, False), (number, {}, True)])))
    order = draw(st.permutations(range(len(tells))))
    order = sorted(order, key=lambda place: order.index(place) if not tells[place][2] else math.inf)
    tells = [tells[place] for place in order]
    last = len(tells) - 1
    again = draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), max_size=6))
    return tells, [(max(pair), min(pair)) for pair in again]


@pytest.mark.parametrize("kind", ["per-factor", "total", "field", "fused"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_equal_outcomes_told_again_in_any_order_change_nothing(kind: str, data: Any):
    tells, again = data.draw(schedules(kind))
    once, twice = team_of(kind), team_of(kind)
    assert [query.id for query in once.ask(3)] == [query.id for query in twice.ask(3)]

    def tell(team: sb.Team, place: int) -> None:
        number, outcome, failed = tells[place]
        team.tell(f"q{number + 1:05d}", outcome, failed=failed)

    for place in range(len(tells)):
        tell(once, place)
        tell(twice, place)
        for after, which in again:
            if after == place:
                twice = saved(twice) if which % 2 else twice
                tell(twice, which)
    for place in range(len(tells)):
        tell(twice, place)
    assert contents(twice) == contents(once)
    assert saved(twice).pending == once.pending == {}


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize(
    ("kind", "told", "other", "message"),
    [
        ("per-factor", {"f": 1.0, "g": None}, {"f": 2.0}, "got 'f' 2.0; recorded before: 1.0"),
        ("per-factor", {"f": 1.0, "g": None}, {"g": 2.0}, "got 'g' 2.0; recorded before: a failure"),
        ("per-factor", {"f": 1.0, "g": 2.0}, {"f": None}, "got a failure of 'f'; recorded before: 1.0"),
        ("per-factor", {"f": 1.0, "g": 2.0}, None, r"got a failure; recorded before: {'f': 1.0, 'g': 2.0}"),
        ("per-factor", {"f": 1.0}, {"f": 2.0, "g": 1.0}, "got 'f' 2.0; recorded before: 1.0"),
        ("total", 3.0, 4.0, "got the total 4.0; recorded before: 3.0"),
        ("total", 3.0, None, "got a failure of the total; recorded before: 3.0"),
        ("total", None, 3.0, "got the total 3.0; recorded before: a failure"),
        ("total", 3.0, {"f": 1.0}, "got an outcome of 'f'; recorded before: the total 3.0"),
        ("total", {"f": 1.0, "g": 2.0}, 4.0, "got the total 4.0; recorded before: 3.0"),
        ("field", {"a": 1.0, "b": None}, {"b": 0.5}, "got 'b' 0.5; recorded before: a failure"),
        ("fused", {"a": 1.0}, {"a": 0.5}, "got 'a' 0.5; recorded before: 1.0"),
    ],
)
def test_a_different_outcome_is_refused_and_changes_nothing(
    kind: str, told: Any, other: Any, message: str, reload: bool
):
    team = team_of(kind)
    team.ask(2)
    team.tell("q00002", told)
    team = saved(team) if reload else team
    before = contents(team)
    with pytest.raises(ConflictError, match=f"query 'q00002': {message}"):
        team.tell("q00002", other)
    assert contents(team) == before
    for name in ("q00009", "q2", "q00000", "", "q٠٠٠٠٢"):
        with pytest.raises(UnknownQueryError, match="is not pending"):
            team.tell(name, told)


def test_a_total_may_repeat_the_sum_of_factors_or_complete_a_partial_outcome():
    team = team_of("total")
    query = team.ask()
    team.tell(query, {"f": 1.0, "g": 2.0})
    team.tell(query, 3.0)
    part = team.ask()
    team.tell(part, {"f": 1.0})
    team.tell(part, 7.0)
    assert team.history.totals.tolist() == [3.0, 7.0]
    assert team.history.factors[:, 0].tolist() == [1.0, 1.0]
    assert team.pending == {}


def test_outcomes_given_up_are_unknown_and_told_ones_may_be_repeated():
    team = team_of("per-factor")
    whole, part = team.ask(2)
    team.tell(part, {"f": 1.0})
    for query in (whole, part):
        team.give_up(query)
    team.tell(part, {"f": 1.0})
    for query, outcome in ((whole, {"f": 1.0}), (part, {"g": 1.0}), (part, {"f": 1.0, "g": 1.0})):
        with pytest.raises(UnknownQueryError, match="is not pending"):
            team.tell(query, outcome)
    assert (len(team.history), team.failures) == (1, 0)


def test_queries_of_earlier_episodes_keep_their_ids():
    team = team_of("field")
    first = team.ask()
    team.tell(first, {"a": 1.0, "b": 2.0})
    team.begin({})
    second = team.ask()
    team.tell(second, {"a": 3.0, "b": 4.0})
    for query, known in ((first, [1.0, 2.0]), (second, [3.0, 4.0])):
        team.tell(query, dict(zip("ab", known, strict=True)))
        with pytest.raises(ConflictError, match=f"got 'a' 9.0; recorded before: {known[0]}"):
            team.tell(query, {"a": 9.0})
    assert len(team.history) == 2


@pytest.mark.parametrize("kind", ["per-factor", "total", "field", "fused"])
def test_agents_accept_equal_outcomes_before_during_and_after_a_report(kind: Any):
    problem = FIELD if kind in ("field", "fused") else sb.Problem.of(CHAIN, CUBE, outcomes=kind)
    more: dict[str, Any] = {"belief": {"kind": "fused", "n_features": 20}} if kind == "fused" else {}
    more |= {"coordination": "greedy"} if problem.is_field else {"initial": 2}
    agents = {name: Agent(name, problem, seed=1, **more) for name in problem.agents}

    def told(which: dict[str, Agent]) -> None:
        for number, (name, agent) in enumerate(which.items()):
            if problem.is_field or kind == "per-factor":
                if agent.factors:
                    agent.tell("q00001", 1.0 + number)
                    with pytest.raises(ConflictError, match=rf"recorded before: {1.0 + number}"):
                        agent.tell("q00001", 9.0)
            elif name == problem.agents[0]:
                agent.tell("q00001", 3.0)
                with pytest.raises(ConflictError, match=r"got the total 9.0; recorded before: 3.0"):
                    agent.tell("q00001", 9.0)

    def asked() -> None:
        for agent in agents.values():
            agent.ask()

    asked()
    run(agents, InProcess().open(problem.agents))
    told(agents)
    told(agents)
    asked()
    before = {name: agent.state_dict() for name, agent in agents.items()}
    told(agents)  # while the reports are being sent
    assert all(agent.state_dict()["json"] == before[name]["json"] for name, agent in agents.items())
    run(agents, InProcess().open(problem.agents))
    again = {name: Agent.from_state_dict(agent.state_dict()) for name, agent in agents.items()}
    for some in (agents, again):
        told(some)
        assert all(len(agent.log.history) == 1 for agent in some.values())
        with pytest.raises(UnknownQueryError, match="'q00009' is not pending"):
            some[problem.agents[0]].tell("q00009", 1.0)


@pytest.mark.parametrize("kind", ["field", "total"])
def test_a_query_of_another_team_is_refused_although_its_id_is_equal(kind: str):
    team, other = team_of(kind), sb.Team(CHAIN, CUBE, seed=2) if kind == "total" else sb.Team(FIELD, seed=2)
    query, strange = team.ask(), other.ask()
    assert query.id == strange.id
    for wrong in (lambda: team.tell(strange, 1.0), lambda: team.give_up(strange)):
        with pytest.raises(UnknownQueryError, match="another team's query"):
            wrong()
    assert len(team.pending) == 1
    saved(team).give_up(query)
    team.give_up(query.id)
    with pytest.raises(UnknownQueryError, match="given up, attach its outcome"):
        team.tell(query, 1.0)
