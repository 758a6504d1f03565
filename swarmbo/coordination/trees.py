"""Max-sum on a tree: every message once, as soon as it is final; then choices, from the root to the leaves."""

from collections.abc import Mapping

import numpy as np

from swarmbo.coordination import requests
from swarmbo.coordination.decoding import decode
from swarmbo.coordination.flooding import Flooding, messages_of_factor, messages_of_variable
from swarmbo.coordination.messages import Conditioned, FromFactor, FromVariable
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Edge, Flat, Table, Vector
from swarmbo.graph import FactorGraph


def on_tree(
    view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]
) -> Steps[tuple[dict[str, int], int]]:
    """Best choices of own variables and own factors' variables, and the number of rounds."""
    if view.is_whole:
        return (yield from _on_tree_at_once(view, tables, sizes))
    graph, mail = view.graph, requests.Mail()
    factors, variables = set(view.factors), set(view.variables)
    from_variables: dict[Edge, Vector] = {}
    from_factors: dict[Edge, Vector] = {}

    def hear(kind: str, edges: list[Edge], into: dict[Edge, Vector]) -> Steps[None]:
        yield from mail.wait([(kind, *edge) for edge in edges])
        into.update({edge: mail[kind, *edge].entries for edge in edges})

    # a message needs those of all but its recipient, so each message is sent once, when it is final
    for level in view.part.levels:
        writing = [(x, to) for x, to in level.from_variables if x in variables]
        needed = [(f, x) for x, to in writing for f in graph.factors_of(x) if to != (f,)]
        yield from hear("factor", needed, from_factors)
        for x, recipients in writing:
            outgoing, actor = messages_of_variable(graph, x, sizes[x], from_factors), graph.variable_owner(x)
            for f in recipients:
                mail.say(actor, graph.owner(f), FromVariable(f, x, outgoing[f]))
        answering = [(f, to) for f, to in level.from_factors if f in factors]
        needed = [(f, x) for f, to in answering for x in _writers(graph, f) if to != (x,)]
        yield from hear("variable", needed, from_variables)
        for f, recipients in answering:
            outgoing, owner = messages_of_factor(graph, f, tables[f], from_variables), graph.owner(f)
            for x in recipients:
                mail.say(owner, graph.variable_owner(x), FromFactor(f, x, outgoing[x]))
    yield from hear("factor", [(f, x) for x in view.variables for f in graph.factors_of(x)], from_factors)
    yield from hear("variable", [(f, x) for f in view.factors for x in _writers(graph, f)], from_variables)
    yield from mail.close()
    return (yield from decode(view, tables, from_variables, from_factors)), len(view.part.levels)


def _on_tree_at_once(
    view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]
) -> Steps[tuple[dict[str, int], int]]:
    """Same for a whole part in one process: bit-identical messages and choices, and as many."""
    flooding = Flooding(view.graph, tables, view.variables, sizes)
    from_variables, from_factors, n_rounds = flooding.tree_messages()
    edges, lengths = view.graph.edges, flooding.edge_sizes
    writes = np.diff(edges.first)[edges.factors] > 1
    yield requests.Crossed(
        lambda counts: counts.numbers(FromVariable, lengths, writes) + counts.numbers(FromFactor, lengths)
    )
    return (yield from decoded(view, tables, flooding, from_variables, from_factors)), n_rounds


def decoded(
    view: LocalView, tables: Mapping[str, Table], flooding: Flooding, from_variables: Flat, from_factors: Flat
) -> Steps[dict[str, int]]:
    """Choose variable by variable from the last messages; in one call for a whole part in one process."""
    if not view.is_whole:
        return (yield from decode(view, tables, flooding.by_edge(from_variables), flooding.by_edge(from_factors)))
    choices = flooding.last_choices(from_variables, from_factors)
    edges, place = view.graph.edges, np.empty(len(view.variables), dtype=np.int64)
    place[[view.graph.column_of[x] for x in view.part.order]] = np.arange(len(view.variables))
    turns = place[edges.variables]
    is_given = turns > np.minimum.reduceat(turns, edges.first[:-1])[edges.factors]  # an earlier variable is decided
    lengths = flooding.edge_sizes
    yield requests.Crossed(lambda counts: counts.numbers(Conditioned, lengths, is_given) + counts.words(choices))
    return flooding.by_variable(choices)


def _writers(graph: FactorGraph, factor: str) -> tuple[str, ...]:
    """Variables that write to a factor; the only variable of a factor does not."""
    scope = graph.scope(factor)
    return scope if len(scope) > 1 else ()
