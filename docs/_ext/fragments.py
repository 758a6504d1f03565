"""Generate parts of pages from the code when the site is built: the command line, keys of scenarios, terms.

They are Markdown, in ``docs/_fragments``, which git ignores; the pages of ``docs/reference`` include them. Their names
end in ``.txt``, because they are not pages.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

SCREEN = {"COLUMNS": "80", "NO_COLOR": "1"}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def setup(app: Any) -> dict[str, bool]:
    """Write the parts before pages are read."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True}


def _write(app: Any) -> None:
    folder = Path(app.srcdir, "_fragments")
    folder.mkdir(exist_ok=True)
    for name, lines in _made():
        text, file = "\n".join(lines) + "\n", folder / f"{name}.txt"
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # an unchanged page is not rebuilt
            file.write_text(text, encoding="utf-8")


def _made() -> Iterator[tuple[str, Iterator[str]]]:
    yield from (("cli", command_line()), ("scenario", scenario_keys()), ("worlds", worlds()), ("glossary", terms()))


def terms() -> Iterator[str]:
    """Tables of the terms and statuses that `swarmbo explain` knows."""
    from swarmbo.cli.explain import glossary

    for head, texts in (
        ("term | meaning", glossary()["terms"]),
        ("status | meaning, and what to do", glossary()["status"]),
    ):
        if head.startswith("status"):
            yield from ("", "## Statuses of an agreement", "")
        yield from (f"| {head} |", "|---|---|")
        yield from (
            f"| {f'`{term}`' if head.startswith('status') else term} | {text} |" for term, text in texts.items()
        )


def command_line() -> Iterator[str]:
    """The ``--help`` text of every command, 80 columns wide."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from swarmbo.cli import app

    commands: Any = get_command(app)
    for name in (path for key, one in commands.commands.items() for path in _paths(key, one)):
        shown = CliRunner().invoke(app, [*name.split(), "--help"], env=SCREEN, prog_name="swarmbo")
        if shown.exit_code:
            raise RuntimeError(f"swarmbo {name} --help: {shown.output}")
        text = "\n".join(line.rstrip() for line in ANSI.sub("", shown.output).strip().splitlines())
        yield from ("", f"## swarmbo {name}", "", "```text", f"$ swarmbo {name} --help", text, "```", "")


def _paths(name: str, command: Any) -> list[str]:
    """A command and its subcommands, such as fleet and fleet run."""
    return [
        name,
        *(path for sub, one in getattr(command, "commands", {}).items() for path in _paths(f"{name} {sub}", one)),
    ]


def scenario_keys() -> Iterator[str]:
    """The keys of scenarios, from the schemas by which scenarios are checked."""
    from swarmbo.evaluations import Workers
    from swarmbo.registry import SLOTS, TEAMS, kinds
    from swarmbo.runs.scenario import Scenario

    yield from ("", "## At the top", "", *_keys(Scenario))
    yield from ("", "## workers", "", _first_line(Workers), "", *_keys(Workers))
    for slot in SLOTS:
        yield from ("", f"## {slot}", "")
        for kind, settings in kinds(slot).items():
            teams = [text for team, text in TEAMS.items() if kind in kinds(slot, team)]
            summary = _first_line(settings)
            yield from ("", f"({slot}-{kind})=", f'### {slot}.kind = "{kind}"', "", summary, "")
            yield from (f"For {' and for '.join(teams)}. API: {{class}}`swarmbo.{settings.__name__}`.", "")
            yield from _keys(settings)


def _first_line(settings: type) -> str:
    return " ".join((inspect.getdoc(settings) or "").partition("\n\n")[0].split()).replace("``", "`")


def _keys(settings: type) -> Iterator[str]:
    """Table of the fields of settings."""
    meanings, fields = _meanings(settings), msgspec.structs.fields(settings)
    if not fields:
        yield from ("It has no keys of its own.", "")
        return
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for field in fields:
        value = words(msgspec.inspect.type_info(field.type)).replace("|", "\\|")
        meaning = meanings[field.name].replace("|", "\\|").replace("``", "`")
        yield f"| `{field.name}` | {value} | {_default(field)} | {meaning} |"
    yield ""


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{_toml(field.default)}`" if field.default is not None else "none"
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory()
        kind = getattr(getattr(made, "__struct_config__", None), "tag", None)
        return f'`kind = "{kind}"`' if kind else f"`{_toml(made)}`"
    return "required"


def _toml(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return _toml({key: entry for key, entry in msgspec.structs.asdict(value).items() if entry is not None})
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return repr(value)


def _meanings(settings: type) -> dict[str, str]:
    """The meaning of each field, from the class, its bases, and other classes that inherit it from the same base."""
    from swarmbo.registry import SLOTS, kinds

    meanings = dict[str, str]()
    for base in settings.__mro__:
        for slot in SLOTS:
            for other in kinds(slot).values():
                if base in other.__mro__:
                    shared = {
                        name: text
                        for name, text in _arguments(other).items()
                        if name in vars(base).get("__annotations__", {})
                    }
                    meanings = shared | meanings
    return meanings | _arguments(settings)


def _arguments(settings: type) -> dict[str, str]:
    """Descriptions of arguments in the docstrings of a class and of its bases."""
    meanings = dict[str, str]()
    for one in reversed(settings.__mro__):
        section = re.search(r"^Args:\n((?:[ ].*\n?|\n)*)", inspect.cleandoc(one.__doc__ or ""), flags=re.MULTILINE)
        if section:
            entries = re.split(r"^    (?=\w+: )", section[1], flags=re.MULTILINE)[1:]
            meanings |= {name: " ".join(text.split()) for name, _, text in (entry.partition(":") for entry in entries)}
    return meanings


def words(kind: Any) -> str:
    """Description of the values that a type allows.

    Args:
        kind: Type, as described by msgspec.
    """
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(dict.fromkeys(map(words, types)))
        case msgspec.inspect.NoneType():
            return "none"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in values)
        case msgspec.inspect.IntType():
            return f"integer{_range(kind)}"
        case msgspec.inspect.FloatType():
            return f"number{_range(kind)}"
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.TupleType(item_types=items):
            return f"[{', '.join(map(words, items))}]"
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return f"list of {words(item)}"
        case msgspec.inspect.StructType(cls=cls, tag=tag):
            return f'table `kind = "{tag}"`' if tag else f"table of {cls.__name__}"
        case msgspec.inspect.DictType():
            return "table"
        case msgspec.inspect.Metadata(type=inner):
            return words(inner)
        case msgspec.inspect.AnyType():
            return "table with `kind`"
        case _:
            raise TypeError(f"no words for {kind}")


def _range(number: Any) -> str:
    ends = [(">=", number.ge), (">", number.gt), ("<=", number.le), ("<", number.lt)]
    there = [f"{sign} {end:g}" for sign, end in ends if end is not None]
    return f" {', '.join(there)}" if there else ""


def worlds() -> Iterator[str]:
    """Table of the environments that are registered."""
    import pettingzoo

    from swarmbo.runs.world import plug_in_ids

    yield from ("| environment | |", "|---|---|")
    for name in plug_in_ids():
        if name.startswith("swarmbo/"):
            maker = str(pettingzoo.spec("parallel", name).entry_point)
            module, _, attribute = maker.partition(":")
            world = getattr(__import__(module, fromlist=[attribute]), attribute)
            page = name.removeprefix("swarmbo/").replace("-", "_")
            yield f"| [`{name}`](/environments/{page}.md) | {_first_line(world)} |"
