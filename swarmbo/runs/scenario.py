"""A scenario: all settings of a run, their limits, and the world that it names.

The limits refuse mistyped or generated files that would run for years or exhaust the memory. Settings used in scripts
have no such limits.
"""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Annotated, Any, Literal

import msgspec
import pettingzoo
from pettingzoo.env_registry.exceptions import PettingZooRegistryError

from swarmbo import registry
from swarmbo.boundary.values import flat, short
from swarmbo.deciding.near import Safe
from swarmbo.deciding.setup import DEFAULT_KINDS
from swarmbo.errors import ConfigError
from swarmbo.evaluations.engines import Workers
from swarmbo.problem.constraints import Known
from swarmbo.problem.no_go import NoGoRegion
from swarmbo.registry import FIELD, SLOTS, Slot, kinds, require_known, schema, settings_of
from swarmbo.runs import world
from swarmbo.runs.callbacks import callback_settings
from swarmbo.runs.policies import policy_table
from swarmbo.settings import Count, Settings, Whole, convert, require, unknown_key_message, within

DEEPEST = 32
LARGEST_COUNT = 100_000
LARGEST_TABLE = 2**31  # entries
LARGEST_SIZE, SMALLEST_SIZE = 1e12, 1e-12
MAX_ROUNDS = 100_000


class Scenario(Settings, frozen=True):
    """Settings of a run. Every table has the settings of the object that it names.

    A table whose kind is ``"module:Class"`` stays a table: the class is loaded only for the run.

    In code, missing tables have a team's defaults in a field; ``scenario_of`` and ``load`` use kinds for the world.

    Args:
        name: Name of the run's folder; not empty.
        environment: ``id`` of a PettingZoo parallel environment, or ``"module:Class"`` of a user's own, and its keyword
            arguments. Values of ``csv``, ``raster`` or ``geojson`` are paths.
        rounds: Rounds of measurements after the ones at reset, 1 to 100 000: the environment's ``max_cycles``.
        seed: Seed of all randomness: the world's reset, its noise, and the team. An integer >= 0.
        belief: The team's belief about the field, or the function. Default: that of the team.
        acquisition: Rule for the utility of measurements. Default: that of the team.
        coordination: Coordination method of the agents. Default: that of the team.
        transport: Transport of messages. Default: that of the team.
        step_timeout_s: Wall-clock limit of ``reset`` and every ``step`` of the world, 0.001 to 1e6 s. A round whose
            step takes longer is recorded as failed, and the run continues. The run then has a separate process, as a
            step can only be ended with its process. None (the default) sets no limit.
        when_step_fails: Handling of a round whose step raises. ``record``: it counts as failed, and the run continues
            with the world as before. ``stop``: the run stops, and can be resumed.
        modules: Absolute folders of the modules that the scenario names; set by ``load``.
        no_go: Regions that the team must avoid, tables of ``kind`` box, ball or polygon (``swarmbo.problem.no_go``).
        constraints: Limits between variables of a function, tables of ``kind`` linear, separation or table
            (``swarmbo.problem.constraints``).
        initial: Points of the initial design of a function, >= 1; None: the team's default. Fields have none.
        start: First setting of a function: ``"present"`` as the environment reports it, ``"largest"``, or values.
        step_limit: Largest change of each variable from the best setting: in its unit, or a share such as ``"10%"``. A
            table has these by variable.
        safe: ``{share = 0.95, probability = 0.9}``: with this probability by the model, every setting has at least this
            share of the present one's utility; with ``loss = 2.0``, at most 2.0 less.
        callbacks: Receivers of each round: ``"tensorboard"``, ``"mlflow"``, or ``"module:Class"`` of a user's own
            (``swarmbo.runs.Callback``); each a name, or a table with that ``kind``. No decision depends on them.
        workers: Workers that evaluate points of a function in parallel; None: the run's process does, one by one.
            With workers, ``step_timeout_s`` limits an evaluation, and each evaluation is a round.
        policy: Policy that acts in place of the team: ``"module:Class"``, or a table with that ``kind`` and its
            settings (``swarmbo.runs.policies.Policy``). The team learns from its measurements, and recommends.
    """

    name: str
    environment: dict[str, Any]
    rounds: Annotated[int, within(1, MAX_ROUNDS)] = 25
    seed: Whole = 0
    belief: Any = msgspec.field(default_factory=lambda: _default("belief"))
    acquisition: Any = msgspec.field(default_factory=lambda: _default("acquisition"))
    coordination: Any = msgspec.field(default_factory=lambda: _default("coordination"))
    transport: Any = msgspec.field(default_factory=lambda: _default("transport"))
    step_timeout_s: Annotated[float, within(1e-3, 1e6, "a time", "s")] | None = None
    when_step_fails: Literal["record", "stop"] = "record"
    modules: tuple[str, ...] | None = None
    no_go: tuple[NoGoRegion, ...] | None = None
    constraints: tuple[Known, ...] | None = None
    initial: Count | None = None
    start: str | list[Any] | dict[str, Any] | None = None
    step_limit: float | str | dict[str, float | str] | None = None
    safe: Safe | None = None
    callbacks: tuple[Any, ...] | None = None
    workers: Workers | None = None
    policy: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "name", lambda name: bool(name.strip()) and name.isprintable(), "a name that is not empty")
        if self.policy is not None:
            policy_table(self.policy)
            require(self, "workers", lambda it: it is None, "none with a policy, which acts round by round")

    @property
    def team_settings(self) -> dict[str, Any]:
        """Keyword arguments of ``Team.for_env``."""
        names = (*SLOTS, "seed", "rounds", "no_go", "constraints", "initial", "start", "step_limit", "safe")
        return {name: getattr(self, name) for name in names}


