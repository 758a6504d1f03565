"""With a deadline, a fleet continues without members that are gone, and readmits them when they return."""

import zlib
from collections import Counter
from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import Mock, call

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import swarmbo as sb
from swarmbo.agent import run
from swarmbo.agent.schema import Participants, masked_rows
from swarmbo.deciding.own_rows import PRIVATE_OUTCOME, OwnRow, OwnRows
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet import member, membership
from swarmbo.fleet.messages import Decide, Heartbeat, Ping, Readmission, SendSnapshot, Snapshot, encode
from swarmbo.fleet.plan import HUB
from swarmbo.problem.data import Measurement
from swarmbo.transport import InProcess
from swarmbo_envs import function_v0, robot_team_v0, sensor_field_v0
from swarmbo_envs.functions import get

TIMED = sb.ADMM(mode="asynchronous", deadline=8, patience=3, starts=2, inner_steps=1, screened=8)
CLIMBS = {"seed": 3, "initial": 2, "coordination": TIMED}
TABLES = {
    "seed": 3,
    "coordination": sb.MaxSum(mode="asynchronous", deadline=8, patience=3),
    "acquisition": sb.DBGPUCB(candidates=6),
    "belief": sb.ExactGPSettings(restarts=0, max_iterations=10),
}


FUNCTION = cache(partial(get, "additive-gp", n_variables=4))  # search its maximum only once


def chain(**more):
    return function_v0.parallel_env(function=FUNCTION(), **{"outcomes": "per-factor", **more})


def robots():
    return robot_team_v0.parallel_env(robots=3, field={"elevation": "jacksboro"}, noise_std=5.0)


OWN = {**TABLES, "belief": sb.FusedSettings(prior=sb.ExactGPSettings(restarts=0, max_iterations=10))}
CASES = {
    "by factor": (chain, CLIMBS),
    "totals": (lambda: chain(outcomes="total", noise_std=0.1), CLIMBS),
    "a field": (robots, TABLES),
    "a field, own beliefs": (robots, OWN),
}


def made(fleets, wire, case):
    world, given_ = CASES[case]
    return fleets(world(), wire, patience=10.0, **given_)


def require_own_belief(fleet, name, history):
    """Check that a belief has all own measurements in order, and the first ones of each other agent."""
    belief, problem = fleet.members[name]._agent.belief, fleet.team.problem
    for agent, log in belief.agents[name]._logs.items():
        column = problem.channels.index(agent)
        came = ~np.isnan(history.factors[:, column])
        made = np.column_stack([history.X[came][:, problem.columns(agent)], history.factors[came, column]])
        assert len(log) == len(made) or agent != name
        np.testing.assert_array_equal(log.rows[:, :-1], made[: len(log)])


def took_part(history):
    return ~np.isnan(history.factors) | history.failed


def require_in_step(fleet, *absent):
    """Check that exactly these members are absent, and that all others have the same log."""
    assert set(fleet.team.hub.absent) == set(absent)
    require_one_log(fleet)


def require_one_log(fleet):
    """Check that present members have each evaluation of the hub once, with the outcomes of their own factors."""
    team, problem = fleet.team, fleet.team.problem
    present = [name for name in team.agents if name not in team.hub.absent]
    for name in present:
        log = fleet.members[name]._agent.log
        history = team.history.take(slice(len(log.history)))  # members get the last round when the next one begins
        late = team.history.take(slice(len(log.history), None))
        # that round may have a second row, for a robot that missed the decision
        assert len(late) <= 1 or np.ptp(late.rounds) == 0
        assert len(log.open) <= 1
        np.testing.assert_array_equal(log.history.X, history.X)
        own = [problem.channels.index(factor) for factor in problem.graph.factors_owned_by(name)]
        is_fused = isinstance(team.setup.belief, sb.FusedSettings)  # then only the agent itself knows its failures
        known = slice(None) if problem.is_field and not is_fused else own
        np.testing.assert_array_equal(log.history.factors[:, known], history.factors[:, known])
        visible = own if is_fused else slice(None)
        np.testing.assert_array_equal(log.history.failed[:, visible], history.failed[:, visible])
        np.testing.assert_array_equal(took_part(log.history), took_part(history))
        if is_fused:
            require_own_belief(fleet, name, history)
        if problem.outcomes == "total":
            np.testing.assert_array_equal(log.history.totals, history.totals)
            np.testing.assert_array_equal(log.history.known_noise[:, 0], history.known_noise[:, 0])


