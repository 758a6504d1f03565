"""The sampler for Optuna: Optuna's own tests of samplers, and the mapping of trials to queries of a team."""

import importlib
import pickle
import sys
import warnings

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError, SwarmboWarning

optuna = pytest.importorskip("optuna")
cases = pytest.importorskip("optuna.testing.pytest_samplers")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402

from swarmbo.integrations.optuna import SwarmboSampler  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet():
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
    optuna.logging.set_verbosity(verbosity)


@pytest.mark.slow
class TestOfOptuna(cases.BasicSamplerTestCase, cases.RelativeSamplerTestCase, cases.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return lambda: SwarmboSampler(seed=0, initial=3)


def study_of(direction="minimize", storage=None, name=None, **settings):
    sampler = SwarmboSampler(**{"seed": 1, "initial": 4, **settings})
    return optuna.create_study(
        direction=direction, sampler=sampler, storage=storage, study_name=name, load_if_exists=True
    )


def studied(objective, n_trials, **settings):
    """A study with some completed trials."""
    study = study_of(**settings)
    study.optimize(objective, n_trials=n_trials)
    return study


def bowl(trial):
    return (trial.suggest_float("x", -1.0, 1.0) - 0.3) ** 2 + (trial.suggest_float("y", 0.0, 2.0) - 1.0) ** 2


SPACE = {"x": FloatDistribution(-1.0, 1.0), "y": FloatDistribution(0.0, 2.0)}


def team_of(study):
    (group,) = study.sampler._teams
    return group.team


def params(study):
    return [trial.params for trial in study.trials]


def test_a_bowl_is_minimised_and_maximising_its_negative_gives_the_same_trials():
    low, high = studied(bowl, 14), studied(lambda trial: -bowl(trial), 14, direction="maximize")
    assert low.best_value < 0.01  # values range up to 2.7
    assert params(high) == params(low)
    assert high.best_value == -low.best_value


def test_the_same_seed_gives_the_same_trials_and_another_seed_does_not():
    studies = [studied(bowl, 7, seed=seed) for seed in (3, 3, 4)]
    assert params(studies[0]) == params(studies[1]) != params(studies[2])


def test_running_trials_are_pending_queries():
    study = studied(bowl, 6)
    asked = [study.ask(SPACE) for _ in range(4)]
    assert len(team_of(study).pending) == 4
    points = np.array([[trial.params["x"], trial.params["y"] / 2] for trial in asked])
    apart = np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(4, 1)]
    assert apart.min() > 1e-6
    for trial in reversed(asked):
        study.tell(trial, bowl(trial))
    study.ask(SPACE)
    assert len(team_of(study).pending) == 1
    assert team_of(study).n_data == 10


def test_a_trial_that_failed_before_all_its_parameters_were_suggested_is_no_longer_pending():
    study = studied(bowl, 5)
    failed = study.ask()
    failed.suggest_float("x", -1.0, 1.0)
    study.tell(failed, state=optuna.trial.TrialState.FAIL)
    study.ask(SPACE)
    assert (len(team_of(study).pending), team_of(study).failures) == (1, 0)


@pytest.mark.parametrize("acquisition", ["auto", pytest.param("expected-improvement", marks=pytest.mark.slow)])
def test_running_trials_differ_after_rounding(acquisition):
    def objective(trial):
        return (trial.suggest_float("x", 1e-3, 1.0, log=True) - 0.3) ** 2 + (trial.suggest_int("n", 1, 4) - 2) ** 2

    study = studied(objective, 10, acquisition=acquisition)
    space = study.trials[0].distributions
    running = [study.ask(space) for _ in range(8)]
    u = np.array([[np.log(t.params["x"] / 1e-3) / np.log(1e3), t.params["n"] / 4] for t in running])
    apart = np.abs(u[:, None] - u).max(axis=2)[np.triu_indices(8, 1)]
    assert apart.min() >= 1e-3


