"""Agents that know only their own outcomes decide as a team does, for any outcomes and any order of messages."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.acquisition.trust_region import Restarts
from swarmbo.agent import Agent, run
from swarmbo.agent.stages import Stages
from swarmbo.deciding import own_rows as rows
from swarmbo.errors import ConfigError, ConflictError, ShapeError, StateVersionError, TransportError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcess

from .carried import Recording, copied, recommended_by, require_same_messages, sent_by, ticked_to_the_end

SEED, INITIAL = 3, 2
LARGER = sb.ADMM(rounds=3, starts=3, screened=16, polish_steps=4)
SMALL = sb.ADMM(rounds=2, starts=2, screened=8, polish_steps=2)
QUICKEST = sb.ADMM(rounds=1, starts=2, screened=4, polish_steps=1)
ENSEMBLE = sb.EnsembleSettings(n_features=16)
MATERN = sb.AdditiveGPSettings(kernel="matern52")
FADING = sb.AdditiveGPSettings(time=sb.TimeAxis(lengthscale_median=2.0))
SAMPLED = {"kind": "additive", "structure": {"kind": "sampled", "burn_in": 3}}
THOROUGH, SLOW = pytest.mark.thorough, pytest.mark.slow

RING = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "a"]}
CHAIN = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"], "k": ["d", "e"]}
CHAIN_OWNERS = dict(zip("abcde", "abcdd", strict=True))
LINE: "nx.Graph[str]" = nx.path_graph(["a", "b", "c"])
PAIRS = {"f": ["a", "b"], "g": ["c", "d"]}
PARTS = {"f": ["a", "b", "c"], "g": ["c"], "h": ["d", "e"], "k": ["e", "x"], "m": ["y", "z"]}
OWNERS = {"f": "p", "g": "q", "h": "p", "k": "q", "m": "r"}  # several factors per agent, in several connected parts

Outcomes = dict[str, float]


class Case:
    """A team, the agents of the same problem, and the outcomes of points."""

    def __init__(
        self,
        scopes: Mapping[str, list[str]] = RING,
        owners: Mapping[str, str] | None = None,
        *,
        outcomes: Any = "per-factor",
        links: "nx.Graph[str] | None" = None,
        fails: Callable[[dict[str, float]], set[str]] = lambda u: set(),
        bent: Callable[[float, list[float]], float] = lambda y, own: y,
        variable_owners: Mapping[str, str] | None = None,
        types: Mapping[str, Any] | None = None,
        constraints: Sequence[Any] = (),
        no_go: Sequence[Any] = (),
        **given: Any,
    ) -> None:
        self.graph = sb.FactorGraph.from_scopes(scopes, owners, variable_owners)
        bounds = {variable: (float(i) - 1.0, float(i) + 2.0) for i, variable in enumerate(self.graph.variables)}
        problem = Problem.of(self.graph, bounds | dict(types or {}), outcomes=outcomes)
        self.problem = problem.with_constraints(constraints).with_no_go(no_go)
        self.given: dict[str, Any] = {"coordination": SMALL, "seed": SEED, "initial": INITIAL} | given
        self.team, self.links, self.fails, self.bent = sb.Team(self.problem, **self.given), links, fails, bent
        self.agents = {name: self.agent(name) for name in self.problem.agents}
        self.transport = Recording(InProcess().open(self.problem.agents, links).routes)

    def agent(self, name: str) -> Agent:
        """An agent that shares no object with the others."""
        problem = Problem.from_plain(json.loads(json.dumps(self.problem.to_plain())))
        return Agent(name, problem, links=self.links, **self.given)

    def outcomes(self, point: Mapping[str, Any]) -> Outcomes:
        place = self.problem.domain.to_unit(self.problem.placed(point))
        u = dict(zip(self.graph.variables, place.tolist(), strict=True))
        failed = self.fails(u)
        out: Outcomes = {}
        for i, (factor, (first, *rest)) in enumerate(zip(self.graph.factors, self.graph.scopes, strict=True)):
            value = np.sin(5.0 * u[first] + i) + 10.0 ** (i % 3) * sum((u[x] - 0.7 * u[first]) ** 2 for x in rest)
            out[factor] = np.nan if factor in failed else self.bent(float(value), [u[x] for x in (first, *rest)])
        return out

    def ask_all(self, count: int | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Ask team and agents, and check that their queries are equal."""
        queries = [self.team.ask(links=self.links)] if count is None else self.team.ask(count, links=self.links)
        names = {json.dumps(agent.ask(count)) for agent in self.agents.values()}
        assert names == {json.dumps(queries[0].id if count is None else [query.id for query in queries])}
        run(self.agents, self.transport)
        points = [(query.id, self.point(query.id)) for query in queries]
        assert points == [(query.id, query.point) for query in queries]
        return points

    def point(self, query_id: str) -> dict[str, Any]:
        """The point that the agents' decisions form, in the order of the graph."""
        decided = {x: value for agent in self.agents.values() for x, value in (agent.decision(query_id) or {}).items()}
        return {variable: decided[variable] for variable in self.graph.variables}

    def tell(
        self, query_id: str, outcomes: Outcomes, point: Mapping[str, Any] | None = None, noise: Any = None
    ) -> None:
        """Tell the team all outcomes, and the agents their own outcomes and places (or the first agent the total)."""
        if self.problem.outcomes == "total":
            for one in (self.team, self.agents[self.problem.agents[0]]):
                one.tell(query_id, sum(outcomes.values()), noise_std=noise)
            return
        self.team.tell(query_id, outcomes, point=point, noise_std=noise)
        for name, agent in self.agents.items():
            if own := {factor: y for factor, y in outcomes.items() if self.graph.owner(factor) == name}:
                place = None if point is None else {x: point[x] for x in self.graph.variables_owned_by(name)}
                stds = None if noise is None else {factor: noise[factor] for factor in own if factor in noise}
                agent.tell(query_id, own, point=place, noise_std=stds)

    def attach(self, X: Any, F: np.ndarray, noise: np.ndarray | None = None) -> None:
        """Attach earlier evaluations: all outcomes to the team, and their own (or the totals) to agents."""
        is_total = self.problem.outcomes == "total"
        for one in (self.team, *self.agents.values()):
            columns = [self.graph.factors.index(factor) for factor in getattr(one, "factors", self.graph.factors)]
            stds = noise if noise is None or is_total else noise[:, columns]
            one.attach(X, F.sum(axis=1) if is_total else F[:, columns], noise_std=stds)

    def recommended(self) -> sb.Recommendation | None:
        """Recommendation of the team, which the agents must share."""
        wanted = self.team.recommend()
        for found in recommended_by(self.agents, self.transport):
            if wanted is None:
                assert found is None
                continue
            assert found is not None
            assert (found.location, found.point) == (wanted.location, wanted.point)
            assert (found.mean, found.std) == pytest.approx((wanted.mean, wanted.std), rel=1e-9)
        return wanted

    def play(self, rounds: int, count: int | None = None) -> None:
        for _ in range(rounds):
            for query_id, point in self.ask_all(count)[::-1]:  # tell in the reverse order
                self.tell(query_id, self.outcomes(point))


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace outcomes that an agent does not know by nonsense."""
    monkeypatch.setattr(rows, "PRIVATE_OUTCOME", 77.0)


def lost(where: str, which: set[str]) -> Callable[[dict[str, float]], set[str]]:
    return lambda u: which if u[where] > 0.45 else set()


SHUT = sb.NoGoBall(variables=("a",), centre=(0.5,), radius=0.6)
APART = sb.NoGoBox(variables=("c", "a"), low=(1.5, -1.0), high=(3.5, 0.8))  # no factor has both variables
PRESENT = {"start": {"a": 1.4, "b": 0.6, "c": 3.7}, "initial": 1}
CASES: list[Any] = [
    pytest.param({"acquisition": "auto"}, id="auto", marks=SLOW),
    pytest.param({"scopes": {"f": ["a", "b"], "g": ["b", "c"]}, "no_go": [SHUT, APART]}, id="regions"),
    pytest.param({"scopes": PAIRS, "no_go": [APART]}, id="a region over two separate parts"),
    pytest.param({**PRESENT, "step_limit": 0.45}, id="near the present setting", marks=SLOW),
    pytest.param({**PRESENT, "step_limit": 0.45, "outcomes": "total"}, id="totals, near the present setting"),
    pytest.param({**PRESENT, "safe": {"share": 0.9}}, id="safe"),
    pytest.param({**PRESENT, "safe": {"share": 0.9}, "outcomes": "total"}, id="totals, safe", marks=SLOW),
    pytest.param({"acquisition": "auto", "scopes": PAIRS}, id="auto, separate parts", marks=SLOW),
    pytest.param({"acquisition": "auto", "scopes": PAIRS, "rounds": INITIAL + 2}, id="auto, the last round"),
    pytest.param({"acquisition": "auto", "scopes": {"f": ["a", "b"]}}, id="auto, one factor", marks=THOROUGH),
    pytest.param({"acquisition": "auto", "belief": FADING}, id="auto, fading", marks=THOROUGH),
    pytest.param({"acquisition": "auto", "scopes": PARTS, "owners": OWNERS}, id="auto, several parts"),
    pytest.param({"acquisition": "dumbo"}, id="dumbo", marks=SLOW),
    pytest.param({"acquisition": sb.DuMBO(coupled=True)}, id="coupled dumbo"),
    pytest.param({"acquisition": "dec-hbo"}, id="dec-hbo", marks=SLOW),
    pytest.param({"acquisition": "dec-hbo", "coordination": sb.RefinedMaxSum(points=4, levels=2)}, id="by max-sum"),
    pytest.param(
        {"acquisition": "dec-hbo", "coordination": sb.RefinedMaxSum(points=4, levels=2), "scopes": PAIRS},
        id="by max-sum, separate parts",
        marks=SLOW,
    ),
    pytest.param(
        {"acquisition": "auto", "coordination": sb.RefinedDSA(points=4, levels=2), "scopes": PAIRS},
        id="auto by dsa, separate parts",
        marks=THOROUGH,
    ),
    pytest.param({"acquisition": "thompson"}, id="thompson", marks=THOROUGH),
    pytest.param({"acquisition": "expected-improvement"}, id="expected improvement"),
    pytest.param({"acquisition": "add-gp-ucb", "scopes": PAIRS}, id="add-gp-ucb"),
    pytest.param({"acquisition": "egp-ts", "belief": ENSEMBLE}, id="egp-ts", marks=SLOW),
    pytest.param({"acquisition": "egp-ei", "belief": ENSEMBLE}, id="egp-ei"),
    pytest.param({"coordination": "sobol"}, id="sobol", marks=SLOW),
    pytest.param({"acquisition": "auto", "outcomes": "total", "links": LINE}, id="totals, relayed"),
    pytest.param(
        {"acquisition": "dec-hbo", "outcomes": "total", "links": LINE}, id="totals by dec-hbo, relayed", marks=SLOW
    ),
    pytest.param({"acquisition": "dec-hbo", "outcomes": "total", "belief": SAMPLED}, id="totals, sampled scopes"),
]


FAILING: list[Any] = [
    pytest.param({"fails": lost("a", {"f"})}, id="failures of one factor", marks=SLOW),
    pytest.param(
        {"fails": lost("a", {"f"}), "acquisition": "thompson", "belief": FADING}, id="failures, fading", marks=SLOW
    ),
    pytest.param(
        {"fails": lost("b", {"f", "g", "h"}), "acquisition": "thompson"}, id="failures of all factors", marks=SLOW
    ),
    pytest.param(
        {"fails": lost("b", {"f", "g", "h"}), "acquisition": "dumbo"}, id="failures of all factors, dumbo", marks=SLOW
    ),
    pytest.param({"fails": lambda u: {"g"}, "acquisition": "expected-improvement"}, id="constant failures", marks=SLOW),
    pytest.param(
        {"fails": lost("c", {"g"}), "acquisition": "egp-ei", "belief": ENSEMBLE}, id="failures, egp-ei", marks=SLOW
    ),
    pytest.param({"fails": lost("d", {"g"}), "scopes": PAIRS}, id="failures, separate parts", marks=SLOW),
    pytest.param({"fails": lambda u: {"g"}, "scopes": PAIRS}, id="constant failures, separate parts"),
    pytest.param({"fails": lost("e", {"h", "k"}), "scopes": PARTS, "owners": OWNERS}, id="failures of a part"),
    pytest.param({"fails": lost("a", {"f"}), "outcomes": "total"}, id="failures of totals", marks=SLOW),
    pytest.param(
        {"fails": lost("a", {"f"}), "belief": sb.AdditiveGPSettings(restarts=2), "acquisition": "dec-hbo"},
        id="random starts of fits",
        marks=SLOW,
    ),
]


def plateau(y: float, own: list[float]) -> float:
    return min(y, 0.9)


def in_steps(y: float, own: list[float]) -> float:
    return float(round(y))


def of_single_variables(y: float, own: list[float]) -> float:
    return -sum((x - 0.3 - 0.1 * i) ** 2 for i, x in enumerate(own))


TWO = {"f": ["a", "b", "c"], "g": ["d", "e"]}
GRID = {"a": sb.Integer(0, 5)}
LONE = {"f": ["a", "b"]}
CHOICE = {"b": sb.Categorical(("p", "q"))}
SOON = sb.Auto(restarts=Restarts(after=2, gain=10.0, fresh=2))  # restarts after two evaluations
# outcomes with which owners split factors or converge at different times
UNEVEN: list[Any] = [
    pytest.param({"scopes": PAIRS, "bent": plateau, "seed": 2}, None, 15, id="a plateau, split after 13"),
    pytest.param({"scopes": LONE, "seed": 160, "belief": MATERN}, 2, 13, id="split, then joined again"),
    pytest.param(
        {"scopes": CHAIN, "bent": of_single_variables, "seed": 65, "types": GRID}, None, 6, id="a grid", marks=SLOW
    ),
    pytest.param({"scopes": PAIRS, "bent": in_steps, "seed": 43}, 3, 10, id="steps", marks=SLOW),
    pytest.param(
        {"scopes": TWO, "owners": {"f": "p", "g": "q"}, "bent": of_single_variables, "seed": 51, "rounds": 22},
        2,
        18,
        id="sums of all factors",
        marks=THOROUGH,
    ),
    pytest.param(
        {"scopes": PARTS, "owners": OWNERS, "bent": in_steps, "acquisition": "dumbo", "seed": 146},
        3,
        16,
        id="equally good points",
        marks=SLOW,
    ),
]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("given", "count", "rounds"), UNEVEN)
def test_agents_decide_as_the_team_does_while_owners_learn_different_models(
    given: dict[str, Any], count: int | None, rounds: int, request: pytest.FixtureRequest
):
    whole: dict[str, Any] = {"acquisition": "auto", "coordination": LARGER, "initial": 4} | given
    case, was_split = Case(**whole), False
    for _ in range(rounds):
        case.play(1, count)
        was_split |= case.team.n_data > 0 and bool(case.team.model.learned.splits)
    assert was_split or "split" not in request.node.callspec.id
    case.recommended()


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """A random problem and its settings."""
    some: list[tuple[Mapping[str, list[str]], Mapping[str, str] | None]] = [
        (PAIRS, None), (LONE, None), (RING, None), (CHAIN, None), (PARTS, OWNERS), (TWO, {"f": "p", "g": "q"}),
    ]  # fmt: skip
    scopes, owners = some[rng.integers(len(some))]
    given: dict[str, Any] = {"scopes": scopes, "owners": owners, "acquisition": "auto"}
    bents = (plateau, in_steps, of_single_variables, lambda y, own: 1.0, lambda y, own: y)
    given["bent"] = bents[rng.integers(len(bents))]
    if rng.random() < 0.2:
        given["acquisition"] = ("thompson", "expected-improvement", "dumbo", "dec-hbo")[rng.integers(4)]
    if rng.random() < 0.2:
        given["fails"] = lost("a", {"f"})
    if rng.random() < 0.2:
        given["no_go"] = [SHUT]
    if rng.random() < 0.2:
        given["types"] = GRID
    return given | ({"rounds": 22} if rng.random() < 0.3 else {})


@pytest.mark.slow
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 10, 11])  # 6 of 12 seeds, which cover all kinds of problems
def test_agents_decide_as_the_team_does_for_random_problems(seed: int):
    rng = np.random.default_rng(seed)
    case = Case(**drawn(rng), seed=seed, coordination=LARGER, initial=4)
    for _ in range(8):
        case.play(1, (None, 1, 2, 3)[rng.integers(4)])
        if rng.random() < 0.2:
            case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    case.recommended()


@pytest.mark.parametrize("is_attached", [True, False])
def test_a_point_told_before_its_outcomes_enters_the_history_with_them(is_attached: bool):
    case = Case(scopes={"f": ["a", "b"], "g": ["b", "c"]}, acquisition="auto")
    (first, point), *_ = case.ask_all(1)
    for name, agent in case.agents.items():
        agent.tell(first, {}, point={x: point[x] for x in case.graph.variables_owned_by(name)})
    if is_attached:
        case.attach(case.problem.domain.from_unit(np.full((1, 3), 0.4)), np.ones((1, 2)))
    else:
        case.play(1)
    case.tell(first, case.outcomes(point))
    case.play(5)
    case.ask_all()  # now all agents know all evaluations
    assert all((agent.log.history.X == case.team.history.X).all() for agent in case.agents.values())


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("given", CASES + FAILING)
def test_agents_that_know_only_their_own_outcomes_decide_as_the_team_does(given: dict[str, Any]):
    case = Case(**given)
    for turn in range(INITIAL + (4 if "fails" in given else 2)):  # with failures, until a second fit is due
        case.play(1)
        sent = sent_by(case.agents)
        assert sent == case.team.sent, turn
        assert sent.get("news", Traffic()) == case.team.last_sharing
    assert case.transport.traffic.messages > 0
    assert (case.team.failures > 0) == ("fails" in given)
    if case.problem.outcomes == "total" or "fails" in given:
        case.ask_all()  # now all agents know all evaluations; totals come from the first agent
        assert {agent.log.failures for agent in case.agents.values()} == {case.team.failures}
    if case.problem.outcomes == "total":
        for agent in case.agents.values():
            np.testing.assert_array_equal(agent.log.history.totals, case.team.history.totals)


@pytest.mark.slow
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("seed", "given"),
    [
        pytest.param(3, {"no_go": [APART]}, id="a region, and boxes of owners"),
        pytest.param(4, {"no_go": [APART]}, id="a region, and a factor that is a sum over its variables"),
        pytest.param(4, {"fails": lost("a", {"f", "g"})}, id="a factor whose best outcome is repeated"),
    ],
)
def test_agents_decide_as_their_team_does_after_many_rounds(seed: int, given: dict[str, Any]):
    Case(acquisition="auto", scopes=PAIRS, seed=seed, **given).play(18)


@pytest.mark.usefixtures("poisoned")
def test_agents_decide_as_their_team_does_while_a_part_makes_no_progress(monkeypatch: pytest.MonkeyPatch):
    """An agent knows the progress only of its own parts, by sums over their agents."""
    monkeypatch.setattr("swarmbo.acquisition.auto._IDLE", 2)
    case = Case(PARTS, OWNERS, acquisition="auto", initial=2)
    for turn in range(14):
        ((query_id, point),) = case.ask_all(1)
        case.tell(query_id, case.outcomes(point) | {"f": float(turn), "g": -2.0 * turn})


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("count", [None, 2])
def test_agents_decide_as_their_team_does_with_a_different_kernel_for_each_factor(count: int | None):
    def smooth_or_rough(y: float, own: list[float]) -> float:
        first, *others = own
        return math.cos(3.0 * first + others[0] * first) if others else -abs(first - 0.45)

    case = Case({"f": ["a", "b"], "g": ["c"]}, acquisition="auto", initial=14, bent=smooth_or_rough)
    case.play(18 if count is None else 9, count)
    assert [form.kernel for form in case.team.model.learned.forms] == ["rbf", None]
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    case.play(2, count)
    case.recommended()


@pytest.mark.usefixtures("poisoned")
def test_agents_decide_as_their_team_does_when_the_search_of_one_factor_restarts():
    """A factor with a categorical variable is never split, and only unsplit factors restart."""
    case = Case(LONE, types=CHOICE, acquisition=SOON, initial=4, seed=2)
    case.play(8)
    assert case.team.model.learned.restarted_at == 6


def test_with_totals_agents_follow_the_policy_of_a_team():
    pytest.importorskip("cma")
    Case(outcomes="total", acquisition="dec-hbo", coordination="cma-es").play(INITIAL + 2)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("outcomes", ["per-factor", pytest.param("total", marks=SLOW)])
def test_agents_decide_as_their_team_does_with_many_factors(outcomes: str, monkeypatch: pytest.MonkeyPatch):
    """Hyper-parameters are tied by the number of all factors, not of the factors that an agent sees."""
    monkeypatch.setattr("swarmbo.belief.gp.prior.TIED_FROM", len(RING))
    monkeypatch.setattr("swarmbo.acquisition.auto._MANY", 2)
    Case(acquisition="auto", outcomes=outcomes, fails=lost("a", {"f"})).play(INITIAL + 2)


@pytest.mark.usefixtures("poisoned")
def test_agents_continue_the_initial_design_while_all_totals_are_equal_as_the_team_does():
    case = Case(outcomes="total", bent=lambda y, own: 2.0, initial=4)
    case.play(7)
    assert not case.team.history.chosen.any()
    assert not any(agent._log.history.chosen.any() for agent in case.agents.values())


@pytest.mark.parametrize(
    ("given", "larger"),
    [
        pytest.param({"acquisition": "auto", "fails": lost("a", {"f"})}, 3, id="auto"),
        pytest.param({"acquisition": "thompson", "fails": lost("a", {"f"})}, 3, id="thompson", marks=SLOW),
        pytest.param(
            {"acquisition": "expected-improvement", "scopes": PARTS, "owners": OWNERS}, 4, id="parts of several agents"
        ),
    ],
)
def test_batches_are_chosen_as_the_team_does(given: dict[str, Any], larger: int):
    case = Case(**given)
    case.play(1, 2)
    case.play(2, larger)


@pytest.mark.usefixtures("poisoned")
def test_outcomes_may_be_told_in_parts_late_and_at_other_places():
    case = Case(PARTS, OWNERS, acquisition="auto")
    case.play(INITIAL)
    slow: list[tuple[str, dict[str, float]]] = []
    for turn in range(4):
        ((query_id, point),) = case.ask_all()
        outcomes = case.outcomes(point)
        if turn % 2:
            middle = dict(zip(case.graph.variables, case.problem.domain.low + 1.5, strict=True))
            moved = {x: value + (1e-3 if value < middle[x] else -1e-3) for x, value in point.items()}
            case.tell(query_id, outcomes, moved)
        else:
            case.tell(query_id, {factor: outcomes[factor] for factor in ("f", "k")})  # q tells one of its two
            slow.append((query_id, {factor: outcomes[factor] for factor in ("g", "h", "m")}))
        if turn == 2:
            case.tell(*slow.pop(0))
    case.play(1)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("outcomes", ["per-factor", pytest.param("total", marks=THOROUGH)])
def test_attached_evaluations_are_used_as_by_the_team(outcomes: str):
    case = Case(acquisition="auto", outcomes=outcomes)
    X = case.problem.domain.from_unit(np.random.default_rng(0).random((6, 3)))
    F = np.array([list(case.outcomes(dict(zip("abc", x, strict=True))).values()) for x in X])
    F[2, 1], F[4] = np.nan, np.nan
    case.attach(X, F)
    ((query_id, _),) = case.ask_all()
    case.team.tell(query_id, None)
    for name, agent in case.agents.items():
        if outcomes == "per-factor" or name == case.problem.agents[0]:
            agent.tell(query_id, None)
    case.ask_all(2)
    assert {len(agent.log.points) for agent in case.agents.values()} == {9}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="ring", marks=SLOW),
        pytest.param({"scopes": PAIRS}, id="separate parts", marks=SLOW),
        pytest.param({"scopes": PARTS, "owners": OWNERS, "fails": lost("e", {"h", "k"})}, id="parts, failures"),
        pytest.param({"belief": FADING, "acquisition": "thompson"}, id="fading"),
        pytest.param({"belief": ENSEMBLE, "acquisition": "egp-ei", "scopes": PAIRS}, id="ensemble", marks=THOROUGH),
        pytest.param({"acquisition": "auto", "outcomes": "total", "links": LINE}, id="totals, relayed"),
    ],
)
def test_agents_recommend_the_same_as_the_team(given: dict[str, Any]):
    case = Case(**given)
    assert case.recommended() is None
    case.play(INITIAL + 1)
    assert case.recommended() is not None
    decided = [agent.decision() for agent in case.agents.values()]
    assert None not in decided  # the last decision is still available
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    assert None not in [agent.recommended() for agent in case.agents.values()]
    ((query_id, point),) = case.ask_all()  # decisions do not depend on recommendations
    pending = case.recommended()
    case.ask_all()
    assert "belief" in given or case.recommended() == pending  # with a time axis, the round counts
    case.tell(query_id, case.outcomes(point))
    case.recommended()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("types", [{}, {"b": sb.Categorical(["u", "v", "w"])}])
def test_values_that_failed_together_are_not_recommended_together(types: dict[str, Any]):
    case = Case(PAIRS, types=types)
    X = [[a, "v" if types else 0.5, c, 3.5] for a, c in ((0.0, 1.0), (0.0, 3.0), (2.0, 1.0), (2.0, 3.0), (1.0, 2.0))]
    F = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [np.nan, np.nan], [0.6, 0.7]])
    case.attach(X, F)
    found = case.recommended()
    assert found is not None
    assert list(found.point.values()) == X[4]  # the best sum without a failure
    assert found.mean == pytest.approx(1.3, abs=0.05)


def test_an_agent_continues_a_recommendation_from_its_state():
    case = Case(acquisition="dec-hbo")
    case.play(INITIAL)
    wanted = case.team.recommend()
    assert wanted is not None
    for agent in case.agents.values():
        agent.recommend()
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    run(case.agents, case.transport)
    assert [agent.recommended() for agent in case.agents.values()] == [case.agents["a"].recommended()] * 3
    first = case.agents["a"].recommended()
    assert first is not None
    assert first.point == wanted.point


@pytest.mark.parametrize("outcomes", ["per-factor", "total"])
def test_evaluations_attached_without_a_round_get_the_last_round_as_in_a_team(outcomes: str):
    case = Case(acquisition="dec-hbo", belief=FADING, outcomes=outcomes, initial=1)
    case.ask_all(2)  # no outcome is told, and the round is now 2
    X, F = case.problem.domain.from_unit(np.random.default_rng(0).random((3, 3))), np.arange(9.0).reshape(3, 3)
    case.attach(X, F)
    case.ask_all()
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.rounds, case.team.history.rounds)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("outcomes", "acquisition"),
    [
        ("per-factor", "auto"),
        ("total", "auto"),
        pytest.param("total", "egp-ei", marks=THOROUGH),
        pytest.param("per-factor", "egp-ei", marks=SLOW),
    ],
)
def test_known_noise_is_used_as_by_the_team(outcomes: str, acquisition: str):
    belief = ENSEMBLE if acquisition == "egp-ei" else sb.AdditiveGPSettings()
    case, is_total = Case(acquisition=acquisition, belief=belief, outcomes=outcomes), outcomes == "total"
    X = case.problem.domain.from_unit(np.random.default_rng(0).random((4, 3)))
    F = np.array([list(case.outcomes(dict(zip("abc", x, strict=True))).values()) for x in X])
    noise = np.array([[0.5, np.nan, 0.0], [0.1, 0.2, 0.3], [np.nan] * 3, [1.0, 2.0, 0.1]])
    case.attach(X, F, noise[:, 0] if is_total else noise)
    for turn in range(3):
        ((query_id, point),) = case.ask_all()
        case.tell(query_id, case.outcomes(point), noise=0.2 * turn if is_total else {"f": 0.3, "g": 0.0})
    case.ask_all()
    for agent in case.agents.values():
        mine = [0] if is_total else [1 + case.graph.factors.index(factor) for factor in agent.factors]
        np.testing.assert_array_equal(agent.log.history.known_noise[:, mine], case.team.history.known_noise[:, mine])


QUICK = ("auto, several parts", "coupled dumbo")
ALSO = ("regions", "totals, near the present setting", "by max-sum", "egp-ei", "totals, relayed", "thompson")
EACH = [
    case if case.id in QUICK else pytest.param(*case.values, id=case.id, marks=THOROUGH if case.id in ALSO else SLOW)
    for case in CASES
]


@pytest.mark.parametrize("given", EACH)
def test_messages_of_an_agent_depend_only_on_its_outcomes_and_its_inbox(given: dict[str, Any]):
    """A separate copy of an agent sends the same bytes if it gets the same outcomes and inboxes."""
    case = Case(**given)
    alone = {name: case.agent(name) for name in case.agents}
    for _ in range(INITIAL + 1):
        case.transport.delivered.clear()
        ((query_id, point),) = case.ask_all()
        outcomes = case.outcomes(point)
        for name, agent in alone.items():
            agent.ask()
            require_same_messages(case, agent)
            if case.problem.outcomes == "per-factor" and agent.factors:
                agent.tell(query_id, {factor: outcomes[factor] for factor in agent.factors})
            elif name == case.problem.agents[0]:
                agent.tell(query_id, sum(outcomes.values()))
        case.tell(query_id, outcomes)


@pytest.mark.parametrize("tick_of_state", [11, *(pytest.param(tick, marks=pytest.mark.slow) for tick in (1, 25, 37))])
def test_an_agent_continues_from_its_state_at_any_tick(tick_of_state: int):
    case = Case(fails=lost("a", {"f"}), acquisition="thompson")
    case.play(INITIAL + 1)
    ((query_id, point),) = case.ask_all()
    case.tell(query_id, case.outcomes(point))
    queries = case.team.ask(2)
    for agent in case.agents.values():
        agent.ask(2)
    assert ticked_to_the_end(case, saved_at=tick_of_state) > 40
    assert [case.point(query.id) for query in queries] == [query.point for query in queries]
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}
    assert [case.point(query.id) for query in queries] == [query.point for query in queries]
    case.tell(queries[1].id, case.outcomes(queries[1].point))
    case.agents = {name: copied(agent) for name, agent in case.agents.items()}  # after an outcome that is not yet sent
    case.play(1)


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_agents_tolerate_other_paces_and_late_repeated_and_reordered_messages(seed: int):
    """Each agent is asked again as soon as it has decided and knows its outcome, independently of the others."""
    case = Case(acquisition="expected-improvement")
    case.play(INITIAL)
    rng, rounds = np.random.default_rng(seed), 3
    points = []
    for _ in range(rounds):
        query = case.team.ask()
        points.append((query.id, query.point))
        case.team.tell(query, case.outcomes(query.point))
    decisions: dict[str, list[dict[str, float] | None]] = {name: [] for name in case.agents}
    queries = dict.fromkeys(case.agents, "")
    in_transit: list[Envelope] = []
    while any(len(made) < rounds for made in decisions.values()):
        name = str(rng.choice(list(case.agents)))
        agent = case.agents[name]
        if agent.is_finished and len(decisions[name]) < rounds:
            queries[name] = agent.ask()
        take = [i for i, e in enumerate(in_transit) if e.recipient == name and rng.random() < 0.7]
        inbox = [in_transit[i] for i in rng.permutation(take)] if take else []
        repeated = [e for e in inbox if rng.random() < 0.2]
        in_transit = [e for i, e in enumerate(in_transit) if i not in take]
        in_transit += agent.tick(0.0, [*inbox, *repeated])
        if queries[name] and agent.is_finished and len(decisions[name]) < rounds:
            decision = agent.decision(queries[name])
            decisions[name].append(decision)
            outcomes = case.outcomes(points[len(decisions[name]) - 1][1])
            agent.tell(queries[name], {factor: outcomes[factor] for factor in agent.factors})
            queries[name] = ""
    for turn, (_, point) in enumerate(points):
        found = {x: value for made in decisions.values() for x, value in (made[turn] or {}).items()}
        assert found == point


@pytest.mark.parametrize("given", [{"acquisition": "auto"}, {"acquisition": sb.DuMBO(coupled=True)}])
def test_only_neighbours_send_messages_and_sums_follow_a_tree(given: dict[str, Any]):
    """Neighbours are agents whose factors share a variable."""
    case = Case(CHAIN, variable_owners=CHAIN_OWNERS, links=nx.path_graph(["a", "b", "c", "d"]), **given)
    touched = {
        name: {x for f in case.graph.factors_owned_by(name) for x in case.graph.scope(f)} for name in case.agents
    }
    for turn in range(INITIAL + 2):
        case.transport.delivered.clear()
        case.play(1)
        inboxes = [inbox for step in case.transport.delivered for inbox in step.values()]
        assert all(touched[e.sender] & touched[e.recipient] for inbox in inboxes for e in inbox)
        traffic_by_purpose = sent_by(case.agents)
        news = traffic_by_purpose["news"] if turn else Traffic()
        assert case.team.last_report is not None
        assert case.team.last_report.traffic == sum(traffic_by_purpose.values(), Traffic()) - news
        if turn >= INITIAL:
            sums = [traffic_by_purpose[purpose] for purpose in ("news", "ranking", "point")]
            assert {traffic.messages for traffic in sums} == {2 * (len(case.agents) - 1)}
            assert traffic_by_purpose["ranking"].bytes <= traffic_by_purpose["ranking"].messages * (8 * turn + 52)


def test_a_lost_message_stops_the_agents_that_wait_for_it_and_changes_no_other_decision():
    def decided(lost: int | None) -> tuple[dict[str, float], int]:
        case, n_messages = Case(acquisition="auto"), 0
        case.play(INITIAL)
        query = {agent.ask() for agent in case.agents.values()}.pop()
        inboxes = {name: list[Envelope]() for name in case.agents}
        while inboxes:
            sent = [e for name, inbox in inboxes.items() for e in case.agents[name].tick(0.0, inbox)]
            inboxes = {}
            for envelope in sent:
                if n_messages != lost:
                    inboxes.setdefault(envelope.recipient, []).append(envelope)
                n_messages += 1
        decisions = [agent.decision(query) or {} for agent in case.agents.values()]
        return {variable: value for decision in decisions for variable, value in decision.items()}, n_messages

    point, n_messages = decided(None)
    assert set(point) == {"a", "b", "c"}
    for lost in (0, 17, n_messages - 2):
        partial, n_sent = decided(lost)
        assert lost < n_sent <= n_messages
        assert partial.items() < point.items()


def test_a_lost_message_raises_an_error_after_the_patience():
    case = Case()
    case.play(INITIAL)
    for agent in case.agents.values():
        agent.patience = 10.0
        agent.ask()
    a, b, _ = case.agents.values()
    sent = a.tick(100.0) + b.tick(100.0)
    assert sent
    assert a.tick(110.0) == []
    with pytest.raises(
        TransportError, match=rf"'a' waits for \d+ messages of decision {INITIAL + 1}, .* was one lost\?"
    ):
        a.tick(110.5)
    assert a.decision() is None
    a.tick(200.0, [envelope for envelope in sent if envelope.recipient == "a"])  # late messages are still accepted


def named_by_number(agent: Agent) -> None:
    agent.participants = 5  # type: ignore[assignment]
    agent.ask()


def without(state: dict[str, Any], part: str) -> dict[str, Any]:
    return state | {"json": {name: value for name, value in state["json"].items() if name != part}}


def refusals() -> Iterator[tuple[str, Callable[[Agent], object], type[Exception], str]]:
    yield "stranger", lambda a: Agent("z", a.problem), ConfigError, r"got agent 'z'; wanted one of \['a', 'b', 'c'\]"
    yield "graph", lambda a: Agent("a", a.problem.graph), ConfigError, "got a FactorGraph; wanted a Problem"  # type: ignore[arg-type]
    for patience in (-1.0, math.nan, "5"):
        yield (
            f"patience {patience}",
            lambda a, patience=patience: Agent("a", a.problem, patience=patience),
            ConfigError,
            f"patience: got {patience!r}; wanted a number >= 0",
        )
        yield (
            f"later {patience}",
            lambda a, patience=patience: setattr(a, "patience", patience),
            ConfigError,
            f"patience: got {patience!r}; wanted a number >= 0",
        )
    yield "base", lambda a: Agent("a", a.problem, has_base="x"), ConfigError, "has_base: got 'x'; wanted True or False"
    yield "participants", named_by_number, ConfigError, r"\$\.participants: got 5; wanted Participants, or None"
    yield "policy", lambda a: Agent("a", a.problem, coordination="cma-es"), ConfigError, "needs all outcomes"
    yield "one place", lambda a: Agent("a", a.problem, coordination="centralised"), ConfigError, "decides centrally"
    yield "limits", lambda a: Agent("a", a.problem, limits={"load": (None, 1.0)}), ConfigError, "wanted a Team, as"
    yield "outcomes", lambda a: Agent("a", a.problem, outcomes="total"), ConfigError, "wanted none, as the Problem"
    yield "argument", lambda a: Agent("a", a.problem, bound=1), ConfigError, "wanted some of belief, acq"
    yield "faults", lambda a: Agent("a", a.problem, transport=sb.Faults()), ConfigError, "as agents use real links"
    yield "links", lambda a: Agent("a", a.problem, links=nx.DiGraph()), ConfigError, "got a directed graph"
    yield "foreign", lambda a: a.tell("q00001", {"g": 1.0}), ConfigError, r"got \['g'\]; wanted only its own: \['f'\]"
    yield "text", lambda a: a.tell("q00001", {"f": "much"}), ShapeError, "got 'much'; wanted a number"  # type: ignore[dict-item]
    yield "place", lambda a: a.tell("q00001", 1.0, point={"b": 0.0}), ConfigError, r"got \['b'\]; wanted only its own"
    yield ("bounds", lambda a: a.tell("q00001", 1.0, point={"a": 9.0}), ConfigError, r"\.a: got 9.0; wanted a number")
    yield "shape", lambda a: a.attach(np.ones((1, 3)), [[1.0, 2.0]]), ShapeError, r"or \(t, 1\), of the agent"
    yield "rounds", lambda a: a.attach(np.ones((1, 3)), [[1.0]], rounds=1.0), ShapeError, "without a time axis"
    yield "count", lambda a: a.ask(0), ConfigError, "got 0"
    yield "twice", lambda a: [a.tell("q00001", 1.0), a.ask(), a.ask()], ConfigError, "'a' is deciding"
    yield "number", lambda a: a.give_up("q00001"), ConfigError, "got 'q00001'; wanted an integer >= 0"  # type: ignore[arg-type]
    yield "word", lambda a: a.decision("q00007"), UnknownQueryError, "got query 'q00007'; wanted one of the last ask"
    state = {"json": {"version": 0}, "arrays": {}}
    yield "state", lambda a: Agent.from_state_dict(state), StateVersionError, "version 0; wanted an agent's, 8"
    broken = r"\$\.state: got damaged or incomplete data \(.*\); wanted what `state_dict` of an agent returned"
    for lacking in ({}, {"json": []}, None):
        yield f"{lacking}", lambda a, lacking=lacking: Agent.from_state_dict(lacking), ConfigError, broken
        yield (
            f"remote {lacking}",
            lambda a, lacking=lacking: sb.RemoteAgent.from_state_dict(lacking),
            ConfigError,
            broken,
        )
    for part in ("name", "problem", "settings", "log", "learned", "own", "early"):
        yield part, lambda a, part=part: Agent.from_state_dict(without(a.state_dict(), part)), ConfigError, broken


@pytest.mark.parametrize(("act", "error", "message"), [pytest.param(*rest, id=name) for name, *rest in refusals()])
def test_invalid_arguments_of_an_agent_are_refused_in_one_line(
    act: Callable[[Agent], object], error: type[Exception], message: str
):
    case = Case()
    case.ask_all()
    with pytest.raises(error, match=message):
        act(case.agents["a"])


def test_an_agent_without_variables_may_tell_an_empty_point():
    case = Case({"f": ["x", "y"]}, {"f": "b"}, variable_owners={"x": "a", "y": "a"})
    ((query_id, point),) = case.ask_all()
    outcomes = case.outcomes(point)
    assert not case.agents["b"].variables
    case.agents["b"].tell(query_id, outcomes, point={})
    case.team.tell(query_id, outcomes)
    case.ask_all()
    assert case.agents["a"].log.history.X.tolist() == case.team.history.X.tolist()
    assert len(case.team.history) == 1


def test_the_place_of_variables_is_kept_until_an_outcome_arrives():
    """Even for an agent that sets a variable but owns no factor."""
    scopes, owners, setters = {"f": ["a", "b"], "g": ["b", "c"]}, {"f": "a", "g": "a"}, {"a": "a", "b": "a", "c": "c"}
    case = Case(scopes, owners, variable_owners=setters, acquisition="dec-hbo", initial=2)
    case.play(2)
    ((query_id, point),) = case.ask_all()
    moved = point | {"c": float(np.mean([case.problem.variables["c"].low, case.problem.variables["c"].high]))}
    case.agents["c"].tell(query_id, {}, point={"c": moved["c"]})
    case.team.tell(query_id, {}, point=moved)
    case.ask_all()
    assert case.team.pending[query_id] == moved  # later queries avoid this point
    for log in (case.team._log, *(agent.log for agent in case.agents.values())):
        np.testing.assert_array_equal(log.pending[0], case.problem.placed(moved))
    outcomes = case.outcomes(moved)
    case.team.tell(query_id, outcomes, point=moved)
    case.agents["a"].tell(query_id, outcomes)
    case.ask_all()
    for agent in case.agents.values():
        np.testing.assert_array_equal(agent.log.history.X, case.team.history.X)


def test_a_new_point_of_a_partly_known_query_moves_only_variables_without_outcomes():
    case = Case(scopes={"f": ["a", "b"], "g": ["c", "d"]}, acquisition="dec-hbo", initial=2)
    case.play(2)
    ((query_id, point),) = case.ask_all()
    outcomes, centre = case.outcomes(point), case.problem.domain.from_unit(np.full(4, 0.5)).tolist()
    for where in (dict(zip("abcd", centre, strict=True)), point):  # the second place has an outcome, so it is final
        outcomes_told = {"f": outcomes["f"]} if where is point else {}
        case.team.tell(query_id, outcomes_told, point=where)
        for agent in case.agents.values():
            own = {f: y for f, y in outcomes_told.items() if f in agent.factors}
            agent.tell(query_id, own, point={x: where[x] for x in agent.variables})
    case.ask_all()
    moved = point | {"d": centre[3]}
    case.team.tell(query_id, {}, point=moved)
    case.agents["d"].tell(query_id, {}, point={"d": centre[3]})
    case.ask_all()
    case.tell(query_id, {"g": outcomes["g"]})
    case.ask_all()
    for log in (case.team._log, *(agent.log for agent in case.agents.values())):
        np.testing.assert_array_equal(log.history.X[-1], case.problem.placed(moved))


def test_points_told_before_outcomes_do_not_change_the_order_of_queries():
    case = Case(scopes={"f": ["a", "b"], "g": ["b", "c"]}, acquisition="auto")
    *earlier, (last, _) = case.ask_all(3)
    moved = dict(zip("abc", case.problem.domain.from_unit(np.full(3, 0.3)).tolist(), strict=True))
    case.team.tell(last, {}, point=moved)
    for name, agent in case.agents.items():
        agent.tell(last, {}, point={x: moved[x] for x in case.graph.variables_owned_by(name)})
    case.team = sb.Team(case.problem, **case.given).load_state_dict(case.team.state_dict())
    case.ask_all()
    for query_id, point in [*earlier, (last, moved)]:
        case.tell(query_id, case.outcomes(point))
    case.play(INITIAL)
    case.ask_all()
    assert all((agent.log.history.X == case.team.history.X).all() for agent in case.agents.values())


@pytest.mark.parametrize("outcomes", ["per-factor", "total"])
def test_an_outcome_may_be_told_again_at_any_tick_of_a_decision(outcomes: str):
    case = Case(scopes={"f": ["a", "b"], "g": ["b", "c"]}, outcomes=outcomes, acquisition="dec-hbo")
    first, (waits, _) = case.ask_all(), case.ask_all()[0]
    case.tell(*first[0][:1], case.outcomes(first[0][1]))
    a, outcome = case.agents["a"], 2.0 if outcomes == "total" else {"f": 2.0}
    a.tell(waits, outcome)
    case.team.tell(waits, outcome)
    query = case.team.ask()
    inboxes: dict[str, list[Envelope]] = {name: [] for name in case.agents if case.agents[name].ask()}
    while inboxes:
        for name, inbox in inboxes.items():
            for envelope in case.agents[name].tick(0.0, inbox):
                case.transport.send(envelope)
            a.tell(waits, outcome)
            with pytest.raises(ConflictError, match="recorded before: 2"):
                a.tell(waits, 3.0 if outcomes == "total" else {"f": 3.0})
        inboxes = case.transport.deliver()
    assert case.point(query.id) == query.point


def test_a_decision_that_raises_an_error_leaves_the_agent_unchanged(monkeypatch: pytest.MonkeyPatch):
    case = Case({"f": ["a", "b"]}, {"f": "a"}, acquisition="dec-hbo")
    case.play(INITIAL)
    (agent,) = case.agents.values()
    since = {"words": {}, "turn": 0, "before": None}
    before = agent.state_dict()["json"] | since

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(sb.DECHBO, "local_functions", broken)
        agent.ask()
        with pytest.raises(ZeroDivisionError):
            agent.tick(0.0)
    assert agent.is_finished
    assert agent.state_dict()["json"] | since == before
    case.play(1)  # like the team, which had no error


@pytest.mark.parametrize("count", [None, 2])
def test_after_an_error_in_one_agent_all_give_up_the_decision_and_make_the_next(
    count: int | None, monkeypatch: pytest.MonkeyPatch
):
    case = Case({"f": ["a", "b"], "g": ["b", "c"]}, acquisition="dec-hbo", initial=1, coordination=QUICKEST)
    case.play(1)
    for agent in case.agents.values():
        agent.ask(count)

    def answer(self: Stages, request: Any) -> Any:
        return 1 / 0 if self.name == "c" else stages_answer(self, request)

    stages_answer = Stages.answer
    with monkeypatch.context() as patch:
        patch.setattr(Stages, "answer", answer)
        with pytest.raises(ZeroDivisionError):
            run(case.agents, case.transport)
    assert case.agents["c"].is_finished
    late = [e for inbox in case.transport.deliver().values() for e in inbox]
    for agent in case.agents.values():
        agent.give_up(1)
    for envelope in late:
        case.agents[envelope.recipient].tick(0.0, [envelope])
    case.play(1, count)


def test_decisions_with_outcomes_cannot_be_given_up():
    """Otherwise the next query would get the same id, and so the outcome."""
    case = Case(coordination="sobol")
    case.play(1)
    ((query_id, point),) = case.ask_all()
    agent = copied(case.agents["a"])
    for each in (agent, case.agents["a"]):
        each.tell(query_id, case.outcomes(point)["f"])
        with pytest.raises(ConfigError, match=r"got decisions of \['q00002'\], which have outcomes; wanted"):
            each.give_up(1)
        assert each.decision() == case.agents["a"].decision()


def test_only_the_first_agent_accepts_a_total():
    case = Case(outcomes="total")
    ((query_id, _),) = case.ask_all()
    with pytest.raises(ConfigError, match="got a total; wanted it given to 'a', which reports it to the others"):
        case.agents["b"].tell(query_id, 1.0)


def test_a_message_changed_in_transit_changes_no_state():
    case = Case()
    case.play(1)
    for agent in case.agents.values():
        agent.ask()
    a, b, _ = case.agents.values()
    good = [envelope for envelope in b.tick(0.0) if envelope.recipient == "a"]
    bad = good[0]._replace(payload=bytes([*good[0].payload[:-1], good[0].payload[-1] ^ 1]))
    a.tick(0.0)
    before = msgspec.json.encode(a.state_dict()["json"])
    twin = copied(a)
    with pytest.raises(TransportError, match=r"from 'b' to 'a': .* changed in transit"):
        a.tick(0.0, [*good, bad])
    assert msgspec.json.encode(a.state_dict()["json"]) == before
    assert a.tick(0.0, good) == twin.tick(0.0, good)  # intact messages may arrive again
    assert msgspec.json.encode(a.state_dict()["json"]) == msgspec.json.encode(twin.state_dict()["json"]) != before


def test_a_query_with_outcomes_in_parts_keeps_the_order_of_its_first_outcome() -> None:
    """All agents know evaluations in this order. A place without an outcome does not count."""
    own_rows = (
        rows.OwnRows().with_row("q1", rows.OwnRow(0, {"f": 1.0})).with_row("q2", rows.OwnRow(1, place={"a": 0.5}))
    )
    own_rows = own_rows.with_row("q3", rows.OwnRow(1, {"f": 2.0})).with_row("q1", rows.OwnRow(2, {"g": 3.0}))
    own_rows = own_rows.with_row("q2", rows.OwnRow(2, {"f": 4.0}))
    assert {name: (row.order, row.factors) for name, row in own_rows.by_query.items()} == {
        "q1": (0, {"f": 1.0, "g": 3.0}),
        "q2": (2, {"f": 4.0}),
        "q3": (1, {"f": 2.0}),
    }