@pytest.mark.parametrize(
    ("case", "who"),
    [
        ("by factor", 0),
        pytest.param("totals", -1, marks=pytest.mark.slow),
        pytest.param("a field", -1, marks=pytest.mark.thorough),
    ],
)
def test_an_absent_member_is_left_out_and_readmitted_when_it_returns(network, fleets, case, who):
    fleet = made(fleets, network(), case)
    name, absent = fleet.team.agents[who], []

    fleet.on(3, fleet.leave, name)
    fleet.on(6, fleet.come, name)
    for number in range(1, 8):
        fleet.on(number, lambda: absent.append(fleet.team.hub.absent))
    fleet.play(7)
    assert [name in gone for gone in absent] == [False, False, False, True, True, True, False]
    require_in_step(fleet)
    assert fleet.team.last_report.status in ("deadline", "not_needed")
    assert len(fleet.team.history) == 7 + fleet.team.problem.is_field


THOROUGH, SLOW = pytest.mark.thorough, pytest.mark.slow
LEAVE_MIDWAY = [(3, "leave", 0, 6), (4, "leave", 1, 8)]
SENDER_LEAVES = [(2, "leave", 2), (4, "come", 2), (4, "leave", 0, 1), (4, "come", 0, 90), (6, "leave", 1)]
# the sender of a snapshot leaves during the same decision
RETURN_WHILE_SENDER_LEAVES = [(2, "leave", 2), (4, "come", 2, 3), (4, "leave", 0, 5)]
ALL_WERE_ABSENT = [(3, "leave", 0), (5, "leave", 1), (5, "leave", 2), (5, "come", 0), (5, "come", 1, 120)]


@pytest.mark.parametrize(
    ("case", "moves", "rounds", "absent"),
    [
        pytest.param("by factor", LEAVE_MIDWAY, 5, (0, 1), id="two leave during a decision"),
        pytest.param("a field", LEAVE_MIDWAY, 5, (0, 1), id="two robots leave during a decision", marks=SLOW),
        pytest.param("by factor", ALL_WERE_ABSENT, 6, (2,), id="after two missed rounds, no snapshot can be sent"),
        pytest.param("totals", SENDER_LEAVES, 7, (1,), id="one returns, and the sender of its snapshot leaves"),
        pytest.param("a field, own beliefs", SENDER_LEAVES, 7, (1,), id="the same, robots", marks=SLOW),
        *(
            pytest.param(case, RETURN_WHILE_SENDER_LEAVES, 5, (0,), id=f"at once, {case}", marks=SLOW)
            for case in ("by factor", "a field")
        ),
    ],
)
def test_remaining_members_continue_with_equal_logs_when_others_leave_and_return(
    network, fleets, case, moves, rounds, absent
):
    fleet = made(fleets, network(), case)
    for number, do, who, *turns in moves:
        fleet.on(number, getattr(fleet, do), fleet.team.agents[who], turns=sum(turns))
    fleet.play(rounds)
    assert not fleet.schedule
    if moves is LEAVE_MIDWAY:
        assert fleet.team.hub._decision_number == 7  # two decisions were given up
    require_in_step(fleet, *(fleet.team.agents[who] for who in absent))


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_the_hub_waits_longer_for_a_member_that_never_connected_if_it_is_on_another_machine(network, fleets, here):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    name = fleet.team.agents[-1]
    fleet.team.hub.membership._local = frozenset({name} if here else ())
    fleet.members.pop(name).close()
    wire._under_way.clear()  # the hub never got a message of it
    fleet.play(3)
    assert fleet.team.hub.absent == (name,)
    assert (wire.now < 200.0) is here
    assert wire.now < 700.0


def test_a_process_that_ends_repeatedly_is_absent_at_once(network, fleets):
    wire = network()
    fleet = fleets(chain(), wire, **CLIMBS)
    hub, name, crashed = fleet.team.hub, fleet.team.agents[1], []
    ended = hub.membership._ended = {}

    def crash():
        fleet.leave(name)
        ended[name] = "it crashed"
        crashed.append(wire.now)

    def come():
        assert hub.membership.absent == {name: "it crashed"}
        assert wire.now - crashed[0] < fleet.plan.patience_s / 2.0
        fleet.come(name)  # as if a user had restarted it

    fleet.on(3, crash)
    fleet.on(5, come)
    fleet.play(6)
    require_in_step(fleet)


