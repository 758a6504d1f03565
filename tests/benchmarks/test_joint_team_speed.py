"""How long a team with a factor graph takes to ask. Run it with ``pytest --benchmark-only`` on this file."""

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo_envs.functions import get

N_EVALUATIONS = 100


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("fit", ["cold", "warm"])
def test_default_ask_on_powell_after_100_evaluations(benchmark: Any, outcomes: str, fit: str) -> None:
    """24 variables in six known blocks; ``cold`` fits hyper-parameters from scratch, ``warm`` from the last ones."""
    function = get("powell", moved=True)
    scopes = {factor: [function.variables[j] for j in scope] for factor, scope in function.scopes.items()}
    graph = sb.FactorGraph.from_scopes(scopes, owners={factor: f"agent_{factor}" for factor in scopes})
    bounds = dict(zip(function.variables, np.stack([function.low, function.high], 1).tolist(), strict=True))

    def make() -> sb.Team:
        return sb.Team(graph, bounds, outcomes=outcomes, seed=0)  # pyright: ignore[reportArgumentType]

    with threadpool_limits(1, user_api="blas"):
        team = make()
        for _ in range(N_EVALUATIONS):
            query = team.ask()
            values = function.factor_values(np.array([list(query.point.values())]))[0]
            team.tell(query, float(values.sum()) if outcomes == "total" else dict(zip(scopes, values, strict=True)))
        state = team.state_dict()
        if fit == "cold":
            state["json"]["learned"] = None
        else:
            state["json"]["learned"]["fitted_at"] = 1  # so that a fit is due

        def prepare() -> tuple[tuple[sb.Team], dict[str, Any]]:
            return (make().load_state_dict(state),), {}

        asked = benchmark.pedantic(lambda team: team.ask(), setup=prepare, rounds=15, warmup_rounds=2)
    assert len(asked.point) == 24
    assert asked.mean is not None