def require_known_keys(data: dict[str, Any]) -> None:
    """Refuse an unknown key, at the top level or in a table, that is known elsewhere in a scenario."""
    tables = {"$": (data, Scenario.__struct_fields__)}
    for table in SLOTS:
        if isinstance(stated := data.get(table), dict) and (settings := kinds(table).get(str(stated.get("kind")))):
            tables[f"$.{table}"] = (stated, settings.__struct_fields__)
    environment = data.get("environment")
    if isinstance(environment, dict) and (names := world.environment_settings(environment.get("id"))):
        tables["$.environment"] = (environment, ("id", "max_cycles", *names))
    for at, (table, known_keys) in tables.items():
        for key in (key for key in table if key not in (*known_keys, "kind")):
            hints = [f"did you mean {path!r}? (--set {path}=…)" for path in paths_to(key, data)]
            if at == "$.environment":
                owners = [other for other in world.plug_in_ids() if key in world.environment_settings(other)]
                hints = [f"{other} has it (--set environment.id={other})" for other in owners] + hints
            message = f"unknown key {key!r}"
            if (slot := at.removeprefix("$.")) in SLOTS:
                suitable = kinds(slot, world.team_kind(environment if isinstance(environment, dict) else {}))
                owners = [other for other, settings in suitable.items() if key in settings.__struct_fields__]
                message = unknown_key_message(key, known_keys, table["kind"], owners)
            if hints:
                raise ConfigError(f"{message}; {'or ' * message.endswith('?')}{'; or '.join(hints)}", at=at)


def paths_to(key: str, data: dict[str, Any]) -> list[str]:
    """Paths of a scenario's settings with this key: at the top level, of its world, or of its kinds."""
    return [path for path in setting_paths(data) if path.removesuffix(".kind").rpartition(".")[2] == key]


def setting_paths(data: dict[str, Any]) -> list[str]:
    """Paths of all settings of a scenario: at the top, of its kinds, and of its world."""
    table = data.get("environment")
    environment = table if isinstance(table, dict) else {}
    defaults = DEFAULT_KINDS[world.team_kind(environment)]
    paths = [name for name in Scenario.__struct_fields__ if name not in SLOTS]
    paths += [f"{slot}.kind" for slot in SLOTS]
    world_keys = world.environment_settings(environment.get("id")) or [key for key in environment if key != "id"]
    paths += [f"environment.{key}" for key in world_keys]
    paths += [f"workers.{key}" for key in Workers.__struct_fields__]
    for slot in SLOTS:
        table = data.get(slot)
        kind = table.get("kind", defaults[slot]) if isinstance(table, dict) else defaults[slot]
        if (settings := kinds(slot).get(str(kind))) is not None:
            paths += [f"{slot}.{key}" for key in settings.__struct_fields__]
    nested_tables = {key: part for key, part in environment.items() if isinstance(part, dict)}
    return list(dict.fromkeys([*paths, *flat(nested_tables, "environment.")]))


def _default(table: Slot) -> Any:
    return settings_of(table, DEFAULT_KINDS[FIELD][table], at=f"$.{table}")


def scenario_of(data: dict[str, Any], trust: bool = False) -> Scenario:
    """Scenario from plain data, as read from TOML.

    A missing table or ``kind`` has the default for the world. To find it, ``trust`` lets a user's world be loaded.
    """
    require_shallow(data, at="$")
    filled = dict(data)
    required = {"name": "a name for the run", "environment": "a table with the id of a PettingZoo environment"}
    if missing := [key for key in required if key not in filled]:
        raise ConfigError(f"missing; wanted {required[missing[0]]}", at=f"$.{missing[0]}")
    filled |= {table: {"kind": kind} for table in SLOTS if isinstance(kind := filled.get(table), str)}
    tables = {table: value for table in SLOTS if isinstance(value := filled.get(table, {}), dict)}
    if any("kind" not in value for value in tables.values()):
        usual = DEFAULT_KINDS[world.team_kind(filled["environment"], trust)]
        filled |= {slot: {"kind": usual[slot], **tables[slot]} for slot in SLOTS if slot in tables}
    require_known_keys(filled)
    user_code = world.user_code_names(filled)
    known_tables: list[Slot] = [table for table in SLOTS if f"$.{table}.kind" not in user_code]
    for table in known_tables:
        part = filled[table]
        if isinstance(part, dict):
            require_known(table, part.get("kind"), f"$.{table}", world.team_kind(filled["environment"], trust))
        filled[table] = convert(part, schema(table), at=f"$.{table}")
    if isinstance(part := filled.get("callbacks"), list | tuple):
        filled["callbacks"] = callback_settings(part)
    scenario = convert(filled, Scenario)
    if not isinstance(name := scenario.environment.get("id"), str):
        got = f"got {name!r}" if "id" in scenario.environment else "missing"
        wanted = "wanted the id of a PettingZoo environment, see `swarmbo list`"
        raise ConfigError(f"{got}; {wanted}", at="$.environment.id")
    if "max_cycles" in scenario.environment:
        got = scenario.environment["max_cycles"]
        raise ConfigError(f"got {got!r}; wanted no such key: set $.rounds instead", at="$.environment.max_cycles")
    return scenario


