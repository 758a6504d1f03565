"""A fleet by a deadline goes on without members that are gone for good, and takes them back when they return."""

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
from swarmbo.deciding.own_rows import PRIVATE_OUTCOME, MeasurementRecord, OwnRow, OwnRows
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet import member, membership
from swarmbo.fleet.messages import Decide, Heartbeat, Ping, Readmission, SendSnapshot, Snapshot, encode
from swarmbo.fleet.plan import HUB
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


FUNCTION = cache(partial(get, "additive-gp", n_variables=4))  # its maximum is searched for once


def chain(**more):
    return function_v0.parallel_env(function=FUNCTION(), **{"outcomes": "per-factor", **more})


def robots():
    return robot_team_v0.parallel_env(robots=3, field={"elevation": "jacksboro"}, noise_std=5.0)


OWN = {**TABLES, "belief": sb.FusedSettings(prior=sb.ExactGPSettings(restarts=0, max_iterations=10))}
CASES = {
    "by factor": (chain, CLIMBS),
    "totals": (lambda: chain(outcomes="total", noise_std=0.1), CLIMBS),
    "a field": (robots, TABLES),
    "a field, beliefs of their own": (robots, OWN),
}


def made(fleets, wire, case):
    world, given_ = CASES[case]
    return fleets(world(), wire, patience=10.0, **given_)


def require_own_belief(fleet, name, history):
    """Its own measurements are its belief's, once and in turn; of others it has what they measured, or the first."""
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
    """Nobody else is absent, and the others have one log."""
    assert set(fleet.team.hub.absent) == set(absent)
    require_one_log(fleet)


def require_one_log(fleet):
    """Whoever is in knows what the hub knows, once each, and of own factors what came."""
    team, problem = fleet.team, fleet.team.problem
    present = [name for name in team.agents if name not in team.hub.absent]
    for name in present:
        log = fleet.members[name]._agent.log
        history = team.history.take(slice(len(log.history)))  # of the last round it hears when the next one begins
        late = team.history.take(slice(len(log.history), None))
        # that round may have a second row: of a robot that a decision lost
        assert len(late) <= 1 or np.ptp(late.rounds) == 0
        assert len(log.open) <= 1
        np.testing.assert_array_equal(log.history.X, history.X)
        own = [problem.channels.index(factor) for factor in problem.graph.factors_owned_by(name)]
        is_fused = isinstance(team.setup.belief, sb.FusedSettings)  # then nobody else knows what failed
        known = slice(None) if problem.is_field and not is_fused else own
        np.testing.assert_array_equal(log.history.factors[:, known], history.factors[:, known])
        heard = own if is_fused else slice(None)
        np.testing.assert_array_equal(log.history.failed[:, heard], history.failed[:, heard])
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
def test_who_is_gone_is_left_out_and_is_in_again_when_it_returns(network, fleets, case, who):
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
GO_IN_MID_DECISION = [(3, "leave", 0, 6), (4, "leave", 1, 8)]
LENDER_GOES_TOO = [(2, "leave", 2), (4, "come", 2), (4, "leave", 0, 1), (4, "come", 0, 90), (6, "leave", 1)]
BACK_IN_ONE_THAT_THE_LENDER_LEAVES = [(2, "leave", 2), (4, "come", 2, 3), (4, "leave", 0, 5)]
ALL_WERE_GONE = [(3, "leave", 0), (5, "leave", 1), (5, "leave", 2), (5, "come", 0), (5, "come", 1, 120)]


@pytest.mark.parametrize(
    ("case", "moves", "rounds", "absent"),
    [
        pytest.param("by factor", GO_IN_MID_DECISION, 5, (0, 1), id="two go in mid-decision"),
        pytest.param("a field", GO_IN_MID_DECISION, 5, (0, 1), id="two robots go in mid-decision", marks=SLOW),
        pytest.param("by factor", ALL_WERE_GONE, 6, (2,), id="who missed two rounds knows too little to teach"),
        pytest.param("totals", LENDER_GOES_TOO, 7, (1,), id="one returns, and who tells it goes"),
        pytest.param("a field, beliefs of their own", LENDER_GOES_TOO, 7, (1,), id="so does a robot", marks=SLOW),
        *(
            pytest.param(case, BACK_IN_ONE_THAT_THE_LENDER_LEAVES, 5, (0,), id=f"at once, {case}", marks=SLOW)
            for case in ("by factor", "a field")
        ),
    ],
)
def test_those_who_are_left_go_on_in_step_whoever_goes_and_comes(network, fleets, case, moves, rounds, absent):
    fleet = made(fleets, network(), case)
    for number, do, who, *turns in moves:
        fleet.on(number, getattr(fleet, do), fleet.team.agents[who], turns=sum(turns))
    fleet.play(rounds)
    assert not fleet.schedule
    if moves is GO_IN_MID_DECISION:
        assert fleet.team.hub._decision_number == 7  # two decisions were taken back
    require_in_step(fleet, *(fleet.team.agents[who] for who in absent))


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_who_was_never_met_is_waited_for_longer_if_it_is_elsewhere(network, fleets, here):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    name = fleet.team.agents[-1]
    fleet.team.hub.membership._local = frozenset({name} if here else ())
    fleet.members.pop(name).close()
    wire._under_way.clear()  # it has never said anything
    fleet.play(3)
    assert fleet.team.hub.absent == (name,)
    assert (wire.now < 200.0) is here
    assert wire.now < 700.0


