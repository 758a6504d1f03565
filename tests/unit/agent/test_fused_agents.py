"""Agents in a field that have beliefs of their own decide as a team does, whose agents have beliefs of their own."""

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
    """Has its own way to make tables of what all believe."""

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
def test_agents_with_beliefs_of_their_own_decide_as_the_team_does(method: str, loss: float):
    case = Case(names=FEWER, belief=fused(method, loss=loss), fails=lost)
    case.go_on(1)
    case.go_on(1, candidates=None)
    beliefs = case.team.belief
    assert isinstance(beliefs, FusedBelief)
    case.asked()
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
def test_whatever_a_place_is_worth(acquisition: Any):
    case = Case(acquisition=acquisition, belief=fused(steps=1), fails=lost)
    case.go_on(1, 2)
    case.go_on(1, prices={"r": 0.05, "m": 0.6, "k": 0.0})
    case.go_on(1, prices={"a": 50.0})
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
def test_whatever_agents_agree_by_and_are_told(given: dict[str, Any]):
    case = Case(**({"belief": fused(loss=0.2), "names": FEWER} | given))
    case.go_on(2)


def test_a_round_in_which_nobody_measures_is_an_occasion_to_talk():
    sensors: dict[str, Any] = {"sensors": 5, "energy_price": 1e6, "max_cycles": 9, "field": {"gp": {"seed": 1}}}
    there = InWorld(sensor_field_v0.parallel_env, sensors, belief=fused(steps=1, loss=0.6), acquisition="information")
    there.team.begin(there.infos)
    there.go_on()  # every agent measures, as its one outcome shows no scale for a price
    heard = list[Any]()
    for _ in range(3):
        there.asked()
        run(there.agents, there.transport)
        beliefs = there.team.belief
        assert isinstance(beliefs, FusedBelief)
        assert [word for agent in there.agents.values() if (word := agent.decision())] == []
        for name, agent in there.agents.items():
            assert belief_of(agent).agents[name].reached == beliefs.agents[name].reached
        heard.append([sum(agent.reached.values()) for agent in beliefs.agents.values()])
        there.act()
    assert heard[0] != heard[-1]  # nobody measured, and news went on


@pytest.mark.parametrize(
    ("belief", "turns"),
    [
        (QUICK, "the others, then r"),
        (fused(steps=2, loss=0.3), "r, then the others"),
        (fused("consensus", steps=2), "two queries in turn"),
    ],
    ids=["shared", "readings", "consensus"],
)
def test_what_is_told_in_parts_is_learned_once_all_of_it_came_or_a_decision_comes(belief: Any, turns: str):
    case = Case(names=FEWER, belief=belief)
    case.go_on(1)
    first, second = case.asked(2, case.candidates(5))
    before = n_data(case)
    parts = [(first, "r"), (first, "am")]
    if turns == "the others, then r":
        parts = parts[::-1]
    if turns == "two queries in turn":
        parts = [(first, "r"), (second, "m"), (second, "ra"), (first, "am")]
    for query, names in parts:
        assert n_data(case) == before
        told = {name: field(query.points[name]) for name in names}
        case.team.tell(query, told)
        for name, y in told.items():
            case.agents[name].tell(query.id, y)
    learned = n_data(case)
    assert learned > before
    case.go_on(1)
    if turns != "two queries in turn":
        case.team.tell(second, {"a": 0.3})
        case.agents["a"].tell(second.id, 0.3)
        assert n_data(case) > learned
        case.go_on(1)  # it was learned for this decision, though r and m are still awaited
    if belief == QUICK:
        for agent in case.agents.values():
            X = agent.belief.X  # type: ignore[union-attr]
            np.testing.assert_array_equal(X, case.team.belief.X[: len(X)])  # type: ignore[union-attr]


def n_data(case: Case) -> int:
    """Readings that the team has learned; those that it fuses, all agents together."""
    belief = case.team.belief
    if isinstance(belief, FusedBelief):
        return sum(len(agent.y) for agent in belief.agents.values())
    return belief.n_data


