"""Contract of all acquisitions of teams with a factor graph: gradients, independence of stacks, ownership, resume."""

import msgspec
import numpy as np
import pytest

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.confidence_bounds import DECHBO, AddGPUCB
from swarmbo.acquisition.dumbo import DuMBO
from swarmbo.acquisition.expected_improvement import ExpectedImprovement
from swarmbo.acquisition.thompson import Thompson
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.model import Learned, Model
from swarmbo.errors import ConfigError, OwnershipError
from swarmbo.graph import BoxFunctions, FactorStack, stacks_of
from swarmbo.graph.box_functions import exchange, total_value
from swarmbo.settings import convert

from .conftest import OVERLAPPING

KINDS = [
    AddGPUCB(groups="learned", group_size=2),
    DECHBO(),
    DECHBO(exploration="theory"),
    DECHBO(exploration="theory-continuous"),
    DuMBO(),
    DuMBO(coupled=True),
    DuMBO(exploration="theory"),
    Thompson(n_features=64),
    ExpectedImprovement(),
]
names = [f"{type(kind).__name__}-{getattr(kind, 'exploration', '')}-{getattr(kind, 'coupled', '')}" for kind in KINDS]
every_kind = pytest.mark.parametrize(
    "kind",
    [  # others of the same class share most code, and are "thorough"
        pytest.param(kind, id=name, marks=[pytest.mark.thorough] if type(kind) in map(type, KINDS[:n]) else [])
        for n, (name, kind) in enumerate(zip(names, KINDS, strict=True))
    ],
)
BELIEF = AdditiveGPSettings(max_iterations=20)


def functions_of(kind: Acquisition, situation) -> BoxFunctions:
    return kind.local_functions(situation, kind.learn(situation, BELIEF, None))


@every_kind
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_the_gradient_is_that_of_the_value_that_a_factor_maximises(kind, outcomes, situation_of) -> None:
    scopes = OVERLAPPING
    if isinstance(kind, AddGPUCB) and outcomes == "per-factor":
        kind, scopes = AddGPUCB(), {"f": ["a", "b"], "g": ["c", "d"], "h": ["e"]}  # groups are learned from totals only
    functions = functions_of(kind, situation_of(scopes, outcomes=outcomes, noise=3.0))
    stacks = stacks_of(functions.graph)
    U = np.random.default_rng(1).random((5, len(functions.graph.variables)))
    points = [stack.take(U) for stack in stacks]
    for stack, X, received in zip(stacks, points, exchange(functions, stacks, points), strict=True):
        climbed, gradient = functions.value_and_gradient(stack, X, received)
        for axis in range(stack.size):
            step = np.zeros(stack.size)
            step[axis] = 1e-5
            up, _ = functions.value_and_gradient(stack, X + step, received)
            down, _ = functions.value_and_gradient(stack, X - step, received)
            scale = max(np.abs(gradient).max(), np.abs(climbed).max())
            # sampled waves are single precision, and a logarithm magnifies the rounding of small variances
            tolerance = {"Thompson": 2e-2, "ExpectedImprovement": 1e-4}.get(type(kind).__name__, 1e-6)
            np.testing.assert_allclose(gradient[..., axis], (up - down) / 2e-5, atol=tolerance * scale, rtol=0)


@every_kind
def test_results_of_a_factor_do_not_depend_on_other_factors_in_the_stack(kind, situation_of) -> None:
    functions = functions_of(kind, situation_of())
    stacks = stacks_of(functions.graph)
    U = np.random.default_rng(2).random((7, len(functions.graph.variables)))
    points = [stack.take(U) for stack in stacks]
    for stack, X, received in zip(stacks, points, exchange(functions, stacks, points), strict=True):
        value, gradient = functions.value_and_gradient(stack, X, received)
        plain = functions.value(stack, X, received)
        for g, factor in enumerate(stack.factors):
            (alone,) = stacks_of(functions.graph, [factor])
            own = [phase[g : g + 1] for phase in received]
            theirs = functions.of([factor])
            one_value, one_gradient = theirs.value_and_gradient(alone, X[g : g + 1], own)
            assert np.array_equal(one_value[0], value[g])
            assert np.array_equal(one_gradient[0], gradient[g])
            assert np.array_equal(theirs.value(alone, X[g : g + 1], own)[0], plain[g])
            for phase in range(functions.n_exchanges):
                published = functions.published(stack, X, received[:phase])
                assert np.array_equal(theirs.published(alone, X[g : g + 1], own[:phase])[0], published[g])


