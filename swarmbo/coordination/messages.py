"""Messages between agents, their bytes and lengths.

On the wire: four bytes of CRC-32 of everything after them, four of the decision, four of the turn (unsigned,
little-endian), then a MessagePack array, with numbers as raw little-endian float64. A message holds its numbers as an
array; they become bytes only on the wire. :meth:`Codec.size` is the only definition of a message's length.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from operator import attrgetter, or_
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int

from swarmbo.errors import TransportError

Key = tuple[str | int, ...]

# fields that identify a message among those of its kind
_TOPIC = ("factor", "variable", "neighbour", "phase", "part", "agent")


class Message(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """Base of messages; those of one ``key`` to one recipient have one sender, and are taken in the order sent."""

    @property
    def key(self) -> Key:
        """Kind of the message, and the fields that identify it among those of its kind (``_TOPIC``)."""
        tag, about = _key_fields(type(self))
        return (tag, *about(self))


@cache
def _key_fields(kind: type[Message]) -> tuple[str, Callable[[Message], tuple[str | int, ...]]]:
    named = [field for field in kind.__struct_fields__ if field in _TOPIC]
    fields: Any = attrgetter(*named)
    return str(kind.__struct_config__.tag), fields if len(named) > 1 else lambda message: (fields(message),)


class Numbers(Message, frozen=True):
    """Base of messages with numbers between a factor and one of its variables, in either direction."""

    factor: str
    variable: str
    entries: np.ndarray


class FromVariable(Numbers, frozen=True, tag="variable"):
    """A variable's message to a factor, and the variable's present best value by its own belief."""

    choice: int = 0


class FromFactor(Numbers, frozen=True, tag="factor"):
    """A factor's message to a variable: for each value, the largest sum of the factor and all factors behind it."""


class Conditioned(Numbers, frozen=True, tag="given"):
    """A factor's message to a variable, given its other variables that are decided."""


class Line(Numbers, frozen=True, tag="line"):
    """A factor's entries by the value of a variable, given all others, and the weight of breaking the factor."""

    weight: float = 1.0


class Choice(Message, frozen=True, tag="choice"):
    """Decision of a variable's owner: the index of its value."""

    variable: str
    index: int


class Gain(Message, frozen=True, tag="gain"):
    """Gain if a variable takes its best value: reduction in violated factors, and increase of the sum of the rest."""

    variable: str
    broken: int
    utility: float


class Report(Message, frozen=True, tag="report"):
    """Report up the tree: values of the subtree's factors, largest change of a message, and whether a choice moved."""

    part: int
    agent: str
    entries: np.ndarray
    change: float
    moved: bool


class Verdict(Message, frozen=True, tag="verdict"):
    """Decision sent down the spanning tree: the number, from 1, of the reported choice that is the new best (0: none),
    and whether to stop; None: first repair or improve the new best choice or, if there is none, the last choice.
    """

    part: int
    best: int
    stop: bool | None


class FactorTable(Message, frozen=True, tag="table"):
    """A factor's whole table, for the agent that eliminates one of its variables."""

    factor: str
    shape: tuple[int, ...]
    entries: np.ndarray


class Eliminated(Message, frozen=True, tag="eliminated"):
    """Table that is left when a variable is eliminated, over the variables that it was joined with."""

    variable: str
    shape: tuple[int, ...]
    entries: np.ndarray


class Decided(Message, frozen=True, tag="decided"):
    """Values of the variables that an eliminated variable was joined with, in the order of its bucket's scope."""

    variable: str
    indices: tuple[int, ...]


class Copy(Numbers, frozen=True, tag="copy"):
    """A factor's own value of a variable plus its scaled dual, for every start, to the variable's owner."""


class Consensus(Numbers, frozen=True, tag="consensus"):
    """Sum of a variable's messages from factors, for every start, to a factor; or its value, in either direction."""


class Published(Message, frozen=True, tag="published"):
    """A factor's number for a neighbour in a phase of exchange, for every start."""

    factor: str
    neighbour: str
    entries: np.ndarray
    phase: int = 0


class Slope(Numbers, frozen=True, tag="slope"):
    """A factor's derivative with respect to a variable at the joint point being polished."""


class Reduced(Message, frozen=True, tag="tally"):
    """Numbers combined over an agent's subtree, such as sums of values at points; they go up the spanning tree."""

    part: int
    agent: str
    entries: np.ndarray


class Broadcast(Message, frozen=True, tag="ruling"):
    """Numbers combined over a connected part; they go down the spanning tree."""

    part: int
    entries: np.ndarray


class Reports(Message, frozen=True, tag="reports"):
    """Data of agents for all agents, by author: along the spanning tree, or forwarded from one agent to the next."""

    part: int
    agent: str
    reports: dict[str, bytes]


class Note(Message, frozen=True, tag="note"):
    """An agent's belief for another agent, in a step in which all send; empty if there is nothing to send."""

    agent: str
    content: bytes


class Pull(Numbers, frozen=True, tag="pull"):
    """A factor's copies of a variable plus their scaled duals, for every start, and the factor's penalty."""

    weight: float


