"""A simulated network that loses, repeats and delays messages, and fleets that run over it in one process."""

import random
import shutil
from collections import defaultdict

import pytest

from swarmbo.fleet.hub import Hub
from swarmbo.fleet.link import Arrival
from swarmbo.fleet.measuring import InstrumentWrapper
from swarmbo.fleet.member import Member
from swarmbo.fleet.plan import HUB, Plan, endpoints_of
from swarmbo.fleet.team import FleetTeam, level_and_sites

from .rounds import play


class Wire:
    """The network of all carriers: a simulated clock, and messages in transit.

    Args:
        loss: Share of messages that are lost.
        twice: Share of messages that arrive twice.
        late: Longest delay in seconds.
        seed: Seed of all faults.
    """

    def __init__(self, loss: float = 0.0, twice: float = 0.0, late: float = 0.0, seed: int = 0) -> None:
        self.now, self.sent = 0.0, 0
        self._faults = loss, twice, late
        self._rng = random.Random(seed)
        self._under_way: defaultdict[str, list[tuple[float, Arrival]]] = defaultdict(list)

    def clock(self) -> float:
        return self.now

    def carrier(self, name: str, run: str = "test") -> "Carrier":
        return Carrier(self, name, run)

    def send(self, sender: str, recipient: str, content: bytes) -> None:
        loss, twice, late = self._faults
        self.sent += 1
        for _ in range(2 if self._rng.random() < twice else 1):
            if self._rng.random() >= loss:
                when = self.now + late * self._rng.random()
                self._under_way[recipient].append((when, (sender, content)))

    def take(self, name: str) -> Arrival | None:
        due = [entry for entry in self._under_way[name] if entry[0] <= self.now]
        if not due:
            return None
        first = min(due, key=lambda entry: entry[0])
        self._under_way[name].remove(first)
        return first[1]


class Carrier:
    """A member's connection to the network."""

    def __init__(self, wire: Wire, name: str, run: str) -> None:
        self._wire, self._name, self._start = wire, name, "" if run == "test" else f"{run}/"

    def send(self, recipient: str, content: bytes) -> None:
        self._wire.send(self._name, self._start + recipient, content)

    def invite(self, recipient: str, content: bytes) -> None:
        self._wire.send(self._name, f"join/{recipient}", content)

    def wait(self, seconds: float) -> Arrival | None:
        message = self._wire.take(self._start + self._name) or self._wire.take(f"join/{self._name}")
        if message is None:
            self._wire.now += max(seconds, 1e-3)
        return message


@pytest.fixture(scope="session")
def network() -> type[Wire]:
    return Wire


class Members:
    """Members in one process, which take turns while the hub waits."""

    def __init__(self, plan, wire, folder, kill=0.0, measures=None):
        self.measures, self.plan = measures or {}, plan
        self.wire, self.folder, self.kills, self._kill = wire, folder, 0, kill
        self._rng = random.Random(5)
        self.turns, self.schedule, self.everybody, self.members = 0, [], [], {}

    def begin(self, agents):
        """Start all members, and return the hub."""
        hub = Hub(self.plan, self.wire.carrier(HUB, self.plan.run), self.turn, self.wire.clock)
        self.members = {name: self.member(name) for name in agents}
        return hub

    def member(self, name):
        own = self.measures.get(name)
        carrier = self.wire.carrier(name, self.plan.run)
        made = Member(name, self.plan.for_agent(name), carrier, self.folder / name, self.wire.clock, own)
        self.everybody.append(made)
        return made

    def leave(self, name):
        """End a member without a restart."""
        if (member := self.members.pop(name, None)) is not None:
            member.close()

    def come(self, name, *, forgets=False):
        """Start a member again, perhaps without its files."""
        self.leave(name)
        if forgets:
            shutil.rmtree(self.folder / name)
        self.members[name] = self.member(name)

    def turn(self):
        self.turns += 1
        while self.schedule and self.schedule[0][0] <= self.turns:
            _, do, *arguments = self.schedule.pop(0)
            do(*arguments)
        for name, member in list(self.members.items()):
            if self.members.get(name) is not member:
                continue
            member.step(0.0)
            if self._rng.random() < self._kill:
                self.kills += 1
                member.close()
                self.members[name] = self.member(name)


class Fleet(Members):
    """A hub and members in one process.

    Args:
        world: The environment.
        wire: The network.
        folder: Folder of the journals.
        kill: Share of turns after which a member is killed and started again.
        measures: Measurement functions of some members.
        patience: Patience in seconds on the wire's clock.
        run: Name of the run, which separates its messages from those of other runs.
        port: Port of the hub.
    """

    def __init__(self, world, wire, folder, kill=0.0, measures=None, patience=60.0, run="test", port=7447, **settings):
        measures = measures or {}
        self.world = InstrumentWrapper(world, tuple(measures)) if measures else world
        self.team = FleetTeam.for_env(world, **settings)
        level, sites = level_and_sites(self.team.world)
        plan = Plan(
            run=run,
            endpoints=endpoints_of(self.team.agents, "tcp", port),
            problem=self.team.problem.to_plain(),
            settings=self.team.setup.to_plain(),
            level=level,
            sites=sites,
            measures=tuple(measures),
            patience_s=patience,
        ).checked()
        super().__init__(plan, wire, folder, kill, measures)
        self.appointed = defaultdict(list)
        self.team.hub = self.world.hub = self.begin(self.team.agents)

    def on(self, number, do, *arguments, turns=0):
        """Schedule a call before a round, or some turns after its start."""
        self.appointed[number].append((turns, do, *arguments))

    def play(self, rounds):
        """Play rounds with all scheduled calls."""

        def before(number):
            for turns, do, *arguments in self.appointed.pop(number, ()):
                if turns:
                    self.schedule.append((self.turns + turns, do, *arguments))
                else:
                    do(*arguments)

        return play(self.team, self.world, rounds, before)


@pytest.fixture
def fleets(tmp_path):
    """A function that makes fleets, whose members are closed at the end of the test."""
    made = []

    def make(world, wire, **more):
        kind = Members if isinstance(world, Plan) else Fleet
        made.append(kind(world, wire, tmp_path / f"{len(made)}", **more))
        return made[-1]

    yield make
    for fleet in made:
        for member in fleet.everybody:
            member.close()
