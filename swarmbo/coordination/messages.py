"""Messages between agents, their bytes and lengths.

On the wire: four bytes of CRC-32 of all that follows, four of the decision, four of the turn (unsigned, little-endian),
then a MessagePack array, numbers in it as raw little-endian float64. A message holds its numbers as an array; they
become bytes only on the wire. How long a message is, is said here alone: :meth:`Codec.size`.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from operator import attrgetter, or_
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int

from swarmbo.errors import TransportError

Key = tuple[str | int, ...]


class Message(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """Base of all messages.

    ``key`` names what a message is about; a recipient waits for keys. Whatever is said of one key to one recipient
    comes from one sender, and is taken in the order in which it was said: see :class:`Label`.
    """

    about: ClassVar[tuple[str, ...]] = ()  # the fields that tell a message from others of its kind

    @property
    def key(self) -> Key:
        """The kind of the message and what it is about."""
        tag, about = _told_apart_by(type(self))
        return (tag, *about(self))


@cache
def _told_apart_by(kind: type[Message]) -> tuple[str, Callable[[Message], tuple[str | int, ...]]]:
    fields: Any = attrgetter(*kind.about)
    return str(kind.__struct_config__.tag), fields if len(kind.about) > 1 else lambda message: (fields(message),)


class Numbers(Message, frozen=True):
    """Base of messages with numbers between a factor and one of its variables, one way or the other."""

    factor: str
    variable: str
    entries: np.ndarray

    about: ClassVar = ("factor", "variable")


class FromVariable(Numbers, frozen=True, tag="variable"):
    """A variable's message to a factor, and the value that it would choose by itself now."""

    choice: int = 0


class FromFactor(Numbers, frozen=True, tag="factor"):
    """A factor's message to a variable: the best the factor and all behind it can do, by the variable's value."""


class Conditioned(Numbers, frozen=True, tag="given"):
    """A factor's message to a variable, given those of its other variables that are decided."""


class Line(Numbers, frozen=True, tag="line"):
    """A factor's entries by the value of a variable, given all its others, and what breaking the factor counts."""

    weight: float = 1.0


class Choice(Message, frozen=True, tag="choice"):
    """The word of a variable's owner: which value it takes."""

    variable: str
    index: int

    about: ClassVar = ("variable",)


class Gain(Message, frozen=True, tag="gain"):
    """Gain of a variable by its best value, the others as they are.

    ``broken`` factors fewer would be broken, and the sum of those that are not would rise by ``worth``.
    """

    variable: str
    broken: int
    utility: float

    about: ClassVar = ("variable",)


class Report(Message, frozen=True, tag="report"):
    """Up the spanning tree: values of the subtree's factors, largest change of a message, whether a choice moved."""

    part: int
    agent: str
    entries: np.ndarray
    change: float
    moved: bool

    about: ClassVar = ("part", "agent")


class Verdict(Message, frozen=True, tag="verdict"):
    """Down the spanning tree: which of the choices just reported is the best so far (0: none); whether to stop.

    ``None``: no; the best of them, or else the last, is repaired or improved before anybody goes on.
    """

    part: int
    best: int
    stop: bool | None

    about: ClassVar = ("part",)


class FactorTable(Message, frozen=True, tag="table"):
    """A factor's whole table, for the agent that eliminates one of its variables."""

    factor: str
    shape: tuple[int, ...]
    entries: np.ndarray

    about: ClassVar = ("factor",)


class Eliminated(Message, frozen=True, tag="eliminated"):
    """The table that is left of a variable's step, over the variables that it was joined with."""

    variable: str
    shape: tuple[int, ...]
    entries: np.ndarray

    about: ClassVar = ("variable",)


class Decided(Message, frozen=True, tag="decided"):
    """The values of the variables that a variable's step was joined with, in the order of its scope."""

    variable: str
    indices: tuple[int, ...]

    about: ClassVar = ("variable",)


class Copy(Numbers, frozen=True, tag="copy"):
    """A factor's own value of a variable plus its scaled dual, for every start, to the variable's owner."""


class Consensus(Numbers, frozen=True, tag="consensus"):
    """A variable's sum of what its factors said, for every start, or its value, to a factor's owner."""


class Published(Message, frozen=True, tag="published"):
    """A factor's number for a neighbour before both move on, for every start."""

    factor: str
    neighbour: str
    entries: np.ndarray
    phase: int = 0

    about: ClassVar = ("factor", "neighbour", "phase")


class Slope(Numbers, frozen=True, tag="slope"):
    """A factor's derivative by a variable at the joint point being polished."""


class Reduced(Message, frozen=True, tag="tally"):
    """Up the spanning tree: sums over the factors behind a link, such as values at points that are compared."""

    part: int
    agent: str
    entries: np.ndarray

    about: ClassVar = ("part", "agent")


class Broadcast(Message, frozen=True, tag="ruling"):
    """Down the spanning tree: the sums over all factors of a connected part."""

    part: int
    entries: np.ndarray

    about: ClassVar = ("part",)


class Reports(Message, frozen=True, tag="reports"):
    """Words of agents to all, by agent: along the spanning tree, up and down, or handed on from one to the next."""

    part: int
    agent: str
    reports: dict[str, bytes]

    about: ClassVar = ("part", "agent")


class Note(Message, frozen=True, tag="note"):
    """An agent's belief as told to another, in a step in which all speak; empty where there is nothing to say."""

    agent: str
    content: bytes

    about: ClassVar = ("agent",)


class Pull(Numbers, frozen=True, tag="pull"):
    """A factor's copies of a variable plus their scaled duals, for every start, and the penalty by which it pulls."""

    weight: float


