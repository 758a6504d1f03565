"""Scenario files, and settings on the command line: ``table.key=value``, and lists of alternatives for sweeps."""

import copy
import itertools
import os
import re
import tomllib
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

import swarmbo
from swarmbo import errors, registry
from swarmbo.boundary.files import read_regular
from swarmbo.deciding.setup import DEFAULT_KINDS
from swarmbo.interchange.files import FORMATS
from swarmbo.runs.scenario import DEEPEST, Scenario, require_shallow, scenario_of, setting_paths
from swarmbo.runs.world import plug_in_ids, require_trust, team_kind, user_code_names

_PAPERS = "papers/"  # folder of reproductions of papers, which are not scenarios
_FILES = ("csv", "raster", "geojson")  # keys of an environment whose values are paths


def load(source: str | os.PathLike[str], overrides: Sequence[str] = (), trust: bool | None = False) -> Scenario:
    """Load a scenario from a TOML file, or a shipped one by name.

    Args:
        source: A name as in ``swarmbo list``, or a path.
        overrides: ``table.key=value``, applied in order; see ``apply_overrides``. Their ``csv`` paths are relative to
            the working directory; paths in the file are relative to the file.
        trust: Permit user code that the scenario names. Its modules are searched next to the file, in the working
            directory, and on Python's path. None: user code is always refused, as for fleets.

    Returns:
        The checked scenario. A ``versions`` table, as in a run folder's ``scenario.toml``, is ignored.

    Raises:
        ConfigError: If the file cannot be read, is not TOML, states a wrong setting, or names code without ``trust``.
    """
    path = locate(source)
    data = read_toml(path)
    data.pop("versions", None)
    require_shallow(data, at=str(path))
    data.setdefault("name", path.stem)
    _resolve_paths(data, path.parent)
    if trust:  # a user's world is loaded to find the kinds that suit it, so its module is found first
        naming = [text for text in overrides if parse_override(text)[0] in (("environment", "id"), ("modules",))]
        with_names = apply_overrides(data, naming)
        _find_modules(with_names, path.parent)
        require_trust(with_names, trust)
    data = apply_overrides(data, overrides, bool(trust))
    _resolve_paths(data, Path())
    _find_modules(data, path.parent)
    require_trust(data, trust)
    return scenario_of(data, bool(trust))


def locate(source: str | os.PathLike[str]) -> Path:
    """File of a scenario given by name or by path."""
    text = os.fspath(source)
    is_path = text.endswith(".toml") or Path(text).is_file()
    if not is_path and (found := find(text)) is not None:
        return found
    if is_path or Path(text).exists():
        return Path(text)
    known = ", ".join(available()) or "none"
    hint = f"; did you mean {similar!r}?" if (similar := registry.nearest_kind(text, list(available()))) else ""
    message = f"no scenario of this name, and no such file; wanted a path or one of: {known}{hint}"
    raise errors.ConfigError(message, at=text)


def find(name: str, ending: str = ".toml") -> Path | None:
    """File of a shipped scenario: in the installed package first, then next to it, as in a clone."""
    paths = (folder / f"{name}{ending}" for folder in _folders())
    return next((path for path in paths if path.is_file()), None)


def available() -> dict[str, Path]:
    """Names and files of the shipped scenarios, sorted by name."""
    return {name: path for name, path in _shipped().items() if not name.startswith(_PAPERS)}


def reproductions() -> dict[str, Path]:
    """Names and files of the shipped reproductions of papers, sorted by name."""
    return {name.removeprefix(_PAPERS): path for name, path in _shipped().items() if name.startswith(_PAPERS)}


def _shipped() -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for folder in _folders():
        for path in folder.rglob("*.toml"):
            paths.setdefault(path.relative_to(folder).with_suffix("").as_posix(), path)
    return dict(sorted(paths.items()))


