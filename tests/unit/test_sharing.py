import msgspec
import networkx as nx
import numpy as np
from hypothesis import given, strategies as st

from swarmbo.data import News
from swarmbo.deciding.sharing import draw_traffic, outcome_traffic, reading_traffic
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.records import Traffic
from swarmbo.spaces import Domain
from swarmbo.transport import Routes

CHAIN = FactorGraph.from_scopes(
    {"f": ["x", "y"], "g": ["y", "z"], "alone": ["w"]},
    owners={"f": "a", "g": "b", "alone": "c"},
    variable_owners={"x": "a", "y": "a", "z": "b", "w": "c"},
)
POINT = {"x": 0.1, "y": 0.2, "z": 0.3, "w": 0.4}


def told(total=None, total_noise=np.nan, noise=None, **factors):
    return News(np.array(list(POINT.values())), total, factors, total_noise, noise or {})


def size(content):
    return len(msgspec.msgpack.encode(content))


def test_totals_go_to_everybody_with_the_values_that_everybody_set():
    traffic = outcome_traffic(CHAIN, "total", Routes(CHAIN.agents), POINT, told(1.5))
    reports = [("a", [0.1, 0.2], 1.5, {}), ("b", [0.3], None, {}), ("c", [0.4], None, {})]
    assert traffic == Traffic(6, 2 * sum(map(size, reports)), 6)


def test_factors_told_to_a_team_of_totals_travel_with_their_owners_report():
    without = outcome_traffic(CHAIN, "total", Routes(CHAIN.agents), POINT, told(1.5))
    with_factor = outcome_traffic(CHAIN, "total", Routes(CHAIN.agents), POINT, told(1.5, g=0.5))
    assert with_factor.messages == without.messages
    assert with_factor.bytes - without.bytes == 2 * (size({"g": 0.5}) - size({}))


def test_a_factors_outcome_goes_to_the_agents_of_its_connected_part_only():
    traffic = outcome_traffic(CHAIN, "per-factor", Routes(CHAIN.agents), POINT, told(f=1.0, g=2.0, alone=3.0))
    assert traffic == Traffic(2, size(("f", [0.1, 0.2], 1.0)) + size(("g", [0.2, 0.3], 2.0)), 2)
    assert outcome_traffic(CHAIN, "per-factor", Routes(CHAIN.agents), POINT, told(alone=3.0)) == Traffic()


def test_relays_and_the_base_station_count_as_transmissions():
    line = Routes(CHAIN.agents, nx.Graph([("a", "c"), ("c", "b")]))
    assert outcome_traffic(CHAIN, "per-factor", line, POINT, told(f=1.0)).transmissions == 2
    apart = Routes(CHAIN.agents, nx.Graph([("a", "c")]))
    assert outcome_traffic(CHAIN, "per-factor", apart, POINT, told(g=1.0)).transmissions == 2


@given(st.integers(0, 500))
def test_a_draw_costs_eight_bytes_an_evaluation_from_each_factor_to_each_other_owner(n):
    traffic = draw_traffic(CHAIN, Routes(CHAIN.agents), n)
    assert traffic.messages == (6 if n else 0)
    assert 0 <= traffic.bytes - 6 * 8 * n <= 6 * 12


def test_one_agent_tells_nobody():
    single = FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]}, owners={"f": "a", "g": "a"})
    routes = Routes(single.agents)
    assert outcome_traffic(single, "total", routes, {"x": 0.0, "y": 1.0}, told(1.0)) == Traffic()
    assert draw_traffic(single, routes, 9) == Traffic()


def test_who_measured_in_a_field_tells_all_others_name_place_and_outcome():
    line = Routes(["a", "b", "c"], nx.Graph([("a", "b"), ("b", "c")]))
    field = Problem.of_field(["a", "b", "c"], Domain(np.zeros(2), np.ones(2)))
    traffic = reading_traffic(News(field.joint({"a": np.array([0.1, 0.2])}), None, {"a": 1.5}), field, line)
    assert traffic == Traffic(2, 2 * size(("a", [0.1, 0.2], 1.5)), 3)


def test_noise_that_is_known_travels_with_its_outcome():
    routes, whole = Routes(CHAIN.agents), told(1.5, total_noise=0.2)
    reports = [("a", [0.1, 0.2], 1.5, {}, 0.2), ("b", [0.3], None, {}), ("c", [0.4], None, {})]
    assert outcome_traffic(CHAIN, "total", routes, POINT, whole).bytes == 2 * sum(map(size, reports))
    parts = outcome_traffic(CHAIN, "per-factor", routes, POINT, told(f=1.0, g=2.0, noise={"g": 0.1}))
    assert parts.bytes == size(("f", [0.1, 0.2], 1.0)) + size(("g", [0.2, 0.3], (2.0, 0.1)))
    field = Problem.of_field(["a", "b"], Domain(np.zeros(1), np.ones(1)))
    place = field.joint({"a": np.array([0.1]), "b": np.array([0.2])})
    news = News(place, None, {"a": 1.5, "b": 2.5}, noise={"b": 0.3})
    traffic = reading_traffic(news, field, Routes(["a", "b"]))
    assert traffic.bytes == size(("a", [0.1], 1.5)) + size(("b", [0.2], (2.5, 0.3)))
