"""Letters (messages) between members of a fleet, and checks of arrivals by sender, recipient and problem: inadmissible
ones are refused before they are saved. Messages of agreements are checked again where they are awaited
(``coordination.schema``, ``agent.schema``).
"""

import math
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET

from swarmbo.agent import schema
from swarmbo.coordination.messages import Codec
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import OwnRow, OwnRows, is_place
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.problem import Problem
from swarmbo.records import SolveReport, Traffic

LONGEST = 4 * 2**20  # bytes of a letter
_MOST = 2**53  # counts
_NAME = 64  # bytes that distinguish letters
DIGEST = 16  # bytes of the digest at the start of a letter


class Said(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Message of an agreement from agent to agent, as ``Agent.tick`` returned it."""

    payload: bytes


class Begin(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Order of the hub to an agent: decide the next evaluation. Orders are carried out once each, by ``turn`` from 1.
    By a deadline it names participants; decisions after the ``last`` valid one are given up.
    """

    turn: int
    links: tuple[tuple[str, str], ...] | None = None
    offer: Offer | None = None
    participants: schema.Participants | None = None
    last: int = 0


class Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Decision of an agent, in the problem's codes; in a field without values if it measures nothing.

    Counts are since its start; the first present agent states ``others``, values of absent agents' variables. Of known
    tables, ``outcomes`` are each part's without the choice, encoded because letters refuse infinite numbers.
    """

    turn: int
    query: str
    values: dict[str, float]
    report: SolveReport
    sent: dict[str, Traffic]
    repeated: int = 0
    refused: int = 0
    others: dict[str, float] = {}
    outcomes: bytes = b""


class Told(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Outcome for an agent from the hub: its own part; ``query`` is None for an unrequested measurement."""

    turn: int
    query: str | None
    row: OwnRow


class Measure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Order of the hub to an agent with its own instrument: measure at some locations in turn."""

    turn: int
    places: tuple[tuple[float, ...], ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Outcomes of an agent's own instrument (None: failed); ``location`` is given if it is not as ordered."""

    outcomes: dict[str, float | None]
    noise: dict[str, float] = {}
    location: tuple[float, ...] | None = None
    failure: str = ""


class Measured(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Measurements of an agent's own instrument, to the hub; ``refused`` is the reason for an invalid result."""

    turn: int
    answers: tuple[Answer, ...]
    refused: str = ""


class SendSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Order of the hub to an agent: send a snapshot, for a returning agent."""

    turn: int
    last: int


class Snapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Snapshot from an agent to the hub, as of ``Agent.snapshot``; empty if it is too long for a letter."""

    turn: int
    state: bytes


class Back(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Readmission by the hub, which voids earlier orders: data to report (``told``) since the ``last`` valid decision,
    a snapshot if it missed that one, outcomes that ``came`` of its own, its last decision (``since``).
    """

    turn: int
    last: int
    told: OwnRows
    state: bytes = b""
    came: dict[str, OwnRow] = {}
    since: int = 0


class Here(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Sign of life of an agent to the hub; ``start`` differs between letters, ``is_new`` marks an empty journal."""

    start: bytes
    is_new: bool = False


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Request of the hub to a silent agent for its receipt; ``number`` differs between letters."""

    number: int


class Odd(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Report of an agent to the hub: numbers of inadmissible letters by sender, since its start."""

    refused: dict[str, int]


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End of the run, from the hub to all agents."""


class Receipt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Receipt of a letter, by its digest, to its sender, which repeats the letter until then."""

    digest: bytes


class Join(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Invitation of the hub to an agent of an earlier run, with the plan of this run."""

    plan: Plan


Order = Begin | Told | Measure | SendSnapshot  # orders of the hub that an agent carries out in turn
Letter = Said | Order | Back | Ping | End | Join | Word | Measured | Snapshot | Here | Odd | Receipt

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Letter)


def sealed(letter: Letter) -> bytes:
    """Encode a letter: a digest, then MessagePack; a TransportError if it is too long."""
    body = _encoder.encode(letter)
    if len(body) + DIGEST > LONGEST:
        raise TransportError(f"got a message of {len(body)} bytes; wanted at most {LONGEST - DIGEST}")
    return digest_of(body) + body


def digest_of(body: bytes) -> bytes:
    """Digest that distinguishes letters."""
    return blake2b(body, digest_size=DIGEST).digest()


def opened(parcel: bytes) -> Letter:
    """Decode an arrival; a TransportError if it is too long, changed, no letter, or holds NaN or an infinite number."""
    if not DIGEST < len(parcel) <= LONGEST:
        raise TransportError(f"got {len(parcel)} bytes; wanted {DIGEST + 1} to {LONGEST}")
    body = parcel[DIGEST:]
    if digest_of(body) != parcel[:DIGEST]:
        raise TransportError(f"got {len(parcel)} bytes that do not fit their digest: they were changed in transit")
    try:
        letter = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise TransportError(f"got no message: {error}; do versions of swarmbo differ?") from error
    if not _is_finite(msgspec.to_builtins(letter, builtin_types=(bytes,))):
        raise TransportError("got a number that is NaN or infinite; wanted finite numbers")
    return letter


def _is_finite(plain: Any) -> bool:
    if isinstance(plain, dict):
        return all(map(_is_finite, plain.values()))
    if isinstance(plain, list | tuple):
        return all(map(_is_finite, plain))
    return not isinstance(plain, float) or math.isfinite(plain)


def fits_agent(sender: str, letter: Letter, name: str, problem: Problem) -> bool:
    """True if an agent may receive the letter from this sender."""
    if sender != HUB:
        return isinstance(letter, Said) and sender in problem.agents and _is_message(letter.payload)
    match letter:
        case Begin():
            return 0 < letter.turn < _MOST and _can_begin(letter, name, problem)
        case Told():
            has_total = letter.row.total is not UNSET
            is_asked = letter.query is not None and (problem.outcomes == "total" or not has_total)
            return (problem.is_field or is_asked) and schema.is_row(letter.row, name, problem)
        case Measure():
            n = len(problem.graph.variables_owned_by(name))
            return all(is_place(at, problem) if problem.is_field else len(at) == n for at in letter.places)
        case Back():
            rows = [*letter.told.by_query.values(), *letter.told.attached, *letter.came.values()]
            is_known = letter.since >= 0 and all(query[1:].isdecimal() for query in letter.came)
            return 0 < letter.turn < _MOST and is_known and all(schema.is_row(row, name, problem) for row in rows)
        case _:
            return isinstance(letter, SendSnapshot | Ping | End | Join)


def fits_hub(sender: str, letter: Letter, problem: Problem) -> bool:
    """True if the hub may receive the letter from this sender."""
    if sender not in problem.agents:
        return False
    graph = problem.graph
    match letter:
        case Word():
            counts = [letter.repeated, letter.refused, letter.report.rounds]
            counts += [n for took in letter.sent.values() for n in (took.messages, took.bytes, took.transmissions)]
            is_own = schema.are_values(letter.values, graph.variables_owned_by(sender), problem)
            is_known = is_own and schema.are_values(letter.others, graph.variables, problem)
            return is_known and all(0 <= count < _MOST for count in counts)
        case Measured():
            return all(_is_answer(answer, sender, problem) for answer in letter.answers)
        case Odd():
            is_of_members = set(letter.refused) <= {*problem.agents, HUB}
            return is_of_members and all(0 <= n < _MOST for n in letter.refused.values())
        case Here():
            return len(letter.start) <= _NAME
        case _:
            return isinstance(letter, Snapshot)


def _is_message(payload: bytes) -> bool:
    try:
        Codec.read(payload)
    except TransportError:
        return False
    return True


def _can_begin(letter: Begin, name: str, problem: Problem) -> bool:
    if (participants := letter.participants) is not None:
        try:
            participants.checked(name, problem)
        except ConfigError:
            return False
    if (offer := letter.offer) is None:
        return True
    places = [*(offer.candidates or ()), *([] if offer.position is None else [offer.position])]
    return problem.is_field and offer.price >= 0.0 and all(is_place(place, problem) for place in places)


def _is_answer(answer: Answer, name: str, problem: Problem) -> bool:
    own = set(problem.graph.factors_owned_by(name))
    is_own = set(answer.outcomes) == own and own.issuperset(answer.noise)
    is_known = schema.are_outcomes(answer.outcomes.values()) and schema.are_stds(answer.noise.values())
    return is_own and is_known and (answer.location is None or is_place(answer.location, problem))
