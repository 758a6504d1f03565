"""Teams that begin at a present setting and stay near it, compared with the stated limits."""

import itertools
import json
import math
from functools import partial

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.deciding.central_driver import CountedExchanges
from swarmbo.deciding.joint import Expect
from swarmbo.deciding.near import Near
from swarmbo.errors import ConfigError, SwarmboWarning
from swarmbo.runs import load, run as run_scenario
from swarmbo.transport import Routes
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import best_known, wlan_power

from .teams import CHAIN, ask_and_tell, drive

BOUNDS = dict.fromkeys("xyz", (0.0, 10.0))
TYPED = {
    "power": (0.0, 20.0),
    "channel": sb.Categorical([1, 6, 11]),
    "width": sb.Categorical([20, 40, 80], ordered=True),
    "retries": sb.Integer(1, 9),
    "rate": sb.Real(0.01, 100.0, log=True),
}
PRESENT = {"power": 15.0, "channel": 6, "width": 40, "retries": 3, "rate": 1.0}
PLAN = {"access_points": [[0, 0], [25, 0], [0, 25]], "users": [[4, 3], [20, 4], [5, 19], [12, 12]]}


def factors_at(point):
    x, y, z = (point[name] / 10.0 for name in "xyz")
    return {"f": 3.0 - (x - 0.2) ** 2 - (x - y) ** 2, "g": 2.0 - (y - z) ** 2 - 0.5 * (z - 0.6) ** 2}


def utility_of(point):
    width = TYPED["width"].values.index(point["width"])
    there = (point["channel"] == 1) + width / 2.0 - abs(point["retries"] - 7) / 8.0
    return 10.0 + there - abs(point["power"] - 5.0) / 20.0 + np.log10(point["rate"]) / 4.0


def asked(team, n_rounds, outcome):
    return [dict(query.point) for query in ask_and_tell(team, n_rounds, outcome)]


class Row:
    """A row of a frame like that of pandas: it has keys and items, but is not a Mapping."""

    def __init__(self, values):
        self.keys, self.values = values.keys, values

    def __getitem__(self, key):
        return self.values[key]


def test_a_restarted_search_stays_near_the_best_setting():
    restarts = sb.Auto(restarts=sb.Restarts(after=3))
    quick = sb.ADMM(starts=3, screened=32, alone_steps=10)
    near = {"start": {"x": 0.2, "y": 0.2}, "step_limit": 0.1, "initial": 1, "seed": 3}
    team = sb.Team(None, dict.fromkeys("xy", (0.0, 1.0)), acquisition=restarts, coordination=quick, **near)
    for _ in range(40):
        query = team.ask()
        place = np.array([query.point["x"], query.point["y"]])
        if team.n_data:
            best = team.history.X[team.history.totals.argmax()]
            assert (
                np.abs(place - best).max() < 0.2
            )  # the step is from the best posterior mean, which may be at a neighbour
        team.tell(query, -float(((place - 0.7) ** 2).sum()))
    assert team.model.learned.restarted_at


FORMS = {"dict": PRESENT, "list": list(PRESENT.values()), "row": Row(PRESENT | {"total": 3.0}), "largest": "largest"}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_first_setting_is_the_stated_one_and_is_asked_once(form):
    team = sb.Team(None, TYPED, start=form, initial=2)
    first, second = asked(team, 2, utility_of)
    largest = {"power": 20.0, "channel": 1, "width": 80, "retries": 9, "rate": 100.0}
    assert first == (largest if form == "largest" else PRESENT)
    assert second != first
    team = sb.Team(None, TYPED, start=form)
    team.attach([first | {"total": 1.0}])
    assert team.ask().point != first


