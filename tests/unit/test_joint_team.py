"""Teams with a factor graph, tested through public names only."""

import networkx as nx
import numpy as np
import pytest
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo_envs import function_v0
from swarmbo_envs.functions import AdditiveFunction

from .teams import ask_and_tell, drive

NAMES = ("x", "y", "z")
SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}
BOUNDS = {"x": (-1.0, 1.0), "y": (0.0, 10.0), "z": (100.0, 300.0)}


def factors_at(point):
    x, y, z = ((point[name] - low) / (high - low) for name, (low, high) in BOUNDS.items())
    return {"f": 3.0 - (x - 0.2) ** 2 - (x - y) ** 2, "g": 2.0 - (y - z) ** 2 - 0.5 * (z - 0.6) ** 2}


def team_of(graph=None, **settings):
    given_graph = sb.FactorGraph.from_scopes(SCOPES, owners={"f": "a", "g": "b"}) if graph is None else graph
    return sb.Team(given_graph, **{"bounds": BOUNDS, "initial": 4, "seed": 3, **settings})


KINDS = [{"acquisition": kind} for kind in ("auto", "dec-hbo", "dumbo", "thompson", "expected-improvement")]
KINDS += [{"coordination": kind} for kind in ("refined-max-sum", "random", "sobol", "isotropic-gp")]


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_queries_of_every_kind_are_within_bounds_and_repeat_bit_identically(number, kind):
    outcomes = "per-factor" if number % 2 else "total"
    runs = [ask_and_tell(team_of(**kind, outcomes=outcomes), 7, factors_at) for _ in range(2)]
    assert runs[0] == runs[1]
    for query in runs[0]:
        assert list(query.point) == list(NAMES)
        assert all(low <= query.point[name] <= high for name, (low, high) in BOUNDS.items())


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_the_default_finds_the_maximum_of_a_concave_sum(outcomes):
    team = team_of(outcomes=outcomes, initial=6)
    ask_and_tell(team, 20, factors_at)
    found = team.recommend()
    best = sum(factors_at(found.point).values())
    maximum = 5.0 - 0.4**2 / (1.0 + 1.0 + 1.0 + 1.0 / 0.5)  # four springs in a row between 0.2 and 0.6
    assert maximum - 0.02 < best <= maximum + 1e-12
    assert abs(found.mean - best) < 0.02


@pytest.mark.parametrize(
    "given",
    [
        *(
            pytest.param({**kind, "outcomes": outcomes}, marks=[pytest.mark.slow] * ((number + turn) % 2))
            for number, kind in enumerate(KINDS[:5])
            for turn, outcomes in enumerate(("total", "per-factor"))
        ),
        {"graph": sb.FactorGraph.from_scopes({"f": NAMES})},
        {"start": {"x": 0.0, "y": 5.0, "z": 150.0}, "safe": {}},
    ],
)
def test_the_unit_of_outcomes_does_not_influence_decisions_from_the_second_outcome_on(given):
    def asked(unit):
        def in_unit(point):
            return {factor: unit * value for factor, value in factors_at(point).items()}

        queries = ask_and_tell(team_of(**{"initial": 1, **given}), 3, in_unit)
        return [[query.point[name] / high for name, (_, high) in BOUNDS.items()] for query in queries]

    wanted = asked(1.0)
    for unit in (2.0**-30, 2.0**30):
        assert np.allclose(asked(unit), wanted, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_the_unit_does_not_influence_decisions_if_the_deviation_of_outcomes_is_exactly_1(outcomes):
    graph = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]})

    def asked(unit):
        team = sb.Team(graph, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, outcomes=outcomes, acquisition="dec-hbo", initial=2)
        each = iter(np.array([1.0, -1.0, 0.3, 0.4]) / (2.0 if outcomes == "total" else 1.0))
        return [
            list(query.point.values())
            for query in ask_and_tell(team, 4, lambda _: dict.fromkeys("fg", unit * next(each)))
        ]

    np.testing.assert_allclose(asked(1.0), asked(4.0), atol=1e-4)


