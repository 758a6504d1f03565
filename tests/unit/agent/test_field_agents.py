"""Agents in a field that know only their own measurements decide as a team does, for any measurements."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.acquisition.local_problem import TablesOnDemand
from swarmbo.agent import Agent, RemoteAgent, run
from swarmbo.agent.stages import Stages
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.own_rows import OwnRow, OwnRows, measurements_by_round
from swarmbo.deciding.reports import reported_rows as measurements_in
from swarmbo.errors import ConfigError, ShapeError, TransportError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.problem.data import Measurement
from swarmbo.records import Traffic
from swarmbo.registry import name_of
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess
from swarmbo.worlds.fields import measurements_of, news_of_measurements

from .carried import Recording, copied, recommended_by, require_same_messages, sent_by, ticked_to_the_end

NAMES = ("r", "a", "m", "k")  # not in alphabetical order
BOX = Domain(np.zeros(2), np.array([10.0, 4.0]))
QUICK = sb.ExactGPSettings(restarts=0, max_iterations=20)
FADING = sb.ExactGPSettings(restarts=0, max_iterations=20, time=sb.TimeAxis(lengthscale_median=3.0))
OWN = sb.FusedSettings(prior=QUICK, steps=3, loss=0.2)
FEW: dict[str, Any] = {"candidates": 10}  # for small tables
UCB, INFORMATION, THOMPSON = sb.DBGPUCB(**FEW), sb.Information(**FEW), sb.Thompson(**FEW)
IMPROVEMENT, STRADDLE = sb.ExpectedImprovement(**FEW), sb.Straddle(level=0.5, **FEW)
MAX_SUM = sb.MaxSum(rounds=8)
ALL = [UCB, INFORMATION, THOMPSON, IMPROVEMENT, STRADDLE]
FEWER = NAMES[:3]
THOROUGH, SLOW = pytest.mark.thorough, pytest.mark.slow
Places = Mapping[str, np.ndarray]


def fused(method: str = "readings", **settings: Any) -> sb.FusedSettings:
    prior = sb.ExactGPSettings(restarts=0, max_iterations=10, time=settings.pop("time", None))
    few: dict[str, Any] = {"n_features": 16, "steps": 6} | settings
    return sb.FusedSettings(method=method, prior=prior, **few)  # type: ignore[arg-type]


def field(place: np.ndarray) -> float:
    return float(np.sin(0.7 * place[0]) * np.cos(place[1]) + 0.1 * place[0])


class Case:
    """A team in a field, the agents of the same problem, and their measurements."""

    def __init__(
        self,
        names: tuple[str, ...] = NAMES,
        *,
        links: "nx.Graph[str] | None" = None,
        fails: Callable[[str, np.ndarray], bool] = lambda agent, place: False,
        noise: Callable[[str], float | None] = lambda agent: None,
        no_go: Any = (),
        aim: Any = None,
        level: Any = None,
        **given: Any,
    ) -> None:
        self.unwatched, self.level = Problem.of_field(names, BOX, aim, level if aim else None).with_no_go(no_go), level
        self.problem = self.unwatched.watching(level)
        kinds = {"coordination": MAX_SUM, "belief": QUICK, "acquisition": UCB}
        self.given: dict[str, Any] = kinds | {"seed": 3, "rounds": 6} | given
        self.team, self.links, self.fails, self.noise = sb.Team(self.problem, **self.given), links, fails, noise
        self.agents = {name: self.agent(name) for name in names}
        self.transport, self.turn = Recording(InProcess().open(names, links).routes), 0

    def agent(self, name: str) -> Agent:
        """An agent that shares no object with the others."""
        problem = Problem.from_plain(json.loads(json.dumps(self.unwatched.to_plain())))
        return Agent(name, problem, links=self.links, level=self.level, **self.given)

    def candidates(self, turn: int) -> dict[str, np.ndarray]:
        """Candidates of all agents, of which some are shared."""
        rng = np.random.default_rng(turn)
        shared = BOX.from_unit(rng.random((12, 2)))
        own = {name: BOX.from_unit(rng.random((20 + 3 * n, 2))) for n, name in enumerate(self.problem.agents)}
        return {name: np.concatenate([places, shared[n : n + 8]]) for n, (name, places) in enumerate(own.items())}

    def ask_all(
        self, count: int | None = None, candidates: Places | None = None, prices: Mapping[str, float] | None = None
    ) -> list[Any]:
        """Ask team and agents, and check that they decide the same."""
        asked = self.team.ask(count, candidates, links=self.links, prices=prices)
        queries: list[Any] = asked if isinstance(asked, list) else [asked]
        for name, agent in self.agents.items():
            own = None if candidates is None else candidates.get(name, np.zeros((0, 2)))
            agent.ask(count, candidates=own, price=(prices or {}).get(name, 0.0))
        self.transport.delivered.clear()
        run(self.agents, self.transport)
        self.require_decided(queries)
        return queries

    def require_decided(self, queries: list[Any]) -> None:
        """Check that the agents go to the team's places."""
        for query in queries:
            decided = {name: agent.decision(query.id) for name, agent in self.agents.items()}
            places = {name: list(own.values()) for name, own in decided.items() if own}
            assert places == {name: place.tolist() for name, place in query.points.items()}

    def tell(self, query: Any) -> None:
        if not query.points:
            return  # nobody measured
        measured = {name: np.nan if self.fails(name, x) else field(x) for name, x in query.points.items()}
        stds = {name: std for name in measured if (std := self.noise(name)) is not None}
        self.team.tell(query, measured, noise_std=stds or None)
        for name, y in measured.items():
            self.agents[name].tell(query.id, y, noise_std=stds.get(name))

    def play(self, rounds: int, count: int | None = None, **offered: Any) -> None:
        for _ in range(rounds):
            self.turn += 1
            candidates = self.candidates(self.turn) if "candidates" not in offered else offered["candidates"]
            for query in self.ask_all(count, candidates, offered.get("prices"))[::-1]:
                self.tell(query)

    def recommended(self) -> Any:
        """Recommendation of the team, which the agents must share."""
        wanted = self.team.recommend()
        assert recommended_by(self.agents, self.transport) == [wanted] * len(self.agents)
        return wanted

    def attach(self, X: Any, y: np.ndarray, makers: list[str], rounds: Any = None, noise: Any = None) -> None:
        """Attach earlier measurements. Each agent gets nonsense in place of the measurements of others."""
        self.team.attach(X, y, agents=makers, rounds=rounds, noise_std=noise)
        for name, agent in self.agents.items():
            own = np.array(makers) == name
            stds = None if noise is None else np.where(own, noise, 5.0)
            places = np.where(own[:, None], X, BOX.low)
            agent.attach(places, np.where(own, y, 77.0), agents=makers, rounds=rounds, noise_std=stds)


