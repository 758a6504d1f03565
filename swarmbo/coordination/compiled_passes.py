"""Compiled passes over a whole graph: all messages of a tree, each once, and the last choices. Import it late.

What Python does message by message (``methods.max_sum``, ``decoding``) is done here to the same bits. Edges are those
of ``swarmbo.graph.edges``.
"""

import numba
import numpy as np
from jaxtyping import Int

from swarmbo.boundary.compiling import compiled
from swarmbo.coordination.compiled_messages import (
    Places,
    Spare,
    new_spare,
    normalised_messages,
    renew_factor,
    renew_factors,
    renew_variable,
    renew_variables,
)
from swarmbo.coordination.flooding import Flooding, Kernels
from swarmbo.coordination.tables import Flat
from swarmbo.graph import Edges

_NONE = -1


@compiled(nogil=True)
def breadth_first(
    first: Places, variables: Places, first_of: Places, by_variable: Places, factors: Places
) -> tuple[Places, Places, Places]:
    """Variables and factors from the first variable of each connected part on.

    Args:
        first: Of the edges (:class:`swarmbo.graph.Edges`), as the others.
        variables: Theirs.
        first_of: By variable.
        by_variable: The edges by variable.
        factors: Theirs.

    Returns:
        The variables in the order of ``decoding_order``; the factors, each after the variable that led to it; and for
        each factor the edge by which it was found.
    """
    n_variables, n_factors = len(first_of) - 1, len(first) - 1
    order, factor_order = np.empty(n_variables, dtype=np.int64), np.empty(n_factors, dtype=np.int64)
    up, seen = np.full(n_factors, _NONE), np.zeros(n_variables, dtype=np.bool_)
    n_found = n_gone = n_factors_found = 0
    for start in range(n_variables):
        if not seen[start]:
            seen[start] = True
            order[n_found] = start
            n_found += 1
        while n_gone < n_found:
            x = order[n_gone]
            n_gone += 1
            for i in range(first_of[x], first_of[x + 1]):
                edge = by_variable[i]
                f = factors[edge]
                if up[f] == _NONE:
                    up[f] = edge
                    factor_order[n_factors_found] = f
                    n_factors_found += 1
                    for other in range(first[f], first[f + 1]):
                        y = variables[other]
                        if not seen[y]:
                            seen[y] = True
                            order[n_found] = y
                            n_found += 1
    return order, factor_order, up


@compiled(nogil=True)
def tree_rounds(
    order: Places,
    factor_order: Places,
    up: Places,
    first: Places,
    variables: Places,
    first_of: Places,
    by_variable: Places,
    factors: Places,
) -> int:
    """In how many rounds all messages of a forest become final; the number of ``part.tree_levels``.

    A variable's message is final a round after the last of those that it needs, and a factor's in the round of the last
    one that it needs.
    """
    of_variable, of_factor = np.zeros(len(factors), dtype=np.int64), np.zeros(len(factors), dtype=np.int64)
    largest = 1
    for i in range(len(factor_order) - 1, -1, -1):
        f = factor_order[i]
        latest = 1
        for edge in range(first[f], first[f + 1]):
            if edge != up[f]:
                x, heard = variables[edge], 0
                for j in range(first_of[x], first_of[x + 1]):
                    if by_variable[j] != edge:
                        heard = max(heard, of_factor[by_variable[j]])
                of_variable[edge] = heard + 1
                latest = max(latest, heard + 1)
        of_factor[up[f]] = latest
        largest = max(largest, latest)
    for x in order:
        most, second = 0, 0
        for j in range(first_of[x], first_of[x + 1]):
            said = of_factor[by_variable[j]]
            most, second = max(most, said), max(second, min(most, said))
        for j in range(first_of[x], first_of[x + 1]):
            edge = by_variable[j]
            f = factors[edge]
            if up[f] == edge and first[f + 1] - first[f] > 1:
                of_variable[edge] = 1 + (second if of_factor[edge] == most else most)
                largest = max(largest, of_variable[edge])
                most_said, second_said = 0, 0
                for other in range(first[f], first[f + 1]):
                    said = of_variable[other]
                    most_said, second_said = max(most_said, said), max(second_said, min(most_said, said))
                for other in range(first[f], first[f + 1]):
                    if other != edge:
                        of_factor[other] = second_said if of_variable[other] == most_said else most_said
                        largest = max(largest, of_factor[other])
    return largest


