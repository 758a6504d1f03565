"""Teams whose scopes are learned from totals or sampled: with every method, repeatable, and within the settings."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import Acquisition
from swarmbo.belief import AdditiveGPSettings
from swarmbo.belief.gp.additive_settings import SampledStructure, ScreenedScopes, StructureSettings
from swarmbo.belief.model import model as models
from swarmbo.belief.model.model import in_structure, learn_model
from swarmbo.belief.model.structure import LearnedStructure
from swarmbo.errors import ConfigError
from swarmbo.settings import convert

from .conftest import play

NAMES = tuple("uvwxyz")
BOUNDS = {name: (-1.0, 2.0 + i) for i, name in enumerate(NAMES)}
KINDS: dict[str, dict[str, Any]] = {
    "sampled": {"kind": "sampled", "samples": 2, "moves": 1, "burn_in": 3},
    "capped": {"kind": "sampled", "samples": 2, "moves": 1, "burn_in": 3, "largest": 2},
    "disjoint": {"kind": "sampled", "samples": 1, "burn_in": 3},
    "screened": {"kind": "screened", "tries": 5, "every": 3},
}
every_structure = pytest.mark.parametrize("structure", [KINDS["capped"], KINDS["screened"]], ids=["capped", "screened"])


def situation_of(team):
    return team._learner.situation(team._log, None)


def outcome(point: Mapping[str, float]) -> float:
    u, v, w, x, y, z = (point[name] for name in NAMES)
    return -((u - w) ** 2) - (v * y - 0.3) ** 2 + np.sin(x) - 0.1 * z**2


def team_of(structure: dict[str, Any] | None, **settings: Any) -> sb.Team:
    belief = {"kind": "additive", "max_iterations": 10, "structure": structure}
    return sb.Team(None, BOUNDS, **{"belief": belief, "initial": 5, "seed": 2, **settings})


def scopes_in_use(team: sb.Team) -> tuple[tuple[int, ...], ...]:
    structure = team.model.learned.structure
    return structure.scopes


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sampled", {"acquisition": "auto"}),
        ("screened", {"acquisition": "dec-hbo"}),
        ("capped", {"acquisition": "dumbo"}),
        ("disjoint", {"acquisition": "add-gp-ucb"}),
        *(("capped", {"coordination": kind}) for kind in ("refined-max-sum", "sobol")),
        *(
            pytest.param("capped", given, marks=pytest.mark.slow)
            for given in (
                *({"acquisition": kind} for kind in ("thompson", "expected-improvement")),
                *({"coordination": kind} for kind in ("centralised", "isotropic-gp")),
            )
        ),
    ],
    ids=str,
)
def test_every_method_works_on_scopes_that_cover_the_variables(kind, settings) -> None:
    team = team_of(KINDS[kind], **settings)
    play(team, outcome, 8)
    belief, sizes = team.model.belief, list(map(len, scopes_in_use(team)))
    assert kind != "capped" or max(sizes) <= 2
    assert kind != "disjoint" or sum(sizes) == len(NAMES)
    assert belief.graph.variables == NAMES
    assert belief.graph.variable_owners == team.graph.variable_owners
    assert {variable for scope in belief.graph.scopes for variable in scope} == set(NAMES)
    assert set(belief.graph.factor_owners) <= set(team.agents)
    assert [tuple(NAMES[i] for i in scope) for scope in scopes_in_use(team)] == list(belief.graph.scopes)
    recommended = team.recommend()
    assert np.isfinite(recommended.std)


@every_structure
def test_recommend_and_refit_change_no_decision_but_the_seed_does(structure) -> None:
    quiet, curious, other = team_of(structure), team_of(structure), team_of(structure, seed=3)
    expected, points = play(quiet, outcome, 9), []
    for _ in range(9):
        points += play(curious, outcome, 1)
        curious.recommend()
        curious.refit()
    assert points == expected
    assert play(other, outcome, 9) != expected


def test_scopes_are_chosen_again_when_due_but_not_while_a_query_is_pending() -> None:
    team, chosen = team_of({**KINDS["capped"], "every": 3}), []
    for _ in range(9):
        play(team, outcome, 1)
        structure = team.model.learned.structure
        chosen.append(structure.chosen_at)
    before = scopes_in_use(team)
    team.ask(2)
    assert scopes_in_use(team) == before
    assert len(set(chosen[4:])) == 2  # learned with the first decision after the design, and three evaluations later


class Spy(Acquisition, frozen=True, tag="spy"):
    """Records the arguments of ``learn``."""

    seen: list[Any] = msgspec.field(default_factory=list[Any])

    def learn(self, situation, belief_settings, previous):
        self.seen.append((situation, belief_settings, previous))
        return super().learn(situation, belief_settings, previous)


def test_shares_of_samples_are_the_prior_of_the_merged_factors() -> None:
    team, spy = team_of(None, acquisition="thompson"), Spy()
    play(team, outcome, 12)
    learned = learn_model(spy.learn, situation_of(team), AdditiveGPSettings(structure=SampledStructure()), None).learned
    situation, settings, previous = spy.seen[0]
    assert previous is None
    assert settings.structure is None
    assert len(learned.structure.scopes) > max(map(len, learned.structure.state[:1]))
    medians = [settings.factors[factor].outputscale_median for factor in situation.graph.factors]
    assert tuple(medians) == learned.structure.shares
    assert sum(medians) == pytest.approx(1.0)
    assert situation.history.factors.shape == (12, len(medians))
    assert np.isfinite(situation.history.totals).all()


def test_hyperparameters_move_with_the_scopes_and_are_refitted_when_due_only() -> None:
    settings = AdditiveGPSettings(structure=SampledStructure(samples=1, burn_in=3, largest=3, every=1), refit_every=4)
    team, spy, learned, fits = team_of(None), Spy(), None, []
    play(team, outcome, 8)
    for _ in range(6):
        learned = learn_model(spy.learn, situation_of(team), settings, learned).learned
        fits.append(learned.fitted_at)
        play(team, outcome, 1)
    assert fits == [8, 8, 8, 8, 12, 12]
    carried = [previous for _, _, previous in spy.seen[1:4]]
    for previous, (situation, _, _) in zip(carried, spy.seen[1:4], strict=True):
        sizes = [len(lengths) for lengths in previous.hyperparameters.lengthscales]
        assert sizes == [len(scope) for scope in situation.graph.scopes]
        assert sum(previous.hyperparameters.outputscales) == pytest.approx(sum(carried[0].hyperparameters.outputscales))


def test_scopes_may_change_between_one_factor_and_many(monkeypatch) -> None:
    whole, parts = (tuple(range(6)),), ((0, 2), (1, 4), (3,), (5,))
    turns = iter([whole, parts, whole, parts])
    settings, team = AdditiveGPSettings(structure=ScreenedScopes(every=1), max_iterations=15), team_of(None)
    play(team, outcome, 12)
    situation, learned = situation_of(team), None
    for _ in range(4):
        given = LearnedStructure(next(turns), (), 12, ((0,),))
        monkeypatch.setattr(models, "choose_structure", lambda *_, given=given: given)
        model = models.learn_model(team.acquisition.learn, situation, settings, learned)
        learned = model.learned
        functions = team.acquisition.local_functions(in_structure(situation, learned.structure), model)
        assert functions.graph.variables == NAMES
        assert [tuple(NAMES[i] for i in scope) for scope in given.scopes] == list(model.belief.graph.scopes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (((0, 1), (1, 2), (0, 2), (3, 4, 5)), ((0, 1), (1, 2), (3, 4, 5))),  # no new scopes
        (((0, 1), (2,), (3,), (4, 5)), ((0, 1), (2, 3), (4, 5))),
        (((0, 1), (2, 3), (4, 5)), ((0, 1), (2,), (3,), (4, 5))),
    ],
)
def test_the_prior_of_the_sum_stays_when_scopes_change_between_fits(monkeypatch, before, after) -> None:
    settings = AdditiveGPSettings(structure=ScreenedScopes(every=1), refit_every=99)
    team = team_of(None, acquisition="dec-hbo")
    X = np.random.default_rng(0).uniform(-1.0, 2.0, (12, 6))
    team.attach(X, 1000.0 + np.sin(X).sum(axis=1))
    learned, kept = None, []
    for scopes in (before, after):
        given = LearnedStructure(scopes, (), 12, ((0,),))
        monkeypatch.setattr(models, "choose_structure", lambda *_, given=given: given)
        learned = learn_model(team.acquisition.learn, situation_of(team), settings, learned).learned
        kept.append((learned.hyperparameters.constant, sum(learned.hyperparameters.outputscales), learned.fitted_at))
    assert kept[1] == pytest.approx(kept[0], rel=1e-9)
    assert kept[1][0] == pytest.approx(1000.0, abs=10.0)


@pytest.mark.parametrize("kind", ["sampled", "screened"])
def test_scopes_chosen_without_informative_outcomes_are_chosen_again_as_if_first(kind) -> None:
    settings = AdditiveGPSettings(structure=convert({**KINDS[kind], "every": 50}, StructureSettings, "$"))
    team, fresh = team_of(None), team_of(None)
    team.attach(np.zeros((2, 6)), [np.nan, 1.0])
    blind = learn_model(team.acquisition.learn, situation_of(team), settings, None).learned
    play(team, outcome, 6)
    fresh.attach(team.history.X, team.history.totals)
    seeing = learn_model(team.acquisition.learn, situation_of(team), settings, blind).learned
    first = learn_model(fresh.acquisition.learn, situation_of(fresh), settings, None).learned
    assert blind.structure.start is None
    assert seeing.structure == first.structure
    assert (seeing.structure.chosen_at, seeing.structure.start is None) == (8, False)


def test_groups_that_make_up_a_function_are_sampled() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((60, 6)) * 2.0
    team = team_of({"kind": "sampled", "samples": 10, "moves": 20, "burn_in": 150}, seed=0)
    Y = np.sin(2.0 * X[:, 0] - 3.0 * X[:, 2]) + np.cos(3.0 * X[:, 1] * X[:, 4]) + np.sin(2.0 * X[:, 3] + 2.0 * X[:, 5])
    team.attach(X, Y)
    structure = team.model.learned.structure
    shares = dict(zip(structure.scopes, structure.shares, strict=True))
    assert sum(shares.get(group, 0.0) for group in ((0, 2), (1, 4), (3, 5))) > 0.8


def test_a_learned_structure_replaces_a_known_graph() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["u", "w"], "g": ["v", "x", "y", "z"]}, owners={"f": "ann", "g": "bob"})
    belief = AdditiveGPSettings(structure=SampledStructure(samples=1, largest=2), max_iterations=10)
    team = sb.Team(graph, BOUNDS, belief=belief, initial=3)
    play(team, outcome, 5)
    assert max(map(len, team.model.belief.graph.scopes)) <= 2
    assert set(team.model.belief.graph.factor_owners) == {"ann", "bob"}


@pytest.mark.parametrize(
    ("structure", "settings", "message"),
    [
        ({"kind": "sampled"}, {"acquisition": {"kind": "add-gp-ucb", "groups": "learned"}}, "one of them"),
        ({"kind": "sampled"}, {"acquisition": "add-gp-ucb"}, "scopes overlap"),
        ({"kind": "sampled", "samples": 0}, {}, r"belief\.structure\.samples: got 0"),
        ({"kind": "sampling"}, {}, r"did you mean 'sampled'"),
        ({"kind": "sampled", "smples": 3}, {}, r"did you mean 'samples'"),
    ],
)
def test_inconsistent_or_misspelt_settings_are_refused(structure, settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        team_of(structure, **settings)


@pytest.mark.parametrize(
    ("priors", "outcomes", "message"),
    [({}, "per-factor", "outcomes per factor"), ({"f": {}}, "total", "none where a structure")],
)
def test_a_structure_with_outcomes_per_factor_or_priors_by_name_is_refused(priors, outcomes, message) -> None:
    belief = {"kind": "additive", "structure": {"kind": "sampled"}, "factors": priors}
    with pytest.raises(ConfigError, match=message):
        sb.Team(sb.FactorGraph.from_scopes({"f": NAMES}), BOUNDS, belief=belief, outcomes=outcomes)


def test_with_learned_scopes_parts_given_up_are_no_failures_and_failed_parts_are() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z"]})
    team = sb.Team(graph, dict.fromkeys("xyz", (0.0, 1.0)), seed=0)
    told = [{"f": 1.0, "g": 1.0, "h": 1.0}, {"f": 1.0}, {"f": 1.0}, {"f": None}, {"f": 1.0, "g": None, "h": 1.0}]
    for i, outcomes in enumerate(told):
        team.tell(query := team.ask(), outcomes)
        if i == 1:
            team.give_up(query)
    situation = situation_of(team)
    inside = in_structure(situation, LearnedStructure(((0, 1), (2,)), (), 5, ((0,),)))
    assert inside.history.failed.tolist() == [[failed] * 2 for failed in situation.history.failed.any(axis=1)]
    assert inside.history.failed.any(axis=1).tolist() == [False] * 3 + [True] * 2
    assert inside.history.awaited.any(axis=1).tolist() == [False, False, True, False, False]
    assert inside.history.taken.all(axis=1).tolist() == [True, False, True, True, True]
