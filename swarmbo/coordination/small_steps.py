"""Tables of two axes of 8 to 16 values, and variables of so many: a table's or a variable's messages in one go.

What it takes to go from step to step would be most of the time there, so nothing leaves the registers in between.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from swarmbo.coordination.vectors import (
    INT,
    NARROW,
    NOTHING,
    constant,
    larger_of,
    loaded,
    maximum,
    mixing,
    normaliser,
    of_four,
    of_one,
    pointer_to,
    shuffled,
    spread,
    stored,
    variable,
)


def _small_table(*, narrow: bool) -> Any:
    """Both messages of a factor of two axes of 8 to 16 values, if ``narrow`` of 8: nothing leaves the registers.

    Longer axes are two vectors of 8, the last of which ends with them: that maxima are taken twice where they overlap
    changes nothing. The intrinsic takes the address of the table; those of what the variables say, of what the factor
    said before and of where its messages are put, each for both axes; the numbers of rows and columns; and the damping.
    It says what the largest change is.
    """

    @intrinsic
    def small_table(_typing: Any, table: Any, said: Any, was: Any, put: Any, d: Any, m: Any, damping: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            table, said, was, put, d, m, damping = arguments
            (along, others), before, out = (
                [builder.extract_value(pair, axis) for axis in range(2)] for pair in (said, was, put)
            )
            own = pointer_to(builder, along, INT(0))
            rows, columns = (_eights(builder, n, narrow=narrow) for n in (d, m))
            heard = [loaded(builder, pointer_to(builder, others, k), NARROW) for k in columns]
            over_rows = [constant(NARROW, NOTHING)] * len(columns)
            over_columns: list[Any] = []
            for first in rows:
                fours: list[Any] = []  # maxima of the first four rows, and of the others
                for start in (first, builder.add(first, INT(4))):
                    maxima: list[Any] = []
                    for row in range(4):
                        j = builder.add(start, INT(row))
                        begin = pointer_to(builder, table, builder.mul(m, j))
                        entry = spread(builder, builder.load(builder.gep(own, [j])), NARROW)
                        best = constant(NARROW, NOTHING)
                        for n, (k, message) in enumerate(zip(columns, heard, strict=True)):
                            entries = loaded(builder, builder.gep(begin, [k]), NARROW)
                            best = maximum(builder, best, builder.fadd(entries, message))
                            over_rows[n] = maximum(builder, over_rows[n], builder.fadd(entries, entry))
                        maxima.append(best)
                    fours.append(of_four(builder, maxima))
                over_columns.append(shuffled(builder, fours[0], fours[1], range(8)))
            mixed = mixing(builder, damping)
            change = constant(NARROW, 0.0)
            for fresh, places, old, new in zip((over_columns, over_rows), (rows, columns), before, out, strict=True):
                taken = normaliser(builder, larger_of(builder, fresh))
                olds = [loaded(builder, pointer_to(builder, old, k), NARROW) for k in places]  # all, as out may be old
                for entries, was_there, k in zip(fresh, olds, places, strict=True):
                    message, changed = mixed(builder.fsub(entries, taken), was_there)
                    stored(builder, message, pointer_to(builder, new, k))
                    change = maximum(builder, change, changed)
            return of_one(builder, change)

        return types.float64(table, said, was, put, d, m, damping), emit

    return small_table


def _eights(builder: Any, n: Any, *, narrow: bool) -> list[Any]:
    """Where vectors of 8 begin that cover n numbers, 8 if ``narrow``, else at most 16."""
    return [INT(0)] if narrow else [INT(0), builder.sub(n, INT(NARROW))]


def _few_values(*, narrow: bool) -> Any:
    """What a variable of 8 to 16 values, if ``narrow`` of 8, tells its factors; the first of the best of the sum.

    The intrinsic takes what ``_told`` does, but for where the sum is put: it stays in registers.
    """

    @intrinsic
    def few_values(_typing: Any, incoming: Any, outgoing: Any, starts: Any, degree: Any, size: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            incoming, outgoing, starts, degree, size = arguments
            places, eights = builder.inttoptr(starts, INT.as_pointer()), _eights(builder, size, narrow=narrow)
            sums = [variable(builder, NARROW, 0.0) for _ in eights]

            def parts(base: Any, edge: Any) -> list[Any]:
                begin = pointer_to(builder, base, builder.load(builder.gep(places, [edge])))
                return [builder.gep(begin, [k]) for k in eights]

            def add(edge: Any) -> None:
                said = [loaded(builder, part, NARROW) for part in parts(incoming, edge)]
                for slot, entries in zip(sums, said, strict=True):
                    builder.store(builder.fadd(builder.load(slot), entries), slot)

            with cgutils.for_range(builder, degree, intp=INT) as loop:
                for slot, out in zip(sums, parts(outgoing, loop.index), strict=True):
                    stored(builder, builder.load(slot), out)
                add(loop.index)
            belief = [builder.load(slot) for slot in sums]
            for slot in sums:
                builder.store(constant(NARROW, 0.0), slot)
            with cgutils.for_range(builder, builder.sub(degree, INT(1)), intp=INT) as loop:
                edge = builder.sub(builder.sub(degree, INT(1)), loop.index)
                add(edge)
                outs = parts(outgoing, builder.sub(edge, INT(1)))
                before = [loaded(builder, out, NARROW) for out in outs]  # all, as they may overlap
                for slot, out, entries in zip(sums, outs, before, strict=True):
                    stored(builder, builder.fadd(entries, builder.load(slot)), out)
            highest = spread(builder, of_one(builder, larger_of(builder, belief)), NARROW)
            best = INT(0)
            for entries, k in zip(belief, eights, strict=True):
                is_best = builder.bitcast(builder.fcmp_ordered("==", entries, highest), ir.IntType(NARROW))
                best = builder.or_(best, builder.shl(builder.zext(is_best, INT), k))
            return builder.call(
                cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(INT, [INT, ir.IntType(1)]), "llvm.cttz.i64"
                ),
                [best, ir.IntType(1)(0)],
            )

        return types.uint64(incoming, outgoing, starts, degree, size), emit

    return few_values


# Called without the first argument, which numba supplies.
eight_by_eight: Any = _small_table(narrow=True)
small_table: Any = _small_table(narrow=False)
eight_values: Any = _few_values(narrow=True)
few_values: Any = _few_values(narrow=False)
