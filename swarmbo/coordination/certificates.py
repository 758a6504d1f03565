"""Upper bounds that no joint choice from the tables exceeds, computed by the agents together.

Each bound is a sum of maxima of tables that are a reparametrisation of the graph's sum. So it holds for any messages,
even if they stop early. All agents receive the sum over a tree. On a part without loops the bound is the optimum, after
one pass of messages. Bounds hold for the tables (candidates), not for values between them.

Forbidden combinations (-inf) stay forbidden: no number is NaN, and a bound of -inf proves that every choice is
forbidden.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import numpy as np

from swarmbo.coordination import messages, requests
from swarmbo.coordination.decoding import decode
from swarmbo.coordination.flooding import Flooding, messages_of_factor, messages_of_variable
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.tables import Flat, Sizes, Table, Tables, Vector, coloured


def on_tree(view: LocalView, tables: Tables, sizes: Sizes) -> requests.Steps[tuple[dict[str, int], int]]:
    """Best choices of own variables and own factors' variables, and the number of rounds."""
    if view.is_whole:
        return (yield from _on_tree_at_once(view, tables, sizes))
    graph, mail = view.graph, requests.Mailbox()
    factors, variables = set(view.factors), set(view.variables)
    from_variables: dict[tuple[str, str], Vector] = {}
    from_factors: dict[tuple[str, str], Vector] = {}

    def receive(kind: str, edges: list[tuple[str, str]], into: dict[tuple[str, str], Vector]) -> requests.Steps[None]:
        yield from mail.wait([(kind, *edge) for edge in edges])
        into.update({edge: mail[kind, *edge].entries for edge in edges})

    # a sender waits for the messages of all but the recipient, so each message is sent once, when it is final
    for level in view.part.levels:
        writing = [(x, to) for x, to in level.from_variables if x in variables]
        needed = [(f, x) for x, to in writing for f in graph.factors_of(x) if to != (f,)]
        yield from receive("factor", needed, from_factors)
        for x, recipients in writing:
            outgoing, actor = messages_of_variable(graph, x, sizes[x], from_factors), graph.variable_owner(x)
            for f in recipients:
                mail.post(actor, graph.owner(f), messages.FromVariable(f, x, outgoing[f]))
        answering = [(f, to) for f, to in level.from_factors if f in factors]
        needed = [(f, x) for f, to in answering for x in graph.scope(f) if to != (x,)]
        yield from receive("variable", needed, from_variables)
        for f, recipients in answering:
            outgoing, owner = messages_of_factor(graph, f, tables[f], from_variables), graph.owner(f)
            for x in recipients:
                mail.post(owner, graph.variable_owner(x), messages.FromFactor(f, x, outgoing[x]))
    yield from receive("factor", [(f, x) for x in view.variables for f in graph.factors_of(x)], from_factors)
    # the only variable of a factor sends it no message
    needed = [(f, x) for f in view.factors for x in graph.scope(f) if graph.scope(f) != (x,)]
    yield from receive("variable", needed, from_variables)
    yield from mail.flush()
    return (yield from decode(view, tables, from_variables, from_factors)), len(view.part.levels)


def _on_tree_at_once(view: LocalView, tables: Tables, sizes: Sizes) -> requests.Steps[tuple[dict[str, int], int]]:
    """Choices, rounds and traffic of ``on_tree``, bit-identical, for a whole part in one process."""
    from swarmbo.coordination import compiled_passes  # late: numba is slow to load

    flooding, edges = Flooding(view.graph, tables, view.variables, sizes), view.graph.edges
    lengths, shapes = flooding.edge_sizes, {tables[f].shape for f in view.graph.factors}
    from_variables, from_factors, n_rounds = compiled_passes.tree_messages(edges, flooding.layout, shapes)
    sent = messages.FromVariable, lengths, np.diff(edges.first)[edges.factors] > 1
    yield requests.CountTraffic(lambda counts: counts.numbers(*sent) + counts.numbers(messages.FromFactor, lengths))
    return (yield from decoded(view, tables, flooding, from_variables, from_factors)), n_rounds


