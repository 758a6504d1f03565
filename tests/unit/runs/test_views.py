"""Runs with a belief per agent: errors in the log, views rebuilt from the folder, figures."""

import shutil

import numpy as np
import pytest

from swarmbo.belief import Views
from swarmbo.errors import RunFolderError
from swarmbo.metrics import map_rmse
from swarmbo.plotting import agent_maps
from swarmbo.plotting.agent_maps import agent_maps_figure
from swarmbo.runs import load, resume, run
from swarmbo.runs.figures import draw_run, views_of, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import report_rows
from swarmbo.runs.runner import assemble

pytestmark = pytest.mark.usefixtures("blank")
LOSSY = ["belief.loss=0.5", "belief.steps=1", "belief.prior.restarts=0"]
SMALL = ["rounds=4", "environment.sensors=6", *LOSSY]


def scenario_of(method):
    return load("field", [*SMALL, f"belief.method={method}", "belief.n_features=20"])


def views_in(belief):
    """The view of each agent."""
    return Views({name: agent.belief.at(belief.now) for name, agent in belief.agents.items()}, belief.representative)


def live_views(scenario):
    """The views of a team after each round, without a runner, and the ground truth."""
    env, team = assemble(scenario)
    observations, infos = env.reset(seed=scenario.seed)
    truth = env.unwrapped.ground_truth()
    team.begin(infos)
    views = [views_in(team.belief)]
    for _ in range(scenario.rounds):
        team.observe(*env.step(team.act(observations, infos)))
        views.append(views_in(team.belief))
    return views, truth


def played(folder, method):
    """A short run with lost messages: its scenario, folder, views after each round, and ground truth."""
    scenario = scenario_of(method)
    run(scenario, folder)
    return scenario, folder, *live_views(scenario)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return played(tmp_path_factory.mktemp("views") / "run", "readings")


@pytest.fixture(
    scope="module", params=["readings", pytest.param("covariance-intersection", marks=pytest.mark.thorough)]
)
def any_done(request, done, tmp_path_factory):
    if request.param == "readings":
        return done
    return played(tmp_path_factory.mktemp("views") / "run", request.param)


def errors_of(views, truth):
    """The map error of each agent's view."""
    return {a: map_rmse(view.posterior(truth.points)[0], truth.values) for a, view in views.by_agent.items()}


def test_every_round_has_the_error_of_every_agents_view(any_done):
    _, path, views, truth = any_done
    records = RunFolder(path).records()
    assert len(records) == len(views) == 5
    for record, then in zip(records, views, strict=True):
        assert record.score.view_rmse == pytest.approx(errors_of(then, truth.at(record.round)), rel=1e-9)
        assert record.score.map_rmse == record.score.view_rmse[then.representative]
    assert len(set(records[-1].score.view_rmse.values())) > 1  # messages were lost


def test_the_views_of_all_agents_are_read_from_the_folder_bit_for_bit(any_done):
    _, path, views, truth = any_done
    kept = views_of(RunFolder(path))
    assert kept.representative == views[-1].representative
    assert list(kept.by_agent) == list(views[-1].by_agent)
    for agent, view in kept.by_agent.items():
        for got, wanted in zip(
            view.posterior(truth.points), views[-1].by_agent[agent].posterior(truth.points), strict=True
        ):
            np.testing.assert_array_equal(got, wanted)


def drawn(path, monkeypatch):
    """Draw the run; return the figure of the agents' maps."""
    made = []

    def catches(*arguments):
        made.append(agent_maps_figure(*arguments))
        return made[-1]

    monkeypatch.setattr("swarmbo.plotting.run_figures.agent_maps_figure", catches)
    assert {"agents.png", "error_traffic.png"} <= {file.name for file in draw_run(path)}
    return made[0]


def fused_in(figure):
    """Errors of the fused views in the panel below the maps."""
    (panel,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("Map error")]
    return next((line.get_ydata() for line in panel.lines if line.get_label() == "fused"), None)


def test_the_figure_shows_the_errors_of_the_live_views(done, monkeypatch):
    _, path, views, truth = done
    figure, wanted = drawn(path, monkeypatch), errors_of(views[-1], truth.at(4))
    np.testing.assert_allclose(fused_in(figure), list(wanted.values()))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    expected = {f"{agent}\nfused\nRMSE {error:.3g}" for agent, error in wanted.items()}
    assert len(expected & set(titles)) == min(len(wanted), agent_maps.MOST_AGENTS)


