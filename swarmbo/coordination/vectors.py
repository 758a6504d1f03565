"""Vectors of float64 in LLVM's own language: what the steps of max-sum's compiled form are put together from."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

WIDE, NARROW = 16, 8  # lanes: two registers of the widest kind, and one
DOUBLE, INT, LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
NO_NAN = ("nnan", "nsz")  # neither NaN nor the sign of zero matters: else there would be no instruction for it
NOTHING = float("-inf")


@contextmanager
def steps(builder: Any, n: Any, width: int) -> Generator[Any]:
    """Where each step over n >= ``width`` entries begins; the last one ends with them."""
    last = builder.sub(n, INT(width))
    with cgutils.for_range_slice(builder, INT(0), n, INT(width), intp=INT) as (k, _):
        yield builder.select(builder.icmp_signed("<", k, last), k, last)


def pointer_to(builder: Any, address: Any, place: Any) -> Any:
    """Where the number at a place, counted from an address, lies."""
    return builder.gep(builder.inttoptr(address, DOUBLE.as_pointer()), [place])


def loaded(builder: Any, pointer: Any, width: int) -> Any:
    """A vector read from memory; it need not be aligned."""
    return builder.load(builder.bitcast(pointer, ir.VectorType(DOUBLE, width).as_pointer()), align=8)


def stored(builder: Any, vector: Any, pointer: Any) -> None:
    """Put a vector into memory."""
    builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=8)


def variable(builder: Any, width: int, number: float) -> Any:
    """A slot for a vector, a number in all lanes at first."""
    slot = cgutils.alloca_once(builder, ir.VectorType(DOUBLE, width))
    builder.store(constant(width, number), slot)
    return slot


def constant(width: int, number: float) -> Any:
    """A vector with a number in all lanes."""
    return ir.Constant(ir.VectorType(DOUBLE, width), [ir.Constant(DOUBLE, number)] * width)


def called(builder: Any, name: str, *numbers: Any, fastmath: Sequence[str] = ()) -> Any:
    """Call one of LLVM's functions of float64 or of vectors of them."""
    kind = numbers[0].type
    suffix = f"v{kind.count}f64" if isinstance(kind, ir.VectorType) else "f64"
    function = ir.FunctionType(kind, [kind] * len(numbers))
    called = cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}")
    return builder.call(called, numbers, fastmath=fastmath)


def maximum(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two numbers, or of two vectors lane by lane; none is NaN."""
    return called(builder, "maxnum", a, b, fastmath=NO_NAN)


def shuffled(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """Some lanes of two vectors, those of the second counted on from the first's."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(LANE, len(lanes)), list(lanes)))


def spread(builder: Any, number: Any, width: int) -> Any:
    """One number in all lanes."""
    empty = ir.Constant(ir.VectorType(DOUBLE, width), ir.Undefined)
    return shuffled(builder, builder.insert_element(empty, number, LANE(0)), empty, [0] * width)


def halved(builder: Any, vector: Any, width: int) -> Any:
    """The larger of lanes that are half a vector apart, until ``width`` are left."""
    while vector.type.count > width:
        half = vector.type.count // 2
        low, high = (shuffled(builder, vector, vector, range(at, at + half)) for at in (0, half))
        vector = maximum(builder, low, high)
    return vector


def of_one(builder: Any, vector: Any) -> Any:
    """The largest entry of a vector."""
    return builder.extract_element(halved(builder, vector, 1), LANE(0))


def of_four(builder: Any, vectors: Sequence[Any]) -> Any:
    """The largest entries of four vectors, as one vector of four; lanes cross between halves only once."""
    a, b, c, d = (halved(builder, vector, 4) for vector in vectors)
    one, other = (
        maximum(builder, *(shuffled(builder, *pair, lanes) for lanes in ([0, 4, 2, 6], [1, 5, 3, 7])))
        for pair in ((a, b), (c, d))
    )
    return maximum(builder, *(shuffled(builder, one, other, lanes) for lanes in ([0, 1, 4, 5], [2, 3, 6, 7])))


def normaliser(builder: Any, entries: Any) -> Any:
    """What is taken off each entry of a message, in all lanes: the largest one; 0 where all are forbidden."""
    highest = of_one(builder, entries)
    forbids_all = builder.fcmp_ordered("==", highest, DOUBLE(NOTHING))
    return spread(builder, builder.select(forbids_all, DOUBLE(0.0), highest), NARROW)


def mixing(builder: Any, damping: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """What makes of normalised entries and those of before the new ones, and by how much each has changed."""
    is_damped = builder.fcmp_ordered("!=", damping, DOUBLE(0.0))  # else 0 * -inf would be no number
    kept = spread(builder, damping, NARROW)
    added = spread(builder, builder.fsub(DOUBLE(1.0), damping), NARROW)

    def mixed(entries: Any, old: Any) -> tuple[Any, Any]:
        both = builder.fadd(builder.fmul(kept, old), builder.fmul(added, entries))
        new = builder.select(is_damped, both, entries)
        is_same = builder.fcmp_ordered("==", new, old)  # both forbidden: the difference would be no number
        change = called(builder, "fabs", builder.fsub(new, old))
        return new, builder.select(is_same, constant(NARROW, 0.0), change)

    return mixed
