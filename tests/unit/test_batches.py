"""Batches of a function: members differ under every rule, and a batch without success counts once."""

import itertools

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
from swarmbo.deciding import function
from swarmbo_envs.functions import get

FLOOR = 1e-3
PAIRS = {"f": ["a", "b"], "g": ["c", "d"]}
CHAIN = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]}
BOUNDS = {"a": (0.0, 1.0), "b": (-5.0, 5.0), "c": (10.0, 11.0), "d": (0.0, 200.0)}


class BestMean(sb.Acquisition, frozen=True, tag="best-mean-of-a-test"):
    """Greedy: all members of a batch want the same point."""

    def local_functions(self, situation, model):
        return ConfidenceBounds.on_cube(model.belief, sqrt_beta=dict.fromkeys(model.belief.graph.factors, 0.0))


def unit(point):
    return np.array([(point[name] - low) / (high - low) for name, (low, high) in BOUNDS.items()])


def outcomes_at(scopes, point):
    u = dict(zip(BOUNDS, unit(point), strict=True))
    return {f: -((u[x] - 0.4) ** 2) - 2.0 * (u[x] - u[y]) ** 2 for f, (x, y) in scopes.items()}


def team_of(scopes, mode, acquisition, **more):
    settings = {"outcomes": mode, "seed": 5, "initial": 6, "coordination": sb.ADMM(rounds=8, starts=3, screened=64)}
    return sb.Team(sb.FactorGraph.from_scopes(scopes), BOUNDS, acquisition=acquisition, **(settings | more))


def tell(team, scopes, queries):
    for query in queries:
        told = outcomes_at(scopes, query.point)
        team.tell(query, told if team.outcomes == "per-factor" else sum(told.values()))


def least_distance(points, columns=slice(None)):
    U = np.array([unit(point) for point in points])[:, columns]
    return min(float(np.abs(a - b).max()) for a, b in itertools.combinations(U, 2))


RULES = ["auto", "expected-improvement", "dec-hbo", "dumbo", "thompson", BestMean()]


@pytest.mark.parametrize(
    ("scopes", "mode", "rule"),
    [
        pytest.param(scopes, mode, rule, marks=[] if n % 2 == is_shared else pytest.mark.slow)
        for is_shared, (scopes, mode) in enumerate([(PAIRS, "total"), (CHAIN, "per-factor")])
        for n, rule in enumerate(RULES)
    ],
)
def test_no_member_of_a_batch_is_near_another_member_or_a_pending_point(scopes, mode, rule):
    team = team_of(scopes, mode, rule)
    tell(team, scopes, team.ask(6))
    first = team.ask(4)
    tell(team, scopes, [first.pop(1)])
    pending = [*first, *team.ask(3)]
    tell(team, scopes, [pending.pop(2)])
    pending += team.ask(2)
    points = [query.point for query in pending]
    assert least_distance(points) >= FLOOR
    for scope in scopes.values() if mode == "per-factor" else ():
        assert least_distance(points, [list(BOUNDS).index(name) for name in scope]) >= FLOOR


def test_the_last_point_combines_the_best_of_all_parts_although_one_of_them_is_pending():
    """No decision learns from it, so it may repeat pending values of a part; any other point keeps a distance."""
    team = team_of(PAIRS, "per-factor", "auto", rounds=9)
    tell(team, PAIRS, team.ask(6))
    pending = team.ask(2)
    elsewhere = {"c": 10.9, "d": 150.0}  # in the other part
    team.attach([[*(pending[0].point | elsewhere).values()]], [[1.0, -5.0]])  # the best of f by far
    assert least_distance([pending[0].point, team.ask().point], [0, 1]) == 0.0
    later = [query.point for query in (*pending, *team.ask(2))]  # more rounds than planned
    assert all(least_distance(later, part) >= FLOOR for part in ([0, 1], [2, 3]))


def test_the_last_point_keeps_a_distance_from_pending_points():
    team = team_of(PAIRS, "per-factor", "auto", rounds=8)
    tell(team, PAIRS, team.ask(6))
    (first,) = team.ask(1)
    team.attach([[*first.point.values()]], [[1.0, 1.0]])
    assert least_distance([first.point, team.ask().point]) >= FLOOR