def lost(agent: str, place: np.ndarray) -> bool:
    return bool(place[0] > 6.0)


CASES: list[Any] = [
    pytest.param({}, id="db-gp-ucb by max-sum"),
    pytest.param({"coordination": "exact"}, id="db-gp-ucb, exact"),
    pytest.param({"coordination": sb.MGM(rounds=8)}, id="db-gp-ucb by mgm", marks=SLOW),
    pytest.param({"coordination": sb.DSA(rounds=8, bound="mplp")}, id="db-gp-ucb by dsa, with a bound"),
    pytest.param({"acquisition": sb.TargetedVariance(**FEW)}, id="targeted variance", marks=SLOW),
    pytest.param({"acquisition": sb.DBGPUCB(markov_order=0, **FEW)}, id="order 0", marks=SLOW),
    pytest.param({"belief": FADING}, id="fading"),
    pytest.param(
        {"belief": sb.ExactGPSettings(max_iterations=20, refit_every=3)}, id="fitted every third round", marks=THOROUGH
    ),
    pytest.param({"fails": lost}, id="failures"),
    pytest.param({"fails": lost, "belief": FADING, "acquisition": THOMPSON}, id="failures, fading", marks=SLOW),
    pytest.param({"links": nx.path_graph(NAMES)}, id="a path of links", marks=THOROUGH),
    pytest.param({"noise": {"r": 0.3, "a": 0.0}.get}, id="known noise"),
    pytest.param({"no_go": [sb.NoGoBox(low=(0.0, 0.0), high=(6.0, 2.0))]}, id="regions"),
    pytest.param({"names": ("only",)}, id="one agent"),
    pytest.param({"acquisition": "auto", "aim": "map"}, id="a map"),
    pytest.param({"acquisition": "auto", "aim": "level", "level": 0.5}, id="a level", marks=SLOW),
    pytest.param({"acquisition": "auto", "level": 0.5}, id="a level given to each agent"),
    *(pytest.param({"coordination": kind}, id=kind) for kind in ("greedy", "random", "lawn-mower")),
]