def test_the_first_points_are_the_sobol_design_of_the_seed_with_every_method():
    expected = qmc.Sobol(3, rng=stream(3, "initial design")).random_base2(2)
    for changed in ({}, {"acquisition": "thompson"}, {"coordination": "random"}, {"outcomes": "per-factor"}):
        team = team_of(**changed)
        design = [team.ask().point for _ in range(4)]
        low, high = np.array(list(BOUNDS.values())).T
        np.testing.assert_allclose([[p[n] for n in NAMES] for p in design], low + expected * (high - low), rtol=1e-12)
        assert team.last_report.status == "not_needed"
        assert team.last_query.mean is None


def test_the_prediction_of_a_query_is_the_models_posterior():
    team = team_of()
    ask_and_tell(team, 8, factors_at)
    model = team.model
    query = team.ask()
    mean, std = model.posterior(np.array([list(query.point.values())]))
    assert (query.mean, query.std) == (float(mean[0]), float(std[0]))


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({"acquisition": "db-gp-ucb"}, "$.acquisition.kind"),
        ({"belief": "exact"}, "$.belief.kind"),
        ({"belief": {"kind": "additive", "factors": {"q": {"kernel": "rbf"}}}}, "$.belief.factors"),
        ({"coordination": "lawn-mower"}, "$.coordination.kind"),
        ({"coordination": sb.MaxSum()}, "$.coordination.kind"),
        ({"acquisition": {"kind": "auto", "wait": 1}}, "$.acquisition"),
        ({"initial": 0}, "$.initial"),
        ({"outcomes": "both"}, "$.outcomes"),
        *(({"bounds": {**BOUNDS, "x": pair}}, "$.bounds.x") for pair in ((1.0, 1.0), (0.0, np.inf))),
        *(({"bounds": bounds}, "$.bounds") for bounds in ({"x": (0, 1), "y": (0, 1)}, {**BOUNDS, "w": (0, 1)})),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_their_path(settings, at):
    with pytest.raises(ConfigError) as caught:
        team_of(**settings)
    assert caught.value.at == at


@pytest.mark.parametrize(
    "acquisition", ["auto", "thompson", {"kind": "add-gp-ucb", "groups": "learned", "group_size": 1}]
)
def test_a_function_of_unknown_structure_needs_bounds_only(acquisition):
    team = sb.Team(None, BOUNDS, acquisition=acquisition, initial=4, seed=1)
    ask_and_tell(team, 8, lambda point: sum(factors_at(point).values()))
    assert team.problem.structure == "unknown"
    assert team.agents == ("agent_0", "agent_1", "agent_2")
    assert list(team.recommend().point) == list(NAMES)


def test_recommendations_and_refits_change_no_decision():
    with_recommendations, queries = team_of(), []
    for _ in range(14):
        queries += ask_and_tell(with_recommendations, 1, factors_at)
        with_recommendations.recommend()
        with_recommendations.refit()
    assert queries == ask_and_tell(team_of(), 14, factors_at)


def test_a_state_of_another_team_is_refused():
    state = team_of().state_dict()
    other = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["x", "z"]}, owners={"f": "a", "g": "b"})
    with pytest.raises(StateVersionError, match="other scopes"):
        team_of(other).load_state_dict(state)
    with pytest.raises(StateVersionError, match="outcomes"):
        team_of(outcomes="per-factor").load_state_dict(state)
    with pytest.raises(StateVersionError, match="other version, 0; wanted"):
        sb.Team.from_state_dict({"json": {**state["json"], "version": 0}, "arrays": state["arrays"]})


@pytest.mark.parametrize("arguments", [{}, {"outcomes": "per-factor"}, {"structure": "hidden"}])
def test_act_and_observe_equal_ask_and_tell(arguments):
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
        by_factor = dict(zip(("first", "both", "second"), outcome, strict=True))
        asker.tell(query, by_factor if arguments.get("outcomes") else outcome.sum())
    np.testing.assert_allclose(actor.history.totals, asker.history.totals, rtol=1e-12)