@pytest.mark.parametrize("more", [{}, {"channels": [1, 6, 11]}, {"airtime": "shared"}], ids=str)
def test_the_present_setting_of_an_environment_is_that_of_its_reset_and_powers_stay_near_it(more):
    env = wlan_power_v0.parallel_env(topology=PLAN, max_cycles=3, **more)
    env.reset(seed=0)
    before = env.unwrapped._episode.point
    team = sb.Team.for_env(env, start="present", step_limit={"power_*": 2.0}, seed=0)
    drive(env, team)
    np.testing.assert_array_equal(team.history.X[0], before)
    assert set(team.problem.named(team.history.X[0]).values()) == ({13.0, 1} if "channels" in more else {13.0})
    powers = [name.startswith("power") for name in team.problem.variables]
    assert np.abs(team.history.X[:, powers] - 13.0).max() <= 4.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": "present"}, r"\$\.start: .*nothing reports the present setting; wanted start = {variable: value"),
        ({"start": "now"}, r"\$\.start: got 'now'; wanted 'present', 'largest'"),
        ({"start": [1.0]}, r"\$\.start: got \[1.0\]; wanted .* of 5"),
        ({"start": PRESENT | {"channel": 7}}, r"\$\.start\.channel: got 7; wanted one of \[1, 6, 11\]"),
        ({"start": {"power": 1.0}}, r"\$\.start: got no 'channel'"),
        (
            {"start": PRESENT, "constraints": [sb.Linear(weights={"power": 1.0}, at_most=PRESENT["power"] - 1.0)]},
            r"\$\.start: got {.*, which constraints or no_go forbid; wanted an allowed setting",
        ),
        ({"step_limit": 1.0}, r"\$\.step_limit: got no start; wanted start, too"),
        ({"safe": {}}, r"\$\.safe: got no start"),
        ({"start": PRESENT, "step_limit": {"pwer": 1.0}}, r"\$\.step_limit: got 'pwer'; wanted some of"),
        ({"start": PRESENT, "step_limit": 2.0}, r"\$\.step_limit\.rate: got 2.0 on a logarithmic axis; wanted a share"),
        ({"start": PRESENT, "step_limit": "ten"}, r"\$\.step_limit: got 'ten'; wanted a number > 0"),
        ({"start": PRESENT, "step_limit": {"power": -1.0}}, r"\$\.step_limit\.power: got -1.0"),
        (
            {"start": PRESENT, "step_limit": {"retries": 0.5}},
            r"\.retries: got 0.5, less than one step of its values, 1",
        ),
        ({"start": PRESENT, "step_limit": "10%"}, r"\.width: got '10%', less than one step.*, or 0 to keep its value"),
        ({"start": PRESENT, "step_limit": 0}, r"\$\.step_limit: got 0; wanted a number > 0.*, or a table \(0 keeps"),
        ({"start": PRESENT, "step_limit": {3: 1.0}}, r"\$\.step_limit: got the name 3; wanted a table"),
        ({"start": PRESENT, "safe": {"share": 1.5}}, r"\$\.safe\.share: got 1.5"),
        ({"start": PRESENT, "safe": {}, "initial": 4}, r"\$\.initial: got 4 with safe; wanted 1"),
    ],
)
def test_invalid_starts_and_limits_are_refused_with_the_fix(given, message):
    with pytest.raises(ConfigError, match=message):
        sb.Team(None, TYPED, **given)
    with pytest.raises(ConfigError, match=r"\$\.start: got one in a field"):
        sb.Team.for_field(["a"], [0.0], [1.0], start="largest")


def has_near(point, others, limits):
    """True if some other setting differs by at most the limits, in values or positions."""

    def apart(name, one, other):
        kind = TYPED[name]
        if isinstance(kind, sb.Categorical):
            return abs(kind.values.index(one) - kind.values.index(other))
        return abs(np.log10(one / other)) if name == "rate" else abs(one - other)

    return any(
        all(apart(name, point[name], other[name]) <= most + 1e-6 for name, most in limits.items()) for other in others
    )


@pytest.mark.parametrize(
    ("safe", "coordination"),
    [
        *((None, "admm"), ({}, "refined-max-sum"), (None, "sobol")),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (({}, "admm"), (None, "refined-max-sum"), ({}, "sobol"))
        ),
    ],
)
def test_each_step_is_within_its_limit_of_an_evaluated_setting(safe, coordination):
    stated = {"power": 2.0, "width": 1, "retries": "25%", "rate": "10%", "channel": 0}
    limits = {"power": 2.0, "width": 1, "retries": 2, "rate": 0.4, "channel": 0}
    team = sb.Team(None, TYPED, start=PRESENT, step_limit=stated, safe=safe, coordination=coordination, seed=1)
    points = asked(team, 12, utility_of)
    assert points[0] == PRESENT
    for n in range(1, len(points)):
        assert has_near(points[n], points[:n], limits)
    assert {point["channel"] for point in points} == {6}
    assert len({tuple(point.values()) for point in points}) >= 8
    if coordination == "admm":
        assert max(map(utility_of, points)) > utility_of(PRESENT) + (0.2 if safe is None else 0.05)


