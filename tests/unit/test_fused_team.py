"""Teams in a field whose agents each have a belief of their own."""

import msgspec
import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.belief import ExactGP, ExactGPSettings, TimeAxis, means_by_agent
from swarmbo.belief.fusion import FusedBelief, FusedSettings
from swarmbo.belief.gp.spatial import view_of
from swarmbo.deciding.beliefs import required_of
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.records import Traffic
from swarmbo.spaces import Domain

from .teams import told

AGENTS = ["a", "b", "c"]
METHODS = ["consensus", "covariance-intersection", "readings", "experts"]
QUICK = ("consensus", "readings")
EACH = [method if method in QUICK else pytest.param(method, marks=pytest.mark.slow) for method in METHODS]
PLACES = np.random.default_rng(0).random((30, 2)) * [100.0, 50.0]


def team(method="readings", given=None, **settings):
    belief = {"method": method, "n_features": 40, "steps": 40, "prior": ExactGPSettings(restarts=0), **settings}
    more = {"belief": FusedSettings(**belief), "rounds": 8, "seed": 1, **(given or {})}
    return sb.Team.for_field(AGENTS, low=[0.0, 0.0], high=[100.0, 50.0], **more)


def field(x):
    return float(np.sin(x[0] / 20.0) + np.cos(x[1] / 15.0))


def play(team, n_rounds):
    return told(team, n_rounds, field)


@pytest.mark.parametrize("method", EACH)
def test_a_team_decides_by_what_its_agents_believe_and_finds_the_better_part(method):
    playing = team(method)
    queries = play(playing, 6)
    assert all(set(query.points) == set(AGENTS) for query in queries)
    assert playing.last_sharing.messages > 0
    best = max(field(x) for query in queries for x in query.points.values())
    assert best > np.quantile([field(x) for x in PLACES], 0.8)
    found = playing.recommend()
    assert found is not None
    assert field(found.location) > np.quantile([field(x) for x in PLACES], 0.6)


RARELY = sb.ExactGPSettings(restarts=0, refit_every=3)  # of one agent, so its first fit is to one outcome


@pytest.mark.parametrize(
    "playing",
    [
        lambda: team("readings"),
        pytest.param(lambda: team("experts"), marks=pytest.mark.slow),
        lambda: sb.Team.for_field(["a"], [0.0, 0.0], [100.0, 50.0], belief=RARELY, acquisition="expected-improvement"),
    ],
    ids=["readings", "experts", "shared"],
)
def test_the_unit_of_outcomes_decides_nothing_once_two_are_known(playing):
    usual = told(playing(), 3, field)
    for unit in (1e-9, 2.0**30):
        other = told(playing(), 3, lambda x, unit=unit: unit * field(x))
        assert [query.point for query in other] == [query.point for query in usual]


def test_each_agent_ranks_places_by_its_own_view():
    """With nobody in contact an agent's choice depends on its own readings alone."""
    lonely = nx.empty_graph(AGENTS)

    def choice(value_of_c):
        playing = team("readings", {"seed": 3})
        playing.belief.learn({"a": ([[10.0, 10.0]], [1.0]), "c": ([[90.0, 40.0]], [value_of_c])}, links=lonely)
        return playing.ask(links=lonely)

    low, high = choice(-5.0), choice(5.0)
    np.testing.assert_array_equal(low.points["a"], high.points["a"])
    assert low.means["a"] == high.means["a"]
    assert low.means["c"] < high.means["c"]


def test_of_agents_apart_each_leads_itself_and_in_contact_the_first_name_leads():
    belief = FusedBelief(FusedSettings(method="consensus", n_features=20), team().domain, AGENTS, seed=0)
    readings = {name: (PLACES[n : n + 2], [1.0, 2.0]) for n, name in enumerate(AGENTS)}
    belief.learn(readings, nx.Graph([("b", "c")]))
    assert [belief.agents[name].proposal.proposer for name in AGENTS] == ["a", "b", "b"]
    belief.learn({}, None)
    assert {agent.proposal.proposer for agent in belief.agents.values()} == {"a"}
    assert belief.n_data == 6
    assert belief.representative == "a"


