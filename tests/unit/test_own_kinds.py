"""Teams of a function accept users' acquisitions and coordination methods."""

from dataclasses import dataclass

import msgspec
import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.confidence_bounds import AddGPUCB, ConfidenceBounds
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.evaluations import Ledger

from .teams import ask_and_tell

GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
BOUNDS = {"x": (0.0, 1.0), "y": (2.0, 4.0), "z": (-1.0, 0.0)}
REPORT = sb.SolveReport("not_needed")


class Twin(AddGPUCB, frozen=True, tag="twin"):
    """Add-GP-UCB under another name."""


class Fixed(sb.Acquisition, frozen=True):
    weight: float = 3.0

    def local_functions(self, situation, model):
        return ConfidenceBounds.on_cube(model.belief, sqrt_beta=dict.fromkeys(model.belief.graph.factors, self.weight))


@dataclass(frozen=True, eq=False)
class Optimism(sb.BeliefFunctions):
    weight: float  # without a default, after fields of the base that have one

    def merit(self, stack, mean, std):
        return mean + self.weight * std, 1.0, self.weight


class Optimistic(sb.Acquisition, frozen=True):
    def local_functions(self, situation, model):
        return Optimism.on_cube(model.belief, weight=3.0)


class Barred(Optimism):
    """The merit is minus infinity where the mean is not positive."""

    def merit(self, stack, mean, std):
        return np.where(mean > 0.0, mean, -np.inf), 1.0, 0.0


class Flat(Optimism):
    def merit(self, stack, mean, std):
        return 1.0, 0.0, 0.0


class Judging(sb.Acquisition, frozen=True):
    flat: bool = False

    def local_functions(self, situation, model):
        return (Flat if self.flat else Barred).on_cube(model.belief, weight=1.0)


def own_acquisition_of(weight):
    return played(acquisition=Fixed(weight=weight))[1]


class Corner:
    """A coordination method that always returns one point, and records its calls."""

    def __init__(self, point):
        self.point, self.calls = point, []

    def maximise(self, functions, links=None, seed=0):
        self.calls.append((functions.graph.factors, links, seed))
        return sb.Agreement(np.array(self.point), 0.0, REPORT)


class Timely(Corner):
    """A method whose settings have the names of built-in ones, with another meaning."""

    mode, deadline, patience, threshold = "asynchronous", 5, 2, 0.0


class Alone:
    def decide_joint(self, situation, acquisition):
        return np.full(3, len(situation.history) / 10), REPORT


def played(rounds=6, *, team=None, **settings):
    team = sb.Team(GRAPH, BOUNDS, seed=3, initial=3, **settings) if team is None else team
    queries = ask_and_tell(team, rounds, lambda point: -float(sum(value**2 for value in point.values())))
    return team, [tuple(query.point.values()) for query in queries]


def test_a_subclass_decides_as_its_base_class():
    assert played(acquisition=Twin())[1] == played(acquisition="add-gp-ucb")[1]


def test_a_users_acquisition_works_with_every_coordination_method():
    for coordination in ("admm", "refined-max-sum"):
        for transport in ("in-process", {"kind": "in-process", "as_agents": True}):
            team, points = played(acquisition=Fixed(), coordination=coordination, transport=transport)
            assert len(set(points)) == 6, (coordination, transport)
            assert team.last_report.value is not None


def test_a_users_functions_need_no_defaults_of_fields():
    assert played(acquisition=Optimistic())[1] == own_acquisition_of(3.0) != own_acquisition_of(30.0)


@pytest.mark.parametrize(
    "merit",
    [lambda mean: (mean * np.nan, 1.0, 1.0), lambda mean: (mean.sum(), 1.0, 1.0), lambda mean: mean],
    ids=["nan", "shape", "no slopes"],
)
def test_a_merit_without_finite_values_and_slopes_is_refused(merit, monkeypatch):
    monkeypatch.setattr(Optimism, "merit", lambda self, stack, mean, std: merit(mean))
    with pytest.raises(ShapeError, match=r"Optimism.merit\(\) returned .*; wanted \(value, by_mean, by_std\), numbers"):
        played(acquisition=Optimistic())


def test_nan_values_of_a_users_functions_are_refused(monkeypatch):
    monkeypatch.setattr(Optimism, "value", lambda self, stack, U, received: np.full(U.shape[:2], np.nan))
    with pytest.raises(ShapeError, match=r"Optimistic.local_functions\(\) returned nan; wanted functions of finite"):
        played(acquisition=Optimistic())