@pytest.mark.parametrize("seed", [0, 1])
def test_the_first_batch_spreads_if_a_black_box_is_modelled_as_a_sum(seed):
    """Each term of a pending outcome counts as pending. If only their sum did, members would be 0.03 apart."""
    team = sb.Team(None, {f"x{i}": (0.0, 1.0) for i in range(6)}, seed=seed, initial=10)
    for query in team.ask(10):
        u = np.array(list(query.point.values()))
        team.tell(query, -float((u - 0.37) ** 2 @ np.arange(1.0, 7.0)))
    U = np.array([list(query.point.values()) for query in team.ask(6)])
    assert team.model.splits
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(U, 2)) > 0.1


def in_noise(seed):
    """A team with attached noisy totals, repeated so that the noise shows; also their points and the noisy function."""
    rng = np.random.default_rng(seed)

    def noisy(X):
        parts = (np.diff(X, axis=1) ** 2).sum(axis=1) + ((X - 0.4) ** 2).sum(axis=1)
        return 0.2 * rng.normal(size=len(X)) - parts

    X = np.repeat(rng.random((16, 4)), 3, axis=0)
    team = sb.Team(sb.FactorGraph.from_scopes(CHAIN), dict.fromkeys("abcd", (0.0, 1.0)), outcomes="total", seed=seed)
    team.attach(X, noisy(X))
    return team, X, noisy


def test_a_batch_in_noise_spreads():
    typical = []
    for seed in range(4):
        team, _, _ = in_noise(seed)
        U = np.array([list(query.point.values()) for query in team.ask(8)])
        apart = np.abs(U[:, None] - U).max(axis=2) + np.diag(np.full(8, np.inf))
        typical.append(np.median(apart.min(axis=1)))
    assert np.mean(typical) > 0.1


def test_every_second_point_in_noise_is_searched_everywhere():
    apart = []
    for seed in range(4):
        team, X, noisy = in_noise(seed)
        for _ in range(12):
            query = team.ask()
            x = np.array([list(query.point.values())])
            apart.append(np.abs(X - x).max(axis=1).min())
            X = np.concatenate([X, x])
            team.tell(query, float(noisy(x)[0]))
    assert np.mean(apart[1::2]) > 0.12


def test_members_with_the_same_best_point_spread_within_bounds_and_regions(monkeypatch):
    corner = np.array([1.0, 0.0])
    monkeypatch.setattr(sb.Random, "decide_joint", lambda *_: (corner, sb.SolveReport("exact")))
    region = sb.NoGoBox(low=(0.5, 0.003), high=(1.0, 1.0))
    given = {"coordination": "random", "acquisition": "dec-hbo", "initial": 1, "no_go": [region], "seed": 1}
    team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, **given)
    team.tell(team.ask(), 0.0)
    points = np.array([list(query.point.values()) for query in team.ask(40)])
    gaps = np.abs(points[:, None] - points).max(axis=2)[np.triu_indices(40, 1)]
    assert gaps.min() >= FLOOR
    assert (points >= 0.0).all()
    assert (points <= 1.0).all()
    assert not ((points[:, 0] > 0.5) & (points[:, 1] > 0.003)).any()


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch):
    """Random steps of a team so far."""
    made, move = list[object](), function._moved
    monkeypatch.setattr(function, "_moved", lambda *given: made.append(given) or move(*given))
    return made


def near_zero(limit):
    return {"constraints": [sb.Linear({"x": 1, "y": 1}, at_most=limit)]}


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (near_zero(1e-4), "total"),
        (near_zero(1e-4), "per-factor"),
        ({"start": {"x": 0.3, "y": 0.6, "z": 0.5}, "step_limit": {"x": 1e-4, "y": 1e-4}}, "per-factor"),
    ],
)
def test_points_of_a_region_narrower_than_the_distance_of_a_batch_are_distinct(given, mode, moves):
    scopes = {"f": ["x", "y"]} if mode == "total" else {"f": ["x", "y"], "g": ["z"]}
    bounds = dict.fromkeys("xy" if mode == "total" else "xyz", (0.0, 1.0))
    team = sb.Team(sb.FactorGraph.from_scopes(scopes), bounds, outcomes=mode, initial=3, seed=0, **given)
    points = []
    for _ in range(3):
        for query in (queries := team.ask(2)):
            told = {f: -sum((query.point[name] - 0.5) ** 2 for name in scope) for f, scope in scopes.items()}
            team.tell(query, told if mode == "per-factor" else sum(told.values()))
        points += [np.array(list(query.point.values())) for query in queries]
        one, other = points[-2:]
        assert np.abs(one[:2] - other[:2]).max() < 1e-3
        assert mode == "total" or abs(one[2] - other[2]) >= 1e-3  # another factor's variable keeps the distance
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(points, 2)) > 1e-9
    assert len(moves) < 6_000


