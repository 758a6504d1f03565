import numpy as np
import pytest
from sklearn.metrics import root_mean_squared_error

from swarmbo.errors import ShapeError
from swarmbo.metrics import map_rmse


def test_map_rmse_equals_scikit_learns():
    rng = np.random.default_rng(3)
    mean, values = rng.normal(size=50), rng.normal(size=50)
    assert map_rmse(mean, values) == pytest.approx(root_mean_squared_error(values, mean), rel=1e-14)


@pytest.mark.parametrize(
    ("mean", "values"), [(np.ones(3), np.ones(4)), (np.ones((2, 2)), np.ones((2, 2))), (np.ones(0), np.ones(0))]
)
def test_unequal_or_empty_maps_are_refused(mean, values):
    with pytest.raises(ShapeError, match="wanted two equal vectors"):
        map_rmse(mean, values)
