"""Problem of a team: variables with bounds and owners, and channels that read some of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.boundary.rng import sobol, stream
from swarmbo.boundary.values import distinct_names, html_table, known_names, real_array, short, table, unused_prefix
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem.coding import Coding, coding_of
from swarmbo.problem.constraints import Known, constraint_of, names_of
from swarmbo.problem.feasible import Feasible
from swarmbo.problem.no_go import Limit, NoGoRegion, region_of
from swarmbo.records import Goal
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Categorical, MixedDomain, Real, Variable, variable_of

if TYPE_CHECKING:
    import networkx as nx

OutcomeMode = Literal["total", "per-factor"]

_MOST_REGIONS = 1000
_FEW, _COUNTED = 1_000, 100_000  # most allowed joint values of grids that are listed, and most that are looked at
_PROJECTED = 64  # number of spread points that are moved to the nearest points that keep the constraints
_SPREAD = 4096  # points spread over the bounds, to find allowed points
_GRAPH_KEYS = ("factors", "factor_owners", "variables", "variable_owners")
_KIND_KEYS = ("structure", "is_field", "outcomes")
_FIELD_KEYS = ("aim", "level", "priced")  # of a field, where they differ from the default
_SLACK = 1e-6  # box widths: rounding errors this far outside are cut off


@dataclass(frozen=True, eq=False)
class Problem:
    """Variables with bounds and owners, and channels, which are sources of outcomes.

    A channel is a sum of latent functions, each read at some coordinates of the joint point. A function has a latent
    for each factor; a factor's channel reads it at the factor's scope, and the total reads all. A field has one latent;
    an agent's channel reads it at the agent's own variables, which are the coordinates of its measurement.

    Args:
        graph: Scopes and owners, a factor for each channel but the total; one factor over all variables if the
            structure of a function is unknown.
        domain: Bounds, in the order of ``graph.variables``; a ``MixedDomain`` if variables have types. Joint points
            hold codes: numbers, or positions of choices in their lists. Tables of variables hold values.
        structure: ``known`` if the graph has the factors.
        is_field: True if all channels read one latent.
        outcomes: Observed outcomes: the ``total``, or those of each channel.
        no_go: No-go regions: of locations in a field, of variables of a function.
        constraints: Limits between variables of a function: ``Linear``, ``Separation``, ``Constraint``.
        ranges: Limits on quantities measured with a function's outcomes: (low, high) by name, None for an open end.
        aim: Task of a field; the peak of a function.
        level: Level of interest in a field; None: no level.
        priced: True if measurements in a field are known to have prices, for which agents may abstain.
        present: Value of each variable now, in a running system that reports it; None: unknown.

    Example:
        >>> problem = Problem.of(None, {"x": (0.0, 2.0), "y": (-1.0, 1.0)})
        >>> problem.structure, problem.graph.scopes, problem.named(np.array([0.5, 0.0]))
        ('unknown', (('x', 'y'),), {'x': 0.5, 'y': 0.0})
        >>> Problem.of_field(["a", "b"], Domain(np.zeros(2), np.ones(2))).graph.scopes
        (('a[0]', 'a[1]'), ('b[0]', 'b[1]'))
    """

    graph: FactorGraph
    domain: Domain
    structure: Literal["known", "unknown"] = "known"
    is_field: bool = False
    outcomes: OutcomeMode = "total"
    no_go: tuple[NoGoRegion, ...] = ()
    constraints: tuple[Known, ...] = ()
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict[str, Any])
    aim: Goal = "peak"
    level: float | None = None
    priced: bool = False
    present: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        graph: "FactorGraph | nx.Graph[Any] | None",
        bounds: "Mapping[Any, Sequence[float] | Variable | Mapping[str, Any]]",
        variable_owners: Mapping[str, str] | None = None,
        outcomes: OutcomeMode = "total",
    ) -> "Problem":
        """Problem of a function, whose variables agents set jointly.

        Args:
            graph: Scopes and owners; None if the structure is unknown. In a networkx graph, nodes without bounds are
                factors; if all have bounds, each edge is a factor (``FactorGraph.of_any``).
            bounds: (low, high) of every variable, physical, or its type: ``Real``, ``Integer`` or ``Categorical``.
            variable_owners: Without a graph, the agent that sets each variable; by default one agent for each.
            outcomes: Observed outcomes.

        Raises:
            ConfigError: If bounds do not fit the graph, or are not finite with low < high, or outcomes are
                ``per-factor`` without a graph.
        """
        if outcomes not in get_args(OutcomeMode):
            raise ConfigError(f"got {outcomes!r}; wanted 'total' or 'per-factor'", at="$.outcomes")
        if graph is None and outcomes == "per-factor":
            fix = "wanted the graph that has the factors"
            raise ConfigError(f"got 'per-factor' without a graph; {fix}", at="$.outcomes")
        if graph is not None and not isinstance(graph, FactorGraph) and isinstance(cast(object, bounds), Mapping):
            bounds = {str(variable): pair for variable, pair in bounds.items()}  # as nodes are named
        table(bounds, "{variable: (low, high)}", "$.bounds")
        if variable_owners is not None:
            table(variable_owners, "{variable: agent}", "$.variable_owners")
        known = _one_factor(bounds, variable_owners) if graph is None else FactorGraph.of_any(graph, bounds)
        if variable_owners not in (None, {}, dict(zip(known.variables, known.variable_owners, strict=True))):
            fix = "wanted none: a graph has them, by FactorGraph.from_scopes(…, variable_owners=…)"
            raise ConfigError(f"got {short(variable_owners)} and a graph; {fix}", at="$.variable_owners")
        if set(bounds) != set(known.variables):
            raise ConfigError(f"got bounds of {list(bounds)}; wanted those of {list(known.variables)}", at="$.bounds")
        domain = MixedDomain.of([variable_of(bounds[name], f"$.bounds.{name}") for name in known.variables])
        return cls(known, domain, "unknown" if graph is None else "known", outcomes=outcomes)

    @classmethod
    def of_field(
        cls,
        agents: Sequence[str],
        box: Domain,
        aim: Goal | None = None,
        level: float | None = None,
        *,
        priced: bool = False,
    ) -> "Problem":
        """Problem of a field, in which every agent measures at its own location.

        Args:
            agents: Names of the agents; a channel for each.
            box: Box of locations (d,), the same for all.
            aim: Task of the field: ``peak``, ``map`` or ``level``; by default the level if one is stated, else the
                peak.
            level: Level of interest, in the unit of the field; required for ``level``.
            priced: True if agents may abstain from a measurement because of its price.

        Raises:
            ConfigError: If names are used twice, the aim is invalid, or the level is missing or not a finite number.
        """
        if aim is not None and aim not in get_args(Goal):
            raise ConfigError(f"got {short(aim)}; wanted 'peak', 'map' or 'level'", at="$.aim")
        finite_level = None if level is None else _level(level)
        if aim == "level" and finite_level is None:
            raise ConfigError("got none; wanted a level, for the aim 'level'", at="$.level")
        names = distinct_names(agents, "agent", "$.agents")
        scopes = {agent: [f"{agent}[{axis}]" for axis in range(box.n_dims)] for agent in names}
        graph = FactorGraph.from_scopes(scopes, owners={agent: agent for agent in names})
        domain = Domain(np.tile(box.low, len(names)), np.tile(box.high, len(names)))
        goal: Goal = aim or ("peak" if finite_level is None else "level")
        told: dict[str, Any] = {"aim": goal, "level": finite_level, "priced": priced}
        return cls(graph, domain, is_field=True, outcomes="per-factor", **told)

    def _repr_html_(self) -> str:
        """Table of variables with bounds and owners for notebooks; only the first of many."""
        kind = "field" if self.is_field else f"function, {self.outcomes} outcomes, structure {self.structure}"
        title = f"Problem: {kind}; agents: {len(self.agents)}, factors: {len(self.channels)}"
        rows = [(name, of.in_words, self.graph.variable_owner(name)) for name, of in self.variables.items()]
        return html_table(title, rows, header=("variable", "values", "agent"), more="variables")

    def watching(self, level: float | None) -> "Problem":
        """Problem with a level of interest; a first level turns an aim ``peak`` into ``level``. None: this problem."""
        if level is None:
            return self
        aim: Goal = "level" if self.level is None and self.aim == "peak" else self.aim
        return replace(self, aim=aim, level=_level(level))

    def with_no_go(self, regions: Iterable[object]) -> "Problem":
        """Problem with further no-go regions.

        Args:
            regions: Shapes of ``swarmbo.problem.no_go``, or tables that define them.

        Raises:
            ConfigError: If an object is not a region or has other variables. Also if none of 4,096 points that are
                spread over the bounds is allowed.
        """
        first, given = len(self.no_go), _as_list(regions, "regions", "$.no_go")
        if first + len(given) > _MOST_REGIONS:
            raise ConfigError(f"got {first + len(given)} regions; wanted at most {_MOST_REGIONS}", at="$.no_go")
        added = [region_of(region, f"$.no_go[{n}]") for n, region in enumerate(given, start=first)]
        for n, region in enumerate(added, start=first):
            self._check_fits(region, f"$.no_go[{n}]")
        limited = replace(self, no_go=(*self.no_go, *added))
        if added and not len(limited.allowed):
            got = f"got {len(limited.no_go)} that cover all of {_SPREAD:,} points spread over the bounds"
            raise ConfigError(f"{got}; wanted regions that leave some points to query", at="$.no_go")
        return limited

    def with_constraints(self, constraints: Iterable[object]) -> "Problem":
        """Problem of a function with further constraints.

        Args:
            constraints: Objects of ``swarmbo.problem.constraints``, or tables that define them.

        Raises:
            ConfigError: If one is invalid or has other variables, or no point keeps all; it lists those in conflict.
        """
        if not (items := _as_list(constraints, "constraints", "$.constraints")):
            return self
        if self.is_field:
            raise ConfigError("got constraints in a field; wanted no_go, regions of locations", at="$.constraints")
        first, known = len(self.constraints), self.variables
        added = [constraint_of(one, known, f"$.constraints[{n}]") for n, one in enumerate(items, start=first)]
        graph = replace(self.graph, joined=(*self.graph.joined, *(one.scope for one in added)))
        limited = replace(self, graph=graph, constraints=(*self.constraints, *added))
        near = limited._projected(np.full(len(known), 0.5))
        if near is not None and limited.is_allowed(near[None])[0]:
            return limited
        if conflict := limited._feasible.conflict():
            got = f"got {names_of(limited.constraints, conflict)}"
            raise ConfigError(f"{got}, which no point keeps; wanted constraints that leave some", at="$.constraints")
        if not len(limited.allowed):
            got = f"got constraints that leave no point{' outside no_go' * bool(self.no_go)}, as far as could be found"
            raise ConfigError(f"{got}; wanted some to query: widen a constraint or a region", at="$.constraints")
        return limited

    def with_limits(self, limits: Mapping[str, Sequence[float | None]]) -> "Problem":
        """Problem of a function with limits on quantities that are measured with each outcome.

        Args:
            limits: (low, high) of each quantity by name, None for an open end.

        Raises:
            ConfigError: If a range is invalid, or the problem is a field.
        """
        given = table(limits, "{quantity: (low, high)}", "$.limits")
        if given and self.is_field:
            raise ConfigError("got limits in a field; wanted none", at="$.limits")
        ranges: dict[str, tuple[float | None, float | None]] = {}
        for name, pair in given.items():
            numbers = real_array(pair)
            both = [] if numbers is None or numbers.shape != (2,) else numbers.tolist()
            ends = [None if math.isnan(end) else end for end in both]
            known = [end for end in ends if end is not None]
            if not known or not np.isfinite(known).all() or known != sorted(known):
                wanted = "(low, high), numbers with low <= high, or None for one of them"
                raise ConfigError(f"got {short(pair)}; wanted {wanted}", at=f"$.limits.{name}")
            ranges[name] = (ends[0], ends[1])
        # any variable may matter to a quantity, so the best values of separate parts may break its limit together
        graph = replace(self.graph, joined=(*self.graph.joined, self.graph.variables)) if ranges else self.graph
        return replace(self, graph=graph, ranges={**self.ranges, **ranges})

    def quantities(self, given: object) -> Mapping[str, Any]:
        """Check a user's table of measured quantities that have limits."""
        told = table({} if given is None else given, "{quantity: number}", at := "$.constraints")
        if strangers := [name for name in told if name not in self.ranges]:
            known = f"some of the limits {list(self.ranges)}" if self.ranges else "a team with limits={quantity: …}"
            raise ConfigError(f"got {strangers}; wanted {known}", at=at)
        return told

    @cached_property
    def _feasible(self) -> Feasible:
        return Feasible(tuple(self.variables.values()), self.graph.variables, self.constraints)

    def _check_fits(self, region: NoGoRegion, at: str) -> None:
        names = region.variables
        if self.is_field:
            if names is not None:
                fix = "wanted none in a field, where regions contain locations"
                raise ConfigError(f"got {list(names)}; {fix}", at=f"{at}.variables")
            n, source = self.box.n_dims, "a place"
        else:
            known = self.variables
            own_names = tuple(known) if names is None else names
            known_names(own_names, known, f"{at}.variables")
            distinct_names(own_names, "variable", f"{at}.variables")
            if choices := [name for name in own_names if isinstance(known[name], Categorical)]:
                wanted = "variables that are numbers, or a Constraint in place of the region"
                raise ConfigError(f"got the choice {choices[0]!r}; wanted {wanted}", at=f"{at}.variables")
            n, source = len(own_names), "its variables"
        if region.n_dims != n:
            raise ConfigError(f"got a region of {region.n_dims} coordinates; wanted {n}, those of {source}", at=at)

    @property
    def box(self) -> Domain:
        """Box that users see: of locations in a field, of joint points for a function."""
        return self.domain.part(range(len(self.graph.scopes[0]))) if self.is_field else self.domain

    @property
    def agents(self) -> tuple[str, ...]:
        """Owners of factors or variables."""
        return self.graph.agents

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, without the total."""
        return self.graph.factors

    @property
    def shares_outcomes(self) -> bool:
        """True if agents report outcomes: totals tie all factors together, so every agent needs all of them."""
        return self.outcomes == "total"

    def columns(self, channel: str) -> Int[np.ndarray, " s"]:
        """Indices (s,) of a joint point's coordinates that a channel reads; a KeyError for an unknown channel."""
        return np.array(self.graph.columns[self.graph.place_of[channel]])

    def takes_part(self, X: Float[np.ndarray, "*t n"]) -> Bool[np.ndarray, "*t k"]:
        """Mask of channels that take part in evaluations of joint points: none of their variables is NaN."""
        edges = self.graph.edges
        return ~np.logical_or.reduceat(np.isnan(X)[..., edges.variables], edges.first[:-1], axis=-1)

    def channels_in(self, point: Float[np.ndarray, " n"]) -> tuple[str, ...]:
        """Channels that take part in an evaluation of a joint point."""
        return tuple(channel for channel, takes in zip(self.channels, self.takes_part(point), strict=True) if takes)

    def joint(self, places: Mapping[str, Float[np.ndarray, " s"]]) -> Float[np.ndarray, " n"]:
        """Joint point at which channels read given locations; NaN for other variables."""
        point = np.full(self.domain.n_dims, np.nan)
        for channel, place in places.items():
            point[self.columns(channel)] = place
        return point

    def places(self, point: Float[np.ndarray, " n"], channels: Iterable[str]) -> dict[str, Float[np.ndarray, " s"]]:
        """Coordinates of a joint point that each channel reads, in the problem's order."""
        wanted = set(channels)
        return {channel: point[self.columns(channel)] for channel in self.channels if channel in wanted}

    def by_agent(self, point: Float[np.ndarray, " n"]) -> dict[str, np.ndarray]:
        """Values (m,) of each agent's own variables at a joint point; agents that take no part are left out."""
        names, column_of = self.graph.variables_owned_by, self.graph.column_of
        parts = {agent: point[[column_of[name] for name in names(agent)]] for agent in self.agents}
        there = {agent: own for agent, own in parts.items() if len(own) and not np.isnan(own).any()}
        if not self.is_mixed:
            return there
        values = self.named(point)
        return {agent: np.array([values[name] for name in names(agent)], dtype=object) for agent in there}

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Type of every variable."""
        low, high = self.domain.low.tolist(), self.domain.high.tolist()
        types = self.domain.variables if isinstance(self.domain, MixedDomain) else map(Real, low, high)
        return dict(zip(self.graph.variables, types, strict=True))

    @property
    def is_mixed(self) -> bool:
        """True if some variables are integers, choices, on a grid or on a logarithmic axis."""
        return isinstance(self.domain, MixedDomain)

    @cached_property
    def coding(self) -> Coding | None:
        """Coordinates of models; None if they are the variables themselves."""
        return coding_of(self.graph, self.domain)

    def modelled(self, X: Float[np.ndarray, "*t n"]) -> Float[np.ndarray, "*t N"]:
        """Joint points as models read them."""
        return X if self.coding is None else self.coding.inside(self.domain.to_unit(X))

    @property
    def variable_owners(self) -> dict[str, str]:
        """Agent that sets each variable."""
        return dict(zip(self.graph.variables, self.graph.variable_owners, strict=True))

    @cached_property
    def regions(self) -> tuple[Limit, ...]:
        """No-go regions and constraints, within the coordinates of ``box``."""

        def limit(of: NoGoRegion | Known, names: Iterable[str] | None) -> Limit:
            columns = [*range(self.box.n_dims)] if names is None else [self.graph.column_of[name] for name in names]
            return Limit(of, np.array(columns), self.box.part(columns))

        regions = [limit(region, region.variables) for region in self.no_go]
        return (*regions, *(limit(one, one.scope) for one in self.constraints))

    def is_allowed(self, U: Float[np.ndarray, "m n"]) -> Bool[np.ndarray, " m"]:
        """Mask of allowed points in the unit cube of ``box``. In a field, points are locations, even outside of it."""
        return np.all([np.ones(len(U), dtype=bool), *(limit.allows(U) for limit in self.regions)], axis=0)

    @cached_property
    def few(self) -> Float[np.ndarray, "m n"] | None:
        """``few_within`` the whole unit cube."""
        return self.few_within(*np.array([[0.0], [1.0]]) * np.ones(self.domain.n_dims))

    def few_within(
        self, low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "m n"] | None:
        """All allowed joint points in the cells of a box of the unit cube, if at most 1,000 of at most 100,000."""
        if not isinstance(domain := self.domain, MixedDomain) or not domain.counts.all():
            return None
        first, last = domain.cells(low), domain.cells(high)
        counts = last - first + 1.0  # of very fine grids, more than an integer can be
        if counts.prod() > (_COUNTED if self.regions else _FEW):
            return None
        sizes = counts.astype(int).tolist()
        cells = first + np.indices(sizes).reshape(len(sizes), -1).T
        points = domain.to_unit(domain.low + cells * domain.steps)
        allowed = points[self.is_allowed(points)]
        return allowed if len(allowed) <= _FEW else None

    def nearest_allowed(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Nearest found allowed point to a point (n,) of the unit cube of ``box``: itself if it is allowed, else just
        beyond a border, if possible. On axes with a grid it lies in the centre of a cell.
        """
        u = self.box.snapped(u)
        if not self.regions or self.is_allowed(u[None])[0]:
            return u
        if self.constraints:
            near = self._projected(u)
            if near is not None and self.is_allowed(near[None])[0]:
                return near
        tried = np.concatenate([self.allowed, self.exits(u)])
        return tried[int(((tried - u) ** 2).sum(axis=1).argmin())].copy()

    def exits(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, "k n"]:
        """Allowed points just beyond the borders of the no-go regions around a point (n,) of the unit cube."""
        around = [limit for limit in self.regions[: len(self.no_go)] if not limit.allows(u[None])[0]]
        moved = self.box.snapped(np.concatenate([self.allowed[:0], *(limit.exits(u) for limit in around)]))
        inside = moved[((moved >= 0.0) & (moved <= 1.0)).all(axis=1)]
        return inside[self.is_allowed(inside)]

    @cached_property
    def allowed(self) -> Float[np.ndarray, "m n"]:
        """Allowed points among those that are spread over the unit cube."""
        spread = self.box.snapped(sobol(_SPREAD, self.box.n_dims, stream(0, "no-go")))
        if self.constraints:  # few random points may keep the constraints
            near = [self._projected(u) for u in spread[:_PROJECTED]]
            spread = np.concatenate([spread, *(u[None] for u in near if u is not None)])
        return spread[self.is_allowed(spread)]

    def _projected(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"] | None:
        """Nearest point of the unit cube that keeps the constraints; None if none was found."""
        codes = self._feasible.nearest(self.in_box(u))
        return None if codes is None else np.clip(self.domain.to_unit(codes), 0.0, 1.0)

    def placed(self, point: Mapping[str, Any], at: str = "$.point") -> Float[np.ndarray, " n"]:
        """Joint point from a table of all variables; rounding errors at the bounds are cut off.

        Raises:
            ConfigError: If it is not a table of all variables, or a value is invalid for its variable.
        """
        table(point, "{variable: value}", at)
        names = dict.fromkeys(self.graph.variables)
        if missing := [variable for variable in names if variable not in point]:
            raise ConfigError(f"got no {missing[0]!r}; wanted a value for each of {list(names)}", at=at)
        if strangers := [name for name in point if name not in names]:
            raise ConfigError(f"got {strangers[0]!r}; wanted a value for each of {list(names)}", at=at)
        return self._checked(np.array(self.codes([point[variable] for variable in names], at)), at)

    def _checked(self, place: Float[np.ndarray, " n"], at: str) -> Float[np.ndarray, " n"]:
        """Joint point without rounding errors; a ConfigError names the variable that is farthest out of its bounds."""
        if not self.has(place):
            name = self.graph.variables[column := self.domain.farthest(place)]
            raise ConfigError(f"got {float(place[column])}; wanted {self.variables[name].wanted}", at=f"{at}.{name}")
        return self.domain.on_grid(np.clip(place, self.domain.low, self.domain.high))

    def codes(self, values: Sequence[object], at: str) -> list[float]:
        """Codes of values, in the order of the variables.

        Raises:
            ConfigError: If a value is invalid for its variable; it names the variable.
        """
        out: list[float] = []
        for (name, variable), value in zip(self.variables.items(), values, strict=True):
            code = variable.code(value)
            if code is None or not variable.axis.has(code):
                raise ConfigError(f"got {short(value)}; wanted {variable.wanted}", at=f"{at}.{name}")
            out.append(code)
        return out

    def coded_rows(self, points: object) -> Float[np.ndarray, "t n"]:
        """Codes of joint points; each row has the values of one point.

        Raises:
            ShapeError: If a row has more or fewer values than there are variables.
            ConfigError: If a value is invalid for its variable; it names row and variable.
        """
        given = np.ma.array(points, dtype=object).filled(np.nan)  # masked entries are missing
        rows = given.reshape(0, self.box.n_dims) if given.shape == (0,) else np.atleast_2d(given)
        if rows.ndim != 2 or rows.shape[1] != len(self.graph.variables):
            raise ShapeError(f"got points {rows.shape}; wanted (t, {len(self.graph.variables)})")
        return np.array([self.codes(list(row), f"$.points[{i}]") for i, row in enumerate(rows)]).reshape(rows.shape)

    def has(self, place: Float[np.ndarray, " n"]) -> bool:
        """True if a joint point is in bounds and on grids, up to rounding errors."""
        if isinstance(self.domain, MixedDomain):
            return all(v.axis.has(code) for v, code in zip(self.domain.variables, place.tolist(), strict=True))
        return bool((np.abs(self.domain.to_unit(place) - 0.5) <= 0.5 + _SLACK).all())  # False for NaN

    def has_point(self, point: Mapping[str, Any]) -> bool:
        """True if a table has a valid value of every variable, up to rounding errors."""
        codes = ((variable, variable.code(point[name])) for name, variable in self.variables.items())
        return all(code is not None and variable.axis.has(code) for variable, code in codes)

    def named(self, point: Float[np.ndarray, " n"]) -> dict[str, Any]:
        """Joint point as a table of its variables' values; variables of agents that take no part are left out."""
        return self.valued(self.coded(point))

    def valued(self, coded: Mapping[str, float]) -> dict[str, Any]:
        """Values of variables from a table of their codes."""
        return {v: self.variables[v].value(code) if self.is_mixed else code for v, code in coded.items()}

    def coded(self, point: Float[np.ndarray, " n"]) -> dict[str, float]:
        """Joint point as a table of its variables' codes; variables of agents that take no part are left out."""
        pairs = zip(self.graph.variables, point.tolist(), strict=True)
        return {variable: value for variable, value in pairs if value == value}  # False for NaN

    def places_of(self, point: Mapping[str, float]) -> dict[str, Float[np.ndarray, " s"]]:
        """Coordinates that each channel reads from a table of variables; channels that lack one are left out."""
        joint = np.array([point.get(variable, np.nan) for variable in self.graph.variables])
        return self.places(joint, self.channels_in(joint))

    def points(self, X: Float[np.ndarray, "t n"]) -> Float[np.ndarray, "t n"]:
        """Joint points in bounds; rounding errors are cut off.

        Raises:
            ConfigError: If a point is not in bounds; it names the row.
        """
        return np.array([self._checked(place, f"$.points[{row}]") for row, place in enumerate(X)]).reshape(X.shape)

    def in_box(self, U: Float[np.ndarray, "*m n"]) -> Float[np.ndarray, "*m n"]:
        """Points of the unit cube in physical units, in bounds after rounding."""
        return np.clip(self.domain.from_unit(np.clip(U, 0.0, 1.0)), self.domain.low, self.domain.high)

    def to_plain(self) -> dict[str, Any]:
        """Problem as plain data for ``from_plain``."""
        graph, types = self.graph, self.domain.variables if isinstance(self.domain, MixedDomain) else ()
        added = {*(one.scope for one in self.constraints), graph.variables if self.ranges else ()}
        limits = {"no_go": self.no_go, "constraints": self.constraints, "types": types, "ranges": self.ranges}
        limits |= {"joined": tuple(group for group in graph.joined if group not in added)}  # `from_plain` adds others
        return {
            **{key: getattr(self, key) for key in _KIND_KEYS},
            **{name: list(getattr(graph, name)) for name in _GRAPH_KEYS},
            "scopes": [list(scope) for scope in graph.scopes],
            "low": self.domain.low.tolist(),
            "high": self.domain.high.tolist(),
            **{key: msgspec.json.decode(msgspec.json.encode(told)) for key, told in limits.items() if told},
            **{key: told for key in _FIELD_KEYS if (told := getattr(self, key)) != getattr(Problem, key)},
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Problem":
        """Restore the problem from the result of ``to_plain``."""
        scopes = tuple(tuple(scope) for scope in plain["scopes"])
        names = {key: tuple(plain[key]) for key in _GRAPH_KEYS} | {"joined": tuple(plain.get("joined", ()))}
        domain = Domain(np.array(plain["low"]), np.array(plain["high"]))
        if "types" in plain:
            domain = MixedDomain.of([variable_of(given, "$.types") for given in plain["types"]])
        kind = {key: plain[key] for key in _KIND_KEYS}
        kind |= {key: plain[key] for key in _FIELD_KEYS if key in plain}
        return cls(FactorGraph(scopes=scopes, **names), domain, **kind).limited_as(plain)

    def limited_as(self, plain: Mapping[str, Any]) -> "Problem":
        """Problem with the regions, constraints and limits of ``to_plain``."""
        made = self.with_no_go(plain.get("no_go", ())).with_constraints(plain.get("constraints", ()))
        return made.with_limits(plain.get("ranges", {}))


def _as_list(given: object, what: str, at: str) -> list[object]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"got {short(given)}; wanted a list of {what}", at=at)
    return list(cast(Iterable[object], given))


def _level(given: object) -> float:
    number = real_array(given)
    if number is None or number.shape != () or not np.isfinite(number) or isinstance(given, str):
        raise ConfigError(f"got {short(given)}; wanted the level, a finite number", at="$.level")
    return float(number)


def _one_factor(bounds: Mapping[str, Any], variable_owners: Mapping[str, str] | None) -> FactorGraph:
    if not bounds:
        raise ConfigError("got no variables; wanted bounds of at least one", at="$.bounds")
    owners = variable_owners or {variable: f"agent_{index}" for index, variable in enumerate(bounds)}
    factor = "whole" if "whole" not in bounds else unused_prefix("whole", bounds)
    first = {factor: next(iter(owners.values()))}
    return FactorGraph.from_scopes({factor: list(bounds)}, owners=first, variable_owners=owners)
