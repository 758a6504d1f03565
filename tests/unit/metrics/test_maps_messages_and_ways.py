"""Errors of maps, messages and ways of a run."""

import numpy as np
import pytest
from sklearn.metrics import root_mean_squared_error

from swarmbo.errors import ShapeError
from swarmbo.metrics import agreement_traffic, distance_travelled, map_rmse, sharing_traffic
from swarmbo.records import RoundRecord, Sample, SolveReport, Traffic


def record(number, agreement, sharing, distances):
    samples = [Sample(agent=agent, location=[0.0], measurement=None, distance=d) for agent, d in distances.items()]
    report = None if agreement is None else SolveReport(status="exact", traffic=agreement)
    return RoundRecord(round=number, samples=samples, report=report, sharing=sharing)


RECORDS = [
    record(0, None, Traffic(2, 20, 3), {"a": 0.0, "b": 0.0}),
    record(1, Traffic(10, 500, 17), Traffic(2, 30, 2), {"a": 1.5, "b": 2.0}),
    record(2, Traffic(4, 100, 4), Traffic(1, 10, 1), {"b": 0.25}),
]


def test_traffic_is_summed_by_purpose():
    assert agreement_traffic(RECORDS) == Traffic(14, 600, 21)
    assert sharing_traffic(RECORDS) == Traffic(5, 60, 6)


def test_distance_is_summed_for_each_agent_even_if_it_missed_a_round():
    assert distance_travelled(RECORDS) == pytest.approx({"a": 1.5, "b": 2.25})


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