def decoded(
    view: LocalView, tables: Tables, flooding: Flooding, from_variables: Flat, from_factors: Flat
) -> requests.Steps[dict[str, int]]:
    """Choose variable by variable from the last messages; a whole part in one process takes one compiled call."""
    if not view.is_whole:
        return (yield from decode(view, tables, flooding.by_edge(from_variables), flooding.by_edge(from_factors)))
    from swarmbo.coordination import compiled_passes  # late: numba is slow to load

    choices = compiled_passes.last_choices(view.graph.edges, flooding.layout, from_variables, from_factors)
    edges, turn_of = view.graph.edges, np.empty(len(view.variables), dtype=np.int64)
    turn_of[[view.graph.column_of[x] for x in view.part.order]] = np.arange(len(view.variables))
    turns = turn_of[edges.variables]
    is_given = turns > np.minimum.reduceat(turns, edges.first[:-1])[edges.factors]  # an earlier variable is decided
    given = messages.Conditioned, flooding.edge_sizes, is_given
    yield requests.CountTraffic(lambda counts: counts.numbers(*given) + counts.decisions(choices))
    return flooding.by_variable(choices)


Bound = Literal["mplp"]
BOUND_ROUNDS = 20


def upper_bound(view: LocalView, tables: Tables, sizes: Sizes, rounds: int = BOUND_ROUNDS) -> requests.Steps[float]:
    """Upper bound on every joint choice of a connected part, up to rounding, after ``rounds`` sweeps of its factors."""
    if view.graph.is_forest:
        chosen, _ = yield from on_tree(view, tables, sizes)
        best = [tables[f][tuple(chosen[x] for x in view.graph.scope(f))] for f in view.factors]
        return (yield from _summed(best))
    return (yield from _mplp(view, tables, sizes, rounds))


def _summed(terms: Sequence[float]) -> requests.Steps[float]:
    """Sum of one term per factor over the whole part, given the ``terms`` of own factors."""
    sums = yield requests.AllReduce(np.array(terms, dtype=float).reshape(-1, 1, 1), limit=np.inf)
    return float(sums[0, 0])


