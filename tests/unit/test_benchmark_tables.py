"""The tables of docs/studies/sums.md say what the raw lines say, and nothing is bold by chance."""

import doctest
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from swarmbo_envs import wlan_power_v0

SEEDS = range(1000, 1010)
FOLDER = Path(__file__).parents[2] / "studies"
MEASURED = sorted({path.name.partition(".")[0].removesuffix("-per-factor") for path in FOLDER.glob("*s/*.jsonl")})


@pytest.fixture
def program(script):
    return script("benchmark")


@pytest.fixture
def tables(script):
    return script("benchmark_tables")


@pytest.fixture
def shown(tables, program, tmp_path):
    """Make the rows of a problem's table, by method, from the regrets of each method and seed."""
    problem = program.Problem("powell", (2, 3))

    def make(runs: dict[str, dict[int, list[float]]], peers=("peer", "other")) -> tuple[dict[str, list[str]], str]:
        for method, regrets in runs.items():
            lines = [json.dumps({"seed": seed, "seconds": 2.0, "regret": own}) for seed, own in regrets.items()]
            (tmp_path / f"p.{method}.jsonl").write_text("\n".join(lines) + "\n")
        text = tables.tables(tmp_path, {"p": problem}, peers, SEEDS)
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
        return {row[0]: row[1:] for row in cells[2:]}, text

    return make


def runs_of(last: list[float], first: float = 9.0) -> dict[int, list[float]]:
    return {seed: [10.0, first, value] for seed, value in zip(SEEDS, last, strict=True)}


def test_the_page_has_the_tables_of_the_raw_lines(tables, program):
    path, wanted = tables.page(program.LINES, program.PROBLEMS, list(program.PEERS), program.SEEDS)
    assert path.read_text(encoding="utf-8") == wanted, "run: python studies/benchmark.py --page"


def test_sentences_of_the_page_agree_with_the_raw_lines(tables, program):
    path, _ = tables.page(program.LINES, program.PROBLEMS, list(program.PEERS), program.SEEDS)
    text = " ".join(path.read_text(encoding="utf-8").split())
    of_networks = [tables.results(program.LINES, "wlan", method) for method in ("auto", "optuna-gp")]
    own, other = (np.mean([line["regret"][59] for line in of.values()]) for of in of_networks)
    assert {len(of) for of in of_networks} == {30}
    told = f"mean regret is {own:.0f} Mbit/s with the default and {other:.0f} with Optuna's GP."
    assert f"On 30 networks (`--seeds 1000-1029`), {told}" in text
    in_batches = [line for line in tables.read(tables.DOCS.parent / "studies" / "parallel.jsonl") if line["batch"] == 8]
    ends = [tables.select(in_batches, problem="wlan", method=method) for method in ("auto", "optuna-gp")]
    assert [len(lines) for lines in ends] == [30, 30]
    own, other = (np.mean([line["regret"][-1] for line in lines]) for lines in ends)
    assert f"In batches of eight, it is {own:.0f} and {other:.0f}." in text
    lines = tables.read(program.FOLDER / "parallel.jsonl")
    ends = [x["regret"][-1] for x in tables.select(lines, problem="hartmann", method="auto", batch=8)]
    assert sum(round(end, 3) == 0.119 for end in ends) == 4  # 3.322 - 3.203: the second-best maximum
    assert "Four of ten runs on `hartmann` with q = 8 end in the second-best maximum." in text
    hartmann = program.PROBLEMS["hartmann"]
    assert "| `hartmann` | one factor of 6 variables | total |" in text
    assert (hartmann.structure, len(hartmann.function_of(0).scopes)) == ("known", 1)