class Runs(Message, frozen=True, tag="runs"):
    """A variable's value in each run: the mean of its factors' messages."""

    variable: str
    entries: np.ndarray


class Offer(Message, frozen=True, tag="offer"):
    """A variable's value in each joint start, then its search reach in each."""

    variable: str
    entries: np.ndarray
    number: int


class Utility(Numbers, frozen=True, tag="worth"):
    """A factor's value at each candidate of a variable's offer of this number, joint start by joint start."""

    number: int


class Valued(Message, frozen=True, tag="valued"):
    """A factor's value in each joint start; recipients forward it until all agents have it."""

    factor: str
    entries: np.ndarray


# entries of bundles: changes of an agent's state
Update = FromVariable | FromFactor | Choice | Pull | Runs | Offer | Utility | Published | Valued


class Bundle(Message, frozen=True, tag="bundle"):
    """Announcement by a deadline: own changes, and arrivals of the other's bundles. ``newest`` is the last one's number
    (-1: none); ``earlier`` has a bit for each bundle before it. The larger version of an entry is valid.
    """

    number: int
    newest: int
    earlier: int
    versions: tuple[int, ...]
    updates: tuple[Update, ...]

    @property
    def key(self) -> Key:
        """Kind and number."""
        return "bundle", self.number


class Label(NamedTuple):
    """Number of the decision, and of a message among those of its key, to recognise repeated or reordered messages."""

    decision: int = 0
    sequence: int = 0


FIRST = Label()
NO_NUMBERS = np.zeros(0)


def _kinds(base: type[Message]) -> Iterator[type[Message]]:
    """All kinds of messages below a base: those with a tag."""
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag is not None:
            yield kind
        yield from _kinds(kind)


_ANY_MESSAGE: Any = reduce(or_, _kinds(Message))


class UnfitError(TransportError):
    """A message arrived unchanged, but cannot be decoded as a message."""


class Codec:
    """Conversion of messages to bytes and back."""

    _encoder: ClassVar = msgspec.msgpack.Encoder(enc_hook=lambda array: np.ascontiguousarray(array, "<f8").tobytes())
    _outline: ClassVar = msgspec.msgpack.Encoder(enc_hook=lambda _: b"")  # numbers left out
    _decoder: ClassVar = msgspec.msgpack.Decoder(_ANY_MESSAGE, dec_hook=lambda _, entries: _unpacked(entries))
    _label: ClassVar = struct.Struct("<II")
    _check: ClassVar = struct.Struct("<I")

    @classmethod
    def encode(cls, message: Message, label: Label = FIRST) -> bytes:
        """Encode a message as the bytes that cross a link."""
        content = cls._label.pack(*label) + cls._encoder.encode(message)
        return cls._check.pack(zlib.crc32(content)) + content

    @classmethod
    def size(cls, message: Message) -> int:
        """Number of bytes of :meth:`encode`, computed without packing the numbers."""
        outline = cls._check.size + cls._label.size + len(cls._outline.encode(message))
        return outline + array_widths(getattr(message, "entries", NO_NUMBERS).size)

    @classmethod
    def read(cls, payload: bytes) -> tuple[Label, Message]:
        """Decode a message and its label; TransportError if bytes changed, UnfitError if they are not a message."""
        start, fewest = cls._check.size, cls._check.size + cls._label.size
        if len(payload) < fewest:
            raise TransportError(f"got a message of {len(payload)} bytes; wanted at least {fewest}: it was cut off")
        (stated,) = cls._check.unpack_from(payload)
        if (computed := zlib.crc32(payload[start:])) != stated:
            wanted = f"{stated:08x}, which the sender computed: they were changed in transit"
            raise TransportError(f"got {len(payload)} bytes with checksum {computed:08x}; wanted {wanted}")
        try:
            message = cls._decoder.decode(payload[fewest:])
        except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
            raise UnfitError(f"got a message that {__name__} does not define: {error}; do versions differ?") from error
        return Label(*cls._label.unpack_from(payload, start)), message


def index_widths(indices: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Additional bytes of a message for indices, compared with index 0, which takes one byte."""
    return 1 * (indices >= 2**7) + 1 * (indices >= 2**8) + 2 * (indices >= 2**16)


def array_widths(sizes: Any) -> Any:
    """Additional bytes of a message for ``sizes`` numbers, compared with none."""
    lengths = 8 * sizes
    return lengths + (lengths >= 2**8) + 2 * (lengths >= 2**16)  # MessagePack's bin 8, bin 16, bin 32


def text_widths(names: Iterable[str]) -> Int[np.ndarray, " n"]:
    """Additional bytes of a message for a name, compared with none: MessagePack's fixstr, str 8, str 16, str 32."""
    lengths = np.array([len(name.encode()) for name in names], dtype=np.int64)
    return lengths + (lengths >= 2**5) + (lengths >= 2**8) + 2 * (lengths >= 2**16)


def _unpacked(entries: Any) -> Float[np.ndarray, " _"]:
    if not isinstance(entries, bytes) or len(entries) % 8:
        raise ValueError("wanted the bytes of float64 numbers")  # msgspec turns this into its own error
    return np.frombuffer(entries, dtype="<f8")
