"""Agents that plan routes go to the same places as a team that plans routes."""

from typing import Any

import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.agent import Agent, RemoteAgent, run
from swarmbo.errors import ConfigError
from swarmbo.transport import InProcess
from swarmbo.worlds import FieldWorld
from swarmbo.worlds.fields import WorldTravel
from swarmbo_envs import robot_team_v0, robot_team_v1

from .carried import copied, sent_by, ticked_to_the_end
from .in_world import InWorld
from .test_field_agents import OWN, QUICK, SLOW, THOROUGH

ROUTES = sb.Routes(way_points=60)
ROUTES_UP = sb.Routes(way_points=60, explore_share=0.05)  # exploration ends before the first round
UP: dict[str, Any] = {"coordination": ROUTES_UP, "acquisition": "db-gp-ucb"}
DEPOT: dict[str, Any] = {
    "field": {"elevation": "jacksboro"},
    "bases": [[700, 700], [8800, 700], [700, 11200]],
    "battery_s": [3600.0, 1400.0, 2600.0],
}
PEAK = sb.TargetedVariance(task="peak", candidates=10, places=60)


def drive(belief: Any = QUICK, acquisition: Any = PEAK, coordination: Any = ROUTES, **world: Any) -> InWorld:
    make = robot_team_v1 if world.keys() & {"bases", "samples_per_leg"} else robot_team_v0
    settings = {"robots": 3, "max_cycles": 12} | world
    given = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
    return InWorld(make.parallel_env, settings, seed=1, rounds=12, **given)


@pytest.mark.parametrize(
    ("given", "exchanges"),
    [
        pytest.param({}, True, id="auction"),
        pytest.param({"belief": OWN}, True, id="own beliefs"),
        pytest.param({"coordination": sb.Routes(order="sequential", way_points=60)}, True, id="one by one"),
        pytest.param({"belief": OWN, "failure_rate": 0.3}, True, id="failures", marks=THOROUGH),
        pytest.param(DEPOT, False, id="batteries, apart", marks=THOROUGH),
        pytest.param({"coordination": sb.Routes(explore_share=0.0), "acquisition": "db-gp-ucb"}, False, id="no routes"),
        pytest.param({"acquisition": "db-gp-ucb"}, True, id="ascent in time"),
        pytest.param(
            {"acquisition": "db-gp-ucb", "belief": OWN, "battery_s": 900.0, "bases": [[4700.0, 5900.0]] * 3},
            True,
            id="ascent in time, own beliefs, batteries",
            marks=SLOW,
        ),
        pytest.param(UP, True, id="ascent", marks=SLOW),
        pytest.param({**UP, "acquisition": "thompson", "belief": OWN}, True, id="ascent by draws", marks=SLOW),
        pytest.param({"samples_per_leg": 2}, True, id="samples on the way", marks=SLOW),
        pytest.param({"samples_per_leg": 2, "belief": OWN}, True, id="samples on the way, own beliefs", marks=THOROUGH),
        pytest.param({**UP, "samples_per_leg": 2}, True, id="ascent, samples on the way"),
        pytest.param({"robots": 1}, False, id="one robot", marks=THOROUGH),
    ],
)
def test_agents_that_know_only_their_own_travel_times_drive_as_the_team_does(given: dict[str, Any], exchanges: bool):
    there = drive(**given)
    for _ in range(2):
        there.play()
        sent, counted = sent_by(there.agents), dict(there.team.sent)
        assert "agreement" in sent or not exchanges
        sent.pop("reports", None)
        counted.pop("reports", None)
        assert sent == counted
    there.recommend()


@pytest.mark.parametrize("moment", [3, *(pytest.param(moment, marks=SLOW) for moment in (9, 30))])
def test_an_agent_with_routes_continues_from_its_state_with_its_travel_times(moment: int):
    there = drive(belief=OWN)
    there.play()
    there.ask_all()

    def again(name: str, agent: Agent) -> Agent:
        with pytest.raises(ConfigError, match=r"\$.travel: got NoneType; wanted travel times"):
            copied(agent)
        return copied(agent, travel=there.travel[name])

    assert ticked_to_the_end(there, moment, again) > moment
    there.act()
    there.play()


@pytest.mark.slow
def test_agents_with_routes_can_be_processes():
    env = robot_team_v0.parallel_env(robots=2)
    env.reset(seed=0)
    world = FieldWorld(env)
    given: dict[str, Any] = {"acquisition": PEAK, "coordination": ROUTES, "belief": QUICK, "sites": world.sites()}
    decisions: list[Any] = []
    for kind in (Agent, RemoteAgent):
        agents: dict[str, Any] = {
            name: kind(name, world.problem, travel=WorldTravel(env.unwrapped), **given) for name in world.problem.agents
        }
        with threadpool_limits(1, user_api="blas"):
            for _ in range(3):
                (query,) = {agent.ask() for agent in agents.values()}
                run(agents, InProcess().open(agents))
                decisions.append([agent.decision() for agent in agents.values()])
                for agent in agents.values():
                    agent.tell(query, sum(agent.decision().values()))
        if kind is RemoteAgent:
            for agent in agents.values():
                agent.close()
    assert decisions[:3] == decisions[3:]
