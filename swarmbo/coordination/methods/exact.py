"""Exact optimum by variable elimination: one sweep forward with tables, one back with choices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import numpy as np
from jaxtyping import Float

from swarmbo.coordination import messages, requests
from swarmbo.coordination.agreement import Solution, TableOutcome
from swarmbo.coordination.decoding import best_value, line_of
from swarmbo.coordination.part import LocalView, Part
from swarmbo.coordination.plan import Plan, TableMethod
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import MOST_AXES, Sizes, Table, Tables
from swarmbo.errors import BudgetError
from swarmbo.graph import AnyGraph, AnyTables, FactorGraph, Links
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count
from swarmbo.transport import Routes

BLOCK = 2**14  # entries joined at a time: 128 KiB of float64 stays in the second-level cache


@kind("coordination", FIELD)
class Exact(TableMethod, frozen=True, tag_field="kind", tag="exact"):
    """Variable elimination (bucket elimination, Dechter 1999), refused if a table exceeds a budget.

    On the chain of DB-GP-UCB, factor n couples agents n … n+B. There, the method is one forward-backward sweep with
    messages over B agents. On other graphs, the graph's order of variables or the min-fill order is used, by the size
    of their largest tables.

    The report's ``rounds`` count dependent messages: tables are sent up the elimination tree, and choices down. They
    are twice the largest number of changes from one agent to another on a path to a root. Sending factors' tables to
    the agents that join them is not counted; it happens at once, before the rounds.

    Args:
        table_budget: Largest number of entries, >= 1, of one step's table: the product of the numbers of values of its
            variables. An entry has 8 bytes.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(2))  # neighbours want to differ
        >>> solution = sb.Exact(table_budget=8).solve(ring, tables)
        >>> solution.value, solution.report.status, solution.report.gap  # one of three pairs has to be equal
        (2.0, 'exact', 0.0)
    """

    table_budget: Count = 2**24

    def plan(self, graph: FactorGraph, sizes: Sizes, routes: Routes, seed: int = 0) -> Plan[Tables, TableOutcome]:
        """Make the plan, as every agent computes it from the graph: the order, and the joins of each step.

        Raises:
            BudgetError: If a step's table would exceed the budget, or have more than 64 variables.
        """
        buckets = elimination_steps(graph, sizes)
        largest = max(buckets.values(), key=lambda bucket: bucket.entries)
        if (entries := largest.entries) > self.table_budget:
            clique = (largest.variable, *largest.scope)
            product, names = " x ".join(str(sizes[x]) for x in clique[:8]), ", ".join(clique[:8])
            if len(clique) > 8:
                product, names = f"{product} x …", f"{names}, …"
            needed = f"{product} = {_shortened(entries)} entries ({_shortened(entries // 2**17)} MiB) over {names}"
            budget = f"the budget is {_shortened(self.table_budget)} entries"
            fix = "Raise `table_budget`, give the variables fewer values, or use max-sum."
            raise BudgetError(f"exact needs a table of {needed}; {budget}. {fix}")
        if (n_axes := 1 + max(len(bucket.scope) for bucket in buckets.values())) > MOST_AXES:
            raise BudgetError(f"exact needs a table of {n_axes} variables; NumPy's limit is {MOST_AXES}. Use max-sum.")
        steps = partial(eliminated, buckets=buckets, sizes=sizes, rounds=rounds_of(graph, buckets))
        joined = {x: bucket.scope for x, bucket in buckets.items()}
        return Plan((Part(graph, 0, routes),), steps, sizes, joined)


def exact(graph: AnyGraph, tables: AnyTables = None, *, table_budget: int = 2**24, links: Links = None) -> Solution:
    """Exact optimum of a factor graph; see :class:`Exact`.

    ``table_budget`` is the setting of ``Exact``. Graph, tables, links, result and errors are those of
    ``TableMethod.solve``. The result has ``upper_bound == value``.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]})
        >>> exact(graph, {"f": [[0.0, 3.0], [1.0, 0.0]], "g": [1.0, 0.0]}).assignment
        {'x': 0, 'y': 1}
    """
    return Exact(table_budget=table_budget).solve(graph, tables, links)


@dataclass(frozen=True)
class Bucket:
    """Elimination of a variable: its ``scope`` in the order of later elimination, the factors and earlier results
    (``children``) joined here, the step that takes the result (None at the end of a part), and the joined ``entries``.
    """

    variable: str
    scope: tuple[str, ...]
    factors: tuple[str, ...]
    children: tuple[str, ...]
    parent: str | None
    entries: int


def elimination_steps(graph: FactorGraph, sizes: Sizes) -> dict[str, Bucket]:
    """Steps in the graph's own order of variables, or in min-fill order if its largest table is smaller."""
    by_fill = buckets_of(graph, _min_fill_order(graph, sizes), sizes)
    largest = max(bucket.entries for bucket in by_fill.values())
    return buckets_of(graph, graph.variables, sizes, largest) or by_fill  # in a tie, the graph's order


