"""Agents in a field with a belief per agent decide as a team with a belief per agent."""

from typing import Any

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.belief import Views
from swarmbo.belief.fusion import FusedBelief
from swarmbo.errors import ConfigError
from swarmbo.records import Traffic
from swarmbo.registry import name_of
from swarmbo_envs import sensor_field_v0

from .carried import sent_by
from .in_world import InWorld
from .test_field_agents import ALL, FEW, FEWER, NAMES, QUICK, SLOW, THOMPSON, THOROUGH, UCB, Case, field, fused, lost

METHODS = ["readings", "experts", "consensus", "covariance-intersection"]


class Together(sb.ChainAcquisition, frozen=True):
    """An acquisition that makes its tables from the beliefs of all agents."""

    def local_problem(self, situation: Any) -> Any:
        return UCB.local_problem(situation)


FADING = fused(time=sb.TimeAxis(lengthscale_median=3.0))


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        *(pytest.param(method, 0.0, marks=SLOW) for method in METHODS),
        *(pytest.param(method, 0.3, marks=marks) for method, marks in zip(METHODS, ((), THOROUGH) * 2, strict=True)),
    ],
)
def test_agents_with_their_own_beliefs_decide_as_the_team_does(method: str, loss: float):
    case = Case(names=FEWER, belief=fused(method, loss=loss), fails=lost)
    case.play(1)
    case.play(1, candidates=None)
    beliefs = case.team.belief
    assert isinstance(beliefs, FusedBelief)
    case.ask_all()
    for name, agent in case.agents.items():
        own = belief_of(agent)
        assert list(own.agents) == [name]
        assert own.agents[name].reached == beliefs.agents[name].reached
        np.testing.assert_array_equal(own.agents[name].X, beliefs.agents[name].X)


def belief_of(agent: Agent) -> FusedBelief:
    assert isinstance(agent.belief, FusedBelief)
    return agent.belief


@pytest.mark.parametrize(
    "acquisition",
    [
        *(pytest.param(a, marks=THOROUGH if a is THOMPSON else SLOW, id=name_of(a)) for a in ALL),
        pytest.param(sb.TargetedVariance(**FEW), id="targeted-variance"),
    ],
)
def test_agents_with_their_own_beliefs_decide_as_the_team_does_with_any_acquisition(acquisition: Any):
    case = Case(acquisition=acquisition, belief=fused(steps=1), fails=lost)
    case.play(1, 2)
    case.play(1, prices={"r": 0.05, "m": 0.6, "k": 0.0})
    case.play(1, prices={"a": 50.0})
    assert case.agents["a"].decision() == {}


@pytest.mark.parametrize(
    "given",
    [
        {"coordination": "exact"},
        {"coordination": "greedy"},
        {"coordination": "independent"},
        pytest.param({"coordination": "greedy", "acquisition": Together()}, marks=THOROUGH),
        {"coordination": "random"},
        pytest.param({"coordination": "lawn-mower"}, marks=THOROUGH),
        pytest.param({"coordination": sb.MGM(rounds=4)}, marks=THOROUGH),
        {"acquisition": sb.DBGPUCB(markov_order=0, **FEW)},
        {"belief": FADING, "fails": lost},
        {"noise": {"r": 0.3, "a": 0.0}.get},
        {"no_go": [sb.NoGoBox(low=(0.0, 0.0), high=(6.0, 2.0))]},
        {"names": ("only",)},
    ],
    ids=lambda given: str(next(iter(given.items())))[:40],
)
def test_agents_with_their_own_beliefs_decide_as_the_team_does_with_any_method_and_data(given: dict[str, Any]):
    case = Case(**({"belief": fused(loss=0.2), "names": FEWER} | given))
    case.play(2)


def test_agents_share_news_also_in_rounds_without_measurements():
    sensors: dict[str, Any] = {"sensors": 5, "energy_price": 1e6, "max_cycles": 9, "field": {"gp": {"seed": 1}}}
    there = InWorld(sensor_field_v0.parallel_env, sensors, belief=fused(steps=1, loss=0.6), acquisition="information")
    there.team.begin(there.infos)
    there.play()  # every agent measures, because its single outcome gives no scale to compare with a price
    reached = list[Any]()
    for _ in range(3):
        there.ask_all()
        run(there.agents, there.transport)
        beliefs = there.team.belief
        assert isinstance(beliefs, FusedBelief)
        assert [decided for agent in there.agents.values() if (decided := agent.decision())] == []
        for name, agent in there.agents.items():
            assert belief_of(agent).agents[name].reached == beliefs.agents[name].reached
        reached.append([sum(agent.reached.values()) for agent in beliefs.agents.values()])
        there.act()
    assert reached[0] != reached[-1]  # news spread without measurements


