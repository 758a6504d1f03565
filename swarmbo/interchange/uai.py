"""UAI's format of Markov networks: potentials >= 0, whose logarithms max-sum maximises (MAP).

The text is a list of numbers; white space has no meaning::

    MARKOV  variables  the size of each  factors  of each: number of variables, and their indices  of each: number of
    entries, and these, the last variable's value changing fastest

``BAYES`` has the same form. A potential of 0 forbids a combination.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.values import is_plain, short
from swarmbo.coordination.tables import Table
from swarmbo.errors import ConfigError
from swarmbo.interchange.problem import Objective, Room, TableProblem, Value, graph_in_order

MOST_VARIABLES = 100_000
_KINDS = ("MARKOV", "BAYES")


class Words:
    """Words of a text in turn, read as numbers within bounds."""

    def __init__(self, text: str) -> None:
        self._words, self._next = text.split(), 0

    def take(self, what: str) -> str:
        """Next word; a ConfigError if there is none."""
        if self._next == len(self._words):
            raise ConfigError(f"ends after {self._next} words; wanted {what}: was the file cut off?")
        self._next += 1
        return self._words[self._next - 1]

    def whole(self, what: str, lowest: int, highest: int) -> int:
        """Next word as a whole number within bounds."""
        word = self.take(what)
        if not (word.isascii() and word.isdigit() and len(word) < 20 and lowest <= int(word) <= highest):
            raise ConfigError(f"got {word[:20]!r}, word {self._next}; wanted {what}, {lowest} to {highest}")
        return int(word)

    def numbers(self, count: int, what: str) -> Float[np.ndarray, " n"]:
        """Next words as numbers."""
        words = self._words[self._next : self._next + count]
        if len(words) < count:
            raise ConfigError(f"ends after {len(words)} of {count} {what}: was the file cut off?")
        try:
            if (strange := next((word for word in words if not is_plain(word)), None)) is not None:
                raise ValueError(f"got {strange[:20]!r}")
            numbers = np.array(words, dtype=np.float64)
        except ValueError as error:
            raise ConfigError(f"{what}: {error}; wanted numbers >= 0") from None
        self._next += count
        return numbers

    def scope(self, factor: int, count: int, n: int) -> list[int]:
        """Variables of a factor, by number."""
        scope = [self.whole(f"a variable of factor {factor}", 0, n - 1) for _ in range(count)]
        if len(set(scope)) < len(scope):
            raise ConfigError(f"factor {factor} has variables {short(scope)}; wanted each once")
        return scope

    def require_end(self) -> None:
        """Refuse further words."""
        if (left := len(self._words) - self._next) > 0:
            got = f"got {left} words behind the last table, {self._words[self._next][:20]!r} first"
            raise ConfigError(f"{got}; wanted none")


def problem_of_uai(text: str, name: str) -> TableProblem:
    """Problem of a text; a variable without a factor gets a constant one."""
    words, room = Words(text), Room()
    if (kind := words.take("MARKOV")) not in _KINDS:
        raise ConfigError(f"begins with {kind[:20]!r}; wanted {' or '.join(_KINDS)}")
    n = words.whole("the number of variables", 1, MOST_VARIABLES)
    sizes = [words.whole(f"the size of variable {i}", 1, 2**31) for i in range(n)]
    scopes: list[list[int]] = []
    for j in range(words.whole("the number of factors", 0, 10 * MOST_VARIABLES)):
        count = words.whole(f"how many variables factor {j} has", 0, n)
        scopes.append(words.scope(j, count, n))
    constant, named, tables = 0.0, dict[str, list[str]](), dict[str, np.ndarray]()
    for j, scope in enumerate(scopes):
        shape = room.take([sizes[i] for i in scope], f"$.f{j}")
        wanted = math.prod(shape)
        if (said := words.whole(f"the number of entries of factor {j}", 0, 2**62)) != wanted:
            raise ConfigError(f"factor {j} has {said} entries; wanted {wanted}, the product of its variables' sizes")
        entries = words.numbers(wanted, f"entries of factor {j}")
        if len(strange := entries[~((entries >= 0.0) & (entries < np.inf))]):
            raise ConfigError(f"factor {j}: got {strange[0]}; wanted potentials >= 0")
        with np.errstate(divide="ignore"):
            table = np.log(entries).reshape(shape)
        if scope:
            named[f"f{j}"], tables[f"f{j}"] = [f"x{i}" for i in scope], table
        else:
            constant += float(table)
    words.require_end()
    if constant == -math.inf:
        raise ConfigError("a factor without variables is 0, so every choice is forbidden; wanted one above 0")
    return numbered(name, sizes, named, tables, room, "max", constant)


def numbered(
    name: str,
    sizes: Sequence[int],
    scopes: Mapping[str, Sequence[str]],
    tables: Mapping[str, Table],
    room: Room,
    objective: Objective,
    constant: float,
    upper: float = math.inf,
) -> TableProblem:
    """Problem of variables ``x0``, ``x1``, … of such sizes, an agent each; those in no scope get a constant factor."""
    seen = {x for scope in scopes.values() for x in scope}
    free = [i for i in range(len(sizes)) if f"x{i}" not in seen]
    zeros = {f"free_x{i}": np.zeros(room.take([sizes[i]], f"$.x{i}")) for i in free}
    domains: dict[str, tuple[Value, ...]] = {f"x{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    scopes = {**scopes, **{f"free_x{i}": [f"x{i}"] for i in free}}
    graph = graph_in_order(scopes, {variable: variable for variable in domains})
    return TableProblem(name, graph, {**tables, **zeros}, domains, objective, constant, upper=upper)


def uai_of_problem(problem: TableProblem) -> str:
    """Text of a problem, variables in the graph's order; each factor is divided by its largest entry."""
    graph = problem.graph
    place = graph.column_of
    scopes = [[place[x] for x in graph.scope(f)] for f in graph.factors]
    sizes = [len(problem.domains[x]) for x in graph.variables]
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(scopes))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    for f in graph.factors:
        table = problem.tables[f]
        highest = float(table.max())
        if highest == -math.inf:
            raise ConfigError(f"factor {f!r} forbids all; wanted some entry above -inf")
        potentials = np.exp(table - highest)
        if ((potentials == 0.0) & (table > -np.inf)).any():
            got = f"factor {f!r} has entries more than 745 below its largest; as potentials they would be 0"
            raise ConfigError(f"{got}, which forbids: divide all tables by one number, or write YAML")
        lines += ["", str(table.size), " ".join(map(repr, potentials.ravel().tolist()))]
    return "\n".join(lines) + "\n"


def uai_solution(assignment: dict[str, int]) -> str:
    """Assignment in the format of UAI's solvers: ``MPE``, the number of variables, and the index of each."""
    return f"MPE\n{len(assignment)} {' '.join(map(str, assignment.values()))}\n"
