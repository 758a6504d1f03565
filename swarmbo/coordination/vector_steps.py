"""Vector instructions of max-sum's compiled form, written out: compilers find too few of them by themselves.

All work on addresses of float64 in memory, as unsigned integers. Arrays would be slower: numba counts references to
them wherever they are handed on, and asks of every index whether it counts from the end.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from swarmbo.coordination.vectors import (
    INT,
    NARROW,
    NOTHING,
    WIDE,
    constant,
    loaded,
    maximum,
    mixing,
    normaliser,
    of_four,
    of_one,
    pointer_to,
    spread,
    steps,
    stored,
    variable,
)

LONG, LONGEST = 32, 1024  # columns with which rows are read one by one; what goes with longer ones leaves the cache


@intrinsic
def _load(_typing: Any, address: Any, place: Any) -> Any:
    """The number at a place, counted from an address."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(pointer_to(builder, *arguments))

    return types.float64(address, place), emit


@intrinsic
def _load_whole(_typing: Any, address: Any, place: Any) -> Any:
    """The whole number of 64 bits at a place, counted from an address; it is not negative."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], INT.as_pointer())
        return builder.load(builder.gep(numbers, [arguments[1]]))

    return types.uint64(address, place), emit


@intrinsic
def _store(_typing: Any, address: Any, place: Any, number: Any) -> Any:
    """Put a number at a place, counted from an address."""

    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], pointer_to(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(address, place, number), emit


@intrinsic
def _larger(_typing: Any, a: Any, b: Any) -> Any:
    """The larger of two float64, neither of them NaN; -inf is fine."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return maximum(builder, *arguments)

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
            starts = [pointer_to(builder, table, builder.mul(m, INT(row))) for row in range(count)]
            own = [spread(builder, builder.load(pointer_to(builder, along, INT(row))), width) for row in range(count)]
            highest = [variable(builder, width, NOTHING) for _ in range(count)]
            with steps(builder, m, width) as k:
                said = loaded(builder, pointer_to(builder, others, k), width)
                rest_at = pointer_to(builder, rest, k)
                over_rows = loaded(builder, rest_at, width)
                for slot, start, own_entry in zip(highest, starts, own, strict=True):
                    row = loaded(builder, builder.gep(start, [k]), width)
                    builder.store(maximum(builder, builder.load(slot), builder.fadd(row, said)), slot)
                    over_rows = maximum(builder, over_rows, builder.fadd(row, own_entry))
                stored(builder, over_rows, rest_at)
            maxima, put = [builder.load(slot) for slot in highest], pointer_to(builder, to_first, INT(0))
            if count == 1:
                builder.store(of_one(builder, maxima[0]), put)
            else:
                stored(builder, of_four(builder, maxima), put)
            return context.get_dummy_value()

        return types.void(table, along, others, rest, to_first, m), emit

    return rows


@intrinsic
def _renewed(_typing: Any, fresh: Any, previous: Any, out: Any, size: Any, damping: Any) -> Any:
    """One message of ``size`` >= 8 entries, normalised and damped, put at the address ``out``; its largest change."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        fresh, previous, out, size, damping = arguments
        slot = variable(builder, NARROW, NOTHING)
        with steps(builder, size, NARROW) as k:
            entries = loaded(builder, pointer_to(builder, fresh, k), NARROW)
            builder.store(maximum(builder, builder.load(slot), entries), slot)
        taken, mixed = normaliser(builder, builder.load(slot)), mixing(builder, damping)
        largest = variable(builder, NARROW, 0.0)
        with steps(builder, size, NARROW) as k:
            entries = builder.fsub(loaded(builder, pointer_to(builder, fresh, k), NARROW), taken)
            new, change = mixed(entries, loaded(builder, pointer_to(builder, previous, k), NARROW))
            stored(builder, new, pointer_to(builder, out, k))
            builder.store(maximum(builder, builder.load(largest), change), largest)
        return of_one(builder, builder.load(largest))

    return types.float64(fresh, previous, out, size, damping), emit


@intrinsic
def _told(_typing: Any, incoming: Any, outgoing: Any, starts: Any, degree: Any, size: Any, sums: Any) -> Any:
    """What a variable of ``size`` >= 8 values tells its factors; the largest entry of the sum of what they said.

    The intrinsic takes the addresses of all that factors say and of all that variables say, that of the places (64 bits
    each) at which the variable's ``degree`` messages begin, and that of where the sum is put.
    """

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        incoming, outgoing, starts, degree, size, sums = arguments
        highest, summed = variable(builder, NARROW, NOTHING), variable(builder, NARROW, 0.0)
        places = builder.inttoptr(starts, INT.as_pointer())

        def message(base: Any, edge: Any, k: Any) -> Any:
            return pointer_to(builder, base, builder.add(builder.load(builder.gep(places, [edge])), k))

        with steps(builder, size, NARROW) as k:
            builder.store(constant(NARROW, 0.0), summed)
            with cgutils.for_range(builder, degree, intp=INT) as loop:
                before = builder.load(summed)
                stored(builder, before, message(outgoing, loop.index, k))
                said = loaded(builder, message(incoming, loop.index, k), NARROW)
                builder.store(builder.fadd(before, said), summed)
            belief = builder.load(summed)
            stored(builder, belief, pointer_to(builder, sums, k))
            builder.store(maximum(builder, builder.load(highest), belief), highest)
            builder.store(constant(NARROW, 0.0), summed)
            with cgutils.for_range(builder, builder.sub(degree, INT(1)), intp=INT) as loop:
                edge = builder.sub(builder.sub(degree, INT(1)), loop.index)
                said = loaded(builder, message(incoming, edge, k), NARROW)
                after = builder.fadd(builder.load(summed), said)
                builder.store(after, summed)
                out = message(outgoing, builder.sub(edge, INT(1)), k)
                stored(builder, builder.fadd(loaded(builder, out, NARROW), after), out)
        return of_one(builder, builder.load(highest))

    return types.float64(incoming, outgoing, starts, degree, size, sums), emit


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
