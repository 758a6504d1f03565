"""The Python of the README and of each page runs, in the order in which it stands."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
OWN_TESTS = {"docs/guide/extend.md"}  # its blocks are files, too
EXTRAS = {"docs/guide/optuna-ax.md": "optuna", "docs/guide/dcop.md": "yaml"}
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
PAGES = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if (blocks := BLOCK.findall(path.read_text(encoding="utf-8")))
}


@pytest.fixture
def names_after(monkeypatch, tmp_path):
    """The names after all blocks of a page, run in an empty folder."""

    def run(page: str) -> dict[str, object]:
        if page in EXTRAS and importlib.util.find_spec(EXTRAS[page]) is None:
            pytest.skip(f"{EXTRAS[page]} is not installed")
        monkeypatch.chdir(tmp_path)
        names: dict[str, object] = {"__name__": "page"}
        for block in PAGES[page]:
            exec(compile(block, page, "exec"), names)
        return names

    return run


TESTED = {"README.md", *(f"docs/guide/{name}.md" for name in ("ask-tell", "functions", "optuna-ax", "runs-and-papers"))}
TESTED |= {"docs/reference/evaluations.md"}
TESTED |= {f"docs/guide/{name}.md" for name in ("field-data", "processes", "rl", "robots", "sensors")}


@pytest.mark.parametrize("page", sorted(set(PAGES) - OWN_TESTS - TESTED))
def test_python_of_a_page_runs(names_after, page):
    names_after(page)


def test_python_of_the_readme_runs(names_after):
    assert names_after("README.md")["team"].belief.n_data == 3


def test_python_of_the_page_on_robots_ends_with_late_failed_and_lost_ones(names_after):
    """Outcomes lie where robots were, not where they were sent; a lost robot is not pending and has not failed."""
    names = names_after("docs/guide/robots.md")
    crew, driving = names["crew"], names["driving"]
    data = crew.history
    values = data.factors[np.isfinite(data.factors)]
    assert len(values) == crew.n_data > 8
    wanted = []
    for row, outcomes in zip(data.X, data.factors, strict=True):
        places = crew.problem.places_of(crew.problem.named(row))
        known = [name for name, y in zip(crew.problem.channels, outcomes, strict=True) if np.isfinite(y)]
        wanted += [np.sin(places[name] / 60.0).sum() for name in known[:1]]
    np.testing.assert_allclose(values, wanted, atol=1e-9)
    assert crew.failures >= 1
    assert names["lost"] == {"cyd"}
    assert set(crew.pending) == {query.id for query, _, _ in driving.values()}
    assert "cyd" not in driving


def test_python_of_the_page_on_optuna_runs(names_after):
    optuna = pytest.importorskip("optuna")
    verbosity = optuna.logging.get_verbosity()
    names = names_after("docs/guide/optuna-ax.md")
    optuna.logging.set_verbosity(verbosity)
    assert names["study"].best_value < 0.3
    assert names["known"].best_value < 0.05


def test_python_of_the_page_on_field_data_maps_a_survey(names_after):
    names = names_after("docs/guide/field-data.md")
    assert names["team"].n_data == 40
    assert names["team"].failures == 1
    assert names["variance"].max() < 1.0


def test_python_of_the_page_on_runs_runs(names_after, capsys):
    assert names_after("docs/guide/runs-and-papers.md")["warm"].n_data == 12
    assert "<Run of camel, seed 0, best " in capsys.readouterr().out


def test_python_of_the_page_on_ask_and_tell_runs(names_after):
    names = names_after("docs/guide/ask-tell.md")
    assert len(names["team"].pending) == 2
    assert names["team"].n_data == names["again"].n_data > 3
    assert names["careful"].failures < 8


def test_python_of_the_page_on_functions_runs(names_after):
    names = names_after("docs/guide/functions.md")
    assert names["team"].n_data == 8
    assert names["policy"].n_data == 11
    assert names["many"].model.ensemble.weights[0].sum() == pytest.approx(1.0)
    assert len(names["many"].model.ensemble.weights[0]) == 12


def test_python_of_the_page_on_evaluations_runs(names_after):
    names = names_after("docs/reference/evaluations.md")
    assert names["ledger"].team.n_data == 16
    again = names["Ledger"].open(names["folder"], names["make_team"])
    assert again.team.history.X.tolist() == names["ledger"].team.history.X.tolist()


def test_python_of_the_page_on_processes_runs(names_after):
    names = names_after("docs/guide/processes.md")
    assert names["radio"].traffic.messages > 0
    assert names["transport"].traffic.messages > 0


def test_python_of_the_page_on_policies_tunes_an_environment(names_after):
    names = names_after("docs/guide/rl.md")
    assert names["tuner"].recommend().mean > -0.01  # the most is 0
    assert names["returns"] > 0.0


def test_python_of_the_page_on_sensors_runs(names_after, capsys):
    names = names_after("docs/guide/sensors.md")
    assert names["env"].unwrapped.field.change is not None
    assert capsys.readouterr().out.endswith("[2. 2. 1. 1.] ['b']\n")