@pytest.mark.parametrize(
    ("belief", "turns"),
    [
        (QUICK, "the others, then r"),
        (fused(steps=2, loss=0.3), "r, then the others"),
        (fused("consensus", steps=2), "two queries in turn"),
    ],
    ids=["shared", "readings", "consensus"],
)
def test_outcomes_in_parts_are_learned_when_complete_or_before_the_next_decision(belief: Any, turns: str):
    case = Case(names=FEWER, belief=belief)
    case.play(1)
    first, second = case.ask_all(2, case.candidates(5))
    before = n_data(case)
    parts = [(first, "r"), (first, "am")]
    if turns == "the others, then r":
        parts = parts[::-1]
    if turns == "two queries in turn":
        parts = [(first, "r"), (second, "m"), (second, "ra"), (first, "am")]
    for query, names in parts:
        assert n_data(case) == before
        outcomes = {name: field(query.points[name]) for name in names}
        case.team.tell(query, outcomes)
        for name, y in outcomes.items():
            case.agents[name].tell(query.id, y)
    learned = n_data(case)
    assert learned > before
    case.play(1)
    if turns != "two queries in turn":
        case.team.tell(second, {"a": 0.3})
        case.agents["a"].tell(second.id, 0.3)
        assert n_data(case) > learned
        case.play(1)  # learned before this decision, although the outcomes of r and m are still missing
    if belief == QUICK:
        for agent in case.agents.values():
            X = agent.belief.X  # type: ignore[union-attr]
            np.testing.assert_array_equal(X, case.team.belief.X[: len(X)])  # type: ignore[union-attr]


def n_data(case: Case) -> int:
    """Measurements in the team's belief, or in the fused beliefs of all agents together."""
    belief = case.team.belief
    if isinstance(belief, FusedBelief):
        return sum(len(agent.y) for agent in belief.agents.values())
    return belief.n_data


def test_a_team_saved_between_two_parts_of_an_outcome_continues_identically():
    one = Case(names=FEWER, belief=fused(steps=2)).team
    query = one.ask()
    one.tell(query, {"a": 1.0})
    again = sb.Team.from_state_dict(one.state_dict())
    for team in (one, again):
        team.tell(query.id, {"r": 2.0, "m": 0.5})
    assert one.ask().point == again.ask().point
    assert one.sent == again.sent


def test_an_agent_has_no_outcomes_and_no_view_of_others():
    case = Case(belief=fused("consensus"))
    case.play(1)
    case.ask_all()
    outcomes = {name: case.team.history.factors[:, n] for n, name in enumerate(NAMES)}
    for name, agent in case.agents.items():
        known = agent.log.history
        for n, other in enumerate(NAMES):
            known_outcomes = known.factors[:, n][np.isfinite(known.factors[:, n])]
            assert (known_outcomes == outcomes[other]).all() == (name == other)
            assert name == other or not known_outcomes.any()
        views = belief_of(agent).views
        assert isinstance(views, Views)
        assert list(views.by_agent) == [name]
        with pytest.raises(ConfigError, match="wanted all, or one"):
            views.posterior_mean(np.zeros((1, 2)))


def test_agents_and_team_count_the_same_traffic():
    case = Case(belief=fused(), acquisition=sb.DBGPUCB(exploration="annealed", **FEW))
    case.play(2)
    case.ask_all(None, case.candidates(7), {"r": 0.01, "m": 0.01})
    traffic = sent_by(case.agents)
    assert case.team.last_report is not None
    agreed = {"likely places", "choices in turn", "shortlists", "declining", "looking again", "agreement", "choices"}
    assert set(traffic) == agreed | {"reports", "sharing"}
    assert traffic == case.team.sent
    assert sum((traffic[purpose] for purpose in agreed), Traffic()) == case.team.last_report.traffic
    assert traffic["reports"] + traffic["sharing"] == case.team.last_sharing


def test_without_an_environment_beliefs_are_sent_over_the_last_given_links():
    chain = nx.path_graph(FEWER)
    case = Case(names=FEWER, belief=fused(), links=chain, coordination="independent")
    case.play(1)
    case.team = sb.Team(case.problem, **case.given).load_state_dict(case.team.state_dict())
    case.play(2)
    sent = sent_by(case.agents)["sharing"]
    assert case.team.sent["sharing"] == sent
    assert sent.messages == sent.transmissions  # no note was relayed


def test_greedy_counts_relayed_transmissions_of_choices():
    """Choices go from r to a to m, then m sends the missing ones. If only r is linked to m, r relays two messages."""
    relayed = nx.Graph([("r", "a"), ("r", "m")])
    for belief, links, expected in ((fused(), None, (4, 4)), (fused(), relayed, (4, 6)), (QUICK, relayed, (0, 0))):
        case = Case(names=FEWER, belief=belief, coordination="greedy", links=links)
        case.play(1)
        counted = sent_by(case.agents).get("choices in turn", Traffic())
        assert (counted.messages, counted.transmissions) == expected
        assert counted == case.team.sent.get("choices in turn", Traffic())


def test_a_failed_decision_does_not_change_the_belief():
    case = Case(belief=fused())
    case.play(1)
    agent = case.agents["a"]
    before = belief_of(agent).agents["a"].n_measurements
    agent.patience = 1.0
    agent.ask()
    agent.tick(0.0)
    with pytest.raises(sb.SwarmboError, match="received nothing"):
        agent.tick(5.0)
    assert belief_of(agent).agents["a"].n_measurements == before


class Planner:
    """A planner that needs the beliefs of all agents."""

    def decide(self, situation: Any, acquisition: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"acquisition": Together()}, "wanted a ChainAcquisition"),
        ({"coordination": Planner()}, "wanted a coordination method"),
    ],
    ids=["acquisition", "planner"],
)
def test_parts_that_need_the_beliefs_of_all_agents_are_refused(given: dict[str, Any], message: str):
    problem = Case(names=("a", "b")).problem
    with pytest.raises(ConfigError, match=message):
        Agent("a", problem, belief="fused", **given)
    Agent("a", problem, **given)  # possible with a shared belief, which each agent can compute
    Agent("a", problem, belief="fused", acquisition=Together(), coordination="greedy")  # needs only own beliefs
