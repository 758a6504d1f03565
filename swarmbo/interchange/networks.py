"""Formats of numbered variables: UAI's Markov networks, and weighted constraint networks (WCSP) as toulbar2 reads them.

Files are lists of words, with any white space between them. UAI's format has potentials >= 0; max-sum maximises the sum
of their logarithms (MAP). A potential of 0 forbids a combination. ``BAYES`` has the same form as ``MARKOV``::

    MARKOV  number of variables  size of each variable  number of factors
    for each factor: number of its variables, and their indices
    for each factor: number of its entries, and the entries; the last variable's value changes fastest

WCSP's format has integer costs >= 0, whose sum is minimised::

    name  number of variables  largest size  number of factors  upper bound  size of each variable
    for each factor: number of variables, their indices, default cost, number of tuples, tuples (value indices, cost)

A cost of the upper bound or more forbids a combination, and a choice with such a sum is not a solution. A factor
without variables is a constant.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.files import finite
from swarmbo.boundary.values import short
from swarmbo.coordination.tables import EXACT, Table
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import Budget, Objective, TableProblem, Value, enter, ordered_graph

_MOST_VARIABLES = 100_000
_MOST = 2**62  # WCSP's upper bound
_LEAST = float(np.finfo(float).tiny)  # floats below it have fewer digits
_ROUNDED = 1e-6  # largest error of a logarithm of a written potential, as a share of its table's spread
_FAINT = 1e-12  # a smaller spread, as a share of the largest one or of its table's entries, is taken for rounding

Factors = Sequence[tuple[Sequence[int], Table]]  # variables by number, and entries


class _Words:
    """Reader of the words of a text, in order, as numbers within bounds."""

    def __init__(self, text: str) -> None:
        self._words, self._next = text.split(), 0

    def take(self, what: str) -> str:
        """Next word; a ConfigError if there is none."""
        if self._next == len(self._words):
            raise ConfigError(f"ends after {self._next} words; wanted {what}: was the file cut off?")
        self._next += 1
        return self._words[self._next - 1]

    def integer(self, what: str, lowest: int, highest: int) -> int:
        word = self.take(what)
        if not (word.isascii() and word.isdigit() and len(word) < 20 and lowest <= int(word) <= highest):
            raise ConfigError(f"got {word[:20]!r}, word {self._next}; wanted {what}, {lowest} to {highest}")
        return int(word)

    def numbers(self, count: int, what: str) -> Float[np.ndarray, " n"]:
        words = self._words[self._next : self._next + count]
        if len(words) < count:
            raise ConfigError(f"ends after {len(words)} of {count} {what}: was the file cut off?")
        numbers = np.array([finite(word) for word in words])
        small = np.flatnonzero(~(numbers >= _LEAST))
        if wrong := [words[k] for k in small if numbers[k] != 0.0 or words[k].lower().partition("e")[0].strip("+-0.")]:
            raise ConfigError(f"{what}: got {wrong[0][:20]!r}; wanted numbers >= 0, none between 0 and {_LEAST:.3g}")
        self._next += count
        return numbers

    def scope(self, factor: int, count: int, n: int) -> list[int]:
        scope = [self.integer(f"a variable of factor {factor}", 0, n - 1) for _ in range(count)]
        if len(set(scope)) < len(scope):
            raise ConfigError(f"factor {factor} has variables {short(scope)}; wanted each once")
        return scope

    def require_end(self) -> None:
        if (left := len(self._words) - self._next) > 0:
            got = f"got {left} words after the last table, {self._words[self._next][:20]!r} first"
            raise ConfigError(f"{got}; wanted none")


def problem_of_uai(text: str, name: str) -> TableProblem:
    """Problem from UAI's format; a variable without a factor gets a constant factor."""
    words, budget = _Words(text), Budget()
    if (kind := words.take("MARKOV")) not in ("MARKOV", "BAYES"):
        raise ConfigError(f"begins with {kind[:20]!r}; wanted MARKOV or BAYES")
    n = words.integer("the number of variables", 1, _MOST_VARIABLES)
    sizes = [words.integer(f"the size of variable {i}", 1, 2**31) for i in range(n)]
    count = words.integer("the number of factors", 0, 10 * _MOST_VARIABLES)
    scopes = [words.scope(j, words.integer(f"how many variables factor {j} has", 0, n), n) for j in range(count)]
    factors = list[tuple[list[int], Table]]()
    for j, scope in enumerate(scopes):
        shape = budget.reserve([sizes[i] for i in scope], f"$.f{j}")
        wanted = math.prod(shape)
        if (stated := words.integer(f"the number of entries of factor {j}", 0, 2**62)) != wanted:
            raise ConfigError(f"factor {j} has {stated} entries; wanted {wanted}, the product of its variables' sizes")
        entries = words.numbers(wanted, f"entries of factor {j}")
        with np.errstate(divide="ignore"):
            factors.append((scope, np.log(entries).reshape(shape)))
    words.require_end()
    return _numbered(name, sizes, factors, budget, "max")


