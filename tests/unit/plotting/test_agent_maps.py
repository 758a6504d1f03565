import msgspec
import numpy as np
import pytest

from swarmbo.belief import ExactGP, Hyperparameters
from swarmbo.plotting import write_figures
from swarmbo.plotting.agent_maps import agent_maps_figure
from swarmbo.plotting.history import agents_of


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
