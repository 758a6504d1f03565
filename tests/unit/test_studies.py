"""Studies run missing cells only, and pages agree with the recorded lines."""

import doctest
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
STUDIES, DOCS = ROOT / "studies", ROOT / "docs"
RECORDED = [  # scripts, and for some the name of the study
    *("agreement", "dcop", "failures", "fields", "hpo", "links", "links_runs", "mixed", "routes", "structure", "tiles"),
    *("start", "workers", "wlan told", "wlan walking"),
]
EI = "expected-improvement"
SHARED_BY_LINES = {  # keys that determine the problem of a line, and values that lines of one problem share
    "dcop": (("problem", "seed"), lambda line: line["value"] if line["status"] == "exact" else None),
    "start": (("utility", "airtime"), lambda line: (line["largest"], line["best"], line["asked"][0])),
    "structure": (("problem", "seed"), lambda line: (line["pairs"][1], *line["regret"][:10])),
    "wlan_mobility": (("seed", "step_m"), lambda line: line["shares"][:10]),
    "wlan_study": (("seed",), lambda line: (line["random"], line["best"], *line["found"][:10])),
}
CELLS = [  # quick cells whose results do not depend on rounding
    ("dcop", {"problem": "loops", "method": "max-sum", "seed": 2}),
    ("links", {"world": "loopy", "case": "lockstep, no faults", "seed": 0}),
    ("links", {"world": "robots", "case": "30 %, an agent fails", "seed": 0}),
    ("routes", {"task": "map", "method": "routes, auction", "field": "oxford-ph", "seed": 100, "spread": False}),
]


def page(name):
    """A page on a study, with one space between words."""
    return " ".join((DOCS / "studies" / f"{name}.md").read_text(encoding="utf-8").split())


@pytest.fixture
def counted(script, tmp_path):
    """A study of two methods, three seeds and a flag that counts what it runs."""
    ran = []

    def run(method, seed, loud):
        ran.append((method, seed, loud))
        return None if (method, seed) == ("b", 1) else {"found": 10 * seed}

    def table(lines):
        return [f"{line['method']} {line['seed']} {line['found']}" for line in lines]

    choices = {"method": ("a", "b"), "seed": range(3), "loud": (False,)}
    study = script("study").Study("About it.", str(tmp_path / "lines.jsonl"), run, choices, table)
    return study, ran, tmp_path / "lines.jsonl"


def test_a_study_runs_and_records_missing_cells_and_prints_its_table(counted, capsys):
    study, ran, path = counted
    cells = list(study.cells(study.parser().parse_args(["--seeds", "1-2"])))
    assert [cell[:2] for cell in cells] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]  # ordered by seed
    study.main(["--method", "a", "--seeds", "1-2"])
    assert ran == [("a", 1, False), ("a", 2, False)]
    assert capsys.readouterr().out == "a 1 10\na 2 20\n"
    study.main(["--seeds", "0-2"])
    assert ran[2:] == [("a", 0, False), ("b", 0, False), ("b", 1, False), ("b", 2, False)]
    third = {"method": "a", "seed": 0, "loud": False, "found": 0}
    assert json.loads(path.read_text().splitlines()[2]) == third
    study.main([])
    assert ran[6:] == [("b", 1, False)]  # cells without a result are run again
    study.main(["--method", "a", "--seeds", "0", "--loud"])
    assert ran[7:] == [("a", 0, True)]
    capsys.readouterr()
    study.main(["--table"])
    assert len(ran) == 8
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_cells_that_are_not_wanted_are_not_run(counted, script):
    study, ran, _ = counted
    own = (study.doc, study.file, study.run, study.choices, study.table)
    few = script("study").Study(*own, wanted=lambda method, seed, _: (method, seed) != ("a", 0))
    few.main(["--method", "a"])
    assert [cell[:2] for cell in ran] == [("a", 1), ("a", 2)]