def _numbered(
    name: str, sizes: Sequence[int], factors: Factors, budget: Budget, objective: Objective, upper: float = math.inf
) -> TableProblem:
    """Problem of variables ``x0``, ``x1``, …, each with its agent; variables in no scope get a constant factor."""
    sign = 1.0 if objective == "max" else -1.0
    constant = float(sum(float(table) for scope, table in factors if not scope))
    if constant == -math.inf or constant >= upper:
        wanted = "potentials above 0" if objective == "max" else f"costs below the upper bound, {upper}"
        raise ConfigError(f"factors without variables forbid every choice; wanted {wanted}")
    scopes = {f"f{j}": [f"x{i}" for i in scope] for j, (scope, _) in enumerate(factors) if scope}
    tables = {f"f{j}": sign * table for j, (scope, table) in enumerate(factors) if scope}
    free = sorted(set(range(len(sizes))).difference(*(scope for scope, _ in factors)))
    tables |= {f"free_x{i}": np.zeros(budget.reserve([sizes[i]], f"$.x{i}")) for i in free}
    scopes |= {f"free_x{i}": [f"x{i}"] for i in free}
    domains: dict[str, tuple[Value, ...]] = {f"x{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    graph = ordered_graph(scopes, {variable: variable for variable in domains})
    return TableProblem(name, graph, tables, domains, objective, constant, upper=upper)


def uai_of_problem(problem: TableProblem) -> str:
    """Problem in UAI's format, variables in the graph's order; each factor is divided by its largest entry."""
    problem.require_unbounded("UAI's format")
    graph = problem.graph
    sizes = [len(problem.domains[x]) for x in graph.variables]
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(graph.factors))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in graph.columns]
    if closed := [f for f in graph.factors if problem.tables[f].max() == -math.inf]:
        raise ConfigError(f"factor {closed[0]!r} forbids all; wanted some entry above -inf")
    below = {f: problem.tables[f].max() - problem.tables[f] for f in graph.factors}  # inf: forbidden
    largest = max(steps[np.isfinite(steps)].max() for steps in below.values())
    for f, steps in below.items():
        potentials, allowed = np.exp(-steps), np.isfinite(steps)
        spread, allowed_potentials = steps[allowed].max(), potentials[allowed]
        got = f"factor {f!r} has entries up to {spread:.7g} below its largest, which potentials would round"
        if (allowed_potentials < _LEAST).any():
            raise ConfigError(f"{got}; wanted at most 708.396: divide all tables by one number, or write YAML")
        is_rounding = spread <= _FAINT * max(largest, np.abs(problem.tables[f][allowed]).max())
        if np.abs(np.log(allowed_potentials) + steps[allowed]).max() > _ROUNDED * spread and not is_rounding:
            raise ConfigError(f"{got}; wanted 0, or 2e-10 or more: multiply all tables by one number, or write YAML")
        lines += ["", str(steps.size), " ".join(map(repr, potentials.ravel().tolist()))]
    return "\n".join(lines) + "\n"


def uai_solution(assignment: dict[str, int]) -> str:
    """Assignment in the format of UAI's solvers: ``MPE``, the number of variables, and the index of each."""
    return f"MPE\n{len(assignment)} {' '.join(map(str, assignment.values()))}\n"


def problem_of_wcsp(text: str, _name: str) -> TableProblem:
    """Problem from WCSP's format, which has its name; a variable without a factor gets a constant factor."""
    words, budget = _Words(text), Budget()
    called = words.take("the name")
    n = words.integer("the number of variables", 1, _MOST_VARIABLES)
    largest = words.integer("the largest size", 1, 2**31)
    count = words.integer("the number of factors", 0, 10 * _MOST_VARIABLES)
    upper = words.integer("the upper bound", 1, _MOST)
    sizes = [words.integer(f"the size of variable {i}", 1, largest) for i in range(n)]

    def cost(what: str) -> float:
        if EXACT <= (number := words.integer(what, 0, _MOST)) < upper:
            raise ConfigError(f"got {number}; wanted {what}, below 2^53, or >= the upper bound, {upper}")
        return float(number) if number < upper else math.inf

    factors = list[tuple[list[int], Table]]()
    for j in range(count):
        scope = words.scope(j, words.integer(f"how many variables factor {j} has (shared ones are not read)", 0, n), n)
        shape = budget.reserve([sizes[i] for i in scope], f"$.f{j}")
        default, table = cost(f"the default cost of factor {j} (global ones are not read)"), np.full(shape, np.nan)
        for _ in range(words.integer(f"the number of tuples of factor {j} (shared ones are not read)", 0, table.size)):
            place = tuple(words.integer(f"a value of variable {i} in factor {j}", 0, sizes[i] - 1) for i in scope)
            enter(table, place, cost(f"a cost of factor {j}"), "values", place, "of variables", scope, at=f"$.f{j}")
        table[np.isnan(table)] = default
        factors.append((scope, table))
    words.require_end()
    return _numbered(called, sizes, factors, budget, "min", upper)


def wcsp_of_problem(problem: TableProblem) -> str:
    """Problem in WCSP's format. Costs are the tables' negated entries, shifted up if a table has some below 0. The
    constant corrects this if it is an integer >= 0; otherwise the name states by how much all costs are higher.
    """
    graph = problem.graph
    costs = {f: -table + 0.0 for f, table in problem.tables.items()}
    offset, most = (problem.constant if problem.objective == "min" else -problem.constant), 0
    for f, cost in costs.items():
        known = cost[np.isfinite(cost)]
        lowest = known.min(initial=0.0)
        highest = known.max(initial=lowest) - lowest
        if (known != known.round()).any() or highest >= EXACT:
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
        scope = graph.columns[graph.place_of[f]]
        rows = [[*at, int(min(cost[at], upper))] for at in zip(*np.nonzero(cost), strict=True)]
        lines += [" ".join(map(str, row)) for row in ([len(scope), *scope, 0, len(rows)], *rows)]
    return "\n".join(lines) + "\n"
