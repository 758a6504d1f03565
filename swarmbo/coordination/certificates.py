"""Upper bounds that no joint choice from the tables exceeds, computed by the agents together.

Each bound is a sum of maxima of tables that are a reparametrisation of the graph's sum. So it holds for any messages,
also if they stop early. All agents receive the sum over a tree. On a part without loops the bound is the optimum, after
one pass of messages. Bounds hold for the tables (candidates), not for values between them.

Forbidden combinations (-inf) stay forbidden: no number is NaN, and a bound of -inf proves that every choice is
forbidden.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Literal

import numpy as np

from swarmbo.coordination.messages import FromFactor, FromVariable
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.requests import AllReduce, Mail, Steps, Watch
from swarmbo.coordination.tables import Table, Vector
from swarmbo.coordination.trees import on_tree
from swarmbo.graph import FactorGraph

Bound = Literal["mplp"]

BOUND_ROUNDS = 20


def upper_bound(
    view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int], rounds: int = BOUND_ROUNDS
) -> Steps[float]:
    """Upper bound on every joint choice of a connected part, up to rounding, after so many turns of its factors."""
    if view.graph.is_forest:
        chosen, _ = yield from on_tree(view, tables, sizes)
        best = {f: float(tables[f][tuple(chosen[x] for x in view.graph.scope(f))]) for f in view.factors}
        return (yield from _summed(view, best))
    return (yield from _mplp(view, tables, sizes, rounds))


def _summed(view: LocalView, terms: Mapping[str, float]) -> Steps[float]:
    """Sum over all factors of the part, of a term for each own factor."""
    sums = yield AllReduce(np.array([terms[f] for f in view.factors]).reshape(-1, 1, 1))
    return float(sums[0, 0])


def _mplp(view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int], rounds: int) -> Steps[float]:
    """Max-product linear programming: factors in turn distribute their value evenly among their variables."""
    # With delta_f(x) the share that variable x has of factor f, the sum of all factors at any choice is sum_f [f -
    # sum_x delta_f(x)] + sum_x [sum_f delta_f(x)], so the sum of the maxima of the brackets is a bound. Factor f lowers
    # it the most that its own shares can, q being the sum of x's shares of other factors:
    #     delta_f(x) <- 1/|f| max over the others of [f + sum_y q(y)] - q(x)
    # Source: Globerson & Jaakkola 2007, by factors as Sontag, Globerson & Jaakkola 2011, section 1.5.2. Factors that
    # share no variable update in parallel (colour after colour), so the bound falls from turn to turn. If no
    # combination of the remaining values allows a value, its share is -inf. The value is then left out everywhere, and
    # the rest stays finite.
    graph, order = view.graph, _by_colour(view.graph)
    place, variables = {f: k for k, f in enumerate(order)}, set(view.variables)
    scopes = {f: tuple(x for x in graph.scope(f) if len(graph.factors_of(x)) > 1) for f in graph.factors}
    # other variables are in this factor only, so their maxima lose nothing
    lonely = {f: tuple(k for k, x in enumerate(graph.scope(f)) if x not in scopes[f]) for f in view.factors}
    tables = {f: tables[f].max(axis=axes) for f, axes in lonely.items()}
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
        """The present bound, for a caller that sees the whole part."""
        behind = [np.add(others(x, home), heard[home, x]).max() for x, home in homes.items()]
        return float(sum(_rest(tables[f], [shares[f, x] for x in scopes[f]]) for f in view.factors) + sum(behind))

    # factors of one colour share no variable, so parallel updates equal sequential ones
    for turn in range(rounds):
        mail = Mail()
        # a single variable gets the whole value at once
        speaking = {f for f in order if len(scopes[f]) > 1 or turn == 0}
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
    for x, home in homes.items():  # the owner of one factor adds up each variable's shares
        if x in variables:
            mail.say(graph.variable_owner(x), graph.owner(home), FromVariable(home, x, others(x, home)))
    yield from mail.wait([("variable", home, x) for x, home in homes.items() if home in terms])
    yield from mail.close()
    for x, home in homes.items():
        if home in terms:
            terms[home] += float((mail["variable", home, x].entries + shares[home, x]).max())
    return (yield from _summed(view, terms))


def _shares(table: Table, had: list[Vector]) -> list[Vector]:
    """Share of each variable in a factor, given its shares of other factors."""
    n, shares = len(had), list[Vector]()
    for most, entries in zip(_max_marginals(table, had), had, strict=True):
        is_left = (most > -np.inf) & (entries > -np.inf)
        share = np.full(len(entries), -np.inf)
        # an n-th of the best value, most + entries, less its shares of others
        share[is_left] = most[is_left] / n - (1.0 - 1.0 / n) * entries[is_left]
        shares.append(share)
    return shares


def _max_marginals(table: Table, had: list[Vector]) -> list[Vector]:
    """Maxima of a factor plus its variables' entries, for each variable over all others, its own entries left out."""
    best, rest = list[Vector](), table
    for axis in range(len(had) - 1):
        others = reduce(lambda sums, entries: (sums[:, None] + entries).ravel(), had[axis + 1 :])
        rest = rest.reshape(len(had[axis]), -1)
        best.append((rest + others).max(axis=1))
        rest = (rest + had[axis][:, None]).max(axis=0)
    return [*best, rest.ravel()]


def _rest(table: Table, shares: list[Vector]) -> float:
    """Largest remainder of a factor after its variables' shares; excluded values do not count."""
    for axis, share in enumerate(shares):
        shape = [-1 if k == axis else 1 for k in range(len(shares))]
        left = np.where(share > -np.inf, -np.where(share > -np.inf, share, 0.0), -np.inf)
        table = table + left.reshape(shape)
    return float(table.max())


def _by_colour(graph: FactorGraph) -> tuple[str, ...]:
    """Factors sorted by greedy colouring: factors of one colour come together and share no variable."""
    colour: dict[str, int] = {}
    for f in graph.factors:
        taken = {colour[other] for other in graph.neighbours(f) if other in colour}
        colour[f] = next(c for c in range(len(taken) + 1) if c not in taken)
    return tuple(sorted(graph.factors, key=colour.__getitem__))