@pytest.mark.parametrize("method", EACH)
def test_the_unit_of_outcomes_that_first_differ_is_agreed_on_at_once_and_kept(method):
    """Until outcomes differ the scale is 1, of whatever unit: signals far below it would count as noise for long."""
    rng, settings = np.random.default_rng(0), FusedSettings(method=method, n_features=16)
    belief = FusedBelief(settings, Domain(np.zeros(2), np.ones(2)), ["a", "b"], seed=0)
    for n in (5, 4, 4, 4):  # so that growth is not what makes the agents propose
        belief.learn({name: (rng.random((n, 2)), np.zeros(n)) for name in "ab"}, None)
    X, unit, scales = rng.random((6, 2)), 1e-9, list[float]()
    belief.learn({"b": (X, unit * X.sum(axis=1))}, None)  # b alone measures what differs, after its turn to wait
    for _ in range(4):
        belief.learn({"a": (rng.random((9, 2)), np.zeros(9))}, None)
        proposals = {agent.proposal for agent in belief.agents.values()}
        scales += [proposal.hyperparameters.scale for proposal in proposals]
    assert len(scales) == 4
    assert all(0.1 * unit < scale < 10.0 * unit for scale in scales)


@pytest.mark.parametrize("method", EACH)
def test_agents_take_proposals_of_hardly_any_noise(method):
    prior = sb.ExactGPSettings(noise_floor=1e-16, noise_median=1e-14)
    settings, rng = FusedSettings(method=method, n_features=16, prior=prior), np.random.default_rng(0)
    belief = FusedBelief(settings, Domain(np.zeros(1), np.ones(1)), ["a", "b"], seed=0)
    for _ in range(2):
        belief.learn({name: (X := rng.random((4, 1)), np.sin(3.0 * X[:, 0])) for name in "ab"}, None)
    assert {agent.proposal.proposer for agent in belief.agents.values()} == {"a"}
    assert all(agent.reached.keys() == {"a", "b"} and not agent.refused for agent in belief.agents.values())


def test_an_agents_own_beliefs_do_not_answer_for_the_team():
    alone = FusedBelief(FusedSettings(n_features=20), team().domain, AGENTS, seed=0, held=["b"]).views
    assert view_of(alone, "b").n_data == 0
    with pytest.raises(ConfigError, match=r"got the beliefs of \['b'\].*view_of"):
        alone.posterior(PLACES)


@pytest.mark.parametrize("method", ["consensus", "readings"])
def test_when_the_leader_is_gone_the_next_agent_leads(method):
    belief = FusedBelief(FusedSettings(method=method, n_features=20, steps=40), team().domain, AGENTS, seed=0)
    rng = np.random.default_rng(0)

    def learn(agents, links):
        belief.learn({name: (rng.random((2, 2)) * [100.0, 50.0], rng.standard_normal(2)) for name in agents}, links)

    learn(AGENTS, None)
    learn(AGENTS, None)
    before = {name: belief.agents[name].proposal for name in AGENTS}
    assert {proposal.proposer for proposal in before.values()} == {"a"}
    for _ in range(8):
        learn(["b", "c"], nx.Graph([("b", "c")]))
    for name in ["b", "c"]:
        assert belief.agents[name].proposal.proposer == "b"
        assert belief.agents[name].proposal.n_measurements >= 1.5 * before[name].n_measurements
    learn(AGENTS, None)
    learn(AGENTS, None)
    assert len({agent.proposal for agent in belief.agents.values()}) == 1


def test_strange_agents_and_links_are_refused_and_nothing_has_changed():
    belief = FusedBelief(FusedSettings(), team().domain, AGENTS, seed=0)
    reading = ([[1.0, 1.0]], [1.0])
    with pytest.raises(ConfigError, match=r"\$.agents: got \['x'\]; wanted some of \['a', 'b', 'c'\]"):
        belief.learn({"a": reading, "x": reading}, None)
    with pytest.raises(ConfigError, match=r"\$.links: got a directed graph"):
        belief.learn({"a": reading}, nx.DiGraph([("a", "b")]))
    with pytest.raises(ConfigError, match="wanted some of"):
        belief.give("x", *reading)
    with pytest.raises(ConfigError, match="no name twice"):
        FusedBelief(FusedSettings(), team().domain, ["a", "a"], seed=0)
    with pytest.raises(StateVersionError, match="got agents"):
        FusedBelief.from_state_dict(FusedSettings(), team().domain, ["a"], 0, belief.state_dict())
    assert belief.n_data == 0


@pytest.mark.parametrize("names", [("a", "failures/a"), ("a", "a/readings")])
def test_agents_of_any_names_are_restored(names):
    box = Domain(np.zeros(2), np.ones(2))
    belief = FusedBelief(FusedSettings(), box, names, seed=0)
    belief.learn({name: ([[0.1, 0.2]], [1.0]) for name in names}, None, failed={"a": [[0.5, 0.5]]})
    again = FusedBelief.from_state_dict(FusedSettings(), box, names, 0, belief.state_dict())
    for views, others in ((belief.agents, again.agents), (belief.failures, again.failures)):
        assert {name: view.reached for name, view in views.items()} == {n: view.reached for n, view in others.items()}


