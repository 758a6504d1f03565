"""Choosing variable by variable: the first choice from messages, and the repair of forbidden choices.

Each variable is chosen given those before it, so ties cannot mix two optima.

A forbidden choice is repaired by sweeps. A variable takes the value that breaks factors of least weight; among equal
values, that with the largest sum. Factors still broken after a sweep weigh one more in the next sweep. This leads out
of choices that no single variable can improve (breakout: Morris 1993; by messages: Yokoo & Hirayama 1996). A variable
leaves a value that breaks a factor if another value is as good.

In Yokoo & Hirayama's form the variable with the largest gain among neighbours moves, and weights grow if none gains.
Here variables alternate in the order of decoding, and weights grow after every sweep.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from swarmbo.coordination.messages import Choice, Conditioned, Line
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.requests import Compare, CountTraffic, Mailbox, Steps
from swarmbo.coordination.tables import ByEdge, Rank, Table, Tables, Vector
from swarmbo.graph import FactorGraph


def conditioned_message(
    table: Table, scope: Sequence[str], variable: str, chosen: Mapping[str, int], from_variables: ByEdge, factor: str
) -> Vector:
    """A factor's message to a variable: maxima over undecided variables, given the indices of decided variables."""
    line = table[tuple(chosen[x] if x in chosen and x != variable else slice(None) for x in scope)]
    if line.ndim == 1:
        return line
    open_scope = [x for x in scope if x == variable or x not in chosen]
    line = np.moveaxis(line, open_scope.index(variable), 0)
    for axis, other in enumerate(x for x in open_scope if x != variable):
        shape = [1] * line.ndim
        shape[axis + 1] = -1
        line = line + from_variables[factor, other].reshape(shape)
    return line.reshape(len(line), -1).max(axis=1)


def decode(view: LocalView, tables: Tables, from_variables: ByEdge, from_factors: ByEdge) -> Steps[dict[str, int]]:
    """Choices of own variables and own factors' variables, optimal on a forest; in a tie, the lowest index."""
    graph, earlier, mail = view.graph, view.part.earlier, Mailbox()
    factors, variables = set(view.factors), set(view.variables)
    choices: dict[str, int] = {}
    for x in view.part.order:
        actor = graph.variable_owner(x)
        for f in graph.factors_of(x):
            if f in factors and earlier[f, x]:
                yield from hear_choices(mail, earlier[f, x], choices)
                decided = {y: choices[y] for y in earlier[f, x]}
                entries = conditioned_message(tables[f], graph.scope(f), x, decided, from_variables, f)
                mail.post(graph.owner(f), actor, Conditioned(f, x, entries))
        if x in variables:
            keys = {f: ("given", f, x) for f in graph.factors_of(x) if earlier[f, x]}
            yield from mail.wait(keys.values())
            received = [mail[keys[f]].entries if f in keys else from_factors[f, x] for f in graph.factors_of(x)]
            choices[x] = best_value(received)
            tell_choice(mail, graph, x, choices[x])
    yield from hear_choices(mail, view.seen, choices)
    yield from mail.flush()
    return choices


def best_value(received: Sequence[Vector]) -> int:
    """Lowest index of the largest sum, added from first to last; if all are forbidden, the least often forbidden."""
    summed = received[0]
    for message in received[1:]:
        summed = summed + message
    best = int(np.argmax(summed))
    return best if summed[best] > -np.inf else least_forbidden(received, [1.0] * len(received))


def line_of(table: Table, scope: Sequence[str], variable: str, chosen: Mapping[str, int]) -> Vector:
    """A factor's entries by the value of one of its variables, given the choices of all others."""
    return table[tuple(slice(None) if x == variable else chosen[x] for x in scope)]


def least_forbidden(lines: Sequence[Vector], weights: Sequence[float], present: int | None = None) -> int:
    """Index of least broken weight, then of largest sum; if ``present`` is broken, an equally good other index wins."""
    broken, utility = weighed(lines, weights)
    best = broken == broken.min()
    if present is not None and broken[present] > 0.0 and best.sum() > 1:
        best[present] = False
    return int(np.argmax(np.where(best, utility, -np.inf)))


