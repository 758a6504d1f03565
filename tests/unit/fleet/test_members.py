"""Members of a fleet decide exactly as a team does, over lossy links and after kills and restarts."""

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.deciding.own_rows import OwnRow
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.mailbox import Journal
from swarmbo.fleet.member import Member
from swarmbo.fleet.messages import AgreementMessage, Decide, Decision, Invitation, RecordOutcome, encode
from swarmbo.fleet.plan import HUB, Plan, new_run
from swarmbo.fleet.run import NetworkReport, members_of
from swarmbo.records import NetworkRecord
from swarmbo.runs.scenario_files import load
from swarmbo_envs import function_v0

from .rounds import alone, require_same
from .test_membership import FUNCTION

ROUNDS = 4
SETTINGS = {"seed": 3, "initial": 2, "coordination": sb.ADMM(rounds=4, starts=2, screened=16, polish_steps=4)}
TIMED = SETTINGS | {"coordination": sb.ADMM(mode="asynchronous", deadline=12, patience=4, starts=2, inner_steps=2)}
THOROUGH, SLOW = pytest.mark.thorough, pytest.mark.slow


def world(function="camel", **more):
    function = FUNCTION() if function == "additive-gp" else function
    return function_v0.parallel_env(function=function, **{"outcomes": "per-factor", **more})


POWELL = {"function": "powell", "parameters": {"n_variables": 8}}
PLAIN = {"by factor": {}, "with failures": {"failure_rate": 0.4}}  # the cases below also have faults and kills
WORLDS = {
    "totals": {"outcomes": "total", "noise_std": 0.1},
    "totals that fail": {"outcomes": "total", "failure_rate": 0.4},
    "three agents": {"function": "additive-gp"},
    "apart": POWELL,  # no links between the parts, only the network
    "apart, totals": {**POWELL, "outcomes": "total"},
}


FAULTS = {"loss": 0.3, "twice": 0.2, "late": 0.3, "seed": 1}
KILLED = {"failure_rate": 0.3}, {"loss": 0.1, "late": 0.1}, 0.004


@pytest.mark.parametrize(
    ("case", "faults", "kill"),
    [
        *(pytest.param(case, {}, 0.0, id=name) for name, case in WORLDS.items()),
        *(pytest.param(case, {}, 0.0, id=name, marks=SLOW) for name, case in PLAIN.items()),
        pytest.param({}, FAULTS, 0.0, id="over links that lose, repeat and delay"),
        pytest.param(*KILLED, id="members are killed and restarted"),
        *(
            pytest.param(KILLED[0], KILLED[1] | {"seed": seed}, KILLED[2], id=f"killed {seed}", marks=SLOW)
            for seed in range(1, 4)
        ),
    ],
)
def test_a_fleet_decides_as_a_team_does(network, fleets, case, faults, kill):
    fleet = fleets(world(**case), network(**faults), kill=kill, **SETTINGS)
    require_same(fleet.play(ROUNDS), alone(world(**case), ROUNDS, **SETTINGS))
    assert fleet.team.last_report.traffic.messages > 0
    assert len(fleet.team.graph.components) == 1 + (case.get("function") == "powell")
    assert (fleet.kills > 2) == bool(kill)


@pytest.mark.parametrize("kill", [0.0, pytest.param(0.05, marks=THOROUGH)], ids=["alive", "killed"])
def test_by_a_deadline_members_keep_a_clock_and_agree_in_bounds(network, fleets, kill):
    fleet = fleets(world(), network(loss=0.2, late=0.05), kill=kill, **TIMED)
    queries, _ = fleet.play(ROUNDS)
    low, high = fleet.team.problem.domain.low, fleet.team.problem.domain.high
    points = [list(query.point.values()) for query in queries]
    assert all((low <= point).all() and (point <= high).all() for point in points)
    assert fleet.team.last_report.status == "deadline"
    assert bool(fleet.kills) == bool(kill)


