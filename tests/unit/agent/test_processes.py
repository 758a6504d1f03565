"""Agents in processes of their own, with nothing in reach but their own data and messages, decide as a team does."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.agent import Agent, RemoteAgent
from swarmbo.coordination.messages import Codec
from swarmbo.errors import ConfigError, TransportError, UnknownQueryError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.transport import Envelope
from swarmbo.worlds import FunctionWorld
from swarmbo_envs import wlan_power_v0

SEED, INITIAL, DECISIONS = 3, 4, 3
ADDITIVE, ENSEMBLE = sb.AdditiveGPSettings(), sb.EnsembleSettings(n_features=32)
FADING = sb.AdditiveGPSettings(time=sb.TimeAxis(lengthscale_median=2.0))
SMALL_ADMM = sb.ADMM(rounds=4, starts=4, screened=32, polish_steps=6)

Place = Mapping[str, float]
Evaluate = Callable[[Place], tuple[dict[str, float], dict[str, float]]]  # what was asked: where it was, and outcomes
World = tuple[FactorGraph, dict[str, tuple[float, float]], "nx.Graph[str] | None", Callable[[], Evaluate]]


class Processes:
    """One process per agent; this one carries their messages and looks at none but to count them.

    Args:
        world: Where they act.
        acquisition: Of all.
        belief: Of all.
        kind: ``Agent`` for agents that share this process, which is quicker.
        **more: Settings of all.
    """

    def __init__(
        self,
        world: World,
        acquisition: Any,
        belief: Any = ADDITIVE,
        kind: type[RemoteAgent] | type[Agent] = RemoteAgent,
        **more: Any,
    ) -> None:
        self.graph, bounds, links, _ = world
        problem = Problem.of(
            self.graph, bounds, dict(zip(self.graph.variables, self.graph.variable_owners, strict=True)), "per-factor"
        )
        settings: dict[str, Any] = {
            "belief": belief,
            "acquisition": acquisition,
            "coordination": SMALL_ADMM,
            "initial": INITIAL,
        }
        self.agents: dict[str, Any] = {
            name: kind(name, problem, links=links, seed=SEED, **{**settings, **more}) for name in self.graph.agents
        }
        self.query_id = ""

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            if isinstance(agent, RemoteAgent):
                agent.close()

    def ask(self, lost: int | None = None) -> tuple[dict[str, float], int, Counter[str]]:
        """The point, how many messages passed, and how many between strangers.

        Args:
            lost: Number of the message that does not arrive; None: all arrive.
        """
        n_messages, far = 0, Counter[str]()
        (self.query_id,) = {agent.ask() for agent in self.agents.values()}
        inboxes: dict[str, list[Envelope]] = {name: [] for name in self.agents}
        while inboxes:
            said = [e for name, inbox in inboxes.items() for e in self.agents[name].tick(0.0, inbox)]
            inboxes = {}
            for envelope in said:
                far[type(Codec.read(envelope.payload)[1]).__name__] += not self._touch(*envelope[:2])
                n_messages += 1
                if n_messages - 1 != lost:
                    inboxes.setdefault(envelope.recipient, []).append(envelope)
        words = [agent.word(self.query_id) or {} for agent in self.agents.values()]
        return {variable: value for word in words for variable, value in word.items()}, n_messages, far

    def sent(self) -> tuple[Counter[str], Counter[str]]:
        """Messages and bytes of the last decision, by purpose."""
        messages, sizes = Counter[str](), Counter[str]()
        for agent in self.agents.values():
            for purpose, traffic in agent.sent.items():
                messages[purpose] += traffic.messages
                sizes[purpose] += traffic.bytes
        return messages, sizes

    def _touch(self, one: str, other: str) -> bool:
        """Whether an edge of the factor graph, or two that meet in a variable, lead from one agent to the other."""

        def reached(agent: str) -> set[str]:
            scopes = {v for f in self.graph.factors_owned_by(agent) for v in self.graph.scope(f)}
            return scopes | set(self.graph.variables_owned_by(agent))

        return bool(reached(one) & reached(other))

    def tell(self, place: Place, outcomes: Mapping[str, float]) -> None:
        """Every agent what its own factors brought, and where its variables stood."""
        for name, agent in self.agents.items():
            own = {factor: outcomes[factor] for factor in self.graph.factors_owned_by(name)}
            stood = {variable: place[variable] for variable in self.graph.variables_owned_by(name)}
            agent.tell(self.query_id, own, point=stood)


def wlan() -> World:
    env = wlan_power_v0.parallel_env(
        topology={"generated": {"access_points": 4, "users": 8, "area_m": [120.0, 120.0]}}, noise_std=0.1
    )
    env.reset(seed=SEED)
    world = FunctionWorld(env)
    assert world.graph is not None
    assert world.outcomes == "per-factor"

    def fresh() -> Evaluate:
        own = wlan_power_v0.parallel_env(
            topology={"generated": {"access_points": 4, "users": 8, "area_m": [120.0, 120.0]}}, noise_std=0.1
        )
        own.reset(seed=SEED)
        seen = FunctionWorld(own)

        def evaluate(point: Place) -> tuple[dict[str, float], dict[str, float]]:
            infos = own.step(seen.actions(point, own.agents))[-1]
            place, outcome = seen.point(infos), seen.outcome(infos)
            assert place is not None
            assert isinstance(outcome, dict)
            return place, {factor: float(value) for factor, value in outcome.items() if value is not None}

        return evaluate

    return world.graph, world.bounds, world.links(), fresh


def pairs(edges: list[tuple[str, str]]) -> World:
    """Each factor couples two variables; the first one's agent owns it, and agents hear those they share it with."""
    first = [a for a, _ in edges]
    owners = {variable: variable if variable in first else first[-1] for edge in edges for variable in edge}
    graph = FactorGraph.from_scopes({f"f_{a}{b}": [a, b] for a, b in edges}, variable_owners=owners)
    bounds = {variable: (float(i) - 1.0, float(i) + 2.0) for i, variable in enumerate(graph.variables)}

    def evaluate(point: Place) -> tuple[dict[str, float], dict[str, float]]:
        u = {variable: (point[variable] - low) / (high - low) for variable, (low, high) in bounds.items()}
        outcomes = {
            factor: float(np.sin(5.0 * u[a] + i) + 10.0**i * (u[b] - u[a] * 0.7) ** 2)
            for i, (factor, (a, b)) in enumerate(zip(graph.factors, edges, strict=True))
        }
        return dict(point), outcomes

    links = nx.Graph((owners[a], owners[b]) for a, b in edges)
    return graph, bounds, links, lambda: evaluate