def test_the_only_allowed_point_is_asked_again_after_few_random_steps(moves):
    team = sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0, **near_zero(0.0))
    assert [list(query.point.values()) for query in team.ask(3)] == [[0.0, 0.0]] * 3
    assert len(moves) <= 2 * 2_000


@pytest.mark.parametrize(
    "rule",
    ["dec-hbo", "add-gp-ucb", *(pytest.param(n, marks=pytest.mark.slow) for n in ("expected-improvement", "dumbo"))],
)
def test_points_of_a_batch_do_not_repeat_the_point_of_a_pending_total(rule):
    scopes = {"f": ["x", "y"], "g": ["z"]} if rule == "add-gp-ucb" else {"f": ["x", "y"], "g": ["y", "z"]}
    rng = np.random.default_rng(0)
    X = rng.random((16, 3))
    totals = -((X[:, 0] - 0.7) ** 2) - (X[:, 1] - 0.3) ** 2 - (X[:, 1] - X[:, 2]) ** 2 + 0.05 * rng.normal(size=16)
    team = sb.Team(sb.FactorGraph.from_scopes(scopes), dict.fromkeys("xyz", (0.0, 1.0)), acquisition=rule, seed=1)
    team.attach(X, totals)
    points = np.array([list(query.point.values()) for query in team.ask(5)])
    apart = [np.abs(one - other).max() for one, other in itertools.combinations(points, 2)]
    assert min(apart) > 0.02


def test_a_state_knows_which_queries_were_asked_together():
    team = team_of(CHAIN, "total", "auto")
    tell(team, CHAIN, team.ask(6))
    tell(team, CHAIN, team.ask(4)[::-1])
    out = team.ask(3)
    assert team.history.basis.tolist() == [0] * 6 + [6] * 4
    state = team.state_dict()
    again = sb.Team.from_state_dict(state)
    for one in (team, again):
        tell(one, CHAIN, out)
    assert again.history.basis.tolist() == team.history.basis.tolist() == [0] * 6 + [6] * 4 + [10] * 3
    assert [query.point for query in again.ask(2)] == [query.point for query in team.ask(2)]


@pytest.mark.parametrize(
    ("name", "mode", "allowed"),
    [
        pytest.param("hartmann", "total", 0.13, marks=pytest.mark.thorough),
        pytest.param("powell", "per-factor", 8.0, marks=pytest.mark.thorough),
        pytest.param("powell", "total", 4000.0, marks=pytest.mark.slow),
    ],
)
def test_batches_of_eight_reach_a_small_regret(name, mode, allowed):
    function = get(name, moved=name == "powell", seed=1)
    bounds = dict(zip(function.variables, zip(function.low, function.high, strict=True), strict=True))
    graph = sb.FactorGraph.from_scopes({f: [function.variables[j] for j in s] for f, s in function.scopes.items()})
    team, best = sb.Team(graph, bounds, outcomes=mode, seed=1, rounds=74), -np.inf
    for count in [10] + [8] * 8:
        for query in team.ask(count):
            values = function.factor_values(np.array([list(query.point.values())]))[0]
            told = dict(zip(function.scopes, values.tolist(), strict=True))
            team.tell(query, told if mode == "per-factor" else float(values.sum()))
            best = max(best, float(values.sum()))
        if function.maximum - best < allowed:
            return
    pytest.fail(f"the best value is {best}, of {function.maximum}")


def test_a_moved_point_is_compared_again_only_where_it_moved(monkeypatch: pytest.MonkeyPatch):
    compared, moves, check, move = list[object](), list[object](), function._KeepApart.is_broken_by, function._moved
    monkeypatch.setattr(function._KeepApart, "is_broken_by", lambda rule, U: compared.append(rule) or check(rule, U))
    monkeypatch.setattr(function, "_moved", lambda *given: moves.append(given) or move(*given))
    n = 200
    graph = sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n)})
    team = sb.Team(graph, {f"x{i}": (0.0, 1.0) for i in range(n + 1)}, outcomes="per-factor", seed=0)
    X = np.random.default_rng(0).random((12, n + 1))
    team.attach(X, -((X[:, 1:] - X[:, :-1] - 0.2) ** 2))
    team.ask(4)
    again = len(compared) - 1 - 3 * (n + 1)  # without those with evaluated points and with pending points of a factor
    assert 0 < again <= 5 * len(moves)  # after a move, at most four factors contain its two variables
