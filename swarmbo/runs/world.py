"""Code that a scenario names: worlds of PettingZoo's registry, plug-ins that fill it, and user code.

User code is loaded only with explicit trust.
"""

import functools
import inspect
import os
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, get_args

import msgspec
import pettingzoo
from pettingzoo.env_registry.exceptions import PettingZooRegistryError

from swarmbo.errors import ConfigError, OwnCodeError, SwarmboError
from swarmbo.kernels import named_kernels
from swarmbo.registry import FIELD, FUNCTION, SLOTS, TeamKind, add_module_folders, is_user_code, load, source_file
from swarmbo.worlds.one_shot import register_served

ENTRY_POINT_GROUP = "swarmbo.envs"
_CALLBACKS, _ENGINE = "$.callbacks", "$.workers.engine"
Environment = Any  # a PettingZoo ParallelEnv; PettingZoo ships no types


@functools.cache
def load_plug_ins() -> dict[str, str]:
    """Let every installed plug-in register its environments, once a process; return the errors of failed plug-ins.

    A plug-in is an entry point of the group ``swarmbo.envs``: a callable without arguments.
    """
    register_served()
    failures: dict[str, str] = {}
    for plug_in in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plug_in.load()()
        except Exception as error:  # noqa: BLE001  any error of a plug-in is reported under its name
            failures[plug_in.name] = f"{type(error).__name__}: {error}"
    return failures


def plug_in_ids() -> list[str]:
    """Ids of the environments of plug-ins: PettingZoo's own are games, without measurements."""
    load_plug_ins()
    entries = {name: str(spec.entry_point) for name, spec in sorted(pettingzoo.parallel_registry.items())}
    return [name for name, entry in entries.items() if not entry.startswith("pettingzoo.")]


def team_kind(environment: object, trust: bool = False) -> TeamKind:
    """Kind of team for an environment's table: a function's, if the class of its world has ``factor_graph``."""
    maker = environment_maker(environment.get("id") if isinstance(environment, Mapping) else None, trust)
    if inspect.isfunction(maker):  # its return annotation has the class
        with suppress(Exception):  # of an annotation that only type checkers can evaluate
            stated = maker.__annotations__["return"]
            maker = eval(stated, maker.__globals__) if isinstance(stated, str) else stated
    return FUNCTION if any(hasattr(made, "factor_graph") for made in (maker, *get_args(maker))) else FIELD


def environment_settings(identifier: object) -> list[str]:
    """Names of a world's settings: the parameters of its maker, or none if it takes any keyword."""
    maker = environment_maker(identifier)
    parameters = () if maker is None else inspect.signature(maker).parameters.values()
    if any(parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) for parameter in parameters):
        return []
    return [parameter.name for parameter in parameters if parameter.name != "max_cycles"]


def environment_maker(identifier: object, trust: bool = False) -> Any:
    """Class or function that makes an environment, a user's only with ``trust``; None if it is unknown."""
    if not isinstance(identifier, str):
        return None
    if is_user_code(identifier):
        return load(identifier, "$.environment.id") if trust else None
    load_plug_ins()
    try:
        maker = pettingzoo.spec("parallel", identifier).entry_point
        return resolve_name(maker) if isinstance(maker, str) else maker
    except (PettingZooRegistryError, ImportError, AttributeError):
        return None


def user_code_names(tables: Mapping[str, Any]) -> dict[str, str]:
    """User code that a scenario names, by the path of the name."""
    parts: dict[str, tuple[Any, str]] = {f"$.{slot}.kind": (tables.get(slot), "kind") for slot in SLOTS}
    parts["$.policy"] = tables.get("policy"), "kind"
    if isinstance(environment := tables.get("environment"), Mapping):  # a name alone is not an environment
        parts["$.environment.id"] = environment, "id"
    if isinstance(callbacks := tables.get("callbacks"), list | tuple):
        parts |= {f"{_CALLBACKS}[{index}]": (callback, "kind") for index, callback in enumerate(callbacks)}
    names = {at: part.get(key) if isinstance(part, Mapping) else part for at, (part, key) in parts.items()}
    workers: Any = tables.get("workers")
    names[_ENGINE] = workers.get("engine") if isinstance(workers, Mapping) else getattr(workers, "engine", None)
    return {at: name for at, name in names.items() if is_user_code(name)} | named_kernels(tables.get("belief"))


def require_trust(scenario: msgspec.Struct | Mapping[str, Any], trust: bool | None) -> None:
    """Refuse user code without trust; otherwise add its folders to Python's path. Nothing is imported here."""
    tables = scenario if isinstance(scenario, Mapping) else msgspec.structs.asdict(scenario)
    for at, name in user_code_names(tables).items():
        if not trust:
            wanted = "--trust (trust=True), which runs it" if trust is False else "kinds that every machine has"
            raise ConfigError(f"got {name!r}, your own code; wanted {wanted}", at=at)
        add_module_folders(tables.get("modules") or (), name, at)


def code_digests(scenario: msgspec.Struct) -> dict[str, str]:
    """Digests of the files with user code that a trusted scenario names and that decisions depend on."""
    found: dict[str, str] = {}
    for at, name in user_code_names(msgspec.structs.asdict(scenario)).items():
        if at.startswith((_CALLBACKS, _ENGINE)):
            continue
        add_module_folders(getattr(scenario, "modules", None) or (), name, at)
        file = source_file(load(name, at))
        found[name] = "" if file is None else blake2b(file.read_bytes(), digest_size=16).hexdigest()
    return found


@contextmanager
def naming_user_code(scenario: msgspec.Struct) -> Generator[None]:
    """Block in which exceptions of user code become an ``OwnCodeError``: one line with the name of the method."""
    try:
        yield
    except SwarmboError:
        raise
    except (Exception, SystemExit) as error:
        if (line := _failed_user_code(scenario, error)) is None:
            raise
        raise OwnCodeError(line) from error


def _failed_user_code(scenario: msgspec.Struct, error: BaseException) -> str | None:
    """Innermost function of user code that an exception came through; None if there is none."""
    modules: dict[str, str] = {}
    for at, name in user_code_names(msgspec.structs.asdict(scenario)).items():
        if (file := source_file(load(name, at))) is not None:
            modules[str(file)] = name.partition(":")[0]
    frames = traceback.walk_tb(error.__traceback__)
    calls = [(frame.f_code, line) for frame, line in frames if frame.f_code.co_filename in modules]
    if not calls:
        return None
    code, line = calls[-1]
    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    file = os.path.basename(code.co_filename)
    return f"{modules[code.co_filename]}:{code.co_qualname} raised {reason} ({file}:{line})"