@pytest.mark.parametrize("given", CASES)
def test_agents_that_know_only_their_own_measurements_decide_as_the_team_does(given: dict[str, Any]):
    case = Case(**given)
    case.play(1, candidates=None)  # anywhere in the box
    belief = case.given["belief"]
    for _ in range(
        belief.refit_every + (belief.time is not None or belief.refit_every > 1)
    ):  # with fading, data of two ages
        case.play(1)
        assert case.team.last_report is not None
        if case.given["coordination"] in (MAX_SUM, "exact"):  # each agent checks choices again by itself
            sent = sent_by(case.agents).get("agreement", Traffic())
            assert sent.messages <= case.team.last_report.traffic.messages
    assert len(case.problem.agents) == 1 or case.transport.traffic.messages > 0
    assert (case.team.failures > 0) == ("fails" in given)


@pytest.mark.parametrize(
    "acquisition", [pytest.param(a, marks=() if a is THOMPSON else SLOW, id=name_of(a)) for a in ALL]
)
def test_batches_are_chosen_as_the_team_does(acquisition: Any):
    case = Case(acquisition=acquisition, fails=lost)
    case.play(1, 2)
    case.play(1, 2, candidates=None)


@pytest.mark.parametrize("acquisition", [UCB, THOMPSON], ids=name_of)
def test_agents_decline_what_the_team_declines(acquisition: Any):
    case = Case(acquisition=acquisition)
    case.play(2, prices={"r": 0.6, "m": 0.05, "k": 0.0})
    case.play(1, prices={"a": 50.0})
    assert case.agents["a"].decision() == {}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"belief": FADING, "fails": lost}, id="fading"),
        pytest.param({"coordination": "random"}, id="random"),
        pytest.param({"belief": fused("consensus", time=FADING.time), "names": FEWER}, id="fused, fading"),
    ],
)
def test_agents_recommend_the_same_as_the_team_also_with_attached_measurements(given: dict[str, Any]):
    case, rng = Case(**given), np.random.default_rng(0)
    assert case.recommended() is None
    for _ in range(2):
        case.play(1)
        X = BOX.from_unit(rng.random((5, 2)))
        y = np.array([field(x) for x in X])
        y[1] = np.nan
        case.attach(X, y, ["a", "r", "a", "m", "a"])
        assert case.recommended() is not None


@pytest.mark.parametrize("belief", [QUICK, fused()], ids=["shared", "fused"])
def test_attached_measurements_come_after_earlier_ones_also_for_agents_without_any(belief: Any):
    case = Case(belief=belief)
    case.play(1, 2, candidates=dict.fromkeys(NAMES, case.candidates(0)["r"][:2]))  # two places for four agents
    X = BOX.from_unit(np.random.default_rng(0).random((3, 2)))
    case.attach(X, np.array([field(x) for x in X]), ["r", "k", "k"])
    case.play(1)
    assert case.recommended() is not None


