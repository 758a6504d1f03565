"""A team, and agents that receive only their own outcomes, decide and send the same, and decide as recorded."""

import pytest
from threadpoolctl import threadpool_limits

from .driven import APART, FEWER, SCENARIOS, driven, recorded

SHIPPED = [name for name in SCENARIOS if name not in APART]
QUICK = {"camel", "field-soil", "hartmann", "robots-depot", "wlan"}
NEAR = {"rel": 1e-4, "abs": 1e-5}  # processors differ in rounding, and searches amplify the differences
THOROUGH = {"hartmann-mixed", "powell", "robots-obstacles", "wlan-mobility"}  # one of each kind of world


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.thorough if name in THOROUGH else pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in SHIPPED])
def test_a_team_and_its_agents_decide_and_send_the_same_and_as_recorded(name: str):
    rounds = min(3, FEWER.get(name, 3))
    with threadpool_limits(1, user_api="blas"):
        by_team = list(driven(name, by_agents=False, rounds=rounds))
        by_agents = list(driven(name, by_agents=True, rounds=rounds))
    assert [found.point for found in by_agents] == [found.point for found in by_team]
    assert [found.sent for found in by_agents] == [found.sent for found in by_team]
    n = len(by_team) if name.startswith(("field", "robots")) else 3  # on functions, searches amplify rounding
    before = recorded()[name][:n]
    near = [{v: pytest.approx(x, **NEAR) if isinstance(x, float) else x for v, x in point.items()} for point in before]
    assert [found.point for found in by_team[:n]] == near


def test_every_shipped_scenario_is_recorded_or_known_to_need_more():
    assert set(recorded()) | set(APART) == set(SCENARIOS)
