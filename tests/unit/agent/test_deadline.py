"""Agents that agree by a deadline decide as a team over the same links, even if some agents send nothing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.agent import Agent, may_be_lost, run
from swarmbo.agent.process import serve
from swarmbo.agent.schema import Participants
from swarmbo.agent.stages import Stages
from swarmbo.deciding.joint import Gather
from swarmbo.transport import Envelope, Faults, FaultyTransport, InProcess, Routes

from .carried import copied
from .test_agent import CHOICE, LONE, PAIRS, SOON, Case as OfFunction, plateau
from .test_field_agents import OWN, Case as InField

IN_FIELD = {"kind": "max-sum", "mode": "asynchronous", "deadline": 16}
OF_FUNCTION = sb.ADMM(mode="asynchronous", deadline=16, patience=6, starts=2, inner_steps=2)
CHAIN = {"f": ["a", "b"], "g": ["b", "c"]}
BAD = Faults(loss=0.3, delay=3, duplicate=0.1, reorder=0.3)
SEED = 3  # the seed of both cases
SLOW = pytest.mark.slow


class Timed:
    """A team with faulty links, and agents with the same faults during timed agreements."""

    def __init__(self, case: Any, faults: Faults | None) -> None:
        self.case, self.faults = case, faults
        if faults is not None:
            case.team = sb.Team(case.problem, transport=faults, **case.given)

    def ask(self, offers: Mapping[str, Any] | None = None, count: int | None = None) -> list[Any]:
        """Ask team and agents, and check that they decide the same."""
        case, names = self.case, self.case.problem.agents
        asked = case.team.ask(count, offers) if offers is not None else case.team.ask(count)
        for name, agent in case.agents.items():
            agent.ask(count, candidates=offers[name]) if offers is not None else agent.ask(count)
        opened = None
        if self.faults is not None:
            opened = self.faults.open(names, None, seed=SEED, round=case.team.round - (count or 1) + 1)
        run(case.agents, InProcess().open(names), opened)
        queries = asked if isinstance(asked, list) else [asked]
        for query in queries:
            decided = {
                x: value for agent in case.agents.values() for x, value in (agent.decision(query.id) or {}).items()
            }
            assert decided == dict(query.point)
        assert case.team.last_report.status in ("deadline", "not_needed")
        return queries


@pytest.mark.parametrize(
    ("faults", "given", "turns"),
    [(None, {}, 2), (BAD, {}, 2), (None, {"belief": OWN}, 2), (BAD, {"belief": OWN}, 1)],
    ids=["shared", "shared, faulty links", "own", "own, faulty links, one round before news is lost"],
)
def test_in_a_field_agents_decide_by_a_deadline_as_a_team_does(
    faults: Faults | None, given: dict[str, Any], turns: int
):
    case = InField(names=("r", "a", "m"), coordination=IN_FIELD, **given)
    timed = Timed(case, faults)
    for turn in range(turns):
        for query in timed.ask(case.candidates(turn)):
            case.tell(query)
    assert case.team.last_report.status == "deadline"


@pytest.mark.parametrize("faults", [BAD, pytest.param(None, marks=SLOW)], ids=["faults", "no faults"])
def test_without_contested_places_agents_improve_the_same_joint_choices_as_a_team(faults: Faults | None):
    """These choices were once drawn from the number of the decision, which differs between team and agents."""
    case = InField(names=("r", "a", "m", "k"), coordination=IN_FIELD | {"deadline": 6})
    timed, rng = Timed(case, faults), np.random.default_rng(0)
    for turn in range(2):
        offers = {name: rng.random((12, 2)) * [10.0, 4.0] for name in case.problem.agents}
        for query in timed.ask(offers, count=2 if turn else None):
            case.tell(query)
    assert case.team.last_report.status == "deadline"


@pytest.mark.parametrize(
    ("scopes", "faults", "rounds"),
    [
        pytest.param(CHAIN, None, 2, id="no faults"),
        pytest.param(CHAIN, BAD, 2, id="faults", marks=SLOW),
        pytest.param(PAIRS, None, 3, id="a single factor per part", marks=SLOW),
        pytest.param(PAIRS, BAD, 3, id="a single factor per part, faults"),
    ],
)
def test_agents_of_a_function_decide_by_a_deadline_as_a_team_does(
    scopes: dict[str, list[str]], faults: Faults | None, rounds: int
):
    """An agent that owns a variable but no factor also knows the place of the best evaluation."""
    case = OfFunction(scopes, coordination=OF_FUNCTION, initial=1)
    timed = Timed(case, faults)
    for _ in range(rounds):
        for query in timed.ask():
            case.tell(query.id, case.outcomes(query.point))
    for query in timed.ask(count=3):
        case.tell(query.id, case.outcomes(query.point))
    assert case.team.last_report.status == "deadline"


def test_the_second_agreement_of_a_round_has_its_own_losses_in_team_and_agents(monkeypatch: pytest.MonkeyPatch):
    drawn = list[tuple[bool, float]]()
    renew = FaultyTransport.renew

    def noted(self: Any, round: int, **more: Any) -> None:
        renew(self, round, **more)
        drawn.append((more.get("again", False), self._draw("loss", ("a", "b"))))

    def failed(u: dict[str, float]) -> set[str]:
        return set(CHAIN) if u["a"] + u["b"] + u["c"] > 1.2 else set()

    timed = Timed(OfFunction(CHAIN, coordination=OF_FUNCTION, initial=3, fails=failed), BAD)
    monkeypatch.setattr(FaultyTransport, "renew", noted)
    for _ in range(4):  # the fourth decision has two agreements
        drawn.clear()
        for query in timed.ask():
            timed.case.tell(query.id, timed.case.outcomes(query.point))
    first, second = ({number for again, number in drawn if again == which} for which in (False, True))
    assert len(first) == len(second) == 1 != len(first & second)


@pytest.mark.parametrize(
    ("given", "count", "rounds"),
    [
        pytest.param({"scopes": LONE, "bent": plateau, "seed": 6}, 3, 10, id="a split factor", marks=SLOW),
        pytest.param({"scopes": PAIRS, "bent": plateau, "seed": 10}, 2, 11, id="boxes"),
        pytest.param({"scopes": LONE, "types": CHOICE, "acquisition": SOON, "seed": 2}, None, 8, id="a restart"),
    ],
)
def test_by_a_deadline_owners_of_variables_search_in_boxes_learned_by_owners_of_factors(
    given: dict[str, Any], count: int | None, rounds: int
):
    case = OfFunction(**{"acquisition": "auto", "coordination": OF_FUNCTION, "initial": 4} | given)
    timed = Timed(case, None)
    for _ in range(rounds):
        for query in timed.ask(count=count):
            case.tell(query.id, case.outcomes(query.point))


def test_batches_and_idle_agents_work_with_a_deadline():
    case = InField(names=("r", "a", "m"), coordination=IN_FIELD)
    offers = case.candidates(0) | {"m": np.zeros((0, 2))}
    assert [set(query.points) for query in Timed(case, None).ask(offers, count=2)] == [{"r", "a"}] * 2


class Ready:
    """An agent that keeps time for three ticks from the first with a positive time."""

    is_finished, keeps_time = True, True

    def __init__(self) -> None:
        self.senders = list[list[str]]()

    def tick(self, now: float, inbox: Any = ()) -> list[Envelope]:
        if now:
            self.senders.append([envelope.sender for envelope in inbox])
        self.keeps_time = len(self.senders) < 3
        return []


class Preparing:
    """An agent that sends messages to itself and another agent, and never keeps time."""

    is_finished, keeps_time = True, False

    def __init__(self, name: str, ticks: int) -> None:
        self.name, self.left = name, ticks

    def tick(self, now: float, inbox: Any = ()) -> list[Envelope]:
        self.left -= 1
        return [Envelope(self.name, to, b"news") for to in (self.name, "ready")] if self.left > 0 else []


def test_no_clock_begins_while_others_prepare_and_their_messages_arrive_in_its_first_tick():
    """Earlier, an agent that got messages of an idle agent was ahead of the others, and decided differently."""
    agents = {"ready": Ready(), "idle": Preparing("idle", 4)}
    run(agents, InProcess().open(agents))
    assert agents["ready"].senders == [["idle"] * 3, [], []]


class Clock:
    """Steps agents by hand. Timed messages arrive one tick later, all other messages at once."""

    def __init__(self, agents: dict[str, Agent]) -> None:
        self.agents, self.arriving = agents, dict[str, list[Envelope]]()
        self.to = {name: list[Envelope]() for name in agents}  # messages that must not be lost

    def prepare(self) -> None:
        """Deliver messages until all agents keep time."""
        envelopes = [letter for agent in self.agents.values() for letter in agent.tick(0.0)]
        while envelopes:
            for letter in envelopes:
                self.to[letter.recipient].append(letter)
            envelopes = [sent for letter in envelopes for sent in self.agents[letter.recipient].tick(0.0, [letter])]

    def tick(self, names: Any) -> list[Envelope]:
        """Tick some agents' clocks; return the messages that must not be lost."""
        here, self.arriving = self.arriving, {}
        sent = [letter for name in names for letter in self.agents[name].tick(1.0, here.get(name, []))]
        for letter in sent:
            if may_be_lost(letter):
                self.arriving.setdefault(letter.recipient, []).append(letter)
        return [letter for letter in sent if not may_be_lost(letter)]