class Runs(Message, frozen=True, tag="runs"):
    """A variable's value in each run: the mean of what its factors said."""

    variable: str
    entries: np.ndarray

    about: ClassVar = ("variable",)


class Offer(Message, frozen=True, tag="offer"):
    """A variable's value in each lane, then how far it looks from there in each."""

    variable: str
    entries: np.ndarray
    number: int

    about: ClassVar = ("variable",)


class Utility(Numbers, frozen=True, tag="worth"):
    """A factor's value at each value that a variable looks at by its offer of some number, lane by lane."""

    number: int


class Valued(Message, frozen=True, tag="valued"):
    """A factor's value in each lane; who hears it hands it on, until all know."""

    factor: str
    entries: np.ndarray

    about: ClassVar = ("factor",)


# what changes of an agent's state
News = FromVariable | FromFactor | Choice | Pull | Runs | Offer | Utility | Published | Valued


class Bundle(Message, frozen=True, tag="bundle"):
    """Announcement to another agent by a deadline: what changed of the own state, and which bundles of the other have
    come.

    Of each entry the larger version holds. ``before`` has a bit for each of the bundles before ``heard``, -1 for none.
    """

    number: int
    heard: int
    before: int
    versions: tuple[int, ...]
    news: tuple[News, ...]

    about: ClassVar = ("number",)


class Label(NamedTuple):
    """Place among all messages of one key; so one that comes twice, late or out of order is known as such.

    Args:
        decision: The number of the decision that it belongs to, from 0 to 2^32 - 1.
        turn: How many messages of this key its sender told the recipient before it, in this decision.
    """

    decision: int = 0
    turn: int = 0


FIRST = Label()


NO_NUMBERS = np.zeros(0)


def _kinds(base: type[Message]) -> Iterator[type[Message]]:
    """All kinds of messages below a base: those that have a tag."""
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag is not None:
            yield kind
        yield from _kinds(kind)


_ANY_MESSAGE: Any = reduce(or_, _kinds(Message))


class UnfitError(TransportError):
    """A message arrived as it was sent, and is none."""


class Codec:
    """Messages to bytes and back."""

    _encoder: ClassVar = msgspec.msgpack.Encoder(enc_hook=lambda array: _packed(array))
    _outline: ClassVar = msgspec.msgpack.Encoder(enc_hook=lambda _: b"")  # numbers left out
    _decoder: ClassVar = msgspec.msgpack.Decoder(_ANY_MESSAGE, dec_hook=lambda _, entries: _unpacked(entries))
    _label: ClassVar = struct.Struct("<II")
    _check: ClassVar = struct.Struct("<I")

    @classmethod
    def encode(cls, message: Message, label: Label = FIRST) -> bytes:
        """The bytes that cross the link."""
        content = cls._label.pack(*label) + cls._encoder.encode(message)
        return cls._check.pack(zlib.crc32(content)) + content

    @classmethod
    def size(cls, message: Message) -> int:
        """Number of bytes that :meth:`encode` gives, worked out without packing the numbers."""
        outline = cls._check.size + cls._label.size + len(cls._outline.encode(message))
        return outline + array_widths(getattr(message, "entries", NO_NUMBERS).size)

    @classmethod
    def read(cls, payload: bytes) -> tuple[Label, Message]:
        """The message again, and which one it is. Numbers come back in one dimension.

        Raises:
            TransportError: If the bytes were changed on the way.
            UnfitError: If they were not, and are none of a message.
        """
        start, fewest = cls._check.size, cls._check.size + cls._label.size
        if len(payload) < fewest:
            raise TransportError(f"got a message of {len(payload)} bytes; wanted at least {fewest}: it was cut off")
        (said,) = cls._check.unpack_from(payload)
        if (found := zlib.crc32(payload[start:])) != said:
            raise TransportError(
                f"got {len(payload)} bytes with checksum {found:08x}; wanted {said:08x}, which their sender worked "
                "out: they were changed on the way"
            )
        try:
            message = cls._decoder.decode(payload[fewest:])
        except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
            raise UnfitError(f"got a message that is none of {__name__}: {error}; do versions differ?") from error
        return Label(*cls._label.unpack_from(payload, start)), message

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """The message alone; see :meth:`read`."""
        return cls.read(payload)[1]


def index_widths(indices: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """By how many bytes a message is longer for indices than for 0, which takes one."""
    return 1 * (indices >= 2**7) + 1 * (indices >= 2**8) + 2 * (indices >= 2**16)


def array_widths(sizes: Any) -> Any:
    """By how many bytes a message is longer for so many numbers than for none."""
    lengths = 8 * sizes
    return lengths + (lengths >= 2**8) + 2 * (lengths >= 2**16)  # MessagePack's bin 8, bin 16, bin 32


def text_widths(names: Sequence[str]) -> Int[np.ndarray, " n"]:
    """By how many bytes a message is longer for a name than for none: MessagePack's fixstr, str 8, str 16, str 32."""
    lengths = np.array([len(name.encode()) for name in names], dtype=np.int64)
    return lengths + (lengths >= 2**5) + (lengths >= 2**8) + 2 * (lengths >= 2**16)


def _packed(array: Any) -> bytes:
    """The entries in C order."""
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def _unpacked(entries: Any) -> Float[np.ndarray, " _"]:
    if not isinstance(entries, bytes) or len(entries) % 8:
        raise ValueError("wanted the bytes of float64 numbers")  # which msgspec makes an error of its own of
    return np.frombuffer(entries, dtype="<f8")