def summary_line(path: Path) -> str:
    """Summary in a scenario file: its first comment, up to an empty line."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#") and line.strip("# "), lines)
    return " ".join(line.lstrip("# ") for line in comment)


def dump(scenario: Scenario) -> str:
    """Scenario as TOML text with all defaults, which ``load`` reads back to an equal one."""
    return tomli_w.dumps(_as_toml(msgspec.to_builtins(scenario)))


def read_toml(path: Path) -> dict[str, Any]:
    """Tables of a TOML file."""
    if path.suffix in FORMATS:
        file = errors.typed(path)
        wanted = f"a scenario, in TOML; `swarmbo solve {file}` and `swarmbo fleet {file}` solve it"
        raise errors.ConfigError(f"is a problem in tables; wanted {wanted}", at=str(path))
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise errors.ConfigError(f"cannot be read: {error.strerror}; wanted a TOML file", at=str(path)) from error
    except UnicodeDecodeError as error:
        raise errors.ConfigError("holds bytes that are not UTF-8 text; wanted a TOML file", at=str(path)) from error
    except ValueError as error:  # TOMLDecodeError, and integers too long to convert
        raise errors.ConfigError(f"is not TOML: {error}", at=str(path)) from error
    except RecursionError as error:
        raise errors.ConfigError("is nested too deeply; wanted a TOML file of plain tables", at=str(path)) from error


def _folders() -> tuple[Path, ...]:
    package = Path(swarmbo.__file__).parent
    return (package / "_scenarios", package.parent / "scenarios")


def _find_modules(data: dict[str, Any], beside: Path) -> None:
    """Add the folders of a scenario's modules to it, so that every process of its run finds them."""
    stated = data.get("modules")
    stated_folders = [folder for folder in stated if isinstance(folder, str)] if isinstance(stated, list) else []
    places = (*(beside / folder for folder in stated_folders), beside, Path())
    folders = dict.fromkeys(os.path.abspath(place) for place in places)
    modules = {name.partition(":")[0].partition(".")[0] for name in user_code_names(data).values()}
    if module_folders := [at for at in folders if any(PathFinder.find_spec(module, [at]) for module in modules)]:
        data["modules"] = module_folders


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    if isinstance(environment := data.get("environment"), dict):
        data["environment"] = with_absolute_paths(environment, folder)


def with_absolute_paths(value: Any, folder: Path, name: str = "") -> Any:
    """Copy of tables in which paths of files, relative to ``folder``, are absolute."""
    if isinstance(value, dict):
        return {key: with_absolute_paths(part, folder, key) for key, part in value.items()}
    if isinstance(value, list):
        return [with_absolute_paths(part, folder) for part in value]
    return os.path.abspath(folder / value) if name in _FILES and isinstance(value, str) and value else value