@pytest.mark.parametrize("case", ["a field, own beliefs", pytest.param("totals", marks=SLOW)])
def test_a_member_that_lost_its_journal_gets_all_data_again(network, fleets, case):
    fleet = made(fleets, network(), case)
    name = fleet.team.agents[0]
    fleet.on(4, lambda: fleet.come(name, forgets=True))
    fleet.play(5)
    lost = {name: "its journal is lost, and so is its own belief"}  # only other agents still have its measurements
    assert fleet.team.hub.membership.absent == (lost if fleet.team.setup.belief == OWN["belief"] else {})
    require_one_log(fleet)


@pytest.mark.thorough
def test_a_returning_member_with_its_own_belief_gets_the_measurements_it_missed(network, fleets):
    fleet = fleets(robots(), network(), patience=10.0, **OWN)
    name = fleet.team.agents[1]
    fleet.on(3, fleet.leave, name, turns=40)  # during a decision
    fleet.on(6, fleet.come, name)
    fleet.play(7)
    history = fleet.team.history.take(slice(len(fleet.team.history) - 1))
    made = dict(zip(fleet.team.agents, (~np.isnan(history.factors)).sum(axis=0).tolist(), strict=True))
    assert made[name] < len(history)
    for other, joined in fleet.members.items():
        assert joined._agent.belief.agents[other].reached == made
    require_one_log(fleet)


def test_failures_stay_private_to_their_agent_even_after_an_absence(network, fleets):
    world = sensor_field_v0.parallel_env(sensors=3, field={"gp": {"lengthscale_m": 600.0, "seed": 1}}, failure_rate=0.5)
    fleet = fleets(world, network(), patience=10.0, **OWN)
    name = fleet.team.agents[1]
    fleet.on(4, fleet.leave, name)
    fleet.on(6, fleet.come, name)
    fleet.play(7)
    column = fleet.team.problem.channels.index(name)
    assert fleet.team.history.failed[:, column].any()
    require_in_step(fleet)
    for other, made in fleet.members.items():
        assert made._agent.log.history.failed[:, column].any() == (other == name)