def test_a_team_saved_between_two_parts_goes_on_to_the_bit():
    one = Case(names=FEWER, belief=fused(steps=2)).team
    query = one.ask()
    one.tell(query, {"a": 1.0})
    again = sb.Team.from_state_dict(one.state_dict())
    for team in (one, again):
        team.tell(query.id, {"r": 2.0, "m": 0.5})
    assert one.ask().point == again.ask().point
    assert one.sent == again.sent


def test_an_agent_is_told_no_outcome_of_others_and_holds_no_view_of_theirs():
    case = Case(belief=fused("consensus"))
    case.go_on(1)
    case.asked()
    outcomes = {name: case.team.history.factors[:, n] for n, name in enumerate(NAMES)}
    for name, agent in case.agents.items():
        known = agent.log.history
        for n, other in enumerate(NAMES):
            told = known.factors[:, n][np.isfinite(known.factors[:, n])]
            assert (told == outcomes[other]).all() == (name == other)
            assert name == other or not told.any()
        views = belief_of(agent).views
        assert isinstance(views, Views)
        assert list(views.by_agent) == [name]
        with pytest.raises(ConfigError, match="wanted all, or one"):
            views.posterior_mean(np.zeros((1, 2)))


def test_what_is_said_is_counted_as_a_team_counts_it():
    case = Case(belief=fused(), acquisition=sb.DBGPUCB(exploration="annealed", **FEW))
    case.go_on(2)
    case.asked(None, case.candidates(7), {"r": 0.01, "m": 0.01})
    took = sent_by(case.agents)
    assert case.team.last_report is not None
    agreed = {"likely places", "choices in turn", "shortlists", "declining", "looking again", "agreement", "choices"}
    assert set(took) == agreed | {"reports", "sharing"}
    assert took == case.team.sent
    assert sum((took[purpose] for purpose in agreed), Traffic()) == case.team.last_report.traffic
    assert took["reports"] + took["sharing"] == case.team.last_sharing


def test_without_a_world_beliefs_travel_over_the_links_that_were_given_last():
    chain = nx.path_graph(FEWER)
    case = Case(names=FEWER, belief=fused(), links=chain, coordination="independent")
    case.go_on(1)
    case.team = sb.Team(case.problem, **case.given).load_state_dict(case.team.state_dict())
    case.go_on(2)
    sent = sent_by(case.agents)["sharing"]
    assert case.team.sent["sharing"] == sent
    assert sent.messages == sent.transmissions  # no note was relayed


def test_greedy_pays_for_relays_where_choices_have_to_be_handed_on():
    """From r to a to m, and then m says what they have not heard: where nobody but r hears m, r relays two of these."""
    relayed = nx.Graph([("r", "a"), ("r", "m")])
    for belief, links, took in ((fused(), None, (4, 4)), (fused(), relayed, (4, 6)), (QUICK, relayed, (0, 0))):
        case = Case(names=FEWER, belief=belief, coordination="greedy", links=links)
        case.go_on(1)
        counted = sent_by(case.agents).get("choices in turn", Traffic())
        assert (counted.messages, counted.transmissions) == took
        assert counted == case.team.sent.get("choices in turn", Traffic())


def test_a_decision_that_comes_to_nothing_leaves_the_belief_as_it_was():
    case = Case(belief=fused())
    case.go_on(1)
    agent = case.agents["a"]
    before = belief_of(agent).agents["a"].n_measurements
    agent.patience = 1.0
    agent.ask()
    agent.tick(0.0)
    with pytest.raises(sb.SwarmboError, match="received nothing"):
        agent.tick(5.0)
    assert belief_of(agent).agents["a"].n_measurements == before


class Planner:
    """Looks at what all believe."""

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
def test_what_looks_at_the_beliefs_of_all_is_refused(given: dict[str, Any], message: str):
    problem = Case(names=("a", "b")).problem
    with pytest.raises(ConfigError, match=message):
        Agent("a", problem, belief="fused", **given)
    Agent("a", problem, **given)  # with a belief that agents share each can work it out
    Agent("a", problem, belief="fused", acquisition=Together(), coordination="greedy")  # each by itself
