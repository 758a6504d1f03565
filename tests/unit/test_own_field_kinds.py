"""Teams in a field accept users' acquisitions, planners, solvers and beliefs."""

import dataclasses
import sys

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.settings import Settings

AGENTS = ["a", "b"]
LINE = np.linspace(0.0, 1.0, 9)[:, None]
PLACES = dict.fromkeys(AGENTS, LINE)
REPORT = sb.SolveReport("not_needed")
HERE = __name__


class Twin(sb.DBGPUCB, frozen=True, tag="twin"):
    """DB-GP-UCB under another name."""


class BestMean(sb.ChainAcquisition, frozen=True):
    bonus: float = 0.0

    def utility(self, situation, n_agents=None):
        return sb.LocalUtility(sqrt_beta=self.bonus, bonus=self.bonus, noise_variance=situation.belief.noise_variance)


class Relay(sb.ChainAcquisition, frozen=True):
    def local_problem(self, situation):
        return sb.DBGPUCB().local_problem(situation)


class Best(sb.Acquisition, frozen=True):
    """A minimal acquisition: a problem of the agents in the situation."""

    def local_problem(self, situation):
        graph = sb.FactorGraph.from_scopes({agent.upper(): [agent] for agent in situation.movers})
        places = {agent: situation.candidates[agent] for agent in situation.movers}
        tables = {agent.upper(): situation.belief.posterior_mean(places[agent]) for agent in situation.movers}
        return sb.acquisition.LocalProblem(graph, tables, places)


class Joint(Best, frozen=True):
    """An acquisition that baselines refuse: its problem has all agents, whichever are in the situation."""

    def local_problem(self, situation):
        return super().local_problem(dataclasses.replace(situation, agents=("a", "b"), candidates=PLACES))


class Leftmost:
    def __init__(self, step: float = 0.0):
        self.step = step

    def decide(self, situation, acquisition):
        order = {agent: np.argsort(situation.candidates[agent][:, 0]) for agent in situation.movers}
        chosen = {agent: situation.candidates[agent][order[agent][n]] for n, agent in enumerate(order)}
        return sb.Decision({agent: place + self.step for agent, place in chosen.items()}, REPORT)


class LeftmostSettings(Settings, frozen=True, tag_field="kind", tag="leftmost"):
    step: float = 0.0

    def decide(self, situation, acquisition):
        return Leftmost(self.step).decide(situation, acquisition)


class ByExact:
    def __init__(self):
        self.links = []

    def solve(self, graph, tables, links=None):
        self.links.append(links)
        return sb.exact(graph, tables, links=links)


class Plain:
    """The exact belief as a user's class."""

    def __init__(self, noise: float = 0.05):
        self.settings = sb.ExactGPSettings(noise_median=noise)

    def prior(self, domain):
        return sb.ExactGP.create(self.settings, domain)

    def restored(self, domain, state):
        return sb.ExactGP.from_state_dict(self.settings, domain, state)


def team_of(**settings):
    return sb.Team.for_field(AGENTS, low=[0.0], high=[1.0], **{"seed": 3, **settings})


def played(rounds=5, *, team=None, **settings):
    team, points = team_of(**settings) if team is None else team, []
    for _ in range(rounds):
        query = team.ask(PLACES)
        points.append({agent: float(x[0]) for agent, x in query.points.items()})
        team.tell(query, {agent: -((x - 0.7) ** 2) for agent, x in points[-1].items()})
    return team, points


def test_a_subclass_decides_as_its_base_class():
    assert played(acquisition=Twin())[1] == played(acquisition=sb.DBGPUCB())[1] == played(acquisition=Relay())[1]


def test_settings_of_a_users_acquisition_matter_with_every_coordination_method():
    for coordination in ("exact", "max-sum", "greedy", "independent"):
        for transport in ("in-process", {"kind": "in-process", "as_agents": True}):
            bold = played(acquisition=BestMean(bonus=30.0), coordination=coordination, transport=transport)[1]
            assert bold != played(acquisition=BestMean(), coordination=coordination, transport=transport)[1]


@pytest.mark.parametrize("coordination", ["exact", "greedy", "independent"])
def test_a_users_acquisition_with_only_a_problem_runs_under_baselines(coordination):
    team = team_of(acquisition=Best(), coordination=coordination)
    team.attach(LINE, -((LINE[:, 0] - 0.25) ** 2))
    points = {agent: float(x[0]) for agent, x in team.ask(PLACES).points.items()}
    second, first = LINE[np.argsort(team.belief.posterior_mean(LINE))[-2:], 0].tolist()
    assert points == {"a": first, "b": second if coordination == "greedy" else first}
    assert len(played(acquisition=Relay(), coordination=coordination)[1]) == 5


def test_baselines_refuse_a_problem_of_other_agents():
    words = r"Joint\.local_problem\(\) returned \('a', 'b'\); wanted a problem of 'a' alone"
    with pytest.raises(ShapeError, match=words):
        team_of(acquisition=Joint(), coordination="greedy").ask(PLACES)


