"""The team with a factor graph, through its public names only."""

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError, StateVersionError
from swarmbo_envs import function_v0, robot_team_v0
from swarmbo_envs.functions import AdditiveFunction

NAMES = ("x", "y", "z")
SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}
BOUNDS = {"x": (-1.0, 1.0), "y": (0.0, 10.0), "z": (100.0, 300.0)}


def situation_of(team):
    return team._learner.situation(team._log, None)


def factors_at(point):
    x, y, z = ((point[name] - low) / (high - low) for name, (low, high) in BOUNDS.items())
    return {"f": 3.0 - (x - 0.2) ** 2 - (x - y) ** 2, "g": 2.0 - (y - z) ** 2 - 0.5 * (z - 0.6) ** 2}


def total_at(point):
    return sum(factors_at(point).values())


def team_of(graph=None, **settings):
    given_graph = sb.FactorGraph.from_scopes(SCOPES, owners={"f": "a", "g": "b"}) if graph is None else graph
    return sb.Team(given_graph, BOUNDS, **{"initial": 4, "seed": 3, **settings})


def told(team, n_rounds, outcome=total_at):
    points = []
    for _ in range(n_rounds):
        query = team.ask()
        team.tell(query, outcome(query.point))
        points.append(query.point)
    return points


ACQUISITIONS = ["auto", "dec-hbo", "dumbo", "thompson", "expected-improvement"]
COORDINATIONS = ["admm", "refined-max-sum", "random", "sobol", "isotropic-gp"]


KINDS = [*itertools.product(ACQUISITIONS, ["admm"]), *itertools.product(["auto"], COORDINATIONS[1:])]


