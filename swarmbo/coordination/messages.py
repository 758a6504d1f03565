"""What agents say to one another, and how long it is: MessagePack arrays, numbers as raw little-endian float64."""

from typing import ClassVar, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float, Int

from swarmbo.records import Traffic
from swarmbo.transport import Routes

Key = tuple[str | int, ...]
Index = TypeVar("Index", int, Int[np.ndarray, "..."])


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages.

    ``key`` names what a message is about; a recipient waits for keys. No key is under way twice before its
    recipient has taken the first.
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


class Codec:
    """Messages to bytes and back."""

    _encoder: ClassVar = msgspec.msgpack.Encoder()
    _decoder: ClassVar = msgspec.msgpack.Decoder(AnyMessage)

    @classmethod
    def encode(cls, message: Message) -> bytes:
        """The bytes that cross the link."""
        return cls._encoder.encode(message)

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """The message again."""
        return cls._decoder.decode(payload)


def packed(array: Float[np.ndarray, "..."]) -> bytes:
    """The entries in C order."""
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def unpacked(entries: bytes, *shape: int) -> Float[np.ndarray, "..."]:
    """The array again; one dimension unless a shape is given."""
    array = np.frombuffer(entries, dtype="<f8")
    return array.reshape(shape) if shape else array


def encoded_size(message: Message, n_entries: int = 0) -> int:
    """Encoded size of a message whose ``entries`` or ``values`` are left empty, were they ``n_entries`` numbers."""
    length = 8 * n_entries
    marker = 2 if length < 2**8 else 3 if length < 2**16 else 5  # MessagePack's bin 8, bin 16, bin 32
    empty = 2
    return len(Codec.encode(message)) + (marker - empty + length if n_entries else 0)


def extra_width(index: Index) -> Index:
    """How many bytes longer an index is than 0, which takes one; one index or an array of them."""
    return 1 * (index >= 2**7) + 1 * (index >= 2**8) + 2 * (index >= 2**16)


class Ledger:
    """Adds up what a transport would count, without sending anything.

    Args:
        routes: Who reaches whom.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self.traffic = Traffic()

    def add(
        self, sender: str, recipient: str, message: Message, n_entries: int = 0, times: int = 1, extra: int = 0
    ) -> None:
        """Note a message, unless it stays with its sender.

        Args:
            sender: From whom.
            recipient: To whom.
            message: It, with its numbers left empty.
            n_entries: How many numbers it has.
            times: How often it is sent.
            extra: Bytes on top, over all times.

        Raises:
            TransportError: If no path of links joins the two.
        """
        if sender == recipient or times == 0:
            return
        hops = self._routes.hops(sender, recipient)
        size = encoded_size(message, n_entries)
        self.traffic += Traffic(messages=times, bytes=times * size + extra, transmissions=times * hops)