def test_a_users_solver_receives_tables_and_links():
    mine = ByExact()
    assert played(coordination=mine)[1] == played(coordination="exact")[1]
    assert mine.links == [None] * 5


@pytest.mark.parametrize("planner", [Leftmost(), LeftmostSettings()])
def test_agents_go_where_a_users_planner_sends_them(planner):
    assert played(2, coordination=planner)[1] == [{"a": 0.0, "b": 0.125}] * 2


def test_a_users_belief_learns_is_fitted_and_saved():
    team, points = played(belief=Plain())
    assert points == played(belief=sb.ExactGPSettings(noise_median=0.05))[1]
    state = team.state_dict()
    with pytest.raises(ConfigError, match=r"\$\.belief: got '.*test_own_field_kinds:Plain', your own code"):
        sb.Team.from_state_dict(state)
    again = sb.Team.from_state_dict(state, belief=Plain())
    assert played(3, team=again)[1] == played(3, team=team)[1]


def test_a_saved_team_continues_if_the_users_parts_are_passed_again():
    own = {"acquisition": BestMean(bonus=2.0), "coordination": Leftmost()}
    team, _ = played(2, **own)
    state = team.state_dict()
    assert played(2, team=sb.Team.from_state_dict(state, **own))[1] == played(2, team=team)[1]
    for slot in own:
        given = {other: part for other, part in own.items() if other != slot}
        with pytest.raises(ConfigError, match=rf"\$\.{slot}: got .*pass it again.* {slot}=…"):
            sb.Team.from_state_dict(state, **given)


def test_parts_are_loaded_by_name_with_the_rest_of_their_tables_as_settings():
    named = played(acquisition={"kind": f"{HERE}:BestMean", "bonus": 30.0}, belief=f"{HERE}:Plain")[1]
    assert named == played(acquisition=BestMean(bonus=30.0), belief=Plain())[1]
    assert played(1, coordination={"kind": f"{HERE}:Leftmost", "step": 0.01})[1] == [{"a": 0.01, "b": 0.135}]
    assert type(team_of(coordination=f"{HERE}:ByExact").coordination) is ByExact


def test_a_saved_state_never_loads_the_code_that_it_names(tmp_path, monkeypatch):
    (tmp_path / "evil_state.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for team in (team_of(), sb.Team(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})):
        for slot in ("belief", "acquisition", "coordination", "transport"):
            state = team.state_dict()
            state["json"]["settings"][slot] = {"kind": "evil_state:Evil"}
            with pytest.raises(ConfigError, match=rf"\$\.{slot}: got 'evil_state:Evil', your own code"):
                sb.Team.from_state_dict(state)
            state["json"]["settings"][slot] = "evil_state:Evil"
            with pytest.raises(ConfigError, match="your own code"):
                sb.Team.from_state_dict(state)
    assert "evil_state" not in sys.modules
    assert not (tmp_path / "ran").exists()


class TakesTooFew:
    def solve(self, graph):
        return graph


class Nothing:
    pass


class Raises(Leftmost):
    def __init__(self):
        raise OSError("no sensor\nat hand")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acquisition": BestMean}, r"\$\.acquisition: got the class BestMean; wanted .*subclass of swarmbo\.Chain"),
        ({"acquisition": Nothing()}, r"\$\.acquisition: got an instance of Nothing; wanted your subclass"),
        ({"coordination": Nothing()}, r"\$\.coordination: got an instance of Nothing; wanted an object with solve"),
        ({"coordination": TakesTooFew()}, r"TakesTooFew\.solve\(self, graph\); wanted solve\(self, graph, tables, li"),
        ({"belief": Nothing()}, r"\$\.belief: got an instance of Nothing; wanted an object with prior\(domain\) and"),
        ({"acquisition": f"{HERE}:Nothing"}, r"\$\.acquisition\.kind: got .*:Nothing; wanted your subclass of swarmbo"),
        ({"acquisition": f"{HERE}:BestMeen"}, r"has no 'BestMeen'; did you mean 'BestMean'\?"),
        ({"acquisition": f"{HERE}:played"}, "which is a function; wanted a class"),
        ({"acquisition": "no_such_module:Best"}, r"\$\.acquisition\.kind: got .*there is no module 'no_such_module'"),
        ({"coordination": "os:system"}, "which is a builtin_function_or_method; wanted a class"),
        ({"coordination": "subprocess:Popen"}, r"got subprocess:Popen; wanted an object with solve\("),
        ({"coordination": "../evil:Best"}, r"\$\.coordination\.kind: got '\.\./evil:Best'; wanted 'module:Class'"),
        ({"coordination": ".x:y"}, r"got '\.x:y'; wanted 'module:Class'"),
        ({"coordination": {"kind": f"{HERE}:Leftmost", "stop": 1}}, "coordination: unknown key 'stop'; did you mean"),
        ({"coordination": {"kind": f"{HERE}:LeftmostSettings", "stop": 1}}, "unknown key 'stop'; did you mean 'step'"),
        ({"coordination": {"kind": f"{HERE}:LeftmostSettings", "step": "far"}}, r"\$\.coordination\.step: got 'far'"),
        ({"coordination": f"{HERE}:Raises"}, r"Raises refused its settings: OSError: no sensor at hand \(test_own_fie"),
        ({"transport": f"{HERE}:Nothing"}, r"\$\.transport\.kind: got '.*:Nothing'; wanted one of 'faulty', 'in-proc"),
    ],
)
def test_objects_that_are_not_parts_of_a_team_are_refused_in_one_line(settings, words):
    with pytest.raises(ConfigError, match=words) as refused:
        team_of(**settings)
    assert "\n" not in str(refused.value)