def asked_in_field(**more: Any) -> tuple[InField, Clock]:
    case = InField(names=("r", "a", "m"), coordination=IN_FIELD, **more)
    for name, agent in case.agents.items():
        agent.ask(candidates=case.candidates(0)[name])
    clock = Clock(case.agents)
    clock.prepare()
    assert all(agent.keeps_time for agent in case.agents.values())
    return case, clock


def test_in_a_field_the_remaining_agents_decide_at_the_deadline_for_different_places():
    case, clock = asked_in_field()
    for now in range(IN_FIELD["deadline"] + 1):
        assert case.agents["a"].decision() is None
        clock.tick(("r", "a", "m") if now < 5 else ("r", "a"))  # m stops
        case.agents["r"].tick(1.0, [Envelope("a", "r", b"mangled")]) if now == 3 else None
    places = [tuple((case.agents[name].decision() or {}).values()) for name in ("r", "a")]
    assert len(set(places)) == 2
    assert all(places)


def test_with_participants_offers_are_sent_in_full_because_absent_agents_do_not_know_them():
    case, names = InField(names=("r", "a", "m"), coordination=IN_FIELD), ("r", "a", "m")

    def reported(participants: Participants | None) -> int:
        for name, agent in case.agents.items():
            agent.participants = participants
            agent.ask(candidates=case.candidates(0)[name])
        run(case.agents, InProcess().open(names))
        return sum(agent.sent["reports"].bytes for agent in case.agents.values())

    first, second, third, alone, again = (
        reported(c) for c in (None, Participants(2, names), Participants(3, names), None, None)
    )
    assert first == second == third == alone  # later decisions do not rely on offers sent to participants only
    assert again < first / 4


