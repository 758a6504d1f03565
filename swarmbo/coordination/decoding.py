"""From messages to a joint choice in which ties cannot mix two optima: variable by variable, given those before."""

from collections.abc import Mapping, Sequence

import numpy as np

from swarmbo.coordination.messages import Conditioned
from swarmbo.coordination.repair import hear_choices, least_forbidden, tell_choice
from swarmbo.coordination.requests import Mail, Steps
from swarmbo.coordination.tables import Edge, Table, Vector
from swarmbo.coordination.view import LocalView


def conditioned_message(
    table: Table,
    scope: Sequence[str],
    variable: str,
    chosen: Mapping[str, int],
    from_variables: Mapping[Edge, Vector],
    factor: str,
) -> Vector:
    """What a factor says to a variable once some of its other variables are decided.

    Args:
        table: The factor's table.
        scope: Its variables.
        variable: The recipient.
        chosen: Index of each decided variable.
        from_variables: Messages of the undecided others to this factor.
        factor: Its name.

    Returns:
        For each value the best over the undecided others of table + their messages, at the decided ones' values.
    """
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


def decode(
    view: LocalView,
    tables: Mapping[str, Table],
    from_variables: Mapping[Edge, Vector],
    from_factors: Mapping[Edge, Vector],
) -> Steps[dict[str, int]]:
    """Choose variable by variable; of equal values the lowest index.

    A factor none of whose variables is decided speaks by its last message; the others by :func:`conditioned_message`.
    On a forest with final messages this is the best assignment, ties included: given its parent, each variable's sum is
    the exact best of everything behind it.

    Args:
        view: Own factors and variables.
        tables: Of the own factors.
        from_variables: Last messages by (factor, variable), at least those to own factors with two variables or more.
        from_factors: Last messages by (factor, variable), at least those to own variables.

    Returns:
        The choices of own variables and own factors' variables.
    """
    graph, earlier, mail = view.graph, view.part.earlier, Mail()
    factors, variables = set(view.factors), set(view.variables)
    chosen: dict[str, int] = {}
    for x in view.part.order:
        actor = graph.variable_owner(x)
        for f in graph.factors_of(x):
            if f in factors and earlier[f, x]:
                yield from hear_choices(mail, earlier[f, x], chosen)
                decided = {y: chosen[y] for y in earlier[f, x]}
                entries = conditioned_message(tables[f], graph.scope(f), x, decided, from_variables, f)
                mail.say(graph.owner(f), actor, Conditioned(f, x, entries))
        if x in variables:
            keys = {f: ("given", f, x) for f in graph.factors_of(x) if earlier[f, x]}
            yield from mail.wait(keys.values())
            said = [mail[keys[f]].entries if f in keys else from_factors[f, x] for f in graph.factors_of(x)]
            chosen[x] = best_value(said)
            tell_choice(mail, graph, x, chosen[x])
    yield from hear_choices(mail, view.seen, chosen)
    yield from mail.close()
    return chosen


def best_value(heard: Sequence[Vector]) -> int:
    """The index of the largest sum, added from the first message to the last; the lowest of equal ones.

    Where every value is forbidden, it is one that fewest messages forbid.
    """
    summed = heard[0]
    for message in heard[1:]:
        summed = summed + message
    best = int(np.argmax(summed))
    return best if summed[best] > -np.inf else least_forbidden(heard, [1.0] * len(heard))
