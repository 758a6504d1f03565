"""Letters between members of a fleet, and the check of what arrives before anybody uses it."""

import math
from hashlib import blake2b
from typing import Any

import msgspec

from swarmbo.agent.participants import Participants
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import OwnRow, OwnRows
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
        company: By a deadline, who takes part.
        last: By a deadline, number of the last decision that holds: what was begun after it is given up.
    """

    turn: int
    links: tuple[tuple[str, str], ...] | None = None
    offer: Offer | None = None
    participants: Participants | None = None
    last: int = 0


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
        others: Of a function, where variables of absent agents stand, as the first one who is there says it.
    """

    turn: int
    query: str
    values: dict[str, float]
    report: SolveReport
    sent: dict[str, Traffic]
    repeated: int = 0
    refused: int = 0
    others: dict[str, float] = {}


class Told(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent: the part of what came of a decision that is its own.

    Args:
        turn: As of ``Begin``.
        query: What was decided; in a field None for what it measured unasked, such as where it starts.
        row: What it is told of that.
    """

    turn: int
    query: str | None
    row: OwnRow


class Measure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent with a world of its own: measure where you stand.

    Args:
        turn: As of ``Begin``.
        places: Values of the agent's own variables, one place after the other.
    """

    turn: int
    places: tuple[tuple[float, ...], ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Outcomes that an agent measured by itself.

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


class SendSnapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent: say what everybody knows, for one who is back.

    Args:
        turn: As of ``Begin``.
        last: As of ``Begin``.
    """

    turn: int
    last: int


class Snapshot(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: what everybody knows.

    Args:
        turn: Of the order to lend it.
        state: As ``Agent.lend`` has it; empty if that is too long for a letter.
    """

    turn: int
    state: bytes


class Back(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent that was gone: it is in again. What it was told before and did not do is void.

    Args:
        turn: As of ``Begin``, but later than any.
        last: Number of the last decision that holds.
        told: What it has to say of what came since then.
        state: What everybody knows, if that was decided without it; else empty.
        came: By query, what came of its own factors, as far as anybody heard of it; of no account without a state.
        since: Number of the last decision that holds in which it took part; 0 before any.
    """

    turn: int
    last: int
    told: OwnRows
    state: bytes = b""
    came: dict[str, OwnRow] = {}
    since: int = 0


class Here(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: it runs.

    Args:
        start: Differs from letter to letter.
        is_new: Whether it has nothing written down.
    """

    start: bytes
    is_new: bool = False


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent of which it has heard nothing for a while: its receipt says enough.

    Args:
        number: Differs from letter to letter.
    """

    number: int


class Odd(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: it has refused what others wrote, as that held what it may not.

    Args:
        refused: How often since it was started, by sender.
    """

    refused: dict[str, int]


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to all agents: there is nothing more to decide."""


class Receipt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The recipient of a letter to its writer, who writes it again until then.

    Args:
        digest: What the letter began with.
    """

    digest: bytes


class Join(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent that an earlier run left behind: be a member of this one.

    Args:
        plan: As ``Plan.write`` writes it.
    """

    plan: bytes


Letter = (
    Said
    | Begin
    | Word
    | Told
    | Measure
    | Measured
    | SendSnapshot
    | Snapshot
    | Back
    | Here
    | Ping
    | Odd
    | End
    | Join
    | Receipt
)

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
    """Digest that tells a letter from all others."""
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
    if not _is_finite(msgspec.to_builtins(letter, builtin_types=(bytes,))):
        raise TransportError("got a number that is NaN or infinite; wanted finite numbers")
    return letter


def _is_finite(plain: Any) -> bool:
    if isinstance(plain, dict):
        return all(map(_is_finite, plain.values()))
    if isinstance(plain, list | tuple):
        return all(map(_is_finite, plain))
    return not isinstance(plain, float) or math.isfinite(plain)