def make_environment(scenario: Scenario, trust: bool = False, is_served: bool = False) -> world.Environment:
    """World of a scenario, not yet reset; ``trust`` permits a user's class, ``is_served`` a world without steps."""
    settings, name = dict(scenario.environment), scenario.environment["id"]
    del settings["id"]
    if name.startswith("served/") and not is_served:
        raise ConfigError(f"got {name}, whose outcomes come from clients; wanted `swarmbo serve`", "$.environment.id")
    if registry.is_user_code(name):
        world.require_trust(scenario, trust)
        return _user_environment(name, settings, scenario.rounds)
    failures = world.load_plug_ins()
    try:
        pettingzoo.spec("parallel", name)
    except PettingZooRegistryError:
        failed_plug_ins = "".join(f"; plug-in {plug_in!r} failed: {why}" for plug_in, why in failures.items())
        similar = difflib.get_close_matches(name, world.plug_in_ids(), n=1, cutoff=0.0)
        hint = f", perhaps {similar[0]!r}" if similar else ""
        message = f"got {short(name)}; wanted an environment of `swarmbo list`{hint}{failed_plug_ins}"
        raise ConfigError(message, at="$.environment.id") from None
    try:
        env = pettingzoo.make("parallel", name, max_cycles=scenario.rounds, **settings)
        if settings.get("worlds") == "drawn":
            env.reset(seed=scenario.seed)  # a team's problem is that of the drawn world
        return env
    except ConfigError as error:
        raise ConfigError(error.message, at="$.environment" + error.at.removeprefix("$")) from error
    except Exception as error:
        message = f"{name} refused its settings: {type(error).__name__}: {error}"
        raise ConfigError(message, at="$.environment") from error


def _user_environment(name: str, settings: dict[str, Any], rounds: int) -> world.Environment:
    at = "$.environment.id"
    maker = registry.load(name, at)
    is_class = isinstance(maker, type) and issubclass(maker, pettingzoo.ParallelEnv)
    if not (is_class or isinstance(maker, FunctionType)):
        wanted = "a class derived from pettingzoo.ParallelEnv, or a function that makes one"
        raise ConfigError(f"got {name}, which is {short(maker)}; wanted {wanted}", at=at)
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.name == "max_cycles" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        settings["max_cycles"] = rounds
    env = registry.make(maker, name, settings, "$.environment")
    if not isinstance(env, pettingzoo.ParallelEnv):
        raise ConfigError(f"{name} returned {short(env)}; wanted a pettingzoo.ParallelEnv", at=at)
    return env


def require_practical_numbers(scenario: msgspec.Struct) -> None:
    """Refuse numbers without practical use in the tables of a scenario that define its team."""
    for table in SLOTS:
        for path, key, value in _numbers(msgspec.to_builtins(getattr(scenario, table)), f"$.{table}"):
            if isinstance(value, int):
                largest = LARGEST_TABLE if key.endswith(("entries", "budget")) else LARGEST_COUNT
                if abs(value) > largest and not key.endswith("seed"):
                    raise ConfigError(f"got {value}; wanted an integer up to {largest}", at=path)
            elif value != 0.0 and not SMALLEST_SIZE <= abs(value) <= LARGEST_SIZE:
                wanted = f"zero or a number from {SMALLEST_SIZE:g} to {LARGEST_SIZE:g} in size"
                raise ConfigError(f"got {value}; wanted {wanted}", at=path)


def require_shallow(data: Mapping[str, Any], at: str) -> None:
    """Refuse deeply nested tables, which would exhaust the stack of recursive functions."""
    tables: list[Any] = [data]
    for _ in range(DEEPEST):
        parts = [part for table in tables for part in (table.values() if isinstance(table, Mapping) else table)]
        tables = [part for part in parts if isinstance(part, Mapping | list | tuple)]
    if tables:
        raise ConfigError(f"is nested more than {DEEPEST} deep; wanted plain tables", at=at)


def _numbers(value: Any, path: str, key: str = "") -> list[tuple[str, str, float]]:
    if isinstance(value, Mapping):
        return [found for name, part in value.items() for found in _numbers(part, f"{path}.{name}", name)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [found for index, part in enumerate(value) for found in _numbers(part, f"{path}[{index}]", key)]
    return [(path, key, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