def test_running_trials_of_other_processes_are_pending_and_their_outcomes_are_learned(tmp_path):
    storage = optuna.storages.InMemoryStorage()
    mine, other = (study_of(storage=storage, name="shared", seed=seed) for seed in (1, 2))
    mine.optimize(bowl, n_trials=3)
    running = other.ask(SPACE)
    for name, distribution in SPACE.items():
        running._suggest(name, distribution)
    mine.ask(SPACE)
    team = team_of(mine)
    assert {"x": running.params["x"], "y": running.params["y"]} in team.pending.values()
    other.tell(running, 7.0)
    mine.ask(SPACE)
    assert -7.0 in team.history.totals
    assert not team.history.chosen[list(team.history.totals).index(-7.0)]  # this team did not choose it


def test_threads_share_one_sampler():
    study = study_of()
    study.optimize(bowl, n_trials=12, n_jobs=3)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 12
    study.ask(SPACE)
    assert team_of(study).n_data == 12


def test_the_team_learns_where_trials_fail():
    def fails(trial):
        value = bowl(trial)
        if trial.params["x"] > 0.0:  # around the minimum
            raise RuntimeError("diverged")
        return value

    study = study_of(initial=6)
    study.optimize(fails, n_trials=24, catch=RuntimeError)
    failed = [trial.state == optuna.trial.TrialState.FAIL for trial in study.trials]
    assert any(failed[:8])
    assert np.mean(failed[12:]) < 0.4
    study.ask(SPACE)
    assert team_of(study).failures == sum(failed)


def test_pruned_trials_count_with_their_last_reported_value_or_as_failed():
    def pruned(trial):
        value = bowl(trial)
        if trial.number % 3 == 0:
            raise optuna.TrialPruned
        trial.report(value + 2.0, 1)
        trial.report(value + 1.0, 5)
        if trial.number % 3 == 1:
            raise optuna.TrialPruned
        return value

    study = studied(pruned, 9)
    study.ask(SPACE)
    team = team_of(study)
    assert team.failures == 3
    pairs = zip(team.history.X.tolist(), team.history.totals, strict=True)
    found = {tuple(row): total for row, total in pairs if np.isfinite(total)}
    wanted = {}
    for trial in study.trials[:9]:
        if trial.number % 3:
            more = 1.0 if trial.number % 3 == 1 else 0.0
            wanted[tuple(trial.params.values())] = -bowl(optuna.trial.FixedTrial(trial.params)) - more
    assert found == pytest.approx(wanted)


