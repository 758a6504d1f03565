"""Decisions and traffic of shipped scenarios, with a team, and with agents that receive only their own outcomes.

``python tests/oracle/driven.py`` records decisions again in ``decisions.jsonl``; with names, of these scenarios only.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import networkx as nx
from threadpoolctl import threadpool_limits

from swarmbo.agent import Agent, run
from swarmbo.deciding.own_rows import OwnRows, measurements_by_round
from swarmbo.deciding.setup import settings_again
from swarmbo.fleet.hub import Hub, row_of
from swarmbo.fleet.messages import Decision
from swarmbo.fleet.team import FleetTeam
from swarmbo.records import Query, Traffic
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario_files import load
from swarmbo.team import Team
from swarmbo.transport import InProcess

HERE = Path(__file__).parent
RECORD = HERE / "decisions.jsonl"
SCENARIOS = sorted(path.stem for path in (HERE.parent.parent / "scenarios").glob("*.toml"))
APART = {  # scenarios that need more than swarmbo, and what they need
    "measured": "a survey, which its command downloads",
    "wlan-ns3": "the simulator ns-3",
}
ROUNDS, DIGITS = 5, 7
FEWER = {"swarm": 2, "swarm-sensors": 2}  # rounds of the largest scenarios
INITIAL = 2  # points of the initial design, so that a method decides some of the rounds


class Round(NamedTuple):
    """A decided round.

    Args:
        point: Point of the query.
        sent: Messages and bytes that were sent, per purpose.
    """

    point: dict[str, Any]
    sent: dict[str, tuple[int, int]]


class Members(Hub):
    """A hub whose members are agents in this process."""

    absent = ()

    def __init__(self, team: Team) -> None:
        world, self.problem, self.sent = team.world, team.problem, dict[str, Traffic]()
        self.plan: Any = SimpleNamespace(level=getattr(world, "level", None), sites=None)
        sites = None if world is None else world.sites()
        self.plan.sites = None if sites is None else sites.tolist()
        ways = None if world is None or not team.problem.is_field else world.offers(list(team.agents)).travel
        given = settings_again(team.setup.to_plain(), {})
        given.pop("transport", None)
        known: dict[str, Any] = {"level": self.plan.level, "sites": sites, "travel": ways, "has_base": True}
        self.members = {name: Agent(name, self.problem, **known, **given) for name in self.problem.agents}

    def decisions(self, links: Any, offers: Any = None) -> list[Decision]:
        """What the agents decide."""
        edges, query = links(()), ""
        for name, agent in self.members.items():
            agent.links = None
            if edges is not None:
                agent.links = nx.Graph()
                agent.links.add_nodes_from(self.problem.agents)
                agent.links.add_edges_from(edges)
            query = agent.ask(**({} if offers is None else msgspec.structs.asdict(offers[name])))
        run(self.members, InProcess().open(self.problem.agents))
        self.sent = {}
        for agent in self.members.values():
            for purpose, took in agent.sent.items():
                self.sent[purpose] = self.sent.get(purpose, Traffic()) + took
        reports = {name: agent.report for name, agent in self.members.items()}
        return [
            Decision(0, query, a.coded_decision() or {}, report, a.sent)
            for name, a in self.members.items()
            if (report := reports[name])
        ]

    def tell(self, query: str | None, news: Any, *, is_all: bool) -> None:
        """Tell each agent its own outcomes."""
        for name, agent in self.members.items():
            row = row_of(self.problem, name, news, OwnRows(), self.problem.agents[0], has_ended=is_all)
            if not self.problem.is_field and query is not None:
                has_total = row.total is not msgspec.UNSET
                noise: Any = row.total_noise if has_total else row.noise or None
                place = self.problem.valued(row.place)
                agent.tell(query, _number(row.total) if has_total else row.factors, point=place, noise_std=noise)
            elif self.problem.is_field and row.has_news:
                (_, stops), *_ = measurements_by_round({"q0": row}, agent.variables)
                infos = list(map(_info, stops))
                info = infos.pop(0) if row.factors else {"sampled": False}
                agent.observe(query, info | {"on_the_way": infos}, is_all=row.has_ended)


def _number(y: Any) -> float:
    return math.nan if y is None else y


def _info(stop: Any) -> dict[str, Any]:
    return {"location": stop.place, "measurement": stop.outcome, "noise_std": stop.noise_std}


def driven(name: str, *, by_agents: bool, rounds: int | None = None) -> Iterator[Round]:
    """The rounds of a shipped scenario.

    Args:
        name: Name of the scenario.
        by_agents: Whether agents decide, each from its own outcomes; else a team decides.
        rounds: Number of rounds.
    """
    scenario = load(name, [])
    env, team = assemble(scenario)
    if not team.problem.is_field:
        scenario = msgspec.structs.replace(scenario, initial=1 if name in FEWER else INITIAL)
        env, team = assemble(scenario)
    observations, infos = env.reset(seed=scenario.seed)
    members = None
    if by_agents:
        members = Members(team)
        given = settings_again(team.setup.to_plain(), {})
        fleet = FleetTeam.for_env(env, **given, no_go=scenario.no_go)
        fleet.hub = members
        team = fleet
    team.begin(infos)
    for _ in range(FEWER.get(name, ROUNDS) if rounds is None else rounds):
        actions = team.act(observations, infos)
        query = team.last_query
        assert isinstance(query, Query)
        sent = members.sent if members is not None else getattr(team, "sent", {})
        yield Round(dict(query.point), {purpose: (t.messages, t.bytes) for purpose, t in sent.items() if t.messages})
        step = env.step(actions)
        team.observe(*step)
        observations, infos = step[0], step[-1]


def rounded(found: Round) -> dict[str, Any]:
    """A point to seven digits, as it is recorded."""
    point = found.point.items()
    return {variable: float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x for variable, x in point}


def recorded() -> dict[str, list[dict[str, float]]]:
    """Recorded points of each scenario, one per round."""
    return {(row := json.loads(line))["scenario"]: row["points"] for line in RECORD.read_text().splitlines()}


def main(names: list[str]) -> None:
    """Record decisions again."""
    known = recorded() if RECORD.exists() else {}
    for name in names or [name for name in SCENARIOS if name not in APART]:
        with threadpool_limits(1, user_api="blas"):
            known[name] = [rounded(found) for found in driven(name, by_agents=False)]
        lines = [json.dumps({"scenario": name, "points": known[name]}) for name in sorted(known)]
        RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
