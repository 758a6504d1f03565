"""Wrong input is refused in one line with what, got and wanted; reports of an environment never stop a run."""

import json
from contextlib import nullcontext

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.belief.gp.additive_settings import FactorPrior
from swarmbo.errors import ConfigError, DataWarning, ShapeError, SwarmboError, UnknownQueryError
from swarmbo.transport import Cut, InProcess
from swarmbo_envs import function_v0, robot_team_v0, sensor_field_v0, wlan_power_v0

from .teams import CHAIN, CUBE, saved

SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}


def joint_team(**settings):
    return sb.Team(CHAIN, **{"bounds": CUBE, "initial": 2, "acquisition": "dec-hbo", **settings})


def field_team(**settings):
    return sb.Team.for_field(["a", "b"], [0.0], [1.0], **settings)


def graph_of(**changed):
    whole = {
        "factors": ("f", "g"),
        "scopes": (("x",), ("y",)),
        "factor_owners": ("a", "a"),
        "variables": ("x", "y"),
        "variable_owners": ("a", "b"),
    }
    return sb.FactorGraph(**whole | changed)


def telling(make, outcomes, **more):
    def tell():
        team = make()
        team.tell(team.ask(), outcomes, **more)

    return tell


def by_factor():
    return joint_team(outcomes="per-factor")