def test_a_process_that_ends_again_and_again_is_gone_at_once(network, fleets):
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
        fleet.come(name)  # by hand

    fleet.on(3, crash)
    fleet.on(5, come)
    fleet.play(6)
    require_in_step(fleet)


@pytest.mark.parametrize("case", ["a field, beliefs of their own", pytest.param("totals", marks=SLOW)])
def test_who_has_lost_what_it_had_written_down_is_told_all_of_it(network, fleets, case):
    fleet = made(fleets, network(), case)
    name = fleet.team.agents[0]
    fleet.on(4, lambda: fleet.come(name, forgets=True))
    fleet.play(5)
    lost = {name: "its journal is lost, and so is its own belief"}  # and others know what it measured
    assert fleet.team.hub.membership.absent == (lost if fleet.team.setup.belief == OWN["belief"] else {})
    require_one_log(fleet)


@pytest.mark.thorough
def test_who_returns_with_a_belief_of_its_own_hears_what_others_measured_meanwhile(network, fleets):
    fleet = fleets(robots(), network(), patience=10.0, **OWN)
    name = fleet.team.agents[1]
    fleet.on(3, fleet.leave, name, turns=40)  # in the middle of a decision
    fleet.on(6, fleet.come, name)
    fleet.play(7)
    history = fleet.team.history.take(slice(len(fleet.team.history) - 1))
    made = dict(zip(fleet.team.agents, (~np.isnan(history.factors)).sum(axis=0).tolist(), strict=True))
    assert made[name] < len(history)
    for other, joined in fleet.members.items():
        assert joined._agent.belief.agents[other].reached == made
    require_one_log(fleet)


def test_what_failed_stays_known_to_its_agent_alone_also_when_it_was_gone(network, fleets):
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


