"""Teams in a field whose agents have local beliefs."""

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

from .teams import ask_and_tell

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
    return ask_and_tell(team, n_rounds, field)


@pytest.mark.parametrize("method", EACH)
def test_a_team_decides_by_local_beliefs_and_finds_large_values(method):
    playing = team(method)
    queries = play(playing, 6)
    assert all(set(query.points) == set(AGENTS) for query in queries)
    assert playing.last_sharing.messages > 0
    best = max(field(x) for query in queries for x in query.points.values())
    assert best > np.quantile([field(x) for x in PLACES], 0.8)
    found = playing.recommend()
    assert found is not None
    assert field(found.location) > np.quantile([field(x) for x in PLACES], 0.6)


RARELY = sb.ExactGPSettings(restarts=0, refit_every=3)  # for one agent, whose first fit has one outcome


@pytest.mark.parametrize(
    "playing",
    [
        lambda: team("readings"),
        pytest.param(lambda: team("experts"), marks=pytest.mark.slow),
        lambda: sb.Team.for_field(["a"], [0.0, 0.0], [100.0, 50.0], belief=RARELY, acquisition="expected-improvement"),
    ],
    ids=["readings", "experts", "shared"],
)
def test_the_unit_of_outcomes_does_not_influence_decisions_once_two_are_known(playing):
    usual = ask_and_tell(playing(), 3, field)
    for unit in (1e-9, 2.0**30):
        other = ask_and_tell(playing(), 3, lambda x, unit=unit: unit * field(x))
        assert [query.point for query in other] == [query.point for query in usual]


def test_each_agent_ranks_locations_by_its_own_view():
    """Without contact, an agent's choice depends on its own measurements only."""
    without_links = nx.empty_graph(AGENTS)

    def choice(value_of_c):
        playing = team("readings", {"seed": 3})
        playing.belief.learn({"a": ([[10.0, 10.0]], [1.0]), "c": ([[90.0, 40.0]], [value_of_c])}, links=without_links)
        return playing.ask(links=without_links)

    low, high = choice(-5.0), choice(5.0)
    np.testing.assert_array_equal(low.points["a"], high.points["a"])
    assert low.means["a"] == high.means["a"]
    assert low.means["c"] < high.means["c"]


def test_the_first_agent_by_name_of_each_connected_group_leads():
    belief = FusedBelief(FusedSettings(method="consensus", n_features=20), team().domain, AGENTS, seed=0)
    readings = {name: (PLACES[n : n + 2], [1.0, 2.0]) for n, name in enumerate(AGENTS)}
    belief.learn(readings, nx.Graph([("b", "c")]))
    assert [belief.agents[name].proposal.proposer for name in AGENTS] == ["a", "b", "b"]
    belief.learn({}, None)
    assert {agent.proposal.proposer for agent in belief.agents.values()} == {"a"}
    assert belief.n_data == 6
    assert belief.representative == "a"


@pytest.mark.parametrize("method", EACH)
def test_agents_agree_on_the_unit_at_once_when_outcomes_first_differ(method):
    """Until outcomes differ, the scale is 1 in any unit. If it stayed, much smaller signals would count as noise."""
    rng, settings = np.random.default_rng(0), FusedSettings(method=method, n_features=16)
    belief = FusedBelief(settings, Domain(np.zeros(2), np.ones(2)), ["a", "b"], seed=0)
    for n in (5, 4, 4, 4):  # so that agents do not propose because of growth
        belief.learn({name: (rng.random((n, 2)), np.zeros(n)) for name in "ab"}, None)
    X, unit, scales = rng.random((6, 2)), 1e-9, list[float]()
    belief.learn({"b": (X, unit * X.sum(axis=1))}, None)  # only b measures different outcomes, after its waiting time
    for _ in range(4):
        belief.learn({"a": (rng.random((9, 2)), np.zeros(9))}, None)
        proposals = {agent.proposal for agent in belief.agents.values()}
        scales += [proposal.hyperparameters.scale for proposal in proposals]
    assert len(scales) == 4
    assert all(0.1 * unit < scale < 10.0 * unit for scale in scales)


@pytest.mark.parametrize("method", EACH)
def test_agents_accept_proposals_with_very_small_noise(method):
    prior = sb.ExactGPSettings(noise_floor=1e-16, noise_median=1e-14)
    settings, rng = FusedSettings(method=method, n_features=16, prior=prior), np.random.default_rng(0)
    belief = FusedBelief(settings, Domain(np.zeros(1), np.ones(1)), ["a", "b"], seed=0)
    for _ in range(2):
        belief.learn({name: (X := rng.random((4, 1)), np.sin(3.0 * X[:, 0])) for name in "ab"}, None)
    assert {agent.proposal.proposer for agent in belief.agents.values()} == {"a"}
    assert all(agent.reached.keys() == {"a", "b"} and not agent.refused for agent in belief.agents.values())


def test_the_beliefs_of_one_agent_give_no_team_posterior():
    alone = FusedBelief(FusedSettings(n_features=20), team().domain, AGENTS, seed=0, held=["b"]).views
    assert view_of(alone, "b").n_data == 0
    with pytest.raises(ConfigError, match=r"got the beliefs of \['b'\].*view_of"):
        alone.posterior(PLACES)


@pytest.mark.parametrize("method", ["consensus", "readings"])
def test_when_the_leader_is_absent_the_next_agent_leads(method):
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


def test_unknown_agents_and_invalid_links_are_refused_without_a_change():
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


def test_attached_data_go_to_the_first_agent_and_count_once():
    playing = team()
    playing.attach(PLACES[:4], [1.0, 2.0, float("nan"), 3.0])
    assert playing.failures == 1
    play(playing, 1)
    assert {agent: round(n) for agent, n in playing.belief.agents["c"].reached.items()} == {"a": 4, "b": 1, "c": 1}


