"""Kernels that the default acquisition chooses for factors with their own outcomes."""

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import Auto, Restarts
from swarmbo.belief.gp.additive_settings import FactorPrior
from swarmbo.belief.model import transforms
from swarmbo.belief.model.candidates import Form
from swarmbo.belief.model.model import Learned
from swarmbo.problem.data import Dataset

from .conftest import play

UNIT = (0.0, 1.0)
BELIEF = sb.AdditiveGPSettings()
WHOLE, APART = {"f": ["a", "b"]}, {"f": ["a", "b"], "g": ["c", "d"]}


def smooth(U):
    """No sum over the variables; its maximum is 1."""
    return np.cos(3.0 * (U[:, 0] - 0.4) + 2.0 * (U[:, 0] - 0.4) * (U[:, 1] - 0.6)) * np.exp(-((U[:, 1] - 0.6) ** 2))


def steps(U):
    return np.floor(4.0 * U[:, 0]) * np.floor(1.0 + 3.0 * U[:, 1])


def cone(U):
    return -np.abs(U - [0.45, 0.55]).max(axis=1)


def valley(U):
    """Rosenbrock's function on [-2, 2]^2, negated."""
    X = 4.0 * U - 2.0
    return -(100.0 * (X[:, 1] - X[:, 0] ** 2) ** 2 + (1.0 - X[:, 0]) ** 2)


def told(situation, *functions):
    """The same situation with outcomes of each factor, by a function of the factor's unit cube."""
    U = situation.domain.to_unit(situation.history.X)
    columns = [list(columns) for columns in situation.graph.columns]
    F = np.column_stack([fun(U[:, own]) for fun, own in zip(functions, columns, strict=True)])
    return replace(situation, history=Dataset(situation.history.X, F.sum(axis=1), F))


def first_of(situation, t):
    return replace(situation, history=situation.history.take(slice(t)))


def kernels_of(model):
    """Kernels of the forms that were chosen, and of the belief in use."""
    return tuple(form.kernel for form in model.learned.forms), model.belief.hyperparameters.kernels


def one_function(fun, n, *, types=None, **settings):
    """A team that maximises one function of the unit square, after so many evaluations of random places."""
    team = sb.Team(None, types or {"a": UNIT, "b": UNIT}, seed=1, initial=4, **settings)
    X = np.random.default_rng(0).random((n, 2))
    team.attach(X, fun(X))
    return team


@pytest.mark.parametrize(("fun", "kernel"), [(smooth, "rbf"), (valley, "rbf"), (steps, None), (cone, None)])
def test_a_smooth_function_has_an_rbf_kernel_and_a_rough_one_keeps_matern(situation_of, fun, kernel) -> None:
    model = Auto().learn(told(situation_of(WHOLE, t=80, outcomes="per-factor"), fun), BELIEF, None)
    assert kernels_of(model) == ((kernel,), (kernel or "matern52",))


def test_few_outcomes_are_no_clear_evidence(situation_of) -> None:
    situation = told(situation_of(WHOLE, t=40, outcomes="per-factor"), smooth)
    forms = [Auto().learn(first_of(situation, t), BELIEF, None).learned.forms for t in (6, 40)]
    assert [form.kernel for (form,) in forms] == [None, "rbf"]


def test_the_evidence_must_lead_by_a_factor_of_20(situation_of, monkeypatch) -> None:
    situation = told(situation_of(WHOLE, t=20, outcomes="per-factor"), smooth)
    data = transforms._Data(situation, BELIEF, situation.history.X, situation.history.factors, np.full((20, 1), np.nan))
    forms, _, evidences = data._tried()
    best = {kernel: max(evidences[[form.kernel == kernel for form in forms], 0]) for kernel in (None, "rbf")}
    lead = best["rbf"] - best[None] + math.log(20.0)
    for clear, kernel in ((lead - 0.1, "rbf"), (lead + 0.1, None)):
        monkeypatch.setattr(transforms, "_CLEAR", clear)
        assert Auto().learn(situation, BELIEF, None).learned.forms[0].kernel == kernel


