"""pyDCOP's YAML: domains, variables, constraints in tables or as expressions, agents.

Settings of pyDCOP's computations and starts are ignored: initial values, capacities, routes, hosting costs. Code is
refused: functions of several lines, and functions in a ``source`` file.

YAML is read by PyYAML's safe loader, which makes plain data only. Merge keys (``<<``), duplicate keys, and aliases that
expand beyond the largest file are refused.
"""

import itertools
import math
import shlex
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from swarmbo.boundary.values import distinct_names, short
from swarmbo.coordination.tables import LARGEST, Table
from swarmbo.errors import ConfigError, needed
from swarmbo.interchange.expressions import Expression
from swarmbo.interchange.problem import Budget, Objective, TableProblem, Value, enter, ordered_graph

_SEPARATORS = set("'\"|")  # and white space
_MOST_EXPANDED = 2**23  # parts and characters: more than the largest file has without aliases
_LONGEST_NUMBER = 500  # characters
_KEYS = ("type", "function", "partial", "source", "variables", "values", "default")
_SECTIONS = ("name", "description", "objective", "domains", "variables", "external_variables", "constraints")
_SECTIONS += ("agents", "distribution_hints", "routes", "hosting_costs")

Domains = Mapping[str, tuple[Value, ...]]
Factors = dict[str, tuple[tuple[str, ...], Table]]  # scope and table of each


def problem_of_yaml(text: str, name: str) -> TableProblem:
    """Problem from YAML. A ``cost_function`` is a factor ``cost_…``; a variable without constraints gets ``free_…``.
    Hints give owners. Other variables go to the agents round-robin, other constraints to their first variable's owner.
    """
    data, budget = _load_yaml(text), Budget()
    objective: Objective = _one_of(data.get("objective"), ("min", "max"), "$.objective")
    values = {key: _domain(given, f"$.domains.{key}") for key, given in _table(data, "domains").items()}
    variables = _table(data, "variables")
    domains = {x: _one_of_domains(given, values, f"$.variables.{x}") for x, given in variables.items()}
    if not domains:
        raise ConfigError("got no variable; wanted one at least", at="$.variables")
    factors, constant = _factors(data, domains, _fixed_values(data, values, domains), budget)
    scopes = {factor: scope for factor, (scope, _) in factors.items()}
    sign = 1.0 if objective == "max" else -1.0
    tables = {factor: sign * factors.pop(factor)[1] for factor in scopes}  # no table is in memory twice
    seen = {variable for scope in scopes.values() for variable in scope}
    for variable in [x for x in domains if x not in seen]:
        factor = _unused(f"free_{variable}", scopes, domains)
        scopes[factor] = (variable,)
        tables[factor] = np.zeros(budget.reserve([len(domains[variable])], "$.variables"))
    for factor, table in tables.items():
        if table.max() == np.inf:
            got = "-.inf, which is below any cost" if objective == "min" else ".inf, which is above any other value"
            raise ConfigError(f"constraint {factor!r}: got {got}; wanted numbers, or the other sign, which forbids")
    if not math.isfinite(constant):
        raise ConfigError("a constraint without variables is not finite; wanted a number", at="$.constraints")
    agents, owners, factor_owners = _owners(data, domains, scopes)
    graph = ordered_graph(scopes, owners, factor_owners)
    called, idle = str(data.get("name") or name), tuple(agent for agent in agents if agent not in graph.agents)
    notes = [f"section {short(key)} is not read" for key in data if key not in _SECTIONS]
    noises = {variable: given["noise_level"] for variable, given in variables.items() if given.get("noise_level")}
    notes += [f"variable {variable!r}: noise_level = {short(noise)} is not drawn" for variable, noise in noises.items()]
    return TableProblem(called, graph, tables, domains, objective, constant, tuple(notes), idle)


def _fixed_values(data: Mapping[str, Any], values: Domains, domains: Domains) -> dict[str, Value]:
    fixed = dict[str, Value]()
    for variable, given in _table(data, "external_variables").items():
        at = f"$.external_variables.{variable}"
        if variable in domains:
            raise ConfigError(f"got {variable!r}, which is in $.variables too; wanted it in one of them", at=at)
        fixed[variable] = _one_of(given.get("initial_value"), _one_of_domains(given, values, at), f"{at}.initial_value")
    return fixed


