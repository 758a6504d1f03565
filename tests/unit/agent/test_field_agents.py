"""Agents in a field that are told their own measurements only decide as a team does, whatever they are told."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.errors import ConfigError, ShapeError, TransportError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.records import Traffic
from swarmbo.spaces import Domain
from swarmbo.transport import Envelope, InProcess, InProcessTransport

NAMES = ("r", "a", "m", "k")  # not in the order of the alphabet
BOX = Domain(np.zeros(2), np.array([10.0, 4.0]))
FADING = sb.ExactGPSettings(time=sb.TimeAxis(lengthscale_median=3.0))
THOROUGH = pytest.mark.thorough
Places = Mapping[str, np.ndarray]


def field(place: np.ndarray) -> float:
    return float(np.sin(0.7 * place[0]) * np.cos(place[1]) + 0.1 * place[0])


class Recording(InProcessTransport):
    """Keeps what was handed over, step by step."""

    def __init__(self, routes: Any) -> None:
        super().__init__(routes)
        self.handed: list[dict[str, list[Envelope]]] = []

    def deliver(self) -> dict[str, list[Envelope]]:
        self.handed.append(super().deliver())
        return self.handed[-1]


class Case:
    """A team in a field, the agents of the same problem, and what they measure."""

    def __init__(
        self,
        names: tuple[str, ...] = NAMES,
        *,
        links: "nx.Graph[str] | None" = None,
        fails: Callable[[str, np.ndarray], bool] = lambda agent, place: False,
        noise: Callable[[str], float | None] = lambda agent: None,
        no_go: Any = (),
        **given: Any,
    ) -> None:
        self.problem = Problem.of_field(names, BOX).with_no_go(no_go)
        self.given = {"coordination": sb.MaxSum(), "seed": 3, "rounds": 6, **given}
        self.team, self.links, self.fails, self.noise = sb.Team(self.problem, **self.given), links, fails, noise
        self.agents = {name: self.agent(name) for name in names}
        self.transport = Recording(InProcess().open(names, links).routes)
        self.turn = 0

    def agent(self, name: str) -> Agent:
        """One that shares no object with any other."""
        problem = Problem.from_plain(json.loads(json.dumps(self.problem.to_plain())))
        return Agent(name, problem, links=self.links, **self.given)

    def candidates(self, turn: int) -> dict[str, np.ndarray]:
        """Places that overlap: some are in reach of several."""
        rng = np.random.default_rng(turn)
        shared = BOX.from_unit(rng.random((12, 2)))
        own = {name: BOX.from_unit(rng.random((20 + 3 * n, 2))) for n, name in enumerate(self.problem.agents)}
        return {name: np.concatenate([places, shared[n : n + 8]]) for n, (name, places) in enumerate(own.items())}

    def asked(
        self, count: int | None = None, candidates: Places | None = None, prices: Mapping[str, float] | None = None
    ) -> list[Any]:
        """What the team asks for; the agents ask for the same."""
        asked = self.team.ask(count, candidates, links=self.links, prices=prices)
        queries: list[Any] = asked if isinstance(asked, list) else [asked]
        for name, agent in self.agents.items():
            own = None if candidates is None else candidates.get(name, np.zeros((0, 2)))
            agent.ask(count, candidates=own, price=(prices or {}).get(name, 0.0))
        self.transport.handed.clear()
        run(self.agents, self.transport)
        for query in queries:
            words = {name: agent.word(query.id) for name, agent in self.agents.items()}
            places = {name: list((word or {}).values()) for name, word in words.items()}
            assert {name: place for name, place in places.items() if place} == {
                name: place.tolist() for name, place in query.points.items()
            }
        return queries

    def tell(self, query: Any) -> None:
        told = {name: np.nan if self.fails(name, x) else field(x) for name, x in query.points.items()}
        stds = {name: std for name in told if (std := self.noise(name)) is not None}
        self.team.tell(query, told, noise_std=stds or None)
        for name, y in told.items():
            self.agents[name].tell(query.id, y, noise_std=stds.get(name))

    def go_on(self, rounds: int, count: int | None = None, **offered: Any) -> None:
        for _ in range(rounds):
            self.turn += 1
            candidates = self.candidates(self.turn) if "candidates" not in offered else offered["candidates"]
            for query in self.asked(count, candidates, offered.get("prices"))[::-1]:
                self.tell(query)


def lost(agent: str, place: np.ndarray) -> bool:
    return bool(place[0] > 6.0)


CASES: list[Any] = [
    pytest.param({}, id="db-gp-ucb by max-sum"),
    pytest.param({"coordination": "exact"}, id="db-gp-ucb, exact"),
    pytest.param({"acquisition": "information"}, id="information"),
    pytest.param({"acquisition": sb.Straddle(level=0.5), "coordination": "exact"}, id="straddle"),
    pytest.param({"acquisition": "expected-improvement"}, id="expected improvement"),
    pytest.param({"acquisition": "thompson"}, id="thompson"),
    pytest.param({"acquisition": sb.DBGPUCB(markov_order=0)}, id="order 0"),
    pytest.param({"belief": FADING}, id="fading"),
    pytest.param({"belief": sb.ExactGPSettings(refit_every=3)}, id="fitted every third round"),
    pytest.param({"fails": lost}, id="failures"),
    pytest.param({"fails": lost, "belief": FADING, "acquisition": "thompson"}, id="failures, fading", marks=THOROUGH),
    pytest.param({"links": nx.path_graph(NAMES)}, id="a path of links"),
    pytest.param({"noise": {"r": 0.3, "a": 0.0}.get}, id="noise that is known"),
    pytest.param({"no_go": [sb.NoGoBox(low=[0.0, 0.0], high=[6.0, 2.0])]}, id="regions"),
    pytest.param({"names": ("only",)}, id="one agent"),
    *(pytest.param({"coordination": kind}, id=kind) for kind in ("greedy", "independent", "random", "lawn-mower")),
]


@pytest.mark.parametrize("given", CASES)
def test_agents_that_are_told_their_own_measurements_decide_as_the_team_does(given: dict[str, Any]):
    case = Case(**given)
    for _ in range(4):
        case.go_on(1)
        assert case.team.last_report is not None
        if case.given["coordination"] in (sb.MaxSum(), "exact"):  # what is looked at again, each looks at by itself
            said = sum((agent.sent.get("agreement", Traffic()) for agent in case.agents.values()), Traffic())
            assert said.messages <= case.team.last_report.traffic.messages
    case.go_on(2, candidates=None)  # anywhere in the box
    assert len(case.problem.agents) == 1 or case.transport.traffic.messages > 0


@pytest.mark.parametrize("acquisition", ["db-gp-ucb", "expected-improvement", pytest.param("thompson", marks=THOROUGH)])
def test_batches_are_chosen_as_the_team_does(acquisition: str):
    case = Case(acquisition=acquisition, fails=lost)
    case.go_on(2, 2)
    case.go_on(1, 3, candidates=None)


@pytest.mark.parametrize("acquisition", ["db-gp-ucb", "information", "expected-improvement", "thompson"])
@pytest.mark.parametrize("price", [0.05, 0.6])
def test_agents_decline_what_the_team_declines(acquisition: str, price: float):
    case = Case(acquisition=acquisition)
    case.go_on(4, prices={"r": price, "m": price, "k": 0.0})
    case.go_on(1, prices={"a": 50.0})
    assert case.agents["a"].word() == {}


def test_who_has_nowhere_to_go_sits_the_round_out():
    case = Case()
    case.go_on(2)
    places = case.candidates(9)
    case.go_on(1, candidates={name: places[name] for name in ("a", "m")})
    assert case.agents["r"].word() == {}
    case.go_on(1, candidates={name: places["r"][:2] for name in NAMES})  # two places for four
    case.go_on(1, candidates={})
    case.go_on(1)
