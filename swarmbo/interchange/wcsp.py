"""Format of weighted constraint networks (WCSP), as toulbar2 reads it: whole costs >= 0, of which a sum is minimised.

The text is a list of words; white space has no meaning::

    name  variables  the largest size  factors  upper bound  the size of each variable
    of each factor: number of variables, their indices, default cost, number of tuples, and of each tuple: an index of a
    value for each variable, and the cost

A cost of the upper bound or more forbids a combination, and a sum of the bound or more is no solution. A factor without
variables has a constant.
"""

import math

import numpy as np

from swarmbo.coordination.tables import Table
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import Room, TableProblem
from swarmbo.interchange.uai import MOST_VARIABLES, Words, numbered

_MOST = 2**62  # the upper bound
_EXACT = 2**53  # costs below it are exact as floats


def problem_of_wcsp(text: str, _name: str) -> TableProblem:
    """Problem of a text, which has its name; a variable without a factor gets a constant one."""
    words, room = Words(text), Room()
    called = words.take("the name")
    n = words.whole("the number of variables", 1, MOST_VARIABLES)
    largest = words.whole("the largest size", 1, 2**31)
    count = words.whole("the number of factors", 0, 10 * MOST_VARIABLES)
    upper = words.whole("the upper bound", 1, _MOST)
    sizes = [words.whole(f"the size of variable {i}", 1, largest) for i in range(n)]

    def cost(what: str) -> float:
        if _EXACT <= (number := words.whole(what, 0, _MOST)) < upper:
            raise ConfigError(f"got {number}; wanted {what}, below 2^53, or from the upper bound on, {upper}")
        return float(number) if number < upper else math.inf

    constant, named, tables = 0.0, dict[str, list[str]](), dict[str, Table]()
    for j in range(count):
        scope = words.scope(j, words.whole(f"how many variables factor {j} has (shared ones are not read)", 0, n), n)
        shape = room.take([sizes[i] for i in scope], f"$.f{j}")
        table = np.full(shape, cost(f"the default cost of factor {j} (global ones are not read)"))
        for _ in range(words.whole(f"the number of tuples of factor {j} (shared ones are not read)", 0, table.size)):
            place = tuple(words.whole(f"a value of variable {i} in factor {j}", 0, sizes[i] - 1) for i in scope)
            table[place] = cost(f"a cost of factor {j}")
        if scope:
            named[f"f{j}"], tables[f"f{j}"] = [f"x{i}" for i in scope], -table
        else:
            constant += float(table)
    words.require_end()
    if constant >= upper:
        raise ConfigError(f"factors without variables forbid every choice; wanted costs below the upper bound, {upper}")
    return numbered(called, sizes, named, tables, room, "min", constant, upper)


def wcsp_of_problem(problem: TableProblem) -> str:
    """Text of a problem, variables in the graph's order. Costs are the tables' negated entries, above each table's
    lowest if that is below 0; the constant makes up for that if it is whole and >= 0. Otherwise the name states by how
    much all costs are higher. The upper bound is the problem's, or above the sum of all costs that do not forbid.
    """
    graph = problem.graph
    place, costs = graph.column_of, {f: -table + 0.0 for f, table in problem.tables.items()}
    offset, most = (problem.constant if problem.objective == "min" else -problem.constant), 0
    for f, cost in costs.items():
        known = cost[np.isfinite(cost)]
        lowest = known.min(initial=0.0)
        highest = known.max(initial=lowest) - lowest
        if (known != known.round()).any() or highest >= _EXACT:
            raise ConfigError(f"factor {f!r} has costs other than whole numbers below 2^53; wanted those, or YAML")
        costs[f], offset, most = cost - lowest, offset + lowest, most + int(highest)
    constant = int(offset) if offset >= 0.0 and offset == int(offset) else 0
    upper = min(1 + constant + most, problem.upper + constant - offset)
    if not constant < upper <= _MOST:
        raise ConfigError(f"got an upper bound of {upper}; wanted one above the constant, {constant}, up to 2^62")
    sizes, upper = [len(problem.domains[x]) for x in graph.variables], math.ceil(upper)
    called = "_".join(problem.name.split()) or "problem"
    called += "" if constant == offset else f"_costs_{constant - offset:+.15g}"
    lines = [f"{called} {len(sizes)} {max(sizes)} {len(costs) + 1} {upper}", " ".join(map(str, sizes))]
    lines.append(f"0 {constant} 0")
    for f, cost in costs.items():
        scope = [place[x] for x in graph.scope(f)]
        rows = [[*at, int(min(cost[at], upper))] for at in zip(*np.nonzero(cost), strict=True)]
        lines += [" ".join(map(str, row)) for row in ([len(scope), *scope, 0, len(rows)], *rows)]
    return "\n".join(lines) + "\n"