def test_surveys_are_given_to_the_first_agent_and_counted_once():
    playing = team()
    playing.attach(PLACES[:4], [1.0, 2.0, float("nan"), 3.0])
    assert playing.failures == 1
    play(playing, 1)
    assert {agent: round(n) for agent, n in playing.belief.agents["c"].reached.items()} == {"a": 4, "b": 1, "c": 1}


@pytest.mark.parametrize("method", ["consensus", "readings"])
def test_with_a_time_axis_readings_of_every_agent_fade(method):
    playing = team(method, prior=ExactGPSettings(restarts=0, time=TimeAxis()))
    play(playing, 3)
    for own in playing.belief.agents.values():
        assert own.X[:, 2].tolist() == [1.0, 2.0, 3.0]
    views, later = playing.belief.views, playing.belief.views.at(1e4)
    for agent in AGENTS:
        now = views.by_agent[agent].posterior(PLACES)[1].mean()
        assert now < 0.999 * later.by_agent[agent].posterior(PLACES)[1].mean()


def test_raw_readings_with_a_time_axis_are_the_exact_process_of_all_of_them():
    playing = team(prior=ExactGPSettings(restarts=0, time=TimeAxis()))
    play(playing, 3)
    X = np.concatenate([playing.belief.agents[name].X for name in AGENTS])
    y = np.array([field(x[:2]) for x in X])
    h = playing.belief.hyperparameters
    assert h.time is not None
    expected = ExactGP.from_hyperparameters(ExactGPSettings(), playing.domain, h, X, y).at(3).posterior(PLACES)
    np.testing.assert_allclose(playing.belief.views.by_agent["b"].posterior(PLACES), expected)


@pytest.mark.parametrize("method", EACH)
def test_agents_that_know_the_same_have_one_belief_and_it_is_that_of_each(method):
    belief = FusedBelief(FusedSettings(method=method, n_features=20, steps=1, loss=0.4), team().domain, AGENTS, seed=4)
    shared = set()
    for n in range(20):
        belief.learn({AGENTS[n % 3]: (PLACES[n : n + 1], [float(n)])} if n < 3 else {}, None)
        views = belief.views
        means = means_by_agent(views, PLACES)
        for name, agent in belief.agents.items():
            own = agent.belief.at(belief.now)
            np.testing.assert_allclose(means[name], own.posterior_mean(PLACES), rtol=1e-10, atol=1e-12)
            for got, wanted in zip(views.by_agent[name].posterior(PLACES), own.posterior(PLACES), strict=True):
                np.testing.assert_array_equal(got, wanted)
        shared.add(len({id(view) for view in views.by_agent.values()}))
        later = views.at(3.0).condition_on_pending(PLACES[:2])
        assert len({id(view) for view in later.by_agent.values()}) == len({id(v) for v in views.by_agent.values()})
    assert {1, 3} <= shared if method == "readings" else shared == {3}


def over(transport, method="readings", rounds=4, **settings):
    """A team that talks over links with faults, after some rounds, and how links fared in each."""
    by_deadline = sb.MaxSum(mode="asynchronous", deadline=6)
    given = {"transport": {"kind": "faulty", **transport}, "coordination": by_deadline}
    playing = team(method, given, **{"n_features": 20, "steps": 20, **settings})
    fared = []
    for _ in range(rounds):
        play(playing, 1)
        if fared:  # said before this decision
            said = playing.sent["sharing"]
            assert (fared[-1].total.messages, fared[-1].total.bytes) == (said.messages, said.bytes)
        fared.append(playing.sharing_links)
    return playing, fared


def heard(playing, agent):
    """Of whom an agent has how many readings."""
    return playing.belief.agents[agent].reached


NOISY = {"loss": 0.4, "delay": 3, "duplicate": 0.3, "reorder": 0.5}
DYING = {"bandwidth": 300, "delay": 2, "deaths": [{"agent": "b", "round": 2, "step": 1}]}


