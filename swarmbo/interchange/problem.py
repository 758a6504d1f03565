"""Problems in tables, from files of other tools."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from swarmbo.boundary.values import exact, is_number, short
from swarmbo.coordination.tables import LARGEST, MOST_AXES, Table, checked_tables, sizes_of
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem.constraints import Constraint
from swarmbo.spaces.variables import Categorical

Value = int | float | str | bool
Objective = Literal["min", "max"]

MOST_ENTRIES = 2**24  # of all tables together, 128 MiB
_MOST_STEPS = 2**28  # of expressions, for all entries together: a few minutes


@dataclass(frozen=True, eq=False)
class TableProblem:
    """Variables with finite domains, and factors with the utility of joint choices.

    Args:
        name: Name of the problem.
        graph: Scopes and owners.
        tables: One array per factor, axes in scope order; their sum is maximised. -inf forbids a combination. Costs
            have the opposite sign.
        domains: The values of each variable, in the order of its axis.
        objective: ``"min"`` if the file has costs, ``"max"`` if it has utilities.
        constant: Constant that the file adds to every choice, in the sign of the file.
        notes: Statements of the file that are not in the tables, in words.
        idle: Agents of the file that own nothing.
        upper: A choice of this cost or more is not a solution.

    Raises:
        ShapeError: If tables do not fit the graph or the domains, or hold values that are not numbers.
        ConfigError: If the objective is another word, the constant is NaN or beyond 1e200, or the upper bound is NaN.

    Example:
        >>> import numpy as np
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"]})
        >>> problem = TableProblem("two", graph, {"f": -np.eye(2)}, {"x": ("R", "G"), "y": ("R", "G")}, "min")
        >>> problem.n_entries, problem.told(-1.0), problem.chosen({"x": 0, "y": 1})
        (4, 1.0, {'x': 'R', 'y': 'G'})
    """

    name: str
    graph: FactorGraph
    tables: Mapping[str, Table]
    domains: Mapping[str, tuple[Value, ...]]
    objective: Objective = "max"
    constant: float = 0.0
    notes: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    upper: float = math.inf

    def __post_init__(self) -> None:
        if self.objective not in ("min", "max"):
            raise ConfigError(f"got {short(self.objective)}; wanted 'min' or 'max'", at="$.objective")
        graph, tables = FactorGraph.with_tables(self.graph, self.tables)
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "tables", checked_tables(graph, tables))
        for name, most in (("constant", LARGEST), ("upper", math.inf)):
            if (number := getattr(self, name)) is None or not is_number(number) or not abs(number) <= most:
                raise ConfigError(f"got {short(number)}; wanted a number up to {most:g}", at=f"$.{name}")
        named = self.domains.items() if isinstance(cast(object, self.domains), Mapping) else ()
        domains = {str(variable): exact(_in_order(values)) for variable, values in named}
        for variable, size in sizes_of(graph, self.tables).items():
            values = domains.get(variable)
            if not isinstance(values, Sequence) or len(values) != size:
                wanted = f"a list of {size} values, as its tables have"
                raise ShapeError(f"domain of {variable!r}: got {short(values)}; wanted {wanted}")
        object.__setattr__(self, "domains", {variable: tuple(values) for variable, values in domains.items()})

    @property
    def n_entries(self) -> int:
        """Number of entries of all tables."""
        return sum(table.size for table in self.tables.values())

    @property
    def space(self) -> dict[str, Categorical]:
        """Types of the variables, for a ``Team`` that learns the factors instead of reading their tables.

        Raises:
            ConfigError: If a variable has a single value.
        """
        if fixed := [variable for variable, values in self.domains.items() if len(values) < 2]:
            raise ConfigError(f"got {fixed[0]!r} with a single value; wanted two at least", at="$.domains")
        return {variable: Categorical(values) for variable, values in self.domains.items()}

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Allowed combinations, for each factor that forbids some."""
        allowed = ((self.graph.scope(factor), np.isfinite(table)) for factor, table in self.tables.items())
        return tuple(Constraint(scope=scope, allowed=mask.tolist()) for scope, mask in allowed if not mask.all())

    def require_unbounded(self, form: str) -> None:
        """Refuse a problem in which the sum of allowed costs may reach the upper bound, which ``form`` cannot state."""
        allowed = sum(float(table[np.isfinite(table)].min(initial=0.0)) for table in self.tables.values())
        if self.upper <= (most := self.told(allowed)):
            got = f"got costs up to {most:,.15g} and an upper bound of {self.upper:,.15g}, which {form} cannot state"
            raise ConfigError(f"{got}; wanted a .wcsp file, or a problem without `upper`")

    def told(self, value: float) -> float:
        """A sum of the tables, or a bound on it, as in the file: with its constant, and as a cost if it has costs."""
        return (value if self.objective == "max" else -value) + self.constant

    def chosen(self, assignment: Mapping[str, int]) -> dict[str, Value]:
        """Values of the variables for an assignment of indices."""
        return {variable: self.domains[variable][index] for variable, index in assignment.items()}


def ordered_graph(
    scopes: Mapping[str, Sequence[str]], owners: Mapping[str, str], factor_owners: Mapping[str, str] | None = None
) -> FactorGraph:
    """Graph with variables in the order of ``owners``; a factor without an owner gets that of its first variable."""
    known = factor_owners or {}
    of_factors = tuple(known.get(factor, owners[scope[0]]) for factor, scope in scopes.items())
    of_scopes = tuple(tuple(scope) for scope in scopes.values())
    return FactorGraph(tuple(scopes), of_scopes, of_factors, tuple(owners), tuple(owners.values()))


def enter(table: Table, place: tuple[int, ...], number: float, *words: object, at: str) -> None:
    """Enter the number of a combination, named by words, in a table of NaN; refuse a second, different number."""
    if (old := table[place]) == old and old != number:
        raise ConfigError(f"got {old:.15g} and {number:.15g} for {' '.join(map(str, words))}; wanted one number", at=at)
    table[place] = number


class Budget:
    """Limits on the entries of a file's tables, and on the time to compute them, checked before tables are made."""

    _n_entries = _n_steps = 0

    def reserve(self, shape: Sequence[int], at: str, n_steps: int = 0) -> tuple[int, ...]:
        """Count a table's entries, or refuse it; return its shape. ``n_steps``: number of parts of its expression."""
        if len(shape) > MOST_AXES:
            raise ConfigError(f"got a table of {len(shape)} variables; wanted at most {MOST_AXES}", at=at)
        self._n_entries += math.prod(shape)
        self._n_steps += math.prod(shape) * n_steps
        if self._n_entries > MOST_ENTRIES:
            sizes = " x ".join(map(str, shape[:8])) + (" x …" if len(shape) > 8 else "")
            wanted = f"at most {MOST_ENTRIES:,} in all tables: give variables fewer values, or split the constraint"
            raise ConfigError(f"got a table of {sizes} entries; wanted {wanted}", at=at)
        if self._n_steps > _MOST_STEPS:
            got = f"got {math.prod(shape):,} combinations for an expression of {n_steps:,} parts"
            raise ConfigError(f"{got}; wanted at most {_MOST_STEPS:,}: shorten it, or give fewer values", at=at)
        return tuple(shape)


def _in_order(values: object) -> object:
    """Values of a frame's column, a table's keys or a generator as a tuple; other values, also sets, unchanged."""
    as_they_are = isinstance(values, Sequence | np.ndarray | set | frozenset)
    return tuple(cast(Iterable[Value], values)) if isinstance(values, Iterable) and not as_they_are else values