def test_where_nobody_is_left_the_run_ends_in_one_line(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    for name in fleet.team.agents:
        fleet.on(3, fleet.leave, name)
    with pytest.raises(TransportError, match=r"round 3: no remaining agent knows the decision \(.*received nothing"):
        fleet.play(4)
    assert wire.now < 1000.0


def test_a_pause_of_the_hubs_own_is_nobodys_silence(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")

    mailbox, paused = fleet.team.hub.mailbox, set[int]()
    receive = mailbox.receive

    def slept(seconds, is_done=lambda: False):
        """It sleeps right after it has written orders: nobody has had the time to answer."""
        number, n_sent = fleet.team.hub._decision_number, len(mailbox.unacknowledged)
        if seconds > 0.0 and number not in paused and n_sent == len(fleet.members):
            paused.add(number)
            wire.now += 100.0
            return None
        return receive(seconds, is_done)

    mailbox.receive = slept
    fleet.play(4)
    assert wire.now > 400.0
    assert fleet.team.hub._decision_number == 4  # no decision was taken back
    require_one_log(fleet)


@pytest.mark.thorough
def test_who_is_slow_is_no_member_until_the_next_decision_and_then_it_is(network, fleets):
    """It lives, and says so itself: nobody starts it again."""
    fleet = fleets(robots(), network(), patience=10.0, **TABLES)
    name, slow = fleet.team.agents[1], []

    def go_on():
        fleet.members[name] = slow.pop()
        fleet.wire.now += 11.0

    fleet.on(2, lambda: slow.append(fleet.members.pop(name)))
    fleet.on(4, go_on)
    fleet.play(7)
    require_in_step(fleet)


def test_nobody_but_the_hub_says_who_takes_part(network, fleets):
    wire = network()
    fleet = made(fleets, wire, "by factor")
    first, second, third = fleet.team.agents[:3]
    company = Participants(1, (second,))
    for letter in (Decide(1, None, None, company), Readmission(9, 0, OwnRows()), SendSnapshot(1, 0), Ping(1)):
        wire.send(first, second, encode(letter))
    wire.send(HUB, third, encode(Heartbeat(b"as if the hub were an agent")))
    wire.send(first, HUB, encode(Snapshot(1, b"nobody asked")))
    fleet.play(3)
    assert fleet.members[second].inadmissible == {first: 4}
    assert fleet.members[third].inadmissible == {HUB: 1}
    require_in_step(fleet)


@pytest.mark.parametrize(
    ("company", "why"),
    [
        (Participants(1, ("b",)), "wanted 'a' among them"),
        (Participants(1, ()), "wanted 'a' among them"),
        (Participants(1, ("a", "z")), "in this order"),
        (Participants(1, ("b", "a")), "in this order"),
        (Participants(1, ("a", "a")), "in this order"),
        (Participants(0, ("a", "b")), "got decision 0"),
        (Participants(2**31, ("a", "b")), "got decision"),
        (Participants(1, ("a", "b"), {"a": OwnRows()}), "wanted what absent agents received"),
        (Participants(1, ("a", "b"), {"z": OwnRows()}), "wanted what absent agents received"),
        (Participants(1, ("a", "b"), {"c": OwnRows({"q": OwnRow(0, {"f_a": 1.0})})}), "wanted its parts"),
        (Participants(1, ("a", "b"), {"c": OwnRows({"q": OwnRow(0, place={"a": 1.0})})}), "wanted its parts"),
    ],
)
def test_a_company_of_strangers_is_refused(company, why):
    graph = sb.FactorGraph.from_scopes({f"f_{x}": [x] for x in "abc"}, owners={f"f_{x}": x for x in "abc"})
    problem = sb.Problem.of(graph, dict.fromkeys("abc", (0.0, 1.0)), {x: x for x in "abc"}, outcomes="per-factor")
    agent = sb.Agent("a", problem, seed=1, coordination=TIMED)
    agent.participants = company
    with pytest.raises(ConfigError, match=why):
        agent.ask()


def test_of_what_an_absent_agent_was_told_others_hear_what_it_would_have_said(network, fleets):
    rows = OwnRows({"q00001": OwnRow(0, {"f0": 2.5, "f1": None}, noise={"f0": 0.1}, place={"x": 0.5})})
    told = masked_rows(rows, fleets(chain(), network(), **CLIMBS).team.setup).by_query["q00001"]
    assert told == OwnRow(0, {"f0": PRIVATE_OUTCOME, "f1": None}, place={"x": 0.5})
    assert masked_rows(rows, fleets(chain(outcomes="total"), network(), **CLIMBS).team.setup) == rows
    stop = MeasurementRecord((1.0, 2.0), 7.5, 0.1)
    rows = OwnRows({"q00001": OwnRow(0, {"robot_0": None}, noise={"robot_0": 0.1}, on_the_way=(stop,))})
    told = masked_rows(rows, fleets(robots(), network(), **OWN).team.setup).by_query["q00001"]
    assert told == OwnRow(0, {"robot_0": PRIVATE_OUTCOME}, on_the_way=(MeasurementRecord((1.0, 2.0), PRIVATE_OUTCOME),))


def numbers(plain):
    """All of a letter's."""
    if isinstance(plain, dict | list | tuple):
        return [number for one in (plain.values() if isinstance(plain, dict) else plain) for number in numbers(one)]
    return [plain] if isinstance(plain, float) else []


def test_outcomes_by_factor_are_written_to_their_owner_alone_also_while_it_is_absent(network, fleets):
    fleet = made(fleets, network(), "by factor")
    team, name, letters = fleet.team, fleet.team.agents[1], []
    hub, send, tell = team.hub, team.hub.mailbox.send, team.hub.tell

    def told(query, news, **more):
        if query == "q00003":
            fleet.leave(name)  # the others hear of what it is told now by the hub
        tell(query, news, **more)

    hub.tell = told
    hub.mailbox.send = lambda agent, letter: (letters.append((agent, letter)), send(agent, letter))[1]
    fleet.on(6, fleet.come, name)
    fleet.play(6)
    assert hub.absent == ()
    assert any(isinstance(letter, Decide) and name in letter.participants.rows_of_absent for _, letter in letters)
    columns = [team.problem.channels.index(factor) for factor in team.problem.graph.factors_owned_by(name)]
    private = set(team.history.factors[:, columns].ravel().tolist())
    written = [private & set(numbers(msgspec.to_builtins(letter))) for agent, letter in letters if agent != name]
    assert set().union(*written) == set()


def test_agents_that_wait_for_one_another_keep_no_company():
    problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
    agent = sb.Agent("x", problem, seed=1)
    agent.participants = Participants(1, ("x",))
    with pytest.raises(ConfigError, match="wanted mode = 'asynchronous'"):
        agent.ask()


def test_without_a_deadline_who_is_silent_still_ends_the_run(network, fleets):
    fleet = fleets(chain(), network(), **{**CLIMBS, "coordination": sb.ADMM(rounds=2, starts=1, screened=4)})
    assert not fleet.plan.tolerates_failures
    fleet.on(3, fleet.leave, fleet.team.agents[0])
    with pytest.raises(TransportError, match="received nothing"):
        fleet.play(3)


def test_who_had_measured_when_it_went_does_not_measure_again(network, fleets):
    asked = []

    def depth(place):
        asked.append(tuple(place))
        return float(place.sum())

    fleet = fleets(robots(), network(), patience=10.0, measures={"robot_1": depth}, **TABLES)
    robot = fleet.members["robot_1"]
    measured = robot._measure_and_send

    def and_goes(order):
        measured(order)
        fleet.wire._under_way[HUB].clear()  # it has written down what it measured, and nobody hears of it
        fleet.leave("robot_1")

    fleet.on(2, setattr, robot, "_measure_and_send", and_goes)
    fleet.on(4, fleet.come, "robot_1")
    fleet.play(6)
    history, column = fleet.team.history, fleet.team.problem.channels.index("robot_1")
    assert len(asked) == len(set(asked))
    assert np.isfinite(history.factors[:, column]).sum() == len(asked) - 1
    require_in_step(fleet)


def test_a_total_whose_teller_goes_before_it_could_tell_it_is_level_and_sites_once(network, fleets):
    fleet = made(fleets, network(), "totals")
    first, tell = fleet.team.agents[0], fleet.team.hub.tell

    def told(query, news, **more):
        if query == "q00003":
            fleet.leave(first)  # it decided, and the total is for it to tell
        tell(query, news, **more)

    fleet.team.hub.tell = told
    fleet.on(5, fleet.come, first)
    fleet.play(6)
    assert np.isfinite(fleet.team.history.totals).all()
    require_in_step(fleet)


def test_who_cannot_be_told_what_it_missed_stays_out_and_the_others_go_on(network, fleets, monkeypatch):
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
def test_what_is_nothing_that_an_agent_lends_is_refused_in_one_line(mangled):
    problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
    agent = sb.Agent("x", problem, seed=1, coordination=TIMED)
    with pytest.raises(ConfigError, match="wanted a `snapshot` of an agent of this team"):
        agent.restore(mangled, {}, 0)


@pytest.mark.parametrize(
    "column", ["X", "totals", "rounds", "noise_std", "taken", "basis", "asked", "open", "infinite"]
)
def test_what_an_agent_lends_is_refused_if_it_does_not_fit_together(column):
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


def test_of_outcomes_by_factor_nobody_is_lent_what_came(network, fleets):
    fleet = fleets(chain(), network(), **CLIMBS)
    fleet.play(4)
    first, second, *_ = fleet.team.agents
    lender, other = fleet.members[first]._agent, fleet.members[second]._agent
    lender.give_up(3)  # what is to be lent is of decisions that hold
    other.restore(lender.snapshot(), {}, 3)
    own = [other.problem.channels.index(factor) for factor in (*lender.factors, *other.factors)]
    known = other.log.history.factors[:, own]
    assert len(known)
    assert set(known[np.isfinite(known)].tolist()) <= {0.0}


def test_who_was_stopped_in_mid_decision_for_long_says_that_it_is_here_and_does_not_end(network, fleets):
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


class Deaf:
    """A member that takes letters, and does nothing of what they say."""

    def __init__(self, member):
        self._member = member

    def step(self, seconds):
        member = self._member
        if member._mailbox.receive(seconds) is None and member._clock() - member._contact_at > member.plan.patience_s:
            member._report(member._clock())

    def close(self):
        self._member.close()


@pytest.fixture
def soon(monkeypatch):
    """For those who live and say nothing it is not waited for as long."""
    monkeypatch.setattr(membership, "JOIN_TIMEOUT_S", 1.0)


@pytest.mark.parametrize(("case", "who"), [("by factor", 0), pytest.param("a field", 1, marks=SLOW)])
def test_who_sends_receipts_and_does_nothing_is_left_out(network, fleets, soon, case, who):
    fleet = made(fleets, network(), case)
    name = fleet.team.agents[who]

    def is_here():
        fleet.wire.now += 11.0
        for _ in range(9):
            fleet.turn()  # it says that it is here, and is taken back: once

    def come():
        assert fleet.team.hub.membership.absent == {name: "it runs, and did not send its snapshot"}
        assert fleet.team.hub.membership._hangs[name] == 2
        fleet.come(name, forgets=True)

    fleet.on(3, lambda: fleet.members.update({name: Deaf(fleet.members[name])}))
    fleet.on(5, is_here)
    fleet.on(7, come)
    fleet.play(8)
    require_in_step(fleet)


def test_who_measures_and_does_not_say_what_is_left_out(network, fleets, soon):
    fleet = fleets(robots(), network(), patience=10.0, measures={"robot_1": lambda place: float(place.sum())}, **TABLES)
    robot = fleet.members["robot_1"]
    fleet.on(3, setattr, robot, "_measure_and_send", lambda order: robot._mailbox.receive(0.0))
    fleet.play(4)
    assert fleet.team.hub.membership.absent == {"robot_1": "it runs, and did not send its measurements"}
    require_one_log(fleet)


def cut_where(wire, is_cut):
    """From now on nothing passes from one to another where that holds."""
    send = wire.send
    wire.send = lambda sender, recipient, content: is_cut(sender, recipient) or send(sender, recipient, content)


def test_one_to_which_nothing_gets_through_is_left_out_though_it_is_heard(network, fleets, soon):
    fleet = made(fleets, network(), "by factor")
    name = fleet.team.agents[1]
    fleet.on(3, cut_where, fleet.wire, lambda sender, recipient: recipient == name)
    fleet.play(5)
    require_in_step(fleet, name)


def test_where_all_live_and_come_to_nothing_they_are_asked_once_more(network, fleets, soon):
    fleet, began = made(fleets, network(), "by factor"), []
    wire, pair = fleet.wire, set(fleet.team.agents[:2])
    fleet.on(3, lambda: began.append(wire.now))
    fleet.on(3, cut_where, wire, lambda *ends: set(ends) == pair and wire.now < began[0] + 150.0)
    fleet.play(4)
    assert wire.now > began[0] + 100.0
    require_in_step(fleet)


def test_where_all_live_and_two_cannot_reach_each_other_the_run_ends_in_one_line(network, fleets, soon):
    fleet = made(fleets, network(), "by factor")
    pair = set(fleet.team.agents[:2])
    fleet.on(3, cut_where, fleet.wire, lambda *ends: set(ends) == pair)
    with pytest.raises(TransportError, match=r"round 3: .*run, and sent no decision; can they reach one"):
        fleet.play(4)


EVENT = st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(["leave", "come"]))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=THOROUGH if case == "a field" else pytest.mark.slow) for case in CASES]
)
def test_whoever_goes_and_comes_whenever_all_rounds_are_decided(network, fleets, case):
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
        if fleet.team.problem.is_field:  # a robot that a decision lost stands and measures: a row that nobody asked for
            assert history.rounds is not None
            assert sorted(set(history.rounds.tolist())) == [*range(6)]
        else:
            assert len(history) == 5
        require_one_log(fleet)

    check()
    assert left


def test_agents_are_pinged_once_also_where_the_longest_silence_becomes_shorter():
    """It is ten minutes while one that was never heard is waited for."""
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
    post.unacknowledged.clear()  # its receipt
    post.arrivals["a"] += 1
    members.check(0.0, "decisions", ["a"], {})
    for _ in range(3):
        members.check(20.0, "decisions", ["a"], {})
    assert post.send.call_args_list == [call("a", Ping(1)), call("a", Ping(2))]


def test_without_a_deadline_agents_that_send_nothing_but_receipts_end_the_run():
    plan, post = SimpleNamespace(patience_s=60.0, tolerates_failures=False), Mock(unacknowledged=[], arrivals=Counter())
    members = membership.Membership(plan, ["a", "b"], post, [], {})
    members.reset_silence()
    for _ in range(3):
        post.arrivals["a"] += 1
        members.check(20.0, "decisions", ["a"], {})
    with pytest.raises(TransportError, match=r"received nothing new from \['a'\] for 80 s"):
        members.check(20.0, "decisions", ["a"], {})