def test_variables_without_a_factor_stay_at_the_centre_and_names_are_those_of_the_environment():
    box = {"low": [-1.0, 10.0, 0.0], "high": [1.0, 20.0, 4.0], "maximum": 0.0, "argmax": [0.0, 15.0, 3.0]}
    terms = {"last": lambda X: -((X[:, 0] - 3.0) ** 2) - X[:, 1] ** 2}
    function = AdditiveFunction.from_terms(terms, scopes={"last": [2, 0]}, **box)
    env = function_v0.parallel_env(function=function, max_cycles=3)
    team = sb.Team.for_env(env, initial=3)
    assert team.graph.variables == ("x0", "x2")
    assert team.graph.scope("last") == ("x2", "x0")
    drive(env, team)
    truth = env.ground_truth()
    places = np.array([team.world.place(dict(zip(("x0", "x2"), x, strict=True))) for x in team.history.X])
    assert (places[:, 1] == 15.0).all()
    np.testing.assert_allclose(truth.value(places), team.history.totals, rtol=1e-12)


def test_news_are_sent_before_the_next_decision():
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]}, owners={"f": "a", "g": "b"})
    for outcomes, outcome in (("total", 1.0), ("per-factor", {"f": 1.0, "g": 2.0})):
        team = team_of(graph, outcomes=outcomes)
        team.tell(team.ask(), outcome)
        assert team.last_sharing.messages == 0
        team.ask()
        assert team.last_sharing.messages == 2  # a sum goes up the tree of two agents, and down again


@pytest.mark.parametrize(("coordination", "acquisition"), [("refined-max-sum", "dec-hbo"), ("admm", "thompson")])
def test_agents_that_exchange_real_messages_make_the_same_decisions(coordination, acquisition):
    fast, agents = (
        team_of(coordination=coordination, acquisition=acquisition, transport=sb.InProcess(as_agents=real))
        for real in (False, True)
    )
    assert ask_and_tell(fast, 7, factors_at) == ask_and_tell(agents, 7, factors_at)
    assert fast.last_report == agents.last_report
    assert fast.last_report.traffic.messages > 0


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("acquisition", ["auto", "dec-hbo"])
def test_outcomes_that_first_differ_set_the_scale_at_once(acquisition, outcomes):
    """Until then, the scale is 1 in any unit. If it stayed, much smaller signals would count as noise."""
    asked = []
    for unit in (2.0**-30, 2.0**20):
        team = team_of(outcomes=outcomes, acquisition=acquisition, belief=sb.AdditiveGPSettings(refit_every=9))
        ask_and_tell(team, 5, lambda point: dict.fromkeys(factors_at(point), 0.0))
        asked.append([])
        for query in ask_and_tell(
            team, 3, lambda point, unit=unit: {f: unit * v for f, v in factors_at(point).items()}
        ):
            asked[-1].append([query.point[name] for name in NAMES])
        assert all(0.1 * unit < scale < 10.0 * unit for scale in team.model.belief.hyperparameters.scales)
    np.testing.assert_allclose(*asked, rtol=1e-5)


def test_an_outcome_without_a_point_keeps_the_point_told_before():
    team = team_of(outcomes="per-factor")
    query = team.ask()
    team.tell(query, {"f": 0.0}, point={"x": 0.1, "y": 5.0, "z": 150.0})
    asked = team._log.with_factors(query.id, {"g": 2.0})  # without a point
    assert asked.history.X.tolist() == [[0.1, 5.0, 150.0]]
    team.tell(query, {"g": 0.0}, point={"x": 0.9, "y": 9.0, "z": 200.0})
    assert team.history.X.tolist() == [[0.1, 5.0, 200.0]]


def test_an_empty_table_of_outcomes_changes_nothing():
    team = team_of(outcomes="per-factor")
    query = team.ask()
    team.tell(query, {})
    team.tell(query, factors_at(query.point))
    assert (team.n_data, team.failures) == (1, 0)