def _factors(
    data: Mapping[str, Any], domains: Domains, fixed: Mapping[str, Value], budget: Budget
) -> tuple[Factors, float]:
    """Constraints and variables' own costs, in the sign of the file, and the sum of constraints without variables."""
    factors, constant = Factors(), 0.0
    for key, entry in _table(data, "constraints").items():
        scope, table = _constraint(entry, domains, fixed, budget, f"$.constraints.{key}")
        if scope:
            factors[key] = scope, table
        else:
            constant += float(table)
    for variable, entry in _table(data, "variables").items():
        if "cost_function" in entry:
            own, at = {variable: domains[variable]}, f"$.variables.{variable}.cost_function"
            _, table = _intentional(str(entry["cost_function"]), own, {}, budget, at)
            costs = np.full(len(domains[variable]), table)  # an expression may be constant
            factors[_unused(f"cost_{variable}", factors, domains)] = (variable,), costs
    return factors, constant


def yaml_of_problem(problem: TableProblem) -> str:
    """Problem as YAML; all constraints are extensional."""
    problem.require_unbounded("YAML")
    yaml, graph = needed("yaml", "dcop", "a YAML file"), problem.graph
    domains_by_text: dict[str, tuple[str, list[Value]]] = {}  # by their text: (1, 0) is equal to (True, False)
    for variable in graph.variables:
        values = list(problem.domains[variable])
        domains_by_text.setdefault(repr(values), (f"d{len(domains_by_text)}", values))
        if wrong := [v for v in values if str(v).split() != [str(v)] or set(str(v)) & _SEPARATORS or ".." in str(v)]:
            wanted = "values without spaces, quotes, bars or '..', which separate values in pyDCOP's tables"
            raise ConfigError(f"variable {variable!r}: got the value {short(wrong[0])}; wanted {wanted}")
        _domain({"values": values}, f"$.domains.{variable}")
    sign = 1.0 if problem.objective == "max" else -1.0
    constraints: dict[str, Any] = {}
    for f in graph.factors:
        scope, by_value = graph.scope(f), dict[float, list[str]]()
        choices = [[str(value) for value in problem.domains[x]] for x in scope]
        entries = (sign * problem.tables[f] + 0.0).ravel().tolist()
        for entry, place in zip(entries, itertools.product(*choices), strict=True):
            by_value.setdefault(entry, []).append(" ".join(place))
        values = {entry: " | ".join(places) for entry, places in by_value.items()}
        constraints[f] = {"type": "extensional", "variables": list(scope), "values": values}
    if problem.constant:
        first = graph.variables[0]
        places = " | ".join(str(value) for value in problem.domains[first])
        name = _unused("constant", constraints, problem.domains)
        constraints[name] = {"type": "extensional", "variables": [first], "values": {problem.constant: places}}
    hosts = {agent: [*graph.variables_owned_by(agent), *graph.factors_owned_by(agent)] for agent in graph.agents}
    data = {
        "name": problem.name,
        "objective": problem.objective,
        "domains": {name: {"values": values, "type": ""} for name, values in domains_by_text.values()},
        "variables": {x: {"domain": domains_by_text[repr(list(problem.domains[x]))][0]} for x in graph.variables},
        "constraints": constraints,
        "agents": {agent: {} for agent in (*graph.agents, *problem.idle)},
        "distribution_hints": {"must_host": hosts},
    }
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120))


def _load_yaml(text: str) -> dict[str, Any]:
    yaml = needed("yaml", "dcop", "a YAML file")

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # libyaml's is several times as fast
        """Safe loader without merge keys and duplicate keys."""

        def construct_document(self, node: Any) -> Any:
            if _expanded(node, {}) > _MOST_EXPANDED:
                got = f"got aliases that expand to more than {_MOST_EXPANDED:,} parts and characters"
                raise ConfigError(f"{got}; wanted fewer, and none that contains itself")
            return super().construct_document(node)

        def flatten_mapping(self, node: Any) -> None:
            if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
                raise ConfigError(f"got a merge key `<<` in line {node.start_mark.line + 1}; wanted it written out")

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            made: dict[Any, Any] = super().construct_mapping(node, deep)
            if len({str(key) for key in made}) < len(node.value):  # names are texts: 1 and "1" are the same
                got = f"got a key twice in the table from line {node.start_mark.line + 1} on"
                raise ConfigError(f"{got}; wanted it once")
            return made

    try:
        data: object = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"got no YAML: {' '.join(str(error).split())}") from None
    except (RecursionError, ValueError, TypeError) as error:
        line = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"got no YAML of plain tables and lists: {line}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"got {short(data)}; wanted tables as pyDCOP has them: name, objective, domains, …")
    return data