def test_the_page_gets_the_table_between_its_markers(counted, script, tmp_path, monkeypatch):
    study, ran, path = counted
    path.write_text('{"method": "a", "seed": 0, "loud": false, "found": 3}\n')
    (tmp_path / "page.md").write_text("before\n<!-- rows -->\nold\n<!-- /rows -->\nafter\n")
    monkeypatch.setattr(script("study"), "DOCS", tmp_path)
    here = script("study").Study("", study.file, study.run, study.choices, study.table, page=("page.md", "rows"))
    here.main(["--page"])
    assert (tmp_path / "page.md").read_text() == "before\n<!-- rows -->\n\na 0 3\n\n<!-- /rows -->\nafter\n"
    assert not ran
    assert doctest.testmod(script("study")).failed == 0
    with pytest.raises(ValueError, match="wanted one pair of markers"):
        script("study").between("no marker", "rows", "")


@pytest.mark.parametrize("recorded", RECORDED)
def test_tables_of_pages_agree_with_the_recorded_lines(script, recorded):
    name, _, part = recorded.partition(" ")
    module = script(name)
    study = module.STUDIES[part] if part else module.STUDY
    lines = script("study").read(STUDIES / study.file)
    if name == "fields" and not lines:
        pytest.skip("no lines of this study are recorded so far")
    rows = list(study.table(lines))
    if study.page is None:  # a page that shows some of the rows
        text = (DOCS / "studies" / "routes.md").read_text("utf-8").partition("## By task")[0]
        shown = [row for row in text.splitlines() if row[:1] == "|"]
        assert len(shown) > 18
        assert not set(shown) - set("\n".join(rows).splitlines())
        return
    page, marker = study.page
    text = (DOCS / page).read_text(encoding="utf-8")
    there = text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]
    assert "\n".join(rows) in there, "run it with --page"
    keys = [tuple(line[key] for key in study.choices) for line in lines]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", SHARED_BY_LINES)
def test_lines_of_one_seed_have_the_same_problem_and_beginning(script, name):
    (keys, shared), found = SHARED_BY_LINES[name], defaultdict(list)
    for line in script("study").read(STUDIES / f"{name}.jsonl"):
        if (of := shared(line)) is not None:
            found[tuple(line[key] for key in keys)].append(of)
    assert max(map(len, found.values())) > 1
    for own in found.values():
        np.testing.assert_allclose(own, np.broadcast_to(own[0], np.shape(own)), rtol=1e-6)


@pytest.mark.parametrize(("name", "cell"), CELLS)
def test_a_quick_cell_gives_the_recorded_result(script, name, cell):
    study = script(name).STUDY
    line, *_ = script("study").select(script("study").read(STUDIES / study.file), **cell)
    found = study.run(*(line[key] for key in study.choices))
    for key in found.keys() - {"seconds", "status"}:
        np.testing.assert_allclose(found[key], line[key], rtol=1e-6, err_msg=f"{key} of {study.file}")


def test_recorded_networks_agree_with_those_of_today(script):
    wlan, lines = script("wlan"), script("study").read(STUDIES / "wlan_study.jsonl")
    for line in script("study").select(lines, method="sobol")[:4]:
        env = wlan.wlan_power_v0.parallel_env(**wlan.FULL, topology_seed=line["seed"])
        assert wlan.median_of(env, line["seed"], 2000) == pytest.approx(line["random"], rel=1e-9)


@pytest.mark.parametrize("line", ['{"method": "a", "se', "[1]", "3", "\x00"])
def test_a_line_that_is_not_a_json_object_is_named(counted, line):
    study, ran, path = counted
    path.write_text(f'{{"method": "a", "seed": 1, "loud": false, "found": 1}}\n\n{line}\n')
    with pytest.raises(SystemExit, match=r"lines.jsonl, line 3: got .*; wanted an object of JSON. Remove the line"):
        study.main([])
    assert not ran


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.py")), ids=lambda path: path.stem)
def test_scripts_can_be_imported_and_are_named_on_a_page(script, path):
    script(path.stem)
    assert path.stem in ("study", "benchmark_problems", "benchmark_tables") or f"studies/{path.name}" in page("index")


def test_the_tables_of_ensembles_agree_with_their_lines(script):
    benchmark, tables = script("benchmark"), script("benchmark_tables")
    problems = {name: benchmark.PROBLEMS[name] for name in ("hartmann", "zakharov")}
    text = tables.tables(STUDIES / "ensembles", problems, list(benchmark.PEERS), range(10))
    shown = (DOCS / "studies" / "ensembles.md").read_text(encoding="utf-8")
    assert f"<!-- tables -->\n{text}\n<!-- /tables -->" in shown
    for name, own in problems.items():
        runs = tables.found(STUDIES / "ensembles", name, own, [])
        ends = {method: tables.at(of, own.looks[-1], range(10)) for method, of in runs.items()}
        assert tables.best(ends) == "auto"
        assert not any(tables.is_better(ends[f"egp-{k}"], ends[one]) for k, one in {"ts": "thompson", "ei": EI}.items())
    assert "`auto` is significantly better than all others (bold)." in page("ensembles")


