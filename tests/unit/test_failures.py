"""Teams in fields and functions learn where evaluations fail, and avoid failures without losing much regret."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.coordination.agreement import Agreement
from swarmbo.records import SolveReport

Region = Callable[[np.ndarray], bool]
N_QUERIES = 24


def _ball(n: int) -> Region:
    """A fifth of the box, around a point off its middle."""
    drawn = np.random.default_rng(0).random((20_000, n))
    radius = float(np.quantile(np.linalg.norm(drawn - 0.4, axis=1), 0.2))
    return lambda u: bool(np.linalg.norm(u - 0.4) < radius)


def _wall(u: np.ndarray) -> bool:
    return bool(u[0] > 0.8)


def _corner(u: np.ndarray) -> bool:
    return bool(max(u[0], u[1]) < 0.2**0.5)


def _outcomes(u: np.ndarray, best: np.ndarray) -> dict[str, float]:
    """A chain of bowls with ripples, whose sum is largest near a point."""
    gap, names = u - best, [f"f{i}" for i in range(len(u) - 1)]
    return {
        f: float(-3.0 * gap[i] ** 2 - 2.0 * gap[i + 1] ** 2 - 0.3 * np.sin(5.0 * gap[i]) * np.sin(4.0 * gap[i + 1]))
        for i, f in enumerate(names)
    }


def _maximum(best: np.ndarray, failing_at: Region) -> float:
    """Maximum by a random search with shrinking steps around the best point so far."""
    rng, n = np.random.default_rng(0), len(best)
    value, point = -np.inf, best
    for step in (1.0, *0.1 * 0.7 ** np.arange(20)):
        near = np.clip(point + step * rng.normal(size=(400, n)), 0.0, 1.0)
        values = [(sum(_outcomes(u, best).values()), tuple(u)) for u in near if not failing_at(u)]
        value, point = max([(value, tuple(point)), *values])
    return value


def _run(
    failing_at: Region,
    best: np.ndarray,
    bad: float | None,
    n_queries: int = N_QUERIES,
    by_factor: bool = False,
    **more: Any,
):
    """Queries of a team, and which of them failed; the outcome of these is ``bad``: None or a bad number."""
    n = len(best)
    names = [f"x{i}" for i in range(n)]
    graph = sb.FactorGraph.from_scopes({f"f{i}": names[i : i + 2] for i in range(n - 1)})
    outcomes = "per-factor" if by_factor else "total"
    team = sb.Team(graph, dict.fromkeys(names, (0.0, 1.0)), outcomes=outcomes, **more)
    asked: list[tuple[np.ndarray, bool, float]] = []
    while len(asked) < n_queries:
        query = team.ask()
        u = np.array([query.point[name] for name in names])
        told, fails = _outcomes(u, best), failing_at(u)
        asked.append((u, fails, sum(told.values())))
        if fails and by_factor:
            told["f0"] = bad  # pyright: ignore[reportArgumentType]
        team.tell(query, told if by_factor else bad if fails else sum(told.values()))
    return team, asked


REFINED = {"acquisition": "dec-hbo", "coordination": "refined-max-sum"}


@pytest.mark.parametrize(
    ("failing_at", "best", "settings"),
    [
        (_wall, [0.9, 0.4], {"acquisition": "auto"}),  # evaluations fail at the best point
        pytest.param(_ball(3), [0.75, 0.6, 0.5], REFINED, marks=pytest.mark.thorough),
        (_wall, [0.74, 0.4], {"acquisition": "expected-improvement", "by_factor": True}),
        pytest.param(_corner, [0.52, 0.35, 0.6], {"coordination": "isotropic-gp"}, marks=pytest.mark.slow),
    ],
)
def test_failures_in_a_fifth_of_the_box_near_the_best_cost_few_queries_and_little_regret(
    failing_at, best, settings
) -> None:
    best = np.array(best)
    runs = [_run(failing_at, best, bad, seed=0, **settings)[1] for bad in (None, -5.0)]
    regrets = [_maximum(best, failing_at) - max(value for _, fails, value in asked if not fails) for asked in runs]
    failed = [u for u, fails, _ in runs[0] if fails]
    assert len(failed) <= N_QUERIES // 3
    apart = [np.abs(u - v).max() for i, u in enumerate(failed) for v in failed[:i]]
    assert min(apart, default=1.0) > 1e-3
    assert regrets[0] <= 1.5 * regrets[1] + 0.005


SUM_OF_WAVES = {
    "a failure": {},
    "a region": {"no_go": [sb.NoGoBox(variables=("a",), low=(0.85,), high=(0.95,))]},
    "a constraint": {"constraints": [sb.Linear(weights={"a": 1.0, "b": 1.0}, at_most=1.9)]},
    "a limit": {"limits": {"load": (None, 1.9)}},
}


@pytest.mark.parametrize(
    ("given", "outcomes", "seed"),
    [
        pytest.param(given, outcomes, seed, id=f"{name}-{outcomes}", marks=[] if name in quick else pytest.mark.slow)
        for outcomes, seed, quick in (
            ("total", 0, ("a region", "a constraint")),
            ("per-factor", 1, ("a failure", "a limit")),
        )
        for name, given in SUM_OF_WAVES.items()
    ],
)
def test_a_sum_over_variables_is_maximised_despite_forbidden_or_failed_points(given, outcomes, seed) -> None:
    graph = sb.FactorGraph.from_scopes({"f": list("abc")}) if outcomes == "per-factor" else None
    team = sb.Team(graph, dict.fromkeys("abc", (0.0, 1.0)), outcomes=outcomes, seed=seed, **given)
    for number in range(30):
        query = team.ask()
        u = np.array(list(query.point.values())) - [0.31, 0.42, 0.53]
        value = None if given == {} and number == 3 else float(-(1.0 - np.cos(9.0 * u) + u**2).sum())
        load = {"constraints": {"load": query.point["a"] + query.point["b"]}} if "limits" in given else {}
        team.tell(query, value if graph is None else {"f": value}, **load)
        if value is not None and value > -0.01:
            return
    pytest.fail("30 outcomes are not near the maximum")


class OnePoint:
    """A coordination method that always returns one point, and counts its calls."""

    def __init__(self, point: list[float]) -> None:
        self.point, self.asked = np.array(point), 0

    def maximise(self, functions, links=None, seed=0) -> Agreement:
        self.asked += 1
        return Agreement(self.point, 0.0, SolveReport(status="sequential"))


@pytest.mark.parametrize(("x", "asked"), [(0.3, 1), (0.95, 2)])
def test_a_point_that_will_probably_fail_is_not_asked_and_messages_are_counted(x, asked) -> None:
    """The best point so far, and each agreed point, are sent up and down the tree of three agents."""
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
    U = np.random.default_rng(0).random((30, 3))
    for failing, messages in ((True, 4 + 4 * asked), (False, 4)):
        one_point = OnePoint([x, 0.5, 0.5])
        team = sb.Team(graph, dict.fromkeys("xyz", (0.0, 1.0)), acquisition="dec-hbo", coordination=one_point)
        team.attach(U, np.where(failing & (U[:, 0] > 0.8), np.nan, -((U - 0.5) ** 2).sum(axis=1)))
        point = team.ask().point
        assert team.last_report.messages == messages
        assert one_point.asked == (asked if failing else 1)
        assert (point["x"] < 0.85) if failing else (point["x"] == x)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("share", "is_random", "has_failed"),
    [(0.3, True, False), (0.5, True, False), (0.5, True, True), (0.5, False, False)],
)
def test_the_best_values_of_parts_are_combined_unless_they_have_failed_together_or_may(
    share, is_random, has_failed, seed
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.random((40, 2))
    failed = rng.random(40) < share if is_random else np.linalg.norm(X - [0.7, 0.2], axis=1) < share
    team = sb.Team(
        sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}), dict.fromkeys("xy", (0.0, 1.0)), outcomes="per-factor"
    )
    outcomes = -((X - [0.7, 0.2]) ** 2)
    team.attach(X, np.where(failed[:, None], np.nan, outcomes))
    good, told = X[~failed], outcomes[~failed]
    combined, evaluated = good[told.argmax(axis=0), [0, 1]], good[told.sum(axis=1).argmax()]
    if has_failed:
        team.attach(combined[None], [[np.nan, np.nan]])
    wanted = combined if is_random and not has_failed else evaluated
    assert list(team.recommend().point.values()) == pytest.approx(wanted.tolist(), abs=1e-12)


def test_a_team_continues_if_every_query_fails() -> None:
    team, asked = _run(lambda u: True, np.array([0.5, 0.5, 0.5]), None, 12, acquisition="auto", initial=5)
    assert team.failures == len(asked) == 12
    assert team.recommend() is None
    U = np.array([u for u, _, _ in asked])
    assert min(np.abs(U[i] - U[:i]).max(axis=1).min() for i in range(1, len(U))) > 1e-3


SITES = np.array([[a, b] for a in np.linspace(0.05, 0.95, 10) for b in np.linspace(0.05, 0.95, 10)])


def _in_disc(x: np.ndarray) -> bool:
    return bool(((x - 0.5) ** 2).sum() < 0.2 / np.pi)


def _field(x: np.ndarray) -> float:
    return float(np.exp(-((x - [0.72, 0.4]) ** 2).sum() / 0.08) + 0.3 * np.sin(5.0 * x[0]))


def _survey(failing_at: Region, bad: float | None, rounds: int = 10, **settings: Any):
    agents = ["a", "b", "c"]
    team = sb.Team.for_field(agents, [0.0, 0.0], [1.0, 1.0], seed=1, **settings)
    asked: list[tuple[tuple[float, ...], bool]] = []
    for _ in range(rounds):
        query = team.ask(dict.fromkeys(agents, SITES))
        told: dict[str, float | None] = {a: bad if failing_at(x) else _field(x) for a, x in query.points.items()}
        asked += [(tuple(x), failing_at(x)) for x in query.points.values()]
        team.tell(query, told)
    return team, asked


INFORMED = {"acquisition": "information"}


@pytest.mark.parametrize(
    ("failing_at", "settings"),
    [
        (_wall, INFORMED),
        (_in_disc, {**INFORMED, "belief": {"kind": "fused", "method": "readings"}}),
        (_wall, {"acquisition": "db-gp-ucb"}),
        (_wall, {**INFORMED, "coordination": "independent"}),
        pytest.param(
            _wall, {"acquisition": {"kind": "straddle", "level": 0.5}, "belief": "fused"}, marks=pytest.mark.slow
        ),
        *(pytest.param(_wall, {**INFORMED, "coordination": n}, marks=pytest.mark.slow) for n in ("greedy", "max-sum")),
    ],
)
def test_no_failed_location_of_a_field_is_asked_twice(failing_at, settings) -> None:
    team, asked = _survey(failing_at, None, **settings)
    failed = [place for place, fails in asked if fails]
    assert len(failed) == team.failures
    if settings.get("coordination") != "independent":  # independent agents may choose the same location in a round
        assert len(failed) == len(set(failed))
    assert len(failed) <= len(asked) // 3
    usable = [site for site in SITES if not failing_at(site)]
    if settings["acquisition"] == "db-gp-ucb":
        with_number = _survey(failing_at, -1.0, **settings)[1]
        best = [max(_field(np.array(x)) for x, fails in places if not fails) for places in (asked, with_number)]
        regrets = max(map(_field, usable)) - np.array(best)
        assert regrets[0] <= 1.5 * regrets[1] + 0.02
    errors = [team.belief.posterior_mean(site[None])[0] - _field(site) for site in usable]
    assert np.sqrt(np.mean(np.square(errors))) < 0.25


def test_a_failing_site_is_not_asked_again_among_few_sites() -> None:
    sites = np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1], [0.5, 0.5]])
    team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], acquisition="information")
    failed: list[tuple[float, ...]] = []
    for _ in range(10):
        query = team.ask(dict.fromkeys("ab", sites))
        failing_at = {agent: x[0] == 0.9 for agent, x in query.points.items()}
        failed += [tuple(x) for agent, x in query.points.items() if failing_at[agent]]
        team.tell(query, {agent: None if failing_at[agent] else 1.0 for agent in query.points})
    assert len(failed) <= 2


def test_an_agent_avoids_only_failures_that_reached_it() -> None:
    links = nx.Graph([("a", "b")])
    links.add_node("c")
    team = sb.Team.for_field(list("abc"), [0.0], [1.0], acquisition="information", belief="fused")
    team.belief.learn({"b": ([[0.2]], [1.0]), "c": ([[0.2]], [1.0])}, links, {"a": [[0.7]]})
    assert [len(team.belief.reports(agent)[1]) for agent in "abc"] == [1, 1, 0]
    candidates = dict.fromkeys("abc", np.array([[0.2], [0.7]]))
    for agent, place in (("b", 0.2), ("c", 0.7)):
        assert team.ask(candidates, agents=[agent]).points[agent][0] == place


def test_an_agents_caution_depends_on_its_own_outcomes() -> None:
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0])
    first, second = team.ask(), team.ask()
    team.tell(first, {"a": np.nan, "b": 1.0})
    team.tell(second, {"a": 2.0}, failed=True)
    team.attach([[0.5]], [np.nan])
    assert [team._log.successes(agent).tolist() for agent in "ab"] == [[False, True], [True, False]]
    assert team.failures == 3


def test_reports_of_failures_are_counted() -> None:
    for belief in ("exact", "fused"):
        team = sb.Team.for_field(list("abc"), [0.0], [1.0], belief=belief)
        query = team.ask()
        team.tell(query, dict.fromkeys("abc"))
        first, again = team.last_sharing, team.ask()
        assert team.last_sharing.bytes > first.bytes + 3 * 8
        team.tell(again, failed=True)
        assert team.failures == 6
        team.ask()
        assert team.last_sharing.bytes > first.bytes + 3 * 8


WITH_TIME = {"kind": "exact", "time": {"lengthscale_median": 2.0, "lengthscale_log_std": 0.01}}


@pytest.mark.parametrize("belief", ["exact", "fused", WITH_TIME])
def test_attached_failures_are_avoided_and_lose_weight_with_the_belief(belief) -> None:
    team = sb.Team.for_field(["a"], [0.0], [1.0], acquisition="information", belief=belief)
    team.attach([[0.2, 1.0], [0.7, 1.0]] if belief is WITH_TIME else [[0.2], [0.7]], [1.0, np.nan])
    assert team.ask({"a": [[0.2], [0.7]]}).points["a"][0] == 0.2
    for _ in range(20 if belief is WITH_TIME else 0):
        team.tell(team.ask({"a": [[0.2]]}), {"a": 1.0})
    assert team.ask({"a": [[0.2], [0.7]]}).points["a"][0] == (0.7 if belief is WITH_TIME else 0.2)