REFUSED = {
    "a variable in no factor": (
        lambda: graph_of(variables=("x", "y", "idle"), variable_owners=("a", "b", "b")),
        "'idle', which is in no scope; wanted each variable in a factor",
    ),
    "a scope with unknown variables": (
        lambda: graph_of(scopes=(("x",), ("y", "z"))),
        r"\$\.scopes\.g: got \['z'\], which `variables` lacks",
    ),
    "a group of joined variables with an unknown one": (
        lambda: graph_of(joined=[("x", "y"), ("y", "z")]),
        r"\$\.joined\[1\]: got \['z'\], which `variables` lacks",
    ),
    "a set of joined variables, which has no order": (
        lambda: graph_of(joined=[{"x", "y"}]),
        r"\$\.joined\[0\]: got .*; wanted a list of names",
    ),
    "too few owners": (lambda: graph_of(factor_owners=("a",)), "factor_owners: got .*; wanted one for each of 2"),
    "an owner that is not a name": (lambda: graph_of(variable_owners=("a", 3)), "got the owner 3; wanted the name"),
    "a factor twice": (lambda: graph_of(factors=("f", "f")), "no name twice"),
    "a variable twice in a scope": (lambda: graph_of(scopes=(("x", "x"), ("y",))), "no name twice"),
    "an unhashable name": (lambda: graph_of(variables=(["x"], "y")), r"got the name \['x'\]; wanted a string"),
    "a name of both kinds": (lambda: graph_of(factors=("x", "g")), "'x' names both a factor and a variable"),
    "scopes as tuples": (lambda: sb.FactorGraph.from_scopes([("f", ["x"])]), r"scopes: got .*; wanted a table"),
    "a scope that is a number": (
        lambda: sb.FactorGraph.from_scopes({"f": 3}),
        "got 3; wanted a list of names, at least one variable",
    ),
    "an unhashable variable": (
        lambda: sb.FactorGraph.from_scopes({"f": [["x"]]}),
        r"got the name \['x'\]; wanted a string",
    ),
    "owners as tuples": (lambda: sb.FactorGraph.from_scopes(SCOPES, owners=[("f", "a")]), "owners: got .* a table"),
    "bounds as tuples": (lambda: joint_team(bounds=[("x", 0.0, 1.0)]), r"bounds: got .*; wanted a table"),
    "bounds that are text": (lambda: joint_team(bounds=CUBE | {"y": "ab"}), r"bounds\.y: got 'ab'; wanted \(low"),
    "bounds of text": (lambda: joint_team(bounds=CUBE | {"y": ("a", 1)}), r"bounds\.y: got \('a', 1\); wanted \(low"),
    "bounds of None": (lambda: joint_team(bounds=CUBE | {"y": None}), r"bounds\.y: got None; wanted \(low"),
    "complex bounds": (lambda: joint_team(bounds=CUBE | {"y": (0, 1j)}), r"bounds\.y: got .*; wanted \(low"),
    "three bounds": (lambda: joint_team(bounds=CUBE | {"y": (0, 1, 2)}), r"bounds\.y: got .*; wanted \(low"),
    "no graph at all": (lambda: sb.Team(SCOPES, CUBE), "graph: got .*; wanted a FactorGraph"),
    "owners of variables as tuples": (lambda: sb.Team(None, CUBE, variable_owners=[("x", "a")]), "_owners: got .* a t"),
    "factors without a graph": (lambda: sb.Team(None, CUBE, outcomes="per-factor"), "graph that has the factors"),
    "settings of another part": (lambda: field_team(belief=sb.MaxSum()), r"^\$\.belief: got MaxSum settings"),
    "a box of text": (lambda: sb.Team.for_field(["a"], ["low"], [1.0]), r"bounds: got .*; wanted numbers"),
    "agents as a number": (
        lambda: sb.Team.for_field(3, [0.0], [1.0]),
        "agents: got 3; wanted a list of names, at least one agent",
    ),
    "agents as one text": (lambda: sb.Team.for_field("abc", [0.0], [1.0]), "agents: got 'abc'; wanted"),
    "agents that cannot be hashed": (lambda: sb.Team.for_field([["a"]], [0.0], [1.0]), "agents: got .*; wanted"),
    "agents as numbers": (lambda: sb.Team.for_field([0, 1], [0.0], [1.0]), "got the name 0; wanted a string"),
    "an agent twice": (lambda: sb.Team.for_field(["a", "a"], [0.0], [1.0]), "no name twice"),
    "a point without a variable": (
        telling(joint_team, 1.0, point={"x": 0.1, "y": 0.2}),
        r"point: got no 'z'; wanted a value for each of \['x', 'y', 'z'\]",
    ),
    "a point of text": (telling(joint_team, 1.0, point=CUBE | {"z": "b"}), "point.x: got .*; wanted a number from"),
    "a point as a tuple": (telling(joint_team, 1.0, point=(0.1, 0.2, 0.3)), "point: got .*; wanted a table"),
    "a point that is not finite": (
        telling(joint_team, 1.0, point={"x": 0, "y": np.nan, "z": 0}),
        "point.y: got nan; wanted",
    ),
    "a point out of bounds": (telling(joint_team, 1.0, point={"x": 0, "y": 0, "z": 2.0}), "point.z: got 2.0; wanted"),
    "a total for outcomes per factor": (telling(by_factor, 1.0), "one number for several factors"),
    "an invalid query": (lambda: joint_team().tell(["q00001"], 1.0), r"query: got \['q00001'\]; wanted a query"),
    "an invalid field query": (lambda: field_team().tell({}, {}), r"query: got \{\}; wanted a query"),
    "an aim of an environment": (lambda: joint_team(aim="map"), r"\$\.aim: .*wanted the environment's task and level"),
    "outcomes that are not a table": (
        telling(field_team, 3.0),
        r"outcomes: got 3.0; wanted a table \{agent: outcome\}",
    ),
    "outcomes as tuples": (telling(field_team, [("a", 1.0)]), "outcomes: got .*; wanted a table"),
    "locations as a list": (telling(field_team, {"a": 1.0}, locations=[0.1]), "locations: got .*; wanted a t"),
    "locations of an unknown agent": (telling(field_team, {"a": 1.0}, locations={"nobody": [0.0]}), "without outcomes"),
    "a location extremely far away": (
        telling(field_team, {"a": 1.0}, locations={"a": [1e300]}),
        r"location of 'a': got \[1e\+300\]; wanted 1 numbers in or near the box, at most 100 of its longest sides away",
    ),
    "a location in other units": (telling(field_team, {"a": 1.0}, locations={"a": [500.0]}), "near the box"),
    "a survey in other units": (lambda: field_team().attach([[0.1], [500.0]], [1.0, 2.0]), r"locations\[1\]: got"),
    "a table in other units": (
        lambda: field_team().attach([{"x": 500.0, "value": 1.0}]),
        r"x.*500.*a number between 0 and 1, or at most 100 longest sides of the box away",
    ),
    "candidates in other units": (lambda: field_team().ask({"a": [[0.1], [500.0]]}), r"candidates of 'a': got \[500"),
    "a survey extremely far away": (lambda: field_team().attach([[0.1], [1e300]], [1.0, 2.0]), r"locations\[1\]"),
    "a survey of text": (lambda: field_team().attach([[0.1]], ["high"]), "got .*high.*; wanted arrays of numbers"),
    "evaluations of text": (lambda: joint_team().attach(["here"], [1.0]), "got .*here.*; wanted arrays of numbers"),
    "evaluations out of bounds": (
        lambda: joint_team().attach([[9.0, 0.1, 0.1]], [1.0]),
        ".x: got .*; wanted a num",
    ),
    "evaluations that are not finite": (
        lambda: joint_team().attach([[np.nan, 0.1, 0.1]], [1.0]),
        ".x: got .*; wanted a num",
    ),
    "a step of a team without a world": (lambda: joint_team().act({}), r"Team\.for_env"),
    "links of text": (lambda: joint_team().ask(links="all"), "links: got 'all'; wanted an undirected networkx.Graph"),
    "links of a field as tuples": (lambda: field_team().ask(links=[("a", "b")]), "links: got .*; wanted an undirected"),
    "links of numbers": (
        lambda: field_team().ask(links=nx.path_graph(2)),
        r"^\$\.links: got a graph of \[0, 1\], none of them an agent; wanted .* of links between \['a', 'b'\]",
    ),
    "links of unknown agents": (
        lambda: joint_team().ask(links=nx.Graph([("x0", "x1")])),
        "none of them an agent",
    ),
    "participants as a text": (lambda: field_team().ask(agents="ab"), r"^\$\.agents: got 'ab'; wanted a list of names"),
    "candidates of an unknown agent": (
        lambda: field_team().ask(candidates={"z": [[0.5]]}),
        r"^\$\.candidates: got \['z'\]; wanted some of \['a', 'b'\]",
    ),
    "an unknown agent's price": (
        lambda: field_team().ask(prices={"z": 1.0}),
        r"^\$\.prices: got \['z'\]; wanted some of",
    ),
    "directed links": (lambda: joint_team().ask(links=nx.DiGraph()), "directed"),
    "directed links in a field": (lambda: field_team().ask(links=nx.DiGraph([("a", "b")])), "directed"),
    "candidates as a list": (lambda: field_team().ask([[0.1], [0.2]]), "candidates: got .*; wanted a table"),
    "candidates of an agent with another name": (lambda: field_team().ask({"A": [[0.0]]}), "'A'"),
    "candidates of another shape": (lambda: field_team().ask({"a": np.zeros((3, 3))}), "candidates of 'a'"),
    "candidates of text": (lambda: field_team().ask({"a": "near"}), "candidates of 'a': got 'near'; wanted numbers"),
    "candidates far away": (lambda: field_team().ask({"a": [[1e300]]}), r"candidates of 'a': got \[1e\+300\]; wanted"),
    "prices as a list": (lambda: field_team().ask(prices=[1.0, 2.0]), "prices: got .*; wanted a table"),
    "a price of text": (lambda: field_team().ask(prices={"a": "dear"}), "prices.a: got 'dear'; wanted a finite number"),
    "lists as agents of ask": (lambda: field_team().ask(agents=[["a"]]), r"agents: got \[\['a'\]\]; wanted some of"),
    "an unknown agent of ask": (lambda: field_team().ask(agents=["zeppelin"]), "zeppelin"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_is_refused_in_one_line_by_an_error_of_swarmbo(case):
    call, words = REFUSED[case]
    with pytest.raises((ConfigError, ShapeError, UnknownQueryError), match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("make", [joint_team, field_team])
@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1.5), ("seed", "a"), ("seed", None), ("seed", -1), ("seed", True), ("rounds", 2.5), ("rounds", "9")],
)
def test_arguments_that_are_not_integers_are_refused_by_name(make, name, value):
    with pytest.raises(ConfigError, match=rf"^\$\.{name}: got {value!r}; wanted an integer >= [01]$"):
        make(**{name: value})