def buckets_of(graph: FactorGraph, order: Sequence[str], sizes: Sizes, most: float = math.inf) -> dict[str, Bucket]:
    """Steps of an elimination in the given order, by variable; none if one joins more than ``most`` entries."""
    index_of = {variable: i for i, variable in enumerate(order)}
    factors: dict[str, list[str]] = {variable: [] for variable in order}
    for factor in graph.factors:
        factors[min(graph.scope(factor), key=index_of.__getitem__)].append(factor)
    children: dict[str, list[str]] = {variable: [] for variable in order}
    buckets: dict[str, Bucket] = {}
    for x in order:
        joined = {x}.union(*map(graph.scope, factors[x]), *(buckets[child].scope for child in children[x]))
        if (entries := math.prod(sizes[y] for y in joined)) > most:
            return {}
        scope = tuple(sorted(joined - {x}, key=index_of.__getitem__))
        parent = scope[0] if scope else None
        buckets[x] = Bucket(x, scope, tuple(factors[x]), tuple(children[x]), parent, entries)
        if parent is not None:
            children[parent].append(x)
    return buckets


def eliminate(bucket: Bucket, parts: Sequence[tuple[Sequence[str], Table]], sizes: Sizes) -> Float[np.ndarray, "..."]:
    """Join tables and maximise a variable out of them, axes as in ``bucket.scope``; bit-identical for every agent."""
    clique = (bucket.variable, *bucket.scope)
    views = [_aligned(table, scope, clique) for scope, table in parts]
    shape = tuple(sizes[x] for x in bucket.scope)
    n_values = sizes[bucket.variable]
    if len(views) == 1:
        return np.ascontiguousarray(np.broadcast_to(views[0].max(axis=0), shape))
    n_rows = max(1, min(n_values, BLOCK // max(1, math.prod(shape))))
    best = np.full(shape, -np.inf)
    joined = np.empty((n_rows, *shape))
    for start in range(0, n_values, n_rows):
        block = joined[: min(n_rows, n_values - start)]
        rows = slice(start, start + len(block))
        np.add(views[0][rows], views[1][rows], out=block)
        for view in views[2:]:
            np.add(block, view[rows], out=block)
        np.maximum(best, block[0] if len(block) == 1 else block.max(axis=0), out=best)
    return best


def _aligned(table: Table, scope: Sequence[str], clique: Sequence[str]) -> Table:
    """View with one axis per variable of the clique; it has length 1 for variables that the table lacks."""
    view = table.transpose([scope.index(x) for x in clique if x in scope])
    return view[tuple(slice(None) if x in scope else None for x in clique)]


def _min_fill_order(graph: FactorGraph, sizes: Sizes) -> tuple[str, ...]:
    """Variables by fewest missing links between neighbours; in ties by the smallest table, then the graph's order."""
    around = {x: {y for f in graph.factors_of(x) for y in graph.scope(f)} - {x} for x in graph.variables}
    entries = {x: math.prod(sizes[y] for y in near) for x, near in around.items()}
    # a missing link counts twice; both numbers change link by link, as to count them again takes the square of a degree
    fill = {x: len(near) * (len(near) - 1) - sum(len(near & around[y]) for y in near) for x, near in around.items()}

    def cost(x: str) -> tuple[int, float, int]:
        return fill[x], math.log2(entries[x]), graph.column_of[x]

    queue = sorted(map(cost, around))  # a heap; later it has outdated costs too, which are skipped
    order: list[str] = []
    while queue:
        known = heappop(queue)
        x = graph.variables[known[-1]]
        if x not in around or known != cost(x):
            continue
        order.append(x)
        neighbours = around.pop(x)
        changed = set(neighbours)
        for y in neighbours:
            around[y].discard(x)
            entries[y] //= sizes[x]
            fill[y] -= 2 * (len(around[y]) - len(around[y] & neighbours))
        for y in neighbours:
            for z in neighbours - around[y] - {y}:
                common = around[y] & around[z]
                for one, other in ((y, z), (z, y)):
                    fill[one] += 2 * (len(around[one]) - len(common))
                    entries[one] *= sizes[other]
                    around[one].add(other)
                for between in common:
                    fill[between] -= 2
                changed |= common
        for y in changed:
            heappush(queue, cost(y))
    return tuple(order)


def rounds_of(graph: FactorGraph, buckets: Mapping[str, Bucket]) -> int:
    """Number of sequential messages: tables up the elimination tree, and choices down; see :class:`Exact`."""
    handed_on: dict[str, int] = {}  # changes of agent on the longest path to each variable
    for variable, bucket in buckets.items():
        actor = graph.variable_owner(variable)
        below = (handed_on[child] + (graph.variable_owner(child) != actor) for child in bucket.children)
        handed_on[variable] = max(below, default=0)
    return 2 * max(handed_on.values())


def eliminated(
    view: LocalView, tables: Tables, buckets: Mapping[str, Bucket], sizes: Sizes, rounds: int
) -> Steps[TableOutcome]:
    """Steps for some factors and variables: the owner of a variable takes its step."""
    graph, mail = view.graph, requests.Mailbox()
    actor_of = {variable: graph.variable_owner(variable) for variable in graph.variables}
    factors, variables = set(view.factors), set(view.variables)
    for x, bucket in buckets.items():
        for f in bucket.factors:
            if f in factors and graph.owner(f) != actor_of[x]:
                mail.post(graph.owner(f), actor_of[x], messages.FactorTable(f, tables[f].shape, tables[f]))
    own_buckets = [bucket for x, bucket in buckets.items() if x in variables]
    parts_of: dict[str, list[tuple[tuple[str, ...], Table]]] = {}
    for bucket in own_buckets:
        x = bucket.variable
        away = {f: ("table", f) for f in bucket.factors if graph.owner(f) != actor_of[x]}
        left = {child: ("eliminated", child) for child in bucket.children}
        yield from mail.wait([*away.values(), *left.values()])
        parts_of[x] = [
            *((graph.scope(f), _table(mail[away[f]]) if f in away else tables[f]) for f in bucket.factors),
            *((buckets[child].scope, _table(mail[left[child]])) for child in bucket.children),
        ]
        if bucket.parent is not None:
            result = eliminate(bucket, parts_of[x], sizes)
            mail.post(actor_of[x], actor_of[bucket.parent], messages.Eliminated(x, result.shape, result))
    choices: dict[str, int] = {}
    for bucket in reversed(own_buckets):
        x, around = bucket.variable, dict[str, int]()
        if bucket.parent is not None:
            key = ("decided", x)
            yield from mail.wait([key])
            around = dict(zip(bucket.scope, mail[key].indices, strict=True))
        choices[x] = around[x] = best_value([line_of(table, scope, x, around) for scope, table in parts_of[x]])
        for child in bucket.children:
            indices = tuple(around[y] for y in buckets[child].scope)
            mail.post(actor_of[x], actor_of[child], messages.Decided(child, indices))
    yield from mail.flush()
    return TableOutcome(choices, "exact", rounds)


def _table(message: messages.FactorTable | messages.Eliminated) -> Table:
    return message.entries.reshape(message.shape)


def _shortened(number: int) -> str:
    """Text with all digits up to 10^15, else the nearest power of ten; by integers, as floats end at 10^308."""
    return f"{number:,}" if number <= 10**15 else f"about 10^{math.log10(number):.0f}"