@pytest.mark.parametrize("kind", ["field", "function"])
def test_an_agent_saved_during_an_agreement_continues_to_the_same_decision(kind: str):
    def decisions(is_saved: bool) -> dict[str, Any]:
        if kind == "field":
            case, clock = asked_in_field()
            ticks = IN_FIELD["deadline"] + 1
        else:
            case = OfFunction(coordination=OF_FUNCTION, initial=1)
            Timed(case, None).ask()
            case.tell("q00001", case.outcomes(case.point("q00001")))
            for agent in case.agents.values():
                agent.ask()
            clock, ticks = Clock(case.agents), OF_FUNCTION.deadline + 1
            clock.prepare()
        envelopes = list[Envelope]()
        for now in range(ticks):
            envelopes += clock.tick(case.agents)
            if is_saved and now in (2, 9, ticks - 1):
                clock.agents |= {name: copied(agent) for name, agent in clock.agents.items()}
                case.agents.update(clock.agents)
        while envelopes:
            envelopes = [sent for letter in envelopes for sent in clock.agents[letter.recipient].tick(2.0, [letter])]
        return {name: agent.decision() for name, agent in clock.agents.items()}

    saved = decisions(is_saved=True)
    assert None not in saved.values()
    assert saved == decisions(is_saved=False)