@pytest.mark.parametrize("outcome", ["abc", "1.5", 1j, [1.0], (1.0, 2.0), np.ones(3), object()])
def test_an_outcome_that_is_not_a_number_is_refused_and_the_query_stays_pending(outcome):
    joint, field = joint_team(), field_team()
    one, other = joint.ask(), field.ask()
    for tell in (
        lambda: joint.tell(one, outcome),
        lambda: joint.tell(one, {"f": outcome}),
        lambda: field.tell(other, {"a": outcome, "b": 1.0}),
    ):
        with pytest.raises(ShapeError, match=r"outcome of .*: got .*; wanted a number, or None if it failed"):
            tell()
    joint.tell(one, 1.0)
    field.tell(other, {"a": 1.0, "b": 2.0})
    assert (joint.failures, field.failures) == (0, 0)


@pytest.mark.parametrize("outcome", [1e60, -1e60, 1e61, 1e300, 10**400, np.inf])
def test_an_extremely_large_outcome_counts_as_failed_in_fields_and_functions(outcome):
    joint, field = joint_team(), field_team()
    # a finite number was meant as an outcome, infinity may mean that the evaluation failed
    with (
        nullcontext() if outcome == np.inf else pytest.warns(DataWarning, match="which counts as missing; wanted less")
    ):
        joint.tell(joint.ask(), outcome)
        field.tell(field.ask(), {"a": outcome, "b": 1.0})
    joint.attach([[0.1, 0.2, 0.3]], [float(min(outcome, 1e300))])
    field.attach([[0.1]], [float(min(outcome, 1e300))])
    assert (joint.failures, joint.n_data) == (2, 0)
    assert (field.failures, field.belief.n_data) == (2, 1)
    joint.tell(joint.ask(), 1.0)
    assert np.isfinite(list(joint.ask().point.values())).all()
    assert np.isfinite(list(field.ask().stds.values())).all()


