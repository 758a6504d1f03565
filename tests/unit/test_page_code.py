"""All Python blocks of the README and of each page run, in their order."""

import importlib.util
import logging
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
OWN_TESTS = {"docs/guide/extend.md", "docs/guide/robots.md"}  # blocks of the first are also files
EXTRAS = {"docs/guide/optuna-ax.md": "optuna", "docs/guide/dcop.md": "yaml"}
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
PAGES = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if (blocks := BLOCK.findall(path.read_text(encoding="utf-8")))
}


@pytest.fixture
def names_after(monkeypatch, tmp_path):
    """Run all blocks of a page in an empty folder; return their names."""

    def run(page: str) -> dict[str, object]:
        if page in EXTRAS and importlib.util.find_spec(EXTRAS[page]) is None:
            pytest.skip(f"{EXTRAS[page]} is not installed")
        monkeypatch.chdir(tmp_path)
        names: dict[str, object] = {"__name__": "page"}
        for block in PAGES[page]:
            exec(compile(block, page, "exec"), names)
        return names

    level = logging.getLogger("optuna").level  # a page sets it
    yield run
    logging.getLogger("optuna").setLevel(level)


# Expressions, in names of a page, that hold after it.
ENDS = {
    "README.md": ["team.belief.n_data == 3"],
    "docs/guide/ask-tell.md": ["len(team.pending) == 2", "team.n_data == again.n_data > 3", "careful.failures < 8"],
    "docs/guide/field-data.md": ["team.n_data == 40", "team.failures == 1", "variance.max() < 1.0"],
    "docs/guide/functions.md": [
        *("team.n_data == 8", "policy.n_data == 11", "len(many.model.ensemble.weights[0]) == 12"),
        "abs(many.model.ensemble.weights[0].sum() - 1.0) < 1e-6",
    ],
    "docs/guide/optuna-ax.md": ["study.best_value < 0.3", "known.best_value < 0.05"],
    "docs/guide/processes.md": ["radio.traffic.messages > 0", "transport.traffic.messages > 0"],
    "docs/guide/rl.md": ["tuner.recommend().mean > -0.01", "returns > 0.0"],  # the maximum is 0
    "docs/guide/runs-and-papers.md": ["warm.n_data == 12"],
    "docs/guide/sensors.md": ["env.unwrapped.field.change is not None"],
    "docs/reference/evaluations.md": [
        "ledger.team.n_data == 16",
        "(Ledger.open(folder, make_team).team.history.X == ledger.team.history.X).all()",
    ],
}
PRINTED = {
    "docs/guide/runs-and-papers.md": "<Run of camel, seed 0, best ",
    "docs/guide/sensors.md": "[2. 2. 1. 1.] ['b']\n",
}


@pytest.mark.parametrize("page", sorted(set(PAGES) - OWN_TESTS))
def test_python_of_a_page_runs_with_the_expected_results(names_after, capsys, page):
    names = names_after(page)
    for claim in ENDS.get(page, ()):
        assert eval(claim, names), claim
    assert PRINTED.get(page, "") in capsys.readouterr().out


def test_python_of_the_page_on_robots_ends_with_late_failed_and_lost_robots(names_after):
    """Outcomes count where robots were, not where they were sent; a lost robot is neither pending nor failed."""
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