@compiled(nogil=True)
def _tree_pass(
    order: Places,
    factor_order: Places,
    up: Places,
    first: Places,
    variables: Places,
    first_of: Places,
    by_variable: Places,
    factors: Places,
    tables: Flat,
    begins: Places,
    sizes: Places,
    starts: Places,
    of_variables: Places,
    from_variables: Flat,
    from_factors: Flat,
    spare: Spare,
) -> None:
    """Every message of a forest: towards the first variable, then away from it.

    What a recipient has said to its sender does not matter, so the first pass renews all messages of a sender, and the
    second one puts right those that were not yet final.
    """
    said, heard = from_variables, from_factors
    for back in range(len(factor_order)):
        f = factor_order[len(factor_order) - 1 - back]
        for edge in range(first[f], first[f + 1]):
            if edge != up[f]:
                x = variables[edge]
                degree = first_of[x + 1] - first_of[x]
                renew_variable(of_variables, first_of[x], degree, sizes[edge], heard, said, spare)
        n_axes = first[f + 1] - first[f]
        renew_factor(tables, begins[f], sizes, starts, first[f], n_axes, said, heard, heard, 0.0, spare)
    for x in order:
        size, degree = sizes[by_variable[first_of[x]]], first_of[x + 1] - first_of[x]
        renew_variable(of_variables, first_of[x], degree, size, heard, said, spare)
        for j in range(first_of[x], first_of[x + 1]):
            f = factors[by_variable[j]]
            if up[f] == by_variable[j]:
                n_axes = first[f + 1] - first[f]
                renew_factor(tables, begins[f], sizes, starts, first[f], n_axes, said, heard, heard, 0.0, spare)


@numba.njit(nogil=True)
def _conditioned(
    table: Flat,
    edge: int,
    begin: int,
    end: int,
    variables: Places,
    sizes: Places,
    starts: Places,
    chosen: Places,
    said: Flat,
    index: Places,
    out: Flat,
) -> None:
    """What :func:`swarmbo.coordination.decoding.conditioned_message` says.

    Args:
        table: The factor's.
        edge: From the factor to the variable that is told.
        begin: The factor's first edge.
        end: After its last one.
        variables: Of the edges.
        sizes: Of the edges.
        starts: Where the edges' messages begin.
        chosen: The index of each decided variable, -1 of others.
        said: What variables say.
        index: Overwritten; one number for each edge.
        out: It is put here.
    """
    fixed, stride, own = 0, 1, 0
    for other in range(end - 1, begin - 1, -1):
        if other == edge:
            own = stride
        elif chosen[variables[other]] != _NONE:
            fixed += chosen[variables[other]] * stride
        stride *= sizes[other]
    for j in range(sizes[edge]):
        best = -np.inf
        index[: end - begin] = 0
        is_left = True
        while is_left:  # all values of the variables that are open
            place, stride = fixed + j * own, 1
            for other in range(end - 1, begin - 1, -1):
                place += index[other - begin] * stride
                stride *= sizes[other]
            entry = table[place]
            for other in range(begin, end):
                if other != edge and chosen[variables[other]] == _NONE:
                    entry += said[starts[other] + index[other - begin]]
            best = max(best, entry)
            is_left = False
            for other in range(end - 1, begin - 1, -1):
                if other != edge and chosen[variables[other]] == _NONE:
                    index[other - begin] += 1
                    if index[other - begin] < sizes[other]:
                        is_left = True
                        break
                    index[other - begin] = 0
        out[j] = best