@pytest.mark.parametrize(
    "stated", [{"power": 2.0, "*": 0}, {"*": 0, "power": 2.0}, {"*": "10%", "p*": 0, "power": 2.0}]
)
def test_limits_by_name_have_priority_over_patterns(stated):
    stated |= {"width": 0, "retries": 0}
    points = asked(sb.Team(None, TYPED, start=PRESENT, step_limit=stated, seed=1), 4, utility_of)
    assert {(point["width"], point["retries"]) for point in points} == {(40, 3)}
    assert len({point["power"] for point in points}) == 4


def test_a_name_with_brackets_has_its_own_limit():
    space = {"x[0]": (0.0, 1.0), "x[1]": (0.0, 1.0), "x0": (0.0, 1.0)}
    start = dict.fromkeys(space, 0.5)
    points = asked(sb.Team(None, space, start=start, step_limit={"*": 0, "x[0]": 0.1}, seed=1), 4, lambda p: p["x[0]"])
    assert {(point["x[1]"], point["x0"]) for point in points} == {(0.5, 0.5)}
    assert len({point["x[0]"] for point in points}) == 4


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_safe_settings_keep_their_share_and_improve(outcomes):
    start = {"x": 8.0, "y": 5.0, "z": 9.0}
    team = sb.Team(CHAIN, BOUNDS, outcomes=outcomes, start=start, safe={"share": 0.9, "probability": 0.9}, seed=0)
    points = asked(team, 15, factors_at)
    values = np.array([sum(factors_at(point).values()) for point in points])
    assert np.mean(values < 0.9 * values[0]) <= 0.1
    assert values.max() > 1.02 * values[0]


@pytest.mark.parametrize("unit", [1e-20, pytest.param(1e9, marks=pytest.mark.slow)])
def test_safe_search_improves_in_every_unit(unit):
    team = sb.Team(CHAIN, BOUNDS, start={"x": 8.0, "y": 5.0, "z": 9.0}, safe={}, seed=0)
    points = asked(team, 12, lambda point: unit * sum(factors_at(point).values()))
    values = [sum(factors_at(point).values()) for point in points]
    assert max(values) > 1.01 * values[0]


def test_safe_search_from_a_utility_of_zero_needs_a_loss():
    def played(**safe):
        team, told = sb.Team(None, {"x": (0.0, 1.0)}, start={"x": 0.8}, safe=safe, seed=0), list[float]()
        for _ in range(10):
            query = team.ask()
            told.append(0.25 - (query.point["x"] - 0.3) ** 2)
            team.tell(query, told[-1])
        return told

    with pytest.warns(SwarmboWarning, match=r"a share of 0.95 of the present utility, .* allows no loss.*loss = …"):
        assert max(played()) < 1e-9
    told = played(loss=0.05)
    assert max(told) > 0.2
    assert min(told) >= -0.05


@pytest.mark.filterwarnings("ignore:safe. a share of 1 of")
def test_if_no_setting_is_safe_the_present_one_is_asked_again_and_the_report_says_so():
    noise = np.random.default_rng(0).standard_normal(9)
    team = sb.Team(None, {"x": (0.0, 1.0)}, start={"x": 0.5}, safe={"share": 1.0, "probability": 0.99999}, seed=0)
    asked_again = list[str]()
    for value in noise:
        query = team.ask()
        team.tell(query, 100.0 + 5.0 * float(value) - 300.0 * abs(query.point["x"] - 0.5))
        asked_again.append(team.last_report.stayed)
        if team.last_report.stayed == "present":
            assert query.point == {"x": 0.5}
    assert "present" in asked_again or "best" in asked_again
    failed = sb.Team(None, {"x": (0.0, 1.0)}, start={"x": 0.5}, safe={}, initial=1)
    for _ in range(3):
        failed.tell(query := failed.ask(), None)
        assert query.point == {"x": 0.5}
    assert failed.last_report.stayed == "present"


