"""The page on code of one's own does what it says: its files are written down, and its commands run."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmbo.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "your-own.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_page_leads_to_the_table(tmp_path, monkeypatch):
    files = dict(re.findall(r"```\w+ (\S+)\n(.*?)```", PAGE, flags=re.DOTALL))
    assert set(files) == {"my_methods.py", "my_worlds.py", "pond.toml"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.splitlines()]
    for command in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output)
    table = done.stdout
    for method in ("my_methods:Curious", "my_methods:OneAtATime", "db-gp-ucb"):
        assert re.search(rf"{method}.*\b3\b", table), table