def weighed(lines: Sequence[Vector], weights: Sequence[float]) -> tuple[Vector, Vector]:
    """Weight of broken factors, and sum of the other factors, for each value of a variable."""
    entries = np.array(lines)
    forbidden = entries == -np.inf
    entries[forbidden] = 0.0
    # added from the first factor to the last, so that every agent's sum is bit-identical
    return np.add.accumulate(forbidden * np.array(weights)[:, None])[-1], np.add.accumulate(entries)[-1]


def repaired(
    view: LocalView, tables: Tables, chosen: Mapping[str, int], best_so_far: Rank | None, sweeps: int
) -> Steps[tuple[dict[str, int] | None, bool, Rank | None]]:
    """Sweep until nothing is forbidden and no single change improves; return a better choice, if any, and its rank."""
    # equal weights at first: the sum of weights is then the number of broken factors
    weights, best = dict.fromkeys(view.factors, 1.0), None
    for _ in range(sweeps):
        previous = chosen
        chosen = yield from sweep(view, tables, previous, weights)
        values = np.array([tables[f][tuple(chosen[x] for x in view.graph.scope(f))] for f in view.factors])
        is_broken = values == -np.inf
        weights = {f: weights[f] + broken for f, broken in zip(view.factors, is_broken.tolist(), strict=True)}
        moved = any(chosen[x] != previous[x] for x in view.variables) or bool(is_broken.any())
        verdict, best_so_far = yield Compare([values], best_so_far, moved=moved, ends_round=False)
        best = chosen if verdict.best else best
        if verdict.stop:
            return best, True, best_so_far
    return best, False, best_so_far


def sweep(
    view: LocalView, tables: Tables, before: Mapping[str, int], weights: Mapping[str, float]
) -> Steps[dict[str, int]]:
    """Choose every variable again, in the order of decoding, given the weights of broken own factors."""
    if view.is_whole:
        return (yield from _sweep_at_once(view, tables, before, weights))
    graph, earlier, mail = view.graph, view.part.earlier, Mailbox()
    factors, variables = set(view.factors), set(view.variables)
    renewed: dict[str, int] = {}
    choices = ChainMap(renewed, dict(before))
    for x in view.part.order:
        actor = graph.variable_owner(x)
        for f in graph.factors_of(x):
            if f in factors:
                yield from hear_choices(mail, earlier[f, x], renewed)
                entries = line_of(tables[f], graph.scope(f), x, choices)
                mail.post(graph.owner(f), actor, Line(f, x, entries, weights[f]))
        if x in variables:
            keys = [("line", f, x) for f in graph.factors_of(x)]
            yield from mail.wait(keys)
            lines, counts = [mail[key].entries for key in keys], [mail[key].weight for key in keys]
            renewed[x] = least_forbidden(lines, counts, choices[x])
            tell_choice(mail, graph, x, renewed[x])
    yield from hear_choices(mail, view.seen, renewed)
    yield from mail.flush()
    return dict(choices)


def _sweep_at_once(
    view: LocalView, tables: Tables, before: Mapping[str, int], weights: Mapping[str, float]
) -> Steps[dict[str, int]]:
    """Choices as by ``sweep``, for a whole part in one process, with the same count of messages."""
    graph, chosen = view.graph, dict(before)
    for x in view.part.order:
        factors = graph.factors_of(x)
        lines = [line_of(tables[f], graph.scope(f), x, chosen) for f in factors]
        chosen[x] = least_forbidden(lines, [weights[f] for f in factors], chosen[x])
    sizes = np.array([n for f in graph.factors for n in tables[f].shape])
    choices = np.array([chosen[x] for x in graph.variables])
    yield CountTraffic(lambda counts: counts.numbers(Line, sizes) + counts.decisions(choices))
    return chosen


def tell_choice(mail: Mailbox, graph: FactorGraph, variable: str, index: int) -> None:
    """Send the choice of a variable's owner to the other owners of its factors."""
    actor, choice = graph.variable_owner(variable), Choice(variable, index)
    for owner in dict.fromkeys(graph.owner(factor) for factor in graph.factors_of(variable)):
        if owner != actor:
            mail.post(actor, owner, choice)


def hear_choices(mail: Mailbox, variables: Iterable[str], chosen: dict[str, int]) -> Steps[None]:
    """Wait for the choices of ``variables`` that are not in ``chosen``, and add them to it."""
    missing = [("choice", x) for x in variables if x not in chosen]
    if missing:
        yield from mail.wait(missing)
        chosen.update({key[1]: mail[key].index for key in missing})
