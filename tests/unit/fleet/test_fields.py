"""Members of a fleet in fields decide exactly as a team does, and each receives only its own data."""

from contextlib import suppress
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.messages import Decide, RecordOutcome, decode
from swarmbo.fleet.plan import HUB
from swarmbo_envs import robot_team_v0, robot_team_v1, sensor_field_v0

from .rounds import alone, require_same

ROUNDS = 2
QUICK = {
    "seed": 3,
    "coordination": "exact",
    "acquisition": sb.DBGPUCB(candidates=8),
    "belief": sb.ExactGPSettings(restarts=0, max_iterations=20),
}
THOROUGH = pytest.mark.thorough
PEAKS = {"gp": {"lengthscale_m": 600.0, "seed": 1}}


class Buoys(ParallelEnv):
    """A minimal environment: different boxes, one agent that leaves, one that once reports no measurement."""

    metadata: ClassVar = {"name": "buoys"}

    def __init__(self) -> None:
        self.possible_agents = ["east", "west", "south"]
        self._boxes = {"east": (0.0, 1.0), "west": (0.5, 2.0), "south": (0.0, 2.0)}

    def action_space(self, agent):
        low, high = self._boxes[agent]
        return Box(np.full(2, low, np.float32), np.full(2, high, np.float32))

    def observation_space(self, agent):
        return Box(0.0, 1.0, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self._round = self.possible_agents[:], 0
        return self._observed(), {agent: {} for agent in self.agents}

    def interaction_graph(self):
        graph = nx.Graph([("west", "south")])
        graph.add_nodes_from(self.possible_agents)
        return graph

    def step(self, actions):
        self._round += 1
        infos = {
            agent: {"location": place.tolist(), "measurement": float(np.sin(3.0 * place).sum()), "noise_std": 0.1}
            for agent, place in actions.items()
        }
        infos["south"] = {"sampled": False} if self._round == 1 else infos["south"]
        if self._round == 1 and "west" in infos:
            self.agents = ["east", "south"]
        no = dict.fromkeys(actions, False)
        return self._observed(), dict.fromkeys(actions, 0.0), no | {"west": self._round == 1}, no, infos

    def _observed(self):
        return {agent: np.zeros(1, np.float32) for agent in self.agents}


class Relayed(Buoys):
    """Buoys linked over a mast, which is not an agent and whose name is a number."""

    def interaction_graph(self):
        graph = nx.Graph([("west", 7), (7, "south")])
        graph.add_nodes_from(self.possible_agents)
        return graph


def robots(**more):
    return robot_team_v0.parallel_env(**{"robots": 3, "field": {"elevation": "jacksboro"}, "noise_std": 5.0, **more})


def obstacles():
    ridge = {"corners": [[1500, 3000], [2500, 2200], [3600, 2700], [3900, 4200], [3100, 5600], [1900, 5200]]}
    return robot_team_v1.parallel_env(
        robots=3,
        field={"elevation": "jacksboro"},
        bases=[[700, 700], [8800, 700], [700, 11200]],
        battery_s=[3600.0, 400.0, 2600.0],
        samples_per_leg=2,
        no_go=[ridge],
    )


def sensors(**more):
    return sensor_field_v0.parallel_env(**{"sensors": 6, "field": PEAKS, **more})


def apart(team):
    """True if the links of the robots are not connected."""
    return not nx.is_connected(team.world.links())


def declines(team):
    """True if some agent did not measure."""
    return len(team.last_query.points) < len(team.agents)


def fails(team):
    return team.failures > 0


def measures_besides(team):
    """True if there is more than one measurement per agent and round."""
    return team.n_data > len(team.agents) * (ROUNDS + 1)


CASES = [
    pytest.param(obstacles, {}, measures_besides, id="obstacles, batteries and samples along the way; some are killed"),
    pytest.param(
        lambda: sensors(failure_rate=0.4),
        {"belief": sb.ExactGPSettings(restarts=0, max_iterations=20, time=sb.TimeAxis(lengthscale_median=3.0))},
        fails,
        id="failures, and data that fade",
    ),
    pytest.param(
        lambda: robots(radio_range_m=1500.0),
        {"belief": sb.FusedSettings(prior=sb.ExactGPSettings(restarts=0, max_iterations=20), steps=3, loss=0.2)},
        apart,
        id="own beliefs, robots out of reach",
    ),
    pytest.param(
        Relayed,
        {"belief": sb.FusedSettings(prior=sb.ExactGPSettings(restarts=0, max_iterations=20))},
        lambda team: 7 in team.world.links(),
        id="own beliefs, over a relay",
    ),
    pytest.param(lambda: sensors(energy_price=6.0), {}, declines, id="sensors that decline", marks=THOROUGH),
    pytest.param(Buoys, {}, declines, id="a minimal environment", marks=THOROUGH),
    pytest.param(
        lambda: sensors(task="level", level=0.5),
        {"acquisition": sb.Straddle(candidates=8)},
        lambda team: team.world.level == 0.5,
        id="a level",
        marks=THOROUGH,
    ),
]


@pytest.mark.parametrize(("world", "given", "happens"), CASES)
def test_a_fleet_decides_in_a_field_as_a_team_does(network, fleets, world, given, happens):
    is_hard = world is obstacles
    wire = network(loss=0.2, twice=0.1, late=0.1, seed=2) if is_hard else network()
    fleet = fleets(world(), wire, kill=0.013 if is_hard else 0.0, **{**QUICK, **given})
    played, wanted = fleet.play(ROUNDS), alone(world(), ROUNDS, **{**QUICK, **given})
    require_same(played, wanted)
    assert played[0] == wanted[0]  # including the predictions
    assert happens(fleet.team)
    assert (fleet.kills > 2) == is_hard


def test_an_error_names_the_agent_that_hangs_in_a_decision_and_not_those_that_wait_for_it(network, fleets, monkeypatch):
    fleet = fleets(robots(), network(), **QUICK)
    hangs = fleet.team.agents[1]
    for name, member in fleet.members.items():

        def step(seconds, name=name, member=member, step=member.step):
            with suppress(TransportError):  # as if a process that gives up were started again
                if name != hangs or member._agent.is_finished:  # it accepts the request, then hangs
                    step(seconds)

        monkeypatch.setattr(member, "step", step)
    with pytest.raises(TransportError, match=rf"received nothing from \['{hangs}'\]"):
        fleet.play(ROUNDS)


def test_each_member_receives_only_its_own_data(network, fleets):
    wire, written = network(), {}
    send = wire.send

    def record(sender, recipient, content):
        written.setdefault((sender, recipient), []).append(decode(content))
        send(sender, recipient, content)

    wire.send = record
    fleet = fleets(obstacles(), wire, **QUICK)
    fleet.play(ROUNDS)
    for name in fleet.team.agents:
        orders = written[HUB, name]
        offers = [message.offer for message in orders if isinstance(message, Decide)]
        rows = [message.row for message in orders if isinstance(message, RecordOutcome)]
        places = [tuple(row.place.values()) for row in rows if row.factors]
        column = fleet.team.problem.channels.index(name)
        own = fleet.team.history.X[fleet.team.problem.takes_part(fleet.team.history.X)[:, column]]
        along = [stop.place for row in rows for stop in row.on_the_way]
        assert {*places, *along} == {tuple(row[fleet.team.problem.columns(name)]) for row in own}
        assert len(offers) == ROUNDS
        offered = {place for offer in offers for place in offer.candidates}
        assert offered.issuperset(places[1:])


def test_outcomes_of_a_batch_can_be_told_in_any_order_and_in_parts(network, fleets):
    world = robots()
    fleet = fleets(world, network(), **QUICK)
    team, other = fleet.team, sb.Team.for_env(robots(), **QUICK)
    with threadpool_limits(1, user_api="blas"):
        for env in (team.world._env, other.world._env):
            _, infos = env.reset(seed=7)
        for one in (team, other):
            one.begin(infos)
        for turn in range(2):
            asked = [one.ask(3) for one in (team, other)]
            assert asked[0] == asked[1]
            first, *others = asked[0]
            for one in (team, other):
                for query in others[::-1]:
                    one.tell(query, {agent: 5.0 + turn + place[0] for agent, place in query.points.items()})
                for agent, place in first.points.items():
                    one.tell(first, {agent: None if agent.endswith("1") else place[1]})
        assert team.ask() == other.ask()
    require_same(([], team.history), ([], other.history))


@pytest.mark.parametrize("what", ["attach", "expect", "give_up"])
def test_calls_that_a_fleet_does_not_support_are_refused(network, fleets, what):
    team = fleets(robots(), network(), **QUICK).team
    with pytest.raises(ConfigError, match=f"got .*{what}.*, which agents of a fleet do not support"):
        getattr(team, what)([[0.0, 0.0]], [1.0])


def test_an_environment_whose_sites_change_is_refused(network, fleets):
    fleet = fleets(sensors(), network(), **QUICK)
    fleet.team.world._world.sites = lambda: np.zeros((1, 2))
    with pytest.raises(ConfigError, match=r"its level or its sites\(\) changed"):
        fleet.play(ROUNDS)