def test_masked_outcomes_count_as_failed():
    joint, field, outcomes = joint_team(), field_team(), np.ma.array([1.0, -9999.0], mask=[False, True])
    joint.attach([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], outcomes)
    field.attach([[0.1], [0.4]], outcomes)
    joint.tell(joint.ask(), np.ma.masked)
    assert (joint.n_data, joint.failures, field.belief.n_data) == (1, 2, 1)
    with pytest.raises(ShapeError, match=r"'f': got nan at \(1,\)"):
        sb.exact(sb.FactorGraph.from_scopes({"f": ["x"]}), {"f": outcomes})


@pytest.mark.parametrize("second", [(0.0, 9.0), sb.Integer(0, 9), sb.Categorical([3, 5])])
def test_a_masked_coordinate_is_refused(second):
    team, points = sb.Team(None, {"x": (0.0, 1.0), "i": second}), np.ma.array([[0.2, 3.0], [0.4, 5.0]])
    team.attach(points, [1.0, 2.0])
    points[1, 1] = np.ma.masked
    with pytest.raises(ConfigError, match=r"\$\.points\[1\]\.i: got nan; wanted"):
        team.attach(points, [1.0, 2.0])


ENVIRONMENTS = {
    "robots": lambda: robot_team_v0.parallel_env(
        robots=2, field={"gp": {"lengthscale_m": 400.0, "size_m": [900, 700]}}, max_sites=50
    ),
    "sensors": lambda: sensor_field_v0.parallel_env(sensors=3, field={"gp": {"size_m": [900, 700]}}),
    "totals": lambda: function_v0.parallel_env(function="camel"),
    "factors": lambda: function_v0.parallel_env(function="camel", outcomes="per-factor"),
    "wlan": lambda: wlan_power_v0.parallel_env(topology={"generated": {"access_points": 3, "users": 5}}),
}
THOROUGH = ("sensors", "factors")  # robots and totals run in every test
STRANGE = {
    "measurement": [1e60, 1e300, "high", np.ones(3), [1.0], 1j, None, {}, np.nan],
    "location": [np.full(1, 1e300), np.full(2, -1e300), "here", np.full(2, 1j), [1.0, [2.0]], {}, np.full(2, np.inf)],
}