def test_a_pruned_trial_reports_its_available_factors():
    def pruned(trial):
        parts = {"f": trial.suggest_float("x", 0.0, 1.0), "g": trial.suggest_float("y", 0.0, 1.0)}
        if trial.number != 3:
            trial.set_user_attr("factors", parts if trial.number % 3 else {"f": parts["f"]})  # or only f
        trial.report(sum(parts.values()) + 0.5, 1)  # at an earlier step
        if trial.number % 3 < 2:
            raise optuna.TrialPruned
        return sum(parts.values())

    study = studied(pruned, 6, scopes={"f": ["x"], "g": ["y"]}, outcomes="per-factor")
    study.ask({"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)})
    factors = team_of(study).history.factors
    given = [trial.number % 3 > 0 for trial in study.trials[:6]]
    assert np.isfinite(factors).all(axis=1).tolist() == given
    assert -factors[given] == pytest.approx(np.array([[*t.params.values()] for t in study.trials[:6]])[given])


def test_a_factor_for_a_parameter_without_a_scope_never_replaces_a_user_s_factor():
    for scopes, names in (({"of z": ["x", "y"]}, "xyz"), ({"f": ["x", "of z"]}, ("x", "of z", "z"))):
        study = study_of(scopes=scopes)
        space = {name: FloatDistribution(0.0, 1.0) for name in names}
        study.tell(study.ask(space), 1.0)
        study.ask(space)
        graph = team_of(study).graph
        assert sorted(graph.scopes) == sorted([*map(tuple, scopes.values()), ("z",)])


def test_enqueued_trials_are_recorded_at_their_points():
    study = studied(bowl, 2)
    study.enqueue_trial({"x": 0.25, "y": 1.5})
    study.optimize(bowl, n_trials=2)
    study.ask(SPACE)
    team = team_of(study)
    assert [0.25, 1.5] in team.history.X.tolist()
    assert (team.n_data, len(team.pending)) == (4, 1)


def test_a_partly_enqueued_trial_is_pending_at_its_point_and_is_no_step_of_the_method():
    study = studied(bowl, 6)
    study.enqueue_trial({"x": 0.25})
    trial = study.ask(SPACE)
    (pending,) = team_of(study).pending.values()
    assert pending == trial.params
    assert pending["x"] == 0.25
    study.tell(trial, 1.0)
    study.ask(SPACE)
    history = team_of(study).history
    assert history.X[-1].tolist() == [pending["x"], pending["y"]]
    assert history.chosen[-3:].tolist() == [True, True, False]


def test_a_stored_study_is_used_as_data():
    storage = optuna.storages.InMemoryStorage()
    study_of(storage=storage, name="kept").optimize(bowl, n_trials=8)
    again = study_of(storage=storage, name="kept")
    again.optimize(bowl, n_trials=6)
    assert again.best_value < 0.01
    assert team_of(again).n_data >= 12


def test_a_pickled_sampler_continues_identically():
    storage = optuna.storages.InMemoryStorage()
    study = studied(bowl, 7, storage=storage, name="one")
    twin = pickle.loads(pickle.dumps(study.sampler))
    trial = study.ask(SPACE)
    frozen = storage.get_trial(trial._trial_id)
    assert twin.sample_relative(study, frozen, SPACE) == {name: trial.params[name] for name in SPACE}


def test_scopes_are_factors_over_parameters():
    scopes = {"f": ["x", "kind"], "g": ["kind", "rate"]}
    space = {
        "x": FloatDistribution(0.0, 1.0),
        "kind": CategoricalDistribution(("a", "b", None)),
        "rate": FloatDistribution(1e-5, 1.0, log=True),
        "depth": IntDistribution(1, 9),
    }
    study = study_of(scopes=scopes, acquisition="dec-hbo")
    study.tell(study.ask(space), 1.0)
    trial = study.ask(space)
    graph = team_of(study).graph
    scopes_of = dict(zip(graph.factors, graph.scopes, strict=True))
    assert scopes_of == {"f": ("x", "kind"), "g": ("kind", "rate"), "of depth": ("depth",)}
    assert trial.params["kind"] in ("a", "b", None)


def test_a_warning_names_parameters_of_scopes_that_no_trial_has():
    def objective(trial):
        return trial.suggest_float("rate", 0.0, 1.0) + trial.suggest_float("depth", 0.0, 1.0)

    with pytest.warns(SwarmboWarning, match=r"got 'rat', which no trial has so far.*did you mean 'rate'\?") as caught:
        studied(objective, 4, scopes={"f": ["rat", "depth"]})
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", SwarmboWarning)
        studied(objective, 3, scopes={"f": ["rate", "depth"]})


def test_trials_report_outcomes_per_factor():
    def objective(trial):
        parts = {"f": trial.suggest_float("x", 0.0, 1.0) ** 2, "g": (trial.suggest_float("y", 0.0, 1.0) - 1.0) ** 2}
        if trial.number != 6:
            trial.set_user_attr("factors", parts)
        return sum(parts.values())

    study = studied(objective, 6, scopes={"f": ["x"], "g": ["y"]}, outcomes="per-factor")
    team = team_of(study)
    assert np.isfinite(team.history.factors).all()
    with pytest.raises(ConfigError, match=r"trial 6: got None; with per-factor outcomes wanted trial.set_user_attr"):
        study.optimize(objective, n_trials=2)
    study.optimize(objective, n_trials=2)
    assert len(team_of(study).pending) == 1  # the last trial, not the refused one
    study = study_of(scopes={"f": ["x"], "g": ["y"]}, outcomes="per-factor")
    trial = study.ask()
    value = objective(trial)
    trial.set_user_attr("factors", {"f": "much", "g": 1.0})
    study.tell(trial, value)
    with pytest.raises(ShapeError, match="outcome of 'f' in trial 0: got 'much'; wanted a number"):
        study.optimize(objective, n_trials=1)


@pytest.mark.parametrize(("factor", "fix"), [(-1.0, "; negate the factors"), (1.001, "")])
def test_factors_that_do_not_sum_to_the_value_of_their_trial_are_refused(factor, fix):
    def objective(trial):
        parts = {"f": trial.suggest_float("x", 1.0, 2.0), "g": trial.suggest_float("y", 1.0, 2.0)}
        trial.set_user_attr("factors", parts)
        return factor * sum(parts.values())

    words = rf"trial 0: got factors with the sum [0-9.]+ and the value [-0-9.]+; wanted the sum as the value{fix}$"
    with pytest.raises(ConfigError, match=words):
        studied(objective, 3, direction="maximize", scopes={"f": ["x"], "g": ["y"]}, outcomes="per-factor")


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": {"f": "x"}},
        {"sed": 1},
        {"seed": -1},
        {"seed": 2**32},
        {"initial": 0},
        {"bounds": {"x": (0.0, 1.0)}},
        {"limits": {"c": (None, 0.0)}},
        {"no_go": 5},
        {"constraints": 3},
        {"independent_sampler": "tpe"},
        {"acquisition": "ucb"},
        {"outcomes": "per-part"},
        {"outcomes": "per-factor"},  # without scopes
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_the_first_trial(wrong):
    with pytest.raises(ConfigError, match=rf"\$\.{'outcomes' if 'outcomes' in wrong else next(iter(wrong))}"):
        SwarmboSampler(**wrong)


def test_limits_of_trials_are_refused_with_the_call_that_states_them():
    for argument in ({"constraints_func": lambda trial: [1.0]}, {"limits": {"c": (None, 0.0)}}):
        with pytest.raises(ConfigError, match=r"wanted none: trial.set_constraint states them"):
            SwarmboSampler(**argument)


def test_settings_that_name_parameters_are_accepted_before_these_are_known():
    SwarmboSampler(scopes={"f": ["a"]}, start={"a": 3}, step_limit={"a": "10%"})


def test_constraints_and_starts_use_the_user_s_values():
    space = {"n": IntDistribution(0, 9), "k": CategoricalDistribution(("a", "b", "c"))}
    kept = sb.Constraint(scope=("k",), allowed=lambda k: k != "b")
    study = study_of(constraints=[kept], start={"n": 4, "k": "c"}, scopes={"f": ["n", "k"]})
    for _ in range(8):
        trial = study.ask(space)
        study.tell(trial, float(trial.params["k"] != "b"))  # the best values are forbidden
    assert study.trials[1].params == {"n": 4, "k": "c"}
    assert {trial.params["k"] for trial in study.trials[1:]} == {"a", "c"}


def test_almost_no_combination_is_tried_twice_before_all_are():
    space = {"n": IntDistribution(1, 4), "k": CategoricalDistribution(("a", "b", "c"))}
    study = study_of(initial=3)
    for _ in range(12):
        trial = study.ask(space)
        study.tell(trial, float(trial.params["n"]))
    assert len({tuple(trial.params.values()) for trial in study.trials[1:]}) >= 11
    study.tell(study.ask(space), 1.0)  # after all combinations, the study continues


def test_several_objectives_are_refused():
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=SwarmboSampler())
    with pytest.raises(ValueError, match="multi-objective"):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)


