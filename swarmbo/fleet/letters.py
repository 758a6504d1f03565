"""What members of a fleet write to one another, and how what arrives is checked before anybody uses it."""

import math
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

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
    """The hub to all agents: decide what to evaluate next.

    Args:
        round: 1 for the first decision.
        links: Pairs of agents that hear each other; None: everyone hears everyone.
    """

    round: int
    links: tuple[tuple[str, str], ...] | None = None


class Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An agent to the hub: what it decided.

    Args:
        round: Of the decision.
        query: Its id.
        values: Of the agent's own variables.
        report: How the agreement ended.
        sent: What its messages took, by purpose.
    """

    round: int
    query: str
    values: dict[str, float]
    report: SolveReport
    sent: dict[str, Traffic]


class Came(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent: what came of a decision, as far as the agent is told.

    Args:
        round: Of the decision.
        stood: Where the agent's own variables really stood.
        factors: Outcomes of its own factors; None of one that failed.
        total: The total, for the agent that is told it; None if it failed.
        has_total: Whether the agent is told the total.
        noise: Standard deviations of outcomes, where they are known; the total's is called ``total``.
    """

    round: int
    stood: dict[str, float]
    factors: dict[str, float | None]
    total: float | None = None
    has_total: bool = False
    noise: dict[str, float] = {}


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to all agents: there is nothing more to decide."""


class Receipt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Whoever got a letter to who wrote it; it is written again until then.

    Args:
        digest: What the letter began with.
    """

    digest: bytes


Letter = Said | Begin | Word | Came | End | Receipt

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
    for numbers in _numbers(letter):
        if bad := [name for name, number in numbers.items() if number is not None and not math.isfinite(number)]:
            raise TransportError(f"got {numbers[bad[0]]} for {bad[0]!r}; wanted finite numbers")
    return letter


def _numbers(letter: Letter) -> list[Mapping[str, float | None]]:
    match letter:
        case Word():
            return [letter.values]
        case Came():
            return [letter.stood, letter.factors, letter.noise, {"total": letter.total}]
        case _:
            return []
