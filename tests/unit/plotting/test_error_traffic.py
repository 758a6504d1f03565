import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmbo.belief import ExactGP, Hyperparameters
from swarmbo.plotting.history import agents_of
from swarmbo.plotting.run_figures import ErrorTraces, error_traffic_figure, plot_errors
from swarmbo.records import Score, Traffic


def with_views(made, errors):
    """The records with the errors of views, and a known traffic."""
    return [
        msgspec.structs.replace(
            record,
            sharing=Traffic(1, 1000 * (n + 1), 1),
            score=msgspec.structs.replace(record.score, view_rmse=dict(enumerate(row)) if row else None),
        )
        for n, (record, row) in enumerate(zip(made.records, errors, strict=True))
    ]


def error_by(made, last, agents):
    record = made.records[last]
    own = [s for r in made.records[: last + 1] for s in r.samples if s.agent in agents and s.measurement is not None]
    h = msgspec.convert(record.hyperparameters, Hyperparameters)
    X, y = np.array([s.location for s in own]), np.array([s.measurement for s in own])
    belief = ExactGP.from_hyperparameters(made.settings, made.world.domain, h, X, y)
    return np.sqrt(np.mean((belief.posterior(made.world.points)[0] - made.world.values) ** 2))


def test_traces_hold_the_logged_errors_and_rebuild_the_others(run):
    made = run(rounds=2, failing=0.0)
    records = with_views(made, [[3.0, 5.0, 10.0], [1.0, 1.0, 4.0], None])
    traces = ErrorTraces.of(records, made.world, made.settings)
    agents = agents_of(records)
    np.testing.assert_array_equal(traces.rounds, [0, 1, 2])
    np.testing.assert_array_equal(traces.shared_kb, [1.0, 3.0, 6.0])
    np.testing.assert_allclose(traces.fused[:, :2], [[3.0, 1.0], [6.0, 2.0], [10.0, 4.0]])
    np.testing.assert_allclose(traces.fused[:, 2], records[2].score.map_rmse)  # of an older log
    for last in range(3):
        assert traces.pooled[last] == pytest.approx(error_by(made, last, set(agents)))
        assert traces.alone[last] == pytest.approx(np.mean([error_by(made, last, {agent}) for agent in agents]))


def test_errors_are_drawn_against_rounds_and_against_bytes_that_shared_measurements(run):
    made = run(rounds=2, failing=0.0)
    records = with_views(made, [[3.0, 5.0], [1.0, 2.0], [0.5, 0.7]])
    figure = error_traffic_figure(records, made.world, made.settings)
    for ax, at in zip(figure.axes, ([0, 1, 2], [1.0, 3.0, 6.0]), strict=True):
        lines = {line.get_label(): line for line in ax.lines}
        np.testing.assert_allclose(lines["fused, mean over agents"].get_ydata(), [4.0, 1.5, 0.6])
        for line in lines.values():
            np.testing.assert_array_equal(line.get_xdata(), at)
        (band,) = ax.collections
        heights = band.get_paths()[0].vertices
        for x, low, high in zip(at, [3.0, 1.0, 0.5], [5.0, 2.0, 0.7], strict=True):
            there = heights[heights[:, 0] == x, 1]
            assert (there.min(), there.max()) == (low, high)


def test_rounds_without_a_score_leave_a_gap(run):
    made = run(rounds=1, failing=0.0)
    records = [msgspec.structs.replace(made.records[0], score=None), made.records[1]]
    traces = ErrorTraces.of(records, made.world, made.settings)
    assert np.isnan(traces.fused[:, 0]).all()
    assert isinstance(records[1].score, Score)
    assert traces.fused[1, 1] == records[1].score.map_rmse


def test_of_a_long_run_beliefs_are_rebuilt_for_some_rounds_and_the_last(run, monkeypatch):
    made = run(rounds=6, failing=0.0)
    monkeypatch.setattr("swarmbo.plotting.run_figures.MOST_REBUILT", 3)
    traces = ErrorTraces.of(made.records, made.world, made.settings)
    for trace in (traces.pooled, traces.alone):
        assert np.isfinite(trace).tolist() == [True, False, False, True, False, False, True]
    assert np.isfinite(traces.fused).all()
    ax = Figure().subplots()
    plot_errors(ax, traces, traces.rounds)
    (pooled,) = [line for line in ax.lines if line.get_label() == "all data pooled"]
    np.testing.assert_array_equal(pooled.get_xdata(), [0, 3, 6])


def test_agents_that_all_know_the_same_have_no_band_and_are_said_to(run):
    made = run(rounds=1, failing=0.0)
    for errors, is_alike in (([[3.0, 3.0], [1.0, 1.0 + 1e-9]], True), ([[3.0, 3.0], [1.0, 1.1]], False)):
        ax = error_traffic_figure(with_views(made, errors), made.world, made.settings).axes[0]
        labels = {line.get_label() for line in ax.lines}
        assert ("fused, all agents alike" in labels) == is_alike == (not ax.collections)
