import msgspec
import numpy as np
import pytest

from swarmbo.belief import ExactGP, Hyperparameters
from swarmbo.plotting import write_figures
from swarmbo.plotting.agent_maps import agent_maps_figure, error_traffic_figure
from swarmbo.plotting.history import agents_of
from swarmbo.records import Score, Traffic


def test_each_agent_and_the_pool_have_a_map_with_the_error_of_their_own_data(run):
    made = run(rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings)
    titles = [title for ax in figure.axes if (title := ax.get_title(loc="left"))]
    agents = agents_of(made.records)
    assert len(titles) == min(8, len(agents)) + 1
    for title, who in ((titles[0], {agents[0]}), (titles[-1], set(agents))):
        own = [s for r in made.records for s in r.samples if s.agent in who and s.measurement is not None]
        learned = msgspec.convert(made.records[-1].hyperparameters, Hyperparameters)
        X, y = np.array([s.location for s in own]), np.array([s.measurement for s in own])
        belief = ExactGP.from_hyperparameters(made.settings, made.world.domain, learned, X, y)
        error = belief.posterior(made.world.points)[0] - made.world.values
        assert float(title.split("RMSE ")[1]) == pytest.approx(np.sqrt(np.mean(error**2)), rel=6e-3)


def test_a_fused_run_has_maps_of_its_agents(run, tmp_path):
    made = run(rounds=2)
    names = [path.name for path in write_figures(made.records, made.world, made.settings, tmp_path, fused=True)]
    assert {"agents.png", "belief.png", "run.gif"} <= set(names)


def test_error_is_drawn_against_the_bytes_sent_up_to_then(run):
    silent = msgspec.structs.replace(run(rounds=2).records[0], report=None, score=None)
    rounds = [(1000, 0.9), (500, None), (250, 0.4)]
    records = [
        msgspec.structs.replace(
            silent,
            round=i,
            sharing=Traffic(messages=1, bytes=sent, transmissions=1),
            score=None if rmse is None else Score(0.0, None, 0.0, None, rmse),
        )
        for i, (sent, rmse) in enumerate(rounds)
    ]
    by_round, by_bytes = (ax.lines[0] for ax in error_traffic_figure(records).axes)
    assert list(by_round.get_xdata()) == [0, 2]
    assert list(by_bytes.get_xdata()) == [1.0, 1.75]
    assert list(by_bytes.get_ydata()) == [0.9, 0.4]
