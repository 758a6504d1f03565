"""Invalid content in intact messages never stops another agent, and reports name the sender."""

import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.coordination.participant import step
from swarmbo.deciding.offers import packed
from swarmbo.records import LinkReport
from swarmbo.transport import Envelope, InProcess

from .carried import Recording, copied
from .in_world import InWorld
from .mutations import mutated, sealed, unfit
from .test_agent import PARTS, SMALL, Case as OfFunction
from .test_deadline import IN_FIELD, OF_FUNCTION
from .test_field_agents import Case as InField, fused
from .test_routing_agents import ROUTES_UP, drive

SLOW = pytest.mark.slow
TRIO = ("r", "a", "m")
MAX_SUM = sb.MaxSum(rounds=4)
Make = Callable[[], Any]


def of_function(*scopes: Any, coordination: Any = SMALL, **given: Any) -> OfFunction:
    return OfFunction(*scopes, coordination=coordination, initial=1, **given)


def in_field(coordination: Any = MAX_SUM, **given: Any) -> InField:
    return InField(names=TRIO, coordination=coordination, **given)


CASES: list[Any] = [
    pytest.param(lambda: of_function(), id="by factor"),
    pytest.param(lambda: of_function(outcomes="total"), id="totals", marks=SLOW),
    pytest.param(lambda: of_function(coordination=sb.RefinedMaxSum(points=4, levels=2)), id="refined max-sum"),
    pytest.param(lambda: of_function(PARTS, coordination=sb.RefinedMGM(points=4, levels=2)), id="mgm", marks=SLOW),
    pytest.param(lambda: of_function(coordination=sb.RefinedDSA(points=4, levels=2)), id="dsa", marks=SLOW),
    pytest.param(in_field, id="field, max-sum"),
    pytest.param(lambda: in_field(sb.Exact()), id="field, exact", marks=SLOW),
    pytest.param(lambda: in_field(sb.MGM(rounds=3)), id="field, mgm", marks=SLOW),
    pytest.param(lambda: in_field(sb.DSA(rounds=3)), id="field, dsa", marks=SLOW),
    pytest.param(lambda: in_field(sb.MaxSum(rounds=4, bound="mplp")), id="field, bound", marks=SLOW),
    pytest.param(lambda: in_field(belief=fused("consensus")), id="consensus"),
    *(
        pytest.param(lambda method=method: in_field(belief=fused(method)), id=method, marks=marks)
        for method, marks in {"readings": (), "experts": SLOW, "covariance-intersection": SLOW}.items()
    ),
]


MORE: list[Any] = [
    pytest.param(lambda: of_function(coordination=OF_FUNCTION), id="function, by a deadline"),
    pytest.param(lambda: in_field(IN_FIELD), id="field, by a deadline"),
    pytest.param(drive, id="routes"),
    pytest.param(lambda: drive(coordination=ROUTES_UP, acquisition="db-gp-ucb"), id="routes up", marks=SLOW),
]


class InvalidBeside(Recording):
    """Delivers invalid messages of one agent beside its real messages.

    Args:
        routes: Routes, as of a transport.
        of: Name of the agent.
        make: A function that makes an invalid message from a real one.
        seed: Seed of the choice and order of invalid messages.
        most: Largest number of invalid messages.
        share: Share of the agent's messages with an invalid one beside it.
    """

    def __init__(
        self, routes: Any, of: str, make: Callable[[bytes], bytes], seed: int, most: int = 10**6, share: float = 1.0
    ) -> None:
        super().__init__(routes)
        self.of, self.make, self.most, self.share = of, make, most, share
        self.rng, self.n_invalid = np.random.default_rng(seed), 0

    def deliver(self) -> dict[str, list[Envelope]]:
        return {
            name: [e for letter in inbox for e in self._beside(letter)] for name, inbox in super().deliver().items()
        }

    def _beside(self, letter: Envelope) -> list[Envelope]:
        if letter.sender != self.of or self.n_invalid >= self.most or self.rng.random() > self.share:
            return [letter]
        self.n_invalid += 1
        odd = letter._replace(payload=self.make(letter.payload))
        return [odd, letter] if self.rng.random() < 0.5 else [letter, odd]


