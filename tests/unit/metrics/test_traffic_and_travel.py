import pytest

from swarmbo.metrics import agreement_traffic, distance_travelled, sharing_traffic
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
