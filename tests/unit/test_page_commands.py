"""The commands on pages are accepted: their options, and the scenarios and settings that they name."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from swarmbo.cli import app
from swarmbo.errors import ConfigError
from swarmbo.runs import load, plan
from swarmbo.runs.scenario_files import scenario_names

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
COMMENTED = re.compile(r"^# {5}(swarmbo .*)$", flags=re.MULTILINE)  # in the scripts of tutorials and the gallery
COMMAND = re.compile(r"(?:^|[\s;&])(?:\S*/)?swarmbo ([a-z][^;&|]*)")


def commands_in(text: str) -> list[list[str]]:
    """The arguments of each `swarmbo` line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(found[1], comments=True) for line in lines if (found := COMMAND.search(line.split(" #")[0]))]


def commands_of(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text) if page.suffix == ".md" else COMMENTED.findall(text)
    return [command for block in blocks for command in commands_in(block)]


SCRIPTS = [script for folder in ("tutorials", "gallery") for script in sorted((ROOT / "docs" / folder).glob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *SCRIPTS]
SHIPPED = set(scenario_names(""))
COMMANDS = {
    f"{page.relative_to(ROOT)}: {shlex.join(command)}": command for page in PAGES for command in commands_of(page)
}


def parsed(command: list[str]) -> tuple[str, dict[str, object]]:
    """The name of the command that would run, and the values of its arguments and options.

    Args:
        command: Without ``swarmbo``.
    """
    group, name = get_command(app), "swarmbo"
    arguments = list(command)
    while hasattr(group, "commands"):
        if name == "fleet" and arguments[0] not in group.commands:
            arguments.insert(0, "run")  # as the command line itself reads `swarmbo fleet SCENARIO`
        name = arguments.pop(0)
        group = group.commands[name]
    return name, group.make_context(name, arguments).params


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_on_pages_are_accepted(line):
    name, values = parsed(COMMANDS[line])
    source, overrides = values.get("source"), list(values.get("overrides") or [])
    if name not in {"run", "check", "sweep"} or source not in SHIPPED:
        return  # what a file of a reader's own says is not known here
    if name == "sweep":
        assert plan(source, values["seeds"], overrides)
    else:
        assert load(source, overrides).rounds >= 1


def test_pages_have_commands():
    assert len(COMMANDS) > 20
    assert any(line.startswith("README.md") for line in COMMANDS)
    assert any(line.startswith("docs/gallery/") for line in COMMANDS)


def test_commands_are_found_and_refused_where_they_are_wrong():
    lines = (
        "pip install . && .venv/bin/swarmbo run robots --seed 3 # a comment\nswarmbo run robots \\\n  --set seed=2\n"
    )
    assert commands_in(lines) == [["run", "robots", "--seed", "3"], ["run", "robots", "--set", "seed=2"]]
    with pytest.raises(Exception, match="--rounds"):
        parsed(["run", "robots", "--rounds", "5"])
    with pytest.raises(KeyError, match="walk"):
        parsed(["walk", "robots"])
    _, values = parsed(["run", "robots", "--set", "robots=3"])
    with pytest.raises(ConfigError, match=r"environment\.robots"):
        load(values["source"], values["overrides"])
