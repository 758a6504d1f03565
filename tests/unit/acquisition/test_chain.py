"""Chains of agents along a short path, and places that are divided among them."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition.chain import assign, chains, divide, in_contact, matched, shortest_path_order


def length(P: np.ndarray, path: list[int]) -> float:
    return float(np.linalg.norm(np.diff(P[path], axis=0), axis=1).sum())


@given(st.integers(0, 1000), st.integers(2, 6))
def test_few_points_get_the_shortest_path(seed, n):
    P = np.random.default_rng(seed).normal(size=(n, 2))
    best = min(length(P, list(path)) for path in itertools.permutations(range(n)))
    assert np.isclose(length(P, shortest_path_order(P)), best)


@given(st.integers(0, 500), st.floats(0.0, 0.4))
def test_groups_are_the_connected_parts_in_the_order_of_agents(seed, share):
    links = nx.relabel_nodes(nx.gnp_random_graph(9, share, seed=seed), str)
    agents = ["no node", *map(str, range(8, 1, -1))]  # nodes 0 and 1 only relay
    parts = [[a for a in agents if a in part] for part in [{"no node"}, *nx.connected_components(links)]]
    wanted = sorted(filter(None, parts), key=lambda part: agents.index(part[0]))
    assert in_contact(agents, links) == list(map(tuple, wanted))


def test_relayed_contact_is_contact_and_agents_without_position_come_last():
    links = nx.path_graph(["a", "b", "c", "d"])
    positions = {"a": np.array([0.0]), "c": np.array([1.0]), "d": np.array([2.0])}
    assert chains("abcd", positions, links) == [("a", "c", "d", "b")]
    assert chains("abcd", positions, None) == [("a", "c", "d", "b")]
    assert chains("", {}, None) == []
    parted = nx.Graph([("a", "c"), ("b", "d")])
    assert [set(chain) for chain in chains("abcde", positions, parted)] == [{"a", "c"}, {"b", "d"}, {"e"}]


def by_hand(P: np.ndarray) -> list[int]:
    """Nearest neighbours, then 2-opt: segments are reversed as long as that shortens the path."""
    d, n = np.linalg.norm(P[:, None] - P[None], axis=-1), len(P)
    path = [int(d.sum(axis=1).argmax())]
    while len(path) < n:
        path.append(min(set(range(n)) - set(path), key=lambda i: (d[path[-1], i], i)))
    improved = True
    while improved:
        improved = False
        for i, j in itertools.combinations(range(n), 2):
            before = (d[path[i - 1], path[i]] if i else 0.0) + (d[path[j], path[j + 1]] if j + 1 < n else 0.0)
            after = (d[path[i - 1], path[j]] if i else 0.0) + (d[path[i], path[j + 1]] if j + 1 < n else 0.0)
            if after < before - 1e-12 * (before + 1.0):
                path[i : j + 1], improved = path[i : j + 1][::-1], True
    return path if path[0] < path[-1] else path[::-1]


@given(st.integers(0, 1000), st.integers(8, 40), st.booleans())
def test_a_long_path_is_that_of_a_plain_2_opt_search(seed, n, on_lattice):
    """On a lattice many paths are equally long, and the one that is found decides which agents are neighbours."""
    rng = np.random.default_rng(seed)
    P = rng.integers(0, 7, size=(n, 2)).astype(float) if on_lattice else rng.normal(size=(n, 2))
    assert shortest_path_order(P) == by_hand(P)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_path_through_two_points_or_fewer_keeps_their_order(n: int):
    assert shortest_path_order(np.zeros((n, 2))) == list(range(n))


@given(st.integers(0, 10_000), st.integers(0, 3))
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


@given(st.integers(0, 10_000), st.integers(0, 3))
def test_a_place_is_kept_by_the_nearest_robots_that_all_share_a_factor_with_each_other(seed, order):
    rng = np.random.default_rng(seed)
    n, lattice = int(rng.integers(2, 12)), np.array([(x, y) for x in range(6) for y in range(5)], dtype=float)
    agents = [f"r{i}" for i in range(n)]
    chain_list = [tuple(agents[: n // 2]), tuple(agents[n // 2 :])]
    candidates = {agent: lattice[rng.random(30) < rng.uniform(0.1, 0.9)] for agent in agents}
    positions = {agent: rng.uniform(0, 5, size=2) for agent in agents}  # no two distances are equal
    free, claims = {tuple(p) for p in lattice}, dict[str, np.ndarray]()
    for agent in agents:
        mine = [tuple(p) for p in candidates[agent] if tuple(p) in free]
        if mine and rng.random() < 0.5:
            claims[agent] = np.array(mine[0])
            free.discard(mine[0])
    wanted: dict[str, list[list[float]]] = {agent: [] for agent in agents}
    for place in lattice:  # place by place, robot by robot
        reaching = [a for a in agents if (candidates[a] == place).all(axis=1).any()]
        claim = {a for a in reaching if a in claims and (claims[a] == place).all()}
        kept: list[str] = []
        for a in sorted(reaching, key=lambda a, p=place, c=claim: (a not in c, np.linalg.norm(p - positions[a]))):
            chain = next(own for own in chain_list if a in own)
            if all(b in chain and abs(chain.index(a) - chain.index(b)) <= order for b in kept):
                kept.append(a)
                wanted[a].append(place.tolist())
    if all(wanted[a] or not len(candidates[a]) for a in agents):  # else some robot gets a place back
        found = divide(chain_list, order, candidates, positions, claims)
        assert {a: found[a].tolist() for a in agents} == wanted


def test_a_robot_left_without_places_gets_one_back_from_a_robot_with_several():
    places = np.array([[0.0, 0.0], [1.0, 0.0]])
    kept = divide([("a",), ("b",)], 1, {"a": places, "b": places}, {"a": np.zeros(2), "b": np.array([50.0, 0.0])})
    assert len(kept["a"]) == len(kept["b"]) == 1
    assert kept["a"].tolist() != kept["b"].tolist()


def test_one_place_for_two_robots_leaves_one_idle():
    place = np.array([[0.0, 0.0]])
    kept = divide([("a",), ("b",)], 1, {"a": place, "b": place}, {"a": np.ones(2), "b": np.zeros(2)})
    assert len(kept["a"]) == 0
    assert len(kept["b"]) == 1


def test_places_at_equal_distance_are_divided_evenly():
    lattice = np.array([(x, y) for x in range(5) for y in range(4)], dtype=float)
    agents = "abcd"
    for positions in ({}, dict.fromkeys(agents, np.zeros(2))):
        kept = divide([(agent,) for agent in agents], 2, dict.fromkeys(agents, lattice), positions)
        assert [len(kept[agent]) for agent in agents] == [5, 5, 5, 5]


def test_robots_with_few_places_are_matched_to_distinct_ones():
    one, two = np.array([[0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    many = np.arange(10.0).reshape(5, 2)
    assert assign("abc", {"a": one, "b": two, "c": many}, enough=5) == (["a", "b", "c"], [])
    taking_part, idle = assign("abcd", {"a": one, "b": two, "c": two, "d": many}, enough=5)
    assert len(taking_part) == 3
    assert "d" in taking_part
    assert len(idle) == 1


def test_a_claimed_place_goes_to_its_claimant_and_is_never_given_to_another_robot():
    places = np.array([[0.0, 0.0], [1.0, 0.0]])
    near, far = np.zeros(2), np.array([50.0, 0.0])
    kept = divide([("a",), ("b",)], 2, {"a": places, "b": places}, {"a": near, "b": far}, {"b": places[0]})
    assert kept["b"].tolist() == [[0.0, 0.0]]
    assert kept["a"].tolist() == [[1.0, 0.0]]
    only = divide([("a",), ("b",)], 2, {"a": places[:1], "b": places}, {"a": near, "b": far}, {"b": places[0]})
    assert len(only["a"]) == 0
    assert [0.0, 0.0] in only["b"].tolist()


@given(st.integers(0, 10_000), st.integers(0, 2))
def test_robots_that_claim_places_keep_them_and_take_part(seed, order):
    rng = np.random.default_rng(seed)
    chain_list = [("a", "b", "c", "d"), ("e", "f")]
    agents = [agent for chain in chain_list for agent in chain]
    lattice = np.array([(x, y) for x in range(3) for y in range(3)], dtype=float)
    candidates = {agent: lattice[rng.random(9) < rng.uniform(0.1, 0.9)] for agent in agents}
    claims = {}
    for agent in agents:
        free = [place for place in candidates[agent] if not any((place == other).all() for other in claims.values())]
        if free and rng.random() < 0.7:
            claims[agent] = free[0]
    kept = divide(chain_list, order, candidates, {}, claims)
    for agent, place in claims.items():
        assert place.tolist() in kept[agent].tolist()
    assigned, _ = assign(agents, kept, 2 * order + 1, claims)
    assert set(claims) <= set(assigned)


@pytest.mark.parametrize(
    "wanted",
    [((1,), (0, 2), (0, 1)), ((0, 1), (0,), (1, 2)), ((0, 1, 2), (0,), (0, 1))],
)
def test_all_agents_measure_if_there_is_a_place_for_each(wanted):
    places = np.array([[0.1], [0.5], [0.9]])
    for order in (0, 1):
        team = sb.Team.for_field([*"abc"], [0.0], [1.0], acquisition=sb.DBGPUCB(markov_order=order))
        asked = team.ask({agent: places[list(own)] for agent, own in zip("abc", wanted, strict=True)}).points
        assert len(asked) == 3
        assert len({float(place[0]) for place in asked.values()}) == 3


@pytest.mark.parametrize("coordination", ["exact", "max-sum", "mgm", {"kind": "max-sum", "mode": "asynchronous"}])
def test_a_place_that_is_listed_several_times_counts_once(coordination):
    decided = []
    for copies in (1, 5):
        team = sb.Team.for_field(["a", "b"], [0.0], [1.0], coordination=coordination, seed=0)
        points = team.ask(dict.fromkeys("ab", [[0.3]] * copies)).points
        decided.append(({agent: float(place[0]) for agent, place in points.items()}, team.last_report))
    assert decided[0] == decided[1]
    assert decided[0][0] == {"a": 0.3}


@pytest.mark.parametrize("acquisition", ["information", "db-gp-ucb", "targeted-variance"])
@pytest.mark.parametrize("known", [0, 3])
def test_an_agent_whose_price_is_small_gets_its_only_place(acquisition, known):
    batches = []
    for prices in ({}, {"b": 1e-9}, {"a": 1e-9, "b": 1e-9}):
        team = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition=acquisition, seed=0)
        team.attach([[0.0], [0.5], [1.0]][:known], [0.0, 3.0, -3.0][:known])
        batches.append(team.ask({"a": [[0.28], [0.7]], "b": [[0.28]]}, prices=prices).points)
    assert all({agent: float(x[0]) for agent, x in batch.items()} == {"a": 0.7, "b": 0.28} for batch in batches)


def test_an_agent_that_abstains_even_alone_takes_no_place_from_others():
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], seed=0)
    team.attach([[0.0], [0.5], [1.0]], [0.0, 3.0, -3.0])
    points = team.ask({"a": [[0.42], [0.95]], "b": [[0.42]]}, prices={"b": 1e3}).points
    assert {agent: float(x[0]) for agent, x in points.items()} == {"a": 0.42}


@pytest.mark.parametrize("priced", [(), ("r0", "r3", "r5", "r8")])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_as_many_agents_measure_as_have_distinct_places(order, priced):
    """Also agents whose measurements have a price, as no outcomes are known; but they leave others their places."""
    agents, n_short = [f"r{n}" for n in range(10)], 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pool = rng.random((12, 2))
        wanted = {agent: pool[rng.permutation(12)[: rng.integers(1, 4)]] for agent in agents}
        team = sb.Team.for_field(agents, [0.0] * 2, [1.0] * 2, acquisition=sb.DBGPUCB(markov_order=order), seed=0)
        asked = team.ask(wanted, prices=dict.fromkeys(priced, 0.1)).points
        bound = {agent: places for agent, places in wanted.items() if agent not in priced}
        assert len(asked.keys() & bound.keys()) == len(matched(bound))
        assert priced or len(asked) == len(matched(wanted))
        n_short += len(matched(wanted)) < len(agents)
    assert n_short > 3


def test_a_matching_has_as_many_agents_as_possible_and_of_these_as_many_preferred_ones():
    rng, n_contested = np.random.default_rng(0), 0
    for _ in range(300):
        rows = {f"a{i}": sorted(rng.permutation(4)[: rng.integers(0, 3)].tolist()) for i in range(rng.integers(1, 6))}
        preferred = {agent for agent in rows if rng.random() < 0.4}
        found = matched({agent: np.array(own, dtype=float)[:, None] for agent, own in rows.items()}, preferred)
        assert len({float(place[0]) for place in found.values()}) == len(found)
        assert all(float(place[0]) in rows[agent] for agent, place in found.items())
        best = (0, 0)
        for choice in itertools.product(*([None, *own] for own in rows.values())):
            taken = {agent: row for agent, row in zip(rows, choice, strict=True) if row is not None}
            if len({*taken.values()}) == len(taken):
                best = max(best, (len(taken), len(taken.keys() & preferred)))
        assert (len(found), len(found.keys() & preferred)) == best
        n_contested += best[0] < sum(map(bool, rows.values()))
    assert n_contested > 30


def test_an_agent_with_unlikely_places_only_measures_at_one_of_them():
    """All measurements failed, so c prefers the place of b, which has no other place."""
    line = np.linspace(0.0, 1.0, 9)[:, None]
    team = sb.Team.for_field([*"abc"], [0.0], [1.0], acquisition="information", seed=1)
    team.attach([[0.14], [0.2], [0.3], [0.5]], [np.nan] * 4)
    asked = team.ask({"a": line, "b": line[:1], "c": line[:2]}).points
    assert {agent: float(place[0]) for agent, place in asked.items() if agent != "a"} == {"b": 0.0, "c": 0.125}