@pytest.mark.parametrize("kernel", ["matern52", "matern32", "rbf"])
@pytest.mark.parametrize("per_factor", [False, True])
def test_a_stated_kernel_is_kept_whatever_the_evidence(situation_of, monkeypatch, kernel, per_factor) -> None:
    own = {"f": FactorPrior(kernel=kernel)}
    settings = sb.AdditiveGPSettings(factors=own) if per_factor else sb.AdditiveGPSettings(kernel=kernel)
    situation = told(situation_of(WHOLE, t=40, outcomes="per-factor"), smooth)
    for clear in (transforms._CLEAR, -1e6):
        monkeypatch.setattr(transforms, "_CLEAR", clear)
        assert kernels_of(Auto().learn(situation, settings, None)) == ((None,), (kernel,))


def test_a_factor_may_choose_its_kernel_beside_one_whose_kernel_is_stated(situation_of) -> None:
    situation = told(situation_of(APART, t=40, outcomes="per-factor"), smooth, smooth)
    for kernel in ("matern52", "matern32"):
        settings = sb.AdditiveGPSettings(factors={"f": FactorPrior(kernel=kernel)})
        assert kernels_of(Auto().learn(situation, settings, None)) == ((None, "rbf"), (kernel, "rbf"))
    both = sb.AdditiveGPSettings(kernel="matern52", factors={"g": FactorPrior(kernel="rbf")})
    assert kernels_of(Auto().learn(situation, both, None)) == ((None, None), ("matern52", "rbf"))


def test_each_factor_has_its_own_kernel_and_keeps_it_until_the_next_choice(situation_of) -> None:
    situation = told(situation_of(APART, t=44, outcomes="per-factor"), smooth, cone)
    learned = None
    for t in (36, 37, 40, 44):
        model = Auto().learn(first_of(situation, t), BELIEF, learned)
        learned = model.learned
        assert kernels_of(model) == (("rbf", None), ("rbf", "matern52"))
        assert msgspec.convert(msgspec.to_builtins(learned), Learned) == learned
    assert (learned.decomposed_at, learned.fitted_at) == (36, 44)
    assert [form.kernel for form in model.belief.settings.of_factors(("f", "g"))] == ["rbf", "matern52"]


def test_the_second_of_two_models_is_of_untransformed_outcomes_with_the_better_kernel(situation_of) -> None:
    situation = told(situation_of(WHOLE, t=20, outcomes="per-factor"), valley)
    first, second = Auto().learn(situation, BELIEF, None).learned.candidates
    assert first.form.warp == "power"
    assert second.form == Form(kernel="rbf")
    assert second.hyperparameters.kernels == ("rbf",)


@pytest.mark.parametrize("acquisition", ["dumbo", "expected-improvement"])
def test_another_acquisition_does_not_continue_with_the_chosen_kernel(situation_of, acquisition) -> None:
    situation = told(situation_of(WHOLE, t=40, outcomes="per-factor"), smooth)
    learned = Auto().learn(situation, BELIEF, None).learned
    assert learned.forms[0].kernel == "rbf"
    other = {"dumbo": sb.DuMBO(), "expected-improvement": sb.ExpectedImprovement()}[acquisition]
    for settings in (BELIEF, sb.AdditiveGPSettings(kernel="matern52")):
        assert other.learn(situation, settings, learned).belief.hyperparameters.kernels == ("matern52",)


def test_a_saved_team_continues_with_the_chosen_kernel(tmp_path) -> None:
    team = one_function(smooth, 16)
    play(team, lambda point: float(smooth(np.array([[point["a"], point["b"]]]))[0]), 5)
    assert team.model.learned.forms[0].kernel == "rbf"
    team.save(tmp_path / "team.npz")
    state = team.state_dict()
    plain = {"json": json.loads(json.dumps(state["json"])), "arrays": state["arrays"]}
    others = [sb.Team.load(tmp_path / "team.npz"), sb.Team.from_state_dict(plain)]
    points = [play(each, lambda point: point["a"] * point["b"], 4) for each in (team, *others)]
    assert points[1:] == points[:1] * 2
    assert kernels_of(others[0].model) == kernels_of(team.model)