@pytest.mark.parametrize("method", ["consensus", "readings"])
def test_with_a_time_axis_measurements_of_every_agent_lose_weight(method):
    playing = team(method, prior=ExactGPSettings(restarts=0, time=TimeAxis()))
    play(playing, 3)
    for own in playing.belief.agents.values():
        assert own.X[:, 2].tolist() == [1.0, 2.0, 3.0]
    views, later = playing.belief.views, playing.belief.views.at(1e4)
    for agent in AGENTS:
        now = views.by_agent[agent].posterior(PLACES)[1].mean()
        assert now < 0.999 * later.by_agent[agent].posterior(PLACES)[1].mean()


def test_flooded_measurements_with_a_time_axis_give_the_exact_process_of_all():
    playing = team(prior=ExactGPSettings(restarts=0, time=TimeAxis()))
    play(playing, 3)
    X = np.concatenate([playing.belief.agents[name].X for name in AGENTS])
    y = np.array([field(x[:2]) for x in X])
    h = playing.belief.hyperparameters
    assert h.time is not None
    expected = ExactGP.from_hyperparameters(ExactGPSettings(), playing.domain, h, X, y).at(3).posterior(PLACES)
    np.testing.assert_allclose(playing.belief.views.by_agent["b"].posterior(PLACES), expected)


@pytest.mark.parametrize("method", EACH)
def test_agents_with_equal_data_share_one_belief_equal_to_their_own(method):
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
    """A team over links with faults after some rounds, and the reports of links in each round."""
    by_deadline = sb.MaxSum(mode="asynchronous", deadline=6)
    given = {"transport": {"kind": "faulty", **transport}, "coordination": by_deadline}
    playing = team(method, given, **{"n_features": 20, "steps": 20, **settings})
    link_reports = []
    for _ in range(rounds):
        play(playing, 1)
        if link_reports:  # sent before this decision
            sent_before = playing.sent["sharing"]
            assert (link_reports[-1].total.messages, link_reports[-1].total.bytes) == (
                sent_before.messages,
                sent_before.bytes,
            )
        link_reports.append(playing.sharing_links)
    return playing, link_reports


def reached_of(playing, agent):
    """Number of measurements of each agent that have reached an agent."""
    return playing.belief.agents[agent].reached


NOISY = {"loss": 0.4, "delay": 3, "duplicate": 0.3, "reorder": 0.5}
FAILING = {"bandwidth": 300, "delay": 2, "deaths": [{"agent": "b", "round": 2, "step": 1}]}


@pytest.mark.parametrize(("method", "faults"), list(zip(METHODS, [NOISY, FAILING] * 2, strict=True)))
def test_messages_of_the_fusion_have_the_faults_of_the_teams_transport(method, faults):
    playing, link_reports = over(faults, method, rounds=3)
    edges = [edge for links in link_reports for edge in links.edges.values()]
    assert sum(edge.steps for edge in edges) > sum(edge.arrived for edge in edges)  # messages take more than one step
    if "loss" in faults:
        lost = sum(edge.lost for edge in edges) / sum(edge.messages for edge in edges)
        assert 0.2 < lost < 0.6
    else:
        assert [links.silent for links in link_reports] == [(), ("b",), ("b",)]
        assert not any(edge.startswith("b>") for links in link_reports[1:] for edge in links.edges)
        assert not any(edge.arrived for edge in (link_reports[1].edges["a>b"], link_reports[2].edges["c>b"]))
    total = sum(len(playing.belief.agents[name].y) for name in AGENTS)
    for agent in playing.belief.agents.values():
        assert sum(agent.reached.values()) <= total + 1e-6  # duplicates count once


def test_measurements_behind_a_cut_arrive_after_it():
    cut = {"parts": [["c"]], "rounds": [2, 3]}
    playing, _ = over({"cuts": [cut]}, rounds=3)
    assert reached_of(playing, "a") == {"a": 3, "b": 3, "c": 1}
    assert reached_of(playing, "c") == {"a": 1, "b": 1, "c": 3}
    again = sb.Team.from_state_dict(playing.state_dict())
    play(again, 1)
    assert reached_of(again, "a") == reached_of(again, "c") == {"a": 4, "b": 4, "c": 4}
    of_agreements, _ = over({"cuts": [cut | {"steps": [0, 2]}]}, rounds=3)
    assert reached_of(of_agreements, "a") == {"a": 3, "b": 3, "c": 3}


def test_losses_of_transport_and_belief_add_up():
    (alone, link_reports), (both, again) = (
        over({"loss": loss}, steps=1, loss=own) for loss, own in ((0.5, 0.0), (0.375, 0.2))
    )
    assert link_reports == again
    counts = [sum(reached_of(alone, agent).values()) for agent in AGENTS]
    assert counts == [sum(reached_of(both, agent).values()) for agent in AGENTS]
    assert 4 * 3 < sum(counts) < 3 * 4 * 3  # each agent has its own measurements, but not all
    plain = team("readings")
    play(plain, 1)
    assert plain.sharing_links is None


def test_without_messages_there_are_no_reports_of_links_or_traffic():
    playing, _ = over({"loss": 0.3}, rounds=1)
    assert playing.last_sharing.messages > 0
    playing.begin({})  # a further episode, without measurements
    assert (playing.last_sharing, playing.sharing_links) == (Traffic(), None)


@pytest.mark.parametrize("method", EACH)
def test_the_belief_is_fitted_to_attached_data_before_the_first_query(method):
    """Without a fit, outcomes of -60 are far below the prior's 0, so unknown locations would seem best."""
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
    """Two agents have equal reports but different kernels of time. The order of agents must not matter."""
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
