"""``swarmbo explain``: meaning, default and use of a name, from docstrings, schemas and the glossary."""

import difflib
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec
import typer
from typer import Argument

from swarmbo import errors
from swarmbo.cli.options import app, line_width

_WIDEST = 100  # columns of running text


class Entry(NamedTuple):
    """Explanation of one name: a title, paragraphs, keys with their meaning, and a command that uses it."""

    title: str
    paragraphs: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}
    command: str = ""


@app.command()
def explain(
    words: Annotated[
        list[str],
        Argument(
            metavar="NAME",
            help="A kind (max-sum), a key (coordination.rounds), an environment, a scenario, a status (max_rounds), an "
            "error (ShapeError) or a term (trust region).",
        ),
    ],
) -> None:
    """Explain a kind, key, environment, scenario, status, error or term: meaning, default, a command."""
    from swarmbo.registry import SLOTS, kinds, nearest_kind

    name = " ".join(words)
    if not (entries := list(explained(name))):
        kind = nearest_kind(name, [kind for slot in SLOTS for kind in kinds(slot)])  # also by another name: ei
        similar = difflib.get_close_matches(name.lower(), sorted(names()), n=2)
        suggestions = dict.fromkeys([*similar, *([kind] if kind else [])])
        hint = f"did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "see `swarmbo list`"
        raise errors.ConfigError(f"got {name!r}, which is not known; {hint}", at="explain")
    typer.echo("\n\n".join("\n".join(_lines(entry, min(line_width(), _WIDEST))) for entry in entries))


def explained(name: str) -> Iterator[Entry]:
    """Entries for a name, from every sort of names that has it."""
    # the kind of a table is explained by the table's key, and an element of a list by the list's
    plain = re.sub(r"\A(\$\.)?(swarmbo\.|sb\.)?|\.(kind|id)\Z|\[[^]]*\]", "", name.strip())
    for entries_of in (_kinds, _keys, _worlds, _scenarios, _errors):
        yield from entries_of(plain)
    words = plain.lower().replace("-", " ")
    for sort, texts in glossary().items():
        for term, text in texts.items():
            if term.lower() in (plain, words) or f"{term.lower()}s" == words:
                yield Entry(f"{sort.removesuffix('s') if sort == 'terms' else sort}: {term}", (text,))


def names() -> set[str]:
    """All names that can be explained, except paths of keys."""
    from swarmbo.registry import SLOTS, kinds
    from swarmbo.runs import world
    from swarmbo.runs.scenario_files import available

    error_names = {name for name in vars(errors) if any(_errors(name))}
    kind_names = {kind for slot in SLOTS for kind in kinds(slot)} | {
        each.name for *_, maker in _tables() for each in _settings(maker)
    }
    terms = {term for texts in glossary().values() for term in texts}
    return kind_names | error_names | terms | {*available(), *world.plug_in_ids()}


def glossary() -> dict[str, dict[str, str]]:
    """Terms and statuses with their meaning."""
    return tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))


def _kinds(name: str) -> Iterator[Entry]:
    from swarmbo.registry import SLOTS, TEAMS, kinds

    for slot in SLOTS:
        if name in kinds(slot):
            settings = kinds(slot)[name]
            teams = [TEAMS[team] for team in TEAMS if name in kinds(slot, team)]
            table = {each.name: _meaning(settings, each) for each in _settings(settings)}
            paragraphs = (*_documented(settings)[0], f"For {' and for '.join(teams)}.")
            yield Entry(f"{slot}: {name}", paragraphs, table, f"--set {slot}.kind={name}")