def test_the_expected_sum_per_factor_agrees_with_the_model():
    team = sb.Team(CHAIN, BOUNDS, outcomes="per-factor", start=dict.fromkeys("xyz", 5.0), initial=3, seed=0)
    asked(team, 6, factors_at)
    points = np.random.default_rng(0).uniform(0.0, 10.0, (20, 3))
    model = team._learner.modelled(team._log)[1]

    def steps():
        return (yield Expect(model, points))

    found = team._driver(CountedExchanges(CHAIN, Routes(CHAIN.agents))).run(steps())
    np.testing.assert_allclose(found, model.posterior(points), rtol=1e-9)


def first_safe(line, *, lower=10.0, probability=0.9, **limits):
    """Safe point, if settings at 0.5 and 0.4 are known, the model has no doubts, and utilities 10 % below are safe."""
    safe = {"share": 0.9, "probability": probability}
    near = sb.Team(None, {"x": (0.0, 1.0)}, start={"x": 0.5}, safe=safe, **limits).setup.near
    box, evaluated = near.step_box(np.array([0.5])), np.array([[0.5], [0.4]])
    candidates = list(near.lines_back(np.array([1.0]), box, np.random.default_rng(0)))[line]
    mean = np.append(np.full(len(candidates) + 1, 10.0), lower)
    expected, fits = (mean, np.full_like(mean, 1e-9)), box.contains(candidates)
    (x,), stayed = near.first_safe(candidates, evaluated, np.empty((0, 1)), expected, fits)
    assert stayed is None
    return x, candidates[fits][:, 0]


@pytest.mark.parametrize(
    ("lower", "slope", "probability", "stds"),
    [
        pytest.param(10.0, 10.0, 0.9, 1.2815515655446004, id="flat"),  # the quantile of 0.9
        pytest.param(9.5, 10.0, 0.9, 1.2815515655446004, id="even"),
        pytest.param(30.0, 200.0, 0.9, 1.2815515655446004, id="steep"),
        pytest.param(8.5, 15.0, 0.5, 0.5 * 0.5, id="one below the floor, of which half may be"),
    ],
)
def test_the_safe_bound_falls_as_steeply_as_between_evaluated_settings(lower, slope, probability, stds):
    x, _ = first_safe(0, lower=lower, probability=probability)
    farthest = 1.0 / (stds * slope)  # from a tenth of the present utility
    assert 0.84 * farthest < x - 0.5 <= farthest  # steps of the line shrink by 0.841


def test_lines_lead_back_to_the_best_setting_not_to_the_present_one():
    near = sb.Team(None, {"x": (0.0, 1.0)}, start={"x": 0.5}, safe={}).setup.near
    for candidates in near.lines_back(np.array([1.0]), near.step_box(np.array([0.7])), np.random.default_rng(0)):
        *lines, best, present = candidates[:, 0]
        assert (best, present) == (0.7, 0.5)
        distances = np.abs(np.reshape(lines, (-1, 41)) - 0.7)
        assert (np.diff(distances) < 0.0).all()
        assert distances[:, -1].max() <= 1e-3


def test_of_several_safe_lines_the_most_uncertain_setting_is_asked():
    x, candidates = first_safe(1, step_limit=0.05)
    distances = np.abs(candidates[:, None] - [0.5, 0.4]).min(axis=1)
    assert np.abs(x - np.array([0.5, 0.4])).min() == distances.max()


def test_pending_settings_count_as_unknown_for_safety():
    team = sb.Team(None, {"x": (0.0, 10.0)}, start={"x": 9.0}, safe={}, seed=0)
    team.tell(team.ask(), 10.0)
    points = [query.point["x"] for query in team.ask(6)]
    assert max(abs(x - 9.0) for x in points) < 1.0


