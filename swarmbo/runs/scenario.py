"""A scenario: everything that a run depends on, as one TOML file."""

import difflib
import inspect
import itertools
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal

import msgspec
import pettingzoo
import tomli_w
from pettingzoo.env_registry.exceptions import PettingZooRegistryError

import swarmbo
from swarmbo.boundary.files import read_regular
from swarmbo.boundary.values import short
from swarmbo.deciding.setup import DEFAULT_KINDS
from swarmbo.errors import ConfigError
from swarmbo.problem.no_go import NoGoRegion
from swarmbo.registry import FIELD, SLOTS, Slot, kinds, require_known, schema, settings_of
from swarmbo.registry.own_code import is_own, load as load_own, make
from swarmbo.runs.limits import require_shallow
from swarmbo.runs.override import apply_overrides, parse_override
from swarmbo.runs.trust import folders_of, own_names, require_trust
from swarmbo.runs.world import Environment, default_kinds, load_plug_ins, plug_in_ids, settings_in, team_in
from swarmbo.settings import Count, Settings, Whole, convert, require, within

MAX_ROUNDS = 100_000
_PROBLEMS = (".yaml", ".yml", ".uai")  # endings of what `swarmbo solve` reads
_FILES = ("csv", "raster", "geojson")  # keys of an environment whose values are paths


