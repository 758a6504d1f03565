"""The page on users' own parts: its files are written, and its commands and Python blocks run."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.kernels import registry

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "extend.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\w+ (\S+)\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_OWN", {})
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_parts_on_the_page_pass_their_checks_and_are_used(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    names: dict[str, object] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/guide/extend.md", "exec"), names)
    assert names["team"].n_data == 8
    assert names["team"].recommend().mean > -0.05  # the maximum is 0


def test_parts_on_the_page_are_short():
    lengths = {name: len([line for line in text.splitlines() if line.strip()]) for name, text in FILES.items()}
    assert lengths.pop("my_worlds.py") <= 45
    assert set(lengths) == {"my_fields.py", "my_functions.py", "my_coordination.py", "my_kernels.py", "pond.toml"}
    assert max(lengths.values()) <= 30


@pytest.mark.thorough
def test_the_commands_on_the_page_end_with_the_table(folder, monkeypatch, blank):
    monkeypatch.setenv("COLUMNS", "160")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.splitlines()]
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output)
    table = done.stdout
    for method in ("my_fields:Curious", "my_coordination:OneAtATime", "db-gp-ucb"):
        assert re.search(rf"{method}.*\b3\b", table), table