class JunkUtility(sb.ChainAcquisition, frozen=True):
    weight: float = 1.0
    noise: float = 1.0

    def utility(self, situation, n_agents=None):
        return 3.0 if self.weight == self.noise else sb.LocalUtility(self.weight, 1.0, self.noise)


class JunkProblem(sb.ChainAcquisition, frozen=True):
    def local_problem(self, situation):
        return "problem"


class Answers:
    """A solver, a planner or a belief that always returns one answer."""

    def __init__(self, answer=None):
        self.answer = answer

    def method(self, *given, **more):
        return self.answer


class Solver(Answers):
    solve = Answers.method


class Planner(Answers):
    decide = Answers.method


class Prior(Answers):
    prior = restored = Answers.method


def solved(choice):
    return Solver(sb.Solution(choice, 0.0, None, REPORT))


def planned(places):
    return Planner(sb.Decision(places, REPORT))


AS_AGENTS = sb.InProcess(as_agents=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acquisition": JunkUtility()}, r"own_field_kinds:JunkUtility\.utility\(\) returned 3\.0; wanted a Utility"),
        ({"acquisition": JunkUtility(weight=-2.0)}, r"sqrt_beta: got -2\.0; wanted a number >= 0"),
        ({"acquisition": JunkUtility(noise=0.0)}, r"noise_variance: got 0\.0; wanted a number > 0"),
        ({"acquisition": JunkUtility(), "coordination": "greedy"}, r"\.utility\(\) returned 3\.0; wanted a Utility"),
        ({"acquisition": JunkProblem()}, r"JunkProblem\.local_problem\(\) returned 'problem'; wanted a LocalProblem"),
        ({"coordination": Solver()}, r"Solver\.solve\(\) returned None; wanted a Solution"),
        ({"coordination": solved({"a": 0})}, r"Solver\.solve\(\) returned None; wanted an index from 0 to"),
        ({"coordination": solved({"a": 0, "b": 10**6})}, r"returned 1000000; wanted an index from 0 to \d+ for 'b"),
        ({"coordination": solved({"a": 0, "b": 0, "c": 0})}, r"returned {'c'}; wanted an index for each of a, b"),
        (
            {"coordination": Solver(sb.Solution({"a": 0, "b": 1}, 0.0, None, sb.SolveReport("good")))},
            r"Solver\.solve\(\) returned Solution.*; wanted a valid Solution: .*'good'",
        ),
        ({"coordination": Planner(sb.Decision({}, None))}, r"Planner\.decide\(\) returned None; wanted a SolveReport"),
        ({"coordination": Planner()}, r"Planner\.decide\(\) returned None; wanted a Decision"),
        (
            {"coordination": planned({"c": [0.5]})},
            r"decide\(\) returned {'c': \[0\.5\]}; wanted 1 numbers in the box f",
        ),
        ({"coordination": planned({"a": [np.nan]})}, "wanted 1 numbers in the box for some of 'a', 'b'"),
        ({"coordination": planned({"a": [7.0]})}, "wanted 1 numbers in the box"),
        ({"coordination": planned({"a": "here"})}, "wanted 1 numbers in the box"),
        ({"belief": Prior(3)}, r"Prior\.prior\(\) returned 3; wanted a belief, like .*it has no X, n_data"),
        ({"coordination": ByExact(), "transport": AS_AGENTS}, r"\.as_agents: got true, but ByExact decides centrally"),
    ],
)
def test_wrong_answers_are_refused_with_their_class_and_method(settings, words):
    with pytest.raises((ShapeError, ConfigError), match=words):
        team_of(**settings).ask(PLACES)


class Drawing:
    """A solver that uses the seed of the decision."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def solve(self, graph, tables, links=None, *, seed=0):
        self.seeds.append(seed)
        return sb.DSA().solve(graph, tables, links, seed)


def test_a_users_solver_receives_the_seed_of_the_decision_if_it_accepts_one():
    def seeds(team_seed):
        played(2, coordination=(own := Drawing()), seed=team_seed)
        return own.seeds

    first = seeds(3)
    assert first == seeds(3)
    assert len({*first, *seeds(4)}) == 4