@pytest.fixture
def situations(monkeypatch):
    """Situations that the random baseline receives, one per decision."""
    shown = []

    def decide_joint(self, situation, acquisition):
        shown.append(situation)
        return np.random.default_rng(len(shown)).random(situation.domain.n_dims), sb.SolveReport("not_needed")

    monkeypatch.setattr(sb.Random, "decide_joint", decide_joint)
    return shown


def test_methods_receive_the_round_the_horizon_and_pending_points(situations):
    team = team_of(coordination="random", acquisition="thompson", initial=2, rounds=9)
    ask_and_tell(team, 2, factors_at)
    batch = team.ask(2)
    links = nx.Graph([("a", "b")])
    team.ask(links=links)
    assert [s.round for s in situations] == [3, 4, 5]
    assert [len(s.pending) for s in situations] == [0, 1, 2]
    np.testing.assert_array_equal(situations[2].pending, [list(query.point.values()) for query in batch])
    assert {(s.horizon, s.seed, s.initial, s.structure) for s in situations} == {(9, 3, 2, "known")}
    assert [s.links for s in situations] == [None, None, links]


def test_an_action_that_was_never_observed_is_not_pending(situations):
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


def test_outcomes_count_at_the_location_that_the_environment_reports():
    env = function_v0.parallel_env(function="camel", max_cycles=3)
    team = sb.Team.for_env(env)
    observations, infos = env.reset(seed=0)
    *step, infos = env.step(team.act(observations, infos))
    moved = {agent: {**info, "location": info["location"] * 0.5} for agent, info in infos.items()}
    team.observe(*step, moved)
    np.testing.assert_allclose(team.history.X[0], 0.5 * np.array(list(team.last_query.point.values())), rtol=1e-15)


def test_if_a_factor_always_fails_the_best_point_is_that_of_the_other_factors():
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"]})
    team = sb.Team(graph, dict.fromkeys("abc", (0.0, 1.0)), outcomes="per-factor")
    X = np.random.default_rng(0).random((12, 3))
    of_f = -((X[:, :2] - 0.4) ** 2).sum(axis=1)
    team.attach(X, np.column_stack([of_f, np.full(12, np.nan)]))
    assert list(team.recommend().point.values()) == X[of_f.argmax()].tolist()


def steep(point):
    """A cost over eight decades, which a transform fits badly."""
    return -float(10.0 ** (8.0 * np.mean(np.abs(np.array(list(point.values())) - 0.62)) / 0.62))


def test_of_exact_outcomes_the_best_one_told_is_recommended():
    team = sb.Team(None, dict.fromkeys("abcd", (0.0, 1.0)), seed=3)
    told = list[tuple[float, dict[str, float]]]()
    for _ in range(40):
        query = team.ask()
        told.append((steep(query.point), query.point))
        team.tell(query, told[-1][0])
    best, found = max(told, key=lambda pair: pair[0]), team.recommend()
    assert (found.mean, found.point) == (best[0], pytest.approx(best[1]))
    (modelled,), _ = team.model.posterior([found.location])
    assert modelled != pytest.approx(best[0], rel=1e-3)  # the transform misses it
    assert found.std >= abs(modelled - best[0])


def test_a_lucky_noisy_outcome_among_exact_ones_is_not_taken_at_its_word():
    team, x = sb.Team(None, {"x": (0.0, 1.0)}, initial=2), np.linspace(0.0, 1.0, 11)
    is_noisy = np.arange(11) == 9
    team.attach(x[:, None], np.where(is_noisy, 0.5, -((x - 0.4) ** 2)), noise_std=np.where(is_noisy, 1.0, np.nan))
    assert team.model.learned.is_exact
    assert team.recommend().point["x"] == pytest.approx(0.4)


@pytest.mark.parametrize("noise_std", [None, 0.2])
def test_of_noisy_outcomes_the_luckiest_is_not_taken_at_its_word(noise_std):
    rng, team = np.random.default_rng(0), sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0)
    X = rng.random((40, 2))
    y = -((X - 0.4) ** 2).sum(axis=1) + 0.2 * rng.standard_normal(40)
    team.attach(X, y) if noise_std is None else team.attach(X, y, noise_std=noise_std)
    assert team.recommend().mean < y.max() - 0.1