class Scenario(Settings, frozen=True):
    """What to run. Every table is the settings of the object it names.

    A table whose kind is ``"module:Class"`` stays a table: what it names is loaded only to run it.

    Made in code, tables that are not given are those of a team in a field; ``scenario_of`` and ``load`` take what suits
    the world.

    Args:
        name: Names the run's folder; not empty.
        environment: ``id`` of a PettingZoo parallel environment, or ``"module:Class"`` of a user's own, and its keyword
            arguments; what is called ``csv``, ``raster`` or ``geojson`` is a path.
        rounds: Rounds of measurements after the ones at reset, 1 to 100 000. The environment's ``max_cycles``.
        seed: Drives everything random: the world's reset, its noise, and the team. An integer >= 0.
        belief: What the team thinks of the field, or of the function.
        acquisition: What a measurement is worth.
        coordination: How the agents agree.
        transport: How messages travel.
        step_timeout_s: Wall clock within which ``reset`` and every ``step`` of the world must end, 0.001 to 1e6 s. A
            round whose step does not is recorded as failed, and the run goes on. The run then has a process of its own,
            as a step can only be ended with its process. None (the default) waits without end.
        when_step_fails: What becomes of a round whose step raises anything: ``record`` it as failed and go on, with the
            world as it was before; or ``stop`` the run, to be resumed.
        modules: Folders of the modules that the scenario names, absolute. ``load`` notes them where there are some.
        no_go: Regions that the team must not ask, tables of ``kind`` box, ball or polygon (``swarmbo.problem.no_go``).
        initial: Points of the initial design of a function, >= 1; None: the team's default. A field has no such design.
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
    initial: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "name", lambda name: bool(name.strip()) and name.isprintable(), "a name that is not empty")


def require_no_stranger(data: dict[str, Any]) -> None:
    """Refuse a key at the top, or of a table of a kind, that belongs elsewhere in a scenario.

    Raises:
        ConfigError: It says where the key belongs.
    """
    places = {"$": (data, Scenario.__struct_fields__)}
    for table in SLOTS:
        if isinstance(stated := data.get(table), dict) and (settings := kinds(table).get(str(stated.get("kind")))):
            places[f"$.{table}"] = (stated, ("kind", *settings.__struct_fields__))
    world = data.get("environment")
    if isinstance(world, dict) and (own := settings_in(world.get("id"))):
        places["$.environment"] = (world, ("id", "max_cycles", *own))
    for at, (table, known) in places.items():
        for key in (key for key in table if key not in known):
            hints = [f"did you mean {path!r}? (--set {path}=…)" for path in paths_to(key, data)]
            if at == "$.environment":
                others = [other for other in plug_in_ids() if key in settings_in(other)]
                hints = [f"{other} has it (--set environment.id={other})" for other in others] + hints
            if hints:
                raise ConfigError(f"unknown key {key!r}; {'; or '.join(hints)}", at=at)


def paths_to(key: str, data: dict[str, Any]) -> list[str]:
    """Where a scenario takes a key: at the top, of its world, of its kinds, or where it has it already.

    Args:
        key: Without a path.
        data: The tables of the scenario.

    Example:
        >>> paths_to("robots", {"environment": {"id": "swarmbo/robot_team-v0"}})
        ['environment.robots']
    """
    environment = data.get("environment")
    world = environment if isinstance(environment, dict) else {}
    usual = default_kinds(world.get("id"))
    found = [key] if key in Scenario.__struct_fields__ and key not in SLOTS else []
    found += [f"{key}.kind"] if key in SLOTS else []
    found += [f"environment.{key}"] if key in settings_in(world.get("id")) else []
    for table in SLOTS:
        stated = data.get(table)
        settings = kinds(table).get(str(stated.get("kind", usual[table]) if isinstance(stated, dict) else usual[table]))
        found += [f"{table}.{key}"] if settings is not None and key in settings.__struct_fields__ else []
    nested = [f"environment.{name}.{key}" for name, part in world.items() if isinstance(part, dict) and key in part]
    return list(dict.fromkeys(found + nested))


def _default(table: Slot) -> Any:
    return settings_of(table, DEFAULT_KINDS[FIELD][table], at=f"$.{table}")


def scenario_of(data: dict[str, Any], trust: bool = False) -> Scenario:
    """A scenario from plain data, as read from TOML.

    Args:
        data: The tables. A missing table takes its defaults, a missing ``kind`` the default kind in such a world.
        trust: Whether a world of a user's own may be loaded, to see which kinds suit it.

    Raises:
        ConfigError: With the path of the key that is wrong, the value got and what is wanted.

    Example:
        >>> scenario_of({"name": "mine", "environment": {"id": "swarmbo/robot_team-v0"}, "rounds": 3}).rounds
        3
    """
    require_shallow(data, at="$")
    filled = dict(data)
    for key, wanted in (
        ("name", "a name for the run"),
        ("environment", "a table with the id of a PettingZoo environment"),
    ):
        if key not in filled:
            raise ConfigError(f"missing; wanted {wanted}", at=f"$.{key}")
    filled |= {table: {"kind": kind} for table in SLOTS if isinstance(kind := filled.get(table), str)}
    tables = {table: value for table in SLOTS if isinstance(value := filled.get(table, {}), dict)}
    if any("kind" not in value for value in tables.values()):
        environment = filled["environment"]
        usual = default_kinds(environment.get("id") if isinstance(environment, dict) else None, trust)
        filled |= {table: {"kind": usual[table], **value} for table, value in tables.items()}
    require_no_stranger(filled)
    own = own_names(filled)
    known: list[Slot] = [table for table in SLOTS if f"$.{table}.kind" not in own]
    for table in known:
        stated = filled[table]
        if isinstance(stated, dict):
            world = filled["environment"]
            team = team_in(world.get("id") if isinstance(world, dict) else None, trust)
            require_known(table, stated.get("kind"), f"$.{table}", team)
        filled[table] = convert(stated, schema(table), at=f"$.{table}")
    scenario = convert(filled, Scenario)
    if not isinstance(name := scenario.environment.get("id"), str):
        got = f"got {name!r}" if "id" in scenario.environment else "missing"
        raise ConfigError(
            f"{got}; wanted the id of a PettingZoo environment, see `swarmbo list`", at="$.environment.id"
        )
    if "max_cycles" in scenario.environment:
        got = scenario.environment["max_cycles"]
        raise ConfigError(f"got {got!r}; wanted no such key: set $.rounds instead", at="$.environment.max_cycles")
    return scenario


def load(source: str | os.PathLike[str], overrides: Sequence[str] = (), trust: bool = False) -> Scenario:
    """A scenario from a TOML file, or by the name of one that swarmbo brings.

    Args:
        source: A name as in ``swarmbo list``, or a path.
        overrides: ``table.key=value``, applied in order; see ``apply_overrides``. Their ``csv`` paths are relative
            to the working directory, those of the file to the file.
        trust: Whether code of a user's own that the scenario names may be run. Its modules are looked for beside the
            file, in the working directory, and where Python looks.

    Returns:
        The scenario, checked. A ``versions`` table, as in a run folder's ``scenario.toml``, is a note and not read.

    Raises:
        ConfigError: If the file cannot be read, is not TOML, states a wrong setting, or names code without ``trust``.
    """
    path = locate(source)
    data = read_toml(path)
    data.pop("versions", None)
    require_shallow(data, at=str(path))
    data.setdefault("name", path.stem)
    _resolve_paths(data, path.parent)
    if trust:  # a world of a user's own is loaded for the kinds that suit it, so it must be found before
        named = [text for text in overrides if parse_override(text)[0] in (("environment", "id"), ("modules",))]
        stated = apply_overrides(data, named)
        _find_modules(stated, path.parent)
        require_trust(stated, trust)
    data = apply_overrides(data, overrides, trust)
    _resolve_paths(data, Path())
    _find_modules(data, path.parent)
    require_trust(data, trust)
    return scenario_of(data, trust)


def locate(source: str | os.PathLike[str]) -> Path:
    """The file of a scenario that is given by name or by path."""
    text = os.fspath(source)
    if text.endswith(".toml") or Path(text).is_file():
        return Path(text)
    if (found := find(text)) is not None:
        return found
    if Path(text).exists():
        return Path(text)
    known = ", ".join(available()) or "none"
    raise ConfigError(f"no scenario of this name, and no such file; wanted a path or one of: {known}", at=text)


def find(name: str, ending: str = ".toml") -> Path | None:
    """The file of a scenario that swarmbo brings: inside the installed package first, then beside it, as in a clone.

    Args:
        name: Of the scenario.
        ending: Of the file; problems in tables lie there too, with others.
    """
    for folder in _folders():
        if (path := folder / f"{name}{ending}").is_file():
            return path
    return None


def available() -> dict[str, Path]:
    """Names and files of the scenarios that swarmbo brings, sorted by name."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in folder.rglob("*.toml"):
            found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), path)
    return dict(sorted(found.items()))


