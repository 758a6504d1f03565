import numpy as np
from hypothesis import given, settings, strategies as st

from swarmbo.acquisition.territory import divide


@given(st.integers(0, 10_000), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_robots_that_share_no_factor_share_no_place(seed, order):
    rng = np.random.default_rng(seed)
    chain_list = [("a", "b", "c", "d"), ("e", "f")]
    lattice = np.array([(x, y) for x in range(4) for y in range(4)], dtype=float)
    agents = [agent for chain in chain_list for agent in chain]
    candidates = {agent: lattice[rng.random(16) < rng.uniform(0.05, 0.9)] for agent in agents}
    positions = {agent: rng.uniform(0, 3, size=2) for agent in agents}
    kept = divide(chain_list, order, candidates, positions)
    for a in agents:
        before, after = set(map(tuple, candidates[a])), set(map(tuple, kept[a]))
        assert after <= before
        for b in agents:
            chain = next(c for c in chain_list if a in c)
            shares = b in chain and abs(chain.index(a) - chain.index(b)) <= order
            if a != b and not shares:
                assert not after & set(map(tuple, kept[b]))
    everything = {tuple(p) for agent in agents for p in candidates[agent]}
    assert {tuple(p) for agent in agents for p in kept[agent]} == everything


def test_a_contested_place_goes_to_the_nearest_robot():
    places = np.array([[0.0, 0.0], [10.0, 0.0]])
    kept = divide([("a",), ("b",)], 2, {"a": places, "b": places}, {"a": np.zeros(2), "b": np.array([10.0, 0.0])})
    assert kept["a"].tolist() == [[0.0, 0.0]]
    assert kept["b"].tolist() == [[10.0, 0.0]]


def test_a_robot_left_with_nothing_gets_a_place_back_from_one_that_can_spare_it():
    places = np.array([[0.0, 0.0], [1.0, 0.0]])
    kept = divide([("a",), ("b",)], 1, {"a": places, "b": places}, {"a": np.zeros(2), "b": np.array([50.0, 0.0])})
    assert len(kept["a"]) == len(kept["b"]) == 1
    assert kept["a"].tolist() != kept["b"].tolist()


def test_one_place_for_two_robots_leaves_one_idle():
    place = np.array([[0.0, 0.0]])
    kept = divide([("a",), ("b",)], 1, {"a": place, "b": place}, {"a": np.ones(2), "b": np.zeros(2)})
    assert len(kept["a"]) == 0
    assert len(kept["b"]) == 1