def test_without_optuna_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "swarmbo.integrations.optuna")
    with pytest.raises(ImportError, match=r"needs .* 'optuna', .* pip install \"swarmbo\[optuna\]\"") as missing:
        importlib.import_module("swarmbo.integrations.optuna")
    assert isinstance(missing.value, ConfigError)


def test_a_choice_that_looked_worse_at_first_is_tried_again():
    """Each choice adds a constant. A trust region around the best value of one choice must not exclude the other."""

    def objective(trial):
        x, n = trial.suggest_float("x", -1.0, 1.0), trial.suggest_int("n", 1, 9)
        return (x - 0.3) ** 2 + (n - 4) ** 2 + (trial.suggest_categorical("kind", ["a", "b"]) == "a")

    def stops(study, trial):
        if study.best_value < 0.1:
            study.stop()

    for seed in (0, 2):
        study = study_of(seed=seed, initial=10)
        study.optimize(objective, n_trials=30, callbacks=[stops])
        assert study.best_value < 0.1


def test_each_constraint_is_a_learned_limit():
    """The bowl is lowest at x = 0.3, but only x <= 0 is feasible, so the best point is at the border."""

    def objective(trial):
        value = bowl(trial)
        trial.set_constraint("left", trial.params["x"])
        if trial.number % 5:
            trial.set_constraint("low", trial.params["y"] - 1.9)
        return value

    study = studied(objective, 20, initial=6)
    violated = [trial.constraints["left"] > 0.0 for trial in study.trials]
    assert any(violated[:8])
    assert study.best_trial.constraints["left"] <= 0.0
    assert study.best_value < 0.3**2 + 0.01
    team = team_of(study)
    assert team.problem.ranges == {"left": (None, 0.0), "low": (None, 0.0)}
    measured = [[trial.constraints["left"], trial.constraints.get("low", np.nan)] for trial in study.trials[:19]]
    np.testing.assert_allclose(team.history.measured, measured)
    assert team.failures == 0


