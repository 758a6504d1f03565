"""docs/studies/failures.md says what the lines beside it say."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DOCS, STUDIES = ROOT / "docs", ROOT / "studies"


@pytest.fixture(scope="module")
def failures():
    sys.path.insert(0, str(STUDIES))
    try:
        yield importlib.import_module("failures")
    finally:
        sys.path.remove(str(STUDIES))
        for name in ("failures", "study"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def lines():
    return [json.loads(line) for line in (STUDIES / "failures.jsonl").read_text().splitlines()]


def test_every_run_of_the_table_is_there_once_and_what_the_page_claims_holds(failures, lines):
    runs = {(x["method"], x["told"], x["shape"], x["seed"], x["as_number"]) for x in lines}
    assert len(runs) == len(lines) == 2 * 2 * 3 * 10 * len(failures.METHODS)
    assert max(x["failed"] for x in lines if not x["as_number"]) <= failures.QUERIES / 3
    for method in failures.METHODS:
        for told in failures.OUTCOMES:
            knowing, guessing = (
                np.median([x["regret"] for x in lines if (x["method"], x["told"], x["as_number"]) == (method, told, n)])
                for n in (False, True)
            )
            assert knowing < guessing


@pytest.mark.parametrize("shape", ["wall", "corner", "disc"])
def test_a_fifth_of_the_box_fails_right_beside_the_best_point(failures, shape):
    points = np.random.default_rng(1).random((20_000, 4))
    for seed in range(1):
        outcomes, fails = failures.problem(shape, seed)
        assert np.mean([fails(x) for x in points]) == pytest.approx(failures.SHARE, abs=0.02)
        values = np.array([sum(outcomes(x).values()) for x in points])
        best = points[values.argmax()]
        assert values.max() > -0.1
        near = best + 0.15 * np.random.default_rng(2).uniform(-1.0, 1.0, (2000, 4))
        assert any(fails(x) for x in near)
        assert not all(fails(x) for x in near)


def test_single_runs_are_counted_as_the_page_has_it(lines):
    pairs = {}
    for x in lines:
        pairs.setdefault((x["method"], x["told"], x["shape"], x["seed"]), {})[x["as_number"]] = x["regret"]
    ratios = np.array([pair[False] / pair[True] for pair in pairs.values()])
    text = " ".join((DOCS / "studies" / "failures.md").read_text().split())
    nearer, farther = int((ratios < 1.0).sum()), int((ratios > 1.5).sum())
    assert f"In {nearer} of {len(ratios)} pairs the reported failures end with less regret. In {farther} pairs" in text