def test_an_agent_without_candidates_skips_the_round():
    case = Case()
    case.play(1)
    places = case.candidates(9)
    case.play(1, candidates={name: places[name] for name in ("a", "m")})
    assert case.agents["r"].decision() == {}
    case.play(1, candidates=dict.fromkeys(NAMES, places["r"][:2]))  # two places for four agents
    case.play(1, candidates={})
    case.play(1)


def test_measurements_may_be_told_late_in_parts_and_at_other_places():
    case = Case(belief=FADING)
    case.play(1)
    first, second = case.ask_all(2, case.candidates(5))
    moved = {name: x + np.array([0.1, -0.05]) for name, x in second.points.items()}
    outcomes = {name: field(x) for name, x in moved.items()}
    case.team.tell(second, {"r": outcomes["r"], "m": outcomes["m"]}, locations={"m": moved["m"]})
    case.agents["r"].tell(second.id, outcomes["r"])
    case.agents["m"].tell(second.id, outcomes["m"], location=moved["m"])
    (third,) = case.ask_all(None, case.candidates(6))
    case.team.tell(second, {"a": outcomes["a"], "k": outcomes["k"]}, locations={n: moved[n] for n in "ak"})
    for name in "ak":
        case.agents[name].tell(second.id, {name: outcomes[name]}, location=moved[name])
    case.tell(third)
    case.tell(first)
    (query,) = case.ask_all(None, case.candidates(7))
    case.team.tell(query, failed=True)
    for agent in case.agents.values():
        agent.tell(query.id, failed=True)
    case.play(1)
    case.ask_all()  # now all agents know all measurements
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.X, case.team.history.X)
        np.testing.assert_array_equal(agent.log.history.factors, case.team.history.factors)
        assert agent.log.failures == case.team.failures


@pytest.mark.parametrize(
    ("belief", "by_round"),
    [
        pytest.param(QUICK, False, id="lasting", marks=SLOW),
        pytest.param(FADING, False, id="fading", marks=SLOW),
        pytest.param(FADING, True, id="by round"),
    ],
)
def test_attached_measurements_are_used_as_by_the_team(belief: Any, by_round: bool):
    case, rng = Case(belief=belief), np.random.default_rng(0)
    case.play(1)
    for turn in range(2):
        X = BOX.from_unit(rng.random((7, 2)))
        y, makers = np.array([field(x) for x in X]), ["a", "r", "a", "k", "a", "k", "r"]
        y[[1, 4]], stds = np.nan, np.where(np.arange(7) % 3, np.nan, 0.2)
        case.attach(X, y, makers, np.arange(7.0) - 5.0 if by_round else None, stds)
        if turn == 0:
            case.play(1)
    case.play(1)
    case.ask_all()  # now all agents know all measurements
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.factors, case.team.history.factors)
        np.testing.assert_array_equal(agent.log.history.known_noise, case.team.history.known_noise)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"acquisition": THOMPSON}, id="thompson", marks=SLOW),
        pytest.param({"acquisition": IMPROVEMENT, "coordination": "exact"}, id="improvement, exact"),
        pytest.param({"belief": fused("consensus", loss=0.3)}, id="consensus"),
        pytest.param({"belief": fused(), "acquisition": THOMPSON, "coordination": "greedy"}, id="fused, greedy"),
        pytest.param({"belief": fused(), "acquisition": sb.TargetedVariance(**FEW)}, id="fused", marks=SLOW),
    ],
)
def test_messages_of_an_agent_depend_only_on_its_measurements_and_its_inbox(given: dict[str, Any]):
    """A separate copy of an agent sends the same bytes if it gets the same measurements and inboxes."""
    case = Case(FEWER if "belief" in given else NAMES, fails=lost, **given)
    alone = {name: case.agent(name) for name in case.agents}
    for turn in range(2):
        candidates, prices = case.candidates(turn), {"a": 0.1}
        (query,) = case.ask_all(None, candidates, prices)
        for name, agent in alone.items():
            agent.ask(candidates=candidates[name], price=prices.get(name, 0.0))
            require_same_messages(case, agent)
            if name in query.points:
                x = query.points[name]
                agent.tell(query.id, np.nan if lost(name, x) else field(x))
        case.tell(query)