def summary_line(path: Path) -> str:
    """What a scenario file says of itself: its first comment, to an empty line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = itertools.takewhile(lambda line: line.startswith("#") and line.strip("# "), lines)
    return " ".join(line.lstrip("# ") for line in first)


def dump(scenario: Scenario, versions: dict[str, str] | None = None) -> str:
    """A scenario as TOML text that ``load`` reads back to an equal one.

    Args:
        scenario: The scenario, with every default spelled out in the text.
        versions: What wrote it, for a table of its own.
    """
    data = _without_none(msgspec.to_builtins(scenario))
    return tomli_w.dumps(data if versions is None else {**data, "versions": versions})


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: If it cannot be read, or is not TOML; with the name of the file.
    """
    if path.suffix in _PROBLEMS:
        wanted = f"a scenario, in TOML; `swarmbo solve {path}` solves it, in one process"
        raise ConfigError(f"is a problem in tables; wanted {wanted}", at=str(path))
    try:
        return tomllib.loads(read_regular(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; wanted a TOML file", at=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("holds bytes that are not UTF-8 text; wanted a TOML file", at=str(path)) from error
    except ValueError as error:  # TOMLDecodeError, and integers too long to convert
        raise ConfigError(f"is not TOML: {error}", at=str(path)) from error
    except RecursionError as error:
        raise ConfigError("is nested too deeply; wanted a TOML file of plain tables", at=str(path)) from error


def _folders() -> tuple[Path, ...]:
    package = Path(swarmbo.__file__).parent
    return (package / "_scenarios", package.parent / "scenarios")


def _find_modules(data: dict[str, Any], beside: Path) -> None:
    """Note where the modules lie that a scenario names, so that every process that runs it finds them."""
    stated = data.get("modules")
    own = [folder for folder in stated if isinstance(folder, str)] if isinstance(stated, list) else []
    if folders := folders_of(data, *(beside / folder for folder in own), beside, Path()):
        data["modules"] = folders


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Make the paths of the environment table absolute."""
    if isinstance(environment := data.get("environment"), dict):
        data["environment"] = _absolute(environment, folder)


def _absolute(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            out[key] = _absolute(value, folder)
        elif isinstance(value, list):
            out[key] = [_absolute(part, folder) if isinstance(part, dict) else part for part in value]
        else:
            is_path = key in _FILES and isinstance(value, str) and value
            out[key] = os.path.abspath(folder / value) if is_path else value
    return out


def _without_none(value: Any) -> Any:
    """TOML has no null: a setting that is None is one that is not stated."""
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_without_none(part) for part in value]
    return value


def make_environment(scenario: Scenario, trust: bool = False) -> Environment:
    """The world of a scenario, not yet reset.

    Args:
        scenario: That names it.
        trust: Whether a class of a user's own may be loaded and made.

    Raises:
        ConfigError: If the id is unknown, or the environment refuses its settings.
    """
    if is_own(own := scenario.environment["id"]):
        require_trust(scenario, trust)
        return _own_environment(scenario, own)
    failures = load_plug_ins()
    settings = {key: value for key, value in scenario.environment.items() if key != "id"}
    name = scenario.environment["id"]
    try:
        pettingzoo.spec("parallel", name)
    except PettingZooRegistryError:
        broken = "".join(f"; plug-in {plug_in!r} failed: {why}" for plug_in, why in failures.items())
        near = difflib.get_close_matches(name, plug_in_ids(), n=1, cutoff=0.0)
        hint = f", perhaps {near[0]!r}" if near else ""
        got = name if len(name) <= 60 else f"{name[:59]}…"
        raise ConfigError(
            f"got {got!r}; wanted an environment of `swarmbo list`{hint}{broken}", at="$.environment.id"
        ) from None
    try:
        return pettingzoo.make("parallel", name, max_cycles=scenario.rounds, **settings)
    except ConfigError as error:
        raise ConfigError(error.message, at="$.environment" + error.at.removeprefix("$")) from error
    except Exception as error:
        raise ConfigError(
            f"{name} refused its settings: {type(error).__name__}: {error}", at="$.environment"
        ) from error


def _own_environment(scenario: Scenario, name: str) -> Environment:
    at = "$.environment.id"
    maker = load_own(name, at)
    is_class = isinstance(maker, type) and issubclass(maker, pettingzoo.ParallelEnv)
    if not (is_class or isinstance(maker, FunctionType)):
        wanted = "a class derived from pettingzoo.ParallelEnv, or a function that makes one"
        raise ConfigError(f"got {name}, which is {short(maker)}; wanted {wanted}", at=at)
    settings = {key: value for key, value in scenario.environment.items() if key != "id"}
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.name == "max_cycles" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        settings["max_cycles"] = scenario.rounds
    env = make(maker, name, settings, "$.environment")
    if not isinstance(env, pettingzoo.ParallelEnv):
        raise ConfigError(f"{name} returned {short(env)}; wanted a pettingzoo.ParallelEnv", at=at)
    return env