def test_a_users_method_is_called_after_the_initial_design_with_the_links():
    mine, links = Corner([0.25, 0.5, 1.0]), nx.path_graph(["x", "y"])
    team = sb.Team(GRAPH, BOUNDS, coordination=mine, seed=0, initial=2)
    for _ in range(2):
        team.tell(team.ask(links=links), 1.0)
    assert mine.calls == []
    assert team.ask(links=links).point == {"x": 0.25, "y": 3.0, "z": 0.0}
    (factors, given, seed), *others = mine.calls
    assert (factors, given, others) == (("f", "g"), links, [])
    team.tell(team.last_query, 2.0)
    team.ask()
    assert mine.calls[1][2] != seed  # the seed depends on the history


def test_a_users_method_may_have_settings_named_as_those_of_a_deadline():
    team, points = played(coordination=Timely([0.25, 0.5, 1.0]))
    assert len(team.coordination.calls) == 3
    assert points[3] == (0.25, 3.0, 0.0)


def test_a_users_planner_receives_the_history():
    _, points = played(rounds=5, coordination=Alone())
    assert points[3:] == [(0.3, 2.6, -0.7), (0.4, 2.8, -0.6)]


@pytest.mark.parametrize(
    ("point", "transport", "words"),
    [
        ([0.5, 0.5], sb.InProcess(), r"point of Corner: got shape \(2,\); wanted 3"),
        ([0.5, 0.5, 5.0], sb.InProcess(), r"point of Corner: got \[0\.5, 0\.5, 5\.0\]; wanted 3 .* from 0 to 1"),
        ([0.5, np.nan, 0.5], sb.InProcess(), "got .*nan.*; wanted 3 finite"),
        ([0.5] * 3, sb.InProcess(as_agents=True), r"\$\.transport\.as_agents: got true, but Corner decides centrally"),
    ],
)
def test_a_users_method_without_a_valid_point_or_without_agents_is_refused(point, transport, words):
    team = sb.Team(GRAPH, BOUNDS, coordination=Corner(point), transport=transport, initial=1)
    team.tell(team.ask(), 0.0)
    with pytest.raises((ShapeError, ConfigError), match=words):
        team.ask()


@pytest.mark.filterwarnings("error")
def test_a_merit_may_be_minus_infinity_but_needs_a_value_for_each_point():
    assert len(played(rounds=5, acquisition=Judging())[1]) == 5
    with pytest.raises(ShapeError, match=r"Flat\.merit\(\) returned \(1\.0, 0\.0, 0\.0\); wanted \(value, by_mean"):
        played(rounds=5, acquisition=Judging(flat=True))


def test_built_in_parts_next_to_users_parts_keep_their_settings():
    state = sb.Team(GRAPH, BOUNDS, acquisition=Fixed(), coordination=sb.ADMM(starts=3)).state_dict()
    assert sb.Team.from_state_dict(state, acquisition=Fixed()).coordination == sb.ADMM(starts=3)


class Reporting:
    """A method whose report has NumPy's numbers, such as ``values.max()``."""

    def __init__(self, status="converged"):
        self.status = status

    def maximise(self, functions, links=None, seed=0):
        value = np.float64(1.5)
        return sb.Agreement(functions.low, value, sb.SolveReport(self.status, np.int64(2), value, gap=np.float32(0.5)))


class Learning(Fixed, frozen=True):
    weights: list[float] = msgspec.field(default_factory=list)

    def learn(self, situation, belief_settings, previous):
        return super().learn(situation, belief_settings, previous) if self.weights else None


def asked(**own):
    team = sb.Team(GRAPH, BOUNDS, seed=0, initial=1, **own)
    ask_and_tell(team, 1, lambda point: 1.0)
    return team


def test_a_report_with_numpy_numbers_is_logged_and_read_again(tmp_path):
    make = lambda: sb.Team(GRAPH, BOUNDS, coordination=Reporting(), seed=0, initial=1)  # noqa: E731
    ledger = Ledger.create(tmp_path, make())
    for outcome in (1.0, 2.0):
        ledger.tell(ledger.ask().id, outcome)
    report = sb.SolveReport("converged", 2, 1.5, gap=0.5)
    again = Ledger.open(tmp_path, make)
    logged = again.asked("q00002").report
    assert msgspec.structs.replace(logged, traffic=report.traffic) == report
    assert again.team.n_data == 2


def test_a_report_that_could_not_be_read_again_is_refused():
    with pytest.raises(
        ShapeError,
        match=r"Reporting\.maximise\(\) returned .*; wanted a valid SolveReport: .*'best'; wanted one of 'exact'",
    ):
        asked(coordination=Reporting("best")).ask()


def test_settings_may_be_lists_of_numbers_and_learn_must_return_a_model():
    assert len(asked(acquisition=Learning(weights=[1.0, 2.0])).ask().point) == 3
    with pytest.raises(ShapeError, match=r"Learning\.learn\(\) returned None; wanted a Model"):
        asked(acquisition=Learning()).ask()
