"""What a place tells, in the unit of the field."""

import math
from types import SimpleNamespace

import pytest

from swarmbo.acquisition.information import information_scale


@pytest.mark.parametrize(
    ("noise", "taken_for"),
    [(0.5, 0.5), (0.04, 0.04), (0.01, 0.04), (0.0, 0.04)],
    ids=["noisy", "at the floor", "below it", "none"],
)
def test_noise_counts_as_it_is_unless_it_is_below_the_floor(noise: float, taken_for: float) -> None:
    prior = 4.0
    situation = SimpleNamespace(belief=SimpleNamespace(prior_variance=prior, noise_variance=noise))
    noise_variance, weight = information_scale(situation, 0.01)  # pyright: ignore[reportArgumentType]
    assert noise_variance == pytest.approx(taken_for)
    of_an_unknown_place = math.log1p(prior / noise_variance)
    assert weight * math.sqrt(of_an_unknown_place) == pytest.approx(math.sqrt(prior))