@pytest.mark.parametrize(
    ("world", "key"),
    [
        *((world, "measurement") for world in ENVIRONMENTS if world not in THOROUGH),
        *(pytest.param(world, "measurement", marks=pytest.mark.thorough) for world in THOROUGH),
        *((world, "location") for world in ("robots", "totals")),
        *(pytest.param(world, "location", marks=pytest.mark.slow) for world in ("wlan", *THOROUGH)),
    ],
)
def test_a_team_counts_invalid_reports_as_failed_and_continues(world, key):
    env = ENVIRONMENTS[world]()
    settings = {} if world in ("robots", "sensors") else {"initial": 2, "acquisition": "dec-hbo"}
    team = sb.Team.for_env(env, **settings)
    observations, infos = env.reset(seed=0)
    team.begin(infos)
    for strange in STRANGE[key]:
        observations, *rest, infos = env.step(team.act(observations, infos))
        for agent in env.possible_agents:
            infos[agent] = infos[agent] | {key: strange}
            if key == "measurement" and "factors" in infos[agent]:
                infos[agent]["factors"] = dict.fromkeys(infos[agent]["factors"], strange)
        before = team.failures
        team.observe(observations, *rest, infos)
        assert team.failures > before
    observations, *rest, infos = env.step(team.act(observations, infos))
    failures = team.failures
    team.observe(observations, *rest, infos)
    assert team.failures == failures
    found = team.recommend()
    place = list(found.point.values()) if not team.problem.is_field else found.location
    assert np.isfinite([*place, found.mean, found.std]).all()
    assert abs(found.mean) < 1e6


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_an_evaluation_out_of_bounds_counts_as_failed_with_all_factors(outcomes):
    env = function_v0.parallel_env(function="camel", outcomes=outcomes)
    team = sb.Team.for_env(env, initial=2)
    observations, infos = env.reset(seed=0)
    observations, *rest, infos = env.step(team.act(observations, infos))
    infos["agent_1"]["location"] = np.array([7.0])
    team.observe(observations, *rest, infos)
    assert (team.n_data, team.failures, len(team.history)) == (0, 1 if outcomes == "total" else 3, 1)


@pytest.mark.parametrize("world", ENVIRONMENTS)
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda actions: list(actions.values()), r"\$\.actions: got .*; wanted a table \{agent: action\}"),
        (lambda actions: None, r"\$\.actions: got None; wanted a table"),
        (lambda actions: {a: x.astype(complex) for a, x in actions.items()}, r"\$\.actions\..*: got array.*; wanted"),
        (lambda actions: dict.fromkeys(actions, "north"), r"\$\.actions\..*: got 'north'; wanted"),
        (lambda actions: dict(enumerate(actions.values())), r"\$\.actions: got the name 0; wanted"),
    ],
)
def test_environments_refuse_invalid_actions_and_keep_their_state(world, spoil, words):
    env = ENVIRONMENTS[world]()
    env.reset(seed=0)
    actions = {agent: np.asarray(env.action_space(agent).low, dtype=float) for agent in env.agents}
    with pytest.raises(SwarmboError, match=words):
        env.step(spoil(actions))
    env.step(actions)