@numba.njit(nogil=True)
def _best_value(heard: Flat, degree: int, size: int) -> int:
    """What :func:`swarmbo.coordination.decoding.best_value` chooses."""
    best, highest = 0, -np.inf
    for j in range(size):
        summed = heard[j]
        for k in range(1, degree):
            summed += heard[k * size + j]
        if summed > highest:
            best, highest = j, summed
    if highest > -np.inf:
        return best
    fewest, most = degree + 1, -np.inf
    for j in range(size):
        broken, worth = 0, 0.0
        for k in range(degree):
            if heard[k * size + j] == -np.inf:
                broken += 1
            else:
                worth += heard[k * size + j]
        if broken < fewest or (broken == fewest and worth > most):
            best, fewest, most = j, broken, worth
    return best


@compiled(nogil=True)
def _decoding_pass(
    order: Places,
    first: Places,
    variables: Places,
    first_of: Places,
    by_variable: Places,
    factors: Places,
    tables: Flat,
    begins: Places,
    sizes: Places,
    starts: Places,
    from_variables: Flat,
    from_factors: Flat,
    heard: Flat,
    index: Places,
) -> Places:
    """The choices of all variables, by what :func:`swarmbo.coordination.decoding.decode` does."""
    chosen = np.full(len(order), _NONE)
    for x in order:
        size = sizes[by_variable[first_of[x]]]
        for k in range(first_of[x + 1] - first_of[x]):
            edge = by_variable[first_of[x] + k]
            f = factors[edge]
            begin, end, out = first[f], first[f + 1], heard[k * size : (k + 1) * size]
            has_earlier = False
            for other in range(begin, end):
                has_earlier = has_earlier or chosen[variables[other]] != _NONE
            if has_earlier:
                table = tables[begins[f] :]
                _conditioned(table, edge, begin, end, variables, sizes, starts, chosen, from_variables, index, out)
            else:
                out[:] = from_factors[starts[edge] : starts[edge] + size]
        chosen[x] = _best_value(heard, first_of[x + 1] - first_of[x], size)
    return chosen


def order_of(edges: Edges) -> tuple[Places, Places, Places]:
    """See :func:`breadth_first`."""
    return breadth_first(edges.first, edges.variables, edges.first_of, edges.by_variable, edges.factors)


def tree_messages(flooding: Flooding) -> tuple[Flat, Flat, int]:
    """All messages of a forest, each as it is when all that it needs is final.

    Args:
        flooding: Of all factors and variables.

    Returns:
        Those of variables, those of factors, and in how many rounds agents would come to them.
    """
    edges = flooding.graph.edges
    found = (*order_of(edges), edges.first, edges.variables, edges.first_of, edges.by_variable, edges.factors)
    starts = flooding.edge_starts
    from_variables, from_factors = np.zeros(flooding.n_entries), np.zeros(flooding.n_entries)
    shapes = [group.tables.shape[1:] for group in flooding.factor_groups]
    _tree_pass(
        *found,
        flooding.tables,
        flooding.table_starts,
        flooding.edge_sizes,
        starts,
        starts[edges.by_variable],
        from_variables,
        from_factors,
        new_spare(shapes),
    )
    return from_variables, from_factors, int(tree_rounds(*found))


def last_choices(flooding: Flooding, from_variables: Flat, from_factors: Flat) -> Int[np.ndarray, " n_variables"]:
    """What :func:`swarmbo.coordination.decoding.decode` chooses where all factors and variables are in one place.

    Args:
        flooding: Of all.
        from_variables: The variables' last messages.
        from_factors: The factors' last ones.
    """
    edges = flooding.graph.edges
    order, _, _ = order_of(edges)
    sizes = flooding.edge_sizes
    heard = np.bincount(edges.variables, weights=sizes).max()
    return _decoding_pass(
        order,
        edges.first,
        edges.variables,
        edges.first_of,
        edges.by_variable,
        edges.factors,
        flooding.tables,
        flooding.table_starts,
        sizes,
        flooding.edge_starts,
        from_variables,
        from_factors,
        np.empty(int(heard)),
        np.empty(np.diff(edges.first).max(), dtype=np.int64),
    )


COMPILED = Kernels(normalised_messages, renew_factors, renew_variables, tree_messages, last_choices)