@pytest.mark.parametrize(
    ("acquisition", "coordination", "outcomes"),
    [(*kinds, ("total", "per-factor")[n % 2]) for n, kinds in enumerate(KINDS)],
)
def test_every_kind_asks_in_bounds_learns_and_repeats_to_the_bit(acquisition, coordination, outcomes):
    outcome = total_at if outcomes == "total" else factors_at
    runs = [
        told(team_of(acquisition=acquisition, coordination=coordination, outcomes=outcomes), 7, outcome)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    for point in runs[0]:
        assert list(point) == list(NAMES)
        assert all(low <= point[name] <= high for name, (low, high) in BOUNDS.items())


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_the_default_finds_the_maximum_of_a_concave_sum(outcomes):
    team = team_of(outcomes=outcomes, initial=6)
    told(team, 30, total_at if outcomes == "total" else factors_at)
    found = team.recommend()
    maximum = 5.0 - 0.4**2 / (1.0 + 1.0 + 1.0 + 1.0 / 0.5)  # four springs in a row between 0.2 and 0.6
    assert maximum - 0.02 < total_at(found.point) <= maximum + 1e-12
    assert abs(found.mean - total_at(found.point)) < 0.02


def test_the_first_points_are_the_sobol_design_of_the_seed_whatever_the_method():
    expected = qmc.Sobol(3, rng=stream(3, "initial design")).random_base2(2)
    for changed in ({}, {"acquisition": "thompson"}, {"coordination": "random"}, {"outcomes": "per-factor"}):
        team = team_of(**changed)
        design = [team.ask().point for _ in range(4)]
        low, high = np.array(list(BOUNDS.values())).T
        np.testing.assert_allclose([[p[n] for n in NAMES] for p in design], low + expected * (high - low), rtol=1e-12)
        assert team.last_report.status == "not_needed"
        assert team.last_query.mean is None


def test_attached_evaluations_count_as_design():
    team = team_of(acquisition="thompson")
    rng = np.random.default_rng(0)
    low, high = np.array(list(BOUNDS.values())).T
    X = rng.uniform(low, high, (4, 3))
    team.attach(X, [total_at(dict(zip(NAMES, x, strict=True))) for x in X])
    query = team.ask()
    assert query.mean is not None
    assert team.last_report.status != "not_needed"


def test_attached_evaluations_do_not_count_as_failures_of_a_search():
    team = team_of(acquisition={"kind": "auto", "box": {"initial": 0.2}}, initial=4)
    rng = np.random.default_rng(0)
    low, high = np.array(list(BOUNDS.values())).T
    X = rng.uniform(low, high, (30, 3))
    totals = np.array([total_at(dict(zip(NAMES, x, strict=True))) for x in X])
    order = np.argsort(-totals)  # none of them improves on the first
    team.attach(X[order], totals[order])
    team.ask(2)  # the first draw is searched everywhere, a model of all variables too; the draw after them in the box
    for other in (team, sb.Team.from_state_dict(team.state_dict())):
        functions = other.acquisition.local_functions(situation_of(other), other.model)
        assert (functions.high - functions.low).max() == pytest.approx(0.2)
    told(team, 2)
    team.attach(X[:1], totals[:1])
    assert team.history.attached.tolist() == [*[True] * 30, False, False, True]
    assert team.history.chosen.tolist() == [*[False] * 30, True, True, False]


def test_the_prediction_of_a_query_is_what_the_model_says_there():
    team = team_of()
    told(team, 8)
    model = team.model
    query = team.ask()
    mean, std = model.posterior(np.array([list(query.point.values())]))
    assert (query.mean, query.std) == (float(mean[0]), float(std[0]))


def test_no_point_is_asked_for_twice_even_where_the_method_insists(monkeypatch):
    corner = np.array([1.0, 0.0, 0.5])
    monkeypatch.setattr(
        sb.Random, "decide_joint", lambda self, situation, acquisition: (corner, sb.SolveReport("exact"))
    )
    team = team_of(coordination="random", acquisition="thompson", initial=1)
    points = told(team, 8)
    X = np.array([[(p[n] - BOUNDS[n][0]) / (BOUNDS[n][1] - BOUNDS[n][0]) for n in NAMES] for p in points])
    for one, other in itertools.combinations(X, 2):
        assert np.abs(one - other).max() > 1e-9
    assert ((X >= 0.0) & (X <= 1.0)).all()
    assert np.abs(X[1:] - corner).max() <= 1e-2


@pytest.mark.parametrize(
    ("misuse", "error", "words"),
    [
        (lambda t: t.ask(links=nx.DiGraph()), ConfigError, "directed"),
        (lambda t: t.tell(t.ask(), 1.0, point={"x": 5.0, "y": 1.0, "z": 150.0}), ConfigError, "in bounds"),
        (lambda t: t.attach(np.zeros((2, 2)), np.zeros(2)), ShapeError, "wanted"),
        (lambda t: t.attach([[9.0, 1.0, 150.0]], [1.0]), ConfigError, "in bounds"),
        (lambda t: t.attach([[np.nan, 1.0, 150.0]], [1.0]), ConfigError, "in bounds"),
        (lambda t: t.act({}), ConfigError, "Team.for_env"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(misuse, error, words):
    team = team_of(acquisition="thompson")
    told(team, 2)
    with pytest.raises(error, match=words):
        misuse(team)
    assert (team.n_data, team.failures, len(team.history)) == (2, 0, 2)


def test_a_total_told_to_a_team_that_observes_factors_is_refused():
    team = team_of(outcomes="per-factor")
    query = team.ask()
    with pytest.raises(ConfigError, match="one number of several factors"):
        team.tell(query, 1.0)
    team.tell(query, factors_at(query.point))
    assert team.n_data == 1


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({"acquisition": "db-gp-ucb"}, "$.acquisition.kind"),
        ({"belief": "exact"}, "$.belief.kind"),
        ({"coordination": "lawn-mower"}, "$.coordination.kind"),
        ({"coordination": sb.MaxSum()}, "$.coordination.kind"),
        ({"acquisition": {"kind": "auto", "wait": 1}}, "$.acquisition"),
        ({"initial": 0}, "$.initial"),
        ({"outcomes": "both"}, "$.outcomes"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_their_path(settings, at):
    with pytest.raises(ConfigError) as caught:
        team_of(**settings)
    assert caught.value.at == at


@pytest.mark.parametrize(
    "bounds",
    [
        {"x": (0, 1), "y": (0, 1)},
        {**BOUNDS, "w": (0, 1)},
        {**BOUNDS, "x": (1.0, 1.0)},
        {**BOUNDS, "x": (0.0, np.inf)},
        {**BOUNDS, "x": (0.0,)},
    ],
)
def test_bounds_that_do_not_fit_the_graph_are_refused(bounds):
    with pytest.raises(ConfigError, match=r"\$\.bounds"):
        sb.Team(sb.FactorGraph.from_scopes(SCOPES), bounds)


@pytest.mark.parametrize(
    "acquisition", ["auto", "thompson", {"kind": "add-gp-ucb", "groups": "learned", "group_size": 1}]
)
def test_a_function_of_unknown_structure_needs_bounds_only(acquisition):
    team = sb.Team(None, BOUNDS, acquisition=acquisition, initial=4, seed=1)
    told(team, 8)
    assert team.problem.structure == "unknown"
    assert team.agents == ("agent_0", "agent_1", "agent_2")
    assert list(team.recommend().point) == list(NAMES)


def test_factors_of_an_unknown_structure_can_not_be_told():
    with pytest.raises(ConfigError, match="graph that has the factors"):
        sb.Team(None, BOUNDS, outcomes="per-factor")


def test_a_recommendation_in_between_changes_no_decision():
    quiet, curious = team_of(), team_of()
    expected = told(quiet, 14)
    points = []
    for _ in range(14):
        query = curious.ask()
        curious.tell(query, total_at(query.point))
        curious.recommend()
        curious.refit()
        points.append(query.point)
    assert points == expected


def test_a_state_of_another_team_is_refused():
    state = team_of().state_dict()
    other = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["x", "z"]}, owners={"f": "a", "g": "b"})
    with pytest.raises(StateVersionError, match="other scopes"):
        team_of(other).load_state_dict(state)
    with pytest.raises(StateVersionError, match="outcomes"):
        team_of(outcomes="per-factor").load_state_dict(state)
    with pytest.raises(StateVersionError, match="version 0"):
        sb.Team.from_state_dict({"json": {**state["json"], "version": 0}, "arrays": state["arrays"]})


def test_the_kind_of_team_follows_from_the_world():
    function, robots = function_v0.parallel_env(function="camel"), robot_team_v0.parallel_env(robots=2)
    assert not sb.Team.for_env(function).problem.is_field
    assert sb.Team.for_env(robots).problem.is_field
    with pytest.raises(ConfigError, match="not for agents that set the variables"):
        sb.Team.for_env(function, acquisition="db-gp-ucb")
    with pytest.raises(ConfigError, match="not for agents that each measure"):
        sb.Team.for_env(robots, acquisition="dumbo")


@pytest.mark.parametrize("arguments", [{}, {"outcomes": "per-factor"}, {"structure": "hidden"}])
def test_acting_in_a_world_is_asking_and_telling(arguments):
    env = function_v0.parallel_env(function="camel", max_cycles=12, **arguments)
    actor = sb.Team.for_env(env, seed=4)
    graph = actor.graph if actor.problem.structure == "known" else None
    bounds = dict(zip(actor.graph.variables, np.stack([actor.domain.low, actor.domain.high], 1).tolist(), strict=True))
    owners = {"x0": "agent_0", "x1": "agent_1"}
    asker = sb.Team(graph, bounds, seed=4, rounds=12, outcomes=actor.outcomes, variable_owners=owners)
    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = actor.act(observations, infos)
        observations, *rest = env.step(actions)
        actor.observe(observations, *rest)
        query = asker.ask(links=env.interaction_graph())
        assert {agent: action.tolist() for agent, action in actions.items()} == {
            agent: [query.point[variable]] for variable, agent in owners.items()
        }
        outcome = env.function.factor_values(np.array([list(query.point.values())]))[0]
        asker.tell(
            query, dict(zip(SCOPES_OF_CAMEL, outcome, strict=True)) if arguments.get("outcomes") else outcome.sum()
        )
    np.testing.assert_allclose(actor.history.totals, asker.history.totals, rtol=1e-12)


SCOPES_OF_CAMEL = ("first", "both", "second")


def test_variables_in_no_factor_stay_in_the_middle_and_names_follow_the_world():
    function = AdditiveFunction.from_terms(
        {"last": lambda X: -((X[:, 0] - 3.0) ** 2) - X[:, 1] ** 2},
        scopes={"last": [2, 0]},
        low=[-1.0, 10.0, 0.0],
        high=[1.0, 20.0, 4.0],
        maximum=0.0,
        argmax=[0.0, 15.0, 3.0],
    )
    env = function_v0.parallel_env(function=function, max_cycles=3)
    team = sb.Team.for_env(env, initial=3)
    observations, infos = env.reset(seed=0)
    assert team.graph.variables == ("x0", "x2")
    assert team.graph.scope("last") == ("x2", "x0")
    while env.agents:
        observations, *rest = env.step(team.act(observations, infos))
        team.observe(observations, *rest)
    truth = env.ground_truth()
    places = np.array([team.world.place(dict(zip(("x0", "x2"), x, strict=True))) for x in team.history.X])
    assert (places[:, 1] == 15.0).all()
    np.testing.assert_allclose(truth.value(places), team.history.totals, rtol=1e-12)


def test_what_came_is_told_before_the_next_decision():
    chain = {"f": ["x", "y"], "g": ["z"]}
    for outcomes in ("total", "per-factor"):
        graph = sb.FactorGraph.from_scopes(chain, owners={"f": "a", "g": "b"})
        team = sb.Team(graph, BOUNDS, outcomes=outcomes)
        query = team.ask()
        team.tell(query, 1.0 if outcomes == "total" else {"f": 1.0, "g": 2.0})
        assert team.last_sharing.messages == 0
        team.ask()
        assert team.last_sharing.messages == 2  # a sum goes up the tree of two agents, and comes down


@pytest.mark.parametrize(("coordination", "acquisition"), [("refined-max-sum", "dec-hbo"), ("admm", "thompson")])
def test_agents_that_exchange_real_messages_decide_alike(coordination, acquisition):
    fast, agents = (
        team_of(coordination=coordination, acquisition=acquisition, transport=sb.InProcess(as_agents=real))
        for real in (False, True)
    )
    assert told(fast, 7) == told(agents, 7)
    assert fast.last_report == agents.last_report
    assert fast.last_report.traffic.messages > 0


def test_a_table_without_any_factor_tells_nothing():
    team = team_of(outcomes="per-factor")
    query = team.ask()
    team.tell(query, {})
    team.tell(query, factors_at(query.point))
    assert (team.n_data, team.failures) == (1, 0)


@pytest.fixture
def situations(monkeypatch):
    """What the random baseline was shown, decision by decision."""
    shown = []

    def decide_joint(self, situation, acquisition):
        shown.append(situation)
        return np.random.default_rng(len(shown)).random(situation.domain.n_dims), sb.SolveReport("not_needed")

    monkeypatch.setattr(sb.Random, "decide_joint", decide_joint)
    return shown


def test_methods_are_told_the_round_the_horizon_and_what_is_out(situations):
    team = team_of(coordination="random", acquisition="thompson", initial=2, rounds=9)
    told(team, 2)
    batch = team.ask(2)
    links = nx.Graph([("a", "b")])
    team.ask(links=links)
    assert [s.round for s in situations] == [3, 4, 5]
    assert [len(s.pending) for s in situations] == [0, 1, 2]
    np.testing.assert_array_equal(situations[2].pending, [list(query.point.values()) for query in batch])
    assert {(s.horizon, s.seed, s.initial, s.structure) for s in situations} == {(9, 3, 2, "known")}
    assert [s.links for s in situations] == [None, None, links]


def test_an_action_that_was_never_observed_is_not_waited_for(situations):
    env = function_v0.parallel_env(function="camel", max_cycles=9)
    team = sb.Team.for_env(env, coordination="random", acquisition="thompson", initial=1)
    observations, infos = env.reset(seed=0)
    for _ in range(3):
        actions = team.act(observations, infos)
    team.observe(*env.step(actions))
    team.act(observations, infos)
    assert [len(s.pending) for s in situations] == [0]
    assert team.n_data == 1
    team.begin(infos)
    team.act(observations, infos)
    assert len(situations[-1].pending) == 0


def test_what_is_learned_lies_where_the_world_says_it_was_evaluated():
    env = function_v0.parallel_env(function="camel", max_cycles=3)
    team = sb.Team.for_env(env)
    observations, infos = env.reset(seed=0)
    *step, infos = env.step(team.act(observations, infos))
    moved = {agent: {**info, "location": info["location"] * 0.5} for agent, info in infos.items()}
    team.observe(*step, moved)
    np.testing.assert_allclose(team.history.X[0], 0.5 * np.array(list(team.last_query.point.values())), rtol=1e-15)
