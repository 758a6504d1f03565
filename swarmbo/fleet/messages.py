"""Messages between members of a fleet, and checks of arrivals by sender, recipient and problem: inadmissible ones are
refused before they are saved. Messages of agreements are checked again where they are awaited
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

MAX_MESSAGE_BYTES = 4 * 2**20
DIGEST_BYTES = 16  # of the digest at the start of a message
_MAX_COUNT = 2**53
_MAX_NONCE_BYTES = 64

# Tags are the names of messages in transit and in journals: they stay when a class is renamed.


class AgreementMessage(msgspec.Struct, frozen=True, tag="Said", array_like=True):
    """Message of an agreement from agent to agent, as ``Agent.tick`` returned it."""

    payload: bytes


class Decide(msgspec.Struct, frozen=True, tag="Begin", array_like=True):
    """Order of the hub to an agent: decide the next evaluation. Each order is carried out once, in the order of
    ``sequence`` (1, 2, …). With a deadline it names participants; decisions after ``last_valid`` are given up.
    """

    sequence: int
    links: tuple[tuple[str, str], ...] | None = None
    offer: Offer | None = None
    participants: schema.Participants | None = None
    last_valid: int = 0


class Decision(msgspec.Struct, frozen=True, tag="Word", array_like=True):
    """Decision of an agent, in the problem's codes; in a field without values if it measures nothing.

    Counts begin with the agent's process. The first present agent states the ``absent_values`` of absent agents.
    With known tables, ``outcomes`` are those of connected parts without the choice, encoded as they may be infinite.
    """

    sequence: int
    query: str
    values: dict[str, float]
    report: SolveReport
    sent: dict[str, Traffic]
    repeated: int = 0
    refused: int = 0
    absent_values: dict[str, float] = {}
    outcomes: bytes = b""


class RecordOutcome(msgspec.Struct, frozen=True, tag="Told", array_like=True):
    """Order of the hub to an agent: record its own part of an outcome; ``query`` is None if unrequested."""

    sequence: int
    query: str | None
    row: OwnRow


class Measure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Order of the hub to an agent with its own instrument: measure at some locations, in this order."""

    sequence: int
    places: tuple[tuple[float, ...], ...]


class MeasurementResult(msgspec.Struct, frozen=True, array_like=True):
    """Outcomes of an agent's own instrument (None: failed); ``location`` is given if it is not as ordered."""

    outcomes: dict[str, float | None]
    noise: dict[str, float] = {}
    location: tuple[float, ...] | None = None
    failure: str = ""


class Measurements(msgspec.Struct, frozen=True, tag="Measured", array_like=True):
    """Results of an agent's own instrument, to the hub; ``error`` is the reason if one is inadmissible."""

    sequence: int
    results: tuple[MeasurementResult, ...]
    error: str = ""


class SendSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Order of the hub to an agent: send a snapshot, for a returning agent."""

    sequence: int
    last_valid: int


class Snapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Snapshot from an agent to the hub, from ``Agent.snapshot``; empty if it is too long for a message."""

    sequence: int
    state: bytes


class Readmission(msgspec.Struct, frozen=True, tag="Back", array_like=True):
    """Readmission by the hub, which voids earlier orders: ``unreported`` data of the agent since the ``last_valid``
    decision, and a snapshot (``state``) with all of its ``own_outcomes`` if it missed that decision. ``last_joined`` is
    the last valid decision in which it took part.
    """

    sequence: int
    last_valid: int
    unreported: OwnRows
    state: bytes = b""
    own_outcomes: dict[str, OwnRow] = {}
    last_joined: int = 0


class Heartbeat(msgspec.Struct, frozen=True, tag="Here", array_like=True):
    """Message of an agent to the hub that it runs; ``nonce`` differs between heartbeats."""

    nonce: bytes
    has_empty_journal: bool = False


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Request of the hub to a silent agent for its receipt; ``number`` differs between pings."""

    number: int


class RefusalCounts(msgspec.Struct, frozen=True, tag="Odd", array_like=True):
    """Numbers of inadmissible messages by sender, from an agent to the hub, since the agent's start."""

    by_sender: dict[str, int]


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End of the run, from the hub to all agents."""


class Receipt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Receipt of a message, by its digest, to its sender, which repeats the message until then."""

    digest: bytes


class Invitation(msgspec.Struct, frozen=True, tag="Join", array_like=True):
    """Invitation of the hub to an agent of an earlier run, with the plan of this run."""

    plan: Plan


