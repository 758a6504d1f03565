"""What agents say to one another, and how long it is.

On the wire: four bytes of CRC-32 of all that follows, four of the decision, four of the turn (unsigned, little-endian),
then a MessagePack array, numbers in it as raw little-endian float64.
"""

import struct
import zlib
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.errors import TransportError

Key = tuple[str | int, ...]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages.

    ``key`` names what a message is about; a recipient waits for keys. Whatever is said of one key to one recipient
    comes from one sender, and is taken in the order in which it was said: see :class:`Label`.
    """

    about: ClassVar[tuple[str, ...]] = ()  # the fields that tell a message from others of its kind

    @property
    def key(self) -> Key:
        """The kind of the message and what it is about."""
        return (str(self.__struct_config__.tag), *(getattr(self, field) for field in self.about))


class FromVariable(Message, frozen=True, tag="variable"):
    """A variable's message to a factor, and the value that it would choose by itself now."""

    factor: str
    variable: str
    entries: bytes
    choice: int = 0

    about: ClassVar = ("factor", "variable")


class FromFactor(Message, frozen=True, tag="factor"):
    """A factor's message to a variable: the best the factor and all behind it can do, by the variable's value."""

    factor: str
    variable: str
    entries: bytes

    about: ClassVar = ("factor", "variable")


class Conditioned(Message, frozen=True, tag="given"):
    """A factor's message to a variable, given those of its other variables that are decided."""

    factor: str
    variable: str
    entries: bytes

    about: ClassVar = ("factor", "variable")


class Line(Message, frozen=True, tag="line"):
    """A factor's entries by the value of a variable, given all its others, and what breaking the factor counts."""

    factor: str
    variable: str
    entries: bytes
    weight: float

    about: ClassVar = ("factor", "variable")


class Choice(Message, frozen=True, tag="choice"):
    """The word of a variable's owner: which value it takes."""

    variable: str
    index: int

    about: ClassVar = ("variable",)


class Report(Message, frozen=True, tag="report"):
    """Up the spanning tree: values of the subtree's factors, largest change of a message, whether a choice moved."""

    part: int
    agent: str
    values: bytes
    change: float
    moved: bool

    about: ClassVar = ("part", "agent")


class Verdict(Message, frozen=True, tag="verdict"):
    """Down the spanning tree: which of the choices just reported is the best so far (0: none); whether to stop."""

    part: int
    best: int
    stop: bool

    about: ClassVar = ("part",)


class FactorTable(Message, frozen=True, tag="table"):
    """A factor's whole table, for the agent that eliminates one of its variables."""

    factor: str
    shape: tuple[int, ...]
    entries: bytes

    about: ClassVar = ("factor",)


class Eliminated(Message, frozen=True, tag="eliminated"):
    """The table that is left of a variable's step, over the variables that it was joined with."""

    variable: str
    shape: tuple[int, ...]
    entries: bytes

    about: ClassVar = ("variable",)


class Decided(Message, frozen=True, tag="decided"):
    """The values of the variables that a variable's step was joined with, in the order of its scope."""

    variable: str
    indices: tuple[int, ...]

    about: ClassVar = ("variable",)


class Copy(Message, frozen=True, tag="copy"):
    """A factor's own value of a variable plus its scaled dual, for every start, to the variable's owner."""

    factor: str
    variable: str
    entries: bytes

    about: ClassVar = ("factor", "variable")


class Consensus(Message, frozen=True, tag="consensus"):
    """What comes of a variable, to a factor's owner: the sum of what its factors said, for every start; its value."""

    factor: str
    variable: str
    entries: bytes

    about: ClassVar = ("factor", "variable")


class Published(Message, frozen=True, tag="published"):
    """What a factor tells a neighbour before both move on: one number for every start."""

    factor: str
    neighbour: str
    entries: bytes
    phase: int = 0

    about: ClassVar = ("factor", "neighbour", "phase")


class Slope(Message, frozen=True, tag="slope"):
    """A factor's derivative by a variable at the joint point being polished."""

    factor: str
    variable: str
    entries: bytes

    about: ClassVar = ("factor", "variable")


class Tally(Message, frozen=True, tag="tally"):
    """Up the spanning tree: sums over the factors behind a link, such as values at points that are compared."""

    part: int
    agent: str
    entries: bytes

    about: ClassVar = ("part", "agent")


class Ruling(Message, frozen=True, tag="ruling"):
    """Down the spanning tree: the sums over all factors of a connected part."""

    part: int
    entries: bytes

    about: ClassVar = ("part",)


AnyMessage = (
    FromVariable
    | FromFactor
    | Conditioned
    | Line
    | Choice
    | Report
    | Verdict
    | FactorTable
    | Eliminated
    | Decided
    | Copy
    | Consensus
    | Published
    | Slope
    | Tally
    | Ruling
)


class Label(NamedTuple):
    """Which of all messages of one key this is; so one that comes twice, late or out of order is known as such.

    Args:
        decision: The number of the decision that it belongs to, from 0 to 2^32 - 1.
        turn: How many messages of this key its sender told the recipient before it, in this decision.
    """

    decision: int = 0
    turn: int = 0


FIRST = Label()


class Codec:
    """Messages to bytes and back."""

    _encoder: ClassVar = msgspec.msgpack.Encoder()
    _decoder: ClassVar = msgspec.msgpack.Decoder(AnyMessage)
    _label: ClassVar = struct.Struct("<II")
    _check: ClassVar = struct.Struct("<I")

    @classmethod
    def encode(cls, message: Message, label: Label = FIRST) -> bytes:
        """The bytes that cross the link."""
        content = cls._label.pack(*label) + cls._encoder.encode(message)
        return cls._check.pack(zlib.crc32(content)) + content

    @classmethod
    def read(cls, payload: bytes) -> tuple[Label, Message]:
        """The message again, and which one it is.

        Raises:
            TransportError: If the bytes are not those of a message, or were changed on the way.
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
        except msgspec.MsgspecError as error:
            raise TransportError(f"got a message that is none of {__name__}: {error}; do versions differ?") from error
        return Label(*cls._label.unpack_from(payload, start)), message

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """The message alone; see :meth:`read`."""
        return cls.read(payload)[1]


def packed(array: Float[np.ndarray, "..."]) -> bytes:
    """The entries in C order."""
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def unpacked(entries: bytes, *shape: int) -> Float[np.ndarray, "..."]:
    """The array again; one dimension unless a shape is given."""
    array = np.frombuffer(entries, dtype="<f8")
    return array.reshape(shape) if shape else array