def test_several_processes_record_the_same_lines(tmp_path):
    (tmp_path / "squares.py").write_text(
        "from study import Study, markdown, select\n"
        "def run(name, seed):\n"
        "    return {'square': seed * seed}\n"
        "def table(lines):\n"
        "    found = sum(line['square'] for line in select(lines, name='b', seed=2))\n"
        "    return markdown(['name', 'sum'], [['b', found]], right=True)\n"
        "if __name__ == '__main__':\n"
        "    Study('', 'squares.jsonl', run, {'name': ('a', 'b'), 'seed': range(3)}, table).main()\n"
    )
    command = [sys.executable, "squares.py", "--jobs", "2", "--out", "squares.jsonl"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(STUDIES), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "| name | sum |\n|---|--:|\n| b | 4 |\n"
    lines = [json.loads(line) for line in (tmp_path / "squares.jsonl").read_text().splitlines()]
    assert sorted((line["name"], line["seed"], line["square"]) for line in lines) == [
        (name, seed, seed * seed) for name in "ab" for seed in range(3)
    ]
    assert set(ran.stderr.splitlines()) == {f"{name} {seed}" for name in "ab" for seed in range(3)}


@pytest.fixture(scope="module")
def lines_of_failures():
    return [json.loads(line) for line in (STUDIES / "failures.jsonl").read_text().splitlines()]


def test_every_run_of_failures_is_recorded_once_and_claims_of_the_page_hold(script, lines_of_failures):
    failures, lines = script("failures"), lines_of_failures
    runs = {(x["method"], x["told"], x["shape"], x["seed"], x["as_number"]) for x in lines}
    assert len(runs) == len(lines) == 2 * 2 * 3 * 10 * len(failures.METHODS)
    most = max(x["failed"] for x in lines if not x["as_number"])
    assert f"at most {most} of the {failures.QUERIES} queries failed" in page("failures")
    ratios = list[float]()
    for method in failures.METHODS:
        for told in failures.OUTCOMES:
            knowing, guessing = (
                np.median([x["regret"] for x in lines if (x["method"], x["told"], x["as_number"]) == (method, told, n)])
                for n in (False, True)
            )
            ratios.append(guessing / knowing)
    assert f"by a factor of {min(ratios):.0f} to about {round(max(ratios), -2):,.0f}." in page("failures")


@pytest.mark.parametrize("shape", ["wall", "corner", "disc"])
def test_a_fifth_of_the_box_fails_next_to_the_best_point(script, shape):
    points = np.random.default_rng(1).random((8_000, 4))
    outcomes, fails = script("failures").problem(shape, 0)
    assert np.mean([fails(x) for x in points]) == pytest.approx(script("failures").SHARE, abs=0.02)
    values = np.array([sum(outcomes(x).values()) for x in points])
    assert values.max() > -0.1
    near = points[values.argmax()] + 0.15 * np.random.default_rng(2).uniform(-1.0, 1.0, (2000, 4))
    assert {bool(fails(x)) for x in near} == {False, True}


def test_counts_of_single_runs_with_failures_agree_with_the_page(lines_of_failures):
    pairs = {}
    for x in lines_of_failures:
        pairs.setdefault((x["method"], x["told"], x["shape"], x["seed"]), {})[x["as_number"]] = x["regret"]
    ratios = np.array([pair[False] / pair[True] for pair in pairs.values()])
    nearer, farther = int((ratios < 1.0).sum()), int((ratios > 1.5).sum())
    told = f"In {nearer} of {len(ratios)} pairs the reported failures end with less regret. In {farther} pairs"
    assert told in page("failures")


def test_shares_of_settings_below_the_present_one_agree_with_the_page(script):
    lines, own = script("study").read(STUDIES / "start.jsonl"), defaultdict(list)
    for line in lines:
        below = sum(asked < 0.95 * line["largest"] for asked in line["asked"])
        own[line["way"]].append((below, max(line["asked"]) > line["asked"][0], (line["airtime"], line["outcomes"])))
    worse = [(way, *of) for way, runs in own.items() for _, is_better, of in runs if not is_better]
    assert worse == [("start", "full", "per-factor")] * 7
    assert "except `start` with full airtime and outcomes per factor (7 of 10 seeds)" in page("wireless")
    assert f"In none of {len(own['safe'])} runs of `safe` are more than 3 of 20 rounds below" in page("wireless")
    assert max(below for below, *_ in own["safe"]) == 3
    cells = [row.split("|")[-4:-1] for row in script("start").table(lines)][2:]
    least, most, of_safe = (f([float(row[k].split()[2]) for row in cells]) for f, k in ((min, 0), (max, 0), (max, 2)))
    told = f"`start` has {least:.0f} to {most:.0f} % of its rounds below 95 %, and `safe` at most {of_safe:g} %."
    assert told in page("wireless")


def test_findings_on_agreements_agree_with_the_lines(script):
    lines, text = script("study").read(STUDIES / "agreement.jsonl"), page("agreement")
    missed = {name: sum(line[name]["share"] < 0.98 for line in lines) for name in script("agreement").METHODS}
    assert (len(lines), missed["ADMM"]) == (72, 0)
    assert "ADMM reaches a share of at least 0.98 on all 72 problems." in text
    assert f"Without recombination, it misses 0.98 on {missed['ADMM without recombination']} problems." in text
    assert missed["centralised, 5 searches"] == pytest.approx(len(lines) / 3, abs=2)
    links, (plain, *lossy) = script("links"), ("no faults", "30 %", "30 %, delay up to 5", "50 %, delay up to 5")
    every = script("study").read(STUDIES / "links.jsonl")
    for world in links.WORLDS:
        mean = {
            case: np.mean([line["share"] for line in script("study").select(every, world=world, case=case)])
            for case in (plain, *lossy)
        }
        assert min(mean[case] - mean[plain] for case in lossy) > -0.04
    assert "with up to half of the messages lost, shares by a deadline are within 0.04" in page("links").lower()


def test_numbers_of_seeds_on_which_scopes_win_agree_with_the_page(script):
    structure, lines = script("structure"), script("study").read(STUDIES / "structure.jsonl")
    number = dict(enumerate(("none", "one", "two", "three", "four", "five", "six")))

    def wins(problem, method):
        ends = [
            [x["regret"][-1] for x in sorted(script("study").select(lines, problem=problem, method=m), key=seed_of)]
            for m in (method, structure.WHOLE)
        ]
        return number[sum(a < b for a, b in zip(*ends, strict=True))]

    def seed_of(line):
        return line["seed"]

    methods, words = (structure.KNOWN, "sampled", "screened"), page("structure")
    won = {problem: [wins(problem, method) for method in methods] for problem in structure.PROBLEMS}
    told = {problem: f"win on {', '.join(seeds[:2])} and {seeds[2]}." for problem, seeds in won.items()}
    assert f"On `powell-moved`, known, sampled and screened scopes {told['powell-moved']}" in words
    assert f"On `trimodal`, they {told['trimodal']}" in words
    assert f"On `additive-gp`, a chain, they {told['additive-gp']}" in words
    assert not any("six" in seeds for seeds in won.values())


def test_ranks_on_the_functions_of_bbob_agree_with_the_lines(script):
    bbob = script("bbob")
    rows = [row.strip("| ").split(" | ") for row in bbob.table(script("study").read(STUDIES / bbob.STUDY.file)) if row]
    heads = [row for row in rows if "instances" in row[0]]
    ranks = [row for row in rows if row[0] == "mean rank"]
    shown = page("papers").partition("### BBOB")[2]
    assert len(heads) == len(ranks) == 4
    for (case, *methods), (_, *found) in zip(heads, ranks, strict=True):
        n, _, count = case.replace("11 i", "eleven i").replace("3 i", "three i").split()[:3]
        of = dict(zip(methods, found, strict=True))
        order = ("auto", "isotropic-gp", "optuna-tpe", "optuna-gp", "cma-es", "sobol", "random")
        assert f"| {n}, {count} | {' | '.join(of.get(method, '–') for method in order)} |" in shown