def test_a_run_without_remaining_members_ends_with_an_error_of_one_line(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    for name in fleet.team.agents:
        fleet.on(3, fleet.leave, name)
    with pytest.raises(TransportError, match=r"round 3: no remaining agent knows the decision \(.*received nothing"):
        fleet.play(4)
    assert wire.now < 1000.0


def test_a_pause_of_the_hub_does_not_count_as_silence_of_members(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")

    mailbox, paused = fleet.team.hub.mailbox, set[int]()
    receive = mailbox.receive

    def slept(seconds, is_done=lambda: False):
        """Sleep right after sending requests, before any member could answer."""
        number, n_sent = fleet.team.hub._decision_number, len(mailbox.unacknowledged)
        if seconds > 0.0 and number not in paused and n_sent == len(fleet.members):
            paused.add(number)
            wire.now += 100.0
            return None
        return receive(seconds, is_done)

    mailbox.receive = slept
    fleet.play(4)
    assert wire.now > 400.0
    assert fleet.team.hub._decision_number == 4  # no decision was given up
    require_one_log(fleet)


@pytest.mark.thorough
def test_a_slow_member_is_left_out_until_the_next_decision(network, fleets):
    """It still runs, and reports itself without a restart."""
    fleet = fleets(robots(), network(), patience=10.0, **TABLES)
    name, slow = fleet.team.agents[1], []

    def go_on():
        fleet.members[name] = slow.pop()
        fleet.wire.now += 11.0

    fleet.on(2, lambda: slow.append(fleet.members.pop(name)))
    fleet.on(4, go_on)
    fleet.play(7)
    require_in_step(fleet)


def test_only_the_hub_decides_who_takes_part(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    first, second, third = fleet.team.agents[:3]
    participants = Participants(1, (second,))
    for message in (Decide(1, None, None, participants), Readmission(9, 0, OwnRows()), SendSnapshot(1, 0), Ping(1)):
        wire.send(first, second, encode(message))
    wire.send(HUB, third, encode(Heartbeat(b"as if the hub were an agent")))
    wire.send(first, HUB, encode(Snapshot(1, b"nobody asked")))
    fleet.play(3)
    assert fleet.members[second].inadmissible == {first: 4}
    assert fleet.members[third].inadmissible == {HUB: 1}
    require_in_step(fleet)


@pytest.mark.parametrize(
    ("participants", "why"),
    [
        (Participants(1, ("b",)), "wanted 'a' among them"),
        (Participants(1, ()), "wanted 'a' among them"),
        (Participants(1, ("a", "z")), "in this order"),
        (Participants(1, ("b", "a")), "in this order"),
        (Participants(1, ("a", "a")), "in this order"),
        (Participants(0, ("a", "b")), "got decision 0"),
        (Participants(2**31, ("a", "b")), "got decision"),
        (Participants(1, ("a", "b"), {"a": OwnRows()}), "wanted data of absent agents only"),
        (Participants(1, ("a", "b"), {"z": OwnRows()}), "wanted data of absent agents only"),
        (Participants(1, ("a", "b"), {"c": OwnRows({"q": OwnRow(0, {"f_a": 1.0})})}), "wanted its own data"),
        (Participants(1, ("a", "b"), {"c": OwnRows({"q": OwnRow(0, place={"a": 1.0})})}), "wanted its own data"),
    ],
)
def test_invalid_participants_are_refused(participants, why):
    graph = sb.FactorGraph.from_scopes({f"f_{x}": [x] for x in "abc"}, owners={f"f_{x}": x for x in "abc"})
    problem = sb.Problem.of(graph, dict.fromkeys("abc", (0.0, 1.0)), {x: x for x in "abc"}, outcomes="per-factor")
    agent = sb.Agent("a", problem, seed=1, coordination=TIMED)
    agent.participants = participants
    with pytest.raises(ConfigError, match=why):
        agent.ask()


def test_others_get_the_outcomes_of_an_absent_agent_with_private_values_masked(network, fleets):
    rows = OwnRows({"q00001": OwnRow(0, {"f0": 2.5, "f1": None}, noise={"f0": 0.1}, place={"x": 0.5})})
    masked = masked_rows(rows, fleets(chain(), network(), **CLIMBS).team.setup).by_query["q00001"]
    assert masked == OwnRow(0, {"f0": PRIVATE_OUTCOME, "f1": None}, place={"x": 0.5})
    assert masked_rows(rows, fleets(chain(outcomes="total"), network(), **CLIMBS).team.setup) == rows
    stop = Measurement((1.0, 2.0), 7.5, 0.1)
    rows = OwnRows({"q00001": OwnRow(0, {"robot_0": None}, noise={"robot_0": 0.1}, on_the_way=(stop,))})
    masked = masked_rows(rows, fleets(robots(), network(), **OWN).team.setup).by_query["q00001"]
    assert masked == OwnRow(0, {"robot_0": PRIVATE_OUTCOME}, on_the_way=(Measurement((1.0, 2.0), PRIVATE_OUTCOME),))


def numbers(plain):
    """All floats of a message, as a list."""
    if isinstance(plain, dict | list | tuple):
        return [number for one in (plain.values() if isinstance(plain, dict) else plain) for number in numbers(one)]
    return [plain] if isinstance(plain, float) else []


def test_outcomes_per_factor_are_sent_only_to_their_owner_even_while_it_is_absent(network, fleets):
    fleet = made(fleets, network(), "by factor")
    team, name, messages = fleet.team, fleet.team.agents[1], []
    hub, send, tell = team.hub, team.hub.mailbox.send, team.hub.tell

    def leave_then_tell(query, news, **more):
        if query == "q00003":
            fleet.leave(name)  # from now on the hub reports its outcomes to the others
        tell(query, news, **more)

    hub.tell = leave_then_tell
    hub.mailbox.send = lambda agent, message: (messages.append((agent, message)), send(agent, message))[1]
    fleet.on(6, fleet.come, name)
    fleet.play(6)
    assert hub.absent == ()
    assert any(isinstance(message, Decide) and name in message.participants.rows_of_absent for _, message in messages)
    columns = [team.problem.channels.index(factor) for factor in team.problem.graph.factors_owned_by(name)]
    private = set(team.history.factors[:, columns].ravel().tolist())
    written = [private & set(numbers(msgspec.to_builtins(message))) for agent, message in messages if agent != name]
    assert set().union(*written) == set()


def test_participants_need_a_method_with_a_deadline():
    problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
    agent = sb.Agent("x", problem, seed=1)
    agent.participants = Participants(1, ("x",))
    with pytest.raises(ConfigError, match="wanted mode = 'asynchronous'"):
        agent.ask()


def test_without_a_deadline_a_silent_member_ends_the_run(network, fleets):
    fleet = fleets(chain(), network(), **{**CLIMBS, "coordination": sb.ADMM(rounds=2, starts=1, screened=4)})
    assert not fleet.plan.tolerates_failures
    fleet.on(3, fleet.leave, fleet.team.agents[0])
    with pytest.raises(TransportError, match="received nothing"):
        fleet.play(3)


def test_a_returning_member_does_not_repeat_its_last_measurement(network, fleets):
    asked = []

    def depth(place):
        asked.append(tuple(place))
        return float(place.sum())

    fleet = fleets(robots(), network(), patience=10.0, measures={"robot_1": depth}, **TABLES)
    robot = fleet.members["robot_1"]
    measured = robot._measure_and_send

    def measure_and_leave(order):
        measured(order)
        fleet.wire._under_way[HUB].clear()  # its journal has the measurement, but no message arrives
        fleet.leave("robot_1")

    fleet.on(2, setattr, robot, "_measure_and_send", measure_and_leave)
    fleet.on(4, fleet.come, "robot_1")
    fleet.play(6)
    history, column = fleet.team.history, fleet.team.problem.channels.index("robot_1")
    assert len(asked) == len(set(asked))
    assert np.isfinite(history.factors[:, column]).sum() == len(asked) - 1
    require_in_step(fleet)


def test_a_total_is_recorded_once_if_the_first_agent_leaves_before_it_reports_it(network, fleets):
    fleet = made(fleets, network(), "totals")
    first, tell = fleet.team.agents[0], fleet.team.hub.tell

    def leave_then_tell(query, news, **more):
        if query == "q00003":
            fleet.leave(first)  # after its decision, before it reports the total
        tell(query, news, **more)

    fleet.team.hub.tell = leave_then_tell
    fleet.on(5, fleet.come, first)
    fleet.play(6)
    assert np.isfinite(fleet.team.history.totals).all()
    require_in_step(fleet)


def test_a_member_whose_snapshot_is_too_large_stays_absent_and_the_others_continue(network, fleets, monkeypatch):
    monkeypatch.setattr(member, "_MOST_SNAPSHOT_BYTES", 10)
    fleet = made(fleets, network(), "by factor")
    name = fleet.team.agents[1]
    fleet.on(3, fleet.leave, name)
    fleet.on(5, fleet.come, name)
    fleet.play(6)
    assert fleet.team.hub.membership.absent == {name: "the snapshot that it needs is too long for a message"}
    require_one_log(fleet)


@pytest.mark.parametrize(
    "mangled", [b"", b"x", zlib.compress(b"no state"), zlib.compress(msgspec.msgpack.encode([{}, {}]))]
)
def test_bytes_that_are_not_a_snapshot_are_refused_in_one_line(mangled):
    problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
    agent = sb.Agent("x", problem, seed=1, coordination=TIMED)
    with pytest.raises(ConfigError, match="wanted a `snapshot` of an agent of this team"):
        agent.restore(mangled, {}, 0)


@pytest.mark.parametrize(
    "column", ["X", "totals", "rounds", "noise_std", "taken", "basis", "asked", "open", "infinite"]
)
def test_an_inconsistent_snapshot_is_refused(column):
    problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
    agent = sb.Agent("x", problem, seed=1, coordination=TIMED)
    for outcome in (1.0, 2.0, None):
        query_id = agent.ask()
        run({"x": agent}, InProcess().open(["x"]))
        if outcome is not None:
            agent.tell(query_id, outcome)
    plain, packed = msgspec.msgpack.decode(zlib.decompress(agent.snapshot()))
    if column == "asked":
        plain["log"]["asked"] = "x"
    elif column == "open":
        plain["log"]["open"] = {name: [["z"], *more] for name, (_, *more) in plain["log"]["open"].items()}
    elif column == "infinite":
        packed["X"][2] = np.full(packed["X"][1], np.inf).tobytes()
    else:
        kind, (n, *rest), content = packed[column]
        packed[column] = kind, (n - 1, *rest), content[: len(content) * (n - 1) // n]
    with pytest.raises(ConfigError, match="wanted a `snapshot` of an agent of this team"):
        agent.restore(zlib.compress(msgspec.msgpack.encode((plain, packed))), {}, 0)


def test_a_snapshot_has_no_private_outcomes_per_factor(network, fleets):
    fleet = fleets(chain(), network(), **CLIMBS)
    fleet.play(4)
    first, second, *_ = fleet.team.agents
    sender, other = fleet.members[first]._agent, fleet.members[second]._agent
    sender.give_up(3)  # a snapshot must contain only valid decisions
    other.restore(sender.snapshot(), {}, 3)
    own = [other.problem.channels.index(factor) for factor in (*sender.factors, *other.factors)]
    known = other.log.history.factors[:, own]
    assert len(known)
    assert set(known[np.isfinite(known)].tolist()) <= {0.0}


def test_a_member_paused_during_a_decision_reports_itself_and_continues(network, fleets):
    fleet = made(fleets, network(), "by factor")
    name, stopped = fleet.team.agents[1], []

    def go_on():
        assert not stopped[0]._agent.is_finished
        fleet.wire._under_way[name].clear()
        fleet.wire.now += 40.0
        fleet.members[name] = stopped.pop()

    fleet.on(3, lambda: stopped.append(fleet.members.pop(name)), turns=3)
    fleet.on(5, go_on)
    fleet.play(7)
    require_in_step(fleet)


class Inactive:
    """A member that receives messages but does not act on them."""

    def __init__(self, member):
        self._member = member

    def step(self, seconds):
        member = self._member
        if member._mailbox.receive(seconds) is None and member._clock() - member._contact_at > member.plan.patience_s:
            member._report(member._clock())

    def close(self):
        self._member.close()


@pytest.fixture
def short_join_timeout(monkeypatch):
    """Shorten the wait for members that run but do not answer."""
    monkeypatch.setattr(membership, "JOIN_TIMEOUT_S", 1.0)


@pytest.mark.parametrize(("case", "who"), [("by factor", 0), pytest.param("a field", 1, marks=SLOW)])
def test_a_member_that_sends_only_receipts_is_left_out(network, fleets, short_join_timeout, case, who):
    fleet = made(fleets, network(), case)
    name = fleet.team.agents[who]

    def is_here():
        fleet.wire.now += 11.0
        for _ in range(9):
            fleet.turn()  # it reports itself, and is readmitted once

    def come():
        assert fleet.team.hub.membership.absent == {name: "it runs, and did not send its snapshot"}
        assert fleet.team.hub.membership._hangs[name] == 2
        fleet.come(name, forgets=True)

    fleet.on(3, lambda: fleet.members.update({name: Inactive(fleet.members[name])}))
    fleet.on(5, is_here)
    fleet.on(7, come)
    fleet.play(8)
    require_in_step(fleet)


def test_a_member_that_does_not_send_its_measurements_is_left_out(network, fleets, short_join_timeout):
    fleet = fleets(robots(), network(), patience=10.0, measures={"robot_1": lambda place: float(place.sum())}, **TABLES)
    robot = fleet.members["robot_1"]
    fleet.on(3, setattr, robot, "_measure_and_send", lambda order: robot._mailbox.receive(0.0))
    fleet.play(4)
    assert fleet.team.hub.membership.absent == {"robot_1": "it runs, and did not send its measurements"}
    require_one_log(fleet)


def cut_where(wire, is_cut):
    """From now on, drop messages between senders and recipients for which `is_cut` holds."""
    send = wire.send
    wire.send = lambda sender, recipient, content: is_cut(sender, recipient) or send(sender, recipient, content)


def test_a_member_that_receives_nothing_is_left_out_even_if_its_messages_arrive(network, fleets, short_join_timeout):
    fleet = made(fleets, network(), "by factor")
    name = fleet.team.agents[1]
    fleet.on(3, cut_where, fleet.wire, lambda sender, recipient: recipient == name)
    fleet.play(5)
    require_in_step(fleet, name)


def test_if_all_members_run_but_cannot_decide_they_are_asked_again(network, fleets, short_join_timeout):
    fleet, began = made(fleets, network(), "by factor"), []
    wire, pair = fleet.wire, set(fleet.team.agents[:2])
    fleet.on(3, lambda: began.append(wire.now))
    fleet.on(3, cut_where, wire, lambda *ends: set(ends) == pair and wire.now < began[0] + 150.0)
    fleet.play(4)
    assert wire.now > began[0] + 100.0
    require_in_step(fleet)


def test_if_two_running_members_cannot_reach_each_other_the_run_ends_with_an_error(network, fleets, short_join_timeout):
    fleet = made(fleets, network(), "by factor")
    pair = set(fleet.team.agents[:2])
    fleet.on(3, cut_where, fleet.wire, lambda *ends: set(ends) == pair)
    with pytest.raises(TransportError, match=r"round 3: .*run, and sent no decision; can they reach one"):
        fleet.play(4)


EVENT = st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(["leave", "come"]))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=THOROUGH if case == "a field" else pytest.mark.slow) for case in CASES]
)
def test_all_rounds_are_decided_for_any_times_of_leaving_and_returning(network, fleets, case):
    (world, given_), left = CASES[case], list[str]()

    @settings(max_examples=2, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(EVENT, min_size=2, max_size=7), st.floats(0.0, 0.3), st.integers(0, 99))
    def check(events, loss, seed):
        fleet = fleets(world(), network(loss=loss, late=0.1, seed=seed), patience=10.0, **given_)
        agents = fleet.team.agents

        def change(name, what):
            others = [agent for agent in fleet.members if agent != name]
            if what == "come" or others:
                getattr(fleet, what)(name)
                left.extend([name] * (what == "leave"))

        moves = [(when, change, agents[who], what) for when, who, what in sorted(events) if who < len(agents)]
        back = [(500 + n, fleet.come, name) for n, name in enumerate(agents)]
        fleet.schedule = [*moves, *back]
        fleet.play(5)
        history = fleet.team.history
        if fleet.team.problem.is_field:  # a robot that missed a decision measures where it stands, which adds a row
            assert history.rounds is not None
            assert sorted(set(history.rounds.tolist())) == [*range(6)]
        else:
            assert len(history) == 5
        require_one_log(fleet)

    check()
    assert left


