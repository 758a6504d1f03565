"""Known tables of a fleet's plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from swarmbo.agent.schema import forbidding
from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.tables import Conflicts, Table, sizes_of
from swarmbo.errors import BudgetError, ConfigError
from swarmbo.fleet.letters import LONGEST
from swarmbo.graph import FactorGraph
from swarmbo.interchange import TableProblem
from swarmbo.problem import Problem
from swarmbo.spaces import Domain
from swarmbo.transport import Routes

_HEAD = 2**12  # bytes of a message beside its table


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tables of a problem whose factors are known: the number of values by variable, and tables by factor, as bytes of
    float64 in C order. By a deadline all agents know the forbidden pairs of each one, as of ``Conflicts.packed``.
    """

    sizes: dict[str, int]
    forbidden: dict[str, bytes]
    by_factor: dict[str, bytes]

    def require_of(self, graph: FactorGraph, at: str, *, is_timed: bool) -> None:
        """Refuse tables of another graph, and such that are no utilities; ``is_timed`` by a deadline."""
        sizes, own = self.sizes, self.by_factor
        if set(sizes) != set(graph.variables) or not set(own) <= set(graph.factors) or min(sizes.values()) < 1:
            raise ConfigError("got sizes or tables of others; wanted those of the problem", at=at)
        if wrong := [f for f in own if len(own[f]) != 8 * math.prod(sizes[x] for x in graph.scope(f))]:
            raise ConfigError(f"got a table of {wrong[0]!r} that has another size", at=at)
        if wrong := [f for f in own if not (np.frombuffer(own[f], "<f8") < np.inf).all()]:
            raise ConfigError(f"got NaN or inf in the table of {wrong[0]!r}; wanted numbers or -inf", at=at)
        fits = forbidding(graph, sizes)
        wrong = [agent for agent in graph.agents if not fits(agent, self.forbidden.get(agent, b""))]
        if wrong and (is_timed or self.forbidden):
            raise ConfigError(f"got no forbidden pairs of {wrong[0]!r} that fit its factors; wanted them", at=at)

    def own(self, graph: FactorGraph, agent: str) -> dict[str, Table]:
        """Tables of an agent's factors."""
        shapes = {f: [self.sizes[x] for x in graph.scope(f)] for f in graph.factors_owned_by(agent)}
        if not set(shapes) <= set(self.by_factor):
            raise ConfigError(f"got a plan without tables of {agent!r}; wanted its own, {agent}.json", at="--fleet")
        return {f: np.frombuffer(self.by_factor[f], "<f8").reshape(shape) for f, shape in shapes.items()}


def to_plan(problem: TableProblem, method: TableMethod, seed: int) -> dict[str, Any]:
    """Problem, settings and all tables as a ``Plan`` has them. A BudgetError if an exact method would exceed its
    budget, or a message would be too long for a letter.
    """
    graph, tables = problem.graph, problem.tables
    sizes, is_timed = sizes_of(graph, tables), has_deadline(method)
    joined = {} if is_timed else method.plan(graph, sizes, Routes(graph.agents), seed).joined
    _require_short(graph, sizes, joined)
    highs = np.array([max(size - 1, 1) for size in sizes.values()], dtype=float)
    known = Tables(
        sizes,
        {agent: Conflicts.packed(graph, tables, agent) for agent in graph.agents} if is_timed else {},
        {f: np.ascontiguousarray(table, "<f8").tobytes() for f, table in tables.items()},
    )
    plain = Problem(graph, Domain(np.zeros(len(highs)), highs)).to_plain()
    return {"problem": plain, "settings": {"coordination": msgspec.to_builtins(method), "seed": seed}, "tables": known}


def _require_short(graph: FactorGraph, sizes: Mapping[str, int], joined: Mapping[str, Sequence[str]]) -> None:
    """Refuse tables that are too long to be sent: of variables, of an elimination's steps, and of factors for them."""
    owner = graph.variable_owner
    sent = [(x,) for x in graph.variables if any(graph.owner(f) != owner(x) for f in graph.factors_of(x))]
    sent += [tuple(scope) for x, scope in joined.items() if scope and owner(x) != owner(scope[0])]
    for f in graph.factors:  # the step of the variable that is eliminated first joins it
        steps = [x for x in graph.scope(f) if {*graph.scope(f)} <= {x, *joined.get(x, ())}]
        sent += [graph.scope(f) for x in steps if owner(x) != graph.owner(f)]
    most = max((math.prod(sizes[x] for x in scope) for scope in sent), default=0)
    if 8 * most > (longest := LONGEST - _HEAD):
        got = f"agents of a fleet would send a table of {most:,} entries; a message holds {longest // 8:,}"
        raise BudgetError(f"{got}. Give the variables fewer values, or use max-sum, or `swarmbo solve`.")