def test_an_agent_computes_only_its_own_table(monkeypatch: pytest.MonkeyPatch):
    """Tables of other agents are replaced by nonsense."""
    case = Case()
    case.play(1)
    reached, chosen = Counter[str](), Stages._choose  # pyright: ignore[reportPrivateUsage]

    def poisoned(self: Any, request: Any) -> Any:
        tables = request.problem.tables

        def table(factor: str) -> Any:
            reached[factor] += 1
            return tables[factor] if factor == f"w_{self.name}" else np.full_like(tables[factor], np.nan)

        nonsense = TablesOnDemand(list(tables), table)
        return chosen(self, request._replace(problem=replace(request.problem, tables=nonsense)))

    monkeypatch.setattr(Stages, "_choose", poisoned)
    case.play(2)
    assert set(reached) == {f"w_{name}" for name in NAMES}
    assert max(reached.values()) == 2  # one per round


OVER_A_PATH = {"belief": FADING, "links": nx.path_graph(NAMES)}
CONSENSUS = {"belief": fused("consensus", loss=0.2), "names": FEWER}


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        (OVER_A_PATH, 17),
        (CONSENSUS, 23),
        *(pytest.param(OVER_A_PATH, moment, marks=SLOW) for moment in (40, 90)),
        *(pytest.param(CONSENSUS, moment, marks=SLOW) for moment in (0, 61, 120)),
    ],
)
def test_an_agent_in_a_field_continues_from_its_state_at_any_tick(given: dict[str, Any], moment: int):
    case = Case(fails=lost, **given)
    case.play(1)
    candidates = case.candidates(9)
    queries = case.team.ask(2, candidates, links=case.links)
    for name, agent in case.agents.items():
        agent.ask(2, candidates=candidates[name])
    assert ticked_to_the_end(case, saved_at=moment) > moment
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    case.require_decided(queries)
    case.tell(queries[1])
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}  # after an outcome that is not yet sent
    case.play(1)


@pytest.mark.slow
def test_agents_in_separate_processes_decide_as_the_team_does():
    case = Case(names=("a", "b"))
    with threadpool_limits(1, user_api="blas"):
        case.agents = {name: RemoteAgent(name, case.problem, **case.given) for name in case.agents}  # type: ignore[assignment]
        case.play(2)
        for agent in case.agents.values():
            agent.close()  # type: ignore[attr-defined]


def test_unconnected_agents_form_separate_chains_and_get_reports_over_a_base_station():
    links: nx.Graph[str] = nx.Graph([("r", "k"), ("a", "m"), ("r", "base"), ("base", "a")])
    case = Case(links=links)
    case.play(2)
    agent = Case(links=nx.Graph([("r", "k"), ("a", "m")])).agents["a"]
    with pytest.raises(TransportError, match="no path of links from 'a' to 'r'"):
        agent.ask()
    assert agent.is_finished  # unchanged by the refused call
    agent.links = nx.path_graph(NAMES)
    assert agent.ask() == "q00001"


def test_a_base_station_without_links_keeps_chains_separate():
    case = Case(links=nx.Graph([("r", "k"), ("a", "m")]))
    case.transport = Recording(InProcess().open(NAMES).routes)
    case.agents = {name: Agent(name, case.problem, links=case.links, has_base=True, **case.given) for name in NAMES}
    case.play(2, candidates=None)
    two_ways = sent_by(case.agents)["reports"]
    # k is one link from r; the others are two links away, over the base
    assert (two_ways.messages, two_ways.transmissions) == (6, 10)