def _expanded(node: Any, known: dict[int, int]) -> int:
    if id(node) not in known:
        known[id(node)] = _MOST_EXPANDED  # for a node that contains itself
        if isinstance(node.value, str):
            if len(node.value) > _LONGEST_NUMBER and node.tag.endswith((":int", ":float")):
                raise ValueError(f"a number of {len(node.value)} characters in line {node.start_mark.line + 1}")
            parts, length = [], len(node.value)
        else:
            parts, length = [one for part in node.value for one in (part if isinstance(part, tuple) else (part,))], 0
        known[id(node)] = 1 + length + sum(_expanded(part, known) for part in parts)
    return known[id(node)]


def _table(data: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    given = data.get(key)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"got {short(given)}; wanted a table by name", at=f"$.{key}")
    for name, inner in given.items():
        if inner is not None and not isinstance(inner, dict):
            raise ConfigError(f"got {short(inner)}; wanted a table", at=f"$.{key}.{name}")
    return {str(name): inner or {} for name, inner in given.items()}


def _one_of(given: object, wanted: Collection[Any], at: str) -> Any:
    if given not in wanted:
        names = " or ".join(map(repr, list(wanted)[:8])) + (f" or … {len(wanted)} in all" if len(wanted) > 8 else "")
        raise ConfigError(f"got {short(given)}; wanted {names or 'a defined one, but there is none'}", at=at)
    return given


def _domain(given: Mapping[str, Any], at: str) -> tuple[Value, ...]:
    values = given.get("values")
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, list) or not values:
        raise ConfigError(f"got {short(values)}; wanted a list of values", at=f"{at}.values")
    if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
        values = _range(values[0], f"{at}.values")
    for value in values:
        if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
            raise ConfigError(f"got {short(value)}; wanted numbers and texts", at=f"{at}.values")
    if len({str(value) for value in values}) < len(values):
        raise ConfigError(f"got {short(values)}; wanted each value once", at=f"{at}.values")
    return tuple(values)


def _range(text: str, at: str) -> list[int]:
    """Integers of ``1 .. 10``, ends included."""
    try:
        low, high = (int(part) for part in text.split(".."))
    except ValueError:
        raise ConfigError(f"got {short(text)}; wanted a range as '1 .. 10'", at=at) from None
    if not 0 <= high - low < 2**20:
        raise ConfigError(f"got {high - low + 1} values; wanted 1 to {2**20}", at=at)
    return list(range(low, high + 1))


def _one_of_domains(given: Mapping[str, Any], values: Domains, at: str) -> tuple[Value, ...]:
    return values[_one_of(str(given.get("domain")), values, f"{at}.domain")]


def _constraint(
    given: Mapping[str, Any], domains: Domains, fixed: Mapping[str, Value], budget: Budget, at: str
) -> tuple[tuple[str, ...], Table]:
    if unknown := [key for key in given if key not in _KEYS]:
        raise ConfigError(f"got the key {short(unknown[0])}; wanted {', '.join(_KEYS)}", at=at)
    if _one_of(given.get("type"), ("intention", "extensional"), f"{at}.type") == "extensional":
        return _extensional(given, domains, budget, at)
    if "source" in given:
        raise ConfigError("got a file of code; wanted one expression: no code of a file is run", at=f"{at}.source")
    text = given.get("function")
    if not isinstance(text, str | int | float):
        raise ConfigError(f"got {short(text)}; wanted an expression", at=f"{at}.function")
    partial = given.get("partial") or {}
    if not isinstance(partial, dict):
        raise ConfigError(f"got {short(partial)}; wanted a table of values by variable", at=f"{at}.partial")
    for variable, value in partial.items():
        _one_of(value, domains.get(variable, ()), f"{at}.partial.{variable}")
    if "return" in str(text).split():
        wanted = "wanted one expression, as `1 if x == y else 0`: no code of a file is run"
        raise ConfigError(f"got a function of several lines; {wanted}", at=f"{at}.function")
    return _intentional(str(text), domains, {**fixed, **partial}, budget, f"{at}.function")


