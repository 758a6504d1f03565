"""Means of several agents' views at once."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeCorrelation, Views, means_by_agent
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

DOMAIN = Domain(np.array([0.0, -5.0]), np.array([10.0, 5.0]))
STILL = Hyperparameters("matern52", (0.3, 0.2), 1.3, 0.04, mean=0.2, offset=7.0, scale=3.0)
FADING = Hyperparameters("rbf", (0.3, 0.2), 0.8, 0.02, offset=-1.0, scale=2.0, time=TimeCorrelation("matern32", 4.0))
RNG = np.random.default_rng(0)
READINGS = np.column_stack([DOMAIN.from_unit(RNG.random((30, 2))), RNG.integers(0, 6, 30), RNG.normal(size=30)])
READINGS[20:25, :2] = READINGS[3:8, :2]  # some places were measured twice
PLACES = DOMAIN.from_unit(RNG.random((40, 2)))


def view(hyperparameters, rows):
    """The belief by some of the readings."""
    columns = [0, 1, 2] if hyperparameters.time is not None else [0, 1]
    X, y = READINGS[rows][:, columns], READINGS[rows][:, 3]
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=hyperparameters.kernel), DOMAIN, hyperparameters, X, y)


@given(
    known=st.lists(st.lists(st.integers(0, 29), max_size=12, unique=True), min_size=2, max_size=5),
    is_fading=st.booleans(),
    is_pending=st.booleans(),
)
def test_means_of_all_are_the_means_of_each(known, is_fading, is_pending):
    views = [view(FADING if is_fading else STILL, rows).at(7.0) for rows in known]
    if is_pending:
        views[0] = views[0].condition_on_pending(PLACES[:2])
    for got, each in zip(ExactGP.posterior_means(views, PLACES), views, strict=True):
        np.testing.assert_allclose(got, each.posterior(PLACES)[0], rtol=1e-9, atol=1e-9)


def test_agents_may_differ_in_hyperparameters_and_in_moment_and_may_have_one_view_in_common():
    one = view(FADING, [1, 2, 3]).at(3.0)
    louder = view(msgspec.structs.replace(FADING, noise_variance=0.5), [1, 2, 3]).at(3.0)
    by_agent = {"a": one, "b": view(FADING, [2, 9]).at(3.0), "c": one, "d": one.at(50.0), "e": louder}
    means = means_by_agent(Views(by_agent, "a"), PLACES)
    assert list(means) == list(by_agent)
    assert means["a"] is means["c"]
    for name, belief in by_agent.items():
        np.testing.assert_allclose(means[name], belief.posterior(PLACES)[0], rtol=1e-9)
    assert len({means[name][0] for name in "abde"}) == 4


def test_places_that_are_none_are_refused():
    with pytest.raises(ShapeError, match="finite"):
        means_by_agent(Views({"a": view(STILL, [0]), "b": view(STILL, [1])}, "a"), np.full((1, 2), np.nan))