def test_conditional_parameters_are_learned_from_the_trials_that_have_them():
    """The first of two methods is better near its parameters (0.7, 0.2), which random draws seldom reach."""

    def objective(trial):
        value = 0.01 * (trial.suggest_float("x", 0.0, 1.0) - 0.4) ** 2
        if trial.suggest_categorical("method", ["first", "second"]) == "second":
            return value + 1.0 + trial.suggest_int("k", 1, 50)
        return value + (trial.suggest_float("a", 0.0, 1.0) - 0.7) ** 2 + (trial.suggest_float("b", 0.0, 1.0) - 0.2) ** 2

    study = studied(objective, 20)
    teams = {tuple(sorted(group.space)): group.team for group in study.sampler._teams}
    assert set(teams) == {("a", "b"), ("k",), ("method", "x")}
    of_first = np.array([[trial.params["a"], trial.params["b"]] for trial in study.trials if "a" in trial.params])
    assert teams["a", "b"].n_data >= len(of_first) - 1 > 14
    assert np.median(((of_first[-8:] - [0.7, 0.2]) ** 2).sum(axis=1)) < 0.03


def test_groups_of_parameters_have_initial_designs_of_their_own():
    def either(trial):
        return trial.suggest_float(trial.suggest_categorical("which", ["a", "b"]), 0.0, 1.0)

    a, b = ({trial.params[name] for trial in studied(either, 12).trials if name in trial.params} for name in "ab")
    assert min(len(a), len(b)) >= 3
    assert not a & b


def test_a_condition_with_all_values_tried_is_still_learned():
    """Only the parameter "method" is in all trials, and its outcomes depend on the other parameters."""

    def objective(trial):
        if trial.suggest_categorical("method", ["first", "second"]) == "second":
            return 1.0 + trial.suggest_int("k", 1, 50)
        return (trial.suggest_float("a", 0.0, 1.0) - 0.7) ** 2 + (trial.suggest_float("b", 0.0, 1.0) - 0.2) ** 2

    study = studied(objective, 40)
    assert sorted(sorted(group.space) for group in study.sampler._teams) == [["a", "b"], ["k"]]
    assert sum("a" in trial.params for trial in study.trials[20:]) >= 14
    assert study.best_value < 1e-3


def test_different_ranges_of_a_parameter_are_separate_groups():
    def objective(trial):
        return trial.suggest_float("x", 0.0, 1.0 + trial.number % 2) ** 2

    study = studied(objective, 12, initial=2)
    highs = sorted(group.space["x"].high for group in study.sampler._teams)
    assert highs == [1.0, 2.0]
    assert study.best_value < 1e-3


@pytest.mark.filterwarnings("ignore:Choices for a categorical")
def test_unusual_choices_and_large_grids_keep_their_values():
    choices = (1, True, "1", None, float("nan"), [3, 4])
    space = {
        "kind": CategoricalDistribution(choices),
        "size": IntDistribution(1, 10**9, log=True),
        "share": FloatDistribution(0.0, 0.3, step=0.1),
    }
    study = study_of()
    for _ in range(8):
        trial = study.ask(space)
        assert repr(trial.params["kind"]) in map(repr, choices)
        assert isinstance(trial.params["size"], int)
        assert any(np.isclose(trial.params["share"], k / 10) for k in range(4))
        study.tell(trial, float(trial.params["share"]) + np.log(trial.params["size"]))
    assert team_of(study).n_data == 7
    assert team_of(study).problem.variables["size"] == sb.Integer(1, 10**9, log=True)