@pytest.mark.parametrize("name", MEASURED)
def test_recorded_runs_of_a_seed_begin_with_the_points_and_function_of_today(program, name):
    told = [name, f"{name}-per-factor"]
    begun = defaultdict[tuple[str, int], set[tuple[float, ...]]](set)
    for path in FOLDER.glob("*s/*.jsonl"):
        if path.name.partition(".")[0] in told:
            for line in map(json.loads, path.read_text().splitlines()):
                begun[path.parent.name, line["seed"]].add(tuple(line["regret"][:10]))
    assert {len(initial) for initial in begun.values()} == {1}, "run the older of these lines again"
    (folder, seed), problem = min(begun), next(program.PROBLEMS[own] for own in told if own in program.PROBLEMS)
    evaluations = program.Evaluations(problem, seed)
    evaluations.asked(program.team_of(problem, evaluations.function, "sobol", seed, 60), 10)
    np.testing.assert_allclose(evaluations.regret(6), *begun[folder, seed], rtol=1e-5)
    for line in map(json.loads, (FOLDER / "parallel.jsonl").read_text().splitlines()):
        if line["problem"] in told:  # its rounds follow these points
            assert line["regret"][0] == pytest.approx(*(initial[-1] for initial in begun[folder, line["seed"]]), 1e-3)


def test_examples_of_the_program_hold(tables):
    tried = doctest.testmod(tables)
    assert (tried.attempted > 0, tried.failed) == (True, 0)


@pytest.mark.parametrize(("wins", "is_bold"), [(10, True), (9, True), (8, False), (5, False)])
def test_bold_takes_a_sign_test_on_common_seeds_and_not_a_lower_median(shown, wins, is_bold):
    own = [1.0] * wins + [9.0] * (10 - wins)
    rows, _ = shown({"auto": runs_of(own), "peer": runs_of([2.0] * 10)})
    assert rows["auto"][1].startswith("**") is is_bold
    assert not rows["peer"][1].startswith("**")
    assert rows["peer"][2] == f"{wins} of 10"
    assert rows["auto"][0] == "9 [9, 9]"  # equal on all seeds: ties are left out
    two_sided = 2.0 * binom.sf(wins - 1, 10, 0.5)
    assert bool(two_sided < 0.05) is is_bold


def test_bold_is_better_than_every_other_row(shown):
    rows, _ = shown({"auto": runs_of([1.0] * 10), "peer": runs_of([2.0] * 10), "other": runs_of([0.5] * 5 + [3.0] * 5)})
    assert not any(cell.startswith("**") for row in rows.values() for cell in row)


def test_a_row_needs_all_seeds_and_missing_rows_are_named(shown):
    nine = dict(list(runs_of([0.1] * 10).items())[:9])
    strangers = {seed + 50: own for seed, own in runs_of([0.1] * 10).items()}
    rows, text = shown({"auto": runs_of([1.0] * 10), "peer": nine, "third": strangers})
    assert list(rows) == ["auto"]
    assert not rows["auto"][1].startswith("**")  # there is no other row
    assert "Not run on all seeds: peer (9 of 10 seeds), other, third." in text


def test_runs_that_ended_early_have_a_dash_and_are_compared_at_the_earlier_column(shown):
    short = {seed: regrets[:2] for seed, regrets in runs_of([1.0] * 10, first=5.0).items()}
    rows, _ = shown({"auto": runs_of([1.0] * 10), "peer": short, "other": runs_of([2.0] * 10)})
    assert list(rows) == ["auto", "other", "peer"]  # methods without a final regret come last
    assert rows["peer"][:3] == ["**5** [5, 5]", "–", "0 of 10 (N = 2)"]
    assert rows["auto"][1] == "**1** [1, 1]"


