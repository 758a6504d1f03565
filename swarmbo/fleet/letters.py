"""What members of a fleet write to one another, and how what arrives is checked before anybody uses it."""

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec
from msgspec import UNSET, UnsetType

from swarmbo.agent.company import Company
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import UNASKED, OwnRow, OwnRows, Stop
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
    company: Company | None = None
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

    def noted(self, order: int) -> tuple[str, OwnRow]:
        """What the agent notes when it is told so, and of which query; ``order``: what it was told of before."""
        noise = {factor: std for factor, std in self.noise.items() if factor in self.factors}
        total = self.total if self.has_total else UNSET
        told = self.noise.get("total") if self.has_total else None
        return self.query, OwnRow(order, self.factors, total, self.stood, noise=noise, total_noise=told)


class Saw(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent in a field: what it measured itself.

    Args:
        turn: As of ``Begin``.
        query: For what was decided; None: unasked, such as where it starts.
        reading: In the end; None: nothing, which is no failure.
        on_the_way: Besides, in turn.
        has_ended: Whether nothing more will come of the decision, or the round has ended.
    """

    turn: int
    query: str | None
    reading: Stop | None = None
    on_the_way: tuple[Stop, ...] = ()
    has_ended: bool = False

    def noted(self, agent: str, variables: Sequence[str], order: int) -> tuple[str, OwnRow]:
        """What an agent notes when it is told so, and of which query.

        Args:
            agent: Which.
            variables: Its own.
            order: Of how many evaluations it was told before.
        """
        of, row = self.query or UNASKED, OwnRow(order, on_the_way=self.on_the_way, has_ended=self.has_ended)
        if self.reading is None:
            return of, row
        noise = {} if self.reading.noise is None else {agent: self.reading.noise}
        place = dict(zip(variables, self.reading.place, strict=True))
        return of, msgspec.structs.replace(row, factors={agent: self.reading.outcome}, place=place, noise=noise)


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


class Lend(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The hub to an agent: say what everybody knows, for one who is back.

    Args:
        turn: As of ``Begin``.
        last: As of ``Begin``.
    """

    turn: int
    last: int


class Lent(msgspec.Struct, frozen=True, tag=True, array_like=True):
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
    """

    turn: int
    last: int
    told: OwnRows
    state: bytes = b""
    came: dict[str, OwnRow] = {}


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
    """Whoever got a letter to who wrote it; it is written again until then.

    Args:
        digest: What the letter began with.
    """

    digest: bytes


Letter = Said | Begin | Word | Came | Saw | Measure | Measured | Lend | Lent | Back | Here | Ping | Odd | End | Receipt

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
        case Begin():
            said = () if letter.company is None else letter.company.said.values()
            return [*_numbers_offered(letter.offer), *(number for rows in said for number in _numbers_told(rows))]
        case Back():
            return [*_numbers_told(letter.told), *_numbers_told(OwnRows(letter.came))]
        case Word():
            return [*letter.values.items(), *letter.others.items()]
        case Came():
            return [*letter.stood.items(), *letter.factors.items(), *letter.noise.items(), ("total", letter.total)]
        case Saw():
            return _numbers_measured([*letter.on_the_way, *([] if letter.reading is None else [letter.reading])])
        case Measure():
            return (("place", x) for place in letter.places for x in place)
        case Measured():
            said = [(name, y) for a in letter.answers for name, y in (*a.outcomes.items(), *a.noise.items())]
            return [*said, *(("location", x) for answer in letter.answers for x in answer.location or ())]
        case _:
            return ()


def _numbers_offered(offer: Offer | None) -> Iterable[tuple[str, float | None]]:
    if offer is None:
        return ()
    passed = (place for way in offer.on_the_way or () for place in way)
    places = (*(offer.candidates or ()), offer.position or (), *passed)
    return [("price", offer.price), *(("place", x) for place in places for x in place)]


def _numbers_measured(stops: Iterable[Stop]) -> list[tuple[str, float | None]]:
    stops = list(stops)
    said = [("outcome", stop.outcome) for stop in stops] + [("noise", stop.noise) for stop in stops]
    return [*said, *(("place", x) for stop in stops for x in stop.place)]


def _numbers_told(rows: OwnRows) -> Iterable[tuple[str, float | None]]:
    for row in (*rows.told.values(), *rows.attached):
        yield from (*row.factors.items(), *row.place.items(), *row.noise.items())
        yield from (("total", None if isinstance(row.total, UnsetType) else row.total), ("noise", row.total_noise))
        yield from (("round", row.round), *_numbers_measured(row.on_the_way))