def test_infos_of_an_environment_are_learned_as_by_the_team():
    case = Case(names=("a", "b", "c"))
    infos: dict[str, Any] = {
        "a": {"location": [1.0, 1.0], "measurement": 2.0, "on_the_way": [{"location": [3.0, 1.0], "measurement": 4.0}]},
        "b": {"sampled": False, "on_the_way": [{"location": [4.0, 1.0], "measurement": None}]},
        "c": {"location": "nowhere", "measurement": 1.0},
    }
    places = {"a": np.ones((1, 2)), "b": np.full((1, 2), 2.0), "c": np.zeros((0, 2))}
    for _ in range(2):
        query = case.ask_all(None, places)[0]
        assert set(query.points) == {"a", "b"}
        found = {name: measurements_of(infos[name], query.points.get(name), BOX) for name in case.problem.agents}
        case.team._learn_news(query.id, news_of_measurements(case.problem, found), is_all=True)
        for name, agent in case.agents.items():
            agent.observe(query.id, infos[name])
    assert not case.team.pending
    case.ask_all(None, places)
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.X, case.team.history.X)
        np.testing.assert_array_equal(agent.log.history.factors, case.team.history.factors)
    with pytest.raises(UnknownQueryError, match="is not pending"):
        case.agents["a"].observe("q00001", {})
    of_a_function = Agent("x", Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}))
    with pytest.raises(ConfigError, match="wanted the outcome of a query"):
        of_a_function.observe("q00001", {})


@pytest.mark.parametrize("belief", [QUICK, OWN])
def test_an_outcome_observed_twice_is_refused_also_during_a_decision(belief: Any):
    case = Case(names=("a", "b"), belief=belief)
    query, infos = case.team.ask(), dict[str, Any]()
    for turn in range(3):
        for name, agent in case.agents.items():
            agent.ask()
            if turn:
                with pytest.raises(UnknownQueryError, match="its outcome is already known"):
                    agent.observe("q00001" if turn == 1 else "q00002", infos[name])
        run(case.agents, case.transport)
        case.require_decided([query])
        infos = {name: {"location": x.tolist(), "measurement": field(x)} for name, x in query.points.items()}
        found = {name: measurements_of(infos[name], query.points[name], BOX) for name in infos}
        case.team._learn_news(query.id, news_of_measurements(case.problem, found), is_all=True)
        for name, agent in case.agents.items():
            agent.observe(query.id, infos[name])
        query = case.team.ask()


def test_repeated_messages_are_kept_once():
    first, second = Case(names=("a", "b")).agents.values()
    sent = {agent: next(agent.tick(0.0) for _ in [agent.ask()]) for agent in (first, second)}
    sender = first if sent[first] else second
    receiver = Case(names=("a", "b")).agents["b" if sender is first else "a"]
    for _ in range(2):
        sizes = list[int]()
        for now in range(5):
            receiver.tick(float(now), sent[sender])
            sizes.append(len(json.dumps(receiver.state_dict()["json"])))
        assert sent[sender]
        assert len(set(sizes[1:])) == 1
        if receiver.is_finished:
            receiver.ask()


@pytest.mark.parametrize("belief", [QUICK, OWN])
def test_a_restored_agent_can_give_up_an_earlier_decision(belief: Any):
    case = Case(names=("a", "b"), belief=belief)
    case.play(2)
    for agent in case.agents.values():
        agent.ask()
    run(case.agents, case.transport)
    case.agents = {name: copied(copied(agent)) for name, agent in case.agents.items()}
    for agent in case.agents.values():
        agent.give_up(2)
        assert list(agent.log.open) == ["q00002"]
    case.play(2)


def test_an_agent_that_does_not_take_part_still_reports_its_measurements():
    case = Case(names=("a", "b", "c"), coordination="lawn-mower")
    for name, agent in case.agents.items():
        agent.ask(takes_part=name != "b")
    query = case.team.ask(agents=["a", "c"])
    run(case.agents, case.transport)
    case.require_decided([query])
    assert set(query.points) == {"a", "c"}


def test_reports_go_along_a_tree_and_are_counted():
    case = Case(links=nx.path_graph(NAMES))
    case.play(2)
    traffic = sent_by(case.agents)
    assert traffic["reports"].messages == 2 * (len(NAMES) - 1)  # up and down
    assert traffic["choices"].messages == 2 * traffic["reports"].messages  # each agent's choice, and its value
    sent = sum(traffic.values(), Traffic())
    crossed = [
        e for step in case.transport.delivered for inbox in step.values() for e in inbox if e.sender != e.recipient
    ]
    assert (sent.messages, sent.bytes) == (len(crossed), sum(len(e.payload) for e in crossed))