@pytest.mark.parametrize("world", ENVIRONMENTS)
@pytest.mark.parametrize("seed", [1.5, "a", -1, [3]])
def test_environments_refuse_seeds_that_are_not_integers(world, seed):
    with pytest.raises(ConfigError, match=r"\$\.seed: got .*; wanted an integer >= 0"):
        ENVIRONMENTS[world]().reset(seed=seed)


@pytest.mark.parametrize("options", ["", "x", 3, [("world", 1)]])
def test_environments_refuse_options_that_are_not_a_table_and_keep_their_episode(options):
    env = ENVIRONMENTS["robots"]()
    env.reset(seed=0, options={"of another wrapper": 1})
    with pytest.raises(ConfigError, match=r"\$\.options: got .*; wanted a table \{\"world\": number\}"):
        env.reset(seed=1, options=options)
    env.step({agent: env.action_space(agent).low for agent in env.agents})


S = np.str_
OWNERS = {S("f"): S("a"), S("g"): S("b")}
NUMPY_GRAPH = sb.FactorGraph.from_scopes({S("f"): [S("x"), S("y")], S("g"): [S("y"), S("z")]}, OWNERS)
BOX = dict.fromkeys(np.array(["x", "y", "z"]), (0.0, 1.0))


def in_a_function():
    region = {"kind": S("box"), "variables": [S("x")], "low": [0.1], "high": [0.2]}
    belief = sb.AdditiveGPSettings(factors={S("f"): FactorPrior(kernel=S("rbf"))})
    team = sb.Team(NUMPY_GRAPH, BOX, outcomes=S("per-factor"), belief=belief, acquisition=S("dec-hbo"), no_go=[region])
    told = {S("f"): 1.0, S("g"): 2.0}
    team.tell(S(team.ask().id), told, noise_std={S("f"): 0.1}, point=dict.fromkeys(BOX, 0.5))
    team.attach({**{name: [0.5] for name in BOX}, **{name: [y] for name, y in told.items()}})
    return team


def in_a_field():
    transport = sb.Faults(cuts=(Cut(parts=((S("a"),),), rounds=(90, 99)),))
    team = sb.Team.for_field([S("a"), S("b")], [0.0], [1.0], coordination=S("max-sum"), transport=transport)
    query = team.ask({S("a"): [[0.1]], S("b"): [[0.3]]}, agents=[S("b"), S("a")], prices={S("a"): 1e-9})
    team.tell(query, {S("a"): 1.0, S("b"): 2.0}, locations={S("a"): [0.2]})
    team.attach([[0.3]], [1.0], agents=[S("a")])
    return team


def of_unknown_structure():
    return sb.Team(None, BOX, variable_owners=dict.fromkeys(BOX, S("a")))


@pytest.mark.parametrize("make", [in_a_function, in_a_field, of_unknown_structure])
def test_numpy_strings_are_accepted_as_names_everywhere(make):
    team = make()
    again = saved(team)
    assert team.ask() == again.ask()


def test_agents_and_tables_accept_numpy_strings_as_names():
    problem = sb.Problem.of(NUMPY_GRAPH, BOX, outcomes="per-factor")
    agents = {S(name): Agent(S(name), problem, seed=1, initial=1) for name in problem.agents}
    for _ in range(2):
        (query,) = {agent.ask() for agent in agents.values()}
        run(agents, InProcess().open(list(agents)))
        for name, agent in agents.items():
            own = {S(factor): 1.0 for factor in NUMPY_GRAPH.factors_owned_by(name)}
            agent.tell(S(query), own, noise_std=dict.fromkeys(own, 0.1))
    solution = sb.max_sum(NUMPY_GRAPH, {S("f"): np.eye(2), S("g"): np.eye(2)})
    assert json.loads(json.dumps(solution.assignment)) == {"x": 0, "y": 0, "z": 0}
