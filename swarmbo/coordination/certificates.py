"""Upper bounds: numbers that no joint choice from the tables exceeds, worked out by those who own them.

Each is the sum of maxima of tables in which the graph's sum was written anew, so each holds, whatever its messages were
and wherever they stop. All are sent the sum, over a tree of agents. On a part without loops the bound is the optimum
itself, by one pass of messages. It is for the tables: of candidates, not of all that lies between them.

Forbidden combinations (-inf) stay forbidden as far as a bound can see: no number here is NaN, and a bound of -inf
proves that every choice is forbidden.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Literal

import numpy as np

from swarmbo.coordination.messages import FromFactor, FromVariable
from swarmbo.coordination.requests import AllReduce, Mail, Steps, Watch
from swarmbo.coordination.tables import Table, Vector
from swarmbo.coordination.updates import factor_messages
from swarmbo.coordination.view import LocalView
from swarmbo.graph import FactorGraph

Bound = Literal["mplp"]

BOUND_ROUNDS = 20


def upper_bound(
    view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int], rounds: int = BOUND_ROUNDS
) -> Steps[float]:
    """Upper bound on the value of every joint choice of a connected part, up to rounding.

    Args:
        view: Own factors and variables.
        tables: Of the own factors.
        sizes: Number of values by variable.
        rounds: Turns in which all factors share, >= 1.

    Returns:
        The bound, which all agents of the part come to know.
    """
    if view.graph.is_forest:
        return (yield from _on_tree(view, tables))
    return (yield from _mplp(view, tables, sizes, rounds))


def _summed(view: LocalView, terms: Mapping[str, float]) -> Steps[float]:
    """The sum over all factors of the part, by a term for each own one."""
    sums = yield AllReduce(np.array([terms[f] for f in view.factors]).reshape(-1, 1, 1))
    return float(sums[0, 0])


def _on_tree(view: LocalView, tables: Mapping[str, Table]) -> Steps[float]:
    """The optimum of a tree: every node tells the next one towards the first factor what all behind it can do."""
    graph, mail = view.graph, Mail()
    factors, variables = set(view.factors), set(view.variables)
    above, top = _towards(graph, graph.factors[0]), 0.0
    for node, parent in reversed(above.items()):
        if node in variables and parent is not None:
            said = [("factor", f, node) for f in graph.factors_of(node) if f != parent]
            yield from mail.wait(said)
            entries = reduce(np.add, [mail[key].entries for key in said], np.zeros(()))
            if said:  # a variable that has no other factor has nothing to say
                mail.say(graph.variable_owner(node), graph.owner(parent), FromVariable(parent, node, entries))
        elif node in factors:
            scope = graph.scope(node)
            behind = {x: ("variable", node, x) for x in scope if x != parent and len(graph.factors_of(x)) > 1}
            yield from mail.wait(behind.values())
            best = tables[node]
            for axis, x in enumerate(scope):
                if x in behind:
                    best = best + mail[behind[x]].entries.reshape([-1 if k == axis else 1 for k in range(len(scope))])
            if parent is None:
                top = float(best.max())
            else:
                entries = best.max(axis=tuple(axis for axis, x in enumerate(scope) if x != parent))
                mail.say(graph.owner(node), graph.variable_owner(parent), FromFactor(node, parent, entries))
    yield from mail.close()
    return (yield from _summed(view, {f: top if above[f] is None else 0.0 for f in view.factors}))


def _towards(graph: FactorGraph, root: str) -> dict[str, str | None]:
    """For each node of a tree the next one towards a factor, that factor first and each after its next one."""
    above: dict[str, str | None] = {root: None}
    factors, queue = set(graph.factors), [root]
    for node in queue:
        for other in graph.scope(node) if node in factors else graph.factors_of(node):
            if other not in above:
                above[other] = node
                queue.append(other)
    return above


def _mplp(view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int], rounds: int) -> Steps[float]:
    """Max-product linear programming: factor after factor, what it is worth is shared evenly among its variables.

    With delta_f(x) the share that variable x has of factor f, the sum of all factors at any choice is
    sum_f [f - sum_x delta_f(x)] + sum_x [sum_f delta_f(x)], so the sum of the maxima of the brackets is a bound. Factor
    f lowers it the most that its own shares can, q being what x has of other factors:

        delta_f(x) <- 1/|f| max over the others of [f + sum_y q(y)] - q(x)

    Source: Globerson & Jaakkola 2007, by factors as Sontag, Globerson & Jaakkola 2011, section 1.5.2. Factors that
    share no variable do so side by side (one colour after the other), so the bound falls from turn to turn. A value is
    worth -inf to a factor where no combination with values that are left allows it: then its share is -inf, the value
    is left out everywhere, and the rest stays finite.
    """
    graph, order = view.graph, _by_colour(view.graph)
    place, variables = {f: k for k, f in enumerate(order)}, set(view.variables)
    scopes = {f: tuple(x for x in graph.scope(f) if len(graph.factors_of(x)) > 1) for f in graph.factors}
    tables = {f: _over(tables[f], graph.scope(f), scopes[f]) for f in view.factors}  # nobody else has a say in the rest
    homes = {x: graph.factors_of(x)[0] for x in graph.variables if len(graph.factors_of(x)) > 1}
    shares = {(f, x): np.zeros(sizes[x]) for f in view.factors for x in scopes[f]}  # of the own factors
    heard = {(f, x): np.zeros(sizes[x]) for x in view.variables for f in graph.factors_of(x)}  # of the own variables

    def others(x: str, factor: str) -> Vector:
        return reduce(np.add, [heard[f, x] for f in graph.factors_of(x) if f != factor])

    def hear(mail: Mail, x: str, before: int) -> Steps[None]:
        keys = [("factor", f, x) for f in graph.factors_of(x) if place[f] < before and f in speaking]
        yield from mail.wait(keys)
        heard.update({(f, x): mail["factor", f, x].entries for _, f, x in keys})

    def falling() -> float:
        """The bound as it stands, for somebody who sees the whole part."""
        behind = [np.add(others(x, home), heard[home, x]).max() for x, home in homes.items()]
        return float(sum(_rest(tables[f], [shares[f, x] for x in scopes[f]]) for f in view.factors) + sum(behind))

    # factors of one colour share no variable, so what they do side by side is what they would do one by one
    for turn in range(rounds):
        mail = Mail()
        speaking = {f for f in order if len(scopes[f]) > 1 or turn == 0}  # one variable has all there is at once
        for f in (f for f in order if f in speaking):
            for x in scopes[f]:
                if x in variables:
                    yield from hear(mail, x, place[f])
                    mail.say(graph.variable_owner(x), graph.owner(f), FromVariable(f, x, others(x, f)))
            if f in tables:
                yield from mail.wait([("variable", f, x) for x in scopes[f]])
                said = [mail["variable", f, x].entries for x in scopes[f]]
                for x, share in zip(scopes[f], _shares(tables[f], said), strict=True):
                    shares[f, x] = share
                    mail.say(graph.owner(f), graph.variable_owner(x), FromFactor(f, x, share))
        for x in homes:
            if x in variables:
                yield from hear(mail, x, len(order))
        yield from mail.close()
        yield Watch(falling)
    mail, terms = Mail(), {f: _rest(tables[f], [shares[f, x] for x in scopes[f]]) for f in view.factors}
    for x, home in homes.items():  # of each variable, the owner of one factor adds what it has of all
        if x in variables:
            mail.say(graph.variable_owner(x), graph.owner(home), FromVariable(home, x, others(x, home)))
    yield from mail.wait([("variable", home, x) for x, home in homes.items() if home in terms])
    yield from mail.close()
    for x, home in homes.items():
        if home in terms:
            terms[home] += float((mail["variable", home, x].entries + shares[home, x]).max())
    return (yield from _summed(view, terms))


def _over(table: Table, scope: tuple[str, ...], kept: tuple[str, ...]) -> Table:
    """The best of a table over the variables that are not kept."""
    return table.max(axis=tuple(axis for axis, x in enumerate(scope) if x not in kept))


def _shares(table: Table, had: list[Vector]) -> list[Vector]:
    """Share of each variable in a factor, given what it has of others."""
    best, n = factor_messages(table[None], [entries[None] for entries in had]), len(had)
    shares: list[Vector] = []
    for (most,), entries in zip(best, had, strict=True):
        is_left = (most > -np.inf) & (entries > -np.inf)
        share = np.full(len(entries), -np.inf)
        # an n-th of the best there is, most + entries, less what it has
        share[is_left] = most[is_left] / n - (1.0 - 1.0 / n) * entries[is_left]
        shares.append(share)
    return shares


def _rest(table: Table, shares: list[Vector]) -> float:
    """The most that is left of a factor when its variables have their shares; values that are left out do not count."""
    for axis, share in enumerate(shares):
        shape = [-1 if k == axis else 1 for k in range(len(shares))]
        left = np.where(share > -np.inf, -np.where(share > -np.inf, share, 0.0), -np.inf)
        table = table + left.reshape(shape)
    return float(table.max())


def _by_colour(graph: FactorGraph) -> tuple[str, ...]:
    """The factors, such that those of one colour come together and share no variable: each takes the first it can."""
    colour: dict[str, int] = {}
    for f in graph.factors:
        taken = {colour[other] for other in graph.neighbours(f) if other in colour}
        colour[f] = next(c for c in range(len(taken) + 1) if c not in taken)
    return tuple(sorted(graph.factors, key=colour.__getitem__))
