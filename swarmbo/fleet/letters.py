"""What members of a fleet write to one another, and how what arrives is checked before anybody uses it."""

import math
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from swarmbo.agent.reports import Offer
from swarmbo.agent.rows import Stop
from swarmbo.errors import TransportError
from swarmbo.records import SolveReport, Traffic

LONGEST = 4 * 2**20  # bytes of a letter
DIGEST = 16  # bytes that a letter begins with: of the rest


class Said(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message of an agreement, from agent to agent.

    Args:
        payload: As ``Agent.tick`` returned it.
    """

    payload: bytes


class Begin(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent: decide what to evaluate next.

    Args:
        turn: Which of the hub's orders to this agent it is, from 1: they are carried out in turn, each once.
        links: Pairs of agents that hear each other; None: everyone hears everyone.
        offer: In a field, where this agent can go.
    """

    turn: int
    links: tuple[tuple[str, str], ...] | None = None
    offer: Offer | None = None


class Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: what it decided.

    Args:
        turn: Of the order to decide.
        query: Id of what was decided.
        values: Of the agent's own variables; in a field none if it measures nothing.
        report: How the agreement ended.
        sent: What its messages took, by purpose.
        repeated: How many letters it has written again, since it was started.
        refused: What it has refused since then: parcels that are no letters, and what nobody should have written.
    """

    turn: int
    query: str
    values: dict[str, float]
    report: SolveReport
    sent: dict[str, Traffic]
    repeated: int = 0
    refused: int = 0


class Came(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent of a function: what came of a decision, as far as the agent is told.

    Args:
        turn: As of ``Begin``.
        query: What was decided.
        stood: Where the agent's own variables really stood.
        factors: Outcomes of its own factors; None of one that failed.
        total: The total, for the agent that is told it; None if it failed.
        has_total: Whether the agent is told the total.
        noise: Standard deviations of outcomes, where they are known; the total's is called ``total``.
    """

    turn: int
    query: str
    stood: dict[str, float]
    factors: dict[str, float | None]
    total: float | None = None
    has_total: bool = False
    noise: dict[str, float] = {}


class Saw(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent in a field: what it measured itself.

    Args:
        turn: As of ``Begin``.
        query: For what was decided; None: unasked, such as where it starts.
        reading: In the end; None: nothing, which is no failure.
        on_the_way: Besides, in turn.
        has_ended: Whether nothing more will come of the decision.
    """

    turn: int
    query: str | None
    reading: Stop | None = None
    on_the_way: tuple[Stop, ...] = ()
    has_ended: bool = False


class Measure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent with a world of its own: measure where you stand.

    Args:
        turn: As of ``Begin``.
        places: Values of the agent's own variables, one place after the other.
    """

    turn: int
    places: tuple[tuple[float, ...], ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What an agent measured by itself.

    Args:
        outcomes: Of its own channels; None: failed.
        noise: Standard deviations of their noise, where they are known.
        location: In a field, where it really measured, if not where it was asked to.
        failure: Why it failed; empty if it did not.
    """

    outcomes: dict[str, float | None]
    noise: dict[str, float] = {}
    location: tuple[float, ...] | None = None
    failure: str = ""


class Measured(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: what it measured by itself.

    Args:
        turn: Of the order to measure.
        answers: One for each place.
        refused: Why what it measured can be no outcome, which ends the run; else empty.
    """

    turn: int
    answers: tuple[Answer, ...]
    refused: str = ""


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to all agents: there is nothing more to decide."""


class Receipt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Whoever got a letter to who wrote it; it is written again until then.

    Args:
        digest: What the letter began with.
    """

    digest: bytes


Letter = Said | Begin | Word | Came | Saw | Measure | Measured | End | Receipt

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Letter)


def sealed(letter: Letter) -> bytes:
    """A letter as it is sent: a digest, then MessagePack.

    Raises:
        TransportError: If it is too long.

    Example:
        >>> opened(sealed(End()))
        End()
    """
    body = _encoder.encode(letter)
    if len(body) + DIGEST > LONGEST:
        raise TransportError(f"got a letter of {len(body)} bytes; wanted at most {LONGEST - DIGEST}")
    return digest_of(body) + body


def digest_of(body: bytes) -> bytes:
    """What tells a letter from all others."""
    return blake2b(body, digest_size=DIGEST).digest()


def opened(parcel: bytes) -> Letter:
    """A letter that arrived, if it is one.

    Raises:
        TransportError: If it is too long, was cut off or changed on the way, is no letter, or holds a number that is
            not finite.
    """
    if not DIGEST < len(parcel) <= LONGEST:
        raise TransportError(f"got {len(parcel)} bytes; wanted {DIGEST + 1} to {LONGEST}")
    body = parcel[DIGEST:]
    if digest_of(body) != parcel[:DIGEST]:
        raise TransportError(f"got {len(parcel)} bytes that do not fit their digest: they were changed on the way")
    try:
        letter = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise TransportError(f"got no letter: {error}; do versions of swarmbo differ?") from error
    for name, number in _numbers(letter):
        if number is not None and not math.isfinite(number):
            raise TransportError(f"got {number} for {name!r}; wanted finite numbers")
    return letter


def _numbers(letter: Letter) -> Iterable[tuple[str, float | None]]:
    match letter:
        case Begin(offer=Offer() as offer):
            passed = (place for way in offer.on_the_way or () for place in way)
            places = (*(offer.candidates or ()), offer.position or (), *passed)
            return [("price", offer.price), *(("place", x) for place in places for x in place)]
        case Word():
            return letter.values.items()
        case Came():
            return [*letter.stood.items(), *letter.factors.items(), *letter.noise.items(), ("total", letter.total)]
        case Saw():
            stops = [*letter.on_the_way, *([] if letter.reading is None else [letter.reading])]
            said = [("outcome", stop.outcome) for stop in stops] + [("noise", stop.noise) for stop in stops]
            return [*said, *(("place", x) for stop in stops for x in stop.place)]
        case Measure():
            return (("place", x) for place in letter.places for x in place)
        case Measured():
            said = [(name, y) for a in letter.answers for name, y in (*a.outcomes.items(), *a.noise.items())]
            return [*said, *(("location", x) for answer in letter.answers for x in answer.location or ())]
        case _:
            return ()