CHAIN, RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")], [("a", "b"), ("b", "c"), ("c", "a")]
CASES: dict[str, tuple[Callable[[], World], Any, Any]] = {
    "WLAN, auto": (wlan, sb.Auto(), ADDITIVE),
    "WLAN, dumbo": (wlan, sb.DuMBO(), ADDITIVE),
    "chain, coupled dumbo": (lambda: pairs(CHAIN), sb.DuMBO(coupled=True), ADDITIVE),
    "ring, auto": (lambda: pairs(RING), sb.Auto(), ADDITIVE),
    "ring, dec-hbo": (lambda: pairs(RING), sb.DECHBO(), ADDITIVE),
    "ring, thompson": (lambda: pairs(RING), sb.Thompson(), ADDITIVE),
    "ring, expected improvement": (lambda: pairs(RING), sb.ExpectedImprovement(), ADDITIVE),
    "ring, egp-ts": (lambda: pairs(RING), sb.EGPTS(), ENSEMBLE),
    "chain, egp-ei": (lambda: pairs(CHAIN), sb.EGPEI(), ENSEMBLE),
    "WLAN, auto, fading": (wlan, sb.Auto(), FADING),
}


@pytest.mark.slow  # each agent's process takes seconds to start
@pytest.mark.parametrize("name", CASES)
def test_processes_that_know_only_their_own_outcomes_decide_as_the_team_does(name: str):
    world, acquisition, belief = CASES[name]
    compare_with_team(world(), acquisition, belief, RemoteAgent)


@pytest.mark.parametrize("name", ["WLAN, auto", "chain, coupled dumbo"])
def test_so_do_agents_that_share_a_process(name: str):
    world, acquisition, belief = CASES[name]
    compare_with_team(world(), acquisition, belief, Agent)


def compare_with_team(where: World, acquisition: Any, belief: Any, kind: type[RemoteAgent] | type[Agent]) -> None:
    graph, bounds, links, fresh = where
    team = sb.Team(
        graph,
        bounds,
        belief=belief,
        acquisition=acquisition,
        coordination=SMALL_ADMM,
        seed=SEED,
        initial=INITIAL,
        outcomes="per-factor",
        variable_owners=dict(zip(graph.variables, graph.variable_owners, strict=True)),
    )
    in_team, apart = fresh(), fresh()
    n = len(graph.agents)
    with threadpool_limits(1, user_api="blas"), Processes(where, acquisition, belief, kind) as processes:
        for turn in range(INITIAL + DECISIONS):
            query = team.ask(links=links)
            point, _, far = processes.ask()
            assert point == query.point
            assert team.last_report is not None
            traffic, (messages, sizes) = team.last_report.traffic, processes.sent()
            said = {purpose: (messages[purpose], sizes[purpose]) for purpose in +messages}
            assert {purpose: (took.messages, took.bytes) for purpose, took in team.sent.items()} == said
            assert traffic.messages == sum(messages.values()) - messages["news"]
            assert not +far  # every message passes between agents whose factors share a variable
            if turn >= INITIAL:  # one tree of agents, up and down, for each sum over all
                assert messages["news"] == messages["ranking"] == messages["point"] == 2 * (n - 1)
                assert sizes["ranking"] <= messages["ranking"] * (8 * turn + 52)
            place, outcomes = in_team(query.point)
            team.tell(query, outcomes, point=place)
            processes.tell(*apart(point))


