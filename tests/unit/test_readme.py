"""The Python of the README and of the pages on scripting and sensor fields runs, in the order in which it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def names_after(page: str) -> dict[str, object]:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_python_of_the_readme_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert names_after("README.md")["team"].belief.n_data == 3


def test_python_of_the_page_on_optuna_runs(capsys):
    optuna = pytest.importorskip("optuna")
    verbosity = optuna.logging.get_verbosity()
    names = names_after("docs/optuna.md")
    optuna.logging.set_verbosity(verbosity)
    assert names["study"].best_value < 0.3
    assert names["known"].best_value < 0.05
    assert capsys.readouterr().out.endswith("{} 0\n")


def test_python_of_the_page_on_data_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    names = names_after("docs/data.md")
    assert names["again"].n_data == 4
    assert not names["again"].pending
    assert names["warm"].n_data == 12
    out = capsys.readouterr().out
    assert out.startswith("2 1 1\n<Team of 2 agents in a field")
    assert "<Run of camel, seed 0, best " in out


def test_python_of_the_page_on_scripting_runs():
    names = names_after("docs/scripting.md")
    assert names["team"].n_data == 12
    assert names["policy"].n_data == 11
    assert names["tuner"].recommend().mean > -0.01  # the most is 0
    assert names["radio"].traffic.messages > 0


def test_python_of_the_page_on_sensor_fields_runs(capsys):
    names = names_after("docs/fields.md")
    assert names["env"].unwrapped.field.moves
    assert capsys.readouterr().out.endswith("[2. 2. 1. 1.] ['b']\n")
