"""Runs of teams that jointly set the variables of one function."""

import io

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import swarmbo as sb
from swarmbo.belief.model import JointSituation, Learned
from swarmbo.compare import compare
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.metrics import mean_regret, mean_regrets, scores_of
from swarmbo.plotting import World, run_figures
from swarmbo.problem.data import Dataset
from swarmbo.runs import load, resume, run
from swarmbo.runs.figures import draw_run, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import load_run
from swarmbo.runs.recording import evaluation_of
from swarmbo.runs.report import report_rows, report_table
from swarmbo.runs.runner import assemble, check
from swarmbo.runs.scenario import make_environment, scenario_of
from swarmbo.runs.states import ScopeInUse, read_checkpoint
from swarmbo.spaces import Domain
from swarmbo_envs.functions import get
from swarmbo_envs.functions.function_world import FunctionWorld

POWELL = {"id": "swarmbo/function-v0", "function": "powell", "parameters": {"n_variables": 8}, "moved": True}


def scenario(environment=None, **settings):
    world = {**POWELL, **(environment or {})}
    return scenario_of({"name": "function", "environment": world, "rounds": 13, "seed": 5, **settings})


@pytest.fixture(scope="module", params=[pytest.param("total", marks=pytest.mark.thorough), "per-factor", "hidden"])
def done(request, tmp_path_factory):
    """A complete run: its scenario, folder, records and summary."""
    outcomes = {"structure": "hidden"} if request.param == "hidden" else {"outcomes": request.param}
    wanted = scenario({**outcomes, "noise_std": 0.5})
    folder = tmp_path_factory.mktemp(request.param) / "run"
    summary = run(wanted, folder)
    return wanted, folder, RunFolder.open(folder).records(), summary


def test_default_kinds_fit_the_environment():
    wanted = {"belief": "additive", "acquisition": "auto", "coordination": "admm"}
    assert {table: msgspec.to_builtins(getattr(scenario(), table))["kind"] for table in wanted} == wanted