def _keys(name: str) -> Iterator[Entry]:
    """Keys of scenarios by the end of their path; for an unknown one within a table, the nearest key above it."""
    keys = [
        (f"{path}.{each.name}".strip("."), *table, each) for path, *table in _tables() for each in _settings(table[-1])
    ]
    while not (found := [key for key in keys if _is_end(name, key[0])]) and name.count(".") > 1:
        name = name.rpartition(".")[0]
    entries: dict[tuple[str, str, str], tuple[list[str], Any, inspect.Parameter]] = {}
    for path, kind, owner, maker, setting in found:
        entries.setdefault((path, kind, _meaning(maker, setting)), ([], maker, setting))[0].append(owner)
    for (path, kind, text), (owners, maker, setting) in entries.items():
        beside = [(path.rpartition(".")[0], maker)] if kind == setting.name else []  # of a key that selects a kind
        tables = [(path + below, table) for below, _, table in _tables_of(setting.annotation)] or beside
        shown = tables if len(tables) == 1 else []
        summary = (_documented(table)[0][0] for _, table in shown)
        keys_of = {f"{at}.{each.name}": (table, each) for at, table in shown for each in _settings(table)}
        meanings = {key: _meaning(*of) for key, of in keys_of.items() if key != path}
        title = "; ".join(filter(None, (kind, ", ".join(filter(None, dict.fromkeys(owners))))))
        whole, is_in_list, _ = path.partition("[]")
        command = f"--set {whole}={'[{…}]' if is_in_list else '…'}"
        paragraphs = (text, *(part for part in summary if part not in text))
        yield Entry(f"key: {path}" + f" ({title})" * bool(title), paragraphs, meanings, command)


def _is_end(name: str, path: str) -> bool:
    """True if a name is the end of a key's path, in which ``[]`` is a list and a ``NAME`` within is any word."""
    parts = path.replace("[]", "").split(".")[-name.count(".") - 1 :]
    return re.fullmatch(r"\.".join(parts).replace(".NAME", ".[^.]+"), name) is not None


def _tables() -> Iterator[tuple[str, str, str, Any]]:
    """Tables of a scenario, with all tables within them: path, kind, kind of slot or environment, class or function."""
    from swarmbo.registry import SLOTS, kinds
    from swarmbo.runs import world
    from swarmbo.runs.scenario import Scenario

    tables: list[tuple[str, str, str, Any]] = [("", "", "", Scenario)]
    tables += [(slot, "", name, settings) for slot in SLOTS for name, settings in kinds(slot).items()]
    tables += [("environment", "", name, world.environment_maker(name)) for name in world.plug_in_ids()]
    for path, kind, owner, maker in tables:  # which grow by the tables within
        yield path, kind, owner, maker
        for setting in _settings(maker):
            at = f"{path}.{setting.name}".strip(".")
            tables += [(at + below, inner, owner, table) for below, inner, table in _tables_of(setting.annotation)]


def _tables_of(annotation: Any, below: str = "") -> Iterator[tuple[str, str, type[msgspec.Struct]]]:
    """Settings that a type allows, as parts or as ``kinds`` in its metadata: path below its key, kind, and class."""
    if isinstance(annotation, msgspec.Meta):
        yield from ((below, kind, table) for kind, table in (annotation.extra or {}).get("kinds", {}).items())
    elif inspect.isclass(annotation) and issubclass(annotation, msgspec.Struct):
        yield below, str(annotation.__struct_config__.tag or ""), annotation
    below += ".NAME" if get_origin(annotation) is dict else "[]" if get_origin(annotation) in (list, tuple) else ""
    for part in get_args(annotation):
        yield from _tables_of(part, below)


def _argument_texts(maker: Any) -> dict[str, str]:
    """Meaning of arguments, from the docstrings of a class and of its bases."""
    parts = inspect.getmro(maker) if inspect.isclass(maker) else (maker,)
    return {key: text for part in reversed(parts) for key, text in _documented(part)[1].items()}


def _worlds(name: str) -> Iterator[Entry]:
    from swarmbo.runs import world

    for identifier in world.plug_in_ids():
        if name in (identifier, identifier.removeprefix("swarmbo/")):
            maker, command = world.environment_maker(identifier), f'pettingzoo.make("parallel", "{identifier}")'
            yield Entry(f"environment: {identifier}", _documented(maker)[0], _argument_texts(maker), command)


def _scenarios(name: str) -> Iterator[Entry]:
    from swarmbo.runs.scenario_files import available, load, summary_line

    if name in available():
        scenario, path = load(name), available()[name]
        keys = {"environment": str(scenario.environment["id"]), "rounds": str(scenario.rounds), "file": str(path)}
        for slot in ("belief", "acquisition", "coordination"):
            keys[slot] = str(getattr(scenario, slot).__struct_config__.tag)
        yield Entry(f"scenario: {name}", (summary_line(path),), keys, f"swarmbo run {name}")