def _as_toml(value: Any, at: str = "$") -> Any:
    """Settings that TOML can state, without those that are None; None in a list, and text not in UTF-8, are refused."""
    if isinstance(value, dict):
        return {_as_toml(k, at): _as_toml(part, f"{at}.{k}") for k, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_as_toml(part, f"{at}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, str) and value != value.encode(errors="ignore").decode():
        raise errors.ConfigError(f"got {value!r}, which is not UTF-8; rename the file or folder", at=at)
    if value is None:
        raise errors.ConfigError("got None, which TOML cannot state; wanted a string or a number", at=at)
    return value


def apply_overrides(data: dict[str, Any], overrides: Sequence[str], trust: bool = False) -> dict[str, Any]:
    """Replace settings of a scenario by ``table.key=value``; the value is TOML, or else a string.

    An override that changes a table's ``kind`` (possibly from the world's default) resets the table. Such overrides
    come first, so ``kind`` and settings of the new kind may be given in any order. With ``trust``, a user's world may
    be loaded, to find the kinds that suit it.
    """
    parsed = [parse_override(text) for text in overrides]
    tables = copy.deepcopy(data)
    for path, value in sorted(parsed, key=lambda item: item[0][-1] != "kind"):
        table = tables
        for depth, key in enumerate(path[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                at = ".".join(("$", *path[: depth + 1]))
                raise errors.ConfigError(f"got {table!r}; wanted a table, for the override of {'.'.join(path)}", at=at)
        if path[-1] == "kind":
            present_kind = table["kind"] if "kind" in table else _default_kind(path[0], data, parsed, trust)
            if present_kind != value:
                table.clear()
        table[path[-1]] = value
    return tables


def _default_kind(
    table: str, data: dict[str, Any], parsed: list[tuple[tuple[str, ...], Any]], trust: bool
) -> str | None:
    """Default kind of a table, for the world that the scenario has after all overrides."""
    overridden = [{"id": value} for path, value in parsed if path == ("environment", "id")]
    environment = overridden[-1] if overridden else data.get("environment")
    usual: dict[str, str] = {**DEFAULT_KINDS[team_kind(environment, trust)]}
    return usual.get(table)


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """Key of an override, as the path of tables, and its value."""
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise errors.ConfigError(f"got {text!r}; wanted table.key=value", at="--set")
    if path[-1] in registry.SLOTS and len(path) == 1 and value.strip()[:1] != "{":
        path += ("kind",)  # shorthand, as in Python
    if len(path) > DEEPEST:
        raise errors.ConfigError(f"got a key of {len(path)} parts; wanted table.key=value", at="--set")
    return path, _parse_value(".".join(path), value.strip())


def split_alternatives(text: str) -> list[str]:
    """Overrides of ``table.key=a,b``, one for each value; commas inside quotes, brackets or braces do not separate."""
    key, equals, values = text.partition("=")
    alternatives, depth, quote, part = list[str](), 0, "", ""
    for character in values:
        if character == "," and depth == 0 and not quote:
            alternatives.append(part.strip())
            part = ""
            continue
        part += character
        may_quote = depth or part.strip() == character  # in plain text (a path), quotes and brackets are kept
        if quote:
            quote = "" if character == quote else quote
        elif may_quote and character in "\"'":
            quote = character
        elif may_quote:
            depth += (character in "[{") - (character in "]}")
    alternatives.append(part.strip())
    if equals and not all(alternatives):
        raise errors.ConfigError(f"got {text!r}; wanted alternatives separated by single commas", at="--set")
    paths = [parse_override(key + equals + value)[0] for value in alternatives]  # with .kind for a table's kind
    return [f"{'.'.join(path)}={value}" for path, value in zip(paths, alternatives, strict=True)]


def _parse_value(key: str, text: str) -> Any:
    toml = re.sub(r"^([+-]?)[.](?=\d)", r"\g<1>0.", text)  # .3, as other command lines take it
    try:
        parsed = tomllib.loads(f"value = {toml}")
    except (ValueError, RecursionError) as error:
        if text[:1] in {'"', "'", "[", "{"}:
            raise errors.ConfigError(f"got {text}, which is not TOML: {error}", at=f"$.{key}") from error
        return text
    value = parsed["value"]
    is_plain = len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict)
    return value if is_plain else text


def scenario_names(prefix: str) -> list[str]:
    """Shipped scenarios, and TOML files, whose names begin with ``prefix``."""
    files = sorted(str(path) for path in Path().glob("*.toml"))
    return [name for name in (*available(), *files) if name.startswith(prefix)]


def setting_completions(source: str | None, prefix: str) -> list[str]:
    """Completions of ``prefix``: ``path=`` of a scenario's settings (None: a field's), with names for kinds and ids."""
    try:
        tables = {} if source is None else read_toml(locate(source))
    except errors.ConfigError:  # perhaps a name that is not fully typed yet
        tables = {}
    named = {"environment.id": plug_in_ids(), **{f"{slot}.kind": registry.kinds(slot) for slot in registry.SLOTS}}
    texts = [f"{path}=" for path in setting_paths(tables) if path not in ("environment", "modules", *named)]
    texts += [f"{path}={name}" for path, names in named.items() for name in names]
    return [path for path in texts if path.startswith(prefix)]
