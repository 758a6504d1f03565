"""Fixtures for runs: commands, runs of the small test world, interrupted and resumed runs."""

import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.runs import RunFolder, resume, run


@pytest.fixture
def cli():
    """A function that runs a command and checks its exit status: ``cli("export", folder, status=2)``."""

    def call(*arguments, status=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    return call


@pytest.fixture
def played(tmp_path, bump_scenario):
    """A function that runs the small test world in the folder ``run``, and returns its summary and records."""

    def play(**settings):
        summary = run(bump_scenario(**settings), tmp_path / "run")
        return summary, RunFolder.open(tmp_path / "run").records()

    return play


@pytest.fixture
def same_when_resumed(tmp_path, interrupted):
    """A function that checks that a run interrupted after a round and resumed equals a whole run; returns records."""

    def check(scenario, after, **trust):
        run(scenario, tmp_path / "whole", **trust)
        interrupted(scenario, tmp_path / "parts", after, **trust)
        resume(tmp_path / "parts", **trust)
        whole, parts = ((tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "parts"))
        assert whole == parts
        return RunFolder.open(tmp_path / "whole").records()

    return check


@pytest.fixture
def cut():
    """A function that cuts a run's log to its first lines, as if it had been killed before its first checkpoint."""

    def leave(folder, n_lines):
        (folder / "summary.json").unlink()
        for file in folder.glob("checkpoint*"):
            file.unlink()
        rows = (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "rounds.jsonl").write_bytes(b"".join(rows[:n_lines]))

    return leave