def test_early_messages_are_used_when_the_clock_begins():
    case, clock = asked_in_field()
    bundles = [letter for name in ("r", "a") for letter in case.agents[name].tick(1.0) if letter.recipient == "m"]
    late = case.agent("m")
    late.ask(candidates=case.candidates(0)["m"])
    assert not late.tick(1.0, bundles)[1:]  # nothing but its report
    late.tick(1.0, clock.to["m"])
    assert late.keeps_time
    assert late.tick(1.0) == case.agents["m"].tick(1.0, bundles) != copied(late).tick(1.0)


@pytest.mark.parametrize("probability", [0.5, 0.9])
def test_agents_stay_at_the_present_setting_while_the_owner_of_a_factor_is_absent(probability: float):
    start, safe = dict.fromkeys("abcd", 0.5), {"share": 0.5, "probability": probability}
    scopes = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]}
    owners, kinds = {factor: factor for factor in scopes}, dict.fromkeys("abcd", sb.Real(0.0, 1.0))
    case = OfFunction(scopes, owners, coordination=OF_FUNCTION, initial=1, start=start, safe=safe, types=kinds)
    points, stayed = list[dict[str, float]](), list[Any]()
    for number, names in enumerate([("f", "g", "h"), ("f", "g", "h"), ("f", "g")], 1):
        agents = {name: case.agents[name] for name in names}
        for agent in agents.values():
            agent.participants = Participants(number, names)
            query = agent.ask()
        run(agents, InProcess().open(names))
        point = start | {x: value for agent in agents.values() for x, value in (agent.decision() or {}).items()}
        for name, agent in agents.items():
            agent.tell(query, {name: 5.0 + sum(point[x] for x in scopes[name])})
        points.append(point)
        stayed.append(case.agents["f"].report.stayed)
    assert points[2] == start != points[1]
    assert stayed[2] == "present" != stayed[1]


def test_an_agent_behind_a_pipe_reports_whether_it_keeps_time():
    class Pipe:
        """A pipe whose other end asks once, ticks, then closes."""

        def __init__(self, calls: list[Any]) -> None:
            self.calls, self.answers = calls, list[Any]()

        def recv(self) -> Any:
            if not self.calls:
                raise EOFError
            return self.calls.pop(0)

        def send(self, answer: Any) -> None:
            self.answers.append(answer)

    problem = sb.Problem.of_field(("a",), sb.Domain(np.zeros(1), np.ones(1)))
    made = ("new", ("a", problem), {"coordination": IN_FIELD})
    pipe = Pipe([made, ("ask", (), {}), *[("tick", (0.0, []), {})] * 18])
    serve(pipe)  # type: ignore[arg-type]
    kept = [agreement for _, _, keeps, agreement, _ in pipe.answers if keeps]
    assert kept == [2] * (IN_FIELD["deadline"] + 1)


def test_the_number_of_a_factor_whose_owner_is_absent_is_the_mean_of_the_others():
    """For example its spread of values, which sets the steps of an agreement. A spread of 0 would be invalid."""
    graph = sb.FactorGraph.from_scopes(
        {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]}, {"f": "p", "g": "p", "h": "q"}
    )
    problem = sb.Problem.of(graph, dict.fromkeys("abcd", (0.0, 1.0)), outcomes="per-factor")
    setup = sb.Team(problem, seed=1, coordination=OF_FUNCTION).setup
    stages = Stages("p", setup, Routes(problem.agents), None, Participants(1, ("p",)))
    staged = stages._gather(Gather(graph, {"f": 2.0, "g": 4.0, "h": 77.0}))  # pyright: ignore[reportPrivateUsage]
    (program,) = next(staged).programs(lambda *sent: None)
    with pytest.raises(StopIteration) as sums:
        next(program)
    with pytest.raises(StopIteration) as gathered:
        staged.send([sums.value.value])
    assert gathered.value.value == {"f": 2.0, "g": 4.0, "h": 3.0}