def _mplp(view: LocalView, tables: Tables, sizes: Sizes, rounds: int) -> requests.Steps[float]:
    """Max-product linear programming: one colour after another, factors share their value evenly among variables."""
    # Let delta_f(x) be the share of factor f that goes to variable x. At any choice, the sum of all factors is sum_f [f
    # - sum_x delta_f(x)] + sum_x [sum_f delta_f(x)], so the sum of the brackets' maxima is a bound. With q(x) the sum
    # of x's shares of other factors, these shares of factor f lower the bound the most:
    #     delta_f(x) <- 1/|f| max over the others of [f + sum_y q(y)] - q(x)
    # Source: Globerson & Jaakkola 2007, factor by factor (Sontag, Globerson & Jaakkola 2011, 1.5.2). Factors that
    # share no variable update in parallel (colour after colour), so the bound falls from turn to turn. If no
    # combination of the remaining values allows a value, its share is -inf. The value is then left out everywhere, and
    # the rest stays finite.
    graph, variables = view.graph, set(view.variables)
    # by colour: factors of one colour share no variable, so parallel updates equal sequential updates
    order = sorted(graph.factors, key=coloured({f: graph.neighbours(f) for f in graph.factors}).__getitem__)
    scopes = {f: tuple(x for x in graph.scope(f) if len(graph.factors_of(x)) > 1) for f in graph.factors}
    # all other variables are in this factor only, so they can be maximised out at once
    lonely = {f: tuple(k for k, x in enumerate(graph.scope(f)) if x not in scopes[f]) for f in view.factors}
    tables = {f: tables[f].max(axis=axes) for f, axes in lonely.items()}
    homes = {x: graph.factors_of(x)[0] for x in graph.variables if len(graph.factors_of(x)) > 1}
    shares = {(f, x): np.zeros(sizes[x]) for f in view.factors for x in scopes[f]}  # of the own factors
    received = {(f, x): np.zeros(sizes[x]) for x in view.variables for f in graph.factors_of(x)}  # of the own variables

    def others(x: str, factor: str) -> Vector:
        return reduce(np.add, [received[f, x] for f in graph.factors_of(x) if f != factor])

    def receive(mail: requests.Mailbox, x: str, renewed: set[str]) -> requests.Steps[None]:
        keys = [("factor", f, x) for f in graph.factors_of(x) if f in renewed]
        yield from mail.wait(keys)
        received.update({(f, x): mail["factor", f, x].entries for _, f, x in keys})

    def rests() -> dict[str, float]:
        return {f: _rest(table, [shares[f, x] for x in scopes[f]]) for f, table in tables.items()}

    def present_bound() -> float:
        behind = [np.add(others(x, home), received[home, x]).max() for x, home in homes.items()]
        return float(sum(rests().values()) + sum(behind))

    for turn in range(rounds):
        mail, renewed = requests.Mailbox(), set[str]()
        # a factor of one shared variable gives it the whole value in the first turn; one without any sends nothing
        for f in [f for f in order if len(scopes[f]) > min(turn, 1)]:
            for x in scopes[f]:
                if x in variables:
                    yield from receive(mail, x, renewed)
                    mail.post(graph.variable_owner(x), graph.owner(f), messages.FromVariable(f, x, others(x, f)))
            if f in tables:
                yield from mail.wait([("variable", f, x) for x in scopes[f]])
                incoming = [mail["variable", f, x].entries for x in scopes[f]]
                for x, share in zip(scopes[f], _shares(tables[f], incoming), strict=True):
                    shares[f, x] = share
                    mail.post(graph.owner(f), graph.variable_owner(x), messages.FromFactor(f, x, share))
            renewed.add(f)
        for x in homes:
            if x in variables:
                yield from receive(mail, x, renewed)
        yield from mail.flush()
        yield requests.ReportBound(present_bound)
    mail, terms = requests.Mailbox(), rests()
    for x, home in homes.items():  # the owner of a variable's first factor adds up the variable's shares
        if x in variables:
            mail.post(graph.variable_owner(x), graph.owner(home), messages.FromVariable(home, x, others(x, home)))
    yield from mail.wait([("variable", home, x) for x, home in homes.items() if home in terms])
    yield from mail.flush()
    for x, home in homes.items():
        if home in terms:
            terms[home] += float((mail["variable", home, x].entries + shares[home, x]).max())
    return (yield from _summed(list(terms.values())))


def _shares(table: Table, received: list[Vector]) -> list[Vector]:
    """Share of each variable in a factor, given its shares of other factors."""
    n, shares = len(received), list[Vector]()
    for most, entries in zip(_max_marginals(table, received), received, strict=True):
        is_left = (most > -np.inf) & (entries > -np.inf)
        share = np.full(len(entries), -np.inf)
        # an n-th of the best value (most + entries), less the variable's shares of other factors
        share[is_left] = most[is_left] / n - (1.0 - 1.0 / n) * entries[is_left]
        shares.append(share)
    return shares


def _max_marginals(table: Table, received: list[Vector]) -> list[Vector]:
    """Max-marginals by variable: maxima over a factor's other variables of the factor plus their entries."""
    best, rest = list[Vector](), table
    for axis in range(len(received) - 1):
        others = reduce(lambda sums, entries: (sums[:, None] + entries).ravel(), received[axis + 1 :])
        rest = rest.reshape(len(received[axis]), -1)
        best.append((rest + others).max(axis=1))
        rest = (rest + received[axis][:, None]).max(axis=0)
    return [*best, rest.ravel()]


def _rest(table: Table, shares: list[Vector]) -> float:
    """Maximum of a factor minus its variables' shares, excluded values left out."""
    for axis, share in enumerate(shares):
        shape = [-1 if k == axis else 1 for k in range(len(shares))]
        table = table + np.where(share > -np.inf, -share, -np.inf).reshape(shape)
    return float(table.max())