def reported(case: Any) -> int:
    """Bytes of the reports before the last decision, which team and agents must count equally."""
    took = sent_by(case.agents)["reports"]
    assert case.team.sent["reports"] == took
    return took.bytes


def test_unchanged_candidates_are_reported_in_a_byte():
    case = Case()
    near, far = case.candidates(1), case.candidates(2)
    case.ask_all(None, near)
    whole = reported(case)
    case.ask_all(None, near)
    assert reported(case) < whole / 8
    case.ask_all(None, near | {"m": far["m"]})  # one of four changed
    assert whole / 8 < reported(case) < whole / 2
    case.ask_all(None, near | {"m": far["m"]})
    assert reported(case) < whole / 8
    case.ask_all(None, near | {"m": far["m"]}, {"a": 0.5})  # a price also belongs to the offer
    assert reported(case) > whole / 8


def test_a_recommendation_does_not_change_the_known_offers():
    case = Case()
    case.play(1, candidates=case.candidates(1))
    whole = reported(case)
    case.recommended()
    case.ask_all(None, case.candidates(1))
    assert sent_by(case.agents)["reports"].bytes < whole / 3


@pytest.mark.parametrize("moment", [5, pytest.param(0, marks=SLOW)])
def test_restored_agents_still_know_the_offers_of_others(moment: int):
    case = Case()
    case.play(1, candidates=case.candidates(1))
    whole = reported(case)
    query = case.team.ask(None, case.candidates(1))
    for name, agent in case.agents.items():
        agent.ask(candidates=case.candidates(1)[name])
    ticked_to_the_end(case, moment)
    case.require_decided([query])
    assert case.team.sent["reports"].bytes < whole / 3
    case.tell(query)
    case.play(1, candidates=case.candidates(1))
    assert reported(case) < whole / 3


def test_a_restored_team_still_knows_the_offers_of_its_agents():
    case = Case()
    case.play(1, candidates=case.candidates(1))
    again = sb.Team(case.problem, **case.given).load_state_dict(case.team.state_dict())
    assert again.ask(None, case.candidates(1)).point == case.team.ask(None, case.candidates(1)).point
    assert again.sent == case.team.sent