def with_invalid(
    case: Any, make: Callable[[bytes, np.random.Generator], bytes], seed: int, **how: Any
) -> InvalidBeside:
    """Add invalid messages of the case's second agent."""
    names, rng = case.problem.agents, np.random.default_rng(seed)
    routes = InProcess().open(names, getattr(case, "links", None)).routes
    case.transport = InvalidBeside(routes, names[1], lambda payload: make(payload, rng), seed=seed, **how)
    return case.transport


@pytest.mark.parametrize("make", CASES)
def test_invalid_messages_change_no_decision_and_reports_name_their_sender(make: Make):
    case = make()
    letters = with_invalid(case, unfit, seed=1)
    named = Counter[str]()
    for _ in range(2):
        case.play(1)  # agents must decide as the team, which gets no invalid messages
        for agent in case.agents.values():
            links = agent.report.links
            named += links.dropped if isinstance(links, LinkReport) else Counter[str]()
    assert letters.n_invalid >= 10
    assert named == {letters.of: sum(agent.refused[letters.of] for agent in case.agents.values())}
    assert named[letters.of] > 0


OFFERS = {
    "nothing": b"",
    "unknown kind": b"\x09",
    "not numbers": b"\x00abc",
    "NaN in a place": packed(np.array([[np.nan, 0.0]])),
    "place outside the box": packed(np.array([[1e9, 0.0]])),
    "unknown indices": b"\x01\x91\x01",
    "millions of bytes": b"\x02" + zlib.compress(bytes(2**24)),
}


@pytest.mark.parametrize("content", OFFERS.values(), ids=OFFERS)
def test_an_offer_that_cannot_be_read_counts_as_lost(content: bytes):
    def offering(payload: bytes, rng: np.random.Generator) -> bytes:
        decision, turn = struct.unpack_from("<II", payload, 4)
        tag, part, agent, reports = (*msgspec.msgpack.decode(payload[12:]), *[None] * 4)[:4]
        if tag != "reports" or agent not in reports:
            return payload
        report = msgspec.msgpack.decode(reports[agent])
        report[1][0] = content  # the candidates of the offer
        changed = reports | {agent: msgspec.msgpack.encode(report)}
        return sealed(decision, turn, msgspec.msgpack.encode([tag, part, agent, changed]))

    case = in_field()
    letters = with_invalid(case, offering, seed=2)  # with this seed, invalid messages come first
    case.play(1)  # agents must decide as the team
    assert sum(agent.refused[letters.of] for agent in case.agents.values()) > 0


def decided(case: Any, letters: InvalidBeside) -> bool:
    """True if all agents have decided. An agent may wait for ever, but must not raise an error."""
    if isinstance(case, InWorld):
        case.ask_all()
    else:
        for agent in case.agents.values():
            agent.ask()
    step(case.agents, letters)  # some agents may wait for ever
    return all(agent.is_finished for agent in case.agents.values())


def among_invalid(make: Make, seed: int, n_invalid: int) -> int:
    """Decide among `n_invalid` invalid messages, with restarts; return the number of delivered ones."""
    n_delivered = 0
    for part in range(1000):
        case = make()
        letters = with_invalid(case, mutated, 1000 * seed + part, most=n_invalid - n_delivered, share=0.3)
        while decided(case, letters) and letters.n_invalid < letters.most and case.agents[letters.of].log.n_asked < 3:
            pass
        for agent in case.agents.values():
            if agent.travel is None:
                assert copied(agent).is_finished == agent.is_finished  # its state includes all accepted content
        n_delivered += letters.n_invalid
        if n_delivered >= n_invalid:
            break
    return n_delivered


@pytest.mark.parametrize(("seed", "n_invalid"), [(2, 20), pytest.param(3, 70, marks=SLOW)])
@pytest.mark.parametrize("make", CASES + MORE)
def test_messages_with_invalid_content_never_stop_an_agent(make: Make, seed: int, n_invalid: int):
    assert among_invalid(make, seed, n_invalid) == n_invalid