def test_an_override_with_the_default_kind_keeps_the_table(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[environment]\nid = "swarmbo/function-v0"\n[acquisition]\nweight = 0.5\n', encoding="utf-8")
    assert load(file, ["acquisition.kind=auto"]).acquisition.weight == 0.5
    assert load(file, ["acquisition.kind=thompson"]).acquisition == sb.Thompson()


@pytest.mark.parametrize(
    ("table", "kind"), [("belief", "exact"), ("acquisition", "db-gp-ucb"), ("coordination", "max-sum")]
)
def test_kinds_for_fields_are_refused_with_the_fitting_kinds(table, kind):
    with pytest.raises(ConfigError, match=rf"^\$\.{table}\.kind: .*is not for agents that set the variables"):
        check(scenario(**{table: {"kind": kind}}))


def test_a_record_has_the_joint_point_its_outcomes_each_agents_part_and_predictions_after_the_design(done):
    wanted, _, records, _ = done
    assert records[0].samples == []
    assert records[0].joint is None
    for record in records[1:]:
        own = [value for sample in record.samples for value in sample.location]
        assert sorted(own) == sorted(record.joint.location)
        assert all(sample.target == sample.location for sample in record.samples)
        assert [evaluation.measurement for evaluation in record.evaluations] == [record.joint.measurement]
        if wanted.environment.get("outcomes") == "per-factor":
            assert len(record.joint.factors) == 2
            assert sum(record.joint.factors.values()) == pytest.approx(record.joint.measurement, rel=1e-12)
        else:
            assert record.joint.factors is None
            assert {sample.measurement for sample in record.samples} == {record.joint.measurement}
    assert [record.joint.mean is None for record in records[1:]] == [True] * 10 + [False] * 3
    assert all(record.joint.std > 0.0 for record in records[11:])


def test_scores_are_computed_from_the_true_function_at_joint_points(done):
    _, _, records, summary = done
    function = get("powell", moved=True, n_variables=8)
    truth = np.array([function.value(np.array([record.joint.location]))[0] for record in records[1:]])
    regret = function.maximum - truth
    assert records[0].score is None
    np.testing.assert_allclose([r.score.batch_regret for r in records[1:]], regret, rtol=1e-12)
    np.testing.assert_allclose(scores_of(records, "simple_regret")[1:], np.minimum.accumulate(regret), rtol=1e-12)
    means = np.cumsum(regret) / np.arange(1, len(records))
    np.testing.assert_allclose(mean_regrets(records)[1:], means, rtol=1e-12)
    assert mean_regret(records) == mean_regrets(records)[-1]
    recommended = function.value(np.array([summary.recommendation.location]))[0]
    assert summary.score.recommendation_regret == pytest.approx(function.maximum - recommended, rel=1e-12)
    assert summary.score.map_rmse is None
    assert (summary.measurements, summary.failures, summary.is_joint) == (13, 0, True)
    best = max((record.joint for record in records[1:]), key=lambda joint: joint.measurement)
    assert (summary.best.location, summary.best.mean) == (best.location, best.measurement)
    assert summary.best.std > 0.0


def test_the_recommendation_can_be_recomputed_from_the_logged_history_and_hyperparameters(done):
    wanted, _, records, _ = done
    team = sb.Team.for_env(make_environment(wanted), seed=wanted.seed)
    for record in (records[7], records[-1]):
        past = [r.joint for r in records[1 : record.round + 1]]
        X, factors = np.array([joint.location for joint in past]), np.full((len(past), len(team.graph.factors)), np.nan)
        if past[0].factors is not None:
            factors = np.array([list(joint.factors.values()) for joint in past])
        history = Dataset(X, np.array([joint.measurement for joint in past]), factors)
        situation = JointSituation(
            *(team.graph, team.domain, history, np.zeros((0, team.domain.n_dims)), team.outcomes, None),
            *(record.round + 1, wanted.rounds, wanted.seed),
            structure=team.problem.structure,
        )
        learned = msgspec.convert(record.hyperparameters, Learned)
        model = wanted.acquisition.learn(situation, wanted.belief, learned)
        mean, std = model.posterior(np.array([record.recommendation.location]))
        assert (record.recommendation.mean, record.recommendation.std) == pytest.approx((mean[0], std[0]), rel=1e-9)


def test_outcomes_are_shared_by_all_agents_before_each_decision(done):
    _, _, records, summary = done
    n_agents = len(records[1].samples)
    assert [record.sharing.messages for record in records[:2]] == [0, 0]
    assert {record.sharing.messages for record in records[2:]} == {2 * (n_agents - 1)}
    assert summary.sharing.messages == sum(record.sharing.messages for record in records)


def test_a_run_that_stops_resumes_to_the_same_bytes(done, tmp_path, interrupted):
    wanted, folder, _, _ = done
    whole = (folder / "rounds.jsonl").read_bytes()

    interrupted(wanted, tmp_path / "run", 12)
    resume(tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == whole


def test_the_figures_of_a_joint_run_are_drawn(done, request):
    wanted, folder, _, _ = done
    if wanted.environment.get("outcomes") != "per-factor":  # that case draws all figures
        request.getfixturevalue("blank")
    names = {path.name for path in draw_run(folder)}
    # traffic is drawn in all cases, because agents send outcomes and choices
    expected = {"regret.png", "variables.png", "traffic.png"}
    assert names == (expected if wanted.environment.get("structure") == "hidden" else {*expected, "factor_graph.png"})
    world = world_of(RunFolder.open(folder))
    assert world.variables == tuple(f"x{i}" for i in range(8))
    assert not world.has_map


def test_the_closing_table_counts_evaluations_and_shows_all_eight_values_of_a_point(done):
    _, _, _, summary = done
    rows = dict(report_rows(summary))
    assert rows["evaluations"] == "13 in 13 rounds"
    assert "distance travelled" not in rows
    assert "map RMSE" not in rows
    assert rows["recommendation"].partition("(")[2].count(",") == 7
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report_table(summary))
    assert "simple regret" in console.export_text()


def test_failed_evaluations_are_logged_without_a_regret(tmp_path):
    run(scenario({"failure_rate": 0.5}, rounds=16, acquisition={"kind": "thompson"}), tmp_path / "run")
    records = RunFolder.open(tmp_path / "run").records()[1:]
    failed = [record for record in records if record.joint.measurement is None]
    assert 3 < len(failed) < 13
    assert all(record.score is None or record.score.batch_regret is None for record in failed)
    assert all(record.score.batch_regret is not None for record in records if record.joint.measurement is not None)


@pytest.mark.parametrize("no_go", [None, [{"kind": "ball", "centre": [0.0], "radius": 2.0, "variables": ["x7"]}]])
def test_variables_in_no_factor_stay_in_the_middle_and_do_not_affect_constraints(tmp_path, monkeypatch, no_go):
    whole = FunctionWorld.factor_graph

    def without_the_first(self):
        graph = whole(self)
        scopes = {factor: scope for factor, scope in graph["scopes"].items() if "x0" not in scope}
        return {**graph, "scopes": scopes, "owners": {factor: graph["owners"][factor] for factor in scopes}}

    monkeypatch.setattr(FunctionWorld, "factor_graph", without_the_first)
    summary = run(scenario({"moved": False}, rounds=3, no_go=no_go), tmp_path / "run")
    done = load_run(tmp_path / "run")
    inside = {variable for scope in done.world.scopes.values() for variable in scope}
    left = [i for i, variable in enumerate(done.world.variables) if variable not in inside]
    assert left
    middle = (done.world.domain.low + done.world.domain.high) / 2.0
    assert all(np.array_equal(record.joint.location[i], middle[i]) for record in done.records[1:] for i in left)
    assert [done.world.argmax[i] for i in left] == [0.0] * len(left)
    assert {abs(done.world.argmax[7]) > 1.99, summary.maximum < 0.0} == {no_go is not None}
    assert {path.name for path in draw_run(tmp_path / "run")} >= {"regret.png", "variables.png"}


def test_methods_on_one_function_share_the_design_and_are_compared(tmp_path):
    for kind in ("sobol", "random"):
        for seed in (0, 1):
            run(scenario(coordination={"kind": kind}, seed=seed, rounds=6, initial=4), tmp_path / f"{kind}-{seed}")
    records = [RunFolder.open(tmp_path / f"{kind}-1").records()[1:] for kind in ("sobol", "random")]
    one, other = ([record.joint.location for record in method] for method in records)
    assert one[:4] == other[:4]
    assert one[4:] != other[4:]
    comparison = compare([tmp_path], "sobol")
    assert {row.metric for row in comparison.rows} == {"simple_regret", "mean_regret"}
    assert [run.measurements[-1] for runs in comparison.runs.values() for run in runs] == [6] * 4


def test_a_sum_is_logged_only_if_all_its_factors_were_measured():
    env = make_environment(scenario({"outcomes": "per-factor"}))
    team = sb.Team.for_env(env)
    observations, infos = env.reset(seed=0)
    *step, infos = env.step(team.act(observations, infos))
    team.observe(*step, infos)
    whole = evaluation_of(team, infos, team.last_query)
    infos["agent_1"]["factors"] = {"f1": np.nan}
    part = evaluation_of(team, infos, team.last_query)
    assert whole.measurement == pytest.approx(sum(whole.factors.values()), rel=1e-12)
    assert part.measurement is None
    assert part.factors == {"f0": whole.factors["f0"], "f1": None}
    del infos["agent_1"]["factors"]
    assert evaluation_of(team, infos, team.last_query) == part


SAMPLED = {"kind": "additive", "structure": {"kind": "sampled", "burn_in": 4}, "max_iterations": 10}
LEARNING = {
    "known": {"belief": SAMPLED},
    "hidden": {"environment": {"structure": "hidden"}, "belief": SAMPLED},
    "add-gp-ucb": {"acquisition": {"kind": "add-gp-ucb", "groups": "learned", "group_size": 3}},
}


@pytest.mark.parametrize("case", ["known", pytest.param("hidden", marks=pytest.mark.thorough), "add-gp-ucb"])
def test_learned_scopes_are_in_the_closing_table_and_in_the_figure(case, tmp_path, monkeypatch, blank):
    drawn = dict[str, FactorGraph]()
    monkeypatch.setattr(run_figures, "factor_graph_figure", lambda graphs: drawn.update(graphs) or Figure())
    wanted, folder = scenario(**{"rounds": 7, "initial": 5, **LEARNING[case]}), tmp_path / "run"
    summary = run(wanted, folder)
    env, team = assemble(wanted)
    env.reset(seed=wanted.seed)
    team.load_state_dict(read_checkpoint(RunFolder.open(folder)).team)
    belief = team.model.belief
    assert len(belief.graph.scopes) > 1
    assert [tuple(scope.variables) for scope in summary.scopes] == list(belief.graph.scopes)
    outputscales = np.array(belief.hyperparameters.outputscales)
    np.testing.assert_allclose([scope.share for scope in summary.scopes], outputscales / outputscales.sum())
    largest = max(summary.scopes, key=lambda scope: scope.share)
    text = dict(report_rows(summary))["scopes in use at the end"]
    assert text.startswith(f"{' '.join(largest.variables)} ({largest.share:.0%})")
    assert load_run(folder).summary == summary
    assert "factor_graph.png" in {path.name for path in draw_run(folder)}
    stated = [] if case == "hidden" else [team.graph]
    assert list(drawn) == ["Scopes as told"] * len(stated) + ["Scopes in use after round 7"]
    for graph, wanted_graph in zip(drawn.values(), [*stated, belief.graph], strict=True):
        assert graph.scopes == wanted_graph.scopes
        assert graph.factor_owners == wanted_graph.factor_owners
        assert graph.agents == wanted_graph.agents


def test_scopes_equal_to_the_known_ones_are_drawn_once(tmp_path, monkeypatch, done, blank):
    drawn = dict[str, FactorGraph]()
    monkeypatch.setattr(run_figures, "factor_graph_figure", lambda graphs: drawn.update(graphs) or Figure())
    known = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
    used = FactorGraph.from_scopes({"group_0": ["z"], "group_1": ["y", "x"]})
    _, _, records, summary = done
    world = World(Domain(np.zeros(3), np.ones(3)), variables=("x", "y", "z"), graph=known, graph_in_use=used)
    joint = msgspec.structs.replace(records[-1].joint, location=[0.5, 0.5, 0.5])
    shown = msgspec.structs.replace(records[-1], joint=joint, best=None, recommendation=None)
    run_figures.write_figures([shown], world, None, tmp_path)
    assert drawn == {"Scopes as told, and in use after round 13": known}
    assert summary.scopes == []
    assert "scopes in use at the end" not in dict(report_rows(summary))


def test_many_scopes_are_shortened_in_the_closing_table(done):
    scopes = [ScopeInUse([f"x{i}"], 0.05) for i in range(19)] + [ScopeInUse(["y", "z"], 0.05)]
    text = dict(report_rows(msgspec.structs.replace(done[3], scopes=scopes)))["scopes in use at the end"]
    assert text.startswith("x0 (5%), x1 (5%), ")
    assert text.endswith("x10 (5%), … 20 scopes")