def test_by_a_deadline_an_agent_that_computes_longer_than_a_tick_still_gets_messages(network, fleets):
    wire = network()
    fleet, inbox_sizes = fleets(world(), wire, **TIMED), list[int]()

    def slowly(agent):
        tick = agent.tick

        def ticked(now, inbox=()):
            if agent.keeps_time:
                inbox_sizes.append(len(inbox))
                wire.now += 3.0 * fleet.plan.tick_s
            return tick(now, inbox)

        return ticked

    for member in fleet.members.values():
        member._agent.tick = slowly(member._agent)
    fleet.play(ROUNDS)
    assert inbox_sizes
    assert sum(inbox_sizes) > len(inbox_sizes) / 2


def test_a_message_half_written_to_the_journal_at_a_kill_arrives_again(network, fleets, monkeypatch):
    keep = Journal.append

    def killed(journal, sender, content):
        keep(journal, sender, content)
        page = journal.folder / "0.letters"
        page.write_bytes(page.read_bytes()[:-3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", killed)
        fleet = fleets(world(), network(), **SETTINGS)
        name = fleet.team.agents[0]
        fleet.team.hub.mailbox.send(name, RecordOutcome(0, "q00000", OwnRow(0)))
        with pytest.raises(KeyboardInterrupt):
            fleet.members[name].step(0.0)
    for member in fleet.members.values():
        member.close()
    fleet.members = {name: fleet.member(name) for name in fleet.members}
    assert len(fleet.team.hub.mailbox.unacknowledged) == 1
    require_same(fleet.play(ROUNDS), alone(world(), ROUNDS, **SETTINGS))


def test_an_error_names_a_silent_member(network, fleets):
    fleet = fleets(world(), network(), **SETTINGS)
    silent = fleet.team.agents[-1]
    fleet.members = {name: member for name, member in fleet.members.items() if name != silent}
    with pytest.raises(TransportError, match=rf"is deciding and heard nothing|received nothing from \['{silent}'\]"):
        fleet.play(ROUNDS)


class Between:
    """A member that runs only for some time."""

    def __init__(self, member, begin, end):
        self._member, self._begin, self._end = member, begin, end

    def step(self, seconds):
        if self._begin <= self._member._clock() < self._end:
            self._member.step(seconds)

    def close(self):
        self._member.close()


def test_the_hub_waits_longer_for_a_late_member_than_for_one_that_stops(network, fleets):
    wire = network()
    fleet = fleets(world(), wire, **SETTINGS)
    late = fleet.team.agents[-1]
    fleet.members[late] = Between(fleet.members[late], 300.0, np.inf)
    require_same(fleet.play(ROUNDS), alone(world(), ROUNDS, **SETTINGS))
    assert 300.0 < wire.now < 330.0
    fleet.members[late] = Between(fleet.member(late), 0.0, wire.now)
    with pytest.raises(TransportError, match=rf"received nothing from \['{late}'\] for 60 s"):
        fleet.play(ROUNDS)
    assert wire.now < 330.0 + 2 * fleet.plan.patience_s


def test_a_decision_may_take_longer_than_the_patience_while_messages_arrive(network, fleets):
    case, wire = WORLDS["three agents"], network(late=1.0)
    fleet, began = fleets(world(**case), wire, patience=5.0, **SETTINGS), []
    fleet.on(rounds := 4, lambda: began.append(wire.now))  # the first round after the initial design
    require_same(fleet.play(rounds), alone(world(**case), rounds, **SETTINGS))
    assert wire.now - began[0] > 3.0 * fleet.plan.patience_s


class LeftBehind:
    """A process on another machine: it serves an earlier run until a hub invites it, as in ``run_member``."""

    def __init__(self, fleet, name):
        self.fleet, self.member, self.asked = fleet, fleet.members.pop(name), 0

    def step(self, seconds):
        self.asked += len(lost := self.fleet.wire._under_way[f"join/{self.member.name}"])
        if self.asked < 3:  # these invitations are lost
            lost.clear()
        self.member.step(seconds)
        if (plan := self.member.next_plan) is not None:
            self.close()
            carrier = self.fleet.wire.carrier(self.member.name, plan.run)
            self.member = Member(self.member.name, plan, carrier, self.fleet.folder / plan.run, self.fleet.wire.clock)
            self.fleet.everybody.append(self.member)

    def close(self):
        self.member.close()


@pytest.mark.parametrize("given", [SETTINGS, TIMED], ids=["all are needed", "by a deadline"])
def test_a_new_hub_finds_running_processes_within_seconds(network, fleets, given):
    wire = network()
    first = fleets(world(), wire, **given)
    first.play(ROUNDS)
    began, second = wire.now, fleets(world(), wire, run="second", **given)
    name = second.team.agents[-1]
    second.members.pop(name).close()
    wire._under_way["second/world"].clear()  # the hub never got a message of it
    second.members[name] = LeftBehind(first, name)
    played = second.play(ROUNDS)
    assert second.members[name].member.plan.run == "second"
    assert second.team.hub.absent == ()
    assert wire.now - began < 30.0
    if given is SETTINGS:
        require_same(played, alone(world(), ROUNDS, **given))


def test_a_hub_does_not_invite_processes_of_its_own_machine(network, fleets):
    wire = network()
    fleet = fleets(world(), wire, **SETTINGS)
    here, there = fleet.team.agents
    fleet.team.hub = Hub(fleet.plan, wire.carrier(HUB), fleet.turn, wire.clock, local=[here])
    fleet.play(ROUNDS)
    assert not wire._under_way[f"join/{here}"]
    assert fleet.members[there].next_plan is None  # it is already in this run


def test_members_ignore_invitations_to_their_own_run_or_of_another_hub(network, fleets):
    wire = network()
    fleet, other = fleets(world(), wire, **SETTINGS), fleets(world(), wire, run="other", port=9000, **SETTINGS)
    name, stranger = fleet.team.agents
    new = msgspec.structs.replace(fleet.plan, run="new")
    measuring, unreachable = (
        msgspec.structs.replace(new, **given) for given in ({"measures": (name,)}, {"endpoints": {}})
    )
    for plan in (other.plan, fleet.plan, measuring, unreachable):
        wire.send(HUB, name, encode(Invitation(plan)))
    wire.send(stranger, name, encode(Invitation(new)))
    for _ in range(9):
        fleet.members[name].step(0.0)
    assert fleet.members[name].next_plan is None
    assert fleet.members[name].inadmissible == {HUB: 1, stranger: 1}
    wire.send(HUB, name, encode(Invitation(msgspec.structs.replace(new, keys="of the hub"))))
    fleet.members[name].step(0.0)
    assert fleet.members[name].next_plan == new


def test_messages_from_wrong_senders_change_nothing(network, fleets):
    wire = network()
    fleet = fleets(world(), wire, **SETTINGS)
    first, second = fleet.team.agents
    outcome = RecordOutcome(1, "q00001", OwnRow(0, place={"x0": 0.0}))
    decision = Decision(1, "q00001", {"x0": 0.0}, sb.SolveReport(status="exact", rounds=1), {})
    for sender, recipient, message in [
        (first, second, outcome),  # only the hub may send this
        (first, second, Decide(1)),
        (HUB, second, AgreementMessage(b"nothing that an agent says")),
        (first, second, AgreementMessage(b"changed on the way")),
        (HUB, second, outcome),  # for a round that has not begun
        (second, HUB, decision),  # with variables of another agent
    ]:
        wire.send(sender, recipient, encode(message))
    require_same(fleet.play(ROUNDS), alone(world(), ROUNDS, **SETTINGS))
    assert fleet.members[second].inadmissible == {first: 3, HUB: 2}


def ends(*endpoints):
    return {"endpoints": dict(zip(("world", "agent_0", "agent_1"), endpoints, strict=True))}


BROKEN_PLANS = {
    "members missing": ({"endpoints": {"world": "tcp/127.0.0.1:1"}}, "got endpoints of"),
    "name": ({"run": "two words"}, "got name 'two words'"),
    "problem": ({"problem": {}}, "KeyError: 'scopes' .*; wanted a problem"),
    "settings": ({"settings": {"speed": 3}}, r"\$.speed: unknown argument, got 3; wanted some of"),
    "a seed": ({"settings": {"seed": -1}}, r"\$.seed: got -1; wanted an integer >= 0"),
    "simulated links": (
        {"settings": {"transport": {"kind": "faulty"}}},
        r"wanted 'in-process', as agents use real links$",
    ),
    "own code": ({"settings": {"belief": {"kind": "os:system"}}}, "os:system"),
    "patience": ({"patience_s": -1.0}, "wanted seconds > 0|wanted the plan"),
    "far by tcp": (ends("tcp/127.0.0.1:1", "tcp/10.0.0.1:2", "tcp/127.0.0.1:3"), "tcp is open"),
    "several protocols": (ends("tls/127.0.0.1:1", "quic/127.0.0.1:2", "tls/127.0.0.1:3"), "all tls"),
    "udp": (ends(*["udp/127.0.0.1:1"] * 3), "got endpoints of"),
    "no keys": (ends(*["tls/127.0.0.1:1"] * 3), "--keys: got none"),
}


@pytest.mark.parametrize(("change", "why"), BROKEN_PLANS.values(), ids=BROKEN_PLANS)
def test_invalid_plans_are_refused(network, fleets, tmp_path, change, why):
    plan = fleets(world(), network(), **SETTINGS).plan
    path = tmp_path / "fleet.json"
    plan.write(path)
    assert Plan.read(path) == plan
    msgspec.structs.replace(plan, **change).write(path)
    with pytest.raises(ConfigError, match=why):
        Plan.read(path)


def test_a_file_that_is_not_a_plan_is_refused_in_one_line(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text('{"run": "as an earlier swarmbo wrote it"}')
    with pytest.raises(ConfigError, match=r"got version 1; wanted 4, of the same swarmbo everywhere"):
        Plan.read(path)
    path.write_text('{"run": 1, "version": 4}')
    with pytest.raises(ConfigError, match=r"wanted the plan that"):
        Plan.read(path)


def test_counts_of_members_are_added_up_over_restarts(network, fleets):
    wire = network(loss=0.3, seed=1)
    fleet = fleets(world(), wire, **SETTINGS)
    fleet.play(ROUNDS)
    hub = fleet.team.hub
    hub.add_own_counts()
    assert 0 < hub.repeated <= hub.mailbox.repeated + sum(member._mailbox.repeated for member in fleet.members.values())
    before = hub.repeated, hub.refused
    for counted in ((5, 1), (7, 1), (2, 1), (2, 4)):  # the member restarted before the third report
        hub._add_counts("stranger", *counted)
    assert (hub.repeated - before[0], hub.refused - before[1]) == (7 + 2, 1 + 4)


def test_a_round_counts_only_changes_since_the_last_round():
    before, now = NetworkReport({"a": 1}, 5, 2), NetworkReport({"a": 1, "b": 2}, 9, 2)
    assert now.since(before, 7) == NetworkRecord(7, {"b": 2}, 4, 0)


@pytest.mark.parametrize(
    ("scenario", "setting", "why"),
    [
        ("robots-depot", "coordination.kind=routes", r"\$\.coordination\.kind: got 'routes'.*that chooses locations"),
        ("camel", "workers.count=2", r"\$\.workers: got workers; wanted none"),
        ("camel", "step_timeout_s=60.0", r"\$\.step_timeout_s: got step_timeout_s; wanted none"),
    ],
)
def test_a_fleet_refuses_routes_workers_and_time_limits(scenario, setting, why):
    with pytest.raises(ConfigError, match=why):
        members_of(load(scenario, [setting]))


@pytest.mark.parametrize("name", ["wlan", "..", "-x", "Büro 3/4", "a" * 200])
def test_each_run_has_a_different_name_on_the_network_for_any_scenario_name(network, fleets, name):
    plan = fleets(world(), network(), **SETTINGS).plan
    runs = {new_run(name, 2**63 - 1) for _ in range(8)}
    assert len(runs) == 8
    for run in runs:
        assert msgspec.structs.replace(plan, run=run).checked().run == run