def test_the_closing_table_shows_the_range_over_agents(done):
    _, path, *_ = done
    rows = dict(report_rows(load_run(path).summary))
    errors = RunFolder(path).records()[-1].score.view_rmse.values()
    expected = f"{min(errors):.4g} to {max(errors):.4g}; with the most data"
    assert rows["map RMSE of 6 agents, last round"].startswith(expected)


def test_a_round_whose_checkpoint_is_written_is_not_repeated(done, tmp_path, monkeypatch, interrupted):
    """A repeated round could differ, for example in a fleet with a deadline, or with real measurements."""
    scenario, path, *_ = done
    whole = {name: (path / name).read_bytes() for name in ("rounds.jsonl", "rounds.csv", "checkpoint.json")}

    def fails(*arguments):
        raise KeyboardInterrupt

    interrupted(scenario, tmp_path / "run", 2)
    with monkeypatch.context() as patch:  # the line of round 3 is in its checkpoint only
        patch.setattr(RunFolder, "append", fails)
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "run")
    assert len(RunFolder(tmp_path / "run").records()) == 3
    assert views_of(RunFolder(tmp_path / "run")) is None
    seen = []
    resume(tmp_path / "run", on_round=lambda record, was_logged: seen.append((record.round, was_logged)))
    assert seen == [(3, False), (4, False)]
    assert [timing.round for timing in RunFolder(tmp_path / "run").timings()] == [
        0,
        1,
        2,
        4,
    ]  # the timing of round 3 is lost
    assert {name: (tmp_path / "run" / name).read_bytes() for name in whole} == whole


def test_a_round_whose_checkpoint_cannot_be_written_is_still_logged(done, tmp_path, monkeypatch, interrupted):
    scenario, path, *_ = done
    whole, out, written = (path / "rounds.jsonl").read_bytes(), tmp_path / "run", []
    interrupted(scenario, out, 2)

    def full(folder, checkpoint):
        written.append(len(folder.records()))
        raise RunFolderError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("swarmbo.runs.states.write_checkpoint", full)
        with pytest.raises(RunFolderError, match="no space"):
            resume(out)
    assert written == [3]
    assert len(RunFolder(out).records()) == 4
    resume(out)
    assert (out / "rounds.jsonl").read_bytes() == whole


def test_without_a_checkpoint_the_figure_says_that_views_are_missing(done, tmp_path, monkeypatch, interrupted):
    scenario, *_ = done
    interrupted(scenario, tmp_path / "run", 0)
    assert views_of(RunFolder(tmp_path / "run")) is None  # round 0 has none
    figure = drawn(tmp_path / "run", monkeypatch)
    logged = RunFolder(tmp_path / "run").records()[0].score.view_rmse
    np.testing.assert_array_equal(fused_in(figure), list(logged.values()))
    assert agent_maps.NO_VIEWS in figure.subfigs[0].texts[0].get_text().replace("\n", " ")


def test_with_a_damaged_checkpoint_or_one_beyond_the_log_figures_are_still_drawn(done, tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(done[1], folder.path)
    log = folder.path / "rounds.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    assert views_of(folder) is None
    log.write_bytes(b"".join(lines))
    assert views_of(folder) is not None
    (folder.path / "checkpoint.json").write_text("{")
    assert views_of(folder) is None
    drawn(folder.path, monkeypatch)


def test_without_states_of_the_environment_a_run_has_errors_but_no_views(bump_scenario, tmp_path, monkeypatch):
    scenario = bump_scenario(
        rounds=2, environment={"keeps_state": False}, belief={"kind": "fused", "prior": {"restarts": 0}}
    )
    run(scenario, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert views_of(folder) is None
    logged = [record.score.view_rmse for record in folder.records()]
    assert all(set(errors) == {"agent_0", "agent_1"} for errors in logged)
    figure = drawn(folder.path, monkeypatch)
    np.testing.assert_array_equal(fused_in(figure), list(logged[-1].values()))
    assert not any("fused" in ax.get_title(loc="left") for ax in figure.axes)


def test_a_shared_belief_has_no_views(bump_scenario, tmp_path):
    run(bump_scenario(rounds=1), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert views_of(folder) is None
    assert all(record.score.view_rmse is None for record in folder.records())
    assert "map RMSE" in dict(report_rows(load_run(folder.path).summary))
    assert world_of(folder).has_map
    assert not any(file.name in {"agents.png", "error_traffic.png"} for file in draw_run(folder.path))
