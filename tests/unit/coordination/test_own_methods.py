"""A coordination method defines the steps of one agent; both forms follow. No name of the package hides a module."""

import importlib
import pkgutil
from collections.abc import Mapping

import numpy as np
import pytest

import swarmbo as sb
from swarmbo import coordination
from swarmbo.coordination.agreement import TableOutcome
from swarmbo.coordination.decoding import sweep
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Table
from swarmbo.testing.coordinator import Bowls


class BestResponse(TableMethod, frozen=True, tag="best-response"):
    """Variables sequentially take their best values, given all others."""

    sweeps: int = 5
    looks_at_others: bool = False

    def steps(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        if self.looks_at_others:
            assert all(np.isfinite(tables[factor]).any() for factor in view.graph.factors)
        chosen = dict.fromkeys([*view.variables, *view.seen], 0)
        for _ in range(self.sweeps):
            chosen = yield from sweep(view, tables, chosen, dict.fromkeys(view.factors, 1.0))
        return TableOutcome({x: chosen[x] for x in view.variables}, "max_rounds", self.sweeps)


def test_a_method_defined_by_the_steps_of_one_agent_keeps_the_contract() -> None:
    sb.testing.check_coordinator(BestResponse)


def test_an_agent_has_access_to_its_own_tables_only() -> None:
    with pytest.raises(KeyError):
        sb.testing.check_coordinator(lambda: BestResponse(looks_at_others=True))


class OtherName(Bowls):
    """Bowls with another name for the argument of received sums."""

    def value_and_gradient(self, stack, U, heard):
        return super().value_and_gradient(stack, U, heard)


@pytest.mark.parametrize("mode", ["lockstep", "asynchronous"])
def test_functions_may_have_other_names_for_their_arguments(mode: str) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
    corners = graph, np.zeros(3), np.ones(3), np.empty((0, 3))
    one, other = (sb.ADMM(rounds=3, mode=mode).maximise(kind(*corners)) for kind in (Bowls, OtherName))
    assert one.value == other.value


def test_no_function_is_named_like_a_module() -> None:
    names = [module.name for module in pkgutil.iter_modules(coordination.__path__)]
    assert "decoding" in names
    for name in names:
        assert importlib.import_module(f"swarmbo.coordination.{name}") is getattr(coordination, name)
