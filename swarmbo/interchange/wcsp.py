"""Format of weighted constraint networks (WCSP), as toulbar2 reads it: whole costs >= 0, of which a sum is minimised.

The text is a list of words; white space has no meaning::

    name  variables  the largest size  factors  upper bound  the size of each variable
    of each factor: number of variables, their indices, default cost, number of tuples, and of each tuple: an index of a
    value for each variable, and the cost

A cost of the upper bound or more forbids a combination; a factor without variables has a constant.
"""

import numpy as np

from swarmbo.coordination.tables import Table
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import Room, TableProblem
from swarmbo.interchange.uai import MOST_VARIABLES, Words, numbered

_MOST = 2**62  # costs


def problem_of_wcsp(text: str, name: str) -> TableProblem:
    """Problem of a text; a variable without a factor gets a constant one."""
    words, room = Words(text), Room()
    called = words.take("the name") or name
    n = words.whole("the number of variables", 1, MOST_VARIABLES)
    largest = words.whole("the largest size", 1, 2**31)
    count = words.whole("the number of factors", 0, 10 * MOST_VARIABLES)
    upper = words.whole("the upper bound", 1, _MOST)
    sizes = [words.whole(f"the size of variable {i}", 1, largest) for i in range(n)]
    constant, named, tables = 0.0, dict[str, list[str]](), dict[str, Table]()
    for j in range(count):
        scope = words.scope(j, words.whole(f"how many variables factor {j} has", 0, n), n)
        shape = room.take([sizes[i] for i in scope], f"$.f{j}")
        default = words.whole(f"the default cost of factor {j}", 0, _MOST)
        table = np.full(shape, float(default) if default < upper else np.inf)
        n_tuples = words.whole(f"the number of tuples of factor {j}, not of a global or shared one", 0, table.size)
        for _ in range(n_tuples):
            place = tuple(words.whole(f"a value of variable {i} in factor {j}", 0, sizes[i] - 1) for i in scope)
            cost = words.whole(f"a cost of factor {j}", 0, _MOST)
            table[place] = float(cost) if cost < upper else np.inf
        if scope:
            named[f"f{j}"], tables[f"f{j}"] = [f"x{i}" for i in scope], -table
        else:
            constant += float(table)
    words.require_end()
    if constant == np.inf:
        raise ConfigError("a factor without variables forbids every choice; wanted a cost below the upper bound")
    return numbered(called, sizes, named, tables, room, "min", constant)


def wcsp_of_problem(problem: TableProblem) -> str:
    """Text of a problem, variables in the graph's order. Costs are the tables' negated entries, above each table's
    lowest if that is below 0; the upper bound is above the sum of all that do not forbid.
    """
    graph = problem.graph
    place, costs = graph.column_of, {f: -table + 0.0 for f, table in problem.tables.items()}
    for f, cost in costs.items():
        known = cost[np.isfinite(cost)]
        if (known != known.round()).any() or (np.abs(known) >= 2**53).any():
            raise ConfigError(f"factor {f!r} has a cost that is no whole number below 2^53; wanted those, or YAML")
        costs[f] = cost - min(0.0, known.min(initial=0.0))
    constant = int(problem.constant) if problem.objective == "min" and problem.constant > 0 else 0
    upper = 1 + constant + sum(int(cost[np.isfinite(cost)].max(initial=0.0)) for cost in costs.values())
    sizes = [len(problem.domains[x]) for x in graph.variables]
    called = "_".join(problem.name.split()) or "problem"
    lines = [f"{called} {len(sizes)} {max(sizes)} {len(costs) + 1} {upper}", " ".join(map(str, sizes))]
    lines.append(f"0 {constant} 0")
    for f, cost in costs.items():
        scope = [place[x] for x in graph.scope(f)]
        rows = [[*at, int(min(cost[at], upper))] for at in zip(*np.nonzero(cost), strict=True)]
        lines += [" ".join(map(str, row)) for row in ([len(scope), *scope, 0, len(rows)], *rows)]
    return "\n".join(lines) + "\n"