def test_agents_are_pinged_once_even_if_the_limit_of_silence_becomes_shorter():
    """The limit is ten minutes while the hub waits for a member that never connected."""
    plan, post = (
        SimpleNamespace(patience_s=60.0, tolerates_failures=False),
        Mock(unacknowledged=[], arrivals=Counter(a=1)),
    )
    post.send.side_effect = lambda agent, ping: post.unacknowledged.append((agent, encode(ping)))
    members = membership.Membership(plan, ["a", "b"], post, [], {})
    members.reset_silence()
    for missing in (["a", "b"], ["a", "b"], ["a"]):
        members.check(20.0, "decisions", missing, {})
    assert post.send.call_args_list == [call("a", Ping(1))]
    post.unacknowledged.clear()  # the receipt arrived
    post.arrivals["a"] += 1
    members.check(0.0, "decisions", ["a"], {})
    for _ in range(3):
        members.check(20.0, "decisions", ["a"], {})
    assert post.send.call_args_list == [call("a", Ping(1)), call("a", Ping(2))]


def test_without_a_deadline_agents_that_send_only_receipts_end_the_run():
    plan, post = SimpleNamespace(patience_s=60.0, tolerates_failures=False), Mock(unacknowledged=[], arrivals=Counter())
    members = membership.Membership(plan, ["a", "b"], post, [], {})
    members.reset_silence()
    for _ in range(3):
        post.arrivals["a"] += 1
        members.check(20.0, "decisions", ["a"], {})
    with pytest.raises(TransportError, match=r"received nothing new from \['a'\] for 80 s"):
        members.check(20.0, "decisions", ["a"], {})
