"""``swarmbo explain``: meaning, default and use of a name, from docstrings, schemas and the glossary."""

import difflib
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
    if not (found := list(explained(name))):
        kind = nearest_kind(name, [kind for slot in SLOTS for kind in kinds(slot)])  # also by another name: ei
        similar = difflib.get_close_matches(name.lower(), sorted(names()), n=2)
        suggestions = dict.fromkeys([*similar, *([kind] if kind else [])])
        hint = f"did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "see `swarmbo list`"
        raise errors.ConfigError(f"got {name!r}, which is not known; {hint}", at="explain")
    typer.echo("\n\n".join("\n".join(_lines(entry, min(line_width(), _WIDEST))) for entry in found))


def explained(name: str) -> Iterator[Entry]:
    """Entries for a name, from every sort of names that has it."""
    # the kind of a table is explained by the table's key
    plain = re.sub(r"\A(\$\.)?(swarmbo\.|sb\.)?|\.(kind|id)\Z", "", name.strip())
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
    kind_names = {kind for slot in SLOTS for kind in kinds(slot)} | {key for *_, table in _tables() for key in table}
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
            keys = _argument_texts(settings)
            table = {key: f"{keys.get(key, '')} Default: {_default(default)}." for key, default in _fields(settings)}
            paragraphs = (*_documented(settings)[0], f"For {' and for '.join(teams)}.")
            yield Entry(f"{slot}: {name}", paragraphs, table, f"--set {slot}.kind={name}")


def _keys(name: str) -> Iterator[Entry]:
    """Keys of scenarios by path or by last part; for a table within a table, the key that documents it."""
    by_key: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_table: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for path, title, documentation, table in _tables():
        for key, (text, default) in table.items():
            key_path = f"{path}.{key}" if path else key
            nested_key = name.rpartition(".")[2] if name.startswith(f"{key_path}.") else ""
            if nested_key and path:
                by_table.setdefault((key_path, (text, *_mentions(documentation, nested_key))), []).append(title)
            elif name in (key_path, key):
                stated = "It has no default." if default is msgspec.NODEFAULT else f"Default: {_default(default)}."
                by_key.setdefault((key_path, (f"{text} {stated}",)), []).append(title)
    for (key_path, paragraphs), titles in (by_key or by_table).items():
        title = f" ({', '.join(titles)})" if any(titles) else ""
        yield Entry(f"key: {key_path}{title}", paragraphs, {}, f"--set {key_path if by_key else name}=…")


def _tables() -> Iterator[tuple[str, str, str, dict[str, tuple[str, Any]]]]:
    """Tables of a scenario: path, kind or environment, its documentation, and for each key its meaning and default."""
    from swarmbo.evaluations import Workers
    from swarmbo.registry import SLOTS, kinds
    from swarmbo.runs import world
    from swarmbo.runs.scenario import Scenario

    tables = [("", "", Scenario), ("workers", "", Workers)]
    tables += [(slot, name, settings) for slot in SLOTS for name, settings in kinds(slot).items()]
    for path, name, settings in tables:
        keys = _argument_texts(settings)
        yield path, name, "", {key: (keys.get(key, ""), default) for key, default in _fields(settings)}
    for identifier in world.plug_in_ids():
        maker = world.environment_maker(identifier)
        keys, signature = _argument_texts(maker), inspect.signature(maker).parameters
        texts = (inspect.cleandoc(document.__doc__).partition("\nArgs:")[0] for document in _documents(maker))
        table = {key: (keys.get(key, ""), signature[key].default) for key in world.environment_settings(identifier)}
        yield "environment", identifier, "\n\n".join(texts), table


def _argument_texts(maker: Any) -> dict[str, str]:
    """Meaning of arguments, from the docstrings of a class and of its bases."""
    return {key: text for document in reversed(_documents(maker)) for key, text in _documented(document)[1].items()}


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
    opening, *sections = re.split(r"\n(?=(?:Args|Attributes|Returns|Raises|Example|Version history):\n)", f"\n{text}")
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


def _documents(maker: Any) -> list[Any]:
    """A class and its bases, or a function, without those that lack a docstring."""
    parts = inspect.getmro(maker) if inspect.isclass(maker) else (maker,)
    return [part for part in parts if part.__doc__]


def _mentions(documentation: str, word: str) -> list[str]:
    """Paragraphs and list items of a documentation that contain a word as code."""
    parts = re.split(r"\n\s*\n|\n(?=\s*[*-] )", documentation)
    return [_plain(part) for part in parts if re.search(rf"\b{re.escape(word)} ?=|``{re.escape(word)}``", part)]


def _fields(settings: type[msgspec.Struct]) -> list[tuple[str, Any]]:
    fields = msgspec.structs.fields(settings)
    return [(each.name, each.default_factory if each.default is msgspec.NODEFAULT else each.default) for each in fields]


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, msgspec.Struct):
        return str(value.__struct_config__.tag or type(value).__name__)
    return "that of the team" if callable(value) else repr(value).replace("'", '"')


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