@every_kind
def test_functions_have_the_teams_variables_in_order_and_the_whole_unit_cube(kind, situation_of) -> None:
    situation = situation_of()
    functions = functions_of(kind, situation)
    for name in ("variables", "variable_owners"):
        assert getattr(functions.graph, name) == getattr(situation.graph, name)
    assert [functions.low.tolist(), functions.high.tolist()] == [[0.0] * 5, [1.0] * 5]
    assert functions.starts.shape == (3, 5)
    assert np.isfinite(total_value(functions, functions.starts)).all()


@every_kind
def test_an_owner_may_ask_for_its_own_factors_only(kind, situation_of) -> None:
    functions = functions_of(kind, situation_of())
    first, *_, last = functions.graph.factors
    (stack,), own = stacks_of(functions.graph, [last]), functions.of([first])
    for ask in (own.value, own.value_and_gradient):
        with pytest.raises(OwnershipError, match=f"asked for factor '{last}'"):
            ask(stack, np.zeros((1, 1, stack.size)), ())


@every_kind
@pytest.mark.parametrize("t", [0, 2])
def test_values_are_finite_with_hardly_any_data(kind, t, situation_of) -> None:
    U = np.random.default_rng(3).random((4, 5))
    assert np.isfinite(total_value(functions_of(kind, situation_of(t=t)), U)).all()


@every_kind
def test_a_model_is_a_function_of_the_history_and_what_was_learned_before(kind, situation_of) -> None:
    """A resumed team, which has only the record of what was learned, decides as the uninterrupted one."""

    def decided(model: Model, situation) -> bytes:
        functions = kind.local_functions(situation, model)
        return total_value(functions, np.random.default_rng(4).random((6, 5))).tobytes()

    first, second = situation_of(t=12), situation_of(t=14, pending=2)
    learned = kind.learn(first, BELIEF, None).learned
    record = msgspec.json.encode(learned)
    uninterrupted = decided(kind.learn(second, BELIEF, learned), second)
    resumed = decided(kind.learn(second, BELIEF, msgspec.json.decode(record, type=Learned)), second)
    assert uninterrupted == resumed
    assert uninterrupted != decided(kind.learn(first, BELIEF, None), first)


@pytest.mark.parametrize("kind", ["add-gp-ucb", "dec-hbo", "dumbo"])
def test_the_earlier_name_of_the_schedule_is_refused_and_the_present_name_is_suggested(kind) -> None:
    with pytest.raises(ConfigError, match=r"\$\.acquisition: unknown key 'beta'; did you mean 'exploration'"):
        convert({"kind": kind, "beta": "theory"}, AddGPUCB | DECHBO | DuMBO, at="$.acquisition")


def test_an_acquisition_without_functions_raises_an_error_that_names_them(situation_of) -> None:
    situation = situation_of(t=2)
    with pytest.raises(NotImplementedError, match="the functions that agents maximise"):
        Acquisition().local_functions(situation, Acquisition().learn(situation, BELIEF, None))


def test_functions_without_exchange_publish_nothing(situation_of) -> None:
    functions = functions_of(DECHBO(), situation_of(t=2))
    with pytest.raises(NotImplementedError, match="no phases"):
        functions.published(FactorStack(("h",), np.array([[3]])), np.zeros((1, 1, 1)), ())