def test_a_lost_message_stops_those_who_wait_for_it_and_nobody_decides_anything_else():
    where = pairs(RING)
    evaluate = where[-1]()

    def asked(lost: int | None) -> tuple[dict[str, float], int]:
        with Processes(where, sb.Auto(), kind=Agent) as processes:
            for _ in range(INITIAL):
                processes.tell(*evaluate(processes.ask()[0]))
            point, n_messages, _ = processes.ask(lost)
            return point, n_messages

    with threadpool_limits(1, user_api="blas"):
        point, n_messages = asked(None)
        assert set(point) == set(where[0].variables)
        for lost in (0, 17, n_messages - 2):
            partial, n_sent = asked(lost)
            assert lost < n_sent <= n_messages
            assert set(partial) < set(point)
            assert partial.items() <= point.items()


DISJOINT = {"f": ["a", "b"], "g": ["c", "d"]}


@pytest.mark.parametrize(
    "acquisition",
    ["auto", "dumbo", "dec-hbo", "thompson", "expected-improvement", "add-gp-ucb", "egp-ts", "egp-ei"],
    ids=str,
)
def test_parts_that_share_no_variable_need_nothing_of_each_other_unless_totals_tie_them(acquisition: str):
    graph = FactorGraph.from_scopes(DISJOINT)

    def own_part(outcomes: Any, other: float) -> list[float]:
        team = sb.Team(
            graph,
            dict.fromkeys(graph.variables, (0.0, 1.0)),
            belief=ENSEMBLE if acquisition.startswith("egp") else ADDITIVE,
            acquisition=acquisition,
            coordination=SMALL_ADMM,
            seed=SEED,
            initial=INITIAL,
            outcomes=outcomes,
        )
        seen: list[float] = []
        for _ in range(INITIAL + DECISIONS):
            query = team.ask()
            x = query.point
            parts = {"f": np.sin(5.0 * x["a"]) - x["b"] ** 2, "g": other * np.cos(7.0 * x["c"] + other) * x["d"]}
            team.tell(query, parts if outcomes == "per-factor" else sum(parts.values()))
            seen += [x["a"], x["b"]]
        return seen

    assert own_part("per-factor", 1.0) == own_part("per-factor", 3.0)
    assert own_part("total", 1.0) != own_part("total", 3.0)


@pytest.mark.thorough
def test_a_process_refuses_what_an_agent_refuses_and_hands_over_its_state_and_ends_when_it_is_let_go():
    where = pairs([("a", "b"), ("b", "a")])
    evaluate = where[-1]()
    with Processes(where, "auto", initial=1) as processes:
        agent, old = processes.agents.values()
        with pytest.raises(UnknownQueryError, match="query 'q00009' is not pending"):
            agent.tell("q00009", 1.0)
        point, *_ = processes.ask()  # the process goes on
        with pytest.raises(ConfigError, match=r"wanted its own of \['f_ab'\]"):
            agent.tell("q00001", {"f_ba": 1.0})
        processes.tell(*evaluate(point))
        processes.agents["b"] = RemoteAgent.from_state_dict(old.state_dict())
        old.close()
        assert not old.is_alive
        team = sb.Team(
            *where[:2], seed=SEED, initial=1, outcomes="per-factor", acquisition="auto", coordination=SMALL_ADMM
        )
        team.tell(team.ask(), evaluate(point)[1])
        assert processes.ask()[0] == team.ask().point
        assert agent.is_alive
    assert not agent.is_alive
    with pytest.raises(TransportError, match="the process of agent 'a' has ended"):
        agent.ask()


def test_an_agent_that_can_not_be_made_is_refused_where_it_was_to_be():
    with pytest.raises(ConfigError, match="got agent 'z'"):
        RemoteAgent("z", Problem.of(FactorGraph.from_scopes(DISJOINT), dict.fromkeys("abcd", (0.0, 1.0))))


@pytest.mark.slow
def test_the_agents_of_the_page_run_in_processes_of_their_own(tmp_path: Path):
    page = (Path(__file__).parents[3] / "docs" / "guide" / "processes.md").read_text(encoding="utf-8")
    first = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    imports, _, code = first.partition("\n\n")
    lines = [
        *re.sub(r"\bAgent\(", "RemoteAgent(", code).splitlines(),
        "print(transport.traffic)",
        "[agent.close() for agent in alone.values()]",
    ]
    text = [imports.replace("import Agent,", "import RemoteAgent,"), "if __name__ == '__main__':", *lines]
    script = "\n".join(text[:2] + [f"    {line}" for line in text[2:]])
    (tmp_path / "agents.py").write_text(script, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(sb.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "agents.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"Traffic(messages=" in ran.stdout
