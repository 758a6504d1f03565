"""Vector instructions of max-sum's compiled form, written out: compilers find too few of them by themselves.

All work on addresses of float64 in memory, as unsigned integers. Arrays would be slower: numba counts references to
them wherever they are handed on, and asks of every index whether it counts from the end.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WIDE, NARROW = 16, 8  # lanes: two registers of the widest kind, and one
LONG, LONGEST = 32, 1024  # columns with which rows are read one by one; what goes with longer ones leaves the cache
_DOUBLE, _INT, _LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_NO_NAN = ("nnan", "nsz")  # neither NaN nor the sign of zero matters: else there would be no instruction for it
_NOTHING = float("-inf")


@intrinsic
def _load(_typing: Any, address: Any, place: Any) -> Any:
    """The number at a place, counted from an address."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(builder, *arguments))

    return types.float64(address, place), emit


@intrinsic
def _load_whole(_typing: Any, address: Any, place: Any) -> Any:
    """The whole number of 64 bits at a place, counted from an address; it is not negative."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], _INT.as_pointer())
        return builder.load(builder.gep(numbers, [arguments[1]]))

    return types.uint64(address, place), emit


@intrinsic
def _store(_typing: Any, address: Any, place: Any, number: Any) -> Any:
    """Put a number at a place, counted from an address."""

    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(address, place, number), emit


@intrinsic
def _larger(_typing: Any, a: Any, b: Any) -> Any:
    """The larger of two float64, neither of them NaN; -inf is fine."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _maximum(builder, *arguments)

    return types.float64(a, b), emit


def _rows(width: int, count: int) -> Any:
    """Four rows of a table at once or one, in steps of ``width`` columns; the last step overlaps the one before.

    The intrinsic takes the addresses of the first row, of what is added along the rows (one each), of what is added
    along the columns (m), of the maxima over all rows so far (m, renewed), and of where the rows' maxima are put; last
    the number m >= ``width`` of columns. That a maximum is taken twice where steps overlap changes nothing.
    """

    @intrinsic
    def rows(_typing: Any, table: Any, along: Any, others: Any, rest: Any, to_first: Any, m: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            table, along, others, rest, to_first, m = arguments
            starts = [_pointer(builder, table, builder.mul(m, _INT(row))) for row in range(count)]
            own = [_spread(builder, builder.load(_pointer(builder, along, _INT(row))), width) for row in range(count)]
            highest = [_variable(builder, width, _NOTHING) for _ in range(count)]
            with _steps(builder, m, width) as k:
                said = _vector(builder, _pointer(builder, others, k), width)
                rest_at = _pointer(builder, rest, k)
                over_rows = _vector(builder, rest_at, width)
                for slot, start, own_entry in zip(highest, starts, own, strict=True):
                    row = _vector(builder, builder.gep(start, [k]), width)
                    builder.store(_maximum(builder, builder.load(slot), builder.fadd(row, said)), slot)
                    over_rows = _maximum(builder, over_rows, builder.fadd(row, own_entry))
                _put(builder, over_rows, rest_at)
            maxima, put = [builder.load(slot) for slot in highest], _pointer(builder, to_first, _INT(0))
            if count == 1:
                builder.store(_of_one(builder, maxima[0]), put)
            else:
                _put(builder, _of_four(builder, maxima), put)
            return context.get_dummy_value()

        return types.void(table, along, others, rest, to_first, m), emit

    return rows


@intrinsic
def _renewed(_typing: Any, fresh: Any, previous: Any, out: Any, size: Any, damping: Any) -> Any:
    """One message of ``size`` >= 8 entries, normalised and damped, put at the address ``out``; its largest change."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        fresh, previous, out, size, damping = arguments
        slot = _variable(builder, NARROW, _NOTHING)
        with _steps(builder, size, NARROW) as k:
            entries = _vector(builder, _pointer(builder, fresh, k), NARROW)
            builder.store(_maximum(builder, builder.load(slot), entries), slot)
        highest = _of_one(builder, builder.load(slot))
        forbids_all = builder.fcmp_ordered("==", highest, _DOUBLE(_NOTHING))
        taken = _spread(builder, builder.select(forbids_all, _DOUBLE(0.0), highest), NARROW)
        is_damped = builder.fcmp_ordered("!=", damping, _DOUBLE(0.0))  # else 0 * -inf would be no number
        kept = _spread(builder, damping, NARROW)
        added = _spread(builder, builder.fsub(_DOUBLE(1.0), damping), NARROW)
        largest = _variable(builder, NARROW, 0.0)
        with _steps(builder, size, NARROW) as k:
            entries = builder.fsub(_vector(builder, _pointer(builder, fresh, k), NARROW), taken)
            old = _vector(builder, _pointer(builder, previous, k), NARROW)
            mixed = builder.fadd(builder.fmul(kept, old), builder.fmul(added, entries))
            new = builder.select(is_damped, mixed, entries)
            _put(builder, new, _pointer(builder, out, k))
            is_same = builder.fcmp_ordered("==", new, old)  # both forbidden: the difference would be no number
            change = _named(builder, "fabs", builder.fsub(new, old))
            change = builder.select(is_same, _constant(NARROW, 0.0), change)
            builder.store(_maximum(builder, builder.load(largest), change), largest)
        return _of_one(builder, builder.load(largest))

    return types.float64(fresh, previous, out, size, damping), emit


@intrinsic
def _told(_typing: Any, incoming: Any, outgoing: Any, starts: Any, degree: Any, size: Any, sums: Any) -> Any:
    """What a variable of ``size`` >= 8 values tells its factors; the largest entry of the sum of what they said.

    The intrinsic takes the addresses of all that factors say and of all that variables say, that of the places (64 bits
    each) at which the variable's ``degree`` messages begin, and that of where the sum is put.
    """

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        incoming, outgoing, starts, degree, size, sums = arguments
        highest, summed = _variable(builder, NARROW, _NOTHING), _variable(builder, NARROW, 0.0)
        places = builder.inttoptr(starts, _INT.as_pointer())

        def message(base: Any, edge: Any, k: Any) -> Any:
            return _pointer(builder, base, builder.add(builder.load(builder.gep(places, [edge])), k))

        with _steps(builder, size, NARROW) as k:
            builder.store(_constant(NARROW, 0.0), summed)
            with cgutils.for_range(builder, degree, intp=_INT) as loop:
                before = builder.load(summed)
                _put(builder, before, message(outgoing, loop.index, k))
                said = _vector(builder, message(incoming, loop.index, k), NARROW)
                builder.store(builder.fadd(before, said), summed)
            belief = builder.load(summed)
            _put(builder, belief, _pointer(builder, sums, k))
            builder.store(_maximum(builder, builder.load(highest), belief), highest)
            builder.store(_constant(NARROW, 0.0), summed)
            with cgutils.for_range(builder, builder.sub(degree, _INT(1)), intp=_INT) as loop:
                edge = builder.sub(builder.sub(degree, _INT(1)), loop.index)
                said = _vector(builder, message(incoming, edge, k), NARROW)
                after = builder.fadd(builder.load(summed), said)
                builder.store(after, summed)
                out = message(outgoing, builder.sub(edge, _INT(1)), k)
                _put(builder, builder.fadd(_vector(builder, out, NARROW), after), out)
        return _of_one(builder, builder.load(highest))

    return types.float64(incoming, outgoing, starts, degree, size, sums), emit


@contextmanager
def _steps(builder: Any, n: Any, width: int) -> Generator[Any]:
    """Where each step over n >= ``width`` entries begins; the last one ends with them."""
    last = builder.sub(n, _INT(width))
    with cgutils.for_range_slice(builder, _INT(0), n, _INT(width), intp=_INT) as (k, _):
        yield builder.select(builder.icmp_signed("<", k, last), k, last)


def _pointer(builder: Any, address: Any, place: Any) -> Any:
    return builder.gep(builder.inttoptr(address, _DOUBLE.as_pointer()), [place])


def _vector(builder: Any, pointer: Any, width: int) -> Any:
    return builder.load(builder.bitcast(pointer, ir.VectorType(_DOUBLE, width).as_pointer()), align=8)


def _put(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=8)


def _variable(builder: Any, width: int, number: float) -> Any:
    slot = cgutils.alloca_once(builder, ir.VectorType(_DOUBLE, width))
    builder.store(_constant(width, number), slot)
    return slot


def _constant(width: int, number: float) -> Any:
    return ir.Constant(ir.VectorType(_DOUBLE, width), [ir.Constant(_DOUBLE, number)] * width)


def _named(builder: Any, name: str, *numbers: Any, fastmath: Sequence[str] = ()) -> Any:
    """Call one of LLVM's functions of float64 or of vectors of them."""
    kind = numbers[0].type
    suffix = f"v{kind.count}f64" if isinstance(kind, ir.VectorType) else "f64"
    function = ir.FunctionType(kind, [kind] * len(numbers))
    called = cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}")
    return builder.call(called, numbers, fastmath=fastmath)