def _intentional(
    text: str, domains: Domains, fixed: Mapping[str, Value], budget: Budget, at: str
) -> tuple[tuple[str, ...], Table]:
    expression = Expression(text, at)
    if unknown := [name for name in expression.names if name not in domains and name not in fixed]:
        raise ConfigError(f"got the name {unknown[0]!r}; wanted variables of the problem", at=at)
    scope = tuple(name for name in expression.names if name not in fixed)
    table = np.empty(budget.reserve([len(domains[x]) for x in scope], at, expression.n_steps))
    for place, chosen in zip(np.ndindex(table.shape), itertools.product(*(domains[x] for x in scope)), strict=True):
        table[place] = expression.of({**fixed, **dict(zip(scope, chosen, strict=True))})
    return scope, table


def _extensional(given: Mapping[str, Any], domains: Domains, budget: Budget, at: str) -> tuple[tuple[str, ...], Table]:
    named = given.get("variables")
    scope = tuple(str(x) for x in named) if isinstance(named, list) else (str(named).strip(),)
    for variable in scope:
        _one_of(variable, domains, f"{at}.variables")
    distinct_names(scope, "variable", f"{at}.variables")
    table = np.full(budget.reserve([len(domains[x]) for x in scope], at), np.nan)
    places = [{str(value): place for place, value in enumerate(domains[x])} for x in scope]
    values = given.get("values")
    if not isinstance(values, dict):
        raise ConfigError(f"got {short(values)}; wanted a table of combinations by number", at=f"{at}.values")
    for key, combinations in values.items():
        number, is_text = _number(key, f"{at}.values"), isinstance(combinations, str)
        lines = map(_words, combinations.split("|")) if is_text else [[str(combinations)]]  # as in 1 2 | 1 3
        for line in lines:
            if len(line) != len(scope) or any(word not in known for word, known in zip(line, places, strict=True)):
                values_of = ", ".join(f"{x} in {short(list(domains[x]))}" for x in scope)
                wanted = f"a value of each of {values_of}; | separates combinations"
                raise ConfigError(f"got {' '.join(line)!r}; wanted {wanted}", at=f"{at}.values.{key}")
            place = tuple(known[word] for word, known in zip(line, places, strict=True))
            enter(table, place, number, repr(" ".join(line)), at=f"{at}.values.{key}")
    if (default := given.get("default")) is not None:
        table[np.isnan(table)] = _number(default, at)
    if np.isnan(table).any():
        missing = np.unravel_index(int(np.isnan(table).argmax()), table.shape)
        place = " ".join(str(domains[x][int(i)]) for x, i in zip(scope, missing, strict=True))
        raise ConfigError(f"got no value for '{place}'; wanted one for every combination, or a `default`", at=at)
    return scope, table


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line) if "'" in line or '"' in line else line.split()
    except ValueError:
        return line.split()


def _number(given: object, at: str) -> float:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    if LARGEST < abs(number) < math.inf or float(number) != number:
        raise ConfigError(f"got {short(given)}; wanted a number up to {LARGEST:g} that float64 does not round", at=at)
    return float(number)


def _unused(name: str, *taken: Mapping[str, object]) -> str:
    while any(name in names for names in taken):
        name += "_"
    return name


def _owners(
    data: Mapping[str, Any], domains: Domains, scopes: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Agents of the file, owners of all variables, and owners of the factors in hints."""
    given = data.get("agents")
    if given is not None and not isinstance(given, dict | list):
        raise ConfigError(f"got {short(given)}; wanted a list of names, or a table by name", at="$.agents")
    agents = [str(agent) for agent in given or ()]
    names, hosts, hinted = {**domains, **scopes}, dict.fromkeys(agents), dict[str, str]()
    for agent, hosted in _table(data, "distribution_hints").get("must_host", {}).items():
        at = f"$.distribution_hints.must_host.{agent}"
        _one_of(str(agent), hosts, at)
        for one in hosted if isinstance(hosted, list) else [hosted]:
            if hinted.setdefault(_one_of(str(one), names, at), str(agent)) != str(agent):
                raise ConfigError(f"got {one!r}, which {hinted[str(one)]!r} hosts too; wanted one agent for it", at=at)
    if not agents:
        return [], {variable: variable for variable in domains}, {}
    turn = itertools.cycle(agents)
    owners = {variable: hinted.get(variable) or next(turn) for variable in domains}
    return agents, owners, {factor: hinted[factor] for factor in scopes if factor in hinted}