def test_the_last_of_two_lines_for_a_seed_counts(tables, tmp_path):
    lines = [{"seed": 1000, "regret": [2.0]}, {"seed": 1000, "regret": [2.0, 1.0]}]
    (tmp_path / "p.auto.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tables.results(tmp_path, "p", "auto")[1000]["regret"] == [2.0, 1.0]


def test_the_short_table_shows_the_best_other_method(tables, program, tmp_path):
    problems = {name: program.PROBLEMS[name] for name in ("chain", "wlan", "wlan-per-factor")}

    def put(name: str, value: float) -> None:
        lines = [json.dumps({"seed": seed, "seconds": 1.0, "regret": [value] * 60}) for seed in SEEDS]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    for name, value in {
        "wlan.auto": 5.0,
        "wlan-per-factor.auto": 1.0,
        "wlan.turbo-1": 3.0,
        "wlan.thompson": 2.0,
    }.items():
        put(name, value)
    short = tables.in_short(tmp_path, problems, ["turbo-1", "ax"], SEEDS).splitlines()[2:]
    assert short == [
        "| `wlan` | 60 | 5 [5, 5] | `thompson` **2** [2, 2] | 0 of 10 |",
        "| `wlan-per-factor` | 60 | **1** [1, 1] | `turbo-1 (total only)` 3 [3, 3] | 10 of 10 |",
    ]


def test_regrets_that_differ_only_by_rounding_are_equal(shown):
    rows, _ = shown({"auto": runs_of([-4e-13] * 10), "peer": runs_of([3e-13] * 10)})
    assert rows["auto"][1] == rows["peer"][1] == "0 [0, 0]"
    assert rows["peer"][2] == "0 of 10"


def test_runs_are_recorded_in_the_file_of_their_problem_and_method(program, tmp_path, monkeypatch, capsys):
    asked = ["--problem", "camel", "--method", "random", "--seeds", "3-4", "--out", str(tmp_path), "--table"]
    monkeypatch.setattr("sys.argv", ["benchmark.py", *asked])
    for _ in range(2):  # the second time nothing is missing
        program.main()
        assert "| random |" in capsys.readouterr().out
        (path,) = tmp_path.iterdir()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert (path.name, [(line["method"], line["seed"]) for line in lines]) == (
            "camel.random.jsonl",
            [("random", 3), ("random", 4)],
        )
    assert [len(line["regret"]) for line in lines] == [40, 40]
    assert lines[0]["regret"] == sorted(lines[0]["regret"], reverse=True)


SHADOWED = pytest.param("wlan-shadowed", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["ackley", "chain", "rosenbrock", "dixon-price", "wlan", SHADOWED])
def test_problems_are_sums_over_their_scopes_with_the_stated_maximum(program, name):
    problem = program.PROBLEMS[name]
    function, n = problem.function_of(3), problem.function_of(3).n_variables
    rng = np.random.default_rng(0)
    X = function.low + rng.random((40, n)) * (function.high - function.low)
    assert function.value(X).max() <= function.maximum
    for j, (factor, scope) in enumerate(function.scopes.items()):
        other = np.array(X)
        outside = [i for i in range(n) if i not in scope]
        other[:, outside] = rng.permuted(other[:, outside], axis=0)
        np.testing.assert_allclose(function.factor_values(other)[:, j], function.factor_values(X)[:, j], atol=1e-9)
        assert factor in function.terms
    if function.argmax is not None:
        assert function.value(function.argmax[None])[0] == pytest.approx(function.maximum, abs=1e-9)
        assert (function.argmax != problem.function_of(4).argmax).all()


def test_wlan_totals_are_those_of_the_world(script):
    network = wlan_power_v0.parallel_env(topology_seed=5, airtime="full").network
    function = script("benchmark_problems").wlan(5)
    X = np.random.default_rng(1).uniform(function.low, function.high, (20, 12))
    np.testing.assert_allclose(function.value(X), network.value(X), rtol=1e-12)


@pytest.mark.slow
def test_a_graph_of_processes_has_its_factors_and_a_maximum_that_random_points_do_not_reach(script) -> None:
    function = script("benchmark_problems").gp_graph(3, n_variables=6, n_factors=8)
    assert len({frozenset(scope) for scope in function.scopes.values()}) == 8
    assert function.value(np.random.default_rng(0).random((4000, 6))).max() <= function.maximum


def test_wrong_pairs_have_every_variable_once_and_no_pair_of_the_function(program) -> None:
    problem = program.PROBLEMS["rosenbrock-wrong"]
    function = problem.function_of(seed=0)
    told = problem.scopes_of(function)
    assert sorted(j for pair in told.values() for j in pair) == list(range(function.n_variables))
    assert not set(told.values()) & set(function.scopes.values())