def test_the_chosen_kernel_survives_a_restart(situation_of) -> None:
    situation = situation_of(WHOLE, t=40, outcomes="per-factor", initial=5)
    situation = told(situation, lambda U: np.r_[smooth(U[:20]), np.minimum(smooth(U[20:]), 0.0)])
    auto = Auto(restarts=Restarts(after=12, gain=1e3, fresh=4))
    situation = replace(situation, outcomes="per-factor")
    learned = Auto().learn(first_of(situation, 20), BELIEF, None).learned
    assert learned.forms[0].kernel == "rbf"
    model = auto.learn(first_of(situation, 21), BELIEF, learned)
    assert model.learned.restarted_at == 21
    for t in (22, 25, 28):
        model = auto.learn(first_of(situation, t), BELIEF, model.learned)
        assert (model.learned.restarted_at, model.learned.before.forms) == (21, learned.forms)
        assert kernels_of(model) == (("rbf",), ("rbf",))
        assert model.complete.belief.hyperparameters.kernels == ("rbf",)
        assert model.complete.belief.settings.of_factors(["f"])[0].kernel == "rbf"


def test_with_a_time_axis_no_kernel_is_chosen() -> None:
    fading = sb.AdditiveGPSettings(time=sb.TimeAxis(lengthscale_median=5.0))
    team = sb.Team(None, {"a": UNIT, "b": UNIT}, belief=fading, seed=0, initial=4)
    play(team, lambda point: float(smooth(np.array([[point["a"], point["b"]]]))[0]), 24)
    assert kernels_of(team.model) == ((), ("matern52",))


def test_a_smooth_function_of_a_category_and_two_numbers_has_an_rbf_kernel() -> None:
    shifts = {"p": 0.1, "q": 0.3, "r": 0.5}
    types = {"kind": sb.Categorical(list(shifts)), "a": UNIT, "b": UNIT}
    team = sb.Team(None, types, seed=0, initial=4)

    def value(point) -> float:
        return float(smooth(np.array([[point["a"] - shifts[point["kind"]] / 3.0, point["b"]]]))[0])

    rng = np.random.default_rng(0)
    places = [{"kind": "pqr"[i % 3], "a": rng.random(), "b": rng.random()} for i in range(45)]
    team.attach([{**point, "value": value(point)} for point in places])
    play(team, value, 3)
    assert kernels_of(team.model) == (("rbf",), ("rbf",))
    assert team.recommend().mean == pytest.approx(1.0, abs=0.05)


@pytest.mark.thorough
def test_forty_evaluations_find_the_end_of_a_curved_valley() -> None:
    def regret(seed, **settings):
        team = sb.Team(None, {"x": (-2.0, 2.0), "y": (-2.0, 2.0)}, seed=seed, **settings)
        for _ in range(40):
            query = team.ask()
            x, y = query.point["x"], query.point["y"]
            team.tell(query, -100.0 * (y - x**2) ** 2 - (1.0 - x) ** 2)
        return -max(team.history.totals)

    matern = {"belief": sb.AdditiveGPSettings(kernel="matern52")}
    ratios = [regret(seed, **matern) / regret(seed) for seed in range(3)]
    assert np.exp(np.mean(np.log(ratios))) > 5.0


def test_a_factor_whose_outcomes_do_not_vary_gets_no_smooth_kernel(situation_of) -> None:
    """Nothing is fitted to such outcomes, so evidence would compare priors in an arbitrary unit."""
    situation = told(situation_of(APART, t=40, outcomes="per-factor"), lambda U: np.zeros(len(U)), smooth)
    assert [form.kernel for form in Auto().learn(situation, BELIEF, None).learned.forms] == [None, "rbf"]