def _maximum(builder: Any, a: Any, b: Any) -> Any:
    return _named(builder, "maxnum", a, b, fastmath=_NO_NAN)


def _shuffled(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_LANE, len(lanes)), list(lanes)))


def _spread(builder: Any, number: Any, width: int) -> Any:
    """One number in all lanes."""
    empty = ir.Constant(ir.VectorType(_DOUBLE, width), ir.Undefined)
    return _shuffled(builder, builder.insert_element(empty, number, _LANE(0)), empty, [0] * width)


def _halved(builder: Any, vector: Any, width: int) -> Any:
    """The larger of lanes that are half a vector apart, until ``width`` are left."""
    while vector.type.count > width:
        half = vector.type.count // 2
        low, high = (_shuffled(builder, vector, vector, range(at, at + half)) for at in (0, half))
        vector = _maximum(builder, low, high)
    return vector


def _of_one(builder: Any, vector: Any) -> Any:
    """The largest entry of a vector."""
    return builder.extract_element(_halved(builder, vector, 1), _LANE(0))


def _of_four(builder: Any, vectors: Sequence[Any]) -> Any:
    """The largest entries of four vectors, as one vector of four: neighbouring lanes of two become one half."""
    vectors = [_halved(builder, vector, 4) for vector in vectors]
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_maximum(builder, *(_shuffled(builder, a, b, range(at, 8, 2)) for at in (0, 1))) for a, b in pairs]
    return vectors[0]


# Called without the first argument, which numba supplies.
load: Any = _load
load_whole: Any = _load_whole
store: Any = _store
larger: Any = _larger
renewed: Any = _renewed
told: Any = _told
wide_rows: Any = _rows(WIDE, 4)
narrow_rows: Any = _rows(NARROW, 4)
long_row: Any = _rows(WIDE, 1)