def _errors(name: str) -> Iterator[Entry]:
    found = getattr(errors, name, None)
    if inspect.isclass(found) and issubclass(found, Exception | Warning):
        yield Entry(f"error: {name}", _documented(found)[0])


@cache
def _documented(thing: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Paragraphs of a docstring up to its first section, and its text about each argument, without markup."""
    text = inspect.cleandoc(thing.__doc__ or "")
    opening, *sections = re.split(r"\n(?=(?:Args|Attributes|Returns|Raises|Example):\n)", f"\n{text}")
    arguments = next((part for part in sections if part.startswith("Args:")), "")
    argument_texts = re.findall(r"^    (\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", arguments, flags=re.MULTILINE)
    paragraphs = opening.strip() or "It has no description."
    return tuple(map(_plain, paragraphs.split("\n\n"))), {key: _plain(text) for key, text in argument_texts}


def _plain(text: str) -> str:
    """Text without markup; line ends stay in lists and tables only."""
    bare = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "").replace("**", "")
    if bare.lstrip().startswith("|"):
        rows = [[" ".join(cell.split()) for cell in line.strip(" |").split("|")] for line in bare.splitlines()]
        return "\n".join(": ".join(filter(None, row)) for row in rows if any(cell.strip("- ") for cell in row))
    return "\n".join(" ".join(part.split()) for part in re.split(r"\n(?=\s*[*-] )", bare))


def _settings(maker: Any) -> list[inspect.Parameter]:
    """Settings that a class or function takes; a scenario's ``rounds`` are an environment's ``max_cycles``."""
    parameters = inspect.signature(maker).parameters.values()
    return [each for each in parameters if each.name != "max_cycles" and not each.kind.name.startswith("VAR_")]


def _meaning(maker: Any, setting: inspect.Parameter) -> str:
    """Meaning of a setting, and its default."""
    tables, default = [_documented(table)[0][0] for *_, table in _tables_of(setting.annotation)], setting.default
    text = _argument_texts(maker).get(setting.name, " ".join(tables))
    if "Default: " in text:
        return text
    if default is setting.empty:
        return f"{text} It has no default."
    default = default.factory() if hasattr(default, "factory") else default
    if isinstance(default, msgspec.Struct):
        default = default.__struct_config__.tag or "the defaults of its keys"
    elif default is None or isinstance(default, bool):
        default = "none" if default is None else str(default).lower()
    else:
        default = repr(default).replace("'", '"')
    return f"{text} Default: {default}."


def _lines(entry: Entry, width: int) -> Iterator[str]:
    yield typer.style(entry.title, bold=True)
    for paragraph in entry.paragraphs:
        for line in paragraph.splitlines():
            yield from textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="  ")
    for key, text in entry.keys.items():
        line = f"{key}: {' '.join(text.split())}"
        yield from textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="      ")
    if entry.command:
        yield f"  try: {entry.command}"


@app.command("list")
def list_known() -> None:
    """List the scenarios that swarmbo brings, and the environments and kinds that scenarios can name."""
    from swarmbo.registry import SLOTS, TEAMS, kinds, summary_of
    from swarmbo.runs import world
    from swarmbo.runs.scenario_files import available, summary_line

    typer.secho("scenarios", bold=True)
    for name, path in available().items():
        _print_beside(f"  {name:<20} ", summary_line(path))
    typer.secho("environments", bold=True)
    for identifier in world.plug_in_ids():
        typer.echo(f"  {identifier}")
    for slot in SLOTS:
        typer.secho(f"{slot}: kind", bold=True)
        for name, settings in kinds(slot).items():
            teams = ", ".join(team for team in TEAMS if name in kinds(slot, team))
            _print_beside(f"  {name:<20} {teams:<15} ", summary_of(settings))
    _print_beside("", "Meaning, keys and defaults of a name: swarmbo explain NAME")
    for name, why in world.load_plug_ins().items():
        typer.echo(f"swarmbo: plug-in {name!r} failed: {' '.join(why.split())}", err=True)


def _print_beside(label: str, text: str) -> None:
    """Print a label and a text next to it, wrapped to the width of the terminal."""
    width = max(line_width() - len(label), 20)
    typer.echo(label + f"\n{' ' * len(label)}".join(textwrap.wrap(text, width) or [""]))
