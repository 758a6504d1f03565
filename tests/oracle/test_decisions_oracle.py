"""A team, and agents that are told their own outcomes only, decide and count alike; and both as they did before."""

import pytest
from threadpoolctl import threadpool_limits

from .driven import APART, SCENARIOS, driven, recorded

SHIPPED = [name for name in SCENARIOS if name not in APART]
QUICK = {"camel", "field-soil", "hartmann", "robots", "robots-depot", "wlan"}

FEW = {"robots-mujoco": 3, "field": 3, "swarm": 2, "swarm-sensors": 2}  # rounds
NEAR = {"rel": 1e-4, "abs": 1e-5}  # processors round in ways of their own, which searches enlarge
THOROUGH = {"hartmann-mixed", "powell", "robots-obstacles", "wlan-mobility"}  # one of each kind of world


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        *(pytest.param(name, 3, id=name) for name in SHIPPED if name in QUICK),
        *(
            pytest.param(
                name,
                FEW.get(name, 4),
                id=f"{name}, longer",
                marks=pytest.mark.thorough if name in THOROUGH else pytest.mark.slow,
            )
            for name in SHIPPED
            if name not in QUICK
        ),
    ],
)
def test_a_team_and_its_agents_decide_and_send_the_same_and_as_recorded(name: str, rounds: int):
    with threadpool_limits(1, user_api="blas"):
        by_team = list(driven(name, by_agents=False, rounds=rounds))
        by_agents = list(driven(name, by_agents=True, rounds=rounds))
    assert [found.point for found in by_agents] == [found.point for found in by_team]
    assert [found.sent for found in by_agents] == [found.sent for found in by_team]
    n = len(by_team) if name.startswith(("field", "robots")) else 3  # of functions searches enlarge what is rounded
    before = recorded()[name][:n]
    near = [{v: pytest.approx(x, **NEAR) if isinstance(x, float) else x for v, x in point.items()} for point in before]
    assert [found.point for found in by_team[:n]] == near


def test_every_shipped_scenario_is_recorded_or_known_to_need_more():
    assert set(recorded()) | set(APART) == set(SCENARIOS)