@pytest.mark.parametrize(("method", "faults"), list(zip(METHODS, [NOISY, DYING] * 2, strict=True)))
def test_what_agents_tell_one_another_meets_the_faults_of_the_teams_transport(method, faults):
    playing, fared = over(faults, method, rounds=3)
    edges = [edge for links in fared for edge in links.edges.values()]
    assert sum(edge.steps for edge in edges) > sum(edge.arrived for edge in edges)  # news take longer than a step
    if "loss" in faults:
        lost = sum(edge.lost for edge in edges) / sum(edge.messages for edge in edges)
        assert 0.2 < lost < 0.6
    else:
        assert [links.silent for links in fared] == [(), ("b",), ("b",)]
        assert not any(edge.startswith("b>") for links in fared[1:] for edge in links.edges)
        assert not any(edge.arrived for edge in (fared[1].edges["a>b"], fared[2].edges["c>b"]))
    total = sum(len(playing.belief.agents[name].y) for name in AGENTS)
    for agent in playing.belief.agents.values():
        assert sum(agent.reached.values()) <= total + 1e-6  # what comes twice is one piece of news


def test_news_behind_a_cut_are_late_and_all_the_newer_when_it_is_over():
    cut = {"parts": [["c"]], "rounds": [2, 3]}
    playing, _ = over({"cuts": [cut]}, rounds=3)
    assert heard(playing, "a") == {"a": 3, "b": 3, "c": 1}
    assert heard(playing, "c") == {"a": 1, "b": 1, "c": 3}
    again = sb.Team.from_state_dict(playing.state_dict())
    play(again, 1)
    assert heard(again, "a") == heard(again, "c") == {"a": 4, "b": 4, "c": 4}
    of_agreements, _ = over({"cuts": [cut | {"steps": [0, 2]}]}, rounds=3)
    assert heard(of_agreements, "a") == {"a": 3, "b": 3, "c": 3}


def test_what_the_transport_loses_and_what_the_belief_does_add_up():
    (alone, fared), (both, again) = (
        over({"loss": loss}, steps=1, loss=own) for loss, own in ((0.5, 0.0), (0.375, 0.2))
    )
    assert fared == again
    counts = [sum(heard(alone, agent).values()) for agent in AGENTS]
    assert counts == [sum(heard(both, agent).values()) for agent in AGENTS]
    assert 4 * 3 < sum(counts) < 3 * 4 * 3  # each has its own, and not all
    plain = team("readings")
    play(plain, 1)
    assert plain.sharing_links is None


def test_where_nobody_talked_nothing_is_said_of_links_or_of_traffic():
    playing, _ = over({"loss": 0.3}, rounds=1)
    assert playing.last_sharing.messages > 0
    playing.begin({})  # a further episode, and nobody has measured yet
    assert (playing.last_sharing, playing.sharing_links) == (Traffic(), None)


@pytest.mark.parametrize("method", EACH)
def test_attached_data_are_fitted_before_the_first_question(method):
    """Without a fit, outcomes of -60 are far below the prior's 0, so the best place is where nothing is known."""
    X = np.random.default_rng(0).random((12, 2)) * [40.0, 20.0]
    y = -60.0 - 200.0 * (((X - [20.0, 10.0]) / [100.0, 50.0]) ** 2).sum(axis=1)
    playing = team(method)
    playing.attach(X, y, agents=["a"] * 6 + ["b"] * 6)
    found = playing.recommend()
    assert found is not None
    assert abs(found.mean + 60.0) < 5.0
    asked = playing.ask({"a": X[:6], "b": X[6:], "c": [[99.0, 49.0]]})
    assert abs(asked.means["a"] + 60.0) < 5.0


def test_agents_with_equal_data_judge_failures_by_their_own_kernel_of_time():
    """The reports of two agents are equal, their kernels of time differ: the order of agents must not matter."""
    playing = team("readings", prior=ExactGPSettings(restarts=0, time=TimeAxis()))
    for n in range(4):
        query = playing.ask({"a": PLACES[:10], "b": PLACES[10:20]})
        playing.tell(query, {"a": np.nan if n < 2 else 1.0, "b": float(n)})
    believed = playing._learner.team_belief
    proposed = (own := believed.belief.agents["b"]).proposal.hyperparameters
    slow = msgspec.structs.replace(proposed.time, lengthscale=50.0 * proposed.time.lengthscale)
    own.propose(msgspec.structs.replace(proposed, time=slow))

    def margins(*agents):
        required = required_of(believed, playing._log, agents, playing._log.round)
        return {agent: required[agent].margin(np.array([[0.0, 0.0], [0.2, 0.5]])).tolist() for agent in agents}

    assert margins("a", "b") == margins("b", "a") == margins("a") | margins("b")
