"""Compiled passes over a whole graph: all messages of a tree, each once, and the last choices. Import it late. They are
bit-identical to the loops over messages in ``certificates`` and ``decoding``.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from swarmbo.boundary.compiling import compiled, inner
from swarmbo.coordination.compiled_messages import Places, Spare, Whole, new_spare, renew_factor, renew_variable
from swarmbo.coordination.tables import Flat, Layout
from swarmbo.graph.bipartite import Edges  # from its own file, so that the cache of compiled code notes a change

_NONE = -1


class Found(NamedTuple):
    """Order of variables, order of factors, and the edge by which each factor was found."""

    order: Places
    factor_order: Places
    up: Places


@compiled(nogil=True)
def breadth_first(edges: Edges) -> Found:
    """Order variables and factors breadth-first, and note for each factor the edge by which it was found."""
    first, first_of = edges.first, edges.first_of
    n_variables, n_factors = len(first_of) - 1, len(first) - 1
    order, factor_order = np.empty(n_variables, dtype=np.int64), np.empty(n_factors, dtype=np.int64)
    up, seen = np.full(n_factors, _NONE), np.zeros(n_variables, dtype=np.bool_)
    n_found = n_visited = n_factors_found = 0
    for start in range(n_variables):
        # each connected part has a root of its own
        if not seen[start]:
            seen[start] = True
            order[n_found] = start
            n_found += 1
        while n_visited < n_found:
            x = order[n_visited]
            n_visited += 1
            for i in range(first_of[x], first_of[x + 1]):
                edge = edges.by_variable[i]
                f = edges.factors[edge]
                if up[f] == _NONE:
                    up[f] = edge
                    factor_order[n_factors_found] = f
                    n_factors_found += 1
                    for other in range(first[f], first[f + 1]):
                        y = edges.variables[other]
                        if not seen[y]:
                            seen[y] = True
                            order[n_found] = y
                            n_found += 1
    return Found(order, factor_order, up)


@compiled(nogil=True)
def tree_rounds(found: Found, edges: Edges) -> Whole:
    """Rounds until all messages of a forest are final: half its longest path, as in ``Part.levels``."""
    factor_order, up, first, variables = found.factor_order, found.up, edges.first, edges.variables
    behind = np.zeros(len(found.order), dtype=np.int64)  # edges to the furthest node below a variable
    longest = 1
    for back in range(len(factor_order)):
        f = factor_order[len(factor_order) - 1 - back]
        most, second = 0, 0
        for edge in range(first[f], first[f + 1]):
            if edge != up[f]:
                length = behind[variables[edge]] + 1
                most, second = max(most, length), max(second, min(most, length))
        x = variables[up[f]]
        longest = max(longest, most + second, behind[x] + most + 1)
        behind[x] = max(behind[x], most + 1)
    return (longest + 1) // 2


@compiled(nogil=True)
def _tree_pass(
    found: Found, edges: Edges, layout: Layout, of_variables: Places, outgoing: Flat, incoming: Flat, spare: Spare
) -> None:
    """Compute all messages of a forest, towards the first variable and then away; variables send ``outgoing``."""
    # The first pass renews all messages of a sender, also those that are not final yet; the second pass corrects these.
    factor_order, up = found.factor_order, found.up
    first, first_of, by_variable = edges.first, edges.first_of, edges.by_variable
    tables, begins, sizes, starts = layout.tables, layout.begins, layout.sizes, layout.starts
    flow = outgoing, incoming, incoming
    # towards the root: a factor has all messages from below when its variables below have been renewed
    for back in range(len(factor_order)):
        f = factor_order[len(factor_order) - 1 - back]
        for edge in range(first[f], first[f + 1]):
            if edge != up[f]:
                x = edges.variables[edge]
                degree = first_of[x + 1] - first_of[x]
                renew_variable(of_variables, first_of[x], degree, sizes[edge], incoming, outgoing, spare)
        n_axes = first[f + 1] - first[f]
        renew_factor(tables, begins[f], sizes, starts, first[f], n_axes, flow, 0.0, spare)
    # away from the root: the factor above a variable has sent before the variable's turn
    for x in found.order:
        size, degree = sizes[by_variable[first_of[x]]], first_of[x + 1] - first_of[x]
        renew_variable(of_variables, first_of[x], degree, size, incoming, outgoing, spare)
        for j in range(first_of[x], first_of[x + 1]):
            f = edges.factors[by_variable[j]]
            if up[f] == by_variable[j]:
                n_axes = first[f + 1] - first[f]
                renew_factor(tables, begins[f], sizes, starts, first[f], n_axes, flow, 0.0, spare)


@inner()
def _conditioned(
    edge: Whole, edges: Edges, layout: Layout, chosen: Places, from_variables: Flat, index: Places, out: Flat
) -> None:
    """Compiled form of ``decoding.conditioned_message``; ``chosen`` is -1 for undecided variables."""
    variables, sizes, starts = edges.variables, layout.sizes, layout.starts
    f = edges.factors[edge]
    begin, end, table = edges.first[f], edges.first[f + 1], layout.tables[layout.begins[f] :]
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
        while is_left:  # through all combinations of undecided variables' values
            place, stride = fixed + j * own, 1
            for other in range(end - 1, begin - 1, -1):
                place += index[other - begin] * stride
                stride *= sizes[other]
            entry = table[place]
            for other in range(begin, end):
                if other != edge and chosen[variables[other]] == _NONE:
                    entry += from_variables[starts[other] + index[other - begin]]
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


@inner()
def _best_value(received: Flat, degree: Whole, size: Whole) -> int:
    """Compiled form of :func:`swarmbo.coordination.decoding.best_value`."""
    best, highest = 0, -np.inf
    for j in range(size):
        # from the first factor to the last, as in `best_value`, so that ties are resolved alike
        summed = received[j]
        for k in range(1, degree):
            summed += received[k * size + j]
        if summed > highest:
            best, highest = j, summed
    if highest > -np.inf:
        return best
    fewest, most = degree + 1, -np.inf
    for j in range(size):
        broken, utility = 0, 0.0
        for k in range(degree):
            if received[k * size + j] == -np.inf:
                broken += 1
            else:
                utility += received[k * size + j]
        if broken < fewest or (broken == fewest and utility > most):
            best, fewest, most = j, broken, utility
    return best


@compiled(nogil=True)
def _decoding_pass(
    order: Places, edges: Edges, layout: Layout, from_variables: Flat, from_factors: Flat, received: Flat, index: Places
) -> Places:
    """Choose all variables as :func:`swarmbo.coordination.decoding.decode` does."""
    first, variables, first_of, by_variable = edges.first, edges.variables, edges.first_of, edges.by_variable
    chosen = np.full(len(order), _NONE)
    for x in order:
        size = layout.sizes[by_variable[first_of[x]]]
        for k in range(first_of[x + 1] - first_of[x]):
            edge = by_variable[first_of[x] + k]
            f = edges.factors[edge]
            begin, end, out = first[f], first[f + 1], received[k * size : (k + 1) * size]
            has_earlier = False
            for other in range(begin, end):
                has_earlier = has_earlier or chosen[variables[other]] != _NONE
            if has_earlier:
                _conditioned(edge, edges, layout, chosen, from_variables, index, out)
            else:
                for i in range(size):
                    out[i] = from_factors[layout.starts[edge] + i]
        chosen[x] = _best_value(received, first_of[x + 1] - first_of[x], size)
    return chosen


def tree_messages(edges: Edges, layout: Layout, shapes: Iterable[tuple[int, ...]]) -> tuple[Flat, Flat, int]:
    """Final messages of a forest, of variables and of factors, and the number of rounds that agents would take."""
    found, n_entries = breadth_first(edges), layout.sizes.sum()
    from_variables, from_factors = np.zeros(n_entries), np.zeros(n_entries)
    of_variables = layout.starts[edges.by_variable]
    _tree_pass(found, edges, layout, of_variables, from_variables, from_factors, new_spare(shapes))
    return from_variables, from_factors, int(tree_rounds(found, edges))


def last_choices(edges: Edges, layout: Layout, from_variables: Flat, from_factors: Flat) -> Places:
    """Choices of :func:`swarmbo.coordination.decoding.decode` for a whole graph in one process."""
    received = np.empty(int(np.bincount(edges.variables, weights=layout.sizes).max()))
    index = np.empty(np.diff(edges.first).max(), dtype=np.int64)
    return _decoding_pass(breadth_first(edges).order, edges, layout, from_variables, from_factors, received, index)