def test_a_failed_decision_does_not_change_the_known_offers(monkeypatch: pytest.MonkeyPatch):
    case = Case()
    case.play(1, candidates=case.candidates(1))
    before = {name: dict(agent._last_offers) for name, agent in case.agents.items()}
    for name, agent in case.agents.items():
        agent.ask(candidates=case.candidates(2)[name])
    monkeypatch.setattr(FieldLearner, "steps", lambda self, log, offers: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(case.agents, case.transport)
    failed = [name for name, agent in case.agents.items() if agent.is_finished]
    assert failed
    assert all(case.agents[name]._last_offers == before[name] for name in failed)


def test_a_reference_to_an_unknown_offer_counts_as_lost():
    case = Case()
    case.play(1, candidates=case.candidates(1))
    mistaken = case.agents["k"]
    mistaken._last_offers = {**mistaken._last_offers, "k": case.agents["a"]._last_offers["a"]}
    for name, agent in case.agents.items():
        agent.ask(candidates=case.candidates(1)["a" if name == "k" else name])
    ticked_to_the_end(case, -1)
    assert sum(agent.refused["k"] for agent in case.agents.values()) > 0
    assert not any(agent.is_finished for name, agent in case.agents.items())


def test_agents_with_different_attached_evaluations_raise_an_error():
    case = Case(names=("a", "b"))
    case.agents["b"].attach(np.ones((2, 2)), [1.0, 1.0], agents="b")
    for agent in case.agents.values():
        agent.ask()
    with pytest.raises(TransportError, match=r"dropped messages .*: were all agents told the same evaluations"):
        run(case.agents, case.transport)


class FirstOfAll:
    """A central method, which cannot run in agents."""

    def solve(self, graph: Any, tables: Any, links: Any = None) -> Any:
        raise NotImplementedError


def refusals() -> Iterator[tuple[str, Callable[[Agent], object], type[Exception], str]]:
    own: dict[str, Any] = {"coordination": FirstOfAll()}
    yield "one place", lambda a: Agent("a", a.problem, **own), ConfigError, "FirstOfAll, which decides centrally"
    yield "no level", lambda a: Agent("a", a.problem, acquisition="straddle"), ConfigError, "wanted a level"
    yield "foreign", lambda a: a.tell("q00001", {"b": 1.0}), ConfigError, r"got \['b'\]; wanted only its own: \['a'\]"
    yield "place", lambda a: a.tell("q00001", 1.0, location=[1e9, 0.0]), ShapeError, "location of 'a'"
    yield "point", lambda a: a.tell("q00001", 1.0, point={"a[0]": 0.0}), ConfigError, "wanted location = "
    yield "nowhere", lambda a: a.tell(None, 1.0), ConfigError, "wanted the location"
    yield "noise", lambda a: a.tell("q00001", 1.0, noise_std=-1.0), ShapeError, "noise"
    yield "candidates", lambda a: a.ask(candidates=[[1.0]]), ShapeError, r"candidates of 'a': got shape \(1, 1\)"
    yield "price", lambda a: a.ask(price=-1.0), ConfigError, "got -1.0; wanted a finite number >= 0"
    yield "position", lambda a: a.ask(position=[0.0]), ShapeError, "location of 'a'"
    yield (
        "rounds",
        lambda a: a.attach([[0.0, 0.0]], [1.0], rounds=1.0),
        ShapeError,
        "without a time axis",
    )
    yield "sites", lambda a: Agent("a", a.problem, sites=[]), ConfigError, "wanted locations in a field"
    yield "maker", lambda a: a.attach([[0.0, 0.0]], [1.0], agents="z"), ConfigError, "got 'z'"


@pytest.mark.parametrize(("act", "error", "message"), [pytest.param(*rest, id=name) for name, *rest in refusals()])
def test_invalid_arguments_of_an_agent_in_a_field_are_refused_in_one_line(
    act: Callable[[Agent], object], error: type[Exception], message: str
):
    case = Case(names=("a", "b"))
    case.ask_all()
    with pytest.raises(error, match=message):
        act(case.agents["a"])


def test_agents_of_a_function_accept_no_locations():
    problem = Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}, outcomes="per-factor")
    agent = Agent("x", problem)
    with pytest.raises(ConfigError, match="only a field has locations"):
        agent.ask(candidates=[[0.0]])
    agent.ask()
    with pytest.raises(ConfigError, match="wanted point = "):
        agent.tell("q00001", 1.0, location=[0.0])
    agent.tick(0.0)
    with pytest.raises(ConfigError, match="got agents; wanted none"):
        agent.attach([[0.5]], [[1.0]], agents="x")


def test_coordinates_of_a_row_are_read_by_name_in_any_order():
    problem = Case(names=("a", "b")).problem
    row = OwnRow.measured(0, problem, "b", Measurement((9.0, 3.0), 1.0, 0.1))
    stop, turned = (
        Measurement((9.0, 3.0), 1.0, 0.1),
        msgspec.structs.replace(row, place=dict(reversed(row.place.items()))),
    )
    assert [*turned.place.values()] == [3.0, 9.0]
    assert measurements_by_round({"q00002": turned}, problem.graph.variables_owned_by("b")) == [(2, [stop])]
    (measurement,) = measurements_in(problem, "b", OwnRows({"q00002": turned}))
    assert measurement.measurement == stop
    part = msgspec.structs.replace(row, place=dict([*row.place.items()][:1]))
    with pytest.raises(KeyError):
        measurements_in(problem, "b", OwnRows({"q00002": part}))