Order = Decide | RecordOutcome | Measure | SendSnapshot  # of the hub, to be carried out in sequence
Reply = Decision | Measurements | Snapshot
Message = AgreementMessage | Order | Readmission | Ping | End | Invitation | Reply | Heartbeat | RefusalCounts | Receipt

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Encode a message: a digest, then MessagePack; a TransportError if it is too long."""
    body = _encoder.encode(message)
    if len(body) + DIGEST_BYTES > MAX_MESSAGE_BYTES:
        raise TransportError(f"got a message of {len(body)} bytes; wanted at most {MAX_MESSAGE_BYTES - DIGEST_BYTES}")
    return digest_of(body) + body


def digest_of(body: bytes) -> bytes:
    """Digest that distinguishes messages."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


def decode(content: bytes) -> Message:
    """Decode an arrival; a TransportError if it is too long, changed, not a message, or has NaN or infinite numbers."""
    if not DIGEST_BYTES < len(content) <= MAX_MESSAGE_BYTES:
        raise TransportError(f"got {len(content)} bytes; wanted {DIGEST_BYTES + 1} to {MAX_MESSAGE_BYTES}")
    body = content[DIGEST_BYTES:]
    if digest_of(body) != content[:DIGEST_BYTES]:
        raise TransportError(f"got {len(content)} bytes that do not fit their digest: they were changed in transit")
    try:
        message = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise TransportError(f"got bytes that are not a message: {error}; do versions of swarmbo differ?") from error
    if not _is_finite(msgspec.to_builtins(message, builtin_types=(bytes,))):
        raise TransportError("got a number that is NaN or infinite; wanted finite numbers")
    return message


def _is_finite(plain: Any) -> bool:
    if isinstance(plain, dict):
        return all(map(_is_finite, plain.values()))
    if isinstance(plain, list | tuple):
        return all(map(_is_finite, plain))
    return not isinstance(plain, float) or math.isfinite(plain)


def agent_accepts(sender: str, message: Message, name: str, problem: Problem) -> bool:
    """True if the agent ``name`` may receive the message from this sender."""
    if sender != HUB:
        return isinstance(message, AgreementMessage) and sender in problem.agents and _is_readable(message.payload)
    match message:
        case Decide():
            return 0 < message.sequence < _MAX_COUNT and _can_decide(message, name, problem)
        case RecordOutcome():
            is_asked = message.query is not None and (problem.outcomes == "total" or message.row.total is UNSET)
            return (problem.is_field or is_asked) and schema.is_row(message.row, name, problem)
        case Measure():
            n = len(problem.graph.variables_owned_by(name))
            return all(is_place(at, problem) if problem.is_field else len(at) == n for at in message.places)
        case Readmission():
            own, unreported = message.own_outcomes, message.unreported
            rows = [*unreported.by_query.values(), *unreported.attached, *own.values()]
            are_counts = 0 < message.sequence < _MAX_COUNT and message.last_joined >= 0
            are_queries = all(query[1:].isdecimal() for query in own)
            return are_counts and are_queries and all(schema.is_row(row, name, problem) for row in rows)
        case _:
            return isinstance(message, SendSnapshot | Ping | End | Invitation)


def hub_accepts(sender: str, message: Message, problem: Problem) -> bool:
    """True if the hub may receive the message from this sender."""
    if sender not in problem.agents:
        return False
    graph = problem.graph
    match message:
        case Decision():
            counts = [message.repeated, message.refused, message.report.rounds]
            counts += [n for sent in message.sent.values() for n in (sent.messages, sent.bytes, sent.transmissions)]
            is_own = schema.are_values(message.values, graph.variables_owned_by(sender), problem)
            is_known = is_own and schema.are_values(message.absent_values, graph.variables, problem)
            return is_known and all(0 <= count < _MAX_COUNT for count in counts)
        case Measurements():
            return all(_is_result(result, sender, problem) for result in message.results)
        case RefusalCounts():
            is_of_members = set(message.by_sender) <= {*problem.agents, HUB}
            return is_of_members and all(0 <= n < _MAX_COUNT for n in message.by_sender.values())
        case Heartbeat():
            return len(message.nonce) <= _MAX_NONCE_BYTES
        case _:
            return isinstance(message, Snapshot)


def _is_readable(payload: bytes) -> bool:
    try:
        Codec.read(payload)
    except TransportError:
        return False
    return True


def _can_decide(message: Decide, name: str, problem: Problem) -> bool:
    if (participants := message.participants) is not None:
        try:
            participants.checked(name, problem)
        except ConfigError:
            return False
    if (offer := message.offer) is None:
        return True
    places = [*(offer.candidates or ()), *([] if offer.position is None else [offer.position])]
    return problem.is_field and offer.price >= 0.0 and all(is_place(place, problem) for place in places)


def _is_result(result: MeasurementResult, agent: str, problem: Problem) -> bool:
    factors = set(problem.graph.factors_owned_by(agent))
    is_own = set(result.outcomes) == factors and factors.issuperset(result.noise)
    are_numbers = schema.are_outcomes(result.outcomes.values()) and schema.are_stds(result.noise.values())
    return is_own and are_numbers and (result.location is None or is_place(result.location, problem))