def test_pending_settings_do_not_narrow_the_variance_at_safe_candidates(monkeypatch):
    seen, first_safe_of = list[tuple[np.ndarray, np.ndarray]](), Near.first_safe

    def spied(self, candidates, evaluated, pending, expected, fits):
        seen.append((candidates, expected[1][: len(candidates)]))
        return first_safe_of(self, candidates, evaluated, pending, expected, fits)

    team = sb.Team(None, {"x": (0.0, 10.0)}, start={"x": 9.0}, safe={}, seed=0)
    asked(team, 4, lambda point: 10.0 + point["x"])
    model, _ = team.model, monkeypatch.setattr(Near, "first_safe", spied)
    team.ask(3)
    assert len(seen) >= 3
    for candidates, std in seen:
        np.testing.assert_allclose(std, model.posterior(10.0 * candidates)[1], rtol=1e-6)


def test_safe_settings_that_are_pending_are_not_asked_again():
    team = sb.Team(None, dict.fromkeys("xy", (0.0, 10.0)), start={"x": 9.0, "y": 5.0}, safe={"share": 0.9}, seed=0)
    for _ in range(3):
        team.tell(query := team.ask(), 10.0 - 0.1 * sum((x - 4.0) ** 2 for x in query.point.values()))
    points = [list(query.point.values()) for query in team.ask(6)]
    assert min(max(map(abs, np.subtract(*pair))) for pair in itertools.combinations(points, 2)) >= 0.01


def test_scenarios_state_the_start_the_limit_and_the_share(tmp_path, monkeypatch):
    monkeypatch.setattr(wlan_power, "best_known", partial(best_known, starts=2))  # the optimum is not used
    stated = ["rounds=2", "start=largest", "step_limit=3", "safe={share=0.9}"]
    summary = run_scenario(load("wlan", stated), tmp_path / "run")
    assert summary.measurements == 2
    first = json.loads((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[1])
    assert [sample["location"] for sample in first["samples"]] == [[25.0]] * 12
    with pytest.raises(ConfigError, match=r"\$\.start: got 'present', and nothing reports"):
        run_scenario(load("camel", ["rounds=2", "start=present"]), tmp_path / "other")


def test_simple_settings_are_among_the_starts_of_every_search():
    class RecordsStarts:
        def __init__(self):
            self.seen = list[np.ndarray]()

        def maximise(self, functions, links=None, seed=0):
            self.seen.append(functions.starts)
            return sb.ADMM(rounds=2, starts=2, screened=8).maximise(functions, links, seed)

    present, plain = RecordsStarts(), RecordsStarts()
    everywhere = {"acquisition": "expected-improvement", "seed": 0, "initial": 1}  # no trust region
    asked(sb.Team(None, TYPED, start=PRESENT, coordination=present, **everywhere), 3, utility_of)
    top = np.array([1.0, 1 / 6, 5 / 6, 17 / 18, 1.0])
    for starts in present.seen:
        assert np.abs(starts - top).max(axis=1).min() < 1e-9
        assert np.isclose(starts[:, [0, 3, 4]], 0.5).all(axis=1).any()
    asked(sb.Team(None, TYPED, coordination=plain, **everywhere), 3, utility_of)
    assert all(len(starts) <= 3 for starts in plain.seen)


@pytest.mark.parametrize(
    ("space", "limit", "n"),
    [
        ({"x": sb.Integer(1, 5000, log=True)}, "1%", 10),
        ({"x": sb.Integer(1, 5000, log=True), "c": sb.Categorical(["a", "b"])}, {"x": "1%"}, 14),
        ({"x": sb.Integer(1, 5000, log=True), "c": sb.Integer(0, 9)}, {"x": "1%", "c": 1}, 16),
        ({"x": sb.Integer(0, 5000)}, 1, 12),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_step_box_repeats_no_point_while_it_has_another(space, limit, n, seed):
    """Also in the initial design, and on axes with too many values to list."""
    start = {name: 20 if name == "x" else variable.value(0.0) for name, variable in space.items()}
    team, asked = sb.Team(None, space, start=start, step_limit=limit, seed=seed), list[tuple[object, ...]]()
    for _ in range(n):
        query = team.ask()
        asked.append(tuple(query.point.values()))
        team.tell(query, -abs(math.log(query.point["x"]) - 2.0))
    assert len(set(asked)) == n
